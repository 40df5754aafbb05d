/* cohort: looks at an agent and tells it what to do. Help, usage and completion of names all come
 * from the two tables below. */

#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/cli.h"
#include "controller/suggest.h"
#include "proto/units.h"

#ifndef COHORT_VERSION
#define COHORT_VERSION "0.1.0"
#endif

#define TIMEOUT_MS 30000
#define ANY INT_MAX

/* ---- options ---- */

enum {
    OPT_HELP = 'h',
    OPT_VERSION = 256,
    OPT_CONTROL,
    OPT_RUN_DIR,
    OPT_JSON,
    OPT_TIMEOUT,
    OPT_NO_COLOR,
    OPT_WATCH,
    OPT_WAIT,
    OPT_ALL,
    OPT_QUARANTINED,
    OPT_LIMIT,
    OPT_LAST,
    OPT_CONNECTION,
    OPT_POOL,
    OPT_REASON,
    OPT_AGENT,
    OPT_KEY,
    OPT_ROLE,
    OPT_SECRET_FILE,
    OPT_FLEET_NAME,
    OPT_FLEET,
    OPT_FOR,
    OPT_WORKER_BIN,
    OPT_PHP,
};

static const struct option_row {
    const char *name;
    int id;
    const char *value; /* NULL: takes none. */
    const char *help;
    bool global;
} option_rows[] = {
    {"control", OPT_CONTROL, "PATH",
     "the agent's socket (COHORT_CONTROL, else by the run directory)", true},
    {"run-dir", OPT_RUN_DIR, "DIR", "the agent's run directory (COHORT_RUN_DIR)", true},
    {"agent", OPT_AGENT, "ADDR:PORT", "an agent elsewhere, at its fleet address (COHORT_AGENT)",
     true},
    {"key", OPT_KEY, "FILE", "the key of a role for it (COHORT_KEY); cohort keygen makes one",
     true},
    {"json", OPT_JSON, NULL, "print JSON with a \"schema\" number", true},
    {"timeout", OPT_TIMEOUT, "TIME", "wait so long for the agent: 5s, 2m (default 30s)", true},
    {"no-color", OPT_NO_COLOR, NULL, "no colors (as NO_COLOR in the environment)", true},
    {"help", OPT_HELP, NULL, "show help, also -h", true},
    {"version", OPT_VERSION, NULL, "show the version", true},
    {"watch", OPT_WATCH, NULL, "show it again every second, until Ctrl-C", false},
    {"wait", OPT_WAIT, NULL, "return when it is through", false},
    {"all", OPT_ALL, NULL, "all of them", false},
    {"quarantined", OPT_QUARANTINED, NULL, "payloads that were put aside as not runnable", false},
    {"limit", OPT_LIMIT, "N", "at most so many, newest first", false},
    {"last", OPT_LAST, "N", "the newest N (default 20, at most 1000)", false},
    {"pool", OPT_POOL, "NAME", "of this pool", false},
    {"reason", OPT_REASON, "TEXT", "why, for those who find it so", false},
    {"connection", OPT_CONNECTION, "NAME", "the queue connection (default: the application's)",
     false},
    {"role", OPT_ROLE, "ROLE", "viewer or operator", false},
    {"secret-file", OPT_SECRET_FILE, "FILE", "the fleet's secret", false},
    {"fleet-name", OPT_FLEET_NAME, "NAME", "the fleet's name, as its agents have it", false},
    {"fleet", OPT_FLEET, NULL, "of all agents of the fleet", false},
    {"for", OPT_FOR, "TIME", "ends by itself after: 30m, 2h", false},
    {"worker-bin", OPT_WORKER_BIN, "PATH", "cohort-worker (default: the one beside cohort)", false},
    {"php", OPT_PHP, "PATH", "PHP of the command line (default: php in PATH)", false},
};
#define N_OPTIONS (sizeof option_rows / sizeof option_rows[0])

/* ---- commands ---- */

static int cmd_help(struct co_cli *cli);
static int cmd_version(struct co_cli *cli);

static const struct command {
    const char *name;
    const char *operands;
    const char *summary;
    int (*function)(struct co_cli *cli);
    int min;
    int max;
    int options[5]; /* Beside the global ones; ended by 0. */
    const char *help;
} commands[] = {
    {"run",
     "[OPTION...]",
     "run an agent in the foreground",
     co_cmd_run,
     0,
     ANY,
     {0},
     "Starts cohortd, found beside cohort, in place of this process; all options are its own\n"
     "(cohortd --help).\n"
     "\n"
     "  cohort run --app /srv/shop --workers 8\n"
     "  cohort run --config cohort.yaml\n"},
    {"status",
     "",
     "one page: agent, pools, queues, sources",
     co_cmd_status,
     0,
     0,
     {OPT_WATCH, OPT_FLEET},
     "  cohort status\n"
     "  cohort status --watch\n"
     "  cohort status --fleet\n"
     "  cohort status --json | jq '.pools[].workers_by_state'\n"
     "\n"
     "WAIT P95 is the wait from admission to a worker, JOB P95 the run time, both of 95 % of the\n"
     "jobs. CLAIMED jobs are taken and not begun, FOREIGN ones reserved by stock workers or other\n"
     "agents. With --fleet: each queue's target, who owns it, and the shares of the agents.\n"},
    {"workers",
     "",
     "each worker: generation, state, job, memory",
     co_cmd_workers,
     0,
     0,
     {0},
     "GENERATION rises with every boot of the application (cohort reload, queue:restart); SINCE "
     "is\n"
     "how long it has been in its state.\n"
     "\n"
     "  cohort workers\n"
     "  cohort workers --json | jq '.workers[] | select(.state == \"busy\")'\n"},
    {"workers trace",
     "ID",
     "where the PHP code of a worker is right now",
     co_cmd_trace,
     1,
     1,
     {OPT_POOL},
     "ID is the number cohort workers shows. The stack is read from outside: the job is neither\n"
     "stopped nor slowed. Without --pool the first pool is meant.\n"
     "\n"
     "  cohort workers trace 3\n"
     "  cohort workers trace 3 --pool mail --json | jq '.frames[0]'\n"},
    {"queues",
     "",
     "what waits where, and who serves it",
     co_cmd_queues,
     0,
     0,
     {0},
     "  cohort queues\n"
     "  cohort queues --json | jq '[.queues[].ready] | add'\n"},
    {"push",
     "QUEUE [FILE|-]",
     "put a payload on a queue, through the application",
     co_cmd_push,
     1,
     2,
     {OPT_CONNECTION},
     "For Laravel the payload is what its queue stores, a JSON object with \"job\"; for plain PHP "
     "any\n"
     "JSON, which the handler gets as the job's data.\n"
     "Without FILE, or with -, it is read from standard input.\n"
     "\n"
     "  cohort push emails payload.json\n"
     "  cat payload.json | cohort push emails --connection database\n"},
    {"reload",
     "",
     "boot the application anew, replace worker by worker",
     co_cmd_reload,
     0,
     0,
     {OPT_POOL, OPT_WAIT, OPT_FLEET},
     "As queue:restart and SIGUSR2, of all pools or of one: environment and code are read anew, a\n"
     "release behind a symbolic link is found again, and running jobs end in the old code. When\n"
     "the new code does not boot, the old serves on. With --wait it returns when every worker is\n"
     "of the new generation, and with exit status 1 and the application's words when it does not\n"
     "boot.\n"
     "\n"
     "  cohort reload\n"
     "  cohort reload --pool mail --wait\n"},
    {"pause",
     "[QUEUE] --reason TEXT",
     "begin no more jobs of a queue, on this agent",
     co_cmd_pause,
     0,
     1,
     {OPT_REASON, OPT_FLEET, OPT_FOR},
     "QUEUE is a name or connection:name; without it all queues are meant. Running jobs end, jobs\n"
     "taken ahead go back. The pause outlives the agent, until cohort resume. Other agents and\n"
     "stock workers are not held; Laravel's queue:pause (12.40 or newer) holds them all.\n"
     "With --fleet all agents of the fleet are held, those to come included, until cohort resume\n"
     "--fleet or for --for.\n"
     "\n"
     "  cohort pause emails --reason \"mail server is down\"\n"
     "  cohort pause database:emails --reason \"#4711\"\n"
     "  cohort pause --reason \"migration\"\n"},
    {"resume",
     "[QUEUE]",
     "end a pause of this agent",
     co_cmd_resume,
     0,
     1,
     {OPT_FLEET},
     "With --fleet an override of the whole fleet, pause or scale, ends. Else named as it was\n"
     "paused; without QUEUE the pause of all queues ends.\n"
     "\n"
     "  cohort resume emails\n"
     "  cohort resume\n"},
    {"scale",
     "QUEUE WORKERS --fleet --reason TEXT",
     "set a queue's workers in the whole fleet, for a while",
     co_cmd_scale,
     2,
     2,
     {OPT_REASON, OPT_FLEET, OPT_FOR},
     "The agents share out WORKERS among them, as far as their own limits and the policy's fleet\n"
     "maximum go. It ends after two hours (--for), or with cohort resume --fleet.\n"
     "\n"
     "  cohort scale emails 12 --fleet --reason \"campaign\" --for 6h\n"},
    {"audit",
     "",
     "who paused, resumed or scaled queues of the fleet",
     co_cmd_audit,
     0,
     0,
     {0},
     "The newest first; every agent keeps them in its state.db.\n"
     "\n"
     "  cohort audit\n"
     "  cohort audit --json | jq '.overrides[] | select(.in_force)'\n"},
    {"exits",
     "",
     "why workers ended, newest first",
     co_cmd_exits,
     0,
     0,
     {OPT_LAST},
     "REASON is one of a closed list (see agent/README.md), CAUSE the last line the worker wrote "
     "or\n"
     "what ended it. A helper is a control worker or a bookkeeper. JOB is its class, else its "
     "queue.\n"
     "\n"
     "  cohort exits\n"
     "  cohort exits --last 100 --json | jq '.exits[] | select(.reason == \"oom\")'\n"},
    {"slow",
     "",
     "jobs that ran for long, and where they were",
     co_cmd_slow,
     0,
     0,
     {OPT_LAST},
     "Jobs that ran for longer than their pool's slow:, each once, with its PHP stack of then.\n"
     "\n"
     "  cohort slow --last 5\n"
     "  cohort slow --json | jq -r '.slow[].job' | sort | uniq -c\n"},
    {"minutes",
     "",
     "what became of jobs, by minute, queue and class",
     co_cmd_minutes,
     0,
     0,
     {OPT_LAST},
     "A minute is written down when it is over. Times are of all jobs that ended in it.\n"
     "\n"
     "  cohort minutes\n"
     "  cohort minutes --last 1000 --json | jq '[.minutes[].done] | add'\n"},
    {"drain",
     "",
     "let the agent finish its jobs and end",
     co_cmd_drain,
     0,
     0,
     {OPT_WAIT, OPT_FLEET},
     "As SIGTERM: nothing more is taken, what was taken ahead goes back, running jobs end. With\n"
     "--fleet every agent of the fleet does.\n"
     "\n"
     "  cohort drain\n"
     "  cohort drain --wait\n"},
    {"failed list",
     "",
     "failed jobs, newest first",
     co_cmd_failed_list,
     0,
     0,
     {OPT_LIMIT, OPT_QUARANTINED},
     "  cohort failed list\n"
     "  cohort failed list --limit 5 --json\n"
     "  cohort failed list --quarantined\n"},
    {"failed show",
     "ID",
     "one failed job, whole",
     co_cmd_failed_show,
     1,
     1,
     {0},
     "ID is a number or a UUID, as cohort failed list shows it.\n"
     "\n"
     "  cohort failed show 17\n"},
    {"failed retry",
     "ID...|--all",
     "put failed jobs back on their queues",
     co_cmd_failed_retry,
     0,
     ANY,
     {OPT_ALL, OPT_QUARANTINED},
     "As queue:retry does. With --quarantined: payloads that were put aside.\n"
     "\n"
     "  cohort failed retry 17 18\n"
     "  cohort failed retry --all --quarantined\n"},
    {"failed forget",
     "ID...|--all",
     "delete failed jobs",
     co_cmd_failed_forget,
     0,
     ANY,
     {OPT_ALL, OPT_QUARANTINED},
     "  cohort failed forget 17\n"
     "  cohort failed forget --all\n"},
    {"config check",
     "[FILE]",
     "read a cohort.yaml as the agent does",
     co_cmd_config_check,
     0,
     1,
     {0},
     "Without FILE: cohort.yaml here, else /etc/cohort/cohort.yaml. What is wrong is told with "
     "its\n"
     "line, and the exit status is 1.\n"
     "\n"
     "  cohort config check cohort.yaml\n"},
    {"config explain",
     "[FILE]",
     "every value and where it comes from",
     co_cmd_config_explain,
     0,
     1,
     {0},
     "Of a file, or without one of the running agent.\n"
     "\n"
     "  cohort config explain\n"
     "  cohort config explain cohort.yaml --json\n"},
    {"peers",
     "",
     "the other agents of the fleet, and who was refused",
     co_cmd_peers,
     0,
     0,
     {0},
     "STATE is alive, suspect (silent for 1.5 s) or dead (2.5 s). Refused are keys that are "
     "nobody's,\n"
     "handshakes with another secret or fleet name, messages that are none, and claimed ids.\n"
     "\n"
     "  cohort peers\n"
     "  cohort peers --json | jq '[.peers[] | select(.state == \"alive\")] | length'\n"},
    {"keygen",
     "[FILE]",
     "make the secret of a fleet, or a role's key",
     co_cmd_keygen,
     0,
     1,
     {OPT_ROLE, OPT_SECRET_FILE, OPT_FLEET_NAME},
     "Without --role: a new secret; every agent of the fleet reads it from fleet.secret_file. To\n"
     "change it, put the new one below the old in every agent's file, then above it, then remove\n"
     "the old, restarting the agents one by one each time. With --role: a key for people, who may\n"
     "look (viewer) or look and act (operator) with --agent and --key, without the secret. It is\n"
     "written to FILE (mode 0400; one that exists is left alone), else to standard output.\n"
     "\n"
     "  cohort keygen /etc/cohort/secret\n"
     "  cohort keygen --role viewer --secret-file /etc/cohort/secret --fleet-name shop viewer.key\n"
     "  cohort status --agent 10.0.0.7:7946 --key viewer.key\n"},
    {"doctor",
     "",
     "PHP, OPcache, extensions, unserved queues",
     co_cmd_doctor,
     0,
     0,
     {OPT_WORKER_BIN, OPT_PHP},
     "Compares the PHP that runs the jobs (libphp) with the command line's, and asks the agent, "
     "if\n"
     "one is there, what is wrong. Exit status 1 when something needs attention.\n"
     "\n"
     "  cohort doctor\n"
     "  cohort doctor --json | jq .attention\n"},
    {"ping", "", "is an agent there?", co_cmd_ping, 0, 0, {0}, "  cohort ping --timeout 2s\n"},
    {"version", "", "the version of this program", cmd_version, 0, 0, {0}, "  cohort version\n"},
    {"help",
     "[COMMAND]",
     "help for a command",
     cmd_help,
     0,
     2,
     {0},
     "  cohort help failed retry\n"},
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

/* ---- help ---- */

static void print_options(bool global, const int *ids)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option_row *row = &option_rows[i];
        char text[64];
        bool wanted = global && row->global;
        for (const int *id = ids; id != NULL && *id != 0; id++) {
            wanted |= row->id == *id;
        }
        if (wanted) {
            snprintf(text, sizeof text, "--%s%s%s", row->name, row->value != NULL ? " " : "",
                     row->value != NULL ? row->value : "");
            printf("  %-18s %s\n", text, row->help);
        }
    }
}

static void print_help(void)
{
    puts("Usage: cohort COMMAND [OPTION...]\n\nLooks after the agent that runs your jobs.\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s %s", commands[i].name, commands[i].operands);
        printf("  %-28s %s\n", text, commands[i].summary);
    }
    puts("\nOptions of every command:");
    print_options(true, NULL);
    puts(
        "\nExit status: 0 done, 1 failed, 2 wrong usage, 69 no agent there.\n\n"
        "  cohort run --app /srv/shop      start an agent\n"
        "  cohort status --watch           look at it\n"
        "  cohort help failed retry        more about a command");
}

static bool has_options(const struct command *command)
{
    return command->options[0] != 0;
}

static void print_command(const struct command *command)
{
    printf("Usage: cohort %s %s%s\n\n%s\n\n", command->name, command->operands,
           command->function == co_cmd_run ? ""
           : command->operands[0] != '\0'  ? " [OPTION...]"
                                           : "[OPTION...]",
           command->summary);
    puts(command->help);
    if (command->function == co_cmd_run) {
        return;
    }
    if (has_options(command)) {
        puts("Options:");
        print_options(false, command->options);
        puts("");
    }
    puts("Options of every command:");
    print_options(true, NULL);
}

static int cmd_version(struct co_cli *cli)
{
    if (cli->json) {
        puts("{\n  \"schema\": 1,\n  \"version\": \"" COHORT_VERSION "\"\n}");
    } else {
        puts("cohort " COHORT_VERSION);
    }
    return CO_EXIT_OK;
}

/* ---- finding the command ---- */

static const struct command *find_name(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

/* "failed retry" takes two words, and "workers trace" is not "workers". Returns how many were
 * used, 0 = no such command. */
static int find_command(int argc, char **argv, const struct command **ret_command)
{
    char two[64];
    const struct command *command;

    if (argc > 1) {
        snprintf(two, sizeof two, "%s %s", argv[0], argv[1]);
        command = find_name(two);
        if (command != NULL) {
            *ret_command = command;
            return 2;
        }
    }
    command = find_name(argv[0]);
    if (command == NULL) {
        return 0;
    }
    *ret_command = command;
    return 1;
}

/* Whether it is the first word of commands with two. */
static bool is_noun(const char *word)
{
    size_t len = strlen(word);

    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strncmp(commands[i].name, word, len) == 0 && commands[i].name[len] == ' ') {
            return true;
        }
    }
    return false;
}

static void suggest_command(const char *words)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (co_suggest_near(words, commands[i].name)) {
            fprintf(stderr, "Did you mean: cohort %s\n", commands[i].name);
        }
    }
}

/* A noun without its verb, or with a wrong one: show those there are. */
static int wrong_verb(int argc, char **argv)
{
    size_t len = strlen(argv[0]);
    bool asked = argc == 1 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;

    if (!asked) {
        fprintf(stderr, "cohort: %s has no command \"%s\"\n", argv[0], argv[1]);
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strncmp(commands[i].name, argv[0], len) == 0 && commands[i].name[len] == ' ') {
            fprintf(asked ? stdout : stderr, "  cohort %s %-14s %s\n", commands[i].name,
                    commands[i].operands, commands[i].summary);
        }
    }
    return asked && argc > 1 ? CO_EXIT_OK : CO_EXIT_USAGE;
}

static int wrong_command(int argc, char **argv)
{
    if (is_noun(argv[0])) {
        return wrong_verb(argc, argv);
    }
    fprintf(stderr, "cohort: there is no command \"%s\"\n", argv[0]);
    suggest_command(argv[0]);
    fputs("Try: cohort help\n", stderr);
    return CO_EXIT_USAGE;
}

static int cmd_help(struct co_cli *cli)
{
    const struct command *command;

    if (cli->argc == 0) {
        print_help();
        return CO_EXIT_OK;
    }
    if (find_command(cli->argc, cli->argv, &command) == 0) {
        return wrong_command(cli->argc, cli->argv);
    }
    print_command(command);
    return CO_EXIT_OK;
}

/* ---- reading options ---- */

static bool allowed(const struct command *command, const struct option_row *row)
{
    for (const int *id = command != NULL ? command->options : NULL; id != NULL && *id != 0; id++) {
        if (*id == row->id) {
            return true;
        }
    }
    return row->global;
}

static int wrong_option(const struct command *command, const char *word)
{
    const char *name = command != NULL ? command->name : "help";
    size_t len = strcspn(word, "=");
    char bare[64];

    fprintf(stderr, "cohort: %s%s has no option %.*s, or its value is missing\n",
            command != NULL ? "" : "cohort ", command != NULL ? name : "itself", (int)len, word);
    snprintf(bare, sizeof bare, "%.*s", (int)(len > 2 ? len - 2 : 0), len > 2 ? word + 2 : "");
    for (size_t i = 0; i < N_OPTIONS && bare[0] != '\0'; i++) {
        if (allowed(command, &option_rows[i]) && co_suggest_near(bare, option_rows[i].name)) {
            fprintf(stderr, "Did you mean: --%s\n", option_rows[i].name);
        }
    }
    fprintf(stderr, "Try: cohort %s%s\n", name, command != NULL ? " --help" : "");
    return CO_EXIT_USAGE;
}

static int wrong_value(const char *option, const struct co_err *err)
{
    fprintf(stderr, "cohort: --%s: %s\n", option, err->msg);
    return CO_EXIT_USAGE;
}

struct places {
    const char *control;
    const char *run_dir;
    bool help;
    bool version;
};

static int read_timeout(struct co_cli *cli, const char *value)
{
    struct co_err err;
    uint64_t seconds;

    if (co_units_count(value, UINT32_MAX, &seconds, NULL) == 0) {
        cli->timeout = seconds * 1000; /* A plain number is seconds, as it is to queue:work. */
        return CO_EXIT_OK;
    }
    return co_units_duration(value, &cli->timeout, &err) < 0 ? wrong_value("timeout", &err)
                                                             : CO_EXIT_OK;
}

static int read_count(struct co_cli *cli, const char *option, const char *value)
{
    struct co_err err;
    return co_units_count(value, 1000000, &cli->limit, &err) < 0 ? wrong_value(option, &err)
                                                                 : CO_EXIT_OK;
}

static int read_for(struct co_cli *cli, const char *value)
{
    struct co_err err;

    if (co_units_duration(value, &cli->for_ms, &err) < 0) {
        return wrong_value("for", &err);
    }
    if (cli->for_ms == 0) {
        co_err_set(&err, CO_ECONFIG, "0 is over at once; without --for see the command's help");
        return wrong_value("for", &err);
    }
    return CO_EXIT_OK;
}

static int take_option(struct co_cli *cli, struct places *places, int id)
{
    switch (id) {
    case OPT_HELP:
        places->help = true;
        break;
    case OPT_VERSION:
        places->version = true;
        break;
    case OPT_CONTROL:
        places->control = optarg;
        break;
    case OPT_RUN_DIR:
        places->run_dir = optarg;
        break;
    case OPT_JSON:
        cli->json = true;
        break;
    case OPT_NO_COLOR:
        cli->color = false;
        break;
    case OPT_WATCH:
        cli->watch = true;
        break;
    case OPT_WAIT:
        cli->wait = true;
        break;
    case OPT_ALL:
        cli->all = true;
        break;
    case OPT_QUARANTINED:
        cli->quarantined = true;
        break;
    case OPT_POOL:
        cli->pool = optarg;
        break;
    case OPT_REASON:
        cli->reason = optarg;
        break;
    case OPT_CONNECTION:
        cli->connection = optarg;
        break;
    case OPT_AGENT:
        cli->agent = optarg;
        break;
    case OPT_KEY:
        cli->key = optarg;
        break;
    case OPT_ROLE:
        cli->role = optarg;
        break;
    case OPT_SECRET_FILE:
        cli->secret_file = optarg;
        break;
    case OPT_FLEET_NAME:
        cli->fleet_name = optarg;
        break;
    case OPT_FLEET:
        cli->fleet = true;
        break;
    case OPT_FOR:
        return read_for(cli, optarg);
    case OPT_WORKER_BIN:
        cli->worker_bin = optarg;
        break;
    case OPT_PHP:
        cli->php = optarg;
        break;
    case OPT_TIMEOUT:
        return read_timeout(cli, optarg);
    case OPT_LIMIT:
        return read_count(cli, "limit", optarg);
    case OPT_LAST:
        return read_count(cli, "last", optarg);
    }
    return CO_EXIT_OK;
}

/* Read options up to the first operand (command NULL), or all of them. -1: go on; else the exit
 * code. */
static int read_options(int argc, char **argv, const struct command *command, struct co_cli *cli,
                        struct places *places)
{
    struct option options[N_OPTIONS + 1] = {0};
    size_t n = 0;
    int id;

    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (allowed(command, &option_rows[i])) {
            options[n++] = (struct option){option_rows[i].name, option_rows[i].value != NULL, NULL,
                                           option_rows[i].id};
        }
    }
    opterr = 0;
    optind = 0; /* Start over. */
    while ((id = getopt_long(argc, argv, command != NULL ? "h" : "+h", options, NULL)) != -1) {
        int code =
            id == '?' ? wrong_option(command, argv[optind - 1]) : take_option(cli, places, id);
        if (code != CO_EXIT_OK) {
            return code;
        }
    }
    return -1;
}

/* ---- the agent's socket ---- */

static void choose_control(const struct places *places, char *buf, size_t size)
{
    const char *control = getenv("COHORT_CONTROL");
    const char *run_dir = getenv("COHORT_RUN_DIR");
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    const char *home = getenv("HOME");

    if (places->control != NULL) {
        snprintf(buf, size, "%s", places->control);
    } else if (places->run_dir != NULL) {
        snprintf(buf, size, "%s/control.sock", places->run_dir);
    } else if (control != NULL && control[0] != '\0') {
        snprintf(buf, size, "%s", control);
    } else if (run_dir != NULL && run_dir[0] != '\0') {
        snprintf(buf, size, "%s/control.sock", run_dir);
    } else if (geteuid() == 0) {
        snprintf(buf, size, "/run/cohort/control.sock");
    } else if (xdg != NULL && xdg[0] == '/') {
        snprintf(buf, size, "%s/cohort/control.sock", xdg);
    } else {
        snprintf(buf, size, "%s/.cohort/run/control.sock", home != NULL ? home : "");
    }
}

/* A socket named on the command line wins over an agent named in the environment. */
static void choose_agent(const struct places *places, struct co_cli *cli)
{
    if (cli->agent == NULL && places->control == NULL && places->run_dir == NULL) {
        cli->agent = getenv("COHORT_AGENT");
    }
    cli->agent = cli->agent != NULL && cli->agent[0] != '\0' ? cli->agent : NULL;
    cli->key = cli->key != NULL ? cli->key : getenv("COHORT_KEY");
}

static int check_operands(const struct command *command, const struct co_cli *cli)
{
    if (cli->argc >= command->min && cli->argc <= command->max) {
        return CO_EXIT_OK;
    }
    if (cli->argc < command->min) {
        fprintf(stderr, "cohort: %s needs %s\n", command->name, command->operands);
    } else {
        fprintf(stderr, "cohort: %s does not expect \"%s\"\n", command->name,
                cli->argv[command->max]);
    }
    fprintf(stderr, "Usage: cohort %s %s\nTry: cohort %s --help\n", command->name,
            command->operands, command->name);
    return CO_EXIT_USAGE;
}

static int run_command(const struct command *command, int argc, char **argv, struct co_cli *cli,
                       struct places *places)
{
    int code = read_options(argc, argv, command, cli, places);

    if (code >= 0) {
        return code;
    }
    if (places->help) {
        print_command(command);
        return CO_EXIT_OK;
    }
    if (places->version) {
        return cmd_version(cli);
    }
    cli->argc = argc - optind;
    cli->argv = argv + optind;
    cli->command = command->name;
    code = check_operands(command, cli);
    if (code != CO_EXIT_OK) {
        return code;
    }
    choose_control(places, cli->control, sizeof cli->control);
    choose_agent(places, cli);
    return command->function(cli);
}

/* cohortd reads what follows "run" itself. */
static int run_agent(const struct command *command, int argc, char **argv, struct co_cli *cli)
{
    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        print_command(command);
        return CO_EXIT_OK;
    }
    cli->argc = argc;
    cli->argv = argv;
    return command->function(cli);
}

int main(int argc, char **argv)
{
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    const struct command *command;
    struct places places = {0};
    struct co_cli cli = {.timeout = TIMEOUT_MS, .terminal = isatty(STDOUT_FILENO) == 1};
    int code;
    int first;
    int words;

    cli.color = cli.terminal && (no_color == NULL || no_color[0] == '\0') &&
                (term == NULL || strcmp(term, "dumb") != 0);
    code = read_options(argc, argv, NULL, &cli, &places);
    if (code >= 0) {
        return code;
    }
    if (places.version) {
        return cmd_version(&cli);
    }
    if (optind == argc) {
        print_help();
        return places.help ? CO_EXIT_OK : CO_EXIT_USAGE;
    }
    first = optind;
    words = find_command(argc - first, argv + first, &command);
    if (words == 0) {
        return wrong_command(argc - first, argv + first);
    }
    if (command->function == co_cmd_run) {
        return run_agent(command, argc - first - 1, argv + first + 1, &cli);
    }
    /* getopt begins at the second word; the last of the command stands for the program's name. */
    first += words - 1;
    return run_command(command, argc - first, argv + first, &cli, &places);
}
