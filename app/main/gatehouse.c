/*
 * gatehouse.c - the operator's command. Each subcommand is a row below and a function of a cli_*.c beside this file. Standard
 * output holds results only; a failure is one line on standard error and the exit status of its error (base/err.c).
 */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "cli.h"
#include "forge/hook.h"
#include "io/http.h"

/* ---- the table */

static int cmd_help(char **args, struct err *e);

static const struct command {
	const char *first, *second; /* second NULL: one word */
	int (*run)(char **args, struct err *e);
	const char *usage, *doc;
} commands[] = {
	{ "migrate", NULL, cli_migrate, "", "bring the database's schema up to date" },
	{ "org", "create", cli_org_create, "SLUG [--if-absent]", "make an organisation" },
	{ "org", "credit", cli_org_credit,
	    "SLUG AMOUNT (such as 500.00usd) [--subject S] [--test] [--key KEY]",
	    "give an organisation money; with the same KEY once" },
	{ "org", "limit", cli_org_limit,
	    "SLUG [--requests-per-minute N] [--concurrent-runs N] [--tokens-per-minute N] "
	    "[--concurrent-calls N]",
	    "show and set what an organisation may use; 0 is no limit, \"default\" that of the settings" },
	{ "org", "models", cli_org_models, "SLUG [--tier free|paid] [--allow-at-most NAME,...|*]",
	    "show and set an organisation's tier and what models it may use at most" },
	{ "key", "create", cli_key_create,
	    "--org ORG --user USER [--name NAME] [--admin] [--scopes \"coding git\"] [--expires TIME]",
	    "make a key; it is printed once and stored as a hash only" },
	{ "key", "revoke", cli_key_revoke, "KEY_ID --org ORG", "end a key; it stops working at once" },
	{ "key", "limit", cli_key_limit,
	    "KEY_ID --org ORG [--requests-per-minute N] [--tokens-per-minute N] [--concurrent-calls N]",
	    "show and set what the model calls of a key may use; as `org limit`" },
	{ "ledger", "check", cli_ledger_check, "",
	    "prove the books: every transaction balances, every balance is the sum of its entries, nothing "
	    "is "
	    "reserved for ever" },
	{ "key", "rotate", cli_key_rotate, "KEY_ID --org ORG [--grace SECONDS]",
	    "give a key a new secret, printed once; the one before works for SECONDS more" },
	{ "reseal", NULL, cli_reseal, "[--drop]",
	    "seal every stored credential with the newest key of SECRET_KEY_FILE; --drop then removes the "
	    "others" },
	{ "doctor", NULL, cli_doctor, "[--json]",
	    "look at everything this host needs, sandboxes from inside; a line each, and what to do about "
	    "it" },
	{ "volumes", NULL, cli_volumes, "[--unused-for 30d] [--purge]",
	    "list the projects' volumes that no sandbox has and nobody has leased for so long; --purge "
	    "deletes "
	    "them" },
	{ "call", NULL, cli_call, "[OP [field=value ...]] [--render | --raw] [--async] [--help]",
	    "run any op at $GATEHOUSE_URL with $GATEHOUSE_KEY (or $GATEHOUSE_ENV_FILE); alone it lists "
	    "them" },
	{ "egress", "explain", cli_egress_explain,
	    "[--allow P,...] [--mode MODE] [--resolve ADDR,...] [--form connect|http|socks] [--inward P,...] "
	    "[--nat64] [--observe] HOST[:PORT] | --address ADDR | --client-hello HOST:PORT",
	    "what the boundary says to a host whose name has the addresses of --resolve, to an address, or "
	    "to "
	    "the ClientHello on standard input; nothing is looked up" },
	{ "help", NULL, cmd_help, "", "this list" },
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int usage(const struct command *c)
{
	(void)printf("gatehouse %s%s%s %s\n    %s\n", c->first, c->second != NULL ? " " : "",
	    c->second != NULL ? c->second : "", c->usage, c->doc);
	return 0;
}

static int cmd_help(char **args, struct err *e)
{
	(void)args, (void)e;
	for (size_t i = 0; i < N_COMMANDS; i++)
		(void)usage(&commands[i]);
	return 0;
}

/* `call` has a help of its own, for each op. */
static int run(const struct command *c, char **args, struct err *e)
{
	bool help = args[0] != NULL && strcmp(args[0], "--help") == 0 && c->run != cli_call;
	return help ? usage(c) : c->run(args, e);
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
			return run(c, args[0] == NULL ? args : args + 1, e);
		if (args[1] != NULL && strcmp(args[1], c->second) == 0)
			return run(c, args + 2, e);
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
	for (int i = 1; rc < 0 && i < e.n_details; i++) /* the first is e.msg */
		(void)fprintf(stderr, "gatehouse: %s\n", e.details[i].msg);
	return rc >= 0 ? rc : err_exit(e.code);
}
