/* The overrides of the fleet in STATE_DIR/state.db, beside what state_sqlite.h keeps there: every
 * word ever heard on a queue, the newest 500. A short-lived connection each; both may block on the
 * disk, so they are called before the loop runs or from a thread of its pool. */

#ifndef CO_AGENT_OVERRIDES_SQLITE_H
#define CO_AGENT_OVERRIDES_SQLITE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/fleet.h"

#define CO_OVERRIDES_MAX 500

/* Add one; one that is there already stays as it is. Errors: CO_ESOURCE. */
int co_overrides_add(const char *path, const struct co_fleet_override *override,
                     struct co_err *err);

/* The newest first. No file yet is none. Errors: CO_ESOURCE. */
int co_overrides_list(const char *path, struct co_fleet_override *ret_list, uint32_t max,
                      uint32_t *ret_n, struct co_err *err);

#endif /* CO_AGENT_OVERRIDES_SQLITE_H */
