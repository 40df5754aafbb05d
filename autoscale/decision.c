#include "autoscale/decision.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "proto/units.h"

static const struct {
    enum co_limit limit;
    const char *name; /* As the policy has it, where it has it. */
} limits[CO_LIMITS] = {
    {CO_LIMIT_STALE, "source"},
    {CO_LIMIT_OPERATOR, "operator"},
    {CO_LIMIT_MEMORY, "memory"},
    {CO_LIMIT_MIN, "fleet.min"},
    {CO_LIMIT_MAX, "fleet.max"},
    {CO_LIMIT_CAPACITY, "agents"},
    {CO_LIMIT_DELAY, "scale_down.delay"},
    {CO_LIMIT_SHIFT, "balance.max_shift"},
    {CO_LIMIT_COOLDOWN, "balance.cooldown"},
    {CO_LIMIT_PERIOD, "scale_up.event_driven"},
    {CO_LIMIT_STEADY, "steady"},
};

const char *co_limit_name(enum co_limit limit)
{
    for (size_t i = 0; i < CO_LIMITS; i++) {
        if (limits[i].limit == limit) {
            return limits[i].name;
        }
    }
    return "?";
}

/* ---- text that is cut at its end and never overruns ---- */

struct text {
    char *buf;
    size_t size;
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text->buf + text->length, text->size - text->length, fmt, args);
    va_end(args);
    if (n > 0) {
        size_t room = text->size - text->length - 1;
        text->length += (size_t)n < room ? (size_t)n : room;
    }
}

static struct text begin(char *buf, size_t size)
{
    assert(size > 0);
    buf[0] = '\0';
    return (struct text){.buf = buf, .size = size};
}

/* Times as people say them: 850ms, 1.2s, 12s, 3m20s. */
static void add_ms(struct text *text, co_ms ms)
{
    if (ms < 1000) {
        add(text, "%" PRIu64 "ms", ms);
    } else if (ms < 10000) {
        add(text, "%" PRIu64 ".%" PRIu64 "s", ms / 1000, ms % 1000 / 100);
    } else if (ms < 120000) {
        add(text, "%" PRIu64 "s", ms / 1000);
    } else {
        add(text, "%" PRIu64 "m%02" PRIu64 "s", ms / 60000, ms / 1000 % 60);
    }
}

static void add_us(struct text *text, uint64_t us)
{
    if (us < 10000) {
        add(text, "%" PRIu64 ".%" PRIu64 "ms", us / 1000, us % 1000 / 100);
    } else {
        add_ms(text, (us + 500) / 1000);
    }
}

/* ---- the parts ---- */

static void add_jobs(struct text *text, const struct co_signals *s)
{
    uint64_t queued = co_signals_queued(s);

    add(text, "%" PRIu64 " job%s", queued, queued == 1 ? " waits" : "s wait");
    if (s->oldest_ms > 0) {
        add(text, ", the oldest for ");
        add_ms(text, s->oldest_ms);
    }
    add(text, ", %" PRIu32 " run%s", s->running, s->running == 1 ? "s" : "");
}

static void add_goal(struct text *text, const struct co_strategy_goal *goal)
{
    add(text, "%s", co_strategy_name(goal->strategy));
    switch (goal->strategy) {
    case CO_STRATEGY_SIZE:
        add(text, " (%" PRIu32 " job%s a worker)", goal->jobs_per_worker,
            goal->jobs_per_worker == 1 ? "" : "s");
        break;
    case CO_STRATEGY_TIME:
        add(text, " (clear within ");
        add_ms(text, goal->clear_within_ms);
        add(text, ")");
        break;
    case CO_STRATEGY_WAIT:
        add(text, " (none waits longer than ");
        add_ms(text, goal->target_wait_ms);
        add(text, ")");
        break;
    }
}

static void add_demand(struct text *text, const struct co_decision *d)
{
    const struct co_demand *demand = &d->demand;

    add_goal(text, &d->goal);
    switch (demand->rule) {
    case CO_DEMAND_NONE:
        add(text, " asks for no worker: there is no job");
        return;
    case CO_DEMAND_ONE:
        add(text, " asks for %.2f workers: one, since there is work", demand->asked);
        return;
    case CO_DEMAND_GOAL:
        add(text, " asks for %" PRIu32, demand->workers);
        if (d->goal.strategy != CO_STRATEGY_SIZE) {
            add(text, ": %.1f for what arrives, %.1f to begin what waits", demand->load,
                demand->asked - demand->load);
        }
        return;
    case CO_DEMAND_LOAD:
        add(text, " asks for %.1f, but what arrives keeps %" PRIu32 " busy", demand->asked,
            demand->workers);
        return;
    case CO_DEMAND_JOBS:
        add(text, " asks for %.1f, but there are only %" PRIu32 " jobs", demand->asked,
            demand->workers);
        return;
    case CO_DEMAND_UNKNOWN:
        add(text, " asks for %" PRIu32 ", one for each job: none has ended yet to tell how long",
            demand->workers);
        return;
    case CO_DEMAND_LATE:
        add(text, " asks for %" PRIu32 ", one for each job: the oldest is too old already",
            demand->workers);
        return;
    }
}

static void add_operator(struct text *text, const struct co_decision *d)
{
    switch (d->hold) {
    case CO_HOLD_WORKERS:
        add(text, "operator: fixed by scale");
        break;
    case CO_HOLD_IN:
        add(text, "operator: scale-down is paused");
        break;
    case CO_HOLD_OUT:
        add(text, "operator: scale-up is paused");
        break;
    case CO_HOLD_NONE:
    case CO_HOLD_BOTH:
        add(text, "operator: scaling is paused");
        break;
    }
}

static void add_limit(struct text *text, const struct co_decision *d, enum co_limit limit)
{
    const char *name = co_limit_name(limit);

    switch (limit) {
    case CO_LIMIT_MIN:
        add(text, "%s %" PRIu32, name, d->min);
        break;
    case CO_LIMIT_MAX:
        add(text, "%s %" PRIu32, name, d->max);
        break;
    case CO_LIMIT_CAPACITY:
        add(text, "%s: those alive can run %" PRIu32, name, d->signals.capacity);
        break;
    case CO_LIMIT_DELAY:
        add(text, "%s ", name);
        add_ms(text, d->delay_ms);
        add(text, ": %" PRIu32 " were needed within it", d->needed);
        break;
    case CO_LIMIT_SHIFT:
        add(text, "%s %" PRIu32, name, d->max_shift);
        break;
    case CO_LIMIT_COOLDOWN:
        add(text, "%s ", name);
        add_ms(text, d->cooldown_ms);
        break;
    case CO_LIMIT_MEMORY:
        add(text, "%s is short: no growth", name);
        break;
    case CO_LIMIT_STALE:
        add(text, "%s does not answer: the last target is held", name);
        break;
    case CO_LIMIT_OPERATOR:
        add_operator(text, d);
        break;
    case CO_LIMIT_PERIOD:
        add(text, "%s is off: at the next look", name);
        break;
    case CO_LIMIT_STEADY:
        add(text, "%s: %" PRIu32 " would only just do", name, d->demand.workers);
        break;
    }
}

static void add_limits(struct text *text, const struct co_decision *d, const char *first,
                       const char *between)
{
    const char *lead = first;

    for (size_t i = 0; i < CO_LIMITS; i++) {
        if ((d->limits & limits[i].limit) != 0) {
            add(text, "%s", lead);
            add_limit(text, d, limits[i].limit);
            lead = between;
        }
    }
}

static void add_change(struct text *text, const struct co_decision *d)
{
    if (d->target == d->previous) {
        add(text, "target %" PRIu32, d->target);
    } else {
        add(text, "target %" PRIu32 " -> %" PRIu32, d->previous, d->target);
    }
}

size_t co_decision_line(const struct co_decision *decision, char *buf, size_t size)
{
    struct text text = begin(buf, size);

    add_change(&text, decision);
    add(&text, ": ");
    add_jobs(&text, &decision->signals);
    if ((decision->limits & CO_LIMIT_STALE) == 0) {
        add(&text, "; ");
        add_demand(&text, decision);
    }
    add_limits(&text, decision, "; held by ", "; ");
    return text.length;
}

/* ---- the paragraph ---- */

static void add_seen(struct text *text, const struct co_signals *s)
{
    add(text,
        "\n  jobs     %" PRIu64 " ready, %" PRIu64 " due soon, %" PRIu64 " claimed, %" PRIu32
        " running",
        s->ready, s->due_soon, s->claimed, s->running);
    if (s->oldest_ms > 0) {
        add(text, "; the oldest waits for ");
        add_ms(text, s->oldest_ms);
    }
    add(text, "\n  pace     %.1f arrive a second; ", s->arrival_per_s);
    if (s->service_us == 0) {
        add(text, "how long one takes is not known yet");
        return;
    }
    add(text, "one takes ");
    add_us(text, s->service_us);
    add(text, " (give or take ");
    add_us(text, s->service_dev_us);
    add(text, ")");
}

static void add_workers(struct text *text, const struct co_decision *d)
{
    const struct co_signals *s = &d->signals;

    add(text,
        "\n  workers  %" PRIu32 " busy, %" PRIu32 " idle, %" PRIu32 " booting, %" PRIu32
        " draining",
        s->busy, s->idle, s->booting, s->draining);
    if (d->start > 0) {
        add(text, "; %" PRIu32 " to start", d->start);
    }
    if (d->stop > 0) {
        add(text, "; %" PRIu32 " to stop", d->stop);
    }
}

static void add_next(struct text *text, const struct co_decision *d, co_ms now)
{
    add(text, "\n  next     ");
    if (d->next == 0 || d->next <= now) {
        add(text, "any time");
    } else {
        add(text, "not before ");
        add_ms(text, d->next - now);
        add(text, " from now");
    }
}

size_t co_decision_text(const struct co_decision *decision, co_ms now, char *buf, size_t size)
{
    struct text text = begin(buf, size);

    add_change(&text, decision);
    add(&text, ", decided ");
    add_ms(&text, now > decision->at ? now - decision->at : 0);
    add(&text, " ago");
    add_seen(&text, &decision->signals);
    add_workers(&text, decision);
    if ((decision->limits & CO_LIMIT_STALE) == 0) {
        add(&text, "\n  rule     ");
        add_demand(&text, decision);
    }
    add_limits(&text, decision, "\n  limits   ", "\n           ");
    if (decision->limits == 0) {
        add(&text, "\n  limits   none");
    }
    add_next(&text, decision, now);
    if (decision->alert) {
        add(&text, "\n  alert    the oldest job is older than alert.oldest");
    }
    add(&text, "\n");
    return text.length;
}
