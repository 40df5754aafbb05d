/* STATE_DIR/state.db: what an agent remembers of itself. One file, one thread, one connection.
 *
 *     exits    why workers ended: the newest 10,000
 *     minutes  what became of jobs, by minute, queue and class: 7 days, at most 500,000 rows
 *     slow     the slow log: the newest 1,000
 *     pauses   what `cohort pause` stopped on this agent
 *
 * The loop leaves notes and never waits; the thread writes whatever lies there in one transaction.
 * Notes wait in one bounded queue a kind, so no kind pushes out another; when one is full its
 * oldest note is dropped and counted. Pauses are no notes: the last word on each is kept until it
 * is written.
 *
 * An agent never refuses to run for its memory. A damaged file is moved aside to
 * state.db.corrupt-<unix> and started anew; while the file cannot be written (full or read-only
 * disk, locked) the notes wait and it is tried again after 1 s, doubling to 30 s. A file that
 * somebody removed is made again. One agent a state directory.
 *
 * Payloads and what a job was given never enter it. */

#ifndef CO_AGENT_STATE_SQLITE_H
#define CO_AGENT_STATE_SQLITE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/minutes.h"
#include "proto/config.h"
#include "proto/err.h"
#include "proto/report.h"
#include "proto/time.h"

#define CO_STATE_EXITS_MAX 10000
#define CO_STATE_SLOW_MAX 1000
#define CO_STATE_MINUTES_S (7 * 86400)
#define CO_STATE_MINUTES_MAX 500000
#define CO_STATE_PAUSES_MAX 64

struct co_state;

struct co_state_pause {
    char queue[CO_TEXT_SIZE];      /* "": all of them. */
    char connection[CO_NAME_SIZE]; /* "": any. */
    char by[CO_NAME_SIZE];
    char reason[CO_TEXT_SIZE];
    co_unix since;
};

/* Open or make the file, bring its tables up to date (they only ever grow, so an older agent can
 * use a newer file), read the pauses in force into ret_pauses (room for CO_STATE_PAUSES_MAX), and
 * start the thread. Blocks on the disk, for a few seconds at most on a lock: call it before the
 * loop runs. A file that cannot be used is no failure: see co_state_error(). Errors: CO_ENOMEM,
 * CO_EIO (no thread could be started). */
int co_state_open(const char *path, struct co_state_pause *ret_pauses, uint32_t *ret_n_pauses,
                  struct co_state **ret_state, struct co_err *err);

/* Stop the thread: what waits is written first if that takes less than a second. */
void co_state_free(struct co_state **state);

/* Note that a worker ended. Its id is ignored; texts that fill their field are cut between
 * characters. */
void co_state_exit(struct co_state *state, const struct co_report_exit *exit);

/* Note a slow job. Its id is ignored. */
void co_state_slow(struct co_state *state, const struct co_report_slow *slow);

/* Note a minute's rows, as one note. Rows that are there already (an agent restarted within the
 * minute, a clock set back) are added to. */
void co_state_minutes(struct co_state *state, const struct co_minutes *minutes);

/* Keep a pause (one of the same queue and connection is replaced), or forget it. Both return at
 * once; they are in the file a moment later, unless co_state_failing(). Errors: CO_EFULL,
 * CO_ENOTFOUND. */
int co_state_pause_set(struct co_state *state, const struct co_state_pause *pause,
                       struct co_err *err);
int co_state_pause_clear(struct co_state *state, const char *queue, const char *connection,
                         struct co_err *err);

/* The next message for the log, or false. A failure is told once until writing succeeds again; that
 * is told too, with code CO_OK. Ask about once a second. */
bool co_state_error(struct co_state *state, struct co_err *ret_err);
bool co_state_failing(struct co_state *state);
uint64_t co_state_dropped(struct co_state *state); /* Notes lost, in all. */

/* Wait until nothing waits any more: false when that is not so after wait_ms. Not for the loop. */
bool co_state_flush(struct co_state *state, uint32_t wait_ms);

/* ---- looking into a file, with a short-lived connection that only reads ---- */

/* Which ones; NULL or 0: all. */
struct co_state_query {
    co_unix since;
    const char *pool;
    const char *queue; /* Not asked of the slow log. */
};

/* The newest first (pauses: the oldest), at most max. Errors: CO_ENOTFOUND (no file yet),
 * CO_EMALFORMED (damaged), CO_EAGAIN, CO_ESOURCE. */
int co_state_exits_list(const char *path, const struct co_state_query *query,
                        struct co_report_exit *ret_list, uint32_t max, uint32_t *ret_n,
                        struct co_err *err);
int co_state_minutes_list(const char *path, const struct co_state_query *query,
                          struct co_report_minute *ret_list, uint32_t max, uint32_t *ret_n,
                          struct co_err *err);
int co_state_slow_list(const char *path, const struct co_state_query *query,
                       struct co_report_slow *ret_list, uint32_t max, uint32_t *ret_n,
                       struct co_err *err);
int co_state_pauses_list(const char *path, struct co_state_pause *ret_list, uint32_t max,
                         uint32_t *ret_n, struct co_err *err);

#endif /* CO_AGENT_STATE_SQLITE_H */
