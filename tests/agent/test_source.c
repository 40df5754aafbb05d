/* When to have a turn with a source. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <string.h>

#include "agent/source.h"

#define WALL 1700000000000u

static struct co_source source;
static struct co_turn turn; /* Large, so not on the stack. */

/* One turn, there and back. */
static void have_turn(co_ms now, co_ms took, int code)
{
    memset(&turn, 0, sizeof turn);
    co_source_fill(&source, &turn, now);
    turn.code = code;
    co_source_done(&source, &turn, now + took, WALL);
}

/* A source of a lease of 90 s that has just had its first good turn at 1000. */
static int set_up(void **state)
{
    (void)state;
    co_source_init(&source, &(struct co_source_config){.retry_after_s = 90}, 1000);
    have_turn(1000, 0, CO_OK);
    return 0;
}

static void the_first_turn_recovers_and_counts(void **state)
{
    (void)state;
    co_source_init(&source, &(struct co_source_config){.retry_after_s = 90}, 1000);
    assert_false(co_source_fresh(&source, 1000));
    assert_true(co_source_due(&source, false, false, true, 1000));
    memset(&turn, 0, sizeof turn);
    co_source_fill(&source, &turn, 1000);
    assert_true(turn.recover && turn.depths && !turn.heartbeat);
    assert_false(co_source_due(&source, true, true, true, 9000)); /* One at a time. */
    assert_true(co_source_deadline(&source, true) == UINT64_MAX);
}

static void a_turn_is_due_for_a_reason(void **state)
{
    static const struct {
        const char *what;
        uint32_t ended, unrecorded;
        bool more, closing, idle_wants, stale;
        co_ms now;
        bool due;
    } rows[] = {
        {"nothing to do", 0, 0, false, false, false, false, 1001, false},
        {"an outcome", 1, 0, false, false, false, false, 1001, true},
        {"a start waits for company", 0, 1, false, false, false, false, 1099, false},
        {"a start waited long enough", 0, 1, false, false, false, false, 1100, true},
        {"idle workers, nothing known", 0, 0, false, false, true, false, 1001, false},
        {"idle workers, jobs left behind", 0, 0, true, false, true, false, 1001, true},
        {"jobs left behind, nobody idle", 0, 0, true, false, false, false, 1001, false},
        {"a claim that is still fresh", 0, 0, false, false, false, true, 1100, false},
        {"a claim that went stale", 0, 0, false, false, false, true, 1101, true},
        {"the poll", 0, 0, false, false, false, false, 1250, true},
        {"the end", 0, 0, false, true, false, false, 1001, true},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_up(state);
        source.n_ended = rows[i].ended;
        source.n_unrecorded = rows[i].unrecorded;
        source.unrecorded_since = 1000;
        source.more = rows[i].more;
        source.closing = rows[i].closing;
        if (co_source_due(&source, rows[i].idle_wants, rows[i].stale, true, rows[i].now) !=
            rows[i].due) {
            fail_msg("%s", rows[i].what);
        }
    }
}

/* The timers: what a turn is told to do, by when it goes out. */
static void timers_say_what_a_turn_does(void **state)
{
    static const struct {
        co_ms now;
        bool heartbeat, recover, depths;
    } rows[] = {
        {1001, false, false, false}, {1999, false, false, false}, {2000, false, false, true},
        {2999, false, false, true},  {3000, false, true, true},   {30999, false, true, true},
        {31000, true, true, true},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_up(state);
        memset(&turn, 0, sizeof turn);
        co_source_fill(&source, &turn, rows[i].now);
        assert_int_equal(turn.heartbeat, rows[i].heartbeat);
        assert_int_equal(turn.recover, rows[i].recover);
        assert_int_equal(turn.depths, rows[i].depths);
    }
}

static void a_failed_turn_leaves_its_timers_to_the_next(void **state)
{
    (void)state;
    memset(&turn, 0, sizeof turn);
    co_source_fill(&source, &turn, 31000);
    turn.code = CO_EAGAIN;
    co_source_done(&source, &turn, 33000, WALL);
    memset(&turn, 0, sizeof turn);
    co_source_fill(&source, &turn, 34000);
    assert_true(turn.heartbeat && turn.recover && turn.depths);
    co_source_done(&source, &turn, 34000, WALL);
    memset(&turn, 0, sizeof turn);
    co_source_fill(&source, &turn, 34001);
    assert_false(turn.heartbeat || turn.recover || turn.depths);
}

static void heartbeats_keep_well_within_the_lease(void **state)
{
    static const struct {
        uint32_t retry_after_s;
        co_ms every;
    } rows[] = {{3, 1000}, {60, 20000}, {90, 30000}, {3600, 30000}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        co_source_init(&source, &(struct co_source_config){.retry_after_s = rows[i].retry_after_s},
                       0);
        have_turn(0, 0, CO_OK);
        assert_int_equal(source.heartbeat_at, rows[i].every);
    }
    co_source_init(&source, &(struct co_source_config){.retry_after_s = 0}, 0);
    have_turn(0, 0, CO_OK);
    assert_true(source.heartbeat_at == UINT64_MAX);
}

static void failures_wait_longer_and_longer(void **state)
{
    static const co_ms waits[] = {50, 100, 200, 400, 800, 1600, 2000, 2000};
    co_ms now = 1000;

    (void)state;
    source.n_ended = 1;
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        have_turn(now, 0, CO_EAGAIN);
        assert_false(source.up);
        assert_false(co_source_fresh(&source, now));
        assert_false(co_source_due(&source, true, true, true, now + waits[i] - 1));
        assert_int_equal(co_source_deadline(&source, true), now + waits[i]);
        now += waits[i];
        assert_true(co_source_due(&source, false, false, true, now));
    }
    have_turn(now, 0, CO_OK);
    assert_true(source.up);
    have_turn(now, 0, CO_EAGAIN);
    assert_int_equal(source.retry_at, now + 50);
}

static void freshness_ends_after_100_ms(void **state)
{
    (void)state;
    assert_true(co_source_fresh(&source, 1100));
    assert_false(co_source_fresh(&source, 1101));
}

/* The event of a change comes before the change can be seen. */
static void a_change_is_looked_at_five_times(void **state)
{
    static const co_ms looks[] = {1010, 1011, 1012, 1015, 1030};

    (void)state;
    co_source_changed(&source, 1010);
    assert_false(co_source_due(&source, false, false, true, 1010)); /* Nobody would take a job. */
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        assert_int_equal(co_source_deadline(&source, true), looks[i]);
        assert_false(co_source_due(&source, true, false, true, looks[i] - 1));
        assert_true(co_source_due(&source, true, false, true, looks[i]));
        have_turn(looks[i], 0, CO_OK);
    }
    assert_false(co_source_due(&source, true, false, true, 1031));
    assert_int_equal(co_source_deadline(&source, true), 1280);
}

static void a_late_turn_makes_up_for_the_looks_it_missed(void **state)
{
    (void)state;
    co_source_changed(&source, 1010);
    have_turn(1010, 9, CO_OK);
    assert_true(co_source_due(&source, true, false, true, 1019));
    have_turn(1019, 0, CO_OK);
    assert_false(co_source_due(&source, true, false, true, 1020));
    assert_int_equal(co_source_deadline(&source, true), 1030);
    co_source_changed(&source, 1020);
    assert_true(co_source_due(&source, true, false, true, 1020));
}

static void a_delayed_job_is_fetched_when_it_is_due(void **state)
{
    (void)state;
    memset(&turn, 0, sizeof turn);
    co_source_fill(&source, &turn, 1000);
    turn.n_wants = 1;
    turn.next_due = WALL / 1000 + 1;
    co_source_done(&source, &turn, 1000, WALL + 900);
    assert_false(co_source_due(&source, true, false, true, 1099));
    assert_true(co_source_due(&source, true, false, true, 1100));
    assert_int_equal(co_source_deadline(&source, true), 1100);
    have_turn(1050, 0, CO_OK); /* A turn that asked for nothing knows nothing of it. */
    assert_true(co_source_due(&source, true, false, true, 1100));
}

/* Outcomes at an even pace, one every gap ms for a second; a turn takes 4 ms. */
static void jobs_are_held_ahead_by_pace_and_turn(void **state)
{
    static const struct {
        const char *what;
        double turn_ms, cycle_us;
        uint32_t workers, ahead;
    } rows[] = {
        {"nothing known yet", 4, 0, 8, 0},
        {"long jobs, one for each idle worker", 4, 1e6, 8, 0},
        {"jobs of 10 ms, a quick turn", 1, 10000, 8, 9},
        {"jobs of 1 ms, a quick turn", 1, 1000, 2, 21},
        {"jobs of 1 ms, a slow turn", 50, 1000, 2, 201},
        {"never more than a turn can claim", 50, 10, 64, 1000},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        source.turn_ms = rows[i].turn_ms;
        uint32_t ahead = co_source_prefetch(&source, rows[i].workers, rows[i].cycle_us);
        if (ahead != rows[i].ahead) {
            fail_msg("%s: %u ahead", rows[i].what, ahead);
        }
    }
}

static void outcomes_wait_for_company_while_workers_have_work(void **state)
{
    (void)state;
    memset(&turn, 0, sizeof turn);
    co_source_fill(&source, &turn, 1000);
    turn.depths = true;
    co_source_done(&source, &turn, 1000, WALL);
    source.more = false;
    source.n_ended = 1;
    source.ended_since = 1010;
    assert_true(co_source_due(&source, false, false, true, 1010)); /* Somebody starves. */
    assert_false(co_source_due(&source, false, false, false, 1012));
    assert_true(co_source_due(&source, false, false, false, 1013));
    assert_true(co_source_deadline(&source, false) <= 1013);
}

static void a_closed_source_has_no_more_turns(void **state)
{
    (void)state;
    source.closing = true;
    memset(&turn, 0, sizeof turn);
    co_source_fill(&source, &turn, 1010);
    turn.bye = true;
    co_source_done(&source, &turn, 1010, WALL);
    assert_true(source.closed);
    assert_false(co_source_due(&source, true, true, true, 9000));
    assert_true(co_source_deadline(&source, true) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_first_turn_recovers_and_counts, set_up),
        cmocka_unit_test_setup(a_turn_is_due_for_a_reason, set_up),
        cmocka_unit_test_setup(timers_say_what_a_turn_does, set_up),
        cmocka_unit_test_setup(a_failed_turn_leaves_its_timers_to_the_next, set_up),
        cmocka_unit_test_setup(heartbeats_keep_well_within_the_lease, set_up),
        cmocka_unit_test_setup(failures_wait_longer_and_longer, set_up),
        cmocka_unit_test_setup(freshness_ends_after_100_ms, set_up),
        cmocka_unit_test_setup(a_change_is_looked_at_five_times, set_up),
        cmocka_unit_test_setup(a_late_turn_makes_up_for_the_looks_it_missed, set_up),
        cmocka_unit_test_setup(a_delayed_job_is_fetched_when_it_is_due, set_up),
        cmocka_unit_test_setup(jobs_are_held_ahead_by_pace_and_turn, set_up),
        cmocka_unit_test_setup(outcomes_wait_for_company_while_workers_have_work, set_up),
        cmocka_unit_test_setup(a_closed_source_has_no_more_turns, set_up),
    };
    return cmocka_run_group_tests_name("source", tests, NULL, NULL);
}
