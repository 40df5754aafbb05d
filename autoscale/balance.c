#include "autoscale/balance.h"

#include <assert.h>

const char *co_balance_name(enum co_balance_mode mode)
{
    static const char *const names[] = {
        [CO_BALANCE_AUTO] = "auto",
        [CO_BALANCE_SIMPLE] = "simple",
        [CO_BALANCE_ORDERED] = "ordered",
    };
    return (unsigned)mode < sizeof names / sizeof names[0] ? names[mode] : "?";
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* ---- the split ---- */

/* The least a queue gets while the workers suffice, and the most it can use. */
struct range {
    uint32_t low, high;
    double part; /* It gets workers in proportion to this. */
};

static uint32_t reserved(const struct co_balance_queue *queue)
{
    return min_u32(queue->min, queue->max);
}

static uint32_t one_or_min(const struct co_balance_queue *queue)
{
    return max_u32(reserved(queue), queue->want > 0 && queue->max > 0 ? 1 : 0);
}

static struct range range_of(enum co_balance_mode mode, const struct co_balance_queue *queue)
{
    uint32_t weight = max_u32(queue->weight, 1);
    uint32_t uses = max_u32(min_u32(queue->want, queue->max), reserved(queue));

    if (mode == CO_BALANCE_SIMPLE) {
        return (struct range){one_or_min(queue), queue->max, weight};
    }
    return (struct range){one_or_min(queue), uses, (double)weight * queue->want};
}

/* One more to each that is below its bound, in rounds and in order from first on, until none is
 * left. */
static uint32_t deal(struct co_balance_queue *queues, size_t n, uint32_t left, size_t first,
                     uint32_t (*bound)(const struct co_balance_queue *))
{
    bool dealt = true;

    while (left > 0 && dealt) {
        dealt = false;
        for (size_t k = 0; k < n && left > 0; k++) {
            struct co_balance_queue *queue = &queues[(first + k) % n];
            if (queue->limit < bound(queue)) {
                queue->limit += 1;
                left -= 1;
                dealt = true;
            }
        }
    }
    return left;
}

static uint32_t one_for_work(const struct co_balance_queue *queue)
{
    return queue->want > 0 && queue->max > 0 ? 1 : 0;
}

static uint64_t sum_of(const struct co_balance_queue *queues, size_t n,
                       uint32_t (*bound)(const struct co_balance_queue *))
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += bound(&queues[i]);
    }
    return sum;
}

static bool is_scarce(const struct co_balance_queue *queues, size_t n, uint32_t workers)
{
    return sum_of(queues, n, one_or_min) >= workers;
}

/* There are too few for the least of all. Each min goes first while all of them fit; else one for
 * each queue with work, in order. */
static void split_scarce(struct co_balance_queue *queues, size_t n, uint32_t workers, size_t first)
{
    if (sum_of(queues, n, reserved) <= workers) {
        workers = deal(queues, n, workers, 0, reserved);
        deal(queues, n, workers, first, one_or_min);
        return;
    }
    workers = deal(queues, n, workers, first, one_for_work);
    deal(queues, n, workers, 0, reserved);
}

static double within(double level, const struct range *range)
{
    double x = level * range->part;

    return x < range->low ? range->low : x > range->high ? range->high : x;
}

static double total_at(double level, const struct range *ranges, size_t n)
{
    double total = 0.0;

    for (size_t i = 0; i < n; i++) {
        total += within(level, &ranges[i]);
    }
    return total;
}

/* The level at which the parts, each kept within its range, add up to the workers there are. */
static double find_level(const struct range *ranges, size_t n, uint32_t workers)
{
    double low = 0.0;
    double high = 1.0;

    for (int i = 0; i < 64 && total_at(high, ranges, n) < workers; i++) {
        high *= 2.0;
    }
    for (int i = 0; i < 80; i++) {
        double mid = (low + high) / 2.0;
        if (total_at(mid, ranges, n) <= workers) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return low;
}

/* What is left after rounding down goes one each to the largest remainders, ties in order. */
static void deal_remainders(struct co_balance_queue *queues, const struct range *ranges, size_t n,
                            double level, uint32_t left)
{
    bool served[CO_BALANCE_MAX] = {false};

    while (left > 0) {
        size_t best = n;
        double most = -1.0;
        for (size_t i = 0; i < n; i++) {
            double rest = within(level, &ranges[i]) - (double)queues[i].limit;
            if (!served[i] && queues[i].limit < ranges[i].high && ranges[i].part > 0.0 &&
                rest > most + 1e-9) {
                best = i;
                most = rest;
            }
        }
        if (best == n) {
            return;
        }
        served[best] = true;
        queues[best].limit += 1;
        left -= 1;
    }
}

static void split_by_part(enum co_balance_mode mode, struct co_balance_queue *queues, size_t n,
                          uint32_t workers, size_t first)
{
    struct range ranges[CO_BALANCE_MAX];
    uint64_t used = 0;
    double level;

    if (is_scarce(queues, n, workers)) {
        split_scarce(queues, n, workers, first);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        ranges[i] = range_of(mode, &queues[i]);
    }
    level = find_level(ranges, n, workers);
    for (size_t i = 0; i < n; i++) {
        queues[i].limit = (uint32_t)(within(level, &ranges[i]) + 1e-9);
        used += queues[i].limit;
    }
    assert(used <= workers);
    deal_remainders(queues, ranges, n, level, workers - (uint32_t)used);
}

static void split_in_order(struct co_balance_queue *queues, size_t n, uint32_t workers)
{
    uint32_t left = deal(queues, n, workers, 0, reserved);

    for (size_t i = 0; i < n; i++) {
        uint32_t uses = min_u32(queues[i].want, queues[i].max);
        uint32_t more = min_u32(uses > queues[i].limit ? uses - queues[i].limit : 0, left);
        queues[i].limit += more;
        left -= more;
    }
}

static void split(enum co_balance_mode mode, struct co_balance_queue *queues, size_t n,
                  uint32_t workers, size_t first)
{
    assert(n <= CO_BALANCE_MAX);
    for (size_t i = 0; i < n; i++) {
        queues[i].limit = 0;
    }
    switch (mode) {
    case CO_BALANCE_AUTO:
    case CO_BALANCE_SIMPLE:
        split_by_part(mode, queues, n, workers, first);
        return;
    case CO_BALANCE_ORDERED:
        split_in_order(queues, n, workers);
        return;
    }
}

void co_balance_split(enum co_balance_mode mode, struct co_balance_queue *queues, size_t n,
                      uint32_t workers)
{
    split(mode, queues, n, workers, 0);
}

/* ---- the steps towards it ---- */

/* What a queue has beyond its goal and still wants: only this is held back. */
struct stake {
    uint32_t goal;
    uint32_t wanted; /* Part of the limit beyond the goal that it wants. */
};

/* Take one from the queue with the most at stake. */
static bool take_one(struct co_balance_queue *queues, struct stake *stakes, size_t n)
{
    size_t most = 0;

    for (size_t i = 1; i < n; i++) {
        if (stakes[i].wanted > stakes[most].wanted) {
            most = i;
        }
    }
    if (n == 0 || stakes[most].wanted == 0) {
        return false;
    }
    stakes[most].wanted -= 1;
    queues[most].limit -= 1;
    return true;
}

/* The queue that is furthest below its goal; n: none is. */
static size_t neediest(const struct co_balance_queue *queues, const struct stake *stakes, size_t n)
{
    size_t best = n;
    uint32_t furthest = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t gap = stakes[i].goal > queues[i].limit ? stakes[i].goal - queues[i].limit : 0;
        if (gap > furthest) {
            furthest = gap;
            best = i;
        }
    }
    return best;
}

static bool give_one(struct co_balance_queue *queues, const struct stake *stakes, size_t n)
{
    size_t best = neediest(queues, stakes, n);

    if (best == n) {
        return false;
    }
    queues[best].limit += 1;
    return true;
}

/* Where everybody stands before anything that somebody wants is moved; the sum may be too high. */
static uint64_t stand(struct co_balance_queue *queues, struct stake *stakes, const uint32_t *before,
                      size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t had = min_u32(before[i], queues[i].max);
        uint32_t goal = queues[i].limit;
        uint32_t keeps = min_u32(had, queues[i].want);
        stakes[i] = (struct stake){.goal = goal, .wanted = keeps > goal ? keeps - goal : 0};
        if (had > goal) {
            queues[i].limit = goal + stakes[i].wanted;
        } else {
            /* What it had, and its first one or its min without delay. */
            queues[i].limit = min_u32(goal, max_u32(had, one_or_min(&queues[i])));
        }
        sum += queues[i].limit;
    }
    return sum;
}

/* Less than one for each queue with work: whoever comes first would for ever, so it changes.
 * Returns when it does next; 0: there is one for each. */
static co_ms take_turns(struct co_balance *balance, const struct co_balance_rules *rules,
                        const struct co_balance_queue *queues, size_t n, uint32_t workers,
                        co_ms now)
{
    if (rules->mode == CO_BALANCE_ORDERED || sum_of(queues, n, one_or_min) <= workers) {
        return 0;
    }
    if (!balance->turned) {
        balance->turned = true;
        balance->turned_at = now;
    } else if (now - balance->turned_at >= rules->cooldown_ms) {
        balance->turned_at = now;
        balance->first = (uint32_t)((balance->first + 1) % n);
    }
    return balance->turned_at + rules->cooldown_ms;
}

static co_ms earlier(co_ms a, co_ms b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

co_ms co_balance_step(struct co_balance *balance, const struct co_balance_rules *rules,
                      struct co_balance_queue *queues, size_t n, uint32_t workers, co_ms now)
{
    struct stake stakes[CO_BALANCE_MAX];
    uint32_t before[CO_BALANCE_MAX];
    uint64_t sum;
    uint32_t moved = 0;
    bool cool;
    co_ms turn;

    assert(n <= CO_BALANCE_MAX && rules->max_shift > 0);
    for (size_t i = 0; i < n; i++) {
        before[i] = queues[i].limit;
    }
    turn = take_turns(balance, rules, queues, n, workers, now);
    split(rules->mode, queues, n, workers, balance->first);
    sum = stand(queues, stakes, before, n);
    while (sum > workers && take_one(queues, stakes, n)) {
        sum -= 1;
    }
    while (sum < workers && give_one(queues, stakes, n)) {
        sum += 1;
    }
    assert(sum <= workers);

    cool = !balance->shifted || now - balance->shifted_at >= rules->cooldown_ms;
    while (cool && moved < rules->max_shift && neediest(queues, stakes, n) < n &&
           take_one(queues, stakes, n)) {
        give_one(queues, stakes, n);
        moved += 1;
    }
    if (moved > 0) {
        balance->shifted = true;
        balance->shifted_at = now;
    }
    return earlier(turn,
                   neediest(queues, stakes, n) < n ? balance->shifted_at + rules->cooldown_ms : 0);
}
