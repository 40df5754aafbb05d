<?php

declare(strict_types=1);

namespace Cohort\Tests;

/** Features of Laravel's that Cohort must not break. @var string $label @var \Closure $story */

$story('WithoutOverlapping releases, drops, and waits for the lock\'s end', static function (Bench $app): void {
    $locked = static fn (array $calls, int $seconds): string => "app('cache.store')->lock('laravel-queue-overlap:App\\Jobs\\Act:k', {$seconds})->get();";
    $job = static fn (array $calls): array => act('nothing', null, ['through' => [['WithoutOverlapping', ['k'], $calls]]]);
    same([[1, 0]], $app->run([$job([])])->outcomes());
    same([[1, 0]], $app->run([$job([])])->outcomes());
    $app->artisan($locked([], 3600));
    $trace = $app->run([$job(['releaseAfter' => 8]), $job(['dontRelease' => null])]);
    same([[[2, 8], [1, 0]], []], [$trace->outcomes(), $trace->all('ran')], $trace->output);
});

$story('WithoutOverlapping lets go of a job that throws', static function (Bench $app): void {
    $through = ['through' => [['WithoutOverlapping', ['k']]]];
    $trace = $app->run([act('throw', null, $through, ['tries' => 2]), act('nothing', null, $through)]);
    same([[2, 0], [1, 0]], $trace->outcomes(), $trace->output);
});

$story('WithoutOverlapping outlives a death until expireAfter', static function (Bench $app): void {
    $job = static fn (string $what): array => act($what, null, ['through' => [['WithoutOverlapping', ['k'], ['releaseAfter' => 4, 'expireAfter' => 2]]]]);
    same([], $app->run([$job('exit')])->outcomes());
    same([[2, 4]], $app->run([$job('nothing')])->outcomes());
    $until = hrtime(true) + 10e9;
    do {
        $outcomes = $app->run([$job('nothing')])->outcomes();
    } while ($outcomes === [[2, 4]] && hrtime(true) < $until);
    same([[1, 0]], $outcomes);
});

if ($label !== '8.83') {
    $story('WithoutOverlapping can be shared across classes', static function (Bench $app): void {
        $through = ['through' => [['WithoutOverlapping', ['k'], ['shared' => null, 'releaseAfter' => 5]]]];
        $app->run([act('exit', null, $through)]);
        $other = ['job' => [\App\Jobs\BatchAct::class, ['nothing'], $through]];
        same([[2, 5]], $app->run([$other])->outcomes());
    });
}

$story('a unique job is one until it has finished', static function (Bench $app): void {
    $dispatch = "dispatch(new App\\Jobs\\UniqueAct('throw'));";
    $app->artisan($dispatch . $dispatch);
    [$message] = $app->waiting(['tries' => 2]);
    same([[2, 0]], $app->run([$message])->outcomes());
    $app->artisan($dispatch);
    same(1, count($app->waiting()));
    same([[3, 0]], $app->run([['attempts' => 2] + $message])->outcomes());
    $app->artisan($dispatch);
    same(2, count($app->waiting()));
});

$story('RateLimited releases with the time to wait, or drops', static function (Bench $app): void {
    $job = static fn (array $calls): array => act('nothing', null, ['through' => [['RateLimited', ['minute'], $calls]]]);
    $trace = $app->run([$job([]), $job([]), $job(['dontRelease' => null])]);
    [[$first], [$second, $delay], [$third]] = $trace->outcomes();
    same([1, 2, 1], [$first, $second, $third], $trace->output);
    same(true, $delay > 50 && $delay <= 64);
    same(1, count($trace->all('ran')));
});

$story('ThrottlesExceptions puts off what would throw again', static function (Bench $app) use ($label): void {
    $through = ['through' => [['ThrottlesExceptions', [2, $label === '8.83' ? 1 : 60], ['backoff' => 3]]]];
    $job = act('throw', null, $through, ['tries' => 0, 'uuid' => 'u-3']);
    $trace = $app->run([$job, $job, $job]);
    [$first, $second, [$third, $delay]] = $trace->outcomes();
    same([[2, 180], [2, 180], 2], [$first, $second, $third], $trace->output);
    same(true, $delay > 55 && $delay <= 64);
    same(2, count($trace->all('ran')));
});

$story('after_commit is after the commit, and never after a rollback', static function (Bench $app): void {
    foreach (['commit' => [0, 1], 'rollBack' => [0, 0]] as $end => $rows) {
        $app->database()->exec('delete from jobs');
        $trace = $app->run([act('dispatch', $end)]);
        same([[[1, 0]], $rows], [$trace->outcomes(), $trace->names('rows')], $trace->output . $trace->logged());
    }
    $trace = $app->run([act('dispatch'), act('nothing')]);
    same([[1, 0], [1, 0]], $trace->outcomes());
    same([], $app->waiting());
});

$story('a deleted job of a JobProcessing listener is told as processed', static function (Bench $app): void {
    $trace = $app->run([act('nothing')], ['provider' => 'delete']);
    same([[[1, 0]], []], [$trace->outcomes(), $trace->all('ran')]);
    same(true, in_array('JobProcessed', $trace->names('event'), true));
});

if ($label !== '8.83') {
    $story('Context is that of the dispatch, also for a bookkeeper, and not of the job before', static function (Bench $app): void {
        $facade = 'Illuminate\Support\Facades\Context';
        $app->artisan("{$facade}::add('trace', 'abc'); dispatch(new App\\Jobs\\Act('context')); {$facade}::flush();"
            . " dispatch(new App\\Jobs\\Act('context'));");
        $trace = $app->run($app->waiting());
        same([['trace' => 'abc'], []], $trace->names('context'), $trace->output);
        $trace = $app->run([['type' => 'bookkeep'] + $app->waiting()[0]], ['kind' => 'bookkeeper']);
        same([['trace' => 'abc']], $trace->names('failed_context'), $trace->output);
    });
}
