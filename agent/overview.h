/* The view, filled from the core. Pure: what only the loop knows (names, pids' memory, errors) it
 * adds itself. */

#ifndef CO_AGENT_OVERVIEW_H
#define CO_AGENT_OVERVIEW_H

#include "agent/core.h"
#include "proto/view.h"

/* Pools, workers, queues and sources. wall_ms is for the age of the oldest job. */
void co_overview_core(struct co_view *view, const struct co_core *core, co_ms now,
                      uint64_t wall_ms);

/* Add a queue of the source that nobody here serves; nothing if it is served. */
void co_overview_unserved(struct co_view *view, const struct co_core *core, uint32_t source,
                          const struct co_turn_depth *depth, const char *connection,
                          uint64_t wall_ms);

/* Decide startup, ready and why from the rest. */
void co_overview_readiness(struct co_view *view, uint32_t n_pools);

#endif /* CO_AGENT_OVERVIEW_H */
