/* chaos_client.c - the clients of chaos.h: threads, so they note faults and never fail the test themselves. */
#include "../span.h"
#include "../t.h"

#include "chaos.h"

#include <curl/curl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "runs.h"

enum {
	AGAIN_MS = 100,
	RUN_MS = 10 * PATIENCE_MS, /* from the first post to the terminal line, whatever is killed */
	SILENT_S = 40,             /* pings come every 15 s */
	BODY_BYTES = 4 << 20,
};

struct ask { /* one request */
	struct chaos *c;
	struct chaos_run *r;
	struct buf line; /* the line under way */
	struct buf body; /* of a reply that is not a stream */
	bool streams, retry_after, json;
	char session[ID_MAX], how[200]; /* how: what was asked and how that went */
};

static void fault(struct chaos_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fault(struct chaos_run *r, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	if (r->fault[0] == 0)
		(void)vsnprintf(r->fault, sizeof r->fault, fmt, ap);
	va_end(ap);
}

static long long last_seq(const struct chaos_run *r)
{
	return r->n_lines == 0 ? 0 : r->lines[r->n_lines - 1].seq;
}

/* STR-3: whatever was cut, a client that resumes sees each event once and in order. */
static void take_line(struct ask *a, const char *text, size_t n)
{
	struct chaos_run *r = a->r;
	struct err e = { 0 };
	auto_json json_t *v = js_parse(text, n, &e);
	long long seq = js_int(v, "seq", 0);
	const char *type = js_str_or(v, "type", "");
	if (v == NULL) {
		fault(r, "a line is no JSON: %.100s", text);
		return;
	}
	if (seq == 0)
		return; /* ping, reconnect */
	if (seq != last_seq(r) + 1)
		fault(r, "seq %lld came after %lld", seq, last_seq(r));
	if (r->ended)
		fault(r, "an event came after the end: %.200s", text);
	r->lines = xrealloc(r->lines, (size_t)(r->n_lines + 1) * sizeof *r->lines);
	r->lines[r->n_lines++] = (struct chaos_line){ seq, xstrdup(text) };
	if (seq == 1 && r->run[0] == 0)
		(void)snprintf(r->run, sizeof r->run, "%s", js_str_or(v, "run", ""));
	if (strcmp(type, "result") == 0 || strcmp(type, "error") == 0) {
		r->ended = true;
		(void)snprintf(r->end, sizeof r->end, "%s", type);
	}
	if (r->task == TASK_STOPPED && r->stop == STOP_NOT && strstr(text, "waiting") != NULL)
		r->stop = STOP_DUE;
	(void)atomic_fetch_add(&a->c->events, 1);
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct ask *a = arg;
	n *= size;
	if (!a->streams)
		return buf_add(&a->body, p, n) == 0 ? n : 0;
	for (size_t i = 0; i < n; i++) {
		if (p[i] != '\n') {
			if (buf_chr(&a->line, p[i]) != 0)
				return 0;
			continue;
		}
		take_line(a, buf_c(&a->line), a->line.n);
		buf_reset(&a->line);
	}
	if (a->r->stop == STOP_DUE)
		return 0; /* hang up, to ask for the stop */
	return n;
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
	static const char place[] = "location: /v1/agents/sessions/";
	struct ask *a = arg;
	n *= size;
	if (n > sizeof place && strncasecmp(p, place, sizeof place - 1) == 0)
		(void)snprintf(a->session, sizeof a->session, "%.*s",
		    (int)strcspn(p + sizeof place - 1, "\r\n"), p + sizeof place - 1);
	a->retry_after |= n > 12 && strncasecmp(p, "retry-after:", 12) == 0;
	a->json |= n > 31 && strncasecmp(p, "content-type: application/json", 30) == 0;
	a->streams |= n > 33 && strncasecmp(p, "content-type: application/x-ndjson", 34) == 0;
	return n;
}

/* The status, 0 without an answer. */
static long perform(
    struct ask *a, int api, const char *method, const char *path, const char *body, bool async)
{
	char url[300], key[200];
	long status = 0;
	CURL *h = curl_easy_init();
	(void)snprintf(url, sizeof url, "%s%s", a->c->stack.url[api], path);
	(void)snprintf(key, sizeof key, "Authorization: Bearer %s", a->c->org.member);
	struct curl_slist *headers = curl_slist_append(NULL, key);
	headers = curl_slist_append(headers, "Content-Type: application/json");
	headers = curl_slist_append(headers, "Expect:");
	if (async)
		headers = curl_slist_append(headers, "Prefer: respond-async");
	(void)curl_easy_setopt(h, CURLOPT_URL, url);
	/* Over HTTP/2 an nginx worker that is told to end says goodbye also to who has connected and not yet asked, or is asking just
	 * then. Such a request was not processed and may be sent again (RFC 9113, 6.8), which curl leaves to us. */
	(void)curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(h, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(h, CURLOPT_CAINFO, a->c->stack.ca);
	(void)curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, method);
	(void)curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
	(void)curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
	(void)curl_easy_setopt(h, CURLOPT_WRITEDATA, a);
	(void)curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
	(void)curl_easy_setopt(h, CURLOPT_HEADERDATA, a);
	(void)curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, 30L);
	(void)curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
	(void)curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)SILENT_S);
	if (body != NULL)
		(void)curl_easy_setopt(h, CURLOPT_POSTFIELDS, body);
	CURLcode rc = curl_easy_perform(h);
	(void)curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
	(void)snprintf(
	    a->how, sizeof a->how, "%s %.100s: %ld, %s", method, path, status, curl_easy_strerror(rc));
	curl_slist_free_all(headers);
	curl_easy_cleanup(h);
	return status;
}

/* Send it; anything but success, a 503 that says when to come back, or no answer at all is a fault. */
static long ask(struct ask *a, int api, const char *method, const char *path, const char *body, bool async)
{
	a->line = BUF(1 << 20);
	a->body = BUF(BODY_BYTES);
	long status = perform(a, api, method, path, body, async);
	if (a->streams && !a->r->ended && a->r->stop != STOP_DUE)
		(void)atomic_fetch_add(&a->c->cut, 1);
	bool late = status == 409 && a->r->stop == STOP_DUE; /* it has ended meanwhile, which is an answer */
	if (status / 100 != 2 && !late) {
		if (atomic_fetch_add(&a->c->refused, 1) == 0)
			(void)snprintf(a->c->refusal, sizeof a->c->refusal, "%s", a->how);
		if (status != 0 && (status != 503 || !a->retry_after || !a->json))
			fault(a->r, "%s %s: %ld%s: %.200s", method, path, status,
			    a->retry_after ? "" : " without Retry-After", buf_c(&a->body));
		(void)poll(NULL, 0, AGAIN_MS);
	}
	return status;
}

static void ask_free(struct ask *a)
{
	buf_free(&a->line);
	buf_free(&a->body);
}

static json_t *task_of(const struct chaos_run *r)
{
	auto_mem struct mem *m = mem_new();
	const char *edit = mem_fmt(m, "open('a.txt', 'a').write('two %d\\n')\n", r->n);
	const char *mark = mem_fmt(m, "print('mark %d')\n", r->n);
	const char *const bodies[CHAOS_TASKS] = {
		[TASK_EDIT] = edit,
		[TASK_NOTHING] = "",
		[TASK_FAILS] =
		    "import sys; sys.stdout.flush(); print('mark fails', flush=True); sys.exit(3)\n",
		[TASK_SLOW] = mem_fmt(
		    m, "import time\nfor i in range(8):\n  print(i, flush=True); time.sleep(0.2)\n%s", edit),
		[TASK_LOUD] = mem_fmt(m, "for i in range(20000): print('line', i)\n%s", edit),
		[TASK_STOPPED] = mem_fmt(
		    m, "import time; print('waiting', flush=True); time.sleep(120)\n%s", edit),
	};
	return js_pack("{s:s,s:s,s:s}", "tool", "python", "repo", CHAOS_REPO, "prompt",
	    mem_fmt(m, "%s%s", bodies[r->task], mark));
}

/* Until it is acknowledged. A post without an answer may have made a run nobody heard of; another one is made then. */
static void post(struct chaos *c, struct chaos_run *r, int64_t until)
{
	auto_mem struct mem *m = mem_new();
	const char *body = js_dump(m, mem_json(m, task_of(r)));
	while (r->session[0] == 0 && r->fault[0] == 0) {
		struct ask a = { .c = c, .r = r };
		(void)ask(&a, (r->n + r->posts) % 2, "POST", "/v1/coding-tasks", body, r->n % 2 == 0);
		r->posts++;
		memcpy(r->session, a.session, sizeof r->session);
		ask_free(&a);
		if (clock_ms() > until)
			fault(r, "could not be posted");
	}
}

static void stop(struct chaos *c, struct chaos_run *r, int64_t until)
{
	char path[100];
	(void)snprintf(path, sizeof path, "/v1/bots/%s/stop", r->run);
	while (r->stop == STOP_DUE && r->fault[0] == 0 && clock_ms() < until) {
		struct ask a = { .c = c, .r = r };
		long status = ask(&a, ++r->cuts % 2, "POST", path, "{}", false);
		if (status / 100 == 2 || status == 409)
			r->stop = STOP_ASKED;
		ask_free(&a);
	}
}

static void follow(struct chaos *c, struct chaos_run *r, int64_t until)
{
	while (!r->ended && r->fault[0] == 0) {
		char path[200];
		stop(c, r, until);
		struct ask a = { .c = c, .r = r };
		(void)snprintf(
		    path, sizeof path, "/v1/agents/sessions/%s/stream?after=%lld", r->session, last_seq(r));
		(void)ask(&a, (r->n + ++r->cuts) % 2, "GET", path, NULL, false);
		ask_free(&a);
		if (clock_ms() > until)
			fault(r, "did not end; last: %.200s",
			    r->n_lines == 0 ? "nothing" : r->lines[r->n_lines - 1].text);
	}
}

static void one(struct chaos *c, struct chaos_run *r)
{
	int64_t until = clock_ms() + RUN_MS;
	post(c, r, until);
	follow(c, r, until);
}

static void *client(void *arg)
{
	struct chaos *c = arg;
	for (int n; (n = atomic_fetch_add(&c->next, 1)) < c->runs;)
		one(c, &c->all[n]);
	(void)atomic_fetch_sub(&c->living, 1);
	return NULL;
}

void chaos_stack(struct chaos *c, const char *conf)
{
	stack_up(&c->stack, 2, 2, 2, conf);
	stack_org(&c->stack, &c->org);
	runs_repo(&c->stack, &c->org, CHAOS_REPO);
}

/* What the runs are asked for: most of them work; one in eight each does nothing, fails, or is stopped. */
void chaos_begin(struct chaos *c, int runs)
{
	static const enum chaos_task mix[8] = { TASK_EDIT, TASK_SLOW, TASK_NOTHING, TASK_EDIT, TASK_LOUD,
		TASK_FAILS, TASK_SLOW, TASK_STOPPED };
	c->runs = runs;
	c->all = xcalloc((size_t)runs, sizeof *c->all);
	for (int i = 0; i < runs; i++) {
		c->all[i].n = i;
		c->all[i].task = mix[i % 8];
	}
	atomic_store(&c->next, 0);
	atomic_store(&c->events, 0);
	atomic_store(&c->refused, 0);
	atomic_store(&c->cut, 0);
	atomic_store(&c->living, CHAOS_CLIENTS);
	for (int i = 0; i < CHAOS_CLIENTS; i++)
		assert_int_equal(pthread_create(&c->clients[i], NULL, client, c), 0);
}

void chaos_wait_events(struct chaos *c, int events)
{
	int64_t until = clock_ms() + 4 * PATIENCE_MS;
	while (atomic_load(&c->events) < events) {
		if (clock_ms() > until || atomic_load(&c->living) == 0)
			fail_msg("clients have seen %d events, not %d", atomic_load(&c->events), events);
		(void)poll(NULL, 0, 5);
	}
}

void chaos_end(struct chaos *c)
{
	for (int i = 0; i < CHAOS_CLIENTS; i++)
		(void)pthread_join(c->clients[i], NULL);
	chaos_judge(c);
	for (int i = 0; i < c->runs; i++) {
		for (int k = 0; k < c->all[i].n_lines; k++)
			free(c->all[i].lines[k].text);
		free(c->all[i].lines);
	}
	free(c->all);
	c->all = NULL;
}
