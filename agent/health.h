/* The probes: what /livez, /startupz and /readyz answer, decided from the view. */

#ifndef CO_AGENT_HEALTH_H
#define CO_AGENT_HEALTH_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/view.h"

enum co_health_probe {
    CO_HEALTH_LIVE,    /* Restart the agent? Depends on nothing outside of it. */
    CO_HEALTH_STARTUP, /* Has every pool's application booted once? */
    CO_HEALTH_READY,   /* May it get work? Never "is a worker idle": busy is not unready. */
};

/* Whether new workers are forked; not while it is open or probes. */
bool co_health_circuit_closed(const struct co_view_pool *pool);

/* Whether the pool has workers, or makes them at this moment. */
bool co_health_pool_serves(const struct co_view_pool *pool);

/* Whether a pool can serve: a worker has booted, the circuit is closed and the agent is not
 * draining. */
bool co_health_pool_ready(const struct co_view *view, const struct co_view_pool *pool);

/* Decide a probe; pool narrows CO_HEALTH_READY to one pool, NULL asks for the agent. Writes the
 * body, a line that says why, and returns the HTTP status: 200, 503, or 404 for an unknown pool. */
int co_health_answer(const struct co_view *view, enum co_health_probe probe, const char *pool,
                     char *body, size_t size);

#endif /* CO_AGENT_HEALTH_H */
