/* A rig for the tests of the SQLite source: a database in a directory of its own, sources on it,
 * and a second connection that plays the application, a stock worker or an operator. */

#ifndef CO_TESTS_SQLITE_RIG_H
#define CO_TESTS_SQLITE_RIG_H

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/source_sqlite.h"

#define RIG_DEADLINE_S 60
#define RIG_SOURCE 0x5151u

struct rig {
    char dir[64];
    char path[128];
    sqlite3 *other;
};

/* One agent's source; `turn` is what it asks next. */
struct rig_agent {
    struct co_sqlite_config config;
    struct co_sqlite *source;
    struct co_turn *turn;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool woken;
};

static inline void rig_sql(struct rig *rig, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *sql = sqlite3_vmprintf(fmt, args);
    va_end(args);
    if (sqlite3_exec(rig->other, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(rig->other));
    }
    sqlite3_free(sql);
}

/* The first column of the first row; INT64_MIN for NULL, -1 for no row. */
static inline int64_t rig_int(struct rig *rig, const char *fmt, ...)
{
    sqlite3_stmt *stmt;
    va_list args;
    va_start(args, fmt);
    char *sql = sqlite3_vmprintf(fmt, args);
    va_end(args);
    if (sqlite3_prepare_v2(rig->other, sql, -1, &stmt, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(rig->other));
    }
    int64_t value = -1;
    if (sqlite3_step(stmt) == SQLITE_ROW) {
        value =
            sqlite3_column_type(stmt, 0) == SQLITE_NULL ? INT64_MIN : sqlite3_column_int64(stmt, 0);
    }
    sqlite3_finalize(stmt);
    sqlite3_free(sql);
    return value;
}

#define RIG_JOBS                                                                          \
    "(\"id\" integer not null primary key autoincrement, \"queue\" varchar not null, "    \
    "\"payload\" text not null, \"attempts\" integer not null, \"reserved_at\" integer, " \
    "\"available_at\" integer not null, \"created_at\" integer not null)"

static inline void rig_migrate(struct rig *rig)
{
    rig_sql(rig, "CREATE TABLE \"jobs\"" RIG_JOBS);
    rig_sql(rig, "CREATE INDEX \"jobs_queue_index\" on \"jobs\" (\"queue\")");
}

static inline void rig_connect(struct rig *rig)
{
    assert_int_equal(sqlite3_open(rig->path, &rig->other), SQLITE_OK);
    sqlite3_busy_timeout(rig->other, RIG_DEADLINE_S * 1000);
}

/* journal: the application's mode, or NULL for a directory without a file. */
static inline void rig_init(struct rig *rig, const char *journal)
{
    memset(rig, 0, sizeof *rig);
    strcpy(rig->dir, "/tmp/co-sqlite-XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    snprintf(rig->path, sizeof rig->path, "%s/database.sqlite", rig->dir);
    if (journal != NULL) {
        rig_connect(rig);
        rig_sql(rig, "PRAGMA journal_mode=%s", journal);
        rig_sql(rig, "PRAGMA synchronous=off");
        rig_migrate(rig);
    }
}

static inline void rig_remove(const char *dir)
{
    struct dirent *entry;
    char path[1024];
    DIR *d = opendir(dir);

    while (d != NULL && (entry = readdir(d)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            snprintf(path, sizeof path, "%.700s/%s", dir, entry->d_name);
            if (unlink(path) != 0) {
                rig_remove(path);
            }
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    rmdir(dir);
}

static inline void rig_done(struct rig *rig)
{
    sqlite3_close(rig->other);
    rig_remove(rig->dir);
}

static inline void rig_wake(void *arg)
{
    struct rig_agent *agent = arg;
    pthread_mutex_lock(&agent->mutex);
    agent->woken = true;
    pthread_cond_signal(&agent->cond);
    pthread_mutex_unlock(&agent->mutex);
}

static inline void rig_agent_init(struct rig *rig, struct rig_agent *agent, uint64_t id)
{
    memset(agent, 0, sizeof *agent);
    pthread_mutex_init(&agent->mutex, NULL);
    pthread_cond_init(&agent->cond, NULL);
    struct co_sqlite_config *config = &agent->config;
    snprintf(config->path, sizeof config->path, "%s", rig->path);
    snprintf(config->run_dir, sizeof config->run_dir, "%s/run-%u", rig->dir, (unsigned)id);
    config->agent_id = id;
    config->max_payload_bytes = 64u << 20;
    config->busy_timeout_ms = 2000;
    strcpy(config->synchronous, "off");
    config->n_tables = 1;
    strcpy(config->tables[0].table, "jobs");
    strcpy(config->tables[0].connection, "database");
    config->tables[0].source = RIG_SOURCE;
    config->tables[0].retry_after_s = 90;
    config->wake = rig_wake;
    config->wake_arg = agent;
    agent->turn = co_turn_new();
    assert_non_null(agent->turn);
}

static inline void rig_submit(struct rig_agent *agent)
{
    struct co_err err;
    if (agent->source == NULL) {
        assert_int_equal(co_sqlite_open(&agent->config, &agent->source, &err), 0);
    }
    agent->woken = false;
    co_sqlite_submit(agent->source, agent->turn);
    agent->turn = NULL;
}

static inline struct co_turn *rig_await(struct rig_agent *agent)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += RIG_DEADLINE_S;
    pthread_mutex_lock(&agent->mutex);
    while (!agent->woken) {
        assert_int_equal(pthread_cond_timedwait(&agent->cond, &agent->mutex, &deadline), 0);
    }
    pthread_mutex_unlock(&agent->mutex);
    agent->turn = co_sqlite_take(agent->source);
    assert_non_null(agent->turn);
    return agent->turn;
}

/* Run the turn whatever comes of it. */
static inline struct co_turn *rig_try(struct rig_agent *agent)
{
    rig_submit(agent);
    return rig_await(agent);
}

static inline struct co_turn *rig_run(struct rig_agent *agent)
{
    struct co_turn *turn = rig_try(agent);
    if (turn->code != 0) {
        fail_msg("turn failed: %s", turn->err.msg);
    }
    return turn;
}

/* The process is gone: no bye. */
static inline void rig_agent_done(struct rig_agent *agent)
{
    co_sqlite_free(&agent->source);
    co_turn_free(&agent->turn);
    pthread_cond_destroy(&agent->cond);
    pthread_mutex_destroy(&agent->mutex);
}

static inline void rig_want(struct rig_agent *agent, const char *queue, uint32_t count)
{
    struct co_turn_want *want = &agent->turn->wants[agent->turn->n_wants++];
    memset(want, 0, sizeof *want);
    snprintf(want->name, sizeof want->name, "%s", queue);
    want->count = count;
    want->bytes = UINT64_MAX / 2;
    want->queue = agent->turn->n_wants;
}

static inline struct co_turn_settle *rig_settle(struct rig_agent *agent, int64_t job,
                                                int64_t reserved_at, enum co_outcome outcome)
{
    struct co_turn_settle *settle = &agent->turn->settles[agent->turn->n_settles++];
    memset(settle, 0, sizeof *settle);
    settle->job_id = job;
    settle->reserved_at = reserved_at;
    settle->outcome = outcome;
    settle->began = true;
    return settle;
}

static inline void rig_start(struct rig_agent *agent, int64_t job, int64_t reserved_at)
{
    struct co_turn_start *start = &agent->turn->starts[agent->turn->n_starts++];
    memset(start, 0, sizeof *start);
    start->job_id = job;
    start->reserved_at = reserved_at;
}

#define RIG_PAYLOAD                                                                            \
    "{\"uuid\":\"3f8a3e0e-0000-4000-8000-00000000000a\",\"displayName\":\"App\\\\Jobs\\\\A\"," \
    "\"job\":\"Illuminate\\\\Queue\\\\CallQueuedHandler@call\",\"data\":{}}"

/* Push as Laravel does; returns the id. */
static inline int64_t rig_push(struct rig *rig, const char *queue, int64_t delay)
{
    long long now = (long long)time(NULL);
    rig_sql(rig,
            "INSERT INTO jobs(queue,attempts,reserved_at,available_at,created_at,payload)"
            " VALUES(%Q,0,NULL,%lld,%lld,%Q)",
            queue, now + delay, now, RIG_PAYLOAD);
    return sqlite3_last_insert_rowid(rig->other);
}

/* Claim up to `count` of queue "default" in a turn of its own; returns how many. */
static inline uint32_t rig_claim(struct rig_agent *agent, uint32_t count)
{
    co_turn_reset(agent->turn);
    rig_want(agent, "default", count);
    rig_run(agent);
    return agent->turn->n_claims;
}

#endif /* CO_TESTS_SQLITE_RIG_H */
