/* PHP itself: its start as the command line would start it, and what it says about itself. */

#ifndef CO_WORKER_PHP_START_H
#define CO_WORKER_PHP_START_H

#include "proto/err.h"
#include "worker/options.h"

/* Start PHP and its first request: SAPI name "cli", OPcache on, STDIN, STDOUT and STDERR defined,
 * the functions of Cohort\Worker there. The options must stay as long as PHP runs.
 * Error: CO_EAPP. */
int co_php_start(const struct co_options *options, struct co_err *err);

/* The version that runs, "8.2.36". */
const char *co_php_start_version(void);

/* Write what this PHP is to stdout, as JSON. Error: CO_EAPP. */
int co_php_start_info(struct co_err *err);

/* In a child: new seeds, or all children draw the same random numbers. */
void co_php_start_reseed(void);

#endif /* CO_WORKER_PHP_START_H */
