/* What an agent knows of its fleet, for `cohort peers`:
 *
 *     {"fleet", "id", "address", "peers":[{"id","address","state","heard_ms","lag_ms","version"}],
 *      "lines":[{"address","up"}], "rejected":{"keys","handshakes","frames","ids","last"}}
 *
 * state is alive, suspect (silent for 1.5 s) or dead (2.5 s). */

#ifndef CO_PROTO_PEERS_H
#define CO_PROTO_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/time.h"

#define CO_PEERS_MAX 256
#define CO_PEERS_LINES_MAX 512

struct co_peers_peer {
    char id[20];
    char address[64];
    char state[12];
    co_ms heard_ms; /* Ago. */
    co_ms lag_ms;
    uint32_t version;
};

struct co_peers_line {
    char address[64];
    bool up;
};

struct co_peers {
    char fleet[64]; /* "": none. */
    char id[20];
    char address[64];
    uint32_t n_peers;
    struct co_peers_peer peers[CO_PEERS_MAX];
    uint32_t n_lines;
    struct co_peers_line lines[CO_PEERS_LINES_MAX];
    uint64_t keys, handshakes, frames, ids;
    char last[64];
};

/* malloc'd; NULL: out of memory. */
char *co_peers_to_json(const struct co_peers *peers);
/* Errors: CO_EMALFORMED. */
int co_peers_from_json(const char *json, struct co_peers *ret_peers, struct co_err *err);

#endif /* CO_PROTO_PEERS_H */
