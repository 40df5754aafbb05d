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
