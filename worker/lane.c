/* The staged lane: its agent's and its workers' side. */

#include <assert.h>
#include <string.h>

#include "proto/err.h"
#include "worker/dispatch.h"

/* Where a test stalls or kills whoever comes by. */
#ifndef CO_LANE_STEP
#define CO_LANE_STEP(step)
#endif

#define OWNER_NONE 0u /* Taken back. */
#define OWNER_STAGED 1u
#define OWNER_FIRST 16u /* And the worker's place. */
#define OWNER_READ 0x8000u
#define OWNER_MASK 0x7fffu
#define TRIES 8 /* A worker that always finds another's lap comes again later. */

_Static_assert((CO_LANE_CELLS & (CO_LANE_CELLS - 1)) == 0, "positions are masked");

static uint32_t cell_of(uint64_t position)
{
    return (uint32_t)position & (CO_LANE_CELLS - 1);
}

static uint64_t word_of(uint64_t position, uint32_t owner)
{
    return position << 16 | owner;
}

static uint32_t owner_of(uint64_t word)
{
    return (uint32_t)word & OWNER_MASK;
}

static bool is_taken(uint64_t word, uint64_t position)
{
    return word >> 16 == position && owner_of(word) >= OWNER_FIRST;
}

/* Nobody can take that position any more. */
static bool is_past(uint64_t word, uint64_t position)
{
    return is_taken(word, position) || word == word_of(position, OWNER_NONE);
}

void co_lane_init(struct co_lane *lane, uint64_t agent_id, struct co_stager *stager)
{
    memset(lane, 0, sizeof *lane);
    lane->version = CO_WIRE_VERSION;
    lane->agent_id = agent_id;
    /* Position 0 is never used: words of a fresh file are of no position that is looked at. */
    atomic_store_explicit(&lane->tail, 1, memory_order_relaxed);
    atomic_store_explicit(&lane->head, 1, memory_order_relaxed);
    atomic_store_explicit(&lane->bell_from, UINT64_MAX, memory_order_relaxed);
    lane->magic = CO_LANE_MAGIC;
    *stager = (struct co_stager){.lane = lane, .head = 1, .tail = 1};
}

int co_lane_check(const struct co_lane *lane, size_t size)
{
    if (size < sizeof *lane || lane->magic != CO_LANE_MAGIC) {
        return CO_EMALFORMED;
    }
    return lane->version == CO_WIRE_VERSION ? CO_OK : CO_EVERSION;
}

/* ---- the agent's side ---- */

/* Cells at the tail that were taken and read, or whose reader is dead, are free again. */
static void advance(struct co_stager *stager)
{
    uint64_t tail = stager->tail;

    while (tail < stager->head && stager->at[cell_of(tail)].taken) {
        uint64_t word =
            atomic_load_explicit(&stager->lane->words[cell_of(tail)], memory_order_acquire);
        if (!stager->at[cell_of(tail)].gone && (word & OWNER_READ) == 0) {
            break;
        }
        tail += 1;
    }
    if (tail != stager->tail) {
        stager->tail = tail;
        atomic_store_explicit(&stager->lane->tail, tail, memory_order_release);
    }
}

int co_lane_stage(struct co_stager *stager, const struct co_record *record)
{
    struct co_lane *lane = stager->lane;
    uint64_t position = stager->head;
    uint32_t i = cell_of(position);
    struct co_lane_cell *cell = &lane->cells[i];

    if (record->size > CO_LANE_BODY_MAX) {
        return CO_ETOOBIG;
    }
    advance(stager);
    if (position - stager->tail >= CO_LANE_CELLS) {
        return CO_EFULL;
    }
    cell->ticket = record->ticket;
    cell->size = record->size;
    cell->type = record->type;
    cell->flags = record->flags;
    if (record->size > 0) {
        memcpy(cell->body, record->body, record->size);
    }
    stager->at[i].ticket = record->ticket;
    stager->at[i].taken = stager->at[i].gone = false;
    CO_LANE_STEP(1);
    atomic_store_explicit(&lane->words[i], word_of(position, OWNER_STAGED), memory_order_release);
    CO_LANE_STEP(2);
    /* One total order with a sleeper's announcement and its last look: see co_ring_push(). */
    stager->head = position + 1;
    atomic_store_explicit(&lane->head, position + 1, memory_order_seq_cst);
    CO_LANE_STEP(3);
    return CO_OK;
}

int co_lane_recall(struct co_stager *stager, uint64_t *ret_ticket)
{
    uint64_t position = stager->head;

    while (position > stager->tail) {
        uint32_t i = cell_of(--position);
        uint64_t word = word_of(position, OWNER_STAGED);
        if (stager->at[i].gone && stager->at[i].ticket == 0) {
            continue; /* Void. */
        }
        CO_LANE_STEP(4);
        if (stager->at[i].taken) {
            return 0;
        }
        if (!atomic_compare_exchange_strong_explicit(&stager->lane->words[i], &word,
                                                     word_of(position, OWNER_NONE),
                                                     memory_order_acq_rel, memory_order_acquire)) {
            return is_taken(word, position) ? 0 : CO_EMALFORMED;
        }
        CO_LANE_STEP(5);
        *ret_ticket = stager->at[i].ticket;
        stager->at[i].ticket = 0;
        stager->at[i].taken = stager->at[i].gone = true;
        advance(stager);
        return 1;
    }
    return 0;
}

int co_lane_taken(const struct co_stager *stager, uint64_t *cursor, uint64_t *ret_ticket,
                  uint32_t *ret_place)
{
    uint64_t position = *cursor > stager->tail ? *cursor : stager->tail;

    for (; position < stager->head; position++) {
        uint32_t i = cell_of(position);
        uint64_t word;
        if (stager->at[i].taken) {
            continue;
        }
        word = atomic_load_explicit(&stager->lane->words[i], memory_order_acquire);
        if (word == word_of(position, OWNER_STAGED)) {
            break; /* And so are all behind it. */
        }
        if (!is_taken(word, position)) {
            return CO_EMALFORMED;
        }
        *ret_ticket = stager->at[i].ticket;
        *ret_place = owner_of(word) - OWNER_FIRST;
        *cursor = position + 1;
        return 1;
    }
    *cursor = position;
    return 0;
}

/* The position of a ticket in the lane; the head: it is not there. */
static uint64_t find(const struct co_stager *stager, uint64_t ticket)
{
    uint64_t position = stager->tail;

    while (position < stager->head && stager->at[cell_of(position)].ticket != ticket) {
        position += 1;
    }
    return position;
}

bool co_lane_has(const struct co_stager *stager, uint64_t ticket, uint32_t place)
{
    uint64_t position = find(stager, ticket);
    uint64_t word;

    if (position == stager->head) {
        return false;
    }
    word = atomic_load_explicit(&stager->lane->words[cell_of(position)], memory_order_acquire);
    return is_taken(word, position) && owner_of(word) == OWNER_FIRST + place;
}

void co_lane_bind(struct co_stager *stager, uint64_t ticket)
{
    uint64_t position = find(stager, ticket);

    if (position < stager->head) {
        stager->at[cell_of(position)].taken = true;
        advance(stager);
    }
}

void co_lane_bury(struct co_stager *stager, uint32_t place)
{
    for (uint64_t position = stager->tail; position < stager->head; position++) {
        uint32_t i = cell_of(position);
        uint64_t word = atomic_load_explicit(&stager->lane->words[i], memory_order_acquire);
        if (stager->at[i].taken && owner_of(word) == OWNER_FIRST + place) {
            stager->at[i].gone = true;
        }
    }
    advance(stager);
}

/* ---- a worker's side ---- */

uint64_t co_lane_head(const struct co_lane *lane)
{
    return atomic_load_explicit(&lane->head, memory_order_seq_cst);
}

/* One walk from the tail: 1 taken, 0 nothing there, -1 the lane moved on under us. */
static int walk(struct co_lane *lane, uint64_t head, uint32_t place, co_ms now,
                uint64_t *ret_position)
{
    uint64_t tail = atomic_load_explicit(&lane->tail, memory_order_acquire);

    if (tail >= head || head - tail > CO_LANE_CELLS) {
        return 0; /* Nothing, or nonsense. */
    }
    for (uint64_t position = tail; position != head; position++) {
        _Atomic uint64_t *at = &lane->words[cell_of(position)];
        uint64_t word = atomic_load_explicit(at, memory_order_acquire);
        CO_LANE_STEP(6);
        if (word == word_of(position, OWNER_STAGED)) {
            if (now > atomic_load_explicit(&lane->fresh_until, memory_order_acquire)) {
                return 0;
            }
            CO_LANE_STEP(7);
            if (atomic_compare_exchange_strong_explicit(
                    at, &word, word_of(position, OWNER_FIRST + place), memory_order_acq_rel,
                    memory_order_acquire)) {
                CO_LANE_STEP(8);
                *ret_position = position;
                return 1;
            }
        }
        if (!is_past(word, position)) {
            return -1; /* Of another lap. */
        }
    }
    return 0;
}

int co_lane_take(struct co_lane *lane, uint64_t head, uint32_t place, co_ms now,
                 struct co_record *ret_record, uint64_t *ret_position, bool *ret_ring)
{
    const struct co_lane_cell *cell;
    uint64_t position = 0;
    int rc = -1;

    assert(place < OWNER_MASK - OWNER_FIRST);
    for (int i = 0; i < TRIES && rc < 0; i++) {
        rc = walk(lane, head, place, now, &position);
    }
    if (rc <= 0) {
        return 0;
    }
    cell = &lane->cells[cell_of(position)];
    /* The agent fills a cell rightly; another worker may have written into it since. */
    if (cell->size > CO_LANE_BODY_MAX) {
        return CO_EMALFORMED;
    }
    *ret_record = (struct co_record){.type = cell->type,
                                     .flags = cell->flags,
                                     .ticket = cell->ticket,
                                     .body = cell->body,
                                     .size = cell->size};
    *ret_position = position;
    *ret_ring = position >= atomic_load_explicit(&lane->bell_from, memory_order_relaxed);
    return 1;
}

void co_lane_read(struct co_lane *lane, uint64_t position, uint32_t place)
{
    CO_LANE_STEP(9);
    atomic_store_explicit(&lane->words[cell_of(position)],
                          word_of(position, (OWNER_FIRST + place) | OWNER_READ),
                          memory_order_release);
}

bool co_lane_waits(const struct co_lane *lane, co_ms now)
{
    uint64_t head = co_lane_head(lane);
    uint64_t tail = atomic_load_explicit(&lane->tail, memory_order_acquire);

    if (head - tail > CO_LANE_CELLS ||
        now > atomic_load_explicit(&lane->fresh_until, memory_order_acquire)) {
        return false;
    }
    /* From the end, where what is staged stands. */
    while (head != tail) {
        uint64_t word = atomic_load_explicit(&lane->words[cell_of(--head)], memory_order_acquire);
        if (!is_past(word, head)) {
            return true; /* Also when it is of another lap: a look costs less than a lost wake-up.
                          */
        }
        if (is_taken(word, head)) {
            return false;
        }
    }
    return false;
}
