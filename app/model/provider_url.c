#include <stdio.h>
#include <string.h>

#include "base/host.h"
#include "base/str.h"
#include "io/reach.h"
#include "model/provider.h"

enum { INWARD_MAX = 64 };

struct where {
	struct host host;
	uint16_t port;
	bool clear; /* plain http */
};

static int bad(struct err *e, const char *why)
{
	return err_field(e, ERR_BAD_REQUEST, "baseUrl",
	    "`baseUrl` %s; it is what stands before /chat/completions, such as https://api.example.com/v1.",
	    why);
}

/* What is repeated to nobody: a URL may hold a secret where it should not. */
static int where_of(const char *url, struct where *w, struct err *e)
{
	*w = (struct where){ .clear = str_starts(url, "http://") };
	size_t n = strlen(url);
	if (n > PROVIDER_URL_BYTES)
		return bad(e, "is too long");
	if (!w->clear && !str_starts(url, "https://"))
		return bad(e, "begins with https://");
	for (const char *p = url; *p != 0; p++)
		if (*p <= ' ' || *p > '~' || strchr("\"<>\\^`{|}@?#", *p) != NULL)
			return bad(e, "has neither user nor query nor fragment, and only visible ASCII");
	struct str rest = str_of(url + (w->clear ? 7 : 8)), authority, name, port;
	bool has_port;
	if (url[n - 1] == '/' || !str_cut(&rest, '/', &authority) ||
	    !host_split(authority, &name, &port, &has_port) || !host_canon(name, HOST_IN_AUTHORITY, &w->host))
		return bad(e, "names a host and does not end with a slash");
	if (strstr(rest.p, "//") != NULL || strstr(rest.p, "/.") != NULL ||
	    (rest.n > 0 && (rest.p[0] == '.' || rest.p[0] == '/')))
		return bad(e, "has no empty or dot segments");
	w->port = w->clear ? 80 : 443;
	return !has_port || host_port(port, &w->port) ? 0 : bad(e, "has a port of 1 to 65535 or none");
}

bool provider_url_same(const char *a, const char *b)
{
	struct err e = { 0 };
	struct where x, y;
	return where_of(a, &x, &e) == 0 && where_of(b, &y, &e) == 0 && x.clear == y.clear &&
	    x.port == y.port && host_equal(&x.host, &y.host);
}

static bool inward(const struct conf *conf, const struct where *w)
{
	struct str rest = str_of(conf_str(conf, "MODEL_INWARD_HOSTS")), word;
	bool is = false;
	for (int i = 0; i < INWARD_MAX && !is && str_cut(&rest, ' ', &word); i++) {
		struct host_pattern p;
		const char *why;
		if (word.n == 0 || !host_pattern_parse(word, &p, &why))
			continue;
		enum host_match m = host_pattern_match(&p, &w->host, w->port);
		is = m == HOST_EXACT || m == HOST_SUFFIX;
		host_pattern_free(&p);
	}
	return is;
}

/* A host that anybody may read in the operator's list; nothing of the path. */
static int inward_only(const struct where *w, const char *how, struct err *e)
{
	bool v6 = w->host.literal && strchr(w->host.name, ':') != NULL;
	return err_field(e, ERR_BAD_REQUEST, "baseUrl",
	    "`baseUrl` leads %s only where an operator lists the host: add %s%.200s%s:%u to "
	    "MODEL_INWARD_HOSTS.",
	    how, v6 ? "[" : "", w->host.name, v6 ? "]" : "", (unsigned)w->port);
}

int provider_url_ok(const struct conf *conf, const char *url, struct err *e)
{
	struct where w;
	if (where_of(url, &w, e) != 0)
		return -1;
	if (inward(conf, &w))
		return 0;
	if (w.clear)
		return inward_only(&w, "in plain http", e);
	if (w.host.literal && !addr_public(&w.host.ip, conf_bool(conf, "EGRESS_NAT64")))
		return inward_only(&w, "to an address that is not public", e);
	return 0;
}

int provider_url_pin(const struct conf *conf, struct mem *m, const char *url, const char **pin, struct err *e)
{
	struct where w;
	*pin = NULL;
	if (provider_url_ok(conf, url, e) != 0 || where_of(url, &w, e) != 0)
		return -1;
	if (inward(conf, &w))
		return 0;
	return reach_pin(m, w.host.name, w.port, conf_bool(conf, "EGRESS_NAT64"), pin, e);
}
