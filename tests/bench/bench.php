<?php

declare(strict_types=1);

/* The bench itself; run.sh builds, makes sure that what it needs is there, and calls it. */

namespace Cohort\Bench;

spl_autoload_register(static function (string $class): void {
    $prefix = __NAMESPACE__ . '\\';
    if (str_starts_with($class, $prefix)) {
        require __DIR__ . '/src/' . substr($class, strlen($prefix)) . '.php';
    }
});

/** @var array<string, mixed> $options */
$options = json_decode($argv[1], true, 8, JSON_THROW_ON_ERROR);
exit(main($options));

/** @param array<string, mixed> $options */
function main(array $options): int
{
    $say = static function (string $line): void {
        fwrite(STDERR, "{$line}\n");
    };
    $load = Machine::load();
    $say('machine  ' . Machine::describe() . ", load average {$load}");
    if (!Machine::settle($options['busy'] ? 0 : 120)) {
        $say('BUSY     other work takes the CPUs (load average ' . Machine::load() . '): figures taken now say nothing of the programs');
        if (!$options['busy']) {
            $say('error: not measured. Wait until the machine is quiet, or pass --busy to measure all the same.');
            return 3;
        }
    }
    $load = Machine::load();
    $lab = new Lab($options['root'], $options['build'] . '/bin', $options['build'] . '/bench', $options['laravel']);
    pcntl_async_signals(true);
    foreach ([SIGINT, SIGTERM] as $signal) {
        pcntl_signal($signal, static function () use ($lab): never {
            $lab->close();
            exit(130);
        });
    }
    try {
        return measure($options, $lab, $say, $load);
    } finally {
        $lab->close();
    }
}

/** @param callable(string): void $say */
function measure(array $options, Lab $lab, callable $say, string $load): int
{
    $rows = new Rows($lab, $options['quick'], $options['rounds'], $say);
    $results = [];
    $failed = 0;
    $allQuiet = true;
    foreach ($options['names'] as $name) {
        $begin = microtime(true);
        $share = Machine::share();
        $allQuiet = $allQuiet && Machine::quiet($share);
        $say(sprintf('%s  (load average %s, others take %.0f %% of the CPUs)', $name, Machine::load(), $share * 100));
        try {
            $results[$name] = $rows->run($name);
        } catch (Failure | \PDOException $failure) {
            $say("FAILED {$name}: {$failure->getMessage()}");
            $failed++;
            continue;
        }
        $say(sprintf('  took %.0f s', microtime(true) - $begin));
        echo $options['json']
            ? json_encode(Report::data($name, $results[$name], $options['quick'], Machine::quiet($share)), JSON_UNESCAPED_SLASHES) . "\n"
            : Report::text($name, $results[$name]);
        if ($options['plot'] !== '') {
            file_put_contents("{$options['plot']}/{$name}.svg", Plot::draw($name, $results[$name]));
        }
    }
    if ($options['quick'] || !$allQuiet) {
        $say('note: ' . ($allQuiet ? 'a quick run' : 'a run on a busy machine') . '; its figures are not to be judged by the goals');
    }
    if ($options['write'] && !$allQuiet) {
        $say('error: the README keeps its figures: other work took the CPUs during this run');
        return 1;
    }
    if ($options['write'] && $failed === 0) {
        Report::write(__DIR__ . '/README.md', $results, Machine::describe(), $load, $lab->laravelVersion());
        $say('wrote the table of tests/bench/README.md');
    }
    return $failed > 0 ? 1 : 0;
}
