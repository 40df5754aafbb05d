#include "agent/core.h"

#include <assert.h>
#include <string.h>

#include "agent/fate.h"
#include "proto/err.h"

/* A declined queue is asked again after a second, as the stock worker's sleep has it. */
#define DECLINE_HOLD 1000
/* How long a draining agent waits for a source that does not answer. */
#define CLOSE_PATIENCE 5000
/* A bookkeeper's own time, how often one may fail, and how long a drain waits for them. */
#define BOOKKEEPING_LIMIT 30000
#define BOOKKEEPINGS_MAX 3
#define BOOKKEEPING_PATIENCE 60000
#define KILL_AGAIN 1000
#define CLAIM_BYTES (32u * 1024 * 1024)

static struct co_action *act(struct co_update *update, enum co_action_type type)
{
    struct co_action *action;

    assert(update->n < CO_ACTIONS_MAX);
    action = &update->actions[update->n++];
    *action = (struct co_action){.type = type};
    return action;
}

static void act_worker(struct co_update *update, enum co_action_type type, uint32_t pool,
                       uint32_t worker, uint64_t ticket)
{
    struct co_action *action = act(update, type);

    action->pool = pool;
    action->worker = worker;
    action->ticket = ticket;
}

/* ---- tickets and their sources ---- */

static struct co_source *source_of(struct co_core *core, const struct co_ticket *ticket)
{
    return &core->sources[ticket->source];
}

static void start_unrecorded(struct co_core *core, struct co_ticket *ticket, int change, co_ms now)
{
    struct co_source *source = source_of(core, ticket);

    if (change > 0 && source->n_unrecorded == 0) {
        source->unrecorded_since = now;
    }
    source->n_unrecorded += (uint32_t)change;
}

/* The ticket's outcome is known: it waits to be settled. */
static void end_ticket(struct co_core *core, struct co_ticket *ticket, enum co_outcome outcome,
                       uint32_t delay_s, co_ms now)
{
    if (ticket->began && !ticket->start_recorded && !ticket->in_turn) {
        start_unrecorded(core, ticket, -1, now);
    }
    co_tickets_end(&core->tickets, ticket, outcome, delay_s);
}

/* What waits in a queue goes back to its source, as if it had never been claimed. */
static void return_queue(struct co_core *core, struct co_queue *queue, co_ms now)
{
    while (queue->waiting.head != 0) {
        end_ticket(core, &core->tickets.table[queue->waiting.head - 1], CO_OUTCOME_RETURNED, 0,
                   now);
    }
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

/* Declined a moment ago, paused, or in maintenance. */
static bool is_held(const struct co_queue *queue, co_ms now)
{
    return queue->held || now < queue->hold_until;
}

/* ---- claiming ---- */

struct appetite {
    uint32_t idle;  /* Idle workers without a ticket waiting for them. */
    uint32_t total; /* And how many more to hold ahead. */
};

/* Sources whose tickets may be handed over, now or after a fresh look, a bit each. One that does
 * not answer must not keep the others' jobs from the workers. */
static uint32_t answering(const struct co_core *core, co_ms now)
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
    uint32_t sources = answering(core, now);
    uint32_t n = core->tickets.waiting[pool];

    for (uint32_t i = 0; n > 0 && i < core->tickets.n_queues; i++) {
        const struct co_queue *queue = &core->tickets.queues[i];
        if (queue->pool == pool &&
            (is_held(queue, now) || (sources & (1u << queue->source)) == 0)) {
            n -= queue->waiting.count;
        }
    }
    return n;
}

static struct appetite appetite_of(const struct co_core *core, uint32_t pool,
                                   const struct co_source *source, co_ms now)
{
    uint32_t idle = core->pools[pool].pool.n_idle;
    uint32_t claim = core->pools[pool].claim;
    struct appetite appetite = {0};
    uint32_t waiting, hold;

    if (core->pools[pool].pool.draining || co_pool_alive(&core->pools[pool].pool) == 0) {
        return appetite;
    }
    waiting = servable(core, pool, now);
    hold = claim != CO_CLAIM_AUTO ? claim : idle + co_source_prefetch(source, now);
    appetite.idle = idle > waiting ? idle - waiting : 0;
    appetite.total = hold > waiting ? hold - waiting : 0;
    return appetite;
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

static bool wants_anything(const struct co_core *core, const struct co_source *source,
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
        if (queue->source == index && hungry[queue->pool] && !is_held(queue, now)) {
            return true;
        }
    }
    return false;
}

static bool stale_waiting(const struct co_core *core, uint32_t index)
{
    for (uint32_t i = 0; i < core->tickets.n_queues; i++) {
        const struct co_queue *queue = &core->tickets.queues[i];
        if (queue->source == index && queue->waiting.count > 0 &&
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
                     const struct appetite *appetite)
{
    struct co_queue *queue = &core->tickets.queues[index];
    uint32_t asked = core->claims_asked[queue->source];
    uint32_t count = first ? appetite->total
                           : (appetite->idle < appetite->total ? appetite->idle : appetite->total);

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
        if (queue->rank == rank && queue->source == source && !is_held(queue, now)) {
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
            add_want(core, turn, list[(k + turned) % n], rank == first, &appetite);
        }
        if (turn->n_wants == CO_TURN_WANTS_MAX && turn->n_wants > before) {
            /* More queues than a turn can ask: the next one goes on where this one ends. */
            core->pools[pool].rotate[source] = turned + turn->n_wants - before;
        }
    }
}

static void fill_wants(struct co_core *core, uint32_t source, struct co_turn *turn, co_ms now)
{
    for (uint32_t pool = 0; pool < core->n_pools; pool++) {
        fill_pool_wants(core, source, pool, turn, now);
    }
}

/* ---- turns ---- */

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

static void add_starts(struct co_core *core, uint32_t index, struct co_turn *turn)
{
    struct co_source *source = &core->sources[index];

    for (uint32_t p = 0; p < core->n_pools && source->n_unrecorded > 0; p++) {
        for (uint32_t w = 0; w < CO_WORKERS_MAX && turn->n_starts < CO_TURN_STARTS_MAX; w++) {
            struct co_ticket *ticket =
                co_tickets_get(&core->tickets, core->pools[p].pool.workers[w].ticket);
            if (ticket != NULL && ticket->source == index && ticket->state == CO_TICKET_GIVEN &&
                ticket->began && !ticket->start_recorded && !ticket->in_turn) {
                add_start(turn, ticket);
                source->n_unrecorded -= 1;
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
        fill_wants(core, index, turn, now);
    }
}

static void forget(struct co_update *update, struct co_ticket *ticket, bool applied)
{
    struct co_action *action = act(update, CO_ACTION_FORGET);

    action->ticket = ticket->id;
    action->applied = applied;
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
        if (ticket->state == CO_TICKET_GIVEN) {
            start_unrecorded(core, ticket, 1, now);
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
        if (is_held(&core->tickets.queues[claim->queue], now)) {
            end_ticket(core, ticket, CO_OUTCOME_RETURNED, 0, now);
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

static void step_turn(struct co_core *core, const struct co_event *event, struct co_update *update)
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
    for (uint32_t i = 0; i < turn->n_depths; i++) {
        int queue = co_tickets_find_queue(&core->tickets, event->source, turn->depth[i].table,
                                          turn->depth[i].name);
        if (queue >= 0) {
            core->tickets.queues[queue].depth = turn->depth[i];
        }
    }
}

/* ---- workers ---- */

/* Vetoed: what else waits in that queue goes back as well, so that it is neither in the way of
 * others nor handed over before the older job that was declined. */
static void decline(struct co_core *core, struct co_queue *queue, co_ms now)
{
    queue->hold_until = now + DECLINE_HOLD;
    return_queue(core, queue, now);
}

static void note_began(struct co_core *core, struct co_ticket *ticket, co_ms now)
{
    if (!ticket->began) {
        ticket->began = true;
        start_unrecorded(core, ticket, 1, now);
    }
}

/* Counted where it is known, not where it is written: a repeated turn must not count twice. */
static void note_outcome(struct co_core *core, struct co_ticket *ticket,
                         const struct co_event *event)
{
    if (event->outcome == CO_OUTCOME_DECLINED) {
        decline(core, &core->tickets.queues[ticket->queue], event->now);
    } else if (event->outcome != CO_OUTCOME_RETURNED) {
        note_began(core, ticket, event->now); /* end_ticket takes the start back. */
        co_hist_add(&core->pools[event->pool].service, event->run_us);
    }
}

static void step_ended(struct co_core *core, const struct co_event *event, struct co_update *update)
{
    struct co_ticket *ticket = co_tickets_get(&core->tickets, event->ticket);
    struct co_pool *pool = &core->pools[event->pool].pool;
    struct co_pool_worker *worker = &pool->workers[event->worker];
    bool sealed = worker->state == CO_WORKER_DRAINING && worker->reason == CO_EXIT_JOB_TIMEOUT;

    if (ticket == NULL || ticket->state != CO_TICKET_GIVEN || ticket->worker != event->worker ||
        ticket->pool != event->pool || worker->ticket != event->ticket) {
        return; /* A worker cannot speak for another's ticket. */
    }
    note_outcome(core, ticket, event);
    ticket->record = event->record;
    ticket->text = event->text;
    co_source_count_end(source_of(core, ticket), event->now);
    end_ticket(core, ticket, event->outcome, event->delay_s, event->now);
    core->circuit_closed = co_pool_ended(pool, event->worker, event->over_memory, event->now);
    if (sealed || (event->timed_out && worker->present)) {
        /* Its handler is done, or it finished in the same moment: the process is spent. */
        co_pool_seal(pool, event->worker, CO_EXIT_JOB_TIMEOUT, event->now);
        act_worker(update, CO_ACTION_KILL, event->pool, event->worker, event->ticket);
    } else if (ticket->orphaned) {
        act_worker(update, CO_ACTION_STOP, event->pool, event->worker, 0);
    }
}

/* ---- workers that died under a job ---- */

static enum co_cause cause_of(enum co_exit_reason reason)
{
    return reason == CO_EXIT_JOB_TIMEOUT ? CO_CAUSE_TIMEOUT
           : reason == CO_EXIT_OOM       ? CO_CAUSE_OOM
                                         : CO_CAUSE_CRASH;
}

/* A bookkeeper that died itself: another tries, three in all. */
static void bookkeeping_failed(struct co_core *core, struct co_ticket *ticket, co_ms now)
{
    ticket->bookkeepings += 1;
    if (ticket->bookkeepings >= BOOKKEEPINGS_MAX) {
        end_ticket(core, ticket, CO_OUTCOME_QUARANTINED, 0, now);
    } else {
        co_tickets_orphan(&core->tickets, ticket);
    }
}

static void decide_fate(struct co_core *core, struct co_ticket *ticket, enum co_exit_reason reason,
                        const struct co_event *event)
{
    enum co_cause cause = cause_of(reason);
    struct co_fate fate =
        co_fate_decide(&ticket->facts, &core->pools[event->pool].job, ticket->attempts + 1,
                       ticket->crashes, cause, (co_unix)(event->wall_ms / 1000));

    ticket->text = event->text; /* The bookkeeper tells it to the application. */
    if (fate.bookkeeper) {
        ticket->cause = cause;
        ticket->final = fate.final;
        co_tickets_orphan(&core->tickets, ticket);
    } else {
        /* A time limit is the job's own doing and no crash: back as Laravel releases. */
        end_ticket(core, ticket,
                   cause == CO_CAUSE_TIMEOUT ? CO_OUTCOME_RELEASED : CO_OUTCOME_CRASHED,
                   fate.delay_s, event->now);
    }
}

/* Its worker is dead: what becomes of the job it had. */
static void step_exited(struct co_core *core, const struct co_event *event)
{
    struct co_pool *pool = &core->pools[event->pool].pool;
    struct co_ticket *ticket = co_tickets_get(&core->tickets, pool->workers[event->worker].ticket);
    bool bookkeeper = event->worker >= CO_PLACE_BOOKKEEPER;

    core->last_exit = co_pool_exited(pool, event->worker, event->exit_code, event->signal,
                                     event->by_oom, event->now, &core->circuit_opened);
    if (ticket == NULL || ticket->state != CO_TICKET_GIVEN) {
        core->orphan_text = event->text; /* Nobody takes it: the caller's again. */
        return;
    }
    core->orphan_text = NULL;
    if (bookkeeper) {
        core->orphan_text = event->text;
        bookkeeping_failed(core, ticket, event->now);
        return;
    }
    if (event->ok) {
        note_began(core, ticket, event->now);
    }
    if (!ticket->began || core->drain_fast) {
        core->orphan_text = event->text;
        end_ticket(core, ticket, ticket->began ? CO_OUTCOME_LOST : CO_OUTCOME_RETURNED, 0,
                   event->now);
        return;
    }
    decide_fate(core, ticket, core->last_exit, event);
}

/* ---- time limits ---- */

/* Its time is over. First its own handler, after the grace the kill; a bookkeeper has no handler.
 */
static void expire(struct co_core *core, uint32_t index, uint32_t worker, struct co_ticket *ticket,
                   co_ms now, struct co_update *update)
{
    if (ticket->ending || ticket->orphaned) {
        co_pool_seal(&core->pools[index].pool, worker, CO_EXIT_JOB_TIMEOUT, now);
        act_worker(update, CO_ACTION_KILL, index, worker, ticket->id);
        ticket->deadline = now + KILL_AGAIN;
        return;
    }
    ticket->ending = true;
    ticket->deadline = now + core->pools[index].kill_grace;
    act_worker(update, CO_ACTION_TIMEOUT, index, worker, ticket->id);
}

/* Looked at only when the earliest deadline has come. */
static void check_deadlines(struct co_core *core, uint32_t index, co_ms now,
                            struct co_update *update)
{
    struct co_pool *pool = &core->pools[index].pool;
    co_ms earliest = UINT64_MAX;

    if (now < core->pools[index].deadline) {
        return;
    }
    for (uint32_t w = 0; w < CO_PLACES_MAX; w++) {
        struct co_ticket *ticket = co_tickets_get(&core->tickets, pool->workers[w].ticket);
        if (ticket == NULL || ticket->state != CO_TICKET_GIVEN || ticket->deadline == 0) {
            continue;
        }
        if (now >= ticket->deadline) {
            expire(core, index, w, ticket, now, update);
        }
        earliest = ticket->deadline < earliest ? ticket->deadline : earliest;
    }
    core->pools[index].deadline = earliest;
}

/* The caller has swapped the slot: ok = the job was running and cannot end well any more. */
static void step_ending(struct co_core *core, const struct co_event *event)
{
    struct co_ticket *ticket = co_tickets_get(&core->tickets, event->ticket);

    if (event->ok && ticket != NULL && ticket->state == CO_TICKET_GIVEN) {
        co_pool_seal(&core->pools[event->pool].pool, event->worker, CO_EXIT_JOB_TIMEOUT,
                     event->now);
        core->tickets.queues[ticket->queue].counts.timeouts += 1;
    }
}

static void set_deadline(struct co_core *core, uint32_t index, struct co_ticket *ticket,
                         co_ms limit, co_ms now)
{
    ticket->ending = false;
    ticket->deadline = limit == 0 ? 0 : now + limit;
    if (limit != 0 && ticket->deadline < core->pools[index].deadline) {
        core->pools[index].deadline = ticket->deadline;
    }
}

/* A worker over its memory limit. */
static void step_memory(struct co_core *core, const struct co_event *event,
                        struct co_update *update)
{
    struct co_pool *pool = &core->pools[event->pool].pool;

    if (pool->workers[event->worker].present) {
        co_pool_seal(pool, event->worker, CO_EXIT_OOM, event->now);
        act_worker(update, CO_ACTION_KILL, event->pool, event->worker,
                   pool->workers[event->worker].ticket);
    }
}

/* A pause, a maintenance, or their end: what waits goes back at once. */
static void step_hold(struct co_core *core, const struct co_event *event)
{
    struct co_queue *queue = &core->tickets.queues[event->queue];

    queue->held = event->ok;
    if (event->ok) {
        return_queue(core, queue, event->now);
    } else {
        core->sources[queue->source].more = true; /* Look at once. */
    }
}

static void step_began(struct co_core *core, const struct co_event *event)
{
    struct co_ticket *ticket = co_tickets_get(&core->tickets, event->ticket);

    if (ticket != NULL && ticket->state == CO_TICKET_GIVEN) {
        note_began(core, ticket, event->now);
    }
}

/* ---- draining ---- */

static void return_waiting(struct co_core *core, co_ms now)
{
    for (uint32_t i = 0; i < core->tickets.n_queues; i++) {
        return_queue(core, &core->tickets.queues[i], now);
    }
}

static bool is_control(uint32_t worker)
{
    return worker >= CO_PLACE_CONTROL && worker < CO_PLACE_BOOKKEEPER;
}

static void step_drain(struct co_core *core, const struct co_event *event, struct co_update *update)
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
                act_worker(update, CO_ACTION_KILL, i, w, pool->workers[w].ticket);
            }
        }
    }
}

/* Jobs whose worker died still want their bookkeeper; not for ever, and not without a zygote. */
static bool bookkeeping(struct co_core *core, uint32_t index, co_ms now)
{
    struct co_pool *pool = &core->pools[index].pool;
    struct co_ticket *ticket;
    bool busy = false;

    if (!core->drain_fast && pool->zygote_up && now - core->drain_at < BOOKKEEPING_PATIENCE) {
        for (uint32_t i = CO_PLACE_BOOKKEEPER; i < CO_PLACES_MAX; i++) {
            busy = busy || pool->workers[i].present;
        }
        return busy || core->tickets.orphans[index] > 0;
    }
    while ((ticket = co_tickets_next_orphan(&core->tickets, index)) != NULL) {
        end_ticket(core, ticket, CO_OUTCOME_CRASHED, 0, now);
    }
    return false;
}

/* Workers first, then what they left at the sources, then the zygotes. */
static void drain_on(struct co_core *core, co_ms now, struct co_update *update)
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
            act_worker(update, CO_ACTION_END_ZYGOTE, i, 0, 0);
        }
    }
    if (all_closed && !core->drained) {
        core->drained = true;
        act(update, CO_ACTION_DRAINED);
    }
}

/* ---- what is to be done ---- */

static void hand_over(struct co_core *core, uint32_t index, co_ms now, struct co_update *update)
{
    struct co_pool *pool = &core->pools[index].pool;
    int worker;

    while (!pool->draining && core->tickets.waiting[index] > 0 &&
           (worker = co_pool_idle(pool)) >= 0) {
        struct co_ticket *ticket =
            co_tickets_next(&core->tickets, index, answering(core, now), now);
        if (ticket == NULL || !co_source_fresh(source_of(core, ticket), now)) {
            return;
        }
        co_tickets_give(&core->tickets, ticket, (uint32_t)worker, now);
        co_pool_busy(pool, (uint32_t)worker, ticket->id, now);
        co_hist_add(&core->pools[index].wait, (now - ticket->admitted_at) * 1000);
        set_deadline(core, index, ticket, co_fate_timeout(&ticket->facts, &core->pools[index].job),
                     now);
        act_worker(update, CO_ACTION_GIVE, index, (uint32_t)worker, ticket->id);
    }
}

static void give_orphans(struct co_core *core, uint32_t index, co_ms now, struct co_update *update)
{
    struct co_pool *pool = &core->pools[index].pool;
    int worker;

    while (core->tickets.orphans[index] > 0 && (worker = co_pool_bookkeeper(pool)) >= 0) {
        struct co_ticket *ticket = co_tickets_next_orphan(&core->tickets, index);
        co_tickets_adopt(&core->tickets, ticket, (uint32_t)worker, now);
        co_pool_busy(pool, (uint32_t)worker, ticket->id, now);
        set_deadline(core, index, ticket, BOOKKEEPING_LIMIT, now);
        act_worker(update, CO_ACTION_BOOKKEEP, index, (uint32_t)worker, ticket->id);
    }
    pool->bookkeepers_wanted = core->tickets.orphans[index];
}

static void run_pool(struct co_core *core, uint32_t index, co_ms now, struct co_update *update)
{
    struct co_pool *pool = &core->pools[index].pool;
    int worker;

    if (co_pool_zygote(pool, now)) {
        act_worker(update, CO_ACTION_ZYGOTE, index, 0, 0);
    }
    check_deadlines(core, index, now, update);
    hand_over(core, index, now, update);
    give_orphans(core, index, now, update);
    while ((worker = co_pool_hung(pool, now)) >= 0) {
        act_worker(update, CO_ACTION_KILL, index, (uint32_t)worker, 0);
    }
    while ((worker = co_pool_stop(pool, now)) >= 0) {
        act_worker(update, CO_ACTION_STOP, index, (uint32_t)worker, 0);
    }
    while ((worker = co_pool_fork(pool, now)) >= 0) {
        act_worker(update, CO_ACTION_FORK, index, (uint32_t)worker, 0);
    }
}

static void run(struct co_core *core, co_ms now, struct co_update *update)
{
    for (uint32_t i = 0; i < core->n_pools; i++) {
        run_pool(core, i, now, update);
    }
    if (core->draining) {
        drain_on(core, now, update);
    }
    for (uint32_t i = 0; i < core->n_sources; i++) {
        struct co_source *source = &core->sources[i];
        bool wants;
        source->n_ended = core->tickets.ended[i].count;
        if (source->in_flight) {
            continue; /* Most events come while a turn is under way. */
        }
        wants = !core->draining && wants_anything(core, source, i, now);
        if (co_source_due(source, wants, stale_waiting(core, i), now)) {
            act(update, CO_ACTION_TURN)->source = i;
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
        co_pool_exited(pool, event->worker, 1, 0, false, event->now, &core->circuit_opened);
        break;
    case CO_EVENT_READY:
        co_pool_ready(pool, event->worker, event->now);
        break;
    case CO_EVENT_BEGAN:
        step_began(core, event);
        return;
    case CO_EVENT_ENDED:
        step_ended(core, event, ret_update);
        break;
    case CO_EVENT_EXITED:
        step_exited(core, event);
        break;
    case CO_EVENT_TURN:
        step_turn(core, event, ret_update);
        break;
    case CO_EVENT_CHANGED:
        co_source_changed(&core->sources[event->source], event->now);
        break;
    case CO_EVENT_ENDING:
        step_ending(core, event);
        break;
    case CO_EVENT_MEMORY:
        step_memory(core, event, ret_update);
        break;
    case CO_EVENT_AGE:
        co_pool_age(pool, event->now);
        break;
    case CO_EVENT_RELOAD:
        co_pool_reload(pool, event->now);
        break;
    case CO_EVENT_HOLD:
        step_hold(core, event);
        break;
    case CO_EVENT_DRAIN:
        step_drain(core, event, ret_update);
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
    core->pools[index].present = true;
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
        bool wants = !core->draining && wants_anything(core, source, i, now);
        co_ms d = co_source_deadline(source, wants);
        if (stale_waiting(core, i)) {
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
