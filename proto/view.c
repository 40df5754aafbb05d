#include "proto/view.h"

#include <assert.h>
#include <stddef.h>

#define FIRST_BOUND_US UINT64_C(100)

static const char *const exit_names[CO_EXIT_REASONS] = {
#define CO_EXIT_NAME(name, text) [name] = text,
    CO_EXIT_MAP(CO_EXIT_NAME)
#undef CO_EXIT_NAME
};

static const char *const state_names[CO_WORKER_STATES] = {
    [CO_WORKER_BOOTING] = "booting",   [CO_WORKER_IDLE] = "idle", [CO_WORKER_BUSY] = "busy",
    [CO_WORKER_DRAINING] = "draining", [CO_WORKER_DEAD] = "dead",
};

const char *co_exit_name(enum co_exit_reason reason)
{
    assert((unsigned)reason < CO_EXIT_REASONS);
    return exit_names[reason];
}

const char *co_worker_state_name(enum co_worker_state state)
{
    assert((unsigned)state < CO_WORKER_STATES);
    return state_names[state];
}

uint64_t co_hist_bound_us(unsigned bucket)
{
    assert(bucket < CO_HIST_BUCKETS);
    return bucket == CO_HIST_BUCKETS - 1 ? 0 : FIRST_BOUND_US << bucket;
}

static unsigned bucket_of(uint64_t us)
{
    unsigned bucket = 0;

    while (bucket < CO_HIST_BUCKETS - 1 && us > co_hist_bound_us(bucket)) {
        bucket++;
    }
    return bucket;
}

void co_hist_add(struct co_hist *hist, uint64_t us)
{
    hist->bucket[bucket_of(us)]++;
    hist->count++;
    hist->sum_us += us;
}

uint64_t co_hist_quantile_us(const struct co_hist *hist, double q)
{
    double rank = q * (double)hist->count;
    uint64_t seen = 0;

    assert(q >= 0 && q <= 1);
    if (hist->count == 0) {
        return 0;
    }
    for (unsigned i = 0; i < CO_HIST_BUCKETS - 1; i++) {
        seen += hist->bucket[i];
        if (seen > 0 && (double)seen >= rank) {
            return co_hist_bound_us(i);
        }
    }
    /* Beyond the table: its last bound is all that is known, as Prometheus has it too. */
    return co_hist_bound_us(CO_HIST_BUCKETS - 2);
}
