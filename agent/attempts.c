#include "agent/attempts.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define NAME "\"attempts\""

static size_t skip_string(const uint8_t *p, size_t at, size_t size)
{
    for (at += 1; at < size && p[at] != '"'; at++) {
        at += p[at] == '\\';
    }
    return at < size ? at + 1 : size;
}

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_space(const uint8_t *p, size_t at, size_t size)
{
    while (at < size && is_space(p[at])) {
        at += 1;
    }
    return at;
}

/* From the first byte of a value to the first one behind it. */
static size_t skip_value(const uint8_t *p, size_t at, size_t size)
{
    uint32_t depth = 0;

    while (at < size) {
        uint8_t c = p[at];
        if (c == '"') {
            at = skip_string(p, at, size);
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}' || c == ']' || is_space(c))) {
            break;
        }
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        at += 1;
    }
    return at;
}

static void read_value(const uint8_t *p, size_t at, size_t end, struct co_attempts *ret)
{
    uint32_t value = 0;

    *ret = (struct co_attempts){.at = at, .size = end - at};
    if (end - at > 9) {
        return;
    }
    for (size_t i = at; i < end; i++) {
        if (p[i] < '0' || p[i] > '9') {
            return;
        }
        value = value * 10 + (uint32_t)(p[i] - '0');
    }
    ret->value = value;
}

void co_attempts_find(const uint8_t *p, size_t size, struct co_attempts *ret)
{
    size_t at = skip_space(p, 0, size);
    bool found = false;

    *ret = (struct co_attempts){.at = size > 0 ? size - 1 : 0};
    if (at < size && p[at] == '{') {
        at = skip_space(p, at + 1, size);
    }
    while (at < size && p[at] == '"') {
        size_t name = at;
        at = skip_string(p, at, size);
        bool ours = at - name == strlen(NAME) && memcmp(p + name, NAME, strlen(NAME)) == 0;
        at = skip_space(p, at, size);
        at = at < size && p[at] == ':' ? skip_space(p, at + 1, size) : at;
        size_t value = at;
        at = skip_value(p, at, size);
        if (ours) { /* The last of two wins, as in PHP. */
            read_value(p, value, at, ret);
            found = true;
        }
        at = skip_space(p, at, size);
        at = at < size && p[at] == ',' ? skip_space(p, at + 1, size) : at;
    }
    if (!found && at < size) {
        ret->at = at; /* The closing brace. */
    }
}

void co_attempts_text(const struct co_attempts *attempts, uint32_t value,
                      char ret_text[CO_ATTEMPTS_TEXT])
{
    snprintf(ret_text, CO_ATTEMPTS_TEXT, "%s%u", attempts->size > 0 ? "" : "," NAME ":", value);
}
