/* One log line per event: formatting only, the programs' outermost functions write it.
 *
 *     text   2026-11-30T19:10:57.123Z info  worker 7 booting -> idle pool=jobs
 *     json   {"ts":"…","level":"info","msg":"worker 7 booting -> idle","pool":"jobs"} */

#ifndef CO_PROTO_LOG_H
#define CO_PROTO_LOG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/config.h"

#define CO_LOG_LINE_MAX 8192

/* Fields are key/value string pairs ended by NULL: "pool", "jobs", "reason", "crash", NULL.
 * unix_ms is wall-clock time. Writes a line with its newline into buf, cut with "..." when too
 * long, always valid JSON in the JSON format; returns its size. */
size_t co_log_format(char *buf, size_t size, enum co_log_format format, enum co_log_level level,
                     uint64_t unix_ms, const char *msg, const char *const *fields);

const char *co_log_level_name(enum co_log_level level);

/* Rate limit of one event class: at most `burst` in a window of a second, then silence that is
 * counted. Returns true when the line may be written; *ret_suppressed is how many were left out
 * since the last line written (say so in it). */
struct co_log_limit {
    uint64_t window_ms;
    uint32_t used;
    uint32_t suppressed;
};
#include <stdbool.h>
bool co_log_allow(struct co_log_limit *limit, uint32_t burst, uint64_t now_ms,
                  uint32_t *ret_suppressed);

#endif /* CO_PROTO_LOG_H */
