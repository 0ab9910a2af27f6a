/* What a client of a model call gets besides content: headers (MOD-11), and refusals in its own dialect (MOD-10). */
#include <stdio.h>
#include <string.h>

#include "auth/limit.h"
#include "auth/principal.h"
#include "base/clock.h"
#include "model/call_int.h"

static void number(struct ctx *c, const char *name, long long v)
{
	reply_header(c, name, mem_num(c->mem, v));
}

/* The names that the vendors' own clients read. Nothing is said of what is not limited. */
static void rate(
    struct ctx *c, enum provider_wire w, const char *what, long long limit, long long left, int reset_s)
{
	if (limit <= 0)
		return;
	if (w != WIRE_MESSAGES) {
		number(c, mem_fmt(c->mem, "x-ratelimit-limit-%s", what), limit);
		number(c, mem_fmt(c->mem, "x-ratelimit-remaining-%s", what), left);
		reply_header(
		    c, mem_fmt(c->mem, "x-ratelimit-reset-%s", what), mem_fmt(c->mem, "%ds", reset_s));
		return;
	}
	char at[CLOCK_TEXT];
	clock_rfc3339(clock_wall_ms() + reset_s * 1000LL, at);
	number(c, mem_fmt(c->mem, "anthropic-ratelimit-%s-limit", what), limit);
	number(c, mem_fmt(c->mem, "anthropic-ratelimit-%s-remaining", what), left);
	reply_header(c, mem_fmt(c->mem, "anthropic-ratelimit-%s-reset", what), mem_str(c->mem, at));
}

void call_tell(struct call *k)
{
	struct ctx *c = k->c;
	int64_t now = clock_us(), waited = k->rec.upstream_us;
	if (k->now != NULL)
		waited += k->now->first_us - k->now->began_us;
	reply_header(c, "x-gatehouse-call-id", k->rec.id);
	number(c, "x-gatehouse-attempts", k->rec.n_attempts);
	if (k->now != NULL)
		reply_header(c, "x-gatehouse-model", k->now->address);
	number(c, "x-gatehouse-overhead-us", now - k->rec.began_us - waited);
	rate(c, k->wire, "requests", k->rates.requests.limit, k->rates.requests.left,
	    k->rates.requests.reset_s);
	rate(c, k->wire, "tokens", k->rates.tokens.limit, k->rates.tokens.left, k->rates.tokens.reset_s);
}

int call_reply_begin(struct call *k, int status, const char *type)
{
	call_tell(k);
	if (k->wire == WIRE_MESSAGES)
		reply_header(k->c, "request-id", k->c->request_id);
	k->rec.status = status;
	k->rec.first_us = clock_us();
	if (type == NULL) /* the caller's answer follows by itself */
		return 0;
	return reply_begin(k->c, status, type);
}

static void send_refusal(struct ctx *c, const struct wire_refusal *r)
{
	if (r->retry_s > 0)
		number(c, "Retry-After", r->retry_s);
	if (r->final)
		reply_header(c, "x-should-retry", "false");
	c->reply->unbuffered = false;
	number(c, "Content-Length", (long long)strlen(r->body));
	reply_header(c, "Cache-Control", "no-store");
	if (r->status == 401)
		reply_header(c, "WWW-Authenticate", "Bearer realm=\"gatehouse\"");
	(void)reply_begin(c, r->status, "application/json");
	(void)reply_write(c, r->body, strlen(r->body));
}

void call_refuse_with(struct call *k, struct err *e)
{
	struct ctx *c = k->c;
	const struct call_fail *f = &k->fail;
	struct wire_refusal r = wire_refuse(
	    c->mem, k->wire, f->kind, f->message, f->param, c->request_id, f->retry_s);
	(void)call_reply_begin(k, r.status, NULL);
	send_refusal(c, &r);
	/* For the log line only: it was answered. */
	(void)err_set(e, err_from_http(r.status) == ERR_NONE ? ERR_UPSTREAM : err_from_http(r.status),
	    "%.400s", f->message);
}

bool call_refuse(struct ctx *c, enum provider_wire w, const struct err *why)
{
	struct wire_refusal r = wire_refuse(c->mem, w, wire_fault_of(why), why->msg,
	    why->param[0] == 0 ? NULL : why->param, c->request_id, why->retry_s);
	if (w == WIRE_MESSAGES)
		reply_header(c, "request-id", c->request_id);
	/* The org's requests a minute are judged before there is a call; the gate's own limits have a reason, and are told already. */
	if (why->code == ERR_RATE && why->reason == NULL && c->who != NULL)
		rate(c, w, "requests", limit_known(c->who->org), 0, why->retry_s);
	send_refusal(c, &r);
	return true;
}
