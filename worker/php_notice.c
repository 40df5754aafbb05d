#include "worker/php_notice.h"

#include <Zend/zend_exceptions.h>
#include <Zend/zend_fibers.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AGAIN_MS 50

/* Shared by the signal handler and the code it interrupts, all in one thread. */
struct notice {
    int number; /* Of the signal, after SIGRTMIN. */
    int flags;  /* Of its action. */
    enum co_phase phase;
    int rounds; /* How often it is said again; -1: until it is heard. */
    volatile sig_atomic_t left;
    timer_t again;
    bool has_again;
    _Atomic uint64_t due;  /* The handler is to be called for this ticket; 0 = none. */
    _Atomic uint64_t told; /* The last one that was. */
    zval handler;
};

static struct {
    const struct co_slot *slot;
    pid_t pid; /* Of the worker: a child it forks has these handlers, too. */
    _Atomic uint64_t running;
    void (*chained)(zend_execute_data *execute_data);
    struct notice notices[CO_NOTICES];
} worker = {
    .notices =
        {
            [CO_NOTICE_TIMEOUT] =
                {
                    .number = CO_SIGNAL_TIMEOUT,
                    .phase = CO_PHASE_ENDING,
                    .rounds = -1,
                },
            /* This job goes on: its reads must not fail, and the limits of its waits, which some
             * calls begin anew after a signal, must not be put off for ever. */
            [CO_NOTICE_STOP] =
                {
                    .number = CO_SIGNAL_STOP,
                    .flags = SA_RESTART,
                    .phase = CO_PHASE_RUNNING,
                    .rounds = 4,
                },
        },
};

static void repeat(struct notice *notice, bool on)
{
    long ns = on ? AGAIN_MS * 1000000L : 0;
    struct itimerspec every = {.it_interval.tv_nsec = ns, .it_value.tv_nsec = ns};

    if (notice->has_again) {
        timer_settime(notice->again, 0, &every, NULL);
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

/* Does it mean the ticket that runs, and for the first time? */
static bool is_meant(const struct notice *notice, uint64_t ticket)
{
    uint64_t there;

    return ticket != 0 && ticket != notice->told &&
           co_slot_phase(worker.slot, &there) == notice->phase && there == ticket;
}

static struct notice *notice_of(int number)
{
    return &worker
                .notices[number == SIGRTMIN + CO_SIGNAL_STOP ? CO_NOTICE_STOP : CO_NOTICE_TIMEOUT];
}

/* Only what is safe in a signal handler: atomics, getpid(), timer_settime(). */
static void take_notice(struct notice *notice)
{
    uint64_t ticket = worker.running;

    if (getpid() != worker.pid) {
        return;
    }
    if (!is_meant(notice, ticket)) {
        repeat(notice, false);
        return;
    }
    if (notice->due != ticket) {
        notice->due = ticket;
        notice->left = notice->rounds;
        repeat(notice, true);
    } else if (notice->left == 0) {
        repeat(notice, false);
    } else {
        notice->left -= notice->left > 0;
    }
    raise_interrupt();
}

static void on_signal(int number)
{
    int interrupted = errno; /* Of the code between its call and its look at errno. */

    take_notice(notice_of(number));
    errno = interrupted;
}

/* The ticket whose handler is to be called now; 0: none. From here on it is told. */
static uint64_t take_due(struct notice *notice)
{
    uint64_t due = notice->due;
    uint64_t ticket = due;
    bool meant = is_meant(notice, ticket) && ticket == worker.running;

    if (ticket == 0) {
        return 0;
    }
    notice->told = ticket; /* First: a signal that comes now must not make it due again. */
    (void)atomic_compare_exchange_strong(&notice->due, &due, 0);
    repeat(notice, false);
    return meant && Z_TYPE(notice->handler) != IS_UNDEF ? ticket : 0;
}

static void call_handler(const struct notice *notice, uint64_t ticket)
{
    zval handler;
    zval argument;
    zval result;

    ZVAL_COPY(&handler, &notice->handler); /* It may set another. */
    ZVAL_LONG(&argument, (zend_long)ticket);
    ZVAL_UNDEF(&result);
    (void)call_user_function(NULL, NULL, &handler, &result, 1, &argument);
    zval_ptr_dtor(&result);
    zval_ptr_dtor(&handler);
}

/* ---- a time limit ---- */

__attribute__((noreturn)) static void end_worker(void)
{
    pid_t pid = getpid();

    if (pid == worker.pid && getpgrp() == pid) {
        kill(0, SIGKILL); /* What the job has started ends with it. */
    }
    kill(pid, SIGKILL);
    for (;;) {
        pause();
    }
}

static void call_last_handler(const struct notice *notice, uint64_t ticket)
{
    EG(exception) = NULL; /* PHP code does not run beside a pending exception. */
    call_handler(notice, ticket);
    if (EG(exception) != NULL && !zend_is_unwind_exit(EG(exception)) &&
        !zend_is_graceful_exit(EG(exception))) {
        zend_exception_error(EG(exception), E_WARNING); /* Nobody else would ever see it. */
    }
}

/* The job's code does not go on, whatever the handler does. */
static void tell_timeout(struct notice *notice)
{
    uint64_t ticket = take_due(notice);

    if (ticket == 0) {
        return;
    }
    zend_try
    {
        call_last_handler(notice, ticket);
    }
    zend_end_try();
    end_worker();
}

/* ---- a stop ---- */

/* What the handler throws goes into the job, as from a handler of pcntl's. */
static void tell_stop(struct notice *notice)
{
    uint64_t ticket;

    if (notice->due != 0 && EG(exception) != NULL) {
        raise_interrupt(); /* When this one has been caught. */
        return;
    }
    ticket = take_due(notice);
    if (ticket != 0) {
        zend_fiber_switch_block(); /* The job's fibers do not expect to be left here. */
        call_handler(notice, ticket);
        zend_fiber_switch_unblock();
    }
}

static void on_interrupt(zend_execute_data *execute_data)
{
    tell_timeout(&worker.notices[CO_NOTICE_TIMEOUT]);
    tell_stop(&worker.notices[CO_NOTICE_STOP]);
    if (worker.chained != NULL) {
        worker.chained(execute_data);
    }
}

/* ---- setting up ---- */

void co_php_notice_hook(void)
{
    for (int i = 0; i < CO_NOTICES; i++) {
        ZVAL_UNDEF(&worker.notices[i].handler);
    }
    worker.chained = zend_interrupt_function;
    zend_interrupt_function = on_interrupt;
}

/* Ignored without a handler: a signal that is only looked at would still end a sleep(). */
static void heed(struct notice *notice)
{
    bool heard = Z_TYPE(notice->handler) != IS_UNDEF;
    struct sigaction action = {.sa_handler = heard ? on_signal : SIG_IGN,
                               .sa_flags = notice->flags};

    if (!heard) {
        repeat(notice, false);
    }
    (void)sigaction(SIGRTMIN + notice->number, &action, NULL);
}

void co_php_notice_listen(const struct co_slot *slot)
{
    worker.slot = slot;
    worker.pid = getpid();
    for (int i = 0; i < CO_NOTICES; i++) {
        struct notice *notice = &worker.notices[i];
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
                                 .sigev_signo = SIGRTMIN + notice->number};
        notice->has_again = timer_create(CLOCK_MONOTONIC, &event, &notice->again) == 0;
        heed(notice);
    }
}

void co_php_notice_set(enum co_notice which, zval *handler)
{
    struct notice *notice = &worker.notices[which];
    zval old = notice->handler;

    if (handler != NULL) {
        ZVAL_COPY(&notice->handler, handler);
    } else {
        ZVAL_UNDEF(&notice->handler);
    }
    heed(notice);
    zval_ptr_dtor(&old); /* Last: a destructor may come back here. */
}

void co_php_notice_run(uint64_t ticket)
{
    worker.running = ticket;
}
