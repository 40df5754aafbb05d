/* Tables say which member of the JSON is which field of the view; one reader and one writer walk
 * them, so the two cannot disagree. */

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/control.h"
#include "proto/log.h"
#include "proto/text_json.h"

enum kind {
    KIND_TEXT,
    KIND_BOOL,
    KIND_U32,
    KIND_I32,
    KIND_U64,
    KIND_DOUBLE,
    KIND_HIST,
    KIND_STATE,  /* enum co_worker_state, by name. */
    KIND_STATES, /* uint32_t by worker state. */
    KIND_EXITS,  /* uint64_t by exit reason. */
    KIND_LEVELS, /* uint64_t by log level. */
};

struct member {
    const char *name;
    enum kind kind;
    size_t offset;
    size_t size;
};

#define MEMBER(structure, field, kind, name)                                                     \
    {                                                                                            \
        name, kind, offsetof(struct structure, field), sizeof(((struct structure *)NULL)->field) \
    }

static const struct member worker_members[] = {
    MEMBER(co_view_worker, index, KIND_U32, "index"),
    MEMBER(co_view_worker, generation, KIND_U32, "generation"),
    MEMBER(co_view_worker, pid, KIND_I32, "pid"),
    MEMBER(co_view_worker, state, KIND_STATE, "state"),
    MEMBER(co_view_worker, since, KIND_U64, "since_ms"),
    MEMBER(co_view_worker, jobs_done, KIND_U64, "jobs_done"),
    MEMBER(co_view_worker, rss_bytes, KIND_U64, "rss_bytes"),
    MEMBER(co_view_worker, queue, KIND_TEXT, "queue"),
    MEMBER(co_view_worker, job, KIND_TEXT, "job"),
    MEMBER(co_view_worker, job_id, KIND_TEXT, "job_id"),
    {0},
};

static const struct member pool_members[] = {
    MEMBER(co_view_pool, name, KIND_TEXT, "name"),
    MEMBER(co_view_pool, app, KIND_TEXT, "app"),
    MEMBER(co_view_pool, app_path, KIND_TEXT, "app_path"),
    MEMBER(co_view_pool, app_kind, KIND_TEXT, "app_kind"),
    MEMBER(co_view_pool, app_version, KIND_TEXT, "app_version"),
    MEMBER(co_view_pool, php_version, KIND_TEXT, "php_version"),
    MEMBER(co_view_pool, workers_wanted, KIND_U32, "workers_wanted"),
    MEMBER(co_view_pool, by_state, KIND_STATES, "workers_by_state"),
    MEMBER(co_view_pool, exits, KIND_EXITS, "exits"),
    MEMBER(co_view_pool, forks, KIND_U64, "forks"),
    MEMBER(co_view_pool, boot_failures, KIND_U64, "boot_failures"),
    MEMBER(co_view_pool, boot_error, KIND_TEXT, "boot_error"),
    MEMBER(co_view_pool, zygote_up, KIND_BOOL, "zygote_up"),
    MEMBER(co_view_pool, generation, KIND_U32, "generation"),
    MEMBER(co_view_pool, circuit, KIND_TEXT, "circuit"),
    MEMBER(co_view_pool, circuit_opened, KIND_U64, "circuit_opened"),
    MEMBER(co_view_pool, bookkeeping, KIND_U32, "bookkeeping"),
    MEMBER(co_view_pool, control_up, KIND_BOOL, "control_up"),
    MEMBER(co_view_pool, tickets_queued, KIND_U64, "tickets_queued"),
    MEMBER(co_view_pool, oldest_wait, KIND_U64, "oldest_wait_ms"),
    MEMBER(co_view_pool, wait, KIND_HIST, "wait"),
    MEMBER(co_view_pool, service, KIND_HIST, "service"),
    MEMBER(co_view_pool, handover, KIND_HIST, "handover"),
    MEMBER(co_view_pool, output_lines, KIND_U64, "output_lines"),
    MEMBER(co_view_pool, output_suppressed, KIND_U64, "output_suppressed"),
    {0},
};

static const struct member source_members[] = {
    MEMBER(co_view_source, connection, KIND_TEXT, "connection"),
    MEMBER(co_view_source, driver, KIND_TEXT, "driver"),
    MEMBER(co_view_source, place, KIND_TEXT, "place"),
    MEMBER(co_view_source, up, KIND_BOOL, "up"),
    MEMBER(co_view_source, error, KIND_TEXT, "error"),
    MEMBER(co_view_source, last_good, KIND_U64, "last_good_ms"),
    MEMBER(co_view_source, turns, KIND_U64, "turns"),
    MEMBER(co_view_source, turn_errors, KIND_U64, "turn_errors"),
    MEMBER(co_view_source, turn_time, KIND_HIST, "turn_time"),
    MEMBER(co_view_source, quarantined, KIND_U64, "quarantined"),
    MEMBER(co_view_source, held, KIND_U64, "held"),
    {0},
};

static const struct member queue_members[] = {
    MEMBER(co_view_queue, name, KIND_TEXT, "name"),
    MEMBER(co_view_queue, connection, KIND_TEXT, "connection"),
    MEMBER(co_view_queue, pool, KIND_TEXT, "pool"),
    MEMBER(co_view_queue, served, KIND_BOOL, "served"),
    MEMBER(co_view_queue, ready, KIND_U64, "ready"),
    MEMBER(co_view_queue, delayed, KIND_U64, "delayed"),
    MEMBER(co_view_queue, claimed, KIND_U64, "claimed"),
    MEMBER(co_view_queue, running, KIND_U64, "running"),
    MEMBER(co_view_queue, foreign, KIND_U64, "foreign"),
    MEMBER(co_view_queue, oldest_s, KIND_DOUBLE, "oldest_s"),
    MEMBER(co_view_queue, held, KIND_BOOL, "held"),
    MEMBER(co_view_queue, held_why, KIND_TEXT, "held_why"),
    MEMBER(co_view_queue, done, KIND_U64, "done"),
    MEMBER(co_view_queue, failed, KIND_U64, "failed"),
    MEMBER(co_view_queue, released, KIND_U64, "released"),
    MEMBER(co_view_queue, crashed, KIND_U64, "crashed"),
    MEMBER(co_view_queue, lost, KIND_U64, "lost"),
    MEMBER(co_view_queue, declined, KIND_U64, "declined"),
    MEMBER(co_view_queue, timeouts, KIND_U64, "timeouts"),
    {0},
};

static const struct member view_members[] = {
    MEMBER(co_view, agent_id, KIND_TEXT, "agent_id"),
    MEMBER(co_view, version, KIND_TEXT, "version"),
    MEMBER(co_view, pid, KIND_I32, "pid"),
    MEMBER(co_view, uptime, KIND_U64, "uptime_ms"),
    MEMBER(co_view, startup, KIND_BOOL, "startup"),
    MEMBER(co_view, ready, KIND_BOOL, "ready"),
    MEMBER(co_view, live, KIND_BOOL, "live"),
    MEMBER(co_view, draining, KIND_BOOL, "draining"),
    MEMBER(co_view, why, KIND_TEXT, "why"),
    MEMBER(co_view, run_dir, KIND_TEXT, "run_dir"),
    MEMBER(co_view, config_file, KIND_TEXT, "config_file"),
    MEMBER(co_view, loop_lag, KIND_HIST, "loop_lag"),
    MEMBER(co_view, log_messages, KIND_LEVELS, "log_messages"),
    {0},
};

/* ---- names of what is counted by a closed list ---- */

static const char *counted_name(enum kind kind, size_t i)
{
    return kind == KIND_EXITS    ? co_exit_name((enum co_exit_reason)i)
           : kind == KIND_STATES ? co_worker_state_name((enum co_worker_state)i)
                                 : co_log_level_name((enum co_log_level)i);
}

static size_t counter_size(enum kind kind)
{
    return kind == KIND_STATES ? sizeof(uint32_t) : sizeof(uint64_t);
}

/* ---- writing ---- */

static json_t *write_u64(uint64_t value)
{
    /* JSON's integers here are signed; a counter gets there in no life of an agent. */
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static uint64_t get_counter(const void *at, size_t size)
{
    if (size == sizeof(uint32_t)) {
        return *(const uint32_t *)at;
    }
    return *(const uint64_t *)at;
}

static json_t *write_counters(const struct member *member, const char *at)
{
    size_t size = counter_size(member->kind);
    json_t *object = json_object();

    for (size_t i = 0; object != NULL && i < member->size / size; i++) {
        json_object_set_new(object, counted_name(member->kind, i),
                            write_u64(get_counter(at + i * size, size)));
    }
    return object;
}

static json_t *write_hist(const struct co_hist *hist)
{
    json_t *buckets = json_array();

    for (unsigned i = 0; buckets != NULL && i < CO_HIST_BUCKETS; i++) {
        json_array_append_new(buckets, write_u64(hist->bucket[i]));
    }
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "count", write_u64(hist->count), "sum_us",
                     write_u64(hist->sum_us), "p50_us", write_u64(co_hist_quantile_us(hist, 0.5)),
                     "p95_us", write_u64(co_hist_quantile_us(hist, 0.95)), "p99_us",
                     write_u64(co_hist_quantile_us(hist, 0.99)), "buckets", buckets);
}

static json_t *write_member(const struct member *member, const char *at)
{
    switch (member->kind) {
    case KIND_TEXT:
        return co_text_json(at);
    case KIND_BOOL:
        return json_boolean(*(const bool *)(const void *)at);
    case KIND_U32:
        return json_integer(*(const uint32_t *)(const void *)at);
    case KIND_I32:
        return json_integer(*(const int32_t *)(const void *)at);
    case KIND_U64:
        return write_u64(*(const uint64_t *)(const void *)at);
    case KIND_DOUBLE:
        return json_real(*(const double *)(const void *)at);
    case KIND_HIST:
        return write_hist((const struct co_hist *)(const void *)at);
    case KIND_STATE:
        return json_string(co_worker_state_name(*(const enum co_worker_state *)(const void *)at));
    case KIND_STATES:
    case KIND_EXITS:
    case KIND_LEVELS:
        return write_counters(member, at);
    }
    return NULL;
}

/* json_object_set_new() refuses NULL, so one value without memory fails the whole. */
static bool write_members(json_t *object, const struct member *members, const void *from)
{
    for (const struct member *m = members; m->name != NULL; m++) {
        if (json_object_set_new(object, m->name, write_member(m, (const char *)from + m->offset)) <
            0) {
            return false;
        }
    }
    return true;
}

/* A list of n things of `size` bytes each. */
static json_t *write_list(const struct member *members, const void *from, size_t size, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; list != NULL && i < n; i++) {
        json_t *object = json_object();
        if (!write_members(object, members, (const char *)from + i * size) ||
            json_array_append(list, object) < 0) {
            json_decref(list);
            list = NULL;
        }
        json_decref(object);
    }
    return list;
}

static bool write_pools(json_t *root, const struct co_view *view, bool workers)
{
    json_t *list = write_list(pool_members, view->pools, sizeof view->pools[0], view->n_pools);

    for (uint32_t i = 0; list != NULL && workers && i < view->n_pools; i++) {
        const struct co_view_pool *pool = &view->pools[i];
        json_t *of_pool =
            write_list(worker_members, pool->workers, sizeof pool->workers[0], pool->n_workers);
        if (json_object_set_new(json_array_get(list, i), "workers", of_pool) < 0) {
            json_decref(list);
            return false;
        }
    }
    return json_object_set_new(root, "pools", list) == 0;
}

char *co_view_to_json(const struct co_view *view, bool workers, bool queues)
{
    json_t *root = json_pack("{s:i}", "schema", CO_VIEW_SCHEMA);
    char *text = NULL;

    if (write_members(root, view_members, view) && write_pools(root, view, workers) &&
        json_object_set_new(root, "sources",
                            write_list(source_members, view->sources, sizeof view->sources[0],
                                       view->n_sources)) == 0 &&
        (!queues || json_object_set_new(root, "queues",
                                        write_list(queue_members, view->queues,
                                                   sizeof view->queues[0], view->n_queues)) == 0)) {
        text = json_dumps(root, JSON_COMPACT);
    }
    json_decref(root);
    return text;
}

/* ---- reading: unknown members are skipped, missing and misshapen ones stay zero ---- */

static uint64_t read_u64(const json_t *value, uint64_t max)
{
    json_int_t number = json_integer_value(value);

    if (number < 0) {
        return 0;
    }
    return (uint64_t)number > max ? max : (uint64_t)number;
}

static void read_counters(const struct member *member, const json_t *value, char *at)
{
    size_t size = counter_size(member->kind);

    for (size_t i = 0; i < member->size / size; i++) {
        const json_t *count = json_object_get(value, counted_name(member->kind, i));
        if (size == sizeof(uint32_t)) {
            ((uint32_t *)(void *)at)[i] = (uint32_t)read_u64(count, UINT32_MAX);
        } else {
            ((uint64_t *)(void *)at)[i] = read_u64(count, UINT64_MAX);
        }
    }
}

static void read_hist(const json_t *value, struct co_hist *hist)
{
    const json_t *buckets = json_object_get(value, "buckets");

    hist->count = read_u64(json_object_get(value, "count"), UINT64_MAX);
    hist->sum_us = read_u64(json_object_get(value, "sum_us"), UINT64_MAX);
    for (size_t i = 0; i < CO_HIST_BUCKETS; i++) {
        hist->bucket[i] = read_u64(json_array_get(buckets, i), UINT64_MAX);
    }
}

static enum co_worker_state read_state(const json_t *value)
{
    const char *name = json_string_value(value);

    for (unsigned i = 0; name != NULL && i < CO_WORKER_STATES; i++) {
        if (strcmp(name, co_worker_state_name((enum co_worker_state)i)) == 0) {
            return (enum co_worker_state)i;
        }
    }
    return CO_WORKER_DEAD; /* A state this reader does not know does no work it could show. */
}

static void read_member(const struct member *member, const json_t *object, char *at)
{
    const json_t *value = json_object_get(object, member->name);

    switch (member->kind) {
    case KIND_TEXT:
        co_text_json_copy(object, member->name, at, member->size);
        return;
    case KIND_BOOL:
        *(bool *)at = json_is_true(value);
        return;
    case KIND_U32:
        *(uint32_t *)(void *)at = (uint32_t)read_u64(value, UINT32_MAX);
        return;
    case KIND_I32:
        *(int32_t *)(void *)at = (int32_t)read_u64(value, INT32_MAX);
        return;
    case KIND_U64:
        *(uint64_t *)(void *)at = read_u64(value, UINT64_MAX);
        return;
    case KIND_DOUBLE:
        *(double *)(void *)at = json_number_value(value);
        return;
    case KIND_HIST:
        read_hist(value, (struct co_hist *)(void *)at);
        return;
    case KIND_STATE:
        *(enum co_worker_state *)(void *)at = read_state(value);
        return;
    case KIND_STATES:
    case KIND_EXITS:
    case KIND_LEVELS:
        read_counters(member, value, at);
        return;
    }
}

static void read_members(const json_t *object, const struct member *members, void *into)
{
    for (const struct member *m = members; m->name != NULL; m++) {
        read_member(m, object, (char *)into + m->offset);
    }
}

/* Where a list goes. */
struct list {
    const char *name;
    const struct member *members;
    void *into;
    size_t size; /* Of one. */
    uint32_t max;
};

static int read_list(const json_t *object, const struct list *list, uint32_t *ret_n,
                     struct co_err *err)
{
    const json_t *array = json_object_get(object, list->name);
    size_t n = json_array_size(array);

    if (n > list->max) {
        return co_err_set(err, CO_EFULL, "the agent's status lists %zu %s, at most %u are read", n,
                          list->name, list->max);
    }
    for (size_t i = 0; i < n; i++) {
        read_members(json_array_get(array, i), list->members, (char *)list->into + i * list->size);
    }
    *ret_n = (uint32_t)n;
    return 0;
}

static int read_pools(const json_t *root, struct co_view *view, struct co_err *err)
{
    const struct list pools = {"pools", pool_members, view->pools, sizeof view->pools[0],
                               CO_POOLS_MAX};
    int code = read_list(root, &pools, &view->n_pools, err);

    for (uint32_t i = 0; code == 0 && i < view->n_pools; i++) {
        struct co_view_pool *pool = &view->pools[i];
        const struct list workers = {"workers", worker_members, pool->workers,
                                     sizeof pool->workers[0], CO_WORKERS_MAX};
        code = read_list(json_array_get(json_object_get(root, "pools"), i), &workers,
                         &pool->n_workers, err);
    }
    return code;
}

static int read_view(const json_t *root, struct co_view *view, struct co_err *err)
{
    const struct list sources = {"sources", source_members, view->sources, sizeof view->sources[0],
                                 CO_VIEW_SOURCES_MAX};
    const struct list queues = {"queues", queue_members, view->queues, sizeof view->queues[0],
                                CO_VIEW_QUEUES_MAX};
    const json_t *schema = json_object_get(root, "schema");
    int code;

    if (!json_is_integer(schema)) {
        return co_err_set(err, CO_EMALFORMED, "the agent's status carries no schema number");
    }
    if (json_integer_value(schema) != CO_VIEW_SCHEMA) {
        return co_err_set(err, CO_EVERSION,
                          "the agent's status has schema %lld, this program reads %d: use the "
                          "cohort command that came with the agent",
                          (long long)json_integer_value(schema), CO_VIEW_SCHEMA);
    }
    read_members(root, view_members, view);
    code = read_pools(root, view, err);
    code = code < 0 ? code : read_list(root, &sources, &view->n_sources, err);
    return code < 0 ? code : read_list(root, &queues, &view->n_queues, err);
}

int co_view_from_json(const char *json, size_t size, struct co_view *ret_view, struct co_err *err)
{
    json_error_t why;
    json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    struct co_view *view = calloc(1, sizeof *view);
    int code;

    if (root == NULL) {
        code = co_err_set(err, CO_EMALFORMED, "the agent's status is not valid JSON at byte %d: %s",
                          why.position, why.text);
    } else if (view == NULL) {
        code = co_err_set(err, CO_ENOMEM, "no memory for the agent's status");
    } else {
        code = read_view(root, view, err);
    }
    if (code == 0) {
        *ret_view = *view;
    }
    free(view);
    json_decref(root);
    return code;
}
