/* Who is in the fleet: liveness by direct beats, with relays in large fleets.
 *
 *     alive ──silent SUSPECT──► suspect ──silent FENCE──► dead ──5 min──► forgotten
 *       ▲                          │                       │
 *       └──────────── heard ───────┴───────────────────────┘        leave ──► left
 *
 * The bounds are widened by the own loop's lag: who is slow accuses nobody. A slot number names a
 * member as long as it is known. Slot 0 is this agent itself. */

#ifndef CO_AUTOSCALE_MEMBERS_H
#define CO_AUTOSCALE_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/fleet.h"
#include "proto/time.h"

#define CO_MEMBERS_MESH_MAX 50 /* Peers beaten at once; a larger fleet is sampled. */
#define CO_MEMBERS_NONE UINT16_MAX

enum co_member_state {
    CO_MEMBER_FREE = 0,
    CO_MEMBER_ALIVE,
    CO_MEMBER_SUSPECT, /* Still counted. */
    CO_MEMBER_DEAD,
    CO_MEMBER_LEFT,
};

struct co_member {
    uint64_t id;
    uint64_t incarnation;
    uint64_t link;
    uint64_t seq;      /* Of the newest message. */
    uint64_t beat_seq; /* Of the newest beat, relayed or direct. */
    co_ms heard_at;    /* By a message or a relay. */
    co_ms direct_at;   /* By a message. */
    enum co_member_state state;
    uint8_t version;
    uint32_t lag_ms;
    bool deaf; /* It says it does not hear us: then it can be nothing to us. */
    bool draining;
};

struct co_members {
    size_t n;     /* Slots below n may be in use. */
    size_t alive; /* ALIVE and SUSPECT, self included. */
    co_ms lag_ms; /* Own loop's, a decaying maximum. */
    size_t next_target, next_down, next_relay;
    uint16_t hash[2 * CO_FLEET_AGENTS_MAX]; /* Slot + 1 by id. */
    uint16_t order[CO_FLEET_AGENTS_MAX];    /* Slots by rising id. */
    size_t n_order;
    struct co_member at[CO_FLEET_AGENTS_MAX];
};

/* self becomes slot 0. */
void co_members_init(struct co_members *members, uint64_t id, uint64_t incarnation, co_ms now);

/* The slot of an id, or CO_MEMBERS_NONE. */
uint16_t co_members_find(const struct co_members *members, uint64_t id);

/* What hearing from somebody means. */
enum co_members_heard {
    CO_MEMBERS_SAME = 0, /* Nothing new. */
    CO_MEMBERS_JOINED,   /* New, or back from the dead: *ret_slot; where it was another incarnation
                          * before, *ret_was is that (else 0). */
    CO_MEMBERS_STALE,    /* An older incarnation: drop the message. */
    CO_MEMBERS_CLAIMED,  /* A second process claims the id: drop it, raise an alarm. */
    CO_MEMBERS_FULL,
};

/* A message of (id, incarnation) has come over link. An id belongs to the process that has it until
 * that has been silent for a lease, has left, or its link is down. */
enum co_members_heard co_members_hear(struct co_members *members, const struct co_fleet_msg *msg,
                                      uint64_t link, co_ms now, uint16_t *ret_slot,
                                      uint64_t *ret_was);

/* The same by hearsay: another agent knows of a newer beat. True if that brought it back. */
bool co_members_relay(struct co_members *members, const struct co_fleet_sight *sight, co_ms now);

/* The link has ended: the id is free for another process at once. */
void co_members_link_down(struct co_members *members, uint64_t link);

/* A member says good-bye. True if it was alive till now. */
bool co_members_leave(struct co_members *members, uint16_t slot);

/* Time has passed, lag of it later than it was due. Fills changed (slots whose state is another
 * now) and returns how many; forgotten members are FREE. */
size_t co_members_tick(struct co_members *members, co_ms now, co_ms lag,
                       uint16_t changed[CO_FLEET_AGENTS_MAX]);

bool co_members_is_alive(const struct co_members *members, uint16_t slot);

/* The peers that a beat goes to when the fleet is sampled: a window over all that turns. */
size_t co_members_targets(struct co_members *members, uint16_t slots[CO_MEMBERS_MESH_MAX]);

/* Fill a beat's downs, relays and view_digest. */
void co_members_beat(struct co_members *members, co_ms now, struct co_fleet_beat *beat);

/* Equal for equal sets of living (id, incarnation). */
uint64_t co_members_digest(const struct co_members *members);

#endif /* CO_AUTOSCALE_MEMBERS_H */
