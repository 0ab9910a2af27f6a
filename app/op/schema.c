/* JSON Schema (2020-12, as OpenAPI 3.1 has it) of the same rows that check.c judges with. */
#include <string.h>

#include "base/js.h"
#include "op/op.h"
#include "op/param.h"

static json_t *object_schema(const struct param *fields, bool input);

static json_t *enum_of(const struct param *p)
{
	json_t *all = json_array();
	for (const char *const *v = p->values; *v != NULL; v++)
		js_push(all, json_string(*v));
	if (p->nullable)
		js_push(all, json_null());
	return all;
}

static const char *type_name(enum op_type t)
{
	switch (t) {
	case T_STR:
	case T_ENUM:
	case T_TIME:
		return "string";
	case T_INT:
		return "integer";
	case T_NUM:
		return "number";
	case T_BOOL:
		return "boolean";
	case T_OBJ:
	case T_MAP:
		return "object";
	case T_ARR:
		return "array";
	case T_ANY:
		break;
	}
	return NULL;
}

/* An input's bound may be a default; a reply has only those that are stated. */
static void bound(json_t *o, const struct param *p, bool input, const char *least, const char *most)
{
	if (p->min > 0)
		js_set(o, least, json_integer(p->min));
	if (input || p->max != 0)
		js_set(o, most, json_integer(param_max(p)));
}

static json_t *value_schema(const struct param *p, bool input);

static void add_shape(json_t *o, const struct param *p, bool input)
{
	switch (p->type) {
	case T_STR: /* our bounds are bytes: never fewer than characters, so no valid value is refused by a client */
		bound(o, &(struct param){ .type = T_STR, .min = p->min > 0, .max = p->max }, input,
		    "minLength", "maxLength");
		return;
	case T_INT:
	case T_NUM:
		if (!param_has_range(p))
			return;
		js_set(o, "minimum", p->least > 0 ? json_real(p->least) : json_integer(p->min));
		js_set(o, "maximum", json_integer(p->max));
		return;
	case T_ENUM:
		js_set(o, "enum", enum_of(p));
		return;
	case T_TIME:
		js_set(o, "format", json_string("date-time"));
		return;
	case T_ARR:
		bound(o, p, input, "minItems", "maxItems");
		js_set(o, "items", value_schema(p->fields, input));
		return;
	case T_MAP:
		bound(o, p, input, "minProperties", "maxProperties");
		js_set(o, "additionalProperties",
		    value_schema(p->fields != NULL ? p->fields : &param_map_value, input));
		return;
	case T_OBJ:
	case T_BOOL:
	case T_ANY:
		return;
	}
}

static json_t *value_schema(const struct param *p, bool input)
{
	json_t *o = p->type == T_OBJ && p->fields != NULL ? object_schema(p->fields, input) : json_object();
	const char *type = type_name(p->type);
	if (type != NULL && p->nullable && !input)
		js_set(o, "type", js_pack("[s,s]", type, "null"));
	else if (type != NULL)
		js_set(o, "type", json_string(type));
	if (p->doc != NULL)
		js_set(o, "description", json_string(p->doc));
	add_shape(o, p, input);
	struct err e = { 0 };
	json_t *example = p->example == NULL ? NULL : js_parse(p->example, strlen(p->example), &e);
	if (example != NULL)
		js_set(o, "examples", js_pack("[o]", example));
	return o;
}

static json_t *object_schema(const struct param *fields, bool input)
{
	json_t *props = json_object(), *required = json_array();
	for (const struct param *p = fields; p->name != NULL; p++) {
		js_set(props, p->name, value_schema(p, input));
		if (p->required)
			js_push(required, json_string(p->name));
	}
	json_t *o = js_pack("{s:s, s:o}", "type", "object", "properties", props);
	if (json_array_size(required) > 0)
		js_set(o, "required", json_incref(required));
	json_decref(required);
	if (input) /* HTTP-3; a reply may gain fields */
		js_set(o, "additionalProperties", json_false());
	return o;
}

json_t *op_schema(const struct param *schema)
{
	return object_schema(schema == NULL ? op_none : schema, true);
}

json_t *op_schema_out(const struct param *schema)
{
	return object_schema(schema == NULL ? op_none : schema, false);
}

json_t *param_schema(const struct param *p)
{
	return value_schema(p, true);
}
