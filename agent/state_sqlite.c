#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/state_sqlite_impl.h"
#include "proto/utf8.h"

#define RETRY_MIN_MS 1000
#define RETRY_MAX_MS 30000
#define STOP_MS 1000
#define MESSAGES_MAX 8

/* Notes that may wait, a kind. */
static const uint32_t notes_max[CO_STATE_KINDS] = {
    [CO_STATE_EXIT] = 1024,
    [CO_STATE_SLOW] = 64,
    [CO_STATE_MINUTES] = 16,
};

struct notes {
    struct co_state_note *first;
    struct co_state_note *last;
    uint32_t n;
};

/* What the thread is writing; its alone. */
struct taken {
    struct notes notes[CO_STATE_KINDS];
    uint32_t n_words;
    uint32_t places[CO_STATE_PAUSES_MAX];
    struct co_state_word words[CO_STATE_PAUSES_MAX];
};

struct co_state {
    pthread_t thread;
    pthread_mutex_t mutex; /* Over all that follows, but for the thread's own. */
    pthread_cond_t work;
    pthread_cond_t idle;
    bool stop;
    bool writing;
    bool finished;
    bool abandoned; /* The thread frees all this. */
    struct notes notes[CO_STATE_KINDS];
    struct co_state_word words[CO_STATE_PAUSES_MAX];
    uint64_t dropped;
    uint32_t n_messages;
    struct co_err messages[MESSAGES_MAX];
    bool failing;
    uint64_t dropped_before; /* When the failing began. */
    char failure[CO_ERR_MSG_SIZE];
    uint64_t retry_wait_ms;
    uint64_t retry_at;
    struct co_state_file file; /* The thread's. */
    struct taken taken;        /* The thread's. */
};

/* ---- messages; with the mutex held ---- */

static void say(struct co_state *state, const struct co_err *err)
{
    if (state->n_messages < MESSAGES_MAX) {
        state->messages[state->n_messages++] = *err;
    }
}

static void note_failure(struct co_state *state, const struct co_err *err)
{
    if (!state->failing) {
        state->dropped_before = state->dropped;
        state->retry_wait_ms = RETRY_MIN_MS / 2;
        state->failure[0] = '\0';
    }
    if (strcmp(state->failure, err->msg) != 0) {
        memcpy(state->failure, err->msg, sizeof state->failure);
        say(state, err);
    }
    state->failing = true;
    state->retry_wait_ms *= 2;
    if (state->retry_wait_ms > RETRY_MAX_MS) {
        state->retry_wait_ms = RETRY_MAX_MS;
    }
    state->retry_at = co_state_clock_ms() + state->retry_wait_ms;
}

static void note_success(struct co_state *state)
{
    struct co_err good = {.code = CO_OK};

    if (!state->failing) {
        return;
    }
    state->failing = false;
    snprintf(good.msg, sizeof good.msg,
             "%.300s is written again; notes dropped meanwhile: %" PRIu64, state->file.path,
             state->dropped - state->dropped_before);
    say(state, &good);
}

/* ---- notes; with the mutex held ---- */

static void drop_oldest(struct co_state *state, struct notes *notes)
{
    struct co_state_note *note = notes->first;

    notes->first = note->next;
    notes->last = notes->first == NULL ? NULL : notes->last;
    notes->n--;
    free(note);
    state->dropped++;
}

static void add_note(struct co_state *state, enum co_state_kind kind, struct co_state_note *note)
{
    struct notes *notes = &state->notes[kind];

    if (notes->n == notes_max[kind]) {
        drop_oldest(state, notes);
    }
    if (notes->last != NULL) {
        notes->last->next = note;
    } else {
        notes->first = note;
    }
    notes->last = note;
    notes->n++;
}

/* What could not be written is older than what came since. */
static void put_back(struct co_state *state, enum co_state_kind kind, struct notes *back)
{
    struct notes *notes = &state->notes[kind];

    if (back->first == NULL) {
        return;
    }
    back->last->next = notes->first;
    notes->last = notes->last != NULL ? notes->last : back->last;
    notes->first = back->first;
    notes->n += back->n;
    *back = (struct notes){0};
    while (notes->n > notes_max[kind]) {
        drop_oldest(state, notes);
    }
}

static void free_notes(struct notes *notes)
{
    while (notes->first != NULL) {
        struct co_state_note *next = notes->first->next;
        free(notes->first);
        notes->first = next;
    }
    *notes = (struct notes){0};
}

static bool has_work(const struct co_state *state)
{
    for (enum co_state_kind kind = 0; kind < CO_STATE_KINDS; kind++) {
        if (state->notes[kind].n > 0) {
            return true;
        }
    }
    for (uint32_t i = 0; i < CO_STATE_PAUSES_MAX; i++) {
        if (state->words[i].used && state->words[i].unsaved) {
            return true;
        }
    }
    return false;
}

static void save_all_pauses(struct co_state *state)
{
    for (uint32_t i = 0; i < CO_STATE_PAUSES_MAX; i++) {
        state->words[i].unsaved = state->words[i].used;
    }
}

static void take(struct co_state *state, struct taken *taken)
{
    memcpy(taken->notes, state->notes, sizeof taken->notes);
    memset(state->notes, 0, sizeof state->notes);
    taken->n_words = 0;
    for (uint32_t i = 0; i < CO_STATE_PAUSES_MAX; i++) {
        if (state->words[i].used && state->words[i].unsaved) {
            state->words[i].unsaved = false;
            taken->places[taken->n_words] = i;
            taken->words[taken->n_words++] = state->words[i];
        }
    }
}

static void give_back(struct co_state *state, struct taken *taken)
{
    for (enum co_state_kind kind = 0; kind < CO_STATE_KINDS; kind++) {
        put_back(state, kind, &taken->notes[kind]);
    }
    for (uint32_t i = 0; i < taken->n_words; i++) {
        state->words[taken->places[i]].unsaved = true;
    }
}

/* A cleared pause keeps its place until the file knows. */
static void forget_cleared(struct co_state *state)
{
    for (uint32_t i = 0; i < CO_STATE_PAUSES_MAX; i++) {
        struct co_state_word *word = &state->words[i];
        word->used = word->used && (word->set || word->unsaved);
    }
}

/* ---- the thread ---- */

/* Move a damaged file aside and say so; true when it is worth trying again at once. */
static bool start_anew(struct co_state *state, const struct co_err *why, const char *pauses)
{
    struct co_err err = {.code = CO_ESOURCE};
    char name[CO_PATH_SIZE + 48];

    if (!co_state_file_aside(&state->file, name, sizeof name)) {
        return false;
    }
    const char *slash = strrchr(name, '/');
    snprintf(err.msg, sizeof err.msg,
             "%.260s; it lies beside as %.100s now, and a new one is begun; %s", why->msg,
             slash != NULL ? slash + 1 : name, pauses);
    pthread_mutex_lock(&state->mutex);
    say(state, &err);
    pthread_mutex_unlock(&state->mutex);
    return true;
}

static int write_taken(struct co_state *state, struct co_err *err)
{
    struct co_state_batch batch = {.n_words = state->taken.n_words, .words = state->taken.words};

    for (enum co_state_kind kind = 0; kind < CO_STATE_KINDS; kind++) {
        batch.first[kind] = state->taken.notes[kind].first;
    }
    return co_state_write(&state->file, &batch, err);
}

/* Write what waits; without the mutex but where it says so. */
static int save(struct co_state *state, struct co_err *err)
{
    bool fresh = false;
    int code = co_state_file_open(&state->file, &fresh, err);

    if (code < 0) {
        return code;
    }
    pthread_mutex_lock(&state->mutex);
    if (fresh) {
        save_all_pauses(state);
    }
    take(state, &state->taken);
    pthread_mutex_unlock(&state->mutex);

    code = write_taken(state, err);
    pthread_mutex_lock(&state->mutex);
    if (code < 0) {
        give_back(state, &state->taken);
    } else {
        forget_cleared(state);
    }
    pthread_mutex_unlock(&state->mutex);
    for (enum co_state_kind kind = 0; kind < CO_STATE_KINDS; kind++) {
        free_notes(&state->taken.notes[kind]);
    }
    return code;
}

/* Returns with the mutex as it came, held. False: no more is to be tried. */
static bool try_save(struct co_state *state)
{
    struct co_err err = {0};

    state->writing = true;
    pthread_mutex_unlock(&state->mutex);
    int code = save(state, &err);
    while (code < 0 && state->file.corrupt &&
           start_anew(state, &err, "the pauses in force are kept")) {
        code = save(state, &err);
    }
    pthread_mutex_lock(&state->mutex);
    if (code < 0) {
        note_failure(state, &err);
    } else {
        note_success(state);
    }
    state->writing = false;
    pthread_cond_broadcast(&state->idle);
    return code == 0 || !state->stop;
}

static void wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t at_ms)
{
    struct timespec at = {.tv_sec = (time_t)(at_ms / 1000),
                          .tv_nsec = (long)(at_ms % 1000) * 1000000};
    pthread_cond_timedwait(cond, mutex, &at);
}

static void wait_for_work(struct co_state *state)
{
    while (!state->stop) {
        bool work = has_work(state);
        if (work && !state->failing) {
            return;
        }
        if (!work) {
            pthread_cond_wait(&state->work, &state->mutex);
        } else if (co_state_clock_ms() >= state->retry_at) {
            return;
        } else {
            wait_until(&state->work, &state->mutex, state->retry_at);
        }
    }
}

static void destroy(struct co_state *state)
{
    for (enum co_state_kind kind = 0; kind < CO_STATE_KINDS; kind++) {
        free_notes(&state->notes[kind]);
    }
    pthread_cond_destroy(&state->work);
    pthread_cond_destroy(&state->idle);
    pthread_mutex_destroy(&state->mutex);
    free(state);
}

static void *run(void *arg)
{
    struct co_state *state = arg;
    bool more = true;

    pthread_mutex_lock(&state->mutex);
    while (more) {
        wait_for_work(state);
        more = has_work(state) ? try_save(state) : !state->stop;
    }
    pthread_mutex_unlock(&state->mutex);

    co_state_file_close(&state->file);
    pthread_mutex_lock(&state->mutex);
    state->finished = true;
    bool abandoned = state->abandoned;
    pthread_cond_broadcast(&state->idle);
    pthread_mutex_unlock(&state->mutex);
    if (abandoned) {
        destroy(state);
    }
    return NULL;
}

/* Signals are the loop's: the thread starts with all of them blocked. */
static int start_thread(struct co_state *state)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int sys = pthread_create(&state->thread, NULL, run, state);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return sys;
}

/* ---- opening ---- */

static void init_locks(struct co_state *state)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&state->mutex, NULL);
    pthread_cond_init(&state->work, &attr);
    pthread_cond_init(&state->idle, &attr);
    pthread_condattr_destroy(&attr);
}

static void keep_pauses(struct co_state *state, const struct co_state_pause *pauses, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        state->words[i] = (struct co_state_word){.pause = pauses[i], .used = true, .set = true};
    }
}

/* Pauses first, and by a connection that only reads: they count on a disk that cannot be written
 * too, and can often be read out of a damaged file. */
static int read_pauses(struct co_state *state, struct co_state_pause *ret_pauses,
                       uint32_t *ret_n_pauses, struct co_err *err)
{
    int code =
        co_state_pauses_list(state->file.path, ret_pauses, CO_STATE_PAUSES_MAX, ret_n_pauses, err);

    if (code == CO_ENOTFOUND) {
        return 0;
    }
    if (code == 0) {
        keep_pauses(state, ret_pauses, *ret_n_pauses);
    }
    return code;
}

static void say_pauses_lost(struct co_state *state, const struct co_err *why)
{
    struct co_err err;

    co_err_set(&err, CO_ESOURCE,
               "the pauses are not known and not in force: %.300s; look with \"cohort status\" and "
               "set them again with \"cohort pause\"",
               why->msg);
    say(state, &err);
}

static void open_file(struct co_state *state, struct co_state_pause *ret_pauses,
                      uint32_t *ret_n_pauses)
{
    struct co_err lost = {0};
    struct co_err err = {0};
    bool fresh = false;
    int read = read_pauses(state, ret_pauses, ret_n_pauses, &lost);
    int code = read == CO_EMALFORMED ? read : co_state_file_open(&state->file, &fresh, &err);

    if (read == CO_EMALFORMED || (code < 0 && state->file.corrupt)) {
        const char *pauses = read < 0 ? "pauses set with \"cohort pause\" are lost: set them again"
                                      : "the pauses in force are kept";
        if (start_anew(state, read < 0 ? &lost : &err, pauses)) {
            fresh = true;
            code = co_state_file_open(&state->file, &fresh, &err);
        }
    } else if (read < 0) {
        say_pauses_lost(state, &lost);
    }
    if (code < 0) {
        note_failure(state, &err);
    }
    if (fresh) {
        save_all_pauses(state);
    }
}

int co_state_open(const char *path, struct co_state_pause *ret_pauses, uint32_t *ret_n_pauses,
                  struct co_state **ret_state, struct co_err *err)
{
    struct co_state *state = calloc(1, sizeof *state);

    if (state == NULL) {
        return co_err_set(err, CO_ENOMEM, "open %s: out of memory", path);
    }
    snprintf(state->file.path, sizeof state->file.path, "%s", path);
    init_locks(state);
    *ret_n_pauses = 0;
    open_file(state, ret_pauses, ret_n_pauses);
    int sys = start_thread(state);
    if (sys != 0) {
        co_state_file_close(&state->file);
        destroy(state);
        return co_err_sys(err, sys, "start the thread of %.300s", path);
    }
    *ret_state = state;
    return 0;
}

/* A disk that does not answer must not keep the agent from ending: then the thread is left to
 * itself, and the process' end is its end. */
void co_state_free(struct co_state **state)
{
    if (state == NULL || *state == NULL) {
        return;
    }
    struct co_state *s = *state;
    uint64_t until = co_state_clock_ms() + STOP_MS;

    *state = NULL;
    atomic_store(&s->file.until, until);
    pthread_mutex_lock(&s->mutex);
    s->stop = true;
    pthread_cond_signal(&s->work);
    while (!s->finished && co_state_clock_ms() < until + STOP_MS / 10) {
        wait_until(&s->idle, &s->mutex, until + STOP_MS / 10);
    }
    s->abandoned = !s->finished;
    pthread_t thread = s->thread;
    bool abandoned = s->abandoned;
    pthread_mutex_unlock(&s->mutex);
    if (abandoned) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    destroy(s);
}

/* ---- the loop's side ---- */

/* A text that fills its field may have been cut within a character. */
static void trim(char *text, size_t size)
{
    text[size - 1] = '\0';
    size_t used = strlen(text);
    if (used < size - 1) {
        return;
    }
    for (size_t back = 1; back <= 3 && back <= used; back++) {
        unsigned char c = (unsigned char)text[used - back];
        if (c >= 0xc0 && co_utf8_step(text + used - back, back) == 0) {
            text[used - back] = '\0';
        }
        if (c < 0x80 || c >= 0xc0) {
            return;
        }
    }
}
#define TRIM(member) trim(member, sizeof(member))

static struct co_state_note *make_note(const void *data, size_t size, uint32_t n)
{
    struct co_state_note *note = malloc(sizeof *note + size * n);

    if (note != NULL) {
        note->next = NULL;
        note->n = n;
        memcpy(note->data, data, size * n);
    }
    return note;
}

static void leave_note(struct co_state *state, enum co_state_kind kind, struct co_state_note *note)
{
    pthread_mutex_lock(&state->mutex);
    if (note == NULL) {
        state->dropped++;
    } else {
        add_note(state, kind, note);
        pthread_cond_signal(&state->work);
    }
    pthread_mutex_unlock(&state->mutex);
}

void co_state_exit(struct co_state *state, const struct co_report_exit *exit)
{
    struct co_report_exit copy = *exit;

    TRIM(copy.pool);
    TRIM(copy.reason);
    TRIM(copy.status);
    TRIM(copy.queue);
    TRIM(copy.job);
    TRIM(copy.job_id);
    TRIM(copy.uuid);
    TRIM(copy.cause);
    leave_note(state, CO_STATE_EXIT, make_note(&copy, sizeof copy, 1));
}

void co_state_slow(struct co_state *state, const struct co_report_slow *slow)
{
    struct co_report_slow copy = *slow;

    TRIM(copy.pool);
    TRIM(copy.job);
    TRIM(copy.stack);
    leave_note(state, CO_STATE_SLOW, make_note(&copy, sizeof copy, 1));
}

void co_state_minutes(struct co_state *state, const struct co_minutes *minutes)
{
    if (minutes->n > 0) {
        leave_note(state, CO_STATE_MINUTES,
                   make_note(minutes->rows, sizeof minutes->rows[0], minutes->n));
    }
}

static struct co_state_word *find_word(struct co_state *state, const char *queue,
                                       const char *connection)
{
    for (uint32_t i = 0; i < CO_STATE_PAUSES_MAX; i++) {
        struct co_state_word *word = &state->words[i];
        if (word->used && strcmp(word->pause.queue, queue) == 0 &&
            strcmp(word->pause.connection, connection) == 0) {
            return word;
        }
    }
    return NULL;
}

static struct co_state_word *free_word(struct co_state *state)
{
    for (uint32_t i = 0; i < CO_STATE_PAUSES_MAX; i++) {
        if (!state->words[i].used) {
            return &state->words[i];
        }
    }
    return NULL;
}

int co_state_pause_set(struct co_state *state, const struct co_state_pause *pause,
                       struct co_err *err)
{
    pthread_mutex_lock(&state->mutex);
    struct co_state_word *word = find_word(state, pause->queue, pause->connection);
    if (word == NULL) {
        word = free_word(state);
    }
    if (word != NULL) {
        *word = (struct co_state_word){.pause = *pause, .used = true, .set = true, .unsaved = true};
        TRIM(word->pause.by);
        TRIM(word->pause.reason);
        pthread_cond_signal(&state->work);
    }
    pthread_mutex_unlock(&state->mutex);
    return word != NULL ? 0
                        : co_err_set(err, CO_EFULL,
                                     "pause %s: this agent keeps %d pauses and has as many; resume "
                                     "some, or pause all queues at once",
                                     pause->queue, CO_STATE_PAUSES_MAX);
}

int co_state_pause_clear(struct co_state *state, const char *queue, const char *connection,
                         struct co_err *err)
{
    pthread_mutex_lock(&state->mutex);
    struct co_state_word *word = find_word(state, queue, connection);
    bool found = word != NULL && word->set;
    if (found) {
        word->set = false;
        word->unsaved = true;
        pthread_cond_signal(&state->work);
    }
    pthread_mutex_unlock(&state->mutex);
    return found ? 0
                 : co_err_set(err, CO_ENOTFOUND, "resume %s: it is not paused on this agent",
                              queue[0] != '\0' ? queue : "all queues");
}

bool co_state_error(struct co_state *state, struct co_err *ret_err)
{
    pthread_mutex_lock(&state->mutex);
    bool any = state->n_messages > 0;
    if (any) {
        *ret_err = state->messages[0];
        state->n_messages--;
        memmove(state->messages, state->messages + 1, state->n_messages * sizeof *ret_err);
    }
    pthread_mutex_unlock(&state->mutex);
    return any;
}

bool co_state_failing(struct co_state *state)
{
    pthread_mutex_lock(&state->mutex);
    bool failing = state->failing;
    pthread_mutex_unlock(&state->mutex);
    return failing;
}

uint64_t co_state_dropped(struct co_state *state)
{
    pthread_mutex_lock(&state->mutex);
    uint64_t dropped = state->dropped;
    pthread_mutex_unlock(&state->mutex);
    return dropped;
}

bool co_state_flush(struct co_state *state, uint32_t wait_ms)
{
    uint64_t until = co_state_clock_ms() + wait_ms;
    bool done;

    pthread_mutex_lock(&state->mutex);
    while (!(done = !has_work(state) && !state->writing) && co_state_clock_ms() < until) {
        wait_until(&state->idle, &state->mutex, until);
    }
    pthread_mutex_unlock(&state->mutex);
    return done;
}
