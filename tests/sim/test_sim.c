/* Random lives of one agent. Each seed is one run: everything goes wrong for a while, then nothing,
 * and every job must come to its end. A failure says the seed; CO_SEED=n replays it with its trace,
 * CO_SEEDS=n runs that many. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim/sim.h"

#if defined(__SANITIZE_ADDRESS__)
#define SEEDS 1000
#else
#define SEEDS 4000
#endif
#define CHAOS_MS 15000
#define SETTLE_MS 1200000

static struct sim sim; /* Large, so not on the stack. */
static char replay[64];
static int replay_size;

static void on_abort(int signal)
{
    (void)signal;
    if (write(STDERR_FILENO, replay, (size_t)replay_size) < 0) {
        _exit(1);
    }
}

static void chaos(void)
{
    uint32_t pool = sim_random(&sim, sim.n_pools);
    struct sim_source *source = &sim.sources[sim_random(&sim, sim.n_sources)];

    switch (sim_random(&sim, 40)) {
    case 0:
        source->locked_until = sim.now + sim_random(&sim, 6000);
        break;
    case 1:
    case 2:
        source->locked_until = sim.now + sim_random(&sim, 200);
        break;
    case 3:
    case 4:
        sim_rows_meddle(&sim);
        break;
    case 5:
        if (!sim.peace) {
            sim_world_kill(&sim, pool, sim_random(&sim, sim.pools[pool].workers));
        }
        break;
    case 6:
        sim_world_kill(&sim, pool, CO_PLACE_CONTROL + sim_random(&sim, 6));
        break;
    case 7:
        sim_world_kill_zygote(&sim, pool);
        break;
    case 8:
        if (sim_random(&sim, 2) == 0) {
            sim_drain(&sim, sim.drain_asked);
        }
        break;
    case 9:
        if (sim_random(&sim, 2) == 0) {
            sim_crash(&sim);
        }
        break;
    case 10:
        sim.queues[sim_random(&sim, sim.n_queues)].veto_until = sim.now + sim_random(&sim, 3000);
        break;
    case 11:
    case 12:
    case 13:
        sim_reload(&sim, pool);
        break;
    case 14:
    case 15:
        sim_hold(&sim, sim_random(&sim, sim.n_queues), sim_random(&sim, 2));
        break;
    case 16:
        if (!sim.peace) {
            sim_memory(&sim, pool, sim_random(&sim, sim.pools[pool].workers));
        }
        break;
    default:
        for (uint32_t n = sim_random(&sim, 6); n > 0; n--) {
            sim_push(&sim, sim_random(&sim, sim.n_queues),
                     sim_random(&sim, 10) == 0 ? sim_random(&sim, 4) : 0);
        }
    }
}

static void run_until(co_ms until)
{
    while (sim.now < until && sim.steps < 1000000) {
        sim_step(&sim);
    }
}

/* An agent without work is quiet: polls and timers, no more. */
static void check_quiet(void)
{
    uint64_t before[SIM_SOURCES_MAX];

    run_until(sim.now + 1000); /* What was under way. */
    for (uint32_t i = 0; i < sim.n_sources; i++) {
        before[i] = sim.core.sources[i].turns;
    }
    run_until(sim.now + 2000);
    for (uint32_t i = 0; i < sim.n_sources; i++) {
        uint64_t turns = sim.core.sources[i].turns - before[i];
        sim_must(&sim, turns <= 20, "%llu turns in two seconds without work",
                 (unsigned long long)turns);
    }
    sim_check_quiet(&sim);
}

static uint64_t run_seed(uint64_t seed)
{
    co_ms end;

    replay_size =
        snprintf(replay, sizeof replay, "replay it with CO_SEED=%llu\n", (unsigned long long)seed);
    sim_init(&sim, seed);
    sim.tracing = getenv("CO_SEED") != NULL;
    end = sim.now + 1000 + sim_random(&sim, CHAOS_MS);
    while (sim.now < end) {
        run_until(sim.now + 1 + sim_random(&sim, 300));
        chaos();
    }
    sim_calm(&sim);
    end = sim.now + SETTLE_MS;
    while (!sim_finished(&sim)) {
        sim_must(&sim, sim.now < end, "not every job has ended %d ms after the last fault",
                 SETTLE_MS);
        sim_step(&sim);
    }
    sim_check_settled(&sim);
    check_quiet();
    sim_crash(&sim);
    return sim.digest;
}

static void every_seed_settles(void **state)
{
    const char *one = getenv("CO_SEED");
    const char *many = getenv("CO_SEEDS");
    uint64_t n = many != NULL ? strtoull(many, NULL, 10) : SEEDS;

    (void)state;
    if (one != NULL) {
        run_seed(strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= n; seed++) {
        run_seed(seed);
    }
}

static void a_seed_replays_exactly(void **state)
{
    uint64_t first = run_seed(7);
    uint64_t again = run_seed(7);
    uint64_t other = run_seed(8);

    (void)state;
    assert_true(first == again);
    assert_true(first != other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_replays_exactly),
        cmocka_unit_test(every_seed_settles),
    };

    signal(SIGABRT, on_abort);
    return cmocka_run_group_tests_name("sim", tests, NULL, NULL);
}
