#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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
    " losses INTEGER NOT NULL, PRIMARY KEY(job, tbl)) WITHOUT ROWID;";

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
    [CO_STMT_LOSS_DROP] = "DELETE FROM cohort_losses WHERE job=?1 AND tbl=?2",
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

static const char *failed_table(const struct co_db_table *table)
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
        sqlite3_str_appendf(sql, "\"%w\"", failed_table(table));
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
        assert(!"unknown mark in a statement");
    }
}

/* malloc'd by SQLite; NULL when out of memory. */
static char *fill_in(const struct co_db_table *table, const char *template)
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

static sqlite3_stmt *prepare(struct co_db *db, const char *sql, struct co_err *err)
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
        db->stmts[stmt] = prepare(db, db_sql[stmt], err);
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
        char *sql = fill_in(t, table_sql[stmt]);
        t->stmts[stmt] = prepare(db, sql, err);
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
            assert(!"unknown type to bind");
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

/* ---- lock file ---- */

void co_db_lock_path(const struct co_db *db, const char *agent, char *buf, size_t size)
{
    snprintf(buf, size, "%s-cohort-%s", db->path, agent);
}

static bool lock_stands(const struct co_db *db, const char *path)
{
    struct stat at, of;
    return db->lock_fd >= 0 && strcmp(path, db->lock_path) == 0 && stat(path, &at) == 0 &&
           fstat(db->lock_fd, &of) == 0 && at.st_ino == of.st_ino && at.st_dev == of.st_dev;
}

int co_db_lock(struct co_db *db, struct co_err *err)
{
    char path[sizeof db->lock_path];

    co_db_lock_path(db, db->agent, path, sizeof path);
    if (lock_stands(db, path)) {
        return 0;
    }
    co_db_unlock(db, false);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return co_err_sys(err, errno,
                          "create lock file %.300s (the database's directory must be "
                          "writable for user id %u, SQLite needs that as well)",
                          path, (unsigned)geteuid());
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return co_err_set(err, CO_EBUSY,
                          "lock %s: another process holds it; two agents cannot have "
                          "one id",
                          path);
    }
    snprintf(db->lock_path, sizeof db->lock_path, "%s", path);
    db->lock_fd = fd;
    return 0;
}

void co_db_unlock(struct co_db *db, bool remove)
{
    if (db->lock_fd < 0) {
        return;
    }
    if (remove) {
        unlink(db->lock_path);
    }
    close(db->lock_fd);
    db->lock_fd = -1;
}

/* ---- schema ---- */

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
    sqlite3_stmt *stmt = prepare(db, sql, err);
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

static void drop_table(struct co_db_table *table)
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
    int code =
        read_columns(db, failed_table(table), ",connection,queue,payload,exception,failed_at,",
                     &columns, &known, NULL, NULL, err);
    if (code < 0) {
        return code;
    }
    table->failed_exists = known == 5;
    code = read_columns(db, failed_table(table), ",uuid,", &columns, &uuid, NULL, NULL, err);
    table->failed_uuid = uuid == 1;
    return code;
}

static int prepare_table(struct co_db *db, struct co_db_table *table, struct co_err *err)
{
    drop_table(table);
    if (table->config->plain) {
        char *sql = fill_in(table, plain_jobs);
        int code = co_db_exec(db, sql, err);
        sqlite3_free(sql);
        if (code < 0) {
            return code;
        }
    }
    int code = detect_jobs(db, table, err);
    return code < 0 ? code : detect_failed(db, table, err);
}

static int note_agent(struct co_db *db, struct co_err *err)
{
    return co_db_write(db, co_db_stmt(db, CO_STMT_AGENT_PUT, err), err, "tti", db->agent,
                       db->config.run_dir, (int64_t)time(NULL));
}

int co_db_prepare(struct co_db *db, struct co_err *err)
{
    int code = 0;

    for (uint32_t i = 0; i < db->config.n_tables && code >= 0; i++) {
        code = prepare_table(db, &db->tables[i], err);
    }
    if (code < 0 || (code = co_db_exec(db, side_tables, err)) < 0 ||
        (code = note_agent(db, err)) < 0 || (code = co_settle_heal(db, err)) < 0) {
        return code;
    }
    co_claim_forget(db);
    return co_db_pragma(db, CO_STMT_SCHEMA_VERSION, &db->schema_version, err);
}

/* ---- open ---- */

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

static int set_up(struct co_db *db, struct co_err *err)
{
    static const char *const modes[] = {"off", "normal", "full", "extra", "0", "1", "2", "3"};

    sqlite3_busy_timeout(db->sql, (int)db->config.busy_timeout_ms);
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

    if (code < 0 || (code = co_db_prepare(db, err)) < 0 ||
        (code = co_db_write(db, co_db_stmt(db, CO_STMT_COMMIT, err), err, "")) < 0) {
        return code;
    }
    return co_db_pragma(db, CO_STMT_DATA_VERSION, &db->data_version, err);
}

static int open_file(struct co_db *db, struct co_err *err)
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
    if ((code = co_db_lock(db, err)) < 0 || (code = open_prepare(db, err)) < 0) {
        return code;
    }
    if (stat(db->path, &st) != 0) {
        return co_err_sys(err, errno, "open the database %.300s", db->path);
    }
    db->dev = st.st_dev;
    db->ino = st.st_ino;
    return 0;
}

int co_db_open(struct co_db *db, struct co_err *err)
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
        code = open_file(db, err);
    }
    if (code < 0) {
        co_db_close(db);
        if (!locked) {
            co_db_unlock(db, true);
        }
    }
    return code;
}

void co_db_close(struct co_db *db)
{
    for (uint32_t i = 0; i < db->config.n_tables; i++) {
        drop_table(&db->tables[i]);
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
