#include "proto/zygote.h"

#include <stdbool.h>
#include <string.h>

#include "proto/err.h"

#define HEADER_SIZE 10u
#define FIELD_HEADER 6u

static const uint8_t magic[3] = {'C', 'O', 'Z'};

enum tag {
    TAG_WORKER = 1,
    TAG_GENERATION,
    TAG_KIND,
    TAG_PID,
    TAG_WIRE,
    TAG_BELL,
    TAG_TEXT,
};

/* Where the encoder writes; at stays put and full is set when something does not fit. */
struct out {
    uint8_t *buf;
    size_t at;
    size_t size;
    bool full;
};

static void put(struct out *out, const void *bytes, size_t size)
{
    if (out->full || size > out->size - out->at) {
        out->full = true;
        return;
    }
    memcpy(out->buf + out->at, bytes, size);
    out->at += size;
}

static void put_int(struct out *out, uint32_t value, size_t size)
{
    uint8_t bytes[4];
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
    put(out, bytes, size);
}

/* Zero is what a missing field means, so zeros do not travel. */
static void put_number(struct out *out, enum tag tag, uint32_t value)
{
    if (value != 0) {
        put_int(out, tag, 2);
        put_int(out, 4, 4);
        put_int(out, value, 4);
    }
}

static void put_text(struct out *out, enum tag tag, const char *text, size_t room)
{
    size_t size = strnlen(text, room - 1);
    if (size > 0) {
        put_int(out, tag, 2);
        put_int(out, (uint32_t)size, 4);
        put(out, text, size);
    }
}

int co_zygote_encode(const struct co_zygote_msg *msg, uint8_t *buf, size_t size)
{
    struct out out = {.buf = buf, .size = size < CO_ZYGOTE_MSG_MAX ? size : CO_ZYGOTE_MSG_MAX};

    put(&out, magic, sizeof magic);
    put_int(&out, CO_ZYGOTE_VERSION, 1);
    put_int(&out, msg->type, 2);
    put_int(&out, msg->seq, 4);
    put_number(&out, TAG_WORKER, msg->worker);
    put_number(&out, TAG_GENERATION, msg->generation);
    put_number(&out, TAG_KIND, msg->kind);
    put_number(&out, TAG_PID, (uint32_t)msg->pid);
    put_text(&out, TAG_WIRE, msg->wire, sizeof msg->wire);
    put_text(&out, TAG_BELL, msg->bell, sizeof msg->bell);
    put_text(&out, TAG_TEXT, msg->text, sizeof msg->text);
    return out.full ? CO_ETOOBIG : (int)out.at;
}

static uint32_t get_int(const uint8_t *p, size_t size)
{
    uint32_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value |= (uint32_t)p[i] << (8 * i);
    }
    return value;
}

struct field {
    uint32_t tag;
    const uint8_t *bytes;
    uint32_t size;
};

static bool get_number(const struct field *field, uint32_t *ret_value)
{
    if (field->size != 4) {
        return false;
    }
    *ret_value = get_int(field->bytes, 4);
    return true;
}

/* A path or text with a NUL inside would name another file than it shows. */
static bool get_text(const struct field *field, char *ret_text, size_t room)
{
    if (field->size >= room || memchr(field->bytes, 0, field->size) != NULL) {
        return false;
    }
    memcpy(ret_text, field->bytes, field->size);
    ret_text[field->size] = '\0';
    return true;
}

static bool get_kind(const struct field *field, enum co_worker_kind *ret_kind)
{
    uint32_t value;
    if (!get_number(field, &value) || value > CO_KIND_BOOKKEEPER) {
        return false;
    }
    *ret_kind = (enum co_worker_kind)value;
    return true;
}

static bool get_pid(const struct field *field, int32_t *ret_pid)
{
    uint32_t value;
    if (!get_number(field, &value) || value > INT32_MAX) {
        return false;
    }
    *ret_pid = (int32_t)value;
    return true;
}

static bool read_field(const struct field *field, struct co_zygote_msg *msg)
{
    switch (field->tag) {
    case TAG_WORKER:
        return get_number(field, &msg->worker);
    case TAG_GENERATION:
        return get_number(field, &msg->generation);
    case TAG_KIND:
        return get_kind(field, &msg->kind);
    case TAG_PID:
        return get_pid(field, &msg->pid);
    case TAG_WIRE:
        return get_text(field, msg->wire, sizeof msg->wire);
    case TAG_BELL:
        return get_text(field, msg->bell, sizeof msg->bell);
    case TAG_TEXT:
        return get_text(field, msg->text, sizeof msg->text);
    }
    return true; /* A newer version's field. */
}

static int read_header(const uint8_t *buf, size_t size, struct co_zygote_msg *msg)
{
    if (size < HEADER_SIZE || memcmp(buf, magic, sizeof magic) != 0) {
        return CO_EMALFORMED;
    }
    if (buf[3] != CO_ZYGOTE_VERSION) {
        return CO_EVERSION;
    }
    uint32_t type = get_int(buf + 4, 2);
    if (type < CO_ZYGOTE_HELLO || type > CO_ZYGOTE_STOP) {
        return CO_EMALFORMED;
    }
    msg->type = (enum co_zygote_type)type;
    msg->seq = get_int(buf + 6, 4);
    return CO_OK;
}

int co_zygote_decode(const uint8_t *buf, size_t size, struct co_zygote_msg *ret_msg)
{
    struct co_zygote_msg msg = {.seq = 0};
    int rc = read_header(buf, size, &msg);

    for (size_t at = HEADER_SIZE; rc == CO_OK && at < size;) {
        if (size - at < FIELD_HEADER) {
            return CO_EMALFORMED;
        }
        struct field field = {
            .tag = get_int(buf + at, 2),
            .size = get_int(buf + at + 2, 4),
            .bytes = buf + at + FIELD_HEADER,
        };
        at += FIELD_HEADER;
        if (field.size > size - at || !read_field(&field, &msg)) {
            return CO_EMALFORMED;
        }
        at += field.size;
    }
    if (rc == CO_OK) {
        *ret_msg = msg;
    }
    return rc;
}
