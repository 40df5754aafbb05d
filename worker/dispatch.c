#include "worker/dispatch.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "proto/err.h"

#define ALIGNMENT 16u /* Of records: a header never straddles the end of the ring. */
#define TYPE_PAD 0u   /* Fills the end of the ring when a record does not fit there. */
#define BODY_MAX (CO_RECORD_MAX - CO_RECORD_HEADER)

_Static_assert((CO_RING_SIZE & (CO_RING_SIZE - 1)) == 0, "positions are masked");
_Static_assert(2 * CO_RECORD_MAX <= CO_RING_SIZE, "an empty ring takes any record");

/* ---- bytes: little-endian, at any alignment ---- */

static uint8_t *put_bytes(uint8_t *p, const void *bytes, size_t size)
{
    if (size > 0) {
        memcpy(p, bytes, size);
    }
    return p + size;
}

static uint8_t *put_u16(uint8_t *p, uint16_t value)
{
    value = htole16(value);
    return put_bytes(p, &value, sizeof value);
}

static uint8_t *put_u32(uint8_t *p, uint32_t value)
{
    value = htole32(value);
    return put_bytes(p, &value, sizeof value);
}

static uint8_t *put_u64(uint8_t *p, uint64_t value)
{
    value = htole64(value);
    return put_bytes(p, &value, sizeof value);
}

static uint16_t get_u16(const uint8_t *p)
{
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return le16toh(value);
}

static uint32_t get_u32(const uint8_t *p)
{
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return le32toh(value);
}

static uint64_t get_u64(const uint8_t *p)
{
    uint64_t value;
    memcpy(&value, p, sizeof value);
    return le64toh(value);
}

/* ---- wire and bell ---- */

void co_wire_init(struct co_wire *wire, uint64_t agent_id, const char *pool, uint32_t worker,
                  uint32_t generation)
{
    memset(wire, 0, sizeof *wire);
    wire->slot.version = CO_WIRE_VERSION;
    wire->slot.agent_id = agent_id;
    wire->slot.worker = worker;
    wire->slot.generation = generation;
    memcpy(wire->slot.pool, pool, strnlen(pool, sizeof wire->slot.pool - 1));
    wire->slot.magic = CO_WIRE_MAGIC;
}

int co_wire_check(const struct co_wire *wire, size_t size)
{
    if (size < sizeof *wire || wire->slot.magic != CO_WIRE_MAGIC) {
        return CO_EMALFORMED;
    }
    if (wire->slot.version != CO_WIRE_VERSION) {
        return CO_EVERSION;
    }
    return memchr(wire->slot.pool, 0, sizeof wire->slot.pool) == NULL ? CO_EMALFORMED : CO_OK;
}

void co_bell_init(struct co_bell *bell)
{
    memset(bell, 0, sizeof *bell);
    bell->version = CO_WIRE_VERSION;
    bell->magic = CO_BELL_MAGIC;
}

int co_bell_check(const struct co_bell *bell, size_t size)
{
    if (size < sizeof *bell || bell->magic != CO_BELL_MAGIC) {
        return CO_EMALFORMED;
    }
    return bell->version == CO_WIRE_VERSION ? CO_OK : CO_EVERSION;
}

/* ---- slot ---- */

static uint64_t state_of(enum co_phase phase, uint64_t ticket)
{
    return (uint64_t)phase | ticket << 8;
}

static enum co_phase phase_of(uint64_t state)
{
    uint64_t phase = state & 0xff;
    /* A hostile worker may write anything; what is not known begins nothing. */
    return phase <= CO_PHASE_ENDING ? (enum co_phase)phase : CO_PHASE_ENDING;
}

enum co_phase co_slot_phase(const struct co_slot *slot, uint64_t *ret_ticket)
{
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    *ret_ticket = state >> 8;
    return phase_of(state);
}

static bool swap_state(struct co_slot *slot, uint64_t from, uint64_t to, co_ms now)
{
    if (!atomic_compare_exchange_strong_explicit(&slot->state, &from, to, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        return false;
    }
    atomic_store_explicit(&slot->since_ms, now, memory_order_relaxed);
    return true;
}

/* True when the agent took the ticket back before it began: nobody was killed for it, and the
 * worker may go on with another. */
static bool was_taken_back(const struct co_slot *slot, uint64_t state)
{
    return phase_of(state) == CO_PHASE_ENDING &&
           atomic_load_explicit(&slot->begun, memory_order_relaxed) != state >> 8;
}

bool co_slot_begin(struct co_slot *slot, uint64_t ticket, const struct co_job_ref *job, co_ms now)
{
    uint64_t lease = atomic_load_explicit(&slot->lease_until, memory_order_acquire);
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    bool free =
        phase_of(state) == CO_PHASE_IDLE || (was_taken_back(slot, state) && state >> 8 != ticket);

    assert(ticket > 0 && ticket < UINT64_C(1) << 56);
    if (!free || (lease != 0 && now >= lease)) {
        return false;
    }
    slot->job = *job;
    if (!swap_state(slot, state, state_of(CO_PHASE_RUNNING, ticket), now)) {
        return false;
    }
    atomic_store_explicit(&slot->begun, ticket, memory_order_release);
    return true;
}

bool co_slot_finish(struct co_slot *slot, uint64_t ticket, co_ms now)
{
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire);

    /* One retry: the agent moves a ticket to ENDING once, and nobody else writes. */
    for (int i = 0; i < 2; i++) {
        if (phase_of(state) == CO_PHASE_ENDING && !was_taken_back(slot, state)) {
            return false;
        }
        if (swap_state(slot, state, state_of(CO_PHASE_IDLE, ticket), now)) {
            return true;
        }
        state = atomic_load_explicit(&slot->state, memory_order_acquire);
    }
    return false;
}

bool co_slot_end(struct co_slot *slot, uint64_t ticket, co_ms now)
{
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    uint64_t ending = state_of(CO_PHASE_ENDING, ticket);

    /* Bounded, for a hostile worker may change the word for ever. An honest one moves it once. */
    for (int i = 0; i < 4; i++) {
        bool idle_before = phase_of(state) == CO_PHASE_IDLE && state >> 8 < ticket;
        bool running = state == state_of(CO_PHASE_RUNNING, ticket);

        if (!running && !idle_before) {
            return false;
        }
        if (swap_state(slot, state, ending, now)) {
            return running;
        }
        state = atomic_load_explicit(&slot->state, memory_order_acquire);
    }
    return false;
}

/* ---- ring ---- */

static uint32_t record_size(size_t body_size)
{
    return (uint32_t)((CO_RECORD_HEADER + body_size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1));
}

/* A hostile consumer may have moved our head as well: only aligned positions inside. */
static uint32_t position_of(uint64_t counter)
{
    return (uint32_t)counter & (CO_RING_SIZE - 1) & ~(ALIGNMENT - 1);
}

static uint32_t pad_before(uint32_t position, uint32_t total)
{
    uint32_t rest = CO_RING_SIZE - position;
    return total > rest ? rest : 0;
}

static bool room_at(const struct co_ring *ring, uint64_t head, size_t body_size)
{
    uint64_t used = head - atomic_load_explicit(&ring->tail, memory_order_acquire);
    uint32_t total = record_size(body_size);

    total += pad_before(position_of(head), total);
    return used <= CO_RING_SIZE && CO_RING_SIZE - used >= total;
}

bool co_ring_has_room(const struct co_ring *ring, size_t body_size)
{
    return body_size <= BODY_MAX &&
           room_at(ring, atomic_load_explicit(&ring->head, memory_order_relaxed), body_size);
}

static void write_header(uint8_t *at, uint32_t size, uint16_t type, uint16_t flags, uint64_t ticket)
{
    at = put_u32(at, size);
    at = put_u16(at, type);
    at = put_u16(at, flags);
    put_u64(at, ticket);
}

int co_ring_push(struct co_ring *ring, const struct co_record *record, bool *ret_wake)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

    assert(record->type != TYPE_PAD);
    if (record->size > BODY_MAX) {
        return CO_ETOOBIG;
    }
    if (!room_at(ring, head, record->size)) {
        return CO_EFULL;
    }
    uint32_t total = record_size(record->size);
    uint32_t pad = pad_before(position_of(head), total);
    if (pad > 0) {
        write_header(ring->data + position_of(head), pad - CO_RECORD_HEADER, TYPE_PAD, 0, 0);
        head += pad;
    }
    uint8_t *at = ring->data + position_of(head);
    write_header(at, record->size, record->type, record->flags, record->ticket);
    put_bytes(at + CO_RECORD_HEADER, record->body, record->size);

    /* Both sides of a sleep write their own word and then read the other's. Only one total order
     * of these four makes sure that one of them sees the other: hence seq_cst here, in
     * co_ring_sleep() and in the bell. */
    atomic_store_explicit(&ring->head, head + total, memory_order_seq_cst);
    if (ret_wake != NULL) {
        *ret_wake = co_ring_rouse(ring);
    }
    return CO_OK;
}

/* Reads the header at the cursor, skipping padding. The header is copied once and only the copy is
 * believed. */
static int next_record(struct co_ring *ring, uint64_t *cursor, struct co_record *ret_record)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_seq_cst);

    while (head != *cursor) {
        uint8_t header[CO_RECORD_HEADER];
        uint64_t there = head - *cursor;
        uint32_t position = position_of(*cursor);

        if (there > CO_RING_SIZE || there < CO_RECORD_HEADER || *cursor % ALIGNMENT != 0) {
            return CO_EMALFORMED;
        }
        memcpy(header, ring->data + position, sizeof header);
        uint32_t size = get_u32(header);
        uint16_t type = get_u16(header + 4);
        if (size > CO_RING_SIZE) {
            return CO_EMALFORMED;
        }
        uint32_t total = record_size(size);
        if (total > there || total > CO_RING_SIZE - position) {
            return CO_EMALFORMED;
        }
        if (type == TYPE_PAD) {
            if (total != CO_RING_SIZE - position) {
                return CO_EMALFORMED;
            }
            *cursor += total;
            continue;
        }
        if (size > BODY_MAX) {
            return CO_EMALFORMED;
        }
        *ret_record = (struct co_record){
            .type = type,
            .flags = get_u16(header + 6),
            .ticket = get_u64(header + 8),
            .body = ring->data + position + CO_RECORD_HEADER,
            .size = size,
        };
        *cursor += total;
        return 1;
    }
    return 0;
}

int co_ring_peek(struct co_ring *ring, uint64_t *cursor, struct co_record *ret_record)
{
    return next_record(ring, cursor, ret_record);
}

int co_ring_copy(struct co_ring *ring, uint64_t *cursor, uint8_t *buf, struct co_record *ret_record)
{
    struct co_record record;
    int rc = next_record(ring, cursor, &record);

    if (rc == 1) {
        put_bytes(buf, record.body, record.size);
        record.body = buf;
        *ret_record = record;
    }
    return rc;
}

uint64_t co_ring_tail(const struct co_ring *ring)
{
    return atomic_load_explicit(&ring->tail, memory_order_relaxed);
}

void co_ring_release(struct co_ring *ring, uint64_t cursor)
{
    atomic_store_explicit(&ring->tail, cursor, memory_order_release);
}

bool co_ring_empty(const struct co_ring *ring, uint64_t cursor)
{
    return atomic_load_explicit(&ring->head, memory_order_seq_cst) == cursor;
}

bool co_ring_sleep(struct co_ring *ring, uint64_t cursor)
{
    atomic_store_explicit(&ring->sleeping, 1, memory_order_seq_cst);
    if (co_ring_empty(ring, cursor)) {
        return true;
    }
    co_ring_awake(ring);
    return false;
}

void co_ring_awake(struct co_ring *ring)
{
    atomic_store_explicit(&ring->sleeping, 0, memory_order_relaxed);
}

bool co_ring_rouse(struct co_ring *ring)
{
    return atomic_load_explicit(&ring->sleeping, memory_order_seq_cst) == 1 &&
           atomic_exchange_explicit(&ring->sleeping, 0, memory_order_seq_cst) == 1;
}

void co_bell_sleep(struct co_bell *bell)
{
    atomic_store_explicit(&bell->agent_sleeps, 1, memory_order_seq_cst);
}

void co_bell_awake(struct co_bell *bell)
{
    atomic_store_explicit(&bell->agent_sleeps, 0, memory_order_relaxed);
}

/* Load first: under load the agent is awake, and an exchange would take the line from it. */
bool co_bell_rings(struct co_bell *bell)
{
    return atomic_load_explicit(&bell->agent_sleeps, memory_order_seq_cst) == 1 &&
           atomic_exchange_explicit(&bell->agent_sleeps, 0, memory_order_seq_cst) == 1;
}

/* ---- messages: fixed:u32, the fixed part of that size, then the strings ----
 *
 * A newer version appends to the fixed part; an older one skips what it does not know. */

#define JOB_FIXED 104u
#define JOB_FIXED_LEAST 96u /* An older agent sends no cause. */
#define END_FIXED 56u

static uint8_t *put_ref(uint8_t *p, const struct co_job_ref *ref)
{
    p = put_u64(p, ref->source);
    p = put_u64(p, (uint64_t)ref->job_id);
    p = put_u64(p, (uint64_t)ref->reserved_at);
    p = put_u32(p, ref->attempts);
    return put_u32(p, 0);
}

static struct co_job_ref get_ref(const uint8_t *p)
{
    return (struct co_job_ref){
        .source = get_u64(p),
        .job_id = (int64_t)get_u64(p + 8),
        .reserved_at = (int64_t)get_u64(p + 16),
        .attempts = get_u32(p + 24),
    };
}

/* The variable part of a body, handed out piece by piece. */
struct rest {
    const uint8_t *at;
    size_t size;
};

static bool open_body(const uint8_t *body, size_t size, uint32_t known, struct rest *ret_rest)
{
    if (size < known || get_u32(body) < known || get_u32(body) > size) {
        return false;
    }
    *ret_rest = (struct rest){.at = body + get_u32(body), .size = size - get_u32(body)};
    return true;
}

static bool take(struct rest *rest, uint64_t size, const uint8_t **ret_at)
{
    if (size > rest->size) {
        return false;
    }
    *ret_at = rest->at;
    rest->at += size;
    rest->size -= (size_t)size;
    return true;
}

int co_job_encode(const struct co_job_msg *msg, uint8_t *buf, size_t buf_size)
{
    uint64_t strings = (uint64_t)msg->connection_size + (uint64_t)msg->queue_size +
                       (uint64_t)msg->backoff_size + (uint64_t)msg->cause_size;
    uint64_t inline_size = msg->payload != NULL ? msg->payload_size : 0;
    size_t room = buf_size < BODY_MAX ? buf_size : BODY_MAX;
    uint8_t *p = buf;

    /* Each alone first: a sum of sizes from outside may wrap. */
    if (room < JOB_FIXED || strings > room - JOB_FIXED ||
        inline_size > room - JOB_FIXED - strings) {
        return CO_ETOOBIG;
    }
    p = put_u32(p, JOB_FIXED);
    p = put_u32(p, msg->payload != NULL);
    p = put_ref(p, &msg->ref);
    p = put_u64(p, (uint64_t)msg->available_at);
    p = put_u64(p, (uint64_t)msg->created_at);
    p = put_u32(p, msg->timeout_ms);
    p = put_u32(p, (uint32_t)msg->tries);
    p = put_u64(p, msg->memory_bytes);
    p = put_u64(p, msg->payload_size);
    p = put_u32(p, msg->connection_size);
    p = put_u32(p, msg->queue_size);
    p = put_u32(p, msg->backoff_size);
    p = put_u32(p, msg->cause);
    p = put_u32(p, msg->final);
    p = put_u32(p, msg->cause_size);
    assert(p == buf + JOB_FIXED);
    p = put_bytes(p, msg->connection, msg->connection_size);
    p = put_bytes(p, msg->queue, msg->queue_size);
    p = put_bytes(p, msg->backoff, msg->backoff_size);
    p = put_bytes(p, msg->payload, (size_t)inline_size);
    p = put_bytes(p, msg->cause_text, msg->cause_size); /* Last: older workers stop before it. */
    return (int)(p - buf);
}

int co_job_decode(const uint8_t *body, size_t size, struct co_job_msg *ret_msg)
{
    struct co_job_msg msg;
    struct rest rest;
    const uint8_t *connection;
    const uint8_t *queue;
    const uint8_t *backoff;
    const uint8_t *cause_text;

    if (!open_body(body, size, JOB_FIXED_LEAST, &rest)) {
        return CO_EMALFORMED;
    }
    msg = (struct co_job_msg){
        .ref = get_ref(body + 8),
        .available_at = (int64_t)get_u64(body + 40),
        .created_at = (int64_t)get_u64(body + 48),
        .timeout_ms = get_u32(body + 56),
        .tries = (int32_t)get_u32(body + 60),
        .memory_bytes = get_u64(body + 64),
        .payload_size = get_u64(body + 72),
        .connection_size = get_u32(body + 80),
        .queue_size = get_u32(body + 84),
        .backoff_size = get_u32(body + 88),
    };
    if (get_u32(body) >= JOB_FIXED) {
        msg.cause = get_u32(body + 92);
        msg.final = get_u32(body + 96);
        msg.cause_size = get_u32(body + 100);
    }
    if (!take(&rest, msg.connection_size, &connection) || !take(&rest, msg.queue_size, &queue) ||
        !take(&rest, msg.backoff_size, &backoff)) {
        return CO_EMALFORMED;
    }
    if (get_u32(body + 4) != 0 && !take(&rest, msg.payload_size, &msg.payload)) {
        return CO_EMALFORMED;
    }
    if (msg.cause > CO_CAUSE_OOM || msg.final > (CO_FINAL_FAIL | CO_FINAL_FAILED) ||
        !take(&rest, msg.cause_size, &cause_text)) {
        return CO_EMALFORMED;
    }
    msg.cause_text = (const char *)cause_text;
    msg.connection = (const char *)connection;
    msg.queue = (const char *)queue;
    msg.backoff = (const char *)backoff;
    *ret_msg = msg;
    return CO_OK;
}

int co_end_encode(const struct co_end_msg *msg, uint8_t *buf, size_t buf_size)
{
    uint32_t text_size = msg->text_size < CO_END_TEXT_MAX ? msg->text_size : CO_END_TEXT_MAX;
    uint8_t *p = buf;

    if (buf_size < END_FIXED + text_size) {
        return CO_ETOOBIG;
    }
    p = put_u32(p, END_FIXED);
    p = put_u32(p, msg->outcome);
    p = put_ref(p, &msg->ref);
    p = put_u32(p, msg->flags);
    p = put_u32(p, msg->delay_s);
    p = put_u32(p, msg->run_us);
    p = put_u32(p, text_size);
    assert(p == buf + END_FIXED);
    p = put_bytes(p, msg->text, text_size);
    return (int)(p - buf);
}

/* The two outcomes that only an agent may state are not for the wire. */
static bool outcome_is_a_workers(uint32_t outcome)
{
    return outcome >= CO_OUTCOME_DONE && outcome <= CO_OUTCOME_LEFT;
}

int co_end_decode(const uint8_t *body, size_t size, struct co_end_msg *ret_msg)
{
    struct co_end_msg msg;
    struct rest rest;
    const uint8_t *text;

    if (!open_body(body, size, END_FIXED, &rest)) {
        return CO_EMALFORMED;
    }
    msg = (struct co_end_msg){
        .outcome = get_u32(body + 4),
        .ref = get_ref(body + 8),
        .flags = get_u32(body + 40),
        .delay_s = get_u32(body + 44),
        .run_us = get_u32(body + 48),
        .text_size = get_u32(body + 52),
    };
    if (!outcome_is_a_workers(msg.outcome) || msg.text_size > CO_END_TEXT_MAX ||
        !take(&rest, msg.text_size, &text)) {
        return CO_EMALFORMED;
    }
    msg.text = (const char *)text;
    *ret_msg = msg;
    return CO_OK;
}
