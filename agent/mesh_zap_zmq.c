#include "agent/mesh_zap_zmq.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#define PARTS 8

/* A question: version, request id, domain, address, routing id, mechanism, credentials. */
enum {
    PART_VERSION,
    PART_ID,
    PART_DOMAIN,
    PART_ADDRESS,
    PART_ROUTING,
    PART_MECHANISM,
    PART_KEY,
};

struct question {
    size_t n;
    size_t size[PARTS];
    uint8_t part[PARTS][256];
};

int co_mesh_zap_pair(const uint8_t secret[CO_FLEET_SECRET_SIZE], const char *name,
                     enum co_fleet_role role, char ret_public[CO_FLEET_Z85_SIZE],
                     char ret_secret[CO_FLEET_Z85_SIZE])
{
    uint8_t key[CO_FLEET_SECRET_SIZE];

    co_fleet_key_derive(secret, name, role, key);
    if (zmq_z85_encode(ret_secret, key, sizeof key) == NULL ||
        zmq_curve_public(ret_public, ret_secret) != 0) {
        return CO_EIO;
    }
    explicit_bzero(key, sizeof key);
    return 0;
}

static int know(struct co_mesh_zap *zap, const struct co_mesh_options *options,
                const uint8_t *secret)
{
    for (enum co_fleet_role role = CO_FLEET_ROLE_MEMBER; role < CO_FLEET_ROLES; role++) {
        char public[CO_FLEET_Z85_SIZE];
        char private[CO_FLEET_Z85_SIZE];
        if (co_mesh_zap_pair(secret, options->name, role, public, private) < 0 ||
            zmq_z85_decode(zap->guests[zap->n].key, public) == NULL) {
            return CO_EIO;
        }
        explicit_bzero(private, sizeof private);
        zap->guests[zap->n++].role = role;
    }
    return 0;
}

int co_mesh_zap_open(struct co_mesh_zap *zap, void *context, const struct co_mesh_options *options,
                     struct co_err *err)
{
    static const uint8_t none[CO_FLEET_SECRET_SIZE];
    const int linger = 0;
    int code = options->secrets.n == 0 ? know(zap, options, none) : 0;

    for (uint32_t i = 0; code == 0 && i < options->secrets.n; i++) {
        code = know(zap, options, options->secrets.secret[i]);
    }
    if (code < 0) {
        return co_err_set(err, CO_EIO, "fleet: this ZeroMQ was built without CURVE");
    }
    zap->socket = zmq_socket(context, ZMQ_REP);
    if (zap->socket == NULL ||
        zmq_setsockopt(zap->socket, ZMQ_LINGER, &linger, sizeof linger) != 0 ||
        zmq_bind(zap->socket, "inproc://zeromq.zap.01") != 0) {
        return co_err_set(err, CO_EIO, "fleet: check keys: %s", zmq_strerror(errno));
    }
    return 0;
}

static bool take(void *socket, struct question *question)
{
    int more = 1;
    size_t size = sizeof more;

    question->n = 0;
    while (more != 0) {
        uint8_t rest[256];
        bool fits = question->n < PARTS;
        int got =
            zmq_recv(socket, fits ? question->part[question->n] : rest, sizeof rest, ZMQ_DONTWAIT);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return false;
        }
        if (fits) { /* A longer part is cut to 256 bytes and fails every comparison. */
            question->size[question->n++] = (size_t)got;
        }
        zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size);
    }
    return true;
}

static const char *check(const struct co_mesh_zap *zap, const struct question *question)
{
    if (question->n != PART_KEY + 1 || question->size[PART_MECHANISM] != 5 ||
        memcmp(question->part[PART_MECHANISM], "CURVE", 5) != 0 || question->size[PART_KEY] != 32) {
        return NULL;
    }
    for (uint32_t i = 0; i < zap->n; i++) {
        if (memcmp(zap->guests[i].key, question->part[PART_KEY], 32) == 0) {
            return co_fleet_role_name(zap->guests[i].role);
        }
    }
    return NULL;
}

static void say(void *socket, const void *data, size_t size, bool more)
{
    while (zmq_send(socket, data, size, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) < 0 &&
           errno == EINTR) {
    }
}

void co_mesh_zap_answer(struct co_mesh_zap *zap, struct co_mesh_rejects *rejects)
{
    struct question question;

    while (take(zap->socket, &question)) {
        const char *role = check(zap, &question);
        if (role == NULL) {
            size_t size = question.n > PART_ADDRESS ? question.size[PART_ADDRESS] : 0;
            size = size < sizeof rejects->last ? size : sizeof rejects->last - 1;
            rejects->keys++;
            memcpy(rejects->last, question.part[PART_ADDRESS], size);
            rejects->last[size] = '\0';
        }
        say(zap->socket, "1.0", 3, true);
        say(zap->socket, question.part[PART_ID], question.n > PART_ID ? question.size[PART_ID] : 0,
            true);
        say(zap->socket, role != NULL ? "200" : "400", 3, true);
        say(zap->socket, "", 0, true);
        say(zap->socket, role != NULL ? role : "", role != NULL ? strlen(role) : 0, true);
        say(zap->socket, "", 0, false);
    }
}

void co_mesh_zap_close(struct co_mesh_zap *zap)
{
    if (zap->socket != NULL) {
        zmq_close(zap->socket);
        zap->socket = NULL;
    }
}
