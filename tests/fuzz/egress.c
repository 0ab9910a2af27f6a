/* What a sandbox sends to the boundary, and what origins answer. */
#include <string.h>

#include "base/addr.h"
#include "base/host.h"
#include "base/js.h"
#include "egress/decide.h"
#include "egress/dns_answer.h"
#include "egress/head.h"
#include "egress/hello.h"
#include "egress/socks.h"
#include "fuzz.h"

static struct str text(const uint8_t *p, size_t n)
{
	return (struct str){ (const char *)p, n };
}

void fuzz_host(const uint8_t *p, size_t n)
{
	for (int form = HOST_IN_AUTHORITY; form <= HOST_BARE; form++) {
		struct host h, again;
		if (!host_canon(text(p, n), (enum host_form)form, &h))
			continue;
		HOLDS(strlen(h.name) == h.n && h.n > 0);
		HOLDS(host_canon((struct str){ h.name, h.n }, HOST_BARE, &again));
		HOLDS(strcmp(h.name, again.name) == 0 && host_equal(&h, &again));
	}
	struct host h;
	uint16_t port;
	struct host_pattern pattern;
	const char *why;
	if (decide_target(text(p, n), 443, &h, &port) == REASON_OK)
		HOLDS(port > 0);
	if (!host_pattern_parse(text(p, n), &pattern, &why))
		return;
	/* A pattern matches its own name, on a port it allows. */
	HOLDS(host_canon((struct str){ pattern.name, pattern.n }, HOST_BARE, &h));
	HOLDS(host_pattern_match(&pattern, &h, pattern.port == 0 ? 443 : pattern.port) > HOST_OTHER_PORT);
	host_pattern_free(&pattern);
}

void fuzz_address(const uint8_t *p, size_t n)
{
	struct ip a, b;
	char out[ADDR_TEXT];
	if (addr_parse(text(p, n), &a)) {
		addr_fmt(&a, out);
		HOLDS(addr_parse(str_of(out), &b) && addr_equal(&a, &b));
	}
	if (n < sizeof a.b)
		return;
	memcpy(a.b, p, sizeof a.b);
	a.v4 = false;
	addr_fmt(&a, out);
	HOLDS(addr_parse(str_of(out), &b) && addr_equal(&a, &b));
	/* Nothing that holds an IPv4 address which is refused is let through. */
	struct ip v4;
	if (addr_embedded(&a, &v4) && !addr_public(&v4, true))
		HOLDS(!addr_public(&a, true));
	HOLDS(!addr_public(&a, false) || addr_class(&a) == ADDR_PUBLIC);
}

static enum head_step read_cut(struct head *h, const char *p, size_t n, size_t at, bool transparent)
{
	*h = (struct head){ 0 };
	enum head_step step = head_read(h, p, at, transparent);
	return step == HEAD_MORE ? head_read(h, p, n, transparent) : step;
}

/* Host, Connection and our spelling are added on the way: the next reader may find that too much, and has no other complaint. */
static bool at_the_limit(const struct head_scan *s, size_t sent)
{
	return s->n_fields + 2 > HEAD_FIELDS_MAX || sent > HEAD_MAX;
}

void fuzz_head(const uint8_t *bytes, size_t n)
{
	static char out[2 * HEAD_MAX];
	const char *p = (const char *)bytes;
	struct head h, cut, again = { 0 };
	for (int transparent = 0; transparent < 2; transparent++) {
		enum head_step step = read_cut(&h, p, n, 0, transparent);
		HOLDS(read_cut(&cut, p, n, n / 2, transparent) == step && cut.reason == h.reason &&
		    cut.n == h.n);
		HOLDS(step != HEAD_BAD || reason_verdict(h.reason) == EGRESS_BAD_REQUEST);
		if (step != HEAD_DONE || h.form == FORM_CONNECT)
			continue;
		size_t m = head_forward(&h, NULL, h.keep, out, sizeof out);
		HOLDS(m > 0);
		again = (struct head){ 0 };
		if (head_read(&again, out, m, true) == HEAD_BAD) {
			HOLDS(again.reason == REASON_HEAD_TOO_LONG && at_the_limit(&h.scan, m));
			continue;
		}
		HOLDS(again.n == m);
		HOLDS(host_equal(&again.host, &h.host) && again.port == h.port && again.body == h.body &&
		    again.length == h.length);
	}
}

void fuzz_answer(const uint8_t *bytes, size_t n)
{
	static char out[2 * HEAD_MAX];
	struct head_answer a = { 0 }, cut = { 0 }, again = { 0 };
	const char *p = (const char *)bytes;
	enum head_step step = head_read_answer(&a, p, n, false),
		       other = head_read_answer(&cut, p, n / 2, false);
	if (other == HEAD_MORE)
		other = head_read_answer(&cut, p, n, false);
	HOLDS(step == other && a.n == cut.n);
	if (step != HEAD_DONE)
		return;
	size_t m = head_forward_answer(&a, a.keep, out, sizeof out);
	HOLDS(m > 0);
	if (head_read_answer(&again, out, m, false) == HEAD_BAD) {
		HOLDS(at_the_limit(&a.scan, m));
		return;
	}
	HOLDS(again.n == m);
	HOLDS(again.status == a.status && again.length == a.length && again.body == a.body);
}

void fuzz_chunks(const uint8_t *bytes, size_t n)
{
	struct head_chunks whole = { 0 }, cut = { 0 };
	const char *p = (const char *)bytes;
	size_t used, a, b = 0;
	enum head_step step = head_chunks(&whole, p, n, &used), other = head_chunks(&cut, p, n / 2, &a);
	if (other == HEAD_MORE)
		other = head_chunks(&cut, p + a, n - a, &b);
	HOLDS(step == other && used == a + b && used <= n);
}

void fuzz_hello(const uint8_t *p, size_t n)
{
	static const struct egress_site site;
	struct hello h = { 0 }, cut = { 0 };
	struct host host, name;
	HOLDS(host_canon(str_of("api.example.com"), HOST_BARE, &host));
	enum hello_step step = hello_read(&h, p, n), other = hello_read(&cut, p, n / 2);
	if (other == HELLO_MORE)
		other = hello_read(&cut, p, n);
	HOLDS(step == other && h.reason == cut.reason && h.at == cut.at && h.has_name == cut.has_name);
	HOLDS(step != HELLO_BAD || reason_verdict(h.reason) == EGRESS_DENY);
	/* What passes names the host of the tunnel. */
	if (step == HELLO_DONE && hello_judge(&site, &host, &h) == REASON_OK)
		HOLDS(h.has_name && host_canon((struct str){ h.name, h.name_n }, HOST_BARE, &name) &&
		    host_equal(&name, &host));
}

void fuzz_socks(const uint8_t *p, size_t n)
{
	struct socks_request r, whole;
	uint8_t reply[SOCKS_REPLY_BYTES];
	size_t used = 0;
	if (socks_greeting(p, n, &used, reply) == SOCKS_DONE)
		HOLDS(used <= n);
	enum socks_step step = socks_read(&r, p, n);
	HOLDS(step != SOCKS_DONE || (r.used <= n && r.port > 0 && r.host.n > 0));
	socks_reply(r.reason, reply);
	if (socks_read(&r, p, n / 2) == SOCKS_DONE)
		HOLDS(socks_read(&whole, p, n) == SOCKS_DONE && whole.used == r.used &&
		    host_equal(&whole.host, &r.host));
}

static bool known(void *arg, struct str name)
{
	int *asked = arg;
	++*asked;
	return name.n % 2 == 0;
}

/* What a transparent sandbox asks. */
void fuzz_dns(const uint8_t *p, size_t n)
{
	unsigned char out[DNS_UDP_BYTES + DNS_ADDED_BYTES];
	int asked = 0;
	if (n > DNS_UDP_BYTES)
		return;
	size_t m = dns_answer(p, n, out, known, &asked);
	HOLDS(m <= n + DNS_ADDED_BYTES && asked <= 1);
	HOLDS(m == 0 || (m >= 12 && (out[2] & 0x80) != 0 && memcmp(out, p, 2) == 0));
}

/* As it is stored; then a decision by it. */
void fuzz_policy(const uint8_t *p, size_t n)
{
	static const struct egress_site site, reports = { .observe = true };
	struct err e = { 0 };
	struct host host;
	struct egress_decision d;
	auto_json json_t *stored = js_parse((const char *)p, n, &e);
	struct egress_policy *policy = stored == NULL ? NULL : policy_parse(stored, &e);
	if (policy == NULL)
		return;
	HOLDS(host_canon(str_of("never.example"), HOST_BARE, &host));
	decide_name(&site, policy, FORM_HTTP, &host, 8443, &d);
	HOLDS(d.step == DECIDE_REFUSE || decide_known(&site, policy, &host));
	HOLDS(decide_still(&site, policy, &d) == (d.step != DECIDE_REFUSE));
	decide_name(&reports, policy, FORM_HTTP, &host, 8443, &d);
	HOLDS(d.step != DECIDE_REFUSE);
	const struct ip inside = { .b = { 0xfe, 0x80 } };
	decide_addresses(&reports, &inside, 1, &d);
	HOLDS(d.step == DECIDE_REFUSE);
	policy_unref(policy);
}
