<?php

declare(strict_types=1);

namespace Cohort\Laravel;

/** The body of a Redis job as bytes. */
final class RedisPayload
{
    /** The same bytes with this number of attempts; only its digits differ. */
    public static function withAttempts(string $payload, int $attempts): string
    {
        preg_match_all('/"attempts"\s*:\s*\K\d+/', $payload, $found, PREG_OFFSET_CAPTURE);
        // Laravel writes it last; a member of the job's data may have the same name.
        foreach (array_reverse($found[0]) as [$digits, $at]) {
            $with = static fn (int $n): string => substr_replace($payload, (string) $n, $at, strlen($digits));
            // Which of them it is shows in what is read when it is another number.
            if (self::attemptsOf($with(-1)) === -1) {
                return $with($attempts);
            }
        }
        return (string) json_encode(['attempts' => $attempts] + (array) json_decode($payload, true));
    }

    private static function attemptsOf(string $payload): mixed
    {
        return json_decode($payload, true)['attempts'] ?? null;
    }
}
