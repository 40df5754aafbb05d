# What every end-to-end test works with. A test has a directory of its own with a copy of the
# application and starts its own agents on free ports; teardown ends what it started, by pid.
#
#     COHORT_BIN           where cohortd, cohort and cohort-worker are (default build/bin)
#     COHORT_E2E_LARAVEL   8.83 or 12
#     COHORT_E2E_SLOW      factor on all deadlines (sanitised builds, slow machines)

ROOT=$(cd "${BATS_TEST_DIRNAME:-.}/../.." && pwd)
BIN=${COHORT_BIN:-$ROOT/build/bin}
SLOW=${COHORT_E2E_SLOW:-1}
exec {PAUSE_FD}<> <(:)
. "${BATS_TEST_DIRNAME:-.}/redis.bash"

setup() {
    # Sockets' paths are short: not below the test runner's own directory.
    DIR=$(mktemp -d "${TMPDIR:-/tmp}/ce2e.XXXXXX")
    APP=$DIR/app
    DB=$APP/database/database.sqlite
    LOG=$DIR/agent.log
    RUN=$DIR/run
    STARTED=()
    SOURCE=sqlite
    CONNECTION=database
    copy_app "$APP"
    [ "${COHORT_E2E_SOURCE:-sqlite}" = sqlite ] || use_redis
}

teardown() {
    local pid
    for pid in "${STARTED[@]}"; do
        if kill -0 "$pid" 2>/dev/null; then
            kill -KILL "$pid" 2>/dev/null || :
            wait "$pid" 2>/dev/null || :
        fi
    done
    if [ -z "${BATS_TEST_COMPLETED-}" ] && [ -z "${BATS_TEST_SKIPPED-}" ]; then
        local log
        for log in "$DIR"/*.log; do
            [ ! -s "$log" ] || { echo "--- ${log##*/} (last lines)"; tail -n 25 "$log"; }
        done
        [ ! -s "$APP/results.log" ] || { echo "--- results.log (last lines)"; tail -n 12 "$APP/results.log"; }
    fi
    [ -z "${SHM-}" ] || rm -rf "$SHM"
    # A test that was skipped before it had a directory: nothing of it is there, and every mount of
    # the machine would look like its own.
    [[ ${DIR-} == /*/ce2e.* ]] || return 0
    local place
    for place in $(awk -v dir="$DIR/" 'index($2, dir) == 1 { print $2 }' /proc/mounts); do
        umount -l "$place"
    done
    # A worker needs a moment to be gone after its agent.
    rm -rf "$DIR" 2>/dev/null || { pause; rm -rf "$DIR"; }
}

# ---- waiting

pause() { read -rt "${1:-0.02}" -u "$PAUSE_FD" || :; }

# wait_for SECONDS COMMAND...: until COMMAND succeeds; fails when it has not in time.
wait_for() {
    local seconds=$1 end
    end=$(($(date +%s%N) + seconds * SLOW * 1000000000))
    shift
    until "$@"; do
        if [ "$(date +%s%N)" -ge "$end" ]; then
            echo "not so within $((seconds * SLOW)) s: $*"
            return 1
        fi
        pause
    done
}

now() { date +%s.%N; }

# not COMMAND...: bash lets a test go on after a failed "! command".
not() {
    if "$@"; then
        echo "unexpected: $*"
        return 1
    fi
}

# calc EXPRESSION: true when awk says so.
calc() { awk "BEGIN { exit !($1) }"; }

# is ACTUAL EXPECTED
is() {
    [ "$1" = "$2" ] || {
        printf 'expected: %s\nactual:   %s\n' "$2" "$1"
        return 1
    }
}

# has TEXT PART...: every part stands in the text.
has() {
    local text=$1 part
    shift
    for part in "$@"; do
        [[ $text == *"$part"* ]] || {
            printf 'missing: %s\nin: %s\n' "$part" "$text"
            return 1
        }
    done
}

# ---- the application

copy_app() {
    local name
    mkdir -p "$1"
    for name in "$COHORT_E2E_APPS/$COHORT_E2E_LARAVEL"/* "$COHORT_E2E_APPS/$COHORT_E2E_LARAVEL"/.env; do
        case $name in
        */vendor) cp -RPl "$name" "$1/" 2>/dev/null || cp -RP "$name" "$1/" ;;
        *) cp -RP "$name" "$1/" ;;
        esac
    done
}

app_env() { printf '%s=%s\n' "$1" "$2" >>"$APP/.env"; }

# The code on standard input, in the booted application.
app_php() { (cd "$APP" && php run.php {PAUSE_FD}>&-); }
artisan() { (cd "$APP" && php artisan "$@" </dev/null {PAUSE_FD}>&-); }
sql() { sqlite3 -batch -cmd '.timeout 10000' "$DB" "$1"; }

# needs_source NAME WHY
needs_source() { [ "$SOURCE" = "$1" ] || skip "$2 ($1 only)"; }

needs_laravel() { # VERSION FEATURE
    calc "$COHORT_E2E_LARAVEL >= $1" || skip "Laravel $COHORT_E2E_LARAVEL has no $2 (since $1)"
}

# What jobs noted: "TIME PID WHAT ID ATTEMPT" lines.
notes() { [ ! -f "$APP/results.log" ] || awk -v what="$1" '$3 == what' "$APP/results.log"; }
ids() { notes "$1" | awk '{ print $4 }' | paste -sd ' '; }
count() { notes "$1" | awk -v id="${2-}" 'id == "" || $4 == id { n++ } END { print n + 0 }'; }
attempts() { notes run | awk -v id="$1" '$4 == id { print $5 }' | paste -sd ' '; }
times() { notes "$1" | awk -v id="$2" '$4 == id { print $1 }'; }

# The jobs of all queues, one a line: "STATE ATTEMPTS DUE-IN PAYLOAD"; the state is ready, delayed or reserved.
queued() {
    [ "$SOURCE" = sqlite ] || {
        redis_queued
        return
    }
    sql "select case when reserved_at is not null then 'reserved' when available_at > strftime('%s', 'now')
        then 'delayed' else 'ready' end || ' ' || attempts || ' ' || (available_at - strftime('%s', 'now')) || ' ' ||
        payload from jobs order by id"
}
# waiting_with LEAST: how many that nobody holds have so many attempts at least.
waiting_with() { queued | awk -v least="$1" '$1 != "reserved" && $2 >= least { n++ } END { print n + 0 }'; }
payloads() { queued | cut -d ' ' -f 4-; }
jobs_left() { if [ "$SOURCE" = sqlite ]; then sql 'select count(*) from jobs'; else redis_left; fi; }
jobs_failed() { sql 'select count(*) from failed_jobs'; }

ran() { [ "$(count run "$1")" -ge "${2:-1}" ]; }
ended() { [ "$(count end "$1")" -ge "${2:-1}" ]; }
noted() { [ "$(count "$1")" -ge "$2" ]; }
settled() { [ "$(jobs_left)" = 0 ]; }
failed_is() { [ "$(jobs_failed)" = "$1" ]; }

# ---- the agent

free_port() {
    php -r '$s = stream_socket_server("tcp://127.0.0.1:0"); echo explode(":", stream_socket_get_name($s, false))[1];'
}

# launch NAME ARGUMENT...: start cohortd without waiting; AGENT is its pid, HTTP its address.
launch() {
    local name=$1
    shift
    LOG=$DIR/$name.log
    HTTP=127.0.0.1:$(free_port)
    "$BIN/cohortd" --http "$HTTP" --log-format text "$@" >>"$LOG" 2>&1 </dev/null 3>&- {PAUSE_FD}>&- &
    AGENT=$!
    STARTED+=("$AGENT")
}

ready() { [ "$(http_status /readyz)" = 200 ]; }
http_status() { curl -s -o /dev/null -m 5 -w '%{http_code}' "http://$HTTP$1"; }
alive() { kill -0 "$1" 2>/dev/null; }
gone() { ! alive "$1"; }
ready_or_gone() { ready || gone "$AGENT"; }

# start_agent ARGUMENT...: on $APP, and wait until it is ready. COHORT_E2E_STOCK=1 starts stock
# `queue:work` processes instead, which shows whether a test asks what Laravel itself does.
start_agent() {
    if [ -n "${COHORT_E2E_STOCK-}" ]; then
        start_stock "$@"
        return
    fi
    launch agent --app "$APP" --run-dir "$RUN" --state-dir "$DIR/state" "$@"
    wait_ready
}

start_stock() {
    local workers=1 options=()
    while [ $# -gt 0 ]; do
        case $1 in
        --workers) workers=$2 && shift 2 ;;
        --claim) shift 2 ;;
        --force) options+=("$1") && shift ;;
        *) options+=("$1=$2") && shift 2 ;;
        esac
    done
    while [ "$workers" -gt 0 ]; do
        php "$APP/artisan" queue:work --sleep=0.1 "${options[@]}" >>"$LOG" 2>&1 </dev/null 3>&- &
        AGENT=$!
        STARTED+=("$AGENT")
        workers=$((workers - 1))
    done
}

wait_ready() {
    wait_for 30 ready_or_gone
    alive "$AGENT" || {
        echo "the agent ended before it was ready"
        return 1
    }
}

# wait_end PID SECONDS: its exit status in STATUS.
wait_end() {
    wait_for "$2" gone "$1"
    STATUS=0
    wait "$1" || STATUS=$?
}

stop_agent() {
    kill -TERM "$AGENT"
    wait_end "$AGENT" 60
    is "$STATUS" 0
}

# refuse ARGUMENT...: cohortd ends by itself; its status in STATUS, its words in OUTPUT.
refuse() {
    launch refused "$@"
    wait_end "$AGENT" 20
    OUTPUT=$(cat "$LOG")
}

cohort() {
    local command=$1
    shift
    "$BIN/cohort" "$command" "$@" --run-dir "$RUN" {PAUSE_FD}>&-
}

worker_pids() { cohort workers --json | jq -r '.. | objects | select(has("pid") and has("state") and .pid > 0) | .pid'; }
log_has() { grep -qF -- "$1" "$LOG"; }

# ---- pools

# pool_config LINE...: a cohort.yaml for $APP whose pool has these lines, in CONFIG.
pool_config() {
    CONFIG=$DIR/cohort.yaml
    {
        printf 'apps:\n  app:\n    path: %s\npools:\n  jobs:\n    app: app\n' "$APP"
        [ $# = 0 ] || printf '    %s\n' "$@"
    } >"$CONFIG"
}

# start_pool ARGUMENT...: as start_agent, with the configuration of pool_config.
start_pool() {
    launch agent --config "$CONFIG" --run-dir "$RUN" --state-dir "$DIR/state" "$@"
    wait_ready
}

# The newest child of the agent that holds a socket: workers have none.
zygote_pid() {
    local pid newest=''
    for pid in $(cat "/proc/$AGENT/task/$AGENT/children"); do
        ! find "/proc/$pid/fd" -lname 'socket:*' 2>/dev/null | grep -q . || newest=$pid
    done
    echo "$newest"
}

metric() { curl -s -m 5 "http://$HTTP/metrics" | awk -v name="$1" 'index($0, name " ") == 1 { print $2 }'; }
exits() { metric "cohort_worker_exits_total{pool=\"jobs\",reason=\"$1\"}"; }
exits_is() { [ "$(exits "$1")" = "$2" ]; }
# A member of the only pool's status, and of a queue's.
pool_of() { cohort status --json | jq -r ".pools[0].$1"; }
pool_is() { [ "$(pool_of "$1")" = "$2" ]; }
queue_of() { cohort status --json | jq -r --arg name "$1" ".queues[] | select(.name == \$name) | .$2"; }
queue_is() { [ "$(queue_of "$1" "$2")" = "$3" ]; }
workers_in() { pool_of "workers_by_state.$1"; }
workers_are() { [ "$(workers_in "$1")" = "$2" ]; }

# each_boot FUNCTION: once for each way to make workers, on a clean application; BOOT says which.
each_boot() {
    for BOOT in ${COHORT_E2E_BOOTS:-preload after_fork spawn}; do
        echo "--- boot: $BOOT"
        renew
        "$1"
    done
}

renew() {
    local table
    for table in jobs failed_jobs job_batches items; do
        sql "delete from $table"
    done
    [ "$SOURCE" = sqlite ] || redis flushall >/dev/null
    rm -rf "$APP/results.log" "$APP/storage/framework/cache/data" "$APP/storage/framework/down" \
        "$RUN" "$DIR/state" "$DIR"/agent.log "$DIR/go"
    mkdir -p "$APP/storage/framework/cache/data"
    STARTED=()
    [ "$SOURCE" = sqlite ] || STARTED+=("$REDIS")
}

# boot_pool LINE... [-- ARGUMENT...]: a pool that boots as BOOT says, with a short grace.
boot_pool() {
    local lines=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        lines+=("$1")
        shift
    done
    [ $# = 0 ] || shift
    pool_config "boot: $BOOT" 'kill_grace: 500ms' "${lines[@]}"
    start_pool "$@"
}
