#include <string.h>

#include "base/str.h"
#include "op/cli.h"

static const struct cli_option *option_find(const struct cli_option *all, const char *text, size_t n)
{
	for (; all->name != NULL; all++)
		if (strlen(all->name) == n && strncmp(all->name, text, n) == 0)
			return all;
	return NULL;
}

/* Exactly n_rest arguments that are no options go into rest. */
int cli_options(char **args, const struct cli_option *all, const char **rest, int n_rest, struct err *e)
{
	int n = 0;
	bool only_rest = false; /* after "--" */
	for (; *args != NULL; args++) {
		if (!only_rest && strcmp(*args, "--") == 0) {
			only_rest = true;
			continue;
		}
		if (only_rest || !str_starts(*args, "--")) {
			if (n == n_rest)
				return err_set(
				    e, ERR_BAD_REQUEST, "`%.60s` is one argument too many.", *args);
			rest[n++] = *args;
			continue;
		}
		size_t len = strcspn(*args + 2, "=");
		const struct cli_option *o = option_find(all, *args + 2, len);
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
