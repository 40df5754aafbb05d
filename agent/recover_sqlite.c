#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/source_sqlite_impl.h"

/* The kernel ends an agent's workers with it, but they may outlast its lock by a moment. */
#define WORKERS_GONE_MS 20

/* ---- who is dead ---- */

/* Dead: nobody holds the lock. Then we do, in *ret_fd, or -1 when there was no file. A lock we may
 * not open belongs to somebody we cannot judge: alive. */
static bool is_dead(const struct co_db *db, const char *agent, int *ret_fd)
{
    char path[sizeof db->lock_path];

    co_lock_path(db, agent, path, sizeof path);
    *ret_fd = -1;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return errno == ENOENT;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return false;
    }
    *ret_fd = fd;
    return true;
}

/* Names become part of a path: only what we would have written ourselves. */
static bool is_agent_name(const char *name)
{
    return name != NULL && strlen(name) == CO_DB_AGENT_SIZE - 1 &&
           strspn(name, "0123456789abcdef") == CO_DB_AGENT_SIZE - 1;
}

int co_recover_look(struct co_db *db, struct co_deads *ret_deads, struct co_err *err)
{
    sqlite3_stmt *row = co_db_stmt(db, CO_STMT_AGENT_LIST, err);
    int code = co_db_step(db, row, err, "t", db->agent);

    for (; code > 0; code = co_db_next(db, row, err)) {
        const char *agent = (const char *)sqlite3_column_text(row, 0);
        const char *run_dir = (const char *)sqlite3_column_text(row, 1);
        struct co_dead *dead = &ret_deads->list[ret_deads->n];
        if (ret_deads->n < CO_RECOVER_MAX && is_agent_name(agent) &&
            is_dead(db, agent, &dead->fd)) {
            snprintf(dead->agent, sizeof dead->agent, "%s", agent);
            snprintf(dead->run_dir, sizeof dead->run_dir, "%s", run_dir != NULL ? run_dir : "");
            dead->finished = false;
            ret_deads->n++;
        }
    }
    if (ret_deads->n > 0) {
        /* The kernel frees a dying agent's locks before it ends the agent's workers: what they
         * still write now must be read. */
        nanosleep(&(struct timespec){.tv_nsec = WORKERS_GONE_MS * 1000000L}, NULL);
    }
    return code;
}

void co_recover_done(struct co_db *db, struct co_deads *deads, bool committed)
{
    char path[sizeof db->lock_path];

    for (uint32_t i = 0; i < deads->n; i++) {
        if (deads->list[i].fd < 0) {
            continue;
        }
        if (committed && deads->list[i].finished) {
            co_lock_path(db, deads->list[i].agent, path, sizeof path);
            unlink(path);
        }
        close(deads->list[i].fd);
    }
    deads->n = 0;
}

/* ---- its wires ---- */

/* One dead agent on its way through recovery. */
struct corpse {
    struct co_db *db;
    struct co_turn *turn;
    const struct co_dead *dead;
    struct co_wire *wire; /* A copy: nobody can change or truncate it while it is read. */
    uint8_t *record;      /* CO_RECORD_MAX */
};

static bool read_wire(const struct corpse *corpse, const char *path)
{
    struct stat st;
    size_t got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0) {
        return false;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        while (got < sizeof *corpse->wire) {
            ssize_t n = read(fd, (char *)corpse->wire + got, sizeof *corpse->wire - got);
            if (n <= 0) {
                break;
            }
            got += (size_t)n;
        }
    }
    close(fd);
    uint64_t agent = strtoull(corpse->dead->agent, NULL, 16);
    return got == sizeof *corpse->wire && co_wire_check(corpse->wire, got) == 0 &&
           corpse->wire->slot.agent_id == agent;
}

static bool find_table(const struct co_db *db, uint64_t source, uint32_t *ret_table)
{
    for (uint32_t i = 0; i < db->config.n_tables; i++) {
        if (db->config.tables[i].source == source) {
            *ret_table = i;
            return true;
        }
    }
    return false;
}

/* The dead agent's hold of a job: 1 and its fence, which heartbeats moved since the wire was
 * written; 0 when there is none. */
static int find_hold(struct co_db *db, const struct co_dead *dead, const struct co_job_ref *ref,
                     struct co_settle *settle, struct co_err *err)
{
    sqlite3_stmt *row = co_db_stmt(db, CO_STMT_HOLD_LIST, err);
    int code = 0;

    if (!find_table(db, ref->source, &settle->table)) {
        return 0;
    }
    const char *name = db->tables[settle->table].config->table;
    code = co_db_step(db, row, err, "t", dead->agent);
    for (; code > 0; code = co_db_next(db, row, err)) {
        if (sqlite3_column_int64(row, 0) == ref->job_id &&
            strcmp((const char *)sqlite3_column_text(row, 1), name) == 0 &&
            ref->reserved_at <= sqlite3_column_int64(row, 2)) {
            settle->agent = dead->agent;
            settle->job_id = ref->job_id;
            settle->reserved_at = sqlite3_column_int64(row, 2);
            sqlite3_reset(row);
            return 1;
        }
    }
    return code;
}

static int settle_end(const struct corpse *corpse, const struct co_end_msg *end, struct co_err *err)
{
    struct co_settle settle = {0};
    char text[CO_END_TEXT_MAX + 1];
    bool applied = false;
    int code = find_hold(corpse->db, corpse->dead, &end->ref, &settle, err);

    if (code <= 0) {
        return code;
    }
    snprintf(text, sizeof text, "%.*s", (int)end->text_size, end->text != NULL ? end->text : "");
    settle.outcome = (enum co_outcome)end->outcome;
    settle.delay_s = end->delay_s;
    settle.began = settle.outcome != CO_OUTCOME_DECLINED && settle.outcome != CO_OUTCOME_RETURNED;
    settle.record = (end->flags & CO_END_RECORD) != 0;
    settle.text = text;
    code = co_settle_apply(corpse->db, &settle, &applied, err);
    corpse->turn->n_recovered_settled += applied;
    return code;
}

/* Was this ticket's END among the records? */
static int settle_ring(const struct corpse *corpse, uint64_t ticket, bool *ret_ended,
                       struct co_err *err)
{
    struct co_ring *ring = &corpse->wire->to_agent;
    uint64_t cursor = co_ring_tail(ring);
    struct co_record record;
    struct co_end_msg end;
    int code = 0;

    *ret_ended = false;
    while (code >= 0 && co_ring_copy(ring, &cursor, corpse->record, &record) == 1) {
        if (record.type == CO_RECORD_END && co_end_decode(record.body, record.size, &end) >= 0) {
            *ret_ended |= record.ticket == ticket;
            code = settle_end(corpse, &end, err);
        }
    }
    return code;
}

static int settle_running(const struct corpse *corpse, struct co_err *err)
{
    struct co_settle settle = {0};
    bool applied = false;
    int code = find_hold(corpse->db, corpse->dead, &corpse->wire->slot.job, &settle, err);

    if (code <= 0) {
        return code;
    }
    co_settle_lost(corpse->db, &settle);
    code = co_settle_apply(corpse->db, &settle, &applied, err);
    corpse->turn->n_recovered_lost += applied;
    return code;
}

static int settle_wire(const struct corpse *corpse, struct co_err *err)
{
    struct co_slot *slot = &corpse->wire->slot;
    uint64_t ticket;
    bool ended;
    enum co_phase phase = co_slot_phase(slot, &ticket);
    int code = settle_ring(corpse, ticket, &ended, err);

    if (code < 0 || ended || (phase != CO_PHASE_RUNNING && phase != CO_PHASE_ENDING) ||
        atomic_load(&slot->begun) != ticket) {
        return code;
    }
    return settle_running(corpse, err);
}

static int settle_wires(const struct corpse *corpse, struct co_err *err)
{
    char pattern[CO_PATH_SIZE + 16];
    glob_t found = {0};
    int code = 0;

    if (corpse->dead->run_dir[0] != '/') {
        return 0;
    }
    snprintf(pattern, sizeof pattern, "%s/*/w[0-9]*", corpse->dead->run_dir);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && code >= 0; i++) {
            const char *name = strrchr(found.gl_pathv[i], '/');
            /* With a dot it is a long payload's overflow file. */
            if (strchr(name, '.') == NULL && read_wire(corpse, found.gl_pathv[i])) {
                code = settle_wire(corpse, err);
            }
        }
    }
    globfree(&found);
    return code;
}

/* ---- the rest ---- */

/* The next hold of a table we serve: 1, 0 when there is none. *ret_foreign: others there are. */
static int next_hold(struct co_db *db, const struct co_dead *dead, struct co_settle *settle,
                     bool *ret_begun, bool *ret_foreign, struct co_err *err)
{
    sqlite3_stmt *row = co_db_stmt(db, CO_STMT_HOLD_LIST, err);
    int code = co_db_step(db, row, err, "t", dead->agent);

    *ret_foreign = false;
    for (; code > 0; code = co_db_next(db, row, err)) {
        const char *name = (const char *)sqlite3_column_text(row, 1);
        for (uint32_t i = 0; i < db->config.n_tables; i++) {
            if (strcmp(db->config.tables[i].table, name) == 0) {
                settle->agent = dead->agent;
                settle->table = i;
                settle->job_id = sqlite3_column_int64(row, 0);
                settle->reserved_at = sqlite3_column_int64(row, 2);
                *ret_begun = sqlite3_column_int(row, 3) != 0;
                sqlite3_reset(row);
                return 1;
            }
        }
        *ret_foreign = true;
    }
    return code;
}

/* Whatever no wire spoke of: the source's own record says whether it had begun. */
static int settle_rest(struct co_db *db, struct co_turn *turn, struct co_dead *dead,
                       struct co_err *err)
{
    bool begun, foreign, applied;
    int code;

    for (;;) {
        struct co_settle settle = {.outcome = CO_OUTCOME_RETURNED};
        code = next_hold(db, dead, &settle, &begun, &foreign, err);
        if (code <= 0) {
            break;
        }
        if (begun) {
            co_settle_lost(db, &settle);
        }
        code = co_settle_apply(db, &settle, &applied, err);
        if (code < 0) {
            break;
        }
        turn->n_recovered_lost += applied && begun;
        turn->n_recovered_back += applied && !begun;
    }
    dead->finished = code == 0 && !foreign;
    return code;
}

static int bury(struct co_db *db, struct co_turn *turn, struct co_dead *dead, struct co_wire *wire,
                uint8_t *record, struct co_err *err)
{
    struct corpse corpse = {.db = db, .turn = turn, .dead = dead, .wire = wire, .record = record};
    int code = settle_wires(&corpse, err);

    if (code < 0 || (code = settle_rest(db, turn, dead, err)) < 0 || !dead->finished) {
        return code;
    }
    code = co_db_write(db, co_db_stmt(db, CO_STMT_AGENT_DROP, err), err, "t", dead->agent);
    return code < 0 ? code : 0;
}

/* Losses of jobs that are gone would be counted against whoever gets their id next. */
static int sweep_losses(struct co_db *db, struct co_err *err)
{
    int code = 0;

    for (uint32_t i = 0; i < db->config.n_tables && code >= 0; i++) {
        code = co_db_write(db, co_db_table_stmt(db, i, CO_STMT_LOSS_SWEEP, err), err, "t",
                           db->config.tables[i].table);
    }
    return code < 0 ? code : 0;
}

int co_recover_apply(struct co_db *db, struct co_deads *deads, struct co_turn *turn,
                     struct co_err *err)
{
    struct co_wire *wire = aligned_alloc(4096, (sizeof *wire + 4095) / 4096 * 4096);
    uint8_t *record = malloc(CO_RECORD_MAX);
    int code = 0;

    if (wire == NULL || record == NULL) {
        code = co_err_set(err, CO_ENOMEM, "recover the jobs of a dead agent: out of memory");
    }
    for (uint32_t i = 0; i < deads->n && code >= 0; i++) {
        code = bury(db, turn, &deads->list[i], wire, record, err);
    }
    free(wire);
    free(record);
    return code < 0 ? code : sweep_losses(db, err);
}
