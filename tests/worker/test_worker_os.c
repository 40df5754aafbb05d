/* cohort-worker from outside. */

#include "worker/worker_rig.h"

static void php_is_what_the_command_line_has(void **state)
{
    (void)state;
    struct worker *worker = ready_worker();
    expect_answer(worker, "return PHP_SAPI;", "\"cli\"");
    expect_answer(worker, "return opcache_get_status(false)['opcache_enabled'];", "true");
    expect_answer(worker, "return [is_resource(STDIN), is_resource(STDOUT), is_resource(STDERR)];",
                  "[true,true,true]");
    expect_answer(worker, "return ini_get('max_execution_time');", "\"0\"");
    expect_answer(worker, "return (bool) ini_get('html_errors');", "false");
    expect_answer(worker, "return basename(PHP_BINARY)[0] . basename($_SERVER['argv'][0])[0];",
                  "\"pp\"");
    expect_answer(worker, "return trim(file_get_contents('/proc/self/comm'));",
                  "\"cohort-worker\"");
    expect_answer(worker, "return \\Cohort\\Worker\\config()['colour'];", "\"a=b\"");
}

static void the_boot_happens_once_in_the_zygote(void **state)
{
    char want[32];
    (void)state;
    struct worker *worker = ready_worker();
    snprintf(want, sizeof want, "%d", agent.zygote);
    expect_answer(worker, "return $GLOBALS['booted'];", want);
}

static void a_worker_is_a_child_of_the_agent(void **state)
{
    char want[64];
    (void)state;
    struct worker *worker = ready_worker();
    snprintf(want, sizeof want, "[%d,%d,%d]", getpid(), worker->pid, worker->pid);
    expect_answer(worker, "return [posix_getppid(), posix_getpid(), posix_getpgrp()];", want);
    kill(worker->pid, SIGSEGV);
    int status = end_of(worker);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
}

static void workers_draw_different_numbers(void **state)
{
    static const char code[] = "return [mt_rand(), rand(), lcg_value()];";
    char first[256];
    (void)state;
    struct worker *one = ready_worker();
    struct worker *other = ready_worker();
    snprintf(first, sizeof first, "%s", ask(one, code));
    assert_string_not_equal(ask(other, code), first);
    snprintf(first, sizeof first, "%s", ask(one, "return lcg_value();"));
    assert_string_not_equal(ask(other, "return lcg_value();"), first);
}

static void workers_outlive_their_zygote(void **state)
{
    (void)state;
    struct worker *worker = ready_worker();
    kill(agent.zygote, SIGKILL);
    wait_status(agent.zygote);
    agent.zygote = 0;
    uint64_t ticket = send_job(worker, "{}", 2);
    assert_int_equal(expect_end(worker, ticket).outcome, CO_OUTCOME_FAILED);
    send_stop(worker);
    assert_int_equal(exit_code_of(worker), 7);
}

static void a_worker_holds_no_socket_and_gives_nothing_on(void **state)
{
    (void)state;
    struct worker *worker = ready_worker();
    expect_answer(worker,
                  "$bad = []; foreach (scandir('/proc/self/fd') as $fd) {"
                  " $to = @readlink(\"/proc/self/fd/$fd\");"
                  " if ($to === false || $fd < 3 || $to === 'anon_inode:[eventfd]') continue;"
                  " if (str_contains($to, '.ZendSem.')) continue;"
                  " $bad[] = \"$fd $to\"; } return $bad;",
                  "[]");
    /* 3 is the directory that ls reads. */
    expect_answer(worker, "return preg_split('/\\s+/', trim(shell_exec('ls /proc/self/fd')));",
                  "[\"0\",\"1\",\"2\",\"3\"]");
}

static void a_job_arrives_with_all_it_has(void **state)
{
    (void)state;
    struct worker *worker = ready_worker();
    char code[] = "return json_encode(array_diff_key($m, ['payload' => 1, 'ticket' => 1]));";
    send_code(worker, code);
    struct co_end_msg end = expect_end(worker, agent.ticket);
    char text[512];
    snprintf(text, sizeof text, "%.*s", (int)end.text_size, end.text);
    assert_string_equal(text,
                        "{\"type\":\"job\",\"id\":42,\"connection\":\"redis\",\"queue\":\"emails\","
                        "\"attempts\":2,\"reserved_at\":1700000000,\"available_at\":0,"
                        "\"created_at\":0,\"timeout\":2,\"tries\":3,\"backoff\":\"1,5\","
                        "\"memory\":0}");
    assert_int_equal(end.outcome, CO_OUTCOME_FAILED);
    assert_int_equal(end.flags, CO_END_RECORD);
    assert_int_equal(end.delay_s, 5);
    assert_int_equal(end.ref.source, 9);
    assert_int_equal(end.ref.job_id, 42);
    assert_int_equal(end.ref.reserved_at, 1700000000);
    assert_int_equal(end.ref.attempts, 2);
    uint64_t job_ticket = agent.ticket;
    uint64_t ticket;
    expect_answer(worker, "return 1;", "1"); /* The slot follows the END. */
    assert_int_equal(co_slot_phase(&worker->wire->slot, &ticket), CO_PHASE_IDLE);
    assert_int_equal(ticket, job_ticket);
    assert_int_equal(worker->wire->slot.begun, job_ticket);
    assert_int_equal(worker->wire->slot.job.job_id, 42);
}

static void a_bookkeeper_is_told_what_happened(void **state)
{
    static const struct {
        enum co_cause cause;
        uint32_t final;
        const char *want;
    } rows[] = {
        {CO_CAUSE_TIMEOUT, 0, "[\"bookkeep\",42,\"timeout\",false,\"worker 3 ended\"]"},
        {CO_CAUSE_CRASH, 1, "[\"bookkeep\",42,\"crash\",true,\"worker 3 ended\"]"},
        {CO_CAUSE_OOM, 1, "[\"bookkeep\",42,\"oom\",true,\"worker 3 ended\"]"},
    };
    static const char code[] =
        "{\"eval\":\"return json_encode([$m['type'], $m['id'], $m['cause'],"
        " $m['final'], $m['text']]);\"}";
    (void)state;
    struct worker *worker = fork_worker(CO_KIND_BOOKKEEPER);
    struct co_record ready = receive(worker, CO_RECORD_READY);
    assert_non_null(strstr((const char *)ready.body, "\"kind\":\"bookkeeper\""));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct co_job_msg msg = job_of(code, sizeof code - 1);
        msg.cause = rows[i].cause;
        msg.final = rows[i].final;
        msg.cause_text = "worker 3 ended";
        msg.cause_size = 14;
        uint64_t ticket = send_work(worker, CO_RECORD_BOOKKEEP, msg);
        struct co_end_msg end = expect_end(worker, ticket);
        expect_text(&end, rows[i].want);
        assert_int_equal(worker->wire->slot.begun, ticket);
    }
}

static void an_end_carries_its_flags(void **state)
{
    (void)state;
    struct worker *worker = ready_worker();
    send_code(
        worker,
        "\\\\Cohort\\\\Worker\\\\end($m['ticket'], 1, 0, '', false,"
        " \\\\Cohort\\\\Worker\\\\END_MEMORY | \\\\Cohort\\\\Worker\\\\END_TIMEOUT); exit(0);");
    struct co_end_msg end = expect_end(worker, agent.ticket);
    assert_int_equal(end.outcome, CO_OUTCOME_DONE);
    assert_int_equal(end.flags, CO_END_MEMORY | CO_END_TIMEOUT);
    assert_int_equal(exit_code_of(worker), 0);
}

static void payloads_of_any_size_arrive_whole(void **state)
{
    static const size_t sizes[] = {0, 1, 15 * 1024, 16 * 1024, 40 * 1024, 1024 * 1024};
    (void)state;
    struct worker *worker = ready_worker();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char want[64];
        char path[400];
        char *payload = malloc(sizes[i] + 1);
        for (size_t at = 0; at < sizes[i]; at++) {
            payload[at] = (char)('a' + (at * 7 + i) % 26);
        }
        uint64_t ticket = send_job(worker, payload, sizes[i]);
        struct co_end_msg end = expect_end(worker, ticket);
        char sum[64];
        snprintf(sum, sizeof sum, "\"%.*s\"", (int)end.text_size, end.text);
        snprintf(path, sizeof path, "%s.i%" PRIu64, worker->path, ticket);
        assert_int_not_equal(access(path, F_OK), 0);
        payload[sizes[i]] = '\0';
        write_file(in_dir("same"), payload, sizes[i]);
        snprintf(want, sizeof want, "return sha1_file('%s');", in_dir("same"));
        assert_string_equal(ask(worker, want), sum);
        free(payload);
    }
}

static void a_large_answer_goes_by_overflow(void **state)
{
    (void)state;
    char path[400];
    struct stat stat_;
    struct worker *worker = ready_worker();
    send_question(worker, "return str_repeat('x', 300000);");
    struct co_record reply = receive(worker, CO_RECORD_REPLY);
    assert_int_equal(reply.flags, CO_FLAG_OK | CO_FLAG_OVERFLOW);
    assert_int_equal(reply.size, 0);
    snprintf(path, sizeof path, "%s.o%" PRIu64, worker->path, reply.ticket);
    assert_int_equal(stat(path, &stat_), 0);
    assert_int_equal(stat_.st_size, 300002);
    assert_int_equal(stat_.st_mode & 0777, 0600);
}

static void nothing_is_lost_when_the_agent_is_slow(void **state)
{
    (void)state;
    struct worker *worker = ready_worker();
    send_question(worker,
                  "for ($i = 0; $i < 30; $i++) { \\Cohort\\Worker\\log('debug', str_repeat('l', "
                  "4000)); \\Cohort\\Worker\\reply(5000 + $i, true, str_repeat('x', 9000)); }");
    uint64_t next = 5000;
    while (next < 5030) {
        struct co_record record = receive_any(worker);
        if (record.type == CO_RECORD_REPLY) {
            assert_int_equal(record.ticket, next++);
            assert_int_equal(record.size, 9000);
        }
    }
}

static void log_lines_carry_their_level(void **state)
{
    (void)state;
    struct worker *worker = ready_worker();
    send_question(worker, "\\Cohort\\Worker\\log('warn', 'careful');");
    struct co_record record = receive(worker, CO_RECORD_LOG);
    assert_int_equal(record.body[0], 2);
    assert_string_equal((const char *)record.body + 1, "careful");
    receive(worker, CO_RECORD_REPLY);
}

static void a_ticket_taken_back_does_not_begin(void **state)
{
    (void)state;
    struct worker *worker = ready_worker();
    uint64_t ticket = agent.ticket + 1;
    assert_false(co_slot_end(&worker->wire->slot, ticket, 1));
    send_job(worker, "{}", 2);
    assert_string_equal((const char *)receive(worker, CO_RECORD_LOG).body + 1, "taken back");
    ticket = send_job(worker, "{}", 2); /* The worker goes on with the next. */
    expect_end(worker, ticket);
}

static void an_ending_ticket_does_not_become_idle(void **state)
{
    (void)state;
    struct worker *worker = ready_worker();
    uint64_t ticket;
    /* The job waits for a file that we make once its ticket is ending. */
    char code[512];
    snprintf(code, sizeof code, "\\\\Cohort\\\\Worker\\\\log('info', 'on'); $f = fopen('%s', 'r');",
             in_dir("gate"));
    assert_int_equal(mkfifo(in_dir("gate"), 0600), 0);
    send_code(worker, code);
    assert_string_equal((const char *)receive(worker, CO_RECORD_LOG).body + 1, "on");
    assert_true(co_slot_end(&worker->wire->slot, agent.ticket, 1));
    int gate = open(in_dir("gate"), O_WRONLY | O_CLOEXEC);
    expect_end(worker, agent.ticket);
    assert_string_equal((const char *)receive(worker, CO_RECORD_LOG).body + 1, "being ended");
    assert_int_equal(co_slot_phase(&worker->wire->slot, &ticket), CO_PHASE_ENDING);
    assert_int_equal(ticket, agent.ticket);
    close(gate);
}

static void a_lease_that_is_over_begins_nothing(void **state)
{
    (void)state;
    struct worker *worker = ready_worker();
    worker->wire->slot.lease_until = 1;
    send_job(worker, "{}", 2);
    assert_string_equal((const char *)receive(worker, CO_RECORD_LOG).body + 1, "taken back");
}

static void wrong_calls_are_refused_with_words(void **state)
{
    static const struct {
        const char *code;
        const char *want;
    } rows[] = {
        {"W\\end(9, 1)", "ticket 9 is not the one"},
        {"W\\begin(0)", "ticket 0 is not the one"},
        {"W\\log('loud', '')", "must be debug, info, warn or error"},
        {"W\\end(9, 1, flags: 2)", "ticket 9 is not the one"},
        {"W\\ready(str_repeat('x', 20000))", "must be at most 16368 bytes"},
    };
    (void)state;
    struct worker *worker = ready_worker();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char code[256];
        snprintf(code, sizeof code,
                 "namespace T; use Cohort\\Worker as W; try { %s; } catch (\\Throwable $e) { "
                 "return $e->getMessage(); }",
                 rows[i].code);
        const char *got = ask(worker, code);
        if (strstr(got, rows[i].want) == NULL) {
            fail_msg("%s: %s", rows[i].code, got);
        }
    }
}

static void exits_are_told_apart(void **state)
{
    static const struct {
        const char *code;
        int want;
        const char *output;
    } rows[] = {
        {"exit(3);", 3, "shut down"},
        {"exit('bye');", 0, "bye"},
        {"ini_set('memory_limit', '32M'); str_repeat('x', 1 << 30);", 255, "Allowed memory size"},
        {"throw new \\\\Error('no way');", 255, "no way"},
        {"register_shutdown_function(function () { exit(9); }); exit(3);", 9, "shut down"},
        {"echo 'hello'; exit(0);", 0, "hello"},
        {"set_time_limit(1); while (true);", 255, "Maximum execution time"},
        {"fwrite(STDERR, 'to stderr'); exit(1);", 1, "to stderr"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char code[512];
        agent.n_workers = 0;
        unlink(in_dir("w0"));
        struct worker *worker = ready_worker();
        snprintf(code, sizeof code,
                 "register_shutdown_function(function () { echo 'shut down '; }); %s",
                 rows[i].code);
        send_code(worker, code);
        int got = exit_code_of(worker);
        const char *output = read_output(worker->output);
        if (got != rows[i].want || strstr(output, rows[i].output) == NULL ||
            strstr(output, "shut down") == NULL) {
            fail_msg("%s: exit %d, output %s", rows[i].code, got, output);
        }
        munmap(worker->wire, sizeof *worker->wire);
        close(worker->pidfd);
        close(worker->output);
    }
    agent.n_workers = 0;
}

static void stop_runs_the_hooks_and_returns_the_code(void **state)
{
    (void)state;
    struct worker *worker = ready_worker();
    ask(worker,
        "register_shutdown_function(function () { echo 'hook '; });"
        "$GLOBALS['d'] = new class { function __destruct() { echo 'destructor'; } };");
    send_stop(worker);
    assert_int_equal(exit_code_of(worker), 7);
    assert_string_equal(read_output(worker->output), "hook destructor");
}

static void a_wire_of_another_kind_is_refused(void **state)
{
    (void)state;
    struct worker *worker;
    /* The bell is where the worker looks first of what we can spoil before the fork. */
    agent.bell->magic = 1;
    worker = fork_worker(CO_KIND_JOB);
    assert_int_equal(exit_code_of(worker), 1);
    assert_non_null(strstr(read_output(worker->output), "bell: malformed message"));
}

static void the_zygote_ends_on_stop_and_on_a_closed_socket(void **state)
{
    (void)state;
    tell(&(struct co_zygote_msg){.type = CO_ZYGOTE_STOP}, -1);
    int status = wait_status(agent.zygote);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    agent.zygote = 0;
    tear_down(state);

    start_zygote(loop_php, "preload");
    expect_boot();
    struct worker *worker = ready_worker();
    shutdown(agent.control, SHUT_RDWR);
    status = wait_status(agent.zygote);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    agent.zygote = 0;
    expect_answer(worker, "return 1;", "1");
}

static void a_boot_that_fails_says_why(void **state)
{
    static const struct {
        const char *preload;
        const char *want;
    } rows[] = {
        {"<?php function f($x) { throw new LogicException('no database', 0, new "
         "RuntimeException('refused')); }\nf(1);",
         "LogicException: no database in "},
        {"<?php throw new LogicException('outer', 0, new RuntimeException('inner'));",
         "caused by RuntimeException: inner in "},
        {"<?php function f() { throw new Exception('x'); }\nf();", "preload.php(2): f()"},
        {"<?php exit(0);", "the application called exit() during boot"},
        {"<?php ini_set('memory_limit', '32M'); $x = str_repeat('x', 1 << 30);",
         "Fatal error: Allowed memory size"},
        {"<?php this is not php", "ParseError: syntax error"},
        {"<?php undefined_function();", "Error: Call to undefined function undefined_function()"},
        {"<?php set_exception_handler(function ($e) { echo 'handled'; }); throw new "
         "Exception('x');",
         "Exception: x in "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        start_zygote(rows[i].preload, "preload");
        assert_int_equal(hear(NULL).type, CO_ZYGOTE_HELLO);
        struct co_zygote_msg msg = hear(NULL);
        assert_int_equal(msg.type, CO_ZYGOTE_BOOT_FAILED);
        if (strstr(msg.text, rows[i].want) == NULL) {
            fail_msg("row %zu: %s", i, msg.text);
        }
        int status = wait_status(agent.zygote);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 1);
        agent.zygote = 0;
        tear_down(state);
    }
}

static void boot_after_fork_boots_in_the_worker(void **state)
{
    char want[32];
    (void)state;
    start_zygote(loop_php, "after_fork");
    expect_boot();
    struct worker *worker = ready_worker();
    snprintf(want, sizeof want, "%d", worker->pid);
    expect_answer(worker, "return $GLOBALS['booted'];", want);
    tear_down(state);
}

/* A process between us and the zygote that we can kill: the agent that dies. */
static void everything_dies_with_the_agent(void **state)
{
    int pids[2];
    int told[2];
    (void)state;
    /* Their exits must not become zombies of somebody who never waits. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    start_zygote("<?php", "preload"); /* For its directory only. */
    tear_down(state);
    pid_t pseudo = fork();
    if (pseudo == 0) {
        start_zygote(loop_php, "preload");
        expect_boot();
        struct worker *worker = ready_worker();
        int mine[2] = {agent.zygote, worker->pid};
        ssize_t put = write(told[1], mine, sizeof mine);
        (void)put;
        put = write(told[1], agent.dir, sizeof agent.dir);
        for (;;) {
            pause();
        }
    }
    assert_true(readable(told[0], DEADLINE_MS));
    assert_int_equal(read(told[0], pids, sizeof pids), sizeof pids);
    assert_int_equal(read(told[0], agent.dir, sizeof agent.dir), sizeof agent.dir);
    int zygote = (int)syscall(SYS_pidfd_open, pids[0], 0);
    int worker = (int)syscall(SYS_pidfd_open, pids[1], 0);
    assert_true(zygote >= 0 && worker >= 0);
    kill(pseudo, SIGKILL);
    assert_true(readable(zygote, DEADLINE_MS));
    assert_true(readable(worker, DEADLINE_MS));
    while (waitpid(-1, NULL, 0) > 0) {
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    close(zygote);
    close(worker);
    close(told[0]);
    close(told[1]);
    assert_int_equal(nftw(agent.dir, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void info_is_json_about_this_php(void **state)
{
    static char text[256 * 1024];
    (void)state;
    FILE *pipe = popen(COHORT_WORKER_BIN " --info", "r");
    assert_non_null(pipe);
    size_t size = fread(text, 1, sizeof text - 1, pipe);
    text[size] = '\0';
    assert_int_equal(pclose(pipe), 0);
    assert_int_equal(text[0], '{');
    assert_non_null(strstr(text, "\"version\": \"8."));
    assert_non_null(strstr(text, "\"opcache\": true"));
    assert_non_null(strstr(text, "\"zts\": false"));
    assert_non_null(strstr(text, "\"extension_dir\": \"/"));
    assert_non_null(strstr(text, "\"memory_limit\": "));
    assert_non_null(strstr(text, "\"sapi\": \"cli\""));
}

static void a_wrong_command_line_is_a_usage_error(void **state)
{
    static const char *const lines[] = {
        "",
        "--nonsense 1",
        "--mode worker --control-fd 3 --wake-fd 4 --php-dir /",
        "--boot spawn",
        "--boot never --control-fd 3 --wake-fd 4 --php-dir /",
        "--spawn --wake-fd 4 --php-dir / --wire /w",
        "--spawn --control-fd 3 --wake-fd 4 --php-dir / --wire /w --bell /b",
        "--spawn --wake-fd 4 --php-dir / --wire /w --bell /b --worker-kind chief",
        "--spawn --wake-fd 4 --php-dir / --wire /w --bell /b --worker -1",
        "--trace",
        "--trace 0",
        "--trace 99999999999",
        "--set novalue",
        "--control-fd 3 --wake-fd 3 --php-dir /",
        "--control-fd x",
        "--control-fd",
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char command[512];
        snprintf(command, sizeof command, "%s %s 2>/dev/null", COHORT_WORKER_BIN, lines[i]);
        int status = system(command);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 2) {
            fail_msg("'%s' ended with %x", lines[i], (unsigned)status);
        }
    }
}

static const char *output_of(const char *command, int *ret_code)
{
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    const char *text = read_output(fileno(pipe));
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    *ret_code = WEXITSTATUS(status);
    return text;
}

static void another_php_is_refused_by_name(void **state)
{
    static const struct {
        const char *library;
        const char *want[3];
    } rows[] = {
        {FAKE_PHP,
         {"libfake_php.so is build \"API20991231,NTS\"", "was built for PHP 8.", "install "}},
        {FAKE_PHP_ZTS, {"libfake_php_zts.so is a thread-safe build (ZTS)", "install", "-cli"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char command[1024];
        int code;
        snprintf(command, sizeof command, "LD_PRELOAD=%s %s --info 2>&1", rows[i].library,
                 COHORT_WORKER_BIN);
        const char *text = output_of(command, &code);
        assert_int_equal(code, 2);
        for (size_t w = 0; w < 3; w++) {
            if (strstr(text, rows[i].want[w]) == NULL) {
                fail_msg("%s lacks '%s'", text, rows[i].want[w]);
            }
        }
    }
}

#define WITH_ZYGOTE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_ZYGOTE(php_is_what_the_command_line_has),
        WITH_ZYGOTE(the_boot_happens_once_in_the_zygote),
        WITH_ZYGOTE(a_worker_is_a_child_of_the_agent),
        WITH_ZYGOTE(workers_draw_different_numbers),
        WITH_ZYGOTE(workers_outlive_their_zygote),
        WITH_ZYGOTE(a_worker_holds_no_socket_and_gives_nothing_on),
        WITH_ZYGOTE(a_job_arrives_with_all_it_has),
        WITH_ZYGOTE(a_bookkeeper_is_told_what_happened),
        WITH_ZYGOTE(an_end_carries_its_flags),
        WITH_ZYGOTE(payloads_of_any_size_arrive_whole),
        WITH_ZYGOTE(a_large_answer_goes_by_overflow),
        WITH_ZYGOTE(nothing_is_lost_when_the_agent_is_slow),
        WITH_ZYGOTE(log_lines_carry_their_level),
        WITH_ZYGOTE(a_ticket_taken_back_does_not_begin),
        WITH_ZYGOTE(an_ending_ticket_does_not_become_idle),
        WITH_ZYGOTE(a_lease_that_is_over_begins_nothing),
        WITH_ZYGOTE(wrong_calls_are_refused_with_words),
        WITH_ZYGOTE(exits_are_told_apart),
        WITH_ZYGOTE(stop_runs_the_hooks_and_returns_the_code),
        WITH_ZYGOTE(a_wire_of_another_kind_is_refused),
        WITH_ZYGOTE(the_zygote_ends_on_stop_and_on_a_closed_socket),
        cmocka_unit_test(a_boot_that_fails_says_why),
        cmocka_unit_test(boot_after_fork_boots_in_the_worker),
        cmocka_unit_test(everything_dies_with_the_agent),
        cmocka_unit_test(info_is_json_about_this_php),
        cmocka_unit_test(another_php_is_refused_by_name),
        cmocka_unit_test(a_wrong_command_line_is_a_usage_error),
    };
    return cmocka_run_group_tests_name("cohort-worker", tests, NULL, NULL);
}
