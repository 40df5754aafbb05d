<?php

declare(strict_types=1);

namespace Cohort\Plain;

use Cohort\ErrorText;
use Cohort\Job;
use Cohort\JobFailed;
use Cohort\LastWords;
use Cohort\Runtime;

use const Cohort\Worker\END_MEMORY;
use const Cohort\Worker\END_TIMEOUT;
use const Cohort\Worker\OUTCOME_DONE;
use const Cohort\Worker\OUTCOME_FAILED;
use const Cohort\Worker\OUTCOME_RELEASED;

/** The loop of a job worker of a plain PHP application. */
final class JobLoop
{
    private LastWords $lastWords;
    private ?Job $running = null;
    /** @var array<string, mixed> the message of the running job */
    private array $message = [];
    /** @var array{int, int, ?\Throwable}|null what came of it; null while it runs */
    private ?array $outcome = null;
    private bool $quit = false;

    /** @param \Closure(Job): mixed $handler */
    public function __construct(private readonly \Closure $handler)
    {
    }

    /**
     * Run jobs until the agent says stop or this process must be replaced.
     *
     * @return int the exit code, 0
     */
    public function run(): int
    {
        $this->lastWords = LastWords::register();
        $this->listen();
        \Cohort\Worker\on_timeout($this->onTimeLimit(...));
        \Cohort\Worker\ready(Runtime::introduction(Runtime::app()));
        while (!$this->quit && ($message = \Cohort\Worker\next()) !== null) {
            if ($message['type'] !== 'job') {
                \Cohort\Worker\log('warn', "a job worker was given a {$message['type']}; it is ignored");
                continue;
            }
            if (!$this->serve($message)) {
                return 0;
            }
        }
        return 0;
    }

    /**
     * @param array<string, mixed> $message
     * @return bool false when the agent is ending this ticket
     */
    private function serve(array $message): bool
    {
        // Known before it begins, for its time may be over at once.
        $this->message = $message;
        $this->running = null;
        $this->outcome = null;
        if (!\Cohort\Worker\begin($message['ticket'])) {
            return true;
        }
        $this->outcome = $this->perform();
        // The agent replaces a worker that is over the limit, its successor first.
        $full = $message['memory'] > 0 && memory_get_usage(true) >= $message['memory'];
        return $this->settle($this->outcome, $full ? END_MEMORY : 0);
    }

    /**
     * Run a job that has begun.
     *
     * @return array{int, int, ?\Throwable} outcome, delay in seconds, why
     */
    private function perform(): array
    {
        try {
            $job = $this->running = JobMessage::job($this->message);
        } catch (JobFailed $error) {
            return [OUTCOME_FAILED, 0, $error];
        }
        $this->lastWords->begin($job->queue, (string) $job->id, $job->uuid);
        return $this->outcomeOf($job, $this->call($job));
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
                : [OUTCOME_RELEASED, $job->releaseDelay() ?? JobMessage::backoff($this->message), $error];
        }
        return $job->releaseDelay() === null
            ? [OUTCOME_DONE, 0, null]
            : [OUTCOME_RELEASED, $job->releaseDelay(), null];
    }

    /**
     * Tell the agent.
     *
     * @param array{int, int, ?\Throwable} $outcome outcome, delay in seconds, why
     * @param int                          $flags   END_ constants
     * @return bool false when it is ending this ticket
     */
    private function settle(array $outcome, int $flags): bool
    {
        [$what, $delay, $why] = $outcome;
        $this->lastWords->end();
        return \Cohort\Worker\end(
            $this->message['ticket'],
            $what,
            $delay,
            $why === null ? '' : ErrorText::of($why),
            $what === OUTCOME_FAILED,
            $flags,
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
    }

    /**
     * The agent ends the running job for its time limit: say what becomes of it. This process ends
     * with it, in the middle of the job's code.
     */
    private function onTimeLimit(int $ticket): void
    {
        if ($ticket === $this->message['ticket'] && $this->running !== null) {
            $late = $this->outcome ?? $this->outcomeOf($this->running, JobMessage::timedOut($this->message));
            $this->settle($late, END_TIMEOUT);
        }
    }
}
