<?php

declare(strict_types=1);

namespace Cohort\Bench;

/** cohortd on the Laravel application, or on the plain PHP one. */
final class CohortArm extends Arm
{
    private int $pid = 0;
    private int $port = 0;
    private string $runDir = '';

    public function __construct(Lab $lab, int $workers, private readonly bool $plain = false)
    {
        parent::__construct($lab, $workers);
    }

    public function name(): string
    {
        return "Cohort x{$this->workers}";
    }

    public function start(): void
    {
        $this->newLog('cohort');
        $this->port = Lab::freePort();
        $this->runDir = $this->lab->freshDir('run');
        $state = $this->plain ? $this->lab->freshDir('plain') : $this->lab->freshDir('state');
        $app = $this->plain ? dirname(__DIR__) . '/plain' : $this->lab->laravel();
        $path = $this->plain ? "{$state}/queue.db" : $this->lab->freshDatabase();
        $this->pid = $this->lab->start(["{$this->lab->bin}/cohortd", '--app', $app, '--queue', 'default',
            '--workers', (string) $this->workers, '--run-dir', $this->runDir, '--state-dir', $state,
            '--http', "127.0.0.1:{$this->port}", '--log-format', 'text'], $this->log, '/');
        $ready = fn (): bool => $this->saysReady() && $this->idle() === $this->workers;
        Lab::until(fn (): bool => !Proc::alive($this->pid) || $ready(), 60, 10_000);
        if (!$ready()) {
            $this->fail('the agent was not ready with all workers within 60 s');
        }
        $this->queue = new Queue($path, 'default');
    }

    protected function roots(): array
    {
        return [$this->pid];
    }

    protected function identify(): void
    {
        $this->requireExe($this->pid, "{$this->lab->bin}/cohortd");
        if (!Proc::listens($this->pid, $this->port)) {
            $this->fail("pid {$this->pid} does not listen on 127.0.0.1:{$this->port}");
        }
        if (!$this->saysReady()) {
            $this->fail('its log does not say ready');
        }
        $wanted = $this->metric('cohort_workers_wanted{pool="jobs"}');
        if ($wanted !== $this->workers) {
            $this->fail("it says it wants {$wanted} workers where {$this->workers} were asked for");
        }
    }

    public function cpu(): array
    {
        [$own, $reaped] = Proc::cpu($this->pid);
        $main = Proc::mainThread($this->pid);
        $workers = $reaped;
        foreach (Proc::descendants($this->pid) as $pid) {
            $workers += array_sum(Proc::cpu($pid));
        }
        return ['main' => $main, 'source' => $own - $main, 'workers' => $workers];
    }

    public function done(): ?int
    {
        preg_match_all('/^cohort_jobs_total\{.*result="done"\} (\d+)$/m', $this->get('/metrics'), $found);
        return array_sum(array_map('intval', $found[1]));
    }

    public function stop(): void
    {
        $this->lab->stop([$this->pid], 30);
    }

    public function agentPid(): int
    {
        return $this->pid;
    }

    /** How many workers are idle now; -1 when the agent does not answer. */
    public function idle(): int
    {
        return $this->metric('cohort_workers{pool="jobs",state="idle"}');
    }

    /** @return list<array{pid: int, jobs_done: int}> the job workers, as `cohort workers` has them */
    public function workerList(): array
    {
        $command = [$this->lab->bin . '/cohort', 'workers', '--json', '--run-dir', $this->runDir];
        $process = proc_open($command, [['file', '/dev/null', 'r'], ['pipe', 'w'], ['redirect', 1]], $pipes);
        $output = (string) stream_get_contents($pipes[1]);
        proc_close($process);
        $answer = json_decode($output, true);
        return is_array($answer) ? $answer['workers'] : $this->fail("cohort workers said {$output}");
    }

    private function saysReady(): bool
    {
        return preg_match('/ info  ready$/m', (string) file_get_contents($this->log)) === 1;
    }

    private function metric(string $sample): int
    {
        $page = $this->get('/metrics');
        $at = strpos($page, "\n{$sample} ");
        return $at === false ? -1 : (int) substr($page, $at + strlen($sample) + 2, 20);
    }

    private function get(string $path): string
    {
        $socket = @stream_socket_client("tcp://127.0.0.1:{$this->port}", $code, $text, 1);
        if ($socket === false) {
            return '';
        }
        stream_set_timeout($socket, 5);
        fwrite($socket, "GET {$path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
        return (string) stream_get_contents($socket);
    }
}
