#!/usr/bin/env bash
# Makes a small real Laravel application on SQLite: queue connection `database`, migrated, ready for
# `php artisan queue:work` and for `cohortd --app DIR`.
#
# Usage: deploy/make-app.sh DIR [--laravel 12|8.83|auto] [--cache DIR]
#   --laravel   12 through Composer, 8.83 from Debian's php-laravel-framework; auto (the default)
#               takes 12 where Composer reaches its registry, else 8.83
#   --cache     where the Composer download is kept for the next time (default: build/cache)
#
# DIR is replaced when this script made it, and left alone otherwise. Prints which Laravel it took.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mark=.made-by-cohort

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
usage() {
    printf 'error: %s; see --help\n' "$*" >&2
    exit 2
}

app= laravel=auto cache=$here/../build/cache
while [ $# -gt 0 ]; do
    case $1 in
    --laravel | --cache)
        [ $# -ge 2 ] || usage "$1 needs a value"
        if [ "$1" = --laravel ]; then laravel=$2; else cache=$2; fi
        shift
        ;;
    -h | --help)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
        exit 0
        ;;
    -*) usage "unknown option $1" ;;
    *)
        [ -z "$app" ] || usage "one directory only"
        app=$1
        ;;
    esac
    shift
done
[ -n "$app" ] || usage "name the directory to make"
case $laravel in 12 | 8.83 | auto) ;; *) usage "--laravel takes 12, 8.83 or auto, not $laravel" ;; esac
if [ -e "$app" ] && [ ! -e "$app/$mark" ] && [ -n "$(ls -A "$app" 2>/dev/null)" ]; then
    die "$app exists and was not made by this script; name another directory or remove it"
fi

# Laravel 12's vendor directory, fetched once and kept in the cache.
fetch_12() {
    local dir=$cache/laravel-12 log=$cache/composer.log attempt
    mkdir -p "$dir"
    [ ! -e "$dir/complete" ] || return 0
    command -v composer >/dev/null 2>&1 || {
        echo "composer is not installed" >"$log"
        return 1
    }
    cp "$here/example/laravel-12/composer.json" "$dir/"
    # Composer 2.5 sometimes maps classes before the last archive is unpacked; the second run finds
    # everything in place.
    for attempt in 1 2; do
        if COMPOSER_ALLOW_SUPERUSER=1 COMPOSER_CACHE_DIR=$cache/composer COMPOSER_PROCESS_TIMEOUT=240 \
            timeout 300 composer install --working-dir="$dir" --no-dev --no-interaction --no-progress \
            --no-scripts >"$log" 2>&1 </dev/null; then
            touch "$dir/complete"
            return 0
        fi
    done
    return 1
}

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
exec 9>"$cache/.lock"
flock 9
case $laravel in
12) fetch_12 || {
    tail -n 5 "$cache/composer.log" >&2
    die "Composer could not fetch Laravel 12 (its last lines are above). Check the network, or use" \
        "--laravel 8.83, which Debian packages."
} ;;
auto) if fetch_12; then laravel=12; else laravel=8.83; fi ;;
esac
flock -u 9
if [ "$laravel" = 8.83 ] && ! php -r "exit((int) !@include_once 'Illuminate/autoload.php');" 2>/dev/null >&2; then
    die "Laravel 8.83 is not installed: apt-get install php-laravel-framework"
fi

rm -rf "$app"
mkdir -p "$app/database"
cp -R "$here/example/common/." "$app/"
if [ "$laravel" = 12 ]; then
    cp -R "$here/example/laravel-12/." "$app/"
    # Hard links are quick and take no room; nothing writes into vendor.
    cp -RPl "$cache/laravel-12/vendor" "$app/vendor" 2>/dev/null || {
        rm -rf "$app/vendor"
        cp -RP "$cache/laravel-12/vendor" "$app/vendor"
    }
else
    cp -R "$here/example/laravel-8/." "$app/"
fi
mv "$app/env" "$app/.env"
printf 'APP_KEY=base64:%s\n' "$(head -c 32 /dev/urandom | base64)" >>"$app/.env"
touch "$app/$mark" "$app/database/database.sqlite"
(cd "$app" && php artisan migrate --force --quiet </dev/null) || die "php artisan migrate failed in $app"
version=$(cd "$app" && php artisan --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+')
if [ "$laravel" = 12 ]; then origin="through Composer"; else origin="from Debian's php-laravel-framework"; fi
echo "made $app: Laravel $version $origin, PHP $(php -r 'echo PHP_VERSION;'), SQLite"
