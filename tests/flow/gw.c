#include "../span.h"
#include "../t.h"

#include "gw.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/http.h"

enum { STRETCH_MAX = 8 }; /* so that the longest fault is over within a client's patience */

int gw_ms(int ms)
{
	static int permille;
	if (permille == 0) {
		permille = span_room_ms(1000);
		permille = permille > STRETCH_MAX * 1000 ? STRETCH_MAX * 1000 : permille;
	}
	return (int)((int64_t)ms * permille / 1000);
}

void gw_conf(const struct fakemodel *f, char out[1000])
{
	(void)snprintf(out, 1000,
	    "MODEL_INWARD_HOSTS=127.0.0.1:%d 127.0.0.1:9 "
	    "models.invalid:9\nMODEL_FIRST_TOKEN_MS=%d\nMODEL_ANSWER_MS=%d\nMODEL_STALL_MS=%d\n"
	    "MODEL_TAIL_MS=%d\nMODEL_TOTAL_S=240\nMODEL_RETRY_WAIT_MS=3000\nMODEL_CONNECT_MS=10000",
	    fakemodel_port(f), gw_ms(1200), gw_ms(4500), gw_ms(2000), gw_ms(400));
}

void gw_times(struct fakemodel *f)
{
	fakemodel_times(f,
	    (struct fakemodel_times){ .slow_ms = 2 * PATIENCE_MS,
		.stall_ms = gw_ms(1800),
		.silent_ms = 2 * PATIENCE_MS,
		.down_ms = 3000,
		.token_ms = 0,
		.retry_after_s = 2 });
}

struct fakemodel *gw_up(struct stack *s, int apis, int runners, const char *conf)
{
	char lines[1000];
	auto_mem struct mem *m = mem_new();
	http_setup();
	struct fakemodel *f = fakemodel_start();
	gw_times(f);
	gw_conf(f, lines);
	stack_up(s, apis, runners, 1, conf == NULL ? lines : mem_fmt(m, "%s\n%s", lines, conf));
	return f;
}

void gw_down(struct stack *s, struct fakemodel *f)
{
	stack_down(s);
	if (f != NULL) /* the stack came up */
		fakemodel_end(f);
}

/* "name>fallback,fallback" */
static json_t *model_row(struct str row)
{
	struct str name, one;
	json_t *fallbacks = json_array();
	(void)str_cut(&row, '>', &name);
	while (row.n > 0 && str_cut(&row, ',', &one))
		js_push(fallbacks, json_stringn(one.p, one.n));
	return js_pack("{s:o, s:o, s:{s:i, s:i}}", "name", json_stringn(name.p, name.n), "fallbacks",
	    fallbacks, "prices", "input", 100000, "output", 200000);
}

void gw_provider(const struct stack *s, const struct fakemodel *f, const char *key, const char *name,
    const char *wire, int n_keys, const char *models)
{
	char url[80], secret[32];
	json_t *keys = json_array(), *rows = json_array();
	struct str rest = str_of(models), row;
	(void)snprintf(url, sizeof url, "http://127.0.0.1:%d/v1", fakemodel_port(f));
	for (int i = 0; i < n_keys; i++) {
		(void)snprintf(secret, sizeof secret, "sk-upstream-%s-%d", name, i);
		js_push(keys, json_string(secret));
	}
	while (str_cut(&rest, ' ', &row))
		js_push(rows, model_row(row));
	auto_web struct web w = { 0 };
	web_json(s, "POST", "/v1/models/providers", key,
	    js_pack("{s:s, s:s, s:s, s:o, s:o}", "name", name, "wire", wire, "baseUrl", url, "keys", keys,
		"models", rows),
	    &w);
	if (w.status != 201)
		fail_msg("provider %s: %ld %s", name, w.status, w.body);
}

/* ---- reading answers */

static void copy(char *to, size_t size, const char *from)
{
	if (from != NULL && from[0] != 0)
		(void)snprintf(to, size, "%s", from);
}

static void append(char *to, size_t size, const char *more)
{
	size_t n = strlen(to);
	if (more != NULL)
		(void)snprintf(to + n, size - n, "%s", more);
}

static void read_error(struct gw_answer *a, const json_t *v)
{
	const json_t *e = js_get(v, "error");
	if (e == NULL && js_get(js_get(v, "response"), "error") != NULL)
		e = js_get(js_get(v, "response"), "error");
	if (e == NULL && strcmp(js_str_or(v, "type", ""), "error") == 0)
		e = v;
	if (e == NULL)
		return;
	copy(a->error, sizeof a->error, js_str(e, "type"));
	copy(a->code, sizeof a->code, js_str(e, "code"));
	copy(a->message, sizeof a->message, js_str(e, "message"));
	if (a->error[0] == 0)
		copy(a->error, sizeof a->error, "error");
}

static void read_usage(struct gw_answer *a, const json_t *u)
{
	if (u == NULL)
		return;
	a->usage = true;
	a->in = js_int(u, "prompt_tokens", js_int(u, "input_tokens", a->in));
	a->out = js_int(u, "completion_tokens", js_int(u, "output_tokens", a->out));
}

static struct gw_call *call_at(struct gw_answer *a, long long index)
{
	struct gw_call *c = index >= 0 && index < 8 ? &a->calls[index] : NULL;
	if (c != NULL && index >= a->n_calls)
		a->n_calls = (int)index + 1;
	return c;
}

static void chat_calls(struct gw_answer *a, const json_t *list, bool whole)
{
	size_t i;
	json_t *v;
	json_array_foreach(list, i, v) {
		struct gw_call *c = call_at(a, whole ? (long long)i : js_int(v, "index", 0));
		if (c == NULL)
			continue;
		append(c->id, sizeof c->id, js_str(v, "id"));
		append(c->name, sizeof c->name, js_str(js_get(v, "function"), "name"));
		append(c->args, sizeof c->args, js_str(js_get(v, "function"), "arguments"));
	}
}

static void read_chat(struct gw_answer *a, const json_t *v, bool whole)
{
	const json_t *choice = json_array_get(js_get(v, "choices"), 0),
		     *m = js_get(choice, whole ? "message" : "delta");
	copy(a->model, sizeof a->model, js_str(v, "model"));
	copy(a->role, sizeof a->role, js_str(m, "role"));
	append(a->text, sizeof a->text, js_str(m, "content"));
	chat_calls(a, js_get(m, "tool_calls"), whole);
	copy(a->finish, sizeof a->finish, js_str(choice, "finish_reason"));
	read_usage(a, js_get(v, "usage"));
	if (whole)
		a->done = choice != NULL;
}

static void read_block(struct gw_answer *a, const json_t *b)
{
	const char *type = js_str_or(b, "type", "");
	if (strcmp(type, "text") == 0)
		append(a->text, sizeof a->text, js_str(b, "text"));
	if (strcmp(type, "tool_use") != 0)
		return;
	struct gw_call *c = call_at(a, a->n_calls);
	auto_free char *args = json_dumps(js_get(b, "input"), JSON_COMPACT | JSON_ENCODE_ANY);
	if (c == NULL)
		return;
	copy(c->id, sizeof c->id, js_str(b, "id"));
	copy(c->name, sizeof c->name, js_str(b, "name"));
	if (args != NULL && strcmp(args, "{}") != 0)
		copy(c->args, sizeof c->args, args);
}

static void read_messages(struct gw_answer *a, const json_t *v, bool whole)
{
	const char *type = js_str_or(v, "type", "");
	const json_t *delta = js_get(v, "delta"), *m = whole ? v : js_get(v, "message");
	size_t i;
	json_t *b;
	copy(a->model, sizeof a->model, js_str(m, "model"));
	copy(a->role, sizeof a->role, js_str(m, "role"));
	read_usage(a, js_get(m, "usage"));
	if (whole) {
		json_array_foreach(js_get(v, "content"), i, b)
			read_block(a, b);
		copy(a->finish, sizeof a->finish, js_str(v, "stop_reason"));
		a->done = strcmp(type, "message") == 0;
		return;
	}
	read_usage(a, js_get(v, "usage"));
	if (strcmp(type, "content_block_start") == 0)
		read_block(a, js_get(v, "content_block"));
	append(a->text, sizeof a->text, js_str(delta, "text"));
	if (a->n_calls > 0)
		append(a->calls[a->n_calls - 1].args, sizeof a->calls[0].args, js_str(delta, "partial_json"));
	copy(a->finish, sizeof a->finish, js_str(delta, "stop_reason"));
	if (strcmp(type, "message_stop") == 0)
		a->done = true;
}

static void read_item(struct gw_answer *a, const json_t *item)
{
	const char *type = js_str_or(item, "type", "");
	size_t i;
	json_t *part;
	json_array_foreach(js_get(item, "content"), i, part)
		append(a->text, sizeof a->text, js_str(part, "text"));
	if (strcmp(type, "function_call") != 0)
		return;
	struct gw_call *c = call_at(a, a->n_calls);
	if (c == NULL)
		return;
	copy(c->id, sizeof c->id, js_str(item, "call_id"));
	copy(c->name, sizeof c->name, js_str(item, "name"));
	copy(c->args, sizeof c->args, js_str(item, "arguments"));
}

static void read_responses(struct gw_answer *a, const json_t *v, bool whole)
{
	const char *type = js_str_or(v, "type", "");
	const json_t *r = whole ? v : js_get(v, "response");
	size_t i;
	json_t *item;
	copy(a->model, sizeof a->model, js_str(r, "model"));
	copy(a->finish, sizeof a->finish, js_str(r, "status"));
	read_usage(a, js_get(r, "usage"));
	if (whole) {
		json_array_foreach(js_get(v, "output"), i, item)
			read_item(a, item);
		a->done = js_get(v, "output") != NULL;
	} else if (strcmp(type, "response.output_item.done") == 0) {
		read_item(a, js_get(v, "item"));
	} else if (strcmp(type, "response.completed") == 0 || strcmp(type, "response.incomplete") == 0) {
		a->done = true;
	}
}

static void read_value(struct gw_answer *a, const char *path, const json_t *v, bool whole)
{
	read_error(a, v);
	if (strstr(path, "/chat/") != NULL)
		read_chat(a, v, whole);
	else if (strstr(path, "/messages") != NULL)
		read_messages(a, v, whole);
	else
		read_responses(a, v, whole);
}

/* What ordinary clients take for an event: lines that end in LF or CRLF, a blank line at its end. */
static void read_stream(struct gw_answer *a, const char *path)
{
	struct str rest = { a->raw, a->raw_n }, line;
	while (str_cut(&rest, '\n', &line)) {
		if (line.n > 0 && line.p[line.n - 1] == '\r')
			line.n--;
		if (line.n < 5 || memcmp(line.p, "data:", 5) != 0)
			continue;
		struct str data = str_trim((struct str){ line.p + 5, line.n - 5 });
		a->events++;
		if (str_eq(data, "[DONE]")) {
			a->done = true;
			continue;
		}
		auto_json json_t *v = json_loadb(data.p, data.n, JSON_ALLOW_NUL, NULL);
		if (v == NULL)
			fail_msg(
			    "an event that is no JSON: %.*s", (int)(data.n < 300 ? data.n : 300), data.p);
		read_value(a, path, v, false);
	}
}

/* ---- asking */

struct watching {
	struct gw_answer *a;
	struct span began;
	size_t got, hang_up_at;
};

static int on_data(void *arg, const char *p, size_t n)
{
	struct watching *w = arg;
	(void)p;
	if (w->got == 0)
		w->a->first_ms = clock_ms() - w->began.began_ms;
	w->got += n;
	return w->hang_up_at > 0 && w->got >= w->hang_up_at ? -1 : 0;
}

void gw_send(const struct stack *s, const char *key, const char *path, const char *body, size_t body_n,
    const char *const *headers, size_t hang_up_at, struct gw_answer *a)
{
	char number[24];
	struct web w;
	*a = (struct gw_answer){ 0 };
	struct watching watch = { .a = a, .began = span_begin(), .hang_up_at = hang_up_at };
	struct web_req q = { .method = "POST",
		.path = path,
		.key = key,
		.body = body,
		.body_n = body_n,
		.headers = headers,
		.on_data = on_data,
		.arg = &watch };
	web_do(s, &q, &w);
	a->ms = clock_ms() - watch.began.began_ms;
	a->took_ms = span_ms(&watch.began);
	a->status = w.status;
	a->raw_n = w.body_n;
	a->raw = steal(w.body);
	a->headers = xstrdup(w.headers);
	(void)web_header(&w, "x-gatehouse-model", a->by, sizeof a->by);
	(void)web_header(&w, "x-gatehouse-call-id", a->id, sizeof a->id);
	if (web_header(&w, "x-gatehouse-attempts", number, sizeof number))
		a->attempts = atoi(number);
	if (web_header(&w, "Retry-After", number, sizeof number))
		a->retry_after_s = atoi(number);
	char type[80] = "";
	(void)web_header(&w, "Content-Type", type, sizeof type);
	if (str_starts(type, "text/event-stream"))
		read_stream(a, path);
	else if (w.json != NULL)
		read_value(a, path, w.json, true);
	web_free(&w);
}

void gw_chat(
    const struct stack *s, const char *key, const char *model, bool stream, json_t *more, struct gw_answer *a)
{
	auto_json json_t *v = js_pack("{s:s, s:b, s:[{s:s, s:s}]}", "model", model, "stream", stream,
	    "messages", "role", "user", "content",
	    "Explain in exactly sixty words why a gateway earns trust.");
	if (more != NULL)
		(void)json_object_update(v, more);
	json_decref(more);
	auto_free char *body = json_dumps(v, JSON_COMPACT);
	gw_send(s, key, "/v1/chat/completions", body, 0, NULL, 0, a);
}

void gw_free(struct gw_answer *a)
{
	free(a->raw);
	free(a->headers);
	*a = (struct gw_answer){ 0 };
}

json_t *gw_tools(void)
{
	return js_pack("{s:[{s:s, s:{s:s, s:{s:s, s:{s:{s:s}}}}}]}", "tools", "type", "function", "function",
	    "name", "read", "parameters", "type", "object", "properties", "path", "type", "string");
}

bool gw_whole(const struct gw_answer *a)
{
	char want[2000] = "", w[16];
	for (int i = 0; i < FAKEMODEL_WORDS; i++) {
		(void)snprintf(w, sizeof w, "%sw%d", i == 0 ? "" : " ", i);
		append(want, sizeof want, w);
	}
	return a->status == 200 && a->done && a->error[0] == 0 && strcmp(a->text, want) == 0;
}
