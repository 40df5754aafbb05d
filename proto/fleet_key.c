#include "proto/fleet_key.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/sha256.h"

static const char *const names[CO_FLEET_ROLES] = {
    [CO_FLEET_ROLE_SERVER] = "server",
    [CO_FLEET_ROLE_MEMBER] = "member",
    [CO_FLEET_ROLE_VIEWER] = "viewer",
    [CO_FLEET_ROLE_OPERATOR] = "operator",
};

const char *co_fleet_role_name(enum co_fleet_role role)
{
    return (unsigned)role < CO_FLEET_ROLES ? names[role] : "unknown";
}

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool read_hex(const char *text, size_t size, uint8_t ret_key[CO_FLEET_SECRET_SIZE])
{
    uint8_t key[CO_FLEET_SECRET_SIZE];

    if (size != 2 * sizeof key) {
        return false;
    }
    for (size_t i = 0; i < sizeof key; i++) {
        int high = digit(text[2 * i]);
        int low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        key[i] = (uint8_t)(high << 4 | low);
    }
    memcpy(ret_key, key, sizeof key);
    return true;
}

void co_fleet_key_hex(const uint8_t key[CO_FLEET_SECRET_SIZE], char ret_text[65])
{
    for (size_t i = 0; i < CO_FLEET_SECRET_SIZE; i++) {
        snprintf(ret_text + 2 * i, 3, "%02x", key[i]);
    }
}

/* The next line without its blanks and comment; false at the end. */
static bool next_line(const char **at, const char *end, const char **ret_line, size_t *ret_size)
{
    const char *line = *at;
    const char *stop;
    const char *hash;

    if (line >= end) {
        return false;
    }
    stop = memchr(line, '\n', (size_t)(end - line));
    stop = stop != NULL ? stop : end;
    *at = stop + 1;
    hash = memchr(line, '#', (size_t)(stop - line));
    stop = hash != NULL ? hash : stop;
    while (line < stop && (*line == ' ' || *line == '\t')) {
        line++;
    }
    while (stop > line && (stop[-1] == ' ' || stop[-1] == '\t' || stop[-1] == '\r')) {
        stop--;
    }
    *ret_line = line;
    *ret_size = (size_t)(stop - line);
    return true;
}

int co_fleet_secrets_read(const char *text, size_t size, struct co_fleet_secrets *ret_secrets,
                          struct co_err *err)
{
    struct co_fleet_secrets secrets = {0};
    const char *at = text;
    const char *line;
    size_t length;

    for (unsigned number = 1; next_line(&at, text + size, &line, &length); number++) {
        if (length == 0) {
            continue;
        }
        if (secrets.n == CO_FLEET_SECRETS_MAX) {
            return co_err_set(err, CO_ECONFIG,
                              "line %u: a fleet has one secret, and a second while it is changed; "
                              "remove the oldest",
                              number);
        }
        if (!read_hex(line, length, secrets.secret[secrets.n])) {
            return co_err_set(err, CO_ECONFIG,
                              "line %u: a secret is 64 hexadecimal digits; cohort keygen makes one",
                              number);
        }
        secrets.n++;
    }
    if (secrets.n == 0) {
        return co_err_set(err, CO_ECONFIG, "it holds no secret; cohort keygen makes one");
    }
    *ret_secrets = secrets;
    return 0;
}

void co_fleet_key_derive(const uint8_t secret[CO_FLEET_SECRET_SIZE], const char *name,
                         enum co_fleet_role role, uint8_t ret_key[CO_FLEET_SECRET_SIZE])
{
    char label[CO_SHA256_MAC_MAX];
    int size = snprintf(label, sizeof label, "cohort fleet 1/%s/%.64s", names[role], name);

    assert(size > 0 && (size_t)size < sizeof label);
    co_sha256_mac(secret, label, (size_t)size, ret_key);
}

static bool read_role(const char *word, enum co_fleet_role *ret_role)
{
    for (enum co_fleet_role role = CO_FLEET_ROLE_VIEWER; role < CO_FLEET_ROLES; role++) {
        if (strcmp(word, names[role]) == 0) {
            *ret_role = role;
            return true;
        }
    }
    return false;
}

/* The next word of a line, cut out; "" at its end. */
static void take_word(const char **at, const char *end, char *buf, size_t size)
{
    const char *stop;
    size_t length;

    while (*at < end && **at == ' ') {
        (*at)++;
    }
    stop = *at < end ? memchr(*at, ' ', (size_t)(end - *at)) : NULL;
    stop = stop != NULL ? stop : end;
    length = (size_t)(stop - *at) < size ? (size_t)(stop - *at) : size - 1;
    snprintf(buf, size, "%.*s", (int)length, *at);
    *at = stop;
}

int co_fleet_role_key_read(const char *text, size_t size, struct co_fleet_role_key *ret_key,
                           struct co_err *err)
{
    struct co_fleet_role_key key = {0};
    const char *at = text;
    const char *line = text;
    size_t length = 0;
    char words[6][80];

    while (next_line(&at, text + size, &line, &length) && length == 0) {
    }
    at = line;
    for (size_t i = 0; i < 6; i++) {
        take_word(&at, line + length, words[i], sizeof words[i]);
    }
    if (strcmp(words[0], "cohort-key") != 0 || strcmp(words[1], "1") != 0 ||
        !read_role(words[2], &key.role) || strlen(words[3]) != CO_FLEET_Z85_SIZE - 1 ||
        !read_hex(words[4], strlen(words[4]), key.client) || words[5][0] != '\0') {
        return co_err_set(
            err, CO_ECONFIG,
            "this is no key of a role; cohort keygen --role viewer --secret-file FILE "
            "--fleet-name NAME makes one");
    }
    memcpy(key.server, words[3], sizeof key.server);
    *ret_key = key;
    return 0;
}

void co_fleet_role_key_write(const struct co_fleet_role_key *key, char *buf)
{
    char hex[65];

    co_fleet_key_hex(key->client, hex);
    snprintf(buf, CO_FLEET_ROLE_KEY_SIZE, "cohort-key 1 %s %s %s\n", co_fleet_role_name(key->role),
             key->server, hex);
}
