/* A worker's seat: its end of the wire. Waiting, waking and overflow files around dispatch.h. */

#ifndef CO_WORKER_SEAT_OS_H
#define CO_WORKER_SEAT_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/zygote.h"
#include "worker/dispatch.h"

struct co_seat {
    struct co_wire *wire;
    struct co_bell *bell;
    int wake_fd;
    uint64_t cursor; /* Read position in the ring to the worker. */
    unsigned spin;   /* Looks at the ring before it sleeps; follows how often that paid. */
    char path[CO_ZYGOTE_PATH_SIZE];
    uint8_t scratch[CO_RECORD_MAX];
};

/* Map the wire and the bell and check them. Errors: CO_EIO, CO_EMALFORMED, CO_EVERSION. */
int co_seat_open(struct co_seat *seat, const char *wire_path, const char *bell_path, int wake_fd,
                 struct co_err *err);

/* Read the next record; its body is lent until co_seat_release(). Returns 1, or 0 when there is
 * none, or CO_EMALFORMED. */
int co_seat_take(struct co_seat *seat, struct co_record *ret_record);
void co_seat_release(struct co_seat *seat);

/* Wait until a record is there, a signal came or wait_ms passed (0: no limit). The caller looks
 * again either way. */
void co_seat_wait(struct co_seat *seat, unsigned wait_ms);

/* Publish a record and wake the agent if it sleeps. Waits for room as long as it takes: an outcome
 * is never dropped. */
void co_seat_send(struct co_seat *seat, const struct co_record *record);

/* As co_seat_send(), but false instead of waiting. */
bool co_seat_offer(struct co_seat *seat, const struct co_record *record);

/* Size of the overflow file to the worker. The bytes are read into buf (exactly size of them), and
 * the file is gone then. Errors: CO_EIO, CO_EMALFORMED when the size is another. */
int co_seat_overflow_size(const struct co_seat *seat, uint64_t ticket, uint64_t *ret_size,
                          struct co_err *err);
int co_seat_overflow_read(const struct co_seat *seat, uint64_t ticket, char *buf, uint64_t size,
                          struct co_err *err);

/* Write the overflow file to the agent. Error: CO_EIO. */
int co_seat_overflow_write(const struct co_seat *seat, uint64_t ticket, const char *buf,
                           size_t size, struct co_err *err);

#endif /* CO_WORKER_SEAT_OS_H */
