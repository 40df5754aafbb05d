/* UTF-8 as Unicode and JSON want it: no overlong forms, no surrogates, nothing above U+10FFFF. */

#ifndef CO_PROTO_UTF8_H
#define CO_PROTO_UTF8_H

#include <stddef.h>

#define CO_UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD, for bytes that are no text. */

/* Bytes of the character at text (1 to 4), or 0 when it is invalid or cut. size is at least 1. */
size_t co_utf8_step(const char *text, size_t size);

/* Write code point (at most 0x10ffff) as UTF-8 into buf; returns its size, 1 to 4. */
size_t co_utf8_put(unsigned code, char buf[4]);

#endif /* CO_PROTO_UTF8_H */
