#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <string.h>

#include "proto/fleet_key.h"
#include "proto/sha256.h"

#define ONE "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define TWO "ffeeddccbbaa99887766554433221100FFEEDDCCBBAA99887766554433221100"

static void sums_are_those_of_the_standard(void **state)
{
    static const struct {
        const char *data;
        const char *sum;
    } rows[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t sum[CO_SHA256_SIZE];
        char hex[65];
        co_sha256_sum(rows[i].data, strlen(rows[i].data), sum);
        co_fleet_key_hex(sum, hex);
        assert_string_equal(hex, rows[i].sum);
    }
}

/* RFC 4231, test case 1; its key of 20 bytes is padded with zeros by HMAC itself. */
static void the_code_is_that_of_the_standard(void **state)
{
    uint8_t key[CO_SHA256_SIZE] = {0};
    uint8_t mac[CO_SHA256_SIZE];
    char hex[65];
    (void)state;
    memset(key, 0x0b, 20);
    co_sha256_mac(key, "Hi There", 8, mac);
    co_fleet_key_hex(mac, hex);
    assert_string_equal(hex, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

static void a_secret_file_has_one_or_two_lines(void **state)
{
    static const struct {
        const char *text;
        uint32_t n; /* 0: refused. */
    } rows[] = {
        {ONE, 1},
        {ONE "\n", 1},
        {"# made in May\n\n  " ONE "  # in use\r\n" TWO "\n", 2},
        {"", 0},
        {"\n# nothing\n", 0},
        {ONE ONE, 0},
        {"0011", 0},
        {ONE "\n" TWO "\n" ONE, 0},
        {"x0112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct co_fleet_secrets secrets = {.n = 77};
        struct co_err err;
        int code = co_fleet_secrets_read(rows[i].text, strlen(rows[i].text), &secrets, &err);
        assert_int_equal(code, rows[i].n > 0 ? 0 : CO_ECONFIG);
        assert_int_equal(secrets.n, rows[i].n > 0 ? rows[i].n : 77);
        if (code < 0) {
            assert_null(strstr(err.msg, "0011"));
        }
    }
}

static void keys_differ_by_secret_name_and_role(void **state)
{
    uint8_t keys[2 * 2 * CO_FLEET_ROLES][CO_FLEET_SECRET_SIZE];
    struct co_fleet_secrets secrets;
    const char *const names[] = {"shop", "shop2"};
    uint32_t n = 0;
    (void)state;
    assert_int_equal(co_fleet_secrets_read(ONE "\n" TWO, 129, &secrets, NULL), 0);
    for (uint32_t s = 0; s < 2; s++) {
        for (uint32_t name = 0; name < 2; name++) {
            for (enum co_fleet_role role = 0; role < CO_FLEET_ROLES; role++) {
                co_fleet_key_derive(secrets.secret[s], names[name], role, keys[n++]);
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = i + 1; k < n; k++) {
            assert_int_not_equal(memcmp(keys[i], keys[k], sizeof keys[i]), 0);
        }
    }
}

/* Agents of two versions must derive the same: a change of these bytes splits every fleet. */
static void a_key_is_what_it_was(void **state)
{
    struct co_fleet_secrets secrets;
    uint8_t key[CO_FLEET_SECRET_SIZE];
    char hex[65];
    (void)state;
    assert_int_equal(co_fleet_secrets_read(ONE, 64, &secrets, NULL), 0);
    co_fleet_key_derive(secrets.secret[0], "shop", CO_FLEET_ROLE_MEMBER, key);
    co_fleet_key_hex(key, hex);
    assert_string_equal(hex, "e518b1f2af7711adac9c70ff771a37d6e4f0f0e1c0db1b3d2c1b310eaff2e671");
}

static void a_role_key_is_written_and_read(void **state)
{
    struct co_fleet_role_key key = {.role = CO_FLEET_ROLE_VIEWER,
                                    .server = "0123456789012345678901234567890123456789"};
    struct co_fleet_role_key back;
    char text[CO_FLEET_ROLE_KEY_SIZE];
    (void)state;
    memset(key.client, 0xa5, sizeof key.client);
    co_fleet_role_key_write(&key, text);
    assert_int_equal(co_fleet_role_key_read(text, strlen(text), &back, NULL), 0);
    assert_int_equal(back.role, key.role);
    assert_string_equal(back.server, key.server);
    assert_memory_equal(back.client, key.client, sizeof key.client);
    for (size_t cut = 0; cut + 1 < strlen(text); cut++) {
        assert_int_equal(co_fleet_role_key_read(text, cut, &back, NULL), CO_ECONFIG);
    }
    assert_int_equal(co_fleet_role_key_read("cohort-key 1 member x y", 23, &back, NULL),
                     CO_ECONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_standard),
        cmocka_unit_test(the_code_is_that_of_the_standard),
        cmocka_unit_test(a_secret_file_has_one_or_two_lines),
        cmocka_unit_test(keys_differ_by_secret_name_and_role),
        cmocka_unit_test(a_key_is_what_it_was),
        cmocka_unit_test(a_role_key_is_written_and_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
