#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "controller/ask_os.h"
#include "controller/cli.h"
#include "controller/page.h"
#include "proto/control.h"

#define WATCH_S 1
#define CLEAR "\033[H\033[2J"

static int show(const struct co_cli *cli, bool workers,
                void (*page)(struct co_text *text, const struct co_view *view))
{
    const struct co_view *view;
    struct co_err err;

    if (co_ask_view(cli, workers, &view, &err) < 0) {
        return co_ask_fail(cli, &err);
    }
    if (cli->watch && cli->terminal) {
        fputs(CLEAR, stdout);
    }
    return co_ask_page(cli, view, page);
}

static int show_json(const struct co_cli *cli, bool workers, char *(*shape)(const char *status))
{
    char *data;
    char *json;
    struct co_err err;

    if (co_ask(cli, "status", workers ? NULL : "{\"workers\":false}", &data, &err) < 0) {
        return co_ask_fail(cli, &err);
    }
    json = shape(data);
    free(data);
    return co_ask_print(json);
}

int co_cmd_status(struct co_cli *cli)
{
    const struct timespec pause = {.tv_sec = WATCH_S};
    int code;

    if (cli->fleet) {
        return co_cmd_fleet_status(cli);
    }
    for (;;) {
        code =
            cli->json ? show_json(cli, true, co_cli_json_pretty) : show(cli, false, co_page_status);
        fflush(stdout);
        /* An agent that restarts is worth waiting for; anything else ends the watch. */
        if (!cli->watch || (code != CO_EXIT_OK && code != CO_EXIT_UNREACHABLE)) {
            return code;
        }
        nanosleep(&pause, NULL);
    }
}

int co_cmd_workers(struct co_cli *cli)
{
    return cli->json ? show_json(cli, true, co_cli_json_workers) : show(cli, true, co_page_workers);
}

int co_cmd_queues(struct co_cli *cli)
{
    return cli->json ? show_json(cli, false, co_cli_json_queues) : show(cli, false, co_page_queues);
}

int co_cmd_ping(struct co_cli *cli)
{
    struct timespec from;
    struct timespec to;
    struct co_err err;
    char version[32] = "?";
    char pid[32] = "?";
    char *data;

    clock_gettime(CLOCK_MONOTONIC, &from);
    if (co_ask(cli, "ping", NULL, &data, &err) < 0) {
        return co_ask_fail(cli, &err);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (cli->json) {
        char *json = co_cli_json_pretty(data);
        free(data);
        return co_ask_print(json);
    }
    co_json_get_string(data, "version", version, sizeof version);
    co_json_get_string(data, "pid", pid, sizeof pid);
    free(data);
    printf("cohortd %s, pid %s, answered in %.1f ms\n", version, pid,
           (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6);
    return CO_EXIT_OK;
}
