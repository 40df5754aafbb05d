/* The view as pages for people: what `cohort status`, `workers` and `queues` print. Pure. */

#ifndef CO_CONTROLLER_PAGE_H
#define CO_CONTROLLER_PAGE_H

#include "controller/table.h"
#include "proto/view.h"

void co_page_status(struct co_text *text, const struct co_view *view);
void co_page_workers(struct co_text *text, const struct co_view *view);
void co_page_queues(struct co_text *text, const struct co_view *view);

#endif /* CO_CONTROLLER_PAGE_H */
