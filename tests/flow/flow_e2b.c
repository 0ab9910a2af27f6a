/*
 * The E2B SDK, unmodified, against the door made for it (ECO-1, ECO-3): its own calls are the cases, a script of tests/clients/e2b each.
 * What they did is then looked for where it must not be.
 */
#include "../span.h"
#include "../t.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "io/file.h"
#include "io/http.h"
#include "io/proc.h"
#include "sbx.h"

enum { INSTALL_MS = 300000, SCRIPT_MS = 600000, MAX_OUT = 1 << 20 };

static struct stack st;
static struct stack_org org, other;
static char *there; /* where the SDK is installed */

static void run(const char *const *argv, const char *const *env, int timeout_ms, struct proc_result *r)
{
	struct err e = { 0 };
	char cwd[1024];
	assert_non_null(getcwd(cwd, sizeof cwd));
	const struct proc_opts o = { .argv = argv,
		.env = env,
		.cwd = cwd,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.timeout_ms = timeout_ms,
		.max_out_bytes = MAX_OUT };
	if (proc_run(&o, r, &e) != 0)
		fail_msg("%s: %s", argv[0], e.msg);
}

/* npm asks its registry, so it gets the environment that it is used to; the scripts do not. */
static void install(void)
{
	auto_proc struct proc_result r = { 0 };
	const char *const argv[] = { "/bin/sh", "tests/clients/install.sh", "e2b", NULL };
	run(argv, (const char *const *)environ, INSTALL_MS, &r);
	if (r.exit_code != 0)
		fail_msg("%s", buf_c(&r.errout));
	there = strndup(buf_c(&r.out), strcspn(buf_c(&r.out), "\n"));
}

/* http: without TLS, and so over HTTP/1.1; else over HTTP/2. */
static void judged_by(const char *script, bool http)
{
	auto_mem struct mem *m = mem_new();
	auto_proc struct proc_result r = { 0 };
	const char *const argv[] = { "/usr/bin/env", "node", mem_fmt(m, "%s/%s.mjs", there, script), NULL };
	const char *const env[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/tmp",
		mem_fmt(m, "E2B_API_URL=%s", st.e2b[http]), mem_fmt(m, "E2B_SANDBOX_URL=%s", st.e2b[http]),
		mem_fmt(m, "E2B_API_KEY=%s", org.key), "E2B_VALIDATE_API_KEY=false",
		mem_fmt(m, "GATEHOUSE_URL=%s", st.url[0]), mem_fmt(m, "OTHER_KEY=%s", other.key),
		mem_fmt(m, "NODE_EXTRA_CA_CERTS=%s", st.ca), NULL };
	run(argv, env, SCRIPT_MS, &r);
	(void)printf("%s%s", buf_c(&r.out), buf_c(&r.errout)); /* cmocka's own would cut it */
	(void)fflush(stdout);
	assert_false(r.timed_out);
	assert_int_equal(r.exit_code, 0);
}

static void sandboxes_are_made_found_changed_and_ended(void **s)
{
	(void)s;
	judged_by("sandboxes", false);
}

static void commands_run_and_are_talked_to(void **s)
{
	(void)s;
	judged_by("commands", false);
}

static void files_are_written_read_and_watched(void **s)
{
	(void)s;
	judged_by("files", false);
}

static void terminals_are_terminals(void **s)
{
	(void)s;
	judged_by("pty", true);
}

static void the_door_has_its_own_paths_and_errors_and_nothing_else(void **s)
{
	(void)s;
	judged_by("door", true);
}

/* ---- a lease's new end (no. 34, 35) */

/* One request to the door with the org's key; the answer's status. */
static int door(const char *method, const char *path, const char *body, struct buf *out)
{
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	struct http_res res = { 0 };
	const char *const headers[] = { "Content-Type: application/json",
		mem_fmt(m, "X-API-Key: %s", org.key), NULL };
	const struct http_req q = { .method = method,
		.url = mem_fmt(m, "%s%s", st.e2b[1], path),
		.headers = headers,
		.body = body,
		.body_n = strlen(body),
		.connect_ms = 60000,
		.total_ms = 60000 };
	if (http_do(&q, &res, &e) != 0)
		fail_msg("%s", e.msg);
	assert_int_equal(buf_add(out, res.body.p, res.body.n), 0);
	int status = res.status;
	http_res_free(&res);
	return status;
}

/* The end that was set last holds, whoever was killed since, and no timer of an earlier one fires. */
static void a_new_end_holds_whoever_restarts(void **s)
{
	(void)s;
	int first_s = 4 + span_room_ms(200) / 1000; /* the next one is to come before */
	char path[100], first[40];
	auto_buf struct buf made = BUF(1 << 16), none = BUF(1 << 16);
	struct err e = { 0 };
	assert_int_equal(door("POST", "/sandboxes", "{\"timeout\":600}", &made), 201);
	auto_json json_t *box = js_parse(buf_c(&made), made.n, &e);
	const char *id = js_str(box, "sandboxID");
	assert_non_null(id);
	(void)snprintf(path, sizeof path, "/sandboxes/%s/timeout", id);
	(void)snprintf(first, sizeof first, "{\"timeout\":%d}", first_s);
	int64_t first_ms = clock_ms() + first_s * 1000LL;
	assert_int_equal(door("POST", path, first, &none), 204);
	assert_int_equal(door("POST", path, "{\"timeout\":600}", &none), 204);
	stack_kill(&st, "node1");
	stack_start(&st, "node1");
	stack_ready(&st);
	while (clock_ms() < first_ms + 1500) /* its first end, and a round of the reaper */
		(void)poll(NULL, 0, 50);
	char status[12];
	sbx_status(&st, org.key, id, status);
	assert_string_equal(status, "running");
	assert_int_equal(sbx_sh(&st, org.key, id, "true", NULL), 0);
	/* And a nearer one ends it, though the box had been promised more. */
	assert_int_equal(door("POST", path, "{\"timeout\":1}", &none), 204);
	for (int64_t late_ms = clock_ms() + 60000; strcmp(status, "ended") != 0; (void)poll(NULL, 0, 50)) {
		assert_true(clock_ms() < late_ms);
		sbx_status(&st, org.key, id, status);
		assert_string_not_equal(status, "error");
	}
}

/* ---- afterwards */

static void a_sandboxs_token_is_in_no_log_and_no_row(void **s) /* ID-5 */
{
	(void)s;
	char path[400];
	(void)snprintf(path, sizeof path, "%s/log", st.dir);
	DIR *d = opendir(path);
	assert_non_null(d);
	for (const struct dirent *f; (f = readdir(d)) != NULL;) {
		struct err e = { 0 };
		auto_buf struct buf text = BUF(64 << 20);
		(void)snprintf(path, sizeof path, "%s/log/%s", st.dir, f->d_name);
		if (f->d_type != DT_REG || file_read(path, &text, &e) != 0)
			continue;
		const char *at = memmem(buf_c(&text), text.n, "gs_0", 4);
		if (at != NULL)
			fail_msg("%s: %.60s", f->d_name, at);
	}
	(void)closedir(d);
	auto_buf struct buf out = BUF(4096);
	stack_sql(&st,
	    "SELECT count(*) > 5, bool_and(length(hash) = 64), count(*) FILTER (WHERE row_to_json(c)::text "
	    "LIKE '%gs_0%') "
	    "FROM credentials c WHERE kind = 'sandbox'",
	    &out);
	assert_string_equal(buf_c(&out), "t|t|0");
}

static void nothing_of_it_stays_on_the_host(void **s)
{
	(void)s;
	sbx_no_leaks(&st);
}

static int up(void **s)
{
	(void)s;
	install();
	stack_up(&st, 1, 0, 1, "EGRESS_ALLOW_ALL=yes");
	stack_org(&st, &org);
	stack_org(&st, &other);
	return 0;
}

static int down(void **s)
{
	(void)s;
	stack_down(&st);
	free(there);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sandboxes_are_made_found_changed_and_ended),
		cmocka_unit_test(commands_run_and_are_talked_to),
		cmocka_unit_test(files_are_written_read_and_watched),
		cmocka_unit_test(terminals_are_terminals),
		cmocka_unit_test(the_door_has_its_own_paths_and_errors_and_nothing_else),
		cmocka_unit_test(a_new_end_holds_whoever_restarts),
		cmocka_unit_test(a_sandboxs_token_is_in_no_log_and_no_row),
		cmocka_unit_test(nothing_of_it_stays_on_the_host),
	};
	return cmocka_run_group_tests_name("e2b", tests, up, down);
}
