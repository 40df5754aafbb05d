#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/control.h"
#include "proto/view.h"

static void buckets_double_from_100_us(void **state)
{
    struct co_hist hist = {0};
    (void)state;
    assert_int_equal(co_hist_bound_us(0), 100);
    assert_int_equal(co_hist_bound_us(1), 200);
    assert_int_equal(co_hist_bound_us(CO_HIST_BUCKETS - 2), UINT64_C(100) << 18);
    assert_int_equal(co_hist_bound_us(CO_HIST_BUCKETS - 1), 0);
    co_hist_add(&hist, 0);
    co_hist_add(&hist, 100);
    co_hist_add(&hist, 101);
    co_hist_add(&hist, UINT64_MAX / 2);
    assert_int_equal(hist.bucket[0], 2);
    assert_int_equal(hist.bucket[1], 1);
    assert_int_equal(hist.bucket[CO_HIST_BUCKETS - 1], 1);
    assert_int_equal(hist.count, 4);
    assert_int_equal(hist.sum_us, 201 + UINT64_MAX / 2);
}

static void quantiles_are_bounds_of_their_bucket(void **state)
{
    struct co_hist hist = {0};
    (void)state;
    assert_int_equal(co_hist_quantile_us(&hist, 0.5), 0);
    for (int i = 0; i < 98; i++) {
        co_hist_add(&hist, 150);
    }
    co_hist_add(&hist, 1000);
    co_hist_add(&hist, UINT64_C(3600000000));
    assert_int_equal(co_hist_quantile_us(&hist, 0), 200);
    assert_int_equal(co_hist_quantile_us(&hist, 0.5), 200);
    assert_int_equal(co_hist_quantile_us(&hist, 0.98), 200);
    assert_int_equal(co_hist_quantile_us(&hist, 0.99), 1600);
    assert_int_equal(co_hist_quantile_us(&hist, 1), co_hist_bound_us(CO_HIST_BUCKETS - 2));
}

static void every_name_is_told_apart(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CO_EXIT_REASONS; i++) {
        for (unsigned j = 0; j < i; j++) {
            assert_string_not_equal(co_exit_name((enum co_exit_reason)i),
                                    co_exit_name((enum co_exit_reason)j));
        }
    }
    assert_string_equal(co_exit_name(CO_EXIT_OOM), "oom");
    assert_string_equal(co_worker_state_name(CO_WORKER_DRAINING), "draining");
}

/* A view in which no two numbers are alike, so that a swapped member shows. */
static struct co_view *view_new(void)
{
    struct co_view *view = calloc(1, sizeof *view);
    struct co_view_pool *pool = &view->pools[0];

    *view = (struct co_view){.agent_id = "00ff",
                             .version = "0.1.0",
                             .pid = 4711,
                             .uptime = 12345,
                             .startup = true,
                             .live = true,
                             .why = "source database: locked",
                             .run_dir = "/run/cohort",
                             .config_file = "/etc/cohort.yaml",
                             .log_messages = {1, 2, 3, 4},
                             .n_pools = 2,
                             .n_sources = 1,
                             .n_queues = 2};
    co_hist_add(&view->loop_lag, 900);
    *pool = (struct co_view_pool){.name = "jobs",
                                  .app = "shop",
                                  .app_path = "/app",
                                  .app_kind = "laravel",
                                  .app_version = "8.83.26",
                                  .php_version = "8.2.7",
                                  .workers_wanted = 8,
                                  .by_state = {5, 6, 7, 9, 10},
                                  .forks = 11,
                                  .boot_failures = 12,
                                  .boot_error = "PHP Fatal error: \"x\"",
                                  .zygote_up = true,
                                  .generation = 36,
                                  .circuit = "probing",
                                  .circuit_opened = 37,
                                  .bookkeeping = 38,
                                  .tickets_queued = 13,
                                  .oldest_wait = 14,
                                  .output_lines = 15,
                                  .output_suppressed = 16,
                                  .n_workers = 2};
    for (unsigned i = 0; i < CO_EXIT_REASONS; i++) {
        pool->exits[i] = 100 + i;
    }
    co_hist_add(&pool->wait, 1);
    co_hist_add(&pool->service, 20000);
    co_hist_add(&pool->handover, 300);
    pool->workers[1] = (struct co_view_worker){.index = 1,
                                               .generation = 3,
                                               .pid = 99,
                                               .state = CO_WORKER_BUSY,
                                               .since = 17,
                                               .jobs_done = 18,
                                               .rss_bytes = UINT64_C(5) << 32,
                                               .queue = "high",
                                               .job = "App\\Jobs\\Send",
                                               .job_id = "42"};
    memcpy(view->pools[1].name, "mail", 5);
    view->sources[0] = (struct co_view_source){.connection = "database",
                                               .driver = "sqlite",
                                               .place = "/app/db.sqlite",
                                               .up = true,
                                               .error = "none",
                                               .last_good = 19,
                                               .turns = 20,
                                               .turn_errors = 21,
                                               .quarantined = 22,
                                               .held = 23};
    view->queues[1] = (struct co_view_queue){.name = "high",
                                             .connection = "database",
                                             .pool = "jobs",
                                             .served = true,
                                             .ready = 24,
                                             .delayed = 25,
                                             .claimed = 26,
                                             .running = 27,
                                             .foreign = 28,
                                             .oldest_s = 1.5,
                                             .held = true,
                                             .done = 29,
                                             .failed = 30,
                                             .released = 31,
                                             .crashed = 32,
                                             .lost = 33,
                                             .declined = 34,
                                             .timeouts = 35};
    return view;
}

static void a_view_survives_its_json(void **state)
{
    struct co_view *view = view_new();
    struct co_view *back = malloc(sizeof *back);
    struct co_err err = {0};
    char *json = co_view_to_json(view, true, true);
    char *again;
    (void)state;
    memset(back, 0xee, sizeof *back);
    assert_non_null(json);
    assert_int_equal(co_view_from_json(json, strlen(json), back, &err), 0);
    assert_int_equal(back->pools[0].workers[1].rss_bytes, UINT64_C(5) << 32);
    assert_int_equal(back->pools[0].exits[CO_EXIT_KILLED], 100 + CO_EXIT_KILLED);
    assert_int_equal(back->queues[1].timeouts, 35);
    assert_memory_equal(back, view, sizeof *view);
    again = co_view_to_json(back, true, true);
    assert_string_equal(again, json);
    free(again);
    free(json);
    free(back);
    free(view);
}

static void parts_not_asked_for_are_left_out(void **state)
{
    struct co_view *view = view_new();
    char *json = co_view_to_json(view, false, false);
    (void)state;
    assert_null(strstr(json, "\"queues\""));
    assert_null(strstr(json, "\"workers\""));
    assert_non_null(strstr(json, "\"workers_wanted\":8"));
    assert_int_equal(co_view_from_json(json, strlen(json), view, NULL), 0);
    assert_int_equal(view->n_queues, 0);
    assert_int_equal(view->pools[0].n_workers, 0);
    free(json);
    free(view);
}

static void texts_that_are_no_utf8_are_shown_all_the_same(void **state)
{
    struct co_view *view = view_new();
    char *json;
    (void)state;
    memcpy(view->queues[0].name, "q\xff", 3);
    json = co_view_to_json(view, false, true);
    assert_non_null(strstr(json, "\"q\xef\xbf\xbd\""));
    free(json);
    free(view);
}

static void foreign_json_is_refused_and_touches_nothing(void **state)
{
    static const struct {
        const char *json;
        int code;
    } rows[] = {
        {"", CO_EMALFORMED},
        {"[]", CO_EMALFORMED},
        {"{}", CO_EMALFORMED},
        {"{\"schema\":\"1\"}", CO_EMALFORMED},
        {"{\"schema\":1,\"schema\":1}", CO_EMALFORMED},
        {"{\"schema\":2}", CO_EVERSION},
        {"{\"schema\":1,\"pools\":[1,2,3,4,5]}", CO_EFULL},
    };
    struct co_view *view = view_new();
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct co_err err = {0};
        assert_int_equal(co_view_from_json(rows[i].json, strlen(rows[i].json), view, &err),
                         rows[i].code);
        assert_int_equal(view->pid, 4711);
    }
    free(view);
}

static void a_newer_agent_is_understood(void **state)
{
    static const char json[] =
        "{\"schema\":1,\"new\":{\"x\":[1]},\"pid\":5,\"uptime_ms\":-3,\"why\":7,\"pools\":[{"
        "\"name\":"
        "\"jobs\",\"workers\":[{\"state\":\"frozen\"}],\"exits\":{\"bored\":4,\"oom\":2}}]}";
    struct co_view *view = malloc(sizeof *view);
    (void)state;
    assert_int_equal(co_view_from_json(json, strlen(json), view, NULL), 0);
    assert_int_equal(view->pid, 5);
    assert_int_equal(view->uptime, 0);
    assert_string_equal(view->why, "");
    assert_int_equal(view->pools[0].exits[CO_EXIT_OOM], 2);
    assert_int_equal(view->pools[0].workers[0].state, CO_WORKER_DEAD);
    free(view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_double_from_100_us),
        cmocka_unit_test(quantiles_are_bounds_of_their_bucket),
        cmocka_unit_test(every_name_is_told_apart),
        cmocka_unit_test(a_view_survives_its_json),
        cmocka_unit_test(parts_not_asked_for_are_left_out),
        cmocka_unit_test(texts_that_are_no_utf8_are_shown_all_the_same),
        cmocka_unit_test(foreign_json_is_refused_and_touches_nothing),
        cmocka_unit_test(a_newer_agent_is_understood),
    };
    return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
