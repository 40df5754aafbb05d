/* Work that goes back unbegun: held queues, and the drain of the whole agent. */

#include "agent/core_parts.h"

/* How long a drain waits for a source that does not answer, and for bookkeepers. */
#define CLOSE_PATIENCE 5000
#define BOOKKEEPING_PATIENCE 60000

/* A pause, a maintenance, or their end: what waits goes back at once. */
void co_core_step_hold(struct co_core *core, const struct co_event *event)
{
    struct co_queue *queue = &core->tickets.queues[event->queue];

    queue->held = event->ok;
    if (event->ok) {
        co_core_return_queue(core, queue, event->now);
    } else {
        core->sources[queue->source].more = true; /* Look at once. */
    }
}

/* Another share of the fleet's workers. What waits for none goes back, for those who have some. */
void co_core_step_share(struct co_core *core, const struct co_event *event)
{
    struct co_queue *queue = &core->tickets.queues[event->queue];
    bool more = event->workers > queue->share;

    queue->share = event->workers;
    queue->lease = event->until;
    if (event->workers == 0) {
        co_core_return_queue(core, queue, event->now);
    }
    if (more) {
        core->sources[queue->source].more = true; /* Look at once. */
    }
}

static void return_waiting(struct co_core *core, co_ms now)
{
    for (uint32_t i = 0; i < core->tickets.n_queues; i++) {
        co_core_return_queue(core, &core->tickets.queues[i], now);
    }
}

static bool is_control(uint32_t worker)
{
    return worker >= CO_PLACE_CONTROL && worker < CO_PLACE_BOOKKEEPER;
}

void co_core_step_drain(struct co_core *core, const struct co_event *event,
                        struct co_update *update)
{
    core->drain_at = core->draining ? core->drain_at : event->now;
    core->draining = true;
    return_waiting(core, event->now);
    for (uint32_t i = 0; i < core->n_pools; i++) {
        struct co_pool *pool = &core->pools[i].pool;
        pool->draining = true;
        pool->zygote_wanted = false;
        for (uint32_t w = 0; event->ok && w < CO_PLACES_MAX; w++) {
            if (pool->workers[w].present && !is_control(w)) {
                core->drain_fast = true;
                co_pool_doom(pool, w, CO_EXIT_DRAIN);
                co_core_act_worker(update, CO_ACTION_KILL, i, w, pool->workers[w].ticket);
            }
        }
    }
}

/* Jobs whose worker died still want their bookkeeper; not for ever, and not without a zygote. A
 * bookkeeper at work is waited for: it has a time limit of its own. */
static bool bookkeeping(struct co_core *core, uint32_t index, co_ms now)
{
    struct co_pool *pool = &core->pools[index].pool;
    struct co_ticket *ticket;
    bool patient =
        !core->drain_fast && pool->zygote_up && now - core->drain_at < BOOKKEEPING_PATIENCE;

    while (!patient && (ticket = co_tickets_next_orphan(&core->tickets, index)) != NULL) {
        co_core_end_ticket(core, ticket, CO_OUTCOME_CRASHED, 0, now);
    }
    for (uint32_t i = CO_PLACE_BOOKKEEPER; i < CO_PLACES_MAX; i++) {
        if (pool->workers[i].ticket != 0) {
            return true;
        }
    }
    return core->tickets.orphans[index] > 0;
}

/* Workers first, then what they left at the sources, then the zygotes. */
void co_core_drain_on(struct co_core *core, co_ms now, struct co_update *update)
{
    bool all_gone = true;
    bool all_closed = true;

    return_waiting(core, now); /* A turn under way may have brought claims. */
    for (uint32_t i = 0; i < core->n_pools; i++) {
        all_gone =
            all_gone && co_pool_alive(&core->pools[i].pool) == 0 && !bookkeeping(core, i, now);
    }
    if (!all_gone) {
        return;
    }
    for (uint32_t i = 0; i < core->n_sources; i++) {
        struct co_source *source = &core->sources[i];
        if (!source->closing) {
            source->closing = true;
            source->closing_at = now;
        }
        /* A source that never answered holds nothing of ours, unless the first answer is on its
         * way; one that stopped answering gets its jobs from our successor, who reads our wires. */
        all_closed = all_closed && (source->closed || (!source->ever_up && !source->in_flight) ||
                                    (!source->up && now - source->closing_at > CLOSE_PATIENCE));
    }
    for (uint32_t i = 0; all_closed && i < core->n_pools; i++) {
        if (!core->pools[i].drained) {
            core->pools[i].drained = true;
            co_core_act_worker(update, CO_ACTION_END_ZYGOTE, i, 0, 0);
        }
    }
    if (all_closed && !core->drained) {
        core->drained = true;
        co_core_act(update, CO_ACTION_DRAINED);
    }
}
