<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Cohort\ErrorText;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Database\Connection;

use function Cohort\Worker\log;

/** Care of the database and Redis connections of a worker. */
final class Connections
{
    /**
     * Close what was opened at boot: parent and children would talk over the same socket.
     *
     * Database connections stay as objects and reconnect at the next query, because cache stores
     * and queue connections may hold them.
     */
    public static function forgetInherited(Application $app): void
    {
        self::disconnectDatabases($app);
        self::purgeRedis($app);
        self::forgetQueues($app);
    }

    /** Close every database connection; each reconnects at its next query. */
    public static function disconnectDatabases(Application $app): void
    {
        foreach (self::databases($app) as $connection) {
            $connection->disconnect();
        }
    }

    /** Drop every Redis connection; the manager makes a new one when asked. */
    public static function purgeRedis(Application $app): void
    {
        if (!$app->resolved('redis')) {
            return;
        }
        $redis = $app->make('redis');
        foreach (array_keys($redis->connections() ?? []) as $name) {
            $redis->purge((string) $name);
        }
    }

    /**
     * Roll back the transactions a job left open.
     *
     * @return list<string> the names of their database connections
     */
    public static function rollBackStray(Application $app): array
    {
        $stray = [];
        foreach (self::databases($app) as $name => $connection) {
            if ($connection->transactionLevel() > 0) {
                self::rollBack($connection);
                $stray[] = (string) $name;
            }
        }
        return $stray;
    }

    /** Whether any database connection is in a transaction. */
    public static function inTransaction(Application $app): bool
    {
        foreach (self::databases($app) as $connection) {
            if ($connection->transactionLevel() > 0) {
                return true;
            }
        }
        return false;
    }

    /** @return array<string, Connection> those in use, by name */
    private static function databases(Application $app): array
    {
        return $app->resolved('db') ? $app->make('db')->getConnections() : [];
    }

    private static function rollBack(Connection $connection): void
    {
        try {
            $connection->rollBack(0);
        } catch (\Throwable $error) {
            // Closing it has the same effect, and the next job gets a good connection.
            log('warn', 'rollback failed, the connection is closed: ' . ErrorText::head($error));
            $connection->disconnect();
        }
    }

    private static function forgetQueues(Application $app): void
    {
        if (!$app->resolved('queue')) {
            return;
        }
        $manager = $app->make('queue');
        $forget = function (): void {
            if (isset($this->connections)) {
                $this->connections = [];
            }
        };
        \Closure::bind($forget, $manager, $manager::class)();
        $app->forgetInstance('queue.connection');
    }
}
