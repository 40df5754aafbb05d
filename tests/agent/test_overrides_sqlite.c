/* Overrides in state.db. */

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
#include <unistd.h>

#include "agent/overrides_sqlite.h"
#include "agent/state_sqlite.h"

static char dir[] = "/tmp/co-overrides-XXXXXX";
static char path[64];
static struct co_fleet_override list[CO_OVERRIDES_MAX];

static void add(uint64_t queue, uint64_t epoch, co_unix since, const char *reason)
{
    struct co_fleet_override word = {.queue = queue,
                                     .epoch = epoch,
                                     .agent = UINT64_MAX - 1,
                                     .action = CO_FLEET_SCALE,
                                     .value = 12,
                                     .since = since,
                                     .expires = since + 7200,
                                     .by = "anna@host"};
    struct co_err err;

    snprintf(word.reason, sizeof word.reason, "%s", reason);
    assert_int_equal(co_overrides_add(path, &word, &err), 0);
}

static uint32_t read_all(void)
{
    struct co_err err;
    uint32_t n;

    assert_int_equal(co_overrides_list(path, list, CO_OVERRIDES_MAX, &n, &err), 0);
    return n;
}

static void no_file_is_no_override(void **state)
{
    (void)state;
    assert_int_equal(read_all(), 0);
}

static void what_was_kept_comes_back_newest_first(void **state)
{
    (void)state;
    add(UINT64_MAX, 1, 100, "first");
    add(UINT64_MAX, 2, 200, "second, \"quoted\"");
    add(UINT64_MAX, 2, 200, "heard again");
    assert_int_equal(read_all(), 2);
    assert_int_equal(list[0].epoch, 2);
    assert_true(list[0].queue == UINT64_MAX && list[0].agent == UINT64_MAX - 1);
    assert_int_equal(list[0].value, 12);
    assert_int_equal(list[0].expires, 7400);
    assert_string_equal(list[0].by, "anna@host");
    assert_string_equal(list[0].reason, "second, \"quoted\"");
    assert_string_equal(list[1].reason, "first");
}

static void the_agent_s_own_memory_stands_beside_them(void **state)
{
    static struct co_state_pause pauses[CO_STATE_PAUSES_MAX];
    struct co_state *memory;
    struct co_err err;
    uint32_t n;

    (void)state;
    assert_int_equal(co_state_open(path, pauses, &n, &memory, &err), 0);
    add(5, 1, 300, "beside it");
    co_state_free(&memory);
    assert_int_equal(co_state_open(path, pauses, &n, &memory, &err), 0);
    co_state_free(&memory);
    assert_int_equal(read_all(), 3);
}

/* The oldest go, but never the word that may be in force on a queue. */
static void they_are_bounded(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < CO_OVERRIDES_MAX + 20; i++) {
        add(77, i + 1, (co_unix)(1000 + i), "often");
    }
    assert_int_equal(read_all(), CO_OVERRIDES_MAX);
    assert_int_equal(list[0].epoch, CO_OVERRIDES_MAX + 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_file_is_no_override),
        cmocka_unit_test(what_was_kept_comes_back_newest_first),
        cmocka_unit_test(the_agent_s_own_memory_stands_beside_them),
        cmocka_unit_test(they_are_bounded),
    };
    char command[96];
    int failed;

    if (mkdtemp(dir) == NULL) {
        return 1;
    }
    snprintf(path, sizeof path, "%s/state.db", dir);
    failed = cmocka_run_group_tests_name("overrides_sqlite", tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) == 0 ? failed : 1;
}
