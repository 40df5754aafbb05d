#include "proto/log.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "proto/utf8.h"

#define LINE_MIN 160
#define CUT "..."
#define CLOSE_MAX                                                                   \
    (sizeof CUT - 1 + sizeof "\"}\n") /* Always kept free: a cut line still closes. \
                                       */

/* A line being written. Once something had to be cut, nothing more is added. */
struct line {
    char *buf;
    size_t used;
    size_t max; /* Bytes that content may use. */
    bool json;
    bool cut;
};

static const char *const level_names[] = {
    [CO_LOG_DEBUG] = "debug",
    [CO_LOG_INFO] = "info",
    [CO_LOG_WARN] = "warn",
    [CO_LOG_ERROR] = "error",
};

const char *co_log_level_name(enum co_log_level level)
{
    assert((unsigned)level < sizeof level_names / sizeof level_names[0]);
    return level_names[level];
}

static void put(struct line *line, const char *bytes, size_t size)
{
    memcpy(line->buf + line->used, bytes, size);
    line->used += size;
}

/* One character as the line may show it; returns its size. Text is escaped like JSON, so that no
 * value can start a line of its own or move the terminal's cursor; a bare text (no quotes around
 * it) keeps its quotes and backslashes. */
static size_t escape(const char *at, size_t step, bool bare, char out[8])
{
    unsigned char c = (unsigned char)*at;
    const char *pair = NULL;

    if (step == 0) {
        memcpy(out, CO_UTF8_REPLACEMENT, 3);
        return 3;
    }
    pair = c == '"'    ? "\\\""
           : c == '\\' ? "\\\\"
           : c == '\n' ? "\\n"
           : c == '\r' ? "\\r"
           : c == '\t' ? "\\t"
                       : NULL;
    if (pair != NULL && !(bare && (c == '"' || c == '\\'))) {
        memcpy(out, pair, 2);
        return 2;
    }
    if (c < 0x20 || c == 0x7f) {
        snprintf(out, 8, "\\u%04x", c);
        return 6;
    }
    memcpy(out, at, step);
    return step;
}

/* Append text, escaped, up to `max` bytes of line; what does not fit is cut between characters.
 */
static void put_text(struct line *line, const char *text, size_t max, bool bare)
{
    size_t size = strlen(text);

    for (size_t at = 0; at < size;) {
        size_t step = co_utf8_step(text + at, size - at);
        char out[8];
        size_t n = escape(text + at, step, bare, out);
        if (line->used + n > max) {
            put(line, CUT, sizeof CUT - 1);
            line->cut = true;
            return;
        }
        put(line, out, n);
        at += step == 0 ? 1 : step;
    }
}

/* Days since 1970 to a date (Howard Hinnant's algorithm, for years from 1970 on). */
static void put_time(struct line *line, uint64_t unix_ms)
{
    uint64_t seconds = unix_ms / 1000 % 253402300800; /* Up to the year 9999. */
    unsigned day_s = (unsigned)(seconds % 86400);
    unsigned days = (unsigned)(seconds / 86400) + 719468;
    unsigned era = days / 146097;
    unsigned doe = days % 146097;
    unsigned yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    unsigned doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    unsigned mp = (5 * doy + 2) / 153;
    unsigned month = mp < 10 ? mp + 3 : mp - 9;
    unsigned year = yoe + era * 400 + (month <= 2);
    char out[64];
    int n = snprintf(out, sizeof out, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", year, month,
                     doy - (153 * mp + 2) / 5 + 1, day_s / 3600, day_s / 60 % 60, day_s % 60,
                     (unsigned)(unix_ms % 1000));
    put(line, out, (size_t)n);
}

static bool needs_quotes(const char *value)
{
    if (*value == '\0') {
        return true;
    }
    for (const unsigned char *p = (const unsigned char *)value; *p != '\0'; p++) {
        if (*p <= ' ' || *p == '"' || *p == '\\' || *p == '=' || *p >= 0x7f) {
            return true;
        }
    }
    return false;
}

static void put_field(struct line *line, const char *key, const char *value)
{
    bool quoted = line->json || needs_quotes(value);

    if (line->used + strlen(key) * 6 + sizeof ",\"\":\"" > line->max) {
        line->cut = true; /* Not even the key has room: the line ends before it. */
        return;
    }
    put(line, line->json ? ",\"" : " ", line->json ? 2 : 1);
    put_text(line, key, line->max, !line->json);
    put(line, line->json ? "\":" : "=", line->json ? 2 : 1);
    if (quoted) {
        put(line, "\"", 1);
    }
    put_text(line, value, line->max, false);
    if (quoted) {
        put(line, "\"", 1);
    }
}

static void put_head(struct line *line, enum co_log_level level, uint64_t unix_ms)
{
    char out[32];

    if (line->json) {
        put(line, "{\"ts\":\"", 7);
        put_time(line, unix_ms);
        put(line, out,
            (size_t)snprintf(out, sizeof out, "\",\"level\":\"%s\"", co_log_level_name(level)));
        put(line, ",\"msg\":\"", 8);
        return;
    }
    put_time(line, unix_ms);
    put(line, out, (size_t)snprintf(out, sizeof out, " %-5s ", co_log_level_name(level)));
}

size_t co_log_format(char *buf, size_t size, enum co_log_format format, enum co_log_level level,
                     uint64_t unix_ms, const char *msg, const char *const *fields)
{
    struct line line = {.buf = buf, .max = size - CLOSE_MAX, .json = format != CO_LOG_TEXT};
    bool has_fields = fields != NULL && fields[0] != NULL;

    assert(size >= LINE_MIN);
    put_head(&line, level, unix_ms);
    /* A long message leaves half of the line to the fields: they say where it comes from. */
    put_text(&line, msg, has_fields ? line.max - size / 2 : line.max, !line.json);
    if (line.json) {
        put(&line, "\"", 1);
    }
    line.cut = false;
    for (size_t i = 0; has_fields && fields[i] != NULL && fields[i + 1] != NULL && !line.cut;
         i += 2) {
        put_field(&line, fields[i], fields[i + 1]);
    }
    put(&line, line.json ? "}\n" : "\n", line.json ? 2 : 1);
    buf[line.used] = '\0';
    return line.used;
}

bool co_log_allow(struct co_log_limit *limit, uint32_t burst, uint64_t now_ms,
                  uint32_t *ret_suppressed)
{
    /* A clock that went back starts a new window too: silence must not last. */
    if (now_ms < limit->window_ms || now_ms - limit->window_ms >= 1000) {
        limit->window_ms = now_ms;
        limit->used = 0;
    }
    if (limit->used >= burst) {
        limit->suppressed++;
        return false;
    }
    limit->used++;
    *ret_suppressed = limit->suppressed;
    limit->suppressed = 0;
    return true;
}
