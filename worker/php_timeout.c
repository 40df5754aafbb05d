#include "worker/php_timeout.h"

#include <Zend/zend_exceptions.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AGAIN_MS 50

/* Shared by the signal handler and the code it interrupts, all in one thread. */
static struct {
    const struct co_slot *slot;
    pid_t pid; /* Of the worker: a child it forks has this handler, too. */
    timer_t again;
    bool has_again;
    _Atomic uint64_t running;
    _Atomic uint64_t due;         /* The handler is to be called for this ticket; 0 = none. */
    volatile sig_atomic_t ending; /* It is being called. */
    zval handler;
    void (*chained)(zend_execute_data *execute_data);
} limit;

static void repeat(bool on)
{
    long ns = on ? AGAIN_MS * 1000000L : 0;
    struct itimerspec every = {.it_interval.tv_nsec = ns, .it_value.tv_nsec = ns};

    if (limit.has_again) {
        timer_settime(limit.again, 0, &every, NULL);
    }
}

static void raise_interrupt(void)
{
#if PHP_VERSION_ID >= 80200
    zend_atomic_bool_store_ex(&EG(vm_interrupt), true);
#else
    EG(vm_interrupt) = 1;
#endif
}

static bool is_ending(uint64_t ticket)
{
    uint64_t there;
    return ticket != 0 && co_slot_phase(limit.slot, &there) == CO_PHASE_ENDING && there == ticket;
}

/* Only what is safe in a signal handler: atomics, getpid(), timer_settime(). */
static void on_signal(int number)
{
    uint64_t ticket = limit.running;

    (void)number;
    if (getpid() != limit.pid) {
        return;
    }
    if (limit.ending || !is_ending(ticket)) {
        repeat(false);
        return;
    }
    limit.due = ticket;
    raise_interrupt();
    repeat(true);
}

__attribute__((noreturn)) static void end_worker(void)
{
    pid_t pid = getpid();

    if (pid == limit.pid && getpgrp() == pid) {
        kill(0, SIGKILL); /* What the job has started ends with it. */
    }
    kill(pid, SIGKILL);
    for (;;) {
        pause();
    }
}

static void call_handler(uint64_t ticket)
{
    zval argument;
    zval result;

    ZVAL_LONG(&argument, (zend_long)ticket);
    ZVAL_UNDEF(&result);
    EG(exception) = NULL; /* PHP code does not run beside a pending exception. */
    (void)call_user_function(NULL, NULL, &limit.handler, &result, 1, &argument);
    if (EG(exception) != NULL && !zend_is_unwind_exit(EG(exception)) &&
        !zend_is_graceful_exit(EG(exception))) {
        zend_exception_error(EG(exception), E_WARNING); /* Nobody else would ever see it. */
    }
}

/* The job's code does not go on, whatever the handler does. */
__attribute__((noreturn)) static void run_handler(uint64_t ticket)
{
    limit.ending = 1;
    repeat(false);
    zend_try
    {
        call_handler(ticket);
    }
    zend_end_try();
    end_worker();
}

static void on_interrupt(zend_execute_data *execute_data)
{
    uint64_t ticket = atomic_exchange(&limit.due, 0);

    if (ticket != 0 && ticket == limit.running && !limit.ending &&
        Z_TYPE(limit.handler) != IS_UNDEF) {
        run_handler(ticket);
    }
    if (limit.chained != NULL) {
        limit.chained(execute_data);
    }
}

void co_php_timeout_hook(void)
{
    ZVAL_UNDEF(&limit.handler);
    limit.chained = zend_interrupt_function;
    zend_interrupt_function = on_interrupt;
}

void co_php_timeout_listen(const struct co_slot *slot)
{
    int number = SIGRTMIN + CO_SIGNAL_TIMEOUT;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = number};
    struct sigaction action = {.sa_handler = on_signal}; /* No SA_RESTART: sleep() must return. */

    limit.slot = slot;
    limit.pid = getpid();
    limit.has_again = timer_create(CLOCK_MONOTONIC, &event, &limit.again) == 0;
    (void)sigaction(number, &action, NULL);
}

void co_php_timeout_set(zval *handler)
{
    zval old = limit.handler;

    if (handler != NULL) {
        ZVAL_COPY(&limit.handler, handler);
    } else {
        ZVAL_UNDEF(&limit.handler);
    }
    zval_ptr_dtor(&old); /* Last: a destructor may come back here. */
}

void co_php_timeout_run(uint64_t ticket)
{
    limit.running = ticket;
}
