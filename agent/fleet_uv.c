#include "agent/fleet_uv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/fleet_impl_uv.h"
#include "proto/fleet_frame.h"

#define BATCH 256
#define TURN_MS 200 /* Between looks at seeds, lines and rejects. */
#define FRAME_SIZE 2

static void drain(struct co_fleet *fleet);

static void take(struct co_fleet *fleet, const struct co_mesh_message *message, co_ms now)
{
    static struct co_fleet_msg msg;
    char address[CO_FLEET_ADDRESS_SIZE];

    if (message->size > 0 && message->data[0] == '{') {
        co_requests_remote(fleet->agent, message);
        return;
    }
    if (message->role == CO_FLEET_ROLE_MEMBER && message->size > FRAME_SIZE &&
        memcmp(message->data, CO_FLEET_ADDRESSES, FRAME_SIZE) == 0) {
        co_fleet_learn(fleet, message->data + FRAME_SIZE, message->size - FRAME_SIZE, now);
        return;
    }
    if (message->role != CO_FLEET_ROLE_MEMBER ||
        co_fleet_frame_read(message->data, message->size, &msg, address) < 0) {
        co_mesh_count_frame(fleet->mesh, message->address);
        return;
    }
    if (msg.from != fleet->agent->id || msg.incarnation != fleet->coord.config.incarnation) {
        co_fleet_coord_take(fleet, &msg, address, now); /* Else one of the seeds is this agent. */
    }
}

static void on_again(uv_idle_t *again)
{
    uv_idle_stop(again);
    drain(again->data);
}

static void on_timer(uv_timer_t *timer);

static void arm(struct co_fleet *fleet)
{
    co_ms now = co_agent_clock();
    co_ms deadline = co_fleet_coord_deadline(fleet);
    co_ms wait = deadline > now ? deadline - now : 0;

    uv_timer_start(&fleet->timer, on_timer, wait < TURN_MS ? wait : TURN_MS, 0);
}

static void drain(struct co_fleet *fleet)
{
    co_ms now = co_agent_clock();

    for (uint32_t i = 0; i < BATCH && !fleet->closing; i++) {
        struct co_mesh_message message;
        if (co_mesh_recv(fleet->mesh, &message) != 1) {
            arm(fleet);
            return;
        }
        take(fleet, &message, now);
    }
    if (!fleet->closing) {
        arm(fleet);
        uv_idle_start(&fleet->again, on_again); /* The jobs come in between. */
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    drain(poll->data);
}

void co_fleet_send_all(struct co_fleet *fleet, const void *data, size_t size)
{
    const char *address;
    bool up;

    for (uint32_t i = 0; co_mesh_line(fleet->mesh, i, &address, &up); i++) {
        co_mesh_send(fleet->mesh, address, data, size); /* What is lost is said again. */
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct co_fleet *fleet = timer->data;
    co_ms now = co_agent_clock();

    co_fleet_coord_tick(fleet, now);
    if (now - fleet->beaten >= TURN_MS) {
        fleet->beaten = now;
        co_fleet_find(fleet, now);
        co_mesh_tick(fleet->mesh, now);
        co_fleet_say_rejects(fleet, now);
    }
    drain(fleet);
}

void co_fleet_uv_reply(struct co_fleet *fleet, const struct co_mesh_peer *peer, const char *json)
{
    co_mesh_reply(fleet->mesh, peer, json, strlen(json)); /* Who is gone has lost it. */
    if (!fleet->closing) {
        uv_idle_start(&fleet->again, on_again);
    }
}

/* ---- start and end ---- */

static int read_secrets(const char *path, struct co_fleet_secrets *ret_secrets, struct co_err *err)
{
    char text[4096];
    FILE *file;
    size_t size;
    int code;

    if (path[0] == '\0') {
        return 0;
    }
    file = fopen(path, "re");
    if (file == NULL) {
        co_err_sys(err, errno, "fleet.secret_file: open %s", path);
        err->code = CO_ECONFIG;
        return CO_ECONFIG;
    }
    size = fread(text, 1, sizeof text, file);
    fclose(file);
    code = co_fleet_secrets_read(text, size, ret_secrets, err);
    explicit_bzero(text, sizeof text);
    return code < 0 ? co_err_wrap(err, path) : 0;
}

static int open_mesh(struct co_fleet *fleet, struct co_err *err)
{
    const struct co_fleet_config *config = &fleet->agent->config.fleet;
    struct co_mesh_options options = {.name = config->name, .listen = config->listen};
    int code = read_secrets(config->secret_file, &options.secrets, err);

    code = code < 0 ? code : co_mesh_open(&options, &fleet->mesh, err);
    explicit_bzero(&options, sizeof options);
    return code;
}

static void start_handles(struct co_fleet *fleet)
{
    uv_loop_t *loop = &fleet->agent->loop;

    uv_poll_init(loop, &fleet->poll, co_mesh_fd(fleet->mesh));
    uv_timer_init(loop, &fleet->timer);
    uv_idle_init(loop, &fleet->again);
    fleet->poll.data = fleet->timer.data = fleet->again.data = fleet;
    fleet->handles = 3;
    uv_poll_start(&fleet->poll, UV_READABLE, on_poll);
    uv_timer_start(&fleet->timer, on_timer, 0, 0);
}

int co_fleet_uv_open(struct co_agent *agent, struct co_fleet **ret_fleet, struct co_err *err)
{
    const char *version = getenv("COHORT_TEST_FLEET_VERSION");
    struct co_fleet *fleet = calloc(1, sizeof *fleet);
    int code;

    if (fleet == NULL) {
        return co_err_set(err, CO_ENOMEM, "fleet: out of memory");
    }
    fleet->agent = agent;
    fleet->write_version = version != NULL && strcmp(version, "1") == 0 ? 1 : CO_FLEET_VERSION;
    code = open_mesh(fleet, err);
    code = code < 0 ? code : co_fleet_find_open(fleet, err);
    if (code < 0) {
        co_mesh_free(&fleet->mesh);
        free(fleet);
        return code;
    }
    co_fleet_coord_open(fleet);
    start_handles(fleet);
    co_agent_log(agent, CO_LOG_INFO,
                 CO_FIELDS("fleet", agent->config.fleet.name, "address", fleet->address),
                 "fleet: listening; its agents share out the workers of their queues");
    *ret_fleet = fleet;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct co_fleet *fleet = handle->data;

    if (--fleet->handles == 0) {
        free(fleet);
    }
}

void co_fleet_uv_close(struct co_fleet **fleet)
{
    struct co_fleet *old = *fleet;

    if (old == NULL) {
        return;
    }
    *fleet = NULL;
    co_fleet_coord_leave(old);
    old->closing = true;
    old->handles += co_fleet_find_close(old);
    uv_close((uv_handle_t *)&old->poll, on_closed);
    uv_close((uv_handle_t *)&old->timer, on_closed);
    uv_close((uv_handle_t *)&old->again, on_closed);
    co_mesh_free(&old->mesh);
}
