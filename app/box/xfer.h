/*
 * xfer.h - inside the box: file requests that last longer than one frame (SBX-47). Each kind has a struct of its own that begins
 * with struct xfer. Whatever a kind holds is given back by its `close`, which is also how an unfinished one is undone.
 */
#pragma once

#include <sys/stat.h>

#include "box/box.h"

struct xfer;
struct xfer_kind {
	/* Go on, without waiting; true when something was queued or done. It may end the request. NULL: only `data` moves it. */
	bool (*pump)(struct box *b, struct xfer *x);
	/* A DATA frame for it; n 0 is the end. NULL: it takes none. */
	void (*data)(struct box *b, struct xfer *x, const unsigned char *p, size_t n);
	void (*close)(struct xfer *x);
	uint64_t least; /* its pump has nothing to do with less credit; only of kinds with a poll_fd */
};
struct xfer {
	struct xfer *next;
	uint32_t id;
	const struct xfer_kind *kind;
	uint64_t credit; /* bytes that may still be sent */
	uint64_t moved;  /* what DONE tells */
	int poll_fd; /* owned; its pump has something to do when it can be read, but not before due_ms; -1: none */
	int64_t due_ms; /* then its pump has something to do, too; 0: only by poll_fd */
};

/* A zeroed struct of `size` bytes in the list; NULL: the request was refused. */
void *xfer_add(struct box *b, uint32_t id, const struct xfer_kind *kind, size_t size);
void xfer_done(struct box *b, struct xfer *x);
/* Refuse a request with the text of an errno; xfer_fail ends one that has begun. `full`: the directory on whose disk there is no
 * room, or NULL. */
const char *refusal_text(int err); /* NULL: it has none */
void refuse(struct box *b, uint32_t id, int err, const char *full);
void xfer_fail(struct box *b, struct xfer *x, int err, const char *full);
/* Has it credit, and the client's buffer room? */
bool xfer_wants(const struct box *b, const struct xfer *x);
/* Say that n bytes more may come. */
void xfer_grant(struct box *b, uint32_t id, size_t n);
/* The FILE frame. */
void say_file(struct box *b, uint32_t id, const struct stat *st);

uint8_t kind_of(mode_t mode); /* PROTO_KIND_* */
int64_t mtime_of(const struct stat *st);
