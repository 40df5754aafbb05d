#include "autoscale/members.h"

#include <assert.h>
#include <string.h>

#define HASH_SIZE (2 * CO_FLEET_AGENTS_MAX)
#define FORGET_MS 300000 /* A dead agent's beats are missed aloud for so long. */
#define DOWNS_MS 60000
#define PAUSE_MS 600 /* A lag beyond this was a stopped process: it heard nobody meanwhile. */
#define LAG_STEP_MS 200
#define LAG_FACTOR_MAX 8
#define BEATS_PER_PAIR_MS 1000 /* In a sampled fleet every pair beats at least so often. */

static size_t bucket_of(uint64_t id)
{
    return (size_t)((id * UINT64_C(0x9E3779B97F4A7C15)) >> 32) % HASH_SIZE;
}

uint16_t co_members_find(const struct co_members *members, uint64_t id)
{
    for (size_t i = bucket_of(id);; i = (i + 1) % HASH_SIZE) {
        uint16_t entry = members->hash[i];
        if (entry == 0) {
            return CO_MEMBERS_NONE;
        }
        if (members->at[entry - 1].id == id) {
            return (uint16_t)(entry - 1);
        }
    }
}

static void index_add(struct co_members *members, uint16_t slot)
{
    size_t i = bucket_of(members->at[slot].id);
    while (members->hash[i] != 0) {
        i = (i + 1) % HASH_SIZE;
    }
    members->hash[i] = (uint16_t)(slot + 1);

    size_t at = members->n_order++;
    for (; at > 0 && members->at[members->order[at - 1]].id > members->at[slot].id; at--) {
        members->order[at] = members->order[at - 1];
    }
    members->order[at] = slot;
}

/* Removal is rare: the index is made anew. */
static void index_rebuild(struct co_members *members)
{
    memset(members->hash, 0, sizeof members->hash);
    members->n_order = 0;
    for (uint16_t slot = 0; slot < members->n; slot++) {
        if (members->at[slot].state != CO_MEMBER_FREE) {
            index_add(members, slot);
        }
    }
}

bool co_members_is_alive(const struct co_members *members, uint16_t slot)
{
    return members->at[slot].state == CO_MEMBER_ALIVE ||
           members->at[slot].state == CO_MEMBER_SUSPECT;
}

/* The one place that sets a state. */
static void set_state(struct co_members *members, uint16_t slot, enum co_member_state state)
{
    bool was = co_members_is_alive(members, slot);
    members->at[slot].state = state;
    bool is = co_members_is_alive(members, slot);
    members->alive += (size_t)is;
    members->alive -= (size_t)was;
}

static uint16_t add(struct co_members *members, uint64_t id)
{
    uint16_t slot = 0;
    while (slot < members->n && members->at[slot].state != CO_MEMBER_FREE) {
        slot++;
    }
    if (slot == CO_FLEET_AGENTS_MAX) {
        return CO_MEMBERS_NONE;
    }
    if (slot == members->n) {
        members->n++;
    }
    members->at[slot] = (struct co_member){.id = id};
    index_add(members, slot);
    return slot;
}

void co_members_init(struct co_members *members, uint64_t id, uint64_t incarnation, co_ms now)
{
    memset(members, 0, offsetof(struct co_members, at));
    uint16_t slot = add(members, id);
    members->at[slot].incarnation = incarnation;
    members->at[slot].version = CO_FLEET_VERSION;
    members->at[slot].heard_at = now;
    set_state(members, slot, CO_MEMBER_ALIVE);
}

static bool holds_id(const struct co_member *member, co_ms now)
{
    return member->link != 0 && member->state != CO_MEMBER_LEFT &&
           now - member->direct_at < CO_FLEET_LEASE_MS;
}

static void meet(struct co_member *member, const struct co_fleet_msg *msg)
{
    member->incarnation = msg->incarnation;
    member->seq = 0;
    member->beat_seq = 0;
    member->deaf = false;
    member->draining = false;
}

enum co_members_heard co_members_hear(struct co_members *members, const struct co_fleet_msg *msg,
                                      uint64_t link, co_ms now, uint16_t *ret_slot,
                                      uint64_t *ret_was)
{
    uint16_t slot = co_members_find(members, msg->from);
    bool is_new = slot == CO_MEMBERS_NONE;

    *ret_was = 0;
    if (slot == 0) {
        return CO_MEMBERS_CLAIMED;
    }
    if (is_new) {
        slot = add(members, msg->from);
        if (slot == CO_MEMBERS_NONE) {
            return CO_MEMBERS_FULL;
        }
        meet(&members->at[slot], msg);
    }
    struct co_member *member = &members->at[slot];
    if (msg->incarnation < member->incarnation &&
        (link == 0 || member->state != CO_MEMBER_DEAD || holds_id(member, now))) {
        return link != 0 && link == member->link ? CO_MEMBERS_STALE
               : holds_id(member, now)           ? CO_MEMBERS_CLAIMED
                                                 : CO_MEMBERS_STALE;
    }
    if (!is_new && link != 0 && member->link != link && holds_id(member, now)) {
        return CO_MEMBERS_CLAIMED;
    }
    if (msg->incarnation != member->incarnation) {
        *ret_was = member->incarnation;
        meet(member, msg);
        is_new = true;
    } else if (member->state == CO_MEMBER_LEFT) {
        return CO_MEMBERS_STALE; /* It said good-bye; what is late of it means nothing. */
    }
    member->link = link;
    member->heard_at = now;
    member->direct_at = now;
    member->version = msg->version;
    *ret_slot = slot;
    is_new |= !co_members_is_alive(members, slot);
    if (member->state != CO_MEMBER_ALIVE) {
        set_state(members, slot, CO_MEMBER_ALIVE);
    }
    return is_new ? CO_MEMBERS_JOINED : CO_MEMBERS_SAME;
}

bool co_members_relay(struct co_members *members, const struct co_fleet_sight *sight, co_ms now)
{
    uint16_t slot = co_members_find(members, sight->id);
    if (slot == CO_MEMBERS_NONE || slot == 0) {
        return false;
    }
    struct co_member *member = &members->at[slot];
    if (sight->incarnation != member->incarnation || sight->seq <= member->beat_seq ||
        !co_members_is_alive(members, slot)) {
        return false; /* Only its own word brings a dead agent back. */
    }
    member->beat_seq = sight->seq;
    member->heard_at = now;
    set_state(members, slot, CO_MEMBER_ALIVE);
    return true;
}

void co_members_link_down(struct co_members *members, uint64_t link)
{
    for (uint16_t slot = 1; slot < members->n; slot++) {
        if (members->at[slot].link == link) {
            members->at[slot].link = 0;
        }
    }
}

bool co_members_leave(struct co_members *members, uint16_t slot)
{
    bool was = co_members_is_alive(members, slot);
    set_state(members, slot, CO_MEMBER_LEFT);
    return was;
}

static co_ms widen(const struct co_members *members, co_ms bound)
{
    co_ms factor8 = 8 + members->lag_ms * 8 / LAG_STEP_MS;
    if (factor8 > 8 * LAG_FACTOR_MAX) {
        factor8 = 8 * LAG_FACTOR_MAX;
    }
    return bound * factor8 / 8;
}

static void feel_lag(struct co_members *members, co_ms lag)
{
    members->lag_ms -= members->lag_ms / 8;
    if (lag >= PAUSE_MS) {
        for (uint16_t slot = 1; slot < members->n; slot++) {
            members->at[slot].heard_at += lag;
        }
    } else if (lag > members->lag_ms) {
        members->lag_ms = lag;
    }
}

static enum co_member_state state_after(const struct co_members *members,
                                        const struct co_member *member, co_ms now)
{
    co_ms silent = now > member->heard_at ? now - member->heard_at : 0;

    switch (member->state) {
    case CO_MEMBER_FREE:
        return CO_MEMBER_FREE;
    case CO_MEMBER_ALIVE:
    case CO_MEMBER_SUSPECT:
        return silent >= widen(members, CO_FLEET_FENCE_MS)     ? CO_MEMBER_DEAD
               : silent >= widen(members, CO_FLEET_SUSPECT_MS) ? CO_MEMBER_SUSPECT
                                                               : CO_MEMBER_ALIVE;
    case CO_MEMBER_DEAD:
    case CO_MEMBER_LEFT:
        return silent >= FORGET_MS ? CO_MEMBER_FREE : member->state;
    }
    assert(0);
    return CO_MEMBER_FREE;
}

size_t co_members_tick(struct co_members *members, co_ms now, co_ms lag,
                       uint16_t changed[CO_FLEET_AGENTS_MAX])
{
    size_t n_changed = 0;
    bool forgot = false;

    feel_lag(members, lag);
    for (uint16_t slot = 1; slot < members->n; slot++) {
        enum co_member_state state = state_after(members, &members->at[slot], now);
        if (state == members->at[slot].state) {
            continue;
        }
        set_state(members, slot, state);
        forgot |= state == CO_MEMBER_FREE;
        changed[n_changed++] = slot;
    }
    if (forgot) {
        index_rebuild(members);
    }
    return n_changed;
}

size_t co_members_targets(struct co_members *members, uint16_t slots[CO_MEMBERS_MESH_MAX])
{
    size_t n = 0;
    size_t due = members->alive * CO_FLEET_GOSSIP_MS / BEATS_PER_PAIR_MS + 1;
    if (due > CO_MEMBERS_MESH_MAX) {
        due = CO_MEMBERS_MESH_MAX;
    }
    for (size_t looked = 0; looked < members->n && n < due; looked++) {
        members->next_target = (members->next_target + 1) % members->n;
        uint16_t slot = (uint16_t)members->next_target;
        /* The dead too: a partition that heals must be found out. */
        if (slot != 0 && members->at[slot].state != CO_MEMBER_FREE &&
            members->at[slot].state != CO_MEMBER_LEFT) {
            slots[n++] = slot;
        }
    }
    return n;
}

static struct co_fleet_sight sight_of(const struct co_member *member)
{
    return (struct co_fleet_sight){member->id, member->incarnation, member->beat_seq};
}

static void list_downs(struct co_members *members, co_ms now, struct co_fleet_beat *beat)
{
    if (members->alive == members->n) {
        return;
    }
    for (size_t looked = 0; looked < members->n; looked++) {
        members->next_down = (members->next_down + 1) % members->n;
        const struct co_member *member = &members->at[members->next_down];
        if (member->state == CO_MEMBER_DEAD && now - member->heard_at < DOWNS_MS &&
            beat->n_downs < CO_FLEET_DOWNS_MAX) {
            beat->downs[beat->n_downs++] = sight_of(member);
        }
    }
}

static void list_relays(struct co_members *members, co_ms now, struct co_fleet_beat *beat)
{
    if (members->alive <= CO_MEMBERS_MESH_MAX) {
        return;
    }
    for (size_t looked = 0; looked < members->n && beat->n_relays < CO_FLEET_RELAYS_MAX; looked++) {
        members->next_relay = (members->next_relay + 1) % members->n;
        const struct co_member *member = &members->at[members->next_relay];
        if (members->next_relay != 0 && member->state == CO_MEMBER_ALIVE &&
            now - member->heard_at < CO_FLEET_SUSPECT_MS / 2) {
            beat->relays[beat->n_relays++] = sight_of(member);
        }
    }
}

void co_members_beat(struct co_members *members, co_ms now, struct co_fleet_beat *beat)
{
    list_downs(members, now, beat);
    list_relays(members, now, beat);
    beat->lag_ms = (uint32_t)members->lag_ms;
    beat->view_digest = co_members_digest(members);
}

uint64_t co_members_digest(const struct co_members *members)
{
    uint64_t digest = 0;
    for (uint16_t slot = 0; slot < members->n; slot++) {
        if (co_members_is_alive(members, slot)) {
            uint64_t x =
                members->at[slot].id * UINT64_C(0x9E3779B97F4A7C15) ^ members->at[slot].incarnation;
            x ^= x >> 29;
            x *= UINT64_C(0xBF58476D1CE4E5B9);
            digest += x ^ (x >> 32); /* A sum: the order of the slots is no matter. */
        }
    }
    return digest;
}
