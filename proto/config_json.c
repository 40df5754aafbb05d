#include "proto/config.h"

#include <jansson.h>

#include "proto/text_json.h"

static json_t *write_value(const struct co_config_value *value)
{
    enum co_config_from from = (enum co_config_from)value->origin.from;
    json_t *object = json_pack("{s:o*,s:s}", "value", co_text_json(value->text), "origin",
                               co_config_from_name(from));

    if (from == CO_FROM_FILE) {
        json_object_set_new(object, "line", json_integer(value->origin.line));
    }
    return object;
}

char *co_config_to_json(const struct co_config *config)
{
    json_t *values = json_object();
    struct co_config_value value;
    json_t *root;
    char *text;

    for (size_t n = 0; co_config_value(config, n, &value); n++) {
        if (json_object_set_new(values, value.key, write_value(&value)) < 0) {
            json_decref(values);
            return NULL;
        }
    }
    root = json_pack("{s:i,s:o,s:o}", "schema", 1, "file", co_text_json(config->file), "values",
                     values);
    text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}
