#include "controller/author_os.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void co_author_write(char *buf, size_t size)
{
    const char *user = getenv("SUDO_USER");
    const struct passwd *entry = getpwuid(geteuid());
    char host[64] = "";
    int half = (int)(size - 2) / 2;

    if (user == NULL || user[0] == '\0') {
        user = entry != NULL ? entry->pw_name : "?";
    }
    gethostname(host, sizeof host - 1);
    /* A field of the agent's memory: what is longer would be lost whole. */
    snprintf(buf, size, "%.*s@%.*s", half, user, half, host);
}
