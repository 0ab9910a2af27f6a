/* http_unpack.h - private to io/http*.c: a gzip or deflate body, as it comes. */
#pragma once

#include <stdbool.h>

#include "base/str.h"

struct http_unpack;
struct http_unpack *http_unpack_new(void);
void http_unpack_free(struct http_unpack *u); /* NULL is fine */
/* All that p gives, at once, to `give`. -1: it is not packed so, or `give` said -1. */
int http_unpack_feed(
    struct http_unpack *u, struct str p, int (*give)(void *arg, const char *p, size_t n), void *arg);
bool http_unpack_whole(const struct http_unpack *u); /* nothing, or up to its own end */
