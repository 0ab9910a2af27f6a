/* patch.h - a unified diff as git writes it, into HTML tables with line numbers; pure. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/str.h"

enum { PATCH_LINES = 3000, PATCH_LINE_BYTES = 1000 };

/* The part of one file: from its "diff --git" line to the next one. `rest` moves behind it; false at the end. Lines inside a hunk
 * are counted by its header, so nothing a file contains can pass for the beginning of another. */
bool patch_next(struct str *rest, struct str *file);
/* Does it hold lines to show (no: a pure rename, a mode, a binary file)? */
bool patch_has_lines(struct str file);
/* Table rows of the file's hunks, at most *budget lines, which is lowered; false when lines were left out. A changed line that
 * replaces one other has the differing middle marked. */
bool patch_rows(struct buf *b, struct str file, int *budget);
