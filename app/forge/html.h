/*
 * html.h - HTML out of text that others made. Everything put in is escaped; what a reader could not see or that changes how the
 * rest is read (control characters, bidirectional overrides, invalid bytes) becomes visible.
 */
#pragma once

#include "base/buf.h"

/* Text between tags; what became visible is marked up. */
void html_esc(struct buf *b, const char *p, size_t n);
/* The same without markup: an attribute's value in double quotes, a title. */
void html_attr(struct buf *b, const char *p, size_t n);
/* A template: each "{}" is replaced by the next argument as text, each "{=}" by it as an attribute's value. Arguments are strings,
 * as many as there are holes. */
#define HTML(b, template, ...) html_fill(b, template, (const char *const[]){ __VA_ARGS__, NULL })
void html_fill(struct buf *b, const char *template, const char *const *args);
