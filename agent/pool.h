/* The workers of one pool: their states, who is idle, who must be made, who must go.
 *
 *     booting ──► idle ◄──► busy
 *        │          │         │
 *        │          ▼         │
 *        │      draining ◄────┘
 *        ▼          ▼
 *       dead ◄──────┘            (from every state)
 *
 * Places: job workers, then a control worker for even and one for odd generations, then
 * bookkeepers. A worker that must be replaced (recycled, of an old generation) is *retiring*: it
 * works on until its successor is up. Pure: it says whom to fork and whom to stop; the caller
 * forks, stops and reports back. */

#ifndef CO_AGENT_POOL_H
#define CO_AGENT_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/circuit.h"
#include "proto/config.h"
#include "proto/time.h"
#include "proto/view.h"
#include "worker/dispatch.h"

#define CO_BOOKKEEPERS_MAX 4
#define CO_PLACE_CONTROL CO_WORKERS_MAX /* And the one behind it. */
#define CO_PLACE_BOOKKEEPER (CO_WORKERS_MAX + 2)
#define CO_PLACES_MAX (CO_PLACE_BOOKKEEPER + CO_BOOKKEEPERS_MAX)

/* Before the n-th boot of a zygote after n failures in a row: 500 ms * 2^n, at most this. */
#define CO_POOL_BACKOFF_MAX 60000
#define CO_POOL_BACKOFF_MIN 500
#define CO_POOL_BOOT_LIMIT 60000   /* A worker that boots longer is ended. */
#define CO_POOL_STOP_LIMIT 30000   /* Likewise one that was told to stop and has no job. */
#define CO_POOL_FORK_AGAIN 1000    /* After a fork that failed. */
#define CO_POOL_SERVICE_AGAIN 1000 /* After a control worker or bookkeeper that did not boot. */

struct co_pool_limits {
    uint32_t max_jobs; /* 0 = off; each worker's own limit lies within +-20 % of it. */
    co_ms max_time;    /* Likewise. */
};

struct co_pool_worker {
    enum co_worker_state state;
    bool present;  /* Forked (or asked for) and not yet seen dead. */
    int32_t pid;   /* 0 until it is known. */
    uint32_t life; /* Rises with every fork into this place. */
    uint32_t generation;
    uint64_t ticket; /* What it has; else 0. */
    co_ms since;     /* Of the state. */
    co_ms started;
    uint64_t jobs;
    uint64_t jobs_limit; /* 0 = off. */
    co_ms time_limit;    /* 0 = off. */
    bool booted;         /* It said READY in this life. */
    bool retiring;
    enum co_exit_reason retire_reason;
    bool has_reason;
    bool sealed;                /* It is being ended: however it dies, that is why. */
    enum co_exit_reason reason; /* Why we ended it, if we did. */
    uint32_t idle_next;         /* Stack of the idle: index + 1. */
};

struct co_pool {
    uint32_t wanted; /* Job workers there should be. */
    struct co_pool_limits limits;
    uint32_t generation; /* Of the zygote that forks; 0 before the first has booted. */
    bool zygote_up;      /* Booted and forking. */
    bool zygote_wanted;  /* Ask for one (start, restart or reload). */
    bool zygote_starting;
    bool reloading;     /* The one that starts replaces a living one. */
    co_ms zygote_after; /* Not before. */
    co_ms fork_after;   /* Likewise. */
    uint32_t boot_failures_row;
    uint32_t control_failures; /* Control workers in a row that did not boot. */
    bool draining;
    bool tight; /* Memory is short: no worker beyond the count, not even a successor. */
    bool spawn; /* No zygote: every worker boots by itself. */
    uint32_t bookkeepers_wanted; /* Jobs that wait for one. */
    uint32_t idle_top;           /* The one idle for the shortest time; index + 1. */
    uint32_t n_idle;
    uint32_t by_state[CO_WORKER_STATES];
    uint32_t n_retiring; /* Of the living that are not draining. */
    uint64_t exits[CO_EXIT_REASONS];
    uint64_t forks;
    uint64_t boot_failures;
    uint64_t seed;
    struct co_circuit circuit;
    struct co_pool_worker workers[CO_PLACES_MAX];
};

void co_pool_init(struct co_pool *pool, uint32_t wanted, const struct co_pool_limits *limits,
                  bool spawn, uint64_t seed, co_ms now);

/* The next place to fork into, or -1: called until it says -1; the caller forks and the place
 * counts as booting from here on. */
int co_pool_fork(struct co_pool *pool, co_ms now);

/* The next worker that must be told to stop (replaced, surplus, draining), or -1. */
int co_pool_stop(struct co_pool *pool, co_ms now);

/* The next worker that hangs in its boot or in its end and must be killed, or -1. */
int co_pool_hung(struct co_pool *pool, co_ms now);

/* Should a zygote be started now? It counts as starting from here on. */
bool co_pool_zygote(struct co_pool *pool, co_ms now);

/* What happened. */
void co_pool_forked(struct co_pool *pool, uint32_t worker, int32_t pid);
void co_pool_ready(struct co_pool *pool, uint32_t worker, co_ms now);
void co_pool_busy(struct co_pool *pool, uint32_t worker, uint64_t ticket, co_ms now);
/* over_memory: it said so itself. Returns true when that job closed the circuit. */
bool co_pool_ended(struct co_pool *pool, uint32_t worker, enum co_outcome outcome, bool over_memory,
                   co_ms now);

/* Look at age limits, and at a probe that lives without work; called now and then. Returns true
 * when that closed the circuit. */
bool co_pool_age(struct co_pool *pool, co_ms now);

/* Replace every worker by one of a new generation, if that boots. */
void co_pool_reload(struct co_pool *pool, co_ms now);

/* Give the worker no more work: its process is being ended. */
void co_pool_seal(struct co_pool *pool, uint32_t worker, enum co_exit_reason reason, co_ms now);

/* We are about to ask this worker to stop for that reason. */
void co_pool_doom(struct co_pool *pool, uint32_t worker, enum co_exit_reason reason);

/* The worker is dead: an exit code and signal 0, or a signal; by_oom: the kernel ended it for
 * memory. Returns the reason and makes room for its successor; *ret_opened: that opened the
 * circuit. */
enum co_exit_reason co_pool_exited(struct co_pool *pool, uint32_t worker, int exit_code, int signal,
                                   bool by_oom, co_ms now, bool *ret_opened);

/* It could not even be forked: its zygote is dead, and we are about to hear of it, or the machine
 * has no room. No more forks for a moment. */
void co_pool_fork_failed(struct co_pool *pool, uint32_t worker, co_ms now);

/* A zygote (the next one, while reloading) has booted or ended. */
void co_pool_zygote_up(struct co_pool *pool, co_ms now);
void co_pool_zygote_down(struct co_pool *pool, bool booted, bool current, co_ms now);

/* The idle worker to serve next, or -1; never a control worker or bookkeeper. */
int co_pool_idle(const struct co_pool *pool);
/* An idle bookkeeper, or -1. */
int co_pool_bookkeeper(const struct co_pool *pool);
/* The control worker to ask (the newest generation that is up), or -1. */
int co_pool_control(const struct co_pool *pool);

/* Job workers that are not dead, and those that can work. */
uint32_t co_pool_alive(const struct co_pool *pool);
uint32_t co_pool_able(const struct co_pool *pool);

/* When something of the above changes by itself; UINT64_MAX if never. */
co_ms co_pool_deadline(const struct co_pool *pool, co_ms now);

#endif /* CO_AGENT_POOL_H */
