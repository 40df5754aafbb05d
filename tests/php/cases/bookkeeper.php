<?php

declare(strict_types=1);

namespace Cohort\Tests;

/** @var string $label @var \Closure $story */

$keep = static fn (Bench $app, array $message): Trace => $app->run([$message + ['type' => 'bookkeep']], ['kind' => 'bookkeeper']);

$story('a bookkeeper puts a dead worker\'s job back or fails it, and never runs it', static function (Bench $app) use ($keep): void {
    $hour = 3600;
    foreach ([
        'tries left' => [[], ['tries' => 3, 'attempts' => 2, 'backoff' => '3,7'], [2, 7]],
        'the job\'s own backoff' => [['backoff' => 6, 'tries' => 2], ['tries' => 1], [2, 6]],
        'no limit' => [[], ['tries' => 0, 'attempts' => 70], [2, 0]],
        'a deadline to come' => [['retryUntil' => time() + $hour], ['tries' => 1], [2, 0]],
        'failOnTimeout is for timeouts' => [['failOnTimeout' => true], ['tries' => 2], [2, 0]],
        'the last try' => [[], ['tries' => 2, 'attempts' => 2], [3, 0]],
        'a deadline that is over' => [['retryUntil' => time() - 1], ['tries' => 0], [3, 0]],
        'crashed too often' => [[], ['tries' => 0, 'final' => true], [3, 0]],
        'failOnTimeout' => [['failOnTimeout' => true], ['tries' => 2, 'cause' => 'timeout'], [3, 0]],
        'a timeout with tries left' => [[], ['tries' => 2, 'cause' => 'timeout', 'backoff' => '5'], [2, 5]],
    ] as $about => [$properties, $message, $outcome]) {
        $app->database()->exec('delete from failed_jobs');
        $trace = $keep($app, act('nothing', null, $properties, $message));
        same([0, [$outcome], [1], []], [$trace->exit, $trace->outcomes(), $trace->names('begin'), $trace->all('ran')], $about . $trace->output . $trace->logged());
        $failed = $outcome[0] === 3 ? 1 : 0;
        same([$failed, $failed], [count($trace->all('failed_called')), count($app->rows('select * from failed_jobs'))], $about);
        same($failed, count(array_keys($trace->names('event'), 'JobFailed')), $about);
    }
});

$story('a bookkeeper\'s failure names the true cause', static function (Bench $app) use ($keep, $label): void {
    $text = 'The worker that ran App\Jobs\Act ended: signal 11 (SIGSEGV)';
    $trace = $keep($app, act('nothing', null, [], ['text' => $text]));
    same(['Cohort\WorkerDied', $text], $trace->first('failed_called'), $trace->output . $trace->logged());
    contains("Cohort\WorkerDied: {$text}", $trace->first('end')[3]);
    [$row] = $app->rows('select * from failed_jobs');
    contains("Cohort\WorkerDied: {$text}", $row['exception']);
    contains($text, file_get_contents("{$app->dir}/storage/logs/laravel.log"));

    $trace = $keep($app, act('nothing', null, [], ['cause' => 'timeout', 'text' => 'killed']));
    contains($label === '8.83' ? 'attempted too many times or run too long' : 'App\Jobs\Act has timed out', $trace->first('failed_called')[1]);
    same($label === '8.83' ? 0 : 1, count(array_keys($trace->names('event'), 'JobTimedOut')));
});

$story('a crash counts as an exception, across workers', static function (Bench $app) use ($keep): void {
    $message = act('nothing', null, ['maxExceptions' => 2], ['tries' => 0, 'uuid' => 'u-9']);
    same([[2, 0]], $keep($app, $message)->outcomes());
    same([[3, 0]], $keep($app, $message)->outcomes());
    same([[2, 0]], $keep($app, $message)->outcomes());
    same([[3, 0]], $app->run([act('throw', null, ['maxExceptions' => 2], ['tries' => 0, 'uuid' => 'u-9'])])->outcomes());
});

$story('a bookkeeper frees the unique lock of a failed job', static function (Bench $app) use ($keep): void {
    $dispatch = "dispatch(new App\\Jobs\\UniqueAct('nothing'));";
    $app->artisan($dispatch . $dispatch);
    [$message] = $app->waiting();
    same(1, count($app->waiting()));
    same([[2, 0]], $keep($app, ['tries' => 2] + $message)->outcomes());
    $app->artisan($dispatch);
    same(1, count($app->waiting()));
    same([[3, 0]], $keep($app, $message)->outcomes());
    $app->artisan($dispatch);
    same(2, count($app->waiting()));
});

$story('a bookkeeper settles the batch of a failed job', static function (Bench $app) use ($keep): void {
    $app->artisan("Illuminate\\Support\\Facades\\Facade::setFacadeApplication(\$app);"
        . "Illuminate\\Support\\Facades\\Bus::batch([new App\\Jobs\\BatchAct('nothing'), new App\\Jobs\\BatchAct('nothing')])->dispatch();");
    [$first, $second] = $app->waiting();
    $trace = $keep($app, $first);
    same([[3, 0]], $trace->outcomes(), $trace->output . $trace->logged());
    [$batch] = $app->rows('select * from job_batches');
    same([2, 1, true], [$batch['pending_jobs'], $batch['failed_jobs'], $batch['cancelled_at'] !== null]);
    same([json_decode($first['payload'])->uuid], json_decode($batch['failed_job_ids']));
});

$story('a bookkeeper that cannot record the failure leaves the job as it was', static function (Bench $app) use ($keep): void {
    $app->database()->exec('drop table failed_jobs');
    $trace = $keep($app, act('nothing'));
    same([1, []], [$trace->exit, $trace->all('end')], $trace->output);
    contains('could not be settled', $trace->logged());
});

$story('failed() that throws does not keep a bookkeeper from its work', static function (Bench $app) use ($keep): void {
    $trace = $keep($app, act('nothing', null, ['onFailed' => 'throw']));
    same([0, [[3, 0]], 1], [$trace->exit, $trace->outcomes(), count($trace->all('failed_called'))], $trace->output);
    same(1, count($app->rows('select * from failed_jobs')));
    contains('failed() has failed', file_get_contents("{$app->dir}/storage/logs/laravel.log"));
});

$story('a bookkeeper does not use a connection opened at boot', static function (Bench $app): void {
    $trace = $app->run([act('nothing', null, [], ['type' => 'bookkeep'])], ['kind' => 'bookkeeper', 'provider' => 'open']);
    same([0, [[3, 0]]], [$trace->exit, $trace->outcomes()], $trace->output);
    same(1, count($app->rows('select * from failed_jobs')));
});
