<?php

declare(strict_types=1);

namespace Cohort\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\Jobs\RedisJob as LaravelRedisJob;
use Illuminate\Queue\RedisQueue;

/**
 * A job of a Redis queue whose place in Redis belongs to the agent.
 *
 * Horizon follows a queue by events of its own that its queue class raises when it takes, deletes and
 * releases a job. The agent does that here, so this job raises them, through that class.
 */
class RedisJob extends LaravelRedisJob implements AgentJob
{
    use SettledByAgent {
        delete as private noteDelete;
        release as private noteRelease;
    }

    private int $starts = 0;

    /** @param array<string, mixed> $message what Cohort\Worker\next() gave */
    public static function from(Application $app, RedisQueue $queue, array $message): self
    {
        $job = new self($app, $queue, $message['payload'], null, $message['connection'], $message['queue']);
        $job->ticket = $message['ticket'];
        $job->starts = $message['attempts'];
        return $job;
    }

    public function attempts()
    {
        return $this->starts;
    }

    /** The body as Laravel reserves it: with this start counted. */
    public function getReservedJob()
    {
        return $this->reserved ??= RedisPayload::withAttempts($this->job, $this->starts);
    }

    public function hasBegun(): void
    {
        $this->tellHorizon('JobReserved', fn (): array => [$this->getReservedJob()]);
    }

    public function delete()
    {
        $first = !$this->isDeleted();
        $this->noteDelete();
        $first && $this->tellHorizon('JobDeleted', fn (): array => [$this, $this->getReservedJob()]);
    }

    public function release($delay = 0)
    {
        $first = !$this->isReleased();
        $this->noteRelease($delay);
        $first && $this->tellHorizon('JobReleased', fn (): array => [$this->getReservedJob(), $this->releaseDelay]);
    }

    private function tellHorizon(string $name, \Closure $arguments): void
    {
        $queue = $this->redis;
        if (!is_a($queue, 'Laravel\Horizon\RedisQueue')) {
            return;
        }
        $class = "Laravel\\Horizon\\Events\\{$name}";
        $event = new $class(...$arguments());
        $raise = static fn (string $name) => $queue->event($queue->getQueue($name), $event);
        \Closure::bind($raise, null, $queue::class)($this->queue);
    }
}
