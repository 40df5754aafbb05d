/* Answers of the control protocol that the agent puts together itself. All return malloc'd JSON
 * text, NULL when out of memory. */

#ifndef CO_PROTO_REPORT_H
#define CO_PROTO_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/time.h"
#include "proto/view.h"

struct co_report_quarantined {
    int64_t id;
    const char *connection;
    const char *queue;
    const char *reason;
    co_unix since;
    uint64_t payload_size;
};

/* {"jobs":[{"id","connection","queue","reason","since","payload_size"}]} */
char *co_report_quarantine(const struct co_report_quarantined *list, uint32_t n);

/* {"version":…,"pid":…} */
char *co_report_ping(const struct co_view *view);

/* {NAME: count} */
char *co_report_count(const char *name, uint64_t count);

/* What doctor says: the application's own part (JSON text with "php" and "app", or NULL when it
 * does not answer), the queues nobody serves, foreign workers, and what the view complains of. */
char *co_report_doctor(const struct co_view *view, const char *app_json);

/* Read {"ids":[…]} or {"all":true}: numbers, or strings of digits. Returns how many ids were
 * written, or CO_EMALFORMED. */
int co_report_ids(const char *args, int64_t *ret_ids, uint32_t max, bool *ret_all);

#endif /* CO_PROTO_REPORT_H */
