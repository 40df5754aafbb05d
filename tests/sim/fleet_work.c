/* What an agent does with its coordinator's word: workers that begin and end jobs. There is always
 * work. A worker looks at the lease before it begins, and a frozen agent's workers go on. */

#include <stdio.h>

#include "sim/fleet.h"

#define LOOK_MS 20

void fleet_obey(struct fleet_world *world, struct fleet_agent *agent)
{
    for (size_t i = 0; i < world->update.n_changes; i++) {
        const struct co_coord_change *change = &world->update.changes[i];
        if (change->queue < 77 || change->queue >= 77 + world->n_queues) {
            continue;
        }
        struct fleet_part *part = &agent->parts[change->queue - 77];
        switch (change->type) {
        case CO_COORD_LIMIT:
            part->tell |= change->workers < part->limit;
            part->limit = change->workers;
            part->until = change->until;
            part->kill_at = change->workers > 0 ? 0 : part->kill_at;
            world->changes++;
            break;
        case CO_COORD_LEASE:
            part->until = change->until;
            break;
        case CO_COORD_FENCE:
            part->tell = true;
            part->limit = 0;
            part->kill_at = change->kill ? change->until : 0;
            world->changes++;
            break;
        case CO_COORD_OWN:
        case CO_COORD_DISOWN:
            part->owned = change->type == CO_COORD_OWN;
            world->changes++;
            break;
        case CO_COORD_MEMBER:
        case CO_COORD_ALARM:
        case CO_COORD_OVERRIDDEN:
            break;
        }
        if (part->tell) {
            agent->look_at = world->now;
        }
        if (world->trace) {
            printf("%8llu agent %u change %d workers %u until %lld\n",
                   (unsigned long long)world->now, (unsigned)(agent - world->agents), change->type,
                   change->workers, (long long)(change->until - fleet_clock(agent, world->now)));
        }
    }
}

static void run_jobs(struct fleet_world *world, const struct fleet_agent *agent,
                     struct fleet_part *part)
{
    co_ms clock = fleet_clock(agent, world->now);

    if (part->kill_at != 0 && clock + 2 * LOOK_MS >= part->kill_at) {
        part->n_jobs = 0;
        part->kill_at = 0;
    }
    for (uint32_t i = 0; i < part->n_jobs;) {
        if (part->jobs[i] <= world->now) {
            part->jobs[i] = part->jobs[--part->n_jobs];
        } else {
            i++;
        }
    }
    uint32_t limit = part->limit < part->capacity ? part->limit : part->capacity;
    while (part->n_jobs < limit && part->n_jobs < FLEET_JOBS_MAX && clock < part->until) {
        uint32_t least = (uint32_t)(world->job_ms / 2);
        part->jobs[part->n_jobs++] = world->now + 1 + fleet_random(world, least) +
                                     fleet_random(world, (uint32_t)world->job_ms - least);
    }
}

static void tell(struct fleet_world *world, struct fleet_agent *agent, uint32_t q)
{
    struct fleet_part *part = &agent->parts[q];
    const struct co_coord_queue *queue = co_coord_queue_get(agent->coord, 77 + q);
    struct co_coord_event event = {.type = CO_COORD_LOAD};
    event.load.queue = 77 + q;
    event.load.load = (struct co_fleet_load){.capacity = part->capacity, .running = part->n_jobs};
    if (part->tell || queue->load.capacity != part->capacity ||
        queue->load.running != part->n_jobs) {
        part->tell = false;
        fleet_step(world, agent, &event);
    }
    if (part->owned) {
        struct co_coord_event target = {.type = CO_COORD_TARGET};
        target.target.queue = 77 + q;
        target.target.target = world->target[q];
        if (!queue->has_target || queue->target != world->target[q]) {
            fleet_step(world, agent, &target);
        }
    }
}

void fleet_work(struct fleet_world *world, struct fleet_agent *agent)
{
    uint32_t running = 0;

    agent->look_at = world->now + LOOK_MS;
    for (uint32_t q = 0; q < world->n_queues; q++) {
        run_jobs(world, agent, &agent->parts[q]);
        running += agent->parts[q].n_jobs;
    }
    for (uint32_t q = 0; q < world->n_queues; q++) {
        tell(world, agent, q);
    }
    if (agent->leaving && running == 0 && agent->up) {
        fleet_step(world, agent, &(struct co_coord_event){.type = CO_COORD_LEAVE});
        agent->left = true;
        agent->up = false;
        for (uint32_t q = 0; q < world->n_queues; q++) {
            agent->parts[q].limit = 0;
        }
    }
}
