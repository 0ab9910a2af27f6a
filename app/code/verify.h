/*
 * verify.h - what came out of a sandbox, judged in quarantine before anybody else sees it (COD-7). Everything about it is
 * hostile: the pack's bytes, and the id that is said to be its tip.
 */
#pragma once

#include <jansson.h>

#include "code/rgit.h"

enum {
	VERIFY_PACK_BYTES = 256
	    << 20, /* a change, not a data set; the same bound holds while it leaves the sandbox */
	VERIFY_BLOB_BYTES = 100 << 20, /* common forges refuse larger files, and so would a mirror of ours */
	VERIFY_OBJECTS = 200 * 1000,   /* new objects of one run */
	VERIFY_PATH_BYTES = 4096,      /* PATH_MAX: a longer one cannot be checked out */
	VERIFY_NAME_BYTES = 255,       /* NAME_MAX */
};

/*
 * Index the pack at fd (from its start) into repo->quarantine, made here, and prove: every object is well-formed and no tree
 * or .gitmodules holds a trap (fsck), everything the tip needs is there, the tip is a commit, `base` is among its ancestors
 * (base "": none is needed), sizes, counts, names. *diffstat is a new reference:
 * {files, insertions, deletions, paths: [{path, insertions, deletions, binary}], repositories: [path], more}; a path that is
 * cut ends in "…". Refusals are ERR_BAD_REQUEST.
 */
int verify_pack(const struct rgit_repo *repo, int fd, const char *base, const char *tip, json_t **diffstat,
    struct err *e);
