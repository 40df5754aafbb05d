/* SHA-256 (FIPS 180-4) and HMAC over it (RFC 2104): keys of a fleet are derived with it, in both
 * the agent and the command line, neither of which needs a library for it. Not for bulk data. */

#ifndef CO_PROTO_SHA256_H
#define CO_PROTO_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define CO_SHA256_SIZE 32

void co_sha256_sum(const void *data, size_t size, uint8_t ret_sum[CO_SHA256_SIZE]);

/* The code of data under a key of CO_SHA256_SIZE bytes. size at most CO_SHA256_MAC_MAX. */
#define CO_SHA256_MAC_MAX 256
void co_sha256_mac(const uint8_t key[CO_SHA256_SIZE], const void *data, size_t size,
                   uint8_t ret_mac[CO_SHA256_SIZE]);

#endif /* CO_PROTO_SHA256_H */
