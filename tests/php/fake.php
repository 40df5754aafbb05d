<?php

declare(strict_types=1);

/*
 * A stand-in for what cohort-worker registers in C: messages come from a scenario, and every call is
 * recorded as a line of JSON, at once, because the process may be killed the next moment.
 */

namespace Cohort\Fake {
    final class Wire
    {
        /** @var array<string, mixed> */
        public static array $scenario = [];
        /** @var (callable(array<string, mixed>): array<string, mixed>)|null fills in a message */
        public static $prepare = null;
        public static int $position = 0;
        /** @var (callable(int): void)|null what on_timeout() was given */
        public static $onTimeout = null;
        /** @var (callable(int): void)|null what on_stop() was given */
        public static $onStop = null;
        /** @var array<string, mixed>|null what next() gave last */
        public static ?array $current = null;
        /** @var array<string, mixed>|null the message that runs */
        public static ?array $running = null;

        /** The agent's clock: end the running ticket by its handler, then by SIGKILL. */
        public static function keepTime(?array $message): void
        {
            self::$running = $message;
            $limit = $message['timeout'] ?? 0;
            $limit = json_decode($message['payload'] ?? '', true)['timeout'] ?? $limit;
            pcntl_async_signals(true);
            pcntl_signal(SIGALRM, static function (): void {
                $ticket = self::$running['ticket'] ?? 0;
                self::$scenario['ending'][] = $ticket;
                if ($ticket !== 0 && self::$onTimeout !== null) {
                    (self::$onTimeout)($ticket);
                }
                posix_kill(getmypid(), SIGKILL);
            });
            pcntl_alarm((int) $limit);
        }

        /** The agent stops this worker, now. */
        public static function stop(): void
        {
            self::record('told', self::$onStop !== null);
            if (self::$running !== null && self::$onStop !== null) {
                (self::$onStop)(self::$running['ticket']);
            }
        }

        public static function record(string $what, mixed ...$details): void
        {
            $line = json_encode([$what, ...$details], JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE);
            file_put_contents(self::$scenario['record'], $line . "\n", FILE_APPEND);
        }
    }
}

namespace Cohort\Worker {
    use Cohort\Fake\Wire;

    const OUTCOME_DONE = 1;
    const OUTCOME_RELEASED = 2;
    const OUTCOME_FAILED = 3;
    const OUTCOME_DECLINED = 4;
    const OUTCOME_RETURNED = 5;
    const OUTCOME_LEFT = 6;
    const END_MEMORY = 2;
    const END_TIMEOUT = 4;

    function config(): array
    {
        return Wire::$scenario['config'];
    }

    function next(): ?array
    {
        $message = Wire::$scenario['messages'][Wire::$position] ?? null;
        if ($message === null) {
            Wire::record('stop');
            return null;
        }
        Wire::$position++;
        $message += ['type' => 'job', 'ticket' => Wire::$position];
        return Wire::$current = $message['type'] === 'control' ? $message : (Wire::$prepare)($message);
    }

    function begin(int $ticket): bool
    {
        Wire::record('begin', $ticket);
        if (in_array($ticket, Wire::$scenario['taken_back'] ?? [], true)) {
            return false;
        }
        Wire::keepTime(Wire::$current);
        return true;
    }

    function failing(int $ticket): void
    {
    }

    function end(
        int $ticket,
        int $outcome,
        int $delay = 0,
        string $error = '',
        bool $record = false,
        int $flags = 0,
    ): bool {
        Wire::record('end', $ticket, $outcome, $delay, $error, $record, $flags);
        Wire::keepTime(null);
        return !in_array($ticket, Wire::$scenario['ending'] ?? [], true);
    }

    function on_timeout(?callable $handler): void
    {
        Wire::$onTimeout = $handler;
    }

    function on_stop(?callable $handler): void
    {
        Wire::$onStop = $handler;
    }

    function reply(int $ticket, bool $ok, string $json): void
    {
        Wire::record('reply', $ticket, $ok, json_decode($json, true, 512, JSON_THROW_ON_ERROR));
    }

    function ready(string $json = ''): void
    {
        Wire::record('ready', $json);
    }

    function log(string $level, string $message): void
    {
        Wire::record('log', $level, $message);
    }

    function rss(): int
    {
        return 0;
    }
}
