/* Zygotes: one that forks, and while reloading one that boots beside it. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent_uv.h"

#define SET_MAX 20
#define FORK_LIMIT 10000 /* A zygote that does not answer for so long hangs. */

static void poll_closed(uv_handle_t *handle)
{
    free(handle);
}

static void control_close(struct co_agent_zygote *zygote)
{
    if (zygote->poll != NULL) {
        uv_poll_stop(zygote->poll);
        uv_close((uv_handle_t *)zygote->poll, poll_closed);
        zygote->poll = NULL;
    }
    if (zygote->control_fd >= 0) {
        close(zygote->control_fd);
        zygote->control_fd = -1;
    }
}

void co_zygotes_boot_failed(struct co_agent *agent, uint32_t index, const char *text)
{
    struct co_agent_pool *pool = &agent->pools[index];
    bool again = strncmp(pool->boot_error, text, sizeof pool->boot_error - 1) == 0;

    snprintf(pool->boot_error, sizeof pool->boot_error, "%.*s", (int)sizeof pool->boot_error - 1,
             text);
    if (!again) { /* A failure is said once. */
        co_agent_log(agent, CO_LOG_ERROR,
                     CO_FIELDS("pool", pool->config->name, "app", pool->app->path),
                     agent->core.pools[index].pool.zygote_up && pool->booted_once
                         ? "the application did not boot anew, the old one serves on: %s"
                         : "the application did not boot: %s",
                     text);
    }
}

struct co_agent_zygote *co_zygotes_current(struct co_agent_pool *pool)
{
    return pool->current < 0 ? NULL : &pool->zygotes[pool->current];
}

/* Threads do not survive a fork: such an application boots in each worker instead. */
static bool must_boot_after_fork(struct co_agent *agent, uint32_t index,
                                 const struct co_zygote_msg *msg)
{
    struct co_agent_pool *pool = &agent->pools[index];
    char threads[256] = "";

    if (pool->boot != CO_BOOT_PRELOAD ||
        !co_json_first(msg->text, "threads", threads, sizeof threads)) {
        return false;
    }
    pool->boot = CO_BOOT_AFTER_FORK;
    co_agent_log(agent, CO_LOG_WARN, CO_FIELDS("pool", pool->config->name, "thread", threads),
                 "the application's boot left threads, which a fork would lose: it boots in each "
                 "worker from now on (boot: after_fork)");
    return true;
}

static void warn_of_sockets(struct co_agent *agent, uint32_t index, const struct co_zygote_msg *msg)
{
    char sockets[16];

    if (co_json_get_string(msg->text, "sockets", sockets, sizeof sockets) &&
        strcmp(sockets, "0") != 0) {
        co_agent_log(agent, CO_LOG_WARN,
                     CO_FIELDS("pool", agent->pools[index].config->name, "sockets", sockets),
                     "the application's boot left sockets open, which all workers share now; open "
                     "connections when they are used, or set boot: after_fork");
    }
}

static void booted(struct co_agent *agent, uint32_t index, struct co_agent_zygote *zygote,
                   const struct co_zygote_msg *msg)
{
    struct co_agent_pool *pool = &agent->pools[index];
    struct co_agent_zygote *old = co_zygotes_current(pool);
    struct co_err err;

    if (zygote->booted) {
        return; /* Said once is enough. */
    }
    if (must_boot_after_fork(agent, index, msg)) {
        co_proc_kill(zygote->pid); /* Its end starts the next one. */
        return;
    }
    warn_of_sockets(agent, index, msg);
    zygote->booted = true;
    pool->boot_error[0] = '\0';
    pool->current = (int)(zygote - pool->zygotes);
    if (old != NULL) { /* Its workers are children of ours and work on without it. */
        co_proc_send(old->control_fd, &(struct co_zygote_msg){.type = CO_ZYGOTE_STOP}, -1, &err);
        old->retired = true;
    }
    co_agent_log(
        agent, CO_LOG_INFO, CO_FIELDS("pool", pool->config->name, "php", pool->php_version),
        old != NULL ? "application %s booted anew" : "application %s booted", pool->app->path);
    co_agent_post(agent, &(struct co_event){.type = CO_EVENT_ZYGOTE_UP, .pool = index});
}

/* A zygote is trusted less than it seems: foreign code booted in it. */
static bool plausible(const struct co_agent *agent, uint32_t pool, const struct co_zygote_msg *msg)
{
    const struct co_pool_worker *workers = agent->core.pools[pool].pool.workers;

    if (msg->type != CO_ZYGOTE_FORKED && msg->type != CO_ZYGOTE_FORK_FAILED) {
        return true;
    }
    return msg->worker < CO_PLACES_MAX && agent->pools[pool].links[msg->worker] != NULL &&
           !co_workers_knows(agent, msg->pid) && workers[msg->worker].present &&
           workers[msg->worker].pid == 0 && (msg->type == CO_ZYGOTE_FORK_FAILED || msg->pid > 1);
}

static void on_message(struct co_agent *agent, uint32_t index, struct co_agent_zygote *zygote,
                       const struct co_zygote_msg *msg)
{
    struct co_agent_pool *pool = &agent->pools[index];

    switch (msg->type) {
    case CO_ZYGOTE_HELLO:
        snprintf(pool->php_version, sizeof pool->php_version, "%.31s", msg->text);
        break;
    case CO_ZYGOTE_BOOTED:
        booted(agent, index, zygote, msg);
        break;
    case CO_ZYGOTE_BOOT_FAILED:
        zygote->said_why = true;
        co_zygotes_boot_failed(agent, index, msg->text);
        break;
    case CO_ZYGOTE_FORKED:
        co_workers_forked(agent, index, msg->worker, msg->pid);
        break;
    case CO_ZYGOTE_FORK_FAILED:
        co_agent_log(agent, CO_LOG_ERROR, CO_FIELDS("pool", pool->config->name),
                     "worker %u could not be made: %s", msg->worker, msg->text);
        co_workers_exited(agent, index, msg->worker, 1, 0);
        break;
    case CO_ZYGOTE_FORK:
    case CO_ZYGOTE_STOP:
        break; /* Ours to send. */
    }
}

static void read_control(struct co_agent *agent, uint32_t index, struct co_agent_zygote *zygote)
{
    static struct co_zygote_msg msg;
    struct co_err err;

    while (zygote->control_fd >= 0) {
        int fd = -1;
        int code = co_proc_recv(zygote->control_fd, &msg, &fd, &err);
        if (fd >= 0) {
            close(fd); /* We are the parent: the pid stays ours until it is reaped. */
        }
        if (code == 0) {
            return;
        }
        if (code < 0) {
            control_close(zygote);
            return;
        }
        zygote->asked_at = 0; /* It lives. */
        if (plausible(agent, index, &msg)) {
            on_message(agent, index, zygote, &msg);
            co_agent_step(agent);
        }
    }
}

void co_zygotes_read(struct co_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        for (int z = 0; z < 2; z++) {
            read_control(agent, i, &agent->pools[i].zygotes[z]);
        }
    }
}

static void on_control(uv_poll_t *poll, int status, int events)
{
    struct co_agent_zygote *zygote = poll->data;

    (void)status;
    (void)events;
    read_control(poll->loop->data, zygote->pool, zygote);
}

/* ---- starting ---- */

struct arguments {
    size_t n, n_texts;
    const char *list[2 * SET_MAX + 32];
    char texts[SET_MAX][CO_PATH_SIZE + 64];
};

static void set(struct arguments *args, const char *key, const char *value)
{
    char *text = args->texts[args->n_texts++];

    snprintf(text, sizeof args->texts[0], "%s=%s", key, value);
    args->list[args->n++] = "--set";
    args->list[args->n++] = text;
}

static void set_number(struct arguments *args, const char *key, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    set(args, key, text);
}

static void set_plain(struct arguments *args, const struct co_agent *agent,
                      const struct co_app_connection *connection)
{
    char database[CO_PATH_SIZE + 16];

    snprintf(database, sizeof database, "%s", connection->database);
    if (database[0] == '\0') {
        snprintf(database, sizeof database, "%s/queue.db", agent->config.state_dir);
    }
    set(args, "connection", "cohort");
    set(args, "queue_database", database);
    set(args, "queue_table", connection->table[0] != '\0' ? connection->table : "jobs");
    set_number(args, "retry_after",
               connection->retry_after > 0 ? connection->retry_after / 1000 : 90);
}

static void build_arguments(struct arguments *args, const struct co_agent *agent,
                            const struct co_agent_pool *pool)
{
    static const char *const boots[] = {
        [CO_BOOT_PRELOAD] = "preload",
        [CO_BOOT_AFTER_FORK] = "after_fork",
        [CO_BOOT_SPAWN] = "spawn",
    };
    const struct co_job_options *job = &pool->config->job;

    args->n = args->n_texts = 0;
    args->list[args->n++] = "--php-dir";
    args->list[args->n++] = agent->config.php_dir;
    args->list[args->n++] = "--mode";
    args->list[args->n++] = "job";
    args->list[args->n++] = "--boot";
    args->list[args->n++] = boots[pool->boot];
    set(args, "app", pool->app->path);
    set(args, "app_name", pool->app->name);
    set(args, "env_file", pool->app->env_file);
    set(args, "pool", pool->config->name);
    set(args, "run_dir", agent->config.run_dir);
    set(args, "force", pool->config->force ? "1" : "0");
    set_number(args, "tries", job->tries);
    set_number(args, "timeout", job->timeout / 1000);
    set(args, "backoff", job->backoff);
    set_number(args, "memory", job->memory_bytes);
    set_plain(args, agent, &pool->app->connection);
    args->list[args->n] = NULL;
}

static struct co_agent_zygote *free_zygote(struct co_agent_pool *pool)
{
    for (int z = 0; z < 2; z++) {
        if (pool->zygotes[z].pid == 0) {
            return &pool->zygotes[z];
        }
    }
    return NULL;
}

static int spawn_zygote(struct co_agent *agent, uint32_t index, struct co_err *err)
{
    static struct arguments args;
    struct co_agent_pool *pool = &agent->pools[index];
    struct co_agent_zygote *zygote = free_zygote(pool);
    struct co_zygote_process process;
    int code;

    if (zygote == NULL) {
        return co_err_set(err, CO_EAGAIN, "the last zygote but one has not ended yet");
    }
    build_arguments(&args, agent, pool);
    code = co_proc_spawn(&(struct co_zygote_spec){.worker_bin = agent->config.worker_bin,
                                                  .libphp = agent->config.libphp,
                                                  .args = args.list,
                                                  .wake_fd = agent->wake_fd},
                         &process, err);
    if (code < 0) {
        return code;
    }
    *zygote = (struct co_agent_zygote){
        .pid = process.pid, .control_fd = process.control_fd, .pool = index, .started = agent->now};
    zygote->output = co_output_open(
        agent, index, CO_OUTPUT_ZYGOTE + (uint32_t)(zygote - pool->zygotes), process.output_fd);
    zygote->poll = malloc(sizeof *zygote->poll);
    if (zygote->poll == NULL) {
        abort(); /* Nothing could be told of this zygote. */
    }
    uv_poll_init(&agent->loop, zygote->poll, zygote->control_fd);
    zygote->poll->data = zygote;
    uv_poll_start(zygote->poll, UV_READABLE, on_control);
    return CO_OK;
}

void co_zygotes_start(struct co_agent *agent, uint32_t index)
{
    struct co_err err;

    if (spawn_zygote(agent, index, &err) < 0) {
        co_zygotes_boot_failed(agent, index, err.msg);
        co_agent_post(agent, &(struct co_event){.type = CO_EVENT_ZYGOTE_DOWN, .pool = index});
    }
}

/* A worker of `boot: spawn`: exec'd like a zygote, with its seat in its arguments. */
int co_zygotes_spawn_worker(struct co_agent *agent, uint32_t index,
                            const struct co_zygote_msg *seat, pid_t *ret_pid, int *ret_output,
                            struct co_err *err)
{
    static struct arguments args;
    static const char *const kinds[] = {
        [CO_KIND_JOB] = "job", [CO_KIND_CONTROL] = "control", [CO_KIND_BOOKKEEPER] = "bookkeeper"};
    struct co_zygote_process process;
    char worker[16], generation[16];
    int code;

    build_arguments(&args, agent, &agent->pools[index]);
    snprintf(worker, sizeof worker, "%u", seat->worker);
    snprintf(generation, sizeof generation, "%u", seat->generation);
    const char *own[] = {"--spawn",  "--wire",        seat->wire,        "--bell",
                         seat->bell, "--worker-kind", kinds[seat->kind], "--worker",
                         worker,     "--generation",  generation,        NULL};
    for (size_t i = 0; own[i] != NULL; i++) {
        args.list[args.n++] = own[i];
    }
    args.list[args.n] = NULL;
    code = co_proc_spawn(&(struct co_zygote_spec){.worker_bin = agent->config.worker_bin,
                                                  .libphp = agent->config.libphp,
                                                  .args = args.list,
                                                  .wake_fd = agent->wake_fd,
                                                  .worker = true},
                         &process, err);
    if (code == CO_OK) {
        *ret_pid = process.pid;
        *ret_output = process.output_fd;
    }
    return code;
}

/* ---- ends ---- */

void co_zygotes_end(struct co_agent *agent, uint32_t index)
{
    struct co_agent_pool *pool = &agent->pools[index];
    struct co_err err;

    for (uint32_t w = CO_PLACE_CONTROL; w < CO_PLACES_MAX; w++) {
        co_pool_doom(&agent->core.pools[index].pool, w, CO_EXIT_DRAIN);
        co_workers_stop(agent, index, w);
    }
    for (int z = 0; z < 2; z++) {
        if (pool->zygotes[z].control_fd >= 0) {
            co_proc_send(pool->zygotes[z].control_fd,
                         &(struct co_zygote_msg){.type = CO_ZYGOTE_STOP}, -1, &err);
        }
    }
}

static void say_why(struct co_agent *agent, uint32_t index, const struct co_agent_zygote *zygote,
                    int exit_code, int signal)
{
    char text[CO_TEXT_SIZE];

    snprintf(text, sizeof text, "%s %d%s%.380s",
             signal != 0 ? "it was ended by signal" : "it ended with exit code",
             signal != 0 ? signal : exit_code, zygote->boot_text[0] != '\0' ? ": " : "",
             zygote->boot_text);
    co_zygotes_boot_failed(agent, index, text);
}

/* Workers it was asked for and did not announce will never be. */
static void give_up_unannounced(struct co_agent *agent, uint32_t index, bool current)
{
    struct co_pool *pool = &agent->core.pools[index].pool;

    for (uint32_t w = 0; w < CO_PLACES_MAX && !pool->spawn; w++) {
        if (pool->workers[w].present && pool->workers[w].pid == 0 &&
            (current || pool->workers[w].generation < pool->generation)) {
            co_pool_doom(pool, w, CO_EXIT_RELOAD); /* No failure of the application's. */
            co_workers_exited(agent, index, w, 1, 0);
        }
    }
}

void co_zygotes_ended(struct co_agent *agent, uint32_t index, pid_t pid, int exit_code, int signal)
{
    struct co_agent_pool *pool = &agent->pools[index];
    struct co_agent_zygote *zygote = &pool->zygotes[pool->zygotes[0].pid == pid ? 0 : 1];
    bool current;

    read_control(agent, index, zygote); /* Its last words. */
    co_output_last(&zygote->output);
    control_close(zygote);
    current = co_zygotes_current(pool) == zygote;
    zygote->pid = 0;
    if (current) {
        pool->current = -1;
    }
    if (!zygote->booted && !zygote->retired && !agent->core.draining && !zygote->said_why &&
        !(pool->boot == CO_BOOT_AFTER_FORK && signal == SIGKILL)) {
        say_why(agent, index, zygote, exit_code, signal);
    } else if (current && !agent->core.draining) {
        co_agent_log(agent, CO_LOG_WARN, CO_FIELDS("pool", pool->config->name),
                     "the zygote has ended (%s %d); its workers go on, the next one boots",
                     signal != 0 ? "signal" : "exit code", signal != 0 ? signal : exit_code);
    }
    if (!zygote->retired) {
        co_agent_post(agent, &(struct co_event){.type = CO_EVENT_ZYGOTE_DOWN,
                                                .pool = index,
                                                .ok = zygote->booted,
                                                .current = current});
    }
    co_agent_step(agent);
    give_up_unannounced(agent, index, current); /* Now nobody forks into their places again. */
}

/* Foreign code may hang in a boot or in a fork; its end starts the next one. */
void co_zygotes_check(struct co_agent *agent, uint32_t index)
{
    struct co_agent_pool *pool = &agent->pools[index];

    for (int z = 0; z < 2; z++) {
        struct co_agent_zygote *zygote = &pool->zygotes[z];
        if (zygote->pid > 0 && !zygote->booted && !zygote->said_why &&
            agent->now - zygote->started > CO_POOL_BOOT_LIMIT) {
            zygote->said_why = true;
            co_zygotes_boot_failed(agent, index,
                                   "it did not boot within 60 seconds; is something it connects to "
                                   "at boot not answering?");
            co_proc_kill(zygote->pid);
        }
        if (zygote->pid > 0 && zygote->booted && zygote->asked_at != 0 &&
            agent->now - zygote->asked_at > FORK_LIMIT) {
            co_agent_log(agent, CO_LOG_ERROR, CO_FIELDS("pool", pool->config->name),
                         "the zygote has not answered for 10 seconds and is ended");
            co_proc_kill(zygote->pid);
        }
    }
}

void co_zygotes_close(struct co_agent_pool *pool)
{
    for (int z = 0; z < 2; z++) {
        struct co_agent_zygote *zygote = &pool->zygotes[z];
        if (zygote->pid > 0) {
            int exit_code, signal;
            control_close(zygote);
            co_proc_kill(zygote->pid);
            co_proc_reap(zygote->pid, false, &exit_code, &signal);
        }
        co_output_last(&zygote->output);
        control_close(zygote);
    }
}
