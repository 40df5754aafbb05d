/* A worker runs foreign code: whatever bytes stand in a wire, reading them is safe. */

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "worker/dispatch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_messages(const uint8_t *data, size_t size)
{
    struct co_job_msg job;
    struct co_end_msg end;

    if (co_job_decode(data, size, &job) == 0) {
        assert(job.payload == NULL || job.payload + job.payload_size <= data + size);
        assert((const uint8_t *)job.backoff + job.backoff_size <= data + size);
        assert((const uint8_t *)job.cause_text + job.cause_size <= data + size);
        assert(job.cause <= CO_CAUSE_OOM && job.final <= 1);
    }
    if (co_end_decode(data, size, &end) == 0) {
        assert((const uint8_t *)end.text + end.text_size <= data + size);
    }
}

/* head, then the ring's data; the producer may stand anywhere. */
static void fuzz_ring(const uint8_t *data, size_t size)
{
    static struct co_ring ring;
    static uint8_t buf[CO_RECORD_MAX];
    struct co_record record;
    uint64_t head;
    uint64_t cursor = 0;

    if (size < sizeof head) {
        return;
    }
    memset(&ring, 0, sizeof ring);
    memcpy(&head, data, sizeof head);
    ring.head = head % (2 * CO_RING_SIZE);
    data += sizeof head;
    size -= sizeof head;
    memcpy(ring.data, data, size < CO_RING_SIZE ? size : CO_RING_SIZE);
    while (co_ring_copy(&ring, &cursor, buf, &record) == 1) {
        assert(record.size <= CO_RECORD_MAX - CO_RECORD_HEADER && cursor <= CO_RING_SIZE);
        fuzz_messages(record.body, record.size);
    }
}

/* head and tail as a hostile consumer left them: a push stays inside or refuses. */
static void fuzz_push(const uint8_t *data, size_t size)
{
    static struct co_ring ring;
    uint64_t counters[2];

    if (size < sizeof counters) {
        return;
    }
    memcpy(counters, data, sizeof counters);
    ring.head = counters[0];
    ring.tail = counters[1];
    data += sizeof counters;
    size -= sizeof counters;
    (void)co_ring_push(
        &ring, &(struct co_record){.type = CO_RECORD_JOB, .body = data, .size = (uint32_t)size},
        NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_messages(data, size);
    fuzz_ring(data, size);
    fuzz_push(data, size);
    return 0;
}
