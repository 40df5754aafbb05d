/* split: available. A plan is applied on arrival; each side of a partition serves on. */

#include <string.h>

#include "autoscale/coord_impl.h"
#include "autoscale/plan.h"

#define GATHER_MS 250 /* An owner without the last plan waits so long for the first reports. */

static bool is_mine(const struct co_coord *coord, const struct co_fleet_plan *plan)
{
    return plan->epoch.owner == coord->config.id;
}

static void become_owner(struct co_step *step, struct co_coord_queue *queue)
{
    bool knows = queue->plan.epoch.term != 0;
    queue->role = CO_COORD_OWNS;
    queue->term = 0; /* Taken with the first plan. */
    queue->issued_at = step->now;
    queue->learns_until = knows ? step->now : step->now + CO_FLEET_LEASE_MS;
    if (knows) {
        queue->target = queue->plan.target;
    }
    queue->has_target = knows;
    co_coord_dirty(queue, step->now);
    co_coord_tell(step, CO_COORD_OWN, queue->config.queue);
}

void co_available_view(struct co_step *step, struct co_coord_queue *queue, uint64_t was)
{
    struct co_coord *coord = step->coord;
    (void)was;
    if (queue->owner == coord->config.id) {
        if (queue->role != CO_COORD_OWNS) {
            become_owner(step, queue);
        }
        co_coord_dirty(queue, step->now);
    } else if (queue->role == CO_COORD_OWNS) {
        queue->role = CO_COORD_FOLLOWS;
        queue->dirty = false;
        co_coord_tell(step, CO_COORD_DISOWN, queue->config.queue);
        if (queue->owner != 0 && queue->plan.epoch.term != 0) {
            co_coord_post(step, CO_FLEET_PLAN, co_coord_index(coord, queue), queue->owner);
        }
    }
}

static void store(struct co_coord_queue *queue, const struct co_fleet_plan *plan, co_ms now)
{
    memcpy(&queue->plan, plan,
           offsetof(struct co_fleet_plan, seats) + plan->n_seats * sizeof plan->seats[0]);
    queue->plan_at = now;
}

/* Somebody holds a plan that beats ours, of a higher term or of our own term and a higher id: only
 * a higher term than either gets through to it. */
static void outbid(struct co_coord_queue *queue)
{
    if (CO_MUTATED(CO_MUTATE_NO_BUMP)) {
        return;
    }
    queue->outbid = true;
    queue->spread = true;
    co_coord_dirty(queue, queue->issued_at + CO_COORD_BUMP_MS);
}

/* A new owner hears of the plan before it: go on from there. */
static void inherit(struct co_step *step, struct co_coord_queue *queue,
                    const struct co_fleet_plan *plan)
{
    if (queue->term == 0) {
        store(queue, plan, step->now);
        queue->target = queue->has_target ? queue->target : plan->target;
        queue->has_target = true;
        queue->learns_until = step->now;
        co_coord_dirty(queue, step->now);
    } else {
        outbid(queue);
    }
}

void co_available_plan(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                       const struct co_fleet_plan *plan)
{
    struct co_coord *coord = step->coord;

    if (co_fleet_epoch_compare(&plan->epoch, &queue->plan.epoch) <= 0 &&
        !CO_MUTATED(CO_MUTATE_OLD_EPOCHS)) {
        return;
    }
    if (queue->role == CO_COORD_OWNS) {
        inherit(step, queue, plan);
        return;
    }
    const struct co_fleet_seat *seat =
        co_coord_seat(plan, coord->config.id, coord->config.incarnation);
    bool from_owner = plan->epoch.owner == coord->members.at[slot].id &&
                      (queue->owner == plan->epoch.owner || queue->owner == 0 ||
                       step->now - queue->plan_at > CO_FLEET_LEASE_MS);
    if (!from_owner || (seat == NULL && !CO_MUTATED(CO_MUTATE_UNLISTED))) {
        return; /* Its author does not see us, or we see a better one. */
    }
    store(queue, plan, step->now);
    co_coord_limit(step, queue, seat != NULL ? seat->share : 0);
}

void co_available_report(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                         const struct co_fleet_report_entry *entry)
{
    struct co_coord *coord = step->coord;
    const struct co_member *member = &coord->members.at[slot];

    if (queue->role != CO_COORD_OWNS || queue->term == 0) {
        return;
    }
    int order = co_fleet_epoch_compare(&entry->epoch, &queue->plan.epoch);
    if (order > 0) {
        outbid(queue);
    } else if (order < 0 && step->now >= queue->issued_at + CO_COORD_RESEND_MS &&
               !CO_MUTATED(CO_MUTATE_NO_RESEND)) {
        co_coord_post(step, CO_FLEET_PLAN, co_coord_index(coord, queue), member->id);
    }
}

/* Everybody who could work has said how much, or had time to. */
static bool has_gathered(const struct co_step *step, const struct co_coord_queue *queue)
{
    const struct co_coord *coord = step->coord;
    if (queue->plan.epoch.term != 0 || step->now >= queue->issued_at + GATHER_MS) {
        return true;
    }
    for (uint16_t slot = 1; slot < coord->members.n; slot++) {
        if (co_members_is_alive(&coord->members, slot) && co_coord_serves(queue, slot) &&
            queue->reported[slot].incarnation != coord->members.at[slot].incarnation) {
            return false;
        }
    }
    return true;
}

static bool has_seat(const struct co_coord *coord, const struct co_coord_queue *queue,
                     uint16_t slot)
{
    return co_coord_serves(queue, slot) &&
           (co_members_is_alive(&coord->members, slot) ||
            (CO_MUTATED(CO_MUTATE_KEEP_DEAD) && coord->members.at[slot].state == CO_MEMBER_DEAD));
}

/* Who has what now, before anybody is cut by an owner that knows nothing. */
static uint32_t shares_now(const struct co_coord *coord, const struct co_coord_queue *queue)
{
    uint64_t sum = queue->limit;
    for (uint16_t slot = 1; slot < coord->members.n; slot++) {
        if (has_seat(coord, queue, slot) &&
            queue->reported[slot].incarnation == coord->members.at[slot].incarnation) {
            sum += queue->reported[slot].grant;
        }
    }
    return sum < queue->config.max ? (uint32_t)sum : queue->config.max;
}

/* Fill seats in a scratch array so that the plan held stays whole; returns whether it differs. */
static bool make_seats(const struct co_coord *coord, const struct co_coord_queue *queue,
                       uint32_t target, struct co_fleet_seat *seats, size_t *ret_n)
{
    size_t n = 0;
    for (size_t i = 0; i < coord->members.n_order; i++) {
        uint16_t slot = coord->members.order[i];
        if (has_seat(coord, queue, slot)) {
            uint32_t capacity = co_coord_capacity(coord, queue, slot);
            seats[n++] = (struct co_fleet_seat){
                .id = coord->members.at[slot].id,
                .incarnation = coord->members.at[slot].incarnation,
                .capacity = CO_MUTATED(CO_MUTATE_NO_CAPACITY) ? 1000 : capacity,
            };
        }
    }
    co_plan_split(seats, n, target);
    bool differs = n != queue->plan.n_seats;
    for (size_t i = 0; i < n; i++) {
        seats[i].grant = seats[i].share;
        differs |= memcmp(&seats[i], &queue->plan.seats[i], sizeof seats[i]) != 0;
    }
    *ret_n = n;
    return differs;
}

void co_available_issue(struct co_step *step, struct co_coord_queue *queue)
{
    struct co_coord *coord = step->coord;
    struct co_fleet_seat seats[CO_FLEET_AGENTS_MAX];
    size_t n;

    if (!queue->has_target || !has_gathered(step, queue)) {
        co_coord_dirty(queue, step->now + 20);
        queue->plan_due = step->now + 20;
        return;
    }
    if (queue->term != 0 && step->now < queue->issued_at + CO_COORD_PLAN_GAP_MS) {
        queue->plan_due = queue->issued_at + CO_COORD_PLAN_GAP_MS;
        return;
    }
    queue->dirty = false;
    uint32_t target = co_coord_wanted(coord, queue);
    if (step->now < queue->learns_until) {
        uint32_t now = shares_now(coord, queue);
        target = target > now ? target : now;
        co_coord_dirty(queue, queue->learns_until);
    }
    bool differs = make_seats(coord, queue, target, seats, &n);
    bool foreign = queue->outbid || !is_mine(coord, &queue->plan) || queue->term < queue->top_term;
    if (!differs && !foreign && !queue->spread && queue->plan.target == target) {
        return;
    }
    if (foreign || queue->term == 0) {
        queue->term =
            (queue->top_term > queue->plan.epoch.term ? queue->top_term : queue->plan.epoch.term) +
            1;
        queue->top_term = queue->term;
        queue->outbid = false;
        queue->seq = 0;
    }
    memcpy(queue->plan.seats, seats, n * sizeof seats[0]);
    queue->plan.n_seats = (uint16_t)n;
    queue->plan.queue = queue->config.queue;
    queue->plan.epoch = (struct co_fleet_epoch){queue->term, coord->config.id, ++queue->seq};
    queue->plan.policy_hash = queue->config.policy_hash;
    queue->plan.target = target;
    queue->plan.max = queue->config.max;
    queue->plan.split = CO_FLEET_AVAILABLE;
    queue->issued_at = step->now;
    queue->plan_at = step->now;
    const struct co_fleet_seat *mine =
        co_coord_seat(&queue->plan, coord->config.id, coord->config.incarnation);
    co_coord_limit(step, queue, mine != NULL ? mine->share : 0);
    co_coord_broadcast(step, queue);
}
