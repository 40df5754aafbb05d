/* The control protocol: JSON requests and answers over a ZeroMQ ROUTER on ipc (mode 0600).
 *
 *     request = {"v":1, "id":"…", "op":"status", "args":{…}}
 *     answer  = {"v":1, "id":"…", "ok":true,  "data":{…}}
 *             | {"v":1, "id":"…", "ok":false, "code":"not_found", "error":"what, why, what to do"}
 *
 * Frames: the client is a DEALER and sends one frame; the answer is one frame. A peer of another
 * version gets "code":"version". Unknown members are skipped.
 *
 *     op            args                                data
 *     ping          –                                   {version, pid}
 *     status        {workers:bool, queues:bool}         the view (view_json.c)
 *     push          {queue, connection?, payload}       {id}
 *     drain         {}                                  {} (the agent drains and exits)
 *     failed.list   {limit?, quarantined?}              {jobs:[{id, uuid, connection, queue,
 *                                                         failed_at, exception, payload}]}
 *     failed.show   {id}                                one of these, whole
 *     failed.retry  {ids:[…]} or {all:true}, {quarantined?}  {retried:n}
 *     failed.forget {ids:[…]} or {all:true}, {quarantined?}  {forgotten:n}
 *     doctor        –                                   {php:{…}, app:{…}, unserved:[…], foreign:n,
 *                                                         notes:[…]}
 *     reload        {pool?}                             {}
 *     pause         {queue?, reason, by?}               {} (queue: "name" or "connection:name")
 *     resume        {queue?}                            {}
 *     trace         {worker, pool?}                     {pid, frames:[{function, file, line}]}
 *     exits         {}                                  {exits:[…]}  why workers ended
 *     slow          {}                                  {slow:[…]}
 *     minutes       {}                                  {minutes:[…]}
 *     peers         –                                   the fleet (peers.h)
 *     config        –                                   effective configuration, with origins
 *
 * push, failed.* and the php and app parts of doctor are answered by the application itself,
 * through the pool's control worker (CO_RECORD_CONTROL with the op as name and args as body). */

#ifndef CO_PROTO_CONTROL_H
#define CO_PROTO_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/view.h"

#define CO_CONTROL_VERSION 1
#define CO_CONTROL_OP_SIZE 32
#define CO_CONTROL_MSG_MAX (80u * 1024 * 1024) /* A payload of 64 MiB and its escapes. */

struct co_control_request {
    char id[40];
    char op[CO_CONTROL_OP_SIZE];
    char *args; /* JSON object text, malloc'd; "{}" when absent. */
};

/* Read a request. Errors: CO_EMALFORMED, CO_EVERSION, CO_ETOOBIG, CO_ENOMEM; ret->id is then what
 * could be read of it ("" else), for the answer that refuses it, and the rest empty. Free with
 * _done. */
int co_control_request_read(const char *json, size_t size, struct co_control_request *ret,
                            struct co_err *err);
void co_control_request_done(struct co_control_request *request);

/* Make a request; args is JSON text or NULL. malloc'd; NULL when out of memory. */
char *co_control_request_write(const char *id, const char *op, const char *args);

/* Make answers. data is JSON text (verbatim). malloc'd; NULL when out of memory. */
char *co_control_answer(const char *id, const char *data);
char *co_control_error(const char *id, const char *code, const char *message);

/* The view as JSON text, malloc'd (NULL: out of memory), and back. README.md lists the members.
 * from_json takes what it knows and leaves the rest zero. Errors: CO_EMALFORMED, CO_EVERSION (of
 * the schema), CO_EFULL, CO_ENOMEM. */
char *co_view_to_json(const struct co_view *view, bool workers, bool queues);
int co_view_from_json(const char *json, size_t size, struct co_view *ret_view, struct co_err *err);

/* Members of a small JSON object, for callers without a JSON library. Copies a string member (or a
 * number's text) into buf; false when absent or too long. */
bool co_json_get_string(const char *json, const char *member, char *buf, size_t size);
bool co_json_get_bool(const char *json, const char *member, bool fallback);
/* Is the text one of the strings of an array member? And the first string of one. */
bool co_json_has(const char *json, const char *member, const char *text);
bool co_json_first(const char *json, const char *member, char *buf, size_t size);
/* The text as a JSON string with its quotes, malloc'd; NULL when out of memory. */
char *co_json_quote(const char *text);

/* ---- what the application says of itself (CO_RECORD_CONTROL "config") ----
 *
 * {"kind":"laravel","version":"8.83.26","default":"database","environment":"production",
 *  "connections":[{"name":"database","driver":"database","refused":null|"why",
 *    "database":"/abs/path.sqlite","table":"jobs","queue":"default","retry_after":90|null,
 *    "synchronous":null|"normal",
 *    "redis":{"scheme":"tcp","host":"…","port":6379,"path":"","username":"","password":"",
 *      "database":0,"prefix":"…","migration_batch":-1,"sentinels":[]}}],
 *  "notes":["…"]} */
#define CO_CONNECTIONS_MAX 16
/* Where a Redis queue lives, and how to get in ("redis" of a connection). */
struct co_app_redis {
    char scheme[8]; /* "tcp", "tls" or "unix". */
    char host[256];
    char path[256]; /* Of a socket. */
    uint32_t port;
    uint32_t database;
    char username[256];
    char password[512];
    char prefix[256];
    uint32_t n_sentinels;
    int32_t migration_batch; /* Below 1: all. */
};
struct co_app_info_connection {
    char name[CO_NAME_SIZE];
    char driver[32];
    char refused[CO_TEXT_SIZE]; /* "" = can be served. */
    char database[CO_PATH_SIZE];
    char table[CO_NAME_SIZE];
    char queue[CO_TEXT_SIZE];
    uint32_t retry_after_s;
    char synchronous[16];
    bool plain;
    struct co_app_redis redis; /* Of driver "redis"; database and table then name its place. */
};
struct co_app_info {
    char kind[16];
    char version[32];
    char default_connection[CO_NAME_SIZE];
    uint32_t n_connections;
    struct co_app_info_connection connections[CO_CONNECTIONS_MAX];
};
int co_app_info_read(const char *json, size_t size, struct co_app_info *ret_info,
                     struct co_err *err);

/* What the agent needs to know of a payload; the rest is PHP's. -1: the payload does not say. */
struct co_payload_facts {
    char uuid[40];          /* "" when absent, when it holds a NUL, or when it does not fit. */
    char display_name[128]; /* "" likewise, but cut when it does not fit. */
    char backoff[64];       /* Laravel's comma list of seconds, "1,5,10"; "" when absent. */
    int64_t timeout_s;
    int64_t max_tries;
    int64_t max_exceptions;
    int64_t retry_until; /* Unix seconds. */
    bool fail_on_timeout;
};

/* Read a payload. Errors: CO_EMALFORMED with the reason: not JSON, no object, no string member
 * "job". Pure and in one pass: it stands in payload.c. */
int co_payload_read(const uint8_t *payload, size_t size, struct co_payload_facts *ret_facts,
                    struct co_err *err);

/* The same for its names alone. */
int co_payload_check(const uint8_t *payload, size_t size, char *uuid, size_t uuid_size,
                     char *display_name, size_t display_size, struct co_err *err);

/* The pause before the next run, in seconds, after `attempts` starts: the comma list's item of
 * that number, its last one when it is shorter; 0 for "" (Laravel's Worker::calculateBackoff). */
uint32_t co_payload_backoff(const char *list, uint32_t attempts);

#endif /* CO_PROTO_CONTROL_H */
