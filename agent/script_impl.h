/* What the two halves of the script share: script_redis.c writes, answer_redis.c reads. */

#ifndef CO_AGENT_SCRIPT_IMPL_H
#define CO_AGENT_SCRIPT_IMPL_H

#include "agent/attempts.h"
#include "agent/script_redis.h"

#define CO_SCRIPT_BUCKETS 4096u
#define CO_SCRIPT_OTHERS 64
#define CO_SCRIPT_SHA_SIZE 41

struct co_script_hold {
    struct co_script_hold *chain;       /* In its bucket. */
    struct co_script_hold *prev, *next; /* In the order of claims. */
    int64_t job_id;
    int64_t reserved_at;
    uint32_t queue; /* Into names. */
    bool begun;     /* The start is recorded. */
    bool invalid;   /* No payload: put aside with the next command. */
    char uuid[40];
    struct co_attempts attempts;
    uint8_t *member; /* As it lies in :reserved. */
    size_t size;
};

/* Another agent on the same Redis, as its record said. */
struct co_script_other {
    char agent[24];
    char record[CO_PATH_SIZE + 64];
    co_ms since; /* It has said so since. */
    bool seen;
};

struct co_script {
    struct co_script_config config;
    void *reader;
    char sha[CO_SCRIPT_SHA_SIZE]; /* As SCRIPT LOAD answered. */
    char me[24];
    uint64_t counter;
    bool joining;
    int64_t next_id;
    co_unix now;
    co_ms mono_ms;
    uint32_t n_names;
    char names[CO_TURN_QUEUES_MAX][CO_TEXT_SIZE]; /* Queues ever heard of here. */
    struct co_script_hold *buckets[CO_SCRIPT_BUCKETS];
    struct co_script_hold *first, *last;
    uint32_t n_holds;
    uint32_t n_invalid;
    bool recheck; /* Look at all holds in a second part. */
    bool again;   /* The command under way is the second part. */
    bool crashes; /* There are counted crashes. */
    char cursor[24];
    uint32_t n_asked_depths;
    uint32_t n_others;
    struct co_script_other others[CO_SCRIPT_OTHERS];
};

struct co_script_hold *co_script_hold_get(struct co_script *script, int64_t job_id);
void co_script_hold_drop(struct co_script *script, struct co_script_hold *hold);
/* NULL when out of memory. */
struct co_script_hold *co_script_hold_add(struct co_script *script, int64_t job_id,
                                          const void *member, size_t size);
/* The queue's number; -1 when there are too many. */
int co_script_name(struct co_script *script, const char *name);
/* Put the digits of `value` into the member. */
int co_script_hold_count(struct co_script_hold *hold, uint32_t value);

#endif /* CO_AGENT_SCRIPT_IMPL_H */
