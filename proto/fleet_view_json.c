#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/fleet_view.h"
#include "proto/text_json.h"

const char *co_fleet_action_name(uint32_t action)
{
    switch (action) {
    case CO_FLEET_RESUME:
        return "resume";
    case CO_FLEET_PAUSE:
        return "pause";
    case CO_FLEET_SCALE:
        return "scale";
    default:
        return "unknown";
    }
}

static void put_number(json_t *object, const char *member, uint64_t value)
{
    json_object_set_new(object, member, json_integer((json_int_t)value));
}

static void put_text(json_t *object, const char *member, const char *text)
{
    json_object_set_new(object, member, co_text_json(text));
}

static void put_bool(json_t *object, const char *member, bool value)
{
    json_object_set_new(object, member, json_boolean(value));
}

static json_t *write_seats(const struct co_fleet_view_queue *queue)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < queue->n_seats; i++) {
        const struct co_fleet_view_seat *seat = &queue->seats[i];
        json_t *item = json_object();
        put_text(item, "agent", seat->agent);
        put_number(item, "capacity", seat->capacity);
        put_number(item, "share", seat->share);
        put_number(item, "grant", seat->grant);
        put_number(item, "running", seat->running);
        json_array_append_new(list, item);
    }
    return list;
}

static json_t *write_override(const struct co_fleet_view_override *item)
{
    const struct co_fleet_override *override = &item->override;
    json_t *out = json_object();
    char id[20];

    snprintf(id, sizeof id, "%016" PRIx64, override->queue);
    put_text(out, "queue", id);
    put_text(out, "name", item->name);
    put_text(out, "action", co_fleet_action_name(override->action));
    put_number(out, "value", override->value);
    put_text(out, "by", override->by);
    put_text(out, "reason", override->reason);
    put_number(out, "since", (uint64_t) override->since);
    put_number(out, "expires", (uint64_t) override->expires);
    put_number(out, "epoch", override->epoch);
    snprintf(id, sizeof id, "%016" PRIx64, override->agent);
    put_text(out, "agent", id);
    put_bool(out, "in_force", item->in_force);
    return out;
}

static json_t *find_override(const struct co_fleet_view *view, const char *queue)
{
    for (uint32_t i = 0; i < view->n_overrides; i++) {
        char id[20];
        snprintf(id, sizeof id, "%016" PRIx64, view->overrides[i].override.queue);
        if (view->overrides[i].in_force && strcmp(id, queue) == 0) {
            return write_override(&view->overrides[i]);
        }
    }
    return json_null();
}

static json_t *write_queue(const struct co_fleet_view *view,
                           const struct co_fleet_view_queue *queue)
{
    json_t *out = json_object();

    put_text(out, "id", queue->id);
    put_text(out, "name", queue->name);
    put_text(out, "connection", queue->connection);
    put_text(out, "pool", queue->pool);
    put_number(out, "target", queue->target);
    put_number(out, "max", queue->max);
    put_text(out, "split", queue->strict ? "strict" : "available");
    put_text(out, "owner", queue->owner);
    put_bool(out, "owned", queue->owned);
    put_number(out, "share", queue->share);
    put_number(out, "running", queue->running);
    put_bool(out, "fenced", queue->fenced);
    put_number(out, "lease_ms", queue->lease_ms);
    put_number(out, "plan_age_ms", queue->plan_age_ms);
    json_object_set_new(out, "seats", write_seats(queue));
    json_object_set_new(out, "override", find_override(view, queue->id));
    return out;
}

char *co_fleet_view_to_json(const struct co_fleet_view *view)
{
    json_t *root = json_object();
    json_t *queues = json_array();
    json_t *overrides = json_array();
    char *text;

    put_text(root, "id", view->id);
    for (uint32_t i = 0; i < view->n_queues; i++) {
        json_array_append_new(queues, write_queue(view, &view->queues[i]));
    }
    for (uint32_t i = 0; i < view->n_overrides; i++) {
        json_array_append_new(overrides, write_override(&view->overrides[i]));
    }
    json_object_set_new(root, "queues", queues);
    json_object_set_new(root, "overrides", overrides);
    text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

/* ---- and back ---- */

static uint64_t take_number(const json_t *object, const char *member)
{
    json_int_t value = json_integer_value(json_object_get(object, member));

    return value > 0 ? (uint64_t)value : 0;
}

static uint32_t take_count(const json_t *object, const char *member)
{
    uint64_t value = take_number(object, member);

    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

static uint64_t take_id(const json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));

    return text != NULL ? strtoull(text, NULL, 16) : 0;
}

static void read_queue(const json_t *item, struct co_fleet_view_queue *queue)
{
    const json_t *seats = json_object_get(item, "seats");
    const char *split = json_string_value(json_object_get(item, "split"));

    co_text_json_copy(item, "id", queue->id, sizeof queue->id);
    co_text_json_copy(item, "name", queue->name, sizeof queue->name);
    co_text_json_copy(item, "connection", queue->connection, sizeof queue->connection);
    co_text_json_copy(item, "pool", queue->pool, sizeof queue->pool);
    co_text_json_copy(item, "owner", queue->owner, sizeof queue->owner);
    queue->owned = json_is_true(json_object_get(item, "owned"));
    queue->strict = split != NULL && strcmp(split, "strict") == 0;
    queue->fenced = json_is_true(json_object_get(item, "fenced"));
    queue->target = take_count(item, "target");
    queue->max = take_count(item, "max");
    queue->share = take_count(item, "share");
    queue->running = take_count(item, "running");
    queue->lease_ms = take_number(item, "lease_ms");
    queue->plan_age_ms = take_number(item, "plan_age_ms");
    for (size_t i = 0; i < json_array_size(seats) && i < CO_FLEET_AGENTS_MAX; i++) {
        const json_t *seat = json_array_get(seats, i);
        struct co_fleet_view_seat *out = &queue->seats[queue->n_seats++];
        co_text_json_copy(seat, "agent", out->agent, sizeof out->agent);
        out->capacity = take_count(seat, "capacity");
        out->share = take_count(seat, "share");
        out->grant = take_count(seat, "grant");
        out->running = take_count(seat, "running");
    }
}

static uint32_t action_of(const json_t *item)
{
    const char *name = json_string_value(json_object_get(item, "action"));

    for (uint32_t action = CO_FLEET_RESUME; name != NULL && action <= CO_FLEET_SCALE; action++) {
        if (strcmp(name, co_fleet_action_name(action)) == 0) {
            return action;
        }
    }
    return CO_FLEET_RESUME;
}

static void read_override(const json_t *item, struct co_fleet_view_override *out)
{
    struct co_fleet_override *override = &out->override;

    co_text_json_copy(item, "name", out->name, sizeof out->name);
    out->in_force = json_is_true(json_object_get(item, "in_force"));
    override->queue = take_id(item, "queue");
    override->agent = take_id(item, "agent");
    override->action = action_of(item);
    override->value = take_count(item, "value");
    override->since = (co_unix)take_number(item, "since");
    override->expires = (co_unix)take_number(item, "expires");
    override->epoch = take_number(item, "epoch");
    co_text_json_copy(item, "by", override->by, sizeof override->by);
    co_text_json_copy(item, "reason", override->reason, sizeof override->reason);
}

int co_fleet_view_from_json(const char *json, struct co_fleet_view *ret, struct co_err *err)
{
    json_t *root = json_loads(json, 0, NULL);
    const json_t *queues = json_object_get(root, "queues");
    const json_t *overrides = json_object_get(root, "overrides");

    if (!json_is_object(root)) {
        json_decref(root);
        return co_err_set(err, CO_EMALFORMED, "the agent's answer is no object");
    }
    memset(ret, 0, sizeof *ret);
    co_text_json_copy(root, "id", ret->id, sizeof ret->id);
    for (size_t i = 0; i < json_array_size(queues) && i < CO_FLEET_QUEUES_MAX; i++) {
        read_queue(json_array_get(queues, i), &ret->queues[ret->n_queues++]);
    }
    for (size_t i = 0; i < json_array_size(overrides) && i < CO_FLEET_VIEW_OVERRIDES_MAX; i++) {
        read_override(json_array_get(overrides, i), &ret->overrides[ret->n_overrides++]);
    }
    json_decref(root);
    return 0;
}
