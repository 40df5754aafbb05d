<?php

declare(strict_types=1);

namespace Cohort\Tests;

/** A temporary application and the worker processes run in it. */
final class Bench
{
    public readonly string $dir;
    private int $runs = 0;

    public function __construct(public readonly string $name)
    {
        $this->dir = sys_get_temp_dir() . '/cohort-php-' . bin2hex(random_bytes(6));
        mkdir($this->dir, 0700, true);
    }

    /** A Laravel application; $autoload is the file its vendor/autoload.php requires. */
    public static function laravel(string $name, string $autoload): self
    {
        $bench = new self($name);
        copy_tree(__DIR__ . '/laravel', $bench->dir);
        foreach (['bootstrap/cache', 'storage/framework/cache/data', 'storage/framework/views', 'storage/logs', 'vendor', 'database'] as $dir) {
            is_dir("{$bench->dir}/{$dir}") || mkdir("{$bench->dir}/{$dir}", 0700, true);
        }
        $bench->write('vendor/autoload.php', "<?php\nrequire_once " . var_export($autoload, true) . ";\n"
            . "spl_autoload_register(function (\$class) {\n    if (str_starts_with(\$class, 'App\\\\')) {\n"
            . "        require __DIR__ . '/../app/' . strtr(substr(\$class, 4), '\\\\', '/') . '.php';\n    }\n});\n");
        $bench->migrate($bench->dir . '/database/database.sqlite');
        return $bench;
    }

    public static function plain(string $app): self
    {
        $bench = new self('plain');
        $bench->write('app.php', $app);
        $bench->migrate($bench->dir . '/queue.db');
        return $bench;
    }

    public function write(string $path, string $text): void
    {
        file_put_contents("{$this->dir}/{$path}", $text);
    }

    public function database(): \PDO
    {
        $path = is_file("{$this->dir}/queue.db") ? 'queue.db' : 'database/database.sqlite';
        return new \PDO("sqlite:{$this->dir}/{$path}", null, null, [
            \PDO::ATTR_DEFAULT_FETCH_MODE => \PDO::FETCH_ASSOC,
        ]);
    }

    /** @return list<array<string, mixed>> */
    public function rows(string $sql): array
    {
        return $this->database()->query($sql)->fetchAll();
    }

    /**
     * Run a worker through these messages.
     *
     * @param list<array<string, mixed>> $messages
     * @param array<string, mixed>       $more     config, kind, taken_back, ending, env
     */
    public function run(array $messages, array $more = []): Trace
    {
        $base = $this->dir . '/run' . ++$this->runs;
        $scenario = $more + ['kind' => 'job', 'messages' => $messages, 'record' => "{$base}.record"];
        $scenario['config'] = ($more['config'] ?? []) + ['app' => $this->dir, 'env_file' => '', 'connection' => 'cohort',
            'queue_database' => is_file("{$this->dir}/queue.db") ? "{$this->dir}/queue.db" : '', 'retry_after' => '90'];
        touch("{$base}.record");
        file_put_contents("{$base}.json", json_encode($scenario, JSON_THROW_ON_ERROR));
        $process = proc_open(
            [PHP_BINARY, '-d', 'opcache.enable_cli=0', '-d', 'memory_limit=128M', __DIR__ . '/child.php', "{$base}.json"],
            [['file', '/dev/null', 'r'], ['file', "{$base}.out", 'w'], ['file', "{$base}.out", 'a']],
            $pipes,
            sys_get_temp_dir(),
            ($more['env'] ?? []) + getenv(),
        );
        return new Trace("{$base}.record", "{$base}.out", self::wait($process));
    }

    public function control(string $name, array $body = [], array $more = []): array
    {
        $trace = $this->run([['type' => 'control', 'name' => $name, 'body' => json_encode((object) $body)]], $more + ['kind' => 'control']);
        return $trace->first('reply') ?? throw new \RuntimeException("no reply: {$trace->output}");
    }

    /** Run a line of PHP in the Laravel application, as a command or a request of it would. */
    public function artisan(string $code): string
    {
        $boot = "\Cohort\Fake\Wire::\$scenario = ['record' => '/dev/null']; require 'vendor/autoload.php'; \$app = require 'bootstrap/app.php';"
            . ' $app->make(Illuminate\Contracts\Console\Kernel::class)->bootstrap(); ';
        $code = 'require ' . var_export(__DIR__ . '/fake.php', true) . "; {$boot}{$code}";
        $process = proc_open([PHP_BINARY, '-r', $code], [1 => ['pipe', 'w'], 2 => ['redirect', 1]], $pipes, $this->dir);
        $output = stream_get_contents($pipes[1]);
        if (proc_close($process) !== 0) {
            throw new \RuntimeException("in the application: {$code}\n{$output}");
        }
        return $output;
    }

    /**
     * The jobs on the application's queue, as the agent would hand them out.
     *
     * @param array<string, mixed> $more members of every message
     * @return list<array<string, mixed>>
     */
    public function waiting(array $more = []): array
    {
        return array_map(static fn (array $row): array => $more + ['id' => (int) $row['id'], 'queue' => $row['queue'],
            'payload' => $row['payload']], $this->rows('select * from jobs order by id'));
    }

    /** Remove the application. */
    public function done(): void
    {
        remove_tree($this->dir);
    }

    /** @param resource $process @return int the exit code, or minus the signal */
    private static function wait($process): int
    {
        $status = proc_get_status($process);
        pcntl_waitpid($status['pid'], $wait);
        proc_close($process);
        return pcntl_wifsignaled($wait) ? -pcntl_wtermsig($wait) : pcntl_wexitstatus($wait);
    }

    private function migrate(string $path): void
    {
        $db = new \PDO("sqlite:{$path}");
        $db->exec('create table jobs (id integer primary key autoincrement, queue varchar not null, payload text not null,
            attempts integer not null, reserved_at integer, available_at integer not null, created_at integer not null)');
        $db->exec('create table failed_jobs (id integer primary key autoincrement, uuid varchar unique not null, connection text,
            queue text, payload text, exception text, failed_at datetime default current_timestamp)');
        $db->exec('create table job_batches (id varchar primary key, name varchar, total_jobs integer, pending_jobs integer,
            failed_jobs integer, failed_job_ids text, options text, cancelled_at integer, created_at integer, finished_at integer)');
        $db->exec('create table probe (id integer primary key autoincrement, text varchar)');
    }
}

/** What a worker process told its fake agent. */
final class Trace
{
    /** @var list<array<int, mixed>> */
    public readonly array $calls;
    public readonly string $output;

    public function __construct(string $record, string $output, public readonly int $exit)
    {
        $lines = array_filter(explode("\n", file_get_contents($record)));
        $this->calls = array_map(static fn (string $line): array => json_decode($line, true), array_values($lines));
        $this->output = file_get_contents($output);
    }

    /** @return list<array<int, mixed>> the details of every call of this name */
    public function all(string $what): array
    {
        return array_values(array_map(
            static fn (array $call): array => array_slice($call, 1),
            array_filter($this->calls, static fn (array $call): bool => $call[0] === $what),
        ));
    }

    /** @return array<int, mixed>|null */
    public function first(string $what): ?array
    {
        return $this->all($what)[0] ?? null;
    }

    /** @return list<mixed> the first detail of every call of this name */
    public function names(string $what): array
    {
        return array_map(static fn (array $details): mixed => $details[0], $this->all($what));
    }

    /** @return list<array{int, int}> [outcome, delay] of every end */
    public function outcomes(): array
    {
        return array_map(static fn (array $end): array => [$end[1], $end[2]], $this->all('end'));
    }

    /** All log lines as one text. */
    public function logged(): string
    {
        return implode("\n", array_map(static fn (array $log): string => "{$log[0]}: {$log[1]}", $this->all('log')));
    }
}

function copy_tree(string $from, string $to): void
{
    is_dir($to) || mkdir($to, 0700, true);
    foreach (array_diff(scandir($from), ['.', '..']) as $name) {
        is_dir("{$from}/{$name}") ? copy_tree("{$from}/{$name}", "{$to}/{$name}") : copy("{$from}/{$name}", "{$to}/{$name}");
    }
}

function remove_tree(string $dir): void
{
    foreach (array_diff(scandir($dir), ['.', '..']) as $name) {
        is_dir("{$dir}/{$name}") && !is_link("{$dir}/{$name}") ? remove_tree("{$dir}/{$name}") : unlink("{$dir}/{$name}");
    }
    rmdir($dir);
}
