/* What the agent's own process uses, for the process_* metrics. */

#ifndef CO_AGENT_PROCESS_OS_H
#define CO_AGENT_PROCESS_OS_H

#include "agent/metrics.h"

/* Read the current figures; uptime_ms gives the start. What /proc does not tell is 0. */
struct co_metrics_process co_process_read(uint64_t uptime_ms);

#endif /* CO_AGENT_PROCESS_OS_H */
