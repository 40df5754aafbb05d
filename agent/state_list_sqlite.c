#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/state_sqlite_impl.h"

#define BUSY_MS 1000

static void close_sql(sqlite3 **sql)
{
    sqlite3_close(*sql);
}

static void end_stmt(sqlite3_stmt **stmt)
{
    sqlite3_finalize(*stmt);
}

static int fail(const char *path, sqlite3 *sql, struct co_err *err)
{
    int sys = sqlite3_errcode(sql) & 0xff;
    int code = sys == SQLITE_BUSY                              ? CO_EAGAIN
               : sys == SQLITE_CORRUPT || sys == SQLITE_NOTADB ? CO_EMALFORMED
                                                               : CO_ESOURCE;
    return co_err_set(err, code, "read %s: %s", path, sqlite3_errmsg(sql));
}

/* A table that is not there has nothing in it. */
static bool is_missing(sqlite3 *sql)
{
    return strstr(sqlite3_errmsg(sql), "no such table") != NULL;
}

/* A path as a URI, whatever its bytes; SQLite's memory. */
static char *make_uri(const char *path)
{
    sqlite3_str *uri = sqlite3_str_new(NULL);

    sqlite3_str_appendall(uri, path[0] == '/' ? "file://" : "file:");
    for (const char *c = path; *c != '\0'; c++) {
        if (*c == '%' || *c == '?' || *c == '#') {
            sqlite3_str_appendf(uri, "%%%02X", *c);
        } else {
            sqlite3_str_append(uri, c, 1);
        }
    }
    sqlite3_str_appendall(uri, "?immutable=1");
    return sqlite3_str_finish(uri);
}

/* On a disk that can only be read SQLite cannot make the files beside a database in WAL mode.
 * Without a journal the database is whole, and nobody can be writing. */
static int open_immutable(const char *path, sqlite3 **ret_sql)
{
    char wal[CO_PATH_SIZE + 8];
    char *uri = make_uri(path);
    int code = SQLITE_CANTOPEN;

    snprintf(wal, sizeof wal, "%s-wal", path);
    if (uri != NULL && access(wal, F_OK) != 0) {
        sqlite3_close(*ret_sql);
        *ret_sql = NULL;
        code = sqlite3_open_v2(uri, ret_sql,
                               SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI, NULL);
    }
    sqlite3_free(uri);
    return code;
}

/* Does a first read work? */
static int probe(sqlite3 *sql)
{
    return sqlite3_exec(sql, "SELECT 1 FROM sqlite_master LIMIT 1", NULL, NULL, NULL);
}

static int open_file(const char *path, sqlite3 **ret_sql, struct co_err *err)
{
    if (access(path, F_OK) != 0) {
        return co_err_set(err, CO_ENOTFOUND,
                          "there is no %s yet; the agent makes it when it can write there", path);
    }
    int code = sqlite3_open_v2(path, ret_sql, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
    if (code == SQLITE_OK) {
        sqlite3_busy_timeout(*ret_sql, BUSY_MS);
        code = probe(*ret_sql);
    }
    bool no_journal = (code & 0xff) == SQLITE_CANTOPEN || (code & 0xff) == SQLITE_READONLY;
    if (no_journal && open_immutable(path, ret_sql) == SQLITE_OK) {
        code = probe(*ret_sql);
    }
    return code == SQLITE_OK ? 0 : fail(path, *ret_sql, err);
}

/* ---- rows ---- */

static void text(char *buf, size_t size, sqlite3_stmt *row, int column)
{
    const char *value = (const char *)sqlite3_column_text(row, column);
    snprintf(buf, size, "%s", value != NULL ? value : "");
}
#define TEXT(member, column) text(member, sizeof(member), row, column)

static uint64_t count(sqlite3_stmt *row, int column)
{
    return (uint64_t)sqlite3_column_int64(row, column);
}

static void read_exit(void *list, uint32_t i, sqlite3_stmt *row)
{
    struct co_report_exit *exit = &((struct co_report_exit *)list)[i];

    exit->id = sqlite3_column_int64(row, 0);
    exit->at = sqlite3_column_int64(row, 1);
    TEXT(exit->pool, 2);
    exit->worker = (uint32_t)count(row, 3);
    exit->pid = sqlite3_column_int(row, 4);
    exit->generation = (uint32_t)count(row, 5);
    TEXT(exit->reason, 6);
    TEXT(exit->status, 7);
    TEXT(exit->queue, 8);
    TEXT(exit->job, 9);
    TEXT(exit->job_id, 10);
    TEXT(exit->uuid, 11);
    TEXT(exit->cause, 12);
    exit->rss_bytes = count(row, 13);
}

static void read_minute(void *list, uint32_t i, sqlite3_stmt *row)
{
    struct co_report_minute *minute = &((struct co_report_minute *)list)[i];

    minute->minute = sqlite3_column_int64(row, 0);
    TEXT(minute->pool, 1);
    TEXT(minute->connection, 2);
    TEXT(minute->queue, 3);
    TEXT(minute->job, 4);
    minute->done = count(row, 5);
    minute->failed = count(row, 6);
    minute->released = count(row, 7);
    minute->crashed = count(row, 8);
    minute->timeouts = count(row, 9);
    minute->run_sum_us = count(row, 10);
    minute->run_max_us = count(row, 11);
    minute->wait_sum_us = count(row, 12);
}

static void read_slow(void *list, uint32_t i, sqlite3_stmt *row)
{
    struct co_report_slow *slow = &((struct co_report_slow *)list)[i];

    slow->id = sqlite3_column_int64(row, 0);
    slow->at = sqlite3_column_int64(row, 1);
    TEXT(slow->pool, 2);
    slow->worker = (uint32_t)count(row, 3);
    TEXT(slow->job, 4);
    slow->seconds = (uint32_t)count(row, 5);
    TEXT(slow->stack, 6);
}

static void read_pause(void *list, uint32_t i, sqlite3_stmt *row)
{
    struct co_state_pause *pause = &((struct co_state_pause *)list)[i];

    TEXT(pause->queue, 0);
    TEXT(pause->connection, 1);
    TEXT(pause->by, 2);
    TEXT(pause->reason, 3);
    pause->since = sqlite3_column_int64(row, 4);
}

/* ---- lists ---- */

struct list {
    const char *path;
    const char *sql; /* ?1: at most so many, ?2: since, ?3: pool, ?4: queue. */
    const struct co_state_query *query;
    void (*read)(void *list, uint32_t i, sqlite3_stmt *row);
    void *into;
    uint32_t max;
};

static void bind(sqlite3_stmt *stmt, const struct list *list)
{
    const struct co_state_query *query = list->query;

    /* What a statement does not ask for cannot be bound, and need not be. */
    sqlite3_bind_int64(stmt, 1, list->max);
    sqlite3_bind_int64(stmt, 2, query != NULL ? query->since : 0);
    sqlite3_bind_text(stmt, 3, query != NULL ? query->pool : NULL, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 4, query != NULL ? query->queue : NULL, -1, SQLITE_STATIC);
}

static int read_list(const struct list *list, uint32_t *ret_n, struct co_err *err)
{
    __attribute__((cleanup(close_sql))) sqlite3 *sql = NULL;
    __attribute__((cleanup(end_stmt))) sqlite3_stmt *row = NULL;
    uint32_t n = 0;
    int code = open_file(list->path, &sql, err);

    if (code < 0) {
        return code;
    }
    if (sqlite3_prepare_v2(sql, list->sql, -1, &row, NULL) != SQLITE_OK) {
        if (!is_missing(sql)) {
            return fail(list->path, sql, err);
        }
        *ret_n = 0;
        return 0;
    }
    bind(row, list);
    while ((code = sqlite3_step(row)) == SQLITE_ROW) {
        list->read(list->into, n++, row);
    }
    if (code != SQLITE_DONE) {
        return fail(list->path, sql, err);
    }
    *ret_n = n;
    return 0;
}

int co_state_exits_list(const char *path, const struct co_state_query *query,
                        struct co_report_exit *ret_list, uint32_t max, uint32_t *ret_n,
                        struct co_err *err)
{
    struct list list = {path,
                        "SELECT id, at, pool, worker, pid, generation, reason, status, queue, job,"
                        " job_id, uuid, cause, rss_bytes FROM exits WHERE at>=?2 AND"
                        " (?3 IS NULL OR pool=?3) AND (?4 IS NULL OR queue=?4)"
                        " ORDER BY id DESC LIMIT ?1",
                        query,
                        read_exit,
                        ret_list,
                        max};
    return read_list(&list, ret_n, err);
}

int co_state_minutes_list(const char *path, const struct co_state_query *query,
                          struct co_report_minute *ret_list, uint32_t max, uint32_t *ret_n,
                          struct co_err *err)
{
    struct list list = {path,
                        "SELECT minute, pool, connection, queue, job, done, failed, released,"
                        " crashed, timeouts, run_sum_us, run_max_us, wait_sum_us FROM minutes"
                        " WHERE minute>=?2 AND (?3 IS NULL OR pool=?3) AND"
                        " (?4 IS NULL OR queue=?4)"
                        " ORDER BY minute DESC, pool, connection, queue, job LIMIT ?1",
                        query,
                        read_minute,
                        ret_list,
                        max};
    return read_list(&list, ret_n, err);
}

int co_state_slow_list(const char *path, const struct co_state_query *query,
                       struct co_report_slow *ret_list, uint32_t max, uint32_t *ret_n,
                       struct co_err *err)
{
    struct list list = {path,
                        "SELECT id, at, pool, worker, job, seconds, stack FROM slow WHERE at>=?2"
                        " AND (?3 IS NULL OR pool=?3) ORDER BY id DESC LIMIT ?1",
                        query,
                        read_slow,
                        ret_list,
                        max};
    return read_list(&list, ret_n, err);
}

int co_state_pauses_list(const char *path, struct co_state_pause *ret_list, uint32_t max,
                         uint32_t *ret_n, struct co_err *err)
{
    struct list list = {path,
                        "SELECT queue, connection, \"by\", reason, since FROM pauses"
                        " ORDER BY since, queue, connection LIMIT ?1",
                        NULL,
                        read_pause,
                        ret_list,
                        max};
    return read_list(&list, ret_n, err);
}
