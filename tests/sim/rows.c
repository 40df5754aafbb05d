/* The sources: rows, holds and turns, as turn.h and the SQLite source have them. */

#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"

static uint32_t index_of(const struct sim *sim, const struct sim_job *job)
{
    return (uint32_t)(job - sim->jobs);
}

struct sim_job *sim_rows_find(struct sim *sim, uint32_t source, uint32_t table, int64_t id)
{
    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        const struct sim_queue *queue = &sim->queues[sim->jobs[i].queue];
        if (sim->jobs[i].id == id && queue->source == source && queue->table == table) {
            return &sim->jobs[i];
        }
    }
    return NULL;
}

static int64_t next_id(struct sim *sim, const struct sim_job *job)
{
    const struct sim_queue *queue = &sim->queues[job->queue];
    return ++sim->sources[queue->source].last_id[queue->table];
}

/* Somebody wrote to the file: inotify says so soon. */
static void touch(struct sim *sim, uint32_t source)
{
    if (sim->sources[source].changed_at == UINT64_MAX) {
        sim->sources[source].changed_at = sim->now + sim_random(sim, 3);
    }
}

/* How often it may run, how long, and what it does to those who run it. */
static void choose_nature(struct sim *sim, struct sim_job *job)
{
    const struct sim_pool *pool = &sim->pools[sim->queues[job->queue].pool];

    job->tries = sim_random(sim, 2) ? pool->tries : sim_random(sim, 3);
    job->until = sim_random(sim, 20) == 0 ? sim_wall_s(sim) + 5 + sim_random(sim, 20) : 0;
    if (sim->peace) {
        return;
    }
    job->timeout_s = sim_random(sim, 4) == 0 ? 1 + sim_random(sim, 2) : 0;
    job->fail_on_timeout = sim_random(sim, 10) == 0;
    job->max_exceptions = sim_random(sim, 10) == 0;
    job->poison = sim_random(sim, 60) == 0;
    job->bookless = sim_random(sim, 60) == 0;
    job->hangs = sim_random(sim, 20) == 0 && job->timeout_s > 0 && (job->tries > 0 || job->until);
}

static struct co_payload_facts facts_of(const struct sim *sim, const struct sim_job *job)
{
    const struct sim_pool *pool = &sim->pools[sim->queues[job->queue].pool];

    return (struct co_payload_facts){
        .timeout_s = job->timeout_s > 0 ? (int64_t)job->timeout_s : -1,
        .max_tries = job->tries == pool->tries ? -1 : (int64_t)job->tries,
        .max_exceptions = job->max_exceptions ? 2 : -1,
        .retry_until = job->until,
        .fail_on_timeout = job->fail_on_timeout,
    };
}

void sim_push(struct sim *sim, uint32_t queue, uint32_t delay_s)
{
    struct sim_job *job = &sim->jobs[sim->n_jobs];

    if (sim->n_jobs == SIM_JOBS_MAX) {
        return;
    }
    sim->n_jobs += 1;
    *job = (struct sim_job){.queue = queue,
                            .reserved_at = -1,
                            .available_at = sim_wall_s(sim) + delay_s,
                            .created_at = sim_wall_s(sim),
                            .seen = delay_s > 0};
    choose_nature(sim, job);
    job->id = next_id(sim, job);
    sim->sources[sim->queues[queue].source].foreign = true;
    touch(sim, sim->queues[queue].source);
    sim_note(sim, "push %s job %u id %lld", sim->queues[queue].name, index_of(sim, job),
             (long long)job->id);
}

/* ---- outcomes ---- */

static void check_attempts(struct sim *sim, const struct sim_job *job, uint32_t attempts)
{
    sim_must(sim, job->meddled || attempts == job->starts - job->given_back,
             "job %u: %u attempts are recorded, it began %u times and %u starts were given back",
             index_of(sim, job), attempts, job->starts, job->given_back);
}

static void put_back(struct sim *sim, struct sim_job *job, uint32_t attempts)
{
    job->attempts = attempts;
    job->reserved_at = -1;
    job->seen = true;
    check_attempts(sim, job, attempts);
}

/* An agent of whom we only know the hold: what was begun and not recorded is given back. */
static void lose(struct sim *sim, struct sim_job *job, bool begun)
{
    bool crashed = ++job->losses >= 3;
    job->crashes += crashed;
    uint32_t attempts = job->attempts + (crashed && !begun) - (!crashed && begun);

    job->given_back += !crashed;
    put_back(sim, job, attempts);
}

/* Has it had all its tries, or its crashes where tries are no limit? */
static bool is_spent(const struct sim_job *job)
{
    if (job->meddled) {
        return false;
    }
    return job->until > 0 || job->tries == 0 ? job->crashes >= 3 : job->attempts >= job->tries;
}

static bool apply(struct sim *sim, struct sim_job *job, uint32_t agent, int64_t reserved_at,
                  enum co_outcome outcome, uint32_t delay_s, bool began)
{
    uint32_t add;
    bool begun = job->hold_begun;

    if (job->holder != agent || job->hold_reserved_at != reserved_at) {
        return false;
    }
    job->holder = 0;
    job->hold_begun = false;
    if (job->fate != SIM_LIVE || job->reserved_at != reserved_at) {
        return false;
    }
    sim_must(sim, outcome != CO_OUTCOME_CRASHED || !job->owed,
             "job %u is charged for a death that the drain ordered", index_of(sim, job));
    job->owed = false;
    add = began && !begun;
    switch (outcome) {
    case CO_OUTCOME_DONE:
    case CO_OUTCOME_FAILED:
        check_attempts(sim, job, job->attempts + add);
        job->fate = outcome == CO_OUTCOME_DONE ? SIM_DONE : SIM_FAILED;
        break;
    case CO_OUTCOME_RELEASED:
        put_back(sim, job, job->attempts + add);
        job->available_at = sim_wall_s(sim) + delay_s;
        job->id = next_id(sim, job);
        break;
    case CO_OUTCOME_LEFT:
        job->attempts += add;
        job->seen = true;
        check_attempts(sim, job, job->attempts);
        break;
    case CO_OUTCOME_CRASHED:
        put_back(sim, job, job->attempts + add);
        job->crashes += 1;
        sim_must(sim, !is_spent(job) || sim->core.draining,
                 "job %u is back after %u attempts and %u crashes", index_of(sim, job),
                 job->attempts, job->crashes);
        break;
    case CO_OUTCOME_DECLINED:
    case CO_OUTCOME_RETURNED:
        put_back(sim, job, job->attempts - begun);
        break;
    case CO_OUTCOME_LOST:
        lose(sim, job, begun);
        break;
    case CO_OUTCOME_QUARANTINED:
        check_attempts(sim, job, job->attempts + add);
        job->fate = SIM_FAILED; /* Out of the queue, and kept. */
        break;
    }
    return true;
}

/* ---- a dead agent's jobs ---- */

static void recover(struct sim *sim, uint32_t source)
{
    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        struct sim_job *job = &sim->jobs[i];
        uint32_t dead = job->holder;
        if (dead == 0 || dead == sim->agent || sim->queues[job->queue].source != source) {
            continue;
        }
        sim_note(sim, "recover job %u of agent %u", i, dead);
        if (job->end.present && job->end.agent == dead && job->end.id == job->id) {
            bool began = job->end.outcome != CO_OUTCOME_DECLINED;
            /* A turn settled it and claimed it again, and the agent died before it knew: a wire
             * cannot tell one hold of a row from the next, so LEFT charges the start twice. */
            job->meddled = job->meddled || job->end.claims != job->claims;
            apply(sim, job, dead, job->hold_reserved_at, job->end.outcome, job->end.delay_s, began);
        } else if (job->slot_agent == dead || job->hold_begun) {
            apply(sim, job, dead, job->hold_reserved_at, CO_OUTCOME_LOST, 0, true);
        } else {
            /* Its worker died and took the slot along before the crash was settled. */
            job->given_back = job->starts - job->attempts;
            apply(sim, job, dead, job->hold_reserved_at, CO_OUTCOME_RETURNED, 0, false);
        }
        if (job->slot_agent == dead) {
            job->slot_agent = 0;
        }
        if (job->end.agent == dead) {
            job->end.present = false;
        }
    }
}

/* ---- turns ---- */

static void settle(struct sim *sim, uint32_t source, struct co_turn *turn)
{
    for (uint32_t i = 0; i < turn->n_settles; i++) {
        struct co_turn_settle *s = &turn->settles[i];
        struct sim_job *job = sim_rows_find(sim, source, s->table, s->job_id);
        s->ret_applied = job != NULL && apply(sim, job, sim->agent, s->reserved_at, s->outcome,
                                              s->delay_s, s->began);
        sim_must(sim, job == NULL || s->ret_applied || job->meddled || job->fate == SIM_CLEARED,
                 "the outcome of job %u was not taken", index_of(sim, job));
    }
}

static void record_starts(struct sim *sim, uint32_t source, struct co_turn *turn)
{
    for (uint32_t i = 0; i < turn->n_starts; i++) {
        struct co_turn_start *start = &turn->starts[i];
        struct sim_job *job = sim_rows_find(sim, source, start->table, start->job_id);
        if (job != NULL && job->holder == sim->agent &&
            job->hold_reserved_at == start->reserved_at) {
            job->hold_begun = true;
            start->ret_applied = job->fate == SIM_LIVE && job->reserved_at == start->reserved_at;
            job->attempts += start->ret_applied;
        }
    }
}

static void verify(struct sim *sim, uint32_t source, struct co_turn *turn)
{
    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        struct sim_job *job = &sim->jobs[i];
        if (sim->queues[job->queue].source == source && job->holder == sim->agent &&
            !job->hold_begun &&
            (job->fate != SIM_LIVE || job->reserved_at != job->hold_reserved_at)) {
            turn->gone[turn->n_gone].table = sim->queues[job->queue].table;
            turn->gone[turn->n_gone].job_id = job->id;
            turn->gone[turn->n_gone].reserved_at = job->hold_reserved_at;
            turn->n_gone += 1;
            job->holder = 0;
        }
    }
}

static void beat(struct sim *sim, uint32_t source, struct co_turn *turn)
{
    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        struct sim_job *job = &sim->jobs[i];
        if (sim->queues[job->queue].source == source && job->holder == sim->agent &&
            job->fate == SIM_LIVE && job->reserved_at == job->hold_reserved_at &&
            job->reserved_at != sim_wall_s(sim)) {
            turn->beats[turn->n_beats].table = sim->queues[job->queue].table;
            turn->beats[turn->n_beats].job_id = job->id;
            turn->beats[turn->n_beats].was = job->reserved_at;
            turn->beats[turn->n_beats].reserved_at = sim_wall_s(sim);
            turn->n_beats += 1;
            job->reserved_at = job->hold_reserved_at = sim_wall_s(sim);
        }
    }
}

static bool is_ready(struct sim *sim, const struct sim_job *job)
{
    int64_t lease = sim->sources[sim->queues[job->queue].source].retry_after_s;

    return job->fate == SIM_LIVE &&
           (job->reserved_at < 0 ? job->available_at <= sim_wall_s(sim)
                                 : job->reserved_at <= sim_wall_s(sim) - lease);
}

/* The oldest job of the queue that may be claimed, or NULL. */
static struct sim_job *oldest(struct sim *sim, uint32_t queue)
{
    struct sim_job *best = NULL;

    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        struct sim_job *job = &sim->jobs[i];
        if (job->queue == queue && is_ready(sim, job) && (best == NULL || job->id < best->id)) {
            best = job;
        }
    }
    return best;
}

static void claim_one(struct sim *sim, struct co_turn *turn, struct co_turn_want *want,
                      struct sim_job *job)
{
    sim_must(sim, job->holder != sim->agent || job->meddled,
             "job %u is claimed while we hold it: its heartbeat came too late", index_of(sim, job));
    job->reserved_at = job->hold_reserved_at = sim_wall_s(sim);
    job->holder = sim->agent;
    job->hold_begun = false;
    job->claims += 1;
    turn->claims[turn->n_claims++] = (struct co_turn_claim){
        .table = want->table,
        .queue = want->queue,
        .job_id = job->id,
        .reserved_at = job->reserved_at,
        .available_at = job->available_at,
        .created_at = job->created_at,
        .attempts = job->attempts,
        .crashes = job->crashes,
        .facts = facts_of(sim, job),
        .payload = malloc(1),
        .payload_size = 1,
    };
    want->ret_count += 1;
}

static int64_t next_due(struct sim *sim, uint32_t queue)
{
    int64_t due = 0;

    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        const struct sim_job *job = &sim->jobs[i];
        if (job->queue == queue && job->fate == SIM_LIVE && job->reserved_at < 0 &&
            job->available_at > sim_wall_s(sim) && (due == 0 || job->available_at < due)) {
            due = job->available_at;
        }
    }
    return due;
}

static void claim(struct sim *sim, struct co_turn *turn)
{
    for (uint32_t i = 0; i < turn->n_wants; i++) {
        struct co_turn_want *want = &turn->wants[i];
        struct sim_job *job;
        uint32_t claimed = 0;
        bool blocked = false;
        int64_t due = next_due(sim, want->queue);
        for (uint32_t k = i; k-- > 0 && turn->wants[k].group == want->group;) {
            claimed += turn->wants[k].ret_count;
            blocked = blocked || (turn->wants[k].rank < want->rank && turn->wants[k].ret_more);
        }
        while (!blocked && (job = oldest(sim, want->queue)) != NULL) {
            if (claimed + want->ret_count >= want->count) {
                want->ret_more = true;
                break;
            }
            claim_one(sim, turn, want, job);
        }
        want->ret_more = want->ret_more || (blocked && oldest(sim, want->queue) != NULL);
        turn->next_due =
            due > 0 && (turn->next_due == 0 || due < turn->next_due) ? due : turn->next_due;
    }
}

static void bye(struct sim *sim, uint32_t source)
{
    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        struct sim_job *job = &sim->jobs[i];
        if (sim->queues[job->queue].source == source && job->holder == sim->agent) {
            sim_must(sim, job->meddled || job->fate == SIM_CLEARED,
                     "job %u is held though all was settled", i);
            job->holder = 0;
        }
    }
}

static void commit(struct sim *sim, uint32_t index)
{
    struct sim_source *source = &sim->sources[index];
    struct co_turn *turn = &source->turn;

    source->committed = true;
    turn->code = CO_OK;
    if (sim->now < source->locked_until) {
        turn->code = CO_EAGAIN;
        return;
    }
    if (turn->recover) {
        recover(sim, index);
    }
    settle(sim, index, turn);
    record_starts(sim, index, turn);
    if (source->foreign) {
        verify(sim, index, turn);
    }
    source->foreign = false;
    if (turn->heartbeat) {
        beat(sim, index, turn);
    }
    claim(sim, turn);
    if (turn->bye) {
        bye(sim, index);
    }
    if (turn->n_settles + turn->n_starts + turn->n_claims + turn->n_beats > 0) {
        touch(sim, index);
    }
}

/* Frees what the turn owns, as co_turn_reset() does. */
static void reset(struct co_turn *turn)
{
    for (uint32_t i = 0; i < turn->n_settles; i++) {
        free(turn->settles[i].text);
    }
    for (uint32_t i = 0; i < turn->n_claims; i++) {
        free(turn->claims[i].payload);
    }
    turn->n_settles = turn->n_starts = turn->n_wants = turn->n_claims = turn->n_gone = 0;
    turn->n_beats = turn->n_depths = 0;
    turn->heartbeat = turn->recover = turn->depths = turn->bye = false;
    turn->next_due = 0;
    turn->code = CO_OK;
}

void sim_rows_taken(struct sim *sim, uint32_t source)
{
    reset(&sim->sources[source].turn);
}

void sim_rows_submit(struct sim *sim, uint32_t index)
{
    struct sim_source *source = &sim->sources[index];

    sim_must(sim, !source->busy, "two turns at once with source %u", index);
    co_core_fill(&sim->core, index, &source->turn, sim->now);
    source->busy = true;
    source->committed = false;
    source->commit_at = sim->now + sim_random(sim, (uint32_t)source->latency_max + 1);
    source->back_at = source->commit_at + sim_random(sim, (uint32_t)source->latency_max / 4 + 2);
    sim_note(sim, "turn %u: %u settles %u starts %u wants%s%s%s", index, source->turn.n_settles,
             source->turn.n_starts, source->turn.n_wants,
             source->turn.heartbeat ? " heartbeat" : "", source->turn.recover ? " recover" : "",
             source->turn.bye ? " bye" : "");
}

static void come_back(struct sim *sim, uint32_t index)
{
    struct sim_source *source = &sim->sources[index];

    source->busy = false;
    if (source->turn.code == CO_OK) {
        source->last_commit = source->commit_at;
        source->last_back = sim->now;
        source->ever_back = true;
    }
    sim_note(sim, "turn %u back: code %d, %u claims %u gone", index, source->turn.code,
             source->turn.n_claims, source->turn.n_gone);
    sim_post(sim,
             &(struct co_event){.type = CO_EVENT_TURN,
                                .source = index,
                                .turn = &source->turn,
                                .wall_ms = (uint64_t)sim_wall_s(sim) * 1000 + sim->now % 1000});
}

co_ms sim_rows_next(const struct sim *sim)
{
    co_ms next = UINT64_MAX;

    for (uint32_t i = 0; i < sim->n_sources; i++) {
        const struct sim_source *source = &sim->sources[i];
        co_ms at =
            source->busy ? (source->committed ? source->back_at : source->commit_at) : UINT64_MAX;
        at = source->changed_at < at && sim->agent != 0 ? source->changed_at : at;
        next = at < next ? at : next;
    }
    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        if (sim->jobs[i].stock_until != 0 && sim->jobs[i].stock_until < next) {
            next = sim->jobs[i].stock_until;
        }
    }
    return next;
}

/* A stock worker has finished a job, or died over it. */
static void stock_end(struct sim *sim, struct sim_job *job)
{
    job->stock_until = 0;
    job->running -= 1;
    if (job->fate == SIM_LIVE && !job->stock_dies) {
        sim_note(sim, "stock worker done with job %u", index_of(sim, job));
        job->fate = SIM_TAKEN;
        sim->sources[sim->queues[job->queue].source].foreign = true;
        touch(sim, sim->queues[job->queue].source);
    }
}

bool sim_rows_step(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_sources; i++) {
        struct sim_source *source = &sim->sources[i];
        if (source->busy && !source->committed && source->commit_at <= sim->now) {
            commit(sim, i);
            return true;
        }
        if (source->busy && source->committed && source->back_at <= sim->now) {
            come_back(sim, i);
            return true;
        }
        if (sim->agent != 0 && source->changed_at <= sim->now) {
            source->changed_at = UINT64_MAX;
            sim_post(sim, &(struct co_event){.type = CO_EVENT_CHANGED, .source = i});
            return true;
        }
    }
    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        if (sim->jobs[i].stock_until != 0 && sim->jobs[i].stock_until <= sim->now) {
            stock_end(sim, &sim->jobs[i]);
            return true;
        }
    }
    return false;
}

/* The thread dies with its agent: before its commit, or after it. */
void sim_rows_crash(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_sources; i++) {
        struct sim_source *source = &sim->sources[i];
        if (source->busy && !source->committed && sim_random(sim, 2) == 0) {
            commit(sim, i);
        }
        reset(&source->turn);
        source->busy = false;
        source->ever_back = false;
        source->foreign = true; /* The next one knows nothing of what was before. */
    }
}

/* ---- others ---- */

static void clear(struct sim *sim, uint32_t queue)
{
    sim_note(sim, "clear %s", sim->queues[queue].name);
    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        struct sim_job *job = &sim->jobs[i];
        if (job->queue == queue && job->fate == SIM_LIVE) {
            job->fate = SIM_CLEARED;
            job->cleared_at = sim->now;
        }
    }
}

/* A stock worker reserves a job: a free one, or one of ours as if our lease had run out. */
static void take_over(struct sim *sim, struct sim_job *job)
{
    bool ours = job->holder != 0;

    if (job->fate != SIM_LIVE || job->reserved_at == sim_wall_s(sim) || job->stock_until != 0 ||
        (!ours && (job->reserved_at >= 0 || job->available_at > sim_wall_s(sim)))) {
        return;
    }
    sim_note(sim, "stock worker takes job %u", index_of(sim, job));
    job->meddled = job->meddled || ours;
    job->reserved_at = sim_wall_s(sim);
    job->attempts += 1;
    job->starts += 1;
    job->running += 1;
    job->seen = true;
    job->stock_until = sim->now + 1 + sim_random(sim, 900);
    job->stock_dies = sim_random(sim, 3) == 0;
}

void sim_rows_meddle(struct sim *sim)
{
    uint32_t queue = sim_random(sim, sim->n_queues);

    if (sim_random(sim, 3) == 0) {
        clear(sim, queue);
    } else if (sim->n_jobs > 0) {
        struct sim_job *job = &sim->jobs[sim_random(sim, sim->n_jobs)];
        queue = job->queue;
        take_over(sim, job);
    }
    sim->sources[sim->queues[queue].source].foreign = true;
    touch(sim, sim->queues[queue].source);
}
