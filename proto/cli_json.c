#include "proto/cli_json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/control.h"
#include "proto/text_json.h"

#define READ_FLAGS (JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL)
#define WRITE_FLAGS (JSON_INDENT(2) | JSON_REAL_PRECISION(15))

static void json_free(json_t **json)
{
    json_decref(*json);
}
#define JSON __attribute__((cleanup(json_free))) json_t *

static json_t *read_text(const char *text)
{
    return text != NULL ? json_loads(text, READ_FLAGS, NULL) : NULL;
}

static const char *text_of(const json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));
    return text != NULL ? text : "";
}

static uint64_t number_of(const json_t *object, const char *member)
{
    json_int_t value = json_integer_value(json_object_get(object, member));
    return value > 0 ? (uint64_t)value : 0;
}

/* ---- answers ---- */

static int take_answer(const json_t *root, struct co_cli_answer *answer)
{
    if (answer->ok) {
        const json_t *data = json_object_get(root, "data");
        answer->data =
            data != NULL ? json_dumps(data, JSON_COMPACT | JSON_ENCODE_ANY) : strdup("{}");
        return answer->data != NULL ? 0 : CO_ENOMEM;
    }
    co_text_json_copy(root, "code", answer->code, sizeof answer->code);
    answer->error = strdup(text_of(root, "error"));
    return answer->error != NULL ? 0 : CO_ENOMEM;
}

int co_cli_json_answer(const char *json, size_t size, struct co_cli_answer *ret_answer,
                       struct co_err *err)
{
    JSON root = json_loadb(json, size, READ_FLAGS, NULL);
    struct co_cli_answer answer = {0};

    if (!json_is_object(root) || !json_is_boolean(json_object_get(root, "ok"))) {
        return co_err_set(err, CO_EMALFORMED,
                          "what came back is no answer of a cohort agent: is something else "
                          "listening on its socket?");
    }
    if (json_integer_value(json_object_get(root, "v")) != CO_CONTROL_VERSION) {
        return co_err_set(err, CO_EVERSION,
                          "the agent speaks another version of the control protocol: use the "
                          "cohort command that came with it");
    }
    co_text_json_copy(root, "id", answer.id, sizeof answer.id);
    answer.ok = json_is_true(json_object_get(root, "ok"));
    if (take_answer(root, &answer) < 0) {
        return co_err_set(err, CO_ENOMEM, "the agent's answer: out of memory");
    }
    *ret_answer = answer;
    return 0;
}

void co_cli_json_answer_done(struct co_cli_answer *answer)
{
    free(answer->error);
    free(answer->data);
    *answer = (struct co_cli_answer){0};
}

/* ---- what --json prints ---- */

/* Put the schema first and write. Takes the object. */
static char *finish(json_t *object)
{
    JSON owned = object;
    JSON root = json_object();

    json_object_set_new(root, "schema", json_integer(CO_CLI_SCHEMA));
    if (object == NULL || json_object_update(root, owned) < 0) {
        return NULL;
    }
    return json_dumps(root, WRITE_FLAGS);
}

char *co_cli_json_pretty(const char *data)
{
    json_t *object = read_text(data);

    if (!json_is_object(object)) {
        object = json_pack("{s:o}", "data", object != NULL ? object : json_null());
    }
    return finish(object);
}

char *co_cli_json_error(const char *code, const char *message)
{
    return finish(
        json_pack("{s:o,s:o}", "code", co_text_json(code), "error", co_text_json(message)));
}

char *co_cli_json_workers(const char *status)
{
    JSON view = read_text(status);
    json_t *all = json_array();
    size_t p;
    size_t w;
    json_t *pool;
    json_t *worker;

    json_array_foreach(json_object_get(view, "pools"), p, pool)
    {
        json_array_foreach(json_object_get(pool, "workers"), w, worker)
        {
            json_t *entry = json_object();
            json_object_set(entry, "pool", json_object_get(pool, "name"));
            json_object_update(entry, worker);
            json_array_append_new(all, entry);
        }
    }
    return finish(json_pack("{s:o}", "workers", all));
}

char *co_cli_json_queues(const char *status)
{
    JSON view = read_text(status);
    json_t *queues = json_object_get(view, "queues");
    json_t *sources = json_object_get(view, "sources");

    return finish(json_pack("{s:O?,s:O?}", "queues", queues, "sources", sources));
}

char *co_cli_json_first(const char *data, const char *member, uint64_t n)
{
    JSON root = read_text(data);
    json_t *list = json_object_get(root, member);

    while (json_array_size(list) > n) {
        json_array_remove(list, json_array_size(list) - 1);
    }
    return list != NULL ? finish(json_pack("{s:O}", member, list)) : NULL;
}

/* ---- arguments ---- */

char *co_cli_json_push(const char *queue, const char *connection, const char *payload, size_t size,
                       struct co_err *err)
{
    json_t *text = json_stringn(payload, size);
    JSON args = NULL;
    char *out;

    if (text == NULL) {
        co_err_set(err, CO_EMALFORMED,
                   "the payload is no UTF-8 text; a job of Laravel is a JSON object, whose "
                   "encrypted or serialized parts are text too");
        return NULL;
    }
    args = json_pack("{s:o,s:o}", "queue", co_text_json(queue), "payload", text);
    if (connection != NULL) {
        json_object_set_new(args, "connection", co_text_json(connection));
    }
    out = args != NULL ? json_dumps(args, JSON_COMPACT) : NULL;
    if (out == NULL) {
        co_err_set(err, CO_ENOMEM, "a payload of %zu bytes: out of memory", size);
    }
    return out;
}

char *co_cli_json_failed(const struct co_cli_failed_args *args)
{
    JSON root = json_object();

    if (args->n_ids > 0) {
        json_t *ids = json_array();
        for (size_t i = 0; i < args->n_ids; i++) {
            json_array_append_new(ids, co_text_json(args->ids[i]));
        }
        json_object_set_new(root, "ids", ids);
    }
    if (args->all) {
        json_object_set_new(root, "all", json_true());
    }
    if (args->quarantined) {
        json_object_set_new(root, "quarantined", json_true());
    }
    if (args->limit > 0) {
        json_object_set_new(root, "limit", json_integer((json_int_t)args->limit));
    }
    return json_dumps(root, JSON_COMPACT);
}

char *co_cli_json_id(const char *id)
{
    return co_cli_json_members((const char *const[][2]){{"id", id}}, 1);
}

char *co_cli_json_members(const char *const members[][2], size_t n)
{
    JSON root = json_object();

    for (size_t i = 0; i < n; i++) {
        if (members[i][1] != NULL &&
            json_object_set_new(root, members[i][0], co_text_json(members[i][1])) < 0) {
            return NULL;
        }
    }
    return json_dumps(root, JSON_COMPACT);
}

/* ---- lists ---- */

/* The displayName of a payload that may have been cut, and so be no JSON any more. */
static void find_name(const char *payload, char *buf, size_t size)
{
    static const char member[] = "\"displayName\":\"";
    JSON root = read_text(payload);
    const char *at = strstr(payload, member);
    size_t n = 0;

    buf[0] = '\0';
    if (root != NULL) {
        co_text_json_copy(root, "displayName", buf, size);
        return;
    }
    for (at = at != NULL ? at + sizeof member - 1 : ""; *at != '\0' && *at != '"'; at++) {
        at += *at == '\\' && at[1] != '\0';
        if (n + 1 < size) {
            buf[n++] = *at;
        }
    }
    buf[n] = '\0';
}

/* {"since": 1732990000} as "2024-11-30 18:06:40". */
static void write_time(const json_t *object, char buf[32])
{
    time_t since = (time_t)number_of(object, "since");
    struct tm tm;

    buf[0] = '\0';
    if (since > 0 && gmtime_r(&since, &tm) != NULL) {
        strftime(buf, 32, "%Y-%m-%d %H:%M:%S", &tm);
    }
}

/* Ids are numbers or strings. */
static const char *write_id(const json_t *object, char buf[32])
{
    const json_t *id = json_object_get(object, "id");

    if (!json_is_integer(id)) {
        return text_of(object, "id");
    }
    snprintf(buf, 32, "%" PRId64, (int64_t)json_integer_value(id));
    return buf;
}

static void call_failed(const json_t *job, co_cli_failed_each *each, void *arg)
{
    const char *payload = text_of(job, "payload");
    char name[256];
    char since[32];
    char id[32];

    find_name(payload, name, sizeof name);
    write_time(job, since);
    const struct co_cli_failed failed = {
        .id = write_id(job, id),
        .uuid = text_of(job, "uuid"),
        .connection = text_of(job, "connection"),
        .queue = text_of(job, "queue"),
        .job = name,
        .when = since[0] != '\0' ? since : text_of(job, "failed_at"),
        .why = json_object_get(job, "reason") != NULL ? text_of(job, "reason")
                                                      : text_of(job, "exception"),
        .payload = payload,
        .payload_size = number_of(job, "payload_size"),
    };
    each(arg, &failed);
}

int co_cli_json_failed_each(const char *data, co_cli_failed_each *each, void *arg)
{
    JSON root = read_text(data);
    json_t *jobs = json_object_get(root, "jobs");
    json_t *job;
    size_t i;

    if (!json_is_array(jobs)) {
        return CO_EMALFORMED;
    }
    json_array_foreach(jobs, i, job)
    {
        call_failed(job, each, arg);
    }
    return (int)json_array_size(jobs);
}

int co_cli_json_failed_one(const char *data, co_cli_failed_each *each, void *arg)
{
    JSON root = read_text(data);

    if (!json_is_object(root)) {
        return CO_EMALFORMED;
    }
    call_failed(root, each, arg);
    return 1;
}

/* ---- what the agent remembers ---- */

#define COPY(object, thing, member) \
    co_text_json_copy(object, #member, (thing)->member, sizeof(thing)->member)

static void read_exit(const json_t *object, void *at)
{
    struct co_report_exit *exit = at;

    *exit = (struct co_report_exit){
        .id = (int64_t)number_of(object, "id"),
        .at = (co_unix)number_of(object, "at"),
        .worker = (uint32_t)number_of(object, "worker"),
        .pid = (int32_t)number_of(object, "pid"),
        .generation = (uint32_t)number_of(object, "generation"),
        .rss_bytes = number_of(object, "rss_bytes"),
    };
    COPY(object, exit, pool);
    COPY(object, exit, reason);
    COPY(object, exit, status);
    COPY(object, exit, queue);
    COPY(object, exit, job);
    COPY(object, exit, job_id);
    COPY(object, exit, uuid);
    COPY(object, exit, cause);
}

static void read_slow(const json_t *object, void *at)
{
    struct co_report_slow *slow = at;

    *slow = (struct co_report_slow){
        .id = (int64_t)number_of(object, "id"),
        .at = (co_unix)number_of(object, "at"),
        .worker = (uint32_t)number_of(object, "worker"),
        .seconds = (uint32_t)number_of(object, "seconds"),
    };
    COPY(object, slow, pool);
    COPY(object, slow, job);
    COPY(object, slow, stack);
}

static void read_minute(const json_t *object, void *at)
{
    struct co_report_minute *minute = at;

    *minute = (struct co_report_minute){
        .minute = (co_unix)number_of(object, "minute"),
        .done = number_of(object, "done"),
        .failed = number_of(object, "failed"),
        .released = number_of(object, "released"),
        .crashed = number_of(object, "crashed"),
        .timeouts = number_of(object, "timeouts"),
        .run_sum_us = number_of(object, "run_sum_us"),
        .run_max_us = number_of(object, "run_max_us"),
        .wait_sum_us = number_of(object, "wait_sum_us"),
    };
    COPY(object, minute, pool);
    COPY(object, minute, connection);
    COPY(object, minute, queue);
    COPY(object, minute, job);
}

/* Rows of `size` bytes each. */
static int read_rows(const char *data, const char *member,
                     void (*read)(const json_t *object, void *at), void *rows, size_t size,
                     uint32_t max)
{
    JSON root = read_text(data);
    const json_t *list = json_object_get(root, member);
    size_t n = json_array_size(list);

    if (!json_is_array(list)) {
        return CO_EMALFORMED;
    }
    n = n < max ? n : max;
    for (size_t i = 0; i < n; i++) {
        read(json_array_get(list, i), (char *)rows + i * size);
    }
    return (int)n;
}

int co_cli_json_exits(const char *data, struct co_report_exit *ret_list, uint32_t max)
{
    return read_rows(data, "exits", read_exit, ret_list, sizeof *ret_list, max);
}

int co_cli_json_slow(const char *data, struct co_report_slow *ret_list, uint32_t max)
{
    return read_rows(data, "slow", read_slow, ret_list, sizeof *ret_list, max);
}

int co_cli_json_minutes(const char *data, struct co_report_minute *ret_list, uint32_t max)
{
    return read_rows(data, "minutes", read_minute, ret_list, sizeof *ret_list, max);
}

int co_cli_json_frames(const char *data, uint64_t *ret_pid, co_cli_frame_each *each, void *arg)
{
    JSON root = read_text(data);
    json_t *frames = json_object_get(root, "frames");
    json_t *frame;
    size_t i;

    if (!json_is_array(frames)) {
        return CO_EMALFORMED;
    }
    *ret_pid = number_of(root, "pid");
    json_array_foreach(frames, i, frame)
    {
        each(arg, (uint32_t)i, text_of(frame, "function"), text_of(frame, "file"),
             number_of(frame, "line"));
    }
    return (int)json_array_size(frames);
}

int co_cli_json_config_each(const char *data, co_cli_config_each *each, void *arg)
{
    JSON root = read_text(data);
    json_t *values = json_object_get(root, "values");
    const char *key;
    json_t *value;

    if (!json_is_object(values)) {
        return CO_EMALFORMED;
    }
    json_object_foreach(values, key, value)
    {
        each(arg, key, text_of(value, "value"), text_of(value, "origin"),
             (unsigned)number_of(value, "line"));
    }
    return (int)json_object_size(values);
}

/* ---- doctor ---- */

const char co_cli_php_code[] =
    "$e=[];foreach(array_merge(get_loaded_extensions(),get_loaded_extensions(true))as$n)"
    "{$e[$n]=(string)phpversion($n);}ksort($e,SORT_FLAG_CASE|SORT_STRING);"
    "$o=function_exists('opcache_get_status')?@opcache_get_status(false):false;"
    "$i=ini_get_all(null,false);ksort($i);$s=php_ini_scanned_files();"
    "echo json_encode(['version'=>PHP_VERSION,'sapi'=>PHP_SAPI,'libphp'=>PHP_BINARY,"
    "'zts'=>(bool)PHP_ZTS,'ini_file'=>php_ini_loaded_file()?:null,"
    "'ini_scanned'=>$s?array_map('trim',explode(',',$s)):[],"
    "'pcntl'=>extension_loaded('pcntl'),'opcache'=>(bool)($o?$o['opcache_enabled']:false),"
    "'extensions'=>$e,'ini'=>$i],JSON_INVALID_UTF8_SUBSTITUTE|JSON_UNESCAPED_SLASHES);";

int co_cli_json_php(const char *json, struct co_cli_php *ret_php, struct co_err *err)
{
    JSON root = read_text(json);
    json_t *scanned = json_object_get(root, "ini_scanned");
    const char *first = json_string_value(json_array_get(scanned, 0));
    struct co_cli_php php = {
        .n_ini_scanned = (unsigned)json_array_size(scanned),
        .zts = json_is_true(json_object_get(root, "zts")),
        .pcntl = json_is_true(json_object_get(root, "pcntl")),
        .opcache = json_is_true(json_object_get(root, "opcache")),
    };

    if (!co_text_json_copy(root, "version", php.version, sizeof php.version)) {
        return co_err_set(err, CO_EMALFORMED, "PHP did not describe itself, but wrote: %.200s",
                          json);
    }
    co_text_json_copy(root, "libphp", php.libphp, sizeof php.libphp);
    co_text_json_copy(root, "ini_file", php.ini_file, sizeof php.ini_file);
    snprintf(php.first_scanned, sizeof php.first_scanned, "%s", first != NULL ? first : "");
    *ret_php = php;
    return 0;
}

/* Settings that the command line and the worker set for themselves: no finding. */
static bool set_by_sapi(const char *name)
{
    static const char *const names[] = {"opcache.enable_cli", "opcache.lockfile_path",
                                        "expose_php"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool ours(bool extension, const char *name)
{
    return extension ? strcmp(name, "cohort_worker") == 0 : set_by_sapi(name);
}

static const char *value_text(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return value == NULL ? NULL : json_is_string(value) ? json_string_value(value) : "";
}

static int compare(const json_t *worker, const json_t *cli, bool extension, co_cli_difference *each,
                   void *arg)
{
    int found = 0;
    const char *name;
    json_t *value;

    /* Absent in the worker first: those are what an application misses. */
    json_object_foreach((json_t *)cli, name, value)
    {
        if (json_object_get(worker, name) == NULL && !ours(extension, name)) {
            each(arg, extension, name, NULL, value_text(cli, name));
            found++;
        }
    }
    json_object_foreach((json_t *)worker, name, value)
    {
        const char *mine = value_text(worker, name);
        const char *theirs = value_text(cli, name);
        if (!ours(extension, name) && (theirs == NULL || strcmp(mine, theirs) != 0)) {
            each(arg, extension, name, mine, theirs);
            found++;
        }
    }
    return found;
}

int co_cli_json_compare(const char *worker, const char *cli, co_cli_difference *each, void *arg)
{
    JSON a = read_text(worker);
    JSON b = read_text(cli);

    if (a == NULL || b == NULL) {
        return CO_EMALFORMED;
    }
    return compare(json_object_get(a, "extensions"), json_object_get(b, "extensions"), true, each,
                   arg) +
           compare(json_object_get(a, "ini"), json_object_get(b, "ini"), false, each, arg);
}

int co_cli_json_texts(const char *json, const char *object, const char *member,
                      co_cli_text_each *each, void *arg)
{
    JSON root = read_text(json);
    const json_t *at = object != NULL ? json_object_get(root, object) : root;
    json_t *texts = json_object_get(at, member);
    json_t *text;
    size_t i;

    json_array_foreach(texts, i, text)
    {
        if (json_is_string(text)) {
            each(arg, json_string_value(text));
        }
    }
    return (int)json_array_size(texts);
}

int co_cli_json_unserved(const char *json, co_cli_unserved_each *each, void *arg)
{
    JSON root = read_text(json);
    json_t *list = json_object_get(root, "unserved");
    json_t *queue;
    size_t i;

    json_array_foreach(list, i, queue)
    {
        each(arg, text_of(queue, "connection"), text_of(queue, "queue"), number_of(queue, "ready"),
             number_of(queue, "delayed"));
    }
    return (int)json_array_size(list);
}

static void add_difference(void *arg, bool extension, const char *name, const char *worker,
                           const char *cli)
{
    json_t *entry = json_pack("{s:s,s:s,s:s?,s:s?}", "kind", extension ? "extension" : "ini",
                              "name", name, "libphp", worker, "php", cli);
    json_array_append_new(arg, entry);
}

static json_t *text_array(const char *const *texts, size_t n)
{
    json_t *array = json_array();

    for (size_t i = 0; i < n; i++) {
        json_array_append_new(array, co_text_json(texts[i]));
    }
    return array;
}

static json_t *text_or_null(const char *json)
{
    json_t *value = read_text(json);
    return value != NULL ? value : json_null();
}

char *co_cli_json_doctor(const struct co_cli_doctor *doctor)
{
    json_t *differences = json_array();

    if (doctor->worker != NULL && doctor->cli != NULL) {
        co_cli_json_compare(doctor->worker, doctor->cli, add_difference, differences);
    }
    return finish(json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "attention",
                            text_array(doctor->attention, doctor->n_attention), "notes",
                            text_array(doctor->notes, doctor->n_notes), "differences", differences,
                            "libphp", text_or_null(doctor->worker), "php",
                            text_or_null(doctor->cli), "agent", text_or_null(doctor->agent)));
}
