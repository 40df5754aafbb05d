<?php

declare(strict_types=1);

namespace Cohort\Plain;

use Cohort\QueueError;
use Cohort\Runtime;

/** The SQLite database of the plain PHP source, with Laravel's jobs and failed_jobs tables. */
final class QueueDatabase
{
    private const BUSY_SECONDS = 10;
    private const JSON = JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES
        | JSON_PRESERVE_ZERO_FRACTION;

    private static ?self $shared = null;
    private static int $sharedPid = 0;
    /** @var list<self> the connections of the processes this one was forked from, never closed here */
    private static array $inherited = [];

    private ?\PDO $pdo = null;
    private int $depth = 0;

    /**
     * @param string $path        the database file
     * @param string $table       of jobs
     * @param string $failedTable of failed jobs
     */
    public function __construct(
        private readonly string $path,
        private readonly string $table = 'jobs',
        private readonly string $failedTable = 'failed_jobs',
    ) {
    }

    /**
     * The database dispatch() uses, one connection a process.
     *
     * @throws QueueError it is not known which
     */
    public static function shared(): self
    {
        self::leaveInherited();
        if (self::$shared === null) {
            self::$shared = self::named();
            self::$sharedPid = getmypid();
        }
        return self::$shared;
    }

    /** Close what dispatch() opened in this process, before it forks. */
    public static function closeShared(): void
    {
        self::leaveInherited();
        self::$shared?->close();
        self::$shared = null;
    }

    /**
     * Insert a job.
     *
     * @see \Cohort\dispatch()
     *
     * @throws QueueError
     * @throws \JsonException
     */
    public function dispatch(string $queue, mixed $data, float|int $delay, ?int $tries): string
    {
        $uuid = self::uuid();
        $this->insert($queue, self::payload($uuid, $data, $tries), $delay);
        return $uuid;
    }

    /**
     * The payload of a job that was not dispatched by PHP.
     *
     * @throws \JsonException
     */
    public static function freshPayload(mixed $data): string
    {
        return self::payload(self::uuid(), $data, null);
    }

    /**
     * Insert a payload as it is.
     *
     * @return string the row's id
     *
     * @throws QueueError
     */
    public function insert(string $queue, string $payload, float|int $delay = 0): string
    {
        if ($queue === '') {
            throw new QueueError('A job needs the name of a queue.');
        }
        return $this->write(function (\PDO $pdo) use ($queue, $payload, $delay): string {
            $now = time();
            $insert = $pdo->prepare("insert into {$this->name($this->table)}"
                . ' (queue, payload, attempts, reserved_at, available_at, created_at) values (?, ?, 0, null, ?, ?)');
            $insert->execute([$queue, $payload, $now + (int) ceil(max(0, $delay)), $now]);
            return (string) $pdo->lastInsertId();
        });
    }

    /**
     * Failed jobs, newest first.
     *
     * @return list<array<string, mixed>>
     *
     * @throws QueueError
     */
    public function failed(int $limit): array
    {
        return $this->failedWhere('1 = 1 order by id desc limit ?', [$limit]);
    }

    /**
     * One failed job, by id or UUID.
     *
     * @return array<string, mixed>|null
     *
     * @throws QueueError
     */
    public function findFailed(string $id): ?array
    {
        return $this->failedWhere(ctype_digit($id) ? 'id = ?' : 'uuid = ?', [$id])[0] ?? null;
    }

    /**
     * Put a failed job back on its queue as a fresh one.
     *
     * @return bool false: it is not there (any more)
     *
     * @throws QueueError
     */
    public function retryFailed(int $id): bool
    {
        return $this->write(function () use ($id): bool {
            $job = $this->failedWhere('id = ?', [$id])[0] ?? null;
            if ($job === null) {
                return false;
            }
            $this->insert((string) $job['queue'], (string) $job['payload']);
            return $this->forgetFailed($id);
        });
    }

    /**
     * Delete the record of a failed job.
     *
     * @return bool false: it is not there
     *
     * @throws QueueError
     */
    public function forgetFailed(int $id): bool
    {
        return $this->write(function (\PDO $pdo) use ($id): bool {
            $delete = $pdo->prepare("delete from {$this->name($this->failedTable)} where id = ?");
            $delete->execute([$id]);
            return $delete->rowCount() > 0;
        });
    }

    /** Close the connection; the next use opens it again. */
    public function close(): void
    {
        $this->pdo = null;
    }

    /** A connection must not be used on both sides of a fork, nor closed on the side that did not open it. */
    private static function leaveInherited(): void
    {
        if (self::$shared !== null && self::$sharedPid !== getmypid()) {
            self::$inherited[] = self::$shared;
            self::$shared = null;
        }
    }

    private static function named(): self
    {
        $settings = Runtime::settings();
        $path = $settings?->text('queue_database') ?? '';
        if ($path !== '') {
            return new self($path, $settings->text('queue_table', 'jobs'));
        }
        $path = (string) getenv('COHORT_QUEUE_DATABASE');
        if ($path === '') {
            throw new QueueError('Cohort\dispatch() does not know the queue database: set the environment variable'
                . ' COHORT_QUEUE_DATABASE to the agent\'s queue.db (STATE_DIR/queue.db). In a Laravel application'
                . ' use Laravel\'s dispatch().');
        }
        return new self($path, (string) getenv('COHORT_QUEUE_TABLE') ?: 'jobs');
    }

    /** Run $body in a transaction that holds the write lock from its start, so that it cannot fail halfway. */
    private function write(\Closure $body): mixed
    {
        $pdo = $this->pdo();
        if ($this->depth > 0) {
            return $body($pdo);
        }
        try {
            $pdo->exec('begin immediate');
            $this->depth++;
            $result = $body($pdo);
            $pdo->exec('commit');
            return $result;
        } catch (\Throwable $error) {
            $this->depth > 0 && $this->abandon($pdo);
            throw $error instanceof \PDOException ? $this->explain($error) : $error;
        } finally {
            $this->depth = 0;
        }
    }

    private function abandon(\PDO $pdo): void
    {
        try {
            $pdo->exec('rollback');
        } catch (\PDOException) {
            // SQLite has rolled back by itself, or closing the connection does.
            $this->close();
        }
    }

    /**
     * @param list<mixed> $values
     * @return list<array<string, mixed>>
     */
    private function failedWhere(string $condition, array $values): array
    {
        $pdo = $this->pdo();
        try {
            $select = $pdo->prepare('select id, uuid, connection, queue, payload, exception, failed_at'
                . " from {$this->name($this->failedTable)} where {$condition}");
            $select->execute($values);
            return $select->fetchAll(\PDO::FETCH_ASSOC);
        } catch (\PDOException $error) {
            throw $this->explain($error);
        }
    }

    private function pdo(): \PDO
    {
        if ($this->pdo === null) {
            if (!extension_loaded('pdo_sqlite')) {
                throw new QueueError('PHP has no pdo_sqlite extension, which the queue database needs; install it.');
            }
            if (!is_file($this->path)) {
                throw new QueueError("The queue database {$this->path} does not exist; the agent makes it when it"
                    . ' starts (cohortd). Is this the agent\'s queue.db?');
            }
            try {
                $this->pdo = new \PDO("sqlite:{$this->path}", null, null, [
                    \PDO::ATTR_ERRMODE => \PDO::ERRMODE_EXCEPTION,
                    \PDO::ATTR_TIMEOUT => self::BUSY_SECONDS,
                ]);
            } catch (\PDOException $error) {
                throw $this->explain($error);
            }
        }
        return $this->pdo;
    }

    private function explain(\PDOException $error): QueueError
    {
        $message = $error->getMessage();
        $hint = match (true) {
            str_contains($message, 'locked') => ' Another process has held its write lock for '
                . self::BUSY_SECONDS . ' s.',
            str_contains($message, 'no such table') => ' Is this the agent\'s queue.db?',
            str_contains($message, 'readonly') => ' This user may not write to the file or its directory.',
            default => '',
        };
        return new QueueError("The queue database {$this->path}: {$message}.{$hint}", 0, $error);
    }

    private function name(string $table): string
    {
        return '"' . str_replace('"', '""', $table) . '"';
    }

    private static function payload(string $uuid, mixed $data, ?int $tries): string
    {
        return json_encode(['uuid' => $uuid, 'job' => 'cohort', 'data' => $data, 'tries' => $tries], self::JSON);
    }

    private static function uuid(): string
    {
        $bytes = random_bytes(16);
        $bytes[6] = chr(ord($bytes[6]) & 0x0f | 0x40);
        $bytes[8] = chr(ord($bytes[8]) & 0x3f | 0x80);
        return vsprintf('%s%s-%s-%s-%s-%s%s%s', str_split(bin2hex($bytes), 4));
    }
}
