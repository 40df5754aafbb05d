#!/usr/bin/env bats
# Plain PHP: an app.php with a handler, a queue the agent makes itself.

load helper

begin() {
    APP=$DIR/plain
    DB=$DIR/state/queue.db
    mkdir "$APP"
    cp "$ROOT/tests/apps/plain/app.php" "$APP/"
    start_agent --queue mail --workers 1 "$@"
}

# send QUEUE DATA-AS-PHP [DELAY]: as a program outside the workers does.
send() {
    COHORT_QUEUE_DATABASE=$DB php -r 'require $argv[1]; echo Cohort\dispatch($argv[2], eval("return $argv[3];"), delay: (int) $argv[4]), "\n";' \
        "$ROOT/worker/php/autoload.php" "$1" "$2" "${3:-0}" {PAUSE_FD}>&-
}

@test "plain: handlers run in order, throw retries, then failed_jobs" {
    begin --tries 2
    send mail '["id" => "a", "do" => ["ok"]]'
    send mail '["id" => "b", "do" => ["throw"]]'
    send mail '["id" => "c", "do" => ["throw", "ok"]]'
    wait_for 10 failed_is 1
    wait_for 10 settled
    is "$(attempts a) / $(attempts b) / $(attempts c)" "1 / 1 2 / 1 2"
    has "$(sql 'select exception from failed_jobs')" "b attempt 2"
    stop_agent
}

@test "plain: release, fail, delay, dispatch from a job, a worker that exits" {
    begin --tries 3
    send mail '["id" => "r", "do" => ["release:0", "ok"]]'
    send mail '["id" => "f", "do" => ["fail:no such user"]]'
    send mail '["id" => "d", "do" => ["dispatch:mail"]]'
    send mail '["id" => "x", "do" => ["exit:0", "ok"]]'
    send mail '["id" => "later", "do" => ["ok"]]' 2
    wait_for 10 ended later
    wait_for 10 settled
    is "$(attempts r) / $(attempts f) / $(attempts d-child) / $(attempts x)" "1 2 / 1 / 1 / 1 2"
    has "$(sql 'select exception from failed_jobs')" "no such user"
    stop_agent
}

@test "plain: a dead agent's queue is served by the next" {
    begin
    stop_agent
    send mail '["id" => "a", "do" => ["ok"]]'
    start_agent --queue mail
    wait_for 10 ended a
    stop_agent
}

@test "plain: a job hears that its worker is to stop, for a reload and for a drain, and ends by itself" {
    begin
    send mail '["id" => "a", "do" => ["untilStop"]]'
    wait_for 10 noted listens 1
    kill -USR2 "$AGENT"
    wait_for 10 ended a
    send mail '["id" => "b", "do" => ["untilStop"]]'
    wait_for 10 noted listens 2
    stop_agent
    is "$(ids listens) / $(ids stop) / $(ids end)" "a b / a b / a b"
    is "$(jobs_left) $(jobs_failed)" "0 0"
}

@test "plain: a job that cuts the shared files ends as a crash, the agent lives and the next runs" {
    begin --tries 2
    send mail "[\"id\" => \"evil\", \"do\" => [\"cut:$RUN\"]]"
    send mail '["id" => "good", "do" => ["ok"]]'
    wait_for 15 ended good
    wait_for 15 failed_is 1
    is "$(attempts evil) / $(attempts good)" "1 2 / 1"
    wait_for 5 settled
    stop_agent
}

@test "plain: more queues than there is room for are all served in time" {
    APP=$DIR/plain
    DB=$DIR/state/queue.db
    mkdir "$APP"
    cp "$ROOT/tests/apps/plain/app.php" "$APP/"
    start_agent --workers 2
    COHORT_QUEUE_DATABASE=$DB php -r 'require $argv[1]; for ($i = 0; $i < 600; $i++) { Cohort\dispatch("tenant-$i", ["id" => "t$i", "do" => ["ok"]]); }' \
        "$ROOT/worker/php/autoload.php" {PAUSE_FD}>&-
    wait_for 40 noted end 600
    wait_for 5 settled
    stop_agent
}

@test "plain: directories named from where the agent was started; one that is cleared is mended" {
    APP=$DIR/plain
    DB=$DIR/state/queue.db
    mkdir "$APP"
    cp "$ROOT/tests/apps/plain/app.php" "$APP/"
    cd "$DIR"
    launch agent --app plain --run-dir run --state-dir state --queue mail --workers 1 --tries 2
    wait_ready
    send mail '["id" => "a", "do" => ["ok"]]'
    wait_for 10 ended a
    rm -rf "$RUN/jobs"
    send mail '["id" => "b", "do" => ["exit:1", "ok"]]'
    wait_for 15 ended b
    wait_for 5 settled
    stop_agent
}
