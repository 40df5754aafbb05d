/* What the files of the fleet on the loop share; nobody else includes it.
 *
 *     fleet_uv.c        the mesh's socket, start and end
 *     fleet_find_uv.c   seeds and addresses: where the others are
 *     fleet_peers_uv.c  who they are, and whom we refuse
 *     fleet_coord_uv.c  the coordinator: events in, messages and limits out
 *     fleet_words_uv.c  operators' words for all: overrides, and the view */

#ifndef CO_AGENT_FLEET_IMPL_UV_H
#define CO_AGENT_FLEET_IMPL_UV_H

#include <uv.h>

#include "agent/agent_uv.h"
#include "autoscale/coord.h"

#define CO_FLEET_SEEDS_MAX 16

enum co_fleet_seed_kind { CO_FLEET_SEED_ADDRESS, CO_FLEET_SEED_DNS, CO_FLEET_SEED_FILE };

struct co_fleet_seed {
    struct co_fleet *fleet;
    enum co_fleet_seed_kind kind;
    char name[CO_PATH_SIZE];
    char port[8];
    bool asking; /* The resolver's thread has it. */
    uv_getaddrinfo_t lookup;
};

struct co_fleet_peer {
    uint64_t id;
    uint64_t incarnation;
    co_ms heard;
    bool linked; /* It has been greeted on the line to it. */
    char address[CO_MESH_ADDRESS_SIZE];
};

/* A queue of the core as the coordinator knows it. */
struct co_fleet_unit {
    uint64_t id;   /* 0: not told. */
    uint64_t name; /* A hash: queues that are found change places. */
    bool has_rule, owned;
    bool told_load;
    uint32_t share;
    co_ms until;
    uint64_t done; /* Outcomes at the last look ... */
    co_ms looked;  /* ... then. */
    struct co_fleet_load load;
    struct co_fleet_rule rule;
};

struct co_fleet {
    struct co_agent *agent;
    struct co_mesh *mesh;
    uv_poll_t poll;
    uv_timer_t timer;
    uv_idle_t again;
    uint32_t handles;
    bool closing;
    bool reading_words;    /* Of state.db: they need not be written there. */
    uint8_t write_version; /* Tests let an agent be one of the version before. */
    char address[CO_MESH_ADDRESS_SIZE];
    co_ms looked, said_addresses, said_rejects, beaten, looked_loads;
    uint64_t rejects_seen, ids_refused;
    uint32_t n_seeds;
    struct co_fleet_seed seeds[CO_FLEET_SEEDS_MAX];
    uint32_t n_peers;
    struct co_fleet_peer peers[CO_PEERS_MAX];
    struct co_fleet_unit units[CO_QUEUES_MAX];
    struct co_coord coord; /* Large, and touched only as far as it is used. */
};

/* ---- fleet_uv.c ---- */
void co_fleet_send_all(struct co_fleet *fleet, const void *data, size_t size);

/* ---- fleet_find_uv.c ---- */
int co_fleet_find_open(struct co_fleet *fleet, struct co_err *err);
/* Look at seeds whose time has come; say whom we know of. */
void co_fleet_find(struct co_fleet *fleet, co_ms now);
/* "CA" and addresses, a line each: what another knows. */
void co_fleet_learn(struct co_fleet *fleet, const uint8_t *data, size_t size, co_ms now);
#define CO_FLEET_ADDRESSES "CA"
/* The loop will still come back for so many lookups. */
uint32_t co_fleet_find_close(struct co_fleet *fleet);

/* ---- fleet_peers_uv.c ---- */
struct co_fleet_peer *co_fleet_peer_find(struct co_fleet *fleet, uint64_t id);
/* The sender of a message that the coordinator took. */
void co_fleet_peer_heard(struct co_fleet *fleet, const struct co_fleet_msg *msg,
                         const char *address, co_ms now);
void co_fleet_peer_forget(struct co_fleet *fleet, uint64_t id);
void co_fleet_say_rejects(struct co_fleet *fleet, co_ms now);

/* ---- fleet_coord_uv.c ---- */
void co_fleet_coord_open(struct co_fleet *fleet);
void co_fleet_coord_take(struct co_fleet *fleet, const struct co_fleet_msg *msg,
                         const char *address, co_ms now);
/* A deadline has come, or numbers may have changed. */
void co_fleet_coord_tick(struct co_fleet *fleet, co_ms now);
/* When to come back. */
co_ms co_fleet_coord_deadline(const struct co_fleet *fleet);
void co_fleet_coord_leave(struct co_fleet *fleet);
/* The identity of a core's queue in the whole fleet. */
uint64_t co_fleet_coord_id(struct co_fleet *fleet, uint32_t queue);
/* CO_EFULL. */
int co_fleet_coord_override(struct co_fleet *fleet, const struct co_fleet_override *word);
/* Its index, or CO_ENOTFOUND. */
int co_fleet_coord_queue(const struct co_fleet *fleet, uint64_t id);

/* ---- fleet_words_uv.c ---- */
void co_fleet_words_open(struct co_fleet *fleet);
void co_fleet_words_heard(struct co_fleet *fleet, uint64_t queue);

#endif /* CO_AGENT_FLEET_IMPL_UV_H */
