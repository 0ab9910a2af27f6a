/*
 * Stream lines for people. Two vocabularies: a session's (status, step, tool-call, log, message, result, error) and a
 * command's (start, stdout, stderr, exit, lost). Everything that came from a sandbox or another user passes cli_clean.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/js.h"
#include "base/str.h"
#include "op/cli.h"

enum { LABEL_COLUMNS = 10 };

void cli_clean(const char *p, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n;) {
		size_t len = 1;
		while (len <= 4 && i + len <= n && utf8_valid(p + i, len) != len)
			len++;
		unsigned char c = (unsigned char)p[i];
		bool whole = len <= 4 && i + len <= n;
		/* C0 but newline and tab, DEL, and C1 (U+0080 to U+009F) may steer a terminal. */
		bool steers = (len == 1 && ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)) ||
		    (len == 2 && c == 0xC2 && (unsigned char)p[i + 1] < 0xA0);
		if (!whole)
			len = 1;
		if (!whole || steers)
			(void)buf_str(out, "\xEF\xBF\xBD");
		else
			(void)buf_add(out, p + i, len);
		i += len;
	}
}

static void clean_str(const char *s, struct buf *out)
{
	cli_clean(s, strlen(s), out);
}

/* A member's whole text: what a tool printed may hold U+0000. Empty when absent. */
static struct str text_of(const json_t *line, const char *key)
{
	const json_t *v = json_object_get(line, key);
	return (struct str){ json_string_value(v), json_string_length(v) };
}

/* Milliseconds of an RFC 3339 time of ours; false when it is none. */
static bool ms_of(const char *s, int64_t *ms)
{
	struct tm t = { 0 };
	int milli = 0;
	if (s == NULL ||
	    sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d.%3d", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour, &t.tm_min,
		&t.tm_sec, &milli) < 6)
		return false;
	t.tm_year -= 1900;
	t.tm_mon--;
	*ms = (int64_t)timegm(&t) * 1000 + milli;
	return true;
}

static int exit_status(const json_t *line)
{
	long long code = js_int(line, "exitCode", -1);
	return code >= 0 && code <= 255 ? (int)code : 1; /* a signal, a timeout */
}

void cli_see(struct cli_render *r, const json_t *line)
{
	const char *type = js_str_or(line, "type", "");
	int64_t ms;
	if (!r->timed && ms_of(js_str(line, "time"), &ms)) {
		r->first_ms = ms;
		r->timed = true;
	}
	r->last_seq = js_int(line, "seq", r->last_seq);
	if (!str_one_of(type, (const char *const[]){ "result", "error", "exit", "lost", NULL }))
		return;
	r->ended = true;
	r->exit = strcmp(type, "result") == 0 ? 0 : strcmp(type, "exit") == 0 ? exit_status(line) : 1;
}

void cli_settle(struct cli_render *r, struct buf *out)
{
	if (r->transient)
		(void)buf_str(out, "\r\033[K");
	r->transient = false;
}

static void stamp(const struct cli_render *r, const json_t *line, struct buf *out)
{
	int64_t ms;
	if (r->timed && ms_of(js_str(line, "time"), &ms))
		(void)buf_fmt(out, "%7.1fs  ", (double)(ms - r->first_ms) / 1000);
	else
		(void)buf_fmt(out, "%10s", "");
}

/* A terminal's line that will be written over must not wrap. */
static void cut_to_columns(struct cli_render *r, struct buf *line)
{
	size_t max = (size_t)(r->columns > 20 ? r->columns - 1 : 20);
	if (line->n <= max)
		return;
	size_t keep = utf8_valid(line->p, max);
	line->n = keep;
	line->p[keep] = 0;
}

static void one_line(
    struct cli_render *r, const json_t *line, const char *label, struct str text, struct buf *out)
{
	bool running = r->columns > 0 && strcmp(js_str_or(line, "status", ""), "running") == 0;
	bool failed = strcmp(js_str_or(line, "status", ""), "failed") == 0;
	auto_buf struct buf all = BUF(256 * 1024);
	stamp(r, line, &all);
	clean_str(label, &all);
	for (size_t n = strlen(label); n < LABEL_COLUMNS; n++)
		(void)buf_chr(&all, ' ');
	(void)buf_chr(&all, ' ');
	cli_clean(text.p, text.n, &all);
	if (failed)
		(void)buf_str(&all, " (failed)");
	while (all.n > 0 && all.p[all.n - 1] == '\n')
		all.p[--all.n] = 0;
	if (running) {
		for (char *c = all.p; *c != 0; c++)
			*c = *c == '\n' ? ' ' : *c;
		cut_to_columns(r, &all);
	}
	(void)buf_add(out, all.p, all.n);
	if (!running)
		(void)buf_chr(out, '\n');
	r->transient = running;
}

/* Output of a tool, behind a bar. */
static void quoted(struct str rest, struct buf *out)
{
	struct str line;
	while (str_cut(&rest, '\n', &line)) {
		(void)buf_fmt(out, "%10s| ", "");
		cli_clean(line.p, line.n, out);
		(void)buf_chr(out, '\n');
	}
}

static void result(struct cli_render *r, const json_t *line, struct buf *out)
{
	static const char *const shown[] = { "branch", "commit", "url", NULL };
	const json_t *stat = js_get(line, "diffstat"), *paths = js_get(stat, "paths");
	char summary[120];
	(void)snprintf(
	    summary, sizeof summary, "%s", js_bool(line, "changed", false) ? "changed" : "nothing changed");
	if (stat != NULL)
		(void)snprintf(summary, sizeof summary, "%lld files, +%lld -%lld", js_int(stat, "files", 0),
		    js_int(stat, "insertions", 0), js_int(stat, "deletions", 0));
	one_line(r, line, "result", str_of(summary), out);
	for (size_t i = 0; i < json_array_size(paths); i++) {
		const json_t *p = json_array_get(paths, i);
		(void)buf_fmt(out, "%21s", "");
		clean_str(js_str_or(p, "path", ""), out);
		(void)buf_fmt(out, " +%lld -%lld\n", js_int(p, "insertions", 0), js_int(p, "deletions", 0));
	}
	for (const char *const *s = shown; *s != NULL; s++) {
		const char *v = js_str_or(line, *s, "");
		if (v[0] == 0)
			continue;
		(void)buf_fmt(out, "%10s%-*s ", "", LABEL_COLUMNS, *s);
		clean_str(v, out);
		(void)buf_chr(out, '\n');
	}
}

/* Bytes of a command, as they are but for what steers the terminal. */
static void output(struct cli_render *r, const json_t *line, struct buf *out)
{
	struct str data = text_of(line, "data");
	if (data.n == 0)
		return;
	if (strcmp(js_str_or(line, "enc", "utf8"), "base64") == 0) {
		auto_free unsigned char *bytes = xcalloc(1, data.n + 1);
		ssize_t got = b64_decode(data.p, data.n, bytes);
		if (got > 0)
			cli_clean((char *)bytes, (size_t)got, out);
	} else {
		cli_clean(data.p, data.n, out);
	}
	r->open_line = out->n > 0 && out->p[out->n - 1] != '\n';
}

static void exited(struct cli_render *r, const json_t *line, struct buf *out)
{
	const char *signal = js_str_or(line, "signal", ""), *message = js_str_or(line, "message", "");
	auto_buf struct buf how = BUF(4096);
	if (message[0] != 0)
		(void)buf_fmt(&how, "[%s]\n", message);
	if (js_bool(line, "timedOut", false))
		(void)buf_str(&how, "[timed out]\n");
	else if (signal[0] != 0)
		(void)buf_fmt(&how, "[ended by %s]\n", signal);
	else if (js_int(line, "exitCode", 0) != 0)
		(void)buf_fmt(&how, "[exit %lld]\n", js_int(line, "exitCode", 0));
	if (r->open_line && how.n > 0)
		(void)buf_chr(out, '\n');
	r->open_line = false;
	cli_clean(buf_c(&how), how.n, out);
}

/* What has no form of its own is shown as it is. */
static void plain(const json_t *line, struct buf *out)
{
	auto_free char *text = json_dumps(line, JSON_COMPACT);
	if (text != NULL)
		(void)buf_fmt(out, "%s\n", text);
}

void cli_line(struct cli_render *r, const json_t *line, struct buf *out)
{
	const char *type = js_str_or(line, "type", "");
	struct str message = text_of(line, "message");
	cli_see(r, line);
	if (strcmp(type, "ping") == 0 || strcmp(type, "start") == 0 || strcmp(type, "reconnect") == 0)
		return;
	cli_settle(r, out);
	if (strcmp(type, "log") == 0)
		quoted(message, out);
	else if (strcmp(type, "stdout") == 0 || strcmp(type, "stderr") == 0)
		output(r, line, out);
	else if (strcmp(type, "exit") == 0)
		exited(r, line, out);
	else if (strcmp(type, "result") == 0)
		result(r, line, out);
	else if (str_one_of(
		     type, (const char *const[]){ "step", "tool-call", "message", "error", "lost", NULL }))
		one_line(r, line, js_str_or(line, "step", type), message, out);
	else if (strcmp(type, "status") == 0)
		one_line(r, line, js_str_or(line, "phase", type),
		    message.n > 0 ? message : text_of(line, "run"), out);
	else
		plain(line, out);
}
