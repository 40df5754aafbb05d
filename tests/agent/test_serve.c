/* Which queues a pool serves. */

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

#include "agent/serve.h"

static void a_pattern_matches_the_whole_name(void **state)
{
    static const struct {
        const char *pattern, *name;
        bool match;
    } rows[] = {
        {"mails", "mails", true},
        {"mails", "mail", false},
        {"mail", "mails", false},
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "anything at all", true},
        {"tenant-*", "tenant-", true},
        {"tenant-*", "tenant-7", true},
        {"tenant-*", "tenant", false},
        {"*-low", "a-low", true},
        {"*-low", "a-low-b", false},
        {"*-low", "-low-low", true},
        {"a*b*c", "abc", true},
        {"a*b*c", "axxbyyc", true},
        {"a*b*c", "acb", false},
        {"**", "a", true},
        {"a?", "ab", false},
        {"[a]", "a", false},
        {"*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (co_serve_match(rows[i].pattern, rows[i].name) != rows[i].match) {
            fail_msg("\"%s\" and \"%s\"", rows[i].pattern, rows[i].name);
        }
    }
}

/* "connection:pattern=rank connection:pattern=rank" */
static const char *describe(const struct co_serve *serve)
{
    static char text[4096];
    size_t size = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < serve->n; i++) {
        const struct co_serve_entry *entry = &serve->entries[i];
        size += (size_t)snprintf(text + size, sizeof text - size, "%s%s:%s=%u%s",
                                 size > 0 ? " " : "", entry->connection, entry->pattern,
                                 entry->rank, entry->literal ? "" : "~");
    }
    return text;
}

static void a_list_is_read_in_its_order(void **state)
{
    static const struct {
        const char *queue, *own, *expected;
    } rows[] = {
        {"high,default", "x", "db:high=0 db:default=1"},
        {" high , default ", "x", "db:high=0 db:default=1"},
        {"high,", "x", "db:high=0"},
        {"redis:mails,tenant-*", "x", "redis:mails=0 db:tenant-*=1~"},
        {"redis : mails", "x", "redis:mails=0"},
        {"a:b:c", "x", "a:b:c=0"},
        {"*", "x", "db:*=0~"},
        {"", "default", "db:default=0 db:*=0~"},
        {"", "a,b", "db:a=0 db:b=0 db:*=0~"},
    };
    static struct co_serve serve;
    struct co_err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(co_serve_read(&serve, rows[i].queue, "db", rows[i].own, &err), CO_OK);
        assert_string_equal(describe(&serve), rows[i].expected);
    }
}

static void a_bad_list_is_refused_with_the_way_out(void **state)
{
    static const struct {
        const char *queue, *says;
    } rows[] = {
        {"a,,b", "empty name"}, {",a", "empty name"}, {" ", "empty name"},
        {"redis:", "redis:"},   {":mails", ":mails"}, {"a, redis: ,b", "redis:"},
    };
    static struct co_serve serve;
    static char longest[CO_TEXT_SIZE * 2];
    struct co_err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (co_serve_read(&serve, rows[i].queue, "db", "x", &err) != CO_ECONFIG ||
            strstr(err.msg, rows[i].says) == NULL) {
            fail_msg("\"%s\": %s", rows[i].queue, err.msg);
        }
    }
    memset(longest, 'q', sizeof longest - 1);
    assert_int_equal(co_serve_read(&serve, longest, "db", "x", &err), CO_ECONFIG);
    longest[CO_NAME_SIZE] = ':';
    longest[CO_NAME_SIZE + 2] = '\0';
    assert_int_equal(co_serve_read(&serve, longest, "db", "x", &err), CO_ECONFIG);
    for (size_t i = 0; i < sizeof longest - 1; i++) {
        longest[i] = i % 2 == 0 ? 'q' : ',';
    }
    longest[2 * CO_SERVE_MAX] = '\0';
    assert_int_equal(co_serve_read(&serve, longest, "db", "x", &err), CO_OK);
    longest[2 * CO_SERVE_MAX] = 'q';
    longest[2 * CO_SERVE_MAX + 1] = '\0';
    assert_int_equal(co_serve_read(&serve, longest, "db", "x", &err), CO_ECONFIG);
}

static void the_first_entry_that_matches_gives_the_rank(void **state)
{
    static struct co_serve serve;
    struct co_err err;

    (void)state;
    assert_int_equal(co_serve_read(&serve, "tenant-1,tenant-*,redis:x,*", "db", "x", &err), CO_OK);
    assert_int_equal(co_serve_rank(&serve, "db", "tenant-1"), 0);
    assert_int_equal(co_serve_rank(&serve, "db", "tenant-2"), 1);
    assert_int_equal(co_serve_rank(&serve, "redis", "x"), 2);
    assert_int_equal(co_serve_rank(&serve, "db", "x"), 3);
    assert_int_equal(co_serve_rank(&serve, "redis", "y"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pattern_matches_the_whole_name),
        cmocka_unit_test(a_list_is_read_in_its_order),
        cmocka_unit_test(a_bad_list_is_refused_with_the_way_out),
        cmocka_unit_test(the_first_entry_that_matches_gives_the_rank),
    };
    return cmocka_run_group_tests_name("serve", tests, NULL, NULL);
}
