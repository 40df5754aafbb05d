#!/usr/bin/env bats
# The life of a worker: whatever a job or an application does to its process, the pool goes on, the
# job ends as it should, and the operator reads the true reason.

load helper

# one_pool LINE...: a pool of one worker with a short grace.
one_pool() {
    pool_config 'workers: 1' 'kill_grace: 500ms' "$@"
    start_pool
}

# within VALUE LOW HIGH
within() {
    calc "$1 >= $2 && $1 <= $3" || {
        echo "$1 is not between $2 and $3"
        return 1
    }
}

# at_rest WORKERS: all of them idle; nothing claimed, running or waiting.
at_rest() {
    cohort status --json | jq -e --argjson n "$1" '
        ([.pools[] | .workers_by_state | [.booting, .idle, .busy, .draining]] == [[0, $n, 0, 0]])
        and ([.pools[] | .tickets_queued, .bookkeeping] + [.queues[] | .claimed, .running] | add) == 0
        and ([.sources[].held] | add) == 0' >/dev/null
}

closed() { [ "$(pool_of circuit) $(pool_of circuit_opened)" = "closed 0" ]; }

timeout_exception() {
    if calc "$COHORT_E2E_LARAVEL >= 11"; then
        echo TimeoutExceededException
    else
        echo MaxAttemptsExceededException
    fi
}

# A lock on an SQLite file that nobody gives up; LOCKED is its name.
lock_file() {
    LOCKED=$DIR/locked.sqlite
    php -r '$pdo = new PDO("sqlite:$argv[1]"); $pdo->exec("create table t (x)"); $pdo->exec("begin immediate");
        touch("$argv[1].held"); sleep(600);' "$LOCKED" </dev/null 3>&- {PAUSE_FD}>&- &
    STARTED+=("$!")
    wait_for 10 test -e "$LOCKED.held"
}

# times_out ACTION: a job that is alone of its kind, one of a batch, and after each another job.
times_out() {
    local started
    app_php <<PHP
use Illuminate\Support\Facades\Bus;
App\Jobs\Alone::dispatch('a', ['$1'], ['tries' => 1, 'timeout' => 1]);
dispatch(probe('b'));
Bus::batch([probe('c', ['$1'], ['tries' => 1, 'timeout' => 1])])
    ->catch(function () { note('catch', 'batch', 0); })
    ->finally(function () { note('finally', 'batch', 0); })->dispatch();
dispatch(probe('d'));
PHP
    one_pool
    wait_for 10 ended d
    wait_for 10 failed_is 2
    wait_for 5 settled
    started=$(times run a)
    # Its limit, the grace, and the next worker.
    within "$(times run b) - $started" 0.95 "2*$SLOW"
    within "$(times run d) - $(times run c)" 0.95 "2*$SLOW"
    is "$(ids run) / $(ids end)" "a b c d / b d"
    is "$(count failed a) $(count failed c) $(count failed-stale)" "1 1 0"
    has "$(sql 'select exception from failed_jobs order by id limit 1')" "$(timeout_exception)"
    has "$(sql 'select exception from failed_jobs order by id desc limit 1')" "$(timeout_exception)"
    is "$(count catch) $(count finally)" "1 1"
    is "$(sql 'select pending_jobs, failed_jobs, cancelled_at is not null from job_batches')" "1|1|1"
    wait_for 5 at_rest 1
    is "$(exits job_timeout) $(exits killed) $(exits crash)" "2 0 0"
    closed
    # The lock of the first is free again.
    app_php <<<'App\Jobs\Alone::dispatch("a");'
    wait_for 5 ended a
    stop_agent
}

@test "a timeout in sleep()" {
    times_out sleep:60
}

@test "a timeout in a blocked read from a socket" {
    times_out socket
}

@test "a timeout in a wait for a locked SQLite file" {
    lock_file
    times_out "lock:$LOCKED"
}

@test "a timeout in while (1)" {
    times_out loop
}

@test "a timeout of a process that ignores every signal" {
    times_out deaf
}

@test "a timeout of a stopped process" {
    times_out stop
}

@test "a timeout ends the whole group of a job with children" {
    local pid
    times_out "children:$DIR/children"
    for pid in $(cat "$DIR/children"); do
        wait_for 5 gone "$pid"
    done
}

@test "a timeout in a transaction: nothing of it stays but the failed_jobs row" {
    times_out 'transaction+sleep:60'
    is "$(sql 'select count(*) from items')" 0
}

@test "a job with tries left comes back at once with its backoff after a timeout" {
    app_php <<<'dispatch(probe("a", ["sleep:60", "ok"], ["tries" => 2, "timeout" => 1, "backoff" => 0]));
        dispatch(probe("b", ["loop", "ok"], ["tries" => 2, "timeout" => 1, "backoff" => 2]));'
    pool_config 'workers: 2' 'kill_grace: 500ms'
    start_pool
    wait_for 10 ended b
    wait_for 5 settled
    is "$(attempts a) / $(attempts b)" "1 2 / 1 2"
    within "$(times run a | awk 'NR > 1 { print $1 - last } { last = $1 }')" 0.95 "2.1*$SLOW"
    within "$(times run b | awk 'NR > 1 { print $1 - last } { last = $1 }')" 1.95 "4.1*$SLOW"
    is "$(jobs_failed) $(count failed)" "0 0"
    stop_agent
}

@test "a kill storm of ten timeouts a worker: every slot is usable, every gauge right" {
    app_php <<'PHP'
Illuminate\Support\Facades\DB::transaction(function () {
    $ways = ['sleep:60', 'loop', 'deaf', 'stop'];
    for ($i = 1; $i <= 40; $i++) {
        dispatch(probe("$i", [$ways[$i % 4]], ['timeout' => 1]));
    }
    for ($i = 1; $i <= 200; $i++) {
        dispatch(probe("after-$i"));
    }
});
PHP
    pool_config 'workers: 4' 'kill_grace: 300ms'
    start_pool
    wait_for 60 noted end 200
    wait_for 10 failed_is 40
    wait_for 5 at_rest 4
    is "$(exits job_timeout) $(exits killed) $(exits crash) $(exits boot_failure)" "40 0 0 0"
    is "$(queue_of default timeouts) $(queue_of default failed) $(queue_of default done)" "40 40 200"
    is "$(count failed) $(notes failed | awk '{ print $4 }' | sort -u | wc -l)" "40 40"
    closed
    # Each of the four takes a job: all four at once.
    app_php <<<"for (\$i = 1; \$i <= 4; \$i++) dispatch(probe(\"slot-\$i\", ['hold:$DIR/go']));"
    wait_for 10 noted run 244
    touch "$DIR/go"
    wait_for 10 noted end 204
    wait_for 5 at_rest 4
    stop_agent
}

@test "nine timeouts in a row never open the circuit" {
    app_php <<<'for ($i = 1; $i <= 9; $i++) dispatch(probe("$i", ["sleep:60"], ["timeout" => 1])); dispatch(probe("after"));'
    pool_config 'workers: 3' 'kill_grace: 500ms'
    start_pool
    wait_for 20 ended after
    wait_for 5 failed_is 9
    is "$(exits job_timeout)" 9
    closed
    wait_for 5 at_rest 3
    stop_agent
}

# crash_jobs N: jobs that take their worker down, one attempt each.
crash_jobs() {
    app_php <<PHP
Illuminate\Support\Facades\DB::transaction(function () {
    for (\$i = 1; \$i <= $1; \$i++) dispatch(probe("crash-\$i", ['segfault']))->onQueue('crash');
});
PHP
}

@test "five crashes without a completed job open the circuit; the probe closes it" {
    local opened
    app_php <<PHP
dispatch(probe('healthy', ['hold:$DIR/go']))->onQueue('crash');
PHP
    pool_config 'workers: 3' 'kill_grace: 500ms' 'queue: crash'
    start_pool
    wait_for 10 ran healthy
    crash_jobs 5
    wait_for 10 pool_is circuit_opened 1
    opened=$(now)
    wait_for 10 failed_is 5 # A bookkeeper may run while it is open.
    is "$(exits crash)" 5
    is "$(count end)" 0
    # The healthy worker goes on, and so does growth once the probe has done work.
    app_php <<'PHP'
Illuminate\Support\Facades\DB::transaction(function () {
    for ($i = 1; $i <= 200; $i++) dispatch(probe("$i", ['nap:10']))->onQueue('crash');
});
PHP
    wait_for 10 pool_is circuit closed
    within "$(now) - $opened" 0 "4*$SLOW"
    app_php <<<"for (\$i = 1; \$i <= 2; \$i++) dispatch(probe(\"grown-\$i\", ['hold:$DIR/go']))->onQueue('crash');"
    wait_for 10 workers_are busy 3
    touch "$DIR/go"
    wait_for 10 noted end 203
    wait_for 10 ended healthy
    wait_for 5 at_rest 3
    stop_agent
}

@test "in a pool of 64 the circuit opens at 32 crashes, not at 31" {
    app_php <<<"dispatch(probe('healthy', ['hold:$DIR/go']))->onQueue('crash');"
    pool_config 'workers: 64' 'queue: crash'
    start_pool
    wait_for 10 ran healthy
    crash_jobs 31
    wait_for 20 failed_is 31
    is "$(pool_of circuit_opened)" 0
    crash_jobs 1
    wait_for 10 pool_is circuit_opened 1
    is "$(exits crash)" 32
    touch "$DIR/go"
    wait_for 10 ended healthy
    stop_agent
}

@test "one crash in a burst does not slow it" {
    app_php <<'PHP'
Illuminate\Support\Facades\DB::transaction(function () {
    for ($i = 1; $i <= 400; $i++) dispatch(probe("$i", [$i === 100 ? 'segfault' : 'nap:2']));
});
PHP
    pool_config 'workers: 4'
    start_pool
    wait_for 20 noted end 399
    closed
    # No pause between two starts is longer than a worker takes to be replaced.
    within "$(notes run | awk 'NR > 1 && $1 - last > most { most = $1 - last } { last = $1 } END { print most }')" 0 "0.3*$SLOW"
    wait_for 5 failed_is 1
    is "$(exits crash)" 1
    wait_for 5 at_rest 4
    stop_agent
}

# takes_down ACTION REASON CAUSE: with two tries, in a pool of one, with another job behind it.
takes_down() {
    app_php <<PHP
use Illuminate\Support\Facades\Bus;
App\Jobs\Alone::dispatch('a', ['$1'], ['tries' => 2]);
dispatch(probe('b'));
Bus::batch([probe('c', ['$1'])])
    ->catch(function () { note('catch', 'batch', 0); })
    ->finally(function () { note('finally', 'batch', 0); })->dispatch();
dispatch(probe('d'));
PHP
    wait_for 20 ended d
    wait_for 10 failed_is 2
    wait_for 5 settled
    is "$(attempts a) / $(attempts c)" "1 2 / 1"
    is "$(count failed a) $(count failed c) $(count failed-stale)" "1 1 0"
    has "$(sql 'select exception from failed_jobs where payload like "%Alone%"')" "$3"
    has "$(sql 'select exception from failed_jobs where payload not like "%Alone%"')" "$3"
    is "$(count catch) $(count finally)" "1 1"
    is "$(sql 'select pending_jobs, failed_jobs from job_batches')" "1|1"
    is "$(exits "$2")" 3
    is "$(curl -s "http://$HTTP/metrics" | awk '/^cohort_worker_exits_total/ { n += $2 } END { print n }')" 3
    # The next job does not wait for the dead.
    within "$(times run b) - $(times run a | head -n 1)" -1 "1.5*$SLOW+$4"
    wait_for 5 at_rest "$(pool_of workers_wanted)"
    app_php <<<'App\Jobs\Alone::dispatch("a");'
    wait_for 5 ended a
    stop_agent
}

@test "a job that segfaults ends with its cause after its tries" {
    one_pool
    takes_down segfault crash "signal 11 (SIGSEGV)" 0
}

@test "a job that damages the heap ends with its cause after its tries" {
    one_pool
    takes_down heap crash "signal 6 (SIGABRT)" 0
}

@test "a job that exceeds PHP's memory ends with its cause after its tries" {
    one_pool
    takes_down fatal job_fatal "Allowed memory size" 0
}

@test "a job that calls exit() ends with its cause after its tries" {
    one_pool
    takes_down exit:3 job_exit "exit code 3" 0
}

@test "a job that calls exit(0) ends with its cause after its tries" {
    one_pool
    takes_down exit:0 job_exit "exit code 0" 0
}

@test "a job that is killed ends with its cause after its tries" {
    one_pool
    takes_down signal:9 killed "signal 9 (SIGKILL)" 0
}

@test "a worker over the pool's memory dies alone and its job ends with its cause" {
    one_pool 'memory: 256Mi'
    takes_down hog oom "its limit is" 5
}

@test "a job that throws an Error fails after its tries and its worker lives" {
    app_php <<<'dispatch(probe("a", ["error"], ["tries" => 2])); dispatch(probe("b"));'
    one_pool
    wait_for 10 failed_is 1
    wait_for 5 ended b
    is "$(attempts a)" "1 2"
    has "$(sql 'select exception from failed_jobs')" "Error: a attempt 2"
    is "$(notes run | awk '{ print $2 }' | sort -u | wc -l)" 1
    stop_agent
}

@test "tries 0 with crashes ends after three; retryUntil too" {
    app_php <<<'dispatch(probe("a", ["segfault"], ["tries" => 0]));
        dispatch(probe("b", ["segfault"], ["retryUntil" => 600]));
        dispatch(probe("c", array_merge(array_fill(0, 4, "throw"), ["segfault", "ok"]), ["tries" => 0]));'
    pool_config 'workers: 6'
    start_pool
    wait_for 20 failed_is 2
    wait_for 10 ended c
    wait_for 5 settled
    is "$(attempts a) / $(attempts b) / $(attempts c)" "1 2 3 / 1 2 3 / 1 2 3 4 5 6"
    is "$(ids failed | tr ' ' '\n' | sort | tr '\n' ' ')" "a b " # Beside each other: either may be first.
    has "$(sql 'select group_concat(exception) from failed_jobs')" "signal 11 (SIGSEGV)"
    stop_agent
}

# ---- recycling

recycles() { # REASON COUNT LINE...
    app_php <<'PHP'
Illuminate\Support\Facades\DB::transaction(function () {
    for ($i = 1; $i <= 60; $i++) dispatch(probe("$i", ['nap:40']));
});
PHP
    pool_config "${@:3}"
    start_pool
    wait_for 30 noted end 60
    wait_for 10 settled
    is "$(jobs_failed) $(count run)" "0 60"
    within "$(exits "$1")" "$2" 60
    closed
}

# Workers that can work, in one look.
able() { pool_of 'workers_by_state | .idle + .busy'; }

@test "max_jobs recycles a worker after so many jobs, give or take a fifth" {
    recycles recycled_jobs 4 'workers: 2' 'max_jobs: 10'
    wait_for 5 at_rest 2
    # A fifth more, and what came until the successor was there.
    is "$(notes run | awk '{ n[$2]++ } END { for (p in n) if (n[p] > 30) bad = 1; print bad + 0 }')" 0
    is "$(notes end | awk '{ print $4 }' | sort -u | wc -l)" 60
    stop_agent
}

@test "a recycled worker's successor is there first: the only worker is never missing" {
    app_php <<'PHP'
Illuminate\Support\Facades\DB::transaction(function () {
    for ($i = 1; $i <= 40; $i++) dispatch(probe("$i", ['nap:20']));
});
PHP
    one_pool 'max_jobs: 5'
    while ! ended 40; do
        calc "$(able) >= 1"
    done
    # No pause for a fork between two jobs.
    within "$(notes run | awk 'NR > 1 && $1 - last > most { most = $1 - last } { last = $1 } END { print most }')" 0 "0.1*$SLOW"
    calc "$(exits recycled_jobs) >= 5"
    is "$(ids run)" "$(seq -s ' ' 40)"
    stop_agent
}

@test "max_time recycles a worker at that age, idle or busy" {
    pool_config 'workers: 2' 'max_time: 1s'
    start_pool
    app_php <<<"dispatch(probe('long', ['hold:$DIR/go']));"
    wait_for 10 ran long
    recycled() { calc "$(exits recycled_time) >= ${1:-2}"; }
    wait_for 10 recycled 2
    is "$(count end)" 0
    touch "$DIR/go"
    wait_for 10 ended long
    is "$(attempts long) $(jobs_failed)" "1 0"
    stop_agent
}

@test "job memory recycles a worker after the job that went over it" {
    app_php <<<'dispatch(probe("a", ["grow:200"])); dispatch(probe("b"));'
    one_pool 'job: {memory: 150Mi}'
    wait_for 10 ended b
    wait_for 5 settled
    wait_for 5 at_rest 1
    # PHP gives the string back before the worker looks, so it takes one that stays.
    app_php <<<'dispatch(probe("c", ["keep:200"])); dispatch(probe("d"));'
    wait_for 10 ended d
    wait_for 5 exits_is recycled_memory 1
    is "$(jobs_failed)" 0
    is "$(attempts c)" 1
    closed
    stop_agent
}

# ---- reload

@test "reload under load: nothing refused, new code seen, capacity never below the count" {
    local n
    echo old >"$APP/code.txt"
    app_php <<'PHP'
Illuminate\Support\Facades\DB::transaction(function () {
    for ($i = 1; $i <= 400; $i++) dispatch(probe("$i", ['code+nap:40']));
});
PHP
    pool_config 'workers: 3'
    start_pool
    wait_for 10 noted end 20
    echo new >"$APP/code.txt"
    kill -USR2 "$AGENT"
    for n in $(seq 400); do
        ! noted end 400 || break
        calc "$(able) >= 3"
        is "$(http_status /readyz)" 200
    done
    wait_for 10 settled
    is "$(jobs_failed) $(count run) $(count end)" "0 400 400"
    is "$(ids code | tr ' ' '\n' | uniq | sort -u | paste -sd ' ')" "new old"
    # The last of the old is before the end: it did not go on with the old code.
    is "$(ids code | tr ' ' '\n' | tail -n 20 | sort -u)" new
    wait_for 5 at_rest 3
    is "$(exits reload)" 3
    is "$(pool_of generation)" 2
    closed
    stop_agent
}

@test "reload of a broken release keeps the old one; the next good one is taken" {
    echo old >"$APP/code.txt"
    pool_config 'workers: 2'
    start_pool
    echo broken >"$APP/code.txt"
    kill -USR2 "$AGENT"
    wait_for 10 log_has 'this release is broken'
    app_php <<<'dispatch(probe("a", ["code"]));' || : # The broken application cannot dispatch.
    echo old2 >"$APP/code.txt"
    app_php <<<'dispatch(probe("a", ["code"]));'
    wait_for 10 ended a
    is "$(ids code)" old
    is "$(http_status /readyz)" 200
    is "$(workers_in idle)" 2
    echo new >"$APP/code.txt"
    kill -USR2 "$AGENT"
    wait_for 10 exits_is reload 2
    app_php <<<'dispatch(probe("b", ["code"]));'
    wait_for 10 ended b
    is "$(ids code)" "old new"
    stop_agent
}

@test "reload takes a symlinked release that was switched, and a changed environment file" {
    echo one >"$APP/code.txt"
    cp -RP "$APP" "$DIR/app2"
    echo two >"$DIR/app2/code.txt"
    rm -rf "$DIR/app2/database"
    ln -s "$APP/database" "$DIR/app2/database"
    ln -s "$APP" "$DIR/current"
    { cat "$APP/.env" && printf 'COHORT_PROBE=first\n'; } >"$DIR/secrets"
    CONFIG=$DIR/cohort.yaml
    printf 'apps:\n  app:\n    path: %s\n    env_file: %s\npools:\n  jobs:\n    app: app\n    workers: 2\n' \
        "$DIR/current" "$DIR/secrets" >"$CONFIG"
    start_pool
    app_php <<<'dispatch(probe("a", ["code+env:COHORT_PROBE"]));'
    wait_for 10 ended a
    ln -sfn "$DIR/app2" "$DIR/current"
    { cat "$APP/.env" && printf 'COHORT_PROBE=second\n'; } >"$DIR/secrets"
    kill -USR2 "$AGENT"
    wait_for 10 exits_is reload 2
    app_php <<<'dispatch(probe("b", ["code+env:COHORT_PROBE"]));'
    wait_for 10 ended_there
    is "$(ids code) $(ids env)" "one first"
    is "$(awk '$3 == "code" || $3 == "env" { print $4 }' "$DIR/app2/results.log" | paste -sd ' ')" "two second"
    stop_agent
}

ended_there() { grep -q ' end b ' "$DIR/app2/results.log" 2>/dev/null; }

# ---- the application's own switches

@test "queue:restart: the running job finishes, the workers are replaced within 1.5 s" {
    echo old >"$APP/code.txt"
    app_php <<<"dispatch(probe('long', ['hold:$DIR/go+code']));"
    pool_config 'workers: 2'
    start_pool
    wait_for 10 ran long
    echo new >"$APP/code.txt"
    artisan queue:restart
    restarted=$(now)
    wait_for 10 exits_is reload 1
    within "$(now) - $restarted" 0 "3*$SLOW"
    app_php <<<'dispatch(probe("a", ["code"]));'
    wait_for 10 ended a
    touch "$DIR/go"
    wait_for 10 ended long
    wait_for 10 exits_is reload 2
    is "$(notes code | awk '{ print $4 }' | paste -sd ' ')" "new old"
    is "$(attempts long)" 1
    # A restart is one restart: the baseline of the new generation is the new value.
    is "$(pool_of generation)" 2
    stop_agent
}

@test "a restart key set while the agent was down is no restart" {
    artisan queue:restart
    restarted=$(date +%s)
    next_second() { [ "$(date +%s)" -gt "$restarted" ]; }
    wait_for 3 next_second # The key knows seconds only.
    pool_config 'workers: 1'
    start_pool
    app_php <<<'dispatch(probe("a"));'
    wait_for 10 ended a
    switches_read() { log_has 'pool=jobs generation' || [ "$(metric 'cohort_loop_lag_seconds_count')" -gt 12 ]; }
    wait_for 10 switches_read
    is "$(pool_of generation) $(exits reload)" "1 0"
    stop_agent
}

@test "down: no job begins after 1.5 s; up: they go on within 1.5 s" {
    local began
    pool_config 'workers: 2'
    start_pool
    artisan down
    wait_for 3 queue_is default held true
    app_php <<<'dispatch(probe("a"));'
    began=$(now)
    is "$(jobs_left)" 1
    held_still() { calc "$(now) - $began > 1"; }
    wait_for 5 held_still
    is "$(count run) $(sql 'select attempts from jobs')" "0 0"
    artisan up
    began=$(now)
    wait_for 5 ended a
    within "$(times run a) - $began" -1 "1.5*$SLOW"
    is "$(attempts a)" 1
    stop_agent
}

@test "force: jobs run in maintenance mode" {
    artisan down
    pool_config 'workers: 1' 'force: true'
    start_pool
    app_php <<<'dispatch(probe("a"));'
    wait_for 10 ended a
    stop_agent
}

@test "queue:pause: that queue is held within 1.5 s, the others go on; queue:continue ends it" {
    needs_laravel 12 "queue:pause"
    pool_config 'workers: 2' 'queue: "high,default"'
    start_pool
    artisan queue:pause database:high || skip "this Laravel 12 has no queue:pause (since 12.40)"
    wait_for 3 queue_is high held true
    app_php <<<'dispatch(probe("h"))->onQueue("high"); dispatch(probe("d"));'
    wait_for 5 ended d
    is "$(count run h)" 0
    artisan queue:continue database:high
    wait_for 3 ended h
    is "$(attempts h)" 1
    stop_agent
}

# ---- zygotes

@test "a zygote killed again and again under load: no running job is lost" {
    local n zygote
    app_php <<'PHP'
Illuminate\Support\Facades\DB::transaction(function () {
    for ($i = 1; $i <= 600; $i++) dispatch(probe("$i", ['nap:20']));
});
PHP
    pool_config 'workers: 4'
    start_pool
    for n in 1 2 3 4 5; do
        wait_for 10 noted end $((n * 60))
        zygote=$(zygote_pid)
        kill -KILL "$zygote"
        other_zygote() { [ -n "$(zygote_pid)" ] && [ "$(zygote_pid)" != "$zygote" ]; }
        wait_for 10 other_zygote
    done
    wait_for 30 settled
    is "$(jobs_failed) $(count run) $(count end)" "0 600 600"
    is "$(notes run | awk '$5 != 1' | wc -l)" 0
    is "$(exits killed) $(exits crash) $(exits boot_failure)" "0 0 0"
    wait_for 10 at_rest 4
    closed
    stop_agent
}

# ---- memory cgroups

# memory_group BYTES: a memory cgroup with that limit, its directory in GROUP; else the test is skipped.
memory_group() {
    local parent
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        parent=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
        GROUP=${parent%/}/cohort-e2e-$$
        { mkdir "$GROUP" && echo "$1" >"$GROUP/memory.max"; } 2>/dev/null ||
            skip "no memory cgroup can be made below $parent; the limit by RSS is tested instead"
    else
        parent=$(awk '$3 == "cgroup" && $4 ~ /(^|,)memory(,|$)/ { print $2; exit }' /proc/mounts)
        GROUP=${parent:-/nowhere}$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)/cohort-e2e-$$
        [ -d "${GROUP%/*}" ] || GROUP=$parent/cohort-e2e-$$
        { mkdir "$GROUP" && echo "$1" >"$GROUP/memory.limit_in_bytes"; } 2>/dev/null ||
            skip "no memory cgroup can be made below ${parent:-/sys/fs/cgroup}; the limit by RSS is tested instead"
    fi
}

# start_in_group ARGUMENT...: as start_pool, the agent in GROUP from its first instruction.
start_in_group() {
    LOG=$DIR/agent.log
    HTTP=127.0.0.1:$(free_port)
    # shellcheck disable=SC2016
    bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$GROUP" "$BIN/cohortd" --http "$HTTP" --log-format text \
        --config "$CONFIG" --run-dir "$RUN" --state-dir "$DIR/state" "$@" >>"$LOG" 2>&1 </dev/null 3>&- {PAUSE_FD}>&- &
    AGENT=$!
    STARTED+=("$AGENT")
    wait_ready
}

leave_group() {
    wait_for 10 rmdir "$GROUP"
}

@test "in a memory cgroup the limit of a worker is its part, and the cgroup stays intact" {
    memory_group $((320 << 20))
    pool_config 'workers: 2' 'kill_grace: 500ms'
    start_in_group
    takes_down hog oom "its limit is" 5
    leave_group
}

@test "a worker that the kernel ends for memory: its job ends with that cause" {
    memory_group $((160 << 20))
    pool_config 'workers: 1' 'kill_grace: 500ms' 'memory: 2Gi'
    start_in_group
    app_php <<<'dispatch(probe("a", ["grow:400"])); dispatch(probe("b"));'
    wait_for 20 ended b
    wait_for 10 failed_is 1
    is "$(attempts a) $(count failed a)" "1 1"
    has "$(sql 'select exception from failed_jobs')" "the kernel ended it for want of memory"
    is "$(exits oom)" 1
    wait_for 5 at_rest 1
    stop_agent
    leave_group
}

@test "a thread that the boot leaves: said, and the application boots in each worker instead" {
    touch "$APP/thread.on"
    pool_config 'workers: 2'
    start_pool
    app_php <<<'dispatch(probe("a"));'
    wait_for 10 ended a
    has "$(grep 'left threads' "$LOG")" "boot: after_fork"
    wait_for 10 at_rest 2
    stop_agent
}

# ---- what the operator sees

@test "failed() that ends its bookkeeper is called once: another one records it, the next jobs run" {
    app_php <<<'dispatch(probe("a", ["segfault"], ["whenFailed" => "exit:9"])); dispatch(probe("b"));'
    one_pool
    wait_for 10 ended b
    wait_for 20 failed_is 1
    wait_for 5 settled
    is "$(attempts a) $(count failed a)" "1 1"
    wait_for 5 at_rest 1
    closed
    stop_agent
}

@test "failed() that throws is called once" {
    app_php <<<'dispatch(probe("a", ["segfault"], ["whenFailed" => "error"])); dispatch(probe("b"));'
    one_pool
    wait_for 10 ended b
    wait_for 10 failed_is 1
    is "$(attempts a) $(count failed a)" "1 1"
    wait_for 5 at_rest 1
    stop_agent
}

@test "cohort exits names reason, cause and job of every death" {
    app_php <<'PHP'
dispatch(probe('a', ['segfault']));
dispatch(probe('b', ['exit:3']));
dispatch(probe('c', ['fatal']));
dispatch(probe('d', ['sleep:60'], ['timeout' => 1]));
dispatch(probe('e', ['echo:the last line+signal:9']));
PHP
    one_pool
    wait_for 20 failed_is 5
    noted_exits() { [ "$(cohort exits --json | jq '[.exits[] | select(.worker < 512 and .job == "App\\Jobs\\Probe")] | length')" = 5 ]; }
    wait_for 10 noted_exits
    is "$(cohort exits --json | jq -r '[.exits[] | select(.worker < 512 and .job == "App\\Jobs\\Probe") | .reason] | sort | join(" ")')" \
        "crash job_exit job_fatal job_timeout killed"
    has "$(cohort exits --json | jq -r '.exits[].cause')" "signal 11 (SIGSEGV)" "calling exit()" "Allowed memory size" "the last line"
    stop_agent
    # They outlive the agent.
    unset 'STARTED[0]'
    start_pool
    wait_for 10 noted_exits
    stop_agent
}

@test "slow: the stack of a long job is logged once; trace shows where it is" {
    one_pool 'slow: 1s'
    app_php <<<"dispatch(probe('a', ['hold:$DIR/go']));"
    wait_for 10 ran a
    has "$(cohort workers trace 0)" "doHold"
    slow_jobs() { [ "$(cohort slow --json | jq '.slow | length')" = 1 ]; }
    wait_for 10 slow_jobs
    has "$(cohort slow --json | jq -r '.slow[0].stack')" "doHold"
    passed=$(now)
    two_seconds() { calc "$(now) - $passed > 1.2"; }
    wait_for 5 two_seconds
    is "$(grep -c 'slow job in worker' "$LOG")" 1
    touch "$DIR/go"
    wait_for 10 ended a
    stop_agent
}

@test "cohort pause holds a queue on this agent, over a restart of it too; resume ends it" {
    pool_config 'workers: 1' 'queue: "high,default"'
    start_pool
    cohort pause high --reason 'a test'
    app_php <<<'dispatch(probe("h"))->onQueue("high"); dispatch(probe("d"));'
    wait_for 5 ended d
    is "$(count run h) $(queue_of high held)" "0 true"
    stop_agent
    unset 'STARTED[0]'
    start_pool
    app_php <<<'dispatch(probe("d2"));'
    wait_for 5 ended d2
    is "$(count run h)" 0
    cohort resume high
    wait_for 5 ended h
    is "$(attempts h)" 1
    stop_agent
}

@test "a drain does not wait longer for a stuck job than its limit and the grace" {
    local began
    app_php <<<'dispatch(probe("a", ["deaf"], ["timeout" => 1]));'
    one_pool
    wait_for 10 ran a
    began=$(now)
    stop_agent
    within "$(now) - $began" 0 "3*$SLOW"
    is "$(jobs_failed) $(count failed a) $(jobs_left)" "1 1 0"
}
