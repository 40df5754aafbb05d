#include "proto/err.h"

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *co_err_text(int code)
{
    switch (code) {
    case CO_OK:
        return "ok";
#define CO_ERR_CASE(name, value, text) \
    case name:                         \
        return text;
        CO_ERR_MAP(CO_ERR_CASE)
#undef CO_ERR_CASE
    }
    return "unknown error";
}

int co_err_set(struct co_err *err, int code, const char *fmt, ...)
{
    assert(code < 0);
    if (err != NULL) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(err->msg, sizeof err->msg, fmt, args);
        va_end(args);
        err->code = code;
        err->sys = 0;
    }
    return code;
}

int co_err_sys(struct co_err *err, int sys, const char *fmt, ...)
{
    assert(sys > 0);
    if (err != NULL) {
        char what[CO_ERR_MSG_SIZE - 64];
        va_list args;
        va_start(args, fmt);
        vsnprintf(what, sizeof what, fmt, args);
        va_end(args);
        co_err_set(err, CO_EIO, "%s: %s", what, strerror(sys));
        err->sys = sys;
    }
    return CO_EIO;
}

int co_err_wrap(struct co_err *err, const char *context)
{
    char old[CO_ERR_MSG_SIZE];

    assert(err != NULL && err->code < 0);
    memcpy(old, err->msg, sizeof old);
    snprintf(err->msg, sizeof err->msg, "%.120s: %.380s", context, old);
    return err->code;
}
