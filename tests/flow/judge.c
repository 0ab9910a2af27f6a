#include "../t.h"

#include "judge.h"

#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"

static void judge_message(const struct stack *s, const char *msg)
{
	static const char *const never[] = { "/tmp/", "/run/", ".sock", ".c:", "SELECT ", "INSERT ", "PGRES",
		"libpq", "gk_", "gg_", "gr_0", NULL };
	assert_true(strlen(msg) > 10);
	assert_null(strstr(msg, s->dir));
	for (const char *const *n = never; *n != NULL; n++) {
		/* How a key looks may be said ("gk_..."), no key may. */
		const char *at = strstr(msg, *n);
		if (at != NULL && !str_starts(at + strlen(*n), "..."))
			fail_msg("a message to a client holds \"%s\": %s", *n, msg);
	}
}

void judge_refusal(const struct stack *s, const struct web *w, long status)
{
	char id[200], type[80];
	if (w->status != status)
		fail_msg("status %ld where %ld was due: %s", w->status, status, w->body);
	const json_t *err = json_object_get(w->json, "error");
	if (err == NULL)
		fail_msg("no envelope: %s", w->body);
	assert_int_equal(json_object_size(w->json), 1);
	assert_string_equal(js_str(err, "type"), err_type(err_from_http((int)status)));
	assert_true(strlen(js_str(err, "code")) > 0);
	assert_non_null(json_object_get(err, "param"));
	judge_message(s, js_str(err, "message"));
	assert_true(web_header(w, "X-Request-Id", id, sizeof id));
	assert_string_equal(js_str(err, "request_id"), id);
	assert_true(web_header(w, "Content-Type", type, sizeof type));
	assert_true(str_starts(type, "application/json"));
	const json_t *details = json_object_get(err, "details");
	assert_int_equal(json_object_size(err), details == NULL ? 5 : 6);
	assert_true(details == NULL || json_array_size(details) > 1);
}

void judge_dialect(const struct stack *s, const struct web *w, const char *path, long status,
    const char *type, const char *code)
{
	char id[200], media[80];
	bool messages = str_starts(path, "/v1/messages");
	if (w->status != status || w->json == NULL)
		fail_msg("%s: %ld where %ld was due: %s", path, w->status, status, w->body);
	const json_t *err = js_get(w->json, "error");
	if (strcmp(js_str_or(err, "type", ""), type) != 0)
		fail_msg("%s: not of type %s: %s", path, type, w->body);
	judge_message(s, js_str_or(err, "message", ""));
	assert_true(web_header(w, "Content-Type", media, sizeof media));
	assert_true(str_starts(media, "application/json"));
	assert_true(web_header(w, messages ? "request-id" : "X-Request-Id", id, sizeof id));
	if (messages) {
		assert_string_equal(js_str_or(w->json, "type", ""), "error");
		assert_string_equal(js_str_or(w->json, "request_id", ""), id);
		assert_int_equal(json_object_size(w->json), 3);
		assert_int_equal(json_object_size(err), 2);
		return;
	}
	assert_string_equal(js_str_or(err, "code", ""), code);
	assert_non_null(json_object_get(err, "param"));
	assert_int_equal(json_object_size(w->json), 1);
	assert_int_equal(json_object_size(err), 4);
}

void judge_field(const struct stack *s, const struct web *w, long status, const char *param)
{
	judge_refusal(s, w, status);
	if (strcmp(web_error(w, "param"), param) != 0)
		fail_msg("`%s` is blamed, not `%s`: %s", web_error(w, "param"), param, w->body);
	assert_non_null(strstr(web_error(w, "message"), param));
}

/* The reply with the request's id (and what changes by itself) taken out. */
static void strip(const struct web *w, struct buf *out)
{
	static const char *const moving[] = { "x-request-id:", "date:", NULL };
	struct str rest = str_of(w->headers), line;
	while (str_cut(&rest, '\n', &line)) {
		bool moves = false;
		for (const char *const *m = moving; *m != NULL; m++)
			moves = moves || (line.n > strlen(*m) && strncasecmp(line.p, *m, strlen(*m)) == 0);
		if (!moves)
			(void)buf_fmt(out, "%.*s\n", (int)line.n, line.p);
	}
	char id[200];
	const char *at = w->body;
	if (web_header(w, "X-Request-Id", id, sizeof id))
		for (const char *hit; (hit = strstr(at, id)) != NULL; at = hit + strlen(id))
			(void)buf_add(out, at, (size_t)(hit - at));
	(void)buf_str(out, at);
}

void judge_same(const struct web *a, const struct web *b)
{
	auto_buf struct buf x = BUF(1 << 20), y = BUF(1 << 20);
	strip(a, &x);
	strip(b, &y);
	assert_string_equal(buf_c(&x), buf_c(&y));
}

static void judge_line(const struct op *op, const char *p, size_t n)
{
	struct err e = { 0 };
	auto_json json_t *line = js_parse(p, n, &e);
	if (line == NULL || !json_is_object(line))
		fail_msg("%s: a line is no JSON object: %.*s", op->id, (int)n, p);
	const char *type = js_str(line, "type");
	assert_non_null(type);
	assert_true(n < 64 * 1024);
	/* Which members a line has depends on its type; those that the schema names are of its types. */
	const struct param *schema = op->line != NULL ? op->line : op->out;
	const char *name;
	json_t *v;
	auto_json json_t *known = json_object();
	json_object_foreach(line, name, v) {
		for (const struct param *q = schema; q != NULL && q->name != NULL; q++)
			if (strcmp(q->name, name) == 0)
				js_set(known, name, json_incref(v));
	}
	if (op_check_out(schema, known, &e) != 0)
		fail_msg("%s: %s: %.*s", op->id, e.msg, (int)n, p);
}

/* A compatibility door's answer is the vendor's, of which the schema names what is promised. */
static json_t *promised(const struct op *op, json_t *whole)
{
	const char *name;
	json_t *v, *known = json_object();
	if ((op->flags & OP_LAX) == 0 || !json_is_object(whole)) {
		json_decref(known);
		return json_incref(whole);
	}
	json_object_foreach(whole, name, v) {
		for (const struct param *q = op->out; q->name != NULL; q++)
			if (strcmp(q->name, name) == 0)
				js_set(known, name, json_incref(v));
	}
	return known;
}

void judge_reply(const struct op *op, const struct web *w)
{
	struct err e = { 0 };
	char type[80];
	if (w->status / 100 != 2)
		fail_msg("%s: %ld %s", op->id, w->status, w->body);
	assert_true(web_header(w, "Content-Type", type, sizeof type));
	if (str_starts(type, "application/x-ndjson")) {
		assert_true((op->flags & OP_STREAM) != 0);
		struct str rest = { w->body, w->body_n }, line;
		while (str_cut(&rest, '\n', &line))
			judge_line(op, line.p, line.n);
	} else if (op->out == NULL && (op->flags & OP_RAW_OUT) == 0) {
		assert_true(json_is_object(w->json)); /* free-form */
	} else if (str_starts(type, "application/json")) {
		auto_json json_t *known = promised(op, w->json);
		if (known == NULL || op_check_out(op->out, known, &e) != 0)
			fail_msg("%s: %s: %s", op->id, e.msg, w->body);
	} else {
		assert_true((op->flags & OP_RAW_OUT) != 0);
	}
}
