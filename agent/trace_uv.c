/* The PHP stack of a running worker: read from outside by `cohort-worker --trace`, so that the job
 * is neither stopped nor woken. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent_uv.h"

#define TRACE_MAX (256 * 1024) /* 64 frames with the longest paths. */

struct trace {
    uv_poll_t poll;
    struct co_agent *agent;
    int fd;
    size_t used;
    co_traced *done;
    void *context;
    char *text; /* TRACE_MAX */
};

static void trace_closed(uv_handle_t *handle)
{
    struct trace *trace = handle->data;

    close(trace->fd);
    free(trace->text);
    free(trace);
}

static void on_trace(uv_poll_t *poll, int status, int events)
{
    struct trace *trace = poll->data;
    ssize_t n = read(trace->fd, trace->text + trace->used, TRACE_MAX - 1 - trace->used);

    (void)status;
    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n > 0 && trace->used + (size_t)n < TRACE_MAX - 1) {
        trace->used += (size_t)n;
        return;
    }
    trace->text[trace->used] = '\0';
    uv_poll_stop(poll);
    trace->done(trace->agent, trace->context,
                n > 0 ? "the stack is too long to be shown" : trace->text);
    uv_close((uv_handle_t *)poll, trace_closed);
}

void co_trace_start(struct co_agent *agent, pid_t pid, bool json, co_traced *done, void *context)
{
    struct trace *trace = calloc(1, sizeof *trace);
    char *text = malloc(TRACE_MAX);
    struct co_err err;
    char number[16];
    pid_t helper;

    snprintf(number, sizeof number, "%d", (int)pid);
    if (trace == NULL || text == NULL ||
        co_proc_helper(agent->config.worker_bin,
                       (const char *const[]){"--trace", number, json ? "--json" : NULL, NULL},
                       &helper, &trace->fd, &err) < 0) {
        free(trace);
        free(text);
        done(agent, context, "the trace could not be started");
        return;
    }
    trace->text = text;
    trace->agent = agent;
    trace->done = done;
    trace->context = context;
    uv_poll_init(&agent->loop, &trace->poll, trace->fd);
    trace->poll.data = trace;
    uv_poll_start(&trace->poll, UV_READABLE, on_trace);
}
