/* JSON text, compact, as Jansson writes it byte for byte, in a fraction of its time: what is plain in a string goes over at once. */
#include <string.h>

#include "base/js.h"
#include "base/str.h"

static void escape(struct buf *b, char c)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *at = memchr(from, c, sizeof from - 1);
	if (at == NULL)
		(void)buf_fmt(b, "\\u%04X", (unsigned)(unsigned char)c);
	else
		(void)buf_add(b, (const char[]){ '\\', to[at - from] }, 2);
}

/* All of it stands for itself. */
static void whole(struct buf *b, const char *p, size_t n)
{
	char *to = buf_room(b, n + 2);
	if (to == NULL)
		return;
	to[0] = '"';
	memcpy(to + 1, p, n);
	to[n + 1] = '"';
	buf_grew(b, n + 2);
}

/* It is UTF-8. */
static void text(struct buf *b, const char *p, size_t n)
{
	bool ascii = true;
	size_t some = str_plain(p, n, &ascii);
	if (some == n) {
		whole(b, p, n);
		return;
	}
	(void)buf_chr(b, '"');
	for (; n > 0; some = str_plain(p, n, &ascii)) {
		(void)buf_add(b, p, some);
		p += some;
		n -= some;
		if (n == 0)
			break;
		escape(b, *p++);
		n--;
	}
	(void)buf_chr(b, '"');
}

static int to_buf(const char *p, size_t n, void *arg)
{
	return buf_add(arg, p, n);
}

static void value(struct buf *b, const json_t *v);

static void object(struct buf *b, const json_t *v)
{
	json_t *o = (json_t *)(uintptr_t)v; /* Jansson's iterators want it so */
	char before = '{';
	for (void *i = json_object_iter(o); i != NULL; i = json_object_iter_next(o, i)) {
		(void)buf_chr(b, before);
		text(b, json_object_iter_key(i), json_object_iter_key_len(i));
		(void)buf_chr(b, ':');
		value(b, json_object_iter_value(i));
		before = ',';
	}
	(void)buf_str(b, before == '{' ? "{}" : "}");
}

static void array(struct buf *b, const json_t *v)
{
	size_t i;
	json_t *one;
	(void)buf_chr(b, '[');
	json_array_foreach(v, i, one) {
		if (i > 0)
			(void)buf_chr(b, ',');
		value(b, one);
	}
	(void)buf_chr(b, ']');
}

static void value(struct buf *b, const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		object(b, v);
		break;
	case JSON_ARRAY:
		array(b, v);
		break;
	case JSON_STRING:
		text(b, json_string_value(v), json_string_length(v));
		break;
	case JSON_INTEGER:
		(void)buf_num(b, json_integer_value(v));
		break;
	case JSON_REAL: /* how many digits it takes is a science of its own */
		(void)json_dump_callback(v, to_buf, b, JSON_ENCODE_ANY);
		break;
	case JSON_TRUE:
		(void)buf_str(b, "true");
		break;
	case JSON_FALSE:
		(void)buf_str(b, "false");
		break;
	case JSON_NULL:
		(void)buf_str(b, "null");
		break;
	}
}

int js_dump_buf(struct buf *b, const json_t *v)
{
	value(b, v);
	return b->full ? -1 : 0;
}

char *js_dump(struct mem *m, const json_t *v)
{
	auto_buf struct buf b = BUF(SIZE_MAX / 8);
	if (js_dump_buf(&b, v) != 0)
		abort();
	return mem_strn(m, b.p, b.n);
}

void js_quote(struct buf *b, const char *p, size_t n)
{
	bool ascii = true;
	if (str_plain(p, n, &ascii) == n && ascii) {
		whole(b, p, n);
		return;
	}
	if (utf8_valid(p, n) == n) {
		text(b, p, n);
		return;
	}
	auto_json json_t *fixed = js_text(p, n);
	text(b, json_string_value(fixed), json_string_length(fixed));
}
