/*
 * nginxtest.h - a real nginx in front of one FastCGI socket, for one test program: a temporary directory, unix sockets
 * only, one process, ended by its pid. And the raw HTTP client that can misbehave on purpose. Failures end the test.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct nginxtest;

/* `fcgi_socket` is read until nginxtest_end; nginx connects to it for each request only. */
struct nginxtest *nginxtest_start(void);
struct nginxtest *nginxtest_start_kept(void); /* keeps its connections to it */
void nginxtest_end(struct nginxtest *t);
const char *nginxtest_dir(const struct nginxtest *t);
const char *nginxtest_fcgi(const struct nginxtest *t); /* where the server under test must listen */

/* A connection to nginx's public or internal server; to the FastCGI socket itself. Reads end after 20 s. */
enum nginxtest_door { NGINX_PUBLIC, NGINX_INTERNAL, NGINX_FCGI };
int nginxtest_connect(const struct nginxtest *t, enum nginxtest_door door);
void nginxtest_send(int fd, const char *p, size_t n);
/* Until the peer closes. */
void nginxtest_read(int fd, struct buf *to);
/* One more line of the reply; false at its end. */
bool nginxtest_line(int fd, struct buf *line);

struct answer {
	int status;
	struct buf text; /* head and body */
	const char *body;
};
/* One whole exchange; `extra` are header lines, "\r\n" included, and may be "". */
void nginxtest_do(const struct nginxtest *t, enum nginxtest_door door, const char *method, const char *target,
    const char *extra, const char *body, struct answer *a);
/* The value of a header in `a`, or NULL. */
const char *answer_header(const struct answer *a, const char *name, char *out, size_t size);
void answer_free(struct answer *a);
