/*
 * run_tokens.c - credentials for the model calls of one run (MOD-9).
 * Invariant: a token's text is in the answer that made it and nowhere else, and it reaches nothing but the gateway's routes.
 */
#include "auth/cred.h"
#include "auth/once.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/secret.h"
#include "code/runs.h"
#include "handlers/handlers.h"
#include "op/op.h"

static const struct param mint_in[] = {
	IN_ID("run", "The run.", "\"run_01jdq3v8m5c7x2k9f4t6w0b1ra\""),
	IN(T_INT, "ttlSec",
	    "How long it works at most, in seconds; as long as a run may take when not given. It ends with "
	    "the run in any case.",
	    "600", .min = 1, .max = LIMIT_RUN_S),
	{ 0 },
};
static const struct param mint_out[] = {
	OUT(T_STR, "id", "Names the token; no secret.", "\"tok_01jdvk2m8q4e6r8t0v2x4z6a8c\""),
	OUT(T_STR, "token", "A credential for model calls of this run. It is shown this once.",
	    "\"gr_01jdvk2m8q4e6r8t0v2x4z6a8c_0123456789012345678901234567890123456789012\""),
	OUT(T_TIME, "expiresAt", "When it stops working at the latest.", "\"2026-01-31T12:00:00.000Z\""),
	{ 0 },
};

static json_t *mint(struct ctx *c, json_t *in, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	struct cred got;
	if (db == NULL || once_begin(c, db, e) != 0 ||
	    runs_token(
		db, c->who, js_str_or(in, "run", ""), (int)js_int(in, "ttlSec", LIMIT_RUN_S), &got, e) != 0)
		return NULL;
	auto_secret struct secret *text = got.text;
	if (once_commit(c, db, false, js_pack("{s:s}", "id", got.id), e) != 0)
		return NULL;
	reply_header(c, "Cache-Control", "no-store");
	return js_pack("{s:s,s:s,s:s}", "id", got.id, "token", secret_use(text), "expiresAt", got.expires_at);
}

const struct op run_tokens_ops[] = {
	{ .id = "create_run_token",
	    .routes = { { "POST", "/v1/bots/{run}/tokens" } },
	    .summary = "Create a token for a run's model calls",
	    .doc = "For who started the run and for admins. What is called with it is the run's, in usage, "
		   "budgets and traces; it reaches the model routes only, and ends with the run.",
	    .scope = "coding",
	    .in = mint_in,
	    .out = mint_out,
	    .status = 201,
	    .flags = OP_ONCE | OP_KEEPS | OP_SECRET,
	    .run = mint },
	{ 0 },
};
