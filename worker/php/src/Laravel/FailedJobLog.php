<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Cohort\ErrorText;
use Illuminate\Contracts\Foundation\Application;
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
    private static ?self $registered = null;

    private ?JobFailed $unsure = null;
    private mixed $unsureId = null;

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
        if ($this->app->make('queue.failer')->find($this->unsureId) === null) {
            $this->write($event);
        }
    }

    private function write(JobFailed $event): mixed
    {
        try {
            return $this->app->make('queue.failer')->log(
                $event->connectionName,
                $event->job->getQueue(),
                $event->job->getRawBody(),
                $event->exception,
            );
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
}
