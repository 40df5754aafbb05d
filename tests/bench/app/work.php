<?php

/**
 * A fixed amount of CPU work; the bench finds out how many rounds take 20 ms here. It is spent in C,
 * so that OPcache, which only one arm has switched on, makes it no cheaper.
 */
function bench_work(int $rounds): string
{
    static $block = null;
    $block = $block ?? str_repeat('cohort', 2000);
    $hash = '';
    for ($i = 0; $i < $rounds; $i++) {
        $hash = hash('sha512', $block);
    }
    return $hash;
}
