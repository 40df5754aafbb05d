#include "sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WALL_START 1700000000

int64_t sim_wall_s(const struct sim *sim)
{
    return WALL_START + (int64_t)(sim->now / 1000);
}

uint32_t sim_random(struct sim *sim, uint32_t n)
{
    sim->random ^= sim->random << 13; /* xorshift64 */
    sim->random ^= sim->random >> 7;
    sim->random ^= sim->random << 17;
    return (uint32_t)((sim->random >> 32) % n);
}

bool sim_chance(struct sim *sim, uint32_t n)
{
    return !sim->quiet && sim_random(sim, 1000) < n;
}

bool sim_fault(struct sim *sim, uint32_t n)
{
    return !sim->peace && sim_chance(sim, n);
}

void sim_note(struct sim *sim, const char *fmt, ...)
{
    va_list args;

    for (const char *c = fmt; *c != '\0'; c++) { /* FNV-1a; the numbers follow from the random. */
        sim->digest = (sim->digest ^ (uint8_t)*c) * 1099511628211u;
    }
    sim->digest = (sim->digest ^ sim->now ^ sim->random) * 1099511628211u;
    if (!sim->tracing) {
        return;
    }
    fprintf(stderr, "[%6llu] ", (unsigned long long)sim->now);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n");
}

void sim_fail(struct sim *sim, const char *fmt, ...)
{
    va_list args;

    fprintf(stderr, "after %llu ms: ", (unsigned long long)sim->now);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n");
    abort(); /* The handler of the test says the seed. */
}

/* ---- the loop ---- */

void sim_post(struct sim *sim, const struct co_event *event)
{
    sim_must(sim, sim->n_events < SIM_EVENTS_MAX, "too many events at once");
    sim->events[sim->n_events++] = *event;
}

static void forget(struct sim *sim, const struct co_action *action)
{
    struct co_ticket *ticket = co_tickets_get(&sim->core.tickets, action->ticket);
    struct sim_job *job;

    sim_must(sim, ticket != NULL, "an unknown ticket is to be forgotten");
    for (job = sim->jobs; job < sim->jobs + sim->n_jobs; job++) {
        if (job->end.present && job->end.agent == sim->agent && job->end.ticket == ticket->id) {
            job->end.present = false; /* Its ring may use the room again. */
        }
    }
    free(ticket->payload);
    free(ticket->text);
    ticket->payload = NULL;
    ticket->text = NULL;
    co_core_forget(&sim->core, action->ticket);
}

static void stop_agent(struct sim *sim)
{
    for (uint64_t id = sim->low; id <= sim->core.tickets.last_id; id++) {
        struct co_ticket *ticket = co_tickets_get(&sim->core.tickets, id);
        if (ticket != NULL) {
            free(ticket->payload);
            free(ticket->text);
        }
    }
    sim_world_crash(sim);
    sim_rows_crash(sim);
    for (uint32_t i = 0; i < sim->n_events; i++) {
        free(sim->events[i].text);
    }
    sim->n_events = 0;
    sim->agent = 0;
    sim->drain_asked = false;
    sim->start_at = sim->now + sim_random(sim, 500);
}

static void obey(struct sim *sim, const struct co_action *action)
{
    static const char *const names[] = {
        [CO_ACTION_ZYGOTE] = "zygote",     [CO_ACTION_FORK] = "fork",
        [CO_ACTION_GIVE] = "give",         [CO_ACTION_STOP] = "stop",
        [CO_ACTION_KILL] = "kill",         [CO_ACTION_TIMEOUT] = "timeout",
        [CO_ACTION_BOOKKEEP] = "bookkeep", [CO_ACTION_TURN] = "turn",
        [CO_ACTION_FORGET] = "forget",     [CO_ACTION_END_ZYGOTE] = "end zygote",
        [CO_ACTION_DRAINED] = "drained",
    };

    sim_note(sim, "  %s %u.%u source %u ticket %llu", names[action->type], action->pool,
             action->worker, action->source, (unsigned long long)action->ticket);
    switch (action->type) {
    case CO_ACTION_ZYGOTE:
        sim_world_zygote(sim, action->pool);
        break;
    case CO_ACTION_FORK:
        sim_world_fork(sim, action->pool, action->worker);
        break;
    case CO_ACTION_GIVE:
        sim_world_give(sim, action->pool, action->worker, action->ticket);
        break;
    case CO_ACTION_STOP:
        sim_world_stop(sim, action->pool, action->worker);
        break;
    case CO_ACTION_KILL:
        if (sim->core.drain_fast) {
            sim_world_owe(sim, action->pool, action->worker);
        }
        sim_world_end(sim, action->pool, action->worker, action->ticket);
        break;
    case CO_ACTION_TIMEOUT:
        sim_world_timeout(sim, action->pool, action->worker, action->ticket);
        break;
    case CO_ACTION_BOOKKEEP:
        sim_world_bookkeep(sim, action->pool, action->worker, action->ticket);
        break;
    case CO_ACTION_TURN:
        sim_rows_submit(sim, action->source);
        break;
    case CO_ACTION_FORGET:
        forget(sim, action);
        break;
    case CO_ACTION_END_ZYGOTE:
        sim_world_end_zygote(sim, action->pool);
        break;
    case CO_ACTION_DRAINED:
        sim_check_drained(sim);
        break;
    }
}

/* What the agent's hands do around a step: texts come and go. */
static void add_text(struct sim *sim, struct co_event *event)
{
    struct co_ticket *ticket = co_tickets_get(&sim->core.tickets, event->ticket);

    if (event->type == CO_EVENT_ENDED && ticket != NULL && ticket->state == CO_TICKET_GIVEN) {
        free(ticket->text);
        ticket->text = event->outcome == CO_OUTCOME_FAILED ? strdup("why") : NULL;
        event->text = ticket->text;
    }
    if (event->type == CO_EVENT_EXITED &&
        sim->core.pools[event->pool].pool.workers[event->worker].ticket != 0) {
        event->text = strdup("how");
    }
}

/* Work off what was posted; actions may post more. True: the agent has left. */
static bool work(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_events; i++) {
        struct co_event event = sim->events[i];
        event.now = sim->now;
        add_text(sim, &event);
        co_core_step(&sim->core, &event, &sim->update);
        if (event.type == CO_EVENT_EXITED) {
            free(sim->core.orphan_text);
        }
        if (event.type == CO_EVENT_TURN) {
            sim_rows_taken(sim, event.source);
        }
        for (uint32_t a = 0; a < sim->update.n; a++) {
            obey(sim, &sim->update.actions[a]);
            if (sim->update.actions[a].type == CO_ACTION_DRAINED) {
                stop_agent(sim);
                return true;
            }
        }
    }
    sim->n_events = 0;
    return false;
}

static void run(struct sim *sim)
{
    if (!work(sim)) {
        sim_check_step(sim);
    }
}

/* The loop's timer: now and then it looks at the slots. */
static void tick(struct sim *sim)
{
    bool idle;

    if (sim->now >= sim->scan_at) {
        sim->scan_at = sim->now + 50;
        for (uint32_t p = 0; p < sim->n_pools; p++) {
            sim_post(sim, &(struct co_event){.type = CO_EVENT_AGE, .pool = p});
            for (uint32_t w = 0; w < SIM_JOB_PLACES; w++) {
                uint64_t ticket = sim->core.pools[p].pool.workers[w].ticket;
                if (ticket != 0 && sim->pools[p].list[w].begun == ticket) {
                    sim_post(sim, &(struct co_event){.type = CO_EVENT_BEGAN, .ticket = ticket});
                }
            }
        }
    }
    sim_post(sim, &(struct co_event){.type = CO_EVENT_TICK});
    run(sim);
    idle = sim->agent != 0 && sim->update.n == 0;
    sim->spins = idle && co_core_deadline(&sim->core, sim->now) <= sim->now ? sim->spins + 1 : 0;
    sim_must(sim, sim->spins < 3, "the core asks for a tick and does nothing with it");
}

void sim_drain(struct sim *sim, bool fast)
{
    if (sim->agent == 0) {
        return;
    }
    sim_note(sim, "drain%s", fast ? " fast" : "");
    sim->drain_asked = true;
    sim->drain_fast = sim->drain_fast || fast;
    sim_post(sim, &(struct co_event){.type = CO_EVENT_DRAIN, .ok = fast});
    run(sim);
}

void sim_reload(struct sim *sim, uint32_t pool)
{
    if (sim->agent != 0) {
        sim_note(sim, "reload %u", pool);
        sim_post(sim, &(struct co_event){.type = CO_EVENT_RELOAD, .pool = pool});
        run(sim);
    }
}

void sim_hold(struct sim *sim, uint32_t queue, bool held)
{
    sim->queues[queue].held = held;
    if (sim->agent != 0) {
        sim_note(sim, "%s %s", held ? "hold" : "go on with", sim->queues[queue].name);
        sim_post(sim, &(struct co_event){.type = CO_EVENT_HOLD, .queue = queue, .ok = held});
        run(sim);
    }
}

void sim_memory(struct sim *sim, uint32_t pool, uint32_t worker)
{
    if (sim->agent != 0 && sim_world_is_booted(sim, pool, worker)) {
        sim_note(sim, "worker %u.%u is too large", pool, worker);
        sim_post(sim, &(struct co_event){.type = CO_EVENT_MEMORY, .pool = pool, .worker = worker});
        run(sim);
    }
}

static void add_pool(struct sim *sim, uint32_t index)
{
    struct sim_pool *pool = &sim->pools[index];

    pool->full = false;
    co_core_add_pool(&sim->core,
                     &(struct co_pool_config){
                         .claim = pool->claim,
                         .boot = pool->spawn ? CO_BOOT_SPAWN : CO_BOOT_PRELOAD,
                         .kill_grace = pool->grace,
                         .max_jobs = pool->max_jobs,
                         .max_time = pool->max_time,
                         .job = {.timeout = pool->timeout, .tries = pool->tries, .backoff = "1"},
                     },
                     pool->workers, sim->seed, sim->now);
}

static void start_agent(struct sim *sim)
{
    sim->agent = ++sim->last_agent;
    sim->low = 1;
    sim->admitted = 0;
    sim->spins = 0;
    sim->drain_asked = sim->drain_fast = false;
    sim_note(sim, "agent %u starts", sim->agent);
    co_core_init(&sim->core);
    for (uint32_t i = 0; i < sim->n_pools; i++) {
        add_pool(sim, i);
    }
    for (uint32_t i = 0; i < sim->n_sources; i++) {
        co_core_add_source(
            &sim->core, &(struct co_source_config){.retry_after_s = sim->sources[i].retry_after_s},
            sim->now);
    }
    for (uint32_t i = 0; i < sim->n_queues; i++) {
        const struct sim_queue *queue = &sim->queues[i];
        co_core_add_queue(&sim->core, queue->name, queue->pool, queue->source, queue->table,
                          queue->rank);
        sim_post(sim, &(struct co_event){.type = CO_EVENT_HOLD, .queue = i, .ok = queue->held});
    }
    tick(sim);
    if (sim_chance(sim, 50)) {
        sim_drain(sim, false);
    }
}

static co_ms min(co_ms a, co_ms b)
{
    return a < b ? a : b;
}

void sim_step(struct sim *sim)
{
    co_ms next = min(sim_world_next(sim), sim_rows_next(sim));
    bool done;

    next = min(next, sim->agent != 0 ? co_core_deadline(&sim->core, sim->now) : sim->start_at);
    sim_must(sim, next != UINT64_MAX, "nothing will ever happen again");
    sim->now = next > sim->now ? next : sim->now;
    sim->steps += 1;
    if (sim->agent == 0 && sim->start_at <= sim->now) {
        start_agent(sim);
        return;
    }
    if (sim_random(sim, 2) == 0) {
        done = sim_world_step(sim) || sim_rows_step(sim);
    } else {
        done = sim_rows_step(sim) || sim_world_step(sim);
    }
    if (done) {
        run(sim);
    } else if (sim->agent != 0) {
        tick(sim);
    }
}

/* ---- the world ---- */

void sim_crash(struct sim *sim)
{
    if (sim->agent != 0) {
        sim_note(sim, "agent %u is killed", sim->agent);
        stop_agent(sim);
    }
}

void sim_calm(struct sim *sim)
{
    sim->quiet = true;
    for (uint32_t i = 0; i < sim->n_sources; i++) {
        sim->sources[i].locked_until = 0;
    }
    for (uint32_t i = 0; i < sim->n_queues; i++) {
        sim->queues[i].veto_until = 0;
        sim_hold(sim, i, false);
    }
}

bool sim_finished(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        if (sim->jobs[i].fate == SIM_LIVE || sim->jobs[i].running > 0) {
            return false;
        }
    }
    return sim->agent != 0 && sim->core.tickets.n_used == 0 && !sim->drain_asked;
}

void sim_init(struct sim *sim, uint64_t seed)
{
    static const co_ms latencies[] = {0, 3, 30, 300};
    static const uint32_t tries[] = {0, 1, 3};

    memset(sim, 0, sizeof *sim);
    sim->seed = seed;
    sim->random = seed * 0x9E3779B97F4A7C15u + 1;
    sim->now = 1000;
    sim->n_pools = 1 + sim_random(sim, SIM_POOLS_MAX);
    sim->n_sources = 1 + sim_random(sim, SIM_SOURCES_MAX);
    sim->n_queues = 1 + sim_random(sim, SIM_QUEUES_MAX);
    sim->service = sim_random(sim, 4);
    sim->peace = seed % 4 == 0;
    for (uint32_t i = 0; i < sim->n_pools; i++) {
        sim->pools[i].workers = 1 + sim_random(sim, SIM_WORKERS_MAX);
        sim->pools[i].claim = sim_random(sim, 4) == 0 ? 1 + sim_random(sim, 20) : CO_CLAIM_AUTO;
        sim->pools[i].tries = tries[sim_random(sim, 3)];
        sim->pools[i].timeout = sim->peace || sim_random(sim, 2) ? 0 : 1000;
        sim->pools[i].grace = 1 + sim_random(sim, 1000);
        sim->pools[i].max_jobs = sim_random(sim, 2) ? 0 : 1 + sim_random(sim, 20);
        sim->pools[i].max_time = sim_random(sim, 2) ? 0 : 500 + sim_random(sim, 4000);
        sim->pools[i].spawn = sim_random(sim, 4) == 0;
    }
    for (uint32_t i = 0; i < sim->n_sources; i++) {
        sim->sources[i].retry_after_s = 3 + sim_random(sim, 9);
        sim->sources[i].latency_max = latencies[sim_random(sim, 4)];
        sim->sources[i].changed_at = UINT64_MAX;
        sim->sources[i].foreign = true;
    }
    for (uint32_t i = 0; i < sim->n_queues; i++) {
        struct sim_queue *queue = &sim->queues[i];
        snprintf(queue->name, sizeof queue->name, "q%u", i);
        queue->pool = sim_random(sim, sim->n_pools);
        queue->source = sim_random(sim, sim->n_sources);
        queue->table = sim_random(sim, 2);
        queue->rank = seed % 2 ? sim_random(sim, 3) : 0;
    }
    sim->start_at = sim->now;
}
