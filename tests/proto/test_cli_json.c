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

#include "proto/cli_json.h"

static int read_answer(const char *json, struct co_cli_answer *answer)
{
    return co_cli_json_answer(json, strlen(json), answer, NULL);
}

static void answers_are_taken_apart(void **state)
{
    (void)state;
    struct co_cli_answer answer;

    assert_int_equal(
        read_answer("{\"v\":1,\"id\":\"a\",\"ok\":true,\"data\":{\"n\":[1]}}", &answer), 0);
    assert_true(answer.ok);
    assert_string_equal(answer.id, "a");
    assert_string_equal(answer.data, "{\"n\":[1]}");
    co_cli_json_answer_done(&answer);

    assert_int_equal(read_answer("{\"v\":1,\"id\":\"a\",\"ok\":false,\"code\":\"not_found\","
                                 "\"error\":\"no such job\",\"later\":1}",
                                 &answer),
                     0);
    assert_false(answer.ok);
    assert_string_equal(answer.code, "not_found");
    assert_string_equal(answer.error, "no such job");
    co_cli_json_answer_done(&answer);
}

static void what_is_no_answer_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int code;
    } rows[] = {
        {"", CO_EMALFORMED},
        {"[]", CO_EMALFORMED},
        {"{\"v\":1}", CO_EMALFORMED},
        {"{\"v\":1,\"ok\":1}", CO_EMALFORMED},
        {"{\"v\":2,\"ok\":true}", CO_EVERSION},
        {"{\"ok\":true}", CO_EVERSION},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct co_cli_answer answer;
        assert_int_equal(read_answer(rows[i].json, &answer), rows[i].code);
    }
}

static void a_payload_travels_unchanged_or_not_at_all(void **state)
{
    (void)state;
    struct co_err err;
    char *args = co_cli_json_push("mail", "db", "{\"job\":\"a\\\\b\"}\n", 15, &err);

    assert_string_equal(args,
                        "{\"queue\":\"mail\",\"payload\":\"{\\\"job\\\":\\\"a\\\\\\\\b\\\"}\\n\","
                        "\"connection\":\"db\"}");
    free(args);
    assert_null(co_cli_json_push("mail", NULL, "\xff", 1, &err));
    assert_int_equal(err.code, CO_EMALFORMED);
}

static void arguments_of_failed_say_which(void **state)
{
    (void)state;
    const char *const ids[] = {"1", "abc"};
    char *args = co_cli_json_failed(
        &(struct co_cli_failed_args){.ids = ids, .n_ids = 2, .quarantined = true, .limit = 5});

    assert_string_equal(args, "{\"ids\":[\"1\",\"abc\"],\"quarantined\":true,\"limit\":5}");
    free(args);
    args = co_cli_json_failed(&(struct co_cli_failed_args){.all = true});
    assert_string_equal(args, "{\"all\":true}");
    free(args);
}

static void members_without_text_are_left_out(void **state)
{
    (void)state;
    char *args = co_cli_json_members(
        (const char *const[][2]){{"queue", NULL}, {"reason", "a \"b\"\xff"}}, 2);

    assert_string_equal(args, "{\"reason\":\"a \\\"b\\\"\xef\xbf\xbd\"}");
    free(args);
    args = co_cli_json_members((const char *const[][2]){{"queue", NULL}}, 1);
    assert_string_equal(args, "{}");
    free(args);
}

static void what_the_agent_reports_is_read_back(void **state)
{
    (void)state;
    const struct co_report_exit exits[] = {
        {.id = 2,
         .at = 60,
         .pool = "jobs",
         .worker = 3,
         .pid = 4,
         .generation = 5,
         .reason = "oom",
         .status = "signal 9",
         .queue = "q",
         .job = "A",
         .job_id = "6",
         .uuid = "u",
         .cause = "c",
         .rss_bytes = 7},
        {.id = 1, .pool = "mail"},
    };
    const struct co_report_slow slow[] = {
        {.id = 1, .at = 60, .pool = "jobs", .worker = 3, .job = "A", .seconds = 9, .stack = "#0"}};
    const struct co_report_minute minutes[] = {{.minute = 60,
                                                .pool = "jobs",
                                                .connection = "db",
                                                .queue = "q",
                                                .job = "A",
                                                .done = 1,
                                                .failed = 2,
                                                .released = 3,
                                                .crashed = 4,
                                                .timeouts = 5,
                                                .run_sum_us = 6,
                                                .run_max_us = 7,
                                                .wait_sum_us = 8}};
    struct co_report_exit exits_back[2];
    struct co_report_slow slow_back[1];
    struct co_report_minute minutes_back[1];
    char *data = co_report_exits(exits, 2);

    memset(exits_back, 0xee, sizeof exits_back);
    assert_int_equal(co_cli_json_exits(data, exits_back, 2), 2);
    assert_memory_equal(exits_back, exits, sizeof exits);
    assert_int_equal(co_cli_json_exits(data, exits_back, 1), 1);
    assert_int_equal(co_cli_json_slow(data, slow_back, 1), CO_EMALFORMED);
    assert_int_equal(co_cli_json_exits("", exits_back, 1), CO_EMALFORMED);
    free(data);
    data = co_report_slow(slow, 1);
    assert_int_equal(co_cli_json_slow(data, slow_back, 1), 1);
    assert_memory_equal(slow_back, slow, sizeof slow);
    free(data);
    data = co_report_minutes(minutes, 1);
    assert_int_equal(co_cli_json_minutes(data, minutes_back, 1), 1);
    assert_memory_equal(minutes_back, minutes, sizeof minutes);
    free(data);
}

static void a_list_is_cut_to_its_first(void **state)
{
    (void)state;
    char *json = co_cli_json_first("{\"exits\":[1,2,3]}", "exits", 2);

    assert_string_equal(json, "{\n  \"schema\": 1,\n  \"exits\": [\n    1,\n    2\n  ]\n}");
    free(json);
    assert_null(co_cli_json_first("{}", "exits", 2));
}

static void write_frame(void *arg, uint32_t index, const char *function, const char *file,
                        uint64_t line)
{
    char *text = arg;
    snprintf(text + strlen(text), 200, "%u %s %s %u\n", (unsigned)index, function, file,
             (unsigned)line);
}

static void frames_of_a_trace_are_walked(void **state)
{
    (void)state;
    char text[500] = "";
    uint64_t pid = 0;

    assert_int_equal(co_cli_json_frames("{\"pid\":42,\"frames\":[{\"function\":\"sleep\"},"
                                        "{\"function\":\"f\",\"file\":\"/a\",\"line\":3}]}",
                                        &pid, write_frame, text),
                     2);
    assert_int_equal(pid, 42);
    assert_string_equal(text, "0 sleep  0\n1 f /a 3\n");
    assert_int_equal(co_cli_json_frames("{}", &pid, write_frame, text), CO_EMALFORMED);
}

static void write_failed(void *arg, const struct co_cli_failed *failed)
{
    char *text = arg;
    snprintf(text + strlen(text), 300, "%s|%s|%s|%s|%.20s\n", failed->id, failed->job,
             failed->queue, failed->when, failed->why);
}

static void failed_jobs_are_listed_even_with_cut_payloads(void **state)
{
    (void)state;
    char text[1000] = "";
    static const char data[] =
        "{\"jobs\":[{\"id\":\"7\",\"queue\":\"q\",\"failed_at\":\"then\",\"exception\":\"E\","
        "\"payload\":\"{\\\"displayName\\\":\\\"App\\\\\\\\A\\\",\\\"data\\\":\\\"cut...\"},"
        "{\"id\":3,\"queue\":\"q\",\"reason\":\"bad\",\"since\":86400,\"payload_size\":8},"
        "{\"id\":\"8\",\"payload\":\"{\\\"displayName\\\":\\\"App\\\\\\\\B\\\"}\"}]}";

    assert_int_equal(co_cli_json_failed_each(data, write_failed, text), 3);
    assert_string_equal(text,
                        "7|App\\A|q|then|E\n"
                        "3||q|1970-01-02 00:00:00|bad\n"
                        "8|App\\B|||\n");
    assert_int_equal(co_cli_json_failed_each("{}", write_failed, text), CO_EMALFORMED);
}

static void write_difference(void *arg, bool extension, const char *name, const char *worker,
                             const char *cli)
{
    char *text = arg;
    snprintf(text + strlen(text), 200, "%s %s %s %s\n", extension ? "ext" : "ini", name,
             worker != NULL ? worker : "-", cli != NULL ? cli : "-");
}

static void differences_of_two_phps_are_found_and_our_own_left_out(void **state)
{
    (void)state;
    char text[1000] = "";
    static const char worker[] =
        "{\"extensions\":{\"json\":\"8\",\"cohort_worker\":\"1\",\"redis\":\"6\"},"
        "\"ini\":{\"memory_limit\":\"128M\",\"opcache.enable_cli\":\"1\",\"a\":null}}";
    static const char cli[] =
        "{\"extensions\":{\"json\":\"8\",\"gd\":\"8\",\"redis\":\"5\"},"
        "\"ini\":{\"memory_limit\":\"-1\",\"opcache.enable_cli\":\"0\",\"a\":null}}";

    assert_int_equal(co_cli_json_compare(worker, cli, write_difference, text), 3);
    assert_string_equal(text, "ext gd - 8\next redis 6 5\nini memory_limit 128M -1\n");
    assert_int_equal(co_cli_json_compare("", cli, write_difference, text), CO_EMALFORMED);
}

static void php_describes_itself(void **state)
{
    (void)state;
    struct co_cli_php php;

    assert_int_equal(
        co_cli_json_php("{\"version\":\"8.2.1\",\"zts\":true,\"ini_file\":null,"
                        "\"ini_scanned\":[\"/a/1.ini\",\"/a/2.ini\"],\"opcache\":true}",
                        &php, NULL),
        0);
    assert_string_equal(php.version, "8.2.1");
    assert_true(php.zts && php.opcache && !php.pcntl);
    assert_int_equal(php.n_ini_scanned, 2);
    assert_string_equal(php.first_scanned, "/a/1.ini");
    assert_int_equal(co_cli_json_php("PHP Fatal error", &php, NULL), CO_EMALFORMED);
}

static void printed_json_has_a_schema(void **state)
{
    (void)state;
    char *json = co_cli_json_pretty("{\"a\":1}");

    assert_string_equal(json, "{\n  \"schema\": 1,\n  \"a\": 1\n}");
    free(json);
    json = co_cli_json_workers(
        "{\"pools\":[{\"name\":\"p\",\"workers\":[{\"pid\":4}]},"
        "{\"name\":\"q\"}]}");
    assert_string_equal(json,
                        "{\n  \"schema\": 1,\n  \"workers\": [\n    {\n      \"pool\": \"p\",\n"
                        "      \"pid\": 4\n    }\n  ]\n}");
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_taken_apart),
        cmocka_unit_test(what_is_no_answer_is_refused),
        cmocka_unit_test(a_payload_travels_unchanged_or_not_at_all),
        cmocka_unit_test(arguments_of_failed_say_which),
        cmocka_unit_test(members_without_text_are_left_out),
        cmocka_unit_test(what_the_agent_reports_is_read_back),
        cmocka_unit_test(a_list_is_cut_to_its_first),
        cmocka_unit_test(frames_of_a_trace_are_walked),
        cmocka_unit_test(failed_jobs_are_listed_even_with_cut_payloads),
        cmocka_unit_test(differences_of_two_phps_are_found_and_our_own_left_out),
        cmocka_unit_test(php_describes_itself),
        cmocka_unit_test(printed_json_has_a_schema),
    };
    return cmocka_run_group_tests_name("cli_json", tests, NULL, NULL);
}
