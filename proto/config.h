/* cohort.yaml: everything an operator can say about one agent. Plain data; the strict reader is in
 * config_yaml.c. Sizes and durations carry units; unknown and duplicate keys are errors. */

#ifndef CO_PROTO_CONFIG_H
#define CO_PROTO_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/time.h"

#define CO_NAME_SIZE 64 /* Names of pools, apps, queues' connections. */
#define CO_PATH_SIZE 1024
#define CO_TEXT_SIZE 512
#define CO_APPS_MAX 4
#define CO_POOLS_MAX 4
#define CO_WORKERS_MAX 512 /* Of one pool. */

#define CO_WORKERS_AUTO 0 /* The cgroup's CPU quota rounded up, else the host's CPUs. */
#define CO_CLAIM_AUTO 0

enum co_log_format {
    CO_LOG_AUTO = 0, /* Text on a terminal, else JSON. */
    CO_LOG_TEXT,
    CO_LOG_JSON,
};

enum co_log_level {
    CO_LOG_DEBUG = 0,
    CO_LOG_INFO,
    CO_LOG_WARN,
    CO_LOG_ERROR,
};

enum co_boot {
    CO_BOOT_PRELOAD = 0, /* Boot the application, then fork. */
    CO_BOOT_AFTER_FORK,  /* Fork the started PHP, boot in the child. */
    CO_BOOT_SPAWN,       /* Exec and boot each worker. */
};

enum co_on_lost {
    CO_ON_LOST_RETRY = 0, /* The start is given back; the third loss counts as a crash. */
    CO_ON_LOST_FAIL,
};

/* What a job may do, where neither the job class nor a policy says otherwise; the meanings are
 * those of `queue:work`'s options. */
struct co_job_options {
    co_ms timeout;         /* 0: none. Default 60 s. */
    uint32_t tries;        /* 0: unlimited. Default 1. */
    char backoff[64];      /* Comma list of whole seconds, as Laravel has it: "1,5,10". */
    uint64_t memory_bytes; /* Checked after the job; 0: off. Default 128 MiB. */
    enum co_on_lost on_lost;
};

/* The plain-PHP source (apps without Laravel). */
struct co_app_connection {
    char database[CO_PATH_SIZE]; /* Empty: STATE_DIR/queue.db. */
    char table[CO_NAME_SIZE];    /* Default "jobs". */
    co_ms retry_after;           /* Default 90 s. */
};

struct co_app_config {
    char name[CO_NAME_SIZE];
    char path[CO_PATH_SIZE];
    char env_file[CO_PATH_SIZE]; /* Empty: whatever the application itself loads. */
    bool has_connection;
    struct co_app_connection connection;
};

struct co_pool_config {
    char name[CO_NAME_SIZE];
    char app[CO_NAME_SIZE];
    char queue[CO_TEXT_SIZE]; /* Comma list, strict order; "" = the connection's own and discovered
                                 ones; an entry may be "connection:queue" or a pattern
                                 ("tenant-*"). */
    char connection[CO_NAME_SIZE]; /* "": the application's default queue connection. */
    uint32_t workers;              /* CO_WORKERS_AUTO or 1..CO_WORKERS_MAX. */
    uint32_t claim;                /* CO_CLAIM_AUTO or 1..10000. */
    uint64_t memory_bytes;         /* Hard RSS limit of a worker; 0: derived. */
    uint64_t max_payload_bytes;    /* Default 64 MiB. */
    co_ms kill_grace;              /* Default 5 s. */
    enum co_boot boot;
    uint32_t max_jobs; /* Recycle a worker after so many jobs, +-20 %; 0: off. */
    co_ms max_time;    /* Recycle it at that age, +-20 %; 0: off. */
    co_ms slow;        /* Log a job's PHP stack once it runs so long; 0: off. */
    bool force;        /* Run in maintenance mode too. */
    struct co_job_options job;
};

/* Where a value comes from, for `config explain` and for messages about it. */
enum co_config_from {
    CO_FROM_DEFAULT = 0,
    CO_FROM_FILE,
    CO_FROM_ENV,
    CO_FROM_FLAG,
    CO_FROM_DERIVED, /* From other values and the environment's directories. */
};

struct co_config_origin {
    uint32_t from; /* enum co_config_from. */
    uint32_t line; /* In the file. */
};

#define CO_CONFIG_KEYS_MAX 64
/* The agents that share their queues' workers; name "" = no fleet, this agent is alone. */
struct co_fleet_config {
    char name[CO_NAME_SIZE];
    uint32_t expected; /* Agents there are meant to be; strict splits need it. 0: unknown. */
    char secret_file[CO_PATH_SIZE];
    char join[CO_TEXT_SIZE];      /* Comma list: ADDR:PORT, dns:NAME:PORT, file:PATH. */
    char advertise[CO_NAME_SIZE]; /* ADDR, ADDR:PORT or $VARIABLE; "": what listen says. */
    char listen[CO_NAME_SIZE];    /* ADDR:PORT. */
};

#define CO_CONFIG_INSTANCES (CO_POOLS_MAX + 1) /* The last is pool_template's. */

struct co_config {
    char file[CO_PATH_SIZE];       /* Where it was read from; "" when flags alone made it. */
    char http[CO_NAME_SIZE];       /* admin.http, "127.0.0.1:9090"; "off" = none. */
    char control[CO_PATH_SIZE];    /* admin.control; default RUN_DIR/control.sock. */
    char run_dir[CO_PATH_SIZE];    /* Slots, rings, sockets. */
    char state_dir[CO_PATH_SIZE];  /* queue.db, locks. */
    char worker_bin[CO_PATH_SIZE]; /* cohort-worker; default: beside cohortd. */
    char php_dir[CO_PATH_SIZE];    /* worker/php; default: the source tree's, else installed. */
    char libphp[CO_PATH_SIZE];     /* --libphp: another libphp.so; "": the linked one. */
    co_ms drain_deadline;          /* 0: none. */
    enum co_log_format log_format;
    enum co_log_level log_level;
    struct co_fleet_config fleet;
    uint32_t n_apps;
    struct co_app_config apps[CO_APPS_MAX];
    uint32_t n_pools;
    struct co_pool_config pools[CO_POOLS_MAX];
    struct co_pool_config pool_template; /* What a pool begins with. */
    struct co_config_origin origins[CO_CONFIG_KEYS_MAX][CO_CONFIG_INSTANCES];
};

/* Fill in the defaults (no apps, no pools). */
void co_config_init(struct co_config *config);

/* The order is: init, read_yaml or add_app or both, set from the environment, set_flag, finish.
 *
 * Read a file over the defaults already in *config; untouched on failure. Relative paths in it are
 * taken from its own directory.
 *
 * Errors: CO_ECONFIG with "FILE:LINE: key: what, why, what to do"; CO_EIO, CO_ENOMEM. */
int co_config_read_yaml(struct co_config *config, const char *path, struct co_err *err);

/* The same for text in memory; path is its name in messages. */
int co_config_parse_yaml(struct co_config *config, const char *path, const char *text, size_t size,
                         struct co_err *err);

/* Set one value as the environment does, strictly: "admin.http", "admin.control", "run_dir",
 * "state_dir", "drain_deadline", "fleet.*", "log.format", "log.level", "worker_bin", "php_dir",
 * "libphp"; and of every pool, those to come included: "pool.queue", "pool.workers", "pool.claim",
 * "pool.connection", "pool.force", "pool.memory", "pool.max_payload", "pool.kill_grace",
 * "job.timeout", "job.tries", "job.backoff", "job.memory", "job.on_lost".
 *
 * Errors: CO_ECONFIG with "key: what, why, what to do". */
int co_config_set(struct co_config *config, const char *key, const char *value, struct co_err *err);

/* As co_config_set() for a command line, where plain numbers mean what `queue:work` means by them:
 * seconds for durations, MiB for job.memory. */
int co_config_set_flag(struct co_config *config, const char *key, const char *value,
                       struct co_err *err);

/* The environment variables that override keys, ended by a NULL variable. */
struct co_config_variable {
    const char *variable; /* "COHORT_HTTP" */
    const char *key;      /* "admin.http", for co_config_set(). */
};
extern const struct co_config_variable co_config_variables[];

/* Complete what was left open (pool for a lone app, directories, names) and check the whole.
 * is_root chooses the default directories; runtime_dir and state_home are XDG_RUNTIME_DIR and
 * XDG_STATE_HOME or NULL; home is HOME or NULL.
 *
 * Errors: CO_ECONFIG. */
int co_config_finish(struct co_config *config, bool is_root, const char *runtime_dir,
                     const char *state_home, const char *home, struct co_err *err);

/* Add the application at DIR as `--app DIR` does: an app named after the directory and a pool
 * "jobs" that runs it. dir is absolute (the caller resolves it). Errors: CO_EFULL, CO_ECONFIG. */
int co_config_add_app(struct co_config *config, const char *dir, struct co_err *err);

/* The n-th effective value; false past the last. */
struct co_config_value {
    char key[2 * CO_NAME_SIZE + 32]; /* "pools.jobs.job.timeout" */
    char text[CO_PATH_SIZE];         /* As a file would have it: "60s". */
    struct co_config_origin origin;
};
bool co_config_value(const struct co_config *config, size_t n, struct co_config_value *ret_value);
const char *co_config_from_name(enum co_config_from from); /* "file", "flag", … */

/* All of them: {"schema":1,"file":"…","values":{"pools.jobs.workers":{"value":"auto",
 * "origin":"file","line":7}, …}}. line only with origin "file". malloc'd; NULL: out of memory. */
char *co_config_to_json(const struct co_config *config);

#endif /* CO_PROTO_CONFIG_H */
