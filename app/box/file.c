/* file.c - files in and out of the workspace, in constant memory (SBX-47). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "box/box.h"
#include "box/path.h"

enum { DATA_HEAD = 8, LIST_BYTES = 32 * 1024, LIST_LOOKS = 64, DENTS_BYTES = 2048 };

enum xfer_kind { XFER_READ, XFER_WRITE, XFER_LIST };
struct xfer {
	struct xfer *next;
	uint32_t id;
	enum xfer_kind kind;
	int fd;
	struct path_at at; /* WRITE: dir is -1 otherwise */
	char tmp[48];      /* WRITE: the neighbour that becomes the file */
	uint32_t mode;
	bool keep_mode;
	uint64_t offset, left, credit, moved;
	/* LIST: directory entries read and not yet told */
	char dents[DENTS_BYTES] __attribute__((aligned(8)));
	size_t dents_at, dents_n;
};

struct xfer *xfer_find(struct box *b, uint32_t id)
{
	for (struct xfer *x = b->xfers; x != NULL; x = x->next)
		if (x->id == id)
			return x;
	return NULL;
}

void xfer_close(struct box *b, struct xfer *x)
{
	struct xfer **at = &b->xfers;
	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	b->n_xfers--;
	if (x->fd >= 0)
		(void)close(x->fd);
	if (x->tmp[0] != 0)
		(void)unlinkat(x->at.dir, x->tmp, 0);
	if (x->at.dir >= 0)
		(void)close(x->at.dir);
	free(x);
}

static struct xfer *xfer_add(struct box *b, uint32_t id, enum xfer_kind kind)
{
	struct xfer *x = b->n_xfers >= XFERS_MAX ? NULL : calloc(1, sizeof *x);
	if (x == NULL) {
		say_error(b, id, PROTO_NO_ROOM, "Too many file requests at once.");
		return NULL;
	}
	x->id = id;
	x->kind = kind;
	x->fd = x->at.dir = -1;
	x->next = b->xfers;
	b->xfers = x;
	b->n_xfers++;
	return x;
}

static const char *fault_text(int err)
{
	switch (err) {
	case EXDEV:
		return "The path is outside the workspace.";
	case ENOENT:
		return "There is no such file.";
	case EISDIR:
		return "That is a directory.";
	case ENOTDIR:
		return "A part of the path is not a directory.";
	case EINVAL:
	case ENXIO:
		return "That is neither a file nor a directory.";
	case EACCES:
	case EPERM:
		return "The permissions of the path do not allow it.";
	case EROFS:
		return "The path cannot be written to.";
	case ENAMETOOLONG:
		return "The path, or one name in it, is too long.";
	case ELOOP:
		return "The path leads through too many symbolic links.";
	case ETXTBSY:
		return "That is a program which is running.";
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return "The sandbox's disk is full: remove files, or lease a sandbox with a larger "
		       "`limits.diskMb`.";
	case ENOMEM:
	case EMFILE:
	case ENFILE:
		return "The sandbox has no memory or descriptors left: try again.";
	default:
		return NULL;
	}
}

static void refuse(struct box *b, uint32_t id, int err)
{
	const char *text = fault_text(err);
	if (text != NULL)
		say_error(b, id, fault_of(err), "%s", text);
	else
		say_error(b, id, fault_of(err), "The file system refused it: %s.", strerror(err));
}

static void fail(struct box *b, struct xfer *x, int err)
{
	refuse(b, x->id, err);
	xfer_close(b, x);
}

static void describe(const struct stat *st, const char *name, struct proto_file *f)
{
	*f = (struct proto_file){
		.kind = S_ISREG(st->st_mode) ? PROTO_KIND_FILE
		    : S_ISDIR(st->st_mode)   ? PROTO_KIND_DIR
		    : S_ISLNK(st->st_mode)   ? PROTO_KIND_LINK
					     : PROTO_KIND_OTHER,
		.mode = st->st_mode & 07777,
		.size = st->st_size < 0 ? 0 : (uint64_t)st->st_size,
		.mtime_ms = (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000,
		.name = name,
	};
}

static void say_file(struct box *b, uint32_t id, const struct stat *st)
{
	unsigned char p[64];
	struct proto_out o = { .p = p, .cap = sizeof p };
	struct proto_file f;
	describe(st, "", &f);
	proto_file_put(&o, &f);
	say(b, PROTO_FILE, id, p, o.n);
}

/* Open what a request names and tell what it is; -1: the request was answered. */
static int open_told(struct box *b, uint32_t id, const char *path, bool dirs, struct stat *st)
{
	int fd = path_open(b, path);
	int err = fd < 0 ? errno : 0;
	if (err == 0 && fstat(fd, st) != 0)
		err = errno;
	if (err == 0 && S_ISDIR(st->st_mode) && !dirs)
		err = EISDIR;
	if (err == 0) {
		say_file(b, id, st);
		return fd;
	}
	if (fd >= 0)
		(void)close(fd);
	refuse(b, id, err);
	return -1;
}

void file_stat(struct box *b, uint32_t id, const char *path, bool entries)
{
	struct stat st;
	int fd = open_told(b, id, path, true, &st);
	if (fd < 0)
		return;
	if (!entries || !S_ISDIR(st.st_mode)) {
		(void)close(fd);
		say_done(b, id, 0);
		return;
	}
	struct xfer *x = xfer_add(b, id, XFER_LIST);
	if (x == NULL)
		(void)close(fd);
	else
		x->fd = fd;
}

void file_read(
    struct box *b, uint32_t id, const char *path, uint64_t offset, uint64_t length, uint64_t credit)
{
	struct stat st;
	if (offset > INT64_MAX) {
		refuse(b, id, EINVAL);
		return;
	}
	int fd = open_told(b, id, path, false, &st);
	if (fd < 0)
		return;
	struct xfer *x = xfer_add(b, id, XFER_READ);
	if (x == NULL) {
		(void)close(fd);
		return;
	}
	x->fd = fd;
	x->offset = offset;
	x->left = length > INT64_MAX - offset ? INT64_MAX - offset : length;
	x->credit = credit;
}

void file_write(struct box *b, uint32_t id, const char *path, uint32_t mode)
{
	struct xfer *x = xfer_add(b, id, XFER_WRITE);
	if (x == NULL)
		return;
	struct path_at at;
	int err = path_find(b, path, true, &at);
	if (err != 0) {
		fail(b, x, err);
		return;
	}
	x->at = at;
	struct stat st;
	bool there = fstatat(at.dir, at.name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (there && !S_ISREG(st.st_mode)) {
		fail(b, x, S_ISDIR(st.st_mode) ? EISDIR : EINVAL);
		return;
	}
	x->keep_mode = mode == UINT32_MAX;
	x->mode = !x->keep_mode ? mode & 0777 : there ? st.st_mode & 0777 : 0644;
	(void)snprintf(x->tmp, sizeof x->tmp, ".gatehouse-%u-%d", id, (int)getpid());
	x->fd = openat(at.dir, x->tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (x->fd < 0) {
		err = errno;
		x->tmp[0] = 0;
		fail(b, x, err);
	}
}

static void finish_write(struct box *b, struct xfer *x)
{
	int err = fchmod(x->fd, x->mode) != 0 ? errno : 0;
	if (err == 0 && renameat(x->at.dir, x->tmp, x->at.dir, x->at.name) != 0)
		err = errno;
	if (err != 0) {
		fail(b, x, err);
		return;
	}
	x->tmp[0] = 0;
	say_done(b, x->id, x->moved);
	xfer_close(b, x);
}

void xfer_data(struct box *b, struct xfer *x, const unsigned char *p, size_t n)
{
	if (x->kind != XFER_WRITE)
		return;
	if (n == 0) {
		finish_write(b, x);
		return;
	}
	for (size_t at = 0; at < n;) {
		ssize_t put = write(x->fd, p + at, n - at);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0) {
			fail(b, x, put == 0 ? ENOSPC : errno);
			return;
		}
		at += (size_t)put;
	}
	x->moved += n;
	unsigned char credit[4];
	struct proto_out o = { .p = credit, .cap = sizeof credit };
	proto_put_u32(&o, (uint32_t)n);
	say(b, PROTO_CREDIT, x->id, credit, sizeof credit);
}

void xfer_credit(struct xfer *x, uint32_t n)
{
	x->credit += n;
}

static bool pump_read(struct box *b, struct xfer *x)
{
	size_t n = x->left < PROTO_DATA_MAX ? (size_t)x->left : PROTO_DATA_MAX;
	if (n > x->credit)
		n = (size_t)x->credit;
	if (n == 0 && x->left > 0)
		return false;
	static unsigned char piece[PROTO_DATA_MAX];
	ssize_t got = n == 0 ? 0 : pread(x->fd, piece, n, (off_t)x->offset);
	if (got < 0) {
		fail(b, x, errno);
		return true;
	}
	if (got == 0) {
		say_done(b, x->id, x->moved);
		xfer_close(b, x);
		return true;
	}
	unsigned char *to = say_room(b, PROTO_DATA, x->id, DATA_HEAD + (size_t)got);
	if (to == NULL)
		return false;
	struct proto_out o = { .p = to, .cap = DATA_HEAD + (size_t)got };
	proto_put_u64(&o, x->offset);
	proto_put_bytes(&o, piece, (size_t)got);
	x->offset += (uint64_t)got;
	x->left -= (uint64_t)got;
	x->credit -= (uint64_t)got;
	x->moved += (uint64_t)got;
	return true;
}

/* The next entry, or NULL at the end. */
static const struct dirent64 *next_entry(struct xfer *x)
{
	if (x->dents_at >= x->dents_n) {
		long n = syscall(SYS_getdents64, x->fd, x->dents, sizeof x->dents);
		if (n <= 0)
			return NULL;
		x->dents_at = 0;
		x->dents_n = (size_t)n;
	}
	const struct dirent64 *d = (const struct dirent64 *)(const void *)(x->dents + x->dents_at);
	x->dents_at += d->d_reclen;
	return d;
}

static bool pump_list(struct box *b, struct xfer *x)
{
	static unsigned char p[LIST_BYTES];
	struct proto_out o = { .p = p, .cap = sizeof p };
	const struct dirent64 *d = NULL;
	if (b->client->out_n - b->client->out_at > OUT_SOFT)
		return false;
	int looked = 0; /* a look at a file may be slow, and everybody waits for it */
	while (looked++ < LIST_LOOKS && o.n + 512 < sizeof p && x->moved < PROTO_ENTRIES_MAX &&
	    (d = next_entry(x)) != NULL) {
		struct stat st;
		struct proto_file f;
		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 ||
		    fstatat(x->fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		describe(&st, d->d_name, &f);
		proto_file_put(&o, &f);
		x->moved++;
	}
	if (o.n > 0)
		say(b, PROTO_ENTRIES, x->id, p, o.n);
	bool cut = x->moved >= PROTO_ENTRIES_MAX;
	if (d == NULL || cut) {
		say_done(b, x->id, cut && next_entry(x) != NULL);
		xfer_close(b, x);
	}
	return true;
}

bool xfer_pump(struct box *b)
{
	bool moved = false;
	for (struct xfer *x = b->xfers, *next; x != NULL && b->client != NULL; x = next) {
		next = x->next;
		if (x->kind == XFER_READ)
			moved |= pump_read(b, x);
		else if (x->kind == XFER_LIST)
			moved |= pump_list(b, x);
	}
	return moved;
}
