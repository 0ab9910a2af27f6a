/* cli.h - the subcommands of `gatehouse`, one function each (cli_*.c). Each takes what follows its name and returns the exit
 * status, or -1 with e. */
#pragma once

#include "base/err.h"
#include "io/conf.h"
#include "io/pg.h"

/* The configuration, and a pool of one connection to its database; what PostgreSQL says goes to standard error. */
struct pg_pool *cli_database(struct conf **conf, int timeout_ms, struct err *e);
/* Run `act` with a connection. */
int cli_with_database(int (*act)(struct pg *db, void *arg, struct err *e), void *arg, struct err *e);

int cli_migrate(char **args, struct err *e);
int cli_org_create(char **args, struct err *e);
int cli_org_limit(char **args, struct err *e);
int cli_org_models(char **args, struct err *e);
int cli_org_credit(char **args, struct err *e);
int cli_ledger_check(char **args, struct err *e);
int cli_key_limit(char **args, struct err *e);
int cli_key_create(char **args, struct err *e);
int cli_key_revoke(char **args, struct err *e);
int cli_key_rotate(char **args, struct err *e);
int cli_reseal(char **args, struct err *e);
int cli_doctor(char **args, struct err *e);
int cli_volumes(char **args, struct err *e);
int cli_call(char **args, struct err *e);
int cli_egress_explain(char **args, struct err *e);
