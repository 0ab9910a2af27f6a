#include <stddef.h>
#include <string.h>

#include "base/js.h"
#include "base/str.h"
#include "io/conf.h"

#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define DIGITS "0123456789"
#define UPPER  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* ---- further rules: NULL when fine, otherwise what is allowed */

static const char *no_password(const char *v)
{
	static const char what[] =
	    "a libpq connection string without a password (use peer authentication or a passfile)";
	const char *scheme = strstr(v, "://");
	const char *at = scheme == NULL ? NULL : strchr(scheme, '@');
	const char *colon = scheme == NULL ? NULL : strchr(scheme + 3, ':');
	if (at != NULL && colon != NULL && colon < at)
		return what;
	return strcasestr(v, "password") != NULL ? what : NULL;
}

static const char *origin(const char *v)
{
	static const char what[] = "an origin such as https://gatehouse.example.org, without a path";
	size_t skip = str_starts(v, "https://") ? 8 : str_starts(v, "http://") ? 7 : 0;
	return skip > 0 && str_only(v + skip, LOWER UPPER DIGITS ".-:[]") ? NULL : what;
}

static const char *slug(const char *v)
{
	bool ok = str_only(v, LOWER DIGITS "-") && v[0] != '-' && strlen(v) <= 32;
	return ok ? NULL : "up to 32 lower-case letters, digits and '-', not beginning with '-'";
}

static const char *host_name(const char *v)
{
	bool ok = str_only(v, LOWER UPPER DIGITS ".-_") && strlen(v) <= 63;
	return ok ? NULL : "up to 63 letters, digits, '.', '-' and '_'";
}

static const char *group_name(const char *v)
{
	return str_only(v, LOWER UPPER DIGITS "-_") && strlen(v) <= 32 ? NULL : "the name of a group";
}

static const char *unix_address(const char *v)
{
	bool ok = str_starts(v, "unix:/") && strlen(v) <= 5 + 107;
	return ok ? NULL : "unix: and an absolute path of at most 107 bytes";
}

static const char *runtime_names(const char *v)
{
	return str_only(v, LOWER DIGITS "- ")
	    ? NULL
	    : "names of isolation boundaries, separated by spaces, such as gvisor";
}

static const char *host_list(const char *v)
{
	return str_only(v, LOWER UPPER DIGITS ".-:[] ")
	    ? NULL
	    : "host names, with :port for one port only, separated by spaces";
}

static const char *tool_rows(const char *v)
{
	static const char what[] =
	    "a JSON object of arrays of strings, such as {\"python\":[\"python3\",\"-c\"]}";
	struct err e = { 0 };
	const char *name;
	json_t *argv;
	auto_json json_t *rows = js_parse(v, strlen(v), &e);
	if (!json_is_object(rows))
		return what;
	json_object_foreach(rows, name, argv) {
		if (!json_is_array(argv) || json_array_size(argv) == 0)
			return what;
		for (size_t i = 0; i < json_array_size(argv); i++)
			if (!json_is_string(json_array_get(argv, i)))
				return what;
	}
	return NULL;
}

/* ---- the table */

enum { SOCKET_PATH_MAX = 107 }; /* sun_path without its NUL */

static const char *const log_levels[] = { "debug", "info", "warn", "error", NULL };
static const char *const log_formats[] = { "logfmt", "json", NULL };
static const char *const oci_runtimes[] = { "crun", "runc", NULL };

const struct conf_key conf_keys[] = {
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
	    .wrong = group_name,
	    .doc = "Group that may connect to the two FastCGI sockets (they are made 0660); nginx has to be "
		   "in it. "
		   "Empty: the group of the process." },
	{ .name = "PUBLIC_URL",
	    .def = "https://localhost",
	    .type = CONF_STR,
	    .wrong = origin,
	    .reload = true,
	    .doc = "How clients reach this deployment; clone URLs and pages begin with it." },
	{ .name = "FORGE_URL",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = origin,
	    .doc = "How the runner reaches the git wire, when it is not PUBLIC_URL." },
	{ .name = "CA_FILE",
	    .def = "",
	    .type = CONF_PATH,
	    .doc = "Certificates that PUBLIC_URL and FORGE_URL are checked against. Empty: those of the "
		   "system." },
	{ .name = "SECRET_KEY_FILE",
	    .def = "/etc/gatehouse/secret.key",
	    .type = CONF_PATH,
	    .doc = "Key that seals stored credentials: 32 bytes or 64 hex digits, readable by the service "
		   "only. Make one with "
		   "`openssl rand -hex 32`." },

	{ .section = "Database",
	    .name = "DATABASE_URL",
	    .def = "host=/run/postgresql dbname=gatehouse",
	    .type = CONF_STR,
	    .secret = true,
	    .wrong = no_password,
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
	    .wrong = tool_rows,
	    .doc = "Other programs for the rows of the tool table: a JSON object from a tool's name to the "
		   "arguments that stand "
		   "before the prompt." },
	{ .name = "ALLOW_HTTP_CLONE_HOSTS",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = host_list,
	    .reload = true,
	    .doc = "Hosts to which a clone credential may travel over cleartext http, separated by spaces. "
		   "Empty: none." },
	{ .name = "ALLOW_PRIVATE_CLONE_HOSTS",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = host_list,
	    .reload = true,
	    .doc = "Hosts that runs may clone from and push to though their addresses are not public ones, "
		   "separated by spaces. Empty: none, "
		   "so that nobody reaches the deployment's own network through a clone URL." },

	{ .section = "This node",
	    .name = "NODE_NAME",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = host_name,
	    .doc = "Name of this host in the node table. Empty: its host name." },
	{ .name = "NODE_ADDRESS",
	    .def = "unix:/run/gatehouse/internal/door.sock",
	    .type = CONF_STR,
	    .wrong = unix_address,
	    .doc =
		"How the API and the runner reach this node's sandboxd, through nginx's internal server." },
	{ .name = "INSTANCE",
	    .def = "gatehouse",
	    .type = CONF_STR,
	    .wrong = slug,
	    .doc = "Name of this deployment. Two deployments on one host need two: neither touches the "
		   "other's sandboxes." },
	{ .name = "NODE_CAPACITY",
	    .def = "16",
	    .type = CONF_INT,
	    .min = 0,
	    .max = 10000,
	    .reload = true,
	    .doc =
		"Sandboxes this node holds at the same time; 0 offers none and lets the present ones end." },

	{ .section = "Sandboxes",
	    .name = "SANDBOX_OCI_RUNTIME",
	    .def = "",
	    .type = CONF_ENUM,
	    .values = oci_runtimes,
	    .doc = "Program behind the host's default boundary. Empty: the first of them that works here." },
	{ .name = "SANDBOX_RUNTIMES",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = runtime_names,
	    .doc = "Boundaries to try at start and offer if they work, separated by spaces, such as gvisor. "
		   "Empty: all that are known." },
	{ .name = "SANDBOX_RUNTIME_CLASS",
	    .def = "",
	    .type = CONF_STR,
	    .max = 64,
	    .doc = "Boundary preferred where a caller names none: runc, gvisor, kata-clh, kata-fc. With "
		   "another name nothing is "
		   "leased, and every lease says why. Empty: the host's default." },
	{ .name = "SANDBOX_DIR",
	    .def = "/var/lib/gatehouse/sandboxes",
	    .type = CONF_PATH,
	    .doc = "Directory of sandboxd for bundles and scratch space, owned by root." },
	{ .name = "SANDBOX_SOCKET_DIR",
	    .def = "",
	    .type = CONF_PATH,
	    .max = SOCKET_PATH_MAX,
	    .doc = "Directory of the sandboxes' channels, at most 60 bytes. Empty: /run/gatehouse, "
		   "$XDG_RUNTIME_DIR or the "
		   "temporary directory, the first that is writable." },
	{ .name = "SANDBOX_UID_BASE",
	    .def = "1900000000",
	    .type = CONF_INT,
	    .min = 65536,
	    .max = 4000000000,
	    .doc = "First of the host's user ids that sandboxes run as; nobody else may use the range." },
	{ .name = "SANDBOX_UID_COUNT",
	    .def = "67108864",
	    .type = CONF_INT,
	    .min = 131072,
	    .max = 2000000000,
	    .doc = "How many user ids there are in the range; a sandbox takes 65536 while it lives." },
	{ .name = "SANDBOX_START_TIMEOUT_S",
	    .def = "90",
	    .type = CONF_INT,
	    .min = 1,
	    .max = 600,
	    .reload = true,
	    .doc = "How long a new sandbox may take to answer before it is removed." },
	{ .name = "SANDBOX_IDLE_S",
	    .def = "300",
	    .type = CONF_INT,
	    .min = 0,
	    .max = 86400,
	    .reload = true,
	    .doc = "A sandbox without a channel and without a command ends itself after this time; 0 for "
		   "never." },
	{ .name = "SANDBOX_MAX_TTL_S",
	    .def = "86400",
	    .type = CONF_INT,
	    .min = 900,
	    .max = 2592000,
	    .reload = true,
	    .doc = "Longest lease that a caller may ask for." },
	{ .name = "SANDBOX_MEMORY_MB",
	    .def = "2048",
	    .type = CONF_INT,
	    .min = 64,
	    .max = 1048576,
	    .reload = true,
	    .doc = "Memory of a sandbox in MiB when its lease states none." },
	{ .name = "SANDBOX_MAX_MEMORY_MB",
	    .def = "8192",
	    .type = CONF_INT,
	    .min = 64,
	    .max = 1048576,
	    .reload = true,
	    .doc = "Most memory a lease may ask for, in MiB." },
	{ .name = "SANDBOX_CPUS",
	    .def = "2",
	    .type = CONF_INT,
	    .min = 1,
	    .max = 1024,
	    .reload = true,
	    .doc = "Processors of a sandbox when its lease states none." },
	{ .name = "SANDBOX_MAX_CPUS",
	    .def = "8",
	    .type = CONF_INT,
	    .min = 1,
	    .max = 1024,
	    .reload = true,
	    .doc = "Most processors a lease may ask for." },
	{ .name = "SANDBOX_PIDS",
	    .def = "512",
	    .type = CONF_INT,
	    .min = 16,
	    .max = 1000000,
	    .reload = true,
	    .doc = "Processes of a sandbox when its lease states none." },
	{ .name = "SANDBOX_MAX_PIDS",
	    .def = "4096",
	    .type = CONF_INT,
	    .min = 16,
	    .max = 1000000,
	    .reload = true,
	    .doc = "Most processes a lease may ask for." },
	{ .name = "SANDBOX_DISK_MB",
	    .def = "1536",
	    .type = CONF_INT,
	    .min = 16,
	    .max = 1048576,
	    .reload = true,
	    .doc = "Scratch space of a sandbox in MiB when its lease states none. It counts as memory and is "
		   "at most three "
		   "quarters of it." },
	{ .name = "SANDBOX_MAX_DISK_MB",
	    .def = "6144",
	    .type = CONF_INT,
	    .min = 16,
	    .max = 1048576,
	    .reload = true,
	    .doc = "Most scratch space a lease may ask for, in MiB." },
	{ .name = "BOX_BINARY",
	    .def = "/usr/lib/gatehouse/gatehouse-box",
	    .type = CONF_PATH,
	    .doc = "The program that is process 1 of every sandbox; statically linked." },
	{ .name = NULL },
};
