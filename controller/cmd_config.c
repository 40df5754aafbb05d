#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/ask_os.h"
#include "controller/cli.h"
#include "controller/table.h"

#define ROWS_MAX 512

static const char *choose_file(const struct co_cli *cli)
{
    if (cli->argc > 0) {
        return cli->argv[0];
    }
    return access("cohort.yaml", F_OK) == 0 ? "cohort.yaml" : "/etc/cohort/cohort.yaml";
}

/* Applications that do not exist here may well exist where the agent will run. */
static void note_apps(const struct co_config *config)
{
    char path[CO_PATH_SIZE + 32];

    for (uint32_t i = 0; i < config->n_apps; i++) {
        bool found;
        snprintf(path, sizeof path, "%s/artisan", config->apps[i].path);
        found = access(path, R_OK) == 0;
        snprintf(path, sizeof path, "%s/app.php", config->apps[i].path);
        if (!found && access(path, R_OK) != 0) {
            fprintf(stderr,
                    "cohort: note: apps.%s.path: %s has neither artisan nor app.php on this host\n",
                    config->apps[i].name, config->apps[i].path);
        }
    }
}

/* As the agent does it: the file, the environment over it, then what follows from both. */
static int read_config(struct co_config *config, const char *file, struct co_err *err)
{
    int code;

    co_config_init(config);
    code = co_config_read_yaml(config, file, err);
    for (size_t i = 0; code == 0 && co_config_variables[i].variable != NULL; i++) {
        const char *value = getenv(co_config_variables[i].variable);
        if (value != NULL) {
            code = co_config_set(config, co_config_variables[i].key, value, err);
        }
    }
    if (code == 0) {
        code = co_config_finish(config, geteuid() == 0, getenv("XDG_RUNTIME_DIR"),
                                getenv("XDG_STATE_HOME"), getenv("HOME"), err);
    }
    return code;
}

int co_cmd_config_check(struct co_cli *cli)
{
    static struct co_config config;
    struct co_err err;
    const char *file = choose_file(cli);

    if (read_config(&config, file, &err) < 0) {
        return co_ask_fail(cli, &err);
    }
    if (cli->json) {
        return co_ask_print(co_cli_json_pretty("{\"ok\":true}"));
    }
    note_apps(&config);
    printf("%s is good: %u app%s, %u pool%s; cohort config explain %s shows what it comes to\n",
           file, config.n_apps, config.n_apps == 1 ? "" : "s", config.n_pools,
           config.n_pools == 1 ? "" : "s", file);
    return CO_EXIT_OK;
}

struct rows {
    size_t n;
    char cells[ROWS_MAX][3][CO_CELL_SIZE];
};

static void add_row(void *arg, const char *key, const char *value, const char *origin,
                    unsigned line)
{
    struct rows *rows = arg;
    char where[64];

    if (rows->n == ROWS_MAX) {
        return;
    }
    char(*cells)[CO_CELL_SIZE] = rows->cells[rows->n++];
    snprintf(where, sizeof where, line > 0 ? "%s, line %u" : "%s", origin, line);
    co_table_cell(cells[0], key);
    co_table_cell(cells[1], value[0] != '\0' ? value : "-");
    co_table_cell(cells[2], where);
}

static void get_row(const void *arg, size_t row, char cells[][CO_CELL_SIZE])
{
    const struct rows *rows = arg;
    memcpy(cells, rows->cells[row], sizeof rows->cells[row]);
}

static int print_rows(const struct co_cli *cli, const struct rows *rows)
{
    static char buf[ROWS_MAX * 512];
    struct co_text text = {.buf = buf, .size = sizeof buf, .color = cli->color};
    const struct co_table table = {
        .columns = 3,
        .heads = {"KEY", "VALUE", "FROM"},
        .rows = rows->n,
        .row = get_row,
        .arg = rows,
    };

    co_table_write(&text, &table);
    fputs(buf, stdout);
    return CO_EXIT_OK;
}

/* Of a file, or without one of the running agent. */
int co_cmd_config_explain(struct co_cli *cli)
{
    static struct co_config config;
    static struct rows rows;
    struct co_err err;
    char *data = NULL;
    int code;

    if (cli->argc > 0) {
        code = read_config(&config, cli->argv[0], &err);
        data = code == 0 ? co_config_to_json(&config) : NULL;
    } else {
        code = co_ask(cli, "config", NULL, &data, &err);
    }
    if (code < 0) {
        return co_ask_fail(cli, &err);
    }
    if (cli->json) {
        char *json = co_cli_json_pretty(data);
        free(data);
        return co_ask_print(json);
    }
    if (data != NULL) {
        co_cli_json_config_each(data, add_row, &rows);
    }
    free(data);
    return print_rows(cli, &rows);
}
