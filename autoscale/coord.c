#include "autoscale/coord.h"

#include <assert.h>
#include <string.h>

#include "autoscale/coord_impl.h"
#include "autoscale/plan.h"
#include "proto/err.h"

#define HELLO_BEATS 3 /* Beats that list our queues after somebody is new ... */
#define HELLO_EVERY 5 /* ... and one in so many for ever. */
#define OVERRIDE_BEATS 2

#ifdef CO_COORD_MUTATIONS
enum co_mutation co_mutation;
#endif

/* --- helpers shared with the two splits --- */

struct co_coord_change *co_coord_tell(struct co_step *step, enum co_coord_change_type type,
                                      uint64_t queue)
{
    static const struct co_coord_change none;
    struct co_coord_update *update = step->update;
    /* The last place takes what does not fit: alarms give way first in practice, as limits come
     * from one queue at a time. */
    size_t at =
        update->n_changes < CO_COORD_CHANGES_MAX ? update->n_changes++ : CO_COORD_CHANGES_MAX - 1;
    struct co_coord_change *change = &update->changes[at];
    *change = none;
    change->type = type;
    change->queue = queue;
    return change;
}

static bool post(struct co_step *step, struct co_coord_send send)
{
    struct co_coord_update *update = step->update;
    if (update->n_sends == CO_COORD_SENDS_MAX) {
        return false;
    }
    update->sends[update->n_sends++] = send;
    return true;
}

bool co_coord_post(struct co_step *step, enum co_fleet_kind kind, size_t queue, uint64_t to)
{
    return post(step,
                (struct co_coord_send){.kind = (uint8_t)kind, .queue = (uint16_t)queue, .to = to});
}

bool co_coord_post_all(struct co_step *step, enum co_fleet_kind kind, size_t queue)
{
    return post(step, (struct co_coord_send){
                          .kind = (uint8_t)kind, .queue = (uint16_t)queue, .to_all = true});
}

size_t co_coord_index(const struct co_coord *coord, const struct co_coord_queue *queue)
{
    return (size_t)(queue - coord->queues);
}

bool co_coord_serves(const struct co_coord_queue *queue, uint16_t slot)
{
    return slot == 0 || (queue->serves[slot / 8] >> (slot % 8) & 1) != 0;
}

const struct co_fleet_seat *co_coord_seat(const struct co_fleet_plan *plan, uint64_t id,
                                          uint64_t incarnation)
{
    size_t low = 0;
    size_t high = plan->n_seats;
    while (low < high) {
        size_t mid = (low + high) / 2;
        const struct co_fleet_seat *seat = &plan->seats[mid];
        if (seat->id == id && seat->incarnation == incarnation) {
            return seat;
        }
        if (seat->id < id || (seat->id == id && seat->incarnation < incarnation)) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return NULL;
}

uint32_t co_coord_running(const struct co_coord_queue *queue)
{
    return queue->unsure > queue->load.running ? queue->unsure : queue->load.running;
}

void co_coord_limit(struct co_step *step, struct co_coord_queue *queue, uint32_t workers)
{
    if (queue->limit == workers) {
        return;
    }
    if (workers < queue->limit && queue->limit > queue->unsure) {
        queue->unsure = queue->limit;
    }
    queue->limit = workers;
    struct co_coord_change *change = co_coord_tell(step, CO_COORD_LIMIT, queue->config.queue);
    change->workers = workers;
    change->until = queue->config.split == CO_FLEET_STRICT ? queue->lease_until : (co_ms)UINT64_MAX;
}

void co_coord_dirty(struct co_coord_queue *queue, co_ms due)
{
    if (!queue->dirty || due < queue->plan_due) {
        queue->plan_due = due;
    }
    queue->dirty = true;
}

static struct co_coord_queue *find_queue(struct co_coord *coord, uint64_t id)
{
    for (size_t i = 0; i < coord->n_queues; i++) {
        if (coord->queues[i].used && coord->queues[i].config.queue == id) {
            return &coord->queues[i];
        }
    }
    return NULL;
}

uint32_t co_coord_capacity(const struct co_coord *coord, const struct co_coord_queue *queue,
                           uint16_t slot)
{
    const struct co_member *member = &coord->members.at[slot];
    if (slot == 0) {
        return coord->draining ? 0 : queue->load.capacity;
    }
    if (member->draining && !CO_MUTATED(CO_MUTATE_DRAIN_SHARE)) {
        return 0;
    }
    if (queue->reported[slot].incarnation == member->incarnation) {
        return queue->reported[slot].load.capacity;
    }
    const struct co_fleet_seat *seat = co_coord_seat(&queue->plan, member->id, member->incarnation);
    return seat != NULL ? seat->capacity : 0;
}

void co_coord_broadcast(struct co_step *step, struct co_coord_queue *queue)
{
    struct co_coord *coord = step->coord;
    size_t index = co_coord_index(coord, queue);
    bool all = true;

    for (uint16_t slot = 1; slot < coord->members.n && all; slot++) {
        all = !co_members_is_alive(&coord->members, slot) || co_coord_serves(queue, slot);
    }
    if (all) {
        queue->spread = !co_coord_post_all(step, CO_FLEET_PLAN, index);
        return;
    }
    queue->spread = false;
    for (uint16_t slot = 1; slot < coord->members.n; slot++) {
        if (co_members_is_alive(&coord->members, slot) && co_coord_serves(queue, slot) &&
            !co_coord_post(step, CO_FLEET_PLAN, index, coord->members.at[slot].id)) {
            queue->spread = true;
        }
    }
}

/* --- overrides --- */

static bool is_newer(const struct co_fleet_override *a, const struct co_fleet_override *b)
{
    bool newer = a->epoch != b->epoch ? a->epoch > b->epoch : a->agent > b->agent;
    return CO_MUTATED(CO_MUTATE_OVERRIDE_OLDEST)
               ? (a->epoch != b->epoch ? a->epoch < b->epoch : a->agent < b->agent)
               : newer;
}

static struct co_fleet_override *find_override(struct co_coord *coord, uint64_t queue)
{
    for (size_t i = 0; i < coord->n_overrides; i++) {
        if (coord->overrides[i].queue == queue) {
            return &coord->overrides[i];
        }
    }
    return NULL;
}

static bool has_ended(const struct co_coord *coord, const struct co_fleet_override *override)
{
    return override->action == CO_FLEET_RESUME ||
           (override->expires != 0 && coord->wall != 0 && override->expires <= coord->wall);
}

const struct co_fleet_override *co_coord_override(const struct co_coord *coord, uint64_t queue)
{
    for (size_t i = 0; i < coord->n_overrides; i++) {
        if (coord->overrides[i].queue == queue && !has_ended(coord, &coord->overrides[i])) {
            return &coord->overrides[i];
        }
    }
    return NULL;
}

static uint64_t overrides_digest(const struct co_coord *coord)
{
    uint64_t digest = 0;
    for (size_t i = 0; i < coord->n_overrides; i++) {
        const struct co_fleet_override *override = &coord->overrides[i];
        digest += co_plan_weight(override->queue ^ override->epoch << 20, override->agent);
    }
    return digest;
}

/* Room for one more: an ended one gives way. */
static struct co_fleet_override *override_room(struct co_coord *coord)
{
    if (coord->n_overrides < CO_FLEET_OVERRIDES_MAX) {
        return &coord->overrides[coord->n_overrides++];
    }
    for (size_t i = 0; i < coord->n_overrides; i++) {
        if (has_ended(coord, &coord->overrides[i])) {
            return &coord->overrides[i];
        }
    }
    return NULL;
}

static int merge_override(struct co_step *step, const struct co_fleet_override *override)
{
    struct co_coord *coord = step->coord;
    struct co_fleet_override *mine = find_override(coord, override->queue);

    if (mine != NULL && !is_newer(override, mine)) {
        return CO_OK;
    }
    if (mine == NULL) {
        mine = override_room(coord);
        if (mine == NULL) {
            return CO_EFULL;
        }
    }
    *mine = *override;
    coord->gossip_override = OVERRIDE_BEATS;
    co_coord_tell(step, CO_COORD_OVERRIDDEN, override->queue);
    struct co_coord_queue *queue = find_queue(coord, override->queue);
    if (queue != NULL) {
        co_coord_dirty(queue, step->now);
    }
    return CO_OK;
}

static int step_override(struct co_step *step, const struct co_fleet_override *given)
{
    struct co_coord *coord = step->coord;
    struct co_fleet_override override = *given;

    if (override.epoch == 0) {
        /* Given here, now. By the clock too: it must beat a word of last week that this agent, just
         * started, has not yet heard of. */
        override.epoch = coord->wall > 0 ? (uint64_t)coord->wall : 0;
        for (size_t i = 0; i < coord->n_overrides; i++) {
            if (coord->overrides[i].epoch >= override.epoch) {
                override.epoch = coord->overrides[i].epoch + 1;
            }
        }
        override.epoch += override.epoch == 0; /* No clock and no other: 0 says "given here". */
        override.agent = coord->config.id;
    }
    override.by[sizeof override.by - 1] = '\0';
    override.reason[sizeof override.reason - 1] = '\0';
    return merge_override(step, &override);
}

static void expire_overrides(struct co_step *step, co_unix was)
{
    struct co_coord *coord = step->coord;
    for (size_t i = 0; was != coord->wall && i < coord->n_overrides; i++) {
        const struct co_fleet_override *override = &coord->overrides[i];
        if (override->expires > was && override->expires <= coord->wall) {
            co_coord_tell(step, CO_COORD_OVERRIDDEN, override->queue);
            struct co_coord_queue *queue = find_queue(coord, override->queue);
            if (queue != NULL) {
                co_coord_dirty(queue, step->now);
            }
        }
    }
}

uint32_t co_coord_wanted(const struct co_coord *coord, const struct co_coord_queue *queue)
{
    const struct co_fleet_override *override = co_coord_override(coord, queue->config.queue);
    uint32_t wanted = queue->target;
    if (override != NULL) {
        wanted = override->action == CO_FLEET_PAUSE ? 0 : override->value;
    }
    return wanted < queue->config.max ? wanted : queue->config.max;
}

/* --- views --- */

static uint64_t pick_owner(const struct co_coord *coord, const struct co_coord_queue *queue,
                           bool draining)
{
    uint64_t best = 0;
    uint64_t best_weight = 0;
    for (uint16_t slot = 0; slot < coord->members.n; slot++) {
        const struct co_member *member = &coord->members.at[slot];
        bool drains = slot == 0 ? coord->draining : member->draining;
        if (!co_members_is_alive(&coord->members, slot) || member->deaf ||
            !co_coord_serves(queue, slot) || (drains && !draining)) {
            continue;
        }
        uint64_t weight = co_plan_weight(queue->config.queue, member->id);
        if (best == 0 || weight > best_weight) {
            best = member->id;
            best_weight = weight;
        }
    }
    return best;
}

static void view_queue(struct co_step *step, struct co_coord_queue *queue)
{
    struct co_coord *coord = step->coord;
    uint64_t was = queue->owner;
    uint64_t owner = pick_owner(coord, queue, false);

    if (owner == 0) {
        owner = pick_owner(coord, queue, true);
    }
    if (owner == coord->config.id && step->now < coord->started_at + coord->config.settle_ms) {
        owner = 0;
    }
    queue->owner = owner;
    if (owner != was) {
        queue->report_urgent = true;
        queue->report_due = step->now;
    }
    if (queue->config.split == CO_FLEET_AVAILABLE) {
        co_available_view(step, queue, was);
    } else if (queue->role == CO_COORD_OWNS) {
        co_coord_dirty(queue, step->now);
    }
}

static void view(struct co_step *step)
{
    struct co_coord *coord = step->coord;
    coord->view_dirty = step->now < coord->started_at + coord->config.settle_ms;
    for (size_t i = 0; i < coord->n_queues; i++) {
        if (coord->queues[i].used) {
            view_queue(step, &coord->queues[i]);
        }
    }
}

static void forget_reports(struct co_step *step, uint16_t slot, bool good_bye)
{
    struct co_coord *coord = step->coord;
    for (size_t i = 0; i < coord->n_queues; i++) {
        struct co_coord_queue *queue = &coord->queues[i];
        if (queue->used) {
            co_strict_gone(step, queue, slot, good_bye);
            queue->reported[slot] = (struct co_coord_reported){0};
            queue->serves[slot / 8] &= (uint8_t) ~(1u << (slot % 8));
        }
    }
}

static void tell_member(struct co_step *step, uint16_t slot)
{
    struct co_coord_change *change = co_coord_tell(step, CO_COORD_MEMBER, 0);
    change->agent = step->coord->members.at[slot].id;
    change->state = step->coord->members.at[slot].state;
}

static void alarm(struct co_step *step, enum co_coord_alarm what, uint64_t agent)
{
    struct co_coord_change *change = co_coord_tell(step, CO_COORD_ALARM, 0);
    change->alarm = what;
    change->agent = agent;
}

/* --- messages --- */

static void step_serves(struct co_step *step, uint16_t slot, const struct co_fleet_beat *beat)
{
    struct co_coord *coord = step->coord;
    for (size_t i = 0; i < coord->n_queues; i++) {
        struct co_coord_queue *queue = &coord->queues[i];
        bool serves = false;
        for (size_t j = 0; j < beat->n_queues && !serves; j++) {
            serves = beat->queues[j] == queue->config.queue;
        }
        if (queue->used && serves != co_coord_serves(queue, slot)) {
            queue->serves[slot / 8] ^= (uint8_t)(1u << (slot % 8));
            coord->view_dirty = true;
        }
    }
}

static bool misses(const struct co_fleet_beat *beat, const struct co_coord_config *self)
{
    for (size_t i = 0; i < beat->n_downs; i++) {
        if (beat->downs[i].id == self->id && beat->downs[i].incarnation == self->incarnation) {
            return true;
        }
    }
    return false;
}

static void step_beat(struct co_step *step, uint16_t slot, const struct co_fleet_msg *msg)
{
    struct co_coord *coord = step->coord;
    struct co_member *member = &coord->members.at[slot];
    const struct co_fleet_beat *beat = &msg->beat;

    if (msg->seq <= member->beat_seq && !CO_MUTATED(CO_MUTATE_STALE_BEATS)) {
        return;
    }
    member->beat_seq = msg->seq;
    member->lag_ms = beat->lag_ms;
    bool deaf = misses(beat, &coord->config);
    bool draining = (beat->flags & CO_FLEET_DRAINING) != 0;
    coord->view_dirty |= deaf != member->deaf || draining != member->draining;
    member->deaf = deaf;
    member->draining = draining;
    for (size_t i = 0; i < beat->n_relays; i++) {
        co_members_relay(&coord->members, &beat->relays[i], step->now);
    }
    if ((beat->flags & CO_FLEET_QUEUES) != 0) {
        step_serves(step, slot, beat);
    }
    for (size_t i = 0; i < beat->n_overrides; i++) {
        merge_override(step, &beat->overrides[i]);
    }
    if (beat->overrides_digest != overrides_digest(coord) && coord->gossip_override == 0) {
        coord->gossip_override = 1;
    }
    if ((beat->flags & CO_FLEET_HELLO) != 0) {
        co_coord_post(step, CO_FLEET_BEAT, 0, msg->from);
    }
    if ((beat->flags & CO_FLEET_LEAVING) != 0 && co_members_leave(&coord->members, slot)) {
        tell_member(step, slot);
        forget_reports(step, slot, true);
        coord->view_dirty = true;
    }
}

static void see_skew(struct co_step *step, const struct co_coord_queue *queue, uint16_t slot,
                     const struct co_fleet_report_entry *entry)
{
    if (entry->policy_hash != queue->config.policy_hash &&
        entry->policy_hash != queue->reported[slot].policy_hash) {
        struct co_coord_change *change = co_coord_tell(step, CO_COORD_ALARM, queue->config.queue);
        change->alarm = CO_COORD_SKEW;
        change->agent = step->coord->members.at[slot].id;
    }
}

static void step_report(struct co_step *step, uint16_t slot, const struct co_fleet_msg *msg)
{
    struct co_coord *coord = step->coord;
    for (size_t i = 0; i < msg->report.n_entries; i++) {
        const struct co_fleet_report_entry *entry = &msg->report.entries[i];
        struct co_coord_queue *queue = find_queue(coord, entry->queue);
        if (queue == NULL || (queue->reported[slot].incarnation == msg->incarnation &&
                              msg->report.stamp <= queue->reported[slot].stamp)) {
            continue;
        }
        see_skew(step, queue, slot, entry);
        if (entry->epoch.term > queue->top_term) {
            queue->top_term = entry->epoch.term;
        }
        struct co_coord_reported *reported = &queue->reported[slot];
        uint32_t capacity = co_coord_capacity(coord, queue, slot);
        reported->incarnation = msg->incarnation;
        reported->stamp = msg->report.stamp;
        reported->heard_at = step->now;
        reported->load = entry->load;
        reported->policy_hash = entry->policy_hash;
        reported->max = entry->max;
        reported->hold_ms = entry->hold_ms;
        reported->grant = entry->grant;
        reported->epoch = entry->epoch;
        reported->flags = entry->flags;
        if (!co_coord_serves(queue, slot)) {
            queue->serves[slot / 8] |= (uint8_t)(1u << (slot % 8));
            coord->view_dirty = true;
        }
        if (queue->role == CO_COORD_OWNS && capacity != co_coord_capacity(coord, queue, slot)) {
            co_coord_dirty(queue, step->now);
        }
        if (queue->config.split == CO_FLEET_AVAILABLE) {
            co_available_report(step, queue, slot, entry);
        } else {
            co_strict_report(step, queue, slot, msg->report.stamp, entry);
        }
    }
}

static void step_plan(struct co_step *step, uint16_t slot, const struct co_fleet_msg *msg)
{
    struct co_coord_queue *queue = find_queue(step->coord, msg->plan.queue);
    if (queue == NULL || queue->config.split != (enum co_fleet_split)msg->plan.split) {
        return;
    }
    if (msg->plan.epoch.term > queue->top_term) {
        queue->top_term = msg->plan.epoch.term;
    }
    if (queue->config.split == CO_FLEET_AVAILABLE) {
        co_available_plan(step, queue, slot, &msg->plan);
    } else {
        co_strict_plan(step, queue, slot, &msg->plan);
    }
}

static void join(struct co_step *step, uint16_t slot, uint64_t was, bool is_new)
{
    struct co_coord *coord = step->coord;
    if (was != 0 || is_new) {
        forget_reports(step, slot, false);
    }
    for (size_t i = 0; i < coord->n_queues; i++) {
        if (coord->queues[i].owner == coord->members.at[slot].id) {
            coord->queues[i].report_due = step->now;
        }
    }
    tell_member(step, slot);
    coord->view_dirty = true;
    coord->hello = HELLO_BEATS;
    if (coord->config.expected != 0 && coord->members.alive > coord->config.expected) {
        alarm(step, CO_COORD_TOO_MANY, coord->members.at[slot].id);
    }
    co_coord_post(step, CO_FLEET_BEAT, 0, coord->members.at[slot].id);
}

static int hear(struct co_step *step, const struct co_coord_event *event, uint16_t *ret_slot)
{
    struct co_coord *coord = step->coord;
    const struct co_fleet_msg *msg = event->msg.msg;
    uint64_t was;
    bool is_new = co_members_find(&coord->members, msg->from) == CO_MEMBERS_NONE;

    switch (co_members_hear(&coord->members, msg, event->msg.link, step->now, ret_slot, &was)) {
    case CO_MEMBERS_SAME:
        return CO_OK;
    case CO_MEMBERS_JOINED:
        join(step, *ret_slot, was, is_new);
        return CO_OK;
    case CO_MEMBERS_STALE:
        return CO_EAGAIN;
    case CO_MEMBERS_CLAIMED:
        alarm(step, CO_COORD_CLAIMED_ID, msg->from);
        return CO_EBUSY;
    case CO_MEMBERS_FULL:
        alarm(step, CO_COORD_FULL, msg->from);
        return CO_EFULL;
    }
    assert(0);
    return CO_OK;
}

static int step_msg(struct co_step *step, const struct co_coord_event *event)
{
    struct co_coord *coord = step->coord;
    const struct co_fleet_msg *msg = event->msg.msg;
    uint16_t slot;

    int rc = co_fleet_check(msg);
    if (rc == CO_EVERSION) {
        alarm(step, CO_COORD_TOO_OLD, msg->from);
    }
    if (rc == CO_OK) {
        rc = hear(step, event, &slot);
    }
    if (rc != CO_OK) {
        return rc == CO_EAGAIN ? CO_OK : rc;
    }
    if (msg->seq > coord->members.at[slot].seq) {
        coord->members.at[slot].seq = msg->seq;
    }
    struct co_coord_queue *queue;
    switch ((enum co_fleet_kind)msg->kind) {
    case CO_FLEET_BEAT:
        step_beat(step, slot, msg);
        break;
    case CO_FLEET_REPORT:
        step_report(step, slot, msg);
        break;
    case CO_FLEET_PLAN:
        step_plan(step, slot, msg);
        break;
    case CO_FLEET_CLAIM:
        queue = find_queue(coord, msg->claim.queue);
        if (queue != NULL && queue->config.split == CO_FLEET_STRICT) {
            co_strict_claim(step, queue, slot, &msg->claim);
        }
        break;
    case CO_FLEET_ACK:
        queue = find_queue(coord, msg->ack.queue);
        if (queue != NULL && queue->config.split == CO_FLEET_STRICT &&
            msg->ack.echo_incarnation == coord->config.incarnation) {
            co_strict_ack(step, queue, slot, &msg->ack);
        }
        break;
    }
    return CO_OK;
}

/* --- this agent's own events --- */

static int check_queue(const struct co_coord *coord, const struct co_coord_queue_config *config)
{
    if (config->queue == 0) {
        return CO_EMALFORMED;
    }
    if (config->split == CO_FLEET_STRICT &&
        (coord->config.expected == 0 ||
         (config->on_fence == CO_FLEET_WAIT && config->job_ms == 0))) {
        return CO_EUNSUPPORTED;
    }
    return CO_OK;
}

static int step_queue(struct co_step *step, const struct co_coord_queue_config *config)
{
    struct co_coord *coord = step->coord;
    struct co_coord_queue *queue = find_queue(coord, config->queue);
    size_t i = 0;

    int rc = check_queue(coord, config);
    if (rc != CO_OK) {
        return rc;
    }
    if (queue != NULL && queue->config.split == config->split) {
        queue->config = *config;
        queue->report_urgent = true;
        queue->report_due = step->now;
        co_coord_dirty(queue, step->now);
        return CO_OK;
    }
    while (queue == NULL && i < coord->n_queues && coord->queues[i].used) {
        i++;
    }
    if (queue == NULL && i == CO_FLEET_QUEUES_MAX) {
        return CO_EFULL;
    }
    if (queue == NULL) {
        queue = &coord->queues[i];
        if (i == coord->n_queues) {
            coord->n_queues++;
        }
    }
    memset(queue, 0, offsetof(struct co_coord_queue, plan.seats));
    memset(queue->reported, 0, coord->members.n * sizeof queue->reported[0]);
    queue->config = *config;
    queue->used = true;
    queue->report_due = UINT64_MAX;
    queue->fenced = true;
    coord->view_dirty = true;
    coord->hello = HELLO_BEATS;
    return CO_OK;
}

static int step_unqueue(struct co_step *step, uint64_t id)
{
    struct co_coord_queue *queue = find_queue(step->coord, id);
    if (queue == NULL) {
        return CO_ENOTFOUND;
    }
    queue->used = false;
    step->coord->hello = HELLO_BEATS;
    return CO_OK;
}

static int step_load(struct co_step *step, uint64_t id, const struct co_fleet_load *load)
{
    struct co_coord_queue *queue = find_queue(step->coord, id);
    if (queue == NULL) {
        return CO_ENOTFOUND;
    }
    /* The fleet waits for these: another capacity, and jobs ending where there are too many. */
    bool urgent =
        load->capacity != queue->load.capacity ||
        (load->running != co_coord_running(queue) && co_coord_running(queue) > queue->limit);
    co_ms due = queue->reported_at + CO_COORD_NUMBERS_MS;
    queue->load = *load;
    queue->unsure = 0;
    if (urgent) {
        queue->report_urgent = true;
        due = step->now;
        if (queue->role == CO_COORD_OWNS) {
            co_coord_dirty(queue, step->now);
        }
    }
    if (due < queue->report_due) {
        queue->report_due = due;
    }
    return CO_OK;
}

static int step_target(struct co_step *step, const struct co_coord_event *event)
{
    struct co_coord_queue *queue = find_queue(step->coord, event->target.queue);
    if (queue == NULL) {
        return CO_ENOTFOUND;
    }
    if (queue->role != CO_COORD_OWNS) {
        return CO_OK; /* The scaler has not yet heard that the queue is another's now. */
    }
    if (event->target.history_size <= CO_FLEET_HISTORY_SIZE && event->target.history_size > 0) {
        if (queue->plan.history_size != event->target.history_size ||
            memcmp(queue->plan.history, event->target.history, event->target.history_size) != 0) {
            memcpy(queue->plan.history, event->target.history, event->target.history_size);
            queue->plan.history_size = event->target.history_size;
            queue->spread = true;
        }
    }
    uint32_t target =
        event->target.target < CO_FLEET_WORKERS_MAX ? event->target.target : CO_FLEET_WORKERS_MAX;
    if (!queue->has_target || queue->target != target) {
        queue->target = target;
        queue->has_target = true;
        co_coord_dirty(queue, step->now);
    }
    return CO_OK;
}

static int step_drain(struct co_step *step, bool leave)
{
    struct co_coord *coord = step->coord;
    coord->draining = true;
    coord->left = leave;
    coord->members.at[0].draining = true;
    coord->view_dirty = true;
    for (size_t i = 0; i < coord->n_queues; i++) {
        coord->queues[i].report_urgent = true;
        coord->queues[i].report_due = step->now;
        if (coord->queues[i].role == CO_COORD_OWNS) {
            co_coord_dirty(&coord->queues[i], step->now);
        }
    }
    co_coord_post_all(step, CO_FLEET_BEAT, 0);
    return CO_OK;
}

static void gossip(struct co_step *step)
{
    struct co_coord *coord = step->coord;
    uint16_t slots[CO_MEMBERS_MESH_MAX];

    coord->beats++;
    if (coord->members.alive <= CO_MEMBERS_MESH_MAX + 1) {
        co_coord_post_all(step, CO_FLEET_BEAT, 0);
        return;
    }
    size_t n = co_members_targets(&coord->members, slots);
    for (size_t i = 0; i < n; i++) {
        co_coord_post(step, CO_FLEET_BEAT, 0, coord->members.at[slots[i]].id);
    }
}

static int step_tick(struct co_step *step)
{
    struct co_coord *coord = step->coord;
    uint16_t changed[CO_FLEET_AGENTS_MAX];

    if (step->now < coord->gossip_due) {
        return CO_OK;
    }
    co_ms lag = coord->beats == 0 ? 0 : step->now - coord->gossip_due;
    size_t n = co_members_tick(&coord->members, step->now, lag, changed);
    for (size_t i = 0; i < n; i++) {
        if (coord->members.at[changed[i]].state == CO_MEMBER_FREE) {
            forget_reports(step, changed[i], false);
        }
        if (coord->members.at[changed[i]].state == CO_MEMBER_DEAD) {
            coord->view_dirty = true;
        }
        tell_member(step, changed[i]);
    }
    coord->gossip_due = step->now + CO_FLEET_GOSSIP_MS;
    if (coord->view_dirty) {
        view(step);
    }
    for (size_t i = 0; i < coord->n_queues; i++) {
        struct co_coord_queue *queue = &coord->queues[i];
        if (queue->used && queue->config.split == CO_FLEET_STRICT) {
            co_strict_tick(step, queue, true);
        }
        if (queue->used && queue->spread && queue->role == CO_COORD_OWNS) {
            co_coord_dirty(queue, queue->issued_at + 5 * CO_FLEET_GOSSIP_MS);
        }
    }
    gossip(step);
    return CO_OK;
}

/* --- what is due after any event --- */

static uint64_t report_to(const struct co_coord *coord, const struct co_coord_queue *queue,
                          co_ms now)
{
    if (queue->config.split == CO_FLEET_STRICT) {
        return co_strict_report_to(coord, queue, now);
    }
    return queue->owner == coord->config.id ? 0 : queue->owner;
}

static void report(struct co_step *step, struct co_coord_queue *first, uint64_t to)
{
    struct co_coord *coord = step->coord;
    if (!co_coord_post(step, CO_FLEET_REPORT, 0, to)) {
        return;
    }
    for (size_t i = co_coord_index(coord, first); i < coord->n_queues; i++) {
        struct co_coord_queue *queue = &coord->queues[i];
        if (queue->used && report_to(coord, queue, step->now) == to) {
            queue->reported_at = step->now;
            queue->report_due = step->now + CO_COORD_REPORT_MS;
            queue->report_urgent = false;
        }
    }
}

static void work_queue(struct co_step *step, struct co_coord_queue *queue)
{
    struct co_coord *coord = step->coord;

    if (queue->config.split == CO_FLEET_STRICT) {
        co_strict_tick(step, queue, false);
    }
    if (queue->dirty && queue->role == CO_COORD_OWNS && step->now >= queue->plan_due) {
        if (queue->config.split == CO_FLEET_STRICT) {
            co_strict_issue(step, queue);
        } else {
            co_available_issue(step, queue);
        }
    }
    if (step->now >= queue->report_due) {
        uint64_t to = report_to(coord, queue, step->now);
        if (to != 0) {
            report(step, queue, to);
        } else {
            queue->report_due = UINT64_MAX;
        }
    }
}

static void work(struct co_step *step)
{
    struct co_coord *coord = step->coord;
    if (coord->view_dirty) {
        view(step);
    }
    for (size_t i = 0; i < coord->n_queues; i++) {
        if (coord->queues[i].used) {
            work_queue(step, &coord->queues[i]);
        }
    }
}

int co_coord_step(struct co_coord *coord, const struct co_coord_event *event,
                  struct co_coord_update *ret_update)
{
    struct co_step step = {.coord = coord, .update = ret_update, .now = event->now};
    co_unix was = coord->wall;
    int rc = CO_OK;

    ret_update->n_changes = 0;
    ret_update->n_sends = 0;
    assert(event->now >= coord->now);
    coord->now = event->now;
    if (event->wall != 0) {
        coord->wall = event->wall;
        expire_overrides(&step, was);
    }
    switch (event->type) {
    case CO_COORD_TICK:
        rc = step_tick(&step);
        break;
    case CO_COORD_MSG:
        rc = step_msg(&step, event);
        break;
    case CO_COORD_LINK_DOWN:
        co_members_link_down(&coord->members, event->link);
        break;
    case CO_COORD_QUEUE:
        rc = step_queue(&step, event->queue);
        break;
    case CO_COORD_UNQUEUE:
        rc = step_unqueue(&step, event->unqueue);
        break;
    case CO_COORD_LOAD:
        rc = step_load(&step, event->load.queue, &event->load.load);
        break;
    case CO_COORD_TARGET:
        rc = step_target(&step, event);
        break;
    case CO_COORD_OVERRIDE:
        rc = step_override(&step, event->override);
        break;
    case CO_COORD_DRAIN:
        rc = step_drain(&step, false);
        break;
    case CO_COORD_LEAVE:
        return step_drain(&step, true);
    }
    work(&step);
    return rc;
}

co_ms co_coord_deadline(const struct co_coord *coord)
{
    co_ms deadline = coord->gossip_due;
    for (size_t i = 0; i < coord->n_queues; i++) {
        const struct co_coord_queue *queue = &coord->queues[i];
        if (!queue->used) {
            continue;
        }
        if (queue->dirty && queue->role == CO_COORD_OWNS && queue->plan_due < deadline) {
            deadline = queue->plan_due;
        }
        if (queue->report_due < deadline) {
            deadline = queue->report_due;
        }
        if (queue->lease_until != 0 && queue->lease_until < deadline) {
            deadline = queue->lease_until;
        }
    }
    return deadline;
}

void co_coord_init(struct co_coord *coord, const struct co_coord_config *config, co_ms now)
{
    assert(config->id != 0 && config->incarnation != 0);
    memset(coord, 0, offsetof(struct co_coord, members));
    co_members_init(&coord->members, config->id, config->incarnation, now);
    memset(&coord->now, 0, offsetof(struct co_coord, overrides) - offsetof(struct co_coord, now));
    coord->n_queues = 0;
    coord->config = *config;
    coord->now = now;
    coord->started_at = now;
    coord->gossip_due = now;
    coord->view_dirty = true;
    coord->hello = HELLO_BEATS;
}

/* --- making messages --- */

static void make_beat(struct co_coord *coord, struct co_fleet_beat *beat)
{
    memset(beat, 0, offsetof(struct co_fleet_beat, downs));
    co_members_beat(&coord->members, coord->now, beat);
    beat->overrides_digest = overrides_digest(coord);
    beat->flags = (coord->left ? CO_FLEET_LEAVING : 0u) |
                  (coord->draining ? CO_FLEET_DRAINING : 0u) |
                  (coord->hello > 0 ? CO_FLEET_QUEUES : 0u);
    if (coord->hello > 0 || coord->beats % HELLO_EVERY == 0) {
        coord->hello -= coord->hello > 0;
        beat->flags |= CO_FLEET_QUEUES;
        for (size_t i = 0; i < coord->n_queues; i++) {
            if (coord->queues[i].used) {
                beat->queues[beat->n_queues++] = coord->queues[i].config.queue;
            }
        }
    }
    if (coord->gossip_override > 0 && coord->n_overrides > 0) {
        for (size_t i = 0; i < CO_FLEET_BEAT_OVERRIDES_MAX && i < coord->n_overrides; i++) {
            coord->override_next = (coord->override_next + 1) % coord->n_overrides;
            beat->overrides[beat->n_overrides++] = coord->overrides[coord->override_next];
        }
        coord->gossip_override--;
    }
}

static void make_report(const struct co_coord *coord, uint64_t to, struct co_fleet_report *report)
{
    report->stamp = coord->now + 1; /* Never 0. */
    report->n_entries = 0;
    for (size_t i = 0; i < coord->n_queues; i++) {
        const struct co_coord_queue *queue = &coord->queues[i];
        if (!queue->used || report_to(coord, queue, coord->now) != to) {
            continue;
        }
        report->entries[report->n_entries++] = (struct co_fleet_report_entry){
            .queue = queue->config.queue,
            .epoch = queue->plan.epoch,
            .term = queue->promise_term,
            .echo = queue->owner_stamp,
            .policy_hash = queue->config.policy_hash,
            .max = queue->config.max,
            .hold_ms = (uint32_t)co_strict_hold(&queue->config),
            .grant = queue->limit,
            .flags = (queue->fenced ? CO_FLEET_FENCED : 0u) |
                     (co_strict_is_fresh(coord, queue, coord->now) ? CO_FLEET_FRESH : 0u),
            .load = queue->load,
        };
        struct co_fleet_load *load = &report->entries[report->n_entries - 1].load;
        load->running = co_coord_running(queue);
        load->capacity = coord->draining ? 0 : load->capacity;
    }
}

static void make_ack(const struct co_coord *coord, const struct co_coord_queue *queue, uint64_t to,
                     struct co_fleet_ack *ack)
{
    uint16_t slot = co_members_find(&coord->members, to);
    const struct co_coord_reported *reported = &queue->reported[slot];
    /* While a newer plan is open nobody may grow into the last: what that gave may be given on. */
    bool current = co_fleet_epoch_compare(&queue->committed, &queue->plan.epoch) == 0;
    *ack = (struct co_fleet_ack){
        .queue = queue->config.queue,
        .term = queue->term,
        .stamp = coord->now + 1,
        .echo = reported->term == queue->term ? reported->stamp : 0,
        .echo_incarnation = coord->members.at[slot].incarnation,
        .committed = current ? queue->committed : (struct co_fleet_epoch){0},
    };
}

void co_coord_message(struct co_coord *coord, const struct co_coord_send *send,
                      struct co_fleet_msg *ret_msg)
{
    const struct co_coord_queue *queue = &coord->queues[send->queue];

    ret_msg->kind = send->kind;
    ret_msg->version = CO_FLEET_VERSION;
    ret_msg->from = coord->config.id;
    ret_msg->incarnation = coord->config.incarnation;
    ret_msg->seq = ++coord->seq;
    switch ((enum co_fleet_kind)send->kind) {
    case CO_FLEET_BEAT:
        make_beat(coord, &ret_msg->beat);
        break;
    case CO_FLEET_REPORT:
        make_report(coord, send->to, &ret_msg->report);
        break;
    case CO_FLEET_PLAN:
        memcpy(&ret_msg->plan, &queue->plan,
               offsetof(struct co_fleet_plan, seats) +
                   queue->plan.n_seats * sizeof queue->plan.seats[0]);
        ret_msg->plan.stamp = coord->now + 1;
        break;
    case CO_FLEET_CLAIM:
        ret_msg->claim = (struct co_fleet_claim){
            .queue = queue->config.queue,
            .term = queue->term,
            .stamp = coord->now + 1,
            .epoch = queue->plan.epoch,
        };
        break;
    case CO_FLEET_ACK:
        make_ack(coord, queue, send->to, &ret_msg->ack);
        break;
    }
}

void co_coord_hello(struct co_coord *coord, struct co_fleet_msg *ret_msg)
{
    coord->hello++;
    co_coord_message(coord, &(struct co_coord_send){.kind = CO_FLEET_BEAT, .to_all = true},
                     ret_msg);
    ret_msg->beat.flags |= CO_FLEET_HELLO;
}

/* --- to look at --- */

uint8_t co_coord_version(const struct co_coord *coord)
{
    uint8_t version = CO_FLEET_VERSION;
    for (uint16_t slot = 1; slot < coord->members.n; slot++) {
        if (co_members_is_alive(&coord->members, slot) &&
            coord->members.at[slot].version < version) {
            version = coord->members.at[slot].version;
        }
    }
    return version;
}

const struct co_coord_queue *co_coord_queue_get(const struct co_coord *coord, uint64_t queue)
{
    for (size_t i = 0; i < coord->n_queues; i++) {
        if (coord->queues[i].used && coord->queues[i].config.queue == queue) {
            return &coord->queues[i];
        }
    }
    return NULL;
}

size_t co_coord_loads(const struct co_coord *coord, uint64_t id, struct co_fleet_load *ret_sum)
{
    const struct co_coord_queue *queue = co_coord_queue_get(coord, id);
    uint64_t weight = 0;
    uint64_t service = 0;
    co_ms newest = 0;
    size_t n = 0;

    *ret_sum = (struct co_fleet_load){0};
    for (uint16_t slot = 0; queue != NULL && slot < coord->members.n; slot++) {
        const struct co_coord_reported *reported = &queue->reported[slot];
        const struct co_fleet_load *load = slot == 0 ? &queue->load : &reported->load;
        if (!co_members_is_alive(&coord->members, slot) ||
            (slot != 0 && reported->incarnation != coord->members.at[slot].incarnation)) {
            continue;
        }
        n++;
        ret_sum->capacity += load->capacity;
        ret_sum->running += load->running;
        ret_sum->claimed += load->claimed;
        ret_sum->booting += load->booting;
        ret_sum->idle += load->idle;
        ret_sum->done_per_s += load->done_per_s;
        if (slot == 0 || reported->heard_at > newest) {
            newest = slot == 0 ? 0 : reported->heard_at;
            ret_sum->ready = load->ready;
        }
        if (load->service_us > 0) {
            weight += load->done_per_s + 1u;
            service += (uint64_t)load->service_us * (load->done_per_s + 1u);
        }
    }
    ret_sum->service_us = weight > 0 ? (uint32_t)(service / weight) : 0;
    return n;
}
