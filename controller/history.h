/* What an agent remembers, and the stack of a worker, as pages for people. Pure. */

#ifndef CO_CONTROLLER_HISTORY_H
#define CO_CONTROLLER_HISTORY_H

#include <stdint.h>

#include "controller/table.h"
#include "proto/report.h"

void co_history_exits(struct co_text *text, const struct co_report_exit *list, uint32_t n);
void co_history_slow(struct co_text *text, const struct co_report_slow *list, uint32_t n);
void co_history_minutes(struct co_text *text, const struct co_report_minute *list, uint32_t n);

/* One line of a stack; file is "" for a function of PHP's own. */
void co_history_frame(struct co_text *text, uint32_t index, const char *function, const char *file,
                      uint64_t line);

#endif /* CO_CONTROLLER_HISTORY_H */
