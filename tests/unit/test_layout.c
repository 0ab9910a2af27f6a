#include "../t.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/js.h"
#include "sandbox/layout.h"

static const char roots[] = "acme=/srv/acme acme=/data other=/srv/other";

static json_t *check(const char *org, const char *text, struct err *e)
{
	struct err bad = { 0 };
	auto_json json_t *in = js_parse(text, strlen(text), &bad);
	assert_non_null(in);
	*e = (struct err){ 0 };
	return layout_check(roots, org, in, e);
}

/* SBX-32: the defaults, what may be written, and what counts as the root of it all. */
static void a_layout_is_made_explicit(void **s)
{
	(void)s;
	struct err e;
	struct layout l;
	auto_json json_t *got = check("acme",
	    "{\"outputs\":{\"hostPath\":\"/srv/acme/out\"},\"scratch\":{},\"toolResults\":{\"hostPath\":\"/"
	    "data\"},"
	    "\"transcripts\":{\"hostPath\":\"/data/t\"},\"skills\":[{\"id\":\"a.b-c_1\",\"hostPath\":\"/srv/"
	    "acme/s\"}]}",
	    &e);
	assert_non_null(got);
	assert_string_equal(js_str(got, "workdir"), "/mnt/user-data/outputs");
	layout_read(got, &l);
	assert_int_equal(l.n_mounts, 4);
	assert_string_equal(l.mounts[0].at, "/mnt/user-data/outputs");
	assert_string_equal(l.mounts[0].root, "/srv/acme");
	assert_false(l.mounts[0].read_only);
	assert_string_equal(l.mounts[1].at, "/mnt/user-data/tool_results");
	assert_string_equal(l.mounts[1].root, "/data");
	assert_true(l.mounts[1].read_only);
	assert_string_equal(l.mounts[2].at, "/mnt/transcripts");
	assert_string_equal(l.mounts[3].at, "/mnt/skills/a.b-c_1");
	assert_string_equal(l.scratch[0], "/mnt/user-data/scratch");
	assert_null(l.scratch[1]);
	assert_string_equal(l.roots[0], "/mnt/user-data/outputs");
	assert_string_equal(l.roots[1], "/mnt/user-data/scratch");
	assert_null(l.roots[2]);
	assert_string_equal(l.ro_roots[2], "/mnt/skills/a.b-c_1");
	assert_null(l.ro_roots[3]);
}

static bool complains(const struct err *e, const char *param)
{
	for (int i = 0; i < e->n_details; i++)
		if (strcmp(e->details[i].param, param) == 0)
			return true;
	return false;
}

static void each_violation_names_its_field(void **s)
{
	(void)s;
	static const struct {
		const char *text, *param;
	} bad[] = {
		{ "{\"scratch\":{}}", "mounts.outputs" },
		{ "{\"outputs\":{},\"uploads\":{}}", "mounts.uploads.hostPath" },
		{ "{\"outputs\":{\"hostPath\":\"srv/acme\"}}", "mounts.outputs.hostPath" },
		{ "{\"outputs\":{\"hostPath\":\"/srv/acme/../other\"}}", "mounts.outputs.hostPath" },
		{ "{\"outputs\":{\"hostPath\":\"/srv/acme/..\"}}", "mounts.outputs.hostPath" },
		{ "{\"outputs\":{\"hostPath\":\"/srv//acme\"}}", "mounts.outputs.hostPath" },
		{ "{\"outputs\":{\"hostPath\":\"/srv/acme2\"}}", "mounts.outputs.hostPath" },
		{ "{\"outputs\":{\"hostPath\":\"/srv/other\"}}", "mounts.outputs.hostPath" },
		{ "{\"outputs\":{\"path\":\"/mnt\"}}", "mounts.outputs.path" },
		{ "{\"outputs\":{\"path\":\"/mntx\"}}", "mounts.outputs.path" },
		{ "{\"outputs\":{\"path\":\"/mnt/../etc\"}}", "mounts.outputs.path" },
		{ "{\"outputs\":{\"path\":\"/mnt/a\"},\"scratch\":{\"path\":\"/mnt/a\"}}",
		    "mounts.scratch.path" },
		{ "{\"outputs\":{\"path\":\"/mnt/a\"},\"scratch\":{\"path\":\"/mnt/a/b\"}}",
		    "mounts.scratch.path" },
		{ "{\"outputs\":{\"path\":\"/mnt/a/b\"},\"scratch\":{\"path\":\"/mnt/a\"}}", "mounts" },
		{ "{\"outputs\":{},\"skills\":[{\"id\":\"a/b\",\"hostPath\":\"/data\"}]}",
		    "mounts.skills[0].id" },
		{ "{\"outputs\":{},\"skills\":[{\"id\":\"a..b\",\"hostPath\":\"/data\"}]}",
		    "mounts.skills[0].id" },
		{ "{\"outputs\":{},\"skills\":[{\"id\":\".\",\"hostPath\":\"/data\"}]}",
		    "mounts.skills[0].id" },
		{ "{\"outputs\":{},\"skills\":[{\"id\":\"a\",\"hostPath\":\"/"
		  "data\"},{\"id\":\"a\",\"hostPath\":\"/data\","
		  "\"path\":\"/mnt/z\"}]}",
		    "mounts.skills[1].id" },
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct err e;
		auto_json json_t *got = check("acme", bad[i].text, &e);
		if (got != NULL || e.code != ERR_BAD_REQUEST || !complains(&e, bad[i].param))
			fail_msg("%s: %s %s", bad[i].text, e.param, e.msg);
	}
}

static void all_violations_are_told_together(void **s)
{
	(void)s;
	struct err e;
	auto_json json_t *got = check("acme",
	    "{\"scratch\":{\"path\":\"/"
	    "etc\"},\"uploads\":{},\"skills\":[{\"id\":\"..\",\"hostPath\":\"x\"}]}",
	    &e);
	assert_null(got);
	assert_int_equal(e.n_details, 5);
}

static void another_orgs_directories_are_not_there(void **s)
{
	(void)s;
	char root[PATH_MAX];
	assert_true(layout_root(roots, "acme", "/data/x", root, sizeof root));
	assert_string_equal(root, "/data");
	assert_false(layout_root(roots, "acm", "/data/x", root, sizeof root));
	assert_false(layout_root(roots, "other", "/data/x", root, sizeof root));
	assert_false(layout_root("", "acme", "/data/x", root, sizeof root));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_layout_is_made_explicit),
		cmocka_unit_test(each_violation_names_its_field),
		cmocka_unit_test(all_violations_are_told_together),
		cmocka_unit_test(another_orgs_directories_are_not_there),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
