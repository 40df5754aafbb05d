/* Units of time. */

#ifndef CO_PROTO_TIME_H
#define CO_PROTO_TIME_H

#include <stdint.h>

/* Milliseconds of the host's CLOCK_BOOTTIME. Times of two hosts are never compared. */
typedef uint64_t co_ms;

/* Seconds since 1970, as Laravel's database queue keeps them (available_at, reserved_at). */
typedef int64_t co_unix;

#endif /* CO_PROTO_TIME_H */
