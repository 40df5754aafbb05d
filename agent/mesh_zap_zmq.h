/* Who may come in: the handler of ZeroMQ's authentication questions (ZAP, RFC 27). A part of
 * mesh_zmq.c; nobody else includes it. */

#ifndef CO_AGENT_MESH_ZAP_ZMQ_H
#define CO_AGENT_MESH_ZAP_ZMQ_H

#include "agent/mesh_zmq.h"

struct co_mesh_zap {
    void *socket;
    uint32_t n;
    struct {
        enum co_fleet_role role;
        uint8_t key[32];
    } guests[CO_FLEET_SECRETS_MAX * CO_FLEET_ROLES];
};

/* The keys of a role, as ZeroMQ writes them. */
int co_mesh_zap_pair(const uint8_t secret[CO_FLEET_SECRET_SIZE], const char *name,
                     enum co_fleet_role role, char ret_public[CO_FLEET_Z85_SIZE],
                     char ret_secret[CO_FLEET_Z85_SIZE]);

/* Stand at the door of a context. Errors: CO_EIO. */
int co_mesh_zap_open(struct co_mesh_zap *zap, void *context, const struct co_mesh_options *options,
                     struct co_err *err);

/* Answer what was asked. Counts whom it refuses. */
void co_mesh_zap_answer(struct co_mesh_zap *zap, struct co_mesh_rejects *rejects);
void co_mesh_zap_close(struct co_mesh_zap *zap);

#endif /* CO_AGENT_MESH_ZAP_ZMQ_H */
