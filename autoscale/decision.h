/* A decision of the scaler and why: everything that went in, the rule, the limits that bit, and
 * when it may change next. Plain data: kept, sent and printed as it is. */

#ifndef CO_AUTOSCALE_DECISION_H
#define CO_AUTOSCALE_DECISION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "autoscale/signals.h"
#include "autoscale/strategy.h"
#include "proto/time.h"

/* What an operator said (cohort scale, cohort pause --in|--out). */
enum co_hold {
    CO_HOLD_NONE = 0,
    CO_HOLD_WORKERS, /* Exactly so many. */
    CO_HOLD_IN,      /* No scale-down. */
    CO_HOLD_OUT,     /* No scale-up. */
    CO_HOLD_BOTH,
};

/* Limits that kept the target from what the work asks for. */
enum co_limit {
    CO_LIMIT_MIN = 1 << 0,
    CO_LIMIT_MAX = 1 << 1,
    CO_LIMIT_CAPACITY = 1 << 2, /* The agents that live can run no more. */
    CO_LIMIT_DELAY = 1 << 3,    /* scale_down.delay: more was needed a moment ago. */
    CO_LIMIT_SHIFT = 1 << 4,    /* balance.max_shift: only so far in one step. */
    CO_LIMIT_COOLDOWN = 1 << 5, /* balance.cooldown: the last step was a moment ago. */
    CO_LIMIT_MEMORY = 1 << 6,
    CO_LIMIT_STALE = 1 << 7, /* The source does not answer: the last target is held. */
    CO_LIMIT_OPERATOR = 1 << 8,
    CO_LIMIT_PERIOD = 1 << 9,  /* event_driven is off: growth waits for the next look. */
    CO_LIMIT_STEADY = 1 << 10, /* A hair less would do: no hopping between two numbers. */
};
#define CO_LIMITS 11
const char *co_limit_name(enum co_limit limit); /* "max", "scale_down.delay", ... */

struct co_decision {
    co_ms at;
    uint32_t target;   /* Workers, of the whole fleet. */
    uint32_t previous; /* The target before. */
    uint32_t start;    /* Workers to make: target less those that serve; never below 0. */
    uint32_t stop;     /* Workers too many; likewise. */
    bool first;        /* There was no target before. */
    struct co_demand demand;
    uint32_t needed; /* The highest demand within scale_down.delay. */
    uint32_t limits; /* Set of enum co_limit. */
    co_ms next;      /* The next change the limits allow; 0: at any time. */
    bool alert;      /* The oldest ready job is older than alert.oldest. */
    enum co_hold hold;

    /* As they were when it was made. */
    struct co_signals signals;
    struct co_strategy_goal goal;
    uint32_t min, max, max_shift;
    co_ms cooldown_ms, delay_ms;
};

#define CO_DECISION_TEXT_SIZE 1024

/* One line: "target 12 -> 18: 40 jobs wait, ...". Returns the length, always below size. */
size_t co_decision_line(const struct co_decision *decision, char *buf, size_t size);

/* A paragraph of several lines, for `cohort explain`; now tells how long ago and how long until. */
size_t co_decision_text(const struct co_decision *decision, co_ms now, char *buf, size_t size);

#endif /* CO_AUTOSCALE_DECISION_H */
