/*
 * An argument names a place ("files[0].path") and a value. The place is walked from the root, each step returning the new
 * value of its node with the rest put in: so an input is built from any order of arguments, and `old` is never changed
 * behind a failure's back.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "op/cli.h"
#include "op/param.h"

enum { ARG_SHOWN = 60 };

/* One argument: where it goes, and what. */
struct arg {
	const char *text; /* as given, for messages */
	const char *value;
	bool json; /* := */
	cli_read_fn *read_file;
};

static json_t *node(const struct arg *a, const struct param *p, json_t *old, const char *path, struct err *e);

static json_t *bad(const struct arg *a, struct err *e, const char *why)
{
	err_set(e, ERR_BAD_REQUEST, "`%.*s`: %s", ARG_SHOWN, a->text, why);
	return NULL;
}

/* A scalar's text as its type; what does not fit stays text, and the input check says what is wanted. */
static json_t *scalar(const struct arg *a, const struct param *p, const char *s, size_t n, struct err *e)
{
	if (utf8_valid(s, n) != n || memchr(s, 0, n) != NULL)
		return bad(a, e, "this is not text; send bytes as base64 where the op has a field `enc`.");
	json_t *one = js_pack("{s:o}", "v", js_text(s, n));
	if (p != NULL) {
		struct param row[] = { *p, { 0 } };
		row[0].name = "v";
		query_coerce(row, one);
	}
	json_t *v = json_incref(json_object_get(one, "v"));
	json_decref(one);
	return v;
}

static json_t *leaf_value(const struct arg *a, const struct param *p, struct err *e)
{
	auto_buf struct buf file = BUF(LIMIT_FILE_BYTES);
	const char *s = a->value;
	size_t n = strlen(s);
	if (s[0] == '@') {
		if (a->read_file(s + 1, &file, e) != 0)
			return NULL;
		s = buf_c(&file);
		n = file.n;
	}
	if (!a->json)
		return scalar(a, p, s, n, e);
	struct err why = { 0 };
	json_t *v = js_parse(s, n, &why);
	return v != NULL ? v : bad(a, e, "what stands after := must be JSON.");
}

static json_t *leaf(const struct arg *a, const struct param *p, json_t *old, struct err *e)
{
	if (p != NULL && p->type == T_ARR && !a->json) {
		json_t *item = leaf_value(a, p->fields, e);
		if (item == NULL)
			return NULL;
		json_t *all = old != NULL ? json_incref(old) : json_array();
		js_push(all, item);
		return all;
	}
	if (old != NULL)
		return bad(a, e, "this field is given twice.");
	return leaf_value(a, p, e);
}

/* The schema of a member; NULL where the schema does not say. */
static const struct param *member(const struct param *p, const char *name)
{
	if (p == NULL)
		return NULL;
	if (p->type == T_MAP)
		return p->fields != NULL ? p->fields : &param_map_value;
	return p->type == T_OBJ ? param_find(p->fields, name) : NULL;
}

static json_t *object_node(
    const struct arg *a, const struct param *p, json_t *old, const char *path, struct err *e)
{
	char name[80];
	size_t n = strcspn(path, ".[");
	if (n == 0 || n >= sizeof name)
		return bad(a, e, "a field's name is missing or too long.");
	if (old != NULL && !json_is_object(old))
		return bad(a, e, "this field is given twice, as a value and as an object.");
	(void)snprintf(name, sizeof name, "%.*s", (int)n, path);
	/* The rest of a map's key may hold anything: env.MY.KEY=x is one variable. */
	if (p != NULL && p->type == T_MAP) {
		(void)snprintf(name, sizeof name, "%s", path);
		n = strlen(path);
	}
	auto_json json_t *o = old != NULL ? json_incref(old) : json_object();
	json_t *v = node(a, member(p, name), json_object_get(o, name), path + n, e);
	if (v == NULL)
		return NULL;
	js_set(o, name, v);
	return steal(o);
}

static json_t *array_node(
    const struct arg *a, const struct param *p, json_t *old, const char *path, struct err *e)
{
	char digits[16];
	long long i;
	size_t n = strcspn(path, "]");
	(void)snprintf(digits, sizeof digits, "%.*s", (int)(n < sizeof digits ? n : 0), path);
	if (path[n] != ']' || !str_int(digits, 0, PARAM_ARR_ITEMS, &i))
		return bad(a, e, "an index is a number in brackets, such as files[0].path.");
	if (old != NULL && !json_is_array(old))
		return bad(a, e, "this field is given twice, as a value and as an array.");
	auto_json json_t *all = old != NULL ? json_incref(old) : json_array();
	if ((size_t)i > json_array_size(all))
		return bad(a, e, "indices count from 0 without gaps.");
	const struct param *item = p != NULL && p->type == T_ARR ? p->fields : NULL;
	json_t *v = node(a, item, json_array_get(all, (size_t)i), path + n + 1, e);
	if (v == NULL)
		return NULL;
	if ((size_t)i == json_array_size(all))
		js_push(all, v);
	else if (json_array_set_new(all, (size_t)i, v) != 0)
		abort();
	return steal(all);
}

/* The new value of a place, `old` (borrowed) being what is there now. */
static json_t *node(const struct arg *a, const struct param *p, json_t *old, const char *path, struct err *e)
{
	if (*path == 0)
		return leaf(a, p, old, e);
	if (*path == '.')
		return object_node(a, p, old, path + 1, e);
	if (*path == '[')
		return array_node(a, p, old, path + 1, e);
	return bad(a, e, "after an index comes a dot or the value.");
}

static json_t *add_arg(
    const struct op *op, json_t *in, const char *text, cli_read_fn *read_file, struct err *e)
{
	size_t n = strcspn(text, "=");
	struct arg a = { .text = text, .value = text + n + 1, .read_file = read_file };
	if (text[n] != '=' || n == 0)
		return bad(&a, e, "fields are given as name=value; see --help.");
	a.json = text[n - 1] == ':';
	char path[200];
	if (n >= sizeof path)
		return bad(&a, e, "a field's name is too long.");
	(void)snprintf(path, sizeof path, "%.*s", (int)(a.json ? n - 1 : n), text);
	const struct param root = { .type = T_OBJ, .fields = op->in == NULL ? op_none : op->in };
	return object_node(&a, &root, in, path, e);
}

json_t *cli_input(const struct op *op, char *const *args, cli_read_fn *read_file, struct err *e)
{
	auto_json json_t *in = json_object();
	for (; *args != NULL; args++) {
		json_t *more = add_arg(op, in, *args, read_file, e);
		if (more == NULL)
			return NULL;
		json_decref(in);
		in = more;
	}
	return steal(in);
}
