#include "../t.h"

#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/js.h"
#include "sandbox/driver/oci_config.h"
#include "sandbox/driver/oci_seccomp.h"

enum { TEXT_MAX = 1 << 20 };

static const char *const etc[] = { "/etc/alternatives", "/etc/ssl/certs", NULL };

static struct oci_config config(bool gvisor, bool swap)
{
	return (struct oci_config){ .root = "/var/lib/gatehouse/sandboxes/n1/root",
		.etc = etc,
		.socket_dir = "/run/gatehouse/s/sbx_0",
		.cgroup = "/gatehouse/main.n1/sbx_0",
		.netns = "/proc/42/fd/7",
		.uid_base = 1000000000,
		.userns = true,
		.kernel = gvisor,
		.swap = swap,
		.rlimit_max = { 1LL << 40, 4096, 1LL << 40, 1LL << 40, 1LL << 40, 1LL << 40 },
		.limits = { .memory_mb = 1024, .cpu_milli = 1500, .pids = 256, .disk_mb = 2048 } };
}

static void slurp(const char *path, struct buf *to)
{
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	char chunk[4096];
	for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
		assert_int_equal(buf_add(to, chunk, n), 0);
	(void)fclose(f);
}

/* The files are rewritten by `make golden` (GATEHOUSE_GOLDEN=1); the difference is what a reviewer looks at. */
static void same_as(const char *path, const struct oci_config *c)
{
	auto_json json_t *j = oci_config(c);
	auto_free char *now = json_dumps(j, JSON_INDENT(1));
	if (getenv("GATEHOUSE_GOLDEN") != NULL) {
		FILE *f = fopen(path, "we");
		assert_non_null(f);
		(void)fprintf(f, "%s\n", now);
		(void)fclose(f);
	}
	auto_buf struct buf want = BUF(TEXT_MAX);
	slurp(path, &want);
	assert_true(want.n == strlen(now) + 1 && memcmp(want.p, now, want.n - 1) == 0);
}

static void the_configuration_is_the_reviewed_one_with_swap_counted(void **s)
{
	(void)s;
	struct oci_config c = config(false, true);
	same_as("tests/golden/oci-runc.json", &c);
}

static void gvisor_gets_room_for_its_kernel(void **s)
{
	(void)s;
	struct oci_config c = config(true, true);
	same_as("tests/golden/oci-gvisor.json", &c);
}

/* SBX-30: the host's uid 1000 is nobody's, also where there are no user namespaces */
static void without_user_namespaces_the_id_is_one_of_the_range(void **s)
{
	(void)s;
	struct oci_config c = config(false, true);
	c.userns = false;
	c.passwd = "/b/passwd";
	c.group = "/b/group";
	auto_json json_t *j = oci_config(&c);
	json_t *linux_part = json_object_get(j, "linux");
	assert_int_equal(
	    js_int(json_object_get(json_object_get(j, "process"), "user"), "uid", 0), 1000001000);
	assert_null(js_get(linux_part, "uidMappings"));
	size_t i;
	json_t *ns, *m;
	bool accounts = false;
	json_array_foreach(json_object_get(linux_part, "namespaces"), i, ns)
		assert_string_not_equal(js_str(ns, "type"), "user");
	json_array_foreach(json_object_get(j, "mounts"), i, m)
		accounts = accounts || strcmp(js_str(m, "source"), "/b/passwd") == 0;
	assert_true(accounts);
}

/* cgroup v1 without swap accounting has no file for it: a runtime would fail on the limit */
static void swap_is_limited_only_where_it_is_counted(void **s)
{
	(void)s;
	struct oci_config with = config(false, true), without = config(false, false);
	auto_json json_t *a = oci_config(&with), *b = oci_config(&without);
	json_t *ma = json_object_get(json_object_get(json_object_get(a, "linux"), "resources"), "memory");
	json_t *mb = json_object_get(json_object_get(json_object_get(b, "linux"), "resources"), "memory");
	assert_int_equal(js_int(ma, "swap", -1), 1024LL << 20);
	assert_int_equal(js_int(mb, "swap", -1), -1);
	assert_int_equal(json_object_del(ma, "swap"), 0);
	assert_true(json_equal(a, b)); /* and nothing else depends on it */
}

static bool has_option(const json_t *mount, const char *option)
{
	size_t i;
	json_t *o;
	json_array_foreach(json_object_get(mount, "options"), i, o)
		if (strncmp(json_string_value(o), option, strlen(option)) == 0)
			return true;
	return false;
}

/* SBX-30 */
static void what_can_be_written_is_sized_and_named(void **s)
{
	(void)s;
	static const char *const writable[] = { "/dev", "/dev/shm", "/mnt/data", "/tmp", "/state",
		"/state/home", NULL };
	struct oci_config c = config(false, true);
	auto_json json_t *j = oci_config(&c);
	size_t i;
	long long disk = 0;
	json_t *m;
	json_array_foreach(json_object_get(j, "mounts"), i, m) {
		const char *to = js_str(m, "destination"), *type = js_str(m, "type");
		assert_true(has_option(m, "nosuid"));
		assert_true(has_option(m, "nodev") || strcmp(to, "/dev") == 0 || strcmp(type, "devpts") == 0);
		if (strcmp(type, "bind") == 0)
			assert_true(has_option(m, "ro") || strcmp(to, "/run/gatehouse") == 0);
		if (strcmp(type, "tmpfs") == 0) {
			bool known = false;
			for (const char *const *w = writable; *w != NULL; w++)
				known = known || strcmp(*w, to) == 0;
			assert_true(known && has_option(m, "size="));
			assert_true(has_option(m, "nr_inodes=") || strcmp(to, "/dev") == 0);
		}
		/* Commands are run from the work directories. */
		if (strcmp(to, "/mnt/data") == 0 || strcmp(to, "/tmp") == 0 ||
		    strncmp(to, "/state", 6) == 0) {
			size_t k;
			json_t *o;
			assert_false(has_option(m, "noexec"));
			json_array_foreach(json_object_get(m, "options"), k, o)
				if (strncmp(json_string_value(o), "size=", 5) == 0)
					disk += strtoll(json_string_value(o) + 5, NULL, 10);
		}
	}
	assert_int_equal(disk, 2048); /* the disk limit is all of them together */
}

static const json_t *mount_to(const json_t *config, const char *to)
{
	size_t i;
	json_t *m;
	json_array_foreach(json_object_get(config, "mounts"), i, m)
		if (strcmp(js_str(m, "destination"), to) == 0)
			return m;
	return NULL;
}

/* SBX-30: it counts as memory, and must be full before that is */
static void shared_memory_is_half_of_the_memory_and_a_gibibyte_at_most(void **s)
{
	(void)s;
	static const struct {
		long long memory_mb;
		const char *size;
	} of[] = { { 64, "size=32m" }, { 256, "size=128m" }, { 2048, "size=1024m" }, { 8192, "size=1024m" } };
	for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
		struct oci_config c = config(false, true);
		c.limits.memory_mb = of[i].memory_mb;
		auto_json json_t *j = oci_config(&c);
		assert_true(has_option(mount_to(j, "/dev/shm"), of[i].size));
	}
}

/* SBX-30 */
static void there_is_no_capability_and_no_way_to_one(void **s)
{
	(void)s;
	struct oci_config c = config(false, true);
	auto_json json_t *j = oci_config(&c);
	json_t *p = json_object_get(j, "process"), *caps = json_object_get(p, "capabilities"), *set;
	const char *name;
	assert_int_equal(json_object_size(caps), 5);
	json_object_foreach(caps, name, set)
		assert_int_equal(json_array_size(set), 0);
	assert_true(js_bool(p, "noNewPrivileges", false));
	assert_true(js_bool(json_object_get(j, "root"), "readonly", false));
	assert_int_equal(js_int(json_object_get(p, "user"), "uid", 0), 1000);
	json_t *map = json_array_get(json_object_get(json_object_get(j, "linux"), "uidMappings"), 0);
	assert_int_equal(js_int(map, "hostID", 0), 1000000000); /* never the host's uid 1000 */
}

static void no_resource_limit_is_above_our_own(void **s)
{
	(void)s;
	struct oci_config c = config(false, true);
	auto_json json_t *j = oci_config(&c);
	json_t *list = json_object_get(json_object_get(j, "process"), "rlimits"),
	       *core = json_array_get(list, 0);
	assert_int_equal(json_array_size(list), OCI_RLIMITS);
	assert_string_equal(js_str(core, "type"), "RLIMIT_CORE");
	assert_int_equal(js_int(core, "hard", -1), 0); /* SBX-30 */
	assert_int_equal(js_int(json_array_get(list, 1), "hard", -1), 4096);
}

static void the_command_line_of_a_probe_replaces_the_box(void **s)
{
	(void)s;
	static const char *const args[] = { "/usr/bin/true", NULL };
	struct oci_config c = config(false, true);
	c.args = args;
	auto_json json_t *j = oci_config(&c);
	json_t *a = json_object_get(json_object_get(j, "process"), "args");
	assert_int_equal(json_array_size(a), 1);
	assert_string_equal(json_string_value(json_array_get(a, 0)), "/usr/bin/true");
}

static void the_seccomp_table_is_sorted_and_every_name_exists(void **s)
{
	(void)s;
	/* Names that only other architectures have, or that are newer than this libseccomp. */
	static const char *const unknown[] = { "cachestat", "fchmodat2", "futex_requeue", "futex_wait",
		"futex_wake", "map_shadow_stack", NULL };
	for (const char *const *n = seccomp_allowed; *n != NULL; n++) {
		if (n != seccomp_allowed)
			assert_true(strcmp(n[-1], n[0]) < 0);
		bool newer = false;
		for (const char *const *u = unknown; *u != NULL; u++)
			newer = newer || strcmp(*u, *n) == 0;
		if (!newer)
			assert_int_not_equal(seccomp_syscall_resolve_name(*n), __NR_SCMP_ERROR);
	}
}

static void the_seccomp_table_holds_none_of_the_dangerous_calls(void **s)
{
	(void)s;
	static const char *const never[] = { "acct", "add_key", "bpf", "chroot", "clock_settime", "clone",
		"clone3", "create_module", "delete_module", "fanotify_init", "finit_module", "fsconfig",
		"fsmount", "fsopen", "fspick", "get_mempolicy", "init_module", "io_uring_enter",
		"io_uring_register", "io_uring_setup", "ioperm", "iopl", "kexec_file_load", "kexec_load",
		"keyctl", "lookup_dcookie", "mbind", "mount", "mount_setattr", "move_mount", "move_pages",
		"nfsservctl", "open_by_handle_at", "open_tree", "perf_event_open", "personality",
		"pivot_root", "quotactl", "quotactl_fd", "reboot", "request_key", "set_mempolicy",
		"setdomainname", "sethostname", "setns", "settimeofday", "socket", "stime", "swapoff",
		"swapon", "syslog", "umount", "umount2", "unshare", "uselib", "userfaultfd", "ustat",
		"vhangup", NULL };
	for (const char *const *n = seccomp_allowed; *n != NULL; n++)
		for (const char *const *x = never; *x != NULL; x++)
			assert_string_not_equal(*n, *x);
}

static void the_seccomp_profile_refuses_by_default_and_knows_one_architecture(void **s)
{
	(void)s;
	auto_json json_t *p = seccomp_profile();
	assert_string_equal(js_str(p, "defaultAction"), "SCMP_ACT_ERRNO");
	assert_int_equal(json_array_size(json_object_get(p, "architectures")), 1);
	size_t i;
	json_t *rule;
	bool clone = false, clone3 = false;
	json_array_foreach(json_object_get(p, "syscalls"), i, rule) {
		const char *first = json_string_value(json_array_get(json_object_get(rule, "names"), 0));
		json_t *arg = json_array_get(json_object_get(rule, "args"), 0);
		if (strcmp(first, "clone") == 0) {
			clone = true;
			assert_int_equal(js_int(arg, "value", 0), 0x7e020000);
			assert_string_equal(js_str(arg, "op"), "SCMP_CMP_MASKED_EQ");
		}
		if (strcmp(first, "clone3") == 0) {
			clone3 = true;
			assert_string_equal(js_str(rule, "action"), "SCMP_ACT_ERRNO");
		}
	}
	assert_true(clone && clone3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_configuration_is_the_reviewed_one_with_swap_counted),
		cmocka_unit_test(gvisor_gets_room_for_its_kernel),
		cmocka_unit_test(without_user_namespaces_the_id_is_one_of_the_range),
		cmocka_unit_test(swap_is_limited_only_where_it_is_counted),
		cmocka_unit_test(what_can_be_written_is_sized_and_named),
		cmocka_unit_test(shared_memory_is_half_of_the_memory_and_a_gibibyte_at_most),
		cmocka_unit_test(there_is_no_capability_and_no_way_to_one),
		cmocka_unit_test(no_resource_limit_is_above_our_own),
		cmocka_unit_test(the_command_line_of_a_probe_replaces_the_box),
		cmocka_unit_test(the_seccomp_table_is_sorted_and_every_name_exists),
		cmocka_unit_test(the_seccomp_table_holds_none_of_the_dangerous_calls),
		cmocka_unit_test(the_seccomp_profile_refuses_by_default_and_knows_one_architecture),
	};
	return cmocka_run_group_tests_name("oci_config", tests, NULL, NULL);
}
