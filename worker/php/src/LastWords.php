<?php

declare(strict_types=1);

namespace Cohort;

/**
 * Says in the log why a process ends in the middle of a job: by a fatal error or by exit().
 *
 * The agent sees the death itself; this is what it cannot see from outside.
 */
final class LastWords
{
    /** Bytes kept free for the shutdown function of a process out of memory. */
    private const RESERVE_BYTES = 32768;
    private const FATAL = E_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR | E_RECOVERABLE_ERROR;

    private static ?string $reserve = null;
    /** @var array{string, string, string}|null queue, id and name of the running job */
    private ?array $job = null;

    private function __construct()
    {
    }

    /** Once in each worker. */
    public static function register(): self
    {
        $words = new self();
        self::$reserve = str_repeat('x', self::RESERVE_BYTES);
        register_shutdown_function($words->speak(...));
        return $words;
    }

    /**
     * @param string $queue name of its queue
     * @param string $id    of the job: its row, or the id in its body on Redis
     * @param string $name  class or UUID
     */
    public function begin(string $queue, string $id, string $name): void
    {
        $this->job = [$queue, $id, $name];
    }

    public function end(): void
    {
        $this->job = null;
    }

    private function speak(): void
    {
        self::$reserve = null;
        if ($this->job === null) {
            return;
        }
        [$queue, $id, $name] = $this->job;
        $job = "job {$id} ({$name}) of queue {$queue}";
        $error = error_get_last();
        if ($error !== null && ($error['type'] & self::FATAL) !== 0) {
            $why = "{$error['message']} in {$error['file']}:{$error['line']}";
            Worker\log('error', "{$job} ended its worker: {$why}");
        } else {
            Worker\log('error', "{$job} ended its worker by calling exit()");
        }
    }
}
