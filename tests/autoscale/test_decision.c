#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "autoscale/decision.h"
#include "autoscale/scaler.h"

/* Weakness 16: a status that does not say why. Each row is a situation and the line that tells it.
 */
static const struct {
    const char *what;
    enum co_strategy strategy;
    uint32_t previous; /* Serving workers at the first look. */
    uint32_t min, max;
    bool slow, event_off;
    struct co_signals signals;
    struct co_scaler_hold hold;
    const char *line;
} rows[] = {
    {.what = "nothing to do",
     .strategy = CO_STRATEGY_SIZE,
     .max = 10,
     .line = "target 0: 0 jobs wait, 0 run; size (10 jobs a worker) asks for no worker: there is "
             "no job"},
    {.what = "a job, no time known",
     .strategy = CO_STRATEGY_WAIT,
     .max = 10,
     .signals = {.ready = 1, .oldest_ms = 3},
     .line = "target 0 -> 1: 1 job waits, the oldest for 3ms, 0 run; wait (none waits longer than "
             "2.0s) asks for 1, one for each job: none has ended yet to tell how long"},
    {.what = "growth by the goal",
     .strategy = CO_STRATEGY_WAIT,
     .previous = 4,
     .max = 40,
     .signals = {.ready = 120,
                 .oldest_ms = 400,
                 .busy = 4,
                 .running = 4,
                 .arrival_per_s = 40,
                 .service_us = 80000,
                 .service_dev_us = 20000},
     .line = "target 4 -> 11: 120 jobs wait, the oldest for 400ms, 4 run; wait (none waits longer "
             "than 2.0s) asks for 11: 3.2 for what arrives, 7.5 to begin what waits"},
    {.what = "too late already, and more than max",
     .strategy = CO_STRATEGY_WAIT,
     .previous = 4,
     .max = 40,
     .signals = {.ready = 120, .oldest_ms = 2100, .busy = 4, .running = 4, .service_us = 80000},
     .line = "target 4 -> 40: 120 jobs wait, the oldest for 2.1s, 4 run; wait (none waits longer "
             "than 2.0s) asks for 124, one for each job: the oldest is too old already; held by "
             "fleet.max 40"},
    {.what = "the agents are full",
     .strategy = CO_STRATEGY_TIME,
     .previous = 4,
     .max = 40,
     .signals = {.ready = 12000, .busy = 4, .running = 4, .service_us = 100000, .capacity = 6},
     .line = "target 4 -> 6: 12000 jobs wait, 4 run; time (clear within 60s) asks for 20: 0.0 for "
             "what arrives, 20.0 to begin what waits; held by agents: those alive can run 6"},
    {.what = "a step at a time",
     .strategy = CO_STRATEGY_SIZE,
     .previous = 4,
     .max = 40,
     .slow = true,
     .signals = {.ready = 200, .busy = 4, .running = 4},
     .line = "target 4 -> 8: 200 jobs wait, 4 run; size (10 jobs a worker) asks for 21; held by "
             "balance.max_shift 4"},
    {.what = "the delay holds",
     .strategy = CO_STRATEGY_SIZE,
     .previous = 4,
     .min = 1,
     .max = 40,
     .signals = {.stale = true, .idle = 4},
     .line = "target 4: 0 jobs wait, 0 run; held by source does not answer: the last target is "
             "held"},
    {.what = "an operator",
     .strategy = CO_STRATEGY_SIZE,
     .previous = 4,
     .max = 40,
     .hold = {CO_HOLD_WORKERS, 12},
     .signals = {.ready = 5, .idle = 4},
     .line = "target 4 -> 12: 5 jobs wait, 0 run; size (10 jobs a worker) asks for 1; held by "
             "operator: fixed by scale"},
    {.what = "memory is short",
     .strategy = CO_STRATEGY_SIZE,
     .previous = 1,
     .max = 40,
     .signals = {.ready = 500, .busy = 1, .running = 1, .tight = true},
     .line = "target 1: 500 jobs wait, 1 runs; size (10 jobs a worker) asks for 51; held by memory "
             "is short: no growth; fleet.max 40"},
    {.what = "the load keeps them busy",
     .strategy = CO_STRATEGY_SIZE,
     .previous = 4,
     .max = 40,
     .signals = {.ready = 8, .busy = 4, .running = 4, .arrival_per_s = 60, .service_us = 100000},
     .line = "target 4 -> 6: 8 jobs wait, 4 run; size (10 jobs a worker) asks for 1.2, but what "
             "arrives keeps 6 busy"},
};

static struct co_decision decide(size_t r, struct co_scaler *scaler)
{
    struct co_scaler_rules rules;
    struct co_signals before = {.idle = rows[r].previous};
    struct co_decision decision;

    co_scaler_rules_default(&rules);
    rules.goal.strategy = rows[r].strategy;
    rules.goal.jobs_per_worker = 10;
    rules.min = rows[r].min;
    rules.max = rows[r].max;
    rules.fast = !rows[r].slow;
    rules.event_driven = !rows[r].event_off;
    rules.delay_ms = 0;
    rules.alert_ms = 2000;
    co_scaler_init(scaler, &rules, 0);
    before.ready = (uint64_t)rows[r].previous * (rows[r].strategy == CO_STRATEGY_SIZE ? 10 : 1);
    co_scaler_decide(scaler, &rules, &before, NULL, false, 0, &decision);
    assert_int_equal(decision.target, rows[r].previous);
    co_scaler_decide(scaler, &rules, &rows[r].signals, &rows[r].hold, false, 60000, &decision);
    return decision;
}

static void a_line_tells_what_and_why(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct co_scaler scaler;
        struct co_decision decision = decide(r, &scaler);
        char line[CO_DECISION_TEXT_SIZE];
        size_t size = co_decision_line(&decision, line, sizeof line);
        assert_int_equal(size, strlen(line));
        if (strcmp(line, rows[r].line) != 0) {
            fail_msg("%s:\n  %s\nnot\n  %s", rows[r].what, line, rows[r].line);
        }
    }
}

static void a_paragraph_has_inputs_rule_limits_and_what_comes_next(void **state)
{
    struct co_scaler scaler;
    struct co_decision decision;
    char text[CO_DECISION_TEXT_SIZE];

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        decision = decide(r, &scaler);
        if (strcmp(rows[r].what, "a step at a time") == 0) {
            break;
        }
    }
    co_decision_text(&decision, 61000, text, sizeof text);
    assert_string_equal(text,
                        "target 4 -> 8, decided 1.0s ago\n"
                        "  jobs     200 ready, 0 due soon, 0 claimed, 4 running\n"
                        "  pace     0.0 arrive a second; how long one takes is not known yet\n"
                        "  workers  4 busy, 0 idle, 0 booting, 0 draining; 4 to start\n"
                        "  rule     size (10 jobs a worker) asks for 21\n"
                        "  limits   balance.max_shift 4\n"
                        "  next     not before 2.0s from now\n");
}

static void an_old_job_raises_the_alert_and_a_stale_source_does_not(void **state)
{
    struct co_scaler_rules rules;
    struct co_scaler scaler;
    struct co_decision d;

    (void)state;
    co_scaler_rules_default(&rules);
    rules.alert_ms = 60000;
    co_scaler_init(&scaler, &rules, 0);
    co_scaler_decide(&scaler, &rules, &(struct co_signals){.ready = 1, .oldest_ms = 59999}, NULL,
                     false, 0, &d);
    assert_false(d.alert);
    co_scaler_decide(&scaler, &rules, &(struct co_signals){.ready = 1, .oldest_ms = 60000}, NULL,
                     false, 1, &d);
    assert_true(d.alert);
    co_scaler_decide(&scaler, &rules,
                     &(struct co_signals){.ready = 1, .oldest_ms = 90000, .stale = true}, NULL,
                     false, 2, &d);
    assert_false(d.alert);
}

static void every_limit_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CO_LIMITS; i++) {
        const char *name = co_limit_name((enum co_limit)(1u << i));
        assert_string_not_equal(name, "?");
        for (unsigned k = 0; k < i; k++) {
            assert_string_not_equal(name, co_limit_name((enum co_limit)(1u << k)));
        }
    }
    assert_string_equal(co_limit_name((enum co_limit)(1u << CO_LIMITS)), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_tells_what_and_why),
        cmocka_unit_test(a_paragraph_has_inputs_rule_limits_and_what_comes_next),
        cmocka_unit_test(an_old_job_raises_the_alert_and_a_stale_source_does_not),
        cmocka_unit_test(every_limit_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests_name("decision", tests, NULL, NULL);
}
