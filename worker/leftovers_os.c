#include "worker/leftovers_os.h"

#include <dirent.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/process_os.h"
#include "worker/text.h"

#define LOOK_MS 50

/* The next entry that is a number, or -1 at the end. */
static long next_number(DIR *dir)
{
    struct dirent *entry;

    while ((entry = readdir(dir)) != NULL) {
        char *end;
        long number = strtol(entry->d_name, &end, 10);
        if (end != entry->d_name && *end == '\0') {
            return number;
        }
    }
    return -1;
}

static bool read_name(long task, char ret_name[CO_LEFTOVERS_NAME_SIZE])
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/task/%ld/comm", task);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false; /* It has just ended. */
    }
    bool good = fgets(ret_name, CO_LEFTOVERS_NAME_SIZE, file) != NULL;
    fclose(file);
    if (good) {
        ret_name[strcspn(ret_name, "\n")] = '\0';
    }
    return good;
}

static void find_threads(struct co_leftovers *left)
{
    char name[CO_LEFTOVERS_NAME_SIZE];
    long task;
    DIR *dir = opendir("/proc/self/task");

    while (dir != NULL && (task = next_number(dir)) >= 0) {
        if (task == getpid() || !read_name(task, name)) {
            continue;
        }
        if (left->n_threads < CO_LEFTOVERS_NAMES_MAX) {
            memcpy(left->threads[left->n_threads], name, sizeof name);
        }
        left->n_threads++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static bool is_socket(long fd)
{
    static const char begin[] = "socket:";
    char path[64];
    char target[sizeof begin];

    snprintf(path, sizeof path, "/proc/self/fd/%ld", fd);
    return readlink(path, target, sizeof target) >= (ssize_t)sizeof begin - 1 &&
           memcmp(target, begin, sizeof begin - 1) == 0;
}

static void find_sockets(int control_fd, struct co_leftovers *left)
{
    long fd;
    DIR *dir = opendir("/proc/self/fd");

    while (dir != NULL && (fd = next_number(dir)) >= 0) {
        left->sockets += fd > STDERR_FILENO && fd != control_fd && is_socket(fd);
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

void co_leftovers_look(int control_fd, struct co_leftovers *ret_left)
{
    memset(ret_left, 0, sizeof *ret_left);
    find_threads(ret_left);
    find_sockets(control_fd, ret_left);
}

void co_leftovers_wait(int control_fd, struct co_leftovers *ret_left)
{
    struct pollfd wait = {.fd = control_fd, .events = POLLIN};
    co_ms deadline = co_process_now() + CO_LEFTOVERS_WAIT_MS;

    co_leftovers_look(control_fd, ret_left);
    while (ret_left->n_threads > 0 && co_process_now() < deadline && poll(&wait, 1, LOOK_MS) <= 0) {
        co_leftovers_look(control_fd, ret_left);
    }
}

void co_leftovers_json(const struct co_leftovers *left, char *ret_json, size_t size)
{
    struct co_text text;

    co_text_init(&text, ret_json, size);
    co_text_print(&text, "{\"threads\":[");
    for (size_t i = 0; i < left->n_threads && i < CO_LEFTOVERS_NAMES_MAX; i++) {
        co_text_print(&text, "%s", i > 0 ? "," : "");
        co_text_add_json(&text, left->threads[i], strlen(left->threads[i]));
    }
    co_text_print(&text, "],\"sockets\":%u}", left->sockets);
}
