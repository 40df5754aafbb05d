#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "controller/ask_os.h"
#include "controller/cli.h"
#include "controller/reload.h"

#define PAUSE_NS 100000000

struct reload {
    uint32_t n;
    struct co_reload_start pools[CO_POOLS_MAX];
};

static const struct co_view_pool *find(const struct co_view *view, const char *name)
{
    for (uint32_t i = 0; i < view->n_pools; i++) {
        if (strcmp(view->pools[i].name, name) == 0) {
            return &view->pools[i];
        }
    }
    return NULL;
}

/* The pools meant, as they are before. */
static int look(const struct co_cli *cli, struct reload *reload, struct co_err *err)
{
    const struct co_view *view;
    int code = co_ask_view(cli, false, &view, err);

    if (code < 0) {
        return code;
    }
    if (view->draining) {
        return co_err_set(err, CO_EAPP, "the agent is draining and boots nothing any more");
    }
    for (uint32_t i = 0; i < view->n_pools; i++) {
        if (cli->pool == NULL || strcmp(view->pools[i].name, cli->pool) == 0) {
            reload->pools[reload->n++] = co_reload_begin(&view->pools[i]);
        }
    }
    return reload->n > 0 ? 0
                         : co_err_set(err, CO_ENOTFOUND,
                                      "no pool has the name \"%s\"; cohort status lists them",
                                      cli->pool != NULL ? cli->pool : "");
}

static int start(const struct co_cli *cli, const struct reload *reload, struct co_err *err)
{
    int code = 0;

    for (uint32_t i = 0; i < reload->n && code == 0; i++) {
        char *data = NULL;
        char *args =
            co_cli_json_members((const char *const[][2]){{"pool", reload->pools[i].pool}}, 1);
        code = args != NULL ? co_ask(cli, "reload", args, &data, err)
                            : co_err_set(err, CO_ENOMEM, "out of memory");
        free(args);
        free(data);
    }
    return code;
}

static int fail_boot(const struct co_view_pool *pool, struct co_err *err)
{
    return co_err_set(err, CO_EAPP, "pool %s: the application does not boot%s: %.600s", pool->name,
                      pool->zygote_up ? ", the one before serves on" : "",
                      pool->boot_error[0] != '\0' ? pool->boot_error
                                                  : "cohort exits says what its workers died of");
}

/* 1: all are done; 0: not yet. */
static int check(const struct reload *reload, const struct co_view *view, struct co_err *err)
{
    bool done = true;

    for (uint32_t i = 0; i < reload->n; i++) {
        const struct co_view_pool *pool = find(view, reload->pools[i].pool);
        enum co_reload_progress progress =
            pool != NULL ? co_reload_check(&reload->pools[i], pool) : CO_RELOAD_DONE;
        if (progress == CO_RELOAD_FAILED) {
            return fail_boot(pool, err);
        }
        done = done && progress == CO_RELOAD_DONE;
    }
    if (!done && view->draining) {
        return co_err_set(err, CO_EAPP, "the agent drains: it ends before the reload is through");
    }
    return done;
}

static int await(const struct co_cli *cli, const struct reload *reload, struct co_err *err)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    const struct co_view *view;

    for (;;) {
        int code = co_ask_view(cli, true, &view, err);
        code = code < 0 ? code : check(reload, view, err);
        if (code != 0) {
            return code < 0 ? code : 0;
        }
        nanosleep(&pause, NULL);
    }
}

int co_cmd_reload(struct co_cli *cli)
{
    struct reload reload = {0};
    struct co_err err;
    int code;

    if (cli->fleet) {
        return co_cmd_fleet_relay(cli, "reload");
    }
    code = look(cli, &reload, &err);

    code = code < 0 ? code : start(cli, &reload, &err);
    if (code == 0 && cli->wait) {
        code = await(cli, &reload, &err);
    }
    if (code < 0) {
        return co_ask_fail(cli, &err);
    }
    if (cli->json) {
        return co_ask_print(
            co_cli_json_pretty(cli->wait ? "{\"reloaded\":true}" : "{\"reloading\":true}"));
    }
    puts(cli->wait ? "reloaded: every worker is of the new generation"
                   : "reloading: a new generation boots, workers are replaced one by one; cohort "
                     "workers shows them");
    return CO_EXIT_OK;
}
