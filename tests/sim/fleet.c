/* Time, the network and the agents' starts and ends. */

#include "sim/fleet.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t fleet_random(struct fleet_world *world, uint32_t below)
{
    uint64_t z = (world->rng += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return below == 0 ? 0 : (uint32_t)((z ^ (z >> 31)) % below);
}

void fleet_init(struct fleet_world *world, uint64_t seed)
{
    struct fleet_packet *heap = world->heap;
    size_t room = world->room;

    for (size_t i = 0; i < world->n_heap; i++) {
        free(world->heap[i].bytes);
    }
    memset(world, 0, offsetof(struct fleet_world, agents));
    for (uint32_t i = 0; i < FLEET_MAX; i++) {
        struct co_coord *coord = world->agents[i].coord;
        memset(&world->agents[i], 0, sizeof world->agents[i]);
        world->agents[i].coord = coord;
    }
    memset(&world->n_orphans, 0, sizeof world->n_orphans);
    world->heap = heap;
    world->room = room;
    world->n_heap = 0;
    world->steps = world->messages = world->bytes = world->changes = 0;
    world->broken[0] = '\0';
    world->seed = world->rng = seed;
    world->n_queues = 1;
    world->max = 100;
    world->delay_min = 1;
    world->delay_max = 5;
    world->settle_ms = CO_COORD_SETTLE_MS;
    world->job_ms = 1000;
}

void fleet_free(struct fleet_world *world)
{
    for (size_t i = 0; i < world->n_heap; i++) {
        free(world->heap[i].bytes);
    }
    free(world->heap);
    for (uint32_t i = 0; i < FLEET_MAX; i++) {
        free(world->agents[i].coord);
    }
    free(world);
}

/* --- the network --- */

static bool is_before(const struct fleet_packet *a, const struct fleet_packet *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(struct fleet_world *world, struct fleet_packet packet)
{
    if (world->n_heap == world->room) {
        world->room = world->room * 2 + 256;
        world->heap = realloc(world->heap, world->room * sizeof world->heap[0]);
        assert(world->heap != NULL);
    }
    packet.order = ++world->order;
    size_t at = world->n_heap++;
    for (; at > 0 && is_before(&packet, &world->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        world->heap[at] = world->heap[(at - 1) / 2];
    }
    world->heap[at] = packet;
}

static struct fleet_packet pop(struct fleet_world *world)
{
    struct fleet_packet first = world->heap[0];
    struct fleet_packet last = world->heap[--world->n_heap];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < world->n_heap; at = child) {
        if (child + 1 < world->n_heap && is_before(&world->heap[child + 1], &world->heap[child])) {
            child++;
        }
        if (!is_before(&world->heap[child], &last)) {
            break;
        }
        world->heap[at] = world->heap[child];
    }
    world->heap[at] = last;
    return first;
}

static co_ms delay(struct fleet_world *world)
{
    return world->delay_min +
           fleet_random(world, (uint32_t)(world->delay_max - world->delay_min) + 1);
}

static void transmit(struct fleet_world *world, struct fleet_agent *from, uint32_t to,
                     const struct co_fleet_msg *msg)
{
    struct fleet_agent *peer = &world->agents[to];
    uint32_t me = (uint32_t)(from - world->agents);
    size_t size = co_fleet_size(msg);

    world->messages++;
    world->bytes += size;
    if (!peer->up || !from->met[to] || from->cut[to]) {
        return;
    }
    for (int copies = 1 + (fleet_random(world, 1000) < world->twice); copies > 0; copies--) {
        if (fleet_random(world, 1000) < world->loss) {
            continue;
        }
        struct fleet_packet packet = {.at = world->now + delay(world),
                                      .from = me,
                                      .to = to,
                                      .from_incarnation = from->incarnation,
                                      .to_incarnation = peer->incarnation,
                                      .size = (uint32_t)size,
                                      .bytes = malloc(size)};
        assert(packet.bytes != NULL);
        memcpy(packet.bytes, msg, size);
        push(world, packet);
    }
}

static void send_all(struct fleet_world *world, struct fleet_agent *agent)
{
    for (size_t i = 0; i < world->update.n_sends; i++) {
        const struct co_coord_send *send = &world->update.sends[i];
        co_coord_message(agent->coord, send, &world->msg);
        for (uint32_t to = 0; to < world->n; to++) {
            if (&world->agents[to] != agent && (send->to_all || world->agents[to].id == send->to)) {
                transmit(world, agent, to, &world->msg);
            }
        }
    }
}

/* --- agents --- */

co_ms fleet_clock(const struct fleet_agent *agent, co_ms now)
{
    return agent->offset + now + (co_ms)((int64_t)now * agent->ppm / 1000000);
}

static co_ms world_time(const struct fleet_agent *agent, co_ms clock, co_ms now)
{
    int64_t passed = (int64_t)(clock - agent->offset);
    int64_t at = passed - passed * agent->ppm / (1000000 + agent->ppm);
    while (at > 0 && fleet_clock(agent, (co_ms)at) > clock) {
        at--;
    }
    while (fleet_clock(agent, (co_ms)(at > 0 ? at : 0)) < clock) {
        at++;
    }
    return at > (int64_t)now ? (co_ms)at : now;
}

static void look_again(struct fleet_world *world, struct fleet_agent *agent)
{
    co_ms deadline = co_coord_deadline(agent->coord);
    agent->due = deadline == UINT64_MAX ? UINT64_MAX : world_time(agent, deadline, world->now);
}

void fleet_step(struct fleet_world *world, struct fleet_agent *agent, struct co_coord_event *event)
{
    event->now = fleet_clock(agent, world->now);
    event->wall = (co_unix)(1800000000 + world->now / 1000);
    world->steps++;
    int rc = co_coord_step(agent->coord, event, &world->update);
    assert(rc == 0 || event->type == CO_COORD_MSG || event->type == CO_COORD_OVERRIDE);
    (void)rc;
    fleet_obey(world, agent);
    send_all(world, agent);
    fleet_check_safe(world, agent);
    look_again(world, agent);
}

static void hello(struct fleet_world *world, uint32_t from, uint32_t to)
{
    struct fleet_agent *agent = &world->agents[from];
    agent->met[to] = true;
    co_coord_hello(agent->coord, &world->msg);
    transmit(world, agent, to, &world->msg);
}

static void meet(struct fleet_world *world, uint32_t a, uint32_t b, co_ms in_ms)
{
    push(world, (struct fleet_packet){.at = world->now + in_ms,
                                      .from = a,
                                      .to = b,
                                      .from_incarnation = world->agents[a].incarnation,
                                      .to_incarnation = world->agents[b].incarnation});
}

void fleet_start(struct fleet_world *world, uint32_t i, co_ms meet_ms)
{
    struct fleet_agent *agent = &world->agents[i];

    if (agent->coord == NULL) {
        agent->coord = calloc(1, sizeof *agent->coord);
        assert(agent->coord != NULL);
    }
    if (agent->id == 0) {
        agent->id = ((uint64_t)fleet_random(world, UINT32_MAX) << 16) + i + 1;
        agent->offset = fleet_random(world, 100000000);
    }
    agent->incarnation = ++world->incarnations;
    agent->up = true;
    agent->left = agent->leaving = false;
    agent->frozen_until = 0;
    agent->look_at = world->now;
    struct co_coord_config config = {agent->id, agent->incarnation, world->expected,
                                     world->settle_ms};
    co_coord_init(agent->coord, &config, fleet_clock(agent, world->now));
    for (uint32_t q = 0; q < world->n_queues; q++) {
        uint32_t capacity = agent->parts[q].capacity;
        agent->parts[q] = (struct fleet_part){.serves = true, .capacity = capacity, .tell = true};
        struct co_coord_queue_config queue = {.queue = 77 + q,
                                              .policy_hash = 1,
                                              .max = world->max,
                                              .split = world->split,
                                              .on_fence = world->on_fence,
                                              .job_ms = world->job_ms};
        fleet_step(world, agent, &(struct co_coord_event){.type = CO_COORD_QUEUE, .queue = &queue});
    }
    for (uint32_t j = 0; j < world->n; j++) {
        agent->met[j] = world->agents[j].met[i] = false;
        if (j != i && world->agents[j].up) {
            meet(world, i, j, 1 + fleet_random(world, (uint32_t)meet_ms + 1));
        }
    }
}

void fleet_crash(struct fleet_world *world, uint32_t i, bool told)
{
    struct fleet_agent *agent = &world->agents[i];
    for (uint32_t q = 0; q < world->n_queues; q++) {
        struct fleet_part *part = &agent->parts[q];
        for (uint32_t k = 0; k < part->n_jobs && world->n_orphans < FLEET_ORPHANS_MAX; k++) {
            world->orphans[world->n_orphans++] = (struct fleet_orphan){part->jobs[k], q};
        }
        part->n_jobs = 0;
        part->limit = 0;
    }
    agent->up = false;
    for (uint32_t j = 0; j < world->n; j++) {
        agent->met[j] = world->agents[j].met[i] = false;
        if (told && j != i && world->agents[j].up) {
            push(world, (struct fleet_packet){.at = world->now + delay(world),
                                              .from = i,
                                              .to = j,
                                              .from_incarnation = agent->incarnation,
                                              .to_incarnation = world->agents[j].incarnation,
                                              .end = true});
        }
    }
}

void fleet_leave(struct fleet_world *world, uint32_t i)
{
    world->agents[i].leaving = true;
    fleet_step(world, &world->agents[i], &(struct co_coord_event){.type = CO_COORD_DRAIN});
}

void fleet_freeze(struct fleet_world *world, uint32_t i, co_ms ms)
{
    world->agents[i].frozen_until = world->now + ms;
}

void fleet_word(struct fleet_world *world, uint32_t i, uint32_t queue, uint32_t action,
                uint32_t value)
{
    struct co_fleet_override word = {.queue = 77 + queue, .action = action, .value = value};
    fleet_step(world, &world->agents[i],
               &(struct co_coord_event){.type = CO_COORD_OVERRIDE, .override = &word});
}

void fleet_cut(struct fleet_world *world, uint32_t from, uint32_t to, bool cut)
{
    bool was = world->agents[from].cut[to];
    world->agents[from].cut[to] = cut;
    if (was && !cut && world->agents[from].up && world->agents[to].up) {
        meet(world, from, to, 1 + fleet_random(world, 500));
    }
}

/* --- time --- */

static void deliver(struct fleet_world *world, struct fleet_packet packet)
{
    struct fleet_agent *from = &world->agents[packet.from];
    struct fleet_agent *to = &world->agents[packet.to];

    if (!to->up || to->incarnation != packet.to_incarnation) {
        free(packet.bytes);
        return;
    }
    if (to->frozen_until > world->now || (packet.size == 0 && from->frozen_until > world->now)) {
        packet.at = to->frozen_until > from->frozen_until ? to->frozen_until : from->frozen_until;
        if (packet.size != 0 || packet.end) {
            packet.at = to->frozen_until > world->now ? to->frozen_until : world->now;
        }
        push(world, packet);
        return;
    }
    if (packet.end) {
        fleet_step(
            world, to,
            &(struct co_coord_event){.type = CO_COORD_LINK_DOWN, .link = packet.from_incarnation});
    } else if (packet.size == 0) {
        if (from->up && from->incarnation == packet.from_incarnation) {
            hello(world, packet.from, packet.to);
            hello(world, packet.to, packet.from);
        }
    } else {
        struct co_coord_event event = {.type = CO_COORD_MSG};
        event.msg.msg = (const struct co_fleet_msg *)(const void *)packet.bytes;
        event.msg.link = packet.from_incarnation;
        fleet_step(world, to, &event);
    }
    free(packet.bytes);
}

static co_ms due(const struct fleet_agent *agent)
{
    co_ms at = agent->due < agent->look_at ? agent->due : agent->look_at;
    return at > agent->frozen_until ? at : agent->frozen_until;
}

void fleet_run(struct fleet_world *world, co_ms until)
{
    while (world->broken[0] == '\0') {
        struct fleet_agent *first = NULL;
        co_ms at = UINT64_MAX;
        for (uint32_t i = 0; i < world->n; i++) {
            struct fleet_agent *agent = &world->agents[i];
            if (agent->up && due(agent) < at) {
                first = agent;
                at = due(agent);
            }
        }
        bool packet = world->n_heap > 0 && world->heap[0].at <= at;
        at = packet ? world->heap[0].at : at;
        if (at > until) {
            break;
        }
        world->now = at > world->now ? at : world->now;
        if (packet) {
            deliver(world, pop(world));
        } else if (first->due <= world->now) {
            fleet_step(world, first, &(struct co_coord_event){.type = CO_COORD_TICK});
        } else {
            fleet_work(world, first);
        }
    }
    world->now = until > world->now ? until : world->now;
}
