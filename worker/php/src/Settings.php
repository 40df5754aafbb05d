<?php

declare(strict_types=1);

namespace Cohort;

/** The settings the agent gave the zygote; see worker/README.md. All values arrive as strings. */
final class Settings
{
    /** @param array<string, string> $values */
    public function __construct(private readonly array $values)
    {
    }

    public function text(string $key, string $fallback = ''): string
    {
        $value = (string) ($this->values[$key] ?? '');
        return $value === '' ? $fallback : $value;
    }

    public function int(string $key, int $fallback = 0): int
    {
        $value = $this->text($key);
        return is_numeric($value) ? (int) $value : $fallback;
    }

    public function flag(string $key): bool
    {
        return in_array(strtolower($this->text($key)), ['1', 'true', 'yes', 'on'], true);
    }

    /** Seconds; a bare number is seconds, and the units ms, s, m and h are understood. */
    public function seconds(string $key, int $fallback): int
    {
        if (!preg_match('/^(\d+)(ms|s|m|h)?$/', $this->text($key), $match)) {
            return $fallback;
        }
        return match ($match[2] ?? 's') {
            'ms' => intdiv((int) $match[1] + 999, 1000),
            's' => (int) $match[1],
            'm' => (int) $match[1] * 60,
            'h' => (int) $match[1] * 3600,
        };
    }
}
