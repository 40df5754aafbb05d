/* The command line of cohort-worker. */

#ifndef CO_WORKER_OPTIONS_H
#define CO_WORKER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/err.h"
#include "proto/zygote.h"

#define CO_OPTIONS_SETS_MAX 64

enum co_options_command {
    CO_OPTIONS_SERVE = 0, /* Be a zygote, or one worker (spawn). */
    CO_OPTIONS_TRACE,
    CO_OPTIONS_INFO,
    CO_OPTIONS_HELP,
    CO_OPTIONS_VERSION,
};

enum co_options_boot {
    CO_BOOT_PRELOAD = 0, /* Boot the application once, then fork. */
    CO_BOOT_AFTER_FORK,  /* Fork the initialised PHP and boot in each child. */
    CO_BOOT_SPAWN,       /* This process is the worker: no zygote, one exec a worker. */
};

/* All strings are borrowed from argv. */
struct co_options {
    enum co_options_command command;
    enum co_options_boot boot;
    int control_fd;
    int wake_fd;
    pid_t agent; /* Who must be the parent; 0 = whoever is. */
    const char *php_dir;
    struct { /* For CO_BOOT_SPAWN, what a FORK message says otherwise. */
        const char *wire;
        const char *bell;
        enum co_worker_kind kind;
        uint32_t worker;
        uint32_t generation;
    } seat;
    pid_t trace;
    bool json;
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
