/* Values with units, as configuration files and flags write them. Strict: what could be meant in
 * two ways is refused, and the message says what to write instead. It names the value; the caller
 * puts the key before it. All return 0 or CO_ECONFIG and leave *ret alone on failure. */

#ifndef CO_PROTO_UNITS_H
#define CO_PROTO_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/time.h"

/* "250ms", "30s", "5m", "2h", "1d", and "0". One number, one unit. */
int co_units_duration(const char *text, co_ms *ret_ms, struct co_err *err);

/* "512Ki", "128Mi", "64MiB", "1Gi" (binary), "100k", "10M", "1G" (decimal, "MB" too),
 * "1536B", and "0". */
int co_units_size(const char *text, uint64_t *ret_bytes, struct co_err *err);

/* "17": decimal digits alone, at most max. */
int co_units_count(const char *text, uint64_t max, uint64_t *ret_count, struct co_err *err);

/* "true" or "false". */
int co_units_bool(const char *text, bool *ret_bool, struct co_err *err);

#define CO_UNITS_TEXT_SIZE 32

/* The shortest exact writing, which the parsers read back: 90000 is "90s", 1536 is "1536B". */
void co_units_duration_write(co_ms ms, char buf[CO_UNITS_TEXT_SIZE]);
void co_units_size_write(uint64_t bytes, char buf[CO_UNITS_TEXT_SIZE]);

#endif /* CO_PROTO_UNITS_H */
