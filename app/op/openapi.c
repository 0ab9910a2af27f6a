/*
 * The document is made from the rows and nothing else (OP-1). Error answers are derived: what the server core itself can
 * answer for a row (400, 401, 403, 413, 415, 429, 503), 404 where a path names a thing, 409 where something is changed,
 * 507 where a row says that it stores.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/js.h"
#include "op/op.h"
#include "op/param.h"

static const struct {
	int status;
	const char *name, *doc;
} answers[] = {
	{ 400, "BadRequest",
	    "The input is not right; `param` names the field, `details` lists all of them." },
	{ 401, "Unauthorized", "The credential is missing, unknown, expired or revoked." },
	{ 403, "Forbidden", "The credential may not do this." },
	{ 404, "NotFound", "There is none of that name in your organisation." },
	{ 409, "Conflict", "It cannot be done in the present state." },
	{ 413, "TooLarge", "The body is larger than the op takes." },
	{ 415, "NotJson", "The body must be sent as application/json." },
	{ 429, "TooMany",
	    "Your organisation has reached its limit of requests or runs; try again after the seconds in "
	    "Retry-After." },
	{ 503, "Unavailable", "Try again after the seconds in Retry-After." },
	{ 507, "NoSpace", "What it writes to is full; the same request fails again until there is room." },
};

static json_t *text(const char *s)
{
	return json_string(s == NULL ? "" : s);
}

static const char *const error_types[] = { "invalid_request_error", "authentication_error",
	"permission_error", "not_found_error", "conflict_error", "insufficient_quota", "rate_limit_error",
	"api_error", "upstream_error", NULL };
static const struct param error_detail[] = {
	OUT(T_STR, "param", "The field.", NULL),
	OUT(T_STR, "message", "What is wrong with it.", NULL),
	{ 0 },
};
static const struct param error_fields[] = {
	OUT(T_ENUM, "type", "The kind of error.", NULL, .values = error_types),
	OUT(T_STR, "code", "A word for programs.", "\"bad_request\""),
	OUT(T_STR, "message", "One sentence that says what to do.", NULL),
	OUT_NULL(T_STR, "param", "The field at fault.", NULL),
	OUT(T_STR, "request_id", "Also in the header X-Request-Id.", NULL),
	OUT_MAYBE(T_ARR, "details", "All that is wrong, where it is more than one thing.", NULL,
	    .fields = &(const struct param){ .type = T_OBJ, .fields = error_detail }),
	{ 0 },
};
static const struct param envelope[] = {
	{ .name = "error", .type = T_OBJ, .required = true, .fields = error_fields },
	{ 0 },
};
static json_t *components(void)
{
	json_t *responses = json_object();
	for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
		json_t *r = js_pack("{s:s, s:{s:{s:{s:s}}}}", "description", answers[i].doc, "content",
		    "application/json", "schema", "$ref", "#/components/schemas/Error");
		if (answers[i].status == 503 || answers[i].status == 429)
			js_set(r, "headers",
			    js_pack("{s:{s:s, s:{s:s}}}", "Retry-After", "description", "Seconds.", "schema",
				"type", "integer"));
		js_set(responses, answers[i].name, r);
	}
	return js_pack("{s:{s:{s:s, s:s, s:s}}, s:{s:o}, s:o}", "securitySchemes", "key", "type", "http",
	    "scheme", "bearer", "description", "A secret key, `gk_…`.", "schemas", "Error",
	    op_schema_out(envelope), "responses", responses);
}

/* 500, 502 and 504 are not promised by anybody; 405 and 404 of an unknown path belong to no op. */
static bool can_answer(const struct op *op, const struct route *r, int status)
{
	bool body = op_has_body(op, r),
	     names = strchr(r->path, '{') != NULL || param_find(op->in, "id") != NULL;
	switch (status) {
	case 401:
	case 403:
	case 429:
		return (op->flags & OP_PUBLIC) == 0;
	case 404:
		return names;
	case 409:
		return strcmp(r->method, "GET") != 0;
	case 413:
		return body || (op->flags & OP_RAW_IN) != 0;
	case 415:
		return body;
	case 507:
		return (op->flags & OP_STORES) != 0;
	default:
		return true;
	}
}

/* One status may have two kinds of content: a value and a stream. */
static void add_content(json_t *responses, int status, const char *type, json_t *schema)
{
	char code[8];
	(void)snprintf(code, sizeof code, "%d", status);
	json_t *r = json_object_get(responses, code);
	if (r == NULL) {
		r = js_pack("{s:s, s:{s:{s:s, s:{s:s}}}, s:{}}", "description",
		    status == 202 ? "Accepted; the work goes on." : "Done.", "headers", "X-Request-Id",
		    "description", "Names this request in the service's logs.", "schema", "type", "string",
		    "content");
		js_set(responses, code, r);
	}
	js_set(json_object_get(r, "content"), type, js_pack("{s:o}", "schema", schema));
}

static json_t *responses_of(const struct op *op, const struct route *r)
{
	json_t *all = json_object();
	int status = op->status == 0 ? 200 : op->status;
	bool streams = (op->flags & OP_STREAM) != 0 && (op->flags & OP_RAW_OUT) == 0;
	if (streams && (op->flags & OP_LAX) != 0) {
		add_content(all, 200, "text/event-stream",
		    js_pack("{s:s, s:s}", "type", "string", "description",
			"Where the request asks for a stream: events in the vendor's form."));
	} else if (streams) {
		add_content(
		    all, 200, "application/x-ndjson", op_schema_out(op->line != NULL ? op->line : op->out));
		add_content(all, 200, "text/event-stream",
		    js_pack("{s:s, s:s}", "type", "string", "description",
			"The same lines, each the `data` of one message; where to go on is its `id`."));
	}
	if ((op->flags & OP_RAW_OUT) != 0)
		add_content(all, status, "application/octet-stream", json_object());
	else if (!streams || op->line != NULL)
		add_content(all, status, "application/json", op_schema_out(op->out));
	for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
		char code[8], ref[64];
		(void)snprintf(code, sizeof code, "%d", answers[i].status);
		(void)snprintf(ref, sizeof ref, "#/components/responses/%s", answers[i].name);
		if (can_answer(op, r, answers[i].status))
			js_set(all, code, js_pack("{s:s}", "$ref", ref));
	}
	return all;
}

static json_t *parameters_of(const struct op *op, const struct route *r)
{
	json_t *all = json_array();
	for (const struct param *p = op->in; p != NULL && p->name != NULL; p++) {
		bool path = route_has(r, p->name);
		if (!path && op_has_body(op, r))
			continue;
		js_push(all,
		    js_pack("{s:s, s:s, s:o, s:b, s:o}", "name", p->name, "in", path ? "path" : "query",
			"description", text(p->doc), "required", path || p->required, "schema",
			param_schema(p)));
	}
	if ((op->flags & OP_ONCE) != 0 && strcmp(r->method, "POST") == 0)
		js_push(all,
		    js_pack("{s:s, s:s, s:s, s:b, s:{s:s, s:i, s:i}}", "name", "Idempotency-Key", "in",
			"header", "description",
			"Sent again within 24 hours with the same key and the same input, the request is "
			"done once and answered like the first.",
			"required", 0, "schema", "type", "string", "minLength", 1, "maxLength", 255));
	return all;
}

/* The schema and the example without what stands in the path. */
static json_t *body_of(const struct op *op, const struct route *r)
{
	json_t *schema = op_schema(op->in), *example = op_example(op), *required = json_array();
	if ((op->flags & OP_LAX) != 0) /* what is not named is let pass */
		(void)json_object_del(schema, "additionalProperties");
	size_t i;
	json_t *name;
	for (const struct param *p = op->in; p != NULL && p->name != NULL; p++)
		if (route_has(r, p->name)) {
			(void)json_object_del(json_object_get(schema, "properties"), p->name);
			(void)json_object_del(example, p->name);
		}
	json_array_foreach(json_object_get(schema, "required"), i, name)
		if (!route_has(r, json_string_value(name)))
			js_push(required, json_incref(name));
	bool needed = json_array_size(required) > 0;
	(void)json_object_del(schema, "required");
	if (needed)
		js_set(schema, "required", json_incref(required));
	json_decref(required);
	return js_pack("{s:b, s:{s:{s:o, s:o}}}", "required", needed, "content", "application/json", "schema",
	    schema, "example", example);
}

static json_t *operation(const struct op *op, const struct route *r)
{
	char id[80];
	long nth = r - op->routes;
	if (nth == 0)
		(void)snprintf(id, sizeof id, "%s", op->id);
	else /* the same op by another path; ids must be unique */
		(void)snprintf(id, sizeof id, "%s_%ld", op->id, nth + 1);
	json_t *o = js_pack("{s:s, s:o, s:o, s:[s], s:o}", "operationId", id, "summary", text(op->summary),
	    "description", text(op->doc), "tags", op->scope != NULL ? op->scope : "service", "responses",
	    responses_of(op, r));
	json_t *parameters = parameters_of(op, r);
	if (json_array_size(parameters) > 0)
		js_set(o, "parameters", json_incref(parameters));
	json_decref(parameters);
	if (op_has_body(op, r))
		js_set(o, "requestBody", body_of(op, r));
	if ((op->flags & OP_RAW_IN) != 0)
		js_set(o, "requestBody",
		    js_pack("{s:b, s:{s:{}}}", "required", 1, "content", "application/octet-stream"));
	if ((op->flags & OP_PUBLIC) != 0)
		js_set(o, "security", json_array());
	return o;
}

static void add_op(json_t *paths, const struct op *op)
{
	for (const struct route *r = op->routes; r < op->routes + OP_ROUTES_MAX && r->path != NULL; r++) {
		/* That the rest of a path may hold slashes, OpenAPI cannot say. */
		char path[200];
		const char *rest = strstr(r->path, "...}");
		(void)snprintf(path, sizeof path, "%.*s%s",
		    rest == NULL ? (int)sizeof path : (int)(rest - r->path), r->path,
		    rest == NULL ? "" : "}");
		json_t *item = json_object_get(paths, path);
		if (item == NULL) {
			item = json_object();
			js_set(paths, path, item);
		}
		char method[16] = { 0 };
		for (size_t i = 0; r->method[i] != 0 && i + 1 < sizeof method; i++)
			method[i] = (char)tolower((unsigned char)r->method[i]);
		js_set(item, method, operation(op, r));
	}
}

json_t *op_openapi(const struct op *const *tables)
{
	json_t *paths = json_object();
	for (; *tables != NULL; tables++)
		for (const struct op *o = *tables; o->id != NULL; o++)
			if ((o->flags & (OP_INTERNAL | OP_HIDDEN)) == 0)
				add_op(paths, o);
	return js_pack("{s:s, s:{s:s, s:s, s:s, s:{s:s, s:s}}, s:[{s:s}], s:[{s:[]}], s:o, s:o}", "openapi",
	    "3.1.0", "info", "title", "gatehouse", "version", "1", "description",
	    "Sandboxes, coding runs and a git forge for agents. Times are RFC 3339 in UTC. Unknown fields "
	    "are refused.",
	    "license", "name", "MIT", "identifier", "MIT", "servers", "url", "/", "security", "key", "paths",
	    paths, "components", components());
}
