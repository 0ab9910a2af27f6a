/* flow_sandbox_crash.c - bad days of sandboxes (SBX-5, SBX-60, SBX-63, SBX-65, REL-1): processes killed at every named point. */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/ndjson.h"
#include "io/file.h"
#include "sbx.h"

static struct stack stack;
static struct stack_org acme;

/* ---- a request in a thread of its own: the other side dies under it */

struct asked {
	pthread_t thread;
	const char *path;
	json_t *body;
	long status;
	char message[ERR_MSG_MAX], id[40];
	json_t *reply;
};

static void *ask(void *arg)
{
	struct asked *a = arg;
	auto_web struct web w = { 0 };
	web_json(&stack, "POST", a->path, acme.key, a->body, &w);
	a->status = w.status;
	a->reply = json_incref(w.json);
	(void)snprintf(a->message, sizeof a->message, "%s", web_error(&w, "message"));
	(void)snprintf(a->id, sizeof a->id, "%s", js_str_or(w.json, "id", ""));
	return NULL;
}

static void ask_begin(struct asked *a, const char *path, json_t *body)
{
	*a = (struct asked){ .path = path, .body = body };
	assert_int_equal(pthread_create(&a->thread, NULL, ask, a), 0);
}

static void ask_end(struct asked *a)
{
	(void)pthread_join(a->thread, NULL);
}

static void ask_free(struct asked *a)
{
	json_decref(a->reply);
}

/* Started, with its first round done and registered. */
static void node_up(void)
{
	auto_buf struct buf before = BUF(100), now = BUF(100);
	int64_t deadline = clock_ms() + 60000;
	stack_sql(&stack, "select started_at from nodes", &before);
	stack_start(&stack, "node1");
	do {
		(void)poll(NULL, 0, 20);
		buf_reset(&now);
		stack_sql(&stack, "select started_at from nodes", &now);
	} while (strcmp(buf_c(&before), buf_c(&now)) == 0 && clock_ms() < deadline);
	stack_ready(&stack);
}

static int live_rows(void)
{
	auto_buf struct buf out = BUF(100);
	stack_sql(&stack, "select count(*) from sandboxes where status in ('pending', 'running')", &out);
	return atoi(buf_c(&out));
}

static void wait_no_live_rows(void)
{
	int64_t deadline = clock_ms() + 2 * PATIENCE_MS;
	while (live_rows() > 0 && clock_ms() < deadline)
		(void)poll(NULL, 0, 100);
	assert_int_equal(live_rows(), 0);
}

/* ---- sandboxd killed while it builds */

static void killed_at(const char *point)
{
	struct asked a;
	stack_crash_arm(&stack, point);
	ask_begin(&a, "/v1/sandboxes", json_object());
	assert_true(stack_crash_reached(&stack, point));
	stack_kill(&stack, "node1");
	stack_crash_release(&stack, point);
	node_up();
	ask_end(&a);
	if (a.status != 503)
		fail_msg("%s: %ld %s", point, a.status, a.message);
	/* A row that was running already is a running sandbox, found again; nobody was told of it, so it is ended here. */
	auto_buf struct buf id = BUF(100);
	int64_t deadline = clock_ms() + 60000;
	while (live_rows() > 0 && clock_ms() < deadline) {
		buf_reset(&id);
		stack_sql(&stack, "select id from sandboxes where status = 'running' limit 1", &id);
		id.p[strcspn(buf_c(&id), "\n")] = '\0';
		if (id.p[0] != '\0') {
			assert_string_equal(point, "sandbox.running");
			assert_int_equal(sbx_sh(&stack, acme.key, id.p, "echo alive", NULL), 0);
			sbx_end(&stack, acme.key, id.p);
		}
		(void)poll(NULL, 0, 100);
	}
	wait_no_live_rows();
	sbx_no_leaks(&stack);
	ask_free(&a);
}

static void nothing_is_left_of_a_start_that_was_killed(void **s)
{
	(void)s;
	static const char *const points[] = { "sandbox.bundle", "sandbox.netns", "sandbox.started",
		"sandbox.ready", "sandbox.running" };
	for (size_t i = 0; i < sizeof points / sizeof points[0]; i++)
		killed_at(points[i]);
}

/* SBX-60: nobody ever asks the node for the row of an API process that died. */
static void a_row_whose_api_died_is_closed(void **s)
{
	(void)s;
	struct asked a;
	stack_crash_arm(&stack, "sandbox.row");
	ask_begin(&a, "/v1/sandboxes", json_object());
	assert_true(stack_crash_reached(&stack, "sandbox.row"));
	stack_kill(&stack, "api1");
	assert_int_equal(live_rows(), 1);
	stack_crash_release(&stack, "sandbox.row");
	stack_start(&stack, "api1");
	stack_ready(&stack);
	ask_end(&a);
	ask_free(&a);
	wait_no_live_rows();
	auto_buf struct buf why = BUF(300);
	stack_sql(&stack, "select error from sandboxes order by id desc limit 1", &why);
	assert_non_null(strstr(buf_c(&why), "never finished"));
	sbx_no_leaks(&stack);
}

/* A row's insertion does not wait for the disk: a crash of PostgreSQL may take it back until the sandbox runs. Who asked is told to ask
 * again, and nothing is left. */
static void a_row_that_the_database_lost_is_asked_for_again(void **s)
{
	(void)s;
	static const char *const points[] = { "sandbox.row", "sandbox.started", "sandbox.ready" };
	for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
		struct asked a;
		stack_crash_arm(&stack, points[i]);
		ask_begin(&a, "/v1/sandboxes", json_object());
		assert_true(stack_crash_reached(&stack, points[i]));
		stack_sql(&stack, "delete from sandboxes where status = 'pending'", NULL);
		stack_crash_release(&stack, points[i]);
		ask_end(&a);
		if (a.status != 503 || strstr(a.message, "has lost the lease") == NULL)
			fail_msg("%s: %ld %s", points[i], a.status, a.message);
		assert_int_equal(live_rows(), 0);
		sbx_no_leaks(&stack);
		ask_free(&a);
	}
}

static void an_end_that_was_killed_is_completed(void **s)
{
	(void)s;
	static const char *const points[] = { "sandbox.destroying", "sandbox.gone" };
	for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
		struct asked a;
		char id[40], status[12];
		sbx_lease(&stack, acme.key, NULL, id);
		stack_crash_arm(&stack, points[i]);
		ask_begin(&a, "/v1/sandboxes/end", js_pack("{s:s}", "id", id));
		assert_true(stack_crash_reached(&stack, points[i]));
		stack_kill(&stack, "node1");
		stack_crash_release(&stack, points[i]);
		node_up();
		ask_end(&a);
		sbx_end(&stack, acme.key, id); /* asked again it is done, whatever became of the first time */
		sbx_status(&stack, acme.key, id, status);
		assert_true(strcmp(status, "ended") == 0 || strcmp(status, "error") == 0);
		sbx_no_leaks(&stack);
		ask_free(&a);
	}
}

/* ---- commands in flight */

struct stream {
	struct ndjson lines;
	struct buf out;
	int exits, code;
	bool gap;
};

static int on_piece(void *arg, const char *p, size_t n)
{
	struct stream *st = arg;
	struct str text;
	struct err e = { 0 };
	(void)ndjson_feed(&st->lines, p, n);
	while (ndjson_next(&st->lines, &text)) {
		auto_json json_t *line = js_parse(text.p, text.n, &e);
		const char *type = js_str_or(line, "type", "");
		if (strcmp(type, "stdout") == 0) {
			st->gap = st->gap || js_int(line, "offset", -1) != (long long)st->out.n;
			(void)buf_str(&st->out, js_str_or(line, "data", ""));
		} else if (strcmp(type, "exit") == 0) {
			st->exits++;
			st->code = (int)js_int(line, "exitCode", -1);
		}
	}
	return 0;
}

struct streaming {
	pthread_t thread;
	const char *id, *command;
	struct stream st;
};

static void *stream_run(void *arg)
{
	struct streaming *s = arg;
	auto_json json_t *body = js_pack(
	    "{s:s,s:s,s:b,s:i}", "id", s->id, "command", s->command, "stream", 1, "timeoutSec", 600);
	auto_free char *text = json_dumps(body, 0);
	auto_web struct web w = { 0 };
	web_do(&stack,
	    &(struct web_req){ .method = "POST",
		.path = "/v1/sandboxes/run",
		.key = acme.key,
		.body = text,
		.on_data = on_piece,
		.arg = &s->st },
	    &w);
	return NULL;
}

/* Until so many run in it. */
static void await_commands(const char *id, size_t n)
{
	char path[120];
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/commands", id);
	for (int64_t until = clock_ms() + 60000;; (void)poll(NULL, 0, 50)) {
		auto_web struct web w = { 0 };
		web_json(&stack, "GET", path, acme.key, NULL, &w);
		if (w.status == 200 && json_array_size(js_get(w.json, "data")) >= n)
			return;
		if (clock_ms() > until)
			fail_msg("no %zu commands: %ld %s", n, w.status, w.body);
	}
}

/* SBX-63: killed and started again under a running command, twice; the client sees one stream without a seam. */
static void a_command_outlives_sandboxd_and_its_output_is_continuous(void **s)
{
	(void)s;
	static const char *const runtimes[] = { "", "gvisor" };
	char want[1000] = "";
	for (int i = 1; i <= 60; i++)
		(void)snprintf(want + strlen(want), sizeof want - strlen(want), "line %d\n", i);
	for (int k = 0; k < 2; k++) {
		char id[40];
		if (k == 1 && !sbx_offered(&stack, acme.key, runtimes[k]))
			break;
		sbx_lease(&stack, acme.key, k == 0 ? NULL : js_pack("{s:s}", "runtime", runtimes[k]), id);
		struct streaming st = { .id = id,
			.command = "echo x >> runs; for i in $(seq 60); do echo line $i; sleep 0.1; done; "
				   "cat runs | wc -l >&2; exit 4",
			.st = { .lines = ndjson_new(1 << 17), .out = BUF(1 << 20) } };
		struct asked quiet;
		assert_int_equal(pthread_create(&st.thread, NULL, stream_run, &st), 0);
		ask_begin(&quiet, "/v1/sandboxes/run",
		    js_pack("{s:s,s:s,s:i}", "id", id, "command", "sleep 4; echo fin", "timeoutSec", 600));
		await_commands(id, 2);
		for (int i = 0; i < 2; i++) {
			(void)poll(NULL, 0, 1200);
			stack_kill(&stack, "node1");
			node_up();
		}
		(void)pthread_join(st.thread, NULL);
		ask_end(&quiet);
		assert_int_equal(st.st.exits, 1);
		assert_int_equal(st.st.code, 4);
		assert_false(st.st.gap);
		assert_string_equal(buf_c(&st.st.out), want);
		assert_int_equal(quiet.status, 200);
		assert_string_equal(js_str(quiet.reply, "stdout"), "fin\n");
		ask_free(&quiet);
		buf_free(&st.st.out);
		ndjson_free(&st.st.lines);
		sbx_end(&stack, acme.key, id);
	}
	sbx_no_leaks(&stack);
}

static void sandboxd_stopped_in_peace_hands_its_streams_on(void **s) /* RUN-6 */
{
	(void)s;
	char id[40];
	struct asked a;
	sbx_lease(&stack, acme.key, NULL, id);
	ask_begin(&a, "/v1/sandboxes/run",
	    js_pack("{s:s,s:s,s:i}", "id", id, "command", "sleep 3; echo fin", "timeoutSec", 600));
	await_commands(id, 1);
	struct span t = span_begin();
	stack_stop(&stack, "node1");
	assert_true(span_ms(&t) < 5000);
	node_up();
	ask_end(&a);
	assert_int_equal(a.status, 200);
	assert_string_equal(js_str(a.reply, "stdout"), "fin\n");
	ask_free(&a);
	sbx_end(&stack, acme.key, id);
}

static pid_t box_pid(const char *id)
{
	char path[200];
	struct err e = { 0 };
	auto_buf struct buf text = BUF(32);
	(void)snprintf(path, sizeof path, "%s/sandboxes/node1/b/%s/pid", stack.dir, id);
	assert_int_equal(file_read(path, &text, &e), 0);
	return (pid_t)atoi(buf_c(&text));
}

/* A lost channel is an error that says why, never a success; the row says it too, and everything is removed. */
static void a_killed_box_is_reported_and_cleaned(void **s)
{
	(void)s;
	char id[40], status[12];
	struct asked a;
	sbx_lease(&stack, acme.key, NULL, id);
	ask_begin(&a, "/v1/sandboxes/run", js_pack("{s:s,s:s}", "id", id, "command", "sleep 200"));
	auto_buf struct buf out = BUF(100);
	int64_t deadline = clock_ms() + 60000;
	do {
		buf_reset(&out);
		(void)sbx_sh(
		    &stack, acme.key, id, "grep -l '^sleep$' /proc/[0-9]*/comm 2>/dev/null | wc -l", &out);
	} while (strcmp(buf_c(&out), "1\n") != 0 && clock_ms() < deadline);
	assert_int_equal(kill(box_pid(id), SIGKILL), 0);
	ask_end(&a);
	assert_int_equal(a.status, 502);
	assert_non_null(strstr(a.message, "unknown how the command ended"));
	assert_non_null(strstr(a.message, "ended by itself"));
	ask_free(&a);
	sbx_status(&stack, acme.key, id, status);
	assert_string_equal(status, "error");
	sbx_no_leaks(&stack);
	sbx_end(&stack, acme.key, id); /* fine, and changes nothing */
	sbx_status(&stack, acme.key, id, status);
	assert_string_equal(status, "error");
	auto_web struct web w = { 0 };
	sbx_run(&stack, acme.key, id, js_pack("{s:s}", "command", "true"), &w);
	assert_int_equal(w.status, 409);
}

/* Ended on purpose, which is known: no fault of anybody's. */
static void a_command_whose_sandbox_is_ended_says_so(void **s)
{
	(void)s;
	char id[40];
	struct asked a;
	sbx_lease(&stack, acme.key, NULL, id);
	ask_begin(&a, "/v1/sandboxes/run", js_pack("{s:s,s:s}", "id", id, "command", "sleep 200"));
	auto_buf struct buf out = BUF(100);
	int64_t deadline = clock_ms() + 60000;
	do {
		buf_reset(&out);
		(void)sbx_sh(
		    &stack, acme.key, id, "grep -l '^sleep$' /proc/[0-9]*/comm 2>/dev/null | wc -l", &out);
	} while (strcmp(buf_c(&out), "1\n") != 0 && clock_ms() < deadline);
	assert_string_equal(buf_c(&out), "1\n"); /* it is under way */
	sbx_end(&stack, acme.key, id);
	ask_end(&a);
	if (a.status != 409) {
		auto_buf struct buf reply = BUF(4096);
		(void)js_dump_buf(&reply, a.reply);
		fail_msg("%ld %s", a.status, buf_c(&reply));
	}
	assert_string_equal(js_str_or(js_get(a.reply, "error"), "code", ""), "ended");
	assert_string_equal(a.message, "The sandbox was ended while the command ran.");
	ask_free(&a);
}

/* One answer for a node that is away, whatever is asked; an end that was asked for is done later. */
static void a_node_that_is_away_is_told_alike_everywhere(void **s)
{
	(void)s;
	static const char *const puts[] = { "files?path=x", "files/tar?path=x" };
	char id[40], path[120], status[12] = "running";
	sbx_lease(&stack, acme.key, NULL, id);
	stack_kill(&stack, "node1");
	for (size_t i = 0; i < sizeof puts / sizeof puts[0]; i++) {
		auto_web struct web w = { 0 };
		(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/%s", id, puts[i]);
		web_do(&stack,
		    &(struct web_req){ .method = "PUT", .path = path, .key = acme.key, .body = "some" }, &w);
		assert_int_equal(w.status, 503);
		assert_string_equal(web_error(&w, "code"), "node_away");
	}
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s", id);
	web_json(&stack, "DELETE", path, acme.key, NULL, &w);
	assert_int_equal(w.status, 503);
	assert_string_equal(web_error(&w, "code"), "node_away");
	assert_non_null(strstr(web_error(&w, "message"), "will be ended as soon as it is back"));
	node_up();
	int64_t deadline = clock_ms() + 60000;
	while (strcmp(status, "running") == 0 && clock_ms() < deadline)
		sbx_status(&stack, acme.key, id, status);
	assert_string_equal(status, "ended");
}

static void a_box_killed_while_nobody_watched_is_found_out(void **s)
{
	(void)s;
	char id[40], status[12] = "running";
	sbx_lease(&stack, acme.key, NULL, id);
	pid_t pid = box_pid(id);
	stack_kill(&stack, "node1");
	assert_int_equal(kill(pid, SIGKILL), 0);
	node_up();
	int64_t deadline = clock_ms() + 60000;
	while (strcmp(status, "running") == 0 && clock_ms() < deadline)
		sbx_status(&stack, acme.key, id, status);
	assert_string_equal(status, "error");
	sbx_no_leaks(&stack);
}

/* What an earlier disaster left without any row. */
static void strays_are_removed(void **s)
{
	(void)s;
	char id[40];
	auto_buf struct buf out = BUF(100);
	sbx_lease(&stack, acme.key, NULL, id);
	stack_sql(&stack,
	    "update sandboxes set status = 'ended', ended_at = now(), slot = null where status = 'running'",
	    &out);
	sbx_no_leaks(&stack);
}

static void without_a_node_nothing_is_leased_and_nothing_is_written(void **s) /* COD-14 */
{
	(void)s;
	auto_buf struct buf out = BUF(100), before = BUF(100), after = BUF(100);
	stack_sql(&stack, "select count(*) from sandboxes", &before);
	stack_stop(&stack, "node1");
	stack_sql(&stack, "update nodes set heartbeat_at = now() - interval '1 hour'", &out);
	auto_web struct web w = { 0 };
	web_json(&stack, "POST", "/v1/sandboxes", acme.key, json_object(), &w);
	assert_int_equal(w.status, 503);
	assert_non_null(strstr(web_error(&w, "message"), "No node offers sandboxes"));
	stack_sql(&stack, "select count(*) from sandboxes", &after);
	assert_string_equal(buf_c(&before), buf_c(&after));
	node_up();
}

static void a_full_node_says_so(void **s)
{
	(void)s;
	char id[4][40];
	for (int i = 0; i < 4; i++)
		sbx_lease(&stack, acme.key, NULL, id[i]);
	auto_web struct web w = { 0 };
	web_json(&stack, "POST", "/v1/sandboxes", acme.key, json_object(), &w);
	if (w.status != 503 || strstr(web_error(&w, "message"), "full") == NULL) {
		auto_buf struct buf all = BUF(8192);
		stack_sql(&stack,
		    "select (select capacity from nodes), id, slot, status from sandboxes where slot is not "
		    "null",
		    &all);
		fail_msg("%ld %s; %s", w.status, w.body, buf_c(&all));
	}
	for (int i = 0; i < 4; i++)
		sbx_end(&stack, acme.key, id[i]);
	sbx_no_leaks(&stack);
}

static int up(void **s)
{
	(void)s;
	stack_up(&stack, 1, 0, 1, "NODE_CAPACITY=4");
	stack_org(&stack, &acme);
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
		cmocka_unit_test(nothing_is_left_of_a_start_that_was_killed),
		cmocka_unit_test(a_row_whose_api_died_is_closed),
		cmocka_unit_test(a_row_that_the_database_lost_is_asked_for_again),
		cmocka_unit_test(an_end_that_was_killed_is_completed),
		cmocka_unit_test(a_command_outlives_sandboxd_and_its_output_is_continuous),
		cmocka_unit_test(sandboxd_stopped_in_peace_hands_its_streams_on),
		cmocka_unit_test(a_killed_box_is_reported_and_cleaned),
		cmocka_unit_test(a_command_whose_sandbox_is_ended_says_so),
		cmocka_unit_test(a_node_that_is_away_is_told_alike_everywhere),
		cmocka_unit_test(a_box_killed_while_nobody_watched_is_found_out),
		cmocka_unit_test(strays_are_removed),
		cmocka_unit_test(without_a_node_nothing_is_leased_and_nothing_is_written),
		cmocka_unit_test(a_full_node_says_so),
	};
	return cmocka_run_group_tests_name("sandbox_crash", tests, up, down);
}
