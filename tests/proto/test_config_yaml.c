#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/config.h"

#define COUNT_OF(table) (sizeof(table) / sizeof(table)[0])
#define APP "apps: { shop: { path: /app } }\n"

static int parse(struct co_config *config, const char *text, struct co_err *err)
{
    co_config_init(config);
    return co_config_parse_yaml(config, "/etc/cohort.yaml", text, strlen(text), err);
}

static void every_key_is_read(void **state)
{
    static const char text[] =
        "# what an operator can say\n"
        "admin: { http: 0.0.0.0:9090, control: /run/cohort/control.sock }\n"
        "run_dir: /run/cohort       # slots, rings, sockets\n"
        "state_dir: state\n"
        "drain_deadline: 90s\n"
        "log:\n"
        "  format: json\n"
        "  level: debug\n"
        "apps:\n"
        "  shop: { path: /app, env_file: .env }\n"
        "  plain:\n"
        "    path: ../plain\n"
        "    connection: { driver: sqlite, database: /data/q.db, table: work, retry_after: 2m }\n"
        "pools:\n"
        "  jobs:\n"
        "    app: shop\n"
        "    mode: job\n"
        "    boot: preload\n"
        "    workers: 8\n"
        "    memory: 256Mi\n"
        "    queue: \"high,default\"\n"
        "    connection: database\n"
        "    claim: 20\n"
        "    max_payload: 1Mi\n"
        "    kill_grace: 2s\n"
        "    force: true\n"
        "    job:\n"
        "      timeout: 0\n"
        "      tries: 3\n"
        "      backoff: [1s, 5s, 1m]\n"
        "      memory: 64Mi\n"
        "      on_lost: fail\n"
        "  more: { app: plain, workers: auto, job: { backoff: 3s } }\n";
    struct co_config config;
    struct co_err err = {0};
    const struct co_pool_config *pool = &config.pools[0];
    (void)state;
    if (parse(&config, text, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(co_config_finish(&config, true, NULL, NULL, NULL, &err), 0);
    assert_string_equal(config.file, "/etc/cohort.yaml");
    assert_string_equal(config.http, "0.0.0.0:9090");
    assert_string_equal(config.control, "/run/cohort/control.sock");
    assert_string_equal(config.run_dir, "/run/cohort");
    assert_string_equal(config.state_dir, "/etc/state"); /* Beside the file. */
    assert_int_equal(config.drain_deadline, 90000);
    assert_int_equal(config.log_format, CO_LOG_JSON);
    assert_int_equal(config.log_level, CO_LOG_DEBUG);
    assert_int_equal(config.n_apps, 2);
    assert_string_equal(config.apps[0].path, "/app");
    assert_string_equal(config.apps[0].env_file, "/etc/.env");
    assert_false(config.apps[0].has_connection);
    assert_string_equal(config.apps[1].path, "/etc/../plain");
    assert_true(config.apps[1].has_connection);
    assert_string_equal(config.apps[1].connection.database, "/data/q.db");
    assert_string_equal(config.apps[1].connection.table, "work");
    assert_int_equal(config.apps[1].connection.retry_after, 120000);
    assert_int_equal(config.n_pools, 2);
    assert_string_equal(pool->name, "jobs");
    assert_string_equal(pool->app, "shop");
    assert_int_equal(pool->workers, 8);
    assert_int_equal(pool->memory_bytes, 256 << 20);
    assert_string_equal(pool->queue, "high,default");
    assert_string_equal(pool->connection, "database");
    assert_int_equal(pool->claim, 20);
    assert_int_equal(pool->max_payload_bytes, 1 << 20);
    assert_int_equal(pool->kill_grace, 2000);
    assert_true(pool->force);
    assert_int_equal(pool->job.timeout, 0);
    assert_int_equal(pool->job.tries, 3);
    assert_string_equal(pool->job.backoff, "1,5,60");
    assert_int_equal(pool->job.memory_bytes, 64 << 20);
    assert_int_equal(pool->job.on_lost, CO_ON_LOST_FAIL);
    assert_int_equal(config.pools[1].workers, CO_WORKERS_AUTO);
    assert_string_equal(config.pools[1].job.backoff, "3");
    assert_int_equal(config.pools[1].job.tries, 1);
}

static void small_files_are_enough(void **state)
{
    static const char *const rows[] = {
        APP,
        "---\n" APP,
        "---\r\napps:\r\n  shop:\r\n    path: /app\r\n",
        APP "...\n",
        APP "pools: { jobs: {} }\n",
        APP "pools: {}\nadmin: {}\n",
        "{\"apps\": {\"shop\": {\"path\": \"/app\"}}}",
        APP "pools: { jobs: { job: { backoff: \"1,5,10\" } } }\n",
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct co_config config;
        struct co_err err = {0};
        if (parse(&config, rows[i], &err) != 0 ||
            co_config_finish(&config, true, NULL, NULL, NULL, &err) != 0) {
            fail_msg("%s: %s", rows[i], err.msg);
        }
        assert_string_equal(config.pools[0].app, "shop");
        assert_string_equal(config.pools[0].name, "jobs");
    }
}

/* A refusal: FILE:LINE and the text that follows it. */
struct refusal {
    const char *text;
    unsigned line;
    const char *message;
};

static void check_refusal(const struct refusal *row, bool finish)
{
    static struct co_config before;
    struct co_config config;
    struct co_err err = {0};
    char want[600];
    int code = parse(&config, row->text, &err);

    if (code < 0) {
        co_config_init(&before);
        assert_memory_equal(&config, &before, sizeof config); /* All or nothing. */
    } else if (finish) {
        code = co_config_finish(&config, true, NULL, NULL, NULL, &err);
    }
    snprintf(want, sizeof want, "/etc/cohort.yaml:%u: %s", row->line, row->message);
    if (code != CO_ECONFIG || strncmp(err.msg, want, strlen(want)) != 0) {
        fail_msg("%s\nsays: %s\nnot:  %s", row->text, err.msg, want);
    }
}

static void what_is_no_single_plain_document_is_refused(void **state)
{
    static const struct refusal rows[] = {
        {"", 1, "the file is empty: write at least apps"},
        {"\n# nothing\n", 3, "the file is empty"},
        {"---\n", 2, "the file must be a mapping"},
        {"- a\n", 1, "the file must be a mapping"},
        {"apps\n", 1, "the file must be a mapping"},
        {APP "---\n" APP, 2, "a second document begins here"},
        {APP "...\n---\n{}\n", 3, "a second document begins here"},
        {"\xef\xbb\xbf" APP, 1, "a byte order mark: save the file as UTF-8 without BOM"},
        {"\xff\xfe" APP, 1, "this is UTF-16"},
        {APP "run_dir: /\xff\n", 2, "bytes that are not UTF-8"},
        {APP "run_dir: /\x01\n", 2, "a control character"},
        {"apps:\n\tshop: { path: /app }\n", 2, "a tab: YAML is indented with spaces"},
        {"apps:\n  \tshop: { path: /app }\n", 2, "a tab"},
        {"apps: { shop: { path: /app }\n", 2, "this is not YAML: did not find expected ',' or '}'"},
        {"apps:\n  shop: { path: /app }\n run_dir: /run\n", 3, "this is not YAML"},
        {APP "run_dir: \"/x\n", 3, "this is not YAML: found unexpected end of stream"},
        {APP "run_dir: @x\n", 2, "this is not YAML: found character that cannot start any token"},
        {"apps: &a { shop: { path: /app } }\n", 1, "anchors (&) and aliases (*) are not read"},
        {APP "run_dir: &x /run\n", 2, "anchors (&)"},
        {APP "run_dir: *x\n", 2, "anchors (&)"},
        {"apps: { shop: &x { path: /app } }\nx: *x\n", 1, "anchors (&)"},
        {APP "run_dir: !!str /run\n", 2, "tags (!) are not read"},
        {"!x\n" APP, 1, "tags (!)"},
        {"? { a: b }\n: c\n", 1, "a key belongs here, not a mapping or list"},
        {"? [a]\n: c\n", 1, "a key belongs here, not a mapping or list"},
        {"\"\": c\n", 1, "an empty key"},
        {APP "run_dir: \"/a\\0b\"\n", 2, "run_dir: holds a NUL character"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_refusal(&rows[i], false);
    }
}

static void unknown_and_repeated_keys_are_refused(void **state)
{
    static const struct refusal rows[] = {
        {APP "quue: x\n", 2,
         "quue: unknown key; known here: admin, run_dir, state_dir, drain_deadline, log, fleet, "
         "apps, "
         "pools"},
        {APP "\nlog:\n  format: json\n  colour: red\n", 5,
         "log.colour: unknown key; known here: format, level"},
        {APP "pools:\n  jobs:\n    job:\n      retries: 3\n", 5,
         "pools.jobs.job.retries: unknown key; known here: timeout, tries, backoff, memory, "
         "on_lost"},
        {"apps:\n  shop:\n    path: /app\n    connection:\n      host: x\n", 5,
         "apps.shop.connection.host: unknown key; known here: driver, database, table, "
         "retry_after"},
        {APP "extra: { a: 1 }\n", 2, "extra: unknown key"},
        {APP "extra: [a]\n", 2, "extra: unknown key"},
        {APP "admin.http: off\n", 2, "admin.http: unknown key: no key or name has a point"},
        {APP "pools: { a.b: {} }\n", 2, "a.b: unknown key: no key or name has a point"},
        {APP "<<: { run_dir: /run }\n", 2, "<<: unknown key"},
        {APP "libphp: /usr/lib/libphp.so\n", 2, "libphp: unknown key"},
        {APP "Run_dir: /run\n", 2, "Run_dir: unknown key"},
        {APP "run_dir: /a\nstate_dir: /b\nrun_dir: /c\n", 4,
         "run_dir: stands here again, first in line 2"},
        {APP "apps: { two: { path: /b } }\n", 2, "apps: stands here again, first in line 1"},
        {"apps:\n  shop: { path: /a }\n  shop: { path: /b }\n", 3,
         "apps.shop: stands here again, first in line 2"},
        {"apps:\n  shop: { path: /a, path: /b }\n", 2,
         "apps.shop.path: stands here again, first in line 2"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_refusal(&rows[i], false);
    }
}

static void what_comes_later_is_refused_by_name(void **state)
{
    static const struct refusal rows[] = {
        {APP "fleet: { nome: shop }\n", 2, "fleet.nome: unknown key"},
        {APP "fleet: shop\n", 2, "fleet: keys belong below it"},
        {APP "fleet: { expected: 257 }\n", 2, "fleet.expected: "},
        {APP "policies: [/etc/cohort/policies]\n", 2,
         "policies: policies come with a later version"},
        {APP "policies: [{ queue: a }]\n", 2, "policies: policies come with a later version"},
        {APP "pools: { web: { mode: worker } }\n", 2,
         "pools.web.mode: \"worker\" is not supported: HTTP pools come with a later version"},
        {APP "pools: { web: { mode: per_request } }\n", 2,
         "pools.web.mode: \"per_request\" is not supported: HTTP pools"},
        {"apps: { p: { path: /p, connection: { driver: redis } } }\n", 1,
         "apps.p.connection.driver: \"redis\" is not supported: plain PHP"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_refusal(&rows[i], false);
    }
}

static void values_of_the_wrong_kind_are_refused(void **state)
{
    static const struct refusal rows[] = {
        {APP "pools: { jobs: { workers: 5s } }\n", 2,
         "pools.jobs.workers: \"5s\" is no whole number"},
        {APP "pools: { jobs: { workers: 010 } }\n", 2,
         "pools.jobs.workers: \"010\" begins with a zero"},
        {APP "pools: { jobs: { workers: \"010\" } }\n", 2, "pools.jobs.workers: \"010\" begins"},
        {APP "pools: { jobs: { workers: -1 } }\n", 2, "pools.jobs.workers: \"-1\" has a sign"},
        {APP "pools: { jobs: { workers: 99999999999999999999 } }\n", 2,
         "pools.jobs.workers: \"99999999999999999999\" is too large"},
        {APP "pools:\n  jobs:\n    force: no\n", 4,
         "pools.jobs.force: \"no\" is neither true nor false: write false"},
        {APP "pools: { jobs: { memory: 256 } }\n", 2,
         "pools.jobs.memory: \"256\" has no unit: write 256Mi"},
        {APP "pools: { jobs: { memory: -256Mi } }\n", 2,
         "pools.jobs.memory: \"-256Mi\" is negative"},
        {APP "pools: { jobs: { memory: 99999999999Gi } }\n", 2,
         "pools.jobs.memory: \"99999999999Gi\" is too large for a size"},
        {APP "pools:\n  jobs:\n    job:\n      timeout: 60\n", 5,
         "pools.jobs.job.timeout: \"60\" has no unit: write 60s"},
        {APP "pools: { jobs: { job: { backoff: 5 } } }\n", 2,
         "pools.jobs.job.backoff: \"5\" has no unit: write 5s"},
        {APP "pools: { jobs: { job: { backoff: [1s, 1500ms] } } }\n", 2,
         "pools.jobs.job.backoff: \"1500ms\" is no whole number of seconds"},
        {APP "pools: { jobs: { job: { backoff: [] } } }\n", 2,
         "pools.jobs.job.backoff: an empty list"},
        {APP "pools: { jobs: { job: { backoff: [[1s]] } } }\n", 2,
         "pools.jobs.job.backoff: only plain values belong in this list"},
        {APP "pools: { jobs: { queue: [a, b] } }\n", 2,
         "pools.jobs.queue: one value belongs here, not a list: write \"high,default\""},
        {APP "pools: { jobs: { workers: { min: 1 } } }\n", 2,
         "pools.jobs.workers: one value belongs here, not a mapping"},
        {APP "pools: { jobs: 5 }\n", 2, "pools.jobs: keys belong below it, not a value"},
        {APP "pools: 5\n", 2, "pools: keys belong below it, not a value"},
        {APP "pools: [jobs]\n", 2, "pools: a mapping of names belongs here, not a list"},
        {APP "log: json\n", 2, "log: keys belong below it, not a value"},
        {APP "run_dir:\nstate_dir: /x\n", 2, "run_dir: has no value"},
        {APP "run_dir: ~\n", 2, "run_dir: has no value"},
        {APP "run_dir: null\n", 2, "run_dir: has no value"},
        {APP "run_dir: \"\"\n", 2, "run_dir: is empty"},
        {APP "pools: { Jobs: {} }\n", 2, "pools.Jobs: a name is made of a-z"},
        {APP "pools: { -x: {} }\n", 2, "pools.-x: a name is made of a-z"},
        {APP "pools: { a: {}, b: {}, c: {}, d: {}, e: {} }\n", 2,
         "pools.e: one agent has at most 4 pools"},
        {"apps:\n  a: { path: /app }\n  b: { path: /app }\n  c: { path: /app }\n  d: { path: /app "
         "}\n  e: { path: /app }\n",
         6, "apps.e: one agent has at most 4 apps"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_refusal(&rows[i], false);
    }
}

static void keys_that_do_not_fit_each_other_are_refused(void **state)
{
    static const struct refusal rows[] = {
        {APP "pools:\n  jobs: { app: shoe }\n", 3, "pools.jobs.app: no app is named \"shoe\""},
    };
    struct co_config config;
    struct co_err err = {0};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_refusal(&rows[i], true);
    }
    assert_int_equal(parse(&config, "apps: { a: { path: /a }, b: { path: /b } }\n", &err), 0);
    assert_int_equal(co_config_finish(&config, true, NULL, NULL, NULL, &err), CO_ECONFIG);
    assert_string_equal(err.msg,
                        "/etc/cohort.yaml: several apps and no pool: write pools: { jobs: { app: a "
                        "} }");
    assert_int_equal(parse(&config, "apps: { a: { env_file: /a } }\n", &err), 0);
    assert_int_equal(co_config_finish(&config, true, NULL, NULL, NULL, &err), CO_ECONFIG);
    assert_string_equal(
        err.msg, "/etc/cohort.yaml: apps.a.path: missing: write the application's directory");
    assert_int_equal(parse(&config, "run_dir: /a\n", &err), 0);
    assert_int_equal(co_config_finish(&config, true, NULL, NULL, NULL, &err), CO_ECONFIG);
    assert_non_null(strstr(err.msg, "/etc/cohort.yaml: no application"));
}

static void hostile_files_end_early(void **state)
{
    size_t size = (1 << 20) + 1;
    char *text = malloc(size);
    struct co_config config;
    struct co_err err = {0};
    (void)state;
    co_config_init(&config);
    memset(text, ' ', size);
    assert_int_equal(co_config_parse_yaml(&config, "f", text, size, &err), CO_ECONFIG);
    assert_string_equal(err.msg, "f:1: larger than 1 MiB: is this the right file?");
    memset(text, '[', size);
    assert_int_equal(co_config_parse_yaml(&config, "f", text, size - 1, &err), CO_ECONFIG);
    memset(text, '{', size);
    assert_int_equal(co_config_parse_yaml(&config, "f", text, size - 1, &err), CO_ECONFIG);
    memset(text, 'a', size);
    assert_int_equal(co_config_parse_yaml(&config, "f", text, size - 1, &err), CO_ECONFIG);
    for (size_t i = 0; i + 4 < size; i += 4) {
        memcpy(text + i, "a:\n ", 4);
    }
    assert_int_equal(co_config_parse_yaml(&config, "f", text, size - 1, &err), CO_ECONFIG);
    free(text);
}

static void files_are_read_from_disk(void **state)
{
    char name[] = "test_config_XXXXXX";
    struct co_config config;
    struct co_config_value value;
    struct co_err err = {0};
    int fd = mkstemp(name);
    (void)state;
    co_config_init(&config);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, APP, sizeof APP - 1), sizeof APP - 1);
    close(fd);
    assert_int_equal(co_config_read_yaml(&config, name, &err), 0);
    assert_string_equal(config.file, name);
    for (size_t n = 0; co_config_value(&config, n, &value); n++) {
        if (strcmp(value.key, "apps.shop.path") == 0) {
            assert_int_equal(value.origin.from, CO_FROM_FILE);
            assert_int_equal(value.origin.line, 1);
        }
    }
    unlink(name);
    assert_int_equal(co_config_read_yaml(&config, name, &err), CO_EIO);
    assert_non_null(strstr(err.msg, "read configuration test_config_"));
    assert_non_null(strstr(err.msg, "No such file"));
    assert_int_equal(co_config_read_yaml(&config, "/", &err), CO_EIO);
    assert_int_equal(co_config_read_yaml(&config, "/dev/zero", &err), CO_ECONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(small_files_are_enough),
        cmocka_unit_test(what_is_no_single_plain_document_is_refused),
        cmocka_unit_test(unknown_and_repeated_keys_are_refused),
        cmocka_unit_test(what_comes_later_is_refused_by_name),
        cmocka_unit_test(values_of_the_wrong_kind_are_refused),
        cmocka_unit_test(keys_that_do_not_fit_each_other_are_refused),
        cmocka_unit_test(hostile_files_end_early),
        cmocka_unit_test(files_are_read_from_disk),
    };
    return cmocka_run_group_tests_name("config_yaml", tests, NULL, NULL);
}
