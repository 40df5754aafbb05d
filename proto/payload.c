/* The check every claimed job passes: one pass, no allocation, no number is converted, so that what
 * PHP would read (large integers, \u0000, duplicate members) is accepted and nothing else is. A
 * JSON library builds a tree for each payload, which costs more than all else the agent does for a
 * job; the fuzz target holds this scanner against it. */

#include "proto/control.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/utf8.h"

#define DEPTH_MAX 511 /* As deep as json_decode() goes by default. */
#define KEY_SIZE 16   /* Longer keys are none of ours. */

/* Where a string's decoded text goes; NULL buf: nowhere. */
struct text {
    char *buf;
    size_t size;
    size_t used;
    bool cut;    /* Did not fit. */
    bool opaque; /* Holds a NUL, which a C string cannot show. */
};

struct scan {
    const char *at;
    const char *end;
    const char *begin;
    const char *what; /* What was wrong, once something was. */
    unsigned depth;
    uint8_t objects[DEPTH_MAX / 8 + 1]; /* Bit per open bracket: is it an object? */
};

static bool fail(struct scan *scan, const char *what)
{
    scan->what = what;
    return false;
}

static void skip_space(struct scan *scan)
{
    while (scan->at < scan->end &&
           (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\r' || *scan->at == '\t')) {
        scan->at++;
    }
}

static bool take(struct scan *scan, char c)
{
    if (scan->at < scan->end && *scan->at == c) {
        scan->at++;
        return true;
    }
    return false;
}

static void text_add(struct text *text, const char *bytes, size_t size)
{
    if (text->buf == NULL || text->cut) {
        return;
    }
    if (text->used + size >= text->size) {
        text->cut = true;
        return;
    }
    memcpy(text->buf + text->used, bytes, size);
    text->used += size;
}

static bool hex4(struct scan *scan, unsigned *ret_code)
{
    unsigned code = 0;

    if (scan->end - scan->at < 4) {
        return fail(scan, "\\u wants four hex digits");
    }
    for (int i = 0; i < 4; i++) {
        char c = *scan->at++;
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                                : 16;
        if (digit == 16) {
            return fail(scan, "\\u wants four hex digits");
        }
        code = code << 4 | digit;
    }
    *ret_code = code;
    return true;
}

/* The rest of a \u escape, surrogate pairs joined. */
static bool scan_unicode(struct scan *scan, struct text *text)
{
    char utf8[4];
    unsigned code = 0;
    unsigned low = 0;

    if (!hex4(scan, &code)) {
        return false;
    }
    if (code >= 0xd800 && code <= 0xdfff) {
        if (code >= 0xdc00 || !take(scan, '\\') || !take(scan, 'u') || !hex4(scan, &low) ||
            low < 0xdc00 || low > 0xdfff) {
            return fail(scan, "half of a surrogate pair");
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    text->opaque |= code == 0;
    text_add(text, utf8, co_utf8_put(code, utf8));
    return true;
}

static bool scan_escape(struct scan *scan, struct text *text)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char *found;

    if (take(scan, 'u')) {
        return scan_unicode(scan, text);
    }
    found = scan->at < scan->end ? memchr(from, *scan->at, sizeof from - 1) : NULL;
    if (found == NULL) {
        return fail(scan, "unknown escape in a string");
    }
    scan->at++;
    text_add(text, &to[found - from], 1);
    return true;
}

/* ASCII that stands for itself, which is nearly all of a payload: taken a run at a time. */
static void scan_plain(struct scan *scan, struct text *text)
{
    const char *from = scan->at;
    const char *at = from;
    size_t size;

    while (at < scan->end && (signed char)*at >= 0x20 && *at != '"' && *at != '\\') {
        at++;
    }
    scan->at = at;
    if (text->buf == NULL) {
        return;
    }
    size = (size_t)(at - from);
    if (size >= text->size - text->used) {
        text_add(text, from, text->size - text->used - 1);
        text->cut = true;
    }
    text_add(text, from, size);
}

/* A string whose opening quote has been taken. */
static bool scan_string(struct scan *scan, struct text *text)
{
    while (scan->at < scan->end) {
        size_t step;

        scan_plain(scan, text);
        if (take(scan, '"')) {
            return true;
        }
        if (take(scan, '\\')) {
            if (!scan_escape(scan, text)) {
                return false;
            }
            continue;
        }
        if (scan->at == scan->end) {
            break;
        }
        step = co_utf8_step(scan->at, (size_t)(scan->end - scan->at));
        if (step < 2) {
            return fail(scan, step == 0 ? "a string is not UTF-8"
                                        : "a control character stands unescaped in a string");
        }
        text_add(text, scan->at, step);
        scan->at += step;
    }
    return fail(scan, "it ends inside a string");
}

static size_t scan_digits(struct scan *scan)
{
    const char *from = scan->at;

    while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9') {
        scan->at++;
    }
    return (size_t)(scan->at - from);
}

static bool scan_number(struct scan *scan)
{
    take(scan, '-');
    if (!take(scan, '0') && scan_digits(scan) == 0) {
        return fail(scan, "unexpected text where a value belongs");
    }
    if (take(scan, '.') && scan_digits(scan) == 0) {
        return fail(scan, "a number ends with its point");
    }
    if (take(scan, 'e') || take(scan, 'E')) {
        if (!take(scan, '+')) {
            take(scan, '-');
        }
        if (scan_digits(scan) == 0) {
            return fail(scan, "a number's exponent has no digits");
        }
    }
    return true;
}

static bool scan_word(struct scan *scan)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t size = strlen(words[i]);
        if ((size_t)(scan->end - scan->at) >= size && memcmp(scan->at, words[i], size) == 0) {
            scan->at += size;
            return true;
        }
    }
    return scan_number(scan);
}

static bool in_object(const struct scan *scan)
{
    unsigned top = scan->depth - 1;

    return (scan->objects[top / 8] >> top % 8 & 1) != 0;
}

static bool open_bracket(struct scan *scan, bool object)
{
    unsigned bit = 1u << scan->depth % 8;
    uint8_t *byte = &scan->objects[scan->depth / 8];

    if (scan->depth == DEPTH_MAX) {
        return fail(scan, "it nests deeper than 511 levels, which PHP refuses too");
    }
    *byte = (uint8_t)(object ? *byte | bit : *byte & ~bit);
    scan->depth++;
    return true;
}

/* A key with its colon, in an object. */
static bool scan_key(struct scan *scan, struct text *key)
{
    skip_space(scan);
    if (!take(scan, '"')) {
        return fail(scan, "a member's name belongs here");
    }
    if (!scan_string(scan, key)) {
        return false;
    }
    skip_space(scan);
    return take(scan, ':') || fail(scan, "a colon belongs after a member's name");
}

/* After a value: close what ends here, up to the next value's place or depth `floor`. */
static bool scan_after(struct scan *scan, unsigned floor)
{
    while (scan->depth > floor) {
        bool object = in_object(scan);
        struct text ignored = {0};

        skip_space(scan);
        if (take(scan, ',')) {
            return !object || scan_key(scan, &ignored);
        }
        if (!take(scan, object ? '}' : ']')) {
            return fail(scan, scan->at == scan->end ? "it ends too early"
                                                    : "a comma or closing bracket belongs here");
        }
        scan->depth--;
    }
    return true;
}

/* Take an opened bracket's first key, or its closing one; *ret_entered: a value comes next. */
static bool scan_open(struct scan *scan, bool object, bool *ret_entered)
{
    struct text ignored = {0};

    if (!open_bracket(scan, object)) {
        return false;
    }
    skip_space(scan);
    if (take(scan, object ? '}' : ']')) {
        scan->depth--;
        return true;
    }
    *ret_entered = true;
    return !object || scan_key(scan, &ignored);
}

static bool scan_item(struct scan *scan, bool *ret_entered)
{
    struct text ignored = {0};

    *ret_entered = false;
    skip_space(scan);
    if (take(scan, '{')) {
        return scan_open(scan, true, ret_entered);
    }
    if (take(scan, '[')) {
        return scan_open(scan, false, ret_entered);
    }
    return take(scan, '"') ? scan_string(scan, &ignored) : scan_word(scan);
}

/* Any value, whatever lies inside it; a loop, so that depth costs no stack. */
static bool scan_value(struct scan *scan)
{
    unsigned floor = scan->depth;
    bool entered = false;

    do {
        if (!scan_item(scan, &entered) || (!entered && !scan_after(scan, floor))) {
            return false;
        }
    } while (scan->depth > floor);
    return true;
}

/* What is wanted of the top level. As in PHP, the last of equal members counts. */
struct wanted {
    bool has_job;
    struct text uuid;
    struct text display;
    struct text backoff;
    int64_t timeout_s;
    int64_t max_tries;
    int64_t max_exceptions;
    int64_t retry_until;
    bool fail_on_timeout;
};

static struct text text_again(const struct text *text)
{
    return (struct text){.buf = text->buf, .size = text->size};
}

/* A whole number that fits, else -1 (null, a fraction, a string). */
static int64_t whole(const char *at, const char *end)
{
    int64_t value = 0;

    if (at == end) {
        return -1;
    }
    for (; at < end; at++) {
        if (*at < '0' || *at > '9' || value > INT64_MAX / 10 - 1) {
            return -1;
        }
        value = value * 10 + (*at - '0');
    }
    return value;
}

/* A member's value that is no string. */
static void note_value(struct wanted *wanted, const char *name, const char *at, const char *end)
{
    if (strcmp(name, "timeout") == 0) {
        wanted->timeout_s = whole(at, end);
    } else if (strcmp(name, "maxTries") == 0) {
        wanted->max_tries = whole(at, end);
    } else if (strcmp(name, "maxExceptions") == 0) {
        wanted->max_exceptions = whole(at, end);
    } else if (strcmp(name, "retryUntil") == 0) {
        wanted->retry_until = whole(at, end);
    } else if (strcmp(name, "failOnTimeout") == 0) {
        wanted->fail_on_timeout = end - at == 4 && memcmp(at, "true", 4) == 0;
    } else if (strcmp(name, "backoff") == 0 && whole(at, end) >= 0) {
        text_add(&wanted->backoff, at, (size_t)(end - at)); /* A bare number is a list of one. */
    }
}

static struct text *text_of(struct wanted *wanted, const char *name, struct text *ignored)
{
    return strcmp(name, "uuid") == 0          ? &wanted->uuid
           : strcmp(name, "displayName") == 0 ? &wanted->display
           : strcmp(name, "backoff") == 0     ? &wanted->backoff
                                              : ignored;
}

static bool scan_member(struct scan *scan, struct wanted *wanted)
{
    char name[KEY_SIZE];
    struct text key = {.buf = name, .size = sizeof name};
    struct text ignored = {0};
    struct text *into;
    const char *from;

    if (!scan_key(scan, &key)) {
        return false;
    }
    name[key.cut || key.opaque ? 0 : key.used] = '\0';
    into = text_of(wanted, name, &ignored);
    *into = text_again(into);
    skip_space(scan);
    from = scan->at;
    if (strcmp(name, "job") == 0) {
        wanted->has_job = from < scan->end && *from == '"';
    }
    if (take(scan, '"')) {
        return scan_string(scan, into);
    }
    if (!scan_value(scan)) {
        return false;
    }
    note_value(wanted, name, from, scan->at);
    return true;
}

static bool scan_payload(struct scan *scan, struct wanted *wanted)
{
    skip_space(scan);
    if (!take(scan, '{')) {
        return fail(scan, scan->at == scan->end ? "it is empty" : "it is no JSON object");
    }
    (void)open_bracket(scan, true);
    skip_space(scan);
    if (!take(scan, '}')) {
        do {
            if (!scan_member(scan, wanted)) {
                return false;
            }
            skip_space(scan);
        } while (take(scan, ','));
        if (!take(scan, '}')) {
            return fail(scan, scan->at == scan->end ? "it ends too early"
                                                    : "a comma or closing bracket belongs here");
        }
    }
    skip_space(scan);
    return scan->at == scan->end || fail(scan, "something follows the JSON object");
}

static int read_payload(const uint8_t *payload, size_t size, struct wanted *wanted,
                        struct co_err *err)
{
    const char *text = (const char *)payload;
    struct scan scan = {.at = text, .begin = text, .end = text + size};

    if (!scan_payload(&scan, wanted)) {
        return co_err_set(err, CO_EMALFORMED, "the payload is not valid JSON at byte %zu: %s",
                          (size_t)(scan.at - scan.begin), scan.what);
    }
    if (!wanted->has_job) {
        return co_err_set(err, CO_EMALFORMED,
                          "the payload has no string member \"job\": it is no queue job");
    }
    /* Half an id is another id; half a name is still a name. */
    wanted->uuid.used = wanted->uuid.cut || wanted->uuid.opaque ? 0 : wanted->uuid.used;
    wanted->display.used = wanted->display.opaque ? 0 : wanted->display.used;
    wanted->backoff.used = wanted->backoff.cut || wanted->backoff.opaque ? 0 : wanted->backoff.used;
    return 0;
}

int co_payload_check(const uint8_t *payload, size_t size, char *uuid, size_t uuid_size,
                     char *display_name, size_t display_size, struct co_err *err)
{
    struct wanted wanted = {
        .uuid = {.buf = uuid, .size = uuid_size},
        .display = {.buf = display_name, .size = display_size},
    };
    int code;

    uuid[0] = '\0';
    display_name[0] = '\0';
    code = read_payload(payload, size, &wanted, err);
    uuid[code < 0 ? 0 : wanted.uuid.used] = '\0';
    display_name[code < 0 ? 0 : wanted.display.used] = '\0';
    return code;
}

int co_payload_read(const uint8_t *payload, size_t size, struct co_payload_facts *ret_facts,
                    struct co_err *err)
{
    struct co_payload_facts facts = {0};
    struct wanted wanted = {
        .uuid = {.buf = facts.uuid, .size = sizeof facts.uuid},
        .display = {.buf = facts.display_name, .size = sizeof facts.display_name},
        .backoff = {.buf = facts.backoff, .size = sizeof facts.backoff},
        .timeout_s = -1,
        .max_tries = -1,
        .max_exceptions = -1,
        .retry_until = -1,
    };
    int code = read_payload(payload, size, &wanted, err);

    if (code < 0) {
        return code;
    }
    facts.uuid[wanted.uuid.used] = '\0';
    facts.display_name[wanted.display.used] = '\0';
    facts.backoff[wanted.backoff.used] = '\0';
    facts.timeout_s = wanted.timeout_s;
    facts.max_tries = wanted.max_tries;
    facts.max_exceptions = wanted.max_exceptions;
    facts.retry_until = wanted.retry_until;
    facts.fail_on_timeout = wanted.fail_on_timeout;
    *ret_facts = facts;
    return 0;
}

uint32_t co_payload_backoff(const char *list, uint32_t attempts)
{
    int64_t last = 0;

    for (uint32_t n = 1; *list != '\0'; n++) {
        size_t size = strcspn(list, ",");
        int64_t value = whole(list, list + size);
        last = value < 0 ? 0 : value;
        if (n >= attempts) {
            break;
        }
        list += size + (list[size] == ',' ? 1 : 0);
    }
    return last > UINT32_MAX ? UINT32_MAX : (uint32_t)last;
}
