#include "agent/holds.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define MASK (CO_HOLDS_INDEX_SIZE - 1)

_Static_assert((CO_HOLDS_INDEX_SIZE & MASK) == 0, "the index is masked");
_Static_assert(CO_HOLDS_MAX * 2 <= CO_HOLDS_INDEX_SIZE, "probing stays short");

static uint32_t home_of(uint32_t table, int64_t job_id)
{
    uint64_t mixed = ((uint64_t)job_id + table * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    return (uint32_t)(mixed >> 40) & MASK;
}

/* The job's place in the index, or the free place where its search ended. */
static uint32_t place_of(const struct co_holds *holds, uint32_t table, int64_t job_id)
{
    uint32_t place = home_of(table, job_id);

    while (holds->index[place] != 0) {
        const struct co_hold *hold = &holds->list[holds->index[place] - 1];
        if (hold->job_id == job_id && hold->table == table) {
            break;
        }
        place = (place + 1) & MASK;
    }
    return place;
}

void co_holds_init(struct co_holds *holds)
{
    memset(holds, 0, sizeof *holds);
}

struct co_hold *co_holds_get(struct co_holds *holds, uint32_t table, int64_t job_id)
{
    uint32_t position = holds->index[place_of(holds, table, job_id)];
    return position == 0 ? NULL : &holds->list[position - 1];
}

int co_holds_put(struct co_holds *holds, const struct co_hold *hold)
{
    uint32_t place = place_of(holds, hold->table, hold->job_id);

    if (holds->index[place] == 0) {
        if (holds->n == CO_HOLDS_MAX) {
            return CO_EFULL;
        }
        holds->index[place] = (uint16_t)++holds->n;
    }
    holds->list[holds->index[place] - 1] = *hold;
    return 0;
}

/* Close the gap so that no search ends early: later entries of the run move up when their home
 * lies at or before the gap. */
static void close_gap(struct co_holds *holds, uint32_t gap)
{
    uint32_t place = gap;

    for (;;) {
        place = (place + 1) & MASK;
        if (holds->index[place] == 0) {
            break;
        }
        const struct co_hold *hold = &holds->list[holds->index[place] - 1];
        uint32_t home = home_of(hold->table, hold->job_id);
        if (((place - home) & MASK) >= ((place - gap) & MASK)) {
            holds->index[gap] = holds->index[place];
            gap = place;
        }
    }
    holds->index[gap] = 0;
}

void co_holds_remove(struct co_holds *holds, uint32_t table, int64_t job_id)
{
    uint32_t place = place_of(holds, table, job_id);
    uint32_t position = holds->index[place];

    if (position == 0) {
        return;
    }
    assert(position <= holds->n);
    close_gap(holds, place);
    const struct co_hold *last = &holds->list[holds->n - 1];
    if (position != holds->n) {
        holds->index[place_of(holds, last->table, last->job_id)] = (uint16_t)position;
        holds->list[position - 1] = *last;
    }
    holds->n--;
}
