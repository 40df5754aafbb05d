#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void step(int number);
#define CO_LANE_STEP(number) step(number)
/* The module itself, with a hook at every step of the protocol. */
#include "worker/lane.c"

static struct co_lane lane;
static struct co_stager stager;

static int fresh_lane(void **state)
{
    (void)state;
    co_lane_init(&lane, 77, &stager);
    atomic_store(&lane.fresh_until, UINT64_MAX);
    return 0;
}

/* ---- rules ---- */

static int stage(uint64_t ticket)
{
    uint8_t body[16];
    struct co_record record = {
        .type = CO_RECORD_JOB, .ticket = ticket, .body = body, .size = sizeof body};

    memset(body, (int)(ticket & 0xff), sizeof body);
    return co_lane_stage(&stager, &record);
}

/* The ticket taken, or 0. */
static uint64_t take(uint32_t place, uint64_t *ret_position)
{
    struct co_record record;
    bool ring;

    if (co_lane_take(&lane, co_lane_head(&lane), place, 100, &record, ret_position, &ring) != 1) {
        return 0;
    }
    assert_int_equal(record.size, 16);
    for (uint32_t i = 0; i < record.size; i++) {
        assert_int_equal(record.body[i], record.ticket & 0xff);
    }
    return record.ticket;
}

static uint64_t take_and_read(uint32_t place)
{
    uint64_t position;
    uint64_t ticket = take(place, &position);

    if (ticket != 0) {
        co_lane_read(&lane, position, place);
    }
    return ticket;
}

static void a_fresh_lane_passes_its_check_and_another_does_not(void **state)
{
    (void)state;
    assert_int_equal(co_lane_check(&lane, sizeof lane), CO_OK);
    assert_int_equal(co_lane_check(&lane, sizeof lane - 1), CO_EMALFORMED);
    lane.version++;
    assert_int_equal(co_lane_check(&lane, sizeof lane), CO_EVERSION);
    lane.magic++;
    assert_int_equal(co_lane_check(&lane, sizeof lane), CO_EMALFORMED);
}

/* Offsets are the format: cohortd and cohort-worker may be of neighbouring releases. */
static void the_layout_is_what_we_promised(void **state)
{
    (void)state;
    assert_int_equal(offsetof(struct co_lane, fresh_until), 64);
    assert_int_equal(offsetof(struct co_lane, bell_from), 72);
    assert_int_equal(offsetof(struct co_lane, head), 128);
    assert_int_equal(offsetof(struct co_lane, tail), 136);
    assert_int_equal(offsetof(struct co_lane, words), 192);
    assert_int_equal(offsetof(struct co_lane, cells), 4096);
    assert_int_equal(offsetof(struct co_lane_cell, body), 16);
}

static void the_oldest_is_taken_first_whoever_comes(void **state)
{
    (void)state;
    assert_int_equal(take_and_read(0), 0);
    for (uint64_t ticket = 10; ticket < 15; ticket++) {
        assert_int_equal(stage(ticket), CO_OK);
    }
    for (uint64_t ticket = 10; ticket < 15; ticket++) {
        assert_true(co_lane_waits(&lane, 100));
        assert_int_equal(take_and_read((uint32_t)ticket % 3), ticket);
    }
    assert_false(co_lane_waits(&lane, 100));
    assert_int_equal(take_and_read(1), 0);
}

static void the_youngest_is_taken_back_first_and_a_taken_one_never(void **state)
{
    uint64_t ticket = 0;
    (void)state;
    stage(1);
    stage(2);
    stage(3);
    assert_int_equal(take_and_read(5), 1);
    assert_int_equal(co_lane_recall(&stager, &ticket), 1);
    assert_int_equal(ticket, 3);
    assert_int_equal(co_lane_recall(&stager, &ticket), 1);
    assert_int_equal(ticket, 2);
    assert_int_equal(co_lane_recall(&stager, &ticket), 0);
    stage(4);
    assert_int_equal(take_and_read(5), 4);
    assert_int_equal(co_lane_recall(&stager, &ticket), 0);
}

/* The worker looked at its ring before the agent gave it a ticket there: that one is older than
 * what was staged after it, even if it lies where something was taken back. */
static void nothing_staged_after_the_look_at_the_ring_is_taken(void **state)
{
    struct co_record record;
    uint64_t position, head, ticket;
    bool ring;
    (void)state;
    stage(1);
    stage(2);
    head = co_lane_head(&lane);
    co_lane_recall(&stager, &ticket);
    co_lane_recall(&stager, &ticket);
    stage(2);
    assert_int_equal(co_lane_take(&lane, head, 0, 1, &record, &position, &ring), 0);
    assert_true(co_lane_waits(&lane, 1));
    assert_int_equal(take_and_read(0), 2);
}

static void a_lane_taken_back_from_for_ever_is_never_full(void **state)
{
    uint64_t ticket;
    (void)state;
    for (uint64_t i = 1; i < 1000; i++) {
        assert_int_equal(stage(i), CO_OK);
        assert_int_equal(stage(i + 1), CO_OK);
        assert_int_equal(co_lane_recall(&stager, &ticket), 1);
        assert_int_equal(ticket, i + 1);
        assert_true(co_lane_waits(&lane, 1));
        assert_int_equal(take_and_read(0), i);
        assert_false(co_lane_waits(&lane, 1));
        co_lane_bind(&stager, i);
    }
}

static void the_agent_learns_who_took_what(void **state)
{
    uint64_t cursor = 0, ticket = 0;
    uint32_t place = 0;
    (void)state;
    stage(1);
    stage(2);
    stage(3);
    assert_int_equal(co_lane_taken(&stager, &cursor, &ticket, &place), 0);
    take_and_read(7);
    take_and_read(300);
    cursor = 0;
    assert_int_equal(co_lane_taken(&stager, &cursor, &ticket, &place), 1);
    assert_int_equal(ticket, 1);
    assert_int_equal(place, 7);
    assert_int_equal(co_lane_taken(&stager, &cursor, &ticket, &place), 1);
    assert_int_equal(ticket, 2);
    assert_int_equal(place, 300);
    assert_int_equal(co_lane_taken(&stager, &cursor, &ticket, &place), 0);
    assert_true(co_lane_has(&stager, 2, 300));
    assert_false(co_lane_has(&stager, 2, 7));
    assert_false(co_lane_has(&stager, 3, 7));
    co_lane_bind(&stager, 1);
    cursor = 0;
    assert_int_equal(co_lane_taken(&stager, &cursor, &ticket, &place), 1);
    assert_int_equal(ticket, 2);
}

static void a_cell_is_used_again_once_it_is_read_or_its_reader_dead(void **state)
{
    uint64_t position;
    (void)state;
    for (uint64_t ticket = 1; ticket <= CO_LANE_CELLS; ticket++) {
        assert_int_equal(stage(ticket), CO_OK);
    }
    assert_int_equal(stage(100), CO_EFULL);
    assert_int_equal(take(1, &position), 1);
    assert_int_equal(take_and_read(2), 2);
    co_lane_bind(&stager, 1);
    co_lane_bind(&stager, 2);
    assert_int_equal(stage(100), CO_EFULL); /* The first is still being read. */
    co_lane_bury(&stager, 1);
    assert_int_equal(stage(100), CO_OK);
    assert_int_equal(stage(101), CO_OK);
    assert_int_equal(stage(102), CO_EFULL);
    for (uint64_t ticket = 3; ticket <= CO_LANE_CELLS; ticket++) {
        assert_int_equal(take_and_read(2), ticket);
    }
    assert_int_equal(take_and_read(2), 100);
    assert_int_equal(take_and_read(2), 101);
}

static void nothing_is_taken_from_an_agent_that_stands_still(void **state)
{
    (void)state;
    stage(1);
    atomic_store(&lane.fresh_until, 99); /* It is 100. */
    assert_false(co_lane_waits(&lane, 100));
    assert_int_equal(take_and_read(1), 0);
    atomic_store(&lane.fresh_until, 100);
    assert_int_equal(take_and_read(1), 1);
}

static void a_take_rings_when_the_agent_wants_to_stage_more(void **state)
{
    struct co_record record;
    uint64_t position;
    bool ring = true;
    (void)state;
    stage(1);
    stage(2);
    atomic_store(&lane.bell_from, 2);
    co_lane_take(&lane, co_lane_head(&lane), 0, 1, &record, &position, &ring);
    assert_false(ring);
    co_lane_take(&lane, co_lane_head(&lane), 0, 1, &record, &position, &ring);
    assert_true(ring);
}

static void a_body_too_big_for_a_cell_is_not_staged(void **state)
{
    static uint8_t body[CO_LANE_BODY_MAX + 1];
    struct co_record record = {.type = CO_RECORD_JOB, .ticket = 1, .body = body};
    (void)state;
    record.size = CO_LANE_BODY_MAX + 1;
    assert_int_equal(co_lane_stage(&stager, &record), CO_ETOOBIG);
    record.size = CO_LANE_BODY_MAX;
    assert_int_equal(co_lane_stage(&stager, &record), CO_OK);
}

/* Workers run foreign code, which may have written anything anywhere in the file. */
static void nonsense_in_the_lane_is_noticed_and_takes_nothing(void **state)
{
    static const uint64_t words[] = {0, 1, UINT64_MAX, 2 << 16 | 1, 1 << 16 | 2, 1 << 16};
    uint64_t ticket, cursor, position;
    struct co_record record;
    uint32_t place;
    bool ring;
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        fresh_lane(NULL);
        stage(1);
        atomic_store(&lane.words[1], words[i]);
        cursor = 0;
        assert_int_equal(co_lane_taken(&stager, &cursor, &ticket, &place), CO_EMALFORMED);
        assert_int_equal(co_lane_recall(&stager, &ticket), CO_EMALFORMED);
        assert_int_equal(co_lane_take(&lane, co_lane_head(&lane), 0, 1, &record, &position, &ring),
                         0);
    }
    for (uint64_t head = 0; head < 3; head++) {
        fresh_lane(NULL);
        stage(1);
        atomic_store(&lane.head, head * UINT64_C(0x4000000000000001));
        atomic_store(&lane.tail, UINT64_MAX - head);
        assert_int_equal(co_lane_take(&lane, co_lane_head(&lane), 0, 1, &record, &position, &ring),
                         0);
    }
    fresh_lane(NULL);
    stage(1);
    lane.cells[1].size = CO_LANE_BODY_MAX + 1;
    assert_int_equal(co_lane_take(&lane, co_lane_head(&lane), 0, 1, &record, &position, &ring),
                     CO_EMALFORMED);
}

/* ---- an agent and its workers, as threads that stall and die at any step ---- */

#define WORKERS 3
#define TRACE (1u << 12)

static struct sitter {
    struct co_wire wire;
    pthread_t thread;
    uint32_t place;
    unsigned seed;
    _Atomic bool dead;
    bool alive;      /* The agent's: it has a thread. */
    uint64_t cursor; /* The agent's position in its ring. */
    jmp_buf top;
} sitters[WORKERS];

static struct co_bell bell;
static int bell_fd;
static __thread struct sitter *me; /* NULL: the agent. */
static __thread unsigned agent_seed = 5;
static _Atomic bool dying;            /* Threads of the stress test stall and die. */
static _Atomic uint32_t begun[TRACE]; /* By ticket modulo. */

static void futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    struct timespec limit = {.tv_sec = 20};

    syscall(SYS_futex, word, operation, value, operation == FUTEX_WAIT ? &limit : NULL, NULL, 0);
}

static void step(int number)
{
    unsigned *seed = me != NULL ? &me->seed : &agent_seed;
    int drawn;

    (void)number;
    if (!atomic_load_explicit(&dying, memory_order_relaxed)) {
        return;
    }
    drawn = rand_r(seed) % 65536;
    if (drawn < 256) {
        sched_yield();
    } else if (drawn < 512) {
        for (int i = rand_r(seed) % 500; i > 0; i--) {
            __asm__ volatile("" ::: "memory");
        }
    } else if (me != NULL && drawn < 512 + 12) {
        longjmp(me->top, 1); /* Killed, here. */
    }
}

static void ring_bell(void)
{
    uint64_t one = 1;

    if (co_bell_rings(&bell)) {
        assert_int_equal(write(bell_fd, &one, sizeof one), sizeof one);
    }
}

static void send_end(uint64_t ticket)
{
    struct co_record end = {.type = CO_RECORD_END, .ticket = ticket};

    while (co_ring_push(&me->wire.to_agent, &end, NULL) == CO_EFULL) {
        ring_bell();
        sched_yield();
    }
    ring_bell();
}

static void work(uint64_t ticket)
{
    static const struct co_job_ref ref;

    step(10);
    if (co_slot_begin(&me->wire.slot, ticket, &ref, 1)) {
        atomic_fetch_add(&begun[ticket % TRACE], 1);
        step(11);
        send_end(ticket);
        step(12);
        co_slot_finish(&me->wire.slot, ticket, 1);
    }
}

/* Its own ring first, then the lane, then a sleep that nobody's wake-up may miss. */
static bool serve_one(uint64_t *cursor)
{
    struct co_ring *ring = &me->wire.to_worker;
    uint64_t head = co_lane_head(&lane);
    struct co_record record;
    uint64_t position;
    bool more;

    step(15);
    if (co_ring_peek(ring, cursor, &record) == 1) {
        uint64_t ticket = record.ticket;
        bool stop = record.type == CO_RECORD_STOP;
        co_ring_release(ring, *cursor);
        if (!stop) {
            work(ticket);
        }
        return !stop;
    }
    if (co_lane_take(&lane, head, me->place, 1, &record, &position, &more) == 1) {
        uint64_t ticket = record.ticket;
        assert_int_equal(record.body[0], ticket & 0xff);
        co_lane_read(&lane, position, me->place);
        if (more) {
            ring_bell();
        }
        work(ticket);
        return true;
    }
    step(13);
    if (co_ring_sleep(ring, *cursor)) {
        step(14);
        if (!co_lane_waits(&lane, 1)) {
            futex(&ring->sleeping, FUTEX_WAIT, 1);
        }
    }
    co_ring_awake(ring);
    return true;
}

static void *sit(void *arg)
{
    me = arg;
    if (setjmp(me->top) == 0) {
        uint64_t cursor = co_ring_tail(&me->wire.to_worker);
        while (serve_one(&cursor)) {
        }
    }
    atomic_store(&me->dead, true);
    uint64_t one = 1;
    assert_int_equal(write(bell_fd, &one, sizeof one), sizeof one); /* SIGCHLD. */
    return NULL;
}

static struct {
    uint64_t next, last;   /* Tickets. */
    uint64_t owner[TRACE]; /* By ticket modulo: 0 nobody's, 1 staged, 2 + worker, or OVER. */
    uint64_t has[WORKERS];
    uint64_t n_done, n_unbegun, n_crashed, n_recalled, n_deaths, n_direct;
    uint64_t back[CO_LANE_CELLS]; /* Taken back: to be handed over before any other. */
    uint32_t n_back;
    uint32_t n_open; /* Staged or with a worker. */
} run;

#define STAGED 1
#define OVER UINT64_MAX

static void seat(uint32_t w)
{
    struct sitter *s = &sitters[w];

    co_wire_init(&s->wire, 1, "jobs", w, 0);
    s->place = w;
    s->seed = s->seed * 31 + w + 7;
    s->cursor = co_ring_tail(&s->wire.to_agent);
    atomic_store(&s->dead, false);
    s->alive = true;
    assert_int_equal(pthread_create(&s->thread, NULL, sit, s), 0);
}

static void bind_to(uint64_t ticket, uint32_t w)
{
    assert_int_equal(run.owner[ticket % TRACE], STAGED);
    assert_int_equal(run.has[w], 0);
    co_lane_bind(&stager, ticket);
    run.owner[ticket % TRACE] = 2 + w;
    run.has[w] = ticket;
}

static void over(uint32_t w, uint64_t ticket, uint64_t *counter)
{
    assert_int_equal(run.has[w], ticket);
    assert_int_equal(run.owner[ticket % TRACE], 2 + w);
    run.owner[ticket % TRACE] = OVER;
    run.has[w] = 0;
    run.n_open -= 1;
    *counter += 1;
}

static bool read_ring(uint32_t w)
{
    uint8_t buf[CO_RECORD_MAX];
    struct co_record record;
    bool any = false;

    while (co_ring_copy(&sitters[w].wire.to_agent, &sitters[w].cursor, buf, &record) == 1) {
        if (run.owner[record.ticket % TRACE] == STAGED) {
            assert_true(co_lane_has(&stager, record.ticket, w));
            bind_to(record.ticket, w);
        }
        over(w, record.ticket, &run.n_done);
        assert_int_equal(atomic_load(&begun[record.ticket % TRACE]), 1);
        co_ring_release(&sitters[w].wire.to_agent, sitters[w].cursor);
        any = true;
    }
    return any;
}

static bool scan(void)
{
    uint64_t cursor = 0, ticket;
    uint32_t place;
    bool any = false;
    int rc;

    while ((rc = co_lane_taken(&stager, &cursor, &ticket, &place)) == 1) {
        any = true;
        if (run.has[place] != 0) {
            read_ring(place); /* The end of the one before is there by now. */
        }
        if (run.owner[ticket % TRACE] == STAGED) {
            bind_to(ticket, place);
        }
    }
    assert_int_equal(rc, 0);
    return any;
}

static void reap(uint32_t w)
{
    struct sitter *s = &sitters[w];
    uint64_t ticket;

    pthread_join(s->thread, NULL);
    s->alive = false;
    read_ring(w);
    scan();
    ticket = run.has[w];
    if (ticket != 0) {
        bool began = atomic_load(&s->wire.slot.begun) == ticket;
        /* The word in the slot tells the truth, but for the moment between its two stores. */
        assert_true(atomic_load(&begun[ticket % TRACE]) <= (began ? 1 : 0));
        over(w, ticket, began ? &run.n_crashed : &run.n_unbegun);
    }
    co_lane_bury(&stager, w);
    run.n_deaths += 1;
}

static void wake_all(void)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        if (sitters[w].alive && co_ring_rouse(&sitters[w].wire.to_worker)) {
            futex(&sitters[w].wire.to_worker.sleeping, FUTEX_WAKE, 1);
        }
    }
}

static uint64_t next_ticket(void)
{
    if (run.n_back > 0) {
        return run.back[--run.n_back];
    }
    if (run.next > run.last) {
        return 0;
    }
    atomic_store(&begun[run.next % TRACE], 0);
    run.owner[run.next % TRACE] = 0;
    return run.next++;
}

static void give(uint32_t w, uint64_t ticket)
{
    struct co_record job = {.type = CO_RECORD_JOB, .ticket = ticket};
    bool wake = false;

    assert_int_equal(co_ring_push(&sitters[w].wire.to_worker, &job, &wake), CO_OK);
    if (wake) {
        futex(&sitters[w].wire.to_worker.sleeping, FUTEX_WAKE, 1);
    }
    run.owner[ticket % TRACE] = 2 + w;
    run.has[w] = ticket;
    run.n_open += 1;
    run.n_direct += 1;
}

/* Youngest first, so what was taken back last goes out first again. */
static void recall_all(void)
{
    uint64_t ticket;
    int rc;

    while ((rc = co_lane_recall(&stager, &ticket)) == 1) {
        assert_int_equal(run.owner[ticket % TRACE], STAGED);
        run.owner[ticket % TRACE] = 0;
        run.back[run.n_back++] = ticket;
        run.n_open -= 1;
        run.n_recalled += 1;
    }
    assert_int_equal(rc, 0);
    scan();
}

static bool fill_lane(void)
{
    bool any = false;
    uint64_t ticket;

    while (run.n_open < 48 && (ticket = next_ticket()) != 0) {
        if (stage(ticket) != CO_OK) {
            run.back[run.n_back++] = ticket;
            break;
        }
        run.owner[ticket % TRACE] = STAGED;
        run.n_open += 1;
        any = true;
    }
    atomic_store(&lane.bell_from, stager.head - 8);
    if (any) {
        wake_all();
    }
    return any;
}

static bool give_directly(void)
{
    bool any = false;

    for (uint32_t w = 0; w < WORKERS; w++) {
        uint64_t ticket;
        if (sitters[w].alive && run.has[w] == 0 && (ticket = next_ticket()) != 0) {
            give(w, ticket);
            any = true;
        }
    }
    return any;
}

static bool look_around(bool direct)
{
    bool any = false;

    for (uint32_t w = 0; w < WORKERS; w++) {
        any = read_ring(w) || any;
    }
    any = scan() || any;
    for (uint32_t w = 0; w < WORKERS; w++) {
        if (sitters[w].alive && atomic_load(&sitters[w].dead)) {
            reap(w);
            seat(w);
            any = true;
        }
    }
    return (direct ? give_directly() : fill_lane()) || any;
}

/* A lost wake-up of a worker or of the agent is a wait of twenty seconds, and the end. */
static void wait_for_bell(bool direct)
{
    struct pollfd wait = {.fd = bell_fd, .events = POLLIN};
    uint64_t count;

    co_bell_sleep(&bell);
    if (!look_around(direct)) {
        assert_int_equal(poll(&wait, 1, 20000), 1);
        assert_int_equal(read(bell_fd, &count, sizeof count), sizeof count);
    }
    co_bell_awake(&bell);
}

static void stop_all(void)
{
    struct co_record stop = {.type = CO_RECORD_STOP};

    atomic_store(&dying, false);
    for (uint32_t w = 0; w < WORKERS; w++) {
        bool wake = false;
        assert_int_equal(co_ring_push(&sitters[w].wire.to_worker, &stop, &wake), CO_OK);
        if (wake) {
            futex(&sitters[w].wire.to_worker.sleeping, FUTEX_WAKE, 1);
        }
        pthread_join(sitters[w].thread, NULL);
    }
}

static void no_ticket_is_lost_or_run_twice_whoever_dies_where(void **state)
{
    const char *many = getenv("CO_HANDOVERS");
    bool direct = false;

    (void)state;
    run.next = 1;
    run.last = many != NULL ? strtoull(many, NULL, 10) : 1000000;
    bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    co_bell_init(&bell);
    atomic_store(&dying, true);
    for (uint32_t w = 0; w < WORKERS; w++) {
        seat(w);
    }
    while (run.next <= run.last || run.n_back > 0 || run.n_open > 0) {
        int drawn = rand_r(&agent_seed) % 4096;
        if (drawn < 24) { /* All back; from now on directly, or by the lane again. */
            recall_all();
            direct = drawn < 8;
        }
        if (!look_around(direct)) {
            wait_for_bell(direct);
        }
    }
    stop_all();
    close(bell_fd);
    assert_int_equal(run.n_done + run.n_unbegun + run.n_crashed, run.last);
    assert_true(run.n_deaths > 0 && run.n_recalled > 0 && run.n_direct > 0);
    print_message(
        "%llu hand-overs: %llu done, %llu unbegun, %llu crashed; %llu deaths, "
        "%llu taken back, %llu given directly\n",
        (unsigned long long)run.last, (unsigned long long)run.n_done,
        (unsigned long long)run.n_unbegun, (unsigned long long)run.n_crashed,
        (unsigned long long)run.n_deaths, (unsigned long long)run.n_recalled,
        (unsigned long long)run.n_direct);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_fresh_lane_passes_its_check_and_another_does_not, fresh_lane),
        cmocka_unit_test_setup(the_layout_is_what_we_promised, fresh_lane),
        cmocka_unit_test_setup(the_oldest_is_taken_first_whoever_comes, fresh_lane),
        cmocka_unit_test_setup(the_youngest_is_taken_back_first_and_a_taken_one_never, fresh_lane),
        cmocka_unit_test_setup(nothing_staged_after_the_look_at_the_ring_is_taken, fresh_lane),
        cmocka_unit_test_setup(a_lane_taken_back_from_for_ever_is_never_full, fresh_lane),
        cmocka_unit_test_setup(the_agent_learns_who_took_what, fresh_lane),
        cmocka_unit_test_setup(a_cell_is_used_again_once_it_is_read_or_its_reader_dead, fresh_lane),
        cmocka_unit_test_setup(nothing_is_taken_from_an_agent_that_stands_still, fresh_lane),
        cmocka_unit_test_setup(a_take_rings_when_the_agent_wants_to_stage_more, fresh_lane),
        cmocka_unit_test_setup(a_body_too_big_for_a_cell_is_not_staged, fresh_lane),
        cmocka_unit_test_setup(nonsense_in_the_lane_is_noticed_and_takes_nothing, fresh_lane),
        cmocka_unit_test_setup(no_ticket_is_lost_or_run_twice_whoever_dies_where, fresh_lane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
