/* What a successor makes of a dead agent's holds and wires. */

#include "sqlite_rig.h"

#include <signal.h>
#include <sys/wait.h>

#include "worker/dispatch.h"

#define DEAD 0xd1u
#define HEIR 0xb2u

struct fixture {
    struct rig rig;
    struct rig_agent dead;
    struct rig_agent heir;
    int64_t at;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    rig_init(&f->rig, "wal");
    rig_agent_init(&f->rig, &f->dead, DEAD);
    rig_agent_init(&f->rig, &f->heir, HEIR);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    rig_agent_done(&f->dead);
    rig_agent_done(&f->heir);
    assert_int_equal(rig_int(&f->rig,
                             "SELECT count(*) FROM pragma_integrity_check"
                             " WHERE integrity_check='ok'"),
                     1);
    rig_done(&f->rig);
    free(f);
    return 0;
}

static void claim_jobs(struct fixture *f, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        rig_push(&f->rig, "default", 0);
    }
    assert_int_equal(rig_claim(&f->dead, count), count);
    f->at = f->dead.turn->claims[0].reserved_at;
}

static void begin_jobs(struct fixture *f, int64_t from, int64_t to)
{
    co_turn_reset(f->dead.turn);
    for (int64_t job = from; job <= to; job++) {
        rig_start(&f->dead, job, f->at);
    }
    rig_run(&f->dead);
}

static struct co_job_ref ref_of(const struct fixture *f, int64_t job)
{
    return (struct co_job_ref){
        .source = RIG_SOURCE, .job_id = job, .reserved_at = f->at, .attempts = 1};
}

static struct co_wire *make_wire(uint32_t worker)
{
    struct co_wire *wire = aligned_alloc(4096, (sizeof *wire + 4095) / 4096 * 4096);
    memset(wire, 0, sizeof *wire);
    co_wire_init(wire, DEAD, "jobs", worker, 1);
    return wire;
}

static void put_end(struct co_wire *wire, const struct co_job_ref *ref, uint64_t ticket,
                    enum co_outcome outcome, uint32_t flags)
{
    uint8_t body[CO_RECORD_MAX];
    struct co_end_msg end = {
        .ref = *ref, .outcome = outcome, .flags = flags, .text = "Boom: no", .text_size = 8};
    int size = co_end_encode(&end, body, sizeof body);
    assert_true(size > 0);
    struct co_record record = {
        .type = CO_RECORD_END, .ticket = ticket, .body = body, .size = (uint32_t)size};
    assert_int_equal(co_ring_push(&wire->to_agent, &record, NULL), 0);
}

/* Into RUN_DIR/jobs/w<index>; frees the wire. */
static void write_wire(struct fixture *f, struct co_wire *wire, size_t size)
{
    char path[1200];
    mkdir(f->dead.config.run_dir, 0700);
    snprintf(path, sizeof path, "%s/jobs", f->dead.config.run_dir);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/jobs/w%u", f->dead.config.run_dir, wire->slot.worker);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(wire, 1, size, file), size);
    fclose(file);
    free(wire);
}

static struct co_turn *recover(struct fixture *f)
{
    co_turn_reset(f->heir.turn);
    f->heir.turn->recover = true;
    return rig_run(&f->heir);
}

static void expect(struct co_turn *turn, uint32_t settled, uint32_t lost, uint32_t back)
{
    assert_int_equal(turn->n_recovered_settled, settled);
    assert_int_equal(turn->n_recovered_lost, lost);
    assert_int_equal(turn->n_recovered_back, back);
}

static void lock_path(const struct fixture *f, char *buf, size_t size)
{
    snprintf(buf, size, "%s-cohort-00000000000000d1", f->rig.path);
}

static void nothing_left(struct fixture *f)
{
    char path[256];
    lock_path(f, path, sizeof path);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM cohort_holds"), 0);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM cohort_agents WHERE agent LIKE '%%d1'"),
                     0);
    assert_int_equal(access(path, F_OK), -1);
}

static void a_living_agent_keeps_its_jobs(void **state)
{
    struct fixture *f = *state;
    claim_jobs(f, 3);
    expect(recover(f), 0, 0, 0);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM cohort_holds"), 3);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM cohort_agents"), 2);
}

static void without_wires_the_source_says_what_had_begun(void **state)
{
    struct fixture *f = *state;
    claim_jobs(f, 3);
    begin_jobs(f, 2, 2);
    assert_int_equal(rig_int(&f->rig, "SELECT attempts FROM jobs WHERE id=2"), 1);
    rig_agent_done(&f->dead);
    expect(recover(f), 0, 1, 2);
    assert_int_equal(rig_int(&f->rig,
                             "SELECT count(*) FROM jobs WHERE reserved_at IS NULL AND"
                             " attempts=0"),
                     3);
    assert_int_equal(rig_int(&f->rig, "SELECT losses FROM cohort_losses WHERE job=2"), 1);
    nothing_left(f);
    assert_int_equal(rig_claim(&f->heir, 9), 3);
    assert_int_equal(f->heir.turn->claims[0].job_id, 1); /* In their old places. */
}

static void outcomes_in_the_wires_are_settled(void **state)
{
    struct fixture *f = *state;
    claim_jobs(f, 6);
    begin_jobs(f, 1, 1);
    struct co_wire *wire = make_wire(0);
    struct co_job_ref job[7];
    for (int i = 1; i <= 6; i++) {
        job[i] = ref_of(f, i);
    }
    put_end(wire, &job[1], 11, CO_OUTCOME_DONE, 0);
    put_end(wire, &job[2], 12, CO_OUTCOME_RELEASED, 0);
    put_end(wire, &job[3], 13, CO_OUTCOME_DECLINED, 0);
    assert_true(co_slot_begin(&wire->slot, 14, &job[4], 5)); /* Running, no outcome. */
    write_wire(f, wire, sizeof *wire);
    wire = make_wire(1); /* Its END is out, its slot still says running. */
    assert_true(co_slot_begin(&wire->slot, 15, &job[5], 5));
    put_end(wire, &job[5], 15, CO_OUTCOME_DONE, 0);
    write_wire(f, wire, sizeof *wire);
    rig_agent_done(&f->dead);

    expect(recover(f), 4, 1, 1);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs WHERE id IN (1, 2, 5)"), 0);
    assert_int_equal(rig_int(&f->rig, "SELECT attempts FROM jobs WHERE id=7"), 1);
    assert_int_equal(rig_int(&f->rig, "SELECT sum(attempts) FROM jobs WHERE id IN (3, 4, 6)"), 0);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs WHERE reserved_at IS NULL"), 4);
    assert_int_equal(rig_int(&f->rig, "SELECT job FROM cohort_losses"), 4);
    nothing_left(f);
}

static void a_heartbeat_since_does_not_hide_an_outcome(void **state)
{
    struct fixture *f = *state;
    claim_jobs(f, 1);
    struct co_wire *wire = make_wire(0);
    struct co_job_ref job = ref_of(f, 1);
    put_end(wire, &job, 11, CO_OUTCOME_DONE, 0);
    write_wire(f, wire, sizeof *wire);
    do {
        co_turn_reset(f->dead.turn);
        f->dead.turn->heartbeat = true;
        rig_run(&f->dead);
    } while (f->dead.turn->n_beats == 0);
    rig_agent_done(&f->dead);
    expect(recover(f), 1, 0, 0);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs"), 0);
}

static void foreign_and_broken_wires_say_nothing(void **state)
{
    struct fixture *f = *state;
    claim_jobs(f, 4);
    struct co_job_ref job[5];
    for (int i = 1; i <= 4; i++) {
        job[i] = ref_of(f, i);
    }
    struct co_wire *wire = make_wire(0);
    put_end(wire, &job[1], 1, CO_OUTCOME_DONE, 0);
    wire->slot.agent_id = HEIR; /* Another agent's. */
    write_wire(f, wire, sizeof *wire);
    wire = make_wire(1);
    put_end(wire, &job[2], 1, CO_OUTCOME_DONE, 0);
    write_wire(f, wire, sizeof *wire - 1); /* Cut. */
    wire = make_wire(2);
    job[3].source++; /* Another source's. */
    put_end(wire, &job[3], 1, CO_OUTCOME_DONE, 0);
    job[4].job_id = 99; /* Nobody's. */
    put_end(wire, &job[4], 2, CO_OUTCOME_DONE, 0);
    atomic_store(&wire->to_agent.head, 12345678); /* And then nonsense. */
    write_wire(f, wire, sizeof *wire);
    rig_agent_done(&f->dead);
    expect(recover(f), 0, 0, 4);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs WHERE reserved_at IS NULL"), 4);
}

static void a_row_somebody_took_meanwhile_stays_his(void **state)
{
    struct fixture *f = *state;
    claim_jobs(f, 2);
    begin_jobs(f, 1, 1);
    struct co_wire *wire = make_wire(0);
    struct co_job_ref job = ref_of(f, 2);
    put_end(wire, &job, 11, CO_OUTCOME_DONE, 0);
    write_wire(f, wire, sizeof *wire);
    rig_agent_done(&f->dead);
    rig_sql(&f->rig, "UPDATE jobs SET reserved_at=%lld, attempts=7", f->at + 100);
    expect(recover(f), 0, 0, 0);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs WHERE attempts=7"), 2);
    nothing_left(f);
}

static void a_removed_lock_file_means_dead(void **state)
{
    struct fixture *f = *state;
    char path[256];
    claim_jobs(f, 1);
    rig_agent_done(&f->dead);
    lock_path(f, path, sizeof path);
    unlink(path);
    expect(recover(f), 0, 0, 1);
    nothing_left(f);
}

static void an_agent_known_by_its_holds_alone_is_found(void **state)
{
    struct fixture *f = *state;
    claim_jobs(f, 1);
    rig_agent_done(&f->dead);
    rig_sql(&f->rig, "DELETE FROM cohort_agents");
    expect(recover(f), 0, 0, 1);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM cohort_holds"), 0);
}

static void holds_of_a_table_served_elsewhere_are_kept(void **state)
{
    struct fixture *f = *state;
    char path[256];
    claim_jobs(f, 1);
    rig_agent_done(&f->dead);
    rig_sql(&f->rig, "INSERT INTO cohort_holds VALUES(5, 'other_jobs', '00000000000000d1', 1, 0)");
    expect(recover(f), 0, 0, 1);
    lock_path(f, path, sizeof path);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM cohort_holds"), 1);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM cohort_agents WHERE agent LIKE '%%d1'"),
                     1);
}

static void on_lost_fail_ends_a_plain_job_and_crashes_a_laravel_one(void **state)
{
    struct fixture *f = *state;
    f->heir.config.on_lost = CO_ON_LOST_FAIL;
    claim_jobs(f, 1);
    begin_jobs(f, 1, 1);
    rig_agent_done(&f->dead);
    expect(recover(f), 0, 1, 0);
    assert_int_equal(rig_int(&f->rig, "SELECT attempts FROM jobs WHERE reserved_at IS NULL"), 1);

    rig_agent_done(&f->heir);
    rig_agent_init(&f->rig, &f->dead, DEAD);
    assert_int_equal(rig_claim(&f->dead, 1), 1);
    f->at = f->dead.turn->claims[0].reserved_at;
    begin_jobs(f, 1, 1);
    rig_agent_done(&f->dead);
    rig_agent_init(&f->rig, &f->heir, 0xb3);
    f->heir.config.on_lost = CO_ON_LOST_FAIL;
    f->heir.config.tables[0].plain = true;
    recover(f);
    assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs"), 0);
    assert_int_equal(rig_int(&f->rig,
                             "SELECT count(*) FROM failed_jobs WHERE exception LIKE"
                             " 'The agent that ran this job%%'"),
                     1);
}

static void a_failure_in_a_wire_is_recorded(void **state)
{
    struct fixture *f = *state;
    f->dead.config.tables[0].plain = f->heir.config.tables[0].plain = true;
    claim_jobs(f, 1);
    struct co_wire *wire = make_wire(0);
    struct co_job_ref job = ref_of(f, 1);
    put_end(wire, &job, 11, CO_OUTCOME_FAILED, CO_END_RECORD);
    write_wire(f, wire, sizeof *wire);
    rig_agent_done(&f->dead);
    expect(recover(f), 1, 0, 0);
    assert_int_equal(
        rig_int(&f->rig, "SELECT count(*) FROM failed_jobs WHERE exception='Boom: no'"), 1);
}

static void two_heirs_recover_each_job_once(void **state)
{
    struct fixture *f = *state;
    struct rig_agent other;
    claim_jobs(f, 200);
    begin_jobs(f, 1, 100);
    rig_agent_done(&f->dead);
    rig_agent_init(&f->rig, &other, 0xb3);
    f->heir.turn->recover = other.turn->recover = true;
    rig_submit(&f->heir);
    rig_submit(&other);
    struct co_turn *a = rig_await(&f->heir), *b = rig_await(&other);
    assert_int_equal(a->code, 0);
    assert_int_equal(b->code, 0);
    assert_int_equal(a->n_recovered_lost + b->n_recovered_lost, 100);
    assert_int_equal(a->n_recovered_back + b->n_recovered_back, 100);
    assert_int_equal(rig_int(&f->rig, "SELECT max(losses) FROM cohort_losses"), 1);
    rig_agent_done(&other);
}

/* The agent to be killed: claims, starts and settles without end, a byte for every turn. */
static void serve_until_killed(struct fixture *f, int pipe)
{
    int64_t ids[16], at = 0;
    uint32_t n = 0;

    for (;;) {
        co_turn_reset(f->dead.turn);
        for (uint32_t i = 0; i < n; i++) {
            if (i % 4 == 0) {
                rig_start(&f->dead, ids[i], at);
            } else if (i % 4 < 3) {
                rig_settle(&f->dead, ids[i], at,
                           i % 4 == 1 ? CO_OUTCOME_DONE : CO_OUTCOME_RELEASED);
            }
        }
        rig_want(&f->dead, "default", 16);
        struct co_turn *turn = rig_try(&f->dead);
        if (turn->code != 0 || write(pipe, "", 1) != 1) {
            _exit(1);
        }
        n = turn->n_claims;
        for (uint32_t i = 0; i < n; i++) {
            ids[i] = turn->claims[i].job_id;
            at = turn->claims[i].reserved_at;
        }
    }
}

static void a_killed_agent_loses_no_job(void **state)
{
    struct fixture *f = *state;
    int ends[2];
    char byte;

    for (int round = 0; round < 8; round++) {
        rig_sql(&f->rig, "DELETE FROM jobs");
        rig_sql(&f->rig, "BEGIN");
        for (int i = 0; i < 1500; i++) {
            rig_push(&f->rig, "default", 0);
        }
        rig_sql(&f->rig, "COMMIT");
        /* An open connection must not be taken through fork. */
        rig_agent_done(&f->heir);
        rig_sql(&f->rig, "PRAGMA journal_mode=%s", round % 2 == 0 ? "wal" : "delete");
        sqlite3_close(f->rig.other);
        assert_int_equal(pipe(ends), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            serve_until_killed(f, ends[1]);
        }
        close(ends[1]);
        for (int turns = 0; turns < 3 + round * 2; turns++) {
            assert_int_equal(read(ends[0], &byte, 1), 1);
        }
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        close(ends[0]);
        rig_connect(&f->rig);
        rig_agent_init(&f->rig, &f->heir, HEIR + (uint64_t)round);
        recover(f);
        nothing_left(f);
        assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs WHERE reserved_at NOT NULL"),
                         0);
        assert_int_equal(rig_int(&f->rig, "SELECT count(*) FROM jobs WHERE attempts>1"), 0);
    }
}

int main(void)
{
#define ROW(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(a_living_agent_keeps_its_jobs),
        ROW(without_wires_the_source_says_what_had_begun),
        ROW(outcomes_in_the_wires_are_settled),
        ROW(a_heartbeat_since_does_not_hide_an_outcome),
        ROW(foreign_and_broken_wires_say_nothing),
        ROW(a_row_somebody_took_meanwhile_stays_his),
        ROW(a_removed_lock_file_means_dead),
        ROW(an_agent_known_by_its_holds_alone_is_found),
        ROW(holds_of_a_table_served_elsewhere_are_kept),
        ROW(on_lost_fail_ends_a_plain_job_and_crashes_a_laravel_one),
        ROW(a_failure_in_a_wire_is_recorded),
        ROW(two_heirs_recover_each_job_once),
        ROW(a_killed_agent_loses_no_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
