#include <assert.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/source_sqlite_impl.h"
#include "proto/control.h"

#define SCAN_SHARE 20    /* Looking through old rows again costs at most 1/20 of the time. */
#define SCAN_FREE_US 500 /* And what costs less than this is simply done. */

/* ---- floors ---- */

static struct co_db_queue *queue_of(struct co_db *db, const struct co_turn_want *want)
{
    for (uint32_t i = 0; i < db->n_queues; i++) {
        if (db->queues[i].table == want->table && strcmp(db->queues[i].name, want->name) == 0) {
            return &db->queues[i];
        }
    }
    if (db->n_queues == CO_DB_QUEUES_MAX) {
        db->n_queues = 0; /* Only a cache. */
    }
    struct co_db_queue *queue = &db->queues[db->n_queues++];
    memset(queue, 0, sizeof *queue);
    queue->table = want->table;
    queue->due = CO_DB_NEVER;
    queue->floor = INT64_MIN;
    snprintf(queue->name, sizeof queue->name, "%s", want->name);
    return queue;
}

void co_claim_wake(struct co_db *db, uint32_t table, int64_t job_id, co_unix due)
{
    for (uint32_t i = 0; i < db->n_queues; i++) {
        struct co_db_queue *queue = &db->queues[i];
        if (queue->table != table || job_id >= queue->floor) {
            continue;
        }
        if (due <= db->now) {
            queue->floor = job_id;
        } else if (due < queue->due) {
            queue->due = due;
        }
    }
}

void co_claim_stale(struct co_db *db)
{
    for (uint32_t i = 0; i < db->n_queues; i++) {
        db->queues[i].stale = true;
    }
}

void co_claim_forget(struct co_db *db)
{
    db->n_queues = 0;
}

co_unix co_claim_due(const struct co_db *db, const struct co_turn *turn)
{
    co_unix due = CO_DB_NEVER;

    for (uint32_t i = 0; i < turn->n_wants; i++) {
        for (uint32_t j = 0; j < db->n_queues; j++) {
            const struct co_db_queue *queue = &db->queues[j];
            if (queue->table == turn->wants[i].table && queue->due < due &&
                strcmp(queue->name, turn->wants[i].name) == 0) {
                due = queue->due;
            }
        }
    }
    return due == CO_DB_NEVER ? 0 : due;
}

/* ---- scan ---- */

/* From when on the row may be claimed; a row of ours never. */
static co_unix row_due(struct co_db *db, const struct co_db_queue *queue, sqlite3_stmt *row)
{
    uint32_t retry_after = db->tables[queue->table].config->retry_after_s;

    if (co_holds_get(&db->holds, queue->table, sqlite3_column_int64(row, 0)) != NULL) {
        return CO_DB_NEVER;
    }
    if (sqlite3_column_type(row, 1) == SQLITE_NULL) {
        return sqlite3_column_int64(row, 2);
    }
    return retry_after > 0 ? sqlite3_column_int64(row, 1) + retry_after : CO_DB_NEVER;
}

static void choose_floor(struct co_db *db, struct co_db_queue *queue, uint64_t now_us)
{
    bool again = queue->stale && (queue->cost_us < SCAN_FREE_US ||
                                  now_us - queue->scanned_us >= SCAN_SHARE * queue->cost_us);

    if (queue->due <= db->now || again) {
        queue->floor = INT64_MIN;
        queue->due = CO_DB_NEVER;
        queue->stale = false;
    }
}

/* Gather up to `max` claimable ids from the floor on. The floor comes to stand on the first of
 * them, or behind the last row. */
static int scan(struct co_db *db, struct co_db_queue *queue, uint32_t max, int64_t *ret_ids,
                uint32_t *ret_n, struct co_err *err)
{
    uint64_t started = co_db_clock_us();
    choose_floor(db, queue, started);
    bool whole = queue->floor == INT64_MIN;
    int64_t floor = queue->floor;
    uint32_t n = 0;
    sqlite3_stmt *stmt = co_db_table_stmt(db, queue->table, CO_STMT_SCAN, err);
    int code = stmt == NULL ? err->code : 0;

    if (code == 0) {
        sqlite3_bind_text(stmt, 1, queue->name, -1, SQLITE_STATIC);
        sqlite3_bind_int64(stmt, 2, queue->floor);
        while (n < max && (code = co_db_next(db, stmt, err)) > 0) {
            co_unix due = row_due(db, queue, stmt);
            if (due <= db->now) {
                ret_ids[n++] = sqlite3_column_int64(stmt, 0);
                continue;
            }
            queue->due = due < queue->due ? due : queue->due;
            floor = n == 0 ? sqlite3_column_int64(stmt, 0) + 1 : floor;
        }
        sqlite3_reset(stmt);
    }
    if (code < 0) {
        return code;
    }
    queue->floor = n > 0 ? ret_ids[0] : floor;
    if (whole) {
        queue->scanned_us = co_db_clock_us();
        queue->cost_us = queue->scanned_us - started;
    }
    *ret_n = n;
    return 0;
}

int co_claim_look(struct co_db *db, const struct co_turn *turn, bool *ret_any, struct co_err *err)
{
    int64_t id;
    uint32_t n;

    *ret_any = false;
    for (uint32_t i = 0; i < turn->n_wants && !*ret_any; i++) {
        if (turn->wants[i].count == 0) {
            continue;
        }
        int code = scan(db, queue_of(db, &turn->wants[i]), 1, &id, &n, err);
        if (code < 0) {
            return code;
        }
        *ret_any = n > 0;
    }
    return 0;
}

/* ---- quarantine ---- */

static int keep_extra_columns(struct co_db *db, struct co_db_table *table, struct co_err *err)
{
    char sql[256];
    const char *c = table->extra_kept;
    int code = 0;

    /* The list is `, "x_a", "x_b"`; a quote inside a name is doubled. */
    while (code >= 0 && (c = strstr(c, "\"x_")) != NULL) {
        const char *end = c + 1;
        while (*end != '"' || end[1] == '"') {
            end += *end == '"' ? 2 : 1;
        }
        snprintf(sql, sizeof sql, "ALTER TABLE cohort_quarantine ADD COLUMN %.*s",
                 (int)(end - c) + 1, c);
        if (sqlite3_exec(db->sql, sql, NULL, NULL, NULL) != SQLITE_OK &&
            strstr(sqlite3_errmsg(db->sql), "duplicate column") == NULL) {
            code = co_db_fail(db, err, "widen the quarantine");
        }
        c = end + 1;
    }
    table->extra_ready = code >= 0;
    return code < 0 ? code : co_db_pragma(db, CO_STMT_SCHEMA_VERSION, &db->schema_version, err);
}

int co_claim_quarantine(struct co_db *db, uint32_t table, int64_t job_id, const char *reason,
                        struct co_err *err)
{
    struct co_db_table *t = &db->tables[table];
    int code = t->extra_ready ? 0 : keep_extra_columns(db, t, err);

    if (code < 0 ||
        (code = co_db_write(db, co_db_table_stmt(db, table, CO_STMT_QUARANTINE, err), err, "itti",
                            job_id, t->config->table, reason, (int64_t)db->now)) < 0) {
        return code;
    }
    code = co_db_write(db, co_db_table_stmt(db, table, CO_STMT_DROP, err), err, "i", job_id);
    return code < 0 ? code : 0;
}

static int put_aside(struct co_db *db, struct co_turn *turn, const struct co_turn_want *want,
                     int64_t job_id, const char *reason, struct co_err *err)
{
    turn->n_quarantined++;
    snprintf(turn->quarantined_why, sizeof turn->quarantined_why, "job %lld of queue %.60s: %.140s",
             (long long)job_id, want->name, reason);
    return co_claim_quarantine(db, want->table, job_id, reason, err);
}

/* ---- claim ---- */

/* Text as UTF-8 whatever the file's encoding, anything else as its bytes. */
static const void *read_payload(sqlite3_stmt *row, uint64_t *ret_size)
{
    const void *payload = sqlite3_column_type(row, 0) == SQLITE_BLOB
                              ? sqlite3_column_blob(row, 0)
                              : (const void *)sqlite3_column_text(row, 0);
    *ret_size = (uint64_t)sqlite3_column_bytes(row, 0);
    return payload != NULL ? payload : "";
}

/* May the job run? Fills the claim's names and the reason why not. */
static bool examine(struct co_db *db, const void *payload, uint64_t size,
                    struct co_turn_claim *claim, char *reason, size_t reason_size)
{
    struct co_err why = {0};

    if (db->config.max_payload_bytes > 0 && size > db->config.max_payload_bytes) {
        snprintf(reason, reason_size, "payload of %llu bytes is larger than max_payload (%llu)",
                 (unsigned long long)size, (unsigned long long)db->config.max_payload_bytes);
        return false;
    }
    if (co_payload_read(payload, (size_t)size, &claim->facts, &why) < 0) {
        snprintf(reason, reason_size, "%.*s", (int)reason_size - 1, why.msg);
        return false;
    }
    return true;
}

/* Hardly any job ever crashed, so most claims do not ask. */
static int read_crashes(struct co_db *db, struct co_turn_claim *claim, struct co_err *err)
{
    sqlite3_stmt *stmt = db->losses ? co_db_stmt(db, CO_STMT_CRASH_GET, err) : NULL;
    int code = stmt == NULL ? 0
                            : co_db_step(db, stmt, err, "it", claim->job_id,
                                         db->tables[claim->table].config->table);

    if (code > 0) {
        claim->crashes = (uint32_t)sqlite3_column_int64(stmt, 0);
        sqlite3_reset(stmt);
    }
    return code < 0 ? code : 0;
}

static int copy_payload(struct co_turn_claim *claim, const void *payload, uint64_t size,
                        struct co_err *err)
{
    claim->payload = malloc(size + 1);
    if (claim->payload == NULL) {
        return co_err_set(err, CO_ENOMEM, "claim a job of %llu bytes: out of memory",
                          (unsigned long long)size);
    }
    memcpy(claim->payload, payload, size);
    claim->payload[size] = '\0';
    claim->payload_size = size;
    return 0;
}

static int reserve(struct co_db *db, const struct co_turn_claim *claim, struct co_err *err)
{
    struct co_hold hold = {.job_id = claim->job_id, .reserved_at = db->now, .table = claim->table};
    int code = co_db_write(db, co_db_stmt(db, CO_STMT_HOLD_PUT, err), err, "itti", claim->job_id,
                           db->tables[claim->table].config->table, db->agent, (int64_t)db->now);
    if (code >= 0) {
        code = co_db_write(db, co_db_table_stmt(db, claim->table, CO_STMT_RESERVE, err), err, "ii",
                           claim->job_id, (int64_t)db->now);
    }
    return code < 0 ? code : co_holds_put(&db->holds, &hold);
}

enum took { TOOK_IT, TOOK_ASIDE, TOOK_NO_ROOM };

/* The row's values must be read before the statement is reset, so one step and one reset. */
static int claim_row(struct co_db *db, struct co_turn *turn, struct co_turn_want *want,
                     int64_t job_id, uint64_t *bytes, sqlite3_stmt *row, struct co_err *err)
{
    struct co_turn_claim *claim = &turn->claims[turn->n_claims];
    char reason[CO_TURN_TEXT_SIZE];
    uint64_t size;
    const void *payload = read_payload(row, &size);

    *claim = (struct co_turn_claim){.table = want->table,
                                    .queue = want->queue,
                                    .job_id = job_id,
                                    .reserved_at = db->now,
                                    .attempts = (uint32_t)sqlite3_column_int64(row, 1),
                                    .available_at = sqlite3_column_int64(row, 2),
                                    .created_at = sqlite3_column_int64(row, 3)};
    if (!examine(db, payload, size, claim, reason, sizeof reason)) {
        sqlite3_reset(row);
        int code = put_aside(db, turn, want, job_id, reason, err);
        return code < 0 ? code : TOOK_ASIDE;
    }
    if (want->ret_count > 0 && *bytes + size > want->bytes) {
        sqlite3_reset(row);
        return TOOK_NO_ROOM;
    }
    int code = copy_payload(claim, payload, size, err);
    sqlite3_reset(row);
    if (code < 0) {
        return code;
    }
    turn->n_claims++; /* From here on undoing the turn frees the payload. */
    want->ret_count++;
    *bytes += size;
    code = reserve(db, claim, err);
    if (code >= 0) {
        code = read_crashes(db, claim, err);
    }
    return code < 0 ? code : TOOK_IT;
}

static int claim_one(struct co_db *db, struct co_turn *turn, struct co_turn_want *want,
                     int64_t job_id, uint64_t *bytes, struct co_err *err)
{
    sqlite3_stmt *row = co_db_table_stmt(db, want->table, CO_STMT_ROW, err);
    int code = co_db_step(db, row, err, "i", job_id);

    if (code == 0) {
        return TOOK_ASIDE;
    }
    return code < 0 ? code : claim_row(db, turn, want, job_id, bytes, row, err);
}

/* What the group has claimed so far; UINT32_MAX when a want of a lower rank left something. */
static uint32_t group_claimed(const struct co_turn *turn, const struct co_turn_want *want)
{
    uint32_t claimed = 0;

    for (const struct co_turn_want *other = turn->wants; other <= want; other++) {
        if (other->group != want->group) {
            continue;
        }
        if (other->rank < want->rank && other->ret_more) {
            return UINT32_MAX;
        }
        claimed += other->ret_count;
    }
    return claimed;
}

static uint32_t room_for(const struct co_db *db, const struct co_turn *turn,
                         const struct co_turn_want *want)
{
    uint32_t claimed = group_claimed(turn, want);
    uint32_t room = want->count > claimed ? want->count - claimed : 0;
    uint32_t turn_room = CO_TURN_CLAIMS_MAX - turn->n_claims;
    uint32_t hold_room = CO_HOLDS_MAX - db->holds.n;

    room = room < turn_room ? room : turn_room;
    return room < hold_room ? room : hold_room;
}

/* Jobs put aside make room for the next ones in the same claim, so scan until it is filled. */
static int claim_want(struct co_db *db, struct co_turn *turn, struct co_turn_want *want,
                      struct co_err *err)
{
    struct co_db_queue *queue = queue_of(db, want);
    int64_t ids[CO_TURN_CLAIMS_MAX];
    uint64_t bytes = 0;
    uint32_t n, room;

    while ((room = room_for(db, turn, want)) > 0) {
        int code = scan(db, queue, room, ids, &n, err);
        for (uint32_t i = 0; i < n && code >= 0; i++) {
            code = claim_one(db, turn, want, ids[i], &bytes, err);
            if (code == TOOK_NO_ROOM) {
                want->ret_more = true;
                return 0;
            }
            queue->floor = ids[i] + 1;
        }
        if (code < 0) {
            return code;
        }
        if (n < room) {
            return 0;
        }
    }
    want->ret_more = want->count > 0;
    return 0;
}

int co_claim_take(struct co_db *db, struct co_turn *turn, struct co_err *err)
{
    int code = 0;

    for (uint32_t i = 0; i < turn->n_wants && code >= 0; i++) {
        code = claim_want(db, turn, &turn->wants[i], err);
    }
    return code;
}
