/* The control socket on a libuv loop. */

#ifndef CO_AGENT_CONTROL_UV_H
#define CO_AGENT_CONTROL_UV_H

#include <stddef.h>
#include <uv.h>

#include "agent/control_zmq.h"
#include "proto/err.h"

/* A request has come. data is NUL-terminated and lent for the call; answer with
 * co_control_uv_send(), at once or later. */
typedef void co_control_uv_request(void *arg, const struct co_control_peer *peer, const char *data,
                                   size_t size);

struct co_control_uv;

/* Open the socket at path and serve it on the loop. Errors: as co_control_open(). */
int co_control_uv_open(uv_loop_t *loop, const char *path, co_control_uv_request *request, void *arg,
                       struct co_control_uv **ret_control, struct co_err *err);

/* As co_control_send(); keeps the loop informed as ZeroMQ needs it. */
int co_control_uv_send(struct co_control_uv *control, const struct co_control_peer *peer,
                       const char *json, struct co_err *err);

/* Close the socket and leave NULL; NULL is fine. The memory goes when the loop has closed the
 * handles, so run it once more before uv_loop_close(). No request callback comes after this. */
void co_control_uv_close(struct co_control_uv **control);

#endif /* CO_AGENT_CONTROL_UV_H */
