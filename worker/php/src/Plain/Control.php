<?php

declare(strict_types=1);

namespace Cohort\Plain;

use Cohort\Arguments;
use Cohort\ControlError;
use Cohort\ControlHandler;
use Cohort\ErrorText;
use Cohort\PhpInfo;
use Cohort\Settings;

/** Answers the agent's questions about a plain PHP application. */
final class Control implements ControlHandler
{
    private const LIMIT = 50;
    private const LIST_EXCEPTION_BYTES = 1000;
    private const LIST_PAYLOAD_BYTES = 4096;

    private ?QueueDatabase $database = null;

    public function __construct(private readonly Settings $settings)
    {
    }

    public function answer(string $name, array $body): array
    {
        return match ($name) {
            'config' => $this->config(),
            'push' => $this->push($body),
            'failed.list' => $this->list(Arguments::limit($body) ?? self::LIMIT),
            'failed.show' => self::describe($this->find(Arguments::id($body))),
            'failed.retry' => $this->retry(Arguments::ids($body)),
            'failed.forget' => $this->forget(Arguments::ids($body)),
            'keys' => ['restart' => null, 'down' => false, 'paused' => [], 'paused_all' => false],
            'queue.pause', 'queue.resume' => throw new ControlError('A plain PHP application has no pause of its own;'
                . ' pause the queue on the agents (cohort pause).', 'unsupported'),
            'doctor' => ['php' => PhpInfo::collect(), 'app' => $this->about()],
            default => throw new ControlError("A plain PHP application has no answer to '{$name}'.", 'invalid'),
        };
    }

    public function rest(): void
    {
        $this->database?->close();
    }

    private function database(): QueueDatabase
    {
        $path = $this->settings->text('queue_database');
        if ($path === '') {
            throw new ControlError('The agent named no queue database for this application (apps.NAME.connection).');
        }
        return $this->database ??= new QueueDatabase($path, $this->settings->text('queue_table', 'jobs'));
    }

    private function connection(): string
    {
        return $this->settings->text('connection', 'cohort');
    }

    /** @return array<string, mixed> */
    private function config(): array
    {
        $path = $this->settings->text('queue_database');
        return [
            'kind' => 'plain',
            'version' => PHP_VERSION,
            'default' => $this->connection(),
            'environment' => (string) (getenv('APP_ENV') ?: ''),
            'connections' => [[
                'name' => $this->connection(),
                'driver' => 'sqlite',
                'plain' => true,
                'refused' => $path === '' ? 'the agent named no queue database for it (apps.NAME.connection)' : null,
                'database' => $path,
                'table' => $this->settings->text('queue_table', 'jobs'),
                'queue' => 'default',
                'retry_after' => $this->settings->seconds('retry_after', 90),
                'synchronous' => null,
            ]],
            'notes' => [],
        ];
    }

    /**
     * A payload of dispatch() goes in as it is, any other JSON as the data of a new job.
     *
     * @param array<string, mixed> $body
     * @return array{id: string}
     */
    private function push(array $body): array
    {
        $connection = (string) ($body['connection'] ?? '');
        if ($connection !== '' && $connection !== $this->connection()) {
            throw new ControlError("There is no connection {$connection}; a plain PHP application has one,"
                . " {$this->connection()}.", 'invalid');
        }
        $queue = (string) ($body['queue'] ?? '') ?: 'default';
        $payload = Arguments::text($body, 'payload');
        $decoded = json_decode($payload);
        if (json_last_error() !== JSON_ERROR_NONE) {
            throw new ControlError('The payload is no JSON: ' . json_last_error_msg() . '.', 'invalid');
        }
        $ours = is_object($decoded) && ($decoded->job ?? null) === 'cohort';
        return ['id' => $this->database()->insert($queue, $ours ? $payload : QueueDatabase::freshPayload($decoded))];
    }

    /** @return array{jobs: list<array<string, mixed>>} long exceptions and payloads are cut */
    private function list(int $limit): array
    {
        $jobs = array_map(self::describe(...), $this->database()->failed($limit));
        foreach ($jobs as &$job) {
            $job['exception'] = ErrorText::cut($job['exception'], self::LIST_EXCEPTION_BYTES);
            $job['payload'] = ErrorText::cut($job['payload'], self::LIST_PAYLOAD_BYTES);
        }
        return ['jobs' => $jobs];
    }

    /**
     * @param list<string>|null $ids null = all
     * @return array{retried: int}
     */
    private function retry(?array $ids): array
    {
        $rows = $this->rowsOf($ids);
        return ['retried' => count(array_filter(array_map($this->database()->retryFailed(...), $rows)))];
    }

    /**
     * @param list<string>|null $ids null = all
     * @return array{forgotten: int}
     */
    private function forget(?array $ids): array
    {
        $rows = $this->rowsOf($ids);
        return ['forgotten' => count(array_filter(array_map($this->database()->forgetFailed(...), $rows)))];
    }

    /**
     * @param list<string>|null $ids
     * @return list<int>
     */
    private function rowsOf(?array $ids): array
    {
        $jobs = $ids === null ? $this->database()->failed(PHP_INT_MAX) : array_map($this->find(...), $ids);
        return array_map(static fn (array $job): int => (int) $job['id'], $jobs);
    }

    /**
     * @return array<string, mixed>
     *
     * @throws ControlError
     */
    private function find(string $id): array
    {
        return $this->database()->findFailed($id) ?? throw ControlError::notFound($id);
    }

    /**
     * @param array<string, mixed> $row
     * @return array<string, string>
     */
    private static function describe(array $row): array
    {
        return array_map(strval(...), $row);
    }

    /** @return array<string, mixed> */
    private function about(): array
    {
        return [
            'kind' => 'plain',
            'version' => PHP_VERSION,
            'env' => (string) (getenv('APP_ENV') ?: ''),
            'default' => $this->connection(),
            'transaction_mode' => (object) [],
            'notes' => [],
        ];
    }
}
