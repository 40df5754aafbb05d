#include "agent/cgroup.h"

#include <string.h>

/* v1 knows no "max": its biggest limit is the biggest long, rounded down to pages. */
#define UNLIMITED_V1 (UINT64_C(1) << 62)

static const char *next_line(const char *p)
{
    p += strcspn(p, "\n");
    return *p == '\n' ? p + 1 : p;
}

/* Whether a comma list of `size` bytes holds the word. */
static bool list_has(const char *list, size_t size, const char *word)
{
    size_t len = strlen(word);

    for (size_t at = 0; at + len <= size; at++) {
        bool starts = at == 0 || list[at - 1] == ',';
        bool ends = at + len == size || list[at + len] == ',';
        if (starts && ends && strncmp(list + at, word, len) == 0) {
            return true;
        }
    }
    return false;
}

static bool copy(char *buf, size_t size, const char *text, size_t len)
{
    if (len >= size) {
        return false;
    }
    memcpy(buf, text, len);
    buf[len] = '\0';
    return true;
}

bool co_cgroup_group(const char *proc_cgroup, const char *controller, char *buf, size_t size)
{
    /* "4:memory:/group" in v1, "0::/group" in v2. */
    for (const char *line = proc_cgroup; *line != '\0'; line = next_line(line)) {
        size_t line_len = strcspn(line, "\n");
        const char *list = memchr(line, ':', line_len);
        const char *group;

        if (list == NULL) {
            continue;
        }
        list++;
        group = memchr(list, ':', line_len - (size_t)(list - line));
        if (group == NULL) {
            continue;
        }
        if (controller[0] == '\0' ? group == list
                                  : list_has(list, (size_t)(group - list), controller)) {
            group++;
            return copy(buf, size, group, line_len - (size_t)(group - line));
        }
    }
    return false;
}

struct field {
    const char *text;
    size_t len;
};

struct mount {
    struct field root;
    struct field point;
    struct field type;
    struct field options; /* Of the file system: the controllers, for v1. */
};

/* "35 31 0:32 ROOT POINT rw,relatime shared:1 - cgroup SOURCE rw,memory" */
static bool read_mount(const char *line, struct mount *ret_mount)
{
    struct field fields[16];
    size_t n = 0;
    size_t dash = 0;

    for (const char *p = line; *p != '\0' && *p != '\n' && n < 16;) {
        size_t len = strcspn(p, " \n");
        fields[n++] = (struct field){p, len};
        if (dash == 0 && len == 1 && *p == '-') {
            dash = n - 1;
        }
        p += len;
        p += *p == ' ' ? 1 : 0;
    }
    if (dash < 6 || dash + 3 >= n) {
        return false;
    }
    *ret_mount = (struct mount){fields[3], fields[4], fields[dash + 1], fields[dash + 3]};
    return true;
}

static bool is(const struct field *field, const char *text)
{
    return field->len == strlen(text) && strncmp(field->text, text, field->len) == 0;
}

static bool octal(char c)
{
    return c >= '0' && c <= '7';
}

/* A path of mountinfo, where a space stands as \040. */
static bool unescape(const struct field *field, char *buf, size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < field->len; i++) {
        const char *p = field->text + i;
        char c = *p;
        if (c == '\\' && i + 3 < field->len && octal(p[1]) && octal(p[2]) && octal(p[3])) {
            c = (char)((p[1] - '0') << 6 | (p[2] - '0') << 3 | (p[3] - '0'));
            i += 3;
        }
        if (n + 1 >= size) {
            return false;
        }
        buf[n++] = c;
    }
    buf[n] = '\0';
    return true;
}

/* What of the group lies below the mount. In a container the mount's root often *is* the group; and
 * where a namespace hides the relation, the mount point is the best there is. */
static const char *below(const char *group, const struct field *root)
{
    if (is(root, "/")) {
        return strcmp(group, "/") == 0 || strncmp(group, "/..", 3) == 0 ? "" : group;
    }
    if (strncmp(group, root->text, root->len) == 0 &&
        (group[root->len] == '/' || group[root->len] == '\0')) {
        return group + root->len;
    }
    return "";
}

bool co_cgroup_dir(const char *mountinfo, const char *controller, const char *group, char *dir,
                   char *top, size_t size)
{
    for (const char *line = mountinfo; *line != '\0'; line = next_line(line)) {
        struct mount mount;
        const char *rest;
        size_t len;

        if (!read_mount(line, &mount)) {
            continue;
        }
        if (controller[0] == '\0'
                ? !is(&mount.type, "cgroup2")
                : !is(&mount.type, "cgroup") ||
                      !list_has(mount.options.text, mount.options.len, controller)) {
            continue;
        }
        rest = below(group, &mount.root);
        if (!unescape(&mount.point, top, size)) {
            return false;
        }
        len = strlen(top);
        return copy(dir, size, top, len) && copy(dir + len, size - len, rest, strlen(rest));
    }
    return false;
}

bool co_cgroup_up(char *dir, const char *top)
{
    size_t len = strlen(top);
    char *slash = strrchr(dir, '/');

    if (strncmp(dir, top, len) != 0 || dir[len] != '/' || slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

/* A decimal number at the start of a text; false when there is none. Saturates. */
static bool read_number(const char *text, uint64_t *ret_value)
{
    uint64_t value = 0;

    if (*text < '0' || *text > '9') {
        return false;
    }
    for (; *text >= '0' && *text <= '9'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        value = value > (UINT64_MAX - digit) / 10 ? UINT64_MAX : value * 10 + digit;
    }
    *ret_value = value;
    return true;
}

uint64_t co_cgroup_cpu_quota(const char *quota, const char *period)
{
    uint64_t used;
    uint64_t of;

    /* "max" in v2 and -1 in v1 are no numbers here, and no limit. */
    if (!read_number(quota, &used) || !read_number(period, &of) || of == 0 || used == 0 ||
        used > UINT64_MAX / 1000) {
        return 0;
    }
    return used * 1000 / of > 0 ? used * 1000 / of : 1;
}

uint64_t co_cgroup_cpu_max(const char *cpu_max)
{
    const char *period = strchr(cpu_max, ' ');
    return period != NULL ? co_cgroup_cpu_quota(cpu_max, period + 1) : 0;
}

uint64_t co_cgroup_memory(const char *limit)
{
    uint64_t bytes;
    return read_number(limit, &bytes) && bytes < UNLIMITED_V1 ? bytes : 0;
}

uint64_t co_cgroup_oom_kills(const char *events)
{
    uint64_t kills;

    for (const char *line = events; *line != '\0'; line = next_line(line)) {
        if (strncmp(line, "oom_kill ", 9) == 0 && read_number(line + 9, &kills)) {
            return kills;
        }
    }
    return 0;
}

uint32_t co_cgroup_pressure(const char *pressure)
{
    for (const char *line = pressure; *line != '\0'; line = next_line(line)) {
        static const char head[] = "full avg10=";
        const char *at = line + sizeof head - 1;
        uint32_t whole = 0;
        if (strncmp(line, head, sizeof head - 1) != 0) {
            continue;
        }
        for (; *at >= '0' && *at <= '9' && whole <= 100; at++) {
            whole = whole * 10 + (uint32_t)(*at - '0');
        }
        if (*at != '.' || at[1] < '0' || at[1] > '9' || at[2] < '0' || at[2] > '9') {
            return whole * 100;
        }
        return whole * 100 + (uint32_t)(at[1] - '0') * 10 + (uint32_t)(at[2] - '0');
    }
    return 0;
}

uint64_t co_cgroup_tighter(uint64_t a, uint64_t b)
{
    if (a == 0 || b == 0) {
        return a + b;
    }
    return a < b ? a : b;
}

uint32_t co_cgroup_workers(uint64_t cpu_millis, uint32_t host_cpus)
{
    uint64_t workers = (cpu_millis + 999) / 1000;

    if (workers == 0 || workers > host_cpus) {
        workers = host_cpus; /* A quota beyond the machine buys nothing. */
    }
    return workers > 0 ? (uint32_t)workers : 1;
}
