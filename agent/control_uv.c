#include "agent/control_uv.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#define BATCH 32 /* Requests a turn of the loop: the jobs come first. */

/* The poll watches the edge-triggered descriptor of ZeroMQ. The idle handle brings us back in the
 * next turn, without sleeping in between, when an edge may have been used up: after a send, and
 * after a full batch. */
struct co_control_uv {
    struct co_control *control;
    co_control_uv_request *request;
    void *arg;
    uv_poll_t poll;
    uv_idle_t again;
    unsigned handles;
    bool closing;
};

static void drain(struct co_control_uv *control);

static void on_again(uv_idle_t *again)
{
    uv_idle_stop(again);
    drain(again->data);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    drain(poll->data);
}

static void drain(struct co_control_uv *control)
{
    for (int i = 0; i < BATCH && !control->closing; i++) {
        struct co_control_peer peer;
        char *data;
        size_t size;
        int r = co_control_recv(control->control, &peer, &data, &size, NULL);

        if (r == 0 || r == CO_EIO) {
            return;
        }
        if (r > 0) {
            control->request(control->arg, &peer, data, size);
            free(data);
        }
    }
    if (!control->closing) {
        uv_idle_start(&control->again, on_again);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct co_control_uv *control = handle->data;

    control->handles--;
    if (control->handles == 0) {
        co_control_free(&control->control);
        free(control);
    }
}

int co_control_uv_open(uv_loop_t *loop, const char *path, co_control_uv_request *request, void *arg,
                       struct co_control_uv **ret_control, struct co_err *err)
{
    struct co_control_uv *control = calloc(1, sizeof *control);
    int r;

    if (control == NULL) {
        return co_err_set(err, CO_ENOMEM, "control socket: out of memory");
    }
    r = co_control_open(path, &control->control, err);
    if (r < 0) {
        free(control);
        return r;
    }
    control->request = request;
    control->arg = arg;
    r = uv_poll_init(loop, &control->poll, co_control_fd(control->control));
    if (r != 0) {
        co_control_free(&control->control);
        free(control);
        return co_err_sys(err, -r, "control socket %s: poll it", path);
    }
    uv_idle_init(loop, &control->again);
    control->poll.data = control;
    control->again.data = control;
    control->handles = 2;
    uv_poll_start(&control->poll, UV_READABLE, on_poll);
    uv_idle_start(&control->again, on_again); /* Whoever came between bind and poll. */
    *ret_control = control;
    return 0;
}

int co_control_uv_send(struct co_control_uv *control, const struct co_control_peer *peer,
                       const char *json, struct co_err *err)
{
    int r = co_control_send(control->control, peer, json, err);

    if (!control->closing) {
        uv_idle_start(&control->again, on_again);
    }
    return r;
}

void co_control_uv_close(struct co_control_uv **control)
{
    struct co_control_uv *old = *control;

    if (old == NULL) {
        return;
    }
    *control = NULL;
    old->closing = true;
    uv_close((uv_handle_t *)&old->poll, on_closed);
    uv_close((uv_handle_t *)&old->again, on_closed);
}
