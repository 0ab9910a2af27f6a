/* e2b_files.h - what the calls on files at the door of the E2B SDK share. */
#pragma once

#include "handlers/e2b.h"

/* What each of them begins with: the user, the sandbox, and `field` of the message as an absolute path; NULL with e. */
const char *e2b_call_path(
    struct ctx *c, const json_t *in, const char *field, struct box_addr *a, struct err *e);
