#include "agent/holds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static struct co_holds holds;

static struct co_hold make(uint32_t table, int64_t job)
{
    return (struct co_hold){.table = table, .job_id = job, .reserved_at = job * 2 + table};
}

static void a_hold_is_found_replaced_and_removed(void **state)
{
    (void)state;
    co_holds_init(&holds);
    struct co_hold one = make(0, 7), other = make(1, 7);
    assert_int_equal(co_holds_put(&holds, &one), 0);
    assert_int_equal(co_holds_put(&holds, &other), 0);
    assert_int_equal(holds.n, 2);
    assert_int_equal(co_holds_get(&holds, 0, 7)->reserved_at, 14);
    one.reserved_at = 99;
    assert_int_equal(co_holds_put(&holds, &one), 0);
    assert_int_equal(holds.n, 2);
    assert_int_equal(co_holds_get(&holds, 0, 7)->reserved_at, 99);
    co_holds_remove(&holds, 0, 7);
    assert_null(co_holds_get(&holds, 0, 7));
    assert_non_null(co_holds_get(&holds, 1, 7));
    co_holds_remove(&holds, 0, 7);
    assert_int_equal(holds.n, 1);
}

static void a_full_table_says_so(void **state)
{
    (void)state;
    co_holds_init(&holds);
    for (int64_t i = 0; i < CO_HOLDS_MAX; i++) {
        struct co_hold hold = make(0, i);
        assert_int_equal(co_holds_put(&holds, &hold), 0);
    }
    struct co_hold hold = make(0, CO_HOLDS_MAX);
    assert_int_equal(co_holds_put(&holds, &hold), CO_EFULL);
    hold = make(0, 5);
    assert_int_equal(co_holds_put(&holds, &hold), 0);
}

/* Against an array: whatever comes and goes, both know the same. */
static void it_agrees_with_a_plain_array(void **state)
{
    static bool there[2][900];
    uint32_t n = 0;

    (void)state;
    co_holds_init(&holds);
    srand(42);
    for (int step = 0; step < 200000; step++) {
        uint32_t table = (uint32_t)rand() % 2;
        int64_t job = rand() % 900;
        if (n < CO_HOLDS_MAX && rand() % 2 == 0) {
            struct co_hold hold = make(table, job);
            assert_int_equal(co_holds_put(&holds, &hold), 0);
            n += !there[table][job];
            there[table][job] = true;
        } else {
            co_holds_remove(&holds, table, job);
            n -= there[table][job];
            there[table][job] = false;
        }
        assert_int_equal(holds.n, n);
        if (step % 1000 == 0) {
            for (int64_t i = 0; i < 900; i++) {
                const struct co_hold *hold = co_holds_get(&holds, table, i);
                assert_int_equal(hold != NULL, there[table][i]);
                assert_true(hold == NULL || hold->reserved_at == i * 2 + table);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hold_is_found_replaced_and_removed),
        cmocka_unit_test(a_full_table_says_so),
        cmocka_unit_test(it_agrees_with_a_plain_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
