<?php

namespace App\Jobs;

use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Queue\InteractsWithQueue;

/** Notes how often it finds itself with the same scoped binding and the same singleton. */
class Bindings implements ShouldQueue
{
    use InteractsWithQueue, Queueable;

    public function handle()
    {
        note('scoped', (string) ++app('e2e.scoped')->count, 1);
        note('singleton', (string) ++app('e2e.singleton')->count, 1);
    }
}
