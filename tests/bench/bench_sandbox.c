/* A sandbox beside the bare runtime: a lease, what an idle one holds, and what two hundred of them leave behind. Commands: bench_exec. */
#include "../t.h"

#include "../fds.h"
#include "../memory.h"

#include "bench.h"
#include "fetch.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../flow/sbx.h"
#include "base/js.h"
#include "base/str.h"
#include "io/file.h"
#include "io/proc.h"

enum { LEASES = 20, LEASE_ROUNDS = 9, IDLE = 10, SETTLE_MS = 1500 };

static struct stack stack;
static struct stack_org org;
static struct fetch *f;

static int setup(void **state)
{
	(void)state;
	stack_up(&stack, 1, 1, 1, "SANDBOX_OCI_RUNTIME=runc");
	stack_org(&stack, &org);
	f = fetch_new(&stack, org.key);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fetch_free(f);
	stack_down(&stack);
	return 0;
}

static void lease(char id[40])
{
	auto_json json_t *got = fetch_json(
	    f, "POST", "/v1/sandboxes", js_pack("{s:s,s:i}", "class", "exec", "ttlSec", 600));
	(void)snprintf(id, 40, "%s", js_str_or(got, "id", ""));
}

static void end(const char *id)
{
	char path[80];
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%.39s", id);
	(void)fetch_do(f, "DELETE", path, NULL);
}

static void bundle(const char *id, const char *file, char out[300])
{
	(void)snprintf(out, 300, "%s/sandboxes/node1/b/%.39s/%s", stack.dir, id, file);
}

static void run(const char *const *argv)
{
	struct err e = { 0 };
	auto_proc struct proc_result r = { 0 };
	struct proc_opts o = {
		.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .timeout_ms = 60000
	};
	if (proc_run(&o, &r, &e) != 0 || r.exit_code != 0)
		fail_msg("%s: %s%s", argv[0], e.msg, buf_c(&r.errout));
}

/* ---- a lease beside `runc run true` with the same config.json */

struct bare {
	char dir[128], root[160];
};

static void bare_make(struct bare *b, const char *name, const char *const *args)
{
	char id[40], path[300];
	auto_buf struct buf text = BUF(1 << 20);
	struct err e = { 0 };
	lease(id);
	bundle(id, "config.json", path);
	assert_int_equal(file_read(path, &text, &e), 0);
	end(id);
	auto_json json_t *c = js_parse(text.p, text.n, &e);
	json_t *linux_part = js_get(c, "linux"), *mounts = js_get(c, "mounts"), *m, *ns;
	assert_true(linux_part != NULL && mounts != NULL);
	json_t *list = js_pack("[]");
	for (; *args != NULL; args++)
		js_push(list, json_string(*args));
	js_set(js_get(c, "process"), "args", list);
	js_set_str(linux_part, "cgroupsPath", "/gatehouse-bench/bare");
	/* Its own namespace, made by the runtime; and no socket directory, as nobody made one. */
	size_t i;
	json_array_foreach(js_get(linux_part, "namespaces"), i, ns)
		(void)json_object_del(ns, "path");
	json_array_foreach(mounts, i, m)
		if (strcmp(js_str_or(m, "destination", ""), "/run/gatehouse") == 0) {
			(void)json_array_remove(mounts, i);
			break;
		}
	(void)snprintf(b->dir, sizeof b->dir, "%s/%s", stack.dir, name);
	(void)snprintf(b->root, sizeof b->root, "%s/state", b->dir);
	(void)snprintf(path, sizeof path, "%s/config.json", b->dir);
	assert_int_equal(mkdir(b->dir, 0711), 0);
	auto_buf struct buf out = BUF(1 << 20);
	assert_int_equal(js_dump_buf(&out, c), 0);
	assert_int_equal(file_write(path, out.p, out.n, 0644, &e), 0);
}

static long bare_runs(struct bench_side *s)
{
	const struct bare *b = s->arg;
	const char *const argv[] = { "runc", "--root", b->root, "run", "--bundle", b->dir, "bare", NULL };
	for (int i = 0; i < LEASES; i++) {
		double begin = bench_now_us();
		run(argv);
		bench_took(s, bench_now_us() - begin);
	}
	return LEASES;
}

static char leased[LEASES][40];
static int n_leased;

static void end_all(struct bench_side *s)
{
	(void)s;
	while (n_leased > 0)
		end(leased[--n_leased]);
}

static long leases(struct bench_side *s)
{
	for (int i = 0; i < LEASES; i++) {
		double begin = bench_now_us();
		lease(leased[n_leased++]);
		bench_took(s, bench_now_us() - begin);
		end_all(s); /* at once: a host holds few */
	}
	return LEASES;
}

/* ---- what is there before and after */

struct census {
	int descriptors, threads, mounts, groups, entries;
	long kib;
};

static int entries_of(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;
	for (struct dirent *de; d != NULL && (de = readdir(d)) != NULL;)
		n += de->d_name[0] != '.';
	if (d != NULL)
		(void)closedir(d);
	return n;
}

static int lines_of(const char *path, const char *with)
{
	auto_buf struct buf text = BUF(8 << 20);
	struct err e = { 0 };
	assert_int_equal(file_read(path, &text, &e), 0);
	int n = 0;
	struct str rest = { text.p, text.n }, line;
	while (str_cut(&rest, '\n', &line))
		n += memmem(line.p, line.n, with, strlen(with)) != NULL;
	return n;
}

static struct census census(void)
{
	char path[300];
	pid_t pid = stack_pid(&stack, "node1");
	auto_buf struct buf open = BUF(1 << 20);
	struct census c = { .descriptors = fds_least(pid, SETTLE_MS, &open), .kib = memory_private_kib(pid) };
	(void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	c.threads = entries_of(path);
	(void)snprintf(path, sizeof path, "/proc/%d/mountinfo", (int)pid);
	c.mounts = lines_of(path, " ");
	auto_buf struct buf what = BUF(1 << 20);
	c.groups = stack_leaks(
	    &stack, &what); /* processes, mounts, control groups, namespaces, directories */
	(void)snprintf(path, sizeof path, "%s/sandboxes/node1/b", stack.dir);
	c.entries = entries_of(path);
	return c;
}

static void lease_bench(void)
{
	struct bare b;
	bare_make(&b, "once", (const char *const[]){ "/usr/bin/true", NULL });
	struct bench_side sides[] = {
		{ .name = "lease and end, through the API",
		    .round = leases,
		    .meters = { { "sandboxd", stack_pid(&stack, "node1") },
			{ "api", stack_pid(&stack, "api1") } } },
		{ .name = "`runc run` of true, same config.json",
		    .round = bare_runs,
		    .arg = &b,
		    .meters = { { "runc", 0 } } },
	};
	struct census before = census();
	bench_compare(
	    "A lease; p50 is from the request to the sandbox being ready", "lease", sides, 2, LEASE_ROUNDS);
	bench_at_most("Lease ready, p50, of the bare runtime's `run true`", sides[0].p50_us / sides[1].p50_us,
	    1.5, "×");
	(void)poll(NULL, 0, SETTLE_MS);
	struct census after = census();
	bench_say("\n%d leases left, besides what was there before: %d descriptors, %d threads, %d mounts, "
		  "%d other things of a "
		  "sandbox, %d bundles; sandboxd has %ld KiB more.",
	    LEASES * (LEASE_ROUNDS + 1), after.descriptors - before.descriptors,
	    after.threads - before.threads, after.mounts - before.mounts, after.groups - before.groups,
	    after.entries - before.entries, after.kib - before.kib);
	int left = (after.descriptors - before.descriptors) + (after.threads - before.threads) +
	    (after.mounts - before.mounts) + (after.groups - before.groups) +
	    (after.entries - before.entries);
	bench_at_most("Left by 200 leases in a row", left, 0, "things");
}

/* ---- idle ones */

/* What the kernel has charged to a sandbox's control group, in KiB: v1 or v2, wherever its first process is. */
static long charged_kib(const char *id, pid_t *pid)
{
	char path[400], group[256] = "";
	auto_buf struct buf text = BUF(64), groups = BUF(8192), bytes = BUF(64);
	struct err e = { 0 };
	bundle(id, "pid", path);
	assert_int_equal(file_read(path, &text, &e), 0);
	*pid = (pid_t)strtol(buf_c(&text), NULL, 10);
	(void)snprintf(path, sizeof path, "/proc/%d/cgroup", (int)*pid);
	assert_int_equal(file_read(path, &groups, &e), 0);
	const char *v1 = strstr(buf_c(&groups), ":memory:"), *v2 = strstr(buf_c(&groups), "0::");
	const char *at = v1 != NULL ? v1 + 8 : v2 + 3;
	(void)snprintf(group, sizeof group, "%.*s", (int)strcspn(at, "\n"), at);
	if (v1 != NULL)
		(void)snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/memory.usage_in_bytes", group);
	else
		(void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", group);
	if (file_read(path, &bytes, &e) != 0)
		fail_msg("%s: %s", path, e.msg);
	return strtol(buf_c(&bytes), NULL, 10) / 1024;
}

static void idle_bench(void)
{
	char id[IDLE][40];
	double charged[IDLE], box[IDLE];
	long before = memory_private_kib(stack_pid(&stack, "node1"));
	for (int i = 0; i < IDLE; i++)
		lease(id[i]);
	(void)poll(NULL, 0, SETTLE_MS);
	for (int i = 0; i < IDLE; i++) {
		pid_t pid;
		charged[i] = (double)charged_kib(id[i], &pid);
		box[i] = (double)memory_private_kib(pid);
	}
	double daemon = (double)(memory_private_kib(stack_pid(&stack, "node1")) - before) / IDLE;
	bench_at_most("An idle sandbox: charged to its control group and held by sandboxd",
	    bench_median(charged, IDLE) + daemon, 1024, "KiB");
	bench_note("… its processes' own memory", bench_median(box, IDLE), "KiB");
	bench_note("… held by sandboxd", daemon, "KiB");
	for (int i = 0; i < IDLE; i++)
		end(id[i]);
}

static void sandbox(void **state)
{
	(void)state;
	lease_bench();
	idle_bench();
}

int main(void)
{
	return bench_main("sandbox", setup, sandbox, teardown);
}
