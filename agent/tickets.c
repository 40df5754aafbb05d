#include "agent/tickets.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "proto/err.h"

static uint32_t index_of(const struct co_tickets *tickets, const struct co_ticket *ticket)
{
    return (uint32_t)(ticket - tickets->table);
}

static struct co_ticket *at(struct co_tickets *tickets, uint32_t link)
{
    return link == 0 ? NULL : &tickets->table[link - 1];
}

static void append(struct co_tickets *tickets, struct co_ticket_list *list,
                   struct co_ticket *ticket)
{
    uint32_t link = index_of(tickets, ticket) + 1;

    ticket->next = 0;
    if (list->tail == 0) {
        list->head = link;
    } else {
        at(tickets, list->tail)->next = link;
    }
    list->tail = link;
    list->count += 1;
}

static void unlink_ticket(struct co_tickets *tickets, struct co_ticket_list *list,
                          struct co_ticket *ticket)
{
    uint32_t link = index_of(tickets, ticket) + 1;
    uint32_t before = 0;

    for (uint32_t walk = list->head; walk != link; walk = at(tickets, walk)->next) {
        assert(walk != 0);
        before = walk;
    }
    if (before == 0) {
        list->head = ticket->next;
    } else {
        at(tickets, before)->next = ticket->next;
    }
    if (list->tail == link) {
        list->tail = before;
    }
    ticket->next = 0;
    list->count -= 1;
}

static struct co_queue made_of(uint32_t pool, uint32_t source, uint32_t table, uint32_t rank)
{
    return (struct co_queue){.pool = pool,
                             .source = source,
                             .table = table,
                             .rank = rank,
                             .share = UINT32_MAX,
                             .limit = UINT32_MAX};
}

int co_tickets_add_queue(struct co_tickets *tickets, const char *name, uint32_t pool,
                         uint32_t source, uint32_t table, uint32_t rank)
{
    struct co_queue *queue;

    if (tickets->n_queues == CO_QUEUES_MAX) {
        return CO_EFULL;
    }
    queue = &tickets->queues[tickets->n_queues];
    *queue = made_of(pool, source, table, rank);
    snprintf(queue->name, sizeof queue->name, "%s", name);
    return (int)tickets->n_queues++;
}

static bool has_ticket(const struct co_tickets *tickets, uint32_t queue)
{
    for (uint32_t i = 0; i < CO_TICKETS_MAX; i++) {
        if (tickets->table[i].state != CO_TICKET_FREE && tickets->table[i].queue == queue) {
            return true;
        }
    }
    return false;
}

static bool is_claimed(const struct co_turn *turn, uint32_t queue)
{
    for (uint32_t i = 0; turn != NULL && i < turn->n_claims; i++) {
        if (turn->claims[i].queue == queue) {
            return true;
        }
    }
    return false;
}

int co_tickets_idle_queue(const struct co_tickets *tickets, const struct co_turn *turn)
{
    for (uint32_t i = 0; i < tickets->n_queues; i++) {
        const struct co_queue *queue = &tickets->queues[i];
        if (queue->discovered && queue->depth.ready + queue->depth.delayed == 0 &&
            queue->waiting.count + queue->n_given == 0 && !is_claimed(turn, i) &&
            !has_ticket(tickets, i)) {
            return (int)i;
        }
    }
    return CO_ENOTFOUND;
}

void co_tickets_reuse_queue(struct co_tickets *tickets, uint32_t index, const char *name,
                            uint32_t pool, uint32_t source, uint32_t table, uint32_t rank)
{
    struct co_queue *queue = &tickets->queues[index];

    assert(index < tickets->n_queues && queue->waiting.count + queue->n_given == 0);
    *queue = made_of(pool, source, table, rank);
    snprintf(queue->name, sizeof queue->name, "%s", name);
}

int co_tickets_find_queue(const struct co_tickets *tickets, uint32_t source, uint32_t table,
                          const char *name)
{
    for (uint32_t i = 0; i < tickets->n_queues; i++) {
        const struct co_queue *queue = &tickets->queues[i];
        if (queue->source == source && queue->table == table && strcmp(queue->name, name) == 0) {
            return (int)i;
        }
    }
    return CO_ENOTFOUND;
}

/* Numbers rise by one, and skip those whose place in the table an old ticket still has. */
static struct co_ticket *fresh(struct co_tickets *tickets)
{
    if (tickets->n_used == CO_TICKETS_MAX) {
        return NULL;
    }
    for (;;) {
        uint64_t id = ++tickets->last_id;
        struct co_ticket *ticket = &tickets->table[id % CO_TICKETS_MAX];
        if (ticket->state == CO_TICKET_FREE) {
            *ticket = (struct co_ticket){.id = id};
            tickets->n_used += 1;
            return ticket;
        }
    }
}

int co_tickets_admit(struct co_tickets *tickets, uint32_t queue, struct co_turn_claim *claim,
                     co_ms now, struct co_ticket **ret_ticket)
{
    struct co_ticket *ticket = fresh(tickets);

    assert(queue < tickets->n_queues);
    if (ticket == NULL) {
        return CO_EFULL;
    }
    ticket->state = CO_TICKET_QUEUED;
    ticket->queue = queue;
    ticket->source = tickets->queues[queue].source;
    ticket->pool = tickets->queues[queue].pool;
    ticket->table = claim->table;
    ticket->job_id = claim->job_id;
    ticket->reserved_at = claim->reserved_at;
    ticket->available_at = claim->available_at;
    ticket->created_at = claim->created_at;
    ticket->attempts = claim->attempts;
    ticket->crashes = claim->crashes;
    ticket->admitted_at = now;
    ticket->payload = claim->payload;
    ticket->payload_size = claim->payload_size;
    claim->payload = NULL;
    ticket->facts = claim->facts;
    append(tickets, &tickets->queues[queue].waiting, ticket);
    tickets->waiting[ticket->pool] += 1;
    *ret_ticket = ticket;
    return CO_OK;
}

struct co_ticket *co_tickets_get(struct co_tickets *tickets, uint64_t id)
{
    struct co_ticket *ticket = &tickets->table[id % CO_TICKETS_MAX];
    return ticket->state != CO_TICKET_FREE && ticket->id == id ? ticket : NULL;
}

uint32_t co_tickets_room(const struct co_queue *queue)
{
    uint32_t most = queue->share < queue->limit ? queue->share : queue->limit;

    return most > queue->n_given ? most - queue->n_given : 0;
}

struct co_ticket *co_tickets_next(struct co_tickets *tickets, uint32_t pool, uint32_t sources,
                                  co_ms now)
{
    struct co_ticket *best = NULL;
    uint32_t best_rank = 0;

    for (uint32_t i = 0; tickets->waiting[pool] > 0 && i < tickets->n_queues; i++) {
        struct co_queue *queue = &tickets->queues[i];
        struct co_ticket *head = at(tickets, queue->waiting.head);
        if (head == NULL || queue->pool != pool || queue->held || now < queue->hold_until ||
            co_tickets_room(queue) == 0 || (sources & (1u << queue->source)) == 0) {
            continue;
        }
        if (best == NULL || queue->rank < best_rank ||
            (queue->rank == best_rank && head->id < best->id)) {
            best = head;
            best_rank = queue->rank;
        }
    }
    return best;
}

/* Out of its queue, or out of its worker's hands. */
static void leave(struct co_tickets *tickets, struct co_ticket *ticket)
{
    struct co_queue *queue = &tickets->queues[ticket->queue];

    assert(ticket->state == CO_TICKET_QUEUED || ticket->state == CO_TICKET_GIVEN ||
           ticket->state == CO_TICKET_ORPHAN);
    if (ticket->state == CO_TICKET_QUEUED) {
        unlink_ticket(tickets, &queue->waiting, ticket);
        tickets->waiting[queue->pool] -= 1;
    } else if (ticket->state == CO_TICKET_ORPHAN) {
        tickets->orphans[ticket->pool] -= 1;
    } else {
        queue->n_given -= 1;
    }
}

void co_tickets_give(struct co_tickets *tickets, struct co_ticket *ticket, uint32_t worker,
                     co_ms now)
{
    assert(ticket->state == CO_TICKET_QUEUED);
    leave(tickets, ticket);
    tickets->queues[ticket->queue].n_given += 1;
    ticket->state = CO_TICKET_GIVEN;
    ticket->worker = worker;
    ticket->given_at = now;
}

void co_tickets_orphan(struct co_tickets *tickets, struct co_ticket *ticket)
{
    assert(ticket->state == CO_TICKET_GIVEN);
    leave(tickets, ticket);
    tickets->orphans[ticket->pool] += 1;
    ticket->state = CO_TICKET_ORPHAN;
    ticket->orphaned = true;
    ticket->deadline = 0;
}

void co_tickets_adopt(struct co_tickets *tickets, struct co_ticket *ticket, uint32_t worker,
                      co_ms now)
{
    assert(ticket->state == CO_TICKET_ORPHAN);
    leave(tickets, ticket);
    tickets->queues[ticket->queue].n_given += 1;
    ticket->state = CO_TICKET_GIVEN;
    ticket->worker = worker;
    ticket->given_at = now;
}

struct co_ticket *co_tickets_next_orphan(struct co_tickets *tickets, uint32_t pool)
{
    struct co_ticket *oldest = NULL;

    for (uint32_t i = 0; i < CO_TICKETS_MAX && tickets->orphans[pool] > 0; i++) {
        struct co_ticket *ticket = &tickets->table[i];
        if (ticket->state == CO_TICKET_ORPHAN && ticket->pool == pool &&
            (oldest == NULL || ticket->id < oldest->id)) {
            oldest = ticket;
        }
    }
    return oldest;
}

void co_tickets_end(struct co_tickets *tickets, struct co_ticket *ticket, enum co_outcome outcome,
                    uint32_t delay_s)
{
    leave(tickets, ticket);
    ticket->state = CO_TICKET_ENDED;
    ticket->outcome = outcome;
    ticket->delay_s = delay_s;
    co_tickets_push_ended(tickets, ticket);
}

void co_tickets_cancel(struct co_tickets *tickets, struct co_ticket *ticket)
{
    assert(ticket->state == CO_TICKET_QUEUED);
    leave(tickets, ticket);
    ticket->state = CO_TICKET_ENDED;
    ticket->outcome = CO_OUTCOME_RETURNED;
}

struct co_ticket *co_tickets_pop_ended(struct co_tickets *tickets, uint32_t source)
{
    struct co_ticket_list *list = &tickets->ended[source];
    struct co_ticket *ticket = at(tickets, list->head);

    if (ticket != NULL) {
        list->head = ticket->next;
        list->tail = list->head == 0 ? 0 : list->tail;
        list->count -= 1;
        ticket->next = 0;
    }
    return ticket;
}

void co_tickets_push_ended(struct co_tickets *tickets, struct co_ticket *ticket)
{
    assert(ticket->state == CO_TICKET_ENDED);
    append(tickets, &tickets->ended[ticket->source], ticket);
}

void co_tickets_free(struct co_tickets *tickets, struct co_ticket *ticket)
{
    assert(ticket->state == CO_TICKET_ENDED && ticket->payload == NULL && ticket->text == NULL);
    ticket->state = CO_TICKET_FREE;
    tickets->n_used -= 1;
}
