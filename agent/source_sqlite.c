#include "agent/source_sqlite.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "agent/source_sqlite_impl.h"

struct co_sqlite {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool stop;
    struct co_turn *asked;
    struct co_turn *finished;
    struct co_db db; /* The thread's alone. */
};

/* The next turn, or NULL to stop. A turn that was handed over is always run. */
static struct co_turn *next_turn(struct co_sqlite *sqlite)
{
    pthread_mutex_lock(&sqlite->mutex);
    while (sqlite->asked == NULL && !sqlite->stop) {
        pthread_cond_wait(&sqlite->cond, &sqlite->mutex);
    }
    struct co_turn *turn = sqlite->asked;
    sqlite->asked = NULL;
    pthread_mutex_unlock(&sqlite->mutex);
    return turn;
}

static void *run(void *arg)
{
    struct co_sqlite *sqlite = arg;
    struct co_turn *turn;

    while ((turn = next_turn(sqlite)) != NULL) {
        co_run_turn(&sqlite->db, turn);
        pthread_mutex_lock(&sqlite->mutex);
        sqlite->finished = turn;
        pthread_mutex_unlock(&sqlite->mutex);
        if (sqlite->db.config.wake != NULL) {
            sqlite->db.config.wake(sqlite->db.config.wake_arg);
        }
    }
    co_db_close(&sqlite->db);
    co_lock_drop(&sqlite->db, false);
    return NULL;
}

/* Signals are the loop's: the thread starts with all of them blocked. */
static int start_thread(struct co_sqlite *sqlite)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int sys = pthread_create(&sqlite->thread, NULL, run, sqlite);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return sys;
}

int co_sqlite_open(const struct co_sqlite_config *config, struct co_sqlite **ret_sqlite,
                   struct co_err *err)
{
    assert(config->n_tables <= CO_SQLITE_TABLES_MAX);
    struct co_sqlite *sqlite = calloc(1, sizeof *sqlite);

    if (sqlite == NULL) {
        return co_err_set(err, CO_ENOMEM, "open source %s: out of memory", config->path);
    }
    co_db_init(&sqlite->db, config);
    pthread_mutex_init(&sqlite->mutex, NULL);
    pthread_cond_init(&sqlite->cond, NULL);
    int sys = start_thread(sqlite);
    if (sys != 0) {
        free(sqlite);
        return co_err_sys(err, sys, "start the thread of source %.300s", config->path);
    }
    *ret_sqlite = sqlite;
    return 0;
}

void co_sqlite_submit(struct co_sqlite *sqlite, struct co_turn *turn)
{
    pthread_mutex_lock(&sqlite->mutex);
    assert(sqlite->asked == NULL && sqlite->finished == NULL);
    sqlite->asked = turn;
    pthread_cond_signal(&sqlite->cond);
    pthread_mutex_unlock(&sqlite->mutex);
}

struct co_turn *co_sqlite_take(struct co_sqlite *sqlite)
{
    pthread_mutex_lock(&sqlite->mutex);
    struct co_turn *turn = sqlite->finished;
    sqlite->finished = NULL;
    pthread_mutex_unlock(&sqlite->mutex);
    return turn;
}

void co_sqlite_free(struct co_sqlite **sqlite)
{
    if (sqlite == NULL || *sqlite == NULL) {
        return;
    }
    struct co_sqlite *s = *sqlite;
    pthread_mutex_lock(&s->mutex);
    s->stop = true;
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    co_turn_free(&s->finished);
    pthread_cond_destroy(&s->cond);
    pthread_mutex_destroy(&s->mutex);
    free(s);
    *sqlite = NULL;
}
