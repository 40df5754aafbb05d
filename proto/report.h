/* Answers of the control protocol that the agent puts together itself. All return malloc'd JSON
 * text, NULL when out of memory. */

#ifndef CO_PROTO_REPORT_H
#define CO_PROTO_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/time.h"
#include "proto/view.h"

struct co_report_quarantined {
    int64_t id;
    const char *connection;
    const char *queue;
    const char *reason;
    co_unix since;
    uint64_t payload_size;
};

/* {"jobs":[{"id","connection","queue","reason","since","payload_size"}]} */
char *co_report_quarantine(const struct co_report_quarantined *list, uint32_t n);

/* {"version":…,"pid":…} */
char *co_report_ping(const struct co_view *view);

/* {NAME: count} */
char *co_report_count(const char *name, uint64_t count);

/* What doctor says: the application's own part (JSON text with "php" and "app", or NULL when it
 * does not answer), the queues nobody serves, foreign workers, and what the view complains of. */
char *co_report_doctor(const struct co_view *view, const char *app_json);

/* Read {"ids":[…]} or {"all":true}: numbers, or strings of digits. Returns how many ids were
 * written, or CO_EMALFORMED. */
int co_report_ids(const char *args, int64_t *ret_ids, uint32_t max, bool *ret_all);

/* ---- what an agent remembers (agent/state_sqlite.h fills them) ----
 *
 * Absent texts are "". None of them holds a payload or anything a job was given. */

#define CO_REPORT_TEXT_SIZE 128 /* Queues and job classes; longer ones are cut. */
#define CO_REPORT_CAUSE_SIZE 501
#define CO_REPORT_STACK_SIZE 4096

/* Why a worker ended. */
struct co_report_exit {
    int64_t id; /* Rises; the agent's memory numbers them. */
    co_unix at;
    char pool[CO_NAME_SIZE];
    uint32_t worker;
    int32_t pid;
    uint32_t generation;
    char reason[24]; /* co_exit_name(). */
    char status[48]; /* "exit 255", "signal 11 (SIGSEGV)". */
    char queue[CO_REPORT_TEXT_SIZE];
    char job[CO_REPORT_TEXT_SIZE]; /* Its class, when it had one. */
    char job_id[24];
    char uuid[40];
    char cause[CO_REPORT_CAUSE_SIZE]; /* The last line it wrote, or what killed it. */
    uint64_t rss_bytes;               /* 0: not measured. */
};

/* One minute of one job class. Run and wait times are of all the ends counted in it. */
struct co_report_minute {
    co_unix minute; /* Its first second. */
    char pool[CO_NAME_SIZE];
    char connection[CO_NAME_SIZE];
    char queue[CO_REPORT_TEXT_SIZE];
    char job[CO_REPORT_TEXT_SIZE];
    uint64_t done, failed, released, crashed;
    uint64_t timeouts; /* How many of those ends were timeouts. */
    uint64_t run_sum_us, run_max_us, wait_sum_us;
};

/* A job that ran for longer than the pool's `slow`, and where it was. */
struct co_report_slow {
    int64_t id;
    co_unix at;
    char pool[CO_NAME_SIZE];
    uint32_t worker;
    char job[CO_REPORT_TEXT_SIZE];
    uint32_t seconds;
    char stack[CO_REPORT_STACK_SIZE];
};

/* {"exits":[{"id","at","pool","worker","pid","generation","reason","status","queue","job",
 * "job_id","uuid","cause","rss_bytes"}]} */
char *co_report_exits(const struct co_report_exit *list, uint32_t n);

/* {"minutes":[{"minute","pool","connection","queue","job","done","failed","released","crashed",
 * "timeouts","run_sum_us","run_max_us","wait_sum_us"}]} */
char *co_report_minutes(const struct co_report_minute *list, uint32_t n);

/* {"slow":[{"id","at","pool","worker","job","seconds","stack"}]} */
char *co_report_slow(const struct co_report_slow *list, uint32_t n);

#endif /* CO_PROTO_REPORT_H */
