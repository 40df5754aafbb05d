#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/ask_os.h"
#include "controller/cli.h"
#include "proto/control.h"

#define PAYLOAD_MAX (64u * 1024 * 1024)

static int read_all(int fd, const char *name, char **ret_data, size_t *ret_size, struct co_err *err)
{
    char *data = NULL;
    size_t size = 0;
    size_t len = 0;

    for (;;) {
        ssize_t n;
        if (len == size) {
            size = size > 0 ? size * 2 : 65536;
            char *grown = size <= 2 * PAYLOAD_MAX ? realloc(data, size) : NULL;
            if (grown == NULL) {
                free(data);
                return co_err_set(err, CO_ETOOBIG, "%s: more than 64 MiB is no payload", name);
            }
            data = grown;
        }
        n = read(fd, data + len, size - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            int sys = errno;
            free(data);
            return co_err_sys(err, sys, "read %s", name);
        }
        if (n == 0) {
            *ret_data = data;
            *ret_size = len;
            return 0;
        }
        len += (size_t)n;
    }
}

static int read_payload(const char *name, char **ret_data, size_t *ret_size, struct co_err *err)
{
    int fd;
    int code;

    if (strcmp(name, "-") == 0) {
        return read_all(STDIN_FILENO, "standard input", ret_data, ret_size, err);
    }
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return co_err_sys(err, errno, "open %s", name);
    }
    code = read_all(fd, name, ret_data, ret_size, err);
    close(fd);
    return code;
}

static int push(const struct co_cli *cli, const char *payload, size_t size, char **ret_data,
                struct co_err *err)
{
    char *args;
    int code;

    if (size == 0) {
        return co_err_set(err, CO_EUSAGE, "the payload is empty");
    }
    args = co_cli_json_push(cli->argv[0], cli->connection, payload, size, err);
    if (args == NULL) {
        return err->code;
    }
    code = co_ask(cli, "push", args, ret_data, err);
    free(args);
    return code;
}

int co_cmd_push(struct co_cli *cli)
{
    const char *name = cli->argc > 1 ? cli->argv[1] : "-";
    struct co_err err;
    char *payload = NULL;
    char *data = NULL;
    char id[64] = "?";
    size_t size;
    int code = read_payload(name, &payload, &size, &err);

    if (code == 0) {
        code = push(cli, payload, size, &data, &err);
    }
    free(payload);
    if (code < 0) {
        return co_ask_fail(cli, &err);
    }
    if (cli->json) {
        char *json = co_cli_json_pretty(data);
        free(data);
        return co_ask_print(json);
    }
    co_json_get_string(data, "id", id, sizeof id);
    free(data);
    printf("job %s is on queue %s\n", id, cli->argv[0]);
    return CO_EXIT_OK;
}
