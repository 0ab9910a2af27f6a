/*
 * The vendors' own programs against the gateway (MOD-1): their SDKs, and in the long form their coding agents, each unmodified and by
 * base URL and key alone. The scripted vendor behind speaks each of the three wires, so most calls pass from one into another.
 */
#include "../span.h"
#include "../t.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "gw.h"
#include "io/proc.h"

enum { CLIENT_MS = 600000, AGENTS_MS = 600000, MAX_OUT = 1 << 20 };

static struct stack st;
static struct stack_org org, poor;
static struct fakemodel *vendor;
static int agents_port;

/* Where tests/clients/NAME is installed. npm asks its registry, so it gets the environment that it is used to. */
static const char *installed(struct mem *m, const char *name, const char *cwd)
{
	struct err e = { 0 };
	auto_proc struct proc_result made = { 0 };
	const char *const argv[] = { "/bin/sh", "tests/clients/install.sh", name, NULL };
	assert_int_equal(proc_run(&(struct proc_opts){ .argv = argv,
				      .env = (const char *const *)environ,
				      .cwd = cwd,
				      .stdin_fd = -1,
				      .stdout_fd = -1,
				      .stderr_fd = -1,
				      .timeout_ms = AGENTS_MS },
			     &made, &e),
	    0);
	if (made.exit_code != 0)
		fail_msg("%s", buf_c(&made.errout));
	return mem_strn(m, buf_c(&made.out), strcspn(buf_c(&made.out), "\n"));
}

/* A program of tests/clients, its cases told; fails with them. */
static void judged_by(const char *name, int timeout_ms, const char *const *more)
{
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	auto_proc struct proc_result r = { 0 };
	char cwd[1024];
	assert_non_null(getcwd(cwd, sizeof cwd));
	const char *home = getenv("HOME");
	const char *const env[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8",
		mem_fmt(m, "HOME=%s", home == NULL ? "/tmp" : home),
		mem_fmt(m, "GATEHOUSE_URL=%s", st.url[0]), mem_fmt(m, "GATEHOUSE_KEY=%s", org.key),
		mem_fmt(m, "GATEHOUSE_POOR_KEY=%s", poor.key), mem_fmt(m, "NODE_EXTRA_CA_CERTS=%s", st.ca),
		more == NULL ? NULL : more[0], NULL };
	const char *dir = installed(m, name, cwd);
	const char *const argv[] = { "node", mem_fmt(m, "%s/check.mjs", dir), NULL };
	assert_int_equal(proc_run(&(struct proc_opts){ .argv = argv,
				      .env = env,
				      .cwd = cwd,
				      .stdin_fd = -1,
				      .stdout_fd = -1,
				      .stderr_fd = -1,
				      .timeout_ms = timeout_ms,
				      .max_out_bytes = MAX_OUT },
			     &r, &e),
	    0);
	(void)printf("%s%s", buf_c(&r.out), buf_c(&r.errout)); /* cmocka's own would cut it */
	(void)fflush(stdout);
	assert_false(r.timed_out);
	assert_int_equal(r.exit_code, 0);
}

static void openais_sdk_gets_what_it_knows_whoever_answers(void **s) /* MOD-1, MOD-10 */
{
	(void)s;
	judged_by("openai", CLIENT_MS, NULL);
}

static void anthropics_sdk_gets_what_it_knows_whoever_answers(void **s) /* MOD-1, MOD-10 */
{
	(void)s;
	judged_by("anthropic", CLIENT_MS, NULL);
}

/* Each with one shell command, answered in another wire than its own. */
static void coding_agents_do_a_task(void **s) /* MOD-1 */
{
	(void)s;
	if (getenv("GATEHOUSE_HEAVY") == NULL)
		skip();
	auto_mem struct mem *m = mem_new();
	judged_by(
	    "agents", AGENTS_MS, (const char *const[]){ mem_fmt(m, "VENDOR_PORT=%d", agents_port), NULL });
}

static int number(const char *sql)
{
	auto_buf struct buf out = BUF(1 << 16);
	stack_sql(&st, sql, &out);
	return atoi(buf_c(&out));
}

/* Spans are stored, and calls of clients that left are settled, a moment later. */
static void comes_to(const char *sql, int least, int most)
{
	int64_t end = clock_ms() + PATIENCE_MS;
	int n = number(sql);
	while ((n < least || n > most) && clock_ms() < end) {
		(void)usleep(50000);
		n = number(sql);
	}
	if (n < least || n > most)
		fail_msg("%d: %s", n, sql);
}

/* What the SDKs called is on the books and in traces, and each span names the org that called (RUN-8). */
static void every_call_has_its_span_and_its_charge(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	comes_to(mem_fmt(m, "SELECT count(*) FROM usage_rows WHERE org = '%s'", org.slug), 40, INT_MAX);
	comes_to(mem_fmt(m, "SELECT count(*) FROM spans WHERE org = '%s'", org.slug), 40, INT_MAX);
	comes_to(mem_fmt(m, "SELECT count(*) FROM reservations WHERE org = '%s'", org.slug), 0, 0);
	comes_to(
	    "SELECT count(*) FROM spans WHERE attributes ->> 'gatehouse.org' IS DISTINCT FROM org", 0, 0);
	auto_web struct web w = { 0 }, other = { 0 };
	web_json(&st, "GET", "/v1/traces?limit=200", org.key, NULL, &w);
	assert_int_equal(w.status, 200);
	assert_true(json_array_size(js_get(w.json, "data")) >= 40);
	web_json(&st, "GET", "/v1/traces", poor.key, NULL, &other);
	assert_null(strstr(other.body, org.slug));
}

static void add_providers(const char *key)
{
	static const char *const wires[][2] = { { "chat", "openai-chat" }, { "messages", "anthropic" },
		{ "responses", "openai-responses" } };
	for (int i = 0; i < 3; i++)
		gw_provider(&st, vendor, key, wires[i][0], wires[i][1], 1, "ok tools endless@openai");
	/* Of their own: their keys cool down. */
	gw_provider(&st, vendor, key, "faulty", "openai-chat", 1, "cut@openai 500-once@openai 503@openai");
	gw_provider(&st, vendor, key, "faulty-messages", "anthropic", 1, "cut@anthropic");
}

/* The agents' own vendor, in place of the other one. */
static void add_agents_vendor(void)
{
	static const char *const names[] = { "chat", "messages", "responses" };
	auto_mem struct mem *m = mem_new();
	for (int i = 0; i < 3; i++) {
		auto_web struct web w = { 0 };
		web_json(&st, "PATCH", mem_fmt(m, "/v1/models/providers/%s", names[i]), org.key,
		    js_pack("{s:s, s:[{s:s, s:{s:i, s:i}}]}", "baseUrl",
			mem_fmt(m, "http://127.0.0.1:%d/v1", agents_port), "models", "name", "agent",
			"prices", "input", 1000, "output", 1000),
		    &w);
		assert_int_equal(w.status, 200);
	}
}

static int setup(void **s)
{
	(void)s;
	char conf[1400];
	auto_buf struct buf out = BUF(4096);
	vendor = fakemodel_start();
	gw_times(vendor);
	gw_conf(vendor, conf);
	agents_port = stack_ports() + STACK_PORTS - 1; /* of a vendor that is started later */
	/* The list of hosts is the first line. */
	auto_mem struct mem *m = mem_new();
	size_t first = strcspn(conf, "\n");
	stack_up(&st, 1, 1, 1,
	    mem_fmt(
		m, "%.*s 127.0.0.1:%d%s\nBILLING_MODE=closed", (int)first, conf, agents_port, conf + first));
	stack_org(&st, &org);
	stack_org(&st, &poor);
	stack_cli(&st, (const char *const[]){ "org", "credit", org.slug, "50.00usd", NULL }, &out);
	add_providers(org.key);
	add_providers(poor.key);
	return 0;
}

static int with_agents_vendor(void **s)
{
	(void)s;
	add_agents_vendor();
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	stack_down(&st);
	fakemodel_end(vendor);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(openais_sdk_gets_what_it_knows_whoever_answers),
		cmocka_unit_test(anthropics_sdk_gets_what_it_knows_whoever_answers),
		cmocka_unit_test(every_call_has_its_span_and_its_charge),
		cmocka_unit_test_setup(coding_agents_do_a_task, with_agents_vendor),
	};
	return cmocka_run_group_tests_name("model_clients", tests, setup, teardown);
}
