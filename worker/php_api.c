#include "worker/php_api.h"

#include <main/php.h> /* First: the other headers of PHP need it. */

#include <Zend/zend_exceptions.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "proto/err.h"
#include "worker/dispatch.h"
#include "worker/php_notice.h"
#include "worker/process_os.h"

#define NS "Cohort\\Worker"
#define LOG_TEXT_MAX 4096u
#define END_FLAGS (CO_END_MEMORY | CO_END_TIMEOUT)
#define TEXT_BODY_MAX (CO_RECORD_MAX - CO_RECORD_HEADER)

/* A signal that comes between the look at vm_interrupt and the sleep is answered this late. */
#define SIGNAL_LATE_MS 1000u

/* Keys of the arrays that next() returns. */
#define KEYS(X)     \
    X(type)         \
    X(ticket)       \
    X(id)           \
    X(connection)   \
    X(queue)        \
    X(payload)      \
    X(attempts)     \
    X(reserved_at)  \
    X(available_at) \
    X(created_at)   \
    X(timeout)      \
    X(tries)        \
    X(backoff)      \
    X(memory)       \
    X(cause)        \
    X(final)        \
    X(failed)       \
    X(text)         \
    X(name)         \
    X(body)

enum key {
#define KEY_ENUM(name) KEY_##name,
    KEYS(KEY_ENUM)
#undef KEY_ENUM
        KEY_COUNT
};

/* One worker is one process, and PHP calls us without a context of ours. */
static struct {
    const struct co_options *options;
    struct co_seat *seat;
    unsigned wait_ms;
    bool stopped; /* STOP came: next() says null from now on. */
    struct {
        uint64_t ticket; /* The last one that next() gave out; 0 = none. */
        struct co_job_ref ref;
        uint64_t begun_us;
    } job;
    zend_string *keys[KEY_COUNT];
    zend_string *word_job;
    zend_string *word_control;
    zend_string *word_bookkeep;
    zend_string *connection; /* Those of the last job: the next one's are mostly the same. */
    zend_string *queue;
    zend_string *backoff;
} api;

/* ---- strings ---- */

/* Known for the whole life of the process, in no table, hashed once. */
static zend_string *permanent(const char *text)
{
    zend_string *string = zend_string_init(text, strlen(text), 1);
    zend_string_hash_val(string);
    GC_ADD_FLAGS(string, IS_STR_INTERNED | IS_STR_PERMANENT);
    return string;
}

static zend_string *reuse(zend_string **last, const char *bytes, size_t size)
{
    if (*last == NULL || ZSTR_LEN(*last) != size || memcmp(ZSTR_VAL(*last), bytes, size) != 0) {
        if (*last != NULL) {
            zend_string_release(*last);
        }
        *last = zend_string_init(bytes, size, 0);
    }
    return zend_string_copy(*last);
}

static void put_string(zend_array *array, enum key key, zend_string *string)
{
    zval value;
    ZVAL_STR(&value, string);
    zend_hash_add_new(array, api.keys[key], &value);
}

static void put_long(zend_array *array, enum key key, int64_t number)
{
    zval value;
    ZVAL_LONG(&value, (zend_long)number);
    zend_hash_add_new(array, api.keys[key], &value);
}

/* ---- errors ---- */

static bool seated(void)
{
    if (api.seat == NULL) {
        zend_throw_error(NULL,
                         "Cohort\\Worker: this is the zygote; only a worker has messages. "
                         "Move the call into Cohort\\run_worker()");
        return false;
    }
    return true;
}

static bool is_current(zend_long ticket)
{
    if (!seated()) {
        return false;
    }
    if (ticket <= 0 || (uint64_t)ticket != api.job.ticket) {
        zend_throw_error(NULL,
                         "Cohort\\Worker: ticket " ZEND_LONG_FMT
                         " is not the one that "
                         "next() gave out last",
                         ticket);
        return false;
    }
    return true;
}

static void throw_err(const struct co_err *err)
{
    zend_throw_error(NULL, "Cohort\\Worker: %s", err->msg);
}

/* ---- next ---- */

static zend_string *read_overflow(uint64_t ticket, uint64_t size)
{
    struct co_err err;
    zend_string *string = zend_string_alloc((size_t)size, 0);

    if (co_seat_overflow_read(api.seat, ticket, ZSTR_VAL(string), size, &err) < 0) {
        zend_string_efree(string);
        throw_err(&err);
        return NULL;
    }
    ZSTR_VAL(string)[size] = '\0';
    return string;
}

static zend_string *payload_of(const struct co_record *record, const struct co_job_msg *msg)
{
    if (msg->payload != NULL) {
        return zend_string_init((const char *)msg->payload, (size_t)msg->payload_size, 0);
    }
    return read_overflow(record->ticket, msg->payload_size);
}

static const char *cause_name(uint32_t cause)
{
    switch ((enum co_cause)cause) {
    case CO_CAUSE_TIMEOUT:
        return "timeout";
    case CO_CAUSE_CRASH:
        return "crash";
    case CO_CAUSE_OOM:
        return "oom";
    }
    return "crash"; /* A record without a cause is an agent's mistake, but the job did not end. */
}

static void put_cause(zend_array *array, const struct co_job_msg *msg)
{
    const char *name = cause_name(msg->cause);
    zval final;
    zval failed;

    ZVAL_BOOL(&final, (msg->final & CO_FINAL_FAIL) != 0);
    ZVAL_BOOL(&failed, (msg->final & CO_FINAL_FAILED) != 0);
    put_string(array, KEY_cause, zend_string_init(name, strlen(name), 0));
    zend_hash_add_new(array, api.keys[KEY_final], &final);
    zend_hash_add_new(array, api.keys[KEY_failed], &failed);
    put_string(array, KEY_text, zend_string_init(msg->cause_text, msg->cause_size, 0));
}

static zend_array *job_array(const struct co_record *record, const struct co_job_msg *msg,
                             zend_string *payload)
{
    bool bookkeep = record->type == CO_RECORD_BOOKKEEP;
    zend_array *array = zend_new_array(bookkeep ? 32 : 16);

    put_string(array, KEY_type, bookkeep ? api.word_bookkeep : api.word_job);
    put_long(array, KEY_ticket, (int64_t)record->ticket);
    put_long(array, KEY_id, msg->ref.job_id);
    put_string(array, KEY_connection,
               reuse(&api.connection, msg->connection, msg->connection_size));
    put_string(array, KEY_queue, reuse(&api.queue, msg->queue, msg->queue_size));
    put_string(array, KEY_payload, payload);
    put_long(array, KEY_attempts, msg->ref.attempts);
    put_long(array, KEY_reserved_at, msg->ref.reserved_at);
    put_long(array, KEY_available_at, msg->available_at);
    put_long(array, KEY_created_at, msg->created_at);
    put_long(array, KEY_timeout, ((int64_t)msg->timeout_ms + 999) / 1000);
    put_long(array, KEY_tries, msg->tries);
    put_string(array, KEY_backoff, reuse(&api.backoff, msg->backoff, msg->backoff_size));
    put_long(array, KEY_memory, (int64_t)msg->memory_bytes);
    if (bookkeep) {
        put_cause(array, msg);
    }
    return array;
}

/* Returns NULL with an exception pending when the record is unusable. */
static zend_array *read_job(const struct co_record *record)
{
    struct co_job_msg msg;

    if (co_job_decode(record->body, record->size, &msg) < 0) {
        zend_throw_error(NULL,
                         "Cohort\\Worker: a malformed job came from the agent; cohortd and "
                         "cohort-worker must be of one release");
        return NULL;
    }
    zend_string *payload = payload_of(record, &msg);
    if (payload == NULL) {
        return NULL;
    }
    api.job.ticket = record->ticket;
    api.job.ref = msg.ref;
    api.job.begun_us = 0;
    return job_array(record, &msg, payload);
}

static zend_string *read_control_body(const struct co_record *record, size_t name_size)
{
    if ((record->flags & CO_FLAG_OVERFLOW) != 0) {
        struct co_err err;
        uint64_t size;
        if (co_seat_overflow_size(api.seat, record->ticket, &size, &err) < 0) {
            throw_err(&err);
            return NULL;
        }
        return read_overflow(record->ticket, size);
    }
    size_t at = name_size < record->size ? name_size + 1 : record->size;
    return zend_string_init((const char *)record->body + at, record->size - at, 0);
}

static zend_array *read_control(const struct co_record *record)
{
    size_t name_size = strnlen((const char *)record->body, record->size);
    zend_string *body = read_control_body(record, name_size);
    if (body == NULL) {
        return NULL;
    }
    zend_array *array = zend_new_array(4);
    put_string(array, KEY_type, api.word_control);
    put_long(array, KEY_ticket, (int64_t)record->ticket);
    put_string(array, KEY_name, zend_string_init((const char *)record->body, name_size, 0));
    put_string(array, KEY_body, body);
    return array;
}

/* The flags are plain bools in 8.1 and atomic since. */
static bool take_interrupt(void)
{
#if PHP_VERSION_ID >= 80200
    return zend_atomic_bool_exchange_ex(&EG(vm_interrupt), false);
#else
    bool was = EG(vm_interrupt);
    EG(vm_interrupt) = 0;
    return was;
#endif
}

static bool timed_out(void)
{
#if PHP_VERSION_ID >= 80200
    return zend_atomic_bool_load_ex(&EG(timed_out));
#else
    return EG(timed_out);
#endif
}

/* While next() waits no PHP code runs that would notice a signal, so this is the virtual
 * machine's part: a time limit that a job left behind ends the worker, pcntl's asynchronous
 * handlers run. */
static void serve_signals(void)
{
    if (!take_interrupt()) {
        return;
    }
    if (timed_out()) {
        zend_timeout();
    } else if (zend_interrupt_function != NULL) {
        zend_interrupt_function(EG(current_execute_data));
    }
}

/* Returns 1 with a record, 0 when an exception is pending. */
static int wait_record(struct co_record *ret_record)
{
    for (;;) {
        int rc = co_seat_take(api.seat, ret_record);
        if (rc == 1) {
            return 1;
        }
        if (rc < 0) {
            zend_throw_error(NULL, "Cohort\\Worker: the ring from the agent is damaged");
            return 0;
        }
        serve_signals();
        if (EG(exception) != NULL) {
            return 0;
        }
        co_seat_wait(api.seat, api.wait_ms);
    }
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_next, 0, 0, IS_ARRAY, 1)
ZEND_END_ARG_INFO()

static PHP_FUNCTION(co_php_api_next)
{
    struct co_record record;
    zend_array *array = NULL;

    ZEND_PARSE_PARAMETERS_NONE();
    if (!seated()) {
        RETURN_THROWS();
    }
    while (!api.stopped && array == NULL) {
        if (wait_record(&record) == 0) {
            RETURN_THROWS();
        }
        if (record.type == CO_RECORD_JOB || record.type == CO_RECORD_BOOKKEEP) {
            array = read_job(&record);
        } else if (record.type == CO_RECORD_CONTROL) {
            array = read_control(&record);
        } else {
            api.stopped = record.type == CO_RECORD_STOP; /* All others: a newer agent's. */
        }
        co_seat_release(api.seat);
        if (EG(exception) != NULL) {
            RETURN_THROWS();
        }
    }
    if (array != NULL) {
        RETURN_ARR(array);
    }
}

/* ---- begin, end ---- */

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_begin, 0, 1, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, ticket, IS_LONG, 0)
ZEND_END_ARG_INFO()

static PHP_FUNCTION(co_php_api_begin)
{
    zend_long ticket;

    ZEND_PARSE_PARAMETERS_START(1, 1)
    Z_PARAM_LONG(ticket)
    ZEND_PARSE_PARAMETERS_END();
    if (!is_current(ticket)) {
        RETURN_THROWS();
    }
    uint64_t now_us = co_process_now_us();
    api.job.begun_us = now_us;
    co_php_notice_run((uint64_t)ticket); /* First: its end may come with its beginning. */
    if (!co_slot_begin(&api.seat->wire->slot, (uint64_t)ticket, &api.job.ref, now_us / 1000)) {
        co_php_notice_run(0);
        RETURN_FALSE;
    }
    RETURN_TRUE;
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_failing, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, ticket, IS_LONG, 0)
ZEND_END_ARG_INFO()

/* In the slot before failed() runs: should the process die in it, nobody calls it again. */
static PHP_FUNCTION(co_php_api_failing)
{
    zend_long ticket;

    ZEND_PARSE_PARAMETERS_START(1, 1)
    Z_PARAM_LONG(ticket)
    ZEND_PARSE_PARAMETERS_END();
    if (!is_current(ticket)) {
        RETURN_THROWS();
    }
    atomic_store_explicit(&api.seat->wire->slot.failed, (uint64_t)ticket, memory_order_release);
}

static uint32_t clamp(zend_long number)
{
    if (number < 0) {
        return 0;
    }
    return number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
}

static uint32_t run_us(uint64_t now_us)
{
    return api.job.begun_us == 0 ? 0 : clamp((zend_long)(now_us - api.job.begun_us));
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_end, 0, 2, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, ticket, IS_LONG, 0)
ZEND_ARG_TYPE_INFO(0, outcome, IS_LONG, 0)
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, delay, IS_LONG, 0, "0")
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, error, IS_STRING, 0, "\'\'")
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, record, _IS_BOOL, 0, "false")
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, flags, IS_LONG, 0, "0")
ZEND_END_ARG_INFO()

static PHP_FUNCTION(co_php_api_end)
{
    zend_long ticket;
    zend_long outcome;
    zend_long delay = 0;
    zend_string *error = NULL;
    bool record_row = false;
    zend_long flags = 0;

    ZEND_PARSE_PARAMETERS_START(2, 6)
    Z_PARAM_LONG(ticket)
    Z_PARAM_LONG(outcome)
    Z_PARAM_OPTIONAL
    Z_PARAM_LONG(delay)
    Z_PARAM_STR(error)
    Z_PARAM_BOOL(record_row)
    Z_PARAM_LONG(flags)
    ZEND_PARSE_PARAMETERS_END();
    if (!is_current(ticket)) {
        RETURN_THROWS();
    }
    if (outcome < CO_OUTCOME_DONE || outcome > CO_OUTCOME_LEFT) {
        zend_argument_value_error(2, "must be one of the Cohort\\Worker\\OUTCOME_ constants");
        RETURN_THROWS();
    }
    if ((flags & ~(zend_long)END_FLAGS) != 0) {
        zend_argument_value_error(6, "must be made of the Cohort\\Worker\\END_ constants");
        RETURN_THROWS();
    }
    uint64_t now_us = co_process_now_us();
    struct co_end_msg msg = {
        .ref = api.job.ref,
        .outcome = (uint32_t)outcome,
        .flags = (record_row ? CO_END_RECORD : 0) | (uint32_t)flags,
        .delay_s = clamp(delay),
        .run_us = run_us(now_us),
        .text = error != NULL ? ZSTR_VAL(error) : "",
        .text_size = error != NULL ? clamp((zend_long)ZSTR_LEN(error)) : 0,
    };
    int size = co_end_encode(&msg, api.seat->scratch, sizeof api.seat->scratch);
    ZEND_ASSERT(size > 0);
    co_seat_send(api.seat, &(struct co_record){.type = CO_RECORD_END,
                                               .ticket = (uint64_t)ticket,
                                               .body = api.seat->scratch,
                                               .size = (uint32_t)size});
    api.job.ticket = 0; /* A second outcome of the same ticket is refused. */
    co_php_notice_run(0);
    RETURN_BOOL(co_slot_finish(&api.seat->wire->slot, (uint64_t)ticket, now_us / 1000));
}

/* ---- on_timeout, on_stop ---- */

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_on_timeout, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, handler, IS_CALLABLE, 1)
ZEND_END_ARG_INFO()

#define arginfo_on_stop arginfo_on_timeout

static void set_handler(INTERNAL_FUNCTION_PARAMETERS, enum co_notice which)
{
    zend_fcall_info info;
    zend_fcall_info_cache cache;

    ZEND_PARSE_PARAMETERS_START(1, 1)
    Z_PARAM_FUNC_OR_NULL(info, cache)
    ZEND_PARSE_PARAMETERS_END();
    (void)cache;
    if (!seated()) {
        RETURN_THROWS();
    }
    co_php_notice_set(which, info.size != 0 ? &info.function_name : NULL);
}

static PHP_FUNCTION(co_php_api_on_timeout)
{
    set_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU, CO_NOTICE_TIMEOUT);
}

static PHP_FUNCTION(co_php_api_on_stop)
{
    set_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU, CO_NOTICE_STOP);
}

/* ---- reply, ready, log ---- */

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_reply, 0, 3, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, ticket, IS_LONG, 0)
ZEND_ARG_TYPE_INFO(0, ok, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, json, IS_STRING, 0)
ZEND_END_ARG_INFO()

static PHP_FUNCTION(co_php_api_reply)
{
    zend_long ticket;
    bool good;
    zend_string *json;
    struct co_err err;

    ZEND_PARSE_PARAMETERS_START(3, 3)
    Z_PARAM_LONG(ticket)
    Z_PARAM_BOOL(good)
    Z_PARAM_STR(json)
    ZEND_PARSE_PARAMETERS_END();
    if (!seated()) {
        RETURN_THROWS();
    }
    struct co_record record = {
        .type = CO_RECORD_REPLY,
        .flags = good ? CO_FLAG_OK : 0,
        .ticket = (uint64_t)ticket,
        .body = (const uint8_t *)ZSTR_VAL(json),
        .size = clamp((zend_long)ZSTR_LEN(json)),
    };
    if (ZSTR_LEN(json) > TEXT_BODY_MAX) {
        if (co_seat_overflow_write(api.seat, record.ticket, ZSTR_VAL(json), ZSTR_LEN(json), &err) <
            0) {
            throw_err(&err);
            RETURN_THROWS();
        }
        record.flags |= CO_FLAG_OVERFLOW;
        record.size = 0;
    }
    co_seat_send(api.seat, &record);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_ready, 0, 0, IS_VOID, 0)
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, json, IS_STRING, 0, "\'\'")
ZEND_END_ARG_INFO()

static PHP_FUNCTION(co_php_api_ready)
{
    zend_string *json = NULL;

    ZEND_PARSE_PARAMETERS_START(0, 1)
    Z_PARAM_OPTIONAL
    Z_PARAM_STR(json)
    ZEND_PARSE_PARAMETERS_END();
    if (!seated()) {
        RETURN_THROWS();
    }
    if (json != NULL && ZSTR_LEN(json) > TEXT_BODY_MAX) {
        zend_argument_value_error(1, "must be at most %u bytes", TEXT_BODY_MAX);
        RETURN_THROWS();
    }
    co_seat_send(api.seat, &(struct co_record){
                               .type = CO_RECORD_READY,
                               .body = json != NULL ? (const uint8_t *)ZSTR_VAL(json) : NULL,
                               .size = json != NULL ? (uint32_t)ZSTR_LEN(json) : 0,
                           });
}

static int read_level(const zend_string *level)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"}; /* enum co_log_level */
    for (int i = 0; i < (int)(sizeof levels / sizeof levels[0]); i++) {
        if (strcmp(ZSTR_VAL(level), levels[i]) == 0) {
            return i;
        }
    }
    return -1;
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_log, 0, 2, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, level, IS_STRING, 0)
ZEND_ARG_TYPE_INFO(0, message, IS_STRING, 0)
ZEND_END_ARG_INFO()

static PHP_FUNCTION(co_php_api_log)
{
    zend_string *level;
    zend_string *message;
    uint8_t body[1 + LOG_TEXT_MAX];

    ZEND_PARSE_PARAMETERS_START(2, 2)
    Z_PARAM_STR(level)
    Z_PARAM_STR(message)
    ZEND_PARSE_PARAMETERS_END();
    if (!seated()) {
        RETURN_THROWS();
    }
    int number = read_level(level);
    if (number < 0) {
        zend_argument_value_error(1, "must be debug, info, warn or error");
        RETURN_THROWS();
    }
    size_t size = ZSTR_LEN(message) < LOG_TEXT_MAX ? ZSTR_LEN(message) : LOG_TEXT_MAX;
    body[0] = (uint8_t)number;
    memcpy(body + 1, ZSTR_VAL(message), size);
    /* A line may be lost when the agent cannot keep up; a job must not wait for its log. */
    (void)co_seat_offer(api.seat, &(struct co_record){.type = CO_RECORD_LOG,
                                                      .ticket = api.job.ticket,
                                                      .body = body,
                                                      .size = (uint32_t)(1 + size)});
}

/* ---- config, rss ---- */

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_config, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

static PHP_FUNCTION(co_php_api_config)
{
    ZEND_PARSE_PARAMETERS_NONE();
    array_init(return_value);
    for (size_t i = 0; i < api.options->n_sets; i++) {
        const struct co_options_set *set = &api.options->sets[i];
        zval value;
        ZVAL_STRING(&value, set->value);
        zend_symtable_str_update(Z_ARRVAL_P(return_value), set->key, set->key_size, &value);
    }
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_rss, 0, 0, IS_LONG, 0)
ZEND_END_ARG_INFO()

static PHP_FUNCTION(co_php_api_rss)
{
    ZEND_PARSE_PARAMETERS_NONE();
    RETURN_LONG((zend_long)co_process_rss());
}

/* ---- module ---- */

#define FUNCTION(name) ZEND_NS_NAMED_FE(NS, name, zif_co_php_api_##name, arginfo_##name)
/* clang-format off */
static const zend_function_entry functions[] = {
    FUNCTION(config)
    FUNCTION(next)
    FUNCTION(begin)
    FUNCTION(failing)
    FUNCTION(end)
    FUNCTION(on_timeout)
    FUNCTION(on_stop)
    FUNCTION(reply)
    FUNCTION(ready)
    FUNCTION(log)
    FUNCTION(rss)
    PHP_FE_END
};
/* clang-format on */

static void define_constants(int module_number)
{
    static const struct {
        const char *name;
        zend_long value;
    } constants[] = {
        {NS "\\OUTCOME_DONE", CO_OUTCOME_DONE},
        {NS "\\OUTCOME_RELEASED", CO_OUTCOME_RELEASED},
        {NS "\\OUTCOME_FAILED", CO_OUTCOME_FAILED},
        {NS "\\OUTCOME_DECLINED", CO_OUTCOME_DECLINED},
        {NS "\\OUTCOME_RETURNED", CO_OUTCOME_RETURNED},
        {NS "\\OUTCOME_LEFT", CO_OUTCOME_LEFT},
        {NS "\\END_MEMORY", CO_END_MEMORY},
        {NS "\\END_TIMEOUT", CO_END_TIMEOUT},
    };
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        zend_register_long_constant(constants[i].name, strlen(constants[i].name),
                                    constants[i].value, CONST_PERSISTENT, module_number);
    }
}

static PHP_MINIT_FUNCTION(cohort_worker)
{
    (void)type;
    define_constants(module_number);
    return SUCCESS;
}

/* A module and not bare functions: OPcache's optimiser follows a function's module pointer. */
static zend_module_entry module = {
    STANDARD_MODULE_HEADER,
    "cohort_worker",
    functions,
    PHP_MINIT(cohort_worker),
    NULL,
    NULL,
    NULL,
    NULL,
    "1",
    STANDARD_MODULE_PROPERTIES,
};

int co_php_api_register(const struct co_options *options)
{
    static const char *const names[] = {
#define KEY_NAME(name) #name,
        KEYS(KEY_NAME)
#undef KEY_NAME
    };

    api.options = options;
    for (size_t i = 0; i < KEY_COUNT; i++) {
        api.keys[i] = permanent(names[i]);
    }
    api.word_job = permanent("job");
    api.word_control = permanent("control");
    api.word_bookkeep = permanent("bookkeep");
    if (zend_startup_module(&module) != SUCCESS) {
        return CO_EAPP;
    }
    co_php_notice_hook();
    return CO_OK;
}

void co_php_api_seat(struct co_seat *seat)
{
    api.seat = seat;
    co_php_notice_listen(&seat->wire->slot);
    /* Without pcntl no signal has a handler in PHP, and the sleep need not end by itself. */
    api.wait_ms = zend_hash_str_exists(&module_registry, "pcntl", 5) ? SIGNAL_LATE_MS : 0;
}
