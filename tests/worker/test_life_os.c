/* A worker's life from outside: its time limits, its ways to boot, its stack. */

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
        "$s = stream_socket_pair(1, 1, 0); $r = [$s[0]]; $w = $e = null;"
        " @stream_select($r, $w, $e, 600);",
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
    };
    return cmocka_run_group_tests_name("a worker's life", tests, NULL, NULL);
}
