#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "controller/ask_os.h"
#include "controller/cli.h"
#include "controller/history.h"
#include "proto/units.h"

#define LAST_DEFAULT 20
#define LAST_MAX 1000 /* More the agent does not send. */

/* The newest first, as the agent sends them. */
struct list {
    uint32_t n;
    const void *rows;
};

/* Ask, and with --json print. NULL: it is over, with the code. */
static char *fetch(const struct co_cli *cli, const char *op, int *ret_code)
{
    struct co_err err;
    char *data;

    if (co_ask(cli, op, NULL, &data, &err) < 0) {
        *ret_code = co_ask_fail(cli, &err);
        return NULL;
    }
    if (!cli->json) {
        return data;
    }
    *ret_code =
        co_ask_print(co_cli_json_first(data, op, cli->limit > 0 ? cli->limit : LAST_DEFAULT));
    free(data);
    return NULL;
}

static uint32_t rows_wanted(const struct co_cli *cli)
{
    uint64_t wanted = cli->limit > 0 ? cli->limit : LAST_DEFAULT;
    return wanted < LAST_MAX ? (uint32_t)wanted : LAST_MAX;
}

/* Write what was read, n < 0 being an answer that cannot be read; the data is given away. */
static int write_list(const struct co_cli *cli, char *data, int n, const void *rows,
                      void (*page)(struct co_text *text, const void *list))
{
    const struct list list = {.n = n > 0 ? (uint32_t)n : 0, .rows = rows};

    free(data);
    if (n < 0) {
        fputs("cohort: the agent's answer is no list: use the cohort command that came with it\n",
              stderr);
        return CO_EXIT_FAILED;
    }
    return co_ask_write(cli, page, &list);
}

static void write_exits(struct co_text *text, const void *arg)
{
    const struct list *list = arg;
    co_history_exits(text, list->rows, list->n);
}

int co_cmd_exits(struct co_cli *cli)
{
    static struct co_report_exit rows[LAST_MAX];
    int code;
    char *data = fetch(cli, "exits", &code);

    return data == NULL ? code
                        : write_list(cli, data, co_cli_json_exits(data, rows, rows_wanted(cli)),
                                     rows, write_exits);
}

static void write_slow(struct co_text *text, const void *arg)
{
    const struct list *list = arg;
    co_history_slow(text, list->rows, list->n);
}

int co_cmd_slow(struct co_cli *cli)
{
    static struct co_report_slow rows[LAST_MAX];
    int code;
    char *data = fetch(cli, "slow", &code);

    return data == NULL ? code
                        : write_list(cli, data, co_cli_json_slow(data, rows, rows_wanted(cli)),
                                     rows, write_slow);
}

static void write_minutes(struct co_text *text, const void *arg)
{
    const struct list *list = arg;
    co_history_minutes(text, list->rows, list->n);
}

int co_cmd_minutes(struct co_cli *cli)
{
    static struct co_report_minute rows[LAST_MAX];
    int code;
    char *data = fetch(cli, "minutes", &code);

    return data == NULL ? code
                        : write_list(cli, data, co_cli_json_minutes(data, rows, rows_wanted(cli)),
                                     rows, write_minutes);
}

/* ---- stack ---- */

static void write_frame(void *arg, uint32_t index, const char *function, const char *file,
                        uint64_t line)
{
    co_history_frame(arg, index, function, file, line);
}

static void write_trace(struct co_text *text, const void *data)
{
    uint64_t pid = 0;
    struct co_text body = {.color = text->color};

    if (co_cli_json_frames(data, &pid, write_frame, &body) == 0) {
        co_table_put(text, "pid %" PRIu64 ": no PHP code runs in it\n", pid);
        return;
    }
    co_table_put(text, "pid %" PRIu64 ", the innermost call first\n", pid);
    co_cli_json_frames(data, &pid, write_frame, text);
}

int co_cmd_trace(struct co_cli *cli)
{
    struct co_err err;
    uint64_t worker;
    char *args;
    char *data;
    int code;

    if (co_units_count(cli->argv[0], CO_WORKERS_MAX - 1, &worker, &err) < 0) {
        fprintf(stderr,
                "cohort: \"%s\" is no worker: give its number, as cohort workers shows it\n",
                cli->argv[0]);
        return CO_EXIT_USAGE;
    }
    args = co_cli_json_members(
        (const char *const[][2]){{"worker", cli->argv[0]}, {"pool", cli->pool}}, 2);
    code = co_ask(cli, "trace", args, &data, &err);
    free(args);
    if (code < 0) {
        return co_ask_fail(cli, &err);
    }
    code =
        cli->json ? co_ask_print(co_cli_json_pretty(data)) : co_ask_write(cli, write_trace, data);
    free(data);
    return code;
}
