/* How an agent's workers are spread over the queues of a pool: how many jobs of each may run at
 * once. No process is ended for it: a worker that has done its job simply takes one of another
 * queue.
 *
 *   auto     by need and weight, largest remainder; every queue with work gets one if they suffice,
 *            else they take turns, and one changes place in each cooldown
 *   simple   even by weight, whatever they need; what one does not use stays reserved for it
 *   ordered  the first takes what it needs, then the next; the last may starve, and that is meant
 *
 * In every mode: the sum is at most the workers there are, and no queue is below its min while
 * they suffice. Room that a queue does not use moves at once and freely; from a queue that still
 * wants it at most max_shift move in a cooldown. */

#ifndef CO_AUTOSCALE_BALANCE_H
#define CO_AUTOSCALE_BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/time.h"

#define CO_BALANCE_MAX 256

enum co_balance_mode {
    CO_BALANCE_AUTO = 0,
    CO_BALANCE_SIMPLE,
    CO_BALANCE_ORDERED,
};
const char *co_balance_name(enum co_balance_mode mode);

struct co_balance_queue {
    uint32_t want;   /* Jobs it could run now: waiting and running, or its target if lower. */
    uint32_t min;    /* Kept for it even if it wants less. */
    uint32_t max;    /* Never more. */
    uint32_t weight; /* At least 1. */
    uint32_t limit;  /* In: the last one; out: the new one. */
};

struct co_balance_rules {
    enum co_balance_mode mode;
    uint32_t max_shift; /* At least 1. */
    co_ms cooldown_ms;
};

struct co_balance {
    bool shifted;
    co_ms shifted_at;
    uint32_t first; /* Who is served first while there is less than one for each. */
    bool turned;
    co_ms turned_at;
};

/* The split without a memory: what balance moves towards. n <= CO_BALANCE_MAX. */
void co_balance_split(enum co_balance_mode mode, struct co_balance_queue *queues, size_t n,
                      uint32_t workers);

/* Set every limit; the queues are in the order of the policy, and come with their last limits (0
 * for a new one). Returns when a transfer that was held back may go on, or the next turn is; 0:
 * neither. */
co_ms co_balance_step(struct co_balance *balance, const struct co_balance_rules *rules,
                      struct co_balance_queue *queues, size_t n, uint32_t workers, co_ms now);

#endif /* CO_AUTOSCALE_BALANCE_H */
