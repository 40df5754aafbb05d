<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Cohort\ControlError;
use Cohort\ErrorText;
use Illuminate\Contracts\Console\Kernel;
use Illuminate\Contracts\Foundation\Application;

/** The application's failed jobs, through its own failed job provider. Ids and UUIDs both name a job. */
final class FailedJobs
{
    private const LIMIT = 50;
    private const LIST_EXCEPTION_BYTES = 1000;
    private const LIST_PAYLOAD_BYTES = 4096;

    public function __construct(private readonly Application $app, private readonly Kernel $artisan)
    {
    }

    /**
     * @param int|null $limit how many, newest first; null = 50
     * @return array{jobs: list<array<string, mixed>>} long exceptions and payloads are cut
     */
    public function list(?int $limit): array
    {
        $jobs = array_map($this->describe(...), $this->newest(max(1, $limit ?? self::LIMIT)));
        foreach ($jobs as &$job) {
            $job['exception'] = ErrorText::cut($job['exception'], self::LIST_EXCEPTION_BYTES);
            $job['payload'] = ErrorText::cut($job['payload'], self::LIST_PAYLOAD_BYTES);
        }
        return ['jobs' => $jobs];
    }

    /** @return array<string, mixed> the whole record */
    public function show(string $id): array
    {
        return $this->describe($this->find($id));
    }

    /**
     * Put failed jobs back on their queues, as `queue:retry` does.
     *
     * @param list<string>|null $ids null = all
     * @return array{retried: int}
     */
    public function retry(?array $ids): array
    {
        $keys = $this->keys($ids);
        foreach ($keys as $key) {
            $this->artisan->call('queue:retry', ['id' => [$key]]);
        }
        $gone = fn (string $key): bool => $this->failer()->find($key) === null;
        return ['retried' => count(array_filter($keys, $gone))];
    }

    /**
     * Delete the records of failed jobs.
     *
     * @param list<string>|null $ids null = all
     * @return array{forgotten: int}
     */
    public function forget(?array $ids): array
    {
        $keys = $this->keys($ids);
        $forgotten = 0;
        foreach ($keys as $key) {
            $forgotten += $this->failer()->forget($key) ? 1 : 0;
        }
        return ['forgotten' => $forgotten];
    }

    private function failer(): object
    {
        return $this->app->make('queue.failer');
    }

    /**
     * @param list<string>|null $ids
     * @return list<string> what the provider calls them
     */
    private function keys(?array $ids): array
    {
        if ($ids === null) {
            return array_map(static fn (object $job): string => (string) $job->id, $this->failer()->all());
        }
        return array_map(fn (string $id): string => (string) $this->find($id)->id, $ids);
    }

    /** @throws ControlError */
    private function find(string $id): object
    {
        return $this->failer()->find($id) ?? $this->findByOtherName($id) ?? throw ControlError::notFound($id);
    }

    /** A provider knows its jobs by id or by UUID; the other name is looked up in the table. */
    private function findByOtherName(string $id): ?object
    {
        $table = $this->table();
        if ($table === null) {
            return null;
        }
        $row = ctype_digit($id)
            ? $table->where('id', (int) $id)->first()
            : $table->where('payload', 'like', '%"uuid":"' . addcslashes($id, '%_\\') . '"%')->first();
        return $row === null ? null : $this->asProvided($row);
    }

    /** @return list<object> */
    private function newest(int $limit): array
    {
        $table = $this->table();
        if ($table === null) {
            return array_slice(array_values($this->failer()->all()), 0, $limit);
        }
        return array_map($this->asProvided(...), $table->orderBy('id', 'desc')->limit($limit)->get()->all());
    }

    /** The query builder of a provider that keeps its jobs in a table, else null. */
    private function table(): ?object
    {
        $failer = $this->failer();
        return method_exists($failer, 'getTable')
            ? \Closure::bind(fn (): object => $this->getTable(), $failer, $failer::class)()
            : null;
    }

    /** A row of the table under the id the provider uses: the UUID where rows have one. */
    private function asProvided(object $row): object
    {
        if ($this->failer() instanceof \Illuminate\Queue\Failed\DatabaseUuidFailedJobProvider) {
            $row->id = $row->uuid;
        }
        return $row;
    }

    /** @return array<string, mixed> */
    private function describe(object $job): array
    {
        $payload = (string) $job->payload;
        return [
            'id' => (string) $job->id,
            'uuid' => (string) ($job->uuid ?? json_decode($payload, true)['uuid'] ?? ''),
            'connection' => (string) $job->connection,
            'queue' => (string) $job->queue,
            'failed_at' => (string) $job->failed_at,
            'exception' => (string) $job->exception,
            'payload' => $payload,
        ];
    }
}
