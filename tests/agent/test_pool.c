/* The workers of one pool: rows and stories. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <string.h>

#include "agent/pool.h"

static struct co_pool pool;
static bool opened; /* By the last death. */

static void init(uint32_t workers)
{
    co_pool_init(&pool, workers, &(struct co_pool_limits){0}, false, 1, 0);
    assert_true(co_pool_zygote(&pool, 0));
}

static enum co_exit_reason die(uint32_t worker, int exit_code, int signal, co_ms now)
{
    return co_pool_exited(&pool, worker, exit_code, signal, false, now, &opened);
}

static void done(uint32_t worker, co_ms now)
{
    co_pool_ended(&pool, worker, CO_OUTCOME_DONE, false, now);
}

static uint32_t fork_all(co_ms now)
{
    uint32_t n = 0;
    int worker;

    while ((worker = co_pool_fork(&pool, now)) >= 0) {
        co_pool_forked(&pool, (uint32_t)worker, 100 + worker);
        n++;
    }
    return n;
}

static void ready_all(co_ms now)
{
    for (uint32_t w = 0; w < CO_PLACES_MAX; w++) {
        if (pool.workers[w].state == CO_WORKER_BOOTING) {
            co_pool_ready(&pool, w, now);
        }
    }
}

/* Those that were told to stop and have no job are gone. */
static uint32_t bury_all(co_ms now)
{
    uint32_t n = 0;

    for (uint32_t w = 0; w < CO_PLACES_MAX; w++) {
        if (pool.workers[w].state == CO_WORKER_DRAINING && pool.workers[w].ticket == 0) {
            die(w, 0, 0, now);
            n++;
        }
    }
    return n;
}

static uint32_t stop_all(co_ms now)
{
    uint32_t n = 0;

    while (co_pool_stop(&pool, now) >= 0) {
        n++;
    }
    return n;
}

/* Forks, boots, stops and deaths until nothing moves; capacity never dips. */
static uint32_t settle(co_ms now)
{
    uint32_t replaced = 0;
    uint32_t most = pool.wanted / 10 > 1 ? pool.wanted / 10 : 1;

    for (uint32_t moved = 1; moved > 0;) {
        moved = fork_all(now);
        assert_true(pool.by_state[CO_WORKER_BOOTING] <= most);
        replaced += pool.by_state[CO_WORKER_BOOTING];
        ready_all(now);
        moved += stop_all(now);
        assert_true(co_pool_able(&pool) >= pool.wanted);
        bury_all(now);
    }
    return replaced;
}

static uint32_t of_generation(uint32_t generation)
{
    uint32_t n = 0;

    for (uint32_t w = 0; w < CO_WORKERS_MAX; w++) {
        n += pool.workers[w].present && pool.workers[w].generation == generation;
    }
    return n;
}

static void boot_with(uint32_t workers, const struct co_pool_limits *limits)
{
    co_pool_init(&pool, workers, limits, false, 1, 0);
    assert_true(co_pool_zygote(&pool, 0));
    co_pool_zygote_up(&pool, 0);
    assert_int_equal(fork_all(0), workers + 1);
    ready_all(0);
}

/* A pool whose workers are all idle. */
static void boot(uint32_t workers)
{
    boot_with(workers, &(struct co_pool_limits){0});
}

static void the_control_worker_comes_first_and_is_not_counted(void **state)
{
    (void)state;
    init(2);
    assert_int_equal(co_pool_fork(&pool, 0), -1); /* No zygote yet. */
    co_pool_zygote_up(&pool, 0);
    assert_int_equal(co_pool_fork(&pool, 0), CO_PLACE_CONTROL + 1);
    assert_int_equal(co_pool_fork(&pool, 0), 0);
    assert_int_equal(co_pool_fork(&pool, 0), 1);
    assert_int_equal(co_pool_fork(&pool, 0), -1);
    assert_int_equal(co_pool_alive(&pool), 2);
    assert_int_equal(co_pool_control(&pool), -1);
    co_pool_ready(&pool, CO_PLACE_CONTROL + 1, 0);
    assert_int_equal(co_pool_control(&pool), CO_PLACE_CONTROL + 1);
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
    done(2, 2);
    assert_int_equal(co_pool_idle(&pool), 2);
    die(0, 0, 9, 3); /* From under the stack. */
    assert_int_equal(co_pool_idle(&pool), 2);
    assert_int_equal(pool.n_idle, 1);
    co_pool_busy(&pool, 2, 9, 4);
    assert_int_equal(co_pool_idle(&pool), -1);
}

enum wish { NONE, ASKED, SEALED }; /* What we had wanted of it: OPERATOR. */

static void a_death_is_read_from_its_status(void **state)
{
    static const struct {
        const char *what;
        bool booted, busy;
        enum wish wish;
        int exit_code, signal;
        bool by_oom;
        enum co_exit_reason reason;
    } rows[] = {
        {"before it was ready", false, false, NONE, 0, 11, false, CO_EXIT_BOOT_FAILURE},
        {"a kill that was not ours", true, true, NONE, 0, 9, false, CO_EXIT_KILLED},
        {"the kernel's kill for memory", true, true, NONE, 0, 9, true, CO_EXIT_OOM},
        {"the same in its boot", false, false, NONE, 0, 9, true, CO_EXIT_OOM},
        {"a crash", true, true, NONE, 0, 11, false, CO_EXIT_CRASH},
        {"PHP's fatal error", true, true, NONE, 255, 0, false, CO_EXIT_JOB_FATAL},
        {"exit() in a job", true, true, NONE, 0, 0, false, CO_EXIT_JOB_EXIT},
        {"exit(12) in a job", true, true, NONE, 12, 0, false, CO_EXIT_JOB_EXIT},
        {"memory limit after a job", true, false, NONE, 12, 0, false, CO_EXIT_RECYCLED_MEMORY},
        {"stopped by itself", true, false, NONE, 0, 0, false, CO_EXIT_LOST_CONNECTION},
        {"an error code while idle", true, false, NONE, 3, 0, false, CO_EXIT_CRASH},
        {"it was asked", true, false, ASKED, 0, 0, false, CO_EXIT_OPERATOR},
        {"asked, and a crash in its end", true, false, ASKED, 0, 11, false, CO_EXIT_OPERATOR},
        {"asked, and it hung", true, true, ASKED, 0, 9, false, CO_EXIT_OPERATOR},
        {"asked, and its last job crashed", true, true, ASKED, 0, 11, false, CO_EXIT_CRASH},
        {"asked, and its last job left", true, true, ASKED, 0, 0, false, CO_EXIT_JOB_EXIT},
        {"asked, and the kernel's kill", true, true, ASKED, 0, 9, true, CO_EXIT_OOM},
        {"asked while it booted", false, false, ASKED, 0, 9, false, CO_EXIT_OPERATOR},
        {"ended by us, its own way", true, true, SEALED, 255, 0, false, CO_EXIT_OPERATOR},
        {"ended by us, by a crash", true, true, SEALED, 0, 6, false, CO_EXIT_OPERATOR},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        init(1);
        co_pool_zygote_up(&pool, 0);
        fork_all(0);
        if (rows[i].booted) {
            co_pool_ready(&pool, 0, 0);
        }
        if (rows[i].busy) {
            co_pool_busy(&pool, 0, 1, 0);
        }
        if (rows[i].wish == ASKED) {
            co_pool_doom(&pool, 0, CO_EXIT_OPERATOR);
            co_pool_doom(&pool, 0, CO_EXIT_DRAIN); /* The first reason stands. */
        } else if (rows[i].wish == SEALED) {
            co_pool_doom(&pool, 0, CO_EXIT_DRAIN);
            co_pool_seal(&pool, 0, CO_EXIT_OPERATOR, 0); /* The last one does. */
        }
        enum co_exit_reason reason =
            co_pool_exited(&pool, 0, rows[i].exit_code, rows[i].signal, rows[i].by_oom, 5, &opened);
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
    die(1, 0, 11, 10);
    assert_int_equal(co_pool_fork(&pool, 10), 1);
    assert_int_equal(pool.workers[1].life, life + 1);
    assert_int_equal(pool.workers[1].jobs, 0);
    assert_int_equal(co_pool_fork(&pool, 10), -1);
}

/* ---- scale-down ---- */

static void surplus_workers_go_idle_ones_first_and_busy_ones_after_their_job(void **state)
{
    (void)state;
    boot(4);
    co_pool_busy(&pool, 3, 1, 0);
    co_pool_busy(&pool, 2, 2, 0);
    co_pool_busy(&pool, 1, 3, 0);
    pool.wanted = 2;
    assert_int_equal(co_pool_stop(&pool, 1), 0);
    assert_int_equal(co_pool_stop(&pool, 1), 1); /* Busy: marked. */
    assert_int_equal(co_pool_stop(&pool, 1), -1);
    assert_int_equal(pool.by_state[CO_WORKER_DRAINING], 2);
    done(1, 2);
    assert_int_equal(pool.workers[1].state, CO_WORKER_DRAINING);
    assert_int_equal(die(0, 0, 0, 3), CO_EXIT_SCALE_DOWN);
    assert_int_equal(die(1, 0, 0, 3), CO_EXIT_SCALE_DOWN);
    assert_int_equal(co_pool_fork(&pool, 4), -1);
    die(2, 0, 9, 5);
    assert_int_equal(co_pool_fork(&pool, 5), 0);
    pool.wanted = 3;
    assert_int_equal(co_pool_fork(&pool, 5), 1);
}

/* A place below is empty while one above still has its worker. */
static void a_surplus_worker_hides_no_empty_place(void **state)
{
    (void)state;
    boot(3);
    pool.wanted = 2;
    assert_int_equal(co_pool_stop(&pool, 1), 0);
    die(1, 0, 9, 1);
    assert_int_equal(co_pool_alive(&pool), 2);
    assert_int_equal(co_pool_fork(&pool, 1), 1);
}

/* ---- recycling ---- */

static void limits_lie_a_fifth_around_what_is_wanted(void **state)
{
    uint64_t least = UINT64_MAX, most = 0;

    (void)state;
    boot_with(200, &(struct co_pool_limits){.max_jobs = 100, .max_time = 1000});
    for (uint32_t w = 0; w < 200; w++) {
        uint64_t jobs = pool.workers[w].jobs_limit;
        assert_in_range(jobs, 80, 120);
        assert_in_range(pool.workers[w].time_limit, 800, 1200);
        least = jobs < least ? jobs : least;
        most = jobs > most ? jobs : most;
    }
    assert_true(least < 90 && most > 110);
    assert_int_equal(pool.workers[CO_PLACE_CONTROL + 1].jobs_limit, 0);
}

static void a_worker_that_has_done_its_jobs_works_until_its_successor_is_up(void **state)
{
    (void)state;
    boot_with(2, &(struct co_pool_limits){.max_jobs = 1});
    co_pool_busy(&pool, 1, 1, 10);
    done(1, 20);
    assert_int_equal(co_pool_stop(&pool, 20), -1);
    assert_int_equal(co_pool_idle(&pool), 1); /* It works on. */
    assert_int_equal(co_pool_fork(&pool, 20), 2);
    assert_int_equal(co_pool_fork(&pool, 20), -1);
    co_pool_busy(&pool, 1, 2, 20);
    co_pool_ready(&pool, 2, 30);
    assert_int_equal(co_pool_stop(&pool, 30), 1); /* Busy or not: the retiring one. */
    assert_int_equal(co_pool_able(&pool), 2);
    done(1, 40);
    assert_int_equal(die(1, 0, 0, 50), CO_EXIT_RECYCLED_JOBS);
    assert_int_equal(pool.n_retiring, 0);
    assert_int_equal(co_pool_fork(&pool, 50), -1);
}

static void what_never_ran_is_no_job(void **state)
{
    (void)state;
    boot_with(1, &(struct co_pool_limits){.max_jobs = 1});
    co_pool_busy(&pool, 0, 1, 10);
    co_pool_ended(&pool, 0, CO_OUTCOME_DECLINED, false, 10);
    co_pool_busy(&pool, 0, 2, 10);
    co_pool_ended(&pool, 0, CO_OUTCOME_RETURNED, false, 10);
    assert_int_equal(pool.n_retiring, 0);
    assert_int_equal(pool.workers[0].jobs, 0);
}

static void memory_and_age_recycle_too(void **state)
{
    (void)state;
    boot_with(2, &(struct co_pool_limits){.max_time = 1000});
    co_pool_busy(&pool, 1, 1, 10);
    co_pool_ended(&pool, 1, CO_OUTCOME_DONE, true, 20);
    assert_int_equal(pool.n_retiring, 1);
    assert_int_equal(settle(20), 1);
    assert_int_equal(pool.exits[CO_EXIT_RECYCLED_MEMORY], 1);
    co_pool_age(&pool, 1300);
    assert_int_equal(pool.n_retiring, 2);
    assert_int_equal(settle(1300), 2);
    assert_int_equal(pool.exits[CO_EXIT_RECYCLED_TIME], 2);
}

static void a_tenth_at_most_is_replaced_at_once(void **state)
{
    (void)state;
    boot_with(40, &(struct co_pool_limits){.max_time = 1000});
    co_pool_age(&pool, 2000);
    assert_int_equal(pool.n_retiring, 40);
    assert_int_equal(fork_all(2000), 4);
    assert_int_equal(stop_all(2000), 0); /* The replacement first. */
    co_pool_ready(&pool, 40, 2000);
    assert_int_equal(stop_all(2000), 1);
    assert_int_equal(co_pool_able(&pool), 40);
    assert_int_equal(fork_all(2000), 1);
    ready_all(2000);
    settle(2000);
    assert_int_equal(pool.n_retiring, 0);
    assert_int_equal(pool.exits[CO_EXIT_RECYCLED_TIME], 40);
}

static void short_memory_makes_no_successor_before_its_time(void **state)
{
    (void)state;
    boot_with(2, &(struct co_pool_limits){.max_time = 1000});
    pool.tight = true;
    co_pool_age(&pool, 2000);
    assert_int_equal(pool.n_retiring, 2);
    assert_int_equal(fork_all(2000), 0);
    assert_int_equal(stop_all(2000), 0); /* Capacity stays; what is due waits. */
    pool.tight = false;
    assert_int_equal(settle(2100), 2);
}

static void a_pool_with_every_place_taken_makes_room_for_successors(void **state)
{
    (void)state;
    boot_with(CO_WORKERS_MAX, &(struct co_pool_limits){.max_time = 1000});
    co_pool_age(&pool, 2000);
    for (int i = 0; i < CO_WORKERS_MAX; i++) {
        assert_int_equal(stop_all(2000), 1);
        assert_int_equal(co_pool_able(&pool), CO_WORKERS_MAX - 1);
        assert_int_equal(bury_all(2000), 1);
        assert_int_equal(fork_all(2000), 1);
        ready_all(2000);
    }
    assert_int_equal(pool.n_retiring, 0);
    assert_int_equal(stop_all(2000), 0);
}

/* ---- reload ---- */

static void a_reload_replaces_everyone_and_capacity_never_dips(void **state)
{
    (void)state;
    boot(20);
    co_pool_busy(&pool, 19, 1, 5);
    co_pool_reload(&pool, 10);
    assert_true(co_pool_zygote(&pool, 10));
    assert_false(co_pool_zygote(&pool, 10));
    assert_int_equal(stop_all(10), 0); /* Nothing happens before it has booted. */
    co_pool_zygote_up(&pool, 20);
    assert_int_equal(pool.n_retiring, 20);
    assert_int_equal(co_pool_control(&pool), CO_PLACE_CONTROL + 1);
    settle(20);
    assert_int_equal(co_pool_control(&pool), CO_PLACE_CONTROL);
    assert_int_equal(of_generation(2), 20);
    assert_int_equal(of_generation(1), 1); /* It has its job to finish. */
    assert_int_equal(pool.workers[19].state, CO_WORKER_DRAINING);
    done(19, 30);
    assert_int_equal(die(19, 0, 0, 30), CO_EXIT_RELOAD);
    assert_int_equal(pool.exits[CO_EXIT_RELOAD], 20);
}

static void a_generation_that_does_not_boot_leaves_the_old_serving(void **state)
{
    (void)state;
    boot(3);
    co_pool_reload(&pool, 10);
    assert_true(co_pool_zygote(&pool, 10));
    co_pool_zygote_down(&pool, false, false, 20);
    assert_true(pool.zygote_up);
    assert_false(pool.zygote_wanted);
    assert_int_equal(pool.n_retiring, 0);
    assert_int_equal(pool.generation, 1);
    die(0, 0, 11, 30);
    assert_int_equal(co_pool_fork(&pool, 30), 0); /* From the old one. */
    co_pool_reload(&pool, 40);                    /* Asked for anew: at once. */
    assert_true(co_pool_zygote(&pool, 40));
}

static void two_reloads_in_a_row_end_with_the_newest(void **state)
{
    (void)state;
    boot(3);
    for (co_ms now = 10; now <= 20; now += 10) {
        co_pool_reload(&pool, now);
        assert_true(co_pool_zygote(&pool, now));
        co_pool_zygote_up(&pool, now);
    }
    assert_int_equal(pool.generation, 3);
    settle(30);
    assert_int_equal(of_generation(3), 3);
    assert_int_equal(co_pool_alive(&pool), 3);
    assert_int_equal(pool.workers[co_pool_control(&pool)].generation, 3);
    assert_false(pool.workers[CO_PLACE_CONTROL].present);
}

static void a_reload_while_one_starts_is_another(void **state)
{
    (void)state;
    boot(2);
    co_pool_reload(&pool, 10);
    assert_true(co_pool_zygote(&pool, 10));
    co_pool_reload(&pool, 20); /* What changed since, the first may not have read. */
    assert_false(co_pool_zygote(&pool, 20));
    co_pool_zygote_down(&pool, true, true, 25); /* Not even a death between makes it forget. */
    co_pool_zygote_up(&pool, 30);
    assert_true(co_pool_zygote(&pool, 30));
    co_pool_zygote_up(&pool, 40);
    assert_false(co_pool_zygote(&pool, 40));
    settle(40);
    assert_int_equal(of_generation(3), 2);
}

static void workers_that_boot_when_a_new_generation_comes_are_replaced_too(void **state)
{
    (void)state;
    init(2);
    co_pool_zygote_up(&pool, 0);
    fork_all(0);
    co_pool_reload(&pool, 10);
    assert_true(co_pool_zygote(&pool, 10));
    co_pool_zygote_up(&pool, 20);
    ready_all(30);
    settle(30);
    assert_int_equal(of_generation(2), 2);
    assert_int_equal(co_pool_alive(&pool), 2);
}

static void a_draining_pool_reloads_no_more(void **state)
{
    (void)state;
    boot(1);
    pool.draining = true;
    co_pool_reload(&pool, 10);
    assert_false(co_pool_zygote(&pool, 10));
    co_pool_zygote_down(&pool, true, true, 10);
    assert_false(co_pool_zygote(&pool, 10));
    assert_true(co_pool_deadline(&pool, 10) == UINT64_MAX);
}

/* ---- the circuit ---- */

static void nine_timeouts_in_a_row_never_open_it(void **state)
{
    (void)state;
    boot(1);
    for (co_ms now = 10; now < 19; now++) {
        co_pool_busy(&pool, 0, now, now);
        co_pool_seal(&pool, 0, CO_EXIT_JOB_TIMEOUT, now);
        assert_int_equal(die(0, 0, 9, now), CO_EXIT_JOB_TIMEOUT);
        assert_false(opened);
        assert_int_equal(co_pool_fork(&pool, now), 0);
        co_pool_ready(&pool, 0, now);
    }
}

static void as_many_crashes_open_it_as_the_pool_is_large(void **state)
{
    static const struct {
        uint32_t workers, crashes;
    } rows[] = {{1, 5}, {10, 5}, {64, 32}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        boot(rows[i].workers);
        for (uint32_t n = 1; n <= rows[i].crashes; n++) {
            assert_int_equal(die(0, 0, 11, 100), CO_EXIT_CRASH);
            assert_int_equal(opened, n == rows[i].crashes);
            if (!opened) { /* One crash of a burst is replaced at once. */
                assert_int_equal(co_pool_fork(&pool, 100), 0);
                co_pool_forked(&pool, 0, 100);
                co_pool_ready(&pool, 0, 100);
            }
        }
        assert_int_equal(co_pool_fork(&pool, 100), -1);
        assert_int_equal(co_pool_able(&pool), rows[i].workers - 1); /* The healthy go on. */
        assert_int_equal(stop_all(100), 0);
    }
}

static void the_probe_closes_it_with_a_job_and_growth_resumes(void **state)
{
    (void)state;
    boot(10);
    for (uint32_t w = 0; w < 5; w++) {
        die(w, 0, 11, 100);
    }
    assert_true(opened);
    assert_int_equal(co_pool_fork(&pool, 100), -1);
    co_ms probe = co_pool_deadline(&pool, 100);
    assert_in_range(probe, 900, 1300);
    assert_int_equal(co_pool_fork(&pool, probe), 0);
    co_pool_forked(&pool, 0, 100);
    assert_int_equal(co_pool_fork(&pool, probe), -1);
    co_pool_ready(&pool, 0, probe);
    co_pool_busy(&pool, 9, 1, probe);
    done(9, probe);
    assert_int_equal(co_pool_fork(&pool, probe), -1); /* A healthy one's job is no proof. */
    co_pool_busy(&pool, 0, 2, probe);
    co_pool_ended(&pool, 0, CO_OUTCOME_DECLINED, false, probe);
    assert_int_equal(co_pool_fork(&pool, probe), -1); /* Nor is one that never ran. */
    co_pool_busy(&pool, 0, 3, probe);
    assert_true(co_pool_ended(&pool, 0, CO_OUTCOME_DONE, false, probe));
    assert_int_equal(fork_all(probe), 4);
}

static void boot_failures_open_it_and_never_touch_the_others(void **state)
{
    (void)state;
    boot(10);
    die(0, 0, 9, 100);
    for (uint32_t n = 0; n < 4; n++) {
        assert_int_equal(co_pool_fork(&pool, 100), 0);
        co_pool_forked(&pool, 0, 100);
        assert_int_equal(die(0, 1, 0, 100), CO_EXIT_BOOT_FAILURE);
    }
    assert_true(opened);
    assert_int_equal(pool.boot_failures, 4);
    assert_int_equal(co_pool_able(&pool), 9);
}

/* What a zygote was asked for and took along is no failure of the application's. */
static void workers_that_never_were_do_not_open_it(void **state)
{
    (void)state;
    init(10);
    co_pool_zygote_up(&pool, 0);
    while (co_pool_fork(&pool, 0) >= 0) {
    }
    for (uint32_t w = 0; w < 10; w++) {
        die(w, 1, 0, 0);
        assert_false(opened);
    }
    die(CO_PLACE_CONTROL + 1, 1, 0, 0);
    co_pool_zygote_down(&pool, true, true, 0);
    assert_true(co_pool_zygote(&pool, 0));
    co_pool_zygote_up(&pool, 10);
    assert_int_equal(fork_all(10), 11);
}

/* The zygote is dead, and we are about to hear of it. */
static void a_fork_that_fails_is_tried_again_in_a_moment(void **state)
{
    (void)state;
    boot(1);
    die(0, 0, 11, 100);
    for (co_ms now = 100; now < 20100; now += CO_POOL_FORK_AGAIN) {
        assert_int_equal(co_pool_fork(&pool, now), 0);
        co_pool_fork_failed(&pool, 0, now);
        assert_int_equal(co_pool_fork(&pool, now + CO_POOL_FORK_AGAIN - 1), -1);
        assert_int_equal(co_pool_deadline(&pool, now), now + CO_POOL_FORK_AGAIN);
    }
    assert_int_equal(pool.circuit.state, CO_CIRCUIT_CLOSED);
    co_pool_zygote_down(&pool, true, true, 20050);
    assert_true(co_pool_zygote(&pool, 20050));
    co_pool_zygote_up(&pool, 20060);
    assert_true(fork_all(20060) > 0); /* The next one may do better. */
}

static void a_probe_that_never_was_is_followed_at_once(void **state)
{
    (void)state;
    boot(1);
    for (uint32_t n = 0; n < 5; n++) {
        die(0, 0, 11, 100);
        fork_all(100);
    }
    co_ms probe = co_pool_deadline(&pool, 100);
    assert_int_equal(co_pool_fork(&pool, probe), 0);
    die(0, 1, 0, probe);
    assert_int_equal(co_pool_fork(&pool, probe), 0);
}

/* ---- control workers and bookkeepers ---- */

static void a_control_worker_that_dies_at_each_start_is_no_hot_loop(void **state)
{
    uint32_t control = CO_PLACE_CONTROL + 1;

    (void)state;
    boot(1);
    die(control, 255, 0, 1000);
    assert_int_equal(co_pool_fork(&pool, 1000), -1);
    assert_int_equal(co_pool_deadline(&pool, 1000), 2000);
    assert_int_equal(co_pool_fork(&pool, 2000), (int)control);
    co_pool_forked(&pool, control, 100);
    die(control, 255, 0, 2010);
    assert_int_equal(co_pool_fork(&pool, 3009), -1);
    assert_int_equal(co_pool_control(&pool), -1);
    assert_int_equal(pool.exits[CO_EXIT_BOOT_FAILURE], 0); /* It is not of the pool's jobs. */
    assert_int_equal(pool.circuit.state, CO_CIRCUIT_CLOSED);
}

static void an_old_control_worker_goes_when_the_new_one_is_up(void **state)
{
    (void)state;
    boot(1);
    co_pool_reload(&pool, 10);
    co_pool_zygote(&pool, 10);
    co_pool_zygote_up(&pool, 20);
    assert_int_equal(co_pool_fork(&pool, 20), CO_PLACE_CONTROL);
    assert_int_equal(co_pool_stop(&pool, 20), -1);
    assert_int_equal(co_pool_control(&pool), CO_PLACE_CONTROL + 1);
    co_pool_ready(&pool, CO_PLACE_CONTROL, 30);
    assert_int_equal(co_pool_control(&pool), CO_PLACE_CONTROL);
    assert_int_equal(co_pool_stop(&pool, 30), CO_PLACE_CONTROL + 1);
    assert_int_equal(co_pool_stop(&pool, 30), -1);
    assert_int_equal(die(CO_PLACE_CONTROL + 1, 0, 0, 40), CO_EXIT_RELOAD);
}

static void a_control_worker_in_the_way_of_the_newest_goes(void **state)
{
    (void)state;
    boot(1);
    for (co_ms now = 10; now <= 20; now += 10) {
        co_pool_reload(&pool, now);
        co_pool_zygote(&pool, now);
        co_pool_zygote_up(&pool, now);
    }
    /* The first still has the place of the third; the second was never made. */
    assert_int_equal(co_pool_control(&pool), CO_PLACE_CONTROL + 1);
    assert_int_equal(co_pool_stop(&pool, 20), CO_PLACE_CONTROL + 1);
    die(CO_PLACE_CONTROL + 1, 0, 0, 30);
    assert_int_equal(co_pool_fork(&pool, 30), CO_PLACE_CONTROL + 1);
    assert_int_equal(pool.workers[CO_PLACE_CONTROL + 1].generation, 3);
}

static void bookkeepers_come_when_jobs_want_them_even_while_the_circuit_is_open(void **state)
{
    (void)state;
    boot(1);
    for (uint32_t n = 0; n < 5; n++) {
        die(0, 0, 11, 100);
        fork_all(100);
    }
    assert_int_equal(pool.circuit.state, CO_CIRCUIT_OPEN);
    pool.bookkeepers_wanted = 2;
    assert_int_equal(co_pool_fork(&pool, 100), CO_PLACE_BOOKKEEPER);
    assert_int_equal(co_pool_fork(&pool, 100), CO_PLACE_BOOKKEEPER + 1);
    assert_int_equal(co_pool_fork(&pool, 100), -1);
    assert_int_equal(co_pool_bookkeeper(&pool), -1);
    co_pool_ready(&pool, CO_PLACE_BOOKKEEPER, 110);
    assert_int_equal(co_pool_bookkeeper(&pool), CO_PLACE_BOOKKEEPER);
    co_pool_busy(&pool, CO_PLACE_BOOKKEEPER, 1, 110);
    pool.bookkeepers_wanted = 9;
    assert_int_equal(fork_all(110), CO_BOOKKEEPERS_MAX - 2);
    co_pool_ended(&pool, CO_PLACE_BOOKKEEPER, CO_OUTCOME_FAILED, false, 120);
    assert_int_equal(co_pool_bookkeeper(&pool), -1); /* One shot. */
    assert_int_equal(pool.circuit.state, CO_CIRCUIT_OPEN);
    die(CO_PLACE_BOOKKEEPER, 0, 0, 130);
    assert_int_equal(co_pool_fork(&pool, 130), CO_PLACE_BOOKKEEPER);
    assert_int_equal(co_pool_alive(&pool), 0);
}

static void bookkeepers_that_do_not_boot_are_no_hot_loop(void **state)
{
    (void)state;
    boot(1);
    pool.bookkeepers_wanted = 1;
    for (uint32_t n = 0; n < CO_BOOKKEEPERS_MAX; n++) {
        int place = co_pool_fork(&pool, 100);
        assert_int_equal(place, CO_PLACE_BOOKKEEPER + n);
        co_pool_forked(&pool, (uint32_t)place, 100);
        die((uint32_t)place, 255, 0, 100);
    }
    assert_int_equal(co_pool_fork(&pool, 100), -1);
    assert_int_equal(co_pool_deadline(&pool, 100), 1100);
    pool.draining = true; /* A drain waits for them as well. */
    assert_int_equal(co_pool_deadline(&pool, 100), 1100);
    assert_int_equal(co_pool_fork(&pool, 1100), CO_PLACE_BOOKKEEPER);
    co_pool_ready(&pool, CO_PLACE_BOOKKEEPER, 1100);
    co_pool_busy(&pool, CO_PLACE_BOOKKEEPER, 1, 1100);
    die(CO_PLACE_BOOKKEEPER, 0, 11, 1100); /* One that died over its job: the next, at once. */
    assert_int_equal(co_pool_fork(&pool, 1100), CO_PLACE_BOOKKEEPER);
}

/* ---- spawn ---- */

static void workers_that_boot_by_themselves_need_no_zygote(void **state)
{
    (void)state;
    co_pool_init(&pool, 10, &(struct co_pool_limits){0}, true, 1, 0);
    assert_false(co_pool_zygote(&pool, 0));
    assert_int_equal(fork_all(0), 11);
    ready_all(0);
    co_pool_reload(&pool, 10);
    assert_false(co_pool_zygote(&pool, 10));
    assert_int_equal(pool.n_retiring, 10);
    settle(10);
    assert_int_equal(of_generation(2), 10);
    assert_int_equal(co_pool_alive(&pool), 10);
    assert_int_equal(pool.workers[co_pool_control(&pool)].generation, 2);
}

/* Nothing to boot first: what does not boot is found out one by one. */
static void a_broken_generation_of_spawned_workers_leaves_the_old_serving(void **state)
{
    (void)state;
    co_pool_init(&pool, 10, &(struct co_pool_limits){0}, true, 1, 0);
    fork_all(0);
    ready_all(0);
    co_pool_reload(&pool, 10);
    for (uint32_t n = 0; n < 5; n++) {
        fork_all(10);
        die(10, 255, 0, 10);
        assert_int_equal(stop_all(10), 0);
    }
    assert_true(opened);
    assert_int_equal(co_pool_fork(&pool, 10), -1);
    assert_int_equal(co_pool_able(&pool), 10);
}

/* ---- ends ---- */

static void a_draining_pool_stops_everyone_once(void **state)
{
    (void)state;
    boot(2);
    die(1, 0, 9, 0);
    assert_int_equal(co_pool_fork(&pool, 0), 1);
    co_pool_forked(&pool, 1, 100);
    co_pool_busy(&pool, 0, 1, 0);
    pool.draining = true;
    assert_int_equal(co_pool_stop(&pool, 1), 0);
    assert_int_equal(co_pool_stop(&pool, 1), -1); /* The other one boots. */
    co_pool_ready(&pool, 1, 2);
    assert_int_equal(co_pool_stop(&pool, 2), 1);
    assert_int_equal(co_pool_stop(&pool, 2), -1);
    done(0, 3);
    die(0, 0, 0, 3);
    die(CO_PLACE_CONTROL + 1, 0, 9, 3);
    assert_int_equal(co_pool_fork(&pool, 3), -1);
    assert_int_equal(die(1, 0, 0, 4), CO_EXIT_DRAIN);
}

static void a_boot_that_hangs_is_ended(void **state)
{
    static const uint32_t places[] = {0, CO_PLACE_CONTROL + 1, CO_PLACE_BOOKKEEPER};

    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        init(1);
        pool.bookkeepers_wanted = 1;
        co_pool_zygote_up(&pool, 0);
        fork_all(0);
        for (uint32_t w = 0; w < CO_PLACES_MAX; w++) {
            if (w != places[i] && pool.workers[w].present) {
                co_pool_ready(&pool, w, 0);
            }
        }
        assert_int_equal(co_pool_deadline(&pool, 1), CO_POOL_BOOT_LIMIT);
        assert_int_equal(co_pool_hung(&pool, CO_POOL_BOOT_LIMIT - 1), -1);
        assert_int_equal(co_pool_hung(&pool, CO_POOL_BOOT_LIMIT), (int)places[i]);
        assert_int_equal(co_pool_hung(&pool, CO_POOL_BOOT_LIMIT), -1);
        assert_int_equal(die(places[i], 0, 9, CO_POOL_BOOT_LIMIT), CO_EXIT_BOOT_FAILURE);
    }
}

static void an_end_that_hangs_is_ended_but_never_a_job(void **state)
{
    (void)state;
    boot(2);
    co_pool_busy(&pool, 0, 1, 0);
    co_pool_busy(&pool, 1, 2, 0);
    pool.draining = true;
    assert_int_equal(stop_all(10), 2);
    assert_int_equal(co_pool_hung(&pool, 1000000), -1);
    done(1, 1000000);
    assert_int_equal(co_pool_hung(&pool, 1000000), -1);
    assert_int_equal(co_pool_deadline(&pool, 1000000), 1000000 + CO_POOL_STOP_LIMIT);
    assert_int_equal(co_pool_hung(&pool, 1000000 + CO_POOL_STOP_LIMIT), 1);
    assert_int_equal(co_pool_hung(&pool, 1000000 + CO_POOL_STOP_LIMIT), -1);
    assert_int_equal(die(1, 0, 9, 1100000), CO_EXIT_DRAIN);
}

static void a_zygote_that_does_not_boot_is_tried_again_later(void **state)
{
    static const co_ms waits[] = {1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000};
    co_ms now = 1000;

    (void)state;
    init(1);
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        co_pool_zygote_down(&pool, false, false, now);
        assert_int_equal(co_pool_deadline(&pool, now), now + waits[i]);
        assert_false(co_pool_zygote(&pool, now + waits[i] - 1));
        now += waits[i];
        assert_true(co_pool_zygote(&pool, now));
    }
    co_pool_zygote_up(&pool, now);
    co_pool_zygote_down(&pool, true, true, now);
    assert_true(co_pool_zygote(&pool, now)); /* One that had booted is followed at once. */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_control_worker_comes_first_and_is_not_counted),
        cmocka_unit_test(the_one_idle_for_the_shortest_time_is_served),
        cmocka_unit_test(a_death_is_read_from_its_status),
        cmocka_unit_test(a_dead_worker_is_replaced_at_once),
        cmocka_unit_test(surplus_workers_go_idle_ones_first_and_busy_ones_after_their_job),
        cmocka_unit_test(a_surplus_worker_hides_no_empty_place),
        cmocka_unit_test(limits_lie_a_fifth_around_what_is_wanted),
        cmocka_unit_test(a_worker_that_has_done_its_jobs_works_until_its_successor_is_up),
        cmocka_unit_test(what_never_ran_is_no_job),
        cmocka_unit_test(memory_and_age_recycle_too),
        cmocka_unit_test(a_tenth_at_most_is_replaced_at_once),
        cmocka_unit_test(short_memory_makes_no_successor_before_its_time),
        cmocka_unit_test(a_pool_with_every_place_taken_makes_room_for_successors),
        cmocka_unit_test(a_reload_replaces_everyone_and_capacity_never_dips),
        cmocka_unit_test(a_generation_that_does_not_boot_leaves_the_old_serving),
        cmocka_unit_test(two_reloads_in_a_row_end_with_the_newest),
        cmocka_unit_test(a_reload_while_one_starts_is_another),
        cmocka_unit_test(workers_that_boot_when_a_new_generation_comes_are_replaced_too),
        cmocka_unit_test(a_draining_pool_reloads_no_more),
        cmocka_unit_test(nine_timeouts_in_a_row_never_open_it),
        cmocka_unit_test(as_many_crashes_open_it_as_the_pool_is_large),
        cmocka_unit_test(the_probe_closes_it_with_a_job_and_growth_resumes),
        cmocka_unit_test(boot_failures_open_it_and_never_touch_the_others),
        cmocka_unit_test(workers_that_never_were_do_not_open_it),
        cmocka_unit_test(a_fork_that_fails_is_tried_again_in_a_moment),
        cmocka_unit_test(a_probe_that_never_was_is_followed_at_once),
        cmocka_unit_test(a_control_worker_that_dies_at_each_start_is_no_hot_loop),
        cmocka_unit_test(an_old_control_worker_goes_when_the_new_one_is_up),
        cmocka_unit_test(a_control_worker_in_the_way_of_the_newest_goes),
        cmocka_unit_test(bookkeepers_come_when_jobs_want_them_even_while_the_circuit_is_open),
        cmocka_unit_test(bookkeepers_that_do_not_boot_are_no_hot_loop),
        cmocka_unit_test(workers_that_boot_by_themselves_need_no_zygote),
        cmocka_unit_test(a_broken_generation_of_spawned_workers_leaves_the_old_serving),
        cmocka_unit_test(a_draining_pool_stops_everyone_once),
        cmocka_unit_test(a_boot_that_hangs_is_ended),
        cmocka_unit_test(an_end_that_hangs_is_ended_but_never_a_job),
        cmocka_unit_test(a_zygote_that_does_not_boot_is_tried_again_later),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
