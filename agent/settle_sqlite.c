#include <assert.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/source_sqlite_impl.h"
#include "proto/control.h"

static const char *name_of(const struct co_db *db, uint32_t table)
{
    return db->tables[table].config->table;
}

/* ---- outcomes ---- */

static int drop_losses(struct co_db *db, const struct co_settle *s, struct co_err *err)
{
    if (!db->losses) {
        return 0;
    }
    int code = co_db_write(db, co_db_stmt(db, CO_STMT_LOSS_DROP, err), err, "it", s->job_id,
                           name_of(db, s->table));
    return code < 0 ? code : 0;
}

static int delete_job(struct co_db *db, const struct co_settle *s, struct co_err *err)
{
    return co_db_write(db, co_db_table_stmt(db, s->table, CO_STMT_DELETE, err), err, "ii",
                       s->job_id, s->reserved_at);
}

static int end_job(struct co_db *db, const struct co_settle *s, struct co_err *err)
{
    int changed = delete_job(db, s, err);
    if (changed <= 0) {
        return changed;
    }
    int code = drop_losses(db, s, err);
    return code < 0 ? code : changed;
}

/* Laravel's release: a new row at the tail, and the old one gone. */
static int release_job(struct co_db *db, const struct co_settle *s, int64_t add, struct co_err *err)
{
    int changed =
        co_db_write(db, co_db_table_stmt(db, s->table, CO_STMT_COPY, err), err, "iiiii", s->job_id,
                    s->reserved_at, add, db->now + (int64_t)s->delay_s, db->now);
    return changed <= 0 ? changed : end_job(db, s, err);
}

/* Back in its old place. */
static int put_back(struct co_db *db, const struct co_settle *s, int64_t add, struct co_err *err)
{
    sqlite3_stmt *stmt = co_db_table_stmt(db, s->table, CO_STMT_BACK, err);
    co_unix due = db->now + (int64_t)s->delay_s;
    int changed = s->delay_s > 0
                      ? co_db_write(db, stmt, err, "iiii", s->job_id, s->reserved_at, add, due)
                      : co_db_write(db, stmt, err, "iiin", s->job_id, s->reserved_at, add);
    if (changed > 0) {
        co_claim_wake(db, s->table, s->job_id, due);
    }
    return changed;
}

static int leave_job(struct co_db *db, const struct co_settle *s, int64_t add, struct co_err *err)
{
    uint32_t retry_after = db->tables[s->table].config->retry_after_s;
    int changed = co_db_write(db, co_db_table_stmt(db, s->table, CO_STMT_LEFT, err), err, "iii",
                              s->job_id, s->reserved_at, add);
    if (changed > 0 && retry_after > 0) {
        co_claim_wake(db, s->table, s->job_id, s->reserved_at + retry_after);
    }
    return changed;
}

static void make_uuid(char *buf, size_t size)
{
    uint8_t b[16];

    sqlite3_randomness(sizeof b, b);
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    snprintf(buf, size, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
}

static int read_uuid(struct co_db *db, const struct co_settle *s, char *uuid, size_t size,
                     struct co_err *err)
{
    char name[128];
    sqlite3_stmt *stmt = co_db_table_stmt(db, s->table, CO_STMT_PAYLOAD, err);
    int code = co_db_step(db, stmt, err, "i", s->job_id);

    uuid[0] = '\0';
    if (code <= 0) {
        return code;
    }
    const void *payload = sqlite3_column_text(stmt, 0);
    if (payload != NULL) {
        co_payload_check(payload, (size_t)sqlite3_column_bytes(stmt, 0), uuid, size, name,
                         sizeof name, NULL);
    }
    sqlite3_reset(stmt);
    if (uuid[0] == '\0') {
        make_uuid(uuid, size);
    }
    return 0;
}

static int insert_failed(struct co_db *db, const struct co_settle *s, const char *uuid,
                         struct co_err *err)
{
    const struct co_db_table *table = &db->tables[s->table];
    char at[32];
    struct tm tm;
    time_t now = (time_t)db->now;

    gmtime_r(&now, &tm);
    strftime(at, sizeof at, "%Y-%m-%d %H:%M:%S", &tm);
    sqlite3_stmt *stmt = co_db_table_stmt(db, s->table, CO_STMT_RECORD, err);
    return co_db_write(db, stmt, err, table->failed_uuid ? "iitttt" : "iittt", s->job_id,
                       s->reserved_at, table->config->connection, s->text != NULL ? s->text : "",
                       at, uuid);
}

/* A job that failed before keeps its uuid when it is retried: the second row gets one of its own
 * rather than none. */
static int record_failure(struct co_db *db, const struct co_settle *s, struct co_err *err)
{
    char uuid[40];
    int code = read_uuid(db, s, uuid, sizeof uuid, err);

    if (code < 0) {
        return code;
    }
    code = insert_failed(db, s, uuid, err);
    if (code < 0 && (sqlite3_errcode(db->sql) & 0xff) == SQLITE_CONSTRAINT) {
        make_uuid(uuid, sizeof uuid);
        code = insert_failed(db, s, uuid, err);
    }
    return code;
}

static int fail_job(struct co_db *db, const struct co_settle *s, struct co_err *err)
{
    char reason[CO_TURN_TEXT_SIZE];

    if (!s->record) {
        return end_job(db, s, err);
    }
    if (db->tables[s->table].failed_exists) {
        int changed = record_failure(db, s, err);
        return changed <= 0 ? changed : end_job(db, s, err);
    }
    /* Nowhere to record it: kept where an operator finds it. */
    snprintf(reason, sizeof reason, "failed, and there is no failed_jobs table: %.160s",
             s->text != NULL ? s->text : "");
    int code = co_claim_quarantine(db, s->table, s->job_id, reason, err);
    return code < 0 ? code : 1;
}

static int lose_job(struct co_db *db, const struct co_settle *s, bool begun, struct co_err *err)
{
    sqlite3_stmt *stmt = co_db_stmt(db, CO_STMT_LOSS_ADD, err);
    int code = co_db_step(db, stmt, err, "it", s->job_id, name_of(db, s->table));

    if (code < 0) {
        return code;
    }
    bool crashed = sqlite3_column_int64(stmt, 0) >= CO_DB_LOSSES_MAX;
    if ((code = co_db_next(db, stmt, err)) < 0) {
        return code;
    }
    db->losses = true;
    return put_back(db, s, crashed ? (begun ? 0 : 1) : (begun ? -1 : 0), err);
}

/* It took its worker down: counted beside the job, for a job without a limit of tries. */
static int crash_job(struct co_db *db, const struct co_settle *s, int64_t add, struct co_err *err)
{
    int code = co_db_write(db, co_db_stmt(db, CO_STMT_CRASH_ADD, err), err, "it", s->job_id,
                           name_of(db, s->table));

    db->losses = true;
    return code < 0 ? code : put_back(db, s, add, err);
}

static int put_aside(struct co_db *db, const struct co_settle *s, struct co_err *err)
{
    int code = co_claim_quarantine(db, s->table, s->job_id,
                                   s->text != NULL ? s->text : "it could not be ended", err);

    return code < 0 ? code : 1;
}

/* How many of the job's rows changed. begun: the start is in `attempts` already. */
static int apply_outcome(struct co_db *db, const struct co_settle *s, bool begun,
                         struct co_err *err)
{
    int64_t add = s->began && !begun ? 1 : 0;
    int64_t undo = begun ? -1 : 0;

    switch (s->outcome) {
    case CO_OUTCOME_DONE:
        return end_job(db, s, err);
    case CO_OUTCOME_RELEASED:
        return release_job(db, s, add, err);
    case CO_OUTCOME_FAILED:
        return fail_job(db, s, err);
    case CO_OUTCOME_DECLINED:
    case CO_OUTCOME_RETURNED:
        return s->felled ? crash_job(db, s, undo, err) : put_back(db, s, undo, err);
    case CO_OUTCOME_LEFT:
        return leave_job(db, s, add, err);
    case CO_OUTCOME_CRASHED:
        return crash_job(db, s, add, err);
    case CO_OUTCOME_QUARANTINED:
        return put_aside(db, s, err);
    case CO_OUTCOME_LOST:
        return lose_job(db, s, begun, err);
    }
    return co_err_set(err, CO_EMALFORMED, "settle job %lld: unknown outcome %d",
                      (long long)s->job_id, (int)s->outcome);
}

int co_settle_apply(struct co_db *db, const struct co_settle *s, bool *ret_applied,
                    struct co_err *err)
{
    int code;
    sqlite3_stmt *stmt = co_db_stmt(db, CO_STMT_HOLD_TAKE, err);

    *ret_applied = false;
    code = co_db_step(db, stmt, err, "itti", s->job_id, name_of(db, s->table), s->agent,
                      s->reserved_at);
    if (code <= 0) {
        return code;
    }
    bool begun = sqlite3_column_int(stmt, 0) != 0;
    if ((code = co_db_next(db, stmt, err)) < 0) {
        return code;
    }
    /* A loss, a record and a quarantine write elsewhere first: only when the job is ours. */
    if (s->outcome == CO_OUTCOME_LOST || s->outcome == CO_OUTCOME_FAILED ||
        s->outcome == CO_OUTCOME_CRASHED || s->outcome == CO_OUTCOME_QUARANTINED || s->felled) {
        code = co_hold_fence(db, s->table, s->job_id, s->reserved_at, err);
        if (code <= 0) {
            return code;
        }
    }
    int changed = apply_outcome(db, s, begun, err);
    *ret_applied = changed > 0;
    return changed < 0 ? changed : 0;
}

static void note_aside(struct co_turn *turn, const struct co_turn_settle *settle)
{
    if (settle->outcome == CO_OUTCOME_QUARANTINED && settle->ret_applied) {
        turn->n_quarantined++;
        snprintf(turn->quarantined_why, sizeof turn->quarantined_why,
                 "job %lld could not be ended, its bookkeepers died: %.140s",
                 (long long)settle->job_id, settle->text != NULL ? settle->text : "");
    }
}

int co_settle_all(struct co_db *db, struct co_turn *turn, struct co_err *err)
{
    for (uint32_t i = 0; i < turn->n_settles; i++) {
        struct co_turn_settle *asked = &turn->settles[i];
        const struct co_hold *hold = co_holds_get(&db->holds, asked->table, asked->job_id);
        struct co_settle settle = {.agent = db->agent,
                                   .table = asked->table,
                                   .job_id = asked->job_id,
                                   .reserved_at = asked->reserved_at,
                                   .outcome = asked->outcome,
                                   .delay_s = asked->delay_s,
                                   .began = asked->began,
                                   .record = asked->record,
                                   .felled = asked->felled,
                                   .text = asked->text};

        assert(asked->table < db->config.n_tables);
        int code = co_settle_apply(db, &settle, &asked->ret_applied, err);
        if (code < 0) {
            return code;
        }
        note_aside(turn, asked);
        if (hold != NULL && hold->reserved_at == asked->reserved_at) {
            co_holds_remove(&db->holds, asked->table, asked->job_id);
        }
        if (!asked->ret_applied) { /* Whoever has it may give it back, or it may be free. */
            co_claim_wake(db, asked->table, asked->job_id, db->now);
        }
    }
    return 0;
}

void co_settle_lost(const struct co_db *db, struct co_settle *settle)
{
    settle->outcome = CO_OUTCOME_LOST;
    settle->began = true;
    settle->text = "The agent that ran this job ended before the job did.";
    if (db->config.on_lost == CO_ON_LOST_FAIL) {
        /* Only the application can record a failure in its own words; a crash lets it. */
        bool plain = db->tables[settle->table].config->plain;
        settle->outcome = plain ? CO_OUTCOME_FAILED : CO_OUTCOME_CRASHED;
        settle->record = plain;
    }
}
