#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "proto/control.h"

#define COUNT_OF(table) (sizeof(table) / sizeof(table)[0])

static int check(const char *payload, size_t size, char uuid[40], char name[16], struct co_err *err)
{
    /* A copy of the exact size, so that the sanitizer sees a read past its end. */
    uint8_t *copy = malloc(size + (size == 0));
    int code;

    memcpy(copy, payload, size);
    code = co_payload_check(copy, size, uuid, 40, name, 16, err);
    free(copy);
    return code;
}

static void payloads_php_reads_are_taken(void **state)
{
    static const struct {
        const char *payload;
        const char *uuid;
        const char *name;
    } rows[] = {
        {"{\"job\":\"x\"}", "", ""},
        {" \t\r\n{ \"job\" : \"x\" } \n", "", ""},
        {"{\"uuid\":\"8f14e45f-ceea-467f-a0e6-1f6f3b3a5d11\",\"displayName\":"
         "\"App\\\\Jobs\\\\Send\","
         "\"job\":\"I\\\\Q@call\",\"data\":{\"command\":\"O:8:\\\"\\u0000*\\u0000x\\\"\"}}",
         "8f14e45f-ceea-467f-a0e6-1f6f3b3a5d11", "App\\Jobs\\Send"},
        {"{\"job\":\"x\",\"n\":123456789012345678901234567890,\"e\":1e999,\"f\":-0.5E-3,\"z\":[-0,"
         "0]}",
         "", ""},
        {"{\"a\":{\"a\":1,\"a\":[{},[],[[]],null,true,false]},\"job\":\"x\"}", "", ""},
        {"{\"job\":1,\"job\":\"x\"}", "", ""}, /* The last counts, as in PHP. */
        {"{\"\\u006aob\":\"x\"}", "", ""},     /* However it is spelled. */
        {"{\"job\":\"x\",\"uuid\":null,\"displayName\":7}", "", ""},
        {"{\"job\":\"x\",\"uuid\":\"a\",\"uuid\":null}", "", ""},
        {"{\"job\":\"x\",\"uuid\":\"0123456789012345678901234567890123456789\"}", "", ""},
        {"{\"job\":\"x\",\"uuid\":\"a\\u0000b\"}", "", ""},
        {"{\"job\":\"x\",\"displayName\":\"a long name that is cut\"}", "", "a long name tha"},
        {"{\"job\":\"x\",\"displayName\":\"0123456789abcd\xc3\xa4\"}", "", "0123456789abcd"},
        {"{\"job\":\"x\",\"displayName\":\"\\ud83d\\ude00\\u00e4\\n\\/\"}", "",
         "\xf0\x9f\x98\x80\xc3\xa4\n/"},
        {"{\"job\":\"x\",\"data\":{\"uuid\":\"inner\",\"displayName\":\"inner\"}}", "", ""},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct co_err err = {0};
        char uuid[40];
        char name[16];
        if (check(rows[i].payload, strlen(rows[i].payload), uuid, name, &err) != 0) {
            fail_msg("%s: %s", rows[i].payload, err.msg);
        }
        assert_string_equal(uuid, rows[i].uuid);
        assert_string_equal(name, rows[i].name);
    }
}

static void what_is_no_job_is_refused_with_the_reason(void **state)
{
    static const struct {
        const char *payload;
        const char *reason;
    } rows[] = {
        {"", "it is empty"},
        {"  ", "it is empty"},
        {"[]", "no JSON object"},
        {"\"job\"", "no JSON object"},
        {"null", "no JSON object"},
        {"\xef\xbb\xbf{\"job\":\"x\"}", "no JSON object"},
        {"{}", "no string member \"job\""},
        {"{\"job\":1}", "no string member \"job\""},
        {"{\"job\":\"x\",\"job\":null}", "no string member \"job\""},
        {"{\"jobs\":\"x\"}", "no string member \"job\""},
        {"{\"data\":{\"job\":\"x\"}}", "no string member \"job\""},
        {"{\"job\":\"x\"", "ends too early"},
        {"{\"job\":\"x\",}", "name belongs here"},
        {"{\"job\":\"x\"}}", "something follows"},
        {"{\"job\":\"x\"} x", "something follows"},
        {"{\"job\" \"x\"}", "colon"},
        {"{job:\"x\"}", "name belongs here"},
        {"{\"job\":'x'}", "where a value belongs"},
        {"{\"job\":\"x\",\"a\":[1,]}", "where a value belongs"},
        {"{\"job\":\"x\",\"a\":[1 2]}", "comma or closing"},
        {"{\"job\":\"x\",\"a\":[1}", "comma or closing"},
        {"{\"job\":\"x\",\"a\":01}", "comma or closing"},
        {"{\"job\":\"x\",\"a\":1.}", "point"},
        {"{\"job\":\"x\",\"a\":1e}", "exponent"},
        {"{\"job\":\"x\",\"a\":-}", "where a value belongs"},
        {"{\"job\":\"x\",\"a\":NaN}", "where a value belongs"},
        {"{\"job\":\"x\",\"a\":tru}", "where a value belongs"},
        {"{\"job\":\"x", "inside a string"},
        {"{\"job\":\"\\", "unknown escape"},
        {"{\"job\":\"\\x\"}", "unknown escape"},
        {"{\"job\":\"\\u12\"}", "four hex digits"},
        {"{\"job\":\"\\ud83d\"}", "surrogate"},
        {"{\"job\":\"\\ude00\"}", "surrogate"},
        {"{\"job\":\"\\ud83d\\u0041\"}", "surrogate"},
        {"{\"job\":\"a\nb\"}", "control character"},
        {"{\"job\":\"\xff\"}", "not UTF-8"},
        {"{\"job\":\"\xc0\xaf\"}", "not UTF-8"},
        {"{\"job\":\"\xed\xa0\x80\"}", "not UTF-8"},
        {"{\"job\":\"\xf4\x90\x80\x80\"}", "not UTF-8"},
        {"{\"job\":\"\xe2\x82\"}", "not UTF-8"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct co_err err = {0};
        char uuid[40] = "kept?";
        char name[16] = "kept?";
        assert_int_equal(check(rows[i].payload, strlen(rows[i].payload), uuid, name, &err),
                         CO_EMALFORMED);
        if (strstr(err.msg, rows[i].reason) == NULL) {
            fail_msg("%s: %s", rows[i].payload, err.msg);
        }
        assert_string_equal(uuid, "");
        assert_string_equal(name, "");
    }
}

static void every_cut_is_refused(void **state)
{
    static const char payload[] =
        "{\"uuid\":\"a\",\"job\":\"x\\u00e4\xc3\xa4\",\"data\":{\"a\":[1.5e3,true,null,{\"b\":\"\"}"
        "]}}";
    char uuid[40];
    char name[16];
    (void)state;
    assert_int_equal(check(payload, sizeof payload - 1, uuid, name, NULL), 0);
    for (size_t size = 0; size < sizeof payload - 1; size++) {
        assert_int_equal(check(payload, size, uuid, name, NULL), CO_EMALFORMED);
    }
    assert_int_equal(check(payload, sizeof payload, uuid, name, NULL), CO_EMALFORMED); /* A NUL. */
}

/* {"job":"x","a":[[[…]]]} with so many brackets in all. */
static int check_depth(size_t depth, struct co_err *err)
{
    static const char head[] = "{\"job\":\"x\",\"a\":";
    size_t size = sizeof head - 1 + 2 * (depth - 1) + 1;
    char *payload = malloc(size);
    char uuid[40];
    char name[16];
    int code;

    memcpy(payload, head, sizeof head - 1);
    memset(payload + sizeof head - 1, '[', depth - 1);
    memset(payload + sizeof head - 1 + depth - 1, ']', depth - 1);
    payload[size - 1] = '}';
    code = check(payload, size, uuid, name, err);
    free(payload);
    return code;
}

static void depth_ends_where_phps_does(void **state)
{
    struct co_err err = {0};
    (void)state;
    assert_int_equal(check_depth(511, &err), 0);
    assert_int_equal(check_depth(512, &err), CO_EMALFORMED);
    assert_non_null(strstr(err.msg, "deeper than 511"));
    assert_int_equal(check_depth(1 << 20, &err), CO_EMALFORMED);
}

static void a_payload_of_64_mib_is_taken(void **state)
{
    static const char head[] = "{\"job\":\"";
    size_t size = 64 << 20;
    char *payload = malloc(size);
    char uuid[40];
    char name[16];
    (void)state;
    memcpy(payload, head, sizeof head - 1);
    memset(payload + sizeof head - 1, 'x', size - sizeof head + 1 - 2);
    memcpy(payload + size - 2, "\"}", 2);
    assert_int_equal(co_payload_check((uint8_t *)payload, size, uuid, 40, name, 16, NULL), 0);
    free(payload);
}

static void facts_are_read_as_laravel_wrote_them(void **state)
{
    static const char all[] =
        "{\"uuid\":\"u\",\"displayName\":\"N\",\"job\":\"x\",\"maxTries\":5,\"maxExceptions\":null,"
        "\"failOnTimeout\":true,\"backoff\":\"1,5,10\",\"timeout\":120,\"retryUntil\":1796067973,"
        "\"data\":{\"timeout\":1,\"backoff\":\"9\"}}";
    static const char none[] =
        "{\"job\":\"x\",\"maxTries\":null,\"backoff\":null,\"timeout\":null}";
    static const char odd[] =
        "{\"job\":\"x\",\"backoff\":7,\"timeout\":1.5,\"maxTries\":-1,"
        "\"failOnTimeout\":\"true\"}";
    struct co_payload_facts facts;
    (void)state;

    assert_int_equal(co_payload_read((const uint8_t *)all, sizeof all - 1, &facts, NULL), 0);
    assert_string_equal(facts.uuid, "u");
    assert_string_equal(facts.display_name, "N");
    assert_string_equal(facts.backoff, "1,5,10");
    assert_int_equal(facts.timeout_s, 120);
    assert_int_equal(facts.max_tries, 5);
    assert_int_equal(facts.retry_until, 1796067973);
    assert_true(facts.fail_on_timeout);

    assert_int_equal(co_payload_read((const uint8_t *)none, sizeof none - 1, &facts, NULL), 0);
    assert_string_equal(facts.backoff, "");
    assert_int_equal(facts.timeout_s, -1);
    assert_int_equal(facts.max_tries, -1);
    assert_int_equal(facts.retry_until, -1);
    assert_false(facts.fail_on_timeout);

    assert_int_equal(co_payload_read((const uint8_t *)odd, sizeof odd - 1, &facts, NULL), 0);
    assert_string_equal(facts.backoff, "7");
    assert_int_equal(facts.timeout_s, -1);
    assert_int_equal(facts.max_tries, -1);
    assert_false(facts.fail_on_timeout);
}

static void backoff_takes_the_attempts_item_or_the_last(void **state)
{
    static const struct {
        const char *list;
        uint32_t attempts, seconds;
    } rows[] = {{"", 1, 0},       {"3", 1, 3},       {"3", 9, 3},       {"1,5,10", 1, 1},
                {"1,5,10", 2, 5}, {"1,5,10", 3, 10}, {"1,5,10", 7, 10}, {"x,2", 1, 0}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_int_equal(co_payload_backoff(rows[i].list, rows[i].attempts), rows[i].seconds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payloads_php_reads_are_taken),
        cmocka_unit_test(what_is_no_job_is_refused_with_the_reason),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(depth_ends_where_phps_does),
        cmocka_unit_test(a_payload_of_64_mib_is_taken),
        cmocka_unit_test(facts_are_read_as_laravel_wrote_them),
        cmocka_unit_test(backoff_takes_the_attempts_item_or_the_last),
    };
    return cmocka_run_group_tests_name("payload", tests, NULL, NULL);
}
