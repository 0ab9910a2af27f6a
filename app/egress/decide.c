#include "egress/decide.h"

enum { SMTP_PORT = 25 };

const char *decide_form_name(enum egress_form form)
{
	static const char *const names[] = { "connect", "http", "socks", "transparent" };
	return names[form];
}

enum egress_reason decide_target(struct str text, uint16_t no_port, struct host *host, uint16_t *port)
{
	struct str name, number;
	bool has_port;
	if (!host_split(text, &name, &number, &has_port) || !host_canon(name, HOST_IN_AUTHORITY, host))
		return REASON_BAD_HOST;
	*port = no_port;
	if (has_port ? !host_port(number, port) : no_port == 0)
		return REASON_BAD_PORT;
	return REASON_OK;
}

static void refuse(struct egress_decision *d, enum egress_reason reason)
{
	d->step = DECIDE_REFUSE;
	d->reason = reason;
}

/* ---- addresses */

/* EGR-4: what an inward host may have. Never link-local or metadata, and nothing that is not somebody's network. */
static bool inward_class(enum addr_class class)
{
	return class == ADDR_PRIVATE || class == ADDR_UNIQUE_LOCAL || class == ADDR_CGNAT ||
	    class == ADDR_LOOPBACK;
}

static bool is_self(const struct egress_site *site, const struct ip *a, uint16_t port)
{
	for (size_t i = 0; i < site->n_self; i++)
		if (addr_equal(&site->self[i].ip, a) &&
		    (site->self[i].port == 0 || site->self[i].port == port))
			return true;
	return false;
}

/* Our own services on loopback, all of 127.0.0.0/8: nothing that is inward leads to them (EGR-3). */
static bool is_own_port(const struct egress_site *site, uint16_t port)
{
	for (size_t i = 0; i < site->n_own_ports; i++)
		if (site->own_ports[i] == port)
			return true;
	return false;
}

static enum egress_reason screen(
    const struct egress_site *site, const struct ip *a, struct egress_decision *d)
{
	struct ip judged = *a, v4;
	enum addr_class class = addr_class(a);
	if (site->nat64 && class == ADDR_NAT64 && addr_embedded(a, &v4)) {
		judged = v4;
		class = addr_class(&v4);
	}
	d->address = *a;
	d->has_address = true;
	d->class = class;
	if (is_self(site, &judged, d->port) || (class == ADDR_LOOPBACK && is_own_port(site, d->port)))
		return REASON_ADDRESS_SELF;
	return class == ADDR_PUBLIC || (d->inward && inward_class(class)) ? REASON_OK : REASON_ADDRESS_DENIED;
}

void decide_addresses(
    const struct egress_site *site, const struct ip *addrs, size_t n, struct egress_decision *d)
{
	if (n == 0) {
		refuse(d, REASON_DNS_EMPTY);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		enum egress_reason why = screen(site, &addrs[i], d);
		if (why != REASON_OK) {
			refuse(d, why);
			return;
		}
	}
	(void)screen(site, &addrs[0], d); /* that of the last record stands there now */
	d->step = DECIDE_CONNECT;
}

void decide_unresolved(enum egress_reason why, struct egress_decision *d)
{
	refuse(d, why == REASON_DNS_NXDOMAIN ? why : REASON_DNS_ERROR);
}

/* ---- names */

static enum egress_reason listed(const struct egress_policy *policy, const struct host *host, uint16_t port)
{
	switch (host_patterns_match(policy->hosts, policy->n_hosts, host, port)) {
	case HOST_EXACT:
		return REASON_EXACT;
	case HOST_SUFFIX:
		return REASON_SUFFIX;
	case HOST_OTHER_PORT:
		return REASON_PORT_NOT_ALLOWED;
	case HOST_NO:
		break;
	}
	return REASON_NOT_ON_ALLOWLIST;
}

static enum egress_reason named(const struct egress_policy *policy, const struct host *host, uint16_t port)
{
	switch (policy->mode) {
	case POLICY_DENY_ALL:
		return REASON_MODE_DENY_ALL;
	case POLICY_ALLOW_ALL:
		return REASON_MODE_ALLOW_ALL;
	case POLICY_STATIC:
		return listed(policy, host, port);
	case POLICY_RESOLVER:
		return REASON_RESOLVER_ALLOWED;
	case POLICY_UNAVAILABLE:
		break;
	}
	return REASON_POLICY_UNAVAILABLE;
}

static bool allows(enum egress_reason why)
{
	return reason_verdict(why) == EGRESS_ALLOW;
}

/* After the name rules: a literal has its address, a name needs one. */
static void onward(const struct egress_site *site, struct egress_decision *d)
{
	d->step = DECIDE_RESOLVE;
	if (d->host.literal)
		decide_addresses(site, &d->host.ip, 1, d);
}

/* A name rule refused it: which report mode says and does not enforce (EGR-13). */
static void unlisted(const struct egress_site *site, enum egress_reason why, struct egress_decision *d)
{
	d->reason = why;
	if (!site->observe || why == REASON_POLICY_UNAVAILABLE) {
		refuse(d, why);
		return;
	}
	d->would = why;
	d->inward = false; /* which is for hosts that are allowed */
	onward(site, d);
}

void decide_name(const struct egress_site *site, const struct egress_policy *policy, enum egress_form form,
    const struct host *host, uint16_t port, struct egress_decision *d)
{
	*d = (struct egress_decision){ .form = form, .host = *host, .port = port };
	d->inward = host_patterns_match(site->inward, site->n_inward, host, port) > HOST_OTHER_PORT;
	d->reason = named(policy, host, port);
	if (port == SMTP_PORT && !site->smtp)
		refuse(d, allows(d->reason) ? REASON_PORT_NOT_ALLOWED : d->reason);
	else if (!allows(d->reason))
		unlisted(site, d->reason, d);
	else if (policy->mode == POLICY_RESOLVER)
		d->step = DECIDE_ASK;
	else
		onward(site, d);
}

void decide_asked(const struct egress_site *site, enum decide_answer answer, struct egress_decision *d)
{
	if (answer == ANSWER_YES)
		onward(site, d);
	else
		unlisted(site, answer == ANSWER_NO ? REASON_RESOLVER_DENIED : REASON_POLICY_UNAVAILABLE, d);
}

bool decide_still(
    const struct egress_site *site, const struct egress_policy *policy, const struct egress_decision *d)
{
	struct egress_decision now;
	decide_name(site, policy, d->form, &d->host, d->port, &now);
	return now.step != DECIDE_REFUSE;
}

/* The ports of whatever allows this name: any that is listed answers. */
bool decide_known(const struct egress_site *site, const struct egress_policy *policy, const struct host *host)
{
	if (host->literal)
		return false;
	enum egress_reason why = named(policy, host, 443);
	return allows(why) || why == REASON_PORT_NOT_ALLOWED ||
	    (site->observe && why != REASON_POLICY_UNAVAILABLE);
}
