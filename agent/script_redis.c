#include "agent/script_redis.h"

#include <assert.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/script_impl.h"
#include "agent/script_lua.h"

#define DEAD_MS 3000 /* A holder whose counter stood still so long is dead. */
#define NUMBERS_SIZE (256u * 1024)

/* ---- what we hold ---- */

struct co_script_hold *co_script_hold_get(struct co_script *script, int64_t job_id)
{
    struct co_script_hold *hold = script->buckets[(uint64_t)job_id % CO_SCRIPT_BUCKETS];

    while (hold != NULL && hold->job_id != job_id) {
        hold = hold->chain;
    }
    return hold;
}

void co_script_hold_drop(struct co_script *script, struct co_script_hold *hold)
{
    struct co_script_hold **at = &script->buckets[(uint64_t)hold->job_id % CO_SCRIPT_BUCKETS];

    while (*at != hold) {
        at = &(*at)->chain;
    }
    *at = hold->chain;
    *(hold->prev != NULL ? &hold->prev->next : &script->first) = hold->next;
    *(hold->next != NULL ? &hold->next->prev : &script->last) = hold->prev;
    script->n_holds -= 1;
    free(hold->member);
    free(hold);
}

struct co_script_hold *co_script_hold_add(struct co_script *script, int64_t job_id,
                                          const void *member, size_t size)
{
    struct co_script_hold *hold = calloc(1, sizeof *hold);
    struct co_script_hold **bucket = &script->buckets[(uint64_t)job_id % CO_SCRIPT_BUCKETS];
    uint8_t *copy = malloc(size + 1);

    if (hold == NULL || copy == NULL) {
        free(hold);
        free(copy);
        return NULL;
    }
    memcpy(copy, member, size);
    copy[size] = '\0';
    hold->job_id = job_id;
    hold->member = copy;
    hold->size = size;
    hold->chain = *bucket;
    *bucket = hold;
    hold->prev = script->last;
    *(script->last != NULL ? &script->last->next : &script->first) = hold;
    script->last = hold;
    script->n_holds += 1;
    return hold;
}

int co_script_hold_count(struct co_script_hold *hold, uint32_t value)
{
    char text[CO_ATTEMPTS_TEXT];
    struct co_attempts *a = &hold->attempts;

    co_attempts_text(a, value, text);
    size_t n = strlen(text);
    size_t size = hold->size - a->size + n;
    uint8_t *member = malloc(size + 1);
    if (member == NULL) {
        return CO_ENOMEM;
    }
    memcpy(member, hold->member, a->at);
    memcpy(member + a->at, text, n);
    memcpy(member + a->at + n, hold->member + a->at + a->size, hold->size - a->at - a->size + 1);
    free(hold->member);
    hold->member = member;
    hold->size = size;
    co_attempts_find(member, size, a);
    return 0;
}

int co_script_name(struct co_script *script, const char *name)
{
    for (uint32_t i = 0; i < script->n_names; i++) {
        if (strcmp(script->names[i], name) == 0) {
            return (int)i;
        }
    }
    if (script->n_names == CO_TURN_QUEUES_MAX) {
        return -1;
    }
    snprintf(script->names[script->n_names], CO_TEXT_SIZE, "%s", name);
    return (int)script->n_names++;
}

uint32_t co_script_held(const struct co_script *script)
{
    return script->n_holds - script->n_invalid;
}

bool co_script_again(const struct co_script *script)
{
    return script->recheck || script->n_invalid > 0;
}

int co_script_open(const struct co_script_config *config, struct co_script **ret_script,
                   struct co_err *err)
{
    struct co_script *script = calloc(1, sizeof *script);

    if (script == NULL || (script->reader = redisReaderCreate()) == NULL) {
        free(script);
        return co_err_set(err, CO_ENOMEM, "no memory for a Redis source");
    }
    script->config = *config;
    script->joining = true;
    script->next_id = 1;
    snprintf(script->cursor, sizeof script->cursor, "0");
    snprintf(script->me, sizeof script->me, "%016" PRIx64, config->agent_id);
    *ret_script = script;
    return 0;
}

void co_script_free(struct co_script **script)
{
    if (script == NULL || *script == NULL) {
        return;
    }
    while ((*script)->first != NULL) {
        co_script_hold_drop(*script, (*script)->first);
    }
    redisReaderFree((*script)->reader);
    free(*script);
    *script = NULL;
}

void co_script_reset(struct co_script *script)
{
    void *reader = redisReaderCreate();

    if (reader != NULL) {
        redisReaderFree(script->reader);
        script->reader = reader;
    }
}

int co_script_feed(struct co_script *script, const char *bytes, size_t size, struct co_err *err)
{
    if (redisReaderFeed(script->reader, bytes, size) != REDIS_OK) {
        return co_err_set(err, CO_EMALFORMED, "what Redis answers cannot be read");
    }
    return 0;
}

/* ---- commands ---- */

/* A command's arguments. Numbers are written into one buffer. */
struct args {
    int n, room;
    const char **list;
    size_t *sizes;
    char *numbers;
    size_t used;
    bool full;
};

static void add_bytes(struct args *args, const void *bytes, size_t size)
{
    if (args->n == args->room) {
        int room = args->room == 0 ? 1024 : args->room * 2;
        const char **list = realloc(args->list, (size_t)room * sizeof *list);
        args->list = list != NULL ? list : args->list;
        size_t *sizes = list != NULL ? realloc(args->sizes, (size_t)room * sizeof *sizes) : NULL;
        args->sizes = sizes != NULL ? sizes : args->sizes;
        if (sizes == NULL) {
            args->full = true;
            return;
        }
        args->room = room;
    }
    args->list[args->n] = bytes;
    args->sizes[args->n++] = size;
}

static void add(struct args *args, const char *text)
{
    add_bytes(args, text, strlen(text));
}

/* A copy of short text: numbers, digits. */
static void add_copy(struct args *args, const char *text)
{
    size_t size = strlen(text);

    if (args->numbers == NULL || args->used + size > NUMBERS_SIZE) {
        args->full = true;
        return;
    }
    memcpy(args->numbers + args->used, text, size);
    add_bytes(args, args->numbers + args->used, size);
    args->used += size;
}

static void add_number(struct args *args, int64_t number)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRId64, number);
    add_copy(args, text);
}

static int finish(struct args *args, char **ret_bytes, size_t *ret_size, struct co_err *err)
{
    int size =
        args->full ? -1 : redisFormatCommandArgv(ret_bytes, args->n, args->list, args->sizes);

    free(args->list);
    free(args->sizes);
    free(args->numbers);
    if (size < 0) {
        return co_err_set(err, CO_ENOMEM, "no memory for a command to Redis");
    }
    *ret_size = (size_t)size;
    return 0;
}

static int append(char **bytes, size_t *size, int argc, const char **argv, struct co_err *err)
{
    char *more = NULL;
    int n = redisFormatCommandArgv(&more, argc, argv, NULL);
    char *both = n < 0 ? NULL : realloc(*bytes, *size + (size_t)n);

    if (both == NULL) {
        free(more);
        return co_err_set(err, CO_ENOMEM, "no memory for a command to Redis");
    }
    memcpy(both + *size, more, (size_t)n);
    redisFreeCommand(more);
    *bytes = both;
    *size += (size_t)n;
    return 0;
}

int co_script_hello(struct co_script *script, const char *user, const char *password,
                    uint32_t database, char **ret_bytes, size_t *ret_size, uint32_t *ret_replies,
                    struct co_err *err)
{
    char *bytes = NULL;
    size_t size = 0;
    char number[12];
    int code = 0;

    script->sha[0] = '\0';
    *ret_replies = 0;
    if (password[0] != '\0') {
        bool named = user[0] != '\0';
        const char *auth[3] = {"AUTH", named ? user : password, password};
        code = append(&bytes, &size, named ? 3 : 2, auth, err);
        *ret_replies += 1;
    }
    if (code == 0 && database != 0) {
        snprintf(number, sizeof number, "%u", database);
        code = append(&bytes, &size, 2, (const char *[]){"SELECT", number}, err);
        *ret_replies += 1;
    }
    if (code == 0) {
        code = append(&bytes, &size, 3, (const char *[]){"SCRIPT", "LOAD", script_lua}, err);
        *ret_replies += 1;
    }
    if (code < 0) {
        free(bytes);
        return code;
    }
    *ret_bytes = bytes;
    *ret_size = size;
    return 0;
}

/* ---- a turn ---- */

/* What is done with a member. */
struct op {
    char kind;
    uint32_t delay_s;
    int32_t add; /* To its attempts. */
    bool crash;  /* Counted beside the job. */
};

static struct op op_of(const struct co_turn_settle *settle, bool begun)
{
    int32_t count = settle->began && !begun ? 1 : 0;
    int32_t undo = begun ? -1 : 0;
    struct op op = {.kind = 'h', .delay_s = settle->delay_s};

    switch (settle->outcome) {
    case CO_OUTCOME_DONE:
    case CO_OUTCOME_FAILED:
        op.kind = 'x';
        break;
    case CO_OUTCOME_RELEASED:
        op.kind = 'd';
        op.add = count;
        break;
    case CO_OUTCOME_LEFT:
        op.kind = 'l';
        op.add = count;
        break;
    case CO_OUTCOME_CRASHED:
        op.add = count;
        op.crash = true;
        break;
    case CO_OUTCOME_DECLINED:
    case CO_OUTCOME_RETURNED:
    case CO_OUTCOME_LOST:
        op.add = undo;
        op.crash = settle->felled;
        break;
    case CO_OUTCOME_QUARANTINED:
        op.kind = 'q';
        break;
    }
    return op;
}

static void add_op(struct args *args, const struct co_script *script,
                   const struct co_script_hold *hold, const struct op *op, const char *text)
{
    char digits[CO_ATTEMPTS_TEXT] = "";
    bool ends = op->kind == 'x' || op->kind == 'q';

    if (op->add != 0) {
        int64_t value = (int64_t)hold->attempts.value + op->add;
        co_attempts_text(&hold->attempts, value > 0 ? (uint32_t)value : 0, digits);
    }
    add_bytes(args, &op->kind, 1);
    add_number(args, hold->job_id);
    add(args, script->names[hold->queue]);
    add_number(args, op->delay_s);
    add_number(args, (int64_t)hold->attempts.at);
    add_number(args, (int64_t)hold->attempts.size);
    add_copy(args, digits);
    add(args, text != NULL ? text : "");
    add(args, op->crash || (ends && script->crashes) ? hold->uuid : "");
    add_bytes(args, hold->member, hold->size);
}

static const struct op nothing = {.kind = 'x'};

static void add_ops(struct args *args, struct co_script *script, const struct co_turn *turn,
                    struct op ops[CO_TURN_SETTLES_MAX])
{
    static const struct op start = {.kind = 's', .add = 1};
    static const struct op aside = {.kind = 'q'};
    uint32_t n = 0;

    for (uint32_t i = 0; i < turn->n_settles; i++) {
        const struct co_script_hold *hold = co_script_hold_get(script, turn->settles[i].job_id);
        n += hold != NULL;
        ops[i] = hold != NULL ? op_of(&turn->settles[i], hold->begun) : nothing;
    }
    for (uint32_t i = 0; i < turn->n_starts; i++) {
        n += co_script_hold_get(script, turn->starts[i].job_id) != NULL;
    }
    add_number(args, n + script->n_invalid);
    for (uint32_t i = 0; i < turn->n_settles; i++) {
        const struct co_turn_settle *settle = &turn->settles[i];
        const struct co_script_hold *hold = co_script_hold_get(script, settle->job_id);
        if (hold != NULL) {
            add_op(args, script, hold, &ops[i],
                   settle->outcome == CO_OUTCOME_QUARANTINED ? settle->text : NULL);
        }
    }
    for (uint32_t i = 0; i < turn->n_starts; i++) {
        const struct co_script_hold *hold = co_script_hold_get(script, turn->starts[i].job_id);
        if (hold != NULL) {
            add_op(args, script, hold, &start, NULL);
        }
    }
    for (const struct co_script_hold *hold = script->first; script->n_invalid > 0 && hold != NULL;
         hold = hold->next) {
        if (hold->invalid) {
            add_op(args, script, hold, &aside, "its payload is no job");
        }
    }
}

static bool is_settling(const struct co_turn *turn, int64_t job_id)
{
    for (uint32_t i = 0; i < turn->n_settles; i++) {
        if (turn->settles[i].job_id == job_id) {
            return true;
        }
    }
    for (uint32_t i = 0; i < turn->n_starts; i++) {
        if (turn->starts[i].job_id == job_id) {
            return true;
        }
    }
    return false;
}

static void add_hold(struct args *args, const struct co_script *script,
                     const struct co_script_hold *hold)
{
    add_number(args, hold->job_id);
    add(args, script->names[hold->queue]);
    add_bytes(args, hold->member, hold->size);
}

/* All of them with a heartbeat or in a second part; else the oldest of each queue, which says
 * whether the queue was cleared. */
static void add_holds(struct args *args, const struct co_script *script, const struct co_turn *turn,
                      bool again)
{
    bool all = again || turn->heartbeat, seen[CO_TURN_QUEUES_MAX] = {false};
    const struct co_script_hold *picked[CO_TURN_QUEUES_MAX];
    uint32_t n = 0, n_picked = 0;

    add(args, turn->heartbeat ? "1" : "0");
    for (const struct co_script_hold *hold = script->first; hold != NULL; hold = hold->next) {
        if (all) {
            n += !hold->invalid && (again || !is_settling(turn, hold->job_id));
        } else if (!hold->begun && !hold->invalid && !seen[hold->queue] &&
                   !is_settling(turn, hold->job_id)) {
            seen[hold->queue] = true;
            picked[n_picked++] = hold;
        }
    }
    add_number(args, all ? n : n_picked);
    for (const struct co_script_hold *hold = script->first; all && hold != NULL;
         hold = hold->next) {
        if (!hold->invalid && (again || !is_settling(turn, hold->job_id))) {
            add_hold(args, script, hold);
        }
    }
    for (uint32_t i = 0; !all && i < n_picked; i++) {
        add_hold(args, script, picked[i]);
    }
}

static void add_wants(struct args *args, const struct co_script *script, const struct co_turn *turn)
{
    uint32_t room = CO_TURN_CLAIMS_MAX;

    add_number(args, script->next_id);
    add_number(args, turn->n_wants);
    for (uint32_t i = 0; i < turn->n_wants; i++) {
        const struct co_turn_want *want = &turn->wants[i];
        uint32_t count = want->count < room ? want->count : room;
        add_number(args, want->group);
        add_number(args, want->rank);
        add(args, want->name);
        add_number(args, count);
        add_number(args, (int64_t)want->bytes);
        room -= count;
    }
}

static void add_dead(struct args *args, struct co_script *script, const struct co_turn *turn)
{
    uint32_t n = 0;

    add(args, turn->recover ? "1" : "0");
    for (uint32_t i = 0; turn->recover && i < script->n_others; i++) {
        n += script->mono_ms - script->others[i].since >= DEAD_MS;
    }
    add_number(args, n);
    for (uint32_t i = 0; turn->recover && i < script->n_others; i++) {
        const struct co_script_other *other = &script->others[i];
        if (script->mono_ms - other->since >= DEAD_MS) {
            add(args, other->agent);
            add(args, other->record);
            add(args, "0");
        }
    }
}

static void add_depths(struct args *args, struct co_script *script, const struct co_turn *turn)
{
    add(args, turn->depths ? "1" : "0");
    add(args, script->cursor);
    script->n_asked_depths = turn->depths ? script->n_names : 0;
    add_number(args, script->n_asked_depths);
    for (uint32_t i = 0; i < script->n_asked_depths; i++) {
        add(args, script->names[i]);
    }
}

int co_script_command(struct co_script *script, const struct co_turn *turn, bool again, co_unix now,
                      co_ms mono_ms, char **ret_bytes, size_t *ret_size, struct co_err *err)
{
    static struct co_turn none; /* Stays empty. */
    struct op ops[CO_TURN_SETTLES_MAX];
    struct args args = {.numbers = malloc(NUMBERS_SIZE)};
    char key[CO_TEXT_SIZE + 16];
    char token[24];

    script->now = now;
    script->mono_ms = mono_ms;
    script->counter += 1;
    script->again = again;
    snprintf(key, sizeof key, "%scohort:agents", script->config.prefix);
    snprintf(token, sizeof token, "%016" PRIx64, script->config.token);
    add(&args, "EVALSHA");
    add(&args, script->sha);
    add(&args, "1");
    add(&args, key);
    add(&args, script->config.prefix);
    add(&args, script->me);
    add(&args, token);
    add_number(&args, (int64_t)script->counter);
    add(&args, script->config.place);
    add(&args, script->joining ? "1" : "0");
    add_number(&args, now);
    add_number(&args, script->config.retry_after_s);
    add_number(&args, script->config.migrate);
    add_ops(&args, script, again ? &none : turn, ops);
    add_holds(&args, script, turn, again);
    add_wants(&args, script, again ? &none : turn);
    add_dead(&args, script, again ? &none : turn);
    add_depths(&args, script, again ? &none : turn);
    add(&args, turn->bye && !again ? "1" : "0");
    return finish(&args, ret_bytes, ret_size, err);
}
