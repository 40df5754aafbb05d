#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "autoscale/balance.h"
#include "autoscale/world.h"

#define RUNS 20000
#define QUEUES 6 /* Of a row. */

/* ---- the split ---- */

#define AUTO CO_BALANCE_AUTO
#define SIMPLE CO_BALANCE_SIMPLE
#define ORDERED CO_BALANCE_ORDERED

static const struct {
    const char *what;
    enum co_balance_mode mode;
    uint32_t workers;
    uint32_t want[QUEUES], min[QUEUES], max[QUEUES], weight[QUEUES]; /* max 0: none. */
    uint32_t limit[QUEUES];
} splits[] = {
    {"by need", AUTO, 20, {20, 10}, {0}, {0}, {0}, {13, 7}},
    {"the largest remainder gets the last", AUTO, 10, {10, 10, 5}, {0}, {0}, {0}, {4, 4, 2}},
    {"every queue with work gets one", AUTO, 10, {1000, 1, 1}, {0}, {0}, {0}, {8, 1, 1}},
    {"one without work gets none", AUTO, 10, {1000, 0, 1}, {0}, {0}, {0}, {9, 0, 1}},
    {"and none gets more than it wants", AUTO, 10, {3, 2, 0}, {0}, {0}, {0}, {3, 2, 0}},
    {"twice the weight, twice the workers", AUTO, 9, {50, 50}, {0}, {0}, {2, 1}, {6, 3}},
    {"a min is kept for an empty queue", AUTO, 10, {1000, 0}, {0, 3}, {0}, {0}, {7, 3}},
    {"a max is a max, and what is over goes on",
     AUTO,
     10,
     {1000, 1000, 1000},
     {0},
     {2, 0, 0},
     {0},
     {2, 4, 4}},
    {"mins first where they fit", AUTO, 3, {9, 9, 9}, {0, 2, 0}, {0}, {0}, {1, 2, 0}},
    {"else one for each with work", AUTO, 2, {9, 0, 9}, {2, 2, 2}, {0}, {0}, {1, 0, 1}},
    {"no worker", AUTO, 0, {9, 9}, {1, 1}, {0}, {0}, {0, 0}},
    {"no queue asks", AUTO, 10, {0, 0}, {0}, {0}, {0}, {0, 0}},
    {"simple: even, whatever they need", SIMPLE, 9, {1000, 1, 1}, {0}, {0}, {0}, {3, 3, 3}},
    {"simple: by weight", SIMPLE, 9, {1000, 1, 1}, {0}, {0}, {1, 1, 7}, {1, 1, 7}},
    {"ordered: the first takes what it needs", ORDERED, 9, {5, 9, 9}, {0}, {0}, {0}, {5, 4, 0}},
    {"ordered: the last may starve", ORDERED, 9, {50, 9, 9}, {0}, {0}, {0}, {9, 0, 0}},
    {"ordered: but for its min", ORDERED, 9, {50, 9, 9}, {0, 0, 1}, {0}, {0}, {8, 0, 1}},
};

static size_t fill(struct co_balance_queue *queues, const uint32_t *want, const uint32_t *min,
                   const uint32_t *max, const uint32_t *weight)
{
    for (size_t i = 0; i < QUEUES; i++) {
        queues[i] = (struct co_balance_queue){.want = want[i],
                                              .min = min[i],
                                              .max = max[i] > 0 ? max[i] : 1000,
                                              .weight = weight[i] > 0 ? weight[i] : 1};
    }
    return QUEUES;
}

static void splits_are_as_the_table_has_them(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof splits / sizeof splits[0]; r++) {
        struct co_balance_queue queues[QUEUES];
        size_t n = splits[r].mode == SIMPLE ? 3 : QUEUES; /* simple counts every queue there is. */
        fill(queues, splits[r].want, splits[r].min, splits[r].max, splits[r].weight);
        co_balance_split(splits[r].mode, queues, n, splits[r].workers);
        for (size_t i = 0; i < n; i++) {
            if (queues[i].limit != splits[r].limit[i]) {
                fail_msg("%s: queue %zu has %u, not %u", splits[r].what, i, queues[i].limit,
                         splits[r].limit[i]);
            }
        }
    }
}

/* ---- Horizon's vectors ---- */

/* What Horizon's balancer does (its test cases, and defects shown with its own class), and what
 * Cohort does at the same. A Horizon "process" serves one queue; a Cohort limit says how many
 * workers may serve it, so nothing is started or ended for a step. One step is one cooldown. */
#define STEPS 4
static const struct {
    const char *what;
    uint32_t workers, shift;
    size_t n;
    uint32_t start[QUEUES], want[QUEUES], min[QUEUES];
    const char *horizon;
    uint32_t limits[STEPS][QUEUES];
    const char *why;
} horizon[] = {
    {"20 and 10 jobs",
     20,
     1,
     2,
     {10, 10},
     {20, 10},
     {0},
     "11/9 12/8 13/7 13/7",
     {{11, 9}, {12, 8}, {13, 7}, {13, 7}},
     "the same"},
    {"no jobs",
     10,
     1,
     2,
     {5, 5},
     {0, 0},
     {0},
     "4/4 3/3 2/2 1/1",
     {{0, 0}, {0, 0}, {0, 0}, {0, 0}},
     "room that nobody uses costs nothing to give up; how many workers stay is the scaler's"},
    {"50 jobs and none, 10 workers",
     10,
     1,
     2,
     {1, 1},
     {50, 0},
     {0},
     "2/1 3/1 ... 9/1",
     {{10, 0}, {10, 0}, {10, 0}, {10, 0}},
     "what the other does not use moves at once, and none is kept back where no min says so"},
    {"600 and 300 jobs, shift 10",
     150,
     10,
     2,
     {75, 75},
     {600, 300},
     {0},
     "85/65 95/55 100/50",
     {{85, 65}, {95, 55}, {100, 50}, {100, 50}},
     "the same"},
    {"one job each, 16 processes where 15 may be",
     15,
     1,
     2,
     {16, 1},
     {1, 1},
     {1, 1},
     "15/1 14/1",
     {{1, 1}, {1, 1}, {1, 1}, {1, 1}},
     "one job needs one"},
    {"size: 1000 and 500 jobs",
     100,
     1,
     2,
     {50, 50},
     {1000, 500},
     {0},
     "51/49 52/48",
     {{51, 49}, {52, 48}, {53, 47}, {54, 46}},
     "the same"},
    {"horizon 1539: a long job that never ends must not keep what another queue needs",
     5,
     1,
     2,
     {4, 1},
     {4, 101},
     {0},
     "3+1 terminating/1 until the long job ends",
     {{3, 2}, {2, 3}, {1, 4}, {1, 4}},
     "the next worker that is free is the short queue's; nobody is ended for it"},
    {"horizon 1647: two full queues, two empty ones with min 1",
     10,
     10,
     4,
     {1, 1, 1, 1},
     {1000, 1000, 0, 0},
     {1, 1, 1, 1},
     "5/3/1/1 for ever",
     {{4, 4, 1, 1}, {4, 4, 1, 1}, {4, 4, 1, 1}, {4, 4, 1, 1}},
     "equal need, equal part"},
    {"three queues with a job each, no time known",
     9,
     1,
     3,
     {1, 1, 1},
     {1, 1, 1},
     {0},
     "7/1/1, or in another order 1/1/7",
     {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
     "never more than can run at once"},
};

static void horizons_vectors_are_met_or_bettered(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof horizon / sizeof horizon[0]; r++) {
        struct co_balance balance = {0};
        struct co_balance_rules rules = {AUTO, horizon[r].shift, 3000};
        struct co_balance_queue queues[QUEUES];
        static const uint32_t none[QUEUES] = {0};
        fill(queues, horizon[r].want, horizon[r].min, none, none);
        for (size_t i = 0; i < QUEUES; i++) {
            queues[i].limit = horizon[r].start[i];
        }
        for (int step = 0; step < STEPS; step++) {
            co_balance_step(&balance, &rules, queues, horizon[r].n, horizon[r].workers,
                            10000 + 3000 * (co_ms)step);
            for (size_t i = 0; i < horizon[r].n; i++) {
                if (queues[i].limit != horizon[r].limits[step][i]) {
                    fail_msg("%s, step %d: queue %zu has %u, not %u", horizon[r].what, step, i,
                             queues[i].limit, horizon[r].limits[step][i]);
                }
            }
        }
    }
}

/* ---- weaknesses of other supervisors ---- */

/* Weakness 13: moving a worker costs two cooldowns. Here five queues change places in one
 * evaluation: what each does not use any more is the others' at once. */
static void five_queues_rebalance_in_one_evaluation(void **state)
{
    struct co_balance balance = {0};
    struct co_balance_rules rules = {AUTO, 1, 3000};
    struct co_balance_queue queues[5] = {
        {.want = 20, .max = 20, .weight = 1}, {.want = 0, .max = 20, .weight = 1},
        {.want = 0, .max = 20, .weight = 1},  {.want = 0, .max = 20, .weight = 1},
        {.want = 0, .max = 20, .weight = 1},
    };

    (void)state;
    co_balance_step(&balance, &rules, queues, 5, 20, 1000);
    assert_int_equal(queues[0].limit, 20);
    queues[0].want = 0;
    for (size_t i = 1; i < 5; i++) {
        queues[i].want = 5;
    }
    co_balance_step(&balance, &rules, queues, 5, 20, 1001);
    assert_int_equal(queues[0].limit, 0);
    for (size_t i = 1; i < 5; i++) {
        assert_int_equal(queues[i].limit, 5);
    }
}

/* Weakness 6: a weight floored at one makes an empty queue look like one with little work. */
static void no_spare_worker_lands_on_an_empty_queue(void **state)
{
    struct co_balance_queue queues[4] = {
        {.want = 2, .max = 99, .weight = 1},
        {.want = 0, .max = 99, .weight = 9},
        {.want = 0, .max = 99, .weight = 9},
        {.want = 1, .max = 99, .weight = 1},
    };

    (void)state;
    co_balance_split(AUTO, queues, 4, 30);
    assert_int_equal(queues[0].limit + queues[3].limit, 3);
    assert_int_equal(queues[1].limit + queues[2].limit, 0);
}

/* Weakness 18: the cost of a split does not grow with the workers. */
static void a_split_of_millions_is_as_quick_as_one_of_ten(void **state)
{
    static struct co_balance_queue queues[CO_BALANCE_MAX];
    uint64_t sum = 0;

    (void)state;
    for (size_t i = 0; i < CO_BALANCE_MAX; i++) {
        queues[i] = (struct co_balance_queue){
            .want = 1000000 + (uint32_t)i, .max = UINT32_MAX, .weight = 1 + (uint32_t)i};
    }
    co_balance_split(AUTO, queues, CO_BALANCE_MAX, 100000000);
    for (size_t i = 0; i < CO_BALANCE_MAX; i++) {
        sum += queues[i].limit;
    }
    assert_int_equal(sum, 100000000);
}

/* ---- properties ---- */

struct round {
    enum co_balance_mode mode;
    uint32_t workers;
    size_t n;
    struct co_balance_queue queues[12];
    uint32_t before[12];
};

static uint32_t reserved(const struct co_balance_queue *queue)
{
    return queue->min < queue->max ? queue->min : queue->max;
}

static uint32_t least(const struct co_balance_queue *queue)
{
    uint32_t one = queue->want > 0 && queue->max > 0;

    return reserved(queue) > one ? reserved(queue) : one;
}

static uint32_t uses(const struct co_balance_queue *queue)
{
    uint32_t n = queue->want < queue->max ? queue->want : queue->max;

    return n > reserved(queue) ? n : reserved(queue);
}

#define MUST(what)                                                    \
    do {                                                              \
        if (!(what)) {                                                \
            print_round(round);                                       \
            fail_msg("run %d step %d: not so: %s", run, step, #what); \
        }                                                             \
    } while (0)

static void print_round(const struct round *round)
{
    printf("%s, %u workers\n", co_balance_name(round->mode), round->workers);
    for (size_t i = 0; i < round->n; i++) {
        const struct co_balance_queue *q = &round->queues[i];
        printf("  want %u min %u max %u weight %u: %u -> %u\n", q->want, q->min, q->max, q->weight,
               round->before[i], q->limit);
    }
}

static void check_limits(int run, int step, const struct round *round)
{
    uint64_t sum = 0, all_uses = 0, all_least = 0, all_reserved = 0;

    for (size_t i = 0; i < round->n; i++) {
        sum += round->queues[i].limit;
        all_uses += uses(&round->queues[i]);
        all_least += least(&round->queues[i]);
        all_reserved += reserved(&round->queues[i]);
    }
    MUST(sum <= round->workers);
    if (round->mode == AUTO) { /* Nobody waits beside room. */
        MUST(sum == (all_uses < round->workers ? all_uses : round->workers));
    }
    for (size_t i = 0; i < round->n; i++) {
        const struct co_balance_queue *q = &round->queues[i];
        MUST(q->limit <= q->max);
        MUST(all_reserved > round->workers || q->limit >= reserved(q));
        MUST(all_least > round->workers || round->mode == ORDERED || q->limit >= least(q));
        if (round->mode == ORDERED && i > 0 && q->limit > reserved(q) &&
            all_reserved <= round->workers && step == 0) {
            MUST(round->queues[i - 1].limit >= uses(&round->queues[i - 1]));
        }
    }
}

/* What was taken from queues that still want it, beyond what had to be: the first one or the min
 * of another, workers that are gone. */
static uint32_t taken(const struct round *round, uint32_t workers_before)
{
    uint32_t taken = 0;
    uint32_t forced = workers_before > round->workers ? workers_before - round->workers : 0;

    for (size_t i = 0; i < round->n; i++) {
        const struct co_balance_queue *q = &round->queues[i];
        uint32_t had = round->before[i] < q->max ? round->before[i] : q->max;
        uint32_t kept = had < q->want ? had : q->want;
        taken += kept > q->limit ? kept - q->limit : 0;
        forced += least(q) > had ? least(q) - had : 0;
    }
    return taken > forced ? taken - forced : 0;
}

static bool is_scarce(const struct round *round)
{
    uint64_t all = 0;

    for (size_t i = 0; i < round->n; i++) {
        all += least(&round->queues[i]);
    }
    return all > round->workers;
}

static void draw_wants(struct round *round, uint64_t *seed)
{
    for (size_t i = 0; i < round->n; i++) {
        round->queues[i].want = draw_below(seed, 3) == 0 ? 0 : draw_size(seed, 9);
    }
}

static void draw_round(struct round *round, uint64_t *seed)
{
    *round = (struct round){.mode = (enum co_balance_mode)draw_below(seed, 3),
                            .workers = draw_size(seed, 7),
                            .n = draw_in(seed, 1, 12)};
    for (size_t i = 0; i < round->n; i++) {
        round->queues[i] = (struct co_balance_queue){
            .min = draw_below(seed, 3) == 0 ? draw_below(seed, 6) : 0,
            .max = draw_below(seed, 3) == 0 ? draw_size(seed, 6) : 1000,
            .weight = draw_in(seed, 1, 9),
        };
    }
    draw_wants(round, seed);
}

static void whatever_comes_the_limits_hold(void **state)
{
    (void)state;
    for (int run = 0; run < RUNS; run++) {
        uint64_t seed = (uint64_t)run * 6151 + 11;
        struct round drawn, *round = &drawn;
        struct co_balance balance = {0};
        struct co_balance_rules rules = {.max_shift = draw_in(&seed, 1, 8),
                                         .cooldown_ms = draw_below(&seed, 5000)};
        co_ms now = 1000, moved_at = 0;
        bool moved = false;

        draw_round(round, &seed);
        rules.mode = round->mode;
        for (int step = 0; step < 25; step++) {
            uint32_t workers_before = round->workers;
            bool was_scarce = is_scarce(round);
            uint32_t n;
            if (draw_below(&seed, 2) == 0) {
                draw_wants(round, &seed);
            }
            if (draw_below(&seed, 6) == 0) {
                round->workers = draw_size(&seed, 7);
            }
            for (size_t i = 0; i < round->n; i++) {
                round->before[i] = round->queues[i].limit;
            }
            co_balance_step(&balance, &rules, round->queues, round->n, round->workers, now);
            check_limits(run, step, round);
            n = taken(round, workers_before);
            if (!is_scarce(round) && !was_scarce) {
                MUST(n <= rules.max_shift);
                MUST(n == 0 || !moved || now - moved_at >= rules.cooldown_ms);
                moved_at = n > 0 ? now : moved_at;
                moved = moved || n > 0;
            }
            now += draw_size(&seed, 12);
        }
    }
}

static void with_nothing_new_the_split_is_reached_and_kept(void **state)
{
    (void)state;
    for (int run = 0; run < RUNS / 2; run++) {
        uint64_t seed = (uint64_t)run * 271 + 3;
        struct round drawn, *round = &drawn;
        struct round goal;
        struct co_balance balance = {0};
        struct co_balance_rules rules = {.max_shift = draw_in(&seed, 1, 8), .cooldown_ms = 1000};
        co_ms next = 1;
        int step = 0;

        draw_round(round, &seed);
        rules.mode = round->mode;
        co_balance_step(&balance, &rules, round->queues, round->n, round->workers, 500);
        draw_wants(round, &seed);
        if (is_scarce(round) && round->mode != ORDERED) {
            continue; /* They take turns: the next test. */
        }
        goal = *round;
        co_balance_split(rules.mode, goal.queues, goal.n, goal.workers);
        for (; next != 0; step++) { /* At the times it names itself. */
            MUST(step < 200);
            next = co_balance_step(&balance, &rules, round->queues, round->n, round->workers,
                                   next > 1 ? next : 600);
        }
        for (int more = 0; more < 3; more++) {
            for (size_t i = 0; i < round->n; i++) {
                MUST(round->queues[i].limit == goal.queues[i].limit);
            }
            co_balance_step(&balance, &rules, round->queues, round->n, round->workers,
                            1000000 + 1000 * (co_ms)more);
        }
    }
}

/* Fewer workers than queues with work: nobody waits for ever, but where order says so. */
static void nobody_starves(void **state)
{
    (void)state;
    for (int run = 0; run < RUNS / 4; run++) {
        uint64_t seed = (uint64_t)run * 911 + 7;
        struct round drawn, *round = &drawn;
        struct co_balance balance = {0};
        struct co_balance_rules rules = {.max_shift = draw_in(&seed, 1, 4), .cooldown_ms = 1000};
        bool served[12] = {false};
        uint64_t mins = 0;
        int step;

        draw_round(round, &seed);
        rules.mode = round->mode = draw_below(&seed, 2) == 0 ? AUTO : SIMPLE;
        for (size_t i = 0; i < round->n; i++) {
            mins += reserved(&round->queues[i]);
        }
        if (round->workers == 0 || mins == round->workers) {
            continue; /* Mins that take all are what was asked for. */
        }
        for (step = 0; step < 13; step++) {
            co_balance_step(&balance, &rules, round->queues, round->n, round->workers,
                            1000 + 1000 * (co_ms)step);
            for (size_t i = 0; i < round->n; i++) {
                served[i] = served[i] || round->queues[i].limit > 0;
            }
        }
        for (size_t i = 0; i < round->n; i++) {
            MUST(served[i] || least(&round->queues[i]) == 0 || round->queues[i].want == 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_are_as_the_table_has_them),
        cmocka_unit_test(horizons_vectors_are_met_or_bettered),
        cmocka_unit_test(five_queues_rebalance_in_one_evaluation),
        cmocka_unit_test(no_spare_worker_lands_on_an_empty_queue),
        cmocka_unit_test(a_split_of_millions_is_as_quick_as_one_of_ten),
        cmocka_unit_test(whatever_comes_the_limits_hold),
        cmocka_unit_test(with_nothing_new_the_split_is_reached_and_kept),
        cmocka_unit_test(nobody_starves),
    };
    return cmocka_run_group_tests_name("balance", tests, NULL, NULL);
}
