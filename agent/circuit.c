#include "agent/circuit.h"

#include <string.h>

#define SLICE (CO_CIRCUIT_WINDOW / CO_CIRCUIT_SLICES)

const char *co_circuit_name(enum co_circuit_state state)
{
    switch (state) {
    case CO_CIRCUIT_CLOSED:
        return "closed";
    case CO_CIRCUIT_OPEN:
        return "open";
    case CO_CIRCUIT_PROBING:
        return "probing";
    }
    return "unknown";
}

void co_circuit_init(struct co_circuit *circuit, uint64_t seed, co_ms now)
{
    *circuit =
        (struct co_circuit){.seed = seed | 1, .slice_at = now, .probe_wait = CO_CIRCUIT_PROBE_MIN};
}

/* Forget the slices that have left the window. */
static void advance(struct co_circuit *circuit, co_ms now)
{
    if (now - circuit->slice_at >= CO_CIRCUIT_WINDOW) {
        memset(circuit->crashes, 0, sizeof circuit->crashes);
        memset(circuit->ooms, 0, sizeof circuit->ooms);
        memset(circuit->completed, 0, sizeof circuit->completed);
        circuit->slice_at = now;
    }
    while (now - circuit->slice_at >= SLICE) {
        circuit->slice_at += SLICE;
        circuit->slice = (circuit->slice + 1) % CO_CIRCUIT_SLICES;
        circuit->crashes[circuit->slice] = 0;
        circuit->ooms[circuit->slice] = 0;
        circuit->completed[circuit->slice] = 0;
    }
}

static uint64_t sum(const uint32_t slices[CO_CIRCUIT_SLICES])
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < CO_CIRCUIT_SLICES; i++) {
        total += slices[i];
    }
    return total;
}

/* xorshift: the jitter needs no better. */
static co_ms jitter(struct co_circuit *circuit, co_ms wait)
{
    circuit->seed ^= circuit->seed << 13;
    circuit->seed ^= circuit->seed >> 7;
    circuit->seed ^= circuit->seed << 17;
    return wait - wait / 5 + circuit->seed % (2 * wait / 5 + 1);
}

static void wait_for_probe(struct co_circuit *circuit, co_ms now)
{
    circuit->state = CO_CIRCUIT_OPEN;
    circuit->probe_at = now + jitter(circuit, circuit->probe_wait);
    circuit->probe_wait = 2 * circuit->probe_wait < CO_CIRCUIT_PROBE_MAX ? 2 * circuit->probe_wait
                                                                         : CO_CIRCUIT_PROBE_MAX;
}

static bool counts(enum co_exit_reason reason)
{
    return reason == CO_EXIT_CRASH || reason == CO_EXIT_BOOT_FAILURE || reason == CO_EXIT_KILLED;
}

bool co_circuit_death(struct co_circuit *circuit, uint32_t worker, enum co_exit_reason reason,
                      uint32_t running, co_ms now)
{
    uint64_t enough = running / 2 > CO_CIRCUIT_DEATHS_MIN ? running / 2 : CO_CIRCUIT_DEATHS_MIN;
    uint64_t completed;
    bool was_probe = circuit->state == CO_CIRCUIT_PROBING && circuit->probe == worker;

    advance(circuit, now);
    circuit->crashes[circuit->slice] += counts(reason);
    circuit->ooms[circuit->slice] += reason == CO_EXIT_OOM;
    if (was_probe) {
        if (counts(reason) || reason == CO_EXIT_OOM) {
            wait_for_probe(circuit, now);
        } else { /* Ended for a reason of its job or of ours: another may try at once. */
            circuit->state = CO_CIRCUIT_OPEN;
            circuit->probe_at = now;
        }
        return false;
    }
    if (circuit->state != CO_CIRCUIT_CLOSED) {
        return false;
    }
    completed = sum(circuit->completed);
    if ((sum(circuit->crashes) >= enough && sum(circuit->crashes) > completed) ||
        (sum(circuit->ooms) >= enough && sum(circuit->ooms) > completed)) {
        circuit->probe_wait = CO_CIRCUIT_PROBE_MIN;
        circuit->opened += 1;
        wait_for_probe(circuit, now);
        return true;
    }
    return false;
}

/* What was counted has been answered. */
static void close_circuit(struct co_circuit *circuit, co_ms now)
{
    uint64_t opened = circuit->opened;

    co_circuit_init(circuit, circuit->seed, now);
    circuit->opened = opened;
}

bool co_circuit_survived(struct co_circuit *circuit, uint32_t worker, co_ms idle_ms, co_ms now)
{
    if (circuit->state != CO_CIRCUIT_PROBING || circuit->probe != worker ||
        idle_ms < CO_CIRCUIT_SURVIVED) {
        return false;
    }
    close_circuit(circuit, now);
    return true;
}

bool co_circuit_completed(struct co_circuit *circuit, uint32_t worker, co_ms now)
{
    advance(circuit, now);
    circuit->completed[circuit->slice] += 1;
    if (circuit->state != CO_CIRCUIT_PROBING || circuit->probe != worker) {
        return false;
    }
    close_circuit(circuit, now);
    return true;
}

bool co_circuit_allows(const struct co_circuit *circuit, co_ms now)
{
    return circuit->state == CO_CIRCUIT_CLOSED ||
           (circuit->state == CO_CIRCUIT_OPEN && now >= circuit->probe_at);
}

void co_circuit_forked(struct co_circuit *circuit, uint32_t worker)
{
    if (circuit->state == CO_CIRCUIT_OPEN) {
        circuit->state = CO_CIRCUIT_PROBING;
        circuit->probe = worker;
    }
}

void co_circuit_unforked(struct co_circuit *circuit, uint32_t worker)
{
    if (circuit->state == CO_CIRCUIT_PROBING && circuit->probe == worker) {
        circuit->state = CO_CIRCUIT_OPEN; /* Its time has come already. */
    }
}

co_ms co_circuit_deadline(const struct co_circuit *circuit)
{
    return circuit->state == CO_CIRCUIT_OPEN ? circuit->probe_at : UINT64_MAX;
}
