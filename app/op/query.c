/* Query strings, and the types of what arrives as text. Nothing here trusts that nginx has looked at the bytes. */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/str.h"
#include "op/op.h"
#include "op/param.h"

enum { QUERY_MAX_BYTES = 16 * 1024 };

/* Percent-decode (RFC 3986) with "+" as a space (the form encoding). Refused: broken escapes, U+0000, what is
 * not UTF-8. */
static int decode(struct str s, struct buf *out)
{
	buf_reset(out);
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i] == '+' ? ' ' : s.p[i];
		if (c == '%') {
			char hex[3] = { 0 };
			unsigned char byte;
			if (s.n - i < 3)
				return -1;
			memcpy(hex, s.p + i + 1, 2);
			if (hex_decode(hex, &byte, 1) != 1)
				return -1;
			c = (char)byte;
			i += 2;
		}
		if (c == 0 || buf_chr(out, c) != 0)
			return -1;
	}
	return utf8_valid(buf_c(out), out->n) == out->n ? 0 : -1;
}

json_t *query_parse(const char *query, struct err *e)
{
	auto_json json_t *o = json_object();
	auto_buf struct buf name = BUF(QUERY_MAX_BYTES), value = BUF(QUERY_MAX_BYTES);
	struct str rest = str_of(query), pair, k;
	while (str_cut(&rest, '&', &pair)) {
		if (pair.n == 0)
			continue;
		k = (struct str){ 0 };
		(void)str_cut(&pair, '=', &k);
		if (decode(k, &name) != 0 || decode(pair, &value) != 0) {
			err_set(e, ERR_BAD_REQUEST,
			    "The query string must be percent-encoded UTF-8 of at most %d bytes.",
			    QUERY_MAX_BYTES);
			return NULL;
		}
		if (json_object_get(o, buf_c(&name)) != NULL) {
			err_field(e, ERR_BAD_REQUEST, buf_c(&name), "`%.60s` is given twice in the query.",
			    buf_c(&name));
			return NULL;
		}
		js_set_str(o, buf_c(&name), buf_c(&value));
	}
	return steal(o);
}

static json_t *coerced(const struct param *p, const char *s)
{
	long long n;
	char *end;
	if (p->type == T_INT && str_int(s, INT64_MIN, INT64_MAX, &n))
		return json_integer(n);
	if (p->type == T_BOOL && (strcmp(s, "true") == 0 || strcmp(s, "false") == 0))
		return json_boolean(strcmp(s, "true") == 0);
	if (p->type != T_NUM || !str_only(s, "+-.0123456789eE"))
		return NULL;
	errno = 0;
	double d = strtod(s, &end);
	return errno == 0 && *end == 0 ? json_real(d) : NULL; /* NULL too when d is not finite */
}

void query_coerce(const struct param *schema, json_t *in)
{
	for (const struct param *p = schema; p != NULL && p->name != NULL; p++) {
		const char *s = js_str(in, p->name);
		json_t *v = s == NULL ? NULL : coerced(p, s);
		if (v != NULL)
			js_set(in, p->name, v);
	}
}
