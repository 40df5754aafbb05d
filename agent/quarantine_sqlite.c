#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/source_sqlite_impl.h"

#define BUSY_MS 5000

static int fail(sqlite3 *sql, const char *path, const char *doing, struct co_err *err)
{
    int busy = (sqlite3_errcode(sql) & 0xff) == SQLITE_BUSY;
    return co_err_set(err, busy ? CO_EAGAIN : CO_ESOURCE, "%s the quarantine of %s: %s", doing,
                      path, sqlite3_errmsg(sql));
}

static int open_file(const char *path, int flags, sqlite3 **ret_sql, struct co_err *err)
{
    sqlite3 *sql = NULL;

    if (sqlite3_open_v2(path, &sql, flags | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        int code = fail(sql, path, "open", err);
        sqlite3_close(sql);
        return code;
    }
    sqlite3_busy_timeout(sql, BUSY_MS);
    *ret_sql = sql;
    return 0;
}

static void close_file(sqlite3 **sql)
{
    sqlite3_close(*sql);
}

static void end_stmt(sqlite3_stmt **stmt)
{
    sqlite3_finalize(*stmt);
}

/* A table that is not there is an empty quarantine. */
static bool is_missing(sqlite3 *sql)
{
    return strstr(sqlite3_errmsg(sql), "no such table") != NULL;
}

static void copy_text(char *buf, size_t size, sqlite3_stmt *row, int column)
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    snprintf(buf, size, "%s", text != NULL ? text : "");
}

int co_sqlite_quarantine_list(const char *path, struct co_quarantined *ret_list, uint32_t max,
                              uint32_t *ret_n, struct co_err *err)
{
    __attribute__((cleanup(close_file))) sqlite3 *sql = NULL;
    __attribute__((cleanup(end_stmt))) sqlite3_stmt *row = NULL;
    uint32_t n = 0;
    int code = open_file(path, SQLITE_OPEN_READONLY, &sql, err);

    if (code < 0) {
        return code;
    }
    if (sqlite3_prepare_v2(sql,
                           "SELECT id, queue, reason, since, length(CAST(payload AS BLOB))"
                           " FROM cohort_quarantine ORDER BY id",
                           -1, &row, NULL)) {
        if (!is_missing(sql)) {
            return fail(sql, path, "read", err);
        }
        *ret_n = 0;
        return 0;
    }
    while (n < max && (code = sqlite3_step(row)) == SQLITE_ROW) {
        struct co_quarantined *q = &ret_list[n++];
        q->id = sqlite3_column_int64(row, 0);
        copy_text(q->queue, sizeof q->queue, row, 1);
        copy_text(q->reason, sizeof q->reason, row, 2);
        q->since = sqlite3_column_int64(row, 3);
        q->payload_size = (uint64_t)sqlite3_column_int64(row, 4);
    }
    if (n < max && code != SQLITE_DONE) {
        return fail(sql, path, "read", err);
    }
    *ret_n = n;
    return 0;
}

static int not_there(const char *path, int64_t id, struct co_err *err)
{
    return co_err_set(err, CO_ENOTFOUND,
                      "there is no quarantined job %lld in %s; see \"cohort "
                      "failed list --quarantined\"",
                      (long long)id, path);
}

static int exec(sqlite3 *sql, const char *path, const char *statement, const char *doing,
                struct co_err *err)
{
    return sqlite3_exec(sql, statement, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : fail(sql, path, doing, err);
}

/* Delete the row: 1 when it was there. */
static int delete_row(sqlite3 *sql, const char *path, int64_t id, struct co_err *err)
{
    __attribute__((cleanup(end_stmt))) sqlite3_stmt *stmt = NULL;

    if (sqlite3_prepare_v2(sql, "DELETE FROM cohort_quarantine WHERE id=?1", -1, &stmt, NULL)) {
        return is_missing(sql) ? 0 : fail(sql, path, "write", err);
    }
    sqlite3_bind_int64(stmt, 1, id);
    return sqlite3_step(stmt) == SQLITE_DONE ? sqlite3_changes(sql) : fail(sql, path, "write", err);
}

int co_sqlite_quarantine_forget(const char *path, int64_t id, struct co_err *err)
{
    __attribute__((cleanup(close_file))) sqlite3 *sql = NULL;
    int code = open_file(path, SQLITE_OPEN_READWRITE, &sql, err);

    if (code < 0 || (code = delete_row(sql, path, id, err)) < 0) {
        return code;
    }
    return code == 1 ? 0 : not_there(path, id, err);
}

/* The name of the table the job came from; SQLite's memory, or NULL. */
static int find_table(sqlite3 *sql, const char *path, int64_t id, char **ret_table,
                      struct co_err *err)
{
    __attribute__((cleanup(end_stmt))) sqlite3_stmt *row = NULL;

    if (sqlite3_prepare_v2(sql, "SELECT tbl FROM cohort_quarantine WHERE id=?1", -1, &row, NULL)) {
        return is_missing(sql) ? not_there(path, id, err) : fail(sql, path, "read", err);
    }
    sqlite3_bind_int64(row, 1, id);
    int code = sqlite3_step(row);
    if (code == SQLITE_ROW) {
        *ret_table = sqlite3_mprintf("%s", (const char *)sqlite3_column_text(row, 0));
        return 0;
    }
    return code == SQLITE_DONE ? not_there(path, id, err) : fail(sql, path, "read", err);
}

/* The application's own columns that both tables have: `, "tenant"` and `, "x_tenant"`. */
static int list_extra(sqlite3 *sql, const char *path, const char *table, sqlite3_str *jobs,
                      sqlite3_str *kept, struct co_err *err)
{
    __attribute__((cleanup(end_stmt))) sqlite3_stmt *row = NULL;

    if (sqlite3_prepare_v2(sql,
                           "SELECT j.name FROM pragma_table_info(?1) j JOIN"
                           " pragma_table_info('cohort_quarantine') q ON q.name='x_'||j.name",
                           -1, &row, NULL)) {
        return fail(sql, path, "read", err);
    }
    sqlite3_bind_text(row, 1, table, -1, SQLITE_STATIC);
    while (sqlite3_step(row) == SQLITE_ROW) {
        sqlite3_str_appendf(jobs, ", \"%w\"", sqlite3_column_text(row, 0));
        sqlite3_str_appendf(kept, ", \"x_%w\"", sqlite3_column_text(row, 0));
    }
    return 0;
}

static int insert_job(sqlite3 *sql, const char *path, int64_t id, const char *table,
                      struct co_err *err)
{
    sqlite3_str *jobs = sqlite3_str_new(NULL);
    sqlite3_str *kept = sqlite3_str_new(NULL);
    int code = list_extra(sql, path, table, jobs, kept, err);
    char *into = sqlite3_str_finish(jobs);
    char *from = sqlite3_str_finish(kept);
    long long now = (long long)time(NULL);
    char *insert = sqlite3_mprintf(
        "INSERT INTO \"%w\"(queue, payload, attempts, reserved_at, available_at, created_at%s)"
        " SELECT queue, payload, 0, NULL, %lld, %lld%s FROM cohort_quarantine WHERE id=%lld",
        table, into != NULL ? into : "", now, now, from != NULL ? from : "", (long long)id);

    if (code == 0) {
        code = insert == NULL ? co_err_set(err, CO_ENOMEM, "retry: out of memory")
                              : exec(sql, path, insert, "put back a job from", err);
    }
    sqlite3_free(into);
    sqlite3_free(from);
    sqlite3_free(insert);
    return code;
}

int co_sqlite_quarantine_retry(const char *path, int64_t id, struct co_err *err)
{
    __attribute__((cleanup(close_file))) sqlite3 *sql = NULL; /* Closing rolls back. */
    char *table = NULL;
    int code = open_file(path, SQLITE_OPEN_READWRITE, &sql, err);

    if (code < 0 || (code = exec(sql, path, "BEGIN IMMEDIATE", "write", err)) < 0 ||
        (code = find_table(sql, path, id, &table, err)) < 0) {
        return code;
    }
    code = insert_job(sql, path, id, table, err);
    sqlite3_free(table);
    if (code < 0 || (code = delete_row(sql, path, id, err)) < 0) {
        return code;
    }
    return exec(sql, path, "COMMIT", "write", err);
}
