/* fcgi_int.h - what the files of the server core share. Nobody else includes this; libfcgi stays in here (design: io/fcgi). */
#pragma once

#define NO_FCGI_DEFINES
#include <fcgiapp.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/id.h"
#include "base/mem.h"
#include "io/fcgi.h"

enum {
	FCGI_HEAD_WAIT_S =
	    5, /* nginx sends all parameters at once; a peer that does not may stall an acceptor this long */
	FCGI_BODY_WAIT_S = 90,  /* above nginx's client_body_timeout */
	FCGI_WRITE_WAIT_S = 90, /* above nginx's send_timeout: it gives a stuck client up before we do */
	FCGI_REQUEST_S = 60,    /* ctx.deadline_ms of what is not a stream */
	FCGI_DRAIN_S = 20,
	FCGI_CUT_WAIT_S = 3,
	FCGI_RETRY_S = 2,
};

enum { N_ACCEPTORS = 2 };

/* One request, from accept to its log line. Made by an acceptor, run by a worker, maybe finished by a stream thread. */
struct fcgi_call {
	struct reply reply; /* first: the reply_vt functions get this pointer */
	struct fcgi *f;
	struct fcgi_call *next; /* in the queue, or in the list of streams */
	FCGX_Request req;
	struct mem *mem;
	struct ctx c;
	const struct op *op; /* NULL until routed */
	json_t *in;
	bool head;                /* HEAD: nothing is sent after the head */
	bool gone;                /* a write failed */
	bool streaming;           /* in f->streams */
	bool too_large, cut;      /* what was wrong with the body */
	long long body_announced; /* Content-Length, -1 when not said */
	size_t body_read, body_max;
	char request_id[65];
	int64_t started_us;
};

struct fcgi {
	struct fcgi_opts o;
	int listen_fd, stop_fd; /* stop_fd: an eventfd, readable once draining */
	atomic_bool draining;
	bool drained;
	pthread_t acceptors[N_ACCEPTORS], *workers;
	pthread_mutex_t lock; /* everything below */
	pthread_cond_t ready, streams_less;
	struct fcgi_call *first, *last; /* queue */
	struct fcgi_call *streams;
	int n_queued, n_streams, n_busy, acceptors_left;
	long long accepted, refused;
};

/* fcgi_socket.c: the listening descriptor (non-blocking, close-on-exec), or -1 with e. */
int fcgi_socket(const char *path_or_null, const char *group_or_null, struct err *e);

/* fcgi_request.c */
struct fcgi_call *fcgi_call_new(struct fcgi *f);
void fcgi_call_free(struct fcgi_call *k); /* finishes the FastCGI request */
/* Up to the handler; an OP_STREAM or OP_LONG op goes on in a thread through fcgi_stream. Takes the call. */
void fcgi_request(struct fcgi_call *k);
/* Answer with an error instead of running it; logged. Takes the call. */
void fcgi_refuse(struct fcgi_call *k, const struct err *e);
/* The handler and the reply; takes the call. */
void fcgi_finish(struct fcgi_call *k);

/* fcgi_input.c: path, query and body as one checked object; NULL with e. */
json_t *fcgi_input(struct fcgi_call *k, const struct route *route, json_t *path_params, struct err *e);

/* fcgi_reply.c */
extern const struct reply_vt fcgi_reply_vt;
void fcgi_reply_json(struct fcgi_call *k, int status, const json_t *v);
void fcgi_reply_error(struct fcgi_call *k, const struct err *e, const char *allow);
const char *fcgi_param(const struct fcgi_call *k, const char *name);

/* fcgi.c: run fcgi_finish(k) in a thread of its own; -1 with e when there are too many. */
int fcgi_stream(struct fcgi_call *k, struct err *e);
void fcgi_stream_end(struct fcgi_call *k);
