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

#include "agent/http_parse.h"

#define HOST "Host: x\r\n"

static enum co_http_event feed_all(struct co_http_parse *parse, const char *text, size_t size,
                                   size_t *ret_used, int *ret_status)
{
    co_http_parse_init(parse);
    *ret_status = 0;
    return co_http_parse_feed(parse, text, size, ret_used, ret_status);
}

static void heads_are_taken_or_refused_with_the_right_status(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        const char *text;
        enum co_http_event event;
        int status;
    } rows[] = {
        {"a plain request", "GET / HTTP/1.1\r\n" HOST "\r\n", CO_HTTP_REQUEST, 0},
        {"HEAD", "HEAD / HTTP/1.1\r\n" HOST "\r\n", CO_HTTP_REQUEST, 0},
        {"1.0 needs no host", "GET / HTTP/1.0\r\n\r\n", CO_HTTP_REQUEST, 0},
        {"an empty line before is ignored", "\r\nGET / HTTP/1.1\r\n" HOST "\r\n", CO_HTTP_REQUEST,
         0},
        {"the absolute form", "GET http://x/livez HTTP/1.1\r\n" HOST "\r\n", CO_HTTP_REQUEST, 0},
        {"Content-Length 0 is no body", "GET / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n",
         CO_HTTP_REQUEST, 0},
        {"an upgrade is ignored",
         "GET / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", CO_HTTP_REQUEST,
         0},
        {"a head that goes on", "GET / HTTP/1.1\r\n" HOST, CO_HTTP_MORE, 0},
        {"no host", "GET / HTTP/1.1\r\n\r\n", CO_HTTP_REFUSED, 400},
        {"two hosts", "GET / HTTP/1.1\r\n" HOST HOST "\r\n", CO_HTTP_REFUSED, 400},
        {"a bare LF", "GET / HTTP/1.1\n" HOST "\r\n", CO_HTTP_REFUSED, 400},
        {"a bare LF at the end", "GET / HTTP/1.1\r\n" HOST "\n", CO_HTTP_REFUSED, 400},
        {"a bare CR", "GET / HTTP/1.1\r\nA: b\rc\r\n" HOST "\r\n", CO_HTTP_REFUSED, 400},
        {"a folded header", "GET / HTTP/1.1\r\n" HOST "A: b\r\n c\r\n\r\n", CO_HTTP_REFUSED, 400},
        {"a space before the colon", "GET / HTTP/1.1\r\nHost : x\r\n\r\n", CO_HTTP_REFUSED, 400},
        {"a control byte", "GET / HTTP/1.1\r\n" HOST "A: \x01\r\n\r\n", CO_HTTP_REFUSED, 400},
        {"a target without slash", "GET livez HTTP/1.1\r\n" HOST "\r\n", CO_HTTP_REFUSED, 400},
        {"a fragment", "GET /#a HTTP/1.1\r\n" HOST "\r\n", CO_HTTP_REFUSED, 400},
        {"a high byte in the target", "GET /\xff HTTP/1.1\r\n" HOST "\r\n", CO_HTTP_REFUSED, 400},
        {"POST", "POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\n", CO_HTTP_REFUSED, 405},
        {"CONNECT", "CONNECT x:1 HTTP/1.1\r\n" HOST "\r\n", CO_HTTP_REFUSED, 405},
        {"OPTIONS *", "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", CO_HTTP_REFUSED, 405},
        {"a body", "GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\n", CO_HTTP_REFUSED, 413},
        {"a chunked body", "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n",
         CO_HTTP_REFUSED, 413},
        {"length and chunks",
         "GET / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
         CO_HTTP_REFUSED, 400},
        {"a number that is none", "GET / HTTP/1.1\r\n" HOST "Content-Length: 1x\r\n\r\n",
         CO_HTTP_REFUSED, 400},
        {"HTTP/0.9", "GET /\r\n\r\n", CO_HTTP_REFUSED, 505},
        {"HTTP/2.0", "GET / HTTP/2.0\r\n" HOST "\r\n", CO_HTTP_REFUSED, 505},
        {"a TLS hello", "\x16\x03\x01\x02", CO_HTTP_REFUSED, 400},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct co_http_parse parse;
        size_t used;
        int status;
        enum co_http_event event =
            feed_all(&parse, rows[i].text, strlen(rows[i].text), &used, &status);
        if (event != rows[i].event || status != rows[i].status) {
            fail_msg("%s: event %d status %d", rows[i].what, (int)event, status);
        }
    }
}

static void the_request_says_what_was_asked(void **state)
{
    (void)state;
    static const char text[] = "HEAD http://h/readyz?pool=a%20b&x=1 HTTP/1.1\r\n" HOST
                               "ACCEPT: text/plain\r\nAccept: a/b;q=0.25\r\n"
                               "Connection: close\r\n\r\n";
    struct co_http_parse parse;
    char pool[16];
    size_t used;
    int status;

    assert_int_equal(feed_all(&parse, text, sizeof text - 1, &used, &status), CO_HTTP_REQUEST);
    assert_int_equal(used, sizeof text - 1);
    assert_true(parse.request.head);
    assert_false(parse.request.keep_alive);
    assert_string_equal(parse.request.path, "/readyz");
    assert_string_equal(parse.request.query, "pool=a%20b&x=1");
    assert_string_equal(parse.request.accept, "text/plain,a/b;q=0.25");
    assert_true(co_http_parse_query(parse.request.query, "pool", pool, sizeof pool));
    assert_string_equal(pool, "a b");
}

static void any_cut_gives_the_same_request(void **state)
{
    (void)state;
    static const char text[] = "GET /metrics?a=b HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n";

    for (size_t cut = 0; cut < sizeof text - 1; cut++) {
        struct co_http_parse parse;
        size_t used;
        int status = 0;
        co_http_parse_init(&parse);
        assert_int_equal(co_http_parse_feed(&parse, text, cut, &used, &status), CO_HTTP_MORE);
        assert_int_equal(used, cut);
        assert_int_equal(
            co_http_parse_feed(&parse, text + cut, sizeof text - 1 - cut, &used, &status),
            CO_HTTP_REQUEST);
        assert_string_equal(parse.request.path, "/metrics");
        assert_string_equal(parse.request.query, "a=b");
        assert_string_equal(parse.request.accept, "text/plain");
        assert_true(parse.request.keep_alive);
    }
}

static void what_follows_a_request_is_left_for_the_next(void **state)
{
    (void)state;
    static const char text[] = "GET /a HTTP/1.1\r\n" HOST "\r\nGET /b HTTP/1.1\r\n" HOST "\r\n";
    struct co_http_parse parse;
    size_t used;
    size_t first;
    int status;

    assert_int_equal(feed_all(&parse, text, sizeof text - 1, &first, &status), CO_HTTP_REQUEST);
    assert_string_equal(parse.request.path, "/a");
    assert_int_equal(feed_all(&parse, text + first, sizeof text - 1 - first, &used, &status),
                     CO_HTTP_REQUEST);
    assert_string_equal(parse.request.path, "/b");
    assert_int_equal(first + used, sizeof text - 1);
}

static int status_of_long(const char *head, size_t padding, const char *tail)
{
    size_t size = strlen(head) + padding + strlen(tail);
    char *text = malloc(size + 1);
    struct co_http_parse parse;
    size_t used;
    int status;

    assert_non_null(text);
    strcpy(text, head);
    memset(text + strlen(head), 'a', padding);
    strcpy(text + strlen(head) + padding, tail);
    if (feed_all(&parse, text, size, &used, &status) != CO_HTTP_REFUSED) {
        status = 0;
    }
    free(text);
    return status;
}

static void what_is_too_long_is_refused(void **state)
{
    (void)state;
    static const char head[] = "GET / HTTP/1.1\r\n" HOST "A: ";
    size_t rest = sizeof head - 1 + 4;

    assert_int_equal(status_of_long("GET /", CO_HTTP_TARGET_SIZE, " HTTP/1.1\r\n"), 414);
    assert_int_equal(status_of_long("GET /", CO_HTTP_TARGET_SIZE - 2, " HTTP/1.1\r\n" HOST "\r\n"),
                     0);
    assert_int_equal(status_of_long(head, CO_HTTP_HEAD_MAX - rest, "\r\n\r\n"), 0);
    assert_int_equal(status_of_long(head, CO_HTTP_HEAD_MAX - rest + 1, "\r\n\r\n"), 431);
    assert_int_equal(status_of_long("GET / HTTP/1.1\r\nAccept: ", 2000, "\r\n" HOST "\r\n"), 0);
}

static void accept_headers_of_any_length_together_are_cut(void **state)
{
    (void)state;
    for (size_t first = CO_HTTP_ACCEPT_SIZE - 4; first < CO_HTTP_ACCEPT_SIZE + 4; first++) {
        struct co_http_parse parse;
        char text[2048] = "GET / HTTP/1.1\r\n" HOST "Accept: ";
        size_t used;
        int status;

        memset(text + strlen(text), 'a', first);
        strcat(text, "\r\nAccept: bbbbbbbb\r\nAccept: cccccccc\r\n\r\n");
        assert_int_equal(feed_all(&parse, text, strlen(text), &used, &status), CO_HTTP_REQUEST);
        assert_int_equal(strlen(parse.request.accept), CO_HTTP_ACCEPT_SIZE - 1);
    }
}

static void queries_are_decoded_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *query;
        const char *value; /* NULL: none. */
    } rows[] = {
        {"pool=jobs", "jobs"},
        {"a=b&pool=jobs", "jobs"},
        {"pool=", ""},
        {"pool=a+b%2Fc", "a b/c"},
        {"xpool=jobs", NULL},
        {"pool", NULL},
        {"", NULL},
        {"pool=%", NULL},
        {"pool=%4", NULL},
        {"pool=%zz", NULL},
        {"pool=%00", NULL},
        {"pool=0123456789abcdef", NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char buf[16];
        bool found = co_http_parse_query(rows[i].query, "pool", buf, sizeof buf);
        assert_int_equal(found, rows[i].value != NULL);
        if (found) {
            assert_string_equal(buf, rows[i].value);
        }
    }
}

static void accept_headers_are_weighed(void **state)
{
    (void)state;
    static const struct {
        const char *accept;
        unsigned quality;
    } rows[] = {
        {"", 0},
        {"*/*", 0},
        {"a/b", 1000},
        {"text/html, a/b", 1000},
        {"text/html,A/B;version=1.0.0;q=0.5,*/*;q=0.1", 500},
        {"a/b; q=0.125", 125},
        {"a/b;q=0.12345", 123},
        {"a/b;q=0", 0},
        {"a/b;q=0.05", 50},
        {"a/b;q=1.0", 1000},
        {"a/bc", 0},
        {"a/b;version=2 , x", 1000},
        {"a/b;", 1000},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (co_http_parse_quality(rows[i].accept, "a/b") != rows[i].quality) {
            fail_msg("%s: %u", rows[i].accept, co_http_parse_quality(rows[i].accept, "a/b"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_taken_or_refused_with_the_right_status),
        cmocka_unit_test(the_request_says_what_was_asked),
        cmocka_unit_test(any_cut_gives_the_same_request),
        cmocka_unit_test(what_follows_a_request_is_left_for_the_next),
        cmocka_unit_test(what_is_too_long_is_refused),
        cmocka_unit_test(accept_headers_of_any_length_together_are_cut),
        cmocka_unit_test(queries_are_decoded_or_refused),
        cmocka_unit_test(accept_headers_are_weighed),
    };
    return cmocka_run_group_tests_name("http_parse", tests, NULL, NULL);
}
