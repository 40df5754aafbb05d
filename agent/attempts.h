/* Where a Laravel payload for Redis counts its starts. Only these digits ever change: every other
 * byte of a payload is the application's. Pure. */

#ifndef CO_AGENT_ATTEMPTS_H
#define CO_AGENT_ATTEMPTS_H

#include <stddef.h>
#include <stdint.h>

#define CO_ATTEMPTS_TEXT 32

struct co_attempts {
    size_t at;      /* Where the digits begin; without the member, where it is to be inserted. */
    size_t size;    /* How many bytes they are; 0 when there is no such member. */
    uint32_t value; /* Starts so far. */
};

/* Look for the member "attempts" of the outermost object. The payload is valid JSON and an object
 * (co_payload_read() said so). A value that is no small number counts as 0 and is replaced. */
void co_attempts_find(const uint8_t *payload, size_t size, struct co_attempts *ret);

/* The text that takes the place of the bytes found, for so many starts. */
void co_attempts_text(const struct co_attempts *attempts, uint32_t value,
                      char ret_text[CO_ATTEMPTS_TEXT]);

#endif /* CO_AGENT_ATTEMPTS_H */
