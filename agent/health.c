#include "agent/health.h"

#include <stdio.h>
#include <string.h>

bool co_health_circuit_closed(const struct co_view_pool *pool)
{
    return strcmp(pool->circuit, "open") != 0; /* A probe that is out may work. */
}

/* It has booted, and what died since is being replaced at this moment. */
bool co_health_pool_serves(const struct co_view_pool *pool)
{
    return pool->by_state[CO_WORKER_IDLE] + pool->by_state[CO_WORKER_BUSY] > 0 ||
           (pool->booted_once && pool->zygote_up && pool->boot_error[0] == '\0');
}

bool co_health_pool_ready(const struct co_view *view, const struct co_view_pool *pool)
{
    return !view->draining && co_health_circuit_closed(pool) && co_health_pool_serves(pool);
}

static int say(bool yes, const char *word, const char *why, char *body, size_t size)
{
    if (yes) {
        snprintf(body, size, "%s\n", word);
        return 200;
    }
    snprintf(body, size, "not %s: %s\n", word, why[0] != '\0' ? why : "no reason known");
    return 503;
}

static const char *why_not_ready(const struct co_view *view, const struct co_view_pool *pool)
{
    if (view->draining) {
        return "the agent is draining";
    }
    if (pool->boot_error[0] != '\0' && !pool->zygote_up) {
        return pool->boot_error;
    }
    if (!co_health_circuit_closed(pool)) {
        return "the circuit is open: too many workers died; cohort exits says why";
    }
    return pool->boot_error[0] != '\0' ? pool->boot_error : "no worker has booted yet";
}

static int answer_pool(const struct co_view *view, const char *name, char *body, size_t size)
{
    for (uint32_t i = 0; i < view->n_pools; i++) {
        const struct co_view_pool *pool = &view->pools[i];
        if (strcmp(pool->name, name) == 0) {
            return say(co_health_pool_ready(view, pool), "ready", why_not_ready(view, pool), body,
                       size);
        }
    }
    snprintf(body, size, "no pool of that name: see /api/v1/status for those there are\n");
    return 404;
}

/* The first pool that has not booted is the reason; the view's own is about readiness. */
static const char *why_not_started(const struct co_view *view)
{
    for (uint32_t i = 0; i < view->n_pools; i++) {
        if (view->pools[i].boot_error[0] != '\0') {
            return view->pools[i].boot_error;
        }
    }
    return view->why[0] != '\0' ? view->why : "the application is booting";
}

int co_health_answer(const struct co_view *view, enum co_health_probe probe, const char *pool,
                     char *body, size_t size)
{
    switch (probe) {
    case CO_HEALTH_LIVE:
        return say(view->live, "live", view->why, body, size);
    case CO_HEALTH_STARTUP:
        return say(view->startup, "started", why_not_started(view), body, size);
    case CO_HEALTH_READY:
        return pool != NULL ? answer_pool(view, pool, body, size)
                            : say(view->ready, "ready", view->why, body, size);
    }
    return 503;
}
