#include "agent/admin_uv.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/health.h"
#include "agent/http_parse.h"
#include "agent/metrics.h"
#include "agent/process_os.h"
#include "proto/control.h"

#define IDLE_MS 10000  /* For a whole head to arrive, and between two requests. */
#define WRITE_MS 10000 /* For the client to take an answer. */
#define LINGER_MS 1000 /* For the client to close after the last answer. */
#define BACKLOG 128
#define TYPE_TEXT "text/plain; charset=utf-8"
#define TYPE_JSON "application/json"

enum conn_state { READING, WRITING, LINGERING };

struct co_admin {
    uv_loop_t *loop;
    uv_tcp_t listener;
    co_admin_view *view;
    void *arg;
    struct conn *conns; /* Newest first. */
    unsigned n_conns;
    bool closing;
    bool listener_closed;
};

struct conn {
    struct co_admin *admin;
    struct conn *next;
    uv_tcp_t tcp;
    uv_timer_t timer;
    unsigned handles; /* Open ones; the last to close frees. */
    enum conn_state state;
    bool keep; /* Another request may follow the answer. */
    bool closing;
    uint64_t since; /* In this state, in the loop's time. */
    struct co_http_parse parse;
    uv_write_t write;
    uv_shutdown_t shutdown;
    char head[512];
    char *body; /* Of the answer being written. */
    size_t in_at;
    size_t in_len;
    char in[4096];
};

struct answer {
    int status;
    const char *type;
    char *body; /* malloc'd; NULL = out of memory. */
};

/* ---- answers ---- */

__attribute__((format(printf, 2, 3))) static struct answer answer_text(int status, const char *fmt,
                                                                       ...)
{
    struct answer answer = {.status = status, .type = TYPE_TEXT};
    va_list args;

    va_start(args, fmt);
    if (vasprintf(&answer.body, fmt, args) < 0) {
        answer.body = NULL;
    }
    va_end(args);
    return answer;
}

static struct answer answer_index(struct conn *conn)
{
    (void)conn;
    return answer_text(200,
                       "cohort agent\n\n"
                       "/livez              is the agent's loop alive\n"
                       "/startupz           has every application booted once\n"
                       "/readyz             may it get work; ?pool=NAME for one pool\n"
                       "/metrics            Prometheus text, OpenMetrics by Accept\n"
                       "/api/v1/status      everything as JSON; ?workers=0, ?queues=0 for less\n");
}

static struct answer answer_probe(struct conn *conn, enum co_health_probe probe, const char *pool)
{
    const struct co_view *view = conn->admin->view(conn->admin->arg);
    char body[CO_TEXT_SIZE + 64];
    int status = co_health_answer(view, probe, pool, body, sizeof body);

    return answer_text(status, "%s", body);
}

static struct answer answer_livez(struct conn *conn)
{
    return answer_probe(conn, CO_HEALTH_LIVE, NULL);
}

static struct answer answer_startupz(struct conn *conn)
{
    return answer_probe(conn, CO_HEALTH_STARTUP, NULL);
}

static struct answer answer_readyz(struct conn *conn)
{
    const char *query = conn->parse.request.query;
    char pool[CO_NAME_SIZE];

    if (query[0] == '\0') {
        return answer_probe(conn, CO_HEALTH_READY, NULL);
    }
    /* A probe with a misspelt parameter must not pass for one of the whole agent. */
    if (!co_http_parse_query(query, "pool", pool, sizeof pool)) {
        return answer_text(400, "the one parameter is pool: /readyz?pool=NAME\n");
    }
    return answer_probe(conn, CO_HEALTH_READY, pool);
}

static struct answer answer_metrics(struct conn *conn)
{
    const struct co_view *view = conn->admin->view(conn->admin->arg);
    const struct co_metrics_process process = co_process_read(view->uptime);
    const char *accept = conn->parse.request.accept;
    unsigned open_quality = co_http_parse_quality(accept, "application/openmetrics-text");
    bool open = open_quality > 0 && open_quality >= co_http_parse_quality(accept, "text/plain");
    size_t size = co_metrics_write(view, &process, open, NULL, 0) + 1;
    struct answer answer = {
        .status = 200,
        .type = open ? CO_METRICS_TYPE_OPENMETRICS : CO_METRICS_TYPE_TEXT,
        .body = malloc(size),
    };

    if (answer.body != NULL) {
        co_metrics_write(view, &process, open, answer.body, size);
    }
    return answer;
}

static bool wants(const char *query, const char *member)
{
    char value[8];
    return !co_http_parse_query(query, member, value, sizeof value) || strcmp(value, "0") != 0;
}

static struct answer answer_status(struct conn *conn)
{
    const struct co_view *view = conn->admin->view(conn->admin->arg);
    const char *query = conn->parse.request.query;

    return (struct answer){
        .status = 200,
        .type = TYPE_JSON,
        .body = co_view_to_json(view, wants(query, "workers"), wants(query, "queues")),
    };
}

static const struct {
    const char *path;
    struct answer (*answer)(struct conn *conn);
} routes[] = {
    {"/", answer_index},        {"/livez", answer_livez},     {"/startupz", answer_startupz},
    {"/readyz", answer_readyz}, {"/metrics", answer_metrics}, {"/api/v1/status", answer_status},
};

static struct answer answer_request(struct conn *conn)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(conn->parse.request.path, routes[i].path) == 0) {
            return routes[i].answer(conn);
        }
    }
    return answer_text(404, "nothing here; / lists what there is\n");
}

/* ---- connections ---- */

static void free_when_closed(struct co_admin *admin)
{
    if (admin->closing && admin->listener_closed && admin->n_conns == 0) {
        free(admin);
    }
}

static void unlink_conn(struct conn *conn)
{
    struct conn **at = &conn->admin->conns;

    while (*at != conn) {
        at = &(*at)->next;
    }
    *at = conn->next;
}

static void on_conn_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    struct co_admin *admin = conn->admin;

    conn->handles--;
    if (conn->handles > 0) {
        return;
    }
    unlink_conn(conn);
    admin->n_conns--;
    free(conn->body);
    free(conn);
    free_when_closed(admin);
}

static void close_conn(struct conn *conn)
{
    if (!conn->closing) {
        conn->closing = true;
        uv_close((uv_handle_t *)&conn->tcp, on_conn_closed);
        uv_close((uv_handle_t *)&conn->timer, on_conn_closed);
    }
}

static void on_timeout(uv_timer_t *timer)
{
    close_conn(timer->data);
}

static void set_state(struct conn *conn, enum conn_state state)
{
    static const uint64_t limits[] = {
        [READING] = IDLE_MS,
        [WRITING] = WRITE_MS,
        [LINGERING] = LINGER_MS,
    };

    conn->state = state;
    conn->since = uv_now(conn->admin->loop);
    uv_timer_start(&conn->timer, on_timeout, limits[state], 0);
}

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct conn *conn = handle->data;
    (void)suggested;
    *buf = uv_buf_init(conn->in, sizeof conn->in);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);
static void on_written(uv_write_t *write, int status);

static const char *http_date(char buf[64])
{
    time_t now = time(NULL);
    struct tm tm;

    gmtime_r(&now, &tm);
    strftime(buf, 64, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    return buf;
}

static void send_answer(struct conn *conn, struct answer answer)
{
    bool head_only = conn->parse.request.head;
    uv_buf_t bufs[2];
    char date[64];
    int n;

    if (answer.body == NULL) {
        close_conn(conn);
        return;
    }
    conn->body = answer.body;
    n = snprintf(conn->head, sizeof conn->head,
                 "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                 "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n%s%s\r\n",
                 answer.status, co_http_parse_reason(answer.status), http_date(date), answer.type,
                 strlen(answer.body), answer.status == 405 ? "Allow: GET, HEAD\r\n" : "",
                 conn->keep ? "Connection: keep-alive\r\n" : "Connection: close\r\n");
    assert(n > 0 && (size_t)n < sizeof conn->head);
    bufs[0] = uv_buf_init(conn->head, (unsigned)n);
    bufs[1] = uv_buf_init(conn->body, (unsigned)strlen(conn->body));
    uv_read_stop((uv_stream_t *)&conn->tcp);
    set_state(conn, WRITING);
    if (uv_write(&conn->write, (uv_stream_t *)&conn->tcp, bufs, head_only ? 1 : 2, on_written) !=
        0) {
        close_conn(conn);
    }
}

/* Read what lies in the buffer; true when more is needed from the client. */
static bool consume(struct conn *conn)
{
    size_t used;
    int status;

    switch (co_http_parse_feed(&conn->parse, conn->in + conn->in_at, conn->in_len - conn->in_at,
                               &used, &status)) {
    case CO_HTTP_MORE:
        return true;
    case CO_HTTP_REQUEST:
        conn->in_at += used;
        conn->keep = conn->parse.request.keep_alive;
        send_answer(conn, answer_request(conn));
        return false;
    case CO_HTTP_REFUSED:
        conn->keep = false;
        send_answer(conn, answer_text(status, "%s\n", co_http_parse_reason(status)));
        return false;
    }
    return false;
}

static void read_more(struct conn *conn)
{
    conn->in_at = 0;
    conn->in_len = 0;
    if (uv_read_start((uv_stream_t *)&conn->tcp, give_buffer, on_read) != 0) {
        close_conn(conn);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct conn *conn = stream->data;
    (void)buf;

    if (n < 0) {
        close_conn(conn);
        return;
    }
    if (n == 0 || conn->state == LINGERING) {
        return;
    }
    conn->in_at = 0;
    conn->in_len = (size_t)n;
    consume(conn);
}

static void on_shut(uv_shutdown_t *shutdown, int status)
{
    (void)shutdown;
    (void)status;
}

/* Close only after the client has: closing over bytes it still sends would reset the connection,
 * and the answer might be lost with it. */
static void linger(struct conn *conn)
{
    set_state(conn, LINGERING);
    if (uv_shutdown(&conn->shutdown, (uv_stream_t *)&conn->tcp, on_shut) != 0) {
        close_conn(conn);
        return;
    }
    read_more(conn);
}

static void on_written(uv_write_t *write, int status)
{
    struct conn *conn = write->handle->data;

    free(conn->body);
    conn->body = NULL;
    if (conn->closing) {
        return;
    }
    if (status != 0) {
        close_conn(conn);
        return;
    }
    if (!conn->keep) {
        linger(conn);
        return;
    }
    set_state(conn, READING);
    co_http_parse_init(&conn->parse);
    if (conn->in_at == conn->in_len || consume(conn)) {
        read_more(conn);
    }
}

/* When all places are taken, the one that has been without a request for the longest gives way:
 * forgotten connections must not keep the kubelet's probe out. */
static bool make_room(struct co_admin *admin)
{
    struct conn *oldest = NULL;

    if (admin->n_conns < CO_ADMIN_CONNECTIONS_MAX) {
        return true;
    }
    for (struct conn *conn = admin->conns; conn != NULL; conn = conn->next) {
        if (conn->state != WRITING && !conn->closing &&
            (oldest == NULL || conn->since <= oldest->since)) {
            oldest = conn;
        }
    }
    if (oldest != NULL) {
        close_conn(oldest);
    }
    return oldest != NULL;
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct co_admin *admin = listener->data;
    struct conn *conn;
    bool room;

    if (status < 0) {
        return; /* The client went before it was accepted, or descriptors ran out: the next one. */
    }
    room = make_room(admin);
    conn = calloc(1, sizeof *conn);
    if (conn == NULL) {
        return;
    }
    conn->admin = admin;
    conn->next = admin->conns;
    admin->conns = conn;
    admin->n_conns++;
    conn->handles = 2;
    uv_tcp_init(admin->loop, &conn->tcp);
    uv_timer_init(admin->loop, &conn->timer);
    conn->tcp.data = conn;
    conn->timer.data = conn;
    co_http_parse_init(&conn->parse);
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp) != 0 || !room) {
        close_conn(conn);
        return;
    }
    uv_tcp_nodelay(&conn->tcp, 1);
    set_state(conn, READING);
    read_more(conn);
}

/* ---- the listener ---- */

static int refuse_address(struct co_err *err, const char *address)
{
    return co_err_set(err, CO_ECONFIG,
                      "admin.http: \"%s\" is no address to listen on: write IP:PORT, such as "
                      "127.0.0.1:9090, 0.0.0.0:9090 or [::1]:9090, or \"off\"",
                      address);
}

static int parse_address(const char *address, struct sockaddr_storage *ret_addr, struct co_err *err)
{
    const char *colon = strrchr(address, ':');
    size_t len = colon != NULL ? (size_t)(colon - address) : 0;
    char host[64];
    char *end;
    long port;
    bool six;

    if (colon == NULL || colon[1] < '0' || colon[1] > '9' || len >= sizeof host) {
        return refuse_address(err, address);
    }
    port = strtol(colon + 1, &end, 10);
    six = len >= 2 && address[0] == '[' && colon[-1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(six ? len - 2 : len), six ? address + 1 : address);
    if (*end != '\0' || port > 65535) {
        return refuse_address(err, address);
    }
    if (strcmp(host, "localhost") == 0 || len == 0) {
        strcpy(host, len == 0 ? "0.0.0.0" : "127.0.0.1");
    }
    if ((six ? uv_ip6_addr(host, (int)port, (struct sockaddr_in6 *)ret_addr)
             : uv_ip4_addr(host, (int)port, (struct sockaddr_in *)ret_addr)) != 0) {
        return refuse_address(err, address);
    }
    return 0;
}

static int refuse_listen(struct co_err *err, int uv_error, const char *address)
{
    const char *cure = "";

    switch (-uv_error) {
    case EADDRINUSE:
        cure =
            ": another program listens there, perhaps another agent; stop it or set admin.http "
            "to a free port or \"off\"";
        break;
    case EADDRNOTAVAIL:
        cure = ": no interface of this host has that address; use 127.0.0.1 or 0.0.0.0";
        break;
    case EACCES:
        cure = ": ports below 1024 need privileges; choose a higher one";
        break;
    }
    co_err_set(err, CO_EIO, "admin.http: cannot listen on %s: %s%s", address, strerror(-uv_error),
               cure);
    if (err != NULL) {
        err->sys = -uv_error;
    }
    return CO_EIO;
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct co_admin *admin = handle->data;
    admin->listener_closed = true;
    free_when_closed(admin);
}

int co_admin_open(uv_loop_t *loop, const char *address, co_admin_view *view, void *arg,
                  struct co_admin **ret_admin, struct co_err *err)
{
    struct sockaddr_storage addr;
    struct co_admin *admin;
    int r = parse_address(address, &addr, err);

    if (r < 0) {
        return r;
    }
    admin = calloc(1, sizeof *admin);
    if (admin == NULL) {
        return co_err_set(err, CO_ENOMEM, "admin server: out of memory");
    }
    *admin = (struct co_admin){.loop = loop, .view = view, .arg = arg};
    uv_tcp_init(loop, &admin->listener);
    admin->listener.data = admin;
    r = uv_tcp_bind(&admin->listener, (const struct sockaddr *)&addr, 0);
    if (r == 0) {
        r = uv_listen((uv_stream_t *)&admin->listener, BACKLOG, on_connection);
    }
    if (r != 0) {
        refuse_listen(err, r, address);
        co_admin_close(&admin);
        return CO_EIO;
    }
    *ret_admin = admin;
    return 0;
}

unsigned co_admin_port(const struct co_admin *admin)
{
    struct sockaddr_storage addr;
    int size = sizeof addr;

    if (uv_tcp_getsockname(&admin->listener, (struct sockaddr *)&addr, &size) != 0) {
        return 0;
    }
    return ntohs(addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                            : ((struct sockaddr_in *)&addr)->sin_port);
}

void co_admin_close(struct co_admin **admin)
{
    if (*admin == NULL) {
        return;
    }
    (*admin)->closing = true;
    for (struct conn *conn = (*admin)->conns; conn != NULL; conn = conn->next) {
        close_conn(conn);
    }
    uv_close((uv_handle_t *)&(*admin)->listener, on_listener_closed);
    *admin = NULL;
}
