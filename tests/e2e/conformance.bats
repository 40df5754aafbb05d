#!/usr/bin/env bats
# Laravel's queue semantics, line by line; the numbers are those of the project's conformance list.
# Lines about timeouts, locks, pauses and restarts belong to parts that are not there yet.

load helper

# within VALUE LOW HIGH
within() {
    calc "$1 >= $2 && $1 <= $3" || {
        echo "$1 is not between $2 and $3"
        return 1
    }
}

# gaps ID: seconds between the starts of a job, one a line.
gaps() { times run "$1" | awk 'NR > 1 { printf "%.3f\n", $1 - last } { last = $1 }'; }

# Delays are whole seconds of the clock: B seconds is more than B-1 and, with our own slack, at most B+1.
gaps_are() { # ID SECONDS...
    local id=$1 gap
    shift
    is "$(gaps "$id" | wc -l)" $#
    for gap in $(gaps "$id"); do
        within "$gap" "$1-1.01" "$1+$SLOW"
        shift
    done
}

@test "01 jobs run in the order of their dispatch with one worker" {
    app_php <<<'for ($i = 1; $i <= 200; $i++) dispatch(probe("$i"));'
    start_agent --workers 1
    wait_for 20 noted run 200
    is "$(ids run)" "$(seq -s ' ' 200)"
    wait_for 5 settled
    stop_agent
}

@test "02 all of the first queue run before any of the second" {
    app_php <<'PHP'
for ($i = 1; $i <= 30; $i++) {
    dispatch(probe("low-$i"))->onQueue('low');
    dispatch(probe("high-$i"))->onQueue('high');
}
PHP
    start_agent --workers 1 --queue high,low --claim 20
    wait_for 20 noted run 60
    is "$(ids run)" "$(printf 'high-%d ' $(seq 30))$(printf 'low-%d ' $(seq 29))low-30"
    stop_agent
}

@test "03 a delayed job runs when it is due and within a second after" {
    start_agent
    app_php <<<'note("sent", "a", 0); dispatch(probe("a"))->delay(3);'
    wait_for 6 ran a
    within "$(times run a) - $(times sent a)" 2 "4.2+$SLOW-1"
    stop_agent
}

@test "04 --tries 3: three runs, then failed_jobs with the last exception" {
    app_php <<<'dispatch(probe("a", ["throw"]));'
    start_agent --tries 3
    wait_for 10 failed_is 1
    is "$(attempts a)" "1 2 3"
    has "$(sql 'select exception from failed_jobs')" "RuntimeException: a attempt 3"
    wait_for 5 settled
    stop_agent
}

@test "05 without tries a job runs once and fails" {
    app_php <<<'dispatch(probe("a", ["throw"]));'
    start_agent
    wait_for 10 failed_is 1
    is "$(attempts a)" "1"
    wait_for 5 settled
    stop_agent
}

@test "06 the job's own tries beat --tries" {
    app_php <<<'dispatch(probe("a", ["throw"], ["tries" => 5]));'
    start_agent --tries 1
    wait_for 10 failed_is 1
    is "$(attempts a)" "1 2 3 4 5"
    stop_agent
}

@test "07 tries 0 is unlimited" {
    app_php <<<'dispatch(probe("a", array_merge(array_fill(0, 9, "throw"), ["ok"])));'
    start_agent --tries 0
    wait_for 10 ended a
    is "$(attempts a)" "$(seq -s ' ' 10)"
    wait_for 5 settled
    is "$(jobs_failed)" 0
    stop_agent
}

@test "08 backoff [1, 2, 4] with 5 tries: 1, 2, 4, 4 seconds between" {
    app_php <<<'dispatch(probe("a", ["throw"], ["tries" => 5, "backoff" => [1, 2, 4]]));'
    start_agent
    wait_for 20 failed_is 1
    gaps_are a 1 2 4 4
    stop_agent
}

@test "09 --backoff 3: three seconds" {
    app_php <<<'dispatch(probe("a", ["throw", "ok"], ["tries" => 2]));'
    start_agent --backoff 3
    wait_for 10 ended a
    gaps_are a 3
    stop_agent
}

@test "10 retryUntil: tries are ignored until then, then it fails" {
    # Dispatched into a running agent: how long one takes to boot must not eat the five seconds.
    start_agent
    app_php <<<'dispatch(probe("a", ["throw"], ["tries" => 1, "retryUntil" => 5, "backoff" => 1]));'
    wait_for 15 failed_is 1
    within "$(count run a)" 3 8
    within "$(times run a | tail -n 1) - $(times run a | head -n 1)" 2.5 "6+$SLOW"
    wait_for 5 settled
    stop_agent
}

@test "11 maxExceptions counts exceptions, not releases" {
    app_php <<'PHP'
dispatch(probe('a', ['release:0', 'release:0', 'throw', 'release:0', 'throw', 'release:0', 'release:0', 'throw'],
    ['tries' => 25, 'maxExceptions' => 3]));
PHP
    start_agent
    wait_for 15 failed_is 1
    is "$(attempts a)" "$(seq -s ' ' 8)"
    has "$(sql 'select exception from failed_jobs')" "a attempt 8"
    stop_agent
}

@test "12 release(5): back after five seconds, the attempt counted, not failed" {
    app_php <<<'dispatch(probe("a", ["release:5", "ok"], ["tries" => 2]));'
    start_agent
    wait_for 15 ended a 2
    is "$(attempts a)" "1 2"
    gaps_are a 5
    is "$(jobs_failed)" 0
    stop_agent
}

@test "13 release() is immediate" {
    app_php <<<'dispatch(probe("a", ["release", "ok"], ["tries" => 2]));'
    start_agent
    wait_for 10 ended a 2
    within "$(gaps a)" 0 "1*$SLOW"
    stop_agent
}

@test "14 fail(): failed, no retry, failed() called" {
    app_php <<<'dispatch(probe("a", ["fail"], ["tries" => 3])); dispatch(probe("b", ["fail:reason b"], ["tries" => 3]));'
    start_agent --workers 1
    wait_for 10 failed_is 2
    is "$(attempts a)" "1"
    wait_for 5 settled
    is "$(ids failed)" "a b"
    has "$(sql 'select exception from failed_jobs order by id limit 1')" "ManuallyFailedException"
    has "$(sql 'select exception from failed_jobs order by id desc limit 1')" "reason b"
    stop_agent
}

@test "14b fail(string): its message" {
    needs_laravel 9 "fail() with a string"
    app_php <<<'dispatch(probe("a", ["failString:out of stock"]));'
    start_agent
    wait_for 10 failed_is 1
    has "$(sql 'select exception from failed_jobs')" "ManuallyFailedException: out of stock"
    stop_agent
}

@test "15 delete(): not retried, the next of its chain still runs" {
    app_php <<<'Illuminate\Support\Facades\Bus::chain([probe("a", ["delete"], ["tries" => 3]), probe("b")])->dispatch();'
    start_agent --tries 3
    wait_for 10 ended b
    wait_for 5 settled
    is "$(ids run)" "a b"
    is "$(jobs_failed)" 0
    stop_agent
}

@test "22 final failure: failed() on a fresh instance, the event, a whole row" {
    touch "$APP/events.on"
    app_php <<<'dispatch(probe("a", ["throw"]))->onQueue("mail");'
    payload=$(payloads)
    start_agent --queue mail
    wait_for 10 failed_is 1
    is "$(count failed a)" 1
    is "$(count failed-stale)" 0
    has "$(ids event)" JobFailed
    is "$(sql 'select uuid from failed_jobs')" "$(jq -r .uuid <<<"$payload")"
    is "$(sql 'select connection || " " || queue from failed_jobs')" "$CONNECTION mail"
    is "$(sql 'select payload from failed_jobs')" "$payload"
    has "$(sql 'select exception from failed_jobs')" "RuntimeException: a attempt 1 in " "#0 "
    within "$(sql "select strftime('%s', 'now') - strftime('%s', failed_at) from failed_jobs")" 0 30
    stop_agent
}

@test "23 queue:retry: attempts start again, the row is gone, the job runs" {
    app_php <<'PHP'
dispatch(probe('a', ['throw'], ['tries' => 2]));
dispatch(probe('b', ['throw'], ['tries' => 1]))->onQueue('other');
dispatch(probe('c', ['throw'], ['backoff' => 1, 'retryUntil' => 2]));
PHP
    start_agent --queue default,other
    wait_for 10 failed_is 3
    is "$(attempts a)" "1 2"
    artisan queue:retry "$(sql "select uuid from failed_jobs where payload like '%s:1:\\\"a\\\"%'")"
    wait_for 10 ran a 4
    wait_for 10 failed_is 3
    is "$(attempts a)" "1 2 1 2"
    artisan queue:retry --queue=other
    wait_for 10 ran b 2
    wait_for 10 failed_is 3
    is "$(attempts b)" "1 1"
    c=$(count run c)
    artisan queue:retry all
    wait_for 10 ran a 6
    wait_for 10 ran b 3
    wait_for 10 ran c $((c + 2)) # Its retryUntil begins anew.
    wait_for 10 failed_is 3
    stop_agent
}

@test "24 queue:forget, queue:flush, queue:prune-failed: rows only" {
    app_php <<<'for ($i = 1; $i <= 3; $i++) dispatch(probe("$i", ["throw"]));'
    start_agent
    wait_for 10 failed_is 3
    artisan queue:forget "$(sql 'select uuid from failed_jobs order by id limit 1')"
    is "$(jobs_failed)" 2
    sql "update failed_jobs set failed_at = '2020-01-01 00:00:00' where id = (select min(id) from failed_jobs)"
    artisan queue:prune-failed --hours=24
    is "$(jobs_failed)" 1
    artisan queue:flush
    is "$(jobs_failed)" 0
    app_php <<<'dispatch(probe("after"));'
    wait_for 10 ended after
    stop_agent
}

@test "29 SIGTERM during a job: it completes, exit 0, no further job" {
    app_php <<PHP
dispatch(probe('a', ['hold:$DIR/go']));
dispatch(probe('b'));
PHP
    start_agent --workers 1
    wait_for 10 ran a
    kill -TERM "$AGENT"
    touch "$DIR/go"
    wait_end "$AGENT" 10
    is "$STATUS" 0
    is "$(ids end)" a
    is "$(queued | awk '{ print $1, $2 }')" "ready 0"
}

@test "32 events come in Laravel's order" {
    touch "$APP/events.on"
    start_agent --workers 1
    if calc "$COHORT_E2E_LARAVEL >= 11"; then
        attempted=" JobAttempted" released=" JobReleasedAfterException"
    else
        attempted='' released='' # Laravel 8 has neither.
    fi
    success="JobProcessing JobProcessed$attempted"
    retry="JobProcessing JobExceptionOccurred$released$attempted"
    final="JobProcessing JobFailed JobExceptionOccurred$attempted"
    app_php <<<'dispatch(probe("a"));'
    wait_for 10 ended a
    wait_for 5 settled
    app_php <<<'dispatch(probe("b", ["throw"], ["tries" => 2]));'
    wait_for 10 failed_is 1
    wait_for 5 settled
    is "$(ids event)" "$success $retry $final"
    stop_agent
}

@test "37 a chain runs in order; after a failure nothing, and catch once" {
    app_php <<'PHP'
use Illuminate\Support\Facades\Bus;
Bus::chain([probe('a'), probe('b'), probe('c')])->dispatch();
Bus::chain([probe('d'), probe('e', ['throw']), probe('f')])
    ->catch(function () { note('catch', 'chain', 0); })->dispatch();
PHP
    start_agent --workers 2
    wait_for 10 ended c
    wait_for 10 noted catch 1
    wait_for 5 settled
    is "$(ids run | tr ' ' '\n' | grep '[abc]' | paste -sd ' ')" "a b c"
    is "$(ids run | tr ' ' '\n' | grep '[def]' | paste -sd ' ')" "d e"
    is "$(count catch)" 1
    stop_agent
}

@test "38 a batch: progress for each, then and finally once" {
    app_php <<'PHP'
use Illuminate\Support\Facades\Bus;
Bus::batch([probe('1'), probe('2'), probe('3'), probe('4'), probe('5')])
    ->then(function () { note('then', 'batch', 0); })
    ->catch(function () { note('catch', 'batch', 0); })
    ->finally(function () { note('finally', 'batch', 0); })
    ->dispatch();
PHP
    start_agent --workers 2
    wait_for 10 noted finally 1
    wait_for 5 settled
    is "$(count then) $(count finally) $(count catch) $(count run)" "1 1 0 5"
    is "$(sql 'select pending_jobs from job_batches')" 0
    stop_agent
}

@test "38b a failing batch: cancelled and catch once; allowFailures goes on" {
    app_php <<'PHP'
use Illuminate\Support\Facades\Bus;
Bus::batch([probe('1', ['throw']), probe('2', ['throw']), probe('3')])
    ->catch(function () { note('catch', 'strict', 0); })
    ->finally(function () { note('finally', 'strict', 0); })->name('strict')->dispatch();
Bus::batch([probe('4', ['throw']), probe('5')])->allowFailures()
    ->catch(function () { note('catch', 'lax', 0); })
    ->finally(function () { note('finally', 'lax', 0); })->name('lax')->dispatch();
PHP
    start_agent --workers 1
    wait_for 10 noted finally 2
    wait_for 5 settled
    is "$(ids catch)" "strict lax"
    is "$(sql "select cancelled_at is not null from job_batches where name = 'strict'")" 1
    is "$(sql "select cancelled_at is not null from job_batches where name = 'lax'")" 0
    is "$(count run 5)" 1
    stop_agent
}

@test "38c progress is called for every job of a batch" {
    needs_laravel 11 "Batch::progress()"
    app_php <<'PHP'
use Illuminate\Support\Facades\Bus;
Bus::batch([probe('1'), probe('2'), probe('3'), probe('4'), probe('5')])
    ->progress(function () { note('progress', 'batch', 0); })
    ->finally(function () { note('finally', 'batch', 0); })->dispatch();
PHP
    start_agent --workers 2
    wait_for 10 noted finally 1
    is "$(count progress)" 5
    stop_agent
}

@test "38d SkipIfBatchCancelled skips the rest of a cancelled batch" {
    needs_laravel 9 "SkipIfBatchCancelled"
    app_php <<'PHP'
use Illuminate\Queue\Middleware\SkipIfBatchCancelled;
use Illuminate\Support\Facades\Bus;
Bus::batch([probe('1', ['throw']), probe('2')->through([new SkipIfBatchCancelled])])
    ->finally(function () { note('finally', 'batch', 0); })->dispatch();
PHP
    start_agent --workers 1
    wait_for 10 noted finally 1
    wait_for 5 settled
    is "$(ids run)" 1
    stop_agent
}

@test "39 an encrypted job shows no plain text and runs" {
    app_php <<<'dispatch(new App\Jobs\Secret("hush-hush"));'
    is "$(payloads | wc -l)" 1
    not grep hush-hush <<<"$(payloads)"
    start_agent
    wait_for 10 ended hush-hush
    stop_agent
}

@test "40 a missing model: deleted quietly if the job says so, else ModelNotFoundException" {
    app_php <<'PHP'
use App\Jobs\ItemJob;
use App\Jobs\QuietItemJob;
use App\Models\Item;
$items = [Item::create(['name' => 'a']), Item::create(['name' => 'b']), Item::create(['name' => 'c'])];
dispatch(new QuietItemJob($items[0]));
dispatch(new ItemJob($items[1]));
dispatch(new ItemJob($items[2]));
$items[0]->delete();
$items[1]->delete();
PHP
    start_agent --workers 1
    wait_for 10 ran item-3
    wait_for 5 settled
    is "$(count run)" 1
    is "$(jobs_failed)" 1
    has "$(sql 'select exception from failed_jobs')" ModelNotFoundException
    stop_agent
}

@test "45 a scoped binding is new for each job, a singleton stays" {
    app_php <<<'for ($i = 1; $i <= 3; $i++) dispatch(new App\Jobs\Bindings);'
    start_agent --workers 1
    wait_for 10 noted singleton 3
    is "$(ids scoped)" "1 1 1"
    is "$(ids singleton)" "1 2 3"
    stop_agent
}

@test "49 a released row: a new id, attempts kept, the payload's bytes unchanged" {
    needs_source sqlite "rows"
    app_php <<<'dispatch(probe("ü/\\u00e9 1e+99", ["release:60", "ok"], ["tries" => 2]));'
    before=$(sql 'select payload from jobs')
    id=$(sql 'select id from jobs')
    start_agent
    wait_for 10 noted end 1
    released() { [ "$(sql 'select count(*) from jobs where reserved_at is null and attempts = 1')" = 1 ]; }
    wait_for 5 released
    is "$(sql 'select payload from jobs')" "$before"
    calc "$(sql 'select id from jobs') > $id"
    within "$(sql "select available_at - strftime('%s', 'now') from jobs")" 50 60
    stop_agent
}

@test "50 two agents on one SQLite file: no lock error, no double run" {
    needs_source sqlite "one file"
    app_php <<'PHP'
Illuminate\Support\Facades\DB::transaction(function () {
    for ($i = 1; $i <= 500; $i++) dispatch(probe("$i"));
});
PHP
    start_agent --workers 2
    first=$AGENT first_log=$LOG
    if [ -z "${COHORT_E2E_STOCK-}" ]; then
        launch second --app "$APP" --run-dir "$DIR/run2" --state-dir "$DIR/state2" --workers 2
        wait_ready
    fi
    app_php <<<'for ($i = 501; $i <= 700; $i++) dispatch(probe("$i"));'
    wait_for 40 settled
    is "$(notes run | awk '{ print $4 }' | sort -n | uniq | wc -l)" 700
    is "$(count run)" 700
    not grep -iE 'locked|busy' "$first_log" "$LOG"
    stop_agent
    [ "$first" = "$AGENT" ] || { AGENT=$first && stop_agent; }
}
