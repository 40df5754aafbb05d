#include "proto/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit durations[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000},
};

static const struct unit sizes[] = {
    {"Ki", UINT64_C(1) << 10},
    {"KiB", UINT64_C(1) << 10},
    {"Mi", UINT64_C(1) << 20},
    {"MiB", UINT64_C(1) << 20},
    {"Gi", UINT64_C(1) << 30},
    {"GiB", UINT64_C(1) << 30},
    {"k", 1000},
    {"kB", 1000},
    {"M", 1000000},
    {"MB", 1000000},
    {"G", 1000000000},
    {"GB", 1000000000},
    {"B", 1},
};

#define COUNT_OF(table) (sizeof(table) / sizeof(table)[0])

/* What one kind of value allows, for the shared reader and its messages. */
struct kind {
    const char *noun;
    const char *examples;
    const struct unit *units;
    size_t n_units;
    const char *usual; /* What a number without a unit was probably meant to be. */
    const char *usual_name;
    const char *all;
};

static const struct kind duration_kind = {
    "duration", "250ms, 30s, 5m, 2h or 1d", durations, COUNT_OF(durations), "s",
    "seconds",  "ms, s, m, h, d",
};

static const struct kind size_kind = {
    "size",
    "512Ki, 128Mi, 1Gi, or decimal 100k, 10M, 1G",
    sizes,
    COUNT_OF(sizes),
    "Mi",
    "mebibytes",
    "Ki, Mi, Gi, k, M, G",
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Read the digits at text; returns how many. SIZE_MAX when the number passes 64 bits. */
static size_t digits(const char *text, uint64_t *ret_value)
{
    uint64_t value = 0;
    size_t n = 0;

    for (; is_digit(text[n]); n++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[n] - '0'), &value)) {
            return SIZE_MAX;
        }
    }
    *ret_value = value;
    return n;
}

/* Digits with a zero before them: YAML 1.1 and C read octal there, people read decimal. */
static bool has_leading_zero(const char *text)
{
    return text[0] == '0' && is_digit(text[1]);
}

static int refuse_zero(const char *text, struct co_err *err)
{
    return co_err_set(err, CO_ECONFIG,
                      "\"%.60s\" begins with a zero, which some readers take for octal: write it "
                      "without",
                      text);
}

static int refuse_shape(const char *text, const struct kind *kind, struct co_err *err)
{
    if (text[0] == '\0') {
        return co_err_set(err, CO_ECONFIG, "is empty: write a %s such as %s", kind->noun,
                          kind->examples);
    }
    if (text[0] == '-') {
        return co_err_set(err, CO_ECONFIG, "\"%.60s\" is negative: a %s is 0 or more, such as %s",
                          text, kind->noun, kind->examples);
    }
    return co_err_set(err, CO_ECONFIG,
                      "\"%.60s\" is no %s: write one whole number and one unit, such as %s", text,
                      kind->noun, kind->examples);
}

static const struct unit *unit_find(const struct kind *kind, const char *name)
{
    for (size_t i = 0; i < kind->n_units; i++) {
        if (strcmp(kind->units[i].name, name) == 0) {
            return &kind->units[i];
        }
    }
    return NULL;
}

static int read_quantity(const char *text, const struct kind *kind, uint64_t *ret_value,
                         struct co_err *err)
{
    const struct unit *unit;
    uint64_t value = 0;
    size_t n = digits(text, &value);

    if (n == 0) {
        return refuse_shape(text, kind, err);
    }
    if (has_leading_zero(text)) {
        return refuse_zero(text, err);
    }
    if (n != SIZE_MAX && text[n] == '\0') {
        if (value == 0) {
            *ret_value = 0;
            return 0;
        }
        return co_err_set(err, CO_ECONFIG,
                          "\"%s\" has no unit: write %s%s if %s are meant (units: %s)", text, text,
                          kind->usual, kind->usual_name, kind->all);
    }
    unit = n == SIZE_MAX ? NULL : unit_find(kind, text + n);
    if (n != SIZE_MAX && unit == NULL) {
        return refuse_shape(text, kind, err);
    }
    /* Half of the range is kept: sums of two values must not wrap, and JSON has signed integers. */
    if (n == SIZE_MAX || __builtin_mul_overflow(value, unit->factor, &value) ||
        value > INT64_MAX / 2) {
        return co_err_set(err, CO_ECONFIG, "\"%.60s\" is too large for a %s", text, kind->noun);
    }
    *ret_value = value;
    return 0;
}

int co_units_duration(const char *text, co_ms *ret_ms, struct co_err *err)
{
    return read_quantity(text, &duration_kind, ret_ms, err);
}

int co_units_size(const char *text, uint64_t *ret_bytes, struct co_err *err)
{
    return read_quantity(text, &size_kind, ret_bytes, err);
}

int co_units_count(const char *text, uint64_t max, uint64_t *ret_count, struct co_err *err)
{
    uint64_t value = 0;
    size_t n = digits(text, &value);

    if (n == 0 && text[0] == '\0') {
        return co_err_set(err, CO_ECONFIG, "is empty: write a whole number, at most %" PRIu64, max);
    }
    if (n == 0 && (text[0] == '-' || text[0] == '+')) {
        return co_err_set(err, CO_ECONFIG,
                          "\"%.60s\" has a sign: write a whole number from 0 to %" PRIu64
                          " without one",
                          text, max);
    }
    if (n != SIZE_MAX && (n == 0 || text[n] != '\0')) {
        return co_err_set(err, CO_ECONFIG,
                          "\"%.60s\" is no whole number: write digits alone, without unit, point "
                          "or separator",
                          text);
    }
    if (has_leading_zero(text)) {
        return refuse_zero(text, err);
    }
    if (n == SIZE_MAX || value > max) {
        return co_err_set(err, CO_ECONFIG, "\"%.60s\" is too large: the most is %" PRIu64, text,
                          max);
    }
    *ret_count = value;
    return 0;
}

int co_units_bool(const char *text, bool *ret_bool, struct co_err *err)
{
    static const char *const yes[] = {"yes", "on", "y", "1"};

    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        *ret_bool = text[0] == 't';
        return 0;
    }
    for (size_t i = 0; i < COUNT_OF(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0) {
            return co_err_set(err, CO_ECONFIG, "\"%s\" is neither true nor false: write true",
                              text);
        }
    }
    if (strcasecmp(text, "no") == 0 || strcasecmp(text, "off") == 0 || strcasecmp(text, "n") == 0 ||
        strcmp(text, "0") == 0) {
        return co_err_set(err, CO_ECONFIG, "\"%s\" is neither true nor false: write false", text);
    }
    return co_err_set(err, CO_ECONFIG, "\"%.60s\" is neither true nor false: write one of these",
                      text);
}

void co_units_duration_write(co_ms ms, char buf[CO_UNITS_TEXT_SIZE])
{
    static const struct unit readable[] = {{"h", 3600000}, {"m", 60000}, {"s", 1000}};

    if (ms == 0) {
        snprintf(buf, CO_UNITS_TEXT_SIZE, "0");
        return;
    }
    for (size_t i = 0; i < COUNT_OF(readable); i++) {
        /* 60s and 90s are how people write these, not 1m and 1500ms. */
        if (ms % readable[i].factor == 0 && (ms / readable[i].factor > 1 || i == 2)) {
            snprintf(buf, CO_UNITS_TEXT_SIZE, "%" PRIu64 "%s", ms / readable[i].factor,
                     readable[i].name);
            return;
        }
    }
    snprintf(buf, CO_UNITS_TEXT_SIZE, "%" PRIu64 "ms", ms);
}

void co_units_size_write(uint64_t bytes, char buf[CO_UNITS_TEXT_SIZE])
{
    static const struct unit readable[] = {
        {"Gi", UINT64_C(1) << 30},
        {"Mi", UINT64_C(1) << 20},
        {"Ki", UINT64_C(1) << 10},
        {"G", 1000000000},
        {"M", 1000000},
        {"k", 1000},
    };

    if (bytes == 0) {
        snprintf(buf, CO_UNITS_TEXT_SIZE, "0");
        return;
    }
    for (size_t i = 0; i < COUNT_OF(readable); i++) {
        if (bytes % readable[i].factor == 0) {
            snprintf(buf, CO_UNITS_TEXT_SIZE, "%" PRIu64 "%s", bytes / readable[i].factor,
                     readable[i].name);
            return;
        }
    }
    snprintf(buf, CO_UNITS_TEXT_SIZE, "%" PRIu64 "B", bytes);
}
