#include "worker/process_os.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void co_process_bind(pid_t agent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent) {
        _exit(1); /* The agent died first; nobody is there to be told. */
    }
}

void co_process_lead(void)
{
    /* Fails when we lead one already, which is what we want. */
    (void)setpgid(0, 0);
}

void co_process_name(const char *name)
{
    prctl(PR_SET_NAME, name);
}

void co_process_close_from(int first)
{
    (void)close_range((unsigned)first, ~0U, 0);
}

void co_process_close_but(int fd)
{
    if (fd > 3) {
        (void)close_range(3, (unsigned)fd - 1, 0);
    }
    co_process_close_from(fd + 1);
}

void co_process_let_read(pid_t agent)
{
    (void)prctl(PR_SET_PTRACER, (unsigned long)agent); /* Without Yama there is no need. */
}

void co_process_keep_from_children(int fd)
{
    int flags = fcntl(fd, F_GETFD);
    if (flags >= 0) {
        (void)fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    }
}

void co_process_reset_signals(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int number = 1; number < NSIG; number++) {
        if (number == SIGPROF) {
            continue; /* PHP's own, for set_time_limit(); installed once, at its start. */
        }
        action.sa_handler = number == SIGPIPE ? SIG_IGN : SIG_DFL;
        (void)sigaction(number, &action, NULL); /* KILL, STOP and glibc's own refuse. */
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

uint64_t co_process_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

co_ms co_process_now(void)
{
    return co_process_now_us() / 1000;
}

uint64_t co_process_rss(void)
{
    char text[128];
    unsigned long pages = 0;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size > 0) {
        text[size] = '\0';
        char *second = strchr(text, ' ');
        pages = second != NULL ? strtoul(second, NULL, 10) : 0;
    }
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
