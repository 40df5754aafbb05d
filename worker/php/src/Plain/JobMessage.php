<?php

declare(strict_types=1);

namespace Cohort\Plain;

use Cohort\Job;
use Cohort\JobFailed;

/** Reads the agent's messages about jobs of a plain PHP application. */
final class JobMessage
{
    /**
     * @param array<string, mixed> $message
     *
     * @throws JobFailed the payload is none of dispatch()
     */
    public static function job(array $message): Job
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

    /**
     * The pool's backoff for this attempt in seconds: the item of its number, else the last one.
     *
     * @param array<string, mixed> $message
     */
    public static function backoff(array $message): int
    {
        $items = explode(',', $message['backoff']);
        return max(0, (int) ($items[$message['attempts'] - 1] ?? end($items)));
    }

    /** @param array<string, mixed> $message */
    public static function timedOut(array $message): JobFailed
    {
        return new JobFailed("The job ran longer than its timeout of {$message['timeout']} s.");
    }
}
