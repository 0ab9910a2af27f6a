/* What model names mean (MOD-2), over rows made by hand. */
#include "../t.h"

#include <string.h>

#include "base/js.h"
#include "model/nearest.h"
#include "model/route.h"

#define LIST(...) ((const char *const[]){ __VA_ARGS__ })
#define N(a)      ((int)(sizeof(a) / sizeof *(a)))

static const char *const to_backup[] = { "backup/large", "nobody/here", "own/large" };
static const char *const to_own[] = { "own/large" };
static struct provider_model own_models[] = {
	{ .name = "large", .upstream = "l-1", .fallbacks = to_backup, .n_fallbacks = 3, .created_s = 7 },
	{ .name = "small", .upstream = "s-1" },
	{ .name = "meta/llama", .upstream = "meta/llama" },
};
static struct provider_model backup_models[] = { { .name = "large", .upstream = "b" },
	{ .name = "only-here", .upstream = "o", .fallbacks = to_own } };
static struct provider_model off_models[] = { { .name = "large", .upstream = "x" } };
static struct provider_model shared_models[] = { { .name = "small", .upstream = "d" },
	{ .name = "common", .upstream = "c" }, { .name = "large", .upstream = "shadow" } };
static struct provider providers[] = {
	{ .org = "acme", .name = "backup", .enabled = true, .models = backup_models, .n_models = 2 },
	{ .org = "acme", .name = "off", .enabled = false, .models = off_models, .n_models = 1 },
	{ .org = "acme", .name = "own", .enabled = true, .models = own_models, .n_models = 3 },
	{ .org = "admin", .name = "own", .enabled = true, .models = shared_models, .n_models = 3 },
	{ .org = "admin", .name = "shared", .enabled = true, .models = shared_models, .n_models = 2 },
};
static struct alias aliases[] = {
	{ .org = "acme",
	    .name = "fast",
	    .targets = (const char *const[]){ "own/small", "off/large", "deep" },
	    .n_targets = 3 },
	{ .org = "acme", .name = "loop", .targets = (const char *const[]){ "loop2" }, .n_targets = 1 },
	{ .org = "acme",
	    .name = "loop2",
	    .targets = (const char *const[]){ "loop", "own/small" },
	    .n_targets = 2 },
	{ .org = "acme",
	    .name = "only-here",
	    .targets = (const char *const[]){ "only-here" },
	    .n_targets = 1 },
	{ .org = "admin",
	    .name = "deep",
	    .targets = (const char *const[]){ "shared/common" },
	    .n_targets = 1 },
	{ .org = "admin", .name = "free", .targets = (const char *const[]){ "own/large" }, .n_targets = 1 },
	{ .org = "admin",
	    .name = "sneaky",
	    .targets = (const char *const[]){ "backup/large" },
	    .n_targets = 1 },
};
static struct org_models org = { .org = "acme",
	.tier = "free",
	.providers = providers,
	.n_providers = N(providers),
	.aliases = aliases,
	.n_aliases = N(aliases) };

static struct mem *mem;

static int setup(void **s)
{
	(void)s;
	mem = mem_new();
	org.allow[0] = org.allow[1] = (struct allowlist){ 0 };
	org.tier = "free";
	return 0;
}
static int teardown(void **s)
{
	(void)s;
	mem_free(mem);
	return 0;
}

/* The addresses that a name leads to, with the upstream's names, as one text. */
static const char *leads(const char *name)
{
	struct err e = { 0 };
	struct model_route r;
	if (route_of(&org, mem, name, &r, &e) != 0)
		return mem_fmt(mem, "%s", e.reason);
	const char *text = "";
	for (int i = 0; i < r.n; i++)
		text = mem_fmt(mem, "%s%s%s=%s", text, i == 0 ? "" : " ", r.targets[i].address,
		    r.targets[i].model->upstream);
	return text;
}

static void a_name_leads_to_its_targets_and_then_to_their_fallbacks(void **s) /* MOD-2, MOD-4 */
{
	(void)s;
	assert_string_equal(leads("own/large"), "own/large=l-1 backup/large=b");
	assert_string_equal(leads("own/meta/llama"), "own/meta/llama=meta/llama");
	assert_string_equal(leads("meta/llama"), "own/meta/llama=meta/llama");
	assert_string_equal(leads("fast"), "own/small=s-1 shared/common=c");
	assert_string_equal(leads("common"), "model_not_found"); /* two of the deployment's have it */
	assert_string_equal(leads("small"), "own/small=s-1");    /* its own hides the deployment's */
	assert_string_equal(leads("loop"), "own/small=s-1");
	assert_string_equal(leads("only-here"), "backup/only-here=o"); /* what the alias would hide */
}

static void the_deployments_names_do_not_mean_an_orgs_rows(void **s)
{
	(void)s;
	assert_string_equal(leads("free"), "own/large=shadow");
	assert_string_equal(leads("sneaky"), "model_not_found");
}

static void a_provider_that_is_off_is_as_if_it_were_not_there(void **s)
{
	(void)s;
	assert_string_equal(leads("off/large"), "model_not_found");
}

static void no_name_is_the_tiers_default(void **s)
{
	(void)s;
	assert_string_equal(leads(NULL), "own/large=shadow");
	assert_string_equal(leads(""), "own/large=shadow");
	org.tier = "paid";
	assert_string_equal(leads(NULL), "model_required");
}

static void what_is_not_on_both_lists_is_not_used(void **s)
{
	(void)s;
	org.allow[0] = (struct allowlist){ LIST("own/*", "fast"), 2 };
	assert_string_equal(leads("own/large"), "own/large=l-1"); /* its fallback is passed over */
	assert_string_equal(leads("backup/large"), "model_not_allowed");
	assert_string_equal(leads("fast"), "own/small=s-1 shared/common=c"); /* by its name */
	org.allow[0] = (struct allowlist){ LIST("loop2"), 1 };
	assert_string_equal(leads("loop"), "own/small=s-1"); /* one on the way */
	org.allow[0] = (struct allowlist){ LIST("own/*", "fast"), 2 };
	org.allow[1] = (struct allowlist){ LIST("shared/*"), 1 };
	assert_string_equal(leads("own/large"), "model_not_allowed");
	assert_string_equal(leads("fast"), "shared/common=c");
	org.allow[1] = (struct allowlist){ LIST("x"), 0 };
	assert_string_equal(leads("own/small"), "model_not_allowed");
}

/* MOD-2: the operator's word on an org is kept against the org's own admin. */
static void the_operators_list_means_what_the_operator_named(void **s)
{
	(void)s;
	org.allow[1] = (struct allowlist){ LIST("own/*", "fast", "deep", "loop"), 4 };
	/* The org has a provider of the name of the deployment's: it is not the one that is meant. */
	assert_string_equal(leads("own/large"), "model_not_allowed");
	assert_string_equal(leads("large"), "model_not_found"); /* two of its own have it */
	assert_string_equal(leads("own/common"), "own/common=c");
	assert_string_equal(leads("free"), "own/large=shadow");
	/* An alias of its own brings it nowhere; the deployment's does, with and without one of its own before it. */
	assert_string_equal(leads("loop"), "model_not_allowed");
	assert_string_equal(leads("deep"), "shared/common=c");
	assert_string_equal(leads("fast"), "shared/common=c");
	assert_string_equal(leads("shared/common"), "model_not_allowed");
	/* A provider that only the org has is meant by its name; its fallback is asked only where that is allowed, too. */
	org.allow[1] = (struct allowlist){ LIST("backup/*"), 1 };
	assert_string_equal(leads("backup/large"), "backup/large=b");
	assert_string_equal(leads("only-here"), "backup/only-here=o");
	org.allow[1] = (struct allowlist){ LIST("own/large", "backup/only-here"), 2 };
	assert_string_equal(leads("only-here"), "backup/only-here=o");
	backup_models[1].n_fallbacks = 1; /* to its own own/large */
	assert_string_equal(leads("only-here"), "backup/only-here=o");
	backup_models[1].n_fallbacks = 0;
	/* What is listed is what a call finds: of two of one address the own one, which is not allowed. */
	org.allow[1] = (struct allowlist){ LIST("own/*"), 1 };
	auto_json json_t *rows = route_list(&org, mem);
	const char *text = "";
	size_t i;
	json_t *v;
	json_array_foreach(rows, i, v)
		text = mem_fmt(mem, "%s %s", text, js_str(v, "id"));
	assert_string_equal(text, " free own/common");
}

static void an_unknown_model_is_answered_with_the_nearest_names(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct model_route r;
	assert_int_equal(route_of(&org, mem, "own/lagre", &r, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_string_equal(e.param, "model");
	assert_non_null(strstr(e.msg, "nearest are \"own/large\""));
	err_clear(&e);
	assert_int_equal(route_of(&org, mem, "Only-hear", &r, &e), -1);
	assert_non_null(strstr(e.msg, "\"only-here\", \"backup/only-here\""));
	err_clear(&e);
	assert_int_equal(route_of(&org, mem, "something else entirely", &r, &e), -1);
	assert_non_null(strstr(e.msg, "GET /v1/models"));
	/* What the org may not use is not offered to it. */
	org.allow[0] = (struct allowlist){ LIST("backup/*"), 1 };
	err_clear(&e);
	assert_int_equal(route_of(&org, mem, "own/lagre", &r, &e), -1);
	assert_null(strstr(e.msg, "own/large\""));
}

static void distances_are_those_of_people(void **s)
{
	(void)s;
	assert_int_equal(nearest_distance("gpt-5", "gpt-5", 3), 0);
	assert_int_equal(nearest_distance("GPT-5", "gpt-5", 3), 0);
	assert_int_equal(nearest_distance("gtp-5", "gpt-5", 3), 1);
	assert_int_equal(nearest_distance("gpt5", "gpt-5", 3), 1);
	assert_int_equal(nearest_distance("gpt-6", "gpt-5", 3), 1);
	assert_int_equal(nearest_distance("", "abc", 3), 3);
	assert_int_equal(nearest_distance("", "abcd", 3), 4);
	assert_int_equal(nearest_distance("kitten", "sitting", 5), 3);
	char longer[NEAREST_BYTES + 2];
	memset(longer, 'a', sizeof longer - 1);
	longer[sizeof longer - 1] = 0;
	assert_int_equal(nearest_distance(longer, longer, 3), 4);
}

static void the_list_holds_what_a_call_would_find(void **s)
{
	(void)s;
	org.allow[0] = (struct allowlist){ LIST("own/*", "fast", "free", "backup/large"), 4 };
	auto_json json_t *rows = route_list(&org, mem);
	const char *text = "";
	size_t i;
	json_t *v;
	json_array_foreach(rows, i, v) {
		text = mem_fmt(mem, "%s %s", text, js_str(v, "id"));
		assert_string_not_equal(leads(js_str(v, "id")), "model_not_found");
		assert_string_equal(js_str(v, "object"), "model");
	}
	assert_string_equal(
	    text, " backup/large fast free loop loop2 own/common own/large own/meta/llama own/small");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
		    a_name_leads_to_its_targets_and_then_to_their_fallbacks, setup, teardown),
		cmocka_unit_test_setup_teardown(
		    the_deployments_names_do_not_mean_an_orgs_rows, setup, teardown),
		cmocka_unit_test_setup_teardown(
		    a_provider_that_is_off_is_as_if_it_were_not_there, setup, teardown),
		cmocka_unit_test_setup_teardown(no_name_is_the_tiers_default, setup, teardown),
		cmocka_unit_test_setup_teardown(
		    the_operators_list_means_what_the_operator_named, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_not_on_both_lists_is_not_used, setup, teardown),
		cmocka_unit_test_setup_teardown(
		    an_unknown_model_is_answered_with_the_nearest_names, setup, teardown),
		cmocka_unit_test_setup_teardown(distances_are_those_of_people, setup, teardown),
		cmocka_unit_test_setup_teardown(the_list_holds_what_a_call_would_find, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
