/* The JSON the `cohort` command writes and reads: arguments of its requests, the agent's answers,
 * and what PHP says of itself. Text in, text out; all char * results are malloc'd and NULL means
 * out of memory, unless said otherwise. */

#ifndef CO_PROTO_CLI_JSON_H
#define CO_PROTO_CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/report.h"

#define CO_CLI_SCHEMA 1

/* An answer of the control protocol, taken apart. */
struct co_cli_answer {
    bool ok;
    char id[40];
    char code[32]; /* "" when ok. */
    char *error;   /* malloc'd; NULL when ok. */
    char *data;    /* JSON text, malloc'd; NULL when not ok. */
};

/* Errors: CO_EMALFORMED, CO_EVERSION, CO_ENOMEM. Free with _done. */
int co_cli_json_answer(const char *json, size_t size, struct co_cli_answer *ret_answer,
                       struct co_err *err);
void co_cli_json_answer_done(struct co_cli_answer *answer);

/* ---- what --json prints: indented, and always with "schema" ---- */

char *co_cli_json_pretty(const char *data);
/* {"schema","code","error"} */
char *co_cli_json_error(const char *code, const char *message);
/* From the status: {"schema","workers":[{"pool",…}]} and {"schema","queues":[…],"sources":[…]}. */
char *co_cli_json_workers(const char *status);
char *co_cli_json_queues(const char *status);
/* The first n of a list: {"schema",MEMBER:[…]}. */
char *co_cli_json_first(const char *data, const char *member, uint64_t n);

/* ---- arguments ---- */

/* NULL also when the payload is no UTF-8 text, which JSON could not carry; err says which. */
char *co_cli_json_push(const char *queue, const char *connection, const char *payload, size_t size,
                       struct co_err *err);

struct co_cli_failed_args {
    const char *const *ids; /* May be NULL. */
    size_t n_ids;
    bool all;
    bool quarantined;
    uint64_t limit; /* 0: the application's own. */
};
char *co_cli_json_failed(const struct co_cli_failed_args *args);
char *co_cli_json_id(const char *id);
/* An object of n pairs of name and text; those without text are left out. */
char *co_cli_json_members(const char *const members[][2], size_t n);

/* ---- lists ---- */

/* A failed job, or a quarantined payload; absent texts are "". All lent for the call. */
struct co_cli_failed {
    const char *id;
    const char *uuid;
    const char *connection;
    const char *queue;
    const char *job;  /* The payload's displayName. */
    const char *when; /* As the application wrote it; of a quarantined one UTC. */
    const char *why;  /* The exception, or the reason. */
    const char *payload;
    uint64_t payload_size;
};
typedef void co_cli_failed_each(void *arg, const struct co_cli_failed *failed);

/* Call for every job of {"jobs":[…]}; returns their number or CO_EMALFORMED. */
int co_cli_json_failed_each(const char *data, co_cli_failed_each *each, void *arg);
/* The same for the one object of failed.show. */
int co_cli_json_failed_one(const char *data, co_cli_failed_each *each, void *arg);

/* What the agent remembers: the first rows of {"exits":[…]} and so on, at most max. Texts are cut
 * to their field. Return how many were read, or CO_EMALFORMED. */
int co_cli_json_exits(const char *data, struct co_report_exit *ret_list, uint32_t max);
int co_cli_json_slow(const char *data, struct co_report_slow *ret_list, uint32_t max);
int co_cli_json_minutes(const char *data, struct co_report_minute *ret_list, uint32_t max);

/* The frames of a trace, the innermost first; file is "" for a function of PHP's own. Returns how
 * many there are, or CO_EMALFORMED. */
typedef void co_cli_frame_each(void *arg, uint32_t index, const char *function, const char *file,
                               uint64_t line);
int co_cli_json_frames(const char *data, uint64_t *ret_pid, co_cli_frame_each *each, void *arg);

/* The effective configuration: called for every key. line is 0 unless from a file. */
typedef void co_cli_config_each(void *arg, const char *key, const char *value, const char *origin,
                                unsigned line);
int co_cli_json_config_each(const char *data, co_cli_config_each *each, void *arg);

/* ---- doctor ---- */

/* PHP about itself, as `cohort-worker --info` and co_cli_php_code print it. */
struct co_cli_php {
    char version[32];
    char libphp[1024]; /* Or the binary. */
    char ini_file[1024];
    unsigned n_ini_scanned;
    char first_scanned[1024];
    bool zts;
    bool pcntl;
    bool opcache;
};
extern const char co_cli_php_code[]; /* For php -r. */
int co_cli_json_php(const char *json, struct co_cli_php *ret_php, struct co_err *err);

/* Call for every extension and every setting that differs; NULL = not there. */
typedef void co_cli_difference(void *arg, bool extension, const char *name, const char *worker,
                               const char *cli);
int co_cli_json_compare(const char *worker, const char *cli, co_cli_difference *each, void *arg);

/* Call with every text of an array of strings ("notes", or "app.notes"); returns their number. */
typedef void co_cli_text_each(void *arg, const char *text);
int co_cli_json_texts(const char *json, const char *object, const char *member,
                      co_cli_text_each *each, void *arg);

/* The queues of doctor's "unserved". */
typedef void co_cli_unserved_each(void *arg, const char *connection, const char *queue,
                                  uint64_t ready, uint64_t delayed);
int co_cli_json_unserved(const char *json, co_cli_unserved_each *each, void *arg);

/* The whole for --json; any text may be NULL. The lists are of n texts each. */
struct co_cli_doctor {
    const char *worker;
    const char *cli;
    const char *agent;
    const char *const *attention;
    size_t n_attention;
    const char *const *notes;
    size_t n_notes;
};
char *co_cli_json_doctor(const struct co_cli_doctor *doctor);

#endif /* CO_PROTO_CLI_JSON_H */
