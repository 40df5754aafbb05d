/* Is a reload through? Decided from two looks at a pool. Pure. */

#ifndef CO_CONTROLLER_RELOAD_H
#define CO_CONTROLLER_RELOAD_H

#include "proto/view.h"

enum co_reload_progress {
    CO_RELOAD_GOING, /* Something boots, or a worker of the old generation still has its job. */
    CO_RELOAD_DONE,  /* Every worker is of the new generation and has booted. */
    CO_RELOAD_FAILED /* The new generation does not boot. */
};

/* What a pool looked like before it was asked to reload. */
struct co_reload_start {
    char pool[CO_NAME_SIZE];
    uint32_t generation;
    uint64_t boot_failures;
};

struct co_reload_start co_reload_begin(const struct co_view_pool *pool);

enum co_reload_progress co_reload_check(const struct co_reload_start *start,
                                        const struct co_view_pool *pool);

#endif /* CO_CONTROLLER_RELOAD_H */
