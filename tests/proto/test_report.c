/* The answers an agent puts together itself, as JSON. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "proto/err.h"
#include "proto/report.h"

static struct co_view view;

static int set_up(void **state)
{
    (void)state;
    memset(&view, 0, sizeof view);
    view.ready = true;
    return 0;
}

static void is(char *json, const char *expected)
{
    assert_non_null(json);
    assert_string_equal(json, expected);
    free(json);
}

static void has(const char *json, const char *part)
{
    if (strstr(json, part) == NULL) {
        fail_msg("%s is not in %s", part, json);
    }
}

static void an_empty_list_is_an_empty_array(void **state)
{
    (void)state;
    is(co_report_quarantine(NULL, 0), "{\"jobs\":[]}");
    is(co_report_exits(NULL, 0), "{\"exits\":[]}");
    is(co_report_minutes(NULL, 0), "{\"minutes\":[]}");
    is(co_report_slow(NULL, 0), "{\"slow\":[]}");
}

static void quarantined_jobs(void **state)
{
    const struct co_report_quarantined list[] = {
        {7, "database", "mail", "payload is no JSON", 1764504000, 12},
        {8, "database", "\xff", "\"quoted\"", 1, 0},
    };
    (void)state;
    is(co_report_quarantine(list, 2),
       "{\"jobs\":[{\"id\":7,\"connection\":\"database\",\"queue\":\"mail\","
       "\"reason\":\"payload is no JSON\",\"since\":1764504000,\"payload_size\":12},"
       "{\"id\":8,\"connection\":\"database\",\"queue\":\"\xef\xbf\xbd\","
       "\"reason\":\"\\\"quoted\\\"\",\"since\":1,\"payload_size\":0}]}");
}

static void ping_and_counts(void **state)
{
    (void)state;
    snprintf(view.version, sizeof view.version, "0.1.0");
    snprintf(view.agent_id, sizeof view.agent_id, "00000000000000a1");
    view.pid = 4711;
    is(co_report_ping(&view),
       "{\"version\":\"0.1.0\",\"pid\":4711,\"agent_id\":\"00000000000000a1\"}");
    is(co_report_count("retried", 3), "{\"retried\":3}");
    is(co_report_count("forgotten", UINT32_MAX + 1ull), "{\"forgotten\":4294967296}");
}

static struct co_view_queue *add_queue(const char *name, bool served)
{
    struct co_view_queue *queue = &view.queues[view.n_queues++];
    snprintf(queue->name, sizeof queue->name, "%s", name);
    snprintf(queue->connection, sizeof queue->connection, "database");
    queue->served = served;
    return queue;
}

static void doctor_names_queues_nobody_serves(void **state)
{
    (void)state;
    add_queue("served", true)->ready = 5;
    add_queue("empty", false);
    add_queue("forgotten", false)->delayed = 2;
    is(co_report_doctor(&view, NULL),
       "{\"unserved\":[{\"connection\":\"database\",\"queue\":\"forgotten\",\"ready\":0,"
       "\"delayed\":2}],\"foreign\":0,\"notes\":[]}");
}

static void doctor_notes_what_the_view_complains_of(void **state)
{
    (void)state;
    view.ready = false;
    snprintf(view.why, sizeof view.why, "pool jobs: the application does not boot");
    view.n_sources = 1;
    view.sources[0].quarantined = 1;
    add_queue("mail", true)->foreign = 2;
    add_queue("default", true)->foreign = 1;
    char *json = co_report_doctor(&view, NULL);
    assert_non_null(json);
    has(json, "\"foreign\":3");
    has(json, "\"notes\":[\"pool jobs: the application does not boot\",");
    has(json, "cohort failed list --quarantined");
    has(json, "transaction_mode IMMEDIATE");
    free(json);
}

static void doctor_keeps_what_the_application_said(void **state)
{
    static const char *const unusable[] = {"", "[1]", "{", "\"text\""};
    (void)state;
    is(co_report_doctor(&view, "{\"php\":{\"version\":\"8.2.29\"}}"),
       "{\"php\":{\"version\":\"8.2.29\"},\"unserved\":[],\"foreign\":0,\"notes\":[]}");
    for (size_t i = 0; i < sizeof unusable / sizeof unusable[0]; i++) {
        is(co_report_doctor(&view, unusable[i]), "{\"unserved\":[],\"foreign\":0,\"notes\":[]}");
    }
}

static void ids_are_numbers_or_digits(void **state)
{
    static const struct {
        const char *args;
        int n;
        bool all;
        int64_t first;
    } rows[] = {
        {"{\"ids\":[1,2,3]}", 3, false, 1},
        {"{\"ids\":[\"42\"]}", 1, false, 42},
        {"{\"ids\":[9223372036854775807]}", 1, false, INT64_MAX},
        {"{\"ids\":[1,2,3,4,5]}", 4, false, 1}, /* Room for four. */
        {"{\"ids\":[]}", 0, false, 0},
        {"{\"all\":true}", 0, true, 0},
        {"{\"all\":1}", 0, false, 0},
        {"{}", 0, false, 0},
        {"", 0, false, 0},
        {"{\"ids\":[\"4x\"]}", CO_EMALFORMED, false, 0},
        {"{\"ids\":[\"\"]}", CO_EMALFORMED, false, 0},
        {"{\"ids\":[1,1.5]}", CO_EMALFORMED, false, 0},
        {"{\"ids\":[null]}", CO_EMALFORMED, false, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t ids[4] = {0};
        bool all = !rows[i].all;
        int n = co_report_ids(rows[i].args, ids, 4, &all);
        if (n != rows[i].n || all != rows[i].all || (n > 0 && ids[0] != rows[i].first)) {
            fail_msg("%s: %d, %lld", rows[i].args, n, (long long)ids[0]);
        }
    }
}

static void exits(void **state)
{
    const struct co_report_exit list[] = {
        {.id = 9,
         .at = 1764504000,
         .pool = "jobs",
         .worker = 3,
         .pid = 4711,
         .generation = 2,
         .reason = "oom",
         .status = "signal 9 (SIGKILL)",
         .queue = "mail",
         .job = "App\\Jobs\\Mail",
         .job_id = "12",
         .uuid = "0b9f5a1e",
         .cause = "caf\xc3\xa9 \xe2\x82",
         .rss_bytes = 1ull << 40},
        {.reason = "reload"},
    };
    (void)state;
    is(co_report_exits(list, 2),
       "{\"exits\":[{\"id\":9,\"at\":1764504000,\"pool\":\"jobs\",\"worker\":3,\"pid\":4711,"
       "\"generation\":2,\"reason\":\"oom\",\"status\":\"signal 9 (SIGKILL)\",\"queue\":\"mail\","
       "\"job\":\"App\\\\Jobs\\\\Mail\",\"job_id\":\"12\",\"uuid\":\"0b9f5a1e\","
       "\"cause\":\"caf\xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\",\"rss_bytes\":1099511627776},"
       "{\"id\":0,\"at\":0,\"pool\":\"\",\"worker\":0,\"pid\":0,\"generation\":0,"
       "\"reason\":\"reload\",\"status\":\"\",\"queue\":\"\",\"job\":\"\",\"job_id\":\"\","
       "\"uuid\":\"\",\"cause\":\"\",\"rss_bytes\":0}]}");
}

static void minutes(void **state)
{
    const struct co_report_minute list[] = {{.minute = 1764504000,
                                             .pool = "jobs",
                                             .connection = "database",
                                             .queue = "mail",
                                             .job = "Mail",
                                             .done = 1,
                                             .failed = 2,
                                             .released = 3,
                                             .crashed = 4,
                                             .timeouts = 5,
                                             .run_sum_us = 6,
                                             .run_max_us = 7,
                                             .wait_sum_us = 8}};
    (void)state;
    is(co_report_minutes(list, 1),
       "{\"minutes\":[{\"minute\":1764504000,\"pool\":\"jobs\",\"connection\":\"database\","
       "\"queue\":\"mail\",\"job\":\"Mail\",\"done\":1,\"failed\":2,\"released\":3,\"crashed\":4,"
       "\"timeouts\":5,\"run_sum_us\":6,\"run_max_us\":7,\"wait_sum_us\":8}]}");
}

static void slow_jobs(void **state)
{
    const struct co_report_slow list[] = {{.id = 1,
                                           .at = 1764504000,
                                           .pool = "jobs",
                                           .worker = 2,
                                           .job = "Mail",
                                           .seconds = 30,
                                           .stack = "#0 a.php:1\n#1 main"}};
    (void)state;
    is(co_report_slow(list, 1),
       "{\"slow\":[{\"id\":1,\"at\":1764504000,\"pool\":\"jobs\",\"worker\":2,\"job\":\"Mail\","
       "\"seconds\":30,\"stack\":\"#0 a.php:1\\n#1 main\"}]}");
}

#define TEST(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(an_empty_list_is_an_empty_array),
        TEST(quarantined_jobs),
        TEST(ping_and_counts),
        TEST(doctor_names_queues_nobody_serves),
        TEST(doctor_notes_what_the_view_complains_of),
        TEST(doctor_keeps_what_the_application_said),
        TEST(ids_are_numbers_or_digits),
        TEST(exits),
        TEST(minutes),
        TEST(slow_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
