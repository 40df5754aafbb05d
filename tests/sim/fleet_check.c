/* What must hold: always (safe), and once the world has been calm for a while (settled). */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "autoscale/plan.h"
#include "sim/fleet.h"

void fleet_break(struct fleet_world *world, const char *format, ...)
{
    if (world->broken[0] != '\0') {
        return;
    }
    int n = snprintf(world->broken, sizeof world->broken,
                     "at %llu ms: ", (unsigned long long)world->now);
    va_list args;
    va_start(args, format);
    vsnprintf(world->broken + n, sizeof world->broken - (size_t)n, format, args);
    va_end(args);
}

/* What all may be running of a queue, as their workers see it. */
static uint64_t held(struct fleet_world *world, uint32_t q)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < world->n; i++) {
        const struct fleet_agent *agent = &world->agents[i];
        const struct fleet_part *part = &agent->parts[q];
        uint32_t running = 0;
        for (uint32_t k = 0; k < part->n_jobs; k++) {
            running += part->jobs[k] > world->now;
        }
        uint32_t may = agent->up && fleet_clock(agent, world->now) < part->until ? part->limit : 0;
        sum += may > running ? may : running;
    }
    for (uint32_t i = 0; i < world->n_orphans;) {
        if (world->orphans[i].ends <= world->now) {
            world->orphans[i] = world->orphans[--world->n_orphans];
        } else {
            sum += world->orphans[i++].queue == q;
        }
    }
    return sum;
}

static void check_queue(struct fleet_world *world, struct fleet_agent *agent, uint32_t q)
{
    const struct co_coord_queue *queue = co_coord_queue_get(agent->coord, 77 + q);
    struct fleet_part *part = &agent->parts[q];
    unsigned who = (unsigned)(agent - world->agents);

    if (queue == NULL) {
        return;
    }
    if (queue->limit != part->limit) {
        fleet_break(world, "agent %u runs %u where its coordinator says %u", who, part->limit,
                    queue->limit);
    }
    if (co_fleet_epoch_compare(&queue->plan.epoch, &part->epoch) < 0) {
        fleet_break(world, "agent %u went back from term %llu.%llu to %llu.%llu", who,
                    (unsigned long long)part->epoch.term, (unsigned long long)part->epoch.seq,
                    (unsigned long long)queue->plan.epoch.term,
                    (unsigned long long)queue->plan.epoch.seq);
    }
    part->epoch = queue->plan.epoch;
    if (queue->limit > world->max) {
        fleet_break(world, "agent %u may run %u, more than the maximum", who, queue->limit);
    }
    if (world->split != CO_FLEET_STRICT) {
        return;
    }
    if (queue->limit > 0 && fleet_clock(agent, world->now) > queue->lease_until + 2) {
        fleet_break(world, "agent %u may run %u past its lease", who, queue->limit);
    }
    uint64_t sum = held(world, q);
    if (sum > world->max) {
        fleet_break(world, "%llu may run where %u is the maximum", (unsigned long long)sum,
                    world->max);
    }
    uint32_t owners = 0;
    for (uint32_t i = 0; i < world->n && queue->role == CO_COORD_OWNS; i++) {
        const struct fleet_agent *other = &world->agents[i];
        const struct co_coord_queue *its =
            other->up && other->coord != NULL ? co_coord_queue_get(other->coord, 77 + q) : NULL;
        owners += its != NULL && its->role == CO_COORD_OWNS &&
                  fleet_clock(other, world->now) < its->quorum_until;
    }
    if (owners > 1) {
        fleet_break(world, "%u agents own a strict queue at once", owners);
    }
}

void fleet_check_safe(struct fleet_world *world, struct fleet_agent *agent)
{
    for (uint32_t q = 0; q < world->n_queues; q++) {
        check_queue(world, agent, q);
    }
}

/* --- settled --- */

static uint64_t rightful_owner(const struct fleet_world *world, uint32_t q)
{
    uint64_t best = 0;
    for (uint32_t i = 0; i < world->n; i++) {
        const struct fleet_agent *agent = &world->agents[i];
        if (agent->up && !agent->leaving &&
            (best == 0 || co_plan_weight(77 + q, agent->id) > co_plan_weight(77 + q, best))) {
            best = agent->id;
        }
    }
    return best;
}

static uint32_t word_of(const struct fleet_world *world, const struct fleet_agent *agent,
                        uint32_t q)
{
    const struct co_fleet_override *word = co_coord_override(agent->coord, 77 + q);
    uint32_t target = word == NULL                     ? world->target[q]
                      : word->action == CO_FLEET_PAUSE ? 0
                                                       : word->value;
    return target < world->max ? target : world->max;
}

static void settled_queue(struct fleet_world *world, uint32_t q)
{
    uint64_t owner = rightful_owner(world, q);
    const struct co_coord_queue *first = NULL;
    uint64_t capacity = 0;
    uint64_t sum = 0;
    uint32_t target = 0;
    uint64_t digest = 0;

    for (uint32_t i = 0; i < world->n; i++) {
        const struct fleet_agent *agent = &world->agents[i];
        if (!agent->up) {
            continue;
        }
        const struct co_coord_queue *queue = co_coord_queue_get(agent->coord, 77 + q);
        if (first == NULL) {
            first = queue;
            target = word_of(world, agent, q);
            digest = co_members_digest(&agent->coord->members);
        }
        capacity += agent->leaving ? 0 : agent->parts[q].capacity;
        sum += queue->limit;
        if (co_members_digest(&agent->coord->members) != digest) {
            fleet_break(world, "agent %u sees other members", i);
        }
        if (queue->plan.epoch.owner != owner) {
            fleet_break(world, "agent %u follows a plan of another than the owner", i);
        }
        if ((queue->role == CO_COORD_OWNS) != (agent->id == owner)) {
            fleet_break(world, "agent %u is wrong about owning queue %u", i, q);
        }
        if (co_fleet_epoch_compare(&queue->plan.epoch, &first->plan.epoch) != 0) {
            fleet_break(world, "agent %u holds another plan", i);
        }
        if (word_of(world, agent, q) != target) {
            fleet_break(world, "agent %u knows other operators' words", i);
        }
    }
    uint64_t want = target < capacity ? target : capacity;
    if (sum != want) {
        fleet_break(world, "the shares of queue %u add up to %llu, not %llu", q,
                    (unsigned long long)sum, (unsigned long long)want);
    }
}

void fleet_check_settled(struct fleet_world *world)
{
    for (uint32_t q = 0; q < world->n_queues && world->broken[0] == '\0'; q++) {
        settled_queue(world, q);
    }
}
