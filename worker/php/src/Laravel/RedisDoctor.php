<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\RedisQueue;

/** Looks at the Redis servers behind the application's queues, with the application's own client. */
final class RedisDoctor
{
    private const QUEUE_COMMANDS = ['eval', 'evalsha', 'blpop'];
    /** A web request's connection is younger, and a worker asks more often. */
    private const WORKER_AGE_S = 10;
    private const WORKER_IDLE_S = 10;

    /** @var list<string> */
    private array $attention = [];
    /** @var list<string> */
    private array $notes = [];

    public function __construct(private readonly Application $app)
    {
    }

    /**
     * Every Redis server that a served queue connection names, once.
     *
     * @return array{attention: list<string>, notes: list<string>}
     */
    public function examine(): array
    {
        $seen = [];
        foreach ((new QueueConnections($this->app))->all() as $about) {
            if (!isset($about['redis'])) {
                continue;
            }
            $place = self::place($about['redis']);
            $known = isset($seen[$place]);
            $seen[$place] = true;
            $known || $this->examineServer($about['name'], $place);
        }
        return ['attention' => $this->attention, 'notes' => $this->notes];
    }

    private function examineServer(string $name, string $place): void
    {
        try {
            $queue = $this->app->make('queue')->connection($name);
            $client = $queue instanceof RedisQueue ? $queue->getConnection()->client() : null;
            $info = self::info($client);
        } catch (\Throwable $error) {
            $this->attention[] = "queue connection {$name}: Redis at {$place} cannot be used: {$error->getMessage()}";
            return;
        }
        $this->examineRole("Redis at {$place}", $info);
        $this->examineMemory("Redis at {$place}", $info);
        $this->examineClients("Redis at {$place}", $client);
    }

    /** @param array<string, string> $info */
    private function examineRole(string $server, array $info): void
    {
        if (($info['role'] ?? 'master') !== 'master') {
            $this->attention[] = "{$server} is a replica, which takes no writes: name the master (or Sentinel) in"
                . ' config/database.php';
        }
        if (($info['aof_enabled'] ?? '1') === '0') {
            $this->notes[] = "{$server} has appendonly off: when it dies, the jobs since its last snapshot are gone";
        }
    }

    /** @param array<string, string> $info */
    private function examineMemory(string $server, array $info): void
    {
        $policy = $info['maxmemory_policy'] ?? '';
        $limit = (int) ($info['maxmemory'] ?? 0);
        if (str_starts_with($policy, 'allkeys-')) {
            $text = "{$server} may throw queues away (maxmemory-policy {$policy}): set noeviction, and keep caches in"
                . ' another server';
            $limit > 0 ? $this->attention[] = $text : $this->notes[] = "{$text}; no maxmemory is set yet";
        }
        if ($limit > 0 && (int) ($info['used_memory'] ?? 0) > 0.9 * $limit) {
            $this->attention[] = sprintf('%s has used %d %% of its maxmemory: at the limit no job can be dispatched',
                $server, (int) (100 * $info['used_memory'] / $limit));
        }
    }

    private function examineClients(string $server, object $client): void
    {
        try {
            $lines = explode("\n", (string) self::raw($client, 'CLIENT', 'LIST'));
        } catch (\Throwable) {
            return; // An ACL may forbid it; it is a hint only.
        }
        $workers = count(array_filter($lines, self::looksLikeWorker(...)));
        if ($workers > 0) {
            $this->notes[] = sprintf('%s: %d other connection%s look%s like queue:work or Horizon; they may run beside'
                . ' Cohort on the same queues', $server, $workers, $workers === 1 ? '' : 's', $workers === 1 ? 's' : '');
        }
    }

    private static function looksLikeWorker(string $line): bool
    {
        preg_match_all('/(\w+)=(\S*)/', $line, $found);
        $one = array_combine($found[1], $found[2]) + ['name' => '', 'cmd' => '', 'age' => 0, 'idle' => PHP_INT_MAX];
        return !str_starts_with($one['name'], 'cohort')
            && in_array(strtok($one['cmd'], '|'), self::QUEUE_COMMANDS, true)
            && $one['age'] >= self::WORKER_AGE_S
            && $one['idle'] <= self::WORKER_IDLE_S;
    }

    /** @param array<string, mixed> $redis */
    private static function place(array $redis): string
    {
        return match (true) {
            $redis['sentinels'] !== [] => "the master {$redis['sentinel_service']}",
            $redis['scheme'] === 'unix' => $redis['path'],
            default => "{$redis['host']}:{$redis['port']}",
        };
    }

    /** @return array<string, string> */
    private static function info(object $client): array
    {
        preg_match_all('/^(\w+):(.*?)\r?$/m', (string) self::raw($client, 'INFO'), $found);
        return array_combine($found[1], $found[2]);
    }

    private static function raw(object $client, string ...$command): mixed
    {
        $answer = $client instanceof \Redis ? $client->rawCommand(...$command) : $client->executeRaw($command);
        if ($answer === false) {
            throw new \RuntimeException((string) $client->getLastError() ?: "no answer to {$command[0]}");
        }
        return $answer;
    }
}
