/* How the values of the configuration are read from text and written back, by type. Used by
 * config_keys.c alone. */

#ifndef CO_PROTO_CONFIG_TYPES_H
#define CO_PROTO_CONFIG_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/config.h"

/* What a type needs to know of the key. */
struct co_config_type {
    /* Read text into the field at `into`; plain: numbers without unit are allowed (flags).
     * Errors: CO_ECONFIG. */
    int (*read)(const struct co_config_type *type, const char *text, bool plain, void *into,
                struct co_err *err);
    void (*write)(const struct co_config_type *type, const void *from, char *buf, size_t size);
    size_t size;              /* Of a text field. */
    uint64_t min;             /* Of a number, in its stored unit. */
    uint64_t max;             /* 0: the type's own. */
    const char *zero_word;    /* "auto": the word for 0, which cannot be written as a number. */
    const char *const *words; /* Allowed words, NULL-ended; the index is the value. */
    const char *const *later; /* Words of a later version, NULL-ended or NULL. */
    const char *later_why;
};

#define CO_CONFIG_TYPE_FN(name)                                                            \
    int co_config_types_read_##name(const struct co_config_type *type, const char *text,   \
                                    bool plain, void *into, struct co_err *err);           \
    void co_config_types_write_##name(const struct co_config_type *type, const void *from, \
                                      char *buf, size_t size);
CO_CONFIG_TYPE_FN(text)    /* char[]: anything without control characters, not empty. */
CO_CONFIG_TYPE_FN(path)    /* char[] */
CO_CONFIG_TYPE_FN(http)    /* char[]: "off" or HOST:PORT. */
CO_CONFIG_TYPE_FN(queue)   /* char[]: a comma list. */
CO_CONFIG_TYPE_FN(backoff) /* char[]: durations, stored as whole seconds. */
CO_CONFIG_TYPE_FN(ms)      /* co_ms */
CO_CONFIG_TYPE_FN(seconds) /* co_ms, whole seconds. */
CO_CONFIG_TYPE_FN(bytes)   /* uint64_t */
CO_CONFIG_TYPE_FN(count)   /* uint32_t */
CO_CONFIG_TYPE_FN(flag)    /* bool */
CO_CONFIG_TYPE_FN(word)    /* An enum. */
CO_CONFIG_TYPE_FN(fixed)   /* No field: one word is allowed, it changes nothing. */

#endif /* CO_PROTO_CONFIG_TYPES_H */
