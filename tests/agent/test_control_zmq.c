#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "agent/control_uv.h"
#include "agent/control_zmq.h"

#define DEADLINE_MS 10000
#define BURST 300

struct fixture {
    char dir[64];
    char path[96];
    char endpoint[128];
    void *context;
    void *dealers[2]; /* Closed by tear_down, or a failed test would wait for them for ever. */
    unsigned n_dealers;
    uv_loop_t loop;
    struct co_control_uv *control;
    unsigned requests;
    bool silent; /* Keep the peer, do not answer. */
    struct co_control_peer peer;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->dir, "/tmp/cohort-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/c.sock", f->dir);
    snprintf(f->endpoint, sizeof f->endpoint, "ipc://%s", f->path);
    f->context = zmq_ctx_new();
    uv_loop_init(&f->loop);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    co_control_uv_close(&f->control);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    for (unsigned i = 0; i < f->n_dealers; i++) {
        zmq_close(f->dealers[i]);
    }
    zmq_ctx_term(f->context);
    unlink(f->path);
    assert_int_equal(rmdir(f->dir), 0);
    free(f);
    return 0;
}

static void on_request(void *arg, const struct co_control_peer *peer, const char *data, size_t size)
{
    struct fixture *f = arg;
    assert_int_equal(strlen(data), size);
    f->requests++;
    f->peer = *peer;
    if (!f->silent) {
        char answer[64];
        snprintf(answer, sizeof answer, "re:%s", data);
        assert_int_equal(co_control_uv_send(f->control, peer, answer, NULL), 0);
    }
}

static void serve(struct fixture *f)
{
    struct co_err err = {0};
    if (co_control_uv_open(&f->loop, f->path, on_request, f, &f->control, &err) != 0) {
        fail_msg("%s", err.msg);
    }
}

static void *dial(struct fixture *f)
{
    void *dealer = zmq_socket(f->context, ZMQ_DEALER);
    int linger = 0;
    f->dealers[f->n_dealers++] = dealer;
    zmq_setsockopt(dealer, ZMQ_LINGER, &linger, sizeof linger);
    assert_int_equal(zmq_connect(dealer, f->endpoint), 0);
    return dealer;
}

/* Let the loop go round until a descriptor of either side says something, or a while passes. */
static void turn(struct fixture *f, void *dealer)
{
    int fd;
    size_t size = sizeof fd;
    zmq_getsockopt(dealer, ZMQ_FD, &fd, &size);
    struct pollfd fds[2] = {{.fd = uv_backend_fd(&f->loop), .events = POLLIN},
                            {.fd = fd, .events = POLLIN}};
    if (uv_backend_timeout(&f->loop) != 0) {
        poll(fds, 2, 20);
    }
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void expect_answer(struct fixture *f, void *dealer, const char *text)
{
    char buf[64];
    uint64_t end = uv_hrtime() + DEADLINE_MS * UINT64_C(1000000);
    for (;;) {
        int n = zmq_recv(dealer, buf, sizeof buf - 1, ZMQ_DONTWAIT);
        if (n >= 0) {
            buf[n] = '\0';
            assert_string_equal(buf, text);
            return;
        }
        assert_true(uv_hrtime() < end);
        turn(f, dealer);
    }
}

static void a_request_is_answered_and_only_the_owner_may_ask(void **state)
{
    struct fixture *f = *state;
    serve(f);
    void *dealer = dial(f);
    zmq_send(dealer, "hello", 5, 0);
    expect_answer(f, dealer, "re:hello");

    struct stat st;
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void no_request_of_a_burst_is_forgotten(void **state)
{
    struct fixture *f = *state;
    serve(f);
    void *dealer = dial(f);
    char text[32];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BURST; i++) {
            snprintf(text, sizeof text, "%d", i);
            zmq_send(dealer, text, strlen(text), 0);
        }
        for (int i = 0; i < BURST; i++) {
            snprintf(text, sizeof text, "re:%d", i);
            expect_answer(f, dealer, text);
        }
    }
}

static void messages_of_another_shape_are_dropped(void **state)
{
    struct fixture *f = *state;
    serve(f);
    void *dealer = dial(f);
    zmq_send(dealer, "a", 1, ZMQ_SNDMORE);
    zmq_send(dealer, "b", 1, ZMQ_SNDMORE);
    zmq_send(dealer, "c", 1, 0);
    zmq_send(dealer, "", 0, 0);
    zmq_send(dealer, "d", 1, 0);
    expect_answer(f, dealer, "re:");
    expect_answer(f, dealer, "re:d");
    assert_int_equal(f->requests, 2);
}

static void an_answer_to_a_peer_that_has_gone_is_refused(void **state)
{
    struct fixture *f = *state;
    f->silent = true;
    serve(f);
    void *dealer = dial(f);
    zmq_send(dealer, "x", 1, 0);
    while (f->requests == 0) {
        turn(f, dealer);
    }
    f->n_dealers = 0;
    zmq_close(dealer);
    void *other = dial(f); /* Its descriptor wakes us; the departure is seen in some turn. */
    uint64_t end = uv_hrtime() + DEADLINE_MS * UINT64_C(1000000);
    /* Until its departure is seen the answers queue up, or there are too many. */
    while (co_control_uv_send(f->control, &f->peer, "y", NULL) != CO_ENOTFOUND) {
        assert_true(uv_hrtime() < end);
        turn(f, other);
    }
}

static void bind_raw(const char *path, int *ret_fd)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    strcpy(addr.sun_path, path);
    *ret_fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(*ret_fd, (struct sockaddr *)&addr, sizeof addr), 0);
}

static void a_socket_left_behind_is_replaced(void **state)
{
    struct fixture *f = *state;
    int fd;
    bind_raw(f->path, &fd);
    close(fd);
    serve(f);
    void *dealer = dial(f);
    zmq_send(dealer, "x", 1, 0);
    expect_answer(f, dealer, "re:x");
}

static void a_living_agent_keeps_its_socket(void **state)
{
    struct fixture *f = *state;
    struct co_control *second = NULL;
    struct co_err err;
    serve(f);
    assert_int_equal(co_control_open(f->path, &second, &err), CO_EBUSY);
    assert_non_null(strstr(err.msg, f->path));
    assert_null(second);
    void *dealer = dial(f);
    zmq_send(dealer, "x", 1, 0);
    expect_answer(f, dealer, "re:x");
}

static void paths_that_cannot_be_are_refused_by_name(void **state)
{
    struct fixture *f = *state;
    struct co_control *control = NULL;
    struct co_err err;
    char path[200];

    snprintf(path, sizeof path, "%s/%0100d", f->dir, 0);
    assert_int_equal(co_control_open(path, &control, &err), CO_ECONFIG);
    assert_non_null(strstr(err.msg, "allows 107"));
    assert_int_equal(co_control_open(f->dir, &control, &err), CO_ECONFIG);
    assert_non_null(strstr(err.msg, "no socket"));
    snprintf(path, sizeof path, "%s/none/c.sock", f->dir);
    assert_int_equal(co_control_open(path, &control, &err), CO_EIO);
    assert_non_null(strstr(err.msg, "No such file"));
    assert_null(control);
}

static void closing_removes_the_socket_file(void **state)
{
    struct fixture *f = *state;
    serve(f);
    assert_int_equal(access(f->path, F_OK), 0);
    co_control_uv_close(&f->control);
    assert_null(f->control);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(access(f->path, F_OK), -1);
}

static void the_mask_of_signals_is_left_as_it_was(void **state)
{
    struct fixture *f = *state;
    sigset_t before;
    sigset_t after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    serve(f);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int sig = 1; sig < 32; sig++) {
        assert_int_equal(sigismember(&before, sig), sigismember(&after, sig));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_is_answered_and_only_the_owner_may_ask),
        TEST(no_request_of_a_burst_is_forgotten),
        TEST(messages_of_another_shape_are_dropped),
        TEST(an_answer_to_a_peer_that_has_gone_is_refused),
        TEST(a_socket_left_behind_is_replaced),
        TEST(a_living_agent_keeps_its_socket),
        TEST(paths_that_cannot_be_are_refused_by_name),
        TEST(closing_removes_the_socket_file),
        TEST(the_mask_of_signals_is_left_as_it_was),
    };
    return cmocka_run_group_tests_name("control_zmq", tests, NULL, NULL);
}
