/* Workers: making them, a few at a time, so that neither the loop nor the zygote drowns in them. */

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent_uv.h"

#define STRANGER_LIMIT 10000 /* An older death was of another process with that pid. */
#define FORKS_A_TURN 8       /* Of the loop, of all pools. */
#define BOOTING_PER_CPU 2
#define UNANSWERED_MAX 16 /* By a zygote; its socket holds more. */

static enum co_worker_kind kind_of(uint32_t worker)
{
    return worker >= CO_PLACE_BOOKKEEPER ? CO_KIND_BOOKKEEPER
           : worker >= CO_PLACE_CONTROL  ? CO_KIND_CONTROL
                                         : CO_KIND_JOB;
}

static void fill_seat(const struct co_agent *agent, uint32_t index, uint32_t worker,
                      struct co_zygote_msg *seat)
{
    const char *name = agent->pools[index].config->name;

    *seat = (struct co_zygote_msg){
        .type = CO_ZYGOTE_FORK,
        .worker = worker,
        .generation = agent->core.pools[index].pool.workers[worker].generation,
        .kind = kind_of(worker),
    };
    snprintf(seat->wire, sizeof seat->wire, "%s", agent->pools[index].links[worker]->path);
    snprintf(seat->bell, sizeof seat->bell, "%.900s/%s/bell", agent->config.run_dir, name);
}

/* Somebody cleared the run directory, or cut the bell: make anew what new workers need. Living ones
 * keep the old bell, and are heard by the clock. */
static int mend_directory(struct co_agent *agent, uint32_t index, struct co_err *err)
{
    struct co_agent_pool *pool = &agent->pools[index];
    struct co_bell *bell;
    char path[CO_PATH_SIZE];
    int code;

    snprintf(path, sizeof path, "%.900s/%s", agent->config.run_dir, pool->config->name);
    code = co_proc_mkdir(path, err);
    if (code < 0) {
        return code;
    }
    snprintf(path, sizeof path, "%.900s/%s/bell", agent->config.run_dir, pool->config->name);
    if (access(path, R_OK | W_OK) == 0 && !co_bell_lost(pool->bell)) {
        return CO_OK;
    }
    code = co_bell_open(path, &bell, err);
    if (code == CO_OK) {
        co_bell_close(&pool->bell);
        pool->bell = bell;
        co_agent_log(agent, CO_LOG_WARN, CO_FIELDS("pool", pool->config->name),
                     "the run directory was damaged and is mended");
    }
    return code;
}

static int open_link(struct co_agent *agent, uint32_t index, uint32_t worker, struct co_err *err)
{
    struct co_agent_pool *pool = &agent->pools[index];
    char path[CO_PATH_SIZE];
    int code;

    assert(pool->links[worker] == NULL);
    if (worker < CO_PLACE_CONTROL && worker >= pool->links_top) {
        pool->links_top = worker + 1;
    }
    /* Never the name of a file that a killed predecessor left: its outcomes are still in there. */
    snprintf(path, sizeof path, "%.900s/%s/w%u-%u-%08x", agent->config.run_dir, pool->config->name,
             worker, ++pool->lives, (unsigned)agent->id);
    code = mend_directory(agent, index, err);
    if (code < 0) {
        return code;
    }
    return co_link_open(path, agent->id, pool->config->name, worker,
                        agent->core.pools[index].pool.workers[worker].generation,
                        &pool->links[worker], err);
}

/* The zygote answers with FORKED later. */
static int ask_zygote(struct co_agent *agent, uint32_t index, const struct co_zygote_msg *seat,
                      int *ret_output, struct co_err *err)
{
    struct co_agent_zygote *zygote = co_zygotes_current(&agent->pools[index]);
    int output[2];
    int code;

    if (zygote == NULL || zygote->control_fd < 0) {
        return co_err_set(err, CO_EAGAIN, "the zygote has gone");
    }
    code = co_proc_output_pipe(output, err);
    if (code < 0) {
        return code;
    }
    code = co_proc_send(zygote->control_fd, seat, output[1], err);
    zygote->asked_at = zygote->asked_at != 0 ? zygote->asked_at : agent->now;
    close(output[1]);
    if (code < 0) {
        close(output[0]);
        return code;
    }
    *ret_output = output[0];
    return CO_OK;
}

static int make_worker(struct co_agent *agent, uint32_t index, uint32_t worker, struct co_err *err)
{
    static struct co_zygote_msg seat;
    struct co_agent_pool *pool = &agent->pools[index];
    int output = -1;
    pid_t pid = 0;
    int code = open_link(agent, index, worker, err);

    if (code < 0) {
        return code;
    }
    fill_seat(agent, index, worker, &seat);
    co_workers_forget_words(pool, worker);
    code = pool->boot == CO_BOOT_SPAWN
               ? co_zygotes_spawn_worker(agent, index, &seat, &pid, &output, err)
               : ask_zygote(agent, index, &seat, &output, err);
    if (code < 0) {
        co_link_free(&pool->links[worker]);
        return code;
    }
    pool->outputs[worker] = co_output_open(agent, index, worker, output);
    if (pid > 0) {
        co_agent_post(agent,
                      &(struct co_event){
                          .type = CO_EVENT_FORKED, .pool = index, .worker = worker, .pid = pid});
    }
    return CO_OK;
}

/* ---- a few at a time ---- */

static void fail_fork(struct co_agent *agent, uint32_t index, uint32_t worker,
                      const struct co_err *err)
{
    co_agent_log(agent, CO_LOG_ERROR, CO_FIELDS("pool", agent->pools[index].config->name),
                 "worker %u could not be made: %s", worker, err->msg);
    co_agent_post(
        agent, &(struct co_event){.type = CO_EVENT_FORK_FAILED, .pool = index, .worker = worker});
}

static void list(struct co_agent_pool *pool, uint32_t worker)
{
    assert(!pool->fork_waits[worker]);
    pool->fork_waits[worker] = true;
    pool->n_fork_waits += 1;
}

static void unlist(struct co_agent_pool *pool, uint32_t worker)
{
    if (pool->fork_waits[worker]) {
        pool->fork_waits[worker] = false;
        pool->n_fork_waits -= 1;
    }
}

static uint32_t under_way(const struct co_agent *agent, uint32_t index, bool booting)
{
    const struct co_agent_pool *pool = &agent->pools[index];
    uint32_t n = 0;

    for (uint32_t w = 0; w < CO_PLACES_MAX; w++) {
        const struct co_pool_worker *worker = &agent->core.pools[index].pool.workers[w];
        n += worker->present && !pool->fork_waits[w] &&
             (worker->pid == 0 || (booting && worker->state == CO_WORKER_BOOTING));
    }
    return n;
}

/* How many more may be made now. A zygote's socket holds so many requests; workers that boot the
 * application by themselves would only keep each other, and us, from the CPU. */
static uint32_t room(struct co_agent *agent, uint32_t index)
{
    const struct co_agent_zygote *zygote = co_zygotes_current(&agent->pools[index]);
    uint32_t most = BOOTING_PER_CPU * agent->cgroup.host_cpus;
    uint32_t n = 0;

    if (agent->pools[index].boot != CO_BOOT_SPAWN && (zygote == NULL || zygote->control_fd < 0)) {
        return 0; /* Its end is on the way to us, and with it the end of what waits. */
    }
    if (agent->pools[index].boot == CO_BOOT_PRELOAD) {
        n = under_way(agent, index, false);
        return n < UNANSWERED_MAX ? UNANSWERED_MAX - n : 0;
    }
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        n += agent->pools[i].boot != CO_BOOT_PRELOAD ? under_way(agent, i, true) : 0;
    }
    return n < most ? most - n : 0;
}

/* Bookkeepers and the control worker are not behind 500 others. */
static uint32_t next_waiting(const struct co_agent_pool *pool)
{
    for (uint32_t w = CO_PLACES_MAX; w-- > CO_PLACE_CONTROL;) {
        if (pool->fork_waits[w]) {
            return w;
        }
    }
    for (uint32_t w = 0; w < CO_PLACE_CONTROL; w++) {
        if (pool->fork_waits[w]) {
            return w;
        }
    }
    assert(false);
    return 0;
}

/* Fork what waits, as far as this turn and the zygote allow. */
static void fork_some(struct co_agent *agent, uint32_t index)
{
    struct co_agent_pool *pool = &agent->pools[index];
    uint32_t left = pool->n_fork_waits > 0 ? room(agent, index) : 0;
    struct co_err err;

    for (; pool->n_fork_waits > 0 && left > 0 && agent->forks_left > 0; left--) {
        uint32_t worker = next_waiting(pool);
        int code;
        agent->forks_left -= 1;
        unlist(pool, worker);
        code = make_worker(agent, index, worker, &err);
        if (code == CO_EAGAIN) { /* The zygote's next answer, or its end, brings us back. */
            list(pool, worker);
            return;
        }
        if (code < 0) {
            fail_fork(agent, index, worker, &err);
            return;
        }
    }
}

void co_workers_fork(struct co_agent *agent, uint32_t index, uint32_t worker)
{
    struct co_agent_pool *pool = &agent->pools[index];

    list(pool, worker);
    fork_some(agent, index);
}

void co_workers_fork_cancel(struct co_agent *agent, uint32_t index, uint32_t worker)
{
    unlist(&agent->pools[index], worker);
}

bool co_workers_fork_on(struct co_agent *agent)
{
    bool more = false;

    agent->forks_left = FORKS_A_TURN;
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        fork_some(agent, i);
    }
    co_agent_step(agent);
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        more = more || (agent->pools[i].n_fork_waits > 0 && room(agent, i) > 0);
    }
    return more;
}

/* An announced worker may have ended before we heard of it. */
void co_workers_forked(struct co_agent *agent, uint32_t index, uint32_t worker, pid_t pid)
{
    co_agent_post(agent, &(struct co_event){
                             .type = CO_EVENT_FORKED, .pool = index, .worker = worker, .pid = pid});
    co_agent_step(agent);
    for (uint32_t i = 0; i < agent->n_strangers; i++) {
        struct co_stranger stranger = agent->strangers[i];
        if (stranger.pid == pid && agent->now - stranger.at <= STRANGER_LIMIT) {
            agent->strangers[i] = agent->strangers[--agent->n_strangers];
            co_workers_exited(agent, index, worker, stranger.exit_code, stranger.signal);
            return;
        }
    }
}
