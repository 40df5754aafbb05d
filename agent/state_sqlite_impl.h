/* The inside of the agent's memory. Private to agent's state*_sqlite.c files.
 *
 *     state_sqlite.c        the notes, the thread, messages
 *     state_file_sqlite.c   the file: opening, tables, moving it aside
 *     state_write_sqlite.c  writing a batch of notes, keeping the tables bounded
 *     state_list_sqlite.c   looking into a file */

#ifndef CO_AGENT_STATE_SQLITE_IMPL_H
#define CO_AGENT_STATE_SQLITE_IMPL_H

#include <stdatomic.h>
#include <sys/types.h>

#include "agent/state_sqlite.h"

struct sqlite3;

#define CO_STATE_BUSY_MS 2000
#define CO_STATE_ASIDE_MAX                                                 \
    3 /* Files put aside in a life: a bad disk must not fill up with them. \
       */

enum co_state_kind {
    CO_STATE_EXIT = 0,
    CO_STATE_SLOW,
    CO_STATE_MINUTES,
    CO_STATE_KINDS,
};

struct co_state_note {
    struct co_state_note *next;
    uint32_t n; /* Entries in data. */
    _Alignas(8) unsigned char data[];
};

/* The last word on one pause. */
struct co_state_word {
    struct co_state_pause pause;
    bool used;
    bool set;     /* Else it was cleared. */
    bool unsaved; /* Not in the file yet. */
};

/* What is written at once. */
struct co_state_batch {
    const struct co_state_note *first[CO_STATE_KINDS];
    uint32_t n_words;
    const struct co_state_word *words;
};

struct co_state_file {
    char path[CO_PATH_SIZE];
    struct sqlite3 *sql;
    dev_t dev;
    ino_t ino;
    bool corrupt;           /* The last failure said so. */
    uint32_t aside;         /* How many were moved aside. */
    _Atomic uint64_t until; /* Monotonic ms: wait for no lock beyond it; 0: the usual time. */
    uint64_t busy_since;
};

uint64_t co_state_clock_ms(void);

/* Turn the connection's last error into words, and note whether the file is damaged. */
int co_state_fail(struct co_state_file *file, struct sqlite3 *sql, struct co_err *err,
                  const char *doing);

/* Make sure the right file is open and its tables are there. *ret_fresh: the tables are empty ones,
 * or somebody else's: pauses must be written again. */
int co_state_file_open(struct co_state_file *file, bool *ret_fresh, struct co_err *err);
void co_state_file_close(struct co_state_file *file);

/* Move a damaged file aside; false when it could not be, or too many were. note says to where. */
bool co_state_file_aside(struct co_state_file *file, char *ret_name, size_t size);

/* Everything or nothing. */
int co_state_write(struct co_state_file *file, const struct co_state_batch *batch,
                   struct co_err *err);

#endif /* CO_AGENT_STATE_SQLITE_IMPL_H */
