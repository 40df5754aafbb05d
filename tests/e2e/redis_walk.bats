#!/usr/bin/env bats
# A Laravel application on Redis, from dispatch to empty keys.

load helper

setup_redis() { [ "$SOURCE" = redis ] || use_redis; }

ours_left() { redis --scan --pattern "${REDIS_PREFIX}cohort:*" | sort | paste -sd ' '; }

@test "jobs of a Redis queue run, are retried, delayed and failed, and leave nothing behind" {
    setup_redis
    app_php <<'PHP'
for ($i = 1; $i <= 50; $i++) dispatch(probe("$i"));
dispatch(probe('again', ['throw', 'ok'], ['tries' => 2]));
dispatch(probe('fails', ['throw']));
dispatch(probe('late'))->delay(2);
PHP
    start_agent --workers 2
    wait_for 20 ended late
    wait_for 10 noted run 54
    wait_for 10 failed_is 1
    wait_for 10 settled
    is "$(attempts again)" '1 2'
    is "$(attempts fails)" 1
    is "$(cohort status --json | jq -r '.sources[0].driver')" redis
    stop_agent
    is "$(ours_left)" ''
}

@test "of a payload only the digits of attempts change" {
    setup_redis
    app_php <<<'dispatch(probe("a", ["throw"], ["tries" => 3, "backoff" => 600]));'
    before=$(payloads)
    has "$before" '"attempts":0'
    start_agent --workers 1
    wait_for 10 ran a
    wait_for 10 waiting_with 1
    is "$(payloads)" "${before/\"attempts\":0/\"attempts\":1}"
    stop_agent
    is "$(payloads)" "${before/\"attempts\":0/\"attempts\":1}"
}

@test "what was claimed and never began is back in its old order after a drain" {
    setup_redis
    app_php <<<'for ($i = 1; $i <= 40; $i++) dispatch(probe("$i", $i === 1 ? ["sleep:1"] : []));'
    before=$(payloads | tail -n 39)
    start_agent --workers 1 --claim 30
    wait_for 10 ran 1
    stop_agent
    is "$(payloads | tail -n +1)" "$before"
    is "$(queued | awk '$1 != "ready" || $2 != 0' | wc -l)" 0
    is "$(ours_left)" ''
}

@test "what is no job is put aside and the rest runs" {
    setup_redis
    redis rpush "$(redis_key default)" 'no json at all' '{"job": 1}' >/dev/null
    app_php <<<'dispatch(probe("a"));'
    start_agent --workers 1
    wait_for 10 ended a
    wait_for 10 settled
    is "$(redis hlen "${REDIS_PREFIX}cohort:quarantine")" 2
    log_has 'put into quarantine'
    stop_agent
}
