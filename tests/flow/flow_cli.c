/* flow_cli.c - `gatehouse call` against the whole stack (OP-3). */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/ndjson.h"
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_is_piped_as_it_came),
		cmocka_unit_test(an_error_is_one_line_and_the_status_of_its_kind),
		cmocka_unit_test(a_run_is_a_stream_of_lines),
		cmocka_unit_test(a_command_in_a_sandbox_ends_the_call_with_its_status),
		cmocka_unit_test(a_server_killed_in_the_middle_costs_the_stream_nothing),
	};
	return cmocka_run_group_tests_name("cli", tests, up, down);
}
