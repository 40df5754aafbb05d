#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/peers.h"

static json_t *write_peers(const struct co_peers *peers)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < peers->n_peers; i++) {
        const struct co_peers_peer *peer = &peers->peers[i];
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "id", peer->id, "address", peer->address,
                      "state", peer->state, "heard_ms", (json_int_t)peer->heard_ms, "lag_ms",
                      (json_int_t)peer->lag_ms, "version", (json_int_t)peer->version));
    }
    return list;
}

static json_t *write_lines(const struct co_peers *peers)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < peers->n_lines; i++) {
        json_array_append_new(list, json_pack("{s:s, s:b}", "address", peers->lines[i].address,
                                              "up", (int)peers->lines[i].up));
    }
    return list;
}

char *co_peers_to_json(const struct co_peers *peers)
{
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:o, s:o, s:{s:I, s:I, s:I, s:I, s:s}}", "fleet", peers->fleet,
                  "id", peers->id, "address", peers->address, "peers", write_peers(peers), "lines",
                  write_lines(peers), "rejected", "keys", (json_int_t)peers->keys, "handshakes",
                  (json_int_t)peers->handshakes, "frames", (json_int_t)peers->frames, "ids",
                  (json_int_t)peers->ids, "last", peers->last);
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;

    json_decref(root);
    return text;
}

static void take_text(const json_t *object, const char *member, char *buf, size_t size)
{
    const char *text = json_string_value(json_object_get(object, member));

    snprintf(buf, size, "%s", text != NULL ? text : "");
}

static uint64_t take_number(const json_t *object, const char *member)
{
    json_int_t value = json_integer_value(json_object_get(object, member));

    return value > 0 ? (uint64_t)value : 0;
}

static void read_peers(const json_t *list, struct co_peers *peers)
{
    for (size_t i = 0; i < json_array_size(list) && i < CO_PEERS_MAX; i++) {
        const json_t *item = json_array_get(list, i);
        struct co_peers_peer *peer = &peers->peers[peers->n_peers++];
        take_text(item, "id", peer->id, sizeof peer->id);
        take_text(item, "address", peer->address, sizeof peer->address);
        take_text(item, "state", peer->state, sizeof peer->state);
        peer->heard_ms = take_number(item, "heard_ms");
        peer->lag_ms = take_number(item, "lag_ms");
        peer->version = (uint32_t)take_number(item, "version");
    }
}

static void read_lines(const json_t *list, struct co_peers *peers)
{
    for (size_t i = 0; i < json_array_size(list) && i < CO_PEERS_LINES_MAX; i++) {
        const json_t *item = json_array_get(list, i);
        struct co_peers_line *line = &peers->lines[peers->n_lines++];
        take_text(item, "address", line->address, sizeof line->address);
        line->up = json_is_true(json_object_get(item, "up"));
    }
}

int co_peers_from_json(const char *json, struct co_peers *ret_peers, struct co_err *err)
{
    json_t *root = json_loads(json, 0, NULL);
    const json_t *rejected = json_object_get(root, "rejected");

    if (!json_is_object(root)) {
        json_decref(root);
        return co_err_set(err, CO_EMALFORMED, "the agent's answer is no object");
    }
    memset(ret_peers, 0, sizeof *ret_peers);
    take_text(root, "fleet", ret_peers->fleet, sizeof ret_peers->fleet);
    take_text(root, "id", ret_peers->id, sizeof ret_peers->id);
    take_text(root, "address", ret_peers->address, sizeof ret_peers->address);
    read_peers(json_object_get(root, "peers"), ret_peers);
    read_lines(json_object_get(root, "lines"), ret_peers);
    ret_peers->keys = take_number(rejected, "keys");
    ret_peers->handshakes = take_number(rejected, "handshakes");
    ret_peers->frames = take_number(rejected, "frames");
    ret_peers->ids = take_number(rejected, "ids");
    take_text(rejected, "last", ret_peers->last, sizeof ret_peers->last);
    json_decref(root);
    return 0;
}
