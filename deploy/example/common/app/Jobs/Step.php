<?php

namespace App\Jobs;

use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Foundation\Bus\Dispatchable;
use Illuminate\Queue\InteractsWithQueue;
use RuntimeException;

/** What the quick start dispatches: a job that may fail its first attempts. */
class Step implements ShouldQueue
{
    use Dispatchable, InteractsWithQueue, Queueable;

    public $tries = 3;

    public $backoff = 1;

    private $number;

    private $failures;

    public function __construct(int $number, int $failures = 0)
    {
        $this->number = $number;
        $this->failures = $failures;
    }

    public function handle()
    {
        if ($this->attempts() <= $this->failures) {
            throw new RuntimeException("Step {$this->number} fails on attempt {$this->attempts()}");
        }
    }
}
