#!/bin/sh
# Fail when a file includes a folder its own folder may not use, or a foreign library outside its
# home. Usage: check_layers.sh SOURCE_DIR
cd "$1" || exit 2
bad=0

# allow FOLDER REGEX: what the files of FOLDER may name in #include "..."
allow() {
    [ -d "$1" ] || return 0
    out=$(grep -rnE '^#include "' "$1" --include='*.[ch]' | grep -vE "#include \"($2)\"")
    [ -z "$out" ] || { echo "$out"; echo "^ $1/ may include only: $2"; bad=1; }
}
allow proto 'proto/[a-z0-9_]+\.h'
allow autoscale '(proto|autoscale)/[a-z0-9_]+\.h'
allow worker '(proto|worker)/[a-z0-9_]+\.h'
allow agent '(proto|autoscale|agent)/[a-z0-9_]+\.h|worker/dispatch\.h'
allow controller '(proto|autoscale|controller)/[a-z0-9_]+\.h'

# home HEADER FILES: the only files that may include a foreign library
home() {
    out=$(grep -rlE "^#include <($1)" proto autoscale worker agent controller 2>/dev/null |
          grep -vE "^($2)$")
    [ -z "$out" ] || { echo "$out includes <$1>, which belongs to $2"; bad=1; }
}
home 'c?yaml(/|\.h)' 'proto/[a-z_]*_yaml\.c'
home 'jansson\.h' 'proto/[a-z_]*_json\.[ch]'
home '(zmq|sodium)\.h' 'agent/[a-z_]*_zmq\.c|controller/client_zmq\.c'
home 'sqlite3\.h' 'agent/[a-z_]*_sqlite(_impl)?\.[ch]'
home 'uv\.h' 'agent/[a-z_]*_uv\.[ch]'
home '(hiredis|openssl)/' 'agent/[a-z_]*_redis\.c'
home 'http_parser\.h' 'agent/http_parse\.[ch]'
home '(n?curses)\.h' 'controller/cmd_top\.c'
home '(php|sapi/|main/|Zend/|ext/)' 'worker/php_[a-z_]+\.[ch]'
exit $bad
