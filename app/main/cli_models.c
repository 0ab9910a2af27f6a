/* cli_models.c - `gatehouse org models`: what the operator says of an org and the model gateway (MOD-2). */
#include <stdio.h>

#include "base/js.h"
#include "base/str.h"
#include "cli.h"
#include "model/provider.h"
#include "op/cli.h"

enum { TAKE_MS = 10000 };

/* "a,b" as ["a", "b"]; "*" as null, which is everything. */
static json_t *names(const char *list)
{
	struct str rest = str_of(list), word;
	if (str_eq(rest, "*"))
		return json_null();
	json_t *out = json_array();
	while (str_cut(&rest, ',', &word))
		if ((word = str_trim(word)).n > 0)
			js_push(out, js_text(word.p, word.n));
	return out;
}

static int show(struct pg *db, const char *org, struct err *e)
{
	auto_json json_t *row = provider_routing(db, org, e);
	if (row == NULL)
		return -1;
	auto_free char *most = json_dumps(
	    json_object_get(row, "allowedAtMost"), JSON_ENCODE_ANY | JSON_COMPACT);
	(void)printf("tier %s\nallow-at-most %s\n", js_str_or(row, "tier", ""), most == NULL ? "" : most);
	return 0;
}

int cli_org_models(char **args, struct err *e)
{
	const char *org = NULL, *tier = NULL, *allow = NULL;
	const struct cli_option all[] = { { "tier", &tier, NULL }, { "allow-at-most", &allow, NULL }, { 0 } };
	static const char *const tiers[] = { "free", "paid", NULL };
	if (cli_options(args, all, &org, 1, e) != 0)
		return -1;
	if (tier != NULL && !str_one_of(tier, tiers))
		return err_set(e, ERR_BAD_REQUEST, "--tier is free or paid.");
	struct conf *conf;
	struct pg_pool *pool = cli_database(&conf, TAKE_MS, e);
	int rc = -1;
	if (pool != NULL) {
		auto_json json_t *most = allow == NULL ? NULL : names(allow);
		struct pg *db = pg_take(pool, TAKE_MS, e);
		if (db != NULL && provider_org_set(db, org, tier, most, e) == 0)
			rc = show(db, org, e);
		if (db != NULL)
			pg_put(db);
		pg_pool_free(pool);
	}
	conf_free(conf);
	return rc;
}
