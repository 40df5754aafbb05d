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
 * Names here are chosen so that no later Laravel is likely to use them: a clash would be fatal.
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
    /** @var array<class-string, bool> which events this version has */
    private array $cohortEvents = [];

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
            $stop = $this->serveTicket($message);
            if ($stop !== null) {
                return $this->leaveFor(...$stop);
            }
        }
        return $this->leaveFor(self::EXIT_SUCCESS, 'Interrupted');
    }

    /** The time limit was reached: say what becomes of the job, then end as Laravel does. */
    public function kill($status = 0, ...$rest)
    {
        $job = $this->cohortJob;
        if ($job !== null) {
            if ($job->outcome() === OUTCOME_LEFT) {
                $job->release($this->calculateBackoff($job, $this->cohortOptions));
            }
            log('warn', sprintf(
                'job %d (%s) ran longer than its timeout of %d s; its worker ends',
                $job->getJobId(),
                $job->resolveName(),
                $this->timeoutForJob($job, $this->cohortOptions),
            ));
            $this->reportOutcome($job, $job->failure() ?? $this->timeoutOf($job));
        }
        parent::kill($status, ...$rest);
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
     * @return array{int, string}|null exit code and Laravel's stop reason, or null to go on
     */
    private function serveTicket(array $message): ?array
    {
        $options = $this->optionsOfMessage($message);
        $job = $this->admitTicket($message, $options);
        if ($job === null) {
            return $this->reasonToLeave(true, 0);
        }
        $this->runTicket($job, $options);
        $accepted = $this->reportOutcome($job, $job->failure() ?? $this->cohortError);
        return $this->reasonToLeave($accepted, $message['memory']);
    }

    /** All that comes before a job begins; null when it does not. */
    private function admitTicket(array $message, WorkerOptions $options): ?SqliteJob
    {
        $connection = $message['connection'];
        $queue = $message['queue'];
        try {
            $job = null;
            if ($this->daemonShouldRun($options, $connection, $queue)) {
                isset($this->resetScope) && ($this->resetScope)();
                $this->fireIfKnown(JobPopping::class, $connection, $queue);
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
    private function runTicket(SqliteJob $job, WorkerOptions $options): void
    {
        $this->cohortJob = $job;
        $this->cohortOptions = $options;
        $this->cohortError = null;
        $this->cohortLastWords->begin($job->getQueue(), $job->getJobId(), $job->resolveName());
        $limited = $this->supportsAsyncSignals() && $this->timeoutForJob($job, $options) > 0;
        $limited && pcntl_alarm((int) $this->timeoutForJob($job, $options));
        if ($this->announceTicket($job, $options)) {
            $this->runJob($job, $job->getConnectionName(), $options);
        }
        $limited && $this->resetTimeoutHandler();
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
     * The alarm of a job went off: let Laravel's own handler deal with it, which ends the process.
     *
     * It is put in place only now, since that takes system calls which hardly any job needs.
     */
    private function onCohortAlarm(int $signal, mixed $info): void
    {
        $job = $this->cohortJob;
        if ($job === null) {
            // A late alarm must not hit the job after the one it was meant for.
            return;
        }
        // The record of a failure must not end in the transaction that was cut off.
        Connections::rollBackStray($this->cohortApp);
        // From 13 on it wants to know the connection and the queue as well.
        $wants = (new \ReflectionMethod(LaravelWorker::class, 'registerTimeoutHandler'))->getNumberOfParameters();
        $all = [$job->getConnectionName(), $job->getQueue(), $job, $this->cohortOptions];
        $this->registerTimeoutHandler(...array_slice($all, -$wants));
        $this->resetTimeoutHandler();
        $handler = pcntl_signal_get_handler(SIGALRM);
        pcntl_signal(SIGALRM, $this->onCohortAlarm(...));
        $handler($signal, $info);
    }

    /** Tell the listeners of JobPopped; what they throw is as if the job had thrown it. */
    private function announceTicket(SqliteJob $job, WorkerOptions $options): bool
    {
        try {
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
     * @return bool false when the agent is ending it
     */
    private function reportOutcome(SqliteJob $job, ?\Throwable $error): bool
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
    private function reasonToLeave(bool $accepted, int $memoryBytes): ?array
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

    private function leaveFor(int $status, string $reason): int
    {
        $enum = 'Illuminate\Queue\WorkerStopReason';
        $this->stop($status, $this->cohortOptions, enum_exists($enum) ? constant("{$enum}::{$reason}") : null);
        return $status;
    }

    /** @param array<string, mixed> $message */
    private function optionsOfMessage(array $message): WorkerOptions
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
    private function rollBackStrayOf($job): void
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
            pcntl_signal(SIGALRM, $this->onCohortAlarm(...));
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

    /** Raise an event where this version of Laravel has it. */
    private function fireIfKnown(string $event, mixed ...$arguments): void
    {
        // Asked of every autoloader only once: that takes longer than an empty job.
        if ($this->cohortEvents[$event] ??= class_exists($event)) {
            $this->events->dispatch(new $event(...$arguments));
        }
    }

    private function timeoutOf(SqliteJob $job): \Throwable
    {
        return method_exists($this, 'timeoutExceededException')
            ? $this->timeoutExceededException($job)
            : $this->maxAttemptsExceededException($job);
    }
}
