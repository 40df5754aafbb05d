/* The circuit, told as rows and stories. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "agent/circuit.h"

static uint32_t deaths(struct co_circuit *circuit, enum co_exit_reason reason, uint32_t running,
                       uint32_t n, co_ms now)
{
    uint32_t opened = 0;

    for (uint32_t i = 0; i < n; i++) {
        opened += co_circuit_death(circuit, i, reason, running, now);
    }
    return opened;
}

static void as_many_deaths_open_it_as_the_pool_is_large(void **state)
{
    static const struct {
        const char *what;
        uint32_t running, deaths, completed;
        enum co_exit_reason reason;
        enum co_circuit_state after;
    } rows[] = {
        {"four of two", 2, 4, 0, CO_EXIT_CRASH, CO_CIRCUIT_CLOSED},
        {"five of two", 2, 5, 0, CO_EXIT_CRASH, CO_CIRCUIT_OPEN},
        {"five of ten", 10, 5, 0, CO_EXIT_CRASH, CO_CIRCUIT_OPEN},
        {"31 of 64", 64, 31, 0, CO_EXIT_CRASH, CO_CIRCUIT_CLOSED},
        {"32 of 64", 64, 32, 0, CO_EXIT_CRASH, CO_CIRCUIT_OPEN},
        {"as many completed", 2, 5, 5, CO_EXIT_CRASH, CO_CIRCUIT_CLOSED},
        {"one more than completed", 2, 6, 5, CO_EXIT_CRASH, CO_CIRCUIT_OPEN},
        {"boot failures", 2, 5, 0, CO_EXIT_BOOT_FAILURE, CO_CIRCUIT_OPEN},
        {"kills that were not ours", 2, 5, 0, CO_EXIT_KILLED, CO_CIRCUIT_OPEN},
        {"memory", 2, 5, 0, CO_EXIT_OOM, CO_CIRCUIT_OPEN},
        {"timeouts never", 2, 500, 0, CO_EXIT_JOB_TIMEOUT, CO_CIRCUIT_CLOSED},
        {"a job's exit() never", 2, 500, 0, CO_EXIT_JOB_EXIT, CO_CIRCUIT_CLOSED},
        {"deliberate exits never", 2, 500, 0, CO_EXIT_RECYCLED_JOBS, CO_CIRCUIT_CLOSED},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct co_circuit circuit;
        co_circuit_init(&circuit, 1, 1000);
        for (uint32_t c = 0; c < rows[i].completed; c++) {
            co_circuit_completed(&circuit, c, 1000);
        }
        deaths(&circuit, rows[i].reason, rows[i].running, rows[i].deaths, 1500);
        if (circuit.state != rows[i].after) {
            fail_msg("%s: %s", rows[i].what, co_circuit_name(circuit.state));
        }
    }
}

static void crashes_and_memory_count_apart(void **state)
{
    struct co_circuit circuit;
    (void)state;
    co_circuit_init(&circuit, 1, 0);
    assert_int_equal(deaths(&circuit, CO_EXIT_CRASH, 2, 4, 10), 0);
    assert_int_equal(deaths(&circuit, CO_EXIT_OOM, 2, 4, 10), 0);
    assert_int_equal(deaths(&circuit, CO_EXIT_CRASH, 2, 1, 10), 1);
}

static void deaths_older_than_a_minute_are_forgotten(void **state)
{
    struct co_circuit circuit;
    (void)state;
    co_circuit_init(&circuit, 1, 0);
    deaths(&circuit, CO_EXIT_CRASH, 2, 4, 0);
    assert_int_equal(deaths(&circuit, CO_EXIT_CRASH, 2, 4, 61000), 0);
    assert_int_equal(deaths(&circuit, CO_EXIT_CRASH, 2, 1, 62000), 1);
}

static void a_probe_goes_out_and_closes_it_with_a_job(void **state)
{
    struct co_circuit circuit;
    co_ms due;
    (void)state;
    co_circuit_init(&circuit, 7, 0);
    deaths(&circuit, CO_EXIT_CRASH, 2, 5, 100);
    due = co_circuit_deadline(&circuit);
    assert_in_range(due, 100 + 800, 100 + 1200);
    assert_false(co_circuit_allows(&circuit, due - 1));
    assert_true(co_circuit_allows(&circuit, due));
    co_circuit_forked(&circuit, 3);
    assert_false(co_circuit_allows(&circuit, due)); /* One probe, no more. */
    assert_false(co_circuit_completed(&circuit, 1, due + 10));
    assert_int_equal(circuit.state, CO_CIRCUIT_PROBING); /* A healthy one's job is no proof. */
    assert_true(co_circuit_completed(&circuit, 3, due + 20));
    assert_int_equal(circuit.state, CO_CIRCUIT_CLOSED);
    assert_int_equal(deaths(&circuit, CO_EXIT_CRASH, 2, 4, due + 30), 0);
}

static void a_probe_that_lives_without_work_closes_it_too(void **state)
{
    struct co_circuit circuit;
    (void)state;
    co_circuit_init(&circuit, 7, 0);
    deaths(&circuit, CO_EXIT_CRASH, 2, 5, 100);
    co_circuit_forked(&circuit, 3);
    assert_false(co_circuit_survived(&circuit, 3, 9999, 12000));
    assert_false(co_circuit_survived(&circuit, 2, 20000, 22000)); /* Not the probe. */
    assert_true(co_circuit_survived(&circuit, 3, 10000, 12001));
    assert_int_equal(circuit.state, CO_CIRCUIT_CLOSED);
    assert_int_equal(circuit.opened, 1);
}

static void probes_that_die_wait_twice_as_long_up_to_a_minute(void **state)
{
    struct co_circuit circuit;
    co_ms now = 100;
    co_ms expected = 1000;
    (void)state;
    co_circuit_init(&circuit, 7, 0);
    deaths(&circuit, CO_EXIT_CRASH, 2, 5, now);
    for (int i = 0; i < 10; i++) {
        co_ms due = co_circuit_deadline(&circuit);
        assert_in_range(due - now, expected * 8 / 10, expected * 12 / 10);
        co_circuit_forked(&circuit, 0);
        now = due;
        co_circuit_death(&circuit, 0, CO_EXIT_CRASH, 2, now);
        assert_int_equal(circuit.state, CO_CIRCUIT_OPEN);
        expected = expected * 2 < 60000 ? expected * 2 : 60000;
    }
}

static void a_probe_that_timed_out_is_followed_at_once(void **state)
{
    struct co_circuit circuit;
    (void)state;
    co_circuit_init(&circuit, 7, 0);
    deaths(&circuit, CO_EXIT_CRASH, 2, 5, 100);
    co_circuit_forked(&circuit, 0);
    co_circuit_death(&circuit, 0, CO_EXIT_JOB_TIMEOUT, 2, 5000);
    assert_true(co_circuit_allows(&circuit, 5000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_deaths_open_it_as_the_pool_is_large),
        cmocka_unit_test(crashes_and_memory_count_apart),
        cmocka_unit_test(deaths_older_than_a_minute_are_forgotten),
        cmocka_unit_test(a_probe_goes_out_and_closes_it_with_a_job),
        cmocka_unit_test(a_probe_that_lives_without_work_closes_it_too),
        cmocka_unit_test(probes_that_die_wait_twice_as_long_up_to_a_minute),
        cmocka_unit_test(a_probe_that_timed_out_is_followed_at_once),
    };
    return cmocka_run_group_tests_name("circuit", tests, NULL, NULL);
}
