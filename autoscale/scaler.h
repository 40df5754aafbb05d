/* The scaler of one queue, or of one ordered list: signals in, decision out.
 *
 *     signals ──► demand ──► window ──► operator, source, memory ──► brake ──► bounds ──► target
 *                strategy.h  window.h                                          min, max
 *
 * The target is the fleet's: who runs how much of it is the coordinator's business (coord.h), and
 * how an agent's workers are spread over its queues is balance.h's. The owner of a queue decides
 * at every co_scaler_deadline(), and at once when somebody pushed.
 *
 * Order of limits, each of which may only do what is written here:
 *   1. demand: strategy.h.
 *   2. scale_down.delay: no lower than the highest demand of that window; it keeps what is there
 *      and makes nothing new.
 *   3. An operator's hold; a stale source: the last target stays; short memory: no growth.
 *   4. The brake: a step down is at most max_shift, one in each cooldown. So is a step up where
 *      fast is off; where it is on it closes the whole gap. The way from nought to one is free.
 *   5. min (but while memory is short), max, and what the living agents can run: always, at once.
 */

#ifndef CO_AUTOSCALE_SCALER_H
#define CO_AUTOSCALE_SCALER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "autoscale/decision.h"
#include "autoscale/signals.h"
#include "autoscale/strategy.h"
#include "autoscale/window.h"
#include "proto/time.h"

#define CO_SCALER_BUSY_MS 250   /* Between two looks while there is work or a worker too many ... */
#define CO_SCALER_QUIET_MS 1000 /* ... and else. A push does not wait for either. */

/* What a policy says, as far as the scaler goes. min <= max; max_shift and the goal's numbers are
 * at least 1. */
struct co_scaler_rules {
    struct co_strategy_goal goal;
    uint32_t min, max; /* fleet.min, fleet.max */
    uint32_t max_shift;
    co_ms cooldown_ms;
    bool fast;         /* scale_up.fast */
    bool event_driven; /* scale_up.event_driven */
    co_ms delay_ms;    /* scale_down.delay */
    co_ms alert_ms;    /* alert.oldest; 0: none. */
};

/* As DESIGN's example has it: wait 2 s, 0 to 10 workers, shift 4 per 3 s, fast, event-driven, down
 * after 10 s. */
void co_scaler_rules_default(struct co_scaler_rules *rules);

struct co_scaler_hold {
    enum co_hold hold;
    uint32_t workers;
};

struct co_scaler {
    bool decided; /* There is a target. */
    uint32_t target;
    co_ms at;         /* Of the last look. */
    co_ms looked_at;  /* Of the last that was not a push's. */
    co_ms shifted_at; /* Of the last step the brake let through; valid if shifted. */
    bool shifted;
    bool eager; /* Look again soon. */
    struct co_window window;
};

void co_scaler_init(struct co_scaler *scaler, const struct co_scaler_rules *rules, co_ms now);

/* Decide. pushed: this look is for a push's sake; where event_driven is off it changes nothing. now
 * never goes back. */
void co_scaler_decide(struct co_scaler *scaler, const struct co_scaler_rules *rules,
                      const struct co_signals *signals, const struct co_scaler_hold *hold,
                      bool pushed, co_ms now, struct co_decision *ret_decision);

/* When to decide again if nothing is pushed. */
co_ms co_scaler_deadline(const struct co_scaler *scaler);

/* The scaler's memory for the owner that follows: the target, the window, the last step. No times,
 * only ages: clocks of two hosts are never compared. Restoring refuses what is malformed
 * (CO_EMALFORMED) and leaves the scaler alone; the rules are the restorer's own. */
#define CO_SCALER_SAVED_SIZE 96
size_t co_scaler_save(const struct co_scaler *scaler, co_ms now, uint8_t buf[CO_SCALER_SAVED_SIZE]);
int co_scaler_restore(struct co_scaler *scaler, const struct co_scaler_rules *rules,
                      const uint8_t *buf, size_t size, co_ms now);

#endif /* CO_AUTOSCALE_SCALER_H */
