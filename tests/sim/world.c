/* Zygotes and workers: they boot, take jobs, write what came of them, and die at any moment. */

#include "sim/sim.h"

#include <string.h>

static uint32_t place(uint32_t worker)
{
    return worker < CO_WORKERS_MAX ? worker : SIM_JOB_PLACES + worker - CO_WORKERS_MAX;
}

static uint32_t index_of(uint32_t at)
{
    return at < SIM_JOB_PLACES ? at : CO_WORKERS_MAX + at - SIM_JOB_PLACES;
}

static struct sim_worker *worker_of(struct sim *sim, uint32_t pool, uint32_t worker)
{
    sim_must(sim, place(worker) < SIM_PLACES, "there is no place %u", worker);
    return &sim->pools[pool].list[place(worker)];
}

static void post(struct sim *sim, enum co_event_type type, uint32_t pool, uint32_t worker)
{
    sim_post(sim, &(struct co_event){.type = type, .pool = pool, .worker = worker, .pid = 2});
}

/* ---- zygotes ---- */

void sim_world_zygote(struct sim *sim, uint32_t pool)
{
    sim_must(sim, !sim->pools[pool].zygote_booting, "two zygotes boot in pool %u", pool);
    sim->pools[pool].zygote_booting = true;
    sim->pools[pool].zygote_at = sim->now + 5 + sim_random(sim, 400);
}

static void boot_failed(struct sim *sim, uint32_t pool)
{
    sim->pools[pool].zygote_booting = false;
    sim_note(sim, "zygote %u did not boot", pool);
    sim_post(sim, &(struct co_event){.type = CO_EVENT_ZYGOTE_DOWN, .pool = pool});
}

/* What it had been asked for and had not announced will not come. */
static void zygote_down(struct sim *sim, uint32_t pool)
{
    sim->pools[pool].zygote_up = false;
    sim_note(sim, "zygote %u down", pool);
    sim_post(sim, &(struct co_event){
                      .type = CO_EVENT_ZYGOTE_DOWN, .pool = pool, .ok = true, .current = true});
    for (uint32_t w = 0; w < SIM_PLACES; w++) {
        if (sim->pools[pool].list[w].state == SIM_WORKER_ASKED) {
            sim->pools[pool].list[w].state = SIM_WORKER_NONE;
            sim_post(
                sim,
                &(struct co_event){
                    .type = CO_EVENT_EXITED, .pool = pool, .worker = index_of(w), .exit_code = 1});
        }
    }
}

void sim_world_kill_zygote(struct sim *sim, uint32_t pool)
{
    if (sim->pools[pool].zygote_booting && sim_random(sim, 2) == 0) {
        boot_failed(sim, pool);
    } else if (sim->pools[pool].zygote_up) {
        zygote_down(sim, pool);
    }
}

void sim_world_end_zygote(struct sim *sim, uint32_t pool)
{
    sim->pools[pool].zygote_up = false;
    sim->pools[pool].zygote_booting = false;
}

static void zygote_step(struct sim *sim, uint32_t pool)
{
    if (sim_chance(sim, 150)) {
        boot_failed(sim, pool);
        return;
    }
    sim->pools[pool].zygote_booting = false;
    sim->pools[pool].zygote_up = true; /* The old one, if there is one, ends. */
    sim_note(sim, "zygote %u up", pool);
    sim_post(sim, &(struct co_event){.type = CO_EVENT_ZYGOTE_UP, .pool = pool});
}

/* ---- what the agent asks for ---- */

static void die(struct sim *sim, struct sim_worker *w, int exit_code, int signal)
{
    if (w->state == SIM_WORKER_RUNNING) {
        sim->jobs[w->job].running -= 1;
    }
    w->state = SIM_WORKER_DEAD;
    w->exit_code = exit_code;
    w->signal = signal;
    w->at = sim->now + sim_random(sim, 4);
}

void sim_world_fork(struct sim *sim, uint32_t pool, uint32_t worker)
{
    struct sim_worker *w = worker_of(sim, pool, worker);

    sim_must(sim, w->state == SIM_WORKER_NONE, "worker %u is forked twice", worker);
    sim_must(sim, sim->pools[pool].spawn || sim->pools[pool].zygote_up,
             "worker %u is forked from a dead zygote", worker);
    *w = (struct sim_worker){.state = SIM_WORKER_ASKED, .at = sim->now + sim_random(sim, 20)};
    if (!sim->peace && sim_chance(sim, 10)) {
        w->state = SIM_WORKER_NONE;
        post(sim, CO_EVENT_FORK_FAILED, pool, worker);
    } else if (sim->pools[pool].spawn) {
        w->state = SIM_WORKER_BOOTING;
        w->at = sim->now + 5 + sim_random(sim, 200);
        w->dies = sim_fault(sim, 50);
        post(sim, CO_EVENT_FORKED, pool, worker);
    }
}

static bool is_dead(const struct sim_worker *w)
{
    return w->state == SIM_WORKER_DEAD || w->state == SIM_WORKER_NONE;
}

static uint32_t job_of(struct sim *sim, const struct co_ticket *ticket)
{
    struct sim_job *job = sim_rows_find(sim, ticket->source, ticket->table, ticket->job_id);

    sim_must(sim, job != NULL, "a job that has another id");
    return (uint32_t)(job - sim->jobs);
}

void sim_world_give(struct sim *sim, uint32_t pool, uint32_t worker, uint64_t id)
{
    struct sim_worker *w = worker_of(sim, pool, worker);
    struct co_ticket *ticket = co_tickets_get(&sim->core.tickets, id);

    sim_must(sim, worker < SIM_JOB_PLACES, "a control worker or bookkeeper is given a job");
    sim_check_give(sim, ticket);
    if (sim_chance(sim, 5)) { /* The hand-over fails, as for want of room for a large payload. */
        sim_post(sim, &(struct co_event){.type = CO_EVENT_ENDED,
                                         .pool = pool,
                                         .worker = worker,
                                         .ticket = id,
                                         .outcome = CO_OUTCOME_RETURNED});
        return;
    }
    sim_must(sim, !w->killed, "worker %u is being ended and is given a job", worker);
    w->ticket = id;
    w->job = job_of(sim, ticket);
    w->attempts = ticket->attempts + 1;
    if (is_dead(w)) {
        return; /* The core does not know yet: the job lies in the ring of a dead worker. */
    }
    sim_must(sim, w->state == SIM_WORKER_IDLE && !w->said_end && !w->stop,
             "worker %u is given a second job", worker);
    w->state = SIM_WORKER_TAKING;
    w->at = sim->now + sim_random(sim, 3);
    w->dies = sim_fault(sim, 20);
}

void sim_world_bookkeep(struct sim *sim, uint32_t pool, uint32_t worker, uint64_t id)
{
    struct sim_worker *w = worker_of(sim, pool, worker);
    struct co_ticket *ticket = co_tickets_get(&sim->core.tickets, id);

    sim_must(sim, worker >= CO_PLACE_BOOKKEEPER, "worker %u is no bookkeeper", worker);
    sim_must(sim, w->ticket == 0, "a bookkeeper gets a second job");
    w->ticket = id;
    w->job = job_of(sim, ticket);
    sim_must(sim, sim->jobs[w->job].running == 0 || sim->jobs[w->job].meddled,
             "job %u runs while its bookkeeper works", w->job);
    if (is_dead(w)) {
        return;
    }
    w->state = SIM_WORKER_KEEPING;
    w->outcome = ticket->final || sim_random(sim, 2) ? CO_OUTCOME_FAILED : CO_OUTCOME_RELEASED;
    w->at = sim_fault(sim, 20) ? UINT64_MAX : sim->now + sim_random(sim, 30);
    w->dies = sim->jobs[w->job].bookless || sim_fault(sim, 200);
    if (w->dies) {
        w->at = sim->now + sim_random(sim, 30);
    }
}

/* The agent swaps the slot: true = it was running, and only its handler may speak now. */
void sim_world_timeout(struct sim *sim, uint32_t pool, uint32_t worker, uint64_t id)
{
    struct sim_worker *w = worker_of(sim, pool, worker);
    struct sim_job *job = &sim->jobs[w->job];
    co_ms grace = sim->pools[pool].grace;
    bool running = w->state == SIM_WORKER_RUNNING && w->ticket == id;

    sim_must(sim, w->ticket == id, "a limit of ticket %llu hits ticket %llu",
             (unsigned long long)id, (unsigned long long)w->ticket);
    if (running) {
        w->timed_out = true;
        w->dies = w->dies_after_end = false;
        w->outcome =
            job->tries > 0 && w->attempts >= job->tries ? CO_OUTCOME_FAILED : CO_OUTCOME_RELEASED;
        w->delay_s = 0;
        switch (sim_random(sim, 4)) {
        case 0: /* In time. */
            w->at = sim->now + sim_random(sim, (uint32_t)grace);
            break;
        case 1: /* At the last moment, or too late. */
            w->at = sim->now + grace + sim_random(sim, 3) - 1;
            break;
        case 2: /* Never. */
            w->at = UINT64_MAX;
            break;
        default: /* Laravel's handler ends its own process. */
            die(sim, w, 0, 9);
        }
    } else if (w->state == SIM_WORKER_TAKING) {
        w->at = UINT64_MAX; /* It may not begin, and says nothing. */
    }
    sim_post(
        sim,
        &(struct co_event){
            .type = CO_EVENT_ENDING, .pool = pool, .worker = worker, .ticket = id, .ok = running});
}

void sim_world_stop(struct sim *sim, uint32_t pool, uint32_t worker)
{
    struct sim_worker *w = worker_of(sim, pool, worker);

    w->stop = true;
    if (w->state == SIM_WORKER_IDLE && sim_fault(sim, 5)) {
        w->state = SIM_WORKER_HANGING;
        w->at = UINT64_MAX;
    } else if (w->state == SIM_WORKER_IDLE) {
        die(sim, w, 0, 0);
    }
}

void sim_world_kill(struct sim *sim, uint32_t pool, uint32_t worker)
{
    struct sim_worker *w = worker_of(sim, pool, worker);

    /* One that the zygote has not announced has no pid yet. */
    if (w->state != SIM_WORKER_ASKED && !is_dead(w)) {
        die(sim, w, 0, 9);
    }
}

/* The agent's kill lands a moment later: until then the worker goes on. */
void sim_world_end(struct sim *sim, uint32_t pool, uint32_t worker, uint64_t ticket)
{
    struct sim_worker *w = worker_of(sim, pool, worker);

    sim_must(sim, ticket == 0 || w->ticket == ticket || is_dead(w),
             "a kill meant for ticket %llu hits ticket %llu", (unsigned long long)ticket,
             (unsigned long long)w->ticket);
    if (w->state != SIM_WORKER_ASKED && !is_dead(w) && !w->killed) {
        w->killed = true;
        w->kill_at = sim->now + sim_random(sim, 3);
    }
}

/* The fast drain ends it: the start must be given back. */
void sim_world_owe(struct sim *sim, uint32_t pool, uint32_t worker)
{
    struct sim_worker *w = worker_of(sim, pool, worker);

    sim->jobs[w->job].owed = w->state == SIM_WORKER_RUNNING;
}

bool sim_world_is_booted(const struct sim *sim, uint32_t pool, uint32_t worker)
{
    const struct sim_worker *w = &sim->pools[pool].list[place(worker)];

    return !is_dead(w) && w->state != SIM_WORKER_ASKED && w->state != SIM_WORKER_BOOTING;
}

/* ---- workers ---- */

static enum co_outcome choose_outcome(struct sim *sim)
{
    static const enum co_outcome rare[] = {CO_OUTCOME_RELEASED, CO_OUTCOME_RELEASED,
                                           CO_OUTCOME_FAILED, CO_OUTCOME_LEFT};
    return sim_chance(sim, 150) ? rare[sim_random(sim, 4)] : CO_OUTCOME_DONE;
}

static co_ms choose_service(struct sim *sim)
{
    if (sim->service == 0) {
        return 0;
    }
    if (sim->service == 2 && sim_chance(sim, 100)) {
        return sim_random(sim, 12000);
    }
    return sim_random(sim, sim->service == 3 ? 400 : 20);
}

static void say(struct sim *sim, struct sim_worker *w)
{
    w->read_at = sim->now + (sim_chance(sim, 100) ? sim_random(sim, 50) : sim_random(sim, 2));
}

/* Laravel looks first whether the job may run at all. */
static bool is_used_up(const struct sim *sim, const struct sim_worker *w)
{
    const struct sim_job *job = &sim->jobs[w->job];

    return job->until > 0 ? sim_wall_s(sim) >= job->until
                          : job->tries > 0 && w->attempts > job->tries;
}

static void begin(struct sim *sim, struct sim_worker *w)
{
    struct sim_job *job = &sim->jobs[w->job];

    sim_note(sim, "begin job %u ticket %llu", w->job, (unsigned long long)w->ticket);
    sim_must(sim, job->running == 0 || job->meddled, "job %u runs twice at once", w->job);
    sim_must(sim, !job->final || job->meddled, "job %u had ended and runs again", w->job);
    job->running += 1;
    job->starts += 1;
    job->slot_agent = sim->agent;
    job->slot_ticket = w->ticket;
    w->begun = w->ticket;
    w->state = SIM_WORKER_RUNNING;
    w->timed_out = false;
    w->outcome = choose_outcome(sim);
    w->delay_s = w->outcome == CO_OUTCOME_RELEASED ? sim_random(sim, 3) : 0;
    w->at = sim->now + choose_service(sim);
    w->dies = job->poison || sim_fault(sim, 30);
    w->dies_after_end = !w->dies && sim_fault(sim, 30);
    if (is_used_up(sim, w)) {
        w->outcome = CO_OUTCOME_FAILED;
        w->dies = false;
    } else if (job->hangs) {
        w->at = UINT64_MAX;
    }
}

static void after_job(struct sim *sim, struct sim_worker *w)
{
    w->state = SIM_WORKER_IDLE;
    if (w->dies_after_end) {
        die(sim, w, 0, 11);
    } else if (w->stop) {
        die(sim, w, 0, 0);
    }
}

static void write_end(struct sim *sim, struct sim_worker *w)
{
    struct sim_job *job = &sim->jobs[w->job];

    sim_note(sim, "end job %u outcome %d", w->job, (int)w->outcome);
    job->end.present = true;
    job->end.agent = sim->agent;
    job->end.ticket = w->ticket;
    job->end.id = job->id;
    job->end.claims = job->claims;
    job->end.outcome = w->outcome;
    job->end.delay_s = w->delay_s;
    job->final = w->outcome == CO_OUTCOME_DONE || w->outcome == CO_OUTCOME_FAILED;
    if (w->state == SIM_WORKER_RUNNING) {
        job->running -= 1;
        job->slot_agent = 0;
    }
    w->said_end = true;
    say(sim, w);
    after_job(sim, w);
}

static void worker_step(struct sim *sim, uint32_t pool, uint32_t worker)
{
    struct sim_worker *w = worker_of(sim, pool, worker);

    if (w->dies && w->state != SIM_WORKER_DEAD) {
        w->dies = false;
        w->by_oom = sim_random(sim, 8) == 0;
        die(sim, w, 0, w->by_oom || sim_random(sim, 2) ? 9 : 11);
        return;
    }
    switch (w->state) {
    case SIM_WORKER_ASKED:
        w->state = SIM_WORKER_BOOTING;
        w->at = sim_fault(sim, 3) ? UINT64_MAX : sim->now + sim_random(sim, 60);
        w->dies = sim_fault(sim, 50);
        post(sim, CO_EVENT_FORKED, pool, worker);
        break;
    case SIM_WORKER_BOOTING:
        w->state = SIM_WORKER_IDLE;
        w->said_ready = true;
        say(sim, w);
        break;
    case SIM_WORKER_TAKING:
        if (sim->now < sim->queues[sim->jobs[w->job].queue].veto_until) {
            w->outcome = CO_OUTCOME_DECLINED;
            write_end(sim, w);
        } else {
            begin(sim, w);
        }
        break;
    case SIM_WORKER_RUNNING:
    case SIM_WORKER_KEEPING:
        write_end(sim, w);
        break;
    case SIM_WORKER_NONE:
    case SIM_WORKER_IDLE:
    case SIM_WORKER_HANGING:
    case SIM_WORKER_DEAD:
        break;
    }
}

/* The agent reads its ring. */
static void read_ring(struct sim *sim, uint32_t pool, uint32_t worker)
{
    struct sim_worker *w = worker_of(sim, pool, worker);

    if (w->said_ready) {
        w->said_ready = false;
        post(sim, CO_EVENT_READY, pool, worker);
        if (w->stop && w->state == SIM_WORKER_IDLE) {
            die(sim, w, 0, 0);
        }
    }
    if (w->said_end) {
        w->said_end = false;
        sim_post(sim, &(struct co_event){.type = CO_EVENT_ENDED,
                                         .pool = pool,
                                         .worker = worker,
                                         .ticket = w->ticket,
                                         .outcome = w->outcome,
                                         .over_memory = sim_chance(sim, 10),
                                         .timed_out = w->timed_out,
                                         .delay_s = w->delay_s});
        w->timed_out = false;
    }
}

static void reap(struct sim *sim, uint32_t pool, uint32_t worker)
{
    struct sim_worker *w = worker_of(sim, pool, worker);
    uint64_t ended = w->said_end ? w->ticket : 0;

    read_ring(sim, pool, worker);
    w->state = SIM_WORKER_NONE;
    if (sim->jobs[w->job].slot_agent == sim->agent && w->begun != 0 &&
        sim->jobs[w->job].slot_ticket == w->begun) {
        sim->jobs[w->job].slot_agent = 0; /* The wire goes with it. */
    }
    sim_note(sim, "worker %u.%u is dead", pool, worker);
    sim_post(sim,
             &(struct co_event){.type = CO_EVENT_EXITED,
                                .pool = pool,
                                .worker = worker,
                                .exit_code = w->exit_code,
                                .signal = w->signal,
                                .by_oom = w->by_oom && w->signal == 9,
                                .wall_ms = (uint64_t)sim_wall_s(sim) * 1000,
                                .ok = w->begun != 0 && w->begun == w->ticket && w->begun != ended});
}

static co_ms due(const struct sim_worker *w)
{
    co_ms at = w->state == SIM_WORKER_NONE || w->state == SIM_WORKER_IDLE ? UINT64_MAX : w->at;
    bool unread = (w->said_ready || w->said_end) && w->state != SIM_WORKER_DEAD;

    at = w->killed && !is_dead(w) && w->kill_at < at ? w->kill_at : at;
    return unread && w->read_at < at ? w->read_at : at;
}

static void step_place(struct sim *sim, uint32_t pool, uint32_t at)
{
    struct sim_worker *w = &sim->pools[pool].list[at];

    if (w->state == SIM_WORKER_DEAD) {
        reap(sim, pool, index_of(at));
    } else if (w->killed && w->kill_at <= sim->now) {
        die(sim, w, 0, 9);
    } else if ((w->said_ready || w->said_end) && w->read_at <= sim->now) {
        read_ring(sim, pool, index_of(at));
    } else {
        worker_step(sim, pool, index_of(at));
    }
}

co_ms sim_world_next(const struct sim *sim)
{
    co_ms next = UINT64_MAX;

    for (uint32_t p = 0; p < sim->n_pools; p++) {
        const struct sim_pool *pool = &sim->pools[p];
        if (pool->zygote_booting && pool->zygote_at < next) {
            next = pool->zygote_at;
        }
        for (uint32_t w = 0; w < SIM_PLACES; w++) {
            co_ms at = due(&pool->list[w]);
            next = at < next ? at : next;
        }
    }
    return next;
}

bool sim_world_step(struct sim *sim)
{
    for (uint32_t p = 0; p < sim->n_pools; p++) {
        if (sim->pools[p].zygote_booting && sim->pools[p].zygote_at <= sim->now) {
            zygote_step(sim, p);
            return true;
        }
        for (uint32_t w = 0; w < SIM_PLACES; w++) {
            if (due(&sim->pools[p].list[w]) <= sim->now) {
                step_place(sim, p, w);
                return true;
            }
        }
    }
    return false;
}

/* The agent has gone: its workers and zygotes end with it; their wires stay. */
void sim_world_crash(struct sim *sim)
{
    for (uint32_t p = 0; p < sim->n_pools; p++) {
        for (uint32_t w = 0; w < SIM_PLACES; w++) {
            struct sim_worker *worker = &sim->pools[p].list[w];
            if (worker->state == SIM_WORKER_RUNNING) {
                sim->jobs[worker->job].running -= 1;
            }
            *worker = (struct sim_worker){.state = SIM_WORKER_NONE};
        }
        sim->pools[p].zygote_up = sim->pools[p].zygote_booting = false;
    }
}
