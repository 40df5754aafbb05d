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

#include "agent/health.h"
#include "agent/overview.h"

static int set_up(void **state)
{
    struct co_view *view = calloc(1, sizeof *view);

    view->live = true;
    view->n_pools = 1;
    view->n_sources = 1;
    view->sources[0].up = true;
    strcpy(view->pools[0].name, "jobs");
    strcpy(view->pools[0].circuit, "closed");
    view->pools[0].zygote_up = true;
    view->pools[0].by_state[CO_WORKER_BUSY] = 1;
    *state = view;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

/* /readyz and /readyz?pool=jobs. */
static void probe(struct co_view *view, int status, const char *why)
{
    char body[1024];

    co_overview_readiness(view, 1);
    assert_int_equal(co_health_answer(view, CO_HEALTH_READY, NULL, body, sizeof body), status);
    assert_non_null(strstr(body, why));
    assert_int_equal(co_health_answer(view, CO_HEALTH_READY, "jobs", body, sizeof body), status);
    assert_non_null(strstr(body, why));
    assert_int_equal(co_health_answer(view, CO_HEALTH_LIVE, NULL, body, sizeof body), 200);
}

static void ready_needs_a_worker_a_closed_circuit_and_no_drain(void **state)
{
    struct co_view *view = *state;

    probe(view, 200, "ready");
    strcpy(view->pools[0].circuit, "open");
    probe(view, 503, "the circuit is open");
    strcpy(view->pools[0].circuit, "probing");
    probe(view, 200, "ready");
    view->draining = true;
    probe(view, 503, "draining");
    view->draining = false;
    strcpy(view->pools[0].circuit, "closed");
    view->pools[0].by_state[CO_WORKER_BUSY] = 0;
    probe(view, 503, "no worker has booted yet");
    view->pools[0].by_state[CO_WORKER_IDLE] = 1;
    probe(view, 200, "ready");
}

/* The application's own words are the better reason. */
static void an_application_that_does_not_boot_is_the_first_reason(void **state)
{
    struct co_view *view = *state;

    strcpy(view->pools[0].circuit, "open");
    strcpy(view->pools[0].boot_error, "Class \"Redis\" not found");
    view->pools[0].zygote_up = false;
    probe(view, 503, "Redis");
    view->pools[0].zygote_up = true; /* Of a reload: the one before serves on. */
    strcpy(view->pools[0].circuit, "closed");
    probe(view, 200, "ready");
}

static void a_pool_nobody_knows_is_not_found(void **state)
{
    char body[256];

    assert_int_equal(co_health_answer(*state, CO_HEALTH_READY, "mail", body, sizeof body), 404);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ready_needs_a_worker_a_closed_circuit_and_no_drain),
        TEST(an_application_that_does_not_boot_is_the_first_reason),
        TEST(a_pool_nobody_knows_is_not_found),
    };
    return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
