#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "autoscale/signals.h"
#include "autoscale/world.h"

static void each_job_and_worker_is_counted_once_and_as_what_it_is(void **state)
{
    struct co_signals signals = {
        .ready = 1,
        .due_soon = 20,
        .claimed = 300,
        .running = 7000,
        .booting = 1,
        .idle = 20,
        .busy = 300,
        .draining = 4000,
    };

    (void)state;
    assert_int_equal(co_signals_queued(&signals), 321);
    assert_int_equal(co_signals_serving(&signals), 321);     /* Draining ones serve nobody. */
    assert_int_equal(co_signals_outstanding(&signals), 621); /* Their jobs need no other. */
}

/* Looks every 250 ms, but for those a push brings at any moment. */
static double rate_after(uint64_t seed, double per_s, co_ms ms)
{
    struct co_arrival arrival = {0};
    uint64_t came = 0, ended = 0;

    for (co_ms now = 0; now <= ms; now += draw_in(&seed, 1, 250)) {
        uint64_t all = (uint64_t)(per_s * (double)now / 1000.0);
        ended += (all - came) / 2;
        came = all;
        co_arrival_look(&arrival, came - ended, ended, 1000 + now);
    }
    return co_arrival_rate(&arrival);
}

static void a_steady_rate_is_known_within_a_tenth_after_ten_seconds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 2000; seed++) {
        uint64_t s = seed;
        double per_s = draw_in(&s, 20, 2000);
        double rate = rate_after(seed, per_s, 10000);
        assert_true(rate > 0.9 * per_s && rate < 1.1 * per_s);
    }
}

static void a_burst_is_no_rate(void **state)
{
    struct co_arrival arrival = {0};

    (void)state;
    for (co_ms now = 0; now < 60000; now += 250) { /* One a second, for a minute. */
        co_arrival_look(&arrival, 0, now / 1000, now);
    }
    co_arrival_look(&arrival, 1000, 60, 60000); /* And a thousand at once. */
    /* The fast average alone would say hundreds: a target built on it outlives the burst. */
    assert_true(co_arrival_rate(&arrival) < 70.0); /* It counts as if it had taken 15 s. */
    co_arrival_look(&arrival, 1000, 60, 62000);
    assert_true(co_arrival_rate(&arrival) < 70.0);
}

static void no_numbers_make_a_rate_negative_or_wild(void **state)
{
    (void)state;
    for (uint64_t run = 1; run < 5000; run++) {
        struct co_arrival arrival = {0};
        uint64_t seed = run;
        co_ms now = 0;
        for (int i = 0; i < 50; i++) {
            co_arrival_look(&arrival, draw_size(&seed, 20), draw_size(&seed, 20), now);
            assert_true(co_arrival_rate(&arrival) >= 0.0);
            assert_true(co_arrival_rate(&arrival) <= 2.2e9);
            now += draw_size(&seed, 12);
        }
    }
}

static void a_time_without_work_ends_the_rate(void **state)
{
    struct co_arrival arrival = {0};
    co_ms now = 0;

    (void)state;
    for (; now < 30000; now += 250) {
        co_arrival_look(&arrival, 0, now / 10, now);
    }
    assert_true(co_arrival_rate(&arrival) > 90.0);
    for (co_ms end = now + 20000; now < end; now += 1000) {
        co_arrival_look(&arrival, 0, 3000, now);
    }
    assert_true(co_arrival_rate(&arrival) < 1.0);
}

static void the_service_time_lies_among_those_seen(void **state)
{
    (void)state;
    for (uint64_t run = 1; run < 5000; run++) {
        struct co_service service = {0};
        uint64_t seed = run;
        uint64_t low = UINT64_MAX, high = 0;
        for (int i = 0; i < 60; i++) {
            uint64_t us = draw_size(&seed, 28);
            low = us < low ? us : low;
            high = us > high ? us : high;
            co_service_note(&service, us);
            assert_true(service.mean_us > 0.0);
            assert_true(service.mean_us >= (double)low && service.mean_us <= (double)high + 1.0);
            assert_true(service.dev_us >= 0.0 && service.dev_us <= (double)high + 1.0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_job_and_worker_is_counted_once_and_as_what_it_is),
        cmocka_unit_test(a_steady_rate_is_known_within_a_tenth_after_ten_seconds),
        cmocka_unit_test(a_burst_is_no_rate),
        cmocka_unit_test(no_numbers_make_a_rate_negative_or_wild),
        cmocka_unit_test(a_time_without_work_ends_the_rate),
        cmocka_unit_test(the_service_time_lies_among_those_seen),
    };
    return cmocka_run_group_tests_name("signals", tests, NULL, NULL);
}
