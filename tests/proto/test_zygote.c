#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/zygote.h"

static const struct co_zygote_msg order = {
    .type = CO_ZYGOTE_FORK,
    .seq = 258,
    .worker = 7,
    .generation = 3,
    .kind = CO_KIND_CONTROL,
    .wire = "/run/w7",
    .bell = "/run/b",
};

/* clang-format off */
static const uint8_t golden[] = {
    'C', 'O', 'Z', 1, 4, 0, 2, 1, 0, 0,
    1, 0, 4, 0, 0, 0, 7, 0, 0, 0,
    2, 0, 4, 0, 0, 0, 3, 0, 0, 0,
    3, 0, 4, 0, 0, 0, 1, 0, 0, 0,
    5, 0, 7, 0, 0, 0, '/', 'r', 'u', 'n', '/', 'w', '7',
    6, 0, 6, 0, 0, 0, '/', 'r', 'u', 'n', '/', 'b',
};
/* clang-format on */

static void bytes_are_what_we_promised(void **state)
{
    uint8_t buf[CO_ZYGOTE_MSG_MAX];
    struct co_zygote_msg msg;
    (void)state;
    assert_int_equal(co_zygote_encode(&order, buf, sizeof buf), sizeof golden);
    assert_memory_equal(buf, golden, sizeof golden);
    assert_int_equal(co_zygote_decode(golden, sizeof golden, &msg), CO_OK);
    assert_memory_equal(&msg, &order, sizeof msg);
}

static void pid_and_text_travel(void **state)
{
    uint8_t buf[CO_ZYGOTE_MSG_MAX];
    struct co_zygote_msg msg = {.type = CO_ZYGOTE_BOOT_FAILED, .pid = 4711};
    struct co_zygote_msg back;
    (void)state;
    memset(msg.text, 't', sizeof msg.text - 1);
    int size = co_zygote_encode(&msg, buf, sizeof buf);
    assert_true(size > 0);
    assert_int_equal(co_zygote_decode(buf, (size_t)size, &back), CO_OK);
    assert_memory_equal(&back, &msg, sizeof msg);
}

static void a_message_without_room_is_refused(void **state)
{
    uint8_t buf[sizeof golden];
    (void)state;
    for (size_t size = 0; size < sizeof golden; size++) {
        assert_int_equal(co_zygote_encode(&order, buf, size), CO_ETOOBIG);
    }
    assert_int_equal(co_zygote_encode(&order, buf, sizeof golden), sizeof golden);
}

/* Fields are optional, so a cut between two is a shorter message; packets are never cut. */
static size_t is_field_end(size_t size)
{
    static const size_t ends[] = {10, 20, 30, 40, 53};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (ends[i] == size) {
            return 1;
        }
    }
    return 0;
}

static void every_cut_is_refused_but_between_fields(void **state)
{
    (void)state;
    for (size_t size = 0; size < sizeof golden; size++) {
        struct co_zygote_msg msg = {.seq = 99};
        uint8_t *cut = malloc(size + 1); /* Its own block, so that ASan sees a step too far. */
        memcpy(cut, golden, size);
        int rc = co_zygote_decode(cut, size, &msg);
        assert_int_equal(rc, is_field_end(size) ? CO_OK : CO_EMALFORMED);
        assert_int_equal(msg.seq, is_field_end(size) ? 258 : 99);
        free(cut);
    }
}

static void bad_bytes_are_refused(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
        int want;
    } rows[] = {
        {0, 'X', CO_EMALFORMED}, /* Magic. */
        {3, 2, CO_EVERSION},     /* Version. */
        {4, 0, CO_EMALFORMED},   /* Types nobody knows. */
        {4, 8, CO_EMALFORMED},    {5, 1, CO_EMALFORMED},
        {12, 5, CO_EMALFORMED},   /* A number of five bytes. */
        {15, 255, CO_EMALFORMED}, /* A size past the end. */
        {36, 9, CO_EMALFORMED},   /* A kind nobody knows. */
        {47, 0, CO_EMALFORMED},   /* A NUL inside a path. */
        {10, 99, CO_OK},          /* A tag nobody knows is a newer version's. */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t bad[sizeof golden];
        struct co_zygote_msg msg;
        memcpy(bad, golden, sizeof bad);
        bad[rows[i].at] = rows[i].value;
        int rc = co_zygote_decode(bad, sizeof bad, &msg);
        if (rc != rows[i].want) {
            fail_msg("row %zu: %d", i, rc);
        }
    }
}

static void a_path_that_is_too_long_is_refused(void **state)
{
    static uint8_t buf[16 + 2000] = {'C', 'O', 'Z', 1, 4, 0, 0, 0, 0, 0, 5, 0};
    struct co_zygote_msg msg;
    (void)state;
    memset(buf + 16, 'p', 2000);
    buf[12] = 0xff; /* 1023 */
    buf[13] = 0x03;
    assert_int_equal(co_zygote_decode(buf, 16 + 1023, &msg), CO_OK);
    assert_int_equal(strlen(msg.wire), CO_ZYGOTE_PATH_SIZE - 1);
    buf[12] = 0x00; /* 1024 */
    buf[13] = 0x04;
    assert_int_equal(co_zygote_decode(buf, 16 + 1024, &msg), CO_EMALFORMED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_what_we_promised),
        cmocka_unit_test(pid_and_text_travel),
        cmocka_unit_test(a_message_without_room_is_refused),
        cmocka_unit_test(every_cut_is_refused_but_between_fields),
        cmocka_unit_test(bad_bytes_are_refused),
        cmocka_unit_test(a_path_that_is_too_long_is_refused),
    };
    return cmocka_run_group_tests_name("zygote", tests, NULL, NULL);
}
