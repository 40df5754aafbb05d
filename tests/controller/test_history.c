#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <string.h>

#include "controller/history.h"

static char buf[65536];

static struct co_text fresh(void)
{
    memset(buf, 0, sizeof buf);
    return (struct co_text){.buf = buf, .size = sizeof buf};
}

static void exits_say_why(void **state)
{
    (void)state;
    struct co_text text = fresh();
    const struct co_report_exit exits[] = {{.at = 86400,
                                            .pool = "jobs",
                                            .worker = 3,
                                            .reason = "crash",
                                            .status = "signal 11",
                                            .job = "App\\A",
                                            .job_id = "17",
                                            .cause = "Out\033 of luck\nmore"},
                                           {.at = 61,
                                            .pool = "jobs",
                                            .worker = CO_WORKERS_MAX,
                                            .reason = "reload",
                                            .queue = "mail",
                                            .job_id = "9"}};

    co_history_exits(&text, exits, 2);
    assert_string_equal(
        buf,
        "WHEN (UTC)           POOL  WORKER  REASON  STATUS     JOB        CAUSE\n"
        "1970-01-02 00:00:00  jobs       3  crash   signal 11  App\\A #17  Out? of luck\n"
        "1970-01-01 00:01:01  jobs  helper  reload  -          mail #9    -\n");
}

static void minutes_have_averages_of_what_ended(void **state)
{
    (void)state;
    struct co_text text = fresh();
    const struct co_report_minute minutes[] = {{.minute = 120,
                                                .pool = "jobs",
                                                .connection = "db",
                                                .queue = "mail",
                                                .job = "A",
                                                .done = 3,
                                                .failed = 1,
                                                .timeouts = 1,
                                                .run_sum_us = 8000,
                                                .run_max_us = 5000,
                                                .wait_sum_us = 400},
                                               {.minute = 60, .pool = "jobs", .queue = "q"}};

    co_history_minutes(&text, minutes, 2);
    assert_non_null(strstr(buf,
                           "1970-01-01 00:02  jobs  db:mail  A       3       1         0        "
                           "0        1   2.0 ms   5.0 ms    100 us\n"));
    assert_non_null(strstr(buf, "1970-01-01 00:01  jobs  q        -       0 "));
}

static void slow_jobs_come_with_their_stack(void **state)
{
    (void)state;
    struct co_text text = fresh();
    const struct co_report_slow slow[] = {{.at = 60,
                                           .pool = "jobs",
                                           .worker = 2,
                                           .job = "App\\A",
                                           .seconds = 12,
                                           .stack = "#0 sleep() \n#1 go() /a.php:3"}};

    co_history_slow(&text, slow, 1);
    assert_string_equal(buf,
                        "1970-01-01 00:01:00 UTC  jobs  worker 2  App\\A  had run for 12 s\n"
                        "  #0 sleep() \n"
                        "  #1 go() /a.php:3\n");
}

static void frames_are_lines(void **state)
{
    (void)state;
    struct co_text text = fresh();

    co_history_frame(&text, 0, "sleep", "", 0);
    co_history_frame(&text, 10, "App\\A->handle", "/app/A.php", 12);
    assert_string_equal(buf, "#0   sleep()\n#10  App\\A->handle()  /app/A.php:12\n");
}

static void nothing_is_said_too(void **state)
{
    (void)state;
    struct co_text text = fresh();

    co_history_exits(&text, NULL, 0);
    co_history_slow(&text, NULL, 0);
    co_history_minutes(&text, NULL, 0);
    assert_non_null(strstr(buf, "no worker has ended\n"));
    assert_non_null(strstr(buf, "no slow jobs"));
    assert_non_null(strstr(buf, "no jobs yet"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exits_say_why),
        cmocka_unit_test(minutes_have_averages_of_what_ended),
        cmocka_unit_test(slow_jobs_come_with_their_stack),
        cmocka_unit_test(frames_are_lines),
        cmocka_unit_test(nothing_is_said_too),
    };
    return cmocka_run_group_tests_name("history", tests, NULL, NULL);
}
