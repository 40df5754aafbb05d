/* The command line of cohort-worker. */

#ifndef CO_WORKER_OPTIONS_H
#define CO_WORKER_OPTIONS_H

#include <stddef.h>

#include "proto/err.h"

#define CO_OPTIONS_SETS_MAX 64

enum co_options_command {
    CO_OPTIONS_SERVE = 0, /* Be a zygote. */
    CO_OPTIONS_INFO,
    CO_OPTIONS_HELP,
    CO_OPTIONS_VERSION,
};

enum co_options_boot {
    CO_BOOT_PRELOAD = 0, /* Boot the application once, then fork. */
    CO_BOOT_AFTER_FORK,  /* Fork the initialised PHP and boot in each child. */
};

/* All strings are borrowed from argv. */
struct co_options {
    enum co_options_command command;
    enum co_options_boot boot;
    int control_fd;
    int wake_fd;
    const char *php_dir;
    size_t n_sets;
    struct co_options_set {
        const char *key; /* Not terminated: key_size bytes. */
        size_t key_size;
        const char *value;
    } sets[CO_OPTIONS_SETS_MAX];
};

extern const char co_options_help[];

/* Read argv. Errors: CO_EUSAGE, CO_EUNSUPPORTED, CO_EFULL; *ret_options is untouched then. */
int co_options_parse(int argc, char *const argv[], struct co_options *ret_options,
                     struct co_err *err);

/* Return the value of a --set key, the last one given, or NULL. */
const char *co_options_get(const struct co_options *options, const char *key);

#endif /* CO_WORKER_OPTIONS_H */
