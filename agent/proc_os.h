/* Processes: zygotes are exec'd, workers are their clones and our children, all are reaped here. */

#ifndef CO_AGENT_PROC_OS_H
#define CO_AGENT_PROC_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/config.h"
#include "proto/err.h"
#include "proto/zygote.h"

struct co_zygote_spec {
    const char *worker_bin;
    const char *libphp;      /* "" = the linked one. */
    const char *const *args; /* After the descriptors' own; ended by NULL. */
    int wake_fd;             /* The agent's eventfd. */
    bool worker;             /* A worker of `boot: spawn`: no control socket. */
};

struct co_zygote_process {
    pid_t pid;
    int control_fd; /* SEQPACKET, non-blocking; -1 for a worker. */
    int output_fd;  /* Read end of its stdout and stderr, non-blocking. */
};

/* Subreaper and signal set-up of the agent itself. */
int co_proc_init(struct co_err *err);

/* Start a zygote from the calling (main) thread. Errors: CO_EIO, CO_ENOTFOUND. */
int co_proc_spawn(const struct co_zygote_spec *spec, struct co_zygote_process *ret,
                  struct co_err *err);

/* Send a message, with a descriptor if pass_fd >= 0. Errors: CO_EAGAIN, CO_EIO, CO_ETOOBIG. */
int co_proc_send(int control_fd, const struct co_zygote_msg *msg, int pass_fd, struct co_err *err);

/* Receive one. Returns 1, 0 when nothing is there, CO_EIO when the other end has gone, or a decode
 * error. *ret_fd is the passed descriptor or -1. */
int co_proc_recv(int control_fd, struct co_zygote_msg *ret_msg, int *ret_fd, struct co_err *err);

/* A child that ended and is not yet reaped; false when there is none. */
bool co_proc_next_exit(pid_t *ret_pid);

/* End what is left of its process group and take its status: an exit code and signal 0, or a
 * signal. */
void co_proc_reap(pid_t pid, bool group, int *ret_exit_code, int *ret_signal);

/* SIGKILL to the process and its group. */
void co_proc_kill(pid_t pid);

/* Wake the handler of a time limit in a worker (CO_SIGNAL_TIMEOUT). */
void co_proc_signal_timeout(pid_t pid);

/* Tell the job that runs in a worker that its worker is to stop (CO_SIGNAL_STOP). */
void co_proc_signal_stop(pid_t pid);

/* Start a helper program whose output comes through a pipe: worker_bin with args. */
int co_proc_helper(const char *worker_bin, const char *const *args, pid_t *ret_pid, int *ret_fd,
                   struct co_err *err);

/* A pipe for a worker's output; both ends close-on-exec, the read end non-blocking. */
int co_proc_output_pipe(int ret_fds[2], struct co_err *err);

/* Take an exclusive lock on a file for the life of this process. Errors: CO_EBUSY, CO_EIO. */
int co_proc_lock(const char *path, int *ret_fd, struct co_err *err);

/* Make a directory and its parents, 0700 for those made. */
int co_proc_mkdir(const char *path, struct co_err *err);

/* Resident bytes of a process, 0 when it has gone. */
uint64_t co_proc_rss(pid_t pid);

#endif /* CO_AGENT_PROC_OS_H */
