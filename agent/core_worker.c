/* Workers and the tickets they have: handed over, ended, over their time, died over. */

#include "agent/core_parts.h"
#include "agent/fate.h"

/* A declined queue is asked again after a second, as the stock worker's sleep has it. */
#define DECLINE_HOLD 1000
/* A bookkeeper's own time, and how often one may fail. */
#define BOOKKEEPING_LIMIT 30000
#define BOOKKEEPINGS_MAX 3
#define KILL_AGAIN 1000

/* ---- hand-over ---- */

static void set_deadline(struct co_core *core, uint32_t index, struct co_ticket *ticket,
                         co_ms limit, co_ms now)
{
    ticket->ending = false;
    ticket->deadline = limit == 0 ? 0 : now + limit;
    if (limit != 0 && ticket->deadline < core->pools[index].deadline) {
        core->pools[index].deadline = ticket->deadline;
    }
}

void co_core_hand_over(struct co_core *core, uint32_t index, co_ms now, struct co_update *update)
{
    struct co_pool *pool = &core->pools[index].pool;
    int worker;

    while (!pool->draining && core->tickets.waiting[index] > 0 &&
           (worker = co_pool_idle(pool)) >= 0) {
        struct co_ticket *ticket =
            co_tickets_next(&core->tickets, index, co_core_answering(core, now), now);
        if (ticket == NULL || !co_source_fresh(co_core_source_of(core, ticket), now)) {
            return;
        }
        co_tickets_give(&core->tickets, ticket, (uint32_t)worker, now);
        co_pool_busy(pool, (uint32_t)worker, ticket->id, now);
        co_hist_add(&core->pools[index].wait, (now - ticket->admitted_at) * 1000);
        set_deadline(core, index, ticket, co_fate_timeout(&ticket->facts, &core->pools[index].job),
                     now);
        co_core_act_worker(update, CO_ACTION_GIVE, index, (uint32_t)worker, ticket->id);
    }
}

void co_core_give_orphans(struct co_core *core, uint32_t index, co_ms now, struct co_update *update)
{
    struct co_pool *pool = &core->pools[index].pool;
    int worker;

    while (core->tickets.orphans[index] > 0 && (worker = co_pool_bookkeeper(pool)) >= 0) {
        struct co_ticket *ticket = co_tickets_next_orphan(&core->tickets, index);
        co_tickets_adopt(&core->tickets, ticket, (uint32_t)worker, now);
        co_pool_busy(pool, (uint32_t)worker, ticket->id, now);
        set_deadline(core, index, ticket, BOOKKEEPING_LIMIT, now);
        co_core_act_worker(update, CO_ACTION_BOOKKEEP, index, (uint32_t)worker, ticket->id);
    }
    pool->bookkeepers_wanted = core->drain_fast ? 0 : core->tickets.orphans[index];
}

/* ---- ends ---- */

static void note_began(struct co_core *core, struct co_ticket *ticket, co_ms now)
{
    if (!ticket->began) {
        ticket->began = true;
        co_core_start_unrecorded(core, ticket, 1, now);
    }
}

/* Vetoed: what else waits in that queue goes back as well, so that it is neither in the way of
 * others nor handed over before the older job that was declined. */
static void decline(struct co_core *core, struct co_queue *queue, co_ms now)
{
    queue->hold_until = now + DECLINE_HOLD;
    co_core_return_queue(core, queue, now);
}

void co_core_step_began(struct co_core *core, const struct co_event *event)
{
    struct co_ticket *ticket = co_tickets_get(&core->tickets, event->ticket);

    if (ticket != NULL && ticket->state == CO_TICKET_GIVEN) {
        note_began(core, ticket, event->now);
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

/* How fast workers consume: what claims are sized by. */
static void note_cycle(struct co_core *core, const struct co_ticket *ticket,
                       const struct co_event *event)
{
    double *cycle = &core->pools[event->pool].cycle_us;
    double us = (double)(event->now - ticket->given_at) * 1000;

    us = us > event->run_us ? us : event->run_us;
    us = event->cycle_us > 0 ? event->cycle_us : us;
    *cycle = *cycle > 0 ? *cycle * 0.8 + us * 0.2 : us;
    core->pools[event->pool].last_end = event->now;
}

void co_core_step_ended(struct co_core *core, const struct co_event *event,
                        struct co_update *update)
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
    note_cycle(core, ticket, event);
    co_core_end_ticket(core, ticket, event->outcome, event->delay_s, event->now);
    core->circuit_closed =
        co_pool_ended(pool, event->worker, event->outcome, event->over_memory, event->now);
    if (sealed || (event->timed_out && worker->present)) {
        /* Its handler is done, or it finished in the same moment: the process is spent. */
        co_pool_seal(pool, event->worker, CO_EXIT_JOB_TIMEOUT, event->now);
        co_core_act_worker(update, CO_ACTION_KILL, event->pool, event->worker, event->ticket);
    } else if (ticket->orphaned) {
        co_core_act_worker(update, CO_ACTION_STOP, event->pool, event->worker, 0);
    }
}

/* ---- workers that died over a job ---- */

static enum co_cause cause_of(enum co_exit_reason reason)
{
    return reason == CO_EXIT_JOB_TIMEOUT ? CO_CAUSE_TIMEOUT
           : reason == CO_EXIT_OOM       ? CO_CAUSE_OOM
                                         : CO_CAUSE_CRASH;
}

/* A bookkeeper that died itself: another tries, three in all. */
static void bookkeeping_failed(struct co_core *core, struct co_ticket *ticket,
                               const struct co_event *event)
{
    ticket->failed_ran = ticket->failed_ran || event->failed_ran;
    ticket->bookkeepings += 1;
    if (ticket->bookkeepings >= BOOKKEEPINGS_MAX) {
        co_core_end_ticket(core, ticket, CO_OUTCOME_QUARANTINED, 0, event->now);
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
    if (fate.bookkeeper || event->failed_ran) {
        ticket->cause = cause;
        ticket->final = fate.final || event->failed_ran; /* There is no way back from failed(). */
        ticket->failed_ran = event->failed_ran;
        co_tickets_orphan(&core->tickets, ticket);
    } else {
        /* A time limit is the job's own doing and no crash: back as Laravel releases. */
        co_core_end_ticket(core, ticket,
                           cause == CO_CAUSE_TIMEOUT ? CO_OUTCOME_RELEASED : CO_OUTCOME_CRASHED,
                           fate.delay_s, event->now);
    }
}

static bool is_fault(enum co_exit_reason reason)
{
    return reason == CO_EXIT_CRASH || reason == CO_EXIT_JOB_FATAL || reason == CO_EXIT_JOB_EXIT ||
           reason == CO_EXIT_OOM;
}

/* It never began. When its worker fell over it all the same (a payload that cannot even be read),
 * the job would do so for ever, at the head of its queue: it is put aside at the third time. */
static void give_back_unbegun(struct co_core *core, struct co_ticket *ticket,
                              const struct co_event *event)
{
    ticket->felled = is_fault(core->last_exit);
    if (ticket->felled && ticket->crashes + 1 >= CO_FATE_CRASHES_MAX) {
        ticket->text = event->text;
        co_core_end_ticket(core, ticket, CO_OUTCOME_QUARANTINED, 0, event->now);
        return;
    }
    core->orphan_text = event->text;
    co_core_end_ticket(core, ticket, CO_OUTCOME_RETURNED, 0, event->now);
}

/* Its worker is dead: what becomes of the job it had. */
void co_core_step_exited(struct co_core *core, const struct co_event *event)
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
        bookkeeping_failed(core, ticket, event);
        return;
    }
    if (event->ok) {
        note_began(core, ticket, event->now);
    }
    if (!ticket->began) {
        give_back_unbegun(core, ticket, event);
        return;
    }
    if (core->drain_fast) {
        core->orphan_text = event->text;
        co_core_end_ticket(core, ticket, CO_OUTCOME_LOST, 0, event->now);
        return;
    }
    decide_fate(core, ticket, core->last_exit, event);
}

/* ---- limits ---- */

/* Its time is over. First its own handler, after the grace the kill; a bookkeeper has no handler.
 */
static void expire(struct co_core *core, uint32_t index, uint32_t worker, struct co_ticket *ticket,
                   co_ms now, struct co_update *update)
{
    if (ticket->ending || ticket->orphaned) {
        co_pool_seal(&core->pools[index].pool, worker, CO_EXIT_JOB_TIMEOUT, now);
        co_core_act_worker(update, CO_ACTION_KILL, index, worker, ticket->id);
        ticket->deadline = now + KILL_AGAIN;
        return;
    }
    ticket->ending = true;
    ticket->deadline = now + core->pools[index].kill_grace;
    co_core_act_worker(update, CO_ACTION_TIMEOUT, index, worker, ticket->id);
}

/* Looked at only when the earliest deadline has come. */
void co_core_check_deadlines(struct co_core *core, uint32_t index, co_ms now,
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
void co_core_step_ending(struct co_core *core, const struct co_event *event)
{
    struct co_ticket *ticket = co_tickets_get(&core->tickets, event->ticket);

    if (event->ok && ticket != NULL && ticket->state == CO_TICKET_GIVEN) {
        co_pool_seal(&core->pools[event->pool].pool, event->worker, CO_EXIT_JOB_TIMEOUT,
                     event->now);
        core->tickets.queues[ticket->queue].counts.timeouts += 1;
    }
}

/* A worker over its memory limit. */
void co_core_step_memory(struct co_core *core, const struct co_event *event,
                         struct co_update *update)
{
    struct co_pool *pool = &core->pools[event->pool].pool;

    if (pool->workers[event->worker].present) {
        co_pool_seal(pool, event->worker, CO_EXIT_OOM, event->now);
        co_core_act_worker(update, CO_ACTION_KILL, event->pool, event->worker,
                           pool->workers[event->worker].ticket);
    }
}
