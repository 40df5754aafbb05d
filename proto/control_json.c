#include "proto/control.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text_json.h"

#define READ_FLAGS (JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL)

static void json_free(json_t **json)
{
    json_decref(*json);
}

static void text_free(char **text)
{
    free(*text);
}

/* ---- requests ---- */

static int check_version(const json_t *root, struct co_err *err)
{
    const json_t *version = json_object_get(root, "v");

    if (!json_is_integer(version)) {
        return co_err_set(err, CO_EMALFORMED, "the request has no version: it must carry \"v\":%d",
                          CO_CONTROL_VERSION);
    }
    if (json_integer_value(version) != CO_CONTROL_VERSION) {
        return co_err_set(err, CO_EVERSION,
                          "the request speaks version %" PRId64
                          " of the control protocol, this agent version %d: use the cohort command "
                          "that came with the agent",
                          (int64_t)json_integer_value(version), CO_CONTROL_VERSION);
    }
    return 0;
}

static int read_args(const json_t *root, struct co_control_request *request, struct co_err *err)
{
    const json_t *args = json_object_get(root, "args");

    if (args != NULL && !json_is_null(args) && !json_is_object(args)) {
        return co_err_set(err, CO_EMALFORMED, "\"args\" of the request is no object");
    }
    request->args = json_is_object(args) ? json_dumps(args, JSON_COMPACT) : strdup("{}");
    if (request->args == NULL) {
        return co_err_set(err, CO_ENOMEM, "no memory for the arguments of a request");
    }
    return 0;
}

static int read_request(const json_t *root, struct co_control_request *request, struct co_err *err)
{
    int code;

    if (!json_is_object(root)) {
        return co_err_set(err, CO_EMALFORMED, "the request is no JSON object");
    }
    if (!co_text_json_copy(root, "id", request->id, sizeof request->id)) {
        request->id[0] = '\0';
        return co_err_set(err, CO_EMALFORMED,
                          "the request has no \"id\": a string of at most %zu bytes",
                          sizeof request->id - 1);
    }
    code = check_version(root, err);
    if (code < 0) {
        return code;
    }
    if (!co_text_json_copy(root, "op", request->op, sizeof request->op)) {
        return co_err_set(err, CO_EMALFORMED, "the request has no \"op\", or one no agent knows");
    }
    return read_args(root, request, err);
}

int co_control_request_read(const char *json, size_t size, struct co_control_request *ret,
                            struct co_err *err)
{
    struct co_control_request request = {0};
    __attribute__((cleanup(json_free))) json_t *root = NULL;
    json_error_t why;
    int code;

    memset(ret, 0, sizeof *ret);
    if (size > CO_CONTROL_MSG_MAX) {
        return co_err_set(err, CO_ETOOBIG, "a request of %zu bytes: the most is %u", size,
                          CO_CONTROL_MSG_MAX);
    }
    root = json_loadb(json, size, READ_FLAGS, &why);
    if (root == NULL) {
        return co_err_set(err, CO_EMALFORMED, "the request is not valid JSON at byte %d: %s",
                          why.position, why.text);
    }
    code = read_request(root, &request, err);
    if (code < 0) {
        memcpy(ret->id, request.id, sizeof ret->id);
        return code;
    }
    *ret = request;
    return 0;
}

void co_control_request_done(struct co_control_request *request)
{
    free(request->args);
    request->args = NULL;
}

/* ---- writing: the members that hold JSON text go in verbatim ---- */

char *co_control_request_write(const char *id, const char *op, const char *args)
{
    __attribute__((cleanup(text_free))) char *id_json = co_text_json_quote(id);
    __attribute__((cleanup(text_free))) char *op_json = co_text_json_quote(op);
    char *text = NULL;

    if (id_json == NULL || op_json == NULL ||
        asprintf(&text, "{\"v\":%d,\"id\":%s,\"op\":%s,\"args\":%s}", CO_CONTROL_VERSION, id_json,
                 op_json, args == NULL ? "{}" : args) < 0) {
        return NULL;
    }
    return text;
}

char *co_control_answer(const char *id, const char *data)
{
    __attribute__((cleanup(text_free))) char *id_json = co_text_json_quote(id);
    char *text = NULL;

    if (id_json == NULL || asprintf(&text, "{\"v\":%d,\"id\":%s,\"ok\":true,\"data\":%s}",
                                    CO_CONTROL_VERSION, id_json, data == NULL ? "{}" : data) < 0) {
        return NULL;
    }
    return text;
}

char *co_control_error(const char *id, const char *code, const char *message)
{
    __attribute__((cleanup(text_free))) char *id_json = co_text_json_quote(id);
    __attribute__((cleanup(text_free))) char *code_json = co_text_json_quote(code);
    __attribute__((cleanup(text_free))) char *message_json = co_text_json_quote(message);
    char *text = NULL;

    if (id_json == NULL || code_json == NULL || message_json == NULL ||
        asprintf(&text, "{\"v\":%d,\"id\":%s,\"ok\":false,\"code\":%s,\"error\":%s}",
                 CO_CONTROL_VERSION, id_json, code_json, message_json) < 0) {
        return NULL;
    }
    return text;
}

/* ---- members of small objects ---- */

/* A number as text, or NULL; buf is where it is written. */
static const char *number_text(const json_t *value, char *buf, size_t size)
{
    if (json_is_integer(value)) {
        snprintf(buf, size, "%" PRId64, (int64_t)json_integer_value(value));
        return buf;
    }
    if (json_is_real(value)) {
        snprintf(buf, size, "%.17g", json_real_value(value));
        return buf;
    }
    return NULL;
}

bool co_json_get_string(const char *json, const char *member, char *buf, size_t size)
{
    __attribute__((cleanup(json_free))) json_t *root = json_loads(json, READ_FLAGS, NULL);
    const json_t *value = json_object_get(root, member);
    const char *text = json_string_value(value);
    char number[40];
    size_t length;

    if (text == NULL) {
        text = number_text(value, number, sizeof number);
    }
    if (text == NULL) {
        return false;
    }
    length = json_is_string(value) ? json_string_length(value) : strlen(text);
    /* A NUL inside is refused with what does not fit: either would hand on half of the text. */
    if (length >= size || strlen(text) != length) {
        return false;
    }
    memcpy(buf, text, length + 1);
    return true;
}

bool co_json_get_bool(const char *json, const char *member, bool fallback)
{
    __attribute__((cleanup(json_free))) json_t *root = json_loads(json, READ_FLAGS, NULL);
    const json_t *value = json_object_get(root, member);

    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

bool co_json_has(const char *json, const char *member, const char *text)
{
    json_t *root = json_loads(json, 0, NULL);
    const json_t *list = json_object_get(root, member);
    bool found = false;

    for (size_t i = 0; !found && i < json_array_size(list); i++) {
        const char *item = json_string_value(json_array_get(list, i));
        found = item != NULL && strcmp(item, text) == 0;
    }
    json_decref(root);
    return found;
}

bool co_json_first(const char *json, const char *member, char *buf, size_t size)
{
    json_t *root = json_loads(json, 0, NULL);
    const char *item = json_string_value(json_array_get(json_object_get(root, member), 0));
    bool found = item != NULL;

    if (found) {
        snprintf(buf, size, "%s", item);
    }
    json_decref(root);
    return found;
}

char *co_json_quote(const char *text)
{
    return co_text_json_quote(text);
}
