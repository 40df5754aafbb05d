#include "agent/http_parse.h"

#include <string.h>

/* Refuse with a status; the value makes http_parser stop. */
static int refuse(struct co_http_parse *parse, int status)
{
    if (parse->status == 0) {
        parse->status = status;
    }
    return -1;
}

static int on_url(http_parser *parser, const char *data, size_t size)
{
    struct co_http_parse *parse = parser->data;

    if (parse->target_len + size >= sizeof parse->target) {
        return refuse(parse, 414);
    }
    memcpy(parse->target + parse->target_len, data, size);
    parse->target_len += size;
    return 0;
}

static int on_header_field(http_parser *parser, const char *data, size_t size)
{
    struct co_http_parse *parse = parser->data;

    if (parse->in_value) {
        parse->in_value = false;
        parse->name_len = 0;
    }
    /* A library built without its strict mode lets spaces pass in names. */
    if (memchr(data, ' ', size) != NULL || memchr(data, '\t', size) != NULL) {
        return refuse(parse, 400);
    }
    for (size_t i = 0; i < size && parse->name_len < sizeof parse->name - 1; i++) {
        parse->name[parse->name_len++] = data[i];
    }
    parse->name[parse->name_len] = '\0';
    return 0;
}

static void begin_value(struct co_http_parse *parse)
{
    parse->in_value = true;
    if (strcasecmp(parse->name, "host") == 0) {
        parse->hosts++;
    } else if (strcasecmp(parse->name, "transfer-encoding") == 0) {
        parse->has_body = true;
    } else if (strcasecmp(parse->name, "accept") == 0 && parse->accept_len > 0 &&
               parse->accept_len < CO_HTTP_ACCEPT_SIZE - 1) {
        parse->request.accept[parse->accept_len++] = ','; /* A list in two headers is one list. */
    }
}

static int on_header_value(http_parser *parser, const char *data, size_t size)
{
    struct co_http_parse *parse = parser->data;

    if (!parse->in_value) {
        begin_value(parse);
    }
    if (strcasecmp(parse->name, "accept") == 0) {
        size_t room = CO_HTTP_ACCEPT_SIZE - 1 - parse->accept_len;
        size_t n = size < room ? size : room;
        memcpy(parse->request.accept + parse->accept_len, data, n);
        parse->accept_len += n;
    }
    return 0;
}

/* Split "/path?query#", or "http://host/path?query" as a proxy sends it. */
static int split_target(struct co_http_parse *parse)
{
    const char *path = parse->target;
    const char *query;
    size_t len;

    parse->target[parse->target_len] = '\0';
    if (strncasecmp(path, "http://", 7) == 0) {
        path = strchr(path + 7, '/');
    }
    if (path == NULL || path[0] != '/') {
        return refuse(parse, 400);
    }
    for (const char *p = path; *p != '\0'; p++) {
        if (*p <= ' ' || *p > '~' || *p == '#') {
            return refuse(parse, 400);
        }
    }
    query = strchr(path, '?');
    len = query != NULL ? (size_t)(query - path) : strlen(path);
    memcpy(parse->request.path, path, len);
    parse->request.path[len] = '\0';
    query = query != NULL ? query + 1 : "";
    memcpy(parse->request.query, query, strlen(query) + 1);
    return 0;
}

static int on_headers_complete(http_parser *parser)
{
    struct co_http_parse *parse = parser->data;
    bool old = parser->http_minor == 0;

    if (parser->http_major != 1 || parser->http_minor > 1) {
        return refuse(parse, 505);
    }
    if (parser->method != HTTP_GET && parser->method != HTTP_HEAD) {
        return refuse(parse, 405);
    }
    if (parse->hosts > 1 || (parse->hosts == 0 && !old)) {
        return refuse(parse, 400);
    }
    if (parse->has_body || ((parser->flags & F_CONTENTLENGTH) && parser->content_length > 0)) {
        return refuse(parse, 413);
    }
    parse->request.head = parser->method == HTTP_HEAD;
    parse->request.keep_alive = old ? (parser->flags & F_CONNECTION_KEEP_ALIVE) != 0
                                    : (parser->flags & F_CONNECTION_CLOSE) == 0;
    return split_target(parse);
}

static int on_message_complete(http_parser *parser)
{
    struct co_http_parse *parse = parser->data;
    parse->complete = true;
    return -1; /* Stop here: what follows is the next request. */
}

static const http_parser_settings settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
    .on_message_complete = on_message_complete,
};

void co_http_parse_init(struct co_http_parse *parse)
{
    memset(parse, 0, sizeof *parse);
    http_parser_init(&parse->parser, HTTP_REQUEST);
}

/* What http_parser is lenient about, and what request smuggling lives on: lines end with CRLF and
 * nothing else, none is continued by the next, and no control byte stands anywhere. */
static bool plain_bytes(struct co_http_parse *parse, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)data[i];
        if ((parse->last == '\r') != (c == '\n')) {
            return false;
        }
        if (parse->last == '\n' && (c == ' ' || c == '\t')) {
            return false;
        }
        if ((c < ' ' && c != '\r' && c != '\n' && c != '\t') || c == 0x7f) {
            return false;
        }
        parse->last = (char)c;
    }
    return true;
}

static int status_of(enum http_errno error)
{
    if (error == HPE_INVALID_VERSION) {
        return 505;
    }
    return error == HPE_HEADER_OVERFLOW ? 431 : 400;
}

enum co_http_event co_http_parse_feed(struct co_http_parse *parse, const char *data, size_t size,
                                      size_t *ret_used, int *ret_status)
{
    size_t used = 0;

    *ret_used = 0;
    if (size == 0 && parse->status == 0) {
        return CO_HTTP_MORE; /* To http_parser no bytes are the end of the stream. */
    }
    if (parse->status == 0 && !parse->complete) {
        parse->parser.data = parse;
        used = http_parser_execute(&parse->parser, &settings, data, size);
    }
    if (parse->status == 0 && !plain_bytes(parse, data, used)) {
        refuse(parse, 400);
    }
    if (parse->status == 0 && !parse->complete && HTTP_PARSER_ERRNO(&parse->parser) != HPE_OK) {
        refuse(parse, status_of(HTTP_PARSER_ERRNO(&parse->parser)));
    }
    parse->head_bytes += used;
    if (parse->head_bytes > CO_HTTP_HEAD_MAX) {
        refuse(parse, 431);
    }
    if (parse->status != 0) {
        *ret_status = parse->status;
        return CO_HTTP_REFUSED;
    }
    *ret_used = used;
    return parse->complete ? CO_HTTP_REQUEST : CO_HTTP_MORE;
}

const char *co_http_parse_reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };

    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (reasons[i].status == status) {
            return reasons[i].text;
        }
    }
    return "Unknown";
}

static int hex(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decode up to the next "&". */
static bool decode(const char *p, char *buf, size_t size)
{
    size_t len = 0;

    for (; *p != '\0' && *p != '&'; p++) {
        char c = *p == '+' ? ' ' : *p;
        if (c == '%') {
            int high = hex(p[1]);
            int low = high >= 0 ? hex(p[2]) : -1;
            if (low < 0 || (high == 0 && low == 0)) {
                return false;
            }
            c = (char)(high << 4 | low);
            p += 2;
        }
        if (len + 1 >= size) {
            return false;
        }
        buf[len++] = c;
    }
    buf[len] = '\0';
    return true;
}

bool co_http_parse_query(const char *query, const char *member, char *buf, size_t size)
{
    size_t len = strlen(member);

    for (const char *p = query; p != NULL && *p != '\0';) {
        if (strncmp(p, member, len) == 0 && p[len] == '=') {
            return decode(p + len + 1, buf, size);
        }
        p = strchr(p, '&');
        p = p != NULL ? p + 1 : NULL;
    }
    return false;
}

/* "0.5" in thousandths. */
static unsigned read_quality(const char *p)
{
    unsigned q = 0;
    unsigned digit = 100;

    if (*p != '0') {
        return 1000;
    }
    for (p += p[1] == '.' ? 2 : 1; digit > 0 && *p >= '0' && *p <= '9'; p++, digit /= 10) {
        q += (unsigned)(*p - '0') * digit;
    }
    return q;
}

/* The q among one entry's parameters, "; a=b; q=0.5". */
static unsigned quality_of(const char *p, const char *end)
{
    while ((p = memchr(p, ';', (size_t)(end - p))) != NULL) {
        p++;
        p += strspn(p, " \t");
        if ((*p == 'q' || *p == 'Q') && p[1] == '=') {
            return read_quality(p + 2);
        }
    }
    return 1000;
}

unsigned co_http_parse_quality(const char *accept, const char *type)
{
    size_t len = strlen(type);

    for (const char *p = accept; *p != '\0';) {
        const char *end = p + strcspn(p, ",");
        p += strspn(p, " \t");
        if (strncasecmp(p, type, len) == 0 && strchr("; \t,", p[len]) != NULL) {
            return quality_of(p + len, end);
        }
        p = *end == ',' ? end + 1 : end;
    }
    return 0;
}
