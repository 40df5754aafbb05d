#include "agent/agent_uv.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "agent/overview.h"

#define SCAN_EVERY 50
#define LAG_EVERY 100

/* ---- clocks and log ---- */

static uint64_t read_clock(clockid_t id, uint64_t per_second)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * per_second + (uint64_t)ts.tv_nsec / (1000000000u / per_second);
}

co_ms co_agent_clock(void)
{
    return read_clock(CLOCK_BOOTTIME, 1000);
}

uint64_t co_agent_clock_us(void)
{
    return read_clock(CLOCK_BOOTTIME, 1000000);
}

uint64_t co_agent_wall_ms(void)
{
    return read_clock(CLOCK_REALTIME, 1000);
}

void co_agent_log(struct co_agent *agent, enum co_log_level level, const char *const *fields,
                  const char *fmt, ...)
{
    static const char *const none[] = {NULL};
    char msg[CO_LOG_LINE_MAX / 2];
    char line[CO_LOG_LINE_MAX];
    va_list args;
    size_t size;

    agent->log_messages[level] += 1;
    if (level < agent->config.log_level) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(msg, sizeof msg, fmt, args);
    va_end(args);
    size = co_log_format(line, sizeof line, agent->log_format, level, co_agent_wall_ms(), msg,
                         fields != NULL ? fields : none);
    if (write(STDERR_FILENO, line, size) < 0) {
        return; /* Nobody listens; there is no one left to tell. */
    }
}

void co_agent_fail(struct co_agent *agent, int exit_code, const struct co_err *err)
{
    co_agent_log(agent, CO_LOG_ERROR, NULL, "%s", err->msg);
    agent->exit_code = agent->exit_code != 0 ? agent->exit_code : exit_code;
    co_agent_drain(agent, "failure");
}

/* ---- events and actions ---- */

void co_agent_post(struct co_agent *agent, const struct co_event *event)
{
    assert(agent->events_tail - agent->events_head < CO_EVENTS_MAX);
    agent->events[agent->events_tail++ % CO_EVENTS_MAX] = *event;
}

static void forget(struct co_agent *agent, const struct co_action *action)
{
    struct co_ticket *ticket = co_tickets_get(&agent->core.tickets, action->ticket);

    assert(ticket != NULL);
    if (!action->applied) {
        char id[24];
        snprintf(id, sizeof id, "%lld", (long long)ticket->job_id);
        co_agent_log(agent, CO_LOG_WARN, CO_FIELDS("job_id", id, "job", ticket->facts.display_name),
                     "the outcome of a job was not written: it was cleared, or taken by another "
                     "worker meanwhile");
    }
    free(ticket->payload);
    free(ticket->text);
    ticket->payload = NULL;
    ticket->text = NULL;
    co_workers_settled(agent, action->ticket);
    co_core_forget(&agent->core, action->ticket);
}

static void leave(struct co_agent *agent)
{
    agent->leaving = true;
    uv_stop(&agent->loop);
}

static void obey(struct co_agent *agent, const struct co_action *action)
{
    switch (action->type) {
    case CO_ACTION_ZYGOTE:
        agent->pools[action->pool].boot_began = (co_unix)(co_agent_wall_ms() / 1000);
        co_zygotes_start(agent, action->pool);
        return;
    case CO_ACTION_FORK:
        co_workers_fork(agent, action->pool, action->worker);
        return;
    case CO_ACTION_GIVE:
        co_workers_give(agent, action->pool, action->worker, action->ticket);
        return;
    case CO_ACTION_STOP:
        co_workers_stop(agent, action->pool, action->worker);
        return;
    case CO_ACTION_KILL:
        co_workers_kill(agent, action->pool, action->worker);
        return;
    case CO_ACTION_TIMEOUT:
        co_workers_timeout(agent, action->pool, action->worker, action->ticket);
        return;
    case CO_ACTION_BOOKKEEP:
        co_workers_bookkeep(agent, action->pool, action->worker, action->ticket);
        return;
    case CO_ACTION_TURN:
        co_sources_turn(agent, action->source);
        return;
    case CO_ACTION_FORGET:
        forget(agent, action);
        return;
    case CO_ACTION_END_ZYGOTE:
        co_zygotes_end(agent, action->pool);
        return;
    case CO_ACTION_DRAINED:
        leave(agent);
        return;
    }
}

/* Deaths nobody ordered are worth a warning, but those of boots whose error has been told, and but
 * for the many of one moment. */
static void log_death(struct co_agent *agent, const struct co_event *event)
{
    enum co_exit_reason reason = agent->core.last_exit;
    struct co_agent_pool *pool = &agent->pools[event->pool];
    bool told = reason == CO_EXIT_BOOT_FAILURE && event->signal == 0 && pool->boot_error[0] != '\0';
    bool expected = reason <= CO_EXIT_OPERATOR || told;
    uint32_t suppressed = 0;
    char status[48];

    if (!expected && !co_log_allow(&pool->death_limit, CO_DEATH_BURST, agent->now, &suppressed)) {
        return;
    }
    if (suppressed > 0) {
        co_agent_log(
            agent, CO_LOG_WARN, CO_FIELDS("pool", pool->config->name),
            "%u deaths of workers left out: more than %d in a second; cohort exits has them",
            suppressed, CO_DEATH_BURST);
    }
    snprintf(status, sizeof status, event->signal != 0 ? "signal %d" : "exit code %d",
             event->signal != 0 ? event->signal : event->exit_code);
    co_agent_log(
        agent, expected ? CO_LOG_DEBUG : CO_LOG_WARN,
        CO_FIELDS("pool", pool->config->name, "reason", co_exit_name(reason), "status", status),
        event->worker >= CO_PLACE_BOOKKEEPER ? "bookkeeper -> dead"
        : event->worker >= CO_PLACE_CONTROL  ? "control worker -> dead"
                                             : "worker %u -> dead",
        event->worker);
}

static void log_exit(struct co_agent *agent, const struct co_event *event)
{
    free(agent->core.orphan_text);
    agent->core.orphan_text = NULL;
    co_upkeep_exited(agent);
    if (agent->core.circuit_opened) {
        co_agent_log(agent, CO_LOG_ERROR, CO_FIELDS("pool", agent->pools[event->pool].config->name),
                     "circuit open: too many workers died; one probe at a time is made until one "
                     "completes a job");
    }
    log_death(agent, event);
}

static void step_one(struct co_agent *agent, struct co_event *event)
{
    event->now = agent->now;
    co_core_step(&agent->core, event, &agent->update);
    if (event->type == CO_EVENT_EXITED) {
        log_exit(agent, event);
    }
    if (agent->core.circuit_closed) {
        agent->core.circuit_closed = false;
        co_agent_log(agent, CO_LOG_INFO, CO_FIELDS("pool", agent->pools[event->pool].config->name),
                     "circuit closed: the probe has completed a job, or lived without one");
    }
    if (event->type == CO_EVENT_TURN) {
        co_turn_reset(event->turn); /* The core has what it needs; an action may fill it anew. */
    }
    for (uint32_t i = 0; i < agent->update.n; i++) {
        obey(agent, &agent->update.actions[i]);
    }
}

static void on_timer(uv_timer_t *timer);
static struct co_view *fill_view(struct co_agent *agent);

static void arm(struct co_agent *agent, bool at_once)
{
    co_ms deadline = co_core_deadline(&agent->core, agent->now);
    co_ms wait;

    if (agent->drain_at != 0 && agent->config.drain_deadline != 0 && agent->drains == 1 &&
        agent->drain_at + agent->config.drain_deadline < deadline) {
        deadline = agent->drain_at + agent->config.drain_deadline;
    }
    wait = at_once || deadline <= agent->now ? 0 : deadline - agent->now;
    wait = wait > 60000 ? 60000 : wait;
    uv_timer_start(&agent->timer, on_timer, wait, 0);
}

void co_agent_step(struct co_agent *agent)
{
    if (agent->stepping) {
        return; /* An action posted something; the outer call works it off. */
    }
    agent->stepping = true;
    agent->now = co_agent_clock();
    while (agent->events_head != agent->events_tail) {
        struct co_event event = agent->events[agent->events_head++ % CO_EVENTS_MAX];
        step_one(agent, &event);
    }
    agent->stepping = false;
}

static void tick(struct co_agent *agent)
{
    agent->now = co_agent_clock();
    if (agent->now >= agent->scan_at) {
        agent->scan_at = agent->now + SCAN_EVERY;
        co_workers_scan(agent);
    }
    if (agent->drain_at != 0 && agent->config.drain_deadline != 0 && agent->drains == 1 &&
        agent->now >= agent->drain_at + agent->config.drain_deadline) {
        co_agent_drain(agent, "the drain deadline has passed");
    }
    co_agent_post(agent, &(struct co_event){.type = CO_EVENT_TICK});
    co_agent_step(agent);
}

static void on_timer(uv_timer_t *timer)
{
    tick(timer->loop->data);
}

/* How late the loop is: a timer's own lateness. */
static void on_lag(uv_timer_t *timer)
{
    struct co_agent *agent = timer->loop->data;
    co_ms now = co_agent_clock();
    const struct co_view *view;

    co_hist_add(&agent->loop_lag, now > agent->lag_due ? (now - agent->lag_due) * 1000 : 0);
    agent->lag_due = now + LAG_EVERY;
    uv_timer_start(timer, on_lag, LAG_EVERY, 0);
    co_requests_send(agent);
    view = fill_view(agent);
    if (view->ready != agent->was_ready && !agent->core.draining) {
        agent->was_ready = view->ready;
        co_agent_log(agent, view->ready ? CO_LOG_INFO : CO_LOG_WARN, NULL,
                     view->ready ? "ready%s" : "not ready: %s", view->ready ? "" : view->why);
    }
}

/* Before the loop waits: work off the rings, then say that we sleep and look once more. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct co_agent *agent = prepare->loop->data;
    bool more;

    for (;;) {
        while (co_workers_read(agent)) {
            co_agent_step(agent);
        }
        for (uint32_t i = 0; i < agent->n_pools; i++) {
            co_bell_sleep(agent->pools[i].bell);
        }
        if (co_workers_empty(agent)) {
            break;
        }
        for (uint32_t i = 0; i < agent->n_pools; i++) {
            co_bell_awake(agent->pools[i].bell);
        }
    }
    more = co_workers_fork_on(agent);
    agent->now = co_agent_clock();
    arm(agent, more);
}

static void on_check(uv_check_t *check)
{
    struct co_agent *agent = check->loop->data;

    for (uint32_t i = 0; i < agent->n_pools; i++) {
        co_bell_awake(agent->pools[i].bell);
    }
}

static void on_wake(uv_poll_t *poll, int status, int events)
{
    struct co_agent *agent = poll->loop->data;
    uint64_t count;

    (void)status;
    (void)events;
    if (read(agent->wake_fd, &count, sizeof count) < 0) {
        return; /* Already read. */
    }
}

/* ---- draining ---- */

void co_agent_drain(struct co_agent *agent, const char *why)
{
    bool fast = agent->drains > 0;

    agent->drains += 1;
    agent->drain_at = fast ? agent->drain_at : co_agent_clock();
    co_agent_log(agent, CO_LOG_INFO, CO_FIELDS("reason", why),
                 fast ? "draining fast: running jobs are given back"
                      : "draining: running jobs finish, claimed ones go back");
    co_fleet_uv_drain(agent);
    co_agent_post(agent, &(struct co_event){.type = CO_EVENT_DRAIN, .ok = fast});
    co_agent_step(agent);
}

void co_agent_reload(struct co_agent *agent, uint32_t pool, const char *why)
{
    co_agent_log(agent, CO_LOG_INFO,
                 CO_FIELDS("pool", agent->pools[pool].config->name, "reason", why),
                 "reload: a new generation boots, workers are replaced one by one");
    agent->pools[pool].boot_error[0] = '\0';
    co_agent_post(agent, &(struct co_event){.type = CO_EVENT_RELOAD, .pool = pool});
    co_agent_step(agent);
}

static void reload_all(struct co_agent *agent, const char *why)
{
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        co_agent_reload(agent, i, why);
    }
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct co_agent *agent = handle->loop->data;

    if (signum == SIGCHLD) {
        co_workers_reap(agent);
        co_agent_step(agent);
    } else if (signum == SIGUSR2) {
        reload_all(agent, "SIGUSR2");
    } else {
        char name[16];
        snprintf(name, sizeof name, "%s",
                 signum == SIGTERM  ? "SIGTERM"
                 : signum == SIGINT ? "SIGINT"
                                    : "SIGQUIT");
        co_agent_drain(agent, name);
    }
}

static void watch_signal(struct co_agent *agent, int signum)
{
    uv_signal_t *handle = &agent->signals[agent->n_signals++];

    uv_signal_init(&agent->loop, handle);
    uv_signal_start(handle, on_signal, signum);
}

/* ---- the view ---- */

static void put(char *to, size_t size, const char *text)
{
    size_t n = strnlen(text, size - 1);

    memmove(to, text, n);
    to[n] = '\0';
}
#define PUT(member, text) put(member, sizeof member, text)

static void view_agent(const struct co_agent *agent, struct co_view *view)
{
    snprintf(view->agent_id, sizeof view->agent_id, "%016llx", (unsigned long long)agent->id);
    PUT(view->version, CO_AGENT_VERSION);
    PUT(view->run_dir, agent->config.run_dir);
    PUT(view->config_file, agent->config.file);
    view->pid = getpid();
    view->uptime = co_agent_clock() - agent->started;
    view->loop_lag = agent->loop_lag;
    memcpy(view->log_messages, agent->log_messages, sizeof view->log_messages);
    view->live = true;
}

static void view_pool(const struct co_agent_pool *pool, struct co_view_pool *out)
{
    PUT(out->name, pool->config->name);
    PUT(out->app, pool->app->name);
    PUT(out->app_path, pool->app->path);
    PUT(out->app_kind, pool->info.kind);
    PUT(out->app_version, pool->info.version);
    PUT(out->php_version, pool->php_version);
    PUT(out->boot_error, pool->boot_error);
    out->booted_once = pool->booted_once;
    out->output_lines = pool->output_lines;
    out->output_suppressed = pool->output_suppressed;
    out->handover = pool->handover;
}

static void view_source(const struct co_agent_source *source, struct co_view_source *out)
{
    PUT(out->connection, source->tables[0].connection);
    if (source->redis != NULL) {
        PUT(out->driver, "redis");
    } else {
        PUT(out->driver, "sqlite");
    }
    PUT(out->place, source->path);
    PUT(out->error, source->error);
}

static void view_queues(struct co_agent *agent, struct co_view *view)
{
    for (uint32_t i = 0; i < view->n_queues; i++) {
        const struct co_queue *queue = &agent->core.tickets.queues[i];
        PUT(view->queues[i].connection,
            co_sources_table(agent, queue->source, queue->table)->connection);
        PUT(view->queues[i].pool, agent->pools[queue->pool].config->name);
        PUT(view->queues[i].held_why, agent->held_why[i]);
    }
    for (uint32_t i = 0; i < agent->n_sources; i++) {
        for (uint32_t d = 0; d < agent->sources[i].n_depths; d++) {
            const struct co_turn_depth *depth = &agent->sources[i].depths[d];
            co_overview_unserved(view, &agent->core, i, depth,
                                 co_sources_table(agent, i, depth->table)->connection,
                                 co_agent_wall_ms());
        }
    }
}

/* For people: with every worker's memory, which costs a read of /proc each. */
static void view_memory(struct co_view *view)
{
    for (uint32_t i = 0; i < view->n_pools; i++) {
        for (uint32_t w = 0; w < view->pools[i].n_workers; w++) {
            view->pools[i].workers[w].rss_bytes = co_proc_rss(view->pools[i].workers[w].pid);
        }
    }
}

static struct co_view *fill_view(struct co_agent *agent)
{
    struct co_view *view = &agent->view;

    co_overview_core(view, &agent->core, co_agent_clock(), co_agent_wall_ms());
    view_agent(agent, view);
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        view_pool(&agent->pools[i], &view->pools[i]);
    }
    for (uint32_t i = 0; i < agent->n_sources; i++) {
        view_source(&agent->sources[i], &view->sources[i]);
    }
    view_queues(agent, view);
    co_overview_readiness(view, agent->n_pools);
    return view;
}

const struct co_view *co_agent_view(void *arg)
{
    struct co_view *view = fill_view(arg);

    view_memory(view);
    return view;
}

/* ---- start and end ---- */

static int lock_directories(struct co_agent *agent, struct co_err *err)
{
    char path[CO_PATH_SIZE + 16];
    const char *dirs[2] = {agent->config.run_dir, agent->config.state_dir};

    for (int i = 0; i < 2; i++) {
        int code = co_proc_mkdir(dirs[i], err);
        if (code < 0) {
            return co_err_wrap(err, i == 0 ? "no run directory (--run-dir names another)"
                                           : "no state directory (--state-dir names another)");
        }
        if (i == 1 && strcmp(dirs[0], dirs[1]) == 0) {
            return CO_OK;
        }
        snprintf(path, sizeof path, "%s/cohortd.lock", dirs[i]);
        code = co_proc_lock(path, &agent->lock_fds[i], err);
        if (code < 0) {
            return code;
        }
    }
    return CO_OK;
}

static int open_loop(struct co_agent *agent, struct co_err *err)
{
    uv_loop_init(&agent->loop);
    agent->loop.data = agent;
    agent->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (agent->wake_fd < 0) {
        return co_err_sys(err, errno, "make the wake-up eventfd");
    }
    uv_timer_init(&agent->loop, &agent->timer);
    uv_timer_init(&agent->loop, &agent->lag_timer);
    uv_prepare_init(&agent->loop, &agent->prepare);
    uv_check_init(&agent->loop, &agent->check);
    uv_poll_init(&agent->loop, &agent->wake_poll, agent->wake_fd);
    uv_poll_start(&agent->wake_poll, UV_READABLE, on_wake);
    uv_prepare_start(&agent->prepare, on_prepare);
    uv_check_start(&agent->check, on_check);
    watch_signal(agent, SIGCHLD);
    watch_signal(agent, SIGTERM);
    watch_signal(agent, SIGINT);
    watch_signal(agent, SIGQUIT);
    watch_signal(agent, SIGUSR2);
    agent->lag_due = co_agent_clock() + LAG_EVERY;
    uv_timer_start(&agent->lag_timer, on_lag, LAG_EVERY, 0);
    return CO_OK;
}

static int start(struct co_agent *agent, struct co_err *err)
{
    int code = lock_directories(agent, err);

    if (code == CO_OK) {
        code = co_proc_init(err);
    }
    if (code == CO_OK) {
        code = co_wire_guard(err);
    }
    if (code == CO_OK) {
        code = open_loop(agent, err);
    }
    if (code == CO_OK) {
        code = co_workers_open(agent, err);
    }
    if (code == CO_OK) {
        code = co_upkeep_open(agent, err);
    }
    if (code == CO_OK) {
        code = co_sources_open(agent, err);
    }
    if (code == CO_OK && strcmp(agent->config.http, "off") != 0) {
        code = co_admin_open(&agent->loop, agent->config.http, co_agent_view, agent, &agent->admin,
                             err);
    }
    if (code == CO_OK) {
        code = co_requests_open(agent, err);
    }
    if (code == CO_OK && agent->config.fleet.name[0] != '\0') {
        code = co_fleet_uv_open(agent, &agent->fleet, err);
    }
    return code;
}

static void finish(struct co_agent *agent)
{
    uv_prepare_stop(&agent->prepare);
    uv_check_stop(&agent->check);
    uv_timer_stop(&agent->timer);
    uv_timer_stop(&agent->lag_timer);
    co_upkeep_close(agent);
    co_workers_close(agent);
    co_sources_close(agent);
    co_admin_close(&agent->admin);
    co_requests_close(agent);
    co_fleet_uv_close(&agent->fleet);
    uv_run(&agent->loop, UV_RUN_NOWAIT); /* Let the closed handles go. */
}

int co_agent_run(struct co_agent *agent, const struct co_config *config)
{
    struct co_err err;
    char workers[16];
    int code;

    agent->config = *config;
    agent->log_format = config->log_format != CO_LOG_AUTO ? config->log_format
                        : isatty(STDERR_FILENO)           ? CO_LOG_TEXT
                                                          : CO_LOG_JSON;
    agent->started = agent->now = co_agent_clock();
    if (getrandom(&agent->id, sizeof agent->id, 0) != (ssize_t)sizeof agent->id) {
        agent->id = agent->started ^ (uint64_t)getpid() << 32;
    }
    co_core_init(&agent->core);
    code = start(agent, &err);
    if (code < 0) {
        co_agent_log(agent, CO_LOG_ERROR, NULL, "%s", err.msg);
        return code == CO_ECONFIG ? 2 : 1;
    }
    snprintf(workers, sizeof workers, "%u", config->pools[0].workers);
    co_agent_log(agent, CO_LOG_INFO,
                 CO_FIELDS("http", config->http, "run_dir", config->run_dir, "workers", workers),
                 "cohortd %s started", CO_AGENT_VERSION);
    tick(agent);
    while (!agent->leaving) {
        uv_run(&agent->loop, UV_RUN_DEFAULT);
    }
    finish(agent);
    co_agent_log(agent, CO_LOG_INFO, NULL, "drained, %s",
                 agent->exit_code == 0 ? "goodbye" : "leaving after a failure");
    return agent->exit_code;
}
