/* Which queues a pool serves: the reading of `queue: "high,redis:mails,tenant-*"`. Pure.
 *
 * An entry is QUEUE, CONNECTION:QUEUE, or a pattern with `*`. Ranks follow the list (strict order);
 * the queues that match one pattern share its rank. An empty list means the connection's own queues
 * and every other one that is found there, all of one rank. */

#ifndef CO_AGENT_SERVE_H
#define CO_AGENT_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/config.h"

#define CO_SERVE_MAX 64

struct co_serve_entry {
    char connection[CO_NAME_SIZE];
    char pattern[CO_TEXT_SIZE];
    bool literal; /* No `*` in it. */
    uint32_t rank;
};

struct co_serve {
    uint32_t n;
    struct co_serve_entry entries[CO_SERVE_MAX];
};

/* Read a pool's list. connection is the one for entries that name none; own is that connection's
 * configured queue list, used when queue is empty. Errors: CO_ECONFIG. */
int co_serve_read(struct co_serve *serve, const char *queue, const char *connection,
                  const char *own, struct co_err *err);

/* The rank under which the pool serves that queue, or -1. The first entry that matches wins. */
int co_serve_rank(const struct co_serve *serve, const char *connection, const char *queue);

/* Does the pattern (only `*` is special) match the whole name? */
bool co_serve_match(const char *pattern, const char *name);

#endif /* CO_AGENT_SERVE_H */
