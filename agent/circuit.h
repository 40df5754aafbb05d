/* The circuit of a pool: stops new forks when workers die for reasons that are not a job's.
 *
 *     closed ──deaths──► open ──probe's time──► probing ──a probe's job completes──► closed
 *                          ▲                       │         (or 10 s idle and alive)
 *                          └── the probe dies ─────┘ (waits twice as long)
 *
 * It opens when the counted deaths of the last 60 s are at least max(5, half the running workers)
 * and more than the jobs completed in them. Crashes, boot failures and kills that were not ours
 * count together; deaths for memory count apart, against the same rule. Timeouts and deliberate
 * exits are nobody's fault here. Pure; running workers are never touched. */

#ifndef CO_AGENT_CIRCUIT_H
#define CO_AGENT_CIRCUIT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/time.h"
#include "proto/view.h"

#define CO_CIRCUIT_WINDOW 60000
#define CO_CIRCUIT_SLICES 60
#define CO_CIRCUIT_DEATHS_MIN 5
#define CO_CIRCUIT_PROBE_MIN 1000
#define CO_CIRCUIT_PROBE_MAX 60000
#define CO_CIRCUIT_SURVIVED 10000

enum co_circuit_state {
    CO_CIRCUIT_CLOSED = 0,
    CO_CIRCUIT_OPEN,
    CO_CIRCUIT_PROBING,
};
const char *co_circuit_name(enum co_circuit_state state);

struct co_circuit {
    enum co_circuit_state state;
    co_ms slice_at; /* Start of the newest slice. */
    uint32_t slice;
    uint32_t crashes[CO_CIRCUIT_SLICES];
    uint32_t ooms[CO_CIRCUIT_SLICES];
    uint32_t completed[CO_CIRCUIT_SLICES];
    co_ms probe_at;
    co_ms probe_wait;
    uint32_t probe;  /* PROBING: the worker's place. */
    uint64_t seed;   /* For the jitter of +-20 %. */
    uint64_t opened; /* Times it opened. */
};

void co_circuit_init(struct co_circuit *circuit, uint64_t seed, co_ms now);

/* A worker ended; running is how many of the pool run now. Returns true when that opened it. */
bool co_circuit_death(struct co_circuit *circuit, uint32_t worker, enum co_exit_reason reason,
                      uint32_t running, co_ms now);

/* A worker completed a job. Returns true when that closed it. */
bool co_circuit_completed(struct co_circuit *circuit, uint32_t worker, co_ms now);

/* The worker has been idle for idle_ms, with nothing to do. A probe that lives so long closes it as
 * well: there may be no job left that could. Returns true then. */
bool co_circuit_survived(struct co_circuit *circuit, uint32_t worker, co_ms idle_ms, co_ms now);

/* May a worker be forked now? In PROBING the probe is out already. */
bool co_circuit_allows(const struct co_circuit *circuit, co_ms now);

/* It was: into this place. */
void co_circuit_forked(struct co_circuit *circuit, uint32_t worker);

/* It never came to be, through no fault of its own: another may try at once. */
void co_circuit_unforked(struct co_circuit *circuit, uint32_t worker);

/* When the next probe is due; UINT64_MAX if none. */
co_ms co_circuit_deadline(const struct co_circuit *circuit);

#endif /* CO_AGENT_CIRCUIT_H */
