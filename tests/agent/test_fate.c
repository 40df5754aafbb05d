/* What becomes of a job whose worker died under it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>

#include "agent/fate.h"

#define NOW 1700000000
#define NONE (-1) /* The payload does not say. */

static void a_job_ends_after_its_tries_and_never_before(void **state)
{
    static const struct {
        const char *what;
        int64_t tries; /* The job's. */
        uint32_t pool_tries;
        uint32_t attempts, crashes;
        enum co_cause cause;
        bool bookkeeper;
    } rows[] = {
        {"one try is used up", NONE, 1, 1, 0, CO_CAUSE_CRASH, true},
        {"the first of three", NONE, 3, 1, 0, CO_CAUSE_CRASH, false},
        {"the last of three", NONE, 3, 3, 2, CO_CAUSE_CRASH, true},
        {"more starts than tries", NONE, 3, 4, 0, CO_CAUSE_OOM, true},
        {"the job's tries beat the pool's", 5, 1, 1, 0, CO_CAUSE_CRASH, false},
        {"and are fewer", 1, 5, 1, 0, CO_CAUSE_CRASH, true},
        {"three crashes of ten tries", 10, 1, 3, 2, CO_CAUSE_CRASH, false},
        {"no limit: the second crash", 0, 1, 2, 1, CO_CAUSE_CRASH, false},
        {"no limit: the third crash", 0, 1, 3, 2, CO_CAUSE_CRASH, true},
        {"no limit: the third, after many starts", 0, 1, 90, 2, CO_CAUSE_OOM, true},
        {"no limit by the pool", NONE, 0, 3, 2, CO_CAUSE_CRASH, true},
        {"no limit: timeouts are no crashes", 0, 1, 90, 2, CO_CAUSE_TIMEOUT, false},
        {"a timeout with tries left", NONE, 2, 1, 0, CO_CAUSE_TIMEOUT, false},
        {"a timeout with none left", NONE, 2, 2, 0, CO_CAUSE_TIMEOUT, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct co_payload_facts facts = {
            .max_tries = rows[i].tries, .max_exceptions = NONE, .timeout_s = NONE};
        struct co_job_options options = {.tries = rows[i].pool_tries};
        struct co_fate fate =
            co_fate_decide(&facts, &options, rows[i].attempts, rows[i].crashes, rows[i].cause, NOW);
        if (fate.bookkeeper != rows[i].bookkeeper || fate.final != rows[i].bookkeeper) {
            fail_msg("%s", rows[i].what);
        }
    }
}

static void retry_until_decides_instead_of_tries(void **state)
{
    static const struct {
        const char *what;
        int64_t until;
        uint32_t attempts, crashes;
        enum co_cause cause;
        bool final;
    } rows[] = {
        {"before its time, tries used up", NOW + 1, 9, 0, CO_CAUSE_CRASH, false},
        {"at its time", NOW, 1, 0, CO_CAUSE_CRASH, true},
        {"after its time", NOW - 1, 1, 0, CO_CAUSE_TIMEOUT, true},
        {"the third crash", NOW + 1, 3, 2, CO_CAUSE_OOM, true},
        {"the third timeout", NOW + 1, 3, 2, CO_CAUSE_TIMEOUT, false},
        {"0 is none", 0, 1, 0, CO_CAUSE_CRASH, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct co_payload_facts facts = {
            .max_tries = 1, .max_exceptions = NONE, .retry_until = rows[i].until};
        struct co_job_options options = {.tries = 1};
        if (co_fate_decide(&facts, &options, rows[i].attempts, rows[i].crashes, rows[i].cause, NOW)
                .final != rows[i].final) {
            fail_msg("%s", rows[i].what);
        }
    }
}

static void what_only_php_can_say_goes_to_a_bookkeeper(void **state)
{
    static const struct {
        const char *what;
        int64_t max_exceptions;
        bool fail_on_timeout;
        enum co_cause cause;
        bool bookkeeper, final;
    } rows[] = {
        {"failOnTimeout and a timeout", NONE, true, CO_CAUSE_TIMEOUT, true, true},
        {"failOnTimeout and a crash", NONE, true, CO_CAUSE_CRASH, false, false},
        {"maxExceptions and a timeout", 2, false, CO_CAUSE_TIMEOUT, true, false},
        {"maxExceptions and a crash", 2, false, CO_CAUSE_CRASH, true, false},
        {"both and a timeout", 2, true, CO_CAUSE_TIMEOUT, true, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct co_payload_facts facts = {.max_tries = 5,
                                         .max_exceptions = rows[i].max_exceptions,
                                         .fail_on_timeout = rows[i].fail_on_timeout};
        struct co_job_options options = {.tries = 1};
        struct co_fate fate = co_fate_decide(&facts, &options, 1, 0, rows[i].cause, NOW);
        if (fate.bookkeeper != rows[i].bookkeeper || fate.final != rows[i].final) {
            fail_msg("%s", rows[i].what);
        }
    }
}

static void the_pause_is_the_jobs_backoff_else_the_pools(void **state)
{
    static const struct {
        const char *job, *pool;
        uint32_t attempts, delay_s;
    } rows[] = {
        {"", "", 1, 0},       {"", "7", 1, 7},       {"3", "7", 1, 3},      {"1,5,10", "", 1, 1},
        {"1,5,10", "", 2, 5}, {"1,5,10", "", 9, 10}, {"", "1,5,10", 3, 10}, {"0", "7", 1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct co_payload_facts facts = {.max_tries = 99, .max_exceptions = NONE};
        struct co_job_options options = {.tries = 1};
        snprintf(facts.backoff, sizeof facts.backoff, "%s", rows[i].job);
        snprintf(options.backoff, sizeof options.backoff, "%s", rows[i].pool);
        struct co_fate fate =
            co_fate_decide(&facts, &options, rows[i].attempts, 0, CO_CAUSE_TIMEOUT, NOW);
        assert_false(fate.bookkeeper);
        assert_int_equal(fate.delay_s, rows[i].delay_s);
    }
}

static void the_jobs_own_time_limit_beats_the_pools(void **state)
{
    static const struct {
        int64_t job_s;
        co_ms pool, limit;
    } rows[] = {{NONE, 60000, 60000}, {5, 60000, 5000}, {90, 60000, 90000},
                {0, 60000, 0},        {NONE, 0, 0},     {5, 0, 5000}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct co_payload_facts facts = {.timeout_s = rows[i].job_s};
        struct co_job_options options = {.timeout = rows[i].pool};
        assert_int_equal(co_fate_timeout(&facts, &options), rows[i].limit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_ends_after_its_tries_and_never_before),
        cmocka_unit_test(retry_until_decides_instead_of_tries),
        cmocka_unit_test(what_only_php_can_say_goes_to_a_bookkeeper),
        cmocka_unit_test(the_pause_is_the_jobs_backoff_else_the_pools),
        cmocka_unit_test(the_jobs_own_time_limit_beats_the_pools),
    };
    return cmocka_run_group_tests_name("fate", tests, NULL, NULL);
}
