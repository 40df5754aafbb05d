#include <assert.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/state_sqlite_impl.h"

/* Old rows go a few at a time: no transaction may take long. */
#define SWEEP_MAX 5000

static const char exit_sql[] =
    "INSERT INTO exits(at, pool, worker, pid, generation, reason, status, queue, job, job_id, uuid,"
    " cause, rss_bytes) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
static const char slow_sql[] =
    "INSERT INTO slow(at, pool, worker, job, seconds, stack) VALUES(?1, ?2, ?3, ?4, ?5, ?6)";
static const char minute_sql[] =
    "INSERT INTO minutes(minute, pool, connection, queue, job, done, failed, released, crashed,"
    " timeouts, run_sum_us, run_max_us, wait_sum_us)"
    " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
    " ON CONFLICT(minute, pool, connection, queue, job) DO UPDATE SET done=done+excluded.done,"
    " failed=failed+excluded.failed, released=released+excluded.released,"
    " crashed=crashed+excluded.crashed, timeouts=timeouts+excluded.timeouts,"
    " run_sum_us=run_sum_us+excluded.run_sum_us,"
    " run_max_us=max(run_max_us, excluded.run_max_us),"
    " wait_sum_us=wait_sum_us+excluded.wait_sum_us";
static const char pause_sql[] =
    "INSERT INTO pauses(queue, connection, \"by\", reason, since) VALUES(?1, ?2, ?3, ?4, ?5)"
    " ON CONFLICT(queue, connection) DO UPDATE SET \"by\"=excluded.\"by\", reason=excluded.reason,"
    " since=excluded.since";
static const char resume_sql[] = "DELETE FROM pauses WHERE queue=?1 AND connection=?2";

/* A transaction under way. The first failure decides; after it nothing more is done. */
struct write {
    struct co_state_file *file;
    struct co_err *err;
    sqlite3_stmt *stmt;
    int code;
};

static void fail(struct write *write)
{
    write->code = co_state_fail(write->file, write->file->sql, write->err, "write");
}

static void prepare(struct write *write, const char *sql)
{
    sqlite3_finalize(write->stmt);
    write->stmt = NULL;
    if (write->code == 0 &&
        sqlite3_prepare_v2(write->file->sql, sql, -1, &write->stmt, NULL) != SQLITE_OK) {
        fail(write);
    }
}

/* Bind by letter (i: int64_t, t: const char *, lent until it has run) and run. */
static void run(struct write *write, const char *types, ...)
{
    va_list args;

    if (write->code < 0) {
        return;
    }
    va_start(args, types);
    for (int i = 0; types[i] != '\0'; i++) {
        if (types[i] == 'i') {
            sqlite3_bind_int64(write->stmt, i + 1, va_arg(args, int64_t));
        } else {
            sqlite3_bind_text(write->stmt, i + 1, va_arg(args, const char *), -1, SQLITE_STATIC);
        }
    }
    va_end(args);
    if (sqlite3_step(write->stmt) != SQLITE_DONE) {
        fail(write);
    }
    sqlite3_reset(write->stmt);
}

static void write_exits(struct write *write, const struct co_state_note *note)
{
    prepare(write, exit_sql);
    for (; note != NULL; note = note->next) {
        const struct co_report_exit *exit = (const void *)note->data;
        run(write,
            "itiiitttttt"
            "ti",
            exit->at, exit->pool, (int64_t)exit->worker, (int64_t)exit->pid,
            (int64_t)exit->generation, exit->reason, exit->status, exit->queue, exit->job,
            exit->job_id, exit->uuid, exit->cause, (int64_t)exit->rss_bytes);
    }
    prepare(write, "DELETE FROM exits WHERE id<=(SELECT max(id) FROM exits)-?1");
    run(write, "i", (int64_t)CO_STATE_EXITS_MAX);
}

static void write_slow(struct write *write, const struct co_state_note *note)
{
    prepare(write, slow_sql);
    for (; note != NULL; note = note->next) {
        const struct co_report_slow *slow = (const void *)note->data;
        run(write, "ititit", slow->at, slow->pool, (int64_t)slow->worker, slow->job,
            (int64_t)slow->seconds, slow->stack);
    }
    prepare(write, "DELETE FROM slow WHERE id<=(SELECT max(id) FROM slow)-?1");
    run(write, "i", (int64_t)CO_STATE_SLOW_MAX);
}

static void sweep_minutes(struct write *write, co_unix newest)
{
    prepare(write,
            "DELETE FROM minutes WHERE id IN (SELECT id FROM minutes WHERE minute<?1"
            " ORDER BY minute LIMIT ?2)");
    run(write, "ii", newest - CO_STATE_MINUTES_S, (int64_t)SWEEP_MAX);
    prepare(write,
            "DELETE FROM minutes WHERE id IN (SELECT id FROM minutes WHERE"
            " id<=(SELECT max(id) FROM minutes)-?1 ORDER BY id LIMIT ?2)");
    run(write, "ii", (int64_t)CO_STATE_MINUTES_MAX, (int64_t)SWEEP_MAX);
}

static void write_minutes(struct write *write, const struct co_state_note *note)
{
    co_unix newest = 0;

    prepare(write, minute_sql);
    for (; note != NULL; note = note->next) {
        const struct co_report_minute *rows = (const void *)note->data;
        for (uint32_t i = 0; i < note->n; i++) {
            const struct co_report_minute *row = &rows[i];
            run(write, "ittttiiiiiiii", row->minute, row->pool, row->connection, row->queue,
                row->job, (int64_t)row->done, (int64_t)row->failed, (int64_t)row->released,
                (int64_t)row->crashed, (int64_t)row->timeouts, (int64_t)row->run_sum_us,
                (int64_t)row->run_max_us, (int64_t)row->wait_sum_us);
            newest = row->minute;
        }
    }
    sweep_minutes(write, newest);
}

static void write_words(struct write *write, const struct co_state_batch *batch)
{
    for (uint32_t i = 0; i < batch->n_words; i++) {
        const struct co_state_pause *pause = &batch->words[i].pause;
        if (batch->words[i].set) {
            prepare(write, pause_sql);
            run(write, "tttti", pause->queue, pause->connection, pause->by, pause->reason,
                pause->since);
        } else {
            prepare(write, resume_sql);
            run(write, "tt", pause->queue, pause->connection);
        }
    }
}

static void write_all(struct write *write, const struct co_state_batch *batch)
{
    /* The pauses first: they matter most. */
    write_words(write, batch);
    if (batch->first[CO_STATE_EXIT] != NULL) {
        write_exits(write, batch->first[CO_STATE_EXIT]);
    }
    if (batch->first[CO_STATE_SLOW] != NULL) {
        write_slow(write, batch->first[CO_STATE_SLOW]);
    }
    if (batch->first[CO_STATE_MINUTES] != NULL) {
        write_minutes(write, batch->first[CO_STATE_MINUTES]);
    }
}

int co_state_write(struct co_state_file *file, const struct co_state_batch *batch,
                   struct co_err *err)
{
    struct write write = {.file = file, .err = err};

    assert(file->sql != NULL);
    prepare(&write, "BEGIN IMMEDIATE");
    run(&write, "");
    write_all(&write, batch);
    prepare(&write, "COMMIT");
    run(&write, "");
    sqlite3_finalize(write.stmt);
    if (write.code < 0 && sqlite3_get_autocommit(file->sql) == 0) {
        sqlite3_exec(file->sql, "ROLLBACK", NULL, NULL, NULL);
    }
    return write.code;
}
