#include "worker/php_run.h"

#include <main/php.h> /* First: the other headers of PHP need it. */

#include <Zend/zend_exceptions.h>
#include <Zend/zend_interfaces.h>
#include <Zend/zend_smart_str.h>
#include <main/php_main.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/err.h"
#include "worker/text.h"

#define CAUSES_MAX 4
#define TRACE_LINES_MAX 12
#define CODE_FATAL 255

enum ending {
    ENDED_BY_RETURN,
    ENDED_BY_EXIT,
    ENDED_BY_THROW,
    ENDED_BY_FATAL,
};

static void add_text(struct co_text *text, const char *more)
{
    co_text_add(text, more, strlen(more));
}

static void add_zend(struct co_text *text, const zend_string *string)
{
    co_text_add(text, ZSTR_VAL(string), ZSTR_LEN(string));
}

static void add_property(struct co_text *text, zend_object *object, const char *name)
{
    zval buf;
    zval *value =
        zend_read_property(zend_get_exception_base(object), object, name, strlen(name), true, &buf);
    if (Z_TYPE_P(value) == IS_LONG) {
        co_text_print(text, ":" ZEND_LONG_FMT, Z_LVAL_P(value));
    } else if (Z_TYPE_P(value) == IS_STRING) {
        add_zend(text, Z_STR_P(value));
    }
}

static void add_exception(struct co_text *text, zend_object *object)
{
    add_zend(text, object->ce->name);
    add_text(text, ": ");
    add_property(text, object, "message");
    add_text(text, " in ");
    add_property(text, object, "file");
    add_property(text, object, "line");
}

static void add_trace(struct co_text *text, zend_object *object)
{
    zval trace;
    ZVAL_UNDEF(&trace);
    zend_call_method_with_0_params(object, object->ce, NULL, "gettraceasstring", &trace);
    if (Z_TYPE(trace) == IS_STRING) {
        const char *at = Z_STRVAL(trace);
        for (int i = 0; i < TRACE_LINES_MAX && *at != '\0'; i++) {
            size_t size = strcspn(at, "\n");
            add_text(text, "\n");
            co_text_add(text, at, size);
            at += size + (at[size] == '\n');
        }
    }
    zval_ptr_dtor(&trace);
}

static zend_object *cause_of(zend_object *object)
{
    zval buf;
    zval *previous = zend_read_property(zend_get_exception_base(object), object, "previous",
                                        sizeof "previous" - 1, true, &buf);
    return Z_TYPE_P(previous) == IS_OBJECT ? Z_OBJ_P(previous) : NULL;
}

static void describe_exception(struct co_text *text, zend_object *object)
{
    zend_object *pending = EG(exception);

    EG(exception) = NULL; /* PHP code does not run beside a pending exception. */
    add_exception(text, object);
    zend_object *cause = cause_of(object);
    for (int i = 0; i < CAUSES_MAX && cause != NULL; i++) {
        add_text(text, "\ncaused by ");
        add_exception(text, cause);
        cause = cause_of(cause);
    }
    add_trace(text, object);
    if (EG(exception) != NULL) {
        zend_clear_exception();
    }
    EG(exception) = pending;
}

static void describe_fatal(struct co_text *text)
{
    add_text(text, "Fatal error: ");
    if (PG(last_error_message) == NULL) {
        add_text(text, "PHP gave up without a message");
        return;
    }
    add_zend(text, PG(last_error_message));
    if (PG(last_error_file) != NULL) {
        add_text(text, " in ");
        add_zend(text, PG(last_error_file));
        co_text_print(text, ":%d", PG(last_error_lineno));
    }
}

/* As the command line ends with an uncaught exception: the application's handler first, it writes
 * the application's log. */
static void report_uncaught(void)
{
    if (Z_TYPE(EG(user_exception_handler)) != IS_UNDEF) {
        zend_user_exception_handler();
    }
    if (EG(exception) != NULL) {
        zend_exception_error(EG(exception), E_ERROR);
    }
    EG(exit_status) = CODE_FATAL;
}

/* Some builds unwind from an exhausted memory limit as they do from exit(). */
static bool after_fatal(void)
{
    return PG(last_error_message) != NULL &&
           (PG(last_error_type) & (E_ERROR | E_CORE_ERROR | E_COMPILE_ERROR)) != 0;
}

/* Runs code and says how it ended. A thrown exception stays pending. */
static enum ending eval(const char *code, zval *ret_value)
{
    if (zend_eval_string_ex(code, ret_value, "cohort-worker", false) == FAILURE &&
        EG(exception) == NULL) {
        return ENDED_BY_FATAL;
    }
    if (EG(exception) == NULL) {
        return ENDED_BY_RETURN;
    }
    if (zend_is_unwind_exit(EG(exception))) {
        zend_clear_exception();
        return after_fatal() ? ENDED_BY_FATAL : ENDED_BY_EXIT;
    }
    return ENDED_BY_THROW;
}

static void quote(smart_str *code, const char *path)
{
    smart_str_appendc(code, '\'');
    for (; *path != '\0'; path++) {
        if (*path == '\'' || *path == '\\') {
            smart_str_appendc(code, '\\');
        }
        smart_str_appendc(code, *path);
    }
    smart_str_appendc(code, '\'');
}

int co_php_run_boot(const char *php_dir, char *ret_text, size_t text_size)
{
    struct co_text text;
    smart_str code = {0};
    volatile enum ending ending = ENDED_BY_FATAL;

    co_text_init(&text, ret_text, text_size);
    smart_str_appends(&code, "require ");
    quote(&code, php_dir);
    smart_str_appends(&code, " . '/preload.php';");
    smart_str_0(&code);
    zend_first_try
    {
        ending = eval(ZSTR_VAL(code.s), NULL);
        if (ending == ENDED_BY_THROW) {
            describe_exception(&text, EG(exception));
            report_uncaught();
        }
    }
    zend_end_try();
    smart_str_free(&code);
    switch (ending) {
    case ENDED_BY_RETURN:
        return CO_OK;
    case ENDED_BY_EXIT:
        add_text(&text,
                 "the application called exit() during boot; its output says why, if it "
                 "wrote any");
        break;
    case ENDED_BY_THROW:
        break;
    case ENDED_BY_FATAL:
        describe_fatal(&text);
        break;
    }
    return CO_EAPP;
}

static const char *call_of(enum co_worker_kind kind)
{
    switch (kind) {
    case CO_KIND_JOB:
        return "\\Cohort\\run_worker('job')";
    case CO_KIND_CONTROL:
        return "\\Cohort\\run_worker('control')";
    case CO_KIND_BOOKKEEPER:
        return "\\Cohort\\run_worker('bookkeeper')";
    }
    return "\\Cohort\\run_worker('job')";
}

void co_php_run_end(void)
{
    zend_first_try
    {
        php_request_shutdown(NULL);
    }
    zend_end_try();
    fflush(NULL);
}

int co_php_run_worker(enum co_worker_kind kind)
{
    zval value;

    ZVAL_UNDEF(&value);
    EG(exit_status) = 0;
    zend_first_try
    {
        switch (eval(call_of(kind), &value)) {
        case ENDED_BY_RETURN:
            EG(exit_status) = Z_TYPE(value) == IS_LONG ? (int)(Z_LVAL(value) & 0xff) : 0;
            zval_ptr_dtor(&value);
            break;
        case ENDED_BY_EXIT:
            break; /* exit() has set the status. */
        case ENDED_BY_THROW:
            report_uncaught();
            break;
        case ENDED_BY_FATAL:
            EG(exit_status) = CODE_FATAL;
            break;
        }
    }
    zend_catch
    {
        EG(exit_status) = CODE_FATAL;
    }
    zend_end_try();
    co_php_run_end();
    return EG(exit_status) & 0xff;
}
