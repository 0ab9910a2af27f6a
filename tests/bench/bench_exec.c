/* A command in a sandbox that runs already: through its box, beside what each OCI runtime's own exec takes for the same. */
#include "../t.h"

#include "bench.h"
#include "fetch.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../boxtest.h"
#include "../flow/sbx.h"
#include "base/js.h"
#include "io/file.h"
#include "io/proc.h"

enum { COMMANDS = 40, EXECS = 8, ROUNDS = 9 };

static struct stack stack;
static struct stack_org org;
static struct fetch *f;

static int setup(void **state)
{
	(void)state;
	stack_up(&stack, 1, 0, 1, NULL);
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

/* ---- a runtime by itself: one container that sleeps */

struct runtime {
	const char *name;
	const char *flag; /* before its verb; NULL */
	char dir[128], root[160];
	bool runs;
};
static struct runtime runc = { .name = "runc" },
		      crun = { .name = "crun", .flag = "--cgroup-manager=cgroupfs" },
		      runsc = { .name = "runsc", .flag = "--network=none" };

/* crun 1.8 refuses hosts on which both versions of control groups are mounted: the second is covered for it, as for sandboxes. */
static int cover(const void *unused)
{
	(void)unused;
	if (access("/sys/fs/cgroup/unified", F_OK) != 0)
		return 0;
	return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		mount("tmpfs", "/sys/fs/cgroup/unified", "tmpfs", 0, "size=1m") == 0
	    ? 0
	    : -1;
}

static int call(const struct runtime *r, const char *const *verb, bool leaves)
{
	const char *argv[16] = { r->name, "--root", r->root };
	size_t n = 3;
	struct err e = { 0 };
	auto_proc struct proc_result res = { 0 };
	if (r->flag != NULL)
		argv[n++] = r->flag;
	for (; *verb != NULL; verb++)
		argv[n++] = *verb;
	struct proc_opts o = { .argv = argv,
		.in_child = r == &crun ? cover : NULL,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.leaves = leaves,
		.timeout_ms = 60000 };
	int rc = proc_run(&o, &res, &e) == 0 ? res.exit_code : -1;
	if (rc != 0)
		print_message("%s %s: %s%s\n", r->name, argv[n - 1], e.msg, buf_c(&res.errout));
	return rc;
}

/* What a sandbox of ours is built from, with another program, a network namespace of its own, and no socket directory. */
static json_t *config(const struct runtime *r, const char *id)
{
	char path[300], group[80];
	auto_buf struct buf text = BUF(1 << 20);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/sandboxes/node1/b/%.39s/config.json", stack.dir, id);
	assert_int_equal(file_read(path, &text, &e), 0);
	json_t *c = js_parse(text.p, text.n, &e), *linux_part = js_get(c, "linux"),
	       *mounts = js_get(c, "mounts");
	assert_true(linux_part != NULL && mounts != NULL);
	(void)snprintf(group, sizeof group, "/gatehouse-bench/%s", r->name);
	js_set(js_get(c, "process"), "args", js_pack("[s,s]", "/usr/bin/sleep", "1000"));
	js_set_str(linux_part, "cgroupsPath", group);
	size_t i;
	json_t *one;
	json_array_foreach(js_get(linux_part, "namespaces"), i, one)
		(void)json_object_del(one, "path");
	json_array_foreach(mounts, i, one)
		if (strcmp(js_str_or(one, "destination", ""), "/run/gatehouse") == 0) {
			(void)json_array_remove(mounts, i);
			break;
		}
	return c;
}

static void begin(struct runtime *r, const char *id)
{
	char path[200];
	struct err e = { 0 };
	auto_buf struct buf text = BUF(1 << 20);
	auto_json json_t *c = config(r, id);
	(void)snprintf(r->dir, sizeof r->dir, "%s/bench-%s", stack.dir, r->name);
	(void)snprintf(r->root, sizeof r->root, "%s/state", r->dir);
	(void)snprintf(path, sizeof path, "%s/config.json", r->dir);
	assert_int_equal(mkdir(r->dir, 0711), 0);
	assert_int_equal(js_dump_buf(&text, c), 0);
	assert_int_equal(file_write(path, text.p, text.n, 0644, &e), 0);
	const char *const verb[] = { "run", "--detach", "--bundle", r->dir, "bare", NULL };
	const char *const try[] = { "exec", "bare", "/usr/bin/true", NULL };
	r->runs = call(r, verb, true) == 0 && call(r, try, false) == 0;
	if (!r->runs)
		bench_say("`%s` does not run here.", r->name);
}

static void stop(struct runtime *r)
{
	static const char *const verb[] = { "delete", "--force", "bare", NULL };
	(void)call(r, verb, false);
}

static long execs(struct bench_side *s)
{
	static const char *const verb[] = { "exec", "bare", "/usr/bin/true", NULL };
	for (int i = 0; i < EXECS; i++) {
		double began = bench_now_us();
		assert_int_equal(call(s->arg, verb, false), 0);
		bench_took(s, bench_now_us() - began);
	}
	return EXECS;
}

/* ---- ours */

static long spawns(struct bench_side *s)
{
	for (int i = 0; i < COMMANDS; i++) {
		int status;
		double began = bench_now_us();
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			(void)execl("/usr/bin/true", "true", (char *)NULL);
			_exit(127);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		bench_took(s, bench_now_us() - began);
	}
	return COMMANDS;
}

static long box_commands(struct bench_side *s)
{
	struct boxtest *t = s->arg;
	const char *const argv[] = { "/usr/bin/true", NULL };
	for (int i = 0; i < COMMANDS; i++) {
		struct channel_spec spec = { .argv = argv, .timeout_ms = 10000 };
		double began = bench_now_us();
		struct channel_exit x = boxtest_finish(boxtest_start(t, &spec), NULL, NULL, false);
		bench_took(s, bench_now_us() - began);
		assert_int_equal(x.exit_code, 0);
	}
	return COMMANDS;
}

static long api_commands(struct bench_side *s)
{
	char body[200];
	(void)snprintf(body, sizeof body, "{\"id\":\"%s\",\"argv\":[\"true\"]}", (const char *)s->arg);
	for (int i = 0; i < COMMANDS; i++) {
		double began = bench_now_us();
		(void)fetch_do(f, "POST", "/v1/sandboxes/run", body);
		bench_took(s, bench_now_us() - began);
	}
	return COMMANDS;
}

static void lease(const char *runtime, char id[40])
{
	auto_json json_t *got = fetch_json(f, "POST", "/v1/sandboxes",
	    runtime == NULL ? js_pack("{s:i}", "ttlSec", 900)
			    : js_pack("{s:i,s:s}", "ttlSec", 900, "runtime", runtime));
	(void)snprintf(id, 40, "%s", js_str_or(got, "id", ""));
}

static void of_times(const char *what, const struct bench_side *theirs, const struct bench_side *ours)
{
	char text[120];
	(void)snprintf(text, sizeof text, "%s, p50, of the box", what);
	bench_note(text, theirs->p50_us / ours->p50_us, "×");
}

static void on_linux(void)
{
	char id[40];
	struct boxtest box;
	boxtest_up(&box, &(struct boxtest_conf){ 0 });
	lease(NULL, id);
	begin(&runc, id);
	begin(&crun, id);
	struct bench_side sides[5] = {
		{ .name = "through the box, over its channel", .round = box_commands, .arg = &box },
		{ .name = "fork and exec by this program", .round = spawns },
		{ .name = "through the API and the box", .round = api_commands, .arg = id },
	};
	size_t n = 3;
	for (struct runtime *const *r = (struct runtime *const[]){ &runc, &crun, NULL }; *r != NULL; r++)
		if ((*r)->runs)
			sides[n++] = (struct bench_side){
				.name = *r == &runc ? "`runc exec`" : "`crun exec`", .round = execs, .arg = *r
			};
	bench_compare("A command: true, on the host's kernel", "command", sides, n, ROUNDS);
	bench_at_most("A command through the box, beyond fork and exec, p50",
	    (sides[0].p50_us - sides[1].p50_us) / 1000, 1, "ms");
	of_times("… through the whole API", &sides[2], &sides[0]);
	for (size_t i = 3; i < n; i++)
		of_times(sides[i].name, &sides[i], &sides[0]);
	stop(&runc);
	stop(&crun);
	json_decref(fetch_json(f, "POST", "/v1/sandboxes/end", js_pack("{s:s}", "id", id)));
	boxtest_down(&box);
}

static void in_gvisor(void)
{
	char id[40];
	struct boxtest box;
	if (boxtest_runsc() == NULL || !sbx_offered(&stack, org.key, "gvisor")) {
		bench_say("gVisor is not offered here.");
		return;
	}
	boxtest_up(&box, &(struct boxtest_conf){ .runsc = true });
	lease("gvisor", id);
	begin(&runsc, id);
	struct bench_side sides[] = {
		{ .name = "through the box, over its channel", .round = box_commands, .arg = &box },
		{ .name = "through the API and the box", .round = api_commands, .arg = id },
		{ .name = "`runsc exec`", .round = execs, .arg = &runsc },
	};
	bench_compare("A command: true, in gVisor", "command", sides, runsc.runs ? 3 : 2, ROUNDS);
	of_times("… through the whole API", &sides[1], &sides[0]);
	if (runsc.runs)
		of_times("`runsc exec`", &sides[2], &sides[0]);
	stop(&runsc);
	json_decref(fetch_json(f, "POST", "/v1/sandboxes/end", js_pack("{s:s}", "id", id)));
	boxtest_down(&box);
}

static void exec_bench(void **state)
{
	(void)state;
	on_linux();
	in_gvisor();
}

int main(void)
{
	return bench_main("exec", setup, exec_bench, teardown);
}
