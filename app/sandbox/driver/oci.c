#include "sandbox/driver/oci.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/str.h"
#include "io/file.h"
#include "sandbox/boxdir.h"
#include "sandbox/driver/oci_int.h"
#include "sandbox/netns.h"

enum { RECORD_MAX = 4096, LOG_MAX = 1 << 20, CLEAN_MS = 10000, PLACE_TRIES = 2 };
#define UID_LOCKS                                                                                            \
	"/run/gatehouse.uids" /* one lock of a byte per range of 65536 ids, held while a sandboxd lives */

static struct oci *mine(struct driver *d)
{
	return (struct oci *)(void *)d;
}

static int bundle_path(
    const struct oci *o, const char *id, const char *file, char out[OCI_PATH], struct err *e)
{
	return oci_path(out, e, "%s/b/%s%s%s", o->dir, id, file[0] == '\0' ? "" : "/", file);
}

static int group_path(
    const struct oci *o, const char *id, const char *cmd, char out[CGROUP_PATH_MAX], struct err *e)
{
	int n = snprintf(
	    out, CGROUP_PATH_MAX, "%s/%s%s%s", o->cgroup, id, cmd == NULL ? "" : "/", cmd == NULL ? "" : cmd);
	return n < CGROUP_PATH_MAX ? 0 : err_set(e, ERR_INTERNAL, "The path of a control group is too long.");
}

static const struct oci_runtime *runtime(const struct oci *o, const char *boundary, struct err *e)
{
	if (boundary[0] == '\0' && o->dflt != NULL)
		return o->dflt;
	for (int i = 0; i < OCI_RUNTIMES; i++)
		if (strcmp(o->rt[i].boundary, boundary) == 0 && o->rt[i].why_not[0] == '\0')
			return &o->rt[i];
	err_set(e, ERR_UNAVAILABLE, "This node does not offer runtime \"%.20s\".", boundary);
	return NULL;
}

/* ---- the record: what a later sandboxd must know to find the box again. Only root may read it, for the nonce. */

struct record {
	bool kernel;
	uid_t uid_base;
	unsigned char nonce[PROTO_NONCE];
};

static int record_write(const struct oci *o, const char *id, const struct record *r, struct err *e)
{
	char path[OCI_PATH], hex[2 * PROTO_NONCE + 1];
	auto_buf struct buf text = BUF(RECORD_MAX);
	hex_encode(r->nonce, sizeof r->nonce, hex);
	auto_json json_t *j = js_pack(
	    "{s:b,s:I,s:s}", "kernel", r->kernel, "uidBase", (json_int_t)r->uid_base, "nonce", hex);
	if (bundle_path(o, id, "record", path, e) != 0 || js_dump_buf(&text, j) != 0)
		return -1;
	return oci_put(path, text.p, text.n, 0600, e);
}

static int record_read(const struct oci *o, const char *id, struct record *r, struct err *e)
{
	char path[OCI_PATH];
	auto_buf struct buf text = BUF(RECORD_MAX);
	if (bundle_path(o, id, "record", path, e) != 0 || file_read(path, &text, e) != 0)
		return -1;
	auto_json json_t *j = js_parse(buf_c(&text), text.n, e);
	const char *hex = js_str_or(j, "nonce", "");
	if (j == NULL || hex_decode(hex, r->nonce, sizeof r->nonce) != sizeof r->nonce)
		return err_set(e, ERR_NOT_FOUND, "The record of a sandbox is not whole.");
	r->kernel = js_bool(j, "kernel", false);
	r->uid_base = (uid_t)js_int(j, "uidBase", 0);
	return 0;
}

/* ---- building */

/* What the box reads from its descriptor 0: never a file, as it holds the nonce. */
static int config_fd(const struct driver_spec *s, const struct record *r, struct err *e)
{
	static const char *const roots[] = { "/mnt/data", "/tmp", "/state" };
	size_t n_env = 0;
	while (s->env[n_env] != NULL)
		n_env++;
	struct proto_config c = { .socket_path = "/run/gatehouse/" BOXDIR_SOCKET,
		.class = s->class,
		.workdir = s->workdir,
		.check_path = "",
		.check_text = "",
		.lease_ms = (uint64_t)s->lease_ms,
		.idle_ms = (uint64_t)s->idle_ms,
		.n_roots = 3,
		.roots = roots,
		.n_env = (uint32_t)n_env,
		.env = s->env };
	memcpy(c.nonce, r->nonce, sizeof c.nonce);
	auto_free unsigned char *text = xcalloc(1, PROTO_CONFIG_MAX);
	struct proto_out out = { .p = text, .cap = PROTO_CONFIG_MAX };
	proto_config_put(&out, &c);
	if (out.bad)
		return err_field(e, ERR_BAD_REQUEST, "env", "The environment of the lease is too large.");
	auto_fd int fd = memfd_create("box", MFD_CLOEXEC);
	if (fd < 0 || fd_write_all(fd, text, out.n) != 0 || lseek(fd, 0, SEEK_SET) != 0)
		return err_set(e, ERR_UNAVAILABLE, "The host has no memory left for a sandbox.");
	return steal_fd(&fd);
}

static pid_t read_pid(const struct oci *o, const char *id)
{
	char path[OCI_PATH];
	struct err ignored = { 0 };
	auto_buf struct buf text = BUF(32);
	long long pid = 0;
	if (bundle_path(o, id, "pid", path, &ignored) != 0 || file_read(path, &text, &ignored) != 0)
		return 0;
	text.p[strcspn(buf_c(&text), "\n")] = '\0';
	return str_int(text.p, 1, 1 << 30, &pid) ? (pid_t)pid : 0;
}

/* Is this process in the sandbox's control group? A pid of a record may be somebody else's by now. */
static bool belongs(const struct oci *o, const char *id, pid_t pid)
{
	char path[64], group[CGROUP_PATH_MAX];
	struct err ignored = { 0 };
	auto_buf struct buf text = BUF(8192);
	(void)snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
	return group_path(o, id, NULL, group, &ignored) == 0 && file_read(path, &text, &ignored) == 0 &&
	    strstr(buf_c(&text), group) != NULL;
}

static int reach(
    const struct oci *o, const char *id, const struct record *r, struct driver_box *box, struct err *e)
{
	*box = (struct driver_box){ .pid = read_pid(o, id), .groups = !r->kernel, .pidfd = -1 };
	if (box->pid == 0)
		return err_set(e, ERR_NOT_FOUND, "The sandbox was never started.");
	auto_fd int fd = (int)syscall(SYS_pidfd_open, box->pid, 0);
	if (fd < 0 || !belongs(o, id, box->pid))
		return err_set(e, ERR_NOT_FOUND, "The sandbox has ended.");
	if (snprintf(box->socket, sizeof box->socket, "%s/%s/" BOXDIR_SOCKET, o->sockets, id) >=
	    (int)sizeof box->socket)
		return err_set(e, ERR_INTERNAL, "The path of a sandbox's socket is too long.");
	/* gVisor's gofer makes and holds the socket, as the root of the sandbox's range; the sandbox's own pid is hidden. */
	box->channel = (struct channel_opts){ .socket_path = box->socket,
		.sandbox_uid = r->uid_base + (r->kernel ? 0 : IMAGE_UID),
		.sandbox_uids = r->kernel ? OCI_UID_RANGE : 1,
		.box_pid = r->kernel ? 0 : box->pid };
	memcpy(box->channel.nonce, r->nonce, sizeof r->nonce);
	box->pidfd = steal_fd(&fd);
	return 0;
}

static int start(struct oci *o, const struct oci_runtime *rt, const struct driver_spec *s,
    const struct record *r, const char *bundle, struct err *e)
{
	char sock[BOXDIR_PATH_MAX], log[OCI_PATH];
	if (boxdir_make(o->sockets, s->id, r->uid_base + IMAGE_UID, sock, e) != 0 ||
	    bundle_path(o, s->id, "log", log, e) != 0)
		return -1;
	auto_fd int ns = rt->kernel ? -1 : netns_make(e);
	if (e->code != ERR_NONE)
		return -1;
	crash_point("sandbox.netns");
	auto_fd int in = config_fd(s, r, e);
	if (in < 0 || oci_write_config(o, rt, bundle, s->id, sock, r->uid_base, ns, &s->limits, NULL, e) != 0)
		return -1;
	auto_fd int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (out < 0)
		return err_set(
		    e, ERR_UNAVAILABLE, "The log of a sandbox could not be made: %s.", strerror(errno));
	struct oci_run run = {
		.rt = rt, .id = s->id, .bundle = bundle, .detach = true, .in_fd = in, .log_fd = out
	};
	if (oci_run(&run, e) == 0)
		return 0;
	auto_buf struct buf words = BUF(ERR_MSG_MAX / 2);
	oci_words(o, s->id, &words);
	return err_replace(e, ERR_UNAVAILABLE, "The sandbox could not be started: %s", buf_c(&words));
}

static int build(struct oci *o, const struct driver_spec *s, struct driver_box *box, struct err *e)
{
	char bundle[OCI_PATH];
	const struct oci_runtime *rt = runtime(o, s->runtime, e);
	if (rt == NULL || bundle_path(o, s->id, "", bundle, e) != 0)
		return -1;
	struct record r = { .kernel = rt->kernel, .uid_base = o->uid_base + (uid_t)s->slot * OCI_UID_RANGE };
	random_bytes(r.nonce, sizeof r.nonce);
	if (mkdir(bundle, 0700) != 0)
		return err_set(e, errno == EEXIST ? ERR_CONFLICT : ERR_UNAVAILABLE,
		    "The directory of a sandbox could not be made: %s.", strerror(errno));
	crash_point("sandbox.bundle");
	if (record_write(o, s->id, &r, e) != 0 || start(o, rt, s, &r, bundle, e) != 0)
		return -1;
	crash_point("sandbox.started");
	return reach(o, s->id, &r, box, e);
}

/* Starts cost CPU and little else: more at a time than there are cores would only make each of them slow. */
static int queue(struct oci *o, struct err *e)
{
	struct timespec until;
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += OCI_START_MS / 1000;
	while (sem_clockwait(&o->starts, CLOCK_MONOTONIC, &until) != 0)
		if (errno != EINTR)
			return err_set(
			    e, ERR_UNAVAILABLE, "Too many sandboxes are starting on this node: try again.");
	return 0;
}

static int oci_create(struct driver *d, const struct driver_spec *s, struct driver_box *box, struct err *e)
{
	struct oci *o = mine(d);
	if (queue(o, e) != 0)
		return -1;
	int rc = build(o, s, box, e);
	(void)sem_post(&o->starts);
	if (rc == 0 || e->code == ERR_CONFLICT)
		return rc;
	/* What cannot be removed now is found by its bundle, by the reaper. */
	struct err later = { 0 };
	(void)oci_destroy(d, s->id, clock_ms() + CLEAN_MS, &later);
	return -1;
}

static int oci_settle(struct driver *d, const char *id, struct err *e)
{
	char path[OCI_PATH];
	return oci_path(path, e, "%s/%s", mine(d)->sockets, id) != 0 ? -1 : boxdir_close(path, e);
}

static int oci_find(struct driver *d, const char *id, struct driver_box *box, struct err *e)
{
	struct record r;
	if (record_read(mine(d), id, &r, e) != 0)
		return err_replace(e, ERR_NOT_FOUND, "There is no such sandbox on this node.");
	return reach(mine(d), id, &r, box, e);
}

/* ---- destroying: from whatever is there, without the runtime */

int oci_destroy(struct driver *d, const char *id, int64_t deadline_ms, struct err *e)
{
	struct oci *o = mine(d);
	char group[CGROUP_PATH_MAX], bundle[OCI_PATH];
	if (group_path(o, id, NULL, group, e) != 0 || bundle_path(o, id, "", bundle, e) != 0)
		return -1;
	if (cgroup_kill(&o->cg, group, deadline_ms, e) != 0)
		return -1;
	crash_point("sandbox.destroying");
	if (cgroup_remove(&o->cg, group, deadline_ms, e) != 0 || boxdir_remove(o->sockets, id, e) != 0)
		return -1;
	return file_rmtree(bundle, e); /* last: it is what the reaper finds the rest by */
}

/* ---- groups of commands */

static int oci_place(struct driver *d, const char *id, const char *cmd, pid_t pid, struct err *e)
{
	char group[CGROUP_PATH_MAX];
	const struct cgroups *cg = &mine(d)->cg;
	if (group_path(mine(d), id, cmd, group, e) != 0)
		return -1;
	/* tidy() may take the empty group away between the two; it looks rarely, so not twice. */
	for (int i = 0; i < PLACE_TRIES; i++) {
		err_clear(e);
		if (cgroup_make(cg, group, e) != 0)
			return -1;
		if (cgroup_add(cg, group, pid, e) == 0)
			return 0;
	}
	return -1;
}

struct sweep {
	struct oci *o;
	const char *id;
	int64_t deadline_ms;
	struct err *e;
};

static void kill_one(void *arg, const char *cmd)
{
	const struct sweep *s = arg;
	char group[CGROUP_PATH_MAX];
	if (group_path(s->o, s->id, cmd, group, s->e) == 0 &&
	    cgroup_kill(&s->o->cg, group, s->deadline_ms, s->e) == 0)
		(void)cgroup_remove(&s->o->cg, group, s->deadline_ms, s->e);
}

static int oci_kill(struct driver *d, const char *id, const char *cmd, int64_t deadline_ms, struct err *e)
{
	char group[CGROUP_PATH_MAX];
	struct sweep s = { mine(d), id, deadline_ms, e };
	if (cmd != NULL)
		kill_one(&s, cmd);
	else if (group_path(s.o, id, NULL, group, e) == 0)
		cgroup_each(&s.o->cg, group, kill_one, &s);
	return e->code == ERR_NONE ? 0 : -1;
}

static void tidy_one(void *arg, const char *cmd)
{
	const struct sweep *s = arg;
	char group[CGROUP_PATH_MAX];
	/* A group that is just being filled is not empty for long; removing one with a process in it fails. */
	if (group_path(s->o, s->id, cmd, group, s->e) == 0 && cgroup_count(&s->o->cg, group) == 0)
		(void)cgroup_remove(&s->o->cg, group, 0, s->e);
}

static void oci_tidy(struct driver *d, const char *id)
{
	char group[CGROUP_PATH_MAX], log[OCI_PATH];
	struct err ignored = { 0 };
	struct sweep s = { mine(d), id, 0, &ignored };
	struct stat st;
	if (group_path(s.o, id, NULL, group, &ignored) == 0)
		cgroup_each(&s.o->cg, group, tidy_one, &s);
	if (bundle_path(s.o, id, "log", log, &ignored) == 0 && lstat(log, &st) == 0 && st.st_size > LOG_MAX)
		(void)!truncate(log, 0);
}

static void words(struct driver *d, const char *id, struct buf *out)
{
	oci_words(mine(d), id, out);
}

static long long oci_oom_kills(struct driver *d, const char *id)
{
	char group[CGROUP_PATH_MAX];
	struct err ignored = { 0 };
	return group_path(mine(d), id, NULL, group, &ignored) != 0 ? -1
								   : cgroup_oom_kills(&mine(d)->cg, group);
}

static void oci_each(struct driver *d, void (*fn)(void *arg, const char *id), void *arg)
{
	struct oci *o = mine(d);
	char path[OCI_PATH];
	struct err ignored = { 0 };
	DIR *dir = oci_path(path, &ignored, "%s/b", o->dir) == 0 ? opendir(path) : NULL;
	for (struct dirent *i; dir != NULL && (i = readdir(dir)) != NULL;)
		if (i->d_name[0] != '.')
			fn(arg, i->d_name);
	if (dir != NULL)
		(void)closedir(dir);
	/* Groups whose bundle is gone: nothing makes them, but nothing else would find them either. */
	cgroup_each(&o->cg, o->cgroup, fn, arg);
}

static const char *const *oci_offered(struct driver *d)
{
	return mine(d)->offered;
}

static const char *oci_refusal(struct driver *d)
{
	return mine(d)->refusal;
}

static int oci_leave(struct driver *d, int64_t deadline_ms, struct err *e)
{
	struct oci *o = mine(d);
	char top[CGROUP_PATH_MAX];
	if (cgroup_remove(&o->cg, o->cgroup, deadline_ms, e) != 0)
		return -1;
	/* What all nodes of this host share goes with the last of them. */
	(void)snprintf(top, sizeof top, "%s", o->cgroup);
	char *slash = strrchr(top, '/');
	if (slash != NULL && slash != top) {
		*slash = 0;
		cgroup_prune(&o->cg, top);
	}
	return 0;
}

static void oci_free(struct driver *d)
{
	struct oci *o = mine(d);
	(void)sem_destroy(&o->starts);
	if (o->uid_lock >= 0)
		(void)close(o->uid_lock);
	free(o);
}

/* ---- start */

/* Two sandboxds of one host never use the same ids: each holds a lock on its part. */
static int take_uids(struct oci *o, const struct oci_opts *opts, struct err *e)
{
	long long ranges = opts->slots + 1; /* the last one is for probes */
	long long end = opts->uid_base + opts->uid_count;
	o->uid_lock = open(UID_LOCKS, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (o->uid_lock < 0)
		return err_set(e, ERR_UNAVAILABLE, "The lock file of user id ranges could not be opened: %s.",
		    strerror(errno));
	for (long long base = opts->uid_base; base + ranges * OCI_UID_RANGE <= end && end <= UINT32_MAX;
	     base += ranges * OCI_UID_RANGE) {
		struct flock l = { .l_type = F_WRLCK,
			.l_whence = SEEK_SET,
			.l_start = base / OCI_UID_RANGE,
			.l_len = ranges };
		if (fcntl(o->uid_lock, F_OFD_SETLK, &l) != 0)
			continue;
		o->uid_base = (uid_t)base;
		return 0;
	}
	return err_set(e, ERR_UNAVAILABLE,
	    "SANDBOX_UID_BASE and SANDBOX_UID_COUNT leave no room for %d sandboxes of %d ids each; other "
	    "sandboxds of this host may "
	    "use the same ids.",
	    opts->slots, OCI_UID_RANGE);
}

/* Root may always make one unless the host's limit says that there are none, or the kernel lacks them. */
static bool has_userns(void)
{
	auto_buf struct buf text = BUF(32);
	struct err ignored = { 0 };
	return file_read("/proc/sys/user/max_user_namespaces", &text, &ignored) == 0 &&
	    strtoll(buf_c(&text), NULL, 10) > 0;
}

static int prepare(struct oci *o, const struct oci_opts *opts, struct err *e)
{
	char bundles[OCI_PATH], root[OCI_PATH];
	(void)snprintf(o->dir, sizeof o->dir, "%s", opts->dir);
	(void)snprintf(o->sockets, sizeof o->sockets, "%s", opts->sockets);
	(void)snprintf(o->cgroup, sizeof o->cgroup, "%s", opts->cgroup);
	if (strlen(opts->dir) >= sizeof o->dir || strlen(opts->cgroup) >= sizeof o->cgroup)
		return err_set(e, ERR_UNAVAILABLE, "SANDBOX_DIR or the node's name is too long.");
	if (oci_path(bundles, e, "%s/b", o->dir) != 0 || oci_path(root, e, "%s/root", o->dir) != 0 ||
	    file_mkdirs(o->dir, 0711, e) != 0 || file_mkdirs(bundles, 0700, e) != 0)
		return -1;
	if (cgroups_detect(&o->cg, "/sys/fs/cgroup", e) != 0 || take_uids(o, opts, e) != 0)
		return -1;
	return image_host_make(root, opts->box_binary, &o->etc, e);
}

static const struct driver calls = {
	.name = "oci",
	.create = oci_create,
	.settle = oci_settle,
	.find = oci_find,
	.destroy = oci_destroy,
	.place = oci_place,
	.kill = oci_kill,
	.tidy = oci_tidy,
	.words = words,
	.oom_kills = oci_oom_kills,
	.each = oci_each,
	.offered = oci_offered,
	.refusal = oci_refusal,
	.leave = oci_leave,
	.free = oci_free,
};

struct driver *oci_new(const struct oci_opts *opts, struct err *e)
{
	static const char *const none[] = { NULL };
	static const char *const crun[] = { "--cgroup-manager=cgroupfs", NULL };
	/* Its own empty network stack; sockets may be made in what we mount, not dialled. */
	static const char *const runsc[] = { "--network=none", "--host-uds=create", NULL };
	struct oci *o = xcalloc(1, sizeof *o);
	o->d = calls;
	o->uid_lock = -1;
	o->slots = opts->slots;
	o->userns = !opts->no_userns && has_userns();
	o->rt[0] = (struct oci_runtime){ .binary = "crun", .boundary = "runc", .flags = crun };
	o->rt[1] = (struct oci_runtime){ .binary = "runc", .boundary = "runc", .flags = none };
	o->rt[2] = (struct oci_runtime){
		.binary = "runsc", .boundary = "gvisor", .kernel = true, .flags = runsc
	};
	(void)sem_init(&o->starts, 0, (unsigned)opts->starts);
	if (prepare(o, opts, e) != 0) {
		oci_free(&o->d);
		return NULL;
	}
	oci_probe(o, opts);
	return &o->d;
}
