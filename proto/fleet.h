/* What the agents of a fleet tell each other: plain structs, which proto/fleet_frame.h puts on the
 * wire and autoscale/coord.h makes and takes. Five kinds:
 *
 *     beat     everyone  -> all     I live; whom I miss; which queues I serve; overrides
 *     report   member    -> owner   numbers of the queues it owns, and which plan I hold
 *     plan     owner     -> all     target, shares and grants of one queue
 *     claim    candidate -> all     strict queues: who will have me as owner?
 *     ack      owner     -> member  strict queues: I heard your report; up to where plans hold
 *
 * Every message is state, never an order: the newest wins, any may be lost, repeated or late.
 * Arrays stand last in a message and only their first n entries mean anything; co_fleet_size() says
 * how much of the struct that is. */

#ifndef CO_PROTO_FLEET_H
#define CO_PROTO_FLEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/time.h"

#define CO_FLEET_VERSION 2     /* Spoken by this agent; 1 lacks history, relays and lag. */
#define CO_FLEET_VERSION_MIN 1 /* Understood and, while one such agent is seen, written. */

#define CO_FLEET_AGENTS_MAX 256
#define CO_FLEET_QUEUES_MAX 64
#define CO_FLEET_WORKERS_MAX 65535 /* Workers one number may speak of: more is refused. */
#define CO_FLEET_DOWNS_MAX 16
#define CO_FLEET_RELAYS_MAX 16
#define CO_FLEET_OVERRIDES_MAX 32 /* Known at once, and in one beat at most ... */
#define CO_FLEET_BEAT_OVERRIDES_MAX 4
#define CO_FLEET_HISTORY_SIZE 160 /* Of the scaler's memory, opaque here. */
#define CO_FLEET_BY_SIZE 32
#define CO_FLEET_REASON_SIZE 96
#define CO_FLEET_HOLD_MAX 604800000u /* A week, in ms: the longest job a strict queue may have. */

#define CO_FLEET_GOSSIP_MS 200
#define CO_FLEET_SUSPECT_MS 1500
#define CO_FLEET_FENCE_MS 2500 /* Silent for so long: dead; without an owner's ack: fenced. */
#define CO_FLEET_LEASE_MS 4000

/* Orders plans of one queue: by term, then owner, then seq. All 0: no plan. */
struct co_fleet_epoch {
    uint64_t term;
    uint64_t owner;
    uint64_t seq;
};

enum co_fleet_split {
    CO_FLEET_AVAILABLE = 0,
    CO_FLEET_STRICT,
};

enum co_fleet_on_fence {
    CO_FLEET_WAIT = 0,
    CO_FLEET_KILL,
};

enum co_fleet_action {
    CO_FLEET_RESUME = 0, /* Ends an override. */
    CO_FLEET_PAUSE,
    CO_FLEET_SCALE,
};

/* An operator's word on one queue. The newest (epoch, agent) wins. */
struct co_fleet_override {
    uint64_t queue;
    uint64_t epoch; /* When it was given, in seconds, and more than any its author knew. */
    uint64_t agent; /* Where it was given; breaks ties. */
    uint32_t action;
    uint32_t value;  /* Of SCALE: workers. */
    co_unix since;   /* Seconds. */
    co_unix expires; /* 0: never. */
    char by[CO_FLEET_BY_SIZE];
    char reason[CO_FLEET_REASON_SIZE];
};

/* Another agent as the sender sees it. */
struct co_fleet_sight {
    uint64_t id;
    uint64_t incarnation;
    uint64_t seq; /* The newest beat of it that the sender knows of. */
};

enum {
    CO_FLEET_LEAVING = 1 << 0,  /* My last word: I run nothing any more. */
    CO_FLEET_DRAINING = 1 << 1, /* I shall leave: give me nothing, let me own nothing. */
    CO_FLEET_QUEUES = 1 << 2,   /* The beat lists the queues I serve (perhaps none). */
    CO_FLEET_HELLO = 1 << 3,    /* I have just come to know of you: answer with a beat. */
};

struct co_fleet_beat {
    uint64_t overrides_digest; /* Differs from yours: send what you have. */
    uint64_t view_digest;      /* Of the ids and incarnations the sender holds to be alive. */
    uint32_t lag_ms;           /* The sender's loop lag. */
    uint32_t flags;
    uint16_t n_downs, n_relays, n_queues, n_overrides;
    struct co_fleet_sight downs[CO_FLEET_DOWNS_MAX];   /* Known, and not heard any more. */
    struct co_fleet_sight relays[CO_FLEET_RELAYS_MAX]; /* Heard of late; in large fleets only. */
    uint64_t queues[CO_FLEET_QUEUES_MAX];
    struct co_fleet_override overrides[CO_FLEET_BEAT_OVERRIDES_MAX];
};

/* One agent's numbers on one queue, as of now. */
struct co_fleet_load {
    uint32_t capacity;   /* Workers it could run for the queue; 0 while draining or broken. */
    uint32_t running;    /* Jobs begun and not ended, on draining workers too. */
    uint32_t claimed;    /* Taken from the source, not begun. */
    uint32_t booting;    /* Workers on their way. */
    uint32_t idle;       /* Workers without a job. */
    uint32_t ready;      /* Depth as seen in the last claim reply. */
    uint32_t done_per_s; /* Jobs ended, times 1000. */
    uint32_t service_us; /* Mean duration of a job of late; 0: unknown. */
};

enum {
    CO_FLEET_FRESH = 1 << 0,  /* Strict: started of late and knows no plan: may have forgotten. */
    CO_FLEET_FENCED = 1 << 1, /* Strict: runs nothing new under the plan held. */
};

struct co_fleet_report_entry {
    uint64_t queue;
    struct co_fleet_epoch epoch; /* The newest plan held. */
    uint64_t term;               /* Strict: the owner promised to is the receiver, in this term. */
    co_ms echo;                  /* Strict: stamp of the owner's newest message; 0: none. */
    uint64_t policy_hash;
    uint32_t max;     /* The fleet's maximum by the sender's policy. */
    uint32_t hold_ms; /* How long its jobs may outlast its silence (strict). */
    uint32_t grant;   /* Workers it holds itself allowed to run. */
    uint32_t flags;
    struct co_fleet_load load;
};

struct co_fleet_report {
    co_ms stamp; /* The sender's clock; comes back in the ack. */
    uint16_t n_entries;
    struct co_fleet_report_entry entries[CO_FLEET_QUEUES_MAX];
};

/* One agent's part in a plan. */
struct co_fleet_seat {
    uint64_t id;
    uint64_t incarnation;
    uint32_t capacity;
    uint32_t share; /* The goal. */
    uint32_t grant; /* Now. Equal to share where the split is available. */
    uint32_t held;  /* Strict: what it may hold at most, running jobs included. */
};

struct co_fleet_plan {
    uint64_t queue;
    struct co_fleet_epoch epoch;
    co_ms stamp; /* The owner's clock. */
    uint64_t policy_hash;
    uint64_t tie, tie_next; /* Strict: agents an exact half needs among it. */
    uint32_t target;
    uint32_t max;
    uint32_t split; /* enum co_fleet_split */
    uint32_t on_fence;
    uint32_t hold_ms;
    uint32_t voters; /* Strict: what a majority is of. */
    uint16_t history_size;
    uint16_t n_seats;
    uint8_t history[CO_FLEET_HISTORY_SIZE];
    struct co_fleet_seat seats[CO_FLEET_AGENTS_MAX]; /* By id, then incarnation. */
};

struct co_fleet_claim {
    uint64_t queue;
    uint64_t term;
    co_ms stamp;
    struct co_fleet_epoch epoch; /* The newest plan the candidate knows. */
};

struct co_fleet_ack {
    uint64_t queue;
    uint64_t term;
    co_ms stamp;                     /* The owner's clock; comes back in the next report. */
    co_ms echo;                      /* Stamp of the member's newest report. */
    uint64_t echo_incarnation;       /* The member the echo is of. */
    struct co_fleet_epoch committed; /* Plans up to here may be grown into. */
};

enum co_fleet_kind {
    CO_FLEET_BEAT = 1,
    CO_FLEET_REPORT,
    CO_FLEET_PLAN,
    CO_FLEET_CLAIM,
    CO_FLEET_ACK,
};

struct co_fleet_msg {
    uint8_t kind;         /* enum co_fleet_kind */
    uint8_t version;      /* The highest the sender speaks. */
    uint64_t from;        /* Never 0. */
    uint64_t incarnation; /* Rises with every start of an agent; never 0. */
    uint64_t seq;         /* Rises with every message of an incarnation. */
    union {
        struct co_fleet_beat beat;
        struct co_fleet_report report;
        struct co_fleet_plan plan;
        struct co_fleet_claim claim;
        struct co_fleet_ack ack;
    };
};

/* Bytes of msg that mean something: what has to be copied. */
size_t co_fleet_size(const struct co_fleet_msg *msg);

/* Is what a peer sent possible at all: counts within their arrays, ids not 0, numbers no fleet has?
 * Error: CO_EMALFORMED, CO_EVERSION (older than CO_FLEET_VERSION_MIN). */
int co_fleet_check(const struct co_fleet_msg *msg);

/* < 0, 0, > 0 as a is older than, the same as, newer than b. */
int co_fleet_epoch_compare(const struct co_fleet_epoch *a, const struct co_fleet_epoch *b);

#endif /* CO_PROTO_FLEET_H */
