/* Text that grows into a fixed buffer and is cut at its end; always terminated. */

#ifndef CO_WORKER_TEXT_H
#define CO_WORKER_TEXT_H

#include <stddef.h>

struct co_text {
    char *buf;
    size_t at;
    size_t size; /* At least 1. */
};

void co_text_init(struct co_text *text, char *buf, size_t size);
void co_text_add(struct co_text *text, const char *bytes, size_t size);
void co_text_print(struct co_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A JSON string with its quotes. Bytes that are no UTF-8 become U+FFFD. */
void co_text_add_json(struct co_text *text, const char *bytes, size_t size);

#endif /* CO_WORKER_TEXT_H */
