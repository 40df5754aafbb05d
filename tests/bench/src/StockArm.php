<?php

declare(strict_types=1);

namespace Cohort\Bench;

/** Laravel's own workers: N times `php artisan queue:work`. */
final class StockArm extends Arm
{
    /** @var list<int> */
    private array $pids = [];

    /** @param string $sleep --sleep: Laravel's default is 3 */
    public function __construct(Lab $lab, int $workers, private readonly string $sleep)
    {
        parent::__construct($lab, $workers);
    }

    public function name(): string
    {
        return "queue:work x{$this->workers}";
    }

    public function start(): void
    {
        $this->newLog('queue-work');
        $this->queue = new Queue($this->lab->freshDatabase(), 'default');
        $this->pids = [];
        for ($n = 0; $n < $this->workers; $n++) {
            $this->pids[] = $this->spawn();
        }
        $this->awaitReady();
    }

    /** One more worker, as a supervisor would start it. */
    public function spawn(): int
    {
        $app = $this->lab->laravel();
        return $this->lab->start([PHP_BINARY, 'artisan', 'queue:work', '--quiet', "--sleep={$this->sleep}"], $this->log, $app);
    }

    /** Kill a worker and start another at once. @return float when it was killed */
    public function replace(): float
    {
        $old = array_shift($this->pids);
        $at = microtime(true);
        posix_kill($old, SIGKILL);
        $this->lab->reap($old);
        $this->pids[] = $this->spawn();
        return $at;
    }

    public function awaitReady(): void
    {
        // A worker that has asked for a job once has the database open. Before its exec it has ours.
        $open = fn (int $pid): bool => in_array('queue:work', Proc::arguments($pid), true)
            && in_array($this->queue->path, Proc::files($pid), true);
        if (!Lab::until(fn (): bool => count(array_filter($this->pids, $open)) === $this->workers, 60, 10_000)) {
            $this->fail("not all {$this->workers} workers were ready within 60 s");
        }
    }

    /** @return list<int> */
    public function pids(): array
    {
        return $this->pids;
    }

    protected function roots(): array
    {
        return $this->pids;
    }

    protected function identify(): void
    {
        foreach ($this->pids as $pid) {
            $this->requireExe($pid, PHP_BINARY);
            if (!in_array('queue:work', Proc::arguments($pid), true) || !in_array("--sleep={$this->sleep}", Proc::arguments($pid), true)) {
                $this->fail("pid {$pid} is " . implode(' ', Proc::arguments($pid)));
            }
        }
    }

    public function cpu(): array
    {
        $workers = 0.0;
        foreach ($this->pids as $pid) {
            $workers += array_sum(Proc::cpu($pid));
        }
        return ['main' => 0.0, 'source' => 0.0, 'workers' => $workers];
    }

    public function done(): ?int
    {
        return null;
    }

    public function stop(): void
    {
        $this->lab->stop($this->pids, 5);
        $this->pids = [];
    }
}
