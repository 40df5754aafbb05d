#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "controller/suggest.h"

static void distances_count_slips(void **state)
{
    (void)state;
    static const struct {
        const char *a;
        const char *b;
        unsigned distance;
    } rows[] = {
        {"", "", 0},
        {"", "ab", 2},
        {"status", "status", 0},
        {"statsu", "status", 1},
        {"satus", "status", 1},
        {"sttatus", "status", 1},
        {"ststus", "status", 1},
        {"push", "ping", 3},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(co_suggest_distance(rows[i].a, rows[i].b), rows[i].distance);
        assert_int_equal(co_suggest_distance(rows[i].b, rows[i].a), rows[i].distance);
    }
}

static void slips_and_beginnings_are_near_and_other_words_are_not(void **state)
{
    (void)state;
    assert_true(co_suggest_near("statsu", "status"));
    assert_true(co_suggest_near("stat", "status"));
    assert_true(co_suggest_near("pnig", "ping"));
    assert_true(co_suggest_near("doktor", "doctor"));
    assert_false(co_suggest_near("push", "ping"));
    assert_false(co_suggest_near("s", "status"));
    assert_false(co_suggest_near("restart", "status"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances_count_slips),
        cmocka_unit_test(slips_and_beginnings_are_near_and_other_words_are_not),
    };
    return cmocka_run_group_tests_name("suggest", tests, NULL, NULL);
}
