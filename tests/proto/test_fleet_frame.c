#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/fleet_frame.h"

static struct co_fleet_msg a, b;
static uint8_t buf[CO_FLEET_FRAME_MAX];
static char address[CO_FLEET_ADDRESS_SIZE];

static uint64_t seed;
static uint32_t roll(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static void head(uint8_t kind)
{
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    a.kind = kind;
    a.version = CO_FLEET_VERSION;
    a.from = 0x1122334455667788;
    a.incarnation = 5;
    a.seq = 300;
}

static void sample(uint8_t kind)
{
    head(kind);
    switch ((enum co_fleet_kind)kind) {
    case CO_FLEET_BEAT:
        a.beat.lag_ms = 7;
        a.beat.flags = CO_FLEET_QUEUES | CO_FLEET_HELLO;
        a.beat.n_downs = 1;
        a.beat.downs[0] = (struct co_fleet_sight){9, 8, 7};
        a.beat.n_relays = 2;
        a.beat.relays[0] = (struct co_fleet_sight){3, 2, 1};
        a.beat.relays[1] = (struct co_fleet_sight){6, 5, 4};
        a.beat.n_queues = 2;
        a.beat.queues[0] = 0xffffffffffffffff;
        a.beat.queues[1] = 12;
        a.beat.n_overrides = 1;
        a.beat.overrides[0] = (struct co_fleet_override){.queue = 12,
                                                         .epoch = 1,
                                                         .agent = 4,
                                                         .action = CO_FLEET_PAUSE,
                                                         .since = 1700000000,
                                                         .by = "ann@host",
                                                         .reason = "mail is down"};
        break;
    case CO_FLEET_REPORT:
        a.report.stamp = 1234567;
        a.report.n_entries = 2;
        a.report.entries[0] = (struct co_fleet_report_entry){.queue = 12,
                                                             .epoch = {1, 2, 3},
                                                             .max = 40,
                                                             .grant = 3,
                                                             .load = {8, 3, 1, 0, 5, 1000, 5, 6}};
        a.report.entries[1] = (struct co_fleet_report_entry){.queue = 13, .load = {.capacity = 1}};
        break;
    case CO_FLEET_PLAN:
        a.plan.queue = 12;
        a.plan.epoch = (struct co_fleet_epoch){2, 0x1122334455667788, 9};
        a.plan.stamp = 77;
        a.plan.target = 5;
        a.plan.max = 40;
        a.plan.history_size = 3;
        memcpy(a.plan.history, "\1\0\2", 3);
        a.plan.n_seats = 2;
        a.plan.seats[0] = (struct co_fleet_seat){5, 1, 8, 3, 3, 0};
        a.plan.seats[1] = (struct co_fleet_seat){6, 1, 8, 2, 2, 0};
        break;
    case CO_FLEET_CLAIM:
        a.claim = (struct co_fleet_claim){12, 3, 99, {2, 4, 8}};
        break;
    case CO_FLEET_ACK:
        a.ack = (struct co_fleet_ack){12, 3, 99, 98, 5, {2, 4, 8}};
        break;
    }
}

static size_t write_a(uint8_t version)
{
    size_t size = 0;
    assert_int_equal(co_fleet_frame_write(&a, version, "10.0.0.7:7946", buf, sizeof buf, &size), 0);
    return size;
}

static void every_kind_comes_back_as_it_was(void **state)
{
    (void)state;
    for (uint8_t kind = CO_FLEET_BEAT; kind <= CO_FLEET_ACK; kind++) {
        size_t size;
        sample(kind);
        size = write_a(CO_FLEET_VERSION);
        assert_int_equal(co_fleet_frame_read(buf, size, &b, address), 0);
        assert_memory_equal(&a, &b, sizeof a);
        assert_string_equal(address, "10.0.0.7:7946");
    }
}

static void a_claim_has_these_bytes(void **state)
{
    static const uint8_t golden[] = {
        'C',  'F',  2,    CO_FLEET_CLAIM, /* head */
        1,    0,    8,    0x11,
        0x22, 0x33, 0x44, 0x55,
        0x66, 0x77, 0x88, /* from */
        2,    0,    1,    5,
        3,    0,    2,    1,
        44, /* incarnation, seq */
        4,    0,    13,   '1',
        '0',  '.',  '0',  '.',
        '0',  '.',  '7',  ':',
        '7',  '9',  '4',  '6',
        5,    0,    1,    2, /* speaks */
        16,   0,    1,    12,
        17,   0,    1,    3,
        18,   0,    1,    99, /* queue, term, stamp */
        19,   0,    1,    2,
        20,   0,    1,    4,
        21,   0,    1,    8, /* epoch */
    };
    (void)state;
    sample(CO_FLEET_CLAIM);
    assert_int_equal(write_a(2), sizeof golden);
    assert_memory_equal(buf, golden, sizeof golden);
}

/* Cut inside a field: refused. Cut between two: a shorter message, which must be a possible one. */
static void a_cut_frame_is_refused_or_whole(void **state)
{
    (void)state;
    for (uint8_t kind = CO_FLEET_BEAT; kind <= CO_FLEET_ACK; kind++) {
        size_t size;
        sample(kind);
        size = write_a(CO_FLEET_VERSION);
        for (size_t cut = 0; cut < size; cut++) {
            uint8_t *copy =
                malloc(cut > 0 ? cut : 1); /* So that a sanitizer sees a read past it. */
            int code;
            memcpy(copy, buf, cut);
            code = co_fleet_frame_read(copy, cut, &b, address);
            assert_true(code == 0 || code == CO_EMALFORMED || code == CO_EVERSION);
            if (code == 0) {
                assert_int_equal(co_fleet_check(&b), 0);
            } else if (cut < 15) {
                assert_int_not_equal(code, 0);
            }
            free(copy);
        }
    }
}

static void unknown_fields_are_skipped(void **state)
{
    static const uint8_t more[] = {200, 0, 2, 'x', 'y'};
    size_t size;
    (void)state;
    sample(CO_FLEET_PLAN);
    size = write_a(CO_FLEET_VERSION);
    memcpy(buf + size, more, sizeof more);
    buf[2] = 9; /* A later version. */
    assert_int_equal(co_fleet_frame_read(buf, size + sizeof more, &b, address), 0);
    assert_memory_equal(&a, &b, sizeof a);
}

static void the_previous_version_leaves_out_what_it_did_not_know(void **state)
{
    size_t size;
    (void)state;
    sample(CO_FLEET_BEAT);
    size = write_a(1);
    assert_int_equal(buf[2], 1);
    assert_int_equal(co_fleet_frame_read(buf, size, &b, address), 0);
    assert_int_equal(b.beat.lag_ms, 0);
    assert_int_equal(b.beat.n_relays, 0);
    assert_int_equal(b.beat.n_queues, 2);
    assert_int_equal(b.beat.n_overrides, 1);
    sample(CO_FLEET_PLAN);
    size = write_a(1);
    assert_int_equal(co_fleet_frame_read(buf, size, &b, address), 0);
    assert_int_equal(b.plan.history_size, 0);
    assert_int_equal(b.plan.n_seats, 2);
    buf[2] = 0;
    assert_int_equal(co_fleet_frame_read(buf, size, &b, address), CO_EVERSION);
    assert_int_equal(co_fleet_frame_write(&a, 9, "", buf, sizeof buf, &size), CO_EVERSION);
}

static void the_largest_messages_fit(void **state)
{
    size_t size = 0;
    (void)state;
    head(CO_FLEET_PLAN);
    a.plan.queue = 1;
    a.plan.n_seats = CO_FLEET_AGENTS_MAX;
    for (uint32_t i = 0; i < CO_FLEET_AGENTS_MAX; i++) {
        a.plan.seats[i] =
            (struct co_fleet_seat){~0ull - 1000 + i, ~0ull, 65535, 65535, 65535, 65535};
    }
    size = write_a(CO_FLEET_VERSION);
    assert_true(size < CO_FLEET_FRAME_MAX);
    assert_int_equal(co_fleet_frame_write(&a, 2, "", buf, 100, &size), CO_ETOOBIG);
    head(CO_FLEET_REPORT);
    a.report.n_entries = CO_FLEET_QUEUES_MAX;
    memset(a.report.entries, 0xff, sizeof a.report.entries);
    assert_true(write_a(CO_FLEET_VERSION) < CO_FLEET_FRAME_MAX);
}

/* Fields of random tags, sizes and bytes behind a good head, and good frames with bytes changed. */
static void ten_thousand_random_frames_do_no_harm(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 10000; i++) {
        size_t size;
        seed = i;
        sample((uint8_t)(1 + roll(5)));
        size = write_a((uint8_t)(1 + roll(2)));
        if (i % 2 == 0) {
            for (uint32_t n = roll(40); n > 0; n--) {
                uint32_t length = roll(30);
                buf[size++] = (uint8_t)roll(64);
                buf[size++] = (uint8_t)(roll(20) == 0);
                buf[size++] = (uint8_t)length;
                for (; length > 0; length--) {
                    buf[size++] = (uint8_t)roll(256);
                }
            }
        } else {
            for (uint32_t n = 1 + roll(8); n > 0; n--) {
                buf[roll((uint32_t)size)] = (uint8_t)roll(256);
            }
        }
        if (co_fleet_frame_read(buf, size, &b, address) == 0) {
            assert_int_equal(co_fleet_check(&b), 0);
            assert_true(memchr(address, 0, sizeof address) != NULL);
            /* What was understood can be said again. */
            a = b;
            a.version = CO_FLEET_VERSION;
            write_a(CO_FLEET_VERSION);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_comes_back_as_it_was),
        cmocka_unit_test(a_claim_has_these_bytes),
        cmocka_unit_test(a_cut_frame_is_refused_or_whole),
        cmocka_unit_test(unknown_fields_are_skipped),
        cmocka_unit_test(the_previous_version_leaves_out_what_it_did_not_know),
        cmocka_unit_test(the_largest_messages_fit),
        cmocka_unit_test(ten_thousand_random_frames_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
