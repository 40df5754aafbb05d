/* Tickets: the jobs this agent holds, and the admission queues they wait in.
 *
 *     QUEUED ──give──► GIVEN ──end──► ENDED ──settled──► (free)
 *        │             │   ▲            ▲
 *        │  worker died▼   │bookkeeper  │
 *        │            ORPHAN────────────┤
 *        └──────────── drop, return ────┘
 *
 * Ticket numbers rise for ever in the order of admission; a queue is first in, first out. Pure:
 * fixed tables, full is an error. What a ticket owns outside (payload, error text) hangs on it as
 * opaque pointers that the caller frees. */

#ifndef CO_AGENT_TICKETS_H
#define CO_AGENT_TICKETS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/turn.h"
#include "proto/config.h"
#include "proto/time.h"
#include "proto/view.h"

#define CO_TICKETS_MAX 8192 /* A power of two. */
#define CO_QUEUES_MAX 256

enum co_ticket_state {
    CO_TICKET_FREE = 0,
    CO_TICKET_QUEUED,
    CO_TICKET_GIVEN,
    CO_TICKET_ORPHAN, /* Its worker died; it waits for a bookkeeper, who gets it GIVEN again. */
    CO_TICKET_ENDED,  /* Its outcome waits to be settled. */
    CO_TICKET_STATES,
};

struct co_ticket {
    uint64_t id;
    enum co_ticket_state state;
    uint32_t queue;
    uint32_t source;
    uint32_t table;
    int64_t job_id;
    int64_t reserved_at;
    int64_t available_at;
    int64_t created_at;
    uint32_t attempts; /* Starts before this one, as stored. */
    uint32_t crashes;  /* Workers it took down before. */
    uint32_t pool;     /* GIVEN, ENDED: who has it. */
    uint32_t worker;
    co_ms admitted_at;
    co_ms given_at;
    bool began;          /* The slot said so. */
    bool start_recorded; /* The source knows. */
    bool in_turn;        /* Part of the turn under way. */
    enum co_outcome outcome;
    uint32_t delay_s;
    bool record;
    co_ms deadline;  /* GIVEN: when its worker must be ended; 0 = never. */
    bool ending;     /* Its time is over; the deadline is that of the kill now. */
    bool felled;     /* Its worker died before it began. */
    bool orphaned;   /* A bookkeeper has it, or waits for it. */
    bool failed_ran; /* failed() has been called already. */
    bool final;      /* ... and must fail it. */
    enum co_cause cause;
    uint32_t bookkeepings; /* That failed. */
    uint8_t *payload;      /* Opaque. */
    uint64_t payload_size;
    char *text; /* Opaque; error text on its way to the source. */
    struct co_payload_facts facts;
    uint32_t next; /* In its queue or the list of ended ones; index + 1, 0 = last. */
};

struct co_ticket_list {
    uint32_t head; /* Index + 1; 0 = empty. */
    uint32_t tail;
    uint32_t count;
};

/* What happened to the jobs of a queue, for metrics. */
struct co_queue_counts {
    uint64_t done, failed, released, crashed, lost, declined, timeouts;
};

struct co_queue {
    char name[CO_TEXT_SIZE];
    uint32_t pool;
    uint32_t source;
    uint32_t table;
    uint32_t rank;    /* Lower is served first; equal ranks share by ticket. */
    co_ms hold_until; /* Declined: not asked again before. */
    bool discovered;  /* Found in the source: makes room for another once it is empty. */
    bool held;        /* Paused or in maintenance: nothing is claimed or handed over. */
    uint32_t share;   /* Of its jobs at work at once, what the fleet leaves to this agent ... */
    uint32_t limit;   /* ... and what the balance leaves to the queue. UINT32_MAX: no limit. */
    co_ms lease;      /* Nothing of it begins after; 0: no lease. */
    struct co_ticket_list waiting;
    uint32_t n_given;
    struct co_queue_counts counts;
    struct co_turn_depth depth; /* As last reported by the source. */
};

struct co_tickets {
    uint64_t last_id;
    uint32_t n_used;
    uint32_t orphans[CO_POOLS_MAX];                   /* ORPHAN, by pool. */
    uint32_t waiting[CO_POOLS_MAX];                   /* QUEUED, by pool. */
    struct co_ticket_list ended[CO_VIEW_SOURCES_MAX]; /* ENDED, not in a turn, by source. */
    struct co_ticket table[CO_TICKETS_MAX];
    uint32_t n_queues;
    struct co_queue queues[CO_QUEUES_MAX];
};

/* Add a queue and return its index. Errors: CO_EFULL. */
int co_tickets_add_queue(struct co_tickets *tickets, const char *name, uint32_t pool,
                         uint32_t source, uint32_t table, uint32_t rank);

/* A discovered queue without rows, tickets or claims on their way in the turn (NULL: none), or
 * CO_ENOTFOUND; it may be made another with co_tickets_reuse_queue(). */
int co_tickets_idle_queue(const struct co_tickets *tickets, const struct co_turn *turn);
void co_tickets_reuse_queue(struct co_tickets *tickets, uint32_t index, const char *name,
                            uint32_t pool, uint32_t source, uint32_t table, uint32_t rank);

/* Index of the queue of that name at that source and table, or CO_ENOTFOUND. */
int co_tickets_find_queue(const struct co_tickets *tickets, uint32_t source, uint32_t table,
                          const char *name);

/* How many more of its jobs may be given now. */
uint32_t co_tickets_room(const struct co_queue *queue);

/* Admit a claim at the end of its queue. The ticket takes the payload. Errors: CO_EFULL. */
int co_tickets_admit(struct co_tickets *tickets, uint32_t queue, struct co_turn_claim *claim,
                     co_ms now, struct co_ticket **ret_ticket);

/* The ticket of that number, or NULL. */
struct co_ticket *co_tickets_get(struct co_tickets *tickets, uint64_t id);

/* The ticket the pool must serve next: lowest rank first, then the lowest number; NULL if none.
 * Only those of the given sources (a bit each) count. */
struct co_ticket *co_tickets_next(struct co_tickets *tickets, uint32_t pool, uint32_t sources,
                                  co_ms now);

/* QUEUED -> GIVEN. */
void co_tickets_give(struct co_tickets *tickets, struct co_ticket *ticket, uint32_t worker,
                     co_ms now);

/* GIVEN -> ORPHAN, and ORPHAN -> GIVEN to a bookkeeper. */
void co_tickets_orphan(struct co_tickets *tickets, struct co_ticket *ticket);
void co_tickets_adopt(struct co_tickets *tickets, struct co_ticket *ticket, uint32_t worker,
                      co_ms now);

/* The oldest orphan of a pool, or NULL. */
struct co_ticket *co_tickets_next_orphan(struct co_tickets *tickets, uint32_t pool);

/* QUEUED, GIVEN or ORPHAN -> ENDED with an outcome, in line to be settled. */
void co_tickets_end(struct co_tickets *tickets, struct co_ticket *ticket, enum co_outcome outcome,
                    uint32_t delay_s);

/* QUEUED -> ENDED with nothing to settle: it leaves no trace. */
void co_tickets_cancel(struct co_tickets *tickets, struct co_ticket *ticket);

/* Take the next ticket to settle out of the line (NULL: none), and put one back. */
struct co_ticket *co_tickets_pop_ended(struct co_tickets *tickets, uint32_t source);
void co_tickets_push_ended(struct co_tickets *tickets, struct co_ticket *ticket);

/* ENDED and out of the line -> FREE; the caller has taken payload and text. */
void co_tickets_free(struct co_tickets *tickets, struct co_ticket *ticket);

#endif /* CO_AGENT_TICKETS_H */
