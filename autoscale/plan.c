#include "autoscale/plan.h"

#include <assert.h>

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Workers used when every seat is capped at level. */
static uint64_t total_at(const struct co_fleet_seat *seats, size_t n, uint32_t level)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        total += min_u32(seats[i].capacity, level);
    }
    return total;
}

/* The highest level whose total fits the target. */
static uint32_t fair_level(const struct co_fleet_seat *seats, size_t n, uint32_t target)
{
    uint32_t low = 0;
    uint32_t high = target;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2 + 1;
        if (total_at(seats, n, mid) <= target) {
            low = mid;
        } else {
            high = mid - 1;
        }
    }
    return low;
}

void co_plan_split(struct co_fleet_seat *seats, size_t n, uint32_t target)
{
    uint32_t level = fair_level(seats, n, target);
    uint64_t left = target - total_at(seats, n, level);
    for (size_t i = 0; i < n; i++) {
        assert(i == 0 || seats[i - 1].id <= seats[i].id);
        seats[i].share = min_u32(seats[i].capacity, level);
        if (left > 0 && seats[i].capacity > level) {
            seats[i].share += 1;
            left -= 1;
        }
    }
}

uint64_t co_plan_weight(uint64_t queue, uint64_t agent)
{
    /* Two rounds of a 64-bit finaliser: neighbouring ids must not own neighbouring queues. */
    uint64_t x = queue ^ (agent * UINT64_C(0x9E3779B97F4A7C15));
    for (int i = 0; i < 2; i++) {
        x ^= x >> 30;
        x *= UINT64_C(0xBF58476D1CE4E5B9);
        x ^= x >> 27;
        x *= UINT64_C(0x94D049BB133111EB);
        x ^= x >> 31;
    }
    return x;
}
