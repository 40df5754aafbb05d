<?php

declare(strict_types=1);

namespace Cohort\Tests;

$app = <<<'PHP'
<?php

use Cohort\App;
use Cohort\Fake\Wire;
use Cohort\Job;

return new App(job: function (Job $job): void {
    Wire::record('ran', $job->uuid, $job->queue, $job->data, $job->attempts, $job->tries);
    match ($job->data) {
        'throw' => throw new DomainException('told to'),
        'release' => $job->release(10),
        'release_throw' => [$job->release(9), throw new DomainException('told to')],
        'fail' => $job->fail('failed by hand'),
        'delete_throw' => [$job->delete(), throw new DomainException('told to')],
        'dispatch' => Wire::record('dispatched', Cohort\dispatch('next', ['n' => 1.0], delay: 2.5, tries: 3)),
        'hang' => (function () { for ($until = hrtime(true) + 20e9; hrtime(true) < $until;) { usleep(1000); } })(),
        'exit' => exit(3),
        'env' => Wire::record('env', getenv('SHOP'), getenv('QUOTED')),
        'grow' => $GLOBALS['grown'] = str_repeat('x', 40 << 20),
        default => null,
    };
});
PHP;

$story = static function (string $sentence, callable $body) use ($app): void {
    test("plain PHP: {$sentence}", static function () use ($body, $app): void {
        $bench = Bench::plain($app);
        try {
            $body($bench);
        } finally {
            $bench->done();
        }
    });
};
$job = static fn (mixed $data, array $message = [], array $payload = []): array
    => ['payload' => json_encode($payload + ['uuid' => 'u-1', 'job' => 'cohort', 'data' => $data])] + $message;

$story('a job that returns is done and sees its data', static function (Bench $bench) use ($job): void {
    $trace = $bench->run([$job(['a' => 1], ['queue' => 'mail', 'attempts' => 2, 'tries' => 4], ['tries' => 9])]);
    same([[1, 0]], $trace->outcomes(), $trace->output);
    same([['u-1', 'mail', ['a' => 1], 2, 9]], $trace->all('ran'));
    same(0, $trace->exit);
});

$story('throwing retries while tries last, then fails for the agent to record', static function (Bench $bench) use ($job): void {
    $trace = $bench->run([
        $job('throw', ['tries' => 3, 'attempts' => 1, 'backoff' => '4,8']),
        $job('throw', ['tries' => 3, 'attempts' => 2, 'backoff' => '4,8']),
        $job('throw', ['tries' => 3, 'attempts' => 3]),
        $job('throw', ['tries' => 0, 'attempts' => 70]),
        $job('throw', ['tries' => 1], ['tries' => 2]),
    ]);
    same([[2, 4], [2, 8], [3, 0], [2, 0], [2, 0]], $trace->outcomes(), $trace->output);
    same([false, false, true, false, false], array_column($trace->all('end'), 4));
    contains('DomainException: told to in ', $trace->all('end')[2][3]);
});

$story('release, fail and delete are what they say', static function (Bench $bench) use ($job): void {
    $trace = $bench->run([
        $job('release'), $job('release_throw', ['tries' => 2]), $job('release_throw'),
        $job('fail', ['tries' => 9]), $job('delete_throw'),
    ]);
    same([[2, 10], [2, 9], [3, 0], [3, 0], [1, 0]], $trace->outcomes(), $trace->output);
    contains('failed by hand', $trace->all('end')[3][3]);
});

$story('a job started too often, or not of dispatch, fails without running', static function (Bench $bench) use ($job): void {
    $trace = $bench->run([$job('x', ['attempts' => 2, 'tries' => 1]), ['payload' => '{"job":"Foo@bar"}']]);
    same([[3, 0], [3, 0]], $trace->outcomes(), $trace->output);
    same([], $trace->all('ran'));
    contains('started 2 times', $trace->all('end')[0][3]);
    contains('it is "Foo@bar"', $trace->all('end')[1][3]);
});

$story('a timeout says what becomes of the job and kills the worker', static function (Bench $bench) use ($job): void {
    $trace = $bench->run([$job('hang', ['timeout' => 1, 'tries' => 2, 'backoff' => '5'])]);
    same([-SIGKILL, [[2, 5]], 4], [$trace->exit, $trace->outcomes(), $trace->first('end')[5]], $trace->output);
    $trace = $bench->run([$job('hang', ['timeout' => 1])]);
    same([-SIGKILL, [[3, 0]]], [$trace->exit, $trace->outcomes()]);
    contains('longer than its timeout of 1 s', $trace->first('end')[3]);
});

$story('exit in a job leaves a line in the log', static function (Bench $bench) use ($job): void {
    $trace = $bench->run([$job('exit')]);
    same([3, []], [$trace->exit, $trace->all('end')]);
    contains('ended its worker by calling exit()', $trace->logged());
});

$story('memory over the limit is told and the worker goes on until it is replaced', static function (Bench $bench) use ($job): void {
    $trace = $bench->run([$job('x', ['memory' => 32 << 20]), $job('grow', ['memory' => 32 << 20]), $job('x')]);
    same([0, [0, 2, 0]], [$trace->exit, array_column($trace->all('end'), 5)]);
});

$dead = static fn (array $message = []): array => ['type' => 'bookkeep'] + $message + $job('x');

$story('a bookkeeper puts a dead worker\'s job back, or fails it for the agent to record', static function (Bench $bench) use ($dead): void {
    foreach ([
        [['tries' => 2, 'backoff' => '4'], [2, 4], false, 'Cohort\WorkerDied: The worker that ran it ended: signal 11 (SIGSEGV)'],
        [['tries' => 2, 'attempts' => 2], [3, 0], true, 'signal 11'],
        [['tries' => 0, 'attempts' => 70], [2, 0], false, 'signal 11'],
        [['tries' => 0, 'final' => true], [3, 0], true, 'signal 11'],
        [['cause' => 'timeout', 'timeout' => 7], [3, 0], true, 'longer than its timeout of 7 s'],
        [['payload' => '{', 'tries' => 5], [3, 0], true, 'signal 11'],
    ] as [$message, $outcome, $record, $why]) {
        $trace = $bench->run([$dead($message)], ['kind' => 'bookkeeper']);
        same([0, [$outcome], $record], [$trace->exit, $trace->outcomes(), $trace->first('end')[4]], $trace->output . $trace->logged());
        contains($why, $trace->first('end')[3]);
        same([], $trace->all('ran'));
    }
});

$story('a bookkeeper has nothing to do when stopped, taken back, or given a job', static function (Bench $bench) use ($dead, $job): void {
    same(0, $bench->run([], ['kind' => 'bookkeeper'])->exit);
    $trace = $bench->run([$dead()], ['kind' => 'bookkeeper', 'taken_back' => [1]]);
    same([0, []], [$trace->exit, $trace->all('end')]);
    $trace = $bench->run([$job('x')], ['kind' => 'bookkeeper']);
    same([1, []], [$trace->exit, $trace->all('end')]);
    contains('a bookkeeper was given a job', $trace->logged());
});

$story('dispatch inserts as Laravel would', static function (Bench $bench) use ($job): void {
    $before = time();
    $trace = $bench->run([$job('dispatch')]);
    same([[1, 0]], $trace->outcomes(), $trace->output . json_encode($trace->all('end')));
    [$row] = $bench->rows('select * from jobs');
    $uuid = $trace->first('dispatched')[0];
    same(1, preg_match('/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/', $uuid));
    same('{"uuid":"' . $uuid . '","job":"cohort","data":{"n":1.0},"tries":3}', $row['payload']);
    same(['next', 0, null], [$row['queue'], $row['attempts'], $row['reserved_at']]);
    same(3, $row['available_at'] - $row['created_at']);
    same(true, $row['created_at'] >= $before);
});

$story('dispatch outside a worker goes by the environment and says what is missing', static function (Bench $bench): void {
    $php = static function (array $env) use ($bench): string {
        $code = 'require ' . var_export(dirname(__DIR__, 3) . '/worker/php/autoload.php', true) . ';'
            . 'try { echo strlen(Cohort\dispatch("q", null)); } catch (Cohort\QueueError $e) { echo $e->getMessage(); }';
        $process = proc_open([PHP_BINARY, '-r', $code], [1 => ['pipe', 'w']], $pipes, $bench->dir, $env + getenv());
        $text = stream_get_contents($pipes[1]);
        proc_close($process);
        return $text;
    };
    same('36', $php(['COHORT_QUEUE_DATABASE' => "{$bench->dir}/queue.db"]));
    contains('COHORT_QUEUE_DATABASE', $php([]));
    contains('/nonexistent/queue.db does not exist', $php(['COHORT_QUEUE_DATABASE' => '/nonexistent/queue.db']));
    contains('no such table', $php(['COHORT_QUEUE_DATABASE' => "{$bench->dir}/queue.db", 'COHORT_QUEUE_TABLE' => 'other']));
});

$story('env_file is read and does not override', static function (Bench $bench) use ($job): void {
    $bench->write('shop.env', "# comment\nexport SHOP=from-file # why\nQUOTED=\"a\\n#b\"\n");
    $config = ['config' => ['env_file' => 'shop.env', 'app' => $bench->dir]];
    same(['from-file', "a\n#b"], $bench->run([$job('env')], $config)->first('env'));
    same(['mine', "a\n#b"], $bench->run([$job('env')], $config + ['env' => ['SHOP' => 'mine']])->first('env'));
});

$story('control answers config, push, failed and doctor', static function (Bench $bench): void {
    [, $ok, $config] = $bench->control('config');
    same([true, 'plain', 'cohort'], [$ok, $config['kind'], $config['default']]);
    same(["{$bench->dir}/queue.db", 'jobs', 90, null, true], array_map(
        static fn (string $key): mixed => $config['connections'][0][$key],
        ['database', 'table', 'retry_after', 'refused', 'plain'],
    ));
    same('1', $bench->control('push', ['queue' => 'a', 'payload' => '{"x":[],"y":{}}'])[2]['id']);
    same('2', $bench->control('push', ['queue' => 'a', 'payload' => '{"job":"cohort","data":1}'])[2]['id']);
    same(false, $bench->control('push', ['queue' => 'a', 'payload' => '{'])[1]);
    $rows = $bench->rows('select payload from jobs order by id');
    contains('"data":{"x":[],"y":{}},"tries":null}', $rows[0]['payload']);
    same('{"job":"cohort","data":1}', $rows[1]['payload']);

    foreach ([1, 2, 3] as $n) {
        $bench->database()->exec("insert into failed_jobs (uuid, connection, queue, payload, exception)
            values ('u-{$n}', 'cohort', 'a', '{\"job\":\"cohort\",\"data\":{$n}}', 'why')");
    }
    same(['3', '2'], array_column($bench->control('failed.list', ['limit' => 2])[2]['jobs'], 'id'));
    same('u-2', $bench->control('failed.show', ['id' => 'u-2'])[2]['uuid']);
    same('u-2', $bench->control('failed.show', ['id' => 2])[2]['uuid']);
    same([false, 'not_found'], [($r = $bench->control('failed.show', ['id' => 'no']))[1], $r[2]['code']]);
    same(['retried' => 1], $bench->control('failed.retry', ['ids' => ['u-1']])[2]);
    same(['forgotten' => 1], $bench->control('failed.forget', ['ids' => [2]])[2]);
    same(['retried' => 1], $bench->control('failed.retry', ['all' => true])[2]);
    same(4, count($bench->rows('select * from jobs')));
    same([], $bench->rows('select * from failed_jobs'));
    same('plain', $bench->control('doctor')[2]['app']['kind']);
    same(['restart' => null, 'down' => false, 'paused' => [], 'paused_all' => false], $bench->control('keys')[2]);
    [, $ok, $refusal] = $bench->control('queue.pause', ['connection' => 'cohort', 'queue' => 'a']);
    same([false, 'unsupported'], [$ok, $refusal['code']]);
});
