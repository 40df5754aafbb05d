<?php

declare(strict_types=1);

namespace Cohort\Bench;

/** What a row found: every round of ours and of each peer, and what there is to say about it. */
final class Result
{
    /** @var list<float> one value a round */
    public array $runs = [];
    /** @var array<string, array{unit: string, runs: list<float>}> */
    public array $peers = [];
    /** @var array<string, array{unit: string, runs: list<float>}> figures of ours beside the value */
    public array $parts = [];
    /** @var array<string, list<float>> single measurements, for the plot */
    public array $samples = [];
    /** @var array<string, true> */
    private array $notes = [];
    /** The peer's figure over ours where more is better for us; what the gate keeps. */
    public ?float $ratio = null;

    /** A peer that is named and has no rounds was not measured. */
    public function peer(string $name, string $unit, float ...$values): void
    {
        $this->peers[$name]['unit'] = $unit;
        $this->peers[$name]['runs'] = array_merge($this->peers[$name]['runs'] ?? [], $values);
    }

    public function part(string $name, string $unit, float $value): void
    {
        $this->parts[$name]['unit'] = $unit;
        $this->parts[$name]['runs'][] = $value;
    }

    public function sample(string $name, float ...$values): void
    {
        $this->samples[$name] = array_merge($this->samples[$name] ?? [], $values);
    }

    public function note(string $text): void
    {
        $this->notes[$text] = true;
    }

    /** @return list<string> */
    public function notes(): array
    {
        return array_keys($this->notes);
    }

    public function value(): ?float
    {
        return $this->runs === [] ? null : self::median($this->runs);
    }

    /** @param non-empty-list<float> $values */
    public static function median(array $values): float
    {
        sort($values);
        $middle = intdiv(count($values), 2);
        return count($values) % 2 === 1 ? $values[$middle] : ($values[$middle - 1] + $values[$middle]) / 2;
    }

    /** @param non-empty-list<float> $values the smallest value that this share of them does not exceed */
    public static function quantile(array $values, float $share): float
    {
        sort($values);
        return $values[max(0, (int) ceil($share * count($values)) - 1)];
    }
}
