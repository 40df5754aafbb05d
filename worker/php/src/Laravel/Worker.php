<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Cohort\ErrorText;
use Cohort\Runtime;
use Illuminate\Contracts\Queue\Interruptible;
use Illuminate\Queue\Events\JobPopped;
use Illuminate\Queue\Events\JobPopping;
use Illuminate\Queue\Events\WorkerInterrupted;
use Illuminate\Queue\Events\WorkerStarting;
use Illuminate\Queue\Worker as LaravelWorker;
use Illuminate\Queue\WorkerOptions;

use function Cohort\Worker\begin;
use function Cohort\Worker\log;
use function Cohort\Worker\on_stop;
use function Cohort\Worker\on_timeout;
use function Cohort\Worker\ready;

use const Cohort\Worker\END_MEMORY;
use const Cohort\Worker\END_TIMEOUT;
use const Cohort\Worker\OUTCOME_DECLINED;

/**
 * Laravel's queue worker, fed by the agent.
 *
 * One turn of its loop is one turn of Laravel's daemon(), with the agent's hand-over in place of
 * pop(). What a job does is Laravel's process() alone.
 */
class Worker extends AgentWorker
{
    /** The names of signals come with pcntl. */
    private const SIGALRM = 14;
    private const SIGTERM = 15;
    private const SIGKILL = 9;

    private ?AgentJob $cohortJob = null;
    private int $cohortTicket = 0;
    private ?WorkerOptions $cohortOptions = null;
    private ?\Throwable $cohortError = null;
    /** The job has run; only its outcome is yet to be told. */
    private bool $cohortRan = false;
    private bool $cohortFull = false;

    /**
     * Run jobs until the agent says stop, or this process must be replaced.
     *
     * @return int the exit code, 0
     */
    public function serve(): int
    {
        $this->listenAsWorker();
        on_timeout($this->onTimeLimit(...));
        // Older versions tell nobody, and a signal without a handler does not end a job's sleep().
        if (method_exists($this, 'notifyJobOfSignal') && interface_exists(Interruptible::class)) {
            on_stop($this->onStop(...));
        }
        $this->announceStart();
        ready(Runtime::introduction(Runtime::app()));
        while (($message = \Cohort\Worker\next()) !== null) {
            if ($message['type'] !== 'job') {
                log('warn', "a job worker was given a {$message['type']}; it is ignored");
                continue;
            }
            $reason = $this->serveTicket($message);
            if ($reason !== null) {
                return $this->leaveFor($reason);
            }
        }
        return $this->leaveFor($this->cohortFull ? 'MaxMemoryExceeded' : 'Interrupted');
    }

    protected function handleJobException($connectionName, $job, WorkerOptions $options, \Throwable $e)
    {
        $this->cohortError = $e;
        // failed() and the failed_jobs row must not end in a transaction that nobody commits.
        $this->rollBackStrayOf($job);
        parent::handleJobException($connectionName, $job, $options, $e);
    }

    /**
     * One turn.
     *
     * @param array<string, mixed> $message
     * @return string|null Laravel's stop reason, or null to go on
     */
    private function serveTicket(array $message): ?string
    {
        $options = $this->optionsOfMessage($message);
        $job = $this->admitTicket($message, $options);
        if ($job === null) {
            return $this->reasonToLeave(true);
        }
        $this->runTicket($job, $options);
        // The agent replaces a worker that is over the limit, its successor first.
        $this->cohortFull = $message['memory'] > 0 && memory_get_usage(true) >= $message['memory'];
        $error = $job->failure() ?? $this->cohortError;
        return $this->reasonToLeave($this->reportOutcome($job, $error, $this->cohortFull ? END_MEMORY : 0));
    }

    /** All that comes before a job begins; null when it does not. */
    private function admitTicket(array $message, WorkerOptions $options): ?AgentJob
    {
        $connection = $message['connection'];
        $queue = $message['queue'];
        try {
            $job = null;
            if ($this->daemonShouldRun($options, $connection, $queue)) {
                isset($this->resetScope) && ($this->resetScope)();
                $this->fireIfKnown(JobPopping::class, $connection, $queue);
                $job = AgentJobs::make($this->cohortApp, $message);
            }
        } catch (\Throwable $error) {
            $this->exceptions->report($error);
            log('error', "job {$message['id']} was not begun: " . ErrorText::head($error));
            $this->stopWorkerIfLostConnection($error);
        }
        if ($job === null) {
            \Cohort\Worker\end($message['ticket'], OUTCOME_DECLINED);
            return null;
        }
        // Known before it begins, for its time may be over at once.
        $this->cohortJob = $job;
        $this->cohortOptions = $options;
        $this->cohortTicket = $message['ticket'];
        $this->cohortRan = false;
        if (!begin($message['ticket'])) {
            $this->cohortJob = null;
            return null;
        }
        return $job;
    }

    /** Run a job that has begun. */
    private function runTicket(AgentJob $job, WorkerOptions $options): void
    {
        $this->cohortError = null;
        $this->cohortLastWords->begin($job->getQueue(), (string) $job->getJobId(), $job->resolveName());
        if ($this->announceTicket($job, $options)) {
            $this->runJob($job, $job->getConnectionName(), $options);
        }
        $this->cohortRan = true;
        $this->countTicket();
        $this->rollBackStrayOf($job);
        $this->settleFailure();
    }

    /** From 13 on WorkerStopping tells how many jobs there were. */
    private function countTicket(): void
    {
        if (property_exists(LaravelWorker::class, 'jobsProcessed')) {
            $this->jobsProcessed++;
            $this->lastJobProcessedAt = $this->currentTime();
        }
    }

    /**
     * The agent ends the running job for its time limit. As in Laravel's own handler, which needs
     * pcntl, this process ends with it, in the middle of the job's code.
     */
    private function onTimeLimit(int $ticket): void
    {
        $job = $this->cohortJob;
        if ($job === null || $ticket !== $this->cohortTicket) {
            return;
        }
        $error = $job->failure() ?? $this->timeoutOf($job);
        if (!$this->cohortRan) {
            // The record of a failure must not end in the transaction that was cut off.
            Connections::rollBackStray($this->cohortApp);
            $this->warnRunningJob();
            $this->settleUnended($job, $this->cohortOptions, $error, true);
        }
        if ($this->recordFailureOf($job, $error)) {
            log('warn', sprintf(
                'job %s (%s) ran longer than its timeout of %d s; its worker ends',
                $job->getJobId(),
                $job->resolveName(),
                $this->timeoutForJob($job, $this->cohortOptions),
            ));
            $this->reportOutcome($job, $this->cohortRan ? $job->failure() ?? $this->cohortError : $error, END_TIMEOUT);
        }
        // Laravel's kill() takes pcntl for granted.
        defined('SIGKILL') || define('SIGKILL', self::SIGKILL);
        $status = static::$timedOutExitCode ?? self::EXIT_ERROR;
        $this->kill($status, $this->cohortOptions, $this->reasonNamed('TimedOut'), $job->getConnectionName(), $job->getQueue());
    }

    /**
     * The agent tells this worker to stop after the running job. As in Laravel's own handler of a quit
     * signal, which needs pcntl, what is thrown goes into the job; where none runs it has no place.
     */
    private function onStop(int $ticket): void
    {
        $job = $this->cohortJob;
        if ($job === null || $ticket !== $this->cohortTicket) {
            return;
        }
        $this->shouldQuit = true;
        try {
            $this->fireIfKnown(WorkerInterrupted::class, self::SIGTERM, $job->getConnectionName(), $job->getQueue(), $this->cohortOptions);
            $this->notifyJobOfSignal(self::SIGTERM);
        } catch (\Throwable $error) {
            if ($this->currentJob !== null) {
                throw $error;
            }
            $this->reportQuietly($error);
        }
    }

    /** From 13 on a job may want to hear of it (Interruptible). */
    private function warnRunningJob(): void
    {
        try {
            method_exists($this, 'notifyJobOfSignal') && $this->notifyJobOfSignal(self::SIGALRM);
        } catch (\Throwable $error) {
            $this->reportQuietly($error);
        }
    }

    /** Tell the listeners of JobPopped; what they throw is as if the job had thrown it. */
    private function announceTicket(AgentJob $job, WorkerOptions $options): bool
    {
        try {
            $job->hasBegun();
            $this->fireIfKnown(JobPopped::class, $job->getConnectionName(), $job);
            return true;
        } catch (\Throwable $error) {
            try {
                $this->handleJobException($job->getConnectionName(), $job, $options, $error);
            } catch (\Throwable $error) {
                $this->exceptions->report($error);
                $this->stopWorkerIfLostConnection($error);
            }
            return false;
        }
    }

    /**
     * Tell the agent what came of the job.
     *
     * @param int $flags END_ constants
     * @return bool false when the agent is ending it
     */
    private function reportOutcome(AgentJob $job, ?\Throwable $error, int $flags): bool
    {
        $this->cohortLastWords->end();
        $text = $error === null ? '' : ErrorText::of($error);
        $outcome = $job->outcome();
        $accepted = \Cohort\Worker\end($this->cohortTicket, $outcome, $job->releaseDelay(), $text, false, $flags);
        $this->cohortJob = null;
        return $accepted;
    }

    private function reasonToLeave(bool $accepted): ?string
    {
        return match (true) {
            !$accepted => 'TimedOut',
            $this->lostConnection ?? false => 'LostConnection',
            $this->shouldQuit => 'Interrupted',
            default => null,
        };
    }

    private function leaveFor(string $reason): int
    {
        $status = $reason === 'MaxMemoryExceeded'
            ? static::$memoryExceededExitCode ?? self::EXIT_MEMORY_LIMIT
            : self::EXIT_SUCCESS;
        // The listeners hear Laravel's status; to the agent this is an orderly end.
        $this->stop($status, $this->cohortOptions, $this->reasonNamed($reason));
        return self::EXIT_SUCCESS;
    }

    /** Laravel's name for why a worker stops, where this version has one. */
    private function reasonNamed(string $reason): ?object
    {
        $enum = 'Illuminate\Queue\WorkerStopReason';
        return enum_exists($enum) && defined("{$enum}::{$reason}") ? constant("{$enum}::{$reason}") : null;
    }

    private function settleFailure(): void
    {
        try {
            $this->cohortFailed->settle();
        } catch (\Throwable $error) {
            $this->exceptions->report($error);
        }
    }

    private function listenAsWorker(): void
    {
        if ($this->supportsAsyncSignals()) {
            $this->listenForSignals();
            // Pausing is the agent's; a stray signal to the process group must not stop a worker.
            pcntl_signal(SIGUSR2, SIG_IGN);
            pcntl_signal(SIGCONT, SIG_DFL);
        }
    }

    private function announceStart(): void
    {
        $config = $this->cohortApp->make('config');
        $connection = $config->get('queue.default');
        $queue = $config->get("queue.connections.{$connection}.queue", 'default');
        $this->fireIfKnown(WorkerStarting::class, $connection, $queue, $this->startOptions());
    }

    private function startOptions(): WorkerOptions
    {
        return $this->cohortOptions = $this->optionsOfMessage([
            'backoff' => $this->cohortSettings->text('backoff'),
            'memory' => $this->cohortSettings->int('memory'),
            'timeout' => $this->cohortSettings->seconds('timeout', 60),
            'tries' => $this->cohortSettings->int('tries', 1),
        ]);
    }
}
