<?php

declare(strict_types=1);

namespace Cohort\Bench;

/** A server under test: started fresh, identified before each window, stopped. */
abstract class Arm
{
    public Queue $queue;
    protected string $log = '';

    public function __construct(protected readonly Lab $lab, public readonly int $workers)
    {
    }

    /** What it is called in the results. */
    abstract public function name(): string;

    /** Start it on a fresh database and wait until all its workers are ready. */
    abstract public function start(): void;

    /** @return list<int> the processes this arm started itself */
    abstract protected function roots(): array;

    /** Check pid, executable and listener of what is about to be measured. */
    abstract protected function identify(): void;

    /** @return array{main: float, source: float, workers: float} CPU seconds so far, children included */
    abstract public function cpu(): array;

    abstract public function stop(): void;

    /** How many jobs it says it has done; null when it does not say. */
    abstract public function done(): ?int;

    /** @throws Failure what would be measured is not, or not only, this arm */
    public function verify(): void
    {
        $this->identify();
        $ours = [getmypid()];
        foreach ($this->roots() as $root) {
            array_push($ours, $root, ...Proc::descendants($root));
        }
        $others = array_diff(Proc::openers($this->queue->path), $ours);
        if ($others !== []) {
            throw new Failure("{$this->name()}: processes " . implode(', ', $others) . ' also have '
                . "{$this->queue->path} open. Stop them: they would do part of the work.");
        }
    }

    /** Send a signal to all that takes jobs from the queue. */
    public function signal(int $signal): void
    {
        foreach ($this->roots() as $pid) {
            posix_kill($pid, $signal);
        }
    }

    /** @throws Failure with the last words of its log */
    protected function fail(string $what): never
    {
        $lines = array_slice(file($this->log) ?: [], -12);
        throw new Failure("{$this->name()}: {$what}. The end of {$this->log}:\n" . implode('', $lines));
    }

    protected function newLog(string $name): void
    {
        $this->log = "{$this->lab->logs}/{$name}.log";
        file_put_contents($this->log, '');
    }

    protected function requireExe(int $pid, string $exe): void
    {
        if (!Proc::alive($pid)) {
            $this->fail("pid {$pid} has ended");
        }
        if (Proc::exe($pid) !== realpath($exe)) {
            $this->fail("pid {$pid} runs " . Proc::exe($pid) . " and not {$exe}");
        }
    }
}
