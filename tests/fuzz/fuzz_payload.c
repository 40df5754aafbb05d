/* The payload scanner against a JSON library: both must accept the same bytes and find the same
 * members, except where the library is stricter about numbers or looser about depth. */

#include <jansson.h>
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

static void same_text(const json_t *root, const char *member, const char *text)
{
    const json_t *value = json_object_get(root, member);

    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value)) {
        require(text[0] == '\0');
    } else if (json_string_length(value) < 500) {
        require(strcmp(json_string_value(value), text) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char uuid[512];
    char name[512];
    char tiny[8];
    struct co_err err = {0};
    json_error_t why;
    int code = co_payload_check(data, size, uuid, sizeof uuid, name, sizeof name, &err);
    json_t *root = json_loadb((const char *)data, size,
                              JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL | JSON_DECODE_ANY, &why);

    require(code == co_payload_check(data, size, tiny, sizeof tiny, tiny, sizeof tiny, &err));
    if (code == 0 && root == NULL) {
        require(json_error_code(&why) == json_error_numeric_overflow);
    } else if (code == 0) {
        require(json_is_string(json_object_get(root, "job")));
        same_text(root, "uuid", uuid);
        same_text(root, "displayName", name);
    } else {
        require(root == NULL || !json_is_string(json_object_get(root, "job")) ||
                strstr(err.msg, "deeper") != NULL);
    }
    json_decref(root);
    return 0;
}
