#!/usr/bin/env bats
# The cohort command: usage, help and exit codes without an agent, then against a real one.

load helper

cli() { "$BIN/cohort" "$@" {PAUSE_FD}>&-; }

# expect STATUS ARGUMENT...: output in $OUTPUT, errors in $ERRORS.
expect() {
    local status=$1 got=0
    shift
    cli "$@" >"$DIR/out" 2>"$DIR/err" </dev/null || got=$?
    OUTPUT=$(cat "$DIR/out")
    ERRORS=$(cat "$DIR/err")
    is "$got" "$status" || {
        printf '%s\n%s\n' "$OUTPUT" "$ERRORS"
        return 1
    }
}

nobody() { printf -- '--control\n%s' "$DIR/none.sock"; }

begin() {
    APP=$DIR/plain
    DB=$DIR/state/queue.db
    mkdir "$APP"
    cp "$ROOT/tests/apps/plain/app.php" "$APP/"
    start_agent --queue mail --workers 1 "$@"
}

@test "cli: help is there for the program and for every command" {
    expect 2
    expect 0 help
    has "$OUTPUT" "Usage: cohort" "69 no agent" "failed retry"
    expect 0 --help
    local command
    for command in run status workers "workers trace" queues push reload pause resume exits slow \
        minutes drain "failed list" "failed show" "failed retry" "failed forget" "config check" \
        "config explain" doctor ping version help; do
        expect 0 $command --help
        has "$OUTPUT" "Usage: cohort $command" "  cohort $command"
        expect 0 help $command
    done
    expect 0 failed --help
    has "$OUTPUT" "cohort failed retry"
    expect 0 --version
    has "$OUTPUT" "cohort "
}

@test "cli: wrong usage is exit 2 and says what may be meant" {
    expect 2 statsu
    has "$ERRORS" "Did you mean: cohort status"
    expect 2 status --wach
    has "$ERRORS" "Did you mean: --watch"
    expect 2 failed retri
    has "$ERRORS" "cohort failed retry"
    expect 2 failed
    expect 2 status now
    has "$ERRORS" '"now"' "Usage: cohort status"
    expect 2 push
    has "$ERRORS" "needs QUEUE"
    expect 2 failed retry
    has "$ERRORS" "--all"
    expect 2 failed retry 1 --all
    expect 2 status --timeout soon
    expect 2 failed list --limit many
    expect 2 status --all
    expect 2 workers trace
    has "$ERRORS" "needs ID"
    expect 2 workers trace first
    has "$ERRORS" '"first" is no worker'
    expect 2 pause mail
    has "$ERRORS" "pause needs a reason" "--reason"
    expect 2 pause mail --reason ""
    expect 2 pause mail --reason "$(printf '%0600d' 0)"
    has "$ERRORS" "too long"
    expect 2 exits --last all
    has "$ERRORS" "--last"
    expect 2 relaod
    has "$ERRORS" "Did you mean: cohort reload"
}

@test "cli: no agent is exit 69, at once, with the socket and the cure" {
    local command
    for command in status workers queues ping drain "failed list" "failed show 1" \
        "failed retry --all" "config explain" reload "reload --wait" "pause mail --reason x" resume \
        exits slow minutes "workers trace 0"; do
        expect 69 $command $(nobody)
        has "$ERRORS" "$DIR/none.sock" "cohort run"
        is "$OUTPUT" ""
    done
    echo '{"job":"x"}' >"$DIR/payload"
    expect 69 push mail "$DIR/payload" $(nobody)
    expect 69 --run-dir "$DIR" status
    has "$ERRORS" "$DIR/control.sock"
    COHORT_CONTROL=$DIR/env.sock expect 69 status
    has "$ERRORS" "$DIR/env.sock"
    expect 69 status --json $(nobody)
    is "$(jq -r '.schema, .code' <<<"$OUTPUT" | paste -sd ' ')" "1 agent unreachable"
    expect 69 status --control "$DIR/$(printf '%0120d' 0)"
    has "$ERRORS" "107"
}

@test "cli: config check and explain read a file as the agent does" {
    printf 'apps:\n  shop: { path: %s }\nadmin: { http: off }\n' "$APP" >"$DIR/good.yaml"
    expect 0 config check "$DIR/good.yaml"
    has "$OUTPUT" "1 app" "1 pool"
    expect 0 config explain "$DIR/good.yaml"
    has "$OUTPUT" "admin.http" "file, line 3"
    expect 0 config explain "$DIR/good.yaml" --json
    is "$(jq -r '.values["admin.http"].value' <<<"$OUTPUT")" off
    printf 'apps:\n  shop: { path: %s }\nadmn: { http: off }\n' "$APP" >"$DIR/bad.yaml"
    expect 1 config check "$DIR/bad.yaml"
    has "$ERRORS" "$DIR/bad.yaml:3" admn
    expect 1 config check "$DIR/none.yaml"
    has "$ERRORS" "$DIR/none.yaml"
}

@test "cli: doctor compares the two PHPs without an agent" {
    expect 0 doctor $(nobody)
    has "$OUTPUT" "PHP of the workers" "OPcache  on" "not asked: no agent"
    expect 0 doctor --json $(nobody)
    is "$(jq -r '.schema, .agent, (.libphp.extensions | has("json")), (.php.ini | has("memory_limit"))' \
        <<<"$OUTPUT" | paste -sd ' ')" "1 null true true"

    printf '#!/bin/sh\nphp -r %s\n' \
        "'echo json_encode([\"version\"=>\"7.4.1\",\"zts\"=>false,\"opcache\"=>true,\"pcntl\"=>true,\"extensions\"=>[\"odd\"=>\"1\"],\"ini\"=>[]]);'" >"$DIR/php"
    chmod +x "$DIR/php"
    expect 1 doctor --php "$DIR/php" $(nobody)
    has "$OUTPUT" "the command line is 7.4.1" "the extension odd is missing in libphp" "phpenmod"
    expect 1 doctor --worker-bin "$DIR/none" $(nobody)
    has "$OUTPUT" "PHP cannot be embedded"
}

@test "cli: run replaces itself by cohortd, which reads the options" {
    expect 0 run --version
    has "$OUTPUT" cohortd
    expect 2 run --no-such-option
    has "$ERRORS" cohortd:
}

@test "cli: status, workers, queues, ping and config of a living agent" {
    begin
    expect 0 ping --run-dir "$RUN"
    has "$OUTPUT" "pid $AGENT"
    expect 0 status --run-dir "$RUN"
    has "$OUTPUT" "pid $AGENT" ready jobs mail sqlite
    expect 0 status --json --run-dir "$RUN"
    is "$(jq -r '.schema, .ready, .pools[0].name' <<<"$OUTPUT" | paste -sd ' ')" "1 true jobs"
    expect 0 workers --run-dir "$RUN"
    has "$OUTPUT" PID idle
    expect 0 workers --json --run-dir "$RUN"
    is "$(jq '.workers | length' <<<"$OUTPUT")" 1
    expect 0 queues --json --run-dir "$RUN"
    is "$(jq -r '.sources[0].driver' <<<"$OUTPUT")" sqlite
    expect 0 config explain --run-dir "$RUN"
    has "$OUTPUT" run_dir "$RUN" flag
    stop_agent
    expect 69 ping --run-dir "$RUN"
}

@test "cli: push, failed list, show, retry, forget" {
    begin --tries 1
    printf '{"id":"a","do":["throw","throw","ok"]}' >"$DIR/payload"
    expect 0 push mail "$DIR/payload" --run-dir "$RUN"
    has "$OUTPUT" "is on queue mail"
    wait_for 10 failed_is 1
    expect 0 failed list --run-dir "$RUN"
    has "$OUTPUT" "mail" "RuntimeException: a attempt 1"
    local id
    id=$(cli failed list --json --run-dir "$RUN" | jq -r '.jobs[0].id')
    expect 0 failed show "$id" --run-dir "$RUN"
    has "$OUTPUT" "queue       mail" payload '"id":"a"'
    expect 0 failed retry "$id" --run-dir "$RUN"
    has "$OUTPUT" "1 job back on the queue"
    wait_for 10 ran a 2
    wait_for 10 failed_is 1
    expect 0 failed forget --all --run-dir "$RUN"
    has "$OUTPUT" "1 job forgotten"
    expect 0 failed list --run-dir "$RUN"
    is "$OUTPUT" "no failed jobs"
    expect 1 failed show 4711 --run-dir "$RUN"
    has "$ERRORS" 4711
    expect 2 push mail /dev/null --run-dir "$RUN"
    has "$ERRORS" empty
    expect 1 push mail "$DIR/none" --run-dir "$RUN"
    has "$ERRORS" "$DIR/none"
    stop_agent
}

# An application that says which release it is and runs for as long as a file is there.
begin_release() {
    begin "$@"
    stop_agent
    cat >"$APP/app.php" <<'PHP'
<?php
function linger(string $file): void
{
    while (file_exists($file)) {
        usleep(5000);
    }
}
return new Cohort\App(job: function (Cohort\Job $job): void {
    file_put_contents(__DIR__.'/results.log', sprintf("%.6f %d run %s %d\n", microtime(true), getmypid(), $job->data['id'], 1), FILE_APPEND);
    if (isset($job->data['crash'])) {
        posix_kill(getmypid(), 11);
    }
    linger($job->data['file'] ?? '');
});
PHP
    start_agent --queue mail --workers 1 "$@"
}

put() { expect 0 push mail --run-dir "$RUN" "$1"; }
release_of() { cli workers --json --run-dir "$RUN" | jq '.workers[0].generation'; }
held() { [ "$(cli queues --json --run-dir "$RUN" | jq '[.queues[] | select(.name == "mail") | .held] | first')" = "$1" ]; }

@test "cli: reload --wait returns with the new generation, or with what keeps it from booting" {
    begin_release
    local before pid
    before=$(release_of)
    pid=$(worker_pids)
    expect 0 reload --wait --run-dir "$RUN"
    has "$OUTPUT" "every worker is of the new generation"
    is "$(release_of)" $((before + 1))
    not is "$(worker_pids)" "$pid"
    expect 0 reload --pool jobs --wait --json --run-dir "$RUN"
    is "$(jq -r '.schema, .reloaded' <<<"$OUTPUT" | paste -sd ' ')" "1 true"
    expect 0 workers --run-dir "$RUN"
    has "$OUTPUT" GENERATION SINCE MEMORY

    printf '<?php\nthrow new LogicException("the release is broken");\n' >"$APP/app.php"
    expect 1 reload --wait --run-dir "$RUN"
    has "$ERRORS" "pool jobs" "the release is broken" "serves on"
    is "$(release_of)" $((before + 2))
    expect 0 status --run-dir "$RUN"
    has "$OUTPUT" ready "the release is broken"
    expect 1 reload --pool none --run-dir "$RUN"
    has "$ERRORS" '"none"' "cohort status"
    stop_agent
}

@test "cli: a paused queue is held, said to be, and resumed" {
    begin
    expect 0 pause mail --reason "the mail server is down" --run-dir "$RUN"
    has "$OUTPUT" "paused on this agent: mail" "cohort resume mail"
    is "$ERRORS" ""
    wait_for 5 held true
    printf '{"id":"a","do":["ok"]}' >"$DIR/payload"
    put "$DIR/payload"
    expect 0 status --run-dir "$RUN"
    has "$OUTPUT" held "cohort resume"
    has "$(curl -s "http://$HTTP/metrics")" 'cohort_queue_held{' 'queue="mail",pool="jobs"} 1'
    expect 0 pause --reason all --json --run-dir "$RUN"
    is "$(jq -r '.schema, .state, .queue, .reason' <<<"$OUTPUT" | paste -sd ' ')" "1 paused null all"
    has "$(jq -r .by <<<"$OUTPUT")" "@"
    expect 0 resume mail --run-dir "$RUN"
    has "$OUTPUT" "resumed: mail" "still held"
    is "$(count run)" 0
    expect 0 resume --run-dir "$RUN"
    has "$OUTPUT" "resumed: all queues"
    wait_for 10 ended a
    wait_for 5 held false
    expect 1 resume mail --run-dir "$RUN"
    has "$ERRORS" "no pause"
    expect 0 pause mial --reason typo --run-dir "$RUN"
    has "$ERRORS" "knows no queue mial"
    stop_agent

    # It outlives the agent.
    start_agent --queue mail --workers 1
    expect 0 resume mial --run-dir "$RUN"
    stop_agent
}

@test "cli: workers trace shows where a running job is" {
    begin_release
    touch "$DIR/stay"
    printf '{"id":"t","file":"%s"}' "$DIR/stay" >"$DIR/payload"
    put "$DIR/payload"
    wait_for 10 ran t
    expect 0 workers trace 0 --run-dir "$RUN"
    has "$OUTPUT" "pid $(worker_pids)" "linger()" "app.php:5"
    expect 0 workers trace 0 --pool jobs --json --run-dir "$RUN"
    is "$(jq -r '.schema, ([.frames[] | select(.function == "linger")] | length)' <<<"$OUTPUT" | paste -sd ' ')" "1 1"
    expect 1 workers trace 7 --run-dir "$RUN"
    has "$ERRORS" "cohort workers lists them"
    expect 1 workers trace 0 --pool none --run-dir "$RUN"
    rm "$DIR/stay"
    wait_for 10 settled
    stop_agent
}

exits_are() { [ "$(cli exits --json --run-dir "$RUN" | jq '.exits | length')" -ge "$1" ]; }

@test "cli: exits, slow and minutes show what the agent remembers" {
    begin_release
    expect 0 slow --run-dir "$RUN"
    has "$OUTPUT" "no slow jobs"
    expect 0 minutes --json --run-dir "$RUN"
    is "$(jq -r '.schema, (.minutes | type)' <<<"$OUTPUT" | paste -sd ' ')" "1 array"
    printf '{"id":"c","crash":1}' >"$DIR/payload"
    put "$DIR/payload"
    wait_for 10 exits_are 1
    expect 0 exits --run-dir "$RUN"
    has "$OUTPUT" "WHEN (UTC)" crash "signal 11" jobs
    expect 0 reload --wait --run-dir "$RUN"
    wait_for 10 exits_are 2
    expect 0 exits --last 1 --json --run-dir "$RUN"
    is "$(jq '.exits | length' <<<"$OUTPUT")" 1
    stop_agent
}

@test "cli: drain --wait returns when the agent has ended" {
    begin
    expect 0 drain --wait --run-dir "$RUN"
    has "$OUTPUT" "drained"
    wait_end "$AGENT" 1
    is "$STATUS" 0
}

@test "cli: an agent that hangs is exit 69 after the timeout" {
    begin
    kill -STOP "$AGENT"
    expect 69 ping --timeout 200ms --run-dir "$RUN"
    has "$ERRORS" "did not answer within 200 ms" "pid $AGENT"
    kill -CONT "$AGENT"
    expect 0 ping --run-dir "$RUN"
    stop_agent
}

@test "cli: a second agent on the same directories leaves the first its socket" {
    begin
    local first=$AGENT
    launch second --app "$APP" --run-dir "$RUN" --state-dir "$DIR/state"
    wait_end "$AGENT" 20
    calc "$STATUS != 0"
    expect 0 ping --run-dir "$RUN"
    has "$OUTPUT" "pid $first"
    AGENT=$first
    stop_agent
}
