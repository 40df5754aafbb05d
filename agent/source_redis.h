/* A Laravel Redis queue as a source: one connection on the agent's loop. Nothing here blocks; a
 * turn is one script (script_redis.h), and a connection that does not answer in time is dropped. */

#ifndef CO_AGENT_SOURCE_REDIS_H
#define CO_AGENT_SOURCE_REDIS_H

#include <stdint.h>

#include "agent/script_redis.h"
#include "agent/turn.h"
#include "proto/control.h"

struct uv_loop_s;

struct co_redis_config {
    struct co_script_config script;
    struct co_app_redis place; /* Where it is and how to get in. */
    struct uv_loop_s *loop;
    void (*wake)(void *arg); /* A turn is finished: take it. Never called from submit. */
    void *wake_arg;
};

struct co_redis;

/* Connects with the first turn. */
int co_redis_open(const struct co_redis_config *config, struct co_redis **ret_redis,
                  struct co_err *err);
void co_redis_submit(struct co_redis *redis, struct co_turn *turn);
struct co_turn *co_redis_take(struct co_redis *redis);

/* The loop must run once more, to close what is open. */
void co_redis_free(struct co_redis **redis);

#endif /* CO_AGENT_SOURCE_REDIS_H */
