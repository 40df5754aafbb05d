#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "autoscale/window.h"

#define LENGTH 16000
#define SLICE (LENGTH / CO_WINDOW_SLICES)

static void a_value_counts_for_the_window_and_at_most_a_slice_more(void **state)
{
    (void)state;
    for (co_ms at = 0; at < 3 * SLICE; at += 37) {
        struct co_window window;
        co_ms gone = 0;

        co_window_init(&window, LENGTH, 0);
        assert_int_equal(co_window_note(&window, 9, at), 9);
        for (co_ms now = at; gone == 0; now += 13) {
            gone = co_window_note(&window, 2, now) == 2 ? now : 0;
        }
        assert_true(gone - at >= LENGTH);
        assert_true(gone - at <= LENGTH + SLICE + 13);
    }
}

static void it_says_when_it_falls(void **state)
{
    struct co_window window;
    co_ms falls;

    (void)state;
    co_window_init(&window, LENGTH, 0);
    co_window_note(&window, 9, 1234);
    co_window_note(&window, 5, 2345);
    falls = co_window_falls(&window, 5);
    assert_int_equal(co_window_note(&window, 5, falls - 1), 9);
    assert_int_equal(co_window_note(&window, 5, falls), 5);
    assert_true(co_window_falls(&window, 5) == UINT64_MAX);
}

static void a_falling_value_is_followed_a_window_later(void **state)
{
    struct co_window window;

    (void)state;
    co_window_init(&window, LENGTH, 0);
    /* One less each 600 ms, as a window that restarts on each change never forgives. */
    for (uint32_t step = 0; step < 100; step++) {
        co_ms now = (co_ms)step * 600;
        uint32_t max = co_window_note(&window, 100 - step, now);
        uint32_t old = (uint32_t)((LENGTH + SLICE) / 600 + 1);
        assert_true(max <= 100 - step + old);
    }
}

static void no_window_remembers_nothing(void **state)
{
    struct co_window window;

    (void)state;
    co_window_init(&window, 0, 0);
    assert_int_equal(co_window_note(&window, 9, 0), 9);
    assert_int_equal(co_window_note(&window, 1, 0), 1);
    assert_true(co_window_falls(&window, 0) == UINT64_MAX);
}

static void a_new_length_keeps_what_is_remembered(void **state)
{
    struct co_window window;

    (void)state;
    co_window_init(&window, LENGTH, 0);
    co_window_note(&window, 9, 100);
    co_window_resize(&window, 2 * LENGTH, 200);
    assert_int_equal(co_window_note(&window, 1, 200), 9);
    co_window_resize(&window, 0, 300);
    assert_int_equal(co_window_note(&window, 1, 300), 1);
    /* Lengths below a slice's millisecond are lengths too. */
    co_window_resize(&window, 3, 400);
    assert_int_equal(co_window_note(&window, 7, 400), 7);
    assert_int_equal(co_window_note(&window, 1, 402), 7);
    assert_int_equal(co_window_note(&window, 1, 500), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_counts_for_the_window_and_at_most_a_slice_more),
        cmocka_unit_test(it_says_when_it_falls),
        cmocka_unit_test(a_falling_value_is_followed_a_window_later),
        cmocka_unit_test(no_window_remembers_nothing),
        cmocka_unit_test(a_new_length_keeps_what_is_remembered),
    };
    return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
