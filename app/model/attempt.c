/* One attempt: the request to an upstream, and what its end means for the call and for the key (MOD-3, MOD-4, MOD-8). */
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/redact.h"
#include "base/str.h"
#include "model/call_int.h"

enum {
	ANSWER_BYTES = 32 << 20,
	REFUSAL_BYTES = 64 * 1024,
	ASK_BYTES = 512 << 20, /* of a request written anew; our doors take 32 MiB */
	PIECE_BYTES = 4096,    /* a buffer that an open stream holds */
	SAID_BYTES = 400,
	HEADERS_MAX = 6,
};

static const char *const paths[WIRES] = {
	[WIRE_CHAT] = "/chat/completions",
	[WIRE_RESPONSES] = "/responses",
	[WIRE_MESSAGES] = "/messages",
};

/* ---- faults */

enum verdict attempt_fails(
    struct attempt *a, enum verdict v, const char *reason, enum wire_fault kind, const char *message)
{
	a->note->reason = reason;
	a->k->fail = (struct call_fail){ .kind = kind, .message = message };
	return v;
}

enum verdict attempt_key_fails(struct attempt *a, enum verdict v, const char *reason, enum wire_fault kind,
    const char *message, enum key_outcome outcome)
{
	a->tell = true;
	a->outcome = outcome;
	return attempt_fails(a, v, reason, kind, message);
}

/* An upstream's words about the caller's own request: without secrets, and not long. */
static const char *words(struct attempt *a, const char *said, const char *otherwise)
{
	auto_buf struct buf known = BUF(16384), clean = BUF(65536);
	if (catalog_redact(a->t->provider, said, strlen(said), &known) != 0 ||
	    redact_plain(buf_c(&known), known.n, &clean) != 0 || clean.n == 0)
		return otherwise;
	return mem_strn(
	    a->k->c->mem, clean.p, utf8_valid(clean.p, clean.n < SAID_BYTES ? clean.n : SAID_BYTES));
}

#define BUSY "The model's provider is busy; try again shortly."

enum verdict attempt_told(struct attempt *a, enum wire_fault kind, const char *said)
{
	switch (kind) {
	case WIRE_CONTEXT:
		return attempt_fails(a, CALL_NEXT, "context", kind,
		    words(a, said, "The request is longer than the model's context."));
	case WIRE_POLICY:
		return attempt_fails(
		    a, CALL_REFUSED, "policy", kind, words(a, said, "The provider refuses this content."));
	case WIRE_BAD_REQUEST:
	case WIRE_TOO_LARGE:
		return attempt_fails(a, CALL_REFUSED, "bad_request", kind,
		    words(a, said, "The provider refuses this request."));
	case WIRE_AUTH:
		return attempt_key_fails(a, CALL_AGAIN, "key_refused", WIRE_UPSTREAM,
		    a->key->secret == NULL ? "The model's provider wants a key, and none is stored for it; "
					     "tell your administrator."
					   : "The model's provider refuses the key that is stored for it; "
					     "tell your administrator.",
		    KEY_REFUSED);
	case WIRE_FORBIDDEN:
		return attempt_key_fails(a, CALL_AGAIN, "key_refused", WIRE_UPSTREAM,
		    "The model's provider refuses this model to the account that is stored for it; tell your "
		    "administrator.",
		    KEY_REFUSED_MODEL);
	case WIRE_GATE: /* its account there, not the caller's here */
		return attempt_key_fails(a, CALL_AGAIN, "key_refused", WIRE_UPSTREAM,
		    "The account that is stored for the model's provider has no money or quota left for this "
		    "model; tell your administrator.",
		    KEY_REFUSED_MODEL);
	case WIRE_UNKNOWN_MODEL:
	case WIRE_NOT_FOUND:
		return attempt_fails(a, CALL_NEXT, "unknown_model", WIRE_UPSTREAM,
		    "The model's provider does not know this model; tell your administrator.");
	case WIRE_RATE:
		return attempt_key_fails(a, CALL_AGAIN, "rate_limited", WIRE_OVERLOADED, BUSY, KEY_LIMITED);
	case WIRE_OVERLOADED:
		return attempt_key_fails(a, CALL_AGAIN, "overloaded", kind, BUSY, KEY_FAULT);
	default:
		return attempt_key_fails(a, CALL_AGAIN, "fault", WIRE_UPSTREAM,
		    "The model's provider had an error; try again.", KEY_FAULT);
	}
}

/* A fault of its request, whose members it knows by their names; those of ours mean nothing to it. */
static bool is_the_callers(enum wire_fault kind)
{
	return kind == WIRE_BAD_REQUEST || kind == WIRE_TOO_LARGE || kind == WIRE_CONTEXT ||
	    kind == WIRE_POLICY;
}

/* An answer with another status than 2xx. */
static enum verdict refused(struct attempt *a)
{
	struct wire_said said = { 0 };
	if (a->status >= 300 && a->status < 400)
		return attempt_fails(a, CALL_NEXT, "redirect", WIRE_UPSTREAM,
		    "The model's provider answered with a redirect, which is not followed; tell your "
		    "administrator.");
	wire_upstream_said(a->status, buf_c(&a->body), a->body.n, &said);
	if (said.quota)
		said.kind = WIRE_GATE;
	else if (a->status == 429)
		said.kind = WIRE_RATE;
	else if (a->status >= 500 && said.kind != WIRE_OVERLOADED)
		said.kind = WIRE_UPSTREAM; /* whatever an error page may say */
	else if (said.kind == WIRE_UPSTREAM && a->status < 500 && a->status != 408)
		said.kind = WIRE_BAD_REQUEST;
	enum verdict v = attempt_told(a, said.kind, said.message);
	if (is_the_callers(a->k->fail.kind) && said.param[0] != 0)
		a->k->fail.param = words(a, said.param, NULL);
	return v;
}

/* There is no whole answer. */
static enum verdict broken(struct attempt *a, const struct err *e)
{
	if (err_is(e, "cancelled") && a->k->rec.client_left)
		return CALL_LEFT;
	switch (e->code) {
	case ERR_TIMEOUT:
		return attempt_key_fails(a, CALL_NEXT, a->status == 0 ? "silent" : "stalled", WIRE_TIMEOUT,
		    "The model's provider did not answer in time; try again.", KEY_FAULT);
	case ERR_UNAVAILABLE:
		return attempt_key_fails(a, CALL_AGAIN, "unreachable", WIRE_UPSTREAM,
		    "The model's provider cannot be reached; try again in a moment.", KEY_FAULT);
	case ERR_UPSTREAM:
		return attempt_key_fails(a, CALL_AGAIN, a->status == 0 ? "reset" : "cut", WIRE_UPSTREAM,
		    "The model's provider broke off its answer; try again.", KEY_FAULT);
	default:
		return attempt_fails(a, CALL_NEXT, "internal", WIRE_INTERNAL,
		    "The model's provider could not be asked; tell your administrator.");
	}
}

/* ---- what the HTTP client calls */

static bool starts_ci(const char *s, const char *prefix)
{
	return strncasecmp(s, prefix, strlen(prefix)) == 0;
}

static int on_head(void *arg, const struct http_res *res)
{
	struct attempt *a = arg;
	a->note->status = a->status = res->status;
	a->retry_after_ms = res->retry_after_ms;
	if (res->status < 200 || res->status > 299) {
		a->body.max = REFUSAL_BYTES;
		return 0;
	}
	call_note(a->k); /* the input: it was accepted */
	/* A page or one JSON value instead of a stream is read as the answer that it is, or is not. */
	a->html = starts_ci(res->content_type, "text/html");
	if (a->k->ask.stream && !a->html && !starts_ci(res->content_type, "application/json"))
		stream_open(a);
	return 0;
}

static int on_data(void *arg, const char *p, size_t n)
{
	struct attempt *a = arg;
	if (a->stream != NULL)
		return stream_data(a, p, n);
	int64_t stall_ms = clock_ms() + a->k->limits.stall_ms;
	if (a->until_ms > stall_ms)
		a->until_ms = stall_ms; /* it has begun: from here on only silence is waited for */
	size_t left = a->body.max - a->body.n;
	(void)buf_add(&a->body, p, n < left ? n : left);
	return n <= left || a->body.max == REFUSAL_BYTES ? 0 : -1;
}

static bool cancelled(void *arg)
{
	struct attempt *a = arg;
	if (reply_gone(a->k->c))
		a->k->rec.client_left = true;
	stream_rest(a);
	return a->k->rec.client_left;
}

/* ---- the request */

struct heads {
	const char *line[HEADERS_MAX + 1];
	int n;
};

static void add(struct heads *h, const char *line)
{
	if (h->n < HEADERS_MAX)
		h->line[h->n++] = line;
}

/* What a client of messages tells its vendor besides the body. */
static void add_vendor(struct attempt *a, struct heads *h)
{
	struct ctx *c = a->k->c;
	const char *version = "2023-06-01", *beta = NULL, *v;
	if (a->k->wire == WIRE_MESSAGES) {
		if ((v = reply_param(c, "HTTP_ANTHROPIC_VERSION")) != NULL && strlen(v) < 40)
			version = v;
		if ((v = reply_param(c, "HTTP_ANTHROPIC_BETA")) != NULL && strlen(v) < 2000)
			beta = v;
	}
	add(h, mem_fmt(c->mem, "anthropic-version: %s", version));
	if (beta != NULL)
		add(h, mem_fmt(c->mem, "anthropic-beta: %s", beta));
}

/* A stream lasts, and its request may be large. */
static void on_sent(void *arg)
{
	struct attempt *a = arg;
	buf_free(&a->ask);
}

/* The body for this upstream into a->ask; -1: it cannot be carried over, e says why. */
static int body_of(struct attempt *a, struct err *e)
{
	struct call *k = a->k;
	const struct wire_target to = { .model = a->t->model->upstream,
		.max_output = a->t->model->output_tokens };
	bool same = a->t->provider->wire == k->wire;
	auto_json json_t *mine = same ? wire_forward(k->wire, k->in, &to) : NULL;
	json_t *v = same ? mine
			 : wire_translate(k->c->mem, k->wire, a->t->provider->wire, k->in, &to, &a->names, e);
	if (v == NULL)
		return -1;
	return js_dump_buf(&a->ask, v) == 0
	    ? 0
	    : err_set(e, ERR_TOO_LARGE, "The request is too large for the model's provider.");
}

/* What is noted of the one that begins; more than fit are counted only. */
static void begins(struct attempt *a)
{
	struct call *k = a->k;
	a->note = k->rec.n_attempts < RECORD_ATTEMPTS_MAX ? &k->rec.attempts[k->rec.n_attempts] : &a->beyond;
	k->rec.n_attempts++;
	*a->note = (struct call_attempt){ .provider = a->t->provider->name,
		.model = a->t->model->upstream,
		.address = a->t->address,
		.key = a->key->id,
		.began_us = clock_us() };
	k->now = a->note;
}

/* The provider may have done it, so it counts; a connection that had been idle is no fault of the key. */
static int on_again(void *arg)
{
	struct attempt *a = arg;
	if (a->k->rec.n_attempts - a->k->at_target >= a->k->limits.attempts)
		return -1;
	a->note->reason = "closed";
	a->note->ended_us = clock_us();
	begins(a);
	return 0;
}

static int send_request(struct attempt *a, const char *pin, struct http_res *res, struct err *e)
{
	struct call *k = a->k;
	const struct provider *p = a->t->provider;
	auto_buf struct buf key = BUF(PROVIDER_SECRET_BYTES + 32);
	struct heads h = { 0 };
	add(&h, "Content-Type: application/json");
	if (p->wire == WIRE_MESSAGES)
		add_vendor(a, &h);
	if (p->wire == WIRE_MESSAGES && a->key->secret != NULL &&
	    buf_room(&key, PROVIDER_SECRET_BYTES + 16) != NULL) {
		(void)buf_fmt(&key, "x-api-key: %s", secret_use(a->key->secret));
		add(&h, key.p);
	}
	const char *url = mem_join(k->c->mem, p->base_url, paths[p->wire], "");
	const struct http_req q = {
		.method = "POST",
		.url = url,
		.pin = pin,
		.headers = h.line,
		.bearer = p->wire == WIRE_MESSAGES ? NULL : a->key->secret,
		.body = a->ask.p,
		.body_n = a->ask.n,
		.on_head = on_head,
		.on_data = on_data,
		.any_status = true,
		.cancelled = cancelled,
		.arg = a,
		.connect_ms = k->limits.connect_ms,
		.until_ms = &a->until_ms,
		.on_sent = on_sent,
		.on_again = on_again,
		.piece_bytes = PIECE_BYTES,
		.decode = true,
		.keep = true,
	};
	int rc = http_do(&q, res, e);
	if (key.p != NULL)
		secret_wipe(key.p, key.cap);
	return rc;
}

static enum verdict judge(struct attempt *a, int rc, const struct err *e)
{
	if (a->stream != NULL)
		return stream_end(a, rc, e);
	if (rc != 0 && e->code == ERR_TIMEOUT && e->reason != NULL && !a->k->rec.client_left)
		return attempt_fails(a, CALL_NEXT, "too_large", WIRE_UPSTREAM,
		    "The model's provider answered with more than is accepted.");
	if (rc != 0)
		return broken(a, e);
	if (a->status < 200 || a->status > 299)
		return refused(a);
	return buffered_give(a);
}

static enum verdict run(struct attempt *a)
{
	struct call *k = a->k;
	struct err *e = k->e;
	const char *pin = NULL;
	struct http_res res = { 0 };
	if (body_of(a, e) != 0) {
		enum verdict v = attempt_fails(
		    a, CALL_NEXT, "not_carried", wire_fault_of(e), mem_str(k->c->mem, e->msg));
		k->fail.param = e->param[0] == 0 ? NULL : mem_str(k->c->mem, e->param);
		return v;
	}
	if (catalog_pin(k->svc->catalog, k->c->mem, a->t->provider, &pin, e) != 0)
		return attempt_fails(a, CALL_NEXT, "address", WIRE_UPSTREAM,
		    "The address of the model's provider cannot be used; tell your administrator.");
	int rc = send_request(a, pin, &res, e);
	if (a->stream == NULL)
		a->note->first_us = clock_us();
	http_res_free(&res);
	return judge(a, rc, e);
}

enum verdict attempt_run(
    struct call *k, const struct route_target *t, const struct provider_key *key, bool last)
{
	struct attempt a = { .k = k,
		.t = t,
		.key = key,
		.retry_after_ms = -1,
		.ask = BUF(ASK_BYTES),
		.body = BUF(ANSWER_BYTES),
		.until_ms = k->deadline_ms };
	int64_t limit_ms = clock_ms() + (k->ask.stream ? k->limits.first_token_ms : k->limits.answer_ms);
	if (!last && limit_ms < a.until_ms)
		a.until_ms = limit_ms;
	begins(&a);
	(void)call_used(k, &a, NULL, 0, false);
	enum verdict v = run(&a);
	if (k->e->code != ERR_NONE) /* what it says is in k->fail */
		err_clear(k->e);
	struct call_attempt *note = a.note;
	note->ended_us = clock_us();
	k->rec.upstream_us += (note->first_us != 0 ? note->first_us : note->ended_us) - note->began_us;
	k->now = NULL;
	if (v == CALL_DONE)
		keyring_tell(k->svc->catalog, t->provider, key, t->model->name, KEY_OK, 0);
	else if (a.tell)
		keyring_tell(k->svc->catalog, t->provider, key, t->model->name, a.outcome,
		    a.retry_after_ms > 0 ? a.retry_after_ms : 0);
	/* Who leaves an upstream at work has caused what that has read at least. */
	k->charged = v == CALL_DONE || v == CALL_BROKEN || v == CALL_LEFT;
	if (v == CALL_DONE || v == CALL_BROKEN)
		k->rec.answered = note;
	stream_close(&a);
	buf_free(&a.ask);
	buf_free(&a.body);
	return v;
}
