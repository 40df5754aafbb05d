#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/admin_uv.h"

#define DEADLINE_MS 10000
#define HOST "Host: x\r\n"
#define CLOSE "Connection: close\r\n"
#define GET(target) "GET " target " HTTP/1.1\r\n" HOST CLOSE "\r\n"

struct fixture {
    uv_loop_t loop;
    struct co_admin *admin;
    struct co_view view;
    char answer[65536];
    size_t size;
};

static const struct co_view *lend_view(void *arg)
{
    struct fixture *f = arg;
    return &f->view;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct co_err err = {0};

    uv_loop_init(&f->loop);
    f->view = (struct co_view){.live = true, .startup = true, .ready = true, .n_pools = 2};
    strcpy(f->view.version, "0.1.0");
    strcpy(f->view.pools[0].name, "jobs");
    f->view.pools[0].by_state[CO_WORKER_BUSY] = 1;
    strcpy(f->view.pools[1].name, "slow");
    strcpy(f->view.pools[1].boot_error, "Class \"Redis\" not found");
    if (co_admin_open(&f->loop, "127.0.0.1:0", lend_view, f, &f->admin, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    co_admin_close(&f->admin);
    assert_null(f->admin);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    free(f);
    return 0;
}

static int dial(struct fixture *f)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)co_admin_port(f->admin)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Read into f->answer until `until` appears in it, or the end when NULL. */
static void hear(struct fixture *f, int fd, const char *until)
{
    uint64_t end = uv_hrtime() + DEADLINE_MS * UINT64_C(1000000);

    f->size = 0;
    f->answer[0] = '\0';
    while (until == NULL || strstr(f->answer, until) == NULL) {
        struct pollfd fds[2] = {{.fd = uv_backend_fd(&f->loop), .events = POLLIN},
                                {.fd = fd, .events = POLLIN}};
        assert_true(uv_hrtime() < end);
        poll(fds, 2, 20);
        uv_run(&f->loop, UV_RUN_NOWAIT);
        ssize_t n = recv(fd, f->answer + f->size, sizeof f->answer - 1 - f->size, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) {
            assert_null(until);
            return;
        }
        f->size += n > 0 ? (size_t)n : 0;
        f->answer[f->size] = '\0';
    }
}

/* Ask on a connection of its own and check the status line and a text in what follows. */
static void expect(struct fixture *f, const char *request, const char *status, const char *text)
{
    int fd = dial(f);

    say(fd, request);
    hear(f, fd, NULL);
    close(fd);
    if (strncmp(f->answer, "HTTP/1.1 ", 9) != 0 ||
        strncmp(f->answer + 9, status, strlen(status)) != 0 || strstr(f->answer, text) == NULL) {
        fail_msg("%s: wanted %s with %s, got:\n%s", request, status, text, f->answer);
    }
}

static void probes_say_why(void **state)
{
    struct fixture *f = *state;

    expect(f, GET("/livez"), "200 OK", "\r\n\r\nlive\n");
    expect(f, GET("/startupz"), "200", "\r\n\r\nstarted\n");
    expect(f, GET("/readyz"), "200", "\r\n\r\nready\n");
    expect(f, GET("/readyz?pool=jobs"), "200", "\r\n\r\nready\n");
    expect(f, GET("/readyz?pool=slow"), "503 Service Unavailable", "Class \"Redis\" not found");
    expect(f, GET("/readyz?pool=none"), "404", "no pool of that name");
    expect(f, GET("/readyz?pol=jobs"), "400", "?pool=NAME");

    f->view.ready = false;
    f->view.startup = false;
    f->view.live = false;
    strcpy(f->view.why, "the source is locked");
    expect(f, GET("/readyz"), "503", "not ready: the source is locked\n");
    expect(f, GET("/livez"), "503", "not live: ");
    expect(f, GET("/startupz"), "503", "not started: Class \"Redis\" not found\n");
    f->view.draining = true;
    expect(f, GET("/readyz?pool=jobs"), "503", "draining");
}

static void metrics_come_in_the_format_asked_for(void **state)
{
    struct fixture *f = *state;

    expect(f, GET("/metrics"), "200", "text/plain; version=0.0.4");
    assert_non_null(strstr(f->answer, "\ncohort_build_info{version=\"0.1.0\"} 1\n"));
    assert_null(strstr(f->answer, "# EOF"));
    expect(f,
           "GET /metrics HTTP/1.1\r\n" HOST CLOSE
           "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3\r\n\r\n",
           "200", "application/openmetrics-text; version=1.0.0");
    assert_string_equal(f->answer + f->size - 7, "\n# EOF\n");
    expect(f,
           "GET /metrics HTTP/1.1\r\n" HOST CLOSE
           "Accept: application/openmetrics-text;q=0.1,text/plain\r\n\r\n",
           "200", "text/plain; version=0.0.4");
}

static void status_is_the_view_as_json(void **state)
{
    struct fixture *f = *state;

    expect(f, GET("/api/v1/status"), "200", "Content-Type: application/json\r\n");
    assert_non_null(strstr(f->answer, "\"slow\""));
    expect(f, GET("/api/v1/status?workers=0&queues=0"), "200", "\"0.1.0\"");
}

static void what_is_not_there_is_refused(void **state)
{
    struct fixture *f = *state;

    expect(f, GET("/"), "200", "/metrics");
    expect(f, GET("/none"), "404 Not Found", "/ lists");
    expect(f, "POST /livez HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab", "405",
           "Allow: GET, HEAD\r\n");
    expect(f, "GET / HTTP/1.1\r\n\r\n", "400 Bad Request", "Connection: close\r\n");
    expect(f, "GET / HTTP/3.0\r\n" HOST "\r\n", "505", "");
}

static void head_has_the_length_and_no_body(void **state)
{
    struct fixture *f = *state;

    expect(f, "HEAD /livez HTTP/1.1\r\n" HOST CLOSE "\r\n", "200", "Content-Length: 5\r\n");
    assert_string_equal(f->answer + f->size - 4, "\r\n\r\n");
}

static void a_connection_carries_many_requests(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);

    say(fd, "GET /livez HTTP/1.1\r\n" HOST "\r\n");
    hear(f, fd, "live\n");
    assert_non_null(strstr(f->answer, "Connection: keep-alive\r\n"));
    say(fd,
        "GET /readyz HTTP/1.1\r\n" HOST "\r\nGET /startupz HTTP/1.1\r\n" HOST "\r\nGET /livez HT");
    hear(f, fd, "started\n");
    assert_non_null(strstr(f->answer, "ready\n"));
    say(fd, "TP/1.1\r\n" HOST "\r\n");
    hear(f, fd, "live\n");
    close(fd);
}

static void forgotten_connections_give_way_to_new_ones(void **state)
{
    struct fixture *f = *state;
    int fds[CO_ADMIN_CONNECTIONS_MAX + 5];
    size_t n = sizeof fds / sizeof fds[0];

    for (size_t i = 0; i < n; i++) {
        fds[i] = dial(f);
        say(fds[i], "GET /livez HTTP/1.1\r\n" HOST "\r\n");
        hear(f, fds[i], "live\n");
    }
    hear(f, fds[0], NULL); /* Closed. */
    say(fds[n - 1], GET("/livez"));
    hear(f, fds[n - 1], "live\n");
    for (size_t i = 0; i < n; i++) {
        close(fds[i]);
    }
}

static void a_port_in_use_is_named_with_the_way_out(void **state)
{
    struct fixture *f = *state;
    struct co_admin *second = NULL;
    struct co_err err;
    char address[32];

    snprintf(address, sizeof address, "127.0.0.1:%u", co_admin_port(f->admin));
    assert_int_equal(co_admin_open(&f->loop, address, lend_view, f, &second, &err), CO_EIO);
    assert_int_equal(err.sys, EADDRINUSE);
    assert_non_null(strstr(err.msg, address));
    assert_non_null(strstr(err.msg, "admin.http"));
    assert_null(second);
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void addresses_are_read_strictly(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *address;
        bool good;
    } rows[] = {
        {"127.0.0.1:0", true},
        {"localhost:0", true},
        {":0", true},
        {"0.0.0.0:0", true},
        {"", false},
        {"9090", false},
        {"127.0.0.1", false},
        {"127.0.0.1:", false},
        {"127.0.0.1:x", false},
        {"127.0.0.1:1x", false},
        {"127.0.0.1:-1", false},
        {"127.0.0.1:65536", false},
        {"::1:9090", false},
        {"example.org:1", false},
        {"[127.0.0.1]:1", false},
        {"127.0.0.1:+1", false},
        {"127.0.0.1: 1", false},
        {"[::1:1", false},
        {"[]:1", false},
        {"127.0.0.256:1", false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct co_admin *admin = NULL;
        struct co_err err = {0};
        int r = co_admin_open(&f->loop, rows[i].address, lend_view, f, &admin, &err);
        if (r != (rows[i].good ? 0 : CO_ECONFIG)) {
            fail_msg("%s: %d %s", rows[i].address, r, err.msg);
        }
        co_admin_close(&admin);
    }
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(probes_say_why),
        TEST(metrics_come_in_the_format_asked_for),
        TEST(status_is_the_view_as_json),
        TEST(what_is_not_there_is_refused),
        TEST(head_has_the_length_and_no_body),
        TEST(a_connection_carries_many_requests),
        TEST(forgotten_connections_give_way_to_new_ones),
        TEST(a_port_in_use_is_named_with_the_way_out),
        TEST(addresses_are_read_strictly),
    };
    return cmocka_run_group_tests_name("admin_uv", tests, NULL, NULL);
}
