#include "proto/control.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text_json.h"

/* A member that must be whole where it is given: half a path is another path. */
static int read_whole(const json_t *object, const char *member, char *buf, size_t size,
                      struct co_err *err)
{
    if (!co_text_json_copy(object, member, buf, size) &&
        json_is_string(json_object_get(object, member))) {
        return co_err_set(
            err, CO_EMALFORMED,
            "\"%s\" in the application's queue configuration is longer than %zu bytes", member,
            size - 1);
    }
    return 0;
}

/* null is Laravel's "never taken over", 0 here. */
static int read_retry_after(const json_t *object, uint32_t *ret_seconds, struct co_err *err)
{
    const json_t *value = json_object_get(object, "retry_after");
    double seconds = json_number_value(value);

    if (value != NULL && !json_is_null(value) && !json_is_number(value)) {
        return co_err_set(err, CO_EMALFORMED, "\"retry_after\" of the application is no number");
    }
    if (!(seconds >= 0 && seconds <= UINT32_MAX)) {
        return co_err_set(err, CO_EMALFORMED, "\"retry_after\" of the application is %.0f seconds",
                          seconds);
    }
    *ret_seconds = (uint32_t)seconds;
    return 0;
}

static int read_small(const json_t *object, const char *member, uint32_t max, uint32_t *ret,
                      struct co_err *err)
{
    json_int_t value = json_integer_value(json_object_get(object, member));

    if (value < 0 || value > max) {
        return co_err_set(err, CO_EMALFORMED, "\"%s\" of the application's Redis is %lld", member,
                          (long long)value);
    }
    *ret = (uint32_t)value;
    return 0;
}

/* The place goes by the names a database has, so that everything finds it there. */
static void name_place(struct co_app_info_connection *ret)
{
    const struct co_app_redis *redis = &ret->redis;

    if (strcmp(redis->scheme, "unix") == 0) {
        snprintf(ret->database, sizeof ret->database, "redis://%s?%u", redis->path,
                 redis->database);
    } else {
        snprintf(ret->database, sizeof ret->database, "redis%s://%s:%u/%u",
                 strcmp(redis->scheme, "tls") == 0 ? "s" : "", redis->host, redis->port,
                 redis->database);
    }
    snprintf(ret->table, sizeof ret->table, "%.55squeues:", redis->prefix);
}

static int read_redis(const json_t *object, struct co_app_info_connection *ret, struct co_err *err)
{
    struct co_app_redis *redis = &ret->redis;
    int code;

    if (!json_is_object(object)) {
        return 0;
    }
    code = read_whole(object, "scheme", redis->scheme, sizeof redis->scheme, err);
    code = code < 0 ? code : read_whole(object, "host", redis->host, sizeof redis->host, err);
    code = code < 0 ? code : read_whole(object, "path", redis->path, sizeof redis->path, err);
    code = code < 0 ? code : read_small(object, "port", 65535, &redis->port, err);
    code = code < 0 ? code : read_small(object, "database", 1000000, &redis->database, err);
    code = code < 0 ? code
                    : read_whole(object, "username", redis->username, sizeof redis->username, err);
    code = code < 0 ? code
                    : read_whole(object, "password", redis->password, sizeof redis->password, err);
    code = code < 0 ? code : read_whole(object, "prefix", redis->prefix, sizeof redis->prefix, err);
    redis->n_sentinels = (uint32_t)json_array_size(json_object_get(object, "sentinels"));
    redis->migration_batch =
        (int32_t)json_integer_value(json_object_get(object, "migration_batch"));
    if (code == 0) {
        name_place(ret);
    }
    return code;
}

static int read_connection(const json_t *object, struct co_app_info_connection *ret,
                           struct co_err *err)
{
    int code = 0;

    if (!json_is_object(object)) {
        return co_err_set(err, CO_EMALFORMED, "a queue connection of the application is no object");
    }
    code = read_whole(object, "name", ret->name, sizeof ret->name, err);
    if (code == 0 && ret->name[0] == '\0') {
        code = co_err_set(err, CO_EMALFORMED, "a queue connection of the application has no name");
    }
    code = code < 0 ? code : read_whole(object, "driver", ret->driver, sizeof ret->driver, err);
    code =
        code < 0 ? code : read_whole(object, "database", ret->database, sizeof ret->database, err);
    code = code < 0 ? code : read_whole(object, "table", ret->table, sizeof ret->table, err);
    code = code < 0 ? code : read_whole(object, "queue", ret->queue, sizeof ret->queue, err);
    code = code < 0 ? code : read_retry_after(object, &ret->retry_after_s, err);
    co_text_json_copy(object, "refused", ret->refused, sizeof ret->refused);
    co_text_json_copy(object, "synchronous", ret->synchronous, sizeof ret->synchronous);
    ret->plain = json_is_true(json_object_get(object, "plain"));
    return code < 0 ? code : read_redis(json_object_get(object, "redis"), ret, err);
}

static int read_connections(const json_t *list, struct co_app_info *info, struct co_err *err)
{
    size_t n = json_array_size(list);

    if (list != NULL && !json_is_array(list)) {
        return co_err_set(err, CO_EMALFORMED, "\"connections\" of the application is no list");
    }
    if (n > CO_CONNECTIONS_MAX) {
        return co_err_set(err, CO_EFULL,
                          "the application has %zu queue connections, at most %d are supported: "
                          "remove unused ones from config/queue.php",
                          n, CO_CONNECTIONS_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        int code = read_connection(json_array_get(list, i), &info->connections[i], err);
        if (code < 0) {
            return code;
        }
    }
    info->n_connections = (uint32_t)n;
    return 0;
}

static int read_info(const json_t *root, struct co_app_info *info, struct co_err *err)
{
    int code;

    if (!json_is_object(root)) {
        return co_err_set(err, CO_EMALFORMED, "what the application says of itself is no object");
    }
    if (!co_text_json_copy(root, "kind", info->kind, sizeof info->kind)) {
        return co_err_set(err, CO_EMALFORMED, "the application does not say what kind it is");
    }
    co_text_json_copy(root, "version", info->version, sizeof info->version);
    code =
        read_whole(root, "default", info->default_connection, sizeof info->default_connection, err);
    return code < 0 ? code : read_connections(json_object_get(root, "connections"), info, err);
}

int co_app_info_read(const char *json, size_t size, struct co_app_info *ret_info,
                     struct co_err *err)
{
    struct co_app_info *info = calloc(1, sizeof *info);
    json_error_t why;
    json_t *root;
    int code;

    if (info == NULL) {
        return co_err_set(err, CO_ENOMEM, "no memory for the application's configuration");
    }
    root = json_loadb(json, size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
    if (root == NULL) {
        code = co_err_set(err, CO_EMALFORMED,
                          "what the application says of itself is not valid JSON at byte %d: %s",
                          why.position, why.text);
    } else {
        code = read_info(root, info, err);
    }
    if (code == 0) {
        *ret_info = *info;
    }
    json_decref(root);
    free(info);
    return code;
}
