/* Which libphp this process really runs, and whether it is the one it was built for. */

#ifndef CO_WORKER_PHP_ABI_H
#define CO_WORKER_PHP_ABI_H

#include "proto/err.h"

/* "8.2": the minor this program was built for. */
extern const char co_php_abi_minor[];

/* The path of the libphp that is loaded; never NULL. */
const char *co_php_abi_path(void);

/* Compare builds. Before PHP starts: with another layout the first call would crash.
 * Error: CO_EUNSUPPORTED. */
int co_php_abi_check(struct co_err *err);

/* Take the chosen libphp out of LD_PRELOAD again: it is loaded, and what a job starts must not get
 * it. */
void co_php_abi_forget_preload(void);

#endif /* CO_WORKER_PHP_ABI_H */
