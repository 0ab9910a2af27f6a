#include "sandbox/driver/process.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/hash.h"
#include "base/str.h"
#include "io/file.h"
#include "io/proc.h"
#include "sandbox/boxdir.h"
#include "sandbox/driver/bundle.h"
#include "sandbox/image.h"

enum { START_MS = 10000, LOOK_MS = 2, CLEAN_MS = 10000, ARGS_MAX = 16 };
/* Not a limit anybody asked for: a bomb must not take the host's process table before it can be ended. */
#define PROCESSES "--nproc=1024:1024"

struct process {
	struct driver d; /* first: a struct driver * of ours is a struct process * */
	char dir[200], sockets[BOXDIR_BASE_MAX + 1], box[BUNDLE_PATH];
	uid_t uid_base; /* of this process's part */
	long long uid_from, uid_to;
	int uid_lock;
};

static struct process *mine(struct driver *d)
{
	return (struct process *)(void *)d;
}

/* What a sandbox has on the host besides its socket directory. */
struct place {
	char bundle[BUNDLE_PATH], work[BUNDLE_PATH];
};

static int place_of(const struct process *p, const char *id, struct place *at, struct err *e)
{
	return bundle_path(at->bundle, e, "%s/p/%s", p->dir, id) != 0
	    ? -1
	    : bundle_path(at->work, e, "%s/w/%s", p->dir, id);
}

/* ---- everything of a user id */

static uid_t uid_of(pid_t pid, pid_t *parent)
{
	char path[32];
	struct err ignored = { 0 };
	auto_buf struct buf text = BUF(16384);
	(void)snprintf(path, sizeof path, "/proc/%d/status", pid);
	if (pid <= 0 || file_read(path, &text, &ignored) != 0)
		return 0;
	const char *state = strstr(buf_c(&text), "\nState:\t"), *uid = strstr(buf_c(&text), "\nUid:\t"),
		   *ppid = strstr(buf_c(&text), "\nPPid:\t");
	*parent = ppid == NULL ? 0 : (pid_t)strtol(ppid + 7, NULL, 10);
	/* A zombie runs no more; its parent, or the host's init, takes it away. */
	if (uid == NULL || state == NULL || strchr("ZX", state[8]) != NULL)
		return 0;
	return (uid_t)strtoul(uid + 6, NULL, 10);
}

/* Signal (0: only count) each living process of the id; the last one found into *one. How many, or -1 without /proc. */
static int signal_all(uid_t uid, int sig, pid_t *one)
{
	int n = 0;
	pid_t parent;
	assert(uid >= BUNDLE_UID_RANGE); /* never the host's own accounts */
	DIR *d = opendir("/proc");
	if (d == NULL)
		return -1;
	for (struct dirent *i; (i = readdir(d)) != NULL;) {
		pid_t pid = (pid_t)strtol(i->d_name, NULL, 10);
		/* The descriptor first: what it is then seen to be, it stays. */
		auto_fd int fd = pid <= 1 || uid_of(pid, &parent) != uid
		    ? -1
		    : (int)syscall(SYS_pidfd_open, pid, 0);
		if (fd < 0 || uid_of(pid, &parent) != uid)
			continue;
		n++;
		*one = pid;
		if (sig != 0)
			(void)syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
	}
	(void)closedir(d);
	return n;
}

/* Kill until nothing of the id runs. Stopped first, a tree grows no further while it is being read. */
static int kill_all(uid_t uid, int64_t deadline_ms, struct err *e)
{
	pid_t one;
	for (;;) {
		int n = signal_all(uid, SIGSTOP, &one);
		if (n == 0)
			return 0;
		if (n > 0)
			(void)signal_all(uid, SIGKILL, &one);
		if (n < 0 || clock_ms() >= deadline_ms)
			return err_set(
			    e, ERR_TIMEOUT, "Processes of a sandbox did not end when they were killed.");
		(void)poll(NULL, 0, LOOK_MS);
	}
}

/* ---- building */

static int read_record(
    const struct process *p, const struct place *at, struct bundle_record *r, struct err *e)
{
	if (bundle_record_read(at->bundle, r, e) != 0)
		return -1;
	/* Whatever the file says: only an id of the configured range is ever killed. */
	if (r->uid_base < p->uid_from || r->uid_base >= p->uid_to)
		return err_set(e, ERR_INTERNAL,
		    "A sandbox of this node has user ids outside SANDBOX_UID_BASE and SANDBOX_UID_COUNT.");
	return 0;
}

static uid_t agent(const struct bundle_record *r)
{
	return r->uid_base + IMAGE_UID;
}

static int reach(const struct process *p, const char *id, const struct place *at,
    const struct bundle_record *r, struct driver_box *box, struct err *e)
{
	*box = (struct driver_box){ .pid = bundle_pid(at->bundle), .pidfd = -1 };
	if (box->pid == 0)
		return err_set(e, ERR_NOT_FOUND, "The sandbox was never started.");
	pid_t parent;
	auto_fd int fd = (int)syscall(SYS_pidfd_open, box->pid, 0);
	if (fd < 0 || uid_of(box->pid, &parent) != agent(r))
		return err_set(e, ERR_NOT_FOUND, "The sandbox has ended.");
	if (snprintf(box->socket, sizeof box->socket, "%s/%s/" BOXDIR_SOCKET, p->sockets, id) >=
		(int)sizeof box->socket ||
	    snprintf(box->workdir, sizeof box->workdir, "%s/data", at->work) >= (int)sizeof box->workdir)
		return err_set(e, ERR_INTERNAL, "A path of the sandbox directory is too long.");
	box->channel = (struct channel_opts){
		.socket_path = box->socket, .sandbox_uid = agent(r), .sandbox_uids = 1, .box_pid = box->pid
	};
	memcpy(box->channel.nonce, r->nonce, sizeof r->nonce);
	box->pidfd = steal_fd(&fd);
	return 0;
}

static const char *const parts[] = { "data", "tmp", "state", "state/home" };

static int make_work(const struct place *at, uid_t uid, struct err *e)
{
	char path[BUNDLE_PATH];
	if (mkdir(at->work, 0700) != 0 || chown(at->work, uid, uid) != 0)
		return err_set(
		    e, ERR_UNAVAILABLE, "The directory of a sandbox could not be made: %s.", strerror(errno));
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (bundle_path(path, e, "%s/%s", at->work, parts[i]) != 0)
			return -1;
		else if (mkdir(path, 0700) != 0 || lchown(path, uid, uid) != 0)
			return err_set(e, ERR_UNAVAILABLE,
			    "The directory of a sandbox could not be made: %s.", strerror(errno));
	return 0;
}

/* The lease's environment, with the places where they really are. */
static const char *const *environment(struct mem *m, const struct place *at, const char *const *env)
{
	size_t n = 0, to = 0;
	while (env[n] != NULL)
		n++;
	const char **list = mem_alloc(m, (n + 3) * sizeof *list);
	list[to++] = mem_fmt(m, "HOME=%s/state/home", at->work);
	list[to++] = mem_fmt(m, "TMPDIR=%s/tmp", at->work);
	for (; *env != NULL; env++)
		if (!str_starts(*env, "HOME=") && !str_starts(*env, "TMPDIR="))
			list[to++] = *env;
	return list;
}

/* A program under the sandbox's user id, without a way to another one, in a session of its own when it is to stay. */
static int run_as(uid_t uid, bool stays, const char *program, int in_fd, int log_fd,
    const struct driver_spec *s, struct err *e)
{
	char user[32], group[32];
	const char *argv[ARGS_MAX] = { "setsid", "--fork" };
	size_t n = stays ? 2 : 0;
	(void)snprintf(user, sizeof user, "--reuid=%u", uid);
	(void)snprintf(group, sizeof group, "--regid=%u", uid);
	const char *const rest[] = { "prlimit", "--core=0:0", PROCESSES, "setpriv", user, group,
		"--clear-groups", "--no-new-privs", "--inh-caps=-all", "--", program, NULL };
	for (size_t i = 0; rest[i] != NULL; i++)
		argv[n++] = rest[i];
	struct proc_opts o = { .argv = argv,
		.stdin_fd = in_fd,
		.stdout_fd = log_fd,
		.stderr_fd = log_fd,
		.leaves = stays,
		.cancelled = s == NULL ? NULL : s->cancelled,
		.arg = s == NULL ? NULL : s->arg,
		.timeout_ms = START_MS };
	auto_proc struct proc_result res = { 0 };
	if (proc_run(&o, &res, e) != 0)
		return -1;
	if (res.cancelled)
		return err_set(e, ERR_CONFLICT, "The lease was ended while the sandbox was being built.");
	if (res.timed_out || res.exit_code != 0)
		return err_set(e, ERR_UNAVAILABLE,
		    "A process with the sandbox's user id could not be started%s%s",
		    res.errout.n == 0 ? "." : ": ", buf_c(&res.errout));
	return 0;
}

/* The box leads the session that run_as gave it. Which of its id is found first says nothing: it tries things out at its start
 * in children that are gone a moment later. */
static pid_t box_of(uid_t uid)
{
	pid_t one = 0, parent;
	pid_t box = signal_all(uid, 0, &one) <= 0 ? -1 : getsid(one);
	return box > 1 && uid_of(box, &parent) == uid ? box : 0;
}

static int await_box(const struct place *at, uid_t uid, struct err *e)
{
	char file[BUNDLE_PATH], text[32];
	pid_t pid;
	for (int64_t deadline = clock_ms() + START_MS / 5; (pid = box_of(uid)) == 0;) {
		if (clock_ms() >= deadline)
			return err_set(e, ERR_UNAVAILABLE, "The sandbox ended at once.");
		(void)poll(NULL, 0, LOOK_MS);
	}
	(void)snprintf(text, sizeof text, "%d", pid);
	return bundle_path(file, e, "%s/pid", at->bundle) != 0
	    ? -1
	    : bundle_put(file, text, strlen(text), 0600, e);
}

static int start(const struct process *p, const struct driver_spec *s, const struct place *at,
    const struct bundle_record *r, struct err *e)
{
	char sock[BOXDIR_PATH_MAX], own[BOXDIR_PATH_MAX + 16], log[BUNDLE_PATH];
	auto_mem struct mem *m = mem_new();
	const char *const roots[] = { mem_fmt(m, "%s/data", at->work), mem_fmt(m, "%s/tmp", at->work),
		mem_fmt(m, "%s/state", at->work), NULL };
	pid_t stranger;
	if (signal_all(agent(r), 0, &stranger) != 0)
		return err_set(e, ERR_UNAVAILABLE,
		    "Somebody else's processes run under user id %u, which SANDBOX_UID_BASE gives to "
		    "sandboxes.",
		    agent(r));
	if (make_work(at, agent(r), e) != 0 || boxdir_make(p->sockets, s->id, agent(r), sock, e) != 0 ||
	    bundle_path(log, e, "%s/log", at->bundle) != 0)
		return -1;
	(void)snprintf(own, sizeof own, "%s/" BOXDIR_SOCKET, sock);
	const struct bundle_box box = {
		.socket = own, .workdir = roots[0], .roots = roots, .env = environment(m, at, s->env)
	};
	auto_fd int in = bundle_box_fd(s, &box, r->nonce, e);
	auto_fd int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (in < 0)
		return -1;
	if (out < 0)
		return err_set(
		    e, ERR_UNAVAILABLE, "The log of a sandbox could not be made: %s.", strerror(errno));
	if (run_as(agent(r), true, p->box, in, out, s, e) == 0 && await_box(at, agent(r), e) == 0)
		return 0;
	if (e->code == ERR_CONFLICT)
		return -1;
	auto_buf struct buf words = BUF(ERR_MSG_MAX / 2);
	bundle_words(at->bundle, p->dir, &words);
	return err_replace(e, ERR_UNAVAILABLE, "The sandbox could not be started: %s", buf_c(&words));
}

static int process_destroy(struct driver *d, const char *id, int64_t deadline_ms, struct err *e);

static int process_create(
    struct driver *d, const struct driver_spec *s, struct driver_box *box, struct err *e)
{
	const struct process *p = mine(d);
	struct place at;
	struct bundle_record r = { .uid_base = p->uid_base + (uid_t)s->slot * BUNDLE_UID_RANGE };
	/* DRV-5: the API has refused both by name; a row that asks for them is not ours to build. */
	if (s->runtime[0] != '\0' || s->limits.memory_mb != 0 || s->limits.cpu_milli != 0 ||
	    s->limits.pids != 0 || s->limits.disk_mb != 0 || s->n_mounts != 0 || s->scratch != NULL)
		return err_set(
		    e, ERR_UNAVAILABLE, "This node has no runtimes, enforces no limits and mounts nothing.");
	random_bytes(r.nonce, sizeof r.nonce);
	if (place_of(p, s->id, &at, e) != 0)
		return -1;
	if (mkdir(at.bundle, 0700) != 0)
		return err_set(e, errno == EEXIST ? ERR_CONFLICT : ERR_UNAVAILABLE,
		    "The directory of a sandbox could not be made: %s.", strerror(errno));
	crash_point("sandbox.bundle");
	if (bundle_record_write(at.bundle, &r, e) == 0 && start(p, s, &at, &r, e) == 0) {
		crash_point("sandbox.started");
		if (reach(p, s->id, &at, &r, box, e) == 0)
			return 0;
	}
	struct err later = { 0 }; /* then the reaper finds it by its bundle */
	(void)process_destroy(d, s->id, clock_ms() + CLEAN_MS, &later);
	return -1;
}

static int process_settle(struct driver *d, const char *id, struct err *e)
{
	char path[BUNDLE_PATH];
	return bundle_path(path, e, "%s/%s", mine(d)->sockets, id) != 0 ? -1 : boxdir_close(path, e);
}

static int process_find(struct driver *d, const char *id, struct driver_box *box, struct err *e)
{
	struct bundle_record r;
	struct place at;
	if (place_of(mine(d), id, &at, e) != 0 || read_record(mine(d), &at, &r, e) != 0)
		return err_replace(e, ERR_NOT_FOUND, "There is no such sandbox on this node.");
	return reach(mine(d), id, &at, &r, box, e);
}

/* ---- ending */

static int process_destroy(struct driver *d, const char *id, int64_t deadline_ms, struct err *e)
{
	const struct process *p = mine(d);
	struct bundle_record r;
	struct place at;
	struct err none = { 0 };
	if (place_of(p, id, &at, e) != 0)
		return -1;
	/* Without a whole record nothing was started. */
	if (read_record(p, &at, &r, &none) == 0) {
		if (kill_all(agent(&r), deadline_ms, e) != 0)
			return -1;
	} else if (none.code != ERR_NOT_FOUND) {
		return err_set(e, none.code, "%s", none.msg);
	}
	crash_point("sandbox.destroying");
	if (file_rmtree(at.work, e) != 0 || boxdir_remove(p->sockets, id, e) != 0)
		return -1;
	return file_rmtree(at.bundle, e); /* last: it is what the reaper finds the rest by */
}

/* There are no groups of commands: the box's keepers are all that there is. */
static int process_place(struct driver *d, const char *id, const char *cmd, pid_t pid, struct err *e)
{
	(void)d, (void)id, (void)cmd, (void)pid, (void)e;
	return 0;
}

static int process_kill(struct driver *d, const char *id, const char *cmd, int64_t deadline_ms, struct err *e)
{
	(void)d, (void)id, (void)cmd, (void)deadline_ms, (void)e;
	return 0;
}

static void process_tidy(struct driver *d, const char *id)
{
	struct place at;
	struct err ignored = { 0 };
	if (place_of(mine(d), id, &at, &ignored) == 0)
		bundle_trim(at.bundle);
}

static void process_words(struct driver *d, const char *id, struct buf *out)
{
	struct place at;
	struct err ignored = { 0 };
	if (place_of(mine(d), id, &at, &ignored) == 0)
		bundle_words(at.bundle, mine(d)->dir, out);
}

static long long process_oom_kills(struct driver *d, const char *id)
{
	(void)d, (void)id;
	return -1;
}

static void process_each(struct driver *d, void (*fn)(void *arg, const char *id), void *arg)
{
	char path[BUNDLE_PATH];
	struct err ignored = { 0 };
	if (bundle_path(path, &ignored, "%s/p", mine(d)->dir) == 0)
		bundle_each(path, fn, arg);
}

static const char *const *process_offered(struct driver *d)
{
	static const char *const dflt[] = { "", NULL };
	(void)d;
	return dflt;
}

static const char *process_refusal(struct driver *d)
{
	(void)d;
	return "";
}

static int process_leave(struct driver *d, int64_t deadline_ms, struct err *e)
{
	(void)d, (void)deadline_ms, (void)e;
	return 0;
}

static void process_free(struct driver *d)
{
	struct process *p = mine(d);
	if (p->uid_lock >= 0)
		(void)close(p->uid_lock);
	free(p);
}

static const struct driver calls = {
	.name = "process",
	.create = process_create,
	.settle = process_settle,
	.find = process_find,
	.destroy = process_destroy,
	.place = process_place,
	.kill = process_kill,
	.tidy = process_tidy,
	.words = process_words,
	.oom_kills = process_oom_kills,
	.each = process_each,
	.offered = process_offered,
	.refusal = process_refusal,
	.leave = process_leave,
	.free = process_free,
};

static int prepare(struct process *p, const struct process_opts *o, struct err *e)
{
	char bundles[BUNDLE_PATH], work[BUNDLE_PATH];
	if (geteuid() != 0)
		return err_set(
		    e, ERR_UNAVAILABLE, "sandboxd needs root, to give each sandbox a user id of its own.");
	if (strlen(o->dir) >= sizeof p->dir || strlen(o->sockets) >= sizeof p->sockets ||
	    strlen(o->box_binary) >= sizeof p->box)
		return err_set(e, ERR_UNAVAILABLE, "SANDBOX_DIR or BOX_BINARY is too long.");
	(void)snprintf(p->dir, sizeof p->dir, "%s", o->dir);
	(void)snprintf(p->sockets, sizeof p->sockets, "%s", o->sockets);
	(void)snprintf(p->box, sizeof p->box, "%s", o->box_binary);
	p->uid_from = o->uid_base;
	p->uid_to = o->uid_base + o->uid_count;
	if (bundle_path(bundles, e, "%s/p", p->dir) != 0 || bundle_path(work, e, "%s/w", p->dir) != 0 ||
	    bundle_alone(p->dir, "b", e) != 0 || file_mkdirs(p->dir, 0711, e) != 0 ||
	    file_mkdirs(bundles, 0700, e) != 0 || file_mkdirs(work, 0711, e) != 0)
		return -1;
	p->uid_lock = bundle_uids(o->uid_base, o->uid_count, o->slots, &p->uid_base, e);
	if (p->uid_lock < 0)
		return -1;
	/* As with runtimes: what is offered was run. The box itself must be there for every id. */
	uid_t probe = p->uid_base + (uid_t)o->slots * BUNDLE_UID_RANGE + IMAGE_UID;
	if (run_as(probe, false, "true", -1, -1, NULL, e) != 0)
		return -1;
	struct stat st;
	if (stat(p->box, &st) != 0 || (st.st_mode & S_IXOTH) == 0)
		return err_set(e, ERR_UNAVAILABLE, "BOX_BINARY cannot be run by sandboxes.");
	return 0;
}

struct driver *process_new(const struct process_opts *o, struct err *e)
{
	struct process *p = xcalloc(1, sizeof *p);
	p->d = calls;
	p->uid_lock = -1;
	if (prepare(p, o, e) != 0) {
		process_free(&p->d);
		return NULL;
	}
	return &p->d;
}
