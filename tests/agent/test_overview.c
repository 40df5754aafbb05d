/* The view, filled from the core. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "agent/overview.h"
#include "agent/story.h"

#define WALL 1700000000000u

static struct story story; /* Large, so not on the stack. */
static struct co_view view;

static int set_up(void **state)
{
    (void)state;
    memset(&story, 0, sizeof story);
    memset(&view, 0, sizeof view);
    return 0;
}

static void it_shows_workers_and_their_jobs(void **state)
{
    (void)state;
    story_init(&story, 3, 1);
    co_core_add_queue(&story.core, "q", 0, 0, 0, 0);
    story_boot(&story);
    story.core.pools[0].claim = 5;
    story_tick(&story, 1250);
    story_back(&story, 0, "0:11 0:12 0:13 0:14");
    snprintf(co_tickets_get(&story.core.tickets, 1)->facts.display_name, 20, "App\\Jobs\\Mail");
    story.now = 1300;
    story_worker(&story, CO_EVENT_EXITED, 0, 0);
    co_overview_core(&view, &story.core, 1350, WALL);

    const struct co_view_pool *pool = &view.pools[0];
    assert_int_equal(view.n_pools, 1);
    assert_int_equal(pool->workers_wanted, 3);
    assert_int_equal(pool->by_state[CO_WORKER_BOOTING], 1); /* The successor of worker 0. */
    assert_int_equal(pool->by_state[CO_WORKER_BUSY], 2);
    assert_int_equal(pool->by_state[CO_WORKER_DEAD], 0);
    assert_int_equal(pool->exits[CO_EXIT_JOB_EXIT], 1);
    assert_true(pool->zygote_up);
    assert_false(pool->control_up);
    assert_int_equal(pool->tickets_queued, 1);
    assert_int_equal(pool->oldest_wait, 100);
    assert_int_equal(pool->n_workers, 3);
    assert_int_equal(pool->workers[2].index, 2);
    assert_int_equal(pool->workers[2].state, CO_WORKER_BUSY);
    assert_int_equal(pool->workers[2].since, 100);
    assert_string_equal(pool->workers[2].queue, "q");
    assert_string_equal(pool->workers[2].job, "App\\Jobs\\Mail");
    assert_string_equal(pool->workers[2].job_id, "11");
    assert_string_equal(pool->workers[0].job, "");
}

static void it_shows_queues_and_what_came_of_their_jobs(void **state)
{
    (void)state;
    story_init(&story, 2, 1);
    co_core_add_queue(&story.core, "q", 0, 0, 0, 0);
    story_boot(&story);
    story_tick(&story, 1250);
    story_back(&story, 0, "0:1 0:2 0:3");
    story_end(&story, 1, 1, CO_OUTCOME_DONE);
    story_back(&story, 0, "");
    story_end(&story, 0, 2, CO_OUTCOME_FAILED);
    struct co_turn *turn = &story.turns[0];
    turn->n_depths = 1;
    turn->depth[0] = (struct co_turn_depth){.name = "q",
                                            .ready = 7,
                                            .delayed = 2,
                                            .reserved = 4,
                                            .reserved_others = 3,
                                            .oldest_ready = WALL / 1000 - 30};
    turn->total_held = 2;
    story_back(&story, 0, "");
    co_overview_core(&view, &story.core, 1250, WALL);

    const struct co_view_queue *queue = &view.queues[0];
    assert_int_equal(view.n_queues, 1);
    assert_string_equal(queue->name, "q");
    assert_true(queue->served);
    assert_int_equal(queue->ready, 7);
    assert_int_equal(queue->delayed, 2);
    assert_int_equal(queue->foreign, 3);
    assert_true(queue->oldest_s == 30);
    assert_int_equal(queue->claimed, 0);
    assert_int_equal(queue->running, 1);
    assert_int_equal(queue->done, 1);
    assert_int_equal(queue->failed, 1);
    assert_true(view.sources[0].up);
    assert_int_equal(view.sources[0].held, 2);
    assert_int_equal(view.sources[0].last_good, 0);
}

static void a_queue_that_nobody_serves_is_shown_too(void **state)
{
    struct co_turn_depth depth = {.name = "forgotten", .ready = 5};

    (void)state;
    story_init(&story, 1, 1);
    co_core_add_queue(&story.core, "q", 0, 0, 0, 0);
    co_overview_core(&view, &story.core, 1000, WALL);
    co_overview_unserved(&view, &story.core, 0, &depth, "db", WALL);
    assert_int_equal(view.n_queues, 2);
    assert_string_equal(view.queues[1].name, "forgotten");
    assert_string_equal(view.queues[1].connection, "db");
    assert_false(view.queues[1].served);
    assert_int_equal(view.queues[1].ready, 5);
    assert_true(view.queues[1].oldest_s == 0);
    snprintf(depth.name, sizeof depth.name, "q");
    co_overview_unserved(&view, &story.core, 0, &depth, "db", WALL);
    assert_int_equal(view.n_queues, 2);
    view.n_queues = CO_VIEW_QUEUES_MAX;
    snprintf(depth.name, sizeof depth.name, "one more");
    co_overview_unserved(&view, &story.core, 0, &depth, "db", WALL);
    assert_int_equal(view.n_queues, CO_VIEW_QUEUES_MAX);
}

/* What stands in the way, worst first. */
static void readiness_says_what_is_missing(void **state)
{
    static const struct {
        bool draining, boot_failed, zygote_up, source, up;
        uint32_t idle, busy;
        bool startup;
        const char *why;
    } rows[] = {
        {false, false, true, true, true, 1, 0, true, ""},
        {false, false, true, true, true, 0, 1, true, ""},
        {true, false, true, true, true, 1, 0, true, "draining"},
        {false, true, false, false, false, 0, 0, false,
         "the application did not boot in pool jobs: no vendor/autoload.php"},
        {false, true, true, true, true, 1, 0, true, ""},
        {false, false, false, false, false, 0, 0, false, "no worker has booted yet in pool jobs"},
        {false, false, false, true, true, 1, 0, false, ""},
        {false, false, true, true, false, 1, 0, true, "no answer from /app/db.sqlite: locked"},
        {false, false, true, false, false, 1, 0, true,
         "the application has not said yet which queues it has"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_up(state);
        view.draining = rows[i].draining;
        view.n_pools = 1;
        view.n_sources = rows[i].source;
        snprintf(view.pools[0].name, sizeof view.pools[0].name, "jobs");
        snprintf(view.pools[0].boot_error, sizeof view.pools[0].boot_error, "%s",
                 rows[i].boot_failed ? "no vendor/autoload.php" : "");
        view.pools[0].zygote_up = rows[i].zygote_up;
        view.pools[0].by_state[CO_WORKER_IDLE] = rows[i].idle;
        view.pools[0].by_state[CO_WORKER_BUSY] = rows[i].busy;
        view.sources[0].up = rows[i].up;
        snprintf(view.sources[0].place, sizeof view.sources[0].place, "/app/db.sqlite");
        snprintf(view.sources[0].error, sizeof view.sources[0].error, "locked");
        co_overview_readiness(&view, 1);
        assert_string_equal(view.why, rows[i].why);
        assert_int_equal(view.ready, rows[i].why[0] == '\0');
        assert_int_equal(view.startup, rows[i].startup);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_shows_workers_and_their_jobs, set_up),
        cmocka_unit_test_setup(it_shows_queues_and_what_came_of_their_jobs, set_up),
        cmocka_unit_test_setup(a_queue_that_nobody_serves_is_shown_too, set_up),
        cmocka_unit_test_setup(readiness_says_what_is_missing, set_up),
    };
    return cmocka_run_group_tests_name("overview", tests, NULL, NULL);
}
