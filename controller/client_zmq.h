/* The client's end of the control protocol: a DEALER to the agent's socket. */

#ifndef CO_CONTROLLER_CLIENT_ZMQ_H
#define CO_CONTROLLER_CLIENT_ZMQ_H

#include <stddef.h>
#include <sys/types.h>

#include "proto/err.h"
#include "proto/time.h"

struct co_client;

/* Connect to the agent at path, after having asked the system whether anybody listens there.
 *
 * Errors: CO_EUNREACHABLE with what to do about it; CO_EIO, CO_ENOMEM. */
int co_client_open(const char *path, struct co_client **ret_client, struct co_err *err);

/* The agent's pid, 0 when it cannot be seen from here. */
pid_t co_client_pid(const struct co_client *client);

/* Send one request, JSON text. */
int co_client_send(struct co_client *client, const char *json, struct co_err *err);

/* Wait for an answer: malloc'd, NUL-terminated. Errors: CO_EUNREACHABLE when none comes in time. */
int co_client_recv(struct co_client *client, co_ms timeout, char **ret_json, size_t *ret_size,
                   struct co_err *err);

void co_client_free(struct co_client **client);

#endif /* CO_CONTROLLER_CLIENT_ZMQ_H */
