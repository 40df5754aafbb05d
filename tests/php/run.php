<?php

declare(strict_types=1);

/*
 * Tests of worker/php without the C side: php tests/php/run.php [WORD]
 *
 * Runs against Laravel 8.83 where Debian's php-laravel-framework is installed, and against the
 * directories with a vendor/ that COHORT_TEST_LARAVEL12 and COHORT_TEST_LARAVEL13 name. WORD picks the
 * tests whose name holds it.
 */

namespace Cohort\Tests;

require __DIR__ . '/Bench.php';
require __DIR__ . '/RedisServer.php';

final class Failure extends \Exception
{
}

/** @var array<string, callable> $tests */
$tests = [];

function test(string $sentence, callable $body): void
{
    global $tests;
    $tests[$sentence] = $body;
}

/** Fail unless both are the same. */
function same(mixed $expected, mixed $actual, string $about = ''): void
{
    if ($expected !== $actual) {
        throw new Failure("{$about} expected " . var_export($expected, true) . "\n but got " . var_export($actual, true));
    }
}

function contains(string $part, string $whole): void
{
    if (!str_contains($whole, $part)) {
        throw new Failure("expected to find \"{$part}\" in:\n{$whole}");
    }
}

/** @return array<string, string> label to autoload file of the Laravels there are */
function laravels(): array
{
    $found = [];
    if (is_file('/usr/share/php/Illuminate/autoload.php')) {
        $found['8.83'] = '/usr/share/php/Illuminate/autoload.php';
    }
    foreach (['12' => 'COHORT_TEST_LARAVEL12', '13' => 'COHORT_TEST_LARAVEL13'] as $label => $variable) {
        $file = getenv($variable) . '/vendor/autoload.php';
        if (getenv($variable) && is_file($file)) {
            $found[$label] = $file;
        }
    }
    return $found;
}

/** A message with a job that does this; the arguments and properties are those of App\Jobs\Act. */
function act(string $what, mixed $how = null, array $properties = [], array $message = []): array
{
    return $message + ['job' => [\App\Jobs\Act::class, [$what, $how], $properties]];
}

foreach (laravels() as $label => $autoload) {
    (static function (string $label, \Closure $bench): void {
        $story = static function (string $sentence, callable $body) use ($label, $bench): void {
            test("Laravel {$label}: {$sentence}", static function () use ($body, $bench): void {
                $app = $bench();
                try {
                    $body($app);
                } finally {
                    $app->done();
                }
            });
        };
        foreach (['laravel', 'limits', 'bookkeeper', 'features', 'redis'] as $file) {
            require __DIR__ . "/cases/{$file}.php";
        }
    })((string) $label, static fn (): Bench => Bench::laravel((string) $label, $autoload));
}
require __DIR__ . '/cases/plain.php';
require __DIR__ . '/cases/boot.php';

$chosen = array_filter($tests, static fn (string $sentence): bool => str_contains($sentence, $argv[1] ?? ''), ARRAY_FILTER_USE_KEY);

/**
 * Run every nth of the chosen tests and tell which failed.
 *
 * @return array{int, int} passed and failed
 */
$run = static function (int $first, int $step) use ($chosen): array {
    $passed = $failed = 0;
    for ($i = $first; $i < count($chosen); $i += $step) {
        $sentence = array_keys($chosen)[$i];
        try {
            $chosen[$sentence]();
            $passed++;
        } catch (\Throwable $error) {
            $failed++;
            echo "FAILED {$sentence}\n ", $error instanceof Failure ? $error->getMessage() : (string) $error, "\n";
        }
    }
    return [$passed, $failed];
};

/** One part of the tests in a process of its own. @return resource what it writes its counts to */
$fork = static function (int $first, int $step) use ($run) {
    [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    if (pcntl_fork() === 0) {
        fwrite($theirs, implode(' ', $run($first, $step)));
        exit(0);
    }
    fclose($theirs);
    stream_set_timeout($ours, 3600);
    return $ours;
};

// Half of the time is spent waiting for time limits.
$step = max(1, (int) (getenv('COHORT_TEST_JOBS') ?: 4));
$parts = array_map(static fn (int $first) => $fork($first, $step), range(0, $step - 1));
$passed = $failed = $lost = 0;
foreach ($parts as $part) {
    $counts = explode(' ', stream_get_contents($part));
    $lost += count($counts) === 2 ? 0 : 1;
    $passed += (int) $counts[0];
    $failed += (int) ($counts[1] ?? 0);
}
while (pcntl_wait($status) > 0);
$lost === 0 || print("FAILED: {$lost} processes of tests ended early\n");
$failed += $lost;
foreach (['8.83', '12', '13'] as $label) {
    isset(laravels()[$label]) || print("left out: Laravel {$label} is not here\n");
}
echo "{$passed} passed, {$failed} failed\n";
exit($failed === 0 ? 0 : 1);
