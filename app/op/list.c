#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "op/op.h"

/* A cursor is "c1-" and the last row's sort key in hex: safe in a URL without encoding, and nobody is tempted
 * to make one. */
#define CURSOR_TAG "c1-"
enum { KEY_MAX_BYTES = 196 };

const struct param op_list_in[] = { LIST_PARAMS, { 0 } };

int list_limit(const json_t *in)
{
	return (int)js_int(in, "limit", LIMIT_LIST_DEFAULT);
}

const char *list_cursor(struct ctx *c, const json_t *in, struct err *e)
{
	const char *cursor = js_str(in, "cursor");
	if (cursor == NULL)
		return "";
	unsigned char key[KEY_MAX_BYTES + 1];
	ssize_t n = str_starts(cursor, CURSOR_TAG)
	    ? hex_decode(cursor + strlen(CURSOR_TAG), key, KEY_MAX_BYTES)
	    : -1;
	if (n <= 0 || memchr(key, 0, (size_t)n) != NULL || utf8_valid((char *)key, (size_t)n) != (size_t)n) {
		err_field(e, ERR_BAD_REQUEST, "cursor", "`cursor` must be the `next` of an earlier page.");
		return NULL;
	}
	return mem_strn(c->mem, (char *)key, (size_t)n);
}

/* Rows beyond the limit prove that there is a next page; the cursor is the last row that is shown, so that rows added or removed
 * meanwhile shift nothing. */
json_t *list_reply(json_t *rows, int limit, const char *key_field)
{
	assert(json_is_array(rows) && limit > 0);
	auto_json json_t *next = NULL;
	if (json_array_size(rows) > (size_t)limit) {
		while (json_array_size(rows) > (size_t)limit)
			(void)json_array_remove(rows, (size_t)limit);
		const char *key = js_str(json_array_get(rows, (size_t)limit - 1), key_field);
		assert(key != NULL && strlen(key) <= KEY_MAX_BYTES);
		char text[sizeof CURSOR_TAG + 2 * KEY_MAX_BYTES] = CURSOR_TAG;
		hex_encode(key, strlen(key), text + strlen(CURSOR_TAG));
		next = json_string(text);
	}
	size_t i;
	json_t *row;
	if (key_field[0] == '_')
		json_array_foreach(rows, i, row)
			(void)json_object_del(row, key_field);
	return js_pack("{s:o, s:o?}", "data", rows, "next", steal(next));
}
