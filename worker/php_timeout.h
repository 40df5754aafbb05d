/* A job's time limit inside its worker: the application's handler gets the last word, in the middle
 * of whatever PHP code runs, and then the worker ends. Needs no pcntl.
 *
 *     agent    co_slot_end(N), CO_SIGNAL_TIMEOUT
 *     signal   running N and slot ENDING(N)? due = N, vm_interrupt, a timer that says it again
 *     hook     due = running? handler(N), then SIGKILL to the own group
 *
 * The timer is for the moment between PHP's last look at vm_interrupt and a sleep, and for calls of
 * PHP that try once more after a signal. */

#ifndef CO_WORKER_PHP_TIMEOUT_H
#define CO_WORKER_PHP_TIMEOUT_H

#include <main/php.h>

#include <stdint.h>

#include "worker/dispatch.h"

/* Once, after PHP and its extensions have started. */
void co_php_timeout_hook(void);

/* In a worker: listen. The slot is lent for good. */
void co_php_timeout_listen(const struct co_slot *slot);

/* The callable that gets the ticket; copied. NULL: none, and the signal is ignored. */
void co_php_timeout_set(zval *handler);

/* The ticket that runs from now on; 0 = none. */
void co_php_timeout_run(uint64_t ticket);

#endif /* CO_WORKER_PHP_TIMEOUT_H */
