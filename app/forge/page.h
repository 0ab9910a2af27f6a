/*
 * page.h - the page of a branch (FRG-5): works without JavaScript, has no resource outside itself, and allows none by its
 * Content-Security-Policy but its one style sheet.
 */
#pragma once

#include "forge/view.h"
#include "op/op.h"

extern const char page_css[]; /* page_css.c */

/* Answer with the page of what was read. REPLIED, or NULL with e when it became too large. */
json_t *page_branch(struct ctx *c, const struct view *v, struct err *e);
/* Answer with a small page that says what is wrong (401 with its challenge, 404, ...); `inside`: whoever asks may see the repository,
 * and is shown the way to it. */
json_t *page_error(struct ctx *c, const struct err *why, bool inside);
