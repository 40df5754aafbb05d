#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/zygote.h"
#include "worker/fork_os.h"
#include "worker/leftovers_os.h"
#include "worker/options.h"
#include "worker/php_abi.h"
#include "worker/php_api.h"
#include "worker/php_run.h"
#include "worker/php_start.h"
#include "worker/php_trace.h"
#include "worker/process_os.h"
#include "worker/seat_os.h"

#ifndef COHORT_VERSION
#define COHORT_VERSION "0.1.0"
#endif

enum {
    EXIT_GOOD = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_BOOT = 255, /* A worker that did not boot: as PHP ends after a fatal error. */
};

static int fail(int code, const struct co_err *err)
{
    fprintf(stderr, "cohort-worker: %s\n", err->msg);
    return code;
}

__attribute__((noreturn)) static void leave(int code)
{
    fflush(NULL);
    _exit(code); /* PHP's own end of process is the zygote's affair, not a child's. */
}

static struct co_seat worker_seat;

/* To the agent as a record, and to stderr, where the boot's own output is. */
static void tell_boot_failed(const char *text)
{
    fprintf(stderr, "cohort-worker: %s\n", text);
    co_seat_send(&worker_seat, &(struct co_record){
                                   .type = CO_RECORD_BOOT_FAILED,
                                   .body = (const uint8_t *)text,
                                   .size = (uint32_t)strlen(text),
                               });
}

static void open_seat(const struct co_options *options, const char *wire, const char *bell)
{
    struct co_err err;

    if (co_seat_open(&worker_seat, wire, bell, options->wake_fd, &err) < 0) {
        leave(fail(EXIT_FAILED, &err));
    }
}

static void boot_worker(const struct co_options *options)
{
    static char text[CO_ZYGOTE_TEXT_SIZE];

    if (co_php_run_boot(options->php_dir, text, sizeof text) < 0) {
        tell_boot_failed(text); /* First: a shutdown function may not return. */
        co_php_run_end();
        leave(EXIT_BOOT);
    }
}

/* A worker's whole life, in a child of the zygote. */
__attribute__((noreturn)) static void run_child(const struct co_zygote_msg *order, void *ctx)
{
    const struct co_options *options = ctx;

    open_seat(options, order->wire, order->bell);
    co_php_start_reseed();
    co_php_api_seat(&worker_seat);
    if (options->boot == CO_BOOT_AFTER_FORK) {
        boot_worker(options);
    }
    leave(co_php_run_worker(order->kind));
}

/* The same without a zygote. */
static int run_spawned(const struct co_options *options)
{
    pid_t agent = options->agent != 0 ? options->agent : getppid();
    struct co_err err;

    co_process_bind(agent);
    co_process_let_read(agent);
    co_process_lead();
    co_process_name("cohort-worker");
    co_process_close_but(options->wake_fd);
    co_process_keep_from_children(options->wake_fd);
    open_seat(options, options->seat.wire, options->seat.bell);
    if (co_php_start(options, &err) < 0) {
        tell_boot_failed(err.msg);
        leave(EXIT_BOOT);
    }
    co_php_api_seat(&worker_seat);
    boot_worker(options);
    return co_php_run_worker(options->seat.kind);
}

static struct co_zygote_msg hello(void)
{
    struct co_zygote_msg msg = {.type = CO_ZYGOTE_HELLO, .pid = getpid()};
    snprintf(msg.text, sizeof msg.text, "%s", co_php_start_version());
    return msg;
}

/* Returns what the agent is told: BOOTED with what the boot left, or BOOT_FAILED with the reason.
 */
static struct co_zygote_msg boot(const struct co_options *options)
{
    struct co_zygote_msg msg = {.type = CO_ZYGOTE_BOOTED, .pid = getpid()};
    struct co_leftovers left;

    if (options->boot != CO_BOOT_PRELOAD) {
        co_leftovers_look(options->control_fd, &left);
    } else if (co_php_run_boot(options->php_dir, msg.text, sizeof msg.text) == CO_OK) {
        co_leftovers_wait(options->control_fd, &left);
    } else {
        msg.type = CO_ZYGOTE_BOOT_FAILED;
        return msg;
    }
    co_leftovers_json(&left, msg.text, sizeof msg.text);
    return msg;
}

static int serve(const struct co_options *options, pid_t agent)
{
    struct co_fork_host host = {
        .control_fd = options->control_fd,
        .agent = agent,
        .child = run_child,
        .ctx = (void *)options,
    };
    struct co_err err;
    struct co_zygote_msg msg = {.type = CO_ZYGOTE_BOOT_FAILED, .pid = getpid()};

    if (co_php_start(options, &err) < 0) {
        snprintf(msg.text, sizeof msg.text, "%s", err.msg);
        (void)co_fork_tell(&host, &msg, NULL);
        return fail(EXIT_FAILED, &err);
    }
    msg = hello();
    if (co_fork_tell(&host, &msg, &err) < 0) {
        return fail(EXIT_FAILED, &err);
    }
    msg = boot(options);
    if (co_fork_tell(&host, &msg, &err) < 0) {
        return fail(EXIT_FAILED, &err);
    }
    if (msg.type == CO_ZYGOTE_BOOT_FAILED) {
        co_php_run_end();
        return EXIT_FAILED;
    }
    return co_fork_serve(&host, &err) < 0 ? fail(EXIT_FAILED, &err) : EXIT_GOOD;
}

static int run_zygote(const struct co_options *options)
{
    pid_t agent = options->agent != 0 ? options->agent : getppid();
    int last = options->control_fd > options->wake_fd ? options->control_fd : options->wake_fd;

    co_process_bind(agent);
    co_process_lead();
    co_process_name("cohort-zygote");
    co_process_close_from(last + 1);
    co_process_keep_from_children(options->control_fd);
    co_process_keep_from_children(options->wake_fd);
    return serve(options, agent);
}

static int run_info(const struct co_options *options)
{
    struct co_err err;
    if (co_php_start(options, &err) < 0 || co_php_start_info(&err) < 0) {
        return fail(EXIT_FAILED, &err);
    }
    return EXIT_GOOD;
}

int main(int argc, char **argv)
{
    static struct co_options options; /* PHP and all children read it. */
    struct co_err err;

    if (co_options_parse(argc, argv, &options, &err) < 0) {
        return fail(EXIT_USAGE, &err);
    }
    if (options.command == CO_OPTIONS_HELP) {
        fputs(co_options_help, stdout);
        return EXIT_GOOD;
    }
    if (options.command == CO_OPTIONS_VERSION) {
        printf("cohort-worker %s, built for PHP %s\n", COHORT_VERSION, co_php_abi_minor);
        return EXIT_GOOD;
    }
    if (co_php_abi_check(&err) < 0) {
        return fail(EXIT_USAGE, &err);
    }
    co_php_abi_forget_preload();
    if (options.command == CO_OPTIONS_INFO) {
        leave(run_info(&options));
    }
    if (options.command == CO_OPTIONS_TRACE) {
        leave(co_php_trace(options.trace, options.json, &err) < 0 ? fail(EXIT_FAILED, &err)
                                                                  : EXIT_GOOD);
    }
    leave(options.boot == CO_BOOT_SPAWN ? run_spawned(&options) : run_zygote(&options));
}
