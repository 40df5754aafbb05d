/* What must hold: after every step, at every hand-over, after a drain, once all is quiet. */

#include "sim/sim.h"

/* As CLOSE_PATIENCE of the core: a drain gives up on a source that does not answer. */
#define PATIENCE 5000

struct counts {
    uint32_t waiting[SIM_QUEUES_MAX], given[SIM_QUEUES_MAX];
    uint32_t pool_waiting[SIM_POOLS_MAX], orphans[SIM_POOLS_MAX];
    uint32_t unrecorded[SIM_SOURCES_MAX];
    uint32_t used, ended;
};

static void count_ticket(struct sim *sim, const struct co_ticket *ticket, struct counts *counts)
{
    const struct co_pool_worker *worker;

    counts->used += 1;
    switch (ticket->state) {
    case CO_TICKET_QUEUED:
        counts->waiting[ticket->queue] += 1;
        counts->pool_waiting[ticket->pool] += 1;
        break;
    case CO_TICKET_GIVEN:
        worker = &sim->core.pools[ticket->pool].pool.workers[ticket->worker];
        counts->given[ticket->queue] += 1;
        sim_must(sim, worker->ticket == ticket->id, "ticket %llu is given, worker %u has another",
                 (unsigned long long)ticket->id, ticket->worker);
        sim_must(sim, worker->state == CO_WORKER_BUSY || worker->state == CO_WORKER_DRAINING,
                 "worker %u has a ticket and is not busy", ticket->worker);
        counts->unrecorded[ticket->source] +=
            ticket->began && !ticket->start_recorded && !ticket->in_turn;
        break;
    case CO_TICKET_ORPHAN:
        counts->orphans[ticket->pool] += 1;
        counts->unrecorded[ticket->source] += !ticket->start_recorded && !ticket->in_turn;
        break;
    case CO_TICKET_ENDED:
        counts->ended += 1;
        break;
    case CO_TICKET_FREE:
    case CO_TICKET_STATES:
        break;
    }
}

static void check_tickets(struct sim *sim)
{
    const struct co_tickets *tickets = &sim->core.tickets;
    struct counts counts = {0};
    uint32_t in_line = 0;

    while (sim->low <= tickets->last_id && co_tickets_get(&sim->core.tickets, sim->low) == NULL) {
        sim->low += 1;
    }
    for (uint64_t id = sim->low; id <= tickets->last_id; id++) {
        const struct co_ticket *ticket = co_tickets_get(&sim->core.tickets, id);
        if (ticket != NULL) {
            count_ticket(sim, ticket, &counts);
        }
    }
    sim_must(sim, tickets->n_used == counts.used, "%u tickets are used, %u counted",
             tickets->n_used, counts.used);
    for (uint32_t i = 0; i < sim->n_queues; i++) {
        sim_must(sim, tickets->queues[i].waiting.count == counts.waiting[i],
                 "queue %u counts %u waiting, there are %u", i, tickets->queues[i].waiting.count,
                 counts.waiting[i]);
        sim_must(sim, counts.waiting[i] == 0 || !sim->queues[i].held, "a held queue has tickets");
        sim_must(sim, tickets->queues[i].n_given == counts.given[i],
                 "queue %u counts %u given, there are %u", i, tickets->queues[i].n_given,
                 counts.given[i]);
    }
    for (uint32_t i = 0; i < sim->n_pools; i++) {
        sim_must(sim, tickets->waiting[i] == counts.pool_waiting[i],
                 "pool %u counts %u waiting, there are %u", i, tickets->waiting[i],
                 counts.pool_waiting[i]);
        sim_must(sim, tickets->orphans[i] == counts.orphans[i],
                 "pool %u counts %u orphans, there are %u", i, tickets->orphans[i],
                 counts.orphans[i]);
    }
    for (uint32_t i = 0; i < sim->n_sources; i++) {
        sim_must(sim, sim->core.sources[i].n_unrecorded == counts.unrecorded[i],
                 "source %u counts %u starts to record, there are %u", i,
                 sim->core.sources[i].n_unrecorded, counts.unrecorded[i]);
        in_line +=
            tickets->ended[i].count + (sim->sources[i].busy ? sim->sources[i].turn.n_settles : 0);
    }
    sim_must(sim, in_line == counts.ended, "%u tickets have ended, %u are on their way",
             counts.ended, in_line);
}

static void check_pool(struct sim *sim, uint32_t index)
{
    const struct co_pool *pool = &sim->core.pools[index].pool;
    uint32_t by_state[CO_WORKER_STATES] = {0};
    uint32_t retiring = 0;

    for (uint32_t w = 0; w < SIM_JOB_PLACES; w++) {
        by_state[pool->workers[w].state] += 1;
        retiring += pool->workers[w].retiring && pool->workers[w].state != CO_WORKER_DRAINING;
        sim_must(sim, pool->workers[w].present == (pool->workers[w].state != CO_WORKER_DEAD),
                 "worker %u is present and dead, or neither", w);
        sim_must(sim,
                 pool->workers[w].present == (sim->pools[index].list[w].state != SIM_WORKER_NONE),
                 "the core thinks otherwise of worker %u", w);
    }
    by_state[CO_WORKER_DEAD] += CO_WORKERS_MAX - SIM_JOB_PLACES;
    sim_must(sim, pool->n_retiring == retiring, "pool %u counts %u retiring, there are %u", index,
             pool->n_retiring, retiring);
    for (uint32_t s = 0; s < CO_WORKER_STATES; s++) {
        sim_must(sim, pool->by_state[s] == by_state[s],
                 "pool %u counts %u workers %s, there are %u", index, pool->by_state[s],
                 co_worker_state_name(s), by_state[s]);
    }
    sim_must(sim, pool->n_idle == by_state[CO_WORKER_IDLE], "pool %u counts %u idle workers", index,
             pool->n_idle);
}

/* Reloads and recycling take nothing from those who wait for workers. */
static void check_capacity(struct sim *sim, uint32_t index)
{
    uint32_t able = co_pool_able(&sim->core.pools[index].pool);
    bool all = able >= sim->pools[index].workers;

    sim_must(sim, all || !sim->pools[index].full || !sim->peace || sim->drain_asked,
             "pool %u has %u able workers of %u", index, able, sim->pools[index].workers);
    sim->pools[index].full = sim->pools[index].full || all;
}

/* May a ticket of this queue be served at all? */
static bool is_servable(const struct sim *sim, const struct co_ticket *ticket)
{
    const struct sim_source *source = &sim->sources[ticket->source];

    return sim->core.sources[ticket->source].up &&
           sim->now - source->last_back <= CO_SOURCE_STALE &&
           sim->core.tickets.queues[ticket->queue].hold_until <= sim->now;
}

static bool goes_before(const struct sim *sim, const struct co_ticket *a, const struct co_ticket *b)
{
    uint32_t a_rank = sim->queues[a->queue].rank, b_rank = sim->queues[b->queue].rank;
    return a_rank < b_rank || (a_rank == b_rank && a->id < b->id);
}

/* The ticket that its pool must serve next. */
static const struct co_ticket *next_of(struct sim *sim, uint32_t pool)
{
    const struct co_ticket *best = NULL;

    for (uint64_t id = sim->low; id <= sim->core.tickets.last_id; id++) {
        const struct co_ticket *ticket = co_tickets_get(&sim->core.tickets, id);
        if (ticket != NULL && ticket->state == CO_TICKET_QUEUED && ticket->pool == pool &&
            is_servable(sim, ticket) && (best == NULL || goes_before(sim, ticket, best))) {
            best = ticket;
        }
    }
    return best;
}

static bool is_fresh(const struct sim *sim, uint32_t source)
{
    return sim->core.sources[source].up && sim->sources[source].ever_back &&
           sim->now - sim->sources[source].last_back <= CO_SOURCE_FRESH;
}

void sim_check_give(struct sim *sim, const struct co_ticket *ticket)
{
    const struct sim_source *source = &sim->sources[ticket->source];
    const struct sim_job *job = sim_rows_find(sim, ticket->source, ticket->table, ticket->job_id);
    const struct co_ticket *better = next_of(sim, ticket->pool);

    sim_must(sim, is_fresh(sim, ticket->source),
             "a job is handed over, and the last look is %llu ms old",
             (unsigned long long)(sim->now - source->last_back));
    sim_must(sim, job != NULL, "a job is handed over that has another id");
    sim_must(sim, !sim->queues[ticket->queue].held, "a job of a held queue is handed over");
    sim_must(
        sim,
        job->fate == SIM_LIVE || job->fate == SIM_TAKEN || job->cleared_at >= source->last_commit,
        "a job is handed over that was cleared before the last look");
    sim_must(sim, better == NULL || goes_before(sim, ticket, better),
             "ticket %llu is given before ticket %llu", (unsigned long long)ticket->id,
             (unsigned long long)(better != NULL ? better->id : 0));
    sim_must(
        sim,
        job->meddled || job->fate != SIM_LIVE || ticket->attempts == job->starts - job->given_back,
        "attempts %u are told, the job began %u times", ticket->attempts, job->starts);
}

/* A free worker and a ticket that may be served: nobody waits for anything. */
static void check_no_one_waits(struct sim *sim, uint32_t pool)
{
    const struct co_ticket *ticket;

    if (sim->core.pools[pool].pool.n_idle == 0 || sim->core.tickets.waiting[pool] == 0) {
        return;
    }
    ticket = next_of(sim, pool);
    sim_must(sim, ticket == NULL || !is_fresh(sim, ticket->source),
             "ticket %llu waits and a worker is idle",
             (unsigned long long)(ticket != NULL ? ticket->id : 0));
}

/* Jobs that nobody had before come in the order of their ids. */
static void check_admission(struct sim *sim)
{
    for (; sim->admitted < sim->core.tickets.last_id; sim->admitted++) {
        const struct co_ticket *ticket = co_tickets_get(&sim->core.tickets, sim->admitted + 1);
        struct sim_job *job =
            ticket != NULL ? sim_rows_find(sim, ticket->source, ticket->table, ticket->job_id)
                           : NULL;
        struct sim_queue *queue;
        if (job == NULL || job->seen) {
            continue;
        }
        queue = &sim->queues[ticket->queue];
        sim_must(sim, job->id > queue->last_fresh, "job %lld is admitted after job %lld",
                 (long long)job->id, (long long)queue->last_fresh);
        queue->last_fresh = job->id;
        job->seen = true;
    }
}

void sim_check_step(struct sim *sim)
{
    if (sim->agent == 0) {
        return;
    }
    check_tickets(sim);
    check_admission(sim);
    for (uint32_t i = 0; i < sim->n_pools; i++) {
        check_pool(sim, i);
        check_capacity(sim, i);
        check_no_one_waits(sim, i);
        sim_must(sim, !sim->drain_asked || sim->core.tickets.waiting[i] == 0,
                 "a draining agent keeps jobs waiting");
    }
}

void sim_check_drained(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        const struct sim_job *job = &sim->jobs[i];
        const struct co_source *source = &sim->core.sources[sim->queues[job->queue].source];
        bool gave_up = !source->closed && sim->now - source->closing_at > PATIENCE;
        sim_must(sim, job->holder != sim->agent || gave_up, "job %u is held after the drain", i);
        sim_must(sim, job->running == (job->stock_until != 0), "job %u runs after the drain", i);
    }
}

void sim_check_settled(struct sim *sim)
{
    const struct co_tickets *tickets = &sim->core.tickets;

    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        const struct sim_job *job = &sim->jobs[i];
        sim_must(sim, job->holder == 0 || job->meddled || job->fate == SIM_CLEARED,
                 "job %u is still held", i);
        sim_must(sim,
                 !job->final || job->meddled || job->fate == SIM_CLEARED || job->fate == SIM_DONE ||
                     job->fate == SIM_FAILED,
                 "the outcome of job %u was lost", i);
    }
    for (uint32_t i = 0; i < sim->n_pools; i++) {
        sim_must(sim, tickets->waiting[i] == 0 && tickets->orphans[i] == 0,
                 "pool %u still has tickets", i);
    }
}

static bool is_stuck(const struct co_pool_worker *worker)
{
    return worker->present && worker->state != CO_WORKER_IDLE;
}

void sim_check_quiet(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_pools; i++) {
        const struct co_pool *pool = &sim->core.pools[i].pool;
        if (pool->circuit.state != CO_CIRCUIT_CLOSED) {
            continue; /* No job comes to close it. */
        }
        uint32_t there = co_pool_able(pool) + pool->by_state[CO_WORKER_BOOTING];
        sim_must(sim, there >= sim->pools[i].workers, "pool %u has %u workers of %u", i, there,
                 sim->pools[i].workers);
        /* One that hangs, in its boot or in its end, may have the place of the newest. */
        bool hangs = is_stuck(&pool->workers[CO_PLACE_CONTROL]) ||
                     is_stuck(&pool->workers[CO_PLACE_CONTROL + 1]);
        sim_must(sim, hangs || co_pool_control(pool) >= 0, "pool %u has no control worker", i);
        for (uint32_t w = 0; w < CO_PLACE_BOOKKEEPER && !hangs; w++) {
            sim_must(sim,
                     !pool->workers[w].present || pool->workers[w].retiring ||
                         pool->workers[w].state == CO_WORKER_DRAINING ||
                         pool->workers[w].generation == pool->generation,
                     "worker %u.%u is of an old generation", i, w);
        }
    }
}
