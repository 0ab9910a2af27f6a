/*
 * pack.c - a folder as a tar stream (SBX-47): what is in it, links as they are, in constant memory. Pipes, sockets and devices are
 * left out, and what goes away meanwhile; a file that gets shorter while it is read ends the stream, as the archive would not be true.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "box/path.h"
#include "box/tar.h"
#include "box/walk.h"
#include "box/xfer.h"

enum { DATA_HEAD = 8, STEPS = 64, END_BYTES = 2 * TAR_BLOCK };

struct packing {
	struct xfer x; /* moved counts bytes */
	struct walk walk;
	int fd;            /* the file that is sent; -1 */
	uint64_t at, left; /* of it */
	size_t zeros;      /* to be sent behind it, or at the end */
	bool ending;
	struct tar_entry e;
	unsigned char head[TAR_HEAD_MAX];
	size_t head_at, head_n;
};

static void close_packing(struct xfer *x)
{
	struct packing *p = (struct packing *)x;
	walk_end(&p->walk);
	if (p->fd >= 0)
		(void)close(p->fd);
}

/* The next thing of the folder: its head is made, a file is opened. 0, or an errno. */
static int next(struct packing *p)
{
	struct stat st;
	const char *name = walk_next(&p->walk, &st);
	if (name == NULL) {
		p->ending = p->walk.err == 0;
		p->zeros = END_BYTES;
		return p->walk.err;
	}
	int dir = walk_dir(&p->walk);
	p->e.kind = S_ISDIR(st.st_mode) ? TAR_DIR : S_ISLNK(st.st_mode) ? TAR_LINK : TAR_FILE;
	p->e.target[0] = 0;
	if (p->e.kind == TAR_LINK) {
		ssize_t n = readlinkat(dir, name, p->e.target, sizeof p->e.target - 1);
		if (n < 0)
			return 0;
		p->e.target[n] = 0;
	} else if (p->e.kind == TAR_FILE) {
		if (!S_ISREG(st.st_mode))
			return 0;
		/* A link put here since is refused; what is opened is looked at again. */
		p->fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (p->fd < 0)
			return errno == ENOENT || errno == ELOOP || errno == ENXIO ? 0 : errno;
		if (fstat(p->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
			(void)close(p->fd);
			p->fd = -1;
			return 0;
		}
	}
	p->e.mode = st.st_mode & 0777;
	p->e.mtime_s = st.st_mtim.tv_sec;
	p->at = 0;
	p->e.size = p->left = p->e.kind == TAR_FILE ? (uint64_t)st.st_size : 0;
	(void)snprintf(p->e.path, sizeof p->e.path, "%s", p->walk.path);
	p->head_at = 0;
	p->head_n = tar_head(&p->e, p->head);
	p->zeros = tar_pad(p->left);
	return walk_into(&p->walk, &st);
}

static size_t least(size_t a, uint64_t b)
{
	return a < b ? a : (size_t)b;
}

/* Up to n bytes of the archive into `to`; 0 with *err 0: none for now, or it is over. */
static size_t fill(struct packing *p, unsigned char *to, size_t n, int *err)
{
	*err = 0;
	for (int i = 0; i < STEPS; i++) {
		size_t some = least(n, p->head_n - p->head_at);
		if (some > 0) {
			memcpy(to, p->head + p->head_at, some);
			p->head_at += some;
			return some;
		}
		if (p->left > 0) {
			ssize_t got = pread(p->fd, to, least(n, p->left), (off_t)p->at);
			*err = got < 0 ? errno : got == 0 ? ENODATA : 0;
			if (got <= 0)
				return 0;
			p->at += (uint64_t)got;
			p->left -= (uint64_t)got;
			return (size_t)got;
		}
		if (p->zeros > 0) {
			some = least(n, p->zeros);
			memset(to, 0, some);
			p->zeros -= some;
			return some;
		}
		if (p->fd >= 0)
			(void)close(p->fd);
		p->fd = -1;
		if (p->ending)
			return 0;
		*err = next(p);
		if (*err != 0)
			return 0;
	}
	return 0;
}

static void fail(struct box *b, struct packing *p, int err)
{
	const char *why = err == ENODATA ? "it became shorter while it was read." : refusal_text(err);
	const char *path = p->walk.path;
	size_t n = strlen(path);
	say_error(b, p->x.id, err == ENODATA ? PROTO_CONFLICT : fault_of(err), "At `%s%.90s`: %s",
	    n > 90 ? "..." : "", n > 90 ? path + n - 90 : path, why != NULL ? why : strerror(err));
	xfer_close(b, &p->x);
}

static bool pump_packing(struct box *b, struct xfer *x)
{
	static unsigned char piece[PROTO_DATA_MAX];
	struct packing *p = (struct packing *)x;
	size_t room = least(sizeof piece, x->credit), n = 0, got;
	int err = 0;
	if (room == 0 || b->client->out_n - b->client->out_at + DATA_HEAD + sizeof piece > OUT_SOFT)
		return false;
	while (n < room && (got = fill(p, piece + n, room - n, &err)) > 0)
		n += got;
	unsigned char *to = n == 0 ? NULL : say_room(b, PROTO_DATA, x->id, DATA_HEAD + n);
	if (n > 0 && to == NULL) { /* there was room, so there is no memory: what was read is lost */
		xfer_fail(b, x, ENOMEM, NULL);
		return true;
	}
	if (n > 0) {
		struct proto_out o = { .p = to, .cap = DATA_HEAD + n };
		proto_put_u64(&o, x->moved);
		proto_put_bytes(&o, piece, n);
		x->moved += n;
		x->credit -= n;
	}
	if (err != 0)
		fail(b, p, err);
	else if (p->ending && p->zeros == 0)
		xfer_done(b, x);
	return true;
}

static const struct xfer_kind packing = { .pump = pump_packing, .close = close_packing };

void file_pack(struct box *b, uint32_t id, const char *path, uint64_t credit)
{
	struct path_at at;
	struct packing *p = xfer_add(b, id, &packing, sizeof *p);
	if (p == NULL)
		return;
	p->fd = -1;
	p->x.credit = credit;
	int err = path_find(b, path, 0, &at);
	if (err == 0)
		err = walk_begin(&p->walk, &at);
	path_done(&at);
	if (err != 0)
		xfer_fail(b, &p->x, err, NULL);
}
