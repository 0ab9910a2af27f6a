/* file.c - files in and out of the workspace, in constant memory (SBX-47). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/str.h"
#include "box/path.h"
#include "box/xfer.h"

enum { DATA_HEAD = 8 };

/* ---- reading */

struct reading {
	struct xfer x;
	int fd;
	uint64_t offset, left;
};

static void close_reading(struct xfer *x)
{
	(void)close(((struct reading *)x)->fd);
}

static bool pump_reading(struct box *b, struct xfer *x)
{
	struct reading *r = (struct reading *)x;
	size_t n = r->left < PROTO_DATA_MAX ? (size_t)r->left : PROTO_DATA_MAX;
	if (n > x->credit)
		n = (size_t)x->credit;
	if (n == 0 && r->left > 0)
		return false;
	static unsigned char piece[PROTO_DATA_MAX];
	ssize_t got = n == 0 ? 0 : pread(r->fd, piece, n, (off_t)r->offset);
	if (got < 0) {
		xfer_fail(b, x, errno, NULL);
		return true;
	}
	if (got == 0) {
		xfer_done(b, x);
		return true;
	}
	unsigned char *to = say_room(b, PROTO_DATA, x->id, DATA_HEAD + (size_t)got);
	if (to == NULL)
		return false;
	struct proto_out o = { .p = to, .cap = DATA_HEAD + (size_t)got };
	proto_put_u64(&o, r->offset);
	proto_put_bytes(&o, piece, (size_t)got);
	r->offset += (uint64_t)got;
	r->left -= (uint64_t)got;
	x->credit -= (uint64_t)got;
	x->moved += (uint64_t)got;
	return true;
}

static const struct xfer_kind reading = { .pump = pump_reading, .close = close_reading };

/* Open the file that a request names and tell what it is; -1: the request was answered. */
static int open_told(struct box *b, uint32_t id, const char *path)
{
	struct stat st;
	int fd = path_open(b, path);
	int err = fd < 0 ? errno : 0;
	if (err == 0 && fstat(fd, &st) != 0)
		err = errno;
	if (err == 0 && S_ISDIR(st.st_mode))
		err = EISDIR;
	if (err == 0) {
		say_file(b, id, &st);
		return fd;
	}
	if (fd >= 0)
		(void)close(fd);
	refuse(b, id, err, NULL);
	return -1;
}

void file_read(
    struct box *b, uint32_t id, const char *path, uint64_t offset, uint64_t length, uint64_t credit)
{
	if (offset > INT64_MAX) {
		refuse(b, id, EINVAL, NULL);
		return;
	}
	int fd = open_told(b, id, path);
	if (fd < 0)
		return;
	struct reading *r = xfer_add(b, id, &reading, sizeof *r);
	if (r == NULL) {
		(void)close(fd);
		return;
	}
	r->fd = fd;
	r->offset = offset;
	r->left = length > INT64_MAX - offset ? INT64_MAX - offset : length;
	r->x.credit = credit;
}

/* ---- writing: into a neighbour, which then takes the file's place in one step */

struct writing {
	struct xfer x;
	struct path_at at;
	struct fresh_file f;
};

static const char aside[] = ".gatehouse-";

enum fresh fresh_is(const char *name)
{
	if (!str_starts(name, aside))
		return FRESH_NOT;
	switch (name[sizeof aside - 1]) {
	case 'n':
		return FRESH_NEW;
	case 'r':
		return FRESH_REPLACES;
	case 'x':
		return FRESH_ASIDE;
	default:
		return FRESH_NOT;
	}
}

int fresh_name(char *to, size_t size, enum fresh what)
{
	static const char letters[] = { [FRESH_NEW] = 'n', [FRESH_REPLACES] = 'r', [FRESH_ASIDE] = 'x' };
	unsigned long long tail; /* by chance: a volume may hold one of an earlier sandbox */
	if (getrandom(&tail, sizeof tail, 0) != sizeof tail)
		return errno;
	(void)snprintf(to, size, "%s%c%016llx", aside, letters[what], tail);
	return 0;
}

int fresh_open(struct fresh_file *f, int dir, bool replaces)
{
	int err = fresh_name(f->name, sizeof f->name, replaces ? FRESH_REPLACES : FRESH_NEW);
	f->dir = dir;
	f->fd = err != 0 ? -1
			 : openat(dir, f->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (f->fd >= 0)
		return 0;
	f->name[0] = 0;
	return err != 0 ? err : errno;
}

void fresh_close(struct fresh_file *f)
{
	if (f->name[0] == 0)
		return;
	(void)close(f->fd);
	(void)unlinkat(f->dir, f->name, 0);
	f->name[0] = 0;
}

int fresh_write(struct fresh_file *f, const unsigned char *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t put = write(f->fd, p + at, n - at);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put == 0 ? ENOSPC : errno;
		at += (size_t)put;
	}
	return 0;
}

int fresh_place(struct fresh_file *f, const char *name, uint32_t mode)
{
	if (fchmod(f->fd, mode) != 0 || renameat(f->dir, f->name, f->dir, name) != 0)
		return errno;
	(void)close(f->fd);
	f->name[0] = 0;
	return 0;
}

static void close_writing(struct xfer *x)
{
	struct writing *w = (struct writing *)x;
	fresh_close(&w->f);
	path_done(&w->at);
}

static void data_writing(struct box *b, struct xfer *x, const unsigned char *p, size_t n)
{
	struct writing *w = (struct writing *)x;
	int err = n == 0 ? fresh_place(&w->f, w->at.name, w->f.mode) : fresh_write(&w->f, p, n);
	x->moved += n;
	if (err != 0)
		xfer_fail(b, x, err, w->at.root->path);
	else if (n == 0)
		xfer_done(b, x);
	else
		xfer_grant(b, x->id, n);
}

static const struct xfer_kind writing = { .data = data_writing, .close = close_writing };

void file_write(struct box *b, uint32_t id, const char *path, uint32_t mode)
{
	struct writing *w = xfer_add(b, id, &writing, sizeof *w);
	if (w == NULL)
		return;
	w->at.dir = -1;
	int err = path_find(b, path, PATH_WRITE | PATH_PARENTS, &w->at);
	struct stat st;
	bool there = err == 0 && fstatat(w->at.dir, w->at.name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (there && !S_ISREG(st.st_mode))
		err = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
	w->f.mode = mode != UINT32_MAX ? mode & 0777 : there ? st.st_mode & 0777 : 0644;
	if (err == 0)
		err = fresh_open(&w->f, w->at.dir, there);
	if (err != 0)
		xfer_fail(b, &w->x, err, w->at.dir < 0 ? NULL : w->at.root->path);
}
