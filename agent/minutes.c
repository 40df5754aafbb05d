#include "agent/minutes.h"

#include <assert.h>
#include <string.h>

#include "proto/utf8.h"

/* Copy text, cut between characters when it is too long. */
static void copy(char *buf, size_t size, const char *text)
{
    size_t left = text != NULL ? strnlen(text, size + 4) : 0;
    size_t used = 0;

    while (left > 0) {
        size_t step = co_utf8_step(text + used, left);
        step = step == 0 ? 1 : step;
        if (used + step >= size) {
            break;
        }
        memcpy(buf + used, text + used, step);
        used += step;
        left -= step;
    }
    buf[used] = '\0';
}

static co_unix minute_of(co_unix now)
{
    return now - ((now % 60) + 60) % 60;
}

/* FNV-1a; the NUL between the texts counts, so that "a","bc" is not "ab","c". */
static uint32_t hash(uint32_t h, const char *text)
{
    do {
        h = (h ^ (unsigned char)*text) * 16777619u;
    } while (*text++ != '\0');
    return h;
}

static uint32_t place_of(const struct co_report_minute *key)
{
    uint32_t h = hash(2166136261u, key->pool);

    h = hash(hash(hash(h, key->connection), key->queue), key->job);
    return (h ^ h >> 16) % CO_MINUTES_PLACES;
}

static bool same(const struct co_report_minute *a, const struct co_report_minute *b)
{
    return strcmp(a->job, b->job) == 0 && strcmp(a->queue, b->queue) == 0 &&
           strcmp(a->connection, b->connection) == 0 && strcmp(a->pool, b->pool) == 0;
}

static struct co_report_minute *add_row(struct co_minutes *minutes, uint32_t place,
                                        const struct co_report_minute *key)
{
    struct co_report_minute *row = &minutes->rows[minutes->n++];

    *row = *key;
    minutes->places[place] = (uint16_t)minutes->n;
    return row;
}

/* The row of a key, made when there is room; NULL when there is none. There are twice as many
 * places as rows, so a search always meets an empty one. */
static struct co_report_minute *find(struct co_minutes *minutes, const struct co_report_minute *key,
                                     uint32_t max)
{
    for (uint32_t place = place_of(key);; place = (place + 1) % CO_MINUTES_PLACES) {
        uint32_t number = minutes->places[place];
        if (number == 0) {
            return minutes->n < max ? add_row(minutes, place, key) : NULL;
        }
        if (same(&minutes->rows[number - 1], key)) {
            return &minutes->rows[number - 1];
        }
    }
}

static struct co_report_minute *find_row(struct co_minutes *minutes,
                                         const struct co_minutes_end *end)
{
    struct co_report_minute key = {.minute = minutes->minute};

    copy(key.pool, sizeof key.pool, end->pool);
    copy(key.connection, sizeof key.connection, end->connection);
    copy(key.queue, sizeof key.queue, end->queue);
    copy(key.job, sizeof key.job, end->job);
    struct co_report_minute *row = find(minutes, &key, CO_MINUTES_MAX - 1);
    if (row == NULL) {
        key = (struct co_report_minute){.minute = minutes->minute,
                                        .pool = CO_MINUTES_OTHER,
                                        .connection = CO_MINUTES_OTHER,
                                        .queue = CO_MINUTES_OTHER,
                                        .job = CO_MINUTES_OTHER};
        row = find(minutes, &key, CO_MINUTES_MAX);
    }
    assert(row != NULL);
    return row;
}

static uint64_t *counter(struct co_report_minute *row, enum co_outcome outcome)
{
    switch (outcome) {
    case CO_OUTCOME_DONE:
        return &row->done;
    case CO_OUTCOME_FAILED:
        return &row->failed;
    case CO_OUTCOME_RELEASED:
    case CO_OUTCOME_LEFT:
        return &row->released;
    case CO_OUTCOME_CRASHED:
        return &row->crashed;
    case CO_OUTCOME_LOST:
    case CO_OUTCOME_DECLINED:
    case CO_OUTCOME_RETURNED:
    case CO_OUTCOME_QUARANTINED:
        break;
    }
    return NULL;
}

void co_minutes_start(struct co_minutes *minutes, co_unix now)
{
    minutes->minute = minute_of(now);
    minutes->n = 0;
    memset(minutes->places, 0, sizeof minutes->places);
}

void co_minutes_add(struct co_minutes *minutes, const struct co_minutes_end *end)
{
    struct co_report_minute none;

    if (counter(&none, end->outcome) == NULL) {
        return;
    }
    struct co_report_minute *row = find_row(minutes, end);
    ++*counter(row, end->outcome);
    row->timeouts += end->timeout;
    row->run_sum_us += end->run_us;
    row->wait_sum_us += end->wait_us;
    if (end->run_us > row->run_max_us) {
        row->run_max_us = end->run_us;
    }
}

bool co_minutes_over(const struct co_minutes *minutes, co_unix now)
{
    return minute_of(now) != minutes->minute;
}
