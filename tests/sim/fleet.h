/* A fleet in a modelled world: the coordinators of many agents, their clocks, their workers and the
 * network between them, all from one seed. Time is virtual; nothing here waits or is random.
 *
 *     fleet_init ─► fleet_add ─► fleet_run(until) ─► fleet_check_settled
 *
 * What must hold at every moment is checked after every step of any coordinator (fleet_check.c);
 * the first violation is kept in world.broken and ends the run. */

#ifndef SIM_FLEET_H
#define SIM_FLEET_H

#include "autoscale/coord.h"

#define FLEET_MAX 200
#define FLEET_JOBS_MAX 128 /* Of one agent and queue at once. */
#define FLEET_ORPHANS_MAX 2048
#define FLEET_QUEUES 2

/* An agent's part in one queue, as its workers see it. */
struct fleet_part {
    bool serves;
    uint32_t capacity;
    uint32_t limit;
    co_ms until;   /* Begin nothing after, by the agent's clock. */
    co_ms kill_at; /* 0: nothing to end. By the agent's clock. */
    bool owned;
    bool tell; /* The numbers are to be told at once. */
    uint32_t n_jobs;
    co_ms jobs[FLEET_JOBS_MAX]; /* When each ends, in the world's time. */
    struct co_fleet_epoch epoch;
};

struct fleet_agent {
    struct co_coord *coord;
    uint64_t id;
    uint64_t incarnation;
    bool up;
    bool leaving; /* Drains; says good-bye when nothing runs. */
    bool left;
    co_ms frozen_until;
    co_ms offset; /* Its clock: offset + time * (1 + ppm / 1e6). */
    int32_t ppm;
    co_ms look_at; /* Jobs begin and end, numbers are told. */
    co_ms due;     /* The coordinator's deadline, in the world's time. */
    bool met[FLEET_MAX];
    bool cut[FLEET_MAX]; /* Nothing gets from here to there. */
    struct fleet_part parts[FLEET_QUEUES];
};

struct fleet_packet {
    co_ms at;
    uint64_t order;
    uint32_t from, to;
    uint64_t from_incarnation, to_incarnation;
    uint32_t size; /* 0: a meeting of the two, or the end of their line. */
    bool end;
    uint8_t *bytes;
};

struct fleet_orphan {
    co_ms ends;
    uint32_t queue;
};

struct fleet_world {
    uint64_t seed, rng;
    co_ms now;
    uint64_t order;
    uint64_t incarnations;
    uint32_t n;
    uint32_t n_queues;
    enum co_fleet_split split;
    enum co_fleet_on_fence on_fence;
    uint64_t job_ms;
    uint32_t max;
    uint32_t expected;
    uint32_t target[FLEET_QUEUES]; /* What an owner's scaler says. */
    uint32_t loss;                 /* Of a thousand. */
    uint32_t twice;
    co_ms delay_min, delay_max;
    co_ms settle_ms;
    struct fleet_agent agents[FLEET_MAX];
    struct fleet_orphan orphans[FLEET_ORPHANS_MAX];
    uint32_t n_orphans;
    struct fleet_packet *heap;
    size_t n_heap, room;
    uint64_t steps, messages, bytes;
    uint64_t changes; /* LIMIT, FENCE, OWN and DISOWN so far. */
    bool trace;
    char broken[160]; /* "": all is well. */
    struct co_coord_update update;
    struct co_fleet_msg msg;
};

uint32_t fleet_random(struct fleet_world *world, uint32_t below);

/* The world may be used again: memory of the coordinators is kept. */
void fleet_init(struct fleet_world *world, uint64_t seed);
void fleet_free(struct fleet_world *world);

/* Start agent i (< world->n), first or again; the others meet it within meet_ms. */
void fleet_start(struct fleet_world *world, uint32_t i, co_ms meet_ms);
/* Its jobs go on to their end; the peers learn of the broken line, or do not. */
void fleet_crash(struct fleet_world *world, uint32_t i, bool told);
void fleet_leave(struct fleet_world *world, uint32_t i);
void fleet_freeze(struct fleet_world *world, uint32_t i, co_ms ms);
void fleet_word(struct fleet_world *world, uint32_t i, uint32_t queue, uint32_t action,
                uint32_t value);
/* Cut from from to to, or mend it: then the two meet anew. */
void fleet_cut(struct fleet_world *world, uint32_t from, uint32_t to, bool cut);

void fleet_run(struct fleet_world *world, co_ms until);

/* The workers (fleet_work.c). */
void fleet_obey(struct fleet_world *world, struct fleet_agent *agent);
void fleet_work(struct fleet_world *world, struct fleet_agent *agent);
co_ms fleet_clock(const struct fleet_agent *agent, co_ms now);
void fleet_step(struct fleet_world *world, struct fleet_agent *agent, struct co_coord_event *event);

/* What must hold (fleet_check.c). */
void fleet_break(struct fleet_world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void fleet_check_safe(struct fleet_world *world, struct fleet_agent *agent);
/* The same among those that are up: views, owner, plan, words, and the sum of the shares. */
void fleet_check_settled(struct fleet_world *world);

/* A whole life from a seed (fleet_life.c). False: broken says what. */
bool fleet_life(struct fleet_world *world, uint64_t seed, uint32_t agents);

#endif /* SIM_FLEET_H */
