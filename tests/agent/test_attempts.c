#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/attempts.h"

static const struct {
    const char *payload;
    uint32_t value;
    const char *next; /* With one start more. */
} rows[] = {
    {"{\"id\":\"x\",\"attempts\":0}", 0, "{\"id\":\"x\",\"attempts\":1}"},
    {"{\"attempts\":9,\"id\":\"x\"}", 9, "{\"attempts\":10,\"id\":\"x\"}"},
    {"{ \"attempts\" : 41 , \"a\": [] }", 41, "{ \"attempts\" : 42 , \"a\": [] }"},
    {"{\"data\":{\"attempts\":7},\"attempts\":1}", 1, "{\"data\":{\"attempts\":7},\"attempts\":2}"},
    {"{\"d\":\"\\\"attempts\\\":5\",\"attempts\":2}", 2,
     "{\"d\":\"\\\"attempts\\\":5\",\"attempts\":3}"},
    {"{\"job\":\"a\"}", 0, "{\"job\":\"a\",\"attempts\":1}"},
    {"{\"job\":\"a\"} ", 0, "{\"job\":\"a\",\"attempts\":1} "},
    {"{\"attempts\":null}", 0, "{\"attempts\":1}"},
    {"{\"attempts\":1,\"attempts\":3}", 3, "{\"attempts\":1,\"attempts\":4}"},
    {"{\"a\":[1,{\"attempts\":4},\"}\"],\"attempts\":0}", 0,
     "{\"a\":[1,{\"attempts\":4},\"}\"],\"attempts\":1}"},
};

static void only_the_digits_change(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t size = strlen(rows[i].payload);
        struct co_attempts a;
        char text[CO_ATTEMPTS_TEXT], next[256] = "";
        co_attempts_find((const uint8_t *)rows[i].payload, size, &a);
        assert_int_equal(a.value, rows[i].value);
        co_attempts_text(&a, a.value + 1, text);
        strncat(next, rows[i].payload, a.at);
        strcat(next, text);
        strcat(next, rows[i].payload + a.at + a.size);
        assert_string_equal(next, rows[i].next);
    }
}

static void nothing_is_read_past_the_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t size = 0; size <= strlen(rows[i].payload); size++) {
            uint8_t cut[256];
            struct co_attempts a;
            memset(cut, '"', sizeof cut);
            memcpy(cut, rows[i].payload, size);
            co_attempts_find(cut, size, &a);
            assert_true(a.at + a.size <= size);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_digits_change),
        cmocka_unit_test(nothing_is_read_past_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
