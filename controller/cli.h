/* What every command gets: the options as read, and how to end. */

#ifndef CO_CONTROLLER_CLI_H
#define CO_CONTROLLER_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/config.h"
#include "proto/time.h"

#define CO_EXIT_OK 0
#define CO_EXIT_FAILED 1
#define CO_EXIT_USAGE 2
#define CO_EXIT_UNREACHABLE 69

struct co_cli {
    char control[CO_PATH_SIZE]; /* The agent's socket. */
    co_ms timeout;
    bool json;
    bool color;
    bool terminal; /* Standard output is one. */

    /* Options of single commands. */
    bool watch;
    bool wait;
    bool all;
    bool quarantined;
    uint64_t limit;
    const char *connection;
    const char *pool;
    const char *reason;
    const char *agent; /* ADDR:PORT of a remote one, NULL: by the socket ... */
    const char *key;   /* ... and the file with the key of a role. */
    const char *role;
    const char *secret_file;
    const char *fleet_name;
    bool fleet;   /* All its agents are meant. */
    co_ms for_ms; /* 0: not said. */
    const char *worker_bin;
    const char *php;

    /* What is left, and the command it belongs to ("failed retry"). */
    int argc;
    char **argv;
    const char *command;
};

/* One function a command; each returns the exit code. In cmd_*.c. */
int co_cmd_run(struct co_cli *cli);
int co_cmd_status(struct co_cli *cli);
int co_cmd_workers(struct co_cli *cli);
int co_cmd_queues(struct co_cli *cli);
int co_cmd_ping(struct co_cli *cli);
int co_cmd_push(struct co_cli *cli);
int co_cmd_trace(struct co_cli *cli);
int co_cmd_exits(struct co_cli *cli);
int co_cmd_slow(struct co_cli *cli);
int co_cmd_minutes(struct co_cli *cli);
int co_cmd_reload(struct co_cli *cli);
int co_cmd_pause(struct co_cli *cli);
int co_cmd_resume(struct co_cli *cli);
int co_cmd_drain(struct co_cli *cli);
int co_cmd_scale(struct co_cli *cli);
int co_cmd_audit(struct co_cli *cli);
int co_cmd_failed_list(struct co_cli *cli);
int co_cmd_failed_show(struct co_cli *cli);
int co_cmd_failed_retry(struct co_cli *cli);
int co_cmd_failed_forget(struct co_cli *cli);
int co_cmd_config_check(struct co_cli *cli);
int co_cmd_config_explain(struct co_cli *cli);
int co_cmd_peers(struct co_cli *cli);
int co_cmd_keygen(struct co_cli *cli);
int co_cmd_doctor(struct co_cli *cli);

/* What those of the same name do with --fleet, in cmd_fleet.c; and of drain and reload: tell all.
 */
int co_cmd_fleet_status(struct co_cli *cli);
int co_cmd_fleet_pause(struct co_cli *cli);
int co_cmd_fleet_resume(struct co_cli *cli);
int co_cmd_fleet_relay(struct co_cli *cli, const char *op);

#endif /* CO_CONTROLLER_CLI_H */
