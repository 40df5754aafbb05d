#include "agent/overrides_sqlite.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUSY_MS 5000

static const char create_sql[] =
    "CREATE TABLE IF NOT EXISTS overrides(queue INTEGER NOT NULL, epoch INTEGER NOT NULL,"
    " agent INTEGER NOT NULL, action INTEGER NOT NULL, value INTEGER NOT NULL,"
    " since INTEGER NOT NULL, expires INTEGER NOT NULL, \"by\" TEXT NOT NULL,"
    " reason TEXT NOT NULL, PRIMARY KEY(queue, epoch, agent))";
static const char insert_sql[] =
    "INSERT OR IGNORE INTO overrides(queue, epoch, agent, action, value, since, expires, \"by\","
    " reason) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
/* Never the word in force on a queue: the newest of each stays. */
static const char trim_sql[] =
    "DELETE FROM overrides WHERE rowid IN (SELECT rowid FROM overrides o WHERE EXISTS (SELECT 1"
    " FROM overrides n WHERE n.queue=o.queue AND (n.epoch>o.epoch OR (n.epoch=o.epoch AND"
    " n.agent>o.agent))) ORDER BY since DESC LIMIT -1 OFFSET 500)";
static const char list_sql[] =
    "SELECT queue, epoch, agent, action, value, since, expires, \"by\", reason FROM overrides"
    " ORDER BY since DESC, epoch DESC LIMIT ?1";

static int fail(sqlite3 *sql, const char *path, const char *doing, struct co_err *err)
{
    return co_err_set(err, CO_ESOURCE, "%s the overrides in %s: %s", doing, path,
                      sql != NULL ? sqlite3_errmsg(sql) : "out of memory");
}

static int open_file(const char *path, int flags, sqlite3 **ret, const char *doing,
                     struct co_err *err)
{
    if (sqlite3_open_v2(path, ret, flags, NULL) != SQLITE_OK) {
        fail(*ret, path, doing, err);
        sqlite3_close(*ret);
        return CO_ESOURCE;
    }
    sqlite3_busy_timeout(*ret, BUSY_MS);
    return 0;
}

static void bind(sqlite3_stmt *stmt, const struct co_fleet_override *override)
{
    const int64_t numbers[] = {(int64_t) override->queue, (int64_t) override->epoch,
                               (int64_t) override->agent, override->action,
                               override->value,           override->since,
                               override->expires};

    for (int i = 0; i < 7; i++) {
        sqlite3_bind_int64(stmt, i + 1, numbers[i]);
    }
    sqlite3_bind_text(stmt, 8, override->by, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 9, override->reason, -1, SQLITE_STATIC);
}

int co_overrides_add(const char *path, const struct co_fleet_override *override, struct co_err *err)
{
    sqlite3 *sql = NULL;
    sqlite3_stmt *stmt = NULL;
    int code = open_file(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &sql, "keep", err);

    if (code < 0) {
        return code;
    }
    if (sqlite3_exec(sql, create_sql, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(sql, insert_sql, -1, &stmt, NULL) != SQLITE_OK) {
        code = fail(sql, path, "keep", err);
    } else {
        bind(stmt, override);
        code = sqlite3_step(stmt) == SQLITE_DONE ? 0 : fail(sql, path, "keep", err);
    }
    sqlite3_finalize(stmt);
    if (code == 0 && sqlite3_exec(sql, trim_sql, NULL, NULL, NULL) != SQLITE_OK) {
        code = fail(sql, path, "keep", err);
    }
    sqlite3_close(sql);
    return code;
}

static void read_text(sqlite3_stmt *stmt, int column, char *buf, size_t size)
{
    const unsigned char *text = sqlite3_column_text(stmt, column);

    snprintf(buf, size, "%s", text != NULL ? (const char *)text : "");
}

static void read_row(sqlite3_stmt *stmt, struct co_fleet_override *ret)
{
    *ret = (struct co_fleet_override){
        .queue = (uint64_t)sqlite3_column_int64(stmt, 0),
        .epoch = (uint64_t)sqlite3_column_int64(stmt, 1),
        .agent = (uint64_t)sqlite3_column_int64(stmt, 2),
        .action = (uint32_t)sqlite3_column_int64(stmt, 3),
        .value = (uint32_t)sqlite3_column_int64(stmt, 4),
        .since = sqlite3_column_int64(stmt, 5),
        .expires = sqlite3_column_int64(stmt, 6),
    };
    read_text(stmt, 7, ret->by, sizeof ret->by);
    read_text(stmt, 8, ret->reason, sizeof ret->reason);
}

static bool has_table(sqlite3 *sql)
{
    return sqlite3_table_column_metadata(sql, NULL, "overrides", NULL, NULL, NULL, NULL, NULL,
                                         NULL) == SQLITE_OK;
}

int co_overrides_list(const char *path, struct co_fleet_override *ret_list, uint32_t max,
                      uint32_t *ret_n, struct co_err *err)
{
    sqlite3 *sql = NULL;
    sqlite3_stmt *stmt = NULL;
    int code;

    *ret_n = 0;
    if (access(path, F_OK) != 0) {
        return 0;
    }
    code = open_file(path, SQLITE_OPEN_READWRITE, &sql, "read", err);
    if (code < 0) {
        return code;
    }
    if (has_table(sql)) {
        code = sqlite3_prepare_v2(sql, list_sql, -1, &stmt, NULL) == SQLITE_OK
                   ? 0
                   : fail(sql, path, "read", err);
        sqlite3_bind_int64(stmt, 1, max);
        while (code == 0 && *ret_n < max && sqlite3_step(stmt) == SQLITE_ROW) {
            read_row(stmt, &ret_list[(*ret_n)++]);
        }
    }
    sqlite3_finalize(stmt);
    sqlite3_close(sql);
    return code;
}
