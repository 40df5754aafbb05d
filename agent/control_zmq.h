/* The control socket: a ZeroMQ ROUTER on ipc, mode 0600, for the `cohort` command on this host.
 * One thread, the one that opened it, owns it. control_uv.h puts it on a loop. */

#ifndef CO_AGENT_CONTROL_ZMQ_H
#define CO_AGENT_CONTROL_ZMQ_H

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

#define CO_CONTROL_PEER_MAX 64

/* Who asked, to be answered. Opaque; copy it as you like. */
struct co_control_peer {
    uint8_t size;
    uint8_t id[CO_CONTROL_PEER_MAX];
};

struct co_control;

/* Listen at path. A socket file nobody listens on any more is replaced; its directory must exist.
 *
 * Errors: CO_EBUSY when another agent listens there; CO_ECONFIG when the path is too long for a
 * socket or names something that is no socket; CO_EIO; CO_ENOMEM. */
int co_control_open(const char *path, struct co_control **ret_control, struct co_err *err);

/* The descriptor to poll for reading. It tells of a *change* only (it is edge-triggered): when it
 * fires, and after every co_control_send(), call co_control_recv() until it returns 0. */
int co_control_fd(const struct co_control *control);

/* Take the next request: 1 with a malloc'd, NUL-terminated frame that is the caller's, 0 when there
 * is none, negative on failure. Frames that are no request of ours are dropped on the way. */
int co_control_recv(struct co_control *control, struct co_control_peer *ret_peer, char **ret_data,
                    size_t *ret_size, struct co_err *err);

/* Answer with one frame of JSON text. Never waits: an answer to a peer that is gone or does not
 * read is dropped. Errors: CO_ENOTFOUND (gone), CO_EAGAIN (does not read), CO_EIO. */
int co_control_send(struct co_control *control, const struct co_control_peer *peer,
                    const char *json, struct co_err *err);

/* Close, give what was answered 200 ms to leave, and remove the socket file. */
void co_control_free(struct co_control **control);

#endif /* CO_AGENT_CONTROL_ZMQ_H */
