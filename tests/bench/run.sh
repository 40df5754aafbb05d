#!/usr/bin/env bash
# The bench: every figure is measured beside stock `php artisan queue:work`, in one run, on one
# machine. Builds and installs what it needs (Debian 12, root where packages are missing).
#
# Usage: tests/bench/run.sh [NAME...] [OPTION...]
#   NAME         handover empty_sqlite cpu_bound pickup respawn memory agent_rss retry_punctual
#                cpu_per_job (default: all; under 15 minutes)
#   --json       one JSON object a row on standard output; all else goes to standard error
#   --plot DIR   an SVG a row
#   --quick      smaller and shorter, under 2 minutes: a check of the bench and of ratios
#   --write      put the figures into tests/bench/README.md (a whole run on a quiet machine only)
#   --busy       measure although other work takes the CPUs; the output says so
#   --rounds N   rounds of each row (default and least: 3)
#   --laravel V  8.83 (default) or 12
#   --build DIR  where to build (default: build)
#
# Exit status: 0 all rows were measured, 1 one could not be, 2 wrong usage, 3 the machine is busy.
# Whether a goal is met is in the output, not in the status.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$root/deploy/setup.sh"

all="handover empty_sqlite cpu_bound pickup respawn memory agent_rss retry_punctual cpu_per_job"
names='' json=false quick=false write=false busy=false plot='' rounds=3 laravel=8.83 build=$root/build

usage() {
    printf 'error: %s; see --help\n' "$*" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
    --json) json=true ;;
    --quick) quick=true ;;
    --write) write=true ;;
    --busy) busy=true ;;
    --plot | --rounds | --laravel | --build)
        [ $# -ge 2 ] || usage "$1 needs a value"
        case $1 in
        --plot) plot=$2 ;;
        --rounds) rounds=$2 ;;
        --laravel) laravel=$2 ;;
        --build) build=$2 ;;
        esac
        shift
        ;;
    -h | --help)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
        exit 0
        ;;
    -*) usage "unknown option $1" ;;
    *)
        case " $all " in *" $1 "*) names="$names $1" ;; *) usage "no row is named $1" ;; esac
        ;;
    esac
    shift
done
case $rounds in '' | *[!0-9]* | [0-2]) usage "--rounds takes a whole number from 3, not $rounds" ;; esac
case $laravel in 8.83 | 12) ;; *) usage "--laravel takes 8.83 or 12, not $laravel" ;; esac
if [ "$write" = true ] && { [ "$quick$busy" != falsefalse ] || [ -n "$names" ]; }; then
    usage "--write is for a whole run on a quiet machine: without names, --quick and --busy"
fi
names=${names:-$all}

setup_main >&2
SETUP_TARGETS="cohortd cohort cohort-worker" setup_build "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo >&2
for option in COHORT_SANITIZE COHORT_TSAN COHORT_COVERAGE COHORT_FUZZ; do
    ! grep -q "^$option:BOOL=ON" "$build/CMakeCache.txt" ||
        die "$build is built with $option, which is no program to measure; name another --build"
done
build=$(cd "$build" && pwd)
if [ -n "$plot" ]; then
    mkdir -p "$plot"
    plot=$(cd "$plot" && pwd)
fi

mkdir -p "$build/bench"
exec 9>"$build/bench/.lock"
flock -n 9 || die "another bench runs in $build/bench; two at once would measure each other"
options=$(php -r 'echo json_encode(["names" => array_values(array_unique(explode(" ", trim($argv[1])))),
    "json" => $argv[2] === "true", "quick" => $argv[3] === "true", "write" => $argv[4] === "true",
    "busy" => $argv[5] === "true", "plot" => $argv[6], "rounds" => (int) $argv[7], "laravel" => $argv[8],
    "build" => $argv[9], "root" => $argv[10]]);' -- \
    "$names" $json $quick $write $busy "$plot" "$rounds" "$laravel" "$build" "$root")
exec php "$here/bench.php" "$options"
