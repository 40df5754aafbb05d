#include "controller/table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/utf8.h"

#define GAP 2 /* Between columns. */
#define ELLIPSIS "\xe2\x80\xa6"

void co_table_put(struct co_text *text, const char *fmt, ...)
{
    size_t room = text->len < text->size ? text->size - text->len : 0;
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(room > 0 ? text->buf + text->len : NULL, room, fmt, args);
    va_end(args);
    text->len += n > 0 ? (size_t)n : 0;
}

void co_table_style(struct co_text *text, enum co_style style, const char *words)
{
    static const char *const codes[] = {
        [CO_STYLE_PLAIN] = "",  [CO_STYLE_BOLD] = "1",  [CO_STYLE_DIM] = "2",
        [CO_STYLE_GOOD] = "32", [CO_STYLE_WARN] = "33", [CO_STYLE_BAD] = "31",
    };

    if (text->color && style != CO_STYLE_PLAIN) {
        co_table_put(text, "\033[%sm%s\033[0m", codes[style], words);
    } else {
        co_table_put(text, "%s", words);
    }
}

/* Bytes of the printable character at p, or 0. */
static size_t printable(const char *p, size_t size)
{
    size_t step = co_utf8_step(p, size);
    unsigned char c = (unsigned char)*p;
    bool c1 = step == 2 && c == 0xc2 && (unsigned char)p[1] < 0xa0; /* C1 controls. */

    return c < ' ' || c == 0x7f || c1 ? 0 : step;
}

void co_table_foreign(struct co_text *text, const char *foreign)
{
    size_t size = strlen(foreign);

    for (size_t at = 0; at < size;) {
        size_t step = printable(foreign + at, size - at);
        co_table_put(text, "%.*s", step > 0 ? (int)step : 1, step > 0 ? foreign + at : "?");
        at += step > 0 ? step : 1;
    }
}

void co_table_cell(char cell[CO_CELL_SIZE], const char *value)
{
    size_t size = strlen(value);
    size_t used = strlen(cell);

    for (size_t at = 0; at < size;) {
        size_t step = printable(value + at, size - at);
        size_t n = step > 0 ? step : 1;
        if (used + n + sizeof ELLIPSIS > CO_CELL_SIZE) {
            memcpy(cell + used, ELLIPSIS, sizeof ELLIPSIS);
            return;
        }
        memcpy(cell + used, step > 0 ? value + at : "?", n);
        used += n;
        at += n;
    }
    cell[used] = '\0';
}

/* Characters, not bytes: good enough for names in most scripts. */
static size_t width_of(const char *cell)
{
    size_t width = 0;

    for (; *cell != '\0'; cell++) {
        width += ((unsigned char)*cell & 0xc0) != 0x80;
    }
    return width;
}

static void get_row(const struct co_table *table, size_t row, char cells[][CO_CELL_SIZE])
{
    for (size_t c = 0; c < table->columns; c++) {
        cells[c][0] = '\0';
    }
    table->row(table->arg, row, cells);
}

static void write_row(struct co_text *text, const struct co_table *table, const size_t *widths,
                      char cells[][CO_CELL_SIZE])
{
    for (size_t c = 0; c < table->columns; c++) {
        int pad = (int)(widths[c] - width_of(cells[c]));
        bool last = c + 1 == table->columns;
        if (table->right[c]) {
            co_table_put(text, "%*s%s", pad, "", cells[c]);
        } else {
            co_table_put(text, "%s%*s", cells[c], last ? 0 : pad, "");
        }
        co_table_put(text, "%*s", last ? 0 : GAP, "");
    }
    co_table_put(text, "\n");
}

static void write_heads(struct co_text *text, const struct co_table *table, const size_t *widths)
{
    char cells[CO_COLUMNS_MAX][CO_CELL_SIZE];

    for (size_t c = 0; c < table->columns; c++) {
        snprintf(cells[c], CO_CELL_SIZE, "%s", table->heads[c]);
    }
    co_table_put(text, "%s", text->color ? "\033[1m" : "");
    write_row(text, table, widths, cells);
    co_table_put(text, "%s", text->color ? "\033[0m" : "");
}

void co_table_write(struct co_text *text, const struct co_table *table)
{
    char cells[CO_COLUMNS_MAX][CO_CELL_SIZE];
    size_t widths[CO_COLUMNS_MAX];

    assert(table->columns <= CO_COLUMNS_MAX);
    for (size_t c = 0; c < table->columns; c++) {
        widths[c] = width_of(table->heads[c]);
    }
    for (size_t r = 0; r < table->rows; r++) {
        get_row(table, r, cells);
        for (size_t c = 0; c < table->columns; c++) {
            size_t width = width_of(cells[c]);
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    write_heads(text, table, widths);
    for (size_t r = 0; r < table->rows; r++) {
        get_row(table, r, cells);
        write_row(text, table, widths, cells);
    }
}

const char *co_table_us(uint64_t us, char buf[CO_HUMAN_SIZE])
{
    if (us < 1000) {
        snprintf(buf, CO_HUMAN_SIZE, "%" PRIu64 " us", us);
    } else if (us < 1000000) {
        snprintf(buf, CO_HUMAN_SIZE, "%.1f ms", (double)us / 1e3);
    } else {
        co_table_ms(us / 1000, buf);
    }
    return buf;
}

const char *co_table_ms(co_ms ms, char buf[CO_HUMAN_SIZE])
{
    uint64_t s = ms / 1000;

    if (ms < 1000) {
        snprintf(buf, CO_HUMAN_SIZE, "%" PRIu64 " ms", ms);
    } else if (s < 60) {
        snprintf(buf, CO_HUMAN_SIZE, "%.1f s", (double)ms / 1e3);
    } else if (s < 3600) {
        snprintf(buf, CO_HUMAN_SIZE, "%" PRIu64 "m %" PRIu64 "s", s / 60, s % 60);
    } else if (s < 86400) {
        snprintf(buf, CO_HUMAN_SIZE, "%" PRIu64 "h %" PRIu64 "m", s / 3600, s / 60 % 60);
    } else {
        snprintf(buf, CO_HUMAN_SIZE, "%" PRIu64 "d %" PRIu64 "h", s / 86400, s / 3600 % 24);
    }
    return buf;
}

const char *co_table_bytes(uint64_t bytes, char buf[CO_HUMAN_SIZE])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes / 1024;
    size_t unit = 0;

    if (bytes < 1024) {
        snprintf(buf, CO_HUMAN_SIZE, "%" PRIu64 " B", bytes);
        return buf;
    }
    while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    snprintf(buf, CO_HUMAN_SIZE, "%.1f %s", value, units[unit]);
    return buf;
}
