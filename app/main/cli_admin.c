/* cli_admin.c - subcommands on the database: migrate, org, key, reseal. */
#include <stdio.h>
#include <string.h>

#include "auth/cred.h"
#include "auth/limit.h"
#include "auth/reseal.h"
#include "base/js.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/str.h"
#include "cli.h"
#include "handlers/handlers.h"
#include "io/conf.h"
#include "io/migrate.h"
#include "io/pg.h"
#include "op/cli.h"

enum { TAKE_MS = 10000, MIGRATE_MS = 600000, GRACE_MAX_S = 7 * 86400 };

struct pg_pool *cli_database(struct conf **conf, int timeout_ms, struct err *e)
{
	*conf = conf_load(NULL, e);
	if (*conf == NULL)
		return NULL;
	/* What libpq and PostgreSQL said goes to the log: here that is the operator's terminal. */
	log_setup("gatehouse", LOG_WARN_, LOG_LOGFMT);
	return pg_pool_new(conf_str(*conf, "DATABASE_URL"), 1, timeout_ms);
}

int cli_with_database(int (*act)(struct pg *db, void *arg, struct err *e), void *arg, struct err *e)
{
	struct conf *conf;
	struct pg_pool *pool = cli_database(&conf, (int)TAKE_MS, e);
	int rc = -1;
	if (pool != NULL) {
		struct pg *db = pg_take(pool, TAKE_MS, e);
		if (db != NULL) {
			rc = act(db, arg, e);
			pg_put(db);
		}
		pg_pool_free(pool);
	}
	conf_free(conf);
	return rc;
}

int cli_migrate(char **args, struct err *e)
{
	static const struct cli_option none[] = { { 0 } };
	if (cli_options(args, none, NULL, 0, e) != 0)
		return -1;
	struct conf *conf;
	struct pg_pool *pool = cli_database(&conf, MIGRATE_MS, e);
	int n = -1;
	if (pool != NULL) {
		n = migrate_up(pool, migrations, e);
		pg_pool_free(pool);
	}
	conf_free(conf);
	if (n < 0)
		return -1;
	(void)printf(n == 0 ? "The database is up to date.\n" : "Migrations applied: %d.\n", n);
	return 0;
}

struct org_ask {
	const char *slug;
	bool if_absent;
};

static int org_act(struct pg *db, void *arg, struct err *e)
{
	const struct org_ask *ask = arg;
	int rc = org_create(db, ask->slug, e);
	if (rc != 0 && ask->if_absent && e->code == ERR_CONFLICT) {
		err_clear(e);
		rc = 0;
	}
	return rc;
}

int cli_org_create(char **args, struct err *e)
{
	struct org_ask ask = { 0 };
	const struct cli_option all[] = { { "if-absent", NULL, &ask.if_absent }, { 0 } };
	return cli_options(args, all, &ask.slug, 1, e) != 0 ? -1 : cli_with_database(org_act, &ask, e);
}

struct org_limits {
	const char *slug;
	struct limit_org limits;
};

static int limit_act(struct pg *db, void *arg, struct err *e)
{
	struct org_limits *ask = arg;
	auto_res struct pg_res *row = NULL;
	if (limit_set(db, ask->slug, &ask->limits, &row, e) != 0)
		return -1;
	const struct limit_org *l = &ask->limits;
	(void)printf(
	    "requests-per-minute %s\nconcurrent-runs %s\ntokens-per-minute %s\nconcurrent-calls %s\n",
	    l->requests_per_minute, l->concurrent_runs, l->tokens_per_minute, l->concurrent_calls);
	return 0;
}

int cli_org_limit(char **args, struct err *e)
{
	struct org_limits ask = { 0 };
	const struct cli_option all[] = {
		{ "requests-per-minute", &ask.limits.requests_per_minute, NULL },
		{ "concurrent-runs", &ask.limits.concurrent_runs, NULL },
		{ "tokens-per-minute", &ask.limits.tokens_per_minute, NULL },
		{ "concurrent-calls", &ask.limits.concurrent_calls, NULL },
		{ 0 },
	};
	return cli_options(args, all, &ask.slug, 1, e) != 0 ? -1 : cli_with_database(limit_act, &ask, e);
}

/* The key alone on standard output: scripts read it, people see nothing else. */
static int key_act(struct pg *db, void *arg, struct err *e)
{
	struct cred got = { 0 };
	if (cred_create(db, arg, &got, e) != 0)
		return -1;
	(void)printf("%s\n", secret_use(got.text));
	secret_free(got.text);
	return 0;
}

/* What a key may be is written once, in the op's row. */
static int check_key(const struct cred_new *want, struct err *e)
{
	auto_json json_t *in = js_pack("{s:s, s:s}", "name", want->name, "user", want->user);
	if (want->expires_at != NULL)
		js_set_str(in, "expiresAt", want->expires_at);
	if (want->scopes != NULL)
		js_set(in, "scopes", cred_scopes(want->scopes));
	const struct op *op = op_by_id(handlers_all, "create_key");
	if (op_check(op->in, in, op->flags, e) != 0)
		return -1;
	return want->expires_at == NULL ? 0 : cred_ahead(want->expires_at, e);
}

int cli_key_create(char **args, struct err *e)
{
	struct cred_new want = { .kind = CRED_KEY };
	const struct cli_option all[] = {
		{ "org", &want.org, NULL },
		{ "user", &want.user, NULL },
		{ "name", &want.name, NULL },
		{ "scopes", &want.scopes, NULL },
		{ "expires", &want.expires_at, NULL },
		{ "admin", NULL, &want.org_admin },
		{ 0 },
	};
	if (cli_options(args, all, NULL, 0, e) != 0)
		return -1;
	if (want.org == NULL || want.user == NULL)
		return err_set(e, ERR_BAD_REQUEST, "Say whose key it is: --org ORG --user USER.");
	if (want.name == NULL)
		want.name = want.user;
	return check_key(&want, e) != 0 ? -1 : cli_with_database(key_act, &want, e);
}

struct revoke_ask {
	const char *org, *id;
};

static int revoke_act(struct pg *db, void *arg, struct err *e)
{
	const struct revoke_ask *ask = arg;
	return cred_revoke(db, ask->org, CRED_KEY, ask->id, e);
}

int cli_key_revoke(char **args, struct err *e)
{
	struct revoke_ask ask = { 0 };
	const struct cli_option all[] = { { "org", &ask.org, NULL }, { 0 } };
	if (cli_options(args, all, &ask.id, 1, e) != 0)
		return -1;
	if (ask.org == NULL)
		return err_set(e, ERR_BAD_REQUEST, "Say whose key it is: --org ORG.");
	return cli_with_database(revoke_act, &ask, e);
}

struct rotate_ask {
	const char *org, *id, *grace;
	long long grace_s;
};

static int rotate_act(struct pg *db, void *arg, struct err *e)
{
	const struct rotate_ask *ask = arg;
	struct cred got = { 0 };
	json_t *row;
	if (pg_begin(db, e) != 0 ||
	    cred_rotate(db, ask->org, ask->id, (int)ask->grace_s, NULL, &got, &row, e) != 0)
		return -1;
	json_decref(row);
	if (pg_commit(db, e) != 0) {
		secret_free(got.text);
		return -1;
	}
	(void)printf("%s\n", secret_use(got.text));
	secret_free(got.text);
	return 0;
}

int cli_key_rotate(char **args, struct err *e)
{
	struct rotate_ask ask = { 0 };
	const struct cli_option all[] = { { "org", &ask.org, NULL }, { "grace", &ask.grace, NULL }, { 0 } };
	if (cli_options(args, all, &ask.id, 1, e) != 0)
		return -1;
	if (ask.org == NULL)
		return err_set(e, ERR_BAD_REQUEST, "Say whose key it is: --org ORG.");
	if (ask.grace != NULL && !str_int(ask.grace, 0, GRACE_MAX_S, &ask.grace_s))
		return err_set(e, ERR_BAD_REQUEST, "--grace takes seconds, at most %d.", GRACE_MAX_S);
	return cli_with_database(rotate_act, &ask, e);
}

struct reseal_ask {
	const struct seal_key *keys;
	bool drop;
};

/* SEC-6. Rows that no key opens are told, and make it fail: they are for people to look at. */
static int reseal_act(struct pg *db, void *arg, struct err *e)
{
	const struct reseal_ask *ask = arg;
	struct reseal_sum sum;
	int dropped = 0;
	if (reseal_all(db, ask->keys, NULL, NULL, &sum, e) != 0)
		return -1;
	(void)printf("Sealed anew: %lld.\n", sum.done);
	if (sum.broken > 0)
		return err_set(e, ERR_CONFLICT,
		    "%lld stored values open with no key of SECRET_KEY_FILE; put the missing key back.",
		    sum.broken);
	if (!ask->drop)
		return 0;
	int rc = reseal_drop(db, ask->keys, &dropped, e);
	(void)printf("Keys removed from the file: %d.\n", dropped);
	return rc;
}

int cli_reseal(char **args, struct err *e)
{
	struct reseal_ask ask = { 0 };
	const struct cli_option all[] = { { "drop", NULL, &ask.drop }, { 0 } };
	if (cli_options(args, all, NULL, 0, e) != 0)
		return -1;
	struct conf *conf = conf_load(NULL, e);
	if (conf == NULL)
		return -1;
	struct seal_key *keys = seal_load(conf_str(conf, "SECRET_KEY_FILE"), e);
	conf_free(conf);
	ask.keys = keys;
	int rc = keys == NULL ? -1 : cli_with_database(reseal_act, &ask, e);
	seal_free(keys);
	return rc;
}
