<?php

declare(strict_types=1);

namespace Cohort\Tests;

/** @var string $label @var \Closure $story */

$story('a timeout releases with its backoff and kills the worker', static function (Bench $app): void {
    $trace = $app->run([act('hang', null, ['backoff' => 6], ['tries' => 2, 'timeout' => 1])]);
    same(-SIGKILL, $trace->exit, $trace->output);
    contains('ran longer than its timeout of 1 s', $trace->logged());
    same([[2, 6]], $trace->outcomes());
    same([], $app->rows('select * from failed_jobs'));
    same(true, in_array('WorkerStopping', $trace->names('event'), true));
});

$story('a timeout of the last try fails, and is recorded though a transaction was open', static function (Bench $app) use ($label): void {
    $trace = $app->run([act('hang_in_transaction', null, ['timeout' => 1], ['tries' => 1])]);
    same([-SIGKILL, [[3, 0]]], [$trace->exit, $trace->outcomes()], $trace->output);
    contains($label === '8.83' ? 'MaxAttemptsExceeded' : 'TimeoutExceeded', $trace->first('end')[3]);
    same(1, count($app->rows('select * from failed_jobs')));
    same([], $app->rows('select * from probe'));
    same(1, count($trace->all('failed_called')));
});

$story('failOnTimeout fails at once', static function (Bench $app): void {
    $trace = $app->run([act('hang', null, ['failOnTimeout' => true, 'timeout' => 1], ['tries' => 5])]);
    same([[3, 0]], $trace->outcomes());
});

$story('what a job had said of itself stands when its time is over', static function (Bench $app): void {
    foreach ([
        ['release_hang', 9, [], ['tries' => 3], [2, 9]],
        ['release_hang', 9, [], ['tries' => 1], [3, 0]],
        ['delete_hang', null, [], ['tries' => 1], [1, 0]],
    ] as [$what, $how, $properties, $message, $outcome]) {
        $trace = $app->run([act($what, $how, $properties + ['timeout' => 1], $message)]);
        same([-SIGKILL, [$outcome], 4], [$trace->exit, $trace->outcomes(), $trace->first('end')[5]], $trace->output);
    }
});

$story('a time limit inside failed() leaves the record of the failure', static function (Bench $app): void {
    $trace = $app->run([act('throw', null, ['timeout' => 1, 'onFailed' => 'hang'])]);
    same([-SIGKILL, [[3, 0]], 1], [$trace->exit, $trace->outcomes(), count($trace->all('failed_called'))], $trace->output);
    [$row] = $app->rows('select * from failed_jobs');
    contains('DomainException: told to', $row['exception']);
    contains('DomainException: told to', $trace->first('end')[3]);
});

$story('a failure that cannot be recorded is left to a bookkeeper', static function (Bench $app): void {
    $app->database()->exec('drop table failed_jobs');
    $trace = $app->run([act('hang', null, ['timeout' => 1])]);
    same([-SIGKILL, []], [$trace->exit, $trace->outcomes()], $trace->output);
    contains('could not be recorded', $trace->logged());
});

if ($label !== '8.83') {
    $story('JobTimedOut is raised', static function (Bench $app): void {
        $trace = $app->run([act('hang', null, ['timeout' => 1], ['tries' => 2])]);
        same(['JobProcessing', 'JobTimedOut', 'WorkerStopping'], array_slice($trace->names('event'), -3), $trace->output);
        same([[1, 'TimedOut']], $trace->all('stopping'));
    });
}

if ($label === '13') {
    $story('an Interruptible job hears that its worker is to stop', static function (Bench $app): void {
        $job = static fn (mixed $how, array $message): array => $message + ['job' => [\App\Jobs\InterruptibleAct::class, ['stop', $how]]];
        $trace = $app->run([$job(null, []), act('nothing')]);
        same([0, [[1, 0]], [SIGTERM]], [$trace->exit, $trace->outcomes(), $trace->names('interrupted')], $trace->output);
        same(
            ['JobProcessing', 'WorkerInterrupted', 'JobInterrupted', 'JobProcessed'],
            array_values(array_intersect($trace->names('event'), ['JobProcessing', 'WorkerInterrupted', 'JobInterrupted', 'JobProcessed'])),
        );
        same([[0, 'Interrupted']], $trace->all('stopping'));
        $trace = $app->run([$job('refuse', ['tries' => 2, 'backoff' => '4'])]);
        same([[2, 4]], $trace->outcomes(), $trace->output);
        contains('not now', $trace->first('end')[3]);
    });

    $story('a stop that comes just before the job throws nothing into the worker', static function (Bench $app): void {
        $trace = $app->run([act('nothing')], ['provider' => 'stop_early']);
        same([0, [[1, 0]], [true]], [$trace->exit, $trace->outcomes(), $trace->names('told')], $trace->output);
    });

    $story('an Interruptible job hears of its time limit and of a quit signal', static function (Bench $app): void {
        $job = static fn (string $what, array $properties): array => ['job' => [\App\Jobs\InterruptibleAct::class, [$what], $properties]];
        same([SIGALRM], $app->run([$job('hang', ['timeout' => 1])])->names('interrupted'));
        $trace = $app->run([$job('term', [])]);
        same([[[1, 0]], [SIGTERM]], [$trace->outcomes(), $trace->names('interrupted')]);
    });
}

if (in_array($label, ['8.83', '12'], true)) {
    $story('a version without Interruptible is not told of a stop', static function (Bench $app): void {
        $trace = $app->run([act('stop'), act('nothing')]);
        same([0, [[1, 0], [1, 0]], [false]], [$trace->exit, $trace->outcomes(), $trace->names('told')], $trace->output);
    });
}
