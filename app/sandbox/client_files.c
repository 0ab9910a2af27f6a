/* client_files.c - files of a sandbox, asked of its node (SBX-47). */
#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/limits.h"
#include "base/ndjson.h"
#include "sandbox/client_int.h"

enum { TREE_MS = 150 * 1000, LIST_REPLY_BYTES = 32 << 20 };

/* However long it takes: only silence ends it. */
static int file_do(struct http_req *q, const struct box_addr *a, json_t **got, struct err *e)
{
	struct http_res res = { 0 };
	q->unix_socket = a->socket;
	q->connect_ms = CLIENT_CONNECT_MS;
	q->idle_ms = CLIENT_IDLE_MS;
	int rc = client_judge(http_do(q, &res, e), &res, e);
	if (rc == 0 && got != NULL && (*got = js_parse(buf_c(&res.body), res.body.n, e)) == NULL)
		rc = err_replace(e, ERR_UPSTREAM, "The sandbox's node gave no sensible answer.");
	http_res_free(&res);
	return rc;
}

int box_put(const struct box_addr *a, const char *path, int mode,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const char *rest = mem_fmt(m, "/files?path=%s", http_escape(m, path));
	if (mode >= 0)
		rest = mem_fmt(m, "%s&mode=%d", rest, mode);
	struct http_req q = { .method = "PUT", .url = client_url(m, a, rest), .body_read = read, .arg = arg };
	return file_do(&q, a, NULL, e);
}

int box_get(const struct box_addr *a, const char *path, long long offset, long long length,
    int (*on_data)(void *arg, const char *p, size_t n), void *arg, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const char *rest = mem_fmt(m, "/files?path=%s&offset=%lld", http_escape(m, path), offset);
	if (length >= 0)
		rest = mem_fmt(m, "%s&length=%lld", rest, length);
	struct http_req q = {
		.method = "GET", .url = client_url(m, a, rest), .on_data = on_data, .arg = arg
	};
	return file_do(&q, a, NULL, e);
}

int box_pack(const struct box_addr *a, const char *path, int (*on_data)(void *arg, const char *p, size_t n),
    void *arg, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const char *rest = mem_fmt(m, "/tar?path=%s", http_escape(m, path));
	struct http_req q = {
		.method = "GET", .url = client_url(m, a, rest), .on_data = on_data, .arg = arg
	};
	return file_do(&q, a, NULL, e);
}

int box_unpack(const struct box_addr *a, const char *path, ssize_t (*read)(void *arg, void *p, size_t n),
    void *arg, long long *entries, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_json json_t *got = NULL;
	const char *rest = mem_fmt(m, "/tar?path=%s", http_escape(m, path));
	struct http_req q = { .method = "PUT", .url = client_url(m, a, rest), .body_read = read, .arg = arg };
	if (file_do(&q, a, &got, e) != 0)
		return -1;
	*entries = js_int(got, "entries", 0);
	return 0;
}

json_t *box_stat(const struct box_addr *a, const char *path, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	json_t *got = NULL;
	const char *rest = mem_fmt(m, "/look?path=%s", http_escape(m, path));
	if (client_call(a, "GET", client_url(m, a, rest), NULL, CLIENT_CALL_MS, &got, e) != 0)
		return NULL;
	(void)json_object_del(got, "entries");
	(void)json_object_del(got, "truncated");
	return got;
}

json_t *box_list(const struct box_addr *a, const char *path, int depth, int limit, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	json_t *got = NULL;
	const char *rest = mem_fmt(m, "/look?path=%s&depth=%d&limit=%d", http_escape(m, path), depth, limit);
	const struct client_until until = { .total_ms = CLIENT_CALL_MS, .max_reply_bytes = LIST_REPLY_BYTES };
	return client_call_until(a, "GET", client_url(m, a, rest), NULL, &until, &got, e) == 0 ? got : NULL;
}

int box_mkdir(const struct box_addr *a, const char *path, int mode, bool *made, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_json json_t *body = js_pack("{s:s}", "path", path), *got = NULL;
	if (mode >= 0)
		js_set(body, "mode", json_integer(mode));
	if (client_call(a, "POST", client_url(m, a, "/mkdir"), body, CLIENT_CALL_MS, &got, e) != 0)
		return -1;
	if (made != NULL)
		*made = js_bool(got, "made", false);
	return 0;
}

int box_move(const struct box_addr *a, const char *from, const char *to, bool replace, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_json json_t *body = js_pack("{s:s,s:s,s:b}", "from", from, "to", to, "replace", replace);
	return client_call(a, "POST", client_url(m, a, "/move"), body, CLIENT_CALL_MS, NULL, e);
}

int box_remove(const struct box_addr *a, const char *path, bool tree, long long *count, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_json json_t *body = js_pack("{s:s,s:b}", "path", path, "tree", tree), *got = NULL;
	if (client_call(a, "POST", client_url(m, a, "/remove"), body, TREE_MS, &got, e) != 0)
		return -1;
	if (count != NULL)
		*count = js_int(got, "count", 0);
	return 0;
}

/* ---- changes */

struct watching {
	int (*on_line)(void *arg, const json_t *line);
	bool (*cancelled)(void *arg);
	void *arg;
	struct ndjson lines;
	bool ended;
};

static int watch_data(void *arg, const char *p, size_t n)
{
	struct watching *w = arg;
	struct str text;
	if (ndjson_feed(&w->lines, p, n) != 0)
		return -1;
	while (ndjson_next(&w->lines, &text)) {
		struct err bad = { 0 };
		auto_json json_t *line = js_parse(text.p, text.n, &bad);
		if (line == NULL)
			return -1;
		w->ended = strcmp(js_str_or(line, "type", ""), "end") == 0;
		if (!w->ended && w->on_line(w->arg, line) != 0)
			return -1;
	}
	return 0;
}

static bool watch_cancelled(void *arg)
{
	const struct watching *w = arg;
	return w->cancelled != NULL && w->cancelled(w->arg);
}

int box_watch(const struct box_addr *a, const char *path, bool recursive,
    int (*on_line)(void *arg, const json_t *line), bool (*cancelled)(void *arg), void *arg, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	struct watching w = {
		.on_line = on_line, .cancelled = cancelled, .arg = arg, .lines = ndjson_new(LIMIT_LINE_BYTES)
	};
	const char *rest = mem_fmt(
	    m, "/watch?path=%s&recursive=%s", http_escape(m, path), recursive ? "true" : "false");
	struct http_req q = { .method = "GET",
		.url = client_url(m, a, rest),
		.on_data = watch_data,
		.cancelled = watch_cancelled,
		.arg = &w };
	int rc = file_do(&q, a, NULL, e);
	ndjson_free(&w.lines);
	if (rc == 0 && w.ended)
		return 0;
	if (rc == 0)
		rc = err_set(e, ERR_UPSTREAM, "The sandbox went away: what changes is not told any more.");
	if (e->code == ERR_UPSTREAM || (e->code == ERR_TIMEOUT && e->reason == NULL))
		e->reason = "lost";
	return rc;
}
