<?php

declare(strict_types=1);

namespace Cohort;

// The package may be present twice: beside the agent and in the application's vendor directory.
if (!\function_exists(__NAMESPACE__ . '\\dispatch')) {
    /**
     * Run this process as a worker until the agent says stop. Called by cohort-worker in each child.
     *
     * @param string $kind 'job', 'bookkeeper' or 'control'
     * @return int the exit code: 0 stopped or to be replaced, 1 failed
     */
    function run_worker(string $kind): int
    {
        try {
            return Runtime::run($kind);
        } catch (\Throwable $error) {
            Worker\log('error', "The {$kind} worker ends: " . ErrorText::of($error));
            return 1;
        }
    }

    /**
     * Put a job on a queue of the plain PHP source.
     *
     * Inside a worker the queue database is the agent's; elsewhere the environment variable
     * COHORT_QUEUE_DATABASE names the file (and COHORT_QUEUE_TABLE the table, default "jobs").
     *
     * @param string    $queue   name of the queue
     * @param mixed     $payload anything JSON can hold; the handler gets it as $job->data
     * @param float|int $delay   seconds until the job may run; part of a second is rounded up
     * @param int|null  $tries   starts before the job fails; 0 = no limit; null = as the pool says
     * @return string the job's UUID
     *
     * @throws QueueError     no database named, not there, without a jobs table, or locked too long
     * @throws \JsonException the payload cannot be JSON
     */
    function dispatch(string $queue, mixed $payload, float|int $delay = 0, ?int $tries = null): string
    {
        return Plain\QueueDatabase::shared()->dispatch($queue, $payload, $delay, $tries);
    }
}
