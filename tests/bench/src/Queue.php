<?php

declare(strict_types=1);

namespace Cohort\Bench;

/** The jobs table of one arm, seen from outside: filled in bulk and watched with cheap questions. */
final class Queue
{
    private \PDO $db;
    private \PDOStatement $one;

    public function __construct(public readonly string $path, public readonly string $name)
    {
        $this->db = new \PDO("sqlite:{$path}", null, null, [\PDO::ATTR_TIMEOUT => 30]);
        $sql = 'insert into jobs (queue, payload, attempts, available_at, created_at) values (?, ?, 0, ?, ?)';
        $this->one = $this->db->prepare($sql);
        // A checkpoint within a commit would begin when the rows are visible and end much later.
        $this->db->exec('pragma wal_autocheckpoint = 0');
    }

    public function journal(): string
    {
        return (string) $this->value('pragma journal_mode');
    }

    /**
     * Insert $count copies of a payload, each with a UUID of its own, in one transaction, and leave no
     * work of the insertion to others.
     *
     * @param callable(): void $begun called once this connection alone can write
     */
    public function fill(string $payload, int $count, callable $begun): void
    {
        $this->db->exec('begin immediate');
        $begun();
        for ($n = 0; $n < $count; $n++) {
            $this->insert($payload);
        }
        $this->db->exec('commit');
        $this->value('pragma wal_checkpoint(passive)');
    }

    /** @return array{int, float} the row's id, and the moment before the INSERT that committed it */
    public function push(string $payload): array
    {
        $at = microtime(true);
        $this->insert($payload);
        return [(int) $this->db->lastInsertId(), $at];
    }

    /** Is there a job that nobody has taken? */
    public function waiting(): bool
    {
        return $this->value('select 1 from jobs where reserved_at is null limit 1') !== false;
    }

    public function left(): int
    {
        return (int) $this->value('select count(*) from jobs');
    }

    public function failed(): int
    {
        return (int) $this->value('select count(*) from failed_jobs');
    }

    public function clear(): void
    {
        $this->db->exec('delete from jobs');
        $this->db->exec('delete from failed_jobs');
    }

    /** @return array<int, int> when the jobs that wait for their second attempt are due, by id */
    public function due(): array
    {
        $rows = $this->db->query('select id, available_at from jobs where attempts = 1 and reserved_at is null');
        return array_map('intval', $rows->fetchAll(\PDO::FETCH_KEY_PAIR));
    }

    private function insert(string $payload): void
    {
        $random = bin2hex(random_bytes(16));
        $uuid = sprintf('%s-%s-4%s-8%s-%s', substr($random, 0, 8), substr($random, 8, 4), substr($random, 13, 3),
            substr($random, 17, 3), substr($random, 20));
        $payload = preg_replace('/"uuid":"[^"]*"/', "\"uuid\":\"{$uuid}\"", $payload, 1);
        $this->one->execute([$this->name, $payload, time(), time()]);
    }

    private function value(string $sql): mixed
    {
        $statement = $this->db->query($sql);
        $value = $statement->fetchColumn();
        $statement->closeCursor();
        return $value;
    }
}
