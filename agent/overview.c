#include "agent/overview.h"

#include <stdio.h>
#include <string.h>

#include "agent/health.h"

static void fill_worker(struct co_view_worker *out, const struct co_core *core,
                        const struct co_pool_worker *worker, uint32_t index, co_ms now)
{
    const struct co_ticket *ticket = &core->tickets.table[worker->ticket % CO_TICKETS_MAX];

    *out = (struct co_view_worker){
        .index = index,
        .pid = worker->pid,
        .state = worker->state,
        .since = now > worker->since ? now - worker->since : 0,
        .jobs_done = worker->jobs,
        .generation = worker->generation,
    };
    if (worker->ticket != 0 && ticket->id == worker->ticket) {
        snprintf(out->queue, sizeof out->queue, "%.63s", core->tickets.queues[ticket->queue].name);
        snprintf(out->job, sizeof out->job, "%s", ticket->facts.display_name);
        snprintf(out->job_id, sizeof out->job_id, "%lld", (long long)ticket->job_id);
    }
}

static co_ms oldest_wait(const struct co_core *core, uint32_t pool, co_ms now)
{
    co_ms oldest = 0;

    for (uint32_t i = 0; i < core->tickets.n_queues; i++) {
        const struct co_queue *queue = &core->tickets.queues[i];
        if (queue->pool == pool && queue->waiting.head != 0) {
            co_ms wait = now - core->tickets.table[queue->waiting.head - 1].admitted_at;
            oldest = wait > oldest ? wait : oldest;
        }
    }
    return oldest;
}

static void fill_pool(struct co_view_pool *out, const struct co_core *core, uint32_t index,
                      co_ms now)
{
    const struct co_pool *pool = &core->pools[index].pool;

    out->workers_wanted = pool->draining ? 0 : pool->wanted;
    memcpy(out->by_state, pool->by_state, sizeof out->by_state);
    out->by_state[CO_WORKER_DEAD] = 0; /* Free places are no workers. */
    memcpy(out->exits, pool->exits, sizeof out->exits);
    out->forks = pool->forks;
    out->boot_failures = pool->boot_failures;
    out->zygote_up = pool->zygote_up;
    out->control_up = co_pool_control(pool) >= 0;
    snprintf(out->circuit, sizeof out->circuit, "%s", co_circuit_name(pool->circuit.state));
    out->circuit_opened = pool->circuit.opened;
    out->generation = pool->generation;
    out->bookkeeping = core->tickets.orphans[index];
    out->tickets_queued = core->tickets.waiting[index];
    out->oldest_wait = oldest_wait(core, index, now);
    out->wait = core->pools[index].wait;
    out->service = core->pools[index].service;
    out->n_workers = 0;
    for (uint32_t w = 0; w < CO_WORKERS_MAX; w++) {
        if (pool->workers[w].present) {
            fill_worker(&out->workers[out->n_workers++], core, &pool->workers[w], w, now);
        }
    }
}

static double age_s(co_unix since, uint64_t wall_ms)
{
    double age = (double)wall_ms / 1000 - (double)since;

    return since <= 0 || age < 0 ? 0 : age;
}

static void fill_depth(struct co_view_queue *out, const struct co_turn_depth *depth,
                       uint64_t wall_ms)
{
    snprintf(out->name, sizeof out->name, "%s", depth->name);
    out->ready = depth->ready;
    out->delayed = depth->delayed;
    out->foreign = depth->reserved_others;
    out->oldest_s = age_s(depth->oldest_ready, wall_ms);
}

static void fill_queue(struct co_view_queue *out, const struct co_queue *queue, uint64_t wall_ms)
{
    *out = (struct co_view_queue){.served = true};
    fill_depth(out, &queue->depth, wall_ms);
    snprintf(out->name, sizeof out->name, "%s", queue->name);
    out->claimed = queue->waiting.count;
    out->running = queue->n_given;
    out->held = queue->held;
    out->done = queue->counts.done;
    out->failed = queue->counts.failed;
    out->released = queue->counts.released;
    out->crashed = queue->counts.crashed;
    out->lost = queue->counts.lost;
    out->declined = queue->counts.declined;
    out->timeouts = queue->counts.timeouts;
}

static void fill_source(struct co_view_source *out, const struct co_source *source, co_ms now)
{
    out->up = source->up;
    out->last_good = source->ever_up ? now - source->last_good : 0;
    out->turns = source->turns;
    out->turn_errors = source->turn_errors;
    out->turn_time = source->turn_time;
    out->quarantined = source->quarantined;
    out->held = source->held;
}

void co_overview_core(struct co_view *view, const struct co_core *core, co_ms now, uint64_t wall_ms)
{
    view->draining = core->draining;
    view->n_pools = core->n_pools;
    for (uint32_t i = 0; i < core->n_pools; i++) {
        fill_pool(&view->pools[i], core, i, now);
    }
    view->n_sources = core->n_sources;
    for (uint32_t i = 0; i < core->n_sources; i++) {
        fill_source(&view->sources[i], &core->sources[i], now);
    }
    view->n_queues = core->tickets.n_queues;
    for (uint32_t i = 0; i < core->tickets.n_queues; i++) {
        fill_queue(&view->queues[i], &core->tickets.queues[i], wall_ms);
    }
}

void co_overview_unserved(struct co_view *view, const struct co_core *core, uint32_t source,
                          const struct co_turn_depth *depth, const char *connection,
                          uint64_t wall_ms)
{
    struct co_view_queue *out;

    if (co_tickets_find_queue(&core->tickets, source, depth->table, depth->name) >= 0 ||
        view->n_queues == CO_VIEW_QUEUES_MAX) {
        return;
    }
    out = &view->queues[view->n_queues++];
    *out = (struct co_view_queue){0};
    fill_depth(out, depth, wall_ms);
    snprintf(out->connection, sizeof out->connection, "%s", connection);
}

static bool explain(struct co_view *view, const char *what, const char *name, const char *why)
{
    snprintf(view->why, sizeof view->why, "%s%s%s%.400s", what, name, why[0] != '\0' ? ": " : "",
             why);
    return false;
}

static bool is_ready(struct co_view *view)
{
    if (view->draining) {
        return explain(view, "draining", "", "");
    }
    for (uint32_t i = 0; i < view->n_pools; i++) {
        const struct co_view_pool *pool = &view->pools[i];
        if (pool->boot_error[0] != '\0' && !pool->zygote_up) {
            return explain(view, "the application did not boot in pool ", pool->name,
                           pool->boot_error);
        }
        if (!co_health_circuit_closed(pool)) {
            return explain(view, "the circuit is open in pool ", pool->name,
                           "too many workers died; cohort exits says why");
        }
        if (!co_health_pool_serves(pool)) {
            return explain(view, "no worker has booted yet in pool ", pool->name, "");
        }
    }
    for (uint32_t i = 0; i < view->n_sources; i++) {
        if (!view->sources[i].up) {
            return explain(view, "no answer from ", view->sources[i].place, view->sources[i].error);
        }
    }
    if (view->n_sources == 0) {
        return explain(view, "the application has not said yet which queues it has", "", "");
    }
    return true;
}

void co_overview_readiness(struct co_view *view, uint32_t n_pools)
{
    view->startup = true;
    for (uint32_t i = 0; i < n_pools; i++) {
        view->startup = view->startup && (view->pools[i].zygote_up || view->pools[i].forks > 0);
    }
    view->why[0] = '\0';
    view->ready = is_ready(view);
}
