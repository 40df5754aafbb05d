/* The view of a fleet, there and back. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "proto/fleet_view.h"

static struct co_fleet_view there, back;

static void it_comes_back_whole(void **state)
{
    struct co_err err;
    char *json;

    (void)state;
    there = (struct co_fleet_view){.id = "00000000000000aa", .n_queues = 1, .n_overrides = 1};
    there.queues[0] = (struct co_fleet_view_queue){.id = "00000000000000bb",
                                                   .name = "em\"ails",
                                                   .connection = "redis",
                                                   .pool = "jobs",
                                                   .owner = "00000000000000aa",
                                                   .owned = true,
                                                   .strict = true,
                                                   .fenced = true,
                                                   .target = 12,
                                                   .max = 40,
                                                   .share = UINT32_MAX,
                                                   .running = 3,
                                                   .lease_ms = 1500,
                                                   .plan_age_ms = 20,
                                                   .n_seats = 1};
    there.queues[0].seats[0] = (struct co_fleet_view_seat){
        .agent = "00000000000000aa", .capacity = 8, .share = 6, .grant = 5, .running = 4};
    there.overrides[0] = (struct co_fleet_view_override){
        .name = "em\"ails",
        .in_force = true,
        .override = {.queue = 0xbb,
                     .epoch = 7,
                     .agent = UINT64_MAX,
                     .action = CO_FLEET_SCALE,
                     .value = 12,
                     .since = 100,
                     .expires = 7300,
                     .by = "anna@host",
                     .reason = "campaign"},
    };
    json = co_fleet_view_to_json(&there);
    assert_non_null(json);
    assert_non_null(strstr(json, "\"override\":{")); /* With its queue as well. */
    assert_int_equal(co_fleet_view_from_json(json, &back, &err), 0);
    assert_memory_equal(&back, &there, sizeof there);
    free(json);
}

static void nonsense_is_refused_or_left_out(void **state)
{
    struct co_err err;

    (void)state;
    assert_int_equal(co_fleet_view_from_json("", &back, &err), CO_EMALFORMED);
    assert_int_equal(co_fleet_view_from_json("[]", &back, &err), CO_EMALFORMED);
    assert_int_equal(co_fleet_view_from_json("{\"queues\":[1,{}],\"overrides\":7}", &back, &err),
                     0);
    assert_int_equal(back.n_queues, 2);
    assert_string_equal(back.queues[1].name, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_comes_back_whole),
        cmocka_unit_test(nonsense_is_refused_or_left_out),
    };
    return cmocka_run_group_tests_name("fleet_view_json", tests, NULL, NULL);
}
