/* Operators' words for the whole fleet: overrides given, heard, kept and looked at. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/fleet_impl_uv.h"
#include "agent/overrides_sqlite.h"
#include "proto/fleet_view.h"

static void path_of(const struct co_agent *agent, char *buf, size_t size)
{
    snprintf(buf, size, "%.1000s/state.db", agent->config.state_dir);
}

/* ---- keeping ---- */

struct keep {
    uv_work_t work;
    struct co_agent *agent;
    struct co_fleet_override override;
    char path[CO_PATH_SIZE + 16];
    int code;
    struct co_err err;
};

static void on_keep(uv_work_t *work)
{
    struct keep *keep = work->data;

    keep->code = co_overrides_add(keep->path, &keep->override, &keep->err);
}

static void on_kept(uv_work_t *work, int status)
{
    struct keep *keep = work->data;

    if (status == 0 && keep->code < 0) {
        co_agent_log(keep->agent, CO_LOG_WARN, NULL,
                     "an override will not outlive this agent, if no other has it: %s",
                     keep->err.msg);
    }
    free(keep);
}

static void keep_override(struct co_fleet *fleet, const struct co_fleet_override *override)
{
    struct keep *keep = calloc(1, sizeof *keep);

    if (keep == NULL) {
        return;
    }
    keep->work.data = keep;
    keep->agent = fleet->agent;
    keep->override = *override;
    path_of(fleet->agent, keep->path, sizeof keep->path);
    if (uv_queue_work(&fleet->agent->loop, &keep->work, on_keep, on_kept) != 0) {
        free(keep);
    }
}

/* The newest on each queue comes first; the coordinator takes no older one after it. */
void co_fleet_words_open(struct co_fleet *fleet)
{
    static struct co_fleet_override list[CO_OVERRIDES_MAX];
    char path[CO_PATH_SIZE + 16];
    struct co_err err;
    uint32_t n;

    path_of(fleet->agent, path, sizeof path);
    if (co_overrides_list(path, list, CO_OVERRIDES_MAX, &n, &err) < 0) {
        co_agent_log(fleet->agent, CO_LOG_WARN, NULL, "%s", err.msg);
        return;
    }
    fleet->reading_words = true;
    for (uint32_t i = 0; i < n; i++) {
        co_fleet_coord_override(fleet, &list[i]);
    }
    fleet->reading_words = false;
}

/* ---- hearing ---- */

static const char *name_of(const struct co_fleet *fleet, uint64_t id, char buf[20])
{
    int queue = co_fleet_coord_queue(fleet, id);

    snprintf(buf, 20, "%016" PRIx64, id);
    return queue >= 0 ? fleet->agent->core.tickets.queues[queue].name : buf;
}

static const struct co_fleet_override *newest(const struct co_fleet *fleet, uint64_t id)
{
    for (size_t i = 0; i < fleet->coord.n_overrides; i++) {
        if (fleet->coord.overrides[i].queue == id) {
            return &fleet->coord.overrides[i];
        }
    }
    return NULL;
}

void co_fleet_words_heard(struct co_fleet *fleet, uint64_t id)
{
    const struct co_fleet_override *word = newest(fleet, id);
    const struct co_fleet_override *in_force = co_coord_override(&fleet->coord, id);
    char buf[20], value[16];

    if (word == NULL) {
        return;
    }
    snprintf(value, sizeof value, "%u", word->value);
    if (in_force != NULL || word->action == CO_FLEET_RESUME) {
        co_agent_log(fleet->agent, CO_LOG_INFO,
                     CO_FIELDS("queue", name_of(fleet, id, buf), "action",
                               co_fleet_action_name(word->action), "workers", value, "by", word->by,
                               "reason", word->reason),
                     "an operator's word for the whole fleet");
    } else {
        co_agent_log(fleet->agent, CO_LOG_INFO, CO_FIELDS("queue", name_of(fleet, id, buf)),
                     "an override has ended: its time is over");
    }
    if (!fleet->reading_words) {
        keep_override(fleet, word);
    }
    co_upkeep_hold(fleet->agent);
}

const struct co_fleet_override *co_fleet_uv_override(const struct co_agent *agent, uint32_t queue)
{
    return agent->fleet == NULL || agent->fleet->units[queue].id == 0
               ? NULL
               : co_coord_override(&agent->fleet->coord, agent->fleet->units[queue].id);
}

/* ---- giving ---- */

static bool read_action(const char *args, struct co_fleet_override *word)
{
    char text[16];

    if (!co_json_get_string(args, "action", text, sizeof text)) {
        return false;
    }
    for (word->action = CO_FLEET_RESUME; word->action <= CO_FLEET_SCALE; word->action++) {
        if (strcmp(text, co_fleet_action_name(word->action)) == 0) {
            return true;
        }
    }
    return false;
}

static bool read_count(const char *args, const char *member, uint64_t max, uint64_t *ret)
{
    char text[24];
    char *end;

    *ret = 0;
    if (!co_json_get_string(args, member, text, sizeof text)) {
        return true;
    }
    *ret = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && *ret <= max;
}

static int read_word(const char *args, struct co_fleet_override *word, struct co_err *err)
{
    uint64_t value, seconds;

    *word = (struct co_fleet_override){.since = (co_unix)(co_agent_wall_ms() / 1000)};
    if (!read_action(args, word)) {
        return co_err_set(err, CO_EMALFORMED, "action: write pause, resume or scale");
    }
    if (!read_count(args, "value", CO_FLEET_WORKERS_MAX, &value) ||
        !read_count(args, "for", 366u * 86400, &seconds)) {
        return co_err_set(err, CO_EMALFORMED,
                          "value is a number of workers up to %d, for a number of seconds up to a "
                          "year",
                          CO_FLEET_WORKERS_MAX);
    }
    word->value = (uint32_t)value;
    word->expires = seconds == 0 ? 0 : word->since + (co_unix)seconds;
    if (!co_json_get_string(args, "by", word->by, sizeof word->by)) {
        snprintf(word->by, sizeof word->by, "?");
    }
    if (!co_json_get_string(args, "reason", word->reason, sizeof word->reason) &&
        word->action != CO_FLEET_RESUME) {
        return co_err_set(err, CO_EMALFORMED,
                          "reason: say why in at most %d letters, for those who wonder later",
                          CO_FLEET_REASON_SIZE - 1);
    }
    return 0;
}

static bool is_meant(const struct co_agent *agent, uint32_t index, const char *name)
{
    const struct co_queue *queue = &agent->core.tickets.queues[index];
    const char *connection = co_sources_table(agent, queue->source, queue->table)->connection;
    size_t size = strlen(connection);

    return name[0] == '\0' || strcmp(name, queue->name) == 0 ||
           (strncmp(name, connection, size) == 0 && name[size] == ':' &&
            strcmp(name + size + 1, queue->name) == 0);
}

int co_fleet_uv_say(struct co_agent *agent, const char *args, struct co_err *err)
{
    struct co_fleet_override word;
    char name[CO_TEXT_SIZE] = "";
    uint32_t n = 0;
    int code = read_word(args, &word, err);

    if (code < 0) {
        return code;
    }
    co_json_get_string(args, "queue", name, sizeof name);
    for (uint32_t i = 0; i < agent->core.tickets.n_queues; i++) {
        if (agent->fleet->units[i].id == 0 || !is_meant(agent, i, name)) {
            continue;
        }
        word.queue = agent->fleet->units[i].id;
        code = co_fleet_coord_override(agent->fleet, &word);
        if (code < 0) {
            return co_err_set(err, code, "%d overrides are in force, which is as many as fit",
                              CO_FLEET_OVERRIDES_MAX);
        }
        n += 1;
    }
    return n > 0 ? 0
                 : co_err_set(err, CO_ENOTFOUND,
                              "this agent knows no queue of that name; cohort queues lists them");
}

/* ---- looking ---- */

static uint32_t running_of(const struct co_fleet *fleet, const struct co_coord_queue *known,
                           uint64_t id)
{
    uint16_t slot = co_members_find(&fleet->coord.members, id);

    if (slot == CO_MEMBERS_NONE) {
        return 0;
    }
    return slot == 0 ? known->load.running : known->reported[slot].load.running;
}

static void view_queue(const struct co_fleet *fleet, uint32_t index,
                       struct co_fleet_view_queue *out)
{
    const struct co_agent *agent = fleet->agent;
    const struct co_queue *queue = &agent->core.tickets.queues[index];
    const struct co_coord_queue *known = co_coord_queue_get(&fleet->coord, fleet->units[index].id);
    co_ms now = co_agent_clock();

    snprintf(out->id, sizeof out->id, "%016" PRIx64, fleet->units[index].id);
    snprintf(out->name, sizeof out->name, "%s", queue->name);
    snprintf(out->connection, sizeof out->connection, "%s",
             co_sources_table(agent, queue->source, queue->table)->connection);
    snprintf(out->pool, sizeof out->pool, "%s", agent->pools[queue->pool].config->name);
    out->owned = fleet->units[index].owned;
    out->share = queue->share;
    out->running = queue->n_given;
    out->lease_ms = queue->lease > now ? queue->lease - now : 0;
    if (known == NULL) {
        return;
    }
    if (known->plan.epoch.owner != 0) {
        snprintf(out->owner, sizeof out->owner, "%016" PRIx64, known->plan.epoch.owner);
        out->plan_age_ms = now > known->plan_at ? now - known->plan_at : 0;
    }
    out->strict = known->config.split == CO_FLEET_STRICT;
    out->fenced = out->strict && known->fenced;
    out->target = known->plan.target;
    out->max = known->config.max;
    out->n_seats = known->plan.n_seats;
    for (uint32_t i = 0; i < known->plan.n_seats; i++) {
        const struct co_fleet_seat *seat = &known->plan.seats[i];
        out->seats[i] = (struct co_fleet_view_seat){
            .capacity = seat->capacity,
            .share = seat->share,
            .grant = seat->grant,
            .running = running_of(fleet, known, seat->id),
        };
        snprintf(out->seats[i].agent, sizeof out->seats[i].agent, "%016" PRIx64, seat->id);
    }
}

static void view_override(const struct co_fleet *fleet, const struct co_fleet_override *word,
                          struct co_fleet_view_override *out)
{
    const struct co_fleet_override *in_force = co_coord_override(&fleet->coord, word->queue);
    char buf[20];

    out->override = *word;
    out->in_force =
        in_force != NULL && in_force->epoch == word->epoch && in_force->agent == word->agent;
    snprintf(out->name, sizeof out->name, "%s", name_of(fleet, word->queue, buf));
}

/* What state.db has besides what is known now, for `cohort audit`. */
static void view_history(const struct co_fleet *fleet, struct co_fleet_view *view)
{
    static struct co_fleet_override list[CO_FLEET_VIEW_OVERRIDES_MAX];
    char path[CO_PATH_SIZE + 16];
    struct co_err err;
    uint32_t n = 0;

    path_of(fleet->agent, path, sizeof path);
    if (co_overrides_list(path, list, CO_FLEET_VIEW_OVERRIDES_MAX, &n, &err) < 0) {
        return; /* What is in force is shown all the same. */
    }
    for (uint32_t i = 0; i < n && view->n_overrides < CO_FLEET_VIEW_OVERRIDES_MAX; i++) {
        const struct co_fleet_override *known = newest(fleet, list[i].queue);
        if (known == NULL || known->epoch != list[i].epoch || known->agent != list[i].agent) {
            view_override(fleet, &list[i], &view->overrides[view->n_overrides++]);
        }
    }
}

char *co_fleet_uv_view(const struct co_agent *agent, bool history)
{
    struct co_fleet_view *view = calloc(1, sizeof *view);
    const struct co_fleet *fleet = agent->fleet;
    char *text;

    if (view == NULL) {
        return NULL;
    }
    snprintf(view->id, sizeof view->id, "%016" PRIx64, agent->id);
    for (uint32_t i = 0; i < agent->core.tickets.n_queues && view->n_queues < CO_FLEET_QUEUES_MAX;
         i++) {
        if (fleet->units[i].id != 0) {
            view_queue(fleet, i, &view->queues[view->n_queues++]);
        }
    }
    for (size_t i = 0; i < fleet->coord.n_overrides; i++) {
        view_override(fleet, &fleet->coord.overrides[i], &view->overrides[view->n_overrides++]);
    }
    if (history) {
        view_history(fleet, view);
    }
    text = co_fleet_view_to_json(view);
    free(view);
    return text;
}

void co_fleet_uv_pass_on(struct co_agent *agent, const char *op, const char *pool)
{
    char *name = pool != NULL ? co_json_quote(pool) : NULL;
    char args[2 * CO_NAME_SIZE + 16] = "{}";
    char *request;

    if (name != NULL && strlen(name) < 2 * CO_NAME_SIZE) {
        snprintf(args, sizeof args, "{\"pool\":%s}", name);
    }
    request = co_control_request_write("passed-on", op, args);
    if (request != NULL) {
        co_fleet_send_all(agent->fleet, request, strlen(request));
    }
    free(request);
    free(name);
}
