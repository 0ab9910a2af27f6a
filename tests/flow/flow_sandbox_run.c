/* flow_sandbox_run.c - commands, streams, files and narration of sandboxes over HTTP (SBX-40…44, SBX-47). */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/ndjson.h"
#include "io/pg.h"
#include "sbx.h"
#include "session/event.h"

static struct stack stack;
static struct stack_org acme, other;
static bool gvisor;
static char host_box[40], gvisor_box[40];

#define EACH_BOX(id)                                                                                         \
	for (const char *boxes_[] = { host_box, gvisor ? gvisor_box : NULL, NULL }, **b_ = boxes_,           \
			*id = *b_;                                                                           \
	     id != NULL; id = *++b_)

/* ---- how commands end (SBX-40) */

static void an_exit_is_data_and_a_signal_is_named(void **s)
{
	(void)s;
	static const struct {
		const char *command, *signal;
		int code;
	} ways[] = { { "exit 0", NULL, 0 }, { "exit 3", NULL, 3 }, { "exit 255", NULL, 255 },
		{ "kill -9 $$", "SIGKILL", -1 }, { "kill -15 $$", "SIGTERM", -1 },
		{ "exec sh -c 'exit 7'", NULL, 7 } };
	EACH_BOX(id)
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		auto_web struct web w = { 0 };
		sbx_run(&stack, acme.key, id, js_pack("{s:s}", "command", ways[i].command), &w);
		assert_int_equal(w.status, 200);
		assert_int_equal(js_int(w.json, "exitCode", -1), ways[i].code);
		assert_string_equal(
		    js_str_or(w.json, "signal", ""), ways[i].signal == NULL ? "" : ways[i].signal);
	}
}

static void what_cannot_be_run_is_127_or_126_with_a_reason(void **s)
{
	(void)s;
	auto_web struct web w = { 0 }, w2 = { 0 };
	sbx_run(&stack, acme.key, host_box, js_pack("{s:[s]}", "argv", "no-such-program"), &w);
	assert_int_equal(js_int(w.json, "exitCode", -1), 127);
	assert_non_null(js_str(w.json, "message"));
	sbx_run(&stack, acme.key, host_box, js_pack("{s:[s]}", "argv", "/etc/passwd"), &w2);
	assert_int_equal(js_int(w2.json, "exitCode", -1), 126);
	assert_non_null(js_str(w2.json, "message"));
}

static void standard_input_is_empty_unless_given(void **s)
{
	(void)s;
	auto_web struct web w = { 0 }, w2 = { 0 };
	sbx_run(&stack, acme.key, host_box,
	    js_pack("{s:s,s:i}", "command", "cat; echo end", "timeoutSec", 60), &w);
	assert_string_equal(js_str(w.json, "stdout"), "end\n");
	sbx_run(&stack, acme.key, host_box,
	    js_pack("{s:[s],s:s,s:s}", "argv", "cat", "stdin", "h\xc3\xa9llo", "dir", "/tmp"), &w2);
	assert_string_equal(js_str(w2.json, "stdout"), "h\xc3\xa9llo");
}

static void a_bad_request_names_its_field(void **s)
{
	(void)s;
	static const struct {
		const char *body, *param;
		long status;
	} bad[] = {
		{ "{\"id\":\"@\"}", "argv", 400 },
		{ "{\"id\":\"@\",\"argv\":[\"true\"],\"command\":\"true\"}", "command", 400 },
		{ "{\"id\":\"@\",\"argv\":[]}", "argv", 400 },
		{ "{\"id\":\"@\",\"argv\":[\"\"]}", "argv", 400 },
		{ "{\"id\":\"@\",\"argv\":[\"true\",1]}", "argv[1]", 400 },
		{ "{\"id\":\"@\",\"argv\":[\"a\"],\"timeoutSec\":1801}", "timeoutSec",
		    400 }, /* not clamped */
		{ "{\"id\":\"@\",\"argv\":[\"true\"],\"dir\":\"/none\"}", "dir", 404 },
		{ "{\"id\":\"@\",\"argv\":[\"true\"],\"timeoutSec\":0}", "timeoutSec", 400 },
		{ "{\"id\":\"@\",\"argv\":[\"true\"],\"env\":{\"A=B\":\"x\"}}", "env", 400 },
		{ "{\"id\":\"@\",\"argv\":[\"true\"],\"detach\":true,\"stream\":true}", "stream", 400 },
		{ "{\"id\":\"@\",\"argv\":[\"a\"],\"detach\":true,\"session\":\"ses_x\"}", "session", 400 },
		{ "{\"id\":\"@\",\"argv\":[\"true\"],\"stdinOpen\":true}", "stdinOpen", 400 },
		{ "{\"id\":\"@\",\"argv\":[\"true\"],\"detach\":true,\"stdin\":\"x\",\"stdinOpen\":true}",
		    "stdinOpen", 400 },
		{ "{\"id\":\"@\",\"argv\":[\"true\"],\"session\":\"ses_none\"}", "", 404 },
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		char body[300];
		auto_web struct web w = { 0 };
		sbx_with(bad[i].body, host_box, body, sizeof body);
		web_do(&stack,
		    &(struct web_req){
			.method = "POST", .path = "/v1/sandboxes/run", .key = acme.key, .body = body },
		    &w);
		if (w.status != bad[i].status || strcmp(web_error(&w, "param"), bad[i].param) != 0)
			fail_msg("%s: %ld %s", body, w.status, w.body);
	}
}

/* SBX-41: the whole tree, within a second, and no zombie stays. */
static void a_timeout_takes_the_whole_tree(void **s)
{
	(void)s;
	EACH_BOX(id)
	{
		auto_web struct web w = { 0 };
		auto_buf struct buf out = BUF(65536), command = BUF(1000);
		int limit_s = 1 + span_room_ms(100) / 1000; /* it has to speak before */
		/* In this gVisor a stopped child hangs up its whole group. */
		(void)buf_fmt(&command,
		    "echo before; (setsid sh -c 'trap \"\" TERM; sleep 1000' &); (sh -c 'sleep 1001 & sleep "
		    "1002' &);"
		    "sleep 1003 & %s sleep 1004",
		    id == host_box ? "kill -STOP $!;" : "");
		struct span began = span_begin();
		sbx_run(&stack, acme.key, id,
		    js_pack("{s:s,s:i}", "command", buf_c(&command), "timeoutSec", limit_s), &w);
		assert_int_equal(w.status, 200);
		assert_true(js_bool(w.json, "timedOut", false));
		assert_true(span_of(&began, js_int(w.json, "durationMs", 0)) < limit_s * 1000 + 1000);
		assert_string_equal(js_str(w.json, "stdout"), "before\n"); /* what there was is returned */
		(void)sbx_sh(&stack, acme.key, id, "cat /proc/[0-9]*/stat | grep -cE 'sleep|Z'", &out);
		assert_string_equal(buf_c(&out), "0\n");
	}
}

/* ---- output (SBX-42) */

static void much_output_keeps_its_tail_and_the_true_count(void **s)
{
	(void)s;
	auto_web struct web w = { 0 };
	sbx_run(&stack, acme.key, host_box,
	    js_pack("{s:s,s:i}", "command",
		"head -c 64M /dev/zero | tr '\\0' x; echo the-end; echo short >&2", "timeoutSec",
		5 * PATIENCE_MS / 1000),
	    &w);
	assert_int_equal(w.status, 200);
	assert_int_equal(js_int(w.json, "stdoutBytes", 0), (64 << 20) + 8);
	assert_true(js_bool(w.json, "truncated", false));
	const char *out = js_str(w.json, "stdout");
	assert_int_equal(strlen(out), 1 << 20);
	assert_string_equal(out + strlen(out) - 8, "the-end\n");
	assert_string_equal(js_str(w.json, "stderr"), "short\n");
}

static void bytes_that_are_no_text_are_not_lost(void **s)
{
	(void)s;
	auto_web struct web w = { 0 };
	unsigned char bytes[300];
	sbx_run(&stack, acme.key, host_box,
	    js_pack("{s:[s,s,s]}", "argv", "python3", "-c",
		"import sys; sys.stdout.buffer.write(bytes(range(256)))"),
	    &w);
	assert_string_equal(js_str(w.json, "stdoutEnc"), "base64");
	const char *text = js_str(w.json, "stdout");
	assert_int_equal(b64_decode(text, strlen(text), bytes), 256);
	for (int i = 0; i < 256; i++)
		assert_int_equal(bytes[i], i);
}

/* ---- streams */

struct reading {
	struct ndjson lines;
	struct buf out; /* of stdout, put together by offsets */
	long long from;
	int starts, exits, code, leave_after; /* hang up after so many data lines */
	int data_lines;
	char cmd[40], last[16];
	bool bad;
};

static void take(struct reading *r, const json_t *line)
{
	const char *type = js_str_or(line, "type", ""), *data = js_str_or(line, "data", "");
	(void)snprintf(r->last, sizeof r->last, "%s", type);
	if (strcmp(type, "start") == 0) {
		r->starts++;
		(void)snprintf(r->cmd, sizeof r->cmd, "%s", js_str_or(line, "id", ""));
	} else if (strcmp(type, "exit") == 0) {
		r->exits++;
		r->code = (int)js_int(line, "exitCode", -1);
	} else if (strcmp(type, "stdout") == 0) {
		r->data_lines++;
		r->bad = r->bad || js_int(line, "offset", -1) != r->from + (long long)r->out.n;
		r->bad = r->bad || strcmp(js_str_or(line, "enc", ""), "utf8") != 0;
		(void)buf_str(&r->out, data);
	}
}

static int on_piece(void *arg, const char *p, size_t n)
{
	struct reading *r = arg;
	struct str text;
	struct err e = { 0 };
	r->bad = r->bad || ndjson_feed(&r->lines, p, n) != 0;
	while (ndjson_next(&r->lines, &text)) {
		auto_json json_t *line = js_parse(text.p, text.n, &e);
		r->bad = r->bad || line == NULL || text.n > 64 * 1024;
		take(r, line);
		if (r->leave_after > 0 && r->data_lines >= r->leave_after)
			return -1;
	}
	return 0;
}

static struct reading reading(long long from, int leave_after)
{
	return (struct reading){
		.lines = ndjson_new(1 << 17), .out = BUF(8 << 20), .from = from, .leave_after = leave_after
	};
}

static void reading_free(struct reading *r)
{
	ndjson_free(&r->lines);
	buf_free(&r->out);
}

static void start_stream(const char *id, const char *command, struct reading *r)
{
	auto_json json_t *body = js_pack("{s:s,s:s,s:b,s:i}", "id", id, "command", command, "stream", 1,
	    "timeoutSec", 5 * PATIENCE_MS / 1000);
	auto_free char *text = json_dumps(body, 0);
	auto_web struct web w = { 0 };
	web_do(&stack,
	    &(struct web_req){ .method = "POST",
		.path = "/v1/sandboxes/run",
		.key = acme.key,
		.body = text,
		.on_data = on_piece,
		.arg = r },
	    &w);
}

static void resume_stream(const char *id, const char *cmd, long long from, int api, struct reading *r)
{
	char path[300];
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s/output?from=%lld", id, cmd, from);
	web_do(&stack,
	    &(struct web_req){
		.method = "GET", .path = path, .key = acme.key, .api = api, .on_data = on_piece, .arg = r },
	    &w);
}

static void characters_are_whole_and_bytes_complete(void **s)
{
	(void)s;
	EACH_BOX(id)
	{
		struct reading r = reading(0, 0);
		/* Writes that cut each three-byte character apart. */
		start_stream(id,
		    "python3 -c 'import os,time\nb=(\"\\u20ac\"*20000).encode()\nfor i in "
		    "range(0,len(b),1001): os.write(1,b[i:i+1001])'",
		    &r);
		assert_false(r.bad);
		assert_int_equal(r.starts, 1);
		assert_int_equal(r.exits, 1);
		assert_int_equal(r.out.n, 60000);
		for (size_t i = 0; i < r.out.n; i += 3)
			assert_memory_equal(r.out.p + i, "\xe2\x82\xac", 3);
		reading_free(&r);
	}
}

/* The client leaves and comes back, at another API host: nothing is missing, nothing twice, nothing run again. */
static void a_stream_goes_on_where_it_was_left(void **s)
{
	(void)s;
	char want[2000] = "";
	for (int i = 1; i <= 30; i++)
		(void)snprintf(want + strlen(want), sizeof want - strlen(want), "line %d\n", i);
	EACH_BOX(id)
	{
		struct reading first = reading(0, 1);
		/* The rest is held back until the client is gone. */
		start_stream(id,
		    "echo x >> count; for i in $(seq 30); do echo line $i; [ $i != 9 ] || until [ -e go ]; "
		    "do "
		    "sleep 0.05; done; done; exit 5",
		    &first);
		assert_int_equal(first.exits, 0);
		assert_true(first.out.n > 0);
		assert_int_equal(sbx_sh(&stack, acme.key, id, "touch go", NULL), 0);
		struct reading rest = reading((long long)first.out.n, 0);
		resume_stream(id, first.cmd, (long long)first.out.n, 1, &rest);
		assert_false(first.bad || rest.bad);
		assert_int_equal(rest.code, 5);
		assert_int_equal(buf_add(&first.out, rest.out.p, rest.out.n), 0);
		assert_string_equal(buf_c(&first.out), want);
		/* Over and over, from anywhere. */
		struct reading again = reading(7, 0);
		resume_stream(id, first.cmd, 7, 0, &again);
		assert_string_equal(buf_c(&again.out), want + 7);
		auto_buf struct buf out = BUF(100);
		(void)sbx_sh(&stack, acme.key, id, "cat count; rm count go", &out);
		assert_string_equal(buf_c(&out), "x\n");
		reading_free(&first);
		reading_free(&rest);
		reading_free(&again);
	}
}

static void an_unknown_command_is_not_found(void **s)
{
	(void)s;
	char path[200];
	auto_web struct web w = { 0 };
	(void)snprintf(
	    path, sizeof path, "/v1/sandboxes/%s/commands/cmd_01jdq3v8m5c7x2k9f4t6w0b1ra/output", host_box);
	web_json(&stack, "GET", path, acme.key, NULL, &w);
	assert_int_equal(w.status, 404);
}

static void an_offset_past_the_end_is_refused(void **s)
{
	(void)s;
	static const char *const bad[][2] = { { "from=4", "from" }, { "from=9223372036854775807", "from" },
		{ "from=0&fromStderr=1", "fromStderr" }, { "stream=stderr&from=1", "from" } };
	char path[200];
	auto_web struct web ran = { 0 }, whole = { 0 };
	sbx_run(&stack, acme.key, host_box, js_pack("{s:s}", "command", "echo hi"), &ran);
	const char *cmd = js_str(ran.json, "id");
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		auto_web struct web w = { 0 };
		(void)snprintf(
		    path, sizeof path, "/v1/sandboxes/%s/commands/%s/output?%s", host_box, cmd, bad[i][0]);
		web_json(&stack, "GET", path, acme.key, NULL, &w);
		assert_int_equal(w.status, 400);
		assert_string_equal(web_error(&w, "param"), bad[i][1]);
	}
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s/output?from=3", host_box, cmd);
	web_json(&stack, "GET", path, acme.key, NULL, &whole);
	assert_int_equal(whole.status, 200);
}

/* ---- stop (SBX-44) */

static void *run_long(void *arg)
{
	struct reading *r = arg;
	start_stream(host_box, "echo started; sleep 500", r);
	return NULL;
}

static void stop_ends_the_work_and_keeps_the_lease(void **s)
{
	(void)s;
	pthread_t t[2];
	struct reading r[2] = { reading(0, 0), reading(0, 0) };
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, run_long, &r[i]), 0);
	auto_buf struct buf out = BUF(100);
	int64_t deadline = clock_ms() + 60000;
	do {
		buf_reset(&out);
		(void)sbx_sh(&stack, acme.key, host_box,
		    "grep -l '^sleep$' /proc/[0-9]*/comm 2>/dev/null | wc -l", &out);
	} while (strcmp(buf_c(&out), "2\n") != 0 && clock_ms() < deadline);
	{
		auto_web struct web w = { 0 };
		web_json(
		    &stack, "POST", "/v1/sandboxes/stop", other.key, js_pack("{s:s}", "id", host_box), &w);
		assert_int_equal(w.status, 404);
	}
	auto_web struct web w = { 0 };
	auto_json json_t *body = js_pack("{s:s}", "id", host_box);
	auto_free char *text = json_dumps(body, 0);
	web_do(&stack,
	    &(struct web_req){
		.method = "POST", .path = "/v1/sandboxes/stop", .key = acme.key, .body = text, .api = 1 },
	    &w);
	assert_int_equal(js_int(w.json, "stopped", -1), 2);
	for (int i = 0; i < 2; i++) {
		(void)pthread_join(t[i], NULL);
		assert_int_equal(r[i].exits, 1);
		reading_free(&r[i]);
	}
	auto_web struct web again = { 0 };
	web_json(&stack, "POST", "/v1/sandboxes/stop", acme.key, js_pack("{s:s}", "id", host_box), &again);
	assert_int_equal(js_int(again.json, "stopped", -1), 0); /* a true answer */
	assert_int_equal(sbx_sh(&stack, acme.key, host_box, "true", NULL), 0);
}

/* ---- narration (SBX-43) */

static void a_session_is_told_the_output_and_the_end(void **s)
{
	(void)s;
	struct err e = { 0 };
	char session[ID_MAX], foreign[ID_MAX];
	struct pg_pool *pool = stack_pool(&stack, 2);
	struct pg *db = pg_take(pool, PATIENCE_MS, &e);
	assert_non_null(db);
	assert_int_equal(session_open(db, acme.slug, "test", "t", "u", NULL, session, &e), 0);
	assert_int_equal(session_open(db, other.slug, "test", "t", "u", NULL, foreign, &e), 0);
	{
		auto_web struct web w = { 0 };
		sbx_run(&stack, acme.key, host_box,
		    js_pack("{s:s,s:s}", "command", "true", "session", foreign), &w);
		assert_int_equal(w.status, 404);
	}
	auto_web struct web w = { 0 };
	sbx_run(&stack, acme.key, host_box,
	    js_pack("{s:s,s:s}", "command", "echo hello; echo oops >&2; exit 3", "session", session), &w);
	assert_int_equal(js_int(w.json, "exitCode", -1), 3);
	assert_string_equal(js_str(w.json, "stdout"), "hello\n"); /* the reply is complete all the same */
	auto_json json_t *events = session_read(db, acme.slug, session, 0, 100, &e);
	auto_free char *text = json_dumps(events, JSON_COMPACT);
	assert_non_null(strstr(text, "hello"));
	assert_non_null(strstr(text, "oops"));
	const json_t *last = json_array_get(events, json_array_size(events) - 1);
	assert_string_equal(js_str_or(last, "step", ""), "exit");
	assert_non_null(strstr(text, "exit 3"));
	pg_put(db);
	pg_pool_free(pool);
}

/* ---- files (SBX-47) */

static void file_op(const char *op, json_t *body, struct web *w)
{
	char path[60];
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s", op);
	web_json(&stack, "POST", path, acme.key, body, w);
}

static void what_is_written_is_read_and_listed(void **s)
{
	(void)s;
	EACH_BOX(id)
	{
		auto_web struct web w = { 0 }, w2 = { 0 }, w3 = { 0 };
		file_op("write",
		    js_pack("{s:s,s:s,s:s,s:s}", "id", id, "path", "deep/er/a.txt", "content", "h\xc3\xa9\n",
			"mode", "0640"),
		    &w);
		if (w.status != 200)
			fail_msg("%ld %s", w.status, w.body);
		assert_int_equal(js_int(w.json, "size", 0), 4);
		file_op("read", js_pack("{s:s,s:s}", "id", id, "path", "/mnt/data/deep/er/a.txt"), &w2);
		assert_string_equal(js_str(w2.json, "kind"), "file");
		assert_string_equal(js_str(w2.json, "content"), "h\xc3\xa9\n");
		assert_string_equal(js_str(w2.json, "mode"), "0640");
		file_op("read", js_pack("{s:s,s:s}", "id", id, "path", "deep/er"), &w3);
		assert_string_equal(js_str(w3.json, "kind"), "dir");
		const json_t *entry = json_array_get(js_get(w3.json, "entries"), 0);
		assert_string_equal(js_str(entry, "name"), "a.txt");
		assert_int_equal(js_int(entry, "size", 0), 4);
	}
}

static void a_path_out_of_the_workspace_is_refused(void **s)
{
	(void)s;
	static const char *const out[] = { "/etc/passwd", "../../etc/passwd", "/mnt/data/../../etc/passwd",
		"link/passwd", "/init", "/proc/1/environ" };
	assert_int_equal(sbx_sh(&stack, acme.key, host_box, "ln -sfn /etc link", NULL), 0);
	for (size_t i = 0; i < sizeof out / sizeof out[0]; i++) {
		auto_web struct web w = { 0 }, w2 = { 0 };
		file_op("read", js_pack("{s:s,s:s}", "id", host_box, "path", out[i]), &w);
		if (w.status != 403)
			fail_msg("%s: %ld %s", out[i], w.status, w.body);
		file_op(
		    "write", js_pack("{s:s,s:s,s:s}", "id", host_box, "path", out[i], "content", "x"), &w2);
		assert_int_equal(w2.status, 403);
		assert_string_equal(web_error(&w, "param"), "path");
		assert_string_equal(web_error(&w2, "param"), "path");
	}
}

/* HTTP-4: there is no room and will be none: no 503, which says that another try may do. */
static void a_full_disk_is_no_reason_to_try_again(void **s)
{
	(void)s;
	char id[40], path[200];
	sbx_lease(&stack, acme.key, js_pack("{s:{s:i,s:i}}", "limits", "memoryMb", 256, "diskMb", 32), id);
	assert_int_not_equal(sbx_sh(&stack, acme.key, id, "head -c 100M /dev/zero >big", NULL), 0);
	auto_free char *body = calloc(1, 100001);
	assert_non_null(body);
	memset(body, 'x', 100000);
	auto_web struct web posted = { 0 }, put = { 0 };
	const struct web *const both[] = { &posted, &put };
	file_op("write", js_pack("{s:s,s:s,s:s}", "id", id, "path", "more", "content", body), &posted);
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/files?path=more", id);
	web_do(&stack,
	    &(struct web_req){ .method = "PUT",
		.path = path,
		.key = acme.key,
		.body = body,
		.body_n = 100000,
		.type = "application/octet-stream" },
	    &put);
	for (int i = 0; i < 2; i++) {
		const struct web *w = both[i];
		if (w->status != 507)
			fail_msg("%d: %ld %s", i, w->status, w->body);
		assert_string_equal(web_error(w, "code"), "no_space");
		assert_string_equal(web_error(w, "type"), "api_error");
		assert_null(strcasestr(w->headers, "\nRetry-After:"));
	}
	sbx_end(&stack, acme.key, id);
}

static void an_upload_is_streamed_and_parts_are_read(void **s)
{
	(void)s;
	enum { SIZE = 24 << 20 };
	auto_free char *body = malloc(SIZE);
	assert_non_null(body);
	for (size_t i = 0; i < SIZE; i++)
		body[i] = (char)('a' + i % 23);
	char path[200], sum[SHA256_HEX];
	auto_web struct web w = { 0 }, w2 = { 0 }, w3 = { 0 };
	auto_buf struct buf out = BUF(200);
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/files?path=big.bin&mode=0600", host_box);
	web_do(&stack,
	    &(struct web_req){ .method = "PUT",
		.path = path,
		.key = acme.key,
		.body = body,
		.body_n = SIZE,
		.type = "application/octet-stream" },
	    &w);
	if (w.status != 200)
		fail_msg("%ld %s", w.status, w.body);
	assert_int_equal(js_int(w.json, "size", 0), SIZE);
	sha256_hex(body, SIZE, sum);
	(void)sbx_sh(&stack, acme.key, host_box, "sha256sum big.bin | cut -d' ' -f1 | tr -d '\\n'", &out);
	assert_string_equal(buf_c(&out), sum);
	file_op("read", js_pack("{s:s,s:s}", "id", host_box, "path", "big.bin"), &w2);
	assert_int_equal(w2.status, 413); /* too large for one JSON value */
	file_op("read",
	    js_pack(
		"{s:s,s:s,s:i,s:i}", "id", host_box, "path", "big.bin", "offset", SIZE - 10, "length", 100),
	    &w3);
	assert_int_equal(w3.status, 200);
	assert_memory_equal(js_str(w3.json, "content"), body + SIZE - 10, 10);
	assert_int_equal(strlen(js_str(w3.json, "content")), 10);
}

static int up(void **s)
{
	(void)s;
	stack_up(&stack, 2, 0, 1, NULL);
	stack_org(&stack, &acme);
	stack_org(&stack, &other);
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
		cmocka_unit_test(an_exit_is_data_and_a_signal_is_named),
		cmocka_unit_test(what_cannot_be_run_is_127_or_126_with_a_reason),
		cmocka_unit_test(standard_input_is_empty_unless_given),
		cmocka_unit_test(a_bad_request_names_its_field),
		cmocka_unit_test(a_timeout_takes_the_whole_tree),
		cmocka_unit_test(much_output_keeps_its_tail_and_the_true_count),
		cmocka_unit_test(bytes_that_are_no_text_are_not_lost),
		cmocka_unit_test(characters_are_whole_and_bytes_complete),
		cmocka_unit_test(a_stream_goes_on_where_it_was_left),
		cmocka_unit_test(an_unknown_command_is_not_found),
		cmocka_unit_test(an_offset_past_the_end_is_refused),
		cmocka_unit_test(stop_ends_the_work_and_keeps_the_lease),
		cmocka_unit_test(a_session_is_told_the_output_and_the_end),
		cmocka_unit_test(what_is_written_is_read_and_listed),
		cmocka_unit_test(a_path_out_of_the_workspace_is_refused),
		cmocka_unit_test(a_full_disk_is_no_reason_to_try_again),
		cmocka_unit_test(an_upload_is_streamed_and_parts_are_read),
	};
	return cmocka_run_group_tests_name("sandbox_run", tests, up, down);
}
