#include "agent/core.h"

#include <assert.h>
#include <string.h>

#include "agent/core_parts.h"
#include "proto/err.h"

struct co_action *co_core_act(struct co_update *update, enum co_action_type type)
{
    struct co_action *action;

    assert(update->n < CO_ACTIONS_MAX);
    action = &update->actions[update->n++];
    *action = (struct co_action){.type = type};
    return action;
}

void co_core_act_worker(struct co_update *update, enum co_action_type type, uint32_t pool,
                        uint32_t worker, uint64_t ticket)
{
    struct co_action *action = co_core_act(update, type);

    action->pool = pool;
    action->worker = worker;
    action->ticket = ticket;
}

/* ---- tickets and their sources ---- */

struct co_source *co_core_source_of(struct co_core *core, const struct co_ticket *ticket)
{
    return &core->sources[ticket->source];
}

void co_core_start_unrecorded(struct co_core *core, struct co_ticket *ticket, int change, co_ms now)
{
    struct co_source *source = co_core_source_of(core, ticket);

    if (change > 0 && source->n_unrecorded == 0) {
        source->unrecorded_since = now;
    }
    source->n_unrecorded += (uint32_t)change;
}

/* The ticket's outcome is known: it waits to be settled. */
void co_core_end_ticket(struct co_core *core, struct co_ticket *ticket, enum co_outcome outcome,
                        uint32_t delay_s, co_ms now)
{
    if (ticket->began && !ticket->start_recorded && !ticket->in_turn) {
        co_core_start_unrecorded(core, ticket, -1, now);
    }
    co_tickets_end(&core->tickets, ticket, outcome, delay_s);
}

/* What waits in a queue goes back to its source, as if it had never been claimed. */
void co_core_return_queue(struct co_core *core, struct co_queue *queue, co_ms now)
{
    while (queue->waiting.head != 0) {
        co_core_end_ticket(core, &core->tickets.table[queue->waiting.head - 1], CO_OUTCOME_RETURNED,
                           0, now);
    }
}

/* Declined a moment ago, paused, or in maintenance. */
bool co_core_is_held(const struct co_queue *queue, co_ms now)
{
    return queue->held || now < queue->hold_until;
}

/* ---- what is to be done ---- */

static void run_pool(struct co_core *core, uint32_t index, co_ms now, struct co_update *update)
{
    struct co_pool *pool = &core->pools[index].pool;
    int worker;

    if (co_pool_zygote(pool, now)) {
        co_core_act_worker(update, CO_ACTION_ZYGOTE, index, 0, 0);
    }
    co_core_check_deadlines(core, index, now, update);
    co_core_hand_over(core, index, now, update);
    co_core_give_orphans(core, index, now, update);
    while ((worker = co_pool_hung(pool, now)) >= 0) {
        co_core_act_worker(update, CO_ACTION_KILL, index, (uint32_t)worker, 0);
    }
    while ((worker = co_pool_stop(pool, now)) >= 0) {
        co_core_act_worker(update, CO_ACTION_STOP, index, (uint32_t)worker, 0);
    }
    while ((worker = co_pool_fork(pool, now)) >= 0) {
        co_core_act_worker(update, CO_ACTION_FORK, index, (uint32_t)worker, 0);
    }
}

static void run(struct co_core *core, co_ms now, struct co_update *update)
{
    for (uint32_t i = 0; i < core->n_pools; i++) {
        run_pool(core, i, now, update);
    }
    if (core->draining) {
        co_core_drain_on(core, now, update);
    }
    for (uint32_t i = 0; i < core->n_sources; i++) {
        struct co_source *source = &core->sources[i];
        bool starving, wants;
        if (source->n_ended == 0) {
            source->ended_since = now;
        }
        source->n_ended = core->tickets.ended[i].count;
        if (source->in_flight) {
            continue; /* Most events come while a turn is under way. */
        }
        co_core_unclaim(core, i, now);
        /* Half of what is held ahead is left: now a turn is back in time, and carries much. */
        starving = core->draining || co_core_starving(core, i, now);
        wants = !core->draining && starving && co_core_wants_anything(core, source, i, now);
        if (co_source_due(source, wants, co_core_stale_waiting(core, i), starving, now)) {
            co_core_act(update, CO_ACTION_TURN)->source = i;
        }
    }
}

void co_core_step(struct co_core *core, const struct co_event *event, struct co_update *ret_update)
{
    struct co_pool *pool = &core->pools[event->pool].pool;

    ret_update->n = 0;
    switch (event->type) {
    case CO_EVENT_TICK:
        break;
    case CO_EVENT_ZYGOTE_UP:
        co_pool_zygote_up(pool, event->now);
        break;
    case CO_EVENT_ZYGOTE_DOWN:
        co_pool_zygote_down(pool, event->ok, event->current, event->now);
        break;
    case CO_EVENT_FORKED:
        co_pool_forked(pool, event->worker, event->pid);
        break;
    case CO_EVENT_FORK_FAILED:
        co_pool_fork_failed(pool, event->worker, event->now);
        break;
    case CO_EVENT_READY:
        co_pool_ready(pool, event->worker, event->now);
        break;
    case CO_EVENT_BEGAN:
        co_core_step_began(core, event);
        return;
    case CO_EVENT_ENDED:
        co_core_step_ended(core, event, ret_update);
        break;
    case CO_EVENT_EXITED:
        co_core_step_exited(core, event);
        break;
    case CO_EVENT_TURN:
        co_core_step_turn(core, event, ret_update);
        break;
    case CO_EVENT_CHANGED:
        co_source_changed(&core->sources[event->source], event->now);
        break;
    case CO_EVENT_ENDING:
        co_core_step_ending(core, event);
        break;
    case CO_EVENT_MEMORY:
        co_core_step_memory(core, event, ret_update);
        break;
    case CO_EVENT_TIGHT:
        for (uint32_t i = 0; i < core->n_pools; i++) {
            core->pools[i].pool.tight = event->ok;
        }
        break;
    case CO_EVENT_AGE:
        core->circuit_closed = co_pool_age(pool, event->now);
        break;
    case CO_EVENT_RELOAD:
        co_pool_reload(pool, event->now);
        break;
    case CO_EVENT_HOLD:
        co_core_step_hold(core, event);
        break;
    case CO_EVENT_SHARE:
        co_core_step_share(core, event);
        break;
    case CO_EVENT_LIMIT:
        core->tickets.queues[event->queue].limit = event->workers;
        break;
    case CO_EVENT_PEER_DEAD:
        for (uint32_t i = 0; i < core->n_sources; i++) {
            core->sources[i].recover_at = event->now;
        }
        break;
    case CO_EVENT_DRAIN:
        co_core_step_drain(core, event, ret_update);
        break;
    }
    run(core, event->now, ret_update);
}

/* ---- setting up ---- */

void co_core_init(struct co_core *core)
{
    memset(core, 0, sizeof *core);
}

uint32_t co_core_add_pool(struct co_core *core, const struct co_pool_config *config,
                          uint32_t workers, uint64_t seed, co_ms now)
{
    uint32_t index = core->n_pools++;

    assert(index < CO_POOLS_MAX);
    co_pool_init(
        &core->pools[index].pool, workers,
        &(struct co_pool_limits){.max_jobs = config->max_jobs, .max_time = config->max_time},
        config->boot == CO_BOOT_SPAWN, seed + index, now);
    core->pools[index].kill_grace = config->kill_grace;
    core->pools[index].deadline = UINT64_MAX;
    core->pools[index].job = config->job;
    core->pools[index].claim = config->claim;
    return index;
}

int co_core_add_source(struct co_core *core, const struct co_source_config *config, co_ms now)
{
    if (core->n_sources == CO_SOURCES_MAX) {
        return CO_EFULL;
    }
    co_source_init(&core->sources[core->n_sources], config, now);
    return (int)core->n_sources++;
}

int co_core_add_queue(struct co_core *core, const char *name, uint32_t pool, uint32_t source,
                      uint32_t table, uint32_t rank)
{
    core->sources[source].more = true; /* Look at once. */
    return co_tickets_add_queue(&core->tickets, name, pool, source, table, rank);
}

int co_core_found_queue(struct co_core *core, const struct co_turn_depth *depth, uint32_t pool,
                        uint32_t source, uint32_t rank, const struct co_turn *turn)
{
    int index = co_core_add_queue(core, depth->name, pool, source, depth->table, rank);

    if (index == CO_EFULL) {
        /* Turns under way with other sources may bring claims we do not see. */
        for (uint32_t i = 0; i < core->n_sources; i++) {
            if (i != source && core->sources[i].in_flight) {
                return CO_EFULL;
            }
        }
        index = co_tickets_idle_queue(&core->tickets, turn);
        if (index < 0) {
            return CO_EFULL;
        }
        co_tickets_reuse_queue(&core->tickets, (uint32_t)index, depth->name, pool, source,
                               depth->table, rank);
    }
    core->tickets.queues[index].discovered = true;
    core->tickets.queues[index].depth = *depth; /* It has jobs: not the next one's place. */
    return index;
}

void co_core_forget(struct co_core *core, uint64_t id)
{
    struct co_ticket *ticket = co_tickets_get(&core->tickets, id);

    assert(ticket != NULL && ticket->state == CO_TICKET_ENDED);
    co_tickets_free(&core->tickets, ticket);
}

co_ms co_core_deadline(const struct co_core *core, co_ms now)
{
    co_ms deadline = UINT64_MAX;

    for (uint32_t i = 0; i < core->n_pools; i++) {
        co_ms d = co_pool_deadline(&core->pools[i].pool, now);
        deadline = d < deadline ? d : deadline;
        d = core->pools[i].deadline;
        deadline = d < deadline ? d : deadline;
    }
    for (uint32_t i = 0; i < core->n_sources; i++) {
        const struct co_source *source = &core->sources[i];
        bool wants = !core->draining && co_core_starving(core, i, now) &&
                     co_core_wants_anything(core, source, i, now);
        co_ms d = co_source_deadline(source, wants);
        if (co_core_stale_waiting(core, i)) {
            co_ms fresh_until = source->last_good + CO_SOURCE_FRESH + 1;
            d = !source->in_flight && fresh_until < d ? fresh_until : d;
            d = d < source->retry_at ? source->retry_at : d;
        }
        deadline = d < deadline ? d : deadline;
    }
    for (uint32_t i = 0; i < core->tickets.n_queues; i++) {
        const struct co_queue *queue = &core->tickets.queues[i];
        if (queue->hold_until > now && queue->hold_until < deadline) {
            deadline = queue->hold_until;
        }
    }
    return deadline;
}
