#include "../t.h"

#include "fetch.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "base/js.h"

enum { BODY_MAX_BYTES = 64 << 20 };

struct fetch {
	CURL *c;
	struct curl_slist *headers;
	char url[48];
	struct buf body;
	void (*on_piece)(void *arg, const char *p, size_t n);
	void *arg;
};

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct fetch *f = arg;
	if (f->on_piece != NULL)
		f->on_piece(f->arg, p, size * n);
	return buf_add(&f->body, p, size * n) == 0 ? size * n : 0;
}

void fetch_on_piece(struct fetch *f, void (*fn)(void *arg, const char *p, size_t n), void *arg)
{
	f->on_piece = fn;
	f->arg = arg;
}

struct fetch *fetch_new(const struct stack *s, const char *key)
{
	char line[200];
	struct fetch *f = xcalloc(1, sizeof *f);
	f->c = curl_easy_init();
	assert_non_null(f->c);
	f->body = BUF(BODY_MAX_BYTES);
	(void)snprintf(f->url, sizeof f->url, "%s", s->url[0]);
	(void)snprintf(line, sizeof line, "Authorization: Bearer %s", key);
	f->headers = curl_slist_append(f->headers, line);
	f->headers = curl_slist_append(f->headers, "Content-Type: application/json");
	f->headers = curl_slist_append(f->headers, "Expect:");
	(void)curl_easy_setopt(f->c, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(f->c, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(f->c, CURLOPT_CAINFO, s->ca);
	(void)curl_easy_setopt(f->c, CURLOPT_HTTPHEADER, f->headers);
	(void)curl_easy_setopt(f->c, CURLOPT_WRITEFUNCTION, on_body);
	(void)curl_easy_setopt(f->c, CURLOPT_WRITEDATA, f);
	(void)curl_easy_setopt(f->c, CURLOPT_TIMEOUT, 60L);
	return f;
}

void fetch_header(struct fetch *f, const char *line)
{
	f->headers = curl_slist_append(f->headers, line);
	(void)curl_easy_setopt(f->c, CURLOPT_HTTPHEADER, f->headers);
}

void fetch_http_1(struct fetch *f)
{
	(void)curl_easy_setopt(f->c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
}

void fetch_free(struct fetch *f)
{
	if (f == NULL)
		return;
	curl_easy_cleanup(f->c);
	curl_slist_free_all(f->headers);
	buf_free(&f->body);
	free(f);
}

const struct buf *fetch_do(struct fetch *f, const char *method, const char *path, const char *body)
{
	char url[1024];
	long status = 0;
	assert_true(snprintf(url, sizeof url, "%s%s", f->url, path) < (int)sizeof url);
	buf_reset(&f->body);
	(void)curl_easy_setopt(f->c, CURLOPT_URL, url);
	(void)curl_easy_setopt(f->c, CURLOPT_HTTPGET, 1L);
	if (body != NULL) {
		(void)curl_easy_setopt(f->c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
		(void)curl_easy_setopt(f->c, CURLOPT_POSTFIELDS, body);
	}
	(void)curl_easy_setopt(f->c, CURLOPT_CUSTOMREQUEST, method);
	CURLcode rc = curl_easy_perform(f->c);
	(void)curl_easy_getinfo(f->c, CURLINFO_RESPONSE_CODE, &status);
	if (rc != CURLE_OK || status < 200 || status > 299)
		fail_msg("%s %s: %s, status %ld: %.300s", method, path, curl_easy_strerror(rc), status,
		    buf_c(&f->body));
	return &f->body;
}

json_t *fetch_json(struct fetch *f, const char *method, const char *path, json_t *body)
{
	auto_json json_t *mine = body;
	auto_free char *text = body == NULL ? NULL : json_dumps(mine, JSON_COMPACT);
	const struct buf *b = fetch_do(f, method, path, text);
	json_t *v = json_loadb(b->p, b->n, JSON_DECODE_ANY, NULL);
	assert_non_null(v);
	return v;
}
