#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uv.h>

#include "agent/source_redis.h"

#define CONNECT_MS 2000
#define ANSWER_MS 1800 /* A frozen server is noticed within two seconds. */
#define READ_SIZE (64u * 1024)

enum phase { DOWN, RESOLVING, CONNECTING, GREETING, UP };

/* One life of a connection. It outlasts the source until the loop has closed it. */
struct wire {
    struct co_redis *redis; /* NULL: abandoned. */
    uv_timer_t timer;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } at;
    bool open, timing; /* Handles that want closing. */
    uint32_t closing;
    uv_connect_t connecting;
    uv_getaddrinfo_t resolving;
    bool resolves;
};

struct out {
    uv_write_t request;
    char *bytes;
};

struct co_redis {
    struct co_redis_config config;
    struct co_script *script;
    struct wire *wire;
    enum phase phase;
    uint32_t replies; /* Still to come for the greeting. */
    struct co_turn *turn;
    bool sent, finished, again;
    uint32_t reloads; /* Of the script, in this turn. */
    uint64_t began_us;
    char in[READ_SIZE];
};

static void start_turn(struct co_redis *redis);

/* ---- the end of a connection ---- */

static void wire_free_if_closed(struct wire *wire)
{
    if (wire->closing == 0 && !wire->resolves) {
        free(wire);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct wire *wire = handle->data;

    wire->closing -= 1;
    wire_free_if_closed(wire);
}

static void drop_wire(struct co_redis *redis)
{
    struct wire *wire = redis->wire;

    redis->phase = DOWN;
    redis->wire = NULL;
    if (wire == NULL) {
        return;
    }
    wire->redis = NULL;
    wire->closing = (uint32_t)wire->open + (uint32_t)wire->timing;
    if (wire->resolves) {
        uv_cancel((uv_req_t *)&wire->resolving);
    }
    if (wire->timing) {
        uv_close((uv_handle_t *)&wire->timer, on_closed);
    }
    if (wire->open) {
        uv_close(&wire->at.handle, on_closed);
    }
}

static void finish(struct co_redis *redis)
{
    if (redis->turn == NULL || redis->finished) {
        return;
    }
    redis->finished = true;
    redis->turn->took_us = (uint32_t)(uv_hrtime() / 1000 - redis->began_us);
    redis->config.wake(redis->config.wake_arg);
}

/* The turn failed and, unless it was refused by a healthy server, so did the connection. */
static void fail(struct co_redis *redis, bool drop, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void fail(struct co_redis *redis, bool drop, int code, const char *fmt, ...)
{
    char text[CO_ERR_MSG_SIZE];
    va_list list;

    va_start(list, fmt);
    vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    if (drop) {
        drop_wire(redis);
    }
    if (redis->turn != NULL && !redis->finished) {
        redis->turn->n_claims = 0;
        redis->turn->code = co_err_set(&redis->turn->err, code, "%s", text);
    }
    finish(redis);
}

/* ---- talking ---- */

static void on_timeout(uv_timer_t *timer)
{
    struct wire *wire = timer->data;

    if (wire->redis != NULL) {
        fail(wire->redis, true, CO_ETIMEDOUT, "Redis does not answer within %d ms", ANSWER_MS);
    }
}

static void on_written(uv_write_t *request, int status)
{
    struct out *out = (struct out *)request;
    struct wire *wire = request->handle->data;

    free(out->bytes);
    free(out);
    if (status < 0 && wire->redis != NULL) {
        fail(wire->redis, true, CO_EIO, "write to Redis: %s", uv_strerror(status));
    }
}

static void write_out(struct co_redis *redis, char *bytes, size_t size)
{
    struct wire *wire = redis->wire;
    struct out *out = calloc(1, sizeof *out);
    uv_buf_t buf = uv_buf_init(bytes, (unsigned)size);
    int code;

    if (out == NULL) {
        free(bytes);
        fail(redis, true, CO_ENOMEM, "no memory for a command to Redis");
        return;
    }
    out->bytes = bytes;
    code = uv_write(&out->request, &wire->at.stream, &buf, 1, on_written);
    if (code < 0) {
        free(bytes);
        free(out);
        fail(redis, true, CO_EIO, "write to Redis: %s", uv_strerror(code));
        return;
    }
    uv_timer_start(&wire->timer, on_timeout, ANSWER_MS, 0);
}

static void greet(struct co_redis *redis)
{
    const struct co_app_redis *place = &redis->config.place;
    struct co_err err;
    char *bytes;
    size_t size;

    redis->phase = GREETING;
    if (co_script_hello(redis->script, place->username, place->password, place->database, &bytes,
                        &size, &redis->replies, &err) < 0) {
        fail(redis, true, err.code, "%s", err.msg);
        return;
    }
    write_out(redis, bytes, size);
}

static void send_turn(struct co_redis *redis, bool again)
{
    struct timespec now;
    struct co_err err;
    char *bytes;
    size_t size;

    clock_gettime(CLOCK_REALTIME, &now);
    if (co_script_command(redis->script, redis->turn, again, (co_unix)now.tv_sec,
                          uv_hrtime() / 1000000, &bytes, &size, &err) < 0) {
        fail(redis, false, err.code, "%s", err.msg);
        return;
    }
    redis->sent = true;
    redis->again = again;
    write_out(redis, bytes, size);
}

static void answered(struct co_redis *redis)
{
    uv_timer_stop(&redis->wire->timer);
    if (!redis->again && co_script_again(redis->script)) {
        send_turn(redis, true);
        return;
    }
    redis->sent = false;
    finish(redis);
}

static void greeted(struct co_redis *redis)
{
    redis->replies -= 1;
    if (redis->replies == 0) {
        uv_timer_stop(&redis->wire->timer);
        redis->phase = UP;
        start_turn(redis);
    }
}

/* One reply; false when there is no whole one yet. */
static bool step(struct co_redis *redis)
{
    struct co_err err;
    bool greeting = redis->phase == GREETING;
    struct co_turn *turn = greeting ? NULL : redis->turn;

    if (!greeting && (!redis->sent || redis->finished)) {
        return false;
    }
    switch (co_script_reply(redis->script, turn, &err)) {
    case CO_SCRIPT_NOTHING:
        return false;
    case CO_SCRIPT_GOOD:
    case CO_SCRIPT_FENCED:
        greeting ? greeted(redis) : answered(redis);
        break;
    case CO_SCRIPT_UNKNOWN:
        redis->sent = false;
        if (++redis->reloads > 2) {
            fail(redis, false, CO_ESOURCE, "%s", err.msg);
        } else {
            greet(redis);
        }
        break;
    case CO_SCRIPT_BAD:
        redis->sent = false;
        uv_timer_stop(&redis->wire->timer);
        fail(redis, true, err.code, "%s", err.msg);
        break;
    case CO_SCRIPT_BROKEN:
        fail(redis, true, err.code, "%s", err.msg);
        break;
    }
    return redis->wire != NULL;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char nowhere[64];
    struct wire *wire = handle->data;

    (void)suggested;
    *buf = wire->redis != NULL ? uv_buf_init(wire->redis->in, READ_SIZE)
                               : uv_buf_init(nowhere, sizeof nowhere);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct wire *wire = stream->data;
    struct co_redis *redis = wire->redis;
    struct co_err err;

    if (redis == NULL || n == 0) {
        return;
    }
    if (n < 0) {
        fail(redis, true, CO_EIO, "Redis closed the connection: %s", uv_strerror((int)n));
        return;
    }
    if (co_script_feed(redis->script, buf->base, (size_t)n, &err) < 0) {
        fail(redis, true, err.code, "%s", err.msg);
        return;
    }
    while (step(redis)) {
    }
}

/* ---- connecting ---- */

static void on_connected(uv_connect_t *request, int status)
{
    struct wire *wire = request->data;
    struct co_redis *redis = wire->redis;

    if (redis == NULL) {
        return;
    }
    if (status < 0) {
        const struct co_app_redis *place = &redis->config.place;
        bool local = strcmp(place->scheme, "unix") == 0;
        fail(redis, true, CO_EIO, "connect to Redis at %s%s%.0u: %s",
             local ? place->path : place->host, "", place->port, uv_strerror(status));
        return;
    }
    uv_read_start(&wire->at.stream, on_alloc, on_read);
    greet(redis);
}

static void connect_tcp(struct wire *wire, const struct sockaddr *address)
{
    struct co_redis *redis = wire->redis;
    int code = uv_tcp_connect(&wire->connecting, &wire->at.tcp, address, on_connected);

    redis->phase = CONNECTING;
    if (code < 0) {
        fail(redis, true, CO_EIO, "connect to Redis: %s", uv_strerror(code));
    }
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    struct wire *wire = request->data;

    wire->resolves = false;
    if (wire->redis == NULL) {
        wire_free_if_closed(wire);
    } else if (status < 0) {
        fail(wire->redis, true, CO_EIO, "resolve Redis host %s: %s", wire->redis->config.place.host,
             uv_strerror(status));
    } else {
        connect_tcp(wire, list->ai_addr);
    }
    uv_freeaddrinfo(list);
}

static void open_tcp(struct wire *wire)
{
    const struct co_app_redis *place = &wire->redis->config.place;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char port[12];
    int code;

    snprintf(port, sizeof port, "%u", place->port);
    uv_tcp_init(wire->redis->config.loop, &wire->at.tcp);
    wire->at.handle.data = wire;
    wire->open = true;
    uv_tcp_nodelay(&wire->at.tcp, 1);
    wire->resolving.data = wire;
    code = uv_getaddrinfo(wire->redis->config.loop, &wire->resolving, on_resolved, place->host,
                          port, &hints);
    wire->resolves = code == 0;
    if (code < 0) {
        fail(wire->redis, true, CO_EIO, "resolve Redis host %s: %s", place->host,
             uv_strerror(code));
    }
}

static void open_wire(struct co_redis *redis)
{
    struct wire *wire = calloc(1, sizeof *wire);

    if (wire == NULL) {
        fail(redis, true, CO_ENOMEM, "no memory for a connection to Redis");
        return;
    }
    redis->wire = wire;
    wire->redis = redis;
    wire->connecting.data = wire;
    uv_timer_init(redis->config.loop, &wire->timer);
    wire->timer.data = wire;
    wire->timing = true;
    uv_timer_start(&wire->timer, on_timeout, CONNECT_MS, 0);
    co_script_reset(redis->script);
    redis->phase = RESOLVING;
    if (strcmp(redis->config.place.scheme, "unix") != 0) {
        open_tcp(wire);
        return;
    }
    uv_pipe_init(redis->config.loop, &wire->at.pipe, 0);
    wire->at.handle.data = wire;
    wire->open = true;
    redis->phase = CONNECTING;
    uv_pipe_connect(&wire->connecting, &wire->at.pipe, redis->config.place.path, on_connected);
}

static void start_turn(struct co_redis *redis)
{
    if (redis->turn == NULL || redis->finished) {
        return;
    }
    if (redis->phase == DOWN) {
        open_wire(redis);
    } else if (redis->phase == UP) {
        send_turn(redis, false);
    }
}

/* ---- the source ---- */

int co_redis_open(const struct co_redis_config *config, struct co_redis **ret_redis,
                  struct co_err *err)
{
    struct co_redis *redis = calloc(1, sizeof *redis);
    int code;

    if (redis == NULL) {
        return co_err_set(err, CO_ENOMEM, "no memory for a Redis source");
    }
    redis->config = *config;
    code = co_script_open(&config->script, &redis->script, err);
    if (code < 0) {
        free(redis);
        return code;
    }
    *ret_redis = redis;
    return 0;
}

void co_redis_submit(struct co_redis *redis, struct co_turn *turn)
{
    assert(redis->turn == NULL);
    redis->turn = turn;
    redis->finished = redis->sent = redis->again = false;
    redis->reloads = 0;
    redis->began_us = uv_hrtime() / 1000;
    start_turn(redis);
}

struct co_turn *co_redis_take(struct co_redis *redis)
{
    struct co_turn *turn = redis->finished ? redis->turn : NULL;

    if (turn != NULL) {
        redis->turn = NULL;
        redis->finished = false;
    }
    return turn;
}

void co_redis_free(struct co_redis **redis)
{
    if (redis == NULL || *redis == NULL) {
        return;
    }
    drop_wire(*redis);
    co_turn_free(&(*redis)->turn);
    co_script_free(&(*redis)->script);
    free(*redis);
    *redis = NULL;
}
