/* Running the application: its boot, and a worker's whole life. */

#ifndef CO_WORKER_PHP_RUN_H
#define CO_WORKER_PHP_RUN_H

#include <stddef.h>

#include "proto/zygote.h"

/* Run DIR/preload.php. Returns CO_OK, or CO_EAPP with a text for people: the exception with its
 * place and the top of its trace, the fatal error, or that the application called exit(). */
int co_php_run_boot(const char *php_dir, char *ret_text, size_t text_size);

/* Call Cohort\run_worker(kind), end the request (shutdown functions, destructors) and return the
 * exit code: what it returned, what exit() was given, or 255 after a fatal error. */
int co_php_run_worker(enum co_worker_kind kind);

/* End the request after a boot that failed. */
void co_php_run_end(void);

#endif /* CO_WORKER_PHP_RUN_H */
