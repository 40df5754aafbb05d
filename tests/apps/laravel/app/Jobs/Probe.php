<?php

namespace App\Jobs;

use Illuminate\Bus\Batchable;
use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Foundation\Bus\Dispatchable;
use Illuminate\Queue\InteractsWithQueue;
use Illuminate\Support\Facades\DB;
use RuntimeException;
use Throwable;

/**
 * A job that does what its script says and writes down that it did.
 *
 * The script is a list with one entry an attempt (the last one repeats); "+" joins several actions:
 *
 *     ok              return
 *     throw           throw a RuntimeException "ID attempt N"
 *     release:S       release() with S seconds
 *     fail[:TEXT]     fail(), with a RuntimeException when there is a text
 *     failString:TEXT fail(TEXT)
 *     delete          delete()
 *     exit:N          exit(N)
 *     signal:N        kill this process with signal N
 *     fatal           run out of memory
 *     hold:FILE       work until FILE exists, 30 s at most
 *     nap:MS          sleep for so long
 *     write           insert a row into the items table
 *     echo:TEXT       write TEXT to standard output
 */
class Probe implements ShouldQueue
{
    use Batchable, Dispatchable, InteractsWithQueue, Queueable;

    public $id;

    public $script;

    public $tries;

    public $backoff;

    public $maxExceptions;

    public $timeout;

    private $until;

    private $fresh = true;

    public function __construct(string $id, array $script = ['ok'], array $options = [])
    {
        $this->id = $id;
        $this->script = $script;
        $this->until = $options['retryUntil'] ?? null;
        unset($options['retryUntil']);
        foreach ($options as $name => $value) {
            $this->{$name} = $value;
        }
    }

    public function retryUntil()
    {
        return $this->until === null ? null : now()->addSeconds($this->until);
    }

    public function handle()
    {
        $this->fresh = false;
        note('run', $this->id, $this->attempts());
        $attempt = max(1, $this->attempts());
        $action = $this->script[min($attempt, count($this->script)) - 1];
        foreach (explode('+', $action) as $step) {
            [$verb, $argument] = explode(':', $step, 2) + [1 => null];
            $this->{'do'.ucfirst($verb)}($argument);
        }
        note('end', $this->id, $this->attempts());
    }

    public function failed(?Throwable $e = null)
    {
        note($this->fresh ? 'failed' : 'failed-stale', $this->id, 0);
    }

    private function doOk()
    {
    }

    private function doThrow()
    {
        throw new RuntimeException("$this->id attempt {$this->attempts()}");
    }

    private function doRelease($seconds)
    {
        $seconds === null ? $this->release() : $this->release((int) $seconds);
    }

    private function doFail($text)
    {
        $this->fail($text === null ? null : new RuntimeException($text));
    }

    private function doFailString($text)
    {
        $this->fail($text); // A string since Laravel 9.
    }

    private function doDelete()
    {
        $this->delete();
    }

    private function doExit($status)
    {
        exit((int) $status);
    }

    private function doSignal($number)
    {
        posix_kill(getmypid(), (int) $number);
    }

    private function doFatal()
    {
        ini_set('memory_limit', '64M');
        str_repeat('x', 1 << 30);
    }

    private function doHold($file)
    {
        $end = microtime(true) + 30;
        while (! is_file($file) && microtime(true) < $end) {
            clearstatcache();
            usleep(5000);
        }
    }

    private function doNap($milliseconds)
    {
        usleep(1000 * $milliseconds);
    }

    private function doWrite()
    {
        DB::table('items')->insert(['name' => $this->id]);
    }

    private function doEcho($text)
    {
        echo $text, "\n";
    }
}
