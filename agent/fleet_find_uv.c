/* Where the others are: seeds of the configuration, looked at for ever, and what they tell. */

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/fleet_impl_uv.h"

#define LOOK_EVERY 10000     /* DNS and files are looked at again, for ever: partitions heal. */
#define LOOK_ALONE 2000      /* Until somebody was found. */
#define ADDRESSES_EVERY 2000 /* Whom I know of, for those who do not. */
#define FRAME_SIZE 2

/* "CA" and addresses, a line each: a message of the mesh itself, so that two who know but a third
 * find each other. */
void co_fleet_learn(struct co_fleet *fleet, const uint8_t *data, size_t size, co_ms now)
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

static void on_resolved(uv_getaddrinfo_t *lookup, int status, struct addrinfo *found)
{
    struct co_fleet_seed *seed = lookup->data;
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
            co_fleet_learn(fleet, (const uint8_t *)address, strlen(address), co_agent_clock());
        }
    }
    uv_freeaddrinfo(found);
    if (fleet->closing && --fleet->handles == 0) {
        free(fleet);
    }
}

static void look_dns(struct co_fleet_seed *seed)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};

    if (seed->asking) {
        return; /* A resolver that hangs has one thread of ours, not more. */
    }
    seed->lookup.data = seed;
    seed->asking = uv_getaddrinfo(&seed->fleet->agent->loop, &seed->lookup, on_resolved, seed->name,
                                  NULL, &hints) == 0;
}

static void look_file(const struct co_fleet_seed *seed)
{
    char text[16384];
    FILE *file = fopen(seed->name, "re");
    size_t size;

    if (file == NULL) {
        return; /* It may come yet. */
    }
    size = fread(text, 1, sizeof text, file);
    fclose(file);
    co_fleet_learn(seed->fleet, (const uint8_t *)text, size, co_agent_clock());
}

static void look(struct co_fleet *fleet, co_ms now)
{
    co_ms every = fleet->n_peers == 0 ? LOOK_ALONE : LOOK_EVERY;

    if (fleet->looked != 0 && now - fleet->looked < every + fleet->agent->id % (every / 4)) {
        return;
    }
    fleet->looked = now;
    for (uint32_t i = 0; i < fleet->n_seeds; i++) {
        struct co_fleet_seed *seed = &fleet->seeds[i];
        switch (seed->kind) {
        case CO_FLEET_SEED_ADDRESS:
            co_fleet_learn(fleet, (const uint8_t *)seed->name, strlen(seed->name), now);
            break;
        case CO_FLEET_SEED_DNS:
            look_dns(seed);
            break;
        case CO_FLEET_SEED_FILE:
            look_file(seed);
            break;
        }
    }
}

static int read_seed(struct co_fleet *fleet, const char *text, struct co_err *err)
{
    struct co_fleet_seed *seed = &fleet->seeds[fleet->n_seeds];
    const char *colon = strrchr(text, ':');

    if (fleet->n_seeds == CO_FLEET_SEEDS_MAX) {
        return co_err_set(err, CO_ECONFIG, "fleet.join: at most %d entries", CO_FLEET_SEEDS_MAX);
    }
    seed->fleet = fleet;
    if (strncmp(text, "dns:", 4) == 0 && colon > text + 4 &&
        strlen(colon + 1) < sizeof seed->port && colon[1] != '\0') {
        seed->kind = CO_FLEET_SEED_DNS;
        snprintf(seed->name, sizeof seed->name, "%.*s", (int)(colon - text - 4), text + 4);
        snprintf(seed->port, sizeof seed->port, "%s", colon + 1);
    } else if (strncmp(text, "file:", 5) == 0 && text[5] == '/') {
        seed->kind = CO_FLEET_SEED_FILE;
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

static void say_addresses(struct co_fleet *fleet, co_ms now)
{
    static char text[CO_PEERS_MAX * CO_MESH_ADDRESS_SIZE + 4];
    size_t size = FRAME_SIZE;

    if (fleet->n_peers < 2 || now - fleet->said_addresses < ADDRESSES_EVERY) {
        return;
    }
    fleet->said_addresses = now;
    memcpy(text, CO_FLEET_ADDRESSES, FRAME_SIZE);
    for (uint32_t i = 0; i < fleet->n_peers; i++) {
        if (now - fleet->peers[i].heard < CO_FLEET_FENCE_MS) {
            size +=
                (size_t)snprintf(text + size, sizeof text - size, "%s\n", fleet->peers[i].address);
        }
    }
    co_fleet_send_all(fleet, text, size);
}

void co_fleet_find(struct co_fleet *fleet, co_ms now)
{
    look(fleet, now);
    say_addresses(fleet, now);
}

int co_fleet_find_open(struct co_fleet *fleet, struct co_err *err)
{
    int code = read_seeds(fleet, err);

    return code < 0 ? code : read_advertise(fleet, err);
}

uint32_t co_fleet_find_close(struct co_fleet *fleet)
{
    uint32_t asking = 0;

    for (uint32_t i = 0; i < fleet->n_seeds; i++) {
        if (fleet->seeds[i].asking) {
            uv_cancel((uv_req_t *)&fleet->seeds[i].lookup); /* Else its thread has the memory. */
            asking += 1;
        }
    }
    return asking;
}
