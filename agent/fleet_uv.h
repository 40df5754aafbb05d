/* The agent in its fleet, on the loop: finds the others, for ever, and keeps a line to each.
 * Made only when a fleet is configured. */

#ifndef CO_AGENT_FLEET_UV_H
#define CO_AGENT_FLEET_UV_H

#include "agent/mesh_zmq.h"
#include "proto/err.h"
#include "proto/peers.h"

struct co_agent;
struct co_fleet;

/* Errors: CO_ECONFIG, CO_EBUSY (the address is taken), CO_EIO, CO_ENOMEM. */
int co_fleet_uv_open(struct co_agent *agent, struct co_fleet **ret_fleet, struct co_err *err);

/* Say goodbye and close; run the loop once more before it goes. NULL is fine. */
void co_fleet_uv_close(struct co_fleet **fleet);

/* What is known of the others. fleet may be NULL: then there are none. */
void co_fleet_uv_peers(const struct co_fleet *fleet, struct co_peers *ret_peers);

/* Answer a question that came over the mesh. */
void co_fleet_uv_reply(struct co_fleet *fleet, const struct co_mesh_peer *peer, const char *json);

#endif /* CO_AGENT_FLEET_UV_H */
