#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/source_sqlite_impl.h"

static bool may_create(const struct co_db *db)
{
    for (uint32_t i = 0; i < db->config.n_tables; i++) {
        if (!db->config.tables[i].plain) {
            return false;
        }
    }
    return db->config.n_tables > 0;
}

/* The directory's real name, for a file that does not exist yet. */
static int resolve_new(struct co_db *db, struct co_err *err)
{
    const char *slash = strrchr(db->config.path, '/');
    const char *name = slash == NULL ? db->config.path : slash + 1;
    char dir[CO_PATH_SIZE];

    snprintf(dir, sizeof dir, "%.*s", slash == NULL ? 1 : (int)(slash - db->config.path) + 1,
             slash == NULL ? "." : db->config.path);
    char *real = realpath(dir, NULL);
    if (real == NULL) {
        return co_err_sys(err, errno, "create the database %.300s", db->config.path);
    }
    int n = snprintf(db->path, sizeof db->path, "%s/%s", real, name);
    free(real);
    return n < (int)sizeof db->path
               ? 0
               : co_err_set(err, CO_ECONFIG, "the database path %.300s is too long", dir);
}

static int resolve(struct co_db *db, struct co_err *err)
{
    struct stat st;
    const char *path = db->config.path;

    if (stat(path, &st) != 0) {
        if (errno == ENOENT && may_create(db)) {
            return resolve_new(db, err);
        }
        if (errno == ENOENT) {
            return co_err_set(err, CO_ENOTFOUND,
                              "the database file %s does not exist: create it "
                              "(\"touch\" it and run \"php artisan migrate\"), or correct the "
                              "connection's database path (a relative one is the application's)",
                              path);
        }
        return co_err_sys(err, errno, "open the database %.300s", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return co_err_set(err, CO_ESOURCE, "the database %s is no regular file", path);
    }
    if (eaccess(path, R_OK | W_OK) != 0) {
        return co_err_sys(err, errno,
                          "open the database %.300s for reading and writing (make it "
                          "and its directory writable for user id %u)",
                          path, (unsigned)geteuid());
    }
    char *real = realpath(path, NULL);
    if (real == NULL || strlen(real) >= sizeof db->path) {
        int sys = real == NULL ? errno : ENAMETOOLONG;
        free(real);
        return co_err_sys(err, sys, "open the database %.300s", path);
    }
    snprintf(db->path, sizeof db->path, "%s", real);
    free(real);
    return 0;
}

/* SQLite's own busy timeout comes to wait 100 ms at a time, and whoever polls harder (a stock
 * worker) takes the lock every time. */
static int wait_for_lock(void *arg, int tries)
{
    struct co_db *db = arg;
    uint64_t now_us = co_db_clock_us();

    if (tries == 0) {
        db->busy_since_us = now_us;
    }
    if (now_us - db->busy_since_us >= (uint64_t)db->config.busy_timeout_ms * 1000u) {
        return 0;
    }
    usleep(tries < 10 ? 200 : 1000);
    return 1;
}

static int set_up(struct co_db *db, struct co_err *err)
{
    static const char *const modes[] = {"off", "normal", "full", "extra", "0", "1", "2", "3"};

    sqlite3_busy_handler(db->sql, wait_for_lock, db);
    int code = co_db_exec(db, "PRAGMA cache_size=-1024", err);
    for (size_t i = 0; code == 0 && i < sizeof modes / sizeof modes[0]; i++) {
        if (strcasecmp(db->config.synchronous, modes[i]) == 0) {
            char *sql = sqlite3_mprintf("PRAGMA synchronous=%s", modes[i]);
            code = co_db_exec(db, sql, err);
            sqlite3_free(sql);
        }
    }
    return code;
}

/* A file of our own starts in WAL; an application's stays as the application set it. */
static int make_wal(struct co_db *db, struct co_err *err)
{
    struct stat st;
    if (!may_create(db) || stat(db->path, &st) != 0 || st.st_size > 0) {
        return 0;
    }
    return co_db_exec(db, "PRAGMA journal_mode=WAL", err);
}

static int open_prepare(struct co_db *db, struct co_err *err)
{
    int code = co_db_write(db, co_db_stmt(db, CO_STMT_BEGIN, err), err, "");

    if (code < 0 || (code = co_schema_prepare(db, err)) < 0 ||
        (code = co_db_write(db, co_db_stmt(db, CO_STMT_COMMIT, err), err, "")) < 0) {
        return code;
    }
    return co_db_pragma(db, CO_STMT_DATA_VERSION, &db->data_version, err);
}

static int open_at(struct co_db *db, struct co_err *err)
{
    int flags =
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (may_create(db) ? SQLITE_OPEN_CREATE : 0);
    struct stat st;
    int code;

    if (sqlite3_open_v2(db->path, &db->sql, flags, NULL) != SQLITE_OK) {
        return co_db_fail(db, err, "open the database");
    }
    if ((code = set_up(db, err)) < 0 || (code = make_wal(db, err)) < 0) {
        return code;
    }
    if (sqlite3_db_readonly(db->sql, "main") == 1) {
        return co_err_set(err, CO_ESOURCE,
                          "the database %s can only be read; make it writable for "
                          "user id %u",
                          db->path, (unsigned)geteuid());
    }
    if ((code = co_lock_take(db, err)) < 0 || (code = open_prepare(db, err)) < 0) {
        return code;
    }
    if (stat(db->path, &st) != 0) {
        return co_err_sys(err, errno, "open the database %.300s", db->path);
    }
    db->dev = st.st_dev;
    db->ino = st.st_ino;
    return 0;
}

int co_open_file(struct co_db *db, struct co_err *err)
{
    struct stat st;
    int code;

    if (db->sql != NULL) {
        if (stat(db->config.path, &st) == 0 && st.st_ino == db->ino && st.st_dev == db->dev) {
            return 0;
        }
        co_db_close(db);
    }
    bool locked = db->lock_fd >= 0;
    code = resolve(db, err);
    if (code == 0) {
        db->reopened = true;
        code = open_at(db, err);
    }
    if (code < 0) {
        co_db_close(db);
        if (!locked) {
            co_lock_drop(db, true);
        }
    }
    return code;
}
