#include "controller/client_zmq.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/control.h"

struct co_client {
    void *context;
    void *dealer;
    pid_t pid;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

static int explain(int sys, const char *path, struct co_err *err)
{
    switch (sys) {
    case ENOENT:
    case ENOTDIR:
        return co_err_set(err, CO_EUNREACHABLE,
                          "no agent at %s: the socket does not exist; start one (cohort run --app "
                          "DIR), or say where it is: --control PATH or --run-dir DIR",
                          path);
    case ECONNREFUSED:
        return co_err_set(err, CO_EUNREACHABLE,
                          "no agent at %s: the one that made this socket has ended; start it "
                          "again, or say where another is: --control PATH",
                          path);
    case EACCES:
    case EPERM:
        return co_err_set(err, CO_EUNREACHABLE,
                          "the agent at %s belongs to another user: run cohort as that user", path);
    default:
        return co_err_set(err, CO_EUNREACHABLE, "cannot reach the agent at %s: %s", path,
                          strerror(sys));
    }
}

/* ZeroMQ would connect for ever and say nothing; the system knows at once. */
static int probe(const char *path, pid_t *ret_pid, struct co_err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    int fd;

    if (strlen(path) >= sizeof addr.sun_path) {
        return co_err_set(err, CO_EUNREACHABLE,
                          "no agent at %.200s: no socket can have a path of more than %zu bytes",
                          path, sizeof addr.sun_path - 1);
    }
    strcpy(addr.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return co_err_sys(err, errno, "make a socket");
    }
    if (connect(fd, (const struct sockaddr *)&addr, sizeof addr) < 0) {
        int sys = errno;
        close(fd);
        return explain(sys, path, err);
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) {
        *ret_pid = peer.pid;
    }
    close(fd);
    return 0;
}

static int fail_zmq(struct co_err *err, const char *what, const char *path)
{
    return co_err_set(err, CO_EIO, "%s %s: %s", what, path, zmq_strerror(errno));
}

static int make_dealer(struct co_client *client, struct co_err *err)
{
    char endpoint[sizeof client->path + 8];
    const int64_t max = CO_CONTROL_MSG_MAX;
    const int linger = 0;

    client->context = zmq_ctx_new();
    client->dealer = client->context != NULL ? zmq_socket(client->context, ZMQ_DEALER) : NULL;
    if (client->dealer == NULL) {
        return fail_zmq(err, "start ZeroMQ for", client->path);
    }
    zmq_setsockopt(client->dealer, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(client->dealer, ZMQ_MAXMSGSIZE, &max, sizeof max);
    snprintf(endpoint, sizeof endpoint, "ipc://%s", client->path);
    return zmq_connect(client->dealer, endpoint) == 0 ? 0
                                                      : fail_zmq(err, "connect to", client->path);
}

static int set_keys(void *dealer, const struct co_fleet_role_key *key)
{
    char public[CO_FLEET_Z85_SIZE];
    char private[CO_FLEET_Z85_SIZE];

    return zmq_z85_encode(private, key->client, sizeof key->client) != NULL &&
                   zmq_curve_public(public, private) == 0 &&
                   zmq_setsockopt(dealer, ZMQ_CURVE_SERVERKEY, key->server, sizeof key->server) ==
                       0 &&
                   zmq_setsockopt(dealer, ZMQ_CURVE_PUBLICKEY, public, sizeof public) == 0 &&
                   zmq_setsockopt(dealer, ZMQ_CURVE_SECRETKEY, private, sizeof private) == 0
               ? 0
               : CO_EIO;
}

static int make_remote(struct co_client *client, const char *address,
                       const struct co_fleet_role_key *key, struct co_err *err)
{
    const int linger = 0;
    const int64_t max = CO_CONTROL_MSG_MAX;
    char endpoint[sizeof client->path + 8];

    client->context = zmq_ctx_new();
    client->dealer = client->context != NULL ? zmq_socket(client->context, ZMQ_DEALER) : NULL;
    snprintf(endpoint, sizeof endpoint, "tcp://%s", client->path);
    if (client->dealer == NULL ||
        zmq_setsockopt(client->dealer, ZMQ_LINGER, &linger, sizeof linger) != 0 ||
        zmq_setsockopt(client->dealer, ZMQ_MAXMSGSIZE, &max, sizeof max) != 0 ||
        set_keys(client->dealer, key) < 0) {
        return fail_zmq(err, "start ZeroMQ for", client->path);
    }
    if (zmq_connect(client->dealer, endpoint) != 0) {
        return co_err_set(err, CO_EUSAGE, "--agent: %s is no address: write ADDR:PORT", address);
    }
    return 0;
}

int co_client_open_remote(const char *address, const struct co_fleet_role_key *key,
                          struct co_client **ret_client, struct co_err *err)
{
    struct co_client *client;
    int code;

    if (strlen(address) >= sizeof client->path) {
        return co_err_set(err, CO_EUSAGE, "--agent: %.80s is no address", address);
    }
    client = calloc(1, sizeof *client);
    if (client == NULL) {
        return co_err_set(err, CO_ENOMEM, "connect to %s: out of memory", address);
    }
    strcpy(client->path, address);
    code = make_remote(client, address, key, err);
    if (code < 0) {
        co_client_free(&client);
        return code;
    }
    *ret_client = client;
    return 0;
}

int co_client_public(const uint8_t secret[CO_FLEET_SECRET_SIZE], char ret_public[CO_FLEET_Z85_SIZE],
                     struct co_err *err)
{
    char private[CO_FLEET_Z85_SIZE];

    if (zmq_z85_encode(private, secret, CO_FLEET_SECRET_SIZE) == NULL ||
        zmq_curve_public(ret_public, private) != 0) {
        return co_err_set(err, CO_EIO, "this ZeroMQ was built without CURVE");
    }
    return 0;
}

int co_client_open(const char *path, struct co_client **ret_client, struct co_err *err)
{
    struct co_client *client;
    pid_t pid = 0;
    int code = probe(path, &pid, err);

    if (code < 0) {
        return code;
    }
    client = calloc(1, sizeof *client);
    if (client == NULL) {
        return co_err_set(err, CO_ENOMEM, "connect to %s: out of memory", path);
    }
    strcpy(client->path, path);
    client->pid = pid;
    code = make_dealer(client, err);
    if (code < 0) {
        co_client_free(&client);
        return code;
    }
    *ret_client = client;
    return 0;
}

pid_t co_client_pid(const struct co_client *client)
{
    return client->pid;
}

int co_client_send(struct co_client *client, const char *json, struct co_err *err)
{
    while (zmq_send(client->dealer, json, strlen(json), 0) < 0) {
        if (errno != EINTR) {
            return fail_zmq(err, "send to", client->path);
        }
    }
    return 0;
}

static int take(struct co_client *client, char **ret_json, size_t *ret_size, struct co_err *err)
{
    zmq_msg_t msg;
    char *json;
    size_t size;

    zmq_msg_init(&msg);
    if (zmq_msg_recv(&msg, client->dealer, 0) < 0) {
        zmq_msg_close(&msg);
        return fail_zmq(err, "receive from", client->path);
    }
    size = zmq_msg_size(&msg);
    json = malloc(size + 1);
    if (json != NULL) {
        memcpy(json, zmq_msg_data(&msg), size);
        json[size] = '\0';
    }
    zmq_msg_close(&msg);
    if (json == NULL) {
        return co_err_set(err, CO_ENOMEM, "an answer of %zu bytes: out of memory", size);
    }
    *ret_json = json;
    *ret_size = size;
    return 0;
}

int co_client_recv(struct co_client *client, co_ms timeout, char **ret_json, size_t *ret_size,
                   struct co_err *err)
{
    zmq_pollitem_t item = {.socket = client->dealer, .events = ZMQ_POLLIN};
    int n;

    do {
        n = zmq_poll(&item, 1, timeout > INT_MAX ? INT_MAX : (long)timeout);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return fail_zmq(err, "wait for", client->path);
    }
    if (n == 0) {
        return co_err_set(err, CO_EUNREACHABLE,
                          "the agent at %s (pid %d) did not answer within %" PRIu64
                          " ms: it may be stopped or very busy; wait longer with --timeout 60s",
                          client->path, (int)client->pid, timeout);
    }
    return take(client, ret_json, ret_size, err);
}

void co_client_free(struct co_client **client)
{
    if (*client == NULL) {
        return;
    }
    if ((*client)->dealer != NULL) {
        zmq_close((*client)->dealer);
    }
    if ((*client)->context != NULL) {
        zmq_ctx_term((*client)->context);
    }
    free(*client);
    *client = NULL;
}
