<?php

/**
 * Dispatches COUNT jobs with Laravel's own dispatch(): every twentieth is delayed by a second or
 * two, every fiftieth fails once, the last one fails every time.
 *
 * Prints how many it has dispatched after every hundred, then what they were.
 *
 * Usage: php dispatch.php [COUNT]
 */

use App\Jobs\Step;

require __DIR__.'/vendor/autoload.php';
$app = require __DIR__.'/bootstrap/app.php';
$app->make(Illuminate\Contracts\Console\Kernel::class)->bootstrap();

$count = (int) ($argv[1] ?? 1000);
$delayed = $fails = 0;
for ($n = 1; $n <= $count; $n++) {
    $failures = $n === $count ? PHP_INT_MAX : ($n % 50 === 25 ? 1 : 0);
    $fails += $failures === 1 ? 1 : 0;
    $job = new Step($n, $failures);
    if ($n % 20 === 10) {
        $job->delay(1 + $n % 2);
        $delayed++;
    }
    dispatch($job);
    if ($n % 100 === 0) {
        echo "$n\n";
    }
}
echo "dispatched $count jobs: $delayed delayed, $fails fail once, 1 always fails\n";
