/* The inside of the SQLite source: one connection and what its thread knows. Private to agent's
 * *_sqlite.c files; everything here runs in the source's thread.
 *
 *     source_sqlite.c      the thread and its two queues
 *     run_sqlite.c         one turn: what needs a transaction, its order, undoing it
 *     db_sqlite.c          statements, errors in words
 *     open_sqlite.c        finding and opening the file, lock_sqlite.c, schema_sqlite.c
 *     claim_sqlite.c       looking for jobs, claiming, quarantine
 *     settle_sqlite.c      outcomes
 *     hold_sqlite.c        starts, heartbeats, checking and giving back what we hold
 *     recover_sqlite.c     what dead agents left
 *     depth_sqlite.c       how much lies in each queue
 *     quarantine_sqlite.c  list, retry, forget */

#ifndef CO_AGENT_SOURCE_SQLITE_IMPL_H
#define CO_AGENT_SOURCE_SQLITE_IMPL_H

#include <stddef.h>
#include <sys/types.h>

#include "agent/holds.h"
#include "agent/source_sqlite.h"

struct sqlite3;
struct sqlite3_stmt;

#define CO_DB_AGENT_SIZE 17
#define CO_DB_QUEUES_MAX 512
#define CO_DB_NEVER INT64_MAX
#define CO_DB_LOSSES_MAX 3 /* At this many a loss counts as a crash. */

/* Statements of a table; "%T" is its quoted name. */
enum co_db_table_stmt {
    CO_STMT_SCAN = 0,
    CO_STMT_ROW,
    CO_STMT_RESERVE,
    CO_STMT_FENCE,
    CO_STMT_DELETE,
    CO_STMT_COPY,
    CO_STMT_BACK,
    CO_STMT_LEFT,
    CO_STMT_BEAT,
    CO_STMT_PAYLOAD,
    CO_STMT_RECORD,
    CO_STMT_QUARANTINE,
    CO_STMT_DROP,
    CO_STMT_DEPTH,
    CO_STMT_LOSS_SWEEP,
    CO_TABLE_STMTS,
};

enum co_db_stmt {
    CO_STMT_BEGIN = 0,
    CO_STMT_COMMIT,
    CO_STMT_DATA_VERSION,
    CO_STMT_SCHEMA_VERSION,
    CO_STMT_HOLD_PUT,
    CO_STMT_HOLD_HEAL,
    CO_STMT_HOLD_HAS,
    CO_STMT_HOLD_TAKE,
    CO_STMT_HOLD_BEGIN,
    CO_STMT_HOLD_BEAT,
    CO_STMT_HOLD_LIST,
    CO_STMT_LOSS_ADD,
    CO_STMT_CRASH_ADD,
    CO_STMT_CRASH_GET,
    CO_STMT_LOSS_DROP,
    CO_STMT_LOSS_ANY,
    CO_STMT_QUARANTINED,
    CO_STMT_AGENT_PUT,
    CO_STMT_AGENT_DROP,
    CO_STMT_AGENT_LIST,
    CO_DB_STMTS,
};

struct co_db_table {
    const struct co_sqlite_table *config;
    char *extra;      /* The application's own columns: `, "tenant"`; "" without. malloc'd. */
    char *extra_kept; /* The same as the quarantine keeps them: `, "x_tenant"`. */
    bool extra_ready; /* The quarantine has them. */
    bool failed_exists;
    bool failed_uuid; /* The failed table has a uuid column (Laravel >= 8). */
    struct sqlite3_stmt *stmts[CO_TABLE_STMTS];
};

/* How far a queue has been looked through. Below `floor` nothing can be claimed before `due`,
 * unless somebody else changed an old row: that makes it `stale`, and it is looked through again
 * as soon as that costs at most a twentieth of the time. */
struct co_db_queue {
    uint32_t table;
    char name[CO_TEXT_SIZE];
    int64_t floor;
    co_unix due;
    bool stale;
    uint64_t scanned_us;
    uint64_t cost_us;
};

struct co_db {
    struct co_sqlite_config config;
    char agent[CO_DB_AGENT_SIZE];
    char path[CO_PATH_SIZE]; /* The real one: symbolic links lead to one lock directory. */
    char lock_path[CO_PATH_SIZE + 32];
    int lock_fd;
    dev_t dev;
    ino_t ino;
    struct sqlite3 *sql;
    struct sqlite3_stmt *stmts[CO_DB_STMTS];
    struct co_db_table tables[CO_SQLITE_TABLES_MAX];
    int64_t data_version; /* As of the last good turn. */
    int64_t seen_version; /* As of this turn. */
    int64_t schema_version;
    bool losses;            /* cohort_losses may have rows. */
    bool reopened;          /* What we hold must be checked whatever data_version says. */
    uint64_t busy_since_us; /* When the wait for a lock began. */
    co_unix now;
    uint32_t n_queues;
    struct co_db_queue queues[CO_DB_QUEUES_MAX];
    bool depths_good; /* Nobody wrote since they were read, and nothing is due before: */
    co_unix depths_until;
    uint32_t n_depths;
    struct co_turn_depth depths[CO_TURN_QUEUES_MAX];
    struct co_holds holds;
    struct co_holds saved;
};

/* ---- db_sqlite.c ---- */

void co_db_init(struct co_db *db, const struct co_sqlite_config *config);

void co_db_close(struct co_db *db);
void co_db_forget_table(struct co_db_table *table); /* Its statements and columns. */
const char *co_db_failed_table(const struct co_db_table *table);

/* Turn the connection's last error into words. */
int co_db_fail(struct co_db *db, struct co_err *err, const char *doing);

/* Fill in a statement's marks; SQLite's memory, NULL when out of memory. Compile one. */
char *co_db_fill_in(const struct co_db_table *table, const char *template);
struct sqlite3_stmt *co_db_compile(struct co_db *db, const char *sql, struct co_err *err);
int co_db_pragma(struct co_db *db, enum co_db_stmt stmt, int64_t *ret_value, struct co_err *err);

/* A cached statement, reset; NULL with err when it cannot be prepared. */
struct sqlite3_stmt *co_db_stmt(struct co_db *db, enum co_db_stmt stmt, struct co_err *err);
struct sqlite3_stmt *co_db_table_stmt(struct co_db *db, uint32_t table, enum co_db_table_stmt stmt,
                                      struct co_err *err);

/* Bind by letter (i: int64_t, t: const char *, n: null; borrowed until the statement has run) and
 * step: 1 with a row (reset it when read), 0 without, negative on error. */
int co_db_step(struct co_db *db, struct sqlite3_stmt *stmt, struct co_err *err, const char *types,
               ...);
int co_db_next(struct co_db *db, struct sqlite3_stmt *stmt, struct co_err *err);
/* Bind, run to the end, and return how many rows it changed. */
int co_db_write(struct co_db *db, struct sqlite3_stmt *stmt, struct co_err *err, const char *types,
                ...);
int co_db_exec(struct co_db *db, const char *sql, struct co_err *err);
uint64_t co_db_clock_us(void);

/* ---- lock_sqlite.c ---- */

/* Make sure our lock file is there and locked. Errors: CO_EIO, CO_EBUSY. */
int co_lock_take(struct co_db *db, struct co_err *err);
void co_lock_drop(struct co_db *db, bool remove);
void co_lock_path(const struct co_db *db, const char *agent, char *buf, size_t size);

/* ---- schema_sqlite.c ---- */

/* Look at the columns and make what is missing. In a transaction.
 * Errors: CO_ENOTFOUND, CO_EUNSUPPORTED, CO_ESOURCE. */
int co_schema_prepare(struct co_db *db, struct co_err *err);

/* ---- open_sqlite.c ---- */

/* Open and prepare the file, or notice that another lies in its place. Errors: CO_ENOTFOUND,
 * CO_EAGAIN, CO_EIO, CO_ESOURCE, CO_EUNSUPPORTED. */
int co_open_file(struct co_db *db, struct co_err *err);

/* ---- run_sqlite.c ---- */

void co_run_turn(struct co_db *db, struct co_turn *turn);

/* ---- claim_sqlite.c ---- */

/* Is there anything to claim? Reads only. */
int co_claim_look(struct co_db *db, const struct co_turn *turn, bool *ret_any, struct co_err *err);
int co_claim_take(struct co_db *db, struct co_turn *turn, struct co_err *err);
/* A row below the floors may be claimed from `due` on. */
void co_claim_wake(struct co_db *db, uint32_t table, int64_t job_id, co_unix due);
void co_claim_stale(struct co_db *db);  /* Somebody else changed something. */
void co_claim_forget(struct co_db *db); /* Look through everything again. */
co_unix co_claim_due(const struct co_db *db, const struct co_turn *turn);
/* Put a job aside. In a transaction. */
int co_claim_quarantine(struct co_db *db, uint32_t table, int64_t job_id, const char *reason,
                        struct co_err *err);

/* ---- settle_sqlite.c ---- */

struct co_settle {
    const char *agent; /* Whose hold it is. */
    uint32_t table;
    int64_t job_id;
    int64_t reserved_at;
    enum co_outcome outcome;
    uint32_t delay_s;
    bool began;
    bool felled;
    bool record;
    const char *text; /* Or NULL. */
};

int co_settle_apply(struct co_db *db, const struct co_settle *settle, bool *ret_applied,
                    struct co_err *err);
int co_settle_all(struct co_db *db, struct co_turn *turn, struct co_err *err);

/* What becomes of a job whose agent died under it. */
void co_settle_lost(const struct co_db *db, struct co_settle *settle);

/* ---- hold_sqlite.c ---- */

/* Does the row still carry this fence? 1, 0, or negative. */
int co_hold_fence(struct co_db *db, uint32_t table, int64_t job_id, int64_t reserved_at,
                  struct co_err *err);
int co_hold_starts(struct co_db *db, struct co_turn *turn, struct co_err *err);
/* Is what we hold and did not begin still ours? Reads only. */
int co_hold_check(struct co_db *db, bool *ret_gone, struct co_err *err);
/* Tell the turn what is gone and let go of it. */
int co_hold_verify(struct co_db *db, struct co_turn *turn, struct co_err *err);
int co_hold_beat(struct co_db *db, struct co_turn *turn, struct co_err *err);
int co_hold_bye(struct co_db *db, struct co_err *err);
/* Put our rows back into a cohort_holds that lost them, where the job is still ours. */
int co_hold_heal(struct co_db *db, struct co_err *err);

/* ---- recover_sqlite.c ---- */

#define CO_RECOVER_MAX 32

struct co_dead {
    char agent[CO_DB_AGENT_SIZE];
    char run_dir[CO_PATH_SIZE];
    int fd;        /* Its lock, held by us meanwhile; -1 when the file was missing. */
    bool finished; /* Nothing of it is left. */
};

struct co_deads {
    uint32_t n;
    struct co_dead list[CO_RECOVER_MAX];
};

/* Who is dead? Reads only, and takes their locks. */
int co_recover_look(struct co_db *db, struct co_deads *ret_deads, struct co_err *err);
int co_recover_apply(struct co_db *db, struct co_deads *deads, struct co_turn *turn,
                     struct co_err *err);
/* Let go of the locks; those of finished ones are removed when the turn was committed. */
void co_recover_done(struct co_db *db, struct co_deads *deads, bool committed);

/* ---- depth_sqlite.c ---- */

int co_depth_read(struct co_db *db, struct co_turn *turn, struct co_err *err);

#endif /* CO_AGENT_SOURCE_SQLITE_IMPL_H */
