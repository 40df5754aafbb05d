#!/usr/bin/env bats
# Real agents of a fleet on one machine: shares, deaths, operators' words.

load helper
load fleet.bash

@test "fleet: three agents on one SQLite file split a target of 12; a killed one's share is taken over" {
    fleet_begin
    fleet_up 12 1 2 3
    wait_for 20 peers_alive 1 2
    on 2 scale mail 12 --fleet --reason "test"
    wait_for 20 shares_are "4 4 4" 1 2 3
    local i
    for i in $(seq 30); do
        is "$(sum "$(shares 1 2 3)")" 12
    done
    fleet_send 120 0.3
    wait_for 20 noted run 12
    kill -KILL "${PID[3]}"
    wait_for 20 sum_is 12 1 2
    is "$(shares 1 2)" "6 6"
    wait_for 60 settled
    all_ended_once 120
    log_of 1 2 "counts as dead"
    kill -TERM "${PID[1]}"
    wait_for 20 shares_are 12 2
    kill -TERM "${PID[2]}"
    wait_end "${PID[1]}" 30
    is "$STATUS" 0
    wait_end "${PID[2]}" 30
    is "$STATUS" 0
}
