<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\DatabaseQueue;
use Illuminate\Queue\Jobs\DatabaseJob;
use Illuminate\Queue\Jobs\DatabaseJobRecord;

/** A job of a `database` queue on SQLite whose row belongs to the agent. */
class SqliteJob extends DatabaseJob implements AgentJob
{
    use SettledByAgent;

    /** @param array<string, mixed> $message what Cohort\Worker\next() gave */
    public static function from(Application $app, DatabaseQueue $queue, array $message): self
    {
        $record = new DatabaseJobRecord((object) [
            'id' => $message['id'],
            'queue' => $message['queue'],
            'payload' => $message['payload'],
            'attempts' => $message['attempts'],
            'reserved_at' => $message['reserved_at'],
            'available_at' => $message['available_at'],
            'created_at' => $message['created_at'],
        ]);
        $job = new self($app, $queue, $record, $message['connection'], $message['queue']);
        $job->ticket = $message['ticket'];
        return $job;
    }
}
