#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */
#include <string.h>

#include "agent/cgroup.h"
#include "agent/cgroup_os.h"

#define V1_GROUPS "9:name=systemd:/\n4:memory:/pod/a\n2:cpu,cpuacct:/pod/b\n0::/\n"

static void groups_are_found_by_controller(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *controller;
        const char *group; /* NULL: none. */
    } rows[] = {
        {"0::/kubepods/x\n", "", "/kubepods/x"},
        {"0::/\n", "", "/"},
        {"0::/a:b\n", "", "/a:b"},
        {"0::/\n", "cpu", NULL},
        {V1_GROUPS, "memory", "/pod/a"},
        {V1_GROUPS, "cpu", "/pod/b"},
        {V1_GROUPS, "cpuacct", "/pod/b"},
        {V1_GROUPS, "", "/"},
        {V1_GROUPS, "pu", NULL},
        {"", "", NULL},
        {"nonsense\n", "", NULL},
        {"0::/a-path-that-is-far-too-long-for-it\n", "", NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char buf[16];
        bool found = co_cgroup_group(rows[i].text, rows[i].controller, buf, sizeof buf);
        assert_int_equal(found, rows[i].group != NULL);
        if (found) {
            assert_string_equal(buf, rows[i].group);
        }
    }
}

#define V2_MOUNT(root) \
    "31 23 0:28 " root " /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNTS                                                         \
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"          \
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n" \
    "35 31 0:32 /docker/1 /cg\\040x/memory ro - cgroup cgroup rw,memory\n"

static void directories_follow_the_mounts(void **state)
{
    (void)state;
    static const struct {
        const char *mounts;
        const char *controller;
        const char *group;
        const char *dir; /* NULL: none. */
    } rows[] = {
        {V2_MOUNT("/"), "", "/a/b", "/sys/fs/cgroup/a/b"},
        {V2_MOUNT("/"), "", "/", "/sys/fs/cgroup"},
        {V2_MOUNT("/"), "", "/../../x", "/sys/fs/cgroup"},
        {V2_MOUNT("/pod"), "", "/pod/c", "/sys/fs/cgroup/c"},
        {V2_MOUNT("/pod"), "", "/pod", "/sys/fs/cgroup"},
        {V2_MOUNT("/pod"), "", "/podium/c", "/sys/fs/cgroup"},
        {V2_MOUNT("/"), "cpu", "/", NULL},
        {V1_MOUNTS, "cpu", "/p", "/sys/fs/cgroup/cpu/p"},
        {V1_MOUNTS, "memory", "/docker/1/p", "/cg x/memory/p"},
        {V1_MOUNTS, "memory", "/docker/1", "/cg x/memory"},
        {V1_MOUNTS, "", "/", NULL},
        {"31 23\n- - -\n", "", "/", NULL},
        {"", "", "/", NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char dir[64];
        char top[64];
        bool found =
            co_cgroup_dir(rows[i].mounts, rows[i].controller, rows[i].group, dir, top, sizeof dir);
        assert_int_equal(found, rows[i].dir != NULL);
        if (found) {
            assert_string_equal(dir, rows[i].dir);
        }
    }
}

static void the_way_up_ends_at_the_mount(void **state)
{
    (void)state;
    char dir[] = "/sys/fs/cgroup/a/b";

    assert_true(co_cgroup_up(dir, "/sys/fs/cgroup"));
    assert_true(co_cgroup_up(dir, "/sys/fs/cgroup"));
    assert_string_equal(dir, "/sys/fs/cgroup");
    assert_false(co_cgroup_up(dir, "/sys/fs/cgroup"));
}

static void limits_are_read(void **state)
{
    (void)state;
    assert_int_equal(co_cgroup_cpu_max("150000 100000\n"), 1500);
    assert_int_equal(co_cgroup_cpu_max("max 100000\n"), 0);
    assert_int_equal(co_cgroup_cpu_max("1 1000000\n"), 1);
    assert_int_equal(co_cgroup_cpu_max("100000 0\n"), 0);
    assert_int_equal(co_cgroup_cpu_max(""), 0);
    assert_int_equal(co_cgroup_cpu_quota("-1\n", "100000\n"), 0);
    assert_int_equal(co_cgroup_cpu_quota("50000\n", "100000\n"), 500);
    assert_int_equal(co_cgroup_cpu_quota("99999999999999999999999\n", "1\n"), 0);
    assert_int_equal(co_cgroup_memory("max\n"), 0);
    assert_int_equal(co_cgroup_memory("9223372036854771712\n"), 0);
    assert_int_equal(co_cgroup_memory("268435456\n"), 268435456);
    assert_int_equal(co_cgroup_memory(""), 0);
    assert_int_equal(co_cgroup_oom_kills("low 0\noom 7\noom_kill 3\noom_group_kill 1\n"), 3);
    assert_int_equal(co_cgroup_oom_kills("oom_kill_disable 1\nunder_oom 0\noom_kill 2\n"), 2);
    assert_int_equal(co_cgroup_oom_kills("oom_kill_disable 1\n"), 0);
    assert_int_equal(co_cgroup_tighter(0, 5), 5);
    assert_int_equal(co_cgroup_tighter(5, 0), 5);
    assert_int_equal(co_cgroup_tighter(5, 4), 4);
}

static void auto_is_the_quota_rounded_up_or_the_hosts_cpus(void **state)
{
    (void)state;
    assert_int_equal(co_cgroup_workers(0, 8), 8);
    assert_int_equal(co_cgroup_workers(1500, 8), 2);
    assert_int_equal(co_cgroup_workers(2000, 8), 2);
    assert_int_equal(co_cgroup_workers(100, 8), 1);
    assert_int_equal(co_cgroup_workers(16000, 8), 8);
    assert_int_equal(co_cgroup_workers(0, 0), 1);
}

static void this_host_can_be_read(void **state)
{
    (void)state;
    struct co_cgroup cgroup = co_cgroup_os_read();

    assert_true(cgroup.host_cpus >= 1);
    assert_true(co_cgroup_workers(cgroup.cpu_millis, cgroup.host_cpus) >= 1);
    assert_true(co_cgroup_os_oom_kills(&cgroup) < UINT64_MAX);
}

static void pressure_is_read_in_hundredths_of_a_percent(void **state)
{
    static const struct {
        const char *text;
        uint32_t pressure;
    } rows[] = {
        {"some avg10=12.34 avg60=0.00 avg300=0.00 total=1\nfull avg10=3.07 avg60=0.00 total=1\n",
         307},
        {"full avg10=0.00 avg60=9.00 avg300=0.00 total=0\n", 0},
        {"full avg10=100.00 avg60=0.00\n", 10000},
        {"some avg10=50.00 avg60=0.00\n", 0},
        {"full avg10=7\n", 700},
        {"full avg10=\n", 0},
        {"", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(co_cgroup_pressure(rows[i].text), rows[i].pressure);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pressure_is_read_in_hundredths_of_a_percent),
        cmocka_unit_test(groups_are_found_by_controller),
        cmocka_unit_test(directories_follow_the_mounts),
        cmocka_unit_test(the_way_up_ends_at_the_mount),
        cmocka_unit_test(limits_are_read),
        cmocka_unit_test(auto_is_the_quota_rounded_up_or_the_hosts_cpus),
        cmocka_unit_test(this_host_can_be_read),
    };
    return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
