/* Any bytes as cohort.yaml: refused with a place, or a configuration whose values read back. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct co_config config;
    static struct co_config before;
    struct co_config_value value;
    struct co_err err = {0};

    co_config_init(&before);
    config = before;
    if (co_config_parse_yaml(&config, "f.yaml", (const char *)data, size, &err) < 0) {
        require(memcmp(&config, &before, sizeof config) == 0);
        require(err.code == CO_ECONFIG && strncmp(err.msg, "f.yaml:", 7) == 0);
        return 0;
    }
    if (co_config_finish(&config, true, NULL, NULL, NULL, &err) < 0) {
        require(err.code == CO_ECONFIG && err.msg[0] != '\0');
        return 0;
    }
    for (size_t n = 0; co_config_value(&config, n, &value); n++) {
        require(strlen(value.key) < sizeof value.key);
    }
    free(co_config_to_json(&config));
    return 0;
}
