#!/usr/bin/env bash
# Makes the applications the end-to-end tests run on, one a Laravel version: deploy/make-app.sh plus
# the fixtures of tests/apps/laravel. Every test works on a copy.
#
# Usage: tests/setup.sh DIR VERSION...      makes DIR/VERSION for 8.83 or 12
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 2 ]; then
    echo "usage: tests/setup.sh DIR VERSION..." >&2
    exit 2
fi
dir=$1
shift
mkdir -p "$dir"
for version in "$@"; do
    "$here/../deploy/make-app.sh" "$dir/$version" --laravel "$version" \
        --cache "${COHORT_CACHE:-$here/../build/cache}"
    cp -R "$here/apps/laravel/." "$dir/$version/"
    sqlite3 "$dir/$version/database/database.sqlite" \
        'create table items (id integer primary key, name text)'
    rm -f "$dir/$version/storage/logs/laravel.log"
done
