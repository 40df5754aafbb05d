<?php

declare(strict_types=1);

/* Compares the ratios of a run with the stored ones: gate.php RATIOS ROWS [STORE] */

[, $file, $rows] = $argv;
$now = [];
foreach (file($rows, FILE_IGNORE_NEW_LINES | FILE_SKIP_EMPTY_LINES) as $line) {
    $row = json_decode($line, true, 16, JSON_THROW_ON_ERROR);
    $now[$row['name']] = $row['ratio'];
}
if (isset($argv[3])) {
    file_put_contents($file, json_encode($now, JSON_PRETTY_PRINT) . "\n");
    echo "stored " . count($now) . " ratios\n";
    exit(0);
}

$failed = 0;
foreach (json_decode((string) file_get_contents($file), true, 4, JSON_THROW_ON_ERROR) as $name => $stored) {
    $ratio = $now[$name] ?? null;
    $fell = $ratio === null || $ratio < $stored / 2;
    $failed += (int) $fell;
    printf("%-4s %-13s %s, stored %.2f\n", $fell ? 'FAIL' : 'ok', $name, $ratio === null ? 'not measured' : sprintf('%.2f', $ratio), $stored);
}
if ($failed > 0) {
    echo "error: {$failed} ratios to queue:work are less than half of what they were. Look at the row with\n"
        . "tests/bench/run.sh NAME, and at what changed; tests/bench/gate.sh --store is for a change that is meant.\n";
}
exit($failed > 0 ? 1 : 0);
