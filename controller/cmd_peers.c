#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "controller/ask_os.h"
#include "controller/cli.h"
#include "proto/cli_json.h"
#include "proto/peers.h"

static void print_peers(const struct co_peers *peers)
{
    printf("fleet %s: this agent is %s at %s\n", peers->fleet, peers->id, peers->address);
    printf("%-18s %-24s %-8s %9s %8s %8s\n", "AGENT", "ADDRESS", "STATE", "HEARD", "LAG",
           "VERSION");
    for (uint32_t i = 0; i < peers->n_peers; i++) {
        const struct co_peers_peer *peer = &peers->peers[i];
        printf("%-18s %-24s %-8s %6" PRIu64 " ms %5" PRIu64 " ms %8u\n", peer->id, peer->address,
               peer->state, peer->heard_ms, peer->lag_ms, peer->version);
    }
    for (uint32_t i = 0; i < peers->n_lines; i++) {
        if (!peers->lines[i].up) {
            printf("not reached: %s\n", peers->lines[i].address);
        }
    }
    if (peers->keys + peers->handshakes + peers->frames + peers->ids > 0) {
        printf("refused: %" PRIu64 " keys, %" PRIu64 " handshakes, %" PRIu64 " messages, %" PRIu64
               " claimed ids%s%s\n",
               peers->keys, peers->handshakes, peers->frames, peers->ids,
               peers->last[0] != '\0' ? "; the last from " : "", peers->last);
    }
}

int co_cmd_peers(struct co_cli *cli)
{
    static struct co_peers peers;
    struct co_err err;
    char *data = NULL;
    int code = co_ask(cli, "peers", "{}", &data, &err);

    if (code == 0 && cli->json) {
        code = co_ask_print(co_cli_json_pretty(data));
        free(data);
        return code;
    }
    code = code < 0 ? code : co_peers_from_json(data, &peers, &err);
    free(data);
    if (code < 0) {
        return co_ask_fail(cli, &err);
    }
    print_peers(&peers);
    return CO_EXIT_OK;
}
