# A fleet of real agents on loopback addresses of its own, all on one source.

# fleet_begin [QUEUE]: a net, a secret and an application on one SQLite file.
fleet_begin() {
    NET=127.$((RANDOM % 250 + 2)).$((RANDOM % 250 + 2))
    APP=$DIR/plain
    DB=$DIR/queue.db
    mkdir "$APP"
    cp "$ROOT/tests/apps/fleet/app.php" "$APP/"
    "$BIN/cohort" keygen "$DIR/secret" >/dev/null
    declare -gA PID=() WEB=()
}

# fleet_config N WORKERS [LINE...]: the cohort.yaml of agent N; LINEs go below fleet.
fleet_config() {
    local n=$1 workers=$2 join= i
    shift 2
    for i in ${FLEET_SEEDS:-1 2}; do
        join+=${join:+, }$NET.$i:7946
    done
    cat >"$DIR/$n.yaml" <<YAML
apps:
  app: { path: $APP, connection: { driver: sqlite, database: $DB } }
pools:
  jobs: { app: app, queue: mail, workers: $workers${FLEET_POOL:+, $FLEET_POOL} }
fleet:
  name: test
  listen: $NET.$n:7946
  secret_file: ${FLEET_SECRET:-$DIR/secret}
  join: [$join]
YAML
    [ $# = 0 ] || printf '  %s\n' "$@" >>"$DIR/$n.yaml"
}

# fleet_launch N [ARGUMENT...]: start agent N of its configuration, without waiting.
fleet_launch() {
    local n=$1
    shift
    launch "agent$n" --config "$DIR/$n.yaml" --run-dir "$DIR/run$n" --state-dir "$DIR/state$n" "$@"
    PID[$n]=$AGENT
    WEB[$n]=$HTTP
}

# fleet_up WORKERS N...: configure and start these, and wait until each is ready.
fleet_up() {
    local workers=$1 n
    shift
    for n in "$@"; do
        [ -f "$DIR/$n.yaml" ] || fleet_config "$n" "$workers"
        fleet_launch "$n"
    done
    for n in "$@"; do
        wait_for 60 fleet_ready "$n"
    done
}

fleet_ready() { [ "$(curl -s -o /dev/null -m 5 -w '%{http_code}' "http://${WEB[$1]}/readyz")" = 200 ]; }

# on N COMMAND...: cohort, asked of agent N.
on() {
    local n=$1 command=$2
    shift 2
    "$BIN/cohort" "$command" "$@" --run-dir "$DIR/run$n" {PAUSE_FD}>&-
}

# share N: what agent N may run of the only queue; "" while it does not answer.
share() { on "$1" status --fleet --json 2>/dev/null | jq -r '.queues[0].share // empty'; }
# shares N...: "4 4 4".
shares() {
    local n all=()
    for n in "$@"; do
        all+=("$(share "$n")")
    done
    echo "${all[*]}"
}
sum() { local i s=0; for i in $1; do s=$((s + i)); done; echo "$s"; }
shares_are() { local want=$1; shift; [ "$(shares "$@")" = "$want" ]; }
sum_is() { local want=$1; shift; [ "$(sum "$(shares "$@")")" = "$want" ]; }
peers_alive() { [ "$(on "$1" peers --json 2>/dev/null | jq '[.peers[] | select(.state == "alive")] | length')" = "$2" ]; }

# fleet_send N [SECONDS [PREFIX]]: put N jobs that take so long on the queue.
fleet_send() {
    COHORT_QUEUE_DATABASE=$DB php -r 'require $argv[1]; for ($i = 0; $i < (int) $argv[2]; $i++) {
        Cohort\dispatch("mail", ["id" => $argv[4] . $i, "seconds" => (float) $argv[3]]); }' \
        "$ROOT/worker/php/autoload.php" "$1" "${2:-0}" "${3:-j}" {PAUSE_FD}>&-
}
# Every one of N jobs has ended at least once, and none twice.
all_ended_once() { [ "$(notes end | awk '{ n[$4]++ } END { for (i in n) { k++; if (n[i] > 1) d++ } print k + 0, d + 0 }')" = "$1 0" ]; }
# log_of N... TEXT: it stands in the log of each.
log_of() {
    local text=${*: -1} n
    for n in "${@:1:$#-1}"; do
        grep -qF -- "$text" "$DIR/agent$n.log" || {
            echo "not in the log of agent $n: $text"
            return 1
        }
    done
}
