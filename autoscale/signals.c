#include "autoscale/signals.h"

uint64_t co_signals_queued(const struct co_signals *signals)
{
    return signals->ready + signals->due_soon + signals->claimed;
}

uint64_t co_signals_serving(const struct co_signals *signals)
{
    return (uint64_t)signals->booting + signals->idle + signals->busy;
}

uint64_t co_signals_outstanding(const struct co_signals *signals)
{
    return co_signals_queued(signals) + signals->busy;
}

/* ---- arrivals ---- */

/* 1 - e^(-x), near enough for an average, and without a mathematics library. */
static double gain(co_ms elapsed, co_ms constant)
{
    double x = (double)elapsed / (double)constant;

    return x / (1.0 + x);
}

void co_arrival_look(struct co_arrival *arrival, uint64_t there, uint64_t ended, co_ms now)
{
    uint64_t before = arrival->there;
    uint64_t came = there;
    co_ms elapsed = now - arrival->at;
    double rate;

    if (!arrival->known) {
        *arrival = (struct co_arrival){
            .known = true, .at = now, .since = now, .there = there, .ended = ended};
        return;
    }
    if (now <= arrival->at) {
        return;
    }
    came += ended > arrival->ended ? ended - arrival->ended : 0;
    rate = came > before ? (double)(came - before) * 1000.0 / (double)elapsed : 0.0;
    arrival->fast += (rate - arrival->fast) * gain(elapsed, CO_ARRIVAL_FAST_MS);
    arrival->slow += (rate - arrival->slow) * gain(elapsed, CO_ARRIVAL_SLOW_MS);
    arrival->at = now;
    arrival->there = there;
    arrival->ended = ended;
}

double co_arrival_rate(const struct co_arrival *arrival)
{
    /* A slow average of few seconds still holds the nought it began with: weigh that out. */
    double seen = gain(arrival->at - arrival->since, CO_ARRIVAL_SLOW_MS);
    double slow = seen > 0.05 ? arrival->slow / seen : arrival->slow;

    return arrival->fast < slow ? arrival->fast : slow;
}

/* ---- service ---- */

void co_service_note(struct co_service *service, uint64_t run_us)
{
    double run = run_us > 0 ? (double)run_us : 1.0;
    double off = run - service->mean_us;

    if (service->mean_us <= 0.0) {
        *service = (struct co_service){.mean_us = run, .dev_us = run / 2.0};
        return;
    }
    service->dev_us += ((off < 0 ? -off : off) - service->dev_us) / 4.0;
    service->mean_us += off / 8.0;
}

void co_service_notes(struct co_service *service, uint64_t n, uint64_t mean_us)
{
    /* After 64 alike nothing of the past is left. */
    for (uint64_t i = 0; i < n && i < 64; i++) {
        co_service_note(service, mean_us);
    }
}
