/* One agent core in a modelled world: sources, workers and zygotes in arrays, one virtual clock.
 *
 *     sim_step()  the next thing that is due happens, and the core is told
 *
 * All that is unsure comes from the seed: how long a turn, a boot or a job takes, who dies and
 * when, what others do to the rows. So a seed replays a run exactly. Every step is followed by the
 * checks of check.c. */

#ifndef CO_TESTS_SIM_H
#define CO_TESTS_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/core.h"

#define SIM_POOLS_MAX 2
#define SIM_SOURCES_MAX 2
#define SIM_QUEUES_MAX 6
#define SIM_WORKERS_MAX 6
#define SIM_JOBS_MAX 320
#define SIM_EVENTS_MAX 256
#define SIM_JOB_PLACES 40 /* Those that drain have places too. */
#define SIM_PLACES (SIM_JOB_PLACES + CO_PLACES_MAX - CO_WORKERS_MAX)

enum sim_fate {
    SIM_LIVE = 0, /* Its row is in the source. */
    SIM_DONE,
    SIM_FAILED,
    SIM_CLEARED, /* By an operator. */
    SIM_TAKEN,   /* A stock worker ran it. */
};

/* A job: its row, our hold of it, what stands about it in wires, and what is true. */
struct sim_job {
    enum sim_fate fate;
    uint32_t queue;
    int64_t id;          /* In its table; a release gives it a new one. */
    int64_t reserved_at; /* -1: null */
    int64_t available_at;
    int64_t created_at;
    uint32_t attempts;

    uint32_t holder; /* Generation of the agent, 0 = nobody. */
    int64_t hold_reserved_at;
    bool hold_begun;
    uint32_t losses;
    uint32_t crashes; /* As the source counts them. */
    uint32_t claims;  /* How often an agent has claimed it. */

    uint32_t slot_agent; /* Whose worker's slot says RUNNING; 0 = none. */
    uint64_t slot_ticket;
    struct {
        bool present; /* In a ring, not yet settled. */
        uint32_t agent;
        uint64_t ticket;
        int64_t id;      /* Of the row then. */
        uint32_t claims; /* Of the job until then. */
        enum co_outcome outcome;
        uint32_t delay_s;
    } end;

    uint32_t tries; /* 0: no limit. */
    int64_t until;  /* 0: tries decide. */
    uint32_t timeout_s;
    bool fail_on_timeout, max_exceptions;
    bool poison;   /* Its worker dies each time. */
    bool hangs;    /* It never ends by itself. */
    bool bookless; /* No bookkeeper survives it. */

    uint32_t running; /* Processes that run it at this moment. */
    uint32_t starts;
    uint32_t given_back; /* Starts that a loss gave back. */
    bool final;          /* DONE or FAILED has been written: it must never begin again. */
    bool owed;           /* The agent ended its worker: the start must be given back. */
    bool meddled;        /* Somebody took it from under us: what follows is theirs. */
    bool seen;           /* Claimed before, or came with a delay: its id says nothing any more. */
    co_ms cleared_at;
    co_ms stock_until; /* A stock worker runs it. */
    bool stock_dies;
};

enum sim_worker_state {
    SIM_WORKER_NONE = 0,
    SIM_WORKER_ASKED,   /* The zygote was asked for it. */
    SIM_WORKER_BOOTING, /* Until at. */
    SIM_WORKER_IDLE,
    SIM_WORKER_TAKING,  /* A job is in its ring; begins at. */
    SIM_WORKER_RUNNING, /* Until at. */
    SIM_WORKER_KEEPING, /* A bookkeeper at work, until at. */
    SIM_WORKER_HANGING, /* Told to stop, and does not. */
    SIM_WORKER_DEAD,    /* To be reaped at. */
};

struct sim_worker {
    enum sim_worker_state state;
    co_ms at;
    bool stop; /* STOP is in its ring. */
    bool dies; /* At at, instead of what should happen then. */
    bool dies_after_end;
    bool by_oom;
    bool killed; /* By the agent, at kill_at. */
    co_ms kill_at;
    bool timed_out; /* Its handler has the word. */
    uint32_t attempts;
    uint64_t ticket; /* What it was given last. */
    uint64_t begun;  /* Its slot. */
    uint32_t job;
    enum co_outcome outcome;
    uint32_t delay_s;
    bool said_ready, said_end; /* In its ring, read by the agent at read_at. */
    co_ms read_at;
    int exit_code, signal;
};

struct sim_pool {
    uint32_t workers;
    uint32_t claim;
    uint32_t tries;
    co_ms timeout, grace, max_time;
    uint32_t max_jobs;
    bool spawn;
    bool zygote_booting, zygote_up; /* Both: the next generation boots. */
    co_ms zygote_at;
    bool full; /* All its workers have been there at once. */
    struct sim_worker list[SIM_PLACES];
};

struct sim_source {
    uint32_t retry_after_s;
    co_ms latency_max;
    co_ms locked_until; /* Turns fail meanwhile. */
    bool busy;          /* A turn is under way: */
    bool committed;
    co_ms commit_at, back_at;
    co_ms last_commit; /* Of the last good turn that came back. */
    co_ms last_back;
    bool ever_back;
    bool foreign;     /* Somebody committed since the last good turn. */
    co_ms changed_at; /* The agent hears of a change; UINT64_MAX = none. */
    int64_t last_id[2];
    struct co_turn turn;
};

struct sim_queue {
    char name[16];
    uint32_t pool, source, table, rank;
    co_ms veto_until;   /* Workers decline its jobs. */
    bool held;          /* Paused, or in maintenance. */
    int64_t last_fresh; /* The id of the last job admitted that was never claimed before. */
};

struct sim {
    uint64_t seed;
    uint64_t random;
    bool tracing;
    co_ms now;
    uint64_t digest; /* Of every event and action: equal digests, equal runs. */
    uint64_t steps;
    uint32_t n_pools, n_sources, n_queues, n_jobs;
    struct sim_pool pools[SIM_POOLS_MAX];
    struct sim_source sources[SIM_SOURCES_MAX];
    struct sim_queue queues[SIM_QUEUES_MAX];
    struct sim_job jobs[SIM_JOBS_MAX];
    uint32_t service; /* How long jobs take: 0 nothing, 1 short, 2 long ones among them. */
    bool quiet;       /* Nothing goes wrong any more. */
    bool peace;       /* No worker dies by itself. */

    uint32_t agent; /* Generation; 0 = none runs. */
    uint32_t last_agent;
    bool drain_asked, drain_fast;
    co_ms start_at;
    co_ms scan_at;
    uint64_t low;      /* No ticket below is alive. */
    uint64_t admitted; /* The last ticket whose place was checked. */
    uint32_t spins;
    uint32_t n_events;
    struct co_event events[SIM_EVENTS_MAX];
    struct co_core core;
    struct co_update update;
};

void sim_init(struct sim *sim, uint64_t seed);
void sim_step(struct sim *sim);

/* What the world does to the agent. */
void sim_push(struct sim *sim, uint32_t queue, uint32_t delay_s);
void sim_drain(struct sim *sim, bool fast);
void sim_reload(struct sim *sim, uint32_t pool);
void sim_hold(struct sim *sim, uint32_t queue, bool held);
void sim_memory(struct sim *sim, uint32_t pool, uint32_t worker);
void sim_crash(struct sim *sim);
void sim_calm(struct sim *sim);           /* No more faults from here on. */
bool sim_finished(const struct sim *sim); /* Every job has ended, and the agent holds nothing. */

/* A number in [0, n), from the seed; and true n times in a thousand, never once it is quiet. */
uint32_t sim_random(struct sim *sim, uint32_t n);
bool sim_chance(struct sim *sim, uint32_t n);
/* The same for what takes a worker down: never in peace. */
bool sim_fault(struct sim *sim, uint32_t n);

/* A line of the trace, and into the digest. */
void sim_note(struct sim *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Say the seed and what is wrong, and abort. */
void sim_fail(struct sim *sim, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), noreturn));
#define sim_must(sim, condition, ...)     \
    do {                                  \
        if (!(condition)) {               \
            sim_fail((sim), __VA_ARGS__); \
        }                                 \
    } while (0)

/* ---- between the files of the simulation ---- */

int64_t sim_wall_s(const struct sim *sim);
void sim_post(struct sim *sim, const struct co_event *event);

/* world.c: workers and zygotes. */
co_ms sim_world_next(const struct sim *sim);
bool sim_world_step(struct sim *sim); /* One thing that is due; false when there is none. */
void sim_world_zygote(struct sim *sim, uint32_t pool);
void sim_world_end_zygote(struct sim *sim, uint32_t pool);
void sim_world_fork(struct sim *sim, uint32_t pool, uint32_t worker);
void sim_world_give(struct sim *sim, uint32_t pool, uint32_t worker, uint64_t ticket);
void sim_world_stop(struct sim *sim, uint32_t pool, uint32_t worker);
void sim_world_kill(struct sim *sim, uint32_t pool, uint32_t worker);
void sim_world_bookkeep(struct sim *sim, uint32_t pool, uint32_t worker, uint64_t ticket);
void sim_world_timeout(struct sim *sim, uint32_t pool, uint32_t worker, uint64_t ticket);
void sim_world_end(struct sim *sim, uint32_t pool, uint32_t worker, uint64_t ticket);
void sim_world_owe(struct sim *sim, uint32_t pool, uint32_t worker);
bool sim_world_is_booted(const struct sim *sim, uint32_t pool, uint32_t worker);
void sim_world_kill_zygote(struct sim *sim, uint32_t pool);
void sim_world_crash(struct sim *sim);

/* rows.c: the source. */
co_ms sim_rows_next(const struct sim *sim);
bool sim_rows_step(struct sim *sim);
void sim_rows_submit(struct sim *sim, uint32_t source);
void sim_rows_taken(struct sim *sim, uint32_t source); /* The core has seen the turn. */
void sim_rows_crash(struct sim *sim);
void sim_rows_meddle(struct sim *sim); /* Somebody else does something to the rows. */
/* The job of that row; NULL when a release gave it another id. */
struct sim_job *sim_rows_find(struct sim *sim, uint32_t source, uint32_t table, int64_t id);

/* check.c */
void sim_check_step(struct sim *sim);
void sim_check_give(struct sim *sim, const struct co_ticket *ticket);
void sim_check_drained(struct sim *sim);
void sim_check_settled(struct sim *sim);
void sim_check_quiet(struct sim *sim);

#endif /* CO_TESTS_SIM_H */
