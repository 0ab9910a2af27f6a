/*
 * flow_bad_full.c - REL-3: no room on a disk (of the runner, of the forge, of a sandbox, of the database), no descriptors, no
 * processes. Each gives an error that names it, and all is well again once there is room, without a restart. The disks are small
 * tmpfs mounts in a mount namespace of this program and of the stack it starts.
 */
#include "../span.h"
#include "../t.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/mem.h"
#include "io/file.h"
#include "io/proc.h"
#include "runs.h"

enum { DISK_MIB = 24 };
#define EDIT "open('a.txt', 'a').write('two\\n')\n"

static struct stack stack;
static struct stack_org acme;

/* ---- small disks */

static void disk(const char *sub, char path[200])
{
	(void)snprintf(path, 200, "%s/%s", stack.dir, sub);
}

/* Over the directory as it is, for the same owner. */
static void mount_small(const char *sub)
{
	char path[200], opts[100];
	struct stat st;
	disk(sub, path);
	assert_int_equal(stat(path, &st), 0);
	(void)snprintf(opts, sizeof opts, "size=%dm,mode=%o,uid=%u,gid=%u", DISK_MIB, st.st_mode & 07777,
	    st.st_uid, st.st_gid);
	assert_int_equal(mount("small", path, "tmpfs", 0, opts), 0);
}

static void filler(const char *sub, char path[300])
{
	char dir[200];
	disk(sub, dir);
	(void)snprintf(path, 300, "%s/.filler", dir);
}

static void fill(const char *sub)
{
	static const char block[4096];
	char path[300];
	filler(sub, path);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	while (write(fd, block, sizeof block) > 0)
		;
	assert_int_equal(errno, ENOSPC);
	(void)close(fd);
}

static void empty(const char *sub)
{
	char path[300];
	filler(sub, path);
	assert_int_equal(unlink(path), 0);
}

static void run_well(const char *repo)
{
	auto_flow_run struct flow_run r = { 0 };
	runs_do(&stack, &acme, runs_task("python", repo, EDIT), &r);
	runs_check(&r, "result");
	runs_sound(&stack, &r);
}

static void run_badly(const char *repo, const char *prompt, const char *says)
{
	auto_flow_run struct flow_run r = { 0 };
	runs_do(&stack, &acme, runs_task("python", repo, prompt), &r);
	runs_check(&r, "error");
	runs_sound(&stack, &r);
	if (strstr(js_str_or(r.last, "message", ""), says) == NULL)
		fail_msg("'%s' does not say '%s'", js_str_or(r.last, "message", ""), says);
}

static void a_runner_without_room_says_so_and_recovers(void **s)
{
	(void)s;
	mount_small("runner");
	fill("runner");
	run_badly("full", EDIT, "o space");
	empty("runner");
	run_well("full");
}

static void a_forge_without_room_says_so_and_recovers(void **s)
{
	(void)s;
	auto_web struct web w = { 0 };
	fill("forge");
	web_json(&stack, "POST", "/v1/git/repos/full/push", acme.key,
	    js_pack("{s:s,s:s,s:[{s:s,s:s}]}", "branch", "main", "message", "m", "files", "path", "new.txt",
		"content", "x\n"),
	    &w);
	if (w.status != 507 || strcmp(web_error(&w, "code"), "no_space") != 0)
		fail_msg("push_files: %ld %.300s", w.status, w.body);
	empty("forge");
	run_well("full");
}

static void a_sandbox_without_room_says_so_and_the_next_has_room(void **s)
{
	(void)s;
	run_badly("full",
	    "f = open('big', 'wb')\nb = bytes(1 << 20)\ntry:\n  while True: f.write(b)\nexcept OSError as e: "
	    "print(e)\n",
	    "o space");
	run_well("full");
}

static void a_database_without_room_is_a_503_and_runs_wait_for_it(void **s)
{
	(void)s;
	auto_flow_run struct flow_run r = { 0 };
	char sql[500], retry[20];
	disk("small", sql);
	assert_int_equal(mkdir(sql, 0700), 0);
	const struct passwd *owner = getpwnam("postgres");
	assert_non_null(owner);
	assert_int_equal(chown(sql, owner->pw_uid, owner->pw_gid), 0);
	mount_small("small");
	(void)snprintf(sql, sizeof sql, "CREATE TABLESPACE small LOCATION '%s/small'", stack.dir);
	runs_sql(&stack, retry, sizeof retry, "SELECT 1");
	stack_sql(&stack, sql, NULL);
	stack_sql(
	    &stack, "ALTER TABLE events SET TABLESPACE small; ALTER TABLE runs SET TABLESPACE small", NULL);
	runs_start(&stack, &acme,
	    runs_task("python", "full", "import time\nprint('at work', flush=True)\ntime.sleep(3)\n" EDIT),
	    &r);
	runs_until(&stack, &acme, &r, "at work");
	fill("small");
	/* What pages have room for still goes in; then nothing does. */
	auto_web struct web w = { 0 };
	for (int64_t until = clock_ms() + 60000; w.status != 503;) {
		web_free(&w);
		if (clock_ms() > until)
			fail_msg("a full database takes everything");
		auto_mem struct mem *m = mem_new();
		unsigned char noise[8192]; /* so that it does not compress */
		char *prompt = mem_alloc(m, 2 * sizeof noise + 2);
		random_bytes(noise, sizeof noise);
		prompt[0] = '#';
		hex_encode(noise, sizeof noise, prompt + 1);
		web_json(
		    &stack, "POST", "/v1/coding-tasks", acme.member, runs_task("python", NULL, prompt), &w);
	}
	assert_true(web_header(&w, "Retry-After", retry, sizeof retry));
	empty("small");
	runs_watch(&stack, &acme, &r, 0, 0);
	runs_check(&r, "result");
	runs_sound(&stack, &r);
	run_well("full");
}

/* ---- no descriptors, no processes */

/* The descriptor that the api keeps for when there is no other: its first of /dev/null beside standard input. */
static int spare_descriptor(void)
{
	for (int n = 3; n < 100; n++) {
		char path[64], to[20] = "";
		(void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)stack_pid(&stack, "api1"), n);
		if (readlink(path, to, sizeof to - 1) > 0 && strcmp(to, "/dev/null") == 0)
			return n;
	}
	fail_msg("the api keeps no descriptor");
	return -1;
}

/* The soft limit of a running process, as its own user may set it. */
static void limit(const char *part, const char *what, const char *to)
{
	char pid[40], option[80];
	(void)snprintf(pid, sizeof pid, "--pid=%d", (int)stack_pid(&stack, part));
	(void)snprintf(option, sizeof option, "--%s=%s:", what, to);
	const char *const argv[] = { "setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups",
		"--", "prlimit", pid, option, NULL };
	const struct proc_opts o = { .argv = argv,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.timeout_ms = PATIENCE_MS,
		.max_out_bytes = 1 << 16 };
	auto_proc struct proc_result r = { 0 };
	struct err e = { 0 };
	assert_int_equal(proc_run(&o, &r, &e), 0);
	if (r.exit_code != 0)
		fail_msg("prlimit: %s", buf_c(&r.errout));
}

/* What it was: the word behind `name` in its list of limits. */
static void limit_of(const char *part, const char *name, char soft[40])
{
	char path[64];
	auto_buf struct buf all = BUF(16384);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "/proc/%d/limits", (int)stack_pid(&stack, part));
	assert_int_equal(file_read(path, &all, &e), 0);
	const char *at = strstr(buf_c(&all), name);
	assert_non_null(at);
	at += strlen(name);
	at += strspn(at, " ");
	(void)snprintf(soft, 40, "%.*s", (int)strcspn(at, " "), at);
}

static long get(const char *path, char retry[20])
{
	auto_web struct web w = { 0 };
	struct span before = span_begin();
	web_json(&stack, "GET", path, acme.member, NULL, &w);
	retry[0] = 0;
	(void)web_header(&w, "Retry-After", retry, 20);
	assert_in_range(span_ms(&before), 0, 10000);
	return w.status;
}

static void an_api_without_descriptors_answers_in_time_and_recovers(void **s)
{
	(void)s;
	char retry[20];
	assert_int_equal(get("/v1/bots", retry), 200);
	char few[20], was[40];
	limit_of("api1", "Max open files", was);
	(void)snprintf(few, sizeof few, "%d", spare_descriptor() + 1); /* all that is open is above it */
	limit("api1", "nofile", few);
	int answered = 0;
	for (int i = 0; i < 4; i++) { /* whoever finds the spare one free is served with it */
		long status = get("/v1/bots", retry);
		answered += status == 200 || (status == 503 && retry[0] != 0);
	}
	limit("api1", "nofile", was);
	assert_int_equal(answered, 4);
	assert_int_equal(get("/v1/bots", retry), 200);
	run_well("full");
}

static void a_runner_without_descriptors_says_so_and_recovers(void **s)
{
	(void)s;
	char was[40];
	auto_flow_run struct flow_run r = { 0 };
	limit_of("runner1", "Max open files", was);
	limit("runner1", "nofile", "12");
	runs_start(&stack, &acme, runs_task("python", "full", EDIT), &r);
	(void)poll(NULL, 0, 1500); /* it finds out, or waits */
	limit("runner1", "nofile", was);
	runs_watch(&stack, &acme, &r, 0, 0);
	runs_check(&r, js_str(r.last, "type"));
	runs_sound(&stack, &r);
	if (strcmp(js_str(r.last, "type"), "error") == 0 &&
	    strstr(js_str_or(r.last, "message", ""), "oo many open files") == NULL &&
	    strstr(js_str_or(r.last, "message", ""), "no room") == NULL)
		fail_msg("a runner without descriptors says: %s", js_str_or(r.last, "message", ""));
	run_well("full");
}

static void an_api_without_processes_answers_503_and_recovers(void **s)
{
	(void)s;
	char was[40];
	limit_of("api1", "Max processes", was);
	limit("api1", "nproc", "1");
	auto_web struct web w = { 0 };
	char path[200];
	(void)snprintf(path, sizeof path, "/v1/git/%s/full.git/info/refs?service=git-upload-pack", acme.slug);
	web_json(&stack, "GET", path, acme.key, NULL, &w);
	limit("api1", "nproc", was);
	assert_int_equal(w.status, 503);
	run_well("full");
}

static int setup(void **s)
{
	(void)s;
	assert_int_equal(unshare(CLONE_NEWNS), 0);
	assert_int_equal(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	stack_up(
	    &stack, 1, 1, 1, "JOB_LEASE_S=5\nRUNNER_JOBS=2\nSANDBOX_DISK_MB=64\nDATABASE_TIMEOUT_MS=3000\n");
	mount_small("forge");
	stack_org(&stack, &acme);
	runs_repo(&stack, &acme, "full");
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	static const char *const subs[] = { "forge", "runner", "small" };
	for (size_t i = 0; i < sizeof subs / sizeof subs[0]; i++) {
		char path[200];
		disk(subs[i], path);
		(void)umount2(path, MNT_DETACH);
	}
	stack_down(&stack);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_runner_without_room_says_so_and_recovers),
		cmocka_unit_test(a_forge_without_room_says_so_and_recovers),
		cmocka_unit_test(a_sandbox_without_room_says_so_and_the_next_has_room),
		cmocka_unit_test(an_api_without_descriptors_answers_in_time_and_recovers),
		cmocka_unit_test(a_runner_without_descriptors_says_so_and_recovers),
		cmocka_unit_test(an_api_without_processes_answers_503_and_recovers),
		cmocka_unit_test(a_database_without_room_is_a_503_and_runs_wait_for_it),
	};
	return cmocka_run_group_tests_name("no room", tests, setup, teardown);
}
