#include "../t.h"

#include "browser.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"
#include "io/file.h"

enum { ANSWER_MS = 60 * 1000, MESSAGE_BYTES = 64 << 20 };

struct browser {
	pid_t pid;
	int to, from;
	struct buf in; /* what came, messages end with NUL */
	char home[64];
	int id;
	char session[80];
	int status; /* of the last main document */
	bool loaded;
	json_t *headers;
};

static void child(int to, int from, const char *home, pid_t parent)
{
	char dir[100];
	(void)snprintf(dir, sizeof dir, "--user-data-dir=%s", home);
	sigset_t none;
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)setpgid(0, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The debugging pipe is descriptors 3 and 4. Ours may be those numbers, so they are moved away first. */
	int a = fcntl(to, F_DUPFD, 10), b = fcntl(from, F_DUPFD, 10), null = open("/dev/null", O_RDWR);
	for (int fd = 0; fd < 3; fd++)
		(void)dup2(null, fd);
	if (getppid() == parent && dup2(a, 3) == 3 && dup2(b, 4) == 4) {
		(void)close_range(5, ~0U, 0);
		(void)setenv("HOME", home, 1);
		(void)setenv("TMPDIR", home, 1);
		(void)execlp("chromium", "chromium", "--headless", "--no-sandbox", "--disable-gpu",
		    "--hide-scrollbars", "--disable-dev-shm-usage", "--no-first-run",
		    "--ignore-certificate-errors", "--remote-debugging-pipe", dir, "about:blank", (char *)0);
	}
	_exit(127);
}

/* One more message; NULL when none came in time. */
static json_t *message(struct browser *b, int64_t deadline)
{
	for (;;) {
		const char *end = b->in.n > 0 ? memchr(b->in.p, 0, b->in.n) : NULL;
		if (end != NULL) {
			size_t n = (size_t)(end - b->in.p);
			json_t *v = json_loadb(b->in.p, n, 0, NULL);
			buf_drop(&b->in, n + 1);
			return v;
		}
		struct pollfd p = { .fd = b->from, .events = POLLIN };
		if (poll(&p, 1, clock_left_ms(deadline)) <= 0)
			return NULL;
		char *room = buf_room(&b->in, 65536);
		assert_non_null(room);
		ssize_t n = read(b->from, room, 65536);
		if (n <= 0)
			fail_msg("the browser ended");
		buf_grew(&b->in, (size_t)n);
	}
}

static void notice(struct browser *b, const json_t *v)
{
	const char *method = js_str_or(v, "method", "");
	const json_t *params = js_get(v, "params");
	if (strcmp(method, "Page.loadEventFired") == 0)
		b->loaded = true;
	if (strcmp(method, "Network.responseReceived") == 0 &&
	    strcmp(js_str_or(params, "type", ""), "Document") == 0)
		b->status = (int)js_int(js_get(params, "response"), "status", 0);
}

/* Call a method, taking params; its result, a new reference. */
static json_t *call(struct browser *b, const char *method, json_t *params)
{
	auto_json json_t *q = js_pack("{s:i, s:s, s:o}", "id", ++b->id, "method", method, "params", params);
	if (b->session[0] != 0)
		js_set_str(q, "sessionId", b->session);
	auto_free char *text = json_dumps(q, JSON_COMPACT);
	assert_int_equal(fd_write_all(b->to, text, strlen(text) + 1), 0);
	int64_t deadline = clock_ms() + ANSWER_MS;
	for (;;) {
		auto_json json_t *v = message(b, deadline);
		if (v == NULL)
			fail_msg("the browser did not answer %s", method);
		notice(b, v);
		if (js_int(v, "id", 0) != b->id)
			continue;
		json_t *result = js_get(v, "result");
		if (result == NULL)
			fail_msg("%s: %s", method, js_str_or(js_get(v, "error"), "message", "?"));
		return json_incref(result);
	}
}
#define CALL(b, method, ...) json_decref(call(b, method, js_pack(__VA_ARGS__)))

struct browser *browser_start(void)
{
	struct browser *b = xcalloc(1, sizeof *b);
	struct err e = { 0 };
	int to[2], from[2];
	b->in = BUF(MESSAGE_BYTES);
	b->headers = json_object();
	assert_int_equal(file_tmpdir("/tmp", b->home, sizeof b->home, &e), 0);
	assert_int_equal(pipe2(to, O_CLOEXEC) + pipe2(from, O_CLOEXEC), 0);
	pid_t self = getpid();
	b->pid = fork();
	assert_true(b->pid >= 0);
	if (b->pid == 0)
		child(to[0], from[1], b->home, self);
	(void)close(to[0]);
	(void)close(from[1]);
	b->to = to[1];
	b->from = from[0];
	auto_json json_t *target = call(b, "Target.createTarget", js_pack("{s:s}", "url", "about:blank"));
	auto_json json_t *at = call(b, "Target.attachToTarget",
	    js_pack("{s:s, s:b}", "targetId", js_str(target, "targetId"), "flatten", 1));
	(void)snprintf(b->session, sizeof b->session, "%s", js_str(at, "sessionId"));
	CALL(b, "Page.enable", "{}");
	CALL(b, "Network.enable", "{}");
	return b;
}

void browser_end(struct browser *b)
{
	(void)kill(-b->pid, SIGKILL);
	(void)waitpid(b->pid, NULL, 0);
	(void)close(b->to);
	(void)close(b->from);
	buf_free(&b->in);
	json_decref(b->headers);
	/* Its helpers were killed with it; the last of them may still be writing for a moment. */
	struct err e = { 0 };
	int64_t deadline = clock_ms() + ANSWER_MS;
	while (file_rmtree(b->home, &e) != 0 && clock_ms() < deadline) {
		err_clear(&e);
		(void)poll(NULL, 0, 50);
	}
	free(b);
}

void browser_header(struct browser *b, const char *name, const char *value)
{
	if (value != NULL)
		js_set_str(b->headers, name, value);
	else
		(void)json_object_del(b->headers, name);
	CALL(b, "Network.setExtraHTTPHeaders", "{s:O}", "headers", b->headers);
}

void browser_look(struct browser *b, int width, int height, bool dark)
{
	CALL(b, "Emulation.setDeviceMetricsOverride", "{s:i, s:i, s:i, s:b}", "width", width, "height",
	    height, "deviceScaleFactor", 1, "mobile", width < 600);
	CALL(b, "Emulation.setEmulatedMedia", "{s:[{s:s, s:s}]}", "features", "name", "prefers-color-scheme",
	    "value", dark ? "dark" : "light");
}

int browser_open(struct browser *b, const char *url)
{
	b->loaded = false;
	b->status = 0;
	CALL(b, "Page.navigate", "{s:s}", "url", url);
	int64_t deadline = clock_ms() + ANSWER_MS;
	while (!b->loaded) {
		auto_json json_t *v = message(b, deadline);
		if (v == NULL)
			fail_msg("%s did not load", url);
		notice(b, v);
	}
	return b->status;
}

json_t *browser_eval(struct browser *b, const char *expression)
{
	auto_json json_t *r = call(
	    b, "Runtime.evaluate", js_pack("{s:s, s:b}", "expression", expression, "returnByValue", 1));
	if (js_get(r, "exceptionDetails") != NULL)
		fail_msg("%s: %s", expression, js_str_or(js_get(r, "result"), "description", "it threw"));
	json_t *value = json_object_get(js_get(r, "result"), "value");
	return value != NULL ? json_incref(value) : json_null();
}

long long browser_int(struct browser *b, const char *expression)
{
	auto_json json_t *v = browser_eval(b, expression);
	if (!json_is_integer(v))
		fail_msg("%s is no whole number", expression);
	return json_integer_value(v);
}

void browser_shot(struct browser *b, const char *path)
{
	auto_json json_t *r = call(
	    b, "Page.captureScreenshot", js_pack("{s:s, s:b}", "format", "png", "captureBeyondViewport", 1));
	const json_t *data = json_object_get(r, "data");
	size_t n = json_string_length(data);
	auto_free unsigned char *png = xcalloc(1, n + 1);
	ssize_t size = b64_decode(json_string_value(data), n, png);
	assert_true(size > 0);
	struct err e = { 0 };
	assert_int_equal(file_write(path, png, (size_t)size, 0644, &e), 0);
}
