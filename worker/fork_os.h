/* The zygote's side of the control socket, and the one place that forks. */

#ifndef CO_WORKER_FORK_OS_H
#define CO_WORKER_FORK_OS_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/err.h"
#include "proto/zygote.h"

struct co_fork_host {
    int control_fd;
    pid_t agent;
    /* Runs in the child, whose descriptors 1 and 2 are set and whose control socket is closed. */
    void (*child)(const struct co_zygote_msg *order, void *ctx) __attribute__((noreturn));
    void *ctx;
};

/* Send one message. Errors: CO_EIO (the agent is gone), CO_ETOOBIG. */
int co_fork_tell(const struct co_fork_host *host, const struct co_zygote_msg *msg,
                 struct co_err *err);

/* Serve FORK orders until STOP or the socket's end, both of which return CO_OK.
 * Errors: CO_EIO, CO_EMALFORMED, CO_EVERSION. */
int co_fork_serve(const struct co_fork_host *host, struct co_err *err);

#endif /* CO_WORKER_FORK_OS_H */
