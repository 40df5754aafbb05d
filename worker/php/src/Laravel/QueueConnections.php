<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Database\Connection;
use Illuminate\Queue\DatabaseQueue;
use Illuminate\Queue\RedisQueue;

/**
 * Describes the application's queue connections for the agent, as Laravel itself resolves them.
 *
 * One that cannot be served carries the reason and the way out in 'refused'.
 */
final class QueueConnections
{
    /** CO_CONNECTIONS_MAX of proto/control.h. */
    private const MAX = 16;
    private const REFUSED = [
        'sync' => 'sync runs jobs inside dispatch(); set QUEUE_CONNECTION=redis, or QUEUE_CONNECTION=database (and'
            . ' run the queue table migration), so that there is a queue to serve',
        'sqs' => 'Amazon SQS queues are not served by Cohort; use a Redis queue, a database queue on SQLite, or queue:work',
        'beanstalkd' => 'Beanstalkd queues are not served by Cohort; use a Redis queue, a database queue on SQLite, or'
            . ' queue:work',
        'null' => 'the null driver throws jobs away; set QUEUE_CONNECTION=redis or QUEUE_CONNECTION=database',
        'deferred' => 'deferred runs jobs at the end of the request that dispatched them; there is no queue to serve',
        'background' => 'background starts a process for each job; there is no queue to serve',
        'failover' => 'failover only chooses among other connections; let the policies name those',
    ];

    public function __construct(private readonly Application $app)
    {
    }

    /**
     * The default connection first, then those that can be served, then the refused ones.
     *
     * @return list<array<string, mixed>> at most as many as the agent takes
     */
    public function all(): array
    {
        $config = $this->app->make('config');
        $default = (string) $config->get('queue.default');
        $connections = (array) $config->get('queue.connections', []);
        if (isset($connections[$default])) {
            $connections = [$default => $connections[$default]] + $connections;
        }
        $all = [];
        foreach ($connections as $name => $one) {
            $about = $this->describe((string) $name, (array) $one);
            $rank = $name === $default ? 0 : ($about['refused'] === null ? 1 : 2);
            $all[$rank][] = $about;
        }
        ksort($all);
        return array_slice(array_merge(...$all), 0, self::MAX);
    }

    /**
     * @param array<string, mixed> $config
     * @return array<string, mixed>
     */
    private function describe(string $name, array $config): array
    {
        $driver = (string) ($config['driver'] ?? '');
        $about = [
            'name' => $name,
            'driver' => $driver,
            'refused' => null,
            'database' => '',
            'table' => '',
            'queue' => (string) ($config['queue'] ?? 'default'),
            'retry_after' => 0,
            'synchronous' => null,
        ];
        try {
            return match ($driver) {
                'database' => $this->describeDatabase($name),
                'redis' => $this->describeRedis($name),
                default => ['refused' => $this->whyNot($name, $driver)],
            } + $about;
        } catch (\Throwable $error) {
            return ['refused' => "queue connection {$name} cannot be resolved: {$error->getMessage()}"] + $about;
        }
    }

    private function whyNot(string $name, string $driver): string
    {
        if ($driver === '') {
            return "queue connection {$name} names no driver in config/queue.php";
        }
        return self::REFUSED[$driver] ?? "Cohort does not know the queue driver {$driver}; it serves Redis queues"
            . ' and database queues on SQLite';
    }

    /** @return array<string, mixed> */
    private function describeRedis(string $name): array
    {
        $queue = $this->app->make('queue')->connection($name);
        return $queue instanceof RedisQueue
            ? (new RedisSettings($this->app))->describe($queue)
            : ['refused' => 'its driver was replaced by ' . $queue::class . ', which Cohort does not know'];
    }

    /** @return array<string, mixed> */
    private function describeDatabase(string $name): array
    {
        $queue = $this->app->make('queue')->connection($name);
        if (!$queue instanceof DatabaseQueue) {
            return ['refused' => 'its driver was replaced by ' . $queue::class . ', which Cohort does not know'];
        }
        $read = static fn (DatabaseQueue $own): array
            => [$own->database, $own->table, $own->default, $own->retryAfter];
        [$database, $table, $default, $retryAfter] = \Closure::bind($read, null, DatabaseQueue::class)($queue);
        $about = [
            'table' => $database->getTablePrefix() . $table,
            'queue' => (string) $default,
            'retry_after' => (int) $retryAfter,
        ];
        return $about + $this->describeSqlite($database);
    }

    /** @return array<string, mixed> */
    private function describeSqlite(Connection $database): array
    {
        $driver = (string) $database->getDriverName();
        if ($driver !== 'sqlite') {
            return ['refused' => "its table lives in a {$driver} database (connection {$database->getName()});"
                . ' this version of Cohort serves database queues on SQLite only: point DB_QUEUE_CONNECTION'
                . ' (queue.connections.*.connection) at an SQLite connection'];
        }
        $path = (string) $database->getConfig('database');
        if ($path === ':memory:' || str_contains($path, 'mode=memory')) {
            return ['refused' => 'its SQLite database is in memory and exists in one process only; set DB_DATABASE'
                . ' to a file'];
        }
        $real = $path === '' ? false : (realpath($path) ?: realpath($this->app->basePath($path)));
        if ($real === false) {
            return ['refused' => "its SQLite database {$path} does not exist; create it and run php artisan migrate"];
        }
        $synchronous = $database->getConfig('synchronous') ?? $database->getConfig('pragmas')['synchronous'] ?? null;
        return [
            'database' => $real,
            'synchronous' => $synchronous === null ? null : strtolower((string) $synchronous),
        ];
    }
}
