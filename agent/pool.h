/* The workers of one pool: their states, who is idle, who must be made, who must go.
 *
 *     booting ──► idle ◄──► busy
 *        │          │         │
 *        │          ▼         │
 *        │      draining ◄────┘
 *        ▼          ▼
 *       dead ◄──────┘            (from every state)
 *
 * Pure: it says whom to fork and whom to stop; the caller forks, stops and reports back. */

#ifndef CO_AGENT_POOL_H
#define CO_AGENT_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/config.h"
#include "proto/time.h"
#include "proto/view.h"

/* The control worker's index: behind those of the job workers. */
#define CO_POOL_CONTROL CO_WORKERS_MAX

/* Before the n-th fork after n boot failures in a row the pool waits 100 ms * 2^n, at most this. */
#define CO_POOL_BACKOFF_MAX 60000
#define CO_POOL_BACKOFF_MIN 100

struct co_pool_worker {
    enum co_worker_state state;
    bool present;    /* Forked (or asked for) and not yet seen dead. */
    int32_t pid;     /* 0 until the zygote announced it. */
    uint32_t life;   /* Rises with every fork into this place. */
    uint64_t ticket; /* BUSY: its ticket; else 0. */
    co_ms since;     /* Of the state. */
    uint64_t jobs;
    bool booted; /* It said READY in this life. */
    bool has_reason;
    enum co_exit_reason reason; /* Why we ended it, if we did. */
    uint32_t idle_next;         /* Stack of the idle: index + 1. */
};

struct co_pool {
    uint32_t wanted;    /* Workers there should be. */
    bool zygote_up;     /* Booted and forking. */
    bool zygote_wanted; /* Ask for one (start or restart). */
    bool zygote_starting;
    co_ms zygote_after; /* Not before. */
    uint32_t boot_failures_row;
    co_ms fork_after;
    bool draining;
    uint32_t idle_top; /* The one idle for the shortest time; index + 1. */
    uint32_t n_idle;
    uint32_t by_state[CO_WORKER_STATES];
    uint32_t places; /* Job workers were only ever forked below this place. */
    uint64_t exits[CO_EXIT_REASONS];
    uint64_t forks;
    uint64_t boot_failures;
    struct co_pool_worker workers[CO_WORKERS_MAX + 1]; /* The last is the control worker. */
};

void co_pool_init(struct co_pool *pool, uint32_t wanted);

/* The next place to fork into, or -1: called until it says -1; the caller forks and the place
 * counts as booting from here on. */
int co_pool_fork(struct co_pool *pool, co_ms now);

/* The next worker that must be told to stop (surplus, draining), or -1. Idle ones only, unless the
 * pool drains: then busy ones are marked as well and stop after their job. */
int co_pool_stop(struct co_pool *pool, co_ms now);

/* What happened. */
void co_pool_forked(struct co_pool *pool, uint32_t worker, int32_t pid);
void co_pool_ready(struct co_pool *pool, uint32_t worker, co_ms now);
void co_pool_busy(struct co_pool *pool, uint32_t worker, uint64_t ticket, co_ms now);
void co_pool_ended(struct co_pool *pool, uint32_t worker, co_ms now);

/* We are about to end this worker for that reason. */
void co_pool_doom(struct co_pool *pool, uint32_t worker, enum co_exit_reason reason);

/* The worker is dead; wait_status as waitpid gives it, WIFSIGNALED style split by the caller:
 * signal 0 and an exit code, or a signal. Returns the reason and makes room for its successor. */
enum co_exit_reason co_pool_exited(struct co_pool *pool, uint32_t worker, int exit_code, int signal,
                                   co_ms now);

void co_pool_zygote_up(struct co_pool *pool, co_ms now);
void co_pool_zygote_down(struct co_pool *pool, bool booted, co_ms now);

/* The idle worker to serve next, or -1; control workers are never among them. */
int co_pool_idle(const struct co_pool *pool);

/* Job workers that are not dead. */
uint32_t co_pool_alive(const struct co_pool *pool);

/* When something of the above changes by itself; UINT64_MAX if never. */
co_ms co_pool_deadline(const struct co_pool *pool, co_ms now);

#endif /* CO_AGENT_POOL_H */
