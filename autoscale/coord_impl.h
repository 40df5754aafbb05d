/* Inside the coordinator: what coord.c, coord_available.c and coord_strict.c share. */

#ifndef CO_AUTOSCALE_COORD_IMPL_H
#define CO_AUTOSCALE_COORD_IMPL_H

#include "autoscale/coord.h"

/* One step's state: the coordinator and what it will have said. */
struct co_step {
    struct co_coord *coord;
    struct co_coord_update *update;
    co_ms now;
};

#define CO_COORD_PLAN_GAP_MS 40 /* Between two plans of a queue: several reports, one plan. */
#define CO_COORD_RESEND_MS 300  /* A report that knows an older plan gets it again after. */
#define CO_COORD_REPORT_MS 500  /* Heartbeat of a report ... */
#define CO_COORD_NUMBERS_MS 200 /* ... and its pace while numbers change. */
#define CO_COORD_BUMP_MS 500    /* Between two plans that only outbid a foreign one. */

/* The rules the simulator can break on purpose, in test builds (CO_COORD_MUTATIONS) only. */
enum co_mutation {
    CO_MUTATE_NOTHING = 0,
    CO_MUTATE_GROW_UNCONFIRMED, /* Growth does not wait for those that shrink. */
    CO_MUTATE_GROW_UNCOMMITTED, /* Growth does not wait for a majority to hold the plan. */
    CO_MUTATE_FORGET_RUNNING,   /* Running jobs beyond the grant are not counted. */
    CO_MUTATE_NO_FENCE,         /* A member without acks goes on. */
    CO_MUTATE_RESUME,           /* Who was fenced resumes its old grant. */
    CO_MUTATE_LEASE_ON_ARRIVAL, /* The lease runs from the ack's arrival, not the report's start. */
    CO_MUTATE_SHORT_HOLD,       /* A silent member's part is free after the lease, jobs or not. */
    CO_MUTATE_NO_GHOSTS,        /* A restart of the same name wipes out what was held. */
    CO_MUTATE_ANY_HALF,         /* Half of the fleet counts as a majority. */
    CO_MUTATE_MANY_PROMISES,    /* A member promises to whoever asks. */
    CO_MUTATE_STALE_VOTES,      /* Votes count from their arrival. */
    CO_MUTATE_FRESH_VOTES,      /* Who may have forgotten votes at once. */
    CO_MUTATE_NO_TAKEOVER,      /* A new strict owner starts from an empty table. */
    CO_MUTATE_NEVER_STEP_DOWN,  /* An owner without a majority goes on acking. */
    CO_MUTATE_NO_KILL,          /* on_fence: kill ends no job. */
    CO_MUTATE_OLD_EPOCHS,       /* Any plan that comes is taken. */
    CO_MUTATE_NO_CAPACITY,      /* The split does not look at capacities. */
    CO_MUTATE_KEEP_DEAD,        /* Dead members keep their share. */
    CO_MUTATE_NO_RESEND,        /* A lost plan is not sent again. */
    CO_MUTATE_NO_BUMP,          /* A foreign plan is not outbid. */
    CO_MUTATE_UNLISTED,         /* A plan that does not list us is taken. */
    CO_MUTATE_DRAIN_SHARE,      /* A draining member keeps its share. */
    CO_MUTATE_OVERRIDE_OLDEST,  /* The oldest override wins. */
    CO_MUTATE_STALE_BEATS,      /* Late beats count as well. */
    CO_MUTATIONS,
};
#ifdef CO_COORD_MUTATIONS
extern enum co_mutation co_mutation;
#define CO_MUTATED(which) (co_mutation == (which))
#else
#define CO_MUTATED(which) false
#endif

struct co_coord_change *co_coord_tell(struct co_step *step, enum co_coord_change_type type,
                                      uint64_t queue);
/* False: no room; try again next time. */
bool co_coord_post(struct co_step *step, enum co_fleet_kind kind, size_t queue, uint64_t to);
bool co_coord_post_all(struct co_step *step, enum co_fleet_kind kind, size_t queue);

size_t co_coord_index(const struct co_coord *coord, const struct co_coord_queue *queue);
bool co_coord_serves(const struct co_coord_queue *queue, uint16_t slot);
const struct co_fleet_seat *co_coord_seat(const struct co_fleet_plan *plan, uint64_t id,
                                          uint64_t incarnation);
/* Jobs this agent may be running: what it said last, or more if its limit fell since. */
uint32_t co_coord_running(const struct co_coord_queue *queue);
void co_coord_limit(struct co_step *step, struct co_coord_queue *queue, uint32_t workers);
uint32_t co_coord_wanted(const struct co_coord *coord, const struct co_coord_queue *queue);
void co_coord_dirty(struct co_coord_queue *queue, co_ms due);
/* The capacity to plan with: reported, or as the last plan had it. */
uint32_t co_coord_capacity(const struct co_coord *coord, const struct co_coord_queue *queue,
                           uint16_t slot);
void co_coord_broadcast(struct co_step *step, struct co_coord_queue *queue);

/* split: available */
void co_available_view(struct co_step *step, struct co_coord_queue *queue, uint64_t was);
void co_available_plan(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                       const struct co_fleet_plan *plan);
void co_available_report(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                         const struct co_fleet_report_entry *entry);
void co_available_issue(struct co_step *step, struct co_coord_queue *queue);

/* split: strict */
uint64_t co_strict_report_to(const struct co_coord *coord, const struct co_coord_queue *queue,
                             co_ms now);
void co_strict_claim(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                     const struct co_fleet_claim *claim);
void co_strict_ack(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                   const struct co_fleet_ack *ack);
void co_strict_plan(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                    const struct co_fleet_plan *plan);
void co_strict_report(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                      co_ms stamp, const struct co_fleet_report_entry *entry);
void co_strict_gone(struct co_step *step, struct co_coord_queue *queue, uint16_t slot,
                    bool good_bye);
/* Deadlines: fence, step down, give free what was held long enough, claim. */
void co_strict_tick(struct co_step *step, struct co_coord_queue *queue, bool beat);
void co_strict_issue(struct co_step *step, struct co_coord_queue *queue);
co_ms co_strict_hold(const struct co_coord_queue_config *config);
bool co_strict_is_fresh(const struct co_coord *coord, const struct co_coord_queue *queue,
                        co_ms now);

#endif /* CO_AUTOSCALE_COORD_IMPL_H */
