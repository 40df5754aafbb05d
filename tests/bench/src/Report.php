<?php

declare(strict_types=1);

namespace Cohort\Bench;

/** Results as text, as JSON, and as the table of the README. */
final class Report
{
    private const BEGIN = '<!-- figures: written by run.sh --write -->';
    private const END = '<!-- end of figures -->';

    /** @return array<string, mixed> one row as data */
    public static function data(string $name, Result $result, bool $quick, bool $quiet): array
    {
        [, $unit, $sense, $goal] = Rows::ALL[$name];
        return [
            'name' => $name,
            'value' => self::round($result->value()),
            'unit' => $unit,
            'goal' => $goal,
            'sense' => $sense,
            'met' => self::met($name, $result),
            'runs' => array_map(self::round(...), $result->runs),
            'peers' => (object) array_map(self::figure(...), $result->peers),
            'parts' => (object) array_map(self::figure(...), $result->parts),
            'ratio' => self::round($result->ratio),
            'notes' => $result->notes(),
            'quick' => $quick,
            'quiet' => $quiet,
        ];
    }

    /** One row as text, every round of every figure. */
    public static function text(string $name, Result $result): string
    {
        [$what, $unit, $sense, $goal] = Rows::ALL[$name];
        $text = sprintf("%-15s %s %s (goal %s %s): %s\n", $name, self::number($result->value()), $unit, $sense,
            self::number($goal), self::met($name, $result) ? 'met' : 'not met');
        $text .= sprintf("  %s; rounds %s\n", $what, self::list($result->runs));
        foreach ($result->parts as $part => $figure) {
            $text .= "  {$part}: " . self::figureText($figure) . "\n";
        }
        foreach ($result->peers as $peer => $figure) {
            $text .= "  beside it, {$peer}: " . self::figureText($figure) . "\n";
        }
        foreach ($result->notes() as $note) {
            $text .= "  note: {$note}\n";
        }
        return $text;
    }

    /**
     * Put the table of a run in place of the one in the README.
     *
     * @param array<string, Result> $results
     */
    public static function write(string $readme, array $results, string $machine, string $load, string $laravel): void
    {
        $table = "Measured " . gmdate('Y-m-d') . " on {$machine}; Laravel {$laravel}; load average {$load} at the start.\n\n"
            . "| row | what | ours | goal | met | rounds | beside it |\n|---|---|---|---|---|---|---|\n";
        foreach ($results as $name => $result) {
            [$what, $unit, $sense, $goal] = Rows::ALL[$name];
            $beside = [];
            foreach ($result->parts + $result->peers as $other => $figure) {
                $beside[] = "{$other}: " . self::figureText($figure, false);
            }
            $table .= sprintf("| %s | %s | **%s** %s | %s %s | %s | %s | %s |\n", $name, $what, self::number($result->value()),
                $unit, $sense, self::number($goal), self::met($name, $result) ? 'yes' : 'no', self::list($result->runs),
                implode('; ', $beside));
        }
        $text = (string) file_get_contents($readme);
        $begin = strpos($text, self::BEGIN);
        $end = strpos($text, self::END);
        if ($begin === false || $end === false) {
            throw new Failure("{$readme} lacks its markers: " . self::BEGIN . ' and ' . self::END);
        }
        $before = substr($text, 0, $begin + strlen(self::BEGIN));
        file_put_contents($readme, "{$before}\n\n{$table}\n" . substr($text, $end));
    }

    private static function met(string $name, Result $result): bool
    {
        [, , $sense, $goal] = Rows::ALL[$name];
        $value = $result->value();
        return $value !== null && ($sense === '<=' ? $value <= $goal : $value >= $goal);
    }

    /** @param array{unit: string, runs: list<float>} $figure */
    private static function figure(array $figure): array|string
    {
        return $figure['runs'] === [] ? 'not measured' : ['value' => self::round(Result::median($figure['runs'])),
            'unit' => $figure['unit'], 'runs' => array_map(self::round(...), $figure['runs'])];
    }

    /** @param array{unit: string, runs: list<float>} $figure */
    private static function figureText(array $figure, bool $rounds = true): string
    {
        if ($figure['runs'] === []) {
            return 'not measured';
        }
        return self::number(Result::median($figure['runs'])) . " {$figure['unit']}"
            . ($rounds ? ' (' . self::list($figure['runs']) . ')' : '');
    }

    /** @param list<float> $values */
    private static function list(array $values): string
    {
        return implode(' / ', array_map(self::number(...), $values));
    }

    /** Three figures that count. */
    public static function number(?float $value): string
    {
        if ($value === null) {
            return '-';
        }
        $size = abs($value);
        return number_format($value, $size >= 100 ? 0 : ($size >= 10 ? 1 : 2), '.', ',');
    }

    private static function round(?float $value): ?float
    {
        return $value === null ? null : round($value, 3);
    }
}
