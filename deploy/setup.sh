#!/usr/bin/env bash
# What Cohort needs on Debian 12, and how it is built. Used by quickstart.sh and tests/run.sh.
#
# Usage: deploy/setup.sh [--tests] [--build DIR [CMAKE-ARGUMENT...]]
#   (nothing)   install the packages that building and serving need
#   --tests     those of the tests as well
#   --build     then build into DIR (the programs are in DIR/bin)
set -eu

# Building and running the agent, and a Laravel application on SQLite.
# (CMake looks for cmocka whatever is built.)
packages_base="gcc libc6-dev cmake ninja-build pkg-config ca-certificates procps
    libphp8.2-embed php8.2-dev php8.2-cli php8.2-opcache php8.2-sqlite3 php8.2-mbstring php8.2-xml
    libzmq3-dev libsodium-dev libsqlite3-dev libuv1-dev libhttp-parser-dev libjansson-dev
    libyaml-dev libhiredis-dev libssl-dev libcmocka-dev sqlite3 curl composer unzip
    php-laravel-framework"
# Tests besides: a second compiler, the test tools, what the end-to-end tests look through.
packages_tests="clang-14 libclang-rt-14-dev bats parallel jq git binutils mount
    redis-server php8.2-redis php-nrk-predis openssl iproute2 valgrind"

say() { printf '%s\n' "$*"; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# The packages among "$@" that are not installed.
setup_missing() {
    local name
    for name in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] ||
            printf '%s ' "$name"
    done
}

# One apt-get call for what is missing; the package lists are fetched only when they are needed.
setup_packages() {
    local missing log
    command -v dpkg-query >/dev/null 2>&1 || die "this script installs Debian packages and" \
        "dpkg-query is not here. Use Debian 12, or install what README.md lists under" \
        "Dependencies and build with cmake."
    missing=$(setup_missing "$@") && missing=${missing% }
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || die "these packages are missing and installing them needs root: $missing
Run this command as root (sudo), or have them installed first:
  sudo apt-get install --no-install-recommends $missing"
    say "installing $missing"
    log=$(mktemp)
    # shellcheck disable=SC2086 # A list of names.
    if setup_apt install $missing >"$log" 2>&1 ||
        { setup_apt update >"$log" 2>&1 && setup_apt install $missing >"$log" 2>&1; }; then
        rm -f "$log"
        return 0
    fi
    tail -n 15 "$log" >&2
    rm -f "$log"
    die "apt-get could not install: $missing
Its last lines are above. Check that this is Debian 12 and that its package servers can be reached
from here (apt-get update), then run this command again."
}

setup_apt() {
    if [ "$1" = update ]; then
        DEBIAN_FRONTEND=noninteractive apt-get -q -o APT::Update::Error-Mode=any update </dev/null
    else
        # RUNLEVEL=1: what is installed starts no service.
        RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends "$@" </dev/null
    fi
}

# setup_build DIR [CMAKE-ARGUMENT...]: configure and build SETUP_TARGETS (default: all), quietly
# unless it fails. A lock keeps two runs out of one directory.
setup_build() {
    local dir=$1 source log
    shift
    source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    mkdir -p "$dir"
    log=$dir/build.log
    (
        flock 9
        # shellcheck disable=SC2086 # A list of names.
        cmake -S "$source" -B "$dir" -G Ninja "$@" >"$log" 2>&1 &&
            nice ninja -C "$dir" ${SETUP_TARGETS-} >>"$log" 2>&1
    ) 9>"$dir/.lock" && return 0
    if grep -qE 'FAILED|error:|CMake Error' "$log"; then
        grep -E -A12 'FAILED|error:|CMake Error' "$log" | head -n 60 >&2
    else
        tail -n 40 "$log" >&2
    fi
    die "the build in $dir failed; the whole output is in $log"
}

setup_main() {
    local tests='' build=''
    while [ $# -gt 0 ]; do
        case $1 in
        --tests) tests=1 ;;
        --build)
            [ $# -ge 2 ] || die "--build needs a directory"
            build=$2
            shift 2
            break
            ;;
        -h | --help)
            sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
            exit 0
            ;;
        *)
            printf 'error: unknown argument %s; see --help\n' "$1" >&2
            exit 2
            ;;
        esac
        shift
    done
    # shellcheck disable=SC2086 # Lists of names.
    setup_packages $packages_base ${tests:+$packages_tests}
    [ -z "$build" ] || setup_build "$build" "$@"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    setup_main "$@"
fi
