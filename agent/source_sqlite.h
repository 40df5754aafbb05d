/* A Laravel `database` queue on SQLite (or the plain-PHP queue.db): one file, one writer thread.
 *
 * The thread owns the connection; the loop and the thread share nothing but the turn handed over
 * (CONVENTIONS 9). Every turn is one BEGIN IMMEDIATE transaction, or none when it only looks.
 * Layout and statements follow Laravel 8.83 to 13 (columns are detected); ours beside it:
 *
 *     cohort_holds(job, tbl, agent, reserved_at, begun)   what agents hold, re-created if dropped
 *     cohort_agents(agent, run_dir, since)                where a dead holder's wires lie
 *     cohort_quarantine(id, tbl, queue, payload, reason, since, attempts, …)
 *     cohort_losses(job, tbl, losses)                     how often a job's agent died under it
 *
 * A holder is alive while it holds the flock on its lock file DATABASE-cohort-<agent hex>. */

#ifndef CO_AGENT_SOURCE_SQLITE_H
#define CO_AGENT_SOURCE_SQLITE_H

#include <stdint.h>

#include "agent/turn.h"

#define CO_SQLITE_TABLES_MAX 8

struct co_sqlite_table {
    char table[CO_NAME_SIZE];
    uint64_t source;                 /* Fingerprint, stands in wires' co_job_ref. */
    uint32_t retry_after_s;          /* 0: Laravel's null, reserved rows are never taken over. */
    bool plain;                      /* Ours: create it (and failed_jobs) when missing. */
    char connection[CO_NAME_SIZE];   /* For failed_jobs rows. */
    char failed_table[CO_NAME_SIZE]; /* plain: where failed rows go; default "failed_jobs". */
};

struct co_sqlite_config {
    char path[CO_PATH_SIZE];
    uint64_t agent_id;
    char run_dir[CO_PATH_SIZE];
    uint64_t max_payload_bytes;
    uint32_t busy_timeout_ms; /* How long a turn waits for a lock; default 2000. */
    enum co_on_lost on_lost;
    char synchronous[16]; /* The application's own pragma ("off", "normal", "full"), or "". */
    uint32_t n_tables;
    struct co_sqlite_table tables[CO_SQLITE_TABLES_MAX];
    void (*wake)(void *arg); /* Called from the thread when a turn is finished; must be safe from
                                any thread (uv_async_send). */
    void *wake_arg;
};

struct co_sqlite;

/* Start the thread; the file is opened by it with the first turn (nothing here blocks). */
int co_sqlite_open(const struct co_sqlite_config *config, struct co_sqlite **ret_sqlite,
                   struct co_err *err);

/* Hand over a turn; none may be under way. Get a fresh one from co_turn_new(). */
void co_sqlite_submit(struct co_sqlite *sqlite, struct co_turn *turn);

/* The finished turn, now the caller's, or NULL. */
struct co_turn *co_sqlite_take(struct co_sqlite *sqlite);

/* Stop the thread (waits for a turn under way) and close. */
void co_sqlite_free(struct co_sqlite **sqlite);

/* The quarantine of a file, for `cohort queues` and `failed list --quarantined` (opens a
 * connection of its own, read-only or for one short write; call it off the loop's hot path). */
struct co_quarantined {
    int64_t id;
    char queue[CO_TEXT_SIZE];
    char reason[CO_TURN_TEXT_SIZE];
    co_unix since;
    uint64_t payload_size;
};
int co_sqlite_quarantine_list(const char *path, struct co_quarantined *ret_list, uint32_t max,
                              uint32_t *ret_n, struct co_err *err);
/* Put one back as a fresh job, or drop it. Errors: CO_ENOTFOUND. */
int co_sqlite_quarantine_retry(const char *path, int64_t id, struct co_err *err);
int co_sqlite_quarantine_forget(const char *path, int64_t id, struct co_err *err);

#endif /* CO_AGENT_SOURCE_SQLITE_H */
