/* Whatever bytes come: no crash, and what decodes encodes to the same message again. */

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/zygote.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct co_zygote_msg msg;
    static struct co_zygote_msg again;
    static uint8_t buf[CO_ZYGOTE_MSG_MAX];

    if (co_zygote_decode(data, size, &msg) < 0) {
        return 0;
    }
    int written = co_zygote_encode(&msg, buf, sizeof buf);
    assert(written > 0); /* The largest message fits. */
    assert(co_zygote_decode(buf, (size_t)written, &again) == 0);
    assert(again.type == msg.type && again.seq == msg.seq && again.worker == msg.worker);
    assert(again.generation == msg.generation && again.kind == msg.kind && again.pid == msg.pid);
    assert(strcmp(again.wire, msg.wire) == 0 && strcmp(again.bell, msg.bell) == 0);
    assert(strcmp(again.text, msg.text) == 0);
    return 0;
}
