<?php

declare(strict_types=1);

namespace Cohort\Tests;

/** Boot a directory with this app.php (null: none) and tell what the boot failed with. */
$boot = static function (?string $app, array $config = []): Trace {
    $bench = new Bench('boot');
    try {
        $app === null || $bench->write('app.php', $app);
        return $bench->run([], ['config' => $config]);
    } finally {
        $bench->done();
    }
};

foreach ([
    'nothing there names what was looked for' => [null, [], 'looked for artisan and bootstrap/app.php (Laravel), and for app.php'],
    'no directory given' => [null, ['app' => ''], '--app DIR'],
    'a directory that is not there' => [null, ['app' => '/nonexistent'], '/nonexistent does not exist'],
    'an app.php that returns something else' => ['<?php return 1;', [], 'returns int, not a Cohort\App'],
    'an app.php without a job handler' => ['<?php return new Cohort\App();', [], 'no job handler'],
    'an app.php that throws' => ['<?php throw new DomainException("why");', [], 'did not boot: DomainException: why in '],
    'a syntax error' => ['<?php return (;', [], 'ParseError'],
    'an env_file that is not there' => ['<?php return new Cohort\App(fn () => 1);', ['env_file' => 'no.env'], 'no.env does not exist'],
] as $sentence => [$app, $config, $part]) {
    test("boot: {$sentence}", static function () use ($boot, $app, $config, $part): void {
        $trace = $boot($app, $config);
        same(70, $trace->exit, $trace->output);
        contains($part, $trace->first('boot_failed')[0]);
    });
}

test('boot: a request handler is named as not used yet', static function () use ($boot): void {
    $trace = $boot('<?php return new Cohort\App(job: fn () => 1, request: fn () => 2);');
    same(0, $trace->exit, $trace->output);
    contains('HTTP pools come with a later version', $trace->logged());
});

foreach (laravels() as $label => $autoload) {
    test("boot: Laravel {$label} whose provider throws is a boot failure with its text", static function () use ($label, $autoload): void {
        $bench = Bench::laravel((string) $label, $autoload);
        try {
            $bench->write('config/cache.php', '<?php throw new DomainException("bad configuration");');
            $trace = $bench->run([]);
            same(70, $trace->exit, $trace->output);
            contains('DomainException: bad configuration', $trace->first('boot_failed')[0]);
            $bench->write('bootstrap/app.php', '<?php return 1;');
            contains('does not return the application', $bench->run([])->first('boot_failed')[0]);
        } finally {
            $bench->done();
        }
    });
}
