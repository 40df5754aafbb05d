#!/usr/bin/env bash
# The gate of CI: measures the rows whose figure is a ratio to stock `queue:work` (bench run.sh
# --quick) and fails when one has fallen to less than half of what ratios.json holds. A ratio is of
# one run on one machine, so a slow or busy CI machine moves it far less than it moves a figure.
#
# Usage: tests/bench/gate.sh [--store] [--build DIR]
#   --store   write the ratios of this run to ratios.json
#   --build   where to build (default: build)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
store='' build=()
while [ $# -gt 0 ]; do
    case $1 in
    --store) store=1 ;;
    --build)
        [ $# -ge 2 ] || {
            printf 'error: --build needs a directory\n' >&2
            exit 2
        }
        build=(--build "$2")
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

out=$(mktemp)
trap 'rm -f "$out"' EXIT
"$here/run.sh" --quick --busy --json "${build[@]}" empty_sqlite cpu_per_job cpu_bound respawn memory >"$out"
php "$here/gate.php" "$here/ratios.json" "$out" $store
