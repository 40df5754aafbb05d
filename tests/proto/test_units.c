#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <string.h>

#include "proto/units.h"

#define COUNT_OF(table) (sizeof(table) / sizeof(table)[0])

struct row {
    const char *text;
    uint64_t value;     /* When it is read. */
    const char *advice; /* When it is refused: stands in the message. */
};

static void durations_have_one_unit(void **state)
{
    static const struct row rows[] = {
        {"250ms", 250, NULL},
        {"30s", 30000, NULL},
        {"5m", 300000, NULL},
        {"2h", 7200000, NULL},
        {"1d", 86400000, NULL},
        {"0", 0, NULL},
        {"0s", 0, NULL},
        {"60", 0, "write 60s"},
        {"", 0, "is empty"},
        {"-5s", 0, "negative"},
        {"1.5s", 0, "one whole number and one unit"},
        {"1h30m", 0, "one whole number and one unit"},
        {"5 s", 0, "one whole number and one unit"},
        {" 5s", 0, "one whole number and one unit"},
        {"5S", 0, "one whole number and one unit"},
        {"5sec", 0, "one whole number and one unit"},
        {"s", 0, "is no duration"},
        {"010s", 0, "begins with a zero"},
        {"00", 0, "begins with a zero"},
        {"+5s", 0, "is no duration"},
        {"18446744073709551616s", 0, "too large"},
        {"18446744073709551615d", 0, "too large"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct co_err err = {0};
        co_ms value = 77;
        int code = co_units_duration(rows[i].text, &value, &err);
        assert_int_equal(code, rows[i].advice == NULL ? 0 : CO_ECONFIG);
        assert_int_equal(value, rows[i].advice == NULL ? rows[i].value : 77);
        if (rows[i].advice != NULL && strstr(err.msg, rows[i].advice) == NULL) {
            fail_msg("\"%s\" says: %s", rows[i].text, err.msg);
        }
    }
}

static void sizes_are_binary_or_decimal_but_never_bare(void **state)
{
    static const struct row rows[] = {
        {"512Ki", 512 << 10, NULL},
        {"128Mi", 128 << 20, NULL},
        {"64MiB", 64 << 20, NULL},
        {"1Gi", 1 << 30, NULL},
        {"100k", 100000, NULL},
        {"10M", 10000000, NULL},
        {"10MB", 10000000, NULL},
        {"1G", 1000000000, NULL},
        {"1536B", 1536, NULL},
        {"0", 0, NULL},
        {"128", 0, "write 128Mi"},
        {"128mb", 0, "is no size"},
        {"128K", 0, "is no size"},
        {"1.5Gi", 0, "is no size"},
        {"-1Mi", 0, "negative"},
        {"", 0, "is empty"},
        {"017179869184Gi", 0, "begins with a zero"},
        {"17179869184Gi", 0, "too large"},
        {"99999999999999999999", 0, "too large"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct co_err err = {0};
        uint64_t value = 77;
        int code = co_units_size(rows[i].text, &value, &err);
        assert_int_equal(code, rows[i].advice == NULL ? 0 : CO_ECONFIG);
        assert_int_equal(value, rows[i].advice == NULL ? rows[i].value : 77);
        if (rows[i].advice != NULL && strstr(err.msg, rows[i].advice) == NULL) {
            fail_msg("\"%s\" says: %s", rows[i].text, err.msg);
        }
    }
}

static void counts_are_plain_decimal(void **state)
{
    static const struct row rows[] = {
        {"0", 0, NULL},
        {"512", 512, NULL},
        {"513", 0, "the most is 512"},
        {"18446744073709551616", 0, "too large"},
        {"010", 0, "octal"},
        {"-1", 0, "has a sign"},
        {"+1", 0, "has a sign"},
        {"5s", 0, "digits alone"},
        {"1e3", 0, "digits alone"},
        {"1_000", 0, "digits alone"},
        {"0x10", 0, "digits alone"},
        {"four", 0, "digits alone"},
        {"", 0, "is empty"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct co_err err = {0};
        uint64_t value = 77;
        int code = co_units_count(rows[i].text, 512, &value, &err);
        assert_int_equal(code, rows[i].advice == NULL ? 0 : CO_ECONFIG);
        assert_int_equal(value, rows[i].advice == NULL ? rows[i].value : 77);
        if (rows[i].advice != NULL && strstr(err.msg, rows[i].advice) == NULL) {
            fail_msg("\"%s\" says: %s", rows[i].text, err.msg);
        }
    }
}

static void bools_are_true_or_false(void **state)
{
    static const struct {
        const char *text;
        const char *advice;
    } rows[] = {
        {"yes", "write true"}, {"on", "write true"},     {"1", "write true"},
        {"TRUE", "write one"}, {"no", "write false"},    {"Off", "write false"},
        {"0", "write false"},  {"", "neither true nor"}, {"maybe", "neither true nor"},
    };
    bool value = false;
    (void)state;
    assert_int_equal(co_units_bool("true", &value, NULL), 0);
    assert_true(value);
    assert_int_equal(co_units_bool("false", &value, NULL), 0);
    assert_false(value);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct co_err err = {0};
        assert_int_equal(co_units_bool(rows[i].text, &value, &err), CO_ECONFIG);
        if (strstr(err.msg, rows[i].advice) == NULL) {
            fail_msg("\"%s\" says: %s", rows[i].text, err.msg);
        }
    }
    assert_false(value);
}

static void what_is_written_reads_back(void **state)
{
    static const struct {
        uint64_t value;
        const char *duration;
        const char *size;
    } rows[] = {
        {0, "0", "0"},
        {250, "250ms", "250B"},
        {1000, "1s", "1k"},
        {1536, "1536ms", "1536B"},
        {60000, "60s", "60k"},
        {90000, "90s", "90k"},
        {300000, "5m", "300k"},
        {7200000, "2h", "7200k"},
        {134217728, "134217728ms", "128Mi"},
        {3221225472, "3221225472ms", "3Gi"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char text[CO_UNITS_TEXT_SIZE];
        uint64_t value;
        co_units_duration_write(rows[i].value, text);
        assert_string_equal(text, rows[i].duration);
        assert_int_equal(co_units_duration(text, &value, NULL), 0);
        assert_int_equal(value, rows[i].value);
        co_units_size_write(rows[i].value, text);
        assert_string_equal(text, rows[i].size);
        assert_int_equal(co_units_size(text, &value, NULL), 0);
        assert_int_equal(value, rows[i].value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_have_one_unit),
        cmocka_unit_test(sizes_are_binary_or_decimal_but_never_bare),
        cmocka_unit_test(counts_are_plain_decimal),
        cmocka_unit_test(bools_are_true_or_false),
        cmocka_unit_test(what_is_written_reads_back),
    };
    return cmocka_run_group_tests_name("units", tests, NULL, NULL);
}
