#include "agent/mesh_zmq.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zmq.h>

#include "agent/mesh_zap_zmq.h"

#define LINGER_MS 200 /* For the last word of an agent that leaves. */
#define HWM 64        /* State, not history: what does not fit is said anew 200 ms later. */
#define MONITOR "inproc://cohort-mesh-monitor"
#define NOFILE 4096u

struct line {
    char address[CO_MESH_ADDRESS_SIZE];
    void *dealer;
    bool up;
    bool tried;        /* A message was offered since it was made. */
    uint32_t attempts; /* Without coming up; which of two secrets is tried next goes by it. */
    co_ms made;
};

struct co_mesh {
    void *context;
    void *router;
    void *monitor;
    int epoll;
    struct co_mesh_options options;
    char name[72];
    char address[CO_MESH_ADDRESS_SIZE];
    struct co_mesh_zap zap;
    struct co_mesh_rejects rejects;
    zmq_msg_t message;
    bool has_message;
    uint32_t n_lines;
    struct line lines[CO_MESH_DIALS_MAX];
};

/* ---- addresses ---- */

static bool split(const char *text, char host[CO_MESH_ADDRESS_SIZE], long *ret_port)
{
    const char *colon = strrchr(text, ':');
    size_t size = colon != NULL ? (size_t)(colon - text) : 0;
    char *end;

    if (size == 0 || strlen(text) >= CO_MESH_ADDRESS_SIZE || colon[1] < '0' || colon[1] > '9') {
        return false;
    }
    *ret_port = strtol(colon + 1, &end, 10);
    if (*end != '\0' || *ret_port > 65535) {
        return false;
    }
    if (text[0] == '[' && text[size - 1] == ']') {
        text++;
        size -= 2;
    }
    memcpy(host, text, size);
    host[size] = '\0';
    return true;
}

bool co_mesh_is_address(const char *text)
{
    char host[CO_MESH_ADDRESS_SIZE];
    struct in6_addr addr;
    long port;

    return split(text, host, &port) && (text[0] == '[' ? inet_pton(AF_INET6, host, &addr)
                                                       : inet_pton(AF_INET, host, &addr)) == 1;
}

bool co_mesh_is_loopback(const char *text)
{
    char host[CO_MESH_ADDRESS_SIZE];
    long port;

    return split(text, host, &port) && (strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0);
}

/* ---- sockets ---- */

static int fail_zmq(struct co_err *err, const char *what)
{
    return co_err_set(err, CO_EIO, "fleet: %s: %s", what, zmq_strerror(errno));
}

static int set_ints(void *socket, const int (*options)[2], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (zmq_setsockopt(socket, options[i][0], &options[i][1], sizeof options[i][1]) != 0) {
            return CO_EIO;
        }
    }
    return 0;
}

static int set_common(void *socket, const char *address)
{
    const int options[][2] = {
        {ZMQ_LINGER, LINGER_MS},
        {ZMQ_SNDHWM, HWM},
        {ZMQ_RCVHWM, HWM},
        {ZMQ_HANDSHAKE_IVL, CO_MESH_HANDSHAKE_MS},
        {ZMQ_HEARTBEAT_IVL, 500},
        {ZMQ_HEARTBEAT_TIMEOUT, 2000},
        {ZMQ_IPV6, address[0] == '['},
    };
    const int64_t max = CO_MESH_MSG_MAX;

    if (zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &max, sizeof max) != 0) {
        return CO_EIO;
    }
    return set_ints(socket, options, sizeof options / sizeof options[0]);
}

static const uint8_t *secret_of(const struct co_mesh *mesh, uint32_t n)
{
    static const uint8_t none[CO_FLEET_SECRET_SIZE];

    return mesh->options.secrets.n == 0 ? none
                                        : mesh->options.secrets.secret[n % mesh->options.secrets.n];
}

static int make_router(struct co_mesh *mesh, struct co_err *err)
{
    const int options[][2] = {{ZMQ_ROUTER_MANDATORY, 1}, {ZMQ_CURVE_SERVER, 1}};
    char public[CO_FLEET_Z85_SIZE];
    char private[CO_FLEET_Z85_SIZE];
    int code =
        co_mesh_zap_pair(secret_of(mesh, 0), mesh->name, CO_FLEET_ROLE_SERVER, public, private);

    mesh->router = zmq_socket(mesh->context, ZMQ_ROUTER);
    if (code < 0 || mesh->router == NULL || set_common(mesh->router, mesh->options.listen) < 0 ||
        set_ints(mesh->router, options, 2) < 0 ||
        zmq_setsockopt(mesh->router, ZMQ_CURVE_SECRETKEY, private, CO_FLEET_Z85_SIZE) != 0 ||
        zmq_setsockopt(mesh->router, ZMQ_ZAP_DOMAIN, "cohort", 6) != 0) {
        return fail_zmq(err, "make the listening socket");
    }
    explicit_bzero(private, sizeof private);
    return 0;
}

/* Handshakes that fail are seen by nobody else: the one who fails cannot be told why. */
static int make_monitor(struct co_mesh *mesh, struct co_err *err)
{
    const int linger = 0;

    if (zmq_socket_monitor(
            mesh->router, MONITOR,
            ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) != 0) {
        return fail_zmq(err, "watch handshakes");
    }
    mesh->monitor = zmq_socket(mesh->context, ZMQ_PAIR);
    if (mesh->monitor == NULL ||
        zmq_setsockopt(mesh->monitor, ZMQ_LINGER, &linger, sizeof linger) != 0 ||
        zmq_connect(mesh->monitor, MONITOR) != 0) {
        return fail_zmq(err, "watch handshakes");
    }
    return 0;
}

static int bind_router(struct co_mesh *mesh, struct co_err *err)
{
    char endpoint[CO_MESH_ADDRESS_SIZE + 16];
    size_t size = sizeof endpoint;

    snprintf(endpoint, sizeof endpoint, "tcp://%s", mesh->options.listen);
    if (zmq_bind(mesh->router, endpoint) != 0) {
        return co_err_set(err, errno == EADDRINUSE ? CO_EBUSY : CO_ECONFIG,
                          "fleet.listen: listen at %s: %s", mesh->options.listen,
                          zmq_strerror(errno));
    }
    if (zmq_getsockopt(mesh->router, ZMQ_LAST_ENDPOINT, endpoint, &size) != 0) {
        return fail_zmq(err, "ask for the address");
    }
    snprintf(mesh->address, sizeof mesh->address, "%.*s", CO_MESH_ADDRESS_SIZE - 1, endpoint + 6);
    return 0;
}

static int watch(struct co_mesh *mesh, void *socket, struct co_err *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    size_t size = sizeof event.data.fd;

    if (zmq_getsockopt(socket, ZMQ_FD, &event.data.fd, &size) != 0) {
        return fail_zmq(err, "get a descriptor");
    }
    if (epoll_ctl(mesh->epoll, EPOLL_CTL_ADD, event.data.fd, &event) != 0) {
        return co_err_sys(err, errno, "fleet: watch a descriptor");
    }
    return 0;
}

static int make_all(struct co_mesh *mesh, struct co_err *err)
{
    int code;

    mesh->context = zmq_ctx_new();
    if (mesh->context == NULL) {
        return fail_zmq(err, "start ZeroMQ");
    }
    zmq_ctx_set(mesh->context, ZMQ_MAX_SOCKETS, 2 * CO_MESH_DIALS_MAX);
    code = co_mesh_zap_open(&mesh->zap, mesh->context, &mesh->options, err);
    code = code < 0 ? code : make_router(mesh, err);
    code = code < 0 ? code : make_monitor(mesh, err);
    code = code < 0 ? code : bind_router(mesh, err);
    code = code < 0 ? code : watch(mesh, mesh->zap.socket, err);
    code = code < 0 ? code : watch(mesh, mesh->router, err);
    return code < 0 ? code : watch(mesh, mesh->monitor, err);
}

/* A thousand idle strangers must not take the last descriptor: ZeroMQ's accept would spin. */
static void raise_nofile(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < NOFILE) {
        limit.rlim_cur = limit.rlim_max < NOFILE ? limit.rlim_max : NOFILE;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int check_options(const struct co_mesh_options *options, struct co_err *err)
{
    if (!co_mesh_is_address(options->listen)) {
        return co_err_set(err, CO_ECONFIG,
                          "fleet.listen: %.64s is no address: write 0.0.0.0:7946 or [::]:7946",
                          options->listen);
    }
    if (options->secrets.n == 0 && !co_mesh_is_loopback(options->listen)) {
        return co_err_set(err, CO_ECONFIG,
                          "fleet.secret_file: without a secret anybody could join, so %.64s is not "
                          "listened at; make one with cohort keygen, or listen at 127.0.0.1:7946",
                          options->listen);
    }
    return 0;
}

int co_mesh_open(const struct co_mesh_options *options, struct co_mesh **ret_mesh,
                 struct co_err *err)
{
    struct co_mesh *mesh;
    sigset_t all;
    sigset_t old;
    int code = check_options(options, err);

    if (code < 0) {
        return code;
    }
    mesh = calloc(1, sizeof *mesh);
    if (mesh == NULL) {
        return co_err_set(err, CO_ENOMEM, "fleet: out of memory");
    }
    mesh->options = *options;
    snprintf(mesh->name, sizeof mesh->name, "%s", options->name);
    mesh->options.name = mesh->name;
    mesh->epoll = epoll_create1(EPOLL_CLOEXEC);
    raise_nofile();
    sigfillset(&all); /* ZeroMQ's threads inherit it: signals are the loop's alone. */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    code = mesh->epoll >= 0 ? make_all(mesh, err) : co_err_sys(err, errno, "fleet: make an epoll");
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    mesh->options.listen = mesh->address;
    if (code < 0) {
        co_mesh_free(&mesh);
        return code;
    }
    *ret_mesh = mesh;
    return 0;
}

const char *co_mesh_address(const struct co_mesh *mesh)
{
    return mesh->address;
}

int co_mesh_fd(const struct co_mesh *mesh)
{
    return mesh->epoll;
}

const struct co_mesh_rejects *co_mesh_rejected(const struct co_mesh *mesh)
{
    return &mesh->rejects;
}

void co_mesh_count_frame(struct co_mesh *mesh, const char *address)
{
    mesh->rejects.frames++;
    snprintf(mesh->rejects.last, sizeof mesh->rejects.last, "%.63s", address);
}

/* ---- receiving ---- */

static void read_monitor(struct co_mesh *mesh)
{
    uint8_t part[256];
    int more = 0;
    size_t size = sizeof more;
    int got;

    while ((got = zmq_recv(mesh->monitor, part, sizeof part, ZMQ_DONTWAIT)) >= 0 ||
           errno == EINTR) {
        if (got < 0) {
            continue;
        }
        zmq_getsockopt(mesh->monitor, ZMQ_RCVMORE, &more, &size);
        mesh->rejects.handshakes += more != 0; /* The first of two parts. */
    }
}

static bool recv_frame(struct co_mesh *mesh)
{
    int got;

    do {
        got = zmq_msg_recv(&mesh->message, mesh->router, ZMQ_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got >= 0;
}

static bool read_role(const zmq_msg_t *message, enum co_fleet_role *ret_role)
{
    const char *user = zmq_msg_gets(message, "User-Id");

    for (enum co_fleet_role role = CO_FLEET_ROLE_MEMBER; user != NULL && role < CO_FLEET_ROLES;
         role++) {
        if (strcmp(user, co_fleet_role_name(role)) == 0) {
            *ret_role = role;
            return true;
        }
    }
    return false;
}

static void drop_rest(struct co_mesh *mesh)
{
    while (zmq_msg_more(&mesh->message) && recv_frame(mesh)) {
    }
    mesh->rejects.frames++;
}

/* [routing id][data]; 1 taken, 0 nothing there, CO_EMALFORMED another shape. */
static int recv_message(struct co_mesh *mesh, struct co_mesh_message *ret)
{
    const char *address;
    size_t size;

    if (!recv_frame(mesh)) {
        return 0;
    }
    size = zmq_msg_size(&mesh->message);
    if (size > sizeof ret->peer.id || !zmq_msg_more(&mesh->message)) {
        drop_rest(mesh);
        return CO_EMALFORMED;
    }
    ret->peer.size = (uint8_t)size;
    memcpy(ret->peer.id, zmq_msg_data(&mesh->message), size);
    if (!recv_frame(mesh)) {
        return 0;
    }
    if (zmq_msg_more(&mesh->message) || !read_role(&mesh->message, &ret->role)) {
        drop_rest(mesh);
        return CO_EMALFORMED;
    }
    address = zmq_msg_gets(&mesh->message, "Peer-Address");
    snprintf(ret->address, sizeof ret->address, "%.63s", address != NULL ? address : "");
    ret->data = zmq_msg_data(&mesh->message);
    ret->size = zmq_msg_size(&mesh->message);
    return 1;
}

int co_mesh_recv(struct co_mesh *mesh, struct co_mesh_message *ret_message)
{
    int code;

    co_mesh_zap_answer(&mesh->zap, &mesh->rejects);
    read_monitor(mesh);
    do {
        if (mesh->has_message) {
            zmq_msg_close(&mesh->message);
        }
        zmq_msg_init(&mesh->message);
        mesh->has_message = true;
        code = recv_message(mesh, ret_message);
    } while (code == CO_EMALFORMED);
    return code;
}

/* ---- sending ---- */

static int send_frame(void *socket, const void *data, size_t size, int flags)
{
    int r;

    do {
        r = zmq_send(socket, data, size, ZMQ_DONTWAIT | flags);
    } while (r < 0 && errno == EINTR);
    return r >= 0 ? 0 : errno == EAGAIN ? CO_EAGAIN : errno == EHOSTUNREACH ? CO_ENOTFOUND : CO_EIO;
}

int co_mesh_reply(struct co_mesh *mesh, const struct co_mesh_peer *peer, const void *data,
                  size_t size)
{
    int code = send_frame(mesh->router, peer->id, peer->size, ZMQ_SNDMORE);

    return code < 0 ? code : send_frame(mesh->router, data, size, 0);
}

static struct line *find_line(const struct co_mesh *mesh, const char *address)
{
    for (uint32_t i = 0; i < mesh->n_lines; i++) {
        if (strcmp(mesh->lines[i].address, address) == 0) {
            return (struct line *)(uintptr_t)&mesh->lines[i];
        }
    }
    return NULL;
}

/* The side that dials knows which key the other must have: nobody in between can pose as it. */
static int set_keys(struct co_mesh *mesh, void *dealer, uint32_t attempt)
{
    char public[CO_FLEET_Z85_SIZE];
    char private[CO_FLEET_Z85_SIZE];
    char server[CO_FLEET_Z85_SIZE];
    const uint8_t *secret = secret_of(mesh, attempt);

    if (co_mesh_zap_pair(secret, mesh->name, CO_FLEET_ROLE_SERVER, server, private) < 0 ||
        co_mesh_zap_pair(secret, mesh->name, CO_FLEET_ROLE_MEMBER, public, private) < 0 ||
        zmq_setsockopt(dealer, ZMQ_CURVE_SERVERKEY, server, sizeof server) != 0 ||
        zmq_setsockopt(dealer, ZMQ_CURVE_PUBLICKEY, public, sizeof public) != 0 ||
        zmq_setsockopt(dealer, ZMQ_CURVE_SECRETKEY, private, sizeof private) != 0) {
        return CO_EIO;
    }
    explicit_bzero(private, sizeof private);
    return 0;
}

static int make_line(struct co_mesh *mesh, struct line *line, co_ms now)
{
    const int options[][2] = {
        {ZMQ_IMMEDIATE, 1}, /* No queue for who is not there: old news would come all at once. */
        {ZMQ_RECONNECT_IVL, 200},
        {ZMQ_RECONNECT_IVL_MAX, 2000},
        {ZMQ_CONNECT_TIMEOUT, CO_MESH_REDIAL_MS},
    };
    char endpoint[CO_MESH_ADDRESS_SIZE + 8];

    line->made = now;
    line->up = false;
    line->tried = false;
    line->dealer = zmq_socket(mesh->context, ZMQ_DEALER);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", line->address);
    if (line->dealer == NULL || set_common(line->dealer, line->address) < 0 ||
        set_ints(line->dealer, options, sizeof options / sizeof options[0]) < 0 ||
        set_keys(mesh, line->dealer, line->attempts) < 0 ||
        zmq_connect(line->dealer, endpoint) != 0) {
        return CO_EIO;
    }
    return 0;
}

static void close_line(struct line *line)
{
    if (line->dealer != NULL) {
        zmq_close(line->dealer);
        line->dealer = NULL;
    }
}

int co_mesh_dial(struct co_mesh *mesh, const char *address, co_ms now)
{
    struct line *line;

    if (find_line(mesh, address) != NULL) {
        return 0;
    }
    if (!co_mesh_is_address(address)) {
        return CO_ECONFIG;
    }
    if (mesh->n_lines == CO_MESH_DIALS_MAX) {
        return CO_EFULL;
    }
    line = &mesh->lines[mesh->n_lines++];
    *line = (struct line){0};
    strcpy(line->address, address);
    return make_line(mesh, line, now);
}

void co_mesh_hang_up(struct co_mesh *mesh, const char *address)
{
    struct line *line = find_line(mesh, address);

    if (line != NULL) {
        close_line(line);
        *line = mesh->lines[--mesh->n_lines];
    }
}

bool co_mesh_is_dialled(const struct co_mesh *mesh, const char *address)
{
    return find_line(mesh, address) != NULL;
}

int co_mesh_send(struct co_mesh *mesh, const char *address, const void *data, size_t size)
{
    struct line *line = find_line(mesh, address);
    int code;

    if (line == NULL) {
        return CO_ENOTFOUND;
    }
    if (line->dealer == NULL) {
        return CO_EAGAIN;
    }
    code = send_frame(line->dealer, data, size, 0);
    line->tried = true;
    line->up = code == 0;
    if (line->up) {
        line->attempts %= CO_FLEET_SECRETS_MAX; /* Which secret it was stays known. */
    }
    return code;
}

bool co_mesh_line(const struct co_mesh *mesh, uint32_t n, const char **ret_address, bool *ret_up)
{
    if (n >= mesh->n_lines) {
        return false;
    }
    *ret_address = mesh->lines[n].address;
    *ret_up = mesh->lines[n].up;
    return true;
}

/* After a handshake that failed ZeroMQ does not dial again by itself; and it may be the other
 * secret that is spoken there. */
void co_mesh_tick(struct co_mesh *mesh, co_ms now)
{
    for (uint32_t i = 0; i < mesh->n_lines; i++) {
        struct line *line = &mesh->lines[i];
        co_ms wait = CO_MESH_REDIAL_MS * (1 + line->attempts / 2);
        wait = wait < CO_MESH_REDIAL_MAX_MS ? wait : CO_MESH_REDIAL_MAX_MS;
        if (line->up) {
            line->made = now;
        } else if (now - line->made >= wait) {
            close_line(line);
            line->attempts++;
            if (make_line(mesh, line, now) < 0) {
                close_line(line); /* Tried again at the next turn. */
            }
        }
    }
}

void co_mesh_free(struct co_mesh **mesh)
{
    struct co_mesh *old = *mesh;

    if (old == NULL) {
        return;
    }
    for (uint32_t i = 0; i < old->n_lines; i++) {
        close_line(&old->lines[i]);
    }
    if (old->has_message) {
        zmq_msg_close(&old->message);
    }
    if (old->monitor != NULL) {
        zmq_close(old->monitor);
    }
    if (old->router != NULL) {
        zmq_socket_monitor(old->router, NULL, 0);
        zmq_close(old->router);
    }
    co_mesh_zap_close(&old->zap);
    if (old->context != NULL) {
        while (zmq_ctx_term(old->context) != 0 && errno == EINTR) {
        }
    }
    if (old->epoll >= 0) {
        close(old->epoll);
    }
    explicit_bzero(old, sizeof *old);
    free(old);
    *mesh = NULL;
}
