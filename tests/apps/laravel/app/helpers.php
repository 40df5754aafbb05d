<?php

use App\Jobs\Probe;

if (! function_exists('note')) {
    /** Append "TIME PID WHAT ID ATTEMPT" to results.log; one write, so that lines never mix. */
    function note(string $what, string $id, int $attempt)
    {
        $line = sprintf("%.6f %d %s %s %d\n", microtime(true), getmypid(), $what, $id, $attempt);
        file_put_contents(base_path('results.log'), $line, FILE_APPEND);
    }

    function probe(string $id, array $script = ['ok'], array $options = [])
    {
        return new Probe($id, $script, $options);
    }
}
