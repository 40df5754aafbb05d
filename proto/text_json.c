#include "proto/text_json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/utf8.h"

/* Copy text with what is no UTF-8 replaced; malloc'd. */
static char *clean(const char *text)
{
    size_t size = strlen(text);
    char *copy = malloc(size * 3 + 1);
    char *out = copy;

    for (size_t at = 0; copy != NULL && at < size;) {
        size_t step = co_utf8_step(text + at, size - at);
        memcpy(out, step == 0 ? CO_UTF8_REPLACEMENT : text + at, step == 0 ? 3 : step);
        out += step == 0 ? 3 : step;
        at += step == 0 ? 1 : step;
    }
    if (copy != NULL) {
        *out = '\0';
    }
    return copy;
}

json_t *co_text_json(const char *text)
{
    json_t *value = json_string(text);
    char *copy;

    if (value != NULL) {
        return value;
    }
    copy = clean(text);
    value = copy == NULL ? NULL : json_string(copy);
    free(copy);
    return value;
}

char *co_text_json_quote(const char *text)
{
    json_t *value = co_text_json(text);
    char *quoted = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY);

    json_decref(value);
    return quoted;
}

bool co_text_json_copy(const json_t *object, const char *member, char *buf, size_t size)
{
    const char *text = json_string_value(json_object_get(object, member));
    size_t used = 0;

    assert(size > 0);
    buf[0] = '\0';
    if (text == NULL) {
        return false;
    }
    for (size_t n = strlen(text); used < n;) {
        size_t step = co_utf8_step(text + used, n - used);
        step = step == 0 ? 1 : step;
        if (used + step >= size) {
            break;
        }
        memcpy(buf + used, text + used, step);
        used += step;
    }
    buf[used] = '\0';
    return text[used] == '\0';
}
