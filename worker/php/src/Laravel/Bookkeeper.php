<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Cohort\ErrorText;
use Cohort\Runtime;
use Cohort\WorkerDied;

use function Cohort\Worker\begin;
use function Cohort\Worker\log;
use function Cohort\Worker\ready;

/**
 * Settles a job whose worker died, once, in a clean process: the job's failed(), JobFailed,
 * failed_jobs, its batch and its unique lock are Laravel's own. The job itself does not run.
 */
class Bookkeeper extends AgentWorker
{
    /**
     * Settle the one job the agent sends.
     *
     * @return int the exit code: 0, or 1 when the failure could not be recorded and all is as before
     */
    public function settleOne(): int
    {
        ready(Runtime::introduction(Runtime::app()));
        $message = \Cohort\Worker\next();
        if ($message === null) {
            return self::EXIT_SUCCESS;
        }
        if ($message['type'] !== 'bookkeep') {
            throw new \LogicException("a bookkeeper was given a {$message['type']}");
        }
        isset($this->resetScope) && ($this->resetScope)();
        $job = AgentJobs::make($this->cohortApp, $message);
        return begin($message['ticket']) ? $this->settleTicket($message, $job) : self::EXIT_SUCCESS;
    }

    /** @param array<string, mixed> $message */
    private function settleTicket(array $message, AgentJob $job): int
    {
        $this->cohortLastWords->begin($job->getQueue(), (string) $job->getJobId(), $job->resolveName());
        $timedOut = $message['cause'] === 'timeout';
        $error = $timedOut ? $this->timeoutOf($job) : new WorkerDied($message['text']);
        // A death is told to nobody else in the application; a timeout has its event.
        $timedOut || $this->reportQuietly($error);
        $this->restoreContextOf($job);
        $message['failed']
            ? $job->hasFailedBefore()
            : $this->settleUnended($job, $this->optionsOfMessage($message), $error, $timedOut, $message['final']);
        $recorded = $this->recordFailureOf($job, $error);
        $this->cohortLastWords->end();
        if (!$recorded) {
            log('error', "job {$job->getJobId()} ({$job->resolveName()}) could not be settled after its worker died");
            return self::EXIT_ERROR;
        }
        \Cohort\Worker\end($message['ticket'], $job->outcome(), $job->releaseDelay(), ErrorText::of($error));
        return self::EXIT_SUCCESS;
    }

    /** From 11 on a JobProcessing listener does this, and no job is processed here. */
    private function restoreContextOf(AgentJob $job): void
    {
        $context = 'Illuminate\Log\Context\Repository';
        if (!method_exists($context, 'hydrate')) {
            return;
        }
        try {
            $this->cohortApp->make($context)->hydrate($job->payload()['illuminate:log:context'] ?? null);
        } catch (\Throwable $error) {
            $this->reportQuietly($error);
        }
    }
}
