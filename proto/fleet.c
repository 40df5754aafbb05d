#include "proto/fleet.h"

#include "proto/err.h"

/* Terms rise by one with each change of owner: a number beyond this never came about. */
#define TERM_MAX (UINT64_C(1) << 48)

static size_t beat_size(const struct co_fleet_beat *beat)
{
    if (beat->n_overrides > 0) {
        return offsetof(struct co_fleet_msg, beat.overrides) +
               beat->n_overrides * sizeof beat->overrides[0];
    }
    if (beat->n_queues > 0) {
        return offsetof(struct co_fleet_msg, beat.queues) + beat->n_queues * sizeof beat->queues[0];
    }
    if (beat->n_relays > 0) {
        return offsetof(struct co_fleet_msg, beat.relays) + beat->n_relays * sizeof beat->relays[0];
    }
    return offsetof(struct co_fleet_msg, beat.downs) + beat->n_downs * sizeof beat->downs[0];
}

size_t co_fleet_size(const struct co_fleet_msg *msg)
{
    switch ((enum co_fleet_kind)msg->kind) {
    case CO_FLEET_BEAT:
        return beat_size(&msg->beat);
    case CO_FLEET_REPORT:
        return offsetof(struct co_fleet_msg, report.entries) +
               msg->report.n_entries * sizeof msg->report.entries[0];
    case CO_FLEET_PLAN:
        return offsetof(struct co_fleet_msg, plan.seats) +
               msg->plan.n_seats * sizeof msg->plan.seats[0];
    case CO_FLEET_CLAIM:
        return offsetof(struct co_fleet_msg, claim) + sizeof msg->claim;
    case CO_FLEET_ACK:
        return offsetof(struct co_fleet_msg, ack) + sizeof msg->ack;
    }
    return offsetof(struct co_fleet_msg, beat);
}

static bool text_ends(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\0') {
            return true;
        }
    }
    return false;
}

static bool override_is_sane(const struct co_fleet_override *override)
{
    return override->queue != 0 && override->epoch != 0 && override->epoch < TERM_MAX &&
           override->action <= CO_FLEET_SCALE && override->value <= CO_FLEET_WORKERS_MAX &&
           text_ends(override->by, sizeof override->by) &&
           text_ends(override->reason, sizeof override->reason);
}

static bool beat_is_sane(const struct co_fleet_beat *beat)
{
    if (beat->n_downs > CO_FLEET_DOWNS_MAX || beat->n_relays > CO_FLEET_RELAYS_MAX ||
        beat->n_queues > CO_FLEET_QUEUES_MAX || beat->n_overrides > CO_FLEET_BEAT_OVERRIDES_MAX) {
        return false;
    }
    for (size_t i = 0; i < beat->n_overrides; i++) {
        if (!override_is_sane(&beat->overrides[i])) {
            return false;
        }
    }
    return true;
}

static bool report_is_sane(const struct co_fleet_report *report)
{
    if (report->n_entries > CO_FLEET_QUEUES_MAX) {
        return false;
    }
    for (size_t i = 0; i < report->n_entries; i++) {
        const struct co_fleet_report_entry *entry = &report->entries[i];
        if (entry->queue == 0 || entry->term >= TERM_MAX || entry->epoch.term >= TERM_MAX ||
            entry->load.capacity > CO_FLEET_WORKERS_MAX ||
            entry->load.running > CO_FLEET_WORKERS_MAX || entry->max > CO_FLEET_WORKERS_MAX ||
            entry->grant > CO_FLEET_WORKERS_MAX || entry->hold_ms > CO_FLEET_HOLD_MAX) {
            return false;
        }
    }
    return true;
}

static bool plan_is_sane(const struct co_fleet_plan *plan)
{
    if (plan->queue == 0 || plan->n_seats > CO_FLEET_AGENTS_MAX || plan->epoch.owner == 0 ||
        plan->epoch.term == 0 || plan->epoch.term >= TERM_MAX || plan->epoch.seq >= TERM_MAX ||
        plan->history_size > CO_FLEET_HISTORY_SIZE || plan->split > CO_FLEET_STRICT ||
        plan->on_fence > CO_FLEET_KILL || plan->hold_ms > CO_FLEET_HOLD_MAX ||
        plan->target > CO_FLEET_WORKERS_MAX || plan->max > CO_FLEET_WORKERS_MAX ||
        plan->voters > CO_FLEET_AGENTS_MAX) {
        return false;
    }
    uint64_t shares = 0;
    for (size_t i = 0; i < plan->n_seats; i++) {
        const struct co_fleet_seat *seat = &plan->seats[i];
        if (seat->id == 0 || seat->capacity > CO_FLEET_WORKERS_MAX ||
            seat->share > seat->capacity || seat->grant > CO_FLEET_WORKERS_MAX ||
            seat->held > CO_FLEET_WORKERS_MAX) {
            return false;
        }
        shares += seat->share;
    }
    return shares <= plan->target;
}

int co_fleet_check(const struct co_fleet_msg *msg)
{
    bool sane = false;

    if (msg->version < CO_FLEET_VERSION_MIN) {
        return CO_EVERSION;
    }
    if (msg->from == 0 || msg->incarnation == 0) {
        return CO_EMALFORMED;
    }
    switch ((enum co_fleet_kind)msg->kind) {
    case CO_FLEET_BEAT:
        sane = beat_is_sane(&msg->beat);
        break;
    case CO_FLEET_REPORT:
        sane = report_is_sane(&msg->report);
        break;
    case CO_FLEET_PLAN:
        sane = plan_is_sane(&msg->plan);
        break;
    case CO_FLEET_CLAIM:
        sane = msg->claim.queue != 0 && msg->claim.term > 0 && msg->claim.term < TERM_MAX;
        break;
    case CO_FLEET_ACK:
        sane = msg->ack.queue != 0 && msg->ack.term > 0 && msg->ack.term < TERM_MAX;
        break;
    }
    return sane ? CO_OK : CO_EMALFORMED;
}

int co_fleet_epoch_compare(const struct co_fleet_epoch *a, const struct co_fleet_epoch *b)
{
    if (a->term != b->term) {
        return a->term < b->term ? -1 : 1;
    }
    if (a->owner != b->owner) {
        return a->owner < b->owner ? -1 : 1;
    }
    if (a->seq != b->seq) {
        return a->seq < b->seq ? -1 : 1;
    }
    return 0;
}
