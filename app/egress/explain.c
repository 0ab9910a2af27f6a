#include "egress/explain.h"

#include <stdlib.h>
#include <string.h>

#include "base/js.h"
#include "egress/hello.h"
#include "egress/socks.h"

enum { RECORDS_MAX = 256, TLS_PORT = 443, HTTP_PORT = 80, NAME_MAX_BYTES = 255 };

/* ---- what was asked for, as the form carries it */

/* A number after a word, as in "ATYP=3"; false when the word is not there. */
static bool word(const char **at, const char *name, uint8_t *value)
{
	if (!str_starts(*at, name))
		return false;
	char *end;
	*value = (uint8_t)strtoul(*at + strlen(name), &end, 10);
	*at = end + strspn(end, " ");
	return true;
}

/* Whether what follows the last colon is meant as the port: not in an IPv6 literal without brackets. */
static void socks_cut(struct str text, struct str *name, uint16_t *port, enum egress_reason *why)
{
	struct str number;
	bool has_port;
	if (!host_split(text, name, &number, &has_port))
		*name = text;
	else if (has_port && !host_port(number, port))
		*why = REASON_BAD_PORT;
}

static struct str unbracketed(struct str name)
{
	bool has = name.n > 2 && name.p[0] == '[' && name.p[name.n - 1] == ']';
	return has ? (struct str){ name.p + 1, name.n - 2 } : name;
}

/* The bytes of a SOCKS5 request, so that its reader judges them. */
static enum egress_reason socks_target(const char *text, struct host *host, uint16_t *port)
{
	uint8_t cmd = 1, type = 3, p[4 + 1 + NAME_MAX_BYTES + 2] = { SOCKS_VERSION };
	struct str name;
	struct ip ip;
	enum egress_reason why = REASON_OK;
	*port = TLS_PORT;
	(void)word(&text, "CMD=", &cmd);
	(void)word(&text, "ATYP=", &type);
	socks_cut(str_of(strcmp(text, "len=0") == 0 ? "" : text), &name, port, &why);
	p[1] = cmd;
	p[3] = type;
	size_t at = 4;
	if (type == 1 && addr_parse4(name, &ip)) {
		memcpy(p + at, ip.b + 12, 4);
		at += 4;
	} else if (type == 4 && addr_parse6(unbracketed(name), &ip)) {
		memcpy(p + at, ip.b, sizeof ip.b);
		at += sizeof ip.b;
	} else {
		p[at++] = (uint8_t)(name.n > NAME_MAX_BYTES ? NAME_MAX_BYTES : name.n);
		memcpy(p + at, name.p, p[at - 1]);
		at += p[at - 1];
	}
	p[at++] = (uint8_t)(*port >> 8);
	p[at++] = (uint8_t)*port;
	struct socks_request r;
	enum socks_step step = socks_read(&r, p, at);
	*host = r.host;
	if (step == SOCKS_DONE)
		return why;
	return step == SOCKS_BAD ? r.reason : REASON_BAD_SOCKS;
}

/* ---- what the resolver answered */

static bool is(struct str s, const char *what)
{
	return s.n == strlen(what) && strncasecmp(s.p, what, s.n) == 0;
}

/* The records into addrs; anything but REASON_OK is how the resolution failed. An alias ("CNAME name ->") is passed over. */
static enum egress_reason records(const char *resolve, struct ip *addrs, size_t *n)
{
	struct host alias;
	*n = 0;
	for (const char *at = resolve; *at != 0;) {
		struct str one = { at, strcspn(at, ", ") };
		at += one.n + (at[one.n] != 0);
		if (one.n == 0 || is(one, "-") || is(one, "->"))
			continue;
		if (is(one, "NXDOMAIN"))
			return REASON_DNS_NXDOMAIN;
		if (*n == RECORDS_MAX || is(one, "SERVFAIL") || is(one, "TIMEOUT") || is(one, "REFUSED"))
			return REASON_DNS_ERROR;
		if (addr_parse(one, &addrs[*n]))
			(*n)++;
		else if (!host_canon(one, HOST_BARE, &alias))
			return REASON_DNS_ERROR;
	}
	return REASON_OK;
}

static void resolved(const struct egress_site *site, const char *resolve, struct egress_decision *d)
{
	struct ip addrs[RECORDS_MAX];
	size_t n = 0;
	enum egress_reason why = resolve == NULL ? REASON_OK : records(resolve, addrs, &n);
	if (why == REASON_OK)
		decide_addresses(site, addrs, n, d);
	else
		decide_unresolved(why, d);
}

/* ---- what an operator may write */

static bool is_mode(const char *mode)
{
	for (int m = POLICY_DENY_ALL; m <= POLICY_RESOLVER; m++)
		if (strcmp(mode, policy_mode_name((enum policy_mode)m)) == 0)
			return true;
	return false;
}

static bool is_answer(struct str one)
{
	struct ip ip;
	return is(one, "NXDOMAIN") || is(one, "SERVFAIL") || is(one, "REFUSED") || is(one, "TIMEOUT") ||
	    addr_parse(one, &ip);
}

int explain_check(const struct explain_ask *ask, struct err *e)
{
	if (ask->mode != NULL && !is_mode(ask->mode))
		return err_set(e, ERR_BAD_REQUEST,
		    "--mode is one of deny-all, allow-all, static and resolver, not \"%.60s\".", ask->mode);
	for (const char *at = ask->resolve == NULL ? "" : ask->resolve; *at != 0;) {
		struct str one = { at, strcspn(at, ", ") };
		at += one.n + (at[one.n] != 0);
		if (one.n > 0 && !is_answer(one))
			return err_set(e, ERR_BAD_REQUEST,
			    "--resolve takes addresses, NXDOMAIN, SERVFAIL, REFUSED or TIMEOUT, separated by "
			    "commas; "
			    "\"%.*s\" is none of them.",
			    one.n < 60 ? (int)one.n : 60, one.p);
	}
	return 0;
}

/* ---- answers */

static json_t *answer(enum egress_reason why, const struct egress_decision *d)
{
	char text[ADDR_TEXT];
	bool at = d != NULL && d->has_address;
	if (at)
		addr_fmt(&d->address, text);
	return js_pack("{s:s, s:s, s:s?, s:s?, s:s?}", "verdict", reason_verdict_name(reason_verdict(why)),
	    "reason", reason_name(why), "canonical", d != NULL ? d->host.name : NULL, "address",
	    at ? text : NULL, "class", at ? addr_class_name(d->class) : NULL);
}

/* As it would be written and read again: a pattern at fault is refused then, a mode at fault makes the policy unreadable. */
static struct egress_policy *policy_of(const struct explain_ask *ask)
{
	auto_json json_t *stored = js_pack("{}");
	struct str list = str_of(ask->allow), one;
	struct err e = { 0 };
	if (ask->mode != NULL)
		js_set(stored, "mode", js_text(ask->mode, strlen(ask->mode)));
	else
		js_set_str(stored, "mode", ask->allow != NULL ? "static" : "deny-all");
	if (ask->allow != NULL)
		js_set(stored, "allowedHosts", json_array());
	while (str_cut(&list, ',', &one))
		js_push(json_object_get(stored, "allowedHosts"), js_text(one.p, one.n));
	struct egress_policy *p = policy_parse(stored, &e);
	return p == NULL && strcmp(e.param, "mode") == 0 ? policy_unavailable() : p;
}

static enum egress_reason target(const struct explain_ask *ask, struct host *host, uint16_t *port)
{
	if (ask->form == FORM_SOCKS)
		return socks_target(ask->target, host, port);
	return decide_target(
	    str_of(ask->target), ask->form == FORM_CONNECT ? TLS_PORT : HTTP_PORT, host, port);
}

json_t *explain_host(const struct egress_site *site, const struct explain_ask *ask)
{
	struct host host;
	uint16_t port;
	struct egress_policy *policy = policy_of(ask);
	if (policy == NULL)
		return answer(REASON_BAD_ENTRY, NULL);
	enum egress_reason why = target(ask, &host, &port);
	struct egress_decision d = { .reason = why };
	if (why == REASON_OK) {
		decide_name(site, policy, ask->form, &host, port, &d);
		if (d.step == DECIDE_ASK)
			decide_asked(site, ANSWER_NONE, &d); /* nobody is asked here */
		if (d.step == DECIDE_RESOLVE)
			resolved(site, ask->resolve, &d);
	}
	policy_unref(policy);
	return answer(d.reason, why == REASON_OK ? &d : NULL);
}

json_t *explain_address(const struct egress_site *site, const char *text)
{
	struct ip ip;
	if (!addr_parse(str_of(text), &ip))
		return js_pack(
		    "{s:s, s:n, s:n}", "verdict", reason_verdict_name(EGRESS_BAD_REQUEST), "class", "block");
	const char *block = addr_block(&ip);
	enum egress_verdict v = addr_public(&ip, site->nat64) ? EGRESS_ALLOW : EGRESS_DENY;
	return js_pack("{s:s, s:s, s:s}", "verdict", reason_verdict_name(v), "class",
	    addr_class_name(addr_class(&ip)), "block", block != NULL ? block : "-");
}

json_t *explain_hello(const struct egress_site *site, const char *text, const uint8_t *p, size_t n)
{
	struct host host;
	uint16_t port;
	struct hello h = { 0 };
	enum egress_reason why = decide_target(str_of(text), TLS_PORT, &host, &port);
	if (why == REASON_OK) {
		enum hello_step step = hello_read(&h, p, n);
		why = step == HELLO_MORE ? hello_cut(&h)
		    : step == HELLO_BAD  ? h.reason
					 : hello_judge(site, &host, &h);
	}
	json_t *o = js_pack("{s:s, s:s, s:n}", "verdict", reason_verdict_name(reason_verdict(why)), "reason",
	    reason_name(why), "name");
	if (h.has_name)
		js_set(o, "name", js_text(h.name, h.name_n));
	return o;
}
