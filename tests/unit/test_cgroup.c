#include "../span.h"
#include "../t.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sandbox/cgroup.h"

/* Real groups: these tests need root and mounted control groups, and skip without. */

static bool real(struct cgroups *g)
{
	struct err e = { 0 };
	return geteuid() == 0 && cgroups_detect(g, "/sys/fs/cgroup", &e) == 0;
}

/* The kill hierarchy of v2 can be tried on a hybrid host too: cgroup.kill needs no controller. */
static bool unified(struct cgroups *g)
{
	*g = (struct cgroups){
		.v2 = true, .n = 1, .root = "/sys/fs/cgroup", .hierarchy = { "/sys/fs/cgroup" }
	};
	if (access("/sys/fs/cgroup/cgroup.procs", F_OK) != 0)
		(void)snprintf(g->hierarchy[0], sizeof g->hierarchy[0], "/sys/fs/cgroup/unified");
	char file[128];
	(void)snprintf(file, sizeof file, "%s/cgroup.procs", g->hierarchy[0]);
	return geteuid() == 0 && access(file, F_OK) == 0;
}

static void group_name(char out[64], const char *what)
{
	(void)snprintf(out, 64, "/ghtest-%d-%s", getpid(), what);
}

/* A tree that is hard to kill: ignores SIGTERM, leaves its session, stops itself, and goes on forking. */
static pid_t start_tree(const struct cgroups *g, const char *path)
{
	struct err e = { 0 };
	int go[2];
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char c;
		(void)close(go[1]);
		(void)!read(go[0], &c, 1);
		(void)signal(SIGTERM, SIG_IGN);
		if (fork() == 0) {
			(void)setsid();
			if (fork() == 0)
				(void)raise(SIGSTOP);
			for (;;) {
				if (fork() == 0)
					_exit(0);
				(void)waitpid(-1, NULL, 0);
			}
		}
		for (;;)
			(void)pause();
	}
	assert_int_equal(cgroup_add(g, path, pid, &e), 0);
	assert_int_equal(write(go[1], "x", 1), 1);
	(void)close(go[0]);
	(void)close(go[1]);
	return pid;
}

static void kills_a_tree(const struct cgroups *g)
{
	struct err e = { 0 };
	char top[64], sub[80];
	group_name(top, "top");
	(void)snprintf(sub, sizeof sub, "%s/cmd", top);
	assert_int_equal(cgroup_make(g, top, &e), 0);
	assert_int_equal(cgroup_make(g, sub, &e), 0);
	pid_t pid = start_tree(g, sub);
	int64_t deadline = clock_ms() + 60000;
	while (cgroup_count(g, top) < 3 && clock_ms() < deadline)
		(void)poll(NULL, 0, 1);
	assert_true(cgroup_count(g, top) >= 3);
	struct span t = span_begin();
	/* The killed child is ours to reap; the group is empty only when that is done. */
	assert_int_equal(kill(pid, 0), 0);
	pid_t helper = fork();
	if (helper == 0) {
		struct err e2 = { 0 };
		_exit(cgroup_kill(g, top, clock_ms() + 60000, &e2) == 0 ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(waitpid(helper, &status, 0), helper);
	assert_int_equal(status, 0);
	assert_true(span_ms(&t) < 1000); /* SBX-41 */
	assert_int_equal(cgroup_count(g, top), 0);
	assert_int_equal(cgroup_remove(g, top, clock_ms() + PATIENCE_MS, &e), 0);
	assert_false(cgroup_exists(g, top));
	assert_int_equal(cgroup_kill(g, top, clock_ms(), &e), 0); /* absent is fine, twice too */
	assert_int_equal(cgroup_remove(g, top, clock_ms(), &e), 0);
}

/* SBX-41 */
static void a_tree_that_resists_is_gone_within_a_second(void **s)
{
	(void)s;
	struct cgroups g;
	if (!real(&g))
		skip();
	kills_a_tree(&g);
}

/* fault 50 */
static void the_same_through_cgroup_v2(void **s)
{
	(void)s;
	struct cgroups g;
	if (!unified(&g))
		skip();
	kills_a_tree(&g);
}

static void a_group_with_processes_is_not_removed(void **s)
{
	(void)s;
	struct cgroups g;
	struct err e = { 0 };
	char top[64];
	if (!real(&g))
		skip();
	group_name(top, "busy");
	assert_int_equal(cgroup_make(&g, top, &e), 0);
	pid_t pid = fork();
	if (pid == 0)
		for (;;)
			(void)pause();
	assert_int_equal(cgroup_add(&g, top, pid, &e), 0);
	assert_int_equal(cgroup_remove(&g, top, clock_ms() + 20, &e), -1);
	assert_int_equal(e.code, ERR_TIMEOUT);
	assert_true(cgroup_exists(&g, top));
	err_clear(&e);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	assert_int_equal(cgroup_remove(&g, top, clock_ms() + PATIENCE_MS, &e), 0);
}

static void count_name(void *arg, const char *name)
{
	if (strcmp(name, "one") == 0 || strcmp(name, "two") == 0)
		++*(int *)arg;
}

static void child_groups_are_listed(void **s)
{
	(void)s;
	struct cgroups g;
	struct err e = { 0 };
	char top[64], sub[80];
	int n = 0;
	if (!real(&g))
		skip();
	group_name(top, "list");
	assert_int_equal(cgroup_make(&g, top, &e), 0);
	(void)snprintf(sub, sizeof sub, "%s/one", top);
	assert_int_equal(cgroup_make(&g, sub, &e), 0);
	(void)snprintf(sub, sizeof sub, "%s/two", top);
	assert_int_equal(cgroup_make(&g, sub, &e), 0);
	cgroup_each(&g, top, count_name, &n);
	assert_int_equal(n, 2);
	assert_int_equal(cgroup_remove(&g, top, clock_ms() + PATIENCE_MS, &e), 0);
}

/* ---- detection, on made-up trees */

static void put(const char *dir, const char *name, const char *text)
{
	char path[256];
	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void sub_dir(const char *dir, const char *name)
{
	char path[256];
	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static void remove_tree(const char *dir)
{
	static const char *const files[] = { "memory/memory.memsw.limit_in_bytes", "cgroup.controllers",
		"systemd/memory.swap.max", NULL };
	static const char *const dirs[] = { "memory", "pids", "cpu,cpuacct", "freezer", "systemd", NULL };
	char path[256];
	for (const char *const *f = files; *f != NULL; f++) {
		(void)snprintf(path, sizeof path, "%s/%s", dir, *f);
		(void)unlink(path);
	}
	(void)snprintf(path, sizeof path, "%s/cpu", dir);
	(void)unlink(path);
	for (const char *const *d = dirs; *d != NULL; d++) {
		(void)snprintf(path, sizeof path, "%s/%s", dir, *d);
		(void)rmdir(path);
	}
	assert_int_equal(rmdir(dir), 0);
}

/* fault 50 */
static void version_one_is_recognised_with_shared_hierarchies(void **s)
{
	(void)s;
	char dir[] = "/tmp/ghcg.XXXXXX", path[256];
	struct cgroups g;
	struct err e = { 0 };
	assert_non_null(mkdtemp(dir));
	sub_dir(dir, "memory");
	sub_dir(dir, "cpu,cpuacct");
	sub_dir(dir, "freezer");
	(void)snprintf(path, sizeof path, "%s/cpu", dir);
	assert_int_equal(symlink("cpu,cpuacct", path), 0);
	assert_int_equal(cgroups_detect(&g, dir, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(e.msg, "\"pids\""));
	err_clear(&e);
	sub_dir(dir, "pids");
	assert_int_equal(cgroups_detect(&g, dir, &e), 0);
	assert_false(g.v2);
	assert_false(g.swap);
	assert_int_equal(g.n, 4); /* the link is not a fifth */
	put(dir, "memory/memory.memsw.limit_in_bytes", "1\n");
	assert_int_equal(cgroups_detect(&g, dir, &e), 0);
	assert_true(g.swap);
	remove_tree(dir);
}

static void version_two_needs_its_controllers(void **s)
{
	(void)s;
	char dir[] = "/tmp/ghcg.XXXXXX";
	struct cgroups g;
	struct err e = { 0 };
	assert_non_null(mkdtemp(dir));
	put(dir, "cgroup.controllers", "cpuset cpu io");
	assert_int_equal(cgroups_detect(&g, dir, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	err_clear(&e);
	put(dir, "cgroup.controllers", "cpuset cpu io memory pids\n");
	assert_int_equal(cgroups_detect(&g, dir, &e), 0);
	assert_true(g.v2);
	assert_false(g.swap);
	assert_int_equal(g.n, 1);
	sub_dir(dir, "systemd");
	put(dir, "systemd/memory.swap.max", "max\n");
	assert_int_equal(cgroups_detect(&g, dir, &e), 0);
	assert_true(g.swap);
	remove_tree(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tree_that_resists_is_gone_within_a_second),
		cmocka_unit_test(the_same_through_cgroup_v2),
		cmocka_unit_test(a_group_with_processes_is_not_removed),
		cmocka_unit_test(child_groups_are_listed),
		cmocka_unit_test(version_one_is_recognised_with_shared_hierarchies),
		cmocka_unit_test(version_two_needs_its_controllers),
	};
	return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
