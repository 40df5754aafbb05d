/* The agent's own memory: what is kept, how much of it, and what a bad disk does to it. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "agent/state_sqlite.h"

#define DEADLINE_MS 30000
#define NOON 1764504000
#define NOBODY 65534

struct rig {
    char dir[64];
    char path[128];
    struct co_state *state;
    struct co_state_pause pauses[CO_STATE_PAUSES_MAX];
    uint32_t n_pauses;
    struct co_report_exit exits[CO_STATE_EXITS_MAX];
    struct co_report_minute minutes[2 * CO_MINUTES_MAX];
    struct co_report_slow slow[CO_STATE_SLOW_MAX];
    struct co_minutes table;
    struct co_err err;
    uint32_t n;
};
static struct rig rig;

static int set_up(void **state)
{
    (void)state;
    memset(&rig, 0, sizeof rig);
    snprintf(rig.dir, sizeof rig.dir, "/tmp/cohort-state-XXXXXX");
    assert_non_null(mkdtemp(rig.dir));
    snprintf(rig.path, sizeof rig.path, "%s/state.db", rig.dir);
    return 0;
}

static int tear_down(void **state)
{
    char path[512];
    struct dirent *entry;
    DIR *dir;
    (void)state;
    co_state_free(&rig.state);
    dir = opendir(rig.dir);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof path, "%s/%s", rig.dir, entry->d_name);
        if (entry->d_name[0] != '.' && unlink(path) != 0) {
            rmdir(path);
        }
    }
    closedir(dir);
    rmdir(rig.dir);
    return 0;
}

static void open_state(void)
{
    assert_int_equal(co_state_open(rig.path, rig.pauses, &rig.n_pauses, &rig.state, &rig.err), 0);
}

static void reopen(void)
{
    co_state_free(&rig.state);
    assert_null(rig.state);
    open_state();
}

static void flush(void)
{
    if (!co_state_flush(rig.state, DEADLINE_MS)) {
        fail_msg("not written: %s", co_state_error(rig.state, &rig.err) ? rig.err.msg : "?");
    }
}

static void no_message(void)
{
    if (co_state_error(rig.state, &rig.err)) {
        fail_msg("%s", rig.err.msg);
    }
}

static void message(int code, const char *part)
{
    assert_true(co_state_error(rig.state, &rig.err));
    assert_int_equal(rig.err.code, code);
    if (strstr(rig.err.msg, part) == NULL) {
        fail_msg("\"%s\" is not in: %s", part, rig.err.msg);
    }
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* Wait until writing fails, or succeeds again. */
static void wait_failing(bool failing)
{
    uint64_t until = now_ms() + DEADLINE_MS;
    while (co_state_failing(rig.state) != failing) {
        assert_true(now_ms() < until);
        co_state_flush(rig.state, 10);
    }
}

static sqlite3 *other(void)
{
    sqlite3 *sql;
    assert_int_equal(sqlite3_open(rig.path, &sql), SQLITE_OK);
    return sql;
}

static void exec(sqlite3 *sql, const char *statement)
{
    if (sqlite3_exec(sql, statement, NULL, NULL, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", statement, sqlite3_errmsg(sql));
    }
}

static void note_exit(uint32_t worker, const char *cause)
{
    struct co_report_exit exit = {.at = NOON + worker,
                                  .pool = "jobs",
                                  .worker = worker,
                                  .pid = 4711,
                                  .generation = 3,
                                  .reason = "crash",
                                  .status = "signal 11 (SIGSEGV)",
                                  .queue = "default",
                                  .job = "App\\Jobs\\Mail",
                                  .job_id = "12",
                                  .uuid = "0b9f5a1e-6d1c-4f57-8a55-0d6b2d6b9e11",
                                  .rss_bytes = 1u << 30};
    snprintf(exit.cause, sizeof exit.cause, "%s", cause);
    co_state_exit(rig.state, &exit);
}

static void list_exits(uint32_t n)
{
    int code = co_state_exits_list(rig.path, NULL, rig.exits, CO_STATE_EXITS_MAX, &rig.n, &rig.err);
    if (code < 0) {
        fail_msg("%s", rig.err.msg);
    }
    assert_int_equal(rig.n, n);
}

static struct co_state_pause pause_of(const char *queue, const char *reason)
{
    struct co_state_pause pause = {.connection = "database", .by = "ada", .since = NOON};
    snprintf(pause.queue, sizeof pause.queue, "%s", queue);
    snprintf(pause.reason, sizeof pause.reason, "%s", reason);
    return pause;
}

static void set_pause(const char *queue, const char *reason)
{
    struct co_state_pause pause = pause_of(queue, reason);
    assert_int_equal(co_state_pause_set(rig.state, &pause, &rig.err), 0);
}

/* ---- what is kept ---- */

static void an_exit_comes_back_as_it_was_noted(void **state)
{
    (void)state;
    open_state();
    note_exit(1, "older");
    note_exit(2, "Segmentation fault");
    flush();
    list_exits(2);
    const struct co_report_exit *exit = &rig.exits[0];
    assert_int_equal(exit->id, 2);
    assert_int_equal(exit->at, NOON + 2);
    assert_string_equal(exit->pool, "jobs");
    assert_int_equal(exit->worker, 2);
    assert_int_equal(exit->pid, 4711);
    assert_int_equal(exit->generation, 3);
    assert_string_equal(exit->reason, "crash");
    assert_string_equal(exit->status, "signal 11 (SIGSEGV)");
    assert_string_equal(exit->queue, "default");
    assert_string_equal(exit->job, "App\\Jobs\\Mail");
    assert_string_equal(exit->job_id, "12");
    assert_string_equal(exit->uuid, "0b9f5a1e-6d1c-4f57-8a55-0d6b2d6b9e11");
    assert_string_equal(exit->cause, "Segmentation fault");
    assert_int_equal(exit->rss_bytes, 1u << 30);
    assert_string_equal(rig.exits[1].cause, "older");
    no_message();
}

static void a_query_narrows_a_list(void **state)
{
    struct co_state_query query = {.since = NOON + 3, .pool = "jobs", .queue = "default"};
    (void)state;
    open_state();
    for (uint32_t i = 1; i <= 5; i++) {
        note_exit(i, "x");
    }
    flush();
    assert_int_equal(
        co_state_exits_list(rig.path, &query, rig.exits, CO_STATE_EXITS_MAX, &rig.n, &rig.err), 0);
    assert_int_equal(rig.n, 3);
    assert_int_equal(co_state_exits_list(rig.path, &query, rig.exits, 2, &rig.n, &rig.err), 0);
    assert_int_equal(rig.n, 2);
    assert_int_equal(rig.exits[1].worker, 4);
    query.pool = "mail";
    assert_int_equal(co_state_exits_list(rig.path, &query, rig.exits, 2, &rig.n, &rig.err), 0);
    assert_int_equal(rig.n, 0);
}

static void a_cause_is_cut_at_500_bytes_between_characters(void **state)
{
    char cause[1000];
    (void)state;
    memset(cause, 'x', sizeof cause);
    cause[sizeof cause - 1] = '\0';
    open_state();
    note_exit(1, cause);
    memcpy(cause + 498, "\xe2\x82\xac", 3); /* The euro sign's last byte does not fit. */
    note_exit(2, cause);
    memcpy(cause + 497, "\xe2\x82\xac", 3); /* It ends where the field ends. */
    note_exit(3, cause);
    flush();
    list_exits(3);
    assert_int_equal(strlen(rig.exits[2].cause), 500);
    assert_int_equal(strlen(rig.exits[1].cause), 498);
    assert_int_equal(strlen(rig.exits[0].cause), 500);
}

static void add_minute(co_unix minute, const char *job, uint64_t run_us)
{
    struct co_minutes_end end = {.pool = "jobs",
                                 .connection = "database",
                                 .queue = "default",
                                 .job = job,
                                 .outcome = CO_OUTCOME_DONE,
                                 .run_us = run_us,
                                 .wait_us = 5};
    co_minutes_start(&rig.table, minute);
    co_minutes_add(&rig.table, &end);
    co_state_minutes(rig.state, &rig.table);
    flush();
}

static void list_minutes(uint32_t n)
{
    assert_int_equal(
        co_state_minutes_list(rig.path, NULL, rig.minutes, 2 * CO_MINUTES_MAX, &rig.n, &rig.err),
        0);
    assert_int_equal(rig.n, n);
}

static void rows_of_one_minute_are_added_up(void **state)
{
    (void)state;
    open_state();
    add_minute(NOON, "Mail", 100);
    add_minute(NOON, "Mail", 40);
    add_minute(NOON, "Report", 7);
    add_minute(NOON + 60, "Mail", 1);
    list_minutes(3);
    assert_int_equal(rig.minutes[0].minute, NOON + 60);
    const struct co_report_minute *mail = &rig.minutes[1];
    assert_string_equal(mail->job, "Mail");
    assert_string_equal(mail->connection, "database");
    assert_int_equal(mail->done, 2);
    assert_int_equal(mail->run_sum_us, 140);
    assert_int_equal(mail->run_max_us, 100);
    assert_int_equal(mail->wait_sum_us, 10);
    assert_int_equal(rig.minutes[2].run_sum_us, 7);
}

static void minutes_older_than_seven_days_go(void **state)
{
    (void)state;
    open_state();
    add_minute(NOON, "Mail", 1);
    add_minute(NOON + CO_STATE_MINUTES_S, "Mail", 1);
    list_minutes(2);
    add_minute(NOON + CO_STATE_MINUTES_S + 60, "Mail", 1);
    list_minutes(2);
    assert_int_equal(rig.minutes[1].minute, NOON + CO_STATE_MINUTES_S);
}

static void a_minute_without_jobs_is_no_note(void **state)
{
    (void)state;
    open_state();
    co_minutes_start(&rig.table, NOON);
    co_state_minutes(rig.state, &rig.table);
    flush();
    list_minutes(0);
}

static void a_full_minute_is_one_note(void **state)
{
    char job[32];
    (void)state;
    open_state();
    co_minutes_start(&rig.table, NOON);
    for (int i = 0; i < 600; i++) {
        snprintf(job, sizeof job, "Job%d", i);
        struct co_minutes_end end = {.pool = "jobs", .job = job, .outcome = CO_OUTCOME_DONE};
        co_minutes_add(&rig.table, &end);
    }
    co_state_minutes(rig.state, &rig.table);
    flush();
    list_minutes(CO_MINUTES_MAX);
    assert_int_equal(co_state_dropped(rig.state), 0);
}

static void only_the_newest_exits_and_slow_jobs_are_kept(void **state)
{
    struct co_report_slow slow = {.at = NOON, .pool = "jobs", .job = "Mail", .seconds = 9};
    (void)state;
    open_state();
    for (uint32_t i = 1; i <= CO_STATE_EXITS_MAX + 500; i++) {
        note_exit(i, "x");
        if (i % 500 == 0) {
            flush();
        }
    }
    for (uint32_t i = 1; i <= CO_STATE_SLOW_MAX + 50; i++) {
        slow.worker = i;
        snprintf(slow.stack, sizeof slow.stack, "#0 app/Jobs/Mail.php:%u\n#1 main", i);
        co_state_slow(rig.state, &slow);
        if (i % 50 == 0) {
            flush();
        }
    }
    flush();
    assert_int_equal(co_state_dropped(rig.state), 0);
    list_exits(CO_STATE_EXITS_MAX);
    assert_int_equal(rig.exits[0].worker, CO_STATE_EXITS_MAX + 500);
    assert_int_equal(rig.exits[CO_STATE_EXITS_MAX - 1].worker, 501);
    assert_int_equal(
        co_state_slow_list(rig.path, NULL, rig.slow, CO_STATE_SLOW_MAX, &rig.n, &rig.err), 0);
    assert_int_equal(rig.n, CO_STATE_SLOW_MAX);
    assert_string_equal(rig.slow[0].stack, "#0 app/Jobs/Mail.php:1050\n#1 main");
    assert_string_equal(rig.slow[0].job, "Mail");
    assert_int_equal(rig.slow[0].seconds, 9);
}

/* ---- pauses ---- */

static void pauses_survive_the_agent(void **state)
{
    (void)state;
    open_state();
    assert_int_equal(rig.n_pauses, 0);
    set_pause("mail", "provider is down");
    set_pause("", "migration");
    set_pause("mail", "provider is still down");
    reopen();
    assert_int_equal(rig.n_pauses, 2);
    assert_string_equal(rig.pauses[0].queue, "");
    assert_string_equal(rig.pauses[1].queue, "mail");
    assert_string_equal(rig.pauses[1].connection, "database");
    assert_string_equal(rig.pauses[1].by, "ada");
    assert_string_equal(rig.pauses[1].reason, "provider is still down");
    assert_int_equal(rig.pauses[1].since, NOON);
    assert_int_equal(co_state_pause_clear(rig.state, "", "database", &rig.err), 0);
    reopen();
    assert_int_equal(rig.n_pauses, 1);
    assert_string_equal(rig.pauses[0].queue, "mail");
    no_message();
}

static void clearing_what_is_not_paused_is_told(void **state)
{
    (void)state;
    open_state();
    assert_int_equal(co_state_pause_clear(rig.state, "mail", "database", &rig.err), CO_ENOTFOUND);
    set_pause("mail", "x");
    assert_int_equal(co_state_pause_clear(rig.state, "mail", "redis", &rig.err), CO_ENOTFOUND);
    assert_int_equal(co_state_pause_clear(rig.state, "mail", "database", &rig.err), 0);
    assert_int_equal(co_state_pause_clear(rig.state, "mail", "database", &rig.err), CO_ENOTFOUND);
}

static void more_pauses_than_fit_are_refused(void **state)
{
    char queue[16];
    (void)state;
    open_state();
    for (int i = 0; i < CO_STATE_PAUSES_MAX; i++) {
        snprintf(queue, sizeof queue, "q%d", i);
        set_pause(queue, "x");
    }
    struct co_state_pause pause = pause_of("one more", "x");
    assert_int_equal(co_state_pause_set(rig.state, &pause, &rig.err), CO_EFULL);
    assert_int_equal(co_state_pause_clear(rig.state, "q7", "database", &rig.err), 0);
    flush();
    assert_int_equal(co_state_pause_set(rig.state, &pause, &rig.err), 0);
    reopen();
    assert_int_equal(rig.n_pauses, CO_STATE_PAUSES_MAX);
}

/* ---- the file ---- */

static void the_file_is_private_and_in_wal_mode(void **state)
{
    struct stat st;
    char wal[160];
    (void)state;
    open_state();
    note_exit(1, "x");
    flush();
    assert_int_equal(stat(rig.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    snprintf(wal, sizeof wal, "%s-wal", rig.path);
    assert_int_equal(stat(wal, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    co_state_free(&rig.state);
    assert_int_equal(chmod(rig.path, 0644), 0);
    open_state();
    assert_int_equal(stat(rig.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void a_newer_file_is_used_as_it_is(void **state)
{
    (void)state;
    open_state();
    co_state_free(&rig.state);
    sqlite3 *sql = other();
    exec(sql,
         "ALTER TABLE exits ADD COLUMN node TEXT NOT NULL DEFAULT ''; CREATE TABLE decisions(at);"
         "PRAGMA user_version=99");
    sqlite3_close(sql);
    open_state();
    note_exit(1, "x");
    flush();
    list_exits(1);
    no_message();
    sql = other();
    exec(sql,
         "INSERT INTO decisions SELECT user_version FROM pragma_user_version()"
         " WHERE user_version=99");
    assert_int_equal(sqlite3_changes(sql), 1);
    sqlite3_close(sql);
}

static void fill(const char *path, const char *text, size_t times)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    for (size_t i = 0; i < times; i++) {
        fputs(text, file);
    }
    fclose(file);
}

static bool has_aside(void)
{
    struct dirent *entry;
    bool found = false;
    DIR *dir = opendir(rig.dir);
    while ((entry = readdir(dir)) != NULL) {
        found = found || strncmp(entry->d_name, "state.db.corrupt-", 17) == 0;
    }
    closedir(dir);
    return found;
}

static void a_file_that_is_no_database_is_moved_aside(void **state)
{
    (void)state;
    fill(rig.path, "this is no database\n", 500);
    open_state();
    message(CO_ESOURCE, "state.db.corrupt-");
    assert_non_null(strstr(rig.err.msg, "set them again"));
    no_message();
    assert_true(has_aside());
    note_exit(1, "x");
    flush();
    list_exits(1);
}

/* Overwrite every page but the first ones. */
static void damage(uint32_t keep_pages)
{
    struct stat st;
    char junk[4096];
    int fd = open(rig.path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    memset(junk, 0x5a, sizeof junk);
    for (off_t at = (off_t)keep_pages * 4096; at < st.st_size; at += 4096) {
        assert_int_equal(pwrite(fd, junk, sizeof junk, at), sizeof junk);
    }
    close(fd);
}

static void a_damaged_page_is_found_when_pauses_are_read(void **state)
{
    (void)state;
    open_state();
    set_pause("mail", "x");
    co_state_free(&rig.state);
    damage(1);
    open_state();
    assert_int_equal(rig.n_pauses, 0);
    message(CO_ESOURCE, "set them again");
    assert_true(has_aside());
    set_pause("mail", "y");
    reopen();
    assert_int_equal(rig.n_pauses, 1);
    no_message();
}

static void damage_while_running_keeps_the_pauses(void **state)
{
    (void)state;
    open_state();
    set_pause("mail", "x");
    for (uint32_t i = 0; i < 200; i++) {
        note_exit(i, "something to fill a page or two");
    }
    reopen(); /* Everything is in the file itself, nothing in its journal or a cache. */
    assert_int_equal(rig.n_pauses, 1);
    flush();
    sqlite3 *sql = other();
    exec(sql, "PRAGMA wal_checkpoint(TRUNCATE)");
    sqlite3_close(sql);
    damage(1);
    for (uint32_t i = 0; i < 100 && !has_aside(); i++) {
        note_exit(i, "after");
        flush();
        /* Somebody else's write makes the agent's connection drop what it had cached. */
        if (!has_aside() && sqlite3_open(rig.path, &sql) == SQLITE_OK) {
            sqlite3_exec(sql, "PRAGMA user_version=1", NULL, NULL, NULL);
            sqlite3_close(sql);
        }
    }
    assert_true(has_aside());
    message(CO_ESOURCE, "the pauses in force are kept");
    note_exit(7, "the last");
    reopen();
    assert_int_equal(rig.n_pauses, 1);
    assert_string_equal(rig.pauses[0].queue, "mail");
    assert_true(co_state_exits_list(rig.path, NULL, rig.exits, 1, &rig.n, &rig.err) == 0);
    assert_string_equal(rig.exits[0].cause, "the last");
}

static void a_file_that_was_removed_is_made_again(void **state)
{
    (void)state;
    open_state();
    set_pause("mail", "x");
    note_exit(1, "before");
    flush();
    assert_int_equal(unlink(rig.path), 0);
    note_exit(2, "after");
    flush();
    list_exits(1);
    assert_string_equal(rig.exits[0].cause, "after");
    reopen();
    assert_int_equal(rig.n_pauses, 1);
}

/* ---- disks that do not take it ---- */

static void a_place_that_cannot_be_opened_does_not_stop_the_agent(void **state)
{
    (void)state;
    assert_int_equal(mkdir(rig.path, 0700), 0);
    open_state();
    assert_true(co_state_failing(rig.state));
    message(CO_ESOURCE, "the pauses are not known");
    message(CO_ESOURCE, "the agent goes on");
    note_exit(1, "kept");
    set_pause("mail", "x");
    co_state_flush(rig.state, 1500); /* Tried again in that time, and not told again. */
    no_message();
    assert_int_equal(rmdir(rig.path), 0);
    wait_failing(false);
    message(CO_OK, "written again");
    flush();
    list_exits(1);
    reopen();
    assert_int_equal(rig.n_pauses, 1);
}

static void notes_beyond_the_queue_are_dropped_oldest_first_and_counted(void **state)
{
    struct co_report_slow slow = {.at = NOON, .pool = "jobs", .job = "Mail"};
    (void)state;
    assert_int_equal(mkdir(rig.path, 0700), 0);
    open_state();
    co_state_slow(rig.state, &slow);
    for (uint32_t i = 1; i <= 1034; i++) {
        note_exit(i, "x");
    }
    assert_int_equal(co_state_dropped(rig.state), 10);
    assert_int_equal(rmdir(rig.path), 0);
    flush();
    list_exits(1024);
    assert_int_equal(rig.exits[0].worker, 1034);
    assert_int_equal(rig.exits[1023].worker, 11);
    message(CO_ESOURCE, "the pauses are not known");
    message(CO_ESOURCE, "the agent goes on");
    message(CO_OK, "dropped meanwhile: 10");
    assert_int_equal(
        co_state_slow_list(rig.path, NULL, rig.slow, CO_STATE_SLOW_MAX, &rig.n, &rig.err), 0);
    assert_int_equal(rig.n, 1);
}

static void a_full_disk_is_told_once_and_written_to_again(void **state)
{
    struct rlimit limit, old;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    (void)state;
    open_state();
    assert_int_equal(sigaction(SIGXFSZ, &ignore, &before), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 64 * 1024;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (uint32_t i = 1; i <= 1000; i++) {
        note_exit(i, "a line that takes room on the disk, again and again and again and again");
    }
    wait_failing(true);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(sigaction(SIGXFSZ, &before, NULL), 0);
    wait_failing(false);
    flush();
    list_exits(1000);
    message(CO_ESOURCE, "free space");
    message(CO_OK, "written again");
    no_message();
}

static void a_disk_that_can_only_be_read_still_has_its_pauses(void **state)
{
    (void)state;
    open_state();
    set_pause("mail", "x");
    co_state_free(&rig.state);
    assert_int_equal(chmod(rig.path, 0444), 0);
    assert_int_equal(chmod(rig.dir, 0555), 0);
    bool root = geteuid() == 0;
    if (root) {
        assert_int_equal(seteuid(NOBODY), 0);
    }
    open_state();
    uint32_t n = rig.n_pauses;
    bool told = co_state_error(rig.state, &rig.err);
    bool failing = co_state_failing(rig.state);
    note_exit(1, "x");
    co_state_free(&rig.state);
    if (root) {
        assert_int_equal(seteuid(0), 0);
    }
    assert_int_equal(chmod(rig.dir, 0700), 0);
    assert_int_equal(n, 1);
    assert_true(told);
    assert_true(failing);
    assert_non_null(strstr(rig.err.msg, "writable for user id"));
}

static void a_locked_file_delays_neither_a_note_nor_the_end(void **state)
{
    (void)state;
    open_state();
    sqlite3 *sql = other();
    exec(sql, "BEGIN IMMEDIATE");
    uint64_t begin = now_ms();
    note_exit(1, "x");
    set_pause("mail", "x");
    assert_true(now_ms() - begin < 500);
    assert_false(co_state_flush(rig.state, 20));
    begin = now_ms();
    co_state_free(&rig.state);
    assert_true(now_ms() - begin < 1900);
    exec(sql, "ROLLBACK");
    sqlite3_close(sql);
}

static void a_lock_that_goes_is_waited_for(void **state)
{
    (void)state;
    open_state();
    sqlite3 *sql = other();
    exec(sql, "BEGIN IMMEDIATE");
    note_exit(1, "x");
    assert_false(co_state_flush(rig.state, 20));
    exec(sql, "ROLLBACK");
    sqlite3_close(sql);
    flush();
    list_exits(1);
    no_message();
}

static void lists_of_no_file_and_of_an_older_one(void **state)
{
    (void)state;
    assert_int_equal(co_state_exits_list(rig.path, NULL, rig.exits, 1, &rig.n, &rig.err),
                     CO_ENOTFOUND);
    sqlite3 *sql = other();
    exec(sql, "CREATE TABLE something(x)");
    sqlite3_close(sql);
    list_exits(0);
    fill(rig.path, "this is no database\n", 500);
    assert_int_equal(co_state_exits_list(rig.path, NULL, rig.exits, 1, &rig.n, &rig.err),
                     CO_EMALFORMED);
}

static void freeing_nothing_does_nothing(void **state)
{
    (void)state;
    co_state_free(NULL);
    co_state_free(&rig.state);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(an_exit_comes_back_as_it_was_noted),
        TEST(a_query_narrows_a_list),
        TEST(a_cause_is_cut_at_500_bytes_between_characters),
        TEST(rows_of_one_minute_are_added_up),
        TEST(minutes_older_than_seven_days_go),
        TEST(a_minute_without_jobs_is_no_note),
        TEST(a_full_minute_is_one_note),
        TEST(only_the_newest_exits_and_slow_jobs_are_kept),
        TEST(pauses_survive_the_agent),
        TEST(clearing_what_is_not_paused_is_told),
        TEST(more_pauses_than_fit_are_refused),
        TEST(the_file_is_private_and_in_wal_mode),
        TEST(a_newer_file_is_used_as_it_is),
        TEST(a_file_that_is_no_database_is_moved_aside),
        TEST(a_damaged_page_is_found_when_pauses_are_read),
        TEST(damage_while_running_keeps_the_pauses),
        TEST(a_file_that_was_removed_is_made_again),
        TEST(a_place_that_cannot_be_opened_does_not_stop_the_agent),
        TEST(notes_beyond_the_queue_are_dropped_oldest_first_and_counted),
        TEST(a_full_disk_is_told_once_and_written_to_again),
        TEST(a_disk_that_can_only_be_read_still_has_its_pauses),
        TEST(a_locked_file_delays_neither_a_note_nor_the_end),
        TEST(a_lock_that_goes_is_waited_for),
        TEST(lists_of_no_file_and_of_an_older_one),
        TEST(freeing_nothing_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
