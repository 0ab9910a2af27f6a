/*
 * unpack.c - a tar stream becomes files (SBX-47). Every path of it is judged by path.c like any other, when it is used; a link's
 * target must lead to the workspace as it is written, and is judged again by whoever follows it. Files take their place whole; the first
 * entry that cannot be made ends it, named, and those before it stay.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "box/path.h"
#include "box/tar.h"
#include "box/xfer.h"

enum { ENTRIES_MAX = 200 * 1000, DIR_MODE = 0755, OWNER = 0700 };

struct unpacking {
	struct xfer x; /* moved counts entries */
	char base[LIMIT_PATH_BYTES];
	char full[64]; /* the root that it is in */
	struct tar_in tar;
	struct path_at at; /* of the file under way */
	bool at_target;    /* what failed last was where a link leads to */
	struct fresh_file f;
};

static void close_unpacking(struct xfer *x)
{
	struct unpacking *u = (struct unpacking *)x;
	fresh_close(&u->f);
	path_done(&u->at);
}

static int find(struct box *b, const struct unpacking *u, const char *path, int flags, struct path_at *at)
{
	char whole[2 * LIMIT_PATH_BYTES];
	(void)snprintf(whole, sizeof whole, "%s/%s", u->base, path);
	return path_find(b, whole, flags, at);
}

static int begin_file(struct box *b, struct unpacking *u)
{
	struct stat st;
	path_done(&u->at);
	int err = find(b, u, u->tar.entry.path, PATH_WRITE | PATH_PARENTS | PATH_KEEP, &u->at);
	if (err != 0)
		return err;
	bool there = fstatat(u->at.dir, u->at.name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	return there && S_ISDIR(st.st_mode) ? EISDIR : fresh_open(&u->f, u->at.dir, there);
}

static int end_file(struct unpacking *u)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = u->tar.entry.mtime_s } };
	if (u->f.name[0] == 0)
		return 0;
	(void)futimens(u->f.fd, times); /* a time that the file system cannot hold is no reason to fail */
	return fresh_place(&u->f, u->at.name, u->tar.entry.mode);
}

/* Its owner keeps all rights, so that what is in it can be made. */
static int make_dir(struct box *b, const struct unpacking *u)
{
	struct path_at at;
	int err = find(b, u, u->tar.entry.path, PATH_WRITE | PATH_PARENTS, &at);
	if (err == 0 && strcmp(at.name, ".") != 0 && mkdirat(at.dir, at.name, DIR_MODE) != 0 &&
	    errno != EEXIST)
		err = errno;
	int fd = err != 0 ? -1 : path_open_dir(at.dir, at.name);
	if (err == 0 && fd < 0)
		err = errno == ENOTDIR || errno == ELOOP ? EEXIST : errno;
	/* The top is the caller's own. */
	if (err == 0 && u->tar.entry.path[0] != 0 && fchmod(fd, u->tar.entry.mode | OWNER) != 0)
		err = errno;
	if (fd >= 0)
		(void)close(fd);
	path_done(&at);
	return err;
}

/* A link of either kind, made beside its place and then put there. */
static int place_link(const struct path_at *at, int from_dir, const char *from)
{
	char name[48];
	struct stat st;
	bool there = fstatat(at->dir, at->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	int err = there && S_ISDIR(st.st_mode)
	    ? EISDIR
	    : fresh_name(name, sizeof name, there ? FRESH_REPLACES : FRESH_NEW);
	if (err != 0)
		return err;
	int rc = from_dir < 0 ? symlinkat(from, at->dir, name) : linkat(from_dir, from, at->dir, name, 0);
	if (rc != 0)
		return errno;
	err = renameat(at->dir, name, at->dir, at->name) == 0 ? 0 : errno;
	(void)unlinkat(at->dir, name, 0); /* also of success: two names of one file are not renamed */
	return err;
}

static int make_link(struct box *b, struct unpacking *u)
{
	const struct tar_entry *e = &u->tar.entry;
	struct path_at at, from = { .dir = -1 };
	struct stat st;
	int err = find(b, u, e->path, PATH_WRITE | PATH_PARENTS | PATH_KEEP, &at);
	if (err == 0 && e->kind == TAR_LINK) {
		err = path_link(b, &at, e->target);
		u->at_target = err != 0;
		err = err != 0 ? err : place_link(&at, -1, e->target);
	} else if (err == 0) {
		err = find(b, u, e->target, PATH_WRITE, &from);
		if (err == 0 &&
		    (fstatat(from.dir, from.name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)))
			err = ENOENT;
		u->at_target = err != 0;
		err = err != 0 ? err : place_link(&at, from.dir, from.name);
	}
	path_done(&at);
	path_done(&from);
	return err;
}

static int begin_entry(struct box *b, struct unpacking *u)
{
	switch (u->tar.entry.kind) {
	case TAR_FILE:
		return begin_file(b, u);
	case TAR_DIR:
		return make_dir(b, u);
	default:
		return make_link(b, u);
	}
}

/* End it at an entry: `err`, or what the reader says of it. */
static void fail_entry(struct box *b, struct unpacking *u, int err)
{
	const char *why = err != 0 ? refusal_text(err) : u->tar.why;
	const char *path = u->tar.entry.path[0] == 0 ? "." : u->tar.entry.path;
	enum proto_fault fault = err == 0 ? PROTO_BAD : fault_of(err);
	size_t n = strlen(path);
	if (fault == PROTO_FULL)
		say_error(b, u->x.id, fault, "At `%s%.90s`: the sandbox's disk is full (%s).",
		    n > 90 ? "..." : "", n > 90 ? path + n - 90 : path, u->full);
	else
		say_error(b, u->x.id, fault, "At `%s%.90s`: %s%s", n > 90 ? "..." : "",
		    n > 90 ? path + n - 90 : path, u->at_target ? "its link target: " : "",
		    why != NULL ? why : strerror(err));
	xfer_close(b, &u->x);
}

/* Take what was sent. False: it has ended in an error. */
static bool take(struct box *b, struct unpacking *u, struct str in)
{
	for (;;) {
		int err = 0;
		switch (tar_next(&u->tar, &in)) {
		case TAR_MORE:
		case TAR_END:
			if (in.n == 0)
				return true;
			continue;
		case TAR_ENTRY:
			err = ++u->x.moved > ENTRIES_MAX ? E2BIG : begin_entry(b, u);
			break;
		case TAR_DATA:
			err = fresh_write(&u->f, (const unsigned char *)u->tar.data.p, u->tar.data.n);
			break;
		case TAR_DONE:
			err = end_file(u);
			break;
		case TAR_BAD:
			fail_entry(b, u, 0);
			return false;
		}
		if (err != 0) {
			fail_entry(b, u, err);
			return false;
		}
	}
}

static void data_unpacking(struct box *b, struct xfer *x, const unsigned char *p, size_t n)
{
	struct unpacking *u = (struct unpacking *)x;
	if (n > 0) {
		if (take(b, u, (struct str){ (const char *)p, n }))
			xfer_grant(b, x->id, n);
		return;
	}
	if (tar_is_whole(&u->tar)) {
		xfer_done(b, x);
		return;
	}
	u->tar.why = "the archive is cut short behind it";
	fail_entry(b, u, 0);
}

static const struct xfer_kind unpacking = { .data = data_unpacking, .close = close_unpacking };

void file_unpack(struct box *b, uint32_t id, const char *path)
{
	struct path_at at;
	struct unpacking *u = xfer_add(b, id, &unpacking, sizeof *u);
	if (u == NULL)
		return;
	u->at.dir = -1;
	int err = path_find(b, path, PATH_WRITE | PATH_PARENTS, &at);
	if (err == 0) {
		(void)snprintf(u->base, sizeof u->base, "%s", at.path);
		(void)snprintf(u->full, sizeof u->full, "%s", at.root->path);
		err = make_dir(b, u);
	}
	path_done(&at);
	if (err != 0)
		xfer_fail(b, &u->x, err, u->full);
}
