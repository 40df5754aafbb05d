#include "autoscale/scaler.h"

#include <assert.h>
#include <string.h>

#include "proto/err.h"

void co_scaler_rules_default(struct co_scaler_rules *rules)
{
    *rules = (struct co_scaler_rules){
        .goal = {.strategy = CO_STRATEGY_WAIT,
                 .jobs_per_worker = 1,
                 .clear_within_ms = 60000,
                 .target_wait_ms = 2000},
        .min = 0,
        .max = 10,
        .max_shift = 4,
        .cooldown_ms = 3000,
        .fast = true,
        .event_driven = true,
        .delay_ms = 10000,
    };
}

void co_scaler_init(struct co_scaler *scaler, const struct co_scaler_rules *rules, co_ms now)
{
    *scaler = (struct co_scaler){.at = now, .looked_at = now};
    co_window_init(&scaler->window, rules->delay_ms, now);
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t clamp(const struct co_scaler_rules *rules, uint64_t n)
{
    return n < rules->min ? rules->min : n > rules->max ? rules->max : (uint32_t)n;
}

/* Where to begin: what runs now was needed until now. Without an answer of the source, at least
 * one. */
static uint32_t beginning(const struct co_scaler_rules *rules, const struct co_signals *signals)
{
    uint64_t serving = co_signals_serving(signals);

    return clamp(rules, signals->stale && serving == 0 ? 1 : serving);
}

/* What is needed now and was needed a moment ago. */
static uint32_t need(struct co_scaler *scaler, const struct co_scaler_rules *rules,
                     struct co_decision *d)
{
    const struct co_signals *signals = &d->signals;
    uint32_t bounded, workers;

    if (signals->stale) {
        /* The last target counts as needed until the source answers again. */
        d->needed = co_window_note(&scaler->window, d->previous, d->at);
        d->limits |= CO_LIMIT_STALE;
        return d->previous;
    }
    co_strategy_demand(&rules->goal, signals, &d->demand);
    workers = max_u32(d->demand.workers, min_u32(d->demand.keep, d->previous));
    bounded = clamp(rules, workers);
    d->needed = co_window_note(&scaler->window, min_u32(workers, rules->max), d->at);
    d->limits |= workers > d->demand.workers ? CO_LIMIT_STEADY : 0;
    d->limits |= d->demand.workers > rules->max ? CO_LIMIT_MAX : 0;
    if (d->needed > bounded && d->previous > bounded) {
        /* It keeps what is there; it makes nothing for what is over. */
        d->limits |= CO_LIMIT_DELAY;
        bounded = clamp(rules, min_u32(d->needed, d->previous));
    } else if (workers < rules->min) {
        d->limits |= CO_LIMIT_MIN;
    }
    return bounded;
}

static uint32_t held(const struct co_scaler_hold *hold, uint32_t want, struct co_decision *d)
{
    bool in = hold->hold == CO_HOLD_IN || hold->hold == CO_HOLD_BOTH;
    bool out = hold->hold == CO_HOLD_OUT || hold->hold == CO_HOLD_BOTH;
    uint32_t held = want;

    d->hold = hold->hold;
    if (hold->hold == CO_HOLD_WORKERS) {
        held = hold->workers;
    } else if ((in && want < d->previous) || (out && want > d->previous)) {
        held = d->previous;
    }
    d->limits |= held != want || hold->hold == CO_HOLD_WORKERS ? CO_LIMIT_OPERATOR : 0;
    return held;
}

/* While memory is short nothing grows, but for the one worker without which nothing is done. */
static uint32_t guarded(uint32_t want, struct co_decision *d)
{
    uint32_t most = max_u32(d->previous, 1);

    if (!d->signals.tight || want <= most) {
        return want;
    }
    d->limits |= CO_LIMIT_MEMORY;
    return most;
}

static bool cools_down(const struct co_scaler *scaler, const struct co_scaler_rules *rules,
                       co_ms now)
{
    return scaler->shifted && now - scaler->shifted_at < rules->cooldown_ms;
}

/* One braked step from previous towards want. */
static uint32_t braked(struct co_scaler *scaler, const struct co_scaler_rules *rules, uint32_t want,
                       struct co_decision *d)
{
    uint32_t from = d->previous;
    uint32_t gap;

    if (want > from && rules->fast) {
        return want;
    }
    if (want > from && from == 0) {
        from = 1; /* With nought nothing would ever be done. */
    }
    gap = want > from ? want - from : from - want;
    if (gap == 0) {
        return want;
    }
    if (cools_down(scaler, rules, d->at)) {
        d->limits |= CO_LIMIT_COOLDOWN;
        return from;
    }
    if (gap > rules->max_shift) {
        d->limits |= CO_LIMIT_SHIFT;
        gap = rules->max_shift;
    }
    scaler->shifted = true;
    scaler->shifted_at = d->at;
    return want > from ? from + gap : from - gap;
}

/* What holds whatever else is said. */
static uint32_t bounded(const struct co_scaler_rules *rules, uint32_t want, struct co_decision *d)
{
    uint32_t capacity = d->signals.capacity;

    if (want < rules->min) {
        bool held = d->hold == CO_HOLD_OUT || d->hold == CO_HOLD_BOTH;
        d->limits |= d->signals.tight ? CO_LIMIT_MEMORY : held ? CO_LIMIT_OPERATOR : 0;
        if ((d->limits & (CO_LIMIT_OPERATOR | CO_LIMIT_MEMORY)) == 0) {
            want = rules->min;
            d->limits |= CO_LIMIT_MIN;
        }
    }
    if (want > rules->max) {
        want = rules->max;
        d->limits |= CO_LIMIT_MAX;
    }
    if (capacity > 0 && want > capacity) {
        want = capacity;
        d->limits |= CO_LIMIT_CAPACITY;
    }
    return want;
}

/* A push does not change what only grows at a look. */
static bool waits_for_look(const struct co_scaler *scaler, const struct co_scaler_rules *rules,
                           bool pushed)
{
    return pushed && !rules->event_driven && scaler->decided;
}

static uint32_t choose(struct co_scaler *scaler, const struct co_scaler_rules *rules,
                       const struct co_scaler_hold *hold, bool pushed, struct co_decision *d)
{
    uint32_t want = need(scaler, rules, d);

    want = held(hold, want, d);
    if (waits_for_look(scaler, rules, pushed) && want != d->previous &&
        hold->hold != CO_HOLD_WORKERS) {
        d->limits |= CO_LIMIT_PERIOD;
        want = d->previous;
    }
    want = guarded(want, d);
    if (hold->hold != CO_HOLD_WORKERS) {
        want = braked(scaler, rules, want, d);
    }
    return bounded(rules, want, d);
}

static co_ms next_change(const struct co_scaler *scaler, const struct co_scaler_rules *rules,
                         const struct co_decision *d)
{
    if ((d->limits & (CO_LIMIT_SHIFT | CO_LIMIT_COOLDOWN)) != 0) {
        return scaler->shifted_at + rules->cooldown_ms;
    }
    if ((d->limits & CO_LIMIT_PERIOD) != 0) {
        return scaler->looked_at + CO_SCALER_BUSY_MS;
    }
    if ((d->limits & CO_LIMIT_DELAY) != 0) {
        co_ms falls = co_window_falls(&scaler->window, d->demand.workers);
        return falls == UINT64_MAX ? 0 : falls;
    }
    return 0;
}

static void note_rules(const struct co_scaler_rules *rules, struct co_decision *d)
{
    d->goal = rules->goal;
    d->min = rules->min;
    d->max = rules->max;
    d->max_shift = rules->max_shift;
    d->cooldown_ms = rules->cooldown_ms;
    d->delay_ms = rules->delay_ms;
}

void co_scaler_decide(struct co_scaler *scaler, const struct co_scaler_rules *rules,
                      const struct co_signals *signals, const struct co_scaler_hold *hold,
                      bool pushed, co_ms now, struct co_decision *ret_decision)
{
    static const struct co_scaler_hold nobody = {CO_HOLD_NONE, 0};
    struct co_decision d = {.at = now, .signals = *signals, .first = !scaler->decided};
    uint64_t serving = co_signals_serving(signals);

    assert(rules->min <= rules->max && rules->max_shift > 0 && now >= scaler->at);
    note_rules(rules, &d);
    co_window_resize(&scaler->window, rules->delay_ms, now);
    d.previous = scaler->decided ? scaler->target : beginning(rules, signals);
    d.target = choose(scaler, rules, hold != NULL ? hold : &nobody, pushed, &d);
    d.next = next_change(scaler, rules, &d);
    d.start = d.target > serving ? d.target - (uint32_t)serving : 0;
    d.stop = serving > d.target ? (uint32_t)(serving - d.target) : 0;
    d.alert = rules->alert_ms > 0 && !signals->stale && signals->oldest_ms >= rules->alert_ms;

    if (!waits_for_look(scaler, rules, pushed)) {
        scaler->looked_at = now;
    }
    scaler->decided = true;
    scaler->target = d.target;
    scaler->at = now;
    scaler->eager = co_signals_outstanding(signals) > 0 || signals->stale || d.start > 0 ||
                    d.stop > 0 || d.target > rules->min;
    *ret_decision = d;
}

co_ms co_scaler_deadline(const struct co_scaler *scaler)
{
    return scaler->looked_at + (scaler->eager ? CO_SCALER_BUSY_MS : CO_SCALER_QUIET_MS);
}

/* ---- the memory that a successor takes over ----
 *
 * version u8 · target u32 · shifted u8, its age u32 · window: length u32, age of the newest slice
 * u32, slices u32 from the newest back; all little-endian. */

#define SAVED_VERSION 1
#define SAVED_BYTES (1 + 4 + 1 + 4 + 4 + 4 + 4 * (CO_WINDOW_SLICES + 1))
_Static_assert(SAVED_BYTES <= CO_SCALER_SAVED_SIZE, "the saved scaler fits its buffer");

static void put_u32(uint8_t **at, uint64_t value)
{
    uint32_t v = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;

    for (int i = 0; i < 4; i++) {
        *(*at)++ = (uint8_t)(v >> (8 * i));
    }
}

static uint32_t get_u32(const uint8_t **at)
{
    uint32_t v = 0;

    for (int i = 0; i < 4; i++) {
        v |= (uint32_t) * (*at)++ << (8 * i);
    }
    return v;
}

size_t co_scaler_save(const struct co_scaler *scaler, co_ms now, uint8_t buf[CO_SCALER_SAVED_SIZE])
{
    uint8_t *at = buf;
    const struct co_window *window = &scaler->window;

    if (!scaler->decided) {
        return 0;
    }
    *at++ = SAVED_VERSION;
    put_u32(&at, scaler->target);
    *at++ = scaler->shifted;
    put_u32(&at, scaler->shifted ? now - scaler->shifted_at : 0);
    put_u32(&at, window->length);
    put_u32(&at, now - window->slice_at);
    for (uint32_t age = 0; age <= CO_WINDOW_SLICES; age++) {
        put_u32(
            &at,
            window->slices[(window->newest + CO_WINDOW_SLICES + 1 - age) % (CO_WINDOW_SLICES + 1)]);
    }
    return (size_t)(at - buf);
}

static co_ms ago(co_ms now, uint32_t age)
{
    return now > age ? now - age : 0;
}

int co_scaler_restore(struct co_scaler *scaler, const struct co_scaler_rules *rules,
                      const uint8_t *buf, size_t size, co_ms now)
{
    struct co_scaler restored = {.decided = true, .at = now, .looked_at = now, .eager = true};
    const uint8_t *at = buf;
    uint8_t shifted;

    if (size < SAVED_BYTES || *at++ != SAVED_VERSION) {
        return CO_EMALFORMED;
    }
    restored.target = clamp(rules, get_u32(&at));
    shifted = *at++;
    restored.shifted_at = ago(now, get_u32(&at));
    restored.shifted = shifted == 1;
    restored.window.length = get_u32(&at);
    restored.window.slice_at = ago(now, get_u32(&at));
    if (shifted > 1) {
        return CO_EMALFORMED;
    }
    for (uint32_t age = 0; age <= CO_WINDOW_SLICES; age++) {
        restored.window.slices[CO_WINDOW_SLICES - age] = min_u32(get_u32(&at), rules->max);
    }
    restored.window.newest = CO_WINDOW_SLICES;
    co_window_resize(&restored.window, rules->delay_ms, now);
    *scaler = restored;
    return 0;
}
