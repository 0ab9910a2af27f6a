/*
 * http_pool.h - private to io/http*.c: handles of curl whose connection is kept for the next request to the same origin. A handle
 * belongs to one request at a time, so connections are never shared between threads, which curl does not do safely.
 */
#pragma once

#include <curl/curl.h>
#include <stdbool.h>

#include "io/http.h"

struct http_handle {
	CURLM *multi;
	CURL *easy;
	bool keep; /* give it to the pool afterwards */
	char origin[200];
};

/* Of the pool when q->keep and there is one, else new. Never fails: without memory the process ends. */
struct http_handle http_handle_take(const struct http_req *q);
/* `whole`: the exchange came to its end, so the connection may be used again. */
void http_handle_give(struct http_handle *h, bool whole);
