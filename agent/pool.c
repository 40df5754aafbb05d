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

static bool is_bookkeeper(uint32_t worker)
{
    return worker >= CO_PLACE_BOOKKEEPER;
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

static bool serves(enum co_worker_state state)
{
    return state == CO_WORKER_BOOTING || state == CO_WORKER_IDLE || state == CO_WORKER_BUSY;
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
        if (w->retiring && serves(w->state) && !serves(to)) {
            pool->n_retiring -= 1;
        }
        pool->by_state[w->state] -= 1;
        pool->by_state[to] += 1;
    }
    w->state = to;
    w->since = now;
}

/* xorshift, for the jitter of limits. */
static uint64_t draw(struct co_pool *pool)
{
    pool->seed ^= pool->seed << 13;
    pool->seed ^= pool->seed >> 7;
    pool->seed ^= pool->seed << 17;
    return pool->seed;
}

static uint64_t jitter(struct co_pool *pool, uint64_t limit)
{
    uint64_t fifth = limit / 5;

    return limit == 0 ? 0 : limit - fifth + draw(pool) % (2 * fifth + 1);
}

static co_ms backoff(uint32_t failures)
{
    co_ms wait = CO_POOL_BACKOFF_MIN;

    for (uint32_t i = 0; i < failures && wait < CO_POOL_BACKOFF_MAX; i++) {
        wait *= 2;
    }
    return wait < CO_POOL_BACKOFF_MAX ? wait : CO_POOL_BACKOFF_MAX;
}

void co_pool_init(struct co_pool *pool, uint32_t wanted, const struct co_pool_limits *limits,
                  bool spawn, uint64_t seed, co_ms now)
{
    assert(wanted <= CO_WORKERS_MAX);
    *pool = (struct co_pool){
        .wanted = wanted,
        .limits = *limits,
        .zygote_wanted = !spawn,
        .spawn = spawn,
        .zygote_up = spawn,
        .generation = spawn,
        .seed = seed | 1,
    };
    for (uint32_t i = 0; i < CO_PLACES_MAX; i++) {
        pool->workers[i].state = CO_WORKER_DEAD;
    }
    pool->by_state[CO_WORKER_DEAD] = CO_WORKERS_MAX;
    co_circuit_init(&pool->circuit, seed, now);
}

uint32_t co_pool_alive(const struct co_pool *pool)
{
    return CO_WORKERS_MAX - pool->by_state[CO_WORKER_DEAD];
}

uint32_t co_pool_able(const struct co_pool *pool)
{
    return pool->by_state[CO_WORKER_IDLE] + pool->by_state[CO_WORKER_BUSY];
}

/* Workers that stay in service: booting, idle or busy. */
static uint32_t serving(const struct co_pool *pool)
{
    return co_pool_able(pool) + pool->by_state[CO_WORKER_BOOTING];
}

/* ---- forking ---- */

static int start(struct co_pool *pool, uint32_t worker, co_ms now)
{
    struct co_pool_worker *w = &pool->workers[worker];

    *w = (struct co_pool_worker){
        .state = CO_WORKER_DEAD,
        .life = w->life + 1,
        .generation = pool->generation,
        .present = true,
        .started = now,
    };
    if (is_job_worker(worker)) {
        w->jobs_limit = jitter(pool, pool->limits.max_jobs);
        w->time_limit = jitter(pool, pool->limits.max_time);
    }
    move(pool, worker, CO_WORKER_BOOTING, now);
    pool->forks += 1;
    return (int)worker;
}

static uint32_t control_place(const struct co_pool *pool)
{
    return CO_PLACE_CONTROL + pool->generation % 2;
}

static int free_place(const struct co_pool *pool)
{
    for (uint32_t i = 0; i < CO_WORKERS_MAX; i++) {
        if (!pool->workers[i].present) {
            return (int)i;
        }
    }
    return -1;
}

/* How many may be replaced at once. */
static uint32_t overlap(const struct co_pool *pool)
{
    uint32_t tenth = pool->wanted / 10;
    uint32_t most = tenth > 1 ? tenth : 1;

    if (pool->tight) {
        return 0; /* Growth stops before memory does. */
    }
    return pool->n_retiring < most ? pool->n_retiring : most;
}

static bool needs_job_worker(const struct co_pool *pool)
{
    /* The fresh ones never exceed what is wanted; the retiring ones work on beside a few. */
    return serving(pool) < pool->wanted + overlap(pool) &&
           serving(pool) - pool->n_retiring < pool->wanted;
}

static uint32_t bookkeepers(const struct co_pool *pool)
{
    uint32_t n = 0;

    for (uint32_t i = CO_PLACE_BOOKKEEPER; i < CO_PLACES_MAX; i++) {
        n += pool->workers[i].present && pool->workers[i].ticket == 0;
    }
    return n;
}

static bool needs_service(const struct co_pool *pool, uint32_t place)
{
    if (pool->workers[place].present) {
        return false;
    }
    return is_bookkeeper(place) ? bookkeepers(pool) < pool->bookkeepers_wanted
                                : place == control_place(pool) && !pool->draining;
}

static int fork_service(struct co_pool *pool, co_ms now)
{
    for (uint32_t i = CO_PLACE_CONTROL; i < CO_PLACES_MAX; i++) {
        if (needs_service(pool, i) && now >= pool->workers[i].since) {
            return start(pool, i, now);
        }
    }
    return -1;
}

int co_pool_fork(struct co_pool *pool, co_ms now)
{
    int place;

    if (!pool->zygote_up || now < pool->fork_after) {
        return -1;
    }
    place = fork_service(pool, now);
    if (place >= 0 || pool->draining || !needs_job_worker(pool) ||
        !co_circuit_allows(&pool->circuit, now)) {
        return place;
    }
    place = free_place(pool);
    if (place >= 0) {
        co_circuit_forked(&pool->circuit, (uint32_t)place);
        start(pool, (uint32_t)place, now);
    }
    return place;
}

bool co_pool_zygote(struct co_pool *pool, co_ms now)
{
    if (!pool->zygote_wanted || pool->zygote_starting || now < pool->zygote_after ||
        pool->draining) {
        return false;
    }
    pool->zygote_wanted = false;
    pool->zygote_starting = true;
    return true;
}

/* ---- stopping ---- */

/* Who goes first: retiring before fresh, idle before busy. -1: nobody. */
static int first_to_go(const struct co_pool *pool)
{
    int best = -1;
    int best_score = -1;

    for (uint32_t i = 0; i < CO_WORKERS_MAX; i++) {
        const struct co_pool_worker *w = &pool->workers[i];
        int score = (w->retiring ? 2 : 0) + (w->state == CO_WORKER_IDLE ? 1 : 0);
        if ((w->state == CO_WORKER_IDLE || w->state == CO_WORKER_BUSY) && score > best_score) {
            best = (int)i;
            best_score = score;
        }
    }
    return best;
}

/* Every place is taken, and a successor needs one. */
static bool must_make_room(const struct co_pool *pool)
{
    return pool->wanted == CO_WORKERS_MAX && pool->by_state[CO_WORKER_DEAD] == 0 &&
           pool->by_state[CO_WORKER_DRAINING] == 0 && pool->n_retiring > 0;
}

static int stop_job_worker(struct co_pool *pool, co_ms now)
{
    int worker;
    struct co_pool_worker *w;

    if (!pool->draining && co_pool_able(pool) <= pool->wanted && !must_make_room(pool)) {
        return -1;
    }
    worker = first_to_go(pool);
    if (worker < 0) {
        return -1;
    }
    w = &pool->workers[worker];
    if (!pool->draining && co_pool_able(pool) <= pool->wanted && !w->retiring) {
        return -1;
    }
    co_pool_doom(pool, (uint32_t)worker,
                 pool->draining ? CO_EXIT_DRAIN
                 : w->retiring  ? w->retire_reason
                                : CO_EXIT_SCALE_DOWN);
    move(pool, (uint32_t)worker, CO_WORKER_DRAINING, now);
    return worker;
}

static bool answers(const struct co_pool_worker *w)
{
    return w->present && w->booted && w->state == CO_WORKER_IDLE;
}

/* A control worker of an older generation goes once its successor is up, or has no place: after
 * two reloads in a row the oldest is in the way of the newest. */
static int stop_old_control(struct co_pool *pool, co_ms now)
{
    uint32_t newest = control_place(pool);
    uint32_t other = CO_PLACE_CONTROL + (pool->generation + 1) % 2;
    bool stuck =
        pool->workers[newest].present && pool->workers[newest].generation != pool->generation;
    uint32_t old = stuck ? newest : other;
    bool booting = pool->workers[other].state == CO_WORKER_BOOTING;

    if (!answers(&pool->workers[old]) || (stuck ? booting : !answers(&pool->workers[newest]))) {
        return -1;
    }
    co_pool_doom(pool, old, CO_EXIT_RELOAD);
    move(pool, old, CO_WORKER_DRAINING, now);
    return (int)old;
}

int co_pool_stop(struct co_pool *pool, co_ms now)
{
    int worker = stop_job_worker(pool, now);

    return worker >= 0 ? worker : stop_old_control(pool, now);
}

/* When a worker that shows no sign of life must be ended; UINT64_MAX: not now. */
static co_ms hung_at(const struct co_pool_worker *w)
{
    if (!w->present || w->pid == 0) {
        return UINT64_MAX;
    }
    if (w->state == CO_WORKER_BOOTING) {
        return w->since + CO_POOL_BOOT_LIMIT;
    }
    return w->state == CO_WORKER_DRAINING && w->ticket == 0 ? w->since + CO_POOL_STOP_LIMIT
                                                            : UINT64_MAX;
}

/* The first place that may hang: most of the time no job worker can. */
static uint32_t hung_from(const struct co_pool *pool)
{
    return pool->by_state[CO_WORKER_BOOTING] + pool->by_state[CO_WORKER_DRAINING] > 0
               ? 0
               : CO_PLACE_CONTROL;
}

int co_pool_hung(struct co_pool *pool, co_ms now)
{
    for (uint32_t i = hung_from(pool); i < CO_PLACES_MAX; i++) {
        struct co_pool_worker *w = &pool->workers[i];
        if (now < hung_at(w)) {
            continue;
        }
        if (w->state == CO_WORKER_BOOTING) {
            co_pool_seal(pool, i, CO_EXIT_BOOT_FAILURE, now);
        }
        w->since = now; /* Not again at once. */
        return (int)i;
    }
    return -1;
}

static void retire(struct co_pool *pool, uint32_t worker, enum co_exit_reason reason)
{
    struct co_pool_worker *w = &pool->workers[worker];

    if (!w->retiring && serves(w->state)) {
        w->retiring = true;
        w->retire_reason = reason;
        pool->n_retiring += 1;
    }
}

bool co_pool_age(struct co_pool *pool, co_ms now)
{
    for (uint32_t i = 0; pool->limits.max_time > 0 && i < CO_WORKERS_MAX; i++) {
        const struct co_pool_worker *w = &pool->workers[i];
        if (w->present && w->time_limit > 0 && now - w->started >= w->time_limit) {
            retire(pool, i, CO_EXIT_RECYCLED_TIME);
        }
    }
    return pool->workers[pool->circuit.probe].state == CO_WORKER_IDLE &&
           co_circuit_survived(&pool->circuit, pool->circuit.probe,
                               now - pool->workers[pool->circuit.probe].since, now);
}

static void retire_generations(struct co_pool *pool)
{
    for (uint32_t i = 0; i < CO_WORKERS_MAX; i++) {
        if (pool->workers[i].present && pool->workers[i].generation < pool->generation) {
            retire(pool, i, CO_EXIT_RELOAD);
        }
    }
}

void co_pool_reload(struct co_pool *pool, co_ms now)
{
    if (pool->draining) {
        return;
    }
    if (pool->spawn) { /* Nothing to boot first: each new worker is the new generation. */
        pool->generation += 1;
        retire_generations(pool);
        return;
    }
    pool->zygote_wanted = true;
    pool->reloading = pool->zygote_up;
    pool->zygote_after = now;
}

/* ---- what happened ---- */

void co_pool_forked(struct co_pool *pool, uint32_t worker, int32_t pid)
{
    pool->workers[worker].pid = pid;
}

void co_pool_ready(struct co_pool *pool, uint32_t worker, co_ms now)
{
    struct co_pool_worker *w = &pool->workers[worker];

    w->booted = true;
    if (w->state == CO_WORKER_BOOTING) {
        move(pool, worker, CO_WORKER_IDLE, now);
    }
}

void co_pool_busy(struct co_pool *pool, uint32_t worker, uint64_t ticket, co_ms now)
{
    pool->workers[worker].ticket = ticket;
    move(pool, worker, CO_WORKER_BUSY, now);
}

bool co_pool_ended(struct co_pool *pool, uint32_t worker, enum co_outcome outcome, bool over_memory,
                   co_ms now)
{
    struct co_pool_worker *w = &pool->workers[worker];
    bool ran = outcome != CO_OUTCOME_DECLINED && outcome != CO_OUTCOME_RETURNED;
    bool closed;

    w->ticket = 0;
    w->jobs += ran;
    if (is_bookkeeper(worker)) { /* One shot. */
        co_pool_seal(pool, worker, CO_EXIT_RECYCLED_JOBS, now);
        return false;
    }
    closed = ran && co_circuit_completed(&pool->circuit, worker, now);
    if (over_memory) {
        retire(pool, worker, CO_EXIT_RECYCLED_MEMORY);
    } else if (w->jobs_limit > 0 && w->jobs >= w->jobs_limit) {
        retire(pool, worker, CO_EXIT_RECYCLED_JOBS);
    }
    if (w->state == CO_WORKER_BUSY) {
        move(pool, worker, CO_WORKER_IDLE, now);
    } else if (w->state == CO_WORKER_DRAINING) {
        w->since = now; /* From here on it has nothing to wait for. */
    }
    return closed;
}

void co_pool_doom(struct co_pool *pool, uint32_t worker, enum co_exit_reason reason)
{
    struct co_pool_worker *w = &pool->workers[worker];

    if (!w->has_reason) {
        w->has_reason = true;
        w->reason = reason;
    }
}

void co_pool_seal(struct co_pool *pool, uint32_t worker, enum co_exit_reason reason, co_ms now)
{
    struct co_pool_worker *w = &pool->workers[worker];

    /* A timeout or a limit is why it ends now, whatever was planned for it. */
    w->has_reason = true;
    w->sealed = true;
    w->reason = reason;
    if (serves(w->state)) {
        move(pool, worker, CO_WORKER_DRAINING, now);
    }
}

/* A death we did not order, read from its status. Exit 12 is Laravel's memory limit. */
static enum co_exit_reason unordered(const struct co_pool_worker *w, int exit_code, int signal,
                                     bool by_oom)
{
    if (by_oom && signal == 9) {
        return CO_EXIT_OOM;
    }
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

/* Did it die as we wanted? One that was only asked to stop may still crash over its last job. */
static bool went_as_ordered(const struct co_pool_worker *w, int signal, bool by_oom)
{
    if (!w->has_reason || (by_oom && signal == 9 && w->reason != CO_EXIT_JOB_TIMEOUT)) {
        return false;
    }
    return w->sealed || w->ticket == 0 || signal == 9;
}

/* A control worker that never boots is tried again less and less often. */
static co_ms service_wait(struct co_pool *pool, uint32_t worker)
{
    struct co_pool_worker *w = &pool->workers[worker];
    co_ms wait = CO_POOL_SERVICE_AGAIN;

    if (is_bookkeeper(worker) || w->booted) {
        pool->control_failures = is_bookkeeper(worker) ? pool->control_failures : 0;
        return wait;
    }
    for (uint32_t i = 0; i < pool->control_failures && wait < CO_POOL_BACKOFF_MAX; i++) {
        wait *= 2;
    }
    pool->control_failures += 1;
    return wait < CO_POOL_BACKOFF_MAX ? wait : CO_POOL_BACKOFF_MAX;
}

/* The place is free again. A service that died by itself is not begun again at once: it may die
 * at each start. */
static void bury(struct co_pool *pool, uint32_t worker, bool ordered, co_ms now)
{
    struct co_pool_worker *w = &pool->workers[worker];

    assert(w->present);
    move(pool, worker, CO_WORKER_DEAD, now);
    w->present = false;
    w->pid = 0;
    w->ticket = 0;
    w->retiring = false;
    if (!is_job_worker(worker) && !ordered && !(is_bookkeeper(worker) && w->booted)) {
        w->since = now + service_wait(pool, worker);
    }
}

enum co_exit_reason co_pool_exited(struct co_pool *pool, uint32_t worker, int exit_code, int signal,
                                   bool by_oom, co_ms now, bool *ret_opened)
{
    struct co_pool_worker *w = &pool->workers[worker];
    bool ordered = went_as_ordered(w, signal, by_oom);
    enum co_exit_reason reason = ordered ? w->reason : unordered(w, exit_code, signal, by_oom);
    bool was = w->pid != 0; /* Else its zygote died before it could make it. */

    bury(pool, worker, ordered, now);
    *ret_opened = false;
    if (is_job_worker(worker)) {
        pool->exits[reason] += 1;
        pool->boot_failures += reason == CO_EXIT_BOOT_FAILURE;
        *ret_opened = was && co_circuit_death(&pool->circuit, worker, reason, pool->wanted, now);
        if (!was) {
            co_circuit_unforked(&pool->circuit, worker);
        }
    }
    return reason;
}

void co_pool_fork_failed(struct co_pool *pool, uint32_t worker, co_ms now)
{
    bury(pool, worker, false, now);
    pool->fork_after = now + CO_POOL_FORK_AGAIN;
    if (is_job_worker(worker)) {
        pool->exits[CO_EXIT_BOOT_FAILURE] += 1;
        pool->boot_failures += 1;
        co_circuit_unforked(&pool->circuit, worker);
    }
}

void co_pool_zygote_up(struct co_pool *pool, co_ms now)
{
    pool->zygote_up = true;
    pool->zygote_starting = false;
    pool->reloading = false;
    pool->boot_failures_row = 0;
    pool->fork_after = 0;
    pool->generation += 1;
    for (uint32_t i = CO_PLACE_CONTROL; i < CO_PLACES_MAX; i++) {
        if (!pool->workers[i].present) {
            pool->workers[i].since = now; /* This one may do better. */
        }
    }
    retire_generations(pool);
}

void co_pool_zygote_down(struct co_pool *pool, bool booted, bool current, co_ms now)
{
    if (!booted) {
        pool->boot_failures += 1;
        pool->boot_failures_row += 1;
        pool->zygote_starting = false;
    }
    if (current) {
        pool->zygote_up = false;
        pool->zygote_wanted = pool->zygote_wanted || !pool->zygote_starting;
    } else if (!booted && pool->zygote_up) {
        pool->reloading = false; /* The new code does not boot: the old serves on. */
    } else if (!booted) {
        pool->zygote_wanted = true;
    }
    /* A booted application that lost its zygote gets the next one at once. */
    pool->zygote_after = booted ? now : now + backoff(pool->boot_failures_row);
}

/* ---- questions ---- */

int co_pool_idle(const struct co_pool *pool)
{
    /* Only a probe that works closes the circuit, so it works first. */
    if (pool->circuit.state == CO_CIRCUIT_PROBING &&
        pool->workers[pool->circuit.probe].state == CO_WORKER_IDLE) {
        return (int)pool->circuit.probe;
    }
    return (int)pool->idle_top - 1;
}

int co_pool_bookkeeper(const struct co_pool *pool)
{
    for (uint32_t i = CO_PLACE_BOOKKEEPER; i < CO_PLACES_MAX; i++) {
        if (pool->workers[i].state == CO_WORKER_IDLE) {
            return (int)i;
        }
    }
    return -1;
}

int co_pool_control(const struct co_pool *pool)
{
    uint32_t newest = control_place(pool);
    uint32_t other = CO_PLACE_CONTROL + (pool->generation + 1) % 2;

    /* The place of the newest may still have the oldest. */
    if (answers(&pool->workers[newest]) &&
        (pool->workers[newest].generation == pool->generation || !answers(&pool->workers[other]))) {
        return (int)newest;
    }
    return answers(&pool->workers[other]) ? (int)other : -1;
}

static co_ms earlier(co_ms a, co_ms b)
{
    return a < b ? a : b;
}

co_ms co_pool_deadline(const struct co_pool *pool, co_ms now)
{
    co_ms deadline = UINT64_MAX;

    if (pool->zygote_wanted && !pool->zygote_starting && !pool->draining) {
        deadline = pool->zygote_after;
    }
    for (uint32_t i = hung_from(pool); i < CO_PLACES_MAX; i++) {
        deadline = earlier(deadline, hung_at(&pool->workers[i]));
    }
    for (uint32_t i = CO_PLACE_CONTROL; pool->zygote_up && i < CO_PLACES_MAX; i++) {
        if (needs_service(pool, i) && pool->workers[i].since > now) {
            deadline = earlier(deadline, pool->workers[i].since);
        }
    }
    if (pool->zygote_up && now < pool->fork_after) {
        return earlier(deadline, pool->fork_after);
    }
    if (pool->zygote_up && !pool->draining && needs_job_worker(pool)) {
        co_ms probe = co_circuit_deadline(&pool->circuit);
        deadline = probe > now ? earlier(deadline, probe) : deadline;
    }
    return deadline;
}
