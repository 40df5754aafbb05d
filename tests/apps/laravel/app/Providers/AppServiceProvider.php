<?php

namespace App\Providers;

use Illuminate\Queue\Events\JobProcessing;
use Illuminate\Queue\Events\Looping;
use Illuminate\Support\ServiceProvider;

require_once __DIR__.'/../helpers.php';

class AppServiceProvider extends ServiceProvider
{
    public function register()
    {
        $this->app->scoped('e2e.scoped', function () {
            return (object) ['count' => 0];
        });
        $this->app->singleton('e2e.singleton', function () {
            return (object) ['count' => 0];
        });
    }

    public function boot()
    {
        $code = @file_get_contents(base_path('code.txt'));
        if ($code !== false && trim($code) === 'broken') {
            throw new \RuntimeException('this release is broken');
        }
        $this->app->instance('e2e.code', trim((string) $code) ?: 'none');
        if (is_file(base_path('written.on'))) {
            $this->noteWritten();
        }
        if (! is_file(base_path('events.on'))) {
            return;
        }
        $names = ['JobProcessing', 'JobProcessed', 'JobAttempted', 'JobExceptionOccurred',
            'JobReleasedAfterException', 'JobFailed', ];
        foreach ($names as $name) {
            $this->app['events']->listen("Illuminate\\Queue\\Events\\$name", function () use ($name) {
                note('event', $name, 0);
            });
        }
    }

    /** The next round of a worker begins: the outcome of its last job is written. */
    private function noteWritten()
    {
        $last = null;
        $this->app['events']->listen(JobProcessing::class, function ($event) use (&$last) {
            $last = [unserialize($event->job->payload()['data']['command'])->id, $event->job->attempts()];
        });
        $this->app['events']->listen(Looping::class, function () use (&$last) {
            if ($last !== null) {
                note('written', ...$last);
                $last = null;
            }
        });
    }
}
