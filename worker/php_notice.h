/* What the agent has to say to a running job, without pcntl: its time is over, or its worker is to
 * stop. The application's handler is called in the middle of whatever PHP code runs.
 *
 *     agent    co_slot_end(N), CO_SIGNAL_TIMEOUT        STOP, CO_SIGNAL_STOP
 *     signal   running N and slot ENDING(N)?            running N and slot RUNNING(N)?
 *              due = N, vm_interrupt, a timer that says it again
 *     hook     due = running? handler(N), then SIGKILL  due = running? handler(N), and the job
 *              to the own group                         goes on
 *
 * The timer is for the moment between PHP's last look at vm_interrupt and a sleep, and after a time
 * limit for calls of PHP that try once more after a signal. */

#ifndef CO_WORKER_PHP_NOTICE_H
#define CO_WORKER_PHP_NOTICE_H

#include <main/php.h>

#include <stdint.h>

#include "worker/dispatch.h"

enum co_notice {
    CO_NOTICE_TIMEOUT,
    CO_NOTICE_STOP,
    CO_NOTICES,
};

/* Once, after PHP and its extensions have started. */
void co_php_notice_hook(void);

/* In a worker: be ready for the signals, before any can come. The slot is lent for good. */
void co_php_notice_listen(const struct co_slot *slot);

/* The callable that gets the ticket; copied. NULL: none, and the signal is ignored. In a worker
 * that listens. */
void co_php_notice_set(enum co_notice which, zval *handler);

/* The ticket that runs from now on; 0 = none. */
void co_php_notice_run(uint64_t ticket);

#endif /* CO_WORKER_PHP_NOTICE_H */
