/* A life: agents join, everything goes wrong for a while, then nothing. */

#include <stdio.h>

#include "sim/fleet.h"

#define STEADY_MS 5000

static uint32_t pick(struct fleet_world *world)
{
    return fleet_random(world, world->n);
}

static void partition(struct fleet_world *world)
{
    uint32_t kind = fleet_random(world, 3);
    uint32_t side = fleet_random(world, UINT32_MAX);
    for (uint32_t a = 0; a < world->n; a++) {
        for (uint32_t b = 0; b < world->n; b++) {
            bool apart = ((side >> a % 32) & 1) != ((side >> b % 32) & 1);
            bool cut = kind == 0 ? apart : kind == 1 ? apart && ((side >> a % 32) & 1) != 0 : false;
            fleet_cut(world, a, b, cut && a != b);
        }
    }
}

static void fault(struct fleet_world *world)
{
    uint32_t i = pick(world);
    struct fleet_agent *agent = &world->agents[i];
    uint32_t q = fleet_random(world, world->n_queues);
    uint32_t what = fleet_random(world, 12);

    if (world->trace) {
        printf("%8llu fault %u of agent %u\n", (unsigned long long)world->now, what, i);
    }
    if (!agent->up) {
        fleet_start(world, i, 300);
        return;
    }
    switch (what) {
    case 0:
    case 1:
        fleet_crash(world, i, fleet_random(world, 2) == 0);
        if (fleet_random(world, 2) == 0) {
            fleet_start(world, i, 300);
        }
        break;
    case 2:
        /* Who is stopped cannot end its jobs: the promise of on_fence kill has this bound. */
        fleet_freeze(world, i,
                     100 + fleet_random(world, world->on_fence == CO_FLEET_KILL ? 800 : 8000));
        break;
    case 3:
    case 4:
        partition(world);
        break;
    case 5:
        world->loss = fleet_random(world, 400);
        world->twice = fleet_random(world, 200);
        world->delay_max = world->delay_min + fleet_random(world, 1500);
        break;
    case 6:
        if (agent->frozen_until <= world->now && !agent->leaving) {
            fleet_leave(world, i);
        }
        break;
    case 7:
    case 8:
        agent->parts[q].capacity = fleet_random(world, 30);
        break;
    case 9:
        world->target[q] = fleet_random(world, 2 * world->max);
        break;
    default:
        if (agent->frozen_until <= world->now && fleet_random(world, 3) == 0) {
            fleet_word(world, i, q, fleet_random(world, 3), fleet_random(world, world->max));
        }
        break;
    }
}

static void set_up(struct fleet_world *world, uint32_t agents)
{
    world->n = agents != 0 ? agents : 2 + fleet_random(world, 5);
    world->n_queues = 1 + (fleet_random(world, 4) == 0);
    world->split = fleet_random(world, 2) == 0 ? CO_FLEET_AVAILABLE : CO_FLEET_STRICT;
    world->on_fence = fleet_random(world, 3) == 0 ? CO_FLEET_KILL : CO_FLEET_WAIT;
    world->job_ms = fleet_random(world, 3) == 0 ? 8000 : 100 + fleet_random(world, 3000);
    world->max = 1 + fleet_random(world, 40);
    world->expected = world->n;
    world->delay_max = 1 + fleet_random(world, 50);
    world->loss = fleet_random(world, 2) == 0 ? 0 : fleet_random(world, 100);
    for (uint32_t q = 0; q < FLEET_QUEUES; q++) {
        world->target[q] = 1 + fleet_random(world, 50);
    }
    for (uint32_t i = 0; i < world->n; i++) {
        world->agents[i].ppm = (int32_t)fleet_random(world, 4001) - 2000;
        for (uint32_t q = 0; q < FLEET_QUEUES; q++) {
            world->agents[i].parts[q].capacity = fleet_random(world, 20);
        }
    }
}

static void calm(struct fleet_world *world)
{
    world->loss = 0;
    world->twice = 0;
    world->delay_max = world->delay_min + 20;
    for (uint32_t i = 0; i < world->n; i++) {
        struct fleet_agent *agent = &world->agents[i];
        if (agent->frozen_until > world->now) {
            agent->frozen_until = world->now;
        }
        for (uint32_t j = 0; j < world->n; j++) {
            fleet_cut(world, i, j, false);
        }
    }
    for (uint32_t i = 0; i < world->n; i++) {
        if (world->agents[i].leaving && world->agents[i].up) {
            fleet_crash(world, i, true);
        }
        if (!world->agents[i].up) {
            fleet_start(world, i, 300);
        }
    }
}

/* How long all may take from the last fault on: a silent agent's line counts for a lease, then its
 * death, and where the split is strict what it may still run has to end first. */
static co_ms bound(const struct fleet_world *world)
{
    co_ms ms = (co_ms)3 * CO_FLEET_LEASE_MS;
    return world->split == CO_FLEET_STRICT ? ms + 2 * (CO_FLEET_LEASE_MS + world->job_ms) : ms;
}

bool fleet_life(struct fleet_world *world, uint64_t seed, uint32_t agents)
{
    bool trace = world->trace;
    fleet_init(world, seed);
    world->trace = trace;
    set_up(world, agents);
    for (uint32_t i = 0; i < world->n && world->broken[0] == '\0'; i++) {
        fleet_start(world, i, fleet_random(world, 400));
        fleet_run(world, world->now + fleet_random(world, 600));
    }
    co_ms end = world->now + 5000 + fleet_random(world, 15000);
    while (world->now < end && world->broken[0] == '\0') {
        fleet_run(world, world->now + fleet_random(world, 2000));
        fault(world);
    }
    fleet_run(world, world->now + 1);
    calm(world);
    if (world->trace) {
        printf("%8llu calm\n", (unsigned long long)world->now);
    }
    fleet_run(world, world->now + bound(world));
    fleet_check_settled(world);
    uint64_t changes = world->changes;
    fleet_run(world, world->now + STEADY_MS);
    fleet_check_settled(world);
    if (changes != world->changes) {
        fleet_break(world, "limits still move");
    }
    return world->broken[0] == '\0';
}
