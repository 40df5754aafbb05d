<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Cohort\ErrorText;
use Cohort\LastWords;
use Cohort\Settings;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\Events\JobTimedOut;
use Illuminate\Queue\Worker as LaravelWorker;
use Illuminate\Queue\WorkerOptions;

use function Cohort\Worker\log;

use const Cohort\Worker\OUTCOME_FAILED;
use const Cohort\Worker\OUTCOME_LEFT;

/**
 * What the job worker and the bookkeeper share: Laravel's queue worker in the agent's hands.
 *
 * Names here are chosen so that no later Laravel is likely to use them: a clash would be fatal.
 */
abstract class AgentWorker extends LaravelWorker
{
    protected const MIB = 1048576;

    protected Application $cohortApp;
    protected Settings $cohortSettings;
    protected FailedJobLog $cohortFailed;
    protected LastWords $cohortLastWords;
    /** @var array<class-string, bool> which events this version has */
    private array $cohortEvents = [];

    /** A worker made of the application's own, with its maintenance check and scope reset. */
    public static function from(Application $app, Settings $settings): static
    {
        $take = static fn (LaravelWorker $own): array => [
            $own->manager,
            $own->events,
            $own->exceptions,
            $own->isDownForMaintenance,
            $own->resetScope ?? null,
        ];
        $parts = \Closure::bind($take, null, LaravelWorker::class)($app->make('queue.worker'));
        $worker = new static(...$parts);
        $worker->cohortApp = $app;
        $worker->cohortSettings = $settings;
        $worker->cohortFailed = FailedJobLog::register($app);
        $worker->cohortLastWords = LastWords::register();
        $worker->setCache($app->make('cache.store'));
        if (method_exists($worker, 'setName')) {
            $worker->setName('default');
        }
        return $worker;
    }

    /** @param array<string, mixed> $message */
    protected function optionsOfMessage(array $message): WorkerOptions
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

    /**
     * Decide what becomes of a job that did not end by itself: fail it where Laravel would, else put
     * it back with its backoff. Nothing here may keep the decision from being made.
     *
     * @param bool $timedOut it ran over its time limit
     * @param bool $final    it must fail, whatever tries are left
     */
    protected function settleUnended(
        AgentJob $job,
        WorkerOptions $options,
        \Throwable $error,
        bool $timedOut,
        bool $final = false,
    ): void {
        $connection = $job->getConnectionName();
        $steps = [
            fn () => $final && $this->failJob($job, $error),
            fn () => $this->markJobAsFailedIfWillExceedMaxAttempts($connection, $job, (int) $options->maxTries, $error),
            fn () => $this->markJobAsFailedIfWillExceedMaxExceptions($connection, $job, $error),
            fn () => $timedOut && $this->markJobAsFailedIfItShouldFailOnTimeout($connection, $job, $error),
            fn () => !$timedOut && method_exists($this, 'markJobAsFailedIfItShouldntBeRetried')
                && $this->markJobAsFailedIfItShouldntBeRetried($connection, $job, $error),
            fn () => $timedOut && $this->fireIfKnown(JobTimedOut::class, $connection, $job, $this->timeoutForJob($job, $options)),
            fn () => $this->forgetStartMarker($job),
            fn () => $job->outcome() === OUTCOME_LEFT && $job->release($this->calculateBackoff($job, $options)),
        ];
        foreach ($steps as $step) {
            try {
                $step();
            } catch (\Throwable $thrown) {
                $this->reportQuietly($thrown);
            }
        }
    }

    /**
     * Make sure a job that has failed is recorded, even if its failed() or a listener did not let it.
     *
     * @return bool false: it has failed, and it could not be recorded
     */
    protected function recordFailureOf(AgentJob $job, \Throwable $error): bool
    {
        try {
            $this->rollBackStrayOf($job);
            $this->cohortFailed->settle();
            if ($job->outcome() === OUTCOME_FAILED) {
                $this->cohortFailed->ensure($job, $error);
            }
            return true;
        } catch (\Throwable $thrown) {
            $this->reportQuietly($thrown);
            return false;
        }
    }

    protected function reportQuietly(\Throwable $error): void
    {
        try {
            $this->exceptions->report($error);
        } catch (\Throwable $thrown) {
            log('warn', ErrorText::head($error) . '; reporting it: ' . ErrorText::head($thrown));
        }
    }

    protected function rollBackStrayOf(\Illuminate\Contracts\Queue\Job $job): void
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

    /** Raise an event where this version of Laravel has it. */
    protected function fireIfKnown(string $event, mixed ...$arguments): void
    {
        // Asked of every autoloader only once: that takes longer than an empty job.
        if ($this->cohortEvents[$event] ??= class_exists($event)) {
            $this->events->dispatch(new $event(...$arguments));
        }
    }

    protected function timeoutOf(AgentJob $job): \Throwable
    {
        return method_exists($this, 'timeoutExceededException')
            ? $this->timeoutExceededException($job)
            : $this->maxAttemptsExceededException($job);
    }

    /** Late versions count a crash when the next start finds this marker; it has been counted here. */
    private function forgetStartMarker(AgentJob $job): void
    {
        if ($job->payload()['countCrashesAsExceptions'] ?? false) {
            $this->cache->forget("job-processing:{$job->uuid()}");
        }
    }
}
