/* The messages of a fleet (proto/fleet.h) as bytes.
 *
 *     frame  = "CF" version kind field*           version and kind: a byte each
 *     field  = tag size value                     tag: a byte; size: two bytes, big-endian
 *     value  = number | text | bytes | field*     by tag; numbers big-endian, without leading zero
 *                                                 bytes, so 0 has none; text has no NUL
 *
 * A number that is 0 and an empty text are left out. Tags below 16 are the envelope's: 1 from,
 * 2 incarnation, 3 seq, 4 the sender's address (text), 5 the highest version it speaks. Those of
 * the kinds stand in fleet_frame.c; a tag is never used for anything else again. Unknown ones are
 * skipped, a field that comes twice counts the second time, elements of a list are appended.
 *
 * version is the one the frame is written in: the lowest any agent of the fleet speaks, and what
 * it did not know is left out. */

#ifndef CO_PROTO_FLEET_FRAME_H
#define CO_PROTO_FLEET_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/fleet.h"

#define CO_FLEET_FRAME_MAX (48u << 10) /* No message is longer. */
#define CO_FLEET_ADDRESS_SIZE 64

/* Write msg in a version. Errors: CO_ETOOBIG; CO_EVERSION for one that is not spoken. */
int co_fleet_frame_write(const struct co_fleet_msg *msg, uint8_t version, const char *address,
                         uint8_t *buf, size_t size, size_t *ret_size);

/* Read a frame; msg is untouched on failure, and what it holds has passed co_fleet_check().
 * Errors: CO_EMALFORMED, CO_EVERSION. */
int co_fleet_frame_read(const uint8_t *frame, size_t size, struct co_fleet_msg *ret_msg,
                        char ret_address[CO_FLEET_ADDRESS_SIZE]);

#endif /* CO_PROTO_FLEET_FRAME_H */
