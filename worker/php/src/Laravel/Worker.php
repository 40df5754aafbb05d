<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Cohort\ErrorText;
use Cohort\LastWords;
use Cohort\Runtime;
use Cohort\Settings;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\Events\JobPopped;
use Illuminate\Queue\Events\JobPopping;
use Illuminate\Queue\Events\WorkerStarting;
use Illuminate\Queue\Worker as LaravelWorker;
use Illuminate\Queue\WorkerOptions;

use function Cohort\Worker\begin;
use function Cohort\Worker\log;
use function Cohort\Worker\ready;

use const Cohort\Worker\OUTCOME_DECLINED;
use const Cohort\Worker\OUTCOME_LEFT;

/**
 * Laravel's queue worker, fed by the agent.
 *
 * One turn of its loop is one turn of Laravel's daemon(), with the agent's hand-over in place of
 * pop(). What a job does is Laravel's process() alone.
 */
class Worker extends LaravelWorker
{
    private const MIB = 1048576;

    private Application $cohortApp;
    private Settings $cohortSettings;
    private FailedJobLog $cohortFailed;
    private LastWords $cohortLastWords;
    private ?SqliteJob $cohortJob = null;
    private int $cohortTicket = 0;
    private ?WorkerOptions $cohortOptions = null;
    private ?\Throwable $cohortError = null;

    /** A worker made of the application's own, with its maintenance check and scope reset. */
    public static function from(Application $app, Settings $settings): self
    {
        $take = static fn (LaravelWorker $own): array => [
            $own->manager,
            $own->events,
            $own->exceptions,
            $own->isDownForMaintenance,
            $own->resetScope ?? null,
        ];
        $parts = \Closure::bind($take, null, LaravelWorker::class)($app->make('queue.worker'));
        $worker = new self(...$parts);
        $worker->cohortApp = $app;
        $worker->cohortSettings = $settings;
        $worker->setCache($app->make('cache.store'));
        if (method_exists($worker, 'setName')) {
            $worker->setName('default');
        }
        return $worker;
    }

    /**
     * Run jobs until the agent says stop, or this process must be replaced.
     *
     * @return int the exit code: 0, or 12 over the memory limit
     */
    public function serve(): int
    {
        $this->cohortFailed = FailedJobLog::register($this->cohortApp);
        $this->cohortLastWords = LastWords::register();
        $this->listenAsWorker();
        $this->announceStart();
        ready(Runtime::introduction(Runtime::app()));
        while (($message = \Cohort\Worker\next()) !== null) {
            if ($message['type'] !== 'job') {
                log('warn', "a job worker was given a {$message['type']}; it is ignored");
                continue;
            }
            $stop = $this->take($message);
            if ($stop !== null) {
                return $this->stopFor(...$stop);
            }
        }
        return $this->stopFor(self::EXIT_SUCCESS, 'Interrupted');
    }

    /** The time limit was reached: say what becomes of the job, then end as Laravel does. */
    public function kill($status = 0, ...$rest)
    {
        $job = $this->cohortJob;
        if ($job !== null) {
            if ($job->outcome() === OUTCOME_LEFT) {
                $job->release($this->calculateBackoff($job, $this->cohortOptions));
            }
            $this->report($job, $job->failure() ?? $this->timedOut($job));
        }
        parent::kill($status, ...$rest);
    }

    protected function handleJobException($connectionName, $job, WorkerOptions $options, \Throwable $e)
    {
        $this->cohortError = $e;
        // failed() and the failed_jobs row must not end in a transaction that nobody commits.
        $this->rollBackStray($job);
        parent::handleJobException($connectionName, $job, $options, $e);
    }

    /**
     * One turn.
     *
     * @param array<string, mixed> $message
     * @return array{int, string}|null exit code and Laravel's stop reason, or null to go on
     */
    private function take(array $message): ?array
    {
        $options = $this->optionsOf($message);
        $job = $this->admit($message, $options);
        if ($job === null) {
            return $this->shouldQuit ? [self::EXIT_SUCCESS, 'Interrupted'] : null;
        }
        $this->run($job, $options);
        $accepted = $this->report($job, $job->failure() ?? $this->cohortError);
        return $this->stopReason($accepted, $message['memory']);
    }

    /** All that comes before a job begins; null when it does not. */
    private function admit(array $message, WorkerOptions $options): ?SqliteJob
    {
        $connection = $message['connection'];
        $queue = $message['queue'];
        try {
            $job = null;
            if ($this->daemonShouldRun($options, $connection, $queue)) {
                isset($this->resetScope) && ($this->resetScope)();
                $this->fire(JobPopping::class, $connection, $queue);
                $job = SqliteJob::from($this->cohortApp, $message);
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
        if (!begin($message['ticket'])) {
            return null;
        }
        $this->cohortTicket = $message['ticket'];
        return $job;
    }

    /** Run a job that has begun. */
    private function run(SqliteJob $job, WorkerOptions $options): void
    {
        $this->cohortJob = $job;
        $this->cohortOptions = $options;
        $this->cohortError = null;
        $this->cohortLastWords->begin($job->getQueue(), $job->getJobId(), $job->resolveName());
        if ($this->supportsAsyncSignals()) {
            $this->armTimeout($job, $options);
        }
        if ($this->announceJob($job, $options)) {
            $this->runJob($job, $job->getConnectionName(), $options);
        }
        if ($this->supportsAsyncSignals()) {
            $this->resetTimeoutHandler();
        }
        $this->count();
        $this->rollBackStray($job);
        $this->settleFailure();
    }

    /** From 13 on WorkerStopping tells how many jobs there were. */
    private function count(): void
    {
        if (property_exists(LaravelWorker::class, 'jobsProcessed')) {
            $this->jobsProcessed++;
            $this->lastJobProcessedAt = $this->currentTime();
        }
    }

    /** Laravel's own timeout handler and alarm, deaf to alarms that were not meant for this job. */
    private function armTimeout(SqliteJob $job, WorkerOptions $options): void
    {
        // From 13 on it wants to know the connection and the queue as well.
        static $wants = null;
        $wants ??= (new \ReflectionMethod(LaravelWorker::class, 'registerTimeoutHandler'))->getNumberOfParameters();
        $all = [$job->getConnectionName(), $job->getQueue(), $job, $options];
        $this->registerTimeoutHandler(...array_slice($all, -$wants));
        $handler = pcntl_signal_get_handler(SIGALRM);
        pcntl_signal(SIGALRM, function (int $signal, mixed $info) use ($job, $handler): void {
            if ($this->cohortJob === $job) {
                // The record of a failure must not end in the transaction that was cut off.
                Connections::rollBackStray($this->cohortApp);
                $handler($signal, $info);
            }
        });
    }

    /** Tell the listeners of JobPopped; what they throw is as if the job had thrown it. */
    private function announceJob(SqliteJob $job, WorkerOptions $options): bool
    {
        try {
            $this->fire(JobPopped::class, $job->getConnectionName(), $job);
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
     * @return bool false when the agent is ending it
     */
    private function report(SqliteJob $job, ?\Throwable $error): bool
    {
        $this->cohortJob = null;
        $this->cohortLastWords->end();
        return \Cohort\Worker\end(
            $this->cohortTicket,
            $job->outcome(),
            $job->releaseDelay(),
            $error === null ? '' : ErrorText::of($error),
        );
    }

    /** @return array{int, string}|null */
    private function stopReason(bool $accepted, int $memoryBytes): ?array
    {
        return match (true) {
            !$accepted => [self::EXIT_SUCCESS, 'TimedOut'],
            $this->lostConnection ?? false => [self::EXIT_SUCCESS, 'LostConnection'],
            $this->shouldQuit => [self::EXIT_SUCCESS, 'Interrupted'],
            $memoryBytes > 0 && $this->memoryExceeded($memoryBytes / self::MIB)
                => [static::$memoryExceededExitCode ?? self::EXIT_MEMORY_LIMIT, 'MaxMemoryExceeded'],
            default => null,
        };
    }

    private function stopFor(int $status, string $reason): int
    {
        $enum = 'Illuminate\Queue\WorkerStopReason';
        $this->stop($status, $this->cohortOptions, enum_exists($enum) ? constant("{$enum}::{$reason}") : null);
        return $status;
    }

    /** @param array<string, mixed> $message */
    private function optionsOf(array $message): WorkerOptions
    {
        return new WorkerOptions(
            'default',
            $message['backoff'] === '' ? 0 : $message['backoff'],
            intdiv($message['memory'], self::MIB),
            $message['timeout'],
            3,
            $message['tries'],
            $this->cohortSettings->flag('force'),
        );
    }

    private function settleFailure(): void
    {
        try {
            $this->cohortFailed->settle();
        } catch (\Throwable $error) {
            $this->exceptions->report($error);
        }
    }

    /** @param \Illuminate\Contracts\Queue\Job $job */
    private function rollBackStray($job): void
    {
        foreach (Connections::rollBackStray($this->cohortApp) as $name) {
            log('warn', sprintf(
                'job %s (%s) left a transaction open on database connection %s; it was rolled back',
                $job->getJobId(),
                $job->resolveName(),
                $name,
            ));
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
        $this->fire(WorkerStarting::class, $connection, $queue, $this->startOptions());
    }

    private function startOptions(): WorkerOptions
    {
        return $this->cohortOptions = $this->optionsOf([
            'backoff' => $this->cohortSettings->text('backoff'),
            'memory' => $this->cohortSettings->int('memory'),
            'timeout' => $this->cohortSettings->seconds('timeout', 60),
            'tries' => $this->cohortSettings->int('tries', 1),
        ]);
    }

    /** Raise an event where this version of Laravel has it. */
    private function fire(string $event, mixed ...$arguments): void
    {
        if (class_exists($event)) {
            $this->events->dispatch(new $event(...$arguments));
        }
    }

    private function timedOut(SqliteJob $job): \Throwable
    {
        return method_exists($this, 'timeoutExceededException')
            ? $this->timeoutExceededException($job)
            : $this->maxAttemptsExceededException($job);
    }
}
