/* The coordinator: one agent's part in the fleet.
 *
 * A pure state machine. It makes no system call, reads no clock, draws no random number and
 * allocates nothing. Whoever owns it passes every event in and does what comes out:
 *
 *     event ──► co_coord_step() ──► update: { send these | run so many | own this queue | ... }
 *
 * agent/fleet_uv.c drives it with real sockets and timers, tests/sim/fleet.c with virtual ones. The
 * protocol, what it promises and what it does not: FLEET.md.
 *
 * The struct is large (CO_COORD_SIZE_MAX) but touched only as far as agents and queues are known:
 * take it from zeroed pages (calloc, static) and it costs what is used. */

#ifndef CO_AUTOSCALE_COORD_H
#define CO_AUTOSCALE_COORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "autoscale/members.h"
#include "proto/fleet.h"
#include "proto/time.h"

#define CO_COORD_SENDS_MAX 1024
#define CO_COORD_CHANGES_MAX 192
#define CO_COORD_GHOSTS_MAX 32

struct co_coord_config {
    uint64_t id;          /* Of the agent: a hash of its name. Never 0. */
    uint64_t incarnation; /* Never 0; rises with every start (CLOCK_REALTIME in ns will do). */
    uint32_t expected;    /* fleet.expected; 0: not said, then no queue can be strict. */
    co_ms settle_ms;      /* How long to listen before owning anything: 0 where there is nobody to
                           * join, CO_COORD_SETTLE_MS else. */
};
#define CO_COORD_SETTLE_MS 400

/* A queue this agent serves, as its policy says. */
struct co_coord_queue_config {
    uint64_t queue; /* Fingerprint of source and name; of a SQLite file, its host is part of it. */
    uint64_t policy_hash;
    uint32_t max; /* fleet.max */
    enum co_fleet_split split;
    enum co_fleet_on_fence on_fence;
    uint64_t job_ms; /* Strict: timeout + kill_grace of its jobs; 0: no timeout (WAIT: refused). */
};

enum co_coord_event_type {
    CO_COORD_TICK = 1,  /* co_coord_deadline() has come. */
    CO_COORD_MSG,       /* A peer's message has arrived. */
    CO_COORD_LINK_DOWN, /* A peer's connection has ended. */
    CO_COORD_QUEUE,     /* A queue's policy, first or changed. */
    CO_COORD_UNQUEUE,   /* The queue is served no more. */
    CO_COORD_LOAD,      /* This agent's numbers on a queue. Send them when they change, and at once
                         * after a LIMIT that is lower or a FENCE: till then the fleet takes it
                         * that all that was allowed before still runs. */
    CO_COORD_TARGET,    /* The scaler's word on a queue this agent owns. */
    CO_COORD_OVERRIDE,  /* An operator's word, given here or read from state.db or the source. */
    CO_COORD_DRAIN,     /* Own nothing and take no share from now on. */
    CO_COORD_LEAVE,     /* Running nothing any more: say good-bye. Nothing may follow. */
};

struct co_coord_event {
    enum co_coord_event_type type;
    co_ms now;    /* Never goes back. */
    co_unix wall; /* Seconds; ends overrides. 0: unknown, none ends. */
    union {
        struct {
            const struct co_fleet_msg *msg; /* Borrowed. Only co_fleet_size() of it is read. */
            uint64_t link; /* Tells one process of a peer from another: the same for all messages
                            * of a peer's process. 0: unknown, not checked. */
        } msg;
        uint64_t link;                             /* LINK_DOWN */
        const struct co_coord_queue_config *queue; /* QUEUE */
        uint64_t unqueue;
        struct {
            uint64_t queue;
            struct co_fleet_load load;
        } load;
        struct {
            uint64_t queue;
            uint32_t target;
            uint16_t history_size;
            const uint8_t *history;
        } target;
        const struct co_fleet_override *override;
    };
};

enum co_coord_change_type {
    CO_COORD_LIMIT = 1, /* Run at most .workers from now on; strict: begin nothing after .until. */
    CO_COORD_LEASE,     /* Strict: the limit stands, its lease now ends at .until. */
    CO_COORD_FENCE,     /* Strict: begin nothing; with .kill end running jobs by .until, with no
                         * attempt charged. */
    CO_COORD_OWN,       /* This agent owns the queue: read its depth, send TARGET events. */
    CO_COORD_DISOWN,
    CO_COORD_MEMBER,     /* .agent is now .state */
    CO_COORD_ALARM,      /* .alarm, about .agent */
    CO_COORD_OVERRIDDEN, /* The override in force on .queue is another: co_coord_override(). */
};

enum co_coord_alarm {
    CO_COORD_CLAIMED_ID = 1, /* A second live process says it is .agent (perhaps we ourselves). */
    CO_COORD_TOO_OLD,        /* .agent speaks no version we understand. */
    CO_COORD_TOO_MANY,       /* More agents are alive than fleet.expected says. */
    CO_COORD_SKEW,           /* .agent has another policy for .queue than we who own it. */
    CO_COORD_FULL,           /* No room for .agent. */
};

struct co_coord_change {
    enum co_coord_change_type type;
    uint64_t queue;
    uint64_t agent;
    uint32_t workers;
    bool kill;
    co_ms until; /* Strict: CLOCK_BOOTTIME of this agent. UINT64_MAX: no end. */
    enum co_member_state state;
    enum co_coord_alarm alarm;
};

/* A message to be sent: co_coord_message() makes it. */
struct co_coord_send {
    uint8_t kind;   /* enum co_fleet_kind */
    bool to_all;    /* To every connection there is, to strangers too. */
    uint16_t queue; /* Index of the queue, where the kind is about one. */
    uint64_t to;    /* Else to this agent. */
};

/* Not cleared by anybody: only the first n of each array mean anything. */
struct co_coord_update {
    size_t n_changes;
    size_t n_sends;
    struct co_coord_change changes[CO_COORD_CHANGES_MAX];
    struct co_coord_send sends[CO_COORD_SENDS_MAX];
};

/* What the owner keeps of a member's last report on a queue. */
struct co_coord_reported {
    uint64_t incarnation; /* 0: nothing reported. */
    co_ms stamp;          /* The member's. */
    co_ms heard_at;
    struct co_fleet_load load;
    uint64_t policy_hash;
    uint32_t max;
    uint32_t hold_ms;
    uint32_t grant;
    struct co_fleet_epoch epoch;
    /* Strict: */
    uint64_t term;    /* Joined the owner in this term; 0: has not. */
    co_ms vote_until; /* Its promise to us holds so long, by our clock. */
    uint32_t held;    /* It runs, or may run, at most so many. */
    co_ms held_until; /* So long, if it stays silent. */
    uint32_t flags;
};

/* Strict: a process gone or unknown that may still run jobs. */
struct co_coord_ghost {
    uint64_t id;
    uint64_t incarnation;
    uint32_t held;
    co_ms until;
};

enum co_coord_role {
    CO_COORD_FOLLOWS = 0,
    CO_COORD_CLAIMS, /* Strict: asks for promises. */
    CO_COORD_OWNS,
};

struct co_coord_queue {
    struct co_coord_queue_config config;
    bool used;
    struct co_fleet_load load;               /* This agent's. */
    uint64_t owner;                          /* By rendezvous among the living; 0: none. */
    uint64_t top_term;                       /* Highest term heard of. */
    uint8_t serves[CO_FLEET_AGENTS_MAX / 8]; /* Bit by member's slot. */

    /* As a member. */
    uint32_t limit;   /* What this agent may run: told by CO_COORD_LIMIT. */
    uint32_t unsure;  /* Run at most, from before the limit fell, until a LOAD says better. */
    co_ms report_due; /* UINT64_MAX: nobody to report to. */
    co_ms reported_at;
    bool report_urgent;
    co_ms plan_at;         /* When the plan in force came. */
    uint64_t promise_term; /* Strict: our one promise ... */
    uint64_t promise_owner;
    co_ms promise_until;
    co_ms owner_stamp; /* Of the owner's newest message. */
    co_ms lease_until; /* Strict: begin nothing after. */
    bool grown;        /* The plan held may be grown into. */
    bool fenced;       /* The plan held, and those before, are void here. */
    bool knows;        /* Has held a strict plan since its start. */

    /* As the owner. */
    enum co_coord_role role;
    uint64_t term;
    uint64_t seq;
    uint32_t target;
    bool has_target;
    bool dirty;  /* The plan must be looked at again, at plan_due. */
    bool spread; /* Send the plan even if nothing but its history is new. */
    bool outbid; /* A member holds a plan that beats ours: the next must be of a higher term. */
    co_ms plan_due;
    co_ms issued_at;
    co_ms learns_until; /* Nobody is cut before. */
    co_ms claim_stamp;  /* First claim of the term. */
    co_ms quorum_until; /* Strict: promises of a majority hold so long. */
    struct co_fleet_epoch committed;
    uint32_t committed_voters;
    uint32_t n_ghosts;
    struct co_coord_ghost ghosts[CO_COORD_GHOSTS_MAX];

    struct co_fleet_plan plan; /* The newest held; its seats last, so that few pages are touched. */
    struct co_coord_reported reported[CO_FLEET_AGENTS_MAX]; /* By member's slot. */
};

struct co_coord {
    struct co_coord_config config;
    struct co_members members;
    co_ms now;
    co_unix wall;
    co_ms started_at;
    co_ms gossip_due;
    uint64_t seq;
    bool view_dirty;
    bool draining;
    bool left;
    unsigned hello; /* Beats that still list our queues because somebody is new. */
    unsigned beats;
    uint64_t gossip_override; /* Beats left that carry overrides. */
    size_t override_next;
    size_t n_overrides;
    struct co_fleet_override overrides[CO_FLEET_OVERRIDES_MAX];
    size_t n_queues; /* Slots in use or once used. */
    struct co_coord_queue queues[CO_FLEET_QUEUES_MAX];
};

/* coord need not be zeroed. The config is copied. */
void co_coord_init(struct co_coord *coord, const struct co_coord_config *config, co_ms now);

/* Advance by one event. *ret_update says what to do now: the changes in their order, then the
 * sends; afterwards co_coord_deadline() must bring a TICK. The sends are only names: make each
 * message with co_coord_message() before the next step.
 *
 * Errors, after which nothing has changed: CO_EFULL (a queue or agent too many), CO_EMALFORMED,
 * CO_EVERSION (the message), CO_EBUSY (a claimed id, see the alarm), CO_EUNSUPPORTED (a strict
 * queue without fleet.expected, or one that waits for jobs that have no timeout), CO_ENOTFOUND (a
 * queue not served). ret_update is filled even so: it may hold an alarm. */
int co_coord_step(struct co_coord *coord, const struct co_coord_event *event,
                  struct co_coord_update *ret_update);

/* When the next TICK is due. */
co_ms co_coord_deadline(const struct co_coord *coord);

/* Make the message of a send of the last update, for one receiver or all alike. */
void co_coord_message(struct co_coord *coord, const struct co_coord_send *send,
                      struct co_fleet_msg *ret_msg);

/* The beat for a stranger: what to say first on a new connection. */
void co_coord_hello(struct co_coord *coord, struct co_fleet_msg *ret_msg);

/* The version to write: the lowest spoken by a living member. */
uint8_t co_coord_version(const struct co_coord *coord);

/* The queue's state, or NULL: to look at (plan, owner, limit, reported[slot] of members). */
const struct co_coord_queue *co_coord_queue_get(const struct co_coord *coord, uint64_t queue);

/* The override in force on a queue, or NULL. */
const struct co_fleet_override *co_coord_override(const struct co_coord *coord, uint64_t queue);

/* What the owner's scaler needs: the living members' numbers on a queue, added up (ready: the
 * newest seen; service_us: the mean by done_per_s). Returns how many members were counted. */
size_t co_coord_loads(const struct co_coord *coord, uint64_t queue, struct co_fleet_load *ret_sum);

#endif /* CO_AUTOSCALE_COORD_H */
