#include "proto/config.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "proto/config_keys.h"

#define SOCKET_PATH_MAX 107 /* What a Unix socket's address holds. */

const struct co_config_variable co_config_variables[] = {
    {"COHORT_HTTP", "admin.http"},
    {"COHORT_CONTROL", "admin.control"},
    {"COHORT_RUN_DIR", "run_dir"},
    {"COHORT_STATE_DIR", "state_dir"},
    {"COHORT_DRAIN_DEADLINE", "drain_deadline"},
    {"COHORT_FLEET_NAME", "fleet.name"},
    {"COHORT_FLEET_EXPECTED", "fleet.expected"},
    {"COHORT_FLEET_SECRET_FILE", "fleet.secret_file"},
    {"COHORT_FLEET_JOIN", "fleet.join"},
    {"COHORT_FLEET_ADVERTISE", "fleet.advertise"},
    {"COHORT_FLEET_LISTEN", "fleet.listen"},
    {"COHORT_LOG_FORMAT", "log.format"},
    {"COHORT_LOG_LEVEL", "log.level"},
    {NULL, NULL},
};

const char *co_config_from_name(enum co_config_from from)
{
    static const char *const names[] = {
        [CO_FROM_DEFAULT] = "default", [CO_FROM_FILE] = "file",       [CO_FROM_ENV] = "environment",
        [CO_FROM_FLAG] = "flag",       [CO_FROM_DERIVED] = "derived",
    };

    assert((unsigned)from < sizeof names / sizeof names[0]);
    return names[from];
}

void co_config_init(struct co_config *config)
{
    memset(config, 0, sizeof *config);
    snprintf(config->http, sizeof config->http, "127.0.0.1:9090");
    config->log_level = CO_LOG_INFO;
    config->pool_template = (struct co_pool_config){
        .workers = CO_WORKERS_AUTO,
        .claim = CO_CLAIM_AUTO,
        .max_payload_bytes = UINT64_C(64) << 20,
        .kill_grace = 5000,
        .job = {.timeout = 60000,
                .tries = 1,
                .backoff = "0",
                .memory_bytes = UINT64_C(128) << 20,
                .on_lost = CO_ON_LOST_RETRY},
    };
}

int co_config_set(struct co_config *config, const char *key, const char *value, struct co_err *err)
{
    return co_config_keys_set(config, key, value, CO_FROM_ENV, err);
}

int co_config_set_flag(struct co_config *config, const char *key, const char *value,
                       struct co_err *err)
{
    return co_config_keys_set(config, key, value, CO_FROM_FLAG, err);
}

/* ---- an application by its directory alone ---- */

/* Name an app after the last step of its path: /srv/My.Shop/ is my-shop. */
static void name_after(const char *dir, char name[CO_NAME_SIZE])
{
    size_t end = strlen(dir);
    size_t begin;
    size_t used = 0;

    while (end > 0 && dir[end - 1] == '/') {
        end--;
    }
    for (begin = end; begin > 0 && dir[begin - 1] != '/'; begin--) {
    }
    for (size_t i = begin; i < end && used < CO_NAME_SIZE - 1; i++) {
        char c = dir[i] >= 'A' && dir[i] <= 'Z' ? (char)(dir[i] - 'A' + 'a') : dir[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
        if (plain || (used > 0 && name[used - 1] != '-')) {
            name[used++] = plain ? c : '-';
        }
    }
    while (used > 0 && name[used - 1] == '-') {
        used--;
    }
    name[used] = '\0';
    if (!co_config_keys_name_ok(name)) {
        snprintf(name, CO_NAME_SIZE, "app");
    }
}

static void set_origin(struct co_config *config, const char *scope, const char *name,
                       uint32_t instance, enum co_config_from from)
{
    *co_config_keys_origin(config, scope, name, instance) = (struct co_config_origin){.from = from};
}

/* A pool named "jobs" that runs the app of that index. */
static int add_jobs(struct co_config *config, uint32_t app, struct co_err *err)
{
    uint32_t pool = config->n_pools;
    int code = co_config_keys_enter(config, "pools.jobs", err);

    if (code == 0) {
        assert(pool < config->n_pools);
        memcpy(config->pools[pool].app, config->apps[app].name, CO_NAME_SIZE);
        set_origin(config, "pools", "app", pool, CO_FROM_DERIVED);
    }
    return code;
}

int co_config_add_app(struct co_config *config, const char *dir, struct co_err *err)
{
    struct co_config_origin flag = {.from = CO_FROM_FLAG};
    char name[CO_NAME_SIZE];
    char path[CO_NAME_SIZE + 32];
    uint32_t n = config->n_apps;
    int code;

    if (n == CO_APPS_MAX) {
        return co_err_set(err, CO_EFULL, "app %.200s: one agent has at most %d apps", dir,
                          CO_APPS_MAX);
    }
    name_after(dir, name);
    snprintf(path, sizeof path, "apps.%s", name);
    code = co_config_keys_enter(config, path, err);
    if (code < 0) {
        return code;
    }
    if (config->n_apps == n) {
        return co_err_set(err, CO_ECONFIG,
                          "app %.200s: an app named \"%s\" is there already; give both a name "
                          "in a configuration file",
                          dir, name);
    }
    snprintf(path, sizeof path, "apps.%s.path", name);
    code = co_config_keys_assign(config, path, dir, flag, err);
    return code < 0 || config->n_pools > 0 ? code : add_jobs(config, n, err);
}

/* ---- completing ---- */

/* An error about a value, with the place it was written at. */
static int refuse(struct co_config *config, const char *scope, uint32_t instance, const char *name,
                  struct co_err *err, const char *what)
{
    const struct co_config_origin *origin = co_config_keys_origin(config, scope, name, instance);
    const char *of = strcmp(scope, "apps") == 0    ? config->apps[instance].name
                     : strcmp(scope, "pools") == 0 ? config->pools[instance].name
                                                   : "";
    char place[256] = "";

    if (origin->from == CO_FROM_FILE) {
        snprintf(place, sizeof place, "%.200s:%u: ", config->file, origin->line);
    } else if (config->file[0] != '\0') {
        snprintf(place, sizeof place, "%.200s: ", config->file);
    }
    return co_err_set(err, CO_ECONFIG, "%s%s%s%s%s%s: %s", place, scope, *scope == '\0' ? "" : ".",
                      of, *of == '\0' ? "" : ".", name, what);
}

static int finish_apps(struct co_config *config, struct co_err *err)
{
    if (config->n_apps == 0) {
        return co_err_set(err, CO_ECONFIG,
                          "%.200s%sno application: give --app DIR, or write apps: { shop: { path: "
                          "/app } } in a configuration file",
                          config->file, config->file[0] == '\0' ? "" : ": ");
    }
    for (uint32_t i = 0; i < config->n_apps; i++) {
        if (config->apps[i].path[0] == '\0') {
            return refuse(config, "apps", i, "path", err,
                          "missing: write the application's directory");
        }
    }
    return 0;
}

static bool has_app(const struct co_config *config, const char *name)
{
    for (uint32_t i = 0; i < config->n_apps; i++) {
        if (strcmp(config->apps[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static int finish_pool(struct co_config *config, uint32_t i, struct co_err *err)
{
    struct co_pool_config *pool = &config->pools[i];
    char what[200];

    if (pool->app[0] == '\0' && config->n_apps > 1) {
        return refuse(config, "pools", i, "app", err,
                      "missing: with several apps each pool says which it runs");
    }
    if (pool->app[0] == '\0') {
        memcpy(pool->app, config->apps[0].name, sizeof pool->app);
        set_origin(config, "pools", "app", i, CO_FROM_DERIVED);
    }
    if (!has_app(config, pool->app)) {
        snprintf(what, sizeof what, "no app is named \"%s\": write one of those under apps",
                 pool->app);
        return refuse(config, "pools", i, "app", err, what);
    }
    return 0;
}

static int finish_pools(struct co_config *config, struct co_err *err)
{
    int code = 0;

    if (config->n_pools == 0 && config->n_apps > 1) {
        return co_err_set(err, CO_ECONFIG,
                          "%.200s: several apps and no pool: write pools: { jobs: { app: %s } }",
                          config->file, config->apps[0].name);
    }
    if (config->n_pools == 0) {
        code = add_jobs(config, 0, err);
    }
    for (uint32_t i = 0; code == 0 && i < config->n_pools; i++) {
        code = finish_pool(config, i, err);
    }
    return code;
}

/* The first of the places that is known: XDG directories that are not absolute are to be ignored.
 */
static int choose_dir(char *dir, const char *xdg, const char *home, const char *below_home,
                      const char *key, struct co_err *err)
{
    int n;

    if (xdg != NULL && xdg[0] == '/') {
        n = snprintf(dir, CO_PATH_SIZE, "%s/cohort", xdg);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(dir, CO_PATH_SIZE, "%s/%s", home, below_home);
    } else {
        return co_err_set(
            err, CO_ECONFIG,
            "%s: neither the XDG directories nor HOME are set, so there is no default: "
            "set it in the configuration file or by COHORT_%s",
            key, strcmp(key, "run_dir") == 0 ? "RUN_DIR" : "STATE_DIR");
    }
    return n < CO_PATH_SIZE ? 0 : co_err_set(err, CO_ECONFIG, "%s: the default is too long", key);
}

static int finish_dirs(struct co_config *config, bool is_root, const char *runtime_dir,
                       const char *state_home, const char *home, struct co_err *err)
{
    int code = 0;

    if (config->run_dir[0] == '\0') {
        set_origin(config, "", "run_dir", 0, CO_FROM_DERIVED);
        if (is_root) {
            snprintf(config->run_dir, sizeof config->run_dir, "/run/cohort");
        } else {
            code = choose_dir(config->run_dir, runtime_dir, home, ".cohort/run", "run_dir", err);
        }
    }
    if (code == 0 && config->state_dir[0] == '\0') {
        set_origin(config, "", "state_dir", 0, CO_FROM_DERIVED);
        if (is_root) {
            snprintf(config->state_dir, sizeof config->state_dir, "/var/lib/cohort");
        } else {
            code = choose_dir(config->state_dir, state_home, home, ".local/state/cohort",
                              "state_dir", err);
        }
    }
    return code;
}

static int finish_control(struct co_config *config, struct co_err *err)
{
    char what[160];
    size_t size;

    if (config->control[0] == '\0') {
        char path[CO_PATH_SIZE + 16];
        snprintf(path, sizeof path, "%s/control.sock", config->run_dir);
        size = strlen(path);
        if (size <= SOCKET_PATH_MAX) {
            memcpy(config->control, path, size + 1);
        }
        set_origin(config, "", "admin.control", 0, CO_FROM_DERIVED);
    } else {
        size = strlen(config->control);
    }
    if (size > SOCKET_PATH_MAX) {
        snprintf(
            what, sizeof what,
            "the path of the socket has %zu bytes, the system allows %d: choose a shorter one, "
            "or a shorter run_dir",
            size, SOCKET_PATH_MAX);
        return refuse(config, "", 0, "admin.control", err, what);
    }
    return 0;
}

/* The fleet's name is in its keys and in every message; without one there is no fleet. */
static int finish_fleet(struct co_config *config, struct co_err *err)
{
    struct co_fleet_config *fleet = &config->fleet;
    bool any = fleet->expected > 0 || fleet->secret_file[0] != '\0' || fleet->join[0] != '\0' ||
               fleet->advertise[0] != '\0' || fleet->listen[0] != '\0';

    if (fleet->name[0] == '\0') {
        return !any ? 0
                    : co_err_set(err, CO_ECONFIG,
                                 "fleet.name: a fleet needs a name, the same on all its agents: "
                                 "shop-production");
    }
    if (!co_config_keys_name_ok(fleet->name)) {
        return co_err_set(err, CO_ECONFIG,
                          "fleet.name: \"%.60s\": a name is made of a-z, 0-9, _ and -",
                          fleet->name);
    }
    if (fleet->listen[0] == '\0') {
        snprintf(fleet->listen, sizeof fleet->listen, "%s",
                 fleet->secret_file[0] != '\0' ? "0.0.0.0:7946" : "127.0.0.1:7946");
        co_config_keys_origin(config, "", "fleet.listen", 0)->from = CO_FROM_DERIVED;
    }
    return 0;
}

int co_config_finish(struct co_config *config, bool is_root, const char *runtime_dir,
                     const char *state_home, const char *home, struct co_err *err)
{
    int code = finish_apps(config, err);

    code = code < 0 ? code : finish_pools(config, err);
    code = code < 0 ? code : finish_fleet(config, err);
    code = code < 0 ? code : finish_dirs(config, is_root, runtime_dir, state_home, home, err);
    return code < 0 ? code : finish_control(config, err);
}
