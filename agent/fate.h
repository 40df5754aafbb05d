/* What becomes of a job whose worker died under it. Pure; the rules of DESIGN 4:
 *
 *   a time limit   tries left: back at once with the job's backoff (Laravel waits for retry_after);
 *                  none left, or failOnTimeout: a bookkeeper fails it
 *   anything else  the attempt counts; once the tries are used up, or after 3 crashes where tries
 *                  set no limit (0, retryUntil), a bookkeeper fails it with the true cause
 *   maxExceptions  a bookkeeper decides in any case, since only PHP can count those */

#ifndef CO_AGENT_FATE_H
#define CO_AGENT_FATE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/config.h"
#include "proto/control.h"
#include "proto/time.h"
#include "worker/dispatch.h"

#define CO_FATE_CRASHES_MAX 3

struct co_fate {
    bool bookkeeper; /* Else the source takes it back after delay_s. */
    bool final;      /* The bookkeeper must fail it. */
    uint32_t delay_s;
};

/* attempts: starts, this one included; crashes: workers it took down before this one. */
struct co_fate co_fate_decide(const struct co_payload_facts *facts,
                              const struct co_job_options *options, uint32_t attempts,
                              uint32_t crashes, enum co_cause cause, co_unix now);

/* How long the job may run; 0 = no limit. The job's own limit beats the pool's. */
co_ms co_fate_timeout(const struct co_payload_facts *facts, const struct co_job_options *options);

#endif /* CO_AGENT_FATE_H */
