<?php

declare(strict_types=1);

namespace Cohort\Bench;

/** Working off a backlog: how fast, and at what cost. */
final class Drain
{
    private const POLL_US = 5000;
    private const STUCK_SECONDS = 1.0;
    private const DEADLINE_SECONDS = 120.0;
    private const WARM_SECONDS = 0.3;
    private const JOBS_MAX = 200_000;

    /**
     * @param array{main: float, source: float, workers: float} $cpu   seconds
     * @param int                                               $lost jobs that stock workers left reserved or failed
     */
    private function __construct(
        public readonly int $jobs,
        public readonly float $seconds,
        public readonly array $cpu,
        public readonly int $lost,
    ) {
    }

    /**
     * Warm the arm up with growing backlogs, then measure one that lasts about $seconds.
     */
    public static function measure(Arm $arm, string $payload, float $seconds, int $first = 40): self
    {
        for ($jobs = $first;; $jobs *= 4) {
            $warm = self::once($arm, $payload, $jobs);
            if ($warm->seconds >= self::WARM_SECONDS || $jobs * 4 > self::JOBS_MAX) {
                break;
            }
        }
        $jobs = (int) min(self::JOBS_MAX, max($first, $warm->rate() * $seconds));
        $arm->verify();
        return self::once($arm, $payload, $jobs);
    }

    /**
     * Work off exactly this backlog. The arm stands still while it is written, and goes on at the
     * begin of the window.
     */
    public static function once(Arm $arm, string $payload, int $jobs): self
    {
        $queue = $arm->queue;
        $done = $arm->done();
        try {
            $queue->fill($payload, $jobs, static fn () => $arm->signal(SIGSTOP));
            $before = $arm->cpu();
        } finally {
            $begin = microtime(true);
            $arm->signal(SIGCONT);
        }
        if (!Lab::until(static fn (): bool => !$queue->waiting(), self::DEADLINE_SECONDS, self::POLL_US)) {
            throw new Failure("{$arm->name()}: {$queue->left()} of {$jobs} jobs are left after "
                . self::DEADLINE_SECONDS . ' s; see the logs beside the build');
        }
        [$end, $stuck, $cpu] = self::last($arm, $queue);
        $lost = $stuck + $queue->failed();
        if ($lost > 0 && $arm instanceof CohortArm) {
            throw new Failure("{$arm->name()}: of {$jobs} jobs {$stuck} stay reserved and {$queue->failed()} failed; none should");
        }
        // An empty table alone may as well be one whose rows were put aside.
        if ($done !== null && $arm->done() - $done !== $jobs) {
            throw new Failure("{$arm->name()}: {$jobs} jobs are gone, and it says it did " . ($arm->done() - $done));
        }
        $queue->clear();
        foreach ($cpu as $what => $value) {
            $cpu[$what] = max(0.0, $value - $before[$what]);
        }
        return new self($jobs, $end - $begin, $cpu, $lost);
    }

    /** Jobs a second. */
    public function rate(): float
    {
        return ($this->jobs - $this->lost) / $this->seconds;
    }

    /** Microseconds of CPU a job. */
    public function cost(string ...$whats): float
    {
        $sum = array_sum(array_map(fn (string $what): float => $this->cpu[$what], $whats));
        return $sum * 1e6 / max(1, $this->jobs - $this->lost);
    }

    /**
     * The last jobs are taken: wait until they are gone, or nothing moves any more.
     *
     * @return array{float, int, array} the moment the last one went, how many are left, the CPU then
     */
    private static function last(Arm $arm, Queue $queue): array
    {
        $left = PHP_INT_MAX;
        do {
            $now = $queue->left();
            if ($now !== $left) {
                [$left, $end, $cpu] = [$now, microtime(true), $arm->cpu()];
            }
            usleep($left === 0 ? 0 : 1000);
        } while ($left > 0 && microtime(true) - $end < self::STUCK_SECONDS);
        return [$end, $left, $cpu];
    }
}
