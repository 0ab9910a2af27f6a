/* head_int.h - what the readers of requests and of answers share. */
#pragma once

#include "egress/head.h"

/*
 * The next whole line p[*line, *line + *line_n) without its CRLF. HEAD_MORE when it has not come; HEAD_BAD: too long, a bare LF, or
 * a control character.
 */
enum head_step head_line(
    struct head_scan *s, const char *p, size_t n, size_t *line, size_t *line_n, enum egress_reason *why);
/* One field line; REASON_OK or what is wrong with it. */
enum egress_reason head_field(struct head_scan *s, const char *p, size_t line, size_t line_n);

bool head_token(const char *p, size_t n);      /* RFC 9110 5.6.2, not empty */
bool head_is(struct str s, const char *lower); /* without case */
/* Take the next name, value and end off fields that were read already. */
bool head_next(struct str *fields, struct str *name, struct str *value);
/* Is it a hop-by-hop field, or one that Connection names? Framing and Host are never dropped for being named there. */
bool head_hop(struct str fields, struct str name);

/* Bytes appended to a bounded text. */
struct head_out {
	char *p;
	size_t n, size;
	bool full;
};
void head_put(struct head_out *o, const char *p, size_t n);
void head_puts(struct head_out *o, const char *s);
