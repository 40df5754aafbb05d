/* Tickets and their queues. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "agent/tickets.h"

#define ALL UINT32_MAX

static struct co_tickets tickets;

static int set_up(void **state)
{
    (void)state;
    memset(&tickets, 0, sizeof tickets);
    return 0;
}

static struct co_ticket *admit(uint32_t queue, int64_t job)
{
    struct co_turn_claim claim = {.queue = queue, .job_id = job, .reserved_at = 5};
    struct co_ticket *ticket = NULL;

    assert_int_equal(co_tickets_admit(&tickets, queue, &claim, 100, &ticket), CO_OK);
    return ticket;
}

static void release(struct co_ticket *ticket)
{
    if (ticket->state != CO_TICKET_ENDED) {
        co_tickets_end(&tickets, ticket, CO_OUTCOME_DONE, 0);
    }
    while (co_tickets_pop_ended(&tickets, ticket->source) != NULL) {
    }
    co_tickets_free(&tickets, ticket);
}

static void a_ticket_takes_all_its_claim_has(void **state)
{
    struct co_turn_claim claim = {.table = 3,
                                  .job_id = 7,
                                  .reserved_at = 5,
                                  .available_at = 4,
                                  .created_at = 3,
                                  .attempts = 2,
                                  .payload = malloc(4),
                                  .payload_size = 4};
    struct co_ticket *ticket;

    (void)state;
    co_tickets_add_queue(&tickets, "q", 1, 2, 3, 0);
    uint8_t *payload = claim.payload;
    assert_int_equal(co_tickets_admit(&tickets, 0, &claim, 100, &ticket), CO_OK);
    assert_null(claim.payload);
    assert_ptr_equal(ticket->payload, payload);
    assert_int_equal(ticket->id, 1);
    assert_int_equal(ticket->state, CO_TICKET_QUEUED);
    assert_int_equal(ticket->pool, 1);
    assert_int_equal(ticket->source, 2);
    assert_int_equal(ticket->table, 3);
    assert_int_equal(ticket->job_id, 7);
    assert_int_equal(ticket->attempts, 2);
    assert_int_equal(ticket->admitted_at, 100);
    assert_int_equal(tickets.waiting[1], 1);
    assert_ptr_equal(co_tickets_get(&tickets, 1), ticket);
    assert_null(co_tickets_get(&tickets, 1 + CO_TICKETS_MAX));
    assert_null(co_tickets_get(&tickets, 0));
    free(payload);
}

/* Queues a and b; tickets are admitted in the order of the letters. */
static void the_next_ticket_is_the_lowest_rank_then_the_oldest(void **state)
{
    static const struct {
        const char *what;
        uint32_t rank_a, rank_b;
        co_ms hold_a;
        uint32_t sources;
        const char *admitted;
        uint64_t next;
    } rows[] = {
        {"nothing waits", 0, 0, 0, ALL, "", 0},
        {"equal ranks share by ticket", 0, 0, 0, ALL, "ba", 1},
        {"the lower rank goes first", 0, 1, 0, ALL, "bba", 3},
        {"the higher rank waits for it", 1, 0, 0, ALL, "aab", 3},
        {"a queue that is held is passed", 0, 1, 101, ALL, "ab", 2},
        {"a hold ends at its time", 0, 1, 100, ALL, "ab", 1},
        {"a source that is silent is passed", 0, 1, 0, 2, "ab", 2},
        {"all sources are silent", 0, 1, 0, 0, "ab", 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_up(state);
        co_tickets_add_queue(&tickets, "a", 0, 0, 0, rows[i].rank_a);
        co_tickets_add_queue(&tickets, "b", 0, 1, 0, rows[i].rank_b);
        co_tickets_add_queue(&tickets, "other pool", 1, 0, 0, 0);
        tickets.queues[0].hold_until = rows[i].hold_a;
        for (const char *c = rows[i].admitted; *c != '\0'; c++) {
            admit(*c == 'a' ? 0 : 1, 1);
        }
        admit(2, 1);
        struct co_ticket *next = co_tickets_next(&tickets, 0, rows[i].sources, 100);
        if ((next != NULL ? next->id : 0) != rows[i].next) {
            fail_msg("%s", rows[i].what);
        }
    }
}

static void counts_follow_a_ticket_through_its_life(void **state)
{
    (void)state;
    co_tickets_add_queue(&tickets, "q", 0, 0, 0, 0);
    struct co_ticket *ticket = admit(0, 1);
    assert_int_equal(tickets.queues[0].waiting.count, 1);
    co_tickets_give(&tickets, ticket, 4, 200);
    assert_int_equal(tickets.queues[0].waiting.count, 0);
    assert_int_equal(tickets.waiting[0], 0);
    assert_int_equal(tickets.queues[0].n_given, 1);
    assert_int_equal(ticket->worker, 4);
    assert_int_equal(ticket->given_at, 200);
    co_tickets_end(&tickets, ticket, CO_OUTCOME_RELEASED, 9);
    assert_int_equal(tickets.queues[0].n_given, 0);
    assert_int_equal(tickets.ended[0].count, 1);
    assert_int_equal(ticket->delay_s, 9);
    assert_ptr_equal(co_tickets_pop_ended(&tickets, 0), ticket);
    assert_null(co_tickets_pop_ended(&tickets, 0));
    co_tickets_push_ended(&tickets, ticket);
    assert_ptr_equal(co_tickets_pop_ended(&tickets, 0), ticket);
    assert_int_equal(tickets.n_used, 1);
    co_tickets_free(&tickets, ticket);
    assert_int_equal(tickets.n_used, 0);
    assert_null(co_tickets_get(&tickets, 1));
}

/* A cancelled ticket leaves from anywhere in its queue. */
static void a_cancelled_ticket_leaves_no_trace(void **state)
{
    for (uint64_t gone = 1; gone <= 3; gone++) {
        set_up(state);
        co_tickets_add_queue(&tickets, "q", 0, 0, 0, 0);
        for (int64_t job = 1; job <= 3; job++) {
            admit(0, job);
        }
        struct co_ticket *ticket = co_tickets_get(&tickets, gone);
        co_tickets_cancel(&tickets, ticket);
        assert_int_equal(tickets.ended[0].count, 0);
        assert_int_equal(tickets.waiting[0], 2);
        co_tickets_free(&tickets, ticket);
        admit(0, 4);
        for (uint64_t id = 1; id <= 4; id++) {
            if (id != gone) {
                struct co_ticket *next = co_tickets_next(&tickets, 0, ALL, 0);
                assert_int_equal(next->id, id);
                co_tickets_give(&tickets, next, 0, 0);
            }
        }
        assert_null(co_tickets_next(&tickets, 0, ALL, 0));
    }
}

static void outcomes_wait_for_their_own_source(void **state)
{
    (void)state;
    co_tickets_add_queue(&tickets, "a", 0, 0, 0, 0);
    co_tickets_add_queue(&tickets, "b", 0, 1, 0, 0);
    struct co_ticket *a = admit(0, 1), *b = admit(1, 1), *c = admit(0, 2);
    co_tickets_end(&tickets, c, CO_OUTCOME_DONE, 0);
    co_tickets_end(&tickets, b, CO_OUTCOME_DONE, 0);
    co_tickets_end(&tickets, a, CO_OUTCOME_DONE, 0);
    assert_ptr_equal(co_tickets_pop_ended(&tickets, 0), c);
    assert_ptr_equal(co_tickets_pop_ended(&tickets, 0), a);
    assert_null(co_tickets_pop_ended(&tickets, 0));
    assert_ptr_equal(co_tickets_pop_ended(&tickets, 1), b);
}

static void a_full_table_says_so(void **state)
{
    struct co_turn_claim claim = {.payload = malloc(1)};
    struct co_ticket *ticket = NULL;

    (void)state;
    co_tickets_add_queue(&tickets, "q", 0, 0, 0, 0);
    for (int64_t job = 0; job < CO_TICKETS_MAX; job++) {
        admit(0, job);
    }
    assert_int_equal(co_tickets_admit(&tickets, 0, &claim, 0, &ticket), CO_EFULL);
    assert_non_null(claim.payload); /* Still the caller's. */
    free(claim.payload);
}

/* An old ticket keeps its place in the table; numbers skip it and rise all the same. */
static void numbers_rise_past_tickets_that_stay(void **state)
{
    uint64_t last = 0;

    (void)state;
    co_tickets_add_queue(&tickets, "q", 0, 0, 0, 0);
    struct co_ticket *old = admit(0, 1);
    for (int64_t i = 0; i < 3 * CO_TICKETS_MAX; i++) {
        struct co_ticket *ticket = admit(0, i);
        assert_true(ticket->id > last && ticket != old);
        last = ticket->id;
        release(ticket);
    }
    assert_int_equal(old->id, 1);
    assert_ptr_equal(co_tickets_get(&tickets, 1), old);
}

static void queues_are_found_by_source_table_and_name(void **state)
{
    (void)state;
    assert_int_equal(co_tickets_add_queue(&tickets, "q", 0, 0, 0, 0), 0);
    assert_int_equal(co_tickets_add_queue(&tickets, "q", 0, 0, 1, 0), 1);
    assert_int_equal(co_tickets_add_queue(&tickets, "q", 0, 1, 0, 0), 2);
    assert_int_equal(co_tickets_find_queue(&tickets, 0, 1, "q"), 1);
    assert_int_equal(co_tickets_find_queue(&tickets, 1, 0, "q"), 2);
    assert_int_equal(co_tickets_find_queue(&tickets, 1, 1, "q"), CO_ENOTFOUND);
    assert_int_equal(co_tickets_find_queue(&tickets, 0, 0, "Q"), CO_ENOTFOUND);
    for (int i = 3; i < CO_QUEUES_MAX; i++) {
        assert_int_equal(co_tickets_add_queue(&tickets, "more", 0, 0, 0, 0), i);
    }
    assert_int_equal(co_tickets_add_queue(&tickets, "more", 0, 0, 0, 0), CO_EFULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_ticket_takes_all_its_claim_has, set_up),
        cmocka_unit_test_setup(the_next_ticket_is_the_lowest_rank_then_the_oldest, set_up),
        cmocka_unit_test_setup(counts_follow_a_ticket_through_its_life, set_up),
        cmocka_unit_test_setup(a_cancelled_ticket_leaves_no_trace, set_up),
        cmocka_unit_test_setup(outcomes_wait_for_their_own_source, set_up),
        cmocka_unit_test_setup(a_full_table_says_so, set_up),
        cmocka_unit_test_setup(numbers_rise_past_tickets_that_stay, set_up),
        cmocka_unit_test_setup(queues_are_found_by_source_table_and_name, set_up),
    };
    return cmocka_run_group_tests_name("tickets", tests, NULL, NULL);
}
