/*
 * One walk over input and schema. Nothing stops it: a caller learns of every fault at once (up to ERR_DETAILS_MAX), each with
 * the path of its field ("limits.cpus", "files[2].path", cut at ERR_PARAM_MAX). Its recursion is as deep as the schema,
 * never as deep as the input. Values are not repeated in messages, as they may be secrets; unknown keys are, shortened.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/js.h"
#include "op/op.h"
#include "op/param.h"

/* Unknown keys are the caller's text: quoted up to here. */
enum { KEY_SHOWN = 60, NAMES_SHOWN = 110, VALUES_SHOWN = 400 };

const struct param param_map_value = { .type = T_STR, .max = PARAM_MAP_VALUE_BYTES };
const struct param op_none[] = { { 0 } };

struct check {
	struct err *e;
	bool lax;                  /* unknown fields are fine */
	bool out;                  /* a reply of ours: null only where nullable, no default bounds */
	bool text;                 /* read from a query: a string is not what is wrong */
	const struct route *route; /* NULL: none */
	const struct param *top;   /* where that is not NULL: the schema whose fields may stand in its path */
};
typedef char path_t[ERR_PARAM_MAX];

static void check_fields(
    const struct check *k, const struct param *schema, const char *path, const json_t *v);

long long param_max(const struct param *p)
{
	if (p->max != 0)
		return p->max;
	return p->type == T_ARR ? PARAM_ARR_ITEMS : p->type == T_MAP ? PARAM_MAP_ENTRIES : PARAM_STR_BYTES;
}

bool param_has_range(const struct param *p)
{
	return p->min != 0 || p->max != 0;
}

const struct param *param_find(const struct param *schema, const char *name)
{
	for (; schema != NULL && schema->name != NULL; schema++)
		if (strcmp(schema->name, name) == 0)
			return schema;
	return NULL;
}

static const char *type_said(const json_t *v)
{
	if (v == NULL)
		return "nothing";
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "an array";
	case JSON_STRING:
		return "a string";
	case JSON_INTEGER:
	case JSON_REAL:
		return "a number";
	case JSON_TRUE:
	case JSON_FALSE:
		return "a boolean";
	default:
		return "null";
	}
}

static void wrong_type(const struct check *k, const char *path, const char *expected, const json_t *v)
{
	if (k->text && json_is_string(v))
		err_detail(k->e, ERR_BAD_REQUEST, path, "`%s` must be %s.", path, expected);
	else
		err_detail(
		    k->e, ERR_BAD_REQUEST, path, "`%s` must be %s, not %s.", path, expected, type_said(v));
}

static void check_str(const struct check *k, const struct param *p, const char *path, const json_t *v)
{
	if (!json_is_string(v)) {
		wrong_type(k, path, "a string", v);
		return;
	}
	long long n = (long long)json_string_length(v);
	if (strlen(json_string_value(v)) != (size_t)n)
		/* Not from JSON (js_parse refuses it): everything behind this check may use C strings. */
		err_detail(k->e, ERR_BAD_REQUEST, path, "`%s` must not hold the character U+0000.", path);
	else if (n == 0 && p->min > 0)
		err_detail(k->e, ERR_BAD_REQUEST, path, "`%s` must not be empty.", path);
	else if (n < p->min || (n > param_max(p) && (!k->out || p->max != 0)))
		err_detail(k->e, ERR_BAD_REQUEST, path, "`%s` must be %lld to %lld bytes long; it has %lld.",
		    path, p->min, param_max(p), n);
}

static void check_num(const struct check *k, const struct param *p, const char *path, const json_t *v)
{
	const char *kind = p->type == T_INT ? "a whole number" : "a number";
	if (p->type == T_INT ? !json_is_integer(v) : !json_is_number(v)) {
		/* 1.0 and 1e3 are numbers, but not whole ones as written. */
		if (json_is_real(v))
			err_detail(k->e, ERR_BAD_REQUEST, path,
			    "`%s` must be a whole number, written without a point or exponent.", path);
		else
			wrong_type(k, path, kind, v);
		return;
	}
	/* Integers are compared as such: a double is exact only up to 2^53. */
	double d = json_number_value(v);
	bool outside = json_is_integer(v) ? json_integer_value(v) < p->min || json_integer_value(v) > p->max
					  : d < (double)p->min || d > (double)p->max;
	if (p->least > 0 && (outside || d < p->least))
		err_detail(k->e, ERR_BAD_REQUEST, path, "`%s` must be %s from %g to %lld.", path, kind,
		    p->least, p->max);
	else if (param_has_range(p) && outside)
		err_detail(k->e, ERR_BAD_REQUEST, path, "`%s` must be %s from %lld to %lld.", path, kind,
		    p->min, p->max);
}

static void check_enum(const struct check *k, const struct param *p, const char *path, const json_t *v)
{
	auto_buf struct buf all = BUF(VALUES_SHOWN);
	for (const char *const *s = p->values; *s != NULL; s++) {
		if (json_is_string(v) && strcmp(*s, json_string_value(v)) == 0)
			return;
		(void)buf_fmt(&all, "%s\"%s\"", s == p->values ? "" : ", ", *s);
	}
	err_detail(k->e, ERR_BAD_REQUEST, path, "`%s` must be one of %s.", path, buf_c(&all));
}

/* YYYY-MM-DDThh:mm:ss, an optional fraction, Z. */
static bool is_time(const char *s)
{
	static const char shape[] = "0000-00-00T00:00:00";
	for (size_t i = 0; i < sizeof shape - 1; i++)
		if (shape[i] == '0' ? !isdigit((unsigned char)s[i]) : s[i] != shape[i])
			return false;
	int mon = (s[5] - '0') * 10 + s[6] - '0', day = (s[8] - '0') * 10 + s[9] - '0';
	int hour = (s[11] - '0') * 10 + s[12] - '0';
	if (mon < 1 || mon > 12 || day < 1 || day > 31 || hour > 23 || s[14] > '5' || s[17] > '5')
		return false;
	s += sizeof shape - 1;
	if (*s == '.') {
		size_t n = strspn(s + 1, "0123456789");
		if (n == 0 || n > 9)
			return false;
		s += 1 + n;
	}
	return strcmp(s, "Z") == 0;
}

static void check_value(const struct check *k, const struct param *p, const char *path, const json_t *v);

static void check_arr(const struct check *k, const struct param *p, const char *path, const json_t *v)
{
	if (!json_is_array(v)) {
		wrong_type(k, path, "an array", v);
		return;
	}
	long long n = (long long)json_array_size(v);
	if (n < p->min || (n > param_max(p) && (!k->out || p->max != 0))) {
		err_detail(k->e, ERR_BAD_REQUEST, path, "`%s` must have %lld to %lld items; it has %lld.",
		    path, p->min, param_max(p), n);
		return;
	}
	size_t i;
	const json_t *item;
	json_array_foreach(v, i, item) {
		path_t at;
		if (p->fields->type == T_ANY && !json_is_null(item))
			continue; /* nothing can be wrong with it */
		(void)snprintf(at, sizeof at, "%s[%zu]", path, i);
		/* In an array null is a value, and never the wanted one. */
		if (json_is_null(item) && !p->fields->nullable)
			err_detail(k->e, ERR_BAD_REQUEST, at, "`%s` must not be null.", at);
		else
			check_value(k, p->fields, at, item);
	}
}

static void check_map(const struct check *k, const struct param *p, const char *path, const json_t *v)
{
	if (!json_is_object(v)) {
		wrong_type(k, path, "an object", v);
		return;
	}
	long long n = (long long)json_object_size(v);
	if (n > param_max(p) && (!k->out || p->max != 0)) {
		err_detail(k->e, ERR_BAD_REQUEST, path, "`%s` must have at most %lld entries; it has %lld.",
		    path, param_max(p), n);
		return;
	}
	const struct param *value = p->fields != NULL ? p->fields : &param_map_value;
	const char *key;
	json_t *item;
	json_object_foreach((json_t *)(uintptr_t)v, key, item) {
		path_t at;
		(void)snprintf(at, sizeof at, "%s.%.*s", path, KEY_SHOWN, key);
		if (json_is_null(item))
			err_detail(k->e, ERR_BAD_REQUEST, at, "`%s` must not be null.", at);
		else
			check_value(k, value, at, item);
	}
}

static void check_value(const struct check *k, const struct param *p, const char *path, const json_t *v)
{
	if (json_is_null(v) && (p->nullable || !k->out))
		return;
	switch (p->type) {
	case T_STR:
		check_str(k, p, path, v);
		return;
	case T_INT:
	case T_NUM:
		check_num(k, p, path, v);
		return;
	case T_BOOL:
		if (!json_is_boolean(v))
			wrong_type(k, path, "true or false", v);
		return;
	case T_ENUM:
		check_enum(k, p, path, v);
		return;
	case T_TIME:
		if (!json_is_string(v) || !is_time(json_string_value(v)))
			err_detail(k->e, ERR_BAD_REQUEST, path,
			    "`%s` must be a time in UTC such as \"2030-01-31T12:00:00Z\".", path);
		return;
	case T_OBJ:
		if (!json_is_object(v))
			wrong_type(k, path, "an object", v);
		else if (p->fields != NULL)
			check_fields(k, p->fields, path, v);
		return;
	case T_ARR:
		check_arr(k, p, path, v);
		return;
	case T_MAP:
		check_map(k, p, path, v);
		return;
	case T_ANY:
		return;
	}
}

static void unknown_field(
    const struct check *k, const struct param *schema, const char *path, const char *key)
{
	auto_buf struct buf names = BUF(NAMES_SHOWN);
	bool top = k->route != NULL && schema == k->top;
	for (const struct param *p = schema; p->name != NULL; p++)
		if (!top || !route_has(k->route, p->name))
			(void)buf_fmt(&names, "%s%s", names.n == 0 ? "" : ", ", p->name);
	if (names.n == 0 && !names.full)
		err_detail(k->e, ERR_BAD_REQUEST, path, "Unknown field `%.*s`: there are none here.",
		    KEY_SHOWN, key);
	else if (names.full)
		err_detail(k->e, ERR_BAD_REQUEST, path, "Unknown field `%.*s`.", KEY_SHOWN, key);
	else
		err_detail(k->e, ERR_BAD_REQUEST, path, "Unknown field `%.*s`; known here: %s.", KEY_SHOWN,
		    key, buf_c(&names));
}

static void check_fields(const struct check *k, const struct param *schema, const char *path, const json_t *v)
{
	const char *key;
	json_t *field;
	json_object_foreach((json_t *)(uintptr_t)v, key, field) {
		const struct param *p = param_find(schema, key);
		path_t at;
		if (p != NULL && path[0] == 0) {
			check_value(k, p, p->name, field);
			continue;
		}
		if (p == NULL && k->lax)
			continue;
		(void)snprintf(at, sizeof at, "%s%s%.*s", path, path[0] != 0 ? "." : "", KEY_SHOWN, key);
		if (p != NULL)
			check_value(k, p, at, field);
		else
			unknown_field(k, schema, at, key);
	}
	for (const struct param *p = schema; p->name != NULL; p++) {
		const json_t *have = json_object_get(v, p->name);
		if (!p->required || (have != NULL && (k->out || !json_is_null(have))))
			continue;
		path_t at;
		(void)snprintf(at, sizeof at, "%s%s%s", path, path[0] != 0 ? "." : "", p->name);
		err_detail(k->e, ERR_BAD_REQUEST, at, "`%s` is required.", at);
	}
}

static int check_whole(const struct check *k, const struct param *schema, const json_t *v)
{
	if (!json_is_object(v))
		return err_set(
		    k->e, ERR_BAD_REQUEST, "The body must be a JSON object, not %s.", type_said(v));
	check_fields(k, schema == NULL ? op_none : schema, "", v);
	return k->e->code == ERR_NONE ? 0 : -1;
}

int op_check(const struct param *schema, const json_t *in, unsigned flags, struct err *e)
{
	return check_whole(&(struct check){ .e = e, .lax = (flags & OP_LAX) != 0 }, schema, in);
}

int op_check_route(const struct op *op, const struct route *r, const json_t *in, struct err *e)
{
	const struct check k = { .e = e,
		.lax = (op->flags & OP_LAX) != 0,
		.text = !op_has_body(op, r),
		.route = r,
		.top = op->in };
	return check_whole(&k, op->in, in);
}

int op_check_out(const struct param *schema, const json_t *out, struct err *e)
{
	return check_whole(&(struct check){ .e = e, .out = true }, schema, out);
}
