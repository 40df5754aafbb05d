/* Several writers on one file: two agents, a stock worker, a producer. */

#include "sqlite_rig.h"

#define JOBS 1000
#define A_TURN 64

/* One agent that claims and settles until nothing is left; `runs` counts per job id. */
struct serving {
    struct rig_agent agent;
    uint8_t runs[JOBS * 2 + 1];
    int64_t ids[A_TURN];
    int64_t at;
    uint32_t n;
    uint32_t not_applied;
};

static void ask(struct serving *s)
{
    co_turn_reset(s->agent.turn);
    for (uint32_t i = 0; i < s->n; i++) {
        rig_settle(&s->agent, s->ids[i], s->at, CO_OUTCOME_DONE);
    }
    rig_want(&s->agent, "default", A_TURN);
    rig_submit(&s->agent);
}

/* False when the agent found nothing to do. A locked file is asked again. */
static bool answer(struct serving *s)
{
    struct co_turn *turn = rig_await(&s->agent);

    if (turn->code == CO_EAGAIN) {
        return true;
    }
    if (turn->code != 0) {
        fail_msg("%s", turn->err.msg);
    }
    bool idle = s->n == 0 && turn->n_claims == 0;
    for (uint32_t i = 0; i < turn->n_settles; i++) {
        s->not_applied += !turn->settles[i].ret_applied;
    }
    s->n = turn->n_claims;
    for (uint32_t i = 0; i < turn->n_claims; i++) {
        s->ids[i] = turn->claims[i].job_id;
        s->at = turn->claims[i].reserved_at;
        assert_in_range(s->ids[i], 1, JOBS * 2);
        s->runs[s->ids[i]]++;
    }
    return !idle;
}

static void push_all(struct rig *rig)
{
    rig_sql(rig, "BEGIN IMMEDIATE");
    for (int i = 0; i < JOBS; i++) {
        rig_push(rig, "default", 0);
    }
    rig_sql(rig, "COMMIT");
}

static void each_job_once(struct rig *rig, const char *journal)
{
    struct serving *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    bool more = true;

    rig_init(rig, journal);
    push_all(rig);
    rig_agent_init(rig, &a->agent, 1);
    rig_agent_init(rig, &b->agent, 2);
    a->agent.config.busy_timeout_ms = b->agent.config.busy_timeout_ms = 20000;
    while (more) {
        ask(a);
        ask(b);
        more = answer(a);
        more |= answer(b);
    }
    for (int i = 1; i <= JOBS; i++) {
        assert_int_equal(a->runs[i] + b->runs[i], 1);
    }
    assert_int_equal(a->not_applied + b->not_applied, 0);
    assert_int_equal(rig_int(rig, "SELECT count(*) FROM jobs"), 0);
    assert_int_equal(rig_int(rig, "SELECT count(*) FROM cohort_holds"), 0);
    assert_int_equal(rig_int(rig,
                             "SELECT count(*) FROM pragma_integrity_check WHERE"
                             " integrity_check='ok'"),
                     1);
    rig_agent_done(&a->agent);
    rig_agent_done(&b->agent);
    rig_done(rig);
    free(a);
    free(b);
}

static void two_agents_run_each_job_once(void **state)
{
    struct rig rig;
    (void)state;
    each_job_once(&rig, "wal");
    each_job_once(&rig, "delete");
}

/* A stock worker: Laravel's statements, BEGIN DEFERRED, no busy handler that helps an upgrade. */
struct stock {
    const char *path;
    uint32_t runs;
    uint32_t locked;
    uint32_t left_behind; /* Done, but its DELETE failed: the row stays reserved. */
    _Atomic bool stop;
};

static int64_t stock_pop(sqlite3 *sql, struct stock *stock)
{
    sqlite3_stmt *stmt = NULL;
    int64_t id = 0;
    int64_t now = time(NULL);
    char text[256];

    sqlite3_exec(sql, "BEGIN DEFERRED", NULL, NULL, NULL);
    snprintf(text, sizeof text,
             "select * from jobs where queue='default' and ((reserved_at is null"
             " and available_at<=%lld) or reserved_at<=%lld) order by id asc"
             " limit 1",
             (long long)now, (long long)now - 90);
    if (sqlite3_prepare_v2(sql, text, -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW) {
        id = sqlite3_column_int64(stmt, 0);
    }
    sqlite3_finalize(stmt);
    snprintf(text, sizeof text, "update jobs set reserved_at=%lld, attempts=1 where id=%lld",
             (long long)now, (long long)id);
    if (id != 0 && (sqlite3_exec(sql, text, NULL, NULL, NULL) != SQLITE_OK ||
                    sqlite3_exec(sql, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)) {
        stock->locked++;
        id = 0;
    }
    if (!sqlite3_get_autocommit(sql)) {
        sqlite3_exec(sql, "ROLLBACK", NULL, NULL, NULL);
    }
    return id;
}

static void *stock_run(void *arg)
{
    struct stock *stock = arg;
    sqlite3 *sql;
    char text[128];

    sqlite3_open(stock->path, &sql);
    sqlite3_busy_timeout(sql, 5);
    while (!stock->stop) {
        int64_t id = stock_pop(sql, stock);
        if (id != 0) {
            stock->runs++;
            snprintf(text, sizeof text, "delete from jobs where id=%lld", (long long)id);
            stock->left_behind += sqlite3_exec(sql, text, NULL, NULL, NULL) != SQLITE_OK;
        }
    }
    sqlite3_close(sql);
    return NULL;
}

static void beside_stock(const char *journal)
{
    struct rig rig;
    struct serving *s = calloc(1, sizeof *s);
    struct stock stock = {0};
    pthread_t thread;
    uint32_t ours = 0;

    rig_init(&rig, journal);
    push_all(&rig);
    rig_agent_init(&rig, &s->agent, 1);
    s->agent.config.busy_timeout_ms = 20000;
    stock.path = rig.path;
    ask(s); /* Some are ours before it comes. */
    assert_true(answer(s));
    pthread_create(&thread, NULL, stock_run, &stock);
    do {
        ask(s);
    } while (answer(s));
    stock.stop = true;
    pthread_join(thread, NULL);
    for (int i = 1; i <= JOBS; i++) {
        assert_true(s->runs[i] <= 1);
        ours += s->runs[i];
    }
    print_message("%s: %u ours, %u the stock worker's (%u times locked, %u rows left behind)\n",
                  journal, ours, stock.runs, stock.locked, stock.left_behind);
    assert_int_equal(s->not_applied, 0);
    assert_int_equal(ours + stock.runs, JOBS);
    assert_int_equal(rig_int(&rig, "SELECT count(*) FROM jobs"), stock.left_behind);
    assert_int_equal(rig_int(&rig, "SELECT count(*) FROM cohort_holds"), 0);
    rig_agent_done(&s->agent);
    rig_done(&rig);
    free(s);
}

static void a_stock_worker_beside_us_harms_nothing(void **state)
{
    (void)state;
    beside_stock("wal");
    beside_stock("delete");
}

static void jobs_pushed_meanwhile_are_found(void **state)
{
    struct rig rig;
    struct serving *s = calloc(1, sizeof *s);

    (void)state;
    rig_init(&rig, "wal");
    rig_agent_init(&rig, &s->agent, 1);
    for (int i = 1; i <= 300; i++) {
        int64_t id = rig_push(&rig, "default", 0);
        ask(s);
        assert_true(answer(s));
        assert_int_equal(s->runs[id], 1);
    }
    rig_agent_done(&s->agent);
    rig_done(&rig);
    free(s);
}

static void one_id_serves_once(void **state)
{
    struct rig rig;
    struct rig_agent a, b;

    (void)state;
    rig_init(&rig, "wal");
    rig_agent_init(&rig, &a, 1);
    rig_agent_init(&rig, &b, 1);
    rig_run(&a);
    assert_int_equal(rig_try(&b)->code, CO_EBUSY);
    rig_agent_done(&a);
    rig_run(&b);
    rig_agent_done(&b);
    rig_done(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_agents_run_each_job_once),
        cmocka_unit_test(a_stock_worker_beside_us_harms_nothing),
        cmocka_unit_test(jobs_pushed_meanwhile_are_found),
        cmocka_unit_test(one_id_serves_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
