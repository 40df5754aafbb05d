#!/usr/bin/env bats
# What happens to Redis jobs when Redis, the way to it and agents die, freeze and come back.

load helper

not_ready() { [ "$(http_status /readyz)" = 503 ]; }

# second_agent ARGUMENT...: beside the first; SECOND is its pid, FIRST the other's.
second_agent() {
    FIRST=$AGENT FIRST_LOG=$LOG FIRST_HTTP=$HTTP
    launch second --app "$APP" --run-dir "$DIR/run2" --state-dir "$DIR/state2" "$@"
    SECOND=$AGENT SECOND_LOG=$LOG
    wait_ready
    AGENT=$FIRST LOG=$FIRST_LOG HTTP=$FIRST_HTTP
}

stop_second() {
    kill -TERM "$SECOND"
    wait_end "$SECOND" 60
    is "$STATUS" 0
}

@test "Redis killed and started again under load, fsync always: none lost, no written outcome again" {
    local n
    touch "$APP/written.on"
    use_redis --appendonly yes --appendfsync always
    many 2000 '["nap:2"]' '["tries" => 5]'
    start_agent --workers 4
    for n in 1 2 3; do
        wait_for 60 noted end $((n * 450))
        kill -KILL "$REDIS"
        wait_for 10 gone "$REDIS"
        redis_restart
        wait_for 30 ready
    done
    wait_for 90 settled
    none_lost 2000
    nothing_again
    is "$(notes run | awk '$5 != 1' | wc -l)" 0
    stop_agent
}

@test "Redis frozen for 10 s: noticed within 2 s, nothing given away, readiness says so, it recovers alone" {
    use_redis
    many 40 '["nap:100"]' '["tries" => 5]'
    start_agent --workers 1 --claim 20
    second_agent --workers 1 --claim 20
    wait_for 20 noted end 6
    kill -STOP "$REDIS"
    frozen=$(now)
    wait_for 2 not_ready
    wait_for 30 passed_since "$frozen" 10
    is "$(http_status /readyz) $(http_status /livez)" "503 200"
    kill -CONT "$REDIS"
    wait_for 20 ready
    wait_for 60 settled
    none_lost 40
    is "$(twice)" ''
    is "$(notes run | awk '$5 != 1' | wc -l)" 0
    stop_agent
    stop_second
}

@test "the connection cut inside a reply, twenty times: none lost, no written outcome again" {
    local n
    touch "$APP/written.on"
    use_redis
    many 1500 '["nap:2"]' '["tries" => 5]'
    php "$BATS_TEST_DIRNAME/redis_proxy.php" "$DIR/proxy.sock" "$REDIS_SOCKET" "$DIR/cut" \
        >"$DIR/proxy.log" 2>&1 </dev/null 3>&- {PAUSE_FD}>&- &
    STARTED+=("$!")
    redis_app "$DIR/proxy.sock" 0
    start_agent --workers 4
    cuts() { [ "$(grep -c cut "$DIR/proxy.log")" -ge "$1" ]; }
    for ((n = 1; n <= 20; n++)); do
        touch "$DIR/cut"
        settled || wait_for 20 cuts "$n"
    done
    wait_for 60 settled
    cuts 10
    none_lost 1500
    nothing_again
    is "$(notes run | awk '$5 != 1' | wc -l)" 0
    stop_agent
}

@test "the agent killed with 200 claimed: back in their order with attempts untouched, by a successor" {
    use_redis
    app_php <<<"dispatch(probe('0', ['hold:$DIR/go'])); for (\$i = 1; \$i <= 250; \$i++) dispatch(probe(\"\$i\"));"
    start_agent --workers 1 --claim 200
    wait_for 20 ran 0
    wait_for 20 taken_least 200
    workers=$(worker_pids)
    kill -KILL "$AGENT"
    wait_for 10 no_workers_of "$workers"
    touch "$DIR/go"
    start_agent --workers 1 --claim 200
    wait_for 60 settled
    none_lost 251
    is "$(attempts 0)" "1 1"
    is "$(notes run | awk '$4 > 0 { print $4 }' | paste -sd ' ')" "$(seq -s ' ' 250)"
    is "$(notes run | awk '$5 != 1' | wc -l)" 0
    stop_agent
}

@test "the agent killed with 200 claimed and gone for good: a peer has them within 5 s, in their order" {
    use_redis
    app_php <<<"dispatch(probe('0', ['hold:$DIR/go'], ['tries' => 3])); for (\$i = 1; \$i <= 250; \$i++) dispatch(probe(\"\$i\"));"
    start_agent --workers 1 --claim 200
    wait_for 20 ran 0
    wait_for 20 taken_least 200
    second_agent --workers 1 --claim 10
    wait_for 20 noted end 40
    kill -KILL "$AGENT"
    killed=$(now)
    wait_for 60 noted end 250
    calc "$(times run 200) > 0"
    within_5() { awk -v at="$killed" '$3 == "run" && $4 >= 1 && $4 <= 199 && $1 > at { print $1 - at; exit }' "$APP/results.log"; }
    calc "$(within_5) <= 5 * $SLOW"
    is "$(twice)" ''
    is "$(notes run | awk '$4 >= 1 && $4 <= 199 { print $4 }' | paste -sd ' ')" "$(seq -s ' ' 199)"
    is "$(notes run | awk '$4 > 0 && $5 != 1' | wc -l)" 0
    AGENT=$SECOND LOG=$SECOND_LOG
    stop_agent
}

@test "an agent frozen past its lease and continued settles nothing that was given away, and says so once" {
    use_redis
    app_php <<<"for (\$i = 1; \$i <= 60; \$i++) dispatch(probe(\"\$i\", ['nap:20']));"
    start_agent --workers 1 --claim 50
    wait_for 20 noted end 5
    frozen="$AGENT $(worker_pids)"
    second_agent --workers 1
    kill -STOP $frozen
    wait_for 60 ended 60
    kill -CONT $frozen
    said() { [ "$(grep -ciE 'fence|given away' "$FIRST_LOG")" -ge 1 ]; }
    wait_for 20 said
    wait_for 30 settled
    is "$(grep -ciE 'fence|given away' "$FIRST_LOG")" 1
    is "$(notes end | awk '{ print $4 }' | sort -n | uniq | wc -l)" 60
    stop_second
    stop_agent
}

@test "SCRIPT FLUSH again and again under load: nobody notices" {
    local n
    use_redis
    many 1500 '["nap:1"]'
    start_agent --workers 4
    for ((n = 1; n <= 15; n++)); do
        wait_for 30 noted end $((n * 80))
        redis script flush >/dev/null
    done
    wait_for 60 settled
    none_lost 1500
    is "$(twice)" ''
    stop_agent
}

@test "FLUSHDB under load: what ran is done, the agent goes on with what comes" {
    use_redis
    many 500 '["nap:20"]'
    start_agent --workers 2 --claim 50
    wait_for 20 noted end 10
    redis flushdb >/dev/null
    app_php <<<'dispatch(probe("after"));'
    wait_for 30 ended after
    wait_for 20 settled
    is "$(twice)" ''
    is "$(http_status /readyz)" 200
    stop_agent
}

@test "TLS: a good certificate is used, a bad one is refused by name" {
    use_redis
    certificates
    kill -KILL "$REDIS"
    wait_for 10 gone "$REDIS"
    port=$(free_port)
    redis_start --tls-port "$port" --tls-cert-file "$DIR/good.crt" --tls-key-file "$DIR/good.key" \
        --tls-ca-cert-file "$DIR/ca.crt" --tls-auth-clients no
    tls_config() {
        redis_config "'client' => 'phpredis', 'options' => ['prefix' => '$REDIS_PREFIX'],
            'default' => ['scheme' => 'tls', 'host' => '127.0.0.1', 'port' => $port, 'context' => ['stream' => ['cafile' => '$1']]]"
    }
    tls_config "$DIR/ca.crt"
    app_php <<<'dispatch(probe("a"));'
    start_agent
    wait_for 20 ended a
    stop_agent
    tls_config "$DIR/other.crt"
    launch bad --app "$APP" --run-dir "$DIR/run2" --state-dir "$DIR/state2"
    refused() { grep -qi certificate "$LOG"; }
    wait_for 20 refused
    is "$(http_status /readyz) $(http_status /livez)" "503 200"
    redis rpush "$(redis_key default)" x >/dev/null
    is "$(redis llen "$(redis_key default)")" 1
}

certificates() {
    local name
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ours -keyout "$DIR/ca.key" -out "$DIR/ca.crt" 2>/dev/null
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=theirs -keyout "$DIR/other.key" -out "$DIR/other.crt" 2>/dev/null
    openssl req -newkey rsa:2048 -nodes -subj /CN=127.0.0.1 -keyout "$DIR/good.key" -out "$DIR/good.csr" 2>/dev/null
    openssl x509 -req -in "$DIR/good.csr" -CA "$DIR/ca.crt" -CAkey "$DIR/ca.key" -CAcreateserial -days 2 \
        -extfile <(echo subjectAltName=IP:127.0.0.1) -out "$DIR/good.crt" 2>/dev/null
}

@test "Sentinel fails over: the agent follows to the new master and goes on" {
    local ports sentinel
    use_redis
    sed -i '2i require_once "/usr/share/php/Predis/autoload.php";' "$APP/bootstrap/app.php"
    ports=($(free_port) $(free_port) $(free_port))
    kill -KILL "$REDIS"
    wait_for 10 gone "$REDIS"
    redis_start --port "${ports[0]}" --bind 127.0.0.1 --repl-diskless-sync-delay 0
    MASTER=$REDIS
    REDIS_SOCKET=$DIR/replica.sock REDIS_DIR=$DIR/replica
    mkdir "$REDIS_DIR"
    redis_start --port "${ports[1]}" --bind 127.0.0.1 --replicaof 127.0.0.1 "${ports[0]}"
    linked() { redis info replication | grep -q master_link_status:up; }
    wait_for 30 linked
    cat >"$DIR/sentinel.conf" <<CONF
port ${ports[2]}
bind 127.0.0.1
dir $DIR
sentinel monitor shop 127.0.0.1 ${ports[0]} 1
sentinel down-after-milliseconds shop 500
sentinel failover-timeout shop 5000
CONF
    redis-server "$DIR/sentinel.conf" --sentinel >>"$DIR/sentinel.log" 2>&1 </dev/null 3>&- {PAUSE_FD}>&- &
    STARTED+=("$!")
    knows_replica() { redis-cli -p "${ports[2]}" sentinel replicas shop 2>/dev/null | grep -q "${ports[1]}"; }
    wait_for 60 knows_replica
    redis_config "'client' => 'predis', 'options' => ['prefix' => '$REDIS_PREFIX'],
        'default' => ['tcp://127.0.0.1:${ports[2]}?timeout=2', 'options' => ['replication' => 'sentinel', 'service' => 'shop', 'prefix' => '$REDIS_PREFIX']]"
    app_php <<<'for ($i = 1; $i <= 20; $i++) dispatch(probe("$i"));'
    start_agent --workers 2
    wait_for 30 noted end 20
    kill -KILL "$MASTER"
    promoted() { redis role | head -n 1 | grep -q master; }
    wait_for 60 promoted
    app_php <<<'dispatch(probe("after"));'
    wait_for 60 ended after
    is "$(attempts after)" 1
    wait_for 20 ready
    stop_agent
}

@test "100,000 delayed jobs due at once: moved in bounded batches, none lost" {
    local left
    use_redis --slowlog-log-slower-than 5000 --slowlog-max-len 1000
    app_php <<'PHP'
$queue = app('queue')->connection('redis');
$payload = Closure::bind(fn () => $queue->createPayload(probe('ID'), 'default'), null, get_class($queue))();
$redis = app('redis')->connection();
for ($i = 0; $i < 100000; $i += 1000) {
    $members = [];
    for ($n = $i + 1; $n <= $i + 1000; $n++) {
        $members[str_replace(['s:2:\\"ID\\"', json_decode($payload)->id], [sprintf('s:%d:\\"%d\\"', strlen((string) $n), $n), "id-$n"], $payload)] = time() + 3;
    }
    $redis->zadd('queues:default:delayed', $members);
}
PHP
    is "$(redis zcard "$(redis_key default delayed)")" 100000
    redis slowlog reset >/dev/null
    redis config resetstat >/dev/null
    start_agent --workers 2
    moved() { [ "$(redis zcard "$(redis_key default delayed)")" = 0 ]; }
    wait_for 120 moved
    kill -TERM "$AGENT"
    wait_end "$AGENT" 60
    is "$STATUS" 0
    redis info commandstats | grep -E 'eval|fcall'
    redis slowlog get 20
    left=$(redis_left)
    is "$((left + $(notes end | wc -l)))" 100000
    is "$(twice)" ''
    # A slow machine stops Redis itself now and then; a script that grows with the backlog is slow each time.
    calc "$(redis slowlog len) <= 10 * $SLOW"
}

@test "one busy agent and one idle: each job once, none waits for the busy one to look" {
    local late
    use_redis
    app_php <<<"dispatch(probe('busy', ['hold:$DIR/go']));"
    start_agent --workers 1
    wait_for 20 ran busy
    second_agent --workers 1
    app_php <<'PHP'
for ($i = 1; $i <= 60; $i++) {
    note('sent', "$i", 0);
    dispatch(probe("$i"));
    for ($end = microtime(true) + 5; microtime(true) < $end;) {
        usleep(1000);
        if (strpos(file_get_contents(base_path('results.log')), " end $i 1\n") !== false) {
            break;
        }
    }
}
PHP
    touch "$DIR/go"
    wait_for 20 settled
    none_lost 61
    is "$(twice)" ''
    late=$(awk '$3 == "sent" { at[$4] = $1 } $3 == "run" && $4 in at { print $1 - at[$4] }' "$APP/results.log" | sort -n)
    printf 'pickup: median %s, largest %s\n' "$(sed -n 30p <<<"$late")" "$(tail -n 1 <<<"$late")"
    # A wake-up that the busy one swallows costs the idle one its poll of 250 ms.
    calc "$(awk '$1 > 0.2 { n++ } END { print n + 0 }' <<<"$late") <= 6"
    stop_agent
    stop_second
}
