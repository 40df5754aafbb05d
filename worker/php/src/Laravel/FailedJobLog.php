<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Cohort\ErrorText;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Contracts\Queue\Job;
use Illuminate\Database\QueryException;
use Illuminate\Queue\Events\JobFailed;

use function Cohort\Worker\log;

/**
 * Writes failed jobs where the application keeps them, as `queue:work` does.
 *
 * A job may fail inside a transaction that is rolled back later, and its record with it; settle()
 * writes that record again.
 */
final class FailedJobLog
{
    private const PATIENCE_NS = 1_000_000_000;
    private const PAUSE_US = 2_000;
    /** SQLSTATEs of a broken unique key: SQLite and MySQL, PostgreSQL. */
    private const DUPLICATE = ['23000', '23505'];

    private static ?self $registered = null;

    private ?JobFailed $unsure = null;
    private mixed $unsureId = null;
    private ?object $recorded = null;

    private function __construct(private readonly Application $app)
    {
    }

    /** Listen for failed jobs; once in a process, whoever asks. */
    public static function register(Application $app): self
    {
        if (self::$registered === null) {
            self::$registered = new self($app);
            $app->make('events')->listen(JobFailed::class, [self::$registered, 'handle']);
        }
        return self::$registered;
    }

    public function handle(JobFailed $event): void
    {
        $id = $this->write($event);
        if (Connections::inTransaction($this->app)) {
            $this->unsure = $event;
            $this->unsureId = $id;
        }
    }

    /** After the job, when its transactions are over: make sure the record stands. */
    public function settle(): void
    {
        $event = $this->unsure;
        if ($event === null) {
            return;
        }
        $this->unsure = null;
        if ($this->failer()->find($this->unsureId) === null) {
            $this->write($event);
        }
    }

    /** Record this job unless that is done already. */
    public function ensure(Job $job, \Throwable $error): void
    {
        if ($this->recorded !== $job) {
            $this->write(new JobFailed($job->getConnectionName(), $job, $error));
        }
    }

    private function write(JobFailed $event): mixed
    {
        try {
            $id = $this->writeOrReplace($event);
            $this->recorded = $event->job;
            return $id;
        } catch (\Throwable $error) {
            log('error', sprintf(
                'failed job %s of queue %s could not be recorded: %s',
                $event->job->uuid() ?? $event->job->getJobId(),
                $event->job->getQueue(),
                ErrorText::head($error),
            ));
            throw $error;
        }
    }

    /**
     * `queue:retry` pushes a job before it forgets its old record, and the job may fail again in
     * between: then wait for that, because forgetting goes by UUID and would take the new record.
     */
    private function writeOrReplace(JobFailed $event): mixed
    {
        $until = hrtime(true) + self::PATIENCE_NS;
        while (true) {
            try {
                return $this->log($event);
            } catch (QueryException $error) {
                if (!in_array((string) $error->getCode(), self::DUPLICATE, true)) {
                    throw $error;
                }
            }
            // In a transaction waiting would keep others from the database: the retry among them.
            if (hrtime(true) >= $until || Connections::inTransaction($this->app)) {
                $this->failer()->forget((string) $event->job->uuid());
                return $this->log($event);
            }
            usleep(self::PAUSE_US);
        }
    }

    private function log(JobFailed $event): mixed
    {
        return $this->failer()->log(
            $event->connectionName,
            $event->job->getQueue(),
            $event->job->getRawBody(),
            $event->exception,
        );
    }

    private function failer(): object
    {
        return $this->app->make('queue.failer');
    }
}
