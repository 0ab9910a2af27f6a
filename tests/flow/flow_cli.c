/* flow_cli.c - `gatehouse call` against the whole stack (OP-3). */
#include "../t.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/mem.h"
#include "base/ndjson.h"
#include "io/file.h"
#include "io/proc.h"
#include "stack.h"

static struct stack stack;
static struct stack_org org;

struct cli {
	struct ndjson lines;
	json_t *seen;  /* array of lines */
	bool kill_api; /* once, after the first line */
};

static int on_out(void *arg, const char *p, size_t n)
{
	struct cli *c = arg;
	assert_int_equal(ndjson_feed(&c->lines, p, n), 0);
	struct str line;
	while (ndjson_next(&c->lines, &line)) {
		json_t *v = json_loadb(line.p, line.n, 0, NULL);
		assert_non_null(v);
		js_push(c->seen, v);
	}
	if (c->kill_api && json_array_size(c->seen) > 0) {
		c->kill_api = false;
		stack_kill(&stack, "api1");
		stack_start(&stack, "api1");
	}
	return 0;
}

/* Runs `gatehouse call ARGS…`; the key is in the environment only. */
static void call(const char *const *args, const char *key, struct cli *c, struct proc_result *r)
{
	char bin[120], url[120], ca[140], secret[200];
	(void)snprintf(bin, sizeof bin, "%s/bin/gatehouse", stack.dir);
	(void)snprintf(url, sizeof url, "GATEHOUSE_URL=%s", stack.url[0]);
	(void)snprintf(ca, sizeof ca, "GATEHOUSE_CA=%s", stack.ca);
	(void)snprintf(secret, sizeof secret, "GATEHOUSE_KEY=%s", key);
	const char *argv[20] = { bin, "call" };
	for (size_t i = 0; args[i] != NULL; i++)
		argv[2 + i] = args[i];
	const char *const env[] = { "PATH=/usr/bin:/bin", "ASAN_OPTIONS=detect_leaks=0", url, ca, secret,
		NULL };
	struct err e = { 0 };
	struct proc_opts o = { .argv = argv,
		.env = env,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.on_out = c != NULL ? on_out : NULL,
		.arg = c,
		.timeout_ms = 120 * 1000,
		.max_out_bytes = 1 << 20 };
	*r = (struct proc_result){ 0 };
	if (proc_run(&o, r, &e) != 0)
		fail_msg("%s", e.msg);
}
#define CALL(c, r, ...) call((const char *const[]){ __VA_ARGS__, NULL }, org.key, c, r)

static int up(void **s)
{
	(void)s;
	stack_up(&stack, 1, 1, 1, NULL);
	stack_org(&stack, &org);
	return 0;
}

static int down(void **s)
{
	(void)s;
	stack_down(&stack);
	return 0;
}

static void an_answer_is_piped_as_it_came(void **s)
{
	(void)s;
	auto_proc struct proc_result r;
	CALL(NULL, &r, "list_keys", "limit=1");
	assert_int_equal(r.exit_code, 0);
	auto_json json_t *v = json_loadb(r.out.p, r.out.n, 0, NULL);
	assert_int_equal(json_array_size(js_get(v, "data")), 1);
	assert_true(json_is_string(js_get(v, "next")));
}

static void an_error_is_one_line_and_the_status_of_its_kind(void **s)
{
	(void)s;
	auto_proc struct proc_result missing, wrong, nobody;
	CALL(NULL, &missing, "get_session", "id=ses_01jdq3v8m5c7x2k9f4t6w0b1ra");
	assert_int_equal(missing.exit_code, 66);
	assert_memory_equal(buf_c(&missing.errout), "gatehouse: ", 11);
	assert_ptr_equal(strchr(buf_c(&missing.errout), '\n'), missing.errout.p + missing.errout.n - 1);
	assert_int_equal(missing.out.n, 0);
	CALL(NULL, &wrong, "list_keys", "limit=many");
	assert_int_equal(wrong.exit_code, 64);
	assert_non_null(strstr(buf_c(&wrong.errout), "`limit`"));
	call((const char *const[]){ "list_keys", NULL }, "gk_wrong", NULL, &nobody);
	assert_int_equal(nobody.exit_code, 77);
	assert_null(strstr(buf_c(&nobody.errout), "gk_wrong"));
}

/* Every event once, in order, the last one terminal. */
static void is_whole(const json_t *seen)
{
	size_t i;
	const json_t *line;
	long long seq = 0;
	json_array_foreach(seen, i, line) {
		const char *type = js_str_or(line, "type", "");
		if (strcmp(type, "ping") == 0 || strcmp(type, "reconnect") == 0)
			continue;
		seq++;
		assert_int_equal(js_int(line, "seq", 0), seq);
	}
	line = json_array_get(seen, json_array_size(seen) - 1);
	assert_string_equal(js_str_or(line, "type", ""), "result");
}

static struct cli cli_new(bool kill_api)
{
	return (struct cli){ .lines = ndjson_new(128 * 1024), .seen = json_array(), .kill_api = kill_api };
}

static void cli_free(struct cli *c)
{
	ndjson_free(&c->lines);
	json_decref(c->seen);
}

static void a_run_is_a_stream_of_lines(void **s)
{
	(void)s;
	struct cli c = cli_new(false);
	auto_proc struct proc_result r;
	CALL(&c, &r, "start_coding_run", "tool=python", "prompt=print('hello')");
	assert_int_equal(r.exit_code, 0);
	is_whole(c.seen);
	cli_free(&c);
}

static void a_command_in_a_sandbox_ends_the_call_with_its_status(void **s)
{
	(void)s;
	auto_proc struct proc_result lease, up, run, end;
	CALL(NULL, &lease, "lease_sandbox", "class=exec", "ttlSec=300");
	if (lease.exit_code != 0)
		fail_msg("%s", buf_c(&lease.errout));
	auto_json json_t *v = json_loadb(lease.out.p, lease.out.n, 0, NULL);
	char id[80], body[120];
	(void)snprintf(id, sizeof id, "id=%s", js_str_or(v, "id", ""));
	(void)snprintf(body, sizeof body, "body=@%s", stack.ca);
	CALL(NULL, &up, "upload_sandbox_file", id, "path=cert.pem", body);
	if (up.exit_code != 0)
		fail_msg("%s", buf_c(&up.errout));
	CALL(NULL, &run, "run_in_sandbox", id, "command=head -c 11 cert.pem; exit 7", "stream=true",
	    "--render");
	assert_int_equal(run.exit_code, 7);
	assert_string_equal(buf_c(&run.out), "-----BEGIN \n[exit 7]\n");
	CALL(NULL, &end, "end_sandbox", id);
	assert_int_equal(end.exit_code, 0);
}

/* STR-3: the command takes the stream up again by itself. */
static void a_server_killed_in_the_middle_costs_the_stream_nothing(void **s)
{
	(void)s;
	struct cli c = cli_new(true);
	auto_proc struct proc_result r;
	CALL(&c, &r, "start_coding_run", "tool=python",
	    "prompt=import time; time.sleep(3); print('still here')");
	if (r.exit_code != 0)
		fail_msg("exit %d: %s", r.exit_code, buf_c(&r.errout));
	is_whole(c.seen);
	cli_free(&c);
}

/* The operator's command, as the service's user. */
static void operate(const char *const *args, struct proc_result *r)
{
	char bin[120], conf[140];
	(void)snprintf(bin, sizeof bin, "%s/bin/gatehouse", stack.dir);
	(void)snprintf(conf, sizeof conf, "GATEHOUSE_CONFIG=%s/gatehouse.conf", stack.dir);
	const char *argv[24] = { "setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups", "--",
		bin };
	for (size_t i = 0; args[i] != NULL; i++)
		argv[6 + i] = args[i];
	const char *const env[] = { "PATH=/usr/bin:/bin", "ASAN_OPTIONS=detect_leaks=0", conf, NULL };
	struct err e = { 0 };
	struct proc_opts o = { .argv = argv,
		.env = env,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.timeout_ms = 60 * 1000 };
	*r = (struct proc_result){ 0 };
	if (proc_run(&o, r, &e) != 0)
		fail_msg("%s", e.msg);
}

/* The command makes what the op would make, and refuses what the op would refuse, with the op's words. */
static void a_key_of_the_command_is_held_to_the_ops_own_rules(void **s) /* ID-6 */
{
	(void)s;
	static const struct {
		const char *option, *value, *says;
	} bad[] = { { "--scopes", "node", "`scopes[0]`" }, { "--scopes", "git, coding", "`scopes[0]`" },
		{ "--scopes", "git everything", "`scopes[1]`" }, { "--scopes", "", "`scopes`" },
		{ "--expires", "tomorrow", "`expiresAt`" },
		{ "--expires", "2036-02-30T12:00:00Z", "`expiresAt`" },
		{ "--expires", "1999-12-31T23:59:59Z", "`expiresAt`" }, { "--expires", "", "`expiresAt`" },
		{ "--expires", "2036-01-31T12:00:00+02:00", "`expiresAt`" }, { "--name", "", "`name`" },
		{ "--name", "a\nb", "`name`" } };
	auto_buf struct buf before = BUF(100), after = BUF(100);
	stack_sql(&stack, "SELECT count(*) FROM credentials", &before);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		auto_proc struct proc_result r;
		operate((const char *const[]){ "key", "create", "--org", org.slug, "--user", "u",
			    bad[i].option, bad[i].value, NULL },
		    &r);
		if (r.exit_code != 64 || strstr(buf_c(&r.errout), bad[i].says) == NULL || r.out.n != 0)
			fail_msg("%s %s: %d %s", bad[i].option, bad[i].value, r.exit_code, buf_c(&r.errout));
	}
	stack_sql(&stack, "SELECT count(*) FROM credentials", &after);
	assert_string_equal(buf_c(&before), buf_c(&after));
	auto_proc struct proc_result made, list, nobody;
	operate((const char *const[]){ "key", "create", "--org", org.slug, "--user", "u", "--name", "narrow",
		    "--scopes", "git coding git", "--expires", "2036-01-31T12:00:00.000Z", NULL },
	    &made);
	assert_int_equal(made.exit_code, 0);
	assert_memory_equal(buf_c(&made.out), "gk_", 3);
	CALL(NULL, &list, "list_keys", "limit=1");
	auto_json json_t *v = json_loadb(list.out.p, list.out.n, 0, NULL);
	const json_t *row = json_array_get(js_get(v, "data"), 0);
	assert_string_equal(js_str(row, "name"), "narrow");
	assert_string_equal(js_str(row, "expiresAt"), "2036-01-31T12:00:00.000Z");
	assert_int_equal(json_array_size(js_get(row, "scopes")), 2);
	assert_false(js_bool(row, "admin", true));
	operate(
	    (const char *const[]){ "key", "create", "--org", "no-such-org", "--user", "u", NULL }, &nobody);
	assert_int_equal(nobody.exit_code, 66);
}

/* SEC-6, as the README tells it: a new line, a reload, reseal, and the old line away; everything serves on. */
static void the_sealing_key_rotates_while_everything_serves(void **s)
{
	(void)s;
	auto_web struct web start = { 0 };
	auto_proc struct proc_result reseal, drop, again;
	char key_file[120], line[80];
	auto_buf struct buf one = BUF(4096), two = BUF(4096), sealed = BUF(4096), sealed2 = BUF(4096);
	struct err e = { 0 };
	(void)snprintf(key_file, sizeof key_file, "%s/secret.key", stack.dir);
	assert_int_equal(file_read(key_file, &one, &e), 0);
	stack_stop(&stack, "runner1"); /* so that the run keeps its credential for now */
	static const char *const later[] = { "Prefer: respond-async", NULL };
	struct web_req q = { .method = "POST",
		.path = "/v1/coding-tasks",
		.key = org.key,
		.headers = later,
		.body =
		    "{\"tool\":\"python\",\"prompt\":\"print(1)\",\"cloneUrl\":\"https://git.invalid/x.git\","
		    "\"credential\":{\"token\":\"not-a-real-one-0123456789\"}}" };
	web_do(&stack, &q, &start);
	if (start.status != 202)
		fail_msg("%ld %s", start.status, start.body);
	stack_sql(&stack, "SELECT sealed_credential FROM runs WHERE sealed_credential IS NOT NULL", &sealed);
	assert_memory_equal(buf_c(&sealed), "2:", 2);
	memset(line, '5', 64);
	line[64] = '\n';
	FILE *f = fopen(key_file, "ae");
	assert_non_null(f);
	assert_int_equal(fwrite(line, 65, 1, f), 1);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(kill(stack_pid(&stack, "api1"), SIGHUP), 0);
	operate((const char *const[]){ "reseal", NULL }, &reseal);
	assert_string_equal(buf_c(&reseal.out), "Sealed anew: 1.\n");
	stack_sql(&stack, "SELECT sealed_credential FROM runs WHERE sealed_credential IS NOT NULL", &sealed2);
	assert_string_not_equal(buf_c(&sealed), buf_c(&sealed2));
	operate((const char *const[]){ "reseal", "--drop", NULL }, &drop);
	assert_string_equal(buf_c(&drop.out), "Sealed anew: 0.\nKeys removed from the file: 1.\n");
	assert_int_equal(drop.exit_code, 0);
	assert_int_equal(file_read(key_file, &two, &e), 0);
	assert_null(memmem(buf_c(&two), two.n, buf_c(&one), 64));
	operate((const char *const[]){ "reseal", "--drop", NULL }, &again);
	assert_string_equal(buf_c(&again.out), "Sealed anew: 0.\nKeys removed from the file: 0.\n");
	/* The runner, which only knows the file as it is now, opens what was sealed with the key that is gone. */
	stack_start(&stack, "runner1");
	char id[80];
	(void)snprintf(id, sizeof id, "id=%s", js_str_or(start.json, "session", ""));
	struct cli c = cli_new(false);
	auto_proc struct proc_result watch;
	CALL(&c, &watch, "watch_session", id);
	auto_mem struct mem *m = mem_new();
	const char *seen = js_dump(m, c.seen);
	assert_null(strstr(seen, "cannot be opened"));
	assert_non_null(strstr(seen, "git.invalid")); /* it came to use it */
	cli_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_is_piped_as_it_came),
		cmocka_unit_test(an_error_is_one_line_and_the_status_of_its_kind),
		cmocka_unit_test(a_run_is_a_stream_of_lines),
		cmocka_unit_test(a_command_in_a_sandbox_ends_the_call_with_its_status),
		cmocka_unit_test(a_server_killed_in_the_middle_costs_the_stream_nothing),
		cmocka_unit_test(a_key_of_the_command_is_held_to_the_ops_own_rules),
		cmocka_unit_test(the_sealing_key_rotates_while_everything_serves),
	};
	return cmocka_run_group_tests_name("cli", tests, up, down);
}
