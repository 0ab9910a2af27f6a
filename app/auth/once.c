#include "auth/once.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "auth/principal.h"
#include "base/crash.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/log.h"
#include "sql/once.h"

enum { TAKE_MS = 5000, RETRY_S = 1 };

/* ctx.once of a request with a key. */
struct once {
	const struct op *op;
	const struct seal_key *keys;
	const char *org, *key;
	unsigned char input[SHA256_BYTES]; /* of the op and its input; never stored */
	char hash[SEAL_MAC];               /* the fingerprint of it that is, or will be, on the row */
	bool kept, answered;               /* committed: what was created; the answer */
	bool found;                        /* somebody was here before: */
	int status;                        /* 0: only what was created */
	const char *body;
};

#define HEADER  "Idempotency-Key"
#define PURPOSE "once"

/* ---- the key */

static int key_check(const char *key, struct err *e)
{
	size_t n = strlen(key);
	bool fine = n > 0 && n <= ONCE_KEY_BYTES;
	for (size_t i = 0; fine && i < n; i++)
		fine = key[i] > ' ' && key[i] <= '~';
	return fine
	    ? 0
	    : err_field(e, ERR_BAD_REQUEST, HEADER,
		  "`" HEADER "` must be 1 to %d printable ASCII characters without spaces.", ONCE_KEY_BYTES);
}

/* The input as it was understood: spaces and the order of members do not matter. */
static void fingerprint(struct once *o, json_t *in)
{
	auto_json json_t *all = js_pack("[s, O]", o->op->id, in);
	auto_free char *text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
	if (text == NULL)
		abort();
	sha256(text, strlen(text), o->input);
	seal_mac(o->keys, PURPOSE, o->input, sizeof o->input, o->hash);
}

/* ---- what is stored */

/* Of a row's fingerprint, made with whichever key was the newest then. */
static int same_input(struct once *o, const char *hash, struct err *e)
{
	switch (seal_mac_is(o->keys, PURPOSE, o->input, sizeof o->input, hash)) {
	case SEAL_MAC_SAME:
		(void)snprintf(
		    o->hash, sizeof o->hash, "%s", hash); /* what once_answer and once_drop look for */
		return 0;
	case SEAL_MAC_LOST:
		(void)err_field(e, ERR_CONFLICT, HEADER,
		    "This `" HEADER
		    "` was used, and it cannot be told any more whether for this request; look "
		    "what is there, and take a new one.");
		e->reason = "outcome_unknown";
		return -1;
	default:
		(void)err_field(e, ERR_CONFLICT, HEADER,
		    "This `" HEADER "` was used for another request; take a new one.");
		e->reason = "idempotency_key_reused";
		return -1;
	}
}

/* 0, also when there is nothing; -1 with e: another request's key, or PostgreSQL is away. */
static int look(struct ctx *c, struct pg *db, struct err *e)
{
	struct once *o = c->once;
	auto_res struct pg_res *r = PG(db, &q_once_look, e, o->org, o->key);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return 0;
	if (same_input(o, pg_str(r, 0, 0), e) != 0)
		return -1;
	o->found = true;
	o->status = pg_null(r, 0, 1) ? 0 : (int)pg_int(r, 0, 1);
	o->body = mem_str(c->mem, pg_str(r, 0, 2));
	return 0;
}

static int in_use(struct err *e)
{
	(void)err_field(e, ERR_CONFLICT, HEADER,
	    "The first request with this `" HEADER "` is still at work; ask again shortly.");
	e->reason = "idempotency_key_in_use";
	e->retry_s = RETRY_S;
	return -1;
}

int once_begin(struct ctx *c, struct pg *db, struct err *e)
{
	struct once *o = c->once;
	if (pg_begin(db, e) != 0)
		return -1;
	if (o == NULL)
		return 0;
	auto_res struct pg_res *r = PG(db, &q_once_lock, e, o->org, o->key);
	if (r == NULL)
		return -1;
	if (!pg_bool(r, 0, 0))
		return in_use(e);
	if (look(c, db, e) != 0)
		return -1;
	return o->found ? in_use(e) : 0; /* once_call sees `found` and answers what is stored */
}

static int status_of(struct ctx *c)
{
	return c->reply->status != 0 ? c->reply->status : c->once->op->status;
}

/* status 0: only what was created. An answer that is too long is not written. */
static int store(
    struct ctx *c, struct pg *db, const struct pg_stmt *q, int status, const json_t *answer, struct err *e)
{
	const struct once *o = c->once;
	const char *body = js_dump(c->mem, answer);
	if (strlen(body) > ONCE_BODY_BYTES)
		return 0;
	auto_res struct pg_res *r = PG(
	    db, q, e, o->org, o->key, o->hash, status == 0 ? NULL : pg_num(c->mem, status), body);
	return r == NULL ? -1 : 0;
}

int once_commit(struct ctx *c, struct pg *db, bool whole, json_t *answer, struct err *e)
{
	auto_json json_t *mine = answer;
	struct once *o = c->once;
	if (o != NULL && store(c, db, &q_once_keep, whole ? status_of(c) : 0, mine, e) != 0)
		return -1;
	/* When this fails nobody knows whether it was written, so it is not undone: a repetition will see. */
	if (pg_commit(db, e) != 0)
		return -1;
	if (o == NULL)
		return 0;
	o->kept = true;
	o->answered = whole;
	crash_point("once.kept");
	return 0;
}

void once_note(struct ctx *c, json_t *made)
{
	auto_json json_t *mine = made;
	struct err ignored = { 0 };
	auto_pg struct pg *db = c->once == NULL ? NULL : pg_take(c->db, TAKE_MS, &ignored);
	if (db != NULL)
		(void)store(c, db, &q_once_answer, 0, mine, &ignored);
}

static int drop(struct ctx *c, struct err *e)
{
	const struct once *o = c->once;
	auto_pg struct pg *db = pg_take(c->db, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_once_drop, e, o->org, o->key, o->hash);
	return r == NULL ? -1 : 0;
}

void once_undo(struct ctx *c)
{
	struct err ignored = { 0 }; /* then op->again finds that nothing is there */
	if (c->once != NULL)
		(void)drop(c, &ignored);
}

/* ---- answering in the op's place */

static json_t *was_secret(const json_t *made, struct err *e)
{
	(void)err_field(e, ERR_CONFLICT, HEADER,
	    "The answer to the first request with this `" HEADER "` held a secret of %.64s and is not kept; "
	    "if it is lost, ask for another with a new key.",
	    js_str_or(made, "id", "it"));
	e->reason = "answer_was_secret";
	return NULL;
}

static json_t *again(struct ctx *c, struct err *e)
{
	const struct once *o = c->once;
	json_t *body = mem_json(c->mem, js_parse(o->body, strlen(o->body), e));
	if (body == NULL)
		return NULL;
	if (o->status == 0 && o->op->again == NULL)
		return was_secret(body, e);
	const char *without = c->reply->headers;
	reply_header(c, "Idempotent-Replayed", "true");
	if (o->status != 0) {
		reply_status(c, o->status);
		return json_incref(body);
	}
	json_t *out = o->op->again(c, body, e);
	if (out == NULL && !c->reply->begun) /* a refusal of the repeat is no answer of the first */
		c->reply->headers = without;
	return out;
}

/* The answer of an op that had only stored what it creates, or had nothing to create. It is not worth losing the answer when this
 * fails: op->again makes one. After an error nothing is undone, as op->again judges what is really there. */
static void conclude(struct ctx *c, const json_t *out)
{
	const struct once *o = c->once;
	if (out == NULL || out == REPLIED || o->answered || (o->op->flags & OP_SECRET) != 0)
		return;
	struct err lost = { 0 };
	auto_pg struct pg *db = pg_take(c->db, TAKE_MS, &lost);
	if (db != NULL)
		(void)store(c, db, o->kept ? &q_once_answer : &q_once_keep, status_of(c), out, &lost);
}

/* An op with a transaction of its own. */
static json_t *keeping(struct ctx *c, json_t *in, struct err *e)
{
	const struct once *o = c->once;
	json_t *out = o->op->run(c, in, e);
	conclude(c, out);
	if (out == NULL && o->found) { /* the twin was done in the moment between our look and our begin */
		err_clear(e);
		return again(c, e);
	}
	return out;
}

/* Before the op: what it checks may have changed since the first answer. */
static json_t *looking(struct ctx *c, json_t *in, struct err *e)
{
	struct once *o = c->once;
	auto_pg struct pg *db = pg_take(c->db, TAKE_MS, e);
	if (db == NULL || look(c, db, e) != 0)
		return NULL;
	pg_put(steal(db));
	if (!o->found)
		return keeping(c, in, e);
	json_t *out = again(c, e);
	if (out != NULL || e->code != ERR_NOT_FOUND)
		return out;
	/* It failed in the making, and whoever made it died before it could say so. */
	err_clear(e);
	o->found = false;
	return drop(c, e) == 0 ? keeping(c, in, e) : NULL;
}

/* Any other op: a transaction around it. */
static json_t *around(struct ctx *c, json_t *in, struct err *e)
{
	const struct once *o = c->once;
	auto_pg struct pg *db = pg_take(c->db, TAKE_MS, e);
	if (db == NULL || once_begin(c, db, e) != 0) {
		if (!o->found)
			return NULL;
		err_clear(e);
		return again(c, e);
	}
	json_t *out = o->op->run(c, in, e);
	if (out == NULL || out == REPLIED)
		return out;
	crash_point("once.done");
	struct err lost = { 0 };
	bool secret = (o->op->flags & OP_SECRET) != 0;
	json_t *kept = secret ? js_pack("{s:s}", "id", js_str_or(out, "id", "it")) : json_incref(out);
	if (once_commit(c, db, !secret, kept, &lost) != 0)
		log_warn("an answer could not be stored for its " HEADER, "id", c->request_id);
	return out;
}

json_t *once_call(struct ctx *c, const struct seal_key *keys, const struct op *op, json_t *in, struct err *e)
{
	const char *key = (op->flags & OP_ONCE) == 0 || strcmp(c->method, "POST") != 0
	    ? NULL
	    : reply_param(c, "HTTP_IDEMPOTENCY_KEY");
	if (key == NULL)
		return op->run(c, in, e);
	if (reply_param_twice(c, "HTTP_IDEMPOTENCY_KEY")) {
		(void)err_field(
		    e, ERR_BAD_REQUEST, HEADER, "`" HEADER "` is given more than once; send one.");
		return NULL;
	}
	if (key_check(key, e) != 0)
		return NULL;
	struct once *o = mem_alloc(c->mem, sizeof *o);
	*o = (struct once){ .op = op, .keys = keys, .org = c->who->org, .key = key };
	fingerprint(o, in);
	c->once = o;
	return (op->flags & OP_KEEPS) != 0 ? looking(c, in, e) : around(c, in, e);
}
