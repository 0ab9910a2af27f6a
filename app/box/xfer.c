/* xfer.c - what all file requests share: their list, their refusals. */
#include "box/xfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
	x->kind->close(x);
	free(x);
}

void *xfer_add(struct box *b, uint32_t id, const struct xfer_kind *kind, size_t size)
{
	struct xfer *x = b->n_xfers >= XFERS_MAX ? NULL : calloc(1, size);
	if (x == NULL) {
		say_error(b, id, PROTO_NO_ROOM, "Too many file requests at once.");
		return NULL;
	}
	x->id = id;
	x->kind = kind;
	x->poll_fd = -1;
	x->next = b->xfers;
	b->xfers = x;
	b->n_xfers++;
	return x;
}

const char *refusal_text(int err)
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
	case EEXIST:
		return "There is something at that path already.";
	case ENOTEMPTY:
		return "The directory is not empty.";
	case EINVAL:
	case ENXIO:
		return "That is neither a file nor a directory.";
	case EACCES:
	case EPERM:
		return "The permissions of the path do not allow it.";
	case EROFS:
		return "The path cannot be written to.";
	case EBUSY:
		return "The path is one that the workspace itself needs.";
	case ENAMETOOLONG:
		return "The path, or one name in it, is too long.";
	case ELOOP:
		return "The path leads through too many symbolic links.";
	case ETXTBSY:
		return "That is a program which is running.";
	case E2BIG:
		return "There are too many entries.";
	case ENOMEM:
	case EMFILE:
	case ENFILE:
		return "The sandbox has no memory or descriptors left: try again.";
	default:
		return NULL;
	}
}

void refuse(struct box *b, uint32_t id, int err, const char *full)
{
	const char *text = refusal_text(err);
	if (fault_of(err) == PROTO_FULL && full != NULL && strlen(full) < 64)
		say_error(b, id, PROTO_FULL,
		    "The sandbox's disk is full (%s): remove files, or lease with a larger `limits.diskMb`.",
		    full);
	else if (fault_of(err) == PROTO_FULL)
		say_error(b, id, PROTO_FULL,
		    "The sandbox's disk is full: remove files, or lease with a larger `limits.diskMb`.");
	else if (text != NULL)
		say_error(b, id, fault_of(err), "%s", text);
	else
		say_error(b, id, fault_of(err), "The file system refused it: %s.", strerror(err));
}

void xfer_fail(struct box *b, struct xfer *x, int err, const char *full)
{
	refuse(b, x->id, err, full);
	xfer_close(b, x);
}

void xfer_done(struct box *b, struct xfer *x)
{
	say_done(b, x->id, x->moved);
	xfer_close(b, x);
}

void xfer_grant(struct box *b, uint32_t id, size_t n)
{
	unsigned char p[4];
	struct proto_out o = { .p = p, .cap = sizeof p };
	proto_put_u32(&o, (uint32_t)n);
	say(b, PROTO_CREDIT, id, p, sizeof p);
}

void xfer_data(struct box *b, struct xfer *x, const unsigned char *p, size_t n)
{
	if (x->kind->data != NULL)
		x->kind->data(b, x, p, n);
}

void xfer_credit(struct xfer *x, uint32_t n)
{
	x->credit += n;
}

bool xfer_pump(struct box *b)
{
	bool moved = false;
	for (struct xfer *x = b->xfers, *next; x != NULL && b->client != NULL; x = next) {
		next = x->next;
		if (x->kind->pump != NULL)
			moved |= x->kind->pump(b, x);
	}
	return moved;
}

bool xfer_wants(const struct box *b, const struct xfer *x)
{
	return b->client != NULL && x->credit >= x->kind->least &&
	    b->client->out_n - b->client->out_at <= OUT_SOFT;
}

int xfer_poll(const struct box *b, const struct xfer *x, int64_t now)
{
	return x->poll_fd >= 0 && now >= x->due_ms && xfer_wants(b, x) ? x->poll_fd : -1;
}

int64_t xfer_next_ms(const struct box *b)
{
	int64_t at = INT64_MAX;
	for (const struct xfer *x = b->xfers; x != NULL; x = x->next)
		if (x->due_ms != 0 && x->due_ms < at && xfer_wants(b, x))
			at = x->due_ms;
	return at;
}

const struct xfer *xfer_after(const struct box *b, const struct xfer *x)
{
	return x == NULL ? b->xfers : x->next;
}

uint8_t kind_of(mode_t mode)
{
	return S_ISREG(mode) ? PROTO_KIND_FILE
	    : S_ISDIR(mode)  ? PROTO_KIND_DIR
	    : S_ISLNK(mode)  ? PROTO_KIND_LINK
			     : PROTO_KIND_OTHER;
}

int64_t mtime_of(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000;
}

void say_file(struct box *b, uint32_t id, const struct stat *st)
{
	unsigned char p[64];
	struct proto_out o = { .p = p, .cap = sizeof p };
	struct proto_file f = { .kind = kind_of(st->st_mode),
		.mode = st->st_mode & 07777,
		.size = st->st_size < 0 ? 0 : (uint64_t)st->st_size,
		.mtime_ms = mtime_of(st),
		.name = "" };
	proto_file_put(&o, &f);
	say(b, PROTO_FILE, id, p, o.n);
}
