/* What stands between this host and its jobs. Two PHPs are compared: the one in libphp, which runs
 * the jobs, and the one of the command line, with which people try them. */

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/ask_os.h"
#include "controller/beside_os.h"
#include "controller/cli.h"
#include "controller/table.h"

#define FINDINGS_MAX 64

struct doctor {
    const struct co_cli *cli;
    char *worker; /* What cohort-worker --info printed, NULL when it failed. */
    char *php;    /* The same of the command line's PHP. */
    char *agent;  /* Its part of doctor, NULL when there is none. */
    char no_agent[CO_ERR_MSG_SIZE];
    size_t n_attention;
    char *attention[FINDINGS_MAX];
    size_t n_notes;
    char *notes[FINDINGS_MAX];
    unsigned differences;
};

__attribute__((format(printf, 3, 0))) static void keep(char **list, size_t *n, const char *fmt,
                                                       va_list args)
{
    if (*n < FINDINGS_MAX && vasprintf(&list[*n], fmt, args) >= 0) {
        (*n)++;
    }
}

__attribute__((format(printf, 2, 3))) static void attend(struct doctor *doctor, const char *fmt,
                                                         ...)
{
    va_list args;
    va_start(args, fmt);
    keep(doctor->attention, &doctor->n_attention, fmt, args);
    va_end(args);
}

__attribute__((format(printf, 2, 3))) static void note(struct doctor *doctor, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    keep(doctor->notes, &doctor->n_notes, fmt, args);
    va_end(args);
}

static void heading(const struct doctor *doctor, const char *words)
{
    printf("%s%s%s\n", doctor->cli->color ? "\033[1m" : "", words,
           doctor->cli->color ? "\033[0m" : "");
}

/* ---- the two PHPs ---- */

static void ask_worker(struct doctor *doctor)
{
    char beside[PATH_MAX];
    const char *path = doctor->cli->worker_bin;
    struct co_err err;

    if (path == NULL && co_beside_find("cohort-worker", beside, sizeof beside)) {
        path = beside;
    }
    const char *const argv[] = {path != NULL ? path : "cohort-worker", "--info", NULL};
    if (co_beside_output(argv, &doctor->worker, &err) < 0) {
        attend(doctor, "PHP cannot be embedded: %s", err.msg);
    }
}

static void ask_php(struct doctor *doctor)
{
    const char *path = doctor->cli->php != NULL ? doctor->cli->php : "php";
    const char *const argv[] = {path, "-r", co_cli_php_code, NULL};
    struct co_err err;

    if (co_beside_output(argv, &doctor->php, &err) < 0) {
        note(doctor, "no PHP of the command line to compare with: %s", err.msg);
    }
}

static void print_php(const struct doctor *doctor, const char *title, const struct co_cli_php *php)
{
    char dir[sizeof php->first_scanned];

    heading(doctor, title);
    printf("  version  %s%s\n", php->version, php->zts ? " (ZTS)" : " (NTS)");
    printf("  file     %s\n", php->libphp);
    printf("  ini      %s\n", php->ini_file[0] != '\0' ? php->ini_file : "none");
    if (php->n_ini_scanned > 0) {
        snprintf(dir, sizeof dir, "%s", php->first_scanned);
        char *slash = strrchr(dir, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
        printf("           %u more in %s\n", php->n_ini_scanned, dir);
    }
    printf("  pcntl    %s\n", php->pcntl ? "yes" : "no");
    printf("  OPcache  %s\n\n", php->opcache ? "on" : "off");
}

/* "8.2" of "8.2.36". */
static size_t minor_len(const char *version)
{
    size_t len = strcspn(version, ".");
    return version[len] == '.' ? len + 1 + strcspn(version + len + 1, ".") : len;
}

static void check_worker(struct doctor *doctor, const struct co_cli_php *php)
{
    if (php->zts) {
        attend(doctor,
               "libphp is a thread-safe build (ZTS), which cohort-worker does not run: "
               "install the NTS one (on Debian libphp8.x-embed is NTS)");
    }
    if (!php->opcache) {
        attend(doctor,
               "OPcache is off in libphp, so every worker compiles and keeps its own copy "
               "of the code: enable opcache in %s",
               php->ini_file[0] != '\0' ? php->ini_file : "its php.ini");
    }
    if (!php->pcntl) {
        note(doctor,
             "libphp has no pcntl: jobs that call pcntl_* functions fail; timeouts work "
             "without it");
    }
}

static void check_pair(struct doctor *doctor, const struct co_cli_php *worker,
                       const struct co_cli_php *php)
{
    size_t len = minor_len(worker->version);

    if (len != minor_len(php->version) || strncmp(worker->version, php->version, len) != 0) {
        attend(doctor,
               "jobs run on PHP %s, the command line is %s: what works with php artisan "
               "may fail in a job",
               worker->version, php->version);
    }
}

static void show_difference(void *arg, bool extension, const char *name, const char *worker,
                            const char *php)
{
    struct doctor *doctor = arg;

    if (extension && worker == NULL && strcmp(name, "pcntl") != 0) {
        attend(doctor,
               "the extension %s is missing in libphp: install it for PHP's embed SAPI "
               "(on Debian: phpenmod -s embed %s), if the application uses it",
               name, name);
    }
    if (!extension && strcmp(name, "memory_limit") == 0) {
        note(doctor,
             "memory_limit is %s for jobs and %s on the command line: a job that needs "
             "more than the former fails here and not with queue:work",
             worker != NULL ? worker : "none", php != NULL ? php : "none");
    }
    if (doctor->differences == 0 && !doctor->cli->json) {
        heading(doctor, "Where they differ");
    }
    doctor->differences++;
    if (!doctor->cli->json) {
        printf("  %-9s  %-32s  libphp: %-20s  php: %s\n", extension ? "extension" : "ini", name,
               worker == NULL      ? "missing"
               : worker[0] == '\0' ? "\"\""
                                   : worker,
               php == NULL      ? "missing"
               : php[0] == '\0' ? "\"\""
                                : php);
    }
}

static void compare(struct doctor *doctor)
{
    co_cli_json_compare(doctor->worker, doctor->php, show_difference, doctor);
    if (doctor->cli->json) {
        return;
    }
    puts(doctor->differences == 0 ? "Both have the same extensions and settings.\n" : "");
}

static void examine_php(struct doctor *doctor)
{
    static struct co_cli_php worker;
    static struct co_cli_php php;
    struct co_err err;
    bool have_worker = doctor->worker != NULL;
    bool have_php = doctor->php != NULL;

    if (have_worker && co_cli_json_php(doctor->worker, &worker, &err) < 0) {
        attend(doctor, "cohort-worker --info: %s", err.msg);
        have_worker = false;
    }
    if (have_php && co_cli_json_php(doctor->php, &php, &err) < 0) {
        note(doctor, "php -r: %s", err.msg);
        have_php = false;
    }
    if (have_worker) {
        check_worker(doctor, &worker);
    }
    if (!doctor->cli->json && have_worker) {
        print_php(doctor, "PHP of the workers (libphp)", &worker);
    }
    if (!doctor->cli->json && have_php) {
        print_php(doctor, "PHP of the command line", &php);
    }
    if (have_worker && have_php) {
        check_pair(doctor, &worker, &php);
        compare(doctor);
    }
}

/* ---- the agent ---- */

/* What the view tells better is left out. */
static void take_note(void *arg, const char *text)
{
    struct doctor *doctor = arg;
    bool told = strstr(text, "--quarantined") != NULL;

    for (size_t i = 0; i < doctor->n_attention; i++) {
        told |= strstr(doctor->attention[i], text) != NULL;
    }
    if (!told) {
        note(doctor, "%s", text);
    }
}

static void take_attention(void *arg, const char *text)
{
    attend(arg, "%s", text);
}

static void take_unserved(void *arg, const char *connection, const char *queue, uint64_t ready,
                          uint64_t delayed)
{
    attend(arg,
           "nobody here serves the queue %s:%s (%" PRIu64 " ready, %" PRIu64
           " delayed): name "
           "it in a pool's queue, or run stock workers for it",
           connection, queue, ready, delayed);
}

static void examine_view(struct doctor *doctor, const struct co_view *view)
{
    if (!doctor->cli->json) {
        printf("  %s %s, pid %d, %s\n", "cohortd", view->version, view->pid,
               view->draining ? "draining"
               : view->ready  ? "ready"
                              : "not ready");
    }
    if (!view->ready && !view->draining) {
        attend(doctor, "the agent is not ready: %s", view->why);
    }
    for (uint32_t i = 0; i < view->n_sources; i++) {
        if (view->sources[i].quarantined > 0) {
            attend(doctor, "%s: %" PRIu64 " in quarantine: cohort failed list --quarantined",
                   view->sources[i].connection, view->sources[i].quarantined);
        }
    }
}

static void examine_agent(struct doctor *doctor)
{
    const struct co_view *view;
    struct co_err err;

    if (!doctor->cli->json) {
        heading(doctor, "Agent");
    }
    if (co_ask_view(doctor->cli, false, &view, &err) < 0 ||
        co_ask(doctor->cli, "doctor", NULL, &doctor->agent, &err) < 0) {
        snprintf(doctor->no_agent, sizeof doctor->no_agent, "%s", err.msg);
        if (err.code != CO_EUNREACHABLE) {
            attend(doctor, "the agent does not answer: %s", err.msg);
        }
        if (!doctor->cli->json) {
            printf("  not asked: %s\n\n", err.msg);
        }
        return;
    }
    examine_view(doctor, view);
    co_cli_json_unserved(doctor->agent, take_unserved, doctor);
    co_cli_json_texts(doctor->agent, "app", "attention", take_attention, doctor);
    co_cli_json_texts(doctor->agent, "app", "notes", take_note, doctor);
    co_cli_json_texts(doctor->agent, NULL, "notes", take_note, doctor);
    if (!doctor->cli->json) {
        puts("");
    }
}

/* ---- what came of it ---- */

static void print_findings(const struct doctor *doctor)
{
    const char *red = doctor->cli->color ? "\033[31m" : "";
    const char *off = doctor->cli->color ? "\033[0m" : "";

    if (doctor->n_notes > 0) {
        heading(doctor, "Notes");
    }
    for (size_t i = 0; i < doctor->n_notes; i++) {
        printf("  - %s\n", doctor->notes[i]);
    }
    printf("%s", doctor->n_notes > 0 ? "\n" : "");
    heading(doctor, doctor->n_attention > 0 ? "Needs attention" : "Nothing needs attention.");
    for (size_t i = 0; i < doctor->n_attention; i++) {
        printf("  %s!%s %s\n", red, off, doctor->attention[i]);
    }
}

static int print_json(const struct doctor *doctor)
{
    const struct co_cli_doctor all = {
        .worker = doctor->worker,
        .cli = doctor->php,
        .agent = doctor->agent,
        .attention = (const char *const *)doctor->attention,
        .n_attention = doctor->n_attention,
        .notes = (const char *const *)doctor->notes,
        .n_notes = doctor->n_notes,
    };
    return co_ask_print(co_cli_json_doctor(&all));
}

int co_cmd_doctor(struct co_cli *cli)
{
    struct doctor doctor = {.cli = cli};
    int status = CO_EXIT_OK;

    ask_worker(&doctor);
    ask_php(&doctor);
    examine_php(&doctor);
    examine_agent(&doctor);
    if (cli->json) {
        status = print_json(&doctor);
    } else {
        print_findings(&doctor);
    }
    for (size_t i = 0; i < doctor.n_attention; i++) {
        free(doctor.attention[i]);
    }
    for (size_t i = 0; i < doctor.n_notes; i++) {
        free(doctor.notes[i]);
    }
    free(doctor.worker);
    free(doctor.php);
    free(doctor.agent);
    return status == CO_EXIT_OK && doctor.n_attention > 0 ? CO_EXIT_FAILED : status;
}
