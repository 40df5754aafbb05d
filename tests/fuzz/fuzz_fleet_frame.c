/* Frames of a fleet: whatever is understood is possible, and can be written and read again. */

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/fleet_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct co_fleet_msg msg, again;
    static uint8_t buf[CO_FLEET_FRAME_MAX];
    char address[CO_FLEET_ADDRESS_SIZE], second[CO_FLEET_ADDRESS_SIZE];
    size_t written;

    if (co_fleet_frame_read(data, size, &msg, address) < 0) {
        return 0;
    }
    assert(co_fleet_check(&msg) == 0);
    if (co_fleet_frame_write(&msg, CO_FLEET_VERSION, address, buf, sizeof buf, &written) == 0) {
        assert(co_fleet_frame_read(buf, written, &again, second) == 0);
        assert(memcmp(&msg, &again, sizeof msg) == 0 && strcmp(address, second) == 0);
    }
    return 0;
}
