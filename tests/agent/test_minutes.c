/* Counting what became of jobs, minute by minute. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "agent/minutes.h"

#define NOON 1764504000 /* The first second of a minute. */

static struct co_minutes minutes;

static void add(const char *queue, const char *job, enum co_outcome outcome)
{
    struct co_minutes_end end = {.pool = "jobs",
                                 .connection = "database",
                                 .queue = queue,
                                 .job = job,
                                 .outcome = outcome,
                                 .run_us = 100,
                                 .wait_us = 7};
    co_minutes_add(&minutes, &end);
}

static void every_outcome_has_its_counter(void **state)
{
    static const struct {
        enum co_outcome outcome;
        uint64_t done, failed, released, crashed;
    } rows[] = {
        {CO_OUTCOME_DONE, 1, 0, 0, 0},     {CO_OUTCOME_FAILED, 0, 1, 0, 0},
        {CO_OUTCOME_RELEASED, 0, 0, 1, 0}, {CO_OUTCOME_LEFT, 0, 0, 1, 0},
        {CO_OUTCOME_CRASHED, 0, 0, 0, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        co_minutes_start(&minutes, NOON);
        add("default", "App\\Jobs\\Mail", rows[i].outcome);
        assert_int_equal(minutes.n, 1);
        assert_int_equal(minutes.rows[0].done, rows[i].done);
        assert_int_equal(minutes.rows[0].failed, rows[i].failed);
        assert_int_equal(minutes.rows[0].released, rows[i].released);
        assert_int_equal(minutes.rows[0].crashed, rows[i].crashed);
    }
}

static void what_did_not_run_leaves_nothing(void **state)
{
    static const enum co_outcome outcomes[] = {CO_OUTCOME_DECLINED, CO_OUTCOME_RETURNED,
                                               CO_OUTCOME_LOST, CO_OUTCOME_QUARANTINED};
    (void)state;
    co_minutes_start(&minutes, NOON);
    for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++) {
        add("default", "Mail", outcomes[i]);
    }
    assert_int_equal(minutes.n, 0);
}

static void times_are_summed_and_the_longest_kept(void **state)
{
    struct co_minutes_end end = {.pool = "jobs", .outcome = CO_OUTCOME_DONE};
    static const uint64_t runs[] = {30, 50, 20};
    (void)state;
    co_minutes_start(&minutes, NOON);
    for (size_t i = 0; i < 3; i++) {
        end.run_us = runs[i];
        end.wait_us = i;
        end.timeout = i == 1;
        co_minutes_add(&minutes, &end);
    }
    assert_int_equal(minutes.rows[0].run_sum_us, 100);
    assert_int_equal(minutes.rows[0].run_max_us, 50);
    assert_int_equal(minutes.rows[0].wait_sum_us, 3);
    assert_int_equal(minutes.rows[0].timeouts, 1);
    assert_int_equal(minutes.rows[0].done, 3);
}

static void texts_do_not_run_into_one_another(void **state)
{
    (void)state;
    co_minutes_start(&minutes, NOON);
    add("a", "bc", CO_OUTCOME_DONE);
    add("ab", "c", CO_OUTCOME_DONE);
    add("", "abc", CO_OUTCOME_DONE);
    add(NULL, "abc", CO_OUTCOME_DONE);
    assert_int_equal(minutes.n, 3);
    assert_int_equal(minutes.rows[2].done, 2);
    assert_string_equal(minutes.rows[2].queue, "");
}

static void classes_beyond_the_table_share_one_row(void **state)
{
    char job[32];
    (void)state;
    co_minutes_start(&minutes, NOON);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 1000; i++) {
            snprintf(job, sizeof job, "Job%d", i);
            add("default", job, CO_OUTCOME_DONE);
        }
    }
    assert_int_equal(minutes.n, CO_MINUTES_MAX);
    const struct co_report_minute *other = &minutes.rows[CO_MINUTES_MAX - 1];
    assert_string_equal(other->pool, CO_MINUTES_OTHER);
    assert_string_equal(other->job, CO_MINUTES_OTHER);
    assert_int_equal(other->done, 2 * (1000 - CO_MINUTES_MAX + 1));
    for (uint32_t i = 0; i < CO_MINUTES_MAX - 1; i++) {
        assert_int_equal(minutes.rows[i].done, 2);
    }
}

static void a_long_class_is_cut_between_characters(void **state)
{
    char job[400];
    (void)state;
    memset(job, 'x', sizeof job);
    job[sizeof job - 1] = '\0';
    memcpy(job + CO_REPORT_TEXT_SIZE - 2, "\xc3\xa4", 2); /* Its second byte would not fit. */
    co_minutes_start(&minutes, NOON);
    add("default", job, CO_OUTCOME_DONE);
    add("default", job, CO_OUTCOME_DONE);
    assert_int_equal(minutes.n, 1);
    assert_int_equal(minutes.rows[0].done, 2);
    assert_int_equal(strlen(minutes.rows[0].job), CO_REPORT_TEXT_SIZE - 2);
}

static void a_minute_is_over_when_the_clock_shows_another(void **state)
{
    static const struct {
        int64_t now;
        bool over;
    } rows[] = {{NOON, false},
                {NOON + 59, false},
                {NOON + 60, true},
                {NOON - 1, true},
                {NOON + 86400, true}};
    (void)state;
    co_minutes_start(&minutes, NOON + 42);
    assert_int_equal(minutes.minute, NOON);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(co_minutes_over(&minutes, rows[i].now), rows[i].over);
    }
}

static void a_new_minute_begins_empty(void **state)
{
    (void)state;
    co_minutes_start(&minutes, NOON);
    add("default", "Mail", CO_OUTCOME_DONE);
    co_minutes_start(&minutes, NOON + 60);
    assert_int_equal(minutes.n, 0);
    add("default", "Mail", CO_OUTCOME_FAILED);
    assert_int_equal(minutes.n, 1);
    assert_int_equal(minutes.rows[0].minute, NOON + 60);
    assert_int_equal(minutes.rows[0].done, 0);
    assert_int_equal(minutes.rows[0].failed, 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_outcome_has_its_counter),
        cmocka_unit_test(what_did_not_run_leaves_nothing),
        cmocka_unit_test(times_are_summed_and_the_longest_kept),
        cmocka_unit_test(texts_do_not_run_into_one_another),
        cmocka_unit_test(classes_beyond_the_table_share_one_row),
        cmocka_unit_test(a_long_class_is_cut_between_characters),
        cmocka_unit_test(a_minute_is_over_when_the_clock_shows_another),
        cmocka_unit_test(a_new_minute_begins_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
