/* What the loop looks after by the clock: memory of workers, pauses and the application's own
 * switches, the slow log, and notes for state.db. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_uv.h"
#include "agent/cgroup_os.h"

#define MEMORY_EVERY 250
#define PRESSURE_HIGH 1000 /* Hundredths of a percent. */
#define PRESSURE_LOW 500
#define SECOND 1000
#define KEYS_BODY 16384
#define SWITCHES_PATIENCE 3 /* Seconds: then jobs run, whatever the application's cache does. */

/* ---- memory ---- */

/* What the pool says, else its workers' part of what the pod may use beyond agent and zygote. */
static uint64_t memory_limit(const struct co_agent *agent, const struct co_agent_pool *pool)
{
    uint64_t base;
    uint32_t workers = 0;

    if (pool->config->memory_bytes > 0 || agent->cgroup.memory_bytes == 0) {
        return pool->config->memory_bytes;
    }
    base = co_proc_rss(getpid());
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        workers += agent->config.pools[i].workers;
        for (int z = 0; z < 2; z++) {
            base += co_proc_rss(agent->pools[i].zygotes[z].pid);
        }
    }
    return base < agent->cgroup.memory_bytes && workers > 0
               ? (agent->cgroup.memory_bytes - base) / workers
               : agent->cgroup.memory_bytes;
}

static void check_worker(struct co_agent *agent, uint32_t index, uint32_t worker, uint64_t limit)
{
    struct co_pool_worker *w = &agent->core.pools[index].pool.workers[worker];
    uint64_t rss = w->present && w->pid > 0 ? co_proc_rss(w->pid) : 0;
    char now[32], most[32];

    agent->pools[index].rss[worker] = rss;
    if (limit == 0 || rss <= limit || w->state == CO_WORKER_DRAINING) {
        return;
    }
    snprintf(now, sizeof now, "%llu", (unsigned long long)rss);
    snprintf(most, sizeof most, "%llu", (unsigned long long)limit);
    snprintf(agent->pools[index].last_words[worker], sizeof agent->pools[index].last_words[0],
             "it held %s bytes of memory, its limit is %s", now, most);
    co_agent_log(
        agent, CO_LOG_WARN,
        CO_FIELDS("pool", agent->pools[index].config->name, "rss_bytes", now, "limit_bytes", most),
        "worker %u is over its memory limit and is ended", worker);
    co_agent_post(agent,
                  &(struct co_event){.type = CO_EVENT_MEMORY, .pool = index, .worker = worker});
}

/* The kernel says how long everything stood still for memory; a tenth of the time is too long. */
static void check_pressure(struct co_agent *agent)
{
    uint32_t pressure = co_cgroup_os_pressure(&agent->cgroup);
    bool tight = agent->tight ? pressure >= PRESSURE_LOW : pressure >= PRESSURE_HIGH;

    if (tight != agent->tight) {
        agent->tight = tight;
        co_agent_log(agent, tight ? CO_LOG_WARN : CO_LOG_INFO, NULL,
                     tight ? "memory is short (pressure %u.%02u %%): no worker is made beyond the "
                             "count"
                           : "memory is not short any more (pressure %u.%02u %%)",
                     pressure / 100, pressure % 100);
        co_agent_post(agent, &(struct co_event){.type = CO_EVENT_TIGHT, .ok = tight});
    }
}

static void on_memory(uv_timer_t *timer)
{
    struct co_agent *agent = timer->loop->data;

    check_pressure(agent);
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        uint64_t limit = memory_limit(agent, &agent->pools[i]);
        for (uint32_t w = 0; w < CO_WORKERS_MAX; w++) {
            if (agent->core.pools[i].pool.workers[w].present) {
                check_worker(agent, i, w, limit);
            }
        }
    }
    co_agent_step(agent);
}

bool co_upkeep_oom_killed(struct co_agent *agent)
{
    uint64_t kills = co_cgroup_os_oom_kills(&agent->cgroup);
    bool more = kills > agent->oom_kills;

    agent->oom_kills = kills;
    return more;
}

/* ---- pauses, maintenance, restart ---- */

static const struct co_state_pause *paused_here(const struct co_agent *agent,
                                                const char *connection, const char *queue)
{
    for (uint32_t i = 0; i < agent->n_pauses; i++) {
        const struct co_state_pause *pause = &agent->pauses[i];
        if ((pause->queue[0] == '\0' || strcmp(pause->queue, queue) == 0) &&
            (pause->connection[0] == '\0' || strcmp(pause->connection, connection) == 0)) {
            return pause;
        }
    }
    return NULL;
}

static bool paused_there(const struct co_agent_pool *pool, const char *connection,
                         const char *queue)
{
    char name[CO_TEXT_SIZE + CO_NAME_SIZE];

    snprintf(name, sizeof name, "%s:%s", connection, queue);
    return pool->switches.paused_all || co_json_has(pool->switches.json, "paused", name);
}

static void tell_hold(struct co_agent *agent, uint32_t index, const char *reason)
{
    const struct co_queue *queue = &agent->core.tickets.queues[index];
    bool held = reason != NULL;

    if (held == agent->told_held[index]) {
        return;
    }
    agent->told_held[index] = held;
    co_agent_log(agent, CO_LOG_INFO,
                 CO_FIELDS("queue", queue->name, "connection",
                           co_sources_table(agent, queue->source, queue->table)->connection,
                           "reason", held ? reason : "released"),
                 held ? "queue held: nothing is claimed" : "queue served again");
}

/* An application that is down or paused when we start shall not lose a job to the first second. */
static bool unheard(const struct co_agent_pool *pool)
{
    return !pool->switches.known && pool->switches.waited < SWITCHES_PATIENCE;
}

static void hold_queue(struct co_agent *agent, uint32_t index, bool hold)
{
    const struct co_queue *queue = &agent->core.tickets.queues[index];
    const struct co_agent_pool *pool = &agent->pools[queue->pool];
    const char *connection = co_sources_table(agent, queue->source, queue->table)->connection;
    const struct co_state_pause *pause = paused_here(agent, connection, queue->name);
    const struct co_fleet_override *word = co_fleet_uv_override(agent, index);
    char *why = agent->held_why[index];
    bool held;

    why[0] = '\0';
    if (pool->switches.down && !pool->config->force) {
        snprintf(why, CO_VIEW_WHY_SIZE, "the application is in maintenance mode (artisan up)");
    } else if (pause != NULL) {
        snprintf(why, CO_VIEW_WHY_SIZE, "paused by %.40s: %.80s (cohort resume)", pause->by,
                 pause->reason);
    } else if (word != NULL && word->action == CO_FLEET_PAUSE) {
        snprintf(why, CO_VIEW_WHY_SIZE,
                 "paused in the whole fleet by %.31s: %.60s (cohort resume "
                 "--fleet)",
                 word->by, word->reason);
    } else if (paused_there(pool, connection, queue->name)) {
        snprintf(why, CO_VIEW_WHY_SIZE, "paused in the application (queue:continue)");
    }
    held = why[0] != '\0' || unheard(pool);
    tell_hold(agent, index, why[0] != '\0' ? why : NULL);
    if (held != queue->held && held == hold) {
        co_agent_post(agent, &(struct co_event){.type = CO_EVENT_HOLD, .queue = index, .ok = held});
    }
}

/* The last are held first and released last, or a low queue would be claimed in between while a
 * higher one is held only as long as that. */
void co_upkeep_hold(struct co_agent *agent)
{
    uint32_t n = agent->core.tickets.n_queues;

    for (uint32_t i = n; i-- > 0;) {
        hold_queue(agent, i, true);
    }
    for (uint32_t i = 0; i < n; i++) {
        hold_queue(agent, i, false);
    }
    co_agent_step(agent);
}

/* The restart key holds the second in which it was set; one set before our application began to
 * boot is no news to it. */
static bool restart_wanted(struct co_agent_pool *pool, const char *json)
{
    char value[32] = "";
    bool changed;

    if (!co_json_get_string(json, "restart", value, sizeof value)) {
        value[0] = '\0';
    }
    changed = pool->switches.known
                  ? strcmp(value, pool->switches.restart) != 0
                  : value[0] != '\0' && strtoll(value, NULL, 10) >= (long long)pool->boot_began;
    snprintf(pool->switches.restart, sizeof pool->switches.restart, "%s", value);
    pool->switches.known = true;
    return changed && value[0] != '\0';
}

static void on_switches(struct co_agent *agent, void *context, bool ok, const char *json)
{
    struct co_agent_pool *pool = context;
    uint32_t index = (uint32_t)(pool - agent->pools);

    pool->switches.asked = false;
    if (!ok || agent->core.draining) {
        pool->switches.waited = SWITCHES_PATIENCE;
        co_upkeep_hold(agent);
        return; /* What holds, holds until the application says otherwise. */
    }
    snprintf(pool->switches.json, sizeof pool->switches.json, "%s", json);
    pool->switches.down = co_json_get_bool(json, "down", false);
    pool->switches.paused_all = co_json_get_bool(json, "paused_all", false);
    if (restart_wanted(pool, json)) {
        co_agent_reload(agent, index, "queue:restart");
    }
    co_upkeep_hold(agent);
}

/* The queues by name, so that the application looks up no others. */
void co_upkeep_ask(struct co_agent *agent, uint32_t index)
{
    static char body[KEYS_BODY];
    struct co_agent_pool *pool = &agent->pools[index];
    size_t used = (size_t)snprintf(body, sizeof body, "{\"queues\":[");
    bool first = true;

    for (uint32_t i = 0; i < agent->core.tickets.n_queues; i++) {
        const struct co_queue *queue = &agent->core.tickets.queues[i];
        char name[CO_TEXT_SIZE + CO_NAME_SIZE];
        char *quoted;
        if (queue->pool != index) {
            continue;
        }
        snprintf(name, sizeof name, "%s:%s",
                 co_sources_table(agent, queue->source, queue->table)->connection, queue->name);
        quoted = co_json_quote(name);
        if (quoted != NULL && used + strlen(quoted) + 4 < sizeof body) {
            used +=
                (size_t)snprintf(body + used, sizeof body - used, "%s%s", first ? "" : ",", quoted);
            first = false;
        }
        free(quoted);
    }
    snprintf(body + used, sizeof body - used, "]}");
    pool->switches.asked = true;
    co_requests_ask(agent, index, "keys", body, on_switches, pool);
}

/* ---- slow log ---- */

static void on_stack(struct co_agent *agent, void *context, const char *text)
{
    struct co_report_slow *note = context;
    char seconds[16];

    snprintf(note->stack, sizeof note->stack, "%.*s", (int)sizeof note->stack - 1, text);
    snprintf(seconds, sizeof seconds, "%u", note->seconds);
    co_agent_log(
        agent, CO_LOG_WARN,
        CO_FIELDS("pool", note->pool, "job", note->job, "seconds", seconds, "stack", note->stack),
        "slow job in worker %u", note->worker);
    if (agent->state != NULL) {
        co_state_slow(agent->state, note);
    }
    free(note);
}

/* The stack of a job that runs for longer than `slow`, once a ticket. */
static void check_slow(struct co_agent *agent, uint32_t index)
{
    struct co_agent_pool *pool = &agent->pools[index];
    co_ms slow = pool->config->slow;

    for (uint32_t w = 0; slow > 0 && w < CO_WORKERS_MAX; w++) {
        struct co_pool_worker *worker = &agent->core.pools[index].pool.workers[w];
        const struct co_ticket *ticket = co_tickets_get(&agent->core.tickets, worker->ticket);
        struct co_report_slow *note;
        if (ticket == NULL || ticket->state != CO_TICKET_GIVEN ||
            pool->slow_logged[w] == ticket->id || agent->now - ticket->given_at < slow) {
            continue;
        }
        pool->slow_logged[w] = ticket->id;
        note = calloc(1, sizeof *note);
        if (note == NULL) {
            return;
        }
        note->at = (co_unix)(co_agent_wall_ms() / 1000);
        note->worker = w;
        note->seconds = (uint32_t)((agent->now - ticket->given_at) / 1000);
        snprintf(note->pool, sizeof note->pool, "%s", pool->config->name);
        snprintf(note->job, sizeof note->job, "%s", ticket->facts.display_name);
        co_trace_start(agent, worker->pid, false, on_stack, note);
    }
}

/* ---- notes ---- */

static void name_job(const struct co_agent *agent, const struct co_ticket *ticket,
                     struct co_agent_job *job)
{
    snprintf(job->queue, sizeof job->queue, "%.*s", (int)sizeof job->queue - 1,
             agent->core.tickets.queues[ticket->queue].name);
    snprintf(job->name, sizeof job->name, "%s", ticket->facts.display_name);
    snprintf(job->uuid, sizeof job->uuid, "%s", ticket->facts.uuid);
    snprintf(job->id, sizeof job->id, "%lld", (long long)ticket->job_id);
}

void co_upkeep_ended(struct co_agent *agent, const struct co_ticket *ticket,
                     const struct co_end_msg *end)
{
    const struct co_queue *queue = &agent->core.tickets.queues[ticket->queue];

    if ((end->flags & CO_END_TIMEOUT) != 0) { /* The handler's last word: its process ends too. */
        name_job(agent, ticket, &agent->pools[ticket->pool].timed_out[ticket->worker]);
    }
    co_minutes_add(
        &agent->minutes,
        &(struct co_minutes_end){
            .pool = agent->pools[queue->pool].config->name,
            .connection = co_sources_table(agent, queue->source, queue->table)->connection,
            .queue = queue->name,
            .job = ticket->facts.display_name,
            .outcome = (enum co_outcome)end->outcome,
            .timeout = (end->flags & CO_END_TIMEOUT) != 0,
            .run_us = end->run_us,
            .wait_us = (ticket->given_at - ticket->admitted_at) * 1000,
        });
}

/* Before the core forgets who it was. */
void co_upkeep_exiting(struct co_agent *agent, const struct co_event *event, const char *text)
{
    struct co_agent_pool *pool = &agent->pools[event->pool];
    const struct co_pool_worker *worker =
        &agent->core.pools[event->pool].pool.workers[event->worker];
    const struct co_ticket *ticket = co_tickets_get(&agent->core.tickets, worker->ticket);
    struct co_agent_job *job = &pool->timed_out[event->worker];
    struct co_report_exit *note = &agent->exit_note;

    *note = (struct co_report_exit){
        .at = (co_unix)(event->wall_ms / 1000),
        .worker = event->worker,
        .pid = worker->pid,
        .generation = worker->generation,
        .rss_bytes = pool->rss[event->worker],
    };
    snprintf(note->pool, sizeof note->pool, "%s", pool->config->name);
    snprintf(note->status, sizeof note->status, event->signal != 0 ? "signal %d" : "exit code %d",
             event->signal != 0 ? event->signal : event->exit_code);
    snprintf(note->cause, sizeof note->cause, "%.*s", (int)sizeof note->cause - 1, text);
    pool->rss[event->worker] = 0;
    if (ticket != NULL) {
        name_job(agent, ticket, job);
    }
    snprintf(note->queue, sizeof note->queue, "%s", job->queue);
    snprintf(note->job, sizeof note->job, "%s", job->name);
    snprintf(note->uuid, sizeof note->uuid, "%s", job->uuid);
    snprintf(note->job_id, sizeof note->job_id, "%s", job->id);
    *job = (struct co_agent_job){0};
}

void co_upkeep_exited(struct co_agent *agent)
{
    struct co_report_exit *note = &agent->exit_note;

    bool routine = note->worker >= CO_PLACE_CONTROL && agent->core.last_exit <= CO_EXIT_OPERATOR;

    snprintf(note->reason, sizeof note->reason, "%s", co_exit_name(agent->core.last_exit));
    if (agent->state != NULL && !routine) { /* A bookkeeper's end is no news unless it failed. */
        co_state_exit(agent->state, note);
    }
}

static void flush_minutes(struct co_agent *agent, bool last)
{
    co_unix now = (co_unix)(co_agent_wall_ms() / 1000);

    if (agent->state != NULL && (last || co_minutes_over(&agent->minutes, now))) {
        co_state_minutes(agent->state, &agent->minutes);
        co_minutes_start(&agent->minutes, now);
    }
}

static void log_state(struct co_agent *agent)
{
    struct co_err err;

    while (agent->state != NULL && co_state_error(agent->state, &err)) {
        co_agent_log(agent, err.code == CO_OK ? CO_LOG_INFO : CO_LOG_WARN, NULL, "%s", err.msg);
    }
}

/* ---- each second ---- */

static void on_second(uv_timer_t *timer)
{
    struct co_agent *agent = timer->loop->data;

    agent->now = co_agent_clock();
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        struct co_agent_pool *pool = &agent->pools[i];
        co_agent_post(agent, &(struct co_event){.type = CO_EVENT_AGE, .pool = i});
        if (pool->info_known && !pool->switches.known) {
            pool->switches.waited += 1;
            co_upkeep_hold(agent);
        }
        if (pool->info_known && !pool->switches.asked && !agent->core.draining) {
            co_upkeep_ask(agent, i);
        }
        check_slow(agent, i);
        co_zygotes_check(agent, i);
    }
    flush_minutes(agent, false);
    log_state(agent);
    co_agent_step(agent);
}

int co_upkeep_open(struct co_agent *agent, struct co_err *err)
{
    char path[CO_PATH_SIZE];
    int code;

    snprintf(path, sizeof path, "%.1000s/state.db", agent->config.state_dir);
    code = co_state_open(path, agent->pauses, &agent->n_pauses, &agent->state, err);
    if (code < 0) {
        return code;
    }
    for (uint32_t i = 0; i < agent->n_pauses; i++) {
        co_agent_log(agent, CO_LOG_WARN,
                     CO_FIELDS("queue", agent->pauses[i].queue, "by", agent->pauses[i].by, "reason",
                               agent->pauses[i].reason),
                     "paused on this agent since an earlier run; cohort resume ends it");
    }
    agent->cgroup = co_cgroup_os_read();
    agent->oom_kills = co_cgroup_os_oom_kills(&agent->cgroup);
    co_minutes_start(&agent->minutes, (co_unix)(co_agent_wall_ms() / 1000));
    uv_timer_init(&agent->loop, &agent->memory_timer);
    uv_timer_start(&agent->memory_timer, on_memory, MEMORY_EVERY, MEMORY_EVERY);
    uv_timer_init(&agent->loop, &agent->second_timer);
    uv_timer_start(&agent->second_timer, on_second, SECOND / 2, SECOND);
    return CO_OK;
}

void co_upkeep_close(struct co_agent *agent)
{
    uv_timer_stop(&agent->memory_timer);
    uv_timer_stop(&agent->second_timer);
    flush_minutes(agent, true);
    co_state_free(&agent->state);
}
