#include "controller/ask_os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "controller/client_zmq.h"
#include "controller/table.h"
#include "proto/control.h"

static void free_text(char **text)
{
    free(*text);
}

static co_ms now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (co_ms)now.tv_sec * 1000 + (co_ms)now.tv_nsec / 1000000;
}

/* Answers to questions of a predecessor with our name cannot come, but strangers' may. */
static int await(struct co_client *client, const char *id, co_ms timeout,
                 struct co_cli_answer *ret_answer, struct co_err *err)
{
    co_ms end = now_ms() + timeout;

    for (;;) {
        __attribute__((cleanup(free_text))) char *json = NULL;
        struct co_cli_answer answer = {0};
        co_ms now = now_ms();
        size_t size;
        int code = co_client_recv(client, now < end ? end - now : 0, &json, &size, err);

        if (code == 0) {
            code = co_cli_json_answer(json, size, &answer, err);
        }
        if (code < 0) {
            return code;
        }
        if (strcmp(answer.id, id) == 0 || (!answer.ok && answer.id[0] == '\0')) {
            *ret_answer = answer;
            return 0;
        }
        co_cli_json_answer_done(&answer);
    }
}

static int read_key(const char *path, struct co_fleet_role_key *ret_key, struct co_err *err)
{
    char text[1024];
    FILE *file;
    size_t size;

    if (path == NULL || path[0] == '\0') {
        return co_err_set(err, CO_EUSAGE,
                          "an agent elsewhere asks for the key of a role: --key FILE; whoever has "
                          "the fleet's secret makes one with cohort keygen --role viewer");
    }
    file = fopen(path, "re");
    if (file == NULL) {
        return co_err_sys(err, errno, "--key: open %s", path);
    }
    size = fread(text, 1, sizeof text, file);
    fclose(file);
    return co_fleet_role_key_read(text, size, ret_key, err) < 0 ? co_err_wrap(err, path) : 0;
}

static int open_client(const struct co_cli *cli, struct co_client **ret_client, struct co_err *err)
{
    struct co_fleet_role_key key;
    int code;

    if (cli->agent == NULL) {
        return co_client_open(cli->control, ret_client, err);
    }
    code = read_key(cli->key, &key, err);
    code = code < 0 ? code : co_client_open_remote(cli->agent, &key, ret_client, err);
    explicit_bzero(&key, sizeof key);
    return code;
}

static int exchange(const struct co_cli *cli, const char *op, const char *args,
                    struct co_cli_answer *ret_answer, struct co_err *err)
{
    __attribute__((cleanup(co_client_free))) struct co_client *client = NULL;
    __attribute__((cleanup(free_text))) char *request = NULL;
    char id[40];
    int code = open_client(cli, &client, err);

    if (code < 0) {
        return code;
    }
    snprintf(id, sizeof id, "%d-%llu", (int)getpid(), (unsigned long long)now_ms());
    request = co_control_request_write(id, op, args);
    if (request == NULL) {
        return co_err_set(err, CO_ENOMEM, "out of memory");
    }
    code = co_client_send(client, request, err);
    return code < 0 ? code : await(client, id, cli->timeout, ret_answer, err);
}

int co_ask(const struct co_cli *cli, const char *op, const char *args, char **ret_data,
           struct co_err *err)
{
    struct co_cli_answer answer;
    int code = exchange(cli, op, args, &answer, err);

    if (code < 0) {
        return code;
    }
    if (answer.ok) {
        *ret_data = answer.data;
        return 0;
    }
    code = strcmp(answer.code, "not_found") == 0 ? CO_ENOTFOUND
           : strcmp(answer.code, "version") == 0 ? CO_EVERSION
                                                 : CO_EAPP;
    co_err_set(
        err, code, "%s",
        answer.error[0] != '\0' ? answer.error : "the agent refused without a reason; see its log");
    co_cli_json_answer_done(&answer);
    return code;
}

int co_ask_view(const struct co_cli *cli, bool workers, const struct co_view **ret_view,
                struct co_err *err)
{
    static struct co_view view; /* Some megabytes. */
    char *data;
    int code =
        co_ask(cli, "status", workers ? "{\"workers\":true}" : "{\"workers\":false}", &data, err);

    if (code < 0) {
        return code;
    }
    memset(&view, 0, sizeof view);
    code = co_view_from_json(data, strlen(data), &view, err);
    free(data);
    if (code == 0) {
        *ret_view = &view;
    }
    return code;
}

int co_ask_fail(const struct co_cli *cli, const struct co_err *err)
{
    if (cli->json) {
        char *json = co_cli_json_error(co_err_text(err->code), err->msg);
        puts(json != NULL ? json : "{}");
        free(json);
    }
    fprintf(stderr, "cohort: %s\n", err->msg);
    return err->code == CO_EUNREACHABLE ? CO_EXIT_UNREACHABLE
           : err->code == CO_EUSAGE     ? CO_EXIT_USAGE
                                        : CO_EXIT_FAILED;
}

int co_ask_print(char *json)
{
    if (json == NULL) {
        fputs("cohort: out of memory\n", stderr);
        return CO_EXIT_FAILED;
    }
    puts(json);
    free(json);
    return CO_EXIT_OK;
}

int co_ask_write(const struct co_cli *cli, void (*page)(struct co_text *text, const void *arg),
                 const void *arg)
{
    struct co_text text = {.color = cli->color};

    page(&text, arg);
    text.size = text.len + 1;
    text.buf = malloc(text.size);
    if (text.buf == NULL) {
        fputs("cohort: out of memory\n", stderr);
        return CO_EXIT_FAILED;
    }
    text.len = 0;
    page(&text, arg);
    fwrite(text.buf, 1, text.len, stdout);
    free(text.buf);
    return CO_EXIT_OK;
}

struct view_page {
    const struct co_view *view;
    void (*write)(struct co_text *text, const struct co_view *view);
};

static void write_view(struct co_text *text, const void *arg)
{
    const struct view_page *page = arg;
    page->write(text, page->view);
}

int co_ask_page(const struct co_cli *cli, const struct co_view *view,
                void (*page)(struct co_text *text, const struct co_view *view))
{
    return co_ask_write(cli, write_view, &(struct view_page){view, page});
}
