#include "worker/options.h"

#include <string.h>

const char co_options_help[] =
    "cohort-worker: the zygote of a pool. cohortd starts it; by hand only --info is of use.\n"
    "\n"
    "  cohort-worker --info      what this PHP is, as JSON: version, build, php.ini files,\n"
    "                            extensions, settings, OPcache, pcntl\n"
    "  cohort-worker --version   version of cohort-worker and of the PHP it was built for\n"
    "  cohort-worker --trace PID [--json]\n"
    "                            the PHP stack of a running worker, which goes on undisturbed\n"
    "  cohort-worker --control-fd N --wake-fd N --php-dir DIR [options]\n"
    "  cohort-worker --spawn --wake-fd N --php-dir DIR --wire PATH --bell PATH [options]\n"
    "\n"
    "  --control-fd N    socket to the agent (SOCK_SEQPACKET)\n"
    "  --wake-fd N       eventfd that wakes the agent\n"
    "  --php-dir DIR     directory of preload.php\n"
    "  --mode job        what the workers do; job is the only mode of this version\n"
    "  --boot preload    boot the application once, then fork (default)\n"
    "  --boot after_fork fork the initialised PHP, boot in each worker\n"
    "  --boot spawn      no zygote: this process is the worker; the same as --spawn\n"
    "  --wire PATH, --bell PATH, --worker-kind job|control|bookkeeper, --worker N,\n"
    "  --generation N    the worker's seat (spawn)\n"
    "  --agent PID       end unless this is the parent\n"
    "  --set KEY=VALUE   what Cohort\\Worker\\config() gives the PHP side; may be repeated\n"
    "                    (run_dir and php_binary are used here as well)\n";

/* Decimal digits, at most INT32_MAX. */
static bool read_number(const char *text, int32_t *ret_number)
{
    int64_t number = 0;

    for (const char *p = text; *p != '\0'; p++) {
        number = number * 10 + (*p - '0');
        if (*p < '0' || *p > '9' || number > INT32_MAX) {
            return false;
        }
    }
    *ret_number = (int32_t)number;
    return *text != '\0';
}

static int read_fd(const char *name, const char *text, int *ret_fd, struct co_err *err)
{
    int32_t fd;

    if (!read_number(text, &fd)) {
        return co_err_set(err, CO_EUSAGE, "%s '%s': give the number of an open descriptor", name,
                          text);
    }
    if (fd < 3) {
        return co_err_set(err, CO_EUSAGE, "%s '%s': 0, 1 and 2 belong to the application", name,
                          text);
    }
    *ret_fd = fd;
    return CO_OK;
}

static int read_pid(const char *name, const char *text, pid_t *ret_pid, struct co_err *err)
{
    int32_t pid;

    if (!read_number(text, &pid) || pid == 0) {
        return co_err_set(err, CO_EUSAGE, "%s '%s': give the number of a process", name, text);
    }
    *ret_pid = pid;
    return CO_OK;
}

static int read_index(const char *name, const char *text, uint32_t *ret_index, struct co_err *err)
{
    int32_t number;

    if (!read_number(text, &number)) {
        return co_err_set(err, CO_EUSAGE, "%s '%s': give a number", name, text);
    }
    *ret_index = (uint32_t)number;
    return CO_OK;
}

static int read_kind(const char *text, enum co_worker_kind *ret_kind, struct co_err *err)
{
    static const char *const kinds[] = {
        [CO_KIND_JOB] = "job",
        [CO_KIND_CONTROL] = "control",
        [CO_KIND_BOOKKEEPER] = "bookkeeper",
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(text, kinds[i]) == 0) {
            *ret_kind = (enum co_worker_kind)i;
            return CO_OK;
        }
    }
    return co_err_set(err, CO_EUSAGE, "--worker-kind %s: use job, control or bookkeeper", text);
}

static int read_mode(const char *text, struct co_err *err)
{
    if (strcmp(text, "job") == 0) {
        return CO_OK;
    }
    return co_err_set(err, CO_EUNSUPPORTED,
                      "--mode %s: this version of cohort-worker runs jobs only; use --mode job",
                      text);
}

static int read_boot(const char *text, enum co_options_boot *ret_boot, struct co_err *err)
{
    if (strcmp(text, "preload") == 0) {
        *ret_boot = CO_BOOT_PRELOAD;
        return CO_OK;
    }
    if (strcmp(text, "after_fork") == 0) {
        *ret_boot = CO_BOOT_AFTER_FORK;
        return CO_OK;
    }
    if (strcmp(text, "spawn") == 0) {
        *ret_boot = CO_BOOT_SPAWN;
        return CO_OK;
    }
    return co_err_set(err, CO_EUNSUPPORTED,
                      "--boot %s: this version knows preload, after_fork and spawn", text);
}

static int read_set(const char *text, struct co_options *options, struct co_err *err)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text) {
        return co_err_set(err, CO_EUSAGE, "--set %s: write it as KEY=VALUE", text);
    }
    if (options->n_sets == CO_OPTIONS_SETS_MAX) {
        return co_err_set(err, CO_EFULL, "--set %s: at most %d settings", text,
                          CO_OPTIONS_SETS_MAX);
    }
    options->sets[options->n_sets++] = (struct co_options_set){
        .key = text,
        .key_size = (size_t)(equals - text),
        .value = equals + 1,
    };
    return CO_OK;
}

static int read_seat(const char *name, const char *value, struct co_options *options,
                     struct co_err *err)
{
    if (strcmp(name, "--wire") == 0) {
        options->seat.wire = value;
        return CO_OK;
    }
    if (strcmp(name, "--bell") == 0) {
        options->seat.bell = value;
        return CO_OK;
    }
    if (strcmp(name, "--worker-kind") == 0) {
        return read_kind(value, &options->seat.kind, err);
    }
    if (strcmp(name, "--worker") == 0) {
        return read_index(name, value, &options->seat.worker, err);
    }
    if (strcmp(name, "--generation") == 0) {
        return read_index(name, value, &options->seat.generation, err);
    }
    return co_err_set(err, CO_EUSAGE, "unknown option %s; see cohort-worker --help", name);
}

static int read_pair(const char *name, const char *value, struct co_options *options,
                     struct co_err *err)
{
    if (strcmp(name, "--control-fd") == 0) {
        return read_fd(name, value, &options->control_fd, err);
    }
    if (strcmp(name, "--wake-fd") == 0) {
        return read_fd(name, value, &options->wake_fd, err);
    }
    if (strcmp(name, "--php-dir") == 0) {
        options->php_dir = value;
        return CO_OK;
    }
    if (strcmp(name, "--mode") == 0) {
        return read_mode(value, err);
    }
    if (strcmp(name, "--boot") == 0) {
        return read_boot(value, &options->boot, err);
    }
    if (strcmp(name, "--set") == 0) {
        return read_set(value, options, err);
    }
    if (strcmp(name, "--agent") == 0) {
        return read_pid(name, value, &options->agent, err);
    }
    if (strcmp(name, "--trace") == 0) {
        options->command = CO_OPTIONS_TRACE;
        return read_pid(name, value, &options->trace, err);
    }
    return read_seat(name, value, options, err);
}

/* An option without a value. */
static bool read_word(const char *text, struct co_options *options)
{
    static const struct {
        const char *name;
        enum co_options_command command;
    } commands[] = {
        {"--info", CO_OPTIONS_INFO},
        {"--help", CO_OPTIONS_HELP},
        {"-h", CO_OPTIONS_HELP},
        {"--version", CO_OPTIONS_VERSION},
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(text, commands[i].name) == 0) {
            options->command = commands[i].command;
            return true;
        }
    }
    if (strcmp(text, "--spawn") == 0) {
        options->boot = CO_BOOT_SPAWN;
        return true;
    }
    if (strcmp(text, "--json") == 0) {
        options->json = true;
        return true;
    }
    return false;
}

static int check_spawn(const struct co_options *options, struct co_err *err)
{
    if (options->control_fd >= 0) {
        return co_err_set(err, CO_EUSAGE, "--control-fd: a spawned worker has no control socket");
    }
    if (options->wake_fd < 0 || options->php_dir == NULL || options->seat.wire == NULL ||
        options->seat.bell == NULL) {
        return co_err_set(err, CO_EUSAGE,
                          "--spawn needs --wake-fd, --php-dir, --wire and --bell; see "
                          "cohort-worker --help");
    }
    return CO_OK;
}

static int check_complete(const struct co_options *options, struct co_err *err)
{
    if (options->command != CO_OPTIONS_SERVE) {
        return CO_OK;
    }
    if (options->boot == CO_BOOT_SPAWN) {
        return check_spawn(options, err);
    }
    if (options->control_fd < 0 || options->wake_fd < 0 || options->php_dir == NULL) {
        return co_err_set(err, CO_EUSAGE,
                          "cohort-worker is started by cohortd, with --control-fd, --wake-fd and "
                          "--php-dir; see cohort-worker --help");
    }
    if (options->control_fd == options->wake_fd) {
        return co_err_set(err, CO_EUSAGE, "--control-fd and --wake-fd are both %d",
                          options->wake_fd);
    }
    return CO_OK;
}

int co_options_parse(int argc, char *const argv[], struct co_options *ret_options,
                     struct co_err *err)
{
    struct co_options options = {.control_fd = -1, .wake_fd = -1};

    for (int i = 1; i < argc; i++) {
        if (read_word(argv[i], &options)) {
            continue;
        }
        if (i + 1 == argc) {
            return co_err_set(err, CO_EUSAGE,
                              "%s: an option of that name needs a value, or is "
                              "unknown; see cohort-worker --help",
                              argv[i]);
        }
        int rc = read_pair(argv[i], argv[i + 1], &options, err);
        if (rc < 0) {
            return rc;
        }
        i++;
    }
    int rc = check_complete(&options, err);
    if (rc == CO_OK) {
        *ret_options = options;
    }
    return rc;
}

const char *co_options_get(const struct co_options *options, const char *key)
{
    const char *value = NULL;
    size_t size = strlen(key);
    for (size_t i = 0; i < options->n_sets; i++) {
        const struct co_options_set *set = &options->sets[i];
        if (set->key_size == size && memcmp(set->key, key, size) == 0) {
            value = set->value;
        }
    }
    return value;
}
