/* The keys of a fleet, all of them from its secret: whoever has the file is a member.
 *
 *     secret file  one or two lines of 64 hexadecimal digits (`cohort keygen`); # begins a comment.
 *                  The first is in use, the second is accepted as well, while keys are changed.
 *     role key     what `cohort keygen --role viewer` makes of it, for people without the secret:
 *                      cohort-key 1 ROLE SERVER CLIENT
 *                  ROLE is viewer or operator, SERVER the public key of the fleet's agents (Z85),
 *                  CLIENT the secret key of the role (64 hexadecimal digits).
 *
 * The fleet's name goes into every key: agents of two fleets never come to speak, even with one
 * secret. */

#ifndef CO_PROTO_FLEET_KEY_H
#define CO_PROTO_FLEET_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

#define CO_FLEET_SECRET_SIZE 32
#define CO_FLEET_SECRETS_MAX 2
#define CO_FLEET_Z85_SIZE 41 /* A key as ZeroMQ writes it, with its end. */

enum co_fleet_role {
    CO_FLEET_ROLE_SERVER = 0, /* The side that listens. */
    CO_FLEET_ROLE_MEMBER,     /* An agent that dials. */
    CO_FLEET_ROLE_VIEWER,     /* People: may look ... */
    CO_FLEET_ROLE_OPERATOR,   /* ... and may act. */
    CO_FLEET_ROLES,
};

const char *co_fleet_role_name(enum co_fleet_role role); /* "member"; never NULL. */

struct co_fleet_secrets {
    uint32_t n;
    uint8_t secret[CO_FLEET_SECRETS_MAX][CO_FLEET_SECRET_SIZE];
};

/* Read the text of a secret file. Errors: CO_ECONFIG with the line; never with its content. */
int co_fleet_secrets_read(const char *text, size_t size, struct co_fleet_secrets *ret_secrets,
                          struct co_err *err);

/* The secret key of a role in the fleet of that name (at most 64 bytes), for CURVE. */
void co_fleet_key_derive(const uint8_t secret[CO_FLEET_SECRET_SIZE], const char *name,
                         enum co_fleet_role role, uint8_t ret_key[CO_FLEET_SECRET_SIZE]);

struct co_fleet_role_key {
    enum co_fleet_role role;
    char server[CO_FLEET_Z85_SIZE];
    uint8_t client[CO_FLEET_SECRET_SIZE];
};

/* Errors: CO_ECONFIG. */
int co_fleet_role_key_read(const char *text, size_t size, struct co_fleet_role_key *ret_key,
                           struct co_err *err);
/* With its newline; buf of CO_FLEET_ROLE_KEY_SIZE. */
#define CO_FLEET_ROLE_KEY_SIZE 160
void co_fleet_role_key_write(const struct co_fleet_role_key *key, char *buf);

/* 64 digits and a NUL. */
void co_fleet_key_hex(const uint8_t key[CO_FLEET_SECRET_SIZE], char ret_text[65]);

#endif /* CO_PROTO_FLEET_KEY_H */
