#include "agent/serve.h"

#include <string.h>

bool co_serve_match(const char *pattern, const char *name)
{
    const char *star = NULL;
    const char *retry = NULL;

    while (*name != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            retry = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star + 1;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

static int add(struct co_serve *serve, const char *connection, size_t connection_size,
               const char *pattern, size_t pattern_size, uint32_t rank, struct co_err *err)
{
    struct co_serve_entry *entry;

    if (serve->n == CO_SERVE_MAX) {
        return co_err_set(err, CO_ECONFIG, "more than %d entries in one queue list", CO_SERVE_MAX);
    }
    entry = &serve->entries[serve->n];
    if (connection_size >= sizeof entry->connection || pattern_size >= sizeof entry->pattern) {
        return co_err_set(err, CO_ECONFIG, "queue name too long: %.*s", (int)pattern_size, pattern);
    }
    *entry = (struct co_serve_entry){.rank = rank};
    memcpy(entry->connection, connection, connection_size);
    memcpy(entry->pattern, pattern, pattern_size);
    entry->literal = memchr(pattern, '*', pattern_size) == NULL;
    serve->n += 1;
    return CO_OK;
}

static size_t trim(const char **text, size_t size)
{
    while (size > 0 && **text == ' ') {
        *text += 1;
        size -= 1;
    }
    while (size > 0 && (*text)[size - 1] == ' ') {
        size -= 1;
    }
    return size;
}

/* Add one entry: QUEUE or CONNECTION:QUEUE. */
static int add_entry(struct co_serve *serve, const char *text, size_t size, const char *connection,
                     uint32_t rank, struct co_err *err)
{
    const char *colon = memchr(text, ':', size);
    const char *name = text;
    const char *queue = colon != NULL ? colon + 1 : text;
    size_t name_size = trim(&name, colon != NULL ? (size_t)(colon - text) : 0);
    size_t queue_size = trim(&queue, (size_t)(text + size - queue));

    if (colon != NULL && (name_size == 0 || queue_size == 0)) {
        return co_err_set(err, CO_ECONFIG,
                          "\"%.*s\" in a queue list names no %s; write CONNECTION:QUEUE or QUEUE",
                          (int)size, text, name_size == 0 ? "connection" : "queue");
    }
    return colon != NULL ? add(serve, name, name_size, queue, queue_size, rank, err)
                         : add(serve, connection, strlen(connection), queue, queue_size, rank, err);
}

/* Add a comma list. ranked: each entry gets its own rank. */
static int add_list(struct co_serve *serve, const char *list, const char *connection, bool ranked,
                    struct co_err *err)
{
    uint32_t rank = 0;

    for (const char *at = list; *at != '\0'; rank++) {
        size_t size = strcspn(at, ",");
        const char *entry = at;
        size_t entry_size = trim(&entry, size);
        int code = entry_size > 0
                       ? add_entry(serve, entry, entry_size, connection, ranked ? rank : 0, err)
                       : co_err_set(err, CO_ECONFIG,
                                    "empty name in queue list \"%s\"; separate names by single "
                                    "commas",
                                    list);
        if (code < 0) {
            return code;
        }
        at += size + (at[size] == ',' ? 1 : 0);
    }
    return CO_OK;
}

int co_serve_read(struct co_serve *serve, const char *queue, const char *connection,
                  const char *own, struct co_err *err)
{
    int code;

    *serve = (struct co_serve){0};
    if (queue[0] != '\0') {
        return add_list(serve, queue, connection, true, err);
    }
    code = add_list(serve, own, connection, false, err);
    return code < 0 ? code : add(serve, connection, strlen(connection), "*", 1, 0, err);
}

int co_serve_rank(const struct co_serve *serve, const char *connection, const char *queue)
{
    for (uint32_t i = 0; i < serve->n; i++) {
        const struct co_serve_entry *entry = &serve->entries[i];
        if (strcmp(entry->connection, connection) == 0 && co_serve_match(entry->pattern, queue)) {
            return (int)entry->rank;
        }
    }
    return -1;
}
