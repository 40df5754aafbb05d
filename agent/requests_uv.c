/* The control socket, and questions to the application through its control worker. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent_uv.h"
#include "proto/peers.h"
#include "proto/report.h"

#define ASK_TIMEOUT 30000
#define QUARANTINE_MAX 1000

/* ---- questions to the application ---- */

static void ask_done(struct co_agent *agent, struct co_ask *ask, bool ok, const char *json)
{
    co_answer *answer = ask->answer;
    void *context = ask->context;

    free(ask->body);
    *ask = (struct co_ask){0};
    answer(agent, context, ok, json);
}

void co_requests_ask(struct co_agent *agent, uint32_t pool, const char *name, const char *body,
                     co_answer *answer, void *context)
{
    for (uint32_t i = 0; i < CO_ASKS_MAX; i++) {
        struct co_ask *ask = &agent->asks[i];
        if (!ask->used) {
            *ask = (struct co_ask){.used = true,
                                   .ticket = ++agent->ask_ticket,
                                   .pool = pool,
                                   .deadline = co_agent_clock() + ASK_TIMEOUT,
                                   .body = strdup(body),
                                   .answer = answer,
                                   .context = context};
            snprintf(ask->name, sizeof ask->name, "%s", name);
            if (ask->body == NULL) {
                *ask = (struct co_ask){0};
                answer(agent, context, false, "{\"error\":\"out of memory\"}");
                return;
            }
            co_requests_send(agent);
            return;
        }
    }
    answer(agent, context, false, "{\"error\":\"too many questions at once; ask again\"}");
}

/* The oldest open question of a pool; one at a time is with its control worker. */
static struct co_ask *next_ask(struct co_agent *agent, uint32_t pool)
{
    struct co_ask *best = NULL;

    for (uint32_t i = 0; i < CO_ASKS_MAX; i++) {
        struct co_ask *ask = &agent->asks[i];
        if (ask->used && ask->pool == pool) {
            if (ask->sent) {
                return NULL;
            }
            best = best == NULL || ask->ticket < best->ticket ? ask : best;
        }
    }
    return best;
}

static void send_ask(struct co_agent *agent, uint32_t pool, struct co_ask *ask)
{
    static uint8_t buf[CO_RECORD_MAX];
    struct co_link *link = agent->pools[pool].links[ask->worker];
    struct co_record record = {.type = CO_RECORD_CONTROL, .ticket = ask->ticket, .body = buf};
    size_t name_size = strlen(ask->name) + 1;
    size_t body_size = strlen(ask->body);
    const void *long_part = NULL;
    struct co_err err;

    memcpy(buf, ask->name, name_size);
    if (name_size + body_size + CO_RECORD_HEADER > CO_RECORD_MAX / 2) {
        record.flags = CO_FLAG_OVERFLOW;
        record.size = (uint32_t)name_size;
        long_part = ask->body;
    } else {
        memcpy(buf + name_size, ask->body, body_size);
        record.size = (uint32_t)(name_size + body_size);
    }
    ask->sent = true;
    if (co_link_send(link, &record, long_part, body_size, &err) < 0) {
        ask_done(agent, ask, false, "{\"error\":\"the control worker takes no messages\"}");
    }
}

static void expire_asks(struct co_agent *agent)
{
    co_ms now = co_agent_clock();

    for (uint32_t i = 0; i < CO_ASKS_MAX; i++) {
        struct co_ask *ask = &agent->asks[i];
        if (ask->used && now >= ask->deadline) {
            if (ask->sent) {
                co_workers_kill(agent, ask->pool, ask->worker);
            }
            ask_done(agent, ask, false,
                     "{\"error\":\"the application did not answer within 30 seconds\"}");
        }
    }
}

void co_requests_send(struct co_agent *agent)
{
    expire_asks(agent);
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        struct co_ask *ask = next_ask(agent, i);
        int control = ask != NULL ? co_pool_control(&agent->core.pools[i].pool) : -1;
        if (control >= 0 && agent->pools[i].links[control] != NULL) {
            ask->worker = (uint32_t)control;
            send_ask(agent, i, ask);
        }
    }
}

void co_requests_reply(struct co_agent *agent, uint32_t pool, uint64_t ticket, bool ok,
                       const char *json)
{
    for (uint32_t i = 0; i < CO_ASKS_MAX; i++) {
        struct co_ask *ask = &agent->asks[i];
        if (ask->used && ask->sent && ask->pool == pool && ask->ticket == ticket) {
            ask_done(agent, ask, ok, json);
            break;
        }
    }
    co_requests_send(agent);
}

void co_requests_control_gone(struct co_agent *agent, uint32_t pool, uint32_t worker)
{
    for (uint32_t i = 0; i < CO_ASKS_MAX; i++) {
        struct co_ask *ask = &agent->asks[i];
        if (ask->used && ask->sent && ask->pool == pool && ask->worker == worker) {
            ask_done(agent, ask, false,
                     "{\"error\":\"the application ended the control worker while it answered\"}");
        }
    }
}

/* ---- requests from outside ---- */

struct request {
    struct co_control_peer peer;
    char id[40];
    bool doctor;
    bool remote; /* Came over the mesh, and is answered there ... */
    bool silent; /* ... unless another agent passed it on. */
};

static void send_text(struct co_agent *agent, const struct request *request, char *text)
{
    struct co_mesh_peer peer = {.size = request->peer.size};
    struct co_err err;

    if (request->silent) {
        free(text);
        return;
    }
    if (text != NULL && request->remote && agent->fleet != NULL) {
        memcpy(peer.id, request->peer.id, sizeof peer.id);
        co_fleet_uv_reply(agent->fleet, &peer, text);
    } else if (text != NULL && !request->remote && agent->control != NULL) {
        /* Who does not wait for the answer has lost it. */
        co_control_uv_send(agent->control, &request->peer, text, &err);
    }
    free(text);
}

static void answer_data(struct co_agent *agent, const struct request *request, char *data)
{
    send_text(agent, request,
              data != NULL ? co_control_answer(request->id, data)
                           : co_control_error(request->id, "failed", "out of memory"));
    free(data);
}

static void answer_error(struct co_agent *agent, const struct request *request, const char *code,
                         const char *message)
{
    send_text(agent, request, co_control_error(request->id, code, message));
}

static void from_application(struct co_agent *agent, void *context, bool ok, const char *json)
{
    struct request *request = context;
    char error[1024] = "";
    char code[32] = "failed";

    if (request->doctor) {
        answer_data(agent, request, co_report_doctor(co_agent_view(agent), ok ? json : NULL));
    } else if (ok) {
        send_text(agent, request, co_control_answer(request->id, json));
    } else {
        co_json_get_string(json, "code", code, sizeof code);
        if (!co_json_get_string(json, "error", error, sizeof error)) {
            snprintf(error, sizeof error, "%.1000s", json);
        }
        answer_error(agent, request, code, error);
    }
    free(request);
}

static int find_pool(const struct co_agent *agent, const char *args);

static void ask_application(struct co_agent *agent, const struct request *request, const char *op,
                            const char *args)
{
    int named = find_pool(agent, args);
    uint32_t pool = named < 0 ? 0 : (uint32_t)named;
    struct request *kept = malloc(sizeof *kept);

    if (kept == NULL) {
        answer_error(agent, request, "failed", "out of memory");
        return;
    }
    *kept = *request;
    kept->doctor = strcmp(op, "doctor") == 0;
    if (!agent->core.pools[0].pool.zygote_up && co_pool_control(&agent->core.pools[0].pool) < 0) {
        from_application(agent, kept, false,
                         "{\"error\":\"the application has not booted; cohort status says why\"}");
        return;
    }
    co_requests_ask(agent, pool, op, args, from_application, kept);
}

static void list_quarantine(struct co_agent *agent, const struct request *request)
{
    static struct co_quarantined found[QUARANTINE_MAX];
    static struct co_report_quarantined list[QUARANTINE_MAX];
    uint32_t total = 0;

    for (uint32_t i = 0; i < agent->n_sources; i++) {
        struct co_err err;
        uint32_t n = 0;
        if (agent->sources[i].redis != NULL) {
            continue;
        }
        if (co_sqlite_quarantine_list(agent->sources[i].path, found + total, QUARANTINE_MAX - total,
                                      &n, &err) < 0) {
            answer_error(agent, request, "failed", err.msg);
            return;
        }
        for (uint32_t k = total; k < total + n; k++) {
            list[k] = (struct co_report_quarantined){
                .id = found[k].id,
                .connection = agent->sources[i].tables[0].connection,
                .queue = found[k].queue,
                .reason = found[k].reason,
                .since = found[k].since,
                .payload_size = found[k].payload_size,
            };
        }
        total += n;
    }
    answer_data(agent, request, co_report_quarantine(list, total));
}

/* Ids of the quarantine are of one file; the first source that has one is meant. */
static void change_quarantine(struct co_agent *agent, const struct request *request,
                              const char *args, bool retry)
{
    static int64_t ids[QUARANTINE_MAX];
    static struct co_quarantined found[QUARANTINE_MAX];
    struct co_err err;
    bool all = false;
    uint64_t done = 0;
    int n = co_report_ids(args, ids, QUARANTINE_MAX, &all);

    if (n < 0 || (n == 0 && !all)) {
        answer_error(agent, request, "usage", "name quarantined jobs by their number, or --all");
        return;
    }
    for (uint32_t i = 0; i < agent->n_sources; i++) {
        const char *path = agent->sources[i].path;
        uint32_t listed = 0;
        if (agent->sources[i].redis != NULL) {
            continue;
        }
        do {
            if (all && co_sqlite_quarantine_list(path, found, QUARANTINE_MAX, &listed, &err) < 0) {
                answer_error(agent, request, "failed", err.msg);
                return;
            }
            for (uint32_t k = 0; k < listed; k++) {
                ids[k] = found[k].id;
            }
            n = all ? (int)listed : n;
            for (int k = 0; k < n; k++) {
                int code = ids[k] < 0 ? CO_ENOTFOUND
                           : retry    ? co_sqlite_quarantine_retry(path, ids[k], &err)
                                      : co_sqlite_quarantine_forget(path, ids[k], &err);
                if (code < 0 && code != CO_ENOTFOUND) {
                    answer_error(agent, request, "failed", err.msg);
                    return;
                }
                done += code == CO_OK;
                ids[k] = code == CO_OK ? -1 : ids[k]; /* Found: no other file's is meant. */
            }
        } while (all && listed == QUARANTINE_MAX);
    }
    if (done == 0 && !all) {
        answer_error(agent, request, "not_found", "no quarantined job has that number");
        return;
    }
    answer_data(agent, request, co_report_count(retry ? "retried" : "forgotten", done));
}

/* ---- pauses, reload, traces, memory ---- */

static int find_pool(const struct co_agent *agent, const char *args)
{
    char name[CO_NAME_SIZE] = "";

    if (!co_json_get_string(args, "pool", name, sizeof name)) {
        return 0;
    }
    for (uint32_t i = 0; i < agent->n_pools; i++) {
        if (strcmp(agent->pools[i].config->name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static void reload(struct co_agent *agent, const struct request *request, const char *args)
{
    int pool = find_pool(agent, args);

    if (pool < 0) {
        answer_error(agent, request, "not_found", "no pool of that name; cohort status lists them");
        return;
    }
    co_agent_reload(agent, (uint32_t)pool, "cohort reload");
    answer_data(agent, request, strdup("{}"));
}

/* "connection:queue", "queue", or nothing for all. */
static void read_queue(const char *args, struct co_state_pause *pause)
{
    char name[CO_TEXT_SIZE] = "";
    char *colon;

    co_json_get_string(args, "queue", name, sizeof name);
    colon = strchr(name, ':');
    if (colon != NULL) {
        *colon = '\0';
        snprintf(pause->connection, sizeof pause->connection, "%.63s", name);
    }
    snprintf(pause->queue, sizeof pause->queue, "%s", colon != NULL ? colon + 1 : name);
}

static bool same_queue(const struct co_state_pause *a, const struct co_state_pause *b)
{
    return strcmp(a->queue, b->queue) == 0 && strcmp(a->connection, b->connection) == 0;
}

static struct co_state_pause *find_pause(struct co_agent *agent, const struct co_state_pause *like)
{
    for (uint32_t i = 0; i < agent->n_pauses; i++) {
        if (same_queue(&agent->pauses[i], like)) {
            return &agent->pauses[i];
        }
    }
    return NULL;
}

static void pause_queue(struct co_agent *agent, const struct request *request, const char *args)
{
    struct co_state_pause pause = {.since = (co_unix)(co_agent_wall_ms() / 1000)};
    struct co_state_pause *known;
    struct co_err err;

    read_queue(args, &pause);
    co_json_get_string(args, "by", pause.by, sizeof pause.by);
    if (!co_json_get_string(args, "reason", pause.reason, sizeof pause.reason) ||
        pause.reason[0] == '\0') {
        answer_error(agent, request, "usage",
                     "a pause needs a reason: cohort pause QUEUE --reason TEXT");
        return;
    }
    known = find_pause(agent, &pause);
    if (known == NULL && agent->n_pauses == CO_STATE_PAUSES_MAX) {
        answer_error(agent, request, "failed", "64 pauses are in force; resume some first");
        return;
    }
    *(known != NULL ? known : &agent->pauses[agent->n_pauses++]) = pause;
    if (agent->state != NULL && co_state_pause_set(agent->state, &pause, &err) < 0) {
        co_agent_log(agent, CO_LOG_WARN, NULL, "the pause will not outlive this agent: %s",
                     err.msg);
    }
    co_upkeep_hold(agent);
    answer_data(agent, request, strdup("{}"));
}

static void resume_queue(struct co_agent *agent, const struct request *request, const char *args)
{
    struct co_state_pause pause = {0};
    struct co_state_pause *known;
    struct co_err err;

    read_queue(args, &pause);
    known = find_pause(agent, &pause);
    if (known == NULL) {
        answer_error(agent, request, "not_found",
                     "no pause of this agent has that name; cohort status shows what is held, and "
                     "pauses of Laravel's own end with queue:continue");
        return;
    }
    *known = agent->pauses[--agent->n_pauses];
    if (agent->state != NULL) {
        co_state_pause_clear(agent->state, pause.queue, pause.connection, &err);
    }
    co_upkeep_hold(agent);
    answer_data(agent, request, strdup("{}"));
}

static void on_traced(struct co_agent *agent, void *context, const char *text)
{
    struct request *request = context;

    if (text[0] == '{') {
        send_text(agent, request, co_control_answer(request->id, text));
    } else {
        answer_error(agent, request, "failed", text);
    }
    free(request);
}

static void trace(struct co_agent *agent, const struct request *request, const char *args)
{
    char number[16] = "";
    int pool = find_pool(agent, args);
    struct request *kept;
    unsigned long worker;
    char *end;
    pid_t pid;

    co_json_get_string(args, "worker", number, sizeof number);
    worker = strtoul(number, &end, 10);
    pid = pool >= 0 && number[0] != '\0' && *end == '\0' && worker < CO_WORKERS_MAX
              ? agent->core.pools[pool].pool.workers[worker].pid
              : 0;
    if (pid <= 1) {
        answer_error(agent, request, "not_found",
                     "no worker of that number is running; cohort workers lists them");
        return;
    }
    kept = malloc(sizeof *kept);
    if (kept == NULL) {
        answer_error(agent, request, "failed", "out of memory");
        return;
    }
    *kept = *request;
    co_trace_start(agent, pid, true, on_traced, kept);
}

#define LIST_MAX 1000

static void list_exits(struct co_agent *agent, const struct request *request, const char *path)
{
    struct co_report_exit *list = calloc(LIST_MAX, sizeof *list);
    struct co_err err;
    uint32_t n = 0;

    if (list == NULL || co_state_exits_list(path, NULL, list, LIST_MAX, &n, &err) < 0) {
        answer_error(agent, request, "failed", list == NULL ? "out of memory" : err.msg);
    } else {
        answer_data(agent, request, co_report_exits(list, n));
    }
    free(list);
}

static void list_slow(struct co_agent *agent, const struct request *request, const char *path)
{
    struct co_report_slow *list = calloc(LIST_MAX, sizeof *list);
    struct co_err err;
    uint32_t n = 0;

    if (list == NULL || co_state_slow_list(path, NULL, list, LIST_MAX, &n, &err) < 0) {
        answer_error(agent, request, "failed", list == NULL ? "out of memory" : err.msg);
    } else {
        answer_data(agent, request, co_report_slow(list, n));
    }
    free(list);
}

static void list_minutes(struct co_agent *agent, const struct request *request, const char *path)
{
    struct co_report_minute *list = calloc(LIST_MAX, sizeof *list);
    struct co_err err;
    uint32_t n = 0;

    if (list == NULL || co_state_minutes_list(path, NULL, list, LIST_MAX, &n, &err) < 0) {
        answer_error(agent, request, "failed", list == NULL ? "out of memory" : err.msg);
    } else {
        answer_data(agent, request, co_report_minutes(list, n));
    }
    free(list);
}

/* One row a kind of question to state.db. */
static const struct {
    const char *op;
    void (*list)(struct co_agent *agent, const struct request *request, const char *path);
} memory_ops[] = {{"exits", list_exits}, {"slow", list_slow}, {"minutes", list_minutes}};

static bool serve_memory(struct co_agent *agent, const struct request *request, const char *op)
{
    char path[CO_PATH_SIZE];

    snprintf(path, sizeof path, "%.1000s/state.db", agent->config.state_dir);
    for (size_t i = 0; i < sizeof memory_ops / sizeof memory_ops[0]; i++) {
        if (strcmp(op, memory_ops[i].op) == 0) {
            memory_ops[i].list(agent, request, path);
            return true;
        }
    }
    return false;
}

static const struct {
    const char *op;
    void (*run)(struct co_agent *agent, const struct request *request, const char *args);
} worker_ops[] = {
    {"reload", reload}, {"pause", pause_queue}, {"resume", resume_queue}, {"trace", trace}};

static bool serve_workers(struct co_agent *agent, const struct request *request, const char *op,
                          const char *args)
{
    for (size_t i = 0; i < sizeof worker_ops / sizeof worker_ops[0]; i++) {
        if (strcmp(op, worker_ops[i].op) == 0) {
            worker_ops[i].run(agent, request, args);
            return true;
        }
    }
    return false;
}

static void list_peers(struct co_agent *agent, const struct request *request)
{
    static struct co_peers peers;

    if (agent->fleet == NULL) {
        answer_error(agent, request, "not_found",
                     "this agent is in no fleet; fleet.name in its configuration makes it one of "
                     "several");
        return;
    }
    co_fleet_uv_peers(agent->fleet, &peers);
    answer_data(agent, request, co_peers_to_json(&peers));
}

/* What concerns the fleet as a whole. */
static bool serve_fleet(struct co_agent *agent, const struct request *request, const char *op,
                        const char *args)
{
    struct co_err err;
    bool audit = strcmp(op, "audit") == 0;
    char pool[CO_NAME_SIZE], all[8];
    int code;

    if (agent->fleet != NULL && co_json_get_string(args, "fleet", all, sizeof all) &&
        (strcmp(op, "drain") == 0 || strcmp(op, "reload") == 0)) {
        co_fleet_uv_pass_on(agent, op,
                            co_json_get_string(args, "pool", pool, sizeof pool) ? pool : NULL);
        return false; /* And so do we. */
    }
    if (!audit && strcmp(op, "fleet") != 0 && strcmp(op, "override") != 0) {
        return false;
    }
    if (agent->fleet == NULL) {
        answer_error(agent, request, "not_found",
                     "this agent is in no fleet; fleet.name in its configuration makes it one of "
                     "several");
        return true;
    }
    if (strcmp(op, "override") != 0) {
        answer_data(agent, request, co_fleet_uv_view(agent, audit));
        return true;
    }
    code = co_fleet_uv_say(agent, args, &err);
    if (code < 0) {
        answer_error(agent, request,
                     code == CO_ENOTFOUND    ? "not_found"
                     : code == CO_EMALFORMED ? "malformed"
                                             : "failed",
                     err.msg);
    } else {
        answer_data(agent, request, strdup("{}"));
    }
    return true;
}

static void serve(struct co_agent *agent, const struct request *request, const char *op,
                  const char *args)
{
    bool quarantined = co_json_get_bool(args, "quarantined", false);

    if (serve_fleet(agent, request, op, args)) {
        return;
    }
    if (strcmp(op, "ping") == 0) {
        answer_data(agent, request, co_report_ping(co_agent_view(agent)));
    } else if (strcmp(op, "status") == 0) {
        answer_data(agent, request,
                    co_view_to_json(co_agent_view(agent), co_json_get_bool(args, "workers", true),
                                    co_json_get_bool(args, "queues", true)));
    } else if (strcmp(op, "peers") == 0) {
        list_peers(agent, request);
    } else if (strcmp(op, "config") == 0) {
        answer_data(agent, request, co_config_to_json(&agent->config));
    } else if (strcmp(op, "drain") == 0) {
        answer_data(agent, request, strdup("{}"));
        if (agent->drains == 0) {
            co_agent_drain(agent, "cohort drain");
        }
    } else if (quarantined && strcmp(op, "failed.list") == 0) {
        list_quarantine(agent, request);
    } else if (quarantined && strcmp(op, "failed.retry") == 0) {
        change_quarantine(agent, request, args, true);
    } else if (quarantined && strcmp(op, "failed.forget") == 0) {
        change_quarantine(agent, request, args, false);
    } else if (strcmp(op, "push") == 0 || strcmp(op, "doctor") == 0 ||
               strncmp(op, "failed.", strlen("failed.")) == 0) {
        ask_application(agent, request, op, args);
    } else if (!serve_workers(agent, request, op, args) && !serve_memory(agent, request, op)) {
        answer_error(agent, request, "unknown",
                     "this agent does not know that operation; is the cohort command newer?");
    }
}

/* What looks and changes nothing. */
static bool is_look(const char *op)
{
    static const char *const looks[] = {"ping",   "status", "peers",       "exits",
                                        "fleet",  "audit",  "slow",        "minutes",
                                        "config", "doctor", "failed.list", "failed.show"};

    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        if (strcmp(op, looks[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void on_message(struct co_agent *agent, struct request *request, enum co_fleet_role role,
                       const char *data, size_t size)
{
    struct co_control_request read;
    struct co_err err;
    int code = co_control_request_read(data, size, &read, &err);

    memcpy(request->id, read.id, sizeof request->id);
    if (code < 0) {
        answer_error(agent, request, code == CO_EVERSION ? "version" : "malformed", err.msg);
        return;
    }
    if (role == CO_FLEET_ROLE_VIEWER && !is_look(read.op)) {
        co_agent_log(agent, CO_LOG_WARN, CO_FIELDS("op", read.op),
                     "refused: the key of a viewer may look, not act");
        answer_error(agent, request, "denied",
                     "this key is a viewer's and may only look; an operator's may act (cohort "
                     "keygen --role operator)");
    } else {
        serve(agent, request, read.op, read.args);
    }
    co_control_request_done(&read);
    co_agent_step(agent);
}

static void on_request(void *arg, const struct co_control_peer *peer, const char *data, size_t size)
{
    struct request request = {.peer = *peer};

    /* The socket is for its owner alone, who may do everything. */
    on_message(arg, &request, CO_FLEET_ROLE_OPERATOR, data, size);
}

void co_requests_remote(struct co_agent *agent, const struct co_mesh_message *message)
{
    struct request request = {.remote = true,
                              .silent = message->role == CO_FLEET_ROLE_MEMBER,
                              .peer = {.size = message->peer.size}};

    memcpy(request.peer.id, message->peer.id, sizeof message->peer.id);
    on_message(agent, &request, message->role, (const char *)message->data, message->size);
}

int co_requests_open(struct co_agent *agent, struct co_err *err)
{
    return co_control_uv_open(&agent->loop, agent->config.control, on_request, agent,
                              &agent->control, err);
}

void co_requests_close(struct co_agent *agent)
{
    co_control_uv_close(&agent->control);
    for (uint32_t i = 0; i < CO_ASKS_MAX; i++) {
        if (agent->asks[i].used) {
            ask_done(agent, &agent->asks[i], false, "{\"error\":\"the agent is leaving\"}");
        }
    }
}
