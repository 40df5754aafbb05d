<?php

declare(strict_types=1);

/*
 * One worker of a scenario: php child.php SCENARIO.json. Its exit code is that of run_worker(), or 70
 * when the boot failed.
 */

require __DIR__ . '/fake.php';

use Cohort\Fake\Wire;

Wire::$scenario = json_decode(file_get_contents($argv[1]), true, 512, JSON_THROW_ON_ERROR);
Wire::$prepare = static function (array $message): array {
    $message += [
        'id' => 100 + $message['ticket'],
        'connection' => 'database',
        'queue' => 'default',
        'attempts' => 1,
        'reserved_at' => time(),
        'available_at' => time(),
        'created_at' => time(),
        'timeout' => 60,
        'tries' => 1,
        'backoff' => '',
        'memory' => 0,
    ];
    if ($message['type'] === 'bookkeep') {
        $message += ['cause' => 'crash', 'final' => false, 'failed' => false, 'text' => 'The worker that ran it ended: signal 11 (SIGSEGV)'];
    }
    if (isset($message['job'])) {
        [$class, $arguments, $properties] = $message['job'] + [1 => [], 2 => []];
        $job = new $class(...$arguments);
        foreach ($properties as $name => $value) {
            $job->{$name} = $value;
        }
        $queue = app('queue')->connection($message['connection'] === 'redis' ? 'redis' : 'database');
        $create = fn (): string => $this->createPayload($job, 'default');
        $message['payload'] = Closure::bind($create, $queue, $queue::class)();
        if (isset($message['uuid'])) {
            $message['payload'] = json_encode(['uuid' => $message['uuid']] + json_decode($message['payload'], true));
        }
        unset($message['job']);
    }
    return $message;
};

try {
    require dirname(__DIR__, 2) . '/worker/php/preload.php';
} catch (Throwable $error) {
    Wire::record('boot_failed', $error->getMessage());
    exit(70);
}
Wire::record('booted');
exit(Cohort\run_worker(Wire::$scenario['kind']));
