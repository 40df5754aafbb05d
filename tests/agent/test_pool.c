/* The workers of one pool. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "agent/pool.h"

static struct co_pool pool;

static uint32_t fork_all(co_ms now)
{
    uint32_t n = 0;

    while (co_pool_fork(&pool, now) >= 0) {
        n++;
    }
    return n;
}

/* A pool whose workers are all idle. */
static void boot(uint32_t workers)
{
    co_pool_init(&pool, workers);
    co_pool_zygote_up(&pool, 0);
    assert_int_equal(fork_all(0), workers + 1);
    for (uint32_t w = 0; w < workers; w++) {
        co_pool_forked(&pool, w, (int32_t)(100 + w));
        co_pool_ready(&pool, w, 0);
    }
    co_pool_ready(&pool, CO_POOL_CONTROL, 0);
}

static void the_control_worker_comes_first_and_is_not_counted(void **state)
{
    (void)state;
    co_pool_init(&pool, 2);
    assert_int_equal(co_pool_fork(&pool, 0), -1); /* No zygote yet. */
    co_pool_zygote_up(&pool, 0);
    assert_int_equal(co_pool_fork(&pool, 0), CO_POOL_CONTROL);
    assert_int_equal(co_pool_fork(&pool, 0), 0);
    assert_int_equal(co_pool_fork(&pool, 0), 1);
    assert_int_equal(co_pool_fork(&pool, 0), -1);
    assert_int_equal(co_pool_alive(&pool), 2);
    co_pool_ready(&pool, CO_POOL_CONTROL, 0);
    assert_int_equal(co_pool_idle(&pool), -1);
    assert_int_equal(pool.by_state[CO_WORKER_BOOTING], 2);
}

static void the_one_idle_for_the_shortest_time_is_served(void **state)
{
    (void)state;
    boot(3);
    assert_int_equal(co_pool_idle(&pool), 2);
    co_pool_busy(&pool, 2, 7, 1);
    assert_int_equal(co_pool_idle(&pool), 1);
    co_pool_busy(&pool, 1, 8, 1);
    co_pool_ended(&pool, 2, 2);
    assert_int_equal(co_pool_idle(&pool), 2);
    co_pool_exited(&pool, 0, 0, 9, 3); /* From under the stack. */
    assert_int_equal(co_pool_idle(&pool), 2);
    assert_int_equal(pool.n_idle, 1);
    co_pool_busy(&pool, 2, 9, 4);
    assert_int_equal(co_pool_idle(&pool), -1);
}

static void a_death_is_read_from_its_status(void **state)
{
    static const struct {
        const char *what;
        bool booted, busy, doomed;
        int exit_code, signal;
        enum co_exit_reason reason;
    } rows[] = {
        {"before it was ready", false, false, false, 0, 11, CO_EXIT_BOOT_FAILURE},
        {"a kill that was not ours", true, true, false, 0, 9, CO_EXIT_KILLED},
        {"a crash", true, true, false, 0, 11, CO_EXIT_CRASH},
        {"PHP's fatal error", true, true, false, 255, 0, CO_EXIT_JOB_FATAL},
        {"exit() in a job", true, true, false, 0, 0, CO_EXIT_JOB_EXIT},
        {"exit(12) in a job", true, true, false, 12, 0, CO_EXIT_JOB_EXIT},
        {"memory limit after a job", true, false, false, 12, 0, CO_EXIT_RECYCLED_MEMORY},
        {"stopped by itself", true, false, false, 0, 0, CO_EXIT_LOST_CONNECTION},
        {"an error code while idle", true, false, false, 3, 0, CO_EXIT_CRASH},
        {"we did it", true, true, true, 0, 9, CO_EXIT_OPERATOR},
        {"we did it while it booted", false, false, true, 0, 9, CO_EXIT_OPERATOR},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        co_pool_init(&pool, 1);
        co_pool_zygote_up(&pool, 0);
        fork_all(0);
        if (rows[i].booted) {
            co_pool_ready(&pool, 0, 0);
        }
        if (rows[i].busy) {
            co_pool_busy(&pool, 0, 1, 0);
        }
        if (rows[i].doomed) {
            co_pool_doom(&pool, 0, CO_EXIT_OPERATOR);
            co_pool_doom(&pool, 0, CO_EXIT_DRAIN); /* The first reason stands. */
        }
        enum co_exit_reason reason = co_pool_exited(&pool, 0, rows[i].exit_code, rows[i].signal, 5);
        if (reason != rows[i].reason) {
            fail_msg("%s: %s", rows[i].what, co_exit_name(reason));
        }
        assert_int_equal(pool.exits[rows[i].reason], 1);
        assert_int_equal(co_pool_alive(&pool), 0);
    }
}

static void a_dead_worker_is_replaced_at_once(void **state)
{
    (void)state;
    boot(2);
    uint32_t life = pool.workers[1].life;
    co_pool_exited(&pool, 1, 0, 11, 10);
    assert_int_equal(co_pool_fork(&pool, 10), 1);
    assert_int_equal(pool.workers[1].life, life + 1);
    assert_int_equal(pool.workers[1].jobs, 0);
    assert_int_equal(co_pool_fork(&pool, 10), -1);
}

static void boot_failures_in_a_row_wait_longer_and_longer(void **state)
{
    static const co_ms waits[] = {100,  200,   400,   800,   1600,  3200,
                                  6400, 12800, 25600, 51200, 60000, 60000};
    co_ms now = 0;

    (void)state;
    co_pool_init(&pool, 1);
    co_pool_zygote_up(&pool, 0);
    fork_all(0);
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        co_pool_exited(&pool, 0, 1, 0, now);
        assert_int_equal(co_pool_deadline(&pool, now), now + waits[i]);
        assert_int_equal(co_pool_fork(&pool, now + waits[i] - 1), -1);
        now += waits[i];
        assert_int_equal(co_pool_fork(&pool, now), 0);
    }
    co_pool_ready(&pool, 0, now);
    co_pool_exited(&pool, 0, 0, 11, now);
    assert_int_equal(co_pool_fork(&pool, now), 0); /* One that booted ends the row. */
    co_pool_exited(&pool, 0, 1, 0, now);
    assert_int_equal(co_pool_deadline(&pool, now), now + 100);
}

static void surplus_workers_are_stopped_and_not_replaced(void **state)
{
    (void)state;
    boot(4);
    co_pool_busy(&pool, 3, 1, 0);
    pool.wanted = 2;
    assert_int_equal(co_pool_stop(&pool, 1), 2);
    assert_int_equal(co_pool_stop(&pool, 1), 3);
    assert_int_equal(co_pool_stop(&pool, 1), -1);
    assert_int_equal(pool.by_state[CO_WORKER_DRAINING], 2);
    co_pool_ended(&pool, 3, 2);
    assert_int_equal(pool.workers[3].state, CO_WORKER_DRAINING);
    assert_int_equal(co_pool_exited(&pool, 2, 0, 0, 3), CO_EXIT_SCALE_DOWN);
    assert_int_equal(co_pool_exited(&pool, 3, 0, 0, 3), CO_EXIT_SCALE_DOWN);
    assert_int_equal(co_pool_fork(&pool, 4), -1);
    co_pool_exited(&pool, 0, 0, 9, 5);
    assert_int_equal(co_pool_fork(&pool, 5), 0);
    pool.wanted = 3;
    assert_int_equal(co_pool_fork(&pool, 5), 2);
}

/* A place below is empty while one above still has its worker. */
static void a_surplus_worker_hides_no_empty_place(void **state)
{
    (void)state;
    boot(3);
    pool.wanted = 2;
    assert_int_equal(co_pool_stop(&pool, 1), 2);
    co_pool_exited(&pool, 0, 0, 9, 1);
    assert_int_equal(co_pool_alive(&pool), 2);
    assert_int_equal(co_pool_fork(&pool, 1), 0);
}

static void a_draining_pool_stops_everyone_once(void **state)
{
    (void)state;
    boot(2);
    co_pool_exited(&pool, 1, 0, 9, 0);
    assert_int_equal(co_pool_fork(&pool, 0), 1);
    co_pool_busy(&pool, 0, 1, 0);
    pool.draining = true;
    assert_int_equal(co_pool_stop(&pool, 1), 0);
    assert_int_equal(co_pool_stop(&pool, 1), -1); /* The other one boots. */
    co_pool_ready(&pool, 1, 2);
    assert_int_equal(co_pool_stop(&pool, 2), 1);
    assert_int_equal(co_pool_stop(&pool, 2), -1);
    co_pool_exited(&pool, 0, 0, 0, 3);
    co_pool_exited(&pool, CO_POOL_CONTROL, 0, 9, 3);
    assert_int_equal(co_pool_fork(&pool, 3), -1);
    assert_int_equal(co_pool_exited(&pool, 1, 0, 0, 4), CO_EXIT_DRAIN);
}

static void a_zygote_that_does_not_boot_is_tried_again_later(void **state)
{
    (void)state;
    co_pool_init(&pool, 1);
    assert_true(pool.zygote_wanted);
    pool.zygote_wanted = false;
    co_pool_zygote_down(&pool, false, 1000);
    assert_true(pool.zygote_wanted);
    assert_int_equal(co_pool_deadline(&pool, 1000), 1800);
    co_pool_zygote_down(&pool, false, 2000);
    assert_int_equal(co_pool_deadline(&pool, 2000), 3600);
    co_pool_zygote_down(&pool, true, 3000);
    assert_int_equal(pool.zygote_after, 3000);
    pool.draining = true;
    co_pool_zygote_down(&pool, true, 3000);
    assert_false(pool.zygote_wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_control_worker_comes_first_and_is_not_counted),
        cmocka_unit_test(the_one_idle_for_the_shortest_time_is_served),
        cmocka_unit_test(a_death_is_read_from_its_status),
        cmocka_unit_test(a_dead_worker_is_replaced_at_once),
        cmocka_unit_test(boot_failures_in_a_row_wait_longer_and_longer),
        cmocka_unit_test(surplus_workers_are_stopped_and_not_replaced),
        cmocka_unit_test(a_surplus_worker_hides_no_empty_place),
        cmocka_unit_test(a_draining_pool_stops_everyone_once),
        cmocka_unit_test(a_zygote_that_does_not_boot_is_tried_again_later),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
