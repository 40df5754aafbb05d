#include "proto/config_types.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/units.h"

#define DURATION_MAX UINT64_C(31536000000) /* A year: sums of a few never wrap. */

static bool has_control(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        if (*p < 0x20 || *p == 0x7f) {
            return true;
        }
    }
    return false;
}

/* Copy text into a field of type->size. */
static int store(const struct co_config_type *type, const char *text, void *into,
                 struct co_err *err)
{
    size_t size = strlen(text);

    if (size >= type->size) {
        return co_err_set(err, CO_ECONFIG, "is %zu bytes long: the most is %zu", size,
                          type->size - 1);
    }
    memcpy(into, text, size + 1);
    return 0;
}

static void show(const char *text, char *buf, size_t size)
{
    snprintf(buf, size, "%s", text);
}

/* ---- text ---- */

int co_config_types_read_text(const struct co_config_type *type, const char *text, bool plain,
                              void *into, struct co_err *err)
{
    (void)plain;
    if (text[0] == '\0') {
        return co_err_set(err, CO_ECONFIG, "is empty: give it a value or remove the key");
    }
    if (has_control(text)) {
        return co_err_set(err, CO_ECONFIG, "holds a line break or control character: remove it");
    }
    return store(type, text, into, err);
}

void co_config_types_write_text(const struct co_config_type *type, const void *from, char *buf,
                                size_t size)
{
    (void)type;
    show(from, buf, size);
}

int co_config_types_read_path(const struct co_config_type *type, const char *text, bool plain,
                              void *into, struct co_err *err)
{
    if (text[0] == '~' && (text[1] == '\0' || text[1] == '/')) {
        return co_err_set(err, CO_ECONFIG,
                          "\"%.80s\" begins with ~, which only a shell expands: "
                          "write the whole path",
                          text);
    }
    return co_config_types_read_text(type, text, plain, into, err);
}

void co_config_types_write_path(const struct co_config_type *type, const void *from, char *buf,
                                size_t size)
{
    (void)type;
    show(from, buf, size);
}

int co_config_types_read_http(const struct co_config_type *type, const char *text, bool plain,
                              void *into, struct co_err *err)
{
    const char *colon = strrchr(text, ':');
    bool bracketed = colon != NULL && text[0] == '[' && colon > text + 2 && colon[-1] == ']';
    uint64_t port = 0;

    (void)plain;
    if (strcmp(text, "off") == 0) {
        return store(type, text, into, err);
    }
    if (colon == NULL || colon == text || has_control(text) || strchr(text, ' ') != NULL ||
        (!bracketed && strchr(text, ':') != colon)) {
        return co_err_set(err, CO_ECONFIG,
                          "\"%.80s\" is no address: write HOST:PORT, such as 127.0.0.1:9090 or "
                          "[::1]:9090, or off",
                          text);
    }
    if (co_units_count(colon + 1, 65535, &port, err) < 0) {
        return co_err_set(err, CO_ECONFIG,
                          "\"%.80s\" has no port from 0 to 65535 after its colon: write HOST:PORT, "
                          "such as 127.0.0.1:9090",
                          text);
    }
    return store(type, text, into, err);
}

void co_config_types_write_http(const struct co_config_type *type, const void *from, char *buf,
                                size_t size)
{
    (void)type;
    show(from, buf, size);
}

int co_config_types_read_queue(const struct co_config_type *type, const char *text, bool plain,
                               void *into, struct co_err *err)
{
    size_t size = strlen(text);

    if (size > 0 && (text[0] == ',' || text[size - 1] == ',' || strstr(text, ",,") != NULL)) {
        return co_err_set(err, CO_ECONFIG,
                          "\"%.80s\" has an empty entry: write names with one comma between them",
                          text);
    }
    if (strstr(text, ", ") != NULL || strstr(text, " ,") != NULL || text[0] == ' ' ||
        (size > 0 && text[size - 1] == ' ')) {
        return co_err_set(err, CO_ECONFIG,
                          "\"%.80s\" has a space beside a name, which Laravel takes for a part of "
                          "it: write high,default",
                          text);
    }
    return co_config_types_read_text(type, text, plain, into, err);
}

void co_config_types_write_queue(const struct co_config_type *type, const void *from, char *buf,
                                 size_t size)
{
    (void)type;
    show(from, buf, size);
}

/* ---- numbers ---- */

static int check_range(uint64_t value, uint64_t min, uint64_t max, void (*write)(uint64_t, char *),
                       const char *text, struct co_err *err)
{
    char bound[CO_UNITS_TEXT_SIZE];

    if (value < min) {
        write(min, bound);
        return co_err_set(err, CO_ECONFIG, "\"%.60s\" is too small: the least is %s", text, bound);
    }
    if (value > max) {
        write(max, bound);
        return co_err_set(err, CO_ECONFIG, "\"%.60s\" is too large: the most is %s", text, bound);
    }
    return 0;
}

static bool is_plain(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

/* A number without unit, where a flag may give one: `factor` is its unit. */
static int read_plain(const char *text, uint64_t factor, uint64_t *ret, struct co_err *err)
{
    uint64_t value = 0;
    int code = co_units_count(text, INT64_MAX / factor, &value, err);

    if (code == 0) {
        *ret = value * factor;
    }
    return code;
}

static void write_ms(uint64_t value, char *buf)
{
    co_units_duration_write(value, buf);
}

static void write_bytes(uint64_t value, char *buf)
{
    co_units_size_write(value, buf);
}

static int read_duration(const struct co_config_type *type, const char *text, bool plain,
                         co_ms *ret, struct co_err *err)
{
    uint64_t value = 0;
    int code = plain && is_plain(text) ? read_plain(text, 1000, &value, err)
                                       : co_units_duration(text, &value, err);

    code = code < 0 ? code
                    : check_range(value, type->min, type->max == 0 ? DURATION_MAX : type->max,
                                  write_ms, text, err);
    if (code == 0) {
        *ret = value;
    }
    return code;
}

int co_config_types_read_ms(const struct co_config_type *type, const char *text, bool plain,
                            void *into, struct co_err *err)
{
    return read_duration(type, text, plain, into, err);
}

void co_config_types_write_ms(const struct co_config_type *type, const void *from, char *buf,
                              size_t size)
{
    (void)type;
    assert(size >= CO_UNITS_TEXT_SIZE);
    co_units_duration_write(*(const co_ms *)from, buf);
}

int co_config_types_read_seconds(const struct co_config_type *type, const char *text, bool plain,
                                 void *into, struct co_err *err)
{
    co_ms value = 0;
    int code = read_duration(type, text, plain, &value, err);

    if (code == 0 && value % 1000 != 0) {
        return co_err_set(err, CO_ECONFIG,
                          "\"%.60s\" is no whole number of seconds, which is all Laravel knows: "
                          "write %" PRIu64 "s",
                          text, value / 1000 + 1);
    }
    if (code == 0) {
        *(co_ms *)into = value;
    }
    return code;
}

void co_config_types_write_seconds(const struct co_config_type *type, const void *from, char *buf,
                                   size_t size)
{
    co_config_types_write_ms(type, from, buf, size);
}

int co_config_types_read_bytes(const struct co_config_type *type, const char *text, bool plain,
                               void *into, struct co_err *err)
{
    uint64_t value = 0;
    int code = plain && is_plain(text) ? read_plain(text, 1 << 20, &value, err)
                                       : co_units_size(text, &value, err);

    code = code < 0 ? code
                    : check_range(value, type->min, type->max == 0 ? INT64_MAX : type->max,
                                  write_bytes, text, err);
    if (code == 0) {
        *(uint64_t *)into = value;
    }
    return code;
}

void co_config_types_write_bytes(const struct co_config_type *type, const void *from, char *buf,
                                 size_t size)
{
    (void)type;
    assert(size >= CO_UNITS_TEXT_SIZE);
    co_units_size_write(*(const uint64_t *)from, buf);
}

int co_config_types_read_count(const struct co_config_type *type, const char *text, bool plain,
                               void *into, struct co_err *err)
{
    uint64_t value = 0;
    int code;

    (void)plain;
    if (type->zero_word != NULL && strcmp(text, type->zero_word) == 0) {
        *(uint32_t *)into = 0;
        return 0;
    }
    code = co_units_count(text, type->max, &value, err);
    if (code == 0 && value < type->min) {
        return co_err_set(err, CO_ECONFIG,
                          "\"%.60s\" is too small: write %" PRIu64 " to %" PRIu64 "%s%s", text,
                          type->min, type->max, type->zero_word == NULL ? "" : ", or ",
                          type->zero_word == NULL ? "" : type->zero_word);
    }
    if (code == 0) {
        *(uint32_t *)into = (uint32_t)value;
    }
    return code;
}

void co_config_types_write_count(const struct co_config_type *type, const void *from, char *buf,
                                 size_t size)
{
    uint32_t value = *(const uint32_t *)from;

    if (value == 0 && type->zero_word != NULL) {
        show(type->zero_word, buf, size);
        return;
    }
    snprintf(buf, size, "%" PRIu32, value);
}

/* ---- backoff: one duration or a list, in whole seconds as Laravel has it ---- */

static int read_backoff_item(const char *item, bool plain, uint64_t *ret_seconds,
                             struct co_err *err)
{
    static const struct co_config_type any = {.max = 0};
    co_ms value = 0;
    int code = co_config_types_read_seconds(&any, item, plain, &value, err);

    if (code == 0) {
        *ret_seconds = value / 1000;
    }
    return code;
}

int co_config_types_read_backoff(const struct co_config_type *type, const char *text, bool plain,
                                 void *into, struct co_err *err)
{
    bool list = strchr(text, ',') != NULL; /* "1,5,10" is Laravel's own way to write it. */
    char out[CO_TEXT_SIZE] = "";
    size_t used = 0;

    for (const char *at = text;; at++) {
        char item[32];
        uint64_t seconds = 0;
        size_t size;

        at += strspn(at, " ");
        size = strcspn(at, ", ");
        if (size >= sizeof item || used + 32 > sizeof out) {
            return co_err_set(err, CO_ECONFIG, "\"%.60s\" is too long for a list of durations",
                              text);
        }
        memcpy(item, at, size);
        item[size] = '\0';
        if (read_backoff_item(item, plain || list, &seconds, err) < 0) {
            return CO_ECONFIG;
        }
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%" PRIu64, used > 0 ? "," : "",
                                 seconds);
        at += size;
        at += strspn(at, " ");
        if (*at == '\0') {
            return store(type, out, into, err);
        }
        if (*at != ',') {
            return co_err_set(err, CO_ECONFIG,
                              "\"%.60s\" is no list of durations: write 1s, 5s, 10s", text);
        }
    }
}

/* "1,5,10" is stored and "1s,5s,10s" is how a file has it. */
void co_config_types_write_backoff(const struct co_config_type *type, const void *from, char *buf,
                                   size_t size)
{
    const char *text = from;
    size_t used = 0;

    (void)type;
    for (; *text != '\0' && used + 3 < size; text++) {
        if (*text == ',') {
            buf[used++] = 's';
        }
        buf[used++] = *text;
    }
    buf[used++] = 's';
    buf[used] = '\0';
}

/* ---- words ---- */

int co_config_types_read_flag(const struct co_config_type *type, const char *text, bool plain,
                              void *into, struct co_err *err)
{
    (void)type;
    (void)plain;
    return co_units_bool(text, into, err);
}

void co_config_types_write_flag(const struct co_config_type *type, const void *from, char *buf,
                                size_t size)
{
    (void)type;
    show(*(const bool *)from ? "true" : "false", buf, size);
}

static int find_word(const struct co_config_type *type, const char *text, uint32_t *ret_index,
                     struct co_err *err)
{
    char known[200] = "";
    size_t used = 0;

    for (uint32_t i = 0; type->words[i] != NULL; i++) {
        if (strcmp(type->words[i], text) == 0) {
            *ret_index = i;
            return 0;
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "",
                                 type->words[i]);
        assert(used < sizeof known);
    }
    for (size_t i = 0; type->later != NULL && type->later[i] != NULL; i++) {
        if (strcmp(type->later[i], text) == 0) {
            return co_err_set(err, CO_ECONFIG, "\"%s\" is not supported: %s", text,
                              type->later_why);
        }
    }
    return co_err_set(err, CO_ECONFIG, "\"%.60s\" is not known here: write %s%s", text,
                      type->words[1] == NULL ? "" : "one of ", known);
}

int co_config_types_read_word(const struct co_config_type *type, const char *text, bool plain,
                              void *into, struct co_err *err)
{
    uint32_t index = 0;
    int code = find_word(type, text, &index, err);

    (void)plain;
    if (code == 0) {
        memcpy(into, &index, sizeof index);
    }
    return code;
}

void co_config_types_write_word(const struct co_config_type *type, const void *from, char *buf,
                                size_t size)
{
    uint32_t index;

    memcpy(&index, from, sizeof index);
    show(type->words[index], buf, size);
}

int co_config_types_read_fixed(const struct co_config_type *type, const char *text, bool plain,
                               void *into, struct co_err *err)
{
    uint32_t index = 0;

    (void)plain;
    (void)into;
    return find_word(type, text, &index, err);
}

void co_config_types_write_fixed(const struct co_config_type *type, const void *from, char *buf,
                                 size_t size)
{
    (void)from;
    show(type->words[0], buf, size);
}
