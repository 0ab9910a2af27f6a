#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/redact.h"
#include "base/str.h"

/* A line is one write(), and short enough to stay whole on a pipe (PIPE_BUF) that several processes share. */
enum { LINE_BYTES = 4096, VALUE_BYTES = 1024, INPUT_BYTES = 64 * 1024 };

static const char *_Atomic process_name = "gatehouse";
static _Atomic int least_level = LOG_INFO_;
static _Atomic int line_format = LOG_LOGFMT;

static const char *const level_names[] = { "debug", "info", "warn", "error" };

void log_setup(const char *process, enum log_level least, enum log_format format)
{
	process_name = process;
	least_level = (int)least;
	line_format = (int)format;
}

/* Control characters, C1 included: a log is read on terminals. */
static bool is_control(const char *p, size_t n)
{
	unsigned char c = (unsigned char)p[0];
	if (n == 1)
		return c < 0x20 || c == 0x7f;
	return n == 2 && c == 0xC2 && (unsigned char)p[1] < 0xA0;
}

/* Length of the character at p; 0 when it is not UTF-8. */
static size_t char_len(const char *p, size_t n)
{
	for (size_t len = 1; len <= 4 && len <= n; len++)
		if (utf8_valid(p, len) == len)
			return len;
	return 0;
}

/* The inside of a quoted string, at most VALUE_BYTES of it; the escapes are JSON's in both formats. */
static void escape(const char *p, size_t n, struct buf *out)
{
	size_t end = out->n + VALUE_BYTES;
	for (size_t i = 0; i < n;) {
		size_t len = char_len(p + i, n - i);
		if (out->n + 8 > end) {
			(void)buf_str(out, "…");
			return;
		}
		if (len == 0)
			(void)buf_str(out, "\\ufffd");
		else if (p[i] == '"' || p[i] == '\\')
			(void)buf_fmt(out, "\\%c", p[i]);
		else if (p[i] == '\n')
			(void)buf_str(out, "\\n");
		else if (is_control(p + i, len))
			(void)buf_fmt(out, "\\u%04x", (unsigned)(unsigned char)p[i + len - 1]);
		else
			(void)buf_add(out, p + i, len);
		i += len == 0 ? 1 : len;
	}
}

static void value(const char *key, const char *v, struct buf *out)
{
	auto_buf struct buf clean = BUF(4 * INPUT_BYTES);
	if (redact_key(key) || redact_text(v, strnlen(v, INPUT_BYTES), &clean) != 0) {
		buf_reset(&clean);
		(void)buf_str(&clean, "[redacted]");
	}
	escape(buf_c(&clean), clean.n, out);
}

static bool bare(const char *p)
{
	for (; *p != 0; p++)
		if (*p <= ' ' || *p == '"' || *p == '=' || *p == '\\' || *p == 0x7f)
			return false;
	return true;
}

static void pair(struct buf *line, bool json, const char *key, const char *v)
{
	auto_buf struct buf text = BUF(2 * VALUE_BYTES);
	value(key, v, &text);
	if (json)
		(void)buf_fmt(line, "%s\"%s\":\"%s\"", line->n == 0 ? "{" : ",", key, buf_c(&text));
	else if (text.n > 0 && bare(buf_c(&text)))
		(void)buf_fmt(line, "%s%s=%s", line->n == 0 ? "" : " ", key, buf_c(&text));
	else
		(void)buf_fmt(line, "%s%s=\"%s\"", line->n == 0 ? "" : " ", key, buf_c(&text));
}

void log_kv(enum log_level level, const char *msg, ...)
{
	if ((int)level < least_level)
		return;
	bool json = line_format == LOG_JSON;
	/* A pair that no longer fits is left out as a whole; a shorter one after it may still fit. */
	auto_buf struct buf line = BUF(LINE_BYTES - 2);
	char now[CLOCK_TEXT];
	clock_rfc3339(clock_wall_ms(), now);
	pair(&line, json, "time", now);
	pair(&line, json, "level", level_names[level]);
	pair(&line, json, "process", process_name);
	pair(&line, json, "msg", msg);
	va_list ap;
	va_start(ap, msg);
	for (const char *key; (key = va_arg(ap, const char *)) != NULL;) {
		const char *v = va_arg(ap, const char *);
		if (v == NULL)
			continue;
		pair(&line, json, key, v);
		line.full = false;
	}
	va_end(ap);
	line.max = LINE_BYTES;
	(void)buf_str(&line, json ? "}\n" : "\n");
	/* Nobody can be told that the log cannot be written. */
	while (write(STDERR_FILENO, line.p, line.n) < 0 && errno == EINTR)
		;
}
