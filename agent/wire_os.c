#include "agent/wire_os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/err.h"

/* Every place of every pool, twice: the dead stay until they are settled. */
#define GUARDED_MAX 4096
#define OVERFLOW_MAX (80u * 1024 * 1024)

/* Mappings the guard knows. The handler runs on the thread that touched the mapping, which is the
 * one that fills this table. */
static struct {
    char *volatile start;
    volatile size_t size;
    volatile sig_atomic_t lost;
} guarded[GUARDED_MAX];

static void on_bus_error(int signum, siginfo_t *info, void *context)
{
    char *at = info->si_addr;

    (void)context;
    for (size_t i = 0; i < GUARDED_MAX; i++) {
        char *start = guarded[i].start;
        if (start != NULL && at >= start && at < start + guarded[i].size &&
            mmap(start, guarded[i].size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == start) {
            guarded[i].lost = 1;
            return;
        }
    }
    signal(signum, SIG_DFL); /* Not ours: die of it when the instruction is tried again. */
}

int co_wire_guard(struct co_err *err)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};

    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, NULL) != 0) {
        return co_err_sys(err, errno, "guard the wires (SIGBUS)");
    }
    return CO_OK;
}

static void guard(void *start, size_t size)
{
    for (size_t i = 0; i < GUARDED_MAX; i++) {
        if (guarded[i].start == NULL) {
            guarded[i].lost = 0;
            guarded[i].size = size;
            guarded[i].start = start;
            return;
        }
    }
}

static void unguard(const void *start)
{
    for (size_t i = 0; i < GUARDED_MAX; i++) {
        if (guarded[i].start == start) {
            guarded[i].start = NULL;
        }
    }
}

/* GUARDED_MAX: not there. */
static size_t find_guarded(const void *start)
{
    size_t i = 0;

    while (i < GUARDED_MAX && guarded[i].start != start) {
        i++;
    }
    return i;
}

bool co_link_lost(const struct co_link *link)
{
    return link->guard < GUARDED_MAX && guarded[link->guard].lost != 0;
}

bool co_bell_lost(const struct co_bell *bell)
{
    size_t i = find_guarded(bell);

    return i < GUARDED_MAX && guarded[i].lost != 0;
}

static int map_new(const char *path, size_t size, void **ret_map, struct co_err *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    void *map;

    if (fd < 0) {
        return co_err_sys(err, errno, "make %s", path);
    }
    /* Reserve the space now: a full tmpfs must fail here, not as SIGBUS under load. */
    int code = posix_fallocate(fd, 0, (off_t)size);
    if (code != 0) {
        close(fd);
        unlink(path);
        return co_err_sys(err, code, "reserve %zu bytes for %s", size, path);
    }
    map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    code = errno;
    close(fd);
    if (map == MAP_FAILED) {
        unlink(path);
        return co_err_sys(err, code, "map %s", path);
    }
    guard(map, size);
    *ret_map = map;
    return CO_OK;
}

int co_link_open(const char *path, uint64_t agent_id, const char *pool, uint32_t worker,
                 uint32_t generation, struct co_link **ret_link, struct co_err *err)
{
    struct co_link *link = calloc(1, sizeof *link);
    void *map;
    int code;

    if (link == NULL) {
        return co_err_set(err, CO_ENOMEM, "no memory for a worker's link");
    }
    unlink(path); /* Never write into a file that an old worker may still have mapped. */
    code = map_new(path, sizeof *link->wire, &map, err);
    if (code < 0) {
        free(link);
        return code;
    }
    link->wire = map;
    link->guard = find_guarded(map);
    snprintf(link->path, sizeof link->path, "%s", path);
    co_wire_init(link->wire, agent_id, pool, worker, generation);
    *ret_link = link;
    return CO_OK;
}

/* What was too long for the ring and is not wanted any more: WIRE.i<ticket>, WIRE.o<ticket>. */
static void remove_overflows(const char *wire)
{
    char dir[CO_PATH_SIZE];
    char *name;
    size_t size;
    struct dirent *entry;
    DIR *handle;

    snprintf(dir, sizeof dir, "%s", wire);
    name = strrchr(dir, '/');
    *name++ = '\0';
    size = strlen(name);
    handle = opendir(dir);
    while (handle != NULL && (entry = readdir(handle)) != NULL) {
        if (strncmp(entry->d_name, name, size) == 0 && entry->d_name[size] == '.') {
            unlinkat(dirfd(handle), entry->d_name, 0);
        }
    }
    if (handle != NULL) {
        closedir(handle);
    }
}

void co_link_free(struct co_link **link)
{
    if (*link == NULL) {
        return;
    }
    unguard((*link)->wire);
    munmap((*link)->wire, sizeof *(*link)->wire);
    unlink((*link)->path);
    if ((*link)->overflowed) {
        remove_overflows((*link)->path);
    }
    free(*link);
    *link = NULL;
}

int co_link_read(struct co_link *link, uint8_t *buf, struct co_record *ret_record)
{
    return co_ring_copy(&link->wire->to_agent, &link->cursor, buf, ret_record);
}

/* The batch is settled: give its space back and close the next one. */
static void next_batch(struct co_link *link)
{
    co_ring_release(&link->wire->to_agent, link->boundary);
    link->boundary = link->cursor;
    link->before = link->after;
    link->after = 0;
    link->batch += 1;
    if (link->before == 0) {
        co_ring_release(&link->wire->to_agent, link->boundary);
    }
}

uint64_t co_link_hold(struct co_link *link)
{
    uint64_t tag = link->batch + 1;

    link->after += 1;
    if (link->before == 0) {
        next_batch(link);
    }
    return tag;
}

void co_link_settled(struct co_link *link, uint64_t tag)
{
    if (tag > link->batch) {
        link->after -= 1;
    } else {
        link->before -= 1;
    }
    if (link->before == 0) {
        next_batch(link);
    }
}

bool co_link_idle(const struct co_link *link)
{
    return link->before == 0 && link->after == 0;
}

void co_link_release(struct co_link *link)
{
    if (co_link_idle(link)) {
        link->boundary = link->cursor;
        co_ring_release(&link->wire->to_agent, link->cursor);
    }
}

static int write_overflow(const char *path, const uint8_t *data, size_t size, struct co_err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0) {
        return co_err_sys(err, errno, "make overflow file %s", path);
    }
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, data + done, size - done);
        if (n < 0 && errno != EINTR) {
            int sys = errno;
            close(fd);
            unlink(path);
            return co_err_sys(err, sys, "write %zu bytes to overflow file %s", size, path);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    return CO_OK;
}

int co_link_send(struct co_link *link, const struct co_record *record, const void *long_part,
                 size_t long_size, struct co_err *err)
{
    struct co_ring *ring = &link->wire->to_worker;
    char path[CO_PATH_SIZE + 32];
    bool wake = false;
    int code;

    if (long_part != NULL) {
        link->overflowed = true;
        snprintf(path, sizeof path, "%s.i%llu", link->path, (unsigned long long)record->ticket);
        code = write_overflow(path, long_part, long_size, err);
        if (code < 0) {
            return code;
        }
    }
    code = co_ring_push(ring, record, &wake);
    if (code < 0) {
        if (long_part != NULL) {
            unlink(path);
        }
        return co_err_set(err, code, "hand a record of %u bytes to %s", record->size, link->path);
    }
    if (wake) {
        syscall(SYS_futex, &ring->sleeping, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    return CO_OK;
}

int co_link_overflow(struct co_link *link, uint64_t ticket, char **ret_data, size_t *ret_size,
                     struct co_err *err)
{
    char path[CO_PATH_SIZE + 32];
    struct stat st;
    char *data = NULL;
    size_t done = 0;
    int fd;

    snprintf(path, sizeof path, "%s.o%llu", link->path, (unsigned long long)ticket);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return co_err_sys(err, errno, "open overflow file %s", path);
    }
    unlink(path);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)OVERFLOW_MAX ||
        (data = malloc((size_t)st.st_size + 1)) == NULL) {
        close(fd);
        return co_err_set(err, CO_ETOOBIG, "overflow file %s cannot be read whole", path);
    }
    while (done < (size_t)st.st_size) {
        ssize_t n = read(fd, data + done, (size_t)st.st_size - done);
        if (n <= 0) {
            break;
        }
        done += (size_t)n;
    }
    close(fd);
    data[done] = 0;
    *ret_data = data;
    *ret_size = done;
    return CO_OK;
}

int co_bell_open(const char *path, struct co_bell **ret_bell, struct co_err *err)
{
    void *map;
    int code;

    unlink(path);
    code = map_new(path, sizeof(struct co_bell), &map, err);
    if (code < 0) {
        return code;
    }
    *ret_bell = map;
    co_bell_init(*ret_bell);
    return CO_OK;
}

void co_bell_close(struct co_bell **bell)
{
    if (*bell != NULL) {
        unguard(*bell);
        munmap(*bell, sizeof **bell);
        *bell = NULL;
    }
}
