#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "controller/ask_os.h"
#include "controller/cli.h"
#include "controller/client_zmq.h"
#include "proto/fleet_key.h"

static int make_secret(char *buf, size_t size, struct co_err *err)
{
    uint8_t secret[CO_FLEET_SECRET_SIZE];
    char hex[65];

    if (getrandom(secret, sizeof secret, 0) != (ssize_t)sizeof secret) {
        return co_err_sys(err, errno, "ask the system for random bytes");
    }
    co_fleet_key_hex(secret, hex);
    snprintf(buf, size, "%s\n", hex);
    return 0;
}

static int read_secret(const char *path, struct co_fleet_secrets *ret_secrets, struct co_err *err)
{
    char text[4096];
    FILE *file = fopen(path, "re");
    size_t size;

    if (file == NULL) {
        return co_err_sys(err, errno, "open %s", path);
    }
    size = fread(text, 1, sizeof text, file);
    fclose(file);
    return co_fleet_secrets_read(text, size, ret_secrets, err) < 0 ? co_err_wrap(err, path) : 0;
}

static int make_role_key(const struct co_cli *cli, char *buf, struct co_err *err)
{
    struct co_fleet_role_key key = {0};
    struct co_fleet_secrets secrets;
    uint8_t server[CO_FLEET_SECRET_SIZE];
    int code;

    for (key.role = CO_FLEET_ROLE_VIEWER; key.role < CO_FLEET_ROLES; key.role++) {
        if (strcmp(cli->role, co_fleet_role_name(key.role)) == 0) {
            break;
        }
    }
    if (key.role == CO_FLEET_ROLES || cli->secret_file == NULL || cli->fleet_name == NULL ||
        cli->fleet_name[0] == '\0' || strlen(cli->fleet_name) >= CO_NAME_SIZE) {
        return co_err_set(err, CO_EUSAGE,
                          "a role's key needs --role viewer or operator, --secret-file FILE and "
                          "--fleet-name NAME");
    }
    code = read_secret(cli->secret_file, &secrets, err);
    if (code < 0) {
        return code;
    }
    co_fleet_key_derive(secrets.secret[0], cli->fleet_name, CO_FLEET_ROLE_SERVER, server);
    co_fleet_key_derive(secrets.secret[0], cli->fleet_name, key.role, key.client);
    code = co_client_public(server, key.server, err);
    if (code == 0) {
        co_fleet_role_key_write(&key, buf);
    }
    return code;
}

/* Never over a file that is there: it may be the secret a fleet lives by. */
static int write_file(const char *path, const char *text, struct co_err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);

    if (fd < 0) {
        return co_err_sys(err, errno, "make %s", path);
    }
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        int sys = errno;
        close(fd);
        unlink(path);
        return co_err_sys(err, sys, "write %s", path);
    }
    return close(fd) < 0 ? co_err_sys(err, errno, "write %s", path) : 0;
}

int co_cmd_keygen(struct co_cli *cli)
{
    char text[CO_FLEET_ROLE_KEY_SIZE];
    struct co_err err;
    int code =
        cli->role != NULL ? make_role_key(cli, text, &err) : make_secret(text, sizeof text, &err);

    if (code == 0 && cli->argc > 0) {
        code = write_file(cli->argv[0], text, &err);
    }
    if (code < 0) {
        return co_ask_fail(cli, &err);
    }
    if (cli->argc == 0) {
        fputs(text, stdout);
    } else if (cli->json) {
        puts("{\n  \"schema\": 1\n}");
    }
    return CO_EXIT_OK;
}
