<?php

declare(strict_types=1);

namespace Cohort;

/**
 * The worker that ran a job ended under it: by a signal, a fatal error, exit(), or for its memory.
 *
 * It is what the job's failed() gets and what stands in failed_jobs; the message names the cause.
 */
final class WorkerDied extends \RuntimeException
{
}
