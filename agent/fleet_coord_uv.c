/* The coordinator in the agent: what happened goes in, its messages go out to the lines, and what
 * it decided goes to the core. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/fleet_impl_uv.h"
#include "proto/fleet_frame.h"

#define LOADS_EVERY 100
#define SHRINK_EVERY 20 /* While more runs than may: the fleet waits for it. */

static struct co_coord_update update; /* One agent a process; it is large. */

/* ---- identity ---- */

static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
    const uint8_t *bytes = data;

    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    return hash;
}

/* The kernel that runs us: a file's number means something only there. */
static uint64_t host(uint64_t hash)
{
    char text[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (file != NULL) {
        if (fgets(text, sizeof text, file) == NULL) {
            text[0] = '\0';
        }
        fclose(file);
    }
    return mix(hash, text, strlen(text));
}

/* Of a file the file itself, whatever path leads to it, so that pods with one volume see one queue;
 * of a server what the source says. */
uint64_t co_fleet_coord_id(struct co_fleet *fleet, uint32_t index)
{
    const struct co_queue *queue = &fleet->agent->core.tickets.queues[index];
    const struct co_agent_source *source = &fleet->agent->sources[queue->source];
    uint64_t hash = 0xcbf29ce484222325u;
    struct stat st;

    if (source->path[0] == '/' && stat(source->path, &st) == 0 && S_ISREG(st.st_mode)) {
        const char *table = source->tables[queue->table].table;
        uint64_t file[2] = {(uint64_t)st.st_dev, (uint64_t)st.st_ino};
        hash = mix(mix(host(hash), file, sizeof file), table, strlen(table) + 1);
    } else {
        uint64_t fingerprint = co_sources_fingerprint(fleet->agent, queue->source, queue->table);
        hash = mix(hash, &fingerprint, sizeof fingerprint);
    }
    hash = mix(hash, queue->name, strlen(queue->name));
    return hash != 0 ? hash : 1;
}

int co_fleet_coord_queue(const struct co_fleet *fleet, uint64_t id)
{
    for (uint32_t i = 0; id != 0 && i < fleet->agent->core.tickets.n_queues; i++) {
        if (fleet->units[i].id == id) {
            return (int)i;
        }
    }
    return CO_ENOTFOUND;
}

/* ---- out ---- */

static void say(struct co_fleet *fleet, const struct co_coord_send *send)
{
    static struct co_fleet_msg msg;
    static uint8_t frame[CO_FLEET_FRAME_MAX];
    uint8_t version = co_coord_version(&fleet->coord);
    const struct co_fleet_peer *peer = send->to_all ? NULL : co_fleet_peer_find(fleet, send->to);
    size_t size;

    co_coord_message(&fleet->coord, send, &msg);
    msg.version = fleet->write_version;
    version = version < fleet->write_version ? version : fleet->write_version;
    if (co_fleet_frame_write(&msg, version, fleet->address, frame, sizeof frame, &size) < 0) {
        return;
    }
    if (send->to_all) {
        co_fleet_send_all(fleet, frame, size);
    } else if (peer != NULL) {
        co_mesh_send(fleet->mesh, peer->address, frame, size);
    }
}

static void member(struct co_fleet *fleet, const struct co_coord_change *change)
{
    const struct co_fleet_peer *peer = co_fleet_peer_find(fleet, change->agent);
    const char *address = peer != NULL ? peer->address : "an address unknown";
    unsigned long long id = change->agent;
    const char *const *fields = CO_FIELDS("fleet", fleet->agent->config.fleet.name);

    switch (change->state) {
    case CO_MEMBER_ALIVE:
        co_agent_log(fleet->agent, CO_LOG_INFO, fields, "agent %016llx at %s joined", id, address);
        return;
    case CO_MEMBER_DEAD:
        co_agent_log(fleet->agent, CO_LOG_WARN, fields,
                     "agent %016llx at %s is silent and counts as dead", id, address);
        co_agent_post(fleet->agent, &(struct co_event){.type = CO_EVENT_PEER_DEAD});
        return;
    case CO_MEMBER_LEFT:
        co_agent_log(fleet->agent, CO_LOG_INFO, fields, "agent %016llx left", id);
        co_fleet_peer_forget(fleet, change->agent);
        return;
    case CO_MEMBER_SUSPECT:
    case CO_MEMBER_FREE:
        return;
    }
}

static void raise_alarm(struct co_fleet *fleet, const struct co_coord_change *change)
{
    unsigned long long id = change->agent;
    struct co_agent *agent = fleet->agent;

    switch (change->alarm) {
    case CO_COORD_CLAIMED_ID:
        if (fleet->ids_refused++ == 0) {
            co_agent_log(agent, CO_LOG_ERROR, NULL,
                         "two agents claim the id %016llx; the second is not listened to", id);
        }
        return;
    case CO_COORD_TOO_OLD:
        co_agent_log(agent, CO_LOG_ERROR, NULL,
                     "agent %016llx is of a version that this one does not understand", id);
        return;
    case CO_COORD_TOO_MANY:
        co_agent_log(agent, CO_LOG_WARN, NULL,
                     "more agents are alive than fleet.expected says; a strict cap counts a "
                     "majority of that number");
        return;
    case CO_COORD_SKEW:
        co_agent_log(agent, CO_LOG_WARN, NULL,
                     "agent %016llx has another policy for a queue; its owner's governs", id);
        return;
    case CO_COORD_FULL:
        co_agent_log(agent, CO_LOG_ERROR, NULL, "the fleet is full: agent %016llx is not heard",
                     id);
        return;
    }
}

static void share(struct co_fleet *fleet, const struct co_coord_change *change)
{
    int queue = co_fleet_coord_queue(fleet, change->queue);
    struct co_fleet_unit *unit = &fleet->units[queue < 0 ? 0 : queue];

    if (queue < 0) {
        return;
    }
    if (change->type == CO_COORD_LIMIT) {
        unit->told_load = unit->told_load && change->workers >= unit->share;
        unit->share = change->workers;
    } else if (change->type == CO_COORD_FENCE) {
        unit->told_load = false;
        unit->share = 0;
    }
    if (change->type != CO_COORD_FENCE) {
        unit->until = change->until == UINT64_MAX ? 0 : change->until;
    }
    co_agent_post(fleet->agent, &(struct co_event){.type = CO_EVENT_SHARE,
                                                   .queue = (uint32_t)queue,
                                                   .workers = unit->share,
                                                   .until = unit->until});
}

static void obey(struct co_fleet *fleet, const struct co_coord_change *change)
{
    int queue;

    switch (change->type) {
    case CO_COORD_LIMIT:
    case CO_COORD_LEASE:
    case CO_COORD_FENCE:
        share(fleet, change);
        return;
    case CO_COORD_OWN:
    case CO_COORD_DISOWN:
        queue = co_fleet_coord_queue(fleet, change->queue);
        if (queue >= 0) {
            fleet->units[queue].owned = change->type == CO_COORD_OWN;
        }
        return;
    case CO_COORD_MEMBER:
        member(fleet, change);
        return;
    case CO_COORD_ALARM:
        raise_alarm(fleet, change);
        return;
    case CO_COORD_OVERRIDDEN:
        co_fleet_words_heard(fleet, change->queue);
        return;
    }
}

/* The messages first: an action may make another step. */
static int step(struct co_fleet *fleet, struct co_coord_event *event, co_ms now)
{
    struct co_coord_change changes[CO_COORD_CHANGES_MAX];
    size_t n;
    int code;

    event->now = now > fleet->coord.now ? now : fleet->coord.now;
    event->wall = (co_unix)(co_agent_wall_ms() / 1000);
    code = co_coord_step(&fleet->coord, event, &update);
    n = update.n_changes;
    memcpy(changes, update.changes, n * sizeof changes[0]);
    for (size_t i = 0; i < update.n_sends; i++) {
        say(fleet, &update.sends[i]);
    }
    for (size_t i = 0; i < n; i++) {
        obey(fleet, &changes[i]);
    }
    return code;
}

/* ---- in ---- */

/* Without a policy a queue has no limit but what its agents can run. */
static void tell_queue(struct co_fleet *fleet, uint32_t index, co_ms now)
{
    struct co_fleet_unit *unit = &fleet->units[index];
    struct co_coord_queue_config config = {
        .queue = unit->id,
        .max = CO_FLEET_WORKERS_MAX,
    };

    if (unit->has_rule) {
        config = (struct co_coord_queue_config){.queue = unit->id,
                                                .policy_hash = unit->rule.policy_hash,
                                                .max = unit->rule.max,
                                                .split = unit->rule.split,
                                                .on_fence = unit->rule.on_fence,
                                                .job_ms = unit->rule.job_ms};
    }
    step(fleet, &(struct co_coord_event){.type = CO_COORD_QUEUE, .queue = &config}, now);
}

/* A queue is told of once its source answers: then its file is there. Nothing of it is begun before
 * the first plan. */
static void tell_queues(struct co_fleet *fleet, co_ms now)
{
    struct co_agent *agent = fleet->agent;

    for (uint32_t i = 0; i < agent->core.tickets.n_queues; i++) {
        const struct co_queue *queue = &agent->core.tickets.queues[i];
        struct co_fleet_unit *unit = &fleet->units[i];
        uint64_t name = mix(1, queue->name, strlen(queue->name));
        if (!agent->core.sources[queue->source].ever_up || (unit->id != 0 && unit->name == name)) {
            continue;
        }
        if (unit->id != 0) { /* Another queue has its place now. */
            step(fleet, &(struct co_coord_event){.type = CO_COORD_UNQUEUE, .unqueue = unit->id},
                 now);
            *unit = (struct co_fleet_unit){0};
        }
        unit->id = co_fleet_coord_id(fleet, i);
        unit->name = name;
        tell_queue(fleet, i, now);
        co_agent_post(agent, &(struct co_event){.type = CO_EVENT_SHARE, .queue = i});
    }
}

static uint32_t capacity(const struct co_agent *agent, uint32_t index)
{
    const struct co_pool *pool = &agent->core.pools[index].pool;

    if (agent->core.draining || !agent->pools[index].booted_once) {
        return 0;
    }
    return pool->circuit.state == CO_CIRCUIT_CLOSED ? agent->config.pools[index].workers
                                                    : co_pool_able(pool);
}

static uint64_t ended(const struct co_queue_counts *counts)
{
    return counts->done + counts->failed + counts->released + counts->crashed + counts->lost;
}

static void read_load(struct co_fleet *fleet, uint32_t index, co_ms now, struct co_fleet_load *ret)
{
    struct co_agent *agent = fleet->agent;
    const struct co_queue *queue = &agent->core.tickets.queues[index];
    const struct co_pool *pool = &agent->core.pools[queue->pool].pool;
    struct co_fleet_unit *unit = &fleet->units[index];
    const struct co_hist *service = &agent->core.pools[queue->pool].service;

    *ret = (struct co_fleet_load){
        .capacity = capacity(agent, queue->pool),
        .running = queue->n_given,
        .claimed = queue->waiting.count,
        .booting = pool->by_state[CO_WORKER_BOOTING],
        .idle = pool->n_idle,
        .ready = queue->depth.ready < UINT32_MAX ? (uint32_t)queue->depth.ready : UINT32_MAX,
        .done_per_s = unit->load.done_per_s,
        .service_us = service->count > 0 ? (uint32_t)(service->sum_us / service->count) : 0,
    };
    if (now - unit->looked >= 1000) {
        uint64_t done = ended(&queue->counts);
        ret->done_per_s = (uint32_t)((done - unit->done) * 1000000 / (now - unit->looked));
        unit->done = done;
        unit->looked = now;
    }
}

static void tell_loads(struct co_fleet *fleet, co_ms now)
{
    for (uint32_t i = 0; i < fleet->agent->core.tickets.n_queues; i++) {
        struct co_fleet_unit *unit = &fleet->units[i];
        struct co_coord_event event = {.type = CO_COORD_LOAD};
        if (unit->id == 0) {
            continue;
        }
        read_load(fleet, i, now, &event.load.load);
        if (!unit->told_load || memcmp(&event.load.load, &unit->load, sizeof unit->load) != 0) {
            unit->told_load = true;
            unit->load = event.load.load;
            event.load.queue = unit->id;
            step(fleet, &event, now);
        }
    }
}

/* Nobody decides about a queue without a policy: all may run what they can. */
static void tell_targets(struct co_fleet *fleet, co_ms now)
{
    for (uint32_t i = 0; i < fleet->agent->core.tickets.n_queues; i++) {
        const struct co_fleet_unit *unit = &fleet->units[i];
        struct co_coord_event event = {.type = CO_COORD_TARGET};
        struct co_fleet_load sum;
        if (unit->id == 0 || unit->has_rule || !unit->owned) {
            continue;
        }
        co_coord_loads(&fleet->coord, unit->id, &sum);
        event.target.queue = unit->id;
        event.target.target = sum.capacity;
        step(fleet, &event, now);
    }
}

void co_fleet_coord_take(struct co_fleet *fleet, const struct co_fleet_msg *msg,
                         const char *address, co_ms now)
{
    struct co_coord_event event = {.type = CO_COORD_MSG};
    const struct co_fleet_peer *peer = co_fleet_peer_find(fleet, msg->from);

    event.msg.msg = msg;
    event.msg.link = msg->incarnation;
    /* Its address first, for answers that go out at once; not that of one who is not believed. */
    if (peer == NULL || peer->incarnation == msg->incarnation) {
        co_fleet_peer_heard(fleet, msg, address, now);
    }
    step(fleet, &event, now);
    if (co_members_find(&fleet->coord.members, msg->from) != CO_MEMBERS_NONE) {
        const struct co_member *heard =
            &fleet->coord.members.at[co_members_find(&fleet->coord.members, msg->from)];
        if (heard->incarnation == msg->incarnation && heard->state == CO_MEMBER_ALIVE) {
            co_fleet_peer_heard(fleet, msg, address, now);
        }
    }
    co_agent_step(fleet->agent);
}

void co_fleet_coord_tick(struct co_fleet *fleet, co_ms now)
{
    if (now - fleet->looked_loads >= SHRINK_EVERY) {
        fleet->looked_loads = now;
        tell_queues(fleet, now);
        tell_loads(fleet, now);
        tell_targets(fleet, now);
    }
    if (now >= co_coord_deadline(&fleet->coord)) {
        step(fleet, &(struct co_coord_event){.type = CO_COORD_TICK}, now);
    }
    co_agent_step(fleet->agent);
}

/* Does more run than may? Then the others wait for its end. */
static bool shrinks(const struct co_fleet *fleet)
{
    const struct co_tickets *tickets = &fleet->agent->core.tickets;

    for (uint32_t i = 0; i < tickets->n_queues; i++) {
        if (fleet->units[i].id != 0 &&
            (!fleet->units[i].told_load || tickets->queues[i].n_given > fleet->units[i].share)) {
            return true;
        }
    }
    return false;
}

co_ms co_fleet_coord_deadline(const struct co_fleet *fleet)
{
    co_ms deadline = co_coord_deadline(&fleet->coord);
    co_ms look = fleet->looked_loads + (shrinks(fleet) ? SHRINK_EVERY : LOADS_EVERY);

    return look < deadline ? look : deadline;
}

void co_fleet_coord_open(struct co_fleet *fleet)
{
    const struct co_fleet_config *config = &fleet->agent->config.fleet;

    co_coord_init(&fleet->coord,
                  &(struct co_coord_config){
                      .id = fleet->agent->id,
                      .incarnation = co_agent_wall_ms() * 1000,
                      .expected = config->expected,
                      .settle_ms = fleet->n_seeds == 0 ? 0 : CO_COORD_SETTLE_MS,
                  },
                  co_agent_clock());
    co_fleet_words_open(fleet);
}

int co_fleet_coord_override(struct co_fleet *fleet, const struct co_fleet_override *word)
{
    return step(fleet, &(struct co_coord_event){.type = CO_COORD_OVERRIDE, .override = word},
                co_agent_clock());
}

void co_fleet_coord_leave(struct co_fleet *fleet)
{
    step(fleet, &(struct co_coord_event){.type = CO_COORD_LEAVE}, co_agent_clock());
}

/* ---- for others ---- */

void co_fleet_uv_drain(struct co_agent *agent)
{
    if (agent->fleet != NULL) {
        step(agent->fleet, &(struct co_coord_event){.type = CO_COORD_DRAIN}, co_agent_clock());
    }
}

int co_fleet_uv_rule(struct co_agent *agent, uint32_t queue, const struct co_fleet_rule *rule)
{
    struct co_fleet_unit *unit;

    if (agent->fleet == NULL) {
        return CO_OK;
    }
    if (rule != NULL && rule->split == CO_FLEET_STRICT &&
        (agent->config.fleet.expected == 0 ||
         (rule->on_fence == CO_FLEET_WAIT && rule->job_ms == 0))) {
        return CO_EUNSUPPORTED;
    }
    unit = &agent->fleet->units[queue];
    unit->has_rule = rule != NULL;
    if (rule != NULL) {
        unit->rule = *rule;
    }
    if (unit->id != 0) {
        tell_queue(agent->fleet, queue, co_agent_clock());
    }
    return CO_OK;
}

bool co_fleet_uv_owns(const struct co_agent *agent, uint32_t queue)
{
    return agent->fleet == NULL || agent->fleet->units[queue].owned;
}

void co_fleet_uv_target(struct co_agent *agent, uint32_t queue, uint32_t target,
                        const uint8_t *history, size_t size)
{
    struct co_coord_event event = {.type = CO_COORD_TARGET};

    if (agent->fleet == NULL || agent->fleet->units[queue].id == 0) {
        return;
    }
    event.target.queue = agent->fleet->units[queue].id;
    event.target.target = target;
    event.target.history = history;
    event.target.history_size = (uint16_t)(size <= CO_FLEET_HISTORY_SIZE ? size : 0);
    step(agent->fleet, &event, co_agent_clock());
}

size_t co_fleet_uv_history(const struct co_agent *agent, uint32_t queue, const uint8_t **ret)
{
    const struct co_coord_queue *known =
        agent->fleet == NULL
            ? NULL
            : co_coord_queue_get(&agent->fleet->coord, agent->fleet->units[queue].id);

    if (known == NULL) {
        return 0;
    }
    *ret = known->plan.history;
    return known->plan.history_size;
}

size_t co_fleet_uv_loads(const struct co_agent *agent, uint32_t queue, struct co_fleet_load *ret)
{
    *ret = (struct co_fleet_load){0};
    return agent->fleet == NULL
               ? 0
               : co_coord_loads(&agent->fleet->coord, agent->fleet->units[queue].id, ret);
}

uint32_t co_fleet_uv_share(const struct co_agent *agent, uint32_t queue)
{
    return agent->fleet == NULL ? UINT32_MAX : agent->core.tickets.queues[queue].share;
}
