/* Who the others are: their addresses by id, and whom we refuse. */

#include <stdio.h>
#include <string.h>

#include "agent/fleet_impl_uv.h"

#define FORGET_MS                                                                  \
    60000 /* Not heard for so long: no line is kept any more, unless it is a seed. \
           */
#define REJECTS_EVERY 5000

struct co_fleet_peer *co_fleet_peer_find(struct co_fleet *fleet, uint64_t id)
{
    for (uint32_t i = 0; i < fleet->n_peers; i++) {
        if (fleet->peers[i].id == id) {
            return &fleet->peers[i];
        }
    }
    return NULL;
}

static void forget(struct co_fleet *fleet, struct co_fleet_peer *peer)
{
    co_mesh_hang_up(fleet->mesh, peer->address);
    *peer = fleet->peers[--fleet->n_peers];
}

void co_fleet_peer_forget(struct co_fleet *fleet, uint64_t id)
{
    struct co_fleet_peer *peer = co_fleet_peer_find(fleet, id);

    if (peer != NULL) {
        forget(fleet, peer);
    }
}

/* A restarted pod may have another address. */
static void move(struct co_fleet *fleet, struct co_fleet_peer *peer, const char *address, co_ms now)
{
    if (peer->address[0] != '\0') {
        co_mesh_hang_up(fleet->mesh, peer->address);
    }
    snprintf(peer->address, sizeof peer->address, "%s", address);
    co_mesh_dial(fleet->mesh, address, now);
}

void co_fleet_peer_heard(struct co_fleet *fleet, const struct co_fleet_msg *msg,
                         const char *address, co_ms now)
{
    struct co_fleet_peer *peer = co_fleet_peer_find(fleet, msg->from);

    if (!co_mesh_is_address(address)) {
        return;
    }
    if (peer == NULL) {
        if (fleet->n_peers == CO_PEERS_MAX) {
            return;
        }
        peer = &fleet->peers[fleet->n_peers++];
        *peer = (struct co_fleet_peer){.id = msg->from};
    }
    if (strcmp(peer->address, address) != 0) {
        move(fleet, peer, address, now);
    }
    peer->incarnation = msg->incarnation;
    peer->heard = now;
}

void co_fleet_say_rejects(struct co_fleet *fleet, co_ms now)
{
    const struct co_mesh_rejects *rejects = co_mesh_rejected(fleet->mesh);
    uint64_t all = rejects->keys + rejects->handshakes + rejects->frames;
    char count[24];

    for (uint32_t i = 0; i < fleet->n_peers;) {
        if (now - fleet->peers[i].heard > FORGET_MS) {
            forget(fleet, &fleet->peers[i]);
        } else {
            i++;
        }
    }
    if (all == fleet->rejects_seen ||
        (fleet->said_rejects != 0 && now - fleet->said_rejects < REJECTS_EVERY)) {
        return;
    }
    snprintf(count, sizeof count, "%llu", (unsigned long long)(all - fleet->rejects_seen));
    fleet->said_rejects = now;
    fleet->rejects_seen = all;
    co_agent_log(fleet->agent, CO_LOG_WARN, CO_FIELDS("count", count, "last", rejects->last),
                 "fleet: refused who does not belong to it: another secret or fleet name, or no "
                 "agent at all; cohort peers counts them");
}

static const char *state_name(enum co_member_state state)
{
    switch (state) {
    case CO_MEMBER_ALIVE:
        return "alive";
    case CO_MEMBER_SUSPECT:
        return "suspect";
    case CO_MEMBER_DEAD:
        return "dead";
    case CO_MEMBER_LEFT:
        return "left";
    case CO_MEMBER_FREE:
        break;
    }
    return "unknown";
}

static void list_members(const struct co_fleet *fleet, struct co_peers *ret, co_ms now)
{
    const struct co_members *members = &fleet->coord.members;

    for (uint16_t slot = 1; slot < members->n && ret->n_peers < CO_PEERS_MAX; slot++) {
        const struct co_member *member = &members->at[slot];
        const struct co_fleet_peer *peer =
            co_fleet_peer_find((struct co_fleet *)(uintptr_t)fleet, member->id);
        struct co_peers_peer *out = &ret->peers[ret->n_peers];
        if (member->state == CO_MEMBER_FREE || member->state == CO_MEMBER_LEFT) {
            continue;
        }
        ret->n_peers += 1;
        snprintf(out->id, sizeof out->id, "%016llx", (unsigned long long)member->id);
        snprintf(out->address, sizeof out->address, "%s", peer != NULL ? peer->address : "");
        snprintf(out->state, sizeof out->state, "%s", state_name(member->state));
        out->heard_ms = now > member->heard_at ? now - member->heard_at : 0;
        out->lag_ms = member->lag_ms;
        out->version = member->version;
    }
}

void co_fleet_uv_peers(const struct co_fleet *fleet, struct co_peers *ret)
{
    const struct co_mesh_rejects *rejects;
    const char *address;
    bool up;

    memset(ret, 0, sizeof *ret);
    if (fleet == NULL) {
        return;
    }
    snprintf(ret->fleet, sizeof ret->fleet, "%s", fleet->agent->config.fleet.name);
    snprintf(ret->id, sizeof ret->id, "%016llx", (unsigned long long)fleet->agent->id);
    snprintf(ret->address, sizeof ret->address, "%s", fleet->address);
    list_members(fleet, ret, co_agent_clock());
    while (ret->n_lines < CO_PEERS_LINES_MAX &&
           co_mesh_line(fleet->mesh, ret->n_lines, &address, &up)) {
        struct co_peers_line *line = &ret->lines[ret->n_lines++];
        snprintf(line->address, sizeof line->address, "%s", address);
        line->up = up;
    }
    rejects = co_mesh_rejected(fleet->mesh);
    ret->keys = rejects->keys;
    ret->handshakes = rejects->handshakes;
    ret->frames = rejects->frames;
    ret->ids = fleet->ids_refused;
    snprintf(ret->last, sizeof ret->last, "%s", rejects->last);
}
