/* How many workers the work asks for, before any limit.
 *
 *   size   jobs / jobs_per_worker
 *   time   the waiting jobs are begun within clear_within
 *   wait   the oldest ready job is begun before it is target_wait old
 *
 * Common to all: no fewer than what arrives keeps busy (arrival x service: fewer would only buy a
 * standing backlog, not a smaller bill), no more than there are jobs (never more than can run at
 * once), one as soon as there is one job. While no job has ended yet its time is unknown, and each
 * waiting job counts as one worker. */

#ifndef CO_AUTOSCALE_STRATEGY_H
#define CO_AUTOSCALE_STRATEGY_H

#include <stdint.h>

#include "autoscale/signals.h"
#include "proto/time.h"

/* A load of 4.02 is served by 4, and a fifth that is there already stays until it is below 3.9:
 * measured rates are not better than that, and a target that hops between two numbers costs more
 * than it gives. */
#define CO_STRATEGY_TOLERANCE 0.03

enum co_strategy {
    CO_STRATEGY_SIZE = 0,
    CO_STRATEGY_TIME,
    CO_STRATEGY_WAIT,
};
#define CO_STRATEGIES 3
const char *co_strategy_name(enum co_strategy strategy);

struct co_strategy_goal {
    enum co_strategy strategy;
    uint32_t jobs_per_worker; /* size; at least 1. */
    co_ms clear_within_ms;    /* time; at least 1. */
    co_ms target_wait_ms;     /* wait; at least 1. */
};

/* What decided. */
enum co_demand_rule {
    CO_DEMAND_NONE = 0, /* No work. */
    CO_DEMAND_ONE,      /* There is work, and the strategy asks for less than one worker. */
    CO_DEMAND_GOAL,     /* The strategy's formula. */
    CO_DEMAND_LOAD,     /* What arrives keeps so many busy. */
    CO_DEMAND_JOBS,     /* There are no more jobs. */
    CO_DEMAND_UNKNOWN,  /* No job has ended yet: one worker each. */
    CO_DEMAND_LATE,     /* wait: the oldest is too old already: one worker each. */
};

struct co_demand {
    uint32_t workers;
    enum co_demand_rule rule;
    double load;   /* Workers that what arrives keeps busy. */
    double asked;  /* What the formula gave. */
    uint32_t keep; /* So many of the workers there were before may stay: see below. */
    co_ms left_ms; /* wait: until the oldest is too old. */
};

void co_strategy_demand(const struct co_strategy_goal *goal, const struct co_signals *signals,
                        struct co_demand *ret_demand);

#endif /* CO_AUTOSCALE_STRATEGY_H */
