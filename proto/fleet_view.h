/* What an agent knows of its fleet's queues, for `cohort status --fleet` and `cohort audit`:
 *
 *     {"id", "queues":[{"id", "name", "connection", "pool", "target", "max", "split", "owner",
 *       "owned", "share", "running", "fenced", "lease_ms", "plan_age_ms",
 *       "seats":[{"agent","capacity","share","grant","running"}],
 *       "override":{…}|null}],
 *      "overrides":[{"queue","name","action","value","by","reason","since","expires","epoch",
 *       "agent","in_force"}]}
 *
 * share is this agent's part, as in force; the seats are the owner's plan as it arrived here.
 * running of a seat is known to the owner alone. Ended overrides stay in the list. */

#ifndef CO_PROTO_FLEET_VIEW_H
#define CO_PROTO_FLEET_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/config.h"
#include "proto/err.h"
#include "proto/fleet.h"

#define CO_FLEET_VIEW_OVERRIDES_MAX 256

struct co_fleet_view_seat {
    char agent[20];
    uint32_t capacity, share, grant, running;
};

struct co_fleet_view_queue {
    char id[20];
    char name[CO_TEXT_SIZE]; /* "": not served here. */
    char connection[CO_NAME_SIZE];
    char pool[CO_NAME_SIZE];
    char owner[20]; /* "": none yet. */
    bool owned;     /* By the agent that answers. */
    bool strict;
    bool fenced;
    uint32_t target, max, share, running;
    co_ms lease_ms;    /* Left of it; 0: none. */
    co_ms plan_age_ms; /* Of the plan held; 0 with no owner: none yet. */
    uint32_t n_seats;
    struct co_fleet_view_seat seats[CO_FLEET_AGENTS_MAX];
};

struct co_fleet_view_override {
    char name[CO_TEXT_SIZE]; /* Of the queue, or its number. */
    bool in_force;
    struct co_fleet_override override;
};

struct co_fleet_view {
    char id[20];
    uint32_t n_queues;
    struct co_fleet_view_queue queues[CO_FLEET_QUEUES_MAX];
    uint32_t n_overrides;
    struct co_fleet_view_override overrides[CO_FLEET_VIEW_OVERRIDES_MAX];
};

const char *co_fleet_action_name(uint32_t action); /* "pause"; never NULL. */

/* malloc'd; NULL: out of memory. */
char *co_fleet_view_to_json(const struct co_fleet_view *view);
/* Errors: CO_EMALFORMED. */
int co_fleet_view_from_json(const char *json, struct co_fleet_view *ret_view, struct co_err *err);

#endif /* CO_PROTO_FLEET_VIEW_H */
