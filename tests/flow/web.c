/* web.c - requests through nginx for the flow tests, straight over libcurl: the tests see every header. */
#include "../span.h"
#include "../t.h"

#include "stack.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

enum { WEB_MAX_BYTES = 64 << 20 };

struct sink {
	const struct web_req *q;
	struct buf body, headers;
	bool hung_up;
};

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct sink *k = arg;
	if (buf_add(&k->body, p, size * n) != 0 && k->q->on_data == NULL)
		return 0;
	k->hung_up = k->q->on_data != NULL && k->q->on_data(k->q->arg, p, size * n) != 0;
	return k->hung_up ? 0 : size * n;
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
	struct sink *k = arg;
	return buf_add(&k->headers, p, size * n) == 0 ? size * n : 0;
}

static struct curl_slist *headers_of(const struct web_req *q)
{
	struct curl_slist *h = NULL;
	char line[16 * 1024]; /* a JWT is long */
	if (q->key != NULL) {
		(void)snprintf(line, sizeof line, "Authorization: Bearer %s", q->key);
		h = curl_slist_append(h, line);
	}
	if (q->body != NULL) {
		(void)snprintf(
		    line, sizeof line, "Content-Type: %s", q->type == NULL ? "application/json" : q->type);
		h = curl_slist_append(h, line);
	}
	h = curl_slist_append(h, "Expect:");
	for (const char *const *x = q->headers; x != NULL && *x != NULL; x++)
		h = curl_slist_append(h, *x);
	return h;
}

void web_do(const struct stack *s, const struct web_req *q, struct web *w)
{
	struct sink k = { .q = q, .body = BUF(WEB_MAX_BYTES), .headers = BUF(1 << 20) };
	char url[4096 + 64];
	assert_true(snprintf(url, sizeof url, "%s%s", s->url[q->api], q->path) < (int)sizeof url);
	CURL *c = curl_easy_init();
	assert_non_null(c);
	struct curl_slist *h = headers_of(q);
	(void)curl_easy_setopt(c, CURLOPT_URL, url);
	(void)curl_easy_setopt(c, CURLOPT_PATH_AS_IS, 1L);
	(void)curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(c, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(c, CURLOPT_CAINFO, s->ca);
	(void)curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, q->method);
	(void)curl_easy_setopt(c, CURLOPT_HTTPHEADER, h);
	(void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	(void)curl_easy_setopt(c, CURLOPT_WRITEDATA, &k);
	(void)curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
	(void)curl_easy_setopt(c, CURLOPT_HEADERDATA, &k);
	(void)curl_easy_setopt(
	    c, CURLOPT_TIMEOUT, (long)(q->timeout_s == 0 ? 5 * PATIENCE_MS / 1000 : q->timeout_s));
	if (strcmp(q->method, "HEAD") == 0)
		(void)curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
	if (q->body != NULL) {
		(void)curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE,
		    (curl_off_t)(q->body_n == 0 ? strlen(q->body) : q->body_n));
		(void)curl_easy_setopt(c, CURLOPT_POSTFIELDS, q->body);
	}
	CURLcode rc = curl_easy_perform(c);
	*w = (struct web){ 0 };
	(void)curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &w->status);
	curl_slist_free_all(h);
	curl_easy_cleanup(c);
	w->headers = xstrdup(buf_c(&k.headers));
	w->body_n = k.body.n;
	w->body = steal(k.body.p);
	if (w->body == NULL)
		w->body = xstrdup("");
	w->json = json_loadb(w->body, w->body_n, JSON_DECODE_ANY, NULL);
	buf_free(&k.headers);
	/* A cut stream (a killed server) still has its status; the caller looks for the terminal line. */
	if (rc != CURLE_OK && !k.hung_up && w->status == 0)
		fail_msg("%s %s: %s", q->method, q->path, curl_easy_strerror(rc));
}

void web_free(struct web *w)
{
	json_decref(w->json);
	free(w->headers);
	free(w->body);
	*w = (struct web){ 0 };
}

void web_parse(const struct buf *answer, struct web *w)
{
	const char *end = strstr(buf_c(answer), "\r\n\r\n");
	if (end == NULL || strncmp(buf_c(answer), "HTTP/1.1 ", 9) != 0)
		fail_msg("No answer: %s", buf_c(answer));
	*w = (struct web){ .status = strtol(buf_c(answer) + 9, NULL, 10) };
	w->headers = xcalloc(1, answer->n + 1);
	memcpy(w->headers, answer->p, (size_t)(end - answer->p) + 2);
	w->body = xstrdup(end + 4);
	w->body_n = strlen(w->body);
	w->json = json_loads(w->body, 0, NULL);
}

void web_json(
    const struct stack *s, const char *method, const char *path, const char *key, json_t *body, struct web *w)
{
	auto_free char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
	json_decref(body);
	struct web_req q = { .method = method, .path = path, .key = key, .body = text };
	web_do(s, &q, w);
}

bool web_header(const struct web *w, const char *name, char *out, size_t size)
{
	size_t n = strlen(name);
	struct str rest = str_of(w->headers), line;
	bool found = false;
	while (str_cut(&rest, '\n', &line)) {
		if (line.n <= n || line.p[n] != ':' || strncasecmp(line.p, name, n) != 0)
			continue;
		size_t at = n + 1;
		while (at < line.n && line.p[at] == ' ')
			at++;
		size_t len = line.n - at;
		while (len > 0 && (line.p[at + len - 1] == '\r' || line.p[at + len - 1] == ' '))
			len--;
		(void)snprintf(out, size, "%.*s", (int)len, line.p + at);
		found = true; /* the last one: interim replies come first */
	}
	return found;
}

const char *web_error(const struct web *w, const char *member)
{
	const char *v = json_string_value(json_object_get(json_object_get(w->json, "error"), member));
	return v == NULL ? "" : v;
}
