/* A queue and its workers in virtual time, for tests that close the loop: jobs arrive, workers boot
 * and work, the scaler looks at them and its target is obeyed. No clock, no chance but the seed's.
 */

#ifndef TESTS_AUTOSCALE_WORLD_H
#define TESTS_AUTOSCALE_WORLD_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "autoscale/scaler.h"
#include "autoscale/signals.h"

#define WORLD_WORKERS 512
#define WORLD_JOBS 65536 /* That wait at once; a power of two. */
#define WORLD_STEP_MS 10

/* splitmix64 */
static inline uint64_t draw(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint32_t draw_below(uint64_t *seed, uint32_t n)
{
    return (uint32_t)(draw(seed) % n);
}

static inline uint32_t draw_in(uint64_t *seed, uint32_t low, uint32_t high)
{
    return low + draw_below(seed, high - low + 1);
}

/* 3, 17, 220, 4096: as many small ones as large ones. */
static inline uint32_t draw_size(uint64_t *seed, uint32_t bits)
{
    return draw_below(seed, (1u << draw_below(seed, bits + 1)) + 1);
}

enum world_state { WORLD_NONE = 0, WORLD_BOOTING, WORLD_IDLE, WORLD_BUSY, WORLD_DRAINING };

struct world {
    uint64_t seed;
    co_ms now;
    co_ms boot_ms;
    double rate; /* Jobs a second. */
    co_ms service_ms;
    bool random; /* Poisson arrivals, exponential service; else like a clock. */

    double arriving;
    uint64_t first, last; /* Of the ring of those that wait. */
    co_ms since[WORLD_JOBS];
    uint64_t begun, ended;
    co_ms longest_wait;
    uint32_t killed_busy; /* Must stay 0: nothing here ends one. */
    struct {
        enum world_state state;
        co_ms until;
    } workers[WORLD_WORKERS];

    struct co_arrival arrival;
    struct co_service service;
    struct co_scaler scaler;
    struct co_scaler_rules rules;
    struct co_decision decision;
    uint64_t decisions;
};

static inline struct world *world_new(const struct co_scaler_rules *rules, uint64_t seed)
{
    struct world *world = calloc(1, sizeof *world);

    assert(world != NULL);
    world->seed = seed;
    world->now = 1000000;
    world->boot_ms = 20;
    world->rules = *rules;
    co_scaler_init(&world->scaler, rules, world->now);
    return world;
}

static inline uint32_t world_count(const struct world *world, enum world_state state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
        n += world->workers[i].state == state;
    }
    return n;
}

static inline uint64_t world_waiting(const struct world *world)
{
    return world->last - world->first;
}

static inline struct co_signals world_signals(struct world *world)
{
    struct co_signals signals = {
        .ready = world_waiting(world),
        .booting = world_count(world, WORLD_BOOTING),
        .idle = world_count(world, WORLD_IDLE),
        .busy = world_count(world, WORLD_BUSY),
        .draining = world_count(world, WORLD_DRAINING),
        .service_us = (uint64_t)world->service.mean_us,
        .service_dev_us = (uint64_t)world->service.dev_us,
    };

    signals.running = signals.busy + signals.draining;
    signals.oldest_ms =
        signals.ready > 0 ? world->now - world->since[world->first % WORLD_JOBS] : 0;
    co_arrival_look(&world->arrival, signals.ready + signals.running, world->ended, world->now);
    signals.arrival_per_s = co_arrival_rate(&world->arrival);
    return signals;
}

static inline void world_take(struct world *world, uint32_t worker)
{
    co_ms wait = world->now - world->since[world->first % WORLD_JOBS];
    co_ms takes = world->service_ms;

    if (world->random) { /* Between nought and twice the mean. */
        takes = draw_below(&world->seed, (uint32_t)(2 * takes + 1));
    }
    world->longest_wait = wait > world->longest_wait ? wait : world->longest_wait;
    world->first += 1;
    world->begun += 1;
    world->workers[worker].state = WORLD_BUSY;
    world->workers[worker].until = world->now + takes;
    co_service_note(&world->service, takes * 1000);
}

static inline void world_hand_over(struct world *world)
{
    for (uint32_t i = 0; i < WORLD_WORKERS && world_waiting(world) > 0; i++) {
        if (world->workers[i].state == WORLD_IDLE) {
            world_take(world, i);
        }
    }
}

/* As the agent does: make what is missing; of those too many the idle go first, a busy one is
 * marked. */
static inline void world_obey(struct world *world)
{
    uint32_t start = world->decision.start;
    uint32_t stop = world->decision.stop;

    for (uint32_t i = 0; i < WORLD_WORKERS && start > 0; i++) {
        if (world->workers[i].state == WORLD_NONE) {
            world->workers[i].state = WORLD_BOOTING;
            world->workers[i].until = world->now + world->boot_ms;
            start -= 1;
        }
    }
    for (uint32_t i = 0; i < WORLD_WORKERS && stop > 0; i++) {
        if (world->workers[i].state == WORLD_IDLE) {
            world->workers[i].state = WORLD_NONE;
            stop -= 1;
        }
    }
    for (uint32_t i = 0; i < WORLD_WORKERS && stop > 0; i++) {
        if (world->workers[i].state == WORLD_BUSY) {
            world->workers[i].state = WORLD_DRAINING;
            stop -= 1;
        }
    }
}

static inline void world_decide(struct world *world, bool pushed)
{
    struct co_signals signals = world_signals(world);

    co_scaler_decide(&world->scaler, &world->rules, &signals, NULL, pushed, world->now,
                     &world->decision);
    world->decisions += 1;
    world_obey(world);
    world_hand_over(world);
}

static inline void world_push(struct world *world, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        assert(world_waiting(world) < WORLD_JOBS);
        world->since[world->last++ % WORLD_JOBS] = world->now;
    }
    world_hand_over(world);
    if (n > 0) {
        world_decide(world, true);
    }
}

/* Arrivals of one step. A thousand coins make a Poisson number well enough. */
static inline uint32_t world_arrivals(struct world *world)
{
    double mean = world->rate * WORLD_STEP_MS / 1000.0;
    uint32_t n = 0;

    if (world->random) {
        uint32_t coins = mean > 1.0 ? (uint32_t)(mean * 20.0) : 20;
        for (uint32_t i = 0; i < coins; i++) {
            n += (double)draw_below(&world->seed, 1u << 20) < mean / coins * (1u << 20);
        }
        return n;
    }
    world->arriving += mean;
    n = (uint32_t)world->arriving;
    world->arriving -= n;
    return n;
}

static inline void world_step(struct world *world)
{
    world->now += WORLD_STEP_MS;
    for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
        if (world->workers[i].state == WORLD_NONE || world->workers[i].state == WORLD_IDLE ||
            world->now < world->workers[i].until) {
            continue;
        }
        world->ended += world->workers[i].state != WORLD_BOOTING;
        world->workers[i].state =
            world->workers[i].state == WORLD_DRAINING ? WORLD_NONE : WORLD_IDLE;
    }
    world_hand_over(world);
    world_push(world, world_arrivals(world));
    if (world->now >= co_scaler_deadline(&world->scaler)) {
        world_decide(world, false);
    }
}

static inline void world_run(struct world *world, co_ms ms)
{
    for (co_ms end = world->now + ms; world->now < end;) {
        world_step(world);
    }
}

#endif /* TESTS_AUTOSCALE_WORLD_H */
