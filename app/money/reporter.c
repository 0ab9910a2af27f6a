/* reporter.c - usage rows to the external billing service (keeper.h). */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/log.h"
#include "io/http.h"
#include "money/gate_int.h"
#include "money/keeper_int.h"
#include "sql/money.h"

enum {
	TAKE_MS = 2000,
	LOOK_MS = 500,    /* how often somebody looks whether REPORT_ROWS are there */
	BACKOFF_MS = 500, /* before the second try, twice as long before the third */
	CONNECT_MS = 5000,
	/* In the pace of BILLING_REPORT_EVERY_S: how long a try may take, and when a holder that stood still is dead. It moves before
	 * every try. */
	TRY_PACES = 3,
	STILL_PACES = 6,
	BATCH_BYTES = 256 * 1024,
};

struct batch {
	json_t *rows;
	struct buf xids, ns;      /* of its rows, as arrays */
	char first[32], last[32]; /* ns of its ends */
};
struct place { /* of the one reporter */
	bool mine;
	long long beats;  /* of another holder, as they were seen last */
	int64_t since_ms; /* and since when */
};

static int pace_ms(const struct keeper *k)
{
	return (int)(1000 * conf_int(k->o.conf, "BILLING_REPORT_EVERY_S"));
}

/* ---- the place */

static int hold(struct keeper *k, struct pg *db, struct place *p, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	bool still = !p->mine && p->since_ms != 0 &&
	    clock_ms() - p->since_ms >= STILL_PACES * (int64_t)pace_ms(k);
	auto_res struct pg_res *r = PG(db, &q_report_hold, e, k->id, still ? pg_num(m, p->beats) : NULL);
	if (r == NULL)
		return -1;
	p->mine = pg_affected(r) > 0;
	if (p->mine)
		return 0;
	auto_res struct pg_res *now = PG0(db, &q_report_look, e);
	if (now == NULL)
		return -1;
	if (p->since_ms == 0 || pg_int(now, 0, 1) != p->beats)
		p->since_ms = clock_ms();
	p->beats = pg_int(now, 0, 1);
	return 0;
}

/* Another host need not wait until we have stood still for long enough. */
static void leave(struct keeper *k)
{
	struct err ignored = { 0 };
	auto_pg struct pg *db = pg_take(k->o.db, TAKE_MS, &ignored);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_report_leave, &ignored, k->id);
	(void)r;
}

/* ---- a batch */

static json_t *row_json(const struct pg_res *r, int i)
{
	json_t *v = js_pack("{s:s, s:s, s:s, s:s, s:b}", "id", pg_str(r, i, 3), "org", pg_str(r, i, 2),
	    "subject", pg_str(r, i, 4), "currency", pg_str(r, i, 5), "test", (int)pg_bool(r, i, 6));
	static const struct {
		const char *name;
		int col;
	} text[] = { { "key", 7 }, { "run", 8 }, { "provider", 9 }, { "model", 10 }, { "time", 18 } },
	  number[] = { { "inputTokens", 11 }, { "cachedTokens", 12 }, { "cacheWriteTokens", 13 },
		  { "outputTokens", 14 }, { "reasoningTokens", 15 }, { "costMillicents", 16 } };
	for (size_t k = 0; k < sizeof text / sizeof text[0]; k++)
		js_set_str(v, text[k].name, pg_null(r, i, text[k].col) ? NULL : pg_str(r, i, text[k].col));
	for (size_t k = 0; k < sizeof number / sizeof number[0]; k++)
		js_set(v, number[k].name, json_integer(pg_int(r, i, number[k].col)));
	js_set(v, "estimated", json_boolean(pg_bool(r, i, 17)));
	return v;
}

static int next(struct pg *db, struct batch *b, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_report_next, e, pg_num(m, REPORT_ROWS));
	if (r == NULL)
		return -1;
	int n = pg_rows(r);
	b->rows = json_array();
	for (int i = 0; i < n; i++) {
		js_push(b->rows, row_json(r, i));
		gate_array(&b->xids, pg_str(r, i, 0));
		gate_array(&b->ns, pg_str(r, i, 1));
	}
	(void)buf_chr(&b->xids, '}');
	(void)buf_chr(&b->ns, '}');
	(void)snprintf(b->first, sizeof b->first, "%s", n > 0 ? pg_str(r, 0, 1) : "");
	(void)snprintf(b->last, sizeof b->last, "%s", n > 0 ? pg_str(r, n - 1, 1) : "");
	return 0;
}

static bool cancelled(void *arg)
{
	return atomic_load(&((struct keeper *)arg)->ending);
}

/* Once: 0 when it was acknowledged. */
static int post(struct keeper *k, const char *body, const char *headers[], struct err *e)
{
	const char *ca = conf_str(k->o.conf, "BILLING_REPORT_CA_FILE");
	struct http_res res = { 0 };
	int rc = http_do(
	    &(struct http_req){
		.method = "POST",
		.url = conf_str(k->o.conf, "BILLING_REPORT_URL"),
		.ca_file = ca[0] == 0 ? NULL : ca,
		.headers = headers,
		.bearer = k->key,
		.body = body,
		.body_n = strlen(body),
		.cancelled = cancelled,
		.arg = k,
		.connect_ms = CONNECT_MS,
		.total_ms = TRY_PACES * pace_ms(k),
	    },
	    &res, e);
	if (rc == 0 && res.status / 100 != 2)
		rc = err_set(e, ERR_UPSTREAM, "The billing service answered %d.", res.status);
	http_res_free(&res);
	return rc;
}

static int hold_on(struct keeper *k, struct place *p, struct err *e)
{
	auto_pg struct pg *db = pg_take(k->o.db, TAKE_MS, e);
	if (db == NULL || hold(k, db, p, e) != 0)
		return -1;
	return p->mine ? 0 : err_set(e, ERR_CONFLICT, "Another host reports now.");
}

static int send_batch(struct keeper *k, struct place *p, const struct batch *b, struct err *e)
{
	auto_buf struct buf body = BUF(BATCH_BYTES);
	auto_mem struct mem *m = mem_new();
	/* Whoever keeps ids of batches sees a batch that comes again; a row's own id is what counts. */
	const char *id = mem_fmt(m, "%s-%s-%zu", b->first, b->last, json_array_size(b->rows));
	auto_json json_t *v = js_pack("{s:s, s:O}", "batch", id, "usage", b->rows);
	const char *headers[] = { "Content-Type: application/json", mem_fmt(m, "Idempotency-Key: %s", id),
		NULL };
	if (js_dump_buf(&body, v) != 0)
		return err_set(e, ERR_INTERNAL, "A batch of usage rows is too long.");
	for (int i = 1;; i++) {
		struct err one = { 0 };
		if (hold_on(k, p, e) != 0)
			return -1;
		if (post(k, buf_c(&body), headers, &one) == 0)
			return 0;
		if (i == REPORT_TRIES || !keeper_rest(k, BACKOFF_MS << (i - 1))) {
			*e = one;
			return -1;
		}
	}
}

/* ---- the thread */

static int acknowledged(struct keeper *k, const struct batch *b, struct err *e)
{
	auto_pg struct pg *db = pg_take(k->o.db, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL
	    ? NULL
	    : PG(db, &q_report_done, e, buf_c(&b->xids), buf_c(&b->ns), k->id);
	return r == NULL ? -1 : 0;
}

/* What is due: 1 when there is a batch to send, 0 when there is none, -1 with e. */
static int due(struct keeper *k, struct place *p, struct batch *b, int64_t *due_ms, struct err *e)
{
	auto_pg struct pg *db = pg_take(k->o.db, TAKE_MS, e);
	if (db == NULL || hold(k, db, p, e) != 0)
		return -1;
	if (!p->mine)
		return 0;
	if (next(db, b, e) != 0)
		return -1;
	size_t n = json_array_size(b->rows);
	if (n == 0)
		*due_ms = clock_ms() + pace_ms(k);
	return n == REPORT_ROWS || (n > 0 && clock_ms() >= *due_ms);
}

/* 1: a whole batch was sent, so there may be more; 0: no more is due; -1 with e. */
static int step(struct keeper *k, struct place *p, int64_t *due_ms, struct err *e)
{
	struct batch b = { .xids = BUF(BATCH_BYTES), .ns = BUF(BATCH_BYTES) };
	int rc = due(k, p, &b, due_ms, e);
	if (rc == 1) {
		bool whole = json_array_size(b.rows) == REPORT_ROWS;
		rc = send_batch(k, p, &b, e) != 0 || acknowledged(k, &b, e) != 0 ? -1 : whole;
		*due_ms = clock_ms() + pace_ms(k);
	}
	json_decref(b.rows);
	buf_free(&b.xids);
	buf_free(&b.ns);
	return rc;
}

void *reporter_thread(void *arg)
{
	struct keeper *k = arg;
	struct place place = { 0 };
	struct log_spell spell = { 0 };
	int64_t due_ms = 0;
	for (bool on = true; on;) {
		struct err e = { 0 };
		long long times;
		int rc = step(k, &place, &due_ms, &e);
		if (rc >= 0 && log_spell_works(&spell, &times))
			log_info("usage is reported again");
		if (rc < 0 && log_spell_fails(&spell, clock_ms(), &times))
			log_warn("usage cannot be reported; it is kept", "error", e.msg);
		/* A target that is down is asked again at the usual pace: its three tries are spread over it. */
		on = rc > 0 ? !atomic_load(&k->ending) : keeper_rest(k, rc == 0 ? LOOK_MS : pace_ms(k));
	}
	leave(k);
	return NULL;
}
