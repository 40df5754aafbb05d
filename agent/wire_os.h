/* The agent's end of one worker's wire file: making and mapping it, waking its worker, and knowing
 * which outcomes in it are settled.
 *
 * An END stays in the ring until its outcome is committed at the source: a successor of a killed
 * agent finds it there. Space is given back in batches: a batch is released once all its outcomes
 * are settled, while the next one gathers. */

#ifndef CO_AGENT_WIRE_OS_H
#define CO_AGENT_WIRE_OS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/config.h"
#include "proto/err.h"
#include "worker/dispatch.h"

/* Wires are files that foreign code can shrink, and touching what is gone is SIGBUS. The guard puts
 * zeros in the place of a mapping that was cut, so that the agent reads on; co_link_lost() tells.
 */
int co_wire_guard(struct co_err *err);

struct co_link {
    struct co_wire *wire;
    uint64_t cursor;   /* Read up to here. */
    uint64_t boundary; /* End of the batch that is being settled. */
    uint32_t before;   /* Its outcomes still open. */
    uint32_t after;    /* Open outcomes behind the boundary. */
    uint64_t batch;
    bool dead;       /* The worker has gone; the file goes when all is settled. */
    size_t guard;    /* Its place in the guard's table. */
    bool overflowed; /* Overflow files may lie beside it. */
    bool broken;     /* It wrote nonsense. */
    char path[CO_PATH_SIZE];
};

/* Make a fresh wire file. Errors: CO_EIO, CO_ENOMEM. */
int co_link_open(const char *path, uint64_t agent_id, const char *pool, uint32_t worker,
                 uint32_t generation, struct co_link **ret_link, struct co_err *err);

/* Was the file cut under us? What it said is gone then; its worker must end. */
bool co_link_lost(const struct co_link *link);

/* Unmap and remove the file. */
void co_link_free(struct co_link **link);

/* Read the next record into buf (CO_RECORD_MAX). As co_ring_copy(). */
int co_link_read(struct co_link *link, uint8_t *buf, struct co_record *ret_record);

/* The record just read is an END that must be settled: returns its tag. */
uint64_t co_link_hold(struct co_link *link);

/* The END with that tag is settled. */
void co_link_settled(struct co_link *link, uint64_t tag);

/* Nothing is open any more (so a dead worker's link may be freed). */
bool co_link_idle(const struct co_link *link);

/* Release what was read if no END is open. */
void co_link_release(struct co_link *link);

/* Send a record, waking the worker if it sleeps. long_part goes by overflow file when not NULL.
 * Errors: CO_EFULL, CO_ETOOBIG, CO_EIO. */
int co_link_send(struct co_link *link, const struct co_record *record, const void *long_part,
                 size_t long_size, struct co_err *err);

/* Read and remove the overflow file of a reply; malloc'd, NUL-terminated. */
int co_link_overflow(struct co_link *link, uint64_t ticket, char **ret_data, size_t *ret_size,
                     struct co_err *err);

/* The pool's bell file. */
int co_bell_open(const char *path, struct co_bell **ret_bell, struct co_err *err);
bool co_bell_lost(const struct co_bell *bell);
void co_bell_close(struct co_bell **bell);

#endif /* CO_AGENT_WIRE_OS_H */
