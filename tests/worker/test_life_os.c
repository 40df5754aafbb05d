/* A worker's life from outside: its time limits, its stops, its ways to boot, its stack. */

#include "worker/worker_rig.h"

/* ---- time limits ---- */

static const char handler_php[] =
    "\\Cohort\\Worker\\on_timeout(function (int $ticket): void {"
    " \\Cohort\\Worker\\log('warn', \"over $ticket\");"
    " \\Cohort\\Worker\\end($ticket, 3, 7, 'too long', false, \\Cohort\\Worker\\END_TIMEOUT);"
    "});";

static struct worker *limited_worker(const char *handler)
{
    struct worker *worker = ready_worker();
    ask(worker, handler);
    return worker;
}

/* A job that says when it has begun. */
static void begin_job(struct worker *worker, const char *code)
{
    char all[2048];
    snprintf(all, sizeof all, "\\\\Cohort\\\\Worker\\\\log('info', 'on'); %s", code);
    send_code(worker, all);
    assert_string_equal((const char *)receive(worker, CO_RECORD_LOG).body + 1, "on");
}

static void send_timeout(const struct worker *worker)
{
    assert_int_equal(kill(worker->pid, SIGRTMIN + CO_SIGNAL_TIMEOUT), 0);
}

static void end_running(struct worker *worker)
{
    assert_true(co_slot_end(&worker->wire->slot, agent.ticket, 1));
    send_timeout(worker);
}

static void expect_handled(struct worker *worker)
{
    char want[32];
    snprintf(want, sizeof want, "over %" PRIu64, agent.ticket);
    assert_string_equal((const char *)receive(worker, CO_RECORD_LOG).body + 1, want);
    struct co_end_msg end = expect_end(worker, agent.ticket);
    assert_int_equal(end.outcome, CO_OUTCOME_FAILED);
    assert_int_equal(end.flags, CO_END_TIMEOUT);
    assert_int_equal(end.delay_s, 7);
    expect_text(&end, "too long");
}

static void expect_nothing_more(struct worker *worker)
{
    assert_true(co_ring_empty(&worker->wire->to_agent, worker->cursor));
}

static void expect_killed(struct worker *worker)
{
    int status = end_of(worker);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        fail_msg("status %x, output %s", (unsigned)status, read_output(worker->output));
    }
}

/* Forget the workers there were, for the next row. */
static void next_round(void)
{
    for (uint32_t i = 0; i < agent.n_workers; i++) {
        struct worker *worker = &agent.workers[i];
        unlink(worker->path);
        munmap(worker->wire, sizeof *worker->wire);
        close(worker->pidfd);
        close(worker->output);
    }
    agent.n_workers = 0;
}

static void a_time_limit_reaches_a_job_wherever_it_is(void **state)
{
    static const char *const rows[] = {
        "while (true);",
        "while (true) { strlen('x'); }",
        "try { while (true); } catch (\\\\Throwable $e) {} finally { echo 'went on'; }",
        "array_map(function () { while (true); }, [1]);",
        "foreach ((function () { while (true) { yield 1; } })() as $x);",
        "sleep(600);",
        "sleep(600); echo 'went on';",
        "usleep(600000000);",
        "time_nanosleep(600, 0);",
        "$s = stream_socket_pair(1, 1, 0); $r = [$s[0]]; @stream_select($r, $w, $e, 600);",
        "$p = proc_open('exec sleep 600', [1 => ['pipe', 'w']], $pipes); fgets($pipes[1]);",
        "register_shutdown_function(function () { while (true); }); exit(0);",
        "$x = new class { function __destruct() { sleep(600); } }; $x = null;",
        "set_error_handler(function () { while (true); }); trigger_error('x');",
        "ob_start(function ($x) { while (true); }); echo 1; ob_end_flush();",
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct worker *worker = limited_worker(handler_php);
        begin_job(worker, rows[i]);
        end_running(worker);
        expect_handled(worker);
        expect_killed(worker);
        expect_nothing_more(worker);
        const char *output = read_output(worker->output);
        if (strstr(output, "went on") != NULL) {
            fail_msg("%s: %s", rows[i], output);
        }
        next_round();
    }
}

static void the_job_does_not_go_on_whatever_its_handler_does(void **state)
{
    static const struct {
        const char *handler;
        const char *output;
    } rows[] = {
        {"", ""},
        {"throw new \\Exception('handler broke');", "handler broke"},
        {"exit(5);", ""},
        {"ini_set('memory_limit', '32M'); str_repeat('x', 1 << 30);", "Allowed memory size"},
        {"undefined_function();", "undefined_function"},
        {"posix_kill(getmypid(), SIGKILL);", ""},
        {"usleep(100000);", ""},
        {"echo 'said';", "said"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char code[512];
        snprintf(code, sizeof code,
                 "defined('SIGKILL') || define('SIGKILL', 9);"
                 "\\Cohort\\Worker\\on_timeout(function (int $ticket) { %s });",
                 rows[i].handler);
        struct worker *worker = limited_worker(code);
        begin_job(worker,
                  "try { while (true); } catch (\\\\Throwable $e) {} finally { echo 'went on'; }");
        end_running(worker);
        expect_killed(worker);
        expect_nothing_more(worker);
        const char *output = read_output(worker->output);
        if (strstr(output, rows[i].output) == NULL || strstr(output, "went on") != NULL) {
            fail_msg("%s: %s", rows[i].handler, output);
        }
        next_round();
    }
}

static void what_the_job_started_ends_with_it(void **state)
{
    (void)state;
    struct worker *worker = limited_worker(handler_php);
    begin_job(worker, "proc_open('sleep 600; true', [], $pipes); while (true);");
    end_running(worker);
    expect_handled(worker);
    expect_killed(worker);
    /* The shell and its sleep hold the other end: this returns once both are gone. */
    uint64_t begin = now_ms();
    assert_string_equal(read_output(worker->output), "");
    assert_true(now_ms() - begin < DEADLINE_MS);
}

/* The signal alone means nothing: it hits only a running ticket that the agent is ending. */
static void a_signal_for_no_ticket_or_another_is_ignored(void **state)
{
    (void)state;
    struct worker *worker = limited_worker(handler_php);
    send_timeout(worker); /* Idle. */
    expect_answer(worker, "return 1;", "1");
    begin_job(worker, "for ($i = 0; $i < 3; $i++) { usleep(1000); } return 'done';");
    send_timeout(worker); /* Running, and nobody ends it. */
    struct co_end_msg end = expect_end(worker, agent.ticket);
    expect_text(&end, "done");
    expect_answer(worker, "return 2;", "2"); /* The slot follows the END. */
    assert_false(co_slot_end(&worker->wire->slot, agent.ticket + 1, 1)); /* The next, taken back. */
    send_job(worker, "{}", 2);
    send_timeout(worker);
    assert_string_equal((const char *)receive(worker, CO_RECORD_LOG).body + 1, "taken back");
    expect_answer(worker, "return 3;", "3");
    uint64_t ticket = send_job(worker, "{}", 2);
    expect_end(worker, ticket);
}

static void many_signals_call_the_handler_once(void **state)
{
    (void)state;
    struct worker *worker = limited_worker(
        "\\Cohort\\Worker\\on_timeout(function (int $ticket) { static $n = 0;"
        " \\Cohort\\Worker\\log('warn', 'call ' . ++$n);"
        " for ($i = 0; $i < 20; $i++) { usleep(20000); }"
        " \\Cohort\\Worker\\log('warn', 'end'); });");
    begin_job(worker, "while (true);");
    end_running(worker);
    assert_string_equal((const char *)receive(worker, CO_RECORD_LOG).body + 1, "call 1");
    for (int i = 0; i < 20; i++) {
        send_timeout(worker);
    }
    assert_string_equal((const char *)receive(worker, CO_RECORD_LOG).body + 1, "end");
    expect_killed(worker);
    expect_nothing_more(worker);
}

static void a_job_that_ends_by_itself_first_is_not_handled(void **state)
{
    char code[512];
    (void)state;
    struct worker *worker = limited_worker(handler_php);
    assert_int_equal(mkfifo(in_dir("gate"), 0600), 0);
    snprintf(code, sizeof code, "$f = fopen('%s', 'r'); return 'late';", in_dir("gate"));
    begin_job(worker, code);
    assert_true(co_slot_end(&worker->wire->slot, agent.ticket, 1));
    int gate = open(in_dir("gate"), O_WRONLY | O_CLOEXEC);
    struct co_end_msg end = expect_end(worker, agent.ticket);
    expect_text(&end, "late");
    assert_int_equal(end.flags, CO_END_RECORD);
    assert_string_equal((const char *)receive(worker, CO_RECORD_LOG).body + 1, "being ended");
    send_timeout(worker);
    expect_answer(worker, "return 1;", "1");
    expect_nothing_more(worker);
    close(gate);
}

static void without_a_handler_the_agent_has_the_last_word(void **state)
{
    char code[512];
    (void)state;
    struct worker *worker = limited_worker(handler_php);
    ask(worker, "\\Cohort\\Worker\\on_timeout(null);");
    snprintf(code, sizeof code, "while (!file_exists('%s')) { usleep(1000); } return 'done';",
             in_dir("gate"));
    begin_job(worker, code);
    end_running(worker);
    write_file(in_dir("gate"), "", 0);
    struct co_end_msg end = expect_end(worker, agent.ticket);
    expect_text(&end, "done");
}

/* ---- ways to boot ---- */

static void a_spawned_worker_is_one_like_the_others(void **state)
{
    char want[64];
    (void)state;
    start_agent(loop_php);
    struct worker *worker = spawn_worker("job");
    struct co_record ready = receive(worker, CO_RECORD_READY);
    snprintf(want, sizeof want, "{\"kind\":\"job\",\"booted\":%d}", worker->pid);
    assert_string_equal((const char *)ready.body, want);
    snprintf(want, sizeof want, "[%d,%d,%d]", getpid(), worker->pid, worker->pid);
    expect_answer(worker, "return [posix_getppid(), posix_getpid(), posix_getpgrp()];", want);
    expect_answer(worker, "return trim(file_get_contents('/proc/self/comm'));",
                  "\"cohort-worker\"");
    expect_answer(worker, "return \\Cohort\\Worker\\config()['colour'];", "\"a=b\"");
    expect_answer(worker, "return preg_split('/\\s+/', trim(shell_exec('ls /proc/self/fd')));",
                  "[\"0\",\"1\",\"2\",\"3\"]");
    uint64_t ticket = send_job(worker, "{}", 2);
    assert_int_equal(expect_end(worker, ticket).outcome, CO_OUTCOME_FAILED);
    ask(worker, handler_php);
    begin_job(worker, "sleep(600);");
    end_running(worker);
    expect_handled(worker);
    expect_killed(worker);
    worker = spawn_worker("bookkeeper");
    ready = receive(worker, CO_RECORD_READY);
    assert_non_null(strstr((const char *)ready.body, "\"kind\":\"bookkeeper\""));
    send_stop(worker);
    assert_int_equal(exit_code_of(worker), 7);
    tear_down(state);
}

static void a_spawned_worker_dies_with_its_agent(void **state)
{
    int told[2];
    pid_t pid;
    (void)state;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    start_agent(loop_php);
    pid_t pseudo = fork();
    if (pseudo == 0) {
        struct worker *worker = spawn_worker("job");
        receive(worker, CO_RECORD_READY);
        ssize_t put = write(told[1], &worker->pid, sizeof worker->pid);
        (void)put;
        for (;;) {
            pause();
        }
    }
    assert_true(readable(told[0], DEADLINE_MS));
    assert_int_equal(read(told[0], &pid, sizeof pid), sizeof pid);
    int worker = (int)syscall(SYS_pidfd_open, pid, 0);
    assert_true(worker >= 0);
    kill(pseudo, SIGKILL);
    assert_true(readable(worker, DEADLINE_MS));
    while (waitpid(-1, NULL, 0) > 0) {
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    close(worker);
    close(told[0]);
    close(told[1]);
    tear_down(state);
}

static void expect_boot_failure(struct worker *worker)
{
    struct co_record record = receive(worker, CO_RECORD_BOOT_FAILED);
    if (strstr((const char *)record.body, "LogicException: no database in ") == NULL) {
        fail_msg("%s", (const char *)record.body);
    }
    assert_int_equal(exit_code_of(worker), 255);
    const char *output = read_output(worker->output);
    if (strstr(output, "cohort-worker: LogicException: no database") == NULL) {
        fail_msg("%s", output);
    }
}

static void a_worker_that_does_not_boot_says_why(void **state)
{
    static const char broken_php[] = "<?php throw new LogicException('no database');";
    (void)state;
    start_agent(broken_php);
    expect_boot_failure(spawn_worker("job"));
    tear_down(state);
    start_zygote(broken_php, "after_fork");
    expect_boot();
    expect_boot_failure(fork_worker(CO_KIND_JOB));
    expect_boot_failure(fork_worker(CO_KIND_CONTROL)); /* The zygote is still there. */
    tear_down(state);
}

/* Threads that PHP makes through FFI: libc's sleep() is what they run. */
#define THREAD_PHP(seconds)                                                    \
    "<?php $c = FFI::cdef('typedef unsigned long t; unsigned sleep(unsigned);" \
    " int pthread_create(t *, void *, void *, void *);', 'libc.so.6');"        \
    "$t = $c->new('t'); $c->pthread_create(FFI::addr($t), null,"               \
    " FFI::cast('void *', $c->sleep), $c->cast('void *', " seconds "));"

static void threads_and_sockets_that_the_boot_leaves_are_reported(void **state)
{
    (void)state;
    start_zygote("<?php $GLOBALS['s'] = stream_socket_pair(1, 1, 0);", "preload");
    assert_string_equal(expect_booted(), "{\"threads\":[],\"sockets\":2}");
    tear_down(state);
    uint64_t begin = now_ms();
    start_zygote(THREAD_PHP("600"), "preload");
    assert_string_equal(expect_booted(), "{\"threads\":[\"cohort-zygote\"],\"sockets\":0}");
    assert_true(now_ms() - begin >= 5000);
    tear_down(state);
}

static void a_thread_that_ends_in_time_is_no_harm(void **state)
{
    (void)state;
    uint64_t begin = now_ms();
    start_zygote(THREAD_PHP("1"), "preload");
    expect_boot();
    assert_true(now_ms() - begin >= 1000);
    tear_down(state);
}

static void an_idle_worker_stops_at_once(void **state)
{
    uint64_t slowest = 0;
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct worker *worker = ready_worker();
        expect_answer(worker, "return 1;", "1");
        uint64_t begin = now_ms();
        send_stop(worker);
        assert_int_equal(exit_code_of(worker), 7);
        uint64_t took = now_ms() - begin;
        slowest = took > slowest ? took : slowest;
        next_round();
    }
    assert_true(slowest < 900); /* Not at the end of some wait. */
}

/* ---- the stack of a running worker ---- */

static const char *trace(pid_t pid, const char *more, int *ret_code)
{
    char command[512];
    snprintf(command, sizeof command, "%s --trace %d %s 2>&1", COHORT_WORKER_BIN, (int)pid, more);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    const char *text = read_output(fileno(pipe));
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    *ret_code = WEXITSTATUS(status);
    return text;
}

/* Until the worker has come as far as the test wants to see it. */
static void expect_trace(pid_t pid, const char *more, const char *want)
{
    uint64_t deadline = now_ms() + DEADLINE_MS;
    const char *text = "";
    int code = -1;

    while (now_ms() < deadline) {
        text = trace(pid, more, &code);
        if (code == 0 && strstr(text, want) != NULL) {
            return;
        }
    }
    fail_msg("exit %d: %s; want %s", code, text, want);
}

static const char traced_php[] =
    "<?php\n"
    "namespace App;\n"
    "class Report {\n"
    "    public function handle(): void {\n"
    "        array_map(function ($x) {\n"
    "            self::wait($x);\n"
    "        }, [600]);\n"
    "    }\n"
    "    public static function wait(int $x): void {\n"
    "        \\sleep($x);\n"
    "    }\n"
    "    public function turn(): void {\n"
    "        while (true) { $this->step(); }\n"
    "    }\n"
    "    private function step(): int {\n"
    "        return strlen(uniqid());\n"
    "    }\n"
    "}\n";

static void a_stack_is_read_while_the_worker_runs(void **state)
{
    char file[300];
    char code[1024];
    char want[2048];
    (void)state;
    snprintf(file, sizeof file, "%s", in_dir("Report.php"));
    write_file(file, traced_php, sizeof traced_php - 1);
    snprintf(code, sizeof code, "require '%s'; (new \\\\App\\\\Report)->handle();", file);
    struct worker *worker = limited_worker(handler_php);
    expect_trace(worker->pid, "", "#0 Cohort\\Worker\\next() ");
    begin_job(worker, code);
    snprintf(want, sizeof want,
             "#0 sleep() %s:10\n#1 App\\Report::wait() %s:10\n#2 App\\Report::App\\{closure}() "
             "%s:6\n#3 array_map() %s:5\n#4 App\\Report::handle() %s:5\n",
             file, file, file, file, file);
    expect_trace(worker->pid, "", want);
    snprintf(want, sizeof want,
             "{\"pid\":%d,\"frames\":[{\"function\":\"sleep\",\"file\":\"%s\",\"line\":10},"
             "{\"function\":\"App\\\\Report::wait\",\"file\":\"%s\",\"line\":10},",
             (int)worker->pid, file, file);
    expect_trace(worker->pid, "--json", want);
    end_running(worker); /* And sleep() has not noticed a thing. */
    expect_handled(worker);
    expect_killed(worker);
}

static void a_stack_that_moves_shows_what_stands(void **state)
{
    char code[1024];
    (void)state;
    write_file(in_dir("Report.php"), traced_php, sizeof traced_php - 1);
    snprintf(code, sizeof code, "require '%s'; (new \\\\App\\\\Report)->turn();",
             in_dir("Report.php"));
    struct worker *worker = limited_worker(handler_php);
    begin_job(worker, code);
    for (int i = 0; i < 20; i++) {
        expect_trace(worker->pid, "", "App\\Report::turn() ");
    }
    end_running(worker);
    expect_handled(worker);
    expect_killed(worker);
}

static void a_stack_that_cannot_be_read_says_why(void **state)
{
    int code;
    (void)state;
    const char *text = trace(getpid(), "", &code);
    assert_int_equal(code, 1);
    assert_non_null(strstr(text, "it does not run "));
    text = trace(0x3fffffff, "", &code);
    assert_int_equal(code, 1);
    assert_non_null(strstr(text, "there is no such process"));
}

/* ---- a stop while a job runs ---- */

static const char stop_php[] =
    "\\Cohort\\Worker\\on_stop(function (int $ticket): void {"
    " \\Cohort\\Worker\\log('warn', \"stop $ticket\");"
    " $GLOBALS['stopped'] = $ticket;"
    "});";

static void tell_stop(const struct worker *worker)
{
    assert_int_equal(kill(worker->pid, SIGRTMIN + CO_SIGNAL_STOP), 0);
}

static void expect_line(struct worker *worker, const char *want)
{
    assert_string_equal((const char *)receive(worker, CO_RECORD_LOG).body + 1, want);
}

static void expect_told(struct worker *worker)
{
    char want[32];
    snprintf(want, sizeof want, "stop %" PRIu64, agent.ticket);
    expect_line(worker, want);
}

static void expect_said(struct worker *worker, const char *want)
{
    struct co_end_msg end = expect_end(worker, agent.ticket);
    expect_text(&end, want);
}

static void a_running_job_hears_of_a_stop_and_goes_on(void **state)
{
    static const struct {
        const char *code;
        const char *stands; /* Where it is when the signal comes. */
    } rows[] = {
        {"while (!isset($GLOBALS['stopped'])); return 'went on';", "#"},
        {"while (!isset($GLOBALS['stopped'])) { strlen('x'); } return 'went on';", "#"},
        {"foreach ((function () { while (true) { yield 1; } })() as $x) {"
         " if (isset($GLOBALS['stopped'])) { return 'went on'; } }",
         "#"},
        {"$f = new \\\\Fiber(function () { while (!isset($GLOBALS['stopped'])); });"
         " $f->start(); return 'went on';",
         "#"},
        {"sleep(600); return 'went on';", "#0 sleep()"},
        {"time_nanosleep(600, 0); return 'went on';", "#0 time_nanosleep()"},
        {"$s = stream_socket_pair(1, 1, 0); $r = [$s[0]]; @stream_select($r, $w, $e, 600);"
         " return 'went on';",
         "#0 stream_select()"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct worker *worker = limited_worker(stop_php);
        begin_job(worker, rows[i].code);
        expect_trace(worker->pid, "", rows[i].stands);
        send_stop(worker);
        tell_stop(worker);
        expect_told(worker);
        expect_said(worker, "went on");
        assert_int_equal(exit_code_of(worker), 7);
        assert_string_equal(read_output(worker->output), "");
        next_round();
    }
}

/* The job goes on, so what it reads must be whole; it hears when the read is over. */
static void a_read_is_not_cut_by_a_stop(void **state)
{
    char code[512];
    (void)state;
    struct worker *worker = limited_worker(stop_php);
    assert_int_equal(mkfifo(in_dir("gate"), 0600), 0);
    snprintf(code, sizeof code,
             "$f = fopen('%s', 'r'); \\\\Cohort\\\\Worker\\\\log('info', 'open');"
             " return fgets($f) . isset($GLOBALS['stopped']);",
             in_dir("gate"));
    begin_job(worker, code);
    int gate = open(in_dir("gate"), O_WRONLY | O_CLOEXEC);
    assert_true(gate >= 0);
    expect_line(worker, "open");
    for (int i = 0; i < 20; i++) {
        tell_stop(worker);
    }
    assert_int_equal(write(gate, "whole", 5), 5);
    close(gate);
    expect_told(worker);
    expect_said(worker, "whole1");
    expect_answer(worker, "return 1;", "1");
}

static void a_stop_is_told_once_a_job(void **state)
{
    (void)state;
    struct worker *worker = limited_worker(stop_php);
    for (int round = 0; round < 2; round++) {
        ask(worker, "unset($GLOBALS['stopped']);");
        begin_job(worker,
                  "while (!isset($GLOBALS['stopped']));"
                  " \\\\Cohort\\\\Worker\\\\log('info', 'heard');"
                  " usleep(1000); return 'done';");
        tell_stop(worker);
        expect_told(worker);
        expect_line(worker, "heard");
        for (int i = 0; i < 20; i++) {
            tell_stop(worker);
        }
        expect_said(worker, "done");
        expect_answer(worker, "return 1;", "1");
        expect_nothing_more(worker);
    }
}

static void a_stop_of_no_running_job_is_ignored(void **state)
{
    (void)state;
    struct worker *worker = limited_worker(stop_php);
    tell_stop(worker); /* Idle. */
    expect_answer(worker, "return 1;", "1");
    assert_false(co_slot_end(&worker->wire->slot, agent.ticket + 1, 1)); /* The next, taken back. */
    send_job(worker, "{}", 2);
    tell_stop(worker);
    expect_line(worker, "taken back");
    tell_stop(worker);
    uint64_t ticket = send_job(worker, "{}", 2);
    expect_end(worker, ticket);
    tell_stop(worker);
    expect_answer(worker, "return 2;", "2");
    expect_nothing_more(worker);
}

/* Ignored means that not even a sleep() ends. */
static void without_a_handler_a_stop_is_not_noticed(void **state)
{
    (void)state;
    struct worker *worker = ready_worker();
    for (int round = 0; round < 2; round++) {
        begin_job(worker, "return time_nanosleep(0, 300000000) === true ? 'slept' : 'woken';");
        for (int i = 0; i < 20; i++) {
            tell_stop(worker);
        }
        expect_said(worker, "slept");
        ask(worker, stop_php);
        ask(worker, "\\Cohort\\Worker\\on_stop(null);");
    }
    expect_nothing_more(worker);
}

/* What the handler throws goes into the job, exit() ends it, and the handler may change its mind.
 */
static void what_a_stop_handler_does_is_done_in_the_job(void **state)
{
    static const struct {
        const char *handler;
        const char *said;
    } rows[] = {
        {"throw new \\LogicException('enough');", "caught enough"},
        {"\\Cohort\\Worker\\on_stop(null); gc_collect_cycles(); $GLOBALS['stopped'] = 1;", "done"},
        {"try { \\Fiber::suspend(); } catch (\\FiberError $e) { throw new \\LogicException('no'); "
         "}",
         "caught no"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char code[512];
        snprintf(code, sizeof code, "\\Cohort\\Worker\\on_stop(function (int $ticket) { %s });",
                 rows[i].handler);
        struct worker *worker = limited_worker(code);
        begin_job(worker,
                  "try { while (!isset($GLOBALS['stopped'])); return 'done'; }"
                  " catch (\\\\LogicException $e) { return 'caught ' . $e->getMessage(); }");
        tell_stop(worker);
        expect_said(worker, rows[i].said);
        send_stop(worker);
        assert_int_equal(exit_code_of(worker), 7);
        next_round();
    }
    struct worker *worker = limited_worker("\\Cohort\\Worker\\on_stop(function () { exit(5); });");
    begin_job(worker, "try { while (true); } finally { echo 'not so'; }");
    tell_stop(worker);
    assert_int_equal(exit_code_of(worker), 5);
    assert_string_equal(read_output(worker->output), "");
}

/* A time limit has the last word, even over the handler of a stop. */
static void a_stop_handler_has_no_more_time_than_its_job(void **state)
{
    (void)state;
    struct worker *worker = limited_worker(handler_php);
    ask(worker,
        "\\Cohort\\Worker\\on_stop(function () {"
        " \\Cohort\\Worker\\log('info', 'stopping'); while (true); });");
    begin_job(worker, "while (true);");
    tell_stop(worker);
    expect_line(worker, "stopping");
    end_running(worker);
    tell_stop(worker); /* Of a job that is being ended. */
    expect_handled(worker);
    expect_killed(worker);
    expect_nothing_more(worker);
}

#define WITH_ZYGOTE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_ZYGOTE(a_time_limit_reaches_a_job_wherever_it_is),
        WITH_ZYGOTE(the_job_does_not_go_on_whatever_its_handler_does),
        WITH_ZYGOTE(what_the_job_started_ends_with_it),
        WITH_ZYGOTE(a_signal_for_no_ticket_or_another_is_ignored),
        WITH_ZYGOTE(many_signals_call_the_handler_once),
        WITH_ZYGOTE(a_job_that_ends_by_itself_first_is_not_handled),
        WITH_ZYGOTE(without_a_handler_the_agent_has_the_last_word),
        WITH_ZYGOTE(a_running_job_hears_of_a_stop_and_goes_on),
        WITH_ZYGOTE(a_read_is_not_cut_by_a_stop),
        WITH_ZYGOTE(a_stop_is_told_once_a_job),
        WITH_ZYGOTE(a_stop_of_no_running_job_is_ignored),
        WITH_ZYGOTE(without_a_handler_a_stop_is_not_noticed),
        WITH_ZYGOTE(what_a_stop_handler_does_is_done_in_the_job),
        WITH_ZYGOTE(a_stop_handler_has_no_more_time_than_its_job),
        cmocka_unit_test(a_spawned_worker_is_one_like_the_others),
        cmocka_unit_test(a_spawned_worker_dies_with_its_agent),
        cmocka_unit_test(a_worker_that_does_not_boot_says_why),
        cmocka_unit_test(threads_and_sockets_that_the_boot_leaves_are_reported),
        cmocka_unit_test(a_thread_that_ends_in_time_is_no_harm),
        WITH_ZYGOTE(an_idle_worker_stops_at_once),
        WITH_ZYGOTE(a_stack_is_read_while_the_worker_runs),
        WITH_ZYGOTE(a_stack_that_moves_shows_what_stands),
        cmocka_unit_test(a_stack_that_cannot_be_read_says_why),
    };
    return cmocka_run_group_tests_name("a worker's life", tests, NULL, NULL);
}
