/* cgi.h - what is read of git's wire: the head of a CGI reply (RFC 3875, 6.3), and whether a push names anything. Pure. */
#pragma once

#include <stddef.h>

#include "base/err.h"

enum { CGI_HEAD_MAX = 8192 };

struct cgi_head {
	int status;            /* 200 when none was said */
	char content_type[80]; /* "" when none was said */
};
/* The bytes that the head takes at p, its empty line included; 0 while it is not complete; -1 when it is malformed. */
int cgi_head_parse(const char *p, size_t n, struct cgi_head *h, struct err *e);

enum push_start { PUSH_MORE, PUSH_NOTHING, PUSH_COMMANDS };
/*
 * The beginning of a git-receive-pack request (pkt-lines): PUSH_NOTHING when the flush comes before any command, PUSH_COMMANDS
 * when a command or anything else comes first, PUSH_MORE when that cannot be said yet. *used is where the flush ends.
 * Only for an early and clear answer: what may be written is judged in the hook (FRG-3).
 */
enum push_start push_start(const char *p, size_t n, size_t *used);

/*
 * What a client did wrong, told from what git wrote to its standard error, as a sentence of ours; NULL when it is not known to
 * be the client's. git has one exit status for everything, and says it nowhere else.
 */
const char *cgi_client_fault(const char *said);
