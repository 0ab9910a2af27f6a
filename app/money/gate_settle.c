/*
 * gate_settle.c - settlements and their flush (gate.h): what waits is settled together, one statement an account, so that its row is
 * locked once for many; no commit of these waits for the disk. One write that does wait, for all of them, also looks whether they
 * are still there.
 */
#include <string.h>

#include "base/crash.h"
#include "base/log.h"
#include "money/gate_int.h"
#include "sql/money.h"

enum { ARRAY_BYTES = 1 << 24 };

void gate_array_num(struct buf *b, long long v)
{
	(void)buf_chr(b, b->n == 0 ? '{' : ',');
	(void)buf_num(b, v);
}

void gate_array(struct buf *b, const char *s)
{
	(void)buf_chr(b, b->n == 0 ? '{' : ',');
	if (s == NULL) {
		(void)buf_str(b, "NULL");
		return;
	}
	(void)buf_chr(b, '"');
	for (size_t some; *s != 0; s += some) {
		if (*s == '"' || *s == '\\')
			(void)buf_chr(b, '\\');
		some = 1 + strcspn(s + 1, "\"\\");
		(void)buf_add(b, s, some);
	}
	(void)buf_chr(b, '"');
}

const char *gate_array_end(struct buf *b)
{
	(void)buf_chr(b, '}');
	return buf_c(b);
}

/* What is to be told of it is kept in the call, of the first time: done again it is nothing new. */
static void keep(struct gate_call *c, const struct pg_res *r, int row)
{
	c->settled = true;
	c->first = c->first || strcmp(pg_str(r, row, 1), "settled") == 0;
	c->cost = pg_int(r, row, 2);
	if (pg_null(r, row, 3))
		return;
	free(c->soft);
	c->soft = xstrdup(pg_str(r, row, 3));
}

/* The columns of calls that money_close takes, after the account's five. */
enum { REQUESTS, KEYS, RUNS, PROVIDERS, MODELS, TOKENS, MILLICENTS = TOKENS + 5, ESTIMATED, COLUMNS };
enum { ACCOUNT = 5 };
struct columns {
	struct buf of[COLUMNS];
};

static void columns_free(struct columns *all)
{
	for (size_t i = 0; i < COLUMNS; i++)
		buf_free(&all->of[i]);
}

static void columns_add(struct columns *all, const struct gate_call *c)
{
	const long long tokens[] = { c->tokens.input, c->tokens.cached, c->tokens.cache_write,
		c->tokens.output, c->tokens.reasoning };
	gate_array(&all->of[REQUESTS], c->request);
	gate_array(&all->of[KEYS], c->key);
	gate_array(&all->of[RUNS], c->run);
	gate_array(&all->of[PROVIDERS], c->provider);
	gate_array(&all->of[MODELS], c->model);
	for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
		gate_array_num(&all->of[TOKENS + i], tokens[i]);
	gate_array_num(&all->of[MILLICENTS], c->millicents);
	gate_array(&all->of[ESTIMATED], c->estimated ? "true" : "false");
}

/* Calls of one account, committed together. */
static int settle_in(struct pg *db, struct gate_call *const *calls, int n, struct err *e)
{
	const struct gate_call *c = calls[0];
	bool reports = conf_str(c->g->o.conf, "BILLING_REPORT_URL")[0] != 0;
	const char *params[ACCOUNT + COLUMNS] = { c->org, c->subject, c->currency, c->test ? "true" : "false",
		reports ? "true" : "false" };
	AUTO(columns_free) struct columns all;
	for (size_t i = 0; i < COLUMNS; i++)
		all.of[i] = BUF(ARRAY_BYTES);
	for (int i = 0; i < n; i++)
		columns_add(&all, calls[i]);
	for (size_t i = 0; i < COLUMNS; i++)
		params[ACCOUNT + i] = gate_array_end(&all.of[i]);
	auto_res struct pg_res *r = pg_query(db, &q_money_close, e, ACCOUNT + COLUMNS, params);
	if (r == NULL)
		return -1;
	for (int i = 0; i < pg_rows(r); i++)
		keep(calls[pg_int(r, i, 0)], r, i);
	return 0;
}

/* One that PostgreSQL refuses, our own fault, takes no other with it; its reservation stays, which the reaper and people find. */
static int settle_account(struct pg *db, struct gate_call *const *calls, int n, struct err *e)
{
	struct err one = { 0 };
	if (settle_in(db, calls, n, &one) == 0)
		return 0;
	if (one.code == ERR_UNAVAILABLE) {
		*e = one;
		return -1;
	}
	for (int i = 0; n > 1 && i < n; i++)
		if (settle_account(db, &calls[i], 1, e) != 0)
			return -1;
	if (n == 1)
		log_error("a model call cannot be settled", "org", calls[0]->org, "request",
		    calls[0]->request, "error", one.msg);
	return 0;
}

/* Are all of these settled, and on the disk? One that a crash of PostgreSQL has undone is not found. */
static int flush(struct pg *db, struct gate_call *const *calls, int n, struct err *e)
{
	auto_buf struct buf orgs = BUF(ARRAY_BYTES), requests = BUF(ARRAY_BYTES);
	int settled = 0;
	for (int i = 0; i < n; i++) {
		if (!calls[i]->settled)
			continue;
		gate_array(&orgs, calls[i]->org);
		gate_array(&requests, calls[i]->request);
		settled++;
	}
	if (settled == 0)
		return 0;
	struct err why = { 0 };
	auto_res struct pg_res *r = PG(
	    db, &q_money_flush, &why, gate_array_end(&orgs), gate_array_end(&requests));
	return r != NULL && pg_int(r, 0, 0) == settled
	    ? 0
	    : err_set(e, ERR_UNAVAILABLE, "The charge is not stored yet.");
}

/* Of one that is durable; no connection is held. */
static void tell(struct gate_call *c)
{
	(void)atomic_fetch_add(c->first ? &c->g->settled : &c->g->late, 1);
	if (c->soft == NULL)
		return;
	(void)atomic_fetch_add(&c->g->soft, 1);
	gate_tell_soft(&c->g->o, c->org, c->run, c->session, c->soft);
}

/* Bring calls of one account together: how many of calls[0…n) are calls[0]'s; the others keep their order. */
static int gather(struct gate_call **calls, int n)
{
	int same = 1;
	for (int i = 1; i < n; i++) {
		struct gate_call *c = calls[i];
		if (!gate_same_account(calls[0], c))
			continue;
		memmove(&calls[same + 1], &calls[same], (size_t)(i - same) * sizeof(struct gate_call *));
		calls[same++] = c;
	}
	return same;
}

int gate_settle_all(struct gate *g, struct gate_call **calls, int n, struct err *e)
{
	auto_pg struct pg *db = pg_take(g->o.db, GATE_TAKE_MS, e);
	if (db == NULL)
		return -1;
	for (int i = 0; i < n; i++)
		calls[i]->settled = false;
	for (int i = 0; i < n;) {
		int same = gather(calls + i, n - i);
		if (settle_account(db, calls + i, same, e) != 0)
			return -1;
		i += same;
	}
	crash_point("money.settled");
	if (flush(db, calls, n, e) != 0)
		return -1;
	pg_put(steal(db));
	for (int i = 0; i < n; i++)
		if (calls[i]->settled)
			tell(calls[i]);
	return 0;
}
