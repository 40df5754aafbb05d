/* The highest of the last while: a sliding maximum of bounded size.
 *
 * The window is cut in slices and each slice keeps its maximum, so a value counts for at least the
 * window and at most one slice longer. A value that only falls leaves the window as it came: the
 * maximum follows it down, a window later. */

#ifndef CO_AUTOSCALE_WINDOW_H
#define CO_AUTOSCALE_WINDOW_H

#include <stdint.h>

#include "proto/time.h"

#define CO_WINDOW_SLICES 16

struct co_window {
    co_ms length;   /* 0: nothing is remembered. */
    co_ms slice_at; /* Begin of the newest slice. */
    uint32_t newest;
    uint32_t slices[CO_WINDOW_SLICES + 1]; /* One is always just begun. */
};

void co_window_init(struct co_window *window, co_ms length, co_ms now);

/* The policy has changed: keep what is remembered, as far as the new length goes. */
void co_window_resize(struct co_window *window, co_ms length, co_ms now);

/* Note a value; the maximum of the window, it included, comes back. */
uint32_t co_window_note(struct co_window *window, uint32_t value, co_ms now);

/* When the maximum falls if nothing higher than value is noted; UINT64_MAX: it is no higher. */
co_ms co_window_falls(const struct co_window *window, uint32_t value);

#endif /* CO_AUTOSCALE_WINDOW_H */
