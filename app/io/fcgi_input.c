/*
 * Path, query and body become one object. Where a field is read from follows from the route (DECISIONS), and a field that
 * stands in two places is refused: which one was authorised would depend on who looks.
 */
#include <string.h>
#include <strings.h>

#include "base/coding.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "io/fcgi_int.h"

/* application/json, with parameters or without (RFC 8259 defines none, charset=utf-8 is common). */
static bool is_json(const char *type)
{
	static const char want[] = "application/json";
	if (type == NULL || strncasecmp(type, want, sizeof want - 1) != 0)
		return false;
	const char *rest = type + sizeof want - 1;
	return rest[strspn(rest, " \t")] == 0 || rest[strspn(rest, " \t")] == ';';
}

static int too_large(const struct fcgi_call *k, struct err *e)
{
	return err_set(
	    e, ERR_TOO_LARGE, "The body is larger than this op takes: at most %zu bytes.", k->body_max);
}

/* The whole body, whatever Content-Length claims. */
static int read_body(struct fcgi_call *k, struct buf *to, struct err *e)
{
	for (;;) {
		char *room = buf_room(to, 4096);
		ssize_t n = room == NULL ? -1 : reply_read(&k->c, room, 4096);
		if (k->cut)
			return err_set(
			    e, ERR_BAD_REQUEST, "The body ended before its announced length; send it again.");
		if (n < 0)
			return too_large(k, e);
		if (n == 0)
			return 0;
		buf_grew(to, (size_t)n);
	}
}

static json_t *body_fields(struct fcgi_call *k, struct err *e)
{
	auto_buf struct buf body = BUF(k->body_max + 4096);
	if (read_body(k, &body, e) != 0)
		return NULL;
	if (body.n == 0) /* no body is no fields: the check asks for those that are required */
		return json_object();
	if (!is_json(fcgi_param(k, "CONTENT_TYPE"))) {
		err_set(e, ERR_MEDIA, "The body must be JSON; send it with Content-Type: application/json.");
		return NULL;
	}
	if (coding_of(str_of(fcgi_param(k, "HTTP_CONTENT_ENCODING"))) != CODING_PLAIN) {
		err_set(e, ERR_MEDIA, "The body must not be compressed; send it without Content-Encoding.");
		return NULL;
	}
	auto_json json_t *v = js_parse(body.p, body.n, e);
	if (v != NULL && !json_is_object(v)) {
		err_set(e, ERR_BAD_REQUEST, "The body must be a JSON object.");
		return NULL;
	}
	return steal(v);
}

static int no_query(const char *query, struct err *e)
{
	auto_json json_t *q = query_parse(query, e);
	const char *name = q == NULL ? NULL : json_object_iter_key(json_object_iter(q));
	if (name != NULL)
		err_field(e, ERR_BAD_REQUEST, name,
		    "`%.60s` stands in the query, but this op takes its fields from the JSON body.", name);
	return e->code == ERR_NONE ? 0 : -1;
}

/* What the path says is not said again elsewhere: two ids for one thing could disagree. */
static int merge(json_t *in, json_t *more, const struct route *route, struct err *e)
{
	const char *name;
	json_t *v;
	json_object_foreach(more, name, v) {
		if (route_has(route, name))
			return err_field(e, ERR_BAD_REQUEST, name,
			    "`%.60s` stands in the path already; leave it out.", name);
		js_set(in, name, json_incref(v));
	}
	return 0;
}

json_t *fcgi_input(struct fcgi_call *k, const struct route *route, json_t *path_params, struct err *e)
{
	const struct op *op = k->op;
	if (k->body_announced > 0 && (unsigned long long)k->body_announced > k->body_max) {
		(void)too_large(k, e);
		return NULL;
	}
	auto_json json_t *more = NULL;
	if (op_has_body(op, route)) {
		bool lax = (op->flags & OP_LAX) != 0;
		if ((!lax && no_query(k->c.query, e) != 0) || (more = body_fields(k, e)) == NULL)
			return NULL;
		query_coerce(op->in, path_params);
	} else {
		char one;
		if ((op->flags & OP_RAW_IN) == 0 && reply_read(&k->c, &one, 1) != 0) {
			err_set(e, ERR_BAD_REQUEST, "This op takes no body; its fields go into the query.");
			return NULL;
		}
		if ((more = query_parse(k->c.query, e)) == NULL)
			return NULL;
		query_coerce(op->in, path_params);
		query_coerce(op->in, more);
	}
	if (merge(path_params, more, route, e) != 0 || op_check_route(op, route, path_params, e) != 0)
		return NULL;
	return json_incref(path_params);
}
