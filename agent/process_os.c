#include "agent/process_os.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static uint64_t count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    uint64_t n = 0;

    if (dir == NULL) {
        return 0;
    }
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n > 3 ? n - 3 : 0; /* ".", ".." and the directory itself. */
}

static void read_memory(struct co_metrics_process *process)
{
    FILE *file = fopen("/proc/self/statm", "re");
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t size;
    uint64_t resident;

    if (file == NULL) {
        return;
    }
    if (fscanf(file, "%" SCNu64 " %" SCNu64, &size, &resident) == 2) {
        process->virtual_bytes = size * page;
        process->resident_bytes = resident * page;
    }
    fclose(file);
}

static uint64_t cpu_us(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) != 0) {
        return 0;
    }
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

struct co_metrics_process co_process_read(uint64_t uptime_ms)
{
    struct co_metrics_process process = {.cpu_us = cpu_us(), .open_fds = count_fds()};
    struct rlimit limit;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    process.now_unix_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    process.start_unix_ms = process.now_unix_ms - uptime_ms;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        process.max_fds = limit.rlim_cur;
    }
    read_memory(&process);
    return process;
}
