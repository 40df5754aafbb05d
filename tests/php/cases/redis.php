<?php

declare(strict_types=1);

namespace Cohort\Tests;

/** Redis queues. @var string $label @var \Closure $story */

$redis = static fn (string $what, mixed $how = null, array $properties = [], array $message = []): array
    => act($what, $how, $properties, $message + ['connection' => 'redis', 'id' => 7]);

/** What the agent is told of queue connection `redis` with this config/database.php member. */
$told = static function (Bench $app, array $redis, array $queue = [], string $autoload = ''): array {
    $app->write('config/queue.php', '<?php return ' . var_export(['default' => 'redis',
        'connections' => ['redis' => $queue + ['driver' => 'redis', 'connection' => 'default', 'queue' => 'default', 'retry_after' => 90]],
        'failed' => ['driver' => 'null']], true) . ';');
    $app->write('config/database.php', '<?php ' . $autoload . ' return ' . var_export(['default' => 'none', 'connections' => [], 'redis' => $redis], true) . ';');
    [, $ok, $config] = $app->control('config');
    same(true, $ok, json_encode($config));
    return $config['connections'][0];
};

/** The members of an answer that a row names. */
$part = static fn (array $told, array $expected): array => array_replace($expected, array_intersect_key($told['redis'] ?? [], $expected));

$tls = ['verify_peer' => true, 'verify_peer_name' => true, 'allow_self_signed' => false, 'cafile' => '', 'capath' => '',
    'local_cert' => '', 'local_pk' => '', 'passphrase' => '', 'peer_name' => ''];
$plain = ['connection' => 'default', 'client' => 'phpredis', 'scheme' => 'tcp', 'host' => '127.0.0.1', 'port' => 6379, 'path' => '',
    'username' => '', 'password' => '', 'database' => 0, 'prefix' => '', 'timeout_ms' => 0, 'read_timeout_ms' => 0,
    'block_for' => null, 'migration_batch' => -1, 'tls' => $tls, 'sentinels' => [], 'sentinel_service' => '',
    'sentinel_username' => '', 'sentinel_password' => ''];

$story('Redis: every member of a connection is told', static function (Bench $app) use ($told, $plain): void {
    $one = $told($app, ['client' => 'phpredis', 'default' => ['host' => '127.0.0.1', 'port' => 6379]], ['queue' => 'high,low', 'retry_after' => 3, 'block_for' => 5]);
    same([null, 'redis', 'redis', 'high,low', 3], [$one['refused'], $one['name'], $one['driver'], $one['queue'], $one['retry_after']]);
    $expected = ['block_for' => 5] + $plain;
    ksort($expected);
    ksort($one['redis']);
    same($expected, $one['redis']);
});

$story('Redis: a connection is what phpredis would connect with', static function (Bench $app) use ($told, $part, $tls, $label): void {
    $host = ['host' => 'r.example', 'port' => 6380];
    foreach ([
        'a URL' => [['default' => ['url' => 'rediss://joe:p%40ss@r.example:6390/3?read_timeout=2.5']],
            ['scheme' => 'tls', 'host' => 'r.example', 'port' => 6390, 'username' => $label === '8.83' ? '' : 'joe', 'password' => 'p@ss',
                'database' => 3, 'read_timeout_ms' => 2500]],
        'a password without a name' => [['default' => $host + ['password' => 'secret', 'username' => null, 'database' => '2']],
            ['username' => '', 'password' => 'secret', 'database' => 2, 'port' => 6380]],
        'a name without a password says nothing' => [['default' => $host + ['username' => 'joe']], ['username' => '', 'password' => '']],
        'a name and a password as a list' => [['default' => $host + ['password' => ['joe', 'secret']]], ['username' => 'joe', 'password' => 'secret']],
        'the prefix of all' => [['options' => ['prefix' => 'shop_', 'cluster' => 'redis'], 'default' => $host], ['prefix' => 'shop_']],
        'a prefix of its own' => [['options' => ['prefix' => 'shop_'], 'default' => $host + ['options' => ['prefix' => 'own_']]], ['prefix' => 'own_']],
        'a prefix beside the host' => [['options' => ['prefix' => 'shop_'], 'default' => $host + ['prefix' => 'near_']],
            ['prefix' => $label === '8.83' ? 'shop_' : 'near_']],
        'a socket as host' => [['default' => ['host' => '/run/r.sock', 'port' => 0]], ['scheme' => 'unix', 'path' => '/run/r.sock', 'host' => '', 'port' => 0]],
        'a socket by scheme' => [['default' => ['scheme' => 'unix', 'host' => '/run/r.sock', 'port' => 0]], ['scheme' => 'unix', 'path' => '/run/r.sock']],
        'TLS by scheme' => [['default' => ['scheme' => 'tls', 'context' => ['stream' => ['cafile' => '/ca.pem', 'verify_peer_name' => false]]] + $host],
            ['scheme' => 'tls', 'host' => 'r.example', 'tls' => array_replace($tls, ['cafile' => '/ca.pem', 'verify_peer_name' => false])]],
        'TLS by host' => [['default' => ['host' => 'tls://r.example', 'port' => 6380]], ['scheme' => 'tls', 'host' => 'r.example']],
        'IPv6' => [['default' => ['host' => '[::1]', 'port' => 6380]], ['scheme' => 'tcp', 'host' => '::1', 'port' => 6380]],
        'times' => [['default' => $host + ['timeout' => 1.5, 'read_timeout' => '60']], ['timeout_ms' => 1500, 'read_timeout_ms' => 60000]],
        'a Sentinel package' => [['default' => ['sentinel_host' => 's.example', 'sentinel_port' => '26380', 'sentinel_service' => 'shop',
            'sentinel_password' => 'sp', 'password' => 'mp', 'database' => 1, 'host' => 'x', 'port' => 1]],
            ['sentinels' => [['scheme' => 'tcp', 'host' => 's.example', 'port' => 26380]], 'sentinel_service' => 'shop', 'sentinel_password' => 'sp',
                'password' => 'mp', 'database' => 1, 'host' => '', 'port' => 0]],
    ] as $about => [$config, $expected]) {
        $one = $told($app, $config + ['client' => 'phpredis']);
        same(null, $one['refused'], $about);
        same($expected, $part($one, $expected), $about);
    }
    same('queue', $told($app, ['client' => 'phpredis', 'queue' => $host, 'default' => $host], ['connection' => 'queue'])['redis']['connection']);
});

$story('Redis: a connection is what Predis would connect with', static function (Bench $app) use ($told, $part, $tls): void {
    if (!is_file('/usr/share/php/Predis/autoload.php')) {
        throw new Failure('Predis is not installed: php-nrk-predis');
    }
    $sentinels = ['tcp://s1.example:26379?timeout=0.1', 'tcp://s2.example'];
    foreach ([
        'a host' => [['options' => ['prefix' => 'shop_'], 'default' => ['host' => 'r.example', 'port' => 6380, 'password' => 'secret', 'database' => 4]],
            ['client' => 'predis', 'scheme' => 'tcp', 'host' => 'r.example', 'port' => 6380, 'password' => 'secret', 'database' => 4, 'prefix' => 'shop_']],
        'a prefix of its own' => [['options' => ['prefix' => 'shop_'], 'default' => ['host' => 'r.example', 'prefix' => 'near_']], ['prefix' => 'near_', 'port' => 6379]],
        'a socket' => [['default' => ['scheme' => 'unix', 'path' => '/run/r.sock']], ['scheme' => 'unix', 'path' => '/run/r.sock', 'host' => '']],
        'TLS' => [['default' => ['scheme' => 'tls', 'host' => 'r.example', 'ssl' => ['verify_peer' => false]]],
            ['scheme' => 'tls', 'tls' => array_replace($tls, ['verify_peer' => false])]],
        'Sentinel' => [['default' => $sentinels + ['options' => ['replication' => 'sentinel', 'service' => 'shop', 'prefix' => 'own_',
            'parameters' => ['password' => 'mp', 'database' => 2]]]],
            ['sentinels' => [['scheme' => 'tcp', 'host' => 's1.example', 'port' => 26379], ['scheme' => 'tcp', 'host' => 's2.example', 'port' => 6379]],
                'sentinel_service' => 'shop', 'password' => 'mp', 'database' => 2, 'prefix' => 'own_', 'host' => '']],
    ] as $about => [$config, $expected]) {
        $one = $told($app, $config + ['client' => 'predis'], [], "require_once '/usr/share/php/Predis/autoload.php';");
        same(null, $one['refused'], $about);
        same($expected, $part($one, $expected), $about);
    }
    $one = $told($app, ['client' => 'predis', 'default' => ['tcp://a.example', 'tcp://b.example']], [], "require_once '/usr/share/php/Predis/autoload.php';");
    contains('is several servers', $one['refused']);
});

$story('Redis: what cannot be served says so', static function (Bench $app) use ($told): void {
    $host = ['host' => 'r.example', 'port' => 6379];
    foreach ([
        'Redis Cluster' => ['clusters' => ['default' => [$host]]],
        'Redis connection [default] not configured' => ['other' => $host],
        "phpredis' serializer" => ['options' => ['serializer' => 1], 'default' => $host],
        "phpredis' compression" => ['default' => $host + ['options' => ['compression' => 2]]],
    ] as $why => $config) {
        $one = $told($app, $config + ['client' => 'phpredis']);
        contains($why, (string) $one['refused']);
        same(false, isset($one['redis']), $why);
    }
});

$story('Redis: a job is Laravel\'s own and the agent settles it', static function (Bench $app) use ($redis): void {
    $trace = $app->run([$redis('nothing'), $redis('release', 10), $redis('throw', null, ['backoff' => [1, 5]], ['tries' => 3, 'attempts' => 2]),
        $redis('delete'), $redis('delete_release'), $redis('throw')]);
    same([[1, 0], [2, 10], [2, 5], [1, 0], [2, 5], [3, 0]], $trace->outcomes(), $trace->output . $trace->logged());
    same([1, 1, 2, 1, 1, 1], array_column($trace->all('ran'), 1));
    [$row] = $app->rows('select * from failed_jobs');
    same(['redis', 'default', 0], [$row['connection'], $row['queue'], json_decode($row['payload'])->attempts]);
    contains('told to', $row['exception']);
    same(32, strlen(json_decode($row['payload'])->id));
});

$story('Redis: a job shows Laravel\'s id, attempts and reserved body', static function (Bench $app) use ($redis): void {
    $trace = $app->run([$redis('about', null, [], ['attempts' => 12, 'tries' => 0])]);
    [$class, $id, $attempts, $raw, $reserved] = $trace->first('about') ?? throw new Failure($trace->output . $trace->logged());
    same(['Cohort\Laravel\RedisJob', 12], [$class, $attempts]);
    same(json_decode($raw)->id, $id);
    same(str_replace('"attempts":0', '"attempts":12', $raw), $reserved);
});

$story('Redis: a bookkeeper settles a job whose worker died', static function (Bench $app) use ($redis): void {
    $keep = static fn (array $message): Trace => $app->run([$message + ['type' => 'bookkeep']], ['kind' => 'bookkeeper']);
    same([[2, 7]], $keep($redis('nothing', null, [], ['tries' => 3, 'attempts' => 2, 'backoff' => '3,7']))->outcomes());
    same([], $app->rows('select * from failed_jobs'));
    $trace = $keep($redis('nothing'));
    same([[[3, 0]], 1], [$trace->outcomes(), count($trace->all('failed_called'))], $trace->output . $trace->logged());
    same('redis', $app->rows('select * from failed_jobs')[0]['connection']);
});

$story('Redis: fatal errors name the job by its id', static function (Bench $app) use ($redis): void {
    $trace = $app->run([$redis('exit')]);
    same(1, preg_match('/job [a-zA-Z0-9]{32} \(App\\\\Jobs\\\\Act\) of queue default ended its worker by calling exit/', $trace->logged()), $trace->logged());
});

$story('Redis: Horizon hears of what its own queue would have done', static function (Bench $app) use ($redis): void {
    mkdir("{$app->dir}/horizon");
    copy(dirname(__DIR__) . '/horizon.php', "{$app->dir}/horizon/fake.php");
    $app->write('vendor/autoload.php', file_get_contents("{$app->dir}/vendor/autoload.php") . "require __DIR__ . '/../horizon/fake.php';");
    $trace = $app->run([$redis('nothing', null, [], ['attempts' => 2, 'tries' => 3]), $redis('throw', null, [], ['tries' => 2, 'backoff' => '9']), $redis('throw')],
        ['provider' => 'horizon']);
    same([[1, 0], [2, 9], [3, 0]], $trace->outcomes(), $trace->output . $trace->logged());
    same([['JobReserved', 'redis', 'default', 2, null], ['JobDeleted', 'redis', 'default', 2, false],
        ['JobReserved', 'redis', 'default', 1, null], ['JobReleased', 'redis', 'default', 1, null],
        ['JobReserved', 'redis', 'default', 1, null], ['JobDeleted', 'redis', 'default', 1, true]], $trace->all('horizon'), $trace->output);
    $order = array_values(array_intersect($trace->names('event'), ['JobReserved', 'JobProcessing', 'JobProcessed']));
    same(['JobProcessing', 'JobProcessed'], array_slice($order, 0, 2));
    // A job the agent took back was never reserved for this worker.
    same([], $app->run([$redis('nothing')], ['provider' => 'horizon', 'taken_back' => [1]])->all('horizon'));
});

$story('Redis: push, queue:retry and Redis switches go through the application', static function (Bench $app) use ($redis): void {
    $server = new RedisServer($app->dir);
    $env = ['env' => ['REDIS_HOST' => $server->socket, 'REDIS_PORT' => '0']];
    [, $ok, $data] = $app->control('push', ['connection' => 'redis', 'queue' => 'mail', 'payload' => '{"job":"X@y","data":[],"id":"i1","attempts":0}'], $env);
    same([true, 'i1'], [$ok, $data['id'] ?? $data]);
    same(['{"job":"X@y","data":[],"id":"i1","attempts":0}'], $server->redis()->lRange('fixture_queues:mail', 0, -1));
    $app->run([$redis('throw', null, [], ['attempts' => 1])], $env);
    [, , $list] = $app->control('failed.list', [], $env);
    same(['retried' => 1], $app->control('failed.retry', ['ids' => [$list['jobs'][0]['uuid']]], $env)[2]);
    [$payload] = $server->redis()->lRange('fixture_queues:default', 0, -1);
    same([0, $list['jobs'][0]['uuid']], [json_decode($payload)->attempts, json_decode($payload)->uuid]);
});

$story('Redis: doctor looks at the server', static function (Bench $app): void {
    $server = new RedisServer($app->dir);
    $env = ['env' => ['REDIS_HOST' => $server->socket, 'REDIS_PORT' => '0']];
    $doctor = static fn (): array => $app->control('doctor', [], $env)[2]['app'];
    same([], $doctor()['attention']);
    contains('appendonly off', implode("\n", $doctor()['notes']));
    $redis = $server->redis();
    $redis->config('SET', 'maxmemory-policy', 'allkeys-lru');
    same([], $doctor()['attention']);
    contains('may throw queues away (maxmemory-policy allkeys-lru)', implode("\n", $doctor()['notes']));
    $redis->config('SET', 'maxmemory', (string) (100 << 20));
    same(1, count($doctor()['attention']));
    $redis->config('SET', 'maxmemory-policy', 'volatile-lru');
    same([], $doctor()['attention']);
    $redis->config('SET', 'requirepass', 'x');
    contains("queue connection redis: Redis at {$server->socket} cannot be used: NOAUTH", $doctor()['attention'][0]);
    unset($redis, $server);
    contains('cannot be used', $doctor()['attention'][0]);
});

test("Redis {$label}: only the digits of attempts change in a body", static function (): void {
    require_once dirname(__DIR__, 3) . '/worker/php/src/Laravel/RedisPayload.php';
    foreach ([
        'the last member' => ['{"job":"x","attempts":0}', '{"job":"x","attempts":10}'],
        'more behind it' => ['{"job":"x", "attempts" : 99 ,"type":"job"}', '{"job":"x", "attempts" : 10 ,"type":"job"}'],
        'the same name in the data' => ['{"attempts":1,"data":{"attempts":5}}', '{"attempts":10,"data":{"attempts":5}}'],
        'the same words in a string' => ['{"data":"\"attempts\":3","attempts":4}', '{"data":"\"attempts\":3","attempts":10}'],
        'bytes as they were' => ["{\"data\":\"\u{e9}\\u00e9 \\/ 1e2\",\"n\":1.50,\"attempts\":0}", "{\"data\":\"\u{e9}\\u00e9 \\/ 1e2\",\"n\":1.50,\"attempts\":10}"],
        'twice: the last one counts' => ['{"attempts":1,"attempts":2}', '{"attempts":1,"attempts":10}'],
    ] as $about => [$before, $after]) {
        same($after, \Cohort\Laravel\RedisPayload::withAttempts($before, 10), $about);
    }
});
