#!/usr/bin/env bats
# What people and applications get wrong: a clear error with its place and cure, nothing lost.

load helper

# job_row PAYLOAD [QUEUE]: a row as somebody else's producer might write it.
job_row() {
    sql "insert into jobs (queue, payload, attempts, available_at, created_at)
        values ('${2:-default}', '${1//\'/\'\'}', 0, strftime('%s', 'now'), strftime('%s', 'now'))"
}

# The log says so, and the agent is alive but not ready.
says_not_ready() { # PART...
    local part
    for part in "$@"; do
        wait_for 15 log_has "$part"
    done
    alive "$AGENT"
    is "$(http_status /livez)" 200
    [ "$(http_status /readyz)" = 503 ]
}

begin() { launch agent --app "$APP" --run-dir "$RUN" --state-dir "$DIR/state" "$@"; }

quarantined() { [ "$(cohort failed list --quarantined --json | jq '.. | objects | .jobs? // empty | length')" = "$1" ]; }

@test "no application at the path" {
    refuse --app "$DIR/nowhere" --run-dir "$RUN" --state-dir "$DIR/state"
    is "$STATUS" 2
    has "$OUTPUT" "$DIR/nowhere"
    mkdir "$DIR/empty"
    refuse --app "$DIR/empty" --run-dir "$RUN" --state-dir "$DIR/state"
    [ "$STATUS" != 0 ]
    has "$OUTPUT" "$DIR/empty" "artisan"
}

@test "an application that throws at boot: its text is shown, the cure works" {
    cp "$APP/bootstrap/app.php" "$DIR/app.php"
    sed -i '1a throw new RuntimeException("APP_SECRET is not set");' "$APP/bootstrap/app.php"
    begin
    says_not_ready "APP_SECRET is not set" "bootstrap/app.php"
    cp "$DIR/app.php" "$APP/bootstrap/app.php"
    app_php <<<'dispatch(probe("a"));'
    wait_for 15 ended a
    stop_agent
}

@test "an application that exits at boot" {
    sed -i '1a echo "no licence\\n"; exit(3);' "$APP/bootstrap/app.php"
    begin
    says_not_ready "no licence" "exit"
    stop_agent
}

@test "the database file is missing: said with its path, not made, served once it is there" {
    mv "$DB" "$DIR/aside.sqlite"
    begin
    wait_for 15 log_has "$DB"
    not ready
    [ ! -e "$DB" ]
    mv "$DIR/aside.sqlite" "$DB"
    # Laravel cannot even name the connection then, and the agent ends with its words.
    wait_end "$AGENT" 10
    [ "$STATUS" != 0 ]
    begin
    app_php <<<'dispatch(probe("a"));'
    wait_for 15 ended a
    stop_agent
}

@test "the database is read-only" {
    [ "$(id -u)" = 0 ] || skip "needs root for a read-only mount"
    app_php <<<'dispatch(probe("a"));'
    mount --bind "$APP/database" "$APP/database" || skip "mounting is not allowed here"
    mount -o remount,ro,bind "$APP/database"
    begin
    says_not_ready "$DB" "read"
    umount -l "$APP/database"
    wait_for 15 ended a
    stop_agent
}

@test "the database is locked by another program: waited for, nothing lost" {
    app_php <<<'dispatch(probe("a"));'
    mkfifo "$DIR/hold"
    sqlite3 "$DB" <"$DIR/hold" >"$DIR/locked" 2>&1 {PAUSE_FD}>&- 3>&- &
    STARTED+=("$!")
    exec 7>"$DIR/hold"
    printf 'begin exclusive;\nselect "held";\n' >&7
    wait_for 5 grep -q held "$DIR/locked"
    begin
    says_not_ready "$DB" "locked"
    is "$(count run)" 0
    echo 'rollback;' >&7
    exec 7>&-
    wait_for 15 ended a
    wait_for 5 settled
    stop_agent
}

@test "the database has no jobs table" {
    sql 'alter table jobs rename to aside'
    begin
    says_not_ready "jobs" "migrate"
    sql 'alter table aside rename to jobs'
    app_php <<<'dispatch(probe("a"));'
    wait_for 15 ended a
    stop_agent
}

@test "the disk is full: said, nothing lost, goes on when there is room" {
    [ "$(id -u)" = 0 ] || skip "needs root for a small file system"
    mkdir "$DIR/small"
    mount -t tmpfs -o size=2m none "$DIR/small" || skip "mounting is not allowed here"
    # A page is free for the job; then the rest is filled up.
    app_php <<<'for ($i = 1; $i <= 50; $i++) dispatch(probe("$i", ["ok"], ["tries" => 5]));'
    mv "$DB" "$DIR/small/db.sqlite"
    app_env DB_DATABASE "$DIR/small/db.sqlite"
    head -c 4m /dev/zero >"$DIR/small/fill" 2>/dev/null || :
    begin
    wait_for 15 grep -iE 'full|space' "$LOG"
    rm "$DIR/small/fill"
    DB=$DIR/small/db.sqlite
    wait_for 20 settled
    is "$(notes end | awk '{ print $4 }' | sort -u | wc -l)" 50
    stop_agent
}

@test "a payload that is no JSON or has no job: kept, visible, requeueable; the next is on time" {
    job_row 'this is no JSON {'
    job_row '{"uuid":"x","data":[]}'
    app_php <<<'dispatch(probe("after"));'
    start_agent --workers 1
    wait_for 3 ended after
    wait_for 5 quarantined 2
    is "$(jobs_left) $(jobs_failed)" "0 0"
    has "$(cohort failed list --quarantined)" default JSON job
    has "$(cohort queues)" quarantine
    cohort failed retry --all --quarantined
    wait_for 5 quarantined 2 # They come back as they are, and are refused again.
    is "$(sql "select count(*) from cohort_quarantine where payload = 'this is no JSON {'")" 1
    stop_agent
}

@test "a job whose class is missing fails with its reason, the next is on time" {
    app_php <<<'dispatch(probe("a"));'
    sql "update jobs set payload = replace(payload, 'Jobs\\\\Probe', 'Jobs\\\\Gone!')"
    sql "update jobs set payload = replace(payload, 'App\\\\Jobs\\\\Gone!', 'App\\\\Jobs\\\\Gone1')"
    app_php <<<'dispatch(probe("after"));'
    start_agent --workers 1
    wait_for 5 ended after
    wait_for 5 failed_is 1
    has "$(sql 'select exception from failed_jobs')" Gone
    job_row '{"uuid":"0b1a1a6e-5d50-4a3b-8f9d-3a1d7c1b0001","displayName":"Nope","job":"Nope@fire","data":[]}'
    wait_for 5 failed_is 2
    has "$(sql 'select exception from failed_jobs order by id desc limit 1')" Nope
    wait_for 5 settled
    stop_agent
}

@test "attempts at 255 go on counting" {
    app_php <<<'dispatch(probe("a", ["throw"], ["tries" => 258]));'
    sql 'update jobs set attempts = 254'
    start_agent
    wait_for 10 failed_is 1
    is "$(attempts a)" "255 256 257 258"
    wait_for 5 settled
    stop_agent
}

@test "a payload of 64 MiB runs, one byte more is quarantined" {
    app_php <<'PHP'
use Illuminate\Support\Facades\DB;
foreach (['big' => 0, 'over' => 1] as $id => $more) {
    $queue = app('queue')->connection();
    $queue->push(probe($id));
    $row = DB::table('jobs')->orderByDesc('id')->first();
    $pad = 64 * 1048576 + $more - strlen($row->payload) - strlen(',"pad":""');
    $payload = substr($row->payload, 0, -1).',"pad":"'.str_repeat('x', $pad).'"}';
    DB::table('jobs')->where('id', $row->id)->update(['payload' => $payload]);
}
dispatch(probe('after'));
PHP
    is "$(sql 'select max(length(payload)) from jobs')" $((64 * 1048576 + 1))
    start_agent --workers 1
    wait_for 30 ended after
    wait_for 10 ended big
    is "$(count run over)" 0
    wait_for 5 quarantined 1
    is "$(sql 'select length(payload) from cohort_quarantine')" $((64 * 1048576 + 1))
    wait_for 5 settled
    stop_agent
}

@test "an unknown key in cohort.yaml: file, line and what is known" {
    printf 'apps: { shop: { path: %s } }\npools:\n  jobs: { app: shop, wokers: 3 }\n' "$APP" >"$DIR/cohort.yaml"
    refuse --config "$DIR/cohort.yaml" --run-dir "$RUN" --state-dir "$DIR/state"
    is "$STATUS" 2
    has "$OUTPUT" "$DIR/cohort.yaml:3" wokers workers
    run "$BIN/cohort" config check "$DIR/cohort.yaml"
    [ "$status" != 0 ]
    has "$output" "$DIR/cohort.yaml:3" wokers
}

@test "an unknown option" {
    refuse --app "$APP" --wokers 3
    is "$STATUS" 2
    has "$OUTPUT" "--wokers" "--help"
}

@test "a second agent on the same directories is refused, the first goes on" {
    local first
    start_agent
    first=$AGENT
    refuse --app "$APP" --run-dir "$RUN" --state-dir "$DIR/state"
    [ "$STATUS" != 0 ]
    has "$OUTPUT" "$RUN" "another cohortd"
    AGENT=$first
    app_php <<<'dispatch(probe("a"));'
    wait_for 10 ended a
    stop_agent
}

@test "the port is in use" {
    local taken first
    start_agent
    first=$AGENT taken=$HTTP
    refuse --app "$APP" --run-dir "$DIR/run2" --state-dir "$DIR/state2" --http "$taken"
    [ "$STATUS" != 0 ]
    has "$OUTPUT" "$taken" "in use" "admin.http"
    AGENT=$first HTTP=$taken LOG=$DIR/agent.log
    stop_agent
}

@test "a libphp of another version is refused by name" {
    local lib
    lib=$(ldd "$BIN/cohort-worker" | awk '/libphp/ { print $3 }')
    LC_ALL=C sed 's/API20220829,NTS/API20210902,NTS/g' "$lib" >"$DIR/libphp.so"
    begin --libphp "$DIR/libphp.so"
    wait_for 15 log_has "$DIR/libphp.so"
    has "$(cat "$LOG")" API20210902 API20220829
    not ready
}

@test "a default connection of sync is refused with the way out" {
    sed -i 's/^QUEUE_CONNECTION=.*/QUEUE_CONNECTION=sync/' "$APP/.env"
    begin
    wait_for 15 log_has sync
    has "$(cat "$LOG")" sync QUEUE_CONNECTION database
    not ready
}

@test "a Redis connection is refused by name" {
    sed -i 's/^QUEUE_CONNECTION=.*/QUEUE_CONNECTION=redis/' "$APP/.env"
    begin
    wait_for 15 log_has redis
    has "$(cat "$LOG")" redis
    not ready
}
