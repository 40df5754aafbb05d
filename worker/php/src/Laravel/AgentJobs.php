<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\DatabaseQueue;
use Illuminate\Queue\RedisQueue;

/** Makes the jobs of the agent's messages. */
final class AgentJobs
{
    /** @param array<string, mixed> $message what Cohort\Worker\next() gave */
    public static function make(Application $app, array $message): AgentJob
    {
        $queue = $app->make('queue')->connection($message['connection']);
        return match (true) {
            $queue instanceof RedisQueue => RedisJob::from($app, $queue, $message),
            $queue instanceof DatabaseQueue => SqliteJob::from($app, $queue, $message),
            default => throw new \LogicException("queue connection {$message['connection']} is now a "
                . $queue::class . ', which Cohort does not serve; was the configuration changed without a reload?'),
        };
    }
}
