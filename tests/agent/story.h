/* The core, told as a story: what happens, then the whole trace of what it does about it. What it
 * asks for is noted and, as far as it concerns the core itself, done: turns are filled, tickets
 * forgotten. */

#ifndef CO_TESTS_STORY_H
#define CO_TESTS_STORY_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/core.h"

struct story {
    struct co_core core;
    struct co_update update;
    struct co_turn turns[2];
    co_ms now;
    size_t size;
    char trace[262144];
    char told[262144];
};

static inline void __attribute__((format(printf, 2, 3)))
story_note(struct story *story, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    story->size +=
        (size_t)vsnprintf(story->trace + story->size, sizeof story->trace - story->size, fmt, args);
    va_end(args);
    if (story->size >= sizeof story->trace) {
        abort();
    }
}

/* What was noted since the last call. */
static inline const char *story_told(struct story *story)
{
    memcpy(story->told, story->trace, story->size + 1);
    story->size = 0;
    story->trace[0] = '\0';
    return story->told;
}

static inline const char *story_outcome(enum co_outcome outcome)
{
    static const char *const names[] = {[CO_OUTCOME_DONE] = "done",
                                        [CO_OUTCOME_RELEASED] = "released",
                                        [CO_OUTCOME_FAILED] = "failed",
                                        [CO_OUTCOME_DECLINED] = "declined",
                                        [CO_OUTCOME_RETURNED] = "returned",
                                        [CO_OUTCOME_LEFT] = "left",
                                        [CO_OUTCOME_CRASHED] = "crashed",
                                        [CO_OUTCOME_LOST] = "lost",
                                        [CO_OUTCOME_QUARANTINED] = "quarantined"};
    return names[outcome];
}

static inline void story_turn(struct story *story, uint32_t source)
{
    struct co_turn *turn = &story->turns[source];

    memset(turn, 0, sizeof *turn);
    co_core_fill(&story->core, source, turn, story->now);
    story_note(story, "  turn %u:", source);
    for (uint32_t i = 0; i < turn->n_settles; i++) {
        story_note(story, " job %lld %s%s,", (long long)turn->settles[i].job_id,
                   turn->settles[i].began ? "" : "unbegun ",
                   story_outcome(turn->settles[i].outcome));
    }
    for (uint32_t i = 0; i < turn->n_starts; i++) {
        story_note(story, " job %lld began,", (long long)turn->starts[i].job_id);
    }
    for (uint32_t i = 0; i < turn->n_wants; i++) {
        story_note(story, " %u of %s,", turn->wants[i].count, turn->wants[i].name);
    }
    story_note(story, "%s%s%s\n", turn->heartbeat ? " heartbeat" : "",
               turn->recover ? " recover" : "", turn->bye ? " bye" : "");
}

static inline void story_forget(struct story *story, const struct co_action *action)
{
    struct co_ticket *ticket = co_tickets_get(&story->core.tickets, action->ticket);

    story_note(story, "  forget %llu%s\n", (unsigned long long)action->ticket,
               action->applied ? "" : ", not taken");
    free(ticket->payload);
    free(ticket->text);
    ticket->payload = NULL;
    ticket->text = NULL;
    co_core_forget(&story->core, action->ticket);
}

static inline const char *story_place(const struct co_action *action)
{
    static char name[24];

    if (action->worker >= CO_PLACE_BOOKKEEPER) {
        snprintf(name, sizeof name, "%u.bookkeeper%u", action->pool,
                 action->worker - CO_PLACE_BOOKKEEPER);
    } else if (action->worker >= CO_PLACE_CONTROL) {
        snprintf(name, sizeof name, "%u.control", action->pool);
    } else {
        snprintf(name, sizeof name, "%u.%u", action->pool, action->worker);
    }
    return name;
}

static inline void story_obey(struct story *story, const struct co_action *action)
{
    switch (action->type) {
    case CO_ACTION_ZYGOTE:
        story_note(story, "  zygote %u\n", action->pool);
        break;
    case CO_ACTION_FORK:
        story_note(story, "  fork %s\n", story_place(action));
        break;
    case CO_ACTION_GIVE:
        story_note(story, "  give %u.%u ticket %llu\n", action->pool, action->worker,
                   (unsigned long long)action->ticket);
        break;
    case CO_ACTION_STOP:
        story_note(story, "  stop %s\n", story_place(action));
        break;
    case CO_ACTION_KILL:
        story_note(story, "  kill %s\n", story_place(action));
        break;
    case CO_ACTION_TIMEOUT:
        story_note(story, "  timeout %s ticket %llu\n", story_place(action),
                   (unsigned long long)action->ticket);
        break;
    case CO_ACTION_BOOKKEEP:
        story_note(story, "  bookkeep %s ticket %llu%s\n", story_place(action),
                   (unsigned long long)action->ticket,
                   co_tickets_get(&story->core.tickets, action->ticket)->final ? ", final" : "");
        break;
    case CO_ACTION_TURN:
        story_turn(story, action->source);
        break;
    case CO_ACTION_FORGET:
        story_forget(story, action);
        break;
    case CO_ACTION_END_ZYGOTE:
        story_note(story, "  end zygote %u\n", action->pool);
        break;
    case CO_ACTION_DRAINED:
        story_note(story, "  drained\n");
        break;
    }
}

static inline void story_do(struct story *story, struct co_event event)
{
    event.now = story->now;
    co_core_step(&story->core, &event, &story->update);
    for (uint32_t i = 0; i < story->update.n; i++) {
        story_obey(story, &story->update.actions[i]);
    }
}

/* The turn comes back with these claims: "queue:id queue:id", by the queues' numbers. */
static inline void story_back(struct story *story, uint32_t source, const char *claims)
{
    struct co_turn *turn = &story->turns[source];
    unsigned queue;
    long long id;
    int size;

    for (uint32_t i = 0; i < turn->n_settles; i++) {
        turn->settles[i].ret_applied = true;
        free(turn->settles[i].text); /* The source's thread has read it. */
        turn->settles[i].text = NULL;
    }
    while (sscanf(claims, "%u:%lld%n", &queue, &id, &size) == 2) {
        turn->claims[turn->n_claims++] =
            (struct co_turn_claim){.table = story->core.tickets.queues[queue].table,
                                   .queue = queue,
                                   .job_id = id,
                                   .reserved_at = 100,
                                   .facts = {.max_exceptions = -1}};
        claims += size;
    }
    story_do(story, (struct co_event){.type = CO_EVENT_TURN,
                                      .source = source,
                                      .turn = turn,
                                      .wall_ms = 1700000000000 + story->now});
}

static inline void story_fail(struct story *story, uint32_t source)
{
    story->turns[source].code = CO_EAGAIN;
    story_back(story, source, "");
}

static inline void story_tick(struct story *story, co_ms now)
{
    story->now = now;
    story_do(story, (struct co_event){.type = CO_EVENT_TICK});
}

static inline void story_worker(struct story *story, enum co_event_type type, uint32_t pool,
                                uint32_t worker)
{
    story_do(story, (struct co_event){.type = type, .pool = pool, .worker = worker, .pid = 2});
}

static inline void story_end(struct story *story, uint32_t worker, uint64_t ticket,
                             enum co_outcome outcome)
{
    story_do(story,
             (struct co_event){
                 .type = CO_EVENT_ENDED, .worker = worker, .ticket = ticket, .outcome = outcome});
}

/* A pool of that many workers; they are ready once story_boot() has been called. */
/* Free what the last story left, and begin anew. */
static inline void story_clear(struct story *story)
{
    for (uint32_t i = 0; i < CO_TICKETS_MAX; i++) {
        free(story->core.tickets.table[i].text);
    }
    for (size_t t = 0; t < sizeof story->turns / sizeof story->turns[0]; t++) {
        for (uint32_t i = 0; i < story->turns[t].n_settles; i++) {
            free(story->turns[t].settles[i].text);
        }
    }
    memset(story, 0, sizeof *story);
}

static inline void story_init(struct story *story, uint32_t workers, uint32_t sources)
{
    co_core_init(&story->core);
    story->now = 1000;
    co_core_add_pool(&story->core,
                     &(struct co_pool_config){.claim = CO_CLAIM_AUTO, .kill_grace = 5000}, workers,
                     1, story->now);
    for (uint32_t i = 0; i < sources; i++) {
        co_core_add_source(&story->core, &(struct co_source_config){.retry_after_s = 90},
                           story->now);
    }
}

static inline void story_boot(struct story *story)
{
    uint32_t workers = story->core.pools[0].pool.wanted;

    story_tick(story, story->now);
    story_do(story, (struct co_event){.type = CO_EVENT_ZYGOTE_UP});
    for (uint32_t i = 0; i < story->core.n_sources; i++) {
        if (story->core.sources[i].in_flight) {
            story_back(story, i, "");
        }
    }
    for (uint32_t w = 0; w < workers; w++) {
        story_worker(story, CO_EVENT_FORKED, 0, w);
        story_worker(story, CO_EVENT_READY, 0, w);
    }
    story_told(story);
}

#endif /* CO_TESTS_STORY_H */
