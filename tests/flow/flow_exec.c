/*
 * SEC-3, from outside: what the processes on a host really execute, as the kernel sees it (strace), and text from outside that
 * would run if any shell were ever given it.
 */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../handlers/handlers.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "forge/hook.h"
#include "gitclient.h"
#include "io/file.h"
#include "io/proc.h"
#include "runs.h"

static struct stack st;
static struct stack_org org;

/* ---- the tracer */

static atomic_bool enough;
static char trace_file[128];

static bool is_enough(void *arg)
{
	(void)arg;
	return atomic_load(&enough);
}

static void *trace(void *arg)
{
	(void)arg;
	struct err e = { 0 };
	auto_proc struct proc_result r = { 0 };
	char api[16], runner[16];
	(void)snprintf(api, sizeof api, "%d", stack_pid(&st, "api1"));
	(void)snprintf(runner, sizeof runner, "%d", stack_pid(&st, "runner1"));
	const char *const argv[] = { "strace", "-f", "-qq", "-v", "-s", "20000", "-e", "trace=execve", "-e",
		"signal=none", "-o", trace_file, "-p", api, "-p", runner, NULL };
	const struct proc_opts o = { .argv = argv,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.cancelled = is_enough,
		.timeout_ms = 300000 };
	if (proc_run(&o, &r, &e) != 0)
		print_error("strace: %s\n", e.msg);
	else if (r.errout.n > 0)
		print_error("strace: %s\n", buf_c(&r.errout));
	return NULL;
}

static bool traced(const char *part)
{
	char path[64];
	struct err e = { 0 };
	auto_buf struct buf text = BUF(8192);
	(void)snprintf(path, sizeof path, "/proc/%d/status", stack_pid(&st, part));
	return file_read(path, &text, &e) == 0 && strstr(buf_c(&text), "TracerPid:\t0\n") == NULL;
}

/* ---- judging a line: execve("/usr/bin/git", ["git", "gc"], ["PATH=/usr/bin"]) = 0 */

static bool quoted(struct str *rest, char *out, size_t size)
{
	const char *a = memchr(rest->p, '"', rest->n);
	if (a == NULL)
		return false;
	const char *b = a + 1, *end = rest->p + rest->n;
	while (b < end && *b != '"')
		b += *b == '\\' ? 2 : 1;
	(void)snprintf(out, size, "%.*s", (int)(b - a - 1), a + 1);
	*rest = (struct str){ b + 1, (size_t)(end - b - 1) };
	return true;
}

/* What is between the brackets that open at or behind rest, taken off. */
static bool list(struct str *rest, struct str *in)
{
	const char *a = memchr(rest->p, '[', rest->n), *end = rest->p + rest->n;
	if (a == NULL)
		return false;
	const char *b = a + 1;
	for (bool text = false; b < end && (text || *b != ']'); b += *b == '\\' ? 2 : 1)
		text = text != (*b == '"');
	*in = (struct str){ a + 1, (size_t)(b - a - 1) };
	*rest = (struct str){ b, (size_t)(end - b) };
	return true;
}

static void judge_program(const char *path)
{
	static const char *const programs[] = { "git", "git-http-backend", "git-remote-http",
		"git-remote-https", "pre-receive", /* a link to ours */ "prlimit", NULL };
	const char *slash = strrchr(path, '/');
	if (!str_one_of(slash == NULL ? path : slash + 1, programs))
		fail_msg("a host process executed %s", path);
}

static void judge_variable(const char *text)
{
	static const char *const names[] = { "PATH", "LANG", "TZ", "HOME", "XDG_CONFIG_HOME",
		"REQUEST_METHOD", "REMOTE_USER", "QUERY_STRING", "PATH_INFO", "CONTENT_TYPE",
		"HTTP_CONTENT_ENCODING", HOOK_ENV_BY, HOOK_ENV_REF, HOOK_ENV_DEFAULT, NULL };
	char name[80];
	(void)snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "="), text);
	if (!str_starts(name, "GIT_") && !str_one_of(name, names))
		fail_msg("a child got the variable %s", name);
}

static int judge_trace(struct buf *text)
{
	int n = 0;
	struct str rest = { text->p, text->n }, line;
	while (str_cut(&rest, '\n', &line)) {
		char path[300], word[20000];
		const char *at = memmem(line.p, line.n, "execve(", 7);
		if (at == NULL || memmem(line.p, line.n, "= -1 ", 5) != NULL)
			continue;
		struct str l = { at, line.n - (size_t)(at - line.p) }, argv, env;
		assert_true(quoted(&l, path, sizeof path) && list(&l, &argv) && list(&l, &env));
		judge_program(path);
		assert_true(argv.n > 0);
		if (memmem(argv.p, argv.n, "gk_", 3) != NULL || memmem(argv.p, argv.n, "gg_", 3) != NULL)
			fail_msg("a credential in the arguments of %s", path);
		while (quoted(&env, word, sizeof word))
			judge_variable(word);
		n++;
	}
	return n;
}

static void every_child_is_a_known_program_with_arguments_and_a_clean_environment(void **s)
{
	(void)s;
	pthread_t tracer;
	struct err e = { 0 };
	(void)snprintf(trace_file, sizeof trace_file, "%s/trace", st.dir);
	atomic_store(&enough, false);
	assert_int_equal(pthread_create(&tracer, NULL, trace, NULL), 0);
	for (int64_t deadline = clock_ms() + 60000; !traced("api1") || !traced("runner1");
	     (void)poll(NULL, 0, 20))
		assert_true(clock_ms() < deadline);
	/* Everything that has a child: pushes, clones, pages, a whole run. */
	struct gitclient g;
	char url[200], path[200];
	runs_repo(&st, &org, "traced");
	gitclient_start(&g, &st, org.member);
	GIT_OK(&g, ".", "clone", "-q", gitclient_url(&g, org.slug, "traced", url), "w");
	gitclient_commit(&g, "w", "new.txt", "new\n");
	GIT_OK(&g, "w", "push", "-q", "origin", "HEAD:refs/heads/topic");
	gitclient_end(&g);
	auto_flow_run struct flow_run r = { 0 };
	runs_do(&st, &org, runs_task("python", "traced", "open('made','w').write('x')"), &r);
	runs_check(&r, "result");
	auto_web struct web page = { 0 };
	(void)snprintf(path, sizeof path, "/git/%s/traced?ref=topic", org.slug);
	struct web_req q = { .method = "GET", .path = path, .key = org.member };
	web_do(&st, &q, &page);
	assert_int_equal(page.status, 200);
	atomic_store(&enough, true);
	(void)pthread_join(tracer, NULL);
	auto_buf struct buf text = BUF(64 << 20);
	assert_int_equal(file_read(trace_file, &text, &e), 0);
	int n = judge_trace(&text);
	print_message("    %d children\n", n);
	assert_true(n > 20);
	static const char *const seen[] = { "git-http-backend", "receive-pack", "upload-pack", "index-pack",
		"pre-receive" };
	for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
		if (strstr(buf_c(&text), seen[i]) == NULL)
			fail_msg("%s was not seen", seen[i]);
}

/* ---- text that would run */

static char canary[128];
static const struct {
	const char *before, *after; /* what stands around the path */
} forms[] = { { "$(touch ", ")" }, { "`touch ", "`" }, { "; touch ", " #" }, { "| touch ", "" },
	{ "&& touch ", "" }, { "\ntouch ", "\n" }, { "'; touch ", "; '" }, { "\"; touch ", "; \"" },
	{ "--upload-pack=touch ", "" }, { "-oProxyCommand=touch ", "" }, { "ext::sh -c touch% ", "" },
	{ "!touch ", "" } };
enum { N_FORMS = sizeof forms / sizeof forms[0], N_PLAIN = 6 /* those that a plain `echo TEXT` runs */ };

static void form(size_t i, char out[300])
{
	(void)snprintf(out, 300, "%s%s%s", forms[i].before, canary, forms[i].after);
}

static bool sung(void)
{
	return access(canary, F_OK) == 0;
}

/* A shell that is given such text does run it: the test can fail. */
static void the_bait_works(void **s)
{
	(void)s;
	struct err e = { 0 };
	for (size_t i = 0; i < N_PLAIN; i++) {
		char text[300], line[400];
		form(i, text);
		(void)snprintf(line, sizeof line, "echo %s", text);
		const char *const argv[] = { "sh", "-c", line, NULL };
		auto_proc struct proc_result r = { 0 };
		const struct proc_opts o = { .argv = argv,
			.stdin_fd = -1,
			.stdout_fd = -1,
			.stderr_fd = -1,
			.timeout_ms = PATIENCE_MS };
		assert_int_equal(proc_run(&o, &r, &e), 0);
		assert_true(sung());
		assert_int_equal(unlink(canary), 0);
	}
}

static int bait(const struct op *op, const struct param *p, const char *text)
{
	struct err e = { 0 };
	struct op_request r;
	auto_mem struct mem *m = mem_new();
	auto_json json_t *in = op_example(op);
	if (p->type == T_ARR)
		js_set(in, p->name, js_pack("[s]", text));
	else
		js_set_str(in, p->name, text);
	if (op_request(m, op, in, &r, &e) != 0)
		return 0;
	struct web_req q = { .method = r.method,
		.path = r.target,
		.key = org.key,
		.body = (op->flags & OP_RAW_IN) != 0 ? text : r.body,
		.timeout_s = (op->flags & OP_STREAM) != 0 ? 1 + span_room_ms(100) / 1000 : 0 };
	if (strlen(r.target) > 4000)
		return 0;
	auto_web struct web w = { 0 };
	web_do(&st, &q, &w);
	if (w.status >= 500 && w.status != 503 && w.status != 507)
		fail_msg("%s, %s: %ld %s", op->id, p->name, w.status, w.body);
	return 1;
}

/* What the bait has leased holds the node's places, which the runs that it started wait for. */
static void end_leases(void)
{
	auto_web struct web w = { 0 };
	size_t i;
	json_t *box;
	web_json(&st, "GET", "/v1/sandboxes?limit=200", org.key, NULL, &w);
	assert_int_equal(w.status, 200);
	json_array_foreach(json_object_get(w.json, "data"), i, box) {
		char path[100];
		auto_web struct web ended = { 0 };
		(void)snprintf(path, sizeof path, "/v1/sandboxes/%s", js_str_or(box, "id", ""));
		if (strcmp(js_str_or(box, "status", ""), "running") == 0)
			web_json(&st, "DELETE", path, org.key, NULL, &ended);
	}
}

/* Every text field of every op, in every form; what a sandbox is asked to do happens there and not here. */
static void text_from_outside_runs_nowhere_on_the_host(void **s)
{
	(void)s;
	int n = 0;
	for (const struct op *const *t = handlers_all; *t != NULL; t++)
		for (const struct op *op = *t; op->id != NULL; op++)
			for (const struct param *p = op->in; p != NULL && p->name != NULL; p++)
				for (size_t f = 0; f < N_FORMS; f++) {
					char text[300];
					bool words = p->type == T_ARR && p->fields != NULL &&
					    p->fields[0].type == T_STR;
					if ((op->flags & OP_INTERNAL) != 0 || (p->type != T_STR && !words))
						continue;
					form(f, text);
					n += bait(op, p, text);
					if (sung())
						fail_msg("%s, %s: %s was executed", op->id, p->name, text);
				}
	print_message("    %d requests\n", n);
	assert_true(n > 300);
	end_leases();
	/* Runs that were started meanwhile end before the last look. */
	auto_buf struct buf left = BUF(100);
	for (int64_t deadline = clock_ms() + 5 * PATIENCE_MS; strcmp(buf_c(&left), "0") != 0;
	     (void)poll(NULL, 0, 200)) {
		assert_true(clock_ms() < deadline);
		buf_reset(&left);
		stack_sql(&st, "SELECT count(*) FROM runs WHERE state IN ('queued', 'running')", &left);
	}
	assert_false(sung());
}

static int setup(void **s)
{
	(void)s;
	/* The leak sanitizer ends a process that is traced, and git's hook is one of ours: so the binaries that are installed. */
	assert_int_equal(setenv("STACK_BIN", "build/release", 1), 0);
	stack_up(&st, 1, 1, 1, NULL);
	stack_org(&st, &org);
	(void)snprintf(canary, sizeof canary, "%s/canary", st.crash_dir); /* where everybody may write */
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	stack_down(&st);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_bait_works),
		cmocka_unit_test(every_child_is_a_known_program_with_arguments_and_a_clean_environment),
		cmocka_unit_test(text_from_outside_runs_nowhere_on_the_host),
	};
	return cmocka_run_group_tests_name("exec", tests, setup, teardown);
}
