/* Sources on the loop: what the application said of its queues, turns, wake-ups. */

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "agent/agent_uv.h"

#define WATCHED (IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE)

const struct co_agent_table *co_sources_table(const struct co_agent *agent, uint32_t source,
                                              uint32_t table)
{
    return &agent->sources[source].tables[table];
}

uint64_t co_sources_fingerprint(const struct co_agent *agent, uint32_t source, uint32_t table)
{
    return agent->sources[source].tables[table].fingerprint;
}

/* FNV-1a over the file and the table, so that a successor knows them again. */
static uint64_t fingerprint(const char *path, const char *table)
{
    uint64_t hash = 0xcbf29ce484222325u;
    const char *parts[2] = {path, table};

    for (int i = 0; i < 2; i++) {
        for (const char *c = parts[i];; c++) {
            hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
            if (*c == '\0') {
                break;
            }
        }
    }
    return hash;
}

/* ---- turns ---- */

/* A killed predecessor's wires are of no use once every source has settled what they said. We hold
 * the directory's lock, so whoever made them is dead. */
static void sweep(struct co_agent *agent)
{
    char own[16];
    char path[CO_PATH_SIZE * 2];

    snprintf(own, sizeof own, "-%08x", (unsigned)agent->id);
    for (uint32_t i = 0; i < agent->n_sources; i++) {
        if (!agent->sources[i].recovered) {
            return;
        }
    }
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        struct dirent *entry;
        DIR *dir;
        snprintf(path, sizeof path, "%s/%s", agent->config.run_dir, agent->pools[i].config->name);
        dir = opendir(path);
        while (dir != NULL && (entry = readdir(dir)) != NULL) {
            if (entry->d_name[0] == 'w' && strstr(entry->d_name, own) == NULL) {
                unlinkat(dirfd(dir), entry->d_name, 0);
            }
        }
        if (dir != NULL) {
            closedir(dir);
        }
    }
}

static void log_turn(struct co_agent *agent, struct co_agent_source *source,
                     const struct co_turn *turn)
{
    const char *const *fields =
        CO_FIELDS("connection", source->tables[0].connection, "database", source->path);

    if (turn->code < 0) {
        if (source->was_up || strcmp(source->error, turn->err.msg) != 0) {
            co_agent_log(agent, CO_LOG_ERROR, fields, "the source does not answer: %s",
                         turn->err.msg);
        }
        snprintf(source->error, sizeof source->error, "%s", turn->err.msg);
        source->was_up = false;
        return;
    }
    if (!source->was_up) {
        co_agent_log(agent, CO_LOG_INFO, fields, "source up");
    }
    source->was_up = true;
    source->error[0] = '\0';
    if (turn->n_quarantined > 0) {
        co_agent_log(
            agent, CO_LOG_WARN, fields,
            "%u jobs put into quarantine: %s (cohort failed list --quarantined shows them)",
            turn->n_quarantined, turn->quarantined_why);
    }
    if (turn->n_recovered_settled + turn->n_recovered_lost + turn->n_recovered_back > 0) {
        co_agent_log(agent, CO_LOG_WARN, fields,
                     "took over from a dead agent: %u outcomes settled, %u running jobs lost with "
                     "it, %u jobs that never began given back",
                     turn->n_recovered_settled, turn->n_recovered_lost, turn->n_recovered_back);
    }
}

static bool serve_found(struct co_agent *agent, uint32_t pool, uint32_t source,
                        const struct co_turn_depth *depth, uint32_t rank,
                        const struct co_turn *turn)
{
    int queue = co_core_found_queue(&agent->core, depth, pool, source, rank, turn);

    if (queue < 0) {
        if (!agent->told_full) {
            agent->told_full = true;
            co_agent_log(agent, CO_LOG_WARN, CO_FIELDS("queue", depth->name),
                         "more than %d queues have jobs at once: the others wait until one is "
                         "empty",
                         CO_QUEUES_MAX);
        }
        return false;
    }
    agent->told_held[queue] = false;
    agent->held_why[queue][0] = '\0';
    co_agent_log(agent, CO_LOG_INFO,
                 CO_FIELDS("pool", agent->pools[pool].config->name, "connection",
                           agent->sources[source].tables[depth->table].connection),
                 "serving queue %s, found in the source", depth->name);
    co_upkeep_hold(agent);
    return true;
}

/* Queues that a pattern or the discovery brings; printed once each. */
static void discover(struct co_agent *agent, uint32_t index, const struct co_turn *turn)
{
    struct co_agent_source *source = &agent->sources[index];

    source->n_depths = turn->n_depths;
    memcpy(source->depths, turn->depth, turn->n_depths * sizeof turn->depth[0]);
    for (uint32_t d = 0; d < turn->n_depths; d++) {
        const struct co_turn_depth *depth = &turn->depth[d];
        const char *connection = source->tables[depth->table].connection;
        if (co_tickets_find_queue(&agent->core.tickets, index, depth->table, depth->name) >= 0) {
            continue;
        }
        for (uint32_t p = 0; p < agent->n_pools; p++) {
            int rank = agent->pools[p].info_known
                           ? co_serve_rank(&agent->pools[p].serve, connection, depth->name)
                           : -1;
            if (rank >= 0 && serve_found(agent, p, index, depth, (uint32_t)rank, turn)) {
                break;
            }
        }
    }
}

static void on_done(uv_async_t *async)
{
    struct co_agent_source *source = async->data;
    struct co_agent *agent = source->agent;
    uint32_t index = (uint32_t)(source - agent->sources);
    struct co_turn *turn =
        source->redis != NULL ? co_redis_take(source->redis) : co_sqlite_take(source->sqlite);

    if (turn == NULL) {
        return;
    }
    log_turn(agent, source, turn);
    if (turn->code == CO_OK) {
        if (turn->depths) {
            discover(agent, index, turn);
        }
        if (turn->recover && !source->recovered) {
            source->recovered = true;
            sweep(agent);
        }
    }
    source->turn = turn;
    co_agent_post(
        agent,
        &(struct co_event){
            .type = CO_EVENT_TURN, .source = index, .turn = turn, .wall_ms = co_agent_wall_ms()});
    co_agent_step(agent);
}

void co_sources_turn(struct co_agent *agent, uint32_t index)
{
    struct co_agent_source *source = &agent->sources[index];
    struct co_turn *turn = source->turn;

    assert(turn != NULL);
    source->turn = NULL;
    co_core_fill(&agent->core, index, turn, agent->now);
    if (source->redis != NULL) {
        co_redis_submit(source->redis, turn);
    } else {
        co_sqlite_submit(source->sqlite, turn);
    }
}

static void wake(void *arg)
{
    uv_async_send(arg);
}

/* ---- wake-ups ---- */

static void on_inotify(uv_poll_t *poll, int status, int events)
{
    struct co_agent *agent = poll->loop->data;
    char buf[8192] __attribute__((aligned(__alignof__(struct inotify_event))));
    bool changed[CO_SOURCES_MAX] = {false};
    ssize_t n;

    (void)status;
    (void)events;
    while ((n = read(agent->inotify_fd, buf, sizeof buf)) > 0) {
        for (char *at = buf; at < buf + n;) {
            const struct inotify_event *event = (const void *)at;
            for (uint32_t i = 0; i < agent->n_sources; i++) {
                const char *base = strrchr(agent->sources[i].path, '/') + 1;
                size_t size = strlen(base);
                if (agent->sources[i].redis == NULL && event->wd == agent->sources[i].watch &&
                    event->len > 0 && strncmp(event->name, base, size) == 0 &&
                    (event->name[size] == '\0' || strcmp(event->name + size, "-wal") == 0 ||
                     strcmp(event->name + size, "-journal") == 0)) {
                    changed[i] = true;
                }
            }
            at += sizeof *event + event->len;
        }
    }
    for (uint32_t i = 0; i < agent->n_sources; i++) {
        if (changed[i]) {
            co_agent_post(agent, &(struct co_event){.type = CO_EVENT_CHANGED, .source = i});
        }
    }
    co_agent_step(agent);
}

static void watch(struct co_agent *agent, struct co_agent_source *source)
{
    char dir[CO_PATH_SIZE];
    char *slash;

    snprintf(dir, sizeof dir, "%s", source->path);
    slash = strrchr(dir, '/');
    *(slash == dir ? slash + 1 : slash) = '\0';
    source->watch = inotify_add_watch(agent->inotify_fd, dir, WATCHED);
    if (source->watch < 0) {
        co_agent_log(agent, CO_LOG_WARN, CO_FIELDS("database", source->path),
                     "cannot watch its directory (%s); new jobs are seen every 250 ms instead",
                     strerror(errno));
    }
}

/* ---- what the application has ---- */

static const struct co_app_info_connection *find_connection(const struct co_app_info *info,
                                                            const char *name)
{
    for (uint32_t i = 0; i < info->n_connections; i++) {
        if (strcmp(info->connections[i].name, name) == 0) {
            return &info->connections[i];
        }
    }
    return NULL;
}

/* The source and table of a connection, if open already. */
static bool find_table(const struct co_agent *agent,
                       const struct co_app_info_connection *connection, uint32_t *ret_source,
                       uint32_t *ret_table)
{
    for (uint32_t i = 0; i < agent->n_sources; i++) {
        for (uint32_t t = 0; t < agent->sources[i].n_tables; t++) {
            if (strcmp(agent->sources[i].path, connection->database) == 0 &&
                strcmp(agent->sources[i].tables[t].table, connection->table) == 0) {
                *ret_source = i;
                *ret_table = t;
                return true;
            }
        }
    }
    return false;
}

static void add_table(struct co_agent_source *source, struct co_sqlite_config *config,
                      const struct co_app_info_connection *connection)
{
    struct co_agent_table *table = &source->tables[source->n_tables];
    struct co_sqlite_table *out = &config->tables[source->n_tables];

    snprintf(table->connection, sizeof table->connection, "%s", connection->name);
    snprintf(table->table, sizeof table->table, "%s", connection->table);
    table->fingerprint = fingerprint(connection->database, connection->table);
    snprintf(out->table, sizeof out->table, "%s", connection->table);
    snprintf(out->connection, sizeof out->connection, "%s", connection->name);
    snprintf(out->failed_table, sizeof out->failed_table, "failed_jobs");
    out->source = table->fingerprint;
    out->retry_after_s = connection->retry_after_s;
    out->plain = connection->plain;
    source->n_tables += 1;
    config->n_tables = source->n_tables;
}

static uint32_t shortest_lease(const struct co_sqlite_config *config)
{
    uint32_t shortest = 0;

    for (uint32_t i = 0; i < config->n_tables; i++) {
        uint32_t lease = config->tables[i].retry_after_s;
        if (lease > 0 && (shortest == 0 || lease < shortest)) {
            shortest = lease;
        }
    }
    return shortest;
}

#define MIGRATE 1000 /* Due jobs a script moves at most: a millisecond or two. */

static int open_redis(struct co_agent *agent, uint32_t pool,
                      const struct co_app_info_connection *connection, struct co_err *err)
{
    struct co_agent_source *source = &agent->sources[agent->n_sources];
    struct co_agent_table *table = &source->tables[0];
    int32_t batch = connection->redis.migration_batch;
    struct co_redis_config config = {
        .script = {.agent_id = agent->id,
                   .retry_after_s = connection->retry_after_s,
                   .migrate = batch > 0 && batch < MIGRATE ? (uint32_t)batch : MIGRATE,
                   .max_payload_bytes = agent->pools[pool].config->max_payload_bytes,
                   .token = agent->id ^ co_agent_wall_ms()},
        .place = connection->redis,
        .loop = &agent->loop,
        .wake = wake,
        .wake_arg = &source->done,
    };
    struct co_source_config core = {.retry_after_s = connection->retry_after_s};
    int code;

    if (agent->n_sources == CO_SOURCES_MAX) {
        return co_err_set(err, CO_EFULL, "more than %d sources", CO_SOURCES_MAX);
    }
    *source = (struct co_agent_source){.agent = agent, .watch = -1, .n_tables = 1};
    snprintf(source->path, sizeof source->path, "%s", connection->database);
    snprintf(table->connection, sizeof table->connection, "%s", connection->name);
    snprintf(table->table, sizeof table->table, "%s", connection->table);
    table->fingerprint = fingerprint(connection->database, connection->table);
    snprintf(config.script.prefix, sizeof config.script.prefix, "%s", connection->redis.prefix);
    snprintf(config.script.place, sizeof config.script.place, "%s", agent->config.run_dir);
    source->turn = co_turn_new();
    if (source->turn == NULL) {
        return co_err_set(err, CO_ENOMEM, "no memory for a turn");
    }
    code = co_redis_open(&config, &source->redis, err);
    if (code < 0) {
        co_turn_free(&source->turn);
        return code;
    }
    uv_async_init(&agent->loop, &source->done, on_done);
    source->done.data = source;
    agent->n_sources += 1;
    return co_core_add_source(&agent->core, &core, agent->now);
}

/* Open the file of a connection with every table the application has in it. */
static int open_source(struct co_agent *agent, uint32_t pool,
                       const struct co_app_info_connection *connection, struct co_err *err)
{
    const struct co_app_info *info = &agent->pools[pool].info;
    struct co_agent_source *source = &agent->sources[agent->n_sources];
    struct co_sqlite_config config = {
        .agent_id = agent->id,
        .max_payload_bytes = agent->pools[pool].config->max_payload_bytes,
        .busy_timeout_ms = 2000,
        .on_lost = agent->pools[pool].config->job.on_lost,
        .wake = wake,
        .wake_arg = &source->done,
    };
    struct co_source_config core = {0};
    int code;

    if (agent->n_sources == CO_SOURCES_MAX) {
        return co_err_set(err, CO_EFULL, "more than %d database files", CO_SOURCES_MAX);
    }
    *source = (struct co_agent_source){.agent = agent, .watch = -1};
    snprintf(source->path, sizeof source->path, "%s", connection->database);
    snprintf(config.path, sizeof config.path, "%s", connection->database);
    snprintf(config.run_dir, sizeof config.run_dir, "%s", agent->config.run_dir);
    snprintf(config.synchronous, sizeof config.synchronous, "%s", connection->synchronous);
    add_table(source, &config, connection);
    for (uint32_t i = 0; i < info->n_connections; i++) {
        const struct co_app_info_connection *other = &info->connections[i];
        uint32_t s, t;
        if (other->refused[0] == '\0' && strcmp(other->database, connection->database) == 0 &&
            strcmp(other->table, connection->table) != 0 &&
            source->n_tables < CO_SQLITE_TABLES_MAX && !find_table(agent, other, &s, &t)) {
            add_table(source, &config, other);
        }
    }
    source->turn = co_turn_new();
    if (source->turn == NULL) {
        return co_err_set(err, CO_ENOMEM, "no memory for a turn");
    }
    code = co_sqlite_open(&config, &source->sqlite, err); /* It says nothing before a turn. */
    if (code < 0) {
        co_turn_free(&source->turn);
        return code;
    }
    uv_async_init(&agent->loop, &source->done, on_done);
    source->done.data = source;
    core.retry_after_s = shortest_lease(&config);
    agent->n_sources += 1;
    watch(agent, source);
    return co_core_add_source(&agent->core, &core, agent->now);
}

static int check_redis(const struct co_app_redis *redis, const char *name, struct co_err *err)
{
    if (redis->n_sentinels > 0 || strcmp(redis->scheme, "tls") == 0) {
        return co_err_set(err, CO_ECONFIG,
                          "queue connection \"%s\" cannot be served: this version does not speak "
                          "%s to Redis",
                          name, redis->n_sentinels > 0 ? "Sentinel" : "TLS");
    }
    if (redis->host[0] == '\0' && redis->path[0] == '\0') {
        return co_err_set(err, CO_ECONFIG, "queue connection \"%s\" names no Redis host", name);
    }
    return CO_OK;
}

/* What the application says is foreign: a connection must be there, servable and complete. */
static int check_connection(const struct co_app_info_connection *connection, const char *name,
                            struct co_err *err)
{
    if (connection == NULL) {
        return co_err_set(err, CO_ECONFIG,
                          "the application has no queue connection \"%s\"; see its "
                          "config/queue.php",
                          name);
    }
    if (connection->refused[0] != '\0') {
        return co_err_set(err, CO_ECONFIG, "queue connection \"%s\" cannot be served: %s", name,
                          connection->refused);
    }
    if (strcmp(connection->driver, "redis") == 0) {
        return check_redis(&connection->redis, name, err);
    }
    if (connection->database[0] != '/' || connection->table[0] == '\0') {
        return co_err_set(err, CO_ECONFIG,
                          "queue connection \"%s\" names no absolute database path or no table",
                          name);
    }
    return CO_OK;
}

/* Open what an entry needs and serve it, if it names one queue. */
static int serve_entry(struct co_agent *agent, uint32_t pool, const struct co_serve_entry *entry,
                       struct co_err *err)
{
    const struct co_app_info_connection *connection =
        find_connection(&agent->pools[pool].info, entry->connection);
    uint32_t source, table;
    int code = check_connection(connection, entry->connection, err);

    if (code < 0) {
        return code;
    }
    if (!find_table(agent, connection, &source, &table)) {
        code = strcmp(connection->driver, "redis") == 0 ? open_redis(agent, pool, connection, err)
                                                        : open_source(agent, pool, connection, err);
        if (code < 0) {
            return code;
        }
        if (!find_table(agent, connection, &source, &table)) {
            return co_err_set(err, CO_EFULL, "too many tables in %s", connection->database);
        }
    }
    if (!entry->literal ||
        co_tickets_find_queue(&agent->core.tickets, source, table, entry->pattern) >= 0) {
        return CO_OK;
    }
    code = co_core_add_queue(&agent->core, entry->pattern, pool, source, table, entry->rank);
    return code < 0 ? co_err_set(err, code, "more than %d queues", CO_QUEUES_MAX) : CO_OK;
}

static int serve_pool(struct co_agent *agent, uint32_t index, struct co_err *err)
{
    struct co_agent_pool *pool = &agent->pools[index];
    const char *name = pool->config->connection[0] != '\0' ? pool->config->connection
                                                           : pool->info.default_connection;
    const struct co_app_info_connection *connection = find_connection(&pool->info, name);
    const char *own =
        connection != NULL && connection->queue[0] != '\0' ? connection->queue : "default";
    int code = check_connection(connection, name, err);

    if (code == CO_OK) {
        code = co_serve_read(&pool->serve, pool->config->queue, name, own, err);
    }
    for (uint32_t i = 0; code == CO_OK && i < pool->serve.n; i++) {
        code = serve_entry(agent, index, &pool->serve.entries[i], err);
    }
    if (code == CO_OK) {
        co_agent_log(agent, CO_LOG_INFO,
                     CO_FIELDS("pool", pool->config->name, "app", pool->info.kind, "version",
                               pool->info.version, "connection", name),
                     "serving %s%s", pool->config->queue[0] != '\0' ? pool->config->queue : own,
                     pool->config->queue[0] != '\0' ? "" : " and every other queue found there");
    }
    return code;
}

static void known(struct co_agent *agent, void *context, bool ok, const char *json)
{
    struct co_agent_pool *pool = context;
    uint32_t index = (uint32_t)(pool - agent->pools);
    struct co_err err;
    int code;

    pool->info_asked = false;
    if (agent->core.draining) {
        return;
    }
    if (!ok) {
        co_agent_log(agent, CO_LOG_ERROR, CO_FIELDS("pool", pool->config->name),
                     "the application did not say which queues it has: %s", json);
        return; /* The next control worker is asked again. */
    }
    code = co_app_info_read(json, strlen(json), &pool->info, &err);
    if (code == CO_OK) {
        pool->info_known = true;
        code = serve_pool(agent, index, &err);
    }
    if (code == CO_OK) {
        co_upkeep_hold(agent);
        co_upkeep_ask(agent, index);
    }
    if (code < 0) {
        co_agent_fail(agent, code == CO_ECONFIG ? 2 : 1, &err);
        return;
    }
    co_agent_post(agent, &(struct co_event){.type = CO_EVENT_TICK});
    co_agent_step(agent);
}

void co_sources_ask(struct co_agent *agent, uint32_t pool)
{
    co_requests_ask(agent, pool, "config", "{}", known, &agent->pools[pool]);
}

int co_sources_open(struct co_agent *agent, struct co_err *err)
{
    agent->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (agent->inotify_fd < 0) {
        return co_err_sys(err, errno, "watch files (inotify)");
    }
    uv_poll_init(&agent->loop, &agent->inotify_poll, agent->inotify_fd);
    uv_poll_start(&agent->inotify_poll, UV_READABLE, on_inotify);
    return CO_OK;
}

void co_sources_close(struct co_agent *agent)
{
    for (uint32_t i = 0; i < agent->n_sources; i++) {
        uv_close((uv_handle_t *)&agent->sources[i].done, NULL); /* A turn may still come back. */
        co_sqlite_free(&agent->sources[i].sqlite);
        co_redis_free(&agent->sources[i].redis);
        co_turn_free(&agent->sources[i].turn);
    }
    uv_poll_stop(&agent->inotify_poll);
    close(agent->inotify_fd);
}
