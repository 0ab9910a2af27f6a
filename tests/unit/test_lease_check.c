/* What a lease may ask for and what it gets when it does not say (SBX-1, SBX-2, SBX-31). */
#include "../t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/js.h"
#include "handlers/handlers.h"
#include "op/param.h"
#include "sandbox/lease_check.h"

static struct conf *conf;

static int up(void **s)
{
	(void)s;
	char path[] = "/tmp/ghlc.XXXXXX";
	struct err e = { 0 };
	int fd = mkstemp(path);
	if (fd < 0)
		return -1;
	static const char text[] = "SANDBOX_MEMORY_MB=1000\nSANDBOX_DISK_MB=600\nSANDBOX_MAX_TTL_S="
				   "5000\nSANDBOX_MAX_MEMORY_MB=4000\n";
	if (write(fd, text, sizeof text - 1) != (ssize_t)sizeof text - 1)
		return -1;
	(void)close(fd);
	conf = conf_load(path, &e);
	(void)unlink(path);
	return conf == NULL ? -1 : 0;
}

static int down(void **s)
{
	(void)s;
	conf_free(conf);
	return 0;
}

static void drop(struct lease_terms *t)
{
	json_decref(t->limits);
	json_decref(t->network.policy);
}

static int check(const struct lease_want *w, struct lease_terms *t, struct err *e)
{
	*e = (struct err){ 0 };
	return lease_check(conf, w, t, e);
}

static void nothing_said_is_an_exec_lease_with_the_defaults(void **s)
{
	(void)s;
	struct lease_terms t;
	struct err e;
	assert_int_equal(check(&(struct lease_want){ .org = "acme", .user = "u" }, &t, &e), 0);
	assert_string_equal(t.class, "exec");
	assert_string_equal(t.image, "host");
	assert_string_equal(t.workdir, "/mnt/data"); /* scratch, as there is no volume */
	assert_int_equal(t.ttl_s, 900);
	assert_int_equal(js_int(t.limits, "memoryMb", 0), 1000);
	assert_int_equal(js_int(t.limits, "diskMb", 0), 600);
	assert_int_equal(js_int(t.limits, "cpuMilli", 0), 2000);
	drop(&t);
}

static void the_time_has_two_ends(void **s)
{
	(void)s;
	struct lease_terms t;
	struct err e;
	for (long long ttl = 10; ttl <= 5000; ttl += 4990) {
		assert_int_equal(check(&(struct lease_want){ .ttl_s = ttl }, &t, &e), 0);
		assert_int_equal(t.ttl_s, ttl);
		drop(&t);
	}
	for (long long ttl = 9; ttl <= 5001; ttl += 4992) {
		assert_int_equal(check(&(struct lease_want){ .ttl_s = ttl }, &t, &e), -1);
		assert_string_equal(e.param, "ttlSec");
		assert_int_equal(e.code, ERR_BAD_REQUEST);
	}
}

static long long most_of(const char *key)
{
	const struct conf_key *k;
	for (size_t i = 0; (k = conf_key_at(i)) != NULL; i++)
		if (strcmp(k->name, key) == 0)
			return k->max;
	fail_msg("no setting %s", key);
	return 0;
}

/* OP-1: the least is what is given, the most what a deployment may allow at all. */
static void the_bounds_in_the_document_are_the_real_ones(void **s)
{
	(void)s;
	static const struct {
		const char *name, *setting;
	} rows[] = { { "memoryMb", "SANDBOX_MAX_MEMORY_MB" }, { "pids", "SANDBOX_MAX_PIDS" },
		{ "diskMb", "SANDBOX_MAX_DISK_MB" }, { "cpus", "SANDBOX_MAX_CPUS" } };
	const struct param *in = op_by_id(handlers_all, "lease_sandbox")->in;
	const struct param *fields = param_find(in, "limits")->fields;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const struct param *p = param_find(fields, rows[i].name);
		assert_int_equal(p->max, most_of(rows[i].setting));
		for (int below = 0; below < 2; below++) {
			auto_json json_t *limits = json_object();
			struct lease_terms t;
			struct err e;
			js_set(limits, p->name,
			    p->type == T_NUM ? json_real(p->least - 0.01 * below)
					     : json_integer(p->min - below));
			assert_int_equal(check(&(struct lease_want){ .limits = limits }, &t, &e), -below);
			if (below == 0)
				drop(&t);
		}
	}
	const struct param *ttl = param_find(in, "ttlSec");
	assert_int_equal(ttl->min, 10); /* the_time_has_two_ends */
	assert_int_equal(ttl->max, most_of("SANDBOX_MAX_TTL_S"));
}

static void scratch_space_follows_memory(void **s)
{
	(void)s;
	static const struct {
		int memory, disk; /* 0: not said */
		int gets;         /* diskMb; 0: refused */
	} cases[] = { { 1000, 0, 600 }, { 400, 0, 300 }, { 64, 0, 48 }, { 400, 300, 300 }, { 400, 301, 0 },
		{ 0, 750, 750 }, { 0, 751, 0 }, { 400, 15, 0 }, { 400, 16, 16 } };
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		auto_json json_t *limits = json_object();
		struct lease_terms t;
		struct err e;
		if (cases[i].memory != 0)
			js_set(limits, "memoryMb", json_integer(cases[i].memory));
		if (cases[i].disk != 0)
			js_set(limits, "diskMb", json_integer(cases[i].disk));
		int rc = check(&(struct lease_want){ .limits = limits }, &t, &e);
		assert_int_equal(rc == 0, cases[i].gets != 0);
		if (rc == 0) {
			assert_int_equal(js_int(t.limits, "diskMb", 0), cases[i].gets);
			drop(&t);
		} else {
			assert_string_equal(e.param, "limits.diskMb");
		}
	}
}

static void parts_of_a_processor_can_be_asked_for(void **s)
{
	(void)s;
	static const struct {
		double cpus;
		int milli;
	} cases[] = { { 0.1, 100 }, { 0.25, 250 }, { 1.5, 1500 }, { 8, 8000 }, { 0.05, 0 }, { 8.1, 0 } };
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		auto_json json_t *limits = json_object();
		struct lease_terms t;
		struct err e;
		js_set(limits, "cpus", json_real(cases[i].cpus));
		int rc = check(&(struct lease_want){ .limits = limits }, &t, &e);
		assert_int_equal(rc == 0, cases[i].milli != 0);
		if (rc == 0) {
			assert_int_equal(js_int(t.limits, "cpuMilli", 0), cases[i].milli);
			drop(&t);
		} else {
			assert_string_equal(e.param, "limits.cpus");
		}
	}
}

static void refused(const struct lease_want *w, const char *param)
{
	struct lease_terms t;
	struct err e;
	assert_int_equal(check(w, &t, &e), -1);
	assert_int_equal(e.code, ERR_BAD_REQUEST);
	assert_string_equal(e.param, param);
}

static void what_this_version_lacks_is_refused_by_name(void **s)
{
	(void)s;
	auto_json json_t *open_net = js_pack("{s:s}", "mode", "allow-all");
	auto_json json_t *hosts = js_pack("{s:s,s:[s]}", "mode", "deny-all", "allowedHosts", "a.example");
	refused(&(struct lease_want){ .class = "desktop", .project = "p" }, "class");
	refused(
	    &(struct lease_want){
		.class = "exec ",
	    },
	    "class");
	refused(&(struct lease_want){ .image = "debian@sha256:0" }, "image");
	refused(&(struct lease_want){ .network = open_net }, "network.mode");
	refused(&(struct lease_want){ .network = hosts }, "network.allowedHosts");
}

/* SBX-1, SBX-62 */
static void dev_needs_a_project_of_a_caller_and_none_of_a_run(void **s)
{
	(void)s;
	struct lease_terms t;
	struct err e;
	refused(&(struct lease_want){ .class = "dev" }, "project");
	assert_int_equal(check(&(struct lease_want){ .class = "dev", .project = "p" }, &t, &e), 0);
	assert_string_equal(t.workdir, "/work");
	assert_int_equal(t.ttl_s, 5000); /* the most this deployment allows; 14400 otherwise */
	drop(&t);
	assert_int_equal(check(&(struct lease_want){ .class = "dev", .session = "ses_x" }, &t, &e), 0);
	assert_string_equal(t.workdir, "/mnt/data");
	assert_string_equal(t.project, "");
	drop(&t);
	assert_int_equal(check(&(struct lease_want){ .project = "p" }, &t, &e), 0);
	assert_string_equal(t.class, "exec");
	drop(&t);
}

/* SBX-3 */
static void a_project_is_its_slug(void **s)
{
	(void)s;
	static const char *const same[] = { "Deep Research", "deep-research", " DEEP  research!",
		"deep_research" };
	char slug[LEASE_PROJECT_MAX], long_name[100];
	struct err e = { 0 };
	for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
		assert_int_equal(lease_project(same[i], slug, &e), 0);
		assert_string_equal(slug, "deep-research");
	}
	memset(long_name, 'a', sizeof long_name - 1);
	long_name[sizeof long_name - 1] = '\0';
	refused(&(struct lease_want){ .project = "!?" }, "project");
	refused(&(struct lease_want){ .project = long_name }, "project");
	refused(&(struct lease_want){ .project = ".." }, "project");
}

static void what_is_there_can_be_named(void **s)
{
	(void)s;
	struct lease_terms t;
	struct err e;
	auto_json json_t *none = js_pack("{s:s,s:[]}", "mode", "deny-all", "allowedHosts"),
			 *empty = json_object();
	assert_int_equal(
	    check(&(struct lease_want){ .class = "exec", .image = "host", .network = none }, &t, &e), 0);
	drop(&t);
	assert_int_equal(check(&(struct lease_want){ .network = empty }, &t, &e), 0);
	drop(&t);
}

static void names_of_variables_are_judged(void **s)
{
	(void)s;
	static const char *const good[] = { "A", "_", "a1", "SANDBOX_ANYTHING", "LD_PRELOAD" };
	static const char *const bad[] = { "", "1", "A-B", "A=B", "A B", "A\n", "\xc3\x84", "SANDBOX_TIER",
		"HTTP_PROXY", "https_proxy", "ALL_PROXY", "no_proxy", "NODE_USE_ENV_PROXY" };
	struct lease_terms t;
	struct err e;
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		auto_json json_t *env = js_pack("{s:s}", good[i], "v");
		assert_int_equal(check(&(struct lease_want){ .env = env }, &t, &e), 0);
		drop(&t);
	}
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		auto_json json_t *env = js_pack("{s:s}", bad[i], "v");
		assert_int_equal(check(&(struct lease_want){ .env = env }, &t, &e), -1);
		assert_int_equal(strncmp(e.param, "env", 3), 0);
	}
}

static void an_environment_has_a_size(void **s)
{
	(void)s;
	auto_free char *big = malloc(200000);
	assert_non_null(big);
	memset(big, 'x', 199999);
	big[199999] = '\0';
	auto_json json_t *env = js_pack("{s:s}", "BIG", big);
	refused(&(struct lease_want){ .env = env }, "env");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_said_is_an_exec_lease_with_the_defaults),
		cmocka_unit_test(the_time_has_two_ends),
		cmocka_unit_test(the_bounds_in_the_document_are_the_real_ones),
		cmocka_unit_test(scratch_space_follows_memory),
		cmocka_unit_test(parts_of_a_processor_can_be_asked_for),
		cmocka_unit_test(what_this_version_lacks_is_refused_by_name),
		cmocka_unit_test(dev_needs_a_project_of_a_caller_and_none_of_a_run),
		cmocka_unit_test(a_project_is_its_slug),
		cmocka_unit_test(what_is_there_can_be_named),
		cmocka_unit_test(names_of_variables_are_judged),
		cmocka_unit_test(an_environment_has_a_size),
	};
	return cmocka_run_group_tests_name("lease_check", tests, up, down);
}
