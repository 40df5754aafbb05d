#include "proto/fleet_frame.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

enum type {
    NUMBER, /* Of the field's width: 1, 2, 4 or 8 bytes. */
    TEXT,
    BYTES,   /* Their number stands in a uint16_t at count. */
    NUMBERS, /* An array of numbers, one field each; likewise. */
    STRUCTS, /* An array of structs, one field each; likewise. */
};

struct field {
    uint8_t tag;
    uint8_t type;
    uint8_t since; /* The version that brought it; 0: always there. */
    uint16_t count;
    uint16_t max;
    uint32_t offset;
    uint32_t width; /* Of the value, or of an element. */
    const struct field *fields;
};

#define WIDTH(s, m) sizeof(((struct s *)NULL)->m)
#define AT(s, m) .offset = offsetof(struct s, m)
#define NUM(t, s, m)                                             \
    {                                                            \
        .tag = t, .type = NUMBER, AT(s, m), .width = WIDTH(s, m) \
    }
#define NUM2(t, s, m)                                                        \
    {                                                                        \
        .tag = t, .type = NUMBER, .since = 2, AT(s, m), .width = WIDTH(s, m) \
    }
#define STR(t, s, m)                                           \
    {                                                          \
        .tag = t, .type = TEXT, AT(s, m), .width = WIDTH(s, m) \
    }
#define ARRAY(t, s, n, m, most, sub)                                                      \
    {                                                                                     \
        .tag = t, .type = STRUCTS, .count = offsetof(struct s, n), .max = most, AT(s, m), \
        .width = sizeof((struct s *)NULL)->m[0], .fields = sub                            \
    }
#define EPOCH(t, s, m) NUM(t, s, m.term), NUM(t + 1, s, m.owner), NUM(t + 2, s, m.seq)
#define END      \
    {            \
        .tag = 0 \
    }

static const struct field override_fields[] = {
    NUM(1, co_fleet_override, queue),   NUM(2, co_fleet_override, epoch),
    NUM(3, co_fleet_override, agent),   NUM(4, co_fleet_override, action),
    NUM(5, co_fleet_override, value),   NUM(6, co_fleet_override, since),
    NUM(7, co_fleet_override, expires), STR(8, co_fleet_override, by),
    STR(9, co_fleet_override, reason),  END,
};

static const struct field sight_fields[] = {
    NUM(1, co_fleet_sight, id),
    NUM(2, co_fleet_sight, incarnation),
    NUM(3, co_fleet_sight, seq),
    END,
};

static const struct field entry_fields[] = {
    NUM(1, co_fleet_report_entry, queue),
    EPOCH(2, co_fleet_report_entry, epoch),
    NUM(5, co_fleet_report_entry, term),
    NUM(6, co_fleet_report_entry, echo),
    NUM(7, co_fleet_report_entry, policy_hash),
    NUM(8, co_fleet_report_entry, max),
    NUM(9, co_fleet_report_entry, hold_ms),
    NUM(10, co_fleet_report_entry, grant),
    NUM(11, co_fleet_report_entry, flags),
    NUM(16, co_fleet_report_entry, load.capacity),
    NUM(17, co_fleet_report_entry, load.running),
    NUM(18, co_fleet_report_entry, load.claimed),
    NUM(19, co_fleet_report_entry, load.booting),
    NUM(20, co_fleet_report_entry, load.idle),
    NUM(21, co_fleet_report_entry, load.ready),
    NUM(22, co_fleet_report_entry, load.done_per_s),
    NUM(23, co_fleet_report_entry, load.service_us),
    END,
};

static const struct field seat_fields[] = {
    NUM(1, co_fleet_seat, id),
    NUM(2, co_fleet_seat, incarnation),
    NUM(3, co_fleet_seat, capacity),
    NUM(4, co_fleet_seat, share),
    NUM(5, co_fleet_seat, grant),
    NUM(6, co_fleet_seat, held),
    END,
};

static const struct field beat_fields[] = {
    NUM(16, co_fleet_msg, beat.overrides_digest),
    NUM(17, co_fleet_msg, beat.view_digest),
    NUM2(18, co_fleet_msg, beat.lag_ms),
    NUM(19, co_fleet_msg, beat.flags),
    ARRAY(20, co_fleet_msg, beat.n_downs, beat.downs, CO_FLEET_DOWNS_MAX, sight_fields),
    {.tag = 21,
     .type = STRUCTS,
     .since = 2,
     .count = offsetof(struct co_fleet_msg, beat.n_relays),
     .max = CO_FLEET_RELAYS_MAX,
     AT(co_fleet_msg, beat.relays),
     .width = sizeof(struct co_fleet_sight),
     .fields = sight_fields},
    {.tag = 22,
     .type = NUMBERS,
     .count = offsetof(struct co_fleet_msg, beat.n_queues),
     .max = CO_FLEET_QUEUES_MAX,
     AT(co_fleet_msg, beat.queues),
     .width = sizeof(uint64_t)},
    ARRAY(23, co_fleet_msg, beat.n_overrides, beat.overrides, CO_FLEET_BEAT_OVERRIDES_MAX,
          override_fields),
    END,
};

static const struct field report_fields[] = {
    NUM(16, co_fleet_msg, report.stamp),
    ARRAY(17, co_fleet_msg, report.n_entries, report.entries, CO_FLEET_QUEUES_MAX, entry_fields),
    END,
};

static const struct field plan_fields[] = {
    NUM(16, co_fleet_msg, plan.queue),
    EPOCH(17, co_fleet_msg, plan.epoch),
    NUM(20, co_fleet_msg, plan.stamp),
    NUM(21, co_fleet_msg, plan.policy_hash),
    NUM(22, co_fleet_msg, plan.tie),
    NUM(23, co_fleet_msg, plan.tie_next),
    NUM(24, co_fleet_msg, plan.target),
    NUM(25, co_fleet_msg, plan.max),
    NUM(26, co_fleet_msg, plan.split),
    NUM(27, co_fleet_msg, plan.on_fence),
    NUM(28, co_fleet_msg, plan.hold_ms),
    NUM(29, co_fleet_msg, plan.voters),
    {.tag = 30,
     .type = BYTES,
     .since = 2,
     .count = offsetof(struct co_fleet_msg, plan.history_size),
     .max = CO_FLEET_HISTORY_SIZE,
     AT(co_fleet_msg, plan.history),
     .width = 1},
    ARRAY(31, co_fleet_msg, plan.n_seats, plan.seats, CO_FLEET_AGENTS_MAX, seat_fields),
    END,
};

static const struct field claim_fields[] = {
    NUM(16, co_fleet_msg, claim.queue),
    NUM(17, co_fleet_msg, claim.term),
    NUM(18, co_fleet_msg, claim.stamp),
    EPOCH(19, co_fleet_msg, claim.epoch),
    END,
};

static const struct field ack_fields[] = {
    NUM(16, co_fleet_msg, ack.queue),
    NUM(17, co_fleet_msg, ack.term),
    NUM(18, co_fleet_msg, ack.stamp),
    NUM(19, co_fleet_msg, ack.echo),
    NUM(20, co_fleet_msg, ack.echo_incarnation),
    EPOCH(21, co_fleet_msg, ack.committed),
    END,
};

static const struct field *const kinds[] = {
    [CO_FLEET_BEAT] = beat_fields, [CO_FLEET_REPORT] = report_fields,
    [CO_FLEET_PLAN] = plan_fields, [CO_FLEET_CLAIM] = claim_fields,
    [CO_FLEET_ACK] = ack_fields,
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

/* What stands around every message. */
struct envelope {
    uint64_t from;
    uint64_t incarnation;
    uint64_t seq;
    char address[CO_FLEET_ADDRESS_SIZE];
    uint8_t speaks;
};

static const struct field envelope_fields[] = {
    NUM(1, envelope, from),    NUM(2, envelope, incarnation), NUM(3, envelope, seq),
    STR(4, envelope, address), NUM(5, envelope, speaks),      END,
};

/* ---- numbers in memory ---- */

static uint64_t load(const uint8_t *at, uint32_t width)
{
    uint64_t u64;
    uint32_t u32;
    uint16_t u16;

    switch (width) {
    case 8:
        memcpy(&u64, at, 8);
        return u64;
    case 4:
        memcpy(&u32, at, 4);
        return u32;
    case 2:
        memcpy(&u16, at, 2);
        return u16;
    default:
        return *at;
    }
}

static void store(uint8_t *at, uint32_t width, uint64_t value)
{
    uint32_t u32 = (uint32_t)value;
    uint16_t u16 = (uint16_t)value;

    switch (width) {
    case 8:
        memcpy(at, &value, 8);
        break;
    case 4:
        memcpy(at, &u32, 4);
        break;
    case 2:
        memcpy(at, &u16, 2);
        break;
    default:
        *at = (uint8_t)value;
        break;
    }
}

/* ---- writing ---- */

struct out {
    uint8_t *buf;
    size_t size;
    size_t len;
    bool full;
};

static void put(struct out *out, const void *data, size_t size)
{
    if (out->full || size > out->size - out->len) {
        out->full = true;
        return;
    }
    if (size > 0) { /* data may be NULL then, which memcpy may not be given. */
        memcpy(out->buf + out->len, data, size);
        out->len += size;
    }
}

static void put_value(struct out *out, uint8_t tag, const void *data, size_t size)
{
    const uint8_t head[3] = {tag, (uint8_t)(size >> 8), (uint8_t)size};

    put(out, head, sizeof head);
    put(out, data, size);
}

static void put_number(struct out *out, uint8_t tag, uint64_t value)
{
    uint8_t bytes[8];
    size_t n = 0;

    for (int shift = 56; shift >= 0; shift -= 8) {
        if (n > 0 || value >> shift != 0) {
            bytes[n++] = (uint8_t)(value >> shift);
        }
    }
    put_value(out, tag, bytes, n);
}

static void put_fields(struct out *out, const struct field *fields, const uint8_t *base,
                       uint8_t version);

static void put_struct(struct out *out, const struct field *field, const uint8_t *at,
                       uint8_t version)
{
    size_t start = out->len;
    size_t size;

    put_value(out, field->tag, NULL, 0);
    put_fields(out, field->fields, at, version);
    if (!out->full) {
        size = out->len - start - 3;
        out->buf[start + 1] = (uint8_t)(size >> 8);
        out->buf[start + 2] = (uint8_t)size;
    }
}

static void put_field(struct out *out, const struct field *field, const uint8_t *base,
                      uint8_t version)
{
    const uint8_t *at = base + field->offset;
    uint32_t n = field->max > 0 ? (uint32_t)load(base + field->count, 2) : 0;

    n = n < field->max ? n : field->max;
    switch ((enum type)field->type) {
    case NUMBER:
        if (load(at, field->width) != 0) {
            put_number(out, field->tag, load(at, field->width));
        }
        break;
    case TEXT:
        if (at[0] != '\0') {
            put_value(out, field->tag, at, strnlen((const char *)at, field->width - 1));
        }
        break;
    case BYTES:
        if (n > 0) {
            put_value(out, field->tag, at, n);
        }
        break;
    case NUMBERS:
        for (uint32_t i = 0; i < n; i++) {
            put_number(out, field->tag, load(at + i * field->width, field->width));
        }
        break;
    case STRUCTS:
        for (uint32_t i = 0; i < n; i++) {
            put_struct(out, field, at + i * field->width, version);
        }
        break;
    }
}

static void put_fields(struct out *out, const struct field *fields, const uint8_t *base,
                       uint8_t version)
{
    for (const struct field *field = fields; field->tag != 0; field++) {
        if (field->since <= version) {
            put_field(out, field, base, version);
        }
    }
}

int co_fleet_frame_write(const struct co_fleet_msg *msg, uint8_t version, const char *address,
                         uint8_t *buf, size_t size, size_t *ret_size)
{
    struct out out = {.buf = buf, .size = size < CO_FLEET_FRAME_MAX ? size : CO_FLEET_FRAME_MAX};
    struct envelope envelope = {.from = msg->from,
                                .incarnation = msg->incarnation,
                                .seq = msg->seq,
                                .speaks = msg->version};
    const uint8_t head[4] = {'C', 'F', version, msg->kind};

    assert(msg->kind > 0 && msg->kind < N_KINDS);
    if (version < CO_FLEET_VERSION_MIN || version > CO_FLEET_VERSION) {
        return CO_EVERSION;
    }
    memcpy(envelope.address, address, strnlen(address, sizeof envelope.address - 1));
    put(&out, head, sizeof head);
    put_fields(&out, envelope_fields, (const uint8_t *)&envelope, version);
    put_fields(&out, kinds[msg->kind], (const uint8_t *)msg, version);
    if (out.full) {
        return CO_ETOOBIG;
    }
    *ret_size = out.len;
    return 0;
}

/* ---- reading ---- */

static int read_fields(const struct field *fields, const uint8_t *at, const uint8_t *end,
                       uint8_t *base);

static int read_number(const uint8_t *at, size_t size, uint32_t width, uint8_t *into)
{
    uint64_t value = 0;

    if (size > width) {
        return CO_EMALFORMED;
    }
    for (size_t i = 0; i < size; i++) {
        value = value << 8 | at[i];
    }
    store(into, width, value);
    return 0;
}

static int read_text(const uint8_t *at, size_t size, uint32_t width, uint8_t *into)
{
    if (size >= width || (size > 0 && memchr(at, '\0', size) != NULL)) {
        return CO_EMALFORMED;
    }
    if (size > 0) {
        memcpy(into, at, size);
    }
    into[size] = '\0';
    return 0;
}

/* An element more. */
static int read_element(const struct field *field, const uint8_t *at, size_t size, uint8_t *base)
{
    uint64_t n = load(base + field->count, 2);
    uint8_t *into = base + field->offset + n * field->width;
    int code;

    if (n >= field->max) {
        return CO_EMALFORMED;
    }
    code = field->type == NUMBERS ? read_number(at, size, field->width, into)
                                  : read_fields(field->fields, at, at + size, into);
    if (code == 0) {
        store(base + field->count, 2, n + 1);
    }
    return code;
}

static int read_bytes(const struct field *field, const uint8_t *at, size_t size, uint8_t *base)
{
    if (size > field->max) {
        return CO_EMALFORMED;
    }
    memcpy(base + field->offset, at, size);
    store(base + field->count, 2, size);
    return 0;
}

static int read_field(const struct field *field, const uint8_t *at, size_t size, uint8_t *base)
{
    switch ((enum type)field->type) {
    case NUMBER:
        return read_number(at, size, field->width, base + field->offset);
    case TEXT:
        return read_text(at, size, field->width, base + field->offset);
    case BYTES:
        return read_bytes(field, at, size, base);
    case NUMBERS:
    case STRUCTS:
        return read_element(field, at, size, base);
    }
    return CO_EMALFORMED;
}

static const struct field *find(const struct field *fields, uint8_t tag)
{
    while (fields->tag != 0 && fields->tag != tag) {
        fields++;
    }
    return fields->tag != 0 ? fields : NULL;
}

static int read_fields(const struct field *fields, const uint8_t *at, const uint8_t *end,
                       uint8_t *base)
{
    while (at < end) {
        const struct field *field = find(fields, at[0]);
        size_t size;
        int code;

        if (end - at < 3) {
            return CO_EMALFORMED;
        }
        size = (size_t)at[1] << 8 | at[2];
        at += 3;
        if (size > (size_t)(end - at)) {
            return CO_EMALFORMED;
        }
        code = field != NULL ? read_field(field, at, size, base) : 0;
        if (code < 0) {
            return code;
        }
        at += size;
    }
    return 0;
}

int co_fleet_frame_read(const uint8_t *frame, size_t size, struct co_fleet_msg *ret_msg,
                        char ret_address[CO_FLEET_ADDRESS_SIZE])
{
    struct envelope envelope = {0};
    struct co_fleet_msg msg;
    const uint8_t *end = frame + size;
    int code;

    if (size < 4 || size > CO_FLEET_FRAME_MAX || frame[0] != 'C' || frame[1] != 'F' ||
        frame[3] == 0 || frame[3] >= N_KINDS) {
        return CO_EMALFORMED;
    }
    if (frame[2] < CO_FLEET_VERSION_MIN) {
        return CO_EVERSION; /* A later one only adds: its new fields are skipped. */
    }
    memset(&msg, 0, sizeof msg);
    code = read_fields(envelope_fields, frame + 4, end, (uint8_t *)&envelope);
    code = code < 0 ? code : read_fields(kinds[frame[3]], frame + 4, end, (uint8_t *)&msg);
    if (code < 0) {
        return code;
    }
    msg.kind = frame[3];
    msg.version = envelope.speaks;
    msg.from = envelope.from;
    msg.incarnation = envelope.incarnation;
    msg.seq = envelope.seq;
    code = co_fleet_check(&msg);
    if (code < 0) {
        return code;
    }
    *ret_msg = msg;
    memcpy(ret_address, envelope.address, sizeof envelope.address);
    return 0;
}
