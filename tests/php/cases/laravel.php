<?php

declare(strict_types=1);

namespace Cohort\Tests;

use App\Jobs\Act;

/** @var string $label @var \Closure $story */

$act = act(...);

$story('a job that ends is done', static function (Bench $app) use ($act): void {
    $trace = $app->run([$act('nothing'), $act('nothing')]);
    same([[1, 0], [1, 0]], $trace->outcomes(), $trace->output);
    same([1, 2], $trace->names('begin'));
    same(0, $trace->exit, $trace->output);
    same('', $trace->logged());
});

$story('a release goes back with its delay', static function (Bench $app) use ($act): void {
    $trace = $app->run([$act('release', 10), $act('release'), $act('release_later'), $act('delete_release')]);
    same([[2, 10], [2, 0], [2, 30], [2, 5]], $trace->outcomes(), $trace->output);
});

$story('an exception with tries left releases with the backoff, without them fails', static function (Bench $app) use ($act): void {
    $trace = $app->run([
        $act('throw', null, [], ['tries' => 3, 'attempts' => 2, 'backoff' => '3,7']),
        $act('throw', null, ['backoff' => [1, 5, 10]], ['tries' => 9, 'attempts' => 8]),
        $act('throw', null, [], ['tries' => 3, 'attempts' => 3]),
        $act('throw', null, ['tries' => 5], ['tries' => 1]),
        $act('throw', null, [], ['tries' => 0, 'attempts' => 900]),
    ]);
    same([[2, 7], [2, 10], [3, 0], [2, 0], [2, 0]], $trace->outcomes(), $trace->output);
    contains('DomainException: told to in ', $trace->all('end')[2][3]);
    same(1, count($trace->all('failed_called')));
    $rows = $app->rows('select * from failed_jobs');
    same(1, count($rows));
    same(['database', 'default'], [$rows[0]['connection'], $rows[0]['queue']]);
    contains('told to', $rows[0]['exception']);
});

$story('fail and delete are what they say', static function (Bench $app) use ($act): void {
    $trace = $app->run([$act('fail', null, [], ['tries' => 9]), $act('delete'), $act('delete_throw')]);
    same([[3, 0], [1, 0], [1, 0]], $trace->outcomes(), $trace->output);
    contains('failed by hand', $trace->all('end')[0][3]);
    same(1, count($app->rows('select * from failed_jobs')));
});

$story('a job started too often fails without running', static function (Bench $app) use ($act): void {
    $trace = $app->run([$act('nothing', null, [], ['attempts' => 2, 'tries' => 1])]);
    same([[3, 0]], $trace->outcomes());
    same([], $trace->all('ran'));
    contains('MaxAttemptsExceeded', $trace->first('end')[3]);
});

$story('the agent owns the row', static function (Bench $app) use ($act): void {
    $app->database()->exec("insert into jobs values (101, 'default', '{}', 0, 1, 1, 1)");
    $app->run([$act('nothing')]);
    same(1, count($app->rows('select * from jobs')));
});

$story('a veto of Looping and maintenance decline, --force does not', static function (Bench $app) use ($act): void {
    $trace = $app->run([$act('nothing')], ['provider' => 'veto']);
    same([[4, 0]], $trace->outcomes());
    same([], $trace->all('begin'));
    $app->write('storage/framework/down', '{}');
    same([[4, 0]], $app->run([$act('nothing')])->outcomes());
    same([[1, 0]], $app->run([$act('nothing')], ['config' => ['app' => $app->dir, 'force' => '1']])->outcomes());
});

$story('a job taken back does not run', static function (Bench $app) use ($act): void {
    $trace = $app->run([$act('nothing'), $act('nothing')], ['taken_back' => [1]]);
    same([2], $trace->names('end'));
    same(1, count($trace->all('ran')));
});

$story('a worker whose ticket is being ended leaves', static function (Bench $app) use ($act): void {
    $trace = $app->run([$act('nothing'), $act('nothing')], ['ending' => [1]]);
    same([1], $trace->names('end'));
    same(0, $trace->exit);
});

$story('events come in Laravel\'s order', static function (Bench $app) use ($act, $label): void {
    $newer = static fn (string ...$names): array => $label === '8.83' ? [] : $names;
    $trace = $app->run([$act('nothing')]);
    same([...$newer('WorkerStarting'), 'Looping', ...$newer('JobPopping', 'JobPopped'), 'JobProcessing', 'JobProcessed',
        ...$newer('JobAttempted'), 'WorkerStopping'], $trace->names('event'), $trace->output);
    $trace = $app->run([$act('throw', null, [], ['tries' => 2])]);
    same([...$newer('WorkerStarting'), 'Looping', ...$newer('JobPopping', 'JobPopped'), 'JobProcessing',
        'JobExceptionOccurred', ...$newer('JobReleasedAfterException', 'JobAttempted'), 'WorkerStopping'], $trace->names('event'));
    $trace = $app->run([$act('throw')]);
    same([...$newer('WorkerStarting'), 'Looping', ...$newer('JobPopping', 'JobPopped'), 'JobProcessing', 'JobFailed',
        'JobExceptionOccurred', ...$newer('JobAttempted'), 'WorkerStopping'], $trace->names('event'));
});

$story('a listener that deletes the job ends it unfired', static function (Bench $app) use ($act): void {
    $trace = $app->run([$act('nothing')], ['provider' => 'delete']);
    same([[1, 0]], $trace->outcomes());
    same([], $trace->all('ran'));
});

if ($label !== '8.83') {
    $story('what a JobPopped listener throws counts as the job\'s', static function (Bench $app) use ($act): void {
        $trace = $app->run([$act('nothing', null, [], ['tries' => 2, 'backoff' => '4'])], ['provider' => 'popped']);
        same([[2, 4]], $trace->outcomes(), $trace->output);
        contains('popped listener', $trace->first('end')[3]);
    });
}

$story('maxExceptions counts over runs', static function (Bench $app): void {
    $payload = json_encode(['uuid' => 'u-1', 'displayName' => Act::class, 'job' => 'Illuminate\Queue\CallQueuedHandler@call',
        'maxTries' => null, 'maxExceptions' => 2, 'data' => ['commandName' => Act::class,
            'command' => 'O:12:"App\Jobs\Act":1:{s:4:"what";s:5:"throw";}']]);
    $trace = $app->run([['payload' => $payload, 'tries' => 0], ['payload' => $payload, 'tries' => 0, 'attempts' => 2]]);
    same([[2, 0], [3, 0]], $trace->outcomes(), $trace->output);
});

$story('a transaction left open is rolled back with a warning', static function (Bench $app) use ($act): void {
    $trace = $app->run([$act('leak_transaction'), $act('level'), $act('leak_and_throw'), $act('leak_and_fail'), $act('level')]);
    same([[1, 0], [1, 0], [3, 0], [3, 0], [1, 0]], $trace->outcomes(), $trace->output);
    same([0, 0], $trace->names('level'));
    contains('left a transaction open on database connection sqlite', $trace->logged());
    same([], $app->rows('select * from probe'));
    same(2, count($app->rows('select * from failed_jobs')));
});

$story('a connection opened at boot is not used by a worker', static function (Bench $app) use ($act): void {
    $trace = $app->run([$act('pdo')], ['provider' => 'open']);
    same([[1, 0]], $trace->outcomes(), $trace->output);
    same([false], $trace->names('same_pdo'));
});

$story('a batch counts although another worker was in the way', static function (Bench $app) use ($act): void {
    $db = $app->database();
    $db->exec('pragma journal_mode = wal');
    $db->exec("insert into job_batches values ('b1', '', 5, 5, 0, '[]', null, null, 1, null)");
    $trace = $app->run([$act('batch_race')]);
    same([[1, 0]], $trace->outcomes(), $trace->output . ($trace->all('end')[0][3] ?? ''));
    same([2, 4], [count($app->rows('select * from probe')), $app->rows('select pending_jobs from job_batches')[0]['pending_jobs']]);
});

$story('a retried job that fails again has one record, the new one', static function (Bench $app) use ($act): void {
    foreach (['throw' => 'told to', 'fail_retried' => 'again'] as $what => $why) {
        $app->database()->exec('delete from failed_jobs');
        $app->database()->exec("insert into failed_jobs (uuid, exception) values ('u-1', 'old')");
        $trace = $app->run([$act($what, null, [], ['uuid' => 'u-1'])]);
        same([[3, 0]], $trace->outcomes(), $trace->output);
        same('', $trace->logged());
        same($what === 'throw' ? 0 : 1, count($trace->all('forgotten')));
        [$row] = $app->rows('select * from failed_jobs');
        same('u-1', $row['uuid']);
        contains($why, $row['exception']);
    }
});

$story('scoped bindings live for one job', static function (Bench $app) use ($act): void {
    $ids = $app->run([$act('scoped'), $act('scoped')])->names('scoped');
    same(2, count(array_unique($ids)));
});

$story('a lost connection ends the worker after the job', static function (Bench $app) use ($act): void {
    $trace = $app->run([$act('lost', null, [], ['tries' => 2]), $act('nothing')]);
    same([0, 1], [$trace->exit, count($trace->all('end'))]);
});

$story('memory over the limit is told and the worker goes on until it is replaced', static function (Bench $app) use ($act, $label): void {
    $trace = $app->run([$act('nothing', null, [], ['memory' => 64 << 20]), $act('grow', null, [], ['memory' => 32 << 20]), $act('nothing')]);
    same([0, [0, 2, 0]], [$trace->exit, array_column($trace->all('end'), 5)], $trace->output);
    same([[0, $label === '8.83' ? null : 'Interrupted']], $trace->all('stopping'));
    $trace = $app->run([$act('grow', null, [], ['memory' => 32 << 20])]);
    same(0, $trace->exit, $trace->output);
    same([[12, $label === '8.83' ? null : 'MaxMemoryExceeded']], $trace->all('stopping'));
});

$story('SIGTERM lets the job end, SIGUSR2 does nothing', static function (Bench $app) use ($act): void {
    $trace = $app->run([$act('term'), $act('nothing')]);
    same([0, [[1, 0]]], [$trace->exit, $trace->outcomes()]);
});

$story('exit and fatal errors in a job leave a line in the log', static function (Bench $app) use ($act): void {
    $trace = $app->run([$act('exit')]);
    same([], $trace->all('end'));
    contains('job 101 (App\Jobs\Act) of queue default ended its worker by calling exit()', $trace->logged());
    $trace = $app->run([$act('oom')]);
    same([], $trace->all('end'));
    contains('Allowed memory size', $trace->logged());
});

$story('config tells every connection or why not', static function (Bench $app): void {
    [, $ok, $config] = $app->control('config');
    same(true, $ok);
    same(['laravel', 'database', 'production'], [$config['kind'], $config['default'], $config['environment']]);
    $by = array_column($config['connections'], null, 'name');
    same('database', $config['connections'][0]['name']);
    same(['name' => 'database', 'refused' => null, 'database' => realpath("{$app->dir}/database/database.sqlite"),
        'retry_after' => 90, 'synchronous' => 'normal', 'table' => 'jobs', 'queue' => 'default', 'driver' => 'database'],
        array_replace(array_flip(['name', 'refused', 'database', 'retry_after', 'synchronous', 'table', 'queue', 'driver']), $by['database']));
    same(['shop_jobs', 'high,low'], [$by['prefixed']['table'], $by['prefixed']['queue']]);
    contains('in memory', $by['memory']['refused']);
    contains('/nonexistent/x.sqlite does not exist', $by['missing']['refused']);
    contains('mysql', $by['mysql']['refused']);
    same([null, 'fixture_'], [$by['redis']['refused'], $by['redis']['redis']['prefix']]);
    contains('QUEUE_CONNECTION=database', $by['sync']['refused']);
    contains('strange', $by['strange']['refused']);
});

$story('config follows env_file, DATABASE_URL and a relative DB_DATABASE', static function (Bench $app): void {
    $app->write('custom.env', "QUEUE_CONNECTION=sync\nDB_DATABASE=database/database.sqlite\n");
    [, , $config] = $app->control('config', [], ['config' => ['app' => $app->dir, 'env_file' => 'custom.env']]);
    same('sync', $config['default']);
    $by = array_column($config['connections'], null, 'name');
    same(realpath("{$app->dir}/database/database.sqlite"), $by['database']['database']);
    copy("{$app->dir}/database/database.sqlite", "{$app->dir}/other.sqlite");
    [, , $config] = $app->control('config', [], ['env' => ['DATABASE_URL' => "sqlite:///{$app->dir}/other.sqlite"]]);
    $by = array_column($config['connections'], null, 'name');
    same(realpath("{$app->dir}/other.sqlite"), $by['database']['database']);
});

$story('push goes through the application', static function (Bench $app): void {
    [, $ok, $data] = $app->control('push', ['queue' => 'mail', 'payload' => '{"job":"X@y","data":[]}']);
    same([true, '1'], [$ok, $data['id']]);
    same([['mail', '{"job":"X@y","data":[]}']], array_map('array_values', $app->rows('select queue, payload from jobs')));
    [, $ok, $data] = $app->control('push', ['queue' => 'mail', 'payload' => '{"a":1}']);
    same([false, 'invalid'], [$ok, $data['code']]);
});

foreach (['database-uuids', 'database'] as $driver) {
    $story("failed jobs are listed, shown, retried and forgotten ({$driver})", static function (Bench $app) use ($act, $driver): void {
        $env = ['env' => ['FAILED_DRIVER' => $driver]];
        if ($driver === 'database') {
            $app->database()->exec('drop table failed_jobs');
            $app->database()->exec('create table failed_jobs (id integer primary key autoincrement, connection text, queue text,
                payload text, exception text, failed_at datetime)');
        }
        $app->run([$act('throw'), $act('throw'), $act('throw'), $act('throw')], $env);
        [, $ok, $list] = $app->control('failed.list', ['limit' => 3], $env);
        same([true, 3], [$ok, count($list['jobs'])]);
        ['id' => $id, 'uuid' => $uuid] = $list['jobs'][0];
        same(36, strlen($uuid));
        foreach ([$id, $uuid, 4] as $name) {
            [, , $job] = $app->control('failed.show', ['id' => $name], $env);
            same([$uuid, 'database', 'default'], [$job['uuid'], $job['connection'], $job['queue']]);
            contains('told to', $job['exception']);
        }
        [, $ok, $error] = $app->control('failed.show', ['id' => 'nobody'], $env);
        same([false, 'not_found'], [$ok, $error['code']]);
        same(['retried' => 1], $app->control('failed.retry', ['ids' => [$uuid]], $env)[2]);
        same(1, count($app->rows('select * from jobs where attempts = 0 and reserved_at is null')));
        same(['forgotten' => 1], $app->control('failed.forget', ['ids' => [$list['jobs'][1]['uuid']]], $env)[2]);
        same(['retried' => 2], $app->control('failed.retry', ['all' => true], $env)[2]);
        same(['forgotten' => 0], $app->control('failed.forget', ['all' => true], $env)[2]);
        same(3, count($app->rows('select * from jobs')));
    });
}

$story('keys tell restart, maintenance and pauses', static function (Bench $app) use ($label): void {
    $ask = ['queues' => ['database:default', 'database:a:b', 'redis:default']];
    same(['down' => false, 'restart' => null, 'paused' => [], 'paused_all' => false], $app->control('keys', $ask)[2]);
    $app->artisan("app('cache.store')->forever('illuminate:queue:restart', 1234);");
    $app->write('storage/framework/down', '{}');
    $keys = $app->control('keys', $ask)[2];
    same([true, 1234], [$keys['down'], $keys['restart']]);
    if ($label === '8.83') {
        foreach (['queue.pause', 'queue.resume'] as $name) {
            [, $ok, $refusal] = $app->control($name, ['connection' => 'database', 'queue' => 'default']);
            same([false, 'unsupported'], [$ok, $refusal['code']]);
            contains('has no pause of queues, which came with 12.40', $refusal['error']);
        }
        return;
    }
    foreach (['a:b', 'default'] as $queue) {
        same([true, ['paused' => true]], array_slice($app->control('queue.pause', ['connection' => 'database', 'queue' => $queue]), 1));
    }
    same(['database:default', 'database:a:b'], $app->control('keys', $ask)[2]['paused']);
    same(['paused' => false], $app->control('queue.resume', ['connection' => 'database', 'queue' => 'a:b'])[2]);
    same(['database:default'], $app->control('keys', $ask)[2]['paused']);
    if ($label === '13') {
        $app->artisan("app('queue')->pauseAll();");
        $keys = $app->control('keys', $ask)[2];
        same([true, $ask['queues']], [$keys['paused_all'], $keys['paused']]);
        $app->artisan("app('queue')->resumeAll(); Illuminate\\Support\\Facades\\Facade::clearResolvedInstances();");
        same(['database:default'], $app->control('keys', $ask)[2]['paused']);
    }
});

$story('keys that cannot be read are refused with the reason', static function (Bench $app): void {
    $app->write('config/cache.php', "<?php return ['default' => 'gone', 'prefix' => '', 'stores' => ['gone' => ['driver' => 'database',
        'connection' => 'missing', 'table' => 'cache', 'lock_table' => 'cache_locks']]];");
    [, $ok, $refusal] = $app->control('keys', ['queues' => ['database:default']]);
    same([false, 'failed'], [$ok, $refusal['code']]);
    contains("The application's queue switches cannot be read from the cache store gone: ", $refusal['error']);
    [, $ok, $refusal] = $app->control('keys', ['queues' => ['nonsense']]);
    same([false, 'invalid'], [$ok, $refusal['code']]);
});

$story('doctor describes PHP and the application', static function (Bench $app): void {
    [, $ok, $doctor] = $app->control('doctor');
    same(true, $ok);
    same(PHP_VERSION, $doctor['php']['version']);
    same(true, isset($doctor['php']['extensions']['json']));
    same('DEFERRED', $doctor['app']['transaction_mode']['sqlite']);
});

$story('a control question that fails is refused and the worker goes on', static function (Bench $app): void {
    $ask = static fn (string $name, string $body): array => ['type' => 'control', 'name' => $name, 'body' => $body];
    $trace = $app->run([$ask('nonsense', ''), $ask('push', '[broken'), $ask('keys', '{}')], ['kind' => 'control']);
    same([false, false, true], array_column($trace->all('reply'), 1));
    same(0, $trace->exit);
});
