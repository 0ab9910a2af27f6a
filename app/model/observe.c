#include "model/observe.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/js.h"
#include "base/log.h"
#include "base/secret.h"
#include "io/http.h"
#include "model/provider.h"
#include "model/span.h"
#include "session/event.h"
#include "sql/span.h"

enum {
	EXPORT_WAIT_MS = 1000, /* how long spans gather */
	KEEP_WAIT_MS = 500,
	RETRY_MS = 1000,
	EXPORT_TRIES = 5,
	EXPORT_MS = 5000,
	TAKE_MS = 2000,
	PRUNE_EVERY_MS = 3600 * 1000,
	PRUNE_ROWS = 5000,
	SERIES = 512, /* of (provider, outcome) */
	OUTCOME_BYTES = 32,
	SPAN_ROOM = 2048, /* of most */
	ROWS_BYTES = 512 << 20,
	ROWS_KEPT_BYTES = 1 << 20, /* of the memory for them, from batch to batch */
};

/* A span on its way, and what else is told of it. */
struct item {
	atomic_int refs;
	char *text; /* as span.h has it, with org */
	json_t *note;
	const char *session; /* in note; whom it is told */
	const char *org;
};
/* A bounded queue and the thread that empties it. */
struct pipe {
	struct observe *o;
	/* Take n items; how many are done with, from the front; the rest is offered again after a while. */
	size_t (*take)(struct pipe *p, struct item **items, size_t n);
	int gather_ms;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t some;
	struct item *ring[OBSERVE_QUEUE];
	size_t first, n; /* under lock, as the next two */
	bool stop, begun;
	int64_t stop_by_ms;
	int tries; /* of the batch at the front; the thread's */
	atomic_llong done, dropped;
};

struct series {
	char provider[PROVIDER_NAME_BYTES + 1], outcome[OUTCOME_BYTES];
	long long calls, attempts;
};

struct observe {
	struct pg_pool *db;
	int keep_hours;
	int64_t prune_at_ms; /* the keeping thread's, as the next */
	struct buf rows;
	const char *url, *ca_file;
	struct secret *key;
	struct pipe keep, export;
	atomic_llong without_org, tokens_in, tokens_out, failovers, first_us, first_n;
	pthread_mutex_t lock; /* of the series */
	struct series series[SERIES];
	int n_series, n_providers;
};

/* ---- queues */

static void item_put(struct item *i)
{
	if (atomic_fetch_sub(&i->refs, 1) > 1)
		return;
	json_decref(i->note);
	free(i->text);
	free(i);
}

static void pipe_put(struct pipe *p, struct item *item)
{
	if (!p->begun)
		return;
	(void)pthread_mutex_lock(&p->lock);
	bool fits = p->n < OBSERVE_QUEUE && !p->stop;
	if (fits) {
		/* Only the first is waited for; behind it they gather, and nobody is woken for each. */
		if (p->n == 0)
			(void)pthread_cond_signal(&p->some);
		(void)atomic_fetch_add(&item->refs, 1);
		p->ring[(p->first + p->n++) % OBSERVE_QUEUE] = item;
	}
	(void)pthread_mutex_unlock(&p->lock);
	if (!fits)
		(void)atomic_fetch_add(&p->dropped, 1);
}

/* Under the lock: wait until ms have passed, the end was asked for, or (some) something is there. */
static void pipe_wait(struct pipe *p, int ms, bool some)
{
	int64_t end_ms = clock_ms() + ms;
	while (!p->stop && !(some && p->n > 0) && cond_wait_until(&p->some, &p->lock, end_ms))
		;
}

static void pipe_drop(struct pipe *p, size_t n, atomic_llong *count)
{
	for (size_t i = 0; i < n; i++) {
		item_put(p->ring[p->first]);
		p->first = (p->first + 1) % OBSERVE_QUEUE;
	}
	p->n -= n;
	(void)atomic_fetch_add(count, (long long)n);
}

static void *pipe_run(void *arg)
{
	struct pipe *p = arg;
	struct item *batch[OBSERVE_BATCH];
	(void)pthread_mutex_lock(&p->lock);
	while (!p->stop || (p->n > 0 && clock_ms() < p->stop_by_ms)) {
		if (p->n == 0)
			pipe_wait(p, RETRY_MS, true);
		if (p->n < OBSERVE_BATCH)
			pipe_wait(p, p->gather_ms, false);
		size_t n = p->n < OBSERVE_BATCH ? p->n : OBSERVE_BATCH;
		for (size_t i = 0; i < n; i++)
			batch[i] = p->ring[(p->first + i) % OBSERVE_QUEUE];
		(void)pthread_mutex_unlock(&p->lock);
		size_t done = p->take(p, batch, n); /* n may be 0: time for what is done now and then */
		(void)pthread_mutex_lock(&p->lock);
		pipe_drop(p, done, &p->done);
		if (done < n)
			pipe_wait(p, RETRY_MS, false);
	}
	pipe_drop(p, p->n, &p->dropped);
	(void)pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void pipe_begin(struct observe *o, struct pipe *p,
    size_t (*take)(struct pipe *p, struct item **items, size_t n), int gather_ms)
{
	p->o = o;
	p->take = take;
	p->gather_ms = gather_ms;
	(void)pthread_mutex_init(&p->lock, NULL);
	(void)pthread_cond_init(&p->some, NULL);
	if (pthread_create(&p->thread, NULL, pipe_run, p) != 0)
		abort();
	p->begun = true;
}

static void pipe_end(struct pipe *p, int64_t by_ms)
{
	if (!p->begun)
		return;
	(void)pthread_mutex_lock(&p->lock);
	p->stop = true;
	p->stop_by_ms = by_ms;
	(void)pthread_cond_broadcast(&p->some);
	(void)pthread_mutex_unlock(&p->lock);
	(void)pthread_join(p->thread, NULL);
	(void)pthread_cond_destroy(&p->some);
	(void)pthread_mutex_destroy(&p->lock);
}

/* ---- into PostgreSQL */

/* MOD-4: in the run's own words. A session that is closed meanwhile, or was never one, is told nothing. */
static void tell_session(struct pg *db, const struct item *i)
{
	struct err e = { 0 };
	if (i->note != NULL &&
	    session_append(db, i->org, i->session, "tool-call", js_get(i->note, "note"), NULL, &e) != 0)
		log_debug("a model call's attempts are not told", "session", i->session, "why", e.msg);
}

static void prune(struct observe *o, struct pg *db)
{
	struct err e = { 0 };
	if (clock_ms() < o->prune_at_ms)
		return;
	auto_mem struct mem *m = mem_new();
	const char *hours = pg_num(m, o->keep_hours), *rows = pg_num(m, PRUNE_ROWS);
	auto_res struct pg_res *spans = PG(db, &q_span_prune, &e, hours, rows);
	auto_res struct pg_res *traces = spans == NULL ? NULL : PG(db, &q_span_prune_traces, &e, hours, rows);
	bool more = traces != NULL && (pg_affected(spans) == PRUNE_ROWS || pg_affected(traces) == PRUNE_ROWS);
	o->prune_at_ms = clock_ms() + (more ? 0 : PRUNE_EVERY_MS);
}

static struct pg_res *put_rows(struct observe *o, struct pg *db, struct item **spans, size_t n, struct err *e)
{
	buf_reset(&o->rows);
	for (size_t i = 0; i < n; i++) {
		(void)buf_chr(&o->rows, i == 0 ? '[' : ',');
		(void)buf_str(&o->rows, spans[i]->text);
	}
	(void)buf_chr(&o->rows, ']');
	struct pg_res *r = PG(db, &q_span_put, e, buf_c(&o->rows));
	if (o->rows.cap > ROWS_KEPT_BYTES)
		buf_free(&o->rows);
	return r;
}

static size_t keep(struct pipe *p, struct item **spans, size_t n)
{
	struct err e = { 0 };
	struct observe *o = p->o;
	if (n == 0 && clock_ms() < o->prune_at_ms)
		return 0;
	auto_pg struct pg *db = pg_take(o->db, TAKE_MS, &e);
	if (db == NULL)
		return 0;
	prune(o, db);
	if (n == 0)
		return 0;
	auto_res struct pg_res *r = o->keep_hours == 0 ? NULL : put_rows(o, db, spans, n, &e);
	if (r == NULL && o->keep_hours > 0 && e.code == ERR_UNAVAILABLE)
		return 0; /* PostgreSQL is away: they wait, as long as there is room */
	if (r == NULL && o->keep_hours > 0) {
		log_error("spans were not stored", "why", e.msg);
		(void)atomic_fetch_add(&p->dropped, (long long)n);
		return n;
	}
	for (size_t i = 0; i < n; i++)
		tell_session(db, spans[i]);
	return n;
}

/* ---- to a collector */

static bool worth_trying_again(int status)
{
	return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

/* The end does not wait for a collector that hangs. */
static bool given_up(void *arg)
{
	struct pipe *p = arg;
	(void)pthread_mutex_lock(&p->lock);
	bool up = p->stop && clock_ms() >= p->stop_by_ms;
	(void)pthread_mutex_unlock(&p->lock);
	return up;
}

/* The only one who needs a tree. */
static json_t *request_of(struct item **spans, size_t n)
{
	json_t *trees[OBSERVE_BATCH];
	for (size_t i = 0; i < n; i++) {
		struct err e = { 0 };
		trees[i] = js_parse(spans[i]->text, strlen(spans[i]->text), &e);
	}
	json_t *request = span_otlp(trees, n);
	for (size_t i = 0; i < n; i++)
		json_decref(trees[i]);
	return request;
}

static size_t export(struct pipe *p, struct item **spans, size_t n)
{
	static const char *const heads[] = { "Content-Type: application/json", NULL };
	struct observe *o = p->o;
	struct err e = { 0 };
	struct http_res res = { 0 };
	if (n == 0)
		return 0;
	auto_mem struct mem *m = mem_new();
	auto_json json_t *request = request_of(spans, n);
	const char *body = js_dump(m, request);
	int rc = http_do(&(struct http_req){ .method = "POST",
			     .url = o->url,
			     .ca_file = o->ca_file,
			     .headers = heads,
			     .bearer = o->key,
			     .body = body,
			     .body_n = strlen(body),
			     .cancelled = given_up,
			     .arg = p,
			     .connect_ms = EXPORT_MS,
			     .total_ms = EXPORT_MS },
	    &res, &e);
	int status = rc == 0 ? res.status : 0;
	http_res_free(&res);
	if (status >= 200 && status <= 299) {
		p->tries = 0;
		return n;
	}
	if (worth_trying_again(status) && ++p->tries < EXPORT_TRIES)
		return 0;
	auto_buf struct buf text = BUF(32);
	(void)buf_fmt(&text, "%d", status);
	log_warn("the collector does not take spans", "status", buf_c(&text), "why", rc != 0 ? e.msg : NULL);
	p->tries = 0;
	(void)atomic_fetch_add(&p->dropped, (long long)n);
	return n;
}

/* ---- counters */

static struct series *series_of(struct observe *o, const char *provider, const char *outcome)
{
	bool known = false;
	for (int i = 0; i < o->n_series; i++) {
		bool same = strcmp(o->series[i].provider, provider) == 0;
		known |= same;
		if (same && strcmp(o->series[i].outcome, outcome) == 0)
			return &o->series[i];
	}
	if (!known && o->n_providers >= OBSERVE_PROVIDERS && strcmp(provider, "other") != 0)
		return series_of(o, "other", outcome);
	if (o->n_series ==
	    SERIES) /* outcomes are a fixed set: this is not reached with as many as there are */
		return &o->series[SERIES - 1];
	o->n_providers += !known;
	struct series *s = &o->series[o->n_series++];
	(void)snprintf(s->provider, sizeof s->provider, "%s", provider);
	(void)snprintf(s->outcome, sizeof s->outcome, "%s", outcome);
	return s;
}

static void count(struct observe *o, const struct call_record *r)
{
	const char *outcome = r->client_left ? "client_left" : r->error != NULL ? r->error : "ok";
	int n = r->n_attempts < RECORD_ATTEMPTS_MAX ? r->n_attempts : RECORD_ATTEMPTS_MAX;
	const char *who = r->answered != NULL ? r->answered->provider
	    : n > 0                           ? r->attempts[n - 1].provider
					      : "none";
	(void)pthread_mutex_lock(&o->lock);
	series_of(o, who, outcome)->calls++;
	for (int i = 0; i < n; i++) {
		const struct call_attempt *a = &r->attempts[i];
		series_of(o, a->provider, a->reason == NULL ? "ok" : a->reason)->attempts++;
	}
	(void)pthread_mutex_unlock(&o->lock);
	(void)atomic_fetch_add(&o->tokens_in, r->tokens.input + r->tokens.cached + r->tokens.cache_write);
	(void)atomic_fetch_add(&o->tokens_out, r->tokens.output + r->tokens.reasoning);
	(void)atomic_fetch_add(&o->failovers, r->n_failovers);
	if (r->first_us > 0) {
		(void)atomic_fetch_add(&o->first_us, r->first_us - r->began_us);
		(void)atomic_fetch_add(&o->first_n, 1);
	}
}

static void print_series(const struct observe *o, const char *name, size_t at, struct buf *out)
{
	(void)buf_fmt(out, "# TYPE %s counter\n", name);
	for (int i = 0; i < o->n_series; i++) {
		const struct series *s = &o->series[i];
		long long v;
		memcpy(&v, (const char *)s + at, sizeof v);
		if (v > 0)
			(void)buf_fmt(out, "%s{provider=\"%s\",outcome=\"%s\"} %lld\n", name, s->provider,
			    s->outcome, v);
	}
}

void observe_metrics(struct observe *o, struct buf *out)
{
	(void)pthread_mutex_lock(&o->lock);
	print_series(o, "gatehouse_model_calls_total", offsetof(struct series, calls), out);
	print_series(o, "gatehouse_model_attempts_total", offsetof(struct series, attempts), out);
	(void)pthread_mutex_unlock(&o->lock);
	(void)buf_fmt(out,
	    "# TYPE gatehouse_model_failovers_total counter\ngatehouse_model_failovers_total %lld\n"
	    "# TYPE gatehouse_model_tokens_total counter\n"
	    "gatehouse_model_tokens_total{kind=\"input\"} "
	    "%lld\ngatehouse_model_tokens_total{kind=\"output\"} "
	    "%lld\n"
	    "# TYPE gatehouse_model_first_byte_seconds summary\n"
	    "gatehouse_model_first_byte_seconds_sum %.6f\ngatehouse_model_first_byte_seconds_count %lld\n"
	    "# TYPE gatehouse_spans_total counter\n"
	    "gatehouse_spans_total{to=\"database\",outcome=\"done\"} %lld\n"
	    "gatehouse_spans_total{to=\"database\",outcome=\"dropped\"} %lld\n"
	    "gatehouse_spans_total{to=\"collector\",outcome=\"done\"} %lld\n"
	    "gatehouse_spans_total{to=\"collector\",outcome=\"dropped\"} %lld\n"
	    "# TYPE gatehouse_spans_without_org_total counter\ngatehouse_spans_without_org_total %lld\n",
	    atomic_load(&o->failovers), atomic_load(&o->tokens_in), atomic_load(&o->tokens_out),
	    (double)atomic_load(&o->first_us) / 1e6, atomic_load(&o->first_n), atomic_load(&o->keep.done),
	    atomic_load(&o->keep.dropped), atomic_load(&o->export.done), atomic_load(&o->export.dropped),
	    atomic_load(&o->without_org));
}

/* ---- what comes */

/* MOD-4: attempts, failovers and why, in the fixed words of the record. */
static json_t *note_of(const struct call_record *r)
{
	const char *why = "";
	for (int i = 0; i < r->n_attempts && i < RECORD_ATTEMPTS_MAX && why[0] == 0; i++)
		why = r->attempts[i].reason == NULL ? "" : r->attempts[i].reason;
	return js_pack("{s:s,s:s,s:s,s:s,s:i,s:i,s:s}", "step", "model call", "message",
	    r->error == NULL ? "The model answered after more than one attempt."
			     : "The model did not answer.",
	    "status", r->error == NULL ? "ok" : "failed", "call", r->id, "attempts", r->n_attempts,
	    "failovers", r->n_failovers, "reason", why);
}

/* Takes text and note. Told is the session of the note. */
static void tell(struct observe *o, char *text, json_t *note)
{
	struct item *i = xcalloc(1, sizeof *i);
	atomic_init(&i->refs, 1);
	i->text = text;
	i->note = note;
	i->org = js_str(note, "org");
	i->session = js_str(note, "session");
	pipe_put(&o->keep, i);
	pipe_put(&o->export, i);
	item_put(i);
}

static void homeless(struct observe *o, const char *name)
{
	(void)atomic_fetch_add(&o->without_org, 1);
	log_error("a span names no org and is filed under admin", "span", name);
}

void observe_span(struct observe *o, json_t *span)
{
	auto_json json_t *mine = span;
	auto_buf struct buf b = BUF(ROWS_BYTES);
	const char *org = span_org(mine);
	if (org == NULL)
		homeless(o, js_str_or(mine, "name", ""));
	js_set_str(mine, "org", org == NULL ? "admin" : org); /* RUN-8: it is filed by the one attribute */
	(void)js_dump_buf(&b, mine);
	tell(o, steal(b.p), NULL);
}

void observe_call(void *observe, const struct call_record *r)
{
	struct observe *o = observe;
	struct buf b = BUF(ROWS_BYTES);
	json_t *note = NULL;
	count(o, r);
	(void)buf_room(&b, SPAN_ROOM);
	span_of_call(&b, r, clock_wall_us(), clock_us());
	if (r->session != NULL && r->n_attempts > 1)
		note = js_pack("{s:s,s:s,s:o}", "org", r->org, "session", r->session, "note", note_of(r));
	tell(o, b.p, note);
}

/* ---- its life */

struct observe *observe_start(const struct conf *conf, struct pg_pool *db, struct err *e)
{
	struct observe *o = xcalloc(1, sizeof *o);
	const char *url = conf_str(conf, "TRACE_OTLP_URL"), *ca = conf_str(conf, "TRACE_OTLP_CA_FILE");
	o->db = db;
	o->keep_hours = (int)conf_int(conf, "TRACE_KEEP_HOURS");
	o->url = url;
	o->ca_file = ca[0] == 0 ? NULL : ca;
	o->rows = BUF(ROWS_BYTES);
	(void)pthread_mutex_init(&o->lock, NULL);
	if (conf_secret(conf, "TRACE_OTLP_KEY_FILE", &o->key, e) != 0) {
		(void)pthread_mutex_destroy(&o->lock);
		free(o);
		return NULL;
	}
	pipe_begin(o, &o->keep, keep, KEEP_WAIT_MS); /* also where nothing is kept: sessions are told by it */
	if (url[0] != 0)
		pipe_begin(o, &o->export, export, EXPORT_WAIT_MS);
	return o;
}

void observe_stop(struct observe *o, int wait_ms)
{
	if (o == NULL)
		return;
	int64_t by_ms = clock_ms() + wait_ms;
	pipe_end(&o->export, by_ms);
	pipe_end(&o->keep, by_ms);
	(void)pthread_mutex_destroy(&o->lock);
	buf_free(&o->rows);
	secret_free(o->key);
	free(o);
}
