#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "autoscale/strategy.h"

#define SIZE(n)                   \
    {                             \
        CO_STRATEGY_SIZE, n, 1, 1 \
    }
#define TIME(ms)                   \
    {                              \
        CO_STRATEGY_TIME, 1, ms, 1 \
    }
#define WAIT(ms)                   \
    {                              \
        CO_STRATEGY_WAIT, 1, 1, ms \
    }

static const struct {
    const char *what;
    struct co_strategy_goal goal;
    struct co_signals signals;
    uint32_t workers;
    enum co_demand_rule rule;
} rows[] = {
    {"no work", SIZE(1), {.idle = 5}, 0, CO_DEMAND_NONE},
    {"no work, though much has arrived",
     WAIT(2000),
     {.arrival_per_s = 50, .service_us = 100000},
     0,
     CO_DEMAND_NONE},
    {"one job", SIZE(10), {.ready = 1}, 1, CO_DEMAND_GOAL},
    {"ten a worker", SIZE(10), {.ready = 101}, 11, CO_DEMAND_GOAL},
    {"running ones count", SIZE(10), {.ready = 15, .busy = 5, .running = 5}, 2, CO_DEMAND_GOAL},
    {"claimed and due ones wait too",
     SIZE(1),
     {.ready = 1, .due_soon = 2, .claimed = 3},
     6,
     CO_DEMAND_GOAL},
    {"jobs on draining workers need no other",
     SIZE(1),
     {.ready = 2, .running = 5, .busy = 1, .draining = 4},
     3,
     CO_DEMAND_GOAL},
    {"no fewer than what arrives keeps busy",
     SIZE(10),
     {.ready = 3, .busy = 5, .running = 5, .arrival_per_s = 40, .service_us = 100000},
     4,
     CO_DEMAND_LOAD},
    {"no more than there are jobs",
     SIZE(10),
     {.ready = 1, .busy = 1, .running = 1, .arrival_per_s = 90, .service_us = 100000},
     2,
     CO_DEMAND_JOBS},
    {"the time is not known yet",
     TIME(60000),
     {.ready = 7, .busy = 2, .running = 2},
     9,
     CO_DEMAND_UNKNOWN},
    {"600 s of work within a minute",
     TIME(60000),
     {.ready = 6000, .service_us = 100000},
     10,
     CO_DEMAND_GOAL},
    {"and what arrives beside it",
     TIME(60000),
     {.ready = 6000, .service_us = 100000, .arrival_per_s = 20},
     12,
     CO_DEMAND_GOAL},
    {"a fraction of a worker is one",
     TIME(60000),
     {.ready = 1, .service_us = 100},
     1,
     CO_DEMAND_GOAL},
    {"a second is left for 10 s of work",
     WAIT(2000),
     {.ready = 100, .service_us = 90000, .service_dev_us = 10000, .oldest_ms = 1000},
     10,
     CO_DEMAND_GOAL},
    {"none is left",
     WAIT(2000),
     {.ready = 100, .service_us = 90000, .oldest_ms = 2000},
     100,
     CO_DEMAND_LATE},
    {"the largest numbers do not overflow",
     TIME(1),
     {.ready = UINT64_MAX / 4, .service_us = UINT64_MAX / 4},
     UINT32_MAX,
     CO_DEMAND_GOAL},
};

static void demands_follow_the_goal(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct co_demand demand;
        co_strategy_demand(&rows[r].goal, &rows[r].signals, &demand);
        if (demand.workers != rows[r].workers || demand.rule != rows[r].rule) {
            fail_msg("%s: %u workers by rule %d, not %u by %d", rows[r].what, demand.workers,
                     demand.rule, rows[r].workers, rows[r].rule);
        }
    }
}

static void arrivals_are_what_came_beyond_what_ended(void **state)
{
    struct co_arrival arrival = {0};

    (void)state;
    co_arrival_look(&arrival, 0, 0, 1000);
    /* 40 a second come, 30 end. */
    for (uint64_t i = 1; i <= 600; i++) {
        co_arrival_look(&arrival, i, 3 * i, 1000 + 100 * i);
    }
    assert_true(co_arrival_rate(&arrival) > 39.0 && co_arrival_rate(&arrival) < 41.0);
    /* None come any more: the fast average tells soon. */
    for (uint64_t i = 1; i <= 100; i++) {
        co_arrival_look(&arrival, 600, 1800, 61000 + 100 * i);
    }
    assert_true(co_arrival_rate(&arrival) < 1.0);
}

static void a_queue_that_was_cleared_brings_no_negative_rate(void **state)
{
    struct co_arrival arrival = {0};

    (void)state;
    co_arrival_look(&arrival, 1000, 5, 0);
    co_arrival_look(&arrival, 0, 5, 100);
    co_arrival_look(&arrival, 0, 2, 200); /* An agent has gone and took its count along. */
    co_arrival_look(&arrival, 0, 2, 200);
    assert_true(co_arrival_rate(&arrival) >= 0.0);
    assert_true(co_arrival_rate(&arrival) < 0.001);
}

static void service_follows_the_jobs(void **state)
{
    struct co_service service = {0};

    (void)state;
    co_service_note(&service, 8000);
    assert_true(service.mean_us > 7999.0 && service.dev_us > 3999.0);
    co_service_notes(&service, 1000000, 2000);
    assert_true(service.mean_us > 1999.0 && service.mean_us < 2010.0);
    assert_true(service.dev_us < 20.0);
    co_service_note(&service, 0); /* Faster than the clock shows is not unknown. */
    assert_true(service.mean_us > 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demands_follow_the_goal),
        cmocka_unit_test(arrivals_are_what_came_beyond_what_ended),
        cmocka_unit_test(a_queue_that_was_cleared_brings_no_negative_rate),
        cmocka_unit_test(service_follows_the_jobs),
    };
    return cmocka_run_group_tests_name("strategy", tests, NULL, NULL);
}
