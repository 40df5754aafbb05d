<?php

/**
 * Stubs for editors and analysers: what cohort-worker registers in C. This file is never loaded.
 *
 * Applications hardly need these functions; they are how the package talks to the agent.
 */

declare(strict_types=1);

namespace Cohort\Worker;

/** The job is done; its row is deleted. */
const OUTCOME_DONE = 1;
/** The job goes back to its queue after a delay; the attempt counts. */
const OUTCOME_RELEASED = 2;
/** The job has failed for good. */
const OUTCOME_FAILED = 3;
/** The application did not want it now; it goes back in place, and no attempt counts. */
const OUTCOME_DECLINED = 4;
/** Taken but never begun; it goes back in place, and no attempt counts. */
const OUTCOME_RETURNED = 5;
/** Neither deleted nor released: it stays reserved until retry_after is over. */
const OUTCOME_LEFT = 6;

/** Flag of end(): this worker is over the job's memory limit; the agent replaces it. */
const END_MEMORY = 2;
/** Flag of end(): said by the handler of on_timeout(). */
const END_TIMEOUT = 4;

/**
 * The settings the agent gave the zygote.
 *
 * @return array<string, string> app, app_name, env_file, queue_database, queue_table, retry_after,
 *                               connection, tries, timeout, backoff, memory, force, pool, run_dir
 */
function config(): array
{
}

/**
 * Wait for the next message.
 *
 * A job: ['type' => 'job', 'ticket' => int, 'id' => int, 'connection' => string, 'queue' => string,
 * 'payload' => string, 'attempts' => int (this start included), 'reserved_at' => int,
 * 'available_at' => int, 'created_at' => int (seconds since 1970), 'timeout' => int (seconds, 0 =
 * none), 'tries' => int (0 = no limit), 'backoff' => string (comma list of seconds), 'memory' => int
 * (bytes, 0 = no limit)].
 *
 * A job whose worker died, for a bookkeeper: ['type' => 'bookkeep'] with the members of a job, attempts
 * being those of the start that died, and 'cause' => 'timeout'|'crash'|'oom', 'final' => bool (it must
 * fail now, whatever its tries say), 'text' => string (for the exception).
 *
 * A question: ['type' => 'control', 'ticket' => int, 'name' => string, 'body' => string (JSON)].
 *
 * @return array<string, mixed>|null null = stop: leave the loop and return
 *
 * @throws \Error in the zygote, or when the hand-over memory is damaged
 */
function next(): ?array
{
}

/**
 * The job begins now.
 *
 * @param int $ticket of the message that next() gave last
 * @return bool false: the agent took it back; do not run it and say nothing more of it
 *
 * @throws \Error when it is another ticket
 */
function begin(int $ticket): bool
{
}

/**
 * Note that the job's failed() is about to run: should this process die in it, nobody calls it again.
 *
 * @param int $ticket of the message that next() gave last
 *
 * @throws \Error when it is another ticket, or it has its outcome
 */
function failing(int $ticket): void
{
}

/**
 * Say what came of the job. Each ticket has one outcome.
 *
 * @param int    $ticket  of the message that next() gave last
 * @param int    $outcome one of the OUTCOME_ constants
 * @param int    $delay   seconds, for OUTCOME_RELEASED
 * @param string $error   class, message and trace of what went wrong; cut at 8 KiB
 * @param bool   $record  the agent writes the failed_jobs row (OUTCOME_FAILED)
 * @param int    $flags   any of the END_ constants, added
 * @return bool false: the agent is ending this ticket; take no other
 *
 * @throws \Error      when it is another ticket, or it has its outcome
 * @throws \ValueError when the outcome or the flags are none of the constants
 */
function end(int $ticket, int $outcome, int $delay = 0, string $error = '', bool $record = false, int $flags = 0): bool
{
}

/**
 * Call this when the agent ends the running job for its time limit.
 *
 * It is called between two instructions of whatever PHP code runs, and may still say the outcome with
 * end(). Afterwards the process is killed.
 *
 * @param (callable(int): void)|null $handler gets the ticket; null = none
 *
 * @throws \Error in the zygote
 */
function on_timeout(?callable $handler): void
{
}

/**
 * Call this when this worker is told to stop (a drain, a reload, a scale-down) while a job runs.
 *
 * It is called between two instructions of whatever PHP code runs, at most once a job. The job goes on
 * afterwards; what is thrown goes into it. A sleep or a wait for several streams ends early, a read does
 * not.
 *
 * @param (callable(int): void)|null $handler gets the ticket; null = none
 *
 * @throws \Error in the zygote
 */
function on_stop(?callable $handler): void
{
}

/**
 * Answer a question.
 *
 * @param int    $ticket of the question
 * @param bool   $ok     whether it was answered
 * @param string $json   the answer, or {"error": text, "code": word}
 *
 * @throws \Error when the answer cannot be written
 */
function reply(int $ticket, bool $ok, string $json): void
{
}

/**
 * This worker has booted and will now ask for messages.
 *
 * @param string $json what it says of itself; may be empty
 *
 * @throws \Error in the zygote
 */
function ready(string $json = ''): void
{
}

/**
 * Write a line in the agent's log.
 *
 * @param string $level   debug, info, warn or error
 * @param string $message cut at 4 KiB
 *
 * @throws \ValueError when the level is none of these
 */
function log(string $level, string $message): void
{
}

/** This process's resident memory in bytes. */
function rss(): int
{
}
