#!/usr/bin/env bats
# Laravel's queue semantics about the life of workers, line by line and in every way to make a
# worker; the numbers are those of the project's conformance list.

load helper

# within VALUE LOW HIGH
within() {
    calc "$1 >= $2 && $1 <= $3" || {
        echo "$1 is not between $2 and $3"
        return 1
    }
}

gap() { times run "$1" | awk 'NR > 1 { printf "%.3f\n", $1 - last } { last = $1 }'; }

timeout_exception() {
    if calc "$COHORT_E2E_LARAVEL >= 11"; then echo TimeoutExceededException; else echo MaxAttemptsExceededException; fi
}

# hold_as_stock AGO...: reserve the first ready jobs as a stock worker does, so many seconds ago.
hold_as_stock() {
    local ago
    if [ "$SOURCE" = sqlite ]; then
        for ago in "$@"; do
            sql "update jobs set reserved_at = strftime('%s', 'now') - $ago, attempts = 1
                where id = (select min(id) from jobs where reserved_at is null)"
        done
        return
    fi
    app_php <<PHP
\$queue = app('queue')->connection('redis');
\$jobs = array_map(fn (int \$ago) => [\$ago, \$queue->pop()->getReservedJob()], [$(IFS=,; echo "$*")]);
foreach (\$jobs as [\$ago, \$member]) {
    app('redis')->connection()->zincrby('queues:default:reserved', -\$ago, \$member);
}
PHP
}

retry_after() {
    app_env DB_QUEUE_RETRY_AFTER "$1"
    app_env REDIS_QUEUE_RETRY_AFTER "$1"
}

held_for() { calc "$(now) - $1 > $2"; }

@test "16 timeout 1, tries 2: ended at its time, again at once, then failed" {
    line() {
        app_php <<<'dispatch(probe("a", ["sleep:20"], ["tries" => 2, "timeout" => 1])); dispatch(probe("b", ["ok"]));'
        boot_pool 'workers: 1'
        wait_for 15 failed_is 1
        wait_for 5 ended b
        is "$(attempts a)" "1 2"
        within "$(gap a)" 0.95 "4*$SLOW"
        has "$(sql 'select exception from failed_jobs')" "$(timeout_exception)"
        is "$(exits job_timeout) $(count failed a)" "2 1"
        stop_agent
    }
    each_boot line
}

@test "17 failOnTimeout: failed on the first timeout whatever tries is" {
    line() {
        app_php <<<'dispatch(probe("a", ["sleep:20"], ["tries" => 5, "timeout" => 1, "failOnTimeout" => true]));
            dispatch(probe("b", ["deaf"], ["tries" => 5, "timeout" => 1, "failOnTimeout" => true]));'
        boot_pool 'workers: 2'
        wait_for 15 failed_is 2
        is "$(attempts a) / $(attempts b)" "1 / 1"
        is "$(count failed a) $(count failed b)" "1 1"
        stop_agent
    }
    each_boot line
}

@test "18 the job's timeout beats --timeout" {
    line() {
        app_php <<<'dispatch(probe("a", ["sleep:20"], ["timeout" => 1])); dispatch(probe("b", ["nap:2500"], ["timeout" => 20]));
            dispatch(probe("c", ["nap:300"]));'
        boot_pool 'workers: 3' -- --timeout 2
        wait_for 10 failed_is 1
        wait_for 10 ended b
        wait_for 10 ended c
        is "$(count failed a) $(jobs_failed)" "1 1"
        stop_agent
    }
    each_boot line
}

@test "19 kill -9 of the worker, tries 2: again at once, attempts 2" {
    line() {
        app_php <<<"dispatch(probe('a', ['hold:$DIR/go', 'ok'], ['tries' => 2]));"
        boot_pool 'workers: 1'
        wait_for 10 ran a
        killed=$(now)
        kill -KILL "$(notes run | awk '{ print $2 }')"
        wait_for 10 ended a
        is "$(attempts a)" "1 2"
        within "$(times run a | tail -n 1) - $killed" 0 "1*$SLOW"
        is "$(exits killed) $(jobs_failed)" "1 0"
        stop_agent
    }
    each_boot line
}

@test "20 a row that a stock worker holds is available again after retry_after, not before" {
    retry_after 5
    line() {
        app_php <<<'dispatch(probe("a", ["ok"], ["tries" => 3])); dispatch(probe("b", ["ok"], ["tries" => 3]));'
        hold_as_stock 1000 0
        reserved=$(date +%s)
        boot_pool 'workers: 1'
        wait_for 10 ended a
        wait_for 10 ended b
        is "$(attempts a) $(attempts b)" "2 2"
        within "$(times run b) - $reserved" 3.9 "6.5+$SLOW-1"
        calc "$(times run a) < $(times run b)"
        stop_agent
    }
    each_boot line
}

@test "21 a job longer than retry_after runs once, beside a second agent and a stock worker" {
    retry_after 2
    app_php <<<'dispatch(probe("a", ["nap:5000"], ["tries" => 3]));'
    BOOT=preload
    boot_pool 'workers: 1'
    first=$AGENT
    wait_for 10 ran a
    launch second --app "$APP" --run-dir "$DIR/run2" --state-dir "$DIR/state2" --workers 1
    php "$APP/artisan" queue:work --sleep=0.1 --tries=3 >>"$DIR/stock.log" 2>&1 </dev/null 3>&- {PAUSE_FD}>&- &
    STARTED+=("$!")
    wait_for 15 ended a
    wait_for 5 settled
    is "$(attempts a) $(jobs_failed)" "1 0"
    stop_agent
    AGENT=$first && stop_agent
}

@test "25 queue:clear: nothing begins later than 100 ms after it has returned" {
    line() {
        app_php <<'PHP'
Illuminate\Support\Facades\DB::transaction(function () {
    for ($i = 1; $i <= 300; $i++) dispatch(probe("$i", ['nap:50']));
    dispatch(probe('late'))->delay(1);
});
PHP
        boot_pool 'workers: 2' 'claim: 40'
        wait_for 10 noted run 10
        artisan queue:clear "$CONNECTION" --force
        cleared=$(now)
        is "$(waiting_with 0)" 0
        wait_for 5 settled
        wait_for 5 held_for "$cleared" 1.2
        within "$(notes run | tail -n 1 | awk '{ print $1 }') - $cleared" -60 0.1
        app_php <<<'dispatch(probe("after"));'
        wait_for 5 ended after
        stop_agent
    }
    each_boot line
}

@test "26 queue:restart: the running job finishes, the worker is replaced, new code is seen" {
    line() {
        echo old >"$APP/code.txt"
        boot_pool 'workers: 1'
        app_php <<<"dispatch(probe('long', ['hold:$DIR/go+code']));"
        wait_for 10 ran long
        echo new >"$APP/code.txt"
        artisan queue:restart
        log_restart() { log_has queue:restart; }
        wait_for 5 log_restart
        touch "$DIR/go"
        wait_for 10 ended long
        wait_for 10 exits_is reload 1
        app_php <<<'dispatch(probe("a", ["code"]));'
        wait_for 10 ended a
        is "$(ids code) $(attempts long)" "old new 1"
        stop_agent
    }
    each_boot line
}

@test "27 maintenance: no new jobs; up resumes; force runs" {
    line() {
        boot_pool 'workers: 1'
        artisan down
        wait_for 3 queue_is default held true
        app_php <<<'dispatch(probe("a"));'
        down=$(now)
        wait_for 5 held_for "$down" 0.7
        is "$(count run) $(jobs_left)" "0 1"
        artisan up
        wait_for 3 ended a
        is "$(attempts a)" 1
        stop_agent
        artisan down
        boot_pool 'workers: 1' -- --force
        app_php <<<'dispatch(probe("b"));'
        wait_for 5 ended b
        stop_agent
    }
    each_boot line
}

@test "28 queue:pause: that queue is skipped, others go on; queue:continue resumes" {
    needs_laravel 12 "queue:pause"
    (cd "$APP" && php artisan list --raw </dev/null | grep -q '^queue:pause') || skip "this Laravel has no queue:pause (since 12.40)"
    line() {
        boot_pool 'workers: 1' 'queue: "high,default"'
        artisan queue:pause "$CONNECTION:high"
        wait_for 3 queue_is high held true
        app_php <<<'dispatch(probe("h"))->onQueue("high"); dispatch(probe("d"));'
        wait_for 5 ended d
        is "$(count run h)" 0
        artisan queue:continue "$CONNECTION:high"
        wait_for 3 ended h
        stop_agent
    }
    each_boot line
}

@test "31 max_jobs, max_time, memory: recycled_jobs, recycled_time, recycled_memory" {
    line() {
        app_php <<<'for ($i = 1; $i <= 8; $i++) dispatch(probe("$i"));'
        boot_pool 'workers: 1' 'max_jobs: 3' 'max_time: 3s'
        wait_for 20 ended 8
        recycled() { calc "$(exits recycled_jobs) >= 1 && $(exits recycled_time) >= 1"; }
        wait_for 10 recycled
        is "$(exits crash) $(exits job_exit) $(exits lost_connection) $(jobs_failed)" "0 0 0 0"
        stop_agent
        boot_pool 'workers: 1' 'job: {memory: 150Mi}'
        app_php <<<'dispatch(probe("big", ["keep:200"])); dispatch(probe("after"));'
        wait_for 10 ended after
        wait_for 5 exits_is recycled_memory 1
        is "$(exits crash) $(exits job_exit) $(jobs_failed)" "0 0 0"
        stop_agent
    }
    each_boot line
}

@test "33 a unique job: a second dispatch is ignored until it finished or failed; expiry; until processing" {
    line() {
        boot_pool 'workers: 2'
        app_php <<PHP
App\Jobs\Alone::dispatch('a', ['hold:$DIR/go']);
App\Jobs\Alone::dispatch('a');
App\Jobs\AloneUntilProcessing::dispatch('p', ['hold:$DIR/go']);
PHP
        wait_for 10 ran a
        wait_for 10 ran p
        app_php <<<'App\Jobs\Alone::dispatch("a"); App\Jobs\AloneUntilProcessing::dispatch("p");'
        is "$(jobs_left)" 3
        touch "$DIR/go"
        wait_for 10 ended a
        wait_for 10 ended p 2
        wait_for 5 settled
        is "$(count run a) $(count run p)" "1 2"
        app_php <<<'App\Jobs\Alone::dispatch("a"); App\Jobs\Alone::dispatch("f", ["throw"], ["tries" => 2]);'
        wait_for 10 ended a 2
        wait_for 10 failed_is 1
        app_php <<<'App\Jobs\Alone::dispatch("f"); App\Jobs\Alone::dispatch("x", ["nap:2500"], ["uniqueFor" => 1]);'
        wait_for 10 ran x
        wait_for 10 ended f
        expired=$(now)
        wait_for 5 held_for "$expired" 1.3
        app_php <<<'App\Jobs\Alone::dispatch("x");'
        wait_for 10 ran x 2
        wait_for 10 settled
        stop_agent
    }
    each_boot line
}

@test "34 WithoutOverlapping: released with an attempt, dontRelease deletes, expireAfter frees after a crash" {
    line() {
        boot_pool 'workers: 2'
        app_php <<PHP
use Illuminate\Queue\Middleware\WithoutOverlapping;
dispatch(probe('a', ['hold:$DIR/go'], ['tries' => 9])->through([new WithoutOverlapping('k')]));
PHP
        wait_for 10 ran a
        app_php <<'PHP'
use Illuminate\Queue\Middleware\WithoutOverlapping;
dispatch(probe('b', ['ok'], ['tries' => 60])->through([(new WithoutOverlapping('k'))->releaseAfter(1)]));
dispatch(probe('c', ['ok'], ['tries' => 9])->through([(new WithoutOverlapping('k'))->dontRelease()]));
PHP
        one_left() { [ "$(jobs_left)" = 2 ] && [ "$(waiting_with 1)" -ge 1 ]; }
        wait_for 10 one_left
        touch "$DIR/go"
        wait_for 10 ended b
        is "$(count run c)" 0
        calc "$(attempts b) >= 2"
        wait_for 5 settled
        # The lock of a dead job stays until it expires.
        app_php <<'PHP'
use Illuminate\Queue\Middleware\WithoutOverlapping;
dispatch(probe('d', ['signal:9', 'ok'], ['tries' => 30, 'backoff' => 0])->through([(new WithoutOverlapping('e'))->expireAfter(2)->releaseAfter(1)]));
PHP
        wait_for 15 ended d
        within "$(gap d)" 0.9 "5*$SLOW"
        is "$(jobs_failed)" 0
        stop_agent
    }
    each_boot line
}

@test "34b WithoutOverlapping::shared() across classes" {
    needs_laravel 9 "WithoutOverlapping::shared()"
    line() {
        boot_pool 'workers: 2'
        app_php <<PHP
use Illuminate\Queue\Middleware\WithoutOverlapping;
dispatch(probe('a', ['hold:$DIR/go'])->through([(new WithoutOverlapping('k'))->shared()]));
PHP
        wait_for 10 ran a
        app_php <<'PHP'
use Illuminate\Queue\Middleware\WithoutOverlapping;
dispatch((new App\Jobs\Other('b'))->through([(new WithoutOverlapping('k'))->shared()->dontRelease()]));
dispatch((new App\Jobs\Other('c'))->through([(new WithoutOverlapping('k'))->dontRelease()]));
PHP
        wait_for 10 ended c
        is "$(count run b)" 0
        touch "$DIR/go"
        wait_for 5 settled
        stop_agent
    }
    each_boot line
}

@test "35 RateLimited: over the limit it is released with delay and attempt; dontRelease drops it" {
    line() {
        boot_pool 'workers: 1'
        app_php <<'PHP'
use Illuminate\Queue\Middleware\RateLimited;
dispatch(probe('a')->through([new RateLimited('one')]));
dispatch(probe('b', ['ok'], ['tries' => 5])->through([new RateLimited('one')]));
dispatch(probe('c', ['ok'], ['tries' => 5])->through([(new RateLimited('one'))->dontRelease()]));
dispatch(probe('d'));
PHP
        wait_for 10 ended d
        one_left() { [ "$(jobs_left)" = 1 ]; }
        wait_for 5 one_left
        is "$(ids run)" "a d"
        is "$(queued | awk '{ print $1, $2 }')" "delayed 1"
        within "$(queued | awk '{ print $3 }')" 40 65
        is "$(jobs_failed)" 0
        stop_agent
    }
    each_boot line
}

@test "36 ThrottlesExceptions(2, 60 s): after two exceptions the next attempts wait" {
    line() {
        boot_pool 'workers: 1'
        app_php <<'PHP'
use Illuminate\Queue\Middleware\ThrottlesExceptions;
// Minutes until Laravel 10, seconds from 11 on.
$decay = version_compare(app()->version(), '11.0.0', '<') ? 1 : 60;
dispatch(probe('a', ['throw'], ['tries' => 20])->through([new ThrottlesExceptions(2, $decay)]));
PHP
        wait_for 10 ran a 2
        throttled() { [ "$(waiting_with 3)" = 1 ]; }
        wait_for 10 throttled
        is "$(count run a)" 2
        within "$(queued | awk '{ print $3 }')" 45 70
        is "$(jobs_failed)" 0
        stop_agent
    }
    each_boot line
}

@test "41 after_commit: dispatched in a transaction it is seen after the commit, never after a rollback" {
    line() {
        boot_pool 'workers: 2'
        app_php <<<'dispatch(probe("y", ["never:rolled-back"]));'
        wait_for 10 ended y
        wait_for 5 settled
        app_php <<<'dispatch(probe("x", ["after:committed"]));'
        wait_for 10 ended committed
        wait_for 5 settled
        is "$(notes open | awk '{ print $5 }')" 0
        is "$(count run rolled-back) $(count run committed)" "0 1"
        stop_agent
    }
    each_boot line
}

@test "42 a Looping listener that returns false: no job is taken" {
    line() {
        touch "$APP/vetoes.on" "$APP/veto"
        boot_pool 'workers: 2'
        app_php <<<'dispatch(probe("a")); dispatch(probe("b"));'
        vetoed=$(now)
        wait_for 5 held_for "$vetoed" 1.5
        is "$(count run) $(queued | awk '{ n += $2 } END { print n + 0 }')" "0 0"
        rm "$APP/veto"
        wait_for 5 ended a
        wait_for 5 ended b
        is "$(attempts a) $(attempts b)" "1 1"
        stop_agent
    }
    each_boot line
}

@test "43 a JobProcessing listener that deletes the job: not fired, JobProcessed raised" {
    line() {
        touch "$APP/vetoes.on" "$APP/events.on"
        boot_pool 'workers: 1'
        app_php <<<'dispatch(probe("delete-me")); dispatch(probe("b"));'
        wait_for 10 ended b
        wait_for 5 settled
        is "$(ids run)" b
        is "$(ids event | tr ' ' '\n' | grep -c 'JobProcessed')" 2
        is "$(jobs_failed)" 0
        stop_agent
    }
    each_boot line
}

@test "44 a job sees the Context of its dispatch; the next job without one sees none" {
    needs_laravel 11 "Context"
    line() {
        boot_pool 'workers: 1'
        app_php <<'PHP'
use Illuminate\Support\Facades\Context;
Context::add('tenant', 'acme');
dispatch(probe('a', ['context:tenant']));
Context::flush();
dispatch(probe('b', ['context:tenant']));
PHP
        wait_for 10 ended b
        is "$(ids context)" "acme none"
        stop_agent
    }
    each_boot line
}

@test "WorkerStopping is fired on every deliberate exit" {
    line() {
        touch "$APP/vetoes.on"
        boot_pool 'workers: 1' 'max_jobs: 2'
        app_php <<<'for ($i = 1; $i <= 6; $i++) dispatch(probe("$i"));'
        wait_for 10 ended 6
        stopped() { calc "$(count stopping) >= 1"; }
        wait_for 10 stopped
        recycled=$(count stopping)
        stop_agent
        calc "$(count stopping) > $recycled || $recycled >= 3"
        is "$(notes stopping | awk '$5 != 0' | wc -l)" 0
    }
    each_boot line
}
