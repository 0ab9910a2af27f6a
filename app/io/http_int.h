/*
 * http_int.h - private to io/http*.c: what both ways of a request share. http.c goes through curl; http_keep.c speaks HTTP/1.1 itself,
 * on connections that are kept, for the requests that thousands of model calls make.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "io/http.h"

enum http_ending { HTTP_GOING, HTTP_CANCELLED, HTTP_TOO_LARGE, HTTP_TOTAL_PASSED, HTTP_IDLE_PASSED };

enum {
	HTTP_ASK_MS = 200,        /* how often cancel and idle are looked at */
	HTTP_CONNECT_MS = 5000,   /* where the request says nothing else */
	HTTP_HEADER_BYTES = 8192, /* of one that holds a credential */
};

/* The limits of one request in time. */
struct http_watch {
	const struct http_req *q;
	int64_t end_ms, last_ms, asked_ms; /* end_ms 0: no total limit */
	bool rests;                        /* it is silent, and has let go of what it can */
};
struct http_watch http_watch_new(const struct http_req *q);
void http_watch_moved(struct http_watch *w); /* something was sent or has come */
/* What must end it now: the caller's wish, its time, or silence. */
enum http_ending http_watch_look(struct http_watch *w);
int http_watch_wait_ms(
    const struct http_watch *w); /* longest useful wait: until the next question or limit */

/* A piece of the body: to on_data, or collected. */
enum http_ending http_take(const struct http_req *q, struct http_res *res, const char *p, size_t n);
/* -1, with e for an ending that is not HTTP_GOING. */
int http_ended(enum http_ending why, struct err *e);
int http_line_ok(const char *line, struct err *e); /* a header of the caller's */

/* http_keep.c: do a request that can go that way; true: it was one, *rc says how it ended. */
bool http_keep_do(const struct http_req *q, struct http_res *res, int *rc, struct err *e);
