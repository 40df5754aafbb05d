/* Zygotes, workers, their wires and their output. */

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent_uv.h"

#define OUTPUT_BURST 50 /* Lines a second and pool. */
#define ZYGOTE UINT32_MAX

/* ---- output ---- */

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

static void remember_boot_text(struct co_agent_pool *pool, const char *line)
{
    size_t used = strlen(pool->boot_text);

    if (!pool->zygote_booted && used + strlen(line) + 2 < sizeof pool->boot_text) {
        snprintf(pool->boot_text + used, sizeof pool->boot_text - used, "%s%s",
                 used > 0 ? "\n" : "", line);
    }
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
    if (output->worker == ZYGOTE) {
        remember_boot_text(pool, line);
    } else {
        ticket =
            co_tickets_get(&agent->core.tickets,
                           agent->core.pools[output->pool].pool.workers[output->worker].ticket);
        snprintf(worker, sizeof worker, "%u", output->worker);
    }
    if (!co_log_allow(&pool->output_limit, OUTPUT_BURST, agent->now, &suppressed)) {
        pool->output_suppressed += 1;
        return;
    }
    if (suppressed > 0) {
        co_agent_log(agent, CO_LOG_WARN, CO_FIELDS("pool", pool->config->name),
                     "%u lines of output left out: more than %d in a second", suppressed,
                     OUTPUT_BURST);
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

static struct co_output *output_open(struct co_agent *agent, uint32_t pool, uint32_t worker, int fd)
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
static void output_last(struct co_output **output)
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

/* ---- zygotes ---- */

static void control_close(struct co_agent_pool *pool)
{
    if (pool->control_polling) {
        uv_poll_stop(&pool->control_poll);
        pool->control_polling = false;
    }
    if (pool->control_fd >= 0) {
        close(pool->control_fd);
        pool->control_fd = -1;
    }
}

static void post_worker(struct co_agent *agent, enum co_event_type type, uint32_t pool,
                        uint32_t worker)
{
    co_agent_post(agent, &(struct co_event){.type = type, .pool = pool, .worker = worker});
}

static void boot_failed(struct co_agent *agent, uint32_t index, const char *text)
{
    struct co_agent_pool *pool = &agent->pools[index];
    bool again = strcmp(pool->boot_error, text) == 0;

    snprintf(pool->boot_error, sizeof pool->boot_error, "%s", text);
    if (!again) { /* A failure is said once. */
        co_agent_log(agent, CO_LOG_ERROR,
                     CO_FIELDS("pool", pool->config->name, "app", pool->app->path),
                     "the application did not boot: %s", text);
    }
}

static void exited(struct co_agent *agent, uint32_t pool, uint32_t worker, int exit_code,
                   int signal);

/* An announced worker may have ended before we heard of it. */
static void place_stranger(struct co_agent *agent, uint32_t pool, uint32_t worker, pid_t pid)
{
    for (uint32_t i = 0; i < agent->n_strangers; i++) {
        struct co_stranger stranger = agent->strangers[i];
        if (stranger.pid == pid) {
            agent->strangers[i] = agent->strangers[--agent->n_strangers];
            exited(agent, pool, worker, stranger.exit_code, stranger.signal);
            return;
        }
    }
}

static void on_message(struct co_agent *agent, uint32_t index, const struct co_zygote_msg *msg)
{
    struct co_agent_pool *pool = &agent->pools[index];

    switch (msg->type) {
    case CO_ZYGOTE_HELLO:
        snprintf(pool->php_version, sizeof pool->php_version, "%.31s", msg->text);
        break;
    case CO_ZYGOTE_BOOTED:
        pool->zygote_booted = true;
        pool->booted_once = true;
        pool->boot_error[0] = '\0';
        co_agent_log(agent, CO_LOG_INFO,
                     CO_FIELDS("pool", pool->config->name, "php", pool->php_version),
                     "application %s booted", pool->app->path);
        co_agent_post(agent, &(struct co_event){.type = CO_EVENT_ZYGOTE_UP, .pool = index});
        break;
    case CO_ZYGOTE_BOOT_FAILED:
        boot_failed(agent, index, msg->text);
        break;
    case CO_ZYGOTE_FORKED:
        co_agent_post(
            agent,
            &(struct co_event){
                .type = CO_EVENT_FORKED, .pool = index, .worker = msg->worker, .pid = msg->pid});
        co_agent_step(agent);
        place_stranger(agent, index, msg->worker, msg->pid);
        break;
    case CO_ZYGOTE_FORK_FAILED:
        co_agent_log(agent, CO_LOG_ERROR, CO_FIELDS("pool", pool->config->name),
                     "worker %u could not be made: %s", msg->worker, msg->text);
        exited(agent, index, msg->worker, 1, 0);
        break;
    case CO_ZYGOTE_FORK:
    case CO_ZYGOTE_STOP:
        break; /* Ours to send. */
    }
}

/* A zygote is trusted less than it seems: foreign code booted in it. */
static bool plausible(const struct co_agent *agent, uint32_t pool, const struct co_zygote_msg *msg)
{
    if (msg->type != CO_ZYGOTE_FORKED && msg->type != CO_ZYGOTE_FORK_FAILED) {
        return true;
    }
    return msg->worker <= CO_WORKERS_MAX &&
           agent->core.pools[pool].pool.workers[msg->worker].present &&
           agent->core.pools[pool].pool.workers[msg->worker].pid == 0 &&
           (msg->type == CO_ZYGOTE_FORK_FAILED || msg->pid > 1);
}

static void read_control(struct co_agent *agent, uint32_t index)
{
    static struct co_zygote_msg msg;
    struct co_agent_pool *pool = &agent->pools[index];
    struct co_err err;

    while (pool->control_fd >= 0) {
        int fd = -1;
        int code = co_proc_recv(pool->control_fd, &msg, &fd, &err);
        if (fd >= 0) {
            close(fd); /* We are the parent: the pid stays ours until it is reaped. */
        }
        if (code == 0) {
            return;
        }
        if (code < 0) {
            control_close(pool);
            return;
        }
        if (plausible(agent, index, &msg)) {
            on_message(agent, index, &msg);
            co_agent_step(agent);
        }
    }
}

static void on_control(uv_poll_t *poll, int status, int events)
{
    struct co_agent *agent = poll->loop->data;

    (void)status;
    (void)events;
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        if (&agent->pools[i].control_poll == poll) {
            read_control(agent, i);
        }
    }
}

static void set_arg(const char **args, size_t *n, char *text, size_t size, const char *key,
                    const char *value)
{
    snprintf(text, size, "%s=%s", key, value);
    args[(*n)++] = "--set";
    args[(*n)++] = text;
}

#define SET_MAX 20

static int spawn_zygote(struct co_agent *agent, uint32_t index, struct co_err *err)
{
    static char texts[SET_MAX][CO_PATH_SIZE + 64];
    struct co_agent_pool *pool = &agent->pools[index];
    const struct co_app_config *app = pool->app;
    const struct co_job_options *job = &pool->config->job;
    const char *args[2 * SET_MAX + 16];
    char number[6][24];
    char queue_database[CO_PATH_SIZE + 16];
    struct co_zygote_process process;
    size_t n = 0, t = 0;
    int code;

    snprintf(number[0], sizeof number[0], "%u", job->tries);
    snprintf(number[1], sizeof number[1], "%llu", (unsigned long long)(job->timeout / 1000));
    snprintf(number[2], sizeof number[2], "%llu", (unsigned long long)job->memory_bytes);
    snprintf(
        number[3], sizeof number[3], "%llu",
        (unsigned long long)(app->connection.retry_after > 0 ? app->connection.retry_after / 1000
                                                             : 90));
    snprintf(queue_database, sizeof queue_database, "%s", app->connection.database);
    if (queue_database[0] == '\0') {
        snprintf(queue_database, sizeof queue_database, "%s/queue.db", agent->config.state_dir);
    }
    args[n++] = "--php-dir";
    args[n++] = agent->config.php_dir;
    args[n++] = "--mode";
    args[n++] = "job";
    args[n++] = "--boot";
    args[n++] = "preload";
#define SET(key, value) set_arg(args, &n, texts[t], sizeof texts[t], key, value), t++
    SET("app", app->path);
    SET("app_name", app->name);
    SET("env_file", app->env_file);
    SET("pool", pool->config->name);
    SET("run_dir", agent->config.run_dir);
    SET("force", pool->config->force ? "1" : "0");
    SET("tries", number[0]);
    SET("timeout", number[1]);
    SET("backoff", job->backoff);
    SET("memory", number[2]);
    SET("connection", "cohort");
    SET("queue_database", queue_database);
    SET("queue_table", app->connection.table[0] != '\0' ? app->connection.table : "jobs");
    SET("retry_after", number[3]);
#undef SET
    args[n] = NULL;
    code = co_proc_spawn(&(struct co_zygote_spec){.worker_bin = agent->config.worker_bin,
                                                  .libphp = agent->config.libphp,
                                                  .args = args,
                                                  .wake_fd = agent->wake_fd},
                         &process, err);
    if (code < 0) {
        return code;
    }
    pool->zygote = process.pid;
    pool->control_fd = process.control_fd;
    pool->generation += 1;
    pool->zygote_booted = false;
    pool->boot_text[0] = '\0';
    pool->zygote_output = output_open(agent, index, ZYGOTE, process.output_fd);
    return CO_OK;
}

static void poll_control_open(struct co_agent *agent, struct co_agent_pool *pool)
{
    uv_poll_init(&agent->loop, &pool->control_poll, pool->control_fd);
    uv_poll_start(&pool->control_poll, UV_READABLE, on_control);
    pool->control_polling = true;
}

void co_workers_zygote(struct co_agent *agent, uint32_t index)
{
    struct co_agent_pool *pool = &agent->pools[index];
    struct co_err err;

    if (spawn_zygote(agent, index, &err) < 0) {
        boot_failed(agent, index, err.msg);
        co_agent_post(agent, &(struct co_event){.type = CO_EVENT_ZYGOTE_DOWN, .pool = index});
        return;
    }
    poll_control_open(agent, pool);
}

void co_workers_end_zygote(struct co_agent *agent, uint32_t index)
{
    struct co_agent_pool *pool = &agent->pools[index];
    struct co_err err;

    co_workers_stop(agent, index, CO_POOL_CONTROL);
    if (pool->control_fd >= 0) {
        co_proc_send(pool->control_fd, &(struct co_zygote_msg){.type = CO_ZYGOTE_STOP}, -1, &err);
    }
}

static void zygote_ended(struct co_agent *agent, uint32_t index, int exit_code, int signal)
{
    struct co_agent_pool *pool = &agent->pools[index];
    bool booted = pool->zygote_booted;

    read_control(agent, index); /* Its last words. */
    output_last(&pool->zygote_output);
    booted = booted || pool->zygote_booted;
    control_close(pool);
    pool->zygote = 0;
    pool->zygote_booted = false;
    if (!booted && pool->boot_error[0] == '\0') {
        char text[CO_TEXT_SIZE];
        snprintf(text, sizeof text, "%s %d%s%.380s",
                 signal != 0 ? "it was ended by signal" : "it ended with exit code",
                 signal != 0 ? signal : exit_code, pool->boot_text[0] != '\0' ? ": " : "",
                 pool->boot_text);
        boot_failed(agent, index, text);
    } else if (booted && !agent->core.draining) {
        co_agent_log(agent, CO_LOG_WARN, CO_FIELDS("pool", pool->config->name),
                     "the zygote has ended (%s %d); its workers go on, the next one boots",
                     signal != 0 ? "signal" : "exit code", signal != 0 ? signal : exit_code);
    }
    co_agent_post(agent,
                  &(struct co_event){.type = CO_EVENT_ZYGOTE_DOWN, .pool = index, .ok = booted});
    co_agent_step(agent);
}

/* ---- workers ---- */

void co_workers_fork(struct co_agent *agent, uint32_t index, uint32_t worker)
{
    static struct co_zygote_msg msg;
    struct co_agent_pool *pool = &agent->pools[index];
    struct co_err err;
    int output[2] = {-1, -1};
    char path[CO_PATH_SIZE];
    int code;

    /* Never the name of a file that a killed predecessor left: its outcomes are still in there. */
    snprintf(path, sizeof path, "%.900s/%s/w%u-%u-%08x", agent->config.run_dir, pool->config->name,
             worker, ++pool->lives, (unsigned)agent->id);
    assert(pool->links[worker] == NULL);
    code = co_link_open(path, agent->id, pool->config->name, worker, pool->generation,
                        &pool->links[worker], &err);
    if (code == CO_OK) {
        code = co_proc_output_pipe(output, &err);
    }
    if (code == CO_OK) {
        msg = (struct co_zygote_msg){
            .type = CO_ZYGOTE_FORK,
            .worker = worker,
            .generation = pool->generation,
            .kind = worker == CO_POOL_CONTROL ? CO_KIND_CONTROL : CO_KIND_JOB,
        };
        snprintf(msg.wire, sizeof msg.wire, "%s", path);
        snprintf(msg.bell, sizeof msg.bell, "%.900s/%s/bell", agent->config.run_dir,
                 pool->config->name);
        code = pool->control_fd >= 0 ? co_proc_send(pool->control_fd, &msg, output[1], &err)
                                     : co_err_set(&err, CO_EIO, "the zygote has gone");
    }
    if (output[1] >= 0) {
        close(output[1]);
    }
    if (code < 0) {
        if (output[0] >= 0) {
            close(output[0]);
        }
        co_agent_log(agent, CO_LOG_ERROR, CO_FIELDS("pool", pool->config->name),
                     "worker %u could not be made: %s", worker, err.msg);
        co_link_free(&pool->links[worker]);
        post_worker(agent, CO_EVENT_FORK_FAILED, index, worker);
        return;
    }
    pool->outputs[worker] = output_open(agent, index, worker, output[0]);
}

void co_workers_stop(struct co_agent *agent, uint32_t index, uint32_t worker)
{
    struct co_link *link = agent->pools[index].links[worker];
    struct co_err err;

    if (link != NULL && !link->broken &&
        co_link_send(link, &(struct co_record){.type = CO_RECORD_STOP}, NULL, 0, &err) < 0) {
        co_workers_kill(agent, index, worker); /* A ring full of unread messages: it hangs. */
    }
}

void co_workers_kill(struct co_agent *agent, uint32_t index, uint32_t worker)
{
    struct co_pool_worker *w = &agent->core.pools[index].pool.workers[worker];
    struct co_link *link = agent->pools[index].links[worker];

    if (link != NULL && w->ticket != 0) {
        co_slot_end(&link->wire->slot, w->ticket, agent->now);
    }
    co_proc_kill(w->pid);
}

static struct co_job_msg job_message(struct co_agent *agent, uint32_t index,
                                     const struct co_ticket *ticket)
{
    const struct co_queue *queue = &agent->core.tickets.queues[ticket->queue];
    const struct co_agent_table *table = co_sources_table(agent, ticket->source, ticket->table);
    const struct co_job_options *job = &agent->core.pools[index].job;

    return (struct co_job_msg){
        .ref = {.source = co_sources_fingerprint(agent, ticket->source, ticket->table),
                .job_id = ticket->job_id,
                .reserved_at = ticket->reserved_at,
                .attempts = ticket->attempts + 1},
        .available_at = ticket->available_at,
        .created_at = ticket->created_at,
        .timeout_ms = (uint32_t)job->timeout,
        .tries = (int32_t)job->tries,
        .memory_bytes = job->memory_bytes,
        .connection = table->connection,
        .connection_size = (uint32_t)strlen(table->connection),
        .queue = queue->name,
        .queue_size = (uint32_t)strlen(queue->name),
        .backoff = job->backoff,
        .backoff_size = (uint32_t)strlen(job->backoff),
        .payload = ticket->payload,
        .payload_size = ticket->payload_size,
    };
}

void co_workers_give(struct co_agent *agent, uint32_t index, uint32_t worker, uint64_t id)
{
    static uint8_t buf[CO_RECORD_MAX];
    struct co_ticket *ticket = co_tickets_get(&agent->core.tickets, id);
    struct co_link *link = agent->pools[index].links[worker];
    struct co_record record = {.type = CO_RECORD_JOB, .ticket = id, .body = buf};
    struct co_job_msg msg = job_message(agent, index, ticket);
    const void *long_part = NULL;
    struct co_err err;
    int size = co_job_encode(&msg, buf, sizeof buf);
    int code;

    if (size == CO_ETOOBIG) {
        msg.payload = NULL;
        size = co_job_encode(&msg, buf, sizeof buf);
        long_part = ticket->payload;
        record.flags = CO_FLAG_OVERFLOW;
    }
    record.size = (uint32_t)(size > 0 ? size : 0);
    code = size < 0 ? co_err_set(&err, size, "encode the job")
                    : co_link_send(link, &record, long_part, ticket->payload_size, &err);
    agent->given_us[id % CO_TICKETS_MAX] = co_agent_clock_us();
    if (code < 0) {
        co_agent_log(agent, CO_LOG_ERROR, CO_FIELDS("pool", agent->pools[index].config->name),
                     "a job could not be handed over and goes back: %s", err.msg);
        co_agent_post(agent, &(struct co_event){.type = CO_EVENT_ENDED,
                                                .pool = index,
                                                .worker = worker,
                                                .ticket = id,
                                                .outcome = CO_OUTCOME_RETURNED});
        return;
    }
    free(ticket->payload);
    ticket->payload = NULL;
}

/* ---- what workers say ---- */

static void on_end(struct co_agent *agent, uint32_t index, uint32_t worker, struct co_link *link,
                   const struct co_record *record)
{
    struct co_ticket *ticket = co_tickets_get(&agent->core.tickets, record->ticket);
    struct co_end_msg end;
    uint64_t place = record->ticket % CO_TICKETS_MAX;
    uint64_t since;

    if (ticket == NULL || ticket->state != CO_TICKET_GIVEN || ticket->pool != index ||
        ticket->worker != worker || agent->ticket_link[place] != NULL ||
        co_end_decode(record->body, record->size, &end) < 0 || end.outcome >= CO_OUTCOME_CRASHED) {
        return; /* Not a worker's word to say. */
    }
    agent->ticket_link[place] = link;
    agent->ticket_tag[place] = co_link_hold(link);
    since = co_agent_clock_us() - agent->given_us[place];
    if (since > end.run_us) {
        co_hist_add(&agent->pools[index].handover, since - end.run_us);
    }
    co_agent_post(agent, &(struct co_event){
                             .type = CO_EVENT_ENDED,
                             .pool = index,
                             .worker = worker,
                             .ticket = record->ticket,
                             .outcome = (enum co_outcome)end.outcome,
                             .delay_s = end.delay_s,
                             .run_us = end.run_us,
                             .record = (end.flags & CO_END_RECORD) != 0,
                             .text = end.text_size > 0 ? strndup(end.text, end.text_size) : NULL,
                         });
}

static void on_reply(struct co_agent *agent, uint32_t index, struct co_link *link,
                     const struct co_record *record)
{
    bool ok = (record->flags & CO_FLAG_OK) != 0;
    char *text = NULL;
    size_t size = 0;
    struct co_err err;

    if ((record->flags & CO_FLAG_OVERFLOW) != 0) {
        if (co_link_overflow(link, record->ticket, &text, &size, &err) < 0) {
            co_agent_log(agent, CO_LOG_ERROR, NULL, "%s", err.msg);
            return;
        }
    } else {
        text = strndup((const char *)record->body, record->size);
    }
    co_requests_reply(agent, index, record->ticket, ok, text != NULL ? text : "");
    free(text);
}

static void on_log(struct co_agent *agent, uint32_t index, uint32_t worker,
                   const struct co_record *record)
{
    char number[16];
    enum co_log_level level;
    uint32_t suppressed = 0;
    struct co_agent_pool *pool = &agent->pools[index];

    if (record->size < 1 || record->body[0] > CO_LOG_ERROR) {
        return;
    }
    level = (enum co_log_level)record->body[0];
    if (!co_log_allow(&pool->output_limit, OUTPUT_BURST, agent->now, &suppressed)) {
        pool->output_suppressed += 1;
        return;
    }
    snprintf(number, sizeof number, "%u", worker);
    co_agent_log(agent, level, CO_FIELDS("pool", pool->config->name, "worker", number), "%.*s",
                 (int)(record->size - 1), (const char *)record->body + 1);
}

static void on_record(struct co_agent *agent, uint32_t index, uint32_t worker, struct co_link *link,
                      const struct co_record *record)
{
    switch (record->type) {
    case CO_RECORD_READY:
        post_worker(agent, CO_EVENT_READY, index, worker);
        if (worker == CO_POOL_CONTROL && !agent->pools[index].info_known &&
            !agent->pools[index].info_asked) {
            agent->pools[index].info_asked = true;
            co_sources_ask(agent, index);
        }
        break;
    case CO_RECORD_END:
        on_end(agent, index, worker, link, record);
        break;
    case CO_RECORD_REPLY:
        if (worker == CO_POOL_CONTROL) {
            on_reply(agent, index, link, record);
        }
        break;
    case CO_RECORD_LOG:
        on_log(agent, index, worker, record);
        break;
    default:
        break;
    }
    co_link_release(link);
}

/* Read one worker's ring; nonsense in it ends the worker. */
static bool read_link(struct co_agent *agent, uint32_t index, uint32_t worker)
{
    static uint8_t buf[CO_RECORD_MAX];
    struct co_link *link = agent->pools[index].links[worker];
    struct co_record record;
    bool any = false;
    int code = 0;

    while (link != NULL && !link->broken && (code = co_link_read(link, buf, &record)) == 1) {
        on_record(agent, index, worker, link, &record);
        any = true;
    }
    if (code < 0 && link != NULL && !link->broken) {
        link->broken = true;
        co_agent_log(agent, CO_LOG_ERROR, CO_FIELDS("pool", agent->pools[index].config->name),
                     "worker %u wrote what is no message into its ring; it is ended", worker);
        co_workers_kill(agent, index, worker);
    }
    return any;
}

bool co_workers_read(struct co_agent *agent)
{
    bool any = false;

    for (uint32_t i = 0; i < agent->n_pools; i++) {
        for (uint32_t w = 0; w <= CO_WORKERS_MAX; w++) {
            if (agent->pools[i].links[w] != NULL) {
                any = read_link(agent, i, w) || any;
            }
        }
    }
    return any;
}

bool co_workers_empty(struct co_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        for (uint32_t w = 0; w <= CO_WORKERS_MAX; w++) {
            struct co_link *link = agent->pools[i].links[w];
            if (link != NULL && !link->broken &&
                !co_ring_empty(&link->wire->to_agent, link->cursor)) {
                return false;
            }
        }
    }
    return true;
}

void co_workers_scan(struct co_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        for (uint32_t w = 0; w < CO_WORKERS_MAX; w++) {
            struct co_link *link = agent->pools[i].links[w];
            uint64_t ticket = agent->core.pools[i].pool.workers[w].ticket;
            if (link != NULL && ticket != 0 &&
                atomic_load_explicit(&link->wire->slot.begun, memory_order_acquire) == ticket) {
                co_agent_post(agent, &(struct co_event){.type = CO_EVENT_BEGAN, .ticket = ticket});
            }
        }
    }
}

/* ---- deaths ---- */

static void retire(struct co_link **link)
{
    (*link)->dead = true;
    if (co_link_idle(*link)) {
        co_link_free(link);
    }
    *link = NULL; /* Else the last ticket settled frees it. */
}

void co_workers_settled(struct co_agent *agent, uint64_t ticket)
{
    uint64_t place = ticket % CO_TICKETS_MAX;
    struct co_link *link = agent->ticket_link[place];

    if (link == NULL) {
        return;
    }
    agent->ticket_link[place] = NULL;
    co_link_settled(link, agent->ticket_tag[place]);
    if (link->dead && co_link_idle(link)) {
        co_link_free(&link);
    }
}

static void exited(struct co_agent *agent, uint32_t index, uint32_t worker, int exit_code,
                   int signal)
{
    struct co_agent_pool *pool = &agent->pools[index];
    struct co_link *link = pool->links[worker];
    uint64_t ticket;
    bool began;

    read_link(agent, index, worker); /* What it said last counts. */
    co_agent_step(agent);
    output_last(&pool->outputs[worker]);
    ticket = agent->core.pools[index].pool.workers[worker].ticket;
    began = link != NULL && ticket != 0 &&
            atomic_load_explicit(&link->wire->slot.begun, memory_order_acquire) == ticket;
    if (link != NULL) {
        retire(&pool->links[worker]);
    }
    if (worker == CO_POOL_CONTROL) {
        co_requests_control_gone(agent, index);
    }
    co_agent_post(agent, &(struct co_event){.type = CO_EVENT_EXITED,
                                            .pool = index,
                                            .worker = worker,
                                            .exit_code = exit_code,
                                            .signal = signal,
                                            .ok = began});
    co_agent_step(agent);
}

static bool find_worker(const struct co_agent *agent, pid_t pid, uint32_t *ret_pool,
                        uint32_t *ret_worker)
{
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        for (uint32_t w = 0; w <= CO_WORKERS_MAX; w++) {
            const struct co_pool_worker *worker = &agent->core.pools[i].pool.workers[w];
            if (worker->present && worker->pid == pid) {
                *ret_pool = i;
                *ret_worker = w;
                return true;
            }
        }
    }
    return false;
}

static bool find_zygote(const struct co_agent *agent, pid_t pid, uint32_t *ret_pool)
{
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        if (agent->pools[i].zygote == pid) {
            *ret_pool = i;
            return true;
        }
    }
    return false;
}

static void keep_stranger(struct co_agent *agent, pid_t pid, int exit_code, int signal)
{
    if (agent->n_strangers == CO_STRANGERS_MAX) { /* Orphans of jobs: the oldest is no worker. */
        memmove(agent->strangers, agent->strangers + 1,
                (CO_STRANGERS_MAX - 1) * sizeof agent->strangers[0]);
        agent->n_strangers -= 1;
    }
    agent->strangers[agent->n_strangers++] =
        (struct co_stranger){.pid = pid, .exit_code = exit_code, .signal = signal};
}

void co_workers_reap(struct co_agent *agent)
{
    pid_t pid;

    while (co_proc_next_exit(&pid)) {
        uint32_t pool = 0, worker = 0;
        int exit_code, signal;
        bool is_worker;
        /* The announcement may lie unread in the socket. */
        for (uint32_t i = 0; i < agent->n_pools; i++) {
            read_control(agent, i);
        }
        is_worker = find_worker(agent, pid, &pool, &worker);
        co_proc_reap(pid, is_worker, &exit_code, &signal);
        if (is_worker) {
            exited(agent, pool, worker, exit_code, signal);
        } else if (find_zygote(agent, pid, &pool)) {
            zygote_ended(agent, pool, exit_code, signal);
        } else {
            keep_stranger(agent, pid, exit_code, signal);
        }
    }
}

/* ---- start and end ---- */

static const struct co_app_config *find_app(const struct co_config *config, const char *name)
{
    for (uint32_t i = 0; i < config->n_apps; i++) {
        if (strcmp(config->apps[i].name, name) == 0) {
            return &config->apps[i];
        }
    }
    return NULL;
}

int co_workers_open(struct co_agent *agent, struct co_err *err)
{
    for (uint32_t i = 0; i < agent->config.n_pools; i++) {
        const struct co_pool_config *config = &agent->config.pools[i];
        struct co_agent_pool *pool = &agent->pools[i];
        char path[CO_PATH_SIZE];
        int code;
        pool->config = config;
        pool->app = find_app(&agent->config, config->app);
        pool->control_fd = -1;
        assert(pool->app != NULL); /* co_config_finish() saw to it. */
        snprintf(path, sizeof path, "%.900s/%s", agent->config.run_dir, config->name);
        code = co_proc_mkdir(path, err);
        if (code < 0) {
            return code;
        }
        snprintf(path, sizeof path, "%.900s/%s/bell", agent->config.run_dir, config->name);
        code = co_bell_open(path, &pool->bell, err);
        if (code < 0) {
            return code;
        }
        agent->n_pools += 1;
        co_core_add_pool(&agent->core, config, config->workers);
    }
    return CO_OK;
}

void co_workers_close(struct co_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        struct co_agent_pool *pool = &agent->pools[i];
        for (uint32_t w = 0; w <= CO_WORKERS_MAX; w++) {
            co_proc_kill(agent->core.pools[i].pool.workers[w].pid);
            output_last(&pool->outputs[w]);
            if (pool->links[w] != NULL && co_link_idle(pool->links[w])) {
                co_link_free(&pool->links[w]);
            }
        }
        if (pool->zygote > 0) {
            int exit_code, signal;
            control_close(pool);
            co_proc_kill(pool->zygote);
            co_proc_reap(pool->zygote, false, &exit_code, &signal);
        }
        output_last(&pool->zygote_output);
        control_close(pool);
        co_bell_close(&pool->bell);
    }
}
