#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "controller/ask_os.h"
#include "controller/cli.h"
#include "controller/client_zmq.h"

#define PAUSE_NS 100000000

/* Wait for the agent's end: by its pid where it can be seen, else by its socket. */
static void wait_for_end(const struct co_cli *cli, int pidfd)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct co_client *client = NULL;

    if (pidfd >= 0) {
        struct pollfd fd = {.fd = pidfd, .events = POLLIN};
        while (poll(&fd, 1, -1) < 0 && errno == EINTR) {
        }
        return;
    }
    while (co_client_open(cli->control, &client, NULL) == 0) {
        co_client_free(&client);
        nanosleep(&pause, NULL);
    }
}

static int open_pidfd(const struct co_cli *cli, struct co_err *err, int *ret_pidfd)
{
    struct co_client *client = NULL;
    int code = co_client_open(cli->control, &client, err);

    if (code == 0) {
        pid_t pid = co_client_pid(client);
        *ret_pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
        co_client_free(&client);
    }
    return code;
}

static uint64_t count_busy(const struct co_view *view)
{
    uint64_t busy = 0;

    for (uint32_t i = 0; i < view->n_pools; i++) {
        busy +=
            view->pools[i].by_state[CO_WORKER_BUSY] + view->pools[i].by_state[CO_WORKER_DRAINING];
    }
    return busy;
}

static void say(const struct co_cli *cli)
{
    const struct co_view *view;

    if (co_ask_view(cli, false, &view, NULL) == 0 && count_busy(view) > 0) {
        printf("draining: nothing more is taken, %" PRIu64
               " running jobs end first; "
               "cohort status --watch shows them\n",
               count_busy(view));
    } else {
        puts("draining: nothing more is taken, the agent ends at once");
    }
    fflush(stdout);
}

int co_cmd_drain(struct co_cli *cli)
{
    struct co_err err;
    char *data = NULL;
    int pidfd = -1;
    int code;

    if (cli->fleet) {
        return co_cmd_fleet_relay(cli, "drain");
    }
    code = open_pidfd(cli, &err, &pidfd);

    if (code == 0) {
        code = co_ask(cli, "drain", NULL, &data, &err);
        free(data);
    }
    if (code < 0) {
        return co_ask_fail(cli, &err);
    }
    if (!cli->json) {
        say(cli);
    }
    if (cli->wait) {
        wait_for_end(cli, pidfd);
    }
    if (cli->json) {
        co_ask_print(co_cli_json_pretty(cli->wait ? "{\"drained\":true}" : "{\"draining\":true}"));
    } else if (cli->wait) {
        puts("drained: the agent has ended");
    }
    return CO_EXIT_OK;
}
