/*
 * JSON text is redacted as text, token by token: numbers, spacing and duplicate keys stay as they are, depth
 * costs a bit a level and no stack, and nothing that a stricter parser would refuse (and so leave as it is)
 * slips through.
 */
#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "base/js.h"
#include "base/redact.h"

#define MARK "[redacted]"

enum { NEST_MAX = 4 }; /* JSON in a string of JSON in a string … */

enum want { VALUE, VALUE_OR_END, KEY, KEY_OR_END, COLON, COMMA_OR_END, DONE };

struct scan {
	const char *p;
	size_t n, at;
	enum want want;
	struct buf stack; /* one '{' or '[' for each open level */
	struct buf *out;
	int nest;
	bool secret;  /* the value that comes belongs to a secret key */
	size_t quiet; /* while not 0: inside such a value, which began at this depth */
};

static int text_at(const char *p, size_t n, struct buf *out, int nest);

static void emit(struct scan *s, const char *p, size_t n)
{
	if (s->quiet == 0)
		(void)buf_add(s->out, p, n);
}

static void value_ended(struct scan *s)
{
	s->want = s->stack.n == 0 ? DONE : COMMA_OR_END;
	s->secret = false;
}

/* Length of the string token at the place, quotes included; 0 when it does not end or holds a control
 * character. */
static size_t string_len(const struct scan *s)
{
	for (size_t i = s->at + 1; i < s->n; i++) {
		if ((unsigned char)s->p[i] < 0x20)
			return 0;
		if (s->p[i] == '\\')
			i++;
		else if (s->p[i] == '"')
			return i + 1 - s->at;
	}
	return 0;
}

/* A key is compared, a string value redacted, in its decoded form; one that is not Unicode text is replaced.
 */
static void string_out(struct scan *s, size_t len, bool key)
{
	const char *raw = s->p + s->at;
	auto_json json_t *v = json_loadb(raw, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	if (v == NULL) {
		emit(s, "\"" MARK "\"", strlen(MARK) + 2);
		s->secret = key;
		return;
	}
	if (key)
		s->secret = redact_key(json_string_value(v));
	auto_buf struct buf clean = BUF(4 * json_string_length(v) + 64);
	if (text_at(json_string_value(v), json_string_length(v), &clean, s->nest + 1) != 0) {
		emit(s, "\"" MARK "\"", strlen(MARK) + 2);
		return;
	}
	if (clean.n == json_string_length(v) && memcmp(buf_c(&clean), json_string_value(v), clean.n) == 0) {
		emit(s, raw, len);
		return;
	}
	auto_json json_t *w = js_text(buf_c(&clean), clean.n);
	if (s->quiet == 0)
		(void)js_dump_buf(s->out, w);
}

static size_t digits(const struct scan *s, size_t at)
{
	while (at < s->n && isdigit((unsigned char)s->p[at]))
		at++;
	return at;
}

/* Length of the number at the place (RFC 8259), 0 when it is none. */
static size_t number_len(const struct scan *s)
{
	size_t at = s->at + (s->p[s->at] == '-'), end = digits(s, at);
	if (end == at || (s->p[at] == '0' && end > at + 1))
		return 0;
	if (end < s->n && s->p[end] == '.') {
		at = end + 1;
		end = digits(s, at);
		if (end == at)
			return 0;
	}
	if (end < s->n && (s->p[end] == 'e' || s->p[end] == 'E')) {
		at = end + 1;
		if (at < s->n && (s->p[at] == '+' || s->p[at] == '-'))
			at++;
		end = digits(s, at);
		if (end == at)
			return 0;
	}
	return end - s->at;
}

static size_t word_len(const struct scan *s)
{
	static const char *const words[] = { "true", "false", "null" };
	for (size_t i = 0; i < 3; i++) {
		size_t len = strlen(words[i]);
		if (s->n - s->at >= len && memcmp(s->p + s->at, words[i], len) == 0)
			return len;
	}
	return 0;
}

static void open_level(struct scan *s, char c)
{
	emit(s, &c, 1);
	(void)buf_chr(&s->stack, c);
	s->want = c == '{' ? KEY_OR_END : VALUE_OR_END;
	s->at++;
}

static bool value(struct scan *s)
{
	char c = s->p[s->at];
	if (s->secret && s->quiet == 0) {
		emit(s, "\"" MARK "\"", strlen(MARK) + 2);
		s->quiet = s->stack.n;
	}
	if (c == '{' || c == '[') {
		s->secret = false;
		open_level(s, c);
		return true;
	}
	size_t len = c == '"'                       ? string_len(s)
	    : c == '-' || isdigit((unsigned char)c) ? number_len(s)
						    : word_len(s);
	if (len == 0)
		return false;
	if (c == '"')
		string_out(s, len, false);
	else
		emit(s, s->p + s->at, len);
	s->at += len;
	if (s->quiet == s->stack.n)
		s->quiet = 0;
	value_ended(s);
	return true;
}

static bool close_level(struct scan *s, char c)
{
	if (s->stack.p[s->stack.n - 1] != (c == '}' ? '{' : '['))
		return false;
	emit(s, &c, 1);
	s->stack.n--;
	s->at++;
	if (s->quiet == s->stack.n)
		s->quiet = 0;
	value_ended(s);
	return true;
}

static bool punctuation(struct scan *s, enum want next)
{
	emit(s, s->p + s->at, 1);
	s->at++;
	s->want = next;
	return true;
}

static bool key(struct scan *s)
{
	size_t len = string_len(s);
	if (len == 0)
		return false;
	string_out(s, len, true);
	s->at += len;
	s->want = COLON;
	return true;
}

static bool token(struct scan *s)
{
	char c = s->p[s->at];
	switch (s->want) {
	case VALUE_OR_END:
		return c == ']' ? close_level(s, c) : value(s);
	case VALUE:
		return value(s);
	case KEY_OR_END:
		if (c == '}')
			return close_level(s, c);
		return c == '"' && key(s);
	case KEY:
		return c == '"' && key(s);
	case COLON:
		return c == ':' && punctuation(s, VALUE);
	case COMMA_OR_END:
		if (c == ',')
			return punctuation(s, s->stack.p[s->stack.n - 1] == '{' ? KEY : VALUE);
		return (c == '}' || c == ']') && close_level(s, c);
	case DONE:
		return false;
	}
	return false;
}

/* One JSON value, or several with `many` (lines of NDJSON); false when it is something else, with part of it
 * written. */
static bool scan_json(const char *p, size_t n, struct buf *out, int nest, bool many)
{
	struct scan s = { .p = p, .n = n, .want = VALUE, .stack = BUF(n + 1), .out = out, .nest = nest };
	bool good = true;
	while (good && s.at < n) {
		if (memchr(" \t\r\n", p[s.at], 4) != NULL)
			emit(&s, p + s.at++, 1);
		else if (s.want == DONE && many)
			s.want = VALUE;
		else
			good = token(&s);
	}
	buf_free(&s.stack);
	return good && s.want == DONE;
}

/* Only an object or an array has keys; everything else is the same text either way. */
static bool may_be_json(const char *p, size_t n)
{
	size_t at = 0;
	while (at < n && isspace((unsigned char)p[at]))
		at++;
	return at < n && (p[at] == '{' || p[at] == '[');
}

static int text_at(const char *p, size_t n, struct buf *out, int nest)
{
	size_t before = out->n;
	if (nest < NEST_MAX && may_be_json(p, n)) {
		if (scan_json(p, n, out, nest, true))
			return out->full ? -1 : 0;
		if (out->full)
			return -1;
		out->n = before;
	}
	return redact_plain(p, n, out);
}

int redact_text(const char *p, size_t n, struct buf *out)
{
	return text_at(p, n, out, 0);
}

int redact_must_json(const char *p, size_t n, struct buf *out)
{
	size_t before = out->n;
	if (scan_json(p, n, out, 0, false))
		return out->full ? -1 : 0;
	if (out->full)
		return -1;
	out->n = before;
	return buf_str(out, "\"" MARK "\"");
}

static json_t *string_clean(const char *p, size_t n)
{
	auto_buf struct buf b = BUF(4 * n + 64);
	if (text_at(p, n, &b, 1) != 0)
		return json_string(MARK);
	return js_text(buf_c(&b), b.n);
}

static void object_clean(const json_t *v, json_t *to)
{
	const char *name;
	json_t *child;
	/* Jansson's iterators take a non-const object but do not change it. */
	json_object_foreach((json_t *)(uintptr_t)v, name, child) {
		auto_buf struct buf k = BUF(4 * strlen(name) + 64);
		if (redact_plain(name, strlen(name), &k) != 0) {
			buf_reset(&k);
			(void)buf_str(&k, MARK);
		}
		js_set(to, buf_c(&k), redact_key(name) ? json_string(MARK) : redact_json(child));
	}
}

/* Recursion is bounded: values are our own or came through js_parse (LIMIT_JSON_DEPTH). */
json_t *redact_json(const json_t *v)
{
	if (json_is_string(v))
		return string_clean(json_string_value(v), json_string_length(v));
	if (json_is_object(v)) {
		json_t *to = json_object();
		object_clean(v, to);
		return to;
	}
	if (json_is_array(v)) {
		json_t *to = json_array();
		for (size_t i = 0; i < json_array_size(v); i++)
			js_push(to, redact_json(json_array_get(v, i)));
		return to;
	}
	return json_incref((json_t *)(uintptr_t)v);
}
