/* Text for people: a buffer that knows how much it would need, and tables in it. Pure. */

#ifndef CO_CONTROLLER_TABLE_H
#define CO_CONTROLLER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/time.h"

struct co_text {
    char *buf;
    size_t size;
    size_t len; /* Needed, without the NUL; the text is cut when this is not below size. */
    bool color;
};

/* Append, as printf. */
void co_table_put(struct co_text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

enum co_style {
    CO_STYLE_PLAIN,
    CO_STYLE_BOLD,
    CO_STYLE_DIM,
    CO_STYLE_GOOD,
    CO_STYLE_WARN,
    CO_STYLE_BAD
};

/* Append words in a style (no more than words without color). */
void co_table_style(struct co_text *text, enum co_style style, const char *words);

/* Append foreign text on one line: what is no printable UTF-8 becomes "?". */
void co_table_foreign(struct co_text *text, const char *foreign);

#define CO_CELL_SIZE 160
#define CO_COLUMNS_MAX 16

struct co_table {
    size_t columns;
    const char *heads[CO_COLUMNS_MAX];
    bool right[CO_COLUMNS_MAX]; /* Numbers stand to the right. */
    size_t rows;
    /* Write the cells of a row; asked twice, for the widths and for the text. */
    void (*row)(const void *arg, size_t row, char cells[][CO_CELL_SIZE]);
    const void *arg;
};

/* Append the table; columns are as wide as their widest cell. */
void co_table_write(struct co_text *text, const struct co_table *table);

/* Append a cell's text, cut with "…" when it is too long for it. */
void co_table_cell(char cell[CO_CELL_SIZE], const char *value);

/* For people: "1.6 ms", "2.5 s", "3m 12s", "5h 4m", "12d 3h". */
#define CO_HUMAN_SIZE 32
const char *co_table_us(uint64_t us, char buf[CO_HUMAN_SIZE]);
const char *co_table_ms(co_ms ms, char buf[CO_HUMAN_SIZE]);
/* "812 B", "1.5 MiB". */
const char *co_table_bytes(uint64_t bytes, char buf[CO_HUMAN_SIZE]);

#endif /* CO_CONTROLLER_TABLE_H */
