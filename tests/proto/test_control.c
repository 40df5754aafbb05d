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

#include "proto/control.h"

#define COUNT_OF(table) (sizeof(table) / sizeof(table)[0])

static void a_request_is_what_we_promised(void **state)
{
    static const char golden[] =
        "{\"v\":1,\"id\":\"7\",\"op\":\"push\",\"args\":{\"queue\":\"a\",\"payload\":\"{\\\"x\\\":"
        "\\\"\\\\u0000\\\"}\"}}";
    struct co_control_request request;
    struct co_err err = {0};
    char payload[64];
    char *json = co_control_request_write(
        "7", "push", "{\"queue\":\"a\",\"payload\":\"{\\\"x\\\":\\\"\\\\u0000\\\"}\"}");
    (void)state;
    assert_string_equal(json, golden);
    assert_int_equal(co_control_request_read(json, strlen(json), &request, &err), 0);
    assert_string_equal(request.id, "7");
    assert_string_equal(request.op, "push");
    assert_true(co_json_get_string(request.args, "payload", payload, sizeof payload));
    assert_string_equal(payload, "{\"x\":\"\\u0000\"}");
    co_control_request_done(&request);
    free(json);
}

static void unknown_members_are_skipped_and_args_may_be_absent(void **state)
{
    static const char json[] = "{\"id\":\"a\",\"new\":[1],\"op\":\"ping\",\"v\":1}";
    struct co_control_request request;
    (void)state;
    assert_int_equal(co_control_request_read(json, strlen(json), &request, NULL), 0);
    assert_string_equal(request.op, "ping");
    assert_string_equal(request.args, "{}");
    co_control_request_done(&request);
}

static void bad_requests_are_refused_with_their_id(void **state)
{
    static const struct {
        const char *json;
        int code;
        const char *id;
    } rows[] = {
        {"", CO_EMALFORMED, ""},
        {"[]", CO_EMALFORMED, ""},
        {"{\"v\":1,\"id\":\"7\",\"op\":\"ping\"", CO_EMALFORMED, ""},
        {"{\"v\":1,\"op\":\"ping\"}", CO_EMALFORMED, ""},
        {"{\"v\":1,\"id\":7,\"op\":\"ping\"}", CO_EMALFORMED, ""},
        {"{\"v\":1,\"id\":\"0123456789012345678901234567890123456789\",\"op\":\"ping\"}",
         CO_EMALFORMED, ""},
        {"{\"id\":\"7\",\"op\":\"ping\"}", CO_EMALFORMED, "7"},
        {"{\"v\":\"1\",\"id\":\"7\",\"op\":\"ping\"}", CO_EMALFORMED, "7"},
        {"{\"v\":2,\"id\":\"7\",\"op\":\"ping\"}", CO_EVERSION, "7"},
        {"{\"v\":1,\"id\":\"7\"}", CO_EMALFORMED, "7"},
        {"{\"v\":1,\"id\":\"7\",\"op\":\"an-op-far-longer-than-any-op-there-is\"}", CO_EMALFORMED,
         "7"},
        {"{\"v\":1,\"id\":\"7\",\"op\":\"ping\",\"args\":[]}", CO_EMALFORMED, "7"},
        {"{\"v\":1,\"id\":\"7\",\"op\":\"ping\",\"op\":\"drain\"}", CO_EMALFORMED, ""},
        {"{\"v\":1,\"id\":\"7\",\"op\":\"ping\"}x", CO_EMALFORMED, ""},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct co_control_request request;
        struct co_err err = {0};
        memset(&request, 0xee, sizeof request);
        assert_int_equal(
            co_control_request_read(rows[i].json, strlen(rows[i].json), &request, &err),
            rows[i].code);
        assert_string_equal(request.id, rows[i].id);
        assert_null(request.args);
        assert_true(err.msg[0] != '\0');
        co_control_request_done(&request);
    }
}

static void every_cut_of_a_request_is_refused(void **state)
{
    static const char json[] = "{\"v\":1,\"id\":\"7\",\"op\":\"drain\",\"args\":{\"a\":[1]}}";
    struct co_control_request request;
    (void)state;
    for (size_t size = 0; size < sizeof json - 1; size++) {
        assert_int_equal(co_control_request_read(json, size, &request, NULL), CO_EMALFORMED);
    }
}

static void answers_are_json_whatever_they_say(void **state)
{
    char *answer = co_control_answer("7", "{\"pid\":1}");
    char *empty = co_control_answer("7", NULL);
    char *error = co_control_error("a\"b", "app", "PHP said \"\xff\"\n\x01");
    (void)state;
    assert_string_equal(answer, "{\"v\":1,\"id\":\"7\",\"ok\":true,\"data\":{\"pid\":1}}");
    assert_string_equal(empty, "{\"v\":1,\"id\":\"7\",\"ok\":true,\"data\":{}}");
    assert_string_equal(
        error,
        "{\"v\":1,\"id\":\"a\\\"b\",\"ok\":false,\"code\":\"app\",\"error\":\"PHP said "
        "\\\"\xef\xbf\xbd\\\"\\n\\u0001\"}");
    free(answer);
    free(empty);
    free(error);
}

static void members_are_read_or_refused_whole(void **state)
{
    static const char json[] =
        "{\"text\":\"abc\",\"int\":-42,\"real\":1.5,\"yes\":true,\"nul\":\"a\\u0000b\",\"none\":"
        "null}";
    static const struct {
        const char *member;
        size_t size;
        const char *text; /* NULL: refused. */
    } rows[] = {
        {"text", 4, "abc"}, {"text", 3, NULL}, {"int", 8, "-42"}, {"real", 8, "1.5"},
        {"yes", 8, NULL},   {"nul", 8, NULL},  {"none", 8, NULL}, {"missing", 8, NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char buf[8] = "kept";
        assert_int_equal(co_json_get_string(json, rows[i].member, buf, rows[i].size),
                         rows[i].text != NULL);
        assert_string_equal(buf, rows[i].text == NULL ? "kept" : rows[i].text);
    }
    assert_true(co_json_get_bool(json, "yes", false));
    assert_true(co_json_get_bool(json, "text", true));
    assert_false(co_json_get_bool("nonsense", "yes", false));
    assert_false(co_json_get_string("nonsense", "yes", (char[8]){0}, 8));
}

/* ---- what the application says of itself ---- */

static void an_app_is_read(void **state)
{
    static const char json[] =
        "{\"kind\":\"laravel\",\"version\":\"8.83.26\",\"default\":\"database\",\"environment\":"
        "\"production\",\"connections\":[{\"name\":\"database\",\"driver\":\"database\","
        "\"refused\":"
        "null,\"database\":\"/app/db.sqlite\",\"table\":\"jobs\",\"queue\":\"default\","
        "\"retry_after\":90,\"synchronous\":\"normal\"},{\"name\":\"sync\",\"driver\":\"sync\","
        "\"refused\":\"runs at once\",\"retry_after\":null,\"plain\":true}],\"notes\":[\"x\"]}";
    struct co_app_info info;
    struct co_err err = {0};
    (void)state;
    if (co_app_info_read(json, strlen(json), &info, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    assert_string_equal(info.kind, "laravel");
    assert_string_equal(info.version, "8.83.26");
    assert_string_equal(info.default_connection, "database");
    assert_int_equal(info.n_connections, 2);
    assert_string_equal(info.connections[0].name, "database");
    assert_string_equal(info.connections[0].driver, "database");
    assert_string_equal(info.connections[0].refused, "");
    assert_string_equal(info.connections[0].database, "/app/db.sqlite");
    assert_string_equal(info.connections[0].table, "jobs");
    assert_string_equal(info.connections[0].queue, "default");
    assert_int_equal(info.connections[0].retry_after_s, 90);
    assert_string_equal(info.connections[0].synchronous, "normal");
    assert_false(info.connections[0].plain);
    assert_string_equal(info.connections[1].refused, "runs at once");
    assert_int_equal(info.connections[1].retry_after_s, 0);
    assert_true(info.connections[1].plain);
    for (size_t size = 0; size < sizeof json - 1; size++) {
        assert_int_equal(co_app_info_read(json, size, &info, NULL), CO_EMALFORMED);
    }
}

static void an_app_with_half_a_path_is_refused(void **state)
{
    static const struct {
        const char *head;
        char fill;
        const char *tail;
        int code;
    } rows[] = {
        {"{\"kind\":\"laravel\",\"connections\":[{\"name\":\"a\",\"database\":\"", 'x', "\"}]}",
         CO_EMALFORMED},
        {"{\"kind\":\"laravel\",\"connections\":[{\"name\":\"", 'x', "\"}]}", CO_EMALFORMED},
        {"{\"kind\":\"laravel\",\"version\":\"", 'x', "\"}", 0}, /* Half a version is one. */
        {"{\"kind\":\"laravel\",\"connections\":[{\"name\":\"a\",\"retry_after\":1", '0', "}]}",
         CO_EMALFORMED},
        {"[", ' ', "]", CO_EMALFORMED},
        {"{", ' ', "}", CO_EMALFORMED},
        {"{\"kind\":\"laravel\",\"connections\":{", ' ', "}}", CO_EMALFORMED},
        {"{\"kind\":\"laravel\",\"connections\":[{", ' ', "}]}", CO_EMALFORMED},
        {"{\"kind\":\"laravel\",\"connections\":[", ' ', "1]}", CO_EMALFORMED},
        {"{\"kind\":\"laravel\",\"connections\":[{\"name\":\"a\",\"retry_after\":", ' ', "-1}]}",
         CO_EMALFORMED},
        {"{\"kind\":\"laravel\",\"connections\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16", ' ',
         ",17]}", CO_EFULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct co_app_info info = {.n_connections = 7};
        struct co_err err = {0};
        char json[2048];
        char fill[1101];
        int size;
        memset(fill, rows[i].fill, sizeof fill - 1);
        fill[rows[i].fill == '0' ? 12 : sizeof fill - 1] = '\0';
        size = snprintf(json, sizeof json, "%s%s%s", rows[i].head, fill, rows[i].tail);
        assert_int_equal(co_app_info_read(json, (size_t)size, &info, &err), rows[i].code);
        assert_int_equal(info.n_connections, rows[i].code == 0 ? 0 : 7);
        assert_int_equal(err.code, rows[i].code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_what_we_promised),
        cmocka_unit_test(unknown_members_are_skipped_and_args_may_be_absent),
        cmocka_unit_test(bad_requests_are_refused_with_their_id),
        cmocka_unit_test(every_cut_of_a_request_is_refused),
        cmocka_unit_test(answers_are_json_whatever_they_say),
        cmocka_unit_test(members_are_read_or_refused_whole),
        cmocka_unit_test(an_app_is_read),
        cmocka_unit_test(an_app_with_half_a_path_is_refused),
    };
    return cmocka_run_group_tests_name("control", tests, NULL, NULL);
}
