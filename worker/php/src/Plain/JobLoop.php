<?php

declare(strict_types=1);

namespace Cohort\Plain;

use Cohort\ErrorText;
use Cohort\Job;
use Cohort\JobFailed;
use Cohort\LastWords;
use Cohort\Runtime;

use const Cohort\Worker\OUTCOME_DONE;
use const Cohort\Worker\OUTCOME_FAILED;
use const Cohort\Worker\OUTCOME_RELEASED;

/** The loop of a job worker of a plain PHP application. */
final class JobLoop
{
    private const EXIT_MEMORY = 12;

    private LastWords $lastWords;
    private ?Job $running = null;
    /** @var array<string, mixed> the message of the running job */
    private array $message = [];
    private bool $quit = false;

    /** @param \Closure(Job): mixed $handler */
    public function __construct(private readonly \Closure $handler)
    {
    }

    /**
     * Run jobs until the agent says stop or this process must be replaced.
     *
     * @return int the exit code: 0, or 12 over the memory limit
     */
    public function run(): int
    {
        $this->lastWords = LastWords::register();
        $this->listen();
        \Cohort\Worker\ready(Runtime::introduction(Runtime::app()));
        while (!$this->quit && ($message = \Cohort\Worker\next()) !== null) {
            if ($message['type'] !== 'job') {
                \Cohort\Worker\log('warn', "a job worker was given a {$message['type']}; it is ignored");
                continue;
            }
            if (\Cohort\Worker\begin($message['ticket']) && !$this->settle(...$this->perform($message))) {
                return 0;
            }
            if ($message['memory'] > 0 && memory_get_usage(true) >= $message['memory']) {
                return self::EXIT_MEMORY;
            }
        }
        return 0;
    }

    /**
     * Run a job that has begun.
     *
     * @param array<string, mixed> $message
     * @return array{int, int, ?\Throwable} outcome, delay in seconds, why
     */
    private function perform(array $message): array
    {
        $this->message = $message;
        try {
            $job = self::jobOf($message);
        } catch (JobFailed $error) {
            return [OUTCOME_FAILED, 0, $error];
        }
        $this->running = $job;
        $this->lastWords->begin($job->queue, $job->id, $job->uuid);
        $this->alarm($message['timeout']);
        $error = $this->call($job);
        $this->alarm(0);
        return $this->outcomeOf($job, $error);
    }

    /** What the handler threw, if anything. */
    private function call(Job $job): ?\Throwable
    {
        try {
            if ($job->tries > 0 && $job->attempts > $job->tries) {
                $job->fail("The job was started {$job->attempts} times, which is more than its {$job->tries} tries;"
                    . ' it did not end by itself before.');
                return null;
            }
            ($this->handler)($job);
            return null;
        } catch (\Throwable $error) {
            return $error;
        }
    }

    /** @return array{int, int, ?\Throwable} */
    private function outcomeOf(Job $job, ?\Throwable $error): array
    {
        if ($job->failure() !== null) {
            return [OUTCOME_FAILED, 0, $job->failure()];
        }
        if ($job->isDeleted()) {
            return [OUTCOME_DONE, 0, $error];
        }
        if ($error !== null) {
            return $job->isLastTry()
                ? [OUTCOME_FAILED, 0, $error]
                : [OUTCOME_RELEASED, $job->releaseDelay() ?? $this->backoff($job), $error];
        }
        return $job->releaseDelay() === null
            ? [OUTCOME_DONE, 0, null]
            : [OUTCOME_RELEASED, $job->releaseDelay(), null];
    }

    /**
     * Tell the agent.
     *
     * @return bool false when it is ending this ticket
     */
    private function settle(int $outcome, int $delay, ?\Throwable $why): bool
    {
        $this->running = null;
        $this->lastWords->end();
        return \Cohort\Worker\end(
            $this->message['ticket'],
            $outcome,
            $delay,
            $why === null ? '' : ErrorText::of($why),
            $outcome === OUTCOME_FAILED,
        );
    }

    /** The pool's backoff for this attempt: the item of its number, else the last one. */
    private function backoff(Job $job): int
    {
        $items = explode(',', $this->message['backoff']);
        return max(0, (int) ($items[$job->attempts - 1] ?? end($items)));
    }

    /** @throws JobFailed the payload is none of dispatch() */
    private static function jobOf(array $message): Job
    {
        $payload = json_decode($message['payload'], true);
        if (!is_array($payload) || ($payload['job'] ?? null) !== 'cohort') {
            $what = is_array($payload) && is_string($payload['job'] ?? null) ? "\"{$payload['job']}\"" : 'none';
            throw new JobFailed("The payload is not of Cohort\\dispatch(): its member \"job\" must be \"cohort\","
                . " it is {$what}.");
        }
        return new Job(
            $message['id'],
            (string) ($payload['uuid'] ?? ''),
            $message['queue'],
            $payload['data'] ?? null,
            $message['attempts'],
            (int) ($payload['tries'] ?? $message['tries']),
        );
    }

    private function listen(): void
    {
        if (!extension_loaded('pcntl')) {
            return;
        }
        pcntl_async_signals(true);
        foreach ([SIGTERM, SIGQUIT, SIGINT] as $signal) {
            pcntl_signal($signal, function (): void {
                $this->quit = true;
            });
        }
        pcntl_signal(SIGUSR2, SIG_IGN);
        pcntl_signal(SIGALRM, $this->timedOut(...));
    }

    /** @param int $seconds 0 = off */
    private function alarm(int $seconds): void
    {
        if (extension_loaded('pcntl')) {
            pcntl_alarm(max(0, $seconds));
        }
    }

    /** The job ran too long: say what becomes of it, then end this process in the middle of it. */
    private function timedOut(): void
    {
        $job = $this->running;
        if ($job === null) {
            return;
        }
        $error = new JobFailed("The job ran longer than its timeout of {$this->message['timeout']} s.");
        $this->settle(...$this->outcomeOf($job, $error));
        if (extension_loaded('posix')) {
            posix_kill(getmypid(), SIGKILL);
        }
        exit(1);
    }
}
