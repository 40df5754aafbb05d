<?php

declare(strict_types=1);

namespace Cohort\Plain;

use Cohort\ErrorText;
use Cohort\JobFailed;
use Cohort\Runtime;
use Cohort\WorkerDied;

use const Cohort\Worker\OUTCOME_FAILED;
use const Cohort\Worker\OUTCOME_RELEASED;

/** Settles one job whose worker died. The handler does not run; the agent keeps the record. */
final class Bookkeeper
{
    /** @return int the exit code, 0 */
    public function run(): int
    {
        \Cohort\Worker\ready(Runtime::introduction(Runtime::app()));
        $message = \Cohort\Worker\next();
        if ($message === null) {
            return 0;
        }
        if ($message['type'] !== 'bookkeep') {
            throw new \LogicException("a bookkeeper was given a {$message['type']}");
        }
        if (\Cohort\Worker\begin($message['ticket'])) {
            $this->settle($message);
        }
        return 0;
    }

    /** @param array<string, mixed> $message */
    private function settle(array $message): void
    {
        $error = $message['cause'] === 'timeout'
            ? JobMessage::timedOut($message)
            : new WorkerDied($message['text']);
        $fails = $message['final'] || self::isLastTry($message);
        \Cohort\Worker\end(
            $message['ticket'],
            $fails ? OUTCOME_FAILED : OUTCOME_RELEASED,
            $fails ? 0 : JobMessage::backoff($message),
            ErrorText::of($error),
            $fails,
        );
    }

    /** @param array<string, mixed> $message */
    private static function isLastTry(array $message): bool
    {
        try {
            return JobMessage::job($message)->isLastTry();
        } catch (JobFailed) {
            return true;
        }
    }
}
