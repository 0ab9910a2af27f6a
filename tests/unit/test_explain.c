/* EGR-1, EGR-2, EGR-3, EGR-7: the rows of tests/cases/egress through the functions of `gatehouse egress explain`. */
#include "../t.h"

#include <string.h>

#include "../csv.h"
#include "base/hash.h"
#include "base/js.h"
#include "egress/explain.h"

static const struct egress_site none;

static bool same(const json_t *o, const char *key, const char *want)
{
	return strcmp(js_str_or(o, key, ""), want) == 0;
}

/* fault 48 */
static void every_row_of_hosts_is_judged_as_it_says(void **s)
{
	(void)s;
	struct csv c = csv_open("tests/cases/egress/hosts.csv");
	int n = 0;
	for (; csv_next(&c); n++) {
		char spelling[300], entry[200];
		(void)snprintf(spelling, sizeof spelling, "%s", csv_get(&c, "spelling"));
		(void)snprintf(entry, sizeof entry, "%s", csv_get(&c, "allow_entry_or_mode"));
		(void)csv_unescape(spelling);
		(void)csv_unescape(entry);
		struct explain_ask ask = { .resolve = csv_get(&c, "resolved"), .target = spelling };
		if (strcmp(entry, "allow-all mode") == 0)
			ask.mode = "allow-all";
		else if (entry[0] == '<') /* a policy that cannot be read */
			ask.mode = entry;
		else
			ask.allow = entry;
		while (strcmp(decide_form_name(ask.form), csv_get(&c, "form")) != 0)
			ask.form++;
		auto_json json_t *o = explain_host(&none, &ask);
		const char *canonical = csv_get(&c, "canonical");
		if (!same(o, "verdict", csv_get(&c, "verdict")) ||
		    !same(o, "reason", csv_get(&c, "reason")) ||
		    (canonical[0] != 0 && !same(o, "canonical", canonical)))
			fail_msg("%s: %s %s %s", csv_get(&c, "id"), js_str(o, "verdict"), js_str(o, "reason"),
			    js_str_or(o, "canonical", ""));
	}
	csv_close(&c);
	assert_int_equal(n, 115);
}

static void every_row_of_client_hellos_is_judged_as_it_says(void **s)
{
	(void)s;
	struct csv c = csv_open("tests/cases/egress/client-hellos.csv");
	int n = 0;
	for (; csv_next(&c); n++) {
		const char *hex = csv_get(&c, "hex"), *verdict = csv_get(&c, "verdict");
		auto_free unsigned char *bytes = xcalloc(1, strlen(hex) / 2 + 1);
		ssize_t len = hex_decode(hex, bytes, strlen(hex) / 2);
		assert_true(len > 0);
		auto_json json_t *o = explain_hello(&none, csv_get(&c, "connect_target"), bytes, (size_t)len);
		bool allow = strcmp(verdict, "tunnel") == 0;
		const char *reason = allow ? "ok" : strchr(verdict, ':') + 1;
		if (!same(o, "verdict", allow ? "allow" : "deny") || !same(o, "reason", reason))
			fail_msg("%s: %s %s", csv_get(&c, "id"), js_str(o, "verdict"), js_str(o, "reason"));
	}
	csv_close(&c);
	assert_int_equal(n, 33);
}

static const char *reason_of(const struct egress_site *site, struct explain_ask ask, char out[40])
{
	auto_json json_t *o = explain_host(site, &ask);
	(void)snprintf(out, 40, "%s", js_str(o, "reason"));
	return out;
}
#define REASON(site, ...) reason_of(site, (struct explain_ask){ __VA_ARGS__ }, (char[40]){ 0 })

/* EGR-1 */
static void nothing_said_is_nothing_allowed(void **s)
{
	(void)s;
	assert_string_equal(REASON(&none, .target = "a.example", .resolve = "1.1.1.1"), "mode_deny_all");
	assert_string_equal(
	    REASON(&none, .target = "a.example", .resolve = "1.1.1.1", .allow = ""), "not_on_allowlist");
	assert_string_equal(REASON(&none, .target = "a.example", .allow = "a.example"), "dns_empty");
	assert_string_equal(REASON(&none, .target = "a.example", .resolve = "1.1.1.1", .mode = "resolver"),
	    "policy_unavailable");
	assert_string_equal(REASON(&none, .target = "a.example", .resolve = "1.1.1.1", .mode = "deny-all",
				.allow = "a.example"),
	    "mode_deny_all");
	assert_string_equal(
	    REASON(&none, .target = "a.example", .resolve = "1.1.1.1", .allow = "b.example,.x.org,a.example"),
	    "exact");
	assert_string_equal(
	    REASON(&none, .target = "a.example", .resolve = "nonsense!", .allow = "a.example"), "dns_error");
	assert_string_equal(
	    REASON(&none, .target = "a.example", .resolve = "timeout", .allow = "a.example"), "dns_error");
	assert_string_equal(
	    REASON(&none, .target = "ATYP=4 [::1]:443", .form = FORM_SOCKS, .mode = "allow-all"),
	    "address_denied");
	assert_string_equal(
	    REASON(&none, .target = "ATYP=4 2606:4700::1111", .form = FORM_SOCKS, .mode = "allow-all"),
	    "mode_allow_all");
}

/* EGR-4 */
static void inward_is_for_listed_hosts_and_never_for_metadata(void **s)
{
	(void)s;
	struct egress_site site = { 0 };
	struct err e = { 0 };
	assert_int_equal(policy_patterns("db.x.corp:5432 .x.corp", &site.inward, &site.n_inward, &e), 0);
	assert_string_equal(
	    REASON(&site, .target = "h.x.corp", .resolve = "10.0.0.1", .allow = "h.x.corp"), "exact");
	assert_string_equal(REASON(&site, .target = "h.x.corp", .resolve = "fd00::1,10.0.0.1",
				.allow = ".corp.example,h.x.corp"),
	    "exact");
	assert_string_equal(REASON(&site, .target = "h.x.corp", .resolve = "10.0.0.1", .allow = "y.x.corp"),
	    "not_on_allowlist");
	assert_string_equal(
	    REASON(&site, .target = "x.org", .resolve = "10.0.0.1", .allow = "x.org"), "address_denied");
	assert_string_equal(
	    REASON(&site, .target = "h.x.corp", .resolve = "169.254.169.254", .allow = "h.x.corp"),
	    "address_denied");
	assert_string_equal(
	    REASON(&site, .target = "h.x.corp", .resolve = "169.254.1.1", .allow = "h.x.corp"),
	    "address_denied");
	assert_string_equal(
	    REASON(&site, .target = "h.x.corp", .resolve = "10.0.0.1,fd00:ec2::254", .allow = "h.x.corp"),
	    "address_denied");
	assert_string_equal(
	    REASON(&site, .target = "h.x.corp", .resolve = "100.100.100.200", .allow = "h.x.corp"),
	    "address_denied");
	assert_string_equal(
	    REASON(&site, .target = "db.x.corp:5432", .resolve = "10.0.0.1", .allow = "db.x.corp:5432"),
	    "exact");
	assert_string_equal(
	    REASON(&site, .target = "h.x.corp:5432", .resolve = "10.0.0.1", .allow = "h.x.corp:5432"),
	    "address_denied");
	policy_site_free(&site);
}

static void our_own_addresses_are_refused_whoever_lists_them(void **s)
{
	(void)s;
	struct egress_site site = { 0 };
	struct err e = { 0 };
	assert_int_equal(policy_patterns("x.corp x.corp:5432", &site.inward, &site.n_inward, &e), 0);
	site.n_self = 2;
	site.self = xcalloc(2, sizeof *site.self);
	assert_true(addr_parse(str_of("10.0.0.7"), &site.self[0].ip));
	assert_true(addr_parse(str_of("127.0.0.1"), &site.self[1].ip));
	site.self[1].port = 5432;
	assert_string_equal(
	    REASON(&site, .target = "x.corp", .resolve = "10.0.0.7", .allow = "x.corp"), "address_self");
	assert_string_equal(
	    REASON(&site, .target = "x.corp", .resolve = "::ffff:10.0.0.7", .allow = "x.corp"),
	    "address_self");
	assert_string_equal(
	    REASON(&site, .target = "x.corp", .resolve = "10.0.0.8", .allow = "x.corp"), "exact");
	assert_string_equal(
	    REASON(&site, .target = "x.corp:5432", .resolve = "127.0.0.1", .allow = "x.corp:5432"),
	    "address_self");
	assert_string_equal(
	    REASON(&site, .target = "x.corp", .resolve = "127.0.0.1", .allow = "x.corp"), "exact");
	policy_site_free(&site);
}

/* EGR-3 */
/* fault 49 */
static void our_own_services_are_refused_on_every_loopback_address(void **s)
{
	(void)s;
	struct egress_site site = { .own_ports = { 443, 5432 }, .n_own_ports = 2 };
	struct err e = { 0 };
	static const char *const loopback[] = { "127.0.0.1", "127.0.0.2", "127.255.255.254", "::1",
		"::ffff:127.0.0.1" };
	assert_int_equal(
	    policy_patterns("x.corp x.corp:5432 x.corp:5433", &site.inward, &site.n_inward, &e), 0);
	for (size_t i = 0; i < sizeof loopback / sizeof loopback[0]; i++) {
		assert_string_equal(REASON(&site, .target = "x.corp:5432", .resolve = loopback[i],
					.allow = "x.corp:5432,x.corp:5433"),
		    "address_self");
		assert_string_equal(
		    REASON(&site, .target = "x.corp:443", .resolve = loopback[i], .allow = "x.corp"),
		    "address_self");
		assert_string_equal(REASON(&site, .target = "x.corp:5433", .resolve = loopback[i],
					.allow = "x.corp:5432,x.corp:5433"),
		    "exact");
	}
	/* Another host's PostgreSQL is not ours. */
	assert_string_equal(
	    REASON(&site, .target = "x.corp:5432", .resolve = "10.0.0.9", .allow = "x.corp:5432"), "exact");
	policy_site_free(&site);
}

/* EGR-13 */
static void report_mode_suspends_the_name_rules_and_nothing_else(void **s)
{
	(void)s;
	struct egress_site site = { .observe = true };
	struct explain_ask ask = { .target = "a.example", .resolve = "1.1.1.1", .allow = "b.example" };
	auto_json json_t *o = explain_host(&site, &ask);
	assert_true(same(o, "address", "1.1.1.1"));
	struct host h;
	assert_true(host_canon(str_of("a.example"), HOST_BARE, &h));
	auto_json json_t *stored = js_pack("{s:s, s:[s]}", "mode", "static", "allowedHosts", "b.example");
	struct err e = { 0 };
	struct egress_policy *p = policy_parse(stored, &e);
	struct egress_decision d;
	decide_name(&site, p, FORM_CONNECT, &h, 443, &d);
	assert_int_equal(d.step, DECIDE_RESOLVE);
	assert_int_equal(d.would, REASON_NOT_ON_ALLOWLIST);
	decide_name(&site, p, FORM_CONNECT, &h, 25, &d);
	assert_int_equal(d.step, DECIDE_REFUSE);
	policy_unref(p);
	p = policy_unavailable();
	decide_name(&site, p, FORM_CONNECT, &h, 443, &d);
	assert_int_equal(d.step, DECIDE_REFUSE);
	policy_unref(p);
	assert_string_equal(REASON(&site, .target = "a.example", .resolve = "10.0.0.1", .allow = "b.example"),
	    "address_denied");
	/* inward is for hosts that are allowed anyway */
	assert_int_equal(policy_patterns("a.example", &site.inward, &site.n_inward, &e), 0);
	assert_string_equal(REASON(&site, .target = "a.example", .resolve = "10.0.0.1", .allow = "b.example"),
	    "address_denied");
	policy_site_free(&site);
}

static struct egress_policy *policy_of(const char *text)
{
	struct err e = { 0 };
	auto_json json_t *stored = js_parse(text, strlen(text), &e);
	struct egress_policy *p = stored == NULL ? NULL : policy_parse(stored, &e);
	if (p == NULL)
		assert_true(e.code == ERR_BAD_REQUEST && e.param[0] != 0);
	return p;
}

static void a_policy_that_is_not_one_is_refused_naming_the_field(void **s)
{
	(void)s;
	static const char *const wrong[] = { "[]", "{\"mode\":\"all\"}", "{\"mode\":1}",
		"{\"mode\":\"unavailable\"}", "{\"allowedHosts\":\"a.example\"}", "{\"allowedHosts\":[1]}",
		"{\"allowedHosts\":[\"a.example\",\"*\"]}",
		"{\"mode\":\"allow-all\",\"allowedHosts\":[\"*\"]}" };
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		if (policy_of(wrong[i]) != NULL)
			fail_msg("%s", wrong[i]);
	static const struct {
		const char *text;
		enum policy_mode mode;
	} right[] = { { "{}", POLICY_DENY_ALL }, { "{\"allowedHosts\":[]}", POLICY_DENY_ALL },
		{ "{\"allowedHosts\":[\"a.example\"]}", POLICY_STATIC },
		{ "{\"mode\":\"static\"}", POLICY_STATIC }, { "{\"mode\":\"allow-all\"}", POLICY_ALLOW_ALL },
		{ "{\"mode\":\"resolver\"}", POLICY_RESOLVER },
		{ "{\"mode\":null,\"allowedHosts\":null}", POLICY_DENY_ALL } };
	for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
		struct egress_policy *p = policy_of(right[i].text);
		assert_non_null(p);
		assert_int_equal(p->mode, right[i].mode);
		policy_unref(p);
	}
}

/* EGR-9, EGR-16 */
static void a_new_policy_is_asked_about_what_stands(void **s)
{
	(void)s;
	struct host h;
	struct egress_decision d;
	assert_true(host_canon(str_of("git.a.example"), HOST_BARE, &h));
	struct egress_policy *wide = policy_of("{\"allowedHosts\":[\".a.example\",\"b.example:22\"]}"),
			     *other = policy_of("{\"allowedHosts\":[\"git.a.example:8443\"]}"),
			     *all = policy_of("{\"mode\":\"allow-all\"}"), *shut = policy_of("{}"),
			     *ask = policy_of("{\"mode\":\"resolver\"}");
	decide_name(&none, wide, FORM_SOCKS, &h, 443, &d);
	assert_int_equal(d.step, DECIDE_RESOLVE);
	assert_true(
	    decide_still(&none, wide, &d) && decide_still(&none, all, &d) && decide_still(&none, ask, &d));
	assert_false(decide_still(&none, other, &d) || decide_still(&none, shut, &d));
	assert_true(
	    decide_known(&none, wide, &h) && decide_known(&none, other, &h) && decide_known(&none, all, &h));
	assert_false(decide_known(&none, shut, &h));
	assert_true(host_canon(str_of("b.example"), HOST_BARE, &h) && decide_known(&none, wide, &h));
	assert_true(host_canon(str_of("c.example"), HOST_BARE, &h));
	assert_false(decide_known(&none, wide, &h));
	for (struct egress_policy **p = (struct egress_policy *[]){ wide, other, all, shut, ask, NULL };
	     *p != NULL; p++)
		policy_unref(*p);
}

/* EGR-1: mode resolver */
static void a_resolvers_answer_decides_and_none_denies(void **s)
{
	(void)s;
	struct host h;
	struct egress_decision d;
	struct egress_policy *ask = policy_of("{\"mode\":\"resolver\"}");
	assert_true(host_canon(str_of("a.example"), HOST_BARE, &h));
	static const struct {
		enum decide_answer answer;
		enum decide_step step;
		enum egress_reason reason;
	} all[] = { { ANSWER_YES, DECIDE_RESOLVE, REASON_RESOLVER_ALLOWED },
		{ ANSWER_NO, DECIDE_REFUSE, REASON_RESOLVER_DENIED },
		{ ANSWER_NONE, DECIDE_REFUSE, REASON_POLICY_UNAVAILABLE } };
	for (size_t i = 0; i < 3; i++) {
		decide_name(&none, ask, FORM_HTTP, &h, 80, &d);
		assert_int_equal(d.step, DECIDE_ASK);
		decide_asked(&none, all[i].answer, &d);
		assert_int_equal(d.step, all[i].step);
		assert_int_equal(d.reason, all[i].reason);
	}
	policy_unref(ask);
}

/* EGR-5 */
static void every_reason_has_a_name_of_its_own_and_a_sentence(void **s)
{
	(void)s;
	for (int i = REASON_NONE; i < REASONS_; i++) {
		const char *name = reason_name((enum egress_reason)i),
			   *text = reason_text((enum egress_reason)i);
		int status = reason_status((enum egress_reason)i);
		assert_true(
		    strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name) && name[0] != 0);
		assert_true(text[strlen(text) - 1] == '.');
		assert_true(status == 200 || (status >= 400 && status < 600));
		assert_int_equal(status == 200, reason_verdict((enum egress_reason)i) == EGRESS_ALLOW);
		for (int k = i + 1; k < REASONS_; k++)
			if (strcmp(name, reason_name((enum egress_reason)k)) == 0)
				assert_string_equal(name, "too_long");
	}
	for (int i = 0; i < ADDR_CLASSES_; i++)
		assert_non_null(addr_class_name((enum addr_class)i));
}

/* EGR-5: whoever is refused reads what can be done, and by whom. */
static void a_refusal_says_what_to_do(void **s)
{
	(void)s;
	assert_non_null(strstr(reason_text(REASON_MODE_DENY_ALL), "PUT /v1/sandboxes/{id}/network"));
	assert_non_null(strstr(reason_text(REASON_NOT_ON_ALLOWLIST), "add it to allowedHosts"));
	assert_non_null(strstr(reason_text(REASON_ADDRESS_DENIED), "setting EGRESS_ALLOW_INWARD_FOR"));
	assert_non_null(strstr(reason_text(REASON_ADDRESS_SELF), "no sandbox can ever reach"));
}

static void an_address_in_a_wrong_spelling_is_a_bad_request(void **s)
{
	(void)s;
	static const char *const wrong[] = { "", "127.1", "0x7f000001", "a.example", "[::1]", "::1%lo",
		"1.2.3.4 " };
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		auto_json json_t *o = explain_address(&none, wrong[i]);
		assert_true(same(o, "verdict", "bad_request"));
	}
}

static void allowed(const char *mode, const char *resolve, const char *named)
{
	struct err e = { 0 };
	const struct explain_ask ask = { .mode = mode, .resolve = resolve, .target = "a.example" };
	assert_int_equal(explain_check(&ask, &e), named == NULL ? 0 : -1);
	assert_int_equal(e.code, named == NULL ? ERR_NONE : ERR_BAD_REQUEST);
	if (named != NULL && strstr(e.msg, named) == NULL)
		fail_msg("%s does not name %s", e.msg, named);
}

/* A slip of who asks is no word on a policy. */
static void an_option_that_is_none_is_named_with_what_is_allowed(void **s)
{
	(void)s;
	static const char *const modes[] = { "deny-all", "allow-all", "static", "resolver" };
	allowed(NULL, NULL, NULL);
	for (size_t i = 0; i < 4; i++)
		allowed(modes[i], NULL, NULL);
	allowed("bogus", NULL, "--mode is one of deny-all, allow-all, static and resolver, not \"bogus\"");
	allowed("", NULL, "--mode");
	allowed("unavailable", NULL, "--mode");
	allowed(NULL, "192.0.2.1, 2001:db8::1", NULL);
	allowed(NULL, "NXDOMAIN", NULL);
	allowed(NULL, "servfail", NULL);
	allowed(NULL, "nonsense", "--resolve takes addresses");
	allowed(NULL, "192.0.2.1,192.0.2.300", "\"192.0.2.300\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_of_hosts_is_judged_as_it_says),
		cmocka_unit_test(every_row_of_client_hellos_is_judged_as_it_says),
		cmocka_unit_test(nothing_said_is_nothing_allowed),
		cmocka_unit_test(inward_is_for_listed_hosts_and_never_for_metadata),
		cmocka_unit_test(our_own_addresses_are_refused_whoever_lists_them),
		cmocka_unit_test(our_own_services_are_refused_on_every_loopback_address),
		cmocka_unit_test(report_mode_suspends_the_name_rules_and_nothing_else),
		cmocka_unit_test(a_policy_that_is_not_one_is_refused_naming_the_field),
		cmocka_unit_test(a_new_policy_is_asked_about_what_stands),
		cmocka_unit_test(a_resolvers_answer_decides_and_none_denies),
		cmocka_unit_test(every_reason_has_a_name_of_its_own_and_a_sentence),
		cmocka_unit_test(a_refusal_says_what_to_do),
		cmocka_unit_test(an_address_in_a_wrong_spelling_is_a_bad_request),
		cmocka_unit_test(an_option_that_is_none_is_named_with_what_is_allowed),
	};
	return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
