/*
 * gatehouse.c - the operator's command. Each subcommand is a row below. Standard output holds results only; a failure is one
 * line on standard error and the exit status of its error (base/err.c).
 */
#include <stdio.h>
#include <string.h>

#include "auth/cred.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/str.h"
#include "io/conf.h"
#include "forge/hook.h"
#include "io/http.h"
#include "io/migrate.h"
#include "io/pg.h"

enum { TAKE_MS = 10000, MIGRATE_MS = 600000 };

/* ---- options: "--name value", "--name=value", "--flag", and what is left over. */

struct option {
	const char *name;
	const char **value; /* NULL: a flag */
	bool *flag;
};

static const struct option *option_find(const struct option *all, const char *text, size_t n)
{
	for (; all->name != NULL; all++)
		if (strlen(all->name) == n && strncmp(all->name, text, n) == 0)
			return all;
	return NULL;
}

/* Exactly n_rest arguments that are no options go into rest. */
static int options(char **args, const struct option *all, const char **rest, int n_rest, struct err *e)
{
	int n = 0;
	for (; *args != NULL; args++) {
		if (!str_starts(*args, "--")) {
			if (n == n_rest)
				return err_set(
				    e, ERR_BAD_REQUEST, "`%.60s` is one argument too many.", *args);
			rest[n++] = *args;
			continue;
		}
		size_t len = strcspn(*args + 2, "=");
		const struct option *o = option_find(all, *args + 2, len);
		bool joined = (*args)[2 + len] == '=';
		if (o == NULL)
			return err_set(e, ERR_BAD_REQUEST, "There is no option %.60s here.", *args);
		if (o->value == NULL && joined)
			return err_set(e, ERR_BAD_REQUEST, "The option --%s takes no value.", o->name);
		if (o->value == NULL) {
			*o->flag = true;
			continue;
		}
		if (!joined && args[1] == NULL)
			return err_set(e, ERR_BAD_REQUEST, "The option --%s needs a value.", o->name);
		*o->value = joined ? *args + 2 + len + 1 : *++args;
	}
	return n == n_rest ? 0 : err_set(e, ERR_BAD_REQUEST, "An argument is missing; see `gatehouse help`.");
}

/* ---- subcommands on the database */

static struct pg_pool *database(struct conf **conf, int timeout_ms, struct err *e)
{
	*conf = conf_load(NULL, e);
	if (*conf == NULL)
		return NULL;
	/* What libpq and PostgreSQL said goes to the log: here that is the operator's terminal. */
	log_setup("gatehouse", LOG_WARN_, LOG_LOGFMT);
	return pg_pool_new(conf_str(*conf, "DATABASE_URL"), 1, timeout_ms);
}

/* Run `act` with a connection. */
static int with_database(int (*act)(struct pg *db, void *arg, struct err *e), void *arg, struct err *e)
{
	struct conf *conf;
	struct pg_pool *pool = database(&conf, (int)TAKE_MS, e);
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

static int cmd_migrate(char **args, struct err *e)
{
	static const struct option none[] = { { 0 } };
	if (options(args, none, NULL, 0, e) != 0)
		return -1;
	struct conf *conf;
	struct pg_pool *pool = database(&conf, MIGRATE_MS, e);
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

static int cmd_org_create(char **args, struct err *e)
{
	struct org_ask ask = { 0 };
	const struct option all[] = { { "if-absent", NULL, &ask.if_absent }, { 0 } };
	return options(args, all, &ask.slug, 1, e) != 0 ? -1 : with_database(org_act, &ask, e);
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

static int cmd_key_create(char **args, struct err *e)
{
	struct cred_new want = { .kind = CRED_KEY };
	const struct option all[] = {
		{ "org", &want.org, NULL },
		{ "user", &want.user, NULL },
		{ "name", &want.name, NULL },
		{ "scopes", &want.scopes, NULL },
		{ "expires", &want.expires_at, NULL },
		{ "admin", NULL, &want.org_admin },
		{ 0 },
	};
	if (options(args, all, NULL, 0, e) != 0)
		return -1;
	if (want.org == NULL || want.user == NULL)
		return err_set(e, ERR_BAD_REQUEST, "Say whose key it is: --org ORG --user USER.");
	if (want.name == NULL)
		want.name = want.user;
	return with_database(key_act, &want, e);
}

struct revoke_ask {
	const char *org, *id;
};

static int revoke_act(struct pg *db, void *arg, struct err *e)
{
	const struct revoke_ask *ask = arg;
	return cred_revoke(db, ask->org, CRED_KEY, ask->id, e);
}

static int cmd_key_revoke(char **args, struct err *e)
{
	struct revoke_ask ask = { 0 };
	const struct option all[] = { { "org", &ask.org, NULL }, { 0 } };
	if (options(args, all, &ask.id, 1, e) != 0)
		return -1;
	if (ask.org == NULL)
		return err_set(e, ERR_BAD_REQUEST, "Say whose key it is: --org ORG.");
	return with_database(revoke_act, &ask, e);
}

/* ---- the table */

static int cmd_help(char **args, struct err *e);

static const struct command {
	const char *first, *second; /* second NULL: one word */
	int (*run)(char **args, struct err *e);
	const char *usage, *doc;
} commands[] = {
	{ "migrate", NULL, cmd_migrate, "", "bring the database's schema up to date" },
	{ "org", "create", cmd_org_create, "SLUG [--if-absent]", "make an organisation" },
	{ "key", "create", cmd_key_create,
	    "--org ORG --user USER [--name NAME] [--admin] [--scopes \"coding git\"] [--expires TIME]",
	    "make a key; it is printed once and stored as a hash only" },
	{ "key", "revoke", cmd_key_revoke, "KEY_ID --org ORG", "end a key; it stops working at once" },
	{ "help", NULL, cmd_help, "", "this list" },
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int cmd_help(char **args, struct err *e)
{
	(void)args, (void)e;
	for (size_t i = 0; i < N_COMMANDS; i++) {
		const struct command *c = &commands[i];
		(void)printf("gatehouse %s%s%s %s\n    %s\n", c->first, c->second != NULL ? " " : "",
		    c->second != NULL ? c->second : "", c->usage, c->doc);
	}
	return 0;
}

static int dispatch(char **args, struct err *e)
{
	const char *first = args[0] == NULL ? "help" : args[0];
	if (str_one_of(first, (const char *const[]){ "--help", "-h", NULL }))
		first = "help";
	for (size_t i = 0; i < N_COMMANDS; i++) {
		const struct command *c = &commands[i];
		if (strcmp(first, c->first) != 0)
			continue;
		if (c->second == NULL)
			return c->run(args[0] == NULL ? args : args + 1, e);
		if (args[1] != NULL && strcmp(args[1], c->second) == 0)
			return c->run(args + 2, e);
	}
	return err_set(e, ERR_BAD_REQUEST, "There is no such command; see `gatehouse help`.");
}

int main(int argc, char **argv)
{
	/* Started by git for every push (forge/hook): nothing is set up that it does not need. */
	if (argc > 2 && strcmp(argv[1], "hook") == 0)
		return hook_main(argc - 2, argv + 2);
	struct err e = { 0 };
	http_setup();
	int rc = dispatch(argv + 1, &e);
	if (rc >= 0 && fflush(stdout) != 0)
		rc = err_set(&e, ERR_INTERNAL, "Standard output cannot be written.");
	if (rc < 0)
		(void)fprintf(stderr, "gatehouse: %s\n", e.msg);
	return rc >= 0 ? rc : err_exit(e.code);
}
