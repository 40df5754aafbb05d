/* The core, in stories. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "agent/story.h"

static struct story story; /* Large, so not on the stack. */

static int set_up(void **state)
{
    (void)state;
    story_clear(&story);
    return 0;
}

/* One queue, so many workers, all idle, and a turn under way that asks for jobs. */
static void one_queue(uint32_t workers)
{
    story_init(&story, workers, 1);
    co_core_add_queue(&story.core, "q", 0, 0, 0, 0);
    story_boot(&story);
}

#define told(expected) assert_string_equal(story_told(&story), (expected))

static void a_job_goes_from_claim_to_settle(void **state)
{
    (void)state;
    story_init(&story, 1, 1);
    co_core_add_queue(&story.core, "q", 0, 0, 0, 0);
    story_tick(&story, 1000);
    told(
        "  zygote 0\n"
        "  turn 0: recover\n");
    story_back(&story, 0, "");
    told("");
    story_do(&story, (struct co_event){.type = CO_EVENT_ZYGOTE_UP});
    told(
        "  fork 0.control\n"
        "  fork 0.0\n");
    story_worker(&story, CO_EVENT_FORKED, 0, 0);
    story_worker(&story, CO_EVENT_READY, 0, 0);
    told("");
    story_do(&story, (struct co_event){.type = CO_EVENT_CHANGED});
    told("  turn 0: 1 of q,\n");
    story_back(&story, 0, "0:7");
    told("  give 0.0 ticket 1\n");
    story_end(&story, 0, 1, CO_OUTCOME_DONE);
    told("  turn 0: job 7 done, 1 of q,\n");
    story_back(&story, 0, "");
    told("  forget 1\n");
    story_tick(&story, 1001); /* The file's change may become visible only now. */
    told("  turn 0: 1 of q,\n");
}

static void a_newcomer_never_passes_a_waiter(void **state)
{
    (void)state;
    one_queue(1);
    story_tick(&story, 1250);
    told("  turn 0: 1 of q,\n");
    story_back(&story, 0, "0:1 0:2 0:3");
    told("  give 0.0 ticket 1\n");
    story_end(&story, 0, 1, CO_OUTCOME_DONE);
    told("  give 0.0 ticket 2\n");
    story_tick(&story, 1253); /* An outcome waits a little for company. */
    told("  turn 0: job 1 done,\n");
    story_back(&story, 0, "0:4");
    story_end(&story, 0, 2, CO_OUTCOME_DONE);
    told(
        "  forget 1\n"
        "  give 0.0 ticket 3\n"
        "  turn 0: job 2 done, 3 of q,\n"); /* Jobs of 3 ms: the next ones are held ahead. */
}

static void a_start_is_recorded_when_the_job_lasts(void **state)
{
    (void)state;
    one_queue(1);
    story_tick(&story, 1250);
    story_back(&story, 0, "0:1");
    story_told(&story);
    story_do(&story, (struct co_event){.type = CO_EVENT_BEGAN, .ticket = 1});
    assert_int_equal(co_core_deadline(&story.core, story.now), 1350);
    story_tick(&story, 1349);
    told("");
    story_tick(&story, 1350);
    told("  turn 0: job 1 began,\n");
    story_fail(&story, 0);
    told("");
    story_tick(&story, 1450);
    told("  turn 0: job 1 began,\n");
    story_back(&story, 0, "");
    story_end(&story, 0, 1, CO_OUTCOME_RELEASED);
    told("  turn 0: job 1 released, 1 of q,\n");
}

static void what_a_failed_turn_carried_goes_again(void **state)
{
    (void)state;
    one_queue(1);
    story_tick(&story, 1250);
    story_back(&story, 0, "0:1");
    story_end(&story, 0, 1, CO_OUTCOME_DONE);
    story_told(&story);
    story_fail(&story, 0);
    told("");
    assert_int_equal(co_core_deadline(&story.core, story.now), 1300);
    story_tick(&story, 1300);
    told("  turn 0: job 1 done, 1 of q,\n");
    story_fail(&story, 0);
    assert_int_equal(co_core_deadline(&story.core, story.now), 1400);
}

static void a_worker_cannot_speak_for_another(void **state)
{
    (void)state;
    one_queue(2);
    story_tick(&story, 1250);
    story_back(&story, 0, "0:1 0:2");
    told(
        "  turn 0: 2 of q,\n"
        "  give 0.1 ticket 1\n"
        "  give 0.0 ticket 2\n");
    story_end(&story, 0, 1, CO_OUTCOME_DONE);
    story_end(&story, 1, 9, CO_OUTCOME_DONE);
    told("");
    story_end(&story, 1, 1, CO_OUTCOME_DONE);
    told("  turn 0: job 1 done, 1 of q,\n");
    story_end(&story, 1, 1, CO_OUTCOME_FAILED); /* Said twice. */
    told("");
}

static void a_dead_workers_job_is_judged_by_its_slot(void **state)
{
    (void)state;
    one_queue(2);
    story_tick(&story, 1250);
    story_back(&story, 0, "0:1 0:2");
    story_told(&story);
    story_do(&story,
             (struct co_event){.type = CO_EVENT_EXITED, .worker = 1, .signal = 11, .ok = true});
    assert_int_equal(story.core.last_exit, CO_EXIT_CRASH);
    told(
        "  fork 0.1\n"
        "  turn 0: job 1 crashed,\n");
    story_do(&story, (struct co_event){.type = CO_EVENT_EXITED, .worker = 0, .signal = 9});
    assert_int_equal(story.core.last_exit, CO_EXIT_KILLED);
    told("  fork 0.0\n");
    story_back(&story, 0, "");
    told(
        "  forget 1\n"
        "  turn 0: job 2 unbegun returned,\n");
}

static void old_claims_are_looked_at_before_the_hand_over(void **state)
{
    (void)state;
    one_queue(1);
    story_tick(&story, 1250);
    story_back(&story, 0, "0:1 0:2 0:3");
    story_told(&story);
    story_tick(&story, 1350);
    story_end(&story, 0, 1, CO_OUTCOME_DONE);
    told("  give 0.0 ticket 2\n");
    story_tick(&story, 1353);
    told("  turn 0: job 1 done,\n");
    story_fail(&story, 0);
    story_tick(&story, 1403);
    told("  turn 0: job 1 done,\n");
    story_tick(&story, 1451);
    story_end(&story, 0, 2, CO_OUTCOME_DONE); /* The last good turn was 201 ms ago. */
    told("");
    story.turns[0].n_gone = 1;
    story.turns[0].gone[0].job_id = 3;
    story.turns[0].gone[0].reserved_at = 100;
    story_back(&story, 0, "");
    told(
        "  forget 1\n"
        "  forget 3\n"
        "  turn 0: job 2 done, 1 of q,\n");
}

static void a_silent_source_is_no_bar_to_another(void **state)
{
    (void)state;
    story_init(&story, 1, 2);
    co_core_add_queue(&story.core, "a", 0, 0, 0, 0);
    co_core_add_queue(&story.core, "b", 0, 1, 0, 0);
    story_boot(&story);
    story_tick(&story, 1250);
    told(
        "  turn 0: 1 of a,\n"
        "  turn 1: 1 of b,\n");
    story_back(&story, 0, "0:1 0:2");
    told("  give 0.0 ticket 1\n");
    story_back(&story, 1, "1:1");
    story_told(&story);
    story_end(&story, 0, 1, CO_OUTCOME_DONE);
    told("  give 0.0 ticket 2\n");
    story_tick(&story, 1253);
    told("  turn 0: job 1 done,\n");
    story_end(&story, 0, 2, CO_OUTCOME_RETURNED);
    story_told(&story);
    story_back(&story, 0, "0:3");
    story_told(&story);
    story_fail(&story, 0);
    story_end(&story, 0, 3, CO_OUTCOME_DONE);
    told("  turn 1: job 1 done, 6 of b,\n");
    story_back(&story, 1, "1:2");
    told(
        "  forget 3\n"
        "  give 0.0 ticket 5\n"); /* Ticket 4 waits for its source. */
}

static void a_strict_order_claims_the_lower_for_idle_workers_alone(void **state)
{
    (void)state;
    story_init(&story, 2, 1);
    co_core_add_queue(&story.core, "low", 0, 0, 0, 1);
    co_core_add_queue(&story.core, "high", 0, 0, 0, 0);
    story_boot(&story);
    story.core.pools[0].claim = 5;
    story_tick(&story, 1250);
    told("  turn 0: 5 of high, 2 of low,\n");
    story_back(&story, 0, "0:1 0:2 1:3");
    told(
        "  give 0.1 ticket 3\n"
        "  give 0.0 ticket 1\n");
}

static void equal_queues_take_turns(void **state)
{
    (void)state;
    story_init(&story, 1, 2);
    co_core_add_queue(&story.core, "a", 0, 0, 0, 0);
    co_core_add_queue(&story.core, "b", 0, 0, 0, 0);
    co_core_add_queue(&story.core, "c", 0, 1, 0, 0);
    story_boot(&story);
    story_tick(&story, 1250);
    story_back(&story, 0, "");
    story_back(&story, 1, "");
    const char *first = strdup(story_told(&story));
    story_tick(&story, 1500);
    story_back(&story, 0, "");
    story_back(&story, 1, "");
    const char *second = story_told(&story);
    if (strstr(first, "1 of a, 1 of b") != NULL) {
        assert_string_equal(second, "  turn 0: 1 of b, 1 of a,\n  turn 1: 1 of c,\n");
    } else {
        assert_string_equal(second, "  turn 0: 1 of a, 1 of b,\n  turn 1: 1 of c,\n");
    }
    free((void *)(uintptr_t)first);
}

static void every_one_of_many_queues_is_asked(void **state)
{
    (void)state;
    story_init(&story, 1, 1);
    for (uint32_t i = 0; i < CO_QUEUES_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "q%u", i);
        co_core_add_queue(&story.core, name, 0, 0, 0, 0);
    }
    story_boot(&story);
    story_tick(&story, story.now + 250);
    assert_int_equal(story.turns[0].n_wants, CO_QUEUES_MAX);
}

static void a_declined_queue_rests_and_is_in_nobodys_way(void **state)
{
    (void)state;
    story_init(&story, 1, 1);
    co_core_add_queue(&story.core, "a", 0, 0, 0, 0);
    co_core_add_queue(&story.core, "b", 0, 0, 0, 0);
    story_boot(&story);
    story_tick(&story, 1250);
    story_back(&story, 0, "0:1 0:2 0:3 1:9");
    story_told(&story);
    story_end(&story, 0, 1, CO_OUTCOME_DECLINED);
    told(
        "  give 0.0 ticket 4\n"
        "  turn 0: job 2 unbegun returned, job 3 unbegun returned, job 1 unbegun declined,\n");
    story_end(&story, 0, 4, CO_OUTCOME_DONE);
    story_back(&story, 0, "");
    told(
        "  forget 2\n"
        "  forget 3\n"
        "  forget 1\n"
        "  turn 0: job 9 done, 1 of b,\n");
    story_back(&story, 0, "");
    story_told(&story);
    story_tick(&story, 2249);
    assert_null(strstr(story_told(&story), " of a,"));
    story_back(&story, 0, "");
    story_told(&story);
    story_tick(&story, 2500);
    assert_non_null(strstr(story_told(&story), "1 of a,"));
}

static void a_heartbeat_moves_the_fence(void **state)
{
    (void)state;
    one_queue(1);
    story_tick(&story, 1250);
    story_back(&story, 0, "0:1");
    story_told(&story);
    story_tick(&story, 31000); /* A third of retry_after, at most 30 s. */
    assert_non_null(strstr(story_told(&story), "heartbeat"));
    story.turns[0].n_beats = 1;
    story.turns[0].beats[0].job_id = 1;
    story.turns[0].beats[0].was = 100;
    story.turns[0].beats[0].reserved_at = 130;
    story_back(&story, 0, "");
    story_end(&story, 0, 1, CO_OUTCOME_DONE);
    assert_int_equal(story.turns[0].settles[0].reserved_at, 130);
}

static void an_outcome_that_was_not_taken_is_fenced(void **state)
{
    (void)state;
    one_queue(1);
    story_tick(&story, 1250);
    story_back(&story, 0, "0:1");
    story_end(&story, 0, 1, CO_OUTCOME_DONE);
    story_told(&story);
    story_do(&story,
             (struct co_event){.type = CO_EVENT_TURN, .turn = &story.turns[0], .wall_ms = 1});
    assert_int_equal(story.core.fenced, 1);
    assert_int_equal(story.core.tickets.queues[0].counts.done, 0);
    assert_non_null(strstr(story_told(&story), "  forget 1, not taken\n"));
}

static void a_drain_gives_back_lets_finish_and_leaves(void **state)
{
    (void)state;
    one_queue(2);
    story_tick(&story, 1250);
    story_back(&story, 0, "0:1");
    story_told(&story);
    story_tick(&story, 1500);
    told("  turn 0: 1 of q,\n");
    story_do(&story, (struct co_event){.type = CO_EVENT_DRAIN});
    told(
        "  stop 0.0\n"
        "  stop 0.1\n");
    story_back(&story, 0, "0:2"); /* Claimed before the drain. */
    told("  turn 0: job 2 unbegun returned,\n");
    story_back(&story, 0, "");
    story_do(&story, (struct co_event){.type = CO_EVENT_EXITED, .worker = 0});
    told("  forget 2\n");
    story_end(&story, 1, 1, CO_OUTCOME_DONE);
    told("  turn 0: job 1 done,\n");
    story_do(&story, (struct co_event){.type = CO_EVENT_EXITED, .worker = 1});
    assert_int_equal(story.core.last_exit, CO_EXIT_DRAIN);
    told("");
    story_back(&story, 0, "");
    told(
        "  forget 1\n"
        "  turn 0: bye\n");
    story_back(&story, 0, "");
    told(
        "  end zygote 0\n"
        "  drained\n");
    assert_true(co_core_deadline(&story.core, story.now) == UINT64_MAX);
}

static void a_fast_drain_gives_running_jobs_back(void **state)
{
    (void)state;
    one_queue(1);
    story_tick(&story, 1250);
    story_back(&story, 0, "0:1");
    story_told(&story);
    story_do(&story, (struct co_event){.type = CO_EVENT_DRAIN});
    told("  stop 0.0\n");
    story_do(&story, (struct co_event){.type = CO_EVENT_DRAIN, .ok = true});
    told("  kill 0.0\n");
    story_do(&story,
             (struct co_event){.type = CO_EVENT_EXITED, .worker = 0, .signal = 9, .ok = true});
    told("  turn 0: job 1 lost, bye\n");
    assert_int_equal(story.core.last_exit, CO_EXIT_DRAIN);
}

static void a_drain_waits_for_a_first_turn_under_way(void **state)
{
    (void)state;
    story_init(&story, 1, 1);
    co_core_add_queue(&story.core, "q", 0, 0, 0, 0);
    story_tick(&story, 1000);
    story_told(&story);
    story_do(&story, (struct co_event){.type = CO_EVENT_DRAIN});
    told("");
    story_back(&story, 0, "0:1");
    told("  turn 0: job 1 unbegun returned, bye\n");
    story_back(&story, 0, "");
    told(
        "  forget 1\n"
        "  end zygote 0\n"
        "  drained\n");
}

static void a_drain_gives_up_on_a_source_that_is_silent(void **state)
{
    (void)state;
    one_queue(1);
    story_tick(&story, 1250);
    story_back(&story, 0, "0:1");
    story_told(&story);
    story_do(&story, (struct co_event){.type = CO_EVENT_DRAIN});
    story_end(&story, 0, 1, CO_OUTCOME_DONE);
    story_do(&story, (struct co_event){.type = CO_EVENT_EXITED, .worker = 0});
    while (story.now < 6250) {
        assert_null(strstr(story_told(&story), "drained"));
        story_fail(&story, 0);
        story_tick(&story, co_core_deadline(&story.core, story.now));
    }
    story_fail(&story, 0);
    assert_non_null(strstr(story_told(&story), "drained"));
}

/* More outcomes than a turn holds: bye is said with the last of them. */
static void bye_waits_for_the_last_outcome(void **state)
{
    (void)state;
    one_queue(1);
    story.core.pools[0].claim = 2000;
    story_tick(&story, 1250);
    for (uint32_t round = 0; round < 2; round++) {
        struct co_turn *turn = &story.turns[0];
        for (uint32_t i = 0; i < 900; i++) {
            turn->claims[turn->n_claims++] =
                (struct co_turn_claim){.job_id = 900 * round + i, .reserved_at = 100};
        }
        story_back(&story, 0, "");
        story_tick(&story, 1500 + 250 * round);
        story_told(&story);
    }
    story_do(&story, (struct co_event){.type = CO_EVENT_DRAIN});
    story_do(&story, (struct co_event){.type = CO_EVENT_EXITED, .worker = 0});
    story_told(&story);
    story_back(&story, 0, "");
    assert_int_equal(story.turns[0].n_settles, CO_TURN_SETTLES_MAX);
    assert_false(story.turns[0].bye);
    story_told(&story);
    story_back(&story, 0, "");
    assert_int_equal(story.turns[0].n_settles, 1800 - CO_TURN_SETTLES_MAX);
    assert_true(story.turns[0].bye);
}

/* Two sources at once may never bring more than there is room for. */
static void claims_leave_room_in_the_table(void **state)
{
    uint32_t asked = 0;

    (void)state;
    story_init(&story, 1, 2);
    co_core_add_queue(&story.core, "a", 0, 0, 0, 0);
    co_core_add_queue(&story.core, "b", 0, 1, 0, 0);
    story_boot(&story);
    story.core.pools[0].claim = 10000;
    story.core.tickets.n_used = CO_TICKETS_MAX - 1500;
    story_tick(&story, 1250);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(story.turns[i].n_wants, 1);
        asked += story.turns[i].wants[0].count;
    }
    assert_int_equal(asked, 1500);
}

static void a_lost_zygote_is_replaced_at_once(void **state)
{
    (void)state;
    one_queue(1);
    story_do(&story, (struct co_event){.type = CO_EVENT_ZYGOTE_DOWN, .ok = true, .current = true});
    told("  zygote 0\n");
    story_do(&story, (struct co_event){.type = CO_EVENT_ZYGOTE_DOWN});
    told("");
    assert_int_equal(co_core_deadline(&story.core, story.now), 1250);
    story_tick(&story, 1999);
    assert_null(strstr(story_told(&story), "  zygote 0\n"));
    story_tick(&story, 2000);
    assert_non_null(strstr(story_told(&story), "  zygote 0\n"));
}

/* ---- a worker's life ---- */

/* Like one_queue(), with the first job given to the only worker and begun. */
static void one_job(const struct co_payload_facts *facts)
{
    one_queue(1);
    story.core.pools[0].job = (struct co_job_options){.timeout = 2000, .tries = 1, .backoff = "3"};
    story_tick(&story, 1250);
    story.turns[0].claims[0] = (struct co_turn_claim){.job_id = 7, .reserved_at = 100};
    story.turns[0].claims[0].facts = *facts;
    story.turns[0].n_claims = 1;
    story_back(&story, 0, "");
    story_do(&story, (struct co_event){.type = CO_EVENT_BEGAN, .ticket = 1});
    story_tick(&story, 1350);
    story_back(&story, 0, "");
    story_told(&story);
}

static const struct co_payload_facts plain = {
    .timeout_s = -1, .max_tries = -1, .max_exceptions = -1};
static const struct co_payload_facts thrice = {
    .timeout_s = -1, .max_tries = 3, .max_exceptions = -1};

static void dies(uint32_t worker, int signal)
{
    story_do(&story, (struct co_event){.type = CO_EVENT_EXITED,
                                       .worker = worker,
                                       .signal = signal,
                                       .ok = true,
                                       .text = strdup("how"),
                                       .wall_ms = 1700000000000});
    free(story.core.orphan_text);
}

/* The bookkeeper is forked, ready, and has its job. */
static void bookkeeper_comes(uint32_t number)
{
    uint32_t place = CO_PLACE_BOOKKEEPER + number;

    story_worker(&story, CO_EVENT_FORKED, 0, place);
    story_worker(&story, CO_EVENT_READY, 0, place);
}

static void drop_reason(void)
{
    struct co_ticket *ticket = co_tickets_get(&story.core.tickets, 1);

    free(ticket->text);
    ticket->text = NULL;
}

/* What the agent does with each end: the bookkeeper's reason goes. */
static void keeps(uint32_t number, enum co_outcome outcome)
{
    drop_reason();
    story_end(&story, CO_PLACE_BOOKKEEPER + number, 1, outcome);
}

/* Ticks up to that moment; turns come back empty. */
static void until(co_ms now)
{
    while (story.now < now) {
        co_ms next = co_core_deadline(&story.core, story.now);
        story_tick(&story, next < now ? next : now);
        while (story.core.sources[0].in_flight) {
            story_back(&story, 0, "");
        }
    }
}

/* The agent has swapped the slot. */
static void time_over(bool running)
{
    until(3249);
    story_told(&story);
    until(3250);
    assert_non_null(strstr(story_told(&story), "  timeout 0.0 ticket 1\n"));
    story_do(&story, (struct co_event){.type = CO_EVENT_ENDING, .ticket = 1, .ok = running});
    story_told(&story);
}

static void a_handler_that_answers_in_time_spends_its_process(void **state)
{
    (void)state;
    one_job(&plain);
    time_over(true);
    story_do(
        &story,
        (struct co_event){
            .type = CO_EVENT_ENDED, .ticket = 1, .outcome = CO_OUTCOME_FAILED, .timed_out = true});
    assert_non_null(strstr(story_told(&story), "  kill 0.0\n"));
    dies(0, 9);
    assert_int_equal(story.core.last_exit, CO_EXIT_JOB_TIMEOUT);
    assert_int_equal(story.core.tickets.queues[0].counts.timeouts, 1);
    assert_int_equal(story.core.tickets.orphans[0], 0);
}

static void a_handler_that_does_not_answer_is_followed_by_the_kill(void **state)
{
    (void)state;
    one_job(&thrice);
    time_over(true);
    assert_int_equal(story.core.pools[0].pool.workers[1].state, CO_WORKER_BOOTING);
    until(8249);
    assert_null(strstr(story_told(&story), "kill"));
    until(8250);
    assert_non_null(strstr(story_told(&story), "  kill 0.0\n"));
    until(9250); /* It is not dead yet: again. */
    assert_non_null(strstr(story_told(&story), "  kill 0.0\n"));
    dies(0, 9);
    assert_int_equal(story.core.last_exit, CO_EXIT_JOB_TIMEOUT);
    told("  turn 0: job 7 released,\n"); /* With tries left: back at once, with its backoff. */
    assert_int_equal(story.turns[0].settles[0].delay_s, 3);
}

static void an_end_in_the_same_moment_stands_and_the_next_job_is_not_hit(void **state)
{
    (void)state;
    one_job(&plain);
    time_over(false);
    story_end(&story, 0, 1, CO_OUTCOME_DONE);
    assert_non_null(strstr(story_told(&story), "job 7 done"));
    story_back(&story, 0, "0:8");
    assert_non_null(strstr(story_told(&story), "  give 0.0 ticket 2\n"));
    until(5249);
    assert_null(strstr(story_told(&story), "kill"));
    assert_int_equal(story.core.pools[0].pool.workers[0].state, CO_WORKER_BUSY);
    assert_int_equal(story.core.tickets.queues[0].counts.timeouts, 0);
}

static void a_job_out_of_tries_is_failed_by_a_bookkeeper(void **state)
{
    (void)state;
    one_job(&plain);
    dies(0, 11);
    told(
        "  fork 0.bookkeeper0\n"
        "  fork 0.0\n");
    bookkeeper_comes(0);
    told("  bookkeep 0.bookkeeper0 ticket 1, final\n");
    keeps(0, CO_OUTCOME_FAILED);
    told(
        "  stop 0.bookkeeper0\n"
        "  turn 0: job 7 failed,\n");
    assert_int_equal(story.core.pools[0].pool.exits[CO_EXIT_CRASH], 1);
}

static void the_start_of_a_job_that_waits_for_its_bookkeeper_is_recorded(void **state)
{
    (void)state;
    one_queue(1);
    story.core.pools[0].job.tries = 1;
    story_tick(&story, 1250);
    story.turns[0].claims[0] =
        (struct co_turn_claim){.job_id = 7, .reserved_at = 100, .facts = plain};
    story.turns[0].n_claims = 1;
    story_back(&story, 0, "");
    dies(0, 11);
    story_told(&story);
    assert_int_equal(co_core_deadline(&story.core, story.now), 1350);
    story_tick(&story, 1350);
    told("  turn 0: job 7 began,\n");
    story_back(&story, 0, "");
    told("");
    assert_int_equal(story.core.sources[0].n_unrecorded, 0);
    drop_reason();
}

static void what_three_bookkeepers_could_not_end_is_put_aside(void **state)
{
    (void)state;
    one_job(&plain);
    dies(0, 11);
    for (uint32_t n = 0; n < 3; n++) {
        bookkeeper_comes(0);
        story_told(&story);
        dies(CO_PLACE_BOOKKEEPER, 11);
        if (n < 2) {
            told("  fork 0.bookkeeper0\n");
        }
    }
    told("  turn 0: job 7 quarantined,\n");
}

static void a_bookkeeper_has_a_time_of_its_own(void **state)
{
    (void)state;
    one_job(&plain);
    dies(0, 11);
    bookkeeper_comes(0);
    co_ms given = story.now;
    until(given + 29999);
    assert_null(strstr(story_told(&story), "kill"));
    until(given + 30000);
    assert_non_null(strstr(story_told(&story), "  kill 0.bookkeeper0\n"));
    dies(CO_PLACE_BOOKKEEPER, 9);
    assert_non_null(strstr(story_told(&story), "  fork 0.bookkeeper0\n"));
    drop_reason();
}

static void a_worker_over_its_memory_is_ended_and_its_job_says_why(void **state)
{
    (void)state;
    one_job(&plain);
    story_do(&story, (struct co_event){.type = CO_EVENT_MEMORY});
    told(
        "  kill 0.0\n"
        "  fork 0.1\n");
    dies(0, 9);
    assert_int_equal(story.core.last_exit, CO_EXIT_OOM);
    assert_int_equal(co_tickets_get(&story.core.tickets, 1)->cause, CO_CAUSE_OOM);
    drop_reason();
    story_do(&story, (struct co_event){.type = CO_EVENT_MEMORY, .worker = 5}); /* Nobody there. */
}

static void a_held_queue_gives_its_jobs_back_and_asks_for_none(void **state)
{
    (void)state;
    one_queue(1);
    story_tick(&story, 1250);
    story_back(&story, 0, "0:1 0:2 0:3");
    story_told(&story);
    story_tick(&story, 1500);
    story_told(&story);
    story_do(&story, (struct co_event){.type = CO_EVENT_HOLD, .ok = true});
    story_back(&story, 0, "0:4"); /* Claimed before. */
    told("  turn 0: job 2 unbegun returned, job 3 unbegun returned, job 4 unbegun returned,\n");
    story_end(&story, 0, 1, CO_OUTCOME_DONE);
    story_back(&story, 0, "");
    story_back(&story, 0, "");
    until(5000);
    assert_null(strstr(story_told(&story), "of q"));
    story_do(&story, (struct co_event){.type = CO_EVENT_HOLD});
    told("  turn 0: 1 of q,\n");
}

static void a_drain_waits_for_bookkeepers_but_not_for_ever(void **state)
{
    (void)state;
    one_job(&plain);
    story_do(&story, (struct co_event){.type = CO_EVENT_DRAIN});
    told("  stop 0.0\n");
    dies(0, 11);
    told("  fork 0.bookkeeper0\n");
    assert_int_equal(story.core.last_exit, CO_EXIT_CRASH); /* Whatever was planned for it. */
    until(60000);
    assert_null(strstr(story_told(&story), "bye"));
    until(61351);
    assert_non_null(strstr(story_told(&story), "job 7 crashed"));
}

/* Its zygote may go: what it holds is settled before anyone says bye. */
static void a_drain_never_leaves_a_bookkeeper_at_work(void **state)
{
    (void)state;
    one_job(&plain);
    story_do(&story, (struct co_event){.type = CO_EVENT_DRAIN});
    dies(0, 11);
    bookkeeper_comes(0);
    story_do(&story, (struct co_event){.type = CO_EVENT_ZYGOTE_DOWN, .ok = true, .current = true});
    until(2000);
    assert_null(strstr(story_told(&story), "bye"));
    keeps(0, CO_OUTCOME_FAILED);
    assert_non_null(strstr(story_told(&story), "job 7 failed, bye"));
}

static void a_fast_drain_ends_bookkeepers_too(void **state)
{
    (void)state;
    one_job(&plain);
    dies(0, 11);
    bookkeeper_comes(0);
    story_told(&story);
    story_do(&story, (struct co_event){.type = CO_EVENT_DRAIN, .ok = true});
    assert_non_null(strstr(story_told(&story), "  kill 0.bookkeeper0\n"));
    dies(CO_PLACE_BOOKKEEPER, 9);
    dies(0, 9); /* The successor that booted. */
    assert_non_null(strstr(story_told(&story), "job 7 crashed, bye"));
}

static void a_reload_goes_through_the_core(void **state)
{
    (void)state;
    one_queue(1);
    story_do(&story, (struct co_event){.type = CO_EVENT_RELOAD});
    told("  zygote 0\n");
    story_do(&story, (struct co_event){.type = CO_EVENT_ZYGOTE_UP});
    told(
        "  fork 0.control\n"
        "  fork 0.1\n");
    story_worker(&story, CO_EVENT_FORKED, 0, 1);
    story_worker(&story, CO_EVENT_READY, 0, 1);
    told("  stop 0.0\n");
}

int main(void)
{
#define STORY(name) cmocka_unit_test_setup(name, set_up)
    const struct CMUnitTest tests[] = {
        STORY(a_job_goes_from_claim_to_settle),
        STORY(a_newcomer_never_passes_a_waiter),
        STORY(a_start_is_recorded_when_the_job_lasts),
        STORY(what_a_failed_turn_carried_goes_again),
        STORY(a_worker_cannot_speak_for_another),
        STORY(a_dead_workers_job_is_judged_by_its_slot),
        STORY(old_claims_are_looked_at_before_the_hand_over),
        STORY(a_silent_source_is_no_bar_to_another),
        STORY(a_strict_order_claims_the_lower_for_idle_workers_alone),
        STORY(equal_queues_take_turns),
        STORY(every_one_of_many_queues_is_asked),
        STORY(a_declined_queue_rests_and_is_in_nobodys_way),
        STORY(a_heartbeat_moves_the_fence),
        STORY(an_outcome_that_was_not_taken_is_fenced),
        STORY(a_drain_gives_back_lets_finish_and_leaves),
        STORY(a_fast_drain_gives_running_jobs_back),
        STORY(a_drain_waits_for_a_first_turn_under_way),
        STORY(a_drain_gives_up_on_a_source_that_is_silent),
        STORY(bye_waits_for_the_last_outcome),
        STORY(claims_leave_room_in_the_table),
        STORY(a_lost_zygote_is_replaced_at_once),
        STORY(a_handler_that_answers_in_time_spends_its_process),
        STORY(a_handler_that_does_not_answer_is_followed_by_the_kill),
        STORY(an_end_in_the_same_moment_stands_and_the_next_job_is_not_hit),
        STORY(a_job_out_of_tries_is_failed_by_a_bookkeeper),
        STORY(the_start_of_a_job_that_waits_for_its_bookkeeper_is_recorded),
        STORY(what_three_bookkeepers_could_not_end_is_put_aside),
        STORY(a_bookkeeper_has_a_time_of_its_own),
        STORY(a_worker_over_its_memory_is_ended_and_its_job_says_why),
        STORY(a_held_queue_gives_its_jobs_back_and_asks_for_none),
        STORY(a_drain_waits_for_bookkeepers_but_not_for_ever),
        STORY(a_drain_never_leaves_a_bookkeeper_at_work),
        STORY(a_fast_drain_ends_bookkeepers_too),
        STORY(a_reload_goes_through_the_core),
    };
    int failed = cmocka_run_group_tests_name("core", tests, NULL, NULL);

    story_clear(&story);
    return failed;
}
