#include "agent/cgroup_os.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/cgroup.h"

#define MOUNTINFO_SIZE (256 * 1024) /* Hosts with many containers have long ones. */

static char mountinfo[MOUNTINFO_SIZE];

/* Read a file as text; cut when longer. "" when it cannot be read. */
static bool read_text(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t n = 1;

    buf[0] = '\0';
    if (fd < 0) {
        return false;
    }
    while (len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) > 0) {
        len += (size_t)n;
    }
    close(fd);
    buf[len] = '\0';
    return n >= 0;
}

static bool read_in(const char *dir, const char *name, char *buf, size_t size)
{
    char path[CO_PATH_SIZE + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return read_text(path, buf, size);
}

static bool find_dir(const char *controller, char *dir, char *top, size_t size)
{
    char groups[4096];
    char group[CO_PATH_SIZE];

    return read_text("/proc/self/cgroup", groups, sizeof groups) &&
           co_cgroup_group(groups, controller, group, sizeof group) &&
           co_cgroup_dir(mountinfo, controller, group, dir, top, size);
}

static void note_events(struct co_cgroup *cgroup, const char *dir, const char *name)
{
    char path[CO_PATH_SIZE + 64];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (cgroup->events[0] == '\0' && access(path, R_OK) == 0 &&
        strlen(path) < sizeof cgroup->events) {
        strcpy(cgroup->events, path);
    }
}

/* A limit of any ancestor binds us too, so each walk goes up to the mount point. */
static void read_v2(struct co_cgroup *cgroup)
{
    char dir[CO_PATH_SIZE];
    char top[CO_PATH_SIZE];
    char text[128];

    if (!find_dir("", dir, top, sizeof dir)) {
        return;
    }
    snprintf(cgroup->pressure, sizeof cgroup->pressure, "%.1000s/memory.pressure", dir);
    do {
        read_in(dir, "cpu.max", text, sizeof text);
        cgroup->cpu_millis = co_cgroup_tighter(cgroup->cpu_millis, co_cgroup_cpu_max(text));
        read_in(dir, "memory.max", text, sizeof text);
        cgroup->memory_bytes = co_cgroup_tighter(cgroup->memory_bytes, co_cgroup_memory(text));
        note_events(cgroup, dir, "memory.events");
    } while (co_cgroup_up(dir, top));
}

static void read_v1_cpu(struct co_cgroup *cgroup)
{
    char dir[CO_PATH_SIZE];
    char top[CO_PATH_SIZE];
    char quota[64];
    char period[64];

    if (!find_dir("cpu", dir, top, sizeof dir)) {
        return;
    }
    do {
        read_in(dir, "cpu.cfs_quota_us", quota, sizeof quota);
        read_in(dir, "cpu.cfs_period_us", period, sizeof period);
        cgroup->cpu_millis =
            co_cgroup_tighter(cgroup->cpu_millis, co_cgroup_cpu_quota(quota, period));
    } while (co_cgroup_up(dir, top));
}

static void read_v1_memory(struct co_cgroup *cgroup)
{
    char dir[CO_PATH_SIZE];
    char top[CO_PATH_SIZE];
    char text[64];

    if (!find_dir("memory", dir, top, sizeof dir)) {
        return;
    }
    do {
        read_in(dir, "memory.limit_in_bytes", text, sizeof text);
        cgroup->memory_bytes = co_cgroup_tighter(cgroup->memory_bytes, co_cgroup_memory(text));
        note_events(cgroup, dir, "memory.oom_control");
    } while (co_cgroup_up(dir, top));
}

static uint32_t count_cpus(void)
{
    cpu_set_t set;
    long online;

    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return (uint32_t)CPU_COUNT(&set);
    }
    online = sysconf(_SC_NPROCESSORS_ONLN); /* More CPUs than the set holds. */
    return online > 0 ? (uint32_t)online : 1;
}

struct co_cgroup co_cgroup_os_read(void)
{
    struct co_cgroup cgroup = {.host_cpus = count_cpus()};

    read_text("/proc/self/mountinfo", mountinfo, sizeof mountinfo);
    read_v2(&cgroup);
    if (cgroup.pressure[0] == '\0' || access(cgroup.pressure, R_OK) != 0) {
        snprintf(cgroup.pressure, sizeof cgroup.pressure, "/proc/pressure/memory");
    }
    read_v1_cpu(&cgroup); /* Hybrid hosts mount both; each controller lives in one of them. */
    read_v1_memory(&cgroup);
    return cgroup;
}

uint32_t co_cgroup_os_pressure(const struct co_cgroup *cgroup)
{
    char text[256];

    return read_text(cgroup->pressure, text, sizeof text) ? co_cgroup_pressure(text) : 0;
}

uint64_t co_cgroup_os_oom_kills(const struct co_cgroup *cgroup)
{
    char text[512];

    if (cgroup->events[0] == '\0' || !read_text(cgroup->events, text, sizeof text)) {
        return 0;
    }
    return co_cgroup_oom_kills(text);
}
