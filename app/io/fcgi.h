/*
 * fcgi.h - the FastCGI server core (libfcgi), shared by gatehouse-api and gatehouse-sandboxd.
 * The thread that accepts a request runs it; at most W of them at a time, and what comes meanwhile waits in a bounded queue; a full
 * queue answers 503 at once. An OP_STREAM or OP_LONG op does not count among the W but among the streams, up to max_streams (then
 * 503).
 * For every request: request id, route, identity (through the `identify` hook), limits, input check, handler, reply, log line.
 *
 * From nginx it needs the usual fastcgi_params (the path is DOCUMENT_URI: what nginx matched its locations with is what is
 * routed and authorised) and GATEHOUSE_DOOR "internal" on the internal server, "e2b" on that of the E2B SDK. An OP_HIDDEN op without
 * a valid credential is answered with a Basic challenge (git and browsers ask people for one), any other with Bearer.
 */
#pragma once

#include "base/err.h"
#include "op/op.h"

struct fcgi_opts {
	const char *socket_path;  /* bound here 0660, or taken from systemd (LISTEN_FDS) when NULL */
	const char *socket_group; /* NULL: as created */
	int workers, queue, max_streams;
	const struct op *const *tables;
	const struct conf *conf; /* what requests get as ctx.conf */
	struct pg_pool *db;      /* may be NULL */
	void *app;
	/* Find out who asks: 0 with *who (may stay NULL for nobody), or -1 with e (e.g. PostgreSQL away). */
	int (*identify)(struct ctx *c, const struct principal **who, struct err *e);
	/* May `who` run `op`? 0 or -1 with e. Called after routing, before the input is read. */
	int (*authorise)(struct ctx *c, const struct op *op, struct err *e);
	/* Run the op in place of op->run; may be NULL. */
	json_t *(*call)(struct ctx *c, const struct op *op, json_t *in, struct err *e);
	const char *(*org_of)(const struct principal *who); /* for the log line */
	/* After every request, for metrics; op is NULL when none was found; may be NULL. */
	void (*on_request)(void *app, const struct op *op, int status, int64_t duration_us);
	/* Once, when draining begins: wake whoever sleeps in a stream (it then sees reply_draining). May be NULL. */
	void (*on_drain)(void *app);
	int drain_s; /* streams that do not end themselves within this are cut; 0: 20 */
};

struct fcgi;
struct fcgi *fcgi_start(const struct fcgi_opts *o, struct err *e);
struct fcgi_stats {                      /* gauges, and counts since the start */
	int busy, queued, streams, kept; /* kept: connections of nginx between two requests */
	long long accepted, refused;     /* refused: 503 because the queue or the streams were full */
};
void fcgi_stats(struct fcgi *f, struct fcgi_stats *s);
/* Block until SIGTERM/SIGINT (drain and return) ; SIGHUP calls on_hup. Signals must be blocked before any thread starts:
 * fcgi_block_signals() first thing in main. */
void fcgi_block_signals(void);
void fcgi_wait(struct fcgi *f, void (*on_hup)(void *app));
/* True once draining: streams end themselves with a resumable hint (RUN-6). */
bool fcgi_draining(const struct fcgi *f);
/* Drain (what fcgi_wait does on SIGTERM; twice is fine): no new requests, those under way and queued are finished. */
void fcgi_drain(struct fcgi *f);
void fcgi_stop(struct fcgi *f); /* drains and frees */
