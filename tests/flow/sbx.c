#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "sbx.h"

void sbx_lease(const struct stack *s, const char *key, json_t *fields, char out[40])
{
	auto_web struct web w = { 0 };
	web_json(s, "POST", "/v1/sandboxes", key, fields == NULL ? json_object() : fields, &w);
	if (w.status != 201)
		fail_msg("lease: %ld %s", w.status, w.body);
	assert_string_equal(js_str(w.json, "status"), "running");
	(void)snprintf(out, 40, "%s", js_str(w.json, "id"));
}

bool sbx_offered(const struct stack *s, const char *key, const char *runtime)
{
	auto_web struct web w = { 0 };
	web_json(s, "POST", "/v1/sandboxes", key, js_pack("{s:s}", "runtime", runtime), &w);
	if (w.status == 201)
		sbx_end(s, key, js_str(w.json, "id"));
	return w.status == 201;
}

bool sbx_volumes(const struct stack *s)
{
	auto_buf struct buf why = BUF(1000);
	stack_sql(s, "select string_agg(volumes, '') from nodes", &why);
	if (buf_c(&why)[strspn(buf_c(&why), "\n")] == '\0')
		return true;
	print_message("no volumes on this host: %s\n", buf_c(&why));
	return false;
}

void sbx_run(const struct stack *s, const char *key, const char *id, json_t *fields, struct web *w)
{
	js_set_str(fields, "id", id);
	web_json(s, "POST", "/v1/sandboxes/run", key, fields, w);
}

int sbx_sh(const struct stack *s, const char *key, const char *id, const char *command, struct buf *out)
{
	auto_web struct web w = { 0 };
	sbx_run(
	    s, key, id, js_pack("{s:s,s:i}", "command", command, "timeoutSec", 5 * PATIENCE_MS / 1000), &w);
	if (w.status != 200)
		fail_msg("%s: %ld %s", command, w.status, w.body);
	if (out != NULL)
		assert_int_equal(buf_str(out, js_str(w.json, "stdout")), 0);
	return (int)js_int(w.json, "exitCode", -1);
}

void sbx_said(const struct stack *s, const char *key, const char *id, const char *command)
{
	char traced[2048];
	auto_buf struct buf out = BUF(65536);
	(void)snprintf(traced, sizeof traced, "exec 2>&1; set -x; %s", command);
	if (sbx_sh(s, key, id, traced, &out) != 0)
		fail_msg("%s: %s", command, buf_c(&out));
}

void sbx_refused(
    const struct stack *s, const char *key, json_t *fields, long status, const char *param, const char *says)
{
	auto_web struct web w = { 0 };
	web_json(s, "POST", "/v1/sandboxes", key, fields, &w);
	if (w.status != status || strcmp(web_error(&w, "param"), param) != 0 ||
	    strstr(web_error(&w, "message"), says) == NULL)
		fail_msg("%ld %s", w.status, w.body);
}

void sbx_with(const char *text, const char *id, char *out, size_t size)
{
	size_t n = strcspn(text, "@");
	(void)snprintf(
	    out, size, "%.*s%s%s", (int)n, text, text[n] == 0 ? "" : id, text[n] == 0 ? "" : text + n + 1);
}

void sbx_end(const struct stack *s, const char *key, const char *id)
{
	auto_web struct web w = { 0 };
	web_json(s, "POST", "/v1/sandboxes/end", key, js_pack("{s:s}", "id", id), &w);
	if (w.status != 200)
		fail_msg("end: %ld %s", w.status, w.body);
}

void sbx_status(const struct stack *s, const char *key, const char *id, char out[12])
{
	char path[80];
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s", id);
	web_json(s, "GET", path, key, NULL, &w);
	assert_int_equal(w.status, 200);
	(void)snprintf(out, 12, "%s", js_str(w.json, "status"));
}

void sbx_no_leaks(const struct stack *s)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;
	for (;;) {
		auto_buf struct buf what = BUF(1 << 20);
		if (stack_leaks(s, &what) == 0)
			return;
		if (clock_ms() > deadline)
			fail_msg("left behind: %.2000s", buf_c(&what));
		(void)poll(NULL, 0, 100);
	}
}
