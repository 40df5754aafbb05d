/* Random lives of fleets. A failure says the seed; CO_SEED=n replays it with its trace, CO_SEEDS=n
 * runs that many, CO_AGENTS=n sets the size. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <stdlib.h>

#include "autoscale/coord_impl.h"
#include "sim/fleet.h"

#if defined(__SANITIZE_ADDRESS__)
#define SEEDS 10
#else
#define SEEDS 14
#endif

static struct fleet_world *world;

static uint64_t option(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

/* Three agents that start and meet at any moments, and an operator who speaks before they all have
 * met: the split of the word, soon. */
static void agents_that_join_at_any_moment_agree(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        fleet_init(world, seed);
        world->n = 3;
        world->target[0] = 36;
        for (uint32_t i = 0; i < 3; i++) {
            world->agents[i].parts[0].capacity = 12;
            fleet_start(world, i, fleet_random(world, 1200));
            fleet_run(world, world->now + fleet_random(world, 700));
        }
        fleet_word(world, fleet_random(world, 3), 0, CO_FLEET_SCALE, 12);
        fleet_run(world, world->now + 8000);
        fleet_check_settled(world);
        if (world->broken[0] != '\0') {
            fail_msg("seed %llu: %s", (unsigned long long)seed, world->broken);
        }
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(world->agents[i].parts[0].limit, 4);
        }
    }
}

static void fleets_are_safe_and_settle(void **state)
{
    (void)state;
    uint64_t first = option("CO_SEED", 1);
    uint64_t last = getenv("CO_SEED") != NULL ? first : option("CO_SEEDS", SEEDS);
    uint32_t failed = 0;

    world->trace = getenv("CO_SEED") != NULL;
    for (uint64_t seed = first; seed <= last; seed++) {
        if (!fleet_life(world, seed, (uint32_t)option("CO_AGENTS", 0))) {
            print_error("CO_SEED=%llu (%s, %u agents): %s\n", (unsigned long long)seed,
                        world->split == CO_FLEET_STRICT ? "strict" : "available", world->n,
                        world->broken);
            failed++;
        }
    }
    world->trace = false;
    assert_int_equal(failed, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(agents_that_join_at_any_moment_agree),
        cmocka_unit_test(fleets_are_safe_and_settle),
    };
    world = calloc(1, sizeof *world);
    if (world == NULL) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fleet_free(world);
    return failed;
}
