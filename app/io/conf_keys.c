#include <stddef.h>

#include "io/conf.h"
#include "io/conf_keys.h"
#include "io/conf_rules.h"

static const char *const log_levels[] = { "debug", "info", "warn", "error", NULL };
static const char *const log_formats[] = { "logfmt", "json", NULL };

const struct conf_key conf_keys_service[] = {
	{ .section = "Where things are",
	    .name = "API_SOCKET",
	    .def = "/run/gatehouse/api.sock",
	    .type = CONF_PATH,
	    .max = SOCKET_PATH_MAX,
	    .doc =
		"FastCGI socket of gatehouse-api. Whoever can write to it is trusted: only nginx should." },
	{ .name = "SANDBOXD_SOCKET",
	    .def = "/run/gatehouse/sandboxd.sock",
	    .type = CONF_PATH,
	    .max = SOCKET_PATH_MAX,
	    .doc = "FastCGI socket of gatehouse-sandboxd, behind nginx's internal server only." },
	{ .name = "INTERNAL_SOCKET",
	    .def = "/run/gatehouse/internal/door.sock",
	    .type = CONF_PATH,
	    .max = SOCKET_PATH_MAX,
	    .doc = "nginx's internal server on this host: the runner asks the API there whether a branch has "
		   "arrived." },
	{ .name = "SOCKET_GROUP",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = rule_group_name,
	    .doc = "Group that may connect to the two FastCGI sockets (they are made 0660); nginx has to be "
		   "in it. "
		   "Empty: the group of the process." },
	{ .name = "PUBLIC_URL",
	    .def = "https://localhost",
	    .type = CONF_STR,
	    .wrong = rule_origin,
	    .reload = true,
	    .doc = "How clients reach this deployment; clone URLs and pages begin with it." },
	{ .name = "FORGE_URL",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = rule_origin,
	    .doc = "How the runner reaches the git wire, when it is not PUBLIC_URL." },
	{ .name = "CA_FILE",
	    .def = "",
	    .type = CONF_PATH,
	    .doc = "Certificates that PUBLIC_URL and FORGE_URL are checked against. Empty: those of the "
		   "system." },
	{ .name = "SECRET_KEY_FILE",
	    .def = "/etc/gatehouse/secret.key",
	    .type = CONF_PATH,
	    .doc =
		"Keys that seal stored credentials, readable by the service only: 32 bytes, or lines of 64 "
		"hex digits of which the last one seals and all open. Make one with `openssl rand -hex 32`; "
		"a line more and `gatehouse reseal` rotate it." },

	{ .section = "Database",
	    .name = "DATABASE_URL",
	    .def = "host=/run/postgresql dbname=gatehouse",
	    .type = CONF_STR,
	    .secret = true,
	    .wrong = rule_no_password,
	    .doc = "libpq connection string. It holds no password: use peer authentication over the unix "
		   "socket, or a passfile." },
	{ .name = "DATABASE_POOL",
	    .def = "20",
	    .type = CONF_INT,
	    .min = 1,
	    .max = 500,
	    .doc = "Most connections of one process, beside the one that listens." },
	{ .name = "DATABASE_TIMEOUT_MS",
	    .def = "10000",
	    .type = CONF_INT,
	    .min = 100,
	    .max = 600000,
	    .doc = "Longest time of one statement; slower is answered 503." },

	{ .section = "Signing in with an identity provider (OpenID Connect)",
	    .name = "OIDC_ISSUER",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = conf_oidc_url,
	    .doc = "Whose signed tokens (JWT, RS256 or ES256) are accepted as credentials: exactly their "
		   "`iss`. Empty: nobody's. Its keys are found by discovery, below this URL." },
	{ .name = "OIDC_AUDIENCE",
	    .def = "",
	    .type = CONF_STR,
	    .doc = "What a token's `aud` must be or hold; needed with OIDC_ISSUER." },
	{ .name = "OIDC_JWKS_URL",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = conf_oidc_url,
	    .doc = "The issuer's key set, where discovery is not wanted." },
	{ .name = "OIDC_CA_FILE",
	    .def = "",
	    .type = CONF_PATH,
	    .doc = "Certificates that the issuer is checked against. Empty: those of the system." },
	{ .name = "OIDC_ORG_CLAIM",
	    .def = "org",
	    .filled = true,
	    .type = CONF_STR,
	    .doc = "The claim that names the org; an org that does not exist is not made." },
	{ .name = "OIDC_USER_CLAIM",
	    .def = "sub",
	    .filled = true,
	    .type = CONF_STR,
	    .doc = "The claim that names the user: never changing, and nobody else's." },
	{ .name = "OIDC_GROUPS_CLAIM",
	    .def = "groups",
	    .filled = true,
	    .type = CONF_STR,
	    .doc = "The claim that lists a user's groups." },
	{ .name = "OIDC_ADMIN_GROUP",
	    .def = "",
	    .type = CONF_STR,
	    .doc = "Who is in this group may administer the org that the token names. Empty: nobody by a "
		   "token." },
	{ .name = "OIDC_SUPER_ADMIN",
	    .def = "no",
	    .type = CONF_BOOL,
	    .doc = "May a token name the reserved org `admin`, whose admins operate this service? No: it is "
		   "refused." },
	{ .name = "OIDC_KEYS_REFRESH_S",
	    .def = "300",
	    .type = CONF_INT,
	    .min = 1,
	    .max = 86400,
	    .doc =
		"How often the issuer's keys are fetched; one that it has withdrawn may count for so long." },
	{ .name = "OIDC_KEYS_STALE_S",
	    .def = "3600",
	    .type = CONF_INT,
	    .min = 1,
	    .max = 604800,
	    .doc = "How much longer the keys count when they cannot be fetched." },

	{ .section = "Logs",
	    .name = "LOG_LEVEL",
	    .def = "info",
	    .type = CONF_ENUM,
	    .values = log_levels,
	    .reload = true,
	    .doc = "Least level that is written to standard error." },
	{ .name = "LOG_FORMAT",
	    .def = "logfmt",
	    .type = CONF_ENUM,
	    .values = log_formats,
	    .reload = true,
	    .doc = "Form of a line of the log." },

	{ .section = "API",
	    .name = "API_WORKERS",
	    .def = "16",
	    .type = CONF_INT,
	    .min = 1,
	    .max = 256,
	    .doc = "Requests served at the same time, streams not counted." },
	{ .name = "API_QUEUE",
	    .def = "256",
	    .type = CONF_INT,
	    .min = 1,
	    .max = 65536,
	    .doc = "Requests that may wait for a worker; more are answered 503 at once." },
	{ .name = "API_MAX_STREAMS",
	    .def = "2000",
	    .type = CONF_INT,
	    .min = 1,
	    .max = 20000,
	    .doc = "Streams open at the same time; more are answered 503." },
	{ .name = "FORGE_ROOT",
	    .def = "/var/lib/gatehouse/forge",
	    .type = CONF_PATH,
	    .doc = "Directory of the repositories, on the one host that serves git." },
	{ .name = "FORGE_MAX_TRANSFERS",
	    .def = "32",
	    .type = CONF_INT,
	    .min = 1,
	    .max = 10000,
	    .reload = true,
	    .doc = "Clones, fetches and pushes at the same time; more are answered 503." },
	{ .name = "FORGE_MAX_PUSH_MIB",
	    .def = "4096",
	    .type = CONF_INT,
	    .min = 0,
	    .max = 1048576,
	    .reload = true,
	    .doc = "Largest pack that one push may bring; 0 for no limit." },

	{ .section = "Limits of an organisation",
	    .name = "ORG_REQUESTS_PER_MINUTE",
	    .def = "0",
	    .type = CONF_INT,
	    .min = 0,
	    .max = 1000000000,
	    .reload = true,
	    .doc = "Requests that one organisation may send in a minute, on all hosts together; more are "
		   "answered "
		   "429. 0 for no limit. `gatehouse org limit` sets another one for one organisation." },
	{ .name = "ORG_CONCURRENT_RUNS",
	    .def = "0",
	    .type = CONF_INT,
	    .min = 0,
	    .max = 1000000000,
	    .reload = true,
	    .doc = "Coding runs that one organisation may have queued or at work at the same time; more are "
		   "answered 429. 0 for no limit; `gatehouse org limit` as above." },

	{ .section = "Coding runs",
	    .name = "RUNNER_JOBS",
	    .def = "4",
	    .type = CONF_INT,
	    .min = 1,
	    .max = 256,
	    .doc = "Runs that one gatehouse-runner executes at the same time." },
	{ .name = "RUNNER_DIR",
	    .def = "/var/lib/gatehouse/runner",
	    .type = CONF_PATH,
	    .doc = "Scratch directory for the clones of this host's runners. What runners that are gone left "
		   "there "
		   "is removed when one starts." },
	{ .name = "JOB_LEASE_S",
	    .def = "30",
	    .type = CONF_INT,
	    .min = 3,
	    .max = 3600,
	    .doc =
		"How long a runner that is not heard of keeps its run; it renews three times in that time." },
	{ .name = "CODING_TOOLS",
	    .def = "",
	    .type = CONF_STR,
	    .max = 16384,
	    .wrong = rule_tool_rows,
	    .doc = "Other programs for the rows of the tool table: a JSON object from a tool's name to the "
		   "arguments that stand "
		   "before the prompt." },
	{ .name = "ALLOW_HTTP_CLONE_HOSTS",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = rule_host_list,
	    .reload = true,
	    .doc = "Hosts to which a clone credential may travel over cleartext http, separated by spaces. "
		   "Empty: none." },
	{ .name = "ALLOW_PRIVATE_CLONE_HOSTS",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = rule_host_list,
	    .reload = true,
	    .doc = "Hosts that runs may clone from and push to though their addresses are not public ones, "
		   "separated by spaces. Empty: none, "
		   "so that nobody reaches the deployment's own network through a clone URL." },
	{ .name = NULL },
};

/* In the order of the example. */
static const struct conf_key *const tables[] = { conf_keys_service, conf_keys_sandbox, conf_keys_egress,
	conf_keys_model, conf_keys_trace, conf_keys_money };

const struct conf_key *conf_key_at(size_t i)
{
	for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
		for (const struct conf_key *k = tables[t]; k->name != NULL; k++)
			if (i-- == 0)
				return k;
	return NULL;
}
