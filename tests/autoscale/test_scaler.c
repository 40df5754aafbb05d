#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "autoscale/scaler.h"
#include "autoscale/world.h"

#define RUNS 20000 /* Random policies, each with a random story of LOOKS looks. */
#define LOOKS 40
#define LOOPS 120 /* Random policies and loads with the loop closed. */

static struct co_scaler_rules rules_of(uint32_t min, uint32_t max, bool fast)
{
    struct co_scaler_rules rules;

    co_scaler_rules_default(&rules);
    rules.goal = (struct co_strategy_goal){CO_STRATEGY_SIZE, 1, 1, 1};
    rules.min = min;
    rules.max = max;
    rules.fast = fast;
    return rules;
}

static struct co_decision look(struct co_scaler *scaler, const struct co_scaler_rules *rules,
                               struct co_signals signals, bool pushed, co_ms now)
{
    struct co_decision decision;

    co_scaler_decide(scaler, rules, &signals, NULL, pushed, now, &decision);
    return decision;
}

/* ---- stories ---- */

static void a_burst_gets_all_its_workers_in_one_look(void **state)
{
    struct co_scaler_rules rules = rules_of(0, 64, true);
    struct co_scaler scaler;
    struct co_decision d;

    (void)state;
    co_scaler_init(&scaler, &rules, 0);
    look(&scaler, &rules, (struct co_signals){0}, false, 0);
    d = look(&scaler, &rules, (struct co_signals){.ready = 64, .oldest_ms = 1}, true, 10);
    assert_int_equal(d.target, 64);
    assert_int_equal(d.start, 64);
    assert_int_equal(d.stop, 0);
    assert_int_equal(d.limits, 0);
    /* Asked again while they boot: not one more. */
    d = look(&scaler, &rules, (struct co_signals){.ready = 64, .booting = 64}, true, 11);
    assert_int_equal(d.target, 64);
    assert_int_equal(d.start, 0);
}

static void without_fast_each_step_is_a_shift_and_each_shift_a_cooldown(void **state)
{
    struct co_scaler_rules rules = rules_of(0, 20, false);
    struct co_scaler scaler;
    static const uint32_t targets[] = {5, 5, 5, 9, 9, 9, 13, 13, 13, 17, 17, 17, 20};

    (void)state;
    co_scaler_init(&scaler, &rules, 0);
    look(&scaler, &rules, (struct co_signals){0}, false, 0);
    for (uint32_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        struct co_decision d =
            look(&scaler, &rules, (struct co_signals){.ready = 100}, false, 1000 * (co_ms)i + 1000);
        assert_int_equal(d.target, targets[i]);
        if (d.target < 17 && i % 3 != 0) {
            assert_true((d.limits & CO_LIMIT_COOLDOWN) != 0);
            assert_true(d.next == 1000 * (co_ms)(i - i % 3) + 1000 + rules.cooldown_ms);
        }
    }
}

static void the_first_worker_waits_for_no_cooldown(void **state)
{
    struct co_scaler_rules rules = rules_of(0, 20, false);
    struct co_scaler scaler;
    struct co_decision d;

    (void)state;
    rules.delay_ms = 0;
    rules.max_shift = 5;
    co_scaler_init(&scaler, &rules, 0);
    look(&scaler, &rules, (struct co_signals){.ready = 1, .busy = 4}, false, 0);
    d = look(&scaler, &rules, (struct co_signals){.busy = 4}, false, 100);
    assert_int_equal(d.target, 5);
    d = look(&scaler, &rules, (struct co_signals){0}, false, 3200);
    assert_int_equal(d.target, 0); /* A step down a moment ago ... */
    d = look(&scaler, &rules, (struct co_signals){.ready = 9}, true, 3300);
    assert_int_equal(d.target, 1); /* ... keeps the queue at one, not at none. */
    assert_true((d.limits & CO_LIMIT_COOLDOWN) != 0);
}

/* Weakness 4: a window that restarts on each lower value keeps the peak for as long as the target
 * goes on falling. */
static void a_target_that_falls_slowly_comes_down(void **state)
{
    struct co_scaler_rules rules = rules_of(0, 20, true);
    struct co_scaler scaler;
    struct co_decision d = {0};

    (void)state;
    co_scaler_init(&scaler, &rules, 0);
    for (co_ms now = 0; now <= 120000; now += 250) {
        uint32_t jobs = 20 - (uint32_t)(now / 6000); /* One less every six seconds. */
        d = look(&scaler, &rules, (struct co_signals){.ready = jobs}, false, now);
        if (now >= 20000) {
            uint32_t before = 20 - (uint32_t)((now - 14000) / 6000);
            assert_true(d.target <= before);
            assert_true(d.target >= jobs);
        }
    }
    assert_true(d.target <= 2);
}

static void a_spike_holds_its_workers_for_the_delay(void **state)
{
    struct co_scaler_rules rules = rules_of(0, 50, true);
    struct co_scaler scaler;
    struct co_decision d;

    (void)state;
    rules.max_shift = 50;
    co_scaler_init(&scaler, &rules, 0);
    look(&scaler, &rules, (struct co_signals){0}, false, 0);
    look(&scaler, &rules, (struct co_signals){.ready = 40}, true, 100);
    d = look(&scaler, &rules, (struct co_signals){.ready = 2, .idle = 38, .busy = 2}, false, 5000);
    assert_int_equal(d.target, 40);
    assert_true((d.limits & CO_LIMIT_DELAY) != 0);
    assert_true(d.next > 10000 && d.next <= 100 + 10000 + 10000 / CO_WINDOW_SLICES + 1);
    d = look(&scaler, &rules, (struct co_signals){.idle = 40}, false, d.next);
    assert_true(d.target <= 4);
    assert_int_equal(d.stop, 40 - d.target);
    assert_int_equal(d.start, 0);
}

static void a_stale_source_holds_the_target_for_as_long_as_it_lasts(void **state)
{
    struct co_scaler_rules rules = rules_of(0, 50, true);
    struct co_scaler scaler;
    struct co_decision d;

    (void)state;
    co_scaler_init(&scaler, &rules, 0);
    d = look(&scaler, &rules, (struct co_signals){.ready = 7}, false, 0);
    for (co_ms now = 250; now < 3600000; now += 250) {
        d = look(&scaler, &rules, (struct co_signals){.idle = 7, .stale = true}, false, now);
        assert_int_equal(d.target, 7);
        assert_int_equal(d.start + d.stop, 0);
        assert_true((d.limits & CO_LIMIT_STALE) != 0);
    }
    /* It answers: what was held counts as needed until now, so the delay begins here. */
    d = look(&scaler, &rules, (struct co_signals){.idle = 7}, false, 3600000);
    assert_int_equal(d.target, 7);
    d = look(&scaler, &rules, (struct co_signals){.idle = 7}, false, 3611000);
    assert_int_equal(d.target, 3);
}

static void a_source_that_never_answered_is_worth_one_worker(void **state)
{
    struct co_scaler_rules rules = rules_of(0, 50, true);
    struct co_scaler scaler;
    struct co_decision d;

    (void)state;
    co_scaler_init(&scaler, &rules, 0);
    d = look(&scaler, &rules, (struct co_signals){.stale = true}, false, 0);
    assert_int_equal(d.target, 1);
    rules.min = 3;
    co_scaler_init(&scaler, &rules, 0);
    d = look(&scaler, &rules, (struct co_signals){.stale = true}, false, 0);
    assert_int_equal(d.target, 3);
}

/* Weakness 9. */
static void short_memory_stops_growth_but_for_the_first_worker(void **state)
{
    struct co_scaler_rules rules = rules_of(0, 50, true);
    struct co_scaler scaler;
    struct co_decision d;

    (void)state;
    co_scaler_init(&scaler, &rules, 0);
    look(&scaler, &rules, (struct co_signals){0}, false, 0);
    d = look(&scaler, &rules, (struct co_signals){.ready = 40, .tight = true}, true, 10);
    assert_int_equal(d.target, 1);
    assert_true((d.limits & CO_LIMIT_MEMORY) != 0);
    d = look(&scaler, &rules, (struct co_signals){.ready = 40, .busy = 1, .tight = true}, true, 20);
    assert_int_equal(d.target, 1);
    d = look(&scaler, &rules, (struct co_signals){.ready = 40, .busy = 1}, false, 250);
    assert_int_equal(d.target, 41);
}

/* Weakness 7: the jobs that draining workers finish ask for no other worker, and draining workers
 * are no capacity. keda#5537: starting ones are. */
static void starting_and_draining_workers_are_counted_as_what_they_are(void **state)
{
    struct co_scaler_rules rules = rules_of(0, 50, true);
    struct co_scaler scaler;
    struct co_decision d;

    (void)state;
    co_scaler_init(&scaler, &rules, 0);
    d = look(&scaler, &rules, (struct co_signals){.ready = 5, .booting = 3, .idle = 1}, true, 0);
    assert_int_equal(d.target, 5);
    assert_int_equal(d.start, 1);
    d = look(&scaler, &rules,
             (struct co_signals){.ready = 5, .running = 9, .busy = 1, .draining = 8}, true, 1);
    assert_int_equal(d.target, 6);
    assert_int_equal(d.start, 5);
}

static void an_operator_decides_over_all_but_max_capacity_and_memory(void **state)
{
    struct co_scaler_rules rules = rules_of(2, 20, true);
    struct co_scaler scaler;
    struct co_decision d;
    struct co_signals busy = {.ready = 12};

    (void)state;
    co_scaler_init(&scaler, &rules, 0);
    co_scaler_decide(&scaler, &rules, &busy, &(struct co_scaler_hold){CO_HOLD_WORKERS, 0}, false, 0,
                     &d);
    assert_int_equal(d.target, 0); /* Below min: he said so. */
    co_scaler_decide(&scaler, &rules, &busy, &(struct co_scaler_hold){CO_HOLD_WORKERS, 99}, false,
                     1, &d);
    assert_int_equal(d.target, 20);
    assert_true((d.limits & CO_LIMIT_MAX) != 0);
    co_scaler_decide(&scaler, &rules, &(struct co_signals){0},
                     &(struct co_scaler_hold){CO_HOLD_IN, 0}, false, 60000, &d);
    assert_int_equal(d.target, 20);
    assert_true((d.limits & CO_LIMIT_OPERATOR) != 0);
    co_scaler_decide(&scaler, &rules, &(struct co_signals){0}, NULL, false, 60001, &d);
    assert_int_equal(d.target, 16);
    co_scaler_decide(&scaler, &rules, &(struct co_signals){.ready = 30},
                     &(struct co_scaler_hold){CO_HOLD_OUT, 0}, false, 60002, &d);
    assert_int_equal(d.target, 16);
}

static void without_event_driven_a_push_waits_for_the_look(void **state)
{
    struct co_scaler_rules rules = rules_of(1, 20, true);
    struct co_scaler scaler;
    struct co_decision d;

    (void)state;
    rules.event_driven = false;
    co_scaler_init(&scaler, &rules, 0);
    look(&scaler, &rules, (struct co_signals){.ready = 1}, false, 0);
    d = look(&scaler, &rules, (struct co_signals){.ready = 9}, true, 100);
    assert_int_equal(d.target, 1);
    assert_true((d.limits & CO_LIMIT_PERIOD) != 0);
    assert_int_equal(d.next, CO_SCALER_BUSY_MS);
    assert_int_equal(co_scaler_deadline(&scaler), CO_SCALER_BUSY_MS);
    d = look(&scaler, &rules, (struct co_signals){.ready = 9}, false, CO_SCALER_BUSY_MS);
    assert_int_equal(d.target, 9);
}

static void a_load_beside_a_whole_number_does_not_hop(void **state)
{
    struct co_scaler_rules rules = rules_of(0, 20, true);
    struct co_scaler scaler;
    struct co_decision d;

    (void)state;
    rules.goal.strategy = CO_STRATEGY_WAIT;
    rules.goal.target_wait_ms = 2000;
    rules.delay_ms = 0;
    rules.cooldown_ms = 0;
    co_scaler_init(&scaler, &rules, 0);
    for (co_ms now = 0; now < 10000; now += 250) {
        bool low = (now / 250) % 2 == 0;
        struct co_signals signals = {.ready = 40,
                                     .busy = 4,
                                     .running = 4,
                                     .oldest_ms = 1,
                                     .arrival_per_s = low ? 19.8 : 20.7,
                                     .service_us = 195000};
        d = look(&scaler, &rules, signals, false, now);
        if (now >= 250) {
            assert_int_equal(d.target, 8);
        }
    }
    /* But it comes down once it is clearly lower. */
    d = look(
        &scaler, &rules,
        (struct co_signals){.ready = 40, .oldest_ms = 1, .arrival_per_s = 18, .service_us = 195000},
        false, 10000);
    assert_int_equal(d.target, 8); /* 3.5 for what arrives, 3.9 for what waits. */
    d = look(
        &scaler, &rules,
        (struct co_signals){.ready = 30, .oldest_ms = 1, .arrival_per_s = 18, .service_us = 195000},
        false, 10250);
    assert_int_equal(d.target, 7);
}

static void a_successor_goes_on_where_the_owner_stopped(void **state)
{
    struct co_scaler_rules rules = rules_of(0, 50, true);
    struct co_scaler a, b;
    uint8_t saved[CO_SCALER_SAVED_SIZE];
    size_t size;

    (void)state;
    co_scaler_init(&a, &rules, 0);
    look(&a, &rules, (struct co_signals){.ready = 30}, false, 0);
    look(&a, &rules, (struct co_signals){.idle = 30}, false, 4000);
    size = co_scaler_save(&a, 5000, saved);
    co_scaler_init(&b, &rules, 900000); /* Another host's clock. */
    assert_int_equal(co_scaler_restore(&b, &rules, saved, size, 905000), 0);
    for (co_ms now = 5000; now < 60000; now += 250) {
        struct co_decision da = look(&a, &rules, (struct co_signals){.idle = 3}, false, now);
        struct co_decision db =
            look(&b, &rules, (struct co_signals){.idle = 3}, false, 900000 + now);
        assert_int_equal(da.target, db.target);
        assert_int_equal(da.limits, db.limits);
    }
    for (size_t n = 0; n < size; n++) {
        assert_true(co_scaler_restore(&b, &rules, saved, n, 0) < 0);
    }
}

static void a_saved_scaler_of_any_bytes_is_harmless(void **state)
{
    struct co_scaler_rules rules = rules_of(2, 50, true);
    uint64_t seed = 7;

    (void)state;
    for (int run = 0; run < 20000; run++) {
        struct co_scaler scaler;
        uint8_t saved[CO_SCALER_SAVED_SIZE];
        struct co_decision d;
        for (size_t i = 0; i < sizeof saved; i++) {
            saved[i] = (uint8_t)draw(&seed);
        }
        saved[0] = 1;
        saved[5] &= 1;
        co_scaler_init(&scaler, &rules, 1000);
        (void)co_scaler_restore(&scaler, &rules, saved, sizeof saved, 1000);
        for (co_ms now = 1000; now < 120000; now += 9000) {
            d = look(&scaler, &rules, (struct co_signals){.ready = 3}, false, now);
            assert_true(d.target >= 2 && d.target <= 50);
        }
        assert_int_equal(d.target, 3);
    }
}

/* ---- properties, open loop: any signals whatsoever ---- */

static struct co_scaler_rules draw_rules(uint64_t *seed)
{
    struct co_scaler_rules rules = {
        .goal = {.strategy = (enum co_strategy)draw_below(seed, CO_STRATEGIES),
                 .jobs_per_worker = draw_in(seed, 1, 50),
                 .clear_within_ms = draw_in(seed, 1, 120000),
                 .target_wait_ms = draw_in(seed, 1, 60000)},
        .min = draw_size(seed, 5),
        .max_shift = draw_in(seed, 1, 12),
        .cooldown_ms = draw_below(seed, 10000),
        .fast = draw_below(seed, 2) == 0,
        .event_driven = draw_below(seed, 2) == 0,
        .delay_ms = draw_below(seed, 30000),
        .alert_ms = draw_below(seed, 2) * 60000,
    };

    rules.max = rules.min + draw_size(seed, 8);
    return rules;
}

static struct co_signals draw_signals(uint64_t *seed)
{
    struct co_signals signals = {
        .ready = draw_size(seed, 20),
        .due_soon = draw_size(seed, 4),
        .claimed = draw_size(seed, 6),
        .oldest_ms = draw_size(seed, 20),
        .arrival_per_s = draw_size(seed, 14) / 7.0,
        .service_us = draw_size(seed, 24),
        .service_dev_us = draw_size(seed, 22),
        .booting = draw_size(seed, 5),
        .idle = draw_size(seed, 6),
        .busy = draw_size(seed, 6),
        .draining = draw_size(seed, 4),
        .capacity = draw_below(seed, 3) == 0 ? draw_in(seed, 1, 100) : 0,
        .tight = draw_below(seed, 10) == 0,
        .stale = draw_below(seed, 6) == 0,
    };

    if (draw_below(seed, 5) == 0) {
        signals.ready = signals.due_soon = signals.claimed = 0;
    }
    signals.running = signals.busy + signals.draining;
    return signals;
}

struct past {
    uint32_t target;
    bool stepped;
    co_ms stepped_at;
};

#define MUST(what)                                                            \
    do {                                                                      \
        if (!(what)) {                                                        \
            char text_[CO_DECISION_TEXT_SIZE];                                \
            co_decision_text(d, d->at, text_, sizeof text_);                  \
            fail_msg("run %d look %d: not so: %s\n%s", run, i, #what, text_); \
        }                                                                     \
    } while (0)

static uint32_t least_cap(const struct co_scaler_rules *rules, const struct co_signals *s)
{
    return s->capacity > 0 && s->capacity < rules->max ? s->capacity : rules->max;
}

static void check_bounds(int run, int i, const struct co_scaler_rules *rules,
                         const struct co_decision *d, const struct co_scaler_hold *hold)
{
    uint64_t serving = co_signals_serving(&d->signals);
    bool said_less = hold->hold == CO_HOLD_WORKERS || d->signals.tight ||
                     hold->hold == CO_HOLD_OUT || hold->hold == CO_HOLD_BOTH;

    MUST(d->target <= rules->max);
    MUST(d->signals.capacity == 0 || d->target <= d->signals.capacity);
    MUST(d->target >= rules->min || said_less || d->target == d->signals.capacity);
    /* Signs. */
    MUST(d->start == 0 || d->stop == 0);
    MUST(d->start <= d->target);
    MUST((uint64_t)d->stop <= serving);
    MUST(serving + d->start - d->stop == d->target);
    /* One queued job is one worker, if any may be. */
    MUST(co_signals_outstanding(&d->signals) == 0 || d->target > 0 || d->signals.stale ||
         least_cap(rules, &d->signals) == 0 || hold->hold != CO_HOLD_NONE ||
         (d->limits & CO_LIMIT_PERIOD) != 0);
}

static void check_brake(int run, int i, const struct co_scaler_rules *rules,
                        const struct co_decision *d, const struct co_scaler_hold *hold,
                        struct past *past)
{
    uint32_t floor_ = past->target > 0 ? past->target : 1;
    uint32_t bound = least_cap(rules, &d->signals);
    bool braked;

    if (hold->hold == CO_HOLD_WORKERS || d->first) {
        past->stepped = false; /* What an operator does is no step. */
        return;
    }
    braked = d->target < past->target ? d->target != bound : d->target > floor_ && !rules->fast;
    if (d->target < past->target && d->target < bound) {
        MUST(past->target - d->target <= rules->max_shift);
    }
    if (d->target > floor_ && !rules->fast) {
        MUST(d->target - floor_ <= rules->max_shift || d->target <= rules->min);
    }
    if (d->target > floor_ && rules->fast) { /* No more than the gap. */
        MUST(d->target <= d->demand.workers || d->target <= rules->min);
    }
    if (braked && d->target > rules->min) {
        MUST(!past->stepped || d->at - past->stepped_at >= rules->cooldown_ms);
        past->stepped = true;
        past->stepped_at = d->at;
    }
}

static void check_holds(int run, int i, const struct co_scaler_rules *rules,
                        const struct co_decision *d, const struct co_scaler_hold *hold,
                        const struct past *past)
{
    uint32_t bound = least_cap(rules, &d->signals);

    if (hold->hold == CO_HOLD_WORKERS) {
        MUST(d->target == (hold->workers < bound ? hold->workers : bound) || d->signals.tight);
        return;
    }
    if (d->signals.stale && !d->first) { /* Neither nought nor max, but what it was. */
        uint32_t was = past->target < rules->min ? rules->min : past->target;
        MUST(d->target == (was < bound ? was : bound) || d->signals.tight ||
             d->target == past->target);
    }
    if (d->signals.tight && !d->first) {
        MUST(d->target <= (past->target > 1 ? past->target : 1));
    }
    if ((hold->hold == CO_HOLD_IN || hold->hold == CO_HOLD_BOTH) && !d->first) {
        MUST(d->target >= (past->target < bound ? past->target : bound));
    }
    if ((hold->hold == CO_HOLD_OUT || hold->hold == CO_HOLD_BOTH) && !d->first) {
        MUST(d->target <= past->target);
    }
}

/* What is not what the work asks for names what held it; and the text holds it all. */
static void check_explained(int run, int i, const struct co_scaler_rules *rules,
                            const struct co_decision *d)
{
    char text[CO_DECISION_TEXT_SIZE], line[CO_DECISION_TEXT_SIZE];
    size_t size = co_decision_text(d, d->at + 7, text, sizeof text);

    (void)rules;
    MUST(d->signals.stale || d->target == d->demand.workers || d->limits != 0);
    MUST(d->limits != CO_LIMIT_PERIOD || d->next > 0);
    MUST(size < sizeof text - 1 && strlen(text) == size && text[size - 1] == '\n');
    size = co_decision_line(d, line, sizeof line);
    MUST(size < sizeof line - 1 && strlen(line) == size && strchr(line, '\n') == NULL);
    MUST(strstr(text, "?") == NULL && strstr(line, "?") == NULL);
    for (size_t cut = 1 + (size_t)i; cut < 400 && i % 8 == 0; cut += 37) {
        MUST(co_decision_line(d, line, cut) < cut && strlen(line) < cut);
    }
}

static void whatever_comes_the_limits_hold(void **state)
{
    (void)state;
    for (int run = 0; run < RUNS; run++) {
        uint64_t seed = (uint64_t)run * 7919 + 1;
        struct co_scaler_rules rules = draw_rules(&seed);
        struct co_scaler scaler;
        struct past past = {0};
        co_ms now = draw_below(&seed, 100000);

        co_scaler_init(&scaler, &rules, now);
        for (int i = 0; i < LOOKS; i++) {
            struct co_decision decision;
            const struct co_decision *d = &decision;
            struct co_signals signals = draw_signals(&seed);
            struct co_scaler_hold hold = {CO_HOLD_NONE, 0};
            if (draw_below(&seed, 8) == 0) {
                hold.hold = (enum co_hold)draw_below(&seed, CO_HOLD_BOTH + 1);
                hold.workers = draw_size(&seed, 8);
            }
            co_scaler_decide(&scaler, &rules, &signals, &hold, draw_below(&seed, 2) == 0, now,
                             &decision);
            past.target = d->first ? d->previous : past.target;
            MUST(d->previous == past.target);
            check_bounds(run, i, &rules, d, &hold);
            check_brake(run, i, &rules, d, &hold, &past);
            check_holds(run, i, &rules, d, &hold, &past);
            check_explained(run, i, &rules, d);
            MUST(co_scaler_deadline(&scaler) <= now + CO_SCALER_QUIET_MS);
            past.target = d->target;
            now += draw_size(&seed, 14);
        }
    }
}

/* ---- properties, closed loop: the target is obeyed and the load answers ---- */

/* How long a change takes by the policy's own numbers: what was needed a delay ago may hold it,
 * then it is a shift in each cooldown. Below that is how long a rate takes to be known. */
static co_ms window_of(const struct co_scaler_rules *rules, uint32_t peak)
{
    co_ms steps = (peak + rules->max_shift - 1) / rules->max_shift;
    co_ms window = rules->delay_ms + rules->delay_ms / CO_WINDOW_SLICES + CO_SCALER_BUSY_MS +
                   rules->cooldown_ms * steps;

    return window > CO_ARRIVAL_SLOW_MS ? window : CO_ARRIVAL_SLOW_MS;
}

static struct world *draw_world(uint64_t seed, bool random)
{
    struct co_scaler_rules rules = draw_rules(&seed);
    struct world *world;
    double load;

    rules.min = draw_below(&seed, 4);
    rules.max = draw_in(&seed, 40, 200);
    rules.goal.jobs_per_worker = draw_in(&seed, 1, 10);
    rules.goal.clear_within_ms = draw_in(&seed, 500, 20000);
    rules.goal.target_wait_ms = draw_in(&seed, 500, 10000);
    rules.cooldown_ms = draw_in(&seed, 100, 2000);
    rules.delay_ms = draw_in(&seed, 2000, 12000);
    world = world_new(&rules, seed);
    world->boot_ms = draw_below(&seed, 100);
    world->service_ms = 10 * draw_in(&seed, 1, 120);
    load = draw_in(&seed, 2, 120) / 10.0;
    world->rate = load * 1000.0 / (double)world->service_ms;
    world->rate = world->rate < 300.0 ? world->rate : 300.0;
    world->random = random;
    return world;
}

/* A load so little above a whole number is served by that number, until the backlog it makes asks
 * for the next one: there, once, the target may still rise. */
static bool is_beside_whole(const struct world *world)
{
    double load = world->rate * (double)world->service_ms / 1000.0;
    double above = load - (double)(uint32_t)load;

    return above < 0.04 * load + 0.05;
}

static void a_steady_load_settles_in_two_windows_and_stays_ten(void **state)
{
    uint32_t exact = 0;

    (void)state;
    for (int run = 0; run < LOOPS; run++) {
        struct world *world = draw_world((uint64_t)run * 104729 + 3, false);
        uint32_t low = UINT32_MAX, high = 0, peak = 0;
        co_ms start = world->now;
        co_ms begin = world->now;
        co_ms window = window_of(&world->rules, 0);

        while (world->now < begin + 2 * window) {
            world_step(world);
            peak = world->decision.target > peak ? world->decision.target : peak;
            window = window_of(&world->rules, peak);
            if ((double)world_waiting(world) > 1.0 + world->rate / 4.0 &&
                world->now - start < 20 * window) {
                begin = world->now; /* What gathered before is part of the load. */
            }
        }
        for (co_ms end = world->now + 10 * window; world->now < end;) {
            world_step(world);
            low = world->decision.target < low ? world->decision.target : low;
            high = world->decision.target > high ? world->decision.target : high;
        }
        if (high - low > is_beside_whole(world)) {
            fail_msg("run %d: %u..%u for a load of %.2f, strategy %s", run, low, high,
                     world->rate * (double)world->service_ms / 1000.0,
                     co_strategy_name(world->rules.goal.strategy));
        }
        exact += !is_beside_whole(world);
        free(world);
    }
    assert_true(exact > LOOPS / 3);
}

static void a_load_that_ends_leaves_min(void **state)
{
    (void)state;
    for (int run = 0; run < LOOPS; run++) {
        struct world *world = draw_world((uint64_t)run * 31337 + 5, true);
        uint32_t target;

        world_push(world, draw_below(&world->seed, 200));
        world_run(world, 20000);
        world->rate = 0.0;
        for (co_ms end = world->now + 3600000; world_waiting(world) > 0;) {
            assert_true(world->now < end); /* A backlog is worked off. */
            world_step(world);
        }
        target = world->decision.target;
        world_run(world, 2 * world->service_ms);
        world_run(world, window_of(&world->rules, target));
        world_run(world, window_of(&world->rules, target));
        assert_int_equal(world->decision.target, world->rules.min);
        assert_int_equal(world_count(world, WORLD_IDLE), world->rules.min);
        free(world);
    }
}

/* The promise of `wait` where workers suffice, from none to all. */
static void the_oldest_job_waits_no_longer_than_target_wait(void **state)
{
    (void)state;
    for (int run = 0; run < LOOPS; run++) {
        struct world *world = draw_world((uint64_t)run * 271 + 9, false);
        uint64_t seed = (uint64_t)run + 1;

        world->rules.goal.strategy = CO_STRATEGY_WAIT;
        world->rules.fast = true;
        world->rules.event_driven = true;
        world->rules.max = 400;
        world->service_ms = 10 * draw_in(&seed, 1, 30);
        world->rate = 1000.0 * draw_in(&seed, 1, 30) / (double)world->service_ms / 3.0;
        for (int burst = 0; burst < 6; burst++) {
            world_push(world, draw_below(&seed, 300));
            world_run(world, draw_in(&seed, 500, 20000));
        }
        if (world->longest_wait > world->rules.goal.target_wait_ms + world->boot_ms +
                                      CO_SCALER_BUSY_MS + 2 * world->service_ms) {
            fail_msg("run %d: %llu ms of %llu, service %llu", run,
                     (unsigned long long)world->longest_wait,
                     (unsigned long long)world->rules.goal.target_wait_ms,
                     (unsigned long long)world->service_ms);
        }
        free(world);
    }
}

/* Weakness 17, and 15: no evaluations in between, no second to wait for. */
static void from_none_a_burst_is_at_work_after_one_boot(void **state)
{
    struct co_scaler_rules rules = rules_of(0, 64, true);
    struct world *world = world_new(&rules, 1);

    (void)state;
    world->service_ms = 1000;
    world_run(world, 5000);
    assert_int_equal(world_count(world, WORLD_NONE), WORLD_WORKERS);
    world_push(world, 64);
    assert_int_equal(world_count(world, WORLD_BOOTING), 64);
    world_run(world, world->boot_ms + WORLD_STEP_MS);
    assert_int_equal(world_count(world, WORLD_BUSY), 64);
    world_run(world, 1100);
    assert_int_equal(world->ended, 64);
    free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_gets_all_its_workers_in_one_look),
        cmocka_unit_test(without_fast_each_step_is_a_shift_and_each_shift_a_cooldown),
        cmocka_unit_test(the_first_worker_waits_for_no_cooldown),
        cmocka_unit_test(a_target_that_falls_slowly_comes_down),
        cmocka_unit_test(a_spike_holds_its_workers_for_the_delay),
        cmocka_unit_test(a_stale_source_holds_the_target_for_as_long_as_it_lasts),
        cmocka_unit_test(a_source_that_never_answered_is_worth_one_worker),
        cmocka_unit_test(short_memory_stops_growth_but_for_the_first_worker),
        cmocka_unit_test(starting_and_draining_workers_are_counted_as_what_they_are),
        cmocka_unit_test(an_operator_decides_over_all_but_max_capacity_and_memory),
        cmocka_unit_test(without_event_driven_a_push_waits_for_the_look),
        cmocka_unit_test(a_load_beside_a_whole_number_does_not_hop),
        cmocka_unit_test(a_successor_goes_on_where_the_owner_stopped),
        cmocka_unit_test(a_saved_scaler_of_any_bytes_is_harmless),
        cmocka_unit_test(whatever_comes_the_limits_hold),
        cmocka_unit_test(a_steady_load_settles_in_two_windows_and_stays_ten),
        cmocka_unit_test(a_load_that_ends_leaves_min),
        cmocka_unit_test(the_oldest_job_waits_no_longer_than_target_wait),
        cmocka_unit_test(from_none_a_burst_is_at_work_after_one_boot),
    };
    return cmocka_run_group_tests_name("scaler", tests, NULL, NULL);
}
