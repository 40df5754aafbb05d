/* What this agent holds in one source: a table in memory beside cohort_holds. It answers "is this
 * ours?" without a statement, and knows what was held when cohort_holds was dropped under us.
 * Pure; a plain struct copy is a snapshot (a rolled back turn puts the copy back). */

#ifndef CO_AGENT_HOLDS_H
#define CO_AGENT_HOLDS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/turn.h"

#define CO_HOLDS_MAX (CO_TURN_CLAIMS_MAX + CO_WORKERS_MAX) /* What turn.beats can tell. */
#define CO_HOLDS_INDEX_SIZE 4096u

struct co_hold {
    int64_t job_id;
    int64_t reserved_at;
    uint32_t table;
    bool begun; /* The start is recorded in the source. */
};

struct co_holds {
    uint32_t n;
    struct co_hold list[CO_HOLDS_MAX];   /* Dense; removing moves the last one into the gap. */
    uint16_t index[CO_HOLDS_INDEX_SIZE]; /* Position + 1, 0 = free; linear probing. */
};

void co_holds_init(struct co_holds *holds);

/* The hold of a job, or NULL; valid until the next put or remove. */
struct co_hold *co_holds_get(struct co_holds *holds, uint32_t table, int64_t job_id);

/* Add or replace. Errors: CO_EFULL. */
int co_holds_put(struct co_holds *holds, const struct co_hold *hold);

/* Removing what is not there is fine. Walk list backwards to remove while walking. */
void co_holds_remove(struct co_holds *holds, uint32_t table, int64_t job_id);

#endif /* CO_AGENT_HOLDS_H */
