#include <sqlite3.h>
#include <string.h>

#include "agent/source_sqlite_impl.h"

static struct co_turn_depth *depth_of(struct co_turn *turn, uint32_t table, const char *name,
                                      struct co_turn_depth *last)
{
    if (last != NULL && last->table == table && strcmp(last->name, name) == 0) {
        return last;
    }
    for (uint32_t i = 0; i < turn->n_depths; i++) {
        if (turn->depth[i].table == table && strcmp(turn->depth[i].name, name) == 0) {
            return &turn->depth[i];
        }
    }
    if (turn->n_depths == CO_TURN_QUEUES_MAX || strlen(name) >= CO_TEXT_SIZE) {
        return NULL;
    }
    struct co_turn_depth *depth = &turn->depth[turn->n_depths++];
    memset(depth, 0, sizeof *depth);
    depth->table = table;
    strcpy(depth->name, name);
    return depth;
}

static void count_row(struct co_db *db, struct co_turn_depth *depth, sqlite3_stmt *row)
{
    if (sqlite3_column_type(row, 1) != SQLITE_NULL) {
        const struct co_hold *hold =
            co_holds_get(&db->holds, depth->table, sqlite3_column_int64(row, 3));
        depth->reserved++;
        depth->reserved_others += hold == NULL || hold->reserved_at != sqlite3_column_int64(row, 1);
        return;
    }
    co_unix available_at = sqlite3_column_int64(row, 2);
    if (available_at > db->now) {
        depth->delayed++;
        db->depths_until = available_at < db->depths_until ? available_at : db->depths_until;
        return;
    }
    depth->ready++;
    if (depth->oldest_ready == 0 || available_at < depth->oldest_ready) {
        depth->oldest_ready = available_at;
    }
}

/* One pass in the order of the table, counted here: less than half the time of a GROUP BY, which
 * sorts or jumps from an index to every row. */
static int read_table(struct co_db *db, struct co_turn *turn, uint32_t table, struct co_err *err)
{
    struct co_turn_depth *depth = NULL;
    sqlite3_stmt *row = co_db_table_stmt(db, table, CO_STMT_DEPTH, err);
    int code = co_db_step(db, row, err, "");

    while (code > 0) {
        const char *name = (const char *)sqlite3_column_text(row, 0);
        depth = depth_of(turn, table, name != NULL ? name : "", depth);
        if (depth != NULL) {
            count_row(db, depth, row);
        }
        code = co_db_next(db, row, err);
    }
    return code;
}

static int read_all(struct co_db *db, struct co_turn *turn, struct co_err *err)
{
    turn->n_depths = 0;
    db->depths_until = CO_DB_NEVER;
    for (uint32_t i = 0; i < db->config.n_tables; i++) {
        int code = read_table(db, turn, i, err);
        if (code < 0) {
            turn->n_depths = 0;
            return code;
        }
    }
    memcpy(db->depths, turn->depth, turn->n_depths * sizeof turn->depth[0]);
    db->n_depths = turn->n_depths;
    db->depths_good = true;
    return 0;
}

static int read_quarantine(struct co_db *db, struct co_turn *turn, struct co_err *err)
{
    sqlite3_stmt *row = co_db_stmt(db, CO_STMT_QUARANTINED, err);
    int code = co_db_step(db, row, err, "");

    if (code > 0) {
        turn->quarantined = (uint64_t)sqlite3_column_int64(row, 0);
        sqlite3_reset(row);
    }
    return code < 0 ? code : 0;
}

int co_depth_read(struct co_db *db, struct co_turn *turn, struct co_err *err)
{
    int code = read_quarantine(db, turn, err);

    if (code < 0) {
        return code;
    }
    if (!db->depths_good || db->depths_until <= db->now) {
        return read_all(db, turn, err);
    }
    memcpy(turn->depth, db->depths, db->n_depths * sizeof db->depths[0]);
    turn->n_depths = db->n_depths;
    return 0;
}
