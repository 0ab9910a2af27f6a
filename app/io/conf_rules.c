#include "io/conf_rules.h"

#include <string.h>

#include "base/host.h"
#include "base/js.h"
#include "base/str.h"
#include "io/conf.h"

#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define DIGITS "0123456789"
#define UPPER  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

const char *rule_no_password(const char *v)
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

const char *rule_origin(const char *v)
{
	static const char what[] = "an origin such as https://gatehouse.example.org, without a path";
	size_t skip = str_starts(v, "https://") ? 8 : str_starts(v, "http://") ? 7 : 0;
	return skip > 0 && str_only(v + skip, LOWER UPPER DIGITS ".-:[]") ? NULL : what;
}

const char *conf_oidc_url(const char *v)
{
	static const char what[] =
	    "an https URL without query and fragment (http only for 127.0.0.1 and localhost)";
	static const char plain[] = LOWER UPPER DIGITS "/.-_~:[]%@!$&'()*+,;=";
	static const char *const schemes[] = { "https://", "http://127.0.0.1", "http://localhost", NULL };
	if (v[0] == 0 || !str_only(v, plain) || strchr(v, '@') != NULL)
		return what;
	for (const char *const *s = schemes; *s != NULL; s++) {
		const char *rest = str_starts(v, *s) ? v + strlen(*s) : NULL;
		if (rest != NULL &&
		    (s == schemes ? rest[0] != 0 && rest[0] != '/'
				  : rest[0] == 0 || strchr(":/", rest[0]) != NULL))
			return NULL;
	}
	return what;
}

const char *rule_http_url(const char *v)
{
	size_t skip = str_starts(v, "https://") ? 8 : str_starts(v, "http://") ? 7 : 0;
	return skip > 0 && str_only(v + skip, LOWER UPPER DIGITS "/.-_~:[]%!$&'()*+,;=") && v[skip] != '/'
	    ? NULL
	    : "an http or https URL without user, query and fragment";
}

const char *rule_slug(const char *v)
{
	bool ok = str_only(v, LOWER DIGITS "-") && v[0] != '-' && strlen(v) <= 32;
	return ok ? NULL : "up to 32 lower-case letters, digits and '-', not beginning with '-'";
}

const char *rule_host_name(const char *v)
{
	bool ok = str_only(v, LOWER UPPER DIGITS ".-_") && strlen(v) <= 63;
	return ok ? NULL : "up to 63 letters, digits, '.', '-' and '_'";
}

const char *rule_group_name(const char *v)
{
	return str_only(v, LOWER UPPER DIGITS "-_") && strlen(v) <= 32 ? NULL : "the name of a group";
}

const char *rule_unix_address(const char *v)
{
	bool ok = str_starts(v, "unix:/") && strlen(v) <= 5 + 107;
	return ok ? NULL : "unix: and an absolute path of at most 107 bytes";
}

const char *rule_runtime_names(const char *v)
{
	return str_only(v, LOWER DIGITS "- ")
	    ? NULL
	    : "names of isolation boundaries, separated by spaces, such as gvisor";
}

const char *rule_host_list(const char *v)
{
	return str_only(v, LOWER UPPER DIGITS ".-_:[] ")
	    ? NULL
	    : "host names, with :port for one port only, separated by spaces";
}

const char *rule_address_list(const char *v)
{
	struct str rest = str_of(v), item;
	struct ip ip;
	uint16_t port;
	while (str_cut(&rest, ',', &item)) {
		item = str_trim(item);
		if (item.n > 0 && !host_socket(item, &ip, &port))
			return "IP addresses, each alone or with :port (1 to 65535; IPv6 in brackets then), "
			       "separated by commas";
	}
	return NULL;
}

const char *rule_resolver(const char *v)
{
	bool ok = v[0] == '/' || str_starts(v, "https://") || str_starts(v, "http://");
	return ok ? NULL : "a URL, or the absolute path of a program";
}

const char *rule_port_list(const char *v)
{
	return str_only(v, DIGITS " ") ? NULL : "port numbers, separated by spaces";
}

const char *rule_mount_roots(const char *v)
{
	struct str rest = str_of(v), one, org;
	while (str_cut(&rest, ' ', &one))
		if (!str_cut(&one, '=', &org) || org.n == 0 || one.n < 2 || one.p[0] != '/' ||
		    one.p[one.n - 1] == '/' || memmem(one.p, one.n, "/.", 2) != NULL ||
		    memmem(one.p, one.n, "//", 2) != NULL)
			return "organisation=/directory, with plain absolute paths other than /, separated "
			       "by spaces";
	return NULL;
}

const char *rule_tool_rows(const char *v)
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
