/*
 * Nothing of a call stays behind: thousands of calls of every kind (buffered, streamed, translated, refused, with faults of the upstream,
 * with clients that leave) through the whole stack; then the api holds what it held after the first half of them. Of the
 * release build, as a sanitizer keeps freed memory back. GATEHOUSE_HEAVY=1: for a minute, or SOAK_SECONDS.
 */
#include "../t.h"

#include <curl/curl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "../fds.h"
#include "../memory.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "gw.h"

enum {
	CLIENTS = 8,
	SHORT_S = 8,
	HEAVY_S = 60,
	SETTLE_MS = 6000, /* threads that are not needed end after 2 s */
	LEAVE_MS = 30,
	GROWTH_KIB = 2048,
	GROWTH_SHORT_KIB =
	    4096, /* of a few hundred calls, while caches and the heap of each thread still fill */
	BODY_BYTES = 300 * 1024,
};

static struct stack st;
static struct stack_org org;
static struct fakemodel *fake;

/* ---- the calls */

struct kind {
	const char *path, *model;
	bool stream;
	size_t leave_at;  /* bytes of the answer after which the client leaves */
	long status;      /* of the answer; 0: any */
	const char *text; /* asked for; NULL: hello */
};

#define CHAT      "/v1/chat/completions"
#define MESSAGES  "/v1/messages"
#define RESPONSES "/v1/responses"
static const struct kind kinds[] = {
	{ CHAT, "plain/ok", false, 0, 200, NULL },
	{ CHAT, "plain/ok", true, 0, 200, NULL },
	{ MESSAGES, "plain/ok", false, 0, 200, NULL },
	{ MESSAGES, "plain/ok", true, 0, 200, NULL },
	{ RESPONSES, "plain/ok", false, 0, 200, NULL },
	{ RESPONSES, "plain/ok", true, 0, 200, NULL },
	{ CHAT, "plain/tools", true, 0, 200, NULL },
	{ CHAT, "plain/gzip", false, 0, 200, NULL },
	{ CHAT, "anthropic/ok", true, 0, 200, NULL },
	{ CHAT, "anthropic/ok", false, 0, 200, NULL },
	{ CHAT, "f-html/html-200", false, 0, 200, NULL }, /* with a fallback, as the next two */
	{ CHAT, "f-json/json-cut", false, 0, 200, NULL },
	{ CHAT, "f-first/error-first", true, 0, 200, NULL },
	{ CHAT, "f-reset/cut-reset", true, 0, 0, NULL },
	{ CHAT, "f-event/error-event", true, 0, 0, NULL },
	{ CHAT, "f-404/404", false, 0, 0, NULL },
	{ CHAT, "f-401/401", true, 0, 0, NULL },
	{ CHAT, "f-503/503", true, 0, 0, NULL },
	{ CHAT, "f-429/429", false, 0, 0, NULL },
	{ CHAT, "nobody/knows", false, 0, 404, NULL },
	{ CHAT, "plain/endless", true, 3000, 200, NULL },
	{ MESSAGES, "plain/endless", true, 1, 200, NULL },
	{ NULL, "plain/silent", true, 0, 0, NULL }, /* and leaves before there is an answer */
	{ NULL, "plain/silent", false, 0, 0, NULL },
};
static const struct {
	const char *path, *key;
	long status;
} reads[] = { { "/v1/models", "", 200 }, { "/v1/agents/sessions", "", 200 }, { "/v1/billing/usage", "", 200 },
	{ "/v1/bots?limit=0", "", 400 }, { "/v1/nothing", "", 404 }, { "/v1/keys", NULL, 401 },
	{ "/v1/keys", "gk_00000000000000000000000000_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 401 } };
enum { N_KINDS = sizeof kinds / sizeof kinds[0], N_READS = sizeof reads / sizeof reads[0] };

static char *body_of(const struct kind *k, const char *text)
{
	auto_json json_t *v = js_pack("{s:s, s:b}", "model", k->model, "stream", k->stream);
	bool responses = k->path != NULL && strcmp(k->path, RESPONSES) == 0;
	json_t *said = js_pack("[{s:s, s:s}]", "role", "user", "content", text);
	js_set(v, responses ? "input" : "messages", said);
	js_set(v, responses ? "max_output_tokens" : "max_tokens", json_integer(500));
	return json_dumps(v, JSON_COMPACT);
}

static size_t drop(char *p, size_t size, size_t n, void *arg)
{
	(void)p, (void)arg;
	return size * n;
}

static void leave_early(const char *body)
{
	char url[100], key[200];
	(void)snprintf(url, sizeof url, "%s" CHAT, st.url[0]);
	(void)snprintf(key, sizeof key, "Authorization: Bearer %s", org.key);
	struct curl_slist *head = curl_slist_append(
	    curl_slist_append(NULL, key), "Content-Type: application/json");
	CURL *c = curl_easy_init();
	(void)curl_easy_setopt(c, CURLOPT_URL, url);
	(void)curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(c, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(c, CURLOPT_CAINFO, st.ca);
	(void)curl_easy_setopt(c, CURLOPT_HTTPHEADER, head);
	(void)curl_easy_setopt(c, CURLOPT_POSTFIELDS, body);
	(void)curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)LEAVE_MS);
	(void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, drop);
	(void)curl_easy_perform(c);
	curl_easy_cleanup(c);
	curl_slist_free_all(head);
}

static void call(const struct kind *k, const char *text)
{
	auto_free char *body = body_of(k, text);
	auto_gw struct gw_answer a = { 0 };
	if (k->path == NULL) {
		leave_early(body);
		return;
	}
	gw_send(&st, org.key, k->path, body, 0, NULL, k->leave_at, &a);
	if (a.status == 0 || (k->status != 0 && a.status != k->status))
		fail_msg("%s of %s: %ld %.300s", k->model, k->path, a.status, a.raw);
}

static void read_one(int i)
{
	auto_web struct web w = { 0 };
	const char *key = reads[i].key;
	web_json(&st, "GET", reads[i].path, key != NULL && key[0] == 0 ? org.key : key, NULL, &w);
	if (w.status != reads[i].status)
		fail_msg("%s: %ld %.300s", reads[i].path, w.status, w.body);
}

/* One client does every kind of call once, each in another order. */
static void *client(void *arg)
{
	int me = *(const int *)arg;
	auto_free char *long_text = xcalloc(1, BODY_BYTES + 1);
	memset(long_text, 'x', BODY_BYTES);
	for (int i = 0; i < N_KINDS; i++)
		call(&kinds[(i + 3 * me) % N_KINDS], "hello");
	for (int i = 0; i < N_READS; i++)
		read_one((i + me) % N_READS);
	call(&kinds[me % 2], long_text);
	return NULL;
}

enum { CALLS_A_ROUND = CLIENTS * (N_KINDS + N_READS + 1) };

static void round_of_all(void)
{
	pthread_t threads[CLIENTS];
	int who[CLIENTS];
	for (int i = 0; i < CLIENTS; i++) {
		who[i] = i;
		assert_int_equal(pthread_create(&threads[i], NULL, client, &who[i]), 0);
	}
	for (int i = 0; i < CLIENTS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	fakemodel_again(fake);
}

/* ---- what is held at rest */

struct held {
	long kib;
	int fds, calls;
	struct buf what;
};

/* The least within SETTLE_MS: what has just ended is given back a moment later. */
static void look(struct held *h)
{
	pid_t api = stack_pid(&st, "api1");
	h->what = BUF(1 << 20);
	h->fds = fds_least(api, SETTLE_MS, &h->what);
	h->kib = memory_private_kib(api);
}

static void half(int for_ms, struct held *h)
{
	for (int64_t end_ms = clock_ms() + for_ms; h->calls == 0 || clock_ms() < end_ms;
	     h->calls += CALLS_A_ROUND)
		round_of_all();
	look(h);
	print_message(
	    "    %d calls, and the api holds %ld KiB and %d descriptors\n", h->calls, h->kib, h->fds);
}

static void thousands_of_calls_leave_nothing_in_the_api(void **s)
{
	(void)s;
	const char *asked = getenv("SOAK_SECONDS");
	int all_s = asked != NULL ? atoi(asked) : getenv("GATEHOUSE_HEAVY") != NULL ? HEAVY_S : SHORT_S;
	long growth_kib = all_s < HEAVY_S ? GROWTH_SHORT_KIB : GROWTH_KIB;
	struct held first = { 0 }, second = { 0 };
	half(all_s * 500, &first);
	half(all_s * 500, &second);
	if (second.kib > first.kib + growth_kib)
		fail_msg(
		    "The api holds %ld KiB more after %d more calls.", second.kib - first.kib, second.calls);
	/* A connection to the upstream is kept for each call that there was at once, and which are left is a matter of moments. */
	if (second.fds > first.fds + CLIENTS)
		fail_msg("%d descriptors in place of %d:\n%s\nwere:\n%s", second.fds, first.fds,
		    buf_c(&second.what), buf_c(&first.what));
	buf_free(&first.what);
	buf_free(&second.what);
}

static int setup(void **s)
{
	(void)s;
	(void)setenv("STACK_BIN", "build/release", 0);
	/* Waiting is not what is tried here. */
	fake = gw_up(&st, 1, 0, "MODEL_RETRY_WAIT_MS=20\nMODEL_ATTEMPTS=2");
	stack_org(&st, &org);
	gw_provider(&st, fake, org.key, "plain", "openai-chat", 1, "ok tools gzip endless silent");
	gw_provider(&st, fake, org.key, "anthropic", "anthropic", 1, "ok");
	static const char *const faulty[] = { "html-200>plain/ok", "json-cut>plain/ok",
		"error-first>plain/ok", "cut-reset", "error-event", "404", "401", "503", "429" };
	static const char *const names[] = { "f-html", "f-json", "f-first", "f-reset", "f-event", "f-404",
		"f-401", "f-503", "f-429" };
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		gw_provider(&st, fake, org.key, names[i], "openai-chat", 1, faulty[i]);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	gw_down(&st, fake);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(thousands_of_calls_leave_nothing_in_the_api),
	};
	return cmocka_run_group_tests_name("soak", tests, setup, teardown);
}
