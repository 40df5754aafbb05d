/* The view: what one agent looks like at one moment, for status, metrics and health. The loop fills
 * it from the cores; agent/metrics.c writes it as Prometheus text, proto/view_json.c as the JSON of
 * the control protocol, and the controller reads that back. Plain data, no pointers. */

#ifndef CO_PROTO_VIEW_H
#define CO_PROTO_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/config.h"
#include "proto/time.h"

#define CO_VIEW_SCHEMA 1
#define CO_VIEW_QUEUES_MAX 256
#define CO_VIEW_SOURCES_MAX 8
#define CO_VIEW_WHY_SIZE 160
#define CO_HIST_BUCKETS 20

/* Why a worker ended: a closed list. */
#define CO_EXIT_MAP(X)                            \
    X(CO_EXIT_RECYCLED_JOBS, "recycled_jobs")     \
    X(CO_EXIT_RECYCLED_TIME, "recycled_time")     \
    X(CO_EXIT_RECYCLED_MEMORY, "recycled_memory") \
    X(CO_EXIT_RELOAD, "reload")                   \
    X(CO_EXIT_SCALE_DOWN, "scale_down")           \
    X(CO_EXIT_DRAIN, "drain")                     \
    X(CO_EXIT_OPERATOR, "operator")               \
    X(CO_EXIT_JOB_TIMEOUT, "job_timeout")         \
    X(CO_EXIT_JOB_EXIT, "job_exit")               \
    X(CO_EXIT_JOB_FATAL, "job_fatal")             \
    X(CO_EXIT_OOM, "oom")                         \
    X(CO_EXIT_LOST_CONNECTION, "lost_connection") \
    X(CO_EXIT_BOOT_FAILURE, "boot_failure")       \
    X(CO_EXIT_CRASH, "crash")                     \
    X(CO_EXIT_KILLED, "killed")

enum co_exit_reason {
#define CO_EXIT_ENUM(name, text) name,
    CO_EXIT_MAP(CO_EXIT_ENUM)
#undef CO_EXIT_ENUM
        CO_EXIT_REASONS
};
const char *co_exit_name(enum co_exit_reason reason);

enum co_worker_state {
    CO_WORKER_BOOTING = 0,
    CO_WORKER_IDLE,
    CO_WORKER_BUSY,
    CO_WORKER_DRAINING,
    CO_WORKER_DEAD,
    CO_WORKER_STATES,
};
const char *co_worker_state_name(enum co_worker_state state);

/* One table for agent and reader: 100 us, then doubling; the last bucket is +Inf. */
struct co_hist {
    uint64_t bucket[CO_HIST_BUCKETS]; /* Not cumulative. */
    uint64_t count;
    uint64_t sum_us;
};
void co_hist_add(struct co_hist *hist, uint64_t us);
/* Upper bound of a bucket in microseconds; 0 for +Inf. */
uint64_t co_hist_bound_us(unsigned bucket);
/* Estimate a quantile in microseconds (upper bound of its bucket); 0 when empty. */
uint64_t co_hist_quantile_us(const struct co_hist *hist, double q);

struct co_view_worker {
    uint32_t index;
    uint32_t generation;
    int32_t pid;
    enum co_worker_state state;
    co_ms since; /* In that state for so long (a duration). */
    uint64_t jobs_done;
    uint64_t rss_bytes;       /* 0: not measured. */
    char queue[CO_NAME_SIZE]; /* Of its job; "" when idle. */
    char job[128];            /* Display name of its job. */
    char job_id[24];
};

struct co_view_pool {
    char name[CO_NAME_SIZE];
    char app[CO_NAME_SIZE];
    char app_path[CO_PATH_SIZE];
    char app_kind[16];    /* "laravel", "plain", "" before the boot. */
    char app_version[32]; /* "8.83.26". */
    char php_version[32];
    uint32_t workers_wanted;
    uint32_t by_state[CO_WORKER_STATES];
    uint64_t exits[CO_EXIT_REASONS];
    uint64_t forks;
    uint64_t boot_failures;
    char boot_error[CO_TEXT_SIZE]; /* Of the last boot that failed; "" when it booted since. */
    bool zygote_up;
    bool booted_once; /* A worker has been ready. Not in the JSON. */
    uint32_t generation;
    char circuit[16]; /* closed, open, probing. */
    uint64_t circuit_opened;
    uint32_t bookkeeping; /* Jobs whose worker died, waiting for a bookkeeper. */
    bool control_up;
    uint64_t tickets_queued; /* Admitted, waiting for a worker. */
    co_ms oldest_wait;       /* Of those. */
    struct co_hist wait;     /* Admission to hand-over. */
    struct co_hist service;  /* Begin to end. */
    struct co_hist handover; /* Hand-over to begin. */
    uint64_t output_lines;
    uint64_t output_suppressed;
    uint32_t n_workers;
    struct co_view_worker workers[CO_WORKERS_MAX];
};

struct co_view_source {
    char connection[CO_NAME_SIZE];
    char driver[16]; /* "sqlite". */
    char place[CO_PATH_SIZE];
    bool up;
    char error[CO_TEXT_SIZE]; /* Why not. */
    co_ms last_good;          /* Age of the last good turn. */
    uint64_t turns;
    uint64_t turn_errors;
    struct co_hist turn_time;
    uint64_t quarantined;
    uint64_t held;
};

struct co_view_queue {
    char name[CO_TEXT_SIZE];
    char connection[CO_NAME_SIZE];
    char pool[CO_NAME_SIZE]; /* "" when nobody here serves it. */
    bool served;
    uint64_t ready; /* In the source, claimed ones not included. */
    uint64_t delayed;
    uint64_t claimed; /* Ours, not begun. */
    uint64_t running;
    uint64_t foreign;                /* Reserved by others: stock workers, other agents. */
    double oldest_s;                 /* Age of the oldest ready job. */
    bool held;                       /* Paused, or the application is in maintenance. */
    char held_why[CO_VIEW_WHY_SIZE]; /* By whom and why, as far as it is known. */
    uint64_t done, failed, released, crashed, lost, declined, timeouts;
};

struct co_view {
    char agent_id[20];
    char version[16];
    int32_t pid;
    co_ms uptime;
    bool startup; /* /startupz: every pool's application has booted once. */
    bool ready;   /* /readyz */
    bool live;
    bool draining;
    char why[CO_TEXT_SIZE]; /* Why not ready; "" when ready. */
    char run_dir[CO_PATH_SIZE];
    char config_file[CO_PATH_SIZE];
    struct co_hist loop_lag;
    uint64_t log_messages[4]; /* By level. */
    uint32_t n_pools;
    struct co_view_pool pools[CO_POOLS_MAX];
    uint32_t n_sources;
    struct co_view_source sources[CO_VIEW_SOURCES_MAX];
    uint32_t n_queues;
    struct co_view_queue queues[CO_VIEW_QUEUES_MAX];
};

#endif /* CO_PROTO_VIEW_H */
