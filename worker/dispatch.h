/* Hand-over between the agent and one worker: the wire file.
 *
 * A wire file is one file in the run directory, mapped by the agent and by exactly one worker:
 *
 *     wire = slot (one page)  ring to the worker  ring to the agent
 *
 * The slot says what the worker does (phase and ticket in one atomic word); the rings carry
 * messages, single producer and single consumer each. A pool also has one bell file that says
 * whether the agent sleeps. All are fixed-size integers without pointers, so that a successor of a
 * killed agent can read them: outcomes found in the ring to the agent that were not yet released
 * are settled, a ticket in phase RUNNING is lost, everything else never began.
 *
 * This module is pure: it works on mapped memory, never maps, waits or wakes. Functions that
 * publish something say whether somebody must be woken.
 *
 *     message = size:u32 type:u16 flags:u16 ticket:u64 body[size]   ; 8-byte aligned
 *
 * The agent treats everything in a wire as hostile: it copies a record out before it reads it, and
 * every position is masked and checked. */

#ifndef CO_WORKER_DISPATCH_H
#define CO_WORKER_DISPATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/time.h"

#define CO_WIRE_MAGIC 0x31574f43u /* "COW1" */
#define CO_BELL_MAGIC 0x31424f43u /* "COB1" */
#define CO_LANE_MAGIC 0x314c4f43u /* "COL1" */
#define CO_WIRE_VERSION 1

#define CO_RING_SIZE (64u * 1024)
#define CO_RECORD_MAX (16u * 1024) /* Header and body; a larger body travels by overflow file. */
#define CO_RECORD_HEADER 16u

/* Sent to a worker after co_slot_end(): the running ticket's time is over. SIGRTMIN + this, since
 * libc settles SIGRTMIN only at run time. A worker ignores it unless the ticket that runs now is in
 * phase ENDING. */
#define CO_SIGNAL_TIMEOUT 5

/* Sent to a job worker that is told to stop while it has a ticket: SIGRTMIN + this. A worker
 * ignores it unless a ticket is in phase RUNNING; the job goes on. */
#define CO_SIGNAL_STOP 6

/* What a worker does with its ticket. */
enum co_phase {
    CO_PHASE_IDLE = 0, /* With the last ticket it ended. */
    CO_PHASE_RUNNING,
    CO_PHASE_ENDING, /* The agent ends this ticket: nothing begins any more. */
};

/* What became of a job. The values are part of the wire format. */
enum co_outcome {
    CO_OUTCOME_DONE = 1, /* Delete it. */
    CO_OUTCOME_RELEASED, /* Back after delay_s; the attempt counts. */
    CO_OUTCOME_FAILED,   /* For good. PHP has recorded it unless CO_END_RECORD is set. */
    CO_OUTCOME_DECLINED, /* Vetoed before it began: back in place, no attempt. */
    CO_OUTCOME_RETURNED, /* Taken but never begun: back in place, no attempt. */
    CO_OUTCOME_LEFT,     /* Neither deleted nor released: stays reserved until retry_after. */
    CO_OUTCOME_CRASHED,  /* Its worker died: back now, the attempt counts. Made by the agent. */
    CO_OUTCOME_LOST,     /* Its agent died: back now, the start is given back. Made by the agent. */
    CO_OUTCOME_QUARANTINED, /* Put aside, kept and shown: not even a bookkeeper could end it. Made
                               by the agent. */
};

/* Who the job is at its source, so that a successor can settle it without the dead agent's
 * memory. */
struct co_job_ref {
    uint64_t source;     /* Fingerprint of the source and table. */
    int64_t job_id;      /* Row id. */
    int64_t reserved_at; /* Fence: the value the claim wrote. */
    uint32_t attempts;   /* Counting this start. */
    uint32_t pad;
};

struct co_slot {
    uint32_t magic;
    uint32_t version;
    uint64_t agent_id; /* Of the agent that made the file. */
    uint32_t worker;   /* Index in its pool. */
    uint32_t generation;
    char pool[64];
    _Atomic uint64_t state;       /* phase | ticket << 8 */
    _Atomic uint64_t since_ms;    /* BOOTTIME of the last change of state. */
    _Atomic uint64_t begun;       /* The last ticket that began; 0 = none. */
    _Atomic uint64_t lease_until; /* BOOTTIME ms after which nothing begins; 0 = no lease. */
    struct co_job_ref job;        /* Of the ticket in `begun`; written before RUNNING. */
    _Atomic uint64_t failed;      /* The last ticket whose failed() was about to run; 0 = none. */
    uint8_t pad[4096 - 160];
};
_Static_assert(sizeof(struct co_slot) == 4096, "the slot is one page of the wire format");

struct co_ring {
    _Alignas(64) _Atomic uint64_t head; /* Producer: bytes ever written. */
    _Alignas(64) _Atomic uint64_t tail; /* Consumer: bytes ever released. */
    _Atomic uint32_t sleeping;          /* Futex word: 1 = the consumer waits in the kernel. */
    uint8_t pad[4096 - 64 - 12];
    uint8_t data[CO_RING_SIZE];
};
_Static_assert(sizeof(struct co_ring) == 4096 + CO_RING_SIZE, "a ring is a page and its data");
_Static_assert(offsetof(struct co_ring, data) == 4096, "records are aligned in the file");

struct co_wire {
    struct co_slot slot;
    struct co_ring to_worker;
    struct co_ring to_agent;
};

struct co_bell {
    uint32_t magic;
    uint32_t version;
    _Alignas(64) _Atomic uint32_t agent_sleeps; /* 1: write to the eventfd after publishing. */
    uint8_t pad[4096 - 128];
};

/* The staged lane of a pool: the next few tickets, for whichever worker comes first.
 *
 *     position   tail ........... x ........... head
 *     its word        taken, read │   staged    │        word = position << 16 | owner
 *                     or not yet  │             │
 *
 * The agent stages at the head and takes back the youngest; workers take the oldest staged one by
 * compare-and-swap, and only after they saw every position before it taken (or taken back: that
 * position is void and never used again). So takes are in the order of staging. A word names its
 * position, so that a worker which looks long after it read tail and head cannot mistake a new lap
 * for the old. A worker reads the head, then looks at its own ring, and then takes nothing past
 * that head: what the agent gave it directly, before it staged more, comes first.
 * A word that was taken says by whom: a worker may die at any step, and the agent knows what it
 * had. Nothing here is needed by a successor: what never began goes back from the source's side,
 * and what began stands in the slots. */
#define CO_LANE_CELLS 64u
#define CO_LANE_CELL_SIZE 4096u
#define CO_LANE_BODY_MAX (CO_LANE_CELL_SIZE - 16u)

struct co_lane_cell {
    uint64_t ticket;
    uint32_t size;
    uint16_t type;
    uint16_t flags;
    uint8_t body[CO_LANE_BODY_MAX];
};
_Static_assert(sizeof(struct co_lane_cell) == CO_LANE_CELL_SIZE, "a cell is a page");

struct co_lane {
    uint32_t magic;
    uint32_t version;
    uint64_t agent_id;
    _Alignas(64) _Atomic uint64_t fresh_until; /* BOOTTIME ms after which nothing is taken. */
    _Atomic uint64_t bell_from; /* Taking this position or a later one wakes the agent. */
    _Alignas(64) _Atomic uint64_t head;
    _Atomic uint64_t tail;
    _Alignas(64) _Atomic uint64_t words[CO_LANE_CELLS];
    uint8_t pad[4096 - 704];
    struct co_lane_cell cells[CO_LANE_CELLS];
};
_Static_assert(offsetof(struct co_lane, cells) == 4096, "cells are aligned in the file");

enum co_record_type {
    /* Agent to worker. */
    CO_RECORD_JOB = 1,
    CO_RECORD_CONTROL = 2,  /* A question for a control worker: name NUL json. */
    CO_RECORD_STOP = 3,     /* Finish: leave the loop, run the shutdown hooks, exit 0. */
    CO_RECORD_BOOKKEEP = 4, /* A job whose worker died: body as JOB, cause set. For a bookkeeper. */
    /* Worker to agent. */
    CO_RECORD_READY = 16, /* Booted; body: JSON about the worker, may be empty. */
    CO_RECORD_END = 17,
    CO_RECORD_REPLY = 18,       /* Answer to CONTROL; flag CO_FLAG_OK or not; body: JSON. */
    CO_RECORD_LOG = 19,         /* body: level:u8 text. */
    CO_RECORD_BOOT_FAILED = 21, /* This worker did not boot; body: why, for people. */
};

enum {
    CO_FLAG_OVERFLOW = 1 << 0, /* JOB, CONTROL, REPLY: the body's long part is in the overflow
                                  file WIRE.i<ticket> (to the worker) or WIRE.o<ticket>. */
    CO_FLAG_OK = 1 << 1,
};

struct co_record {
    uint16_t type;
    uint16_t flags;
    uint64_t ticket;
    const uint8_t *body; /* Into the ring (peek) or the caller's copy (copy). */
    uint32_t size;
};

/* A job on its way to a worker. Strings are borrowed; decoding lends from the record's body. */
struct co_job_msg {
    struct co_job_ref ref;
    int64_t available_at;
    int64_t created_at;
    uint32_t timeout_ms;   /* Pool or policy default; the job class's own wins in PHP. */
    int32_t tries;         /* Likewise; 0 = unlimited. */
    uint64_t memory_bytes; /* Checked after the job; 0 = off. */
    const char *connection;
    uint32_t connection_size;
    const char *queue;
    uint32_t queue_size;
    const char *backoff; /* Laravel's comma list. */
    uint32_t backoff_size;
    const uint8_t *payload; /* NULL when in the overflow file. */
    uint64_t payload_size;
    uint32_t cause;         /* BOOKKEEP: enum co_cause; 0 otherwise. */
    uint32_t final;         /* BOOKKEEP: CO_FINAL_ flags. */
    const char *cause_text; /* BOOKKEEP: for the exception: "worker ended by signal 11 ...". */
    uint32_t cause_size;
};

enum {
    CO_FINAL_FAIL = 1 << 0,   /* It must fail now, whatever its tries say. */
    CO_FINAL_FAILED = 1 << 1, /* Its failed() has been called already: only record the rest. */
};

/* Why a job needs a bookkeeper. */
enum co_cause {
    CO_CAUSE_TIMEOUT = 1, /* It ran over its time and its own handler did not finish. */
    CO_CAUSE_CRASH,       /* Its worker died under it: signal, exit(), fatal error. */
    CO_CAUSE_OOM,         /* Ended for its memory, by us or by the kernel. */
};

enum {
    CO_END_RECORD = 1 << 0,  /* FAILED: the agent writes the failed_jobs row (plain PHP). */
    CO_END_MEMORY = 1 << 1,  /* The worker is over job.memory: replace it. */
    CO_END_TIMEOUT = 1 << 2, /* Written by the handler of a time limit. */
};

struct co_end_msg {
    struct co_job_ref ref;
    uint32_t outcome; /* enum co_outcome, checked by the decoder. */
    uint32_t flags;
    uint32_t delay_s;
    uint32_t run_us;  /* From begin to end. */
    const char *text; /* Exception class, message and trace, cut at CO_END_TEXT_MAX. */
    uint32_t text_size;
};
#define CO_END_TEXT_MAX 8192u

/* ---- wire and bell ---- */

/* Lay out fresh memory of sizeof(struct co_wire); the agent's side. */
void co_wire_init(struct co_wire *wire, uint64_t agent_id, const char *pool, uint32_t worker,
                  uint32_t generation);

/* Check what was mapped. Errors: CO_EMALFORMED, CO_EVERSION. */
int co_wire_check(const struct co_wire *wire, size_t size);
void co_bell_init(struct co_bell *bell);
int co_bell_check(const struct co_bell *bell, size_t size);

/* ---- slot ---- */

enum co_phase co_slot_phase(const struct co_slot *slot, uint64_t *ret_ticket);

/* Worker: begin the ticket, or return false when the agent is ending it or the lease is over. */
bool co_slot_begin(struct co_slot *slot, uint64_t ticket, const struct co_job_ref *job, co_ms now);

/* Worker: the ticket's END is in the ring; become idle. False when the agent is ending it: the
 * worker must then wait for its end. */
bool co_slot_finish(struct co_slot *slot, uint64_t ticket, co_ms now);

/* Agent: end the ticket. True when it was running (so its worker may be killed now), false when
 * it is not this worker's running ticket any more. */
bool co_slot_end(struct co_slot *slot, uint64_t ticket, co_ms now);

/* ---- ring ---- */

/* Producer. Errors: CO_EFULL (nothing written), CO_ETOOBIG. *ret_wake: the consumer announced
 * sleep, wake its futex (to_worker) once. For to_agent the bell decides; ret_wake may be NULL. */
int co_ring_push(struct co_ring *ring, const struct co_record *record, bool *ret_wake);

/* Bytes a record of this body size needs to be free. */
bool co_ring_has_room(const struct co_ring *ring, size_t body_size);

/* Consumer. *cursor is the consumer's private position (start with co_ring_tail()); reading moves
 * it past the record and releases nothing. Returns 1 with a record, 0 when empty, CO_EMALFORMED
 * when the producer wrote nonsense (never read on after that).
 * peek lends from the ring; copy copies into buf (CO_RECORD_MAX) and is the one for a consumer
 * that does not trust the producer. */
int co_ring_peek(struct co_ring *ring, uint64_t *cursor, struct co_record *ret_record);
int co_ring_copy(struct co_ring *ring, uint64_t *cursor, uint8_t *buf,
                 struct co_record *ret_record);
uint64_t co_ring_tail(const struct co_ring *ring);
void co_ring_release(struct co_ring *ring, uint64_t cursor);
bool co_ring_empty(const struct co_ring *ring, uint64_t cursor);

/* Consumer: announce sleep on the ring's futex word; false when something came meanwhile (then do
 * not sleep; the announcement is withdrawn). The caller waits while *word == 1. */
bool co_ring_sleep(struct co_ring *ring, uint64_t cursor);
void co_ring_awake(struct co_ring *ring);

/* Producer, after it published something elsewhere: does the consumer sleep, and must its futex be
 * woken? True once a sleep. */
bool co_ring_rouse(struct co_ring *ring);

/* The agent announces that it is about to wait; after it, it must look at every ring once more.
 * A worker that published asks co_bell_rings() and writes to the eventfd when true. */
void co_bell_sleep(struct co_bell *bell);
void co_bell_awake(struct co_bell *bell);
bool co_bell_rings(struct co_bell *bell);

/* ---- lane: the agent's side ---- */

/* What the agent itself remembers; the file is only believed where it fits this. */
struct co_stager {
    struct co_lane *lane;
    uint64_t head, tail;
    struct {
        uint64_t ticket;
        bool taken; /* The agent knows who has it. */
        bool gone;  /* That worker is dead, or the ticket was taken back. */
    } at[CO_LANE_CELLS];
};

/* Lay out fresh memory; and check what was mapped. Errors: CO_EMALFORMED, CO_EVERSION. */
void co_lane_init(struct co_lane *lane, uint64_t agent_id, struct co_stager *stager);
int co_lane_check(const struct co_lane *lane, size_t size);

/* Stage a ticket behind all others. Errors: CO_EFULL, CO_ETOOBIG; nothing is staged then. Workers
 * that sleep must be woken after it: co_ring_rouse(). */
int co_lane_stage(struct co_stager *stager, const struct co_record *record);

/* Take the youngest staged ticket back. Returns 1 with the ticket, 0 when none is staged (any
 * more), CO_EMALFORMED when a worker wrote nonsense (never use this lane again then). */
int co_lane_recall(struct co_stager *stager, uint64_t *ret_ticket);

/* The next ticket that was taken and that the agent does not know of: from position *cursor on
 * (start with 0). Returns 1 and moves the cursor past it, 0, or CO_EMALFORMED. Knows nothing new
 * until co_lane_bind(). */
int co_lane_taken(const struct co_stager *stager, uint64_t *cursor, uint64_t *ret_ticket,
                  uint32_t *ret_place);

/* Has that worker taken the ticket? */
bool co_lane_has(const struct co_stager *stager, uint64_t ticket, uint32_t place);

/* The agent knows now that the ticket is taken. */
void co_lane_bind(struct co_stager *stager, uint64_t ticket);

/* The worker is dead: what it took is nobody's to read any more. Bind its tickets first. */
void co_lane_bury(struct co_stager *stager, uint32_t place);

/* ---- lane: a worker's side ---- */

/* Where the lane ends now; to be read before the look at the worker's own ring. */
uint64_t co_lane_head(const struct co_lane *lane);

/* Take the oldest staged ticket before that head for the worker at that place. The record is lent
 * from the lane until co_lane_read(). *ret_ring: ring the bell, the agent wants to stage more.
 * Returns 1, 0 when nothing is there for it, or CO_EMALFORMED (another worker wrote nonsense: take
 * nothing more). */
int co_lane_take(struct co_lane *lane, uint64_t head, uint32_t place, co_ms now,
                 struct co_record *ret_record, uint64_t *ret_position, bool *ret_ring);

/* The record is copied: the agent may use the cell again. */
void co_lane_read(struct co_lane *lane, uint64_t position, uint32_t place);

/* Is anything staged that may be taken? A worker that announced its sleep looks here once more. */
bool co_lane_waits(const struct co_lane *lane, co_ms now);

/* ---- messages ---- */

/* Encode into buf of CO_RECORD_MAX; returns the body size, or CO_ETOOBIG when the payload must go
 * by overflow (encode again with payload NULL and CO_FLAG_OVERFLOW set in the record). */
int co_job_encode(const struct co_job_msg *msg, uint8_t *buf, size_t buf_size);
int co_job_decode(const uint8_t *body, size_t size, struct co_job_msg *ret_msg);
int co_end_encode(const struct co_end_msg *msg, uint8_t *buf, size_t buf_size);
int co_end_decode(const uint8_t *body, size_t size, struct co_end_msg *ret_msg);

#endif /* CO_WORKER_DISPATCH_H */
