/*
 * The life of a request after it was read: context, route, identity, authorisation, input, handler, reply, log line. What
 * fails before the handler is answered by end_with_error; whatever happens there is one reply and one line.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "io/fcgi_int.h"

struct fcgi_call *fcgi_call_new(struct fcgi *f)
{
	struct fcgi_call *k = xcalloc(1, sizeof *k);
	k->f = f;
	k->mem = mem_new();
	k->reply.vt = &fcgi_reply_vt;
	k->body_announced = -1;
	k->started_us = clock_us();
	(void)FCGX_InitRequest(&k->req, -1, 0);
	return k;
}

/* A connection is kept when there is nothing left on it. Closing it instead, with the reply told to be over, nginx could send a request of
 * somebody else's on it first. */
static void read_rest(struct fcgi_call *k)
{
	char piece[4096];
	while (FCGX_GetStr(piece, sizeof piece, k->req.in) == (int)sizeof piece)
		continue;
	k->read = FCGX_GetError(k->req.in) == 0;
}

void fcgi_call_free(struct fcgi_call *k)
{
	if (k->keep && !k->read && !k->wire && !k->gone)
		read_rest(k);
	if (k->wire)
		fcgi_wire_end(k);
	if (k->streaming)
		fcgi_stream_end(k);
	/* libfcgi waits for nginx to close first, as closing with something unread would cost nginx the reply. Where the input was
	 * read to its end nothing is unread, and a worker need not sleep once more; and what comes next on it is another request. */
	k->req.detached = k->read;
	k->req.keepConnection = k->keep && k->read && !k->gone;
	FCGX_Finish_r(&k->req);
	if (k->req.ipcFd >= 0)
		fcgi_kept_put(k->f, k->kept, k->req.ipcFd);
	else
		free(k->kept);
	buf_free(&k->gathered);
	json_decref(k->in);
	mem_free(k->mem);
	free(k);
}

/* HTTP-5: the caller's id if it is sane, else ours. */
static void take_request_id(struct fcgi_call *k)
{
	static const char sane[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	const char *theirs = fcgi_param(k, "HTTP_X_REQUEST_ID");
	if (theirs != NULL && strlen(theirs) < sizeof k->request_id && str_only(theirs, sane))
		(void)snprintf(k->request_id, sizeof k->request_id, "%s", theirs);
	else
		id_make("req", k->request_id);
}

/* W3C trace context: the caller's trace goes on with a span id of ours; what is malformed is ignored, as the standard asks. */
static const char *take_traceparent(struct fcgi_call *k)
{
	const char *t = fcgi_param(k, "HTTP_TRACEPARENT");
	unsigned char bytes[1 + 16 + 8 + 1], zero[16] = { 0 };
	char hex[2 * sizeof bytes + 1];
	if (t == NULL || strlen(t) != 55 || t[2] != '-' || t[35] != '-' || t[52] != '-')
		return NULL;
	(void)snprintf(hex, sizeof hex, "%.2s%.32s%.16s%.2s", t, t + 3, t + 36, t + 53);
	if (!str_only(hex, "0123456789abcdef") || hex_decode(hex, bytes, sizeof bytes) != sizeof bytes ||
	    bytes[0] == 0xff || memcmp(bytes + 1, zero, 16) == 0 || memcmp(bytes + 17, zero, 8) == 0)
		return NULL;
	unsigned char span[8];
	random_some(span, sizeof span);
	hex_encode(span, sizeof span, hex);
	return mem_fmt(k->mem, "00-%.32s-%s-%.2s", t + 3, hex, t + 53);
}

/* nginx has decoded and normalised it; what is still not plain is refused rather than interpreted a second time. */
static int take_path(struct fcgi_call *k, struct err *e)
{
	const char *p = fcgi_param(k, "DOCUMENT_URI");
	k->c.path = p == NULL ? "" : p;
	size_t n = strlen(k->c.path);
	bool plain = n > 0 && p[0] == '/' && n <= LIMIT_PATH_BYTES && utf8_valid(p, n) == n;
	for (size_t i = 0; plain && i < n; i++)
		plain = (unsigned char)p[i] >= 0x20 && p[i] != 0x7f;
	struct str rest = str_of(k->c.path), seg;
	while (plain && str_cut(&rest, '/', &seg))
		plain = !str_eq(seg, ".") && !str_eq(seg, "..");
	return plain
	    ? 0
	    : err_set(e, ERR_BAD_REQUEST, "The path must be plain UTF-8 without control or dot segments.");
}

/* What only became this path by what nginx did is refused, whatever there is at it. */
static int take_route(struct fcgi_call *k, struct route_match *m, struct err *e)
{
	struct err none = { 0 };
	const char *raw = fcgi_param(k, "REQUEST_URI");
	if (take_path(k, e) != 0)
		return -1;
	int rc = route_find(k->f->routes, k->c.method, k->c.path, k->c.door, m, &none);
	if (raw != NULL && route_raw(raw, m->route, e) != 0)
		return -1;
	if (rc != 0)
		*e = none;
	return rc;
}

/* What nginx does not say, or in words that this version does not know, is the public door. */
static enum op_door take_door(struct fcgi_call *k)
{
	const char *door = fcgi_param(k, "GATEHOUSE_DOOR");
	if (door != NULL && strcmp(door, "internal") == 0)
		return DOOR_INTERNAL;
	return door != NULL && strcmp(door, "e2b") == 0 ? DOOR_E2B : DOOR_PUBLIC;
}

static void take_context(struct fcgi_call *k)
{
	const char *method = fcgi_param(k, "REQUEST_METHOD"), *length = fcgi_param(k, "CONTENT_LENGTH");
	if (k->request_id[0] == 0)
		take_request_id(k);
	k->head = method != NULL && strcmp(method, "HEAD") == 0;
	if (length != NULL && length[0] != 0 && !str_int(length, 0, INT64_MAX, &k->body_announced))
		k->body_announced = -1;
	k->c = (struct ctx){
		.mem = k->mem,
		.db = k->f->o.db,
		.conf = k->f->o.conf,
		.app = k->f->o.app,
		.reply = &k->reply,
		.request_id = k->request_id,
		.traceparent = take_traceparent(k),
		.method = method == NULL ? "" : method,
		.path = "",
		.query = fcgi_param(k, "QUERY_STRING"),
		.door = take_door(k),
		.deadline_ms = clock_ms() + (int64_t)FCGI_REQUEST_S * 1000,
	};
}

/* RUN-2: one line per request. 5xx is ours to look at; the message of an error is meant for clients and holds no secret. */
static void log_request(struct fcgi_call *k, const struct err *e)
{
	int64_t us = clock_us() - k->started_us;
	const struct fcgi_opts *o = &k->f->o;
	const char *org = k->c.who != NULL && o->org_of != NULL ? o->org_of(k->c.who) : NULL;
	char status[STR_NUM], ms[STR_NUM + 4];
	(void)str_num(k->reply.status, status);
	/* The thousandths have three digits: of 1000 and them the first gives way to the point. */
	char *after = ms + str_num(us / 1000, ms);
	(void)str_num(1000 + us % 1000, after);
	*after = '.';
	log_kv(k->reply.status >= 500 ? LOG_WARN_ : LOG_INFO_, "request", "id", k->request_id, "org", org,
	    "op", k->op == NULL ? NULL : k->op->id, "method", k->c.method, "path",
	    k->op == NULL ? k->c.path : NULL, "status", status, "ms", ms, "gone", k->gone ? "true" : NULL,
	    "error", e->code == ERR_NONE ? NULL : e->msg, "field", e->param[0] == 0 ? NULL : e->param,
	    (char *)0);
	if (o->on_request != NULL)
		o->on_request(o->app, k->op, k->reply.status, us);
}

/* In the form of this op's clients, or in ours. */
static void tell_error(struct fcgi_call *k, const struct op *op, const struct err *e)
{
	if (op != NULL && op->refuse != NULL && op->refuse(&k->c, e))
		return;
	if (op != NULL && (op->flags & OP_STREAM) != 0 && reply_come_back(&k->c, e))
		return;
	fcgi_reply_error(k, e);
}

static void end_with_error(struct fcgi_call *k, const struct route_match *m, const struct err *e)
{
	if (e->code == ERR_METHOD && m->allow[0] != 0)
		reply_header(&k->c, "Allow", m->allow);
	tell_error(k, k->op != NULL ? k->op : m->near, e);
	log_request(k, e);
	fcgi_call_free(k);
}

void fcgi_refuse(struct fcgi_call *k, const struct err *e)
{
	struct err none = { 0 };
	struct route_match m = { 0 };
	take_context(k);
	(void)take_route(k, &m, &none); /* who asks is told in the form that it reads */
	json_decref(m.path_params);
	end_with_error(k, &m, e);
}

static bool may_last(const struct op *op)
{
	return (op->flags & (OP_STREAM | OP_LONG)) != 0;
}

/* Route, identity, authorisation, input: 0, or -1 with e. */
static int prepare(struct fcgi_call *k, struct route_match *m, struct err *e)
{
	const struct fcgi_opts *o = &k->f->o;
	if (take_route(k, m, e) != 0)
		return -1;
	k->op = m->op;
	k->body_max = m->op->max_body_bytes != 0 ? m->op->max_body_bytes : LIMIT_BODY_BYTES;
	k->reply.unbuffered = (m->op->flags & OP_STREAM) != 0;
	if (may_last(m->op))
		k->c.deadline_ms = INT64_MAX;
	if ((o->identify != NULL && o->identify(&k->c, &k->c.who, e) != 0) ||
	    (o->authorise != NULL && o->authorise(&k->c, m->op, e) != 0))
		return -1;
	k->in = fcgi_input(k, m->route, m->path_params, e);
	return k->in == NULL ? -1 : 0;
}

/* A handler that gave up because of the body's fault gets the fault's own status. */
static void body_fault(const struct fcgi_call *k, struct err *e)
{
	if (k->too_large)
		err_replace(e, ERR_TOO_LARGE, "The body is larger than this op takes: at most %zu bytes.",
		    k->body_max);
	else if (k->cut)
		err_replace(e, ERR_BAD_REQUEST, "The body ended before its announced length; send it again.");
}

/* The client went before there was a word for it, and that is all that went wrong. */
static bool left(const struct fcgi_call *k, const struct err *e)
{
	return k->gone && (e->code == ERR_NONE || err_is(e, "cancelled"));
}

/* The handler and the reply. e is clear; it is the caller's because a stream holds its stack for long, and an err is large. */
static void finish(struct fcgi_call *k, struct err *e)
{
	auto_json json_t *out = k->f->o.call != NULL ? k->f->o.call(&k->c, k->op, k->in, e)
						     : k->op->run(&k->c, k->in, e);
	if (!k->reply.begun && (out == NULL || json_is_true(out))) {
		body_fault(k, e);
		if (left(k, e)) {
			k->reply.status = FCGI_LEFT;
		} else {
			/* A handler that returns neither a reply nor an error is broken; err_set keeps an error that is there. */
			err_set(e, ERR_INTERNAL, "The op gave no answer.");
			tell_error(k, k->op, e);
		}
	} else if (!k->reply.begun) {
		int status = k->reply.status != 0 ? k->reply.status
		    : k->op->status != 0          ? k->op->status
						  : 200;
		fcgi_reply_json(k, status, out);
	}
	log_request(k, e);
	fcgi_call_free(k);
}

bool fcgi_request(struct fcgi_call *k)
{
	struct err e = { 0 };
	struct route_match m = { 0 };
	take_context(k);
	int rc = prepare(k, &m, &e);
	json_decref(m.path_params);
	bool streams = rc == 0 && may_last(k->op) && (rc = fcgi_stream(k, &e)) == 0;
	if (rc != 0)
		end_with_error(k, &m, &e);
	else
		finish(k, &e);
	return streams;
}
