#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/ask_os.h"
#include "controller/author_os.h"
#include "controller/cli.h"

/* Is it "name" or "connection:name" of this queue? */
static bool names(const char *given, const struct co_view_queue *queue)
{
    size_t len = strlen(queue->connection);

    return strcmp(given, queue->name) == 0 ||
           (strncmp(given, queue->connection, len) == 0 && given[len] == ':' &&
            strcmp(given + len + 1, queue->name) == 0);
}

static bool known(const struct co_view *view, const char *given, bool held_ones)
{
    for (uint32_t i = 0; i < view->n_queues; i++) {
        if ((given == NULL || names(given, &view->queues[i])) &&
            (!held_ones || view->queues[i].held)) {
            return true;
        }
    }
    return false;
}

/* A name with a slip in it would pause nothing, and nobody would notice. */
static void warn_unknown(const struct co_cli *cli, const char *queue)
{
    const struct co_view *view;

    if (queue != NULL && co_ask_view(cli, false, &view, NULL) == 0 && !known(view, queue, false)) {
        fprintf(stderr,
                "cohort: this agent knows no queue %s yet; cohort queues lists them. The pause "
                "holds once there is one\n",
                queue);
    }
}

/* Another pause, or the application itself, may hold it still. */
static void say_still_held(const struct co_cli *cli, const char *queue)
{
    const struct co_view *view;

    if (co_ask_view(cli, false, &view, NULL) == 0 && known(view, queue, true)) {
        puts(
            "still held: by another pause (cohort resume, queue:continue) or by maintenance mode "
            "(artisan up); cohort queues shows which");
    }
}

static int change(const struct co_cli *cli, const char *op, char *args)
{
    struct co_err err;
    char *data = NULL;
    int code = args != NULL ? co_ask(cli, op, args, &data, &err)
                            : co_err_set(&err, CO_ENOMEM, "out of memory");

    free(args);
    free(data);
    return code < 0 ? co_ask_fail(cli, &err) : CO_EXIT_OK;
}

static int print_json(const char *state, const char *queue, const char *reason, const char *by)
{
    char *members = co_cli_json_members(
        (const char *const[][2]){
            {"state", state}, {"queue", queue}, {"reason", reason}, {"by", by}},
        4);
    char *json = members != NULL ? co_cli_json_pretty(members) : NULL;

    free(members);
    return co_ask_print(json);
}

int co_cmd_pause(struct co_cli *cli)
{
    const char *queue = cli->argc > 0 ? cli->argv[0] : NULL;
    char by[CO_NAME_SIZE];
    int code;

    if (cli->fleet) {
        return co_cmd_fleet_pause(cli);
    }
    if (cli->reason == NULL || cli->reason[0] == '\0' || strlen(cli->reason) >= CO_TEXT_SIZE) {
        fprintf(stderr, cli->reason != NULL && cli->reason[0] != '\0'
                            ? "cohort: --reason is too long: say it in 500 letters\n"
                            : "cohort: pause needs a reason, for those who wonder later: cohort "
                              "pause QUEUE --reason \"deploy of the mail service\"\n");
        return CO_EXIT_USAGE;
    }
    co_author_write(by, sizeof by);
    code = change(
        cli, "pause",
        co_cli_json_members(
            (const char *const[][2]){{"queue", queue}, {"reason", cli->reason}, {"by", by}}, 3));
    if (code != CO_EXIT_OK) {
        return code;
    }
    warn_unknown(cli, queue);
    if (cli->json) {
        return print_json("paused", queue, cli->reason, by);
    }
    printf(
        "paused on this agent: %s. Nothing more is begun, running jobs end; cohort resume%s%s "
        "ends the pause\n",
        queue != NULL ? queue : "all queues", queue != NULL ? " " : "", queue != NULL ? queue : "");
    return CO_EXIT_OK;
}

int co_cmd_resume(struct co_cli *cli)
{
    const char *queue = cli->argc > 0 ? cli->argv[0] : NULL;
    int code = cli->fleet
                   ? co_cmd_fleet_resume(cli)
                   : change(cli, "resume",
                            co_cli_json_members((const char *const[][2]){{"queue", queue}}, 1));

    if (code != CO_EXIT_OK || cli->fleet) {
        return code;
    }
    if (cli->json) {
        return print_json("resumed", queue, NULL, NULL);
    }
    printf("resumed: %s\n", queue != NULL ? queue : "all queues");
    say_still_held(cli, queue);
    return CO_EXIT_OK;
}
