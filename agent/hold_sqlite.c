#include <assert.h>
#include <sqlite3.h>

#include "agent/source_sqlite_impl.h"

static const char *name_of(const struct co_db *db, uint32_t table)
{
    return db->tables[table].config->table;
}

int co_hold_fence(struct co_db *db, uint32_t table, int64_t job_id, int64_t reserved_at,
                  struct co_err *err)
{
    sqlite3_stmt *stmt = co_db_table_stmt(db, table, CO_STMT_FENCE, err);
    int code = co_db_step(db, stmt, err, "i", job_id);

    if (code <= 0) {
        return code;
    }
    bool ours =
        sqlite3_column_type(stmt, 0) != SQLITE_NULL && sqlite3_column_int64(stmt, 0) == reserved_at;
    sqlite3_reset(stmt);
    return ours;
}

/* ---- starts ---- */

static int start_one(struct co_db *db, struct co_turn_start *start, struct co_err *err)
{
    int changed =
        co_db_write(db, co_db_stmt(db, CO_STMT_HOLD_BEGIN, err), err, "itti", start->job_id,
                    name_of(db, start->table), db->agent, start->reserved_at);
    if (changed <= 0) {
        return changed;
    }
    changed = co_db_write(db, co_db_table_stmt(db, start->table, CO_STMT_LEFT, err), err, "iii",
                          start->job_id, start->reserved_at, (int64_t)1);
    if (changed < 0) {
        return changed;
    }
    struct co_hold *hold = co_holds_get(&db->holds, start->table, start->job_id);
    if (hold != NULL) {
        hold->begun = true;
    }
    start->ret_applied = changed > 0;
    return 0;
}

int co_hold_starts(struct co_db *db, struct co_turn *turn, struct co_err *err)
{
    int code = 0;

    for (uint32_t i = 0; i < turn->n_starts && code >= 0; i++) {
        assert(turn->starts[i].table < db->config.n_tables);
        code = start_one(db, &turn->starts[i], err);
    }
    return code;
}

/* ---- what we hold ---- */

static int is_held(struct co_db *db, const struct co_hold *hold, struct co_err *err)
{
    int code = co_hold_fence(db, hold->table, hold->job_id, hold->reserved_at, err);

    if (code <= 0) {
        return code;
    }
    sqlite3_stmt *stmt = co_db_stmt(db, CO_STMT_HOLD_HAS, err);
    code = co_db_step(db, stmt, err, "itti", hold->job_id, name_of(db, hold->table), db->agent,
                      hold->reserved_at);
    if (code > 0) {
        sqlite3_reset(stmt);
    }
    return code;
}

int co_hold_check(struct co_db *db, bool *ret_gone, struct co_err *err)
{
    *ret_gone = false;
    for (uint32_t i = 0; i < db->holds.n && !*ret_gone; i++) {
        if (!db->holds.list[i].begun) {
            int held = is_held(db, &db->holds.list[i], err);
            if (held < 0) {
                return held;
            }
            *ret_gone = held == 0;
        }
    }
    return 0;
}

static int let_go(struct co_db *db, struct co_turn *turn, struct co_hold hold, struct co_err *err)
{
    sqlite3_stmt *stmt = co_db_stmt(db, CO_STMT_HOLD_TAKE, err);
    int code = co_db_step(db, stmt, err, "itti", hold.job_id, name_of(db, hold.table), db->agent,
                          hold.reserved_at);

    if (code > 0) {
        code = co_db_next(db, stmt, err);
    }
    if (code < 0) {
        return code;
    }
    co_holds_remove(&db->holds, hold.table, hold.job_id);
    if (turn->n_gone < CO_TURN_CLAIMS_MAX) {
        turn->gone[turn->n_gone].table = hold.table;
        turn->gone[turn->n_gone].job_id = hold.job_id;
        turn->gone[turn->n_gone].reserved_at = hold.reserved_at;
        turn->n_gone++;
    }
    co_claim_wake(db, hold.table, hold.job_id, db->now);
    return 0;
}

int co_hold_verify(struct co_db *db, struct co_turn *turn, struct co_err *err)
{
    for (uint32_t i = db->holds.n; i-- > 0;) {
        struct co_hold hold = db->holds.list[i];
        int held = hold.begun ? 1 : is_held(db, &hold, err);
        if (held == 0 && turn->n_gone < CO_TURN_CLAIMS_MAX) {
            held = let_go(db, turn, hold, err);
        }
        if (held < 0) {
            return held;
        }
    }
    return 0;
}

/* ---- heartbeat ---- */

static int beat_one(struct co_db *db, struct co_turn *turn, struct co_hold hold, struct co_err *err)
{
    const char *name = name_of(db, hold.table);
    int changed = co_db_write(db, co_db_table_stmt(db, hold.table, CO_STMT_BEAT, err), err, "iii",
                              hold.job_id, hold.reserved_at, db->now);
    if (changed > 0) {
        changed = co_db_write(db, co_db_stmt(db, CO_STMT_HOLD_BEAT, err), err, "ittii", hold.job_id,
                              name, db->agent, hold.reserved_at, db->now);
    }
    if (changed <= 0) { /* Somebody has it: verify and the job's settle see to that. */
        return changed;
    }
    turn->beats[turn->n_beats].table = hold.table;
    turn->beats[turn->n_beats].job_id = hold.job_id;
    turn->beats[turn->n_beats].was = hold.reserved_at;
    turn->beats[turn->n_beats].reserved_at = db->now;
    turn->n_beats++;
    co_holds_get(&db->holds, hold.table, hold.job_id)->reserved_at = db->now;
    return 0;
}

int co_hold_beat(struct co_db *db, struct co_turn *turn, struct co_err *err)
{
    int code = co_lock_take(db, err);

    for (uint32_t i = 0; i < db->holds.n && code >= 0; i++) {
        if (db->holds.list[i].reserved_at != db->now) {
            code = beat_one(db, turn, db->holds.list[i], err);
        }
    }
    return code;
}

/* ---- bye, heal ---- */

int co_hold_bye(struct co_db *db, struct co_err *err)
{
    while (db->holds.n > 0) {
        struct co_hold hold = db->holds.list[db->holds.n - 1];
        struct co_settle settle = {.agent = db->agent,
                                   .table = hold.table,
                                   .job_id = hold.job_id,
                                   .reserved_at = hold.reserved_at,
                                   .outcome = CO_OUTCOME_RETURNED};
        bool applied;
        if (hold.begun) {
            co_settle_lost(db, &settle);
        }
        int code = co_settle_apply(db, &settle, &applied, err);
        if (code < 0) {
            return code;
        }
        co_holds_remove(&db->holds, hold.table, hold.job_id);
    }
    int code = co_db_write(db, co_db_stmt(db, CO_STMT_AGENT_DROP, err), err, "t", db->agent);
    return code < 0 ? code : 0;
}

int co_hold_heal(struct co_db *db, struct co_err *err)
{
    for (uint32_t i = 0; i < db->holds.n; i++) {
        const struct co_hold *hold = &db->holds.list[i];
        int code = co_hold_fence(db, hold->table, hold->job_id, hold->reserved_at, err);
        if (code > 0) {
            code = co_db_write(db, co_db_stmt(db, CO_STMT_HOLD_HEAL, err), err, "ittii",
                               hold->job_id, name_of(db, hold->table), db->agent, hold->reserved_at,
                               (int64_t)hold->begun);
        }
        if (code < 0) {
            return code;
        }
    }
    return 0;
}
