/* What the application's boot left in the zygote that a fork does not carry over: threads, which a
 * child does not have, and sockets, which all children would share. */

#ifndef CO_WORKER_LEFTOVERS_OS_H
#define CO_WORKER_LEFTOVERS_OS_H

#include <stddef.h>

#define CO_LEFTOVERS_NAMES_MAX 16
#define CO_LEFTOVERS_NAME_SIZE 16
#define CO_LEFTOVERS_WAIT_MS 5000

struct co_leftovers {
    size_t n_threads; /* Beside the main one; may be more than there are names. */
    char threads[CO_LEFTOVERS_NAMES_MAX][CO_LEFTOVERS_NAME_SIZE];
    unsigned sockets; /* Beside the control socket and 0, 1, 2. */
};

void co_leftovers_look(int control_fd, struct co_leftovers *ret_left);

/* Look until no thread is left or CO_LEFTOVERS_WAIT_MS have passed; a message from the agent ends
 * the wait as well. */
void co_leftovers_wait(int control_fd, struct co_leftovers *ret_left);

/* Write {"threads":["name",...],"sockets":n}; never more than size bytes, 1024 are enough. */
void co_leftovers_json(const struct co_leftovers *left, char *ret_json, size_t size);

#endif /* CO_WORKER_LEFTOVERS_OS_H */
