#include "worker/fork_os.h"

#include <errno.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/process_os.h"

#define FDS_MAX 4 /* More than one is against the protocol, but must not leak. */

/* A message and the descriptor that came or goes with it; -1 = none. */
struct parcel {
    struct co_zygote_msg msg;
    int fd;
};

union control_buf {
    char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    struct cmsghdr align;
};

static int send_parcel(int socket, const struct co_zygote_msg *msg, int fd, struct co_err *err)
{
    uint8_t buf[CO_ZYGOTE_MSG_MAX];
    union control_buf control = {.bytes = {0}};
    int size = co_zygote_encode(msg, buf, sizeof buf);
    if (size < 0) {
        return co_err_set(err, size, "message %d to the agent is too big", (int)msg->type);
    }
    struct iovec iov = {.iov_base = buf, .iov_len = (size_t)size};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(sizeof fd);
        struct cmsghdr *part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(part), &fd, sizeof fd);
    }
    while (sendmsg(socket, &header, MSG_NOSIGNAL) < 0) {
        if (errno != EINTR) {
            return co_err_sys(err, errno, "send to the agent");
        }
    }
    return CO_OK;
}

int co_fork_tell(const struct co_fork_host *host, const struct co_zygote_msg *msg,
                 struct co_err *err)
{
    return send_parcel(host->control_fd, msg, -1, err);
}

/* The first descriptor is the message's, all others are closed. */
static int take_fd(struct msghdr *header)
{
    int kept = -1;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part != NULL;
         part = CMSG_NXTHDR(header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            if (kept < 0) {
                kept = fd;
            } else {
                close(fd);
            }
        }
    }
    return kept;
}

/* Returns 1 with a parcel, 0 when the agent has closed the socket, or an error. */
static int receive_parcel(int socket, struct parcel *ret_parcel, struct co_err *err)
{
    uint8_t buf[CO_ZYGOTE_MSG_MAX];
    union control_buf control;
    struct iovec iov = {.iov_base = buf, .iov_len = sizeof buf};
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    ssize_t size = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == ECONNRESET) {
        return 0;
    }
    if (size < 0) {
        return errno == EINTR || errno == EAGAIN ? CO_EAGAIN
                                                 : co_err_sys(err, errno, "receive from the agent");
    }
    if (size == 0) {
        return 0;
    }
    ret_parcel->fd = take_fd(&header);
    int rc = (header.msg_flags & MSG_TRUNC) != 0
                 ? CO_EMALFORMED
                 : co_zygote_decode(buf, (size_t)size, &ret_parcel->msg);
    if (rc < 0) {
        if (ret_parcel->fd >= 0) {
            close(ret_parcel->fd);
        }
        return co_err_set(err, rc,
                          "message from the agent: %s; cohortd and cohort-worker must be "
                          "of one release",
                          co_err_text(rc));
    }
    return 1;
}

/* The worker is a child of the agent, which so gets its true wait status at once, even when this
 * zygote is dead. */
static pid_t clone_sibling(int *ret_pidfd)
{
    return (pid_t)syscall(SYS_clone, CLONE_PARENT | CLONE_PIDFD | SIGCHLD, 0L, ret_pidfd, 0L, 0L);
}

__attribute__((noreturn)) static void become_worker(const struct co_fork_host *host,
                                                    const struct parcel *order)
{
    co_process_bind(host->agent);
    co_process_let_read(host->agent);
    co_process_lead();
    co_process_name("cohort-worker");
    co_process_reset_signals();
    close(host->control_fd);
    if (order->fd >= 0) {
        dup2(order->fd, STDOUT_FILENO);
        dup2(order->fd, STDERR_FILENO);
        close(order->fd);
    }
    host->child(&order->msg, host->ctx);
}

static int answer_fork(const struct co_fork_host *host, const struct parcel *order,
                       struct co_err *err)
{
    struct co_zygote_msg answer = {
        .type = CO_ZYGOTE_FORKED,
        .seq = order->msg.seq,
        .worker = order->msg.worker,
        .generation = order->msg.generation,
        .kind = order->msg.kind,
    };
    int pidfd = -1;

    fflush(NULL); /* What lies in a buffer here would be written by the child once more. */
    pid_t pid = clone_sibling(&pidfd);
    if (pid == 0) {
        become_worker(host, order);
    }
    if (pid < 0) {
        answer.type = CO_ZYGOTE_FORK_FAILED;
        snprintf(answer.text, sizeof answer.text,
                 "fork a worker: %s; look at the limits of processes and memory (pids.max, ulimit "
                 "-u, memory.max)",
                 strerror(errno));
        return send_parcel(host->control_fd, &answer, -1, err);
    }
    answer.pid = pid;
    int rc = send_parcel(host->control_fd, &answer, pidfd, err);
    close(pidfd);
    return rc;
}

static int answer_parcel(const struct co_fork_host *host, const struct parcel *parcel, bool *ret_on,
                         struct co_err *err)
{
    switch (parcel->msg.type) {
    case CO_ZYGOTE_FORK:
        return answer_fork(host, parcel, err);
    case CO_ZYGOTE_STOP:
        *ret_on = false;
        return CO_OK;
    case CO_ZYGOTE_HELLO:
    case CO_ZYGOTE_BOOTED:
    case CO_ZYGOTE_BOOT_FAILED:
    case CO_ZYGOTE_FORKED:
    case CO_ZYGOTE_FORK_FAILED:
        return CO_OK; /* Ours to say, not to hear; harmless. */
    }
    return CO_OK;
}

int co_fork_serve(const struct co_fork_host *host, struct co_err *err)
{
    bool on = true;

    while (on) {
        struct pollfd wait = {.fd = host->control_fd, .events = POLLIN};
        struct parcel parcel = {.fd = -1};
        if (poll(&wait, 1, -1) < 0 && errno != EINTR) {
            return co_err_sys(err, errno, "wait for the agent");
        }
        if (wait.revents == 0) {
            continue;
        }
        int rc = receive_parcel(host->control_fd, &parcel, err);
        if (rc == 0) {
            return CO_OK;
        }
        if (rc == CO_EAGAIN) {
            continue;
        }
        if (rc > 0) {
            rc = answer_parcel(host, &parcel, &on, err);
            if (parcel.fd >= 0) {
                close(parcel.fd);
            }
        }
        if (rc < 0) {
            return rc;
        }
    }
    return CO_OK;
}
