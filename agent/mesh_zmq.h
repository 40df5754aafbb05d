/* The fleet's wire: one CURVE ROUTER that listens and one CURVE DEALER for every address dialled.
 * Agents tell each other state over it (proto/fleet_frame.h), and people with a role's key ask the
 * questions of the control socket. What the bytes mean is the caller's; who may send them is
 * decided here, by a ZAP handler that stands before anything listens.
 *
 * One thread, the one that opened it, owns it. Nothing here waits. */

#ifndef CO_AGENT_MESH_ZMQ_H
#define CO_AGENT_MESH_ZMQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/fleet_key.h"
#include "proto/time.h"

#define CO_MESH_ADDRESS_SIZE 64     /* "[fe80::1]:7946", a literal always. */
#define CO_MESH_MSG_MAX (64u << 10) /* Larger ones end their connection. */
#define CO_MESH_DIALS_MAX 512       /* Addresses at once: peers, and seeds that are none. */
#define CO_MESH_REDIAL_MS 2000      /* A line that does not come up is made anew ... */
#define CO_MESH_REDIAL_MAX_MS 10000 /* ... ever later. */
#define CO_MESH_HANDSHAKE_MS 1000   /* Who has not shown his key by then is cut off. */
#define CO_MESH_PEER_MAX 16

struct co_mesh;

struct co_mesh_options {
    const char *name;                /* fleet.name, at most 64 bytes. */
    const char *listen;              /* "ADDR:PORT", a literal address; port 0: any. */
    struct co_fleet_secrets secrets; /* n 0: none; then only loopback addresses will do. */
};

/* Refused connections, since the start. */
struct co_mesh_rejects {
    uint64_t keys; /* A key that is nobody's: an outsider, an old secret. */
    uint64_t
        handshakes;  /* No handshake: another fleet or secret, no CURVE at all, a tampered line. */
    uint64_t frames; /* Messages no role may send, or in a shape that is none. */
    char last[CO_MESH_ADDRESS_SIZE]; /* Who was refused last, where that is known. */
};

/* Whoever sent a message, to be answered. Opaque; copy it as you like. */
struct co_mesh_peer {
    uint8_t size;
    uint8_t id[CO_MESH_PEER_MAX];
};

struct co_mesh_message {
    struct co_mesh_peer peer;
    enum co_fleet_role role;            /* Member, viewer or operator. */
    char address[CO_MESH_ADDRESS_SIZE]; /* Where it came from, without port. */
    const uint8_t *data;                /* Lent until the next co_mesh_recv(). */
    size_t size;
};

/* Listen. Errors: CO_ECONFIG when the address cannot be listened at, or may not be without a
 * secret; CO_EIO, CO_ENOMEM. */
int co_mesh_open(const struct co_mesh_options *options, struct co_mesh **ret_mesh,
                 struct co_err *err);

/* What is listened at, with its real port. */
const char *co_mesh_address(const struct co_mesh *mesh);

/* The descriptor to poll for reading. It tells of changes only: when it fires, and after sends,
 * call co_mesh_recv() until it returns 0. */
int co_mesh_fd(const struct co_mesh *mesh);

/* The next message: 1, or 0 when there is none. Answers handshakes on the way. */
int co_mesh_recv(struct co_mesh *mesh, struct co_mesh_message *ret_message);

/* Answer a message. Errors: CO_ENOTFOUND (gone), CO_EAGAIN (does not read), CO_EIO. */
int co_mesh_reply(struct co_mesh *mesh, const struct co_mesh_peer *peer, const void *data,
                  size_t size);

/* Keep a line to an address, for ever; nothing happens when there is one. Errors: CO_EFULL,
 * CO_ECONFIG (no literal address), CO_EIO. */
int co_mesh_dial(struct co_mesh *mesh, const char *address, co_ms now);
void co_mesh_hang_up(struct co_mesh *mesh, const char *address);
bool co_mesh_is_dialled(const struct co_mesh *mesh, const char *address);

/* Send on the line to an address. Errors: CO_ENOTFOUND (not dialled), CO_EAGAIN (not up, or it does
 * not read: the message is dropped, the next one says more), CO_EIO. */
int co_mesh_send(struct co_mesh *mesh, const char *address, const void *data, size_t size);

/* The n-th address dialled, and whether its line took the last message; false past the last. */
bool co_mesh_line(const struct co_mesh *mesh, uint32_t n, const char **ret_address, bool *ret_up);

/* Make lines anew that do not come up: several times a second. */
void co_mesh_tick(struct co_mesh *mesh, co_ms now);

const struct co_mesh_rejects *co_mesh_rejected(const struct co_mesh *mesh);
void co_mesh_count_frame(struct co_mesh *mesh, const char *address); /* The caller refused one. */

void co_mesh_free(struct co_mesh **mesh);

/* "ADDR:PORT" with a literal address and a port? */
bool co_mesh_is_address(const char *text);
bool co_mesh_is_loopback(const char *text);

#endif /* CO_AGENT_MESH_ZMQ_H */
