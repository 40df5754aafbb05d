/* What the kernel's files say about the limits of our control group, v1 and v2, nested or not.
 * Pure: it reads texts; cgroup_os.c brings them. */

#ifndef CO_AGENT_CGROUP_H
#define CO_AGENT_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Find the group of a controller in /proc/self/cgroup: "cpu" or "memory" for v1, "" for v2. False
 * when it is not there or too long. */
bool co_cgroup_group(const char *proc_cgroup, const char *controller, char *buf, size_t size);

/* Find the group's directory by /proc/self/mountinfo. Also the mount point itself, where the way up
 * from the directory ends. Both buffers have the same size. */
bool co_cgroup_dir(const char *mountinfo, const char *controller, const char *group, char *dir,
                   char *top, size_t size);

/* Cut a directory to its parent; false once it is at (or not below) top. */
bool co_cgroup_up(char *dir, const char *top);

/* CPU quotas in thousandths of a CPU, 0 = none: cpu.max of v2 ("150000 100000", "max 100000"), and
 * cpu.cfs_quota_us with cpu.cfs_period_us of v1. */
uint64_t co_cgroup_cpu_max(const char *cpu_max);
uint64_t co_cgroup_cpu_quota(const char *quota, const char *period);

/* memory.max or memory.limit_in_bytes in bytes, 0 = none. */
uint64_t co_cgroup_memory(const char *limit);

/* oom_kill of memory.events or memory.oom_control; 0 when absent. */
uint64_t co_cgroup_oom_kills(const char *events);

/* Pressure stall information (memory.pressure, /proc/pressure/memory): how much of the last 10 s
 * all tasks stood still for memory, in hundredths of a percent; 0 when absent. */
uint32_t co_cgroup_pressure(const char *pressure);

/* The smaller of two limits, 0 = none. */
uint64_t co_cgroup_tighter(uint64_t a, uint64_t b);

/* `workers: auto`: the quota rounded up, else the host's CPUs, at least 1. */
uint32_t co_cgroup_workers(uint64_t cpu_millis, uint32_t host_cpus);

#endif /* CO_AGENT_CGROUP_H */
