/* The fleet as a whole: its queues and shares, words for all agents, and who gave them. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "controller/ask_os.h"
#include "controller/author_os.h"
#include "controller/cli.h"
#include "controller/table.h"
#include "proto/fleet_view.h"
#include "proto/units.h"

#define WATCH_S 1
#define CLEAR "\033[H\033[2J"
#define SCALE_FOR (2 * 3600000)

static int ask_fleet(const struct co_cli *cli, const char *op, struct co_fleet_view *view,
                     char **ret_data, struct co_err *err)
{
    int code = co_ask(cli, op, NULL, ret_data, err);

    if (code == 0 && !cli->json) {
        code = co_fleet_view_from_json(*ret_data, view, err);
        free(*ret_data);
        *ret_data = NULL;
    }
    return code;
}

/* ---- status --fleet ---- */

static void put_time(char *buf, size_t size, co_unix at)
{
    time_t when = (time_t)at;
    struct tm utc;

    gmtime_r(&when, &utc);
    strftime(buf, size, "%Y-%m-%d %H:%M:%S", &utc);
}

static void queue_row(const void *arg, size_t row, char cells[][CO_CELL_SIZE])
{
    const struct co_fleet_view *view = arg;
    const struct co_fleet_view_queue *queue = &view->queues[row];
    uint64_t shares = 0;
    char human[CO_HUMAN_SIZE];

    for (uint32_t i = 0; i < queue->n_seats; i++) {
        shares += queue->seats[i].share;
    }
    co_table_cell(cells[0], queue->name);
    co_table_cell(cells[1], queue->connection);
    snprintf(cells[2], CO_CELL_SIZE, "%" PRIu32, queue->target);
    snprintf(cells[3], CO_CELL_SIZE, "%" PRIu64, shares);
    snprintf(cells[4], CO_CELL_SIZE, "%" PRIu32, queue->n_seats);
    if (queue->share == UINT32_MAX) {
        snprintf(cells[5], CO_CELL_SIZE, "all");
    } else {
        snprintf(cells[5], CO_CELL_SIZE, "%" PRIu32 "%s", queue->share,
                 queue->fenced ? " (fenced)" : "");
    }
    snprintf(cells[6], CO_CELL_SIZE, "%" PRIu32, queue->running);
    snprintf(cells[7], CO_CELL_SIZE, "%s", queue->strict ? "strict" : "available");
    snprintf(cells[8], CO_CELL_SIZE, "%s%s", queue->owner[0] != '\0' ? queue->owner : "none yet",
             queue->owned ? " (this)" : "");
    snprintf(cells[9], CO_CELL_SIZE, "%s",
             queue->owner[0] != '\0' ? co_table_ms(queue->plan_age_ms, human) : "");
}

struct seats {
    uint32_t n;
    struct {
        const struct co_fleet_view_queue *queue;
        const struct co_fleet_view_seat *seat;
    } at[CO_FLEET_QUEUES_MAX * 8];
};

static void seat_row(const void *arg, size_t row, char cells[][CO_CELL_SIZE])
{
    const struct seats *seats = arg;
    const struct co_fleet_view_seat *seat = seats->at[row].seat;

    co_table_cell(cells[0], seats->at[row].queue->name);
    co_table_cell(cells[1], seat->agent);
    snprintf(cells[2], CO_CELL_SIZE, "%" PRIu32, seat->capacity);
    snprintf(cells[3], CO_CELL_SIZE, "%" PRIu32, seat->share);
    snprintf(cells[4], CO_CELL_SIZE, "%" PRIu32, seat->grant);
    if (seats->at[row].queue->owned) {
        snprintf(cells[5], CO_CELL_SIZE, "%" PRIu32, seat->running);
    } else {
        snprintf(cells[5], CO_CELL_SIZE, "-");
    }
}

static void override_row(const void *arg, size_t row, char cells[][CO_CELL_SIZE])
{
    const struct co_fleet_view *view = arg;
    const struct co_fleet_view_override *item = &view->overrides[row];
    const struct co_fleet_override *word = &item->override;

    put_time(cells[0], CO_CELL_SIZE, word->since);
    co_table_cell(cells[1], item->name);
    if (word->action == CO_FLEET_SCALE) {
        snprintf(cells[2], CO_CELL_SIZE, "scale to %" PRIu32, word->value);
    } else {
        co_table_cell(cells[2], co_fleet_action_name(word->action));
    }
    if (word->expires != 0) {
        put_time(cells[3], CO_CELL_SIZE, word->expires);
    }
    co_table_cell(cells[4], item->in_force ? "in force" : "ended");
    co_table_cell(cells[5], word->by);
    co_table_cell(cells[6], word->reason);
}

static void put_overrides(struct co_text *text, const struct co_fleet_view *view)
{
    const struct co_table table = {
        .columns = 7,
        .heads = {"SINCE (UTC)", "QUEUE", "WORD", "UNTIL (UTC)", "STATE", "BY", "REASON"},
        .rows = view->n_overrides,
        .row = override_row,
        .arg = view,
    };

    co_table_write(text, &table);
}

static void fleet_page(struct co_text *text, const void *arg)
{
    static struct seats seats;
    const struct co_fleet_view *view = arg;
    const struct co_table queues = {
        .columns = 10,
        .heads = {"QUEUE", "CONNECTION", "TARGET", "SHARES", "AGENTS", "HERE", "RUNNING", "SPLIT",
                  "OWNER", "PLAN AGE"},
        .right = {[2] = true, [3] = true, [4] = true, [5] = true, [6] = true, [9] = true},
        .rows = view->n_queues,
        .row = queue_row,
        .arg = view,
    };
    const struct co_table all = {
        .columns = 6,
        .heads = {"QUEUE", "AGENT", "CAPACITY", "SHARE", "GRANT", "RUNNING"},
        .right = {[2] = true, [3] = true, [4] = true, [5] = true},
        .rows = 0,
        .row = seat_row,
        .arg = &seats,
    };
    struct co_table table = all;

    seats.n = 0;
    for (uint32_t i = 0; i < view->n_queues; i++) {
        for (uint32_t s = 0;
             s < view->queues[i].n_seats && seats.n < sizeof seats.at / sizeof seats.at[0]; s++) {
            seats.at[seats.n].queue = &view->queues[i];
            seats.at[seats.n++].seat = &view->queues[i].seats[s];
        }
    }
    table.rows = seats.n;
    co_table_write(text, &queues);
    co_table_put(text, "\n");
    co_table_write(text, &table);
    if (view->n_overrides > 0) {
        co_table_put(text, "\n");
        put_overrides(text, view);
    }
}

int co_cmd_fleet_status(struct co_cli *cli)
{
    static struct co_fleet_view view;
    const struct timespec pause = {.tv_sec = WATCH_S};
    struct co_err err;
    char *data = NULL;

    for (;;) {
        int code = ask_fleet(cli, "fleet", &view, &data, &err);
        if (code < 0) {
            return co_ask_fail(cli, &err);
        }
        if (cli->watch && cli->terminal) {
            fputs(CLEAR, stdout);
        }
        if (cli->json) {
            code = co_ask_print(co_cli_json_pretty(data));
            free(data);
        } else {
            code = co_ask_write(cli, fleet_page, &view);
        }
        fflush(stdout);
        if (!cli->watch || code != CO_EXIT_OK) {
            return code;
        }
        nanosleep(&pause, NULL);
    }
}

/* ---- audit ---- */

static void audit_page(struct co_text *text, const void *arg)
{
    put_overrides(text, arg);
}

int co_cmd_audit(struct co_cli *cli)
{
    static struct co_fleet_view view;
    struct co_err err;
    char *data = NULL;
    int code = ask_fleet(cli, "audit", &view, &data, &err);

    if (code < 0) {
        return co_ask_fail(cli, &err);
    }
    if (cli->json) {
        code = co_ask_print(co_cli_json_pretty(data));
        free(data);
        return code;
    }
    if (view.n_overrides == 0) {
        puts("nobody has paused, resumed or scaled a queue of this fleet");
        return CO_EXIT_OK;
    }
    return co_ask_write(cli, audit_page, &view);
}

/* ---- words ---- */

static int missing_reason(const char *command)
{
    fprintf(stderr,
            "cohort: %s --fleet needs a reason of at most %d letters, for those who wonder later: "
            "--reason \"deploy of the mail service\"\n",
            command, CO_FLEET_REASON_SIZE - 1);
    return CO_EXIT_USAGE;
}

static int send_word(const struct co_cli *cli, const char *action, const char *queue,
                     const char *value, co_ms for_ms)
{
    char by[CO_FLEET_BY_SIZE];
    char seconds[24];
    struct co_err err;
    char *data = NULL;
    char *args;
    int code;

    co_author_write(by, sizeof by);
    snprintf(seconds, sizeof seconds, "%" PRIu64, (uint64_t)((for_ms + 999) / 1000));
    args = co_cli_json_members((const char *const[][2]){{"action", action},
                                                        {"queue", queue},
                                                        {"value", value},
                                                        {"reason", cli->reason},
                                                        {"by", by},
                                                        {"for", seconds}},
                               6);
    code = args != NULL ? co_ask(cli, "override", args, &data, &err)
                        : co_err_set(&err, CO_ENOMEM, "out of memory");
    free(args);
    free(data);
    return code < 0 ? co_ask_fail(cli, &err) : CO_EXIT_OK;
}

static int done(const struct co_cli *cli, const char *state, const char *queue, const char *words)
{
    if (cli->json) {
        char *members = co_cli_json_members(
            (const char *const[][2]){{"state", state}, {"queue", queue}, {"reason", cli->reason}},
            3);
        char *json = members != NULL ? co_cli_json_pretty(members) : NULL;
        free(members);
        return co_ask_print(json);
    }
    printf("%s in the whole fleet: %s. %s\n", state, queue != NULL ? queue : "all queues", words);
    return CO_EXIT_OK;
}

int co_cmd_fleet_pause(struct co_cli *cli)
{
    const char *queue = cli->argc > 0 ? cli->argv[0] : NULL;
    int code;

    if (cli->reason == NULL || cli->reason[0] == '\0' ||
        strlen(cli->reason) >= CO_FLEET_REASON_SIZE) {
        return missing_reason("pause");
    }
    code = send_word(cli, "pause", queue, NULL, cli->for_ms);
    return code != CO_EXIT_OK ? code
                              : done(cli, "paused", queue,
                                     "Nothing more is begun, running jobs end; cohort resume "
                                     "--fleet ends the pause, cohort audit lists it");
}

int co_cmd_fleet_resume(struct co_cli *cli)
{
    const char *queue = cli->argc > 0 ? cli->argv[0] : NULL;
    int code = send_word(cli, "resume", queue, NULL, 0);

    return code != CO_EXIT_OK
               ? code
               : done(cli, "resumed", queue, "The policy decides again; cohort audit lists it");
}

int co_cmd_scale(struct co_cli *cli)
{
    uint64_t workers;
    struct co_err err;
    int code;

    if (!cli->fleet) {
        fputs("cohort: scale sets the workers of a queue in the whole fleet: add --fleet\n",
              stderr);
        return CO_EXIT_USAGE;
    }
    if (co_units_count(cli->argv[1], CO_FLEET_WORKERS_MAX, &workers, &err) < 0) {
        fprintf(stderr, "cohort: WORKERS: %s\n", err.msg);
        return CO_EXIT_USAGE;
    }
    if (cli->reason == NULL || cli->reason[0] == '\0' ||
        strlen(cli->reason) >= CO_FLEET_REASON_SIZE) {
        return missing_reason("scale");
    }
    code = send_word(cli, "scale", cli->argv[0], cli->argv[1],
                     cli->for_ms > 0 ? cli->for_ms : SCALE_FOR);
    return code != CO_EXIT_OK ? code
                              : done(cli, "scaled", cli->argv[0],
                                     "cohort resume --fleet gives it back to its policy, cohort "
                                     "status --fleet shows the shares");
}

int co_cmd_fleet_relay(struct co_cli *cli, const char *op)
{
    struct co_err err;
    char *data = NULL;
    char *args =
        co_cli_json_members((const char *const[][2]){{"pool", cli->pool}, {"fleet", "all"}}, 2);
    int code = args != NULL ? co_ask(cli, op, args, &data, &err)
                            : co_err_set(&err, CO_ENOMEM, "out of memory");

    free(args);
    free(data);
    if (code < 0) {
        return co_ask_fail(cli, &err);
    }
    if (cli->json) {
        return co_ask_print(co_cli_json_pretty("{\"told\":\"fleet\"}"));
    }
    printf("%s: every agent that this one reaches was told; cohort peers lists them\n", op);
    return CO_EXIT_OK;
}
