#include "agent/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "agent/health.h"
#include "proto/log.h"
#include "proto/utf8.h"

/* Wide enough for a path and its companions when every byte becomes five. */
#define LABELS_SIZE (5 * (CO_PATH_SIZE + 2 * CO_NAME_SIZE) + 128)

struct out {
    char *buf;
    size_t size;
    size_t len; /* Needed so far; may pass size. */
    bool openmetrics;
};

enum kind { COUNTER, GAUGE, HISTOGRAM, INFO };

struct labels {
    char text[LABELS_SIZE]; /* key="value",key="value" */
    size_t len;
};

__attribute__((format(printf, 2, 3))) static void put(struct out *out, const char *fmt, ...)
{
    size_t room = out->len < out->size ? out->size - out->len : 0;
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(room > 0 ? out->buf + out->len : NULL, room, fmt, args);
    va_end(args);
    out->len += n > 0 ? (size_t)n : 0;
}

/* Head of a family. OpenMetrics names a counter's family without _total and an info's without
 * _info; the samples are the same in both formats. */
static void family(struct out *out, const char *name, enum kind kind, const char *help)
{
    static const char *const types[] = {
        [COUNTER] = "counter",
        [GAUGE] = "gauge",
        [HISTOGRAM] = "histogram",
        [INFO] = "info",
    };
    static const char *const suffixes[] = {
        [COUNTER] = "_total",
        [GAUGE] = "",
        [HISTOGRAM] = "",
        [INFO] = "_info",
    };
    const char *type = types[kind];
    int len = (int)strlen(name);

    if (out->openmetrics) {
        len -= (int)strlen(suffixes[kind]);
    } else if (kind == INFO) {
        type = "gauge";
    }
    put(out, "# HELP %.*s %s\n# TYPE %.*s %s\n", len, name, help, len, name, type);
}

/* One character of a label's value; returns its size. Bytes that are no UTF-8 would make Prometheus
 * refuse the whole scrape, and dropping them would make two names one, so they are spelled out. */
static size_t escape(const char *at, size_t step, char out[8])
{
    if (step == 0) {
        return (size_t)snprintf(out, 8, "\\\\x%02x", (unsigned)(unsigned char)*at);
    }
    if (*at == '\n' || *at == '"' || *at == '\\') {
        out[0] = '\\';
        out[1] = *at == '\n' ? 'n' : *at;
        return 2;
    }
    memcpy(out, at, step);
    return step;
}

static void label(struct labels *labels, const char *key, const char *value)
{
    char *p = labels->text;
    size_t size = strlen(value);

    labels->len += (size_t)snprintf(p + labels->len, sizeof labels->text - labels->len, "%s%s=\"",
                                    labels->len > 0 ? "," : "", key);
    for (size_t i = 0; i < size;) {
        char out[8];
        size_t step = co_utf8_step(value + i, size - i);
        size_t n = escape(value + i, step, out);
        assert(labels->len + n + 2 <= sizeof labels->text);
        memcpy(p + labels->len, out, n);
        labels->len += n;
        i += step > 0 ? step : 1;
    }
    p[labels->len++] = '"';
    p[labels->len] = '\0';
}

static struct labels label_pool(const char *pool)
{
    struct labels labels = {.len = 0};
    label(&labels, "pool", pool);
    return labels;
}

static void sample(struct out *out, const char *name, const struct labels *labels, uint64_t value)
{
    if (labels == NULL) {
        put(out, "%s %" PRIu64 "\n", name, value);
    } else {
        put(out, "%s{%s} %" PRIu64 "\n", name, labels->text, value);
    }
}

/* Microseconds as seconds. By hand, since a locale may bring a decimal comma. */
static const char *seconds(uint64_t us, char buf[32])
{
    size_t len = (size_t)snprintf(buf, 32, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
    while (buf[len - 1] == '0' && buf[len - 2] != '.') {
        buf[--len] = '\0';
    }
    return buf;
}

static void sample_seconds(struct out *out, const char *name, const struct labels *labels,
                           uint64_t us)
{
    char text[32];
    const char *open = labels != NULL ? "{" : "";
    const char *close = labels != NULL ? "}" : "";

    put(out, "%s%s%s%s %s\n", name, open, labels != NULL ? labels->text : "", close,
        seconds(us, text));
}

static void histogram(struct out *out, const char *name, const struct labels *labels,
                      const struct co_hist *hist)
{
    const char *inner = labels != NULL ? labels->text : "";
    const char *comma = labels != NULL ? "," : "";
    char text[32];
    char part[64];
    uint64_t below = 0;

    for (unsigned i = 0; i < CO_HIST_BUCKETS; i++) {
        uint64_t bound = co_hist_bound_us(i);
        below += hist->bucket[i];
        put(out, "%s_bucket{%s%sle=\"%s\"} %" PRIu64 "\n", name, inner, comma,
            bound == 0 ? "+Inf" : seconds(bound, text), below);
    }
    snprintf(part, sizeof part, "%s_sum", name);
    sample_seconds(out, part, labels, hist->sum_us);
    snprintf(part, sizeof part, "%s_count", name);
    sample(out, part, labels, below); /* Of the buckets, so that it always equals +Inf. */
}

/* ---- the agent ---- */

static void write_agent(struct out *out, const struct co_view *view)
{
    struct labels version = {.len = 0};

    label(&version, "version", view->version);
    family(out, "cohort_build_info", INFO, "The agent's version.");
    sample(out, "cohort_build_info", &version, 1);
    family(out, "cohort_ready", GAUGE, "Whether /readyz says yes.");
    sample(out, "cohort_ready", NULL, view->ready);
    family(out, "cohort_draining", GAUGE, "Whether the agent takes no more work and will exit.");
    sample(out, "cohort_draining", NULL, view->draining);
    family(out, "cohort_loop_lag_seconds", HISTOGRAM,
           "How late the event loop got to what was due.");
    histogram(out, "cohort_loop_lag_seconds", NULL, &view->loop_lag);
    family(out, "cohort_log_messages_total", COUNTER, "Log lines by level.");
    for (int level = CO_LOG_DEBUG; level <= CO_LOG_ERROR; level++) {
        struct labels labels = {.len = 0};
        label(&labels, "level", co_log_level_name((enum co_log_level)level));
        sample(out, "cohort_log_messages_total", &labels, view->log_messages[level]);
    }
}

static void write_process(struct out *out, const struct co_metrics_process *process)
{
    family(out, "process_cpu_seconds_total", COUNTER, "CPU time of the agent itself.");
    sample_seconds(out, "process_cpu_seconds_total", NULL, process->cpu_us);
    family(out, "process_resident_memory_bytes", GAUGE, "Resident memory of the agent itself.");
    sample(out, "process_resident_memory_bytes", NULL, process->resident_bytes);
    family(out, "process_virtual_memory_bytes", GAUGE, "Virtual memory of the agent itself.");
    sample(out, "process_virtual_memory_bytes", NULL, process->virtual_bytes);
    family(out, "process_open_fds", GAUGE, "Open file descriptors of the agent.");
    sample(out, "process_open_fds", NULL, process->open_fds);
    family(out, "process_max_fds", GAUGE, "Limit of file descriptors of the agent.");
    sample(out, "process_max_fds", NULL, process->max_fds);
    family(out, "process_start_time_seconds", GAUGE, "When the agent started, in Unix time.");
    sample_seconds(out, "process_start_time_seconds", NULL, process->start_unix_ms * 1000);
}

/* ---- pools ---- */

static void write_workers(struct out *out, const struct co_view *view)
{
    family(out, "cohort_workers", GAUGE, "Workers by state.");
    for (uint32_t i = 0; i < view->n_pools; i++) {
        for (int state = CO_WORKER_BOOTING; state < CO_WORKER_DEAD; state++) {
            struct labels labels = label_pool(view->pools[i].name);
            label(&labels, "state", co_worker_state_name((enum co_worker_state)state));
            sample(out, "cohort_workers", &labels, view->pools[i].by_state[state]);
        }
    }
}

static void write_exits(struct out *out, const struct co_view *view)
{
    family(out, "cohort_worker_exits_total", COUNTER, "Ends of workers by reason.");
    for (uint32_t i = 0; i < view->n_pools; i++) {
        for (int reason = 0; reason < CO_EXIT_REASONS; reason++) {
            struct labels labels = label_pool(view->pools[i].name);
            label(&labels, "reason", co_exit_name((enum co_exit_reason)reason));
            sample(out, "cohort_worker_exits_total", &labels, view->pools[i].exits[reason]);
        }
    }
}

static void write_circuit(struct out *out, const struct co_view *view)
{
    static const char *const states[] = {"closed", "open", "probing"};

    family(out, "cohort_circuit_state", GAUGE,
           "1 for the circuit's state, 0 for the others; open and probing stop new workers.");
    for (uint32_t i = 0; i < view->n_pools; i++) {
        for (size_t s = 0; s < sizeof states / sizeof states[0]; s++) {
            struct labels labels = label_pool(view->pools[i].name);
            label(&labels, "state", states[s]);
            sample(out, "cohort_circuit_state", &labels,
                   strcmp(view->pools[i].circuit, states[s]) == 0);
        }
    }
}

/* One value of a thing's, by its place in the view. */
struct row {
    const char *name;
    enum kind kind;
    const char *help;
    size_t offset;
    enum { BOOL, U32, U64, MS, HIST } type;
};

static void write_value(struct out *out, const struct row *row, const struct labels *labels,
                        const void *thing)
{
    const char *at = (const char *)thing + row->offset;

    switch (row->type) {
    case BOOL:
        sample(out, row->name, labels, *(const bool *)at);
        return;
    case U32:
        sample(out, row->name, labels, *(const uint32_t *)at);
        return;
    case U64:
        sample(out, row->name, labels, *(const uint64_t *)at);
        return;
    case MS:
        sample_seconds(out, row->name, labels, *(const co_ms *)at * 1000);
        return;
    case HIST:
        histogram(out, row->name, labels, (const struct co_hist *)at);
        return;
    }
}

#define POOL(member) offsetof(struct co_view_pool, member)
static const struct row pool_rows[] = {
    {"cohort_workers_wanted", GAUGE, "Workers the pool should have.", POOL(workers_wanted), U32},
    {"cohort_zygote_up", GAUGE, "Whether new workers can be made.", POOL(zygote_up), BOOL},
    {"cohort_worker_forks_total", COUNTER, "Workers made.", POOL(forks), U64},
    {"cohort_boot_failures_total", COUNTER, "Boots of the application that failed.",
     POOL(boot_failures), U64},
    {"cohort_pool_generation", GAUGE, "Boots of the application that new workers come from.",
     POOL(generation), U32},
    {"cohort_circuit_opened_total", COUNTER, "Times the circuit opened.", POOL(circuit_opened),
     U64},
    {"cohort_bookkeeping_jobs", GAUGE, "Jobs whose worker died, waiting for a bookkeeper.",
     POOL(bookkeeping), U32},
    {"cohort_admission_queue_length", GAUGE, "Tickets that wait for a worker.",
     POOL(tickets_queued), U64},
    {"cohort_admission_oldest_seconds", GAUGE,
     "How long the oldest of the waiting tickets has waited.", POOL(oldest_wait), MS},
    {"cohort_admission_wait_seconds", HISTOGRAM, "From admission to the hand-over to a worker.",
     POOL(wait), HIST},
    {"cohort_handover_seconds", HISTOGRAM, "From the hand-over to the begin in the worker.",
     POOL(handover), HIST},
    {"cohort_job_duration_seconds", HISTOGRAM, "From begin to end of a job.", POOL(service), HIST},
    {"cohort_output_lines_total", COUNTER, "Lines the workers wrote to their output.",
     POOL(output_lines), U64},
    {"cohort_output_suppressed_total", COUNTER,
     "Output lines left out of the log because there were too many.", POOL(output_suppressed), U64},
};

static void write_pool_ready(struct out *out, const struct co_view *view)
{
    family(out, "cohort_pool_ready", GAUGE, "Whether /readyz?pool= says yes.");
    for (uint32_t i = 0; i < view->n_pools; i++) {
        const struct labels labels = label_pool(view->pools[i].name);
        sample(out, "cohort_pool_ready", &labels, co_health_pool_ready(view, &view->pools[i]));
    }
}

static void write_pools(struct out *out, const struct co_view *view)
{
    write_workers(out, view);
    write_pool_ready(out, view);
    write_exits(out, view);
    write_circuit(out, view);
    for (size_t r = 0; r < sizeof pool_rows / sizeof pool_rows[0]; r++) {
        family(out, pool_rows[r].name, pool_rows[r].kind, pool_rows[r].help);
        for (uint32_t i = 0; i < view->n_pools; i++) {
            const struct labels labels = label_pool(view->pools[i].name);
            write_value(out, &pool_rows[r], &labels, &view->pools[i]);
        }
    }
}

/* ---- sources ---- */

static struct labels label_source(const struct co_view_source *source)
{
    struct labels labels = {.len = 0};
    label(&labels, "connection", source->connection);
    label(&labels, "place", source->place); /* Two applications may share a connection's name. */
    return labels;
}

#define SOURCE(member) offsetof(struct co_view_source, member)
static const struct row source_rows[] = {
    {"cohort_source_up", GAUGE, "Whether the last turn with the source succeeded.", SOURCE(up),
     BOOL},
    {"cohort_source_turns_total", COUNTER, "Turns with the source.", SOURCE(turns), U64},
    {"cohort_source_turn_errors_total", COUNTER, "Turns that failed.", SOURCE(turn_errors), U64},
    {"cohort_source_turn_seconds", HISTOGRAM, "How long a turn took.", SOURCE(turn_time), HIST},
    {"cohort_source_held_jobs", GAUGE, "Jobs of the source this agent holds.", SOURCE(held), U64},
    {"cohort_quarantined_jobs", GAUGE, "Payloads put aside as not runnable.", SOURCE(quarantined),
     U64},
};

/* A timestamp, so that "time() - x" works even when the agent no longer gets to update it. 0 is
 * never, as Prometheus has it. */
static uint64_t last_success_us(const struct co_view_source *source, uint64_t now_unix_ms)
{
    bool never = source->turns == 0 || (!source->up && source->last_good == 0);
    return never || source->last_good > now_unix_ms ? 0 : (now_unix_ms - source->last_good) * 1000;
}

static void write_sources(struct out *out, const struct co_view *view, uint64_t now_unix_ms)
{
    for (size_t r = 0; r < sizeof source_rows / sizeof source_rows[0]; r++) {
        family(out, source_rows[r].name, source_rows[r].kind, source_rows[r].help);
        for (uint32_t i = 0; i < view->n_sources; i++) {
            const struct labels labels = label_source(&view->sources[i]);
            write_value(out, &source_rows[r], &labels, &view->sources[i]);
        }
    }
    family(out, "cohort_source_last_success_timestamp_seconds", GAUGE,
           "Unix time of the last good turn with the source, 0 = none yet.");
    for (uint32_t i = 0; i < view->n_sources; i++) {
        const struct labels labels = label_source(&view->sources[i]);
        sample_seconds(out, "cohort_source_last_success_timestamp_seconds", &labels,
                       last_success_us(&view->sources[i], now_unix_ms));
    }
}

/* ---- queues ---- */

static struct labels label_queue(const struct co_view_queue *queue)
{
    struct labels labels = {.len = 0};
    label(&labels, "connection", queue->connection);
    label(&labels, "queue", queue->name);
    label(&labels, "pool", queue->pool);
    return labels;
}

/* A repeated series makes Prometheus refuse the whole scrape, so the first one counts. It takes
 * two applications with a queue of the same name that no pool serves. */
static bool seen_before(const struct co_view *view, uint32_t at)
{
    const struct co_view_queue *queue = &view->queues[at];

    for (uint32_t i = 0; i < at; i++) {
        const struct co_view_queue *other = &view->queues[i];
        if (strcmp(queue->name, other->name) == 0 && strcmp(queue->pool, other->pool) == 0 &&
            strcmp(queue->connection, other->connection) == 0) {
            return true;
        }
    }
    return false;
}

static void write_queue_jobs(struct out *out, const struct co_view_queue *queue)
{
    const struct {
        const char *state;
        uint64_t value;
    } rows[] = {
        {"ready", queue->ready},
        {"delayed", queue->delayed},
        {"claimed", queue->claimed},
        {"running", queue->running},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct labels labels = label_queue(queue);
        label(&labels, "state", rows[i].state);
        sample(out, "cohort_queue_jobs", &labels, rows[i].value);
    }
}

static void write_queue_results(struct out *out, const struct co_view_queue *queue)
{
    const struct {
        const char *result;
        uint64_t value;
    } rows[] = {
        {"done", queue->done},        {"failed", queue->failed}, {"released", queue->released},
        {"crashed", queue->crashed},  {"lost", queue->lost},     {"declined", queue->declined},
        {"timeout", queue->timeouts},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct labels labels = label_queue(queue);
        label(&labels, "result", rows[i].result);
        sample(out, "cohort_jobs_total", &labels, rows[i].value);
    }
}

static uint64_t oldest_us(const struct co_view_queue *queue)
{
    return queue->oldest_s > 0 && queue->oldest_s < 1e12 ? (uint64_t)(queue->oldest_s * 1e6) : 0;
}

static void write_queue_age(struct out *out, const struct co_view_queue *queue)
{
    const struct labels labels = label_queue(queue);
    sample_seconds(out, "cohort_queue_oldest_job_age_seconds", &labels, oldest_us(queue));
}

static void write_queue_served(struct out *out, const struct co_view_queue *queue)
{
    const struct labels labels = label_queue(queue);
    sample(out, "cohort_queue_served", &labels, queue->served);
}

static void write_queue_held(struct out *out, const struct co_view_queue *queue)
{
    const struct labels labels = label_queue(queue);
    sample(out, "cohort_queue_held", &labels, queue->held);
}

static void write_queue_foreign(struct out *out, const struct co_view_queue *queue)
{
    const struct labels labels = label_queue(queue);
    sample(out, "cohort_queue_foreign_jobs", &labels, queue->foreign);
}

static void write_queues(struct out *out, const struct co_view *view)
{
    static const struct {
        const char *name;
        enum kind kind;
        const char *help;
        void (*write)(struct out *out, const struct co_view_queue *queue);
    } families[] = {
        {"cohort_queue_jobs", GAUGE,
         "Jobs by state: ready and delayed in the source, claimed and running here.",
         write_queue_jobs},
        {"cohort_queue_oldest_job_age_seconds", GAUGE, "Age of the oldest ready job.",
         write_queue_age},
        {"cohort_queue_served", GAUGE, "Whether a pool of this agent serves the queue.",
         write_queue_served},
        {"cohort_queue_held", GAUGE,
         "Whether nothing is claimed because of a pause or of maintenance mode.", write_queue_held},
        {"cohort_queue_foreign_jobs", GAUGE, "Jobs reserved by stock workers or other agents.",
         write_queue_foreign},
        {"cohort_jobs_total", COUNTER, "What came of this agent's jobs.", write_queue_results},
    };

    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        family(out, families[f].name, families[f].kind, families[f].help);
        for (uint32_t i = 0; i < view->n_queues; i++) {
            if (!seen_before(view, i)) {
                families[f].write(out, &view->queues[i]);
            }
        }
    }
}

size_t co_metrics_write(const struct co_view *view, const struct co_metrics_process *process,
                        bool openmetrics, char *buf, size_t size)
{
    struct out out = {.buf = buf, .size = size, .openmetrics = openmetrics};

    write_agent(&out, view);
    write_pools(&out, view);
    write_sources(&out, view, process->now_unix_ms);
    write_queues(&out, view);
    write_process(&out, process);
    if (openmetrics) {
        put(&out, "# EOF\n");
    }
    return out.len;
}
