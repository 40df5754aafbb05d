/* A queue that may not have all the workers, in stories. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "agent/story.h"

static struct story story; /* Large, so not on the stack. */

static int set_up(void **state)
{
    (void)state;
    story_clear(&story);
    return 0;
}

#define told(expected) assert_string_equal(story_told(&story), (expected))

static void share(uint32_t queue, uint32_t workers)
{
    story_do(&story, (struct co_event){.type = CO_EVENT_SHARE, .queue = queue, .workers = workers});
}

static void no_more_is_claimed_than_the_share_allows(void **state)
{
    (void)state;
    story_init(&story, 4, 1);
    co_core_add_queue(&story.core, "q", 0, 0, 0, 0);
    share(0, 2);
    story_boot(&story);
    story_told(&story);
    story_tick(&story, 1250);
    told("  turn 0: 2 of q,\n");
    story_back(&story, 0, "0:1 0:2");
    told(
        "  give 0.3 ticket 1\n"
        "  give 0.2 ticket 2\n");
    story_do(&story, (struct co_event){.type = CO_EVENT_CHANGED});
    told(""); /* Two are idle, and none of them is the queue's. */
    share(0, 3);
    told("  turn 0: 1 of q,\n");
}

static void a_smaller_share_ends_nothing_and_begins_nothing(void **state)
{
    (void)state;
    story_init(&story, 2, 1);
    co_core_add_queue(&story.core, "q", 0, 0, 0, 0);
    story_boot(&story);
    story.core.pools[0].claim = 3;
    story_told(&story);
    story_tick(&story, 1250);
    told("  turn 0: 3 of q,\n");
    story_back(&story, 0, "0:1 0:2 0:3");
    told(
        "  give 0.1 ticket 1\n"
        "  give 0.0 ticket 2\n");
    share(0, 1);
    told("");
    story_end(&story, 1, 1, CO_OUTCOME_DONE);
    story_told(&story);
    assert_int_equal(story.core.tickets.queues[0].n_given, 1);
    assert_int_equal(story.core.tickets.queues[0].waiting.count, 1);
    story_back(&story, 0, "");
    story_told(&story);
    story_end(&story, 0, 2, CO_OUTCOME_DONE);
    assert_int_equal(story.core.tickets.queues[0].n_given, 1); /* The third has begun. */
}

static void without_a_share_what_waits_goes_back_for_others(void **state)
{
    (void)state;
    story_init(&story, 1, 1);
    co_core_add_queue(&story.core, "q", 0, 0, 0, 0);
    story_boot(&story);
    story.core.pools[0].claim = 2;
    story_told(&story);
    story_tick(&story, 1250);
    told("  turn 0: 2 of q,\n");
    story_back(&story, 0, "0:1 0:2");
    told("  give 0.0 ticket 1\n");
    share(0, 0);
    assert_int_equal(story.core.tickets.queues[0].waiting.count, 0);
    assert_int_equal(story.core.tickets.queues[0].n_given, 1);
    assert_non_null(strstr(story_told(&story), "job 2 unbegun returned,"));
}

static void one_queue_at_its_share_is_no_bar_to_another(void **state)
{
    (void)state;
    story_init(&story, 3, 1);
    co_core_add_queue(&story.core, "small", 0, 0, 0, 0);
    co_core_add_queue(&story.core, "large", 0, 0, 0, 0);
    share(0, 1);
    story_boot(&story);
    story_told(&story);
    story_tick(&story, 1250);
    story_told(&story);
    story_back(&story, 0, "0:1 1:2 1:3");
    told(
        "  give 0.2 ticket 1\n"
        "  give 0.1 ticket 2\n"
        "  give 0.0 ticket 3\n");
}

static void the_balance_s_limit_counts_as_the_share_does(void **state)
{
    (void)state;
    story_init(&story, 3, 1);
    co_core_add_queue(&story.core, "q", 0, 0, 0, 0);
    share(0, 2);
    story_do(&story, (struct co_event){.type = CO_EVENT_LIMIT, .queue = 0, .workers = 1});
    story_boot(&story);
    story_told(&story);
    story_tick(&story, 1250);
    told("  turn 0: 1 of q,\n");
}

static void a_dead_peer_makes_the_sources_look_for_what_it_held(void **state)
{
    (void)state;
    story_init(&story, 1, 1);
    co_core_add_queue(&story.core, "q", 0, 0, 0, 0);
    story_boot(&story);
    story_tick(&story, 1250);
    story_back(&story, 0, "");
    story_told(&story);
    story_do(&story, (struct co_event){.type = CO_EVENT_PEER_DEAD});
    assert_non_null(strstr(story_told(&story), "recover"));
}

int main(void)
{
#define STORY(name) cmocka_unit_test_setup(name, set_up)
    const struct CMUnitTest tests[] = {
        STORY(no_more_is_claimed_than_the_share_allows),
        STORY(a_smaller_share_ends_nothing_and_begins_nothing),
        STORY(without_a_share_what_waits_goes_back_for_others),
        STORY(one_queue_at_its_share_is_no_bar_to_another),
        STORY(the_balance_s_limit_counts_as_the_share_does),
        STORY(a_dead_peer_makes_the_sources_look_for_what_it_held),
    };
    int failed = cmocka_run_group_tests_name("core_share", tests, NULL, NULL);

    story_clear(&story);
    return failed;
}
