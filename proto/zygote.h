/* Messages between the agent and a zygote, over a SOCK_SEQPACKET pair (one message a packet).
 *
 *     message = magic version type seq field*
 *     magic   = %x43 %x4f %x5a        ; "COZ"
 *     version = u8                    ; CO_ZYGOTE_VERSION
 *     type    = u16
 *     seq     = u32                   ; an answer repeats its question's
 *     field   = tag:u16 size:u32 bytes
 *
 * Integers are little-endian. Unknown tags are skipped; N and N-1 understand each other.
 *
 *     agent                              zygote
 *       ◄── HELLO    libphp version, api, pid
 *       ◄── BOOTED text | BOOT_FAILED text
 *       ──► FORK     worker, kind, generation, wire path, bell path  + fd for stdout and stderr
 *       ◄── FORKED   pid + pidfd | FORK_FAILED text
 *       ──► STOP     (or the socket closes): end without touching the workers */

#ifndef CO_PROTO_ZYGOTE_H
#define CO_PROTO_ZYGOTE_H

#include <stddef.h>
#include <stdint.h>

#define CO_ZYGOTE_VERSION 1
#define CO_ZYGOTE_MSG_MAX (16u * 1024)
#define CO_ZYGOTE_PATH_SIZE 1024
#define CO_ZYGOTE_TEXT_SIZE 8192

enum co_zygote_type {
    CO_ZYGOTE_HELLO = 1,
    CO_ZYGOTE_BOOTED,
    CO_ZYGOTE_BOOT_FAILED,
    CO_ZYGOTE_FORK,
    CO_ZYGOTE_FORKED,
    CO_ZYGOTE_FORK_FAILED,
    CO_ZYGOTE_STOP,
};

enum co_worker_kind {
    CO_KIND_JOB = 0,
    CO_KIND_CONTROL,
    CO_KIND_BOOKKEEPER,
};

struct co_zygote_msg {
    enum co_zygote_type type;
    uint32_t seq;
    uint32_t worker;
    uint32_t generation;
    enum co_worker_kind kind;
    int32_t pid;
    char wire[CO_ZYGOTE_PATH_SIZE];
    char bell[CO_ZYGOTE_PATH_SIZE];
    /* HELLO: PHP version; BOOT_FAILED, FORK_FAILED: why. BOOTED: what the boot left behind, as
     * {"threads":["name",...],"sockets":n}; threads that outlived 5 s are named, and such an
     * application must be booted after the fork. */
    char text[CO_ZYGOTE_TEXT_SIZE];
};

/* Write the message into buf. Returns its size, or CO_ETOOBIG. */
int co_zygote_encode(const struct co_zygote_msg *msg, uint8_t *buf, size_t size);

/* Read a message; buf is borrowed and may hold anything at all.
 * Errors: CO_EMALFORMED, CO_EVERSION; *ret_msg is untouched then. */
int co_zygote_decode(const uint8_t *buf, size_t size, struct co_zygote_msg *ret_msg);

#endif /* CO_PROTO_ZYGOTE_H */
