<?php

declare(strict_types=1);

namespace Cohort\Bench;

/** The rows: what each does in a round, and what it makes of the rounds. */
final class Rows
{
    /** name => [what it is, unit, sense, goal] */
    public const ALL = [
        'handover' => ['CPU of both sides per empty plain-PHP job, saturated', 'us', '<=', 8.0],
        'empty_sqlite' => ['empty Laravel jobs, 8 workers each, ours over queue:work', 'x', '>=', 30.0],
        'cpu_bound' => ['20 ms of CPU a job, 2 workers each, ours over queue:work', 'x', '>=', 1.0],
        'pickup' => ['commit to begin with idle workers, p99', 'ms', '<=', 25.0],
        'respawn' => ['SIGKILL to all workers idle again, p95', 'ms', '<=', 20.0],
        'memory' => ['private memory a Laravel worker', 'MiB', '<=', 1.5],
        'agent_rss' => ["the agent's RSS without shared memory", 'MiB', '<=', 12.0],
        'retry_punctual' => ['a retry after backoff 1 s: lateness, worst', 'ms', '<=', 100.0],
        'cpu_per_job' => ["agent's and source's CPU per empty job", 'us', '<=', 15.0],
    ];

    /** @var list<array<string, Drain>>|null rounds of empty jobs, shared by two rows */
    private ?array $empty = null;
    /** @var array{memory: Result, agent_rss: Result}|null */
    private ?array $loaded = null;

    /** @param callable(string): void $say */
    public function __construct(
        private readonly Lab $lab,
        private readonly bool $quick,
        private readonly int $rounds,
        private $say,
    ) {
    }

    public function run(string $name): Result
    {
        return match ($name) {
            'handover' => $this->handover(),
            'empty_sqlite' => $this->emptySqlite(),
            'cpu_bound' => $this->cpuBound(),
            'pickup' => $this->pickup(),
            'respawn' => $this->respawn(),
            'memory' => $this->loaded()['memory'],
            'agent_rss' => $this->loaded()['agent_rss'],
            'retry_punctual' => $this->retryPunctual(),
            'cpu_per_job' => $this->cpuPerJob(),
        };
    }

    private function handover(): Result
    {
        $result = new Result();
        $payload = '{"uuid":"","job":"cohort","data":null}';
        for ($round = 0; $round < $this->rounds; $round++) {
            $drain = $this->with(
                new CohortArm($this->lab, Machine::cores(), plain: true),
                fn (Arm $arm): Drain => Drain::measure($arm, $payload, $this->quick ? 1 : 4, 500),
            );
            $result->runs[] = $drain->cost('main', 'workers');
            $result->part('agent', 'us', $drain->cost('main'));
            $result->part('worker', 'us', $drain->cost('workers'));
            $result->part('source thread, not counted', 'us', $drain->cost('source'));
            $result->part('throughput', 'jobs/s', $drain->rate());
            $this->round($round, 'Cohort', sprintf('%.1f us a job, %d jobs', end($result->runs), $drain->jobs));
        }
        return $result;
    }

    private function emptySqlite(): Result
    {
        $result = new Result();
        $alone = [];
        foreach ($this->emptyRounds() as $arms) {
            $alone[] = $arms['cohort']->rate() / $arms['stock1']->rate();
            $result->runs[] = $arms['cohort']->rate() / $arms['stock8']->rate();
            $result->part('Cohort x8', 'jobs/s', $arms['cohort']->rate());
            $result->peer('queue:work x8', 'jobs/s', $arms['stock8']->rate());
            // On SQLite eight stock workers mostly hinder each other; one alone is the stronger peer.
            $result->peer('queue:work x1', 'jobs/s', $arms['stock1']->rate());
            $this->noteLost($result, $arms);
        }
        // The gate keeps the ratio to one stock worker: that of eight jumps with their lock errors.
        $result->ratio = Result::median($alone);
        return $result;
    }

    private function cpuPerJob(): Result
    {
        $result = new Result();
        $ratios = [];
        foreach ($this->emptyRounds() as $arms) {
            $ours = $arms['cohort'];
            $result->runs[] = $ours->cost('main', 'source');
            $result->part('loop', 'us', $ours->cost('main'));
            $result->part('source thread', 'us', $ours->cost('source'));
            $result->part('PHP', 'us', $ours->cost('workers'));
            $result->peer('queue:work x8, all of it', 'us', $arms['stock8']->cost('workers'));
            $result->peer('queue:work x1, all of it', 'us', $arms['stock1']->cost('workers'));
            $ratios[] = $arms['stock1']->cost('workers') / max(0.1, $ours->cost('main', 'source', 'workers'));
            $this->noteLost($result, $arms);
        }
        $result->ratio = Result::median($ratios);
        return $result;
    }

    private function cpuBound(): Result
    {
        $result = new Result();
        $payload = $this->lab->payload('work', (string) $this->calibrate(20));
        $measure = fn (Arm $arm): Drain => Drain::measure($arm, $payload, $this->quick ? 1.5 : 5, 40);
        foreach ($this->alternate([
            'cohort' => fn (): Drain => $this->with(new CohortArm($this->lab, 2), $measure),
            'stock' => fn (): Drain => $this->with(new StockArm($this->lab, 2, '0.1'), $measure),
        ]) as $arms) {
            $result->runs[] = $arms['cohort']->rate() / $arms['stock']->rate();
            $result->part('Cohort x2', 'jobs/s', $arms['cohort']->rate());
            $result->peer('queue:work x2', 'jobs/s', $arms['stock']->rate());
            $this->noteLost($result, $arms);
        }
        $result->ratio = $result->value();
        return $result;
    }

    private function pickup(): Result
    {
        $result = new Result();
        $file = $this->lab->dir . '/stamps';
        $payload = $this->lab->payload('stamp', '0', $file);
        $arms = ['cohort' => fn (): array => $this->with(new CohortArm($this->lab, 4),
            fn (Arm $arm): array => $this->pickups($arm, $payload, $file, $this->quick ? 60 : 200, [25, 60]))];
        if (!$this->quick) {
            $arms['stock'] = fn (): array => $this->with(new StockArm($this->lab, 4, '3'),
                fn (Arm $arm): array => $this->pickups($arm, $payload, $file, 12, [500, 2500]));
        }
        $result->peer('queue:work x4 (its default --sleep=3)', 'ms');
        foreach ($this->alternate($arms) as $waits) {
            $result->runs[] = Result::quantile($waits['cohort'], 0.99);
            $result->part('median', 'ms', Result::median($waits['cohort']));
            $result->sample('Cohort x4', ...$waits['cohort']);
            if (isset($waits['stock'])) {
                $result->peer('queue:work x4 (its default --sleep=3)', 'ms', Result::quantile($waits['stock'], 0.99));
                $result->sample('queue:work x4', ...$waits['stock']);
            }
        }
        return $result;
    }

    private function respawn(): Result
    {
        $result = new Result();
        $file = $this->lab->dir . '/stamps';
        $empty = $this->lab->payload('empty');
        $stamp = $this->lab->payload('stamp', '0', $file);
        foreach ($this->alternate([
            'cohort' => fn (): array => $this->with(new CohortArm($this->lab, 4), fn (CohortArm $arm): array => $this->kills($arm, $empty)),
            'stock' => fn (): array => $this->with(new StockArm($this->lab, 1, '0.1'), fn (StockArm $arm): array => $this->restarts($arm, $stamp, $file)),
        ]) as $times) {
            $result->runs[] = Result::quantile($times['cohort'], 0.95);
            $result->part('median', 'ms', Result::median($times['cohort']));
            $result->sample('Cohort x4', ...$times['cohort']);
            $result->peer('queue:work, started again at once: to its first job', 'ms', Result::quantile($times['stock'], 0.95));
            $result->sample('queue:work', ...$times['stock']);
        }
        $result->ratio = Result::median(array_merge(...array_column($result->peers, 'runs'))) / max(0.1, $result->value());
        return $result;
    }

    /** @return array{memory: Result, agent_rss: Result} */
    private function loaded(): array
    {
        if ($this->loaded !== null) {
            return $this->loaded;
        }
        [$workers, $each, $stockEach] = $this->quick ? [16, 100, 25] : [64, 1000, 100];
        $peer = "queue:work x4, {$stockEach} jobs each";
        $memory = new Result();
        $agent = new Result();
        // The nap keeps all workers in turn: two CPUs could not keep 64 busy without.
        $payload = $this->lab->payload('query', $this->quick ? '5000' : '20000');
        foreach ($this->alternate([
            'cohort' => fn (): array => $this->with(new CohortArm($this->lab, $workers), fn (CohortArm $arm): array => $this->load($arm, $payload, $each)),
            'stock' => fn (): array => $this->with(new StockArm($this->lab, 4, '0.1'), fn (StockArm $arm): array => $this->loadStock($arm, $payload, $stockEach)),
        ]) as $found) {
            [$private, $zygote, $rss, $least] = $found['cohort'];
            $memory->runs[] = $private;
            $memory->part('zygote, one a pool', 'MiB', $zygote);
            $memory->part('jobs of the least busy worker', 'jobs', $least);
            $memory->peer($peer, 'MiB', ...$found['stock']);
            $agent->runs[] = $rss;
        }
        if ($this->quick) {
            $memory->note("{$workers} workers and {$each} jobs each, not 64 and 1,000");
            $agent->note("{$workers} workers, not 64");
        }
        $memory->ratio = Result::median($memory->peers[$peer]['runs']) / $memory->value();
        return $this->loaded = ['memory' => $memory, 'agent_rss' => $agent];
    }

    private function retryPunctual(): Result
    {
        $result = new Result();
        $file = $this->lab->dir . '/stamps';
        $payload = $this->lab->payload('retry', '0', $file);
        $arms = ['cohort' => fn (): array => $this->with(new CohortArm($this->lab, 4),
            fn (Arm $arm): array => $this->retries($arm, $payload, $file, $this->quick ? 15 : 30))];
        if (!$this->quick) {
            $arms['stock'] = fn (): array => $this->with(new StockArm($this->lab, 4, '3'),
                fn (Arm $arm): array => $this->retries($arm, $payload, $file, 10));
        }
        $result->peer('queue:work x4 (its default --sleep=3)', 'ms');
        foreach ($this->alternate($arms) as $late) {
            $result->runs[] = max($late['cohort']);
            $result->part('median', 'ms', Result::median($late['cohort']));
            $result->sample('Cohort x4', ...$late['cohort']);
            if (isset($late['stock'])) {
                $result->peer('queue:work x4 (its default --sleep=3)', 'ms', max($late['stock']));
                $result->sample('queue:work x4', ...$late['stock']);
            }
        }
        return $result;
    }

    // ---- what is done in a round

    /** @return list<array<string, Drain>> */
    private function emptyRounds(): array
    {
        if ($this->empty === null) {
            $payload = $this->lab->payload('empty');
            $measure = fn (Arm $arm): Drain => Drain::measure($arm, $payload, $this->quick ? 1 : 4);
            $arms = [
                'cohort' => fn (): Drain => $this->with(new CohortArm($this->lab, 8), $measure),
                'stock8' => fn (): Drain => $this->with(new StockArm($this->lab, 8, '0.1'), $measure),
                'stock1' => fn (): Drain => $this->with(new StockArm($this->lab, 1, '0.1'), $measure),
            ];
            $this->empty = $this->alternate($arms);
        }
        return $this->empty;
    }

    /** @param array{int, int} $spacing ms between dispatches @return list<float> ms from commit to begin */
    private function pickups(Arm $arm, string $payload, string $file, int $count, array $spacing): array
    {
        $warm = 4;
        $pushed = [];
        self::clear($file);
        for ($n = 0; $n < $warm + $count; $n++) {
            if ($n === $warm) {
                $arm->verify();
            }
            [$id, $at] = $arm->queue->push($payload);
            $pushed[$id] = [$n >= $warm, $at];
            $began = static fn (): bool => substr_count((string) @file_get_contents($file), "\n") > $n;
            if (!Lab::until($began, 30)) {
                throw new Failure("{$arm->name()}: job {$id} did not begin within 30 s");
            }
            usleep(random_int($spacing[0] * 1000, $spacing[1] * 1000));
        }
        $waits = [];
        foreach (self::stamps($file) as [$id, , $time]) {
            [$counts, $at] = $pushed[$id];
            if ($counts) {
                $waits[] = ($time - $at) * 1000;
            }
        }
        return $waits;
    }

    /** @return list<float> ms from SIGKILL until the replacement is there and all workers are idle */
    private function kills(CohortArm $arm, string $payload): array
    {
        // Jobs done keep the circuit closed: it opens when more workers die than jobs are done.
        Drain::once($arm, $payload, 500);
        $times = [];
        for ($n = 0; $n < ($this->quick ? 8 : 20); $n++) {
            if (!Lab::until(static fn (): bool => $arm->idle() === $arm->workers, 10)) {
                throw new Failure("{$arm->name()}: not all workers were idle again within 10 s of kill {$n}");
            }
            $arm->verify();
            $victim = $arm->workerList()[$n % $arm->workers]['pid'];
            $before = Proc::children($arm->agentPid());
            $at = hrtime(true);
            posix_kill($victim, SIGKILL);
            $replaced = static fn (): bool => array_diff(Proc::children($arm->agentPid()), $before) !== [];
            if (!Lab::until($replaced, 10, 100) || !Lab::until(static fn (): bool => $arm->idle() === $arm->workers, 10, 100)) {
                throw new Failure("{$arm->name()}: worker {$victim} was not replaced within 10 s of its SIGKILL");
            }
            $times[] = (hrtime(true) - $at) / 1e6;
        }
        return $times;
    }

    /** @return list<float> ms from SIGKILL until the next process begins a job */
    private function restarts(StockArm $arm, string $payload, string $file): array
    {
        $times = [];
        for ($n = 0; $n < ($this->quick ? 3 : 10); $n++) {
            $arm->verify();
            self::clear($file);
            $at = $arm->replace();
            $arm->queue->push($payload);
            if (!Lab::until(static fn (): bool => self::stamps($file) !== [], 30)) {
                throw new Failure("{$arm->name()}: the process started after a kill began no job within 30 s");
            }
            $times[] = (self::stamps($file)[0][2] - $at) * 1000;
        }
        return $times;
    }

    /** @return array{float, float, float, int} private MiB a worker, of the zygote, the agent's RSS, least jobs */
    private function load(CohortArm $arm, string $payload, int $each): array
    {
        Drain::once($arm, $payload, $arm->workers * $each);
        $arm->verify();
        $workers = $arm->workerList();
        $private = array_map(static fn (array $worker): int => Proc::privateBytes($worker['pid']), $workers);
        $zygote = 0;
        foreach (Proc::children($arm->agentPid()) as $pid) {
            $zygote += Proc::name($pid) === 'cohort-zygote' ? Proc::privateBytes($pid) : 0;
        }
        if (count($workers) !== $arm->workers || min($private) === 0 || $zygote === 0) {
            throw new Failure("{$arm->name()}: smaps_rollup of a worker or of the zygote cannot be read");
        }
        return [array_sum($private) / count($private) / 1048576, $zygote / 1048576,
            Proc::residentBytes($arm->agentPid()) / 1048576, min(array_column($workers, 'jobs_done'))];
    }

    /** @return list<float> private MiB a stock worker */
    private function loadStock(StockArm $arm, string $payload, int $each): array
    {
        Drain::once($arm, $payload, $arm->workers * $each);
        $arm->verify();
        $private = array_map(Proc::privateBytes(...), $arm->pids());
        return [array_sum($private) / count($private) / 1048576];
    }

    /** @return list<float> ms from the whole second a retry was due at to its begin */
    private function retries(Arm $arm, string $payload, string $file, int $count): array
    {
        self::clear($file);
        $arm->verify();
        for ($n = 0; $n < $count; $n++) {
            $arm->queue->push($payload);
            usleep(random_int(20_000, 80_000));
        }
        $due = [];
        $all = static function () use ($arm, $file, $count, &$due): bool {
            $due += $arm->queue->due();
            return substr_count((string) @file_get_contents($file), "\n") === 2 * $count;
        };
        if (!Lab::until($all, 60)) {
            throw new Failure("{$arm->name()}: of {$count} jobs not all had their second attempt within 60 s");
        }
        // Laravel releases into a new row. One that waited for less than two looks began in its second.
        $late = [];
        foreach (self::stamps($file) as [$id, $attempt, $time]) {
            if ($attempt === 2) {
                $late[] = ($time - ($due[$id] ?? floor($time))) * 1000;
            }
        }
        return $late;
    }

    // ---- helpers

    /** @template T @param callable(Arm): T $measure @return T */
    private function with(Arm $arm, callable $measure): mixed
    {
        try {
            $arm->start();
            return $measure($arm);
        } finally {
            $arm->stop();
        }
    }

    /**
     * Rounds of all arms, each round beginning with another one.
     *
     * @param array<string, callable> $arms
     * @return list<array<string, mixed>>
     */
    private function alternate(array $arms): array
    {
        $rounds = [];
        for ($round = 0; $round < $this->rounds; $round++) {
            $names = array_keys($arms);
            $shift = $round % count($names);
            foreach (array_merge(array_slice($names, $shift), array_slice($names, 0, $shift)) as $name) {
                $rounds[$round][$name] = $arms[$name]();
                $this->round($round, $name, self::brief($rounds[$round][$name]));
            }
        }
        return $rounds;
    }

    private function round(int $round, string $arm, string $text): void
    {
        ($this->say)(sprintf('  round %d  %-8s %s', $round + 1, $arm, $text));
    }

    private static function brief(mixed $found): string
    {
        if ($found instanceof Drain) {
            return sprintf('%.1f jobs/s (%d jobs in %.2f s, %.0f us of CPU each%s)', $found->rate(), $found->jobs,
                $found->seconds, $found->cost('main', 'source', 'workers'), $found->lost ? ", {$found->lost} lost to locks" : '');
        }
        if (count($found) > 4) {
            return sprintf('%d times: median %.2f, p95 %.2f, max %.2f', count($found), Result::median($found),
                Result::quantile($found, 0.95), max($found));
        }
        return implode('  ', array_map(static fn (float $value): string => sprintf('%.2f', $value), $found));
    }

    /** @param array<string, Drain> $arms */
    private function noteLost(Result $result, array $arms): void
    {
        foreach ($arms as $drain) {
            if ($drain->lost > 0) {
                $result->note('queue:work left some jobs reserved or failed ("database is locked"); they are not in its figures');
            }
        }
    }

    /** How many rounds of bench_work() are this much CPU time in plain `php`. */
    private function calibrate(int $ms): int
    {
        require_once __DIR__ . '/../app/work.php';
        $rounds = 500;
        bench_work($rounds);
        $best = INF;
        for ($try = 0; $try < 5; $try++) {
            $begin = hrtime(true);
            bench_work($rounds);
            $best = min($best, (hrtime(true) - $begin) / 1e6);
        }
        return (int) ($rounds * $ms / $best);
    }

    /** @return list<array{int, int, float}> id, attempt, time */
    private static function stamps(string $file): array
    {
        $stamps = [];
        foreach (file($file, FILE_IGNORE_NEW_LINES | FILE_SKIP_EMPTY_LINES) ?: [] as $line) {
            [$id, $attempt, $time] = explode(' ', $line);
            $stamps[] = [(int) $id, (int) $attempt, (float) $time];
        }
        return $stamps;
    }

    private static function clear(string $file): void
    {
        file_put_contents($file, '');
    }
}
