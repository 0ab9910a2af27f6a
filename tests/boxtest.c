#include "t.h"

#include "boxtest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "io/file.h"

/* IDLE_MS: a box whose test crashed ends itself. */
enum { ANSWER_MS = PATIENCE_MS, DOZE_US = 2000, IDLE_MS = PATIENCE_MS };

struct channel_wait boxtest_wait(int ms)
{
	return (struct channel_wait){ .deadline_ms = clock_ms() + ms };
}

void boxtest_until(bool (*is)(void *arg), void *arg, int ms)
{
	int64_t until = clock_ms() + ms;
	while (!is(arg)) {
		assert_true(clock_ms() < until);
		(void)usleep(DOZE_US);
	}
}

/* The box's binary lies beside the tests' directory. */
static void box_path(char path[4096])
{
	ssize_t n = readlink("/proc/self/exe", path, 4096 - 32);
	assert_true(n > 0);
	path[n] = 0;
	*strrchr(path, '/') = 0; /* the program's name; next, its directory's */
	(void)snprintf(strrchr(path, '/'), 32, "/gatehouse-box");
	if (access(path, R_OK) != 0)
		fail_msg("build %s first", path);
}

static void make_dir(const struct boxtest *t, const char *name, uid_t uid)
{
	char path[128];
	(void)snprintf(path, sizeof path, "%s/%s", t->dir, name);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chown(path, uid, uid), 0);
}

static int config_fd(const struct boxtest *t, const struct boxtest_conf *conf)
{
	static unsigned char text[PROTO_CONFIG_MAX];
	static const char *const no_env[] = { "PATH=/usr/bin:/bin", NULL };
	char two[96], shown[96];
	const char *const *env = conf->env == NULL ? no_env : conf->env;
	(void)snprintf(two, sizeof two, "%s/two", t->dir);
	(void)snprintf(shown, sizeof shown, "%s/work/shown", t->dir);
	const char *roots[] = { t->work, two, "/no/such/root" }, *ro_roots[] = { shown };
	struct proto_config m = { .socket_path = t->socket,
		.class = "exec",
		.workdir = t->work,
		.check_path = conf->check_path,
		.check_text = conf->check_text,
		.lease_ms = conf->lease_ms == 0 ? 600000 : conf->lease_ms,
		.idle_ms = conf->idle_ms == 0 ? IDLE_MS : conf->idle_ms,
		.n_roots = 3,
		.roots = roots,
		.n_ro_roots = 1,
		.ro_roots = ro_roots,
		.env = env };
	memcpy(m.nonce, t->opts.nonce, PROTO_NONCE);
	while (env[m.n_env] != NULL)
		m.n_env++;
	struct proto_out o = { .p = text, .cap = sizeof text };
	proto_config_put(&o, &m);
	assert_false(o.bad);
	int fds[2];
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(write(fds[1], text, o.n), o.n);
	(void)close(fds[1]);
	return fds[0];
}

static _Noreturn void become_box(int box, int config, int log, uid_t uid, bool plain)
{
	bool ready = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
	if (!plain)
		ready = ready && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		    mount("proc", "/proc", "proc", 0, NULL) == 0 &&
		    /* Terminals as a sandbox has them, whatever the host lets its users do. */
		    mount("devpts", "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666") == 0;
	ready = ready && dup2(config, 0) == 0 && dup2(log, 1) == 1 && dup2(log, 2) == 2 &&
	    setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0 &&
	    prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
	char *const argv[] = { (char[]){ "gatehouse-box" }, NULL };
	char *const env[] = { (char[]){ "HIDDEN=1" }, NULL };
	if (ready)
		(void)syscall(SYS_execveat, box, "", argv, env, AT_EMPTY_PATH);
	_exit(99);
}

static void dial(struct boxtest *t)
{
	int64_t until = clock_ms() + ANSWER_MS;
	for (;;) {
		struct err e = { 0 };
		struct channel_wait w = boxtest_wait(ANSWER_MS);
		t->c = channel_open(&t->opts, &w, &e);
		if (t->c != NULL)
			return;
		if (e.code != ERR_UNAVAILABLE || clock_ms() > until)
			fail_msg("no channel: %s", e.msg);
		(void)usleep(DOZE_US);
	}
}

void boxtest_redial(struct boxtest *t)
{
	dial(t);
}

void boxtest_up(struct boxtest *t, const struct boxtest_conf *conf)
{
	static const struct boxtest_conf nothing;
	*t = (struct boxtest){ .log = -1, .uid = 100000 + (uid_t)getpid() };
	if (conf == NULL)
		conf = &nothing;
	(void)snprintf(t->dir, sizeof t->dir, "/tmp/boxtest.XXXXXX");
	assert_non_null(mkdtemp(t->dir));
	assert_int_equal(chmod(t->dir, 0755), 0);
	make_dir(t, "run", t->uid);
	make_dir(t, "work", t->uid);
	make_dir(t, "work/shown", t->uid);
	make_dir(t, "two", t->uid);
	make_dir(t, "out", t->uid);
	(void)snprintf(t->socket, sizeof t->socket, "%s/run/box.sock", t->dir);
	(void)snprintf(t->work, sizeof t->work, "%s/work", t->dir);
	random_bytes(t->opts.nonce, PROTO_NONCE);
	char path[4096];
	box_path(path);
	/* Opened before root is given up: it may not be reachable after. */
	int box = open(path, O_RDONLY | O_CLOEXEC), config = config_fd(t, conf), log[2];
	assert_true(box >= 0);
	assert_int_equal(pipe2(log, O_CLOEXEC), 0);
	unsigned long flags = conf->plain || conf->runsc ? SIGCHLD : CLONE_NEWPID | CLONE_NEWNS | SIGCHLD;
	t->pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
	assert_true(t->pid >= 0);
	if (t->pid == 0 && conf->runsc)
		boxtest_exec_runsc(t, path, config, log[1]);
	if (t->pid == 0)
		become_box(box, config, log[1], conf->as_root ? 0 : t->uid, conf->plain);
	(void)close(box);
	(void)close(config);
	(void)close(log[1]);
	t->log = log[0];
	t->opts.socket_path = t->socket;
	t->opts.sandbox_uid = t->uid;
	t->opts.box_pid = conf->runsc ? 0 : t->pid;
	if (!conf->no_channel)
		dial(t);
}

static void remove_dir(struct boxtest *t)
{
	struct err e = { 0 };
	if (t->log >= 0)
		(void)close(t->log);
	assert_int_equal(file_rmtree(t->dir, &e), 0);
}

void boxtest_down(struct boxtest *t)
{
	struct channel_wait w = boxtest_wait(ANSWER_MS);
	struct err e = { 0 };
	if (t->opts.box_pid == 0)
		(void)channel_end(t->c, &w, &e); /* runsc then removes what it made */
	channel_close(t->c);
	if (t->opts.box_pid != 0)
		(void)kill(t->pid, SIGKILL);
	(void)waitpid(t->pid, NULL, 0);
	remove_dir(t);
}

int boxtest_ended(struct boxtest *t, char *log, size_t size)
{
	size_t n = 0;
	ssize_t got;
	int status;
	while (n + 1 < size && (got = read(t->log, log + n, size - 1 - n)) > 0)
		n += (size_t)got;
	log[n] = 0;
	assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
	channel_close(t->c);
	remove_dir(t);
	return status;
}

struct channel_cmd *boxtest_start(struct boxtest *t, const struct channel_spec *s)
{
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(ANSWER_MS);
	struct channel_cmd *k = channel_start(t->c, s, &w, &e);
	if (k == NULL)
		fail_msg("not started: %s", e.msg);
	return k;
}

struct channel_cmd *boxtest_sh(struct boxtest *t, const char *script, int timeout_ms)
{
	const char *const argv[] = { "/bin/sh", "-c", script, NULL };
	return boxtest_start(
	    t, &(struct channel_spec){ .argv = argv, .timeout_ms = timeout_ms, .live = true });
}

static void keep_out(const struct channel_event *ev, struct buf *to, uint64_t *at, bool gaps)
{
	if (gaps)
		assert_true(ev->offset >= *at);
	else
		assert_int_equal(ev->offset, *at);
	*at = ev->offset + ev->n;
	if (to != NULL)
		assert_int_equal(buf_add(to, ev->p, ev->n), 0);
}

struct channel_exit boxtest_finish(struct channel_cmd *k, struct buf *out, struct buf *errout, bool gaps)
{
	uint64_t at[2] = { 0, 0 };
	struct channel_event ev;
	do {
		struct err e = { 0 };
		struct channel_wait w = boxtest_wait(5 * PATIENCE_MS);
		if (channel_next(k, &w, &ev, &e) != 0)
			fail_msg("no event: %s", e.msg);
		assert_int_not_equal(ev.type, CHANNEL_NOTHING);
		if (ev.type == CHANNEL_OUT)
			keep_out(&ev, ev.stream == 1 ? out : errout, &at[ev.stream - 1], gaps);
	} while (ev.type != CHANNEL_EXIT);
	for (int i = 0; i < 2 && !gaps; i++)
		assert_int_equal(ev.exit.bytes[i], at[i]);
	channel_cmd_close(k);
	return ev.exit;
}

struct channel_exit boxtest_run(struct boxtest *t, const char *script, int timeout_ms, struct buf *out)
{
	return boxtest_finish(boxtest_sh(t, script, timeout_ms), out, NULL, false);
}

static ssize_t ns_of(const char *pid, char *to, size_t size)
{
	char path[64];
	(void)snprintf(path, sizeof path, "/proc/%.20s/ns/pid", pid);
	return readlink(path, to, size);
}

static bool is_zombie(const char *pid)
{
	char path[64], text[512] = "";
	(void)snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	(void)!read(fd, text, sizeof text - 1);
	(void)close(fd);
	const char *end = strrchr(text, ')');
	return end != NULL && end[2] == 'Z';
}

int boxtest_processes(const struct boxtest *t, int *zombies)
{
	char mine[64], theirs[64], self[16];
	(void)snprintf(self, sizeof self, "%d", t->pid);
	ssize_t n = ns_of(self, mine, sizeof mine);
	int found = 0;
	DIR *d = opendir("/proc");
	assert_non_null(d);
	*zombies = 0;
	for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9' || strcmp(e->d_name, self) == 0)
			continue;
		ssize_t m = ns_of(e->d_name, theirs, sizeof theirs);
		if (m != n || m < 0 || memcmp(mine, theirs, (size_t)n) != 0)
			continue;
		found++;
		*zombies += is_zombie(e->d_name);
	}
	(void)closedir(d);
	return found;
}

int boxtest_open_fds(pid_t pid)
{
	char path[64];
	int n = 0;
	(void)snprintf(path, sizeof path, "/proc/%d/fd", pid);
	DIR *d = opendir(path);
	assert_non_null(d);
	for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d))
		n += e->d_name[0] != '.';
	(void)closedir(d);
	return n;
}

void boxtest_fds_become(pid_t pid, int n)
{
	int64_t until = clock_ms() + PATIENCE_MS;
	while (boxtest_open_fds(pid) != n && clock_ms() < until)
		(void)usleep(DOZE_US);
	assert_int_equal(boxtest_open_fds(pid), n);
}
