/*
 * What a model call costs through the gateway: authentication, reservation and settlement in PostgreSQL included, beside nginx's
 * proxy_pass and the npm package @portkey-ai/gateway, on one static nginx upstream (peers.h); how soon what a model says is passed on; and
 * what an open stream holds.
 */
#include "../t.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <curl/curl.h>

#include "../flow/gw.h"
#include "../memory.h"
#include "base/clock.h"
#include "bench.h"
#include "pace.h"
#include "peers.h"

enum { CALLS = 150, STREAMS = 60, PACED = 20, ROUNDS = 7, OPEN_STREAMS = 1000 };

static struct stack stack;
static struct stack_org org;
static struct fakemodel *fake; /* of the streams that stay open */

static int setup(void **state)
{
	char conf[400];
	(void)state;
	fake = fakemodel_start();
	fakemodel_times(fake, (struct fakemodel_times){ .stall_ms = 600000 });
	int paced = pace_start();
	peers_start(paced);
	(void)snprintf(conf, sizeof conf,
	    "LOG_LEVEL=info\nBILLING_MODE=closed\nAPI_MAX_STREAMS=4000\nMODEL_STALL_MS=600000\nMODEL_INWARD_"
	    "HOSTS=127.0.0.1:%d 127.0.0.1:%d 127.0.0.1:%d",
	    peers_upstream_port(), paced, fakemodel_port(fake));
	stack_up(&stack, 1, 1, 1, conf);
	stack_org(&stack, &org);
	const char *const credit[] = { "org", "credit", org.slug, "100000usd", "--key", "first", NULL };
	stack_cli(&stack, credit, NULL);
	peers_start_tls(&stack);
	peers_providers(&stack, &org);
	gw_provider(&stack, fake, org.key, "silent", "openai-chat", 1, "stall");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stack_down(&stack);
	fakemodel_end(fake);
	peers_end();
	pace_end();
	return 0;
}

/* ---- calls, side by side */

/* All that are there, in the order of enum peer; where each stands is in at[] (-1: it is not there). How many. */
static size_t sides_of(
    struct bench_side *sides, struct target *t, enum ask ask, int n, int count, int at[PEERS])
{
	size_t have = 0;
	for (enum peer p = PEER_GATEHOUSE; p < PEERS; p++) {
		at[p] = -1;
		if (!peers_have(p))
			continue;
		at[p] = (int)have;
		target_open(&t[have], p, ask, n, count);
		target_side(&sides[have], p, &t[have]);
		have++;
	}
	return have;
}

struct round_of {
	const char *heading, *what;
	enum ask ask;
	int n, calls;
	double cpu_wanted;
};

static void added(const struct bench_side *sides, const int at[PEERS])
{
	double ours_us = sides[at[PEER_GATEHOUSE]].p50_us;
	bench_at_most("p50 added to the upstream's own, TLS and nginx included",
	    (ours_us - sides[at[PEER_UPSTREAM]].p50_us) / 1000, 0.4, "ms");
	bench_note("… to nginx proxy_pass with the same TLS",
	    (ours_us - sides[at[PEER_PROXY_TLS]].p50_us) / 1000, "ms");
	if (at[PEER_PORTKEY] < 0)
		return;
	bench_note("… by portkey, asked in plain HTTP",
	    (sides[at[PEER_PORTKEY]].p50_us - sides[at[PEER_UPSTREAM]].p50_us) / 1000, "ms");
	bench_note("… by portkey, behind nginx with the same TLS",
	    (sides[at[PEER_PORTKEY_TLS]].p50_us - sides[at[PEER_UPSTREAM]].p50_us) / 1000, "ms");
}

/* Calls a second, and the most that they could be here: clients, upstream and nginx share the processors with whoever is measured, and
 * nginx alone does for a call what each of them needs at least. */
static void of_portkey(const struct bench_side *sides, const int at[PEERS])
{
	double plain_us = sides[at[PEER_PORTKEY]].us, tls_us = sides[at[PEER_PORTKEY_TLS]].us;
	bench_at_least("calls a second, 16 clients, of portkey's, which is asked in plain HTTP",
	    plain_us / sides[at[PEER_GATEHOUSE]].us, 10, "×");
	bench_at_least(
	    "… of portkey's behind nginx with the same TLS", tls_us / sides[at[PEER_GATEHOUSE]].us, 10, "×");
	bench_note("… what nginx proxy_pass alone reaches here, both in plain HTTP",
	    plain_us / sides[at[PEER_PROXY]].us, "×");
	bench_note(
	    "… and with TLS, of portkey's in plain HTTP", plain_us / sides[at[PEER_PROXY_TLS]].us, "×");
	bench_note("CPU of portkey a call, 16 clients, of the api's",
	    sides[at[PEER_PORTKEY]].cpu_us[0] / sides[at[PEER_GATEHOUSE]].cpu_us[0], "×");
}

static void compare(const struct round_of *r)
{
	struct target t[PEERS];
	struct bench_side sides[PEERS];
	int at[PEERS];
	size_t n = sides_of(sides, t, r->ask, r->n, r->calls, at);
	bench_compare(r->heading, r->ask == ASK_STREAM ? "stream" : "call", sides, n, ROUNDS);
	bench_at_most(r->what, sides[at[PEER_GATEHOUSE]].cpu_us[0], r->cpu_wanted, "µs");
	if (r->n == 1 && r->ask == ASK_WHOLE)
		added(sides, at);
	if (r->n > 1 && at[PEER_PORTKEY] >= 0)
		of_portkey(sides, at);
	for (size_t i = 0; i < n; i++)
		target_close(&t[i]);
}

/* ---- how soon what a model says is passed on */

struct paced {
	struct target t;
	struct bench_side *side; /* is told how long the first event took */
	int events;              /* of the stream that is read */
	double later_us[(ROUNDS + 1) * PACED * PACE_EVENTS];
	size_t n_later;
};

/* Each event ends with an empty line; [DONE] comes after them and is not one. */
static void on_piece(void *arg, const char *p, size_t n)
{
	struct paced *k = arg;
	double now_us = bench_now_us();
	for (const char *at = p; (at = memmem(at, n - (size_t)(at - p), "\n\n", 2)) != NULL; at += 2) {
		int i = k->events++;
		if (i >= PACE_EVENTS)
			continue;
		double took_us = now_us - pace_sent_us(i);
		if (i == 0)
			bench_took(k->side, took_us);
		else
			k->later_us[k->n_later++] = took_us;
	}
}

static long paced_round(struct bench_side *s)
{
	struct paced *k = s->arg;
	for (int i = 0; i < PACED; i++) {
		k->events = 0;
		(void)fetch_do(k->t.f[0], "POST", "/v1/chat/completions", k->t.body);
		assert_true(k->events >= PACE_EVENTS);
	}
	return PACED;
}

static void passed_on(void)
{
	static struct paced all[PEERS];
	struct bench_side sides[PEERS];
	size_t n = 0;
	for (enum peer p = PEER_GATEHOUSE; p < PEERS; p++) {
		if (!peers_have(p))
			continue;
		struct paced *k = &all[n];
		target_open(&k->t, p, ASK_PACED, 1, 1);
		target_side(&sides[n], p, &k->t);
		sides[n].round = paced_round;
		sides[n].arg = k;
		k->side = &sides[n++];
		fetch_on_piece(k->t.f[0], on_piece, k);
	}
	bench_compare("A stream of few events, 3 ms before each; p50 / p99: of its first, from the "
		      "upstream's send until the client has it",
	    "stream", sides, n, ROUNDS);
	bench_at_most("the first event of a stream, from the upstream's send until the client has it, p50",
	    sides[0].p50_us / 1000, 1, "ms");
	bench_note("… p99", sides[0].p99_us / 1000, "ms");
	bench_say("\nThe later events, p50 / p99:");
	for (size_t i = 0; i < n; i++) {
		double p50_us = bench_median(all[i].later_us, all[i].n_later);
		bench_say("* %s: %.0f µs / %.0f µs", sides[i].name, p50_us,
		    all[i].later_us[(size_t)(0.99 * (double)(all[i].n_later - 1))]);
		target_close(&all[i].t);
	}
}

/* ---- streams that are open: what each holds in the api while its model says nothing */

static size_t count(char *p, size_t size, size_t n, void *arg)
{
	(void)p;
	*(size_t *)arg += size * n;
	return size * n;
}

/* Until all have had the beginning of their stream; how many have. */
static int begun(CURLM *multi, const size_t *got, int n, int wait_ms)
{
	int running = 1, have = 0;
	for (int64_t end_ms = clock_ms() + wait_ms; running > 0 && have < n && clock_ms() < end_ms;) {
		assert_int_equal(curl_multi_perform(multi, &running), CURLM_OK);
		assert_int_equal(curl_multi_poll(multi, NULL, 0, 50, NULL), CURLM_OK);
		have = 0;
		for (int i = 0; i < n; i++)
			have += got[i] > 0;
	}
	return have;
}

static void open_streams(void)
{
	char url[100], key[200];
	static size_t got[OPEN_STREAMS];
	static CURL *easy[OPEN_STREAMS];
	CURLM *multi = curl_multi_init();
	(void)snprintf(url, sizeof url, "%s/v1/chat/completions", stack.url[0]);
	(void)snprintf(key, sizeof key, "Authorization: Bearer %s", org.key);
	struct curl_slist *head = curl_slist_append(
	    curl_slist_append(NULL, key), "Content-Type: application/json");
	pid_t api = stack_pid(&stack, "api1");
	long before = memory_private_kib(api);
	for (int i = 0; i < OPEN_STREAMS; i++) {
		CURL *c = easy[i] = curl_easy_init();
		(void)curl_easy_setopt(c, CURLOPT_URL, url);
		(void)curl_easy_setopt(c, CURLOPT_CAINFO, stack.ca);
		(void)curl_easy_setopt(c, CURLOPT_HTTPHEADER, head);
		(void)curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
		(void)curl_easy_setopt(c, CURLOPT_POSTFIELDS,
		    "{\"model\":\"silent/"
		    "stall\",\"stream\":true,\"max_tokens\":100,\"messages\":[{\"role\":\"user\",\"content\":"
		    "\"hello\"}]}");
		(void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, count);
		(void)curl_easy_setopt(c, CURLOPT_WRITEDATA, &got[i]);
		assert_int_equal(curl_multi_add_handle(multi, c), CURLM_OK);
		if (i % 50 == 49) /* a few at a time: it is not the rush that is measured */
			(void)begun(multi, got, i + 1, 20000);
	}
	int have = begun(multi, got, OPEN_STREAMS, 60000);
	(void)usleep(500000);
	long with = memory_private_kib(api);
	bench_say("%d streams open at once, each silent after 20 events: %ld KiB of the api before, %ld KiB "
		  "with them.",
	    have, before, with);
	assert_int_equal(have, OPEN_STREAMS);
	bench_at_most("memory of the api for an open stream", (double)(with - before) / have, 40, "KiB");
	for (int i = 0; i < OPEN_STREAMS; i++) {
		(void)curl_multi_remove_handle(multi, easy[i]);
		curl_easy_cleanup(easy[i]);
	}
	(void)curl_multi_cleanup(multi);
	curl_slist_free_all(head);
}

static void measure(void **state)
{
	(void)state;
	compare(&(struct round_of){ "A buffered call, one client with one connection",
	    "CPU of the api process for a buffered call", ASK_WHOLE, 1, CALLS, 150 });
	compare(&(struct round_of){ "A buffered call, 16 clients",
	    "CPU of the api process for a buffered call, 16 clients", ASK_WHOLE, PEERS_AT_ONCE, CALLS / 5,
	    150 });
	compare(&(struct round_of){ "A stream of 102 events, one client",
	    "CPU of the api process for a stream of 102 events", ASK_STREAM, 1, STREAMS, 300 });
	passed_on();
	bench_note("private memory of the api after all these calls",
	    (double)memory_private_kib(stack_pid(&stack, "api1")), "KiB");
	open_streams();
}

int main(void)
{
	return bench_main("gateway", setup, measure, teardown);
}
