#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <string.h>

#include "controller/reload.h"

static void a_reload_is_through_when_every_worker_is_new_and_up(void **state)
{
    static const struct {
        const char *what;
        uint32_t generation;
        uint64_t failures;
        uint32_t workers[3]; /* Their generations; 0: none there. */
        enum co_worker_state states[3];
        enum co_reload_progress progress;
    } rows[] = {
        {"asked", 4, 7, {4, 4}, {CO_WORKER_IDLE, CO_WORKER_BUSY}, CO_RELOAD_GOING},
        {"booted, none replaced", 5, 7, {4, 4}, {CO_WORKER_IDLE, CO_WORKER_BUSY}, CO_RELOAD_GOING},
        {"the old one has its job",
         5,
         7,
         {5, 5, 4},
         {CO_WORKER_IDLE, CO_WORKER_IDLE, CO_WORKER_DRAINING},
         CO_RELOAD_GOING},
        {"one boots", 5, 7, {5, 5}, {CO_WORKER_IDLE, CO_WORKER_BOOTING}, CO_RELOAD_GOING},
        {"one is still to come", 5, 7, {5}, {CO_WORKER_IDLE}, CO_RELOAD_GOING},
        {"through", 5, 7, {5, 5}, {CO_WORKER_IDLE, CO_WORKER_BUSY}, CO_RELOAD_DONE},
        {"through, and more", 6, 7, {6, 6, 6}, {CO_WORKER_IDLE, CO_WORKER_BUSY}, CO_RELOAD_DONE},
        {"it does not boot", 4, 8, {4, 4}, {CO_WORKER_IDLE, CO_WORKER_BUSY}, CO_RELOAD_FAILED},
        {"its workers do not", 5, 9, {4, 4}, {CO_WORKER_IDLE, CO_WORKER_BUSY}, CO_RELOAD_FAILED},
    };
    static struct co_view_pool pool;
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memset(&pool, 0, sizeof pool);
        strcpy(pool.name, "jobs");
        pool.generation = 4;
        pool.boot_failures = 7;
        pool.workers_wanted = 2;
        const struct co_reload_start start = co_reload_begin(&pool);
        pool.generation = rows[i].generation;
        pool.boot_failures = rows[i].failures;
        for (uint32_t w = 0; w < 3 && rows[i].workers[w] > 0; w++) {
            pool.workers[w].generation = rows[i].workers[w];
            pool.workers[w].state = rows[i].states[w];
            pool.n_workers++;
        }
        if (co_reload_check(&start, &pool) != rows[i].progress) {
            fail_msg("%s", rows[i].what);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reload_is_through_when_every_worker_is_new_and_up),
    };
    return cmocka_run_group_tests_name("reload", tests, NULL, NULL);
}
