<?php

namespace App\Jobs;

use Cohort\Fake\Wire;
use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Queue\InteractsWithQueue;

/** Does what its first argument says. */
class Act implements ShouldQueue
{
    use InteractsWithQueue;
    use Queueable;

    public $tries;
    public $timeout;
    public $backoff;
    public $maxExceptions;
    public $failOnTimeout = false;
    public $retryUntil;
    /** Middleware: [class, arguments, method to call on it, …]. */
    public $through = [];
    /** What failed() does: 'throw', 'hang'. */
    public $onFailed = '';

    public function __construct(public string $what, public mixed $how = null)
    {
    }

    public function middleware()
    {
        return array_map(function ($one) {
            [$class, $arguments, $calls] = $one + [1 => [], 2 => []];
            $middleware = new ("Illuminate\\Queue\\Middleware\\{$class}")(...$arguments);
            foreach ($calls as $method => $argument) {
                $argument === null ? $middleware->{$method}() : $middleware->{$method}($argument);
            }
            return $middleware;
        }, $this->through);
    }

    public function retryUntil()
    {
        return $this->retryUntil;
    }

    public function handle()
    {
        Wire::record('ran', $this->what, $this->attempts());
        $db = app('db')->connection();
        match ($this->what) {
            'nothing' => null,
            'throw' => throw new \DomainException('told to'),
            'release' => $this->release($this->how ?? 0),
            'release_later' => $this->release(now()->addSeconds(30)),
            'release_throw' => [$this->release(7), throw new \DomainException('after release')],
            'fail' => $this->fail(new \DomainException('failed by hand')),
            'delete' => $this->delete(),
            'delete_throw' => [$this->delete(), throw new \DomainException('after delete')],
            'delete_release' => [$this->delete(), $this->release(5)],
            'exit' => exit(0),
            'oom' => str_repeat('x', 1 << 40),
            'hang' => $this->hang(),
            'hang_in_transaction' => [$db->beginTransaction(), $this->probe('cut off'), $this->hang()],
            'leak_transaction' => [$db->beginTransaction(), $this->probe('leaked')],
            'leak_and_throw' => [$db->beginTransaction(), $this->probe('leaked'), throw new \DomainException('leak')],
            'leak_and_fail' => [$db->beginTransaction(), $this->fail(new \DomainException('leak and fail'))],
            'write' => $this->probe('written'),
            'level' => Wire::record('level', $db->transactionLevel()),
            'lost' => throw new \PDOException('server has gone away'),
            'grow' => $GLOBALS['grown'] = str_repeat('x', 40 << 20),
            'scoped' => Wire::record('scoped', app('scoped')['id']),
            'pdo' => [$db->select('select 1'), Wire::record('same_pdo', $db->getPdo() === ($GLOBALS['boot_pdo'] ?? null))],
            'fail_retried' => [$this->forgetAfterClash(), throw new \DomainException('again')],
            'batch_race' => $this->raceForBatch(),
            'release_hang' => [$this->release($this->how), $this->hang()],
            'delete_hang' => [$this->delete(), $this->hang()],
            'dispatch' => $this->dispatchInTransaction($this->how),
            'context' => Wire::record('context', \Illuminate\Support\Facades\Context::all()),
            'about' => Wire::record('about', get_class($this->job), $this->job->getJobId(), $this->job->attempts(),
                $this->job->getRawBody(), $this->job->getReservedJob()),
            'stop' => Wire::stop(),
            'term' => [posix_kill(getmypid(), SIGTERM), posix_kill(getmypid(), SIGUSR2)],
        };
    }

    public function failed($e)
    {
        Wire::record('failed_called', get_class($e), $e->getMessage());
        if (class_exists(\Illuminate\Support\Facades\Context::class)) {
            Wire::record('failed_context', \Illuminate\Support\Facades\Context::all());
        }
        match ($this->onFailed) {
            'throw' => throw new \LogicException('failed() has failed'),
            'hang' => $this->hang(),
            default => null,
        };
    }

    private function probe($text)
    {
        app('db')->table('probe')->insert(['text' => $text]);
    }

    /** Dispatch in a transaction that ends in this way: 'commit', 'rollBack', or never. */
    private function dispatchInTransaction($end)
    {
        $db = app('db')->connection();
        $db->beginTransaction();
        dispatch((new self('nothing'))->onQueue('later')->afterCommit());
        Wire::record('rows', $db->table('jobs')->where('queue', 'later')->count());
        $end === null || $db->{$end}();
        Wire::record('rows', $db->table('jobs')->where('queue', 'later')->count());
    }

    /** Count a job of a batch while somebody else writes between its read and its write. */
    private function raceForBatch()
    {
        $db = app('db')->connection();
        $other = new \PDO('sqlite:' . $db->getConfig('database'));
        $races = 2;
        $db->listen(function ($query) use ($other, &$races) {
            if (str_contains($query->sql, 'job_batches') && str_starts_with($query->sql, 'select') && $races-- > 0) {
                $other->exec("insert into probe (text) values ('race')");
            }
        });
        app(\Illuminate\Bus\BatchRepository::class)->decrementPendingJobs('b1', 'j1');
    }

    /** Be the queue:retry that forgets a record only after the job could not write its new one. */
    private function forgetAfterClash()
    {
        app()->extend('queue.failer', fn ($own) => new class ($own) {
            public function __construct(private $own)
            {
            }

            public function log(...$arguments)
            {
                try {
                    return $this->own->log(...$arguments);
                } catch (\Throwable $error) {
                    app('db')->table('failed_jobs')->delete();
                    Wire::record('forgotten');
                    throw $error;
                }
            }
        });
    }

    /** Long enough for any alarm, in turns short enough to be interrupted. */
    private function hang()
    {
        for ($until = hrtime(true) + 20e9; hrtime(true) < $until;) {
            usleep(1000);
        }
    }
}
