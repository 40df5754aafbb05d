/* The other programs: those that lie beside this one, and what they print. */

#ifndef CO_CONTROLLER_BESIDE_OS_H
#define CO_CONTROLLER_BESIDE_OS_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/err.h"

/* The path of a program beside this one, as it lies on the disk. */
bool co_beside_find(const char *program, char *buf, size_t size);

/* Run a program found by PATH (or by a path) and take its standard output, malloc'd and
 * NUL-terminated; what it writes to standard error is put into err when it fails.
 *
 * Errors: CO_ENOTFOUND when there is no such program, CO_EAPP when it fails, CO_EIO, CO_ENOMEM. */
int co_beside_output(const char *const argv[], char **ret_output, struct co_err *err);

#endif /* CO_CONTROLLER_BESIDE_OS_H */
