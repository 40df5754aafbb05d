/* Begins in the order of tickets: a pool under load, its workers modelled in virtual time. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "agent/story.h"

#define JOBS 4000
#define WORKERS_MAX 8
#define LONG_MS 10000
#define TURN_MS 2

static struct story story; /* Large, so not on the stack. */

static struct load {
    uint32_t workers;
    int64_t next_job[2];             /* By queue; what the source still has. */
    int64_t last_job[2];             /* Past the last. */
    co_ms busy_until[WORKERS_MAX];   /* 0: idle. */
    uint64_t has[WORKERS_MAX];       /* Its ticket. */
    co_ms turn_back;                 /* 0: none is under way. */
    uint64_t last_given[2];          /* Ticket, by queue. */
    uint32_t n_given, n_late, n_end; /* n_late: given after a younger ticket of its queue. */
    co_ms idle_since, idle_max;      /* A worker was idle beside a waiting ticket. */
    co_ms wait_max;
    co_ms (*service)(uint32_t queue, int64_t job);
} load;

static int set_up(void **state)
{
    (void)state;
    story_clear(&story);
    memset(&load, 0, sizeof load);
    return 0;
}

static void given(const struct co_action *action)
{
    const struct co_ticket *ticket = co_tickets_get(&story.core.tickets, action->ticket);
    co_ms waited = story.now - ticket->admitted_at;

    assert_int_equal(load.busy_until[action->worker], 0);
    load.n_late += ticket->id < load.last_given[ticket->queue];
    load.last_given[ticket->queue] = ticket->id;
    load.n_given += 1;
    load.wait_max = waited > load.wait_max ? waited : load.wait_max;
    load.has[action->worker] = ticket->id;
    load.busy_until[action->worker] = story.now + load.service(ticket->queue, ticket->job_id);
}

static void step(struct co_event event)
{
    uint32_t idle = 0;

    event.now = story.now;
    co_core_step(&story.core, &event, &story.update);
    for (uint32_t i = 0; i < story.update.n; i++) {
        const struct co_action *action = &story.update.actions[i];
        if (action->type == CO_ACTION_GIVE) {
            given(action);
        } else {
            story_obey(&story, action);
            load.turn_back = action->type == CO_ACTION_TURN ? story.now + TURN_MS : load.turn_back;
        }
    }
    story_told(&story);
    for (uint32_t w = 0; w < load.workers; w++) {
        idle += load.busy_until[w] == 0;
    }
    if (idle == 0 || story.core.tickets.waiting[0] == 0) {
        load.idle_since = 0;
    } else if (load.idle_since == 0) {
        load.idle_since = story.now;
    } else if (story.now - load.idle_since > load.idle_max) {
        load.idle_max = story.now - load.idle_since;
    }
}

/* What comes back unbegun is what was claimed last, so that the next claim finds it in its place.
 */
static void settle(struct co_turn *turn)
{
    uint32_t n_back[2] = {0, 0};
    int64_t first[2] = {INT64_MAX, INT64_MAX};

    for (uint32_t i = 0; i < turn->n_settles; i++) {
        struct co_turn_settle *back = &turn->settles[i];
        uint32_t queue = co_tickets_get(&story.core.tickets, back->ticket)->queue;
        back->ret_applied = true;
        if (back->outcome == CO_OUTCOME_RETURNED) {
            n_back[queue] += 1;
            first[queue] = back->job_id < first[queue] ? back->job_id : first[queue];
        }
    }
    for (uint32_t q = 0; q < 2; q++) {
        assert_true(n_back[q] == 0 || first[q] + n_back[q] == load.next_job[q]);
        load.next_job[q] -= n_back[q];
    }
}

static void turn_back(void)
{
    struct co_turn *turn = &story.turns[0];

    load.turn_back = 0;
    settle(turn);
    for (uint32_t i = 0; i < turn->n_wants; i++) {
        const struct co_turn_want *want = &turn->wants[i];
        for (uint32_t n = 0;
             n < want->count && load.next_job[want->queue] < load.last_job[want->queue]; n++) {
            turn->claims[turn->n_claims++] =
                (struct co_turn_claim){.table = want->table,
                                       .queue = want->queue,
                                       .job_id = load.next_job[want->queue]++,
                                       .reserved_at = 100,
                                       .facts = {.max_exceptions = -1}};
        }
    }
    step((struct co_event){
        .type = CO_EVENT_TURN, .turn = turn, .wall_ms = 1700000000000 + story.now});
}

static void end(uint32_t worker)
{
    load.busy_until[worker] = 0;
    load.n_end += 1;
    step((struct co_event){.type = CO_EVENT_ENDED,
                           .worker = worker,
                           .ticket = load.has[worker],
                           .outcome = CO_OUTCOME_DONE});
}

/* The earliest of what is to come, and that. */
static void next(void)
{
    co_ms at = co_core_deadline(&story.core, story.now);
    uint32_t worker = WORKERS_MAX;

    for (uint32_t w = 0; w < load.workers; w++) {
        if (load.busy_until[w] != 0 && load.busy_until[w] <= at) {
            at = load.busy_until[w];
            worker = w;
        }
    }
    if (load.turn_back != 0 && load.turn_back < at) {
        story.now = load.turn_back > story.now ? load.turn_back : story.now;
        turn_back();
        return;
    }
    story.now = at > story.now ? at : story.now;
    if (worker < WORKERS_MAX) {
        end(worker);
    } else {
        step((struct co_event){.type = CO_EVENT_TICK});
    }
}

static void run(uint32_t workers, uint32_t jobs, uint32_t others,
                co_ms (*service)(uint32_t queue, int64_t job))
{
    load.workers = workers;
    load.service = service;
    story_init(&story, workers, 1);
    co_core_add_queue(&story.core, "q", 0, 0, 0, 0);
    co_core_add_queue(&story.core, "other", 0, 0, 0, 0);
    story_boot(&story);
    load.turn_back = story.core.sources[0].in_flight ? story.now : 0;
    load.next_job[0] = load.next_job[1] = 1;
    load.last_job[0] = (int64_t)jobs + 1;
    load.last_job[1] = (int64_t)others + 1;
    step((struct co_event){.type = CO_EVENT_CHANGED});
    for (uint32_t i = 0; i < 100 * (jobs + others) && load.n_end < jobs + others; i++) {
        next();
    }
    assert_int_equal(load.n_end, jobs + others);
}

static co_ms mixed(uint32_t queue, int64_t job)
{
    (void)queue;
    return job % 97 == 0 ? 400 : job % 7 == 0 ? 30 : 1 + (co_ms)(job * 2654435761u % 5);
}

static co_ms equal(uint32_t queue, int64_t job)
{
    (void)queue;
    (void)job;
    return 5;
}

static co_ms one_long(uint32_t queue, int64_t job)
{
    return queue == 0 && job == 1 ? LONG_MS : 3;
}

/* Claims grow old behind the 400 ms of some: a worker then waits for the source to confirm them,
 * and for nothing else. */
static void begins_are_in_the_order_of_tickets_with_any_number_of_workers(void **state)
{
    static const uint32_t workers[] = {1, 2, 8};

    for (size_t i = 0; i < sizeof workers / sizeof workers[0]; i++) {
        set_up(state);
        run(workers[i], JOBS, JOBS / 4, mixed);
        assert_int_equal(load.n_given, JOBS + JOBS / 4);
        assert_int_equal(load.n_late, 0);
        assert_true(load.idle_max <= 2 * TURN_MS);
    }
}

/* Ten seconds are some three thousand others: all of them are over before the long one. */
static void a_long_job_delays_nothing_while_another_worker_is_idle(void **state)
{
    (void)state;
    run(2, 1000, 1000, one_long);
    assert_int_equal(load.n_late, 0);
    assert_true(load.idle_max <= 2 * TURN_MS);
    assert_true(load.wait_max < LONG_MS / 10);
}

/* Claims are made in lots; waits must not swing with them: none exceeds two laps of what may wait
 * at once. */
static void no_wait_exceeds_two_laps(void **state)
{
    const struct co_hist *wait = &story.core.pools[0].wait;

    (void)state;
    run(2, JOBS, 0, equal);
    assert_true(load.wait_max * 1000 * load.n_given <= 2 * wait->sum_us + 5 * 1000 * load.n_given);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(begins_are_in_the_order_of_tickets_with_any_number_of_workers,
                               set_up),
        cmocka_unit_test_setup(a_long_job_delays_nothing_while_another_worker_is_idle, set_up),
        cmocka_unit_test_setup(no_wait_exceeds_two_laps, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
