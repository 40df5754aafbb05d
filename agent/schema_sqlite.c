#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "agent/source_sqlite_impl.h"

static const char side_tables[] =
    "CREATE TABLE IF NOT EXISTS cohort_holds(job INTEGER NOT NULL, tbl TEXT NOT NULL,"
    " agent TEXT NOT NULL, reserved_at INTEGER NOT NULL, begun INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY(job, tbl)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS cohort_agents(agent TEXT PRIMARY KEY, run_dir TEXT NOT NULL,"
    " since INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS cohort_quarantine(id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " tbl TEXT NOT NULL, job INTEGER NOT NULL, queue, payload, reason TEXT NOT NULL,"
    " since INTEGER NOT NULL, attempts, available_at, created_at);"
    "CREATE TABLE IF NOT EXISTS cohort_losses(job INTEGER NOT NULL, tbl TEXT NOT NULL,"
    " losses INTEGER NOT NULL, crashes INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY(job, tbl)) WITHOUT ROWID;";

/* Laravel's own layout, so that its worker and commands can be pointed at our file. */
static const char plain_jobs[] =
    "CREATE TABLE IF NOT EXISTS %T(\"id\" integer primary key autoincrement not null,"
    " \"queue\" varchar not null, \"payload\" text not null, \"attempts\" integer not null,"
    " \"reserved_at\" integer, \"available_at\" integer not null, \"created_at\" integer not null);"
    "CREATE INDEX IF NOT EXISTS %I ON %T(\"queue\");"
    "CREATE TABLE IF NOT EXISTS %F(\"id\" integer primary key autoincrement not null,"
    " \"uuid\" varchar not null unique, \"connection\" text not null, \"queue\" text not null,"
    " \"payload\" text not null, \"exception\" text not null,"
    " \"failed_at\" datetime not null default CURRENT_TIMESTAMP);";

static bool is_own_column(const char *name)
{
    static const char *const known[] = {"id",          "queue",        "payload",   "attempts",
                                        "reserved_at", "available_at", "created_at"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcasecmp(name, known[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Count the columns of `name` that are in `wanted` (a list like ",id,queue,"), and hand all others
 * to the lists of extra ones when asked. */
static int read_columns(struct co_db *db, const char *name, const char *wanted, int *ret_columns,
                        int *ret_known, sqlite3_str *extra, sqlite3_str *kept, struct co_err *err)
{
    char *sql = sqlite3_mprintf("PRAGMA table_info(\"%w\")", name);
    sqlite3_stmt *stmt = co_db_compile(db, sql, err);
    int code = stmt == NULL ? err->code : 1;

    sqlite3_free(sql);
    *ret_columns = *ret_known = 0;
    while (code > 0 && (code = co_db_next(db, stmt, err)) > 0) {
        const char *column = (const char *)sqlite3_column_text(stmt, 1);
        char listed[CO_NAME_SIZE + 2];
        ++*ret_columns;
        snprintf(listed, sizeof listed, ",%.*s,", CO_NAME_SIZE - 1, column);
        *ret_known += strcasestr(wanted, listed) != NULL;
        if (extra != NULL && !is_own_column(column)) {
            sqlite3_str_appendf(extra, ", \"%w\"", column);
            sqlite3_str_appendf(kept, ", \"x_%w\"", column);
        }
    }
    sqlite3_finalize(stmt);
    return code;
}

static int fail_no_table(struct co_db *db, const struct co_db_table *table, struct co_err *err)
{
    return co_err_set(err, CO_ENOTFOUND,
                      "the database %s has no table \"%s\": run \"php artisan "
                      "queue:table && php artisan migrate\" (Laravel 8 to 10) or \"php artisan "
                      "make:queue-table && php artisan migrate\" (11 and later)",
                      db->path, table->config->table);
}

static int detect_jobs(struct co_db *db, struct co_db_table *table, struct co_err *err)
{
    sqlite3_str *extra = sqlite3_str_new(NULL);
    sqlite3_str *kept = sqlite3_str_new(NULL);
    int columns, known;
    int code = read_columns(db, table->config->table,
                            ",id,queue,payload,attempts,reserved_at,available_at,created_at,",
                            &columns, &known, extra, kept, err);
    bool none = sqlite3_str_length(extra) == 0;

    table->extra = sqlite3_str_finish(extra);
    table->extra_kept = sqlite3_str_finish(kept);
    if (none) { /* An empty sqlite3_str ends as NULL. */
        table->extra = sqlite3_mprintf("");
        table->extra_kept = sqlite3_mprintf("");
    }
    if (code < 0) {
        return code;
    }
    if (table->extra == NULL || table->extra_kept == NULL) {
        return co_err_set(err, CO_ENOMEM, "read the columns of %s: out of memory",
                          table->config->table);
    }
    if (columns == 0) {
        return fail_no_table(db, table, err);
    }
    return known == 7
               ? 0
               : co_err_set(err, CO_EUNSUPPORTED,
                            "the table \"%s\" in %s is no Laravel queue table: it needs the "
                            "columns id, queue, payload, attempts, reserved_at, available_at "
                            "and created_at",
                            table->config->table, db->path);
}

static int detect_failed(struct co_db *db, struct co_db_table *table, struct co_err *err)
{
    int columns, known, uuid;
    int code = read_columns(db, co_db_failed_table(table),
                            ",connection,queue,payload,exception,failed_at,", &columns, &known,
                            NULL, NULL, err);
    if (code < 0) {
        return code;
    }
    table->failed_exists = known == 5;
    code = read_columns(db, co_db_failed_table(table), ",uuid,", &columns, &uuid, NULL, NULL, err);
    table->failed_uuid = uuid == 1;
    return code;
}

static int prepare_table(struct co_db *db, struct co_db_table *table, struct co_err *err)
{
    co_db_forget_table(table);
    if (table->config->plain) {
        char *sql = co_db_fill_in(table, plain_jobs);
        int code = co_db_exec(db, sql, err);
        sqlite3_free(sql);
        if (code < 0) {
            return code;
        }
    }
    int code = detect_jobs(db, table, err);
    return code < 0 ? code : detect_failed(db, table, err);
}

/* A successor may run elsewhere: the directory is noted by its full name. */
static int note_agent(struct co_db *db, struct co_err *err)
{
    char *real = realpath(db->config.run_dir, NULL);
    int code = co_db_write(db, co_db_stmt(db, CO_STMT_AGENT_PUT, err), err, "tti", db->agent,
                           real != NULL ? real : db->config.run_dir, (int64_t)time(NULL));
    free(real);
    return code;
}

int co_schema_prepare(struct co_db *db, struct co_err *err)
{
    int code = 0;

    for (uint32_t i = 0; i < db->config.n_tables && code >= 0; i++) {
        code = prepare_table(db, &db->tables[i], err);
    }
    if (code < 0 || (code = co_db_exec(db, side_tables, err)) < 0 ||
        (code = note_agent(db, err)) < 0 || (code = co_hold_heal(db, err)) < 0) {
        return code;
    }
    co_claim_forget(db);
    return co_db_pragma(db, CO_STMT_SCHEMA_VERSION, &db->schema_version, err);
}
