#include "proto/utf8.h"

#include <assert.h>
#include <stdbool.h>

static bool is_tail(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

/* The second byte is where overlong forms, surrogates and too large code points show. */
static bool second_fits(unsigned char first, unsigned char second)
{
    switch (first) {
    case 0xe0:
        return second >= 0xa0 && second <= 0xbf;
    case 0xed:
        return second >= 0x80 && second <= 0x9f;
    case 0xf0:
        return second >= 0x90 && second <= 0xbf;
    case 0xf4:
        return second >= 0x80 && second <= 0x8f;
    default:
        return is_tail(second);
    }
}

size_t co_utf8_step(const char *text, size_t size)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t need;

    assert(size > 0);
    if (p[0] < 0x80) {
        return 1;
    }
    if (p[0] < 0xc2 || p[0] > 0xf4) {
        return 0;
    }
    need = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (size < need || !second_fits(p[0], p[1])) {
        return 0;
    }
    for (size_t i = 2; i < need; i++) {
        if (!is_tail(p[i])) {
            return 0;
        }
    }
    return need;
}

size_t co_utf8_put(unsigned code, char buf[4])
{
    assert(code <= 0x10ffff);
    if (code < 0x80) {
        buf[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        buf[0] = (char)(0xc0 | code >> 6);
        buf[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        buf[0] = (char)(0xe0 | code >> 12);
        buf[1] = (char)(0x80 | (code >> 6 & 0x3f));
        buf[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    buf[0] = (char)(0xf0 | code >> 18);
    buf[1] = (char)(0x80 | (code >> 12 & 0x3f));
    buf[2] = (char)(0x80 | (code >> 6 & 0x3f));
    buf[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}
