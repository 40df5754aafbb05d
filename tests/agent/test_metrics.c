#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/metrics.h"

#define TEXT_SIZE (256 * 1024)
#define LINES_MAX 4096

static const struct co_metrics_process process = {
    .now_unix_ms = 1000000, .start_unix_ms = 400000, .cpu_us = 1234567, .open_fds = 9};

struct fixture {
    struct co_view view;
    char text[TEXT_SIZE];
    char copy[TEXT_SIZE];
    char *lines[LINES_MAX];
    size_t n_lines;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct co_view *view = &f->view;
    struct co_view_pool *pool = &view->pools[0];

    strcpy(view->version, "0.1.0");
    view->ready = true;
    view->n_pools = 2;
    strcpy(pool->name, "jobs");
    strcpy(view->pools[1].name, "slow");
    pool->workers_wanted = 6;
    pool->by_state[CO_WORKER_BOOTING] = 1;
    pool->by_state[CO_WORKER_IDLE] = 2;
    pool->by_state[CO_WORKER_BUSY] = 3;
    pool->by_state[CO_WORKER_DEAD] = 99;
    pool->exits[CO_EXIT_CRASH] = 4;
    pool->oldest_wait = 1500;
    pool->generation = 3;
    strcpy(pool->circuit, "closed");
    strcpy(view->pools[1].circuit, "probing");
    view->pools[1].circuit_opened = 2;
    view->pools[1].bookkeeping = 5;
    pool->n_workers = 2;
    pool->workers[0].pid = 31337;
    for (uint64_t us = 50; us < UINT64_C(100000000); us *= 3) {
        co_hist_add(&pool->wait, us);
        co_hist_add(&view->loop_lag, us * 2);
    }
    view->n_sources = 1;
    strcpy(view->sources[0].connection, "database");
    strcpy(view->sources[0].place, "/app/database.sqlite");
    view->sources[0].up = true;
    view->sources[0].turns = 5;
    view->sources[0].last_good = 250;
    view->n_queues = 2;
    strcpy(view->queues[0].connection, "database");
    strcpy(view->queues[0].name, "default");
    strcpy(view->queues[0].pool, "jobs");
    view->queues[0].ready = 7;
    view->queues[0].held = true;
    view->queues[0].oldest_s = 2.5;
    view->queues[0].done = UINT64_MAX;
    strcpy(view->queues[1].connection, "database");
    strcpy(view->queues[1].name, "a\"b\\c\nd\xff\xc3\xa9");
    view->queues[1].oldest_s = -3;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

static void write_text(struct fixture *f, bool openmetrics)
{
    size_t size = co_metrics_write(&f->view, &process, openmetrics, f->text, sizeof f->text);
    char *at = f->copy;
    char *line;

    assert_true(size < sizeof f->text);
    assert_int_equal(strlen(f->text), size);
    assert_int_equal(f->text[size - 1], '\n');
    strcpy(f->copy, f->text);
    f->n_lines = 0;
    while ((line = strsep(&at, "\n")) != NULL && at != NULL) {
        assert_true(f->n_lines < LINES_MAX);
        f->lines[f->n_lines++] = line;
    }
}

static void has(struct fixture *f, const char *line)
{
    for (size_t i = 0; i < f->n_lines; i++) {
        if (strcmp(f->lines[i], line) == 0) {
            return;
        }
    }
    fail_msg("no line %s in\n%s", line, f->text);
}

/* The value of a sample's line; labels may hold spaces, values do not. */
static double value_of(const char *line)
{
    char *end;
    double value = strtod(strrchr(line, ' ') + 1, &end);

    assert_int_equal(*end, '\0');
    return value;
}

static void values_are_those_of_the_view(void **state)
{
    struct fixture *f = *state;
    static const char *const lines[] = {
        "cohort_build_info{version=\"0.1.0\"} 1",
        "cohort_ready 1",
        "cohort_draining 0",
        "cohort_workers{pool=\"jobs\",state=\"booting\"} 1",
        "cohort_workers{pool=\"jobs\",state=\"idle\"} 2",
        "cohort_workers{pool=\"jobs\",state=\"busy\"} 3",
        "cohort_workers{pool=\"jobs\",state=\"draining\"} 0",
        "cohort_workers_wanted{pool=\"jobs\"} 6",
        "cohort_pool_ready{pool=\"jobs\"} 1",
        "cohort_pool_ready{pool=\"slow\"} 0",
        "cohort_worker_exits_total{pool=\"jobs\",reason=\"crash\"} 4",
        "cohort_worker_exits_total{pool=\"slow\",reason=\"oom\"} 0",
        "cohort_admission_oldest_seconds{pool=\"jobs\"} 1.5",
        "cohort_pool_generation{pool=\"jobs\"} 3",
        "cohort_circuit_state{pool=\"jobs\",state=\"closed\"} 1",
        "cohort_circuit_state{pool=\"jobs\",state=\"open\"} 0",
        "cohort_circuit_state{pool=\"slow\",state=\"closed\"} 0",
        "cohort_circuit_state{pool=\"slow\",state=\"probing\"} 1",
        "cohort_circuit_opened_total{pool=\"slow\"} 2",
        "cohort_bookkeeping_jobs{pool=\"slow\"} 5",
        "cohort_queue_held{connection=\"database\",queue=\"default\",pool=\"jobs\"} 1",
        "cohort_source_up{connection=\"database\",place=\"/app/database.sqlite\"} 1",
        "cohort_source_last_success_timestamp_seconds{connection=\"database\","
        "place=\"/app/database.sqlite\"} 999.75",
        "cohort_queue_jobs{connection=\"database\",queue=\"default\",pool=\"jobs\","
        "state=\"ready\"} 7",
        "cohort_queue_oldest_job_age_seconds{connection=\"database\",queue=\"default\","
        "pool=\"jobs\"} 2.5",
        "cohort_jobs_total{connection=\"database\",queue=\"default\",pool=\"jobs\","
        "result=\"done\"} 18446744073709551615",
        "cohort_log_messages_total{level=\"warn\"} 0",
        "process_cpu_seconds_total 1.234567",
        "process_start_time_seconds 400.0",
    };

    write_text(f, false);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        has(f, lines[i]);
    }
}

static void every_exit_reason_has_a_series(void **state)
{
    struct fixture *f = *state;

    write_text(f, false);
    for (int reason = 0; reason < CO_EXIT_REASONS; reason++) {
        char line[128];
        snprintf(line, sizeof line, "cohort_worker_exits_total{pool=\"jobs\",reason=\"%s\"} %d",
                 co_exit_name((enum co_exit_reason)reason), reason == CO_EXIT_CRASH ? 4 : 0);
        has(f, line);
    }
}

static void an_open_circuit_is_not_ready(void **state)
{
    struct fixture *f = *state;

    strcpy(f->view.pools[0].circuit, "open");
    write_text(f, false);
    has(f, "cohort_pool_ready{pool=\"jobs\"} 0");
}

static void workers_are_counted_once_and_without_the_dead(void **state)
{
    struct fixture *f = *state;
    double sum = 0;

    write_text(f, false);
    for (size_t i = 0; i < f->n_lines; i++) {
        if (strncmp(f->lines[i], "cohort_workers{pool=\"jobs\"", 26) == 0) {
            sum += value_of(f->lines[i]);
        }
    }
    assert_true(sum == 6);
}

static void names_are_escaped(void **state)
{
    struct fixture *f = *state;

    write_text(f, false);
    has(f,
        "cohort_queue_jobs{connection=\"database\",queue=\"a\\\"b\\\\c\\nd\\\\xff\xc3\xa9\",pool="
        "\"\","
        "state=\"ready\"} 0");
}

static void a_source_that_never_answered_has_no_success(void **state)
{
    struct fixture *f = *state;

    f->view.sources[0].turns = 0;
    f->view.sources[0].last_good = 0;
    f->view.sources[0].up = false;
    write_text(f, false);
    has(f,
        "cohort_source_last_success_timestamp_seconds{connection=\"database\","
        "place=\"/app/database.sqlite\"} 0.0");
}

static void no_value_is_negative_and_no_series_repeats_or_names_a_pid(void **state)
{
    struct fixture *f = *state;

    f->view.n_queues = 3;
    f->view.queues[2] = f->view.queues[1];
    for (int openmetrics = 0; openmetrics < 2; openmetrics++) {
        write_text(f, openmetrics);
        assert_null(strstr(f->text, "31337"));
        assert_null(strstr(f->text, "pid"));
        for (size_t i = 0; i < f->n_lines; i++) {
            size_t key = (size_t)(strrchr(f->lines[i], ' ') - f->lines[i]);
            if (f->lines[i][0] == '#') {
                continue;
            }
            assert_true(value_of(f->lines[i]) >= 0);
            for (size_t j = 0; j < i; j++) {
                assert_false(strncmp(f->lines[i], f->lines[j], key + 1) == 0);
            }
        }
    }
}

static void histograms_are_cumulative_and_end_in_their_count(void **state)
{
    struct fixture *f = *state;
    double before = 0;
    int buckets = 0;

    write_text(f, false);
    for (size_t i = 0; i < f->n_lines; i++) {
        if (strncmp(f->lines[i], "cohort_loop_lag_seconds_bucket", 30) == 0) {
            assert_true(value_of(f->lines[i]) >= before);
            before = value_of(f->lines[i]);
            buckets++;
        }
    }
    assert_int_equal(buckets, CO_HIST_BUCKETS);
    assert_true(before == (double)f->view.loop_lag.count);
    has(f, "cohort_loop_lag_seconds_bucket{le=\"0.0001\"} 1");
    has(f, "cohort_loop_lag_seconds_bucket{le=\"+Inf\"} 14");
    has(f, "cohort_loop_lag_seconds_count 14");
}

/* What a scraper insists on: a family's lines stand together under its head. */
static void every_sample_stands_under_its_family(void **state)
{
    struct fixture *f = *state;
    static const char *const suffixes[] = {"", "_total", "_info", "_bucket", "_sum", "_count"};

    for (int openmetrics = 0; openmetrics < 2; openmetrics++) {
        char name[128] = "";
        write_text(f, openmetrics);
        for (size_t i = 0; i < f->n_lines; i++) {
            const char *line = f->lines[i];
            bool known = false;
            if (sscanf(line, "# TYPE %127s", name) == 1 || line[0] == '#') {
                continue;
            }
            for (size_t s = 0; s < sizeof suffixes / sizeof suffixes[0]; s++) {
                char full[160];
                snprintf(full, sizeof full, "%s%s", name, suffixes[s]);
                size_t len = strlen(full);
                known |= strncmp(line, full, len) == 0 && (line[len] == '{' || line[len] == ' ');
            }
            if (!known) {
                fail_msg("%s under %s", line, name);
            }
        }
    }
}

static void openmetrics_names_families_without_total_and_ends(void **state)
{
    struct fixture *f = *state;

    write_text(f, true);
    has(f, "# TYPE cohort_jobs counter");
    has(f, "# TYPE cohort_build info");
    assert_string_equal(f->lines[f->n_lines - 1], "# EOF");
    write_text(f, false);
    has(f, "# TYPE cohort_jobs_total counter");
    has(f, "# TYPE cohort_build_info gauge");
    assert_null(strstr(f->text, "# EOF"));
}

static void a_small_buffer_learns_the_size_and_keeps_its_bounds(void **state)
{
    struct fixture *f = *state;
    size_t size = co_metrics_write(&f->view, &process, true, NULL, 0);
    char *buf = malloc(size + 1);
    char small[100];

    assert_non_null(buf);
    assert_int_equal(co_metrics_write(&f->view, &process, true, small, sizeof small), size);
    assert_int_equal(strlen(small), sizeof small - 1);
    assert_int_equal(co_metrics_write(&f->view, &process, true, buf, size + 1), size);
    write_text(f, true);
    assert_string_equal(buf, f->text);
    free(buf);
}

static void the_longest_names_fit(void **state)
{
    struct fixture *f = *state;

    memset(f->view.sources[0].place, '\xff', sizeof f->view.sources[0].place - 1);
    memset(f->view.sources[0].connection, '\xff', sizeof f->view.sources[0].connection - 1);
    memset(f->view.queues[0].name, '\xff', sizeof f->view.queues[0].name - 1);
    memset(f->view.queues[0].pool, '\xff', sizeof f->view.queues[0].pool - 1);
    memset(f->view.queues[0].connection, '\xff', sizeof f->view.queues[0].connection - 1);
    write_text(f, false);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(values_are_those_of_the_view),
        TEST(every_exit_reason_has_a_series),
        TEST(an_open_circuit_is_not_ready),
        TEST(workers_are_counted_once_and_without_the_dead),
        TEST(names_are_escaped),
        TEST(a_source_that_never_answered_has_no_success),
        TEST(no_value_is_negative_and_no_series_repeats_or_names_a_pid),
        TEST(histograms_are_cumulative_and_end_in_their_count),
        TEST(every_sample_stands_under_its_family),
        TEST(openmetrics_names_families_without_total_and_ends),
        TEST(a_small_buffer_learns_the_size_and_keeps_its_bounds),
        TEST(the_longest_names_fit),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
