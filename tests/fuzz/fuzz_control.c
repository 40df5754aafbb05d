/* Any bytes as each of the control protocol's messages. The first byte chooses which. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/control.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

/* What was read can be written and is then read alike. */
static void fuzz_request(const char *json, size_t size)
{
    struct co_control_request request;
    struct co_control_request again;
    char *text;

    if (co_control_request_read(json, size, &request, NULL) < 0) {
        require(request.args == NULL);
        return;
    }
    text = co_control_request_write(request.id, request.op, request.args);
    require(text != NULL);
    require(co_control_request_read(text, strlen(text), &again, NULL) == 0);
    require(strcmp(request.id, again.id) == 0 && strcmp(request.op, again.op) == 0);
    require(strcmp(request.args, again.args) == 0);
    free(text);
    co_control_request_done(&again);
    co_control_request_done(&request);
}

static void fuzz_view(const char *json, size_t size)
{
    static struct co_view view;
    static struct co_view back;
    char *text;

    if (co_view_from_json(json, size, &view, NULL) < 0) {
        return;
    }
    text = co_view_to_json(&view, true, true);
    require(text != NULL);
    require(co_view_from_json(text, strlen(text), &back, NULL) == 0);
    free(text);
}

static void fuzz_members(const char *json, size_t size)
{
    char *copy = malloc(size + 1);
    char buf[16];

    memcpy(copy, json, size);
    copy[size] = '\0';
    if (co_json_get_string(copy, "a", buf, sizeof buf)) {
        require(strlen(buf) < sizeof buf);
    }
    (void)co_json_get_bool(copy, "a", false);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct co_app_info info;
    const char *json = (const char *)data + 1;

    if (size == 0) {
        return 0;
    }
    size--;
    switch (data[0] % 4) {
    case 0:
        fuzz_request(json, size);
        break;
    case 1:
        fuzz_view(json, size);
        break;
    case 2:
        fuzz_members(json, size);
        break;
    default:
        (void)co_app_info_read(json, size, &info, NULL);
    }
    return 0;
}
