/*
 * The reverse of routing and reading: what the server core takes apart in io/fcgi_input is put together here. A test makes
 * both agree for the examples of every op.
 */
#include <string.h>

#include "base/buf.h"
#include "base/js.h"
#include "op/op.h"
#include "op/param.h"

enum { TARGET_MAX_BYTES = 64 * 1024 };

bool op_has_body(const struct op *op, const struct route *r)
{
	return (op->flags & OP_RAW_IN) == 0 && strcmp(r->method, "GET") != 0 &&
	    strcmp(r->method, "DELETE") != 0;
}

/* RFC 3986 unreserved characters stay; in the rest of a path the slashes too. */
static void escape(struct buf *out, const char *s, const char *also)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
	for (; *s != 0; s++)
		if (strchr(plain, *s) != NULL || strchr(also, *s) != NULL)
			(void)buf_chr(out, *s);
		else
			(void)buf_fmt(out, "%%%02X", (unsigned)(unsigned char)*s);
}

/* A value as it stands in a path or query. */
static const char *as_text(struct mem *m, const json_t *v)
{
	return json_is_string(v) ? json_string_value(v) : js_dump(m, v);
}

/* The path with its parameters filled in, or the name of one that is missing. */
static const char *fill_path(struct mem *m, const struct route *r, const json_t *in, struct buf *out)
{
	for (const char *s = r->path; *s != 0;) {
		if (*s != '{') {
			(void)buf_chr(out, *s++);
			continue;
		}
		size_t n = strcspn(s, "}"), name_n = strcspn(s + 1, ".}");
		const char *name = mem_strn(m, s + 1, name_n);
		const json_t *v = js_get(in, name);
		if (v == NULL)
			return name;
		escape(out, as_text(m, v), s[1 + name_n] == '.' ? "/" : "");
		s += n + 1;
	}
	return NULL;
}

static void add_query(struct mem *m, const struct route *r, const json_t *in, struct buf *out)
{
	const char *name;
	json_t *v;
	char sep = '?';
	json_object_foreach((json_t *)(uintptr_t)in, name, v) {
		if (route_has(r, name) || json_is_null(v))
			continue;
		(void)buf_chr(out, sep);
		escape(out, name, "");
		(void)buf_chr(out, '=');
		escape(out, as_text(m, v), "/");
		sep = '&';
	}
}

static char *body_of(struct mem *m, const struct route *r, const json_t *in)
{
	auto_json json_t *body = json_object();
	const char *name;
	json_t *v;
	json_object_foreach((json_t *)(uintptr_t)in, name, v)
		if (!route_has(r, name))
			js_set(body, name, json_incref(v));
	return js_dump(m, body);
}

int op_request(struct mem *m, const struct op *op, const json_t *in, struct op_request *r, struct err *e)
{
	const char *missing = "";
	for (const struct route *w = op->routes; w < op->routes + OP_ROUTES_MAX && w->path != NULL; w++) {
		auto_buf struct buf target = BUF(TARGET_MAX_BYTES);
		missing = fill_path(m, w, in, &target);
		if (missing != NULL)
			continue;
		bool body = op_has_body(op, w);
		if (!body)
			add_query(m, w, in, &target);
		if (target.full)
			return err_set(e, ERR_TOO_LARGE, "The fields are too long for a URL.");
		*r = (struct op_request){ w->method, mem_str(m, buf_c(&target)),
			body ? body_of(m, w, in) : NULL };
		return 0;
	}
	return err_field(e, ERR_BAD_REQUEST, missing, "`%s` is required.", missing);
}

json_t *op_example(const struct op *op)
{
	json_t *in = json_object();
	for (const struct param *p = op->in; p != NULL && p->name != NULL; p++) {
		struct err e = { 0 };
		json_t *v = p->example == NULL ? NULL : js_parse(p->example, strlen(p->example), &e);
		if (v != NULL)
			js_set(in, p->name, v);
	}
	return in;
}
