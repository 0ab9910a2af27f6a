#include "sandbox/inspect.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

const char *const inspect_names[INSPECT_LINES] = { "kernel", "network", "capabilities", "mounts" };

/* Where a sandbox may write: itself, and what is below. */
static const char *const declared[] = { "/mnt/data", "/tmp", "/state", "/dev/shm", NULL };

void inspect_script(const struct inspect_host *h, struct buf *out)
{
	(void)buf_str(out,
	    "exec 2>/dev/null\n"
	    "echo \"version=$(cat /proc/version)\"; echo \"boot=$(cat /proc/sys/kernel/random/boot_id)\"\n"
	    "while read -r l; do echo \"status=${l//[[:space:]]/ }\"; done </proc/self/status\n"
	    "while IFS=: read -r i r; do [ -z \"$r\" ] || echo \"if=${i// /}\"; done </proc/net/dev\n"
	    "n=0; while read -r l; do [ $n = 0 ] || echo \"route=$l\"; n=1; done </proc/net/route\n"
	    "dial() { e=$( (LC_ALL=C timeout 3 bash -c \": <>/dev/tcp/$1\") 2>&1); s=$?\n"
	    "  [ $s = 124 ] && e='timed out'; [ $s = 0 ] && echo \"open=$1\" || echo \"closed=$1 ${e##*: "
	    "}\"; }\n"
	    "try() { if [ -d \"$1\" ] && (: >\"$1/.gatehouse-doctor\"); then rm -f \"$1/.gatehouse-doctor\"; "
	    "echo \"write=$1\"; fi; }\n"
	    "for d in / /usr /usr/bin /usr/local /etc /opt /srv /boot /home /root /var /var/lib /run /sys "
	    "/proc /work; do "
	    "try $d; done\n"
	    "while read -r a d r; do try \"$d\"; done </proc/mounts\n");
	(void)buf_fmt(out, "try '%s'; dial 127.0.0.1/%d; dial 169.254.169.254/80\n", h->workdir, h->port);
	if (h->listener != NULL)
		(void)buf_fmt(out, "dial %s\n", h->listener);
	for (const char *const *p = h->hidden; *p != NULL; p++)
		if (strchr(*p, '\'') == NULL)
			(void)buf_fmt(out, "[ -e '%s' ] && echo 'sees=%s'\n", *p, *p);
	(void)buf_str(out, "echo end=\n");
}

/* The next line of that kind: what stands behind its "=", or false. */
static bool next(struct str *rest, const char *kind, struct str *value)
{
	struct str line;
	size_t n = strlen(kind);
	while (str_cut(rest, '\n', &line))
		if (line.n > n && memcmp(line.p, kind, n) == 0 && line.p[n] == '=') {
			*value = (struct str){ line.p + n + 1, line.n - n - 1 };
			return true;
		}
	return false;
}

static bool first(const char *said, const char *kind, char *out, size_t size)
{
	struct str rest = str_of(said), v = { 0 };
	bool there = next(&rest, kind, &v);
	(void)snprintf(out, size, "%.*s", (int)v.n, there ? v.p : "");
	return there && v.n > 0;
}

static int kernel(const struct inspect_host *h, bool own, const char *said, struct buf *seen, struct err *e)
{
	char version[256], boot[64];
	if (!first(said, "version", version, sizeof version))
		return err_set(e, ERR_UPSTREAM, "It does not say which kernel it runs on.");
	bool same = first(said, "boot", boot, sizeof boot)
	    ? strcmp(boot, h->boot_id) == 0
	    : strncmp(version, h->version, strlen(version)) == 0;
	if (own && same)
		return err_set(e, ERR_UPSTREAM,
		    "Its lease says that it has a kernel of its own, and it runs on the host's.");
	return buf_fmt(seen, "%s: %.60s", same ? "the host's" : "its own", version);
}

/* One line of /proc/self/status, "Name: value". */
static bool status(const char *said, const char *name, char *out, size_t size)
{
	struct str rest = str_of(said), v;
	size_t n = strlen(name);
	while (next(&rest, "status", &v))
		if (v.n > n + 1 && memcmp(v.p, name, n) == 0 && v.p[n] == ':') {
			size_t skip = n + 1;
			while (skip < v.n && v.p[skip] == ' ')
				skip++;
			(void)snprintf(out, size, "%.*s", (int)(v.n - skip), v.p + skip);
			return true;
		}
	return false;
}

static int capabilities(bool own, const char *said, struct buf *seen, struct err *e)
{
	static const char *const sets[] = { "CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb" };
	char v[64];
	for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
		if (status(said, sets[i], v, sizeof v) ? strspn(v, "0") != strlen(v) : i < 3)
			return err_set(e, ERR_UPSTREAM, "Its commands have capabilities: %s %s.", sets[i], v);
	if (!status(said, "Uid", v, sizeof v) || str_starts(v, "0 "))
		return err_set(e, ERR_UPSTREAM, "Its commands run as uid 0.");
	/* A kernel of its own filters for itself, and need not tell. */
	if (!own && (!status(said, "NoNewPrivs", v, sizeof v) || strcmp(v, "1") != 0))
		return err_set(
		    e, ERR_UPSTREAM, "Its commands may gain privileges (no-new-privileges is off).");
	if (!own && (!status(said, "Seccomp", v, sizeof v) || strcmp(v, "2") != 0))
		return err_set(e, ERR_UPSTREAM, "No seccomp profile holds its commands.");
	return buf_str(seen, "none, and no way to one");
}

static bool has(struct str text, const char *part)
{
	return memmem(text.p, text.n, part, strlen(part)) != NULL;
}

static int network(const struct inspect_host *h, const char *said, struct buf *seen, struct err *e)
{
	struct str rest = str_of(said), v;
	int tried = 0;
	while (next(&rest, "if", &v))
		if (!str_eq(v, "lo"))
			return err_set(e, ERR_UPSTREAM, "It has the network interface %.*s.", (int)v.n, v.p);
	rest = str_of(said);
	if (next(&rest, "route", &v))
		return err_set(e, ERR_UPSTREAM, "It has a route out.");
	rest = str_of(said);
	if (next(&rest, "open", &v))
		return err_set(e, ERR_UPSTREAM, "It reaches %.*s.", (int)v.n, v.p);
	rest = str_of(said);
	while (next(&rest, "closed", &v)) {
		/* Only the kernel's own answers count: a shell that cannot dial at all has proved nothing. */
		if (has(v, "refused") || has(v, "unreachable") || has(v, "No route to host") ||
		    has(v, "timed out"))
			tried++;
		else
			return err_set(e, ERR_UPSTREAM, "It could not be tried out: %.*s.", (int)v.n, v.p);
	}
	if (tried != (h->listener == NULL ? 2 : 3))
		return err_set(e, ERR_UPSTREAM, "It could not be tried out.");
	return buf_str(seen,
	    h->listener == NULL
		? "loopback only (this host has no address of its own that could be tried)"
		: "loopback only: neither this host, which can be reached here, nor the metadata address");
}

static bool is_declared(struct str path)
{
	for (const char *const *d = declared; *d != NULL; d++) {
		size_t n = strlen(*d);
		if (path.n >= n && memcmp(path.p, *d, n) == 0 && (path.n == n || path.p[n] == '/'))
			return true;
	}
	return false;
}

static int mounts(const struct inspect_host *h, const char *said, struct buf *seen, struct err *e)
{
	struct str rest = str_of(said), v;
	bool work = false, tmp = false;
	while (next(&rest, "write", &v)) {
		if (!is_declared(v))
			return err_set(e, ERR_UPSTREAM, "It can write to %.*s.", (int)v.n, v.p);
		work = work || str_eq(v, h->workdir);
		tmp = tmp || str_eq(v, "/tmp");
	}
	rest = str_of(said);
	if (next(&rest, "sees", &v))
		return err_set(e, ERR_UPSTREAM, "It sees the host's %.*s.", (int)v.n, v.p);
	if (!work || !tmp) /* the control: where writing must work */
		return err_set(e, ERR_UPSTREAM, "It cannot write to its own working directory or /tmp.");
	return buf_str(seen, "only the declared paths can be written, nothing of gatehouse is seen");
}

int inspect_judge(enum inspect_line line, const struct inspect_host *h, bool own_kernel, const char *said,
    struct buf *seen, struct err *e)
{
	struct str rest = str_of(said), v;
	if (!next(&rest, "end", &v))
		return err_set(e, ERR_UPSTREAM, "The inspection inside did not come to its end.");
	switch (line) {
	case INSPECT_KERNEL:
		return kernel(h, own_kernel, said, seen, e);
	case INSPECT_NETWORK:
		return network(h, said, seen, e);
	case INSPECT_CAPABILITIES:
		return capabilities(own_kernel, said, seen, e);
	case INSPECT_MOUNTS:
		return mounts(h, said, seen, e);
	default:
		return err_set(e, ERR_INTERNAL, "There is no such inspection.");
	}
}

/* ---- what outlives a lease */

#define EVERYWHERE "/work /tmp /state /state/home /mnt/data /dev/shm"

void inspect_leave_script(const char *token, struct buf *out)
{
	(void)buf_fmt(out,
	    "for d in " EVERYWHERE
	    "; do [ -d $d ] && echo '%s' >$d/.gatehouse-doctor && echo \"left=$d\"; done "
	    "2>/dev/null; echo end=\n",
	    token);
}

void inspect_find_script(struct buf *out)
{
	(void)buf_str(out,
	    "for d in " EVERYWHERE "; do [ -e $d/.gatehouse-doctor ] && "
	    "echo \"kept=$d $(cat $d/.gatehouse-doctor)\"; done; echo end=\n");
}

static int places(const char *said, const char *kind)
{
	struct str rest = str_of(said), v;
	int n = 0;
	while (next(&rest, kind, &v))
		n++;
	return n;
}

int inspect_outlived(const char *token, const char *left, const char *found, struct buf *seen, struct err *e)
{
	struct str rest = str_of(found), v;
	bool volume = false;
	int n = places(left, "left");
	if (strstr(left, "end=") == NULL || strstr(found, "end=") == NULL)
		return err_set(e, ERR_UPSTREAM, "The inspection inside did not come to its end.");
	if (n < 3) /* the control: that nothing is found proves nothing where nothing was left */
		return err_set(e, ERR_UPSTREAM, "The first lease could write in %d places only.", n);
	while (next(&rest, "kept", &v)) {
		if (v.n < 6 || memcmp(v.p, "/work ", 6) != 0)
			return err_set(e, ERR_UPSTREAM,
			    "What one lease wrote to %.*s is there in the next one.",
			    (int)strcspn(v.p, " \n"), v.p);
		volume = v.n == 6 + strlen(token) && memcmp(v.p + 6, token, v.n - 6) == 0;
	}
	if (!volume)
		return err_set(e, ERR_UPSTREAM, "What was written to /work is not there in the next lease.");
	return buf_fmt(seen, "of %d places one outlived its lease: the volume", n);
}
