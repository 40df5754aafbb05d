/* The reader works on libyaml's events (the parser under libcyaml): apps and pools are mappings
 * whose keys the operator chooses, and line numbers, duplicate keys and second documents must be
 * seen, all of which libcyaml's fixed schemas hide. Every scalar is text here; config_keys.c knows
 * what may stand where. */

#include "proto/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "proto/config_keys.h"
#include "proto/utf8.h"

#define FILE_MAX (1u << 20)
#define SEEN_MAX 512 /* More keys than a full configuration has. */
#define PATH_SIZE 192

struct seen {
    char path[PATH_SIZE];
    size_t line;
};

struct reader {
    yaml_parser_t parser;
    struct co_config *config;
    const char *name; /* Of the file. */
    const char *text;
    size_t size;
    struct co_err *err;
    size_t n_seen;
    struct seen seen[SEEN_MAX];
};

/* ---- messages ---- */

/* Put FILE:LINE before the message in err. */
static int at_line(struct reader *reader, size_t line)
{
    char old[CO_ERR_MSG_SIZE];

    memcpy(old, reader->err->msg, sizeof old);
    return co_err_set(reader->err, CO_ECONFIG, "%.200s:%zu: %s", reader->name, line, old);
}

static int fail(struct reader *reader, size_t line, const char *what)
{
    co_err_set(reader->err, CO_ECONFIG, "%s", what);
    return at_line(reader, line);
}

static int fail_at(struct reader *reader, size_t line, const char *path, const char *what)
{
    co_err_set(reader->err, CO_ECONFIG, "%.150s: %s", path, what);
    return at_line(reader, line);
}

static size_t line_of(const yaml_event_t *event)
{
    return event->start_mark.line + 1;
}

static size_t line_at(const struct reader *reader, size_t offset)
{
    size_t line = 1;

    for (size_t i = 0; i < offset && i < reader->size; i++) {
        line += reader->text[i] == '\n';
    }
    return line;
}

/* ---- before parsing: what YAML would take and people would not ---- */

static int check_line(struct reader *reader, const char *at, size_t size, size_t line)
{
    size_t indent = 0;

    while (indent < size && (at[indent] == ' ' || at[indent] == '\t')) {
        if (at[indent++] == '\t') {
            return fail(reader, line, "a tab: YAML is indented with spaces; replace it");
        }
    }
    for (size_t i = indent; i < size;) {
        size_t step = co_utf8_step(at + i, size - i);
        unsigned char c = (unsigned char)at[i];
        if (step == 0) {
            return fail(reader, line, "bytes that are not UTF-8: save the file as UTF-8");
        }
        if ((c < 0x20 && c != '\t' && c != '\r') || c == 0x7f) {
            return fail(reader, line, "a control character: remove it");
        }
        i += step;
    }
    return 0;
}

static int check_text(struct reader *reader)
{
    const char *end = reader->text + reader->size;
    const char *at = reader->text;

    if (reader->size >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0) {
        return fail(reader, 1, "a byte order mark: save the file as UTF-8 without BOM");
    }
    if (reader->size >= 2 && (memcmp(at, "\xff\xfe", 2) == 0 || memcmp(at, "\xfe\xff", 2) == 0)) {
        return fail(reader, 1, "this is UTF-16: save the file as UTF-8 without BOM");
    }
    for (size_t line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        int code;
        stop = stop == NULL ? end : stop;
        code = check_line(reader, at, (size_t)(stop - at), line);
        if (code < 0) {
            return code;
        }
        at = stop + 1;
    }
    return 0;
}

/* ---- events ---- */

static int syntax_error(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    size_t line = parser->error == YAML_READER_ERROR ? line_at(reader, parser->problem_offset)
                                                     : parser->problem_mark.line + 1;

    if (parser->error == YAML_MEMORY_ERROR) {
        return co_err_set(reader->err, CO_ENOMEM, "no memory to read %.200s", reader->name);
    }
    co_err_set(reader->err, CO_ECONFIG,
               "this is not YAML: %s%s%s; check indentation, quotes and brackets there",
               parser->problem == NULL ? "unreadable" : parser->problem,
               parser->context == NULL ? "" : ", ", parser->context == NULL ? "" : parser->context);
    return at_line(reader, line);
}

static int refuse_extras(struct reader *reader, const yaml_event_t *event,
                         const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor != NULL) {
        return fail(
            reader, line_of(event),
            "anchors (&) and aliases (*) are not read: write the value out, in quotes if it "
            "begins with & or *");
    }
    if (tag != NULL) {
        return fail(
            reader, line_of(event),
            "tags (!) are not read: remove it, or put a value that begins with ! in quotes");
    }
    return 0;
}

/* The next event, the caller's to delete after 0. */
static int next(struct reader *reader, yaml_event_t *event)
{
    int code = 0;

    if (yaml_parser_parse(&reader->parser, event) == 0) {
        return syntax_error(reader);
    }
    if (event->type == YAML_ALIAS_EVENT) {
        code = refuse_extras(reader, event, event->data.alias.anchor, NULL);
    } else if (event->type == YAML_SCALAR_EVENT) {
        code = refuse_extras(reader, event, event->data.scalar.anchor, event->data.scalar.tag);
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        code = refuse_extras(reader, event, event->data.mapping_start.anchor,
                             event->data.mapping_start.tag);
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        code = refuse_extras(reader, event, event->data.sequence_start.anchor,
                             event->data.sequence_start.tag);
    }
    if (code < 0) {
        yaml_event_delete(event);
    }
    return code;
}

/* ---- the tree ---- */

static int read_mapping(struct reader *reader, const char *path);

static int remember(struct reader *reader, const char *path, size_t line)
{
    char what[80];

    for (size_t i = 0; i < reader->n_seen; i++) {
        if (strcmp(reader->seen[i].path, path) == 0) {
            snprintf(what, sizeof what, "stands here again, first in line %zu: remove one",
                     reader->seen[i].line);
            return fail_at(reader, line, path, what);
        }
    }
    if (reader->n_seen == SEEN_MAX) {
        return fail(reader, line, "more keys than any configuration has");
    }
    snprintf(reader->seen[reader->n_seen].path, PATH_SIZE, "%s", path);
    reader->seen[reader->n_seen++].line = line;
    return 0;
}

/* Make the path of the key in event below `parent`. */
static int read_key(struct reader *reader, const char *parent, const yaml_event_t *event,
                    char path[PATH_SIZE])
{
    const char *key = (const char *)event->data.scalar.value;
    int n;

    if (event->type != YAML_SCALAR_EVENT) {
        return fail(reader, line_of(event), "a key belongs here, not a mapping or list");
    }
    if (key[0] == '\0' || strlen(key) != event->data.scalar.length) {
        return fail(reader, line_of(event), "an empty key: write its name before the colon");
    }
    if (strchr(key, '.') != NULL) {
        co_err_set(reader->err, CO_ECONFIG,
                   "%.100s: unknown key: no key or name has a point, keys below another are "
                   "indented or in braces",
                   key);
        return at_line(reader, line_of(event));
    }
    n = snprintf(path, PATH_SIZE, "%s%s%.100s", parent, parent[0] == '\0' ? "" : ".", key);
    if (strlen(key) > 100 || n >= PATH_SIZE) {
        return fail_at(reader, line_of(event), path, "unknown key");
    }
    return remember(reader, path, line_of(event));
}

static bool is_null(const yaml_event_t *event)
{
    const char *value = (const char *)event->data.scalar.value;

    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (value[0] == '\0' || strcmp(value, "~") == 0 || strcmp(value, "null") == 0);
}

static int check_scalar(struct reader *reader, const char *path, const yaml_event_t *event)
{
    if (is_null(event)) {
        return fail_at(reader, line_of(event), path, "has no value: give it one or remove the key");
    }
    if (strlen((const char *)event->data.scalar.value) != event->data.scalar.length) {
        return fail_at(reader, line_of(event), path, "holds a NUL character: remove it");
    }
    return 0;
}

static int assign(struct reader *reader, const char *path, const char *value, size_t line)
{
    struct co_config_origin origin = {.from = CO_FROM_FILE, .line = (uint32_t)line};

    if (co_config_keys_assign(reader->config, path, value, origin, reader->err) < 0) {
        return at_line(reader, line);
    }
    return 0;
}

static int read_scalar(struct reader *reader, const char *path, const yaml_event_t *event)
{
    int code = check_scalar(reader, path, event);

    return code < 0 ? code
                    : assign(reader, path, (const char *)event->data.scalar.value, line_of(event));
}

/* Items of a list, joined by commas into buf. */
static int read_items(struct reader *reader, const char *path, char *buf, size_t size)
{
    size_t used = 0;

    for (size_t n = 0;; n++) {
        yaml_event_t event;
        int code = next(reader, &event);
        if (code < 0) {
            return code;
        }
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            code = n > 0 ? 1
                         : fail_at(reader, line_of(&event), path,
                                   "an empty list: give it a value or remove the key");
        } else if (event.type != YAML_SCALAR_EVENT) {
            code = fail_at(reader, line_of(&event), path, "only plain values belong in this list");
        } else {
            code = check_scalar(reader, path, &event);
        }
        if (code == 0 && used + event.data.scalar.length + 2 > size) {
            code = fail_at(reader, line_of(&event), path, "the list is too long");
        }
        if (code == 0) {
            used += (size_t)snprintf(buf + used, size - used, "%s%s", n > 0 ? "," : "",
                                     (const char *)event.data.scalar.value);
        }
        yaml_event_delete(&event);
        if (code != 0) {
            return code < 0 ? code : 0;
        }
    }
}

static int read_list(struct reader *reader, const char *path, size_t line)
{
    char joined[CO_TEXT_SIZE];
    int code;

    if (co_config_keys_list(reader->config, path, reader->err) < 0) {
        return at_line(reader, line);
    }
    code = read_items(reader, path, joined, sizeof joined);
    return code < 0 ? code : assign(reader, path, joined, line);
}

static int read_value(struct reader *reader, const char *path)
{
    yaml_event_t event;
    int code = next(reader, &event);

    if (code < 0) {
        return code;
    }
    if (event.type == YAML_SCALAR_EVENT) {
        code = read_scalar(reader, path, &event);
    } else if (event.type == YAML_SEQUENCE_START_EVENT) {
        code = read_list(reader, path, line_of(&event));
    } else if (co_config_keys_enter(reader->config, path, reader->err) < 0) {
        code = at_line(reader, line_of(&event));
    } else {
        code = read_mapping(reader, path);
    }
    yaml_event_delete(&event);
    return code;
}

/* Keys and values to the mapping's end. It calls itself no deeper than the keys go: enter() has
 * refused any other mapping before. */
static int read_mapping(struct reader *reader, const char *path)
{
    for (;;) {
        char below[PATH_SIZE];
        yaml_event_t event;
        bool end;
        int code = next(reader, &event);
        if (code < 0) {
            return code;
        }
        end = event.type == YAML_MAPPING_END_EVENT;
        code = end ? 0 : read_key(reader, path, &event, below);
        yaml_event_delete(&event);
        if (end || code < 0) {
            return code;
        }
        code = read_value(reader, below);
        if (code < 0) {
            return code;
        }
    }
}

/* Take one event and check its type. */
static int expect(struct reader *reader, yaml_event_type_t type, const char *else_what)
{
    yaml_event_t event;
    int code = next(reader, &event);

    if (code == 0) {
        code = event.type == type ? 0 : fail(reader, line_of(&event), else_what);
        yaml_event_delete(&event);
    }
    return code;
}

static int read_stream(struct reader *reader)
{
    int code = expect(reader, YAML_STREAM_START_EVENT, "unreadable");

    code = code < 0 ? code
                    : expect(reader, YAML_DOCUMENT_START_EVENT,
                             "the file is empty: write at least apps: { shop: { path: /app } }");
    code = code < 0 ? code
                    : expect(reader, YAML_MAPPING_START_EVENT,
                             "the file must be a mapping of keys, such as apps: { shop: { path: "
                             "/app } }");
    code = code < 0 ? code : read_mapping(reader, "");
    code = code < 0 ? code : expect(reader, YAML_DOCUMENT_END_EVENT, "unreadable");
    return code < 0 ? code
                    : expect(reader, YAML_STREAM_END_EVENT,
                             "a second document begins here: one file holds one configuration; "
                             "remove the --- line or the rest");
}

static int parse(struct reader *reader)
{
    int code = check_text(reader);

    if (code < 0) {
        return code;
    }
    if (yaml_parser_initialize(&reader->parser) == 0) {
        return co_err_set(reader->err, CO_ENOMEM, "no memory to read %.200s", reader->name);
    }
    yaml_parser_set_encoding(&reader->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader->parser, (const unsigned char *)reader->text,
                                 reader->size);
    code = read_stream(reader);
    yaml_parser_delete(&reader->parser);
    return code;
}

int co_config_parse_yaml(struct co_config *config, const char *path, const char *text, size_t size,
                         struct co_err *err)
{
    struct co_err ignored;
    struct reader *reader = calloc(1, sizeof *reader);
    struct co_config *copy = malloc(sizeof *copy);
    int code;

    err = err == NULL ? &ignored : err;
    if (reader == NULL || copy == NULL) {
        code = co_err_set(err, CO_ENOMEM, "no memory to read %.200s", path);
    } else {
        *copy = *config;
        snprintf(copy->file, sizeof copy->file, "%s", path);
        reader->config = copy;
        reader->name = path;
        reader->text = text;
        reader->size = size;
        reader->err = err;
        code = size <= FILE_MAX ? parse(reader)
                                : fail(reader, 1, "larger than 1 MiB: is this the right file?");
    }
    if (code == 0) {
        *config = *copy;
    }
    free(copy);
    free(reader);
    return code;
}

/* Fill buf from the file; returns the bytes read, at most size. */
static int read_file(const char *path, char *buf, size_t size, size_t *ret_used, struct co_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    size_t used = 0;
    ssize_t n = 1;

    if (fd < 0) {
        return co_err_sys(err, errno, "read configuration %.300s", path);
    }
    while (used < size && n != 0) {
        n = read(fd, buf + used, size - used);
        if (n < 0 && errno != EINTR) {
            int sys = errno;
            close(fd);
            return co_err_sys(err, sys, "read configuration %.300s", path);
        }
        used += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    *ret_used = used;
    return 0;
}

int co_config_read_yaml(struct co_config *config, const char *path, struct co_err *err)
{
    char *text = malloc(FILE_MAX + 1);
    size_t size = 0;
    int code;

    if (text == NULL) {
        return co_err_set(err, CO_ENOMEM, "no memory to read %.200s", path);
    }
    code = read_file(path, text, FILE_MAX + 1, &size, err);
    code = code < 0 ? code : co_config_parse_yaml(config, path, text, size, err);
    free(text);
    return code;
}
