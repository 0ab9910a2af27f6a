/* Help is read from the table, like everything else; there is no second text to keep in step. */
#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "op/cli.h"
#include "op/param.h"

enum { TEXT_COLUMNS = 100, MAX_DEPTH = 4 };

static bool callable(const struct op *o)
{
	return (o->flags & (OP_INTERNAL | OP_HIDDEN)) == 0;
}

void cli_list(const struct op *const *tables, struct buf *out)
{
	for (; *tables != NULL; tables++)
		for (const struct op *o = *tables; o->id != NULL; o++)
			if (callable(o))
				(void)buf_fmt(out, "%-22s %s\n", o->id, o->summary);
}

/* Words of s, indented and wrapped. */
static void wrap(struct buf *out, const char *s, int indent)
{
	int at = 0;
	while (*s != 0) {
		int n = (int)strcspn(s, " ");
		if (at > 0 && at + 1 + n > TEXT_COLUMNS - indent) {
			(void)buf_chr(out, '\n');
			at = 0;
		}
		at += at == 0 ? 0 : 1;
		(void)buf_fmt(out, "%*s%.*s", at == 0 ? indent : 1, "", n, s);
		at += n;
		s += n;
		s += strspn(s, " ");
	}
	(void)buf_chr(out, '\n');
}

static void type_of(const struct param *p, struct buf *out)
{
	static const char *const names[] = { [T_STR] = "text",
		[T_INT] = "whole number",
		[T_NUM] = "number",
		[T_BOOL] = "true or false",
		[T_TIME] = "time",
		[T_OBJ] = "object",
		[T_ARR] = "list",
		[T_MAP] = "map",
		[T_ANY] = "anything",
		[T_ENUM] = "" };
	(void)buf_str(out, names[p->type]);
	for (const char *const *v = p->type == T_ENUM ? p->values : NULL; v != NULL && *v != NULL; v++)
		(void)buf_fmt(out, "%s%s", v == p->values ? "" : " | ", *v);
	if ((p->type == T_INT || p->type == T_NUM) && param_has_range(p))
		(void)buf_fmt(out, " %lld to %lld", p->min, p->max);
	if (p->type == T_ARR) {
		(void)buf_str(out, " of ");
		type_of(p->fields, out);
	}
}

static void fields_of(const struct param *fields, const char *prefix, int depth, struct buf *out)
{
	for (const struct param *p = fields; p != NULL && p->name != NULL; p++) {
		char name[120];
		(void)snprintf(name, sizeof name, "%s%s", prefix, p->name);
		(void)buf_fmt(out, "  %s  (", name);
		type_of(p, out);
		(void)buf_str(out, p->required ? ", required)\n" : ")\n");
		if (p->doc != NULL)
			wrap(out, p->doc, 6);
		if (depth == MAX_DEPTH)
			continue;
		size_t n = strlen(name);
		if (p->type == T_OBJ) {
			(void)snprintf(name + n, sizeof name - n, ".");
			fields_of(p->fields, name, depth + 1, out);
		} else if (p->type == T_ARR && p->fields->type == T_OBJ) {
			(void)snprintf(name + n, sizeof name - n, "[0].");
			fields_of(p->fields->fields, name, depth + 1, out);
		}
	}
}

void cli_help(const struct op *op, struct buf *out)
{
	(void)buf_fmt(out, "gatehouse call %s%s\n\n", op->id,
	    op->in == NULL || op->in->name == NULL ? "" : " [field=value ...]");
	wrap(out, op->doc, 2);
	if ((op->flags & OP_RAW_IN) != 0)
		wrap(out, "The bytes are given as body=@file.", 2);
	if (op->in != NULL && op->in->name != NULL)
		(void)buf_str(out, "\nFields:\n");
	fields_of(op->in, "", 0, out);
	(void)buf_str(out, "\nRoutes:\n");
	for (const struct route *r = op->routes; r < op->routes + OP_ROUTES_MAX && r->path != NULL; r++)
		(void)buf_fmt(out, "  %s %s\n", r->method, r->path);
}
