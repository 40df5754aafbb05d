#include "controller/reload.h"

#include <string.h>

struct co_reload_start co_reload_begin(const struct co_view_pool *pool)
{
    struct co_reload_start start = {.generation = pool->generation,
                                    .boot_failures = pool->boot_failures};

    memcpy(start.pool, pool->name, sizeof start.pool);
    return start;
}

enum co_reload_progress co_reload_check(const struct co_reload_start *start,
                                        const struct co_view_pool *pool)
{
    uint32_t booted = 0;

    /* Also of workers that boot by themselves, whose zygote has nothing to fail with. */
    if (pool->boot_failures > start->boot_failures) {
        return CO_RELOAD_FAILED;
    }
    if (pool->generation <= start->generation) {
        return CO_RELOAD_GOING;
    }
    for (uint32_t i = 0; i < pool->n_workers; i++) {
        const struct co_view_worker *worker = &pool->workers[i];
        if (worker->generation != pool->generation) {
            return CO_RELOAD_GOING;
        }
        booted += worker->state == CO_WORKER_IDLE || worker->state == CO_WORKER_BUSY;
    }
    return booted >= pool->workers_wanted ? CO_RELOAD_DONE : CO_RELOAD_GOING;
}
