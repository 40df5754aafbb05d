/* A turn as one script: what to send, and what the answer means. It knows what we hold in this
 * Redis, sends nothing and reads no clock: commands and replies are bytes that somebody else
 * carries (source_redis_uv.c).
 *
 *     co_script_command()  turn, time ──► bytes
 *     co_script_feed()     bytes ──► co_script_reply(): one reply each, the turn filled in */

#ifndef CO_AGENT_SCRIPT_REDIS_H
#define CO_AGENT_SCRIPT_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/turn.h"
#include "proto/err.h"
#include "proto/time.h"

struct co_script_config {
    uint64_t agent_id;
    char prefix[CO_TEXT_SIZE];
    char place[CO_PATH_SIZE]; /* What a successor knows us by. */
    uint32_t retry_after_s;   /* 0: reserved jobs are never taken over. */
    uint32_t migrate;         /* How many due jobs one script moves at most. */
    uint64_t max_payload_bytes;
    uint64_t token; /* Fence: of this registration. */
};

struct co_script;

int co_script_open(const struct co_script_config *config, struct co_script **ret_script,
                   struct co_err *err);
void co_script_free(struct co_script **script);

/* Bytes of the commands that open a connection, malloc'd: how many replies they get in
 * *ret_replies. user, password may be "". */
int co_script_hello(struct co_script *script, const char *user, const char *password,
                    uint32_t database, char **ret_bytes, size_t *ret_size, uint32_t *ret_replies,
                    struct co_err *err);

/* The turn as bytes, malloc'd; again: its second part (co_script_again()). now is the wall clock,
 * mono_ms any steady clock. */
int co_script_command(struct co_script *script, const struct co_turn *turn, bool again, co_unix now,
                      co_ms mono_ms, char **ret_bytes, size_t *ret_size, struct co_err *err);

/* The connection is new: forget half a reply. */
void co_script_reset(struct co_script *script);
int co_script_feed(struct co_script *script, const char *bytes, size_t size, struct co_err *err);

enum co_script_said {
    CO_SCRIPT_NOTHING = 0, /* No whole reply yet. */
    CO_SCRIPT_GOOD,        /* Of a greeting: the command was taken; of a turn: it is filled in. */
    CO_SCRIPT_UNKNOWN,     /* NOSCRIPT: say hello again, then the turn. */
    CO_SCRIPT_FENCED,      /* We were given up for dead: nothing was applied and nothing is ours. */
    CO_SCRIPT_BAD,         /* The server refused; *err says what. */
    CO_SCRIPT_BROKEN,      /* Not RESP, or not what our script answers: drop the connection. */
};

/* Read the next reply. turn NULL: of a greeting. */
enum co_script_said co_script_reply(struct co_script *script, struct co_turn *turn,
                                    struct co_err *err);

/* Some of what we hold has vanished: the turn has a second part that looks at all of it. */
bool co_script_again(const struct co_script *script);

uint32_t co_script_held(const struct co_script *script);

#endif /* CO_AGENT_SCRIPT_REDIS_H */
