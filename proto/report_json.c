#include "proto/report.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/text_json.h"

static char *finish(json_t *root)
{
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;

    json_decref(root);
    return text;
}

char *co_report_quarantine(const struct co_report_quarantined *list, uint32_t n)
{
    json_t *jobs = json_array();

    for (uint32_t i = 0; i < n; i++) {
        json_t *job = json_object();
        json_object_set_new(job, "id", json_integer(list[i].id));
        json_object_set_new(job, "connection", co_text_json(list[i].connection));
        json_object_set_new(job, "queue", co_text_json(list[i].queue));
        json_object_set_new(job, "reason", co_text_json(list[i].reason));
        json_object_set_new(job, "since", json_integer(list[i].since));
        json_object_set_new(job, "payload_size", json_integer((json_int_t)list[i].payload_size));
        json_array_append_new(jobs, job);
    }
    return finish(json_pack("{s:o}", "jobs", jobs));
}

char *co_report_ping(const struct co_view *view)
{
    return finish(json_pack("{s:s, s:i, s:s}", "version", view->version, "pid", view->pid,
                            "agent_id", view->agent_id));
}

char *co_report_count(const char *name, uint64_t count)
{
    return finish(json_pack("{s:I}", name, (json_int_t)count));
}

static void add_queues(json_t *root, const struct co_view *view)
{
    json_t *unserved = json_array();
    uint64_t foreign = 0;

    for (uint32_t i = 0; i < view->n_queues; i++) {
        const struct co_view_queue *queue = &view->queues[i];
        foreign += queue->foreign;
        if (!queue->served && queue->ready + queue->delayed > 0) {
            json_t *entry = json_object();
            json_object_set_new(entry, "connection", co_text_json(queue->connection));
            json_object_set_new(entry, "queue", co_text_json(queue->name));
            json_object_set_new(entry, "ready", json_integer((json_int_t)queue->ready));
            json_object_set_new(entry, "delayed", json_integer((json_int_t)queue->delayed));
            json_array_append_new(unserved, entry);
        }
    }
    json_object_set_new(root, "unserved", unserved);
    json_object_set_new(root, "foreign", json_integer((json_int_t)foreign));
}

static void add_notes(json_t *root, const struct co_view *view)
{
    json_t *notes = json_array();
    uint64_t foreign = 0;

    if (!view->ready) {
        json_array_append_new(notes, co_text_json(view->why));
    }
    for (uint32_t i = 0; i < view->n_pools; i++) {
        if (view->pools[i].boot_error[0] != '\0') {
            json_array_append_new(
                notes, json_sprintf("the last boot of pool %s failed: %s", view->pools[i].name,
                                    view->pools[i].boot_error));
        }
    }
    for (uint32_t i = 0; i < view->n_sources; i++) {
        if (view->sources[i].quarantined > 0) {
            json_array_append_new(notes,
                                  co_text_json("jobs were put into quarantine; cohort failed list "
                                               "--quarantined shows them"));
        }
    }
    for (uint32_t i = 0; i < view->n_queues; i++) {
        foreign += view->queues[i].foreign;
    }
    if (foreign > 0) {
        json_array_append_new(
            notes,
            co_text_json("other workers hold jobs in the same database (queue:work, another "
                         "agent); stock workers meet \"database is locked\" unless their "
                         "connection has transaction_mode IMMEDIATE (Laravel 12.26 or newer)"));
    }
    json_object_set_new(root, "notes", notes);
}

char *co_report_doctor(const struct co_view *view, const char *app_json)
{
    json_t *root = app_json != NULL ? json_loads(app_json, 0, NULL) : NULL;

    if (!json_is_object(root)) {
        json_decref(root);
        root = json_object();
    }
    add_queues(root, view);
    add_notes(root, view);
    return finish(root);
}

static bool read_id(const json_t *value, int64_t *ret_id)
{
    char *end;

    if (json_is_integer(value)) {
        *ret_id = json_integer_value(value);
        return true;
    }
    if (!json_is_string(value) || json_string_length(value) == 0) {
        return false;
    }
    *ret_id = strtoll(json_string_value(value), &end, 10);
    return *end == '\0';
}

int co_report_ids(const char *args, int64_t *ret_ids, uint32_t max, bool *ret_all)
{
    json_t *root = json_loads(args, JSON_REJECT_DUPLICATES, NULL);
    json_t *ids = json_object_get(root, "ids");
    int n = 0;

    *ret_all = json_is_true(json_object_get(root, "all"));
    for (size_t i = 0; i < json_array_size(ids) && n >= 0 && (uint32_t)n < max; i++) {
        n = read_id(json_array_get(ids, i), &ret_ids[n]) ? n + 1 : CO_EMALFORMED;
    }
    json_decref(root);
    return n;
}

static void set_text(json_t *object, const char *member, const char *text)
{
    json_object_set_new(object, member, co_text_json(text));
}

static void set_count(json_t *object, const char *member, uint64_t count)
{
    json_object_set_new(object, member, json_integer((json_int_t)count));
}

static json_t *exit_json(const struct co_report_exit *exit)
{
    json_t *entry = json_object();

    json_object_set_new(entry, "id", json_integer(exit->id));
    json_object_set_new(entry, "at", json_integer(exit->at));
    set_text(entry, "pool", exit->pool);
    set_count(entry, "worker", exit->worker);
    json_object_set_new(entry, "pid", json_integer(exit->pid));
    set_count(entry, "generation", exit->generation);
    set_text(entry, "reason", exit->reason);
    set_text(entry, "status", exit->status);
    set_text(entry, "queue", exit->queue);
    set_text(entry, "job", exit->job);
    set_text(entry, "job_id", exit->job_id);
    set_text(entry, "uuid", exit->uuid);
    set_text(entry, "cause", exit->cause);
    set_count(entry, "rss_bytes", exit->rss_bytes);
    return entry;
}

char *co_report_exits(const struct co_report_exit *list, uint32_t n)
{
    json_t *exits = json_array();

    for (uint32_t i = 0; i < n; i++) {
        json_array_append_new(exits, exit_json(&list[i]));
    }
    return finish(json_pack("{s:o}", "exits", exits));
}

static json_t *minute_json(const struct co_report_minute *minute)
{
    json_t *entry = json_object();

    json_object_set_new(entry, "minute", json_integer(minute->minute));
    set_text(entry, "pool", minute->pool);
    set_text(entry, "connection", minute->connection);
    set_text(entry, "queue", minute->queue);
    set_text(entry, "job", minute->job);
    set_count(entry, "done", minute->done);
    set_count(entry, "failed", minute->failed);
    set_count(entry, "released", minute->released);
    set_count(entry, "crashed", minute->crashed);
    set_count(entry, "timeouts", minute->timeouts);
    set_count(entry, "run_sum_us", minute->run_sum_us);
    set_count(entry, "run_max_us", minute->run_max_us);
    set_count(entry, "wait_sum_us", minute->wait_sum_us);
    return entry;
}

char *co_report_minutes(const struct co_report_minute *list, uint32_t n)
{
    json_t *minutes = json_array();

    for (uint32_t i = 0; i < n; i++) {
        json_array_append_new(minutes, minute_json(&list[i]));
    }
    return finish(json_pack("{s:o}", "minutes", minutes));
}

static json_t *slow_json(const struct co_report_slow *slow)
{
    json_t *entry = json_object();

    json_object_set_new(entry, "id", json_integer(slow->id));
    json_object_set_new(entry, "at", json_integer(slow->at));
    set_text(entry, "pool", slow->pool);
    set_count(entry, "worker", slow->worker);
    set_text(entry, "job", slow->job);
    set_count(entry, "seconds", slow->seconds);
    set_text(entry, "stack", slow->stack);
    return entry;
}

char *co_report_slow(const struct co_report_slow *list, uint32_t n)
{
    json_t *entries = json_array();

    for (uint32_t i = 0; i < n; i++) {
        json_array_append_new(entries, slow_json(&list[i]));
    }
    return finish(json_pack("{s:o}", "slow", entries));
}
