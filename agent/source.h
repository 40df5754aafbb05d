/* When to have a turn with a source, and what to ask: claims, settles, starts, heartbeats.
 *
 * Pure. One turn is under way at a time; while it commits, the next one gathers. A turn is due when
 * something must be written, when idle workers want jobs and there may be some, when claims must be
 * looked at again before they are handed over, or when a timer says so. */

#ifndef CO_AGENT_SOURCE_H
#define CO_AGENT_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/tickets.h"
#include "agent/turn.h"
#include "proto/time.h"
#include "proto/view.h"

#define CO_SOURCES_MAX CO_VIEW_SOURCES_MAX

#define CO_SOURCE_POLL 250      /* Look for jobs at least this often. */
#define CO_SOURCE_FRESH 100     /* A claim this old is looked at again before its hand-over. */
#define CO_SOURCE_STALE 1000    /* No hand-over when the last good turn is older. */
#define CO_SOURCE_START_LAG 100 /* A start alone may wait this long for company. */
#define CO_SOURCE_SETTLE_LAG 3  /* An outcome may wait this long while workers have work. */
#define CO_SOURCE_DEPTHS 1000
#define CO_SOURCE_RECOVER 2000
#define CO_SOURCE_RETRY_MIN 50 /* After a failed turn; doubles. */
#define CO_SOURCE_RETRY_MAX 2000
#define CO_SOURCE_WAKES 4 /* 1, 2, 5, 20 ms after a change was seen. */

struct co_source_config {
    uint32_t retry_after_s; /* The shortest of its tables; 0 = none. */
};

struct co_source {
    struct co_source_config config;
    bool present;
    bool up; /* The last turn was good. */
    bool ever_up;
    bool in_flight;
    bool asked_heartbeat, asked_recover, asked_depths; /* Of the turn under way. */
    bool more;                                         /* The last look left jobs behind. */
    bool closing;                                      /* Say bye once nothing is left to settle. */
    co_ms closing_at;
    bool closed;
    co_ms submitted_at;
    co_ms last_good;
    co_ms poll_at, heartbeat_at, recover_at, depths_at;
    co_ms due_at;   /* A delayed job becomes ready. */
    co_ms retry_at; /* After a failure: nothing before. */
    uint32_t failures;
    uint32_t wake_step; /* Of CO_SOURCE_WAKES; that many = none pending. */
    co_ms wake_at;
    co_ms woken_at;
    uint32_t n_ended;      /* Tickets waiting to be settled, as the caller last said. */
    co_ms ended_since;     /* When the first of them ended. */
    uint32_t n_unrecorded; /* Begun, not recorded, not ended. */
    co_ms unrecorded_since;
    double turn_ms; /* Moving average of a turn's way there and back. */
    uint64_t turns, turn_errors, quarantined, held;
    struct co_hist turn_time;
};

void co_source_init(struct co_source *source, const struct co_source_config *config, co_ms now);

/* Somebody else changed the file (inotify); look at once, then after 1, 2, 5 and 20 ms: the event
 * comes before the commit is visible. */
void co_source_changed(struct co_source *source, co_ms now);

/* May a ticket of this source be handed over now? */
bool co_source_fresh(const struct co_source *source, co_ms now);

/* Is a turn due? idle_wants: workers would take more than is claimed; stale_waiting: a ticket
 * waits for a fresh look while a worker is idle; starving: workers run dry before a turn is back.
 * Outcomes wait up to CO_SOURCE_SETTLE_LAG for company while nobody starves. */
bool co_source_due(const struct co_source *source, bool idle_wants, bool stale_waiting,
                   bool starving, co_ms now);

/* Note that the turn goes out now, and mark what the timers want of it. */
void co_source_fill(struct co_source *source, struct co_turn *turn, co_ms now);

/* The turn came back. wall is the wall clock in ms, for next_due. */
void co_source_done(struct co_source *source, const struct co_turn *turn, co_ms now,
                    uint64_t wall_ms);

/* How many jobs so many workers consume in two turns, or in 10 ms if that is more, when one takes
 * cycle_us from hand-over to hand-over (0: not known yet): that many are held ahead, so that no
 * worker waits for a turn. 0 for long jobs: whoever is idle first gets the next one, so nobody may
 * sit on it. */
uint32_t co_source_prefetch(const struct co_source *source, uint32_t workers, double cycle_us);

co_ms co_source_deadline(const struct co_source *source, bool idle_wants);

#endif /* CO_AGENT_SOURCE_H */
