<?php

declare(strict_types=1);

namespace Cohort\Bench;

/** What /proc says of processes. A process that is gone counts as nothing. */
final class Proc
{
    private static float $tick = 0.0;

    public static function exe(int $pid): string
    {
        return (string) @readlink("/proc/{$pid}/exe");
    }

    /** @return list<string> */
    public static function arguments(int $pid): array
    {
        return explode("\0", rtrim((string) @file_get_contents("/proc/{$pid}/cmdline"), "\0"));
    }

    public static function name(int $pid): string
    {
        return trim((string) @file_get_contents("/proc/{$pid}/comm"));
    }

    public static function alive(int $pid): bool
    {
        $stat = (string) @file_get_contents("/proc/{$pid}/stat");
        return $stat !== '' && substr($stat, (int) strrpos($stat, ')') + 2, 1) !== 'Z';
    }

    /** @return list<int> */
    public static function children(int $pid): array
    {
        $pids = [];
        foreach (glob("/proc/{$pid}/task/*/children") ?: [] as $file) {
            foreach (explode(' ', trim((string) @file_get_contents($file))) as $child) {
                if ($child !== '') {
                    $pids[] = (int) $child;
                }
            }
        }
        return $pids;
    }

    /** @return list<int> all below this process */
    public static function descendants(int $pid): array
    {
        $all = [];
        foreach (self::children($pid) as $child) {
            array_push($all, $child, ...self::descendants($child));
        }
        return $all;
    }

    /** @return array{float, float} CPU seconds of the process (utime + stime), and of its reaped children */
    public static function cpu(int $pid): array
    {
        return self::times("/proc/{$pid}/stat");
    }

    /** CPU seconds of the main thread. */
    public static function mainThread(int $pid): float
    {
        return self::times("/proc/{$pid}/task/{$pid}/stat")[0];
    }

    /** Bytes nobody else shares: Private_Clean + Private_Dirty. */
    public static function privateBytes(int $pid): int
    {
        return self::kib("/proc/{$pid}/smaps_rollup", '/^Private_(?:Clean|Dirty):\s+(\d+) kB/m');
    }

    /** RSS without the shared memory that it maps (its workers' wires). */
    public static function residentBytes(int $pid): int
    {
        $status = "/proc/{$pid}/status";
        return self::kib($status, '/^VmRSS:\s+(\d+) kB/m') - self::kib($status, '/^RssShmem:\s+(\d+) kB/m');
    }

    /** Does this process listen on 127.0.0.1:PORT? */
    public static function listens(int $pid, int $port): bool
    {
        $pattern = sprintf('/^\s*\d+: [0-9A-F]+:%04X [0-9A-F:]+ 0A (?:\S+\s+){5}(\d+)/m', $port);
        preg_match_all($pattern, (string) @file_get_contents('/proc/net/tcp'), $found);
        $sockets = array_map(static fn (string $inode): string => "socket:[{$inode}]", $found[1]);
        return array_intersect($sockets, self::files($pid)) !== [];
    }

    /** @return list<int> processes that have this file open */
    public static function openers(string $file): array
    {
        $pids = [];
        foreach (glob('/proc/[0-9]*', GLOB_ONLYDIR) ?: [] as $dir) {
            if (in_array($file, self::files((int) basename($dir)), true)) {
                $pids[] = (int) basename($dir);
            }
        }
        return $pids;
    }

    /** @return list<string> what its descriptors are */
    public static function files(int $pid): array
    {
        $files = [];
        foreach (@scandir("/proc/{$pid}/fd") ?: [] as $fd) {
            $file = @readlink("/proc/{$pid}/fd/{$fd}");
            if ($file !== false) {
                $files[] = $file;
            }
        }
        return $files;
    }

    /** @return array{float, float} */
    private static function times(string $file): array
    {
        self::$tick = self::$tick ?: 1 / max(1, (int) shell_exec('getconf CLK_TCK'));
        $stat = (string) @file_get_contents($file);
        if ($stat === '') {
            return [0.0, 0.0];
        }
        // The name may hold blanks; the fields begin after its last bracket.
        $field = explode(' ', substr($stat, (int) strrpos($stat, ')') + 2));
        return [($field[11] + $field[12]) * self::$tick, ($field[13] + $field[14]) * self::$tick];
    }

    private static function kib(string $file, string $pattern): int
    {
        preg_match_all($pattern, (string) @file_get_contents($file), $found);
        return array_sum(array_map('intval', $found[1])) * 1024;
    }
}
