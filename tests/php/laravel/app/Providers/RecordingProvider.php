<?php

namespace App\Providers;

use Cohort\Fake\Wire;
use Illuminate\Cache\RateLimiter;
use Illuminate\Cache\RateLimiting\Limit;
use Illuminate\Queue\Events\JobPopped;
use Illuminate\Queue\Events\JobProcessing;
use Illuminate\Queue\Events\Looping;
use Illuminate\Queue\Events\WorkerStopping;
use Illuminate\Queue\Connectors\RedisConnector;
use Illuminate\Support\ServiceProvider;
use Laravel\Horizon\RedisQueue;

/** Records the queue's events, and misbehaves where a scenario says so. */
class RecordingProvider extends ServiceProvider
{
    public function register()
    {
        $this->app->scoped('scoped', fn () => new \ArrayObject(['id' => random_int(1, PHP_INT_MAX)]));
    }

    public function boot()
    {
        $this->app->make(RateLimiter::class)->for('minute', fn () => Limit::perMinute(1));
        $events = $this->app['events'];
        $events->listen('Illuminate\Queue\Events\*', function (string $name) {
            Wire::record('event', class_basename($name));
        });
        $events->listen(WorkerStopping::class, function ($event) {
            Wire::record('stopping', $event->status, ($event->reason ?? null)?->name);
        });
        $does = Wire::$scenario['provider'] ?? '';
        if ($does === 'open') {
            $this->app['db']->connection()->select('select 1');
            Wire::record('boot_pdo', spl_object_id($this->app['db']->connection()->getPdo()));
            $GLOBALS['boot_pdo'] = $this->app['db']->connection()->getPdo();
        }
        if ($does === 'veto') {
            $events->listen(Looping::class, fn () => false);
        }
        if ($does === 'popped') {
            $events->listen(JobPopped::class, fn () => throw new \RuntimeException('popped listener'));
        }
        if ($does === 'stop_early') {
            $events->listen(JobPopped::class, fn () => Wire::stop());
            $events->listen('Illuminate\Queue\Events\WorkerInterrupted', fn () => throw new \RuntimeException('listener'));
        }
        if ($does === 'horizon') {
            $this->beHorizon($events);
        }
        if ($does === 'delete') {
            $events->listen(JobProcessing::class, fn ($event) => $event->job->delete());
        }
    }

    /** Take the place of the Redis driver as Horizon does, and record what it would show. */
    private function beHorizon($events)
    {
        $this->app['queue']->addConnector('redis', fn () => new class ($this->app['redis']) extends RedisConnector {
            public function connect(array $config)
            {
                return new RedisQueue($this->redis, $config['queue'], $config['connection'], $config['retry_after']);
            }
        });
        foreach (['JobReserved', 'JobDeleted', 'JobReleased'] as $name) {
            $events->listen("Laravel\\Horizon\\Events\\{$name}", fn ($event) => Wire::record(
                'horizon',
                $name,
                $event->connectionName,
                $event->queue,
                json_decode($event->payload, true)['attempts'],
                isset($event->job) ? $event->job->hasFailed() : null,
            ));
        }
    }
}
