<?php

/* Does what a job's data say and writes it down in results.log, like Probe of the Laravel fixtures. */

function note(string $what, string $id, int $attempt): void
{
    $line = sprintf("%.6f %d %s %s %d\n", microtime(true), getmypid(), $what, $id, $attempt);
    file_put_contents(__DIR__.'/results.log', $line, FILE_APPEND);
}

/** A row in the queue's own database, then the end of this worker. */
function writeExit(string $id): never
{
    $db = new PDO('sqlite:'.getenv('E2E_DATABASE'));
    $db->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);
    $db->setAttribute(PDO::ATTR_TIMEOUT, 10);
    $db->prepare('insert into items (name) values (?)')->execute([$id]);
    exit(0);
}

/** Work until this worker is told to stop, then finish. */
function untilStop(string $id, int $attempt): void
{
    $stopped = false;
    Cohort\Worker\on_stop(function () use (&$stopped, $id, $attempt): void {
        $stopped = true;
        note('stop', $id, $attempt);
    });
    note('listens', $id, $attempt);
    for ($until = microtime(true) + 30; !$stopped && microtime(true) < $until;) {
        usleep(10000);
    }
}

/** Cut the wire that this worker and the agent share. */
function cut(string $runDir): void
{
    foreach (glob("$runDir/*/w*") as $wire) {
        ftruncate(fopen($wire, 'r+'), 0);
    }
    sleep(30);
}

return new Cohort\App(
    job: function (Cohort\Job $job): void {
        ['id' => $id, 'do' => $script] = $job->data;
        note('run', $id, $job->attempts);
        $action = $script[min($job->attempts, count($script)) - 1];
        [$verb, $argument] = explode(':', $action, 2) + [1 => ''];
        match ($verb) {
            'ok' => null,
            'throw' => throw new RuntimeException("$id attempt $job->attempts"),
            'release' => $job->release((int) $argument),
            'fail' => $job->fail($argument),
            'exit' => exit((int) $argument),
            'writeExit' => writeExit($id),
            'cut' => cut($argument),
            'untilStop' => untilStop($id, $job->attempts),
            'dispatch' => Cohort\dispatch($argument, ['id' => "$id-child", 'do' => ['ok']]),
        };
        note('end', $id, $job->attempts);
    },
);
