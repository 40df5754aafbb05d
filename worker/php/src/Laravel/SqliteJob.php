<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\Jobs\DatabaseJob;
use Illuminate\Queue\Jobs\DatabaseJobRecord;
use Illuminate\Support\InteractsWithTime;

use function Cohort\Worker\failing;

use const Cohort\Worker\OUTCOME_DONE;
use const Cohort\Worker\OUTCOME_FAILED;
use const Cohort\Worker\OUTCOME_LEFT;
use const Cohort\Worker\OUTCOME_RELEASED;

/**
 * A job of a `database` queue on SQLite whose row belongs to the agent.
 *
 * Deleting and releasing only note what is to become of the row: the agent does it, in one
 * transaction with what else it has to write.
 */
class SqliteJob extends DatabaseJob
{
    use InteractsWithTime;

    private int $ticket = 0;
    private int $releaseDelay = 0;
    private ?\Throwable $failure = null;
    private bool $deletedFirst = false;
    /** @var array<string, mixed>|null */
    private ?array $decoded = null;

    /**
     * Make the job of a message.
     *
     * @param array<string, mixed> $message what Cohort\Worker\next() gave
     */
    public static function from(Application $app, array $message): self
    {
        $record = new DatabaseJobRecord((object) [
            'id' => $message['id'],
            'queue' => $message['queue'],
            'payload' => $message['payload'],
            'attempts' => $message['attempts'],
            'reserved_at' => $message['reserved_at'],
            'available_at' => $message['available_at'],
            'created_at' => $message['created_at'],
        ]);
        $queue = $app->make('queue')->connection($message['connection']);
        $job = new self($app, $queue, $record, $message['connection'], $message['queue']);
        $job->ticket = $message['ticket'];
        return $job;
    }

    /** The decoded body; Laravel asks for it a dozen times a job. */
    public function payload()
    {
        return $this->decoded ??= json_decode($this->getRawBody(), true);
    }

    /** Note that the row is to be deleted. */
    public function delete()
    {
        $this->deleted = true;
    }

    /**
     * Note that the job goes back to its queue.
     *
     * @param \DateTimeInterface|\DateInterval|int $delay seconds, or until when
     */
    public function release($delay = 0)
    {
        $this->released = true;
        $this->releaseDelay = max(0, $this->secondsUntil($delay));
    }

    /** @param \Throwable|string|null $e why it failed */
    public function fail($e = null)
    {
        // Laravel records no failure of a job that is deleted already.
        $this->deletedFirst = $this->deletedFirst || ($this->isDeleted() && !$this->hasFailed());
        $this->failure ??= $e instanceof \Throwable ? $e : null;
        if (!$this->hasFailed() && !$this->isDeleted()) {
            failing($this->ticket);
        }
        parent::fail($e);
    }

    /** Its failed() was called by a worker that died in it or soon after: only the rest is left. */
    public function hasFailedBefore(): void
    {
        $this->markAsFailed();
        $this->delete();
    }

    /** What is to become of the row: one of the OUTCOME_ constants. */
    public function outcome(): int
    {
        return match (true) {
            $this->hasFailed() && !$this->deletedFirst => OUTCOME_FAILED,
            // Laravel's release makes a new row, which no delete before or after it takes away.
            $this->isReleased() => OUTCOME_RELEASED,
            $this->isDeleted() => OUTCOME_DONE,
            default => OUTCOME_LEFT,
        };
    }

    /** Seconds until a job that goes back may run again; 0 for any other outcome. */
    public function releaseDelay(): int
    {
        return $this->outcome() === OUTCOME_RELEASED ? $this->releaseDelay : 0;
    }

    /** What the job failed with, where something was given. */
    public function failure(): ?\Throwable
    {
        return $this->failure;
    }
}
