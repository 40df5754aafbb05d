#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "agent/mesh_zap_zmq.h"
#include "agent/mesh_zmq.h"

#define DEADLINE_MS 20000
#define MESHES 3

static co_ms now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (co_ms)now.tv_sec * 1000 + (co_ms)now.tv_nsec / 1000000;
}

struct fixture {
    struct co_mesh *mesh[MESHES];
    unsigned got[MESHES];
    char last[MESHES][64];
    char from[MESHES][CO_MESH_ADDRESS_SIZE];
    enum co_fleet_role role[MESHES];
    struct co_mesh_peer peer[MESHES];
};

static struct co_fleet_secrets secrets(uint8_t first, uint8_t second)
{
    struct co_fleet_secrets s = {.n = second != 0 ? 2 : 1};
    memset(s.secret[0], first, sizeof s.secret[0]);
    memset(s.secret[1], second, sizeof s.secret[1]);
    return s;
}

static void open_mesh(struct fixture *f, unsigned n, const char *name, struct co_fleet_secrets s)
{
    struct co_err err;
    struct co_mesh_options options = {.name = name, .listen = "127.0.0.1:0", .secrets = s};
    if (co_mesh_open(&options, &f->mesh[n], &err) < 0) {
        fail_msg("%s", err.msg);
    }
}

static int set_up(void **state)
{
    *state = calloc(1, sizeof(struct fixture));
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    for (unsigned i = 0; i < MESHES; i++) {
        co_mesh_free(&f->mesh[i]);
    }
    free(f);
    return 0;
}

/* A turn of all loops: what came is taken, lines are mended, nothing spins. */
static void turn(struct fixture *f)
{
    struct pollfd fds[MESHES];
    nfds_t n = 0;
    for (unsigned i = 0; i < MESHES; i++) {
        struct co_mesh_message message;
        if (f->mesh[i] == NULL) {
            continue;
        }
        while (co_mesh_recv(f->mesh[i], &message) == 1) {
            f->got[i]++;
            f->role[i] = message.role;
            f->peer[i] = message.peer;
            memcpy(f->from[i], message.address, sizeof f->from[i]);
            snprintf(f->last[i], sizeof f->last[i], "%.*s", (int)message.size,
                     (const char *)message.data);
        }
        co_mesh_tick(f->mesh[i], now_ms());
        fds[n++] = (struct pollfd){.fd = co_mesh_fd(f->mesh[i]), .events = POLLIN};
    }
    poll(fds, n, 20);
}

/* Say it to an address until it arrives; false when the deadline passes. */
static bool arrives(struct fixture *f, unsigned from, unsigned to, const char *text, co_ms deadline)
{
    co_ms end = now_ms() + deadline;
    unsigned before = f->got[to];
    co_mesh_dial(f->mesh[from], co_mesh_address(f->mesh[to]), now_ms());
    while (f->got[to] == before && now_ms() < end) {
        co_mesh_send(f->mesh[from], co_mesh_address(f->mesh[to]), text, strlen(text));
        turn(f);
    }
    return f->got[to] > before;
}

#define UNTIL(condition)                                       \
    for (co_ms end_ = now_ms() + DEADLINE_MS; !(condition);) { \
        assert_true(now_ms() < end_);                          \
        turn(f);                                               \
    }

static void members_hear_each_other(void **state)
{
    struct fixture *f = *state;
    open_mesh(f, 0, "shop", secrets(7, 0));
    open_mesh(f, 1, "shop", secrets(7, 0));
    assert_true(arrives(f, 0, 1, "hello", DEADLINE_MS));
    assert_string_equal(f->last[1], "hello");
    assert_int_equal(f->role[1], CO_FLEET_ROLE_MEMBER);
    assert_string_equal(f->from[1], "127.0.0.1");
    assert_true(arrives(f, 1, 0, "and back", DEADLINE_MS));
    assert_string_equal(f->last[0], "and back");
}

static void an_outsider_is_refused_and_counted(void **state)
{
    struct fixture *f = *state;
    open_mesh(f, 0, "shop", secrets(7, 0));
    open_mesh(f, 1, "shop", secrets(8, 0));
    co_mesh_dial(f->mesh[1], co_mesh_address(f->mesh[0]), now_ms());
    UNTIL(co_mesh_rejected(f->mesh[0])->handshakes > 0);
    assert_int_equal(f->got[0], 0);
    assert_int_equal(co_mesh_send(f->mesh[1], co_mesh_address(f->mesh[0]), "x", 1), CO_EAGAIN);
}

static void another_fleet_with_the_same_secret_stays_apart(void **state)
{
    struct fixture *f = *state;
    open_mesh(f, 0, "production", secrets(7, 0));
    open_mesh(f, 1, "staging", secrets(7, 0));
    co_mesh_dial(f->mesh[1], co_mesh_address(f->mesh[0]), now_ms());
    UNTIL(co_mesh_rejected(f->mesh[0])->handshakes > 0);
    assert_int_equal(f->got[0], 0);
}

/* Who has found out the public key of the agents, and no more. */
static void who_knows_the_public_key_alone_is_refused(void **state)
{
    struct fixture *f = *state;
    char server[CO_FLEET_Z85_SIZE], secret[CO_FLEET_Z85_SIZE], own[CO_FLEET_Z85_SIZE];
    struct co_fleet_secrets s = secrets(7, 0);
    char endpoint[96];
    int linger = 0;
    void *context = zmq_ctx_new();
    void *dealer = zmq_socket(context, ZMQ_DEALER);
    open_mesh(f, 0, "shop", s);
    co_mesh_zap_pair(s.secret[0], "shop", CO_FLEET_ROLE_SERVER, server, secret);
    zmq_curve_keypair(own, secret);
    zmq_setsockopt(dealer, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(dealer, ZMQ_CURVE_SERVERKEY, server, sizeof server);
    zmq_setsockopt(dealer, ZMQ_CURVE_PUBLICKEY, own, sizeof own);
    zmq_setsockopt(dealer, ZMQ_CURVE_SECRETKEY, secret, sizeof secret);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", co_mesh_address(f->mesh[0]));
    zmq_connect(dealer, endpoint);
    zmq_send(dealer, "x", 1, ZMQ_DONTWAIT);
    UNTIL(co_mesh_rejected(f->mesh[0])->keys > 0);
    assert_string_equal(co_mesh_rejected(f->mesh[0])->last, "127.0.0.1");
    assert_int_equal(f->got[0], 0);
    zmq_close(dealer);
    zmq_ctx_term(context);
}

/* The order of a rotation: old; old and new; new and old; new. Neighbours hear each other. */
static void secrets_are_changed_without_a_gap(void **state)
{
    struct fixture *f = *state;
    struct co_fleet_secrets steps[] = {secrets(1, 0), secrets(1, 2), secrets(2, 1), secrets(2, 0)};
    for (unsigned i = 0; i + 1 < 4; i++) {
        open_mesh(f, 0, "shop", steps[i]);
        open_mesh(f, 1, "shop", steps[i + 1]);
        assert_true(arrives(f, 0, 1, "forth", DEADLINE_MS));
        assert_true(arrives(f, 1, 0, "back", DEADLINE_MS));
        co_mesh_free(&f->mesh[0]);
        co_mesh_free(&f->mesh[1]);
    }
}

static void roles_are_told_apart_and_answered(void **state)
{
    struct fixture *f = *state;
    struct co_fleet_secrets s = secrets(7, 0);
    char server[CO_FLEET_Z85_SIZE], secret[CO_FLEET_Z85_SIZE], own[CO_FLEET_Z85_SIZE];
    char endpoint[96], buf[16];
    int linger = 0;
    open_mesh(f, 0, "shop", s);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", co_mesh_address(f->mesh[0]));
    for (enum co_fleet_role role = CO_FLEET_ROLE_VIEWER; role < CO_FLEET_ROLES; role++) {
        void *context = zmq_ctx_new();
        void *dealer = zmq_socket(context, ZMQ_DEALER);
        unsigned before = f->got[0];
        int got = -1;
        co_mesh_zap_pair(s.secret[0], "shop", CO_FLEET_ROLE_SERVER, server, secret);
        co_mesh_zap_pair(s.secret[0], "shop", role, own, secret);
        zmq_setsockopt(dealer, ZMQ_LINGER, &linger, sizeof linger);
        zmq_setsockopt(dealer, ZMQ_CURVE_SERVERKEY, server, sizeof server);
        zmq_setsockopt(dealer, ZMQ_CURVE_PUBLICKEY, own, sizeof own);
        zmq_setsockopt(dealer, ZMQ_CURVE_SECRETKEY, secret, sizeof secret);
        zmq_connect(dealer, endpoint);
        zmq_send(dealer, "{}", 2, 0);
        UNTIL(f->got[0] > before);
        assert_int_equal(f->role[0], role);
        assert_int_equal(co_mesh_reply(f->mesh[0], &f->peer[0], "yes", 3), 0);
        UNTIL((got = zmq_recv(dealer, buf, sizeof buf, ZMQ_DONTWAIT)) >= 0);
        assert_int_equal(got, 3);
        zmq_close(dealer);
        zmq_ctx_term(context);
    }
}

static void idle_strangers_are_cut_off_and_members_still_come_in(void **state)
{
    struct fixture *f = *state;
    enum { IDLE = 300 };
    int fds[IDLE];
    unsigned closed = 0;
    struct sockaddr_in addr = {.sin_family = AF_INET};
    open_mesh(f, 0, "shop", secrets(7, 0));
    open_mesh(f, 1, "shop", secrets(7, 0));
    addr.sin_port = htons((uint16_t)atoi(strrchr(co_mesh_address(f->mesh[0]), ':') + 1));
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < IDLE; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fds[i] >= 0);
        assert_int_equal(connect(fds[i], (struct sockaddr *)&addr, sizeof addr), 0);
    }
    assert_true(arrives(f, 1, 0, "still", DEADLINE_MS));
    for (int i = 0; i < IDLE; i++) {
        char buf[128];
        struct pollfd fd = {.fd = fds[i], .events = POLLIN};
        ssize_t n = 1;
        while (n > 0 && poll(&fd, 1, DEADLINE_MS) == 1) {
            n = recv(fds[i], buf, sizeof buf, 0); /* The greeting, then the end. */
        }
        closed += n <= 0;
        close(fds[i]);
    }
    assert_int_equal(closed, IDLE);
}

static void a_line_comes_up_when_its_peer_does(void **state)
{
    struct fixture *f = *state;
    char address[CO_MESH_ADDRESS_SIZE];
    struct co_err err;
    struct co_mesh_options options = {.name = "shop", .listen = address, .secrets = secrets(7, 0)};
    open_mesh(f, 0, "shop", secrets(7, 0));
    open_mesh(f, 1, "shop", secrets(7, 0));
    strcpy(address, co_mesh_address(f->mesh[1]));
    assert_true(arrives(f, 0, 1, "one", DEADLINE_MS));
    co_mesh_free(&f->mesh[1]);
    UNTIL(co_mesh_send(f->mesh[0], address, "gone?", 5) == CO_EAGAIN);
    assert_int_equal(co_mesh_open(&options, &f->mesh[1], &err), 0);
    f->last[1][0] = '\0';
    assert_true(arrives(f, 0, 1, "two", DEADLINE_MS));
    assert_string_equal(f->last[1], "two"); /* Nothing old was kept for it. */
}

static void without_a_secret_only_this_machine_is_listened_to(void **state)
{
    struct fixture *f = *state;
    struct co_mesh_options options = {.name = "shop", .listen = "0.0.0.0:0"};
    struct co_err err;
    assert_int_equal(co_mesh_open(&options, &f->mesh[0], &err), CO_ECONFIG);
    assert_non_null(strstr(err.msg, "keygen"));
    options.listen = "nowhere:7946";
    assert_int_equal(co_mesh_open(&options, &f->mesh[0], &err), CO_ECONFIG);
    open_mesh(f, 0, "shop", (struct co_fleet_secrets){0});
    open_mesh(f, 1, "shop", (struct co_fleet_secrets){0});
    assert_true(arrives(f, 0, 1, "local", DEADLINE_MS));
}

static void addresses_are_literal(void **state)
{
    (void)state;
    assert_true(co_mesh_is_address("10.0.0.1:7946"));
    assert_true(co_mesh_is_address("[::1]:7946"));
    assert_false(co_mesh_is_address("localhost:7946"));
    assert_false(co_mesh_is_address("10.0.0.1"));
    assert_false(co_mesh_is_address("10.0.0.1:70000"));
    assert_false(co_mesh_is_address("::1:7946"));
    assert_false(co_mesh_is_address(""));
    assert_true(co_mesh_is_loopback("127.3.0.1:1"));
    assert_false(co_mesh_is_loopback("10.0.0.1:1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(members_hear_each_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_outsider_is_refused_and_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_fleet_with_the_same_secret_stays_apart, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_knows_the_public_key_alone_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(secrets_are_changed_without_a_gap, set_up, tear_down),
        cmocka_unit_test_setup_teardown(roles_are_told_apart_and_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(idle_strangers_are_cut_off_and_members_still_come_in,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_line_comes_up_when_its_peer_does, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_a_secret_only_this_machine_is_listened_to, set_up,
                                        tear_down),
        cmocka_unit_test(addresses_are_literal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
