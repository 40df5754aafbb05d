/* Error codes and error details, shared by every layer. */

#ifndef CO_PROTO_ERR_H
#define CO_PROTO_ERR_H

/* The one list of codes: adding a line here is all a new code needs. */
#define CO_ERR_MAP(X)                                        \
    X(CO_ENOMEM, -1, "out of memory")                        \
    X(CO_EMALFORMED, -2, "malformed message")                \
    X(CO_EVERSION, -3, "unsupported version")                \
    X(CO_EFULL, -4, "table is full")                         \
    X(CO_EIO, -5, "system call failed")                      \
    X(CO_ECONFIG, -6, "invalid configuration")               \
    X(CO_ENOTFOUND, -7, "not found")                         \
    X(CO_EBUSY, -8, "in use by another process")             \
    X(CO_ETIMEDOUT, -9, "timed out")                         \
    X(CO_ESOURCE, -10, "the source of jobs refused")         \
    X(CO_EAPP, -11, "the application failed")                \
    X(CO_EUSAGE, -12, "usage")                               \
    X(CO_EUNREACHABLE, -13, "agent unreachable")             \
    X(CO_EUNSUPPORTED, -14, "not supported by this version") \
    X(CO_EAGAIN, -15, "not now")                             \
    X(CO_ETOOBIG, -16, "too big")

enum co_code {
    CO_OK = 0,
#define CO_ERR_ENUM(name, value, text) name = value,
    CO_ERR_MAP(CO_ERR_ENUM)
#undef CO_ERR_ENUM
};

#define CO_ERR_MSG_SIZE 512

/* What went wrong, for the one place that logs it. Filled by the failing function, read only
 * after a negative return. Messages say what, where, why and what to do. */
struct co_err {
    int code;                  /* One of enum co_code. */
    int sys;                   /* errno when code is CO_EIO, else 0. */
    char msg[CO_ERR_MSG_SIZE]; /* "open slot file /run/cohort/jobs/w0: Permission denied" */
};

/* Return the text of a code; never NULL. */
const char *co_err_text(int code);

/* Fill err and return code, so that a failure is one line: return co_err_set(err, CO_EFULL, ...).
 * err may be NULL when the caller wants the code alone. */
int co_err_set(struct co_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As co_err_set() for a failed system call: code CO_EIO, and errno's text appended. */
int co_err_sys(struct co_err *err, int sys, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "context: " before the message on its way up, and return err->code. */
int co_err_wrap(struct co_err *err, const char *context);

#endif /* CO_PROTO_ERR_H */
