#include "agent/fate.h"

co_ms co_fate_timeout(const struct co_payload_facts *facts, const struct co_job_options *options)
{
    return facts->timeout_s >= 0 ? (co_ms)facts->timeout_s * 1000 : options->timeout;
}

static uint32_t tries_of(const struct co_payload_facts *facts, const struct co_job_options *options)
{
    return facts->max_tries >= 0 ? (uint32_t)facts->max_tries : options->tries;
}

struct co_fate co_fate_decide(const struct co_payload_facts *facts,
                              const struct co_job_options *options, uint32_t attempts,
                              uint32_t crashes, enum co_cause cause, co_unix now)
{
    uint32_t tries = tries_of(facts, options);
    bool until = facts->retry_until > 0;
    bool exhausted = until ? now >= facts->retry_until : tries > 0 && attempts >= tries;
    bool poison = (until || tries == 0) && crashes + 1 >= CO_FATE_CRASHES_MAX;
    bool timeout = cause == CO_CAUSE_TIMEOUT;
    struct co_fate fate = {
        .final = exhausted || (timeout ? facts->fail_on_timeout : poison),
        .delay_s = co_payload_backoff(facts->backoff[0] != '\0' ? facts->backoff : options->backoff,
                                      attempts),
    };

    fate.bookkeeper = fate.final || facts->max_exceptions >= 0;
    return fate;
}
