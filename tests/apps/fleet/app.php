<?php

/* Jobs of a fleet: each notes its start and its end, and takes as long as its data say. */

function note(string $what, string $id, int $attempt): void
{
    $line = sprintf("%.6f %d %s %s %d\n", microtime(true), getmypid(), $what, $id, $attempt);
    file_put_contents(__DIR__.'/results.log', $line, FILE_APPEND);
}

return new Cohort\App(
    job: function (Cohort\Job $job): void {
        note('run', $job->data['id'], $job->attempts);
        usleep((int) ($job->data['seconds'] * 1000000));
        note('end', $job->data['id'], $job->attempts);
    },
);
