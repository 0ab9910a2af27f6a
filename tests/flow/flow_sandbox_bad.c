/*
 * flow_sandbox_bad.c - bad days of what runs in sandboxes: sandboxd dies under many of them, and code in them does what it likes
 * (SBX-41, SBX-46, SBX-63). The others must be well meanwhile. GATEHOUSE_HEAVY=1: twenty sandboxes in place of five.
 */
#include "../span.h"
#include "../t.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/ndjson.h"
#include "base/str.h"
#include "io/file.h"
#include "sandbox/boxdir.h"
#include "sbx.h"

enum { FEW = 5, MANY = 20, COMMANDS = 20, LINES = 40 };

static struct stack stack;
static struct stack_org acme;
static char neighbour[40];

static int sandboxes(void)
{
	return getenv("GATEHOUSE_HEAVY") != NULL ? MANY : FEW;
}

static void detach(const char *box, const char *command, char cmd[40])
{
	auto_web struct web w = { 0 };
	sbx_run(&stack, acme.key, box, js_pack("{s:s, s:b}", "command", command, "detach", true), &w);
	if (w.status != 200)
		fail_msg("%s: %ld %s", command, w.status, w.body);
	(void)snprintf(cmd, 40, "%s", js_str(w.json, "id"));
}

static json_t *look(const char *box, const char *cmd, int wait_s)
{
	char path[200];
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s?waitSec=%d", box, cmd, wait_s);
	web_json(&stack, "GET", path, acme.key, NULL, &w);
	if (w.status != 200)
		fail_msg("%ld %s", w.status, w.body);
	return json_incref(w.json);
}

static void stop(const char *box)
{
	auto_web struct web w = { 0 };
	struct span began = span_begin();
	web_json(&stack, "POST", "/v1/sandboxes/stop", acme.key, js_pack("{s:s}", "id", box), &w);
	if (w.status != 200)
		fail_msg("%ld %s", w.status, w.body);
	assert_true(span_ms(&began) < 5000);
}

/* Another sandbox works as ever. */
static void others_are_well(void)
{
	struct span began = span_begin();
	assert_int_equal(sbx_sh(&stack, acme.key, neighbour, "echo well >there; cat there", NULL), 0);
	assert_true(span_ms(&began) < 5000);
}

/* Started, with its first round done. */
static void node_again(void)
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

/* ---- sandboxd dies */

/* Its output so far, put together by offsets; true when they left no gap. */
static bool output_of(const char *box, const char *cmd, struct buf *out)
{
	char path[200];
	bool whole = true;
	struct err e = { 0 };
	struct str text;
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s/output?from=0", box, cmd);
	web_do(&stack, &(struct web_req){ .method = "GET", .path = path, .key = acme.key }, &w);
	assert_int_equal(w.status, 200);
	struct ndjson lines = ndjson_new(1 << 17);
	assert_int_equal(ndjson_feed(&lines, w.body, w.body_n), 0);
	while (ndjson_next(&lines, &text)) {
		auto_json json_t *line = js_parse(text.p, text.n, &e);
		if (strcmp(js_str_or(line, "type", ""), "stdout") != 0)
			continue;
		whole = whole && js_int(line, "offset", -1) == (long long)out->n;
		assert_int_equal(buf_str(out, js_str_or(line, "data", "")), 0);
	}
	ndjson_free(&lines);
	return whole;
}

struct lived {
	char box[40], cmd[40];
};

static void ended_well(const struct lived *l, const char *want, int code)
{
	auto_json json_t *end = look(l->box, l->cmd, 60);
	assert_string_equal(js_str(end, "state"), "ended");
	assert_int_equal(js_int(end, "exitCode", -1), code);
	auto_buf struct buf out = BUF(1 << 20);
	assert_true(output_of(l->box, l->cmd, &out));
	assert_string_equal(buf_c(&out), want);
}

/* SBX-63; faults 25, 26: twenty commands in all, in one sandbox after the other. */
static void many_sandboxes_and_commands_outlive_sandboxd(void **s)
{
	(void)s;
	static char box[MANY][40];
	static struct lived lived[COMMANDS];
	char want[LINES * 12] = "", status[12];
	int n = sandboxes();
	for (int i = 1; i <= LINES; i++)
		(void)snprintf(want + strlen(want), sizeof want - strlen(want), "line %d\n", i);
	for (int i = 0; i < n; i++)
		sbx_lease(&stack, acme.key, NULL, box[i]);
	for (int i = 0; i < COMMANDS; i++) {
		char command[160];
		(void)snprintf(command, sizeof command,
		    "for i in $(seq %d); do echo line $i; sleep 0.1; done; echo x >>ran; exit %d", LINES,
		    i + 1);
		(void)snprintf(lived[i].box, sizeof lived[i].box, "%s", box[i % n]);
		detach(lived[i].box, command, lived[i].cmd);
	}
	stack_kill(&stack, "node1");
	node_again();
	for (int i = 0; i < n; i++) {
		sbx_status(&stack, acme.key, box[i], status);
		assert_string_equal(status, "running");
	}
	for (int i = 0; i < COMMANDS; i++)
		ended_well(&lived[i], want, i + 1);
	for (int i = 0; i < n; i++) {
		auto_buf struct buf out = BUF(100), runs = BUF(100);
		(void)buf_fmt(&runs, "%d\n", COMMANDS / n);
		(void)sbx_sh(&stack, acme.key, box[i], "wc -l <ran", &out);
		assert_string_equal(buf_c(&out), buf_c(&runs)); /* nothing ran twice */
		sbx_end(&stack, acme.key, box[i]);
	}
}

/* What is timed in the box needs nobody outside. */
static void a_time_out_holds_while_sandboxd_is_away(void **s)
{
	(void)s;
	auto_web struct web w = { 0 };
	char box[40];
	sbx_lease(&stack, acme.key, NULL, box);
	sbx_run(&stack, acme.key, box,
	    js_pack("{s:s, s:b, s:i}", "command", "(setsid sleep 2002 &); echo begun; sleep 2002", "detach",
		true, "timeoutSec", 2 + span_room_ms(200) / 1000), /* it has to speak before */
	    &w);
	assert_int_equal(w.status, 200);
	stack_kill(&stack, "node1");
	node_again();
	auto_json json_t *end = look(box, js_str(w.json, "id"), 60);
	assert_true(js_bool(end, "timedOut", false));
	assert_int_equal(js_int(end, "stdoutBytes", 0), 6);
	assert_true(json_is_null(json_object_get(end, "oom"))); /* this process did not see it begin */
	auto_buf struct buf out = BUF(100);
	(void)sbx_sh(&stack, acme.key, box, "grep -c ^sleep /proc/[0-9]*/comm | grep -c :1", &out);
	assert_string_equal(buf_c(&out), "0\n");
	sbx_end(&stack, acme.key, box);
}

/* ---- code that misbehaves */

static long memory_kb(pid_t pid)
{
	char path[64];
	struct err e = { 0 };
	auto_buf struct buf text = BUF(8192);
	(void)snprintf(path, sizeof path, "/proc/%d/status", pid);
	assert_int_equal(file_read(path, &text, &e), 0);
	const char *at = strstr(buf_c(&text), "VmRSS:");
	assert_non_null(at);
	return strtol(at + 6, NULL, 10);
}

/* Faults 6, 28: nobody reads what eight commands write as fast as they can. */
static void a_flood_of_output_is_counted_and_kept_in_bounds(void **s)
{
	(void)s;
	char box[40], cmd[8][40];
	sbx_lease(&stack, acme.key, NULL, box);
	pid_t node = stack_pid(&stack, "node1");
	long before_kb = memory_kb(node);
	for (int i = 0; i < 8; i++)
		detach(box, "yes 0123456789 & yes >&2", cmd[i]);
	others_are_well();
	auto_json json_t *now = look(box, cmd[7], 2);
	for (int64_t until = clock_ms() + PATIENCE_MS; js_int(now, "stdoutBytes", 0) <= 4 << 20;) {
		assert_true(clock_ms() < until);
		json_decref(now);
		now = look(box, cmd[7], 1);
	}
	assert_string_equal(js_str(now, "state"), "running");
	long long bytes = js_int(now, "stdoutBytes", 0);
	assert_true(bytes - js_int(now, "stdoutFrom", 0) <= 1 << 20);
	assert_true(js_int(now, "stdoutFrom", 0) > 0);
	assert_true(memory_kb(node) - before_kb < 65536); /* sanitizers keep what was freed for a while */
	stop(box);
	assert_int_equal(sbx_sh(&stack, acme.key, box, "true", NULL), 0);
	sbx_end(&stack, acme.key, box);
}

static void ten_thousand_open_files_are_the_commands_own_business(void **s)
{
	(void)s;
	char box[40], cmd[40];
	sbx_lease(&stack, acme.key, NULL, box);
	detach(box,
	    "python3 -c 'import os,time,resource\n"
	    "resource.setrlimit(resource.RLIMIT_NOFILE,(resource.getrlimit(resource.RLIMIT_NOFILE)[1],)*2)\n"
	    "n=0\n"
	    "try:\n"
	    "  while n<10000: os.open(\"/tmp\",0); n+=1\n"
	    "except OSError: pass\n"
	    "while True:\n"
	    "  try: os.close(os.dup(0)) if n<10000 else 0\n"
	    "  except OSError: pass\n"
	    "  print(n,flush=True); time.sleep(0.2)'",
	    cmd);
	auto_buf struct buf out = BUF(4096);
	for (int64_t until = clock_ms() + 60000; out.n == 0;) {
		auto_json json_t *now = look(box, cmd, 0);
		if (js_int(now, "stdoutBytes", 0) > 0)
			break;
		assert_true(clock_ms() < until);
		(void)poll(NULL, 0, 50);
	}
	assert_int_equal(sbx_sh(&stack, acme.key, box, "echo here", NULL), 0);
	others_are_well();
	stop(box);
	sbx_end(&stack, acme.key, box);
}

/* SBX-63: the box cannot be looked into, stopped or ended from inside; fault 9. */
static void the_box_cannot_be_traced_or_ended(void **s)
{
	(void)s;
	char box[40];
	auto_buf struct buf out = BUF(4096);
	sbx_lease(&stack, acme.key, NULL, box);
	(void)sbx_sh(&stack, acme.key, box,
	    "python3 - <<'E'\n"
	    "import ctypes, os, signal\n"
	    "libc = ctypes.CDLL(None, use_errno=True)\n"
	    "for request in (16, 0x4206):\n" /* PTRACE_ATTACH, PTRACE_SEIZE */
	    "    print(libc.ptrace(request, 1, 0, 0))\n"
	    "for name in ('mem', 'environ', 'fd/0', 'maps'):\n"
	    "    try: print(len(open('/proc/1/' + name, 'rb').read(1)))\n"
	    "    except OSError: print('no')\n"
	    "for sig in (9, 11, 15, 19, 31, 34):\n"
	    "    os.kill(1, sig)\n"
	    "E\n",
	    &out);
	assert_string_equal(buf_c(&out), "-1\n-1\nno\nno\nno\nno\n");
	assert_int_equal(sbx_sh(&stack, acme.key, box, "true", NULL), 0);
	sbx_end(&stack, acme.key, box);
}

/* Its socket's directory is not the sandbox's any more: nothing can be put in its place, or in its way. */
static void the_boxs_socket_cannot_be_replaced(void **s)
{
	(void)s;
	char box[40];
	auto_buf struct buf out = BUF(4096);
	sbx_lease(&stack, acme.key, NULL, box);
	(void)sbx_sh(&stack, acme.key, box,
	    "d=/run/gatehouse; b=$d/" BOXDIR_SOCKET "; ls $d >/dev/null 2>&1 || echo closed\n"
	    "for do in \"mv $b /tmp/old\" \"rm $b\" \"ln -sf /tmp/x $b\" \"touch $d/other\" \"mv $d /tmp/d\" "
	    "\"rmdir $d\"; do\n"
	    "$do >/dev/null 2>&1 && echo \"$do\"; done",
	    &out);
	assert_string_equal(buf_c(&out), "closed\n");
	sbx_end(&stack, acme.key, box);
}

/* Fault 12: forks and memory without end, while nobody waits for it; told as what it was, and the sandbox goes on. */
static void bombs_stay_inside_and_are_told_of(void **s)
{
	(void)s;
	char forks[40], hog[40], cmd[2][40];
	sbx_lease(&stack, acme.key, js_pack("{s:{s:i}}", "limits", "pids", 64), forks);
	sbx_lease(&stack, acme.key, js_pack("{s:{s:i,s:i}}", "limits", "memoryMb", 256, "diskMb", 64), hog);
	detach(forks, "bash -c ':(){ :|:& };:' 2>/dev/null; sleep 60", cmd[0]);
	detach(hog, "exec python3 -c 'bytearray(900<<20)'", cmd[1]);
	for (int i = 0; i < 3; i++)
		others_are_well();
	auto_json json_t *end = look(hog, cmd[1], 60);
	assert_string_equal(js_str(end, "state"), "ended");
	assert_string_equal(js_str_or(end, "signal", ""), "SIGKILL");
	assert_true(js_bool(end, "oom", false));
	assert_int_equal(sbx_sh(&stack, acme.key, hog, "echo alive", NULL), 0);
	stop(forks);
	assert_int_equal(sbx_sh(&stack, acme.key, forks, "echo again", NULL), 0);
	auto_json json_t *bomb = look(forks, cmd[0], 0);
	assert_true(js_bool(bomb, "stopped", false) || strcmp(js_str(bomb, "state"), "ended") == 0);
	sbx_end(&stack, acme.key, forks);
	sbx_end(&stack, acme.key, hog);
}

/* Fault 12: what starts a thread for each processor is told how many are its own, unless the lease says otherwise. */
static void a_command_is_told_its_share_of_the_processors(void **s)
{
	(void)s;
	char one[40], asked[40];
	auto_buf struct buf out = BUF(100), more = BUF(100);
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
	sbx_lease(&stack, acme.key, js_pack("{s:{s:i}}", "limits", "cpus", 1), one);
	(void)sbx_sh(&stack, acme.key, one, "nproc", &out);
	assert_string_equal(buf_c(&out), "1\n");
	sbx_lease(&stack, acme.key,
	    js_pack("{s:{s:i},s:{s:s}}", "limits", "cpus", 1, "env", "OMP_NUM_THREADS", "3"), asked);
	(void)sbx_sh(&stack, acme.key, asked, "nproc", &more);
	assert_string_equal(buf_c(&more), "3\n");
	sbx_end(&stack, acme.key, one);
	sbx_end(&stack, acme.key, asked);
}

static void nothing_is_left(void **s)
{
	(void)s;
	sbx_end(&stack, acme.key, neighbour);
	sbx_no_leaks(&stack);
}

static int up(void **s)
{
	(void)s;
	stack_up(&stack, 1, 0, 1, "NODE_CAPACITY=24");
	stack_org(&stack, &acme);
	sbx_lease(&stack, acme.key, NULL, neighbour);
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
		cmocka_unit_test(many_sandboxes_and_commands_outlive_sandboxd),
		cmocka_unit_test(a_time_out_holds_while_sandboxd_is_away),
		cmocka_unit_test(a_flood_of_output_is_counted_and_kept_in_bounds),
		cmocka_unit_test(ten_thousand_open_files_are_the_commands_own_business),
		cmocka_unit_test(the_box_cannot_be_traced_or_ended),
		cmocka_unit_test(the_boxs_socket_cannot_be_replaced),
		cmocka_unit_test(bombs_stay_inside_and_are_told_of),
		cmocka_unit_test(a_command_is_told_its_share_of_the_processors),
		cmocka_unit_test(nothing_is_left),
	};
	return cmocka_run_group_tests_name("sandbox_bad", tests, up, down);
}
