/* cli_doctor_money.c - what model calls are paid with, and what they are made with: a line each (RUN-5). */
#include <string.h>

#include "auth/seal.h"
#include "cli_doctor.h"
#include "io/http.h"
#include "money/balance.h"
#include "money/gate.h"
#include "sql/doctor.h"

enum { TAKE_MS = 5000, ASK_MS = 5000, WHAT_MAX = 1024, BEHIND = 4 /* times BILLING_REAP_S */ };

/* A look returns 0 with what it saw, -1 with e. */

static int look_credit(struct doctor *d, struct buf *what, struct err *e)
{
	const char *mode = conf_str(d->conf, "BILLING_MODE");
	if (strcmp(mode, "closed") != 0)
		return buf_fmt(what, "BILLING_MODE is %s, which refuses nobody", mode);
	if (balance_elsewhere(d->conf))
		return buf_str(what, "another service holds the balances");
	auto_pg struct pg *db = pg_take(d->db, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG0(db, &q_doctor_credit, e);
	if (r == NULL)
		return -1;
	if (pg_bool(r, 0, 0) && !pg_bool(r, 0, 1))
		return err_set(e, ERR_PAYMENT,
		    "BILLING_MODE is closed and no organisation has credit: every call that costs is "
		    "refused.");
	return buf_str(what, pg_bool(r, 0, 1) ? "there is credit" : "there is no organisation yet");
}

/* Any answer will do: what is wrong with a batch is the reporter's to log. */
static int look_report(struct doctor *d, struct buf *what, struct err *e)
{
	const char *url = conf_str(d->conf, "BILLING_REPORT_URL"),
		   *ca = conf_str(d->conf, "BILLING_REPORT_CA_FILE");
	if (url[0] == 0)
		return buf_str(what, "usage is reported nowhere");
	struct http_res res = { 0 };
	const struct http_req q = { .method = "HEAD",
		.url = url,
		.ca_file = ca[0] == 0 ? NULL : ca,
		.connect_ms = ASK_MS,
		.total_ms = ASK_MS };
	int rc = http_do(&q, &res, e);
	if (rc == 0)
		rc = buf_fmt(what, "BILLING_REPORT_URL answers (%d)", res.status);
	http_res_free(&res);
	return rc;
}

static int look_balance(struct doctor *d, struct buf *what, struct err *e)
{
	const struct account a = { .org = "admin", .subject = "", .currency = GATE_CURRENCY };
	long long available;
	if (!balance_elsewhere(d->conf))
		return buf_str(what, "balances are in the database");
	if (balance_setup(d->conf, e) != 0 || balance_ask(d->conf, &a, &available, e) != 0)
		return -1;
	return buf_str(what, "BILLING_BALANCE_URL answers with balances");
}

static int look_calls(struct doctor *d, struct buf *what, struct err *e)
{
	long long dead_s = BEHIND * conf_int(d->conf, "BILLING_REAP_S");
	auto_pg struct pg *db = pg_take(d->db, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_doctor_calls, e, pg_num(d->mem, dead_s));
	if (r == NULL)
		return -1;
	if (pg_int(r, 0, 0) > 0)
		return err_set(e, ERR_UNAVAILABLE,
		    "%lld model calls of processes that gave no sign of life for %lld s are not settled.",
		    pg_int(r, 0, 0), dead_s);
	return buf_str(what, "no call of a process that died is left open");
}

static int look_books(struct doctor *d, struct buf *what, struct err *e)
{
	auto_pg struct pg *db = pg_take(d->db, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG0(db, &q_doctor_books, e);
	if (r == NULL)
		return -1;
	if (pg_int(r, 0, 0) > 0)
		return err_set(e, ERR_INTERNAL,
		    "%lld accounts, one of %.40s among them, have reserved other than their open calls say.",
		    pg_int(r, 0, 0), pg_str(r, 0, 1));
	return buf_str(what, "what is reserved is what open calls have reserved");
}

static int look_keys(struct doctor *d, struct buf *what, struct err *e)
{
	auto_pg struct pg *db = pg_take(d->db, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG0(db, &q_doctor_keys, e);
	struct seal_key *seal = r == NULL ? NULL : seal_load(conf_str(d->conf, "SECRET_KEY_FILE"), e);
	if (seal == NULL)
		return -1;
	int rc = 0;
	for (int i = 0; rc == 0 && i < pg_rows(r); i++) {
		struct err why = { 0 };
		struct secret *s = seal_open(seal, pg_str(r, i, 0), pg_str(r, i, 1), &why);
		if (s == NULL)
			rc = err_set(e, ERR_INTERNAL,
			    "A key of %.40s's provider %.40s does not open with SECRET_KEY_FILE.",
			    pg_str(r, i, 2), pg_str(r, i, 3));
		secret_free(s);
	}
	seal_free(seal);
	return rc != 0 ? -1 : buf_fmt(what, "%d keys of providers open", pg_rows(r));
}

static const struct {
	const char *name;
	int (*look)(struct doctor *d, struct buf *what, struct err *e);
	const char *remedy;
} checks[] = {
	{ "billing.credit", look_credit, "`gatehouse org credit SLUG 10.00usd`, or set BILLING_MODE" },
	{ "billing.report", look_report,
	    "check BILLING_REPORT_URL and _CA_FILE; usage is kept until it answers" },
	{ "billing.balance", look_balance,
	    "check BILLING_BALANCE_URL, _KEY_FILE and _CA_FILE; in mode closed no call is let in without "
	    "it" },
	{ "billing.calls", look_calls, "start gatehouse-runner, which settles them, and read its log" },
	{ "billing.books", look_books, "`gatehouse ledger check` says which, and whether more is wrong" },
	{ "models.keys", look_keys,
	    "put the key that it was sealed with back into SECRET_KEY_FILE, or give the provider its keys "
	    "anew" },
};

void doctor_money(struct doctor *d)
{
	for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
		struct err e = { 0 };
		auto_buf struct buf what = BUF(WHAT_MAX);
		int rc = checks[i].look(d, &what, &e);
		doctor_say(d, rc < 0 ? DOCTOR_FAIL : DOCTOR_OK, checks[i].name, rc < 0 ? e.msg : buf_c(&what),
		    checks[i].remedy);
	}
}
