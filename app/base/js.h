/*
 * js.h - the one JSON idiom, over Jansson. Constructors are Jansson's own (json_pack); reading goes through here.
 * Jansson's parser recurses, so nesting is bounded (LIMIT_JSON_DEPTH) before it sees a byte.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

/* Parse one whole JSON value. Duplicate keys, NUL in strings, invalid UTF-8 and depth are ERR_BAD_REQUEST. New reference. */
json_t *js_parse(const char *p, size_t n, struct err *e);
/* The depth scan alone: deepest nesting of brackets outside strings. */
int js_depth(const char *p, size_t n);

/* Members of an object; the default when absent, null or of another type. Strings are borrowed from o. */
const char *js_str(const json_t *o, const char *key); /* NULL when absent */
const char *js_str_or(const json_t *o, const char *key, const char *def);
long long js_int(const json_t *o, const char *key, long long def);
bool js_bool(const json_t *o, const char *key, bool def);
json_t *js_get(const json_t *o, const char *key); /* borrowed; NULL when absent or JSON null */
/*
 * The bytes that a text member stands for: as they are or, where the member enc_key says "base64" (enc_key NULL: always), decoded
 * into the arena. None when absent. ERR_BAD_REQUEST naming key when it is not base64.
 */
int js_bytes(
    struct mem *m, const json_t *o, const char *key, const char *enc_key, struct str *out, struct err *e);

/* Set a member, taking the reference; v NULL (or s NULL) means JSON null. Aborts when out of memory. */
void js_set(json_t *o, const char *key, json_t *v);
void js_set_str(json_t *o, const char *key, const char *s);
void js_push(json_t *array, json_t *v);
/* A JSON string of arbitrary bytes: what is not UTF-8 becomes U+FFFD. For text that people read. */
json_t *js_text(const char *p, size_t n);

/* Compact text. js_dump: in the arena. js_dump_buf: appended; -1 when it does not fit. */
char *js_dump(struct mem *m, const json_t *v) __attribute__((returns_nonnull));
int js_dump_buf(struct buf *b, const json_t *v);
/* A JSON string of arbitrary bytes, appended in its quotes; what is not UTF-8 as in js_text. For text that is written without a tree. */
void js_quote(struct buf *b, const char *p, size_t n);
/* json_pack that cannot fail for memory: a NULL result is a bug in the format and aborts. */
json_t *js_pack(const char *fmt, ...) __attribute__((returns_nonnull, warn_unused_result));
