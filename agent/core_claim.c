/* What to claim: who is hungry, for which queues, in what order. */

#include <string.h>

#include "agent/core_parts.h"

/* A claim is given up when no job ended for so long and so many wait beyond what is wanted. */
#define UNCLAIM_AFTER 1000
#define UNCLAIM_SPARE 4
#define CLAIM_BYTES (32u * 1024 * 1024)

struct appetite {
    uint32_t idle;  /* Idle workers without a ticket waiting for them. */
    uint32_t total; /* And how many more to hold ahead. */
};

/* Sources whose tickets may be handed over, now or after a fresh look, a bit each. One that does
 * not answer must not keep the others' jobs from the workers. */
uint32_t co_core_answering(const struct co_core *core, co_ms now)
{
    uint32_t sources = 0;

    for (uint32_t i = 0; i < core->n_sources; i++) {
        const struct co_source *source = &core->sources[i];
        if (source->up && now - source->last_good <= CO_SOURCE_STALE) {
            sources |= 1u << i;
        }
    }
    return sources;
}

/* Tickets of the pool that wait for nothing but a worker. */
static uint32_t servable(const struct co_core *core, uint32_t pool, co_ms now)
{
    uint32_t sources = co_core_answering(core, now);
    uint32_t n = core->tickets.waiting[pool];

    for (uint32_t i = 0; n > 0 && i < core->tickets.n_queues; i++) {
        const struct co_queue *queue = &core->tickets.queues[i];
        uint32_t room = co_tickets_room(queue);
        if (queue->pool != pool) {
            continue;
        }
        if (co_core_is_held(queue, now) || (sources & (1u << queue->source)) == 0) {
            n -= queue->waiting.count;
        } else if (queue->waiting.count > room) {
            n -= queue->waiting.count - room;
        }
    }
    return n;
}

/* An average does not know that the jobs at work have turned long. */
static double cycle_of(const struct co_core *core, uint32_t pool, co_ms now)
{
    double cycle = core->pools[pool].cycle_us;
    uint32_t busy = core->pools[pool].pool.by_state[CO_WORKER_BUSY];
    double silence = busy > 0 ? (double)(now - core->pools[pool].last_end) * 1000 : 0;

    return cycle > 0 && silence > 4 * cycle ? silence : cycle;
}

static uint32_t hold_of(const struct co_core *core, uint32_t pool, const struct co_source *source,
                        co_ms now)
{
    uint32_t claim = core->pools[pool].claim;
    uint32_t able = co_pool_able(&core->pools[pool].pool);

    return claim != CO_CLAIM_AUTO ? claim
                                  : core->pools[pool].pool.n_idle +
                                        co_source_prefetch(source, able, cycle_of(core, pool, now));
}

/* Will the pool's workers run dry before a turn is back? */
bool co_core_starving(const struct co_core *core, uint32_t index, co_ms now)
{
    bool asked[CO_POOLS_MAX] = {false};

    for (uint32_t i = 0; i < core->tickets.n_queues; i++) {
        const struct co_queue *queue = &core->tickets.queues[i];
        if (queue->source == index && !asked[queue->pool]) {
            asked[queue->pool] = true;
            if (2 * core->tickets.waiting[queue->pool] <=
                hold_of(core, queue->pool, &core->sources[index], now)) {
                return true;
            }
        }
    }
    return false;
}

/* Claimed for a pace that is over: what waits goes back, for others to take. */
void co_core_unclaim(struct co_core *core, uint32_t index, co_ms now)
{
    struct co_source *source = &core->sources[index];

    for (uint32_t i = 0; i < core->tickets.n_queues; i++) {
        struct co_queue *queue = &core->tickets.queues[i];
        uint32_t pool = queue->pool;
        if (queue->source == index && queue->waiting.count > 0 &&
            core->pools[pool].claim == CO_CLAIM_AUTO &&
            now - core->pools[pool].last_end > UNCLAIM_AFTER &&
            core->tickets.waiting[pool] > UNCLAIM_SPARE + hold_of(core, pool, source, now)) {
            co_core_return_queue(core, queue, now);
        }
    }
}

static struct appetite appetite_of(const struct co_core *core, uint32_t pool,
                                   const struct co_source *source, co_ms now)
{
    uint32_t idle = core->pools[pool].pool.n_idle;
    struct appetite appetite = {0};
    uint32_t waiting, hold;

    if (core->pools[pool].pool.draining || co_pool_alive(&core->pools[pool].pool) == 0) {
        return appetite;
    }
    waiting = servable(core, pool, now);
    hold = hold_of(core, pool, source, now);
    appetite.idle = idle > waiting ? idle - waiting : 0;
    appetite.total = hold > waiting ? hold - waiting : 0;
    return appetite;
}

/* Of a queue that may not have all the workers: those it may have, and some ahead of them. */
static uint32_t appetite_for(const struct co_core *core, const struct co_queue *queue, co_ms now)
{
    uint32_t most = queue->share < queue->limit ? queue->share : queue->limit;
    uint32_t able, hold;

    if (most == UINT32_MAX) {
        return UINT32_MAX;
    }
    able = co_pool_able(&core->pools[queue->pool].pool);
    hold = co_tickets_room(queue);
    if (core->pools[queue->pool].claim == CO_CLAIM_AUTO && most > 0) {
        hold += co_source_prefetch(&core->sources[queue->source], most < able ? most : able,
                                   cycle_of(core, queue->pool, now));
    }
    return hold > queue->waiting.count ? hold - queue->waiting.count : 0;
}

/* How many tickets there is room for, whatever the turns under way bring. */
static uint32_t room(const struct co_core *core)
{
    uint32_t used = core->tickets.n_used;

    for (uint32_t i = 0; i < core->n_sources; i++) {
        used += core->claims_asked[i];
    }
    return used < CO_TICKETS_MAX ? CO_TICKETS_MAX - used : 0;
}

bool co_core_wants_anything(const struct co_core *core, const struct co_source *source,
                            uint32_t index, co_ms now)
{
    bool hungry[CO_POOLS_MAX] = {false};

    if (source->in_flight || room(core) == 0) {
        return false;
    }
    for (uint32_t i = 0; i < core->n_pools; i++) {
        hungry[i] = appetite_of(core, i, source, now).total > 0;
    }
    for (uint32_t i = 0; i < core->tickets.n_queues; i++) {
        const struct co_queue *queue = &core->tickets.queues[i];
        if (queue->source == index && hungry[queue->pool] && !co_core_is_held(queue, now) &&
            appetite_for(core, queue, now) > 0) {
            return true;
        }
    }
    return false;
}

bool co_core_stale_waiting(const struct co_core *core, uint32_t index)
{
    for (uint32_t i = 0; i < core->tickets.n_queues; i++) {
        const struct co_queue *queue = &core->tickets.queues[i];
        if (queue->source == index && queue->waiting.count > 0 && co_tickets_room(queue) > 0 &&
            core->pools[queue->pool].pool.n_idle > 0) {
            return true;
        }
    }
    return false;
}

static uint32_t lowest_rank(const struct co_core *core, uint32_t pool)
{
    uint32_t lowest = UINT32_MAX;

    for (uint32_t i = 0; i < core->tickets.n_queues; i++) {
        const struct co_queue *queue = &core->tickets.queues[i];
        if (queue->pool == pool && queue->rank < lowest) {
            lowest = queue->rank;
        }
    }
    return lowest;
}

/* One want; what is not first in a strict order is claimed for idle workers alone. */
static void add_want(struct co_core *core, struct co_turn *turn, uint32_t index, bool first,
                     const struct appetite *appetite, co_ms now)
{
    struct co_queue *queue = &core->tickets.queues[index];
    uint32_t asked = core->claims_asked[queue->source];
    uint32_t most = appetite_for(core, queue, now);
    uint32_t count = first ? appetite->total
                           : (appetite->idle < appetite->total ? appetite->idle : appetite->total);

    count = count < most ? count : most;
    count = count < room(core) ? count : room(core);
    count = count < CO_TURN_CLAIMS_MAX ? count : CO_TURN_CLAIMS_MAX;
    if (count == 0 || turn->n_wants == CO_TURN_WANTS_MAX) {
        return;
    }
    asked = asked + count < CO_TURN_CLAIMS_MAX ? asked + count : CO_TURN_CLAIMS_MAX;
    core->claims_asked[queue->source] = asked;
    turn->wants[turn->n_wants] = (struct co_turn_want){
        .group = queue->pool,
        .rank = queue->rank,
        .table = queue->table,
        .queue = index,
        .count = count,
        .bytes = CLAIM_BYTES,
    };
    memcpy(turn->wants[turn->n_wants].name, queue->name, sizeof queue->name);
    turn->n_wants += 1;
}

/* The pool's queues of that rank at that source that may be asked; *ret_next: the next rank. */
static uint32_t members(const struct co_core *core, uint32_t pool, uint32_t source, uint32_t rank,
                        co_ms now, uint32_t *ret_list, uint32_t *ret_next)
{
    uint32_t n = 0;

    *ret_next = UINT32_MAX;
    for (uint32_t i = 0; i < core->tickets.n_queues; i++) {
        const struct co_queue *queue = &core->tickets.queues[i];
        if (queue->pool != pool) {
            continue;
        }
        if (queue->rank == rank && queue->source == source && !co_core_is_held(queue, now)) {
            ret_list[n++] = i;
        } else if (queue->rank > rank && queue->rank < *ret_next) {
            *ret_next = queue->rank;
        }
    }
    return n;
}

/* A pool's queues in the order of their ranks; among equals the first asked changes from turn to
 * turn, so that none is asked for ever after another that always has jobs. */
static void fill_pool_wants(struct co_core *core, uint32_t source, uint32_t pool,
                            struct co_turn *turn, co_ms now)
{
    struct appetite appetite = appetite_of(core, pool, &core->sources[source], now);
    uint32_t turned = core->pools[pool].rotate[source]++;
    uint32_t first = lowest_rank(core, pool);
    uint32_t next;

    if (appetite.total == 0) {
        return;
    }
    for (uint32_t rank = first; rank != UINT32_MAX; rank = next) {
        uint32_t list[CO_QUEUES_MAX];
        uint32_t n = members(core, pool, source, rank, now, list, &next);
        uint32_t before = turn->n_wants;
        for (uint32_t k = 0; k < n; k++) {
            add_want(core, turn, list[(k + turned) % n], rank == first, &appetite, now);
        }
        if (turn->n_wants == CO_TURN_WANTS_MAX && turn->n_wants > before) {
            /* More queues than a turn can ask: the next one goes on where this one ends. */
            core->pools[pool].rotate[source] = turned + turn->n_wants - before;
        }
    }
}

void co_core_fill_wants(struct co_core *core, uint32_t source, struct co_turn *turn, co_ms now)
{
    for (uint32_t pool = 0; pool < core->n_pools; pool++) {
        fill_pool_wants(core, source, pool, turn, now);
    }
}
