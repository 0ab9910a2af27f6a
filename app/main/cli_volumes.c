/* cli_volumes.c - `gatehouse volumes`: what nobody has leased for a while, and, when told so, its end (SBX-61). */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "cli.h"
#include "op/cli.h"
#include "sandbox/lease_volume.h"
#include "sql/volume.h"

enum { TAKE_MS = 10000, DAYS_MAX = 36500 };

/* "30d" or "30". */
static int days_of(const char *text, long long *days, struct err *e)
{
	char number[16];
	size_t n = strlen(text);
	(void)snprintf(number, sizeof number, "%.*s", (int)(n > 0 && text[n - 1] == 'd' ? n - 1 : n), text);
	return str_int(number, 0, DAYS_MAX, days)
	    ? 0
	    : err_set(e, ERR_BAD_REQUEST, "--unused-for is a number of days, such as 30d.");
}

static void print(const struct pg_res *r, int i, const char *end)
{
	(void)printf("%s %s on %s: %lld of %lld MiB, last leased %s%s\n", pg_str(r, i, 0), pg_str(r, i, 1),
	    pg_str(r, i, 2), pg_int(r, i, 4) >> 20, pg_int(r, i, 3) >> 20, pg_str(r, i, 5), end);
}

/* One that cannot be deleted now does not keep the others. */
static int purge_one(struct ctx *c, const struct pg_res *r, int i)
{
	struct err e = { 0 };
	if (volume_purge(c, pg_str(r, i, 0), pg_str(r, i, 1), &e) >= 0) {
		print(r, i, ", deleted");
		return 0;
	}
	(void)fprintf(stderr, "gatehouse: %s %s: %s\n", pg_str(r, i, 0), pg_str(r, i, 1), e.msg);
	return 1;
}

static int all(const struct conf *conf, struct pg_pool *pool, long long days, bool purge, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	struct ctx c = { .mem = m, .db = pool, .conf = conf, .deadline_ms = INT64_MAX };
	auto_pg struct pg *db = pg_take(pool, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_volume_unused, e, pg_num(m, days));
	int left = 0;
	if (r == NULL)
		return -1;
	pg_put(steal(db)); /* there is one connection, and each purge takes it */
	for (int i = 0; i < pg_rows(r); i++) {
		if (purge)
			left += purge_one(&c, r, i);
		else
			print(r, i, "");
	}
	if (!purge && pg_rows(r) > 0)
		(void)printf("Nothing was deleted; --purge deletes these %d.\n", pg_rows(r));
	return left == 0 ? 0 : err_set(e, ERR_UNAVAILABLE, "%d volumes could not be deleted now.", left);
}

int cli_volumes(char **args, struct err *e)
{
	const char *unused = NULL;
	bool purge = false;
	long long days = 0;
	const struct cli_option options[] = { { "unused-for", &unused, NULL }, { "purge", NULL, &purge },
		{ 0 } };
	if (cli_options(args, options, NULL, 0, e) != 0 || (unused != NULL && days_of(unused, &days, e) != 0))
		return -1;
	if (purge && unused == NULL)
		return err_set(e, ERR_BAD_REQUEST, "--purge needs --unused-for: it deletes for good.");
	struct conf *conf;
	struct pg_pool *pool = cli_database(&conf, TAKE_MS, e);
	int rc = pool == NULL ? -1 : all(conf, pool, days, purge, e);
	pg_pool_free(pool);
	conf_free(conf);
	return rc;
}
