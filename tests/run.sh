#!/usr/bin/env bash
# The tests, as CI runs them (quick tier, at most 15 minutes on 2 cores). Installs what it needs
# (Debian 12, root where packages are missing) and builds four times: plain, with address and
# undefined-behaviour sanitizers, with clang and the fuzz targets, with the thread sanitizer.
#
# Usage: tests/run.sh [--full] [--only STAGE,...] [--build DIR]
#   --full    about an hour: every Laravel on every build, three times, and two minutes a fuzz target
#   --only    some of: build, unit, asan, tsan, fuzz, php, quickstart, e2e-asan, e2e-plain
#   --build   where to build (default: build)
#
# Ends with what failed and what was skipped, by name; exit status 0 when nothing failed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
. "$root/deploy/setup.sh"
set +e

full='' only='' build=$root/build
while [ $# -gt 0 ]; do
    case $1 in
    --full) full=1 ;;
    --only | --build)
        [ $# -ge 2 ] || {
            printf 'error: %s needs a value; see --help\n' "$1" >&2
            exit 2
        }
        if [ "$1" = --only ]; then only=,$2, && shift; else build=$2 && shift; fi
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

(setup_main --tests) || exit 1
mkdir -p "$build"
build=$(cd "$build" && pwd)
logs=$build/test-logs
rm -rf "$logs"
mkdir -p "$logs"
: >"$logs/failed" >"$logs/skipped"
passed=0 failed=0 skipped=0
export COHORT_CACHE=$build/cache

wanted() { [ -z "$only" ] || [[ $only == *,$1,* ]]; }
note_failed() { printf '%s\n' "$*" >>"$logs/failed"; }
note_skipped() { printf '%s\n' "$*" >>"$logs/skipped"; }

# limit SECONDS COMMAND...: what hangs is ended and has failed; a stage waits for nothing for ever.
limit() {
    local seconds=$1 status=0
    [ -z "$full" ] || seconds=$((seconds * 4))
    shift
    timeout -k 30 "$seconds" "$@" || status=$?
    [ "$status" != 124 ] && [ "$status" != 137 ] || printf 'ended: not through after %d s: %s\n' "$seconds" "$1"
    return $status
}

# stage NAME COMMAND...: run it, say how long it took.
stage() {
    local name=$1 begin=$SECONDS
    shift
    wanted "${name%% *}" || return 0
    printf '== %s\n' "$name"
    "$@" || {
        note_failed "stage $name"
        failed=$((failed + 1))
    }
    printf '   (%d s)\n' $((SECONDS - begin))
}

# build_one NAME [CMAKE-ARGUMENT...]
build_one() {
    local name=$1 dir=$build
    shift
    [ "$name" = plain ] || dir=$build/$name
    rm -f "$dir/built"
    (setup_build "$dir" "$@") && touch "$dir/built" && printf '   built %s\n' "$name"
}

build_all() {
    local ok=0
    build_one plain || ok=1
    build_one asan -DCOHORT_SANITIZE=ON || ok=1
    build_one clang -DCMAKE_C_COMPILER=clang-14 -DCOHORT_SANITIZE=ON -DCOHORT_FUZZ=ON || ok=1
    SETUP_TARGETS=$(worker_tests) build_one tsan -DCOHORT_TSAN=ON || ok=1
    return $ok
}

# The dispatch tests: the ring is what threads share.
worker_tests() {
    local file
    for file in "$here"/worker/test_*.c; do
        printf 'worker_%s ' "$(basename "$file" .c)"
    done
}

# What did not build is not tested, and that is a failure of its own.
built() {
    [ -e "$1/built" ] || {
        printf '   not run: the build in %s failed or was left out\n' "$1"
        return 1
    }
}

# run_ctest NAME DIR [CTEST-ARGUMENT...]
run_ctest() {
    local name=$1 dir=$2 log=$logs/ctest-$1.log status bad total
    shift 2
    built "$dir" || return 1
    limit 600 ctest --test-dir "$dir" -j 2 --timeout 300 --output-on-failure --no-tests=error "$@" >"$log" 2>&1 </dev/null
    status=$?
    total=$(sed -nE 's/.* tests failed out of ([0-9]+)$/\1/p' "$log")
    bad=$(sed -nE 's/.*, ([0-9]+) tests failed out of.*/\1/p' "$log")
    passed=$((passed + ${total:-0} - ${bad:-0}))
    failed=$((failed + ${bad:-0}))
    [ "$status" = 0 ] || {
        grep -v 'Passed' "$log" | tail -n 80
        sed -nE 's/^\s*[0-9]+ - (\S+) \((Failed|Timeout|SEGFAULT|Not Run|Subprocess aborted).*/ctest \1/p' "$log" |
            while read -r line; do note_failed "$line ($name)"; done
    }
    sed -nE "s/^\s*[0-9]+ - (\S+) \((Skipped|Disabled)\)/ctest \1/p" "$log" |
        while read -r line; do note_skipped "$line ($name)"; done
    grep -E 'tests passed|No tests' "$log"
    # What failed is counted above, one by one.
    [ "$status" = 0 ] || [ "${bad:-0}" -gt 0 ]
}

# run_bats NAME BIN LARAVEL SLOW JOBS FILE...
run_bats() {
    local name=$1 bin=$2 laravel=$3 slow=$4 jobs=$5 log good bad out
    shift 5
    log=$logs/bats-${name// /-}.tap
    COHORT_BIN=$bin COHORT_E2E_LARAVEL=$laravel COHORT_E2E_SLOW=$slow \
        limit 1500 bats --tap --print-output-on-failure -j "$jobs" "$@" >"$log" 2>&1 </dev/null
    out=$(grep -cE '^ok .* # skip' "$log")
    good=$(($(grep -cE '^ok ' "$log") - out))
    bad=$(grep -cE '^not ok ' "$log")
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + out))
    [ "$bad" = 0 ] || awk '/^not ok /{ show = 1 } /^ok /{ show = 0 } show' "$log"
    sed -nE 's/^not ok [0-9]+ (.*)/\1/p' "$log" |
        while read -r line; do note_failed "bats $name: $line"; done
    sed -nE 's/^ok [0-9]+ (.*) # skip ?(.*)/\1: \2/p' "$log" |
        while read -r line; do note_skipped "bats $name: $line"; done
    printf '   %s: %d tests, %d failures, %d skipped\n' "$name" $((good + bad + out)) "$bad" "$out"
    # A run that ended before its plan was through has failed, whatever it counted.
    [ "$(sed -nE 's/^1\.\.([0-9]+)$/\1/p' "$log")" = $((good + bad + out)) ] || {
        tail -n 20 "$log"
        return 1
    }
}

# run_e2e NAME BIN LARAVEL SLOW: the tests that wait go side by side, those that load the machine
# one after the other.
run_e2e() {
    local name=$1 bin=$2 laravel=$3 slow=$4 file light=() status=0
    built "${bin%/bin}" || return 1
    for file in "$here"/e2e/*.bats; do
        [ "${file##*/}" = faults.bats ] || light+=("$file")
    done
    run_bats "$name Laravel $laravel" "$bin" "$laravel" "$slow" 4 "${light[@]}" || status=1
    run_bats "$name Laravel $laravel faults" "$bin" "$laravel" "$slow" 1 "$here/e2e/faults.bats" || status=1
    return $status
}

run_fuzz_long() {
    local target status=0
    for target in "$build"/clang/fuzz/fuzz_*; do
        mkdir -p "$build/corpus/${target##*/}"
        "$target" -max_total_time=120 -max_len=65536 "$build/corpus/${target##*/}" \
            >"$logs/${target##*/}.log" 2>&1 </dev/null || {
            tail -n 40 "$logs/${target##*/}.log"
            note_failed "fuzz ${target##*/}"
            status=1
        }
    done
    return $status
}

run_quickstart() {
    limit 300 "$root/deploy/quickstart.sh" >"$logs/quickstart.log" 2>&1 </dev/null || {
        tail -n 30 "$logs/quickstart.log"
        return 1
    }
    tail -n 1 "$logs/quickstart.log"
    passed=$((passed + 1))
}

# The PHP package on real Laravels, without the agent.
run_php() {
    local log=$logs/php.log status counts
    COHORT_TEST_LARAVEL12=$build/probe-12 limit 600 php "$here/php/run.php" >"$log" 2>&1 </dev/null
    status=$?
    counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    passed=$((passed + $(sed -nE 's/^([0-9]+) passed.*/\1/p' <<<"${counts:-0 passed}")))
    failed=$((failed + $(sed -nE 's/.* ([0-9]+) failed.*/\1/p' <<<"${counts:-, 0 failed}")))
    [ "$status" = 0 ] || tail -n 40 "$log"
    sed -nE 's/^left out: /php: /p' "$log" | while read -r line; do note_skipped "$line"; done
    printf '   php: %s\n' "${counts:-did not run to its end}"
    return "$status"
}

# Processes of our programs that nobody ended: named, and ended by pid.
leftovers() {
    local exe path found=''
    for exe in /proc/[0-9]*/exe; do
        path=$(readlink "$exe" 2>/dev/null) || continue
        case $path in
        "$build"/*)
            found+=" ${exe//[^0-9]/}"
            printf '   left: %s %s\n' "${exe//[^0-9]/}" "$(tr '\0' ' ' <"${exe%exe}cmdline" 2>/dev/null)"
            ;;
        esac
    done
    [ -z "$found" ] || kill -KILL $found 2>/dev/null
    [ -z "$found" ]
}

laravels=8.83
if (COHORT_CACHE=$build/cache "$root/deploy/make-app.sh" "$build/probe-12" --laravel 12 --cache "$COHORT_CACHE") \
    >"$logs/laravel-12.log" 2>&1; then
    laravels="8.83 12"
else
    note_skipped "everything on Laravel 12: Composer could not fetch it ($(tail -n 1 "$logs/laravel-12.log"))"
fi

stage build build_all
stage unit run_ctest plain "$build"
stage asan run_ctest asan "$build/asan"
stage tsan run_ctest tsan "$build/tsan" -R '^worker/'
stage fuzz run_ctest clang "$build/clang" -R "^fuzz/"
[ -z "$full" ] || stage "fuzz long" run_fuzz_long
stage php run_php
rm -rf "$build/probe-12"
stage quickstart run_quickstart
if [ -n "$full" ]; then
    for round in 1 2 3; do
        for laravel in $laravels; do
            stage "e2e-asan $round" run_e2e "asan $round" "$build/asan/bin" "$laravel" 3
            stage "e2e-plain $round" run_e2e "plain $round" "$build/bin" "$laravel" 3
        done
    done
else
    # Each Laravel once, each build once; --full crosses them.
    stage e2e-asan run_e2e asan "$build/asan/bin" 8.83 3
    stage e2e-plain run_e2e plain "$build/bin" "${laravels##* }" 3
    note_skipped "the full tier: both Laravels on both builds, repeats, long fuzzing (tests/run.sh --full)"
fi
[ -z "$only" ] || note_skipped "stages other than ${only//,/ }(--only)"

printf '== leftovers\n'
leftovers || {
    note_failed "processes were left behind"
    failed=$((failed + 1))
}

if [ -s "$logs/skipped" ]; then
    printf '\nskipped:\n'
    sed 's/^/  /' "$logs/skipped"
fi
if [ -s "$logs/failed" ]; then
    printf '\nfailed (logs in %s):\n' "$logs"
    sed 's/^/  /' "$logs/failed"
fi
printf '\n%d s\n%d passed, %d failed, %d skipped\n' "$SECONDS" "$passed" "$failed" "$skipped"
[ "$failed" = 0 ] && [ ! -s "$logs/failed" ]
