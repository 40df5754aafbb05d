/* The agent's core: what happened goes in, what to do comes out.
 *
 *     event ──► co_core_step() ──► actions: start a zygote, fork, give a ticket, stop or kill a
 *                                   worker, have a turn with a source, forget a ticket, exit
 *
 * Pure: no clock, no system call, no memory of its own. It puts the pools, the tickets and the
 * sources together; agent/agent_uv.c obeys, tests/agent/test_core.c plays it. */

#ifndef CO_AGENT_CORE_H
#define CO_AGENT_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/pool.h"
#include "agent/source.h"
#include "agent/tickets.h"
#include "agent/turn.h"
#include "proto/config.h"

enum co_event_type {
    CO_EVENT_TICK = 1,    /* co_core_deadline() has come, or anything changed outside. */
    CO_EVENT_ZYGOTE_UP,   /* pool */
    CO_EVENT_ZYGOTE_DOWN, /* pool; ok = it had booted */
    CO_EVENT_FORKED,      /* pool, worker, pid */
    CO_EVENT_FORK_FAILED, /* pool, worker */
    CO_EVENT_READY,       /* pool, worker */
    CO_EVENT_BEGAN,       /* ticket: its slot says so */
    CO_EVENT_ENDED,       /* pool, worker, ticket, outcome, delay_s, record, text */
    CO_EVENT_EXITED,      /* pool, worker, exit_code, signal; ok = its slot says it began */
    CO_EVENT_TURN,        /* source, turn (back, good or bad), wall_ms */
    CO_EVENT_CHANGED,     /* source: somebody wrote to the file */
    CO_EVENT_ENDING,      /* pool, worker, ticket: after TIMEOUT; ok = it was running */
    CO_EVENT_MEMORY,      /* pool, worker: it is over its limit */
    CO_EVENT_TIGHT,       /* ok = memory is short, else not any more */
    CO_EVENT_AGE,         /* pool: look at the workers' ages */
    CO_EVENT_RELOAD,      /* pool: a new generation */
    CO_EVENT_HOLD,        /* queue: ok = paused or in maintenance, else not any more */
    CO_EVENT_SHARE,       /* queue, workers, until: what the fleet leaves to this agent */
    CO_EVENT_LIMIT,       /* queue, workers: what the balance leaves to the queue */
    CO_EVENT_PEER_DEAD,   /* Another agent: what it held wants to be given back. */
    CO_EVENT_DRAIN,       /* ok = fast: give running jobs back and end their workers */
};

struct co_event {
    enum co_event_type type;
    co_ms now;
    uint32_t pool, worker, source;
    uint64_t ticket;
    int32_t pid;
    int exit_code, signal;
    uint32_t queue;
    uint32_t workers;
    co_ms until;
    bool ok;
    bool current;     /* ZYGOTE_DOWN: it was the one that forks. */
    bool by_oom;      /* EXITED: the kernel ended it for memory. */
    bool over_memory; /* ENDED: its worker is over job.memory. */
    bool failed_ran;  /* EXITED: its slot says that failed() was called. */
    bool timed_out;   /* ENDED: written by the handler of a time limit. */
    enum co_outcome outcome;
    uint32_t delay_s;
    uint32_t run_us;
    uint32_t cycle_us; /* ENDED: from hand-over to outcome; 0: not measured. */
    bool record;
    char *text; /* Opaque; taken by the core (it comes back with a settle or a FORGET). */
    struct co_turn *turn;
    uint64_t wall_ms;
};

enum co_action_type {
    CO_ACTION_ZYGOTE = 1, /* pool: start one. */
    CO_ACTION_FORK,       /* pool, worker */
    CO_ACTION_GIVE,       /* pool, worker, ticket */
    CO_ACTION_STOP,       /* pool, worker: send STOP. */
    CO_ACTION_KILL,       /* pool, worker: SIGKILL to the group. */
    CO_ACTION_TIMEOUT,    /* pool, worker, ticket: swap the slot, wake its handler, say ENDING. */
    CO_ACTION_BOOKKEEP,   /* pool, worker, ticket: give it to the bookkeeper. */
    CO_ACTION_TURN,       /* source: call co_core_fill() and submit. */
    CO_ACTION_FORGET,     /* ticket: settled or gone; free what it owns, then co_core_forget(). */
    CO_ACTION_END_ZYGOTE, /* pool: no workers left, close it. */
    CO_ACTION_DRAINED,    /* All done: leave. */
};

struct co_action {
    enum co_action_type type;
    uint32_t pool, worker, source;
    uint64_t ticket;
    bool applied; /* FORGET: the source took the outcome. */
};

#define CO_ACTIONS_MAX 8192 /* A fast drain of all pools kills and stops every worker. */

struct co_update {
    uint32_t n;
    struct co_action actions[CO_ACTIONS_MAX];
};

struct co_core {
    uint32_t n_pools;
    struct {
        struct co_pool pool;
        struct co_job_options job;
        uint32_t claim; /* CO_CLAIM_AUTO or a number. */
        bool drained;   /* END_ZYGOTE was said. */
        struct co_hist wait, service;
        co_ms kill_grace;
        double cycle_us; /* Moving average from hand-over to outcome; 0: not known. */
        co_ms last_end;  /* Of the last outcome. */
        co_ms deadline;  /* The earliest of its tickets'. */
        uint32_t rotate[CO_SOURCES_MAX]; /* Whose turn it is among queues of one rank. */
    } pools[CO_POOLS_MAX];
    uint32_t n_sources;
    struct co_source sources[CO_SOURCES_MAX];
    uint32_t claims_asked[CO_SOURCES_MAX]; /* What the turn under way may bring at most. */
    struct co_tickets tickets;
    bool draining;
    bool drain_fast;
    bool drained;
    co_ms drain_at;
    bool circuit_opened, circuit_closed; /* By the last EXITED; by the last ENDED or AGE. */
    char *orphan_text;                   /* Of the last EXITED: nobody took it, free it. */
    enum co_exit_reason last_exit;       /* Reason of the worker of the last EXITED event. */
    uint32_t index[CO_TICKETS_MAX * 2];  /* Tickets by job, rebuilt where it is needed. */
    uint64_t fenced; /* Outcomes the source did not take: the job was another's. */
};

void co_core_init(struct co_core *core);
/* seed is for the jitter of limits. */
uint32_t co_core_add_pool(struct co_core *core, const struct co_pool_config *config,
                          uint32_t workers, uint64_t seed, co_ms now);
int co_core_add_source(struct co_core *core, const struct co_source_config *config, co_ms now);
int co_core_add_queue(struct co_core *core, const char *name, uint32_t pool, uint32_t source,
                      uint32_t table, uint32_t rank);

/* As co_core_add_queue() for a queue found in the source: where the table is full it takes the
 * place of another found one that is empty, unless the turn brings claims for that. */
int co_core_found_queue(struct co_core *core, const struct co_turn_depth *depth, uint32_t pool,
                        uint32_t source, uint32_t rank, const struct co_turn *turn);

/* Advance by one event; *ret_update says what to do now, in order. */
void co_core_step(struct co_core *core, const struct co_event *event, struct co_update *ret_update);

/* Fill the turn that an action asked for. */
void co_core_fill(struct co_core *core, uint32_t source, struct co_turn *turn, co_ms now);

/* The ticket's memory is gone. */
void co_core_forget(struct co_core *core, uint64_t ticket);

/* When to come back with a TICK; UINT64_MAX if never. */
co_ms co_core_deadline(const struct co_core *core, co_ms now);

#endif /* CO_AGENT_CORE_H */
