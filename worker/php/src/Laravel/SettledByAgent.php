<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Support\InteractsWithTime;

use function Cohort\Worker\failing;

use const Cohort\Worker\OUTCOME_DONE;
use const Cohort\Worker\OUTCOME_FAILED;
use const Cohort\Worker\OUTCOME_LEFT;
use const Cohort\Worker\OUTCOME_RELEASED;

/**
 * Deleting and releasing a job of Laravel's only note what is to become of it: the agent does it,
 * together with what else it has to write.
 */
trait SettledByAgent
{
    use InteractsWithTime;

    private int $ticket = 0;
    private int $releaseDelay = 0;
    private ?\Throwable $failure = null;
    private bool $deletedFirst = false;
    /** @var array<string, mixed>|null */
    private ?array $body = null;

    /** The decoded body; Laravel asks for it a dozen times a job. */
    public function payload()
    {
        return $this->body ??= json_decode($this->getRawBody(), true);
    }

    /** Note that the job is to be deleted. */
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

    public function hasFailedBefore(): void
    {
        $this->markAsFailed();
        $this->delete();
    }

    public function hasBegun(): void
    {
    }

    public function outcome(): int
    {
        return match (true) {
            $this->hasFailed() && !$this->deletedFirst => OUTCOME_FAILED,
            // Laravel's release makes a new job, which no delete before or after it takes away.
            $this->isReleased() => OUTCOME_RELEASED,
            $this->isDeleted() => OUTCOME_DONE,
            default => OUTCOME_LEFT,
        };
    }

    public function releaseDelay(): int
    {
        return $this->outcome() === OUTCOME_RELEASED ? $this->releaseDelay : 0;
    }

    public function failure(): ?\Throwable
    {
        return $this->failure;
    }
}
