#include "agent/source.h"

#include <assert.h>
#include <string.h>

#define AHEAD_MIN_US \
    10000 /* Enough for outcomes to gather; a commit costs what a hundred jobs do. */

static const co_ms wake_steps[CO_SOURCE_WAKES + 1] = {0, 1, 2, 5, 20};

void co_source_init(struct co_source *source, const struct co_source_config *config, co_ms now)
{
    *source = (struct co_source){
        .config = *config,
        .present = true,
        .poll_at = now,
        .recover_at = now,
        .depths_at = now,
        .due_at = UINT64_MAX,
        .wake_step = CO_SOURCE_WAKES + 1,
        .wake_at = UINT64_MAX,
        .heartbeat_at = UINT64_MAX,
        .turn_ms = 1,
        .more = true,
    };
}

/* A third of the lease leaves room for a slow turn. */
static co_ms heartbeat_every(const struct co_source *source)
{
    co_ms every = (co_ms)source->config.retry_after_s * 1000 / 3;

    if (every == 0) {
        return UINT64_MAX;
    }
    return every > 30000 ? 30000 : every;
}

static void arm_wake(struct co_source *source)
{
    source->wake_at = source->wake_step <= CO_SOURCE_WAKES
                          ? source->woken_at + wake_steps[source->wake_step]
                          : UINT64_MAX;
}

void co_source_changed(struct co_source *source, co_ms now)
{
    if (source->wake_step > CO_SOURCE_WAKES || now > source->woken_at) {
        source->woken_at = now;
        source->wake_step = 0;
        arm_wake(source);
    }
}

bool co_source_fresh(const struct co_source *source, co_ms now)
{
    return source->up && now - source->last_good <= CO_SOURCE_FRESH;
}

bool co_source_due(const struct co_source *source, bool idle_wants, bool stale_waiting,
                   bool starving, co_ms now)
{
    if (!source->present || source->in_flight || source->closed || now < source->retry_at) {
        return false;
    }
    if (source->closing ||
        (source->n_ended > 0 && (starving || now >= source->ended_since + CO_SOURCE_SETTLE_LAG))) {
        return true;
    }
    if (source->n_unrecorded > 0 && now >= source->unrecorded_since + CO_SOURCE_START_LAG) {
        return true;
    }
    if (idle_wants && (source->more || now >= source->due_at || now >= source->wake_at)) {
        return true;
    }
    return (stale_waiting && now - source->last_good > CO_SOURCE_FRESH) || now >= source->poll_at ||
           now >= source->heartbeat_at || now >= source->recover_at || now >= source->depths_at;
}

void co_source_fill(struct co_source *source, struct co_turn *turn, co_ms now)
{
    assert(!source->in_flight);
    source->in_flight = true;
    source->submitted_at = now;
    turn->heartbeat = source->asked_heartbeat = now >= source->heartbeat_at;
    turn->recover = source->asked_recover = now >= source->recover_at;
    turn->depths = source->asked_depths = now >= source->depths_at;
    if (now >= source->wake_at) {
        while (source->wake_step <= CO_SOURCE_WAKES &&
               now >= source->woken_at + wake_steps[source->wake_step]) {
            source->wake_step += 1;
        }
        arm_wake(source);
    }
}

static void failed(struct co_source *source, co_ms now)
{
    co_ms wait = CO_SOURCE_RETRY_MIN;

    source->up = false;
    source->turn_errors += 1;
    for (uint32_t i = 0; i < source->failures && wait < CO_SOURCE_RETRY_MAX; i++) {
        wait *= 2;
    }
    source->failures += 1;
    source->retry_at = now + (wait < CO_SOURCE_RETRY_MAX ? wait : CO_SOURCE_RETRY_MAX);
}

/* next_due is a whole second of the wall clock. */
static co_ms due_in(co_unix due, uint64_t wall_ms, co_ms now)
{
    uint64_t due_ms = (uint64_t)due * 1000;

    return due <= 0 ? UINT64_MAX : due_ms > wall_ms ? now + (due_ms - wall_ms) : now;
}

void co_source_done(struct co_source *source, const struct co_turn *turn, co_ms now,
                    uint64_t wall_ms)
{
    assert(source->in_flight);
    source->in_flight = false;
    if (turn->code < 0) {
        failed(source, now);
        return;
    }
    source->up = source->ever_up = true;
    source->failures = 0;
    source->retry_at = 0;
    source->last_good = now;
    source->turns += 1;
    source->quarantined =
        turn->depths ? turn->quarantined : source->quarantined + turn->n_quarantined;
    source->held = turn->total_held;
    source->turn_ms = source->turn_ms * 0.8 + (double)(now - source->submitted_at) * 0.2;
    co_hist_add(&source->turn_time, turn->took_us);
    source->more = false;
    for (uint32_t i = 0; i < turn->n_wants; i++) {
        source->more = source->more || turn->wants[i].ret_more;
    }
    source->poll_at = now + CO_SOURCE_POLL;
    if (turn->n_wants > 0) {
        source->due_at = due_in(turn->next_due, wall_ms, now);
    }
    if (source->heartbeat_at == UINT64_MAX || source->asked_heartbeat) {
        co_ms every = heartbeat_every(source);
        source->heartbeat_at = every == UINT64_MAX ? UINT64_MAX : now + every;
    }
    source->recover_at = source->asked_recover ? now + CO_SOURCE_RECOVER : source->recover_at;
    source->depths_at = source->asked_depths ? now + CO_SOURCE_DEPTHS : source->depths_at;
    source->closed = turn->bye;
}

uint32_t co_source_prefetch(const struct co_source *source, uint32_t workers, double cycle_us)
{
    double two_turns = 2 * source->turn_ms * 1000;
    double ahead_us = two_turns > AHEAD_MIN_US ? two_turns : AHEAD_MIN_US;
    double ahead = cycle_us > 0 ? ahead_us * workers / cycle_us : 0;

    return ahead < 0.5 ? 0 : ahead > 1000 ? 1000 : (uint32_t)(ahead + 1);
}

static co_ms earlier(co_ms a, co_ms b)
{
    return a < b ? a : b;
}

co_ms co_source_deadline(const struct co_source *source, bool idle_wants)
{
    co_ms deadline;

    if (!source->present || source->in_flight || source->closed) {
        return UINT64_MAX;
    }
    deadline = earlier(earlier(source->poll_at, source->heartbeat_at),
                       earlier(source->recover_at, source->depths_at));
    if (source->n_unrecorded > 0) {
        deadline = earlier(deadline, source->unrecorded_since + CO_SOURCE_START_LAG);
    }
    if (idle_wants) {
        deadline = earlier(deadline, earlier(source->due_at, source->wake_at));
    }
    if (source->n_ended > 0) {
        deadline = earlier(deadline, source->ended_since + CO_SOURCE_SETTLE_LAG);
    }
    if (source->closing) {
        deadline = 0;
    }
    return deadline > source->retry_at ? deadline : source->retry_at;
}
