/* Any bytes, in pieces of any size, are either a request or refused, with the same verdict however
 * they are cut. */

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "agent/http_parse.h"

#define TEXT_MAX 20000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How far into a good request the fuzzed bytes begin: chance alone seldom gets there. */
static const char *const prefixes[] = {
    "",
    "GET /",
    "GET / HTTP/1.1\r\nHost: x\r\n",
    "GET / HTTP/1.1\r\nHost: x\r\nAccept: ",
    "HEAD /readyz?pool=",
    "GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: ",
};

static enum co_http_event feed(struct co_http_parse *parse, const char *text, size_t size,
                               size_t piece, size_t *ret_total)
{
    enum co_http_event event = CO_HTTP_MORE;
    size_t at = 0;

    co_http_parse_init(parse);
    while (event == CO_HTTP_MORE && at < size) {
        size_t n = size - at < piece ? size - at : piece;
        size_t used;
        int status = 0;
        event = co_http_parse_feed(parse, text + at, n, &used, &status);
        assert(used <= n);
        assert(event != CO_HTTP_MORE || used == n);
        assert((event == CO_HTTP_REFUSED) == (status >= 400));
        at += used;
    }
    *ret_total = at;
    return event;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[TEXT_MAX];
    struct co_http_parse whole;
    struct co_http_parse cut;
    size_t whole_total;
    size_t cut_total;
    char buf[64];

    if (size < 2 || size > TEXT_MAX - 100) {
        return 0;
    }
    const char *prefix = prefixes[data[0] % (sizeof prefixes / sizeof prefixes[0])];
    size_t len = strlen(prefix) + size - 2;
    memcpy(text, prefix, strlen(prefix));
    memcpy(text + strlen(prefix), data + 2, size - 2);

    enum co_http_event event = feed(&whole, text, len, TEXT_MAX, &whole_total);
    enum co_http_event other = feed(&cut, text, len, (size_t)data[1] % 16 + 1, &cut_total);
    assert(event == other);
    if (event == CO_HTTP_REQUEST) {
        assert(whole_total == cut_total);
        assert(memcmp(&whole.request, &cut.request, sizeof whole.request) == 0);
        assert(whole.request.path[0] == '/');
        co_http_parse_query(whole.request.query, "pool", buf, sizeof buf);
        assert(co_http_parse_quality(whole.request.accept, "text/plain") <= 1000);
    }
    return 0;
}
