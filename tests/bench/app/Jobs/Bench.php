<?php

namespace App\Jobs;

use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Queue\InteractsWithQueue;
use Illuminate\Support\Facades\DB;
use RuntimeException;

require_once __DIR__.'/../work.php';

/**
 * The job of every row of the bench:
 *
 *     empty   nothing
 *     work    $argument rounds of bench_work()
 *     stamp   write "ID ATTEMPT TIME" at the end of $file
 *     retry   the same, and throw in the first attempt
 *     query   read from the database, then nap for $argument microseconds
 */
class Bench implements ShouldQueue
{
    use InteractsWithQueue, Queueable;

    public $tries = 2;

    public $backoff = 1;

    private $what;

    private $argument;

    private $file;

    public function __construct(string $what, int $argument = 0, string $file = '')
    {
        $this->what = $what;
        $this->argument = $argument;
        $this->file = $file;
    }

    public function handle()
    {
        switch ($this->what) {
            case 'work':
                bench_work($this->argument);
                break;
            case 'stamp':
            case 'retry':
                $line = sprintf("%d %d %.6f\n", $this->job->getJobId(), $this->attempts(), microtime(true));
                file_put_contents($this->file, $line, FILE_APPEND);
                if ($this->what === 'retry' && $this->attempts() === 1) {
                    throw new RuntimeException('the first attempt fails');
                }
                break;
            case 'query':
                DB::table('migrations')->orderBy('id')->get();
                usleep($this->argument);
                break;
        }
    }
}
