#include <stddef.h>

#include "io/conf.h"
#include "io/conf_keys.h"

enum { LIMIT_MAX = 1000000000 };

static const char *const modes[] = { "open", "warn", "closed", NULL };

const struct conf_key conf_keys_money[] = {
	{ .section = "Money",
	    .name = "BILLING_MODE",
	    .def = "closed",
	    .type = CONF_ENUM,
	    .values = modes,
	    .reload = true,
	    .doc = "What happens to model calls and coding runs of an organisation without balance: `closed` "
		   "refuses them, `warn` lets them pass and logs it, `open` does not look. What is used is "
		   "charged in any case; `gatehouse org credit` gives an organisation money." },
	{ .name = "BILLING_REAP_S",
	    .def = "30",
	    .type = CONF_INT,
	    .min = 5,
	    .max = 3600,
	    .doc = "How long a process of the API may show no sign of life until its open model calls are "
		   "settled by what is known of them." },
	{ .name = "BILLING_REPORT_URL",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = conf_oidc_url,
	    .doc = "Where usage is reported to, by POST, in batches that are kept until they are "
		   "acknowledged. Empty: nowhere." },
	{ .name = "BILLING_REPORT_KEY_FILE",
	    .def = "",
	    .type = CONF_PATH,
	    .doc = "The key that is sent there as a bearer token: a file that only the service can read." },
	{ .name = "BILLING_REPORT_CA_FILE",
	    .def = "",
	    .type = CONF_PATH,
	    .doc = "Certificates that BILLING_REPORT_URL is checked against. Empty: those of the system." },
	{ .name = "BILLING_REPORT_EVERY_S",
	    .def = "5",
	    .type = CONF_INT,
	    .min = 1,
	    .max = 3600,
	    .doc = "Longest time that usage waits to be reported; 50 rows do not wait." },
	{ .name = "BILLING_BALANCE_URL",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = conf_oidc_url,
	    .doc =
		"The service that holds the balances, where this database does not: it is asked with `org`, "
		"`subject`, `currency` and `test` in the query and repeats them beside "
		"`availableMillicents`. Its answer counts for a minute at most, less what was used "
		"meanwhile. Needs BILLING_REPORT_URL; credit is given there. Empty: the database holds "
		"them." },
	{ .name = "BILLING_BALANCE_KEY_FILE",
	    .def = "",
	    .type = CONF_PATH,
	    .doc = "The key that is sent there as a bearer token: a file that only the service can read." },
	{ .name = "BILLING_BALANCE_CA_FILE",
	    .def = "",
	    .type = CONF_PATH,
	    .doc = "Certificates that BILLING_BALANCE_URL is checked against. Empty: those of the system." },
	{ .name = "ORG_TOKENS_PER_MINUTE",
	    .def = "0",
	    .type = CONF_INT,
	    .min = 0,
	    .max = LIMIT_MAX,
	    .reload = true,
	    .doc = "Tokens that the model calls of one organisation may use in a minute, on all hosts "
		   "together; more are answered 429. 0 for no limit. `gatehouse org limit` sets another one "
		   "for one organisation." },
	{ .name = "ORG_CONCURRENT_CALLS",
	    .def = "0",
	    .type = CONF_INT,
	    .min = 0,
	    .max = LIMIT_MAX,
	    .reload = true,
	    .doc = "Model calls of one organisation at the same time; likewise." },
	{ .name = "KEY_REQUESTS_PER_MINUTE",
	    .def = "0",
	    .type = CONF_INT,
	    .min = 0,
	    .max = LIMIT_MAX,
	    .reload = true,
	    .doc = "Model calls with one key in a minute, beside the limits of its organisation. 0 for no "
		   "limit; `gatehouse key limit` sets another one for one key." },
	{ .name = "KEY_TOKENS_PER_MINUTE",
	    .def = "0",
	    .type = CONF_INT,
	    .min = 0,
	    .max = LIMIT_MAX,
	    .reload = true,
	    .doc = "Tokens of the model calls with one key in a minute; likewise." },
	{ .name = "KEY_CONCURRENT_CALLS",
	    .def = "0",
	    .type = CONF_INT,
	    .min = 0,
	    .max = LIMIT_MAX,
	    .reload = true,
	    .doc = "Model calls with one key at the same time; likewise." },
	{ .name = NULL },
};
