<?php

declare(strict_types=1);

namespace Cohort;

/**
 * A job of a plain PHP application, while it runs.
 *
 * Returning from the handler: the job is done. Throwing: it is tried again while tries last, after
 * the pool's backoff, else it has failed for good and goes to failed_jobs.
 */
final class Job
{
    private ?int $releaseDelay = null;
    private ?\Throwable $failure = null;
    private bool $deleted = false;

    /**
     * @param int    $id       row of the queue database
     * @param string $uuid     what dispatch() returned; stays the same over retries
     * @param string $queue    name of its queue
     * @param mixed  $data     what was dispatched
     * @param int    $attempts starts so far, this one included
     * @param int    $tries    starts before it fails; 0 = no limit
     */
    public function __construct(
        public readonly int $id,
        public readonly string $uuid,
        public readonly string $queue,
        public readonly mixed $data,
        public readonly int $attempts,
        public readonly int $tries,
    ) {
    }

    /**
     * Put the job back on its queue once the handler returns. This start counts as a try.
     *
     * @param int $delay seconds until it may run again
     */
    public function release(int $delay = 0): void
    {
        $this->releaseDelay = max(0, $delay);
    }

    /**
     * The job has failed for good, whatever tries are left. The handler may go on and return.
     *
     * @param string|\Throwable $why stands in failed_jobs
     */
    public function fail(string|\Throwable $why): void
    {
        $this->failure = is_string($why) ? new JobFailed($why) : $why;
    }

    /** The job is done with, even if the handler throws later. */
    public function delete(): void
    {
        $this->deleted = true;
    }

    /** Why the job failed by hand, or null. */
    public function failure(): ?\Throwable
    {
        return $this->failure;
    }

    /** Seconds of the release asked for, or null. */
    public function releaseDelay(): ?int
    {
        return $this->releaseDelay;
    }

    public function isDeleted(): bool
    {
        return $this->deleted;
    }

    /** Whether this was the last start it had. */
    public function isLastTry(): bool
    {
        return $this->tries > 0 && $this->attempts >= $this->tries;
    }
}
