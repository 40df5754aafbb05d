/* The agent in its fleet, on the loop: finds the others, for ever, keeps a line to each, and lets
 * the coordinator (autoscale/coord.h) share the queues' workers out among them. Made only when a
 * fleet is configured; agent->fleet is NULL else, which every function here takes as "alone". */

#ifndef CO_AGENT_FLEET_UV_H
#define CO_AGENT_FLEET_UV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/mesh_zmq.h"
#include "proto/err.h"
#include "proto/fleet.h"
#include "proto/peers.h"

struct co_agent;
struct co_fleet;

/* Errors: CO_ECONFIG, CO_EBUSY (the address is taken), CO_EIO, CO_ENOMEM. */
int co_fleet_uv_open(struct co_agent *agent, struct co_fleet **ret_fleet, struct co_err *err);

/* Say goodbye and close; run the loop once more before it goes. NULL is fine. */
void co_fleet_uv_close(struct co_fleet **fleet);

/* The agent drains: it takes no share and owns nothing any more. */
void co_fleet_uv_drain(struct co_agent *agent);

/* What is known of the others. fleet may be NULL: then there are none. */
void co_fleet_uv_peers(const struct co_fleet *fleet, struct co_peers *ret_peers);

/* Answer a question that came over the mesh. */
void co_fleet_uv_reply(struct co_fleet *fleet, const struct co_mesh_peer *peer, const char *json);

/* Say {action, queue?, value?, reason, by?, for?} to the fleet. Not alone. Errors: CO_EMALFORMED,
 * CO_ENOTFOUND (no such queue), CO_EFULL. */
int co_fleet_uv_say(struct co_agent *agent, const char *args, struct co_err *err);
/* Ask every agent there is a line to for the same; nobody answers. Not alone. */
void co_fleet_uv_pass_on(struct co_agent *agent, const char *op, const char *pool);
/* The queues and overrides as JSON (proto/fleet_view.h), malloc'd or NULL. Not alone. */
char *co_fleet_uv_view(const struct co_agent *agent, bool history);
/* The word in force on a queue, or NULL. */
const struct co_fleet_override *co_fleet_uv_override(const struct co_agent *agent, uint32_t queue);

/* ---- for whoever decides how many workers a queue needs; queue: its index in the core ---- */

/* What the queue's policy says of the fleet. NULL: it has none any more, then nobody is limited.
 * Errors: CO_EUNSUPPORTED (strict without fleet.expected, or without a job timeout), CO_EFULL. */
struct co_fleet_rule {
    uint64_t policy_hash;
    uint64_t job_ms; /* timeout + kill_grace of its jobs; 0: none. */
    uint32_t max;
    enum co_fleet_split split;
    enum co_fleet_on_fence on_fence;
};
int co_fleet_uv_rule(struct co_agent *agent, uint32_t queue, const struct co_fleet_rule *rule);

/* Does this agent decide for the fleet? Alone: always. */
bool co_fleet_uv_owns(const struct co_agent *agent, uint32_t queue);

/* The owner's word: the whole fleet's workers, and what a successor must know of how it came. */
void co_fleet_uv_target(struct co_agent *agent, uint32_t queue, uint32_t target,
                        const uint8_t *history, size_t size);

/* What the owner before knew; its size, 0: nothing. */
size_t co_fleet_uv_history(const struct co_agent *agent, uint32_t queue,
                           const uint8_t **ret_history);

/* The numbers of all living members on a queue, added up; how many were counted. */
size_t co_fleet_uv_loads(const struct co_agent *agent, uint32_t queue,
                         struct co_fleet_load *ret_sum);

/* This agent's part; UINT32_MAX: no limit. */
uint32_t co_fleet_uv_share(const struct co_agent *agent, uint32_t queue);

#endif /* CO_AGENT_FLEET_UV_H */
