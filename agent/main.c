/* cohortd: reads its command line and configuration, then runs the agent. */

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent_uv.h"
#include "agent/cgroup.h"
#include "agent/cgroup_os.h"

static const char help[] =
    "Usage: cohortd --app DIR [option...]\n"
    "       cohortd --config FILE [option...]\n"
    "\n"
    "Runs the jobs of a Laravel or plain PHP application in preforked workers.\n"
    "\n"
    "  --app DIR             the application (artisan and bootstrap/app.php, or app.php)\n"
    "  --config FILE         cohort.yaml; options here override it\n"
    "  --env-file FILE       the application's environment file\n"
    "  --check               check configuration and leave\n"
    "\n"
    "Jobs, with the meaning of queue:work's options:\n"
    "  --queue LIST          queues in strict order: high,default; also connection:queue, "
    "tenant-*\n"
    "  --connection NAME     the queue connection (default: the application's)\n"
    "  --tries N  --timeout T  --backoff T  --memory MIB  --force\n"
    "  --workers N|auto      how many workers (auto: the CPUs this pod may use)\n"
    "  --claim N|auto        how many jobs to hold ahead\n"
    "  --max-payload SIZE  --kill-grace T  --on-lost retry|fail  --drain-deadline T\n"
    "\n"
    "The agent:\n"
    "  --http ADDR|off       probes and metrics (127.0.0.1:9090)\n"
    "  --control PATH        socket of the cohort command (RUN_DIR/control.sock)\n"
    "  --run-dir DIR  --state-dir DIR\n"
    "  --fleet-name NAME     be one of a fleet of agents\n"
    "  --fleet-join LIST     where others may be: ADDR:PORT, dns:NAME:PORT, file:PATH\n"
    "  --fleet-secret-file FILE (cohort keygen)  --fleet-listen ADDR:PORT\n"
    "  --fleet-advertise ADDR|$VARIABLE  --fleet-expected N\n"
    "  --log-format text|json  --log-level debug|info|warn|error\n"
    "  --worker-bin PATH  --php-dir DIR  --libphp PATH\n"
    "  --help  --version\n"
    "\n"
    "Signals: TERM, INT and QUIT drain; a second one gives running jobs back at once.\n"
    "Exit codes: 0 after a drain, 1 failure, 2 bad configuration.\n"
    "\n"
    "Example: cohortd --app /srv/shop --queue high,default --workers 8\n";

/* Options that set a key of the configuration. */
static const struct {
    const char *name;
    const char *key;
} keys[] = {
    {"queue", "pool.queue"},
    {"connection", "pool.connection"},
    {"workers", "pool.workers"},
    {"claim", "pool.claim"},
    {"max-payload", "pool.max_payload"},
    {"kill-grace", "pool.kill_grace"},
    {"tries", "job.tries"},
    {"timeout", "job.timeout"},
    {"backoff", "job.backoff"},
    {"memory", "job.memory"},
    {"on-lost", "job.on_lost"},
    {"http", "admin.http"},
    {"control", "admin.control"},
    {"run-dir", "run_dir"},
    {"state-dir", "state_dir"},
    {"drain-deadline", "drain_deadline"},
    {"fleet-name", "fleet.name"},
    {"fleet-expected", "fleet.expected"},
    {"fleet-secret-file", "fleet.secret_file"},
    {"fleet-join", "fleet.join"},
    {"fleet-advertise", "fleet.advertise"},
    {"fleet-listen", "fleet.listen"},
    {"log-format", "log.format"},
    {"log-level", "log.level"},
    {"worker-bin", "worker_bin"},
    {"php-dir", "php_dir"},
    {"libphp", "libphp"},
};
#define N_KEYS (sizeof keys / sizeof keys[0])

enum { OPT_HELP = 256, OPT_VERSION, OPT_APP, OPT_CONFIG, OPT_ENV_FILE, OPT_FORCE, OPT_CHECK };

struct command {
    const char *app;
    const char *config;
    const char *env_file;
    bool force;
    bool check;
    const char *values[N_KEYS];
};

static int usage(const char *what)
{
    fprintf(stderr, "cohortd: %s\nTry: cohortd --help\n", what);
    return 2;
}

/* -1: go on; else the exit code. */
static int read_command(int argc, char **argv, struct command *command)
{
    struct option options[N_KEYS + 8];
    size_t n = 0;
    int got;

    for (; n < N_KEYS; n++) {
        options[n] = (struct option){keys[n].name, required_argument, NULL, (int)n};
    }
    options[n++] = (struct option){"help", no_argument, NULL, OPT_HELP};
    options[n++] = (struct option){"version", no_argument, NULL, OPT_VERSION};
    options[n++] = (struct option){"app", required_argument, NULL, OPT_APP};
    options[n++] = (struct option){"config", required_argument, NULL, OPT_CONFIG};
    options[n++] = (struct option){"env-file", required_argument, NULL, OPT_ENV_FILE};
    options[n++] = (struct option){"force", no_argument, NULL, OPT_FORCE};
    options[n++] = (struct option){"check", no_argument, NULL, OPT_CHECK};
    options[n] = (struct option){0};
    while ((got = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (got) {
        case 'h':
        case OPT_HELP:
            fputs(help, stdout);
            return 0;
        case OPT_VERSION:
            puts("cohortd " CO_AGENT_VERSION);
            return 0;
        case OPT_APP:
            command->app = optarg;
            break;
        case OPT_CONFIG:
            command->config = optarg;
            break;
        case OPT_ENV_FILE:
            command->env_file = optarg;
            break;
        case OPT_FORCE:
            command->force = true;
            break;
        case OPT_CHECK:
            command->check = true;
            break;
        case '?':
            return usage("unknown option, or its value is missing");
        default:
            command->values[got] = optarg;
            break;
        }
    }
    return optind < argc ? usage("arguments without a dash are not expected") : -1;
}

static int set_app(struct co_config *config, const struct command *command, struct co_err *err)
{
    char path[PATH_MAX];
    int code;

    if (command->app == NULL) {
        return CO_OK;
    }
    if (realpath(command->app, path) == NULL) {
        return co_err_set(err, CO_ECONFIG, "no application at %s: the directory does not exist",
                          command->app);
    }
    code = co_config_add_app(config, path, err);
    if (code == CO_OK && command->env_file != NULL) {
        struct co_app_config *app = &config->apps[config->n_apps - 1];
        if (realpath(command->env_file, path) == NULL) {
            return co_err_set(err, CO_ECONFIG, "no environment file at %s", command->env_file);
        }
        if (strlen(path) >= sizeof app->env_file) {
            return co_err_set(err, CO_ECONFIG, "path too long: %s", command->env_file);
        }
        memcpy(app->env_file, path, strlen(path) + 1);
    }
    return code;
}

static int set_values(struct co_config *config, const struct command *command, struct co_err *err)
{
    int code = CO_OK;

    for (size_t i = 0; code == CO_OK && co_config_variables[i].variable != NULL; i++) {
        const char *value = getenv(co_config_variables[i].variable);
        if (value != NULL) {
            code = co_config_set(config, co_config_variables[i].key, value, err);
        }
    }
    for (size_t i = 0; code == CO_OK && i < N_KEYS; i++) {
        if (command->values[i] != NULL) {
            code = co_config_set_flag(config, keys[i].key, command->values[i], err);
        }
    }
    if (code == CO_OK && command->force) {
        code = co_config_set_flag(config, "pool.force", "true", err);
    }
    return code;
}

/* An application is a directory with one of two faces. */
static int check_apps(const struct co_config *config, struct co_err *err)
{
    char path[CO_PATH_SIZE + 32];

    for (uint32_t i = 0; i < config->n_apps; i++) {
        const char *dir = config->apps[i].path;
        snprintf(path, sizeof path, "%s/artisan", dir);
        if (access(path, R_OK) == 0) {
            snprintf(path, sizeof path, "%s/bootstrap/app.php", dir);
            if (access(path, R_OK) == 0) {
                continue;
            }
        }
        snprintf(path, sizeof path, "%s/app.php", dir);
        if (access(path, R_OK) != 0) {
            return co_err_set(err, CO_ECONFIG,
                              "no application at %s: found neither artisan with "
                              "bootstrap/app.php (Laravel) nor app.php (plain PHP)",
                              dir);
        }
    }
    return CO_OK;
}

/* Programs and PHP files lie beside us: in the build tree, or as installed. */
static void find_own_files(struct co_config *config)
{
    char self[PATH_MAX];
    char path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (n <= 0) {
        return;
    }
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    if (config->worker_bin[0] == '\0') {
        snprintf(config->worker_bin, sizeof config->worker_bin, "%.1000s/cohort-worker", self);
    }
    if (config->php_dir[0] == '\0') {
        snprintf(path, sizeof path, "%s/../share/cohort/php", self);
        if (access(path, R_OK) != 0) {
            snprintf(path, sizeof path, "%s", COHORT_PHP_SOURCE);
        }
        snprintf(config->php_dir, sizeof config->php_dir, "%.1000s", path);
    }
}

static uint32_t auto_workers(void)
{
    struct co_cgroup cgroup = co_cgroup_os_read();

    return co_cgroup_workers(cgroup.cpu_millis, cgroup.host_cpus);
}

static void set_workers(struct co_config *config)
{
    for (uint32_t i = 0; i < config->n_pools; i++) {
        if (config->pools[i].workers == CO_WORKERS_AUTO) {
            config->pools[i].workers = auto_workers();
        }
    }
}

/* Workers change to the application's directory: what is named from here must be absolute. */
static int make_absolute(char *path, size_t size, struct co_err *err)
{
    char here[PATH_MAX];
    char whole[2 * PATH_MAX];

    if (path[0] == '\0' || path[0] == '/') {
        return CO_OK;
    }
    if (getcwd(here, sizeof here) == NULL ||
        (size_t)snprintf(whole, sizeof whole, "%s/%s", here, path) >= size) {
        return co_err_set(err, CO_ECONFIG, "%s: name it by its whole path", path);
    }
    memcpy(path, whole, strlen(whole) + 1);
    return CO_OK;
}

static int make_paths_absolute(struct co_config *config, struct co_err *err)
{
    char *const paths[] = {config->run_dir,          config->state_dir,  config->control,
                           config->php_dir,          config->worker_bin, config->libphp,
                           config->fleet.secret_file};
    int code = CO_OK;

    for (size_t i = 0; code == CO_OK && i < sizeof paths / sizeof paths[0]; i++) {
        code = make_absolute(paths[i], CO_PATH_SIZE, err);
    }
    return code;
}

static int configure(struct co_config *config, const struct command *command, struct co_err *err)
{
    int code = CO_OK;

    co_config_init(config);
    if (command->config != NULL) {
        code = co_config_read_yaml(config, command->config, err);
    }
    if (code == CO_OK) {
        code = set_app(config, command, err);
    }
    if (code == CO_OK) {
        code = set_values(config, command, err);
    }
    if (code == CO_OK) {
        code = co_config_finish(config, geteuid() == 0, getenv("XDG_RUNTIME_DIR"),
                                getenv("XDG_STATE_HOME"), getenv("HOME"), err);
    }
    if (code == CO_OK) {
        code = make_paths_absolute(config, err);
    }
    if (code == CO_OK) {
        code = check_apps(config, err);
    }
    find_own_files(config);
    return code;
}

int main(int argc, char **argv)
{
    static struct co_config config;
    static struct co_agent agent; /* Some megabytes of tables; pages come as they are touched. */
    struct command command = {0};
    struct co_err err;
    int code = read_command(argc, argv, &command);

    if (code >= 0) {
        return code;
    }
    if (command.app == NULL && command.config == NULL) {
        return usage("name an application: --app DIR, or --config FILE");
    }
    if (configure(&config, &command, &err) < 0) {
        fprintf(stderr, "cohortd: %s\n", err.msg);
        return err.code == CO_EIO || err.code == CO_ENOMEM ? 1 : 2;
    }
    if (command.check) {
        puts("options and files are ok; what the application itself says is seen at start");
        return 0;
    }
    set_workers(&config);
    return co_agent_run(&agent, &config);
}
