#include "autoscale/strategy.h"

#include <assert.h>

const char *co_strategy_name(enum co_strategy strategy)
{
    static const char *const names[CO_STRATEGIES] = {
        [CO_STRATEGY_SIZE] = "size",
        [CO_STRATEGY_TIME] = "time",
        [CO_STRATEGY_WAIT] = "wait",
    };
    return (unsigned)strategy < CO_STRATEGIES ? names[strategy] : "?";
}

static uint32_t round_up(double x)
{
    uint32_t n;

    if (x <= 0.0) {
        return 0;
    }
    if (x >= (double)UINT32_MAX) {
        return UINT32_MAX;
    }
    n = (uint32_t)x;
    return (double)n < x ? n + 1 : n;
}

static uint32_t clamp_u32(uint64_t n)
{
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static double size_asks(const struct co_strategy_goal *goal, const struct co_signals *signals)
{
    assert(goal->jobs_per_worker > 0);
    return (double)co_signals_outstanding(signals) / (double)goal->jobs_per_worker;
}

/* The backlog's work spread over the time there is for it, beside the load. */
static double work_asks(const struct co_signals *signals, double load, double service_us,
                        co_ms within_ms)
{
    double work_ms = (double)co_signals_queued(signals) * service_us / 1000.0;

    return load + work_ms / (double)within_ms;
}

static void wait_asks(const struct co_strategy_goal *goal, const struct co_signals *signals,
                      struct co_demand *demand)
{
    /* Promised is something about the oldest, not the mean: so reckon with the slower jobs. */
    double slow_us = (double)signals->service_us + (double)signals->service_dev_us;

    assert(goal->target_wait_ms > 0);
    if (signals->oldest_ms >= goal->target_wait_ms) {
        demand->rule = CO_DEMAND_LATE;
        demand->asked = (double)co_signals_outstanding(signals);
        return;
    }
    demand->left_ms = goal->target_wait_ms - signals->oldest_ms;
    demand->asked = work_asks(signals, demand->load, slow_us, demand->left_ms);
}

static void ask(const struct co_strategy_goal *goal, const struct co_signals *signals,
                struct co_demand *demand)
{
    demand->rule = CO_DEMAND_GOAL;
    if (goal->strategy == CO_STRATEGY_SIZE) {
        demand->asked = size_asks(goal, signals);
        return;
    }
    if (signals->service_us == 0) {
        demand->rule = CO_DEMAND_UNKNOWN;
        demand->asked = (double)co_signals_outstanding(signals);
        return;
    }
    if (goal->strategy == CO_STRATEGY_WAIT) {
        wait_asks(goal, signals, demand);
        return;
    }
    assert(goal->clear_within_ms > 0);
    demand->asked =
        work_asks(signals, demand->load, (double)signals->service_us, goal->clear_within_ms);
}

/* A little above what is asked for; never more than there are jobs. */
static uint32_t keep(const struct co_demand *demand, uint32_t jobs)
{
    double level = demand->asked > demand->load ? demand->asked : demand->load;
    uint32_t n = round_up(level * (1.0 + CO_STRATEGY_TOLERANCE));

    n = n < jobs ? n : jobs;
    return n > demand->workers ? n : demand->workers;
}

void co_strategy_demand(const struct co_strategy_goal *goal, const struct co_signals *signals,
                        struct co_demand *ret_demand)
{
    struct co_demand demand = {.rule = CO_DEMAND_NONE};
    uint32_t jobs = clamp_u32(co_signals_outstanding(signals));
    uint32_t load;

    demand.load = signals->arrival_per_s * (double)signals->service_us / 1e6;
    if (jobs > 0) {
        ask(goal, signals, &demand);
        demand.workers = round_up(demand.asked);
        load = round_up(demand.load * (1.0 - CO_STRATEGY_TOLERANCE));
        if (load > demand.workers) {
            demand.workers = load;
            demand.rule = CO_DEMAND_LOAD;
        }
        if (demand.workers > jobs) {
            demand.workers = jobs;
            demand.rule = CO_DEMAND_JOBS;
        }
        if (demand.workers == 0) {
            demand.workers = 1;
            demand.rule = CO_DEMAND_ONE;
        }
        demand.keep = keep(&demand, jobs);
    }
    *ret_demand = demand;
}
