#include "agent/proc_os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "worker/dispatch.h"

#define ZYGOTE_CONTROL_FD 3
#define ZYGOTE_WAKE_FD 4
#define ARGS_MAX 96

extern char **environ;

int co_proc_init(struct co_err *err)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        return co_err_sys(err, errno, "become the reaper of orphaned processes");
    }
    signal(SIGPIPE, SIG_IGN);
    return CO_OK;
}

static int pipe_pair(int fds[2], struct co_err *err)
{
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return co_err_sys(err, errno, "make a pipe");
    }
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    return CO_OK;
}

int co_proc_output_pipe(int ret_fds[2], struct co_err *err)
{
    return pipe_pair(ret_fds, err);
}

/* dup2 onto itself would keep close-on-exec, so the child's ends are moved out of the way first. */
static int above(int fd)
{
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, 16);

    if (moved < 0) {
        return fd; /* Out of descriptors: the low one works as well, unless it is in the way. */
    }
    close(fd);
    return moved;
}

static void build_argv(const struct co_zygote_spec *spec, const char **argv)
{
    size_t n = 0;

    argv[n++] = spec->worker_bin;
    if (!spec->worker) {
        argv[n++] = "--control-fd";
        argv[n++] = "3";
    }
    argv[n++] = "--wake-fd";
    argv[n++] = "4";
    for (size_t i = 0; spec->args[i] != NULL && n < ARGS_MAX - 1; i++) {
        argv[n++] = spec->args[i];
    }
    argv[n] = NULL;
}

/* The environment, with the chosen libphp loaded before the linked one. */
static char **build_env(const char *libphp, char *preload, size_t size)
{
    size_t n = 0;
    char **env;

    while (environ[n] != NULL) {
        n++;
    }
    env = calloc(n + 2, sizeof *env);
    if (env == NULL) {
        return NULL;
    }
    memcpy(env, environ, n * sizeof *env);
    if (libphp[0] != '\0') {
        snprintf(preload, size, "LD_PRELOAD=%s", libphp);
        env[n] = preload;
    }
    return env;
}

static int spawn(const struct co_zygote_spec *spec, int control, int output, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    const char *argv[ARGS_MAX];
    char preload[CO_PATH_SIZE + 16];
    char **env = build_env(spec->libphp, preload, sizeof preload);
    int code;

    if (env == NULL) {
        return ENOMEM;
    }
    build_argv(spec, argv);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawn_file_actions_adddup2(&actions, output, 2);
    if (control >= 0) {
        posix_spawn_file_actions_adddup2(&actions, control, ZYGOTE_CONTROL_FD);
    } else {
        posix_spawn_file_actions_addopen(&actions, ZYGOTE_CONTROL_FD, "/dev/null", O_RDONLY, 0);
    }
    posix_spawn_file_actions_adddup2(&actions, spec->wake_fd, ZYGOTE_WAKE_FD);
    posix_spawn_file_actions_addclosefrom_np(&actions, ZYGOTE_WAKE_FD + 1);
    code = posix_spawn(ret_pid, spec->worker_bin, &actions, &attr, (char *const *)argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    free(env);
    return code;
}

static int control_pair(bool wanted, int fds[2], struct co_err *err)
{
    fds[0] = fds[1] = -1;
    if (!wanted) {
        return CO_OK;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
        return co_err_sys(err, errno, "make the zygote's control socket");
    }
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    fds[1] = above(fds[1]);
    return CO_OK;
}

static void close_if(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

int co_proc_spawn(const struct co_zygote_spec *spec, struct co_zygote_process *ret,
                  struct co_err *err)
{
    int sockets[2];
    int output[2];
    int code = control_pair(!spec->worker, sockets, err);

    if (code < 0) {
        return code;
    }
    code = pipe_pair(output, err);
    if (code < 0) {
        close_if(sockets[0]);
        close_if(sockets[1]);
        return code;
    }
    output[1] = above(output[1]);
    code = spawn(spec, sockets[1], output[1], &ret->pid);
    close_if(sockets[1]);
    close(output[1]);
    if (code != 0) {
        close_if(sockets[0]);
        close(output[0]);
        return co_err_sys(err, code, "start %s (is it installed beside cohortd?)",
                          spec->worker_bin);
    }
    ret->control_fd = sockets[0];
    ret->output_fd = output[0];
    return CO_OK;
}

static void signal_worker(pid_t pid, int number)
{
    if (pid > 1) {
        kill(pid, SIGRTMIN + number);
    }
}

void co_proc_signal_timeout(pid_t pid)
{
    signal_worker(pid, CO_SIGNAL_TIMEOUT);
}

void co_proc_signal_stop(pid_t pid)
{
    signal_worker(pid, CO_SIGNAL_STOP);
}

int co_proc_helper(const char *worker_bin, const char *const *args, pid_t *ret_pid, int *ret_fd,
                   struct co_err *err)
{
    posix_spawn_file_actions_t actions;
    const char *argv[16] = {worker_bin};
    int output[2];
    int code = pipe_pair(output, err);

    if (code < 0) {
        return code;
    }
    output[1] = above(output[1]);
    for (size_t i = 0; args[i] != NULL && i < 14; i++) {
        argv[i + 1] = args[i];
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output[1], 1);
    posix_spawn_file_actions_adddup2(&actions, output[1], 2);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    code = posix_spawn(ret_pid, worker_bin, &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(output[1]);
    if (code != 0) {
        close(output[0]);
        return co_err_sys(err, code, "start %s", worker_bin);
    }
    *ret_fd = output[0];
    return CO_OK;
}

int co_proc_send(int control_fd, const struct co_zygote_msg *msg, int pass_fd, struct co_err *err)
{
    static uint8_t buf[CO_ZYGOTE_MSG_MAX];
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    int size = co_zygote_encode(msg, buf, sizeof buf);
    struct iovec iov = {.iov_base = buf, .iov_len = (size_t)size};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

    if (size < 0) {
        return co_err_set(err, size, "encode a message to the zygote");
    }
    if (pass_fd >= 0) {
        struct cmsghdr *cmsg;
        header.msg_control = control.space;
        header.msg_controllen = sizeof control.space;
        cmsg = CMSG_FIRSTHDR(&header);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(cmsg), &pass_fd, sizeof(int));
    }
    if (sendmsg(control_fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EAGAIN || errno == ENOBUFS) {
            return co_err_set(err, CO_EAGAIN, "the zygote does not read its messages");
        }
        if (errno == EPIPE || errno == ECONNRESET) {
            return co_err_set(err, CO_EAGAIN, "the zygote has gone"); /* Its end will be seen. */
        }
        return co_err_sys(err, errno, "send to the zygote");
    }
    return CO_OK;
}

static int take_fd(struct msghdr *header)
{
    int fd = -1;

    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(header); cmsg != NULL;
         cmsg = CMSG_NXTHDR(header, cmsg)) {
        size_t n = cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS
                       ? (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int)
                       : 0;
        for (size_t i = 0; i < n; i++) { /* One is expected; more must not stay open. */
            if (fd >= 0) {
                close(fd);
            }
            memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
        }
    }
    return fd;
}

int co_proc_recv(int control_fd, struct co_zygote_msg *ret_msg, int *ret_fd, struct co_err *err)
{
    static uint8_t buf[CO_ZYGOTE_MSG_MAX];
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = buf, .iov_len = sizeof buf};
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.space,
                            .msg_controllen = sizeof control.space};
    ssize_t n = recvmsg(control_fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    int code;

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (n <= 0) {
        return co_err_set(err, CO_EIO, "the zygote has closed its control socket");
    }
    *ret_fd = take_fd(&header);
    code = co_zygote_decode(buf, (size_t)n, ret_msg);
    if (code < 0) {
        return co_err_set(err, code, "read a message of the zygote: %s", co_err_text(code));
    }
    return 1;
}

bool co_proc_next_exit(pid_t *ret_pid)
{
    siginfo_t info = {0};

    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
        return false;
    }
    *ret_pid = info.si_pid;
    return true;
}

void co_proc_reap(pid_t pid, bool group, int *ret_exit_code, int *ret_signal)
{
    int status = 0;

    /* The group's name is safe until its leader is reaped. */
    if (group) {
        kill(-pid, SIGKILL);
    }
    waitpid(pid, &status, 0);
    *ret_exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    *ret_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void co_proc_kill(pid_t pid)
{
    if (pid > 1) {
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
    }
}

/* A predecessor that was killed this moment is still being taken down by the kernel. */
static bool lock_soon(int fd)
{
    for (int tries = 0; tries < 50; tries++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return true;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000000L}, NULL);
    }
    return false;
}

int co_proc_lock(const char *path, int *ret_fd, struct co_err *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0) {
        return co_err_sys(err, errno, "open lock file %s", path);
    }
    if (!lock_soon(fd)) {
        close(fd);
        return co_err_set(err, CO_EBUSY,
                          "%s is held by another cohortd; give each agent directories of its own "
                          "(--run-dir, --state-dir)",
                          path);
    }
    *ret_fd = fd;
    return CO_OK;
}

int co_proc_mkdir(const char *path, struct co_err *err)
{
    char part[CO_PATH_SIZE];
    struct stat st;

    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) {
        return co_err_set(err, CO_ETOOBIG, "directory name too long: %s", path);
    }
    for (char *slash = strchr(part + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash != NULL) {
            *slash = '\0';
        }
        if (mkdir(part, 0700) != 0 && errno != EEXIST) {
            return co_err_sys(err, errno, "make directory %s", part);
        }
        if (slash == NULL) {
            break;
        }
        *slash = '/';
    }
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode) || access(path, W_OK | X_OK) != 0) {
        return co_err_set(err, CO_EIO, "%s is not a directory this user can write to", path);
    }
    return CO_OK;
}

uint64_t co_proc_rss(pid_t pid)
{
    char path[64];
    char text[128];
    unsigned long long size, resident = 0;
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) {
        return 0;
    }
    text[n] = '\0';
    return sscanf(text, "%llu %llu", &size, &resident) == 2
               ? resident * (uint64_t)sysconf(_SC_PAGESIZE)
               : 0;
}
