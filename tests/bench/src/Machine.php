<?php

declare(strict_types=1);

namespace Cohort\Bench;

/** The machine, and whether it has time for a measurement. */
final class Machine
{
    /** More than this share of all CPUs busy with others' work is no quiet machine. */
    private const QUIET = 0.15;

    public static function describe(): string
    {
        $info = (string) @file_get_contents('/proc/cpuinfo');
        preg_match('/^model name\s*:\s*(.+)$/m', $info, $model);
        return sprintf(
            '%s, %d cores, Linux %s, PHP %s',
            trim($model[1] ?? php_uname('m')),
            self::cores(),
            php_uname('r'),
            PHP_VERSION,
        );
    }

    public static function cores(): int
    {
        return max(1, preg_match_all('/^processor\s*:/m', (string) @file_get_contents('/proc/cpuinfo')));
    }

    public static function load(): string
    {
        return implode(' ', array_slice(explode(' ', (string) file_get_contents('/proc/loadavg')), 0, 3));
    }

    /** The share of all CPUs that others use, in a second looked at. */
    public static function share(): float
    {
        [$busy, $all] = self::ticks();
        usleep(1_000_000);
        [$busyNow, $allNow] = self::ticks();
        return ($busyNow - $busy) / max(1, $allNow - $all);
    }

    public static function quiet(float $share): bool
    {
        return $share <= self::QUIET;
    }

    /**
     * Wait until a second is quiet and the load of the last minute (a build, for one) has gone.
     *
     * @return bool false when that took longer than $seconds
     */
    public static function settle(int $seconds): bool
    {
        $end = microtime(true) + $seconds;
        do {
            if (self::quiet(self::share()) && (float) self::load() <= self::cores()) {
                return true;
            }
        } while (microtime(true) < $end);
        return false;
    }

    /** @return array{int, int} ticks busy, ticks in all */
    private static function ticks(): array
    {
        $line = explode("\n", (string) file_get_contents('/proc/stat'))[0];
        $ticks = array_map('intval', array_slice(preg_split('/\s+/', $line), 1, 8));
        $all = array_sum($ticks);
        return [$all - $ticks[3] - $ticks[4], $all];
    }
}
