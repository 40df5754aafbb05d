#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/state_sqlite_impl.h"

#define BUSY_STEP_US 2000

/* One step for each version of the tables. A step only adds, and what it adds has a default:
 * agents of the version before write to the same file. */
static const char *const steps[] = {
    "CREATE TABLE exits(id INTEGER PRIMARY KEY, at INTEGER NOT NULL, pool TEXT NOT NULL,"
    " worker INTEGER NOT NULL, pid INTEGER NOT NULL, generation INTEGER NOT NULL,"
    " reason TEXT NOT NULL, status TEXT NOT NULL, queue TEXT NOT NULL, job TEXT NOT NULL,"
    " job_id TEXT NOT NULL, uuid TEXT NOT NULL, cause TEXT NOT NULL, rss_bytes INTEGER NOT NULL);"
    "CREATE TABLE minutes(id INTEGER PRIMARY KEY, minute INTEGER NOT NULL, pool TEXT NOT NULL,"
    " connection TEXT NOT NULL, queue TEXT NOT NULL, job TEXT NOT NULL, done INTEGER NOT NULL,"
    " failed INTEGER NOT NULL, released INTEGER NOT NULL, crashed INTEGER NOT NULL,"
    " timeouts INTEGER NOT NULL, run_sum_us INTEGER NOT NULL, run_max_us INTEGER NOT NULL,"
    " wait_sum_us INTEGER NOT NULL, UNIQUE(minute, pool, connection, queue, job));"
    "CREATE TABLE slow(id INTEGER PRIMARY KEY, at INTEGER NOT NULL, pool TEXT NOT NULL,"
    " worker INTEGER NOT NULL, job TEXT NOT NULL, seconds INTEGER NOT NULL, stack TEXT NOT NULL);"
    "CREATE TABLE pauses(queue TEXT NOT NULL, connection TEXT NOT NULL, \"by\" TEXT NOT NULL,"
    " reason TEXT NOT NULL, since INTEGER NOT NULL, PRIMARY KEY(queue, connection));",
};
#define STEPS ((int)(sizeof steps / sizeof steps[0]))

uint64_t co_state_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

static int fail_disk(const struct co_state_file *file, sqlite3 *sql, struct co_err *err,
                     const char *doing)
{
    int sys = sqlite3_system_errno(sql);
    return co_err_set(err, CO_ESOURCE,
                      "%s %s: %s%s%s; free space on its file system or check the disk; the agent "
                      "goes on, and what it notes meanwhile waits",
                      doing, file->path, sqlite3_errmsg(sql), sys != 0 ? ": " : "",
                      sys != 0 ? strerror(sys) : "");
}

int co_state_fail(struct co_state_file *file, sqlite3 *sql, struct co_err *err, const char *doing)
{
    const char *path = file->path;

    file->corrupt = false;
    switch (sqlite3_errcode(sql) & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return co_err_set(err, CO_EAGAIN,
                          "%s %s: locked by another process for more than %d ms; end whoever holds "
                          "it open; the agent goes on, and what it notes meanwhile waits",
                          doing, path, CO_STATE_BUSY_MS);
    case SQLITE_FULL:
    case SQLITE_IOERR:
        return fail_disk(file, sql, err, doing);
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        return co_err_set(err, CO_ESOURCE,
                          "%s %s: %s; make the file and its directory writable for user id %u; the "
                          "agent goes on, and what it notes meanwhile waits",
                          doing, path, sqlite3_errmsg(sql), (unsigned)geteuid());
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        file->corrupt = true;
        return co_err_set(err, CO_ESOURCE, "%s %s: the file is damaged (%s)", doing, path,
                          sqlite3_errmsg(sql));
    case SQLITE_NOMEM:
        return co_err_set(err, CO_ENOMEM, "%s %s: out of memory", doing, path);
    default:
        return co_err_set(err, CO_ESOURCE, "%s %s: %s", doing, path, sqlite3_errmsg(sql));
    }
}

static int wait_for_lock(void *arg, int tries)
{
    struct co_state_file *file = arg;
    uint64_t now = co_state_clock_ms();
    uint64_t until = atomic_load(&file->until);

    if (tries == 0) {
        file->busy_since = now;
    }
    if (now - file->busy_since >= CO_STATE_BUSY_MS || (until != 0 && now >= until)) {
        return 0;
    }
    usleep(BUSY_STEP_US);
    return 1;
}

static int exec(struct co_state_file *file, const char *sql, struct co_err *err)
{
    return sqlite3_exec(file->sql, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : co_state_fail(file, file->sql, err, "prepare");
}

static int get_version(struct co_state_file *file, int *ret_version, struct co_err *err)
{
    sqlite3_stmt *stmt = NULL;
    int code = 0;

    if (sqlite3_prepare_v2(file->sql, "PRAGMA user_version", -1, &stmt, NULL) != SQLITE_OK ||
        sqlite3_step(stmt) != SQLITE_ROW) {
        code = co_state_fail(file, file->sql, err, "read");
    } else {
        *ret_version = sqlite3_column_int(stmt, 0);
    }
    sqlite3_finalize(stmt);
    return code;
}

static int take_step(struct co_state_file *file, int step, struct co_err *err)
{
    char version[40];
    int code = exec(file, steps[step], err);

    snprintf(version, sizeof version, "PRAGMA user_version=%d", step + 1);
    return code < 0 ? code : exec(file, version, err);
}

/* A newer file is used as it is. */
static int migrate(struct co_state_file *file, bool *ret_fresh, struct co_err *err)
{
    int version = 0;
    int code = get_version(file, &version, err);

    if (code < 0 || version >= STEPS) {
        return code;
    }
    if ((code = exec(file, "BEGIN IMMEDIATE", err)) < 0 ||
        (code = get_version(file, &version, err)) < 0) {
        return code;
    }
    *ret_fresh = *ret_fresh || version == 0;
    for (int step = version; step < STEPS; step++) {
        if ((code = take_step(file, step, err)) < 0) {
            return code;
        }
    }
    return exec(file, "COMMIT", err);
}

/* SQLite gives its -wal and -shm files the mode of the database. Opening an existing file here
 * would drop the locks of this process's other connections to it, so its mode is changed by name.
 */
static void make_private(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd >= 0) {
        close(fd);
    } else if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 077) != 0) {
        /* Somebody else's file is for the operator to mind. */
        (void)!chmod(path, st.st_mode & 0700);
    }
}

static bool is_the_one_open(const struct co_state_file *file)
{
    struct stat st;
    return stat(file->path, &st) == 0 && st.st_ino == file->ino && st.st_dev == file->dev;
}

static int open_new(struct co_state_file *file, bool *ret_fresh, struct co_err *err)
{
    struct stat st;
    int code;

    make_private(file->path);
    if (sqlite3_open_v2(file->path, &file->sql,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK) {
        return co_state_fail(file, file->sql, err, "open");
    }
    sqlite3_busy_handler(file->sql, wait_for_lock, file);
    if (sqlite3_db_readonly(file->sql, "main") == 1) {
        return co_err_set(err, CO_ESOURCE,
                          "open %s: it can only be read; make the file and its directory writable "
                          "for user id %u; the agent goes on, and what it notes meanwhile waits",
                          file->path, (unsigned)geteuid());
    }
    if ((code = exec(file,
                     "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
                     "PRAGMA journal_size_limit=4194304; PRAGMA cache_size=-1024",
                     err)) < 0 ||
        (code = migrate(file, ret_fresh, err)) < 0) {
        return code;
    }
    if (stat(file->path, &st) != 0) {
        return co_err_sys(err, errno, "open %.300s", file->path);
    }
    *ret_fresh = *ret_fresh || st.st_ino != file->ino || st.st_dev != file->dev;
    file->dev = st.st_dev;
    file->ino = st.st_ino;
    return 0;
}

int co_state_file_open(struct co_state_file *file, bool *ret_fresh, struct co_err *err)
{
    file->corrupt = false;
    if (file->sql != NULL && is_the_one_open(file)) {
        return 0;
    }
    co_state_file_close(file);
    int code = open_new(file, ret_fresh, err);
    if (code < 0) {
        co_state_file_close(file);
    }
    return code;
}

void co_state_file_close(struct co_state_file *file)
{
    sqlite3_close(file->sql);
    file->sql = NULL;
}

bool co_state_file_aside(struct co_state_file *file, char *ret_name, size_t size)
{
    char from[CO_PATH_SIZE + 8];
    char to[CO_PATH_SIZE + 48];
    struct stat st;
    long long stamp = (long long)time(NULL);

    if (file->aside >= CO_STATE_ASIDE_MAX) {
        return false;
    }
    co_state_file_close(file);
    do {
        snprintf(to, sizeof to, "%s.corrupt-%lld", file->path, stamp++);
    } while (lstat(to, &st) == 0);
    if (rename(file->path, to) != 0) {
        return false;
    }
    file->aside++;
    snprintf(ret_name, size, "%s", to);
    /* What its journal holds belongs to it; a new file must not meet it. */
    snprintf(from, sizeof from, "%s-wal", file->path);
    snprintf(to, sizeof to, "%.*s-wal", (int)sizeof to - 5, ret_name);
    (void)!rename(from, to);
    snprintf(from, sizeof from, "%s-shm", file->path);
    unlink(from);
    return true;
}
