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
	FCGI_HEAD_WAIT_S = 5,   /* nginx sends all parameters at once */
	FCGI_BODY_WAIT_S = 90,  /* above nginx's client_body_timeout */
	FCGI_WRITE_WAIT_S = 90, /* above nginx's send_timeout: it gives a stuck client up before we do */
	FCGI_REQUEST_S = 60,    /* ctx.deadline_ms of what is not a stream */
	FCGI_DRAIN_S = 20,
	FCGI_CUT_WAIT_S = 3,
	FCGI_RETRY_S = 2,
	FCGI_LEFT = 499, /* nginx's word in logs for who left before there was an answer; nobody is sent it */
};

/* Threads that wait for connections at the same time; more come as these have got one. They share an epoll, where everything is armed
 * for one event: it wakes one of them, the same one again and again where little is to be done. */
enum { FCGI_SEATS = 4 };
/* Whose an event of it is: these two's, or a kept connection's number. */
enum { FCGI_LISTENER, FCGI_STOP, FCGI_FIRST_NUMBER };
struct fcgi_kept;

/* One request, from accept to its log line. Where it was not queued one thread has it all the time. */
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
	bool read;                /* to its end */
	bool keep;                /* nginx keeps the connection */
	struct fcgi_kept *kept;   /* of an earlier request; NULL: it is new */
	bool wire;                /* fcgi_wire_begin was called: libfcgi's streams are gone */
	struct buf gathered;      /* and this waits for the next flush */
	long long body_announced; /* Content-Length, -1 when not said */
	size_t body_read, body_max;
	char request_id[65];
	int64_t started_us;
};

struct fcgi {
	struct fcgi_opts o;
	struct routes *routes;  /* of o.tables */
	int listen_fd, stop_fd; /* stop_fd: an eventfd, readable once draining */
	int seat_fd;            /* an epoll: what those who sit wait for */
	int spare_fd;           /* kept for when there is no other */
	atomic_bool draining;
	bool drained;
	pthread_mutex_t lock;       /* everything below */
	pthread_cond_t work, fewer; /* for who is parked; for the drain */
	struct fcgi_kept *kept;     /* connections between two requests */
	int n_kept;
	uint64_t kept_numbers;          /* given so far */
	bool closed;                    /* nobody accepts any more */
	struct fcgi_call *first, *last; /* queue */
	struct fcgi_call *streams;
	/* All threads; those that are parked, and how many of these were called; those that accept; those that read what they
	 * have accepted, outside a seat; those that run a call (W); those with a stream. */
	int n_threads, n_parked, n_called, n_seated, n_heads, n_busy, n_streams;
	int n_queued;
	long long accepted, refused;
};

/* fcgi_socket.c: the listening descriptor (non-blocking, close-on-exec), or -1 with e. */
int fcgi_socket(const char *path_or_null, const char *group_or_null, struct err *e);

/* fcgi_request.c */
struct fcgi_call *fcgi_call_new(struct fcgi *f);
void fcgi_call_free(struct fcgi_call *k); /* finishes the FastCGI request */
/* To its log line; an OP_STREAM or OP_LONG op passes fcgi_stream. Takes the call; true: it was a stream at its end. */
bool fcgi_request(struct fcgi_call *k);
/* Answer with an error instead of running it; logged. Takes the call. */
void fcgi_refuse(struct fcgi_call *k, const struct err *e);

/* fcgi_accept.c */
void fcgi_seats_open(struct fcgi *f);
void fcgi_seats_close(struct fcgi *f);
void fcgi_watch(struct fcgi *f, int how, int fd, uint32_t events, uint64_t whose); /* epoll_ctl on seat_fd */
/* A connection with something to read, new or kept; -1: nobody is accepted any more. */
int fcgi_accept(struct fcgi *f, struct fcgi_kept **kept);
/* Up to its parameters' end; NULL: it was none. Takes fd and kept. */
struct fcgi_call *fcgi_read_call(struct fcgi *f, int fd, struct fcgi_kept *kept);

/* fcgi_kept.c */
int fcgi_kept_take(struct fcgi *f, uint64_t number, struct fcgi_kept **out); /* -1: it was ended */
/* Wait for its next request, or close it in a drain. h: what it was taken as; NULL: it is new. */
void fcgi_kept_put(struct fcgi *f, struct fcgi_kept *h, int fd);
bool fcgi_kept_drop(struct fcgi *f); /* the newest, for its descriptor; false: there is none */
void fcgi_kept_end(struct fcgi *f);  /* all; the lock is held */

/* fcgi_input.c: path, query and body as one checked object; NULL with e. */
json_t *fcgi_input(struct fcgi_call *k, const struct route *route, json_t *path_params, struct err *e);

/* fcgi_reply.c */
extern const struct reply_vt fcgi_reply_vt;
void fcgi_reply_json(struct fcgi_call *k, int status, const json_t *v);
void fcgi_reply_error(struct fcgi_call *k, const struct err *e);
const char *fcgi_param(const struct fcgi_call *k, const char *name);

/* fcgi_wire.c: from here on the reply's records are written by us. The body was read to its end, nothing was written yet. */
void fcgi_wire_begin(struct fcgi_call *k);
int fcgi_wire_write(struct fcgi_call *k, const char *p, size_t n); /* -1: the client is gone */
int fcgi_wire_flush(struct fcgi_call *k);
void fcgi_wire_end(struct fcgi_call *k);

/* fcgi.c: from here on k is a stream and no longer one of the W; -1 with e when there are too many. */
int fcgi_stream(struct fcgi_call *k, struct err *e);
void fcgi_stream_end(struct fcgi_call *k);
