#!/usr/bin/env bats
# What happens to jobs when workers, agents and neighbours die, come and go.

load helper

# many N SCRIPT [OPTIONS]: dispatch jobs 1..N in one transaction.
many() {
    local script=$2 options=${3:-[]}
    app_php <<PHP
Illuminate\Support\Facades\DB::transaction(function () {
    for (\$i = 1; \$i <= $1; \$i++) {
        dispatch(probe("\$i", $script, $options));
    }
});
PHP
}

claimed() { sql 'select count(*) from jobs where reserved_at is not null'; }
claimed_is() { [ "$(claimed)" = "$1" ]; }
claimed_least() { [ "$(claimed)" -ge "$1" ]; }

failed_ids() {
    sql 'select payload from failed_jobs' | sed -nE 's/.*s:2:\\"id\\";s:[0-9]+:\\"([0-9]+)\\".*/\1/p'
}

# Every id of 1..N has ended at least once.
none_lost() {
    is "$(notes end | awk '{ print $4 }' | sort -n | uniq | wc -l)" "$1"
    is "$(jobs_left) $(jobs_failed)" "0 0"
}

# A job whose outcome was written (its worker came round again) has no later run.
nothing_again() {
    awk '$3 == "written" { done[$4] = NR }
        $3 == "run" && $4 in done { print "runs again: " $0; bad = 1 }
        END { exit bad }' "$APP/results.log"
}

# No attempt number twice; one may be missing where a worker was killed before the job's first line.
attempts_count_starts() { # KILLS
    notes run | awk -v kills="$1" '
        $5 <= last[$4] { print "not a new attempt: " $0; bad = 1 }
        { last[$4] = $5; runs[$4]++ }
        END {
            for (id in last) { missing += last[id] - runs[id] }
            if (missing > kills) { print missing " attempts without a run, " kills " kills"; bad = 1 }
            exit bad
        }'
}

no_workers_of() { # PIDS
    local pid
    for pid in $1; do
        [ ! -d "/proc/$pid" ] || [ "$(awk '{ print $3 }' "/proc/$pid/stat" 2>/dev/null)" = Z ] || return 1
    done
}

@test "strict FIFO with one worker, claims ahead and jobs still coming" {
    many 1000 '["ok"]'
    start_agent --workers 1 --claim 50
    app_php <<<'for ($i = 1001; $i <= 1500; $i++) dispatch(probe("$i"));'
    wait_for 40 noted end 1500
    is "$(ids run)" "$(seq -s ' ' 1500)"
    wait_for 5 settled
    stop_agent
}

@test "10,000 jobs, 1,000 workers killed: none lost, no written outcome again, attempts true" {
    local pids pid kills=0
    touch "$APP/written.on"
    many 10000 '["nap:20"]' '["tries" => 1000]'
    start_agent --workers 8
    while [ "$kills" -lt 1000 ]; do
        pids=$(worker_pids)
        for pid in $pids; do
            [ $((RANDOM % 3)) = 0 ] || ! kill -KILL "$pid" 2>/dev/null || kills=$((kills + 1))
        done
        alive "$AGENT"
    done
    wait_for 90 settled
    none_lost 10000
    calc "$(notes run | awk '$5 > 1' | wc -l) >= 100" # They were killed at work.
    nothing_again
    attempts_count_starts "$kills"
    is "$(sql 'pragma integrity_check')" ok
    stop_agent
}

@test "the agent killed with claimed and running jobs: all settle after a restart" {
    local workers
    touch "$APP/written.on"
    app_php <<PHP
Illuminate\Support\Facades\DB::transaction(function () {
    for (\$i = 1; \$i <= 60; \$i++) {
        dispatch(probe("\$i", [\$i === 21 ? 'hold:$DIR/go' : 'ok']));
    }
});
PHP
    start_agent --workers 1 --claim 20
    wait_for 10 ran 21
    wait_for 10 claimed_least 20
    workers=$(worker_pids)
    kill -KILL "$AGENT"
    wait_for 5 no_workers_of "$workers"
    touch "$DIR/go"
    start_agent --workers 1 --claim 20
    wait_for 20 settled
    none_lost 60
    nothing_again
    # The job that ran gets its start back (on_lost: retry), so tries=1 does not fail it unrun.
    is "$(attempts 21)" "1 1"
    is "$(notes run | awk '$4 < 21 { print $4 }' | paste -sd ' ')" "$(seq -s ' ' 20)"
    is "$(notes run | awk '$4 > 21 { print $4 ":" $5 }' | paste -sd ' ')" "$(seq -s ' ' -f '%g:1' 22 60)"
    stop_agent
}

@test "the agent killed ten times under load: none lost, no written outcome again" {
    local n workers
    touch "$APP/written.on"
    many 3000 '["nap:2"]'
    for n in 1 2 3 4 5 6 7 8 9 10; do
        start_agent --workers 4
        wait_for 20 noted end $((n * 200 + RANDOM % 60))
        workers=$(worker_pids)
        kill -KILL "$AGENT"
        wait_for 5 no_workers_of "$workers"
    done
    start_agent --workers 4
    wait_for 60 settled
    none_lost 3000
    nothing_again
    is "$(sql 'pragma integrity_check')" ok
    stop_agent
}

@test "SIGTERM during a long job with 20 claimed: it completes, the 20 are back within 2 s" {
    app_php <<PHP
dispatch(probe('long', ['hold:$DIR/go']));
for (\$i = 1; \$i <= 30; \$i++) {
    dispatch(probe("\$i"));
}
PHP
    start_agent --workers 1 --claim 20
    wait_for 10 ran long
    wait_for 10 claimed_is 21
    kill -TERM "$AGENT"
    wait_for 2 claimed_is 1
    alive "$AGENT"
    is "$(count end)" 0
    touch "$DIR/go"
    wait_end "$AGENT" 10
    is "$STATUS" 0
    is "$(attempts long)" 1
    is "$(ids end)" long
    is "$(sql 'select count(*), min(id), sum(attempts), count(reserved_at) from jobs')" "30|2|0|0"
    unset STARTED[0]
    start_agent --workers 1
    wait_for 10 settled
    is "$(ids run)" "long $(seq -s ' ' 30)"
    stop_agent
}

@test "stock queue:work on the same file: no lock error here, nothing lost, every row ends" {
    local n
    app_env DB_QUEUE_RETRY_AFTER 4
    many 600 '["ok"]' '["tries" => 50]'
    start_agent --workers 2
    for n in 1 2; do
        php "$APP/artisan" queue:work --sleep=0.1 --tries=50 >>"$DIR/stock.log" 2>&1 </dev/null 3>&- {PAUSE_FD}>&- &
        STARTED+=("$!")
    done
    app_php <<<'for ($i = 601; $i <= 1000; $i++) dispatch(probe("$i", ["nap:1"], ["tries" => 50]));'
    wait_for 60 settled
    # A stock worker (12.54 and later) fails a job that it could not reserve for a lock: kept, theirs.
    is "$(sort -u <(ids end | tr ' ' '\n') <(failed_ids) | wc -l)" 1000
    not grep -iE 'locked|busy' "$LOG"
    is "$(sql 'pragma integrity_check')" ok
    stop_agent
}

@test "a worker has no descriptor of the agent, and its own wire only" {
    local pid pids fds wires=''
    app_php <<<'for ($i = 1; $i <= 20; $i++) dispatch(probe("$i", ["nap:5"]));'
    start_agent --workers 3
    wait_for 10 settled
    pids=$(worker_pids)
    calc "$(wc -w <<<"$pids") >= 3"
    for pid in $pids; do
        fds=$(find "/proc/$pid/fd" -type l -printf '%l\n')
        echo "worker $pid: $fds"
        not grep -E 'socket:|eventpoll|timerfd|signalfd|inotify|cohort-|pidfd|\.lock' <<<"$fds"
        wires+=$(awk -v run="$RUN/" 'index($6, run) == 1 { print $6 }' "/proc/$pid/maps" | sort -u)$'\n'
    done
    echo "$wires"
    calc "$(grep -c . <<<"$wires") >= 6" # A wire and the bell each.
    # The bell is everybody's; a wire is mapped by one worker.
    is "$(sort <<<"$wires" | grep . | grep -v bell | uniq -d)" ''
    stop_agent
}

@test "1,000 forks of a booted Laravel that has its database open leave it whole" {
    touch "$APP/boot.on"
    many 1000 '["write+exit:0", "ok"]' '["tries" => 2]'
    start_agent --workers 8
    wait_for 60 settled
    is "$(jobs_failed)" 0
    is "$(sql 'select count(*) from items')" 1000
    stop_agent
    is "$(sql 'pragma integrity_check')" ok
}

# Plain PHP: forking a booted Laravel costs four times as much.
@test "10,000 forks of workers that write to the queue's database leave it whole" {
    local forks
    APP=$DIR/plain
    DB=$DIR/state/queue.db
    mkdir "$APP"
    cp "$ROOT/tests/apps/plain/app.php" "$APP/"
    export E2E_DATABASE=$DB
    start_agent --queue mail --workers 8 --tries 2
    sql "create table items (name text);
        insert into jobs (queue, payload, attempts, available_at, created_at)
        with recursive n (i) as (select 1 union all select i + 1 from n where i < 10000)
        select 'mail', json_object('uuid', 'u-' || i, 'job', 'cohort',
            'data', json_object('id', '' || i, 'do', json_array('writeExit', 'ok'))), 0, 0, 0 from n"
    wait_for 150 settled
    is "$(jobs_failed)" 0
    is "$(sql 'select count(*) from items')" 10000
    forks=$(cohort status --json | jq '[.. | objects | .forks? // empty] | add')
    calc "$forks >= 10000"
    stop_agent
    is "$(sql 'pragma integrity_check')" ok
}

@test "two agents on one file: each job once; when one is killed the other takes over" {
    local workers second
    app_env DB_QUEUE_RETRY_AFTER 5
    touch "$APP/written.on"
    many 2000 '["nap:1"]' '["tries" => 5]'
    start_agent --workers 2
    launch second --app "$APP" --run-dir "$DIR/run2" --state-dir "$DIR/state2" --workers 2 --claim 20
    second=$AGENT
    wait_ready
    wait_for 30 noted end 1000
    is "$(ids run | tr ' ' '\n' | sort | uniq -d)" ''
    kill -KILL "$second"
    AGENT=${STARTED[0]} LOG=$DIR/agent.log
    wait_for 60 settled
    none_lost 2000
    nothing_again
    not grep -iE 'locked|busy' "$DIR/agent.log" "$DIR/second.log"
    stop_agent
}

# Two pools of 500 that boot in each worker: 1,000 failures before a circuit can know.
@test "1,000 boot failures in a row: the loop stays quick, the log bounded" {
    local p99 pool
    echo broken >"$APP/code.txt"
    CONFIG=$DIR/cohort.yaml
    printf 'apps:\n  app:\n    path: %s\npools:\n' "$APP" >"$CONFIG"
    for pool in one two; do
        printf '  %s:\n    app: app\n    workers: 500\n    boot: after_fork\n    queue: %s\n' $pool $pool >>"$CONFIG"
    done
    SHM=$(mktemp -d /dev/shm/ce2e.XXXXXX) # Rings belong on a tmpfs.
    launch agent --config "$CONFIG" --run-dir "$SHM" --state-dir "$DIR/state"
    RUN=$SHM
    failures() { calc "$(curl -s "http://$HTTP/metrics" | awk '/^cohort_boot_failures_total/ { n += $2 } END { print n + 0 }') >= $1"; }
    wait_for 120 failures 1000
    p99=$(cohort status --json | jq .loop_lag.p99_us)
    cohort status --json | jq -c .loop_lag
    wc "$LOG"
    calc "$p99 <= 20000 * $SLOW"
    calc "$(wc -l <"$LOG") < 300"
    calc "$(wc -c <"$LOG") < 100000"
    has "$(pool_of boot_error)" "this release is broken"
    is "$(http_status /readyz) $(http_status /livez)" "503 200"
    stop_agent
    rm -rf "$SHM"
}
