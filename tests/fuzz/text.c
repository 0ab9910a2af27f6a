/* Requests of clients, configuration, and text that is kept or shown. */
#include <string.h>

#include "base/id.h"
#include "base/js.h"
#include "base/ndjson.h"
#include "base/redact.h"
#include "base/str.h"
#include "code/ask.h"
#include "fuzz.h"
#include "handlers/handlers.h"
#include "io/conf_file.h"
#include "op/cli.h"

enum { OUT_BYTES = 1 << 20 };

/* An input of every op there is. */
static void check_all(const json_t *in)
{
	for (const struct op *const *table = handlers_all; *table != NULL; table++)
		for (const struct op *op = *table; op->id != NULL; op++) {
			struct err e = { 0 };
			auto_mem struct mem *m = mem_new();
			struct op_request r;
			if (op_check(op->in, in, op->flags, &e) != 0)
				HOLDS(e.code == ERR_BAD_REQUEST && e.msg[0] != 0);
			else
				(void)op_request(m, op, in, &r, &e);
		}
}

void fuzz_json(const uint8_t *p, size_t n)
{
	struct err e = { 0 };
	auto_json json_t *v = js_parse((const char *)p, n, &e);
	HOLDS(v != NULL || e.code == ERR_BAD_REQUEST);
	if (v == NULL)
		return;
	if (json_is_object(v))
		check_all(v);
	auto_mem struct mem *m = mem_new();
	const char *text = js_dump(m, v);
	auto_json json_t *again = js_parse(text, strlen(text), &e);
	HOLDS(again != NULL && json_equal(v, again));
}

static struct routes *routes; /* as long as the process */

/* "METHOD path?query": the route, then its parameters. */
void fuzz_query(const uint8_t *p, size_t n)
{
	auto_mem struct mem *m = mem_new();
	char *method = mem_strn(m, (const char *)p, n), *path = strchr(method, ' ');
	if (path == NULL)
		return;
	*path++ = 0;
	char *query = strchr(path, '?');
	if (query != NULL)
		*query++ = 0;
	struct err e = { 0 };
	struct route_match match = { 0 };
	const struct op *op = NULL;
	if (routes == NULL)
		routes = routes_new(handlers_all);
	if (route_find(routes, method, path, DOOR_PUBLIC, &match, &e) == 0) {
		op = match.op;
		HOLDS((op->flags & OP_INTERNAL) == 0);
	}
	json_decref(match.path_params);
	err_clear(&e);
	auto_json json_t *in = query == NULL ? NULL : query_parse(query, &e);
	if (in == NULL || op == NULL)
		return;
	query_coerce(op->in, in);
	(void)op_check_route(op, match.route, in, &e);
}

/* In pieces whose length the first byte says; each line for people. */
void fuzz_ndjson(const uint8_t *p, size_t n)
{
	if (n == 0)
		return;
	struct ndjson r = ndjson_new(4096);
	struct cli_render view = { .columns = p[0] % 2 == 0 ? 80 : 0 };
	auto_buf struct buf out = BUF(OUT_BYTES);
	size_t by = p[0] % 64 + 1U, lines = 0;
	for (size_t at = 1; at < n; at += by) {
		struct str line;
		if (ndjson_feed(&r, (const char *)p + at, n - at < by ? n - at : by) != 0)
			break;
		while (ndjson_next(&r, &line)) {
			struct err e = { 0 };
			auto_json json_t *v = js_parse(line.p, line.n, &e);
			HOLDS(line.n <= 4096 && ++lines <= n);
			if (v != NULL)
				cli_line(&view, v, &out);
		}
	}
	ndjson_free(&r);
	/* No control sequence of somebody else's reaches the terminal: escapes are our own only, and only with columns. */
	if (view.columns == 0)
		HOLDS(out.n == 0 || memchr(out.p, 0x1b, out.n) == NULL);
}

void fuzz_redact(const uint8_t *bytes, size_t n)
{
	static const char secret[] = "hunter2-hunter2";
	const char *p = (const char *)bytes;
	auto_buf struct buf a = BUF(OUT_BYTES), b = BUF(OUT_BYTES), c = BUF(OUT_BYTES), d = BUF(OUT_BYTES);
	HOLDS(redact_plain(p, n, &a) == 0 && redact_text(p, n, &b) == 0 && redact_must_json(p, n, &c) == 0);
	HOLDS(redact_secret(p, n, secret, &d) == 0);
	HOLDS(d.n == 0 || memmem(d.p, d.n, secret, sizeof secret - 1) == NULL);
	auto_buf struct buf again = BUF(OUT_BYTES);
	HOLDS(redact_plain(buf_c(&a), a.n, &again) == 0);
	/* In a longer text what was taken out may bring an '@' near enough to be found. */
	HOLDS(n > REDACT_ODD_MAX || (again.n == a.n && (a.n == 0 || memcmp(again.p, a.p, a.n) == 0)));
}

static int got(void *arg, const char *key, const char *value, int line, struct err *e)
{
	(void)arg, (void)e;
	HOLDS(key != NULL && value != NULL && line > 0);
	return 0;
}

void fuzz_conf(const uint8_t *p, size_t n)
{
	struct err e = { 0 };
	HOLDS(conf_file_parse((const char *)p, n, got, NULL, &e) == 0 || e.code != ERR_NONE);
}

void fuzz_url(const uint8_t *p, size_t n)
{
	auto_mem struct mem *m = mem_new();
	const char *url = mem_strn(m, (const char *)p, n);
	struct err e = { 0 };
	struct ask ask;
	struct ask_host h;
	auto_json json_t *in = js_pack("{s:s}", "prompt", "x");
	js_set(in, "cloneUrl", js_text(url, strlen(url)));
	ask_read(in, &ask);
	int rc = ask_check(&ask, in, "git.corp:8080", &e);
	if (!ask_host_of(ask.clone_url, &h)) {
		HOLDS(rc != 0); /* what was accepted can be read */
		return;
	}
	HOLDS(memchr(h.name, 0, sizeof h.name) != NULL && h.port > 0 && h.port < 65536);
	(void)ask_host_listed("git.corp:8080, other", &h);
}
