#include <assert.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/source_sqlite_impl.h"

/* %T: the table, %F: its failed table, %X: the application's own columns, %K: the same in the
 * quarantine, %U and %u: the failed table's uuid column and its value. */
static const char *const table_sql[CO_TABLE_STMTS] = {
    [CO_STMT_SCAN] =
        "SELECT id, reserved_at, available_at FROM %T WHERE queue=?1 AND id>=?2"
        " ORDER BY id",
    [CO_STMT_ROW] = "SELECT payload, attempts, available_at, created_at, queue FROM %T WHERE id=?1",
    [CO_STMT_RESERVE] = "UPDATE %T SET reserved_at=?2 WHERE id=?1",
    [CO_STMT_FENCE] = "SELECT reserved_at FROM %T WHERE id=?1",
    [CO_STMT_DELETE] = "DELETE FROM %T WHERE id=?1 AND reserved_at=?2",
    [CO_STMT_COPY] =
        "INSERT INTO %T(queue, payload, attempts, reserved_at, available_at,"
        " created_at%X) SELECT queue, payload, attempts+?3, NULL, ?4, ?5%X FROM %T"
        " WHERE id=?1 AND reserved_at=?2",
    [CO_STMT_BACK] =
        "UPDATE %T SET reserved_at=NULL, attempts=max(0, attempts+?3),"
        " available_at=coalesce(?4, available_at) WHERE id=?1 AND reserved_at=?2",
    [CO_STMT_LEFT] = "UPDATE %T SET attempts=attempts+?3 WHERE id=?1 AND reserved_at=?2",
    [CO_STMT_BEAT] = "UPDATE %T SET reserved_at=?3 WHERE id=?1 AND reserved_at=?2",
    [CO_STMT_PAYLOAD] = "SELECT payload FROM %T WHERE id=?1",
    [CO_STMT_RECORD] =
        "INSERT INTO %F(%Uconnection, queue, payload, exception, failed_at)"
        " SELECT %u?3, queue, payload, ?4, ?5 FROM %T WHERE id=?1 AND"
        " reserved_at=?2",
    [CO_STMT_QUARANTINE] =
        "INSERT INTO cohort_quarantine(tbl, job, queue, payload, reason, since,"
        " attempts, available_at, created_at%K) SELECT ?2, id, queue, payload,"
        " ?3, ?4, attempts, available_at, created_at%X FROM %T WHERE id=?1",
    [CO_STMT_DROP] = "DELETE FROM %T WHERE id=?1",
    [CO_STMT_DEPTH] = "SELECT queue, reserved_at, available_at, id FROM %T",
    [CO_STMT_LOSS_SWEEP] =
        "DELETE FROM cohort_losses WHERE tbl=?1 AND NOT EXISTS"
        " (SELECT 1 FROM %T WHERE id=cohort_losses.job)",
};

static const char *const db_sql[CO_DB_STMTS] = {
    [CO_STMT_BEGIN] = "BEGIN IMMEDIATE",
    [CO_STMT_COMMIT] = "COMMIT",
    [CO_STMT_DATA_VERSION] = "PRAGMA data_version",
    [CO_STMT_SCHEMA_VERSION] = "PRAGMA schema_version",
    /* Somebody else's hold is an expired one (the job's row said so); our own stays. */
    [CO_STMT_HOLD_PUT] =
        "INSERT INTO cohort_holds(job, tbl, agent, reserved_at, begun)"
        " VALUES(?1, ?2, ?3, ?4, 0) ON CONFLICT DO UPDATE SET"
        " agent=excluded.agent, reserved_at=excluded.reserved_at, begun=0",
    [CO_STMT_HOLD_HEAL] =
        "INSERT OR IGNORE INTO cohort_holds(job, tbl, agent, reserved_at, begun)"
        " VALUES(?1, ?2, ?3, ?4, ?5)",
    [CO_STMT_HOLD_HAS] =
        "SELECT 1 FROM cohort_holds WHERE job=?1 AND tbl=?2 AND agent=?3"
        " AND reserved_at=?4",
    [CO_STMT_HOLD_TAKE] =
        "DELETE FROM cohort_holds WHERE job=?1 AND tbl=?2 AND agent=?3"
        " AND reserved_at=?4 RETURNING begun",
    [CO_STMT_HOLD_BEGIN] =
        "UPDATE cohort_holds SET begun=1 WHERE job=?1 AND tbl=?2 AND agent=?3"
        " AND reserved_at=?4 AND begun=0",
    [CO_STMT_HOLD_BEAT] =
        "UPDATE cohort_holds SET reserved_at=?5 WHERE job=?1 AND tbl=?2"
        " AND agent=?3 AND reserved_at=?4",
    [CO_STMT_HOLD_LIST] = "SELECT job, tbl, reserved_at, begun FROM cohort_holds WHERE agent=?1",
    [CO_STMT_LOSS_ADD] =
        "INSERT INTO cohort_losses(job, tbl, losses) VALUES(?1, ?2, 1)"
        " ON CONFLICT DO UPDATE SET losses=losses+1 RETURNING losses",
    [CO_STMT_CRASH_ADD] =
        "INSERT INTO cohort_losses(job, tbl, losses, crashes) VALUES(?1, ?2, 0, 1)"
        " ON CONFLICT DO UPDATE SET crashes=crashes+1",
    [CO_STMT_CRASH_GET] = "SELECT crashes FROM cohort_losses WHERE job=?1 AND tbl=?2",
    [CO_STMT_LOSS_DROP] = "DELETE FROM cohort_losses WHERE job=?1 AND tbl=?2",
    [CO_STMT_QUARANTINED] = "SELECT count(*) FROM cohort_quarantine",
    [CO_STMT_LOSS_ANY] = "SELECT 1 FROM cohort_losses LIMIT 1",
    [CO_STMT_AGENT_PUT] =
        "INSERT OR REPLACE INTO cohort_agents(agent, run_dir, since)"
        " VALUES(?1, ?2, ?3)",
    [CO_STMT_AGENT_DROP] = "DELETE FROM cohort_agents WHERE agent=?1",
    [CO_STMT_AGENT_LIST] =
        "SELECT agent, run_dir FROM cohort_agents WHERE agent<>?1 UNION ALL"
        " SELECT DISTINCT agent, NULL FROM cohort_holds WHERE agent<>?1 AND"
        " agent NOT IN (SELECT agent FROM cohort_agents)",
};

uint64_t co_db_clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* ---- errors ---- */

static int fail_disk(struct co_db *db, struct co_err *err, const char *doing)
{
    int sys = sqlite3_system_errno(db->sql);
    return co_err_set(err, CO_ESOURCE,
                      "%s in %s: %s%s%s; free space on its file system, or check "
                      "the disk; nothing is lost, it is tried again",
                      doing, db->path, sqlite3_errmsg(db->sql), sys != 0 ? ": " : "",
                      sys != 0 ? strerror(sys) : "");
}

int co_db_fail(struct co_db *db, struct co_err *err, const char *doing)
{
    const char *path = db->path;

    switch (sqlite3_errcode(db->sql) & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return co_err_set(err, CO_EAGAIN,
                          "%s in %s: locked by another process for more than %u "
                          "ms; it is tried again",
                          doing, path, db->config.busy_timeout_ms);
    case SQLITE_FULL:
    case SQLITE_IOERR:
        return fail_disk(db, err, doing);
    case SQLITE_READONLY:
        return co_err_set(err, CO_ESOURCE,
                          "%s in %s: the file, its directory or its -wal file "
                          "cannot be written; make them writable for user id %u",
                          doing, path, (unsigned)geteuid());
    case SQLITE_CANTOPEN:
        return co_err_set(err, CO_ESOURCE,
                          "%s in %s: cannot be opened; the file and its directory "
                          "(SQLite keeps its journal there) must be writable for user id %u",
                          doing, path, (unsigned)geteuid());
    case SQLITE_NOTADB:
        return co_err_set(err, CO_ESOURCE,
                          "%s in %s: this file is no SQLite database (or an "
                          "encrypted one); check the connection's database path",
                          doing, path);
    case SQLITE_CORRUPT:
        return co_err_set(err, CO_ESOURCE,
                          "%s in %s: the database is damaged (%s); check it with "
                          "\"PRAGMA integrity_check\" and restore it from a backup",
                          doing, path, sqlite3_errmsg(db->sql));
    case SQLITE_NOMEM:
        return co_err_set(err, CO_ENOMEM, "%s in %s: out of memory", doing, path);
    default:
        return co_err_set(err, CO_ESOURCE, "%s in %s: %s", doing, path, sqlite3_errmsg(db->sql));
    }
}

/* ---- statements ---- */

const char *co_db_failed_table(const struct co_db_table *table)
{
    return table->config->failed_table[0] != '\0' ? table->config->failed_table : "failed_jobs";
}

static void expand(sqlite3_str *sql, const struct co_db_table *table, char what)
{
    switch (what) {
    case 'T':
        sqlite3_str_appendf(sql, "\"%w\"", table->config->table);
        break;
    case 'I':
        sqlite3_str_appendf(sql, "\"%w_queue_index\"", table->config->table);
        break;
    case 'F':
        sqlite3_str_appendf(sql, "\"%w\"", co_db_failed_table(table));
        break;
    case 'X':
        sqlite3_str_appendall(sql, table->extra);
        break;
    case 'K':
        sqlite3_str_appendall(sql, table->extra_kept);
        break;
    case 'U':
        sqlite3_str_appendall(sql, table->failed_uuid ? "uuid, " : "");
        break;
    case 'u':
        sqlite3_str_appendall(sql, table->failed_uuid ? "?6, " : "");
        break;
    default:
        abort(); /* No such mark. */
    }
}

char *co_db_fill_in(const struct co_db_table *table, const char *template)
{
    sqlite3_str *sql = sqlite3_str_new(NULL);

    for (const char *c = template; *c != '\0'; c++) {
        if (*c == '%') {
            expand(sql, table, *++c);
        } else {
            sqlite3_str_append(sql, c, 1);
        }
    }
    return sqlite3_str_finish(sql);
}

sqlite3_stmt *co_db_compile(struct co_db *db, const char *sql, struct co_err *err)
{
    sqlite3_stmt *stmt = NULL;

    if (sql == NULL) {
        co_err_set(err, CO_ENOMEM, "prepare a statement for %s: out of memory", db->path);
        return NULL;
    }
    if (sqlite3_prepare_v3(db->sql, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL) != SQLITE_OK) {
        co_db_fail(db, err, "prepare a statement");
        return NULL;
    }
    return stmt;
}

sqlite3_stmt *co_db_stmt(struct co_db *db, enum co_db_stmt stmt, struct co_err *err)
{
    if (db->stmts[stmt] == NULL) {
        db->stmts[stmt] = co_db_compile(db, db_sql[stmt], err);
    } else {
        sqlite3_reset(db->stmts[stmt]);
    }
    return db->stmts[stmt];
}

sqlite3_stmt *co_db_table_stmt(struct co_db *db, uint32_t table, enum co_db_table_stmt stmt,
                               struct co_err *err)
{
    struct co_db_table *t = &db->tables[table];

    assert(table < db->config.n_tables);
    if (t->stmts[stmt] == NULL) {
        char *sql = co_db_fill_in(t, table_sql[stmt]);
        t->stmts[stmt] = co_db_compile(db, sql, err);
        sqlite3_free(sql);
    } else {
        sqlite3_reset(t->stmts[stmt]);
    }
    return t->stmts[stmt];
}

static void bind(sqlite3_stmt *stmt, const char *types, va_list args)
{
    for (int i = 0; types[i] != '\0'; i++) {
        switch (types[i]) {
        case 'i':
            sqlite3_bind_int64(stmt, i + 1, va_arg(args, int64_t));
            break;
        case 't':
            sqlite3_bind_text(stmt, i + 1, va_arg(args, const char *), -1, SQLITE_STATIC);
            break;
        case 'n':
            sqlite3_bind_null(stmt, i + 1);
            break;
        default:
            abort(); /* No such type. */
        }
    }
}

int co_db_next(struct co_db *db, sqlite3_stmt *stmt, struct co_err *err)
{
    int code = sqlite3_step(stmt);

    if (code == SQLITE_ROW) {
        return 1;
    }
    if (code == SQLITE_DONE) {
        sqlite3_reset(stmt);
        return 0;
    }
    code = co_db_fail(db, err, sqlite3_stmt_readonly(stmt) ? "read" : "write");
    sqlite3_reset(stmt);
    return code;
}

int co_db_step(struct co_db *db, sqlite3_stmt *stmt, struct co_err *err, const char *types, ...)
{
    va_list args;

    if (stmt == NULL) {
        return err->code;
    }
    va_start(args, types);
    bind(stmt, types, args);
    va_end(args);
    return co_db_next(db, stmt, err);
}

int co_db_write(struct co_db *db, sqlite3_stmt *stmt, struct co_err *err, const char *types, ...)
{
    va_list args;

    if (stmt == NULL) {
        return err->code;
    }
    va_start(args, types);
    bind(stmt, types, args);
    va_end(args);
    int code = co_db_next(db, stmt, err);
    assert(code <= 0);
    return code < 0 ? code : sqlite3_changes(db->sql);
}

int co_db_exec(struct co_db *db, const char *sql, struct co_err *err)
{
    if (sql == NULL) {
        return co_err_set(err, CO_ENOMEM, "out of memory");
    }
    return sqlite3_exec(db->sql, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : co_db_fail(db, err, "prepare the tables");
}

int co_db_pragma(struct co_db *db, enum co_db_stmt stmt, int64_t *ret_value, struct co_err *err)
{
    sqlite3_stmt *s = co_db_stmt(db, stmt, err);
    int code = co_db_step(db, s, err, "");

    if (code < 0) {
        return code;
    }
    *ret_value = sqlite3_column_int64(s, 0);
    sqlite3_reset(s);
    return 0;
}

/* ---- begin and end ---- */

void co_db_init(struct co_db *db, const struct co_sqlite_config *config)
{
    memset(db, 0, sizeof *db);
    db->config = *config;
    snprintf(db->agent, sizeof db->agent, "%016" PRIx64, config->agent_id);
    db->lock_fd = -1;
    for (uint32_t i = 0; i < config->n_tables; i++) {
        db->tables[i].config = &db->config.tables[i];
    }
    co_holds_init(&db->holds);
}

void co_db_forget_table(struct co_db_table *table)
{
    for (int i = 0; i < CO_TABLE_STMTS; i++) {
        sqlite3_finalize(table->stmts[i]);
        table->stmts[i] = NULL;
    }
    sqlite3_free(table->extra);
    sqlite3_free(table->extra_kept);
    table->extra = table->extra_kept = NULL;
    table->extra_ready = false;
}

void co_db_close(struct co_db *db)
{
    for (uint32_t i = 0; i < db->config.n_tables; i++) {
        co_db_forget_table(&db->tables[i]);
    }
    for (int i = 0; i < CO_DB_STMTS; i++) {
        sqlite3_finalize(db->stmts[i]);
        db->stmts[i] = NULL;
    }
    sqlite3_close(db->sql);
    db->sql = NULL;
    db->n_queues = 0;
    db->depths_good = false;
}
