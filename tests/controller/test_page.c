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

#include "controller/page.h"
#include "controller/table.h"

#define TEXT_SIZE 65536

struct fixture {
    struct co_view view;
    char buf[TEXT_SIZE];
    struct co_text text;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct co_view_pool *pool = &f->view.pools[0];
    struct co_view_queue *queue = &f->view.queues[0];

    f->text = (struct co_text){.buf = f->buf, .size = sizeof f->buf};
    strcpy(f->view.version, "0.1.0");
    f->view.pid = 42;
    f->view.uptime = 3723000;
    f->view.ready = true;
    f->view.n_pools = 1;
    strcpy(pool->name, "jobs");
    pool->generation = 3;
    pool->workers_wanted = 4;
    pool->by_state[CO_WORKER_BUSY] = 2;
    pool->n_workers = 2;
    pool->workers[0] = (struct co_view_worker){.index = 0,
                                               .pid = 4242,
                                               .state = CO_WORKER_BUSY,
                                               .since = 61000,
                                               .queue = "mail",
                                               .job = "App\\Jobs\\Send",
                                               .job_id = "17"};
    pool->workers[1] = (struct co_view_worker){.index = 1, .state = CO_WORKER_BOOTING};
    f->view.n_queues = 1;
    strcpy(queue->name, "mail");
    strcpy(queue->connection, "database");
    queue->ready = 7;
    queue->oldest_s = 90;
    f->view.n_sources = 1;
    strcpy(f->view.sources[0].connection, "database");
    f->view.sources[0].up = true;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

static void has(const struct fixture *f, const char *part)
{
    if (strstr(f->buf, part) == NULL) {
        fail_msg("no \"%s\" in\n%s", part, f->buf);
    }
}

static void status_is_one_page(void **state)
{
    struct fixture *f = *state;

    co_page_status(&f->text, &f->view);
    assert_int_equal(f->text.len, strlen(f->buf));
    has(f, "cohortd 0.1.0  pid 42  up 1h 2m  ready\n");
    has(f, "jobs           3       4        0     0     2         0");
    has(f, "mail   database    (nobody)  -          7");
    has(f, "1m 30s");
    assert_null(strstr(f->buf, "\033"));
}

static void what_is_wrong_is_said(void **state)
{
    struct fixture *f = *state;

    f->view.ready = false;
    strcpy(f->view.why, "no pool has a worker");
    strcpy(f->view.pools[0].boot_error, "Class \"Redis\" not found\033[2J");
    f->view.pools[0].exits[CO_EXIT_OOM] = 2;
    f->view.pools[0].exits[CO_EXIT_CRASH] = 1;
    f->view.sources[0].up = false;
    f->view.sources[0].quarantined = 3;
    strcpy(f->view.sources[0].error, "database is locked");
    co_page_status(&f->text, &f->view);
    has(f, "not ready: no pool has a worker\n");
    has(f, "jobs: the application does not boot: Class \"Redis\" not found?[2J\n");
    has(f, "jobs: workers ended: 2 oom, 1 crash\n");
    has(f, "database: the source does not answer: database is locked\n");
    has(f, "database: 3 in quarantine: cohort failed list --quarantined\n");
}

static void why_nothing_runs_is_said(void **state)
{
    struct fixture *f = *state;

    strcpy(f->view.pools[0].circuit, "open");
    strcpy(f->view.pools[0].boot_error, "no such file");
    f->view.pools[0].zygote_up = true;
    f->view.pools[0].bookkeeping = 1;
    f->view.queues[0].held = true;
    strcpy(f->view.queues[0].held_why, "paused by eve: provider down (cohort resume)");
    f->view.queues[0].served = true;
    strcpy(f->view.queues[0].pool, "jobs");
    co_page_status(&f->text, &f->view);
    has(f, "mail   database    jobs  held       7");
    has(f, "database:mail: held: paused by eve: provider down (cohort resume)");
    has(f, "jobs: the circuit is open: too many workers died, so no new ones are started");
    has(f, "jobs: 1 job waits for a bookkeeper");
    has(f, "no such file (the one before serves on)\n");
}

static void a_closed_circuit_is_not_mentioned(void **state)
{
    struct fixture *f = *state;

    strcpy(f->view.pools[0].circuit, "closed");
    co_page_status(&f->text, &f->view);
    assert_null(strstr(f->buf, "circuit"));
    assert_null(strstr(f->buf, "held"));
    assert_null(strstr(f->buf, "bookkeeper"));
}

static void colors_do_not_move_columns(void **state)
{
    struct fixture *f = *state;

    f->text.color = true;
    co_page_status(&f->text, &f->view);
    has(f, "\033[32mready\033[0m");
    has(f, "jobs           3       4        0     0     2         0");
}

static void workers_show_their_job(void **state)
{
    struct fixture *f = *state;

    co_page_workers(&f->text, &f->view);
    has(f, "jobs       0  4242  busy     1m 1s");
    has(f, "mail   App\\Jobs\\Send #17\n");
    has(f, "jobs       1        booting");
}

static void an_empty_agent_has_pages_too(void **state)
{
    struct fixture *f = *state;

    memset(&f->view, 0, sizeof f->view);
    co_page_status(&f->text, &f->view);
    co_page_workers(&f->text, &f->view);
    co_page_queues(&f->text, &f->view);
    has(f, "no queues yet\n");
    has(f, "no workers\n");
}

static void a_small_buffer_learns_the_size(void **state)
{
    struct fixture *f = *state;
    char small[16];
    struct co_text text = {.buf = small, .size = sizeof small};
    struct co_text none = {0};

    co_page_status(&f->text, &f->view);
    co_page_status(&text, &f->view);
    co_page_status(&none, &f->view);
    assert_int_equal(text.len, f->text.len);
    assert_int_equal(none.len, f->text.len);
    assert_int_equal(strlen(small), sizeof small - 1);
}

static void cells_are_cut_between_characters(void **state)
{
    (void)state;
    char cell[CO_CELL_SIZE] = "";
    char value[400] = "";

    for (int i = 0; i < 120; i++) {
        strcat(value, "\xc3\xa4");
    }
    co_table_cell(cell, value);
    assert_true(strlen(cell) < sizeof cell);
    assert_string_equal(cell + strlen(cell) - 3, "\xe2\x80\xa6");
    cell[0] = '\0';
    co_table_cell(cell, "a\nb\x1b\xff");
    assert_string_equal(cell, "a?b??");
}

static void units_are_for_people(void **state)
{
    (void)state;
    char buf[CO_HUMAN_SIZE];

    assert_string_equal(co_table_us(12, buf), "12 us");
    assert_string_equal(co_table_us(1600, buf), "1.6 ms");
    assert_string_equal(co_table_us(2500000, buf), "2.5 s");
    assert_string_equal(co_table_ms(999, buf), "999 ms");
    assert_string_equal(co_table_ms(192000, buf), "3m 12s");
    assert_string_equal(co_table_ms(90000000, buf), "1d 1h");
    assert_string_equal(co_table_bytes(812, buf), "812 B");
    assert_string_equal(co_table_bytes(1572864, buf), "1.5 MiB");
    assert_string_equal(co_table_bytes(UINT64_C(5) << 40, buf), "5.0 TiB");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(status_is_one_page),
        TEST(what_is_wrong_is_said),
        TEST(why_nothing_runs_is_said),
        TEST(a_closed_circuit_is_not_mentioned),
        TEST(colors_do_not_move_columns),
        TEST(workers_show_their_job),
        TEST(an_empty_agent_has_pages_too),
        TEST(a_small_buffer_learns_the_size),
        cmocka_unit_test(cells_are_cut_between_characters),
        cmocka_unit_test(units_are_for_people),
    };
    return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}
