<?php

declare(strict_types=1);

namespace Cohort\Bench;

/** A row as an SVG file: a bar an arm with its rounds as dots; single measurements as cumulative curves. */
final class Plot
{
    private const WIDTH = 640;
    private const LEFT = 200;
    private const BAR = 22;
    private const STEP = 34;
    private const CURVE_HEIGHT = 180;
    private const COLOURS = ['#2b6cb0', '#c05621', '#2f855a', '#6b46c1', '#4a5568'];

    private string $body = '';
    private int $y = 48;

    public static function draw(string $name, Result $result): string
    {
        [$what, $unit, $sense, $goal] = Rows::ALL[$name];
        $plot = new self();
        $plot->text(12, 24, "{$name}: {$what}", 15);
        // Each unit has a scale of its own.
        $groups = [$unit => [$name => $result->runs]];
        foreach ($result->parts + $result->peers as $other => $figure) {
            $groups[$figure['unit']][$other] = $figure['runs'];
        }
        foreach ($groups as $of => $bars) {
            $plot->bars($bars, $of, $of === $unit ? $goal : null, $sense);
        }
        if ($result->samples !== []) {
            $plot->curves($result->samples, $unit);
        }
        return $plot->svg();
    }

    /** @param array<string, list<float>> $bars */
    private function bars(array $bars, string $unit, ?float $goal, string $sense): void
    {
        $max = max(1e-9, $goal ?? 0, ...array_map(static fn (array $runs): float => max([0.0, ...$runs]), array_values($bars)));
        $scale = (self::WIDTH - self::LEFT - 110) / $max;
        $top = $this->y;
        $colour = 0;
        foreach ($bars as $label => $runs) {
            $middle = $this->y + self::BAR / 2;
            $this->text(self::LEFT - 8, $middle + 4, $this->short($label), 11, 'end');
            if ($runs === []) {
                $this->text(self::LEFT + 4, $middle + 4, 'not measured', 11);
            } else {
                $median = Result::median($runs);
                $this->body .= sprintf('<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s" fill-opacity=".55"/>' . "\n",
                    self::LEFT, $this->y, $median * $scale, self::BAR, self::COLOURS[$colour++ % count(self::COLOURS)]);
                foreach ($runs as $run) {
                    $this->body .= sprintf('<circle cx="%.1f" cy="%.1f" r="3" fill="#1a202c"/>' . "\n", self::LEFT + $run * $scale, $middle);
                }
                $this->text(self::LEFT + max($runs) * $scale + 8, $middle + 4, Report::number($median) . " {$unit}", 11);
            }
            $this->y += self::STEP;
        }
        if ($goal !== null) {
            $x = self::LEFT + $goal * $scale;
            $this->body .= sprintf('<line x1="%.1f" y1="%d" x2="%1$.1f" y2="%d" stroke="#c53030" stroke-dasharray="4 3"/>' . "\n",
                $x, $top - 4, $this->y - 8);
            $this->text($x, $this->y + 4, "goal {$sense} " . Report::number($goal), 10, 'middle', '#c53030');
            $this->y += 16;
        }
        $this->y += 8;
    }

    /** @param array<string, list<float>> $samples on a logarithmic axis */
    private function curves(array $samples, string $unit): void
    {
        $all = array_merge(...array_values($samples));
        $low = floor(log10(max(0.01, min($all))));
        $high = max($low + 1, ceil(log10(max(0.01, max($all)))));
        $width = self::WIDTH - self::LEFT - 110;
        $x = static fn (float $value): float => self::LEFT + (log10(max(10 ** $low, $value)) - $low) / ($high - $low) * $width;
        $top = $this->y + 14;
        $bottom = $top + self::CURVE_HEIGHT;
        for ($power = $low; $power <= $high; $power++) {
            $this->body .= sprintf('<line x1="%.1f" y1="%d" x2="%1$.1f" y2="%d" stroke="#cbd5e0"/>' . "\n", $x(10 ** $power), $top, $bottom);
            $this->text($x(10 ** $power), $bottom + 14, (string) (10 ** $power) . " {$unit}", 10, 'middle');
        }
        foreach ([0.0, 0.5, 0.99] as $share) {
            $y = $bottom - $share * self::CURVE_HEIGHT;
            $this->body .= sprintf('<line x1="%d" y1="%.1f" x2="%d" y2="%2$.1f" stroke="#cbd5e0"/>' . "\n", self::LEFT, $y, self::LEFT + $width);
            $this->text(self::LEFT - 8, $y + 4, ($share * 100) . ' % of them', 10, 'end');
        }
        $colour = 0;
        foreach ($samples as $label => $values) {
            sort($values);
            $points = [];
            foreach ($values as $n => $value) {
                $points[] = sprintf('%.1f,%.1f', $x($value), $bottom - ($n + 1) / count($values) * self::CURVE_HEIGHT);
            }
            $stroke = self::COLOURS[$colour % count(self::COLOURS)];
            $this->body .= sprintf('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' . "\n", implode(' ', $points), $stroke);
            $this->text(self::LEFT + $width + 8, $top + 12 + 16 * $colour++, $this->short($label), 11, 'start', $stroke);
        }
        $this->y = $bottom + 24;
    }

    private function text(float $x, float $y, string $text, int $size, string $anchor = 'start', string $fill = '#1a202c'): void
    {
        $this->body .= sprintf('<text x="%.1f" y="%.1f" font-size="%d" text-anchor="%s" fill="%s">%s</text>' . "\n",
            $x, $y, $size, $anchor, $fill, htmlspecialchars($text, ENT_XML1));
    }

    private function short(string $label): string
    {
        return strlen($label) > 32 ? substr($label, 0, 31) . '…' : $label;
    }

    private function svg(): string
    {
        return sprintf('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif">' . "\n"
            . '<rect width="100%%" height="100%%" fill="#fff"/>' . "\n%s</svg>\n", self::WIDTH, $this->y + 8, $this->body);
    }
}
