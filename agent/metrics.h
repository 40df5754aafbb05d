/* The view as Prometheus text, for /metrics. Names begin with cohort_, units are base units, and no
 * series carries a pid: their number does not grow with the workers that come and go. */

#ifndef CO_AGENT_METRICS_H
#define CO_AGENT_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/view.h"

#define CO_METRICS_TYPE_TEXT "text/plain; version=0.0.4; charset=utf-8"
#define CO_METRICS_TYPE_OPENMETRICS "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* What the view does not know: the process itself and what time it is. */
struct co_metrics_process {
    uint64_t now_unix_ms;
    uint64_t start_unix_ms;
    uint64_t cpu_us; /* User and system. */
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t open_fds;
    uint64_t max_fds;
};

/* Write the view in the text format 0.0.4, or as OpenMetrics 1.0 with its "# EOF".
 *
 * Returns the bytes needed, the closing NUL not counted. When that is not below size, buf holds a
 * cut text that must not be sent: grow it and call again. size 0 only measures. */
size_t co_metrics_write(const struct co_view *view, const struct co_metrics_process *process,
                        bool openmetrics, char *buf, size_t size);

#endif /* CO_AGENT_METRICS_H */
