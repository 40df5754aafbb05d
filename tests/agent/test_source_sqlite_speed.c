/* Figures of the SQLite source, printed; the bounds are loose enough for a loaded machine. */

#include "sqlite_rig.h"

#define JOBS 30000
#define DELAYED 100000
#define A_TURN 128

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 20
#else
#define SLOWER 1
#endif

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void push_many(struct rig *rig, const char *queue, int count, int64_t available_at)
{
    rig_sql(rig,
            "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<%d)"
            " INSERT INTO jobs(queue,payload,attempts,available_at,created_at)"
            " SELECT %Q, substr(%Q,1,length(%Q)-1) || ',\"pad\":\"' || hex(zeroblob(150)) || '\"}',"
            " 0, %lld, 0 FROM n",
            count, queue, RIG_PAYLOAD, RIG_PAYLOAD, (long long)available_at);
}

/* Settle what the last turn claimed while claiming the next. */
static double drain(struct rig_agent *agent, int expected)
{
    int64_t ids[A_TURN];
    uint32_t n = 0;
    int done = 0;
    int64_t at = 0;
    double started = now_s();

    do {
        co_turn_reset(agent->turn);
        for (uint32_t i = 0; i < n; i++) {
            rig_settle(agent, ids[i], at, CO_OUTCOME_DONE);
        }
        rig_want(agent, "default", A_TURN);
        struct co_turn *turn = rig_run(agent);
        for (uint32_t i = 0; i < turn->n_settles; i++) {
            done += turn->settles[i].ret_applied;
        }
        n = turn->n_claims;
        for (uint32_t i = 0; i < n; i++) {
            ids[i] = turn->claims[i].job_id;
            at = turn->claims[i].reserved_at;
        }
    } while (n > 0);
    assert_int_equal(done, expected);
    return now_s() - started;
}

static void throughput(const char *journal, bool with_delayed)
{
    struct rig rig;
    struct rig_agent agent;

    rig_init(&rig, journal);
    rig_agent_init(&rig, &agent, 1);
    if (with_delayed) {
        push_many(&rig, "default", DELAYED, time(NULL) + 3600);
    }
    push_many(&rig, "default", JOBS, 0);
    double took = drain(&agent, JOBS);
    print_message("%s%s: %.0f jobs/s claimed and settled at %d a turn, no fsync\n", journal,
                  with_delayed ? " behind 100,000 delayed" : "", JOBS / took, A_TURN);
    assert_true(JOBS / took > 10000.0 / SLOWER);
    rig_agent_done(&agent);
    rig_done(&rig);
}

static void claim_and_settle(void **state)
{
    (void)state;
    throughput("wal", false);
    throughput("delete", false);
    throughput("wal", true);
}

static void depths_of_100000_rows(void **state)
{
    struct rig rig;
    struct rig_agent agent;
    uint32_t best = UINT32_MAX;

    (void)state;
    rig_init(&rig, "wal");
    rig_agent_init(&rig, &agent, 1);
    push_many(&rig, "default", DELAYED / 2, 0);
    push_many(&rig, "low", DELAYED / 2, time(NULL) + 3600);
    for (int i = 0; i < 10; i++) {
        rig_push(&rig, "third", 0); /* Without a change nothing is counted again. */
        co_turn_reset(agent.turn);
        agent.turn->depths = true;
        uint32_t took = rig_run(&agent)->took_us;
        best = took < best ? took : best;
    }
    print_message("depths of %d rows: %.1f ms\n", DELAYED, best / 1e3);
    assert_int_equal(agent.turn->depth[0].ready, DELAYED / 2);
    assert_true(best < 100000 * SLOWER);
    rig_agent_done(&agent);
    rig_done(&rig);
}

/* A producer commits between all turns: looking through the delayed rows must not come with each
 * of them. */
static void delayed_rows_do_not_slow_the_turns(void **state)
{
    struct rig rig;
    struct rig_agent agent;
    uint64_t total = 0;
    uint32_t worst = 0;
    int turns = 500;

    (void)state;
    rig_init(&rig, "wal");
    rig_agent_init(&rig, &agent, 1);
    push_many(&rig, "default", DELAYED, time(NULL) + 3600);
    rig_claim(&agent, 1);
    print_message("first look through %d delayed rows: %.1f ms\n", DELAYED,
                  agent.turn->took_us / 1e3);
    for (int i = 0; i < turns; i++) {
        rig_push(&rig, "default", 0);
        assert_int_equal(rig_claim(&agent, 1), 1);
        total += agent.turn->took_us;
        worst = agent.turn->took_us > worst ? agent.turn->took_us : worst;
        int64_t id = agent.turn->claims[0].job_id, at = agent.turn->claims[0].reserved_at;
        co_turn_reset(agent.turn);
        rig_settle(&agent, id, at, CO_OUTCOME_DONE);
        rig_run(&agent);
    }
    print_message("a claim beside them: %.3f ms on average, %.1f ms at worst\n",
                  (double)total / turns / 1e3, worst / 1e3);
    assert_true(total / (uint64_t)turns < 20000 * SLOWER);
    rig_agent_done(&agent);
    rig_done(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claim_and_settle),
        cmocka_unit_test(depths_of_100000_rows),
        cmocka_unit_test(delayed_rows_do_not_slow_the_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
