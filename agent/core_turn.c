/* Turns with the sources: what goes with one, and what came back. */

#include <assert.h>
#include <string.h>

#include "agent/core_parts.h"

/* ---- there ---- */

static void add_settle(struct co_turn *turn, struct co_ticket *ticket)
{
    turn->settles[turn->n_settles++] = (struct co_turn_settle){
        .ticket = ticket->id,
        .table = ticket->table,
        .job_id = ticket->job_id,
        .reserved_at = ticket->reserved_at,
        .outcome = ticket->outcome,
        .delay_s = ticket->delay_s,
        .began = ticket->began,
        .record = ticket->record,
        .felled = ticket->felled,
        .text = ticket->text,
    };
    ticket->text = NULL; /* The turn's now. */
    ticket->in_turn = true;
}

static void add_start(struct co_turn *turn, struct co_ticket *ticket)
{
    turn->starts[turn->n_starts++] = (struct co_turn_start){
        .ticket = ticket->id,
        .table = ticket->table,
        .job_id = ticket->job_id,
        .reserved_at = ticket->reserved_at,
    };
    ticket->in_turn = true;
}

static void add_start_if_due(struct co_source *source, uint32_t index, struct co_turn *turn,
                             struct co_ticket *ticket)
{
    if (ticket != NULL && ticket->source == index && turn->n_starts < CO_TURN_STARTS_MAX &&
        (ticket->state == CO_TICKET_GIVEN || ticket->state == CO_TICKET_ORPHAN) && ticket->began &&
        !ticket->start_recorded && !ticket->in_turn) {
        add_start(turn, ticket);
        source->n_unrecorded -= 1;
    }
}

static void add_starts(struct co_core *core, uint32_t index, struct co_turn *turn)
{
    struct co_source *source = &core->sources[index];

    for (uint32_t p = 0; p < core->n_pools && source->n_unrecorded > 0; p++) {
        for (uint32_t w = 0; w < CO_PLACES_MAX; w++) {
            uint64_t id = core->pools[p].pool.workers[w].ticket;
            add_start_if_due(source, index, turn, co_tickets_get(&core->tickets, id));
        }
        for (uint32_t i = 0; core->tickets.orphans[p] > 0 && i < CO_TICKETS_MAX; i++) {
            if (core->tickets.table[i].state == CO_TICKET_ORPHAN) {
                add_start_if_due(source, index, turn, &core->tickets.table[i]);
            }
        }
    }
}

void co_core_fill(struct co_core *core, uint32_t index, struct co_turn *turn, co_ms now)
{
    struct co_source *source = &core->sources[index];
    struct co_ticket *ticket;

    co_source_fill(source, turn, now);
    while (turn->n_settles < CO_TURN_SETTLES_MAX &&
           (ticket = co_tickets_pop_ended(&core->tickets, index)) != NULL) {
        add_settle(turn, ticket);
    }
    add_starts(core, index, turn);
    turn->bye = source->closing && core->tickets.ended[index].count == 0;
    if (!source->closing) {
        co_core_fill_wants(core, index, turn, now);
    }
}

/* ---- and back ---- */

static void forget(struct co_update *update, struct co_ticket *ticket, bool applied)
{
    struct co_action *action = co_core_act(update, CO_ACTION_FORGET);

    action->ticket = ticket->id;
    action->applied = applied;
}

static void count_outcome(struct co_queue_counts *counts, enum co_outcome outcome)
{
    switch (outcome) {
    case CO_OUTCOME_DONE:
        counts->done += 1;
        break;
    case CO_OUTCOME_RELEASED:
    case CO_OUTCOME_LEFT:
        counts->released += 1;
        break;
    case CO_OUTCOME_FAILED:
        counts->failed += 1;
        break;
    case CO_OUTCOME_DECLINED:
        counts->declined += 1;
        break;
    case CO_OUTCOME_CRASHED:
        counts->crashed += 1;
        break;
    case CO_OUTCOME_LOST:
        counts->lost += 1;
        break;
    case CO_OUTCOME_QUARANTINED:
    case CO_OUTCOME_RETURNED:
        break;
    }
}

static void settled(struct co_core *core, struct co_turn *turn, struct co_update *update)
{
    for (uint32_t i = 0; i < turn->n_settles; i++) {
        struct co_turn_settle *settle = &turn->settles[i];
        struct co_ticket *ticket = co_tickets_get(&core->tickets, settle->ticket);
        assert(ticket != NULL && ticket->state == CO_TICKET_ENDED);
        if (settle->ret_applied) {
            count_outcome(&core->tickets.queues[ticket->queue].counts, ticket->outcome);
        } else {
            core->fenced += 1;
        }
        forget(update, ticket, settle->ret_applied);
    }
}

/* A failed turn changed nothing: all it carried waits for the next. */
static void take_back(struct co_core *core, struct co_turn *turn, co_ms now)
{
    for (uint32_t i = 0; i < turn->n_settles; i++) {
        struct co_ticket *ticket = co_tickets_get(&core->tickets, turn->settles[i].ticket);
        assert(ticket != NULL);
        ticket->in_turn = false;
        ticket->text = turn->settles[i].text;
        turn->settles[i].text = NULL;
        co_tickets_push_ended(&core->tickets, ticket);
    }
    for (uint32_t i = 0; i < turn->n_starts; i++) {
        struct co_ticket *ticket = co_tickets_get(&core->tickets, turn->starts[i].ticket);
        assert(ticket != NULL);
        ticket->in_turn = false;
        if (ticket->state != CO_TICKET_ENDED) {
            co_core_start_unrecorded(core, ticket, 1, now);
        }
    }
}

static void started(struct co_core *core, struct co_turn *turn)
{
    for (uint32_t i = 0; i < turn->n_starts; i++) {
        struct co_ticket *ticket = co_tickets_get(&core->tickets, turn->starts[i].ticket);
        assert(ticket != NULL);
        ticket->in_turn = false;
        ticket->start_recorded = true;
    }
}

static void admitted(struct co_core *core, struct co_turn *turn, co_ms now)
{
    for (uint32_t i = 0; i < turn->n_claims; i++) {
        struct co_turn_claim *claim = &turn->claims[i];
        struct co_ticket *ticket;
        int code = co_tickets_admit(&core->tickets, claim->queue, claim, now, &ticket);
        assert(code == CO_OK); /* The wants left room for it. */
        (void)code;
        if (co_core_is_held(&core->tickets.queues[claim->queue], now)) {
            co_core_end_ticket(core, ticket, CO_OUTCOME_RETURNED, 0, now);
        }
    }
}

static uint32_t job_hash(uint32_t source, uint32_t table, int64_t job_id)
{
    uint64_t h = ((uint64_t)job_id * 31 + table) * 31 + source;

    h *= 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 40) % (CO_TICKETS_MAX * 2);
}

/* Tickets are found by job only where a turn brings news of many at once, so the index is built
 * there instead of being kept. */
static void index_jobs(struct co_core *core)
{
    memset(core->index, 0, sizeof core->index);
    for (uint32_t i = 0; i < CO_TICKETS_MAX; i++) {
        const struct co_ticket *ticket = &core->tickets.table[i];
        uint32_t at;
        if (ticket->state == CO_TICKET_FREE) {
            continue;
        }
        at = job_hash(ticket->source, ticket->table, ticket->job_id);
        while (core->index[at] != 0) {
            at = (at + 1) % (CO_TICKETS_MAX * 2);
        }
        core->index[at] = i + 1;
    }
}

static struct co_ticket *find_job(struct co_core *core, uint32_t source, uint32_t table,
                                  int64_t job_id, int64_t reserved_at)
{
    uint32_t at = job_hash(source, table, job_id);

    for (; core->index[at] != 0; at = (at + 1) % (CO_TICKETS_MAX * 2)) {
        struct co_ticket *ticket = &core->tickets.table[core->index[at] - 1];
        if (ticket->source == source && ticket->table == table && ticket->job_id == job_id &&
            ticket->reserved_at == reserved_at) {
            return ticket;
        }
    }
    return NULL;
}

/* Cleared or taken by another before they began: they leave no trace. */
static void gone(struct co_core *core, uint32_t source, struct co_turn *turn,
                 struct co_update *update)
{
    for (uint32_t i = 0; i < turn->n_gone; i++) {
        struct co_ticket *ticket = find_job(core, source, turn->gone[i].table, turn->gone[i].job_id,
                                            turn->gone[i].reserved_at);
        if (ticket != NULL && ticket->state == CO_TICKET_QUEUED) {
            co_tickets_cancel(&core->tickets, ticket);
            forget(update, ticket, true);
        }
    }
}

static void beaten(struct co_core *core, uint32_t source, struct co_turn *turn)
{
    for (uint32_t i = 0; i < turn->n_beats; i++) {
        struct co_ticket *ticket =
            find_job(core, source, turn->beats[i].table, turn->beats[i].job_id, turn->beats[i].was);
        if (ticket != NULL) {
            ticket->reserved_at = turn->beats[i].reserved_at;
        }
    }
}

void co_core_step_turn(struct co_core *core, const struct co_event *event, struct co_update *update)
{
    struct co_source *source = &core->sources[event->source];
    struct co_turn *turn = event->turn;

    core->claims_asked[event->source] = 0;
    co_source_done(source, turn, event->now, event->wall_ms);
    if (turn->code < 0) {
        take_back(core, turn, event->now);
        return;
    }
    started(core, turn);
    settled(core, turn, update);
    if (turn->n_gone > 0 || turn->n_beats > 0) {
        index_jobs(core);
        gone(core, event->source, turn, update);
        beaten(core, event->source, turn);
    }
    admitted(core, turn, event->now);
    for (uint32_t i = 0; turn->depths && i < core->tickets.n_queues; i++) {
        if (core->tickets.queues[i].source == event->source) {
            core->tickets.queues[i].depth = (struct co_turn_depth){0}; /* Unless it has rows. */
        }
    }
    for (uint32_t i = 0; i < turn->n_depths; i++) {
        int queue = co_tickets_find_queue(&core->tickets, event->source, turn->depth[i].table,
                                          turn->depth[i].name);
        if (queue >= 0) {
            core->tickets.queues[queue].depth = turn->depth[i];
        }
    }
}
