<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Illuminate\Contracts\Queue\Job;

/** A job of the agent's: what it says of itself is told to the agent, which settles it. */
interface AgentJob extends Job
{
    /** What is to become of the job: one of the OUTCOME_ constants. */
    public function outcome(): int;

    /** Seconds until a job that goes back may run again; 0 for any other outcome. */
    public function releaseDelay(): int;

    /** What the job failed with, where something was given. */
    public function failure(): ?\Throwable;

    /** Its failed() was called by a worker that died in it or soon after: only the rest is left. */
    public function hasFailedBefore(): void;

    /** The job has begun; who follows the queue from inside Laravel hears of it. */
    public function hasBegun(): void;

    /** The decoded body. */
    public function payload();
}
