/*
 * multipart.h - a multipart/form-data body (RFC 7578, RFC 2046) as it comes, in constant memory. Pure: the bytes come from a
 * call-back. Parts are taken one after the other; what of a part is not read is passed over.
 */
#pragma once

#include "base/err.h"
#include "base/mem.h"

enum { MULTIPART_BOUNDARY_MAX = 70, MULTIPART_HEAD_MAX = 8 * 1024 };

struct multipart;
/* content_type: the request's. read: bytes, 0 at the end, -1 when the client is gone. NULL with e: not this type, or no boundary.
 * In the arena. */
struct multipart *multipart_open(struct mem *m, const char *content_type,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, struct err *e);

struct multipart_part { /* of Content-Disposition, in the arena; NULL: not given */
	const char *name, *filename;
};
/* The next part: 1; 0 after the last; -1 with e. */
int multipart_next(struct multipart *m, struct multipart_part *part, struct err *e);
/* Bytes of the part that multipart_next gave: 0 at its end, -1 when the body is cut or broken. */
ssize_t multipart_read(struct multipart *m, void *p, size_t n);
