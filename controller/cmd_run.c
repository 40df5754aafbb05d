#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/beside_os.h"
#include "controller/cli.h"

int co_cmd_run(struct co_cli *cli)
{
    char path[PATH_MAX];
    char **argv = calloc((size_t)cli->argc + 2, sizeof *argv);

    if (argv == NULL || !co_beside_find("cohortd", path, sizeof path)) {
        fputs("cohort: cannot find cohortd beside this program\n", stderr);
        free(argv);
        return CO_EXIT_FAILED;
    }
    argv[0] = path;
    for (int i = 0; i < cli->argc; i++) {
        argv[i + 1] = cli->argv[i];
    }
    execv(path, argv);
    fprintf(stderr, "cohort: cannot start %s: %s; the three programs belong side by side\n", path,
            strerror(errno));
    free(argv);
    return CO_EXIT_FAILED;
}
