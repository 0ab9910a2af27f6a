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

/* How many of these stand for themselves, whatever the format. */
static size_t plain(const char *p, size_t n)
{
	size_t i = 0;
	while (i < n && p[i] >= ' ' && p[i] < 0x7f && p[i] != '"' && p[i] != '\\')
		i++;
	return i;
}

/* The inside of a quoted string, at most VALUE_BYTES of it; the escapes are JSON's in both formats. */
static void escape(const char *p, size_t n, struct buf *out)
{
	size_t end = out->n + VALUE_BYTES;
	for (size_t i = 0; i < n;) {
		if (out->n + 8 > end) {
			(void)buf_str(out, "…");
			return;
		}
		size_t room = end - 7 - out->n, run = plain(p + i, n - i < room ? n - i : room);
		if (run > 0) {
			(void)buf_add(out, p + i, run);
			i += run;
			continue;
		}
		size_t len = char_len(p + i, n - i);
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

/* Without quotes stand ASCII texts only. */
static bool is_bare(struct str s)
{
	size_t i = 0;
	while (i < s.n && s.p[i] > ' ' && s.p[i] != '"' && s.p[i] != '=' && s.p[i] != '\\' && s.p[i] != 0x7f)
		i++;
	return i == s.n && s.n > 0;
}

/* What a line's values pass, one after the other: after redaction, and escaped. */
struct scratch {
	struct buf clean, text;
};

/* As it stands between quotes; *bare: it needs none. Most values stand for themselves. */
static struct str value(const char *key, const char *v, struct scratch *s, bool *bare)
{
	buf_reset(&s->clean);
	if (redact_key(key) || redact_text(v, strnlen(v, INPUT_BYTES), &s->clean) != 0) {
		buf_reset(&s->clean);
		(void)buf_str(&s->clean, "[redacted]");
	}
	struct str all = { buf_c(&s->clean), s->clean.n };
	bool whole = all.n <= VALUE_BYTES - 8 && plain(all.p, all.n) == all.n;
	if (!whole) {
		buf_reset(&s->text);
		escape(all.p, all.n, &s->text);
		all = (struct str){ buf_c(&s->text), s->text.n };
	}
	*bare = is_bare(all);
	return all;
}

/* A pair that does not fit is left out as a whole; a shorter one after it may still fit. */
static void add(struct buf *line, bool json, const char *key, struct str text, bool quoted)
{
	bool follows = line->n > 0;
	size_t key_n = strlen(key), n = (json || follows) + key_n + 1 + text.n + 2 * json + 2 * quoted;
	char *at = buf_room(line, n);
	line->full = false;
	if (at == NULL)
		return;
	if (json || follows)
		*at++ = !follows ? '{' : json ? ',' : ' ';
	if (json)
		*at++ = '"';
	at = mempcpy(at, key, key_n);
	if (json)
		*at++ = '"';
	*at++ = json ? ':' : '=';
	if (quoted)
		*at++ = '"';
	at = mempcpy(at, text.p, text.n);
	if (quoted)
		*at = '"';
	buf_grew(line, n);
}

static void pair(struct buf *line, bool json, const char *key, const char *v, struct scratch *s)
{
	bool bare;
	struct str text = value(key, v, s, &bare);
	add(line, json, key, text, json || !bare);
}

void log_kv(enum log_level level, const char *msg, ...)
{
	if ((int)level < least_level)
		return;
	bool json = line_format == LOG_JSON;
	auto_buf struct buf line = BUF(LINE_BYTES - 2);
	struct scratch scratch = { BUF(4 * INPUT_BYTES), BUF(2 * VALUE_BYTES) };
	char now[CLOCK_TEXT];
	clock_rfc3339(clock_wall_ms(), now);
	/* These two are words of ours. */
	add(&line, json, "time", str_of(now), json);
	add(&line, json, "level", str_of(level_names[level]), json);
	pair(&line, json, "process", process_name, &scratch);
	pair(&line, json, "msg", msg, &scratch);
	va_list ap;
	va_start(ap, msg);
	for (const char *key; (key = va_arg(ap, const char *)) != NULL;) {
		const char *v = va_arg(ap, const char *);
		if (v != NULL)
			pair(&line, json, key, v, &scratch);
	}
	va_end(ap);
	buf_free(&scratch.clean);
	buf_free(&scratch.text);
	line.max = LINE_BYTES;
	(void)buf_str(&line, json ? "}\n" : "\n");
	/* Nobody can be told that the log cannot be written. */
	while (write(STDERR_FILENO, line.p, line.n) < 0 && errno == EINTR)
		;
}
