#include "proto/config_keys.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "proto/config_types.h"

enum scope {
    SCOPE_TOP,
    SCOPE_APP,
    SCOPE_POOL,
};

struct key {
    const char *name; /* Below the app or pool. */
    enum scope scope;
    bool flag_only; /* Not in a file: it belongs to an installation, not to a service. */
    bool list;      /* A file may write a list. */
    size_t offset;
    struct co_config_type type;
};

#define TYPE(kind, ...)                                                        \
    {                                                                          \
        co_config_types_read_##kind, co_config_types_write_##kind, __VA_ARGS__ \
    }
#define IN(structure, field) offsetof(struct structure, field)
#define SIZE(structure, field) .size = sizeof(((struct structure *)NULL)->field)

static const char *const formats[] = {"auto", "text", "json", NULL};
static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const on_lost[] = {"retry", "fail", NULL};
static const char *const drivers[] = {"sqlite", NULL};
static const char *const drivers_later[] = {"redis", "mysql", "pgsql", "database", "sync", NULL};
static const char *const modes[] = {"job", NULL};
static const char *const modes_later[] = {"worker", "per_request", NULL};
static const char *const boots[] = {"preload", "after_fork", "spawn", NULL};

/* Keys that share a prefix stand together. */
static const struct key keys[] = {
    {"admin.http", SCOPE_TOP, 0, 0, IN(co_config, http), TYPE(http, SIZE(co_config, http))},
    {"admin.control", SCOPE_TOP, 0, 0, IN(co_config, control),
     TYPE(path, SIZE(co_config, control))},
    {"run_dir", SCOPE_TOP, 0, 0, IN(co_config, run_dir), TYPE(path, SIZE(co_config, run_dir))},
    {"state_dir", SCOPE_TOP, 0, 0, IN(co_config, state_dir),
     TYPE(path, SIZE(co_config, state_dir))},
    {"drain_deadline", SCOPE_TOP, 0, 0, IN(co_config, drain_deadline), TYPE(ms, .min = 0)},
    {"log.format", SCOPE_TOP, 0, 0, IN(co_config, log_format), TYPE(word, .words = formats)},
    {"log.level", SCOPE_TOP, 0, 0, IN(co_config, log_level), TYPE(word, .words = levels)},
    {"fleet.name", SCOPE_TOP, 0, 0, IN(co_config, fleet.name),
     TYPE(text, SIZE(co_config, fleet.name))},
    {"fleet.expected", SCOPE_TOP, 0, 0, IN(co_config, fleet.expected), TYPE(count, .max = 256)},
    {"fleet.secret_file", SCOPE_TOP, 0, 0, IN(co_config, fleet.secret_file),
     TYPE(path, SIZE(co_config, fleet.secret_file))},
    {"fleet.join", SCOPE_TOP, 0, 1, IN(co_config, fleet.join),
     TYPE(queue, SIZE(co_config, fleet.join))},
    {"fleet.advertise", SCOPE_TOP, 0, 0, IN(co_config, fleet.advertise),
     TYPE(text, SIZE(co_config, fleet.advertise))},
    {"fleet.listen", SCOPE_TOP, 0, 0, IN(co_config, fleet.listen),
     TYPE(text, SIZE(co_config, fleet.listen))},
    {"worker_bin", SCOPE_TOP, 1, 0, IN(co_config, worker_bin),
     TYPE(path, SIZE(co_config, worker_bin))},
    {"php_dir", SCOPE_TOP, 1, 0, IN(co_config, php_dir), TYPE(path, SIZE(co_config, php_dir))},
    {"libphp", SCOPE_TOP, 1, 0, IN(co_config, libphp), TYPE(path, SIZE(co_config, libphp))},
    {"path", SCOPE_APP, 0, 0, IN(co_app_config, path), TYPE(path, SIZE(co_app_config, path))},
    {"env_file", SCOPE_APP, 0, 0, IN(co_app_config, env_file),
     TYPE(path, SIZE(co_app_config, env_file))},
    {"connection.driver", SCOPE_APP, 0, 0, 0,
     TYPE(fixed, .words = drivers, .later = drivers_later,
          .later_why = "plain PHP applications queue in SQLite alone; write sqlite (a Laravel "
                       "application's connections come from its own configuration: remove "
                       "connection)")},
    {"connection.database", SCOPE_APP, 0, 0, IN(co_app_config, connection.database),
     TYPE(path, SIZE(co_app_config, connection.database))},
    {"connection.table", SCOPE_APP, 0, 0, IN(co_app_config, connection.table),
     TYPE(text, SIZE(co_app_config, connection.table))},
    {"connection.retry_after", SCOPE_APP, 0, 0, IN(co_app_config, connection.retry_after),
     TYPE(seconds, .min = 1000)},
    {"app", SCOPE_POOL, 0, 0, IN(co_pool_config, app), TYPE(text, SIZE(co_pool_config, app))},
    {"mode", SCOPE_POOL, 0, 0, 0,
     TYPE(fixed, .words = modes, .later = modes_later,
          .later_why = "HTTP pools come with a later version; write job")},
    {"boot", SCOPE_POOL, 0, 0, IN(co_pool_config, boot), TYPE(word, .words = boots)},
    {"queue", SCOPE_POOL, 0, 0, IN(co_pool_config, queue),
     TYPE(queue, SIZE(co_pool_config, queue))},
    {"connection", SCOPE_POOL, 0, 0, IN(co_pool_config, connection),
     TYPE(text, SIZE(co_pool_config, connection))},
    {"workers", SCOPE_POOL, 0, 0, IN(co_pool_config, workers),
     TYPE(count, .min = 1, .max = CO_WORKERS_MAX, .zero_word = "auto")},
    {"claim", SCOPE_POOL, 0, 0, IN(co_pool_config, claim),
     TYPE(count, .min = 1, .max = 10000, .zero_word = "auto")},
    {"memory", SCOPE_POOL, 0, 0, IN(co_pool_config, memory_bytes), TYPE(bytes, .min = 0)},
    {"max_payload", SCOPE_POOL, 0, 0, IN(co_pool_config, max_payload_bytes),
     TYPE(bytes, .min = 1, .max = 64 << 20)},
    {"kill_grace", SCOPE_POOL, 0, 0, IN(co_pool_config, kill_grace), TYPE(ms, .min = 0)},
    {"max_jobs", SCOPE_POOL, 0, 0, IN(co_pool_config, max_jobs), TYPE(count, .max = 1000000000)},
    {"max_time", SCOPE_POOL, 0, 0, IN(co_pool_config, max_time), TYPE(ms, .min = 0)},
    {"slow", SCOPE_POOL, 0, 0, IN(co_pool_config, slow), TYPE(ms, .min = 0)},
    {"force", SCOPE_POOL, 0, 0, IN(co_pool_config, force), TYPE(flag, .min = 0)},
    {"job.timeout", SCOPE_POOL, 0, 0, IN(co_pool_config, job.timeout), TYPE(seconds, .min = 0)},
    {"job.tries", SCOPE_POOL, 0, 0, IN(co_pool_config, job.tries), TYPE(count, .max = 1000000)},
    {"job.backoff", SCOPE_POOL, 0, 1, IN(co_pool_config, job.backoff),
     TYPE(backoff, SIZE(co_pool_config, job.backoff))},
    {"job.memory", SCOPE_POOL, 0, 0, IN(co_pool_config, job.memory_bytes), TYPE(bytes, .min = 0)},
    {"job.on_lost", SCOPE_POOL, 0, 0, IN(co_pool_config, job.on_lost),
     TYPE(word, .words = on_lost)},
};
#define N_KEYS (sizeof keys / sizeof keys[0])
_Static_assert(N_KEYS <= CO_CONFIG_KEYS_MAX, "struct co_config has an origin for each key");

/* Known and refused, so that nobody believes they do something. */
static const struct {
    const char *name;
    enum scope scope;
    const char *why;
} refused[] = {
    {"policies", SCOPE_TOP,
     "policies come with a later version: set queue, workers and job of the pool instead, and "
     "remove the key"},
    {"max_requests", SCOPE_POOL, "HTTP pools come with a later version; remove the key"},
    {"admission", SCOPE_POOL, "HTTP pools come with a later version; remove the key"},
    {"shed_after", SCOPE_POOL, "HTTP pools come with a later version; remove the key"},
};

/* ---- where a path points ---- */

struct place {
    enum scope scope;
    uint32_t instance;
    const char *rest; /* What remains of the path below it; "" for the app or pool itself. */
    bool group;       /* "apps" or "pools" itself. */
};

bool co_config_keys_name_ok(const char *name)
{
    size_t size = strlen(name);

    return size > 0 && size < CO_NAME_SIZE && name[0] != '-' && name[0] != '_' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == size;
}

/* The index of a named app or pool, or its number of them when there is none of that name. */
static uint32_t find_instance(const struct co_config *config, enum scope scope, const char *name)
{
    uint32_t n = scope == SCOPE_APP ? config->n_apps : config->n_pools;

    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(scope == SCOPE_APP ? config->apps[i].name : config->pools[i].name, name) == 0) {
            return i;
        }
    }
    return n;
}

/* Copy the name at the path's second step; its end. */
static const char *take_name(const char *at, char name[CO_NAME_SIZE])
{
    size_t size = strcspn(at, ".");

    snprintf(name, CO_NAME_SIZE, "%.*s", (int)(size < CO_NAME_SIZE ? size : CO_NAME_SIZE - 1), at);
    return at + size + (at[size] == '.');
}

static struct place locate(const struct co_config *config, const char *path)
{
    struct place place = {.scope = SCOPE_TOP, .rest = path};
    size_t head = strcspn(path, ".");
    char name[CO_NAME_SIZE];

    if (head == 4 && memcmp(path, "apps", 4) == 0) {
        place.scope = SCOPE_APP;
    } else if (head == 5 && memcmp(path, "pools", 5) == 0) {
        place.scope = SCOPE_POOL;
    } else {
        return place;
    }
    place.group = path[head] == '\0';
    if (!place.group) {
        place.rest = take_name(path + head + 1, name);
        place.instance = find_instance(config, place.scope, name);
    }
    return place;
}

static const struct key *find_key(enum scope scope, const char *name)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        if (keys[i].scope == scope && strcmp(keys[i].name, name) == 0) {
            return &keys[i];
        }
    }
    return NULL;
}

/* Is there a key below name? */
static bool is_prefix(enum scope scope, const char *name)
{
    size_t size = strlen(name);

    for (size_t i = 0; i < N_KEYS; i++) {
        if (keys[i].scope == scope && !keys[i].flag_only &&
            strncmp(keys[i].name, name, size) == 0 && keys[i].name[size] == '.') {
            return true;
        }
    }
    return false;
}

/* ---- messages ---- */

/* The keys that may stand beside `name`, as a list: "http, control". */
static void list_siblings(enum scope scope, const char *name, char *buf, size_t size)
{
    const char *dot = strrchr(name, '.');
    size_t parent = dot == NULL ? 0 : (size_t)(dot - name) + 1;
    char last[CO_NAME_SIZE] = "";
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < N_KEYS && used < size; i++) {
        char step[CO_NAME_SIZE];
        if (keys[i].scope != scope || keys[i].flag_only ||
            strncmp(keys[i].name, name, parent) != 0) {
            continue;
        }
        take_name(keys[i].name + parent, step);
        if (strcmp(step, last) != 0) {
            used += (size_t)snprintf(buf + used, size - used, "%s%s", used > 0 ? ", " : "", step);
        }
        memcpy(last, step, sizeof last);
    }
    if (scope == SCOPE_TOP && parent == 0 && used < size) {
        snprintf(buf + used, size - used, ", apps, pools");
    }
}

static int refuse_unknown(const char *path, const struct place *place, struct co_err *err)
{
    char known[240];
    size_t head = strcspn(place->rest, ".");

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (refused[i].scope == place->scope && strlen(refused[i].name) == head &&
            memcmp(refused[i].name, place->rest, head) == 0) {
            return co_err_set(err, CO_ECONFIG, "%.100s: %s", path, refused[i].why);
        }
    }
    list_siblings(place->scope, place->rest, known, sizeof known);
    return co_err_set(err, CO_ECONFIG, "%.100s: unknown key; known here: %s", path, known);
}

static int wrap(struct co_err *err, const char *path)
{
    return err == NULL ? CO_ECONFIG : co_err_wrap(err, path);
}

/* ---- entering ---- */

static int add_instance(struct co_config *config, const char *path, const struct place *place,
                        struct co_err *err)
{
    bool app = place->scope == SCOPE_APP;
    const char *name = strchr(path, '.') + 1;
    uint32_t max = app ? CO_APPS_MAX : CO_POOLS_MAX;

    if (!co_config_keys_name_ok(name)) {
        return co_err_set(err, CO_ECONFIG,
                          "%.100s: a name is made of a-z, 0-9, _ and -, begins with a letter or "
                          "digit and has at most %d characters",
                          path, CO_NAME_SIZE - 1);
    }
    if (place->instance == max) {
        return co_err_set(err, CO_ECONFIG, "%.100s: one agent has at most %u %s", path, max,
                          app ? "apps" : "pools");
    }
    if (app) {
        struct co_app_config *new = &config->apps[config->n_apps++];
        *new = (struct co_app_config){.connection = {.table = "jobs", .retry_after = 90000}};
        snprintf(new->name, sizeof new->name, "%s", name);
        return 0;
    }
    for (size_t i = 0; i < N_KEYS; i++) {
        if (keys[i].scope == SCOPE_POOL) {
            config->origins[i][place->instance] = config->origins[i][CO_POOLS_MAX];
        }
    }
    config->pools[config->n_pools] = config->pool_template;
    snprintf(config->pools[config->n_pools++].name, CO_NAME_SIZE, "%s", name);
    return 0;
}

int co_config_keys_enter(struct co_config *config, const char *path, struct co_err *err)
{
    struct place place = locate(config, path);
    uint32_t n = place.scope == SCOPE_APP ? config->n_apps : config->n_pools;

    if (path[0] == '\0' || place.group) {
        return 0;
    }
    if (place.scope != SCOPE_TOP && place.rest[0] == '\0') {
        return place.instance < n ? 0 : add_instance(config, path, &place, err);
    }
    if (is_prefix(place.scope, place.rest)) {
        if (place.scope == SCOPE_APP) {
            config->apps[place.instance].has_connection = true;
        }
        return 0;
    }
    if (find_key(place.scope, place.rest) != NULL) {
        return co_err_set(err, CO_ECONFIG, "%.100s: one value belongs here, not a mapping", path);
    }
    return refuse_unknown(path, &place, err);
}

int co_config_keys_list(const struct co_config *config, const char *path, struct co_err *err)
{
    struct place place = locate(config, path);
    const struct key *key = find_key(place.scope, place.rest);

    if (place.group || (place.scope != SCOPE_TOP && place.rest[0] == '\0') ||
        is_prefix(place.scope, place.rest)) {
        return co_err_set(err, CO_ECONFIG, "%.100s: a mapping of names belongs here, not a list",
                          path);
    }
    if (key == NULL || key->flag_only) {
        return refuse_unknown(path, &place, err);
    }
    if (!key->list) {
        return co_err_set(err, CO_ECONFIG, "%.100s: one value belongs here, not a list%s", path,
                          strcmp(key->name, "queue") == 0 ? ": write \"high,default\"" : "");
    }
    return 0;
}

/* ---- assigning ---- */

static void *field(struct co_config *config, const struct key *key, uint32_t instance)
{
    char *base = key->scope == SCOPE_TOP   ? (char *)config
                 : key->scope == SCOPE_APP ? (char *)&config->apps[instance]
                 : instance < CO_POOLS_MAX ? (char *)&config->pools[instance]
                                           : (char *)&config->pool_template;
    return base + key->offset;
}

/* A relative path in a file begins where the file lies. */
static void join_path(const struct co_config *config, const char *value, char *buf, size_t size)
{
    const char *slash = strrchr(config->file, '/');

    if (value[0] == '/' || value[0] == '~' || value[0] == '\0' || slash == NULL) {
        snprintf(buf, size, "%s", value);
        return;
    }
    snprintf(buf, size, "%.*s%s", (int)(slash - config->file) + 1, config->file, value);
}

static int read_value(struct co_config *config, const struct key *key, uint32_t instance,
                      const char *value, struct co_config_origin origin, struct co_err *err)
{
    bool from_file = origin.from == CO_FROM_FILE;
    char path[2 * CO_PATH_SIZE];
    int code;

    if (from_file && key->type.read == co_config_types_read_path && strlen(value) < CO_PATH_SIZE) {
        join_path(config, value, path, sizeof path);
        value = path;
    }
    code = key->type.read(&key->type, value, origin.from == CO_FROM_FLAG,
                          field(config, key, instance), err);
    if (code == 0) {
        config->origins[key - keys][instance] = origin;
    }
    return code;
}

int co_config_keys_assign(struct co_config *config, const char *path, const char *value,
                          struct co_config_origin origin, struct co_err *err)
{
    struct place place = locate(config, path);
    const struct key *key = find_key(place.scope, place.rest);

    if (place.group || (place.scope != SCOPE_TOP && place.rest[0] == '\0') ||
        (key == NULL && is_prefix(place.scope, place.rest))) {
        return co_err_set(err, CO_ECONFIG,
                          "%.100s: keys belong below it, not a value; remove it if there are none",
                          path);
    }
    if (key == NULL || key->flag_only) {
        return refuse_unknown(path, &place, err);
    }
    return read_value(config, key, place.instance, value, origin, err) < 0 ? wrap(err, path) : 0;
}

/* ---- environment and flags ---- */

static int set_pools(struct co_config *config, const struct key *key, const char *value,
                     struct co_config_origin origin, struct co_err *err)
{
    int code = read_value(config, key, CO_POOLS_MAX, value, origin, err);

    for (uint32_t i = 0; code == 0 && i < config->n_pools; i++) {
        code = read_value(config, key, i, value, origin, err);
    }
    return code;
}

int co_config_keys_set(struct co_config *config, const char *name, const char *value,
                       enum co_config_from from, struct co_err *err)
{
    struct co_config_origin origin = {.from = from};
    const struct key *key = find_key(SCOPE_TOP, name);
    int code;

    if (key != NULL) {
        code = read_value(config, key, 0, value, origin, err);
    } else {
        key = strncmp(name, "pool.", 5) == 0  ? find_key(SCOPE_POOL, name + 5)
              : strncmp(name, "job.", 4) == 0 ? find_key(SCOPE_POOL, name)
                                              : NULL;
        if (key == NULL) {
            return co_err_set(err, CO_ECONFIG, "%.100s: no such key can be set here", name);
        }
        code = set_pools(config, key, value, origin, err);
    }
    return code < 0 ? wrap(err, name) : 0;
}

/* ---- showing ---- */

struct co_config_origin *co_config_keys_origin(struct co_config *config, const char *scope,
                                               const char *name, uint32_t instance)
{
    const struct key *key = find_key(strcmp(scope, "apps") == 0    ? SCOPE_APP
                                     : strcmp(scope, "pools") == 0 ? SCOPE_POOL
                                                                   : SCOPE_TOP,
                                     name);
    assert(key != NULL && instance < CO_CONFIG_INSTANCES);
    return &config->origins[key - keys][instance];
}

static bool is_shown(const struct co_config *config, const struct key *key, uint32_t instance)
{
    return key->scope != SCOPE_APP || config->apps[instance].has_connection ||
           strncmp(key->name, "connection.", 11) != 0;
}

static void show_value(const struct co_config *config, const struct key *key, uint32_t instance,
                       struct co_config_value *ret)
{
    const char *group = key->scope == SCOPE_APP    ? "apps."
                        : key->scope == SCOPE_POOL ? "pools."
                                                   : "";
    const char *name = key->scope == SCOPE_APP    ? config->apps[instance].name
                       : key->scope == SCOPE_POOL ? config->pools[instance].name
                                                  : "";

    snprintf(ret->key, sizeof ret->key, "%s%s%s%s", group, name, *name == '\0' ? "" : ".",
             key->name);
    key->type.write(&key->type, field((struct co_config *)(uintptr_t)config, key, instance),
                    ret->text, sizeof ret->text);
    ret->origin = config->origins[key - keys][instance];
}

/* All keys of the agent, then those of each app, then those of each pool. */
bool co_config_value(const struct co_config *config, size_t n, struct co_config_value *ret_value)
{
    const uint32_t instances[] = {
        [SCOPE_TOP] = 1, [SCOPE_APP] = config->n_apps, [SCOPE_POOL] = config->n_pools};

    for (enum scope scope = SCOPE_TOP; scope <= SCOPE_POOL; scope++) {
        for (uint32_t instance = 0; instance < instances[scope]; instance++) {
            for (size_t i = 0; i < N_KEYS; i++) {
                if (keys[i].scope != scope || !is_shown(config, &keys[i], instance)) {
                    continue;
                }
                if (n == 0) {
                    show_value(config, &keys[i], instance, ret_value);
                    return true;
                }
                n--;
            }
        }
    }
    return false;
}
