<?php

declare(strict_types=1);

namespace Cohort\Bench;

/** The place of a run: applications, a fresh database for every arm, and the processes it started. */
final class Lab
{
    public readonly string $dir;
    /** Logs of the arms, kept after the run. */
    public readonly string $logs;
    private string $app = '';
    private string $template = '';
    private string $laravelVersion = '';
    /** @var array<int, resource> */
    private array $processes = [];

    public function __construct(
        public readonly string $root,
        public readonly string $bin,
        private readonly string $work,
        private readonly string $laravel,
    ) {
        // Slots and rings belong on tmpfs, and a socket's path holds 107 bytes.
        $base = is_writable('/dev/shm') ? '/dev/shm' : sys_get_temp_dir();
        $this->dir = "{$base}/cohort-bench." . getmypid();
        $this->logs = "{$work}/logs";
        foreach ([$this->dir, $this->logs] as $dir) {
            is_dir($dir) || mkdir($dir, 0700, true);
        }
    }

    /** The Laravel application, made on first use. */
    public function laravel(): string
    {
        if ($this->app === '') {
            $app = "{$this->work}/laravel-{$this->laravel}";
            $make = "{$this->root}/deploy/make-app.sh";
            $this->command([$make, $app, '--laravel', $this->laravel, '--cache', "{$this->root}/build/cache"]);
            copy(__DIR__ . '/../app/Jobs/Bench.php', "{$app}/app/Jobs/Bench.php");
            copy(__DIR__ . '/../app/work.php', "{$app}/app/work.php");
            copy(__DIR__ . '/../app/payload.php', "{$app}/payload.php");
            $this->template = "{$app}/database/template.sqlite";
            copy("{$app}/database/database.sqlite", $this->template);
            $version = $this->command(['php', "{$app}/artisan", '--version']);
            $this->laravelVersion = preg_match('/\d+\.\d+\.\d+/', $version, $found) === 1 ? $found[0] : '?';
            $this->app = $app;
        }
        return $this->app;
    }

    public function laravelVersion(): string
    {
        return $this->laravelVersion;
    }

    /** A fresh database of the application. It stands in WAL, which is what SQLite queues are run with. */
    public function freshDatabase(): string
    {
        $path = $this->laravel() . '/database/database.sqlite';
        foreach (['', '-wal', '-shm', '-journal'] as $suffix) {
            @unlink($path . $suffix);
        }
        copy($this->template, $path);
        (new \PDO("sqlite:{$path}"))->exec('pragma journal_mode = wal');
        return $path;
    }

    /** @param string ...$job WHAT, ARGUMENT, FILE of a Bench job */
    public function payload(string ...$job): string
    {
        $payload = $this->command(['php', $this->laravel() . '/payload.php', ...$job]);
        if (!is_array(json_decode($payload, true))) {
            throw new Failure("payload.php printed no payload:\n{$payload}");
        }
        return $payload;
    }

    /** A new empty directory. */
    public function freshDir(string $name): string
    {
        $dir = "{$this->dir}/{$name}";
        self::remove($dir);
        mkdir($dir, 0700, true);
        return $dir;
    }

    /** A port of 127.0.0.1 that nobody listens on. */
    public static function freePort(): int
    {
        $socket = stream_socket_server('tcp://127.0.0.1:0');
        return (int) substr(strrchr((string) stream_socket_get_name($socket, false), ':'), 1);
    }

    /**
     * Start a process whose output goes to a log.
     *
     * @param list<string> $command
     * @return int its pid
     */
    public function start(array $command, string $log, string $dir): int
    {
        $files = [['file', '/dev/null', 'r'], ['file', $log, 'a'], ['file', $log, 'a']];
        $process = proc_open($command, $files, $pipes, $dir) ?: throw new Failure("cannot start {$command[0]}");
        $pid = proc_get_status($process)['pid'];
        $this->processes[$pid] = $process;
        return $pid;
    }

    /** End these processes: asked first, killed after $seconds. */
    public function stop(array $pids, int $seconds): void
    {
        foreach ($pids as $pid) {
            posix_kill($pid, SIGTERM);
        }
        self::until(static fn (): bool => array_filter($pids, Proc::alive(...)) === [], $seconds);
        foreach ($pids as $pid) {
            if (Proc::alive($pid)) {
                posix_kill($pid, SIGKILL);
            }
            $this->reap($pid);
        }
    }

    public function reap(int $pid): void
    {
        if (isset($this->processes[$pid])) {
            proc_close($this->processes[$pid]);
            unset($this->processes[$pid]);
        }
    }

    /** End what still runs, and leave nothing but the logs. */
    public function close(): void
    {
        $this->stop(array_keys($this->processes), 5);
        self::remove($this->dir);
    }

    /** Wait until it is so. @return bool false when it is not in time */
    public static function until(callable $so, float $seconds, int $pauseUs = 2000): bool
    {
        $end = hrtime(true) + (int) ($seconds * 1e9);
        while (!$so()) {
            if (hrtime(true) >= $end) {
                return false;
            }
            usleep($pauseUs);
        }
        return true;
    }

    /** @param list<string> $command @return string what it printed */
    private function command(array $command): string
    {
        $process = proc_open($command, [['file', '/dev/null', 'r'], ['pipe', 'w'], ['redirect', 1]], $pipes)
            ?: throw new Failure("cannot start {$command[0]}");
        $output = (string) stream_get_contents($pipes[1]);
        if (proc_close($process) !== 0) {
            throw new Failure('failed: ' . implode(' ', $command) . "\n{$output}");
        }
        return $output;
    }

    private static function remove(string $path): void
    {
        if (!is_dir($path) || is_link($path)) {
            @unlink($path);
            return;
        }
        foreach (array_diff(scandir($path) ?: [], ['.', '..']) as $name) {
            self::remove("{$path}/{$name}");
        }
        @rmdir($path);
    }
}
