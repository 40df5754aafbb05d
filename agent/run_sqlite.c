#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/source_sqlite_impl.h"

/* What came back is nothing, as before the turn. */
static void undo_results(struct co_turn *turn)
{
    for (uint32_t i = 0; i < turn->n_claims; i++) {
        free(turn->claims[i].payload);
        turn->claims[i].payload = NULL;
    }
    for (uint32_t i = 0; i < turn->n_settles; i++) {
        turn->settles[i].ret_applied = false;
    }
    for (uint32_t i = 0; i < turn->n_starts; i++) {
        turn->starts[i].ret_applied = false;
    }
    for (uint32_t i = 0; i < turn->n_wants; i++) {
        turn->wants[i].ret_count = 0;
        turn->wants[i].ret_more = false;
    }
    turn->n_claims = turn->n_depths = turn->n_gone = turn->n_beats = 0;
    turn->foreign_change = false;
    turn->next_due = 0;
    turn->n_quarantined = 0;
    turn->quarantined_why[0] = '\0';
    turn->n_recovered_settled = turn->n_recovered_lost = turn->n_recovered_back = 0;
}

/* Did anybody else commit since the last good turn, and did they change the schema? */
static int look_around(struct co_db *db, struct co_turn *turn, bool *ret_schema, struct co_err *err)
{
    int64_t schema = db->schema_version;
    int64_t before = db->seen_version;
    int code = co_db_pragma(db, CO_STMT_DATA_VERSION, &db->seen_version, err);

    if (code < 0) {
        return code;
    }
    turn->foreign_change = db->seen_version != db->data_version || db->reopened;
    if (turn->foreign_change) {
        code = co_db_pragma(db, CO_STMT_SCHEMA_VERSION, &schema, err);
        if (db->seen_version != before) {
            co_claim_stale(db);
            db->depths_good = false;
        }
    }
    *ret_schema = schema != db->schema_version;
    return code;
}

/* Reads only: is there anything to write? The write lock is everybody's, so it is not taken to find
 * out that there is nothing to do, and passing many delayed rows happens without it. */
static int look(struct co_db *db, struct co_turn *turn, bool *write, struct co_err *err)
{
    bool schema, more = false;
    int code = look_around(db, turn, &schema, err);

    if (code < 0 || schema) {
        *write = true;
        return code;
    }
    if (!*write && turn->foreign_change) {
        code = co_hold_check(db, write, err);
    }
    if (code == 0) {
        code = co_claim_look(db, turn, &more, err);
        *write |= more;
    }
    return code;
}

static int work(struct co_db *db, struct co_turn *turn, struct co_deads *deads, struct co_err *err)
{
    bool schema;
    int code = look_around(db, turn, &schema, err);

    if (code == 0 && schema) {
        code = co_schema_prepare(db, err);
    }
    if (code == 0 && turn->foreign_change) {
        sqlite3_stmt *any = co_db_stmt(db, CO_STMT_LOSS_ANY, err);
        code = co_db_step(db, any, err, "");
        db->losses = code > 0;
        if (code > 0) {
            code = 0;
            sqlite3_reset(any);
        }
    }
    if (code == 0 && deads->n > 0) {
        code = co_recover_apply(db, deads, turn, err);
    }
    if (code < 0 || (code = co_settle_all(db, turn, err)) < 0 ||
        (code = co_hold_starts(db, turn, err)) < 0) {
        return code;
    }
    if (turn->foreign_change) {
        code = co_hold_verify(db, turn, err);
    }
    if (code >= 0 && turn->heartbeat) {
        code = co_hold_beat(db, turn, err);
    }
    if (code >= 0) {
        code = co_claim_take(db, turn, err);
    }
    return code >= 0 && turn->bye ? co_hold_bye(db, err) : code;
}

static int transact(struct co_db *db, struct co_turn *turn, struct co_deads *deads,
                    struct co_err *err)
{
    int code = co_db_write(db, co_db_stmt(db, CO_STMT_BEGIN, err), err, "");

    if (code < 0) {
        return code;
    }
    db->saved = db->holds;
    db->depths_good = false;
    db->now = time(NULL); /* Taking the lock may have taken seconds. */
    code = work(db, turn, deads, err);
    if (code >= 0) {
        code = co_db_write(db, co_db_stmt(db, CO_STMT_COMMIT, err), err, "");
    }
    if (code < 0) {
        if (!sqlite3_get_autocommit(db->sql)) {
            sqlite3_exec(db->sql, "ROLLBACK", NULL, NULL, NULL);
        }
        db->holds = db->saved;
        db->losses = true;
        db->schema_version = -1; /* Tables made in the transaction are gone again. */
        db->reopened = true;
        co_claim_forget(db);
        return code;
    }
    return 0;
}

static int run(struct co_db *db, struct co_turn *turn, struct co_deads *deads)
{
    struct co_err *err = &turn->err;
    bool write = turn->n_settles > 0 || turn->n_starts > 0 || turn->bye ||
                 (turn->heartbeat && db->holds.n > 0);
    int code = 0;

    if (turn->heartbeat && (code = co_lock_take(db, err)) < 0) {
        return code;
    }
    if (turn->recover) {
        code = co_recover_look(db, deads, err);
        write |= deads->n > 0;
    }
    if (code >= 0 && (!write || turn->n_wants > 0)) {
        code = look(db, turn, &write, err);
    }
    if (code >= 0 && write) {
        code = transact(db, turn, deads, err);
    }
    return code < 0 ? code : 0;
}

/* After the commit nothing may fail the turn any more, and counting holds no lock. */
static void read_depths(struct co_db *db, struct co_turn *turn)
{
    struct co_err err;

    if (turn->depths && co_depth_read(db, turn, &err) < 0) {
        turn->depths = false;
    }
}

void co_run_turn(struct co_db *db, struct co_turn *turn)
{
    uint64_t started = co_db_clock_us();
    struct co_deads deads = {0};

    undo_results(turn);
    db->now = time(NULL);
    int code = co_open_file(db, &turn->err);
    if (code == 0) {
        code = run(db, turn, &deads);
        co_recover_done(db, &deads, code == 0);
    }
    if (code == 0) {
        db->data_version = db->seen_version;
        db->reopened = false;
        turn->next_due = co_claim_due(db, turn);
        read_depths(db, turn);
    } else {
        undo_results(turn);
    }
    if (code == 0 && turn->bye) {
        co_db_close(db);
        co_lock_drop(db, true);
    }
    turn->code = code;
    turn->total_held = db->holds.n;
    turn->took_us = (uint32_t)(co_db_clock_us() - started);
}
