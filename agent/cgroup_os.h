/* The limits of the control group this process runs in. */

#ifndef CO_AGENT_CGROUP_OS_H
#define CO_AGENT_CGROUP_OS_H

#include <stdint.h>

#include "proto/config.h"

struct co_cgroup {
    uint64_t cpu_millis;         /* The tightest quota from our group upwards; 0 = none. */
    uint64_t memory_bytes;       /* Likewise. */
    uint32_t host_cpus;          /* That we may run on, at least 1. */
    char pressure[CO_PATH_SIZE]; /* The file with our group's memory pressure, else the host's. */
    char events[CO_PATH_SIZE];   /* The file with oom_kill; "" = none. */
};

/* Read all of it. What cannot be read is no limit: outside of Linux containers that is normal. */
struct co_cgroup co_cgroup_os_read(void);

/* Memory pressure now, as co_cgroup_pressure(). */
uint32_t co_cgroup_os_pressure(const struct co_cgroup *cgroup);

/* How many processes the kernel has killed in our group for want of memory. */
uint64_t co_cgroup_os_oom_kills(const struct co_cgroup *cgroup);

#endif /* CO_AGENT_CGROUP_OS_H */
