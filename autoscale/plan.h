/* Who may run how many workers of a queue, and who decides it: the split of a target, and the
 * owner of a queue. Both depend on the set of agents alone, so all who hold the same view agree
 * without a word. */

#ifndef CO_AUTOSCALE_PLAN_H
#define CO_AUTOSCALE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "proto/fleet.h"

/* Set the share of each seat: max-min fair by capacity (no seat gets more than its capacity, and
 * none could get more without taking from one that has no more than it); what is left over after
 * the even part goes one each, by lowest id. The sum is min(target, sum of capacities). Seats must
 * be in rising order of id. */
void co_plan_split(struct co_fleet_seat *seats, size_t n, uint32_t target);

/* The weight of an agent for a queue. The owner is the eligible agent of the highest. */
uint64_t co_plan_weight(uint64_t queue, uint64_t agent);

#endif /* CO_AUTOSCALE_PLAN_H */
