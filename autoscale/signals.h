/* What the scaler looks at, and how it is measured: the rate of arrival, the time of service.
 *
 * One struct co_signals describes one queue (or one ordered list) at one moment: the whole fleet's
 * on the agent that owns it, this agent's alone where there is no fleet. */

#ifndef CO_AUTOSCALE_SIGNALS_H
#define CO_AUTOSCALE_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/time.h"

/* A delayed job that falls due within this counts as waiting: its worker is made in time. */
#define CO_SIGNALS_SOON_MS 250

struct co_signals {
    /* Work. */
    uint64_t ready;    /* In the source, could begin now. */
    uint64_t due_soon; /* In the source, due within CO_SIGNALS_SOON_MS. */
    uint64_t claimed;  /* Taken by an agent, not begun. */
    uint32_t running;  /* Begun and not ended, on draining workers too. */
    co_ms oldest_ms;   /* Age of the oldest ready job; 0: none. */
    double arrival_per_s;
    uint64_t service_us; /* Mean time of a job; 0: none has ended yet. */
    uint64_t service_dev_us;

    /* Workers: of the pool where the queue has it alone, else this queue's part. */
    uint32_t booting;
    uint32_t idle;
    uint32_t busy;
    uint32_t draining; /* They end after their job: no capacity, and their job needs no other. */

    uint32_t capacity; /* What the living agents may run together; 0: not known, no limit. */
    bool tight;        /* Memory is short: no growth. */
    bool stale;        /* The source did not answer: ready, due_soon and oldest_ms are old. */
};

/* Jobs that wait for a worker. */
uint64_t co_signals_queued(const struct co_signals *signals);

/* Workers that are there or on their way: booting, idle and busy; never draining ones. */
uint64_t co_signals_serving(const struct co_signals *signals);

/* Jobs that need a worker of those: queued and running, but for those on draining workers. */
uint64_t co_signals_outstanding(const struct co_signals *signals);

/* ---- arrivals ----
 *
 * Nobody counts pushes: what arrived is what is there now, less what was there before, plus what
 * has ended since. Two moving averages, a fast and a slow one, and the lower of both counts: a
 * burst raises the fast one alone, and when a load ends the fast one falls first. */

#define CO_ARRIVAL_FAST_MS 2000
#define CO_ARRIVAL_SLOW_MS 20000

struct co_arrival {
    bool known;
    co_ms at;
    co_ms since; /* Of the first look: a slow average that has seen little is not slow yet. */
    uint64_t there;
    uint64_t ended;
    double fast, slow; /* Per second. */
};

/* there: jobs known of now (ready, claimed, running); ended: all that ever ended. A look at the
 * same millisecond as the last, or at numbers that went back, is taken as it is best understood. */
void co_arrival_look(struct co_arrival *arrival, uint64_t there, uint64_t ended, co_ms now);
double co_arrival_rate(const struct co_arrival *arrival);

/* ---- service ----
 *
 * Mean and mean deviation as TCP keeps them for round trips: an eighth and a quarter of each new
 * one. */

struct co_service {
    double mean_us; /* 0: none yet. */
    double dev_us;
};

void co_service_note(struct co_service *service, uint64_t run_us);

/* n jobs have ended that took mean_us on average: as n notes, for those who only know sums. */
void co_service_notes(struct co_service *service, uint64_t n, uint64_t mean_us);

#endif /* CO_AUTOSCALE_SIGNALS_H */
