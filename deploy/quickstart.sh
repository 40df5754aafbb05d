#!/usr/bin/env bash
# Cohort in one command: builds it, makes a small real Laravel application on SQLite, starts the
# agent on it, dispatches 1,000 jobs with Laravel's own dispatch() (some delayed, some failing once,
# one failing every time), shows how they are worked off, and stops the agent.
#
# Usage: deploy/quickstart.sh [--keep] [--laravel 12|8.83|auto] [--jobs N]
#   --keep      leave the agent running and say how to look at it and how to stop it
#   --laravel   which Laravel (default auto: 12 where Composer reaches its registry, else 8.83)
#   --jobs      how many jobs (default 1000)
#
# Needs Debian 12, and root where packages are still missing. Everything it makes lies in
# build/quickstart. It can be run again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
. "$here/setup.sh"

keep='' laravel=auto jobs=1000
while [ $# -gt 0 ]; do
    case $1 in
    --keep) keep=1 ;;
    --laravel | --jobs)
        [ $# -ge 2 ] || {
            printf 'error: %s needs a value; see --help\n' "$1" >&2
            exit 2
        }
        if [ "$1" = --jobs ]; then jobs=$2; else laravel=$2; fi
        shift
        ;;
    -h | --help)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
        exit 0
        ;;
    *)
        printf 'error: unknown argument %s; see --help\n' "$1" >&2
        exit 2
        ;;
    esac
    shift
done
case $jobs in '' | *[!0-9]* | 0*) die "--jobs takes a whole number from 1, not $jobs" ;; esac
case $laravel in 12 | 8.83 | auto) ;; *) die "--laravel takes 12, 8.83 or auto, not $laravel" ;; esac

dir=$root/build/quickstart
bin=$root/build/bin
db=$dir/app/database/database.sqlite
tty=''
[ ! -t 1 ] || tty=1

label() { printf '%-12s ' "$1"; }
step() { printf '%-12s %s\n' "$1" "$2"; }
query() { sqlite3 -readonly -cmd '.timeout 5000' "$db" "$1"; }

# ours PID: it is a cohortd of this checkout.
ours() {
    [ -n "$1" ] && [ "$(readlink "/proc/$1/exe" 2>/dev/null)" = "$(readlink -f "$bin/cohortd")" ]
}

# gone PID SECONDS: wait for the process to end.
gone() {
    local end=$((SECONDS + $2))
    while kill -0 "$1" 2>/dev/null; do
        [ "$SECONDS" -lt "$end" ] || return 1
        pause
    done
}

# A tenth of a second.
pause() { read -rt 0.1 -u 8 || :; }
exec 8<> <(:)

stop_agent() {
    ours "$1" || return 0
    kill -TERM "$1"
    gone "$1" 90 || {
        kill -KILL "$1"
        die "the agent (pid $1) did not stop within 90 s of SIGTERM and was killed; see $dir/agent.log"
    }
}

agent=''
at_exit() {
    local status=$?
    if [ -n "$agent" ] && { [ -z "$keep" ] || [ "$status" != 0 ]; }; then
        ours "$agent" && kill -TERM "$agent" 2>/dev/null && gone "$agent" 10 || :
        ! ours "$agent" || kill -KILL "$agent" 2>/dev/null || :
        [ -z "$run_dir" ] || rm -rf "$run_dir"
    fi
}

free_port() {
    local port
    # Whoever listens there answers.
    for port in $(seq 9090 9189); do
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return 0
        fi
    done
    die "no free port between 9090 and 9189 for the agent's HTTP page"
}

# The agent is ready when it says so; when it ends before that, its own words say why.
start_agent() {
    local end=$((SECONDS + 30))
    port=$(free_port)
    # With --keep it outlives this terminal.
    ${keep:+setsid} "$bin/cohortd" --app "$dir/app" --run-dir "$run_dir" --state-dir "$dir/state" \
        --http "127.0.0.1:$port" --log-format text >"$dir/agent.log" 2>&1 </dev/null 8>&- &
    agent=$!
    echo "$agent $run_dir" >"$dir/agent.pid"
    while [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/readyz")" != 200 ]; do
        if ! kill -0 "$agent" 2>/dev/null || [ "$SECONDS" -ge "$end" ]; then
            tail -n 15 "$dir/agent.log" >&2
            die "the agent did not get ready; its last words are above, all of them in $dir/agent.log"
        fi
        pause
    done
}

show() { # SETTLED FAILED
    local width=40 filled
    filled=$(($1 * width / jobs))
    printf '%s%-12s [%s%s] %*d/%d settled, %d failed%s' "${tty:+$'\r'}" progress \
        "$(printf '%*s' "$filled" '' | tr ' ' '#')" "$(printf '%*s' $((width - filled)) '')" \
        "${#jobs}" "$1" "$jobs" "$2" "${tty:+$'\e[K'}"
    [ -n "$tty" ] || echo
}

# What is left is read from Laravel's own tables, not from what the agent says of itself.
follow() {
    local counts left dispatched settled seen=-1 shown=-1 still=$SECONDS
    while :; do
        dispatched=$(grep -xE '[0-9]+' "$dir/dispatch.log" | tail -n 1) || dispatched=0
        kill -0 "$producer" 2>/dev/null || dispatched=$jobs
        counts=$(query 'select count(*) from jobs; select count(*) from failed_jobs;')
        left=${counts%%$'\n'*} failed=${counts##*$'\n'}
        settled=$((dispatched > left ? dispatched - left : 0))
        # The two counts are not of one moment: what was settled stays settled.
        if [ "$settled" -gt "$seen" ]; then
            seen=$settled still=$SECONDS
            # A line a second where there is no terminal to overwrite.
            if [ -n "$tty" ] || [ "$SECONDS" != "$shown" ] || [ "$seen" = "$jobs" ]; then
                shown=$SECONDS
                show "$seen" "$failed"
            fi
        fi
        [ "$seen" -lt "$jobs" ] || break
        ours "$agent" || die "the agent ended while $left jobs were left; see $dir/agent.log"
        [ $((SECONDS - still)) -lt 60 ] || die "nothing moved for 60 s with $left jobs left;" \
            "see $dir/agent.log and: $bin/cohort status --run-dir $run_dir"
        pause
    done
    [ -z "$tty" ] || echo
}

echo "Cohort quick start"
label packages
setup_main
echo "all installed"

label build
SETUP_TARGETS="cohortd cohort cohort-worker" setup_build "$root/build"
echo "$bin/{cohortd,cohort,cohort-worker}"

mkdir -p "$dir"
if [ -r "$dir/agent.pid" ]; then
    read -r old old_run_dir <"$dir/agent.pid" # Left by an earlier run with --keep.
    stop_agent "$old"
    case $old_run_dir in */cohort-quickstart.*) rm -rf "$old_run_dir" ;; esac
    rm -f "$dir/agent.pid"
fi
rm -rf "$dir/state"
label application
app=$("$here/make-app.sh" "$dir/app" --laravel "$laravel" --cache "$root/build/cache")
echo "${app#made "$dir/app": } in build/quickstart/app"

trap at_exit EXIT
trap 'exit 130' INT TERM
# A socket's path holds 107 bytes, so the run directory is not below the build directory.
run_dir=$(mktemp -d "${TMPDIR:-/tmp}/cohort-quickstart.XXXXXX")
start_agent
step agent "pid $agent, ready, http://127.0.0.1:$port/metrics"

started=$(date +%s%N)
: >"$dir/dispatch.log"
php "$dir/app/dispatch.php" "$jobs" >"$dir/dispatch.log" 2>&1 </dev/null 8>&- &
producer=$!
follow
wait "$producer" || {
    tail -n 5 "$dir/dispatch.log" >&2
    die "dispatching failed; its last words are above"
}
took=$((($(date +%s%N) - started) / 1000000))
step jobs "$(tail -n 1 "$dir/dispatch.log")"
step took "$((took / 1000)).$((took % 1000 / 100)) s from the first dispatch to the last end"

if [ -z "$keep" ]; then
    stop_agent "$agent"
    agent=''
    rm -rf "$run_dir" "$dir/agent.pid"
    step stopped "the agent drained and ended"
fi
printf '%d of %d jobs settled: %d done, %d failed\n' "$jobs" "$jobs" $((jobs - failed)) "$failed"
if [ -n "$keep" ]; then
    cat <<END

The agent keeps running (pid $agent). In another terminal:
  $bin/cohort status --watch --run-dir $run_dir
  php $dir/app/dispatch.php 100
  curl http://127.0.0.1:$port/metrics
To stop it:
  kill $agent
END
fi
[ "$failed" = 1 ] || die "one job always fails, the others do not: 1 failed was expected, not $failed"
