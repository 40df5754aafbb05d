/* A rig for the tests of cohort-worker: the program of the test plays the agent. */

#ifndef CO_TESTS_WORKER_RIG_H
#define CO_TESTS_WORKER_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/zygote.h"
#include "worker/dispatch.h"

#ifndef COHORT_WORKER_BIN
#define COHORT_WORKER_BIN "cohort-worker"
#endif

#define DEADLINE_MS 20000
#define WORKERS_MAX 4

/* A loop that evaluates what it is asked and hashes what it is given. */
static const char loop_php[] =
    "<?php\n"
    "namespace Cohort;\n"
    "use Cohort\\Worker as W;\n"
    "$GLOBALS['booted'] = getmypid();\n"
    "function run_worker(string $kind): int {\n"
    "    W\\ready(json_encode(['kind' => $kind, 'booted' => $GLOBALS['booted']]));\n"
    "    while (($m = W\\next()) !== null) {\n"
    "        if ($m['type'] === 'control') {\n"
    "            try { W\\reply($m['ticket'], true, json_encode(eval($m['body']))); }\n"
    "            catch (\\Exception $e) { W\\reply($m['ticket'], false, $e->getMessage()); }\n"
    "            continue;\n"
    "        }\n"
    "        if (!W\\begin($m['ticket'])) { W\\log('warn', 'taken back'); continue; }\n"
    "        $code = json_decode($m['payload'])->eval ?? '';\n"
    "        $said = $code === '' ? sha1($m['payload']) : (string) eval($code);\n"
    "        $sure = W\\end($m['ticket'], W\\OUTCOME_FAILED, 5, $said, true);\n"
    "        if (!$sure) { W\\log('warn', 'being ended'); }\n"
    "    }\n"
    "    return 7;\n"
    "}\n";

struct worker {
    pid_t pid;
    int pidfd;
    int output; /* Read end of its stdout and stderr. */
    struct co_wire *wire;
    uint64_t cursor;
    char path[300];
};

static struct agent {
    char dir[64];
    int control;
    int wake;
    pid_t zygote;
    int zygote_output;
    struct co_bell *bell;
    uint64_t ticket;
    uint32_t n_workers;
    struct worker workers[WORKERS_MAX];
} agent;

/* ---- files ---- */

static inline const char *in_dir(const char *name)
{
    static char path[4][300];
    static int next;
    char *ret = path[next++ % 4];
    snprintf(ret, sizeof path[0], "%s/%s", agent.dir, name);
    return ret;
}

static inline void write_file(const char *path, const char *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
}

static inline void *map_new(const char *path, size_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    close(fd);
    return memory;
}

static inline int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
    (void)stat;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* ---- waiting ---- */

static inline uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline bool readable(int fd, int wait_ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, wait_ms) == 1;
}

/* All that was written to a pipe until its last writer is gone. */
static inline const char *read_output(int fd)
{
    static char text[16384];
    size_t size = 0;
    while (size < sizeof text - 1 && readable(fd, DEADLINE_MS)) {
        ssize_t got = read(fd, text + size, sizeof text - 1 - size);
        if (got <= 0) {
            break;
        }
        size += (size_t)got;
    }
    text[size] = '\0';
    return text;
}

static inline int wait_status(pid_t pid)
{
    int status = 0;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    assert_true(pidfd >= 0);
    assert_true(readable(pidfd, DEADLINE_MS));
    close(pidfd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* ---- the zygote ---- */

__attribute__((noreturn)) static inline void exec_worker(int control, int wake, int output,
                                                         const char *boot)
{
    /* Out of the way of 3 and 4 first. */
    int high_control = fcntl(control, F_DUPFD, 20);
    int high_wake = fcntl(wake, F_DUPFD, 20);
    int null = open("/dev/null", O_RDONLY);
    char run_dir[128];

    dup2(null, 0);
    dup2(output, 1);
    dup2(output, 2);
    dup2(high_control, 3);
    dup2(high_wake, 4);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", agent.dir);
    execl(COHORT_WORKER_BIN, COHORT_WORKER_BIN, "--control-fd", "3", "--wake-fd", "4", "--php-dir",
          agent.dir, "--mode", "job", "--boot", boot, "--set", run_dir, "--set", "colour=a=b",
          (char *)NULL);
    _exit(127);
}

static inline void start_agent(const char *preload)
{
    agent = (struct agent){.ticket = 100, .control = -1, .zygote_output = -1};
    snprintf(agent.dir, sizeof agent.dir, "/tmp/cohort-test-XXXXXX");
    assert_non_null(mkdtemp(agent.dir));
    write_file(in_dir("preload.php"), preload, strlen(preload));
    agent.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    agent.bell = map_new(in_dir("bell"), sizeof *agent.bell);
    co_bell_init(agent.bell);
}

static inline void start_zygote(const char *preload, const char *boot)
{
    int pair[2];
    int output[2];

    start_agent(preload);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(pipe2(output, O_CLOEXEC), 0);
    agent.control = pair[0];
    agent.zygote_output = output[0];
    agent.zygote = fork();
    if (agent.zygote == 0) {
        exec_worker(pair[1], agent.wake, output[1], boot);
    }
    assert_true(agent.zygote > 0);
    close(pair[1]);
    close(output[1]);
}

static inline struct co_zygote_msg hear(int *ret_fd)
{
    uint8_t buf[CO_ZYGOTE_MSG_MAX];
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = buf, .iov_len = sizeof buf};
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    struct co_zygote_msg msg;

    assert_true(readable(agent.control, DEADLINE_MS));
    ssize_t size = recvmsg(agent.control, &header, MSG_CMSG_CLOEXEC);
    if (size <= 0) {
        print_error("the zygote said: %s\n", read_output(agent.zygote_output));
    }
    assert_true(size > 0);
    assert_int_equal(co_zygote_decode(buf, (size_t)size, &msg), CO_OK);
    if (ret_fd != NULL) {
        struct cmsghdr *part = CMSG_FIRSTHDR(&header);
        assert_non_null(part);
        memcpy(ret_fd, CMSG_DATA(part), sizeof *ret_fd);
    }
    return msg;
}

static inline void tell(const struct co_zygote_msg *msg, int fd)
{
    uint8_t buf[CO_ZYGOTE_MSG_MAX];
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    int size = co_zygote_encode(msg, buf, sizeof buf);
    struct iovec iov = {.iov_base = buf, .iov_len = (size_t)size};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

    assert_true(size > 0);
    if (fd >= 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = sizeof control.bytes;
        struct cmsghdr *part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(part), &fd, sizeof fd);
    }
    assert_int_equal(sendmsg(agent.control, &header, MSG_NOSIGNAL), size);
}

/* Returns what the boot left behind. */
static inline const char *expect_booted(void)
{
    static struct co_zygote_msg msg;

    msg = hear(NULL);
    assert_int_equal(msg.type, CO_ZYGOTE_HELLO);
    assert_int_equal(msg.pid, agent.zygote);
    assert_int_equal(strncmp(msg.text, "8.", 2), 0);
    msg = hear(NULL);
    if (msg.type != CO_ZYGOTE_BOOTED) {
        print_error("%s\n", msg.text);
    }
    assert_int_equal(msg.type, CO_ZYGOTE_BOOTED);
    return msg.text;
}

static inline void expect_boot(void)
{
    assert_string_equal(expect_booted(), "{\"threads\":[],\"sockets\":0}");
}

/* ---- a worker ---- */

/* A worker's files and pipe; nobody sits there yet. Returns the write end of its output. */
static inline struct worker *new_worker(int *ret_output)
{
    uint32_t number = agent.n_workers++;
    struct worker *worker = &agent.workers[number];
    int output[2];
    char name[16];

    assert_true(number < WORKERS_MAX);
    snprintf(name, sizeof name, "w%u", number);
    snprintf(worker->path, sizeof worker->path, "%s", in_dir(name));
    worker->wire = map_new(worker->path, sizeof *worker->wire);
    co_wire_init(worker->wire, 1, "jobs", number, 3);
    worker->cursor = co_ring_tail(&worker->wire->to_agent);
    assert_int_equal(pipe2(output, O_CLOEXEC), 0);
    worker->output = output[0];
    *ret_output = output[1];
    return worker;
}

static inline struct worker *fork_worker(enum co_worker_kind kind)
{
    int output;
    struct co_zygote_msg order = {
        .type = CO_ZYGOTE_FORK,
        .seq = 1000 + agent.n_workers,
        .worker = agent.n_workers,
        .generation = 3,
        .kind = kind,
    };
    struct worker *worker = new_worker(&output);

    snprintf(order.wire, sizeof order.wire, "%s", worker->path);
    snprintf(order.bell, sizeof order.bell, "%s", in_dir("bell"));
    tell(&order, output);
    close(output);

    struct co_zygote_msg answer = hear(&worker->pidfd);
    assert_int_equal(answer.type, CO_ZYGOTE_FORKED);
    assert_int_equal(answer.seq, order.seq);
    worker->pid = answer.pid;
    return worker;
}

__attribute__((noreturn)) static inline void exec_spawned(const struct worker *worker,
                                                          const char *kind, int output)
{
    int high_wake = fcntl(agent.wake, F_DUPFD, 20);
    int null = open("/dev/null", O_RDONLY);
    char run_dir[128];
    char parent[16];

    dup2(null, 0);
    dup2(output, 1);
    dup2(output, 2);
    dup2(high_wake, 4);
    close(3);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", agent.dir);
    snprintf(parent, sizeof parent, "%d", (int)getppid());
    execl(COHORT_WORKER_BIN, COHORT_WORKER_BIN, "--spawn", "--wake-fd", "4", "--php-dir", agent.dir,
          "--mode", "job", "--boot", "spawn", "--wire", worker->path, "--bell", in_dir("bell"),
          "--worker-kind", kind, "--worker", "0", "--generation", "3", "--agent", parent, "--set",
          run_dir, "--set", "colour=a=b", (char *)NULL);
    _exit(127);
}

static inline struct worker *spawn_worker(const char *kind)
{
    int output;
    struct worker *worker = new_worker(&output);

    worker->pid = fork();
    if (worker->pid == 0) {
        exec_spawned(worker, kind, output);
    }
    assert_true(worker->pid > 0);
    close(output);
    worker->pidfd = (int)syscall(SYS_pidfd_open, worker->pid, 0);
    assert_true(worker->pidfd >= 0);
    return worker;
}

/* The next record but log lines, copied into a static buffer. */
static inline struct co_record receive_any(struct worker *worker)
{
    static uint8_t buf[CO_RECORD_MAX + 1];
    uint64_t deadline = now_ms() + DEADLINE_MS;
    struct co_record record = {.type = 0};

    for (;;) {
        co_bell_sleep(agent.bell);
        int rc = co_ring_copy(&worker->wire->to_agent, &worker->cursor, buf, &record);
        assert_true(rc >= 0);
        if (rc == 1) {
            break;
        }
        uint64_t count;
        if (!readable(agent.wake, DEADLINE_MS) || now_ms() > deadline) {
            print_error("no message; the worker said: %s\n", read_output(worker->output));
            fail();
        }
        ssize_t got = read(agent.wake, &count, sizeof count);
        (void)got;
    }
    co_bell_awake(agent.bell);
    co_ring_release(&worker->wire->to_agent, worker->cursor);
    buf[record.size] = '\0';
    return record;
}

static inline struct co_record receive(struct worker *worker, enum co_record_type type)
{
    struct co_record record = receive_any(worker);
    assert_int_equal(record.type, type);
    return record;
}

static inline void send_record(struct worker *worker, const struct co_record *record)
{
    bool wake = false;
    assert_int_equal(co_ring_push(&worker->wire->to_worker, record, &wake), CO_OK);
    if (wake) {
        syscall(SYS_futex, &worker->wire->to_worker.sleeping, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

static inline void send_question(struct worker *worker, const char *code)
{
    uint8_t body[CO_RECORD_MAX];
    int size = snprintf((char *)body, sizeof body, "eval%c%s", 0, code);
    send_record(worker, &(struct co_record){.type = CO_RECORD_CONTROL,
                                            .ticket = ++agent.ticket,
                                            .body = body,
                                            .size = (uint32_t)size});
}

/* The JSON of what the code returns. */
static inline const char *ask(struct worker *worker, const char *code)
{
    send_question(worker, code);
    struct co_record reply = receive(worker, CO_RECORD_REPLY);
    assert_int_equal(reply.ticket, agent.ticket);
    if ((reply.flags & CO_FLAG_OK) == 0) {
        print_error("%s: %s\n", code, (const char *)reply.body);
    }
    assert_int_equal(reply.flags, CO_FLAG_OK);
    return (const char *)reply.body;
}

static inline void expect_answer(struct worker *worker, const char *code, const char *want)
{
    assert_string_equal(ask(worker, code), want);
}

static inline struct worker *ready_worker(void)
{
    struct worker *worker = fork_worker(CO_KIND_JOB);
    receive(worker, CO_RECORD_READY);
    return worker;
}

static inline struct co_job_msg job_of(const char *payload, size_t size)
{
    return (struct co_job_msg){
        .ref = {.source = 9, .job_id = 42, .reserved_at = 1700000000, .attempts = 2},
        .timeout_ms = 1500,
        .tries = 3,
        .connection = "redis",
        .connection_size = 5,
        .queue = "emails",
        .queue_size = 6,
        .backoff = "1,5",
        .backoff_size = 3,
        .payload = (const uint8_t *)payload,
        .payload_size = size,
    };
}

static inline uint64_t send_work(struct worker *worker, enum co_record_type type,
                                 struct co_job_msg msg)
{
    uint8_t body[CO_RECORD_MAX];
    struct co_record record = {.type = (uint16_t)type, .ticket = ++agent.ticket, .body = body};
    int n = co_job_encode(&msg, body, sizeof body);
    if (n == CO_ETOOBIG) {
        char path[400];
        snprintf(path, sizeof path, "%s.i%" PRIu64, worker->path, record.ticket);
        write_file(path, (const char *)msg.payload, (size_t)msg.payload_size);
        msg.payload = NULL;
        record.flags = CO_FLAG_OVERFLOW;
        n = co_job_encode(&msg, body, sizeof body);
    }
    assert_true(n > 0);
    record.size = (uint32_t)n;
    send_record(worker, &record);
    return record.ticket;
}

static inline uint64_t send_job(struct worker *worker, const char *payload, size_t size)
{
    return send_work(worker, CO_RECORD_JOB, job_of(payload, size));
}

static inline void send_code(struct worker *worker, const char *code)
{
    char payload[4096];
    int size = snprintf(payload, sizeof payload, "{\"eval\":\"%s\"}", code);
    send_job(worker, payload, (size_t)size);
}

static inline struct co_end_msg expect_end(struct worker *worker, uint64_t ticket)
{
    struct co_end_msg end;
    struct co_record record = receive(worker, CO_RECORD_END);
    assert_int_equal(record.ticket, ticket);
    assert_int_equal(co_end_decode(record.body, record.size, &end), CO_OK);
    return end;
}

static inline void expect_text(const struct co_end_msg *end, const char *want)
{
    char text[1024];
    snprintf(text, sizeof text, "%.*s", (int)end->text_size, end->text);
    assert_string_equal(text, want);
}

static inline void send_stop(struct worker *worker)
{
    send_record(worker, &(struct co_record){.type = CO_RECORD_STOP});
}

static inline int end_of(struct worker *worker)
{
    int status = wait_status(worker->pid);
    worker->pid = 0;
    return status;
}

static inline int exit_code_of(struct worker *worker)
{
    int status = end_of(worker);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* ---- set-up ---- */

static inline int set_up(void **state)
{
    (void)state;
    start_zygote(loop_php, "preload");
    expect_boot();
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < agent.n_workers; i++) {
        struct worker *worker = &agent.workers[i];
        if (worker->pid > 0) {
            kill(worker->pid, SIGKILL);
            waitpid(worker->pid, NULL, 0);
        }
        munmap(worker->wire, sizeof *worker->wire);
        close(worker->pidfd);
        close(worker->output);
    }
    if (agent.zygote > 0) {
        kill(agent.zygote, SIGKILL);
        waitpid(agent.zygote, NULL, 0);
    }
    munmap(agent.bell, sizeof *agent.bell);
    if (agent.control >= 0) {
        close(agent.zygote_output);
        close(agent.control);
    }
    close(agent.wake);
    return nftw(agent.dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#endif /* CO_TESTS_WORKER_RIG_H */
