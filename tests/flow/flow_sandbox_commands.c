/* flow_sandbox_commands.c - commands that nobody waits for, over HTTP, from any API host: SBX-42, SBX-44, SBX-46. */
#include "../span.h"
#include "../t.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/js.h"
#include "io/pg.h"
#include "sbx.h"
#include "session/event.h"

static struct stack stack;
static struct stack_org acme, other;
static bool gvisor;
static char host_box[40], gvisor_box[40], patient_box[40];

#define EACH_BOX(id)                                                                                         \
	for (const char *boxes_[] = { host_box, gvisor ? gvisor_box : NULL, NULL }, **b_ = boxes_,           \
			*id = *b_;                                                                           \
	     id != NULL; id = *++b_)

/* A request at api 0 or 1; body is taken. */
static void ask(int api, const char *key, const char *method, const char *path, json_t *body, struct web *w)
{
	auto_json json_t *mine = body;
	auto_mem struct mem *m = mem_new();
	web_do(&stack,
	    &(struct web_req){ .api = api,
		.method = method,
		.path = path,
		.key = key,
		.body = mine == NULL ? NULL : js_dump(m, mine) },
	    w);
}

/* /v1/sandboxes/{box}/commands/{cmd}{rest} */
static const char *at(struct mem *m, const char *box, const char *cmd, const char *rest)
{
	return mem_fmt(m, "/v1/sandboxes/%s/commands%s%s%s", box, cmd[0] == 0 ? "" : "/", cmd, rest);
}

static void detach(const char *box, const char *command, bool stdin_open, char cmd[40])
{
	auto_web struct web w = { 0 };
	struct span began = span_begin();
	sbx_run(&stack, acme.key, box,
	    js_pack("{s:s, s:b, s:b}", "command", command, "detach", true, "stdinOpen", stdin_open), &w);
	if (w.status != 200)
		fail_msg("%ld %s", w.status, w.body);
	assert_true(span_ms(&began) < 10000);
	assert_true(js_int(w.json, "pid", 0) > 1);
	assert_true(js_bool(w.json, "stdinOpen", !stdin_open) == stdin_open);
	assert_true(json_is_null(json_object_get(w.json, "exitCode")));
	assert_null(json_object_get(w.json, "stdout"));
	(void)snprintf(cmd, 40, "%s", js_str(w.json, "id"));
}

static json_t *look(int api, const char *box, const char *cmd, int wait_s)
{
	auto_mem struct mem *m = mem_new();
	auto_web struct web w = { 0 };
	ask(api, acme.key, "GET", at(m, box, cmd, mem_fmt(m, "?waitSec=%d", wait_s)), NULL, &w);
	if (w.status != 200)
		fail_msg("%ld %s", w.status, w.body);
	return json_incref(w.json);
}

static void post(int api, const char *box, const char *cmd, const char *what, json_t *body, struct web *w)
{
	auto_mem struct mem *m = mem_new();
	ask(api, acme.key, "POST", at(m, box, cmd, what), body, w);
}

static int until_line(void *arg, const char *p, size_t n)
{
	struct buf *got = ((void **)arg)[0];
	const char *want = ((void **)arg)[1];
	assert_int_equal(buf_add(got, p, n), 0);
	return strstr(buf_c(got), want) == NULL ? 0 : -1;
}

/* Follow its output at an API host until this stands in it. */
static void read_until(int api, const char *box, const char *cmd, const char *want)
{
	auto_mem struct mem *m = mem_new();
	auto_web struct web w = { 0 };
	auto_buf struct buf got = BUF(1 << 20);
	void *arg[2] = { &got, (void *)(uintptr_t)want };
	web_do(&stack,
	    &(struct web_req){ .api = api,
		.method = "GET",
		.path = at(m, box, cmd, "/output?from=0"),
		.key = acme.key,
		.on_data = until_line,
		.arg = arg },
	    &w);
	if (strstr(buf_c(&got), want) == NULL)
		fail_msg("%s is not in %s", want, buf_c(&got));
}

/* faults 4, 25: it is started at one host, and looked at, read, fed and waited for at the other. */
static void a_detached_command_is_lived_with_from_any_host(void **s)
{
	(void)s;
	EACH_BOX(box)
	{
		char cmd[40];
		auto_web struct web w = { 0 }, w2 = { 0 };
		detach(box, "echo ready; while read -r x; do echo \"<$x>\"; done; exit 4", true, cmd);
		read_until(1, box, cmd, "ready");
		post(1, box, cmd, "/stdin", js_pack("{s:s}", "data", "one\n"), &w);
		assert_int_equal(w.status, 200);
		assert_int_equal(js_int(w.json, "taken", 0), 4);
		assert_int_equal(js_int(w.json, "stdinBytes", 0), 4);
		read_until(0, box, cmd, "<one>");
		auto_json json_t *now = look(1, box, cmd, 0);
		assert_string_equal(js_str(now, "state"), "running");
		assert_string_equal(json_string_value(json_array_get(json_object_get(now, "argv"), 0)), "sh");
		assert_true(js_bool(now, "stdinOpen", false));
		assert_int_equal(js_int(now, "stdoutFrom", -1), 0);
		assert_int_equal(js_int(now, "stdoutBytes", 0), strlen("ready\n<one>\n"));
		post(1, box, cmd, "/stdin",
		    js_pack(
			"{s:s,s:s,s:b,s:i}", "data", "dHdvCg==", "enc", "base64", "close", true, "offset", 4),
		    &w2);
		assert_int_equal(w2.status, 200);
		assert_false(js_bool(w2.json, "stdinOpen", true));
		auto_json json_t *end = look(0, box, cmd, 60);
		assert_string_equal(js_str(end, "state"), "ended");
		assert_int_equal(js_int(end, "exitCode", -1), 4);
		read_until(1, box, cmd, "<two>");
	}
}

static const json_t *find(const json_t *list, const char *cmd)
{
	size_t i;
	json_t *one;
	json_array_foreach(json_object_get(list, "data"), i, one)
		if (strcmp(js_str_or(one, "id", ""), cmd) == 0)
			return one;
	return NULL;
}

static void a_list_names_what_runs_and_what_has_ended(void **s)
{
	(void)s;
	char runs[40], ended[40];
	auto_mem struct mem *m = mem_new();
	auto_web struct web w = { 0 };
	detach(host_box, "sleep 1000", false, runs);
	detach(host_box, "echo x >&2; exit 1", false, ended);
	json_decref(look(0, host_box, ended, 60));
	ask(1, acme.key, "GET", at(m, host_box, "", ""), NULL, &w);
	assert_int_equal(w.status, 200);
	assert_string_equal(js_str(find(w.json, runs), "state"), "running");
	const json_t *last = find(w.json, ended);
	assert_string_equal(js_str(last, "state"), "ended");
	assert_int_equal(js_int(last, "exitCode", 0), 1);
	assert_int_equal(js_int(last, "stderrBytes", 0), 2);
}

static void another_orgs_commands_do_not_exist(void **s)
{
	(void)s;
	static const struct {
		const char *method, *rest, *body;
	} ways[] = { { "GET", "", NULL }, { "GET", "/output", NULL },
		{ "POST", "/stdin", "{\"data\":\"x\"}" }, { "POST", "/signal", "{\"signal\":\"KILL\"}" } };
	char cmd[40];
	auto_mem struct mem *m = mem_new();
	detach(host_box, "sleep 1000", true, cmd);
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		auto_web struct web theirs = { 0 }, nobodys = { 0 };
		struct web_req q = { .method = ways[i].method,
			.path = at(m, host_box, cmd, ways[i].rest),
			.key = other.key,
			.body = ways[i].body };
		web_do(&stack, &q, &theirs);
		q.path = at(m, "sbx_01jdq3v8m5c7x2k9f4t6w0b1ra", cmd, ways[i].rest);
		web_do(&stack, &q, &nobodys);
		assert_int_equal(theirs.status, 404);
		assert_string_equal(web_error(&theirs, "message"), web_error(&nobodys, "message"));
	}
	auto_web struct web list = { 0 };
	ask(0, other.key, "GET", at(m, host_box, "", ""), NULL, &list);
	assert_int_equal(list.status, 404);
	auto_json json_t *now = look(0, host_box, cmd, 0);
	assert_string_equal(js_str(now, "state"), "running");
	assert_int_equal(js_int(now, "stdinBytes", -1), 0);
}

/* fault 7: KILL is answered when nothing of it lives; any signal, by name or number. */
static void signals_reach_what_they_are_for(void **s)
{
	(void)s;
	EACH_BOX(box)
	{
		char cmd[40];
		auto_web struct web w = { 0 }, w2 = { 0 }, w3 = { 0 }, w4 = { 0 };
		auto_buf struct buf out = BUF(4096);
		detach(box,
		    "trap 'echo got' HUP; (setsid sleep 2001 &); echo ready; while :; do sleep 0.1; done",
		    false, cmd);
		read_until(0, box, cmd, "ready");
		post(1, box, cmd, "/signal", js_pack("{s:s,s:s}", "signal", "1", "to", "process"), &w);
		assert_int_equal(w.status, 200);
		assert_int_equal(js_int(w.json, "processes", 0), 1);
		read_until(1, box, cmd, "got");
		post(0, box, cmd, "/signal", js_pack("{s:s}", "signal", "NONE"), &w2);
		assert_int_equal(w2.status, 400);
		assert_string_equal(web_error(&w2, "param"), "signal");
		post(0, box, cmd, "/signal", js_pack("{s:s}", "signal", "SIGTERM"), &w3);
		assert_true(js_int(w3.json, "processes", 0) >= 1);
		auto_json json_t *end = look(0, box, cmd, 60);
		assert_string_equal(js_str_or(end, "signal", ""), "SIGTERM");
		assert_false(js_bool(end, "stopped", true));
		post(0, box, cmd, "/signal", js_pack("{s:s}", "signal", "KILL"), &w4);
		assert_int_equal(w4.status, 200);
		(void)sbx_sh(&stack, acme.key, box, "grep -ls 2001 /proc/[0-9]*/cmdline; :", &out);
		if (out.n > 0 && strstr(buf_c(&out), "/proc/self") == NULL)
			assert_null(
			    strchr(strchr(buf_c(&out), '\n') + 1, '\n')); /* at most the grep's own shell */
	}
}

static void who_does_not_read_is_told_of(void **s)
{
	(void)s;
	enum { N = 300000 };
	char cmd[40];
	auto_mem struct mem *m = mem_new();
	char *much = mem_alloc(m, N + 1);
	auto_web struct web w = { 0 }, w2 = { 0 }, w3 = { 0 }, w4 = { 0 };
	memset(much, 'x', N);
	detach(host_box, "sleep 1000", true, cmd);
	post(0, host_box, cmd, "/stdin", js_pack("{s:s,s:i}", "data", much, "waitSec", 0), &w);
	assert_int_equal(w.status, 200);
	long long taken = js_int(w.json, "taken", -1);
	assert_true(taken > 0 && taken < N);
	assert_int_equal(js_int(w.json, "stdinBytes", -1), taken);
	assert_true(js_bool(w.json, "stdinOpen", false));
	post(0, host_box, cmd, "/stdin", js_pack("{s:s,s:i}", "data", "x", "offset", 0), &w2);
	assert_int_equal(w2.status, 409);
	post(0, host_box, cmd, "/signal", js_pack("{s:s}", "signal", "KILL"), &w3);
	assert_int_equal(w3.status, 200);
	post(0, host_box, cmd, "/stdin", js_pack("{s:s}", "data", "x"), &w4);
	assert_int_equal(w4.status, 409);
}

/* HTTP-7: the same key starts it once, also at the other host. */
static void a_repeated_start_is_one_command(void **s)
{
	(void)s;
	static const char *const once[] = { "Idempotency-Key: detach-once", NULL };
	char path[80], first[40] = "";
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/run", host_box);
	for (int i = 0; i < 3; i++) {
		auto_web struct web w = { 0 };
		web_do(&stack,
		    &(struct web_req){ .api = i % 2,
			.method = "POST",
			.path = path,
			.key = acme.key,
			.headers = once,
			.body = "{\"command\":\"echo x >>once; sleep "
				"1000\",\"detach\":true,\"stdinOpen\":true}" },
		    &w);
		assert_int_equal(w.status, 200);
		assert_true(js_int(w.json, "pid", 0) > 1);
		assert_true(js_bool(w.json, "stdinOpen", false));
		if (i == 0)
			(void)snprintf(first, sizeof first, "%s", js_str(w.json, "id"));
		assert_string_equal(js_str(w.json, "id"), first);
	}
	auto_buf struct buf out = BUF(100);
	(void)sbx_sh(&stack, acme.key, host_box, "cat once", &out);
	assert_string_equal(buf_c(&out), "x\n");
}

/* ---- readers */

struct reader {
	pthread_t thread;
	const char *cmd;
	int leave_after, pieces; /* pieces of the body after which it hangs up; 0: never */
	long long bytes;
	bool ended;
};

static int count_piece(void *arg, const char *p, size_t n)
{
	struct reader *r = arg;
	r->bytes += (long long)n;
	r->ended = r->ended || memmem(p, n, "\"exit\"", 6) != NULL;
	return r->leave_after > 0 && ++r->pieces >= r->leave_after ? -1 : 0;
}

static void *read_on(void *arg)
{
	struct reader *r = arg;
	auto_mem struct mem *m = mem_new();
	auto_web struct web w = { 0 };
	web_do(&stack,
	    &(struct web_req){ .api = r->leave_after > 0,
		.method = "GET",
		.path = at(m, host_box, r->cmd, "/output?from=0"),
		.key = acme.key,
		.on_data = count_piece,
		.arg = r },
	    &w);
	return NULL;
}

/* Fault 29: one leaves in the middle, who started it leaves at once, the others hear everything. Fault 22: in one line. */
static void readers_that_leave_hold_up_nobody(void **s)
{
	(void)s;
	enum { READERS = 4 };
	struct reader r[READERS] = { { .leave_after = 2 }, { .leave_after = 1 } };
	char cmd[40];
	detach(host_box, "for i in $(seq 20); do head -c 20000 /dev/zero | tr '\\0' x; sleep 0.05; done",
	    false, cmd);
	for (int i = 0; i < READERS; i++) {
		r[i].cmd = cmd;
		assert_int_equal(pthread_create(&r[i].thread, NULL, read_on, &r[i]), 0);
	}
	for (int i = 0; i < READERS; i++)
		(void)pthread_join(r[i].thread, NULL);
	assert_false(r[0].ended || r[1].ended);
	assert_true(r[2].ended && r[3].ended);
	assert_true(r[2].bytes > 400000 && r[3].bytes > 400000);
	auto_json json_t *end = look(0, host_box, cmd, 0);
	assert_int_equal(js_int(end, "stdoutBytes", 0), 400000);
}

/* Fault 29: requests to start something that are cut off at once; whatever became of them, the next one is served. */
static void starts_that_are_cut_off_hold_up_nobody(void **s)
{
	(void)s;
	struct reader gone = { .leave_after = 1 };
	for (int i = 0; i < 5; i++) {
		auto_web struct web w = { 0 };
		auto_mem struct mem *m = mem_new();
		web_do(&stack,
		    &(struct web_req){ .method = "POST",
			.path = mem_fmt(m, "/v1/sandboxes/%s/run", host_box),
			.key = acme.key,
			.body = "{\"command\":\"sleep 1000\",\"stream\":true}",
			.on_data = count_piece,
			.arg = &gone },
		    &w);
	}
	struct span began = span_begin();
	assert_int_equal(sbx_sh(&stack, acme.key, host_box, "true", NULL), 0);
	assert_true(span_ms(&began) < 5000);
}

/* ---- sessions (SBX-43) */

static void open_session(char session[ID_MAX])
{
	struct err e = { 0 };
	struct pg_pool *pool = stack_pool(&stack, 1);
	struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
	assert_int_equal(session_open(db, acme.slug, "test", "t", "u", NULL, session, &e), 0);
	pg_put(db);
	pg_pool_free(pool);
}

/* Read the session until this stands in it. */
static void session_until(const char *session, const char *want, struct buf *got)
{
	auto_mem struct mem *m = mem_new();
	auto_web struct web w = { 0 };
	void *arg[2] = { got, (void *)(uintptr_t)want };
	web_do(&stack,
	    &(struct web_req){ .method = "GET",
		.path = mem_fmt(m, "/v1/agents/sessions/%s/stream", session),
		.key = acme.key,
		.on_data = until_line,
		.arg = arg },
	    &w);
	assert_non_null(strstr(buf_c(got), want));
}

/* Who asked for it has hung up, and it is stopped at the other host: what it said and how it ended are told all the same. */
static void a_session_is_told_of_a_stop(void **s)
{
	(void)s;
	char session[ID_MAX];
	struct reader gone = { .leave_after = 1 };
	auto_mem struct mem *m = mem_new();
	auto_web struct web run = { 0 }, stop = { 0 };
	auto_buf struct buf got = BUF(1 << 20);
	open_session(session);
	auto_json json_t *body = js_pack(
	    "{s:s,s:s,s:b}", "command", "echo before; sleep 1000", "session", session, "stream", true);
	web_do(&stack,
	    &(struct web_req){ .method = "POST",
		.path = mem_fmt(m, "/v1/sandboxes/%s/run", host_box),
		.key = acme.key,
		.body = js_dump(m, body),
		.on_data = count_piece,
		.arg = &gone },
	    &run);
	session_until(session, "before", &got);
	ask(1, acme.key, "POST", "/v1/sandboxes/stop", js_pack("{s:s}", "id", host_box), &stop);
	assert_true(js_int(stop.json, "stopped", 0) >= 1);
	session_until(session, "stopped", &got);
	assert_non_null(strstr(buf_c(&got), "\"tool-call\""));
}

/* SBX-43, fault 27: output that was told to a session is there when the sandbox is not. */
static void what_a_session_was_told_outlives_the_sandbox(void **s)
{
	(void)s;
	char box[40], session[ID_MAX];
	auto_mem struct mem *m = mem_new();
	auto_web struct web run = { 0 }, again = { 0 };
	auto_buf struct buf got = BUF(1 << 20);
	open_session(session);
	sbx_lease(&stack, acme.key, NULL, box);
	sbx_run(&stack, acme.key, box,
	    js_pack("{s:s,s:s}", "command", "echo last words; exit 6", "session", session), &run);
	assert_int_equal(run.status, 200);
	sbx_end(&stack, acme.key, box);
	ask(1, acme.key, "GET", at(m, box, js_str(run.json, "id"), "/output"), NULL, &again);
	assert_int_equal(again.status, 409);
	assert_non_null(strstr(web_error(&again, "message"), "it has ended"));
	session_until(session, "exit 6", &got);
	assert_non_null(strstr(buf_c(&got), "last words"));
}

/* ---- patience: longer than a ping's interval, and with GATEHOUSE_HEAVY=1 than any client's usual minute */

static struct silent {
	pthread_t thread;
	struct web w;
	int64_t took_ms;
} silent;

static int silence_s(void)
{
	return getenv("GATEHOUSE_HEAVY") != NULL ? 65 : 16;
}

static void *be_silent(void *unused)
{
	(void)unused;
	char command[40];
	int64_t began_ms = clock_ms();
	(void)snprintf(command, sizeof command, "sleep %d; echo done", silence_s());
	auto_json json_t *body = js_pack(
	    "{s:s,s:s,s:i}", "id", patient_box, "command", command, "timeoutSec", 10 * PATIENCE_MS / 1000);
	auto_free char *text = json_dumps(body, 0);
	web_do(&stack,
	    &(struct web_req){ .method = "POST",
		.path = "/v1/sandboxes/run",
		.key = acme.key,
		.body = text,
		.timeout_s = 10 * PATIENCE_MS / 1000 },
	    &silent.w);
	silent.took_ms = clock_ms() - began_ms;
	return NULL;
}

/* Fault 2: no hop's own patience is shorter than the command's time. Begun in up(). */
static void a_silent_command_is_waited_for(void **s)
{
	(void)s;
	(void)pthread_join(silent.thread, NULL);
	assert_int_equal(silent.w.status, 200);
	assert_string_equal(js_str(silent.w.json, "stdout"), "done\n");
	assert_true(silent.took_ms >= silence_s() * 1000LL);
	web_free(&silent.w);
}

static int up(void **s)
{
	(void)s;
	stack_up(&stack, 2, 0, 1, NULL);
	stack_org(&stack, &acme);
	stack_org(&stack, &other);
	sbx_lease(&stack, acme.key, NULL, patient_box);
	assert_int_equal(pthread_create(&silent.thread, NULL, be_silent, NULL), 0);
	sbx_lease(&stack, acme.key, NULL, host_box);
	gvisor = sbx_offered(&stack, acme.key, "gvisor");
	if (gvisor)
		sbx_lease(&stack, acme.key, js_pack("{s:s}", "runtime", "gvisor"), gvisor_box);
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
		cmocka_unit_test(a_detached_command_is_lived_with_from_any_host),
		cmocka_unit_test(a_list_names_what_runs_and_what_has_ended),
		cmocka_unit_test(another_orgs_commands_do_not_exist),
		cmocka_unit_test(signals_reach_what_they_are_for),
		cmocka_unit_test(who_does_not_read_is_told_of),
		cmocka_unit_test(a_repeated_start_is_one_command),
		cmocka_unit_test(readers_that_leave_hold_up_nobody),
		cmocka_unit_test(starts_that_are_cut_off_hold_up_nobody),
		cmocka_unit_test(a_session_is_told_of_a_stop),
		cmocka_unit_test(what_a_session_was_told_outlives_the_sandbox),
		cmocka_unit_test(a_silent_command_is_waited_for),
	};
	return cmocka_run_group_tests_name("sandbox_commands", tests, up, down);
}
