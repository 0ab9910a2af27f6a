#include "auth/reseal.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "sql/seal.h"

enum { BATCH = 100, TAKE_MS = 2000, ROW_KEY = 64 };

/* page: org, id (which is what the value is bound to), value. put and uses as in sql/query/seal.sql. */
static const struct place {
	const struct pg_stmt *page, *put, *uses;
} places[] = {
	{ &q_seal_run_page, &q_seal_run_put, &q_seal_run_uses },
	{ &q_seal_broker_page, &q_seal_broker_put, &q_seal_broker_uses },
	{ &q_seal_model_page, &q_seal_model_put, &q_seal_model_uses },
};
enum { N_PLACES = sizeof places / sizeof places[0] };

static int one(struct pg *db, const struct place *p, const struct seal_key *k, const struct pg_res *r, int i,
    struct reseal_sum *sum, struct err *e)
{
	struct err why = { 0 };
	const char *org = pg_str(r, i, 0), *id = pg_str(r, i, 1), *text = pg_str(r, i, 2);
	auto_secret struct secret *s = seal_open(k, id, text, &why);
	if (s == NULL) {
		sum->broken++;
		return 0;
	}
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *put = PG(db, p->put, e, org, id, text, seal(m, k, id, s));
	if (put == NULL)
		return -1;
	sum->done += pg_affected(put);
	return 0;
}

static int reseal_place(struct pg *db, const struct place *p, const struct seal_key *k,
    int (*after_batch)(void *arg), void *arg, struct reseal_sum *sum, struct err *e)
{
	char prefix[SEAL_ID + 3], last[ROW_KEY] = "", limit[16];
	(void)snprintf(limit, sizeof limit, "%d", BATCH);
	seal_prefix(k, prefix);
	for (int n = BATCH; n == BATCH;) {
		auto_res struct pg_res *r = PG(db, p->page, e, prefix, last, limit);
		if (r == NULL)
			return -1;
		n = pg_rows(r);
		for (int i = 0; i < n; i++)
			if (one(db, p, k, r, i, sum, e) != 0)
				return -1;
		if (n > 0)
			(void)snprintf(last, sizeof last, "%s", pg_str(r, n - 1, 1));
		if (after_batch != NULL && after_batch(arg) != 0)
			return err_set(e, ERR_TIMEOUT, "Resealing was given up; call it again.");
	}
	return 0;
}

int reseal_all(struct pg *db, const struct seal_key *k, int (*after_batch)(void *arg), void *arg,
    struct reseal_sum *sum, struct err *e)
{
	*sum = (struct reseal_sum){ 0 };
	for (size_t i = 0; i < N_PLACES; i++)
		if (reseal_place(db, &places[i], k, after_batch, arg, sum, e) != 0)
			return -1;
	return 0;
}

long long reseal_uses(struct pg *db, const char *id, struct err *e)
{
	char prefix[SEAL_ID + 3];
	long long n = 0;
	(void)snprintf(prefix, sizeof prefix, "2:%s:", id);
	for (size_t i = 0; i < N_PLACES; i++) {
		auto_res struct pg_res *r = PG(db, places[i].uses, e, prefix);
		if (r == NULL)
			return -1;
		n += pg_int(r, 0, 0);
	}
	auto_res struct pg_res *r = PG(db, &q_seal_once_uses, e, id);
	return r == NULL ? -1 : n + pg_int(r, 0, 0);
}

int reseal_drop(struct pg *db, const struct seal_key *k, int *dropped, struct err *e)
{
	struct seal_info info[2 * SEAL_KEYS_MAX];
	*dropped = 0;
	int n = seal_list(k, info);
	for (int i = 0; i < n; i++) {
		if (!info[i].in_file || info[i].newest)
			continue;
		long long uses = reseal_uses(db, info[i].id, e);
		if (uses < 0)
			return -1;
		if (uses > 0)
			return err_set(e, ERR_CONFLICT,
			    "Key %s is still in use: %lld stored values need it. Run `gatehouse reseal` "
			    "first; answers that are kept for an Idempotency-Key need it for 24 hours.",
			    info[i].id, uses);
		if (seal_drop(k, info[i].id, e) != 0)
			return -1;
		++*dropped;
	}
	return 0;
}

int reseal_reload(struct pg_pool *pool, const struct seal_key *k, struct err *e)
{
	struct seal_info info[2 * SEAL_KEYS_MAX];
	if (seal_reload(k, e) != 0)
		return -1;
	int n = seal_list(k, info);
	for (int i = 0; i < n; i++) {
		struct err why = { 0 };
		if (info[i].in_file)
			continue;
		auto_pg struct pg *db = pg_take(pool, TAKE_MS, &why);
		long long uses = db == NULL ? -1 : reseal_uses(db, info[i].id, &why);
		if (uses == 0)
			seal_forget(k, info[i].id);
		else
			log_error(
			    "a key is gone from SECRET_KEY_FILE and kept in memory: rows may need it; put it "
			    "back and run gatehouse reseal",
			    "key", info[i].id, "why", uses < 0 ? why.msg : NULL);
	}
	return 0;
}
