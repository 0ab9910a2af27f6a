/*
 * tar.h - the tar format (POSIX.1-2017, pax), as far as files, directories and links need it: no I/O, no allocation. The reader is
 * given bytes in any pieces and trusts none of them; paths come out relative, without empty, "." and ".." components.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/str.h"

enum { TAR_BLOCK = 512, TAR_META_MAX = 32 * 1024, TAR_HEAD_MAX = 4 * LIMIT_PATH_BYTES };

enum tar_kind { TAR_FILE, TAR_DIR, TAR_LINK, TAR_HARD_LINK };
struct tar_entry {
	enum tar_kind kind;
	uint32_t mode; /* permission bits, no others */
	uint64_t size; /* FILE */
	int64_t mtime_s;
	char path[LIMIT_PATH_BYTES];   /* "" for the top itself, a DIR */
	char target[LIMIT_PATH_BYTES]; /* LINK: as it is; HARD_LINK: another entry's path */
};

/* ---- reading */

enum tar_got {
	TAR_MORE,  /* all bytes are used up */
	TAR_ENTRY, /* `entry` is the next one */
	TAR_DATA,  /* `data`: bytes of it */
	TAR_DONE,  /* it is complete: after every entry, also one without data */
	TAR_END,   /* of the archive; what follows means nothing */
	TAR_BAD,   /* `why` says what is wrong; `entry.path` is the last one known, "" before the first */
};
struct tar_in {
	struct tar_entry entry;
	struct str data;
	const char *why;
	/* its own */
	enum { TAR_AT_HEAD, TAR_AT_META, TAR_AT_DATA, TAR_AT_PAD, TAR_AT_END, TAR_AT_BAD } at;
	unsigned char block[TAR_BLOCK];
	size_t block_n;
	bool begun; /* a head was read */
	uint64_t left, pad;
	unsigned char meta_type;
	char meta[TAR_META_MAX];
	size_t meta_n;
	struct { /* said before the entry's own head */
		bool path, target, size, mtime;
	} given;
	struct tar_entry next;
};
/* Zeroed is its beginning. Takes what it uses off the front of `in`. */
enum tar_got tar_next(struct tar_in *t, struct str *in);
/* Between two entries, or at the end: what has been read is whole. */
bool tar_is_whole(const struct tar_in *t);

/* ---- writing */

/* The head of an entry: bytes put into `to`, a multiple of TAR_BLOCK. */
size_t tar_head(const struct tar_entry *e, unsigned char to[TAR_HEAD_MAX]);
/* Zeros that follow n bytes of data. */
size_t tar_pad(uint64_t n);
