# Redis for end-to-end tests: a server of the test's own on a socket in its directory, and the
# application on it. Loaded by helper.bash; a test calls use_redis, or the whole suite runs on Redis
# with COHORT_E2E_SOURCE=redis.

REDIS_PREFIX=example_

# use_redis [ARGUMENT...]: start redis-server with these arguments and put $APP on it.
use_redis() {
    SOURCE=redis
    CONNECTION=redis
    REDIS_DIR=$DIR/redis
    REDIS_SOCKET=$DIR/redis.sock
    mkdir -p "$REDIS_DIR"
    redis_start "$@"
    app_env QUEUE_CONNECTION redis
    app_env REDIS_PREFIX "$REDIS_PREFIX"
    redis_app "$REDIS_SOCKET" 0
}

# redis_app HOST PORT [NAME VALUE...]: where the application finds its Redis.
redis_app() {
    app_env REDIS_HOST "$1"
    app_env REDIS_PORT "$2"
    shift 2
    while [ $# -gt 0 ]; do
        app_env "$1" "$2"
        shift 2
    done
}

# redis_start [ARGUMENT...]: REDIS is its pid. The same data directory again after a restart.
redis_start() {
    REDIS_ARGUMENTS=("$@")
    redis-server --port 0 --unixsocket "$REDIS_SOCKET" --dir "$REDIS_DIR" --save '' --appendonly no \
        --maxmemory-policy noeviction "$@" >>"$DIR/redis.log" 2>&1 </dev/null 3>&- {PAUSE_FD}>&- &
    REDIS=$!
    STARTED+=("$REDIS")
    wait_for 30 redis_answers
}

redis_restart() { redis_start "${REDIS_ARGUMENTS[@]}"; }
redis_answers() { [ "$(redis ping 2>/dev/null)" = PONG ]; }
# redis COMMAND...: without the application's prefix.
redis() { redis-cli -s "$REDIS_SOCKET" --raw "$@" {PAUSE_FD}>&- 2>&1; }

# The jobs of all queues as Laravel's keys hold them, one a line: "STATE ATTEMPTS DUE-IN PAYLOAD".
redis_queued() { php "$BATS_TEST_DIRNAME/redis_queued.php" "$REDIS_SOCKET" "$REDIS_PREFIX"; }
redis_left() {
    redis eval "local n = 0
        for _, key in ipairs(redis.call('keys', ARGV[1] .. 'queues:*')) do
            if not key:find('cohort:', 1, true) and not key:find(':notify', 1, true) then
                local kind = redis.call('type', key).ok
                n = n + (kind == 'list' and redis.call('llen', key) or kind == 'zset' and redis.call('zcard', key) or 0)
            end
        end
        return n" 0 "$REDIS_PREFIX"
}

# redis_key QUEUE [PART]: the physical key.
redis_key() { echo "${REDIS_PREFIX}queues:$1${2+:$2}"; }
