#!/usr/bin/env bats
# agent/README.md, "What happens when X dies": each row of its table has a test, here under the
# row's own name or elsewhere under another.

load helper

# The rows that other tests cover: "ROW = TEST".
elsewhere() {
    cat <<'ROWS'
a worker whose job has tries left = 19 kill -9 of the worker, tries 2: again at once, attempts 2
a worker whose job has used up its tries = a job that segfaults ends with its cause after its tries
a worker whose job has no limit of tries = tries 0 with crashes ends after three; retryUntil too
a worker that has written the outcome = 10,000 jobs, 1,000 workers killed: none lost, no written outcome again, attempts true
a job over its time limit = a job with tries left comes back at once with its backoff after a timeout
a job over its time limit that does not hear = a timeout of a process that ignores every signal
a worker over its memory limit = a worker over the pool's memory dies alone and its job ends with its cause
a worker the kernel ends for memory = a worker that the kernel ends for memory: its job ends with that cause
many workers, more than jobs get done = five crashes without a completed job open the circuit; the probe closes it
failed(), in its worker or a bookkeeper = failed() that ends its bookkeeper is called once: another one records it, the next jobs run
the zygote = a zygote killed again and again under load: no running job is lost
the new generation at a reload = reload of a broken release keeps the old one; the next good one is taken
an application that does not boot = an application that throws at boot: its text is shown, the cure works
a stuck job during a drain = a drain does not wait longer for a stuck job than its limit and the grace
the agent (SIGKILL) = the agent killed with claimed and running jobs: all settle after a restart
the database (locked, gone, full) = the database is locked by another program: waited for, nothing lost
ROWS
}

rows() {
    awk -F ' *[|] *' '/^## / { here = $0 == "## What happens when X dies" }
        here && /^[|]/ && $2 != "X" && $2 !~ /^-+$/ { print $2 }' "$ROOT/agent/README.md"
}

tests() { sed -nE 's/^@test "(.*)" \{$/\1/p' "$BATS_TEST_DIRNAME"/*.bats; }

@test "every row of \"What happens when X dies\" has a test" {
    local row name bad=''
    [ "$(rows | wc -l)" -ge 10 ]
    while read -r row; do
        name=$(elsewhere | awk -v row="$row = " 'index($0, row) == 1 { print substr($0, length(row) + 1) }')
        tests | grep -qxF -- "${name:-$row}" || bad+="no test \"${name:-$row}\" for the row \"$row\""$'\n'
    done < <(rows)
    while read -r row; do
        rows | grep -qxF -- "${row%% = *}" || bad+="no row \"${row%% = *}\""$'\n'
    done < <(elsewhere)
    is "$bad" ""
}

# at_boot PHP: the application does this when it boots.
at_boot() { sed -i "/^    public function boot()/{n;s|\$| $1|}" "$APP/app/Providers/AppServiceProvider.php"; }

# before_jobs PHP: the application does this on each round of a worker, before its job begins.
before_jobs() { at_boot "\$this->app['events']->listen(Looping::class, function () { $1 });"; }

put_aside() { [ "$(cohort status --json | jq '[.sources[].quarantined] | add')" = 1 ]; }
worker_is_other() { [ "$(worker_pids)" != "$1" ] && workers_are idle 1; }

@test "a worker without a job" {
    local worker
    pool_config 'workers: 1'
    start_pool
    worker=$(worker_pids)
    kill -KILL "$worker"
    wait_for 5 worker_is_other "$worker"
    is "$(exits killed)" 1
    app_php <<<'dispatch(probe("a"));'
    wait_for 5 ended a
    stop_agent
}

@test "a worker that had not begun its job" {
    # shellcheck disable=SC2016
    before_jobs 'note("looping", "worker", 0); while (is_file(base_path("wait"))) usleep(10000);'
    touch "$APP/wait"
    app_php <<<'dispatch(probe("a")); dispatch(probe("b"));'
    pool_config 'workers: 1'
    start_pool
    wait_for 10 noted looping 1
    kill -KILL "$(worker_pids)"
    rm "$APP/wait"
    wait_for 10 ended b
    is "$(ids run) / $(attempts a) / $(exits killed)" "a b / 1 / 1"
    stop_agent
}

@test "a worker its job fells before it begins" {
    before_jobs 'if (is_file(base_path("fell"))) { note("fell", "worker", 0); exit(9); }'
    touch "$APP/fell"
    app_php <<<'dispatch(probe("a"));'
    pool_config 'workers: 1'
    start_pool
    wait_for 20 put_aside
    rm "$APP/fell"
    app_php <<<'dispatch(probe("b"));'
    wait_for 10 ended b
    is "$(count fell) $(ids run) $(jobs_left) $(jobs_failed)" "3 b 0 0"
    stop_agent
}

@test "a bookkeeper" {
    # shellcheck disable=SC2016
    at_boot '$this->app["Illuminate\\Contracts\\Debug\\ExceptionHandler"]->reportable(function (\\Throwable $e) { note("reported", "death", 0); exit(9); });'
    app_php <<<'dispatch(probe("a", ["segfault"])); dispatch(probe("b"));'
    pool_config 'workers: 1'
    start_pool
    wait_for 10 ended b
    wait_for 20 put_aside
    is "$(attempts a) $(count reported) $(jobs_failed) $(jobs_left)" "1 3 0 0"
    is "$(cohort failed list --quarantined --json | jq '.jobs | length')" 1
    stop_agent
}

@test "a zygote that hangs" {
    local worker zygote
    pool_config 'workers: 1'
    start_pool
    worker=$(worker_pids)
    zygote=$(zygote_pid)
    kill -STOP "$zygote"
    kill -KILL "$worker"
    wait_for 20 log_has "the zygote has not answered for 10 seconds"
    wait_for 20 worker_is_other "$worker"
    wait_for 5 gone "$zygote"
    app_php <<<'dispatch(probe("a"));'
    wait_for 5 ended a
    stop_agent
}

# The child of the agent that is neither a worker with jobs nor a zygote.
control_pid() {
    local pid workers zygote
    workers=$(worker_pids)
    zygote=$(zygote_pid)
    for pid in $(cat "/proc/$AGENT/task/$AGENT/children"); do
        [ "$pid" = "$zygote" ] || grep -qx "$pid" <<<"$workers" || echo "$pid"
    done
}
has_control() { [ "$(control_pid | wc -l)" = 1 ]; }
answers() { cohort failed list >/dev/null 2>&1; }

@test "the control worker" {
    local control asked status wait
    pool_config 'workers: 1'
    start_pool
    # It dies with the question in hand; on a slow machine the question may come too late for that,
    # and its successor answers.
    for wait in 0.5 2 5; do
        wait_for 10 has_control
        wait_for 10 answers
        control=$(control_pid)
        kill -STOP "$control"
        cohort failed list >"$DIR/asked.out" 2>&1 3>&- &
        asked=$!
        pause "$wait"
        kill -KILL "$control"
        status=0
        wait "$asked" || status=$?
        [ "$status" = 0 ] || break
    done
    is "$status" 1
    has "$(cat "$DIR/asked.out")" "ended the control worker while it answered"
    wait_for 10 answers
    is "$(exits killed)" 0
    stop_agent
}

@test "state.db (damaged)" {
    mkdir -m 700 "$DIR/state"
    head -c 20000 /dev/zero | tr '\0' x >"$DIR/state/state.db"
    app_php <<<'dispatch(probe("a")); dispatch(probe("b", ["exit:3"]));'
    pool_config 'workers: 1'
    start_pool
    wait_for 10 failed_is 1
    is "$(count end a)" 1
    aside() { ls "$DIR/state"/state.db.corrupt-* >/dev/null 2>&1; }
    wait_for 5 aside
    remembered() { [ "$(cohort exits --json | jq '[.exits[] | select(.reason == "job_exit")] | length')" = 1 ]; }
    wait_for 10 remembered
    stop_agent
}
