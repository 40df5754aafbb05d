#include "proto/sha256.h"

#include <assert.h>
#include <string.h>

#define BLOCK 64

static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void spread(const uint8_t *block, uint32_t w[64])
{
    for (int i = 0; i < 16; i++) {
        w[i] = get32(block + 4 * i);
    }
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15];
        uint32_t b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
               (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
}

static void mix(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64];
    uint32_t s[8];

    spread(block, w);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) +
                      ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
        uint32_t t2 = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) +
                      ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof s[0]);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) {
        state[i] += s[i];
    }
}

void co_sha256_sum(const void *data, size_t size, uint8_t ret_sum[CO_SHA256_SIZE])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *p = data;
    uint8_t last[2 * BLOCK] = {0};
    size_t left = size;
    size_t end;

    for (; left >= BLOCK; left -= BLOCK, p += BLOCK) {
        mix(state, p);
    }
    if (left > 0) {
        memcpy(last, p, left);
    }
    last[left] = 0x80;
    end = left + 9 > BLOCK ? 2 * BLOCK : BLOCK;
    for (size_t i = 0; i < 8; i++) {
        last[end - 1 - i] = (uint8_t)((uint64_t)size * 8 >> 8 * i);
    }
    for (size_t at = 0; at < end; at += BLOCK) {
        mix(state, last + at);
    }
    for (size_t i = 0; i < CO_SHA256_SIZE; i++) {
        ret_sum[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
    }
}

void co_sha256_mac(const uint8_t key[CO_SHA256_SIZE], const void *data, size_t size,
                   uint8_t ret_mac[CO_SHA256_SIZE])
{
    uint8_t inner[BLOCK + CO_SHA256_MAC_MAX];
    uint8_t outer[BLOCK + CO_SHA256_SIZE];

    assert(size <= CO_SHA256_MAC_MAX);
    memset(inner, 0x36, BLOCK);
    memset(outer, 0x5c, BLOCK);
    for (size_t i = 0; i < CO_SHA256_SIZE; i++) {
        inner[i] ^= key[i];
        outer[i] ^= key[i];
    }
    memcpy(inner + BLOCK, data, size);
    co_sha256_sum(inner, BLOCK + size, outer + BLOCK);
    co_sha256_sum(outer, sizeof outer, ret_mac);
}
