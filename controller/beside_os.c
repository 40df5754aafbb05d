#include "controller/beside_os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define OUTPUT_MAX (4u * 1024 * 1024)

bool co_beside_find(const char *program, char *buf, size_t size)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    if (n <= 0) {
        return false;
    }
    self[n] = '\0';
    slash = strrchr(self, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return (size_t)snprintf(buf, size, "%s/%s", self, program) < size;
}

struct stream {
    int fd;
    char *data;
    size_t len;
    size_t size;
};

/* Take what there is; false at the end. More than OUTPUT_MAX is read and forgotten. */
static bool take(struct stream *stream)
{
    char chunk[8192];
    ssize_t n = read(stream->fd, chunk, sizeof chunk);

    if (n < 0 && errno == EINTR) {
        return true;
    }
    if (n <= 0) {
        return false;
    }
    if (stream->len + (size_t)n + 1 > stream->size) {
        size_t size = (stream->len + (size_t)n + 1) * 2;
        char *data = size <= OUTPUT_MAX ? realloc(stream->data, size) : NULL;
        if (data == NULL) {
            return true;
        }
        stream->data = data;
        stream->size = size;
    }
    memcpy(stream->data + stream->len, chunk, (size_t)n);
    stream->len += (size_t)n;
    stream->data[stream->len] = '\0';
    return true;
}

/* Both at once: a program that fills one pipe while we read the other would wait for ever. */
static void take_all(struct stream streams[2])
{
    struct pollfd fds[2] = {{streams[0].fd, POLLIN, 0}, {streams[1].fd, POLLIN, 0}};

    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            return;
        }
        for (int i = 0; i < 2; i++) {
            if (fds[i].fd >= 0 && fds[i].revents != 0 && !take(&streams[i])) {
                fds[i].fd = -1;
            }
        }
    }
}

static int start(const char *const argv[], const int out[2], const int errors[2], pid_t *ret_pid,
                 struct co_err *err)
{
    posix_spawn_file_actions_t actions;
    int r;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, errors[1], 2);
    r = posix_spawnp(ret_pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (r == ENOENT) {
        return co_err_set(err, CO_ENOTFOUND, "there is no %s", argv[0]);
    }
    return r == 0 ? 0 : co_err_sys(err, r, "start %s", argv[0]);
}

static int finish(const char *name, pid_t pid, struct stream streams[2], char **ret_output,
                  struct co_err *err)
{
    const char *words = streams[1].data != NULL ? streams[1].data : "";
    int status = 0;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return co_err_set(err, CO_EAPP, "%s failed: %.*s", name, (int)strcspn(words, "\n"),
                          words[0] != '\0' ? words : "no word why");
    }
    *ret_output = streams[0].data != NULL ? streams[0].data : strdup("");
    streams[0].data = NULL;
    return *ret_output != NULL ? 0 : co_err_set(err, CO_ENOMEM, "out of memory");
}

int co_beside_output(const char *const argv[], char **ret_output, struct co_err *err)
{
    struct stream streams[2] = {0};
    int out[2];
    int errors[2];
    pid_t pid;
    int code;

    if (pipe2(out, O_CLOEXEC) < 0) {
        return co_err_sys(err, errno, "make a pipe");
    }
    if (pipe2(errors, O_CLOEXEC) < 0) {
        code = co_err_sys(err, errno, "make a pipe");
        close(out[0]);
        close(out[1]);
        return code;
    }
    code = start(argv, out, errors, &pid, err);
    close(out[1]);
    close(errors[1]);
    if (code == 0) {
        streams[0].fd = out[0];
        streams[1].fd = errors[0];
        take_all(streams);
        code = finish(argv[0], pid, streams, ret_output, err);
    }
    close(out[0]);
    close(errors[0]);
    free(streams[0].data);
    free(streams[1].data);
    return code;
}
