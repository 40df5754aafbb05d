#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/ask_os.h"
#include "controller/cli.h"
#include "controller/table.h"
#include "proto/control.h"

#define ROWS_MAX 1000
#define COLUMNS 5
#define WHY_SIZE 100 /* Of an exception's first line, which often is a whole SQL statement. */

static char *make_args(const struct co_cli *cli)
{
    const struct co_cli_failed_args args = {
        .ids = (const char *const *)cli->argv,
        .n_ids = (size_t)cli->argc,
        .all = cli->all,
        .quarantined = cli->quarantined,
        .limit = cli->limit,
    };
    return co_cli_json_failed(&args);
}

static int ask(const struct co_cli *cli, const char *op, char *args, char **ret_data)
{
    struct co_err err;
    int code = args != NULL ? co_ask(cli, op, args, ret_data, &err)
                            : co_err_set(&err, CO_ENOMEM, "out of memory");

    free(args);
    return code < 0 ? co_ask_fail(cli, &err) : CO_EXIT_OK;
}

/* ---- list ---- */

struct list {
    size_t n;
    char cells[ROWS_MAX][COLUMNS][CO_CELL_SIZE];
};

static void add_row(void *arg, const struct co_cli_failed *failed)
{
    struct list *list = arg;
    char why[WHY_SIZE];
    char size[CO_HUMAN_SIZE];

    if (list->n == ROWS_MAX) {
        return;
    }
    char(*cells)[CO_CELL_SIZE] = list->cells[list->n++];
    snprintf(why, sizeof why, "%.*s", (int)strcspn(failed->why, "\n"), failed->why);
    co_table_cell(cells[0], failed->id);
    co_table_cell(cells[1], failed->when);
    co_table_cell(cells[2], failed->connection);
    co_table_cell(cells[2], failed->connection[0] != '\0' ? ":" : "");
    co_table_cell(cells[2], failed->queue);
    co_table_cell(cells[3], failed->payload_size > 0 ? co_table_bytes(failed->payload_size, size)
                            : failed->job[0] != '\0' ? failed->job
                                                     : "-");
    co_table_cell(cells[4], why);
}

static void get_row(const void *arg, size_t row, char cells[][CO_CELL_SIZE])
{
    const struct list *list = arg;
    memcpy(cells, list->cells[row], sizeof list->cells[row]);
}

static int print_list(const struct co_cli *cli, const struct list *list)
{
    const struct co_table table = {
        .columns = COLUMNS,
        .heads = {"ID", cli->quarantined ? "SINCE (UTC)" : "FAILED AT", "QUEUE",
                  cli->quarantined ? "PAYLOAD" : "JOB", "WHY"},
        .rows = list->n,
        .row = get_row,
        .arg = list,
    };
    struct co_text text = {.color = cli->color};

    co_table_write(&text, &table);
    text.size = text.len + 1;
    text.buf = malloc(text.size);
    if (text.buf == NULL) {
        return CO_EXIT_FAILED;
    }
    text.len = 0;
    co_table_write(&text, &table);
    fputs(text.buf, stdout);
    free(text.buf);
    return CO_EXIT_OK;
}

int co_cmd_failed_list(struct co_cli *cli)
{
    static struct list list;
    char *data;
    int code = ask(cli, "failed.list", make_args(cli), &data);

    if (code != CO_EXIT_OK) {
        return code;
    }
    if (cli->json) {
        char *json = co_cli_json_pretty(data);
        free(data);
        return co_ask_print(json);
    }
    co_cli_json_failed_each(data, add_row, &list);
    free(data);
    if (list.n == 0) {
        puts(cli->quarantined ? "nothing is in quarantine" : "no failed jobs");
        return CO_EXIT_OK;
    }
    code = print_list(cli, &list);
    if (code == CO_EXIT_OK && cli->terminal) {
        printf("\ncohort failed %s\n", cli->quarantined ? "retry|forget ID... --quarantined"
                                                        : "show ID, retry|forget ID...");
    }
    return code;
}

/* ---- show ---- */

/* Foreign text of many lines; a terminal must not be steered by it. */
static void print_lines(const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        putchar((c < ' ' && c != '\n' && c != '\t') || c == 0x7f ? '?' : c);
    }
    putchar('\n');
}

static void print_one(void *arg, const struct co_cli_failed *failed)
{
    (void)arg;
    printf("id          %s\n", failed->id);
    if (failed->uuid[0] != '\0' && strcmp(failed->uuid, failed->id) != 0) {
        printf("uuid        %s\n", failed->uuid);
    }
    printf("job         %s\n", failed->job);
    printf("connection  %s\n", failed->connection);
    printf("queue       %s\n", failed->queue);
    printf("failed at   %s\n", failed->when);
    putchar('\n');
    print_lines(failed->why);
    puts("\npayload");
    print_lines(failed->payload);
}

int co_cmd_failed_show(struct co_cli *cli)
{
    char *data;
    char *json;
    int code = ask(cli, "failed.show", co_cli_json_id(cli->argv[0]), &data);

    if (code != CO_EXIT_OK) {
        return code;
    }
    if (!cli->json) {
        co_cli_json_failed_one(data, print_one, NULL);
        free(data);
        return CO_EXIT_OK;
    }
    json = co_cli_json_pretty(data);
    free(data);
    return co_ask_print(json);
}

/* ---- retry, forget ---- */

static int change(struct co_cli *cli, const char *op, const char *member, const char *done)
{
    char *data;
    char *json;
    char count[32] = "?";
    int code;

    if ((cli->argc == 0) == !cli->all) {
        fprintf(stderr,
                "cohort: name the jobs by their ids, or --all: cohort %s ID...\n"
                "Try: cohort failed list\n",
                cli->command);
        return CO_EXIT_USAGE;
    }
    code = ask(cli, op, make_args(cli), &data);
    if (code != CO_EXIT_OK) {
        return code;
    }
    if (cli->json) {
        json = co_cli_json_pretty(data);
        free(data);
        return co_ask_print(json);
    }
    co_json_get_string(data, member, count, sizeof count);
    free(data);
    printf("%s %s %s\n", count, strcmp(count, "1") == 0 ? "job" : "jobs", done);
    return CO_EXIT_OK;
}

int co_cmd_failed_retry(struct co_cli *cli)
{
    return change(cli, "failed.retry", "retried", "back on the queue");
}

int co_cmd_failed_forget(struct co_cli *cli)
{
    return change(cli, "failed.forget", "forgotten", "forgotten");
}
