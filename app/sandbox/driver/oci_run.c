/* oci_run.c - calls of a runtime, and what it is given. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/js.h"
#include "io/file.h"
#include "io/proc.h"
#include "sandbox/driver/oci_int.h"

enum { WORDS_LINES = 20, ARGS_MAX = 24, CONFIG_MAX = 256 * 1024 };

int oci_path(char out[OCI_PATH], struct err *e, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(out, OCI_PATH, fmt, ap);
	va_end(ap);
	return n < OCI_PATH ? 0 : err_set(e, ERR_INTERNAL, "A path of the sandbox directory is too long.");
}

int oci_put(const char *path, const void *p, size_t n, mode_t mode, struct err *e)
{
	auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0 || fd_write_all(fd, p, n) != 0)
		return err_set(
		    e, ERR_UNAVAILABLE, "A file of a sandbox could not be written: %s.", strerror(errno));
	return 0;
}

int oci_run(const struct oci_run *r, struct err *e)
{
	char root[OCI_PATH], pid_file[OCI_PATH];
	const char *argv[ARGS_MAX] = { r->rt->binary, "--root", root };
	size_t n = 3;
	if (oci_path(root, e, "%s/state", r->bundle) != 0 || oci_path(pid_file, e, "%s/pid", r->bundle) != 0)
		return -1;
	for (const char *const *f = r->rt->flags; *f != NULL; f++)
		argv[n++] = *f;
	argv[n++] = "run";
	if (r->detach)
		argv[n++] = "--detach";
	argv[n++] = "--pid-file";
	argv[n++] = pid_file;
	argv[n++] = "--bundle";
	argv[n++] = r->bundle;
	argv[n++] = r->id;
	struct proc_opts o = { .argv = argv,
		.stdin_fd = r->in_fd,
		.stdout_fd = r->log_fd,
		.stderr_fd = r->log_fd,
		.leaves = r->detach,
		.timeout_ms = OCI_START_MS };
	auto_proc struct proc_result res = { 0 };
	if (proc_run(&o, &res, e) != 0)
		return -1;
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
	return oci_put(passwd, users.p, users.n, 0644, e) != 0 ? -1
							       : oci_put(group, groups.p, groups.n, 0644, e);
}

int oci_write_config(const struct oci *o, const struct oci_runtime *rt, const char *bundle, const char *id,
    const char *socket_dir, uid_t uid_base, int netns, const struct driver_limits *limits,
    const char *const *args, struct err *e)
{
	char root[OCI_PATH], cgroup[OCI_PATH], ns[64], file[OCI_PATH], passwd[OCI_PATH], group[OCI_PATH];
	if (oci_path(passwd, e, "%s/passwd", bundle) != 0 || oci_path(group, e, "%s/group", bundle) != 0 ||
	    (!o->userns && write_accounts(passwd, group, uid_base + IMAGE_UID, e) != 0))
		return -1;
	if (oci_path(root, e, "%s/root", o->dir) != 0 || oci_path(cgroup, e, "%s/%s", o->cgroup, id) != 0 ||
	    oci_path(file, e, "%s/config.json", bundle) != 0)
		return -1;
	(void)snprintf(ns, sizeof ns, "/proc/%d/fd/%d", getpid(), netns);
	struct oci_config c = { .root = root,
		.etc = o->etc.path,
		.socket_dir = socket_dir,
		.cgroup = cgroup,
		.netns = netns < 0 ? NULL : ns,
		.uid_base = uid_base,
		.userns = o->userns,
		.passwd = passwd,
		.group = group,
		.kernel = rt->kernel,
		.swap = o->cg.swap,
		.args = args,
		.limits = *limits };
	for (int i = 0; i < OCI_RLIMITS; i++) {
		struct rlimit own = { .rlim_max = RLIM_INFINITY };
		(void)getrlimit((unsigned)oci_rlimits[i].resource, &own);
		c.rlimit_max[i] = own.rlim_max > LLONG_MAX ? LLONG_MAX : (long long)own.rlim_max;
	}
	auto_json json_t *j = oci_config(&c);
	auto_buf struct buf text = BUF(CONFIG_MAX);
	if (js_dump_buf(&text, j) != 0)
		return err_set(e, ERR_INTERNAL, "A sandbox's configuration is too large.");
	return oci_put(file, text.p, text.n, 0600, e);
}

/* The last OCI_WORDS_MAX of the log; the number of bytes, 0 for none. */
static size_t log_tail(const char *file, char out[OCI_WORDS_MAX])
{
	auto_fd int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) != 0)
		return 0;
	ssize_t n = pread(
	    fd, out, OCI_WORDS_MAX, st.st_size > OCI_WORDS_MAX ? st.st_size - OCI_WORDS_MAX : 0);
	return n < 0 ? 0 : (size_t)n;
}

void oci_words(const struct oci *o, const char *id, struct buf *out)
{
	char file[OCI_PATH], tail[OCI_WORDS_MAX];
	struct err ignored = { 0 };
	size_t n = 0, from, lines = 0, dir_n = strlen(o->dir);
	if (oci_path(file, &ignored, "%s/b/%s/log", o->dir, id) == 0)
		n = log_tail(file, tail);
	while (n > 0 && isspace((unsigned char)tail[n - 1]))
		n--;
	if (n == 0) {
		(void)buf_str(out, "no output");
		return;
	}
	for (from = n; from > 0; from--)
		if (tail[from - 1] == '\n' && ++lines == WORDS_LINES)
			break;
	for (size_t i = from; i < n; i++) {
		if (n - i >= dir_n && memcmp(tail + i, o->dir, dir_n) == 0) {
			(void)buf_str(out, "…");
			i += dir_n - 1;
		} else {
			(void)buf_chr(
			    out, tail[i] == '\n' || isprint((unsigned char)tail[i]) ? tail[i] : '?');
		}
	}
}
