/* What zygotes and workers write: cut into lines, limited in rate, told apart by worker and job. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent_uv.h"

static void output_done(uv_handle_t *handle)
{
    struct co_output *output = handle->data;

    close(output->fd);
    free(output);
}

static void output_close(struct co_output **output)
{
    if (*output != NULL) {
        uv_poll_stop(&(*output)->poll);
        uv_close((uv_handle_t *)&(*output)->poll, output_done);
        *output = NULL;
    }
}

static void remember_boot_text(struct co_agent_zygote *zygote, const char *line)
{
    size_t used = strlen(zygote->boot_text);

    if (!zygote->booted && used + strlen(line) + 2 < sizeof zygote->boot_text) {
        snprintf(zygote->boot_text + used, sizeof zygote->boot_text - used, "%s%s",
                 used > 0 ? "\n" : "", line);
    }
}

/* Another boot that fails as the one before: it has been told. */
static bool told_before(const struct co_output *output)
{
    const struct co_agent_pool *pool = &output->agent->pools[output->pool];

    if (pool->boot_error[0] == '\0') {
        return false;
    }
    return output->worker >= CO_OUTPUT_ZYGOTE
               ? !pool->zygotes[output->worker - CO_OUTPUT_ZYGOTE].booted
               : !output->agent->core.pools[output->pool].pool.workers[output->worker].booted;
}

static void log_output(struct co_output *output, const char *line)
{
    struct co_agent *agent = output->agent;
    struct co_agent_pool *pool = &agent->pools[output->pool];
    const struct co_ticket *ticket = NULL;
    char worker[16] = "zygote";
    char job_id[24] = "";
    uint32_t suppressed = 0;

    pool->output_lines += 1;
    if (output->worker >= CO_OUTPUT_ZYGOTE) {
        remember_boot_text(&pool->zygotes[output->worker - CO_OUTPUT_ZYGOTE], line);
    } else {
        if (line[strspn(line, " \t\r")] != '\0') {
            snprintf(pool->last_line[output->worker], sizeof pool->last_line[0], "%.*s",
                     (int)sizeof pool->last_line[0] - 1, line);
        }
        ticket =
            co_tickets_get(&agent->core.tickets,
                           agent->core.pools[output->pool].pool.workers[output->worker].ticket);
        snprintf(worker, sizeof worker, "%u", output->worker);
    }
    if (told_before(output) ||
        !co_log_allow(&pool->output_limit, CO_OUTPUT_BURST, agent->now, &suppressed)) {
        pool->output_suppressed += 1;
        return;
    }
    if (suppressed > 0) {
        co_agent_log(agent, CO_LOG_WARN, CO_FIELDS("pool", pool->config->name),
                     "%u lines of output left out: more than %d in a second", suppressed,
                     CO_OUTPUT_BURST);
    }
    if (ticket == NULL) {
        co_agent_log(agent, CO_LOG_INFO,
                     CO_FIELDS("pool", pool->config->name, "worker", worker, "event", "output"),
                     "%s", line);
        return;
    }
    snprintf(job_id, sizeof job_id, "%lld", (long long)ticket->job_id);
    co_agent_log(agent, CO_LOG_INFO,
                 CO_FIELDS("pool", pool->config->name, "worker", worker, "event", "output", "queue",
                           agent->core.tickets.queues[ticket->queue].name, "job_id", job_id),
                 "%s", line);
}

/* Cut what is there into lines; a line longer than the buffer is given out in pieces. */
static void output_lines(struct co_output *output, bool all)
{
    char *start = output->line;
    char *end = output->line + output->used;
    char *newline;

    while ((newline = memchr(start, '\n', (size_t)(end - start))) != NULL) {
        *newline = '\0';
        if (newline > start) {
            log_output(output, start);
        }
        start = newline + 1;
    }
    if (start < end &&
        (all || (start == output->line && output->used >= sizeof output->line - 1))) {
        *end = '\0';
        log_output(output, start);
        start = end;
    }
    output->used = (size_t)(end - start);
    memmove(output->line, start, output->used);
}

static bool output_read(struct co_output *output)
{
    ssize_t n =
        read(output->fd, output->line + output->used, sizeof output->line - 1 - output->used);

    if (n <= 0) {
        output_lines(output, true);
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    }
    output->used += (size_t)n;
    output_lines(output, false);
    return true;
}

static void on_output(uv_poll_t *poll, int status, int events)
{
    struct co_output *output = poll->data;

    (void)status;
    (void)events;
    if (!output_read(output)) {
        uv_poll_stop(poll); /* The other end has gone; the owner closes it. */
    }
}

struct co_output *co_output_open(struct co_agent *agent, uint32_t pool, uint32_t worker, int fd)
{
    struct co_output *output = calloc(1, sizeof *output);

    if (output == NULL) {
        close(fd);
        return NULL;
    }
    output->agent = agent;
    output->pool = pool;
    output->worker = worker;
    output->fd = fd;
    uv_poll_init(&agent->loop, &output->poll, fd);
    output->poll.data = output;
    uv_poll_start(&output->poll, UV_READABLE, on_output);
    return output;
}

/* The last words of a process that has ended. */
void co_output_last(struct co_output **output)
{
    if (*output != NULL) {
        for (int reads = 0; reads < 64; reads++) {
            size_t before = (*output)->used;
            ssize_t n =
                read((*output)->fd, (*output)->line + before, sizeof(*output)->line - 1 - before);
            if (n <= 0) {
                break;
            }
            (*output)->used += (size_t)n;
            output_lines(*output, false);
        }
        output_lines(*output, true);
        output_close(output);
    }
}
