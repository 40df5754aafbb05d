#include "worker/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/utf8.h"

void co_text_init(struct co_text *text, char *buf, size_t size)
{
    *text = (struct co_text){.buf = buf, .size = size};
    buf[0] = '\0';
}

void co_text_add(struct co_text *text, const char *bytes, size_t size)
{
    size_t room = text->size - 1 - text->at;
    size_t n = size < room ? size : room;

    memcpy(text->buf + text->at, bytes, n);
    text->at += n;
    text->buf[text->at] = '\0';
}

void co_text_print(struct co_text *text, const char *format, ...)
{
    size_t room = text->size - text->at;
    va_list args;

    va_start(args, format);
    int n = vsnprintf(text->buf + text->at, room, format, args);
    va_end(args);
    if (n > 0) {
        text->at += (size_t)n < room ? (size_t)n : room - 1;
    }
}

static void add_char(struct co_text *text, const char *at, size_t size)
{
    unsigned char c = (unsigned char)*at;

    if (size == 0) {
        co_text_add(text, CO_UTF8_REPLACEMENT, sizeof CO_UTF8_REPLACEMENT - 1);
    } else if (c < 0x20) {
        co_text_print(text, "\\u%04x", c);
    } else {
        if (c == '"' || c == '\\') {
            co_text_add(text, "\\", 1);
        }
        co_text_add(text, at, size);
    }
}

void co_text_add_json(struct co_text *text, const char *bytes, size_t size)
{
    co_text_add(text, "\"", 1);
    for (size_t at = 0; at < size;) {
        size_t step = co_utf8_step(bytes + at, size - at);
        add_char(text, bytes + at, step);
        at += step > 0 ? step : 1;
    }
    co_text_add(text, "\"", 1);
}
