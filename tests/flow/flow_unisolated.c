/* flow_unisolated.c - DRV-0: sandboxes that are not isolated, where the deployment names them, and nowhere else. */
#include "../span.h"
#include "../t.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/js.h"
#include "io/file.h"
#include "io/proc.h"
#include "runs.h"
#include "sbx.h"

static struct stack stack;
static struct stack_org org;

static unsigned long owner; /* the user id of the sandbox leased last */

/* Its living processes. */
static int processes(void)
{
	int n = 0;
	DIR *d = opendir("/proc");
	assert_non_null(d);
	for (struct dirent *i; (i = readdir(d)) != NULL;) {
		char path[300];
		struct err e = { 0 };
		auto_buf struct buf text = BUF(16384);
		(void)snprintf(path, sizeof path, "/proc/%s/status", i->d_name);
		if (strspn(i->d_name, "0123456789") != strlen(i->d_name) || file_read(path, &text, &e) != 0)
			continue;
		const char *uid = strstr(buf_c(&text), "\nUid:\t"),
			   *state = strstr(buf_c(&text), "\nState:\t");
		unsigned long u = uid == NULL ? 0 : strtoul(uid + 6, NULL, 10);
		n += u == owner && owner != 0 && state != NULL && state[8] != 'Z';
	}
	(void)closedir(d);
	return n;
}

static void lease(char id[40])
{
	char path[80];
	struct stat st;
	auto_web struct web w = { 0 };
	sbx_lease(&stack, org.key, NULL, id);
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s", id);
	web_json(&stack, "GET", path, org.key, NULL, &w);
	assert_int_equal(stat(js_str(w.json, "workdir"), &st), 0);
	owner = st.st_uid;
	assert_true(owner >= 65536);
	assert_int_equal(processes(), 1); /* the box */
}

static void assert_gone(void)
{
	for (int64_t until = clock_ms() + 60000; processes() > 0 && clock_ms() < until;)
		(void)poll(NULL, 0, 20);
	assert_int_equal(processes(), 0);
	sbx_no_leaks(&stack);
}

static void it_is_told_everywhere(void **s)
{
	(void)s;
	char id[40], path[80], log[128];
	auto_web struct web w = { 0 };
	struct err e = { 0 };
	auto_buf struct buf out = BUF(4096), said = BUF(1 << 20);
	lease(id);
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s", id);
	web_json(&stack, "GET", path, org.key, NULL, &w);
	const json_t *iso = js_get(w.json, "isolation");
	assert_int_equal(js_int(iso, "tier", 9), 0);
	assert_false(js_bool(iso, "kernel", true));
	assert_string_equal(js_str(iso, "network"), "open");
	assert_string_equal(js_str(js_get(w.json, "network"), "mode"), "allow-all");
	assert_int_equal(
	    sbx_sh(&stack, org.key, id, "echo $SANDBOX_TIER; pwd; echo $HOME; touch $HOME/x $TMPDIR/y", &out),
	    0);
	assert_int_equal(strncmp(buf_c(&out), "0\n/", 3), 0);
	assert_non_null(strstr(buf_c(&out), js_str(w.json, "workdir")));
	(void)snprintf(log, sizeof log, "%s/log/node1.log", stack.dir);
	assert_int_equal(file_read(log, &said, &e), 0);
	assert_non_null(strstr(buf_c(&said), "NOT ISOLATED"));
	sbx_end(&stack, org.key, id);
	assert_gone();
}

/* DRV-5: a row per option that nothing enforces. */
/* fault 46, fault 50 */
static void what_nothing_enforces_is_refused_by_name(void **s)
{
	(void)s;
	static const struct {
		const char *body, *param;
	} rows[] = {
		{ "{\"runtime\":\"runc\"}", "runtime" },
		{ "{\"runtime\":\"gvisor\"}", "runtime" },
		{ "{\"limits\":{\"memoryMb\":128}}", "limits.memoryMb" },
		{ "{\"limits\":{\"cpus\":1}}", "limits.cpus" },
		{ "{\"limits\":{\"pids\":64}}", "limits.pids" },
		{ "{\"limits\":{\"diskMb\":64}}", "limits.diskMb" },
		{ "{\"network\":{\"mode\":\"deny-all\"}}", "network.mode" },
		{ "{\"network\":{\"mode\":\"static\",\"allowedHosts\":[\"a.example\"]}}", "network.mode" },
		{ "{\"network\":{\"mode\":\"allow-all\",\"allowedHosts\":[\"a.example\"]}}",
		    "network.allowedHosts" },
		{ "{\"project\":\"p\"}", "project" },
		{ "{\"class\":\"dev\",\"project\":\"p\"}", "project" },
		{ "{\"session\":\"ses_x\"}", "session" },
		{ "{\"mounts\":{\"outputs\":{}}}", "mounts" },
		{ "{\"image\":\"x@sha256:0\"}", "image" },
		{ "{\"class\":\"desktop\"}", "class" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		auto_web struct web w = { 0 };
		web_do(&stack,
		    &(struct web_req){
			.method = "POST", .path = "/v1/sandboxes", .key = org.key, .body = rows[i].body },
		    &w);
		if (w.status != 400 || strcmp(web_error(&w, "param"), rows[i].param) != 0)
			fail_msg("%s: %ld %s", rows[i].body, w.status, w.body);
	}
	assert_gone();
}

/* SBX-41, SBX-44 */
static void a_stopped_or_timed_out_command_leaves_no_process(void **s)
{
	(void)s;
	char id[40];
	auto_web struct web w = { 0 };
	lease(id);
	sbx_run(&stack, org.key, id,
	    js_pack("{s:s,s:i}", "command",
		"trap '' TERM; (setsid sleep 900 &) ; (setsid sh -c 'kill -STOP $$; sleep 900' &) ; sleep "
		"900",
		"timeoutSec", 1),
	    &w);
	assert_int_equal(w.status, 200);
	assert_true(js_bool(w.json, "timedOut", false));
	assert_int_equal(processes(), 1); /* the box */
	sbx_end(&stack, org.key, id);
	assert_gone();
}

/* What cannot hold: code there can kill its own box. Then the sandbox has ended, and all of it. */
static void code_that_kills_its_box_ends_its_sandbox_and_leaves_nothing(void **s)
{
	(void)s;
	char id[40], status[12] = "";
	auto_web struct web w = { 0 };
	lease(id);
	sbx_run(&stack, org.key, id,
	    js_pack("{s:s,s:i}", "command", "(setsid sleep 900 &); (setsid sleep 901 &); kill -KILL -1",
		"timeoutSec", 300),
	    &w);
	assert_int_not_equal(w.status, 200); /* unknown, never a success */
	for (int64_t until = clock_ms() + 60000; strcmp(status, "error") != 0 && clock_ms() < until;) {
		(void)poll(NULL, 0, 50);
		sbx_status(&stack, org.key, id, status);
	}
	assert_string_equal(status, "error");
	assert_gone();
}

static void it_survives_its_daemon_and_ends_after_it(void **s)
{
	(void)s;
	char id[40];
	auto_buf struct buf out = BUF(4096);
	lease(id);
	assert_int_equal(
	    sbx_sh(&stack, org.key, id, "echo kept > f; (setsid sleep 900 >/dev/null 2>&1 &)", NULL), 0);
	stack_kill(&stack, "node1");
	stack_start(&stack, "node1");
	stack_ready(&stack);
	assert_int_equal(sbx_sh(&stack, org.key, id, "cat f", &out), 0);
	assert_string_equal(buf_c(&out), "kept\n");
	sbx_end(&stack, org.key, id);
	assert_gone();
}

static void a_coding_run_works_in_it(void **s)
{
	(void)s;
	static const char *const tools[][2] = {
		{ "python", "open('a.txt', 'a').write('two\\n')" },
		{ "node", "require('fs').appendFileSync('a.txt', 'two\\n')" },
	};
	runs_repo(&stack, &org, "bare");
	for (size_t i = 0; i < 2; i++) {
		auto_flow_run struct flow_run r = { 0 };
		runs_do(&stack, &org, runs_task(tools[i][0], "bare", tools[i][1]), &r);
		runs_check(&r, "result");
		auto_free char *text = runs_file(&stack, &org, "bare", js_str(r.last, "branch"), "a.txt");
		assert_string_equal(text, "one\ntwo");
	}
	assert_gone();
}

static void await_health(void)
{
	for (int64_t until = clock_ms() + 60000;; (void)poll(NULL, 0, 50)) {
		auto_web struct web w = { 0 };
		web_json(&stack, "GET", "/health", NULL, NULL, &w);
		if (w.status == 200)
			return;
		assert_true(clock_ms() < until);
	}
}

/* One of the two settings is not enough, and neither an API nor a node alone may name it. */
static void it_exists_only_where_both_settings_name_it(void **s)
{
	(void)s;
	struct err e = { 0 };
	char conf[128];
	auto_buf struct buf text = BUF(1 << 16);
	(void)snprintf(conf, sizeof conf, "%s/gatehouse.conf", stack.dir);
	assert_int_equal(file_read(conf, &text, &e), 0);
	char *allow = strstr(text.p, "SANDBOX_ALLOW_UNISOLATED=1");
	assert_non_null(allow);
	allow[strlen("SANDBOX_ALLOW_UNISOLATED=")] = '0';
	assert_int_equal(file_write(conf, text.p, text.n, 0644, &e), 0);
	stack_stop(&stack, "node1");
	stack_start(&stack, "node1");
	for (int64_t until = clock_ms() + 60000;; (void)poll(NULL, 0, 50)) {
		auto_web struct web w = { 0 };
		web_json(&stack, "POST", "/v1/sandboxes", org.key, json_object(), &w);
		assert_int_equal(w.status, 503);
		if (strstr(w.body, "it needs SANDBOX_ALLOW_UNISOLATED=1 beside it") != NULL)
			break;
		assert_true(clock_ms() < until);
	}
	/* The API without it, the node with it. */
	stack_stop(&stack, "api1");
	stack_start(&stack, "api1");
	await_health(); /* it has read its configuration */
	allow[strlen("SANDBOX_ALLOW_UNISOLATED=")] = '1';
	assert_int_equal(file_write(conf, text.p, text.n, 0644, &e), 0);
	stack_stop(&stack, "node1");
	stack_start(&stack, "node1");
	for (int64_t until = clock_ms() + 60000;; (void)poll(NULL, 0, 50)) {
		auto_web struct web w = { 0 };
		web_json(&stack, "POST", "/v1/sandboxes", org.key, json_object(), &w);
		assert_int_equal(w.status, 503);
		if (strstr(w.body, "do not agree about SANDBOX_DRIVER") != NULL)
			break;
		assert_true(clock_ms() < until);
	}
	stack_stop(&stack, "api1");
	stack_start(&stack, "api1");
	stack_ready(&stack);
}

/* stack.sh in a plain chroot; its exit status, standard error and how long it took (span.h). */
static int in_chroot(const char *dir, const char *verb, bool named, struct buf *said, int64_t *took_ms)
{
	char bin[300], cwd[200], port[32];
	struct err e = { 0 };
	const char *given = getenv("STACK_BIN");
	assert_non_null(getcwd(cwd, sizeof cwd));
	(void)snprintf(bin, sizeof bin, "BIN=%s/%s", cwd, given == NULL ? "build/asan" : given);
	(void)snprintf(port, sizeof port, "PORT=%d", stack_ports() + STACK_PORTS / 2);
	const char *const argv[] = { "tests/stack/in-chroot.sh", "tests/stack/stack.sh", verb, dir, NULL };
	const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", bin, port,
		"ASAN_OPTIONS=detect_leaks=0", "STACK_PG_CONF=fsync = off",
		named ? "SANDBOX_DRIVER=process" : "SANDBOX_DRIVER=", "SANDBOX_ALLOW_UNISOLATED=1", NULL };
	auto_proc struct proc_result r = { 0 };
	struct proc_opts o = { .argv = argv,
		.env = env,
		.cwd = cwd,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.leaves = true,
		.timeout_ms = 300000 };
	struct span begin = span_begin();
	if (proc_run(&o, &r, &e) != 0)
		fail_msg("%s", e.msg);
	*took_ms = span_ms(&begin);
	assert_int_equal(buf_add(said, buf_c(&r.errout), r.errout.n), 0);
	return r.exit_code;
}

static void a_plain_chroot_says_why_and_what_to_set_at_once(void **s)
{
	(void)s;
	char dir[] = "/tmp/ghc.XXXXXX";
	int64_t took_ms;
	struct err e = { 0 };
	auto_buf struct buf said = BUF(1 << 16), more = BUF(1 << 16);
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(in_chroot(dir, "up", false, &said, &took_ms), 1);
	const char *line = buf_c(&said);
	assert_non_null(strstr(line, "permits no namespaces"));
	assert_non_null(strstr(line, "SANDBOX_DRIVER=process with SANDBOX_ALLOW_UNISOLATED=1"));
	assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1); /* one line */
	assert_true(took_ms < 40000); /* and not after the 60 s of a stack that hangs */
	assert_int_equal(in_chroot(dir, "down", false, &more, &took_ms), 0);
	if (in_chroot(dir, "up", true, &more, &took_ms) != 0)
		fail_msg("%s", buf_c(&more));
	assert_int_equal(in_chroot(dir, "down", true, &more, &took_ms), 0);
	assert_int_equal(file_rmtree(dir, &e), 0);
}

static int up(void **s)
{
	(void)s;
	stack_up(&stack, 1, 1, 1, "SANDBOX_DRIVER=process\nSANDBOX_ALLOW_UNISOLATED=1");
	stack_org(&stack, &org);
	return 0;
}

static int down(void **s)
{
	(void)s;
	stack_down(&stack);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_told_everywhere),
		cmocka_unit_test(what_nothing_enforces_is_refused_by_name),
		cmocka_unit_test(a_stopped_or_timed_out_command_leaves_no_process),
		cmocka_unit_test(code_that_kills_its_box_ends_its_sandbox_and_leaves_nothing),
		cmocka_unit_test(it_survives_its_daemon_and_ends_after_it),
		cmocka_unit_test(a_coding_run_works_in_it),
		cmocka_unit_test(a_plain_chroot_says_why_and_what_to_set_at_once),
		cmocka_unit_test(it_exists_only_where_both_settings_name_it),
	};
	return cmocka_run_group_tests_name("unisolated", tests, up, down);
}
