#include "agent/pool.h"

#include <assert.h>
#include <string.h>

#define TO(state) (1u << CO_WORKER_##state)

static const unsigned allowed[CO_WORKER_STATES] = {
    [CO_WORKER_BOOTING] = TO(IDLE) | TO(DRAINING) | TO(DEAD),
    [CO_WORKER_IDLE] = TO(BUSY) | TO(DRAINING) | TO(DEAD),
    [CO_WORKER_BUSY] = TO(IDLE) | TO(DRAINING) | TO(DEAD),
    [CO_WORKER_DRAINING] = TO(DEAD),
    [CO_WORKER_DEAD] = TO(BOOTING),
};

static bool is_job_worker(uint32_t worker)
{
    return worker < CO_WORKERS_MAX;
}

static void idle_push(struct co_pool *pool, uint32_t worker)
{
    pool->workers[worker].idle_next = pool->idle_top;
    pool->idle_top = worker + 1;
    pool->n_idle += 1;
}

static void idle_remove(struct co_pool *pool, uint32_t worker)
{
    uint32_t *link = &pool->idle_top;

    while (*link != worker + 1) {
        assert(*link != 0);
        link = &pool->workers[*link - 1].idle_next;
    }
    *link = pool->workers[worker].idle_next;
    pool->n_idle -= 1;
}

/* The one place that sets a state. */
static void move(struct co_pool *pool, uint32_t worker, enum co_worker_state to, co_ms now)
{
    struct co_pool_worker *w = &pool->workers[worker];

    assert((allowed[w->state] & (1u << to)) != 0);
    if (is_job_worker(worker)) {
        if (w->state == CO_WORKER_IDLE) {
            idle_remove(pool, worker);
        }
        if (to == CO_WORKER_IDLE) {
            idle_push(pool, worker);
        }
        pool->by_state[w->state] -= 1;
        pool->by_state[to] += 1;
    }
    w->state = to;
    w->since = now;
}

static co_ms backoff(uint32_t failures)
{
    co_ms wait = CO_POOL_BACKOFF_MIN;

    for (uint32_t i = 1; i < failures && wait < CO_POOL_BACKOFF_MAX; i++) {
        wait *= 2;
    }
    return wait < CO_POOL_BACKOFF_MAX ? wait : CO_POOL_BACKOFF_MAX;
}

void co_pool_init(struct co_pool *pool, uint32_t wanted)
{
    assert(wanted <= CO_WORKERS_MAX);
    *pool = (struct co_pool){.wanted = wanted, .zygote_wanted = true};
    for (uint32_t i = 0; i <= CO_WORKERS_MAX; i++) {
        pool->workers[i].state = CO_WORKER_DEAD;
    }
    pool->by_state[CO_WORKER_DEAD] = CO_WORKERS_MAX;
}

uint32_t co_pool_alive(const struct co_pool *pool)
{
    return CO_WORKERS_MAX - pool->by_state[CO_WORKER_DEAD];
}

static int start(struct co_pool *pool, uint32_t worker, co_ms now)
{
    struct co_pool_worker *w = &pool->workers[worker];
    uint32_t life = w->life + 1;

    *w = (struct co_pool_worker){.state = CO_WORKER_DEAD, .life = life, .present = true};
    move(pool, worker, CO_WORKER_BOOTING, now);
    if (is_job_worker(worker) && worker >= pool->places) {
        pool->places = worker + 1;
    }
    pool->forks += 1;
    return (int)worker;
}

int co_pool_fork(struct co_pool *pool, co_ms now)
{
    if (!pool->zygote_up || now < pool->fork_after) {
        return -1;
    }
    /* The control worker serves until the last job worker has gone. */
    if (!pool->workers[CO_POOL_CONTROL].present && !pool->draining) {
        return start(pool, CO_POOL_CONTROL, now);
    }
    /* Asked after every event: most often all are there. */
    if (pool->draining || (co_pool_alive(pool) == pool->wanted && pool->places <= pool->wanted)) {
        return -1;
    }
    for (uint32_t i = 0; i < pool->wanted; i++) {
        if (!pool->workers[i].present) {
            return start(pool, i, now);
        }
    }
    return -1;
}

int co_pool_stop(struct co_pool *pool, co_ms now)
{
    for (uint32_t i = pool->draining ? 0 : pool->wanted; i < pool->places; i++) {
        struct co_pool_worker *w = &pool->workers[i];
        if (w->present && (w->state == CO_WORKER_IDLE || w->state == CO_WORKER_BUSY ||
                           (w->state == CO_WORKER_BOOTING && w->booted))) {
            co_pool_doom(pool, i, pool->draining ? CO_EXIT_DRAIN : CO_EXIT_SCALE_DOWN);
            move(pool, i, CO_WORKER_DRAINING, now);
            return (int)i;
        }
    }
    return -1;
}

void co_pool_forked(struct co_pool *pool, uint32_t worker, int32_t pid)
{
    pool->workers[worker].pid = pid;
}

void co_pool_ready(struct co_pool *pool, uint32_t worker, co_ms now)
{
    struct co_pool_worker *w = &pool->workers[worker];

    w->booted = true;
    if (is_job_worker(worker)) {
        pool->boot_failures_row = 0;
    }
    if (w->state == CO_WORKER_BOOTING) {
        move(pool, worker, CO_WORKER_IDLE, now);
    }
}

void co_pool_busy(struct co_pool *pool, uint32_t worker, uint64_t ticket, co_ms now)
{
    pool->workers[worker].ticket = ticket;
    move(pool, worker, CO_WORKER_BUSY, now);
}

void co_pool_ended(struct co_pool *pool, uint32_t worker, co_ms now)
{
    struct co_pool_worker *w = &pool->workers[worker];

    w->ticket = 0;
    w->jobs += 1;
    if (w->state == CO_WORKER_BUSY) {
        move(pool, worker, CO_WORKER_IDLE, now);
    }
}

void co_pool_doom(struct co_pool *pool, uint32_t worker, enum co_exit_reason reason)
{
    struct co_pool_worker *w = &pool->workers[worker];

    if (!w->has_reason) {
        w->has_reason = true;
        w->reason = reason;
    }
}

/* A death we did not order, read from its status. Exit 12 is Laravel's memory limit. */
static enum co_exit_reason unordered(const struct co_pool_worker *w, int exit_code, int signal)
{
    if (!w->booted) {
        return CO_EXIT_BOOT_FAILURE;
    }
    if (signal == 9) {
        return CO_EXIT_KILLED;
    }
    if (signal != 0) {
        return CO_EXIT_CRASH;
    }
    if (exit_code == 255) {
        return CO_EXIT_JOB_FATAL;
    }
    if (w->ticket != 0) {
        return CO_EXIT_JOB_EXIT;
    }
    if (exit_code == 12) {
        return CO_EXIT_RECYCLED_MEMORY;
    }
    return exit_code == 0 ? CO_EXIT_LOST_CONNECTION : CO_EXIT_CRASH;
}

enum co_exit_reason co_pool_exited(struct co_pool *pool, uint32_t worker, int exit_code, int signal,
                                   co_ms now)
{
    struct co_pool_worker *w = &pool->workers[worker];
    enum co_exit_reason reason = w->has_reason ? w->reason : unordered(w, exit_code, signal);

    assert(w->present);
    move(pool, worker, CO_WORKER_DEAD, now);
    w->present = false;
    w->pid = 0;
    w->ticket = 0;
    pool->exits[reason] += 1;
    if (reason == CO_EXIT_BOOT_FAILURE) {
        pool->boot_failures += 1;
        pool->boot_failures_row += 1;
        pool->fork_after = now + backoff(pool->boot_failures_row);
    }
    return reason;
}

void co_pool_zygote_up(struct co_pool *pool, co_ms now)
{
    pool->zygote_up = true;
    pool->zygote_starting = false;
    pool->fork_after = now;
}

void co_pool_zygote_down(struct co_pool *pool, bool booted, co_ms now)
{
    pool->zygote_up = false;
    pool->zygote_starting = false;
    pool->zygote_wanted = !pool->draining;
    if (!booted) {
        pool->boot_failures += 1;
        pool->boot_failures_row += 1;
    }
    /* A booted application that lost its zygote gets the next one at once. */
    pool->zygote_after = booted ? now : now + backoff(pool->boot_failures_row + 3);
}

int co_pool_idle(const struct co_pool *pool)
{
    return (int)pool->idle_top - 1;
}

co_ms co_pool_deadline(const struct co_pool *pool, co_ms now)
{
    co_ms deadline = UINT64_MAX;

    if (pool->zygote_wanted && pool->zygote_after > now) {
        deadline = pool->zygote_after;
    }
    if (pool->zygote_up && pool->fork_after > now && pool->fork_after < deadline) {
        deadline = pool->fork_after;
    }
    return deadline;
}
