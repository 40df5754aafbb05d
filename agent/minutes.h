/* What became of jobs, minute by minute: one row for each pool, connection, queue and job class.
 * The loop adds every end, and once a minute is over hands the rows to the agent's memory
 * (state_sqlite.h) and begins anew. Pure; the times of day are the caller's. */

#ifndef CO_AGENT_MINUTES_H
#define CO_AGENT_MINUTES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/report.h"
#include "proto/time.h"
#include "worker/dispatch.h"

#define CO_MINUTES_MAX 512 /* Rows a minute; the last is for whatever found none. */
#define CO_MINUTES_OTHER "(other)"
#define CO_MINUTES_PLACES 1024

struct co_minutes {
    co_unix minute;
    uint32_t n;
    uint16_t places[CO_MINUTES_PLACES]; /* By hash, then onwards: a row's number + 1, or 0. */
    struct co_report_minute rows[CO_MINUTES_MAX];
};

/* How a job ended. The texts are lent; NULL is "". */
struct co_minutes_end {
    const char *pool;
    const char *connection;
    const char *queue;
    const char *job; /* Its class. */
    enum co_outcome outcome;
    bool timeout;     /* Its time was up, whatever became of it then. */
    uint64_t run_us;  /* Begin to end. */
    uint64_t wait_us; /* Admission to begin. */
};

/* Begin the minute that now lies in, without rows. */
void co_minutes_start(struct co_minutes *minutes, co_unix now);

/* Count an end. Counted are jobs that ran: done, failed, released (or left) and crashed; of the
 * others nothing is kept. An end belongs to the minute the table stands at. */
void co_minutes_add(struct co_minutes *minutes, const struct co_minutes_end *end);

/* Is the minute over (or has the clock been set back)? Then hand the rows on, if any, and start. */
bool co_minutes_over(const struct co_minutes *minutes, co_unix now);

#endif /* CO_AGENT_MINUTES_H */
