#include "worker/seat_os.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A look is some tens of nanoseconds, a sleep and its wake-up several microseconds of both sides.
 * Longer looking would take the processor from the agent on small machines. */
#define SPIN_MIN 4u
#define SPIN_MAX 64u
#define FULL_RETRY_MS 1u

#define OVERFLOW_PATH_SIZE (CO_ZYGOTE_PATH_SIZE + 32)

static int map_file(const char *path, size_t size, void **ret_memory, struct co_err *err)
{
    struct stat stat;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return co_err_sys(err, errno, "open %s", path);
    }
    if (fstat(fd, &stat) != 0 || (size_t)stat.st_size < size) {
        close(fd); /* Touching a page past the end of the file would be a SIGBUS. */
        return co_err_set(err, CO_EMALFORMED, "%s: too short for a file of this version", path);
    }
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int sys = errno;
    close(fd);
    if (memory == MAP_FAILED) {
        return co_err_sys(err, sys, "map %s", path);
    }
    *ret_memory = memory;
    return CO_OK;
}

static int refuse(int code, const char *path, struct co_err *err)
{
    return co_err_set(err, code, "%s: %s; agent and cohort-worker must be of one release", path,
                      co_err_text(code));
}

int co_seat_open(struct co_seat *seat, const char *wire_path, const char *bell_path, int wake_fd,
                 struct co_err *err)
{
    void *wire;
    void *bell;
    int rc = map_file(wire_path, sizeof *seat->wire, &wire, err);
    if (rc == CO_OK) {
        rc = map_file(bell_path, sizeof *seat->bell, &bell, err);
    }
    if (rc < 0) {
        return rc;
    }
    seat->wire = wire;
    seat->bell = bell;
    if ((rc = co_wire_check(seat->wire, sizeof *seat->wire)) < 0) {
        return refuse(rc, wire_path, err);
    }
    if ((rc = co_bell_check(seat->bell, sizeof *seat->bell)) < 0) {
        return refuse(rc, bell_path, err);
    }
    seat->wake_fd = wake_fd;
    seat->cursor = co_ring_tail(&seat->wire->to_worker);
    seat->spin = SPIN_MIN;
    snprintf(seat->path, sizeof seat->path, "%s", wire_path);
    return CO_OK;
}

int co_seat_take(struct co_seat *seat, struct co_record *ret_record)
{
    return co_ring_peek(&seat->wire->to_worker, &seat->cursor, ret_record);
}

void co_seat_release(struct co_seat *seat)
{
    co_ring_release(&seat->wire->to_worker, seat->cursor);
}

static void futex_wait(const void *word, uint32_t value, unsigned wait_ms)
{
    struct timespec limit = {.tv_sec = wait_ms / 1000, .tv_nsec = (long)(wait_ms % 1000) * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT, value, wait_ms > 0 ? &limit : NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool spin(struct co_seat *seat)
{
    for (unsigned i = 0; i < seat->spin; i++) {
        if (!co_ring_empty(&seat->wire->to_worker, seat->cursor)) {
            seat->spin = seat->spin < SPIN_MAX ? seat->spin * 2 : SPIN_MAX;
            return true;
        }
        relax();
    }
    seat->spin = seat->spin > SPIN_MIN ? seat->spin / 2 : SPIN_MIN;
    return false;
}

void co_seat_wait(struct co_seat *seat, unsigned wait_ms)
{
    struct co_ring *ring = &seat->wire->to_worker;

    if (spin(seat) || !co_ring_sleep(ring, seat->cursor)) {
        return;
    }
    futex_wait(&ring->sleeping, 1, wait_ms);
    co_ring_awake(ring);
}

static void ring_bell(struct co_seat *seat)
{
    uint64_t one = 1;
    if (co_bell_rings(seat->bell)) {
        /* An eventfd takes any number of ones; a full one has woken the agent already. */
        ssize_t written = write(seat->wake_fd, &one, sizeof one);
        (void)written;
    }
}

bool co_seat_offer(struct co_seat *seat, const struct co_record *record)
{
    if (co_ring_push(&seat->wire->to_agent, record, NULL) != CO_OK) {
        return false;
    }
    ring_bell(seat);
    return true;
}

void co_seat_send(struct co_seat *seat, const struct co_record *record)
{
    struct co_ring *ring = &seat->wire->to_agent;

    while (!co_seat_offer(seat, record)) {
        /* The agent does not wake us for room, so this is a short wait and another look. */
        uint32_t tail = (uint32_t)co_ring_tail(ring);
        ring_bell(seat);
        futex_wait(&ring->tail, tail, FULL_RETRY_MS);
    }
}

static void overflow_path(const struct co_seat *seat, char way, uint64_t ticket,
                          char ret_path[OVERFLOW_PATH_SIZE])
{
    snprintf(ret_path, OVERFLOW_PATH_SIZE, "%s.%c%" PRIu64, seat->path, way, ticket);
}

int co_seat_overflow_size(const struct co_seat *seat, uint64_t ticket, uint64_t *ret_size,
                          struct co_err *err)
{
    char path[OVERFLOW_PATH_SIZE];
    struct stat stat;

    overflow_path(seat, 'i', ticket, path);
    if (lstat(path, &stat) != 0) {
        return co_err_sys(err, errno, "find payload %s", path);
    }
    *ret_size = (uint64_t)stat.st_size;
    return CO_OK;
}

static int read_all(int fd, char *buf, uint64_t size)
{
    for (uint64_t at = 0; at < size;) {
        ssize_t got = read(fd, buf + at, size - at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? errno : ENODATA;
        }
        at += (uint64_t)got;
    }
    return 0;
}

int co_seat_overflow_read(const struct co_seat *seat, uint64_t ticket, char *buf, uint64_t size,
                          struct co_err *err)
{
    char path[OVERFLOW_PATH_SIZE];
    overflow_path(seat, 'i', ticket, path);

    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return co_err_sys(err, errno, "open payload %s", path);
    }
    struct stat stat;
    bool fits = fstat(fd, &stat) == 0 && (uint64_t)stat.st_size == size;
    int sys = fits ? read_all(fd, buf, size) : 0;
    close(fd);
    if (!fits) {
        return co_err_set(err, CO_EMALFORMED, "payload %s: not the %" PRIu64 " bytes announced",
                          path, size);
    }
    if (sys != 0) {
        return co_err_sys(err, sys, "read payload %s", path);
    }
    (void)unlink(path); /* Left over, the agent removes it with the wire. */
    return CO_OK;
}

static int write_all(int fd, const char *buf, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t put = write(fd, buf + at, size - at);
        if (put < 0 && errno != EINTR) {
            return errno;
        }
        at += put > 0 ? (size_t)put : 0;
    }
    return 0;
}

int co_seat_overflow_write(const struct co_seat *seat, uint64_t ticket, const char *buf,
                           size_t size, struct co_err *err)
{
    char path[OVERFLOW_PATH_SIZE];
    overflow_path(seat, 'o', ticket, path);

    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return co_err_sys(err, errno, "create reply %s", path);
    }
    int sys = write_all(fd, buf, size);
    if (close(fd) != 0 && sys == 0) {
        sys = errno;
    }
    if (sys != 0) {
        (void)unlink(path);
        return co_err_sys(err, sys, "write reply %s", path);
    }
    return CO_OK;
}
