/*
 * http.h - the one HTTP client, over libcurl or, for what thousands do at once, on connections of its own: buffered and streaming
 * requests to sandboxd (unix socket), to our own public door and to back ends. HTTP/HTTPS only, no redirects unless asked, every timeout
 * explicit, no environment proxies.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/secret.h"

void http_setup(void); /* once per process, before threads; SIGPIPE is ignored from then on */

struct http_res;
struct http_req {
	const char *method, *url;
	const char *unix_socket; /* NULL: TCP */
	const char *ca_file;     /* NULL: the system's */
	const char
	    *pin; /* "host:port:address,…" of reach_pin: connected to there; NULL: as the name resolves */
	const char *const *headers;  /* "Name: value", ended by NULL; may be NULL */
	const struct secret *bearer; /* sent as Authorization: Bearer; never logged */
	const void *body;
	size_t body_n;
	/* Streaming body instead of `body`: fill p with up to n bytes; 0 at the end, -1 aborts. */
	ssize_t (*body_read)(void *arg, void *p, size_t n);
	/* Streaming reply: called for each piece of a 2xx reply's body; -1 aborts. NULL: collected into res->body. */
	int (*on_data)(void *arg, const char *p, size_t n);
	/* Once, when the head of the final reply is there and before its body: status and fields of res are set. -1 aborts. May be
	 * NULL. */
	int (*on_head)(void *arg, const struct http_res *res);
	/* With keep: once, when the body is sent and is not looked at any more. May be NULL, and may not be called. */
	void (*on_sent)(void *arg);
	bool any_status; /* on_data is given the body of a reply of any status */
	/* Asked a few times a second; true aborts (client gone, run stopped). May be NULL. */
	bool (*cancelled)(void *arg);
	void *arg;
	int connect_ms, total_ms, idle_ms; /* idle: longest silence; total and idle 0 mean none */
	/* A moment of clock_ms() at which it ends with ERR_TIMEOUT, looked at all the time: on_head and on_data may move it. NULL, or 0
	 * there: none. */
	const int64_t *until_ms;
	/* With `keep`: it was wholly sent on a connection that closed without a word, and may have been done. 0: send it again; -1: that is
	 * the end. NULL: always again. */
	int (*on_again)(void *arg);
	size_t max_reply_bytes; /* of a collected body; 0: 1 MiB */
	size_t piece_bytes;     /* of the buffer for what is read; 0: 64 KiB */
	bool decode;            /* a gzip or deflate body is asked for and unpacked */
	/* Leave the connection open for the next such request to the same scheme, host and port, of any thread. A request that meets
	 * a connection that was closed meanwhile is sent again on a new one. With an address as its host, or a pin, it does without curl
	 * (http_keep.c). */
	bool keep;
};
struct http_res {
	int status;
	struct buf body; /* when streaming: the start of a reply that is not 2xx */
	char content_type[80];
	char location[512];
	int64_t retry_after_ms; /* Retry-After in either of its forms, or retry-after-ms; -1: none */
};

/*
 * 0 when a whole reply was received, whatever its status; -1: ERR_UNAVAILABLE (no connection), ERR_TIMEOUT, ERR_UPSTREAM
 * (cut, too large), ERR_INTERNAL (our own request cannot be sent). A request that `cancelled` or another callback ended is
 * ERR_TIMEOUT with reason "cancelled". res->status and ->location are set from a head that came before a failure. Redirects are answered, not followed. Free res with http_res_free in any case.
 */
int http_do(const struct http_req *q, struct http_res *res, struct err *e);
void http_res_free(struct http_res *res);
/* Percent-encode for one path segment or query value, in the arena. */
char *http_escape(struct mem *m, const char *s);
/* Turn an error envelope of one of our own servers back into e (code from status, message and param kept). Returns -1. */
int http_envelope(const struct http_res *res, struct err *e);
