#!/bin/sh
# Fail when a pure library needs anything but memory and text functions: no clock, no socket, no
# file, no thread, no allocator, no random number. Usage: check_pure.sh LIBRARY...
allowed='^(co_|_GLOBAL_OFFSET_TABLE_$|__asan_|__ubsan_|__tsan_|__sanitizer_|__gcov_|__stack_chk_fail$|__assert_fail$)'
allowed="$allowed|^http_parser_|^http_(method|errno|status)_"
allowed="$allowed|^(mem(cpy|move|set|cmp|chr|mem)|str(len|nlen|cmp|ncmp|casecmp|ncasecmp|chr|rchr|str|error|spn|cspn)|v?snprintf|__(v?snprintf|mem(cpy|move|set)|str[a-z]+)_chk|__ctype_b_loc)\$"
for lib in "$@"; do
    out=$(nm -u "$lib" | awk '$1 == "U" { print $2 }' | sort -u | grep -vE "$allowed")
    [ -z "$out" ] || { echo "$lib needs:"; echo "$out"; exit 1; }
done
