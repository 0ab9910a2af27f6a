/* One model call, from the gate to the settlement. See README.md in this folder. */
#include "model/call.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "auth/once.h"
#include "auth/principal.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/log.h"
#include "base/str.h"
#include "io/conf.h"
#include "model/call_int.h"
#include "sql/call.h"

enum {
	TAKE_MS = 5000,
	ASK_MS = 100, /* how often a waiting call looks whether its client is there */
	STICKY_BYTES = 200,
	PAUSE_MS = 50, /* before another attempt that no cooldown delays */
};

/* ---- what is known before anybody is asked */

static struct call_limits limits_of(const struct conf *conf)
{
	return (struct call_limits){
		.first_token_ms = (int)conf_int(conf, "MODEL_FIRST_TOKEN_MS"),
		.answer_ms = (int)conf_int(conf, "MODEL_ANSWER_MS"),
		.stall_ms = (int)conf_int(conf, "MODEL_STALL_MS"),
		.tail_ms = (int)conf_int(conf, "MODEL_TAIL_MS"),
		.retry_wait_ms = (int)conf_int(conf, "MODEL_RETRY_WAIT_MS"),
		.connect_ms = (int)conf_int(conf, "MODEL_CONNECT_MS"),
		.attempts = (int)conf_int(conf, "MODEL_ATTEMPTS"),
	};
}

/* How long the caller will wait, which the vendors' clients tell; never longer than we do. */
static int64_t patience_ms(struct ctx *c, int64_t most_ms)
{
	const char *told = reply_param(c, "HTTP_X_STAINLESS_TIMEOUT");
	long long s = 0;
	if (told == NULL || !str_int(told, 1, 86400, &s) || s * 1000 > most_ms)
		return most_ms;
	return s * 1000;
}

/* A conversation stays with one key of a provider, for the sake of its prompt cache. */
static const char *sticky_of(struct ctx *c, const json_t *in)
{
	const char *s = js_str(in, "prompt_cache_key");
	if (s == NULL)
		s = reply_param(c, "HTTP_SESSION_ID");
	if (s == NULL)
		s = reply_param(c, "HTTP_X_CLAUDE_CODE_SESSION_ID");
	return s != NULL && s[0] != 0 && strlen(s) <= STICKY_BYTES ? s : NULL;
}

static int prepare(struct call *k, struct err *e)
{
	struct ctx *c = k->c;
	if (wire_look(k->wire, k->in, &k->ask, e) != 0)
		return -1;
	if (route_resolve(k->svc->catalog, c->mem, c->who->org, k->ask.model, &k->route, e) != 0)
		return -1;
	int64_t now = clock_ms(), most_ms = conf_int(c->conf, "MODEL_TOTAL_S") * 1000;
	k->limits = limits_of(c->conf);
	k->end_ms = now + most_ms;
	k->deadline_ms = now + patience_ms(c, most_ms);
	k->sticky = sticky_of(c, k->in);
	k->est_in = wire_estimate_request(k->in);
	k->rec.asked = k->route.asked;
	k->rec.stream = k->ask.stream;
	k->rec.tools = k->ask.tools;
	k->rec.max_out = k->ask.max_out;
	return 0;
}

/* ---- the gate */

static int reserve(struct call *k, struct err *e)
{
	const struct principal *who = k->c->who;
	/* An estimate of text in few bytes a token can be too low by half. */
	long long in = k->est_in + k->est_in / 2, tokens = 0, millicents = 0;
	for (int i = 0; i < k->route.n; i++) {
		const struct provider_model *m = k->route.targets[i].model;
		long long out = call_worst_out(k, m), cost = price_worst(&m->price, in, out);
		tokens = in + out > tokens ? in + out : tokens;
		millicents = cost > millicents ? cost : millicents;
	}
	const struct gate_ask ask = {
		.org = who->org,
		.key = who->kind == CRED_KEY ? who->cred_id : NULL,
		.run = who->run,
		.session = who->session,
		.request_id = k->rec.id,
		.worst_millicents = millicents,
		.worst_tokens = tokens,
	};
	return gate_reserve(k->svc->gate, &ask, &k->gate, &k->rates, e);
}

/* For call_again. left: its client did not wait for an answer. */
static json_t *made_of(const struct call *k, bool left)
{
	return js_pack("{s:s,s:b,s:b}", "id", k->rec.id, "stream", k->ask.stream, "left", left);
}

/* HTTP-7. After the reservation, so that whoever finds the key taken finds its call too. */
static int claim(struct call *k, struct err *e)
{
	struct ctx *c = k->c;
	if (c->once == NULL)
		return 0;
	auto_pg struct pg *db = pg_take(c->db, TAKE_MS, e);
	if (db == NULL || once_begin(c, db, e) != 0)
		return -1;
	return once_commit(c, db, false, made_of(k, false), e);
}

/* ---- attempts */

/* False: the client left, or there is no time for it. */
static bool pause_ms(struct call *k, int64_t ms)
{
	unsigned char r;
	random_some(&r, sizeof r);
	ms += ms * r / 1024; /* up to a quarter more: those who failed together do not come back together */
	int64_t until = clock_ms() + ms, began = clock_us();
	if (until >= k->deadline_ms)
		return false;
	while (clock_left_ms(until) > 0 && !k->rec.client_left) {
		int left = clock_left_ms(until);
		(void)poll(NULL, 0, left < ASK_MS ? left : ASK_MS);
		k->rec.client_left = reply_gone(k->c);
	}
	k->rec.upstream_us += clock_us() - began;
	return !k->rec.client_left;
}

static const char *rests(const struct provider *p)
{
	bool keyless = p->n_keys > 0 && p->keys[0].secret == NULL;
	return keyless
	    ? "The model's provider is not asked for a while, after faults of its; try again later."
	    : "All keys of the model's provider rest after faults of its; try again later.";
}

/* Is it waited for? Who else could answer is asked at once when this provider rests for what others met; a rest that this call brought
 * about is waited for, but not one to which others added faults: then this call was the one that tried whether it is well again. */
static bool waited_for(const struct call *k, const struct key_rest *rest, bool last, bool tried)
{
	return last || (tried && rest->strikes <= k->limits.attempts);
}

/* A key of this target; waits for one that returns soon. -1: k->fail says when. */
static int take_key(
    struct call *k, const struct route_target *t, bool last, bool tried, const struct provider_key **key)
{
	int64_t until = clock_ms() + k->limits.retry_wait_ms;
	struct key_rest rest;
	for (;;) {
		struct err e = { 0 };
		if (keyring_take(k->svc->catalog, t->provider, t->model->name, k->sticky, key, &rest, &e) ==
		    0)
			return 0;
		if (!waited_for(k, &rest, last, tried) || clock_ms() + rest.ms > until ||
		    !pause_ms(k, rest.ms < 10 ? 10 : rest.ms)) {
			int retry_s = e.retry_s > 0 ? e.retry_s : (int)((rest.ms + 999) / 1000);
			if (!tried)
				k->fail = (struct call_fail){ .kind = WIRE_OVERLOADED,
					.message = rests(t->provider) };
			k->fail
			    .retry_s = retry_s; /* otherwise what the provider did to this call says more */
			return -1;
		}
	}
}

static enum verdict ask_target(struct call *k, const struct route_target *t, bool last)
{
	k->at_target = k->rec.n_attempts;
	for (int i = 0; i < k->limits.attempts; i = k->rec.n_attempts - k->at_target) {
		const struct provider_key *key = NULL;
		if (take_key(k, t, last, i > 0, &key) != 0)
			return k->rec.client_left ? CALL_LEFT : CALL_NEXT;
		enum verdict v = attempt_run(k, t, key, last);
		if (v != CALL_AGAIN)
			return v;
		if (!pause_ms(k, PAUSE_MS))
			return k->rec.client_left ? CALL_LEFT : CALL_NEXT;
	}
	return CALL_NEXT;
}

static enum verdict ask_all(struct call *k)
{
	for (int i = 0; i < k->route.n; i++) {
		bool last = i + 1 == k->route.n;
		enum verdict v = ask_target(k, &k->route.targets[i], last);
		if (v != CALL_NEXT || last || clock_ms() >= k->deadline_ms)
			return v;
		k->rec.n_failovers++;
	}
	return CALL_NEXT;
}

/* ---- the end */

static void settle(struct call *k, enum verdict v)
{
	if (v == CALL_LEFT && k->charged) /* whoever asks again is told so from now on, settled or not */
		once_note(k->c, made_of(k, true));
	if (k->charged) {
		k->rec.tokens = k->used.tokens;
		k->rec.estimated = k->used.estimated;
		gate_settle_later(k->gate, &k->used);
	} else {
		gate_release(k->gate);
	}
	k->gate = NULL;
	if (!k->charged)
		once_undo(k->c);
}

/* MOD-4: a call that needed more than one attempt is told of; on_call has it for the session of a run. */
static void log_attempts(const struct call *k)
{
	const struct call_record *r = &k->rec;
	const char *reason = NULL;
	char n[16], f[16];
	if (r->n_attempts < 2)
		return;
	for (int i = 0; i < r->n_attempts && i < RECORD_ATTEMPTS_MAX; i++)
		reason = r->attempts[i].reason != NULL ? r->attempts[i].reason : reason;
	(void)snprintf(n, sizeof n, "%d", r->n_attempts);
	(void)snprintf(f, sizeof f, "%d", r->n_failovers);
	log_info("a model call needed more than one attempt", "id", k->c->request_id, "call", r->id, "org",
	    r->org, "attempts", n, "failovers", f, "reason", reason, "answered",
	    r->answered == NULL ? NULL : r->answered->address);
}

static void finish(struct call *k, enum verdict v, struct err *e)
{
	static const char *const kinds[WIRE_FAULTS_] = { [WIRE_BAD_REQUEST] = "bad_request",
		[WIRE_CONTEXT] = "context",
		[WIRE_POLICY] = "policy",
		[WIRE_OVERLOADED] = "overloaded",
		[WIRE_TIMEOUT] = "timeout",
		[WIRE_TOO_LARGE] = "bad_request",
		[WIRE_INTERNAL] = "internal" };
	if (v == CALL_BROKEN)
		(void)err_set(e, ERR_UPSTREAM, "%.400s", k->fail.message);
	else if (v == CALL_AGAIN || v == CALL_NEXT || v == CALL_REFUSED)
		call_refuse_with(k, e);
	else if (k->kept != NULL)
		(void)call_reply_begin(k, 200, NULL);
	if (v != CALL_DONE && v != CALL_LEFT)
		k->rec.error = kinds[k->fail.kind] != NULL ? kinds[k->fail.kind] : "upstream";
	settle(k, v);
	k->rec.ended_us = clock_us();
	log_attempts(k);
	if (k->svc->on_call != NULL)
		k->svc->on_call(k->svc->arg, &k->rec);
}

json_t *call_run(struct ctx *c, const struct call_svc *svc, enum provider_wire w, json_t *in, struct err *e)
{
	struct call *k = mem_alloc(c->mem, sizeof *k);
	const struct principal *who = c->who;
	*k = (struct call){ .c = c, .svc = svc, .wire = w, .in = in, .e = e };
	k->rec = (struct call_record){ .org = who->org,
		.user = who->user,
		.key = who->cred_id,
		.session = who->session,
		.request_id = c->request_id,
		.traceparent = c->traceparent,
		.wire = w,
		.began_us = clock_us() };
	id_make("call", k->rec.id);
	if (prepare(k, e) != 0 || reserve(k, e) != 0 || claim(k, e) != 0) {
		gate_release(k->gate);
		call_tell(k);
		return NULL;
	}
	finish(k, ask_all(k), e);
	return k->kept != NULL ? json_incref(k->kept) : REPLIED;
}

/* For good: what it did is paid for, and cannot be told again. */
static json_t *not_kept(const char *id, const char *why, struct err *e)
{
	e->reason = "answer_not_kept";
	(void)err_field(e, ERR_CONFLICT, "Idempotency-Key",
	    "The call %s with this `Idempotency-Key` %s; take a new key for another one.", id, why);
	return NULL;
}

json_t *call_again(struct ctx *c, json_t *made, struct err *e)
{
	const char *id = js_str_or(made, "id", "");
	if (js_bool(made, "left", false))
		return not_kept(id, "was broken off by its client, and what it used is charged", e);
	auto_pg struct pg *db = pg_take(c->db, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_call_state, e, c->who->org, id);
	if (r == NULL)
		return NULL;
	/* What is answered whole is kept a moment after it is charged. */
	bool keeps = pg_bool(r, 0, 2) && !js_bool(made, "stream", true);
	if (pg_bool(r, 0, 0) || keeps) {
		e->reason = "idempotency_key_in_use";
		e->retry_s = 1;
		(void)err_field(e, ERR_CONFLICT, "Idempotency-Key",
		    "The call with this `Idempotency-Key` is still at work; ask again shortly.");
	} else if (pg_bool(r, 0, 1)) {
		/* Not `was answered`: its process may have died before. */
		return not_kept(id, "has ended and is charged, and no answer of it is kept", e);
	} else {
		(void)err_set(e, ERR_NOT_FOUND, "There is no such call.");
	}
	return NULL;
}
