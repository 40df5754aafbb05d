#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/err.h"
#include "worker/dispatch.h"

#define BODY_MAX (CO_RECORD_MAX - CO_RECORD_HEADER)

static struct co_wire wire;
static struct co_bell bell;

static int fresh_wire(void **state)
{
    (void)state;
    co_wire_init(&wire, 77, "jobs", 4, 2);
    co_bell_init(&bell);
    return 0;
}

/* ---- wire and bell ---- */

static void fresh_files_pass_their_check(void **state)
{
    (void)state;
    assert_int_equal(co_wire_check(&wire, sizeof wire), CO_OK);
    assert_int_equal(co_bell_check(&bell, sizeof bell), CO_OK);
    assert_string_equal(wire.slot.pool, "jobs");
    assert_int_equal(wire.slot.agent_id, 77);
    assert_int_equal(wire.slot.worker, 4);
    assert_int_equal(wire.slot.generation, 2);
}

static void foreign_files_are_refused(void **state)
{
    (void)state;
    assert_int_equal(co_wire_check(&wire, sizeof wire - 1), CO_EMALFORMED);
    assert_int_equal(co_bell_check(&bell, sizeof bell - 1), CO_EMALFORMED);
    wire.slot.version++;
    bell.version++;
    assert_int_equal(co_wire_check(&wire, sizeof wire), CO_EVERSION);
    assert_int_equal(co_bell_check(&bell, sizeof bell), CO_EVERSION);
    wire.slot.magic++;
    bell.magic++;
    assert_int_equal(co_wire_check(&wire, sizeof wire), CO_EMALFORMED);
    assert_int_equal(co_bell_check(&bell, sizeof bell), CO_EMALFORMED);
    fresh_wire(NULL);
    memset(wire.slot.pool, 'x', sizeof wire.slot.pool);
    assert_int_equal(co_wire_check(&wire, sizeof wire), CO_EMALFORMED);
}

static void a_long_pool_name_is_cut(void **state)
{
    char name[100];
    (void)state;
    memset(name, 'p', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    co_wire_init(&wire, 1, name, 0, 0);
    assert_int_equal(strlen(wire.slot.pool), sizeof wire.slot.pool - 1);
}

/* Offsets are the format: a successor of another release reads the file. */
static void the_layout_is_what_we_promised(void **state)
{
    (void)state;
    assert_int_equal(offsetof(struct co_slot, state), 88);
    assert_int_equal(offsetof(struct co_slot, lease_until), 112);
    assert_int_equal(offsetof(struct co_slot, job), 120);
    assert_int_equal(offsetof(struct co_wire, to_worker), 4096);
    assert_int_equal(offsetof(struct co_ring, tail), 64);
    assert_int_equal(offsetof(struct co_ring, sleeping), 72);
    assert_int_equal(offsetof(struct co_ring, data), 4096);
    assert_int_equal(offsetof(struct co_bell, agent_sleeps), 64);
    assert_int_equal(sizeof(struct co_bell), 4096);
}

/* ---- slot ---- */

static const struct co_job_ref ref = {.source = 5, .job_id = 6, .reserved_at = 7, .attempts = 1};

static void assert_slot(enum co_phase phase, uint64_t ticket)
{
    uint64_t got;
    assert_int_equal(co_slot_phase(&wire.slot, &got), phase);
    assert_int_equal(got, ticket);
}

static void a_ticket_begins_and_finishes(void **state)
{
    (void)state;
    assert_slot(CO_PHASE_IDLE, 0);
    assert_true(co_slot_begin(&wire.slot, 10, &ref, 1000));
    assert_slot(CO_PHASE_RUNNING, 10);
    assert_int_equal(wire.slot.begun, 10);
    assert_int_equal(wire.slot.since_ms, 1000);
    assert_int_equal(wire.slot.job.job_id, 6);
    assert_false(co_slot_begin(&wire.slot, 11, &ref, 1001));
    assert_true(co_slot_finish(&wire.slot, 10, 1002));
    assert_slot(CO_PHASE_IDLE, 10);
    assert_int_equal(wire.slot.since_ms, 1002);
}

static void a_ticket_that_never_began_can_finish(void **state)
{
    (void)state;
    assert_true(co_slot_finish(&wire.slot, 10, 1)); /* Declined, for example. */
    assert_slot(CO_PHASE_IDLE, 10);
    assert_int_equal(wire.slot.begun, 0);
}

static void ending_a_running_ticket_holds_the_worker(void **state)
{
    (void)state;
    co_slot_begin(&wire.slot, 10, &ref, 1);
    assert_true(co_slot_end(&wire.slot, 10, 2));
    assert_slot(CO_PHASE_ENDING, 10);
    assert_false(co_slot_finish(&wire.slot, 10, 3));
    assert_false(co_slot_begin(&wire.slot, 11, &ref, 4));
    assert_false(co_slot_end(&wire.slot, 10, 5)); /* Ended once. */
    assert_slot(CO_PHASE_ENDING, 10);
}

static void nothing_meant_for_one_ticket_hits_the_next(void **state)
{
    (void)state;
    co_slot_begin(&wire.slot, 10, &ref, 1);
    co_slot_finish(&wire.slot, 10, 2);
    assert_false(co_slot_end(&wire.slot, 10, 3));
    assert_slot(CO_PHASE_IDLE, 10);
    co_slot_begin(&wire.slot, 11, &ref, 4);
    assert_false(co_slot_end(&wire.slot, 10, 5));
    assert_false(co_slot_end(&wire.slot, 12, 5));
    assert_slot(CO_PHASE_RUNNING, 11);
}

static void a_ticket_taken_back_does_not_begin_but_the_next_does(void **state)
{
    (void)state;
    co_slot_begin(&wire.slot, 10, &ref, 1);
    co_slot_finish(&wire.slot, 10, 2);
    assert_false(co_slot_end(&wire.slot, 11, 3)); /* Not running: nobody to kill. */
    assert_slot(CO_PHASE_ENDING, 11);
    assert_false(co_slot_begin(&wire.slot, 11, &ref, 4));
    assert_true(co_slot_begin(&wire.slot, 12, &ref, 5));
    assert_slot(CO_PHASE_RUNNING, 12);
    co_slot_finish(&wire.slot, 12, 6);
    co_slot_end(&wire.slot, 13, 7);
    assert_true(co_slot_finish(&wire.slot, 13, 8)); /* RETURNED is a finish as well. */
    assert_slot(CO_PHASE_IDLE, 13);
}

static void a_lease_that_is_over_begins_nothing(void **state)
{
    (void)state;
    wire.slot.lease_until = 1000;
    assert_true(co_slot_begin(&wire.slot, 10, &ref, 999));
    co_slot_finish(&wire.slot, 10, 999);
    assert_false(co_slot_begin(&wire.slot, 11, &ref, 1000));
    assert_slot(CO_PHASE_IDLE, 10);
}

static void a_phase_nobody_knows_begins_nothing(void **state)
{
    (void)state;
    wire.slot.state = 0x2aff;
    wire.slot.begun = 0x2a;
    assert_slot(CO_PHASE_ENDING, 0x2a);
    assert_false(co_slot_begin(&wire.slot, 0x2b, &ref, 1));
    assert_false(co_slot_end(&wire.slot, 0x2b, 1));
}

/* ---- ring ---- */

static uint8_t body[BODY_MAX + 1];

static struct co_record record_of(uint64_t ticket, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        body[i] = (uint8_t)(ticket * 31 + i);
    }
    return (struct co_record){
        .type = CO_RECORD_JOB, .flags = CO_FLAG_OK, .ticket = ticket, .body = body, .size = size};
}

static void assert_record(const struct co_record *record, uint64_t ticket, uint32_t size)
{
    assert_int_equal(record->ticket, ticket);
    assert_int_equal(record->size, size);
    assert_int_equal(record->type, CO_RECORD_JOB);
    assert_int_equal(record->flags, CO_FLAG_OK);
    for (uint32_t i = 0; i < size; i++) {
        if (record->body[i] != (uint8_t)(ticket * 31 + i)) {
            fail_msg("ticket %u: byte %u", (unsigned)ticket, i);
        }
    }
}

static void records_come_out_as_they_went_in(void **state)
{
    uint64_t cursor = co_ring_tail(&wire.to_worker);
    (void)state;
    /* Enough rounds and odd sizes to cross the end of the ring in every way. */
    for (uint64_t ticket = 1; ticket < 20000; ticket++) {
        uint32_t size = (uint32_t)((ticket * 7919) % (BODY_MAX + 1));
        struct co_record record = record_of(ticket, size);
        assert_true(co_ring_has_room(&wire.to_worker, size));
        assert_int_equal(co_ring_push(&wire.to_worker, &record, NULL), CO_OK);
        memset(body, 0, size);
        assert_int_equal(co_ring_peek(&wire.to_worker, &cursor, &record), 1);
        assert_record(&record, ticket, size);
        assert_int_equal(co_ring_peek(&wire.to_worker, &cursor, &record), 0);
        co_ring_release(&wire.to_worker, cursor);
    }
}

static void a_full_ring_takes_nothing_and_loses_nothing(void **state)
{
    uint64_t cursor = co_ring_tail(&wire.to_worker);
    uint64_t pushed = 0;
    struct co_record record;
    (void)state;
    for (;;) {
        record = record_of(pushed + 1, 1000);
        bool room = co_ring_has_room(&wire.to_worker, 1000);
        int rc = co_ring_push(&wire.to_worker, &record, NULL);
        assert_int_equal(rc == CO_OK, room);
        if (rc != CO_OK) {
            assert_int_equal(rc, CO_EFULL);
            break;
        }
        pushed++;
    }
    assert_int_equal(pushed, CO_RING_SIZE / 1024);
    for (uint64_t ticket = 1; ticket <= pushed; ticket++) {
        assert_int_equal(co_ring_peek(&wire.to_worker, &cursor, &record), 1);
        assert_record(&record, ticket, 1000);
    }
    assert_false(co_ring_has_room(&wire.to_worker, 1000)); /* Read is not released. */
    co_ring_release(&wire.to_worker, cursor);
    assert_true(co_ring_has_room(&wire.to_worker, BODY_MAX));
}

static void a_body_that_is_too_big_is_refused(void **state)
{
    (void)state;
    struct co_record record = record_of(1, BODY_MAX);
    assert_int_equal(co_ring_push(&wire.to_worker, &record, NULL), CO_OK);
    record.size++;
    assert_int_equal(co_ring_push(&wire.to_worker, &record, NULL), CO_ETOOBIG);
    assert_false(co_ring_has_room(&wire.to_worker, BODY_MAX + 1));
}

static void what_was_not_released_is_read_again(void **state)
{
    uint64_t cursor = co_ring_tail(&wire.to_agent);
    uint8_t buf[CO_RECORD_MAX];
    struct co_record record = record_of(3, 50);
    (void)state;
    co_ring_push(&wire.to_agent, &record, NULL);
    assert_int_equal(co_ring_copy(&wire.to_agent, &cursor, buf, &record), 1);
    uint64_t successor = co_ring_tail(&wire.to_agent);
    assert_int_equal(co_ring_copy(&wire.to_agent, &successor, buf, &record), 1);
    assert_record(&record, 3, 50);
    assert_ptr_equal(record.body, buf);
}

static void a_sleeper_is_woken_once(void **state)
{
    bool wake = true;
    struct co_record record = record_of(1, 8);
    (void)state;
    co_ring_push(&wire.to_worker, &record, &wake);
    assert_false(wake);
    uint64_t cursor = co_ring_tail(&wire.to_worker);
    assert_false(co_ring_sleep(&wire.to_worker, cursor)); /* Something is there. */
    assert_int_equal(wire.to_worker.sleeping, 0);
    co_ring_peek(&wire.to_worker, &cursor, &record);
    assert_true(co_ring_sleep(&wire.to_worker, cursor));
    record = record_of(2, 8);
    co_ring_push(&wire.to_worker, &record, &wake);
    assert_true(wake);
    co_ring_push(&wire.to_worker, &record, &wake);
    assert_false(wake);
    co_ring_awake(&wire.to_worker);
}

static void the_bell_rings_once(void **state)
{
    (void)state;
    assert_false(co_bell_rings(&bell));
    co_bell_sleep(&bell);
    assert_true(co_bell_rings(&bell));
    assert_false(co_bell_rings(&bell));
    co_bell_sleep(&bell);
    co_bell_awake(&bell);
    assert_false(co_bell_rings(&bell));
}

/* A worker runs foreign code, which may have written anything anywhere in the file. */
static void nonsense_in_a_ring_is_noticed(void **state)
{
    static const struct {
        uint64_t head;
        uint32_t size;
        uint16_t type;
    } rows[] = {
        {1, 0, CO_RECORD_END},                            /* Not aligned, shorter than a header. */
        {8, 0, CO_RECORD_END},                            /* Shorter than a header. */
        {CO_RING_SIZE + 16, 0, CO_RECORD_END},            /* More than the ring holds. */
        {UINT64_MAX, 0, CO_RECORD_END},                   /* Behind the tail. */
        {16, 1, CO_RECORD_END},                           /* A body that was never written. */
        {CO_RING_SIZE, BODY_MAX + 1, CO_RECORD_END},      /* Larger than a record may be. */
        {CO_RING_SIZE, UINT32_MAX, CO_RECORD_END},        /* Would wrap 32 bits. */
        {CO_RING_SIZE, CO_RING_SIZE - 15, CO_RECORD_END}, /* Over the end of the ring. */
        {CO_RING_SIZE, 0, 0},                             /* Padding in the middle. */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t cursor = 0;
        uint8_t buf[CO_RECORD_MAX];
        struct co_record record = {.ticket = 99};
        fresh_wire(NULL);
        wire.to_agent.head = rows[i].head;
        memcpy(wire.to_agent.data, &rows[i].size, 4);
        memcpy(wire.to_agent.data + 4, &rows[i].type, 2);
        int rc = co_ring_copy(&wire.to_agent, &cursor, buf, &record);
        if (rc != CO_EMALFORMED) {
            fail_msg("row %zu: %d", i, rc);
        }
        assert_int_equal(record.ticket, 99);
    }
}

static void a_consumer_that_lies_about_its_tail_gets_nothing(void **state)
{
    static const uint64_t tails[] = {1u << 20, CO_RING_SIZE, 16};
    struct co_record record = record_of(1, 100);
    (void)state;
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        wire.to_worker.tail = tails[i];
        assert_int_equal(co_ring_push(&wire.to_worker, &record, NULL), CO_EFULL);
    }
    fresh_wire(NULL);
    wire.to_worker.head = CO_RING_SIZE - 5; /* Not where we left it. */
    wire.to_worker.tail = CO_RING_SIZE - 5;
    assert_int_equal(co_ring_push(&wire.to_worker, &record, NULL), CO_OK);
}

/* ---- two threads ---- */

#define STRESS_RECORDS 100000u

static void stall(unsigned *seed)
{
    switch (rand_r(seed) % 64) {
    case 0:
        sched_yield();
        break;
    case 1:
        for (int i = rand_r(seed) % 2000; i > 0; i--) {
            __asm__ volatile("" ::: "memory");
        }
        break;
    default:
        break;
    }
}

static void futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static uint32_t stress_size(uint64_t ticket)
{
    return (uint32_t)(ticket * 2654435761u % (ticket % 100 == 0 ? BODY_MAX : 300));
}

static void *produce(void *arg)
{
    static uint8_t mine[CO_RECORD_MAX];
    unsigned seed = 1;
    (void)arg;
    for (uint64_t ticket = 1; ticket <= STRESS_RECORDS; ticket++) {
        struct co_record record = {
            .type = CO_RECORD_JOB, .ticket = ticket, .body = mine, .size = stress_size(ticket)};
        bool wake = false;
        memset(mine, (int)(ticket & 0xff), record.size);
        while (co_ring_push(&wire.to_worker, &record, &wake) == CO_EFULL) {
            sched_yield();
        }
        if (wake) {
            futex(&wire.to_worker.sleeping, FUTEX_WAKE, 1);
        }
        stall(&seed);
    }
    return NULL;
}

/* A lost wake-up hangs here, and the test's time limit ends it. */
static void no_record_and_no_wake_up_is_lost_between_threads(void **state)
{
    pthread_t producer;
    unsigned seed = 2;
    uint64_t cursor = co_ring_tail(&wire.to_worker);
    (void)state;
    assert_int_equal(pthread_create(&producer, NULL, produce, NULL), 0);
    for (uint64_t ticket = 1; ticket <= STRESS_RECORDS;) {
        struct co_record record;
        int rc = co_ring_peek(&wire.to_worker, &cursor, &record);
        assert_true(rc >= 0);
        if (rc == 0) {
            if (co_ring_sleep(&wire.to_worker, cursor)) {
                futex(&wire.to_worker.sleeping, FUTEX_WAIT, 1);
            }
            co_ring_awake(&wire.to_worker);
            continue;
        }
        assert_int_equal(record.ticket, ticket);
        assert_int_equal(record.size, stress_size(ticket));
        for (uint32_t i = 0; i < record.size; i++) {
            if (record.body[i] != (ticket & 0xff)) {
                fail_msg("ticket %u: byte %u", (unsigned)ticket, i);
            }
        }
        stall(&seed);
        co_ring_release(&wire.to_worker, cursor);
        ticket++;
    }
    pthread_join(producer, NULL);
}

#define STRESS_TICKETS 100000u

static _Atomic uint64_t stress_at;
static _Atomic uint64_t stress_killed;

static void *end_tickets(void *arg)
{
    unsigned seed = 3;
    uint64_t ticket;
    (void)arg;
    while ((ticket = stress_at) < STRESS_TICKETS) {
        if (co_slot_end(&wire.slot, ticket, 1)) {
            stress_killed = ticket;
        }
        stall(&seed);
    }
    return NULL;
}

/* For every ticket exactly one side wins: either it finishes, or the agent may kill for it. */
static void a_ticket_is_either_finished_or_ended(void **state)
{
    pthread_t agent;
    unsigned seed = 4;
    uint64_t ended = 0;
    (void)state;
    stress_at = 0;
    assert_int_equal(pthread_create(&agent, NULL, end_tickets, NULL), 0);
    for (uint64_t ticket = 1; ticket < STRESS_TICKETS; ticket++) {
        bool sure = ticket % 1000 == 0; /* The agent comes between begin and finish. */
        stress_at = sure ? ticket - 1 : ticket;
        bool begun = co_slot_begin(&wire.slot, ticket, &ref, 1);
        stress_at = ticket;
        stall(&seed);
        while (sure && begun && stress_killed != ticket) {
            sched_yield();
        }
        if (begun && !co_slot_finish(&wire.slot, ticket, 1)) {
            while (stress_killed != ticket) {
                sched_yield(); /* Here the real worker is killed, and its slot made anew. */
            }
            ended++;
            wire.slot.state = ticket << 8;
        }
    }
    stress_at = STRESS_TICKETS;
    pthread_join(agent, NULL);
    assert_true(ended >= STRESS_TICKETS / 1000 - 1);
}

/* ---- messages ---- */

static const struct co_job_msg job = {
    .ref = {.source = 0x1122334455667788, .job_id = 42, .reserved_at = 1700000000, .attempts = 3},
    .available_at = 1,
    .created_at = 2,
    .timeout_ms = 60000,
    .tries = -1,
    .memory_bytes = 128u << 20,
    .connection = "db",
    .connection_size = 2,
    .queue = "high",
    .queue_size = 4,
    .backoff = "1",
    .backoff_size = 1,
    .payload = (const uint8_t *)"{}",
    .payload_size = 2,
};

/* clang-format off */
static const uint8_t job_golden[] = {
    104, 0, 0, 0, 1, 0, 0, 0,
    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 42, 0, 0, 0, 0, 0, 0, 0,
    0x00, 0xf1, 0x53, 0x65, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
    1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
    0x60, 0xea, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 8, 0, 0, 0, 0,
    2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0,
    'd', 'b', 'h', 'i', 'g', 'h', '1', '{', '}',
};
/* As an agent of the release before bookkeepers writes it. */
static const uint8_t job_before[] = {
    96, 0, 0, 0, 1, 0, 0, 0,
    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 42, 0, 0, 0, 0, 0, 0, 0,
    0x00, 0xf1, 0x53, 0x65, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
    1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
    0x60, 0xea, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 8, 0, 0, 0, 0,
    2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    'd', 'b', 'h', 'i', 'g', 'h', '1', '{', '}',
};
static const uint8_t end_golden[] = {
    56, 0, 0, 0, 3, 0, 0, 0,
    5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0,
    7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    1, 0, 0, 0, 10, 0, 0, 0, 0x39, 0x30, 0, 0, 4, 0, 0, 0,
    'o', 'o', 'p', 's',
};
/* clang-format on */

static void job_bytes_are_what_we_promised(void **state)
{
    uint8_t buf[CO_RECORD_MAX];
    struct co_job_msg msg;
    (void)state;
    assert_int_equal(co_job_encode(&job, buf, sizeof buf), sizeof job_golden);
    assert_memory_equal(buf, job_golden, sizeof job_golden);
    assert_int_equal(co_job_decode(buf, sizeof job_golden, &msg), CO_OK);
    assert_memory_equal(&msg.ref, &job.ref, sizeof job.ref);
    assert_int_equal(msg.tries, -1);
    assert_int_equal(msg.timeout_ms, 60000);
    assert_int_equal(msg.memory_bytes, job.memory_bytes);
    assert_memory_equal(msg.queue, "high", 4);
    assert_memory_equal(msg.payload, "{}", 2);
    assert_int_equal(msg.payload_size, 2);
}

static void end_bytes_are_what_we_promised(void **state)
{
    struct co_end_msg end = {
        .ref = ref,
        .outcome = CO_OUTCOME_FAILED,
        .flags = CO_END_RECORD,
        .delay_s = 10,
        .run_us = 12345,
        .text = "oops",
        .text_size = 4,
    };
    uint8_t buf[CO_RECORD_MAX];
    struct co_end_msg msg;
    (void)state;
    assert_int_equal(co_end_encode(&end, buf, sizeof buf), sizeof end_golden);
    assert_memory_equal(buf, end_golden, sizeof end_golden);
    assert_int_equal(co_end_decode(buf, sizeof end_golden, &msg), CO_OK);
    assert_memory_equal(&msg.ref, &ref, sizeof ref);
    assert_int_equal(msg.outcome, CO_OUTCOME_FAILED);
    assert_int_equal(msg.run_us, 12345);
    assert_memory_equal(msg.text, "oops", 4);
}

static void every_cut_is_refused(void **state)
{
    struct co_job_msg msg = {.tries = 1234};
    struct co_end_msg end = {.run_us = 1234};
    (void)state;
    for (size_t size = 0; size < sizeof job_golden; size++) {
        uint8_t *cut = malloc(size + 1); /* Its own block, so that ASan sees a step too far. */
        memcpy(cut, job_golden, size);
        assert_int_equal(co_job_decode(cut, size, &msg), CO_EMALFORMED);
        free(cut);
    }
    for (size_t size = 0; size < sizeof end_golden; size++) {
        uint8_t *cut = malloc(size + 1);
        memcpy(cut, end_golden, size);
        assert_int_equal(co_end_decode(cut, size, &end), CO_EMALFORMED);
        free(cut);
    }
    assert_int_equal(msg.tries, 1234); /* Never touched on failure. */
    assert_int_equal(end.run_us, 1234);
}

static void a_newer_version_may_say_more(void **state)
{
    uint8_t buf[sizeof job_golden + 8];
    struct co_job_msg msg;
    (void)state;
    memcpy(buf, job_golden, 104);
    memset(buf + 104, 0xee, 8);
    memcpy(buf + 112, job_golden + 104, sizeof job_golden - 104);
    buf[0] = 112;
    assert_int_equal(co_job_decode(buf, sizeof buf, &msg), CO_OK);
    assert_memory_equal(msg.connection, "db", 2);
    assert_memory_equal(msg.payload, "{}", 2);
}

static void an_older_version_says_less(void **state)
{
    struct co_job_msg msg;
    (void)state;
    assert_int_equal(co_job_decode(job_before, sizeof job_before, &msg), CO_OK);
    assert_memory_equal(msg.payload, "{}", 2);
    assert_int_equal(msg.cause, 0);
    assert_int_equal(msg.cause_size, 0);
}

static struct co_job_msg died(void)
{
    struct co_job_msg msg = job;
    msg.cause = CO_CAUSE_CRASH;
    msg.final = 1;
    msg.cause_text = "signal 11";
    msg.cause_size = 9;
    return msg;
}

static void the_cause_of_a_death_travels(void **state)
{
    uint8_t buf[CO_RECORD_MAX];
    struct co_job_msg msg = died();
    (void)state;
    int size = co_job_encode(&msg, buf, sizeof buf);
    assert_int_equal(size, sizeof job_golden + 9);
    assert_int_equal(co_job_decode(buf, (size_t)size, &msg), CO_OK);
    assert_int_equal(msg.cause, CO_CAUSE_CRASH);
    assert_int_equal(msg.final, 1);
    assert_int_equal(msg.cause_size, 9);
    assert_memory_equal(msg.cause_text, "signal 11", 9);
    assert_memory_equal(msg.payload, "{}", 2);
    assert_int_equal(co_job_decode(buf, (size_t)size - 1, &msg), CO_EMALFORMED);
    buf[92] = CO_CAUSE_OOM + 1;
    assert_int_equal(co_job_decode(buf, (size_t)size, &msg), CO_EMALFORMED);
    buf[92] = CO_CAUSE_OOM;
    buf[96] = (CO_FINAL_FAIL | CO_FINAL_FAILED) + 1;
    assert_int_equal(co_job_decode(buf, (size_t)size, &msg), CO_EMALFORMED);
}

static void a_cause_that_does_not_fit_is_refused(void **state)
{
    static char text[CO_RECORD_MAX];
    uint8_t buf[CO_RECORD_MAX];
    struct co_job_msg msg = died();
    (void)state;
    msg.payload = NULL;
    msg.cause_text = text;
    msg.cause_size = BODY_MAX - 104 - 7;
    assert_int_equal(co_job_encode(&msg, buf, sizeof buf), BODY_MAX);
    msg.cause_size++;
    assert_int_equal(co_job_encode(&msg, buf, sizeof buf), CO_ETOOBIG);
    msg.cause_size = UINT32_MAX;
    assert_int_equal(co_job_encode(&msg, buf, sizeof buf), CO_ETOOBIG);
}

static void a_payload_that_does_not_fit_goes_by_overflow(void **state)
{
    static uint8_t payload[CO_RECORD_MAX];
    uint8_t buf[CO_RECORD_MAX];
    struct co_job_msg large = job;
    struct co_job_msg msg;
    (void)state;
    large.payload = payload;
    large.payload_size = BODY_MAX - 104 - 7;
    assert_int_equal(co_job_encode(&large, buf, sizeof buf), BODY_MAX);
    large.payload_size++;
    assert_int_equal(co_job_encode(&large, buf, sizeof buf), CO_ETOOBIG);
    large.payload_size = UINT64_MAX;
    assert_int_equal(co_job_encode(&large, buf, sizeof buf), CO_ETOOBIG);
    large.payload_size = 1u << 20;
    large.payload = NULL;
    int size = co_job_encode(&large, buf, sizeof buf);
    assert_int_equal(size, 104 + 7);
    assert_int_equal(co_job_decode(buf, (size_t)size, &msg), CO_OK);
    assert_null(msg.payload);
    assert_int_equal(msg.payload_size, 1u << 20);
    large.queue_size = UINT32_MAX;
    assert_int_equal(co_job_encode(&large, buf, sizeof buf), CO_ETOOBIG);
}

static void a_long_error_text_is_cut(void **state)
{
    static char text[CO_END_TEXT_MAX + 100];
    uint8_t buf[CO_RECORD_MAX];
    struct co_end_msg msg;
    (void)state;
    memset(text, 't', sizeof text);
    int size = co_end_encode(
        &(struct co_end_msg){.outcome = CO_OUTCOME_FAILED, .text = text, .text_size = sizeof text},
        buf, sizeof buf);
    assert_true(size > 0);
    assert_int_equal(co_end_decode(buf, (size_t)size, &msg), CO_OK);
    assert_int_equal(msg.text_size, CO_END_TEXT_MAX);
}

static void only_an_agent_says_crashed_or_lost(void **state)
{
    static const uint8_t bad[] = {0, CO_OUTCOME_CRASHED, CO_OUTCOME_LOST, 9, 255};
    struct co_end_msg msg;
    (void)state;
    for (size_t i = 0; i < sizeof bad; i++) {
        uint8_t buf[sizeof end_golden];
        memcpy(buf, end_golden, sizeof buf);
        buf[4] = bad[i];
        assert_int_equal(co_end_decode(buf, sizeof buf, &msg), CO_EMALFORMED);
    }
}

#define FRESH(test) cmocka_unit_test_setup(test, fresh_wire)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRESH(fresh_files_pass_their_check),
        FRESH(foreign_files_are_refused),
        FRESH(a_long_pool_name_is_cut),
        FRESH(the_layout_is_what_we_promised),
        FRESH(a_ticket_begins_and_finishes),
        FRESH(a_ticket_that_never_began_can_finish),
        FRESH(ending_a_running_ticket_holds_the_worker),
        FRESH(nothing_meant_for_one_ticket_hits_the_next),
        FRESH(a_ticket_taken_back_does_not_begin_but_the_next_does),
        FRESH(a_lease_that_is_over_begins_nothing),
        FRESH(a_phase_nobody_knows_begins_nothing),
        FRESH(records_come_out_as_they_went_in),
        FRESH(a_full_ring_takes_nothing_and_loses_nothing),
        FRESH(a_body_that_is_too_big_is_refused),
        FRESH(what_was_not_released_is_read_again),
        FRESH(a_sleeper_is_woken_once),
        FRESH(the_bell_rings_once),
        FRESH(nonsense_in_a_ring_is_noticed),
        FRESH(a_consumer_that_lies_about_its_tail_gets_nothing),
        FRESH(no_record_and_no_wake_up_is_lost_between_threads),
        FRESH(a_ticket_is_either_finished_or_ended),
        FRESH(job_bytes_are_what_we_promised),
        FRESH(end_bytes_are_what_we_promised),
        FRESH(every_cut_is_refused),
        FRESH(a_newer_version_may_say_more),
        FRESH(an_older_version_says_less),
        FRESH(the_cause_of_a_death_travels),
        FRESH(a_cause_that_does_not_fit_is_refused),
        FRESH(a_payload_that_does_not_fit_goes_by_overflow),
        FRESH(a_long_error_text_is_cut),
        FRESH(only_an_agent_says_crashed_or_lost),
    };
    return cmocka_run_group_tests_name("dispatch", tests, NULL, NULL);
}
