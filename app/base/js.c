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

json_t *js_parse(const char *p, size_t n, struct err *e)
{
	if (js_depth(p, n) > LIMIT_JSON_DEPTH) {
		err_set(e, ERR_BAD_REQUEST, "The JSON is nested deeper than %d levels.", LIMIT_JSON_DEPTH);
		e->reason = "json_too_deep";
		return NULL;
	}
	json_error_t je;
	json_t *v = json_loadb(p, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
	if (v == NULL) {
		/* Place and kind only: je.text quotes the input. */
		const char *why = json_error_code(&je) == json_error_invalid_utf8 ? "it is not valid UTF-8"
		    : json_error_code(&je) == json_error_null_character           ? "a string holds U+0000"
		    : json_error_code(&je) == json_error_null_byte_in_key         ? "a key holds U+0000"
		    : json_error_code(&je) == json_error_duplicate_key            ? "a key is given twice"
		    : json_error_code(&je) == json_error_numeric_overflow         ? "a number is too large"
		    : json_error_code(&je) == json_error_premature_end_of_input   ? "it ends too early"
										  : not_json(je.text);
		err_set(e, ERR_BAD_REQUEST, "The body cannot be read: %s (line %d, column %d).", why, je.line,
		    je.column);
		e->reason = "invalid_json";
	}
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

static int to_buf(const char *p, size_t n, void *arg)
{
	return buf_add(arg, p, n);
}

int js_dump_buf(struct buf *b, const json_t *v)
{
	return json_dump_callback(v, to_buf, b, JSON_COMPACT | JSON_ENCODE_ANY);
}

char *js_dump(struct mem *m, const json_t *v)
{
	auto_free char *s = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
	if (s == NULL)
		abort();
	return mem_str(m, s);
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
