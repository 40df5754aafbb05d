#include "agent/control_zmq.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/control.h"

#define LINGER_MS 200
#define HWM 1000

struct co_control {
    void *context;
    void *router;
    int fd;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

static int fail_zmq(struct co_err *err, const char *what, const char *path)
{
    int code =
        co_err_set(err, CO_EIO, "control socket %s: %s: %s", path, what, zmq_strerror(errno));
    if (err != NULL) {
        err->sys = errno;
    }
    return code;
}

/* Whether someone accepts connections on the socket file. ZeroMQ would not ask: it removes
 * whatever file is there and binds anew, and a running agent would be cut off from its CLI. */
static int check_listener(const struct sockaddr_un *addr, struct co_err *err)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r;

    if (fd < 0) {
        return co_err_sys(err, errno, "control socket %s: make a socket", addr->sun_path);
    }
    r = connect(fd, (const struct sockaddr *)addr, sizeof *addr) == 0 ? 0 : errno;
    close(fd);
    if (r == ECONNREFUSED || r == ENOENT) {
        return 0; /* Left behind by an agent that was killed. */
    }
    if (r == 0 || r == EAGAIN) { /* EAGAIN: its backlog is full, so it is there. */
        return co_err_set(err, CO_EBUSY,
                          "control socket %s: another agent listens there; stop it, or give this "
                          "one its own admin.control",
                          addr->sun_path);
    }
    return co_err_sys(err, r, "control socket %s: see whether an agent listens there",
                      addr->sun_path);
}

static int clear_path(const char *path, struct co_err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct stat st;
    int r;

    if (strlen(path) >= sizeof addr.sun_path) {
        return co_err_set(
            err, CO_ECONFIG,
            "control socket %.200s: the path has %zu bytes and the system allows %zu; "
            "choose a shorter admin.control or run_dir",
            path, strlen(path), sizeof addr.sun_path - 1);
    }
    strcpy(addr.sun_path, path);
    if (lstat(path, &st) < 0) {
        return errno == ENOENT ? 0 : co_err_sys(err, errno, "control socket %s", path);
    }
    if (!S_ISSOCK(st.st_mode)) {
        return co_err_set(err, CO_ECONFIG,
                          "control socket %s: a file that is no socket is in the way; remove it or "
                          "choose another admin.control",
                          path);
    }
    r = check_listener(&addr, err);
    if (r == 0 && unlink(path) < 0 && errno != ENOENT) {
        return co_err_sys(err, errno, "control socket %s: remove the stale file", path);
    }
    return r;
}

static int make_sockets(struct co_control *control, struct co_err *err)
{
    control->context = zmq_ctx_new();
    if (control->context == NULL) {
        return fail_zmq(err, "start ZeroMQ", control->path);
    }
    control->router = zmq_socket(control->context, ZMQ_ROUTER);
    return control->router != NULL ? 0 : fail_zmq(err, "make a ROUTER", control->path);
}

static int set_options(struct co_control *control, struct co_err *err)
{
    const struct {
        int option;
        int value;
    } ints[] = {
        {ZMQ_LINGER, LINGER_MS},
        {ZMQ_ROUTER_MANDATORY, 1},
        {ZMQ_SNDHWM, HWM},
        {ZMQ_RCVHWM, HWM},
    };
    const int64_t max = CO_CONTROL_MSG_MAX;

    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        if (zmq_setsockopt(control->router, ints[i].option, &ints[i].value, sizeof ints[i].value) !=
            0) {
            return fail_zmq(err, "set an option", control->path);
        }
    }
    if (zmq_setsockopt(control->router, ZMQ_MAXMSGSIZE, &max, sizeof max) != 0) {
        return fail_zmq(err, "limit the size of messages", control->path);
    }
    return 0;
}

static int bind_path(struct co_control *control, struct co_err *err)
{
    char endpoint[sizeof control->path + 8];
    mode_t mask = umask(0177); /* There must be no moment at which others could connect. */
    int r;

    snprintf(endpoint, sizeof endpoint, "ipc://%s", control->path);
    r = zmq_bind(control->router, endpoint);
    umask(mask);
    if (r != 0) {
        control->path[0] = '\0'; /* Not ours: co_control_free() must not remove it. */
        return fail_zmq(err, "listen", endpoint + 6);
    }
    return 0;
}

static int get_fd(struct co_control *control, struct co_err *err)
{
    size_t size = sizeof control->fd;

    if (zmq_getsockopt(control->router, ZMQ_FD, &control->fd, &size) != 0) {
        return fail_zmq(err, "get its descriptor", control->path);
    }
    return 0;
}

/* Everything that starts ZeroMQ's threads, with all signals blocked: the threads inherit the mask,
 * and the agent's signals must reach the loop's thread only. */
static int open_quietly(struct co_control *control, struct co_err *err)
{
    sigset_t all;
    sigset_t old;
    int r;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    r = make_sockets(control, err);
    if (r == 0) {
        r = set_options(control, err);
    }
    if (r == 0) {
        r = bind_path(control, err);
    }
    if (r == 0) {
        r = get_fd(control, err);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return r;
}

int co_control_open(const char *path, struct co_control **ret_control, struct co_err *err)
{
    struct co_control *control;
    int r = clear_path(path, err);

    if (r < 0) {
        return r;
    }
    control = calloc(1, sizeof *control);
    if (control == NULL) {
        return co_err_set(err, CO_ENOMEM, "control socket: out of memory");
    }
    strcpy(control->path, path);
    r = open_quietly(control, err);
    if (r < 0) {
        co_control_free(&control);
        return r;
    }
    *ret_control = control;
    return 0;
}

int co_control_fd(const struct co_control *control)
{
    return control->fd;
}

/* One frame without waiting: 1, 0 when there is none, negative on failure. */
static int recv_frame(struct co_control *control, zmq_msg_t *frame, struct co_err *err)
{
    for (;;) {
        if (zmq_msg_recv(frame, control->router, ZMQ_DONTWAIT) >= 0) {
            return 1;
        }
        if (errno == EAGAIN) {
            return 0;
        }
        if (errno != EINTR) {
            return fail_zmq(err, "receive", control->path);
        }
    }
}

/* Drop what is left of a message; ZeroMQ has all of its frames once it has one. */
static void drop_rest(struct co_control *control, zmq_msg_t *frame)
{
    while (zmq_msg_more(frame)) {
        if (recv_frame(control, frame, NULL) != 1) {
            return;
        }
    }
}

static int copy_frame(zmq_msg_t *frame, char **ret_data, size_t *ret_size, struct co_err *err)
{
    size_t size = zmq_msg_size(frame);
    char *data = malloc(size + 1);

    if (data == NULL) {
        return co_err_set(err, CO_ENOMEM, "control request of %zu bytes: out of memory", size);
    }
    memcpy(data, zmq_msg_data(frame), size);
    data[size] = '\0';
    *ret_data = data;
    *ret_size = size;
    return 1;
}

/* One message, [routing id][request]; CO_EMALFORMED when it has another shape. */
static int recv_message(struct co_control *control, zmq_msg_t *frame,
                        struct co_control_peer *ret_peer, char **ret_data, size_t *ret_size,
                        struct co_err *err)
{
    struct co_control_peer peer;
    size_t size;
    int r = recv_frame(control, frame, err);

    if (r != 1) {
        return r;
    }
    size = zmq_msg_size(frame);
    if (size > sizeof peer.id || !zmq_msg_more(frame)) {
        drop_rest(control, frame);
        return CO_EMALFORMED;
    }
    peer.size = (uint8_t)size;
    memcpy(peer.id, zmq_msg_data(frame), size);
    r = recv_frame(control, frame, err);
    if (r != 1) {
        return r;
    }
    if (zmq_msg_more(frame)) {
        drop_rest(control, frame);
        return CO_EMALFORMED;
    }
    r = copy_frame(frame, ret_data, ret_size, err);
    if (r == 1) {
        *ret_peer = peer;
    }
    return r;
}

int co_control_recv(struct co_control *control, struct co_control_peer *ret_peer, char **ret_data,
                    size_t *ret_size, struct co_err *err)
{
    int r;

    do {
        zmq_msg_t frame;
        zmq_msg_init(&frame);
        r = recv_message(control, &frame, ret_peer, ret_data, ret_size, err);
        zmq_msg_close(&frame);
    } while (r == CO_EMALFORMED);
    return r;
}

static int fail_send(struct co_control *control, struct co_err *err)
{
    switch (errno) {
    case EHOSTUNREACH:
        return co_err_set(err, CO_ENOTFOUND, "control socket %s: the client is gone",
                          control->path);
    case EAGAIN:
        return co_err_set(err, CO_EAGAIN, "control socket %s: the client does not read",
                          control->path);
    default:
        return fail_zmq(err, "send", control->path);
    }
}

int co_control_send(struct co_control *control, const struct co_control_peer *peer,
                    const char *json, struct co_err *err)
{
    int r;

    do {
        r = zmq_send(control->router, peer->id, peer->size, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    } while (r < 0 && errno == EINTR);
    if (r < 0) {
        return fail_send(control, err);
    }
    do {
        r = zmq_send(control->router, json, strlen(json), ZMQ_DONTWAIT);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? fail_send(control, err) : 0;
}

void co_control_free(struct co_control **control)
{
    struct co_control *old = *control;

    if (old == NULL) {
        return;
    }
    if (old->router != NULL) {
        zmq_close(old->router); /* Removes the socket file too, in the I/O thread. */
    }
    if (old->context != NULL) {
        while (zmq_ctx_term(old->context) != 0 && errno == EINTR) {
        }
    }
    if (old->path[0] != '\0') {
        unlink(old->path);
    }
    free(old);
    *control = NULL;
}
