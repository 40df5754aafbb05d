/* Asking the agent, and telling people what came of it. */

#ifndef CO_CONTROLLER_ASK_OS_H
#define CO_CONTROLLER_ASK_OS_H

#include <stddef.h>

#include "controller/cli.h"
#include "proto/cli_json.h"
#include "proto/err.h"
#include "proto/view.h"

/* Ask and wait. args is JSON text or NULL. On success the answer's data is malloc'd JSON text.
 *
 * Errors: CO_EUNREACHABLE; CO_EAPP when the agent or the application refused, err holds its words;
 * others as they come. */
int co_ask(const struct co_cli *cli, const char *op, const char *args, char **ret_data,
           struct co_err *err);

/* The status as a view; lent until the next call. */
int co_ask_view(const struct co_cli *cli, bool workers, const struct co_view **ret_view,
                struct co_err *err);

/* Print "cohort: …" (or with --json an object with "error") and return the exit code that goes
 * with the error. */
int co_ask_fail(const struct co_cli *cli, const struct co_err *err);

/* Print JSON text that is malloc'd and given away; NULL is "out of memory". Returns the exit
 * code. */
int co_ask_print(char *json);

/* Print a page of anything: it is asked twice, for the size and for the text. */
struct co_text;
int co_ask_write(const struct co_cli *cli, void (*page)(struct co_text *text, const void *arg),
                 const void *arg);

/* Print a page of the view. */
int co_ask_page(const struct co_cli *cli, const struct co_view *view,
                void (*page)(struct co_text *text, const struct co_view *view));

#endif /* CO_CONTROLLER_ASK_OS_H */
