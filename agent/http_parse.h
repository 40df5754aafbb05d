/* Heads of HTTP/1.1 requests for the admin server, read strictly: what is not plainly right is
 * refused with the status to answer. Pure; the caller owns the connection.
 *
 * GET and HEAD only, without a body. Refused are a bare LF or CR, folded headers, control bytes,
 * spaces in header names, a missing or doubled Host in 1.1, and heads over 16 KiB. An Upgrade is
 * ignored. */

#ifndef CO_AGENT_HTTP_PARSE_H
#define CO_AGENT_HTTP_PARSE_H

#include <http_parser.h>
#include <stdbool.h>
#include <stddef.h>

#define CO_HTTP_HEAD_MAX (16u * 1024)
#define CO_HTTP_TARGET_SIZE 2048
#define CO_HTTP_ACCEPT_SIZE 512

struct co_http_request {
    bool head;                        /* HEAD: answer without the body. */
    bool keep_alive;                  /* The connection may carry another request. */
    char path[CO_HTTP_TARGET_SIZE];   /* As sent, without the query: "/readyz". */
    char query[CO_HTTP_TARGET_SIZE];  /* As sent, without the "?"; "" when there is none. */
    char accept[CO_HTTP_ACCEPT_SIZE]; /* Cut when longer. */
};

/* Only request is for the caller's eyes. */
struct co_http_parse {
    http_parser parser;
    struct co_http_request request;
    size_t head_bytes;
    char last; /* The byte before, to see how lines end. */
    char target[CO_HTTP_TARGET_SIZE];
    size_t target_len;
    char name[32]; /* The header being read, cut. */
    size_t name_len;
    size_t accept_len;
    unsigned hosts;
    bool in_value;
    bool has_body;
    bool complete;
    int status; /* Why the head is refused; 0 = it is not. */
};

enum co_http_event {
    CO_HTTP_MORE,    /* Feed what comes next. */
    CO_HTTP_REQUEST, /* parse->request is whole; what follows it was not consumed. */
    CO_HTTP_REFUSED, /* Answer *ret_status and close. */
};

/* Begin with a fresh request; also between two requests of a connection. */
void co_http_parse_init(struct co_http_parse *parse);

/* Read bytes. *ret_used is how many were consumed: all of them with CO_HTTP_MORE. *ret_status is
 * set with CO_HTTP_REFUSED: 400, 405, 413, 414, 431, 505. */
enum co_http_event co_http_parse_feed(struct co_http_parse *parse, const char *data, size_t size,
                                      size_t *ret_used, int *ret_status);

/* The text of a status: "Not Found". */
const char *co_http_parse_reason(int status);

/* Copy a member of a query, percent-decoded: pool=a%20b. False when absent, too long or badly
 * encoded. */
bool co_http_parse_query(const char *query, const char *member, char *buf, size_t size);

/* How much an Accept header wants a media type named in full (no wildcards): its q in thousandths,
 * 0 when not at all. */
unsigned co_http_parse_quality(const char *accept, const char *type);

#endif /* CO_AGENT_HTTP_PARSE_H */
