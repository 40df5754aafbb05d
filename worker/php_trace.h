/* The PHP stack of another process of this program, read from its memory while it runs on: no
 * signal, no stop. */

#ifndef CO_WORKER_PHP_TRACE_H
#define CO_WORKER_PHP_TRACE_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/err.h"

/* Write the stack to stdout, innermost call first, at most 64 calls: as text, or as
 * {"pid":n,"frames":[{"function":"...","file":"...","line":n},...]}. A call of PHP's own has the
 * place it was called from. No PHP running (yet or any more) is an empty stack.
 * Errors: CO_ENOTFOUND (no such process), CO_EIO (not allowed), CO_EUNSUPPORTED (no worker
 * of this build), CO_EAGAIN (it changed under every look). */
int co_php_trace(pid_t pid, bool json, struct co_err *err);

#endif /* CO_WORKER_PHP_TRACE_H */
