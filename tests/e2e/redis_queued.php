<?php

/* The jobs in the keys of Laravel's Redis queues: redis_queued.php SOCKET PREFIX */

$redis = new Redis();
$redis->connect($argv[1]);
$now = time();
foreach ($redis->keys("{$argv[2]}queues:*") as $key) {
    if (str_contains($key, 'cohort:') || str_ends_with($key, ':notify')) {
        continue;
    }
    $rows = $redis->type($key) === Redis::REDIS_LIST
        ? array_map(fn (string $payload): array => ['ready', 0, $payload], $redis->lRange($key, 0, -1))
        : array_map(
            fn (string $payload, float $score): array => [str_ends_with($key, ':delayed') ? 'delayed' : 'reserved', (int) $score - $now, $payload],
            array_keys($all = $redis->zRange($key, 0, -1, true)),
            $all,
        );
    foreach ($rows as [$state, $due, $payload]) {
        printf("%s %s %d %s\n", $state, json_decode($payload, true)['attempts'] ?? '-', $due, $payload);
    }
}
