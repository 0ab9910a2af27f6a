#include "sandbox/driver/oci.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/str.h"
#include "io/file.h"
#include "sandbox/boxdir.h"
#include "sandbox/driver/oci_ids.h"
#include "sandbox/driver/oci_int.h"
#include "sandbox/netns.h"

enum { CLEAN_MS = 10000, PLACE_TRIES = 2, CANCEL_MS = 100 };
static struct oci *mine(struct driver *d)
{
	return (struct oci *)(void *)d;
}

static int bundle_dir(const struct oci *o, const char *id, char out[BUNDLE_PATH], struct err *e)
{
	return bundle_path(out, e, "%s/b/%s", o->dir, id);
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

/* ---- building */

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

static int reach(const struct oci *o, const char *id, const char *bundle, const struct bundle_record *r,
    struct driver_box *box, struct err *e)
{
	*box = (struct driver_box){ .pid = bundle_pid(bundle), .groups = !r->kernel, .pidfd = -1 };
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
		.sandbox_uids = r->kernel ? BUNDLE_UID_RANGE : 1,
		.box_pid = r->kernel ? 0 : box->pid };
	memcpy(box->channel.nonce, r->nonce, sizeof r->nonce);
	box->pidfd = steal_fd(&fd);
	return 0;
}

static int start(struct oci *o, const struct oci_runtime *rt, const struct driver_spec *s,
    const struct bundle_record *r, const char *bundle, const struct oci_mounts *mounts, struct err *e)
{
	char sock[BOXDIR_PATH_MAX], log[BUNDLE_PATH];
	if (boxdir_make(o->sockets, s->id, r->uid_base + IMAGE_UID, sock, e) != 0 ||
	    bundle_path(log, e, "%s/log", bundle) != 0)
		return -1;
	auto_fd int ns = oci_our_network(rt) ? netns_make(s->listeners, e) : -1;
	if (e->code != ERR_NONE)
		return -1;
	if (s->listeners != NULL && s->listening != NULL && oci_our_network(rt))
		s->listening(s->listening_arg);
	uid_t root_of_range = r->uid_base;
	crash_point("sandbox.netns");
	static const char *const usual[] = { IMAGE_DATA, "/tmp", DRIVER_STATE, NULL };
	const struct bundle_box inside = { .socket = "/run/gatehouse/" BOXDIR_SOCKET,
		.workdir = s->workdir,
		.roots = s->roots == NULL ? usual : s->roots,
		.env = s->env };
	const struct oci_built built = {
		.rt = rt, .bundle = bundle, .socket_dir = sock, .uid_base = r->uid_base, .netns = ns
	};
	auto_fd int in = bundle_box_fd(s, &inside, r->nonce, e);
	if (in < 0 || oci_write_config(o, &built, s, e) != 0)
		return -1;
	auto_fd int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (out < 0)
		return err_set(
		    e, ERR_UNAVAILABLE, "The log of a sandbox could not be made: %s.", strerror(errno));
	struct oci_run run = { .rt = rt,
		.id = s->id,
		.bundle = bundle,
		.detach = true,
		.in_fd = in,
		.log_fd = out,
		.hide = oci_hide(o, rt),
		.placed = o->placed,
		.places = mounts->at,
		.n_places = mounts->n,
		.as = oci_as_root_of_range(o, rt) ? &root_of_range : NULL,
		.ids = o->ids,
		.cancelled = s->cancelled,
		.arg = s->arg };
	if (oci_run(&run, e) == 0)
		return 0;
	if (e->code == ERR_CONFLICT)
		return -1;
	auto_buf struct buf words = BUF(ERR_MSG_MAX / 2);
	bundle_words(bundle, o->dir, &words);
	return err_replace(e, ERR_UNAVAILABLE, "The sandbox could not be started: %s", buf_c(&words));
}

/* With what it mounts, which nobody but the sandbox holds afterwards. */
static int mount_and_start(struct oci *o, const struct oci_runtime *rt, const struct driver_spec *s,
    const struct bundle_record *r, const char *bundle, struct err *e)
{
	struct oci_mounts m;
	if (oci_mounts_make(o, s, r->uid_base, &m, e) != 0)
		return -1;
	int rc = start(o, rt, s, r, bundle, &m, e);
	oci_mounts_close(&m);
	return rc;
}

static void note_volumes(const struct driver_spec *s, struct bundle_record *r)
{
	for (size_t i = 0; i < s->n_mounts && r->n_volumes < DRIVER_VOLUMES_MAX; i++)
		if (s->mounts[i].volume != NULL)
			(void)snprintf(
			    r->volumes[r->n_volumes++], VOLUME_NAME_MAX, "%s", s->mounts[i].volume);
}

/* *ours: the bundle was made by this call, so what there is of the sandbox is this call's to remove. */
static int build(
    struct oci *o, const struct driver_spec *s, struct driver_box *box, bool *ours, struct err *e)
{
	char bundle[BUNDLE_PATH];
	const struct oci_runtime *rt = runtime(o, s->runtime, e);
	if (rt == NULL || bundle_dir(o, s->id, bundle, e) != 0)
		return -1;
	struct bundle_record r = { .kernel = rt->kernel,
		.uid_base = o->uid_base + (uid_t)s->slot * BUNDLE_UID_RANGE };
	random_bytes(r.nonce, sizeof r.nonce);
	note_volumes(s, &r);
	if (mkdir(bundle, 0700) != 0)
		return err_set(e, errno == EEXIST ? ERR_CONFLICT : ERR_UNAVAILABLE,
		    "The directory of a sandbox could not be made: %s.", strerror(errno));
	*ours = true;
	crash_point("sandbox.bundle");
	if (bundle_record_write(bundle, &r, e) != 0 || mount_and_start(o, rt, s, &r, bundle, e) != 0)
		return -1;
	crash_point("sandbox.started");
	return reach(o, s->id, bundle, &r, box, e);
}

/* Starts cost CPU and little else: more at a time than there are cores would only make each of them slow. */
static int queue(struct oci *o, const struct driver_spec *s, struct err *e)
{
	int64_t wait_ms = s->start_ms > 0 ? s->start_ms : OCI_START_MS, deadline = clock_ms() + wait_ms;
	for (;;) {
		int64_t look = clock_ms() + CANCEL_MS;
		struct timespec until = { .tv_sec = look / 1000, .tv_nsec = look % 1000 * 1000000 };
		if (sem_clockwait(&o->starts, CLOCK_MONOTONIC, &until) == 0)
			return 0;
		if (s->cancelled != NULL && s->cancelled(s->arg))
			return err_set(
			    e, ERR_CONFLICT, "The lease was ended while the sandbox was waiting to start.");
		if (clock_ms() < deadline)
			continue;
		(void)err_set(e, ERR_UNAVAILABLE,
		    "Too many sandboxes are starting on this node: its turn did not come within %lld s "
		    "(SANDBOX_START_TIMEOUT_S); try again.",
		    (long long)(wait_ms + 999) / 1000);
		e->reason = "nodes_full"; /* it passes, too */
		return -1;
	}
}

static int oci_create(struct driver *d, const struct driver_spec *s, struct driver_box *box, struct err *e)
{
	struct oci *o = mine(d);
	if (queue(o, s, e) != 0)
		return -1;
	bool ours = false;
	int rc = build(o, s, box, &ours, e);
	(void)sem_post(&o->starts);
	if (rc == 0 || !ours)
		return rc;
	/* What cannot be removed now is found by its bundle, by the reaper. */
	struct err later = { 0 };
	(void)oci_destroy(d, s->id, clock_ms() + CLEAN_MS, &later);
	return -1;
}

static int oci_settle(struct driver *d, const char *id, struct err *e)
{
	char path[BUNDLE_PATH];
	return bundle_path(path, e, "%s/%s", mine(d)->sockets, id) != 0 ? -1 : boxdir_close(path, e);
}

static int oci_find(struct driver *d, const char *id, struct driver_box *box, struct err *e)
{
	struct bundle_record r;
	char bundle[BUNDLE_PATH];
	if (bundle_dir(mine(d), id, bundle, e) != 0 || bundle_record_read(bundle, &r, e) != 0)
		return err_replace(e, ERR_NOT_FOUND, "There is no such sandbox on this node.");
	return reach(mine(d), id, bundle, &r, box, e);
}

static int oci_listen(
    struct driver *d, const char *id, const struct driver_box *box, struct listeners *l, struct err *e)
{
	char path[64];
	(void)snprintf(path, sizeof path, "/proc/%d/ns/net", box->pid);
	auto_fd int ns = open(path, O_RDONLY | O_CLOEXEC);
	struct pollfd p = { .fd = box->pidfd, .events = POLLIN };
	const struct oci_runtime *gvisor = &mine(d)->rt[OCI_GVISOR];
	struct bundle_record r;
	char bundle[BUNDLE_PATH];
	if (bundle_path(bundle, e, "%s/b/%s", mine(d)->dir, id) != 0 ||
	    bundle_record_read(bundle, &r, e) != 0)
		return -1;
	if (r.kernel && gvisor->own_network)
		return err_set(
		    e, ERR_UNAVAILABLE, "This sandbox has a network of its own, in which nobody can listen.");
	/* While its first process lives the pid is its own, and so is the namespace. */
	if (ns < 0 || poll(&p, 1, 0) != 0)
		return err_set(e, ERR_NOT_FOUND, "The sandbox has ended.");
	return netns_open(ns, l, e);
}

/* ---- destroying: from whatever is there, without the runtime */

/* Its volumes are unmounted by the end of its last process, a moment later. Without a record nothing was mounted. */
static int unmounted(const struct oci *o, const char *bundle, int64_t deadline_ms, struct err *e)
{
	struct bundle_record r;
	struct err none = { 0 };
	if (o->volumes == NULL || bundle_record_read(bundle, &r, &none) != 0)
		return 0;
	for (int i = 0; i < r.n_volumes; i++)
		if (volume_settle(o->volumes, r.volumes[i], deadline_ms, e) != 0)
			return -1;
	return 0;
}

int oci_destroy(struct driver *d, const char *id, int64_t deadline_ms, struct err *e)
{
	struct oci *o = mine(d);
	char group[CGROUP_PATH_MAX], bundle[BUNDLE_PATH];
	if (group_path(o, id, NULL, group, e) != 0 || bundle_dir(o, id, bundle, e) != 0)
		return -1;
	if (cgroup_kill(&o->cg, group, deadline_ms, e) != 0)
		return -1;
	crash_point("sandbox.destroying");
	if (cgroup_remove(&o->cg, group, deadline_ms, e) != 0 || boxdir_remove(o->sockets, id, e) != 0 ||
	    unmounted(o, bundle, deadline_ms, e) != 0)
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
	char group[CGROUP_PATH_MAX], bundle[BUNDLE_PATH];
	struct err ignored = { 0 };
	struct sweep s = { mine(d), id, 0, &ignored };
	if (group_path(s.o, id, NULL, group, &ignored) == 0)
		cgroup_each(&s.o->cg, group, tidy_one, &s);
	if (bundle_dir(s.o, id, bundle, &ignored) == 0)
		bundle_trim(bundle);
}

static void words(struct driver *d, const char *id, struct buf *out)
{
	char bundle[BUNDLE_PATH];
	struct err ignored = { 0 };
	if (bundle_dir(mine(d), id, bundle, &ignored) == 0)
		bundle_words(bundle, mine(d)->dir, out);
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
	char path[BUNDLE_PATH];
	struct err ignored = { 0 };
	if (bundle_path(path, &ignored, "%s/b", o->dir) == 0)
		bundle_each(path, fn, arg);
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

static int take_uids(struct oci *o, const struct oci_opts *opts, struct err *e)
{
	return o->uid_lock = bundle_uids(opts->uid_base, opts->uid_count, opts->slots, &o->uid_base, e);
}

/* Root may always make one unless the host's limit says that there are none, or the kernel lacks them. */
static bool has_userns(void)
{
	auto_buf struct buf text = BUF(32);
	struct err ignored = { 0 };
	return file_read("/proc/sys/user/max_user_namespaces", &text, &ignored) == 0 &&
	    strtoll(buf_c(&text), NULL, 10) > 0;
}

/* systemd's hybrid layout: the limits are v1's, v2 is there for naming processes only. */
static bool has_hybrid(void)
{
	struct statfs fs;
	return statfs(OCI_UNIFIED, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

static int prepare(struct oci *o, const struct oci_opts *opts, struct err *e)
{
	char bundles[BUNDLE_PATH], root[BUNDLE_PATH];
	(void)snprintf(o->dir, sizeof o->dir, "%s", opts->dir);
	(void)snprintf(o->sockets, sizeof o->sockets, "%s", opts->sockets);
	(void)snprintf(o->cgroup, sizeof o->cgroup, "%s", opts->cgroup);
	if (strlen(opts->dir) >= sizeof o->dir || strlen(opts->cgroup) >= sizeof o->cgroup)
		return err_set(e, ERR_UNAVAILABLE, "SANDBOX_DIR or the node's name is too long.");
	if (bundle_alone(o->dir, "p", e) != 0 || bundle_path(bundles, e, "%s/b", o->dir) != 0 ||
	    bundle_path(root, e, "%s/root", o->dir) != 0 || file_mkdirs(o->dir, 0711, e) != 0 ||
	    file_mkdirs(bundles, 0700, e) != 0)
		return -1;
	(void)snprintf(o->ids, sizeof o->ids, "%s/ids", o->dir);
	(void)snprintf(o->placed, sizeof o->placed, "%s/m", o->dir);
	if (oci_ids_links(o->ids, e) != 0 || file_mkdirs(o->placed, 0755, e) != 0)
		return -1;
	o->hybrid = has_hybrid();
	if (cgroups_detect(&o->cg, "/sys/fs/cgroup", e) != 0 || take_uids(o, opts, e) < 0)
		return -1;
	return image_host_make(root, opts->box_binary, &o->etc, e);
}

static const struct driver calls = {
	.name = "oci",
	.create = oci_create,
	.settle = oci_settle,
	.find = oci_find,
	.listen = oci_listen,
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
	/* Sockets may be made in what we mount, not dialled. */
	static const char *const runsc[] = { "--host-uds=create", NULL };
	struct oci *o = xcalloc(1, sizeof *o);
	o->d = calls;
	o->uid_lock = -1;
	o->slots = opts->slots;
	o->volumes = opts->volumes;
	o->userns = !opts->no_userns && has_userns();
	o->rt[0] = (struct oci_runtime){
		.binary = "crun", .boundary = "runc", .flags = crun, .no_hybrid = true
	};
	o->rt[1] = (struct oci_runtime){ .binary = "runc", .boundary = "runc", .flags = none };
	o->rt[OCI_GVISOR] = (struct oci_runtime){
		.binary = "runsc", .boundary = "gvisor", .kernel = true, .flags = runsc
	};
	(void)sem_init(&o->starts, 0, (unsigned)opts->starts);
	if (prepare(o, opts, e) != 0) {
		char why[ERR_MSG_MAX];
		if (oci_no_namespaces(why))
			err_replace(e, ERR_UNAVAILABLE, "%s", why);
		oci_free(&o->d);
		return NULL;
	}
	oci_probe(o, opts);
	return &o->d;
}
