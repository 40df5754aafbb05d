#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "proto/config.h"

#define COUNT_OF(table) (sizeof(table) / sizeof(table)[0])

static const char *value_of(const struct co_config *config, const char *key,
                            struct co_config_value *value)
{
    for (size_t n = 0; co_config_value(config, n, value); n++) {
        if (strcmp(value->key, key) == 0) {
            return value->text;
        }
    }
    fail_msg("no key %s", key);
    return NULL;
}

static void a_bare_app_is_enough(void **state)
{
    static const struct {
        const char *dir;
        const char *name;
    } rows[] = {
        {"/srv/shop", "shop"}, {"/srv/My.Shop/", "my-shop"}, {"/", "app"},
        {"/srv/...", "app"},   {"/srv/\xc3\xa4", "app"},     {"/srv/_x", "app"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct co_config config;
        struct co_err err = {0};
        co_config_init(&config);
        assert_int_equal(co_config_add_app(&config, rows[i].dir, &err), 0);
        assert_int_equal(co_config_finish(&config, true, NULL, NULL, NULL, &err), 0);
        assert_string_equal(config.apps[0].name, rows[i].name);
        assert_string_equal(config.apps[0].path, rows[i].dir);
        assert_int_equal(config.n_pools, 1);
        assert_string_equal(config.pools[0].name, "jobs");
        assert_string_equal(config.pools[0].app, rows[i].name);
        assert_int_equal(config.pools[0].job.timeout, 60000);
        assert_int_equal(config.pools[0].job.tries, 1);
        assert_string_equal(config.pools[0].job.backoff, "0");
        assert_string_equal(config.http, "127.0.0.1:9090");
        assert_string_equal(config.run_dir, "/run/cohort");
        assert_string_equal(config.state_dir, "/var/lib/cohort");
        assert_string_equal(config.control, "/run/cohort/control.sock");
    }
}

static void directories_are_the_users_own(void **state)
{
    static const struct {
        const char *runtime;
        const char *state;
        const char *home;
        const char *run_dir; /* NULL: refused. */
        const char *state_dir;
    } rows[] = {
        {"/run/user/5", "/s", "/home/x", "/run/user/5/cohort", "/s/cohort"},
        {NULL, NULL, "/home/x", "/home/x/.cohort/run", "/home/x/.local/state/cohort"},
        {"rel", "rel", "/home/x", "/home/x/.cohort/run", "/home/x/.local/state/cohort"},
        {"/run/user/5", NULL, NULL, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
        {NULL, NULL, "", NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct co_config config;
        struct co_err err = {0};
        int code;
        co_config_init(&config);
        assert_int_equal(co_config_add_app(&config, "/srv/shop", &err), 0);
        code = co_config_finish(&config, false, rows[i].runtime, rows[i].state, rows[i].home, &err);
        assert_int_equal(code, rows[i].run_dir == NULL ? CO_ECONFIG : 0);
        if (rows[i].run_dir != NULL) {
            assert_string_equal(config.run_dir, rows[i].run_dir);
            assert_string_equal(config.state_dir, rows[i].state_dir);
        } else {
            assert_non_null(strstr(err.msg, "by COHORT_"));
        }
    }
}

static void a_socket_path_the_system_cannot_hold_is_refused(void **state)
{
    char dir[] =
        "/run/0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/0123456";
    struct co_config config;
    struct co_err err = {0};
    (void)state;
    co_config_init(&config);
    assert_int_equal(co_config_add_app(&config, "/srv/shop", &err), 0);
    assert_int_equal(co_config_set(&config, "run_dir", dir, &err), 0);
    assert_int_equal(co_config_finish(&config, true, NULL, NULL, NULL, &err), 0);
    config.control[0] = '\0';
    strcpy(config.run_dir + strlen(dir), "890123456789");
    assert_int_equal(co_config_finish(&config, true, NULL, NULL, NULL, &err), CO_ECONFIG);
    assert_non_null(strstr(err.msg, "admin.control: the path of the socket"));
}

static void apps_have_their_own_names_and_their_limit(void **state)
{
    struct co_config config;
    struct co_err err = {0};
    (void)state;
    co_config_init(&config);
    assert_int_equal(co_config_finish(&config, true, NULL, NULL, NULL, &err), CO_ECONFIG);
    assert_non_null(strstr(err.msg, "no application: give --app DIR"));
    assert_int_equal(co_config_add_app(&config, "/a/shop", &err), 0);
    assert_int_equal(co_config_add_app(&config, "/b/shop", &err), CO_ECONFIG);
    assert_int_equal(co_config_add_app(&config, "/b/two", &err), 0);
    assert_int_equal(co_config_add_app(&config, "/b/three", &err), 0);
    assert_int_equal(co_config_add_app(&config, "/b/four", &err), 0);
    assert_int_equal(co_config_add_app(&config, "/b/five", &err), CO_EFULL);
    assert_int_equal(config.n_apps, 4);
    assert_int_equal(config.n_pools, 1);
}

static void environment_and_flags_override_every_pool(void **state)
{
    struct co_config config;
    struct co_config_value value;
    struct co_err err = {0};
    (void)state;
    co_config_init(&config);
    /* Before the pool is there as well as after it. */
    assert_int_equal(co_config_set(&config, "pool.workers", "3", &err), 0);
    assert_int_equal(co_config_add_app(&config, "/srv/shop", &err), 0);
    assert_int_equal(co_config_set_flag(&config, "job.timeout", "90", &err), 0);
    assert_int_equal(co_config_set_flag(&config, "job.backoff", "1,5,10", &err), 0);
    assert_int_equal(co_config_set_flag(&config, "job.memory", "256", &err), 0);
    assert_int_equal(co_config_set_flag(&config, "job.tries", "0", &err), 0);
    assert_int_equal(co_config_set_flag(&config, "pool.queue", "high,default", &err), 0);
    assert_int_equal(co_config_set_flag(&config, "pool.force", "true", &err), 0);
    assert_int_equal(co_config_set_flag(&config, "pool.kill_grace", "250ms", &err), 0);
    assert_int_equal(co_config_set_flag(&config, "libphp", "/usr/lib/libphp.so", &err), 0);
    assert_int_equal(co_config_finish(&config, true, NULL, NULL, NULL, &err), 0);
    assert_int_equal(config.pools[0].workers, 3);
    assert_int_equal(config.pools[0].job.timeout, 90000);
    assert_string_equal(config.pools[0].job.backoff, "1,5,10");
    assert_int_equal(config.pools[0].job.memory_bytes, 256 << 20);
    assert_int_equal(config.pools[0].job.tries, 0);
    assert_int_equal(config.pools[0].kill_grace, 250);
    assert_true(config.pools[0].force);
    assert_string_equal(value_of(&config, "pools.jobs.workers", &value), "3");
    assert_int_equal(value.origin.from, CO_FROM_ENV);
    assert_string_equal(value_of(&config, "pools.jobs.job.timeout", &value), "90s");
    assert_int_equal(value.origin.from, CO_FROM_FLAG);
    assert_string_equal(value_of(&config, "pools.jobs.job.backoff", &value), "1s,5s,10s");
    assert_string_equal(value_of(&config, "pools.jobs.claim", &value), "auto");
    assert_int_equal(value.origin.from, CO_FROM_DEFAULT);
    assert_string_equal(value_of(&config, "pools.jobs.app", &value), "shop");
    assert_int_equal(value.origin.from, CO_FROM_DERIVED);
}

static void bad_values_are_refused_by_their_key(void **state)
{
    static const struct {
        const char *key;
        const char *value;
        const char *message;
        const char *flag_message; /* NULL: a flag may say it. */
    } rows[] = {
        {"job.timeout", "60", "job.timeout: \"60\" has no unit: write 60s", NULL},
        {"job.timeout", "1500ms", "job.timeout: \"1500ms\" is no whole number of seconds",
         "job.timeout: \"1500ms\" is no whole"},
        {"job.timeout", "400d", "job.timeout: \"400d\" is too large: the most is 8760h",
         "job.timeout: \"400d\" is too large"},
        {"job.backoff", "3", "job.backoff: \"3\" has no unit", NULL},
        {"job.backoff", "1s,,5s", "job.backoff: is empty", "job.backoff: is empty"},
        {"job.backoff", "1s 5s", "job.backoff: \"1s 5s\" is no list",
         "job.backoff: \"1s 5s\" is no"},
        {"job.memory", "128", "job.memory: \"128\" has no unit: write 128Mi", NULL},
        {"job.tries", "010", "job.tries: \"010\" begins with a zero", "job.tries: \"010\" begins"},
        {"job.on_lost", "drop", "job.on_lost: \"drop\" is not known here: write one of retry, fail",
         "job.on_lost"},
        {"pool.workers", "0", "pool.workers: \"0\" is too small: write 1 to 512, or auto",
         "pool.workers"},
        {"pool.workers", "513", "pool.workers: \"513\" is too large: the most is 512",
         "pool.workers"},
        {"pool.claim", "5s", "pool.claim: \"5s\" is no whole number", "pool.claim"},
        {"pool.force", "no", "pool.force: \"no\" is neither true nor false: write false",
         "pool.force"},
        {"pool.queue", "high, default", "pool.queue: \"high, default\" has a space", "pool.queue"},
        {"pool.queue", "high,,low", "pool.queue: \"high,,low\" has an empty entry", "pool.queue"},
        {"pool.queue", "", "pool.queue: is empty", "pool.queue"},
        {"pool.max_payload", "65Mi", "pool.max_payload: \"65Mi\" is too large: the most is 64Mi",
         "pool.max_payload"},
        {"admin.http", "9090", "admin.http: \"9090\" is no address", "admin.http"},
        {"admin.http", "127.0.0.1:http", "admin.http: \"127.0.0.1:http\" has no port",
         "admin.http"},
        {"admin.http", "127.0.0.1:65536", "admin.http: \"127.0.0.1:65536\" has no port",
         "admin.http"},
        {"admin.http", "::1:9090", "admin.http: \"::1:9090\" is no address", "admin.http"},
        {"run_dir", "~/run", "run_dir: \"~/run\" begins with ~", "run_dir"},
        {"run_dir", "/a\nb", "run_dir: holds a line break", "run_dir"},
        {"log.level", "warning", "log.level: \"warning\" is not known here", "log.level"},
        {"pool.mode", "worker", "pool.mode: \"worker\" is not supported: HTTP pools", "pool.mode"},
        {"pool.name", "x", "pool.name: no such key", "pool.name: no such key"},
        {"fleet.nome", "x", "fleet.nome: no such key", "fleet.nome: no such key"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct co_config config;
        struct co_err err = {0};
        co_config_init(&config);
        assert_int_equal(co_config_set(&config, rows[i].key, rows[i].value, &err), CO_ECONFIG);
        if (strncmp(err.msg, rows[i].message, strlen(rows[i].message)) != 0) {
            fail_msg("%s", err.msg);
        }
        err.msg[0] = '\0';
        assert_int_equal(co_config_set_flag(&config, rows[i].key, rows[i].value, &err),
                         rows[i].flag_message == NULL ? 0 : CO_ECONFIG);
        if (rows[i].flag_message != NULL &&
            strncmp(err.msg, rows[i].flag_message, strlen(rows[i].flag_message)) != 0) {
            fail_msg("%s", err.msg);
        }
    }
}

static void addresses_are_taken(void **state)
{
    static const char *const rows[] = {"off", "0.0.0.0:9090", "[::1]:9090", "localhost:0"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct co_config config;
        co_config_init(&config);
        assert_int_equal(co_config_set(&config, "admin.http", rows[i], NULL), 0);
        assert_string_equal(config.http, rows[i]);
    }
}

static void every_environment_variable_is_a_key(void **state)
{
    (void)state;
    for (const struct co_config_variable *v = co_config_variables; v->variable != NULL; v++) {
        struct co_config config;
        struct co_err err = {0};
        co_config_init(&config);
        (void)co_config_set(&config, v->key, "", &err);
        assert_null(strstr(err.msg, "no such key"));
    }
}

static void json_has_every_value_with_its_origin(void **state)
{
    struct co_config config;
    char *json;
    (void)state;
    co_config_init(&config);
    assert_int_equal(co_config_add_app(&config, "/srv/shop", NULL), 0);
    assert_int_equal(co_config_finish(&config, true, NULL, NULL, NULL, NULL), 0);
    json = co_config_to_json(&config);
    assert_non_null(json);
    assert_memory_equal(json, "{\"schema\":1,\"file\":\"\",\"values\":{", 32);
    assert_non_null(
        strstr(json, "\"apps.shop.path\":{\"value\":\"/srv/shop\",\"origin\":\"flag\"}"));
    assert_non_null(
        strstr(json, "\"pools.jobs.job.memory\":{\"value\":\"128Mi\",\"origin\":\"default\"}"));
    assert_non_null(strstr(json, "\"run_dir\":{\"value\":\"/run/cohort\",\"origin\":\"derived\"}"));
    assert_null(strstr(json, "connection.table")); /* Of no concern without a connection. */
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bare_app_is_enough),
        cmocka_unit_test(directories_are_the_users_own),
        cmocka_unit_test(a_socket_path_the_system_cannot_hold_is_refused),
        cmocka_unit_test(apps_have_their_own_names_and_their_limit),
        cmocka_unit_test(environment_and_flags_override_every_pool),
        cmocka_unit_test(bad_values_are_refused_by_their_key),
        cmocka_unit_test(addresses_are_taken),
        cmocka_unit_test(every_environment_variable_is_a_key),
        cmocka_unit_test(json_has_every_value_with_its_origin),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
