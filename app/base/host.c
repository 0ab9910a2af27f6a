#include "base/host.h"

#include <string.h>

#include "base/mem.h"

enum { LABEL_MAX = 63 };

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

/* A last label that some resolver or URL parser takes for a number: decimal, octal or hexadecimal (inet_aton, WHATWG). */
static bool number_like(const char *label, size_t n)
{
	bool hex = n >= 2 && label[0] == '0' && label[1] == 'x';
	for (size_t i = hex ? 2 : 0; i < n; i++)
		if (!digit(label[i]) && !(hex && label[i] >= 'a' && label[i] <= 'f'))
			return false;
	return true;
}

/* Labels of [a-z0-9-_], 1-63 bytes, no hyphen at an end; in: lower case, without the trailing dot. */
static bool name_ok(const char *p, size_t n)
{
	size_t begin = 0;
	for (size_t i = 0; i <= n; i++) {
		if (i < n && p[i] != '.') {
			if (!(p[i] >= 'a' && p[i] <= 'z') && !digit(p[i]) && p[i] != '-' && p[i] != '_')
				return false;
			continue;
		}
		size_t len = i - begin;
		if (len == 0 || len > LABEL_MAX || p[begin] == '-' || p[i - 1] == '-')
			return false;
		if (i == n && number_like(p + begin, len))
			return false;
		begin = i + 1;
	}
	return true;
}

static bool literal(const struct ip *ip, struct host *out)
{
	char text[ADDR_TEXT];
	addr_fmt(ip, text);
	out->literal = true;
	out->ip = *ip;
	out->n = (uint8_t)strlen(text);
	memcpy(out->name, text, out->n + 1U);
	return true;
}

bool host_canon(struct str in, enum host_form form, struct host *out)
{
	struct ip ip;
	out->name[0] = 0;
	out->n = 0;
	out->literal = false;
	out->ip = (struct ip){ .v4 = false };
	if (in.n == 0)
		return false;
	if (form == HOST_IN_AUTHORITY && in.p[0] == '[')
		return in.n > 2 && in.p[in.n - 1] == ']' &&
		    addr_parse6((struct str){ in.p + 1, in.n - 2 }, &ip) && literal(&ip, out);
	if (form == HOST_BARE ? addr_parse(in, &ip) : addr_parse4(in, &ip))
		return literal(&ip, out);
	size_t n = in.p[in.n - 1] == '.' ? in.n - 1 : in.n;
	if (n >= HOST_TEXT)
		return false;
	for (size_t i = 0; i < n; i++)
		out->name[i] = lower(in.p[i]);
	out->name[n] = 0;
	if (!name_ok(out->name, n)) {
		out->name[0] = 0;
		return false;
	}
	out->n = (uint8_t)n;
	return true;
}

bool host_equal(const struct host *a, const struct host *b)
{
	if (a->literal || b->literal)
		return a->literal && b->literal && addr_equal(&a->ip, &b->ip);
	return a->n == b->n && memcmp(a->name, b->name, a->n) == 0;
}

bool host_split(struct str in, struct str *host, struct str *port, bool *has_port)
{
	const char *close = in.n > 0 && in.p[0] == '[' ? memchr(in.p, ']', in.n) : NULL;
	*has_port = false;
	*port = (struct str){ in.p + in.n, 0 };
	if (in.n > 0 && in.p[0] == '[' && close == NULL)
		return false;
	size_t from = close == NULL ? 0 : (size_t)(close - in.p) + 1;
	const char *colon = in.n == from ? NULL : memchr(in.p + from, ':', in.n - from);
	*host = (struct str){ in.p, colon == NULL ? in.n : (size_t)(colon - in.p) };
	if (close != NULL && host->n != from)
		return false;
	if (colon == NULL)
		return true;
	*has_port = true;
	*port = (struct str){ colon + 1, in.n - host->n - 1 };
	return memchr(port->p, ':', port->n) == NULL;
}

bool host_port(struct str text, uint16_t *port)
{
	unsigned v = 0;
	if (text.n == 0 || text.n > 5 || text.p[0] == '0')
		return false;
	for (size_t i = 0; i < text.n; i++) {
		if (!digit(text.p[i]))
			return false;
		v = v * 10 + (unsigned)(text.p[i] - '0');
	}
	*port = (uint16_t)v;
	return v <= 65535;
}

bool host_socket(struct str text, struct ip *ip, uint16_t *port)
{
	struct str host, number;
	bool has_port;
	*port = 0;
	if (addr_parse(text, ip))
		return true;
	if (!host_split(text, &host, &number, &has_port) || (has_port && !host_port(number, port)))
		return false;
	bool six = host.n > 2 && host.p[0] == '[';
	return six ? addr_parse6((struct str){ host.p + 1, host.n - 2 }, ip) : addr_parse4(host, ip);
}

/* ---- patterns */

/* Which colon, if any, is the port's: an IPv6 literal without brackets has none, one in brackets may. */
static bool pattern_split(struct str in, struct str *name, struct str *port, bool *has_port)
{
	struct ip ip;
	*has_port = false;
	*name = in;
	if (addr_parse6(in, &ip))
		return true;
	if (!host_split(in, name, port, has_port))
		return false;
	if (name->n < 2 || name->p[0] != '[')
		return true;
	*name = (struct str){ name->p + 1, name->n - 2 };
	return addr_parse6(*name, &ip);
}

static const char *pattern_fault(struct str in)
{
	for (size_t i = 0; i < in.n; i++) {
		if (in.p[i] == '*')
			return "A host pattern has no star: write .example.com for a domain and all below "
			       "it.";
		if ((unsigned char)in.p[i] >= 0x80)
			return "A host pattern is written in ASCII: use the name's xn-- form.";
		if (in.p[i] == '/')
			return "A host pattern has no scheme and no path, and is no range: write "
			       "api.example.com alone.";
	}
	return "A host pattern is a host name, a domain with a leading dot, or an IP address, with :port "
	       "after it or not.";
}

bool host_pattern_parse(struct str in, struct host_pattern *out, const char **why)
{
	struct str name, port;
	struct host h;
	bool has_port;
	*out = (struct host_pattern){ 0 };
	*why = pattern_fault(in);
	if (in.n == 0 || memchr(in.p, '/', in.n) != NULL || !pattern_split(in, &name, &port, &has_port))
		return false;
	if (has_port && !host_port(port, &out->port)) {
		*why = "The port of a host pattern is a decimal number from 1 to 65535.";
		return false;
	}
	out->suffix = name.n > 0 && name.p[0] == '.';
	if (out->suffix)
		name = (struct str){ name.p + 1, name.n - 1 };
	if (!host_canon(name, HOST_BARE, &h))
		return false;
	if (out->suffix && (h.literal || memchr(h.name, '.', h.n) == NULL)) {
		*why =
		    "A leading dot stands before a name of at least two labels; wider is the mode allow-all.";
		return false;
	}
	out->literal = h.literal;
	out->ip = h.ip;
	out->n = h.n;
	out->name = xstrdup(h.name);
	return true;
}

void host_pattern_free(struct host_pattern *p)
{
	free(p->name);
	p->name = NULL;
}

static enum host_match name_match(const struct host_pattern *p, const struct host *h)
{
	if (p->literal || h->literal)
		return p->literal && h->literal && addr_equal(&p->ip, &h->ip) ? HOST_EXACT : HOST_NO;
	if (h->n == p->n)
		return memcmp(h->name, p->name, p->n) != 0 ? HOST_NO : p->suffix ? HOST_SUFFIX : HOST_EXACT;
	if (!p->suffix || h->n <= p->n || h->name[h->n - p->n - 1] != '.')
		return HOST_NO;
	return memcmp(h->name + h->n - p->n, p->name, p->n) == 0 ? HOST_SUFFIX : HOST_NO;
}

enum host_match host_pattern_match(const struct host_pattern *p, const struct host *h, uint16_t port)
{
	enum host_match m = name_match(p, h);
	if (m == HOST_NO)
		return m;
	bool fits = p->port == 0 ? port == 80 || port == 443 : port == p->port;
	return fits ? m : HOST_OTHER_PORT;
}

enum host_match host_patterns_match(
    const struct host_pattern *p, size_t n, const struct host *h, uint16_t port)
{
	enum host_match best = HOST_NO;
	for (size_t i = 0; i < n && best != HOST_EXACT; i++) {
		enum host_match m = host_pattern_match(&p[i], h, port);
		best = m > best ? m : best;
	}
	return best;
}
