/* The client's end of the control protocol: a DEALER to the agent's socket. */

#ifndef CO_CONTROLLER_CLIENT_ZMQ_H
#define CO_CONTROLLER_CLIENT_ZMQ_H

#include <stddef.h>
#include <sys/types.h>

#include "proto/err.h"
#include "proto/fleet_key.h"
#include "proto/time.h"

struct co_client;

/* Connect to the agent at path, after having asked the system whether anybody listens there.
 *
 * Errors: CO_EUNREACHABLE with what to do about it; CO_EIO, CO_ENOMEM. */
int co_client_open(const char *path, struct co_client **ret_client, struct co_err *err);

/* Connect to an agent at its fleet address, ADDR:PORT, with the key of a role. Nobody is asked
 * whether it is there: a wrong key and no agent look alike, as no answer.
 *
 * Errors: CO_EUSAGE (address), CO_EIO, CO_ENOMEM. */
int co_client_open_remote(const char *address, const struct co_fleet_role_key *key,
                          struct co_client **ret_client, struct co_err *err);

/* The public key that belongs to a secret one, as ZeroMQ writes it. Error: CO_EIO. */
int co_client_public(const uint8_t secret[CO_FLEET_SECRET_SIZE], char ret_public[CO_FLEET_Z85_SIZE],
                     struct co_err *err);

/* The agent's pid, 0 when it cannot be seen from here. */
pid_t co_client_pid(const struct co_client *client);

/* Send one request, JSON text. */
int co_client_send(struct co_client *client, const char *json, struct co_err *err);

/* Wait for an answer: malloc'd, NUL-terminated. Errors: CO_EUNREACHABLE when none comes in time. */
int co_client_recv(struct co_client *client, co_ms timeout, char **ret_json, size_t *ret_size,
                   struct co_err *err);

void co_client_free(struct co_client **client);

#endif /* CO_CONTROLLER_CLIENT_ZMQ_H */
