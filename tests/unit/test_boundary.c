#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "sandbox/boundary.h"

static const char *const orgs[] = { "admin", "acme", "Admin", "ADMIN", "admin ", " admin", "admins", "" };
static const char *const names[] = { "runc", "gvisor", "kata-clh", "kata-fc" };
static const char *const asked[] = { NULL, "runc", "gvisor", "kata-clh", "kata-fc", "", "RUNC", "Gvisor",
	"crun", "runsc", "kata", "runc " };
static const char *const wished[] = { "", "runc", "gvisor", "kata-clh", "kata-fc", "RunC", "kata" };
#define N(a) (sizeof(a) / sizeof((a)[0]))
enum { OFFER_SETS = 32 }; /* every subset of {"", four names} */

static const struct boundary_row *must_find(const char *name)
{
	const struct boundary_row *r = boundary_find(name);
	assert_non_null(r);
	return r;
}

static bool in(const char *const *list, const char *name)
{
	for (; *list != NULL; list++)
		if (strcmp(*list, name) == 0)
			return true;
	return false;
}

static void offer(unsigned set, const char *list[6])
{
	size_t n = 0;
	if (set & 16)
		list[n++] = "";
	for (size_t i = 0; i < N(names); i++)
		if (set & (1U << i))
			list[n++] = names[i];
	list[n] = NULL;
}

typedef void check_fn(
    const struct boundary_ask *ask, int rc, const struct boundary *got, const struct err *e);

/* Every (org, preference, request, volume, contained, offered), each judged by `check`. */
static void over_everything(check_fn *check)
{
	size_t cases = 0;
	const size_t n = N(orgs) * N(asked) * N(wished) * 4 * OFFER_SETS;
	for (size_t i = 0; i < n; i++) {
		size_t k = i;
		struct boundary_ask ask = { 0 };
		const char *list[6];
		ask.org = orgs[k % N(orgs)], k /= N(orgs);
		ask.requested = asked[k % N(asked)], k /= N(asked);
		ask.preference = wished[k % N(wished)], k /= N(wished);
		ask.volume = k & 1, ask.contained = k & 2, k /= 4;
		offer((unsigned)k, list);
		ask.offered = list;
		struct boundary got;
		struct err e = { 0 };
		int rc = boundary_derive(&ask, &got, &e);
		assert_int_equal(rc == 0, e.code == ERR_NONE);
		check(&ask, rc, &got, &e);
		cases++;
	}
	assert_int_equal(cases, 8 * 12 * 7 * 4 * 32);
}

static void check_volume(
    const struct boundary_ask *ask, int rc, const struct boundary *got, const struct err *e)
{
	(void)e;
	if (rc == 0 && ask->volume && got->runtime[0] != '\0')
		assert_true(must_find(got->runtime)->shares);
}

/* SBX-16 */
static void no_volume_lands_on_a_runtime_that_cannot_hold_it(void **s)
{
	(void)s;
	over_everything(check_volume);
}

static void check_kernel(
    const struct boundary_ask *ask, int rc, const struct boundary *got, const struct err *e)
{
	(void)e;
	if (rc != 0)
		return;
	if (got->runtime[0] == '\0') {
		assert_false(got->kernel);
		return;
	}
	assert_int_equal(got->kernel, must_find(got->runtime)->kernel);
	if (!got->kernel) {
		assert_string_equal(ask->org, "admin");
		assert_true(ask->contained);
	}
}

/* SBX-16, SBX-11 */
static void nobody_but_admin_is_given_a_shared_kernel_by_name(void **s)
{
	(void)s;
	over_everything(check_kernel);
}

static void check_placed(
    const struct boundary_ask *ask, int rc, const struct boundary *got, const struct err *e)
{
	(void)e;
	if (rc == 0)
		assert_true(in(ask->offered, got->runtime));
}

/* SBX-16 */
static void nothing_is_answered_that_no_node_offers(void **s)
{
	(void)s;
	over_everything(check_placed);
}

/* The rules of SBX-12 said once more, independently of the code under test. */
static bool may_have(const struct boundary_ask *ask)
{
	if (!in((const char *const[]){ "runc", "gvisor", "kata-clh", "kata-fc", NULL }, ask->requested))
		return false;
	if (strcmp(ask->requested, "runc") == 0 && (strcmp(ask->org, "admin") != 0 || !ask->contained))
		return false;
	if (strcmp(ask->requested, "kata-fc") == 0 && ask->volume)
		return false;
	return in(ask->offered, ask->requested);
}

static void check_request(
    const struct boundary_ask *ask, int rc, const struct boundary *got, const struct err *e)
{
	if (ask->requested == NULL)
		return;
	if (boundary_find(ask->preference) == NULL && ask->preference[0] != '\0') {
		assert_int_equal(e->code, ERR_UNAVAILABLE);
		return;
	}
	assert_int_equal(rc == 0, may_have(ask));
	if (rc == 0) {
		assert_string_equal(got->runtime, ask->requested);
		return;
	}
	assert_int_equal(e->code, ERR_BAD_REQUEST);
	assert_string_equal(e->param, "runtime");
	assert_non_null(strstr(e->msg, "leave runtime out"));
}

/* SBX-12 */
static void a_request_is_honoured_exactly_or_refused_naming_runtime(void **s)
{
	(void)s;
	over_everything(check_request);
}

static void check_derived(
    const struct boundary_ask *ask, int rc, const struct boundary *got, const struct err *e)
{
	if (ask->requested != NULL)
		return;
	bool ours = strcmp(ask->org, "admin") == 0, known = boundary_find(ask->preference) != NULL;
	const char *want = "gvisor";
	if (ask->preference[0] != '\0' && !known)
		want = NULL;
	else if (ours && ask->contained && in(ask->offered, "runc"))
		want = "runc";
	else if (!known)
		want = "";
	else if (strcmp(ask->preference, "kata-clh") == 0)
		want = "kata-clh";
	else if (strcmp(ask->preference, "kata-fc") == 0 && !ask->volume)
		want = "kata-fc";
	else if (strcmp(ask->preference, "runc") == 0 && ours && ask->contained)
		want = NULL; /* it fits, and no node offers it */
	if (want != NULL && in(ask->offered, want)) {
		assert_int_equal(rc, 0);
		assert_string_equal(got->runtime, want);
	} else {
		assert_int_equal(e->code, ERR_UNAVAILABLE);
		assert_int_equal(err_http(e->code), 503);
	}
}

/* SBX-13, SBX-17 */
static void without_a_request_the_deployment_decides(void **s)
{
	(void)s;
	over_everything(check_derived);
}

static void check_default(
    const struct boundary_ask *ask, int rc, const struct boundary *got, const struct err *e)
{
	(void)e;
	if (rc == 0 && got->runtime[0] == '\0')
		assert_string_equal(ask->preference, "");
}

/* SBX-17 */
static void the_hosts_default_is_answered_only_for_an_empty_preference(void **s)
{
	(void)s;
	over_everything(check_default);
}

static void check_advice(
    const struct boundary_ask *ask, int rc, const struct boundary *got, const struct err *e)
{
	(void)got;
	if (rc == 0)
		return;
	assert_true(strlen(e->msg) < ERR_MSG_MAX - 1);
	const char *p = strstr(e->msg, "ask for \"");
	if (p == NULL)
		return;
	char name[16] = { 0 };
	assert_int_equal(sscanf(p, "ask for \"%15[^\"]\"", name), 1);
	struct boundary_ask again = *ask;
	again.requested = name;
	struct boundary b;
	struct err e2 = { 0 };
	assert_int_equal(boundary_derive(&again, &b, &e2), 0);
}

static void what_a_refusal_advises_succeeds(void **s)
{
	(void)s;
	over_everything(check_advice);
}

/* SBX-10 */
static void the_table_is_the_published_one(void **s)
{
	(void)s;
	static const bool kernel[] = { false, true, true, true }, shares[] = { true, true, true, false };
	for (size_t i = 0; i < N(names); i++) {
		assert_string_equal(boundary_table[i].name, names[i]);
		assert_int_equal(boundary_table[i].kernel, kernel[i]);
		assert_int_equal(boundary_table[i].shares, shares[i]);
	}
	assert_null(boundary_table[N(names)].name);
	assert_null(boundary_find(NULL));
	assert_null(boundary_find(""));
	assert_null(boundary_find("Gvisor"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_is_the_published_one),
		cmocka_unit_test(no_volume_lands_on_a_runtime_that_cannot_hold_it),
		cmocka_unit_test(nobody_but_admin_is_given_a_shared_kernel_by_name),
		cmocka_unit_test(nothing_is_answered_that_no_node_offers),
		cmocka_unit_test(a_request_is_honoured_exactly_or_refused_naming_runtime),
		cmocka_unit_test(without_a_request_the_deployment_decides),
		cmocka_unit_test(the_hosts_default_is_answered_only_for_an_empty_preference),
		cmocka_unit_test(what_a_refusal_advises_succeeds),
	};
	return cmocka_run_group_tests_name("boundary", tests, NULL, NULL);
}
