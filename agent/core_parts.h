/* What the files of the core share; nobody else includes it.
 *
 *     core.c         step, run, deadline
 *     core_claim.c   what to claim
 *     core_turn.c    turns, there and back
 *     core_worker.c  hand-over, ends, deaths, limits
 *     core_drain.c   held queues, the drain */

#ifndef CO_AGENT_CORE_PARTS_H
#define CO_AGENT_CORE_PARTS_H

#include "agent/core.h"

/* Add an action to the update. */
struct co_action *co_core_act(struct co_update *update, enum co_action_type type);
void co_core_act_worker(struct co_update *update, enum co_action_type type, uint32_t pool,
                        uint32_t worker, uint64_t ticket);

struct co_source *co_core_source_of(struct co_core *core, const struct co_ticket *ticket);

/* One more start, or one less, that the ticket's source has to be told of. */
void co_core_start_unrecorded(struct co_core *core, struct co_ticket *ticket, int change,
                              co_ms now);

/* The ticket's outcome is known: it waits to be settled. */
void co_core_end_ticket(struct co_core *core, struct co_ticket *ticket, enum co_outcome outcome,
                        uint32_t delay_s, co_ms now);

/* What waits in a queue goes back to its source, as if it had never been claimed. */
void co_core_return_queue(struct co_core *core, struct co_queue *queue, co_ms now);

/* Declined a moment ago, paused, or in maintenance. */
bool co_core_is_held(const struct co_queue *queue, co_ms now);

/* ---- core_claim.c ---- */

/* Sources whose tickets may be handed over, now or after a fresh look, a bit each. */
uint32_t co_core_answering(const struct co_core *core, co_ms now);

/* Has the source a queue that somebody is hungry for? */
bool co_core_wants_anything(const struct co_core *core, const struct co_source *source,
                            uint32_t index, co_ms now);

/* Does a ticket of that source wait beside an idle worker? */
bool co_core_stale_waiting(const struct co_core *core, uint32_t index);

/* Will workers run dry before a turn with the source is back? */
bool co_core_starving(const struct co_core *core, uint32_t index, co_ms now);

/* Give back what was claimed for a pace that is over. */
void co_core_unclaim(struct co_core *core, uint32_t index, co_ms now);

void co_core_fill_wants(struct co_core *core, uint32_t source, struct co_turn *turn, co_ms now);

/* ---- core_turn.c ---- */

void co_core_step_turn(struct co_core *core, const struct co_event *event,
                       struct co_update *update);

/* ---- core_worker.c ---- */

void co_core_hand_over(struct co_core *core, uint32_t index, co_ms now, struct co_update *update);
void co_core_give_orphans(struct co_core *core, uint32_t index, co_ms now,
                          struct co_update *update);
void co_core_check_deadlines(struct co_core *core, uint32_t index, co_ms now,
                             struct co_update *update);
void co_core_step_began(struct co_core *core, const struct co_event *event);
void co_core_step_ended(struct co_core *core, const struct co_event *event,
                        struct co_update *update);
void co_core_step_exited(struct co_core *core, const struct co_event *event);
void co_core_step_ending(struct co_core *core, const struct co_event *event);
void co_core_step_memory(struct co_core *core, const struct co_event *event,
                         struct co_update *update);

/* ---- core_drain.c ---- */

void co_core_step_hold(struct co_core *core, const struct co_event *event);
void co_core_step_share(struct co_core *core, const struct co_event *event);
void co_core_step_drain(struct co_core *core, const struct co_event *event,
                        struct co_update *update);
void co_core_drain_on(struct co_core *core, co_ms now, struct co_update *update);

#endif /* CO_AGENT_CORE_PARTS_H */
