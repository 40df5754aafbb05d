/* split: strict. The sum of max(grant, running) never passes the maximum, in any network.
 *
 * One owner at a time: it owns while a majority of the fleet has promised to heed nobody else, and
 * it counts a promise from the moment *it* sent what the promise answers. A plan may be grown into
 * once a majority holds it, so whoever owns next, asking another majority, learns of it. A member's
 * lease runs from the moment *the member* sent the report the owner acknowledges, so no delay in
 * the network lengthens it, and the owner counts what a silent member holds from the moment the
 * report came in. FLEET.md has the argument. */

#include <assert.h>
#include <string.h>

#include "autoscale/coord_impl.h"
#include "autoscale/plan.h"

#define PROMISE_MS CO_FLEET_FENCE_MS
#define CLAIM_MS 600           /* Without a majority by then: ask again, in a higher term. */
#define COMMIT_MS 400          /* A plan nobody confirms is replaced after. */
#define MARGIN(ms) ((ms) / 64) /* What clocks may differ in, and rounding. */
#define RESEND_TICKS 5

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static bool is_same(const struct co_fleet_epoch *a, const struct co_fleet_epoch *b)
{
    return co_fleet_epoch_compare(a, b) == 0;
}

co_ms co_strict_hold(const struct co_coord_queue_config *config)
{
    co_ms hold = CO_FLEET_LEASE_MS;
    if (config->on_fence == CO_FLEET_WAIT && !CO_MUTATED(CO_MUTATE_SHORT_HOLD) &&
        CO_FLEET_FENCE_MS + config->job_ms > hold) {
        hold = CO_FLEET_FENCE_MS + config->job_ms;
    }
    hold += MARGIN(hold);
    return hold < CO_FLEET_HOLD_MAX ? hold : CO_FLEET_HOLD_MAX;
}

bool co_strict_is_fresh(const struct co_coord *coord, const struct co_coord_queue *queue, co_ms now)
{
    return !queue->knows && now < coord->started_at + co_strict_hold(&queue->config);
}

/* --- as a member --- */

static uint32_t granted(const struct co_coord *coord, const struct co_coord_queue *queue)
{
    const struct co_fleet_seat *seat =
        co_coord_seat(&queue->plan, coord->config.id, coord->config.incarnation);
    return seat != NULL ? seat->grant : 0;
}

uint64_t co_strict_report_to(const struct co_coord *coord, const struct co_coord_queue *queue,
                             co_ms now)
{
    return now < queue->promise_until && queue->promise_owner != coord->config.id
               ? queue->promise_owner
               : 0;
}

static void report_now(struct co_step *step, struct co_coord_queue *queue)
{
    queue->report_urgent = true;
    queue->report_due = step->now;
}

static void promise(struct co_step *step, struct co_coord_queue *queue, uint64_t term,
                    uint64_t owner)
{
    if (queue->promise_term != term || queue->promise_owner != owner) {
        queue->owner_stamp = 0;
    }
    queue->promise_term = term;
    queue->promise_owner = owner;
    queue->promise_until = step->now + PROMISE_MS;
}

/* May we promise to owner in term? Not while another has our promise, never a second time. */
static bool may_promise(const struct co_coord_queue *queue, uint64_t term, uint64_t owner,
                        co_ms now)
{
    if (term == queue->promise_term && owner == queue->promise_owner) {
        return true;
    }
    if (CO_MUTATED(CO_MUTATE_MANY_PROMISES)) {
        return term > queue->promise_term;
    }
    bool bound = now < queue->promise_until && queue->promise_owner != owner;
    return !bound && term > queue->promise_term;
}

static void lease(struct co_step *step, struct co_coord_queue *queue, co_ms until)
{
    if (until <= queue->lease_until || until <= step->now) {
        return;
    }
    queue->lease_until = until;
    if (queue->limit > 0 || co_coord_running(queue) > 0) {
        struct co_coord_change *change = co_coord_tell(step, CO_COORD_LEASE, queue->config.queue);
        change->workers = queue->limit;
        change->until = until;
    }
}

/* The lease has ended: nothing held counts any more. */
static void fence(struct co_step *step, struct co_coord_queue *queue)
{
    bool matters = queue->limit > 0 || co_coord_running(queue) > 0;
    co_ms ended = queue->lease_until;

    queue->lease_until = 0;
    queue->fenced = true;
    if (!matters) {
        return;
    }
    queue->unsure = queue->limit > queue->unsure ? queue->limit : queue->unsure;
    queue->limit = 0;
    struct co_coord_change *change = co_coord_tell(step, CO_COORD_FENCE, queue->config.queue);
    change->kill = queue->config.on_fence == CO_FLEET_KILL && !CO_MUTATED(CO_MUTATE_NO_KILL);
    change->until = ended + (CO_FLEET_LEASE_MS - CO_FLEET_FENCE_MS);
}

static void store(struct co_step *step, struct co_coord_queue *queue,
                  const struct co_fleet_plan *plan)
{
    memcpy(&queue->plan, plan,
           offsetof(struct co_fleet_plan, seats) + plan->n_seats * sizeof plan->seats[0]);
    queue->plan_at = step->now;
    queue->fenced = false;
    co_coord_limit(step, queue, min_u32(queue->limit, granted(step->coord, queue)));
}

void co_strict_claim(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                     const struct co_fleet_claim *claim)
{
    struct co_coord *coord = step->coord;
    uint64_t from = coord->members.at[slot].id;

    if (claim->term > queue->top_term) {
        queue->top_term = claim->term;
    }
    if (co_fleet_epoch_compare(&queue->plan.epoch, &claim->epoch) > 0) {
        co_coord_post(step, CO_FLEET_PLAN, co_coord_index(coord, queue), from);
    }
    if (queue->role == CO_COORD_OWNS || !may_promise(queue, claim->term, from, step->now)) {
        return;
    }
    queue->role = CO_COORD_FOLLOWS;
    promise(step, queue, claim->term, from);
    queue->owner_stamp = claim->stamp;
    report_now(step, queue);
}

void co_strict_ack(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                   const struct co_fleet_ack *ack)
{
    struct co_coord *coord = step->coord;

    if (ack->term != queue->promise_term || coord->members.at[slot].id != queue->promise_owner) {
        return;
    }
    promise(step, queue, ack->term, queue->promise_owner);
    if (ack->stamp > queue->owner_stamp) {
        queue->owner_stamp = ack->stamp;
    }
    if (ack->echo == 0) {
        return;
    }
    co_ms from = CO_MUTATED(CO_MUTATE_LEASE_ON_ARRIVAL) ? step->now : ack->echo - 1;
    lease(step, queue, from + CO_FLEET_FENCE_MS);
    bool same = is_same(&ack->committed, &queue->plan.epoch);
    bool heard = ack->echo > queue->plan_at; /* It knew that we hold this plan. */
    if (same && heard) {
        queue->knows = true;
    }
    if (step->now >= queue->lease_until) {
        return;
    }
    if (CO_MUTATED(CO_MUTATE_RESUME) || CO_MUTATED(CO_MUTATE_GROW_UNCOMMITTED)) {
        co_coord_limit(step, queue, granted(coord, queue));
    } else if (same && heard && !queue->fenced) {
        co_coord_limit(step, queue, granted(coord, queue));
    }
}

/* --- as the owner: majorities --- */

static uint32_t voters(const struct co_coord *coord, const struct co_coord_queue *queue)
{
    uint32_t n = max_u32(coord->config.expected, queue->plan.voters);
    return max_u32(n, queue->committed_voters);
}

static bool has_joined(const struct co_coord *coord, const struct co_coord_queue *queue,
                       uint16_t slot)
{
    return slot == 0 || (queue->reported[slot].term == queue->term &&
                         queue->reported[slot].incarnation == coord->members.at[slot].incarnation);
}

/* Until when enough of the votes hold; 0 if they never did. votes[slot] is 0 for no vote; ties are
 * the agents that an exact half needs. */
static co_ms quorum_until(const struct co_coord *coord, const struct co_coord_queue *queue,
                          const co_ms *votes)
{
    co_ms top[CO_FLEET_AGENTS_MAX]; /* The votes, highest first. */
    size_t n = 0;
    uint32_t of = voters(coord, queue);
    co_ms ties = queue->plan.tie != 0 ? UINT64_MAX : 0;

    for (uint16_t slot = 0; slot < coord->members.n; slot++) {
        uint64_t id = coord->members.at[slot].id;
        if (coord->members.at[slot].state == CO_MEMBER_FREE) {
            continue;
        }
        size_t at = n++;
        for (; at > 0 && top[at - 1] < votes[slot]; at--) {
            top[at] = top[at - 1];
        }
        top[at] = votes[slot];
        if ((id == queue->plan.tie || id == queue->plan.tie_next) && votes[slot] < ties) {
            ties = votes[slot];
        }
    }
    if (ties == UINT64_MAX && queue->plan.tie != 0 &&
        (co_members_find(&coord->members, queue->plan.tie) == CO_MEMBERS_NONE ||
         co_members_find(&coord->members, queue->plan.tie_next) == CO_MEMBERS_NONE)) {
        ties = 0;
    }
    co_ms majority = of / 2 < n ? top[of / 2] : 0;
    co_ms half = of % 2 == 0 && of >= 4 && of / 2 <= n ? top[of / 2 - 1] : 0;
    half = half < ties ? half : ties;
    if (CO_MUTATED(CO_MUTATE_ANY_HALF) && of >= 2 && (of + 1) / 2 <= n) {
        return top[(of + 1) / 2 - 1];
    }
    return majority > half ? majority : half;
}

static bool self_is_fresh(const struct co_step *step, const struct co_coord_queue *queue)
{
    return co_strict_is_fresh(step->coord, queue, step->now);
}

/* Those who may have forgotten count only if all of the fleet is there: then nobody is left who
 * could hold something unknown. */
static co_ms promised_until(const struct co_step *step, const struct co_coord_queue *queue)
{
    const struct co_coord *coord = step->coord;
    co_ms votes[CO_FLEET_AGENTS_MAX];
    uint32_t n = 0;

    for (uint16_t slot = 0; slot < coord->members.n; slot++) {
        const struct co_coord_reported *reported = &queue->reported[slot];
        votes[slot] = slot == 0 ? step->now + PROMISE_MS
                                : (has_joined(coord, queue, slot) ? reported->vote_until : 0);
        n += votes[slot] > step->now;
    }
    if (n < voters(coord, queue) && !CO_MUTATED(CO_MUTATE_FRESH_VOTES)) {
        for (uint16_t slot = 0; slot < coord->members.n; slot++) {
            if (slot == 0 ? self_is_fresh(step, queue)
                          : (queue->reported[slot].flags & CO_FLEET_FRESH) != 0) {
                votes[slot] = 0;
            }
        }
    }
    return quorum_until(coord, queue, votes);
}

static bool is_held_by_majority(const struct co_step *step, const struct co_coord_queue *queue)
{
    const struct co_coord *coord = step->coord;
    co_ms votes[CO_FLEET_AGENTS_MAX];
    for (uint16_t slot = 0; slot < coord->members.n; slot++) {
        votes[slot] = slot == 0 || (has_joined(coord, queue, slot) &&
                                    is_same(&queue->reported[slot].epoch, &queue->plan.epoch));
    }
    return quorum_until(coord, queue, votes) > 0;
}

static void renew_self(struct co_step *step, struct co_coord_queue *queue)
{
    queue->quorum_until = promised_until(step, queue);
    if (queue->quorum_until > step->now) {
        queue->promise_until = queue->quorum_until;
        lease(step, queue, queue->quorum_until);
    }
}

static bool steps_down(struct co_step *step, struct co_coord_queue *queue)
{
    if (queue->role != CO_COORD_OWNS || step->now < queue->quorum_until ||
        CO_MUTATED(CO_MUTATE_NEVER_STEP_DOWN)) {
        return false;
    }
    queue->role = CO_COORD_FOLLOWS;
    queue->dirty = false;
    queue->promise_until = step->now;
    co_coord_tell(step, CO_COORD_DISOWN, queue->config.queue);
    return true;
}

/* --- as the owner: what each may hold --- */

static void add_ghost(struct co_coord_queue *queue, struct co_coord_ghost ghost)
{
    if (ghost.held == 0 || CO_MUTATED(CO_MUTATE_NO_GHOSTS)) {
        return;
    }
    if (queue->n_ghosts < CO_COORD_GHOSTS_MAX) {
        queue->ghosts[queue->n_ghosts++] = ghost;
        return;
    }
    struct co_coord_ghost *last = &queue->ghosts[CO_COORD_GHOSTS_MAX - 1];
    last->held += ghost.held;
    last->until = last->until > ghost.until ? last->until : ghost.until;
}

void co_strict_gone(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                    bool good_bye)
{
    const struct co_coord_reported *reported = &queue->reported[slot];
    uint64_t id = step->coord->members.at[slot].id;

    if (queue->config.split != CO_FLEET_STRICT) {
        return;
    }
    if (queue->promise_owner == id) {
        queue->promise_owner = 0; /* The next process of this name must ask anew. */
        if (good_bye) {
            queue->promise_until = step->now;
        }
    }
    if (queue->role == CO_COORD_OWNS) {
        if (!good_bye) {
            add_ghost(queue, (struct co_coord_ghost){id, reported->incarnation, reported->held,
                                                     reported->held_until});
        }
        co_coord_dirty(queue, step->now);
    }
}

/* What the last plan says of those that have not told us themselves. */
static void inherit_seat(struct co_step *step, struct co_coord_queue *queue,
                         const struct co_fleet_seat *seat)
{
    struct co_coord *coord = step->coord;
    uint16_t slot = co_members_find(&coord->members, seat->id);
    co_ms hold = co_strict_hold(&queue->config);
    co_ms until = step->now + (queue->plan.hold_ms > hold ? queue->plan.hold_ms : hold);

    if (slot == CO_MEMBERS_NONE || coord->members.at[slot].incarnation != seat->incarnation ||
        coord->members.at[slot].state == CO_MEMBER_LEFT) {
        if (slot == CO_MEMBERS_NONE || coord->members.at[slot].state != CO_MEMBER_LEFT) {
            add_ghost(queue,
                      (struct co_coord_ghost){seat->id, seat->incarnation, seat->held, until});
        }
        return;
    }
    struct co_coord_reported *reported = &queue->reported[slot];
    if (slot != 0 && !has_joined(coord, queue, slot)) {
        reported->incarnation = seat->incarnation;
        reported->held = seat->held;
        reported->held_until = until;
    }
}

static void take_over(struct co_step *step, struct co_coord_queue *queue)
{
    struct co_coord *coord = step->coord;

    queue->n_ghosts = 0;
    queue->reported[0].held = max_u32(queue->limit, co_coord_running(queue));
    for (uint16_t slot = 1; slot < coord->members.n; slot++) {
        struct co_coord_reported *reported = &queue->reported[slot];
        reported->held =
            has_joined(coord, queue, slot) ? max_u32(reported->grant, reported->load.running) : 0;
        reported->held_until = reported->heard_at + reported->hold_ms;
    }
    for (size_t i = 0; i < queue->plan.n_seats && !CO_MUTATED(CO_MUTATE_NO_TAKEOVER); i++) {
        inherit_seat(step, queue, &queue->plan.seats[i]);
    }
    queue->role = CO_COORD_OWNS;
    queue->seq = 0;
    queue->committed = (struct co_fleet_epoch){0};
    queue->committed_voters = queue->plan.voters;
    queue->has_target = queue->plan.epoch.term != 0;
    if (queue->has_target) {
        queue->target = queue->plan.target;
    }
    renew_self(step, queue);
    co_coord_tell(step, CO_COORD_OWN, queue->config.queue);
    queue->spread = true;
    queue->issued_at = 0;
    co_coord_dirty(queue, step->now);
}

/* Do we know the newest plan that any of those who promised knows? */
static bool is_informed(const struct co_coord *coord, const struct co_coord_queue *queue)
{
    for (uint16_t slot = 1; slot < coord->members.n; slot++) {
        if (has_joined(coord, queue, slot) &&
            co_fleet_epoch_compare(&queue->reported[slot].epoch, &queue->plan.epoch) > 0) {
            return false;
        }
    }
    return true;
}

static void try_to_own(struct co_step *step, struct co_coord_queue *queue)
{
    if (queue->role == CO_COORD_CLAIMS && is_informed(step->coord, queue) &&
        promised_until(step, queue) > step->now) {
        take_over(step, queue);
    }
}

static bool could_own(const struct co_step *step, const struct co_coord_queue *queue)
{
    const struct co_coord *coord = step->coord;
    uint32_t n = 0;
    for (uint16_t slot = 0; slot < coord->members.n; slot++) {
        n += co_members_is_alive(&coord->members, slot) && !coord->members.at[slot].deaf &&
             co_coord_serves(queue, slot);
    }
    bool bound = step->now < queue->promise_until && queue->promise_owner != coord->config.id;
    return queue->owner == coord->config.id && !bound && 2 * n >= voters(coord, queue);
}

static void claim(struct co_step *step, struct co_coord_queue *queue)
{
    struct co_coord *coord = step->coord;

    if (queue->role == CO_COORD_OWNS) {
        return;
    }
    if (!could_own(step, queue)) {
        queue->role = CO_COORD_FOLLOWS;
        return;
    }
    if (queue->role != CO_COORD_CLAIMS || step->now >= queue->claim_stamp + CLAIM_MS) {
        queue->role = CO_COORD_CLAIMS;
        queue->term =
            (queue->top_term > queue->promise_term ? queue->top_term : queue->promise_term) + 1;
        queue->top_term = queue->term;
        queue->claim_stamp = step->now;
    }
    promise(step, queue, queue->term, coord->config.id);
    co_coord_post_all(step, CO_FLEET_CLAIM, co_coord_index(coord, queue));
    try_to_own(step, queue);
}

/* --- as the owner: plans --- */

static bool is_living(const struct co_step *step, const struct co_coord_queue *queue, uint16_t slot)
{
    const struct co_coord *coord = step->coord;
    return co_members_is_alive(&coord->members, slot) && has_joined(coord, queue, slot) &&
           (slot == 0 || step->now - queue->reported[slot].heard_at <= CO_FLEET_LEASE_MS);
}

static size_t put_seat(struct co_fleet_seat *seats, size_t n, struct co_fleet_seat seat)
{
    size_t at = n;
    for (; at > 0 && (seats[at - 1].id > seat.id || (seats[at - 1].id == seat.id &&
                                                     seats[at - 1].incarnation > seat.incarnation));
         at--) {
        seats[at] = seats[at - 1];
    }
    seats[at] = seat;
    return n + 1;
}

/* Everybody who may have or hold something. *ret_max becomes the lowest maximum of their policies,
 * *ret_tie the lowest id that lives. */
static size_t gather(const struct co_step *step, const struct co_coord_queue *queue,
                     struct co_fleet_seat *seats, uint32_t *ret_max, uint64_t *ret_tie,
                     uint32_t *ret_alive)
{
    const struct co_coord *coord = step->coord;
    size_t n = 0;

    *ret_max = queue->config.max;
    *ret_tie = UINT64_MAX;
    *ret_alive = 0;
    for (uint16_t slot = 0; slot < coord->members.n; slot++) {
        const struct co_coord_reported *reported = &queue->reported[slot];
        const struct co_member *member = &coord->members.at[slot];
        bool alive = co_members_is_alive(&coord->members, slot) && co_coord_serves(queue, slot);
        bool living = alive && is_living(step, queue, slot);
        if (!alive && reported->held == 0) {
            continue;
        }
        if (living && slot != 0) {
            *ret_max = min_u32(*ret_max, reported->max);
        }
        if (living && member->id < *ret_tie) {
            *ret_tie = member->id;
        }
        *ret_alive += alive;
        n = put_seat(seats, n,
                     (struct co_fleet_seat){
                         .id = member->id,
                         .incarnation = member->incarnation,
                         .capacity = living ? co_coord_capacity(coord, queue, slot) : 0,
                         .held = reported->held,
                     });
    }
    for (uint32_t i = 0; i < queue->n_ghosts && n < CO_FLEET_AGENTS_MAX; i++) {
        const struct co_coord_ghost *ghost = &queue->ghosts[i];
        n = put_seat(seats, n,
                     (struct co_fleet_seat){
                         .id = ghost->id, .incarnation = ghost->incarnation, .held = ghost->held});
    }
    return n;
}

/* Shares are the goal; grants go down at once, and up only as far as others have let go. */
static void grant(struct co_fleet_seat *seats, size_t n, uint32_t max)
{
    uint64_t held = 0;
    for (size_t i = 0; i < n; i++) {
        held += CO_MUTATED(CO_MUTATE_GROW_UNCONFIRMED) ? min_u32(seats[i].share, seats[i].held)
                                                       : seats[i].held;
    }
    uint32_t left = held < max ? max - (uint32_t)held : 0;
    for (size_t i = 0; i < n; i++) {
        struct co_fleet_seat *seat = &seats[i];
        seat->grant = min_u32(seat->share, seat->held);
        if (seat->share > seat->held) {
            uint32_t more = min_u32(seat->share - seat->held, left);
            seat->grant += more;
            left -= more;
        }
        seat->held = max_u32(seat->held, seat->grant);
    }
}

static bool differs(const struct co_fleet_plan *plan, const struct co_fleet_seat *seats, size_t n)
{
    bool differ = n != plan->n_seats;
    for (size_t i = 0; i < n && !differ; i++) {
        const struct co_fleet_seat *was = &plan->seats[i];
        differ = was->id != seats[i].id || was->incarnation != seats[i].incarnation ||
                 was->share != seats[i].share || was->grant != seats[i].grant;
    }
    return differ;
}

static void set_ties(struct co_coord_queue *queue, uint64_t lowest)
{
    struct co_fleet_plan *plan = &queue->plan;
    if (lowest == UINT64_MAX) {
        return;
    }
    if (plan->tie == 0) {
        plan->tie = lowest;
        plan->tie_next = lowest;
    } else if (is_same(&queue->committed, &plan->epoch)) {
        if (plan->tie != plan->tie_next) {
            plan->tie = plan->tie_next;
        } else {
            plan->tie_next = lowest;
        }
    }
}

static uint32_t goal(const struct co_coord *coord, const struct co_coord_queue *queue,
                     const struct co_fleet_seat *seats, size_t n, uint32_t max)
{
    uint64_t held = 0;
    if (queue->has_target) {
        return min_u32(co_coord_wanted(coord, queue), max);
    }
    for (size_t i = 0; i < n; i++) { /* Not yet known: nobody is cut, nobody grows. */
        held += seats[i].held;
    }
    return held < max ? (uint32_t)held : max;
}

static void commit(struct co_step *step, struct co_coord_queue *queue)
{
    struct co_coord *coord = step->coord;

    if (queue->role != CO_COORD_OWNS || is_same(&queue->committed, &queue->plan.epoch) ||
        queue->plan.epoch.term != queue->term || !is_held_by_majority(step, queue)) {
        return;
    }
    queue->committed = queue->plan.epoch;
    queue->committed_voters = queue->plan.voters;
    queue->knows = true;
    queue->fenced = false;
    lease(step, queue, queue->quorum_until);
    co_coord_limit(step, queue, granted(coord, queue));
    for (uint16_t slot = 1; slot < coord->members.n; slot++) {
        if (has_joined(coord, queue, slot) && co_members_is_alive(&coord->members, slot) &&
            is_same(&queue->reported[slot].epoch, &queue->plan.epoch)) {
            co_coord_post(step, CO_FLEET_ACK, co_coord_index(coord, queue),
                          coord->members.at[slot].id);
        }
    }
    co_coord_dirty(queue, step->now);
}

/* The plan's word on each is from now on the least it may hold. */
static void book(struct co_coord *coord, struct co_coord_queue *queue)
{
    for (size_t i = 0; i < queue->plan.n_seats; i++) {
        const struct co_fleet_seat *seat = &queue->plan.seats[i];
        uint16_t slot = co_members_find(&coord->members, seat->id);
        if (slot != CO_MEMBERS_NONE && coord->members.at[slot].incarnation == seat->incarnation) {
            queue->reported[slot].held = seat->held;
        }
    }
}

static void issue(struct co_step *step, struct co_coord_queue *queue,
                  const struct co_fleet_seat *seats, size_t n)
{
    struct co_coord *coord = step->coord;
    struct co_fleet_plan *plan = &queue->plan;

    memcpy(plan->seats, seats, n * sizeof seats[0]);
    plan->n_seats = (uint16_t)n;
    plan->queue = queue->config.queue;
    plan->epoch = (struct co_fleet_epoch){queue->term, coord->config.id, ++queue->seq};
    plan->policy_hash = queue->config.policy_hash;
    plan->split = CO_FLEET_STRICT;
    plan->on_fence = queue->config.on_fence;
    plan->hold_ms = (uint32_t)co_strict_hold(&queue->config);
    for (uint16_t slot = 1; slot < coord->members.n; slot++) {
        if (has_joined(coord, queue, slot)) {
            plan->hold_ms = max_u32(plan->hold_ms, queue->reported[slot].hold_ms);
        }
    }
    book(coord, queue);
    queue->issued_at = step->now;
    queue->plan_at = step->now;
    uint32_t limit = min_u32(queue->limit, granted(coord, queue));
    co_coord_limit(step, queue, limit);
    queue->reported[0].held = max_u32(granted(coord, queue), co_coord_running(queue));
    co_coord_broadcast(step, queue);
    commit(step, queue);
}

void co_strict_issue(struct co_step *step, struct co_coord_queue *queue)
{
    struct co_coord *coord = step->coord;
    struct co_fleet_seat seats[CO_FLEET_AGENTS_MAX];
    uint32_t max;
    uint32_t alive;
    uint64_t lowest;

    bool open = queue->plan.epoch.term == queue->term && queue->seq > 0 &&
                !is_same(&queue->committed, &queue->plan.epoch);
    co_ms due = queue->issued_at + (open ? COMMIT_MS : CO_COORD_PLAN_GAP_MS / 2);
    if (queue->issued_at != 0 && step->now < due) {
        queue->plan_due = due;
        return;
    }
    queue->dirty = false;
    queue->reported[0].held = max_u32(granted(coord, queue), co_coord_running(queue));
    if (queue->seq == 0) {
        queue->reported[0].held = max_u32(queue->limit, co_coord_running(queue));
    }
    size_t n = gather(step, queue, seats, &max, &lowest, &alive);
    uint32_t target = goal(coord, queue, seats, n, max);
    co_plan_split(seats, n, target);
    grant(seats, n, max);
    uint32_t of = max_u32(coord->config.expected, alive);
    bool tie = is_same(&queue->committed, &queue->plan.epoch) &&
               (queue->plan.tie != queue->plan.tie_next || lowest != queue->plan.tie_next);
    if (!queue->spread && !tie && target == queue->plan.target && of == queue->plan.voters &&
        max == queue->plan.max && !differs(&queue->plan, seats, n)) {
        return;
    }
    set_ties(queue, lowest);
    queue->plan.target = target;
    queue->plan.max = max;
    queue->plan.voters = of;
    issue(step, queue, seats, n);
}

void co_strict_plan(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                    const struct co_fleet_plan *plan)
{
    struct co_coord *coord = step->coord;
    uint64_t from = coord->members.at[slot].id;
    bool newer = co_fleet_epoch_compare(&plan->epoch, &queue->plan.epoch) > 0 ||
                 CO_MUTATED(CO_MUTATE_OLD_EPOCHS);

    if (from != plan->epoch.owner) { /* Told to a candidate by those who know more. */
        if (queue->role == CO_COORD_CLAIMS && newer) {
            store(step, queue, plan);
            try_to_own(step, queue);
        }
        return;
    }
    if (queue->role == CO_COORD_OWNS || !may_promise(queue, plan->epoch.term, from, step->now)) {
        return;
    }
    queue->role = CO_COORD_FOLLOWS;
    promise(step, queue, plan->epoch.term, from);
    if (plan->stamp > queue->owner_stamp) {
        queue->owner_stamp = plan->stamp;
    }
    if (newer) {
        store(step, queue, plan);
    }
    report_now(step, queue);
}

static void hear_member(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                        const struct co_fleet_report_entry *entry)
{
    struct co_coord *coord = step->coord;
    struct co_coord_reported *reported = &queue->reported[slot];
    const struct co_member *member = &coord->members.at[slot];
    const struct co_fleet_seat *seat = co_coord_seat(&queue->plan, member->id, member->incarnation);
    bool first = reported->term != queue->term;
    bool latest = is_same(&entry->epoch, &queue->plan.epoch);
    uint32_t grants = seat != NULL ? seat->grant : 0;
    uint32_t running = CO_MUTATED(CO_MUTATE_FORGET_RUNNING) ? 0 : entry->load.running;
    uint32_t was = reported->held;

    if (queue->role == CO_COORD_OWNS && latest) {
        reported->held = max_u32(grants, running);
    } else if (queue->role == CO_COORD_OWNS && first) {
        reported->held = max_u32(max_u32(entry->grant, running),
                                 queue->plan.epoch.term == queue->term ? grants : 0);
    }
    co_ms hold = co_strict_hold(&queue->config);
    reported->held_until = step->now + (entry->hold_ms > hold ? entry->hold_ms : hold);
    reported->term = queue->term;
    if (entry->echo > queue->claim_stamp) {
        co_ms from = CO_MUTATED(CO_MUTATE_STALE_VOTES) ? step->now : entry->echo - 1;
        co_ms until = from + PROMISE_MS - MARGIN(PROMISE_MS);
        reported->vote_until = first || until > reported->vote_until ? until : reported->vote_until;
    } else if (first) {
        reported->vote_until = 0;
    }
    if (queue->role == CO_COORD_OWNS && (first || was != reported->held)) {
        co_coord_dirty(queue, step->now);
    }
}

void co_strict_report(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                      co_ms stamp, const struct co_fleet_report_entry *entry)
{
    struct co_coord *coord = step->coord;
    uint64_t from = coord->members.at[slot].id;
    size_t index = co_coord_index(coord, queue);

    (void)stamp;
    if (queue->role == CO_COORD_FOLLOWS || entry->term != queue->term || steps_down(step, queue)) {
        if (queue->reported[slot].term == queue->term) {
            queue->reported[slot].term = 0; /* It heeds another. */
        }
        return;
    }
    hear_member(step, queue, slot, entry);
    try_to_own(step, queue);
    if (queue->role != CO_COORD_OWNS || queue->seq == 0) {
        return;
    }
    bool latest = is_same(&entry->epoch, &queue->plan.epoch);
    if (!latest && step->now >= queue->issued_at + CO_COORD_RESEND_MS &&
        !CO_MUTATED(CO_MUTATE_NO_RESEND)) {
        co_coord_post(step, CO_FLEET_PLAN, index, from);
    }
    if (latest && (entry->flags & CO_FLEET_FENCED) != 0 &&
        is_same(&queue->committed, &queue->plan.epoch)) {
        queue->spread = true; /* It runs nothing under this plan any more: another must come. */
        co_coord_dirty(queue, queue->issued_at + CO_COORD_RESEND_MS);
    }
    co_coord_post(step, CO_FLEET_ACK, index, from);
    commit(step, queue);
}

/* Once a beat, as the owner: what was held long enough is free; who has not joined is asked. */
static void look_after(struct co_step *step, struct co_coord_queue *queue)
{
    struct co_coord *coord = step->coord;

    renew_self(step, queue);
    for (uint16_t slot = 1; slot < coord->members.n; slot++) {
        struct co_coord_reported *reported = &queue->reported[slot];
        if (reported->held > 0 && step->now >= reported->held_until) {
            reported->held = 0;
            reported->term = 0;
            co_coord_dirty(queue, step->now);
        }
        if (!co_members_is_alive(&coord->members, slot) || !co_coord_serves(queue, slot)) {
            continue;
        }
        bool silent = step->now - reported->heard_at > 2 * CO_COORD_REPORT_MS ||
                      !has_joined(coord, queue, slot);
        if (silent && (coord->beats + slot) % RESEND_TICKS == 0 && queue->seq > 0) {
            co_coord_post(step, CO_FLEET_PLAN, co_coord_index(coord, queue),
                          coord->members.at[slot].id);
        }
        if (!is_living(step, queue, slot) && reported->held > 0) {
            co_coord_dirty(queue, step->now);
        }
    }
    for (uint32_t i = 0; i < queue->n_ghosts;) {
        if (step->now >= queue->ghosts[i].until) {
            queue->ghosts[i] = queue->ghosts[--queue->n_ghosts];
            co_coord_dirty(queue, step->now);
        } else {
            i++;
        }
    }
}

void co_strict_tick(struct co_step *step, struct co_coord_queue *queue, bool beat)
{
    if (beat && queue->role == CO_COORD_OWNS) {
        look_after(step, queue);
    }
    steps_down(step, queue);
    if (queue->lease_until != 0 && step->now >= queue->lease_until &&
        !CO_MUTATED(CO_MUTATE_NO_FENCE)) {
        fence(step, queue);
    }
    if (beat && !step->coord->left) {
        claim(step, queue);
    }
}
