#include "controller/history.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CAUSE_SIZE 110 /* Of its first line; --json has it whole. */

/* UTC, as the log has it. */
static void when(char *cell, co_unix at)
{
    time_t seconds = (time_t)at;
    struct tm tm;

    if (gmtime_r(&seconds, &tm) == NULL || strftime(cell, 32, "%Y-%m-%d %H:%M:%S", &tm) == 0) {
        co_table_cell(cell, "-");
    }
}

static void number(char *cell, uint64_t value)
{
    snprintf(cell, CO_CELL_SIZE, "%" PRIu64, value);
}

static void or_dash(char *cell, const char *value)
{
    co_table_cell(cell, value[0] != '\0' ? value : "-");
}

/* ---- exits ---- */

/* Places beyond those of workers are the agent's own: control workers and bookkeepers. */
static void place(char *cell, uint32_t worker)
{
    if (worker < CO_WORKERS_MAX) {
        number(cell, worker);
    } else {
        co_table_cell(cell, "helper");
    }
}

static void exit_row(const void *arg, size_t row, char cells[][CO_CELL_SIZE])
{
    const struct co_report_exit *exit = &((const struct co_report_exit *)arg)[row];
    char cause[CAUSE_SIZE];
    size_t c = 0;

    when(cells[c++], exit->at);
    or_dash(cells[c++], exit->pool);
    place(cells[c++], exit->worker);
    or_dash(cells[c++], exit->reason);
    or_dash(cells[c++], exit->status);
    or_dash(cells[c], exit->job[0] != '\0' ? exit->job : exit->queue);
    if (exit->job_id[0] != '\0') {
        co_table_cell(cells[c], " #");
        co_table_cell(cells[c], exit->job_id);
    }
    snprintf(cause, sizeof cause, "%.*s", (int)strcspn(exit->cause, "\n"), exit->cause);
    or_dash(cells[++c], cause);
}

void co_history_exits(struct co_text *text, const struct co_report_exit *list, uint32_t n)
{
    const struct co_table table = {
        .columns = 7,
        .heads = {"WHEN (UTC)", "POOL", "WORKER", "REASON", "STATUS", "JOB", "CAUSE"},
        .right = {[2] = true},
        .rows = n,
        .row = exit_row,
        .arg = list,
    };

    if (n == 0) {
        co_table_put(text, "no worker has ended\n");
        return;
    }
    co_table_write(text, &table);
}

/* ---- slow jobs ---- */

static void write_stack(struct co_text *text, const char *stack)
{
    while (*stack != '\0') {
        char line[CO_REPORT_STACK_SIZE];
        size_t size = strcspn(stack, "\n");
        snprintf(line, sizeof line, "%.*s", (int)size, stack);
        co_table_put(text, "  ");
        co_table_foreign(text, line);
        co_table_put(text, "\n");
        stack += size + (stack[size] == '\n');
    }
}

void co_history_slow(struct co_text *text, const struct co_report_slow *list, uint32_t n)
{
    if (n == 0) {
        co_table_put(text, "no slow jobs; a pool notes them when its slow: is set\n");
    }
    for (uint32_t i = 0; i < n; i++) {
        char at[CO_CELL_SIZE] = "";
        when(at, list[i].at);
        co_table_put(text, "%s%s UTC  ", i > 0 ? "\n" : "", at);
        co_table_style(text, CO_STYLE_BOLD, list[i].pool);
        co_table_put(text, "  worker %" PRIu32 "  ", list[i].worker);
        co_table_foreign(text, list[i].job[0] != '\0' ? list[i].job : "a job");
        co_table_put(text, "  had run for %" PRIu32 " s\n", list[i].seconds);
        write_stack(text, list[i].stack);
    }
}

/* ---- minutes ---- */

static void minute_row(const void *arg, size_t row, char cells[][CO_CELL_SIZE])
{
    const struct co_report_minute *minute = &((const struct co_report_minute *)arg)[row];
    uint64_t ends = minute->done + minute->failed + minute->released + minute->crashed;
    char buf[CO_HUMAN_SIZE];
    size_t c = 0;

    when(cells[c], minute->minute);
    cells[c++][16] = '\0'; /* Without its seconds. */
    or_dash(cells[c++], minute->pool);
    co_table_cell(cells[c], minute->connection);
    co_table_cell(cells[c], minute->connection[0] != '\0' ? ":" : "");
    co_table_cell(cells[c++], minute->queue);
    or_dash(cells[c++], minute->job);
    number(cells[c++], minute->done);
    number(cells[c++], minute->failed);
    number(cells[c++], minute->released);
    number(cells[c++], minute->crashed);
    number(cells[c++], minute->timeouts);
    co_table_cell(cells[c++], ends > 0 ? co_table_us(minute->run_sum_us / ends, buf) : "-");
    co_table_cell(cells[c++], ends > 0 ? co_table_us(minute->run_max_us, buf) : "-");
    co_table_cell(cells[c++], ends > 0 ? co_table_us(minute->wait_sum_us / ends, buf) : "-");
}

void co_history_minutes(struct co_text *text, const struct co_report_minute *list, uint32_t n)
{
    struct co_table table = {
        .columns = 12,
        .heads = {"MINUTE (UTC)", "POOL", "QUEUE", "JOB", "DONE", "FAILED", "RELEASED", "CRASHED",
                  "TIMEOUT", "RUN AVG", "RUN MAX", "WAIT AVG"},
        .rows = n,
        .row = minute_row,
        .arg = list,
    };

    if (n == 0) {
        co_table_put(text, "no jobs yet; a minute is written down when it is over\n");
        return;
    }
    for (size_t c = 4; c < table.columns; c++) {
        table.right[c] = true;
    }
    co_table_write(text, &table);
}

/* ---- stack ---- */

void co_history_frame(struct co_text *text, uint32_t index, const char *function, const char *file,
                      uint64_t line)
{
    co_table_put(text, "#%-3" PRIu32 " ", index);
    co_table_foreign(text, function);
    co_table_put(text, "()");
    if (file[0] != '\0') {
        co_table_put(text, "  ");
        co_table_foreign(text, file);
        co_table_put(text, ":%" PRIu64, line);
    }
    co_table_put(text, "\n");
}
