/* JSON values of C text, for this folder's JSON files. */

#ifndef CO_PROTO_TEXT_JSON_H
#define CO_PROTO_TEXT_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A JSON string of any bytes: what is no UTF-8 becomes U+FFFD. NULL when out of memory. */
json_t *co_text_json(const char *text);

/* The same as JSON text with its quotes, malloc'd. */
char *co_text_json_quote(const char *text);

/* Copy a member that is a string into buf, cut between characters when it is too long. False when
 * it is absent, no string, or was cut; buf is always a string after it. */
bool co_text_json_copy(const json_t *object, const char *member, char *buf, size_t size);

#endif /* CO_PROTO_TEXT_JSON_H */
