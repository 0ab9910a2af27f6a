/* oci_run.c - calls of a runtime, and what it is given. */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/js.h"
#include "io/file.h"
#include "io/proc.h"
#include "sandbox/driver/oci_ids.h"
#include "sandbox/driver/oci_int.h"

#define RUNTIME_PATH "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum { ARGS_MAX = 24, CONFIG_MAX = 256 * 1024 };

const char *oci_hide(const struct oci *o, const struct oci_runtime *rt)
{
	return o->hybrid && rt->no_hybrid ? OCI_UNIFIED : NULL;
}

bool oci_our_network(const struct oci_runtime *rt)
{
	return !rt->kernel || !rt->own_network;
}

bool oci_as_root_of_range(const struct oci *o, const struct oci_runtime *rt)
{
	return rt->kernel && !rt->own_network && o->userns;
}

struct apart {
	const struct oci_run *r;
	const struct proc_opts *o;
	struct proc_result *res;
	struct err *e;
	int rc;
};

/* An empty file system covers what is hidden: crun makes directories there all the same, and they go with it. */
static int furnish(const struct oci_run *r, struct err *e)
{
	if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    (r->hide != NULL &&
		mount("tmpfs", r->hide, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=1m") != 0))
		return err_set(e, ERR_UNAVAILABLE, "The mounts that a runtime sees could not be set up: %s.",
		    strerror(errno));
	return r->n_places == 0 ? 0 : mount_place_all(r->placed, r->places, r->n_places, e);
}

/* Mount namespaces belong to threads: this one leaves ours, and the runtime is started from it. */
static void *furnish_and_run(void *arg)
{
	struct apart *a = arg;
	a->rc = furnish(a->r, a->e) != 0 ? -1 : proc_run(a->o, a->res, a->e);
	return NULL;
}

static int run_apart(
    const struct oci_run *r, const struct proc_opts *o, struct proc_result *res, struct err *e)
{
	struct apart h = { r, o, res, e, -1 };
	pthread_t t;
	int rc = pthread_create(&t, NULL, furnish_and_run, &h);
	if (rc != 0)
		return err_set(
		    e, ERR_UNAVAILABLE, "No thread could be started for a runtime: %s.", strerror(rc));
	(void)pthread_join(t, NULL);
	return h.rc;
}

int oci_run(const struct oci_run *r, struct err *e)
{
	char root[BUNDLE_PATH], pid_file[BUNDLE_PATH];
	const char *argv[ARGS_MAX] = { r->rt->binary, "--root", root };
	size_t n = 3;
	if (bundle_path(root, e, "%s/state", r->bundle) != 0 ||
	    bundle_path(pid_file, e, "%s/pid", r->bundle) != 0)
		return -1;
	for (const char *const *f = r->rt->flags; *f != NULL; f++)
		argv[n++] = *f;
	if (r->rt->kernel)
		argv[n++] = r->rt->own_network ? "--network=none" : "--network=host";
	argv[n++] = "run";
	if (r->detach)
		argv[n++] = "--detach";
	argv[n++] = "--pid-file";
	argv[n++] = pid_file;
	argv[n++] = "--bundle";
	argv[n++] = r->bundle;
	argv[n++] = r->id;
	char path[BUNDLE_PATH];
	if (bundle_path(path, e, "PATH=%s:" RUNTIME_PATH, r->as == NULL ? "/usr/local/sbin" : r->ids) != 0)
		return -1;
	const char *const env[] = { path, "LANG=C.UTF-8", NULL };
	struct proc_opts o = { .argv = argv,
		.env = env,
		.in_child = r->as == NULL ? NULL : oci_ids_enter,
		.child_arg = r->as,
		.stdin_fd = r->in_fd,
		.stdout_fd = r->log_fd,
		.stderr_fd = r->log_fd,
		.leaves = r->detach,
		.cancelled = r->cancelled,
		.arg = r->arg,
		.timeout_ms = OCI_START_MS };
	auto_proc struct proc_result res = { 0 };
	bool plain = r->hide == NULL && r->n_places == 0;
	if ((plain ? proc_run(&o, &res, e) : run_apart(r, &o, &res, e)) != 0)
		return -1;
	if (res.cancelled)
		return err_set(e, ERR_CONFLICT, "The lease was ended while the sandbox was being built.");
	if (res.timed_out)
		return err_set(e, ERR_UNAVAILABLE, "The runtime %s did not answer.", r->rt->binary);
	if (res.exit_code != 0)
		return err_set(
		    e, ERR_UNAVAILABLE, "The runtime %s could not start the sandbox.", r->rt->binary);
	return 0;
}

/* Where there are no user namespaces, the one account with the id it has on the host. */
static int write_accounts(const char *passwd, const char *group, uid_t id, struct err *e)
{
	auto_buf struct buf users = BUF(512), groups = BUF(512);
	(void)buf_fmt(&users,
	    "root:x:0:0:root:/root:/usr/sbin/nologin\nagent:x:%u:%u:agent:" IMAGE_HOME ":/bin/bash\n", id,
	    id);
	(void)buf_fmt(&groups, "root:x:0:\ntty:x:5:\nagent:x:%u:\n", id);
	return bundle_put(passwd, users.p, users.n, 0644, e) != 0
	    ? -1
	    : bundle_put(group, groups.p, groups.n, 0644, e);
}

int oci_write_config(
    const struct oci *o, const struct oci_built *b, const struct driver_spec *s, struct err *e)
{
	char root[BUNDLE_PATH], cgroup[BUNDLE_PATH], ns[64], file[BUNDLE_PATH], passwd[BUNDLE_PATH],
	    group[BUNDLE_PATH];
	if (bundle_path(passwd, e, "%s/passwd", b->bundle) != 0 ||
	    bundle_path(group, e, "%s/group", b->bundle) != 0 ||
	    (!o->userns && write_accounts(passwd, group, b->uid_base + IMAGE_UID, e) != 0))
		return -1;
	if (bundle_path(root, e, "%s/root", o->dir) != 0 ||
	    bundle_path(cgroup, e, "%s/%s", o->cgroup, s->id) != 0 ||
	    bundle_path(file, e, "%s/config.json", b->bundle) != 0)
		return -1;
	(void)snprintf(ns, sizeof ns, "/proc/%d/fd/%d", getpid(), b->netns);
	struct oci_config c = { .root = root,
		.etc = o->etc.path,
		.socket_dir = b->socket_dir,
		.cgroup = cgroup,
		.netns = b->netns < 0 ? NULL : ns,
		.uid_base = b->uid_base,
		.userns = o->userns,
		.passwd = passwd,
		.group = group,
		.kernel = b->rt->kernel,
		.swap = o->cg.swap,
		.args = b->args,
		.placed = o->placed,
		.mounts = s->mounts,
		.n_mounts = s->n_mounts,
		.scratch = s->scratch,
		.limits = s->limits };
	for (int i = 0; i < OCI_RLIMITS; i++) {
		struct rlimit own = { .rlim_max = RLIM_INFINITY };
		(void)getrlimit((unsigned)oci_rlimits[i].resource, &own);
		c.rlimit_max[i] = own.rlim_max > LLONG_MAX ? LLONG_MAX : (long long)own.rlim_max;
	}
	auto_json json_t *j = oci_config(&c);
	auto_buf struct buf text = BUF(CONFIG_MAX);
	if (js_dump_buf(&text, j) != 0)
		return err_set(e, ERR_INTERNAL, "A sandbox's configuration is too large.");
	return bundle_put(file, text.p, text.n, 0600, e);
}
