/* flow_sandbox.c - what a sandbox is, looked at from inside and from the host (SBX-1…5, 10…17, 24, 30, 31, 33). */
#include "../span.h"
#include "../t.h"

#include "../fds.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "io/file.h"
#include "sbx.h"

enum { SETTLE_MS = 1000, BACK_MS = 60000 };

static struct stack stack;
static struct stack_org acme, other;
static bool gvisor;
static char host_box[40], gvisor_box[40]; /* one of each for the tests that only look */

#define EACH_BOX(id)                                                                                         \
	for (const char *boxes_[] = { host_box, gvisor ? gvisor_box : NULL, NULL }, **b_ = boxes_,           \
			*id = *b_;                                                                           \
	     id != NULL; id = *++b_)

static void said(const char *id, const char *command, struct buf *out)
{
	assert_int_equal(sbx_sh(&stack, acme.key, id, command, out), 0);
}

/* ---- hardening (SBX-30) */

static void there_is_no_capability_and_no_new_privilege(void **s)
{
	(void)s;
	EACH_BOX(id)
	{
		auto_buf struct buf out = BUF(4096);
		said(id, "grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status", &out);
		const char *text = buf_c(&out);
		assert_non_null(strstr(text, "CapEff:\t0000000000000000"));
		assert_non_null(strstr(text, "CapBnd:\t0000000000000000"));
		assert_non_null(strstr(text, "CapPrm:\t0000000000000000"));
		if (id != host_box)
			continue; /* gVisor filters its own calls towards the host and shows neither inside */
		assert_non_null(strstr(text, "NoNewPrivs:\t1"));
		assert_non_null(strstr(text, "Seccomp:\t2"));
	}
}

static void forbidden_calls_fail(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(4096);
	said(host_box,
	    "python3 - <<'E'\n"
	    "import ctypes, errno, os\n"
	    "libc = ctypes.CDLL(None, use_errno=True)\n"
	    "def call(*a):\n"
	    "    r = libc.syscall(*a)\n"
	    "    return 'ok' if r >= 0 else errno.errorcode[ctypes.get_errno()]\n"
	    "print('unshare', call(272, 0x10000000))\n" /* CLONE_NEWUSER */
	    "print('clone', call(56, 0x10000011, 0, 0, 0, 0))\n"
	    "print('clone3', call(435, 0, 0))\n"
	    "print('mount', call(165, 0, 0, 0, 0, 0))\n"
	    "print('bpf', call(321, 0, 0, 0))\n"
	    "print('keyctl', call(250, 0, 0, 0))\n"
	    "print('io_uring_setup', call(425, 1, 0))\n"
	    "print('perf_event_open', call(298, 0, 0, 0, 0, 0))\n"
	    "print('af_alg', call(41, 38, 5, 0))\n"
	    "print('af_vsock', call(41, 40, 1, 0))\n"
	    "print('af_packet', call(41, 17, 3, 0))\n"
	    "E\n",
	    &out);
#if defined(__x86_64__)
	assert_string_equal(buf_c(&out),
	    "unshare EPERM\nclone EPERM\nclone3 ENOSYS\nmount EPERM\nbpf EPERM\nkeyctl EPERM\nio_uring_setup "
	    "EPERM\n"
	    "perf_event_open EPERM\naf_alg EPERM\naf_vsock EPERM\naf_packet EPERM\n");
#endif
}

/* fault 43 */
static void only_loopback_is_there_and_nothing_answers(void **s)
{
	(void)s;
	EACH_BOX(id)
	{
		auto_buf struct buf out = BUF(8192);
		said(id,
		    "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; python3 - <<'E'\n"
		    "import socket\n"
		    "for a in (('1.1.1.1', 53), ('169.254.169.254', 80), ('10.0.0.1', 22)):\n"
		    "    s = socket.socket()\n"
		    "    s.settimeout(3)\n"
		    "    try:\n"
		    "        s.connect(a)\n"
		    "        print('connected')\n"
		    "    except OSError as e:\n"
		    "        print('no')\n"
		    "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
		    "try:\n"
		    "    u.sendto(b'x', ('8.8.8.8', 53))\n"
		    "    print('sent')\n"
		    "except OSError:\n"
		    "    print('no')\n"
		    "l = socket.socket()\n"
		    "l.bind(('127.0.0.1', 0))\n"
		    "l.listen()\n"
		    "socket.create_connection(l.getsockname())\n"
		    "print('loopback works')\n"
		    "E\n",
		    &out);
		assert_string_equal(buf_c(&out), "lo\nno\nno\nno\nno\nloopback works\n");
	}
}

/* Every directory in which a file can be made, of all that can be seen. */
static void only_the_declared_paths_can_be_written(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(65536);
	said(host_box,
	    "python3 - <<'E'\n"
	    "import os\n"
	    "found = set()\n"
	    "for top, dirs, files in os.walk('/'):\n"
	    "    if top in ('/proc', '/sys'):\n"
	    "        dirs[:] = []\n"
	    "        continue\n"
	    "    try:\n"
	    "        p = os.path.join(top, '.probe')\n"
	    "        open(p, 'w').close()\n"
	    "        os.unlink(p)\n"
	    "        found.add(top)\n"
	    "    except OSError:\n"
	    "        pass\n"
	    "print(' '.join(sorted(found)))\n"
	    "E\n",
	    &out);
	assert_string_equal(buf_c(&out), "/dev/shm /mnt/data /state /state/home /tmp\n");
}

static void writable_paths_hold_programs_but_no_setuid_or_device(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(8192);
	said(host_box,
	    "for d in /mnt/data /tmp /state /state/home; do cp /bin/true $d/t && $d/t && echo $d runs; rm -f "
	    "$d/t; done;"
	    "grep -E ' /(mnt/data|tmp|state|dev/shm|usr) ' /proc/self/mounts | cut -d' ' -f2,4 | sort",
	    &out);
	const char *text = buf_c(&out);
	assert_non_null(strstr(text, "/mnt/data runs\n/tmp runs\n/state runs\n/state/home runs\n"));
	struct str rest = { text, out.n }, line;
	int mounts = 0;
	while (str_cut(&rest, '\n', &line)) {
		auto_buf struct buf l = BUF(4096);
		(void)buf_add(&l, line.p, line.n);
		if (strchr(buf_c(&l), ',') == NULL)
			continue;
		mounts++;
		assert_non_null(strstr(buf_c(&l), "nosuid"));
		assert_non_null(strstr(buf_c(&l), "nodev"));
	}
	assert_int_equal(mounts, 5);
}

static void shared_memory_is_a_gibibyte_and_core_dumps_are_off(void **s)
{
	(void)s;
	EACH_BOX(id)
	{
		auto_buf struct buf out = BUF(4096);
		said(id,
		    "df -k --output=size /dev/shm | tail -1 | tr -d ' '; ulimit -Hc; echo $HOME; touch "
		    "$HOME/x && echo home",
		    &out);
		assert_string_equal(buf_c(&out), "1048576\n0\n/state/home\nhome\n");
	}
}

static void the_host_shows_nothing_of_its_own(void **s)
{
	(void)s;
	EACH_BOX(id)
	{
		auto_buf struct buf out = BUF(65536);
		said(id,
		    "cat /etc/shadow /root/.bashrc /etc/ssh/* 2>/dev/null; find /home /root "
		    "/opt /work /run /var -type f;"
		    "find / -xdev -type s 2>/dev/null; hostname; grep -c . /etc/passwd",
		    &out);
		assert_string_equal(buf_c(&out), "sandbox\n3\n");
	}
}

/* The processes of a sandbox are nobody of the host: not root, not the host's uid 1000, and no two sandboxes share. */
static void every_sandbox_has_user_ids_of_its_own(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(4096), second = BUF(4096);
	char another[40];
	said(host_box, "cat /proc/self/uid_map", &out);
	sbx_lease(&stack, acme.key, NULL, another);
	said(another, "cat /proc/self/uid_map", &second);
	sbx_end(&stack, acme.key, another);
	unsigned inside, base, base2, n;
	assert_int_equal(sscanf(buf_c(&out), "%u %u %u", &inside, &base, &n), 3);
	assert_int_equal(inside, 0);
	assert_int_equal(n, 65536);
	assert_true(base >= 65536);
	assert_int_equal(sscanf(buf_c(&second), "%u %u %u", &inside, &base2, &n), 3);
	assert_true(base2 >= base + 65536 || base >= base2 + 65536);
}

static void the_tools_of_a_coding_run_work(void **s) /* SBX-24 */
{
	(void)s;
	EACH_BOX(id)
	{
		auto_buf struct buf out = BUF(4096);
		said(id,
		    "python3 -c 'print(6*7)'; node -e 'console.log(6*7)'; cd /mnt/data && rm -rf r && git "
		    "init -q r && cd r &&"
		    "echo a > a && git add a && git -c user.name=a -c user.email=a@b commit -qm m && git log "
		    "--format=%s; id -un",
		    &out);
		assert_string_equal(buf_c(&out), "42\n42\nm\nagent\n");
	}
}

/* ---- limits */

static void memory_that_runs_out_is_said(void **s)
{
	(void)s;
	char id[40];
	auto_web struct web w = { 0 };
	sbx_lease(&stack, acme.key, js_pack("{s:{s:i}}", "limits", "memoryMb", 256), id);
	sbx_run(
	    &stack, acme.key, id, js_pack("{s:[s,s,s]}", "argv", "python3", "-c", "bytearray(900<<20)"), &w);
	assert_int_equal(w.status, 200);
	assert_true(js_bool(w.json, "oom", false));
	assert_string_equal(js_str(w.json, "signal"), "SIGKILL");
	assert_non_null(strstr(js_str(w.json, "message"), "memory"));
	assert_int_equal(sbx_sh(&stack, acme.key, id, "echo alive", NULL), 0);
	sbx_end(&stack, acme.key, id);
}

static void a_full_disk_is_the_commands_error(void **s)
{
	(void)s;
	char id[40];
	auto_buf struct buf out = BUF(4096);
	sbx_lease(&stack, acme.key, js_pack("{s:{s:i,s:i}}", "limits", "memoryMb", 256, "diskMb", 128), id);
	assert_int_equal(sbx_sh(&stack, acme.key, id, "head -c 100M /dev/zero > big", NULL), 1);
	(void)sbx_sh(&stack, acme.key, id, "stat -c %s big; rm big; echo $?", &out);
	assert_string_equal(buf_c(&out), "67108864\n0\n"); /* half of the limit is the work directory's */
	sbx_end(&stack, acme.key, id);
}

/* Neither shared memory nor files without content take the memory that commands need. */
static void a_small_sandbox_is_full_before_it_is_out_of_memory(void **s)
{
	(void)s;
	char id[40];
	auto_web struct web w = { 0 };
	sbx_lease(&stack, acme.key, js_pack("{s:{s:i,s:i}}", "limits", "memoryMb", 256, "diskMb", 128), id);
	sbx_run(&stack, acme.key, id,
	    js_pack("{s:s}", "command",
		"head -c 300M /dev/zero >/dev/shm/big || echo full; rm /dev/shm/big; python3 - <<'E'\n"
		"for d in ('/mnt/data', '/tmp', '/state'):\n"
		"    try:\n        for i in range(1 << 20):\n            open(f'{d}/{i}', 'w').close()\n"
		"    except OSError as e:\n        print(e.errno == 28, i < 64 << 10)\nE\n"),
	    &w);
	assert_false(js_bool(w.json, "oom", false));
	assert_string_equal(js_str(w.json, "stdout"), "full\nTrue True\nTrue True\nTrue True\n");
	sbx_end(&stack, acme.key, id);
}

static void a_fork_bomb_stays_inside_and_is_stopped(void **s)
{
	(void)s;
	char id[40];
	sbx_lease(&stack, acme.key, js_pack("{s:{s:i}}", "limits", "pids", 48), id);
	(void)sbx_sh(
	    &stack, acme.key, id, "bash -c ':(){ :|:& };:' 2>/dev/null & sleep 0.5; echo survived", NULL);
	/* The others do not notice. */
	assert_int_equal(sbx_sh(&stack, acme.key, host_box, "true", NULL), 0);
	struct span t = span_begin();
	auto_web struct web w = { 0 };
	web_json(&stack, "POST", "/v1/sandboxes/stop", acme.key, js_pack("{s:s}", "id", id), &w);
	assert_int_equal(w.status, 200);
	assert_true(span_ms(&t) < 5000);
	assert_int_equal(sbx_sh(&stack, acme.key, id, "echo again", NULL), 0);
	sbx_end(&stack, acme.key, id);
}

/* ---- leases */

static void a_lease_says_what_it_got(void **s) /* SBX-1, SBX-15, SBX-33 */
{
	(void)s;
	auto_web struct web w = { 0 };
	char path[80];
	auto_buf struct buf out = BUF(100);
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s", host_box);
	web_json(&stack, "GET", path, acme.key, NULL, &w);
	json_t *iso = js_get(w.json, "isolation");
	assert_string_equal(js_str(w.json, "class"), "exec");
	assert_string_equal(js_str(w.json, "image"), "host");
	assert_string_equal(js_str(w.json, "runtime"), "");
	assert_string_equal(js_str(w.json, "workdir"), "/mnt/data");
	assert_false(js_bool(iso, "kernel", true));
	assert_string_equal(js_str(iso, "network"), "none");
	assert_int_equal(js_int(iso, "tier", -1), 2);
	assert_string_equal(js_str(js_get(w.json, "network"), "mode"), "deny-all");
	said(host_box, "echo $SANDBOX_TIER $PWD", &out);
	assert_string_equal(buf_c(&out), "2 /mnt/data\n"); /* inside and outside agree */
}

static void gvisor_has_a_kernel_of_its_own(void **s)
{
	(void)s;
	if (!gvisor)
		skip();
	auto_buf struct buf here = BUF(200), there = BUF(200);
	said(host_box, "uname -r", &here);
	said(gvisor_box, "uname -r", &there);
	assert_string_not_equal(buf_c(&here), buf_c(&there));
	auto_web struct web w = { 0 };
	char path[80];
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s", gvisor_box);
	web_json(&stack, "GET", path, acme.key, NULL, &w);
	assert_string_equal(js_str(w.json, "runtime"), "gvisor");
	assert_true(js_bool(js_get(w.json, "isolation"), "kernel", false));
}

static int rows(void)
{
	auto_buf struct buf out = BUF(100);
	stack_sql(&stack, "select count(*) from sandboxes", &out);
	return atoi(buf_c(&out));
}

static void a_refusal_names_the_field_and_leaves_nothing(void **s) /* SBX-2, SBX-4, SBX-12 */
{
	(void)s;
	static const struct {
		const char *body, *param;
	} bad[] = {
		{ "{\"class\":\"dev\"}", "project" },
		{ "{\"class\":\"desktop\"}", "class" },
		{ "{\"class\":\"Exec\"}", "class" },
		{ "{\"project\":\"!\"}", "project" },
		{ "{\"image\":\"debian:12\"}", "image" },
		{ "{\"mounts\":{\"outputs\":\"/x\"}}", "mounts.outputs" },
		{ "{\"mounts\":{\"scratch\":{}}}", "mounts.outputs" },
		{ "{\"runtime\":\"runc\"}", "runtime" },
		{ "{\"runtime\":\"gVisor\"}", "runtime" },
		{ "{\"runtime\":\"kata-fc\"}", "runtime" },
		{ "{\"runtime\":\"\"}", "runtime" },
		{ "{\"ttlSec\":0}", "ttlSec" },
		{ "{\"ttlSec\":5}", "ttlSec" },
		{ "{\"ttlSec\":999999999}", "ttlSec" },
		{ "{\"network\":{\"mode\":\"allow-all\"}}", "network.mode" },
		{ "{\"network\":{\"allowedHosts\":[\"*.b\"]}}", "network.allowedHosts[0]" },
		{ "{\"env\":{\"1X\":\"y\"}}", "env.1X" },
		{ "{\"env\":{\"A=B\":\"y\"}}", "env.A=B" },
		{ "{\"env\":{\"SANDBOX_TIER\":\"0\"}}", "env.SANDBOX_TIER" },
		{ "{\"env\":{\"A\":1}}", "env.A" },
		{ "{\"limits\":{\"memoryMb\":999999}}", "limits.memoryMb" },
		{ "{\"limits\":{\"memoryMb\":256,\"diskMb\":256}}", "limits.diskMb" },
		{ "{\"limits\":{\"cpus\":0}}", "limits.cpus" },
		{ "{\"limits\":{\"pids\":1}}", "limits.pids" },
		{ "{\"org\":\"admin\"}", "org" },
		{ "{\"nonsense\":1}", "nonsense" },
	};
	int before = rows();
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		auto_web struct web w = { 0 };
		web_do(&stack,
		    &(struct web_req){
			.method = "POST", .path = "/v1/sandboxes", .key = acme.key, .body = bad[i].body },
		    &w);
		if (w.status != 400 || strcmp(web_error(&w, "param"), bad[i].param) != 0)
			fail_msg("%s: %ld %s", bad[i].body, w.status, w.body);
	}
	assert_int_equal(rows(), before);
}

static void the_lease_environment_reaches_commands(void **s) /* SBX-31 */
{
	(void)s;
	char id[40];
	auto_buf struct buf out = BUF(1000);
	sbx_lease(&stack, acme.key,
	    js_pack("{s:{s:s,s:s}}", "env", "GREETING", "hello world", "SANDBOX_OTHER", "x"), id);
	(void)sbx_sh(&stack, acme.key, id, "echo \"$GREETING|$SANDBOX_OTHER|$SANDBOX_TIER\"", &out);
	assert_string_equal(buf_c(&out), "hello world||2\n");
	auto_web struct web w = { 0 };
	sbx_run(&stack, acme.key, id,
	    js_pack("{s:s,s:{s:s,s:s}}", "command", "echo $GREETING $SANDBOX_OTHER", "env", "GREETING", "bye",
		"SANDBOX_OTHER", "mine"),
	    &w);
	assert_string_equal(js_str(w.json, "stdout"), "bye mine\n"); /* a command's own is untouched */
	sbx_end(&stack, acme.key, id);
}

static void resuming_gives_the_same_sandbox_or_says_why_not(void **s) /* SBX-3 */
{
	(void)s;
	char id[40], elsewhere[40];
	sbx_lease(&stack, acme.key, NULL, id);
	sbx_lease(&stack, other.key, NULL, elsewhere);
	{
		auto_web struct web w = { 0 };
		web_json(&stack, "POST", "/v1/sandboxes/lease", acme.key, js_pack("{s:s}", "id", id), &w);
		assert_int_equal(w.status, 200);
		assert_string_equal(js_str(w.json, "id"), id);
	}
	{
		auto_web struct web w = { 0 };
		web_json(&stack, "POST", "/v1/sandboxes", acme.key,
		    js_pack("{s:s,s:s}", "id", id, "runtime", "gvisor"), &w);
		assert_int_equal(w.status, 409);
		assert_non_null(strstr(web_error(&w, "message"), id));
	}
	sbx_end(&stack, acme.key, id);
	const char *const not_resumed[] = { id, elsewhere, "sbx_nonsense" };
	for (int i = 0; i < 3; i++) {
		char got[40];
		sbx_lease(&stack, acme.key, js_pack("{s:s}", "id", not_resumed[i]), got);
		assert_string_not_equal(got, not_resumed[i]);
		sbx_end(&stack, acme.key, got);
	}
	sbx_end(&stack, other.key, elsewhere);
}

/* ID-4: exactly like one that does not exist, besides the request's own id. */
static void another_orgs_sandbox_is_not_there(void **s)
{
	(void)s;
	static const char unknown[] = "sbx_01jdq3v8m5c7x2k9f4t6w0b1ra";
	static const char *const ops[][3] = {
		{ "GET", "/v1/sandboxes/@", NULL },
		{ "DELETE", "/v1/sandboxes/@", NULL },
		{ "GET", "/v1/sandboxes/@/files?path=x", NULL },
		{ "GET", "/v1/sandboxes/@/commands/cmd_01jdq3v8m5c7x2k9f4t6w0b1ra/output", NULL },
		{ "POST", "/v1/sandboxes/@/run", "{\"argv\":[\"touch\",\"/mnt/data/was-here\"]}" },
		{ "POST", "/v1/sandboxes/stop", "{\"id\":\"@\"}" },
		{ "POST", "/v1/sandboxes/end", "{\"id\":\"@\"}" },
		{ "POST", "/v1/sandboxes/read", "{\"id\":\"@\",\"path\":\"x\"}" },
		{ "POST", "/v1/sandboxes/write", "{\"id\":\"@\",\"path\":\"was-here\",\"content\":\"x\"}" },
	};
	const char *const ids[] = { host_box, unknown };
	for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
		char message[2][ERR_MSG_MAX];
		for (int k = 0; k < 2; k++) {
			char path[200], body[200];
			auto_web struct web w = { 0 };
			sbx_with(ops[i][1], ids[k], path, sizeof path);
			sbx_with(ops[i][2] == NULL ? "" : ops[i][2], ids[k], body, sizeof body);
			web_do(&stack,
			    &(struct web_req){ .method = ops[i][0],
				.path = path,
				.key = other.key,
				.body = ops[i][2] == NULL ? NULL : body },
			    &w);
			assert_int_equal(w.status, 404);
			(void)snprintf(message[k], sizeof message[k], "%s", web_error(&w, "message"));
		}
		assert_string_equal(message[0], message[1]);
	}
	assert_int_equal(sbx_sh(&stack, acme.key, host_box, "test ! -e /mnt/data/was-here", NULL), 0);
}

static void a_list_pages_through_the_orgs_own(void **s)
{
	(void)s;
	struct stack_org fresh;
	char id[3][40];
	stack_org(&stack, &fresh);
	for (int i = 0; i < 3; i++) {
		sbx_lease(&stack, fresh.key, NULL, id[i]);
		sbx_end(&stack, fresh.key, id[i]);
	}
	auto_web struct web w = { 0 }, w2 = { 0 };
	web_json(&stack, "GET", "/v1/sandboxes?limit=2", fresh.key, NULL, &w);
	assert_int_equal(json_array_size(js_get(w.json, "data")), 2);
	assert_string_equal(js_str(json_array_get(js_get(w.json, "data"), 0), "id"), id[2]);
	char path[300];
	(void)snprintf(path, sizeof path, "/v1/sandboxes?limit=2&cursor=%s", js_str(w.json, "next"));
	web_json(&stack, "GET", path, fresh.key, NULL, &w2);
	assert_int_equal(json_array_size(js_get(w2.json, "data")), 1);
	assert_string_equal(js_str(json_array_get(js_get(w2.json, "data"), 0), "id"), id[0]);
	assert_null(js_get(w2.json, "next"));
}

static void a_lease_ends_by_itself(void **s) /* SBX-60 */
{
	(void)s;
	char id[40], status[12] = "running";
	int ttl_s = 10 + span_room_ms(300) / 1000;
	int64_t t = clock_ms(); /* the lease begins before it is told */
	sbx_lease(&stack, acme.key, js_pack("{s:i}", "ttlSec", ttl_s), id);
	while (strcmp(status, "running") == 0 && clock_ms() - t < ttl_s * 1000 + PATIENCE_MS) {
		(void)poll(NULL, 0, 200);
		sbx_status(&stack, acme.key, id, status);
	}
	assert_string_equal(status, "ended");
	assert_true(clock_ms() - t >= (ttl_s - 2) * 1000);
}

static void twenty_leases_leave_nothing(void **s) /* SBX-60 */
{
	(void)s;
	char id[40];
	/* After one of each the daemon has everything open that it keeps open. */
	sbx_lease(&stack, acme.key, NULL, id);
	sbx_end(&stack, acme.key, id);
	auto_buf struct buf were = BUF(1 << 20);
	int before = fds_least(stack_pid(&stack, "node1"), SETTLE_MS, &were);
	for (int i = 0; i < 20; i++) {
		sbx_lease(&stack, acme.key, NULL, id);
		(void)sbx_sh(&stack, acme.key, id, "(setsid sleep 1000 &); echo x > f", NULL);
		sbx_end(&stack, acme.key, id);
		sbx_end(&stack, acme.key, id); /* again is fine (SBX-45) */
	}
	/* What egress was slow to hear of, the reaper's next round closes. */
	fds_back(stack_pid(&stack, "node1"), before, &were, BACK_MS);
	sbx_end(&stack, acme.key, host_box);
	if (gvisor)
		sbx_end(&stack, acme.key, gvisor_box);
	sbx_no_leaks(&stack);
}

static int up(void **s)
{
	(void)s;
	stack_up(&stack, 1, 0, 1, NULL);
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
		cmocka_unit_test(there_is_no_capability_and_no_new_privilege),
		cmocka_unit_test(forbidden_calls_fail),
		cmocka_unit_test(only_loopback_is_there_and_nothing_answers),
		cmocka_unit_test(only_the_declared_paths_can_be_written),
		cmocka_unit_test(writable_paths_hold_programs_but_no_setuid_or_device),
		cmocka_unit_test(shared_memory_is_a_gibibyte_and_core_dumps_are_off),
		cmocka_unit_test(the_host_shows_nothing_of_its_own),
		cmocka_unit_test(every_sandbox_has_user_ids_of_its_own),
		cmocka_unit_test(the_tools_of_a_coding_run_work),
		cmocka_unit_test(memory_that_runs_out_is_said),
		cmocka_unit_test(a_full_disk_is_the_commands_error),
		cmocka_unit_test(a_small_sandbox_is_full_before_it_is_out_of_memory),
		cmocka_unit_test(a_fork_bomb_stays_inside_and_is_stopped),
		cmocka_unit_test(a_lease_says_what_it_got),
		cmocka_unit_test(gvisor_has_a_kernel_of_its_own),
		cmocka_unit_test(a_refusal_names_the_field_and_leaves_nothing),
		cmocka_unit_test(the_lease_environment_reaches_commands),
		cmocka_unit_test(resuming_gives_the_same_sandbox_or_says_why_not),
		cmocka_unit_test(another_orgs_sandbox_is_not_there),
		cmocka_unit_test(a_list_pages_through_the_orgs_own),
		cmocka_unit_test(a_lease_ends_by_itself),
		cmocka_unit_test(twenty_leases_leave_nothing),
	};
	return cmocka_run_group_tests_name("sandbox", tests, up, down);
}
