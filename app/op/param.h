/*
 * param.h - what a schema row leaves unsaid; shared by the check and the documents made from a schema, so that
 * they agree.
 */
#pragma once

#include "op/op.h"

enum {
	PARAM_STR_BYTES = 1024,
	PARAM_ARR_ITEMS = 1000,
	PARAM_MAP_ENTRIES = 100,
	PARAM_MAP_VALUE_BYTES = 8192
};

extern const struct param param_map_value; /* of a T_MAP without fields */

long long param_max(const struct param *p);  /* the input's upper bound of bytes, items or entries */
bool param_has_range(const struct param *p); /* T_INT, T_NUM: are min and max stated? */
const struct param *param_find(const struct param *schema, const char *name); /* NULL when there is none */
json_t *param_schema(const struct param *p); /* JSON Schema of one input value */
