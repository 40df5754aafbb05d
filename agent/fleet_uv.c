#include "agent/fleet_uv.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent_uv.h"
#include "proto/fleet_frame.h"

#define BATCH 256
#define SEEDS_MAX 16
#define LOOK_EVERY 10000     /* DNS and files are looked at again, for ever: partitions heal. */
#define LOOK_ALONE 2000      /* Until somebody was found. */
#define ADDRESSES_EVERY 2000 /* Who I know of, for those who do not. */
#define FORGET_MS 60000      /* Dead for so long: no line is kept any more, unless it is a seed. */
#define REJECTS_EVERY 5000
#define FRAME_SIZE 2

enum seed_kind { SEED_ADDRESS, SEED_DNS, SEED_FILE };

struct seed {
    struct co_fleet *fleet;
    enum seed_kind kind;
    char name[CO_PATH_SIZE];
    char port[8];
    bool asking; /* The resolver's thread has it. */
    uv_getaddrinfo_t lookup;
};

struct peer {
    uint64_t id;
    uint64_t incarnation;
    uint64_t seq;
    co_ms heard;
    uint32_t lag_ms;
    uint8_t version;
    struct co_mesh_peer line; /* The connection its messages come by. */
    char address[CO_MESH_ADDRESS_SIZE];
};

struct co_fleet {
    struct co_agent *agent;
    struct co_mesh *mesh;
    uv_poll_t poll;
    uv_timer_t gossip;
    uv_idle_t again;
    uint32_t handles;
    bool closing;
    uint64_t incarnation;
    uint64_t seq;
    uint8_t write_version; /* Tests let an agent be one of the version before. */
    char address[CO_MESH_ADDRESS_SIZE];
    co_ms looked, said_addresses, said_rejects;
    uint64_t rejects_seen, ids_refused;
    uint32_t n_seeds;
    struct seed seeds[SEEDS_MAX];
    uint32_t n_peers;
    struct peer peers[CO_PEERS_MAX];
};

static void drain(struct co_fleet *fleet);

/* ---- peers ---- */

static struct peer *find_peer(struct co_fleet *fleet, uint64_t id)
{
    for (uint32_t i = 0; i < fleet->n_peers; i++) {
        if (fleet->peers[i].id == id) {
            return &fleet->peers[i];
        }
    }
    return NULL;
}

static const char *state_of(const struct peer *peer, co_ms now)
{
    co_ms silent = now - peer->heard;

    return silent < CO_FLEET_SUSPECT_MS ? "alive" : silent < CO_FLEET_FENCE_MS ? "suspect" : "dead";
}

static void forget_peer(struct co_fleet *fleet, struct peer *peer)
{
    co_mesh_hang_up(fleet->mesh, peer->address);
    *peer = fleet->peers[--fleet->n_peers];
}

/* An id belongs to whoever is heard under it: another life of it must wait for a lease of silence.
 * The same life on another line has but dialled anew. */
static bool is_claimed(const struct peer *peer, const struct co_fleet_msg *msg, co_ms now)
{
    return peer->incarnation != msg->incarnation && now - peer->heard < CO_FLEET_LEASE_MS;
}

static void meet(struct co_fleet *fleet, const struct co_fleet_msg *msg, const char *address,
                 co_ms now)
{
    struct peer *peer;

    if (fleet->n_peers == CO_PEERS_MAX) {
        return;
    }
    peer = &fleet->peers[fleet->n_peers++];
    *peer = (struct peer){.id = msg->from};
    snprintf(peer->address, sizeof peer->address, "%s", address);
    co_mesh_dial(fleet->mesh, address, now);
    co_agent_log(fleet->agent, CO_LOG_INFO, CO_FIELDS("fleet", fleet->agent->config.fleet.name),
                 "agent %016llx at %s joined", (unsigned long long)msg->from, address);
}

static void hear(struct co_fleet *fleet, const struct co_mesh_message *message,
                 const struct co_fleet_msg *msg, const char *address, co_ms now)
{
    struct peer *peer = find_peer(fleet, msg->from);

    if (msg->from == fleet->agent->id) {
        return; /* One of the seeds is this agent. */
    }
    if (peer != NULL && is_claimed(peer, msg, now)) {
        if (fleet->ids_refused++ == 0) {
            co_agent_log(fleet->agent, CO_LOG_ERROR, NULL,
                         "two agents claim the id %016llx; the one at %s is not listened to",
                         (unsigned long long)msg->from, message->address);
        }
        return;
    }
    if (peer == NULL) {
        if ((msg->kind == CO_FLEET_BEAT && (msg->beat.flags & CO_FLEET_LEAVING) != 0) ||
            !co_mesh_is_address(address)) {
            return;
        }
        meet(fleet, msg, address, now);
        peer = find_peer(fleet, msg->from);
    }
    if (peer == NULL || (peer->incarnation == msg->incarnation && msg->seq <= peer->seq)) {
        return; /* Late, or said before. */
    }
    peer->incarnation = msg->incarnation;
    peer->seq = msg->seq;
    peer->heard = now;
    peer->version = msg->version;
    peer->line = message->peer;
    if (msg->kind == CO_FLEET_BEAT) {
        peer->lag_ms = msg->beat.lag_ms;
        if ((msg->beat.flags & CO_FLEET_LEAVING) != 0) {
            co_agent_log(fleet->agent, CO_LOG_INFO, NULL, "agent %016llx left",
                         (unsigned long long)peer->id);
            forget_peer(fleet, peer);
        }
    }
}

/* "CA" and addresses, a line each: a message of the mesh itself, so that two who know but a third
 * find each other. */
static void learn(struct co_fleet *fleet, const uint8_t *data, size_t size, co_ms now)
{
    char text[CO_PEERS_MAX * CO_MESH_ADDRESS_SIZE + 1];
    char *at = text;
    char *line;

    size = size < sizeof text ? size : sizeof text - 1;
    memcpy(text, data, size);
    text[size] = '\0';
    while ((line = strsep(&at, "\n")) != NULL) {
        if (co_mesh_is_address(line) && strcmp(line, fleet->address) != 0) {
            co_mesh_dial(fleet->mesh, line, now); /* Full: those there are will do. */
        }
    }
}

static void take(struct co_fleet *fleet, const struct co_mesh_message *message, co_ms now)
{
    static struct co_fleet_msg msg;
    char address[CO_FLEET_ADDRESS_SIZE];

    if (message->size > 0 && message->data[0] == '{') {
        co_requests_remote(fleet->agent, message);
        return;
    }
    if (message->role == CO_FLEET_ROLE_MEMBER && message->size > FRAME_SIZE &&
        memcmp(message->data, "CA", FRAME_SIZE) == 0) {
        learn(fleet, message->data + FRAME_SIZE, message->size - FRAME_SIZE, now);
        return;
    }
    if (message->role != CO_FLEET_ROLE_MEMBER ||
        co_fleet_frame_read(message->data, message->size, &msg, address) < 0) {
        co_mesh_count_frame(fleet->mesh, message->address);
        return;
    }
    hear(fleet, message, &msg, address, now);
}

static void on_again(uv_idle_t *again)
{
    uv_idle_stop(again);
    drain(again->data);
}

static void drain(struct co_fleet *fleet)
{
    co_ms now = co_agent_clock();

    for (uint32_t i = 0; i < BATCH && !fleet->closing; i++) {
        struct co_mesh_message message;
        if (co_mesh_recv(fleet->mesh, &message) != 1) {
            return;
        }
        take(fleet, &message, now);
    }
    if (!fleet->closing) {
        uv_idle_start(&fleet->again, on_again); /* The jobs come in between. */
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    drain(poll->data);
}

/* ---- discovery ---- */

static void on_resolved(uv_getaddrinfo_t *lookup, int status, struct addrinfo *found)
{
    struct seed *seed = lookup->data;
    struct co_fleet *fleet = seed->fleet;

    seed->asking = false;
    for (struct addrinfo *at = found; status == 0 && at != NULL && !fleet->closing;
         at = at->ai_next) {
        char host[48];
        char address[CO_MESH_ADDRESS_SIZE];
        if (getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST) ==
            0) {
            snprintf(address, sizeof address, at->ai_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
                     seed->port);
            learn(fleet, (const uint8_t *)address, strlen(address), co_agent_clock());
        }
    }
    uv_freeaddrinfo(found);
    if (fleet->closing && --fleet->handles == 0) {
        free(fleet);
    }
}

static void look_dns(struct seed *seed)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};

    if (seed->asking) {
        return; /* A resolver that hangs has one thread of ours, not more. */
    }
    seed->lookup.data = seed;
    seed->asking = uv_getaddrinfo(&seed->fleet->agent->loop, &seed->lookup, on_resolved, seed->name,
                                  NULL, &hints) == 0;
}

static void look_file(const struct seed *seed)
{
    char text[16384];
    FILE *file = fopen(seed->name, "re");
    size_t size;

    if (file == NULL) {
        return; /* It may come yet. */
    }
    size = fread(text, 1, sizeof text, file);
    fclose(file);
    learn(seed->fleet, (const uint8_t *)text, size, co_agent_clock());
}

static void look(struct co_fleet *fleet, co_ms now)
{
    co_ms every = fleet->n_peers == 0 ? LOOK_ALONE : LOOK_EVERY;

    if (fleet->looked != 0 && now - fleet->looked < every + fleet->agent->id % (every / 4)) {
        return;
    }
    fleet->looked = now;
    for (uint32_t i = 0; i < fleet->n_seeds; i++) {
        struct seed *seed = &fleet->seeds[i];
        switch (seed->kind) {
        case SEED_ADDRESS:
            learn(fleet, (const uint8_t *)seed->name, strlen(seed->name), now);
            break;
        case SEED_DNS:
            look_dns(seed);
            break;
        case SEED_FILE:
            look_file(seed);
            break;
        }
    }
}

static int read_seed(struct co_fleet *fleet, const char *text, struct co_err *err)
{
    struct seed *seed = &fleet->seeds[fleet->n_seeds];
    const char *colon = strrchr(text, ':');

    if (fleet->n_seeds == SEEDS_MAX) {
        return co_err_set(err, CO_ECONFIG, "fleet.join: at most %d entries", SEEDS_MAX);
    }
    seed->fleet = fleet;
    if (strncmp(text, "dns:", 4) == 0 && colon > text + 4 &&
        strlen(colon + 1) < sizeof seed->port && colon[1] != '\0') {
        seed->kind = SEED_DNS;
        snprintf(seed->name, sizeof seed->name, "%.*s", (int)(colon - text - 4), text + 4);
        snprintf(seed->port, sizeof seed->port, "%s", colon + 1);
    } else if (strncmp(text, "file:", 5) == 0 && text[5] == '/') {
        seed->kind = SEED_FILE;
        snprintf(seed->name, sizeof seed->name, "%s", text + 5);
    } else if (co_mesh_is_address(text)) {
        snprintf(seed->name, sizeof seed->name, "%s", text);
    } else {
        return co_err_set(err, CO_ECONFIG,
                          "fleet.join: \"%.80s\": write ADDR:PORT with a literal address, "
                          "dns:NAME:PORT or file:/PATH",
                          text);
    }
    fleet->n_seeds++;
    return 0;
}

static int read_seeds(struct co_fleet *fleet, struct co_err *err)
{
    char list[CO_TEXT_SIZE];
    char *at = list;
    char *item;
    int code = 0;

    snprintf(list, sizeof list, "%s", fleet->agent->config.fleet.join);
    while (code == 0 && (item = strsep(&at, ",")) != NULL) {
        code = item[0] != '\0' ? read_seed(fleet, item, err) : 0;
    }
    return code;
}

/* Where others reach this agent: as told, else where it listens. */
static int read_advertise(struct co_fleet *fleet, struct co_err *err)
{
    const char *listened = co_mesh_address(fleet->mesh);
    const char *text = fleet->agent->config.fleet.advertise;
    const char *name = text;

    if (text[0] == '$') {
        text = getenv(name + 1);
        if (text == NULL || text[0] == '\0') {
            return co_err_set(err, CO_ECONFIG, "fleet.advertise: the variable %s is not set",
                              name + 1);
        }
    }
    if (text[0] == '\0') {
        text = listened;
    }
    snprintf(fleet->address, sizeof fleet->address, "%.63s", text);
    if (!co_mesh_is_address(fleet->address)) {
        bool bare6 = strchr(text, ':') != strrchr(text, ':') && text[0] != '[';
        snprintf(fleet->address, sizeof fleet->address, bare6 ? "[%.48s]%s" : "%.48s%s", text,
                 strrchr(listened, ':'));
    }
    if (!co_mesh_is_address(fleet->address) || strncmp(fleet->address, "0.0.0.0:", 8) == 0 ||
        strncmp(fleet->address, "[::]:", 5) == 0) {
        return co_err_set(err, CO_ECONFIG,
                          "fleet.advertise: others need an address to reach this agent at; write "
                          "this pod's ($POD_IP)");
    }
    return 0;
}

/* ---- saying ---- */

static void send_all(struct co_fleet *fleet, const void *data, size_t size)
{
    const char *address;
    bool up;

    for (uint32_t i = 0; co_mesh_line(fleet->mesh, i, &address, &up); i++) {
        co_mesh_send(fleet->mesh, address, data, size); /* What is lost is said again. */
    }
}

static void beat(struct co_fleet *fleet, uint32_t flags)
{
    static struct co_fleet_msg msg;
    static uint8_t frame[CO_FLEET_FRAME_MAX];
    size_t size;

    msg = (struct co_fleet_msg){.kind = CO_FLEET_BEAT,
                                .version = fleet->write_version,
                                .from = fleet->agent->id,
                                .incarnation = fleet->incarnation,
                                .seq = ++fleet->seq};
    msg.beat.flags = flags | (fleet->agent->core.draining ? CO_FLEET_DRAINING : 0);
    if (co_fleet_frame_write(&msg, fleet->write_version, fleet->address, frame, sizeof frame,
                             &size) == 0) {
        send_all(fleet, frame, size);
    }
}

static void say_addresses(struct co_fleet *fleet, co_ms now)
{
    static char text[CO_PEERS_MAX * CO_MESH_ADDRESS_SIZE + 4];
    size_t size = FRAME_SIZE;

    if (fleet->n_peers < 2 || now - fleet->said_addresses < ADDRESSES_EVERY) {
        return;
    }
    fleet->said_addresses = now;
    memcpy(text, "CA", FRAME_SIZE);
    for (uint32_t i = 0; i < fleet->n_peers; i++) {
        if (now - fleet->peers[i].heard < CO_FLEET_FENCE_MS) {
            size +=
                (size_t)snprintf(text + size, sizeof text - size, "%s\n", fleet->peers[i].address);
        }
    }
    send_all(fleet, text, size);
}

static void say_rejects(struct co_fleet *fleet, co_ms now)
{
    const struct co_mesh_rejects *rejects = co_mesh_rejected(fleet->mesh);
    uint64_t all = rejects->keys + rejects->handshakes + rejects->frames;
    char count[24];

    if (all == fleet->rejects_seen ||
        (fleet->said_rejects != 0 && now - fleet->said_rejects < REJECTS_EVERY)) {
        return;
    }
    snprintf(count, sizeof count, "%llu", (unsigned long long)(all - fleet->rejects_seen));
    fleet->said_rejects = now;
    fleet->rejects_seen = all;
    co_agent_log(fleet->agent, CO_LOG_WARN, CO_FIELDS("count", count, "last", rejects->last),
                 "fleet: refused who does not belong to it: another secret or fleet name, or no "
                 "agent at all; cohort peers counts them");
}

static void forget_dead(struct co_fleet *fleet, co_ms now)
{
    for (uint32_t i = 0; i < fleet->n_peers;) {
        if (now - fleet->peers[i].heard > FORGET_MS) {
            forget_peer(fleet, &fleet->peers[i]);
        } else {
            i++;
        }
    }
}

static void on_gossip(uv_timer_t *timer)
{
    struct co_fleet *fleet = timer->data;
    co_ms now = co_agent_clock();

    look(fleet, now);
    co_mesh_tick(fleet->mesh, now);
    beat(fleet, 0);
    say_addresses(fleet, now);
    say_rejects(fleet, now);
    forget_dead(fleet, now);
    drain(fleet);
}

void co_fleet_uv_reply(struct co_fleet *fleet, const struct co_mesh_peer *peer, const char *json)
{
    co_mesh_reply(fleet->mesh, peer, json, strlen(json)); /* Who is gone has lost it. */
    if (!fleet->closing) {
        uv_idle_start(&fleet->again, on_again);
    }
}

void co_fleet_uv_peers(const struct co_fleet *fleet, struct co_peers *ret)
{
    co_ms now = co_agent_clock();
    const struct co_mesh_rejects *rejects;
    const char *address;
    bool up;

    memset(ret, 0, sizeof *ret);
    if (fleet == NULL) {
        return;
    }
    snprintf(ret->fleet, sizeof ret->fleet, "%s", fleet->agent->config.fleet.name);
    snprintf(ret->id, sizeof ret->id, "%016llx", (unsigned long long)fleet->agent->id);
    snprintf(ret->address, sizeof ret->address, "%s", fleet->address);
    for (uint32_t i = 0; i < fleet->n_peers; i++) {
        const struct peer *peer = &fleet->peers[i];
        struct co_peers_peer *out = &ret->peers[ret->n_peers++];
        snprintf(out->id, sizeof out->id, "%016llx", (unsigned long long)peer->id);
        snprintf(out->address, sizeof out->address, "%s", peer->address);
        snprintf(out->state, sizeof out->state, "%s", state_of(peer, now));
        out->heard_ms = now - peer->heard;
        out->lag_ms = peer->lag_ms;
        out->version = peer->version;
    }
    while (ret->n_lines < CO_PEERS_LINES_MAX &&
           co_mesh_line(fleet->mesh, ret->n_lines, &address, &up)) {
        struct co_peers_line *line = &ret->lines[ret->n_lines++];
        snprintf(line->address, sizeof line->address, "%s", address);
        line->up = up;
    }
    rejects = co_mesh_rejected(fleet->mesh);
    ret->keys = rejects->keys;
    ret->handshakes = rejects->handshakes;
    ret->frames = rejects->frames;
    ret->ids = fleet->ids_refused;
    snprintf(ret->last, sizeof ret->last, "%s", rejects->last);
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
    uv_timer_init(loop, &fleet->gossip);
    uv_idle_init(loop, &fleet->again);
    fleet->poll.data = fleet->gossip.data = fleet->again.data = fleet;
    fleet->handles = 3;
    uv_poll_start(&fleet->poll, UV_READABLE, on_poll);
    uv_timer_start(&fleet->gossip, on_gossip, 0, CO_FLEET_GOSSIP_MS);
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
    fleet->incarnation = co_agent_wall_ms();
    fleet->write_version = version != NULL && strcmp(version, "1") == 0 ? 1 : CO_FLEET_VERSION;
    code = open_mesh(fleet, err);
    code = code < 0 ? code : read_seeds(fleet, err);
    code = code < 0 ? code : read_advertise(fleet, err);
    if (code < 0) {
        co_mesh_free(&fleet->mesh);
        free(fleet);
        return code;
    }
    start_handles(fleet);
    co_agent_log(agent, CO_LOG_INFO,
                 CO_FIELDS("fleet", agent->config.fleet.name, "address", fleet->address),
                 "fleet: listening; agents find each other, workers are not split among them yet");
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
    beat(old, CO_FLEET_LEAVING);
    old->closing = true;
    for (uint32_t i = 0; i < old->n_seeds; i++) {
        if (old->seeds[i].asking && uv_cancel((uv_req_t *)&old->seeds[i].lookup) != 0) {
            /* Its thread has it: the memory waits for it. */
        }
        old->handles += old->seeds[i].asking;
    }
    uv_close((uv_handle_t *)&old->poll, on_closed);
    uv_close((uv_handle_t *)&old->gossip, on_closed);
    uv_close((uv_handle_t *)&old->again, on_closed);
    co_mesh_free(&old->mesh);
}
