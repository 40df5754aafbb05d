<?php

namespace App\Providers;

use Illuminate\Cache\RateLimiting\Limit;
use Illuminate\Queue\Events\JobProcessing;
use Illuminate\Queue\Events\Looping;
use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\RateLimiter;
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
        RateLimiter::for('one', function () {
            return Limit::perMinute(1);
        });
        if (is_file(base_path('thread.on'))) {
            $libc = \FFI::cdef('typedef void *(*begin)(void *); int pause(void);
                int pthread_create(unsigned long *, void *, begin, void *);', 'libc.so.6');
            $libc->pthread_create(\FFI::addr($libc->new('unsigned long')), null, $libc->cast('begin', $libc->pause), null);
        }
        if (is_file(base_path('vetoes.on'))) {
            $this->veto();
        }
        if (is_file(base_path('boot.on'))) {
            DB::table('items')->count();
        }
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

    /** Listeners that keep jobs from being taken and from being run. */
    private function veto()
    {
        $this->app['events']->listen(Looping::class, function () {
            clearstatcache();

            return is_file(base_path('veto')) ? false : null;
        });
        $this->app['events']->listen(JobProcessing::class, function ($event) {
            if (strpos($event->job->getRawBody(), 'delete-me') !== false) {
                $event->job->delete();
            }
        });
        $this->app['events']->listen('Illuminate\Queue\Events\WorkerStopping', function ($event) {
            note('stopping', 'worker', $event->status);
        });
    }
}
