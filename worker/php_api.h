/* The PHP functions and constants of the namespace Cohort\Worker; README.md lists them. */

#ifndef CO_WORKER_PHP_API_H
#define CO_WORKER_PHP_API_H

#include "worker/options.h"
#include "worker/seat_os.h"

/* Make them known to PHP, once, after it has started. The options are lent for good.
 * Error: CO_EAPP. */
int co_php_api_register(const struct co_options *options);

/* In a child: the seat that next(), begin(), end() and the others use, lent for good. Before, they
 * throw. */
void co_php_api_seat(struct co_seat *seat);

#endif /* CO_WORKER_PHP_API_H */
