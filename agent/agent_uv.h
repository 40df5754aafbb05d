/* The agent on its libuv loop: turns what happens into events of the core and does what it says.
 *
 *     agent_uv.c     the loop itself: events, actions, timers, signals
 *     zygotes_uv.c   starting and replacing zygotes
 *     workers_uv.c   workers: hand-over, what they say, their deaths
 *     output_uv.c    what zygotes and workers write
 *     upkeep_uv.c    by the clock: memory, pauses and switches, slow log, notes for state.db
 *     trace_uv.c     the PHP stack of a running worker
 *     sources_uv.c   turns, wake-ups by inotify, what the application said of its queues
 *     fleet_uv.c     the others of the fleet
 *     requests_uv.c  the control socket and questions to the application
 *     overview.c     the view (pure)
 *
 * One thread owns all of it. Functions here may be called from its callbacks only. */

#ifndef CO_AGENT_AGENT_UV_H
#define CO_AGENT_AGENT_UV_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/admin_uv.h"
#include "agent/cgroup_os.h"
#include "agent/control_uv.h"
#include "agent/core.h"
#include "agent/fleet_uv.h"
#include "agent/proc_os.h"
#include "agent/serve.h"
#include "agent/source_redis.h"
#include "agent/source_sqlite.h"
#include "agent/state_sqlite.h"
#include "agent/wire_os.h"
#include "proto/config.h"
#include "proto/control.h"
#include "proto/log.h"
#include "proto/view.h"

#define CO_AGENT_VERSION "0.1.0"
#define CO_EVENTS_MAX 8192
#define CO_OUTPUT_LINE 4096
#define CO_ASKS_MAX 64
#define CO_STRANGERS_MAX 64
#define CO_DEATH_BURST 20        /* Lines about deaths, likewise. */
#define CO_OUTPUT_BURST 50       /* Lines a second and pool. */
#define CO_OUTPUT_ZYGOTE 100000u /* A zygote's number behind it. */
#define CO_SWITCHES_SIZE 8192

struct co_agent;

/* One pipe with the output of a process, cut into lines. */
struct co_output {
    uv_poll_t poll;
    struct co_agent *agent;
    uint32_t pool;
    uint32_t worker; /* Its place, or CO_OUTPUT_ZYGOTE and on. */
    int fd;
    size_t used;
    char line[CO_OUTPUT_LINE];
};

/* A process that ended before the zygote announced it, or one we have not placed yet. */
struct co_stranger {
    pid_t pid;
    int exit_code;
    int signal;
    co_ms at;
};

typedef void co_answer(struct co_agent *agent, void *context, bool ok, const char *json);

/* A question to the application, answered by a control worker. */
struct co_ask {
    bool used;
    uint64_t ticket;
    uint32_t pool;
    uint32_t worker; /* Who was asked, once sent. */
    bool sent;
    co_ms deadline;
    char name[CO_CONTROL_OP_SIZE];
    char *body;
    co_answer *answer;
    void *context;
};

struct co_agent_zygote {
    pid_t pid; /* 0: none. */
    int control_fd;
    uint32_t pool;
    uv_poll_t *poll; /* Of its own: it outlives the zygote until the loop has closed it. */
    bool booted;
    bool retired; /* Replaced by a reload. */
    bool said_why;
    co_ms started;
    co_ms asked_at; /* A fork it has not answered yet; 0: none. */
    struct co_output *output;
    char boot_text[CO_ZYGOTE_TEXT_SIZE]; /* What the boot wrote, for its error. */
};

/* What the application keeps for all its workers, as it said a second ago. */
struct co_switches {
    bool known, asked;
    uint32_t waited; /* Seconds for the first answer; until it nothing is claimed. */
    bool down, paused_all;
    char restart[32];
    char json[CO_SWITCHES_SIZE];
};

/* A job by name, for the note of its worker's exit. */
struct co_agent_job {
    char queue[CO_REPORT_TEXT_SIZE], name[CO_REPORT_TEXT_SIZE];
    char uuid[40], id[24];
};

struct co_agent_pool {
    const struct co_pool_config *config;
    const struct co_app_config *app;
    enum co_boot boot; /* As configured, or after_fork when threads forbid preload. */
    struct co_agent_zygote zygotes[2];
    int current; /* The one that forks; -1: none. */
    co_unix boot_began;
    uint32_t lives;
    char boot_error[CO_TEXT_SIZE];
    bool booted_once;
    char php_version[32];
    struct co_bell *bell;
    struct co_link *links[CO_PLACES_MAX];
    uint32_t links_top;             /* No job worker had a link at or behind this place. */
    bool fork_waits[CO_PLACES_MAX]; /* To be made as soon as loop and zygote allow. */
    uint32_t n_fork_waits;
    struct co_output *outputs[CO_PLACES_MAX];
    /* The last line of output under the job it has; and why it ends, as it or we said before. */
    char last_line[CO_PLACES_MAX][320];
    char last_words[CO_PLACES_MAX][320];
    struct co_agent_job
        timed_out[CO_PLACES_MAX]; /* Settled by its handler, whose worker dies now. */
    uint64_t rss[CO_PLACES_MAX];
    uint64_t slow_logged[CO_WORKERS_MAX]; /* By place: the last ticket that was. */
    bool info_asked;
    bool info_known;
    struct co_app_info info;
    struct co_serve serve;
    struct co_switches switches;
    uint64_t output_lines, output_suppressed;
    struct co_log_limit output_limit, death_limit;
    struct co_hist handover;
};

struct co_agent_table {
    char connection[CO_NAME_SIZE];
    char table[CO_NAME_SIZE];
    uint64_t fingerprint; /* Of the file and the table. */
};

struct co_agent_source {
    struct co_agent *agent;
    struct co_sqlite *sqlite; /* One of the two. */
    struct co_redis *redis;
    struct co_turn *turn; /* Ours between turns; NULL while one is under way. */
    uv_async_t done;
    uint32_t n_tables;
    struct co_agent_table tables[CO_SQLITE_TABLES_MAX];
    char path[CO_PATH_SIZE];
    int watch; /* inotify, of the file's directory. */
    char error[CO_TEXT_SIZE];
    bool was_up;
    bool recovered; /* A turn has looked for dead agents. */
    uint32_t n_depths;
    struct co_turn_depth depths[CO_TURN_QUEUES_MAX]; /* All queues that exist, served or not. */
};

struct co_agent {
    struct co_config config;
    uint64_t id;
    co_ms started;
    uv_loop_t loop;
    uv_timer_t timer;
    uv_timer_t lag_timer, memory_timer, second_timer;
    co_ms lag_due;
    bool told_full; /* That more queues have jobs than fit. */
    bool told_held[CO_QUEUES_MAX];
    char held_why[CO_QUEUES_MAX][CO_VIEW_WHY_SIZE]; /* "" = not held. */
    uint32_t forks_left;                            /* In this turn of the loop. */
    uv_prepare_t prepare;
    uv_check_t check;
    uv_poll_t wake_poll;
    uv_signal_t signals[8];
    uint32_t n_signals;
    uv_poll_t inotify_poll;
    int inotify_fd;
    int wake_fd;
    int lock_fds[2];
    co_ms now;
    co_ms scan_at; /* Slots are looked at for begun tickets. */
    struct co_core core;
    struct co_update update;
    struct co_event events[CO_EVENTS_MAX];
    uint32_t events_head, events_tail;
    bool stepping;
    uint32_t n_pools;
    struct co_agent_pool pools[CO_POOLS_MAX];
    uint32_t n_sources;
    struct co_agent_source sources[CO_SOURCES_MAX];
    struct co_link *ticket_link[CO_TICKETS_MAX]; /* Who holds an END open, by number modulo. */
    uint64_t ticket_tag[CO_TICKETS_MAX];
    uint64_t given_us[CO_TICKETS_MAX];
    struct co_stranger strangers[CO_STRANGERS_MAX];
    uint32_t n_strangers;
    uint64_t ask_ticket;
    struct co_ask asks[CO_ASKS_MAX];
    struct co_admin *admin;
    struct co_control_uv *control;
    struct co_fleet *fleet; /* NULL: alone. */
    struct co_view view;
    struct co_hist loop_lag;
    uint64_t log_messages[4];
    enum co_log_format log_format;
    struct co_state *state;
    uint32_t n_pauses;
    struct co_state_pause pauses[CO_STATE_PAUSES_MAX];
    struct co_minutes minutes;
    struct co_report_exit exit_note; /* Of the worker whose end is being worked on. */
    struct co_cgroup cgroup;
    uint64_t oom_kills;
    bool tight;      /* Memory is short. */
    uint32_t drains; /* Times we were told to. */
    co_ms drain_at;
    bool leaving;
    int exit_code;
    bool was_ready;
};

/* Run until drained; returns the exit code: 0 after a drain, 1 failure, 2 bad configuration. */
int co_agent_run(struct co_agent *agent, const struct co_config *config);

/* ---- agent_uv.c ---- */
void co_agent_log(struct co_agent *agent, enum co_log_level level, const char *const *fields,
                  const char *fmt, ...) __attribute__((format(printf, 4, 5)));
#define CO_FIELDS(...) ((const char *const[]){__VA_ARGS__, NULL})
void co_agent_post(struct co_agent *agent, const struct co_event *event);
void co_agent_step(struct co_agent *agent); /* Work off what was posted. */
void co_agent_fail(struct co_agent *agent, int exit_code, const struct co_err *err);
void co_agent_drain(struct co_agent *agent, const char *why);
co_ms co_agent_clock(void);
uint64_t co_agent_clock_us(void);
uint64_t co_agent_wall_ms(void);
const struct co_view *co_agent_view(void *agent);

void co_agent_reload(struct co_agent *agent, uint32_t pool, const char *why);

/* ---- zygotes_uv.c ---- */
struct co_agent_zygote *co_zygotes_current(struct co_agent_pool *pool);
void co_zygotes_start(struct co_agent *agent, uint32_t pool);
int co_zygotes_spawn_worker(struct co_agent *agent, uint32_t pool, const struct co_zygote_msg *seat,
                            pid_t *ret_pid, int *ret_output, struct co_err *err);
void co_zygotes_read(struct co_agent *agent); /* What they said and nobody heard yet. */
void co_zygotes_boot_failed(struct co_agent *agent, uint32_t pool, const char *text);
void co_zygotes_ended(struct co_agent *agent, uint32_t pool, pid_t pid, int exit_code, int signal);
void co_zygotes_end(struct co_agent *agent, uint32_t pool);
void co_zygotes_check(struct co_agent *agent, uint32_t pool); /* Does one hang? */
void co_zygotes_close(struct co_agent_pool *pool);

/* ---- output_uv.c ---- */
struct co_output *co_output_open(struct co_agent *agent, uint32_t pool, uint32_t worker, int fd);
void co_output_last(struct co_output **output); /* Its last words, then close. */

/* ---- workers_uv.c ---- */
int co_workers_open(struct co_agent *agent, struct co_err *err);
/* In this turn of the loop or one of the next. */
void co_workers_fork(struct co_agent *agent, uint32_t pool, uint32_t worker);
void co_workers_fork_cancel(struct co_agent *agent, uint32_t pool, uint32_t worker);
/* Once a turn: go on with what waits; true when another turn must follow at once. */
bool co_workers_fork_on(struct co_agent *agent);
void co_workers_forget_words(struct co_agent_pool *pool, uint32_t worker);
void co_workers_forked(struct co_agent *agent, uint32_t pool, uint32_t worker, pid_t pid);
void co_workers_exited(struct co_agent *agent, uint32_t pool, uint32_t worker, int exit_code,
                       int signal);
void co_workers_give(struct co_agent *agent, uint32_t pool, uint32_t worker, uint64_t ticket);
void co_workers_bookkeep(struct co_agent *agent, uint32_t pool, uint32_t worker, uint64_t ticket);
void co_workers_timeout(struct co_agent *agent, uint32_t pool, uint32_t worker, uint64_t ticket);
void co_workers_stop(struct co_agent *agent, uint32_t pool, uint32_t worker);
void co_workers_kill(struct co_agent *agent, uint32_t pool, uint32_t worker);
void co_workers_settled(struct co_agent *agent, uint64_t ticket);
bool co_workers_read(struct co_agent *agent); /* Rings; true when anything came. */
bool co_workers_empty(struct co_agent *agent);
void co_workers_scan(struct co_agent *agent);                   /* Slots, for begun tickets. */
bool co_workers_knows(const struct co_agent *agent, pid_t pid); /* Is it a worker's? */
void co_workers_reap(struct co_agent *agent);
void co_workers_close(struct co_agent *agent);

/* ---- upkeep_uv.c ---- */
int co_upkeep_open(struct co_agent *agent, struct co_err *err);
void co_upkeep_close(struct co_agent *agent);
void co_upkeep_ended(struct co_agent *agent, const struct co_ticket *ticket,
                     const struct co_end_msg *end);
void co_upkeep_exiting(struct co_agent *agent, const struct co_event *event, const char *text);
void co_upkeep_exited(struct co_agent *agent);
bool co_upkeep_oom_killed(struct co_agent *agent); /* Since it was last asked. */
void co_upkeep_hold(struct co_agent *agent);
void co_upkeep_ask(struct co_agent *agent, uint32_t pool); /* After a pause was set or cleared. */

/* ---- trace_uv.c ---- */
typedef void co_traced(struct co_agent *agent, void *context, const char *text);
void co_trace_start(struct co_agent *agent, pid_t pid, bool json, co_traced *done, void *context);

/* ---- sources_uv.c ---- */
void co_sources_ask(struct co_agent *agent, uint32_t pool); /* Which queues has the app? */
uint64_t co_sources_fingerprint(const struct co_agent *agent, uint32_t source, uint32_t table);
void co_sources_turn(struct co_agent *agent, uint32_t source);
void co_sources_close(struct co_agent *agent);
const struct co_agent_table *co_sources_table(const struct co_agent *agent, uint32_t source,
                                              uint32_t table);
int co_sources_open(struct co_agent *agent, struct co_err *err);

/* ---- requests_uv.c ---- */
int co_requests_open(struct co_agent *agent, struct co_err *err);
void co_requests_close(struct co_agent *agent);
/* A question that came over the fleet's wire; its sender's role says what it may ask. */
void co_requests_remote(struct co_agent *agent, const struct co_mesh_message *message);
void co_requests_ask(struct co_agent *agent, uint32_t pool, const char *name, const char *body,
                     co_answer *answer, void *context);
void co_requests_reply(struct co_agent *agent, uint32_t pool, uint64_t ticket, bool ok,
                       const char *json);
void co_requests_control_gone(struct co_agent *agent, uint32_t pool, uint32_t worker);
void co_requests_send(struct co_agent *agent); /* What waits for a control worker. */

#endif /* CO_AGENT_AGENT_UV_H */
