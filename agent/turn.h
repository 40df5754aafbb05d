/* A turn with a source: everything the agent wants of it at one moment, in one transaction, and
 * what came back. Plain data that travels between the loop and the source's thread; whoever holds
 * the turn owns it and all it points to. One turn a source is under way at a time, so that while
 * one commits the next gathers: group commit without a timer. */

#ifndef CO_AGENT_TURN_H
#define CO_AGENT_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/config.h"
#include "proto/control.h"
#include "proto/err.h"
#include "proto/time.h"
#include "worker/dispatch.h"

#define CO_TURN_SETTLES_MAX 1024
#define CO_TURN_STARTS_MAX 1024
#define CO_TURN_CLAIMS_MAX 1024
#define CO_TURN_WANTS_MAX 256
#define CO_TURN_QUEUES_MAX 256 /* Queues a depth or discovery answer can hold. */
#define CO_TURN_TEXT_SIZE 240

/* Write an outcome back. Applied only where the row still carries our reserved_at and our row in
 * cohort_holds; else ret_applied stays false (somebody else has it: nothing is done). */
struct co_turn_settle {
    uint64_t ticket;
    uint32_t table; /* Index into the source's tables. */
    int64_t job_id;
    int64_t reserved_at;
    enum co_outcome outcome;
    uint32_t delay_s;
    bool began;  /* The attempt counts (RELEASED, LEFT, CRASHED) unless outcome says not. */
    bool felled; /* RETURNED: its worker died before the job began; counted as a crash beside
                    the job, no attempt. */
    bool record; /* FAILED: write the failed_jobs row here (plain PHP). */
    char *text;  /* For that row; malloc'd or NULL, freed with the turn. */
    bool ret_applied;
};

/* A claimed job has begun: attempts+1 and begun=1 in cohort_holds. Not sent when an outcome of the
 * same job travels in the same turn. */
struct co_turn_start {
    uint64_t ticket;
    uint32_t table;
    int64_t job_id;
    int64_t reserved_at;
    bool ret_applied;
};

/* Claim up to `count` jobs of a queue, oldest id first, at most `bytes` of payload (at least one
 * job whatever its size). Wants that follow one another with the same `group` share: `count` caps
 * what the whole group has claimed so far in this turn, and a want is looked at only when the wants
 * of its group with a lower `rank` left nothing (no ret_more). */
struct co_turn_want {
    uint32_t group;
    uint32_t rank;
    uint32_t table;
    uint32_t queue; /* The caller's own number, given back in the claims. */
    char name[CO_TEXT_SIZE];
    uint32_t count;
    uint64_t bytes;
    uint32_t ret_count;
    bool ret_more; /* There may be more to claim. */
};

struct co_turn_claim {
    uint32_t table;
    uint32_t queue; /* From the want. */
    int64_t job_id;
    int64_t reserved_at;
    int64_t available_at;
    int64_t created_at;
    uint32_t attempts; /* As stored: starts before this one. */
    uint32_t crashes;  /* Workers it took down already. */
    uint8_t *payload;  /* malloc'd, owned by the turn; take it by setting NULL. NUL-terminated. */
    uint64_t payload_size;
    struct co_payload_facts facts;
};

struct co_turn_depth {
    uint32_t table;
    char name[CO_TEXT_SIZE];
    uint64_t ready;
    uint64_t delayed;
    uint64_t reserved;        /* All reserved rows, ours included. */
    uint64_t reserved_others; /* Reserved without a row of ours: stock workers or other agents. */
    co_unix oldest_ready;     /* available_at of the oldest ready job, 0 = none. */
};

struct co_turn {
    /* Asked. */
    uint32_t n_settles;
    struct co_turn_settle settles[CO_TURN_SETTLES_MAX];
    uint32_t n_starts;
    struct co_turn_start starts[CO_TURN_STARTS_MAX];
    uint32_t n_wants;
    struct co_turn_want wants[CO_TURN_WANTS_MAX];
    bool heartbeat; /* Give all our holds reserved_at = now, so that none reaches retry_after. */
    bool recover;   /* Look for dead holders and settle or give back what they held. */
    bool depths;    /* Fill depths (and with it: the names that exist). Comes back false when they
                       could not be read though the turn was committed: keep the last ones. */
    bool bye;       /* Give back whatever we hold, remove our lock file, close. */

    /* Came back. code 0, or negative with err; then nothing of the turn was applied and the caller
     * asks again. CO_EAGAIN: locked by others for longer than the busy timeout. */
    int code;
    struct co_err err;
    uint32_t n_claims;
    struct co_turn_claim claims[CO_TURN_CLAIMS_MAX];
    uint32_t n_depths;
    struct co_turn_depth depth[CO_TURN_QUEUES_MAX];
    bool foreign_change; /* Somebody else committed since our last turn. */
    uint32_t n_gone;     /* Held but not begun tickets (job ids) that vanished or were taken. */
    struct {
        uint32_t table;
        int64_t job_id;
        int64_t reserved_at;
    } gone[CO_TURN_CLAIMS_MAX];
    uint32_t n_beats; /* After a heartbeat: the holds' new reserved_at, by old one. */
    struct {
        uint32_t table;
        int64_t job_id;
        int64_t was;
        int64_t reserved_at;
    } beats[CO_TURN_CLAIMS_MAX + CO_WORKERS_MAX];
    co_unix next_due;       /* The earliest available_at still to come, over all wants; 0 none. */
    uint32_t n_quarantined; /* Payloads put aside in this turn. */
    uint64_t quarantined;   /* After depths: how many lie in quarantine. */
    char quarantined_why[CO_TURN_TEXT_SIZE];
    uint32_t n_recovered_settled; /* recover: outcomes found in a dead agent's wires. */
    uint32_t n_recovered_lost;    /* recover: begun without outcome. */
    uint32_t n_recovered_back;    /* recover: never begun. */
    uint64_t total_held;          /* Rows of ours in cohort_holds. */
    uint32_t took_us;
};

struct co_turn *co_turn_new(void);
void co_turn_reset(struct co_turn *turn); /* Frees what it owns; ready for use again. */
void co_turn_free(struct co_turn **turn);

#endif /* CO_AGENT_TURN_H */
