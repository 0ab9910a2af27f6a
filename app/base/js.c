#include "base/js.h"

#include <stdarg.h>
#include <string.h>

#include "base/hash.h"
#include "base/limits.h"

int js_depth(const char *p, size_t n)
{
	int depth = 0, deepest = 0;
	bool in_string = false;
	for (size_t i = 0; i < n; i++) {
		char c = p[i];
		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			if (++depth > deepest)
				deepest = depth;
		} else if (c == '}' || c == ']') {
			depth--;
		}
	}
	return deepest;
}

/* What Jansson's text says, which quotes the input, in words that do not. */
static const char *not_json(const char *text)
{
	static const char *const all[][2] = {
		{ "invalid Unicode",
		    "it is not JSON: half of a surrogate pair (\\ud800 to \\udfff) stands alone in a "
		    "string" },
		{ "control character", "it is not JSON: a control character in a string must be escaped" },
		{ "unexpected newline", "it is not JSON: a line break in a string must be escaped as \\n" },
		{ "invalid escape", "it is not JSON: a backslash in a string begins no escape" },
		{ "string or '}' expected", "it is not JSON: a key in double quotes or } is expected" },
		{ "':' expected", "it is not JSON: a colon is expected after a key" },
		{ "'}' expected", "it is not JSON: a comma or } is expected" },
		{ "']' expected", "it is not JSON: a comma or ] is expected" },
		{ "end of file expected", "it is not JSON: something follows its end" },
		{ "invalid token", "it is not JSON: a word, number or string is not written as JSON has it" },
		{ "unexpected token", "it is not JSON: a value is expected" },
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strncmp(text, all[i][0], strlen(all[i][0])) == 0)
			return all[i][1];
	return "it is not JSON";
}

/* ---- reading what is as it should be. NULL for anything else: Jansson's own parser then says what is wrong with it, or reads what is rare. */

struct reader {
	const char *p, *end;
	struct buf text; /* of a string with escapes */
	int depth;       /* how many brackets are open */
};

static char peek(struct reader *r)
{
	while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t'))
		r->p++;
	return r->p < r->end ? *r->p : '\0';
}

static bool hex4(const struct reader *r, unsigned *u)
{
	unsigned char bytes[2];
	char hex[5] = { 0 };
	if (r->end - r->p < 4)
		return false;
	memcpy(hex, r->p, 4);
	if (hex_decode(hex, bytes, sizeof bytes) != (ssize_t)sizeof bytes)
		return false;
	*u = (unsigned)bytes[0] << 8 | bytes[1];
	return true;
}

/* Behind "\\u". Halves of a pair, and what is none, are not read here. */
static bool unicode(struct reader *r)
{
	unsigned u;
	if (!hex4(r, &u) || u == 0 || (u >= 0xD800 && u < 0xE000))
		return false;
	r->p += 4;
	if (u < 0x80)
		return buf_chr(&r->text, (char)u) == 0;
	const char two[] = { (char)(0xC0 | u >> 6), (char)(0x80 | (u & 0x3F)) };
	const char three[] = { (char)(0xE0 | u >> 12), (char)(0x80 | (u >> 6 & 0x3F)),
		(char)(0x80 | (u & 0x3F)) };
	return (u < 0x800 ? buf_add(&r->text, two, sizeof two) : buf_add(&r->text, three, sizeof three)) == 0;
}

static bool unescape(struct reader *r)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	if (r->p == r->end)
		return false;
	char c = *r->p++;
	if (c == 'u')
		return unicode(r);
	const char *at = memchr(from, c, sizeof from - 1);
	return at != NULL && buf_chr(&r->text, to[at - from]) == 0;
}

/* At the opening quote. *out lies in the text, or in r->text until the next string. */
static bool string(struct reader *r, struct str *out)
{
	const char *from = ++r->p;
	bool ascii = true;
	r->p += str_plain(r->p, (size_t)(r->end - r->p), &ascii);
	*out = (struct str){ from, (size_t)(r->p - from) };
	if (r->p == r->end)
		return false;
	if (*r->p == '"') {
		r->p++;
		return ascii || utf8_valid(out->p, out->n) == out->n;
	}
	buf_reset(&r->text);
	(void)buf_add(&r->text, from, out->n);
	while (r->p < r->end && *r->p == '\\') {
		r->p++;
		if (!unescape(r))
			return false;
		size_t some = str_plain(r->p, (size_t)(r->end - r->p), &ascii);
		(void)buf_add(&r->text, r->p, some);
		r->p += some;
	}
	if (r->p == r->end || *r->p++ != '"')
		return false;
	*out = (struct str){ r->text.p, r->text.n };
	return utf8_valid(out->p, out->n) == out->n;
}

/* Whole numbers that surely fit. */
static json_t *number(struct reader *r)
{
	enum { DIGITS_MAX = 18 };
	bool minus = *r->p == '-';
	const char *from = r->p += minus;
	json_int_t v = 0;
	while (r->p < r->end && *r->p >= '0' && *r->p <= '9' && r->p - from < DIGITS_MAX)
		v = v * 10 + (*r->p++ - '0');
	bool whole = r->p == r->end || memchr(",]} \n\r\t", *r->p, 7) != NULL;
	if (r->p == from || (*from == '0' && r->p - from > 1) || !whole)
		return NULL;
	return json_integer(minus ? -v : v);
}

static json_t *word(struct reader *r)
{
	size_t left = (size_t)(r->end - r->p);
	if (left >= 4 && memcmp(r->p, "true", 4) == 0) {
		r->p += 4;
		return json_true();
	}
	if (left >= 4 && memcmp(r->p, "null", 4) == 0) {
		r->p += 4;
		return json_null();
	}
	if (left < 5 || memcmp(r->p, "false", 5) != 0)
		return NULL;
	r->p += 5;
	return json_false();
}

static json_t *value(struct reader *r);

static bool member(struct reader *r, json_t *o)
{
	struct str key;
	if (peek(r) != '"' || !string(r, &key) || key.p == r->text.p) /* the value may need that room */
		return false;
	if (peek(r) != ':')
		return false;
	r->p++;
	json_t *v = value(r);
	if (v == NULL)
		return false;
	size_t before = json_object_size(o);
	return json_object_setn_new_nocheck(o, key.p, key.n, v) == 0 && json_object_size(o) > before;
}

static bool item(struct reader *r, json_t *a)
{
	json_t *v = value(r);
	return v != NULL && json_array_append_new(a, v) == 0;
}

/* At the opening bracket. */
static json_t *several(struct reader *r, json_t *made, bool (*one)(struct reader *r, json_t *to), char end)
{
	auto_json json_t *all = made;
	if (++r->depth > LIMIT_JSON_DEPTH)
		return NULL;
	r->p++;
	char c = peek(r);
	if (c != end)
		do {
			if (!one(r, all))
				return NULL;
			c = peek(r);
			r->p += c == ',';
		} while (c == ',');
	if (c != end)
		return NULL;
	r->p++;
	r->depth--;
	return steal(all);
}

static json_t *value(struct reader *r)
{
	struct str s;
	switch (peek(r)) {
	case '{':
		return several(r, json_object(), member, '}');
	case '[':
		return several(r, json_array(), item, ']');
	case '"':
		return string(r, &s) ? json_stringn_nocheck(s.p, s.n) : NULL;
	case 't':
	case 'f':
	case 'n':
		return word(r);
	case '\0':
		return NULL;
	default:
		return number(r);
	}
}

static json_t *read_plain(const char *p, size_t n)
{
	struct reader r = { .p = p, .end = p + n, .text = BUF(n + 1) };
	auto_json json_t *v = value(&r);
	(void)peek(&r);
	buf_free(&r.text);
	return v != NULL && r.p == r.end ? steal(v) : NULL;
}

/* Place and kind only: je->text quotes the input. */
static void tell(const json_error_t *je, struct err *e)
{
	const char *why = json_error_code(je) == json_error_invalid_utf8 ? "it is not valid UTF-8"
	    : json_error_code(je) == json_error_null_character           ? "a string holds U+0000"
	    : json_error_code(je) == json_error_null_byte_in_key         ? "a key holds U+0000"
	    : json_error_code(je) == json_error_duplicate_key            ? "a key is given twice"
	    : json_error_code(je) == json_error_numeric_overflow         ? "a number is too large"
	    : json_error_code(je) == json_error_premature_end_of_input   ? "it ends too early"
									 : not_json(je->text);
	err_set(e, ERR_BAD_REQUEST, "The body cannot be read: %s (line %d, column %d).", why, je->line,
	    je->column);
	e->reason = "invalid_json";
}

json_t *js_parse(const char *p, size_t n, struct err *e)
{
	json_error_t je;
	json_t *v = n == 0 ? NULL : read_plain(p, n);
	if (v != NULL)
		return v;
	if (js_depth(p, n) > LIMIT_JSON_DEPTH) {
		err_set(e, ERR_BAD_REQUEST, "The JSON is nested deeper than %d levels.", LIMIT_JSON_DEPTH);
		e->reason = "json_too_deep";
		return NULL;
	}
	v = json_loadb(p, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
	if (v == NULL)
		tell(&je, e);
	return v;
}

json_t *js_get(const json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);
	return json_is_null(v) ? NULL : v;
}

const char *js_str(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

const char *js_str_or(const json_t *o, const char *key, const char *def)
{
	const char *s = js_str(o, key);
	return s == NULL ? def : s;
}

long long js_int(const json_t *o, const char *key, long long def)
{
	const json_t *v = json_object_get(o, key);
	return json_is_integer(v) ? json_integer_value(v) : def;
}

bool js_bool(const json_t *o, const char *key, bool def)
{
	const json_t *v = json_object_get(o, key);
	return json_is_boolean(v) ? json_is_true(v) : def;
}

int js_bytes(
    struct mem *m, const json_t *o, const char *key, const char *enc_key, struct str *out, struct err *e)
{
	const json_t *v = js_get(o, key);
	*out = (struct str){ json_string_length(v) > 0 ? json_string_value(v) : "", json_string_length(v) };
	if (enc_key != NULL && strcmp(js_str_or(o, enc_key, "utf8"), "base64") != 0)
		return 0;
	unsigned char *bytes = mem_alloc(m, out->n + 1);
	ssize_t n = b64_decode(out->p, out->n, bytes);
	if (n < 0)
		return err_field(e, ERR_BAD_REQUEST, key, "`%s` is not base64.", key);
	*out = (struct str){ (const char *)bytes, (size_t)n };
	return 0;
}

void js_set(json_t *o, const char *key, json_t *v)
{
	if (json_object_set_new(o, key, v == NULL ? json_null() : v) != 0)
		abort();
}

void js_set_str(json_t *o, const char *key, const char *s)
{
	if (s == NULL) {
		js_set(o, key, NULL);
		return;
	}
	js_set(o, key, js_text(s, strlen(s)));
}

void js_push(json_t *array, json_t *v)
{
	if (json_array_append_new(array, v) != 0)
		abort();
}

json_t *js_text(const char *p, size_t n)
{
	json_t *v;
	size_t good = utf8_valid(p, n);
	if (good == n) {
		v = json_stringn(p, n);
	} else {
		auto_buf struct buf b = BUF(3 * n + 3);
		for (size_t at = 0; at < n;) {
			good = utf8_valid(p + at, n - at);
			(void)buf_add(&b, p + at, good);
			at += good;
			if (at < n) {
				(void)buf_str(&b, "\xEF\xBF\xBD");
				at++;
			}
		}
		v = json_stringn(buf_c(&b), b.n);
	}
	if (v == NULL)
		abort();
	return v;
}

json_t *js_pack(const char *fmt, ...)
{
	va_list ap;
	json_error_t je;
	va_start(ap, fmt);
	json_t *v = json_vpack_ex(&je, 0, fmt, ap);
	va_end(ap);
	if (v == NULL)
		abort();
	return v;
}
