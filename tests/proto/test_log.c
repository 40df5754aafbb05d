#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <jansson.h>
#include <string.h>

#include "proto/log.h"

#define COUNT_OF(table) (sizeof(table) / sizeof(table)[0])
#define NOON UINT64_C(1796065857123) /* 2026-11-30T19:10:57.123Z */

static void lines_are_what_we_promised(void **state)
{
    static const struct {
        enum co_log_format format;
        const char *fields[5];
        const char *line;
    } rows[] = {
        {CO_LOG_TEXT, {NULL}, "2026-11-30T19:10:57.123Z info  worker 7 booting -> idle\n"},
        {CO_LOG_TEXT,
         {"pool", "jobs", NULL},
         "2026-11-30T19:10:57.123Z info  worker 7 booting -> idle pool=jobs\n"},
        {CO_LOG_TEXT,
         {"why", "a \"b\"\n=", "none", "", NULL},
         "2026-11-30T19:10:57.123Z info  worker 7 booting -> idle why=\"a \\\"b\\\"\\n=\" "
         "none=\"\"\n"},
        {CO_LOG_JSON,
         {"pool", "jobs", NULL},
         "{\"ts\":\"2026-11-30T19:10:57.123Z\",\"level\":\"info\",\"msg\":\"worker 7 booting -> "
         "idle\",\"pool\":\"jobs\"}\n"},
        {CO_LOG_JSON,
         {"why", "a\"\\\t\x01", NULL},
         "{\"ts\":\"2026-11-30T19:10:57.123Z\",\"level\":\"info\",\"msg\":\"worker 7 booting -> "
         "idle\",\"why\":\"a\\\"\\\\\\t\\u0001\"}\n"},
    };
    char buf[CO_LOG_LINE_MAX];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        size_t size = co_log_format(buf, sizeof buf, rows[i].format, CO_LOG_INFO, NOON,
                                    "worker 7 booting -> idle", rows[i].fields);
        assert_string_equal(buf, rows[i].line);
        assert_int_equal(size, strlen(buf));
    }
}

static void dates_follow_the_calendar(void **state)
{
    static const struct {
        uint64_t unix_ms;
        const char *time;
    } rows[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {UINT64_C(951782400000), "2000-02-29T00:00:00.000Z"},
        {UINT64_C(1709251199999), "2024-02-29T23:59:59.999Z"},
        {UINT64_C(1735689599000), "2024-12-31T23:59:59.000Z"},
        {UINT64_C(4107542400000), "2100-03-01T00:00:00.000Z"},
    };
    char buf[200];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        co_log_format(buf, sizeof buf, CO_LOG_TEXT, CO_LOG_WARN, rows[i].unix_ms, "x", NULL);
        assert_memory_equal(buf, rows[i].time, strlen(rows[i].time));
        assert_string_equal(buf + strlen(rows[i].time), " warn  x\n");
    }
}

static json_t *parse_line(const char *buf, size_t size)
{
    json_error_t why;
    json_t *root;

    assert_int_equal(buf[size - 1], '\n');
    assert_null(memchr(buf, '\n', size - 1)); /* One event, one line. */
    root = json_loadb(buf, size, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL) {
        fail_msg("%s in %s", why.text, buf);
    }
    return root;
}

static void any_bytes_make_one_valid_line(void **state)
{
    char text[600];
    char buf[CO_LOG_LINE_MAX];
    uint32_t random = 1;
    (void)state;
    for (unsigned round = 0; round < 5000; round++) {
        size_t size = round % sizeof text;
        const char *fields[] = {"job", text, "pool", "jobs", NULL};
        for (size_t i = 0; i < size; i++) {
            random = random * 1664525 + 1013904223;
            text[i] = (char)(random >> 24 == 0 ? 1 : random >> 24);
        }
        text[size] = '\0';
        json_decref(parse_line(
            buf, co_log_format(buf, sizeof buf, CO_LOG_JSON, CO_LOG_ERROR, NOON, text, fields)));
        size = co_log_format(buf, sizeof buf, CO_LOG_TEXT, CO_LOG_ERROR, NOON, text, fields);
        assert_ptr_equal(memchr(buf, '\n', size), buf + size - 1);
        assert_null(memchr(buf, 0x1b, size)); /* Nothing moves the terminal's cursor. */
    }
}

static void what_is_too_long_is_cut_between_characters(void **state)
{
    char text[400];
    char buf[400];
    (void)state;
    for (size_t i = 0; i + 2 < sizeof text; i += 2) {
        memcpy(text + i, "\xc3\xa4", 3); /* ä */
    }
    for (size_t size = 160; size < sizeof buf; size++) {
        const char *fields[] = {"a", text, "b", text, NULL};
        size_t used;
        json_t *root;
        memset(buf, '#', sizeof buf);
        used = co_log_format(buf, size, CO_LOG_JSON, CO_LOG_INFO, NOON, text, fields);
        assert_true(used < size);
        root = parse_line(buf, used);
        assert_non_null(strstr(json_string_value(json_object_get(root, "msg")), "..."));
        assert_non_null(json_object_get(root, "a")); /* A long message leaves room for fields. */
        json_decref(root);
        for (size_t i = size; i < sizeof buf; i++) {
            assert_int_equal(buf[i], '#');
        }
    }
}

static void a_burst_is_limited_and_counted(void **state)
{
    struct co_log_limit limit = {0};
    uint32_t suppressed = 99;
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_true(co_log_allow(&limit, 3, NOON + (uint64_t)i, &suppressed));
        assert_int_equal(suppressed, 0);
    }
    for (int i = 0; i < 5; i++) {
        assert_false(co_log_allow(&limit, 3, NOON + 900, &suppressed));
    }
    assert_true(co_log_allow(&limit, 3, NOON + 1000, &suppressed));
    assert_int_equal(suppressed, 5);
    assert_true(co_log_allow(&limit, 3, NOON + 1001, &suppressed));
    assert_int_equal(suppressed, 0);
}

static void a_clock_set_back_does_not_silence(void **state)
{
    struct co_log_limit limit = {0};
    uint32_t suppressed = 0;
    (void)state;
    assert_true(co_log_allow(&limit, 1, NOON, &suppressed));
    assert_false(co_log_allow(&limit, 1, NOON, &suppressed));
    assert_true(co_log_allow(&limit, 1, NOON - 3600000, &suppressed));
    assert_int_equal(suppressed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_what_we_promised),
        cmocka_unit_test(dates_follow_the_calendar),
        cmocka_unit_test(any_bytes_make_one_valid_line),
        cmocka_unit_test(what_is_too_long_is_cut_between_characters),
        cmocka_unit_test(a_burst_is_limited_and_counted),
        cmocka_unit_test(a_clock_set_back_does_not_silence),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
