/* Workers: handing over, what they say, their deaths. */

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent_uv.h"

static void post_worker(struct co_agent *agent, enum co_event_type type, uint32_t pool,
                        uint32_t worker)
{
    co_agent_post(agent, &(struct co_event){.type = type, .pool = pool, .worker = worker});
}

static bool is_control(uint32_t worker)
{
    return worker >= CO_PLACE_CONTROL && worker < CO_PLACE_BOOKKEEPER;
}

/* ---- handing over ---- */

void co_workers_forget_words(struct co_agent_pool *pool, uint32_t worker)
{
    pool->last_line[worker][0] = '\0';
    pool->last_words[worker][0] = '\0';
}

void co_workers_stop(struct co_agent *agent, uint32_t index, uint32_t worker)
{
    const struct co_pool_worker *w = &agent->core.pools[index].pool.workers[worker];
    struct co_link *link = agent->pools[index].links[worker];
    struct co_err err;

    if (link != NULL && !link->broken &&
        co_link_send(link, &(struct co_record){.type = CO_RECORD_STOP}, NULL, 0, &err) < 0) {
        co_workers_kill(agent, index, worker); /* A ring full of unread messages: it hangs. */
    } else if (w->ticket != 0 && worker < CO_PLACE_CONTROL) {
        co_proc_signal_stop(w->pid); /* Its job may want to know. */
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

/* The slot decides whether the job still runs; its worker's handler is woken only then. */
void co_workers_timeout(struct co_agent *agent, uint32_t index, uint32_t worker, uint64_t ticket)
{
    struct co_link *link = agent->pools[index].links[worker];
    bool running = link != NULL && co_slot_end(&link->wire->slot, ticket, agent->now);

    if (running) {
        co_proc_signal_timeout(agent->core.pools[index].pool.workers[worker].pid);
    }
    co_agent_post(agent, &(struct co_event){.type = CO_EVENT_ENDING,
                                            .pool = index,
                                            .worker = worker,
                                            .ticket = ticket,
                                            .ok = running});
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

/* Encode and send; the payload goes by overflow when it is long. */
static int send_job(struct co_agent *agent, uint32_t index, uint32_t worker,
                    const struct co_ticket *ticket, uint16_t type, struct co_job_msg *msg,
                    struct co_err *err)
{
    static uint8_t buf[CO_RECORD_MAX];
    struct co_record record = {.type = type, .ticket = ticket->id, .body = buf};
    const void *long_part = NULL;
    int size = co_job_encode(msg, buf, sizeof buf);

    if (size == CO_ETOOBIG) {
        msg->payload = NULL;
        size = co_job_encode(msg, buf, sizeof buf);
        long_part = ticket->payload;
        record.flags = CO_FLAG_OVERFLOW;
    }
    if (size < 0) {
        return co_err_set(err, size, "encode the job");
    }
    record.size = (uint32_t)size;
    return co_link_send(agent->pools[index].links[worker], &record, long_part, ticket->payload_size,
                        err);
}

static void give_back(struct co_agent *agent, uint32_t index, uint32_t worker, uint64_t ticket,
                      const struct co_err *err)
{
    co_agent_log(agent, CO_LOG_ERROR, CO_FIELDS("pool", agent->pools[index].config->name),
                 "a job could not be handed over and goes back: %s", err->msg);
    co_agent_post(agent, &(struct co_event){.type = CO_EVENT_ENDED,
                                            .pool = index,
                                            .worker = worker,
                                            .ticket = ticket,
                                            .outcome = CO_OUTCOME_RETURNED});
}

void co_workers_give(struct co_agent *agent, uint32_t index, uint32_t worker, uint64_t id)
{
    struct co_ticket *ticket = co_tickets_get(&agent->core.tickets, id);
    struct co_job_msg msg = job_message(agent, index, ticket);
    struct co_err err;

    agent->given_us[id % CO_TICKETS_MAX] = co_agent_clock_us();
    co_workers_forget_words(&agent->pools[index], worker); /* They were of the job before. */
    if (send_job(agent, index, worker, ticket, CO_RECORD_JOB, &msg, &err) < 0) {
        give_back(agent, index, worker, id, &err);
    }
}

void co_workers_bookkeep(struct co_agent *agent, uint32_t index, uint32_t worker, uint64_t id)
{
    struct co_ticket *ticket = co_tickets_get(&agent->core.tickets, id);
    struct co_job_msg msg = job_message(agent, index, ticket);
    struct co_err err;

    msg.cause = ticket->cause;
    msg.final = (ticket->final ? CO_FINAL_FAIL : 0u) | (ticket->failed_ran ? CO_FINAL_FAILED : 0u);
    msg.cause_text = ticket->text != NULL ? ticket->text : "";
    msg.cause_size = (uint32_t)strlen(msg.cause_text);
    agent->given_us[id % CO_TICKETS_MAX] = co_agent_clock_us();
    if (send_job(agent, index, worker, ticket, CO_RECORD_BOOKKEEP, &msg, &err) < 0) {
        co_agent_log(agent, CO_LOG_ERROR, CO_FIELDS("pool", agent->pools[index].config->name),
                     "a job could not be given to a bookkeeper: %s", err.msg);
        co_workers_kill(agent, index, worker); /* Its death is a failed bookkeeping. */
    }
}

/* ---- what workers say ---- */

static void hold_end(struct co_agent *agent, struct co_link *link, uint64_t ticket)
{
    uint64_t place = ticket % CO_TICKETS_MAX;

    if (agent->ticket_link[place] == NULL) {
        agent->ticket_link[place] = link;
        agent->ticket_tag[place] = co_link_hold(link);
    }
}

static void on_end(struct co_agent *agent, uint32_t index, uint32_t worker, struct co_link *link,
                   const struct co_record *record)
{
    struct co_ticket *ticket = co_tickets_get(&agent->core.tickets, record->ticket);
    struct co_end_msg end;
    uint64_t since;

    if (ticket == NULL || ticket->state != CO_TICKET_GIVEN || ticket->pool != index ||
        ticket->worker != worker || co_end_decode(record->body, record->size, &end) < 0 ||
        end.outcome >= CO_OUTCOME_CRASHED) {
        return; /* Not a worker's word to say. */
    }
    hold_end(agent, link, record->ticket);
    since = co_agent_clock_us() - agent->given_us[record->ticket % CO_TICKETS_MAX];
    if (since > end.run_us) {
        co_hist_add(&agent->pools[index].handover, since - end.run_us);
    }
    co_upkeep_ended(agent, ticket, &end);
    free(ticket->text); /* A bookkeeper's reason; what it made of it comes now. */
    ticket->text = NULL;
    co_agent_post(agent, &(struct co_event){
                             .type = CO_EVENT_ENDED,
                             .pool = index,
                             .worker = worker,
                             .ticket = record->ticket,
                             .outcome = (enum co_outcome)end.outcome,
                             .delay_s = end.delay_s,
                             .run_us = end.run_us,
                             .cycle_us = (uint32_t)(since < UINT32_MAX ? since : UINT32_MAX),
                             .record = (end.flags & CO_END_RECORD) != 0,
                             .over_memory = (end.flags & CO_END_MEMORY) != 0,
                             .timed_out = (end.flags & CO_END_TIMEOUT) != 0,
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
    if (level == CO_LOG_ERROR) { /* Its last one says why it ends, if it ends. */
        snprintf(pool->last_words[worker], sizeof pool->last_words[0], "%.*s",
                 (int)(record->size - 1), (const char *)record->body + 1);
    }
    if (!co_log_allow(&pool->output_limit, CO_OUTPUT_BURST, agent->now, &suppressed)) {
        pool->output_suppressed += 1;
        return;
    }
    snprintf(number, sizeof number, "%u", worker);
    co_agent_log(agent, level, CO_FIELDS("pool", pool->config->name, "worker", number), "%.*s",
                 (int)(record->size - 1), (const char *)record->body + 1);
}

static void on_ready(struct co_agent *agent, uint32_t index, uint32_t worker)
{
    struct co_agent_pool *pool = &agent->pools[index];

    if (agent->core.pools[index].pool.workers[worker].state != CO_WORKER_BOOTING) {
        return; /* Said once is enough. */
    }
    pool->boot_error[0] = '\0';
    pool->booted_once = true;
    post_worker(agent, CO_EVENT_READY, index, worker);
    if (is_control(worker) && !pool->info_known && !pool->info_asked) {
        pool->info_asked = true;
        co_sources_ask(agent, index);
    }
}

static void on_boot_failed(struct co_agent *agent, uint32_t index, const struct co_record *record)
{
    char text[CO_TEXT_SIZE];

    snprintf(text, sizeof text, "%.*s", (int)record->size, (const char *)record->body);
    co_zygotes_boot_failed(agent, index, text);
}

static void on_record(struct co_agent *agent, uint32_t index, uint32_t worker, struct co_link *link,
                      const struct co_record *record)
{
    switch (record->type) {
    case CO_RECORD_READY:
        on_ready(agent, index, worker);
        break;
    case CO_RECORD_END:
        on_end(agent, index, worker, link, record);
        break;
    case CO_RECORD_REPLY:
        if (is_control(worker)) {
            on_reply(agent, index, link, record);
        }
        break;
    case CO_RECORD_LOG:
        on_log(agent, index, worker, record);
        break;
    case CO_RECORD_BOOT_FAILED:
        on_boot_failed(agent, index, record);
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
        co_agent_step(agent); /* One by one: what a worker floods us with must not gather. */
        link = agent->pools[index].links[worker];
        any = true;
    }
    if (link != NULL && !link->broken && (code < 0 || co_link_lost(link))) {
        link->broken = true;
        co_agent_log(
            agent, CO_LOG_ERROR, CO_FIELDS("pool", agent->pools[index].config->name),
            "worker %u wrote what is no message into its wire, or cut the file; it is ended",
            worker);
        co_workers_kill(agent, index, worker);
    }
    return any;
}

/* The place after w that may have a link: most places of a pool were never used. */
static uint32_t next_place(const struct co_agent_pool *pool, uint32_t w)
{
    return w + 1 == pool->links_top ? CO_PLACE_CONTROL : w + 1;
}

bool co_workers_read(struct co_agent *agent)
{
    bool any = false;

    for (uint32_t i = 0; i < agent->n_pools; i++) {
        for (uint32_t w = 0; w < CO_PLACES_MAX; w = next_place(&agent->pools[i], w)) {
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
        for (uint32_t w = 0; w < CO_PLACES_MAX; w = next_place(&agent->pools[i], w)) {
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

/* What is told of a death: how, and why, or the last thing it wrote. */
static void describe(const struct co_agent_pool *pool, uint32_t worker, int exit_code, int signal,
                     bool by_oom, char *buf, size_t size)
{
    char how[80];

    if (by_oom) {
        snprintf(how, sizeof how, "the kernel ended it for want of memory");
    } else if (signal != 0) {
        snprintf(how, sizeof how, "signal %d (SIG%s)", signal,
                 sigabbrev_np(signal) != NULL ? sigabbrev_np(signal) : "?");
    } else {
        snprintf(how, sizeof how, "exit code %d", exit_code);
    }
    if (pool->last_words[worker][0] != '\0') {
        snprintf(buf, size, "%s; %.319s", how, pool->last_words[worker]);
    } else {
        snprintf(buf, size, "%s%s%.319s", how,
                 pool->last_line[worker][0] != '\0' ? "; last output: " : "",
                 pool->last_line[worker]);
    }
}

void co_workers_exited(struct co_agent *agent, uint32_t index, uint32_t worker, int exit_code,
                       int signal)
{
    struct co_agent_pool *pool = &agent->pools[index];
    struct co_link *link = pool->links[worker];
    struct co_pool_worker *w = &agent->core.pools[index].pool.workers[worker];
    struct co_event event = {
        .type = CO_EVENT_EXITED,
        .pool = index,
        .worker = worker,
        .exit_code = exit_code,
        .signal = signal,
        .wall_ms = co_agent_wall_ms(),
        .by_oom = signal == SIGKILL && !w->has_reason && co_upkeep_oom_killed(agent)};
    char text[CO_TEXT_SIZE];

    co_workers_fork_cancel(agent, index, worker); /* Its zygote died before it was asked. */
    read_link(agent, index, worker);              /* What it said last counts. */
    co_agent_step(agent);
    co_output_last(&pool->outputs[worker]);
    event.failed_ran =
        link != NULL && w->ticket != 0 &&
        atomic_load_explicit(&link->wire->slot.failed, memory_order_acquire) == w->ticket;
    /* Of a wire that was cut nothing is known, but that its job was at work. */
    event.ok = link != NULL && w->ticket != 0 &&
               (co_link_lost(link) ||
                atomic_load_explicit(&link->wire->slot.begun, memory_order_acquire) == w->ticket);
    if (link != NULL) {
        retire(&pool->links[worker]);
    }
    if (is_control(worker)) {
        co_requests_control_gone(agent, index, worker);
    }
    describe(pool, worker, exit_code, signal, event.by_oom, text, sizeof text);
    event.text = w->ticket != 0 ? strdup(text) : NULL;
    co_upkeep_exiting(agent, &event, text);
    co_agent_post(agent, &event);
    co_agent_step(agent);
}

static bool find_worker(const struct co_agent *agent, pid_t pid, uint32_t *ret_pool,
                        uint32_t *ret_worker)
{
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        for (uint32_t w = 0; w < CO_PLACES_MAX; w++) {
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

bool co_workers_knows(const struct co_agent *agent, pid_t pid)
{
    uint32_t pool, worker;

    return pid > 0 && find_worker(agent, pid, &pool, &worker);
}

static bool find_zygote(const struct co_agent *agent, pid_t pid, uint32_t *ret_pool)
{
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        if (agent->pools[i].zygotes[0].pid == pid || agent->pools[i].zygotes[1].pid == pid) {
            *ret_pool = i;
            return true;
        }
    }
    return false;
}

/* Is a zygote still to say which pid a fork of it has? */
static bool awaits_pid(const struct co_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        for (uint32_t w = 0; w < CO_PLACES_MAX; w++) {
            const struct co_pool_worker *worker = &agent->core.pools[i].pool.workers[w];
            if (worker->present && worker->pid == 0) {
                return true;
            }
        }
    }
    return false;
}

static void keep_stranger(struct co_agent *agent, pid_t pid, int exit_code, int signal)
{
    if (!awaits_pid(agent)) { /* An orphan of a job; its pid may come again. */
        agent->n_strangers = 0;
        return;
    }
    if (agent->n_strangers == CO_STRANGERS_MAX) { /* Orphans of jobs: the oldest is no worker. */
        memmove(agent->strangers, agent->strangers + 1,
                (CO_STRANGERS_MAX - 1) * sizeof agent->strangers[0]);
        agent->n_strangers -= 1;
    }
    agent->strangers[agent->n_strangers++] = (struct co_stranger){
        .pid = pid, .exit_code = exit_code, .signal = signal, .at = agent->now};
}

void co_workers_reap(struct co_agent *agent)
{
    pid_t pid;

    while (co_proc_next_exit(&pid)) {
        uint32_t pool = 0, worker = 0;
        int exit_code, signal;
        bool is_worker;
        co_zygotes_read(agent); /* The announcement may lie unread in the socket. */
        is_worker = find_worker(agent, pid, &pool, &worker);
        co_proc_reap(pid, is_worker, &exit_code, &signal);
        if (is_worker) {
            co_workers_exited(agent, pool, worker, exit_code, signal);
        } else if (find_zygote(agent, pid, &pool)) {
            co_zygotes_ended(agent, pool, pid, exit_code, signal);
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
        pool->current = -1;
        pool->links_top = 1;
        pool->boot = config->boot;
        pool->zygotes[0].control_fd = pool->zygotes[1].control_fd = -1;
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
        co_core_add_pool(&agent->core, config, config->workers, agent->id, agent->now);
    }
    return CO_OK;
}

void co_workers_close(struct co_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        struct co_agent_pool *pool = &agent->pools[i];
        for (uint32_t w = 0; w < CO_PLACES_MAX; w++) {
            co_proc_kill(agent->core.pools[i].pool.workers[w].pid);
            co_output_last(&pool->outputs[w]);
            if (pool->links[w] != NULL && co_link_idle(pool->links[w])) {
                co_link_free(&pool->links[w]);
            }
        }
        co_zygotes_close(pool);
        co_bell_close(&pool->bell);
    }
}
