<?php

declare(strict_types=1);

namespace Cohort;

/** A booted application of any kind. */
interface Application
{
    /** 'laravel' or 'plain'. */
    public function kind(): string;

    /** Version of the framework, or of PHP for a plain application. */
    public function version(): string;

    /**
     * Run jobs until the agent says stop or this worker must be replaced.
     *
     * @return int the exit code
     */
    public function runJobs(): int;

    /**
     * Settle the one job the agent sends, whose worker died.
     *
     * @return int the exit code; other than 0, the job is as it was before
     */
    public function keepBooks(): int;

    /** What answers the agent's questions. */
    public function control(): ControlHandler;
}
