#include "worker/php_trace.h"

#include <main/php.h> /* First: the other headers of PHP need it. */

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "worker/text.h"

#define FRAMES_MAX 64
#define LOOKS_MAX 32
#define NAME_SIZE 256
#define FILE_SIZE 1024

typedef uint64_t address; /* In the other process: never to be followed here. */

struct frame {
    address data;
    address function;
    char name[NAME_SIZE];
    char file[FILE_SIZE]; /* Empty: a call of PHP's own, or nothing known. */
    uint32_t line;
};

struct stack {
    size_t n;
    struct frame frames[FRAMES_MAX]; /* Innermost first. */
};

/* ---- where things are ---- */

/* A line of /proc/PID/maps that begins a file. */
struct mapping {
    address begin;
    unsigned major;
    unsigned minor;
    uint64_t inode;
};

static bool read_mapping(const char *line, struct mapping *ret_mapping)
{
    struct mapping m;
    uint64_t offset;

    if (sscanf(line, "%" SCNx64 "-%*x %*s %" SCNx64 " %x:%x %" SCNu64, &m.begin, &offset, &m.major,
               &m.minor, &m.inode) != 5 ||
        offset != 0 || m.inode == 0) {
        return false;
    }
    *ret_mapping = m;
    return true;
}

static bool is_file(const struct mapping *a, const struct mapping *b)
{
    return a->major == b->major && a->minor == b->minor && a->inode == b->inode;
}

/* The mapping that begins at want->begin, or when that is 0 the one of the same file. */
static bool find_mapping(FILE *maps, const struct mapping *want, struct mapping *ret_mapping)
{
    char line[4096 + 128];

    while (fgets(line, sizeof line, maps) != NULL) {
        struct mapping m;
        if (read_mapping(line, &m) &&
            (want->begin != 0 ? m.begin == want->begin : is_file(&m, want))) {
            *ret_mapping = m;
            return true;
        }
    }
    return false;
}

static void read_word(const char *path, char *ret_word, size_t size)
{
    FILE *file = fopen(path, "re");

    ret_word[0] = '\0';
    if (file != NULL && fgets(ret_word, (int)size, file) != NULL) {
        ret_word[strcspn(ret_word, "\n")] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
}

static int refuse(pid_t pid, int sys, struct co_err *err)
{
    char scope[16];

    if (sys == ESRCH || sys == ENOENT) {
        return co_err_set(err, CO_ENOTFOUND, "trace %d: there is no such process", (int)pid);
    }
    if (sys != EPERM && sys != EACCES) {
        return co_err_sys(err, sys, "trace %d: read its memory", (int)pid);
    }
    read_word("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof scope);
    return co_err_set(err, CO_EIO,
                      "trace %d: reading its memory is not permitted (kernel.yama.ptrace_scope is "
                      "%s); ask through the agent with cohort workers trace, be the worker's user "
                      "or root, or give the container CAP_SYS_PTRACE; ptrace_scope 2 needs that "
                      "capability, and 3 forbids it for good",
                      (int)pid, scope[0] != '\0' ? scope : "not there");
}

/* Where executor_globals of the other process is: as far from the begin of its file as it is here.
 * That file is libphp, or this program when the linker has copied the variable there. */
static int find_globals(pid_t pid, address *ret_globals, struct co_err *err)
{
    Dl_info info;
    char path[64];
    struct mapping ours = {.begin = 0};
    struct mapping theirs;
    bool found = false;

    if (dladdr(&executor_globals, &info) != 0) {
        struct mapping want = {.begin = (address)(uintptr_t)info.dli_fbase};
        FILE *maps = fopen("/proc/self/maps", "re");
        found = maps != NULL && find_mapping(maps, &want, &ours);
        if (maps != NULL) {
            fclose(maps);
        }
    }
    if (!found) {
        return co_err_set(err, CO_EUNSUPPORTED,
                          "trace %d: /proc/self/maps does not show where PHP keeps its state; is "
                          "/proc mounted?",
                          (int)pid);
    }
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    if (maps == NULL) {
        return refuse(pid, errno, err);
    }
    address base = ours.begin;
    ours.begin = 0;
    errno = 0;
    found = find_mapping(maps, &ours, &theirs);
    int sys = errno; /* Whether it may be read shows only now. */
    fclose(maps);
    if (!found && sys != 0) {
        return refuse(pid, sys, err);
    }
    if (!found) {
        return co_err_set(
            err, CO_EUNSUPPORTED,
            "trace %d: it does not run %s; name a worker (cohort workers shows them), "
            "and one that was started since that file was last replaced",
            (int)pid, info.dli_fname);
    }
    *ret_globals = (address)(uintptr_t)&executor_globals - base + theirs.begin;
    return CO_OK;
}

/* ---- reading ---- */

/* errno tells why not; EFAULT also when a pointer led nowhere. */
static bool read_memory(pid_t pid, address at, void *ret_bytes, size_t size)
{
    struct iovec here = {.iov_base = ret_bytes, .iov_len = size};
    struct iovec there = {.iov_base = (void *)(uintptr_t)at, .iov_len = size};
    ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);

    if (got >= 0 && (size_t)got != size) {
        errno = EFAULT;
    }
    return got == (ssize_t)size;
}

/* A zend_string, cut to the buffer. */
static bool read_string(pid_t pid, const void *string, char *buf, size_t buf_size)
{
    address at = (address)(uintptr_t)string;
    size_t size;

    buf[0] = '\0';
    if (at == 0) {
        return true;
    }
    if (!read_memory(pid, at + offsetof(zend_string, len), &size, sizeof size)) {
        return false;
    }
    size = size < buf_size - 1 ? size : buf_size - 1;
    buf[size] = '\0';
    return size == 0 || read_memory(pid, at + offsetof(zend_string, val), buf, size);
}

static bool read_name(pid_t pid, const zend_class_entry *scope, const zend_string *name,
                      char ret_name[NAME_SIZE])
{
    zend_string *class_name;
    size_t at = 0;

    if (scope != NULL && name != NULL) {
        address field = (address)(uintptr_t)scope + offsetof(zend_class_entry, name);
        if (!read_memory(pid, field, &class_name, sizeof class_name) ||
            !read_string(pid, class_name, ret_name, NAME_SIZE / 2)) {
            return false;
        }
        at = strlen(ret_name); /* A class without a name in the file has a NUL in it. */
        memcpy(ret_name + at, "::", 2);
        at += 2;
    }
    return read_string(pid, name, ret_name + at, NAME_SIZE - at);
}

static bool read_place(pid_t pid, address function, const zend_execute_data *data,
                       struct frame *frame)
{
    zend_string *file;
    address field = function + offsetof(zend_op_array, filename);

    if (!read_memory(pid, field, &file, sizeof file) ||
        !read_string(pid, file, frame->file, FILE_SIZE)) {
        return false;
    }
    field = (address)(uintptr_t)data->opline + offsetof(zend_op, lineno);
    return data->opline == NULL || read_memory(pid, field, &frame->line, sizeof frame->line);
}

/* What every kind of function begins with; the rest of a zend_function may not be there. */
union function_begin {
    uint8_t type;
    unsigned char bytes[offsetof(zend_op_array, scope) + sizeof(void *)];
    struct {
        unsigned char before[offsetof(zend_op_array, function_name)];
        zend_string *function_name;
        zend_class_entry *scope;
    } named;
};
_Static_assert(offsetof(zend_op_array, scope) ==
                   offsetof(zend_op_array, function_name) + sizeof(void *),
               "the name is followed by the class");
_Static_assert(offsetof(zend_internal_function, scope) == offsetof(zend_op_array, scope),
               "both kinds of function begin alike");

/* Fills the frame; *ret_shown is false for one that only ties others together. */
static bool read_frame(pid_t pid, address at, const zend_execute_data *data, struct frame *frame,
                       bool *ret_shown)
{
    union function_begin begin;

    *frame = (struct frame){.data = at, .function = (address)(uintptr_t)data->func};
    *ret_shown = false;
    if (data->func == NULL) {
        return true;
    }
    if (!read_memory(pid, frame->function, &begin, sizeof begin) ||
        !read_name(pid, begin.named.scope, begin.named.function_name, frame->name)) {
        return false;
    }
    bool user = begin.type == ZEND_USER_FUNCTION || begin.type == ZEND_EVAL_CODE;
    *ret_shown = user || frame->name[0] != '\0';
    return !user || read_place(pid, frame->function, data, frame);
}

static bool read_stack(pid_t pid, address globals, struct stack *stack)
{
    zend_execute_data *current;
    bool shown;

    stack->n = 0;
    if (!read_memory(pid, globals + offsetof(zend_executor_globals, current_execute_data), &current,
                     sizeof current)) {
        return false;
    }
    /* Bounded by hops as well: a list that changes under our eyes may be a ring. */
    for (int hops = 0; current != NULL && hops < 4 * FRAMES_MAX && stack->n < FRAMES_MAX; hops++) {
        zend_execute_data data;
        address at = (address)(uintptr_t)current;
        if (!read_memory(pid, at, &data, sizeof data) ||
            !read_frame(pid, at, &data, &stack->frames[stack->n], &shown)) {
            return false;
        }
        stack->n += shown;
        current = data.prev_execute_data;
    }
    return true;
}

/* How many frames, counted from the outermost, are the same in both: they did not move between. */
static size_t count_same(const struct stack *a, const struct stack *b)
{
    size_t n = 0;

    while (n < a->n && n < b->n) {
        const struct frame *left = &a->frames[a->n - 1 - n];
        const struct frame *right = &b->frames[b->n - 1 - n];
        if (left->data != right->data || left->function != right->function ||
            strcmp(left->name, right->name) != 0 || strcmp(left->file, right->file) != 0) {
            break;
        }
        n++;
    }
    return n;
}

static void drop_innermost(struct stack *stack, size_t n)
{
    memmove(stack->frames, stack->frames + n, (stack->n - n) * sizeof stack->frames[0]);
    stack->n -= n;
}

/* Two equal looks in a row. A worker that calls and returns all the time never gives them: then
 * those calls count that stood still. */
static int look(pid_t pid, address globals, struct stack *ret_stack, struct co_err *err)
{
    static struct stack looks[2];
    bool before = false;

    for (int i = 0; i < LOOKS_MAX; i++) {
        struct stack *now = &looks[i % 2];
        if (!read_stack(pid, globals, now)) {
            if (errno != EFAULT) {
                return refuse(pid, errno, err);
            }
            before = false;
            continue;
        }
        size_t same = before ? count_same(now, &looks[(i + 1) % 2]) : 0;
        bool still = before && same == now->n && same == looks[(i + 1) % 2].n;
        if (still || (same > 0 && i > LOOKS_MAX / 2)) {
            drop_innermost(now, now->n - same);
            *ret_stack = *now;
            return CO_OK;
        }
        before = true;
    }
    return co_err_set(err, CO_EAGAIN,
                      "trace %d: its stack changed under each of %d looks; try again", (int)pid,
                      LOOKS_MAX);
}

/* ---- showing ---- */

/* A call of PHP's own has no place: it gets its caller's. Code without a name is a file's. */
static void complete(struct stack *stack)
{
    for (size_t i = stack->n; i-- > 0;) {
        struct frame *frame = &stack->frames[i];
        bool outermost = i + 1 == stack->n;
        if (frame->name[0] == '\0') {
            snprintf(frame->name, sizeof frame->name, outermost ? "{main}" : "{include}");
        }
        if (frame->file[0] == '\0' && !outermost) {
            memcpy(frame->file, frame[1].file, sizeof frame->file);
            frame->line = frame[1].line;
        }
    }
}

static void add_text(struct co_text *text, const struct stack *stack)
{
    if (stack->n == 0) {
        co_text_print(text, "no PHP code runs in it\n");
    }
    for (size_t i = 0; i < stack->n; i++) {
        const struct frame *frame = &stack->frames[i];
        co_text_print(text, "#%zu %s() %s:%u\n", i, frame->name, frame->file, frame->line);
    }
}

static void add_json(struct co_text *text, pid_t pid, const struct stack *stack)
{
    co_text_print(text, "{\"pid\":%d,\"frames\":[", (int)pid);
    for (size_t i = 0; i < stack->n; i++) {
        const struct frame *frame = &stack->frames[i];
        co_text_print(text, "%s{\"function\":", i > 0 ? "," : "");
        co_text_add_json(text, frame->name, strlen(frame->name));
        co_text_print(text, ",\"file\":");
        co_text_add_json(text, frame->file, strlen(frame->file));
        co_text_print(text, ",\"line\":%u}", frame->line);
    }
    co_text_print(text, "]}\n");
}

int co_php_trace(pid_t pid, bool json, struct co_err *err)
{
    /* JSON may make six bytes of one. */
    static char buf[FRAMES_MAX * (NAME_SIZE + FILE_SIZE + 64) * 6];
    static struct stack stack;
    struct co_text text;
    address globals = 0;

    int rc = find_globals(pid, &globals, err);
    if (rc == CO_OK) {
        rc = look(pid, globals, &stack, err);
    }
    if (rc < 0) {
        return rc;
    }
    complete(&stack);
    co_text_init(&text, buf, sizeof buf);
    if (json) {
        add_json(&text, pid, &stack);
    } else {
        add_text(&text, &stack);
    }
    fputs(buf, stdout);
    return CO_OK;
}
