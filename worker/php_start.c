#include "worker/php_start.h"

#include <main/php.h> /* First: the other headers of PHP need it. */

#include <errno.h>
#include <limits.h>
#include <sapi/embed/php_embed.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#if PHP_VERSION_ID >= 80200
#include <ext/random/php_random.h>
#else
#include <ext/standard/php_lcg.h>
#include <ext/standard/php_mt_rand.h>
#endif

#include "worker/php_abi.h"
#include "worker/php_api.h"

static const struct co_options *start_options;

static void set_default(HashTable *defaults, const char *name, const char *value)
{
    zval entry;
    ZVAL_NEW_STR(&entry, zend_string_init(value, strlen(value), 1));
    zend_hash_str_update(defaults, name, strlen(name), &entry);
}

/* Read before php.ini, which so has the last word. */
static void set_defaults(HashTable *defaults)
{
    const char *run_dir = co_options_get(start_options, "run_dir");

    set_default(defaults, "display_errors", "stderr");
    set_default(defaults, "opcache.enable", "1");
    set_default(defaults, "opcache.enable_cli", "1"); /* Under "cli" it is off otherwise. */
    set_default(defaults, "opcache.jit", "off");      /* It crashes in several PHP releases. */
    if (run_dir != NULL) {
        set_default(defaults, "opcache.lockfile_path", run_dir); /* /tmp may be read-only. */
    }
}

static bool is_program(const char *path)
{
    struct stat stat_;
    return stat(path, &stat_) == 0 && S_ISREG(stat_.st_mode) && access(path, X_OK) == 0;
}

static bool find_in_path(const char *name, char ret_path[PATH_MAX])
{
    const char *dirs = getenv("PATH");
    for (const char *dir = dirs != NULL ? dirs : "/usr/local/bin:/usr/bin:/bin"; *dir != '\0';) {
        size_t size = strcspn(dir, ":");
        int written = snprintf(ret_path, PATH_MAX, "%.*s/%s", (int)size, dir, name);
        if (size > 0 && written < PATH_MAX && is_program(ret_path)) {
            return true;
        }
        dir += size + (dir[size] == ':');
    }
    return false;
}

/* What PHP_BINARY and argv[0] name: applications start it for their child processes, which
 * cohort-worker would not be of use for. */
static char *find_php(void)
{
    static char path[PATH_MAX];
    char name[32];
    const char *given = co_options_get(start_options, "php_binary");

    if (given != NULL) {
        snprintf(path, sizeof path, "%s", given);
        return path;
    }
    snprintf(name, sizeof name, "php%s", co_php_abi_minor);
    if (!find_in_path(name, path) && !find_in_path("php", path)) {
        snprintf(path, sizeof path, "php");
    }
    return path;
}

static void define_stream(const char *name, const char *url, const char *mode)
{
    zend_constant constant;
    php_stream *stream = php_stream_open_wrapper_ex(url, mode, 0, NULL, NULL);
    if (stream == NULL) {
        return; /* The command line leaves the constant out as well. */
    }
    /* The end of the request must not close the descriptor: what is written later still counts. */
    stream->flags |= PHP_STREAM_FLAG_NO_RSCR_DTOR_CLOSE;
    php_stream_to_zval(stream, &constant.value);
    ZEND_CONSTANT_SET_FLAGS(&constant, CONST_CS, 0);
    constant.name = zend_string_init_interned(name, strlen(name), 0);
    zend_register_constant(&constant);
}

static void define_streams(void)
{
    define_stream("STDIN", "php://stdin", "rb");
    define_stream("STDOUT", "php://stdout", "wb");
    define_stream("STDERR", "php://stderr", "wb");
}

/* PHP's shipped limit of 128M is meant for web requests; distributions lift it for the command
 * line, where queue:work runs, and so do we: the agent watches what a worker really uses. A limit
 * somebody chose is kept. */
static void lift_memory_limit(void)
{
    zend_string *name;

    if (PG(memory_limit) != 128 * 1024 * 1024) {
        return;
    }
    name = zend_string_init("memory_limit", sizeof "memory_limit" - 1, 1);
    zend_alter_ini_entry_chars(name, "-1", 2, ZEND_INI_SYSTEM, ZEND_INI_STAGE_RUNTIME);
    zend_string_release(name);
}

int co_php_start(const struct co_options *options, struct co_err *err)
{
    static char *arguments[2];

    start_options = options;
    arguments[0] = find_php();
    php_embed_module.name = "cli";
    php_embed_module.pretty_name = "Cohort worker";
    php_embed_module.phpinfo_as_text = 1;
    php_embed_module.ini_defaults = set_defaults;
    if (php_embed_init(1, arguments) != SUCCESS) {
        return co_err_set(err, CO_EAPP,
                          "PHP does not start (%s); its own message is above, and php.ini and the "
                          "extensions it loads are where to look",
                          co_php_abi_path());
    }
    lift_memory_limit();
    define_streams();
    if (co_php_api_register(options) != CO_OK) {
        return co_err_set(err, CO_EAPP, "the functions of Cohort\\Worker cannot be registered");
    }
    return CO_OK;
}

const char *co_php_start_version(void)
{
    zval *version = zend_get_constant_str("PHP_VERSION", sizeof "PHP_VERSION" - 1);
    return version != NULL && Z_TYPE_P(version) == IS_STRING ? Z_STRVAL_P(version) : PHP_VERSION;
}

/* PHP knows best what it is, and its json_encode() is always there. */
static const char info_code[] =
    "$extensions = [];"
    "foreach ([...get_loaded_extensions(), ...get_loaded_extensions(true)] as $name) {"
    "    $extensions[$name] = (string) phpversion($name);"
    "}"
    "ksort($extensions, SORT_FLAG_CASE | SORT_STRING);"
    "$opcache = function_exists('opcache_get_status') ? @opcache_get_status(false) : false;"
    "$ini = ini_get_all(null, false); ksort($ini);"
    "$scanned = php_ini_scanned_files();"
    "echo json_encode(["
    "    'version' => PHP_VERSION, 'zend' => zend_version(), 'sapi' => PHP_SAPI,"
    "    'api' => $api, 'build' => $build, 'built_for' => $built_for, 'libphp' => $libphp,"
    "    'zts' => (bool) PHP_ZTS, 'debug' => (bool) PHP_DEBUG,"
    "    'php_binary' => PHP_BINARY,"
    "    'ini_file' => php_ini_loaded_file() ?: null,"
    "    'ini_scanned' => $scanned ? array_map('trim', explode(',', $scanned)) : [],"
    "    'extension_dir' => ini_get('extension_dir'),"
    "    'pcntl' => extension_loaded('pcntl'),"
    "    'opcache' => (bool) ($opcache ? $opcache['opcache_enabled'] : false),"
    "    'extensions' => $extensions, 'ini' => $ini,"
    "], JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE | JSON_PRETTY_PRINT), \"\\n\";";

static void set_text(const char *name, const char *value)
{
    zval text;
    ZVAL_STRING(&text, value);
    zend_hash_str_update(&EG(symbol_table), name, strlen(name), &text);
}

int co_php_start_info(struct co_err *err)
{
    zval api;
    volatile bool good = false;

    ZVAL_LONG(&api, ZEND_MODULE_API_NO);
    zend_hash_str_update(&EG(symbol_table), "api", 3, &api);
    set_text("build", ZEND_MODULE_BUILD_ID);
    set_text("built_for", PHP_VERSION);
    set_text("libphp", co_php_abi_path());
    zend_first_try
    {
        good = zend_eval_string_ex(info_code, NULL, "cohort-worker --info", true) == SUCCESS;
        php_output_end_all();
    }
    zend_end_try();
    fflush(stdout);
    return good ? CO_OK : co_err_set(err, CO_EAPP, "PHP cannot describe itself; see its message");
}

void co_php_start_reseed(void)
{
    uint32_t seed;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) {
        seed = (uint32_t)getpid() * 2654435761u;
    }
    php_mt_srand(seed);
    /* The combined generator (uniqid, lcg_value, session ids) seeds itself at its next use. */
#if PHP_VERSION_ID >= 80200
    RANDOM_G(combined_lcg_seeded) = false;
#else
    LCG_G(seeded) = 0;
#endif
}
