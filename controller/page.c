#include "controller/page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void number(char *cell, uint64_t value)
{
    snprintf(cell, CO_CELL_SIZE, "%" PRIu64, value);
}

static void or_dash(char *cell, const char *value)
{
    co_table_cell(cell, value[0] != '\0' ? value : "-");
}

static void quantile(char *cell, const struct co_hist *hist, double q)
{
    char buf[CO_HUMAN_SIZE];
    co_table_cell(cell, hist->count > 0 ? co_table_us(co_hist_quantile_us(hist, q), buf) : "-");
}

static void section(struct co_text *text, const struct co_table *table, const char *none)
{
    co_table_put(text, "\n");
    if (table->rows > 0) {
        co_table_write(text, table);
    } else {
        co_table_put(text, "%s\n", none);
    }
}

/* ---- the agent ---- */

static void write_agent(struct co_text *text, const struct co_view *view)
{
    char buf[CO_HUMAN_SIZE];

    co_table_style(text, CO_STYLE_BOLD, "cohortd");
    co_table_put(text, " %s  pid %d  up %s  ", view->version, view->pid,
                 co_table_ms(view->uptime, buf));
    if (view->draining) {
        co_table_style(text, CO_STYLE_WARN, "draining");
    } else if (view->ready) {
        co_table_style(text, CO_STYLE_GOOD, "ready");
    } else {
        co_table_style(text, CO_STYLE_BAD, "not ready");
    }
    if (!view->ready && view->why[0] != '\0') {
        co_table_put(text, ": ");
        co_table_foreign(text, view->why);
    }
    co_table_put(text, "\n");
}

/* ---- pools ---- */

static void pool_row(const void *arg, size_t row, char cells[][CO_CELL_SIZE])
{
    const struct co_view_pool *pool = &((const struct co_view *)arg)->pools[row];
    char what[CO_CELL_SIZE];
    size_t c = 0;

    co_table_cell(cells[c++], pool->name);
    number(cells[c++], pool->generation);
    number(cells[c++], pool->workers_wanted);
    for (int state = CO_WORKER_BOOTING; state < CO_WORKER_DEAD; state++) {
        number(cells[c++], pool->by_state[state]);
    }
    number(cells[c++], pool->tickets_queued);
    quantile(cells[c++], &pool->wait, 0.95);
    quantile(cells[c++], &pool->service, 0.95);
    snprintf(what, sizeof what, "%s%s%s, PHP %s", pool->app_kind,
             pool->app_version[0] != '\0' ? " " : "", pool->app_version, pool->php_version);
    co_table_cell(cells[c++], pool->app_kind[0] != '\0' ? what : "-");
    or_dash(cells[c++], pool->app_path);
}

static void write_circuit(struct co_text *text, const struct co_view_pool *pool)
{
    bool open = strcmp(pool->circuit, "open") == 0;

    if (!open && strcmp(pool->circuit, "probing") != 0) {
        return;
    }
    co_table_put(text, "%s: ", pool->name);
    co_table_style(text, CO_STYLE_BAD, open ? "the circuit is open" : "the circuit is probing");
    co_table_put(text,
                 ": too many workers died, so %s; the others go on. Why they died: cohort exits\n",
                 open ? "no new ones are started until a probe is due"
                      : "one is out as a probe, and new ones start once it has done a job");
}

static void write_exits(struct co_text *text, const struct co_view_pool *pool)
{
    bool first = true;

    for (int reason = 0; reason < CO_EXIT_REASONS; reason++) {
        if (pool->exits[reason] > 0) {
            if (first) {
                co_table_put(text, "%s: workers ended:", pool->name);
            }
            co_table_put(text, "%s %" PRIu64 " %s", first ? "" : ",", pool->exits[reason],
                         co_exit_name((enum co_exit_reason)reason));
            first = false;
        }
    }
    co_table_put(text, "%s", first ? "" : "\n");
}

static void write_pool_troubles(struct co_text *text, const struct co_view_pool *pool)
{
    if (pool->boot_error[0] != '\0') {
        co_table_put(text, "%s: ", pool->name);
        co_table_style(text, CO_STYLE_BAD, "the application does not boot: ");
        co_table_foreign(text, pool->boot_error);
        co_table_put(text, pool->zygote_up ? " (the one before serves on)\n" : "\n");
    }
    write_circuit(text, pool);
    if (pool->bookkeeping > 0) {
        co_table_put(text, "%s: %" PRIu32 " %s a bookkeeper, which ends what dead workers left\n",
                     pool->name, pool->bookkeeping,
                     pool->bookkeeping == 1 ? "job waits for" : "jobs wait for");
    }
    write_exits(text, pool);
}

static void write_pools(struct co_text *text, const struct co_view *view)
{
    const struct co_table table = {
        .columns = 12,
        .heads = {"POOL", "GENERATION", "WANTED", "BOOTING", "IDLE", "BUSY", "DRAINING", "WAITING",
                  "WAIT P95", "JOB P95", "APPLICATION", "PATH"},
        .right = {[1] = true,
                  [2] = true,
                  [3] = true,
                  [4] = true,
                  [5] = true,
                  [6] = true,
                  [7] = true,
                  [8] = true,
                  [9] = true},
        .rows = view->n_pools,
        .row = pool_row,
        .arg = view,
    };

    section(text, &table, "no pools");
    for (uint32_t i = 0; i < view->n_pools; i++) {
        write_pool_troubles(text, &view->pools[i]);
    }
}

/* ---- queues ---- */

static void queue_row(const void *arg, size_t row, char cells[][CO_CELL_SIZE])
{
    const struct co_view_queue *queue = &((const struct co_view *)arg)->queues[row];
    char buf[CO_HUMAN_SIZE];
    size_t c = 0;

    co_table_cell(cells[c++], queue->name);
    or_dash(cells[c++], queue->connection);
    co_table_cell(cells[c++], queue->served ? queue->pool : "(nobody)");
    co_table_cell(cells[c++], queue->held ? "held" : queue->served ? "served" : "-");
    number(cells[c++], queue->ready);
    number(cells[c++], queue->delayed);
    number(cells[c++], queue->claimed);
    number(cells[c++], queue->running);
    co_table_cell(cells[c++], queue->ready > 0 && queue->oldest_s > 0
                                  ? co_table_ms((co_ms)(queue->oldest_s * 1000), buf)
                                  : "-");
    number(cells[c++], queue->done);
    number(cells[c++], queue->failed);
    number(cells[c++], queue->released);
    number(cells[c++], queue->crashed);
    number(cells[c++], queue->timeouts);
    number(cells[c++], queue->foreign);
}

/* A queue that stands still though workers are idle is the first question of all. */
static void write_held(struct co_text *text, const struct co_view *view)
{
    for (uint32_t i = 0; i < view->n_queues; i++) {
        const struct co_view_queue *queue = &view->queues[i];
        if (queue->held) {
            co_table_foreign(text, queue->connection);
            co_table_put(text, ":");
            co_table_foreign(text, queue->name);
            co_table_put(text, ": ");
            co_table_style(text, CO_STYLE_WARN, "held");
            co_table_put(text, ": ");
            co_table_foreign(text, queue->held_why[0] != '\0'
                                       ? queue->held_why
                                       : "the application has not said yet whether it is paused");
            co_table_put(text, "\n");
        }
    }
}

static void write_queues(struct co_text *text, const struct co_view *view)
{
    struct co_table table = {
        .columns = 15,
        .heads = {"QUEUE", "CONNECTION", "POOL", "STATE", "READY", "DELAYED", "CLAIMED", "RUNNING",
                  "OLDEST", "DONE", "FAILED", "RELEASED", "CRASHED", "TIMEOUT", "FOREIGN"},
        .rows = view->n_queues,
        .row = queue_row,
        .arg = view,
    };

    for (size_t c = 4; c < table.columns; c++) {
        table.right[c] = true;
    }
    section(text, &table, "no queues yet");
    write_held(text, view);
}

/* ---- sources ---- */

static void source_row(const void *arg, size_t row, char cells[][CO_CELL_SIZE])
{
    const struct co_view_source *source = &((const struct co_view *)arg)->sources[row];
    char buf[CO_HUMAN_SIZE];
    size_t c = 0;

    co_table_cell(cells[c++], source->connection);
    co_table_cell(cells[c++], source->driver);
    co_table_cell(cells[c++], source->up ? "up" : "down");
    co_table_cell(cells[c++], source->turns > 0 ? co_table_ms(source->last_good, buf) : "-");
    number(cells[c++], source->turns);
    number(cells[c++], source->turn_errors);
    quantile(cells[c++], &source->turn_time, 0.95);
    number(cells[c++], source->held);
    number(cells[c++], source->quarantined);
    or_dash(cells[c++], source->place);
}

static void write_source_troubles(struct co_text *text, const struct co_view *view)
{
    for (uint32_t i = 0; i < view->n_sources; i++) {
        const struct co_view_source *source = &view->sources[i];
        if (!source->up && source->error[0] != '\0') {
            co_table_foreign(text, source->connection);
            co_table_put(text, ": ");
            co_table_style(text, CO_STYLE_BAD, "the source does not answer: ");
            co_table_foreign(text, source->error);
            co_table_put(text, "\n");
        }
        if (source->quarantined > 0) {
            co_table_foreign(text, source->connection);
            co_table_put(text, ": %" PRIu64, source->quarantined);
            co_table_style(text, CO_STYLE_WARN, " in quarantine");
            co_table_put(text, ": cohort failed list --quarantined\n");
        }
    }
}

static void write_sources(struct co_text *text, const struct co_view *view)
{
    const struct co_table table = {
        .columns = 10,
        .heads = {"SOURCE", "DRIVER", "STATE", "LAST GOOD", "TURNS", "ERRORS", "TURN P95", "HELD",
                  "QUARANTINED", "PLACE"},
        .right = {[3] = true, [4] = true, [5] = true, [6] = true, [7] = true, [8] = true},
        .rows = view->n_sources,
        .row = source_row,
        .arg = view,
    };

    section(text, &table, "no sources yet");
    write_source_troubles(text, view);
}

void co_page_status(struct co_text *text, const struct co_view *view)
{
    write_agent(text, view);
    write_pools(text, view);
    write_queues(text, view);
    write_sources(text, view);
}

void co_page_queues(struct co_text *text, const struct co_view *view)
{
    write_queues(text, view);
    write_source_troubles(text, view);
}

/* ---- workers ---- */

struct place {
    const struct co_view_pool *pool;
    const struct co_view_worker *worker;
};

/* The n-th worker, counted over all pools. */
static struct place find_worker(const struct co_view *view, size_t n)
{
    for (uint32_t i = 0; i < view->n_pools; i++) {
        const struct co_view_pool *pool = &view->pools[i];
        if (n < pool->n_workers) {
            return (struct place){pool, &pool->workers[n]};
        }
        n -= pool->n_workers;
    }
    return (struct place){0};
}

static void worker_row(const void *arg, size_t row, char cells[][CO_CELL_SIZE])
{
    const struct place at = find_worker(arg, row);
    char buf[CO_HUMAN_SIZE];
    size_t c = 0;

    co_table_cell(cells[c++], at.pool->name);
    number(cells[c++], at.worker->index);
    if (at.worker->pid > 0) {
        number(cells[c], (uint64_t)at.worker->pid);
    }
    c++;
    co_table_cell(cells[c++], co_worker_state_name(at.worker->state));
    co_table_cell(cells[c++], co_table_ms(at.worker->since, buf));
    number(cells[c++], at.worker->generation);
    number(cells[c++], at.worker->jobs_done);
    co_table_cell(cells[c++],
                  at.worker->rss_bytes > 0 ? co_table_bytes(at.worker->rss_bytes, buf) : "-");
    or_dash(cells[c++], at.worker->queue);
    or_dash(cells[c], at.worker->job);
    if (at.worker->job_id[0] != '\0') {
        co_table_cell(cells[c], " #");
        co_table_cell(cells[c], at.worker->job_id);
    }
}

void co_page_workers(struct co_text *text, const struct co_view *view)
{
    struct co_table table = {
        .columns = 10,
        .heads = {"POOL", "WORKER", "PID", "STATE", "SINCE", "GENERATION", "JOBS", "MEMORY",
                  "QUEUE", "JOB"},
        .right = {[1] = true, [2] = true, [4] = true, [5] = true, [6] = true, [7] = true},
        .row = worker_row,
        .arg = view,
    };

    for (uint32_t i = 0; i < view->n_pools; i++) {
        table.rows += view->pools[i].n_workers;
    }
    if (table.rows == 0) {
        co_table_put(text, "no workers\n");
        return;
    }
    co_table_write(text, &table);
}
