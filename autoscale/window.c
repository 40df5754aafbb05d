#include "autoscale/window.h"

#include <stddef.h>

#define ALL (CO_WINDOW_SLICES + 1)

static co_ms slice_length(const struct co_window *window)
{
    return (window->length + CO_WINDOW_SLICES - 1) / CO_WINDOW_SLICES;
}

void co_window_init(struct co_window *window, co_ms length, co_ms now)
{
    *window = (struct co_window){.length = length, .slice_at = now};
}

static uint32_t highest(const struct co_window *window)
{
    uint32_t max = 0;

    for (size_t i = 0; i < ALL; i++) {
        max = window->slices[i] > max ? window->slices[i] : max;
    }
    return max;
}

/* Begin new slices up to now; the oldest are forgotten. */
static void advance(struct co_window *window, co_ms now)
{
    co_ms length = slice_length(window);

    if (now > window->slice_at && now - window->slice_at >= length * ALL) {
        co_window_init(window, window->length, now);
        return;
    }
    while (now > window->slice_at && now - window->slice_at >= length) {
        window->newest = (window->newest + 1) % ALL;
        window->slices[window->newest] = 0;
        window->slice_at += length;
    }
}

void co_window_resize(struct co_window *window, co_ms length, co_ms now)
{
    uint32_t kept;

    if (length == window->length) {
        return;
    }
    if (window->length > 0) {
        advance(window, now);
    }
    kept = highest(window);
    co_window_init(window, length, now);
    if (length > 0) {
        window->slices[0] = kept;
    }
}

uint32_t co_window_note(struct co_window *window, uint32_t value, co_ms now)
{
    if (window->length == 0) {
        return value;
    }
    advance(window, now);
    if (value > window->slices[window->newest]) {
        window->slices[window->newest] = value;
    }
    return highest(window);
}

co_ms co_window_falls(const struct co_window *window, uint32_t value)
{
    co_ms length = slice_length(window);

    for (size_t age = 0; window->length > 0 && age < ALL; age++) {
        size_t i = (window->newest + ALL - age) % ALL;
        if (window->slices[i] > value && window->slices[i] == highest(window)) {
            return window->slice_at + (ALL - age) * length;
        }
    }
    return UINT64_MAX;
}
