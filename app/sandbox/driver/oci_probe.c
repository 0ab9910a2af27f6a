/* oci_probe.c - a runtime is offered because it was run, not because its binary exists (DRV-1). */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "io/file.h"
#include "io/proc.h"
#include "sandbox/boxdir.h"
#include "sandbox/driver/oci_int.h"
#include "sandbox/netns.h"

enum { UNSHARE_MS = 10000 };

static const struct driver_limits small = { .memory_mb = 256, .cpu_milli = 1000, .pids = 64, .disk_mb = 64 };

/* A real container, with everything a sandbox is given, that runs /usr/bin/true. */
static int run_true(
    struct oci *o, const struct oci_runtime *rt, const char *id, const char *bundle, struct err *e)
{
	static const char *const args[] = { "/usr/bin/true", NULL };
	uid_t ids = o->uid_base + (uid_t)o->slots * BUNDLE_UID_RANGE;
	char log[BUNDLE_PATH], sock[BOXDIR_PATH_MAX];
	if (bundle_path(log, e, "%s/log", bundle) != 0 || file_mkdirs(bundle, 0700, e) != 0 ||
	    boxdir_make(o->sockets, id, ids, sock, e) != 0)
		return -1;
	auto_fd int ns = oci_our_network(rt) ? netns_make(NULL, e) : -1;
	auto_fd int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	const struct driver_spec spec = { .id = id, .limits = small };
	const struct oci_built built = {
		.rt = rt, .bundle = bundle, .socket_dir = sock, .uid_base = ids, .netns = ns, .args = args
	};
	if (e->code != ERR_NONE || oci_write_config(o, &built, &spec, e) != 0)
		return -1;
	struct oci_run r = { .rt = rt,
		.id = id,
		.bundle = bundle,
		.in_fd = -1,
		.log_fd = fd,
		.as = oci_as_root_of_range(o, rt) ? &ids : NULL,
		.ids = o->ids,
		.hide = oci_hide(o, rt) };
	return oci_run(&r, e);
}

static void try(struct oci *o, struct oci_runtime *rt)
{
	char id[ID_MAX], bundle[BUNDLE_PATH];
	struct err e = { 0 }, later = { 0 };
	auto_buf struct buf words = BUF(BUNDLE_WORDS_MAX);
	id_make("sbx", id);
	if (bundle_path(bundle, &e, "%s/b/%s", o->dir, id) != 0 || run_true(o, rt, id, bundle, &e) != 0) {
		bundle_words(bundle, o->dir, &words);
		/* The last line is the one that says why. */
		const char *last = strrchr(buf_c(&words), '\n');
		(void)snprintf(rt->why_not, sizeof rt->why_not, "%s: %.150s", rt->binary,
		    strcmp(buf_c(&words), "no output") == 0 ? e.msg
			: last == NULL                      ? buf_c(&words)
							    : last + 1);
	}
	/* What is left of a failed try is the reaper's, like everything with a bundle and no row. */
	(void)oci_destroy(&o->d, id, clock_ms() + 10000, &later);
}

static void probe(struct oci *o, struct oci_runtime *rt)
{
	try(o, rt);
	if (!rt->kernel || rt->why_not[0] == '\0')
		return;
	/* One that does not work so works perhaps with a network stack of its own: then its sandboxes reach nothing at all. */
	char with_ours[sizeof rt->why_not];
	memcpy(with_ours, rt->why_not, sizeof with_ours);
	rt->why_not[0] = '\0';
	rt->own_network = true;
	try(o, rt);
	if (rt->why_not[0] == '\0')
		log_warn("gVisor sandboxes can only be deny-all on this host", "why", with_ours);
	else
		(void)snprintf(rt->why_not, sizeof rt->why_not, "%s", with_ours);
}

/* "" is the preferred binary, which must work then, or the first that does and has no kernel of its own. */
static const struct oci_runtime *pick_default(const struct oci *o, const char *prefer)
{
	for (int i = 0; i < OCI_RUNTIMES; i++) {
		const struct oci_runtime *rt = &o->rt[i];
		bool meant = prefer[0] != '\0' ? strcmp(rt->binary, prefer) == 0 : !rt->kernel;
		if (meant && rt->why_not[0] == '\0')
			return rt;
	}
	return NULL;
}

static bool already(const struct oci *o, const char *name, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(o->offered[i], name) == 0)
			return true;
	return false;
}

static bool wanted(const char *only, const char *boundary)
{
	struct str rest = str_of(only), one;
	while (str_cut(&rest, ' ', &one))
		if (str_eq(one, boundary))
			return true;
	return only[0] == '\0';
}

bool oci_no_namespaces(char why[ERR_MSG_MAX])
{
	static const char *const argv[] = { "unshare", "--user", "--mount", "--pid", "--fork", "--net",
		"--ipc", "--uts", "true", NULL };
	struct proc_opts o = {
		.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .timeout_ms = UNSHARE_MS
	};
	auto_proc struct proc_result res = { 0 };
	struct err e = { 0 };
	if (proc_run(&o, &res, &e) != 0 || res.exit_code == 0)
		return false;
	const char *said = buf_c(&res.errout), *last = strrchr(said, ':');
	(void)snprintf(why, ERR_MSG_MAX,
	    "This host permits no namespaces (%.*s; a plain chroot never does), so nothing can be isolated "
	    "here. On "
	    "a developer's machine SANDBOX_DRIVER=process with SANDBOX_ALLOW_UNISOLATED=1 runs sandboxes "
	    "without any isolation.",
	    (int)strcspn(last == NULL ? "" : last + 2, "\n"), last == NULL ? "" : last + 2);
	return true;
}

void oci_probe(struct oci *o, const struct oci_opts *opts)
{
	auto_buf struct buf why = BUF(sizeof o->refusal - 1);
	int n = 0;
	for (int i = 0; i < OCI_RUNTIMES; i++) {
		if (!wanted(opts->only, o->rt[i].boundary))
			(void)snprintf(
			    o->rt[i].why_not, sizeof o->rt[i].why_not, "%s: not wanted", o->rt[i].binary);
		else
			probe(o, &o->rt[i]);
		if (o->rt[i].why_not[0] != '\0')
			(void)buf_fmt(&why, "%s%s", why.n == 0 ? "" : "; ", o->rt[i].why_not);
	}
	o->dflt = pick_default(o, opts->prefer);
	if (o->dflt != NULL)
		o->offered[n++] = "";
	for (int i = 0; i < OCI_RUNTIMES; i++)
		if (o->rt[i].why_not[0] == '\0' && !already(o, o->rt[i].boundary, n))
			o->offered[n++] = o->rt[i].boundary;
	o->offered[n] = NULL;
	if (n > 0 || !oci_no_namespaces(o->refusal))
		(void)snprintf(o->refusal, sizeof o->refusal, "%s", buf_c(&why));
}
