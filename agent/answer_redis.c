/* What the script answered, written into the turn. Whatever comes from the server is checked. */

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/script_impl.h"
#include "proto/control.h"

enum { APPLIED, GONE, WANTS, DUE, CRASHES, OTHERS, BACK, DEPTHS, PARTS };

static bool is_list(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_ARRAY;
}

static bool is_text(const redisReply *reply)
{
    return reply != NULL &&
           (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS);
}

static int64_t number(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_INTEGER ? reply->integer
           : is_text(reply)                                    ? strtoll(reply->str, NULL, 10)
                                                               : 0;
}

/* ---- settles and starts ---- */

static void drop_invalid(struct co_script *script)
{
    struct co_script_hold *next;

    for (struct co_script_hold *hold = script->first; script->n_invalid > 0 && hold != NULL;
         hold = next) {
        next = hold->next;
        if (hold->invalid) {
            co_script_hold_drop(script, hold);
            script->n_invalid -= 1;
        }
    }
}

static void read_applied(struct co_script *script, struct co_turn *turn, const redisReply *list)
{
    size_t at = 0;

    for (uint32_t i = 0; i < turn->n_settles; i++) {
        struct co_turn_settle *settle = &turn->settles[i];
        struct co_script_hold *hold = co_script_hold_get(script, settle->job_id);
        settle->ret_applied = false;
        if (hold == NULL || at >= list->elements) {
            continue;
        }
        settle->ret_applied = number(list->element[at++]) > 0;
        if (settle->outcome == CO_OUTCOME_QUARANTINED && settle->ret_applied) {
            turn->n_quarantined++;
            snprintf(turn->quarantined_why, sizeof turn->quarantined_why,
                     "a job of queue %.60s could not be ended, its bookkeepers died: %.100s",
                     script->names[hold->queue], settle->text != NULL ? settle->text : "");
        }
    }
    for (uint32_t i = 0; i < turn->n_starts; i++) {
        struct co_turn_start *start = &turn->starts[i];
        struct co_script_hold *hold = co_script_hold_get(script, start->job_id);
        if (hold == NULL || at >= list->elements) {
            continue;
        }
        start->ret_applied = number(list->element[at++]) > 0;
        if (start->ret_applied && co_script_hold_count(hold, hold->attempts.value + 1) == 0) {
            hold->begun = true;
        } else {
            co_script_hold_drop(script, hold);
        }
    }
    for (uint32_t i = 0; i < turn->n_settles; i++) {
        struct co_script_hold *hold = co_script_hold_get(script, turn->settles[i].job_id);
        if (hold != NULL) {
            co_script_hold_drop(script, hold);
        }
    }
    drop_invalid(script);
}

static void let_go(struct co_script *script, struct co_turn *turn, struct co_script_hold *hold)
{
    if (!hold->begun && turn->n_gone < CO_TURN_CLAIMS_MAX) {
        turn->gone[turn->n_gone].table = 0;
        turn->gone[turn->n_gone].job_id = hold->job_id;
        turn->gone[turn->n_gone++].reserved_at = hold->reserved_at;
    }
    co_script_hold_drop(script, hold);
}

static void read_gone(struct co_script *script, struct co_turn *turn, const redisReply *list,
                      bool again)
{
    for (size_t i = 0; i < list->elements; i++) {
        struct co_script_hold *hold = co_script_hold_get(script, number(list->element[i]));
        if (hold != NULL) {
            let_go(script, turn, hold);
        }
    }
    script->recheck = list->elements > 0 && !again && !turn->heartbeat && script->n_holds > 0;
}

/* ---- claims ---- */

/* What cannot run is put aside by the turn's second part; nobody ever sees a ticket of it. */
static bool examine(struct co_script *script, struct co_turn *turn, struct co_turn_want *want,
                    const redisReply *member, struct co_turn_claim *claim)
{
    struct co_err why = {0};

    if (script->config.max_payload_bytes > 0 && member->len > script->config.max_payload_bytes) {
        snprintf(why.msg, sizeof why.msg, "payload of %zu bytes is larger than max_payload",
                 (size_t)member->len);
    } else if (co_payload_read((const uint8_t *)member->str, (size_t)member->len, &claim->facts,
                               &why) == 0) {
        return true;
    }
    turn->n_quarantined++;
    snprintf(turn->quarantined_why, sizeof turn->quarantined_why, "a job of queue %.60s: %.140s",
             want->name, why.msg);
    return false;
}

static uint32_t crashes_of(const redisReply *list, const char *uuid)
{
    for (size_t i = 0; i + 1 < list->elements && uuid[0] != '\0'; i += 2) {
        if (is_text(list->element[i]) && strcmp(list->element[i]->str, uuid) == 0) {
            return (uint32_t)number(list->element[i + 1]);
        }
    }
    return 0;
}

static int claim(struct co_script *script, struct co_turn *turn, struct co_turn_want *want,
                 const redisReply *member, const redisReply *crashes, struct co_err *err)
{
    struct co_turn_claim *out = &turn->claims[turn->n_claims];
    int64_t id = script->next_id++;
    int name = co_script_name(script, want->name);

    if (!is_text(member) || turn->n_claims == CO_TURN_CLAIMS_MAX || name < 0) {
        return co_err_set(err, CO_EMALFORMED, "Redis claimed what was not asked for");
    }
    struct co_script_hold *hold = co_script_hold_add(script, id, member->str, (size_t)member->len);
    uint8_t *payload = malloc((size_t)member->len + 1);
    if (hold == NULL || payload == NULL) {
        free(payload);
        return co_err_set(err, CO_ENOMEM, "no memory for a job of %zu bytes", (size_t)member->len);
    }
    *out = (struct co_turn_claim){.table = 0, .queue = want->queue, .job_id = id};
    hold->queue = (uint32_t)name;
    hold->reserved_at = out->reserved_at = script->now;
    if (!examine(script, turn, want, member, out)) {
        hold->invalid = true;
        script->n_invalid += 1;
        free(payload);
        return 0;
    }
    co_attempts_find(hold->member, hold->size, &hold->attempts);
    snprintf(hold->uuid, sizeof hold->uuid, "%s", out->facts.uuid);
    memcpy(payload, member->str, (size_t)member->len + 1);
    out->available_at = out->created_at = script->now;
    out->attempts = hold->attempts.value;
    out->crashes = crashes_of(crashes, hold->uuid);
    out->payload = payload;
    out->payload_size = (uint64_t)member->len;
    turn->n_claims++;
    want->ret_count++;
    return 0;
}

static int read_wants(struct co_script *script, struct co_turn *turn, const redisReply *wants,
                      const redisReply *crashes, struct co_err *err)
{
    for (uint32_t i = 0; i < turn->n_wants; i++) {
        struct co_turn_want *want = &turn->wants[i];
        const redisReply *list = i < wants->elements ? wants->element[i] : NULL;
        want->ret_count = 0;
        if (!is_list(list) || list->elements == 0) {
            return co_err_set(err, CO_EMALFORMED, "Redis answers less than was asked");
        }
        want->ret_more = number(list->element[0]) != 0;
        for (size_t k = 1; k < list->elements; k++) {
            int code = claim(script, turn, want, list->element[k], crashes, err);
            if (code < 0) {
                return code;
            }
        }
    }
    return 0;
}

/* ---- others, depths ---- */

static void read_others(struct co_script *script, const redisReply *list)
{
    for (uint32_t k = 0; k < script->n_others; k++) {
        script->others[k].seen = false;
    }
    for (size_t i = 0; i + 1 < list->elements; i += 2) {
        const redisReply *agent = list->element[i], *record = list->element[i + 1];
        struct co_script_other *other = NULL;
        if (!is_text(agent) || !is_text(record) || strcmp(agent->str, script->me) == 0 ||
            (size_t)agent->len >= sizeof other->agent ||
            (size_t)record->len >= sizeof other->record) {
            continue;
        }
        for (uint32_t k = 0; k < script->n_others && other == NULL; k++) {
            other = strcmp(script->others[k].agent, agent->str) == 0 ? &script->others[k] : NULL;
        }
        if (other == NULL && script->n_others < CO_SCRIPT_OTHERS) {
            other = &script->others[script->n_others++];
            *other = (struct co_script_other){.since = script->mono_ms};
            snprintf(other->agent, sizeof other->agent, "%s", agent->str);
        }
        if (other != NULL) {
            other->since = strcmp(other->record, record->str) == 0 ? other->since : script->mono_ms;
            snprintf(other->record, sizeof other->record, "%s", record->str);
            other->seen = true;
        }
    }
    for (uint32_t k = script->n_others; k-- > 0;) {
        if (!script->others[k].seen) {
            script->others[k] = script->others[--script->n_others];
        }
    }
}

static const char *const parts[] = {":delayed", ":reserved", ":notify"};

/* A key of a queue: remember the queue. */
static void found(struct co_script *script, const redisReply *key)
{
    size_t head = strlen(script->config.prefix) + strlen("queues:");
    char name[CO_TEXT_SIZE];

    if (!is_text(key) || (size_t)key->len <= head || strlen(key->str) != (size_t)key->len ||
        (size_t)key->len - head >= sizeof name) {
        return;
    }
    snprintf(name, sizeof name, "%s", key->str + head);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        size_t size = strlen(name), tail = strlen(parts[i]);
        if (size > tail && strcmp(name + size - tail, parts[i]) == 0) {
            name[size - tail] = '\0';
        }
    }
    co_script_name(script, name);
}

static void count_ours(const struct co_script *script, uint64_t ours[CO_TURN_QUEUES_MAX])
{
    for (const struct co_script_hold *hold = script->first; hold != NULL; hold = hold->next) {
        ours[hold->queue] += 1;
    }
}

static int read_depths(struct co_script *script, struct co_turn *turn, const redisReply *list)
{
    uint64_t ours[CO_TURN_QUEUES_MAX] = {0};

    if (!is_list(list) || list->elements != 4 || !is_list(list->element[1]) ||
        !is_list(list->element[2])) {
        return CO_EMALFORMED;
    }
    if (is_text(list->element[0])) {
        snprintf(script->cursor, sizeof script->cursor, "%.20s", list->element[0]->str);
    }
    count_ours(script, ours);
    for (uint32_t i = 0; i < script->n_asked_depths && i < list->element[2]->elements; i++) {
        const redisReply *row = list->element[2]->element[i];
        struct co_turn_depth *out = &turn->depth[turn->n_depths];
        if (!is_list(row) || row->elements != 3) {
            return CO_EMALFORMED;
        }
        *out = (struct co_turn_depth){.ready = (uint64_t)number(row->element[0]),
                                      .delayed = (uint64_t)number(row->element[1]),
                                      .reserved = (uint64_t)number(row->element[2])};
        out->reserved_others = out->reserved > ours[i] ? out->reserved - ours[i] : 0;
        snprintf(out->name, sizeof out->name, "%s", script->names[i]);
        turn->n_depths += out->ready + out->delayed + out->reserved > 0;
    }
    for (size_t i = 0; i < list->element[1]->elements; i++) {
        found(script, list->element[1]->element[i]);
    }
    turn->quarantined = (uint64_t)number(list->element[3]);
    return 0;
}

/* ---- a reply ---- */

static int read_turn(struct co_script *script, struct co_turn *turn, const redisReply *reply,
                     struct co_err *err)
{
    bool again = script->again;
    int code;

    for (size_t i = 0; i < PARTS; i++) {
        if (!is_list(reply) || reply->elements != PARTS ||
            (i != DUE && !is_list(reply->element[i]))) {
            return co_err_set(err, CO_EMALFORMED, "Redis does not answer as our script does");
        }
    }
    script->joining = false;
    if (again) {
        drop_invalid(script);
        read_gone(script, turn, reply->element[GONE], true);
        return 0;
    }
    read_applied(script, turn, reply->element[APPLIED]);
    read_gone(script, turn, reply->element[GONE], false);
    script->crashes = reply->element[CRASHES]->elements > 0;
    code = read_wants(script, turn, reply->element[WANTS], reply->element[CRASHES], err);
    if (code < 0) {
        return code;
    }
    turn->next_due = number(reply->element[DUE]);
    if (turn->recover) {
        read_others(script, reply->element[OTHERS]);
        if (reply->element[BACK]->elements == 2) {
            turn->n_recovered_back = (uint32_t)number(reply->element[BACK]->element[0]);
            turn->n_recovered_lost = (uint32_t)number(reply->element[BACK]->element[1]);
        }
    }
    if (turn->depths && read_depths(script, turn, reply->element[DEPTHS]) < 0) {
        return co_err_set(err, CO_EMALFORMED, "Redis does not answer as our script does");
    }
    turn->total_held = script->n_holds;
    return 0;
}

static void fenced(struct co_script *script, struct co_turn *turn)
{
    while (script->first != NULL) {
        let_go(script, turn, script->first);
    }
    script->n_invalid = 0;
    script->config.token += 1;
    script->joining = true;
    script->recheck = false;
}

enum co_script_said co_script_reply(struct co_script *script, struct co_turn *turn,
                                    struct co_err *err)
{
    redisReply *reply = NULL;
    enum co_script_said said = CO_SCRIPT_GOOD;

    if (redisReaderGetReply(script->reader, (void **)&reply) != REDIS_OK) {
        co_err_set(err, CO_EMALFORMED, "what Redis answers cannot be read");
        return CO_SCRIPT_BROKEN;
    }
    if (reply == NULL) {
        return CO_SCRIPT_NOTHING;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        said = strncmp(reply->str, "NOSCRIPT", 8) == 0 ? CO_SCRIPT_UNKNOWN : CO_SCRIPT_BAD;
        co_err_set(err, CO_ESOURCE, "Redis answers: %.300s", reply->str);
    } else if (turn == NULL) {
        if (reply->type == REDIS_REPLY_STRING && reply->len == CO_SCRIPT_SHA_SIZE - 1) {
            memcpy(script->sha, reply->str, CO_SCRIPT_SHA_SIZE);
        }
    } else if (is_text(reply) && strcmp(reply->str, "FENCED") == 0) {
        fenced(script, turn);
        said = CO_SCRIPT_FENCED;
    } else if (read_turn(script, turn, reply, err) < 0) {
        said = CO_SCRIPT_BROKEN;
    }
    freeReplyObject(reply);
    return said;
}
