#include "sqlite_rig.h"

#include <signal.h>
#include <sys/resource.h>

struct fixture {
    struct rig rig;
    struct rig_agent agent;
};

static int setup_mode(void **state, const char *journal)
{
    struct fixture *f = calloc(1, sizeof *f);
    rig_init(&f->rig, journal);
    rig_agent_init(&f->rig, &f->agent, 0xa1);
    *state = f;
    return 0;
}

static int setup(void **state)
{
    return setup_mode(state, "delete");
}

static int setup_wal(void **state)
{
    return setup_mode(state, "wal");
}

static int setup_nothing(void **state)
{
    return setup_mode(state, NULL);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    rig_agent_done(&f->agent);
    if (f->rig.other != NULL) {
        assert_int_equal(rig_int(&f->rig,
                                 "SELECT count(*) FROM pragma_integrity_check"
                                 " WHERE integrity_check='ok'"),
                         1);
    }
    rig_done(&f->rig);
    free(f);
    return 0;
}

static int64_t column(struct rig *rig, const char *name, int64_t job)
{
    return rig_int(rig, "SELECT %s FROM jobs WHERE id=%lld", name, (long long)job);
}

static int64_t holds(struct rig *rig)
{
    return rig_int(rig, "SELECT count(*) FROM cohort_holds");
}

/* ---- claim ---- */

static void claims_come_in_id_order_and_leave_attempts(void **state)
{
    struct fixture *f = *state;
    int64_t first = rig_push(&f->rig, "default", 0);
    rig_push(&f->rig, "other", 0);
    int64_t delayed = rig_push(&f->rig, "default", 3600);
    int64_t second = rig_push(&f->rig, "default", 0);
    rig_sql(&f->rig, "UPDATE jobs SET attempts=2 WHERE id=%lld", (long long)first);

    assert_int_equal(rig_claim(&f->agent, 10), 2);
    struct co_turn *turn = f->agent.turn;
    assert_int_equal(turn->claims[0].job_id, first);
    assert_int_equal(turn->claims[1].job_id, second);
    assert_int_equal(turn->claims[0].attempts, 2);
    assert_int_equal(turn->claims[0].queue, 1);
    assert_string_equal((char *)turn->claims[0].payload, RIG_PAYLOAD);
    assert_int_equal(turn->claims[0].payload_size, strlen(RIG_PAYLOAD));
    assert_string_equal(turn->claims[0].facts.uuid, "3f8a3e0e-0000-4000-8000-00000000000a");
    assert_string_equal(turn->claims[0].facts.display_name, "App\\Jobs\\A");
    assert_int_equal(column(&f->rig, "attempts", first), 2);
    assert_int_equal(column(&f->rig, "reserved_at", first), turn->claims[0].reserved_at);
    assert_int_equal(column(&f->rig, "reserved_at", delayed), INT64_MIN);
    assert_int_equal(turn->next_due, column(&f->rig, "available_at", delayed));
    assert_int_equal(turn->total_held, 2);
    assert_int_equal(holds(&f->rig), 2);
    assert_false(turn->wants[0].ret_more);
    assert_int_equal(rig_claim(&f->agent, 10), 0);
}

static void claim_stops_at_count_and_goes_on(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 5; i++) {
        rig_push(&f->rig, "default", 0);
    }
    assert_int_equal(rig_claim(&f->agent, 2), 2);
    assert_true(f->agent.turn->wants[0].ret_more);
    assert_int_equal(rig_claim(&f->agent, 10), 3);
    assert_int_equal(f->agent.turn->claims[0].job_id, 3);
}

static void claim_respects_its_bytes_but_takes_one(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 5; i++) {
        rig_push(&f->rig, "default", 0);
    }
    rig_want(&f->agent, "default", 5);
    f->agent.turn->wants[0].bytes = 2 * strlen(RIG_PAYLOAD);
    assert_int_equal(rig_run(&f->agent)->n_claims, 2);
    assert_true(f->agent.turn->wants[0].ret_more);
    co_turn_reset(f->agent.turn);
    rig_want(&f->agent, "default", 5);
    f->agent.turn->wants[0].bytes = 1;
    assert_int_equal(rig_run(&f->agent)->n_claims, 1);
    assert_int_equal(rig_claim(&f->agent, 9), 2);
}

static void expired_rows_of_others_are_taken_over(void **state)
{
    struct fixture *f = *state;
    int64_t now = time(NULL);
    int64_t expired = rig_push(&f->rig, "default", 0);
    int64_t running = rig_push(&f->rig, "default", 0);
    rig_sql(&f->rig, "UPDATE jobs SET attempts=1, reserved_at=%lld WHERE id=%lld", now - 91,
            expired);
    rig_sql(&f->rig, "UPDATE jobs SET attempts=1, reserved_at=%lld WHERE id=%lld", now - 10,
            running);
    assert_int_equal(rig_claim(&f->agent, 10), 1);
    assert_int_equal(f->agent.turn->claims[0].job_id, expired);
    assert_int_equal(f->agent.turn->next_due, now - 10 + 90);
}

static void without_retry_after_reserved_rows_stay(void **state)
{
    struct fixture *f = *state;
    f->agent.config.tables[0].retry_after_s = 0;
    int64_t job = rig_push(&f->rig, "default", 0);
    rig_sql(&f->rig, "UPDATE jobs SET reserved_at=5 WHERE id=%lld", job);
    assert_int_equal(rig_claim(&f->agent, 10), 0);
    assert_int_equal(f->agent.turn->next_due, 0);
}

static void own_rows_are_never_claimed_again(void **state)
{
    struct fixture *f = *state;
    int64_t job = rig_push(&f->rig, "default", 0);
    assert_int_equal(rig_claim(&f->agent, 1), 1);
    int64_t reserved_at = f->agent.turn->claims[0].reserved_at;
    co_turn_reset(f->agent.turn);
    rig_start(&f->agent, job, reserved_at);
    assert_true(rig_run(&f->agent)->starts[0].ret_applied);
    /* It runs here; by hand it was made to look expired, then free. */
    rig_sql(&f->rig, "UPDATE jobs SET reserved_at=5");
    assert_int_equal(rig_claim(&f->agent, 5), 0);
    rig_sql(&f->rig, "UPDATE jobs SET reserved_at=NULL");
    assert_int_equal(rig_claim(&f->agent, 5), 0);
    co_turn_reset(f->agent.turn);
    rig_settle(&f->agent, job, reserved_at, CO_OUTCOME_DONE);
    assert_false(rig_run(&f->agent)->settles[0].ret_applied);
    assert_int_equal(holds(&f->rig), 0);
    assert_int_equal(rig_claim(&f->agent, 5), 1);
}

static void delayed_rows_become_due(void **state)
{
    struct fixture *f = *state;
    int64_t job = rig_push(&f->rig, "default", 3600);
    assert_int_equal(rig_claim(&f->agent, 5), 0);
    rig_sql(&f->rig, "UPDATE jobs SET available_at=%lld WHERE id=%lld", (long long)time(NULL), job);
    assert_int_equal(rig_claim(&f->agent, 5), 1);
    assert_true(f->agent.turn->foreign_change);
}

static void a_turn_with_nothing_to_write_takes_no_lock(void **state)
{
    struct fixture *f = *state;
    rig_claim(&f->agent, 1);
    rig_sql(&f->rig, "BEGIN IMMEDIATE");
    assert_int_equal(rig_claim(&f->agent, 5), 0);
    co_turn_reset(f->agent.turn);
    f->agent.turn->heartbeat = f->agent.turn->depths = f->agent.turn->recover = true;
    rig_run(&f->agent);
    rig_sql(&f->rig, "COMMIT");
}

static void payload_bytes_are_kept(void **state)
{
    struct fixture *f = *state;
    rig_sql(&f->rig,
            "INSERT INTO jobs(queue,payload,attempts,available_at,created_at) VALUES"
            "('default', CAST('{\"job\":\"x\"}' AS BLOB), 0, 0, 0)");
    rig_sql(&f->rig,
            "INSERT INTO jobs(queue,payload,attempts,available_at,created_at) VALUES"
            "('default', '{\"job\":\"x' || char(0x20ac) || '\"}', 0, 0, 0)");
    assert_int_equal(rig_claim(&f->agent, 5), 2);
    assert_string_equal((char *)f->agent.turn->claims[0].payload, "{\"job\":\"x\"}");
    assert_string_equal((char *)f->agent.turn->claims[1].payload, "{\"job\":\"x\xe2\x82\xac\"}");
    for (int i = 0; i < 2; i++) {
        int64_t at = f->agent.turn->claims[0].reserved_at;
        co_turn_reset(f->agent.turn);
        rig_settle(&f->agent, i + 1, at, CO_OUTCOME_RELEASED);
        assert_true(rig_run(&f->agent)->settles[0].ret_applied);
        f->agent.turn->claims[0].reserved_at = at;
    }
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs WHERE typeof(payload)='blob'"), 1);
}

/* ---- settle ---- */

enum { SAME = 1, NEW = 2, GONE = 3 };

static const struct {
    const char *name;
    enum co_outcome outcome;
    bool begun; /* The start was recorded in a turn before. */
    uint32_t delay_s;
    int row; /* What became of it. */
    int attempts;
    bool reserved;
} outcome_rows[] = {
    {"done", CO_OUTCOME_DONE, false, 0, GONE, 0, false},
    {"done, started", CO_OUTCOME_DONE, true, 0, GONE, 0, false},
    {"released", CO_OUTCOME_RELEASED, false, 10, NEW, 4, false},
    {"released, started", CO_OUTCOME_RELEASED, true, 10, NEW, 4, false},
    {"failed", CO_OUTCOME_FAILED, true, 0, GONE, 0, false},
    {"declined", CO_OUTCOME_DECLINED, false, 0, SAME, 3, false},
    {"declined, started", CO_OUTCOME_DECLINED, true, 0, SAME, 3, false},
    {"returned", CO_OUTCOME_RETURNED, false, 0, SAME, 3, false},
    {"left", CO_OUTCOME_LEFT, false, 0, SAME, 4, true},
    {"left, started", CO_OUTCOME_LEFT, true, 0, SAME, 4, true},
    {"crashed", CO_OUTCOME_CRASHED, false, 0, SAME, 4, false},
    {"crashed, started, later", CO_OUTCOME_CRASHED, true, 7, SAME, 4, false},
    {"lost", CO_OUTCOME_LOST, false, 0, SAME, 3, false},
    {"lost, started", CO_OUTCOME_LOST, true, 0, SAME, 3, false},
};

static void check_row(struct fixture *f, size_t i, int64_t job)
{
    int64_t now = time(NULL);
    int64_t left = rig_int(&f->rig, "SELECT count(*) FROM jobs");
    int64_t id = rig_int(&f->rig, "SELECT max(id) FROM jobs");

    assert_int_equal(left, outcome_rows[i].row == GONE ? 0 : 1);
    if (left == 0) {
        return;
    }
    assert_int_equal(id == job, outcome_rows[i].row == SAME);
    assert_int_equal(column(&f->rig, "attempts", id), outcome_rows[i].attempts);
    assert_int_equal(column(&f->rig, "reserved_at IS NOT NULL", id), outcome_rows[i].reserved);
    assert_int_equal(column(&f->rig, "payload", id), 0);
    int64_t due = column(&f->rig, "available_at", id);
    assert_true(due <= now + outcome_rows[i].delay_s);
    assert_true(outcome_rows[i].delay_s == 0 || due >= now + outcome_rows[i].delay_s - 5);
}

static void every_outcome_does_what_laravel_expects(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof outcome_rows / sizeof outcome_rows[0]; i++) {
        print_message("  %s\n", outcome_rows[i].name);
        int64_t job = rig_push(&f->rig, "default", 0);
        rig_sql(&f->rig, "UPDATE jobs SET attempts=3");
        assert_int_equal(rig_claim(&f->agent, 5), 1);
        int64_t at = f->agent.turn->claims[0].reserved_at;
        if (outcome_rows[i].begun) {
            co_turn_reset(f->agent.turn);
            rig_start(&f->agent, job, at);
            assert_true(rig_run(&f->agent)->starts[0].ret_applied);
            assert_int_equal(column(&f->rig, "attempts", job), 4);
        }
        co_turn_reset(f->agent.turn);
        rig_settle(&f->agent, job, at, outcome_rows[i].outcome)->delay_s = outcome_rows[i].delay_s;
        assert_true(rig_run(&f->agent)->settles[0].ret_applied);
        assert_int_equal(holds(&f->rig), 0);
        assert_int_equal(f->agent.turn->total_held, 0);
        check_row(f, i, job);
        rig_sql(&f->rig, "DELETE FROM jobs");
    }
}

static void an_outcome_without_begin_counts_no_attempt(void **state)
{
    struct fixture *f = *state;
    int64_t job = rig_push(&f->rig, "default", 0);
    rig_claim(&f->agent, 1);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    co_turn_reset(f->agent.turn);
    rig_settle(&f->agent, job, at, CO_OUTCOME_CRASHED)->began = false;
    rig_run(&f->agent);
    assert_int_equal(column(&f->rig, "attempts", job), 0);
}

static void attempts_count_beyond_255(void **state)
{
    struct fixture *f = *state;
    rig_push(&f->rig, "default", 0);
    rig_sql(&f->rig, "UPDATE jobs SET attempts=255");
    rig_claim(&f->agent, 1);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    co_turn_reset(f->agent.turn);
    rig_settle(&f->agent, 1, at, CO_OUTCOME_RELEASED);
    rig_run(&f->agent);
    assert_int_equal(rig_int(&f->rig, "SELECT attempts FROM jobs"), 256);
}

static void columns_of_the_application_survive_a_release(void **state)
{
    struct fixture *f = *state;
    rig_sql(&f->rig, "ALTER TABLE jobs ADD COLUMN \"te\"\"nant\" varchar");
    rig_push(&f->rig, "default", 0);
    rig_sql(&f->rig, "UPDATE jobs SET \"te\"\"nant\"='acme'");
    rig_claim(&f->agent, 1);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    co_turn_reset(f->agent.turn);
    rig_settle(&f->agent, 1, at, CO_OUTCOME_RELEASED);
    rig_run(&f->agent);
    assert_int_equal(rig_int(&f->rig, "SELECT id FROM jobs WHERE \"te\"\"nant\"='acme'"), 2);
}

static void the_third_loss_is_a_crash(void **state)
{
    struct fixture *f = *state;
    int64_t job = rig_push(&f->rig, "default", 0);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(rig_claim(&f->agent, 1), 1);
        int64_t at = f->agent.turn->claims[0].reserved_at;
        co_turn_reset(f->agent.turn);
        rig_settle(&f->agent, job, at, CO_OUTCOME_LOST);
        assert_true(rig_run(&f->agent)->settles[0].ret_applied);
        assert_int_equal(column(&f->rig, "attempts", job), i == 3 ? 1 : 0);
        assert_int_equal(rig_int(&f->rig, "SELECT losses FROM cohort_losses"), i);
    }
    rig_claim(&f->agent, 1);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    co_turn_reset(f->agent.turn);
    rig_settle(&f->agent, job, at, CO_OUTCOME_DONE);
    rig_run(&f->agent);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM cohort_losses"), 0);
}

static void a_row_a_stock_worker_took_is_left_to_it(void **state)
{
    struct fixture *f = *state;
    for (int outcome = CO_OUTCOME_DONE; outcome <= CO_OUTCOME_LOST; outcome++) {
        int64_t job = rig_push(&f->rig, "default", 0);
        rig_claim(&f->agent, 1);
        int64_t at = f->agent.turn->claims[0].reserved_at;
        co_turn_reset(f->agent.turn);
        rig_start(&f->agent, job, at);
        rig_run(&f->agent);
        rig_sql(&f->rig, "UPDATE jobs SET attempts=9, reserved_at=%lld", at + 100);
        co_turn_reset(f->agent.turn);
        rig_settle(&f->agent, job, at, (enum co_outcome)outcome)->record = true;
        assert_false(rig_run(&f->agent)->settles[0].ret_applied);
        assert_int_equal(column(&f->rig, "attempts", job), 9);
        assert_int_equal(column(&f->rig, "reserved_at", job), at + 100);
        assert_int_equal(holds(&f->rig), 0);
        assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM cohort_losses"), 0);
        assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM cohort_quarantine"), 0);
        rig_sql(&f->rig, "DELETE FROM jobs");
    }
}

static void without_our_hold_nothing_is_settled(void **state)
{
    struct fixture *f = *state;
    int64_t job = rig_push(&f->rig, "default", 0);
    rig_claim(&f->agent, 1);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    rig_sql(&f->rig, "UPDATE cohort_holds SET agent='00000000000000ff'");
    co_turn_reset(f->agent.turn);
    rig_settle(&f->agent, job, at, CO_OUTCOME_DONE);
    rig_settle(&f->agent, 77, at, CO_OUTCOME_DONE);
    rig_run(&f->agent);
    assert_false(f->agent.turn->settles[0].ret_applied);
    assert_false(f->agent.turn->settles[1].ret_applied);
    assert_int_equal(column(&f->rig, "reserved_at", job), at);
}

/* ---- holds ---- */

static void cleared_claims_are_reported_gone(void **state)
{
    struct fixture *f = *state;
    rig_push(&f->rig, "default", 0);
    int64_t begun = rig_push(&f->rig, "default", 0);
    rig_push(&f->rig, "default", 0);
    assert_int_equal(rig_claim(&f->agent, 5), 3);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    co_turn_reset(f->agent.turn);
    rig_start(&f->agent, begun, at);
    rig_run(&f->agent);
    rig_sql(&f->rig, "DELETE FROM jobs WHERE id<3");
    rig_sql(&f->rig, "UPDATE jobs SET reserved_at=%lld, attempts=1", at + 1);
    co_turn_reset(f->agent.turn);
    rig_run(&f->agent);
    assert_true(f->agent.turn->foreign_change);
    assert_int_equal(f->agent.turn->n_gone, 2);
    assert_int_equal(f->agent.turn->gone[0].job_id + f->agent.turn->gone[1].job_id, 4);
    assert_int_equal(f->agent.turn->total_held, 1);
    assert_int_equal(holds(&f->rig), 1);
    co_turn_reset(f->agent.turn);
    rig_run(&f->agent);
    assert_false(f->agent.turn->foreign_change);
    assert_int_equal(f->agent.turn->n_gone, 0);
}

/* reserved_at counts whole seconds, so beat until the clock has moved on. */
static void heartbeat_moves_every_hold(void **state)
{
    struct fixture *f = *state;
    rig_push(&f->rig, "default", 0);
    rig_push(&f->rig, "default", 0);
    rig_claim(&f->agent, 5);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    do {
        co_turn_reset(f->agent.turn);
        f->agent.turn->heartbeat = true;
        rig_run(&f->agent);
    } while (f->agent.turn->n_beats == 0);
    int64_t now = f->agent.turn->beats[0].reserved_at;
    assert_int_equal(f->agent.turn->n_beats, 2);
    assert_int_equal(f->agent.turn->beats[1].was, at);
    assert_true(now > at);
    assert_int_equal(rig_int(&f->rig, "SELECT min(reserved_at) FROM jobs"), now);
    assert_int_equal(rig_int(&f->rig, "SELECT min(reserved_at) FROM cohort_holds"), now);
    co_turn_reset(f->agent.turn);
    rig_settle(&f->agent, 1, at, CO_OUTCOME_DONE);
    rig_settle(&f->agent, 1, now, CO_OUTCOME_DONE);
    rig_run(&f->agent);
    assert_false(f->agent.turn->settles[0].ret_applied);
    assert_true(f->agent.turn->settles[1].ret_applied);
}

static void a_moved_fence_is_not_ours(void **state)
{
    struct fixture *f = *state;
    rig_push(&f->rig, "default", 0);
    rig_claim(&f->agent, 5);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    rig_sql(&f->rig, "UPDATE jobs SET reserved_at=reserved_at-50");
    rig_sql(&f->rig, "UPDATE cohort_holds SET reserved_at=reserved_at-50");
    co_turn_reset(f->agent.turn);
    f->agent.turn->heartbeat = true;
    rig_run(&f->agent);
    assert_int_equal(f->agent.turn->n_gone, 1);
    assert_int_equal(f->agent.turn->n_beats, 0);
    assert_int_equal(rig_int(&f->rig, "SELECT max(reserved_at) FROM jobs"), at - 50);
}

static void dropped_holds_are_made_again(void **state)
{
    struct fixture *f = *state;
    rig_push(&f->rig, "default", 0);
    rig_push(&f->rig, "default", 0);
    assert_int_equal(rig_claim(&f->agent, 5), 2);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    rig_sql(&f->rig, "DROP TABLE cohort_holds");
    rig_sql(&f->rig, "DELETE FROM jobs WHERE id=2");
    co_turn_reset(f->agent.turn);
    rig_settle(&f->agent, 1, at, CO_OUTCOME_DONE);
    rig_run(&f->agent);
    assert_true(f->agent.turn->settles[0].ret_applied);
    assert_int_equal(f->agent.turn->n_gone, 1);
    assert_int_equal(f->agent.turn->gone[0].job_id, 2);
    assert_int_equal(holds(&f->rig), 0);
}

static void migrate_fresh_leaves_nothing_of_ours(void **state)
{
    struct fixture *f = *state;
    rig_push(&f->rig, "default", 0);
    rig_push(&f->rig, "default", 0);
    assert_int_equal(rig_claim(&f->agent, 5), 2);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    rig_sql(&f->rig, "DROP TABLE jobs");
    rig_sql(&f->rig, "DROP TABLE cohort_holds");
    rig_sql(&f->rig, "DROP TABLE cohort_agents");
    rig_sql(&f->rig, "DROP TABLE cohort_losses");
    rig_sql(&f->rig, "DROP TABLE cohort_quarantine");
    co_turn_reset(f->agent.turn);
    rig_want(&f->agent, "default", 5);
    assert_int_equal(rig_try(&f->agent)->code, CO_ENOTFOUND);
    assert_non_null(strstr(f->agent.turn->err.msg, "queue:table"));
    rig_migrate(&f->rig);
    rig_push(&f->rig, "default", 0);
    co_turn_reset(f->agent.turn);
    rig_settle(&f->agent, 2, at, CO_OUTCOME_DONE);
    rig_want(&f->agent, "default", 5);
    rig_run(&f->agent);
    assert_false(f->agent.turn->settles[0].ret_applied);
    assert_int_equal(f->agent.turn->n_gone, 1);
    assert_int_equal(f->agent.turn->n_claims, 1);
    assert_int_equal(holds(&f->rig), 1);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM cohort_agents"), 1);
}

static void bye_gives_everything_back(void **state)
{
    struct fixture *f = *state;
    char lock[200];
    rig_push(&f->rig, "default", 0);
    rig_push(&f->rig, "default", 0);
    rig_claim(&f->agent, 5);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    snprintf(lock, sizeof lock, "%s-cohort-00000000000000a1", f->rig.path);
    assert_int_equal(access(lock, F_OK), 0);
    co_turn_reset(f->agent.turn);
    rig_start(&f->agent, 2, at);
    f->agent.turn->bye = true;
    rig_run(&f->agent);
    assert_int_equal(f->agent.turn->total_held, 0);
    assert_int_equal(holds(&f->rig), 0);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM cohort_agents"), 0);
    assert_int_equal(rig_int(&f->rig,
                             "SELECT count(*) FROM jobs WHERE reserved_at IS NULL AND"
                             " attempts=0"),
                     2);
    assert_int_equal(access(lock, F_OK), -1);
    assert_int_equal(rig_claim(&f->agent, 5), 2); /* And it can come back. */
}

/* ---- depths ---- */

static void depths_count_every_queue(void **state)
{
    struct fixture *f = *state;
    rig_push(&f->rig, "default", -20);
    rig_push(&f->rig, "default", -5);
    rig_push(&f->rig, "low", 60);
    rig_push(&f->rig, "default", 0);
    rig_sql(&f->rig, "UPDATE jobs SET reserved_at=%lld WHERE id=4", (long long)time(NULL));
    int64_t oldest = column(&f->rig, "available_at", 2);
    rig_want(&f->agent, "default", 1);
    f->agent.turn->depths = true;
    rig_run(&f->agent);
    struct co_turn *turn = f->agent.turn;
    assert_int_equal(turn->n_depths, 2);
    assert_string_equal(turn->depth[0].name, "default");
    assert_int_equal(turn->depth[0].ready, 1);
    assert_int_equal(turn->depth[0].reserved, 2);
    assert_int_equal(turn->depth[0].reserved_others, 1);
    assert_int_equal(turn->depth[0].oldest_ready, oldest);
    assert_int_equal(turn->depth[1].delayed, 1);
    assert_true(turn->depths);
}

static void depths_are_read_again_when_something_changed(void **state)
{
    struct fixture *f = *state;
    rig_push(&f->rig, "default", 0);
    rig_push(&f->rig, "default", 1); /* Due within a second or so. */
    f->agent.turn->depths = true;
    uint64_t ready = rig_run(&f->agent)->depth[0].ready;
    while (ready < 2) { /* Nobody writes; time alone makes it ready. */
        co_turn_reset(f->agent.turn);
        f->agent.turn->depths = true;
        ready = rig_run(&f->agent)->depth[0].ready;
    }
    rig_push(&f->rig, "default", 0);
    assert_int_equal(rig_run(&f->agent)->depth[0].ready, 3);
    rig_want(&f->agent, "default", 1);
    assert_int_equal(rig_run(&f->agent)->depth[0].ready, 2);
    assert_int_equal(f->agent.turn->depth[0].reserved, 1);
}

static void too_many_queues_are_cut(void **state)
{
    struct fixture *f = *state;
    rig_sql(&f->rig,
            "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<400)"
            " INSERT INTO jobs(queue,payload,attempts,available_at,created_at)"
            " SELECT 'q'||i,'{}',0,0,0 FROM n");
    f->agent.turn->depths = true;
    assert_int_equal(rig_run(&f->agent)->n_depths, CO_TURN_QUEUES_MAX);
}

/* ---- quarantine ---- */

static void bad_payloads_are_put_aside_and_the_next_comes(void **state)
{
    struct fixture *f = *state;
    struct co_quarantined list[4];
    struct co_err err;
    uint32_t n;
    rig_sql(&f->rig, "ALTER TABLE jobs ADD COLUMN tenant varchar");
    rig_push(&f->rig, "default", 0);
    rig_push(&f->rig, "default", 0);
    int64_t good = rig_push(&f->rig, "default", 0);
    rig_sql(&f->rig, "UPDATE jobs SET payload='{\"job\":', attempts=4, tenant='acme' WHERE id=1");
    rig_sql(&f->rig, "UPDATE jobs SET payload='[]' WHERE id=2");
    assert_int_equal(rig_claim(&f->agent, 1), 1);
    assert_int_equal(f->agent.turn->claims[0].job_id, good);
    assert_int_equal(f->agent.turn->n_quarantined, 2);
    assert_non_null(strstr(f->agent.turn->quarantined_why, "job 2 of queue default: "));
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs"), 1);
    assert_int_equal(rig_int(&f->rig, "SELECT attempts FROM cohort_quarantine WHERE job=1"), 4);

    assert_int_equal(co_sqlite_quarantine_list(f->rig.path, list, 4, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_string_equal(list[0].queue, "default");
    assert_int_equal(list[0].payload_size, 7);
    assert_true(list[0].reason[0] != '\0');
    assert_int_equal(co_sqlite_quarantine_retry(f->rig.path, list[0].id, &err), 0);
    assert_int_equal(rig_int(&f->rig,
                             "SELECT count(*) FROM jobs WHERE tenant='acme' AND attempts=0"
                             " AND reserved_at IS NULL AND payload='{\"job\":'"),
                     1);
    assert_int_equal(co_sqlite_quarantine_forget(f->rig.path, list[1].id, &err), 0);
    assert_int_equal(co_sqlite_quarantine_forget(f->rig.path, list[1].id, &err), CO_ENOTFOUND);
    assert_int_equal(co_sqlite_quarantine_retry(f->rig.path, list[0].id, &err), CO_ENOTFOUND);
    assert_int_equal(co_sqlite_quarantine_list(f->rig.path, list, 4, &n, &err), 0);
    assert_int_equal(n, 0);
}

static void a_file_without_quarantine_has_none(void **state)
{
    struct fixture *f = *state;
    struct co_quarantined list[1];
    struct co_err err;
    uint32_t n = 9;
    assert_int_equal(co_sqlite_quarantine_list(f->rig.path, list, 1, &n, &err), 0);
    assert_int_equal(n, 0);
    assert_int_equal(co_sqlite_quarantine_retry(f->rig.path, 1, &err), CO_ENOTFOUND);
    assert_int_equal(co_sqlite_quarantine_forget(f->rig.path, 1, &err), CO_ENOTFOUND);
    assert_true(co_sqlite_quarantine_list("/nonexistent/x", list, 1, &n, &err) < 0);
}

static void push_big(struct rig *rig, size_t size)
{
    sqlite3_stmt *stmt;
    char *payload = malloc(size + 1);
    memset(payload, 'x', size);
    memcpy(payload, "{\"job\":\"", 8);
    memcpy(payload + size - 2, "\"}", 2);
    sqlite3_prepare_v2(rig->other,
                       "INSERT INTO jobs(queue,payload,attempts,available_at,created_at)"
                       " VALUES('default',?1,0,0,0)",
                       -1, &stmt, NULL);
    sqlite3_bind_text(stmt, 1, payload, (int)size, free);
    assert_int_equal(sqlite3_step(stmt), SQLITE_DONE);
    sqlite3_finalize(stmt);
}

static void the_largest_payload_fits_and_one_byte_more_does_not(void **state)
{
    struct fixture *f = *state;
    push_big(&f->rig, 64u << 20);
    push_big(&f->rig, (64u << 20) + 1);
    assert_int_equal(rig_claim(&f->agent, 5), 1);
    assert_int_equal(f->agent.turn->claims[0].payload_size, 64u << 20);
    assert_int_equal(f->agent.turn->claims[0].payload[(64u << 20) - 1], '}');
    assert_int_equal(f->agent.turn->n_quarantined, 1);
    assert_int_equal(rig_int(&f->rig, "SELECT length(payload) FROM cohort_quarantine"),
                     (64u << 20) + 1);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    co_turn_reset(f->agent.turn);
    rig_settle(&f->agent, 1, at, CO_OUTCOME_RELEASED);
    assert_true(rig_run(&f->agent)->settles[0].ret_applied);
    assert_int_equal(rig_int(&f->rig, "SELECT length(payload) FROM jobs"), 64u << 20);
}

/* ---- failed jobs ---- */

static void a_plain_file_is_made_with_laravels_tables(void **state)
{
    struct fixture *f = *state;
    f->agent.config.tables[0].plain = true;
    strcpy(f->agent.config.tables[0].connection, "cohort");
    rig_run(&f->agent);
    rig_connect(&f->rig);
    rig_push(&f->rig, "default", 0);
    rig_push(&f->rig, "default", 0); /* The same uuid, as a retried job has. */
    assert_int_equal(rig_claim(&f->agent, 5), 2);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    co_turn_reset(f->agent.turn);
    for (int i = 0; i < 2; i++) {
        struct co_turn_settle *settle = rig_settle(&f->agent, i + 1, at, CO_OUTCOME_FAILED);
        settle->record = true;
        settle->text = strdup("RuntimeException: no");
    }
    rig_run(&f->agent);
    assert_true(f->agent.turn->settles[0].ret_applied && f->agent.turn->settles[1].ret_applied);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs"), 0);
    assert_int_equal(rig_int(&f->rig,
                             "SELECT count(DISTINCT uuid) FROM failed_jobs WHERE"
                             " connection='cohort' AND queue='default' AND payload=%Q AND"
                             " exception='RuntimeException: no' AND"
                             " abs(strftime('%%s','now')-strftime('%%s',failed_at))<60 AND"
                             " length(failed_at)=19",
                             RIG_PAYLOAD),
                     2);
    assert_int_equal(rig_int(&f->rig,
                             "SELECT count(*) FROM failed_jobs WHERE"
                             " uuid='3f8a3e0e-0000-4000-8000-00000000000a'"),
                     1);
    assert_int_equal(rig_int(&f->rig, "SELECT journal_mode='wal' FROM pragma_journal_mode"), 1);
}

static void a_failure_without_its_table_is_kept_aside(void **state)
{
    struct fixture *f = *state;
    rig_push(&f->rig, "default", 0);
    rig_claim(&f->agent, 1);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    co_turn_reset(f->agent.turn);
    rig_settle(&f->agent, 1, at, CO_OUTCOME_FAILED)->record = true;
    assert_true(rig_run(&f->agent)->settles[0].ret_applied);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM cohort_quarantine"), 1);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs"), 0);
}

/* ---- what can be wrong ---- */

static void a_locked_file_is_tried_again(void **state)
{
    struct fixture *f = *state;
    f->agent.config.busy_timeout_ms = 1;
    rig_push(&f->rig, "default", 0);
    rig_sql(&f->rig, "BEGIN EXCLUSIVE");
    rig_want(&f->agent, "default", 5);
    assert_int_equal(rig_try(&f->agent)->code, CO_EAGAIN);
    rig_sql(&f->rig, "COMMIT");
    assert_int_equal(rig_run(&f->agent)->n_claims, 1);
    int64_t at = f->agent.turn->claims[0].reserved_at;

    rig_sql(&f->rig, "BEGIN EXCLUSIVE");
    co_turn_reset(f->agent.turn);
    rig_settle(&f->agent, 1, at, CO_OUTCOME_DONE);
    assert_int_equal(rig_try(&f->agent)->code, CO_EAGAIN);
    assert_non_null(strstr(f->agent.turn->err.msg, "locked by another process"));
    assert_false(f->agent.turn->settles[0].ret_applied);
    assert_int_equal(f->agent.turn->total_held, 1);
    rig_sql(&f->rig, "COMMIT");
    assert_true(rig_run(&f->agent)->settles[0].ret_applied);
}

static void a_failing_turn_leaves_no_trace(void **state)
{
    struct fixture *f = *state;
    rig_push(&f->rig, "default", 0);
    rig_push(&f->rig, "default", 0);
    rig_claim(&f->agent, 1);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    rig_sql(&f->rig,
            "CREATE TRIGGER no BEFORE UPDATE ON jobs WHEN old.id=2 BEGIN"
            " SELECT raise(ABORT, 'not that one'); END");
    co_turn_reset(f->agent.turn);
    rig_settle(&f->agent, 1, at, CO_OUTCOME_DONE);
    rig_want(&f->agent, "default", 5);
    assert_int_equal(rig_try(&f->agent)->code, CO_ESOURCE);
    assert_non_null(strstr(f->agent.turn->err.msg, "not that one"));
    assert_false(f->agent.turn->settles[0].ret_applied);
    assert_int_equal(f->agent.turn->n_claims, 0);
    assert_int_equal(f->agent.turn->total_held, 1);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs"), 2);
    assert_int_equal(holds(&f->rig), 1);
    rig_sql(&f->rig, "DROP TRIGGER no");
    rig_run(&f->agent);
    assert_true(f->agent.turn->settles[0].ret_applied);
    assert_int_equal(f->agent.turn->n_claims, 1);
}

/* A limit on the size of files stands for the disk. */
static void a_full_disk_is_said_and_survived(void **state)
{
    struct fixture *f = *state;
    struct rlimit old, small = {.rlim_cur = 96 * 1024};
    for (int i = 0; i < 400; i++) {
        rig_push(&f->rig, "default", 0);
    }
    assert_int_equal(rig_claim(&f->agent, 300), 300);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    co_turn_reset(f->agent.turn);
    for (int i = 0; i < 300; i++) {
        rig_settle(&f->agent, i + 1, at, CO_OUTCOME_RELEASED);
    }
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    int code = rig_try(&f->agent)->code;
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(code, CO_ESOURCE);
    assert_non_null(strstr(f->agent.turn->err.msg, "free space"));
    assert_false(f->agent.turn->settles[0].ret_applied);
    rig_run(&f->agent);
    assert_true(f->agent.turn->settles[299].ret_applied);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs WHERE attempts=1"), 300);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs"), 400);
}

static void a_missing_file_is_named_and_awaited(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(rig_try(&f->agent)->code, CO_ENOTFOUND);
    assert_non_null(strstr(f->agent.turn->err.msg, f->rig.path));
    assert_int_equal(access(f->rig.path, F_OK), -1);
    rig_connect(&f->rig);
    rig_sql(&f->rig, "CREATE TABLE users(id integer)");
    assert_int_equal(rig_try(&f->agent)->code, CO_ENOTFOUND);
    assert_non_null(strstr(f->agent.turn->err.msg, "php artisan make:queue-table"));
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM sqlite_master"), 1);
    rig_sql(&f->rig, "CREATE TABLE jobs(id integer primary key, queue text)");
    assert_int_equal(rig_try(&f->agent)->code, CO_EUNSUPPORTED);
    rig_sql(&f->rig, "DROP TABLE jobs");
    rig_migrate(&f->rig);
    rig_run(&f->agent);
}

static void a_file_that_is_no_database_is_refused(void **state)
{
    struct fixture *f = *state;
    FILE *file = fopen(f->rig.path, "w");
    for (int i = 0; i < 1000; i++) {
        fputs("this is not a database\n", file);
    }
    fclose(file);
    assert_int_equal(rig_try(&f->agent)->code, CO_ESOURCE);
    assert_non_null(strstr(f->agent.turn->err.msg, "no SQLite database"));
    unlink(f->rig.path);
    mkdir(f->rig.path, 0700);
    assert_int_equal(rig_try(&f->agent)->code, CO_ESOURCE);
    assert_non_null(strstr(f->agent.turn->err.msg, "no regular file"));
}

static void a_damaged_file_is_said(void **state)
{
    struct fixture *f = *state;
    char noise[4096];
    for (int i = 0; i < 200; i++) {
        rig_push(&f->rig, "default", 0);
    }
    sqlite3_close(f->rig.other);
    f->rig.other = NULL;
    memset(noise, 0xa5, sizeof noise);
    FILE *file = fopen(f->rig.path, "r+");
    for (long page = 1; page < 20; page++) {
        fseek(file, page * 4096, SEEK_SET);
        fwrite(noise, 1, sizeof noise, file);
    }
    fclose(file);
    rig_want(&f->agent, "default", 5);
    assert_int_equal(rig_try(&f->agent)->code, CO_ESOURCE);
    assert_non_null(strstr(f->agent.turn->err.msg, "damaged"));
}

static void a_file_that_cannot_be_written_is_refused(void **state)
{
    struct fixture *f = *state;
    bool root = geteuid() == 0;
    chmod(f->rig.dir, 0755);
    chmod(f->rig.path, 0444);
    if (root) {
        assert_int_equal(seteuid(65534), 0);
    }
    int code = rig_try(&f->agent)->code;
    chmod(f->rig.path, 0666);
    if (root) {
        assert_int_equal(seteuid(0), 0);
        chmod(f->rig.path, 0666);
        assert_int_equal(seteuid(65534), 0);
    }
    assert_int_equal(code, CO_EIO);
    assert_non_null(strstr(f->agent.turn->err.msg, "writable"));
    chmod(f->rig.dir, 0555);
    assert_int_equal(rig_try(&f->agent)->code, CO_EIO); /* The lock file. */
    assert_non_null(strstr(f->agent.turn->err.msg, "lock file"));
    if (root) {
        assert_int_equal(seteuid(0), 0);
    }
    chmod(f->rig.dir, 0700);
    chmod(f->rig.path, 0600);
    rig_run(&f->agent);
}

static void a_replaced_file_is_opened_again(void **state)
{
    struct fixture *f = *state;
    rig_push(&f->rig, "default", 0);
    assert_int_equal(rig_claim(&f->agent, 5), 1);
    int64_t at = f->agent.turn->claims[0].reserved_at;
    sqlite3_close(f->rig.other);
    unlink(f->rig.path);
    rig_connect(&f->rig);
    rig_migrate(&f->rig);
    rig_push(&f->rig, "default", 0);
    co_turn_reset(f->agent.turn);
    rig_want(&f->agent, "default", 5);
    rig_run(&f->agent);
    assert_int_equal(f->agent.turn->n_gone, 1);
    assert_int_equal(f->agent.turn->gone[0].reserved_at, at);
    assert_int_equal(f->agent.turn->n_claims, 1);
    assert_int_equal(holds(&f->rig), 1);
}

static void the_journal_stays_as_the_application_set_it(void **state)
{
    struct fixture *f = *state;
    rig_push(&f->rig, "default", 0);
    rig_claim(&f->agent, 5);
    assert_int_equal(rig_int(&f->rig, "SELECT journal_mode='wal' FROM pragma_journal_mode"), 1);
}

int main(void)
{
#define ROW(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define ROW_WAL(name) cmocka_unit_test_setup_teardown(name, setup_wal, teardown)
#define ROW_NOTHING(name) cmocka_unit_test_setup_teardown(name, setup_nothing, teardown)
    const struct CMUnitTest tests[] = {
        ROW(claims_come_in_id_order_and_leave_attempts),
        ROW_WAL(claim_stops_at_count_and_goes_on),
        ROW(claim_respects_its_bytes_but_takes_one),
        ROW(expired_rows_of_others_are_taken_over),
        ROW(without_retry_after_reserved_rows_stay),
        ROW(own_rows_are_never_claimed_again),
        ROW_WAL(delayed_rows_become_due),
        ROW(a_turn_with_nothing_to_write_takes_no_lock),
        ROW_WAL(a_turn_with_nothing_to_write_takes_no_lock),
        ROW(payload_bytes_are_kept),
        ROW(every_outcome_does_what_laravel_expects),
        ROW_WAL(every_outcome_does_what_laravel_expects),
        ROW(an_outcome_without_begin_counts_no_attempt),
        ROW(attempts_count_beyond_255),
        ROW(columns_of_the_application_survive_a_release),
        ROW(the_third_loss_is_a_crash),
        ROW(a_row_a_stock_worker_took_is_left_to_it),
        ROW(without_our_hold_nothing_is_settled),
        ROW(cleared_claims_are_reported_gone),
        ROW(heartbeat_moves_every_hold),
        ROW(a_moved_fence_is_not_ours),
        ROW(dropped_holds_are_made_again),
        ROW(migrate_fresh_leaves_nothing_of_ours),
        ROW(bye_gives_everything_back),
        ROW(depths_count_every_queue),
        ROW(depths_are_read_again_when_something_changed),
        ROW(too_many_queues_are_cut),
        ROW(bad_payloads_are_put_aside_and_the_next_comes),
        ROW(a_file_without_quarantine_has_none),
        ROW_WAL(the_largest_payload_fits_and_one_byte_more_does_not),
        ROW_NOTHING(a_plain_file_is_made_with_laravels_tables),
        ROW(a_failure_without_its_table_is_kept_aside),
        ROW(a_locked_file_is_tried_again),
        ROW(a_failing_turn_leaves_no_trace),
        ROW(a_full_disk_is_said_and_survived),
        ROW_NOTHING(a_missing_file_is_named_and_awaited),
        ROW_NOTHING(a_file_that_is_no_database_is_refused),
        ROW(a_damaged_file_is_said),
        ROW(a_file_that_cannot_be_written_is_refused),
        ROW(a_replaced_file_is_opened_again),
        ROW_WAL(the_journal_stays_as_the_application_set_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
