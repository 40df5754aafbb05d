#!/usr/bin/env bats
# Laravel's Redis queues: what is theirs alone. The lines that hold for every source are in
# conformance.bats and life_conformance.bats (COHORT_E2E_SOURCE=redis).

load helper

quarantined() { cohort failed list --quarantined --json | jq '.jobs | length'; }
quarantined_is() { [ "$(quarantined)" = "$1" ]; }

@test "46 a payload without attempts, or that is no JSON: put aside whole, the worker goes on" {
    use_redis
    redis rpush "$(redis_key default)" '{"job":"x' 'not json' '{"job":"App\\Jobs\\None@fire","data":[],"id":"i"}' >/dev/null
    app_php <<<'dispatch(probe("a"));'
    start_agent --workers 1
    wait_for 20 ended a
    wait_for 10 quarantined_is 3
    is "$(queued)" ''
    is "$(jobs_failed)" 0
    has "$(cohort failed list --quarantined --json | jq -r '.jobs[].payload')" '{"job":"x' 'not json' '"id":"i"'
    # One that is mended comes back and runs.
    cohort failed retry --quarantined "$(cohort failed list --quarantined --json | jq -r '.jobs[0].id')"
    wait_for 10 quarantined_is 3
    stop_agent
}

@test "47 a class that is not there: failed_jobs, with the reason" {
    use_redis
    app_php <<<'dispatch(probe("a"));'
    payload=$(payloads | sed 's/Illuminate[^"]*call/App\\\\Gone@fire/')
    redis del "$(redis_key default)" "$(redis_key default notify)" >/dev/null
    redis rpush "$(redis_key default)" "$payload" >/dev/null
    start_agent
    wait_for 20 failed_is 1
    has "$(sql 'select exception from failed_jobs')" 'App\Gone'
    wait_for 10 settled
    stop_agent
}

@test "a released job keeps its payload's bytes; only the digits of attempts are other ones" {
    use_redis
    app_php <<<'dispatch(probe("ü/\\u00e9 1e+99", ["release:60", "ok"], ["tries" => 12]));'
    before=$(payloads)
    start_agent
    wait_for 20 noted end 1
    released() { [ "$(queued | awk '{ print $1, $2 }')" = "delayed 1" ]; }
    wait_for 10 released
    is "$(payloads)" "${before/\"attempts\":0/\"attempts\":1}"
    stop_agent
}

@test "Queue::size, queue:monitor, queue:clear: what the agent holds is counted and cleared" {
    use_redis
    app_php <<<"dispatch(probe('0', ['hold:$DIR/go'])); for (\$i = 1; \$i <= 30; \$i++) dispatch(probe(\"\$i\")); dispatch(probe('late'))->delay(60);"
    start_agent --workers 1 --claim 20
    wait_for 20 ran 0
    size() { app_php <<<'echo app("queue")->size(), "\n";'; }
    is "$(size)" 32
    has "$(artisan queue:monitor redis:default --max=10)" ALERT
    artisan queue:clear redis --force
    is "$(size)" 0
    touch "$DIR/go"
    wait_for 20 ended 0
    app_php <<<'dispatch(probe("after"));'
    wait_for 20 ended after
    is "$(ids run)" "0 after"
    stop_agent
}

@test "48 beside stock queue:work: each job once, attempts true, delayed jobs by either side" {
    use_redis
    many 400 '["nap:2"]' '["tries" => 3]'
    app_php <<<'for ($i = 401; $i <= 500; $i++) dispatch(probe("$i", ["throw", "ok"], ["tries" => 3]))->delay($i % 2);'
    start_agent --workers 2
    for n in 1 2; do
        php "$APP/artisan" queue:work --sleep=0.1 --tries=3 >>"$DIR/stock.log" 2>&1 </dev/null 3>&- {PAUSE_FD}>&- &
        STARTED+=("$!")
    done
    wait_for 60 settled
    none_lost 500
    is "$(notes end | wc -l)" 500
    is "$(notes run | awk '$4 <= 400 && $5 != 1' | wc -l)" 0
    is "$(notes run | awk '$4 > 400 { print $5 }' | sort | uniq -c | awk '{ print $1 ":" $2 }' | paste -sd ' ')" "100:1 100:2"
    calc "$(notes run | awk '{ print $2 }' | sort -u | wc -l) >= 3"
    stop_agent
}

@test "the application's client is Predis, with a prefix and a database of its own" {
    use_redis
    sed -i '2i require_once "/usr/share/php/Predis/autoload.php";' "$APP/bootstrap/app.php"
    redis_config "'client' => 'predis', 'options' => ['prefix' => 'p:'],
        'default' => ['scheme' => 'unix', 'path' => '$REDIS_SOCKET', 'database' => 3]"
    app_php <<<'dispatch(probe("a", ["throw", "ok"], ["tries" => 2]));'
    is "$(redis -n 3 llen p:queues:default)" 1
    start_agent
    wait_for 20 ended a
    gone_from_redis() { [ "$(redis -n 3 exists p:queues:default p:queues:default:reserved p:queues:default:delayed)" = 0 ]; }
    wait_for 10 gone_from_redis
    is "$(attempts a)" "1 2"
    stop_agent
}

@test "a user and a password; wrong ones are named, and no secret is shown" {
    needs_laravel 9 "names of Redis users"
    REDIS_AUTH=(--user worker --pass s3cr3t-word --no-auth-warning)
    use_redis --user worker on '>s3cr3t-word' '~*' '&*' '+@all' --user default off
    app_env REDIS_USERNAME worker
    app_env REDIS_PASSWORD s3cr3t-word
    app_php <<<'dispatch(probe("a"));'
    start_agent
    wait_for 20 ended a
    not grep -rF s3cr3t-word "$LOG"
    for pid in $AGENT $(pgrep -P "$AGENT"); do
        not grep -qF s3cr3t-word "/proc/$pid/cmdline"
    done
    stop_agent
    app_env REDIS_PASSWORD wr0ng-word
    launch second --app "$APP" --run-dir "$DIR/run2" --state-dir "$DIR/state2"
    refused() { grep -qiE 'WRONGPASS|invalid username-password' "$LOG"; }
    wait_for 20 refused
    is "$(http_status /readyz) $(http_status /livez)" "503 200"
    not grep -F wr0ng-word "$LOG"
}
