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
 *     error           throw an Error
 *     sleep:S         sleep(S)
 *     loop            while (1)
 *     socket          read from a socket that nobody writes to
 *     lock:FILE       wait for the write lock of an SQLite file
 *     deaf            ignore every signal that can be ignored, then loop
 *     stop            stop this process (SIGSTOP)
 *     children:FILE   start three processes, note their pids in FILE, sleep
 *     transaction     begin a transaction and insert a row
 *     segfault        write to address 0
 *     heap            damage the C heap and free from it
 *     grow:MIB        hold so much memory
 *     keep:MIB        hold so much memory for as long as the process lives
 *     hog             take memory without end, PHP's own limit off
 *     code            note what code.txt said when this worker's application was booted
 *     env:NAME        note an environment variable
 *     context:KEY     note what the Context says
 *     after:ID        dispatch a job after the commit of a transaction
 *     never:ID        the same, and roll back
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

    public $failOnTimeout;

    /** What failed() does besides: an action. */
    public $whenFailed;

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
        if ($this->whenFailed !== null) {
            [$verb, $argument] = explode(':', $this->whenFailed, 2) + [1 => null];
            $this->{'do'.ucfirst($verb)}($argument);
        }
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

    private function doError()
    {
        throw new \Error("$this->id attempt {$this->attempts()}");
    }

    private function doSleep($seconds)
    {
        sleep((int) $seconds);
    }

    private function doLoop()
    {
        while (1) {
        }
    }

    private function doSocket()
    {
        [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        stream_set_timeout($ours, 120);
        fread($ours, 1);
        fwrite($theirs, '');
    }

    private function doLock($file)
    {
        $pdo = new \PDO("sqlite:$file", null, null, [\PDO::ATTR_TIMEOUT => 120]);
        $pdo->exec('begin immediate');
    }

    private function doDeaf()
    {
        $libc = \FFI::cdef('int sigfillset(unsigned long *); int sigprocmask(int, unsigned long *, void *);', 'libc.so.6');
        $set = $libc->new('unsigned long[16]');
        $libc->sigfillset($set);
        $libc->sigprocmask(0, $set, null);
        $this->doLoop();
    }

    private function doStop()
    {
        posix_kill(getmypid(), 19);
        $this->doSleep(120);
    }

    private function doChildren($file)
    {
        $pids = [];
        for ($i = 0; $i < 3; $i++) {
            $process = proc_open(['sleep', '120'], [], $pipes);
            $pids[] = proc_get_status($process)['pid'];
        }
        file_put_contents($file, implode("\n", $pids)."\n");
        $this->doSleep(120);
    }

    private function doTransaction()
    {
        DB::beginTransaction();
        $this->doWrite();
    }

    private function doSegfault()
    {
        $at = \FFI::cast('char *', 8);
        $at[0] = 'x';
    }

    private function doHeap()
    {
        $libc = \FFI::cdef('void *malloc(size_t); void free(void *);', 'libc.so.6');
        $block = \FFI::cast('char *', $libc->malloc(64));
        for ($i = -16; $i < 0; $i++) {
            $block[$i] = "\xff";
        }
        $libc->free($block);
    }

    private function doGrow($mebibytes)
    {
        ini_set('memory_limit', '-1');
        $held = str_repeat('x', (int) $mebibytes << 20);
        note('grown', $this->id, strlen($held) >> 20);
    }

    private function doKeep($mebibytes)
    {
        static $kept = [];
        ini_set('memory_limit', '-1');
        $kept[] = str_repeat('x', (int) $mebibytes << 20);
    }

    private function doEnv($name)
    {
        note('env', (string) (env($name) ?? 'none'), $this->attempts());
    }

    private function doHog()
    {
        ini_set('memory_limit', '-1');
        for ($held = [];;) {
            $held[] = str_repeat('x', 1 << 20);
            usleep(1000);
        }
    }

    private function doCode()
    {
        note('code', app('e2e.code'), $this->attempts());
    }

    private function doContext($key)
    {
        note('context', (string) (\Illuminate\Support\Facades\Context::get($key) ?? 'none'), $this->attempts());
    }

    private function doAfter($id)
    {
        DB::transaction(function () use ($id) {
            dispatch(new self($id))->afterCommit();
            note('open', $id, app('queue')->size() - 1); // Besides the job that runs.
        });
    }

    private function doNever($id)
    {
        DB::beginTransaction();
        dispatch(new self($id))->afterCommit();
        DB::rollBack();
    }
}
